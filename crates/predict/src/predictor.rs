//! A predictor: trained models of several solvers or of Squall's own tasks, and the description
//! that it carries of itself.

use crate::checkpoint::Checkpoint;
use crate::error::PredictError;
use crate::metrics::{Outcome, negative_log_likelihood, precision_at, rounded};
use crate::options::{Kind, Method, Options};
use crate::parallel;
use crate::rows::RowModels;
use crate::solver::{Scratch, Solver};
use crate::task::{MeasuredCandidate, TaskModel, TunedTask};
use crate::train::Epoch;
use crate::trainer::{Progress, Trainer, TrainingData, hashes};
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Example, Family, FamilyError, Part, Problem, Split, fnv1a};
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
    /// How test rows were held out; absent where none were.
    pub split: Option<Split>,
    /// How it was trained.
    pub options: Options,
    /// Scores on the test rows.
    pub scores: Vec<Score>,
}

/// The number of examples of a row: of one solver on one device in one precision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowCount {
    /// The solver.
    pub solver: String,
    /// The device.
    pub device: String,
    /// FP32, FP16, BF16.
    pub precision: String,
    /// Examples that were learned from.
    pub train: usize,
    /// Examples for stopping and mixing; most networks of the default model learn them too.
    pub validation: usize,
    /// HeldOut out.
    pub test: usize,
    /// Examples outside their tuner space, or of a problem that the family does not take; they
    /// were left out of training and validation.
    pub outside: usize,
}

/// Scores on a row's test problems.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// The solver.
    pub solver: String,
    /// The device.
    pub device: String,
    /// FP32, FP16, BF16.
    pub precision: String,
    /// Test problems.
    pub problems: usize,
    /// P@1, P@10, P@30, P@50, P@100: shares, 0 to 1.
    pub precision_at: Vec<(usize, f64)>,
    /// Mean negative log-likelihood.
    pub negative_log_likelihood: f64,
}

/// The trained model of one solver.
#[derive(Debug)]
pub enum Model {
    /// The default model.
    Pair(Box<Solver>),
    /// Another, one for each device and precision.
    Rows(RowModels),
}

