//! Finds the formula of a number that was seen at several extents of one symbol. Input: extents,
//! and the number at each; output: a [`Formula`] that gives all of them, or nothing. It tries, in
//! this order: a constant, `(a*n + b)/d` exactly, polynomials, and quotients rounded down, which
//! are counts of tiles; then products of these.

use squall_runtime::Formula;

/// The highest degree of a polynomial: three axes of a tensor may grow with one symbol.
const MOST_DEGREE: usize = 3;
/// The largest tile whose count is looked for, and the largest of which a count is a factor.
const LARGEST_TILE: i64 = 4096;
const LARGEST_FACTOR: i64 = 256;
/// The most lanes of a vector, in which elements may be left.
const LARGEST_VECTOR: i64 = 64;
/// Memory begins at multiples of this many bytes.
const ALIGNMENT: i64 = 64;
/// The most extents of a formula of steps: formulas have at most 64 words.
pub const MOST_STEPS: usize = 10;
/// A product has at most this many factors that vary.
const MOST_FACTORS: usize = 3;

/// A number at each of some extents of a symbol.
pub type Series = Vec<i64>;

/// The formula of a number whose values at extents are these; extents differ from each other.
pub fn fitted(extents: &[i64], values: &[i64]) -> Option<Formula> {
    fitted_beside(extents, values, &[])
}

/// The same of a number of a text with tiles of these sizes: several sizes may agree with all
/// values, and these are the likely ones.
pub fn fitted_beside(extents: &[i64], values: &[i64], tiles: &[i64]) -> Option<Formula> {
    product(&Seen { extents, tiles }, values, MOST_FACTORS)
}

/// A formula that gives these values at these rising extents, and that of the extent before
/// between them: for numbers that were seen at all extents of a short range.
pub fn stepped(extents: &[i64], values: &[i64]) -> Option<Formula> {
    if extents.is_empty() || extents.len() > MOST_STEPS || !extents.is_sorted() {
        return None;
    }
    let first = Formula::number(values[0]);
    Some(extents.iter().zip(values.windows(2)).fold(first, |sum, (n, pair)| {
        let is_behind = Formula::number(*n).less(Formula::symbol(0));
        sum.plus(is_behind.times(Formula::number(pair[1] - pair[0])))
    }))
}

/// The sizes of tiles in whose numbers `n - T`, the begin of the last tile, the size shows.
pub fn tiles_of(extents: &[i64], all: &[Series]) -> Vec<i64> {
    let tile = |s: &Series| {
        let (n, v) = (extents.first()?, s.first()?);
        let size = n - v;
        let is_begin = extents.iter().zip(s).all(|(n, v)| n - v == size);
        (is_begin && (2..=LARGEST_TILE).contains(&size)).then_some(size)
    };
    all.iter().filter_map(tile).collect()
}

/// The extents at which numbers were seen, and sizes of tiles.
struct Seen<'a> {
    extents: &'a [i64],
    tiles: &'a [i64],
}

/// A formula, or a product of some.
fn product(seen: &Seen<'_>, values: &[i64], factors: usize) -> Option<Formula> {
    let extents = seen.extents;
    // A line that is whole at the extents which were seen alone may be a quotient.
    let line = straight(extents, values);
    let is_whole = line.as_ref().is_some_and(|l| !l.divides());
    let one = line
        .clone()
        .filter(|_| is_whole)
        .or_else(|| quotient(seen, values))
        .or_else(|| polynomial(extents, values))
        .or(line)
        .or_else(|| remainder(extents, values))
        .or_else(|| aligned(extents, values));
    if one.is_some() || factors == 1 {
        return one;
    }
    // The symbol itself, and counts of tiles of it, are what products of axes have as factors.
    let tiles = (1..=LARGEST_FACTOR).map(|t| {
        let count = |n: &i64| (n + t - 1).div_euclid(t);
        let formula = Formula::symbol(0).plus(Formula::number(t - 1)).over(t);
        (extents.iter().map(count).collect::<Series>(), formula)
    });
    for (factor, formula) in tiles {
        let is_constant = factor.iter().all(|f| *f == factor[0]);
        let divides = |(v, f): (&i64, &i64)| *f > 0 && v % f == 0;
        if is_constant || !values.iter().zip(&factor).all(divides) {
            continue;
        }
        let rest: Series = values.iter().zip(&factor).map(|(v, f)| v / f).collect();
        if let Some(other) = product(seen, &rest, factors - 1) {
            return Some(other.times(formula));
        }
    }
    None
}

