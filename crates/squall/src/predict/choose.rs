//! Chooses the kernel that is used for a task: for an export, a network (`network/mod.rs`) or
//! advice. Input: a task and a store of records; output: a [`Chosen`] kernel source with its
//! [`Origin`]. The order of preference is: the store's best for this device and toolchain (times
//! with warm caches before times with cold ones); the best of another device or toolchain whose
//! kernel can be made here; a verified guess (`guess.rs`); plain loops, where no other kernel can
//! be generated or is right.

use crate::base::error::Error;
use crate::predict::counts::KernelCounts;
use crate::predict::guess::{Beginning, GuessRequest, GuessSource, Guesser, Guessing};
use crate::target::target_context::TargetContext;
use crate::task::event::Listen;
use crate::task::task_kernels::TaskKernels;
use crate::task::task_state::{TaskState, name_of};
use squall_compiler::on_all_cores;
use squall_core::{
    Candidate, DeviceIdentity, KernelSource, Nanos, Record, RecordKind, Task, Tunable, find_tunable,
};
use squall_frontend::UserKernel;
use squall_measure::cpu::{Ahead, SharedSource, while_compiling};
use squall_records::{Entry, Name, Query, Store};
use std::collections::HashSet;
use std::sync::Arc;

/// How a kernel was chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Measured on this device with this toolchain.
    Tuned(Box<Record>),
    /// Measured elsewhere or with another toolchain: right, but perhaps not the fastest here.
    Elsewhere(Box<Record>),
    /// Never tuned: the fastest of a few guesses, which were verified on this device.
    Guessed(Box<Record>, GuessSource),
    /// Plain loops: nothing better can be made.
    Plain,
}

impl Origin {
    /// The record, if there is one.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Origin::Tuned(r) | Origin::Elsewhere(r) | Origin::Guessed(r, _) => Some(r),
            Origin::Plain => None,
        }
    }

    /// The time that it was measured with; none where it never was, or under an emulator only.
    pub fn time(&self) -> Option<Nanos> {
        let r = self.record()?;
        r.outcome.time().filter(|_| !DeviceIdentity::parse(&r.device).is_emulated())
    }

    /// `tuned`, `guessed` or `plain`.
    pub fn name(&self) -> &'static str {
        match self {
            Origin::Tuned(r) | Origin::Elsewhere(r) if !r.is_untuned() => "tuned",
            Origin::Guessed(..) => "guessed",
            _ => "plain",
        }
    }
}

impl KernelCounts {
    /// Counts kernels by their origin.
    pub fn of(kernels: &[Chosen]) -> KernelCounts {
        let count = |name| kernels.iter().filter(|k| k.origin.name() == name).count();
        KernelCounts {
            kernels: kernels.len(),
            tuned: count("tuned"),
            guessed: count("guessed"),
            plain: count("plain"),
        }
    }
}

/// A task's kernel.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The task.
    pub task: Task,
    /// The kernel; its symbol is the name of its source file.
    pub source: KernelSource,
    /// Plain loops in double precision with the same interface, for checking.
    pub reference: KernelSource,
    /// Where it comes from.
    pub origin: Origin,
}

/// The kernels of some tasks. Where guesses must be measured, all sources are compiled on the free
/// cores meanwhile.
pub fn choose(
    tasks: &[&Task],
    own: &[UserKernel],
    store: Option<&Store>,
    guesser: &mut Guesser<'_, '_, '_>,
) -> Result<Vec<Chosen>, Error> {
    let at = guesser.at;
    let made = on_all_cores(tasks, |task| TaskKernels::new(task, own, &at.target));
    let mut choices = Vec::new();
    for (task, kernels) in tasks.iter().zip(made) {
        choices.push(Choice::new(TaskState::new(task, kernels?), store, guesser)?);
    }
    let asker = guesser.asker();
    let asked = choices.iter().map(|c| match &c.begun {
        Some(begun) if begun.asks => Some(&c.state),
        _ => None,
    });
    let answers = on_all_cores(&asked.collect::<Vec<Option<&TaskState<'_>>>>(), |state| {
        state.map_or_else(Vec::new, |s| asker.answers(s))
    });
    choices.iter_mut().zip(answers).for_each(|(c, answers)| c.finish(answers, guesser));
    let sources = if choices.iter().any(Choice::is_open) {
        // What is measured first is compiled first; kernels that are known can wait.
        let open = choices.iter().flat_map(Choice::unverified);
        let known = choices.iter().filter_map(|c| c.found.as_ref().map(|(s, _)| s.clone()));
        let mut texts = HashSet::new();
        open.chain(known)
            .filter(|s| !s.language.is_launched() && texts.insert(s.source.clone()))
            .collect()
    } else {
        Vec::new()
    };
    let is_timed =
        choices.iter().any(|c| c.is_open() && c.guessing.as_ref().is_some_and(|g| g.is_timed));
    let ahead = if is_timed { Ahead::OnSpareCores } else { Ahead::OnAllCores };
    while_compiling(&at.device, &at.toolchain, &sources, ahead, || {
        choices.into_iter().map(|choice| choice.settle(guesser)).collect()
    })
}

