//! Shape inference of operators over sequences: recurrent networks (`LSTM`, `GRU`, `RNN`),
//! `Attention`, `RotaryEmbedding`, and operators that carry a state from one run to the next, such
//! as `TensorScatter`. [`Recurrent`] and [`AttentionShape`] hold the extents of such a node, by
//! which its plain C is generated, too.

use super::{Ctx, Output};
use crate::text::shown;

fn like_first(ctx: &Ctx) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype: ctx.dtype(0), shape: ctx.shape(0)?.to_vec() }])
}

fn expect(what: &str, is: Option<&[i64]>, wanted: &[i64]) -> Result<(), String> {
    match is {
        Some(s) if s != wanted => {
            Err(format!("its {what} has shape {s:?}, {wanted:?} is expected"))
        }
        _ => Ok(()),
    }
}

/// Extents of a recurrent operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub struct Recurrent {
    pub steps: i64,
    pub batch: i64,
    pub features: i64,
    pub hidden: i64,
    /// One, or two where it runs in both directions.
    pub directions: i64,
    /// The batch comes before the steps.
    pub batch_first: bool,
}

impl Recurrent {
    /// The extents of a node; checks the shapes of its operands.
    pub fn of(ctx: &Ctx) -> Result<Recurrent, String> {
        let gates = match ctx.node.op.as_str() {
            "LSTM" => 4,
            "GRU" => 3,
            _ => 1,
        };
        let [a, b, features] = *ctx.shape(0)? else {
            return Err(format!("its input has shape {:?}", ctx.shape(0)?));
        };
        let directions = match ctx.text("direction", "forward")? {
            "forward" | "reverse" => 1,
            "bidirectional" => 2,
            other => return Err(format!("attribute `direction` is `{}`", shown(other))),
        };
        let batch_first = ctx.int_or("layout", 0)? != 0;
        let (steps, batch) = if batch_first { (b, a) } else { (a, b) };
        let [_, _, hidden] = *ctx.shape(2)? else {
            return Err(format!("its recurrence weights have shape {:?}", ctx.shape(2)?));
        };
        let rows = hidden.checked_mul(gates).ok_or("it is too large")?;
        expect("weights", Some(ctx.shape(1)?), &[directions, rows, features])?;
        expect("recurrence weights", Some(ctx.shape(2)?), &[directions, rows, hidden])?;
        expect("bias", ctx.optional_shape(3)?, &[directions, 2 * rows])?;
        expect("sequence lengths", ctx.optional_shape(4)?, &[batch])?;
        let state = |h: i64| match batch_first {
            true => [batch, directions, h],
            false => [directions, batch, h],
        };
        expect("initial state", ctx.optional_shape(5)?, &state(hidden))?;
        if gates == 4 {
            expect("initial cell", ctx.optional_shape(6)?, &state(hidden))?;
            expect("peepholes", ctx.optional_shape(7)?, &[directions, 3 * hidden])?;
        }
        if ctx.int_or("hidden_size", hidden)? != hidden {
            return Err("attribute `hidden_size` is not that of its weights".into());
        }
        Ok(Recurrent { steps, batch, features, hidden, directions, batch_first })
    }
}

pub(crate) fn recurrent(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let r = Recurrent::of(ctx)?;
    let (all, last) = match r.batch_first {
        true => {
            (vec![r.batch, r.steps, r.directions, r.hidden], vec![r.batch, r.directions, r.hidden])
        }
        false => {
            (vec![r.steps, r.directions, r.batch, r.hidden], vec![r.directions, r.batch, r.hidden])
        }
    };
    let output = |shape: &Vec<i64>| Output { dtype: ctx.dtype(0), shape: shape.clone() };
    let mut outputs = vec![output(&all), output(&last)];
    if ctx.node.op == "LSTM" {
        outputs.push(output(&last));
    }
    Ok(outputs)
}

/// Extents of an attention node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub struct AttentionShape {
    pub batch: i64,
    pub heads: i64,
    pub kv_heads: i64,
    pub queries: i64,
    /// Keys of this call, without those of the past.
    pub keys: i64,
    pub past: i64,
    pub head: i64,
    pub value_head: i64,
    /// Heads are side by side in the innermost axis: `[batch, steps, heads * head]`.
    pub packed: bool,
}

