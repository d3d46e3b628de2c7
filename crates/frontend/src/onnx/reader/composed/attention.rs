//! `Attention` of ONNX 23 and later as two products with a softmax between them, which the graph
//! makes one kernel of.

use crate::onnx::reader::body::Body;
use crate::onnx::reader::inline::int;

/// More elements of a causal mask than are written into a model: larger constants keep no values.
const MOST_MASK: i64 = 1 << 20;

/// Attributes of which any other value than the default keeps a node as it is.
const DEFAULTS: &[(&str, i64)] =
    &[("left_window_size", -1), ("right_window_size", -1), ("qk_matmul_output_mode", 0)];

/// The inputs by their places: the mask, past keys and values, and the lengths of the keys.
const MASK: usize = 3;
const PAST: [usize; 2] = [4, 5];
const LENGTHS: usize = 6;

/// The extents of queries, keys and values in `[batch, heads, steps, size]`.
struct Heads {
    batch: i64,
    heads: i64,
    /// Heads of keys and values: as many queries' heads share one as these divide.
    shared: i64,
    queries: i64,
    size: i64,
    value_size: i64,
    /// Heads lie side by side in the last dimension.
    packed: bool,
}

impl Heads {
    fn of(b: &Body) -> Option<Heads> {
        let [q, k, v] = [0, 1, 2].map(|i| b.shape(i).ok());
        let (q, k, v) = (q?, k?, v?);
        let h = match (&q[..], &k[..], &v[..]) {
            (&[batch, heads, queries, size], &[_, shared, _, _], &[_, _, _, value_size]) => {
                Heads { batch, heads, shared, queries, size, value_size, packed: false }
            }
            (&[batch, queries, wide], &[_, _, _], &[_, _, values]) => {
                let [heads, shared] = ["q_num_heads", "kv_num_heads"].map(|name| b.int(name, 0));
                let size = wide.checked_div(heads)?;
                let value_size = values.checked_div(shared)?;
                Heads { batch, heads, shared, queries, size, value_size, packed: true }
            }
            _ => return None,
        };
        let fits = match h.packed {
            true => {
                let steps = k[1];
                q[2] == h.heads * h.size
                    && k == [h.batch, steps, h.shared * h.size]
                    && v == [h.batch, steps, h.shared * h.value_size]
            }
            false => {
                let steps = k[2];
                k == [h.batch, h.shared, steps, h.size]
                    && v == [h.batch, h.shared, steps, h.value_size]
            }
        };
        let are_some = [h.batch, h.shared, h.heads, h.size, h.value_size, h.queries];
        (fits && are_some.iter().all(|e| *e > 0) && h.heads % h.shared == 0).then_some(h)
    }
}

