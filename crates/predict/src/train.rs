//! The training loop that all networks share: batches cut into shards for the threads, AdamW under
//! a cosine schedule, the loss on validation after every epoch, the best parameters kept. A network
//! implements [`Learner`]. Shards are the same however many threads there are, and their gradients
//! are added in order, so a seed gives the same network on one core as on sixteen.

use crate::features::{EncodedProblem, Featurizer};
use crate::nn::{Adam, ParameterLayout, cosine, vector, zeroed};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use serde::{Deserialize, Serialize};
use squall_core::forecast::{FamilyError, Instance, Problem};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of parts of a batch; one thread works on a part at a time.
const SHARDS: usize = 2;

/// Problems that are learned together.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// The facts that are known of the solver.
    pub featurizer: &'a Featurizer,
    /// The problems, each with the family's instance for it.
    pub problems: &'a [(&'a EncodedProblem, Instance<'a>)],
}

/// A network that learns from encoded problems.
pub trait Learner: Sync {
    /// Buffers of one thread.
    type Scratch: Default + Send;

    /// The places of its parameters.
    fn layout(&self) -> &ParameterLayout;

    /// The sum of the problems' losses. With `gradient` it is a training step, whose gradient is
    /// added to that.
    fn learn(
        &self,
        parameters: &[f32],
        batch: Batch,
        rng: &mut Generator,
        gradient: Option<&mut [f32]>,
        scratch: &mut Self::Scratch,
    ) -> Result<f64, FamilyError>;
}

/// How to train.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Passes over the training problems that the cosine is laid out for.
    pub epochs: usize,
    /// Passes that are made, at most: `epochs`, or fewer where other networks have shown how many
    /// are best.
    pub until: usize,
    /// Problems a step.
    pub batch: usize,
    /// Greatest step of AdamW.
    pub rate: f32,
    /// Weight decay.
    pub decay: f32,
    /// How much of the running mean of parameters stays at each step. The mean is what is validated
    /// and kept (Polyak and Juditsky 1992): 0.995 averages over some 200 steps, at the beginning
    /// over a ninth of those taken. 0 stands for no mean.
    pub memory: f32,
    /// Epochs without a better validation loss before training stops.
    pub patience: usize,
    /// Seed of parameters, order, drop-out and samples.
    pub seed: u64,
    /// Threads.
    pub threads: usize,
}

/// The losses of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Mean loss of the training problems as they were learned.
    pub train: f64,
    /// Mean loss of the validation problems after it; 0 where there were none.
    pub validation: f64,
}

/// The state of training between two epochs, which checkpoints hold.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The parameters.
    pub parameters: Vec<f32>,
    /// Their running mean over the last steps: what is validated and kept.
    pub average: Vec<f32>,
    /// The optimiser's state.
    pub adam: Adam,
    /// The best parameters so far; the last where nothing is held out to tell.
    pub best: Vec<f32>,
    /// Every epoch so far.
    pub curve: Vec<Epoch>,
}

impl State {
    /// The state before the first epoch.
    pub fn new(layout: &ParameterLayout, schedule: &Schedule) -> State {
        let parameters = layout.initial(&mut Generator::seed_from_u64(schedule.seed));
        State {
            adam: Adam::new(parameters.len(), schedule.decay),
            average: parameters.clone(),
            best: parameters.clone(),
            parameters,
            curve: Vec::new(),
        }
    }

    /// The epoch with the least loss on validation, counted from 0.
    pub fn best_epoch(&self) -> Option<usize> {
        (0..self.curve.len())
            .min_by(|&a, &b| self.curve[a].validation.total_cmp(&self.curve[b].validation))
    }
}

/// An encoded problem with a known answer, and the problem that it was made from.
pub type Labelled<'a> = (&'a EncodedProblem, &'a Problem);

/// The problems that a network is trained on.
#[derive(Clone, Copy)]
pub struct Problems<'a> {
    /// The problems that it learns.
    pub learned: &'a [Labelled<'a>],
    /// The problems that tell when to stop.
    pub held: &'a [Labelled<'a>],
}

