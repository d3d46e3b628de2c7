//! The run-off of whole networks: decides between close kernels of a model in place, because a
//! kernel that is as fast as another alone may be slower between its neighbours, whose data fill
//! the caches. Input: a model and a store whose tasks have close candidates; output: records that
//! say which candidate is faster in place.
//!
//! Two networks are built, one of the tasks' winners and one of their closest rivals, and run in
//! turns in fresh processes. A sequential test decides task by task. A third network, of the faster
//! kernel of each pair, then meets the first as a whole; only if it is not slower do records go to
//! the store. `decide/tune.rs` and `decide/run_off.rs` call this.

use crate::base::error::Error;
use crate::base::recorder::{RecordedTask, Recorder};
use crate::inference::check::Loss;
use crate::inference::network::{Network, Times};
use crate::input::precision::Precision;
use crate::input::user_input::Input;
use crate::predict::choose::{Chosen, Closeness, Origin, kernels_of, rivals};
use crate::predict::guess::GuessRequest;
use crate::target::target_context::TargetContext;
use crate::task::event::{Event, Listen};
use squall_core::{
    CpuCost, DeviceIdentity, Measurement, Nanos, Outcome, Record, RecordKind, Task, TaskId, Verdict,
};
use squall_measure::rematch::Sequential;
use squall_records::{Name, Place, Store};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Candidates whose times lie within this share of the winner's are close.
const MARGIN: f64 = 0.05;
/// The most rivals of a task that meet its winner, one after the other.
const RIVALS: usize = 3;
/// The most pairs of processes that decide between two networks.
const PAIRS: usize = 48;
/// For how long a process repeats the network, in seconds; two inferences are made at least.
const WINDOW: f64 = 0.15;
/// Outputs of two networks of right kernels differ by rounding alone: by so much, as the root of
/// the mean square relative to that of the values, in f32 and in shorter formats.
const ROUNDING: [f64; 2] = [1e-3, 5e-2];

/// What a run-off needs: the model, its store and its device.
pub(crate) struct NetworkRunOff<'a> {
    pub input: &'a Input,
    pub guess: &'a GuessRequest,
    pub store: &'a Store,
    pub at: &'a TargetContext,
    /// When no further pair is run.
    pub end: Instant,
    pub stop: &'a AtomicBool,
}

/// The result of a run-off of networks.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Close candidates that were tried in place.
    pub met: usize,
    /// The tasks that a candidate took, with its time over the former winner's, in place.
    pub taken: Vec<(String, f64)>,
    /// The network's time with them over that without.
    pub ratio: f64,
}

/// A task's winner and a close candidate.
struct Pair {
    /// The number of the task's kernel in the network.
    kernel: usize,
    /// The candidate, as its records name it.
    name: Name,
    rival: Chosen,
}

/// Times of two networks that ran in turns, under sequential tests.
struct Turns {
    tasks: Vec<TaskTurns>,
    whole: Sequential,
    /// The times of whole inferences of both.
    times: [Vec<Nanos>; 2],
}

/// The result of two networks that met as a whole.
pub(crate) struct WholeMet {
    /// Of the second; none where the time was over before.
    pub verdict: Option<Verdict>,
    /// Its time over that of the first.
    pub ratio: f64,
    /// The times of whole inferences of both.
    pub times: [Vec<Nanos>; 2],
}

/// Times of a task's steps in both networks, in nanoseconds a call.
struct TaskTurns {
    task: TaskId,
    /// Nothing, where its steps have no times.
    test: Option<Sequential>,
    times: [Vec<Nanos>; 2],
}

/// The mean time of a task's steps between their neighbours.
fn of_task(times: &Times, task: TaskId) -> f64 {
    let own: Vec<f64> = times
        .layers
        .iter()
        .filter(|l| l.task == Some(task))
        .map(|l| l.in_place_ns as f64)
        .collect();
    own.iter().sum::<f64>() / own.len().max(1) as f64
}

impl Turns {
    fn new(tasks: impl Iterator<Item = TaskId>) -> Turns {
        let turns = |task| TaskTurns {
            task,
            test: Some(Sequential::new(PAIRS)),
            times: Default::default(),
        };
        let (tasks, whole) = (tasks.map(turns).collect(), Sequential::new(PAIRS));
        Turns { tasks, whole, times: Default::default() }
    }

    /// A turn of both networks.
    fn give(&mut self, a: &Times, b: &Times) {
        for t in &mut self.tasks {
            let both = [a, b].map(|times| of_task(times, t.task));
            if both.contains(&0.0) {
                t.test = None;
            }
            let Some(test) = &mut t.test else { continue };
            test.give(both[0], both[1]);
            t.times.iter_mut().zip(both).for_each(|(all, ns)| all.push(Nanos(ns)));
        }
        let both = [a, b].map(|t| t.best_ns as f64);
        self.whole.give(both[0], both[1]);
        self.times.iter_mut().zip(both).for_each(|(all, ns)| all.push(Nanos(ns)));
    }

