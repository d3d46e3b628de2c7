//! Reads the files of `benches/runs/`, JSON results of benchmarks, with errors that name the file
//! and the place in it. The files of this folder that make tables take their numbers from a
//! [`RunValue`], for example `run.part().list("scores")`.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of run files.
pub struct Runs {
    folder: PathBuf,
}

impl Runs {
    pub fn of(root: &Path) -> Runs {
        Runs { folder: root.join("benches/runs") }
    }

    /// The text of a run file that is not JSON.
    pub fn text(&self, name: &str) -> Result<String, String> {
        fs::read_to_string(self.folder.join(name)).map_err(|e| format!("{name}: {e}"))
    }

    pub fn open(&self, name: &str) -> Result<Run, String> {
        let value = serde_json::from_str(&self.text(name)?).map_err(|e| format!("{name}: {e}"))?;
        Ok(Run { name: name.to_string(), value })
    }
}

/// One run file.
pub struct Run {
    name: String,
    value: Value,
}

impl Run {
    pub fn part(&self) -> RunValue<'_> {
        RunValue { place: self.name.clone(), value: &self.value }
    }
}

/// A value of a run file, which knows its place.
pub struct RunValue<'a> {
    place: String,
    value: &'a Value,
}

impl<'a> RunValue<'a> {
    pub fn get(&self, key: &str) -> Result<RunValue<'a>, String> {
        self.optional(key).ok_or_else(|| format!("{}: no `{key}`", self.place))
    }

    pub fn optional(&self, key: &str) -> Option<RunValue<'a>> {
        let value = self.value.get(key)?;
        Some(RunValue { place: format!("{}: {key}", self.place), value })
    }

    pub fn text(&self, key: &str) -> Result<&'a str, String> {
        let part = self.get(key)?;
        part.value.as_str().ok_or_else(|| format!("{} is not text", part.place))
    }

    pub fn number(&self, key: &str) -> Result<f64, String> {
        self.get(key)?.as_number()
    }

    pub fn as_number(&self) -> Result<f64, String> {
        self.value.as_f64().ok_or_else(|| format!("{} is not a number", self.place))
    }

    /// The parts of a list.
    pub fn list(&self, key: &str) -> Result<Vec<RunValue<'a>>, String> {
        let part = self.get(key)?;
        let list = part.value.as_array().ok_or_else(|| format!("{} is no list", part.place))?;
        let place = |i| format!("{}[{i}]", part.place);
        Ok(list.iter().enumerate().map(|(i, value)| RunValue { place: place(i), value }).collect())
    }

    /// The parts of an object by their keys, in the order of the keys.
    pub fn entries(&self) -> Result<Vec<(&'a str, RunValue<'a>)>, String> {
        let object =
            self.value.as_object().ok_or_else(|| format!("{} is no object", self.place))?;
        let part = |k: &str, value| RunValue { place: format!("{}: {k}", self.place), value };
        Ok(object.iter().map(|(k, v)| (k.as_str(), part(k, v))).collect())
    }

    /// A list of numbers, or one number.
    pub fn numbers(&self, key: &str) -> Result<Vec<f64>, String> {
        if self.get(key)?.value.is_number() {
            return Ok(vec![self.number(key)?]);
        }
        self.list(key)?.iter().map(RunValue::as_number).collect()
    }

    /// The least of a list of numbers.
    pub fn least(&self, key: &str) -> Result<f64, String> {
        let least = self.numbers(key)?.into_iter().reduce(f64::min);
        least.ok_or_else(|| format!("{}: `{key}` is empty", self.place))
    }
}
