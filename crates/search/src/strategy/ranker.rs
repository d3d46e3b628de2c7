//! A cost model that is fitted again as a task's ledger of outcomes grows. Input: the ledger;
//! output: scores of points, by which evolution and droplet search order their proposals.
//! `is_ready` says whether scores mean anything yet; a model that was fitted elsewhere stays as it
//! is.

use crate::cost_model::CostModel;
use crate::ledger::{Ledger, Point};
use std::sync::Arc;

/// Rows that are needed before the scores of a model mean anything.
const ENOUGH: usize = 6;

/// A cost model and the number of rows that it was fitted to.
pub(super) struct Ranker {
    model: Box<dyn CostModel>,
    /// The number of rows that it was fitted to.
    learnt: usize,
}

impl Ranker {
    pub fn new(model: Box<dyn CostModel>) -> Ranker {
        Ranker { model, learnt: 0 }
    }

    /// A ranker whose model was fitted elsewhere and stays as it is.
    pub fn fitted(model: Box<dyn CostModel>) -> Ranker {
        Ranker { model, learnt: usize::MAX }
    }

    /// Whether scores mean anything yet.
    pub fn is_ready(&self) -> bool {
        self.learnt > 0
    }

    /// Fits the model again where enough rows have come in.
    pub fn refresh(&mut self, ledger: &mut Ledger) {
        let now = ledger.known().len();
        let ran = ledger.known().iter().filter(|k| k.time.is_finite()).count();
        // Fitting to few rows is cheap; with many rows it is done for every eighth.
        let due = if now < 100 { 1 } else { 8 };
        if ran < ENOUGH || now < self.learnt.saturating_add(due) {
            return;
        }
        let Some(best) = ledger.best().map(|b| b.time) else { return };
        let known: Vec<(Point, f64)> =
            ledger.known().iter().map(|k| (k.point.clone(), k.time)).collect();
        let (mut rows, mut labels) = (Vec::new(), Vec::new());
        for (p, time) in known {
            if let Some(row) = ledger.features(&p) {
                rows.push(row);
                labels.push((best / time) as f32);
            }
        }
        let views: Vec<&[f32]> = rows.iter().map(Arc::as_ref).collect();
        self.model.fit(&views, &labels);
        self.learnt = now;
    }

    /// The scores of points, negative infinity where one cannot be realized.
    pub fn scores(&self, ledger: &mut Ledger, points: &[Point]) -> Vec<f32> {
        ledger.prepare(points);
        let rows: Vec<Option<Arc<[f32]>>> = points.iter().map(|p| ledger.features(p)).collect();
        let views: Vec<&[f32]> = rows.iter().flatten().map(Arc::as_ref).collect();
        let mut scores = self.model.predict(&views).into_iter();
        rows.iter()
            .map(|r| if r.is_some() { scores.next().unwrap_or(0.0) } else { f32::NEG_INFINITY })
            .collect()
    }
}
