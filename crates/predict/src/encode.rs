//! Encodes a problem (a layer's sizes and words on a device) as the numbers and tokens that
//! networks read.
//!
//! Sizes enter three times: as logarithms, which extrapolate; as their powers of two and other
//! divisors and the waste of tiles of 8 to 64; and as tokens, one for each size that occurred
//! often. A size that never occurred has the token 0, and the model has to rely on the other two.
//! [`Encoder`] learns vocabulary and scales from the training problems.

use crate::memory::Metric;
use serde::{Deserialize, Serialize};
use squall_core::forecast::Problem;
use std::collections::BTreeMap;

/// The token of values that training never showed.
pub const UNKNOWN: u16 = 0;
/// The number of occurrences from which a size has a token of its own.
const OFTEN: usize = 3;
/// Numbers that each size becomes: logarithm, power of two, three divisors, four tiles.
const NUMBERS: usize = 9;
/// Standardised numbers stay within this many deviations.
const CLIP: f32 = 6.0;
/// In distances that are not learned, the batch and each axis of an image count half: an image has
/// four of them (`h`, `w`, `oh`, `ow`), which move together, and a kernel's best configuration
/// follows channels more than batches. Chosen on validation rows of MIOpen's gfx900 2.0.0.
const HALF: &[&str] = &["n", "h", "w", "oh", "ow"];
/// The weight of a doubling of any other size, and of a word that differs, in those distances.
const WHOLE: f32 = 4.0;
/// Products of sizes that are encoded as sizes of their own: the amount of parallel work.
const PRODUCTS: &[&[&str]] = &[&["oh", "ow"], &["n", "oh", "ow"], &["a", "b"]];
/// Products that only distances look at: elements written and read, and operations.
const VOLUMES: &[&[&str]] =
    &[&["n", "b", "oh", "ow"], &["n", "a", "h", "w"], &["n", "a", "b", "oh", "ow"]];

/// The encoder of one solver's problems; learned from its training problems.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encoder {
    /// Words, the device among them, each with its vocabulary in order; token i + 1 is the i-th.
    words: Vec<(String, Vec<String>)>,
    /// Sizes that vary, each with the sizes that have tokens.
    sizes: Vec<(String, Vec<i64>)>,
    /// Products of sizes that occur in this solver's problems.
    products: Vec<Vec<String>>,
    /// Products that only distances look at.
    volumes: Vec<Vec<String>>,
    /// Mean and inverse deviation of every number.
    scale: Vec<(f32, f32)>,
}

fn word<'a>(problem: &'a Problem, name: &str) -> &'a str {
    if name == "device" { &problem.device } else { problem.word(name).unwrap_or("") }
}

impl Encoder {
    /// Learns vocabulary and scales.
    pub fn learn(problems: &[&Problem]) -> Encoder {
        let mut words: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        let mut sizes: BTreeMap<&str, BTreeMap<i64, usize>> = BTreeMap::new();
        for p in problems {
            *words.entry("device").or_default().entry(&p.device).or_default() += 1;
            for (n, w) in &p.words {
                *words.entry(n).or_default().entry(w).or_default() += 1;
            }
            for (n, v) in &p.numbers {
                *sizes.entry(n).or_default().entry(*v).or_default() += 1;
            }
        }
        sizes.retain(|_, v| v.len() > 1);
        let has = |product: &&&[&str]| {
            product.iter().all(|n| problems.iter().all(|p| p.number(n).is_some()))
        };
        let named = |all: &[&[&str]]| {
            all.iter().filter(has).map(|p| p.iter().map(|n| n.to_string()).collect()).collect()
        };
        let mut e = Encoder {
            words: words
                .iter()
                .map(|(n, v)| (n.to_string(), v.keys().map(|w| w.to_string()).collect()))
                .collect(),
            sizes: sizes
                .iter()
                .map(|(n, v)| {
                    (
                        n.to_string(),
                        v.iter().filter(|(_, c)| **c >= OFTEN).map(|(v, _)| *v).collect(),
                    )
                })
                .collect(),
            products: named(PRODUCTS),
            volumes: named(VOLUMES),
            scale: Vec::new(),
        };
        let rows: Vec<Vec<f32>> = problems.iter().map(|p| e.raw(&sizes_of(p))).collect();
        let count = rows.len().max(1) as f32;
        e.scale = (0..rows.first().map_or(0, Vec::len))
            .map(|i| {
                let mean = rows.iter().map(|r| r[i]).sum::<f32>() / count;
                let variance = rows.iter().map(|r| (r[i] - mean).powi(2)).sum::<f32>() / count;
                (mean, if variance > 1e-8 { 1.0 / variance.sqrt() } else { 0.0 })
            })
            .collect();
        e
    }

    /// How many words a problem has, its device among them.
    pub fn word_count(&self) -> usize {
        self.words.len()
    }

    /// Whether there is a scale for every number.
    pub fn is_consistent(&self) -> bool {
        self.scale.len() == (self.sizes.len() + self.products.len()) * NUMBERS
    }

    /// The number of [`Encoder::numbers`].
    pub fn width(&self) -> usize {
        self.scale.len()
    }

    /// For each token of [`Encoder::tokens`], how many there are.
    pub fn vocabulary(&self) -> Vec<usize> {
        self.words
            .iter()
            .map(|(_, v)| v.len() + 1)
            .chain(self.sizes.iter().map(|(_, v)| v.len() + 1))
            .collect()
    }

