//! A convolution of a find database as numbers, for the chooser of solvers: its place, coordinates
//! whose differences are the distance between two problems (`memory.rs` finds neighbours by them),
//! and the features that the trees of `models.rs` read.

use squall_core::find::{ChannelOrder, FindProblem};

/// Coordinates of a place.
pub const PLACE: usize = 24;

/// Features of a problem.
pub const FEATURES: usize = 46;

/// The coordinates of a problem: the sum of the differences of two problems' coordinates is their
/// distance. Problems of different precisions, directions or dimensions are not compared.
pub fn place(p: &FindProblem) -> [f32; PLACE] {
    let s = |at: usize| p.size(at);
    let log = |x: f64| x.max(1.0).log2();
    let pixels = s(5) * s(6) * s(7);
    let last = if p.order == ChannelOrder::First { 0.0 } else { 4.0 };
    let all = [
        log(s(0)),
        log(s(4)),
        0.7 * log(pixels),
        0.5 * log(s(2)),
        0.5 * log(s(3)),
        0.6 * log(s(8)),
        2.0 * log(s(10)),
        2.0 * log(s(11)),
        2.0 * log(s(9)),
        s(13),
        s(14),
        s(12),
        3.0 * log(s(16)),
        3.0 * log(s(17)),
        3.0 * log(s(15)),
        3.0 * log(s(19)),
        3.0 * log(s(20)),
        3.0 * log(s(18)),
        2.0 * log(s(21)).min(2.0) + 0.3 * log(s(21)),
        last,
        0.21 * log(s(0) * s(4) / s(21)),
        0.3 * log(s(8) * pixels),
        if s(0) % 8.0 == 0.0 { 0.0 } else { 0.5 },
        if s(4) % 8.0 == 0.0 { 0.0 } else { 0.5 },
    ];
    all.map(|x| x as f32)
}

/// The power of two in a number, at most 6.
fn twos(x: f64) -> f64 {
    match x as i64 {
        0 => 6.0,
        n => f64::from(n.trailing_zeros().min(6)),
    }
}

/// What trees see of a problem.
pub fn features(p: &FindProblem, out: &mut Vec<f32>) {
    let s = |at: usize| p.size(at);
    let log = |x: f64| x.max(1e-9).log2();
    let (c, k, n, groups) = (s(0), s(4), s(8), s(21));
    let (inputs, pixels) = (s(1) * s(2) * s(3), s(5) * s(6) * s(7));
    let (cg, kg, taps) = (c / groups, k / groups, s(9) * s(10) * s(11));
    // The matrices of the direction's product.
    let (rows, columns, depth) = match p.direction {
        0 => (kg, n * pixels, cg * taps),
        1 => (cg, n * inputs, kg * taps),
        _ => (kg, cg * taps, n * pixels),
    };
    let elements = p.elements();
    let touched: f64 = elements.iter().sum();
    let all: [f64; FEATURES] = [
        log(c),
        log(k),
        s(2),
        s(3),
        s(6),
        s(7),
        s(1),
        log(n),
        s(10),
        s(11),
        s(9),
        s(13),
        s(14),
        s(12),
        s(16),
        s(17),
        s(19),
        s(20),
        log(groups),
        log(cg),
        log(kg),
        f64::from(cg == 1.0),
        log(pixels),
        log(n * pixels),
        log(rows),
        log(columns),
        log(depth),
        log(p.flop()),
        log(elements[0]),
        log(elements[1]),
        log(elements[2]),
        twos(cg),
        twos(kg),
        twos(n),
        twos(pixels),
        twos(n * pixels),
        log(p.flop() / touched),
        f64::from(p.precision),
        f64::from(p.direction),
        f64::from(p.order as u8),
        f64::from(p.deep),
        twos(s(3)),
        c % 16.0,
        k % 16.0,
        c,
        k,
    ];
    out.extend(all.map(|x| x as f32));
}

/// The logarithm of the work that times are compared by.
pub fn work(p: &FindProblem) -> f32 {
    p.flop().max(1.0).ln() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_problems_are_at_no_distance_and_batches_are_near() {
        let p = FindProblem {
            deep: false,
            precision: 1,
            direction: 2,
            order: ChannelOrder::First,
            sizes: [256, 1, 56, 56, 128, 1, 56, 56, 64, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1],
        };
        let distance = |q: &FindProblem| -> f32 {
            place(&p).iter().zip(place(q)).map(|(a, b)| (a - b).abs()).sum()
        };
        let changed = |at: usize, n: i32| {
            let mut q = p.clone();
            q.sizes[at] = n;
            q
        };
        assert_eq!(distance(&p), 0.0);
        assert!(distance(&changed(8, 32)) < distance(&changed(16, 2)));
        let mut row = Vec::new();
        features(&changed(0, i32::MAX), &mut row);
        assert!(row.len() == FEATURES && row.iter().all(|x| x.is_finite()));
    }
}