    /// Whether some test wants more: those of the tasks, or that of the whole where there are none.
    fn is_open(&self) -> bool {
        match self.tasks.is_empty() {
            true => self.whole.wanted() > 0,
            false => self.tasks.iter().filter_map(|t| t.test.as_ref()).any(|t| t.wanted() > 0),
        }
    }
}

impl NetworkRunOff<'_> {
    /// Holds it; nothing, where no candidate comes close to any winner.
    pub fn hold(&self, listen: &mut Listen<'_>) -> Result<Option<Settled>, Error> {
        let tasks: Vec<&Task> = self.input.tasks().iter().collect();
        let mut held = kernels_of(self.guess, &tasks, Some(self.store), self.at, listen)?;
        let mut network = self.network(&held)?;
        let times = network.time(&network.random_inputs(&[]), WINDOW)?.1;
        let mut close = Vec::new();
        for kernel in &held {
            let in_place = Nanos(of_task(&times, kernel.task.id));
            let closeness = Closeness { margin: MARGIN, in_place, most: RIVALS };
            close.push(rivals(kernel, self.store, self.at, closeness)?);
        }
        if close.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        let mut settled = Settled { met: 0, taken: Vec::new(), ratio: 1.0 };
        for round in 0..RIVALS {
            let pair = |(kernel, all): (usize, &Vec<(Name, Chosen)>)| {
                let (name, rival) = all.get(round)?.clone();
                Some(Pair { kernel, name, rival })
            };
            let pairs: Vec<Pair> = close.iter().enumerate().filter_map(pair).collect();
            if pairs.is_empty() || self.is_over() {
                break;
            }
            if let Some(next) = self.round(&network, &mut held, &pairs, &mut settled, listen)? {
                network = next;
            }
        }
        Ok(Some(settled))
    }

    fn network(&self, kernels: &[Chosen]) -> Result<Network, Error> {
        Network::build(self.input, None, self.at, &mut |_| Ok(kernels.to_vec()))
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || Instant::now() >= self.end
    }

    /// Lets one candidate of each task meet its winner in `network`. The network of the faster of
    /// each, where it is another.
    fn round(
        &self,
        network: &Network,
        held: &mut Vec<Chosen>,
        pairs: &[Pair],
        settled: &mut Settled,
        listen: &mut Listen<'_>,
    ) -> Result<Option<Network>, Error> {
        let all: Vec<usize> = (0..pairs.len()).collect();
        let challenger = self.network(&with(held, pairs, &all))?;
        if let Some(why) = self.differs(network, &challenger)? {
            listen(Event::Trouble(why));
            return Ok(None);
        }
        // What is found to be faster must have the time to be tried as a whole.
        let half = Instant::now() + self.end.saturating_duration_since(Instant::now()) / 2;
        let tasks = pairs.iter().map(|p| p.rival.task.id);
        let turns = self.turns(network, &challenger, tasks, half)?;
        let test = |i: &usize| turns.tasks[*i].test.as_ref();
        let says = |i: &usize, verdict| test(i).and_then(Sequential::verdict) == Some(verdict);
        let faster: Vec<usize> = all.iter().copied().filter(|i| says(i, Verdict::Faster)).collect();
        let next = match faster.is_empty() || self.is_over() {
            true => None,
            false => Some(self.network(&with(held, pairs, &faster))?),
        };
        let alone = |n| self.turns(network, n, std::iter::empty(), self.end);
        let whole = next.as_ref().map(alone).transpose()?;
        let whole = whole.map(|w| (w.whole.verdict(), w.whole.ratio()));
        // A network of faster steps that is slower shows that they are not what they seemed. Where
        // the time is over before that is known, they stay open.
        let is_taken = matches!(whole, Some((Some(Verdict::Faster | Verdict::Tie), _)));
        let is_open = matches!(whole, None | Some((None, _)));
        for i in all {
            let is_faster = says(&i, Verdict::Faster);
            let Some(test) = test(&i).filter(|t| t.verdict().is_some()) else { continue };
            if is_faster && is_open {
                continue;
            }
            let (pair, ratio) = (&pairs[i], test.ratio());
            self.keep(&held[pair.kernel], pair, &turns.tasks[i], is_faster && is_taken)?;
            settled.met += 1;
            if is_faster && is_taken {
                settled.taken.push((pair.rival.task.name.clone(), ratio));
            }
        }
        if !is_taken {
            return Ok(None);
        }
        *held = with(held, pairs, &faster);
        settled.ratio *= whole.map_or(1.0, |w| w.1);
        Ok(next)
    }

    /// Lets two networks meet as a whole.
    pub fn meet(&self, a: &Network, b: &Network) -> Result<WholeMet, Error> {
        let Turns { whole, times, .. } = self.turns(a, b, std::iter::empty(), self.end)?;
        Ok(WholeMet { verdict: whole.verdict(), ratio: whole.ratio(), times })
    }

    /// Why two networks of right kernels do not give the same, if they do not.
    pub fn differs(&self, a: &Network, b: &Network) -> Result<Option<String>, Error> {
        let inputs = a.random_inputs(&[]);
        let mut loss = Loss::default();
        loss.add(&b.run(&inputs)?.0, &a.run(&inputs)?.0);
        let most = ROUNDING[usize::from(self.input.precision() != Precision::F32)];
        Ok((loss.relative > most).then(|| {
            format!(
                "networks of a model's fastest kernels and of close ones differ by {:.1e} of their \
                 outputs: their times are not compared; please report this",
                loss.relative
            )
        }))
    }

    /// Runs both in turns, each in a process of its own, until all is decided or the time is over.
    fn turns(
        &self,
        a: &Network,
        b: &Network,
        tasks: impl Iterator<Item = TaskId>,
        end: Instant,
    ) -> Result<Turns, Error> {
        let mut turns = Turns::new(tasks);
        let inputs = a.random_inputs(&[]);
        let time = |n: &Network| n.time(&inputs, WINDOW).map(|t| t.1);
        for pair in 0.. {
            if !turns.is_open() || self.is_over() || Instant::now() >= end {
                break;
            }
            // Either comes first as often.
            let (first, second) = if pair % 2 == 0 { (a, b) } else { (b, a) };
            let (one, other) = (time(first)?, time(second)?);
            let (x, y) = if pair % 2 == 0 { (one, other) } else { (other, one) };
            turns.give(&x, &y);
        }
        Ok(turns)
    }

    /// Keeps what the network said of a pair, the winner last.
    fn keep(
        &self,
        held: &Chosen,
        pair: &Pair,
        turns: &TaskTurns,
        is_taken: bool,
    ) -> Result<(), Error> {
        let Origin::Tuned(record) = &held.origin else { return Ok(()) };
        let holder = (record.tunable.clone(), record.configuration.clone());
        let both = [(&holder, &turns.times[0]), (&pair.name, &turns.times[1])];
        let recorder = self.recorder(record);
        keep_both(&recorder, &(&held.task).into(), RecordKind::Network, both, is_taken)
    }

    /// Writes where the winner's record stands: of warm or of cold caches.
    fn recorder(&self, winner: &Record) -> Recorder<'_> {
        let device = DeviceIdentity::parse(&winner.device);
        let place = Place { device, toolchain: winner.toolchain.clone() };
        Recorder { store: self.store, place, seed: winner.seed }
    }
}

