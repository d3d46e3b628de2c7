//! Matrix products of row-major matrices for the layers of the networks, on the `gemm` crate: the
//! only file of this crate with `unsafe` code, since `gemm` takes pointers. Every length is checked
//! before it is called.
#![allow(unsafe_code)]

/// The order in which an operand is stored, compared with how it enters the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The matrix is stored as it enters: `rows x cols`, row after row.
    Plain,
    /// The transpose of the matrix is stored.
    Transposed,
}

/// `c[m x n] = a[m x k] * b[k x n]`, added to `c` where `add` is true. The sizes are
/// given as `[m, n, k]`. A transposed `a` is stored `k x m`, a transposed `b` `n x k`.
///
/// # Panics
/// If a slice is shorter than its matrix.
pub fn product(
    [m, n, k]: [usize; 3],
    a: (&[f32], Stored),
    b: (&[f32], Stored),
    c: &mut [f32],
    add: bool,
) {
    assert!(
        a.0.len() >= m * k && b.0.len() >= k * n && c.len() >= m * n,
        "a product of {m} x {k} x {n} with short operands"
    );
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if !add {
            c[..m * n].fill(0.0);
        }
        return;
    }
    // (step between columns, step between rows)
    let steps = |stored, rows: usize, cols: usize| match stored {
        Stored::Plain => (1isize, cols as isize),
        Stored::Transposed => (rows as isize, 1isize),
    };
    let ((a_cs, a_rs), (b_cs, b_rs)) = (steps(a.1, m, k), steps(b.1, k, n));
    // SAFETY: all steps are positive and the last element of each matrix, (rows - 1) * row step +
    // (cols - 1) * column step, lies inside its slice by the assertion above; `c` is borrowed
    // mutably, so it overlaps neither operand; f32 is a type that `gemm` knows.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            n as isize,
            add,
            a.0.as_ptr(),
            a_cs,
            a_rs,
            b.0.as_ptr(),
            b_cs,
            b_rs,
            1.0f32,
            1.0f32,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            m in 1usize..9,
            n in 1usize..40,
            k in 0usize..20,
            seed in 0u64..1000,
            ta: bool,
            tb: bool,
            add: bool,
        ) {
            let value = |i: usize, s: u64| {
                (((i as u64 + 1) * (seed + s) * 2654435761) % 17) as f32 - 8.0
            };
            let a: Vec<f32> = (0..m * k).map(|i| value(i, 1)).collect();
            let b: Vec<f32> = (0..k * n).map(|i| value(i, 2)).collect();
            let mut c: Vec<f32> = (0..m * n).map(|i| value(i, 3)).collect();
            let mut expected = vec![0.0f32; m * n];
            for i in 0..m {
                for j in 0..n {
                    let of_a = |l: usize| if ta { a[l * m + i] } else { a[i * k + l] };
                    let of_b = |l: usize| if tb { b[j * k + l] } else { b[l * n + j] };
                    let sum: f32 = (0..k).map(|l| of_a(l) * of_b(l)).sum();
                    expected[i * n + j] = sum + if add { c[i * n + j] } else { 0.0 };
                }
            }
            let stored = |t| if t { Stored::Transposed } else { Stored::Plain };
            product([m, n, k], (&a, stored(ta)), (&b, stored(tb)), &mut c, add);
            prop_assert_eq!(c, expected); // small whole numbers: exact in any order
        }
    }

    /// Prints the share of a large product's rate that the products of training reach, on one
    /// thread. Run with
    /// `cargo test --release -p squall-predict rate -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn rate_of_the_products_of_training() {
        use Stored::{Plain, Transposed};
        let time = |(m, n, k): (usize, usize, usize), a: Stored, b: Stored| {
            let (x, y, mut z) = (vec![0.5f32; m * k], vec![0.25f32; k * n], vec![0.0f32; m * n]);
            let mut least = f64::INFINITY;
            for _ in 0..9 {
                let rounds = (20_000_000 / (m * n * k)).max(1);
                let began = std::time::Instant::now();
                (0..rounds).for_each(|_| product([m, n, k], (&x, a), (&y, b), &mut z, false));
                least = least.min(began.elapsed().as_secs_f64() / rounds as f64);
            }
            (2e-9 * (m * n * k) as f64, least)
        };
        let (work, seconds) = time((1024, 1024, 1024), Plain, Plain);
        let peak = work / seconds;
        println!("1024 x 1024 x 1024: {peak:.1} GFLOP/s");
        // Ranker: 8 problems with 97 candidates of 27 features; chain: 32 problems with 9 heads.
        for (what, rows, problems, width, heads) in
            [("ranker", 776, 8, 192, 0), ("chain", 0, 32, 256, 9)]
        {
            let (mut work, mut seconds) = (0.0, 0.0);
            // A layer's forward product and the two of its gradient, so many times.
            let mut layer =
                |n: usize, inputs: usize, outputs: usize, times: f64, argument: bool| {
                    let mut all = vec![
                        time((n, outputs, inputs), Plain, Plain),
                        time((inputs, outputs, n), Transposed, Plain),
                    ];
                    if argument {
                        all.push(time((n, inputs, outputs), Plain, Transposed));
                    }
                    let (w, s) = all.iter().fold((0.0, 0.0), |(w, s), x| (w + x.0, s + x.1));
                    println!(
                        "{what}: {n} x {inputs} x {outputs}: {:.1} GFLOP/s, {:.0} % of it",
                        w / s,
                        100.0 * w / s / peak
                    );
                    work += times * w;
                    seconds += times * s;
                };
            layer(problems, 350, width, 1.0, false);
            layer(problems, width, width, 1.0, true);
            if rows > 0 {
                layer(rows, 27, 128, 1.0, false);
                layer(rows, 128, 64, 1.0, true);
                layer(problems, width, 128, 1.0, true);
            }
            if heads > 0 {
                layer(problems, width, 128, f64::from(heads), true);
                layer(problems, 128, 8, f64::from(heads), true);
            }
            println!(
                "{what}, all together: {:.1} GFLOP/s, {:.0} % of it",
                work / seconds,
                100.0 * work / seconds / peak
            );
        }
    }
}
