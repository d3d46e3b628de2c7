//! The training answers (problems with their tuned configurations) and the search for those nearest
//! to a problem. The search alone is the nearest-neighbour baseline; the networks read the
//! neighbours' votes as features. While training, a problem never sees its own answer.

use crate::nn::vector::wide;
use serde::{Deserialize, Serialize};

/// Neighbours kept of each channel.
pub const NEAREST: usize = 48;
/// Neighbours of the same row (device and precision), and of all others.
pub const CHANNELS: usize = 2;

/// The distance of problems: the weighted sum of the differences of their coordinates, plus a
/// weight for each word that differs. A neighbour at distance `d` votes with `exp(-d)`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// For each coordinate.
    pub places: Vec<f32>,
    /// For each word.
    pub words: Vec<f32>,
}

/// Answers with the coordinates of their problems.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Coordinates a problem has.
    pub dimensions: usize,
    /// Words a problem has.
    pub words: usize,
    /// Numbers an answer has.
    pub width: usize,
    /// `dimensions x n`: one coordinate of all after another.
    pub places: Vec<f32>,
    /// `names x n`: the sizes that coordinates are made from, one of all problems after another; a
    /// file holds them in the place of coordinates. Empty where one is no number of 32 bits, and
    /// where a file of an earlier build lacked them.
    #[serde(default)]
    pub sizes: Vec<u32>,
    /// `words x n`: tokens; those of the row stand in `rows` as well.
    pub tokens: Vec<u16>,
    /// Rows: device and precision.
    pub rows: Vec<u16>,
    /// Layers, numbered.
    pub layers: Vec<u32>,
    /// `n x width`: positions of values.
    pub answers: Vec<u16>,
}

/// A remembered answer and the distance of its problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// Its place in the memory.
    pub index: u32,
    /// The distance by the metric that was asked for.
    pub distance: f32,
    /// The place of its answer among the candidates of the problem that asks; [`NOWHERE`] where it
    /// is none of them, and until it is looked up.
    pub candidate: u32,
}

/// Stands for no place.
pub const NOWHERE: u32 = u32::MAX;

/// A problem whose neighbours are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Its coordinates.
    pub place: &'a [f32],
    /// Its words.
    pub tokens: &'a [u16],
    /// Its device and precision.
    pub row: u16,
    /// Its own place in the memory, which is left out.
    pub own: Option<u32>,
}

impl Memory {
    /// How many answers there are.
    #[allow(clippy::len_without_is_empty)] // training needs at least one example
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Drops all coordinates but these.
    pub fn keep(&mut self, kept: &[u32]) {
        let n = self.len();
        self.places =
            kept.iter().flat_map(|&k| &self.places[k as usize * n..][..n]).copied().collect();
        self.dimensions = kept.len();
    }

    /// An answer.
    pub fn answer(&self, index: u32) -> &[u16] {
        &self.answers[index as usize * self.width..][..self.width]
    }

    /// The [`NEAREST`] of each channel, nearest first; ties go to the earlier.
    pub fn nearest(
        &self,
        metric: &Metric,
        query: &Query,
        scratch: &mut Vec<f32>,
    ) -> [Vec<Neighbour>; CHANNELS] {
        self.nearest_of(metric, query, NEAREST, scratch)
    }

    /// The `count` nearest of each channel.
    pub fn nearest_of(
        &self,
        metric: &Metric,
        query: &Query,
        count: usize,
        scratch: &mut Vec<f32>,
    ) -> [Vec<Neighbour>; CHANNELS] {
        scratch.clear();
        scratch.resize(self.len(), 0.0);
        let n = self.len().max(1);
        wide(
            #[inline(always)]
            || {
                for ((column, at), &w) in self
                    .places
                    .chunks_exact(n)
                    .zip(query.place)
                    .zip(&metric.places)
                    .filter(|x| *x.1 > 0.0)
                {
                    scratch.iter_mut().zip(column).for_each(|(d, x)| *d += w * (x - at).abs());
                }
                for ((column, at), &w) in self
                    .tokens
                    .chunks_exact(n)
                    .zip(query.tokens)
                    .zip(&metric.words)
                    .filter(|x| *x.1 > 0.0)
                {
                    scratch
                        .iter_mut()
                        .zip(column)
                        .for_each(|(d, x)| *d += if x == at { 0.0 } else { w });
                }
            },
        );
        let order = |a: &Neighbour, b: &Neighbour| {
            a.distance.total_cmp(&b.distance).then(a.index.cmp(&b.index))
        };
        let mut near: [Vec<Neighbour>; CHANNELS] =
            [Vec::with_capacity(2 * count), Vec::with_capacity(2 * count)];
        // No problem beyond the bound is among the nearest; of equal distances the earlier one is
        // kept, which was seen first.
        let mut bounds = [f32::INFINITY; CHANNELS];
        for (i, (&distance, &row)) in scratch.iter().zip(&self.rows).enumerate() {
            let channel = usize::from(row != query.row);
            if distance < bounds[channel] && query.own != Some(i as u32) {
                let all = &mut near[channel];
                all.push(Neighbour { index: i as u32, distance, candidate: NOWHERE });
                if all.len() == 2 * count {
                    all.select_nth_unstable_by(count - 1, order);
                    all.truncate(count);
                    bounds[channel] = all[count - 1].distance;
                }
            }
        }
        for all in &mut near {
            all.sort_unstable_by(order);
            all.truncate(count);
        }
        near
    }
}

