//! Shape inference of operators on signals (`DFT`, `STFT`, windows such as `HannWindow`) and of
//! `Einsum`, a product written as an equation such as `bij,bjk->bik`. [`Fourier`] and [`Equation`]
//! are such a node's parameters, which the generators of plain C read, too.

use super::{Ctx, Output, onnx_type};
use crate::DType;
use crate::graph::Constant;
use crate::text::shown;

fn one(dtype: Option<DType>, shape: Vec<i64>) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype, shape }])
}

/// The one integer of an operand that must be known.
fn scalar(ctx: &Ctx, i: usize, what: &str) -> Result<Option<i64>, String> {
    match ctx.integers(i, what)? {
        None => Ok(None),
        Some([x]) => Ok(Some(*x)),
        Some(_) => Err(format!("its input {i} ({what}) is no scalar")),
    }
}

pub(crate) fn window(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let size = scalar(ctx, 0, "size")?.ok_or("input 0 is missing")?;
    one(onnx_type(ctx.int_or("output_datatype", 1)?), vec![size])
}

/// The axis and the lengths of a Fourier transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fourier {
    /// The axis of the signal.
    pub axis: usize,
    /// The number of points that are transformed.
    pub length: i64,
    /// The number of results along the axis.
    pub results: i64,
    /// Whether a one-sided inverse: half a spectrum gives a real signal.
    pub half_inverse: bool,
}

impl Fourier {
    /// The transform of a `DFT` node.
    pub fn of(ctx: &Ctx) -> Result<Fourier, String> {
        let x = ctx.shape(0)?;
        let parts = x.last().copied().unwrap_or(0);
        if x.len() < 2 || !(1..=2).contains(&parts) {
            return Err(format!("its input has shape {x:?}"));
        }
        let axis = match ctx.opset {
            20.. => scalar(ctx, 2, "axis")?.unwrap_or(-2),
            _ => ctx.int_or("axis", 1)?,
        };
        let axis = ctx.axis(axis, x.len())?;
        if axis + 1 == x.len() {
            return Err("its axis is that of real and imaginary parts".into());
        }
        let onesided = ctx.int_or("onesided", 0)? != 0;
        let half_inverse = onesided && ctx.int_or("inverse", 0)? != 0;
        let usual = if half_inverse { (x[axis] - 1) * 2 } else { x[axis] };
        let length = scalar(ctx, 1, "dft_length")?.unwrap_or(usual);
        if length < 1 {
            return Err(format!("it transforms {length} points"));
        }
        let results = if onesided && !half_inverse { length / 2 + 1 } else { length };
        Ok(Fourier { axis, length, results, half_inverse })
    }
}

pub(crate) fn dft(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let f = Fourier::of(ctx)?;
    let mut shape = ctx.shape(0)?.to_vec();
    shape[f.axis] = f.results;
    if let Some(parts) = shape.last_mut() {
        *parts = if f.half_inverse { 1 } else { 2 };
    }
    one(ctx.dtype(0), shape)
}

/// The distance and the length of a `STFT` node's frames.
pub fn frames(ctx: &Ctx) -> Result<(i64, i64), String> {
    let x = ctx.shape(0)?;
    if x.len() != 3 || !(1..=2).contains(&x[2]) {
        return Err(format!("its signal has shape {x:?}"));
    }
    let step = scalar(ctx, 1, "frame_step")?.ok_or("input 1 is missing")?;
    let window = match ctx.optional_shape(2)? {
        None => None,
        Some([w]) => Some(*w),
        Some(s) => return Err(format!("its window has shape {s:?}")),
    };
    let length = scalar(ctx, 3, "frame_length")?.or(window).unwrap_or(x[1]);
    if step < 1 || length < 1 || length > x[1] || window.is_some_and(|w| w != length) {
        return Err(format!("frames of {length} every {step} do not suit a signal of {}", x[1]));
    }
    Ok((step, length))
}

pub(crate) fn stft(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (x, (step, length)) = (ctx.shape(0)?, frames(ctx)?);
    let bins = if ctx.int_or("onesided", 1)? != 0 { length / 2 + 1 } else { length };
    one(ctx.dtype(0), vec![x[0], (x[1] - length) / step + 1, bins, 2])
}

pub(crate) fn mel(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let bands = scalar(ctx, 0, "num_mel_bins")?.ok_or("input 0 is missing")?;
    let length = scalar(ctx, 1, "dft_length")?.ok_or("input 1 is missing")?;
    for (i, what) in [(2, "sample_rate"), (3, "lower_edge_hertz"), (4, "upper_edge_hertz")] {
        number(ctx, i, what)?;
    }
    if bands < 0 || length < 0 {
        return Err(format!("{bands} bands of {length} points are asked of it"));
    }
    one(onnx_type(ctx.int_or("output_datatype", 1)?), vec![length / 2 + 1, bands])
}

