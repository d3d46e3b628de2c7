//! Asks the general predictor for a task's first candidates. It ranks hints (winners of the most
//! similar tasks that it learned from), samples of the task's space, and candidates that evolution
//! makes of the best of both. Input: a task, its tunables and an [`Effort`]; output: candidates,
//! the most promising first. `predict/guess.rs`, `session.rs` and `api/advise.rs` use it.

use super::file::{GeneralPredictor, Trees, Winner};
use super::relative::{Relative, estimate};
use squall_core::{
    Candidate, Space, Target, TargetKind, Task, TaskShape, Tunable, Workload,
    canonical_tunable_name, find_tunable,
};
use squall_search::CostModel;
use squall_search::strategy::{Outlook, Prospect, prospect};
use std::sync::Arc;

/// The largest distance of a task whose winner is a hint: factors of two between extents, summed
/// over the loops.
const FAR: f64 = 12.0;
/// The distance that a vector width of half or twice the size adds.
const OTHER_WIDTH: f64 = 1.0;

/// How many candidates are looked at: the features of each take some 0.3 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// For an answer at once: few beside hints.
    Least,
    /// For the kernel that tells machines of a fleet apart: what it looks at never changes.
    Calibration,
    /// For one of many tasks.
    Little,
    /// For a task that takes more than its share of the time, or that is alone.
    Much,
}

impl Effort {
    fn evaluations(self) -> usize {
        match self {
            Effort::Least => 12,
            Effort::Calibration => 24,
            Effort::Little => 160,
            Effort::Much => 400,
        }
    }

    /// How many winners of similar tasks are hints.
    fn hints(self) -> usize {
        if self == Effort::Least { 8 } else { 12 }
    }
}

/// The trees for one task on one machine.
struct Ranked {
    trees: Arc<Trees>,
    relative: Relative,
}

impl CostModel for Ranked {
    // It was fitted when it was trained.
    fn fit(&mut self, _: &[&[f32]], _: &[f32]) {}

    fn predict(&self, rows: &[&[f32]]) -> Vec<f32> {
        let relative: Vec<Vec<f32>> = rows.iter().map(|r| self.relative.row(r)).collect();
        let views: Vec<&[f32]> = relative.iter().map(Vec::as_slice).collect();
        let estimates: Vec<f32> = rows.iter().map(|r| estimate(r)).collect();
        self.trees.scores(&views, &estimates)
    }
}

/// The cost formula in place of trees.
struct Formula;

impl CostModel for Formula {
    fn fit(&mut self, _: &[&[f32]], _: &[f32]) {}

    fn predict(&self, rows: &[&[f32]]) -> Vec<f32> {
        rows.iter().map(|r| -estimate(r)).collect()
    }
}

/// What the cost formula makes of a task, where it looks at as many candidates as
/// [`GeneralPredictor::outlook`] does.
pub(crate) fn formula_outlook(
    task: &Task,
    tunables: &[Arc<dyn Tunable>],
    effort: Effort,
    n: usize,
) -> Prospect {
    let outlook = Outlook { evaluations: effort.evaluations(), seed: task.id.number() };
    prospect(tunables, Box::new(Formula), &[], outlook, n)
}

/// How fast a task's candidates on a CPU are expected to be by their features, as logarithms of
/// speeds: by the predictor, or by the cost formula where there is none. They compare among
/// candidates of one task alone.
pub(crate) fn expected_speeds(
    general: Option<&GeneralPredictor>,
    workload: &Workload,
    target: &Target,
    features: &[Vec<f32>],
) -> Vec<f32> {
    let rows: Vec<&[f32]> = features.iter().map(Vec::as_slice).collect();
    match general {
        Some(g) => g.ranked(workload, target).predict(&rows),
        None => Formula.predict(&rows),
    }
}

impl GeneralPredictor {
    /// The trees for a task.
    fn ranked(&self, workload: &Workload, target: &Target) -> Ranked {
        let relative = Relative::new(workload, &target.machine);
        Ranked { trees: self.trees.clone(), relative }
    }

    /// The `n` candidates of a task that are most worth trying on a CPU, the best first. None where
    /// its kernels are not made by rule, or run elsewhere.
    pub fn ask(
        &self,
        task: &Task,
        tunables: &[Arc<dyn Tunable>],
        target: &Target,
        effort: Effort,
        n: usize,
    ) -> Vec<Candidate> {
        self.outlook(task, tunables, target, effort, n).candidates
    }

    /// As [`GeneralPredictor::ask`], with what is expected of each algorithm.
    pub fn outlook(
        &self,
        task: &Task,
        tunables: &[Arc<dyn Tunable>],
        target: &Target,
        effort: Effort,
        n: usize,
    ) -> Prospect {
        let is_asked = target.kind == TargetKind::Cpu && task.workload.foreign.is_none();
        if !is_asked || n == 0 || tunables.is_empty() || tunables.iter().any(|t| t.is_flat()) {
            return Prospect::default();
        }
        let hints = self.hints(task, target, tunables, effort.hints());
        let model = self.ranked(&task.workload, target);
        let evaluations = match (effort, hints.is_empty()) {
            (Effort::Least, true) => 2 * effort.evaluations(),
            _ => effort.evaluations(),
        };
        let outlook = Outlook { evaluations, seed: task.id.number() };
        prospect(tunables, Box::new(model), &hints, outlook, n)
    }

    /// The names of the tunables that hold the most similar tasks.
    pub fn names(&self, task: &Task, target: &Target) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for w in self.similar(task, target).into_iter().take(Effort::Least.hints()) {
            let name = canonical_tunable_name(&w.tunable);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Winners of similar tasks, the most similar first.
    fn similar(&self, task: &Task, target: &Target) -> Vec<&Winner> {
        let Some(shape) = TaskShape::of(&task.workload) else { return Vec::new() };
        let distance = |w: &Winner| {
            let widths = w.vector_bytes.max(1) as f64 / target.vector_bytes().max(1) as f64;
            Some(shape.distance(&w.shape)? + OTHER_WIDTH * widths.log2().abs())
        };
        let mut near: Vec<(f64, &Winner)> =
            self.winners.iter().filter_map(|w| Some((distance(w)?, w))).collect();
        near.retain(|(d, _)| *d <= FAR);
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        near.into_iter().map(|(_, w)| w).collect()
    }

    /// The winners of the most similar tasks, as this task's space has them.
    fn hints(
        &self,
        task: &Task,
        target: &Target,
        tunables: &[Arc<dyn Tunable>],
        most: usize,
    ) -> Vec<Candidate> {
        let mut found: Vec<Candidate> = Vec::new();
        for w in self.similar(task, target) {
            if found.len() == most {
                break;
            }
            let Some(t) = find_tunable(tunables, &w.tunable) else { continue };
            let Some(configuration) = Space::nearest(t.space(), &w.configuration) else { continue };
            let candidate = Candidate { tunable: t.name().into(), configuration };
            if !found.contains(&candidate) {
                found.push(candidate);
            }
        }
        found
    }
}
