//! Learns the distance between problems: the weights of coordinates and words under which the votes
//! of neighbours make the answers of training problems likeliest, where each problem does not vote
//! for itself (neighbourhood components analysis, Goldberger et al. 2004, with one weight for each
//! coordinate and L1 distances). The best kernel depends on some sizes, some products of sizes and
//! the waste of tiles, and not on others; the answers of tuning show which. Output: a
//! [`Metric`](crate::memory::Metric) for `memory.rs`.

use crate::memory::{Memory, Metric, Query, columns};
use crate::nn::vector::{exp, wide};
use crate::nn::{Adam, cosine};
use crate::parallel;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use std::collections::HashMap;

/// The most problems whose likelihood is maximised.
const ANCHORS: usize = 4000;
/// Neighbours of each channel that vote for an anchor.
const VOTERS: usize = 96;
/// Times that neighbours are looked up anew, by the distances learned so far.
const ROUNDS: usize = 4;
/// Steps of a round, anchors a step, and the greatest step.
const STEPS: usize = 150;
const BATCH: usize = 384;
const RATE: f32 = 0.05;
/// The L1 penalty on the weights of coordinates, which drops those that explain nothing.
const COST: f32 = 5e-4;
/// A weight below this becomes 0.
const LEAST: f32 = 0.03;
/// One of this many anchors does not see the answers of its own layer.
const HIDDEN_LAYERS: usize = 4;
/// Initial weights: of a coordinate that fixed distances look at, as a share of its weight there;
/// of any other coordinate; of a word.
const SHARE: f32 = 0.5;
const OTHER: f32 = 0.1;
const WORD: f32 = 3.0;
/// The initial share of the row's frequency in the likelihood of an answer, as a logit.
const RARE: f32 = -1.5;

/// The data and the options of learning distances.
pub struct Learning<'a> {
    /// The seed of the choice and the order of anchors.
    pub seed: u64,
    /// Threads; they do not matter to the result.
    pub threads: usize,
    /// Given the number of rounds that are done and of all rounds, and the share of the running
    /// one; returns whether to go on.
    pub go_on: &'a mut dyn FnMut((usize, usize), f64) -> bool,
}

/// `ln(1 + exp(x))`, which keeps weights positive, and its slope.
fn softplus(x: f32) -> (f32, f32) {
    (if x > 20.0 { x } else { x.exp().ln_1p() }, sigmoid(x))
}

/// The inverse of softplus.
fn inverse(y: f32) -> f32 {
    if y > 20.0 { y } else { y.exp_m1().ln() }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// A problem whose likelihood is maximised, with its voters.
struct Anchor {
    own: u32,
    voters: Vec<u32>,
}

/// The memory, one problem after another, with numbered answers.
struct Points<'a> {
    memory: &'a Memory,
    places: Vec<f32>,
    tokens: Vec<u16>,
    answers: Vec<u32>,
    /// How often the rest of its row gave a problem's answer.
    often: Vec<f32>,
}

