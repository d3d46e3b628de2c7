//! What the training of every model shares: the examples by their use, encoded problems, progress,
//! and networks that are trained from where a checkpoint has them.

use crate::checkpoint::{Checkpoint, NetworkId};
use crate::features::{EncodedProblem, Featurizer};
use crate::options::Options;
use crate::parallel;
use crate::train::{Epoch, Labelled, Learner, Schedule, State, train};
use squall_core::forecast::{Candidates, Example, Family, FamilyError, Part, Problem, fnv1a};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a model of a solver is made from. All examples are of the family and inside their tuner
/// space. `part` says which of them all networks learn, and which decide when to stop and how to
/// mix.
#[derive(Clone)]
pub struct TrainingData<'a> {
    /// The kernel family.
    pub family: Arc<Family>,
    /// Problems with the values that tuning found.
    pub examples: &'a [&'a Example],
    /// What an example is used for.
    pub part: &'a dyn Fn(&Problem) -> Part,
    /// What is trained, and how.
    pub options: &'a Options,
}

impl<'a> TrainingData<'a> {
    /// The examples of one use.
    pub(crate) fn of(&self, part: Part) -> Vec<&'a Example> {
        self.examples.iter().filter(|e| (self.part)(&e.problem) == part).copied().collect()
    }
}

/// How far training is. A callback is given it after every epoch and every few batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress<'a> {
    /// The solver.
    pub solver: &'a str,
    /// What is trained: `distances`, `ranker`, `chain`, `sequence model` or `classifiers`.
    pub network: &'static str,
    /// Which network of its kind, from 0, and how many there are.
    pub member: (usize, usize),
    /// Epochs that are done, and how many there will be at most.
    pub epochs: (usize, usize),
    /// The share of the running epoch that is done.
    pub within: f64,
    /// The losses of the last epoch.
    pub last: Option<Epoch>,
}

/// Hashes of the examples' keys, ascending.
pub(crate) fn hashes(examples: &[&Example]) -> Vec<u64> {
    let mut keys: Vec<u64> = examples.iter().map(|e| fnv1a(e.problem.key.as_bytes())).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Encodes examples on all threads; problems with equal candidates share them. `remembered` is the
/// place of the first example in the memory, where the memory has them.
pub(crate) fn encode_all(
    featurizer: &Featurizer,
    examples: &[&Example],
    threads: usize,
    remembered: Option<usize>,
) -> Result<Vec<EncodedProblem>, FamilyError> {
    let numbered: Vec<(usize, &&Example)> = examples.iter().enumerate().collect();
    let encode = |(i, e): &(usize, &&Example), scratch: &mut Vec<f32>| {
        let own = remembered.map(|first| (first + i) as u32);
        let mut encoded = featurizer.encode(&e.problem, Some(&e.values), own, scratch)?;
        if remembered.is_some() {
            encoded.legal_share = featurizer.legal_share(&encoded);
        }
        Ok(encoded)
    };
    let all: Vec<Result<EncodedProblem, FamilyError>> = parallel::map(threads, &numbered, encode);
    let mut known: HashMap<u64, Vec<Arc<Candidates>>> = HashMap::new();
    let mut out = Vec::with_capacity(all.len());
    for encoded in all {
        let mut encoded = encoded?;
        let mut hasher = DefaultHasher::new();
        encoded.candidates.table.hash(&mut hasher);
        let alike = known.entry(hasher.finish()).or_default();
        match alike.iter().find(|c| c.table == encoded.candidates.table) {
            Some(c) => encoded.candidates = c.clone(),
            None => alike.push(encoded.candidates.clone()),
        }
        out.push(encoded);
    }
    Ok(out)
}

/// The encoded problems whose truth is in their tuner space, each with its problem.
pub(crate) fn labelled<'a>(
    encoded: &'a [EncodedProblem],
    examples: &[&'a Example],
) -> Vec<Labelled<'a>> {
    let all = encoded.iter().zip(examples).filter(|(c, _)| c.truth.is_some());
    all.map(|(c, e)| (c, &e.problem)).collect()
}

/// Trains networks and keeps their state in a checkpoint after every epoch.
pub(crate) struct Trainer<'a> {
    /// What earlier runs did, and what this one does.
    pub checkpoint: &'a mut Checkpoint,
    /// Given the checkpoint after every epoch, to be saved.
    pub keep: &'a mut dyn FnMut(&Checkpoint),
    /// The number of the first network of a kind.
    pub first: usize,
}

impl Trainer<'_> {
    /// Trains a network from where the checkpoint has it. Where `go_on` ends the training early,
    /// the network is not kept as finished.
    pub fn train<L: Learner>(
        &mut self,
        (learner, network, member): (&L, &str, usize),
        featurizer: &Featurizer,
        (learned, held): (&[Labelled], &[Labelled]),
        schedule: &Schedule,
        go_on: &mut dyn FnMut(&State, f64) -> bool,
    ) -> Result<State, FamilyError> {
        let solver = featurizer.family.solver();
        let id = NetworkId { solver, network, member: self.first + member };
        let (mut state, finished) = match self.checkpoint.state(id) {
            Some((state, finished)) if state.parameters.len() == learner.layout().len() => {
                (state.clone(), finished)
            }
            _ => (State::new(learner.layout(), schedule), false),
        };
        if finished {
            return Ok(state);
        }
        let mut went_on = true;
        train(learner, featurizer, (learned, held), schedule, &mut state, &mut |s, within| {
            if within == 0.0 {
                self.checkpoint.keep(id, s, false);
                (self.keep)(self.checkpoint);
            }
            went_on = go_on(s, within);
            went_on
        })?;
        if went_on {
            self.checkpoint.keep(id, &state, true);
        }
        Ok(state)
    }
}
