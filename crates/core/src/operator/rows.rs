//! Kernels that reduce along axes: reductions, softmax, and the normalisations of layers, groups of
//! channels, root mean squares and norms of vectors.

use super::written;
use crate::{TensorKind, Workload};

/// The operation of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the operations
pub enum ReduceOp {
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
    /// All of them, with their spelling in operator lines and names.
    pub const ALL: &'static [(ReduceOp, &'static str)] = &[
        (ReduceOp::Sum, "sum"),
        (ReduceOp::Mean, "mean"),
        (ReduceOp::Max, "max"),
        (ReduceOp::Min, "min"),
        (ReduceOp::Prod, "prod"),
        (ReduceOp::L1, "l1"),
        (ReduceOp::L2, "l2"),
        (ReduceOp::SumSquare, "sumsquare"),
        (ReduceOp::LogSum, "logsum"),
        (ReduceOp::LogSumExp, "logsumexp"),
    ];

    /// The spelling.
    pub fn name(self) -> &'static str {
        ReduceOp::ALL.iter().find(|(op, _)| *op == self).map_or("?", |(_, n)| n)
    }
}

/// A reduction: each axis is kept or reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduce {
    /// The operation.
    pub op: ReduceOp,
    /// Extents, and whether they are reduced.
    pub axes: Vec<(i64, bool)>,
}

impl Reduce {
    /// The axes without those of extent 1, with neighbours merged that are both kept or both
    /// reduced.
    fn merged(&self) -> Vec<(i64, bool)> {
        let mut out: Vec<(i64, bool)> = Vec::new();
        for &(extent, reduced) in self.axes.iter().filter(|a| a.0 != 1) {
            match out.last_mut() {
                Some(last) if last.1 == reduced => last.0 = last.0.saturating_mul(extent),
                _ => out.push((extent, reduced)),
            }
        }
        out
    }

    /// The workload of the reduction alone, without an epilogue.
    pub fn workload(&self) -> Result<Workload, String> {
        if self.axes.iter().any(|a| !(1..=1 << 31).contains(&a.0)) {
            return Err("a reduction needs positive sizes".into());
        }
        let mut axes = self.merged();
        if !axes.iter().any(|a| a.1) {
            axes.push((1, true));
        }
        let (count, kept_count) = (
            axes.iter().filter(|a| a.1).fold(1i64, |n, a| n.saturating_mul(a.0)),
            axes.iter().filter(|a| !a.1).count(),
        );
        let (mut shape, mut index, mut kept, mut reduced) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for &(extent, is_reduced) in &axes {
            let (list, names): (&mut Vec<(String, i64)>, &[&str]) = match (is_reduced, kept_count) {
                (true, _) => (&mut reduced, &["j", "k", "l", "m"]),
                (false, 1) => (&mut kept, &["i"]),
                (false, _) => (&mut kept, &["a", "b", "c", "d"]),
            };
            let name = names
                .get(list.len())
                .ok_or("the reduction alternates too often between kept and reduced axes")?;
            list.push((name.to_string(), extent));
            shape.push(extent.to_string());
            index.push(name.to_string());
        }
        if kept.is_empty() {
            kept.push(("i".into(), 1));
        }
        let list = |a: &[(String, i64)]| {
            a.iter().map(|(n, e)| format!("{n}: {e}")).collect::<Vec<_>>().join(", ")
        };
        let load = format!("X[{}]", index.join(", "));
        let row = kept.iter().map(|k| k.0.as_str()).collect::<Vec<_>>().join(", ");
        let most = held(&format!("M[{row}]"));
        let (reducer, body) = match self.op {
            ReduceOp::Sum | ReduceOp::Mean | ReduceOp::LogSum => ("sum", load.clone()),
            ReduceOp::Max => ("max", load.clone()),
            ReduceOp::Min => ("min", load.clone()),
            ReduceOp::Prod => ("prod", load.clone()),
            ReduceOp::L1 => ("sum", format!("abs({load})")),
            ReduceOp::L2 | ReduceOp::SumSquare => ("sum", format!("{load} * {load}")),
            ReduceOp::LogSumExp => ("sum", format!("exp({load} - {most})")),
        };
        let value = format!("S[{row}]");
        let last = match self.op {
            ReduceOp::Mean => Some(format!("{value} / {count}")),
            ReduceOp::L2 => Some(format!("sqrt({value})")),
            ReduceOp::LogSum => Some(format!("log({value})")),
            ReduceOp::LogSumExp => Some(format!("{most} + log({value})")),
            _ => None,
        };
        let (kept, reduced) = (list(&kept), list(&reduced));
        let name = if last.is_some() { "S" } else { "Y" };
        let mut text = format!("workload reduce\ndata X: f32[{}]\n", shape.join(", "));
        if self.op == ReduceOp::LogSumExp {
            text += &format!("stage M: f32[{kept}] = max({reduced}) {load}\n");
        }
        text += &format!("stage {name}: f32[{kept}] = {reducer}({reduced}) {body}\n");
        if let Some(last) = last {
            text += &format!("stage Y: f32[{kept}] = {last}\n");
        }
        written(&(text + "output Y"))
    }