/// The kernels of a model's tasks, guessed as is asked for where the store has none.
pub(crate) fn kernels_of(
    guess: &GuessRequest,
    tasks: &[&Task],
    store: Option<&Store>,
    at: &TargetContext,
    listen: &mut Listen<'_>,
) -> Result<Vec<Chosen>, Error> {
    let mut guesser = Guesser::new(guess, tasks, store, at, listen)?;
    choose(tasks, &[], store, &mut guesser)
}

/// A task whose kernel is being chosen.
struct Choice<'t> {
    state: TaskState<'t>,
    /// The name under which the host's programs call the kernel.
    entry: String,
    /// The store's kernel.
    found: Option<(KernelSource, Origin)>,
    /// Where the store has no kernel: first the guesses that are begun, and then the finished list
    /// of guesses to try. At most one of the two is there.
    begun: Option<Beginning>,
    guessing: Option<Guessing>,
}

impl<'t> Choice<'t> {
    fn new(
        mut state: TaskState<'t>,
        store: Option<&Store>,
        guesser: &mut Guesser<'_, '_, '_>,
    ) -> Result<Choice<'t>, Error> {
        let at = guesser.at;
        let entry = entry_of(&state.symbol, at);
        let is_guessable = guesser.takes(&state);
        let found = match store {
            Some(s) => serving(&state, s, at, &entry, is_guessable)?,
            None => None,
        };
        let found = found.map(|(source, r, is_here)| {
            let r = Box::new(r);
            (source, if is_here { Origin::Tuned(r) } else { Origin::Elsewhere(r) })
        });
        let begun = match found {
            None if is_guessable => Some(guesser.begin(&mut state)?),
            _ => None,
        };
        Ok(Choice { state, entry, found, begun, guessing: None })
    }

    /// Finishes the list of guesses: the begun ones and the general predictor's answers.
    fn finish(&mut self, answers: Vec<Candidate>, guesser: &Guesser<'_, '_, '_>) {
        let begun = self.begun.take();
        self.guessing = begun.map(|b| guesser.finished(b, answers, &mut self.state));
    }

    /// Whether guesses must be measured.
    fn is_open(&self) -> bool {
        self.guessing.as_ref().is_some_and(|g| g.next().next().is_some())
    }

    /// The sources that measuring the guesses needs.
    fn unverified(&self) -> Vec<KernelSource> {
        let Some(guessing) = self.guessing.as_ref().filter(|_| self.is_open()) else {
            return Vec::new();
        };
        let reference = self.state.setup(0).reference.kernel;
        let reference = reference.map(|k| SharedSource::of(&k).map_or(k, |shared| shared.source));
        let guesses = guessing.next().filter_map(|c| self.state.source(&name_of(c)));
        reference.into_iter().chain(guesses).collect()
    }

    /// The kernel, measured if need be.
    fn settle(mut self, guesser: &mut Guesser<'_, '_, '_>) -> Result<Chosen, Error> {
        let at = guesser.at;
        let task = self.state.task;
        let guessed = match self.guessing.take() {
            Some(guessing) => guesser.guess(&mut self.state, guessing)?,
            None => None,
        };
        let kernels = &self.state.kernels;
        let guessed = guessed.and_then(|(record, from)| {
            let source = realize_record(&kernels.tunables, &record, &self.entry)?;
            Some((source, Origin::Guessed(Box::new(record), from)))
        });
        let (source, origin) = match self.found.or(guessed) {
            Some(found) => found,
            None => {
                let plain = &kernels.plain;
                let source = plain.realize(&plain.space().nth(0), &self.entry);
                let fail =
                    |e| Error::Nothing(format!("`{}` cannot be made untuned: {e}", task.name));
                (source.map_err(fail)?, Origin::Plain)
            }
        };
        let symbol = self.state.symbol;
        let is_of_gpu = !at.gpus.is_empty() && kernels.is_reference_cuda();
        let entry = format!("{symbol}_reference{}", if is_of_gpu { "_gpu" } else { "" });
        let Some(reference) = kernels.reference(task, &entry).kernel else {
            return Err(no_reference(task));
        };
        let source = KernelSource { symbol: symbol.clone(), ..source };
        // Without OpenMP it computes the same on one core.
        let openmp = reference.openmp && at.toolchain.openmp();
        let reference = KernelSource { symbol: format!("{symbol}_reference"), openmp, ..reference };
        Ok(Chosen { task: task.clone(), source, reference, origin })
    }
}