fn greatest_common_divisor(a: i128, b: i128) -> i128 {
    if b == 0 { a.abs() } else { greatest_common_divisor(b, a % b) }
}

/// `(a*n + b)/d`, which is whole at all extents that were seen.
fn straight(extents: &[i64], values: &[i64]) -> Option<Formula> {
    let (n0, v0) = (*extents.first()? as i128, *values.first()? as i128);
    if values.iter().all(|v| *v as i128 == v0) {
        return Some(Formula::number(v0 as i64));
    }
    let (n1, v1) = (*extents.last()? as i128, *values.last()? as i128);
    let (rise, run) = (v1 - v0, n1 - n0);
    let lies = |(n, v): (&i64, &i64)| (*v as i128 - v0) * run == rise * (*n as i128 - n0);
    // Two points lie on a line whatever they are.
    if extents.len() < 3 || run == 0 || !extents.iter().zip(values).all(lies) {
        return None;
    }
    let shared = greatest_common_divisor(rise, run) * run.signum();
    let (a, d) = (rise / shared, run / shared);
    whole(a, d * v0 - a * n0, d)
}

/// `(a*n + b)/d` as a formula.
fn whole(a: i128, b: i128, d: i128) -> Option<Formula> {
    let [a, b, d] = [a, b, d].map(|n| i64::try_from(n).ok());
    let term = Formula::symbol(0).times(Formula::number(a?));
    Some(term.plus(Formula::number(b?)).over(d?))
}

/// A polynomial of at least two degrees with whole coefficients over one divisor.
fn polynomial(extents: &[i64], values: &[i64]) -> Option<Formula> {
    (2..=MOST_DEGREE).find_map(|degree| {
        // One more point than the polynomial has coefficients is the least that can refute it.
        if extents.len() < degree + 2 {
            return None;
        }
        let coefficients = interpolated(&extents[..=degree], &values[..=degree])?;
        if coefficients.last().is_none_or(|(n, _)| *n == 0) {
            return None;
        }
        let divisor = coefficients.iter().try_fold(1i128, |all, (_, d)| {
            (all / greatest_common_divisor(all, *d)).checked_mul(*d)
        })?;
        let scaled: Vec<i64> = (coefficients.iter())
            .map(|(n, d)| i64::try_from(n.checked_mul(divisor / d)?).ok())
            .collect::<Option<_>>()?;
        // Horner's way.
        let mut formula = Formula::number(*scaled.last()?);
        for c in scaled.iter().rev().skip(1) {
            formula = formula.times(Formula::symbol(0)).plus(Formula::number(*c));
        }
        let formula = formula.over(i64::try_from(divisor).ok()?);
        let is_right = |(n, v): (&i64, &i64)| formula.at(&[*n]) == Some(*v);
        extents.iter().zip(values).all(is_right).then_some(formula)
    })
}

/// The coefficients, lowest first and each a fraction, of the polynomial through these points.
fn interpolated(extents: &[i64], values: &[i64]) -> Option<Vec<(i128, i128)>> {
    let reduced = |n: i128, d: i128| {
        let g = greatest_common_divisor(n, d).max(1) * d.signum();
        (n / g, d / g)
    };
    let plus = |(a, b): (i128, i128), (c, d): (i128, i128)| {
        let n = a.checked_mul(d)?.checked_add(c.checked_mul(b)?)?;
        Some(reduced(n, b.checked_mul(d)?))
    };
    let count = extents.len();
    let mut all = vec![(0i128, 1i128); count];
    for (i, v) in values.iter().enumerate() {
        // Lagrange's polynomial of this point.
        let mut own = vec![0i128; count];
        own[0] = 1;
        let mut under = 1i128;
        for (j, n) in extents.iter().enumerate().filter(|(j, _)| *j != i) {
            for k in (0..count).rev() {
                let lower = if k > 0 { own[k - 1] } else { 0 };
                own[k] = lower.checked_sub(own[k].checked_mul(i128::from(*n))?)?;
            }
            under = under.checked_mul(i128::from(extents[i] - extents[j]))?;
        }
        for (to, c) in all.iter_mut().zip(&own) {
            *to = plus(*to, reduced(c.checked_mul(i128::from(*v))?, under))?;
        }
    }
    Some(all)
}

