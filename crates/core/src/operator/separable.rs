//! A depthwise convolution with the pointwise ones beside it, as one computation: separable
//! convolutions (Sifre, 2014; MobileNet, arXiv 1704.04861) and inverted residuals (MobileNetV2,
//! arXiv 1801.04381). A part of the channels that the depthwise convolution goes over is made of
//! the input, gone over, and added to the result, so that what lies between is stored by none.

mod find;
#[cfg(test)]
mod tests;

use super::joined::behind;
use crate::expr::{Affine, Cond, DType, Expr, Source, Var};
use crate::workload::{Reducer, Workload};
use find::{Finder, MOST_STAGES, Windows};

/// The kind of such workloads.
pub const SEPARABLE: &str = "separable_conv2d";

/// The workload of operators one behind the other, of which each reads the output of the one
/// before as its first input, and that alone of what it has. Not possible where they do not fit,
/// or are not what [`Separable::of`] knows.
pub fn separable(first: Workload, others: &[&Workload]) -> Result<Workload, String> {
    let made: Result<Workload, String> =
        others.iter().try_fold(first, |made, next| Ok(behind(made, next)?.0));
    let made = Workload { kind: SEPARABLE.into(), ..made? };
    match Separable::of(&made) {
        Some(_) => Ok(made),
        None => Err("they are no depthwise convolution with pointwise ones beside it".into()),
    }
}

/// A tensor and the place of an element in it.
pub type Place = (Source, Vec<Affine>);

/// One dimension of the windows: output `p` reads `stride p + dilation r + offset` for each `r`
/// below `kernel`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the field's
pub struct SlidingWindow {
    pub outputs: i64,
    pub kernel: i64,
    pub stride: i64,
    pub dilation: i64,
    pub offset: i64,
}

/// A pointwise convolution: a product of matrices at each place.
#[derive(Clone, Debug, PartialEq)]
pub struct Pointwise {
    /// Its sum, which stands in expressions as a load without indices.
    pub sum: Source,
    /// How many channels it reads.
    pub depth: i64,
    /// What it reads, and its weight.
    pub data: Place,
    /// See `data`.
    pub weight: Place,
}

/// What such a workload computes. Variables in it count: those of [`Self::batch`] first, then
/// [`Self::channel`] and so on.
#[derive(Clone, Debug, PartialEq)]
pub struct Separable {
    /// Extents of the axes that all operators share.
    pub batch: Vec<i64>,
    /// The channels of the depthwise convolution.
    pub channels: i64,
    /// The channels of the result where a convolution sums over those, else 0.
    pub outputs: i64,
    /// Its windows, along rows and columns.
    pub windows: [SlidingWindow; 2],
    /// The convolution that makes its channels, if one does: of [`Self::input`], at `row` and
    /// `column` of what the windows are over.
    pub expand: Option<Pointwise>,
    /// Where an element that the windows are over is made of the input, and none of the border.
    pub inside: Vec<Cond>,
    /// What the windows are over, at `channel`, `row` and `column`.
    pub patch: Expr,
    /// The depthwise convolution's sum, and its weight by `channel` and [`Self::kernel`].
    pub sum: Source,
    /// See `sum`.
    pub weight: Place,
    /// What is made of the sum, at `channel` and, of the outputs, `row` and `column`: the result,
    /// where nothing follows.
    pub middle: Expr,
    /// The convolution that sums over its channels, if one does, by `output`.
    pub project: Option<Pointwise>,
    /// The result, at `output` (or at `channel`), `row` and `column`, and where it lies.
    pub result: Expr,
    /// See `result`.
    pub place: Vec<Affine>,
}

impl SlidingWindow {
    /// How many places a number of outputs read.
    pub fn read(&self, outputs: i64) -> i64 {
        (outputs - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
    }
}

impl Separable {
    /// What a workload computes, if it is of this form; its tensors are of 32-bit floats.
    pub fn of(w: &Workload) -> Option<Separable> {
        if w.stages.len() > MOST_STAGES || w.stages.iter().any(|s| w.is_of_weights(s)) {
            return None;
        }
        let is_float = |t: DType| t == DType::F32;
        let are_floats = w.inputs.iter().all(|i| is_float(i.dtype))
            && w.stages.iter().all(|s| is_float(s.dtype));
        if w.kind != SEPARABLE || !are_floats || !w.rooms.is_empty() || w.foreign.is_some() {
            return None;
        }
        let sums: Vec<usize> =
            (0..w.stages.len()).filter(|&i| w.stages[i].reduction.is_some()).collect();
        if w.stages.iter().filter_map(|s| s.reduction.as_ref()).any(|r| r.op != Reducer::Sum) {
            return None;
        }
        let found = |(at, &i): (usize, &usize)| Some((at, Windows::of(w, &w.stages[i])?));
        let (at, windows) = sums.iter().enumerate().find_map(found)?;
        let stage = sums[at];
        let (ahead, behind) = (&sums[..at], &sums[at + 1..]);
        if ahead.len() > 1 || behind.len() > 1 || ahead.len() + behind.len() == 0 {
            return None;
        }
        Finder { w, stage, windows }.find(ahead.first().copied(), behind.first().copied())
    }

    /// The variable of the channels of the depthwise convolution.
    pub fn channel(&self) -> Var {
        self.var(0)
    }

    /// Those of rows and columns.
    pub fn at(&self) -> [Var; 2] {
        [self.var(1), self.var(2)]
    }

    /// That of the channels of the result.
    pub fn output(&self) -> Var {
        self.var(3)
    }

    /// That of the channels that the first convolution reads.
    pub fn input(&self) -> Var {
        self.var(4)
    }

    /// Those of the windows' places.
    pub fn kernel(&self) -> [Var; 2] {
        [self.var(5), self.var(6)]
    }

    fn var(&self, i: usize) -> Var {
        Var((self.batch.len() + i) as u32)
    }
}
