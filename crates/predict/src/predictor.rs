//! A predictor: trained models of several solvers or of Squall's own tasks, and what it says of
//! itself.

use crate::checkpoint::Checkpoint;
use crate::metrics::{Outcome, negative_log_likelihood, precision_at};
use crate::parallel;
use crate::rows::{Kind, Rows};
use crate::solver::{Keeper, Material, Method, Options, Progress, Room, Solver, hashes};
use crate::task::{Lesson, TaskModel};
use crate::train::Epoch;
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Example, Family, FamilyError, Part, Problem, Split, fnv1a};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a predictor says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Info {
    /// Digest of the examples, in any order.
    pub data: String,
    /// Examples by solver, device and precision, counted by what they were used for.
    pub rows: Vec<RowCount>,
    /// How test rows were held out; none were where it is absent.
    pub split: Option<Split>,
    /// How it was trained.
    pub options: Options,
    /// Scores on the test rows.
    pub scores: Vec<Score>,
}

/// Examples of a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowCount {
    /// Whose.
    pub solver: String,
    /// On what.
    pub device: String,
    /// FP32, FP16, BF16.
    pub precision: String,
    /// Learned from.
    pub train: usize,
    /// For stopping and mixing; most networks of the default model learn them too.
    pub validation: usize,
    /// Held out.
    pub test: usize,
    /// Outside their tuner space, or of a problem that the family does not take: left out of
    /// training and validation.
    pub outside: usize,
}

/// Scores on a row's test problems.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// Whose.
    pub solver: String,
    /// On what.
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

/// What a predictor has of a solver.
#[derive(Debug)]
pub enum Model {
    /// The default model.
    Pair(Box<Solver>),
    /// Another, of each device and precision apart.
    Rows(Rows),
}

impl Model {
    /// Trains on a division of the examples of one's own, for folds and experiments. `None` where
    /// `go_on` said no.
    pub fn learn(
        material: &Material,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<Model>, FamilyError> {
        Model::resume(material, &mut Checkpoint::default(), &mut |_| (), go_on)
    }

    fn resume(
        material: &Material,
        checkpoint: &mut Checkpoint,
        keep: &mut dyn FnMut(&Checkpoint),
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<Model>, FamilyError> {
        let mut keeper = Keeper { checkpoint, keep, first: 0 };
        if material.options.model != Kind::Pair {
            return Ok(Rows::train(material, &mut keeper, go_on)?.map(Model::Rows));
        }
        let mut on = true;
        let mut ask = |p: &Progress| {
            on &= go_on(p);
            on
        };
        let solver = Solver::train(material, &mut keeper, &mut ask)?;
        Ok(solver.filter(|_| on).map(|s| Model::Pair(Box::new(s))))
    }

    fn keys(&mut self) -> &mut Vec<u64> {
        match self {
            Model::Pair(s) => &mut s.keys,
            Model::Rows(r) => &mut r.keys,
        }
    }

    /// Whose kernels it knows.
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
        room: &mut Room,
    ) -> Result<Vec<(Vec<i64>, f64)>, FamilyError> {
        match self {
            Model::Pair(s) => s.predict(problem, k, method, room),
            Model::Rows(r) => r.predict(problem, k, method, room),
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

/// Trained models of several solvers, or one of tasks, in one file.
#[derive(Debug)]
pub struct Predictor {
    models: Vec<Model>,
    tasks: Option<TaskModel>,
    info: Info,
}

/// A question that no predictor can answer.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum PredictError {
    #[error("this predictor was not trained for `{solver}`; it knows {known}")]
    Solver { solver: String, known: String },
    #[error("there is nothing to learn for {0}: no example of training lies in a tuner space")]
    Nothing(String),
    #[error(
        "the checkpoint belongs to a training with other examples, split or options: remove it to \
         begin anew"
    )]
    OtherTraining,
    #[error("training was cancelled")]
    Cancelled,
    #[error(
        "this predictor was trained for {0}, not on records of tasks: `squall train --records` \
         learns those of a store"
    )]
    NoTasks(String),
    #[error(
        "this predictor learned what is fast on `{learned}`, which says little about `{asked}`: \
         train one on records of this device"
    )]
    Device { learned: String, asked: String },
    #[error(
        "this predictor knows no task like this {kind}; it knows {known}, each with the loops and \
         formats of its records"
    )]
    Kind { kind: String, known: String },
    #[error(transparent)]
    Family(#[from] FamilyError),
}

