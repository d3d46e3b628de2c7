//! Operators over whole rows: reductions, softmax, layer normalisation.

use super::{Core, axis_name};
use squall_core::expr::{Affine, Binary, Expr, Source, Unary, Var};

/// What a reduction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReduceOp {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    L1,
    L2,
    SumSquare,
    LogSum,
    LogSumExp,
}

impl ReduceOp {
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Mean => "mean",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Prod => "prod",
            ReduceOp::L1 => "l1",
            ReduceOp::L2 => "l2",
            ReduceOp::SumSquare => "sum_square",
            ReduceOp::LogSum => "log_sum",
            ReduceOp::LogSumExp => "log_sum_exp",
        }
    }
}

/// Reduces a tensor over some of its dimensions: dimensions of extent 1 drop out and neighbours
/// with the same fate are one axis.
pub(crate) fn reduce(shape: &[i64], reduced: &[bool], op: ReduceOp) -> Result<Core, String> {
    let mut dims: Vec<(i64, bool)> = Vec::new();
    for (&extent, &r) in shape.iter().zip(reduced).filter(|(e, _)| **e != 1) {
        match dims.last_mut() {
            Some(last) if last.1 == r => last.0 = last.0.saturating_mul(extent),
            _ => dims.push((extent, r)),
        }
    }
    for (wanted, place) in [(false, 0), (true, dims.len() + 1)] {
        if dims.iter().all(|d| d.1 != wanted) {
            dims.insert(place.min(dims.len()), (1, wanted));
        }
    }
    let list = |which: Option<bool>, f: &dyn Fn(usize) -> String| {
        (0..dims.len()).filter(|&i| which.is_none_or(|w| dims[i].1 == w)).map(f).collect::<Vec<_>>().join(", ")
    };
    let axis = |i: usize| format!("{}: {}", axis_name(i), dims[i].0);
    let extents = list(None, &|i| dims[i].0.to_string());
    let index = list(None, &axis_name);
    let (kept, over, kept_index) = (list(Some(false), &axis), list(Some(true), &axis), list(Some(false), &axis_name));
    let (word, body) = match op {
        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::LogSum => ("sum", format!("X[{index}]")),
        ReduceOp::Max => ("max", format!("X[{index}]")),
        ReduceOp::Min => ("min", format!("X[{index}]")),
        ReduceOp::Prod => ("prod", format!("X[{index}]")),
        ReduceOp::L1 => ("sum", format!("abs(X[{index}])")),
        ReduceOp::L2 | ReduceOp::SumSquare => ("sum", format!("X[{index}] * X[{index}]")),
        ReduceOp::LogSumExp => ("sum", format!("exp(X[{index}] - M[{kept_index}])")),
    };
    let before = match op {
        ReduceOp::LogSumExp => format!("stage M: f32[{kept}] = max({over}) X[{index}]\n"),
        _ => String::new(),
    };
    let text = format!("workload reduce\ndata X: f32[{extents}]\n{before}stage C: f32[{kept}] = {word}({over}) {body}\noutput C\n");
    let space: Vec<i64> = dims.iter().map(|d| d.0).collect();
    // Rows and columns are plain; other orders mark what is reduced.
    let plain = matches!(dims[..], [(_, false), (_, true)]);
    let sizes: Vec<String> = dims.iter().map(|d| if d.1 && !plain { format!("r{}", d.0) } else { d.0.to_string() }).collect();
    let mut core = Core::written(&text, &[&space], format!("reduce_{}_{}", op.name(), sizes.join("x")))?;
    let count: i64 = dims.iter().filter(|d| d.1).map(|d| d.0).product();
    let rank = dims.iter().filter(|d| !d.1).count();
    match op {
        ReduceOp::Mean => core.own.then("", |c| Expr::binary(Binary::Div, c, Expr::Const(count as f64))),
        ReduceOp::L2 => core.own.then("", |c| Expr::unary(Unary::Sqrt, c)),
        ReduceOp::LogSum => core.own.then("", |c| Expr::unary(Unary::Log, c)),
        ReduceOp::LogSumExp => {
            // Source 1: the stage of the maximum, after the only input.
            let max = Expr::load(Source(1), (0..rank).map(|i| Affine::var(Var(i as u32))).collect());
            core.own.then("", |c| Expr::binary(Binary::Add, Expr::unary(Unary::Log, c), max));
        }
        _ => {}
    }
    Ok(core)
}

/// Softmax, or its logarithm, of `outer x cols x inner` along the middle.
pub(crate) fn softmax(outer: i64, cols: i64, inner: i64, log: bool) -> Result<Core, String> {
    let (extents, spatial, all, index, kept) = match inner {
        1 => (format!("{outer}, {cols}"), format!("i: {outer}"), format!("i: {outer}, j: {cols}"), "i, j", "i"),
        _ => (
            format!("{outer}, {cols}, {inner}"),
            format!("i: {outer}, k: {inner}"),
            format!("i: {outer}, j: {cols}, k: {inner}"),
            "i, j, k",
            "i, k",
        ),
    };
    let result = match log {
        false => format!("E[{index}] / S[{kept}]"),
        true => format!("X[{index}] - M[{kept}] - log(S[{kept}])"),
    };
    let text = format!(
        "workload softmax\ndata X: f32[{extents}]\nstage M: f32[{spatial}] = max(j: {cols}) X[{index}]\nstage E: f32[{all}] = exp(X[{index}] - M[{kept}])\nstage S: f32[{spatial}] = sum(j: {cols}) E[{index}]\nstage Y: f32[{all}] = {result}\noutput Y\n"
    );
    let name = if log { "log_softmax" } else { "softmax" };
    let label = if inner == 1 { format!("{name}_{outer}x{cols}") } else { format!("{name}_{outer}x{cols}x{inner}") };
    Core::written(&text, &[&[outer, cols, inner]], label)
}

/// Layer normalisation of rows, with a scale and, where asked, a bias along the row.
pub(crate) fn layernorm(rows: i64, cols: i64, eps: f64, bias: bool) -> Result<Core, String> {
    if !(eps.is_finite() && eps >= 0.0) {
        return Err("epsilon must be a number from 0 on".into());
    }
    let eps = format!("{eps:?}");
    let (b, plus) = if bias { (format!("weight B: f32[{cols}]\n"), " + B[j]") } else { (String::new(), "") };
    let text = format!(
        "workload layernorm\ndata X: f32[{rows}, {cols}]\nweight G: f32[{cols}]\n{b}stage S: f32[i: {rows}] = sum(j: {cols}) X[i, j]\nstage M: f32[i: {rows}] = S[i] / {cols}\nstage D: f32[i: {rows}, j: {cols}] = X[i, j] - M[i]\nstage V: f32[i: {rows}] = sum(j: {cols}) D[i, j] * D[i, j]\nstage Y: f32[i: {rows}, j: {cols}] = D[i, j] / sqrt(V[i] / {cols} + {eps}) * G[j]{plus}\noutput Y\n"
    );
    Core::written(&text, &[&[rows, cols]], format!("layernorm_{rows}x{cols}"))
}