/// `(a*n + b) mod d`: the elements that whole vectors leave.
fn remainder(extents: &[i64], values: &[i64]) -> Option<Formula> {
    let largest = *values.iter().max()?;
    if *values.iter().min()? < 0 || largest >= LARGEST_VECTOR || extents.len() < 4 {
        return None;
    }
    let (n0, v0) = (*extents.first()?, *values.first()?);
    for d in (largest + 1).max(2)..=LARGEST_VECTOR {
        for a in 1..d {
            let b = (v0 - a * n0).rem_euclid(d);
            let is_left = |(n, v): (&i64, &i64)| (a * n + b) % d == *v;
            if extents.iter().zip(values).all(is_left) {
                let all = || {
                    let term = Formula::symbol(0).times(Formula::number(a));
                    term.plus(Formula::number(b))
                };
                let whole = all().over(d).times(Formula::number(d));
                return Some(all().minus(whole));
            }
        }
    }
    None
}

/// A polynomial with whole coefficients, rounded up to a multiple of the alignment of memory.
fn aligned(extents: &[i64], values: &[i64]) -> Option<Formula> {
    if values.iter().any(|v| v % ALIGNMENT != 0) {
        return None;
    }
    (1..=MOST_DEGREE).find_map(|degree| {
        if extents.len() < degree + 3 {
            return None;
        }
        // What was rounded up lies half of the alignment lower in the mean. Leading coefficients
        // are nearest to whole ones, and known when the others are looked for.
        let middle = (ALIGNMENT / 2) as f64;
        let mut rest: Vec<f64> = values.iter().map(|v| *v as f64 - middle).collect();
        let mut formula = Formula::number(0);
        for d in (0..=degree).rev() {
            let c = if d == 0 {
                rest.iter().sum::<f64>() / rest.len() as f64
            } else {
                leading(extents, &rest, d)?
            };
            let c = c.round();
            for (r, n) in rest.iter_mut().zip(extents) {
                *r -= c * (*n as f64).powi(d as i32);
            }
            formula = formula.times(Formula::symbol(0)).plus(Formula::number(c as i64));
        }
        let formula = formula.plus(Formula::number(ALIGNMENT - 1)).over(ALIGNMENT);
        let formula = formula.times(Formula::number(ALIGNMENT));
        let is_right = |(n, v): (&i64, &i64)| formula.at(&[*n]) == Some(*v);
        extents.iter().zip(values).all(is_right).then_some(formula)
    })
}

/// The leading coefficient of the polynomial of a degree through points far from each other.
fn leading(extents: &[i64], values: &[f64], degree: usize) -> Option<f64> {
    let last = extents.len() - 1;
    let points: Vec<usize> = (0..=degree).map(|i| i * last / degree).collect();
    let mut sum = 0.0;
    for i in &points {
        let mut under = 1.0;
        for j in points.iter().filter(|j| *j != i) {
            under *= (extents[*i] - extents[*j]) as f64;
        }
        sum += values[*i] / under;
    }
    sum.is_finite().then_some(sum)
}