impl Predictor {
    /// Trains a model of every family that has examples. `split` holds test rows out,
    /// and they are scored; without it all examples that are not for validation are learned.
    /// `progress` is told often, and ends training early by saying no.
    pub fn train(
        families: &[Arc<Family>],
        examples: &[Example],
        split: Option<Split>,
        options: &Options,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Predictor, PredictError> {
        Predictor::resume(
            families,
            examples,
            split,
            options,
            &mut Checkpoint::default(),
            &mut |_| (),
            progress,
        )
    }

    /// As [`Predictor::train`], going on from a checkpoint of the same training; `keep` is shown it
    /// after every epoch, to be saved.
    pub fn resume(
        families: &[Arc<Family>],
        examples: &[Example],
        split: Option<Split>,
        options: &Options,
        checkpoint: &mut Checkpoint,
        keep: &mut dyn FnMut(&Checkpoint),
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Predictor, PredictError> {
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
            let material =
                Material { family: family.clone(), examples: &known, part: &part, options };
            let model = Model::resume(&material, checkpoint, keep, &mut ask)?;
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

    /// Trains on tasks of a device. `progress` is told which network is trained, and ends training
    /// early by saying no.
    pub fn train_on_tasks(
        device: &str,
        lessons: &[Lesson],
        options: &Options,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Predictor, PredictError> {
        let model =
            TaskModel::train(device, lessons, options, progress)?.ok_or(PredictError::Cancelled)?;
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
            Info { data: task_digest(lessons), rows, options: options.clone(), ..Info::default() };
        Ok(Predictor::new(Vec::new(), Some(model), info))
    }

    pub(crate) fn new(models: Vec<Model>, tasks: Option<TaskModel>, info: Info) -> Predictor {
        Predictor { models, tasks, info }
    }

    /// What it has of tasks.
    ///
    /// # Errors
    /// Where it was trained for solvers.
    pub fn tasks(&self) -> Result<&TaskModel, PredictError> {
        let known = || self.models.iter().map(Model::solver).collect::<Vec<_>>().join(", ");
        self.tasks.as_ref().ok_or_else(|| PredictError::NoTasks(known()))
    }

    /// What it has of each solver.
    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// What it says of itself.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// What it has of one solver.
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
        Ok(self.model(&problem.solver)?.predict(problem, k, Method::Pair, &mut Room::default())?)
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
                .map(|k| (k, short(precision_at(k, &outcomes).value())))
                .to_vec(),
            negative_log_likelihood: short(negative_log_likelihood(&outcomes)),
        })
    };
    by_row(test).into_iter().map(one).collect()
}

/// So many digits that a file gives back the very number.
pub(crate) fn short(x: f64) -> f64 {
    (x * 1e9).round() / 1e9
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

/// The same of tasks.
fn task_digest(lessons: &[Lesson]) -> String {
    let line = |l: &Lesson| {
        let row = |r: &crate::task::Measured| {
            format!("{} {} {} {:?}", l.problem.key, r.tunable, r.configuration, r.time)
        };
        l.rows.iter().map(row).collect::<Vec<_>>()
    };
    let mut lines: Vec<String> = lessons.iter().flat_map(line).collect();
    lines.sort_unstable();
    blake3::hash(lines.join("\n").as_bytes()).to_hex().to_string()
}
