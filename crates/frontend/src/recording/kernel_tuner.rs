//! Reads Kernel Tuner's cache files: one JSON object whose `cache` maps the values of the
//! parameters, joined by commas (`"32,1,7,True"`), to times or the word of a failure. Output: the
//! rows of a [`Recording`](super::Recording). Large files are read entry by entry, never as a whole
//! JSON tree.

use super::{Recording, Row, failure, fault, is_maximised, knob, listed, outcome_of, point, t4};
use crate::error::{ImportError, shown};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value as Json;
use squall_core::space::Knob;
use squall_core::{CpuCost, Outcome};
use std::collections::{HashMap, HashSet};
use std::fmt;

/// The positions of a parameter's values, by their spellings.
type Positions = HashMap<String, u16>;

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
                        if h.is_cache {
                            return Err(A::Error::custom("`cache` is in it twice"));
                        }
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
    /// Its parameters' spellings, where they are asked for.
    own: Vec<(usize, String)>,
}

/// Reads one entry, knowing which field is the objective and which parameters are asked for.
#[derive(Clone, Copy)]
struct ReadEntry<'a> {
    objective: &'a str,
    parameters: &'a [String],
}

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
                k if k == self.objective => e.objective = Some(map.next_value()?),
                "invalidity" => e.invalidity = map.next_value::<Json>()?.as_str().map(String::from),
                "__error__" => e.error = Some(super::spelling(&map.next_value()?)),
                "compile_time" => e.cost.build = seconds(map.next_value()?),
                "benchmark_time" | "verification_time" => {
                    e.cost.measure += seconds(map.next_value()?)
                }
                k => match self.parameters.iter().position(|p| p == k) {
                    Some(at) => e.own.push((at, super::spelling(&map.next_value()?))),
                    None => {
                        map.next_value::<IgnoredAny>()?;
                    }
                },
            }
        }
        Ok(e)
    }
}

/// Reads the cache, entry by entry.
struct ReadCache<'a> {
    entry: ReadEntry<'a>,
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
            (self.each)(key, map.next_value_seed(self.entry)?);
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
    let objective = head.objective.clone().unwrap_or_else(|| "time".into());
    let keys = head.keys.clone();
    let keys = keys.unwrap_or_else(|| head.parameters.iter().map(|(k, _)| k.clone()).collect());
    let (knobs, positions) = parameters(name, &keys, &head)?;
    // What a key means is plain where no value has a comma.
    let has_commas = positions.iter().any(|at| at.keys().any(|s| s.contains(',')));
    let asked = if has_commas { keys.as_slice() } else { &[] };
    let mut entries = Vec::new();
    let entry = ReadEntry { objective: &objective, parameters: asked };
    let cache = ReadCache { entry, each: &mut |key, entry| entries.push((key, entry)) };
    let done = serde_json::Deserializer::from_str(text).deserialize_map(ReadFile(cache));
    done.map_err(|e| {
        fault(name, format!("the cache is not readable: {e}"), "fetch the file again")
    })?;
    let maximised = is_maximised(&objective);
    let mut rows = Vec::with_capacity(entries.len());
    for (key, e) in entries {
        let read = match has_commas {
            true => point_with_commas(&key, &positions, &e.own),
            false => {
                let values: Vec<&str> = key.split(',').map(str::trim).collect();
                point(values.into_iter(), &positions)
            }
        };
        let point = read.map_err(|why| {
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
        note: None,
    })
}

/// The parameters in the keys' order, and where the spellings of their values stand.
fn parameters(
    name: &str,
    keys: &[String],
    head: &Head,
) -> Result<(Vec<Knob>, Vec<Positions>), ImportError> {
    let one = |key: &String| {
        let found = head.parameters.iter().find(|(k, _)| k == key);
        let lacks = || {
            let what = format!("`tune_params` lacks the parameter `{}`", shown(key));
            fault(name, what, "add its values")
        };
        found.map(|(_, values)| knob(key, values)).ok_or_else(lacks)
    };
    Ok(keys.iter().map(one).collect::<Result<Vec<_>, _>>()?.into_iter().unzip())
}

/// The most readings of one key that are told apart.
const MOST_READINGS: usize = 64;

/// The readings of a key whose values may have commas.
struct Readings<'a> {
    key: &'a str,
    positions: &'a [Positions],
    found: Vec<Vec<u16>>,
    /// Parameters at places of the key from which on there is no reading.
    hopeless: HashSet<(usize, usize)>,
}

impl Readings<'_> {
    /// Reads the parameters behind those of `before` from this byte on.
    fn go(&mut self, before: &mut Vec<u16>, from: usize) {
        let (Some(at), false) = (self.positions.get(before.len()), from > self.key.len()) else {
            // A key's last value ends where the key does.
            if before.len() == self.positions.len() && from == self.key.len() + 1 {
                self.found.push(before.clone());
            }
            return;
        };
        if self.found.len() >= MOST_READINGS || self.hopeless.contains(&(before.len(), from)) {
            return;
        }
        let known = self.found.len();
        let key = self.key;
        let commas = key[from..].match_indices(',').map(|(i, _)| from + i);
        for end in commas.chain([key.len()]) {
            let text = &key[from..end];
            if let Some(p) = at.get(text).or_else(|| at.get(text.trim())) {
                before.push(*p);
                self.go(before, end + 1);
                before.pop();
            }
        }
        if self.found.len() == known {
            self.hopeless.insert((before.len(), from));
        }
    }
}

/// The positions of a configuration's values, of which some may have commas as keys have between
/// them. Where a key can be read in several ways, the entry's `own` values decide.
fn point_with_commas(
    key: &str,
    positions: &[Positions],
    own: &[(usize, String)],
) -> Result<Box<[u16]>, String> {
    let (found, hopeless) = (Vec::new(), HashSet::new());
    let mut readings = Readings { key, positions, found, hopeless };
    readings.go(&mut Vec::new(), 0);
    let is_own = |reading: &&Vec<u16>| {
        own.iter().all(|(i, spelling)| positions[*i].get(spelling) == Some(&reading[*i]))
    };
    let mut right = readings.found.iter().filter(is_own);
    match (readings.found.as_slice(), right.next(), right.next()) {
        ([], ..) => Err("is no list of its parameters' values, some of which have commas".into()),
        ([one], ..) => Ok(one.as_slice().into()),
        (_, Some(one), None) => Ok(one.as_slice().into()),
        _ => Err("can be read in several ways, because values have commas, and its record does \
                  not name them"
            .into()),
    }
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
