//! Rewrites onnxruntime's attention nodes (`Attention`, `MultiHeadAttention`) as standard
//! operators: projections, scores, a mask, softmax, and the weighted sum of the values. The graph's
//! rule for attention then finds the products and the softmax again and makes one kernel of them.

use super::MOST_PLACES;
use crate::onnx::proto::TensorProto;
use crate::onnx::reader::body::Body;
use crate::onnx::reader::inline::int;

/// The most elements of a causal mask that is written into a model.
const MOST_MASK: i64 = 1 << 22;

/// The most heads of an attention.
const MOST_HEADS: i64 = 1 << 16;

/// Sizes of an attention: batch, queries, keys, heads.
struct Sizes {
    batch: i64,
    queries: i64,
    keys: i64,
    heads: i64,
}

fn heads(b: &Body) -> Result<i64, String> {
    match b.int("num_heads", 0) {
        n if (1..=MOST_HEADS).contains(&n) => Ok(n),
        n => Err(format!("attribute `num_heads` is {n}, not from 1 to {MOST_HEADS}")),
    }
}

/// One input that is projected to queries, keys and values by one matrix.
pub(super) fn attention(b: &mut Body) -> Result<(), String> {
    b.only_outputs(&[0])?;
    b.without_inputs([4, 6])?;
    if b.int("do_rotary", 0) != 0 {
        return Err("its attribute `do_rotary` is not supported".into());
    }
    let sizes = b.attribute("qkv_hidden_sizes").map_or(vec![], |a| a.ints.clone());
    if sizes.windows(2).any(|w| w[0] != w[1]) {
        return Err("its hidden sizes differ".into());
    }
    let [batch, length, _] = b.shape(0)?[..] else {
        return Err("input 0 has no three axes".into());
    };
    let s = Sizes { batch, queries: length, keys: length, heads: heads(b)? };
    let [_, wide] = b.shape(1)?[..] else { return Err("its weights are no matrix".into()) };
    if wide <= 0 || wide % (3 * s.heads) != 0 {
        return Err(format!("{wide} columns of weights do not suit {} heads", s.heads));
    }
    let x = b.input(0)?;
    let weights = b.split(&b.input(1)?, 1, 3);
    let biases = b.given(2).map(|bias| b.split(&bias, 0, 3));
    let parts = [0, 1, 2].map(|i| {
        let y = b.op("MatMul", &[&x, &weights[i]], vec![]);
        match &biases {
            Some(all) => b.op("Add", &[&y, &all[i]], vec![]),
            None => y,
        }
    });
    let masks = Masks { padding: b.given(3).map(|_| 3), bias: b.given(5) };
    attend(b, &s, parts, wide / 3 / s.heads, &masks)
}

/// Queries, keys and values that were projected before; their biases may be given in one vector.
pub(super) fn multi_head_attention(b: &mut Body) -> Result<(), String> {
    b.only_outputs(&[0])?;
    b.without_inputs(6..10)?;
    let axes = |i: usize| match b.shape(i)?[..] {
        [n, length, wide] => Ok([n, length, wide]),
        _ => Err(format!("input {i} has no three axes; packed ones are not supported")),
    };
    let ([batch, queries, wide], [_, keys, _], [.., out]) = (axes(0)?, axes(1)?, axes(2)?);
    let s = Sizes { batch, queries, keys, heads: heads(b)? };
    if wide != out || wide <= 0 || wide % s.heads != 0 {
        return Err(format!("{wide} and {out} columns do not suit {} heads", s.heads));
    }
    let biases = b.given(3).map(|bias| b.split(&bias, 0, 3));
    let given = [b.input(0)?, b.input(1)?, b.input(2)?];
    let parts = [0, 1, 2].map(|i| match &biases {
        Some(all) => b.op("Add", &[&given[i], &all[i]], vec![]),
        None => given[i].clone(),
    });
    let masks = Masks { padding: b.given(4).map(|_| 4), bias: b.given(5) };
    attend(b, &s, parts, wide / s.heads, &masks)
}

