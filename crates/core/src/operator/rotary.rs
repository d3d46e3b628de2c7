//! Rotary embeddings (Su et al., 2021): the features of a head are pairs, each the coordinates of a
//! point, which is turned by an angle that belongs to its step. Input: the problem's sizes; output:
//! a workload without a reduction. The first coordinates of all pairs come first, then the second
//! ones: an axis of extent 2 says which of them a feature is.

use super::written;
use crate::{TensorKind, Workload};

/// A rotation of `2 * half` features of each head in each step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the problem's
pub struct Rotary {
    pub batch: i64,
    pub heads: i64,
    pub steps: i64,
    /// Pairs of features.
    pub half: i64,
    /// Whether the heads of a step lie side by side; else the steps of a head do.
    pub are_side_by_side: bool,
    /// Whether cosines and sines are data or weights.
    pub kinds: [TensorKind; 2],
}

impl Rotary {
    /// The workload of the rotation alone, without an epilogue.
    pub fn workload(&self) -> Result<Workload, String> {
        let &Rotary { batch, heads, steps, half, are_side_by_side, kinds } = self;
        let sizes = [batch, heads, steps, half];
        let elements = sizes.iter().try_fold(2i64, |all, &e| all.checked_mul(e).filter(|_| e > 0));
        if elements.is_none_or(|all| all > 1 << 40) {
            return Err(format!("a rotary embedding needs positive sizes, not {sizes:?}"));
        }
        let (shape, axes, at) = match are_side_by_side {
            false => (
                format!("{batch}, {heads}, {steps}"),
                format!("a: {batch}, h: {heads}, t: {steps}"),
                "a, h, t",
            ),
            true => (
                format!("{batch}, {steps}, {heads}"),
                format!("a: {batch}, t: {steps}, h: {heads}"),
                "a, t, h",
            ),
        };
        let [cos, sin] = kinds.map(|k| if k == TensorKind::Weight { "weight" } else { "data" });
        let row = format!("f32[{batch}, {steps}, {half}]");
        written(&format!(
            "workload rotary\ndata X: f32[{shape}, 2, {half}]\n{cos} C: {row}\n{sin} S: {row}\n\
             stage Y: f32[{axes}, p: 2, k: {half}] = X[{at}, p, k] * C[a, t, k] + \
             select(0 <= p < 1, neg(X[{at}, 1, k]), X[{at}, 0, k]) * S[a, t, k]\noutput Y"
        ))
    }

    /// A readable name for the task.
    pub fn name(&self) -> String {
        let Rotary { batch, heads, steps, half, .. } = self;
        format!("rotary_{}x{steps}x{}", batch.saturating_mul(*heads), half.saturating_mul(2))
    }
}
