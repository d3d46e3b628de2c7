//! Cost models: they rank candidates by their features before anything is built, as in Ansor. The
//! trait [`CostModel`] is fitted to the measured candidates of a task; [`Gbdt`] (gradient-boosted
//! trees) is the default, [`NoModel`] gives random scores for comparison. Evolution and descent
//! (`strategy/`) choose proposals by the scores.

mod gbdt;

pub use gbdt::{Gbdt, GbdtSettings, Loss, TreeError};

use std::hash::{DefaultHasher, Hash, Hasher};

/// Learns from measured candidates of one task how good others are. Only the order of the
/// predictions matters.
pub trait CostModel: Send {
    /// Fits the model to all measured rows, from the beginning. A label is the best time over the
    /// row's time, 0 for a failure. All rows have the same length and finite values.
    fn fit(&mut self, rows: &[&[f32]], labels: &[f32]);

    /// Scores, higher is better.
    fn predict(&self, rows: &[&[f32]]) -> Vec<f32>;
}

/// A model without knowledge: its scores are random, but equal for equal rows. It serves to measure
/// what a real model is worth.
#[derive(Clone, Copy, Debug)]
pub struct NoModel {
    /// The seed of the scores.
    pub seed: u64,
}

impl CostModel for NoModel {
    fn fit(&mut self, _: &[&[f32]], _: &[f32]) {}

    fn predict(&self, rows: &[&[f32]]) -> Vec<f32> {
        let score = |row: &&[f32]| {
            let mut h = DefaultHasher::new();
            self.seed.hash(&mut h);
            row.iter().for_each(|x| x.to_bits().hash(&mut h));
            (h.finish() >> 40) as f32 / (1u32 << 24) as f32
        };
        rows.iter().map(score).collect()
    }
}
