//! Evaluates predictors of tuned parameters on examples that were held out: P@k, the same by
//! kernel, likelihood, calibration and time, by solver, device and precision. Input: a predictor or
//! the options of a training, and examples; output: an [`Evaluation`] for `page.rs` and
//! `squall evaluate`.

use squall::Error;
use squall::forecast::{MODELS, families, kinds};
use squall_core::forecast::{Example, Family, Part, Problem, Split, fnv1a};
use squall_predict::metrics::{
    Outcome, Reliability, Share, calibration_error, kernel_precision_at, negative_log_likelihood,
    precision_at, reliability,
};
use squall_predict::{
    Epoch, Kind, Method, Model, Options, PredictError, Predictor, Scratch, TrainingData,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The ways in which the default model can answer, by name; the first is the default.
pub const METHODS: [(&str, Method); 5] = [
    ("pair", Method::Pair),
    ("ranker", Method::Ranker),
    ("chain", Method::Chain),
    ("neighbours", Method::Neighbours),
    ("frequency", Method::Frequency),
];

/// The numbers of candidates that P@k looks at.
pub const AT: [usize; 5] = [1, 10, 30, 50, 100];

/// The examples that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Examples that a split holds out.
    Held(Split),
    /// Examples of keys that training's data lack, on whatever device.
    Unseen,
}

/// The results of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// A line for each solver, device, precision and model.
    pub rows: Vec<RowReport>,
    /// Learning curves, by what was trained.
    pub curves: Vec<(String, Vec<Epoch>)>,
}

/// How a model does on the test problems of a solver, a device and a precision.
#[derive(Clone, Debug, PartialEq)]
pub struct RowReport {
    /// The model that was scored.
    pub solver: String,
    /// On what.
    pub device: String,
    /// FP32, FP16, BF16.
    pub precision: String,
    /// What answered.
    pub method: &'static str,
    /// Examples of this row that there are, held out or not.
    pub samples: usize,
    /// Shares of problems whose tuned vector is among the first [`AT`]; of several seeds the mean.
    pub at: Vec<Share>,
    /// Of several seeds, the standard deviation of those shares.
    pub spread: Option<Vec<f64>>,
    /// The same by kernel: vectors that compile to the same code count as one.
    pub kernel_at: Vec<Share>,
    /// Mean negative log-likelihood.
    pub negative_log_likelihood: f64,
    /// Mean difference between the probability given and the share that was right.
    pub calibration_error: f64,
    /// The reliability table.
    pub reliability: Vec<Reliability>,
}

/// Asks a predictor for examples that it did not learn from. `methods` are names of [`METHODS`],
/// for the default model; others answer in their one way.
pub fn evaluate(
    predictor: &Predictor,
    examples: &[Example],
    asked: Asked,
    methods: &[&'static str],
    threads: usize,
) -> Result<Evaluation, Error> {
    if let Asked::Held(split) = asked
        && predictor.info().split != Some(split)
    {
        let held = match predictor.info().split {
            Some(Split::Random) => "random",
            Some(Split::Layer) => "layer",
            None => "none",
        };
        let message = format!(
            "the predictor was trained with the split `{held}`: it learned from test rows of the \
             split that is asked for"
        );
        let hint = "evaluate with the split of training, with --rows unseen, or train again: \
                    squall train --split random|layer"
            .into();
        return Err(Error::Input { place: "--split".into(), message, hint });
    }
    let mut out = Evaluation::default();
    for model in predictor.models() {
        for (name, curve) in model.curves() {
            out.curves.push((format!("{} {name}", model.solver()), curve.to_vec()));
        }
    }
    let own = name_of(predictor.info().options.model);
    for (row, all) in rows(examples) {
        let Some(model) = predictor.models().iter().find(|m| m.solver() == row.solver) else {
            continue;
        };
        let test = asked_of(model, &all, asked);
        if test.is_empty() {
            continue;
        }
        let methods: Vec<_> = match model {
            Model::Pair(_) => METHODS.into_iter().filter(|(n, _)| methods.contains(n)).collect(),
            Model::Rows(_) => vec![(own, Method::Pair)],
        };
        for (name, method) in methods {
            let outcomes = model.evaluate(&test, method, threads).map_err(PredictError::from)?;
            out.rows.push(RowReport::new(row, name, all.len(), &[outcomes]));
        }
    }
    if out.rows.is_empty() {
        return Err(Error::Nothing("the store has no such row of this predictor's solvers".into()));
    }
    Ok(out)
}

fn asked_of<'a>(model: &Model, all: &[&'a Example], asked: Asked) -> Vec<&'a Example> {
    let is_asked = |p: &Problem| match asked {
        Asked::Held(split) => split.part(p) == Part::Test,
        Asked::Unseen => !model.has_seen(p),
    };
    all.iter()
        .filter(|e| is_asked(&e.problem) && model.family().instance(&e.problem).is_ok())
        .copied()
        .collect()
}