/// Masks stay with the plain operator, which gives zeros where a mask leaves a query no key.
pub(super) fn attention(b: &mut Body) -> Option<()> {
    let is_default = |(name, value): &(&str, i64)| b.int(name, *value) == *value;
    let only = [0, 1, 2];
    let is_plain = b.given(MASK).is_some() || b.given(LENGTHS).is_some();
    if is_plain || !DEFAULTS.iter().all(is_default) || b.only_outputs(&only).is_err() {
        return None;
    }
    let h = Heads::of(b)?;
    let [q, k, v] = [0, 1, 2].map(|i| b.input(i).ok());
    let (q, mut k, mut v) = (q?, k?, v?);
    let split = |b: &mut Body, x: &str, heads: i64, size: i64| -> String {
        let parted = b.reshape(x, &[0, 0, heads, size]);
        b.transpose(&parted, &[0, 2, 1, 3])
    };
    let mut q = if h.packed { split(b, &q, h.heads, h.size) } else { q };
    if h.packed {
        k = split(b, &k, h.shared, h.size);
        v = split(b, &v, h.shared, h.value_size);
    }
    let mut past = 0;
    if b.given(PAST[0]).is_some() {
        let [keys, values] = [b.input(PAST[0]).ok()?, b.input(PAST[1]).ok()?];
        past = *b.shape(PAST[0]).ok()?.get(2)?;
        k = b.op("Concat", &[&keys, &k], vec![int("axis", 2)]);
        v = b.op("Concat", &[&values, &v], vec![int("axis", 2)]);
    }
    let keys = past + *b.shape(1).ok()?.get(if h.packed { 1 } else { 2 })?;
    if keys <= 0 {
        return None;
    }
    b.hand_on(&k, 1);
    b.hand_on(&v, 2);
    // Where heads share keys, a dimension of their own has as many queries' heads as do.
    let group = h.heads / h.shared;
    if group > 1 {
        q = b.reshape(&q, &[h.batch, h.shared, group, h.queries, h.size]);
        k = b.reshape(&k, &[h.batch, h.shared, 1, keys, h.size]);
        v = b.reshape(&v, &[h.batch, h.shared, 1, keys, h.value_size]);
    }
    let turned: &[i64] = if group > 1 { &[0, 1, 2, 4, 3] } else { &[0, 1, 3, 2] };
    let k = b.transpose(&k, turned);
    let scores = scores(b, &q, &k, &h)?;
    let scores = causal(b, scores, [h.queries, keys, past])?;
    let shares = b.op("Softmax", &[&scores], vec![int("axis", -1)]);
    let mut y = b.op("MatMul", &[&shares, &v], vec![]);
    if group > 1 {
        y = b.reshape(&y, &[h.batch, h.heads, h.queries, h.value_size]);
    }
    if h.packed {
        y = b.transpose(&y, &[0, 2, 1, 3]);
        y = b.reshape(&y, &[h.batch, h.queries, h.heads * h.value_size]);
    }
    b.hand_on(&y, 0);
    Some(())
}

/// The product of queries and keys, scaled, and capped where the node says so.
fn scores(b: &mut Body, q: &str, k: &str, h: &Heads) -> Option<String> {
    let product = b.op("MatMul", &[q, k], vec![]);
    let scale = b.attribute("scale").and_then(|a| a.f);
    let scale = scale.unwrap_or_else(|| (h.size as f32).sqrt().recip());
    let cap = b.float("softcap", 0.0);
    if cap <= 0.0 {
        let scale = scalar(b, scale)?;
        return Some(b.op("Mul", &[&product, &scale], vec![]));
    }
    let (scale, cap) = (scalar(b, scale / cap)?, scalar(b, cap)?);
    let scaled = b.op("Mul", &[&product, &scale], vec![]);
    let held = b.op("Tanh", &[&scaled], vec![]);
    Some(b.op("Mul", &[&held, &cap], vec![]))
}

/// Scores to which a mask is added that keeps a query from the keys behind it, where the node is
/// causal; `past` keys lie before the first query.
fn causal(b: &mut Body, scores: String, [queries, keys, past]: [i64; 3]) -> Option<String> {
    if b.int("is_causal", 0) == 0 {
        return Some(scores);
    }
    if queries.checked_mul(keys).is_none_or(|all| all > MOST_MASK) {
        return None;
    }
    let places = (0..queries).flat_map(|i| (0..keys).map(move |j| j <= i + past));
    let mask = places.map(|seen| if seen { 0.0 } else { f32::NEG_INFINITY }).collect();
    let mask = b.floats(&[queries, keys], mask);
    let mask = typed(b, mask)?;
    Some(b.op("Add", &[&scores, &mask], vec![]))
}

/// A number of the type of the queries.
fn scalar(b: &mut Body, x: f32) -> Option<String> {
    let number = b.scalar(x);
    typed(b, number)
}

/// A constant of 32-bit floats in the type of the queries.
fn typed(b: &mut Body, constant: String) -> Option<String> {
    use squall_core::DType;
    let to = match (b.around.dtype)(b.call.input.first()?)? {
        DType::F32 => return Some(constant),
        DType::F16 => 10,
        _ => 16,
    };
    Some(b.op("Cast", &[&constant], vec![int("to", to)]))
}
