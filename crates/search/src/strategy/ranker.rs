//! A cost model kept up to date with a ledger: when to learn anew, from what, and scores.

use crate::cost_model::CostModel;
use crate::ledger::{Ledger, Point};
use std::sync::Arc;

/// Rows needed before a model is worth asking.
const ENOUGH: usize = 6;

pub(super) struct Ranker {
    model: Box<dyn CostModel>,
    /// Rows that it has learnt from.
    learnt: usize,
}

impl Ranker {
    pub fn new(model: Box<dyn CostModel>) -> Ranker {
        Ranker { model, learnt: 0 }
    }

    /// Whether scores mean anything yet.
    pub fn is_ready(&self) -> bool {
        self.learnt > 0
    }

    /// Learns anew where enough rows have come in.
    pub fn refresh(&mut self, ledger: &mut Ledger) {
        let now = ledger.known().len();
        let ran = ledger.known().iter().filter(|k| k.time.is_finite()).count();
        // Learning from few rows costs next to nothing; from many it waits for news.
        let due = if now < 100 { 1 } else { 8 };
        if ran < ENOUGH || now < self.learnt + due {
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
