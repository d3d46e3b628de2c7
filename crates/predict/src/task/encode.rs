//! Encodes tasks and candidates as numbers for the networks that rank candidates of Squall's own
//! tasks: a task's sizes, the compiler's features of a candidate's nest, and the knobs by name,
//! whatever sketch they belong to. [`Vocabulary`] learns the columns and their scales.

use super::TunedTask;
use serde::{Deserialize, Serialize};
use squall_core::forecast::Problem;
use squall_core::similarity::{heaviest_stage, loops};
use squall_core::space::Value;
use squall_core::{Configuration, TaskId, TaskShape, Workload, canonical_tunable_name};
use std::collections::BTreeSet;

/// Standardised numbers are kept within this of 0: a size far outside what was learned says
/// "large".
const MOST: f32 = 4.0;

/// A task as a problem. `solver` is the kind of kernel; numbers are the extents of the heaviest
/// stage's axes by their names in the workload (of a convolution `n k p q c r s`), `step_p` where
/// an axis is read in steps, `inputs` how many there are, `input` the elements of the first; words
/// are the loops' names and the format of the result. Nothing for a kernel of the user's own, of
/// which no loops are known.
pub fn problem(task: TaskId, w: &Workload, device: &str) -> Option<Problem> {
    let stage = heaviest_stage(w)?;
    let mut numbers: Vec<(String, i64)> =
        stage.all_axes().map(|a| (a.name.clone(), a.extent)).collect();
    for (i, axis) in stage.all_axes().enumerate() {
        let steps = stage
            .body
            .loads()
            .into_iter()
            .flat_map(|(_, index)| index.iter().flat_map(|a| a.terms().to_vec()));
        let step =
            steps.filter(|(v, _)| v.0 as usize == i).map(|(_, c)| c.abs()).max().unwrap_or(1);
        if step > 1 {
            numbers.push((format!("step_{}", axis.name), step));
        }
    }
    numbers.push(("inputs".into(), w.inputs.len() as i64));
    numbers.push(("input".into(), w.inputs.first().map_or(1, |i| i.shape.iter().product())));
    let words =
        vec![("loops".into(), loops(stage)), ("precision".into(), stage.dtype.name().into())];
    let key = task.to_string();
    Some(Problem {
        solver: w.kind.clone(),
        device: device.into(),
        words,
        numbers,
        layer: key.clone(),
        key,
    })
}

/// How unlike two tasks are, by the measure that transfer goes by. Nothing where they are of other
/// kinds, loops or formats, of which a network that learned one says nothing about the other.
pub(super) fn distance(a: &Problem, b: &Problem) -> Option<f64> {
    if a.solver != b.solver || a.words != b.words {
        return None;
    }
    TaskShape::of_problem(a)?.distance(&TaskShape::of_problem(b)?)
}

/// What the columns of a network's input mean, and how they are scaled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vocabulary {
    /// Numbers of tasks: kind and name.
    numbers: Vec<(String, String)>,
    /// Knobs with numbers.
    knobs: Vec<String>,
    /// Knobs with words, and the words.
    words: Vec<(String, String)>,
    /// Sketches.
    tunables: Vec<String>,
    /// How many features the compiler gives.
    features: usize,
    /// Mean and spread of all that is a number: those of tasks, knobs, features.
    scale: Vec<(f32, f32)>,
}

impl Vocabulary {
    pub fn new(tasks: &[&TunedTask]) -> Vocabulary {
        let rows = || tasks.iter().flat_map(|l| &l.rows);
        let numbers: BTreeSet<_> = tasks
            .iter()
            .flat_map(|l| {
                l.problem.numbers.iter().map(|(n, _)| (l.problem.solver.clone(), n.clone()))
            })
            .collect();
        let (mut knobs, mut words) = (BTreeSet::new(), BTreeSet::new());
        for (knob, value) in rows().flat_map(|r| r.configuration.iter()) {
            let _ = match value {
                Value::Int(_) => knobs.insert(knob.name.clone()),
                Value::Word(w) => words.insert((knob.name.clone(), w.clone())),
            };
        }
        let tunables: BTreeSet<_> = rows().map(|r| r.tunable.clone()).collect();
        let mut v = Vocabulary {
            numbers: numbers.into_iter().collect(),
            knobs: knobs.into_iter().collect(),
            words: words.into_iter().collect(),
            tunables: tunables.into_iter().collect(),
            features: rows().map(|r| r.features.len()).max().unwrap_or(0),
            scale: Vec::new(),
        };
        v.scale = v.scales(tasks);
        v
    }