    /// A readable name: kept extents, then what is reduced.
    pub fn name(&self) -> String {
        let product = |reduced: bool| {
            self.axes.iter().filter(|a| a.1 == reduced).fold(1i64, |p, a| p.saturating_mul(a.0))
        };
        format!("{}_{}x{}", self.op.name(), product(false), product(true))
    }
}

/// The text of the largest element of a row, or of the finite number that is nearest to it: it is
/// taken from all elements before their powers are added, and an infinity less itself is NaN. Of an
/// infinity less a finite number the power is infinite or 0, as it should be.
fn held(most: &str) -> String {
    let (low, high) = (f64::from(f32::MIN), f64::from(f32::MAX));
    format!("min(max({most}, {low:?}), {high:?})")
}

/// Softmax along an axis of `[before, extent, after]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the problem's
pub struct Softmax {
    pub before: i64,
    pub extent: i64,
    pub after: i64,
    /// Whether the result is the logarithm of the softmax.
    pub log: bool,
}

impl Softmax {
    /// The workload of the softmax alone, without an epilogue.
    pub fn workload(&self) -> Result<Workload, String> {
        let &Softmax { before, extent, after, log } = self;
        if [before, extent, after].iter().any(|x| !(1..=1 << 31).contains(x)) {
            return Err(format!("softmax needs positive sizes, not {before} x {extent} x {after}"));
        }
        let (shape, rows, all, i, ij) = match after {
            1 => (
                format!("{before}, {extent}"),
                format!("i: {before}"),
                format!("i: {before}, j: {extent}"),
                "i",
                "i, j",
            ),
            _ => (
                format!("{before}, {extent}, {after}"),
                format!("a: {before}, b: {after}"),
                format!("a: {before}, j: {extent}, b: {after}"),
                "a, b",
                "a, j, b",
            ),
        };
        let last = match log {
            false => format!("E[{ij}] / S[{i}]"),
            true => format!("X[{ij}] - M[{i}] - log(S[{i}])"),
        };
        written(&format!(
            "workload softmax\ndata X: f32[{shape}]\nstage M: f32[{rows}] = max(j: {extent}) \
             X[{ij}]\n\
             stage E: f32[{all}] = exp(X[{ij}] - M[{i}])\nstage S: f32[{rows}] = sum(j: {extent}) \
             E[{ij}]\n\
             stage Y: f32[{all}] = {last}\noutput Y"
        ))
    }

    /// A readable name for the task.
    pub fn name(&self) -> String {
        let kind = if self.log { "log_softmax" } else { "softmax" };
        let after = if self.after > 1 { format!("x{}", self.after) } else { String::new() };
        format!("{kind}_{}x{}{after}", self.before, self.extent)
    }
}

