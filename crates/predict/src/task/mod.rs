//! Predictions for tasks that Squall tunes itself. Records of tasks that were tuned on a device
//! teach which configurations of which sketch suit which sizes; for a task that was not tuned,
//! candidates of its own spaces are made ([`TaskModel::propose`]) and ranked by networks that read
//! a candidate's knobs, the compiler's features of its nest and the task's sizes.
//!
//! MIOpen's solvers have one list of values for all their problems, so a network can choose among
//! them ([`crate::Solver`]). The legal tiles of a task follow from its extents: those of two tasks
//! may have no value in common. So numbers stay numbers here, every candidate comes from the task's
//! own [`Space`](squall_core::Space), and the networks learn the order of candidates within a task
//! (after TenSet, Zheng et al., NeurIPS 2021: a cost model trained ahead, over many tasks).

mod encode;
mod network;
mod propose;
#[cfg(test)]
mod tests;

pub use encode::problem;
pub use propose::{Proposal, even};

use crate::error::PredictError;
use crate::metrics::rounded;
use crate::nn::{Linear, Mlp, ParameterLayout};
use crate::options::Options;
use crate::parallel;
use crate::trainer::Progress;
use encode::Vocabulary;
use network::TokenGroup;
use serde::{Deserialize, Serialize};
use squall_core::Configuration;
use squall_core::forecast::Problem;

/// A task that was tuned, with what was measured.
#[derive(Clone, Debug)]
pub struct TunedTask {
    /// The task; see [`problem`].
    pub problem: Problem,
    /// Its name in messages and reports.
    pub name: String,
    /// The candidates that were tried.
    pub rows: Vec<MeasuredCandidate>,
}

/// A candidate that was tried.
#[derive(Clone, Debug)]
pub struct MeasuredCandidate {
    /// Its sketch.
    pub tunable: String,
    /// The values of its knobs.
    pub configuration: Configuration,
    /// The compiler's features of its nest; equally many for every candidate of a device.
    pub features: Vec<f32>,
    /// Time of a call in nanoseconds; nothing where it failed.
    pub time: Option<f64>,
}

impl TunedTask {
    /// The shortest time; infinite where nothing ran.
    pub fn best(&self) -> f64 {
        self.rows.iter().filter_map(|r| r.time).fold(f64::INFINITY, f64::min)
    }
}

/// A task that was learned from; its best configurations are candidates for similar tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownTask {
    /// The task.
    pub problem: Problem,
    /// Its name in messages and reports.
    pub name: String,
    /// Sketches and configurations, the fastest first, with their times in nanoseconds.
    pub best: Vec<(String, String, f64)>,
}

/// The number of best configurations that are kept of a task.
const KEPT: usize = 10;
/// What [`HeldOut`] looks at.
const AT: [usize; 3] = [1, 5, 10];

/// What rankings of measured candidates are worth for tasks that the network had not learned from:
/// the speed of the fastest among the first k over that of the task's fastest, geometric mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// The first so many.
    pub k: usize,
    /// Share, 0 to 1.
    pub share: f64,
}

/// What is learned of the data, apart from the networks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskFacts {
    /// The device of the times; the model is of no use for another.
    pub device: String,
    /// The tasks.
    pub known: Vec<KnownTask>,
    /// Width of the networks.
    pub width: usize,
    /// Networks.
    pub members: usize,
    /// See [`HeldOut`]; empty where tasks are too few to leave any out.
    pub held: Vec<HeldOut>,
    pub(crate) vocabulary: Vocabulary,
}

impl TaskFacts {
    /// Whether its parts fit together, as those of a file must.
    pub(crate) fn is_consistent(&self) -> bool {
        self.vocabulary.is_consistent() && !self.known.is_empty()
    }
}

/// Networks that rank candidates of tasks, and what they know of the data.
#[derive(Clone, Debug)]
pub struct TaskModel {
    pub(crate) facts: TaskFacts,
    pub(crate) layout: ParameterLayout,
    pub(crate) members: Vec<Vec<f32>>,
    body: Mlp,
    last: Linear,
}

/// Networks where the options give no number.
const MEMBERS: usize = 8;
/// Steps of training where the options give no number of passes.
const STEPS: usize = 1500;
const WIDTH: usize = 64;

