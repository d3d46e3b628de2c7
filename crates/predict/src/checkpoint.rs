//! Training in the middle, kept: every network's state after its last whole epoch. Training that
//! resumes from it gives the very predictor that it would have given without a break.

use crate::file::{FileError, bytes_of, floats, part, write_atomically};
use crate::nn::Adam;
use crate::solver::Options;
use crate::train::{Epoch, State};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use squall_core::forecast::Split;
use std::collections::HashMap;
use std::path::Path;

const VERSION: u32 = 4;
const KEY: &str = "squall checkpoint";

/// What training has done so far. Begin with [`Checkpoint::default`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    pub(crate) header: Header,
    pub(crate) networks: Vec<State>,
}

/// What a checkpoint belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    version: u32,
    pub data: String,
    pub split: Option<Split>,
    pub options: Options,
    /// Who owns each of the networks, in order.
    pub networks: Vec<Owner>,
}

/// A network of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Owner {
    pub solver: String,
    pub network: String,
    pub member: usize,
    pub finished: bool,
    steps: u64,
    decay: f32,
    curve: Vec<Epoch>,
}

impl Checkpoint {
    /// Whether training with these can go on from it. Threads do not matter. A fresh one fits all.
    pub(crate) fn fits(&self, data: &str, split: Option<Split>, options: &Options) -> bool {
        let same = Options { threads: options.threads, ..self.header.options.clone() } == *options;
        self.networks.is_empty() || self.header.data == data && self.header.split == split && same
    }

    /// Says what it belongs to.
    pub(crate) fn claim(&mut self, data: &str, split: Option<Split>, options: &Options) {
        self.header.version = VERSION;
        self.header.data = data.into();
        self.header.split = split;
        self.header.options = options.clone();
    }

    /// The state of a network, and whether it is trained.
    pub(crate) fn state(
        &self,
        solver: &str,
        network: &str,
        member: usize,
    ) -> Option<(&State, bool)> {
        let i = self.place(solver, network, member)?;
        Some((&self.networks[i], self.header.networks[i].finished))
    }

    /// Keeps the state of a network.
    pub(crate) fn keep(
        &mut self,
        solver: &str,
        network: &str,
        member: usize,
        state: &State,
        finished: bool,
    ) {
        let owner = Owner {
            solver: solver.into(),
            network: network.into(),
            member,
            finished,
            steps: state.adam.steps,
            decay: state.adam.decay,
            curve: state.curve.clone(),
        };
        match self.place(solver, network, member) {
            Some(i) => {
                self.header.networks[i] = owner;
                self.networks[i].clone_from(state);
            }
            None => {
                self.header.networks.push(owner);
                self.networks.push(state.clone());
            }
        }
    }

    fn place(&self, solver: &str, network: &str, member: usize) -> Option<usize> {
        self.header
            .networks
            .iter()
            .position(|o| o.solver == solver && o.network == network && o.member == member)
    }

    /// Writes it to a file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let broken = |e: &dyn std::fmt::Display| FileError::Header(e.to_string());
        let mut parts = Vec::new();
        for (i, s) in self.networks.iter().enumerate() {
            let all = [
                ("parameters", &s.parameters),
                ("average", &s.average),
                ("best", &s.best),
                ("mean", &s.adam.mean),
                ("square", &s.adam.square),
            ];
            parts.extend(
                all.map(|(what, v)| {
                    (format!("{i}.{what}"), v.len(), bytes_of(v, f32::to_le_bytes))
                }),
            );
        }
        let mut views = Vec::with_capacity(parts.len());
        for (name, len, bytes) in &parts {
            views.push((
                name.as_str(),
                TensorView::new(Dtype::F32, vec![*len], bytes).map_err(|e| broken(&e))?,
            ));
        }
        let header = serde_json::to_string(&self.header).map_err(|e| broken(&e))?;
        let bytes = safetensors::serialize(views, Some(HashMap::from([(KEY.to_owned(), header)])))
            .map_err(|e| broken(&e))?;
        write_atomically(path, &bytes)
    }

    /// Reads what [`Checkpoint::save`] wrote.
    pub fn load(path: &Path) -> Result<Checkpoint, FileError> {
        let io = |error| FileError::Io { path: path.display().to_string(), error };
        let bytes = std::fs::read(path).map_err(io)?;
        let no = |why: String| FileError::NotACheckpoint(why);
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|e| no(format!("{e:?}")))?;
        let text = metadata
            .metadata()
            .as_ref()
            .and_then(|m| m.get(KEY))
            .ok_or_else(|| no(format!("it lacks `{KEY}`")))?;
        let header: Header = serde_json::from_str(text).map_err(|e| no(e.to_string()))?;
        if header.version != VERSION {
            return Err(no(format!("version {}, this build reads {VERSION}", header.version)));
        }
        let parts = SafeTensors::deserialize(&bytes).map_err(|e| no(format!("{e:?}")))?;
        let mut networks = Vec::new();
        for (i, owner) in header.networks.iter().enumerate() {
            let len = parts
                .tensor(&format!("{i}.parameters"))
                .map(|t| t.shape().iter().product())
                .unwrap_or(0);
            let get = |what: &str| {
                let name = format!("{i}.{what}");
                floats(part(&parts, &name, Dtype::F32, &[len], &mut 0)?, &name)
            };
            let adam = Adam {
                mean: get("mean")?,
                square: get("square")?,
                steps: owner.steps,
                decay: owner.decay,
            };
            networks.push(State {
                parameters: get("parameters")?,
                average: get("average")?,
                adam,
                best: get("best")?,
                curve: owner.curve.clone(),
            });
        }
        Ok(Checkpoint { header, networks })
    }
}