/// Trains until the schedule or its patience ends, or `go_on` returns false. `go_on` is called
/// after every epoch, and every few batches with the share of the epoch that is done.
pub fn train<L: Learner>(
    learner: &L,
    featurizer: &Featurizer,
    problems: Problems,
    schedule: &Schedule,
    state: &mut State,
    go_on: &mut dyn FnMut(&State, f64) -> bool,
) -> Result<(), FamilyError> {
    let Problems { learned, held } = problems;
    let decays = learner.layout().decays();
    let steps = learned.len().div_ceil(schedule.batch.max(1));
    let mut gradient = vec![0.0; state.parameters.len()];
    let shards = Shards::new(learner, featurizer, schedule.threads);
    let patient = |s: &State| {
        s.best_epoch()
            .is_none_or(|best| held.is_empty() || s.curve.len() - 1 - best < schedule.patience)
    };
    while state.curve.len() < schedule.until && patient(state) {
        let epoch = state.curve.len();
        let mut rng = Generator::seed_from_u64(
            schedule.seed ^ (epoch as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        );
        let mut order: Vec<usize> = (0..learned.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.random_range(0..=i));
        }
        let mut total = 0.0;
        for (step, batch) in order.chunks(schedule.batch.max(1)).enumerate() {
            let chosen: Vec<Labelled> = batch.iter().map(|&i| learned[i]).collect();
            let seed = rng.random();
            total += shards.loss(&chosen, &state.parameters, seed, Some(&mut gradient))?;
            let scale = 1.0 / batch.len() as f32;
            gradient.iter_mut().for_each(|g| *g *= scale);
            let rate = schedule.rate * cosine(epoch * steps + step, schedule.epochs * steps);
            state.adam.step(&mut state.parameters, &gradient, &decays, rate);
            let taken = state.adam.steps as f32;
            let share = (1.0 - schedule.memory).max(9.0 / (10.0 + taken));
            vector::approach(share, &state.parameters, &mut state.average);
            if step % 16 == 15 && !go_on(state, (step + 1) as f64 / steps as f64) {
                return Ok(());
            }
        }
        // The same seed, and so the same samples, after every epoch: epochs can be compared.
        let mut sum = 0.0;
        for part in held.chunks(256) {
            sum += shards.loss(part, &state.average, schedule.seed, None)?;
        }
        let mean = |sum: f64, n: usize| if n == 0 { 0.0 } else { sum / n as f64 };
        state
            .curve
            .push(Epoch { train: mean(total, learned.len()), validation: mean(sum, held.len()) });
        let best = state.best_epoch().unwrap_or(epoch);
        if best == epoch || held.is_empty() {
            state.best.clone_from(&state.average);
        }
        if !go_on(state, 0.0) {
            break;
        }
    }
    Ok(())
}

/// The buffers and the result of one shard, kept from batch to batch.
struct Shard<L: Learner> {
    scratch: L::Scratch,
    gradient: Vec<f32>,
    loss: Result<f64, FamilyError>,
}

/// Computes losses of batches, shard by shard, on several threads.
struct Shards<'a, L: Learner> {
    learner: &'a L,
    featurizer: &'a Featurizer,
    threads: usize,
    all: [Mutex<Shard<L>>; SHARDS],
}

impl<'a, L: Learner> Shards<'a, L> {
    fn new(learner: &'a L, featurizer: &'a Featurizer, threads: usize) -> Shards<'a, L> {
        let empty =
            |_| Shard { scratch: L::Scratch::default(), gradient: Vec::new(), loss: Ok(0.0) };
        let all = std::array::from_fn(|i| Mutex::new(empty(i)));
        Shards { learner, featurizer, threads, all }
    }

    /// The loss of a batch; its gradient is written to `gradient`, where there is one.
    fn loss(
        &self,
        batch: &[Labelled],
        parameters: &[f32],
        seed: u64,
        gradient: Option<&mut Vec<f32>>,
    ) -> Result<f64, FamilyError> {
        let parts: Vec<&[Labelled]> = batch.chunks(batch.len().div_ceil(SHARDS).max(1)).collect();
        let next = AtomicUsize::new(0);
        let wants = gradient.is_some();
        let work = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(part) = parts.get(i) else { break };
                let mut shard = lock(&self.all[i]);
                let Shard { scratch, gradient, loss } = &mut *shard;
                let mut rng = Generator::seed_from_u64(seed.wrapping_add(i as u64));
                let family = &self.featurizer.family;
                let instances: Result<Vec<_>, _> =
                    part.iter().map(|(c, p)| Ok((*c, family.instance(p)?))).collect();
                let g = wants.then(|| zeroed(gradient, parameters.len()));
                *loss = instances.and_then(|problems| {
                    let batch = Batch { featurizer: self.featurizer, problems: &problems };
                    self.learner.learn(parameters, batch, &mut rng, g, scratch)
                });
            }
        };
        std::thread::scope(|s| {
            for _ in 1..self.threads.min(parts.len()).max(1) {
                s.spawn(work);
            }
            work();
        });
        let mut total = 0.0;
        let mut sum: Option<&mut Vec<f32>> = gradient;
        for (i, shard) in self.all.iter().enumerate().take(parts.len()) {
            let shard = lock(shard);
            total += shard.loss.clone()?;
            match &mut sum {
                Some(sum) if i == 0 => sum.copy_from_slice(&shard.gradient),
                Some(sum) => vector::add(&shard.gradient, sum),
                None => {}
            }
        }
        Ok(total)
    }
}

/// Locks a mutex, poisoned or not: a panic of a thread is passed on by the scope before any other
/// code sees what it left half done.
fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