/// What a kind of model is called.
fn name_of(kind: Kind) -> &'static str {
    kinds().into_iter().find(|(_, k)| *k == kind).map_or("pair", |(n, _)| n)
}

/// How long predictions of a solver take, in milliseconds: each problem's best of three.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// The model that was scored.
    pub solver: String,
    /// Problems that were timed.
    pub problems: usize,
    /// The median time of the problems.
    pub median: f64,
    /// The time that nine in ten problems do not exceed.
    pub ninety: f64,
    /// The time of the slowest problem.
    pub worst: f64,
}

/// Times predictions of `k` configurations for the examples that are asked for, on one thread.
pub fn time(
    predictor: &Predictor,
    examples: &[Example],
    asked: Asked,
    k: usize,
) -> Result<Vec<Timing>, Error> {
    let mut out = Vec::new();
    for model in predictor.models() {
        let mine: Vec<&Example> =
            examples.iter().filter(|e| e.problem.solver == model.solver()).collect();
        let (mut scratch, mut all) = (Scratch::default(), Vec::new());
        for e in asked_of(model, &mine, asked) {
            let mut least = f64::INFINITY;
            for _ in 0..3 {
                let began = Instant::now();
                model
                    .predict(&e.problem, k, Method::Pair, &mut scratch)
                    .map_err(PredictError::from)?;
                least = least.min(1e3 * began.elapsed().as_secs_f64());
            }
            all.push(least);
        }
        all.sort_by(f64::total_cmp);
        if let Some(&worst) = all.last() {
            let (median, ninety) = (all[all.len() / 2], all[all.len() * 9 / 10]);
            out.push(Timing {
                solver: model.solver().into(),
                problems: all.len(),
                median,
                ninety,
                worst,
            });
        }
    }
    Ok(out)
}

/// How models are trained and scored here, without a predictor file.
#[derive(Clone, Debug)]
pub struct Study {
    /// Names of [`METHODS`] and [`MODELS`].
    pub models: Vec<&'static str>,
    /// What is held out, where there are no folds.
    pub split: Split,
    /// So many parts, each held out once; none for one held-out part, that of the split.
    pub folds: Option<u64>,
    /// One training each.
    pub seeds: Vec<u64>,
    /// The only device to learn from.
    pub learn_from: Option<String>,
    /// The only device to ask for.
    pub ask_for: Option<String>,
    /// Passes over the data, where not the default.
    pub epochs: Option<usize>,
    /// Threads.
    pub threads: usize,
}

impl Study {
    /// What a problem is for, when a fold is held out.
    fn part(&self, problem: &Problem, fold: u64) -> Part {
        let Some(folds) = self.folds else { return self.split.part(problem) };
        let held = match self.split {
            Split::Random => &problem.key,
            Split::Layer => &problem.layer,
        };
        // The hundreds: the split itself looks at the rest.
        match (fnv1a(held.as_bytes()) / 100 % folds == fold, self.split.part(problem)) {
            (true, _) => Part::Test,
            (false, Part::Validation) => Part::Validation,
            (false, _) => Part::Train,
        }
    }
}

/// What the results of a row are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row<'a> {
    pub solver: &'a str,
    pub device: &'a str,
    pub precision: &'a str,
}

/// Outcomes of a row and a model, a list for each seed.
type Found<'a> = BTreeMap<(Row<'a>, &'static str), Vec<Vec<Outcome>>>;

