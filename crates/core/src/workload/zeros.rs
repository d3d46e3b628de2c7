//! Counts the arithmetic operations of a workload (`flop`), without products by weights that a test
//! makes 0. The gradient of a strided convolution is written as phases, whose weights have zeros
//! between the taps (`core/src/operator/convolution.rs`); a kernel need not multiply by them, so
//! they are no work. Reports state rates (GFLOP/s) and the bound of the machine by this count.

use super::{Reducer, Stage, Workload};
use crate::expr::{Affine, Binary, Cond, Expr, Var};

/// The most outcomes of a test that are looked at one by one.
const MOST_OUTCOMES: i64 = 1 << 16;

impl Workload {
    /// Arithmetic operations of all stages (a multiply and an add count two; padded positions
    /// count, and products by weights that are 0 by a test do not).
    pub fn flop(&self) -> u64 {
        match &self.foreign {
            Some(f) => f.flop,
            // Unpacking codes and quantising rows is no arithmetic of the product.
            None if self.is_of_few_bits() => {
                let sums = |s: &&Stage| s.reduction.as_ref().is_some_and(|r| r.op == Reducer::Sum);
                self.stages.iter().filter(sums).map(|s| s.points().saturating_mul(2)).sum()
            }
            None => self.stages.iter().map(|s| self.stage_flop(s)).sum(),
        }
    }

    fn stage_flop(&self, s: &Stage) -> u64 {
        let (Some(_), Expr::Binary(Binary::Mul, x, y)) = (&s.reduction, &s.body) else {
            return s.flop();
        };
        let factor = |e: &Expr| match e {
            Expr::Load { source, .. } => {
                self.stage_of(*source).filter(|w| self.is_of_weights(w)).and_then(share)
            }
            _ => None,
        };
        let Some((holds, all)) = factor(x).or_else(|| factor(y)) else { return s.flop() };
        (u128::from(s.flop()) * u128::from(holds) / u128::from(all)) as u64
    }
}

/// For a stage that is 0 where a test fails: the number of the test's outcomes that hold, and of
/// all outcomes.
fn share(s: &Stage) -> Option<(u64, u64)> {
    let Expr::Select { conds, other, .. } = &s.body else { return None };
    if !matches!(**other, Expr::Const(zero) if zero == 0.0) {
        return None;
    }
    let deciding: Vec<(Var, i64)> = (s.axes.iter().enumerate())
        .map(|(i, a)| (Var(i as u32), a.extent))
        .filter(|(v, _)| conds.iter().any(|c| c.index.uses(*v)))
        .collect();
    let all = deciding.iter().fold(1, |all: i64, (_, e)| all.saturating_mul(*e));
    if !(1..=MOST_OUTCOMES).contains(&all) {
        return None;
    }
    let holds = |mut outcome: i64, c: &Cond| {
        let mut index = c.index.clone();
        for &(v, extent) in &deciding {
            index = index.substitute(v, &Affine::constant(outcome % extent));
            outcome /= extent;
        }
        (c.low..c.high).contains(&index.offset())
    };
    let count = (0..all).filter(|&i| conds.iter().all(|c| holds(i, c))).count();
    Some((count as u64, all as u64))
}

#[cfg(test)]
mod tests {
    use crate::operator::{Channels, ConvAxis, Convolution, Direction};

    fn strided(kernel: i64, pad: i64) -> u64 {
        let axis = ConvAxis { extent: 8, kernel, stride: 2, pads: [pad; 2], dilation: 1 };
        let (direction, channels) = (Direction::BackwardData, Channels::First);
        let axes = vec![axis; 2];
        let c = Convolution { direction, channels, n: 1, c: 4, k: 6, groups: 1, axes };
        c.workload().unwrap().flop()
    }

    #[test]
    fn zeros_between_the_taps_of_a_strided_gradient_are_no_work() {
        // Each of 4 x 4 blocks has four elements, which together read each tap of the filter once.
        let per_tap = 2 * 4 * 6 * 4 * 4;
        assert_eq!(strided(3, 1), 9 * per_tap);
        assert_eq!(strided(1, 0), per_tap);
        assert_eq!(strided(7, 3), 49 * per_tap);
        assert_eq!(strided(2, 0), 4 * per_tap);
    }
}