impl AttentionShape {
    /// The extents of a node; checks the shapes of its operands.
    pub fn of(ctx: &Ctx) -> Result<AttentionShape, String> {
        let (q, k, v) = (ctx.shape(0)?, ctx.shape(1)?, ctx.shape(2)?);
        let wrong = || format!("queries {q:?}, keys {k:?} and values {v:?} do not suit each other");
        let mut s = match (q, k, v) {
            (&[b, h, n, d], &[b2, g, m, d2], &[b3, g2, m2, e]) => {
                if b != b2 || b != b3 || d != d2 || m != m2 || g != g2 {
                    return Err(wrong());
                }
                AttentionShape {
                    batch: b,
                    heads: h,
                    kv_heads: g,
                    queries: n,
                    keys: m,
                    past: 0,
                    head: d,
                    value_head: e,
                    packed: false,
                }
            }
            (&[b, n, hd], &[b2, m, gd], &[b3, m2, ge]) => {
                let h = ctx.int("q_num_heads")?.ok_or("attribute `q_num_heads` is missing")?;
                let g = ctx.int("kv_num_heads")?.ok_or("attribute `kv_num_heads` is missing")?;
                let whole = h > 0 && g > 0 && hd % h == 0 && gd % g == 0 && ge % g == 0;
                if b != b2 || b != b3 || m != m2 || !whole || hd / h != gd / g {
                    return Err(wrong());
                }
                AttentionShape {
                    batch: b,
                    heads: h,
                    kv_heads: g,
                    queries: n,
                    keys: m,
                    past: 0,
                    head: hd / h,
                    value_head: ge / g,
                    packed: true,
                }
            }
            _ => return Err(wrong()),
        };
        if s.kv_heads < 1 || s.heads % s.kv_heads != 0 {
            return Err(wrong());
        }
        if let Some(p) = ctx.optional_shape(4)? {
            s.past = p.get(2).copied().unwrap_or(0);
            expect("past keys", Some(p), &[s.batch, s.kv_heads, s.past, s.head])?;
            let wanted = [s.batch, s.kv_heads, s.past, s.value_head];
            expect("past values", Some(ctx.shape(5)?), &wanted)?;
        }
        expect("key lengths", ctx.optional_shape(6)?, &[s.batch])?;
        Ok(s)
    }

    /// Keys of this call and of the past.
    pub fn total(&self) -> i64 {
        self.past + self.keys
    }
}

pub(crate) fn attention(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let s = AttentionShape::of(ctx)?;
    let output = |shape: Vec<i64>| Output { dtype: ctx.dtype(0), shape };
    Ok(vec![
        output(match s.packed {
            true => vec![s.batch, s.queries, s.heads * s.value_head],
            false => vec![s.batch, s.heads, s.queries, s.value_head],
        }),
        output(vec![s.batch, s.kv_heads, s.total(), s.head]),
        output(vec![s.batch, s.kv_heads, s.total(), s.value_head]),
        output(vec![s.batch, s.heads, s.queries, s.total()]),
    ])
}

pub(crate) fn causal_conv(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let ([b, c, _], [c2, 1, k]) = (ctx.shape(0)?, ctx.shape(1)?) else {
        return Err(format!("shapes {:?} and {:?} do not suit it", ctx.shape(0)?, ctx.shape(1)?));
    };
    if c != c2 || *k < 1 {
        return Err(format!("filters {:?} do not suit {c} channels", ctx.shape(1)?));
    }
    let state = vec![*b, *c, k - 1];
    expect("bias", ctx.optional_shape(2)?, &[*c])?;
    expect("past state", ctx.optional_shape(3)?, &state)?;
    let mut outputs = like_first(ctx)?;
    outputs.push(Output { dtype: ctx.dtype(0), shape: state });
    Ok(outputs)
}

pub(crate) fn linear_attention(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let ([b, t, qd], [_, _, kd], [_, _, vd]) = (ctx.shape(0)?, ctx.shape(1)?, ctx.shape(2)?) else {
        return Err("its queries, keys and values have not three dimensions".into());
    };
    let h = ctx.int("q_num_heads")?.ok_or("attribute `q_num_heads` is missing")?;
    let g = ctx.int("kv_num_heads")?.ok_or("attribute `kv_num_heads` is missing")?;
    let whole = h > 0 && g > 0 && h % g == 0 && qd % h == 0 && kd % g == 0 && vd % g == 0;
    if !whole || qd / h != kd / g {
        return Err(format!("{h} and {g} heads do not suit {qd}, {kd} and {vd} features"));
    }
    expect("keys", Some(ctx.shape(1)?), &[*b, *t, *kd])?;
    expect("values", Some(ctx.shape(2)?), &[*b, *t, *vd])?;
    let state = vec![*b, g, kd / g, vd / g];
    expect("past state", ctx.optional_shape(3)?, &state)?;
    Ok(vec![
        Output { dtype: ctx.dtype(0), shape: vec![*b, *t, h * (vd / g)] },
        Output { dtype: ctx.dtype(3).or(ctx.dtype(0)), shape: state },
    ])
}

pub(crate) fn reverse(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let (batch, time) = (ctx.int_or("batch_axis", 1)?, ctx.int_or("time_axis", 0)?);
    if x.len() < 2 || batch == time || !(0..2).contains(&batch) || !(0..2).contains(&time) {
        return Err(format!("axes {batch} and {time} do not suit an input of shape {x:?}"));
    }
    expect("sequence lengths", Some(ctx.shape(1)?), &[x[batch as usize]])?;
    like_first(ctx)
}

pub(crate) fn rotary(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    if !(3..=4).contains(&x.len()) {
        return Err(format!("its input has shape {x:?}"));
    }
    // Its caches of cosines and sines.
    ctx.shape(1)?;
    ctx.shape(2)?;
    like_first(ctx)
}

pub(crate) fn tensor_scatter(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (x, update) = (ctx.shape(0)?, ctx.shape(1)?);
    let axis = ctx.axis(ctx.int_or("axis", -2)?, x.len())?;
    let same = |i: usize| i == axis || x[i] == update[i];
    if axis == 0 || x.len() != update.len() || !(0..x.len()).all(same) || update[axis] > x[axis] {
        return Err(format!("an update of shape {update:?} does not suit a cache of {x:?}"));
    }
    expect("write indices", ctx.optional_shape(2)?, &x[..1])?;
    like_first(ctx)
}
