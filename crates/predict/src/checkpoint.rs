//! Checkpoints of the predictor's training: a file with every network's state after its last whole
//! epoch. Training that resumes from one gives the same predictor as training without the
//! interruption. `solvers.rs` keeps a checkpoint while it trains.

use crate::nn::Adam;
use crate::options::Options;
use crate::tensors::{FileError, TensorReader, TensorWriter, header, read_file, write_atomically};
use crate::train::{Epoch, State};
use serde::{Deserialize, Serialize};
use squall_core::forecast::Split;
use std::path::Path;

const VERSION: u32 = 4;
const KEY: &str = "squall checkpoint";

/// The work that training has done so far. A training begins with [`Checkpoint::default`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    header: Header,
    networks: Vec<State>,
}

/// The training that a checkpoint belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u32,
    data: String,
    split: Option<Split>,
    options: Options,
    /// One for each state, in order.
    networks: Vec<NetworkHeader>,
}

/// The network that a state belongs to, and what of the state is no list of floats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkHeader {
    solver: String,
    network: String,
    member: usize,
    finished: bool,
    steps: u64,
    decay: f32,
    curve: Vec<Epoch>,
}

/// The name of a network: its solver, its kind (`ranker`, `chain`, ..) and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkId<'a> {
    pub solver: &'a str,
    pub network: &'a str,
    pub member: usize,
}

impl Checkpoint {
    /// Whether a training with these data, split and options can resume from it. The number of
    /// threads does not matter, and an empty checkpoint fits every training.
    pub(crate) fn fits(&self, data: &str, split: Option<Split>, options: &Options) -> bool {
        let same = Options { threads: options.threads, ..self.header.options.clone() } == *options;
        self.networks.is_empty() || self.header.data == data && self.header.split == split && same
    }

    /// Notes which training it belongs to.
    pub(crate) fn claim(&mut self, data: &str, split: Option<Split>, options: &Options) {
        self.header.version = VERSION;
        self.header.data = data.into();
        self.header.split = split;
        self.header.options = options.clone();
    }

    /// Whether it holds the state of no network.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
    }

    /// The state of a network, and whether its training is finished.
    pub(crate) fn state(&self, id: NetworkId) -> Option<(&State, bool)> {
        let i = self.place(id)?;
        Some((&self.networks[i], self.header.networks[i].finished))
    }

    /// Keeps the state of a network; of one that is finished only what it is asked with, a fifth of
    /// its state.
    pub(crate) fn keep(&mut self, id: NetworkId, state: &State, finished: bool) {
        let header = NetworkHeader {
            solver: id.solver.into(),
            network: id.network.into(),
            member: id.member,
            finished,
            steps: state.adam.steps,
            decay: state.adam.decay,
            curve: state.curve.clone(),
        };
        let state = match finished {
            true => State {
                parameters: Vec::new(),
                average: Vec::new(),
                adam: Adam { mean: Vec::new(), square: Vec::new(), ..state.adam },
                best: state.best.clone(),
                curve: state.curve.clone(),
            },
            false => state.clone(),
        };
        match self.place(id) {
            Some(i) => {
                self.header.networks[i] = header;
                self.networks[i] = state;
            }
            None => {
                self.header.networks.push(header);
                self.networks.push(state);
            }
        }
    }

    fn place(&self, id: NetworkId) -> Option<usize> {
        let named = |h: &NetworkHeader| {
            NetworkId { solver: &h.solver, network: &h.network, member: h.member } == id
        };
        self.header.networks.iter().position(named)
    }

    /// Writes it to a file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let mut tensors = TensorWriter::default();
        for (i, s) in self.networks.iter().enumerate() {
            tensors.add_list(format!("{i}.parameters"), &s.parameters);
            tensors.add_list(format!("{i}.average"), &s.average);
            tensors.add_list(format!("{i}.best"), &s.best);
            tensors.add_list(format!("{i}.mean"), &s.adam.mean);
            tensors.add_list(format!("{i}.square"), &s.adam.square);
        }
        let header =
            serde_json::to_string(&self.header).map_err(|e| FileError::Header(e.to_string()))?;
        write_atomically(path, &tensors.finish(KEY, header)?)
    }

    /// Reads what [`Checkpoint::save`] wrote.
    pub fn load(path: &Path) -> Result<Checkpoint, FileError> {
        let io = |error| FileError::Io { path: path.display().to_string(), error };
        let bytes = read_file(path).map_err(io)?;
        let no = FileError::NotACheckpoint;
        let text = header(&bytes, KEY).map_err(no)?;
        let text = text.ok_or_else(|| no(format!("it lacks `{KEY}`")))?;
        let header: Header = serde_json::from_str(&text).map_err(|e| no(e.to_string()))?;
        if header.version != VERSION {
            return Err(no(format!("version {}, this build reads {VERSION}", header.version)));
        }
        let mut tensors = TensorReader::new(&bytes).map_err(no)?;
        let mut networks = Vec::new();
        for (i, network) in header.networks.iter().enumerate() {
            let mut get = |what: &str| {
                let name = format!("{i}.{what}");
                let len = tensors.len(&name)?;
                tensors.floats(&name, &[len])
            };
            networks.push(State {
                parameters: get("parameters")?,
                average: get("average")?,
                adam: Adam {
                    mean: get("mean")?,
                    square: get("square")?,
                    steps: network.steps,
                    decay: network.decay,
                },
                best: get("best")?,
                curve: network.curve.clone(),
            });
        }
        Ok(Checkpoint { header, networks })
    }
}