fn no_reference(task: &Task) -> Error {
    Error::Input {
        place: task.name.clone(),
        message: "its right results stand in files, and an export checks itself against a second \
                  function"
            .into(),
        hint: "name a function as the reference, or take the winner's values from `squall \
               records best` into your own build"
            .into(),
    }
}

/// The kernel of the record that serves a task, and whether that was made here.
pub(crate) fn serving(
    state: &TaskState,
    store: &Store,
    at: &TargetContext,
    entry: &str,
    is_guessable: bool,
) -> Result<Option<(KernelSource, Record, bool)>, Error> {
    let tunables =
        [&state.kernels.tunables[..], std::slice::from_ref(&state.kernels.plain)].concat();
    let kernels = &state.kernels;
    let mut accept = |e: Entry<'_>| {
        let is_near = DeviceIdentity::parse(e.device).machine == at.place.device.machine;
        let (tunable, configuration) = e.candidate;
        kernels.accepts(tunable, configuration, e.time.filter(|_| is_near))
    };
    let query = Query::task(state.task.id);
    for (near, r) in store.serving_of(&query, &at.place, &mut accept)? {
        // Plain loops that met no other kernel hold the task only because nothing was tried.
        if is_guessable && r.is_untuned() && !has_trial(store, &r)? {
            continue;
        }
        let Some(source) = realize_record(&tunables, &r, entry) else { continue };
        return Ok(Some((source, r, near.is_here())));
    }
    Ok(None)
}

/// Whether any trial of a record's task ran where the record was made.
fn has_trial(store: &Store, r: &Record) -> Result<bool, Error> {
    let trials = store.trials(r.task, &r.device, &r.toolchain)?;
    Ok(trials.iter().any(|t| t.kind == RecordKind::Trial && t.outcome.time().is_some()))
}

fn realize_record(tunables: &[Arc<dyn Tunable>], r: &Record, symbol: &str) -> Option<KernelSource> {
    if !r.outcome.is_right() {
        return None;
    }
    realize(tunables, &r.tunable, &r.configuration, symbol)
}

fn realize(
    tunables: &[Arc<dyn Tunable>],
    tunable: &str,
    configuration: &str,
    symbol: &str,
) -> Option<KernelSource> {
    let tunable = find_tunable(tunables, tunable)?;
    tunable.realize(&tunable.space().parse(configuration).ok()?, symbol).ok()
}

/// The name without an ending is the launcher's, which the host calls.
fn entry_of(symbol: &str, at: &TargetContext) -> String {
    format!("{symbol}{}", if at.gpus.is_empty() { "" } else { "_gpu" })
}

/// Which candidates meet a winner in the whole network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closeness {
    /// Candidates whose times lie within this share of the winner's.
    pub margin: f64,
    /// The winner's time in the network. Where that is much more than alone, the fastest of each
    /// other sketch that is faster alone than the winner is there comes first: what the winner
    /// reads may not stay in caches, and other sketches read less.
    pub in_place: Nanos,
    /// The most candidates that count as close.
    pub most: usize,
}