/// The votes of neighbours: shares of whole answers and of single values.
#[derive(Clone, Debug, Default)]
pub struct Votes {
    /// For each value of each knob, one knob after another: its share among near neighbours.
    pub values: Vec<f32>,
    /// The weight of each neighbour's vote, sharp and flat: `exp(-d)`, `exp(-d / 4)`.
    pub weights: Vec<(f32, f32)>,
    /// Distance of the nearest.
    pub nearest: f32,
}

/// The distance that stands for "no neighbour".
const FAR: f32 = 48.0;

impl Votes {
    /// Counts the votes of neighbours. `offsets` has the place where each knob's values begin.
    pub fn count(
        memory: &Memory,
        neighbours: &[Neighbour],
        offsets: &[usize],
        values: usize,
    ) -> Votes {
        let (mut sharp, mut flat) = (1e-9f32, 1e-9f32);
        let first = neighbours.first().map_or(0.0, |n| n.distance);
        // Weights are relative to the nearest, so that problems far from all others get full votes
        // too; the distance of the nearest is a feature of its own.
        let weight =
            |n: &Neighbour| ((first - n.distance).exp(), ((first - n.distance) / 4.0).exp());
        let mut out = Votes {
            values: vec![0.0; values],
            weights: neighbours.iter().map(weight).collect(),
            nearest: FAR,
        };
        for w in &out.weights {
            sharp += w.0;
            flat += w.1;
        }
        for w in &mut out.weights {
            *w = (w.0 / sharp, w.1 / flat);
        }
        for (n, w) in neighbours.iter().zip(&out.weights) {
            for (k, &v) in memory.answer(n.index).iter().enumerate() {
                out.values[offsets[k] + v as usize] += w.1;
            }
        }
        if let Some(n) = neighbours.first() {
            out.nearest = n.distance.min(FAR);
        }
        out
    }
}

/// The transpose of a matrix: its columns one after another.
pub fn columns<T: Copy>(rows: &[T], width: usize) -> Vec<T> {
    (0..width).flat_map(|c| rows.iter().skip(c).step_by(width.max(1)).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the definition: all others sorted by distance, then by place.
        #[test]
        fn the_nearest_are_the_nearest(
            points in prop::collection::vec((0u8..6, 0u8..4, 0u16..3, 0u16..2), 1..400),
            at in (0u8..6, 0u8..4, 0u16..3, 0u16..3),
            own in prop::option::of(0u32..50),
        ) {
            let place = |p: &(u8, u8, u16, u16)| [f32::from(p.0) / 2.0, f32::from(p.1)];
            let places: Vec<f32> = points.iter().flat_map(place).collect();
            let memory = Memory {
                dimensions: 2,
                words: 1,
                width: 0,
                places: columns(&places, 2),
                sizes: Vec::new(),
                tokens: points.iter().map(|p| p.2).collect(),
                rows: points.iter().map(|p| p.3).collect(),
                layers: Vec::new(),
                answers: Vec::new(),
            };
            let place = [f32::from(at.0) / 2.0, f32::from(at.1)];
            let metric = Metric { places: vec![2.0, 0.5], words: vec![1.5] };
            let query = Query { place: &place, tokens: &[at.2], row: at.3, own };
            let found = memory.nearest(&metric, &query, &mut vec![7.0; 3]);
            for (c, found) in found.iter().enumerate() {
                let mut all: Vec<Neighbour> = Vec::new();
                for (i, p) in points.iter().enumerate() {
                    if (p.3 != at.3) == (c == 1) && own != Some(i as u32) {
                        let distance = 2.0 * (f32::from(p.0) / 2.0 - place[0]).abs()
                            + 0.5 * (f32::from(p.1) - place[1]).abs()
                            + if p.2 == at.2 { 0.0 } else { 1.5 };
                        all.push(Neighbour { index: i as u32, distance, candidate: NOWHERE });
                    }
                }
                all.sort_by(|a, b| a.distance.total_cmp(&b.distance));
                all.truncate(NEAREST);
                prop_assert_eq!(found, &all);
            }
        }
    }
}
