//! Recognises a depthwise convolution with the pointwise ones beside it as one computation:
//! separable convolutions (Sifre, 2014; MobileNet, arXiv 1704.04861) and inverted residuals
//! (MobileNetV2, arXiv 1801.04381). Input: a workload; output: its normal form, a [`Separable`], of
//! which `compiler/src/sketch/gpu/separable` makes one kernel: it computes the depthwise
//! convolution's channels in parts, each from the input to the result, so that the tensors between
//! the convolutions are not stored. A pooling behind a convolution has the same form, and so have
//! two products one behind the other, as in a transformer's hidden layer, where nothing goes over
//! windows.

mod find;
#[cfg(test)]
mod tests;

use super::written_out::MOST_STAGES;
use super::{CHAINS, SEPARABLE};
use crate::expr::{Affine, Cond, DType, Expr, Source, Var};
use crate::workload::{Reducer, Workload};

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

/// A convolution or a product of matrices: a sum of products at each place.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceProduct {
    /// Its sum, which stands in expressions as a load without indices.
    pub sum: Source,
    /// The extents of what it sums over: of the first by [`Separable::input`], of the one behind
    /// by [`Separable::channel`].
    pub extents: Vec<i64>,
    /// Its weight.
    pub weight: Place,
}

impl PlaceProduct {
    /// How many products it sums.
    pub fn depth(&self) -> i64 {
        self.extents.iter().product()
    }
}

/// What goes over windows: a depthwise convolution, or a pooling.
#[derive(Clone, Debug, PartialEq)]
pub struct OverWindows {
    /// Its sum, or what it is for another operation.
    pub sum: Source,
    /// The operation.
    pub op: Reducer,
    /// The weight, by `channel` and [`Separable::kernel`]; none of a pooling.
    pub weight: Option<Place>,
}

/// What such a workload computes. Variables in it count: those of [`Self::batch`] first, then
/// [`Self::channel`] and so on.
#[derive(Clone, Debug, PartialEq)]
pub struct Separable {
    /// Extents of the axes that all operators share.
    pub batch: Vec<i64>,
    /// The channels that lie between.
    pub channels: i64,
    /// The channels of the result where a product sums over those, else 0.
    pub outputs: i64,
    /// The windows, along rows and columns; of one place where nothing goes over them.
    pub windows: [SlidingWindow; 2],
    /// The product that makes the channels, if one does, at `row` and `column` of what the windows
    /// are over, and what it reads there, of inputs alone.
    pub expand: Option<(PlaceProduct, Expr)>,
    /// Where an element that the windows are over is made of the input, and none of the border.
    pub inside: Vec<Cond>,
    /// What the windows are over, at `channel`, `row` and `column`.
    pub patch: Expr,
    /// What goes over the windows, if something does.
    pub over: Option<OverWindows>,
    /// What is made of its sum, at `channel` and, of the outputs, `row` and `column`: the result,
    /// where nothing follows. The same as `patch` where nothing goes over the windows.
    pub middle: Expr,
    /// The product that sums over the channels, if one does, by `output`.
    pub project: Option<PlaceProduct>,
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
        let is_chain = CHAINS.contains(&w.kind.as_str());
        if !is_chain || !are_floats || !w.rooms.is_empty() || w.foreign.is_some() {
            return None;
        }
        // A text of that kind has a depthwise convolution.
        let is_depthwise = |s: &Separable| s.over.as_ref().is_some_and(|o| o.weight.is_some());
        find::find(w).filter(|s| w.kind != SEPARABLE || is_depthwise(s))
    }

    /// The variable of the channels that lie between.
    pub fn channel(&self) -> Var {
        self.var(0)
    }

    /// The variables of rows and columns.
    pub fn at(&self) -> [Var; 2] {
        [self.var(1), self.var(2)]
    }

    /// The variable of the channels of the result.
    pub fn output(&self) -> Var {
        self.var(3)
    }

    /// The variables of the places of a window.
    pub fn kernel(&self) -> [Var; 2] {
        [self.var(4), self.var(5)]
    }

    /// The variables that the first product sums over.
    pub fn input(&self) -> Vec<Var> {
        let count = self.expand.as_ref().map_or(0, |e| e.0.extents.len());
        (0..count).map(|i| self.var(6 + i)).collect()
    }

    fn var(&self, i: usize) -> Var {
        Var((self.batch.len() + i) as u32)
    }
}