/// Trains models and scores them on what was held out. `go_on` is told what is being trained, again
/// and again, and ends all by saying no.
pub fn compare(
    examples: &[Example],
    study: &Study,
    go_on: &mut dyn FnMut(&str) -> bool,
) -> Result<Evaluation, Error> {
    let families = families(examples).map_err(PredictError::from)?;
    let mut comparison = Comparison { study, go_on, found: BTreeMap::new(), curves: Vec::new() };
    for family in &families {
        comparison.compare_on(family, examples)?;
    }
    let order = |name: &str| {
        METHODS.iter().map(|m| m.0).chain(MODELS.iter().map(|m| m.0)).position(|n| n == name)
    };
    let (all_rows, curves) = (rows(examples), comparison.curves);
    let report = |((row, name), seeds): (&(Row, &'static str), &Vec<Vec<Outcome>>)| {
        RowReport::new(*row, name, all_rows[row].len(), seeds)
    };
    let mut rows: Vec<RowReport> = comparison.found.iter().map(report).collect();
    rows.sort_by_key(|r| {
        (
            r.solver.clone(),
            r.device.clone(),
            std::cmp::Reverse(r.precision.clone()),
            order(r.method),
        )
    });
    if rows.is_empty() {
        return Err(Error::Nothing(
            "the store has no row with both training and test problems".into(),
        ));
    }
    Ok(Evaluation { rows, curves })
}

/// A comparison on its way.
struct Comparison<'a, 'e> {
    study: &'a Study,
    go_on: &'a mut dyn FnMut(&str) -> bool,
    found: Found<'e>,
    curves: Vec<(String, Vec<Epoch>)>,
}

/// One training: of a solver's models, with a seed, on what a fold leaves.
struct Cell<'c, 'e> {
    family: &'c Arc<Family>,
    learned: Vec<&'e Example>,
    test: BTreeMap<Row<'e>, Vec<&'e Example>>,
    /// The seed and its place.
    seed: (usize, u64),
    fold: u64,
}

impl<'e> Comparison<'_, 'e> {
    /// All trainings of a solver.
    fn compare_on(&mut self, family: &Arc<Family>, examples: &'e [Example]) -> Result<(), Error> {
        let study = self.study;
        let mine: Vec<&Example> =
            examples.iter().filter(|e| e.problem.solver == family.solver()).collect();
        let of = |e: &Example, device: &Option<String>| {
            device.as_ref().is_none_or(|d| *d == e.problem.device)
        };
        let inside =
            |e: &Example| family.instance(&e.problem).is_ok_and(|i| i.is_candidate(&e.values));
        let learned: Vec<&Example> =
            mine.iter().filter(|e| of(e, &study.learn_from) && inside(e)).copied().collect();
        let test: Vec<&Example> = mine
            .iter()
            .filter(|e| of(e, &study.ask_for) && family.instance(&e.problem).is_ok())
            .copied()
            .collect();
        for (s, &seed) in study.seeds.iter().enumerate() {
            for fold in 0..study.folds.unwrap_or(1) {
                let part = |e: &Example| study.part(&e.problem, fold);
                let test: Vec<&Example> =
                    test.iter().filter(|e| part(e) == Part::Test).copied().collect();
                let learned: Vec<&Example> =
                    learned.iter().filter(|e| part(e) != Part::Test).copied().collect();
                if test.is_empty() || !learned.iter().any(|e| part(e) == Part::Train) {
                    continue;
                }
                let test = by_row(&test);
                self.compare_in(&Cell { family, learned, test, seed: (s, seed), fold })?;
            }
        }
        Ok(())
    }

    /// All models that are asked for.
    fn compare_in(&mut self, cell: &Cell<'_, 'e>) -> Result<(), Error> {
        let models = &self.study.models;
        let methods: Vec<_> = METHODS.into_iter().filter(|(n, _)| models.contains(n)).collect();
        if !methods.is_empty() {
            // What asks no network needs none.
            let quick =
                methods.iter().all(|(_, m)| matches!(m, Method::Frequency | Method::Neighbours));
            let model = if quick {
                self.train(cell, Kind::Neighbours, "neighbours")?
            } else {
                self.train(cell, Kind::Pair, "pair")?
            };
            self.keep_curves(cell, &model, "pair");
            for (name, method) in methods {
                self.score(cell, &model, method, name)?;
            }
        }
        for (name, kind) in MODELS.into_iter().filter(|(n, _)| models.contains(n)) {
            let model = self.train(cell, kind, name)?;
            self.keep_curves(cell, &model, name);
            self.score(cell, &model, Method::Pair, name)?;
        }
        Ok(())
    }

    fn train(&mut self, cell: &Cell, kind: Kind, name: &str) -> Result<Model, Error> {
        let (study, seed) = (self.study, cell.seed.1);
        let mut options = Options { seed, threads: study.threads, ..Options::of(kind) };
        options.epochs = study.epochs.map_or(options.epochs, |n| (n, n));
        let what = format!(
            "{}, {name}, seed {seed}{}",
            cell.family.solver(),
            study.folds.map_or(String::new(), |_| format!(", fold {}", cell.fold + 1))
        );
        let part = |p: &Problem| study.part(p, cell.fold);
        let data = TrainingData {
            family: cell.family.clone(),
            examples: &cell.learned,
            part: &part,
            options: &options,
        };
        let model = Model::learn(&data, &mut |p| {
            let (done, all) = (p.epochs.0 as f64 + p.within, p.epochs.1);
            (self.go_on)(&format!(
                "{what}: {} {} of {}, epoch {done:.0} of {all}",
                p.network,
                p.member.0 + 1,
                p.member.1
            ))
        });
        model.map_err(PredictError::from)?.ok_or_else(|| PredictError::Cancelled.into())
    }

    fn score(
        &mut self,
        cell: &Cell<'_, 'e>,
        model: &Model,
        method: Method,
        name: &'static str,
    ) -> Result<(), Error> {
        for (row, examples) in &cell.test {
            let outcomes =
                model.evaluate(examples, method, self.study.threads).map_err(PredictError::from)?;
            let (s, seeds) = (cell.seed.0, self.found.entry((*row, name)).or_default());
            seeds.resize_with(s + 1, Vec::new);
            seeds[s].extend(outcomes);
        }
        Ok(())
    }

    /// Keeps how the first training went.
    fn keep_curves(&mut self, cell: &Cell, model: &Model, name: &str) {
        if cell.seed.0 == 0 && cell.fold == 0 {
            let named = |(network, curve): (String, &[Epoch])| {
                (format!("{} {name} {network}", cell.family.solver()), curve.to_vec())
            };
            self.curves.extend(model.curves().into_iter().map(named));
        }
    }
}

