//! Reads spaces that were measured with other tools into a [`Recording`] (every configuration with
//! its outcome), on which searches can be replayed without a device, and writes recordings again.
//! Kernel Tuner's cache files and T4 results become recordings, T1 files a [`Description`] of a
//! space. Files may be plain or gzipped; a cache that was interrupted while it was written is
//! closed first, as its readers are expected to.

mod description;
mod kernel_tuner;
mod t4;
#[cfg(test)]
mod tests;
mod whole;
mod write;

pub use description::{Description, read_space};
pub use write::{Format, gzip, write};

use crate::error::{ImportError, shown};
use crate::packed::Packing;
use flate2::read::MultiGzDecoder;
use serde_json::Value as Json;
use squall_core::space::{Knob, Neighbourhood, Role, Space, Value, escaped};
use squall_core::{CpuCost, FailStage, Measurement, Nanos, Outcome};
use std::collections::HashMap;
use std::io::Read;
use whole::{Whole, whole};

/// A space with the outcome of every one of its configurations.
#[derive(Debug)]
pub struct Recording {
    /// The kernel's name, as the file has it.
    pub kernel: String,
    /// The device, as the file has it; may be empty.
    pub device: String,
    /// The problem's sizes as JSON, `null` where the file does not say.
    pub problem: String,
    /// The field that was optimised.
    pub objective: String,
    /// Whether more of it is better. Times of the rows then stand for its inverse.
    pub maximised: bool,
    /// Conditions of a T1 description; where there are none, the configurations in the file are the
    /// legal ones.
    pub conditions: Vec<String>,
    /// The configurations in the file: those that are missing broke a constraint.
    pub space: Space,
    /// One for each configuration, in the space's order.
    pub rows: Vec<Row>,
    /// What of the file could not be read, for the user.
    pub note: Option<String>,
}

/// The outcome of one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The values in the file's order, joined by commas: the name that other programs use.
    pub key: String,
    /// A single sample: the objective as the file has it.
    pub outcome: Outcome,
    /// Seconds spent compiling, and on running and checking.
    pub cost: CpuCost,
}

