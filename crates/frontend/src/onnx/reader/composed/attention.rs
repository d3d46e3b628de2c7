//! `Attention` of ONNX 23 and later as two products with a softmax between them, which the graph
//! makes one kernel of.

use crate::onnx::reader::body::Body;
use crate::onnx::reader::inline::int;
use squall_core::DType;

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

/// The products of a node whose keys are all as long as they seem.
pub(super) fn attention(b: &mut Body) -> Option<()> {
    let is_default = |(name, value): &(&str, i64)| b.int(name, *value) == *value;
    let only = [0, 1, 2];
    if b.given(LENGTHS).is_some()
        || !DEFAULTS.iter().all(is_default)
        || b.only_outputs(&only).is_err()
    {
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
    let mut scores = scores(b, &q, &k, &h)?;
    let (given, causal) = (given_mask(b, &h, keys)?, causal_mask(b, [h.queries, keys, past])?);
    let is_given = given.is_some();
    let masks = [given, causal].into_iter().flatten();
    let mask = masks.reduce(|x, y| b.op("Add", &[&x, &y], vec![]));
    if let Some(mask) = &mask {
        // Scores stay finite where a mask of the node's may hide all keys from a query.
        let added = if is_given { finite(b, mask)? } else { mask.clone() };
        scores = b.op("Add", &[&scores, &added], vec![]);
    }
    let shares = b.op("Softmax", &[&scores], vec![int("axis", -1)]);
    let mut y = b.op("MatMul", &[&shares, &v], vec![]);
    if let Some(mask) = mask.filter(|_| is_given) {
        let sees = sees_some(b, &mask)?;
        y = b.op("Mul", &[&y, &sees], vec![]);
    }
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

/// The type of the queries.
fn dtype(b: &Body) -> Option<DType> {
    (b.around.dtype)(b.call.input.first()?)
}

/// What the node's own mask adds to scores, if it has one: a boolean mask says which keys are seen.
/// None at all where the mask is of another form than one for all keys.
fn given_mask(b: &mut Body, h: &Heads, keys: i64) -> Option<Option<String>> {
    let Some(given) = b.given(MASK) else { return Some(None) };
    let own = b.shape(MASK).ok()?;
    if !(2..=4).contains(&own.len()) {
        return None;
    }
    let shape = [&[1; 4][own.len()..], &own].concat();
    let whole = [h.batch, h.heads, h.queries, keys];
    if shape.iter().zip(whole).any(|(e, all)| *e != 1 && *e != all) {
        return None;
    }
    let added = match (b.around.dtype)(&given)? {
        DType::Bool => {
            let (nothing, hidden) = (scalar(b, 0.0)?, scalar(b, f32::NEG_INFINITY)?);
            b.op("Where", &[&given, &nothing, &hidden], vec![])
        }
        float if Some(float) == dtype(b) => given,
        _ => return None,
    };
    // Heads that share keys are counted by two dimensions.
    let group = h.heads / h.shared;
    let by_group = match (group, shape[1]) {
        (1, _) => return Some(Some(added)),
        (_, 1) => [shape[0], 1, 1, shape[2], shape[3]],
        _ => [shape[0], h.shared, group, shape[2], shape[3]],
    };
    Some(Some(b.reshape(&added, &by_group)))
}

/// What keeps a query from the keys behind it, where the node is causal; `past` keys lie before the
/// first query. None at all where it would be too large.
fn causal_mask(b: &mut Body, [queries, keys, past]: [i64; 3]) -> Option<Option<String>> {
    if b.int("is_causal", 0) == 0 {
        return Some(None);
    }
    if queries.checked_mul(keys).is_none_or(|all| all > MOST_MASK) {
        return None;
    }
    let mask = b.causal_mask(queries, keys, past, f32::NEG_INFINITY);
    typed(b, mask).map(Some)
}

/// A mask with numbers in the place of infinities: no power is left of a score with one, and equal
/// scores stay where a query has nothing else.
fn finite(b: &mut Body, mask: &str) -> Option<String> {
    let lowest = if dtype(b)? == DType::F16 { -3e4 } else { f32::MIN / 4.0 };
    let lowest = scalar(b, lowest)?;
    Some(b.op("Max", &[mask, &lowest], vec![]))
}

/// 1 for queries that see a key and 0 for others, of which the result is 0.
fn sees_some(b: &mut Body, mask: &str) -> Option<String> {
    let last = b.integers(&[-1]);
    let largest = b.op("ReduceMax", &[mask, &last], vec![int("keepdims", 1)]);
    let hidden = scalar(b, f32::NEG_INFINITY)?;
    let sees = b.op("Greater", &[&largest, &hidden], vec![]);
    let to = onnx_type(dtype(b)?);
    Some(b.op("Cast", &[&sees], vec![int("to", to)]))
}

/// ONNX's number of a type of floats.
fn onnx_type(dtype: DType) -> i64 {
    match dtype {
        DType::F32 => 1,
        DType::F16 => 10,
        _ => 16,
    }
}

/// A number of the type of the queries.
fn scalar(b: &mut Body, x: f32) -> Option<String> {
    let number = b.scalar(x);
    typed(b, number)
}

/// A constant of 32-bit floats in the type of the queries.
fn typed(b: &mut Body, constant: String) -> Option<String> {
    match dtype(b)? {
        DType::F32 => Some(constant),
        dtype => Some(b.op("Cast", &[&constant], vec![int("to", onnx_type(dtype))])),
    }
}
