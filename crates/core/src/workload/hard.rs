//! Which inputs of a workload may hold hard values where kernels are verified: NaN, infinities,
//! zeros of both signs, denormal and large numbers. A value is allowed where every right kernel
//! gives the same result for it in whatever order it computes. Input: a workload; output: one
//! [`Hard`] or none for each input, by which the C runner fills inputs before it compares a kernel
//! with its reference.

use super::{Reducer, Workload};
use crate::expr::{Binary, Expr, Source, Unary};
use crate::{DType, TensorKind};
use serde::{Deserialize, Serialize};

/// The hard values that an input may hold beside random ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hard {
    /// NaN, and zeros of both signs.
    Nan,
    /// These and infinities, denormal numbers and large ones.
    All,
}

impl Hard {
    /// The word in plans.
    pub fn word(self) -> &'static str {
        match self {
            Hard::Nan => "nan",
            Hard::All => "all",
        }
    }
}

impl Workload {
    /// For each input the hard values with which every right kernel gives what the reference gives.
    ///
    /// No factor of a sum of products has any: Winograd's transforms and zeros beside a window
    /// make NaN of what lies near one, as all implementations do. A sum of what is not multiplied
    /// by another tensor is NaN where an addend is, in any order; but with infinities and large
    /// numbers it depends on the order, and so do functions on how they are computed. Where numbers
    /// are only compared, added, scaled by constants and rounded, all values have one result.
    pub fn hard_inputs(&self) -> Vec<Option<Hard>> {
        (0..self.inputs.len()).map(|i| self.hard_input(i)).collect()
    }

    fn hard_input(&self, i: usize) -> Option<Hard> {
        let input = &self.inputs[i];
        let made = self.foreign.is_none() && self.rooms.is_empty();
        if !made || input.kind != TensorKind::Data || input.dtype != DType::F32 {
            return None;
        }
        let mut touched = vec![Source(i as u32)];
        let mut hard = Hard::All;
        for (s, stage) in self.stages.iter().enumerate() {
            let is_touched = |e: &Expr| e.loads().iter().any(|l| touched.contains(&l.0));
            if !is_touched(&stage.body) {
                continue;
            }
            let adds = |op| matches!(op, Reducer::Sum | Reducer::Prod);
            if stage.reduction.as_ref().is_some_and(|r| adds(r.op)) {
                hard = Hard::Nan;
                if multiplies(&stage.body, &is_touched) {
                    return None;
                }
            }
            // Whole numbers have no NaN, and what becomes of one there is the lowest.
            if !stage.dtype.is_float() {
                return None;
            }
            if stage.dtype != DType::F32 || !is_exact(&stage.body) {
                hard = Hard::Nan;
            }
            touched.push(self.stage_source(s));
        }
        Some(hard)
    }
}

/// Whether what is touched is multiplied by an element that is not, or by bits.
fn multiplies(e: &Expr, is_touched: &impl Fn(&Expr) -> bool) -> bool {
    let mut found = false;
    e.visit(&mut |e| {
        found |= match e {
            Expr::Binary(Binary::Mul | Binary::Div, a, b) => {
                let free = |e: &Expr| !e.loads().is_empty() && !is_touched(e);
                is_touched(a) && free(b) || is_touched(b) && free(a)
            }
            Expr::Binary(Binary::Dot | Binary::DotPair | Binary::DotWords | Binary::Pair, ..) => {
                true
            }
            _ => false,
        }
    });
    found
}

/// Whether an expression only compares, adds, scales by constants and rounds.
fn is_exact(e: &Expr) -> bool {
    let mut exact = true;
    e.visit(&mut |e| {
        exact &= match e {
            Expr::Const(_) | Expr::Load { .. } | Expr::Select { .. } => true,
            Expr::Cast(t, _) => *t == DType::F32,
            Expr::Unary(op, _) => matches!(op, Unary::Neg | Unary::Abs | Unary::Sign),
            Expr::Binary(op, a, b) => match op {
                Binary::Max | Binary::Min | Binary::Add | Binary::Sub => true,
                Binary::Mul => [a, b].iter().any(|e| matches!(***e, Expr::Const(_))),
                _ => false,
            },
        }
    });
    exact
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hard_values_are_where_every_order_gives_the_same() {
        let of = |text: &str| {
            let w = Workload::parse(&format!("workload w\n{text}\noutput Y")).unwrap();
            w.hard_inputs()
        };
        let (nan, all) = (Some(Hard::Nan), Some(Hard::All));
        assert_eq!(of("data X: f32[4]\nstage Y: f32[i: 4] = max(X[i], 0) * 2"), [all]);
        assert_eq!(of("data X: f32[4]\nstage Y: f32[i: 4] = exp(X[i])"), [nan]);
        assert_eq!(of("data X: f32[4, 3]\nstage Y: f32[i: 4] = max(j: 3) X[i, j]"), [all]);
        assert_eq!(of("data X: f32[4, 3]\nstage Y: f32[i: 4] = sum(j: 3) X[i, j]"), [nan]);
        // The factors of a product have none, what is added to it has.
        let product = "data A: f32[4, 3]\nweight B: f32[3, 2]\ndata R: f32[4, 2]\n\
                       stage C: f32[m: 4, n: 2] = sum(k: 3) A[m, k] * B[k, n]\n\
                       stage Y: f32[m: 4, n: 2] = max(C[m, n] + R[m, n], 0)";
        assert_eq!(of(product), [None, None, all]);
        assert_eq!(of("data X: u8[4]\nstage Y: f32[i: 4] = X[i] * 2"), [None]);
    }
}