impl Recording {
    /// The least time of all.
    pub fn optimum(&self) -> Option<Nanos> {
        self.rows.iter().filter_map(|r| r.outcome.time()).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// A recording of some configurations, each given by its values' spellings in the order of
    /// `knobs`. `name` is for messages.
    pub fn new(
        name: &str,
        description: Description,
        device: &str,
        trials: Vec<(Vec<String>, Outcome, CpuCost)>,
    ) -> Result<Recording, ImportError> {
        let Description { kernel, problem, objective, knobs, conditions } = description;
        let at: Vec<HashMap<String, u16>> = knobs
            .iter()
            .map(|k| k.values.iter().map(Value::to_string).zip(0..).collect())
            .collect();
        let mut rows = Vec::with_capacity(trials.len());
        for (values, outcome, cost) in trials {
            let key = values.join(",");
            let point = point(values.iter().map(String::as_str), &at)
                .map_err(|why| fault(name, format!("`{}` {why}", shown(&key)), "mend it"))?;
            rows.push((point, Row { key, outcome, cost }));
        }
        let (space, rows) = listed(name, knobs, rows)?;
        let maximised = is_maximised(&objective);
        Ok(Recording {
            kernel,
            device: device.into(),
            problem,
            maximised,
            objective,
            conditions,
            space,
            rows,
            note: None,
        })
    }

    /// The description of its space.
    pub fn description(&self) -> Description {
        let (kernel, problem, objective) =
            (self.kernel.clone(), self.problem.clone(), self.objective.clone());
        Description {
            kernel,
            problem,
            objective,
            knobs: self.space.knobs().to_vec(),
            conditions: self.conditions.clone(),
        }
    }

    /// Whether a T1 description has the same parameters.
    pub fn fits(&self, t1: &Description) -> bool {
        let names = |knobs: &[Knob]| {
            let mut n: Vec<String> = knobs.iter().map(|k| k.name.clone()).collect();
            n.sort();
            n
        };
        names(self.space.knobs()) == names(&t1.knobs)
    }

    /// The same measurements under a T1 description of their space, which then says the order and
    /// the values of the parameters. Every configuration must be legal there; `name` is for
    /// messages.
    pub fn described(self, name: &str, t1: &Description) -> Result<Recording, ImportError> {
        let legal = t1.space(name)?;
        let from: Vec<Option<usize>> = t1.knobs.iter().map(|k| self.space.knob(&k.name)).collect();
        let mut trials = Vec::with_capacity(self.rows.len());
        for (c, row) in self.space.iter().zip(self.rows) {
            let values: Vec<String> =
                from.iter().map(|k| k.map_or(String::new(), |k| c.value(k).to_string())).collect();
            let text: Vec<String> = t1
                .knobs
                .iter()
                .zip(&values)
                .map(|(k, v)| format!("{}={}", k.name, escaped(v)))
                .collect();
            if let Err(e) = legal.parse(&text.join(",")) {
                return Err(fault(
                    name,
                    format!("the T1 description does not allow what was measured: {e}"),
                    "give the T1 file of this very space",
                ));
            }
            trials.push((values, row.outcome, row.cost));
        }
        let known = |mine: String, theirs: &str, none: &str| {
            if mine == none { theirs.into() } else { mine }
        };
        let description = Description {
            kernel: known(self.kernel, &t1.kernel, ""),
            problem: known(self.problem, &t1.problem, "null"),
            objective: self.objective,
            ..t1.clone()
        };
        let described = Recording::new(name, description, &self.device, trials)?;
        Ok(Recording { note: self.note, ..described })
    }
}

/// A file of the tuning community.
pub enum File {
    /// Measured configurations.
    Recording(Recording),
    /// A space without measurements.
    Description(Description),
}

const REMEDY: &str = "give a Kernel Tuner cache file or T4 results";

/// Reads a Kernel Tuner cache file, T4 results or a T1 description, told apart by what is in them.
/// `name` is for messages.
pub fn read_any(name: &str, bytes: &[u8]) -> Result<File, ImportError> {
    let Whole { text, note } = text(name, bytes)?;
    let noted = |r| File::Recording(Recording { note, ..r });
    match kernel_tuner::head(&text) {
        Ok(h) if h.is_cache => kernel_tuner::read(name, &text, h).map(noted),
        Ok(h) if h.is_results => t4::read(name, &text).map(File::Recording),
        Ok(h) if h.is_description => Description::parse(name, &text).map(File::Description),
        Ok(_) => Err(fault(name, "this is JSON without `cache` or `results`", REMEDY)),
        Err(e) => Err(fault(name, format!("this is not readable as JSON: {e}"), REMEDY)),
    }
}

/// Reads a Kernel Tuner cache file or T4 results. `name` is for messages.
pub fn read(name: &str, bytes: &[u8]) -> Result<Recording, ImportError> {
    match read_any(name, bytes)? {
        File::Recording(r) => Ok(r),
        File::Description(_) => {
            Err(fault(name, "this describes a space (T1) but holds no measurements", REMEDY))
        }
    }
}

/// Whether the first bytes of a file, packed by gzip or not, are those of JSON.
pub fn begins_json(head: &[u8]) -> bool {
    let mut first = [0; 256];
    let mut plain: Box<dyn Read> = if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(MultiGzDecoder::new(head))
    } else {
        Box::new(head)
    };
    let n = plain.read(&mut first).unwrap_or(0);
    first[..n].iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
}

fn fault(name: &str, what: impl Into<String>, remedy: impl Into<String>) -> ImportError {
    ImportError::Recording { name: name.into(), what: what.into(), remedy: remedy.into() }
}

/// The text of a file: unpacked, completed where it was interrupted, and without words that JSON
/// does not have.
fn text(name: &str, bytes: &[u8]) -> Result<Whole, ImportError> {
    let unpacked;
    let bytes = match Packing::of(bytes).filter(|p| *p == Packing::Gzip) {
        Some(packing) => {
            unpacked = packing.unpack(bytes).map_err(|(what, remedy)| fault(name, what, remedy))?;
            &unpacked
        }
        None => bytes,
    };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        // The last letter may be cut, too.
        Err(e) if e.error_len().is_none() && e.valid_up_to() > 0 => {
            std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => {
            return Err(fault(
                name,
                "this is neither gzip nor UTF-8 text",
                "give a JSON file, plain or gzipped",
            ));
        }
    };
    whole(text).map_err(|what| fault(name, what, "give one whole document in each file"))
}

/// A value as Python prints it, which is how keys spell it.
fn spelling(v: &Json) -> String {
    match v {
        Json::Bool(true) => "True".into(),
        Json::Bool(false) => "False".into(),
        Json::Null => "None".into(),
        Json::String(s) => s.clone(),
        Json::Number(n) => n.to_string(),
        other => other.to_string(),
    }
}

/// A value as JSON has it, by how it is spelled.
fn json_of(v: &Value) -> Json {
    match v {
        Value::Int(i) => (*i).into(),
        Value::Word(w) => unspelled(w),
    }
}

/// The JSON value of a spelling; the inverse of [`spelling`].
fn unspelled(word: &str) -> Json {
    match word {
        "True" => true.into(),
        "False" => false.into(),
        "None" => Json::Null,
        w => match w.parse::<serde_json::Number>() {
            Ok(n) if n.to_string() == w => n.into(),
            _ => w.into(),
        },
    }
}