/// Examples by row.
fn rows(examples: &[Example]) -> BTreeMap<Row<'_>, Vec<&Example>> {
    by_row(&examples.iter().collect::<Vec<_>>())
}

fn by_row<'a>(examples: &[&'a Example]) -> BTreeMap<Row<'a>, Vec<&'a Example>> {
    let mut rows: BTreeMap<Row, Vec<&Example>> = BTreeMap::new();
    for e in examples {
        let p = &e.problem;
        let (solver, device) = (p.solver.as_str(), p.device.as_str());
        let row = Row { solver, device, precision: p.word("precision").unwrap_or("") };
        rows.entry(row).or_default().push(e);
    }
    rows
}

impl RowReport {
    /// What it is of.
    pub(super) fn row(&self) -> Row<'_> {
        Row { solver: &self.solver, device: &self.device, precision: &self.precision }
    }

    /// Of outcomes in a list for each seed.
    fn new(row: Row, method: &'static str, samples: usize, seeds: &[Vec<Outcome>]) -> RowReport {
        let n = seeds.len().max(1);
        let mean = |shares: Vec<Share>| {
            let hits: usize = shares.iter().map(|s| s.hits).sum();
            Share { hits: (hits + n / 2) / n, of: shares.iter().map(|s| s.of).sum::<usize>() / n }
        };
        let over =
            |f: &dyn Fn(&[Outcome]) -> f64| seeds.iter().map(|o| f(o)).sum::<f64>() / n as f64;
        let deviation = |k: usize| {
            let values: Vec<f64> = seeds.iter().map(|o| precision_at(k, o).value()).collect();
            let mean = values.iter().sum::<f64>() / n as f64;
            (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64).sqrt()
        };
        RowReport {
            solver: row.solver.into(),
            device: row.device.into(),
            precision: row.precision.into(),
            method,
            samples,
            at: AT
                .iter()
                .map(|&k| mean(seeds.iter().map(|o| precision_at(k, o)).collect()))
                .collect(),
            spread: (n > 1).then(|| AT.iter().map(|&k| deviation(k)).collect()),
            kernel_at: AT
                .iter()
                .map(|&k| mean(seeds.iter().map(|o| kernel_precision_at(k, o)).collect()))
                .collect(),
            negative_log_likelihood: over(&negative_log_likelihood),
            calibration_error: over(&calibration_error),
            reliability: reliability(&seeds.concat()),
        }
    }
}

/// Reliability tables of several rows as one.
pub fn pooled<'a>(rows: impl Iterator<Item = &'a RowReport>) -> Vec<Reliability> {
    let mut lines: Vec<Reliability> = Vec::new();
    for l in rows.flat_map(|r| &r.reliability) {
        match lines.iter_mut().find(|m| m.from == l.from) {
            Some(m) => {
                let (a, b) = (m.observed.of as f64, l.observed.of as f64);
                m.predicted = (a * m.predicted + b * l.predicted) / (a + b);
                m.observed.hits += l.observed.hits;
                m.observed.of += l.observed.of;
            }
            None => lines.push(*l),
        }
    }
    lines.sort_by(|a, b| a.from.total_cmp(&b.from));
    lines
}
