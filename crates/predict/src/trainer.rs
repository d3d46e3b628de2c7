//! The steps that the training of every kind of model shares: examples by their use
//! ([`TrainingData`]), encoded problems, progress for the caller, and networks that are trained
//! from the state in which a checkpoint has them. The loop itself is in `train.rs`.

use crate::checkpoint::{Checkpoint, NetworkId};
use crate::features::{EncodedProblem, Featurizer};
use crate::options::Options;
use crate::parallel;
use crate::train::{Epoch, Labelled, Learner, Problems, Schedule, State, train};
use squall_core::forecast::{Candidates, Example, Family, FamilyError, Part, Problem, fnv1a};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

/// The data from which the model of a solver is trained. All examples are of the family and inside
/// their tuner space. `part` says which of them all networks learn, and which decide when to stop
/// and how to mix.
#[derive(Clone)]
pub struct TrainingData<'a> {
    /// The kernel family.
    pub family: Arc<Family>,
    /// Problems with the values that tuning found.
    pub examples: &'a [&'a Example],
    /// The use of an example.
    pub part: &'a (dyn Fn(&Problem) -> Part + Sync),
    /// The kind of model and the options of its training.
    pub options: &'a Options,
}

impl<'a> TrainingData<'a> {
    /// The examples of one use.
    pub(crate) fn of(&self, part: Part) -> Vec<&'a Example> {
        self.examples.iter().filter(|e| (self.part)(&e.problem) == part).copied().collect()
    }
}

/// The progress of training. A callback is given it after every epoch and every few batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress<'a> {
    /// The solver.
    pub solver: &'a str,
    /// The part that is trained: `distances`, `ranker`, `chain`, `sequence model` or `classifiers`.
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

/// The problems that were among the examples of a training, held out or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// Hashes of keys, ascending.
    pub hashes: Vec<u64>,
    /// Whether a device is hashed with each key. Files before version 5 hold keys alone.
    pub by_device: bool,
}

impl Seen {
    pub fn of(examples: &[&Example]) -> Seen {
        let mut hashes: Vec<u64> = examples.iter().map(|e| Seen::hash(&e.problem, true)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        Seen { hashes, by_device: true }
    }

    pub fn has(&self, problem: &Problem) -> bool {
        self.hashes.binary_search(&Seen::hash(problem, self.by_device)).is_ok()
    }

    fn hash(problem: &Problem, by_device: bool) -> u64 {
        let device = if by_device { problem.device.as_str() } else { "" };
        fnv1a([device.as_bytes(), problem.key.as_bytes()].concat().as_slice())
    }
}

/// Examples that are encoded between two questions whether to go on: about a second's worth of
/// those with the most candidates.
const PART: usize = 1024;

/// As [`encode_while`], to the end.
pub(crate) fn encode_all(
    featurizer: &Featurizer,
    examples: &[&Example],
    threads: usize,
    remembered: Option<usize>,
) -> Result<Vec<EncodedProblem>, FamilyError> {
    encode_while(featurizer, examples, threads, remembered, &mut |_| true)
        .map(Option::unwrap_or_default)
}

/// Encodes examples on all threads; problems with equal candidates share them. `remembered` is the
/// place of the first example in the memory, where the memory has them. `None` where `go_on`, given
/// the part that is done, returned false.
pub(crate) fn encode_while(
    featurizer: &Featurizer,
    examples: &[&Example],
    threads: usize,
    remembered: Option<usize>,
    go_on: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<Vec<EncodedProblem>>, FamilyError> {
    let numbered: Vec<(usize, &&Example)> = examples.iter().enumerate().collect();
    let encode = |(i, e): &(usize, &&Example), scratch: &mut Vec<f32>| {
        let own = remembered.map(|first| (first + i) as u32);
        let mut encoded = featurizer.encode(&e.problem, Some(&e.values), own, scratch)?;
        if remembered.is_some() {
            encoded.legal_share = featurizer.legal_share(&encoded);
        }
        Ok(encoded)
    };
    let mut all: Vec<Result<EncodedProblem, FamilyError>> = Vec::with_capacity(examples.len());
    for part in numbered.chunks(PART) {
        if !go_on(all.len() as f64 / examples.len() as f64) {
            return Ok(None);
        }
        all.extend(parallel::map(threads, part, encode));
    }
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
    Ok(Some(out))
}

/// The encoded problems whose truth is in their tuner space, each with its problem.
pub(crate) fn labelled<'a>(
    encoded: &'a [EncodedProblem],
    examples: &[&'a Example],
) -> Vec<Labelled<'a>> {
    let all = encoded.iter().zip(examples).filter(|(c, _)| c.truth.is_some());
    all.map(|(c, e)| (c, &e.problem)).collect()
}

/// Trains networks from where earlier runs have them.
pub(crate) struct Trainer<'a> {
    /// What earlier runs did.
    pub begun: &'a Checkpoint,
    /// Given a network's state after every epoch, to be kept, and whether it is finished.
    pub put: &'a mut dyn FnMut(NetworkId, &State, bool),
    /// The number of the first network of a kind.
    pub first: usize,
}

/// A network that is trained: what it learns from, and how.
pub(crate) struct Job<'a> {
    /// What it is called, as `ranker`.
    pub network: &'a str,
    /// Its number.
    pub member: usize,
    /// Its problems.
    pub problems: Problems<'a>,
    /// How it is trained; the threads are shared by all networks that are trained together.
    pub schedule: Schedule,
}

