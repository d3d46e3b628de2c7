//! Times other libraries (peers) on the same model as Squall. Each library runs in a process of a
//! Python that the user has, with the same model, threads and inputs; `peer.py` is the script of
//! that process. Input: a model, its inputs and a [`Library`]; output: a [`Peer`] with times and
//! the difference of the first output. `timing.rs` runs peers and Squall's network in turns.

mod complete;
mod library;
mod python;

pub use library::{Library, Peer, PeerTimes};

use crate::base::error::Error;
use crate::input::arrays::NamedArray;
use crate::input::user_input::Input;
use complete::complete;
use python::{Conversation, find};
use serde_json::{Value, json};
use squall_frontend::npy::{self, Array};
use squall_measure::TemporaryFolder;
use std::path::Path;
use std::time::Duration;

/// How long a library may take to load a model and to run it once.
const LOADING: Duration = Duration::from_secs(600);

/// A library that has loaded a model.
pub(crate) struct Running {
    library: Library,
    conversation: Conversation,
    version: String,
    /// Its first output.
    output: Array,
    seconds: Vec<f64>,
    _folder: TemporaryFolder,
}

impl Running {
    /// Loads a model, or says why that cannot be.
    pub fn load(
        library: Library,
        input: &Input,
        given: &[NamedArray],
        threads: usize,
    ) -> Result<Running, String> {
        let python = find(library.name())?;
        let folder = TemporaryFolder::new("beside").map_err(|e| e.to_string())?;
        let text = |e: Error| e.to_string();
        let model = complete(input, folder.path()).map_err(text)?;
        let mut inputs = Vec::new();
        for (i, (name, x)) in given.iter().enumerate() {
            let file = folder.path().join(format!("input_{i}.npy"));
            put(&file, &npy::write(x))?;
            inputs.push(json!([name, file]));
        }
        let output = folder.path().join("output.npy");
        let mut conversation = Conversation::start(&python, folder.path(), threads)?;
        let said = conversation.ask(
            &json!({
                "do": "load", "library": library.name(), "model": model, "threads": threads,
                "inputs": inputs, "output": output,
            }),
            LOADING,
        )?;
        let version = said["version"].as_str().unwrap_or("of no version").to_string();
        let bytes = std::fs::read(&output).map_err(|e| format!("{}: {e}", output.display()))?;
        let output = npy::read(&bytes).map_err(|e| format!("its output: {e}"))?;
        let (seconds, _folder) = (Vec::new(), folder);
        Ok(Running { library, conversation, version, output, seconds, _folder })
    }

    /// Runs the model for `seconds`.
    pub fn time(&mut self, seconds: f64) -> Result<(), String> {
        let patience = LOADING + Duration::from_secs_f64(seconds);
        let said = self.conversation.ask(&json!({"do": "time", "seconds": seconds}), patience)?;
        let times = said["seconds"].as_array().into_iter().flatten().filter_map(Value::as_f64);
        self.seconds.extend(times);
        Ok(())
    }

    /// Its times in all, and how far its output is from ours.
    pub fn finish(mut self, ours: Option<&Array>) -> Peer {
        self.seconds.sort_by(f64::total_cmp);
        let ns = |s: Option<&f64>| s.map(|s| (s * 1e9) as u64);
        let (best, median) =
            (ns(self.seconds.first()), ns(self.seconds.get(self.seconds.len() / 2)));
        let times = match (best, median) {
            (Some(best_ns), Some(median_ns)) => Ok(PeerTimes {
                version: self.version,
                best_ns,
                median_ns,
                inferences: self.seconds.len() as u64,
                error: ours.and_then(|ours| error(&self.output, ours)),
            }),
            _ => Err("it gave no times".to_string()),
        };
        Peer { library: self.library, times }
    }
}

/// The greatest difference over the greatest element.
fn error(theirs: &Array, ours: &Array) -> Option<f64> {
    if theirs.elements() != ours.elements() {
        return None;
    }
    let all = || (0..ours.elements()).filter_map(|i| Some((theirs.number(i)?, ours.number(i)?)));
    let most = |all: &mut dyn Iterator<Item = f64>| {
        all.fold(0.0_f64, |m, x| if x.is_nan() { f64::INFINITY } else { m.max(x.abs()) })
    };
    let difference = most(&mut all().map(|(a, b)| a - b));
    Some(difference / most(&mut all().map(|(a, _)| a)).max(1e-30))
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_compared_by_their_size() {
        let array = |data: &[f32]| Array::floats(vec![data.len() as i64], data);
        assert_eq!(error(&array(&[1.0, -4.0]), &array(&[1.0, -4.0])), Some(0.0));
        assert_eq!(error(&array(&[1.0, -4.0]), &array(&[2.0, -4.0])), Some(0.25));
        assert_eq!(error(&array(&[1.0]), &array(&[1.0, 2.0])), None);
        assert_eq!(error(&array(&[1.0]), &array(&[f32::NAN])), Some(f64::INFINITY));
    }
}
