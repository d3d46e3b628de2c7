//! Rewrites onnxruntime's `RotaryEmbedding` as the standard operator without position ids: a row of
//! its caches is gathered for each step. Its ids are those of all steps, or that of the first step,
//! behind which the others are counted. onnxruntime reads an attribute `scale` and multiplies
//! nothing by it (`rotary_embedding.cc`); this file does not read it.

use super::MOST_PLACES;
use crate::onnx::reader::body::Body;
use crate::onnx::reader::inline::int;

pub(super) fn rotary_embedding(b: &mut Body) -> Result<(), String> {
    if b.int("is_packed_batching", 0) != 0 {
        return Err("its attribute `is_packed_batching` is not supported".into());
    }
    if b.int("rotary_embedding_dim", 0) > 0 && b.int("num_heads", 0) == 0 {
        return Err("its attribute `rotary_embedding_dim` needs `num_heads`".into());
    }
    let (shape, caches) = (b.shape(0)?, [b.shape(2)?, b.shape(3)?]);
    let [_, half] = caches[0][..] else { return Err("its cosines are no matrix".into()) };
    if caches[0] != caches[1] {
        return Err(format!("its cosines {:?} do not suit its sines {:?}", caches[0], caches[1]));
    }
    let (batch, steps, heads) = match shape[..] {
        [batch, heads, steps, _] => (batch, steps, heads),
        // Where the number of heads is not given the caches say how wide one is.
        [batch, steps, wide] => match b.int("num_heads", 0) {
            0 => (batch, steps, half.checked_mul(2).and_then(|d| wide.checked_div(d)).unwrap_or(0)),
            heads => (batch, steps, heads),
        },
        _ => return Err(format!("input 0 of shape {shape:?} has neither three axes nor four")),
    };
    if steps > MOST_PLACES {
        return Err(format!("its steps are more than {MOST_PLACES}"));
    }
    let ids = b.input(1)?;
    let (ids, is_first) = match b.shape(1)?[..] {
        [] | [1] => {
            let steps = b.integers(&(0..steps).collect::<Vec<i64>>());
            (b.op("Add", &[&ids, &steps], vec![]), true)
        }
        [n, t] if (n, t) == (batch, steps) => (ids, false),
        ref other => return Err(format!("position ids of shape {other:?} are not supported")),
    };
    let ids = b.counted_from_front(&ids, caches[0][0]);
    let rows = |b: &mut Body, input: usize| -> Result<String, String> {
        let mut rows = b.op("Gather", &[&b.input(input)?, &ids], vec![]);
        if is_first {
            rows = b.reshape(&rows, &[1, steps, half]);
        }
        if is_first && batch != 1 {
            let shape = b.integers(&[batch, steps, half]);
            rows = b.op("Expand", &[&rows, &shape], vec![]);
        }
        Ok(rows)
    };
    let (cos, sin) = (rows(b, 2)?, rows(b, 3)?);
    let own = ["interleaved", "rotary_embedding_dim"].map(|name| int(name, b.int(name, 0)));
    let attributes = own.into_iter().chain([int("num_heads", heads)]).collect();
    let y = b.op("RotaryEmbedding", &[&b.input(0)?, &cos, &sin], attributes);
    b.hand_on(&y, 0);
    Ok(())
}
