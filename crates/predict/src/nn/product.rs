//! Matrix products of row-major matrices, on the `gemm` crate: the one place of this crate with
//! `unsafe` code, since `gemm` takes pointers. Every length is checked before it is called.
#![allow(unsafe_code)]

/// How an operand is stored, compared with how it enters the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// As it enters: `rows x cols`, row after row.
    Plain,
    /// Its transpose is stored.
    Transposed,
}

/// `c[m x n] = a[m x k] * b[k x n]`, added to what `c` holds where `add` says so. A transposed `a`
/// is stored `k x m`, a transposed `b` `n x k`.
///
/// # Panics
/// If a slice is shorter than its matrix.
#[allow(clippy::too_many_arguments)] // the sizes of a product
pub fn product(m: usize, n: usize, k: usize, a: (&[f32], Stored), b: (&[f32], Stored), c: &mut [f32], add: bool) {
    assert!(a.0.len() >= m * k && b.0.len() >= k * n && c.len() >= m * n, "a product of {m} x {k} x {n} with short operands");
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
        fn agrees_with_the_definition(m in 1usize..9, n in 1usize..40, k in 0usize..20, seed in 0u64..1000, ta: bool, tb: bool, add: bool) {
            let value = |i: usize, s: u64| (((i as u64 + 1) * (seed + s) * 2654435761) % 17) as f32 - 8.0;
            let a: Vec<f32> = (0..m * k).map(|i| value(i, 1)).collect();
            let b: Vec<f32> = (0..k * n).map(|i| value(i, 2)).collect();
            let mut c: Vec<f32> = (0..m * n).map(|i| value(i, 3)).collect();
            let mut expected = vec![0.0f32; m * n];
            for i in 0..m {
                for j in 0..n {
                    let sum: f32 = (0..k)
                        .map(|l| (if ta { a[l * m + i] } else { a[i * k + l] }) * (if tb { b[j * k + l] } else { b[l * n + j] }))
                        .sum();
                    expected[i * n + j] = sum + if add { c[i * n + j] } else { 0.0 };
                }
            }
            let stored = |t| if t { Stored::Transposed } else { Stored::Plain };
            product(m, n, k, (&a, stored(ta)), (&b, stored(tb)), &mut c, add);
            prop_assert_eq!(c, expected); // small whole numbers: exact in any order
        }
    }
}
