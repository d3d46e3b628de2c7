//! A predictor: trained models of several solvers, or one model of Squall's own tasks, and its
//! description of itself (data, options, scores). [`Predictor::train`] makes one from examples,
//! `predict` answers for a problem, and `file.rs` saves and loads it.

use crate::checkpoint::Checkpoint;
use crate::error::PredictError;
use crate::metrics::Outcome;
use crate::model::{Model, RowCount, Score};
use crate::options::{Method, Options};
use crate::solver::Scratch;
use crate::solvers::{Trained, TrainingRequest, train_all};
use crate::task::{MeasuredCandidate, TaskModel, TunedTask};
use crate::trainer::Progress;
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Example, Family, Part, Problem, Split};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A predictor's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Info {
    /// Digest of the examples, in any order.
    pub data: String,
    /// The number of examples of each solver, device and precision, by what they were used for.
    pub rows: Vec<RowCount>,
    /// The split by which test rows were held out; absent where none were.
    pub split: Option<Split>,
    /// The options of its training.
    pub options: Options,
    /// Scores on the test rows.
    pub scores: Vec<Score>,
}
/// Trained models of several solvers, or one model of tasks, in one file.
#[derive(Debug)]
pub struct Predictor {
    models: Vec<Model>,
    tasks: Option<TaskModel>,
    info: Info,
}

impl Predictor {
    /// Trains a model of every family that has examples; see [`TrainingRequest`]. `progress` is
    /// called often, and ends training early by returning false.
    ///
    /// # Errors
    /// Where there is nothing to learn, or training was ended early.
    pub fn train(
        families: &[Arc<Family>],
        examples: &[Example],
        split: Option<Split>,
        options: &Options,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Predictor, PredictError> {
        let request = TrainingRequest { families, examples, split, options };
        Predictor::resume(request, &mut Checkpoint::default(), &mut |_| (), progress)
    }

    /// As [`Predictor::train`], resuming from a checkpoint of the same training. `keep` is given
    /// the checkpoint after every epoch, to be saved.
    ///
    /// # Errors
    /// As [`Predictor::train`], and where the checkpoint is of another training.
    pub fn resume(
        request: TrainingRequest,
        checkpoint: &mut Checkpoint,
        keep: &mut dyn FnMut(&Checkpoint),
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Predictor, PredictError> {
        let TrainingRequest { examples, split, options, .. } = request;
        let part = move |p: &Problem| match split {
            Some(split) => split.part(p),
            None if Split::Random.part(p) == Part::Validation => Part::Validation,
            None => Part::Train,
        };
        let data = digest(examples);
        if !checkpoint.fits(&data, split, options) {
            return Err(PredictError::OtherTraining);
        }
        checkpoint.claim(&data, split, options);
        let mut info = Info { data, split, options: options.clone(), ..Info::default() };
        let trained = train_all(request, &part, checkpoint, keep, progress)?;
        let mut models = Vec::new();
        for Trained { rows, scores, model } in trained {
            info.rows.extend(rows);
            info.scores.extend(scores);
            models.push(model);
        }
        if models.is_empty() {
            return Err(PredictError::Nothing("any solver".into()));
        }
        Ok(Predictor::new(models, None, info))
    }

    /// Trains on tasks that were tuned on a device. `progress` is called before every few networks,
    /// and ends training early by returning false.
    ///
    /// # Errors
    /// Where there is nothing to learn, or training was ended early.
    pub fn train_on_tasks(
        device: &str,
        tasks: &[TunedTask],
        options: &Options,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Predictor, PredictError> {
        let model =
            TaskModel::train(device, tasks, options, progress)?.ok_or(PredictError::Cancelled)?;
        let mut rows: BTreeMap<(&str, &str), RowCount> = BTreeMap::new();
        for k in &model.facts().known {
            let (kind, precision) =
                (k.problem.solver.as_str(), k.problem.word("precision").unwrap_or(""));
            let fresh = || RowCount {
                solver: kind.into(),
                device: device.into(),
                precision: precision.into(),
                ..RowCount::default()
            };
            rows.entry((kind, precision)).or_insert_with(fresh).train += 1;
        }
        let rows = rows.into_values().collect();
        let info =
            Info { data: task_digest(tasks), rows, options: options.clone(), ..Info::default() };
        Ok(Predictor::new(Vec::new(), Some(model), info))
    }

    pub(crate) fn new(models: Vec<Model>, tasks: Option<TaskModel>, info: Info) -> Predictor {
        Predictor { models, tasks, info }
    }

    /// The model of Squall's own tasks.
    ///
    /// # Errors
    /// Where the predictor was trained for solvers.
    pub fn tasks(&self) -> Result<&TaskModel, PredictError> {
        let known = || self.models.iter().map(Model::solver).collect::<Vec<_>>().join(", ");
        self.tasks.as_ref().ok_or_else(|| PredictError::NoTasks(known()))
    }

    /// The models of all its solvers.
    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// Its description of itself.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The model of one solver.
    ///
    /// # Errors
    /// Where it was not trained for that solver.
    pub fn model(&self, solver: &str) -> Result<&Model, PredictError> {
        let known = || self.models.iter().map(Model::solver).collect::<Vec<_>>().join(", ");
        let found = self.models.iter().find(|s| s.solver() == solver);
        found.ok_or_else(|| PredictError::Solver { solver: solver.into(), known: known() })
    }

    /// The k most probable configurations of `problem`'s tuner space, best first, with their
    /// probabilities; fewer where the space is smaller, none where nothing is legal.
    pub fn predict(
        &self,
        problem: &Problem,
        k: usize,
    ) -> Result<Vec<(Vec<i64>, f64)>, PredictError> {
        Ok(self.model(&problem.solver)?.predict(
            problem,
            k,
            Method::Pair,
            &mut Scratch::default(),
        )?)
    }

    /// What predictions for examples with known answers are worth, in their order.
    pub fn evaluate(
        &self,
        solver: &str,
        examples: &[&Example],
        method: Method,
        threads: usize,
    ) -> Result<Vec<Outcome>, PredictError> {
        Ok(self.model(solver)?.evaluate(examples, method, threads)?)
    }
}

/// A digest of examples that does not depend on their order.
fn digest(examples: &[Example]) -> String {
    let line = |e: &Example| {
        format!("{} {} {} {:?}", e.problem.solver, e.problem.device, e.problem.key, e.values)
    };
    let mut lines: Vec<String> = examples.iter().map(line).collect();
    lines.sort_unstable();
    blake3::hash(lines.join("\n").as_bytes()).to_hex().to_string()
}

/// The same for tasks.
fn task_digest(tasks: &[TunedTask]) -> String {
    let line = |l: &TunedTask| {
        let row = |r: &MeasuredCandidate| {
            format!("{} {} {} {:?}", l.problem.key, r.tunable, r.configuration, r.time)
        };
        l.rows.iter().map(row).collect::<Vec<_>>()
    };
    let mut lines: Vec<String> = tasks.iter().flat_map(line).collect();
    lines.sort_unstable();
    blake3::hash(lines.join("\n").as_bytes()).to_hex().to_string()
}