    /// The tokens of a problem's words.
    pub fn words(&self, problem: &Problem) -> Vec<u16> {
        let token = |(n, v): &(String, Vec<String>)| {
            let w = word(problem, n);
            let at = |w: &str| v.iter().position(|x| x == w);
            let stands_in = || match w {
                // The two formats of 16 bits are taken to be alike.
                "BF16" => at("FP16"),
                // No training problem had the token of an unknown device, so that its embedding is
                // untrained: the first known device stands in.
                _ if n == "device" && !v.is_empty() => Some(0),
                _ => None,
            };
            at(w).or_else(stands_in).map_or(UNKNOWN, |i| i as u16 + 1)
        };
        self.words.iter().map(token).collect()
    }

    /// The tokens of a problem: words, then sizes.
    pub fn tokens(&self, problem: &Problem) -> Vec<u16> {
        let size = |(n, v): &(String, Vec<i64>)| {
            problem
                .number(n)
                .and_then(|x| v.binary_search(&x).ok())
                .map_or(UNKNOWN, |i| i as u16 + 1)
        };
        let mut out = self.words(problem);
        out.extend(self.sizes.iter().map(size));
        out
    }

    /// The standardised numbers of a problem.
    pub fn numbers(&self, problem: &Problem) -> Vec<f32> {
        let scaled =
            |(x, (mean, inverse)): (f32, &(f32, f32))| ((x - mean) * inverse).clamp(-CLIP, CLIP);
        self.raw(&sizes_of(problem)).into_iter().zip(&self.scale).map(scaled).collect()
    }

    /// The coordinates of a problem for distances: its numbers without scaling, then those of the
    /// volumes.
    pub fn place(&self, problem: &Problem) -> Vec<f32> {
        self.place_of(&sizes_of(problem))
    }

    /// The same of a problem whose sizes are given by name.
    pub fn place_of(&self, size: &dyn Fn(&str) -> i64) -> Vec<f32> {
        let mut out = self.raw(size);
        self.volumes.iter().for_each(|v| describe(product(size, v), &mut out));
        out
    }

    /// How many steps [`Encoder::place_of`] takes.
    pub fn work(&self) -> usize {
        let factors = self.products.iter().chain(&self.volumes).map(Vec::len).sum::<usize>();
        self.coordinates() + factors
    }

    /// The names of all sizes that a problem's coordinates are made from.
    pub fn size_names(&self) -> Vec<&str> {
        let products = self.products.iter().chain(&self.volumes).flatten();
        let mut all: Vec<&str> =
            self.sizes.iter().map(|s| &s.0).chain(products).map(String::as_str).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// How many coordinates [`Encoder::place`] gives.
    pub fn coordinates(&self) -> usize {
        (self.sizes.len() + self.products.len() + self.volumes.len()) * NUMBERS
    }

    /// Distances that are not learned: weighted differences of the sizes' logarithms, and of words.
    pub fn fixed_metric(&self) -> Metric {
        let mut places = vec![0.0; self.coordinates()];
        for ((n, _), at) in self.sizes.iter().zip(places.chunks_exact_mut(NUMBERS)) {
            at[0] = if HALF.contains(&n.as_str()) { WHOLE / 2.0 } else { WHOLE };
        }
        Metric { places, words: vec![WHOLE; self.words.len()] }
    }

    fn raw(&self, size: &dyn Fn(&str) -> i64) -> Vec<f32> {
        let mut out = Vec::new();
        let sizes = self.sizes.iter().map(|(n, _)| size(n));
        sizes
            .chain(self.products.iter().map(|p| product(size, p)))
            .for_each(|x| describe(x, &mut out));
        out
    }
}

/// A problem's sizes by name; 0 for one that it has not.
pub fn sizes_of(problem: &Problem) -> impl Fn(&str) -> i64 {
    |name| problem.number(name).unwrap_or(0)
}

fn product(size: &dyn Fn(&str) -> i64, names: &[String]) -> i64 {
    names.iter().fold(1i64, |p, n| p.saturating_mul(size(n)))
}

/// Appends the numbers that encode a size.
fn describe(x: i64, out: &mut Vec<f32>) {
    out.push(logarithm(x));
    out.push(x.max(1).trailing_zeros().min(7) as f32);
    out.extend([3, 5, 7].map(|d| if x % d == 0 { 1.0 } else { 0.0 }));
    // The share that is wasted where tiles of t cover x.
    out.extend([8i64, 16, 32, 64].map(|t| {
        let covered = (x.max(1) / t + i64::from(x.max(1) % t != 0)) as f32 * t as f32;
        1.0 - x.max(1) as f32 / covered
    }));
}

/// The binary logarithm of a size; -1 for none.
fn logarithm(x: i64) -> f32 {
    if x < 1 { -1.0 } else { (x as f32).log2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(a: i64, direction: &str) -> Problem {
        Problem {
            solver: "S".into(),
            device: "d".into(),
            words: vec![("direction".into(), direction.into())],
            numbers: vec![("a".into(), a), ("b".into(), 7)],
            key: String::new(),
            layer: String::new(),
        }
    }

    #[test]
    fn what_never_occurred_is_unknown_and_finite() {
        let known: Vec<Problem> =
            (0..12).map(|i| problem(1 << (i % 4), if i % 2 == 0 { "F" } else { "B" })).collect();
        let e = Encoder::learn(&known.iter().collect::<Vec<_>>());
        assert_eq!(e.vocabulary(), [2, 3, 5]); // device, direction, a; b never varies
        assert_eq!(e.tokens(&known[3]), [1, 1, 4]);
        for a in [0, -5, 3, 1 << 40, i64::MAX] {
            let odd = problem(a, "W");
            assert_eq!(e.tokens(&odd), [1, UNKNOWN, UNKNOWN]);
            assert_eq!(
                e.tokens(&Problem { device: "another".into(), ..odd.clone() }),
                e.tokens(&odd),
                "an unknown device is encoded as a known one"
            );
            assert!(e.numbers(&odd).iter().all(|x| x.is_finite() && x.abs() <= CLIP), "{a}");
        }
    }
}