/// Keeps the times of two that ran in turns, those of the winner last: of the second where it is
/// taken.
pub(crate) fn keep_both(
    recorder: &Recorder<'_>,
    task: &RecordedTask,
    kind: RecordKind,
    mut both: [(&Name, &Vec<Nanos>); 2],
    is_taken: bool,
) -> Result<(), Error> {
    if !is_taken {
        both.reverse();
    }
    for (name, samples) in both {
        let measured =
            Measurement { samples: samples.clone(), calls: 1, error: 0.0, gpu: None, pace: None };
        let outcome = Outcome::Measured(measured);
        recorder.keep_of(task.clone(), kind, name, outcome, CpuCost::default())?;
    }
    Ok(())
}

/// Kernels with these of the candidates in the place of their winners.
fn with(held: &[Chosen], pairs: &[Pair], which: &[usize]) -> Vec<Chosen> {
    let mut kernels = held.to_vec();
    which.iter().for_each(|i| kernels[pairs[*i].kernel] = pairs[*i].rival.clone());
    kernels
}

impl Settled {
    /// The sentence for the user.
    pub fn note(&self) -> String {
        let (met, candidates) = (self.met, if self.met == 1 { "candidate" } else { "candidates" });
        if self.taken.is_empty() {
            return format!(
                "{met} close {candidates} were tried in the whole network: none is faster \
                            there"
            );
        }
        let taken: Vec<String> =
            self.taken.iter().map(|(name, r)| format!("{name} ({:.2}x)", 1.0 / r)).collect();
        format!(
            "{met} close {candidates} were tried in the whole network: {} faster there, {}; it is \
             {:.2}x as fast with {}",
            if taken.len() == 1 { "one is".into() } else { format!("{} are", taken.len()) },
            taken.join(", "),
            1.0 / self.ratio,
            if taken.len() == 1 { "it" } else { "them" }
        )
    }
}
