//! Kernel Tuner's cache files: one JSON object whose `cache` maps the values of the parameters,
//! joined by commas, to what was measured.

use super::{Recording, Row, failure, fault, is_maximised, knob, listed, outcome_of, point, t4};
use crate::error::{ImportError, shown};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value as Json;
use squall_core::{CpuCost, Outcome};
use std::collections::HashMap;
use std::fmt;

/// Everything but the measurements.
#[derive(Default)]
pub(super) struct Head {
    pub is_cache: bool,
    pub is_results: bool,
    pub is_description: bool,
    device: String,
    kernel: String,
    problem: Option<Json>,
    objective: Option<String>,
    keys: Option<Vec<String>>,
    parameters: Vec<(String, Vec<Json>)>,
}

/// Reads the head and skips the measurements; tells kinds of files apart.
pub(super) fn head(text: &str) -> serde_json::Result<Head> {
    struct V;
    impl<'de> Visitor<'de> for V {
        type Value = Head;
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            write!(f, "an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Head, A::Error> {
            let mut h = Head::default();
            while let Some(key) = map.next_key::<String>()? {
                match key.as_str() {
                    "cache" => {
                        h.is_cache = true;
                        map.next_value::<IgnoredAny>()?;
                    }
                    "results" => {
                        h.is_results = true;
                        map.next_value::<IgnoredAny>()?;
                    }
                    "ConfigurationSpace" => {
                        h.is_description = true;
                        map.next_value::<IgnoredAny>()?;
                    }
                    "device_name" => h.device = super::spelling(&map.next_value()?),
                    "kernel_name" => h.kernel = super::spelling(&map.next_value()?),
                    "problem_size" => h.problem = Some(map.next_value()?),
                    "objective" => {
                        let o: Json = map.next_value()?;
                        let first = o.as_array().and_then(|a| a.first()).unwrap_or(&o);
                        h.objective = first.as_str().map(String::from);
                    }
                    "tune_params_keys" => h.keys = Some(map.next_value()?),
                    "tune_params" => {
                        let Json::Object(all) = map.next_value()? else {
                            return Err(A::Error::custom("`tune_params` is no object"));
                        };
                        h.parameters = all
                            .into_iter()
                            .map(|(k, v)| (k, v.as_array().cloned().unwrap_or_default()))
                            .collect();
                    }
                    _ => {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
            }
            Ok(h)
        }
    }
    serde_json::Deserializer::from_str(text).deserialize_map(V)
}

/// What is kept of an entry of the cache.
#[derive(Default)]
struct Entry {
    objective: Option<Json>,
    error: Option<String>,
    /// T4's finer word for a failure, which our own files add.
    invalidity: Option<String>,
    cost: CpuCost,
}

/// Reads one entry, knowing which field is the objective.
struct ReadEntry<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for ReadEntry<'_> {
    type Value = Entry;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Entry, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReadEntry<'_> {
    type Value = Entry;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "an entry of the cache")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let mut e = Entry::default();
        let seconds =
            |v: Json| v.as_f64().filter(|t| t.is_finite() && *t > 0.0).unwrap_or(0.0) / 1e3;
        while let Some(key) = map.next_key::<std::borrow::Cow<str>>()? {
            match &*key {
                k if k == self.0 => e.objective = Some(map.next_value()?),
                "invalidity" => e.invalidity = map.next_value::<Json>()?.as_str().map(String::from),
                "__error__" => e.error = Some(super::spelling(&map.next_value()?)),
                "compile_time" => e.cost.build = seconds(map.next_value()?),
                "benchmark_time" | "verification_time" => {
                    e.cost.measure += seconds(map.next_value()?)
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(e)
    }
}

/// Reads the cache, entry by entry.
struct ReadCache<'a> {
    objective: &'a str,
    each: &'a mut dyn FnMut(String, Entry),
}

impl<'de> DeserializeSeed<'de> for ReadCache<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReadCache<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "an object of entries")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            (self.each)(key, map.next_value_seed(ReadEntry(self.objective))?);
        }
        Ok(())
    }
}

/// Finds the cache in the file.
struct ReadFile<'a>(ReadCache<'a>);

impl<'de> Visitor<'de> for ReadFile<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut cache = Some(self.0);
        while let Some(key) = map.next_key::<String>()? {
            match cache.take_if(|_| key == "cache") {
                Some(c) => map.next_value_seed(c)?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads the whole file.
pub(super) fn read(name: &str, text: &str, head: Head) -> Result<Recording, ImportError> {
    let objective = head.objective.unwrap_or_else(|| "time".into());
    let mut entries = Vec::new();
    let cache =
        ReadCache { objective: &objective, each: &mut |key, entry| entries.push((key, entry)) };
    let done = serde_json::Deserializer::from_str(text).deserialize_map(ReadFile(cache));
    done.map_err(|e| {
        fault(name, format!("the cache is not readable: {e}"), "fetch the file again")
    })?;

    let keys =
        head.keys.unwrap_or_else(|| head.parameters.iter().map(|(k, _)| k.clone()).collect());
    let mut knobs = Vec::new();
    let mut positions: Vec<HashMap<String, u16>> = Vec::new();
    for key in &keys {
        let Some((_, values)) = head.parameters.iter().find(|(k, _)| k == key) else {
            return Err(fault(
                name,
                format!("`tune_params` lacks the parameter `{}`", shown(key)),
                "add its values",
            ));
        };
        let (k, at) = knob(key, values);
        knobs.push(k);
        positions.push(at);
    }
    let maximised = is_maximised(&objective);
    let mut rows = Vec::with_capacity(entries.len());
    for (key, e) in entries {
        let values: Vec<&str> = key.split(',').map(str::trim).collect();
        let point = point(values.into_iter(), &positions).map_err(|why| {
            fault(name, format!("the key `{}` {why}", shown(&key)), "mend the file")
        })?;
        rows.push((point, Row { outcome: outcome(&e, maximised), key, cost: e.cost }));
    }
    let (space, rows) = listed(name, knobs, rows)?;
    let problem = head.problem.unwrap_or(Json::Null).to_string();
    Ok(Recording {
        kernel: head.kernel,
        device: head.device,
        problem,
        objective,
        maximised,
        conditions: Vec::new(),
        space,
        rows,
    })
}

fn outcome(e: &Entry, maximised: bool) -> Outcome {
    let failed = |word: &str| {
        t4::failure(e.invalidity.as_deref().unwrap_or(""), word).unwrap_or_else(|| failure(word))
    };
    match (&e.error, &e.objective) {
        (Some(word), _) if !word.is_empty() => failed(word),
        (_, Some(Json::String(word))) => failed(word),
        (_, value) => outcome_of(value.as_ref().and_then(Json::as_f64), maximised),
    }
}
