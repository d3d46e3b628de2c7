//! Predicts the workspace that a solver needs for a problem from the workspaces of measured
//! problems. Kernels ask for sums of tensor sizes (copies, unfolded images), so the formula is
//! found that explains the neighbours, and is evaluated for the problem.

use squall_core::find::FindProblem;

/// The bytes by which a formula may be off, since solvers round sizes up.
const SLACK: u64 = 4096;

/// Bytes by every formula that is tried, in the order in which they are believed.
pub(super) fn formulas(p: &FindProblem) -> Vec<f64> {
    let [image, result, filter] = p.elements();
    let e = p.element_bytes();
    let s = |at: usize| p.size(at);
    let taps = s(9) * s(10) * s(11);
    let pixels = s(5) * s(6) * s(7);
    let columns = s(0) * taps * pixels;
    let mut all = Vec::with_capacity(40);
    // Copies in another layout or precision: any of the three tensors, in two widths.
    for (narrow, wide) in [(e, e), (4.0, 4.0), (e, 4.0), (4.0, e)] {
        for mask in 1..8 {
            let part = |bit: usize, size: f64| if mask & bit != 0 { size } else { 0.0 };
            all.push(part(1, image * narrow) + part(2, result * narrow) + part(4, filter * wide));
        }
    }
    // Unfolded images for products of matrices.
    let small = s(8) * pixels;
    for unit in [e, 4.0] {
        all.push(columns * unit);
        all.push(columns * unit * s(8));
        all.push((s(0) + s(4)) * small * unit);
        all.push(s(0) * small * unit);
        all.push(columns / s(21) * unit);
        all.push(2.0 * columns * unit);
        all.push(s(4) * taps * s(1) * s(2) * s(3) * unit);
        // Partial sums of the filter's gradient, an image each.
        all.push(filter * s(8) * unit);
    }
    all
}

/// Whether a formula gives what was measured.
fn explains(bytes: f64, workspace: u64) -> bool {
    (bytes - workspace as f64).abs() <= SLACK.min(workspace / 16 + 64) as f64
}

/// The workspace for a problem, from problems that a solver was timed for, the nearest first.
pub fn workspace(p: &FindProblem, near: &[(&FindProblem, u64)]) -> u64 {
    let Some(&(first, bytes)) = near.first() else { return 0 };
    if bytes == 0 {
        return 0;
    }
    // The formula that explains most of the neighbours that need any.
    let tables: Vec<(Vec<f64>, u64)> =
        near.iter().filter(|n| n.1 > 0).take(3).map(|(q, w)| (formulas(q), *w)).collect();
    let mine = formulas(p);
    let score = |i: usize| tables.iter().filter(|(f, w)| explains(f[i], *w)).count();
    let best = (0..mine.len()).max_by_key(|&i| (score(i), std::cmp::Reverse(i)));
    if let Some(best) = best.filter(|&i| score(i) > 0) {
        return mine[best] as u64;
    }
    if tables.len() > 1 && tables.iter().all(|t| t.1 == bytes) {
        return bytes;
    }
    // No formula: as much as there, by the size of the tensors.
    let size = |q: &FindProblem| q.elements().iter().sum::<f64>() * q.element_bytes();
    (bytes as f64 * size(p) / size(first).max(1.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::find::ChannelOrder;

    #[test]
    fn sums_of_tensors_are_recognised() {
        let problem = |h: i32, n: i32| FindProblem {
            deep: false,
            precision: 0,
            direction: 0,
            order: ChannelOrder::First,
            sizes: [256, 1, h, h, 128, 1, h, h, n, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1],
        };
        let both = |h: u64, n: u64| 4 * n * h * h * (256 + 128);
        let (a, b) = (problem(28, 32), problem(14, 8));
        let asked = problem(56, 64);
        assert_eq!(workspace(&asked, &[(&a, both(28, 32)), (&b, both(14, 8))]), both(56, 64));
        assert_eq!(workspace(&asked, &[(&a, 0), (&b, both(14, 8))]), 0);
        assert_eq!(workspace(&asked, &[(&a, 77_777), (&b, 77_777)]), 77_777);
    }
}
