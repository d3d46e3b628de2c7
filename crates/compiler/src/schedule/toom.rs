//! The transforms of Winograd's minimal filtering F(m, r): m outputs of a filter of r taps from m +
//! r - 1 multiplications (Winograd 1980; Lavin and Gray, CVPR 2016), by the construction of Toom
//! and Cook from interpolation points 0, 1, -1, 2, -2, 1/2, -1/2 and infinity.
//!
//! Input: m and r; output: the matrices A, B and G of [`Transforms`]. A stretch of input d, a
//! filter g and the outputs y obey y = A^T ((G g) * (B^T d)). The primitive `winograd` on CPUs and
//! the sketch `gpu/winograd` use them.
//!
//! With a stride s the taps whose places have the same remainder are a filter of stride 1 over
//! every s-th element (Yepez and Ko, IEEE TVLSI 2020): side by side, their transforms are those of
//! the whole, with one product for each element of the stretch.

use squall_core::expr::{Binary, Expr};

/// Interpolation points, in the order in which errors grow least.
const POINTS: [f64; 7] = [0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5];

/// The matrices of F(m, r).
#[derive(Clone, Debug, PartialEq)]
pub struct Transforms {
    /// B^T: (m + r - 1) rows over the input.
    pub input: Vec<Vec<f64>>,
    /// G: (m + r - 1) rows over the filter.
    pub filter: Vec<Vec<f64>>,
    /// A^T: m rows over the products.
    pub output: Vec<Vec<f64>>,
}

impl Transforms {
    /// The transforms of F(m, r), for m + r up to 9.
    pub fn new(m: usize, r: usize) -> Option<Transforms> {
        let size = m + r - 1;
        let points = POINTS.get(..size - 1)?;
        let without = |skip: Option<usize>| {
            let kept = points.iter().enumerate().filter(|(i, _)| Some(*i) != skip);
            let product = kept.fold(vec![1.0], |p, (_, a)| times(&p, *a));
            product.into_iter().chain(std::iter::repeat(0.0)).take(size).collect::<Vec<f64>>()
        };
        let scale = |j: usize| -> f64 {
            points.iter().enumerate().filter(|(l, _)| *l != j).map(|(_, a)| points[j] - a).product()
        };
        let powers = |a: f64, n: usize| (0..n).map(|i| a.powi(i as i32)).collect::<Vec<f64>>();
        let infinity =
            |n: usize| (0..n).map(|i| if i + 1 == n { 1.0 } else { 0.0 }).collect::<Vec<f64>>();
        let input = (0..size).map(|j| without((j + 1 < size).then_some(j))).collect();
        let filter = (0..size)
            .map(|j| {
                if j + 1 < size {
                    powers(points[j], r).into_iter().map(|x| x / scale(j)).collect()
                } else {
                    infinity(r)
                }
            })
            .collect();
        let column = |j: usize| if j + 1 < size { powers(points[j], m) } else { infinity(m) };
        let output = (0..m).map(|i| (0..size).map(|j| column(j)[i]).collect()).collect();
        Some(Transforms { input, filter, output })
    }

    /// A filter of one tap needs no transform.
    fn of_one_tap(m: usize) -> Transforms {
        let unit = |i: usize| (0..m).map(|j| if i == j { 1.0 } else { 0.0 }).collect();
        let identity: Vec<Vec<f64>> = (0..m).map(unit).collect();
        Transforms { input: identity.clone(), filter: vec![vec![1.0]; m], output: identity }
    }

    /// The transforms for m outputs, `stride` elements of input apart, of a filter of r taps; none
    /// where there are fewer taps than that.
    pub fn strided(m: usize, r: usize, stride: usize) -> Option<Transforms> {
        if r < stride {
            return None;
        }
        let size = m.checked_sub(1)? * stride + r;
        let empty = vec![Vec::new(); m];
        let mut made = Transforms { input: Vec::new(), filter: Vec::new(), output: empty };
        for first in 0..stride {
            let spread = |row: &[f64], len: usize| {
                let mut all = vec![0.0; len];
                row.iter().enumerate().for_each(|(i, x)| all[first + i * stride] = *x);
                all
            };
            let part = match (r - first).div_ceil(stride) {
                1 => Transforms::of_one_tap(m),
                taps => Transforms::new(m, taps)?,
            };
            made.input.extend(part.input.iter().map(|row| spread(row, size)));
            made.filter.extend(part.filter.iter().map(|row| spread(row, r)));
            made.output.iter_mut().zip(part.output).for_each(|(all, row)| all.extend(row));
        }
        Some(made)
    }
}