/// What a thread says of its network: its place among the jobs, how much of the running epoch is
/// done, the last losses, and after an epoch the whole state.
struct Word {
    job: usize,
    within: f64,
    epochs: usize,
    last: Option<Epoch>,
    state: Option<State>,
}

impl Trainer<'_> {
    /// Trains networks beside each other, as many at a time as there are threads, each from where
    /// the checkpoint has it. `go_on` is given a network's number among the jobs, the epochs that
    /// are done, the share of the running one and the last losses. Where it ends the training
    /// early, networks that run are not kept as finished, and the result says so.
    pub fn train_together<L: Learner>(
        &mut self,
        learner: &L,
        featurizer: &Featurizer,
        jobs: &[Job],
        go_on: &mut dyn FnMut(usize, usize, f64, Option<Epoch>) -> bool,
    ) -> Result<(Vec<State>, bool), FamilyError> {
        let threads = jobs.first().map_or(1, |j| j.schedule.threads.max(1));
        let (mut states, mut on) = (Vec::new(), true);
        for (part, some) in jobs.chunks(threads).enumerate() {
            if !on {
                break;
            }
            let first = part * threads;
            let each = (threads / some.len()).max(1);
            let mut ask = |job: usize, epochs: usize, within: f64, last: Option<Epoch>| {
                on &= go_on(first + job, epochs, within, last);
                on
            };
            states.extend(self.train_some(learner, featurizer, some, each, &mut ask)?);
        }
        Ok((states, on))
    }

    /// Trains networks, each on so many threads of its own.
    fn train_some<L: Learner>(
        &mut self,
        learner: &L,
        featurizer: &Featurizer,
        jobs: &[Job],
        threads: usize,
        go_on: &mut dyn FnMut(usize, usize, f64, Option<Epoch>) -> bool,
    ) -> Result<Vec<State>, FamilyError> {
        let solver = featurizer.family.solver();
        let first = self.first;
        let id = |j: &Job| NetworkId { solver, network: jobs[0].network, member: first + j.member };
        let begun: Vec<(State, bool)> =
            jobs.iter().map(|j| self.begun(learner, id(j), &j.schedule)).collect();
        let stop = AtomicBool::new(false);
        let (say, heard) = std::sync::mpsc::channel::<Word>();
        let run = |i: usize, (mut state, finished): (State, bool), say: Sender<Word>| {
            let schedule = Schedule { threads, ..jobs[i].schedule };
            let mut tell = |s: &State, within: f64| {
                let state = (within == 0.0).then(|| s.clone());
                let (epochs, last) = (s.curve.len(), s.curve.last().copied());
                // The other end is there until all threads have ended.
                let _ = say.send(Word { job: i, within, epochs, last, state });
                !stop.load(Ordering::Relaxed)
            };
            if !finished {
                let problems = jobs[i].problems;
                train(learner, featurizer, problems, &schedule, &mut state, &mut tell)?;
            }
            Ok::<State, FamilyError>(state)
        };
        let mut on = true;
        let done: Vec<Result<State, FamilyError>> = std::thread::scope(|scope| {
            let run = &run;
            let all: Vec<_> = begun
                .into_iter()
                .enumerate()
                .map(|(i, b)| (i, b, say.clone()))
                .map(|(i, b, say)| scope.spawn(move || run(i, b, say)))
                .collect();
            drop(say);
            for word in heard {
                if let Some(state) = &word.state {
                    (self.put)(id(&jobs[word.job]), state, false);
                }
                on = on && go_on(word.job, word.epochs, word.within, word.last);
                stop.fetch_or(!on, Ordering::Relaxed);
            }
            // A panic of one is passed on, not swallowed.
            let joined = all.into_iter().map(|t| t.join());
            joined.map(|r| r.unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
        });
        let states = done.into_iter().collect::<Result<Vec<State>, FamilyError>>()?;
        if on {
            jobs.iter().zip(&states).for_each(|(j, s)| (self.put)(id(j), s, true));
        }
        Ok(states)
    }

    /// The state of a network to go on from, and whether its training is finished.
    fn begun<L: Learner>(&self, learner: &L, id: NetworkId, schedule: &Schedule) -> (State, bool) {
        let all = learner.layout().len();
        match self.begun.state(id) {
            Some((s, true)) if s.best.len() == all => (s.clone(), true),
            Some((s, false)) if s.parameters.len() == all => (s.clone(), false),
            _ => (State::new(learner.layout(), schedule), false),
        }
    }

    /// Trains a network from where the checkpoint has it. Where `go_on` ends the training early,
    /// the network is not kept as finished.
    pub fn train<L: Learner>(
        &mut self,
        learner: &L,
        featurizer: &Featurizer,
        job: &Job,
        go_on: &mut dyn FnMut(&State, f64) -> bool,
    ) -> Result<State, FamilyError> {
        let Job { network, member, problems, schedule } = *job;
        let solver = featurizer.family.solver();
        let id = NetworkId { solver, network, member: self.first + member };
        let (mut state, finished) = self.begun(learner, id, &schedule);
        if finished {
            return Ok(state);
        }
        let mut went_on = true;
        train(learner, featurizer, problems, &schedule, &mut state, &mut |s, within| {
            if within == 0.0 {
                (self.put)(id, s, false);
            }
            went_on = go_on(s, within);
            went_on
        })?;
        if went_on {
            (self.put)(id, &state, true);
        }
        Ok(state)
    }
}