impl Model {
    /// Trains on the caller's own division of the examples, for folds and experiments. `None` where
    /// `go_on` returned false.
    pub fn learn(
        data: &TrainingData,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<Model>, FamilyError> {
        Model::resume(data, &mut Checkpoint::default(), &mut |_| (), go_on)
    }

    fn resume(
        data: &TrainingData,
        checkpoint: &mut Checkpoint,
        keep: &mut dyn FnMut(&Checkpoint),
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<Model>, FamilyError> {
        let mut trainer = Trainer { checkpoint, keep, first: 0 };
        if data.options.model != Kind::Pair {
            return Ok(RowModels::train(data, &mut trainer, go_on)?.map(Model::Rows));
        }
        let mut on = true;
        let mut ask = |p: &Progress| {
            on &= go_on(p);
            on
        };
        let solver = Solver::train(data, &mut trainer, &mut ask)?;
        Ok(solver.filter(|_| on).map(|s| Model::Pair(Box::new(s))))
    }

    fn keys(&mut self) -> &mut Vec<u64> {
        match self {
            Model::Pair(s) => &mut s.keys,
            Model::Rows(r) => &mut r.keys,
        }
    }

    /// The name of the solver.
    pub fn solver(&self) -> &str {
        self.family().solver()
    }

    /// The family that it was trained with.
    pub fn family(&self) -> &Family {
        match self {
            Model::Pair(s) => s.family(),
            Model::Rows(r) => &r.family,
        }
    }

    /// Whether a key was among the examples when it was trained, held out or not.
    pub fn has_seen(&self, key: &str) -> bool {
        let keys = match self {
            Model::Pair(s) => &s.keys,
            Model::Rows(r) => &r.keys,
        };
        keys.binary_search(&fnv1a(key.as_bytes())).is_ok()
    }

    /// The epochs of each network, by what it is called.
    pub fn curves(&self) -> Vec<(String, &[Epoch])> {
        match self {
            Model::Pair(s) => {
                let all = [("ranker", &s.curves.ranker), ("chain", &s.curves.chain)];
                all.into_iter()
                    .flat_map(|(n, v)| {
                        v.iter().enumerate().map(move |(i, c)| (format!("{n} {}", i + 1), &c[..]))
                    })
                    .collect()
            }
            Model::Rows(r) => {
                let all = r.rows.iter().filter(|row| !row.model.curve().is_empty());
                all.map(|row| (format!("{} {}", row.device, row.precision), row.model.curve()))
                    .collect()
            }
        }
    }

    /// The k most probable configurations of a problem's tuner space, best first, with their
    /// probabilities; fewer where the space is smaller, none where nothing is legal. `method` is
    /// for the default model, which can answer in several ways.
    pub fn predict(
        &self,
        problem: &Problem,
        k: usize,
        method: Method,
        scratch: &mut Scratch,
    ) -> Result<Vec<(Vec<i64>, f64)>, FamilyError> {
        match self {
            Model::Pair(s) => s.predict(problem, k, method, scratch),
            Model::Rows(r) => r.predict(problem, k, method, scratch),
        }
    }

    /// What predictions for examples with known answers are worth, in their order.
    pub fn evaluate(
        &self,
        examples: &[&Example],
        method: Method,
        threads: usize,
    ) -> Result<Vec<Outcome>, FamilyError> {
        match self {
            Model::Pair(s) => s.evaluate(examples, method, threads),
            Model::Rows(r) => r.evaluate(examples, method, threads),
        }
    }
}

/// Trained models of several solvers, or one model of tasks, in one file.
#[derive(Debug)]
pub struct Predictor {
    models: Vec<Model>,
    tasks: Option<TaskModel>,
    info: Info,
}

/// What a predictor is trained on, and how.
#[derive(Clone, Copy)]
pub struct TrainingRequest<'a> {
    /// The families; one without examples is passed over.
    pub families: &'a [Arc<Family>],
    /// Problems of all families with the values that tuning found.
    pub examples: &'a [Example],
    /// How test rows are held out; they are scored. Without it all examples that are not for
    /// validation are learned.
    pub split: Option<Split>,
    /// What is trained, and how.
    pub options: &'a Options,
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
        let TrainingRequest { families, examples, split, options } = request;
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
        let mut models = Vec::new();
        for family in families {
            let mine: Vec<&Example> =
                examples.iter().filter(|e| e.problem.solver == family.solver()).collect();
            if mine.is_empty() {
                continue;
            }
            let inside =
                parallel::map(options.threads, &mine, |e, _: &mut ()| is_inside(family, e));
            info.rows.extend(count(&mine, &inside, &part));
            let known: Vec<&Example> =
                mine.iter().zip(&inside).filter(|(_, i)| **i).map(|(e, _)| *e).collect();
            if !known.iter().any(|e| part(&e.problem) == Part::Train) {
                return Err(PredictError::Nothing(family.solver().to_owned()));
            }
            let mut cancelled = false;
            let mut ask = |p: &Progress| {
                cancelled |= !progress(p);
                !cancelled
            };
            let data =
                TrainingData { family: family.clone(), examples: &known, part: &part, options };
            let model = Model::resume(&data, checkpoint, keep, &mut ask)?;
            let Some(mut model) = model.filter(|_| !cancelled) else {
                return Err(PredictError::Cancelled);
            };
            *model.keys() = hashes(&mine);
            let taken = |e: &&&Example| family.instance(&e.problem).is_ok();
            let test: Vec<&Example> = mine
                .iter()
                .filter(|e| part(&e.problem) == Part::Test)
                .filter(taken)
                .copied()
                .collect();
            info.scores.extend(scores(&model, &test, options.threads)?);
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

fn is_inside(family: &Family, e: &Example) -> bool {
    family.instance(&e.problem).is_ok_and(|i| i.is_candidate(&e.values))
}

/// Names of a row: device and precision.
fn row(p: &Problem) -> (&str, &str) {
    (&p.device, p.word("precision").unwrap_or(""))
}

fn by_row<'a>(examples: &[&'a Example]) -> BTreeMap<(&'a str, &'a str), Vec<&'a Example>> {
    let mut out: BTreeMap<_, Vec<&Example>> = BTreeMap::new();
    for e in examples {
        out.entry(row(&e.problem)).or_default().push(e);
    }
    out
}

fn count(examples: &[&Example], inside: &[bool], part: &dyn Fn(&Problem) -> Part) -> Vec<RowCount> {
    let mut out: BTreeMap<(&str, &str), RowCount> = BTreeMap::new();
    for (e, inside) in examples.iter().zip(inside) {
        let (device, precision) = row(&e.problem);
        let c = out.entry((device, precision)).or_insert_with(|| RowCount {
            solver: e.problem.solver.clone(),
            device: device.into(),
            precision: precision.into(),
            ..RowCount::default()
        });
        match part(&e.problem) {
            Part::Test => c.test += 1,
            _ if !inside => c.outside += 1,
            Part::Train => c.train += 1,
            Part::Validation => c.validation += 1,
        }
    }
    out.into_values().collect()
}

fn scores(model: &Model, test: &[&Example], threads: usize) -> Result<Vec<Score>, FamilyError> {
    let one = |((device, precision), examples): (_, Vec<&Example>)| {
        let outcomes = model.evaluate(&examples, Method::Pair, threads)?;
        Ok(Score {
            solver: model.solver().into(),
            device: String::from(device),
            precision: String::from(precision),
            problems: outcomes.len(),
            precision_at: [1, 10, 30, 50, 100]
                .map(|k| (k, rounded(precision_at(k, &outcomes).value())))
                .to_vec(),
            negative_log_likelihood: rounded(negative_log_likelihood(&outcomes)),
        })
    };
    by_row(test).into_iter().map(one).collect()
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