    /// Columns of a network's input.
    pub fn inputs(&self) -> usize {
        self.numbers.len()
            + self.knobs.len()
            + self.features
            + self.words.len()
            + self.tunables.len()
    }

    /// Whether its parts fit together, as those of a file must.
    pub fn is_consistent(&self) -> bool {
        let scaled = self.numbers.len() + self.knobs.len() + self.features;
        self.inputs() < 1 << 14
            && self.scale.len() == scaled
            && self.scale.iter().all(|(m, s)| m.is_finite() && *s > 0.0 && s.is_finite())
    }

    /// How many features a candidate must have.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Of every number the mean and the spread; those of tasks count once a task, a knob only where
    /// it is.
    fn scales(&self, tasks: &[&TunedTask]) -> Vec<(f32, f32)> {
        let mut columns: Vec<Vec<f32>> =
            vec![Vec::new(); self.numbers.len() + self.knobs.len() + self.features];
        for l in tasks {
            for (c, x) in self.raw_numbers(&l.problem).into_iter().enumerate() {
                columns[c].extend(x);
            }
            for r in &l.rows {
                for (c, x) in self.raw_knobs(&r.configuration).into_iter().enumerate() {
                    columns[self.numbers.len() + c].extend(x);
                }
                for (c, &x) in r.features.iter().enumerate() {
                    columns[self.numbers.len() + self.knobs.len() + c].push(x);
                }
            }
        }
        let of = |c: Vec<f32>| {
            let n = c.len().max(1) as f32;
            let mean = c.iter().sum::<f32>() / n;
            let spread = (c.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / n).sqrt();
            // What never differs says nothing, and something new in it would say too much.
            (mean, if spread > 1e-3 { spread } else { 1e3 })
        };
        columns.into_iter().map(of).collect()
    }

    fn raw_numbers(&self, p: &Problem) -> Vec<Option<f32>> {
        let of = |(kind, name): &(String, String)| {
            Some(logarithm(p.number(name).filter(|_| *kind == p.solver)?))
        };
        self.numbers.iter().map(of).collect()
    }

    fn raw_knobs(&self, c: &Configuration) -> Vec<Option<f32>> {
        // What is a word now may have been a number when the vocabulary was made.
        let number = |k: &str| c.int(k).or_else(|| c.formerly(k)?.parse().ok());
        self.knobs.iter().map(|k| Some(logarithm(number(k)?))).collect()
    }

    /// Adds a candidate's row to a network's input.
    pub fn push(
        &self,
        p: &Problem,
        tunable: &str,
        c: &Configuration,
        features: &[f32],
        out: &mut Vec<f32>,
    ) {
        let start = out.len();
        let numbers = self
            .raw_numbers(p)
            .into_iter()
            .chain(self.raw_knobs(c))
            .chain(features.iter().map(|x| Some(*x)));
        // What a task or a sketch does not have stands at the mean.
        let scaled = numbers
            .zip(&self.scale)
            .map(|(x, (mean, spread))| x.map_or(0.0, |x| ((x - mean) / spread).clamp(-MOST, MOST)));
        out.extend(scaled);
        out.extend(
            self.words.iter().map(|(k, w)| f32::from(u8::from(c.word(k) == Some(w.as_str())))),
        );
        out.extend(
            self.tunables.iter().map(|t| f32::from(u8::from(canonical_tunable_name(t) == tunable))),
        );
        debug_assert_eq!(out.len() - start, self.inputs());
    }
}

fn logarithm(x: i64) -> f32 {
    (x.max(0) as f32 + 1.0).log2()
}