/// `c + e * floor((a*n + b) / d)`. Of several that agree with all numbers, one that counts tiles
/// is taken: a count of tiles, the last of which may be cut, is rounded up, and a count of whole
/// tiles, besides which elements are left, is rounded down. Where no extent ends evenly in tiles,
/// nothing else tells them from others.
fn quotient(seen: &Seen<'_>, values: &[i64]) -> Option<Formula> {
    let extents = seen.extents;
    // Few points agree with many quotients.
    if extents.len() < 4 {
        return None;
    }
    let first = values.first()?;
    let shared = values.iter().fold(0, |g, v| greatest_common_divisor(g, (v - first) as i128));
    let run = extents.last()? - extents.first()?;
    if shared == 0 || run <= 0 {
        return None;
    }
    // What is left when all steps are multiples of the shared factor.
    let rest = (*first as i128).rem_euclid(shared);
    let steps: Vec<i128> = values.iter().map(|v| (*v as i128 - rest) / shared).collect();
    let slope = (steps[steps.len() - 1] - steps[0]) as f64 / run as f64;
    // What is rounded down lies less than one below its line, and so do the line's ends.
    let apart = |(n, s): (&i64, &i128)| (*s - steps[0]) as f64 - slope * (n - extents[0]) as f64;
    if extents.iter().zip(&steps).any(|pair| apart(pair).abs() >= 2.0) {
        return None;
    }
    let mut other = None;
    let likely = seen.tiles.iter().map(|t| *t as i128);
    for d in likely.chain(2..=LARGEST_TILE as i128) {
        let near = slope * d as f64;
        // What lies between the first and the last point is off by less than one step.
        let off = d as f64 / run as f64;
        for a in ((near - off).ceil() as i128)..=((near + off).floor() as i128) {
            if a < 1 || greatest_common_divisor(a, d) != 1 {
                continue;
            }
            let least = |(n, s): (&i64, &i128)| d * s - a * *n as i128;
            let all = || extents.iter().zip(&steps).map(least);
            let (low, high) = (all().max()?, all().min()? + d - 1);
            let made = |b: i128| {
                let steps = whole(a, b, d)?;
                let scaled = steps.times(Formula::number(i64::try_from(shared).ok()?));
                Some(scaled.plus(Formula::number(i64::try_from(rest).ok()?)))
            };
            if let Some(b) = [0, d - 1].into_iter().find(|b| (low..=high).contains(b)) {
                return made(b);
            }
            if low <= high && other.is_none() {
                other = made((low..=high).find(|b| b.rem_euclid(d) == d - 1).unwrap_or(low));
            }
        }
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENTS: [i64; 12] = [17, 19, 23, 29, 31, 50, 64, 97, 127, 251, 377, 509];

    fn check(of: impl Fn(i64) -> i64, is_exact: bool) {
        let values: Series = EXTENTS.iter().map(|n| of(*n)).collect();
        let f = fitted(&EXTENTS, &values).unwrap_or_else(|| panic!("{values:?}"));
        assert!(EXTENTS.iter().all(|n| f.at(&[*n]) == Some(of(*n))), "{f}");
        if is_exact {
            assert!((16..=512).all(|n| f.at(&[n]) == Some(of(n))), "{f}");
        }
    }

    #[test]
    fn formulas_of_extents_are_found() {
        check(|_| 7, true);
        check(|n| 768 * n - 5, true);
        check(|n| (n - 1) / 2 + 1, true);
        check(|n| 12 * n * n + n, true);
        check(|n| n * n * n - 4 * n, true);
        check(|n| (n + 7) / 8, true);
        check(|n| (n + 5) / 6 * 64 + 3, true);
        check(|n| (12 * n + 4) / 5, true);
        check(|n| n * ((n + 15) / 16), true);
        check(|n| (n + 5) / 6 * ((n + 15) / 16) * n, true);
        check(|n| n * (n + 1) / 2, true);
        check(|n| n % 16, true);
        check(|n| (3 * n + 1) % 8, true);
        check(|n| (48 * n * n + 63) / 64 * 64, true);
        check(|n| (12 * n * n + 4 * n + 63) / 64 * 64, true);
    }

    #[test]
    fn a_count_of_tiles_is_told_from_one_that_differs_where_tiles_end_evenly() {
        // No multiple of eight among them.
        let extents: Vec<i64> = EXTENTS.iter().copied().filter(|n| n % 8 != 0).collect();
        let values: Series = extents.iter().map(|n| (n + 7) / 8).collect();
        assert_eq!(fitted(&extents, &values).and_then(|f| f.at(&[64])), Some(8));
        let whole: Series = extents.iter().map(|n| n / 8).collect();
        assert_eq!(fitted(&extents, &whole).and_then(|f| f.at(&[64])), Some(8));
        let begin: Series = extents.iter().map(|n| n / 8 * 8).collect();
        assert_eq!(fitted(&extents, &begin).and_then(|f| f.at(&[64])), Some(64));
    }

    #[test]
    fn steps_give_any_numbers() {
        let values = [5, -3, 8, 8, 1];
        let f = stepped(&[1, 2, 3, 4, 5], &values).unwrap();
        assert!((1..=5).all(|n| f.at(&[n]) == Some(values[n as usize - 1])), "{f}");
        assert_eq!(stepped(&[2, 1], &[0, 0]), None);
    }

    #[test]
    fn noise_has_no_formula() {
        let values: Series = EXTENTS.iter().map(|n| n * 7919 % 101).collect();
        assert_eq!(fitted(&EXTENTS, &values), None);
    }
}