/// What is added to the scores.
struct Masks {
    /// The input that says which keys count.
    padding: Option<usize>,
    bias: Option<String>,
}

fn attend(
    b: &mut Body,
    s: &Sizes,
    parts: [String; 3],
    depth: i64,
    masks: &Masks,
) -> Result<(), String> {
    let wide = s.heads * depth;
    let [q, k, v] = parts;
    let q = b.reshape(&q, &[s.batch, s.queries, s.heads, depth]);
    let q = b.transpose(&q, &[0, 2, 1, 3]);
    let k = b.reshape(&k, &[s.batch, s.keys, s.heads, depth]);
    let k = b.transpose(&k, &[0, 2, 3, 1]);
    let v = b.reshape(&v, &[s.batch, s.keys, s.heads, depth]);
    let v = b.transpose(&v, &[0, 2, 1, 3]);
    let mut scores = b.op("MatMul", &[&q, &k], vec![]);
    let scale = match b.float("scale", 0.0) {
        0.0 => (depth as f32).sqrt().recip(),
        given => given,
    };
    let scale = b.scalar(scale);
    scores = b.op("Mul", &[&scores, &scale], vec![]);
    if let Some(input) = masks.padding {
        let mask = padding(b, s, input)?;
        scores = b.op("Add", &[&scores, &mask], vec![]);
    }
    if let Some(bias) = &masks.bias {
        scores = b.op("Add", &[&scores, bias], vec![]);
    }
    if b.int("unidirectional", 0) != 0 {
        let mask = causal(b, s)?;
        scores = b.op("Add", &[&scores, &mask], vec![]);
    }
    let shares = b.op("Softmax", &[&scores], vec![int("axis", -1)]);
    let y = b.op("MatMul", &[&shares, &v], vec![]);
    let y = b.transpose(&y, &[0, 2, 1, 3]);
    let y = b.reshape(&y, &[s.batch, s.queries, wide]);
    b.hand_on(&y, 0);
    Ok(())
}

/// What is added to scores of keys that do not count: a mask's zeros, or keys past a length.
fn padding(b: &mut Body, s: &Sizes, input: usize) -> Result<String, String> {
    let (mask, shape) = (b.input(input)?, b.shape(input)?);
    let counted = match shape[..] {
        [n, keys] if (n, keys) == (s.batch, s.keys) => b.reshape(&mask, &[n, 1, 1, keys]),
        [n, queries, keys] if (n, queries, keys) == (s.batch, s.queries, s.keys) => {
            b.reshape(&mask, &[n, 1, queries, keys])
        }
        [n] if n == s.batch => {
            if s.keys > MOST_PLACES {
                return Err(format!("its keys are more than {MOST_PLACES}"));
            }
            let positions: Vec<i32> = (0..s.keys as i32).collect();
            let known = TensorProto {
                dims: vec![s.keys],
                data_type: 6,
                int32_data: positions,
                ..Default::default()
            };
            let positions = b.constant(known);
            let lengths = b.reshape(&mask, &[n, 1, 1, 1]);
            b.op("Less", &[&positions, &lengths], vec![])
        }
        _ => return Err(format!("a mask of shape {shape:?} is not supported")),
    };
    let counted = b.op("Cast", &[&counted], vec![int("to", 1)]);
    let (one, low) = (b.scalar(1.0), b.scalar(b.float("mask_filter_value", -10_000.0)));
    let absent = b.op("Sub", &[&one, &counted], vec![]);
    Ok(b.op("Mul", &[&absent, &low], vec![]))
}

/// What keeps a query from keys after it.
fn causal(b: &mut Body, s: &Sizes) -> Result<String, String> {
    if s.queries.saturating_mul(s.keys) > MOST_MASK {
        return Err("its causal mask is too large".into());
    }
    // The last query sees all keys.
    Ok(b.causal_mask(s.queries, s.keys, s.keys - s.queries, f32::MIN / 2.0))
}