impl TaskModel {
    /// Layers without parameters.
    pub(crate) fn empty(facts: TaskFacts) -> TaskModel {
        let mut layout = ParameterLayout::default();
        let body = Mlp::new(&mut layout, "body", facts.vocabulary.inputs(), &[], facts.width, 0.1);
        let last = Linear::new(&mut layout, "last", facts.width, 1, 1.0);
        TaskModel { facts, layout, members: Vec::new(), body, last }
    }

    /// What is known beside the networks.
    pub fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    /// Learns from tasks of a device. Of `options` counts the seed, the threads, and the first of
    /// the members and of the epochs. `None` where `go_on` returned false.
    ///
    /// # Errors
    /// Where no task has two candidates that ran, there is nothing to learn.
    pub fn train(
        device: &str,
        tasks: &[TunedTask],
        options: &Options,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<TaskModel>, PredictError> {
        // In an order that does not depend on the store's.
        let mut tasks: Vec<&TunedTask> = tasks
            .iter()
            .filter(|l| l.rows.iter().filter(|r| r.time.is_some()).count() >= 2)
            .collect();
        tasks.sort_by(|a, b| a.problem.key.cmp(&b.problem.key));
        if tasks.is_empty() {
            return Err(PredictError::Nothing("tasks".into()));
        }
        let vocabulary = Vocabulary::new(&tasks);
        let groups: Vec<TokenGroup> =
            tasks.iter().map(|l| TokenGroup::new(&vocabulary, l)).collect();
        let members = if options.members.0 > 0 { options.members.0 } else { MEMBERS };
        let known = tasks.iter().map(|l| known(l)).collect();
        let facts = TaskFacts {
            device: device.into(),
            known,
            width: WIDTH,
            members,
            held: Vec::new(),
            vocabulary,
        };
        let mut model = TaskModel::empty(facts);
        let rows: usize = groups.iter().map(TokenGroup::len).sum();
        let each = network::steps_of_a_pass(rows);
        let steps = if options.epochs.0 > 0 { options.epochs.0 * each } else { STEPS };
        // Every network does without some tasks, so that each task has one that never saw it.
        let leaves_out = |member: usize, task: usize| {
            members > 1 && groups.len() >= 2 * members && task % members == member
        };
        let all: Vec<usize> = (0..members).collect();
        for some in all.chunks(options.threads.max(1)) {
            let progress = Progress {
                solver: "tasks",
                network: "ranker",
                member: (some[0], members),
                epochs: (0, steps / each.max(1)),
                within: 0.0,
                last: None,
            };
            if !go_on(&progress) {
                return Ok(None);
            }
            let learn = |m: usize| {
                let mine: Vec<&TokenGroup> = groups
                    .iter()
                    .enumerate()
                    .filter(|(t, _)| !leaves_out(m, *t))
                    .map(|(_, g)| g)
                    .collect();
                model.learn(&mine, steps, options.seed.wrapping_add(m as u64))
            };
            let trained = parallel::each(some, |&m| learn(m));
            model.members.extend(trained);
        }
        model.facts.held = model.held(&groups, &leaves_out);
        Ok(Some(model))
    }

    /// What each network's order of the tasks that it never saw is worth.
    fn held(
        &self,
        groups: &[TokenGroup],
        leaves_out: &dyn Fn(usize, usize) -> bool,
    ) -> Vec<HeldOut> {
        let mut sums = [0.0; AT.len()];
        let mut tasks = 0;
        for (t, g) in groups.iter().enumerate() {
            let Some(m) = (0..self.members.len()).find(|m| leaves_out(*m, t)) else { continue };
            let scores = self.scores(m, g.inputs());
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            for (sum, k) in sums.iter_mut().zip(AT) {
                *sum += order.iter().take(k).map(|&i| g.speed(i)).fold(f64::NEG_INFINITY, f64::max);
            }
            tasks += 1;
        }
        if tasks == 0 {
            return Vec::new();
        }
        AT.iter()
            .zip(sums)
            .map(|(&k, sum)| HeldOut { k, share: rounded((sum / f64::from(tasks)).exp()) })
            .collect()
    }
}

/// A task's best.
fn known(l: &TunedTask) -> KnownTask {
    let mut ran: Vec<(&MeasuredCandidate, f64)> =
        l.rows.iter().filter_map(|r| Some((r, r.time?))).collect();
    ran.sort_by(|a, b| a.1.total_cmp(&b.1));
    let best = ran
        .into_iter()
        .take(KEPT)
        .map(|(r, t)| (r.tunable.clone(), r.configuration.to_string(), t))
        .collect();
    KnownTask { problem: l.problem.clone(), name: l.name.clone(), best }
}