/// Layer normalisation of rows.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the problem's
pub struct LayerNorm {
    pub rows: i64,
    pub cols: i64,
    pub eps: f64,
    /// Whether the factor is data or a weight.
    pub gain: TensorKind,
    /// The addend, data or a weight, where there is one.
    pub bias: Option<TensorKind>,
}

impl LayerNorm {
    /// The workload of the normalisation alone, without an epilogue.
    pub fn workload(&self) -> Result<Workload, String> {
        let &LayerNorm { rows, cols, eps, gain, bias } = self;
        check_norm(&[rows, cols], eps)?;
        let word = |k: TensorKind| if k == TensorKind::Weight { "weight" } else { "data" };
        let mut text = format!(
            "workload layernorm\ndata X: f32[{rows}, {cols}]\n{} G: f32[{cols}]\n",
            word(gain)
        );
        if let Some(kind) = bias {
            text += &format!("{} B: f32[{cols}]\n", word(kind));
        }
        let addend = if bias.is_some() { " + B[j]" } else { "" };
        written(&format!(
            "{text}stage S: f32[i: {rows}] = sum(j: {cols}) X[i, j]\n\
             stage D: f32[i: {rows}, j: {cols}] = X[i, j] - S[i] / {cols}\n\
             stage V: f32[i: {rows}] = sum(j: {cols}) D[i, j] * D[i, j]\n\
             stage Y: f32[i: {rows}, j: {cols}] = D[i, j] / sqrt(V[i] / {cols} + {eps:?}) * \
             G[j]{addend}\noutput Y"
        ))
    }

    /// A readable name for the task.
    pub fn name(&self) -> String {
        format!("layernorm_{}x{}", self.rows, self.cols)
    }
}

/// Normalisation of rows by their root mean square (Zhang and Sennrich, 2019):
/// `x / sqrt(mean(x^2) + eps) * gain`.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the problem's
pub struct RmsNorm {
    pub rows: i64,
    pub cols: i64,
    pub eps: f64,
    /// Whether the factor is data or a weight.
    pub gain: TensorKind,
}

impl RmsNorm {
    /// The workload of the normalisation alone, without an epilogue.
    pub fn workload(&self) -> Result<Workload, String> {
        let &RmsNorm { rows, cols, eps, gain } = self;
        check_norm(&[rows, cols], eps)?;
        let gain = if gain == TensorKind::Weight { "weight" } else { "data" };
        written(&format!(
            "workload layernorm\ndata X: f32[{rows}, {cols}]\n{gain} G: f32[{cols}]\n\
             stage V: f32[i: {rows}] = sum(j: {cols}) X[i, j] * X[i, j]\n\
             stage Y: f32[i: {rows}, j: {cols}] = X[i, j] / sqrt(V[i] / {cols} + {eps:?}) * G[j]\n\
             output Y"
        ))
    }

    /// A readable name for the task.
    pub fn name(&self) -> String {
        format!("rmsnorm_{}x{}", self.rows, self.cols)
    }
}

/// Division of rows by their norm, the sum of sizes (`p` is 1) or the root of the sum of squares
/// (`p` is 2). Of a row of zeros the norm is 0 and the result is zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the problem's
pub struct LpNorm {
    pub rows: i64,
    pub cols: i64,
    pub p: i64,
}

impl LpNorm {
    /// The least number that a row is divided by, in the place of a norm below it. Such a norm is 0
    /// or, where `p` is 1, a sum of sizes whose reciprocal no 32-bit float holds; roots of sums of
    /// squares are 0 or at least this large.
    pub fn least(p: i64) -> f32 {
        if p == 1 { f32::MIN_POSITIVE } else { 3.7e-23 }
    }

