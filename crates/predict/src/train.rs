//! The training loop that all networks share: batches cut into shards for the threads, AdamW under
//! a cosine, the loss on validation after every epoch, the best parameters kept. Shards are the
//! same however many threads there are, and their gradients are added in order, so a seed gives the
//! same network on one core as on sixteen.

use crate::case::{Case, Ground};
use crate::nn::{Adam, Layout, cosine, vector, zeroed};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use serde::{Deserialize, Serialize};
use squall_core::forecast::{FamilyError, Instance, Problem};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Parts of a batch, each a thread's work at a time.
const SHARDS: usize = 4;

/// Cases that are learned together.
#[derive(Clone, Copy)]
pub struct Lesson<'a> {
    /// What is known of the solver.
    pub ground: &'a Ground,
    /// The cases, each with the family for its problem.
    pub cases: &'a [(&'a Case, Instance<'a>)],
}

/// A network that learns cases.
pub trait Learner: Sync {
    /// Buffers of one thread.
    type Room: Default + Send;

    /// Its parameters.
    fn layout(&self) -> &Layout;

    /// The sum of the cases' losses; with `gradient` a training step, whose gradient is added.
    fn learn(
        &self,
        parameters: &[f32],
        lesson: Lesson,
        rng: &mut Generator,
        gradient: Option<&mut [f32]>,
        room: &mut Self::Room,
    ) -> Result<f64, FamilyError>;
}

/// How to train.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Passes over the training cases that the cosine is laid out for.
    pub epochs: usize,
    /// Passes that are made, at most: those, or fewer where others have shown how many are best.
    pub until: usize,
    /// Cases a step.
    pub batch: usize,
    /// Greatest step of AdamW.
    pub rate: f32,
    /// Weight decay.
    pub decay: f32,
    /// How much stays at each step of the running mean of parameters, which is what is looked at
    /// and kept (Polyak and Juditsky 1992): 0.995 looks back over some 200 steps, in the beginning
    /// over a ninth of those taken. 0 is no mean.
    pub memory: f32,
    /// Epochs without a better validation loss before training stops.
    pub patience: usize,
    /// Seed of parameters, order, drop-out and samples.
    pub seed: u64,
    /// Threads.
    pub threads: usize,
}

/// One epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Mean loss of training cases as they were learned.
    pub train: f64,
    /// Mean loss of validation cases after it; 0 where there were none.
    pub validation: f64,
}

/// Training in the middle: what a checkpoint holds.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Parameters now.
    pub parameters: Vec<f32>,
    /// Their running mean over the last steps: what is looked at and kept.
    pub average: Vec<f32>,
    /// The optimiser's state.
    pub adam: Adam,
    /// The best parameters so far; the last where nothing is held out to tell.
    pub best: Vec<f32>,
    /// Every epoch so far.
    pub curve: Vec<Epoch>,
}