/// A parameter over values that are known by their spellings alone, in any order.
pub fn knob_of_spellings(name: &str, spellings: &[String]) -> Knob {
    let values: Vec<Json> = spellings.iter().map(|s| unspelled(s)).collect();
    knob(name, &values).0
}

/// The positions of a configuration's values.
fn point<'a>(
    values: impl ExactSizeIterator<Item = &'a str>,
    positions: &[HashMap<String, u16>],
) -> Result<Box<[u16]>, String> {
    if values.len() != positions.len() {
        return Err(format!("has {} values for {} parameters", values.len(), positions.len()));
    }
    let at = |(v, at): (&str, &HashMap<String, u16>)| {
        at.get(v).copied().ok_or_else(|| {
            format!("has the value `{}`, which its parameter does not list", shown(v))
        })
    };
    values.zip(positions).map(at).collect()
}

/// A knob over the values of one parameter, with the position of each spelling.
fn knob(name: &str, values: &[Json]) -> (Knob, HashMap<String, u16>) {
    let number = |v: &Json| v.as_f64().or(v.as_bool().map(|b| f64::from(u8::from(b))));
    let mut values: Vec<&Json> = values.iter().collect();
    // Numbers ascend, fractions too; anything else keeps the file's order.
    let is_scale = values.iter().all(|v| number(v).is_some());
    if is_scale {
        values.sort_by(|a, b| number(a).unwrap_or(0.0).total_cmp(&number(b).unwrap_or(0.0)));
    }
    let mut spellings: Vec<String> = Vec::new();
    let mut at = HashMap::new();
    for v in &values {
        let s = spelling(v);
        if !at.contains_key(&s) {
            at.insert(s.clone(), spellings.len().min(u16::MAX as usize) as u16);
            spellings.push(s);
        }
    }
    let whole: Option<Vec<i64>> = spellings.iter().map(|s| s.parse().ok()).collect();
    let ascending = |w: &Vec<i64>| w.windows(2).all(|w| w[0] < w[1]);
    let values = match whole.filter(ascending) {
        Some(w) => w.into_iter().map(Value::Int).collect(),
        None => spellings.into_iter().map(Value::Word).collect(),
    };
    let mut knob = Knob::new(name, Role::Choice, values);
    if is_scale {
        knob.neighbourhood = Neighbourhood::Scale;
    }
    (knob, at)
}

/// The outcome that a value of the objective stands for: a time, or a failure where it is unusable.
fn outcome_of(value: Option<f64>, maximised: bool) -> Outcome {
    // Very old files have 1e20 for a failure.
    match value.filter(|v| v.is_finite() && *v > 0.0 && *v != 1e20) {
        Some(v) => {
            let time = if maximised { 1e9 / v } else { v * 1e6 };
            Outcome::Measured(Measurement {
                samples: vec![Nanos(time)],
                calls: 1,
                error: 0.0,
                gpu: None,
                pace: None,
            })
        }
        None => failed(FailStage::Launch, "no usable time"),
    }
}

fn failed(stage: FailStage, detail: &str) -> Outcome {
    Outcome::Failed { stage, detail: cleaned(detail) }
}

/// The text of a failure without control characters other than line breaks, and cut to 4000
/// characters. A text that is already so stays as it is.
fn cleaned(detail: &str) -> String {
    detail.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).take(4000).collect()
}

/// The outcome that a word of Kernel Tuner stands for.
fn failure(word: &str) -> Outcome {
    match word {
        "CompilationFailedConfig" => failed(FailStage::Build, word),
        "RuntimeFailedConfig" => failed(FailStage::Launch, word),
        "InvalidConfig" => Outcome::Infeasible(word.into()),
        other => failed(FailStage::Launch, other),
    }
}

/// Times go down, anything else (GFLOP/s, GB/s) goes up.
fn is_maximised(objective: &str) -> bool {
    !objective.to_lowercase().contains("time")
}

/// A space of listed points with their rows in its order.
fn listed(
    name: &str,
    knobs: Vec<Knob>,
    mut rows: Vec<(Box<[u16]>, Row)>,
) -> Result<(Space, Vec<Row>), ImportError> {
    if rows.is_empty() {
        return Err(fault(
            name,
            "not one configuration is in it",
            "give a file of measured configurations",
        ));
    }
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    if let Some(w) = rows.windows(2).find(|w| w[0].0 == w[1].0) {
        let what = format!("the configuration `{}` is in it twice", shown(&w[0].1.key));
        return Err(fault(name, what, "keep one of the two"));
    }
    let (points, rows): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let space =
        Space::listed(knobs, points).map_err(|e| fault(name, e.to_string(), "mend the file"))?;
    Ok((space, rows))
}