    /// The workload of the normalisation alone, without an epilogue.
    pub fn workload(&self) -> Result<Workload, String> {
        let &LpNorm { rows, cols, p } = self;
        check_norm(&[rows, cols], 0.0)?;
        let (size, norm) = match p {
            1 => ("abs(X[i, j])", "S[i]"),
            2 => ("X[i, j] * X[i, j]", "sqrt(S[i])"),
            _ => return Err(format!("p is {p}, but must be 1 or 2")),
        };
        let least = LpNorm::least(p);
        written(&format!(
            "workload layernorm\ndata X: f32[{rows}, {cols}]\n\
             stage S: f32[i: {rows}] = sum(j: {cols}) {size}\n\
             stage Y: f32[i: {rows}, j: {cols}] = X[i, j] / max({norm}, {least:?})\noutput Y"
        ))
    }

    /// A readable name for the task.
    pub fn name(&self) -> String {
        format!("l{}norm_{}x{}", self.p, self.rows, self.cols)
    }
}

/// Normalisation of groups of channels of images (Wu and He, 2018), of single channels as instance
/// normalisation has them (Ulyanov et al., 2016): the mean of a group becomes 0 and its variance 1.
/// Factors and addends by channels are an epilogue.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the problem's
pub struct GroupNorm {
    pub images: i64,
    pub groups: i64,
    /// Channels of a group.
    pub channels: i64,
    /// Elements of a channel.
    pub places: i64,
    pub eps: f64,
}

impl GroupNorm {
    /// The workload of the normalisation alone, without an epilogue.
    pub fn workload(&self) -> Result<Workload, String> {
        let &GroupNorm { images, groups, channels, places, eps } = self;
        check_norm(&[images, groups, channels, places], eps)?;
        let named = |axes: [(&'static str, i64); 2], kept: usize| -> Vec<(&'static str, i64)> {
            let long = axes.iter().enumerate().filter(|(i, a)| a.1 > 1 || *i == kept);
            long.map(|(_, a)| *a).collect()
        };
        let rows = named([("a", images), ("b", groups)], 1);
        let columns = named([("c", channels), ("j", places)], 1);
        let list = |axes: &[(&str, i64)]| {
            axes.iter().map(|(n, e)| format!("{n}: {e}")).collect::<Vec<_>>().join(", ")
        };
        let names = |axes: &[(&str, i64)]| {
            axes.iter().map(|a| a.0.to_string()).collect::<Vec<_>>().join(", ")
        };
        let all = [&rows[..], &columns[..]].concat();
        let shape = all.iter().map(|a| a.1.to_string()).collect::<Vec<_>>().join(", ");
        let (each, row, every, at) = (list(&all), list(&rows), names(&all), names(&rows));
        let (sum, count) = (list(&columns), channels * places);
        written(&format!(
            "workload layernorm\ndata X: f32[{shape}]\n\
             stage S: f32[{row}] = sum({sum}) X[{every}]\n\
             stage D: f32[{each}] = X[{every}] - S[{at}] / {count}\n\
             stage V: f32[{row}] = sum({sum}) D[{every}] * D[{every}]\n\
             stage Y: f32[{each}] = D[{every}] / sqrt(V[{at}] / {count} + {eps:?})\noutput Y"
        ))
    }

    /// A readable name for the task.
    pub fn name(&self) -> String {
        let GroupNorm { images, groups, channels, places, .. } = self;
        match channels {
            1 => format!("instancenorm_{}x{places}", images * groups),
            _ => format!("groupnorm_{}x{channels}x{places}", images * groups),
        }
    }
}

/// Refuses sizes and an `eps` that no normalisation has.
fn check_norm(sizes: &[i64], eps: f64) -> Result<(), String> {
    let elements = sizes.iter().try_fold(1i64, |all, &e| all.checked_mul(e).filter(|_| e > 0));
    if elements.is_none_or(|all| all > 1 << 40) {
        return Err(format!("normalisation needs positive sizes, not {sizes:?}"));
    }
    if !(eps.is_finite() && eps >= 0.0) {
        return Err(format!("eps is {eps}, but must be a number of 0 or more"));
    }
    Ok(())
}