impl<'a> Points<'a> {
    fn new(memory: &'a Memory) -> Points<'a> {
        let n = memory.len();
        let mut known: HashMap<&[u16], u32> = HashMap::new();
        let mut answers = Vec::with_capacity(n);
        let (mut counts, mut totals): (HashMap<(u16, u32), f32>, HashMap<u16, f32>) =
            Default::default();
        for (i, &row) in memory.rows.iter().enumerate() {
            let next = known.len() as u32;
            let answer = *known.entry(memory.answer(i as u32)).or_insert(next);
            answers.push(answer);
            *counts.entry((row, answer)).or_default() += 1.0;
            *totals.entry(row).or_default() += 1.0;
        }
        // A little more than the frequency, so that no answer has a probability of 0.
        let often = memory
            .rows
            .iter()
            .zip(&answers)
            .map(|(&row, &a)| (counts[&(row, a)] - 0.95) / totals[&row])
            .collect();
        Points {
            memory,
            places: columns(&memory.places, n),
            tokens: columns(&memory.tokens, n),
            answers,
            often,
        }
    }

    fn place(&self, i: u32) -> &[f32] {
        &self.places[i as usize * self.memory.dimensions..][..self.memory.dimensions]
    }

    fn words(&self, i: u32) -> &[u16] {
        &self.tokens[i as usize * self.memory.words..][..self.memory.words]
    }

    /// A problem with its voters, the nearest by given distances.
    fn anchor(&self, own: u32, metric: &Metric, scratch: &mut Vec<f32>) -> Anchor {
        let m = self.memory;
        let query = Query {
            place: self.place(own),
            tokens: self.words(own),
            row: m.rows[own as usize],
            own: Some(own),
        };
        let near = m.nearest_of(metric, &query, VOTERS, scratch);
        let hide = (own as usize).is_multiple_of(HIDDEN_LAYERS);
        let voters = |j: &u32| !hide || m.layers[*j as usize] != m.layers[own as usize];
        Anchor { own, voters: near.iter().flatten().map(|x| x.index).filter(voters).collect() }
    }

    /// The gradient of minus the log-likelihood of an anchor's answer: for every weight, then for
    /// the logit of the frequency's share.
    fn gradient(&self, q: &Anchor, weights: &[f32], rare: f32, shares: &mut Vec<f32>) -> Vec<f32> {
        let dimensions = self.memory.dimensions;
        let (place, words) = (self.place(q.own), self.words(q.own));
        let same = |j: u32| self.answers[j as usize] == self.answers[q.own as usize];
        let mut out = vec![0.0; weights.len() + 1];
        // Distances, then shares of the vote.
        shares.clear();
        wide(
            #[inline(always)]
            || {
                shares.extend(q.voters.iter().map(|&j| {
                    let other = self.place(j);
                    // Eight sums side by side, for the vectors' sake.
                    let mut sums = [0.0f32; 8];
                    let ((a, a1), (b, b1), (w, w1)) = (
                        place.as_chunks::<8>(),
                        other.as_chunks::<8>(),
                        weights[..dimensions].as_chunks::<8>(),
                    );
                    for ((a, b), w) in a.iter().zip(b).zip(w) {
                        (0..8).for_each(|l| sums[l] += w[l] * (a[l] - b[l]).abs());
                    }
                    let rest: f32 =
                        a1.iter().zip(b1).zip(w1).map(|((a, b), w)| w * (a - b).abs()).sum();
                    let differ = words.iter().zip(self.words(j)).zip(&weights[dimensions..]);
                    sums.iter().sum::<f32>()
                        + rest
                        + differ.map(|((a, b), w)| if a == b { 0.0 } else { *w }).sum::<f32>()
                }));
            },
        );
        let least = shares.iter().copied().fold(f32::INFINITY, f32::min);
        shares.iter_mut().for_each(|d| *d = exp(least - *d));
        let total: f32 = shares.iter().sum::<f32>().max(f32::MIN_POSITIVE);
        shares.iter_mut().for_each(|s| *s /= total);
        let right: f32 =
            q.voters.iter().zip(shares.iter()).filter(|x| same(*x.0)).map(|x| x.1).sum();
        let often = self.often[q.own as usize];
        let likelihood = (1.0 - rare) * right + rare * often;
        out[weights.len()] = (right - often) / likelihood * rare * (1.0 - rare);
        if right == 0.0 {
            return out; // without a voter of the same answer no distance matters
        }
        let (out_places, out_words) = out.split_at_mut(dimensions);
        wide(
            #[inline(always)]
            || {
                for (&j, share) in q.voters.iter().zip(shares.iter()) {
                    let slope =
                        (1.0 - rare) / likelihood * share * (f32::from(u8::from(same(j))) - right);
                    let apart = place.iter().zip(self.place(j));
                    out_places
                        .iter_mut()
                        .zip(apart)
                        .for_each(|(o, (a, b))| *o += slope * (a - b).abs());
                    let differ = words.iter().zip(self.words(j));
                    out_words
                        .iter_mut()
                        .zip(differ)
                        .for_each(|(o, (a, b))| *o += if a == b { 0.0 } else { slope });
                }
            },
        );
        out
    }
}

/// Learns distances among remembered problems, the first `anchors` of which may be anchors. The
/// first voters are the nearest by `plain`, which is the result where there is nothing to learn
/// from.
pub fn learn(memory: &Memory, plain: &Metric, anchors: usize, learning: Learning) -> Metric {
    let Learning { seed, threads, go_on } = learning;
    let (n, dimensions) = (memory.len(), memory.dimensions);
    if anchors == 0 || n < 2 {
        return plain.clone();
    }
    let mut rng = Generator::seed_from_u64(seed);
    let mut chosen: Vec<u32> = (0..anchors as u32).collect();
    chosen.shuffle(&mut rng);
    chosen.truncate(ANCHORS);
    let points = Points::new(memory);
    // A coordinate that is the same for all problems keeps no weight.
    let varies = |column: &[f32]| column.iter().any(|x| *x != column[0]);
    let mut alive: Vec<bool> = memory.places.chunks_exact(n).map(varies).collect();
    alive.resize(dimensions + memory.words, true);
    let width = alive.len();
    let first = plain
        .places
        .iter()
        .map(|&w| if w > 0.0 { SHARE * w } else { OTHER })
        .chain(plain.words.iter().map(|_| WORD));
    let mut parameters: Vec<f32> = first.map(inverse).chain([RARE]).collect();
    let (mut adam, decays) = (Adam::new(parameters.len(), 0.0), vec![false; parameters.len()]);
    let metric = |parameters: &[f32]| {
        let weight = |k: usize| {
            Some(softplus(parameters[k]).0).filter(|w| alive[k] && *w >= LEAST).unwrap_or(0.0)
        };
        Metric {
            places: (0..dimensions).map(weight).collect(),
            words: (dimensions..width).map(weight).collect(),
        }
    };
    for round in 0..ROUNDS {
        let now = if round == 0 { plain.clone() } else { metric(&parameters) };
        let questions = parallel::map(threads, &chosen, |&own, scratch: &mut Vec<f32>| {
            points.anchor(own, &now, scratch)
        });
        for step in 0..STEPS {
            if step % 10 == 0 && !go_on((round, ROUNDS), step as f64 / STEPS as f64) {
                return now;
            }
            let soft: Vec<(f32, f32)> = parameters[..width].iter().map(|p| softplus(*p)).collect();
            let weights: Vec<f32> =
                soft.iter().zip(&alive).map(|(w, a)| if *a { w.0 } else { 0.0 }).collect();
            let rare = sigmoid(parameters[width]);
            let batch: Vec<usize> =
                (0..BATCH).map(|_| rng.random_range(0..questions.len())).collect();
            let slopes = parallel::map(threads, &batch, |&q, scratch: &mut Vec<f32>| {
                points.gradient(&questions[q], &weights, rare, scratch)
            });
            let mut gradient = vec![0.0f32; width + 1];
            slopes.iter().for_each(|s| crate::nn::vector::add(s, &mut gradient));
            gradient.iter_mut().for_each(|g| *g /= BATCH as f32);
            for (k, (g, (alive, soft))) in
                gradient.iter_mut().zip(alive.iter().zip(&soft)).enumerate()
            {
                let cost = if k < dimensions { COST } else { 0.0 };
                *g = if *alive { (*g + cost) * soft.1 } else { 0.0 };
            }
            let rate = RATE * cosine(round * STEPS + step, ROUNDS * STEPS);
            adam.step(&mut parameters, &gradient, &decays, rate);
        }
    }
    metric(&parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points with a coordinate that answers follow, one of noise and one that is the same for all;
    /// one word says nothing.
    fn memory(n: usize) -> Memory {
        let mut rng = Generator::seed_from_u64(3);
        let points: Vec<[f32; 3]> = (0..n)
            .map(|_| [rng.random_range(0..12) as f32, 8.0 * rng.random::<f32>(), 2.0])
            .collect();
        Memory {
            dimensions: 3,
            words: 1,
            width: 1,
            places: columns(&points.concat(), 3),
            sizes: Vec::new(),
            tokens: (0..n as u16).map(|i| i % 2).collect(),
            rows: vec![0; n],
            layers: (0..n as u32).collect(),
            answers: points.iter().map(|p| p[0] as u16).collect(),
        }
    }

    fn plain() -> Metric {
        Metric { places: vec![1.0; 3], words: vec![1.0] }
    }

    #[test]
    fn what_answers_follow_counts_and_what_they_do_not_is_left_out() {
        let m = memory(300);
        let learn = |threads| {
            learn(&m, &plain(), 300, Learning { seed: 1, threads, go_on: &mut |_, _| true })
        };
        let found = learn(1);
        assert!(
            found.places[0] > 3.0 && found.places[1] < 0.1 && found.places[2] == 0.0,
            "{found:?}"
        );
        assert!(found.words[0] < 1.0, "{found:?}");
        assert_eq!(found, learn(3), "threads do not matter");
    }

    #[test]
    fn slopes_are_those_of_the_likelihood() {
        let m = memory(40);
        let points = Points::new(&m);
        let q = points.anchor(5, &plain(), &mut Vec::new());
        let (weights, logit) = ([0.7f32, 0.2, 0.4, 0.3], -0.8f32);
        let loss = |weights: &[f32], logit: f32| {
            let apart = |j: u32| {
                let sizes: f32 = points
                    .place(5)
                    .iter()
                    .zip(points.place(j))
                    .zip(weights)
                    .map(|((a, b), w)| w * (a - b).abs())
                    .sum();
                f64::from(sizes + if points.words(5) == points.words(j) { 0.0 } else { weights[3] })
            };
            let total: f64 = q.voters.iter().map(|&j| (-apart(j)).exp()).sum();
            let right =
                q.voters.iter().filter(|&&j| points.answers[j as usize] == points.answers[5]);
            let right = right.map(|&j| (-apart(j)).exp()).sum::<f64>() / total;
            let rare = 1.0 / (1.0 + f64::from(-logit).exp());
            -((1.0 - rare) * right + rare * f64::from(points.often[5])).ln()
        };
        let found = points.gradient(&q, &weights, sigmoid(logit), &mut Vec::new());
        for (k, slope) in found.iter().enumerate() {
            let at = |by: f32| {
                let mut w = weights;
                w.iter_mut().skip(k).take(1).for_each(|w| *w += by);
                loss(&w, if k == 4 { logit + by } else { logit })
            };
            let expected = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!(
                (f64::from(*slope) - expected).abs() < 2e-3 * (1.0 + expected.abs()),
                "{k}: {slope} for {expected}"
            );
        }
        assert!(found[0].abs() > 0.01, "{found:?}");
    }
}