pub(crate) fn det(ctx: &Ctx) -> Result<Vec<Output>, String> {
    match ctx.shape(0)? {
        [batch @ .., m, n] if m == n => one(ctx.dtype(0), batch.to_vec()),
        x => Err(format!("its input has shape {x:?}, square matrices are expected")),
    }
}

/// An equation with an axis of each operand and of the result by its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equation {
    /// The extent of each index.
    pub extents: Vec<i64>,
    /// The indices of each operand's axes.
    pub operands: Vec<Vec<usize>>,
    /// The indices of the result's axes.
    pub result: Vec<usize>,
}

impl Equation {
    /// The equation of an `Einsum` node.
    pub fn of(ctx: &Ctx) -> Result<Equation, String> {
        let shapes = (0..ctx.inputs.len()).map(|i| ctx.shape(i)).collect::<Result<Vec<_>, _>>()?;
        Equation::new(ctx.text("equation", "")?, &shapes)
    }

    /// An equation over operands of these shapes.
    pub fn new(text: &str, shapes: &[&[i64]]) -> Result<Equation, String> {
        let text: String = text.chars().filter(|c| *c != ' ').collect();
        let (left, right) = match text.split_once("->") {
            Some((l, r)) => (l.to_string(), Some(r.to_string())),
            None => (text.clone(), None),
        };
        let terms: Vec<&str> = left.split(',').collect();
        if terms.len() != shapes.len() {
            return Err(format!("equation `{}` has {} terms", shown(&text), terms.len()));
        }
        // Axes of an ellipsis are named by digits, counted from the innermost.
        let digits = |n: usize| (0..n).rev().map(|i| char::from(b'0' + i as u8)).collect();
        let mut widest = 0;
        let mut expanded: Vec<String> = Vec::new();
        for (t, s) in terms.iter().zip(shapes) {
            let named = t.replace("...", "").chars().count();
            let free = s.len().checked_sub(named).filter(|n| *n < 10);
            let free = free.ok_or_else(|| format!("term `{}` does not suit {s:?}", shown(t)))?;
            widest = widest.max(free);
            let own: String = digits(free);
            let full = t.replacen("...", &own, 1);
            if full.chars().count() != s.len() || full.contains('.') {
                return Err(format!("term `{}` does not suit shape {s:?}", shown(t)));
            }
            expanded.push(full);
        }
        let dots: String = digits(widest);
        let result = match right {
            Some(r) => r.replacen("...", &dots, 1),
            None => {
                let mut once: Vec<char> = expanded.concat().chars().collect();
                once.sort_unstable();
                let all = once.clone();
                once.dedup();
                let single = |c: &char| all.iter().filter(|d| *d == c).count() == 1;
                let named = once.into_iter().filter(|c| c.is_alphabetic() && single(c));
                dots.chars().chain(named).collect()
            }
        };
        let mut letters: Vec<char> = Vec::new();
        let mut extents: Vec<i64> = Vec::new();
        let mut operands = Vec::new();
        for (t, s) in expanded.iter().zip(shapes) {
            let mut axes = Vec::new();
            for (c, &d) in t.chars().zip(*s) {
                let i = letters.iter().position(|l| *l == c).unwrap_or(letters.len());
                if i == letters.len() {
                    letters.push(c);
                    extents.push(d);
                } else if extents[i] == 1 {
                    extents[i] = d;
                } else if d != 1 && extents[i] != d {
                    return Err(format!("index `{c}` has extents {} and {d}", extents[i]));
                }
                axes.push(i);
            }
            operands.push(axes);
        }
        let place = |c: char| letters.iter().position(|l| *l == c);
        let result: Option<Vec<usize>> = result.chars().map(place).collect();
        let result = result.ok_or_else(|| format!("equation `{}` is not known", shown(&text)))?;
        Ok(Equation { extents, operands, result })
    }
}

pub(crate) fn einsum(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let e = Equation::of(ctx)?;
    one(ctx.dtype(0), e.result.iter().map(|i| e.extents[*i]).collect())
}

/// The one number of an operand that must be known.
pub fn number(ctx: &Ctx, i: usize, what: &str) -> Result<f64, String> {
    match ctx.constant(i, what)? {
        Some(Constant::F32 { data, .. }) if data.len() == 1 => Ok(f64::from(data[0])),
        Some(Constant::F64 { data, .. }) if data.len() == 1 => Ok(data[0]),
        Some(Constant::I64 { data, .. }) if data.len() == 1 => Ok(data[0] as f64),
        _ => Err(format!("its input {i} ({what}) is no scalar")),
    }
}