/// p(x) (x - a), lowest power first.
fn times(p: &[f64], a: f64) -> Vec<f64> {
    let mut out = vec![0.0; p.len() + 1];
    for (i, c) in p.iter().enumerate() {
        out[i + 1] += c;
        out[i] -= a * c;
    }
    out
}

/// `sum(coefficient x term)` without what multiplies by zero or one; `None` for nothing.
pub fn combine(terms: impl IntoIterator<Item = (f64, Expr)>) -> Option<Expr> {
    let mut terms: Vec<(f64, Expr)> = terms.into_iter().filter(|t| t.0 != 0.0).collect();
    // A positive term first saves a negation.
    let first = terms.iter().position(|t| t.0 > 0.0).unwrap_or(0);
    if terms.is_empty() {
        return None;
    }
    terms.swap(0, first);
    let scaled =
        |c: f64, e: Expr| if c == 1.0 { e } else { Expr::binary(Binary::Mul, Expr::Const(c), e) };
    let mut terms = terms.into_iter();
    let start = terms.next().map(|(c, e)| scaled(c, e))?;
    Some(terms.fold(start, |sum, (c, e)| match c < 0.0 {
        true => Expr::binary(Binary::Sub, sum, scaled(-c, e)),
        false => Expr::binary(Binary::Add, sum, scaled(c, e)),
    }))
}

/// The rows of a matrix that belong together: two rows that are sum and difference of the same
/// two parts (points a and -a), or one by itself.
pub fn row_pairs(rows: &[Vec<f64>]) -> Vec<(usize, Option<usize>)> {
    let mirrored =
        |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(x, y)| x.abs() == y.abs()) && a != b;
    let mut out = Vec::new();
    let mut i = 0;
    while i < rows.len() {
        let pair = i + 1 < rows.len() && mirrored(&rows[i], &rows[i + 1]);
        out.push((i, pair.then_some(i + 1)));
        i += if pair { 2 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Filters a stretch through the transforms and by itself.
    fn check(t: &Transforms, m: usize, stride: usize, g: &[f64]) {
        let size = (m - 1) * stride + g.len();
        assert_eq!((t.input.len(), t.filter.len()), (size, size));
        let d: Vec<f64> = (0..size).map(|i| (i as f64 * 1.7).sin()).collect();
        let dot = |row: &[f64], x: &[f64]| row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>();
        let products: Vec<f64> =
            t.input.iter().zip(&t.filter).map(|(b, f)| dot(b, &d) * dot(f, g)).collect();
        for i in 0..m {
            let want = dot(&d[i * stride..i * stride + g.len()], g);
            let got = dot(&t.output[i], &products);
            assert!((got - want).abs() < 1e-12, "F({m}, {}) by {stride}, output {i}", g.len());
        }
    }

    #[test]
    fn filtering_through_the_transforms_is_filtering() {
        for m in [2, 3, 4, 5, 6] {
            let t = Transforms::new(m, 3).expect("enough points");
            assert_eq!(Transforms::strided(m, 3, 1), Some(t.clone()));
            check(&t, m, 1, &[0.3, -1.1, 0.7]);
        }
        assert_eq!(Transforms::new(8, 3), None);
    }

    #[test]
    fn strided_filtering_through_the_transforms_is_filtering() {
        for (m, r, stride) in [(2, 3, 2), (3, 3, 2), (4, 3, 2), (6, 3, 2), (3, 5, 2), (2, 5, 3)] {
            let t = Transforms::strided(m, r, stride).expect("enough points");
            let g: Vec<f64> = (0..r).map(|i| 0.3 - i as f64 * 0.4).collect();
            check(&t, m, stride, &g);
        }
        assert_eq!(Transforms::strided(2, 1, 2), None);
    }

    #[test]
    fn f_4_3_is_the_published_one() {
        let t = Transforms::new(4, 3).expect("enough points");
        assert_eq!(t.input[0], [4.0, 0.0, -5.0, 0.0, 1.0, 0.0]);
        assert_eq!(t.input[5], [0.0, 4.0, 0.0, -5.0, 0.0, 1.0]);
        assert_eq!(t.output[3], [0.0, 1.0, -1.0, 8.0, -8.0, 1.0]);
        assert_eq!(row_pairs(&t.input), [(0, None), (1, Some(2)), (3, Some(4)), (5, None)]);
    }
}