impl State {
    /// Before the first epoch.
    pub fn new(layout: &Layout, schedule: &Schedule) -> State {
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

/// A case and the problem that it was made from.
pub type Pair<'a> = (&'a Case, &'a Problem);

/// Trains until the schedule ends, patience does, or `go_on` says no; it is asked after every epoch
/// and every few batches (with the epoch's share done), and may keep the state.
pub fn train<L: Learner>(
    learner: &L,
    ground: &Ground,
    cases: &[Pair],
    validation: &[Pair],
    schedule: &Schedule,
    state: &mut State,
    go_on: &mut dyn FnMut(&State, f64) -> bool,
) -> Result<(), FamilyError> {
    let decays = learner.layout().decays();
    let steps = cases.len().div_ceil(schedule.batch.max(1));
    let mut gradient = vec![0.0; state.parameters.len()];
    let desks = Desks::<L>::default();
    let patient = |s: &State| {
        s.best_epoch().is_none_or(|best| {
            validation.is_empty() || s.curve.len() - 1 - best < schedule.patience
        })
    };
    while state.curve.len() < schedule.until && patient(state) {
        let epoch = state.curve.len();
        let mut rng = Generator::seed_from_u64(
            schedule.seed ^ (epoch as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        );
        let mut order: Vec<usize> = (0..cases.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.random_range(0..=i));
        }
        let mut total = 0.0;
        for (step, batch) in order.chunks(schedule.batch.max(1)).enumerate() {
            let chosen: Vec<Pair> = batch.iter().map(|&i| cases[i]).collect();
            let loss = batch_loss(
                learner,
                ground,
                &chosen,
                &state.parameters,
                rng.random(),
                Some(&mut gradient),
                (schedule.threads, &desks),
            )?;
            total += loss;
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
        // The same samples every time, so that epochs can be compared.
        let mut held = 0.0;
        for part in validation.chunks(256) {
            held += batch_loss(
                learner,
                ground,
                part,
                &state.average,
                schedule.seed,
                None,
                (schedule.threads, &desks),
            )?;
        }
        let mean = |sum: f64, n: usize| if n == 0 { 0.0 } else { sum / n as f64 };
        state.curve.push(Epoch {
            train: mean(total, cases.len()),
            validation: mean(held, validation.len()),
        });
        let best = state.best_epoch().unwrap_or(epoch);
        if best == epoch || validation.is_empty() {
            state.best.clone_from(&state.average);
        }
        if !go_on(state, 0.0) {
            break;
        }
    }
    Ok(())
}

/// Where a shard is worked on: what it needs and gives, kept from batch to batch.
struct Desk<L: Learner> {
    room: L::Room,
    gradient: Vec<f32>,
    loss: Result<f64, FamilyError>,
}

/// A desk for each shard of a batch.
struct Desks<L: Learner>([Mutex<Desk<L>>; SHARDS]);

impl<L: Learner> Default for Desks<L> {
    fn default() -> Self {
        Desks(std::array::from_fn(|_| {
            Mutex::new(Desk { room: L::Room::default(), gradient: Vec::new(), loss: Ok(0.0) })
        }))
    }
}

/// The loss of a batch, and its gradient where there is room for one.
fn batch_loss<L: Learner>(
    learner: &L,
    ground: &Ground,
    batch: &[Pair],
    parameters: &[f32],
    seed: u64,
    gradient: Option<&mut Vec<f32>>,
    (threads, desks): (usize, &Desks<L>),
) -> Result<f64, FamilyError> {
    let shards: Vec<&[Pair]> = batch.chunks(batch.len().div_ceil(SHARDS).max(1)).collect();
    let next = AtomicUsize::new(0);
    let wants = gradient.is_some();
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(shard) = shards.get(i) else { break };
            let mut desk = lock(&desks.0[i]);
            let Desk { room, gradient, loss } = &mut *desk;
            let mut rng = Generator::seed_from_u64(seed.wrapping_add(i as u64));
            let instances: Result<Vec<_>, _> =
                shard.iter().map(|(c, p)| Ok((*c, ground.family.instance(p)?))).collect();
            let g = wants.then(|| zeroed(gradient, parameters.len()));
            *loss = instances.and_then(|cases| {
                learner.learn(parameters, Lesson { ground, cases: &cases }, &mut rng, g, room)
            });
        }
    };
    std::thread::scope(|s| {
        for _ in 1..threads.min(shards.len()).max(1) {
            s.spawn(work);
        }
        work();
    });
    let mut total = 0.0;
    let mut sum: Option<&mut Vec<f32>> = gradient;
    for (i, desk) in desks.0.iter().enumerate().take(shards.len()) {
        let desk = lock(desk);
        total += desk.loss.clone()?;
        match &mut sum {
            Some(sum) if i == 0 => sum.copy_from_slice(&desk.gradient),
            Some(sum) => vector::add(&desk.gradient, sum),
            None => {}
        }
    }
    Ok(total)
}

/// A thread that panicked passes its panic on through the scope, so nobody meets its half-done
/// work.
fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