/// A winner is slow in its network if it takes this many times its time alone; then it meets
/// candidates of this many other sketches.
const SLOW_IN_PLACE: f64 = 1.25;
const OTHERS: usize = 2;

/// Kernels of a tuned kernel's task that come close to it by what the store says, each with its
/// name in records. Those that a whole network decided about are left out.
pub(crate) fn rivals(
    kernel: &Chosen,
    store: &Store,
    at: &TargetContext,
    close: Closeness,
) -> Result<Vec<(Name, Chosen)>, Error> {
    let Origin::Tuned(held) = &kernel.origin else { return Ok(Vec::new()) };
    let kernels = TaskKernels::new(&kernel.task, &[], &at.target)?;
    let mut state = TaskState::new(&kernel.task, kernels);
    let records = store.trials(held.task, &held.device, &held.toolchain)?;
    state.learn(records.clone());
    let Some(holder) = state.kernels.candidate(&held.tunable, &held.configuration) else {
        return Ok(Vec::new());
    };
    let holder = name_of(&holder);
    let Some(time) = state.standings.time(&holder) else { return Ok(Vec::new()) };
    let ranking: Vec<(Name, f64)> =
        state.standings.ranking().into_iter().map(|(n, ns)| (n.clone(), ns.0 / time.0)).collect();
    let mut found: Vec<(Name, Chosen)> = Vec::new();
    let in_place = close.in_place.0 / time.0;
    for name in in_turn(&ranking, &holder, close.margin, in_place) {
        if found.len() == close.most {
            break;
        }
        let has_met = |n| state.standings.has_met_in_network(n);
        if has_met(name) && has_met(&holder) {
            continue;
        }
        let stored = state.stored_name(name);
        let is_its = |r: &&Record| (&r.tunable, &r.configuration) == (&stored.0, &stored.1);
        let Some(record) = records.iter().rev().filter(|r| r.outcome.is_right()).find(is_its)
        else {
            continue;
        };
        let tunables = &state.kernels.tunables;
        let entry = entry_of(&state.symbol, at);
        let Some(source) = realize(tunables, &name.0, &name.1, &entry) else { continue };
        let source = KernelSource { symbol: state.symbol.clone(), ..source };
        // Another name for the same code would only measure the machine.
        let is_new = |s: &KernelSource| s.source != source.source;
        if is_new(&kernel.source) && found.iter().all(|(_, k)| is_new(&k.source)) {
            let origin = Origin::Tuned(Box::new(record.clone()));
            found.push((stored.clone(), Chosen { source, origin, ..kernel.clone() }));
        }
    }
    Ok(found)
}

/// The names of candidates that come close to `holder`, of all in the order of their times over
/// its time: those within a margin, and where its time in the network is much, the fastest of other
/// sketches ahead of them.
fn in_turn<'a>(
    ranking: &'a [(Name, f64)],
    holder: &Name,
    margin: f64,
    in_place: f64,
) -> Vec<&'a Name> {
    let mut sketches = vec![&holder.0];
    let mut list = Vec::new();
    if in_place >= SLOW_IN_PLACE {
        for (name, _) in ranking.iter().filter(|(_, time)| *time < in_place) {
            if list.len() < OTHERS && !sketches.contains(&&name.0) {
                sketches.push(&name.0);
                list.push(name);
            }
        }
    }
    let near = ranking.iter().filter(|(_, time)| *time <= 1.0 + margin).map(|(n, _)| n);
    for name in near.filter(|n| *n != holder) {
        if !list.contains(&name) {
            list.push(name);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_sketches_meet_a_winner_that_is_slow_in_its_network() {
        let name = |s: &str, c: &str| (s.to_string(), c.to_string());
        let ranking = [
            (name("winograd", "a"), 1.0),
            (name("winograd", "b"), 1.02),
            (name("tile", "c"), 1.2),
            (name("tile", "d"), 1.3),
            (name("plain", "e"), 2.4),
        ];
        let holder = name("winograd", "a");
        let names = |in_place| {
            let list = in_turn(&ranking, &holder, 0.05, in_place);
            list.into_iter().map(|n| n.1.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names(1.1), ["b"]);
        assert_eq!(names(2.0), ["c", "b"]);
        assert_eq!(names(3.0), ["c", "e", "b"]);
    }
}
