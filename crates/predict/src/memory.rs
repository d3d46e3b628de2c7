//! The training answers, kept: which problems lie near, and how they were answered. Alone it is
//! the nearest-neighbour baseline; the networks see its votes as features. While training, a
//! problem never sees its own answer.

use crate::nn::vector::wide;
use serde::{Deserialize, Serialize};

/// Neighbours kept of each channel.
pub const NEAREST: usize = 48;
/// Neighbours of the same row (device and precision), and of all others.
pub const CHANNELS: usize = 2;
/// Distance, in doublings of one size, that a different word counts for.
const WORD: f32 = 1.0;

/// Answers and where their problems lie.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Coordinates a problem has.
    pub dimensions: usize,
    /// Words a problem has.
    pub words: usize,
    /// Numbers an answer has.
    pub width: usize,
    /// `n x dimensions`
    pub places: Vec<f32>,
    /// `n x words`: tokens; those of the row stand in `rows` as well.
    pub tokens: Vec<u16>,
    /// Device and precision.
    pub rows: Vec<u16>,
    /// Layers, numbered.
    pub layers: Vec<u32>,
    /// `n x width`: positions of values.
    pub answers: Vec<u16>,
}

/// A remembered answer and how far its problem lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// Which.
    pub index: u32,
    /// In doublings: the sum over sizes of differences of logarithms.
    pub distance: f32,
}

/// Who asks for neighbours.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Its coordinates.
    pub place: &'a [f32],
    /// Its words.
    pub tokens: &'a [u16],
    /// Its device and precision.
    pub row: u16,
    /// Itself, if it is remembered.
    pub own: Option<u32>,
}

impl Memory {
    /// How many answers there are.
    #[allow(clippy::len_without_is_empty)] // nothing is trained on nothing
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// An answer.
    pub fn answer(&self, index: u32) -> &[u16] {
        &self.answers[index as usize * self.width..][..self.width]
    }

    /// The nearest of each channel, nearest first; ties go to the earlier.
    pub fn nearest(&self, asker: &Asker, room: &mut Vec<f32>) -> [Vec<Neighbour>; CHANNELS] {
        room.clear();
        room.resize(self.len(), 0.0);
        let d = self.dimensions;
        wide(
            #[inline(always)]
            || {
                for (out, place) in room.iter_mut().zip(self.places.chunks_exact(d.max(1))) {
                    *out = place.iter().zip(asker.place).map(|(x, y)| (x - y).abs()).sum();
                }
            },
        );
        if self.words > 0 {
            for (out, tokens) in room.iter_mut().zip(self.tokens.chunks_exact(self.words)) {
                *out += WORD * tokens.iter().zip(asker.tokens).filter(|(x, y)| x != y).count() as f32;
            }
        }
        [true, false].map(|same| {
            let mine = |&i: &usize| (self.rows[i] == asker.row) == same && asker.own != Some(i as u32);
            let mut all: Vec<Neighbour> = (0..self.len()).filter(mine).map(|i| Neighbour { index: i as u32, distance: room[i] }).collect();
            let order = |a: &Neighbour, b: &Neighbour| a.distance.total_cmp(&b.distance).then(a.index.cmp(&b.index));
            if all.len() > NEAREST {
                all.select_nth_unstable_by(NEAREST - 1, order);
                all.truncate(NEAREST);
            }
            all.sort_by(order);
            all
        })
    }
}

/// What neighbours say: shares of whole answers and of single values.
#[derive(Clone, Debug, Default)]
pub struct Votes {
    /// For each value of each knob, one knob after another: its share among near neighbours.
    pub values: Vec<f32>,
    /// Sum of the weights of each neighbour's vote, sharp and flat: `exp(-2 d)`, `exp(-d/2)`.
    pub weights: Vec<(f32, f32)>,
    /// Distance of the nearest.
    pub nearest: f32,
}

/// Distance that stands for "nobody".
const FAR: f32 = 12.0;

impl Votes {
    /// Counts the votes of neighbours. `offsets` says where a knob's values begin.
    pub fn count(memory: &Memory, neighbours: &[Neighbour], offsets: &[usize], values: usize) -> Votes {
        let (mut sharp, mut flat) = (1e-9f32, 1e-9f32);
        let first = neighbours.first().map_or(0.0, |n| n.distance);
        // Relative to the nearest, so that lonely problems get full votes too; how far the
        // nearest is stands beside.
        let weight = |n: &Neighbour| ((-2.0 * (n.distance - first)).exp(), (-0.5 * (n.distance - first)).exp());
        let mut out = Votes { values: vec![0.0; values], weights: neighbours.iter().map(weight).collect(), nearest: FAR };
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
