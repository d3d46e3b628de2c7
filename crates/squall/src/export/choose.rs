//! Which kernel of a task is shipped: the store's best for this device and toolchain, those timed
//! with warm caches before those with cold ones, else the best of another that can be made here
//! too, else a verified guess, and plain loops only where no kernel is generated or right.

use super::guess::{GuessSource, Guesser};
use crate::error::Error;
use crate::target_context::TargetContext;
use crate::task_kernels::TaskKernels;
use crate::task_state::TaskState;
use squall_core::{KernelSource, Outcome, Record, RecordKind, Task, Tunable, find_tunable};
use squall_frontend::UserKernel;
use squall_records::{Query, Store};

/// Where a kernel comes from.
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

    /// `tuned`, `guessed` or `plain`.
    pub fn name(&self) -> &'static str {
        match self {
            Origin::Tuned(r) | Origin::Elsewhere(r) if !r.is_untuned() => "tuned",
            Origin::Guessed(..) => "guessed",
            _ => "plain",
        }
    }
}

/// How many kernels were tuned, and how many not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// All of them.
    pub kernels: usize,
    /// Those that the store knows.
    pub tuned: usize,
    /// Those that are verified guesses.
    pub guessed: usize,
    /// Those that are plain loops.
    pub plain: usize,
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

impl std::fmt::Display for KernelCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let KernelCounts { kernels, tuned, guessed, plain } = self;
        write!(f, "{kernels} kernels: {tuned} tuned, {guessed} guessed, {plain} plain loops")
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

/// The kernels of some tasks.
pub fn choose(
    tasks: &[&Task],
    own: &[UserKernel],
    store: Option<&Store>,
    guesser: &mut Guesser<'_, '_, '_>,
) -> Result<Vec<Chosen>, Error> {
    tasks.iter().map(|task| chosen(task, own, store, guesser)).collect()
}

fn chosen(
    task: &Task,
    own: &[UserKernel],
    store: Option<&Store>,
    guesser: &mut Guesser<'_, '_, '_>,
) -> Result<Chosen, Error> {
    let at = guesser.at;
    let gpu = !at.gpus.is_empty();
    let mut state = TaskState::new(task, TaskKernels::new(task, own, &at.target)?);
    let symbol = symbol(task);
    // The name without an ending is the launcher's, which the host calls.
    let entry = if gpu { format!("{symbol}_gpu") } else { symbol.clone() };
    let is_guessable = guesser.takes(&state);
    let stored = match store {
        Some(s) => stored(&state, s, at, &entry, is_guessable)?,
        None => None,
    };
    let (source, origin) = match stored {
        Some(found) => found,
        None => match if is_guessable { guessed(&mut state, guesser, &entry)? } else { None } {
            Some(found) => found,
            None => {
                let plain = &state.kernels.plain;
                let source = plain.realize(&plain.space().nth(0), &entry);
                let fail =
                    |e| Error::Nothing(format!("`{}` cannot be made untuned: {e}", task.name));
                (source.map_err(fail)?, Origin::Plain)
            }
        },
    };
    let of_gpu = if gpu && state.kernels.is_reference_cuda() { "_gpu" } else { "" };
    let Some(reference) =
        state.kernels.reference(task, &format!("{symbol}_reference{of_gpu}")).kernel
    else {
        return Err(Error::Input {
            place: task.name.clone(),
            message: "its right results stand in files, and an export checks itself against a \
                      second function"
                .into(),
            hint: "name a function as the reference, or take the winner's values from `squall \
                   records best` into your own build"
                .into(),
        });
    };
    let source = KernelSource { symbol: symbol.clone(), ..source };
    // Without OpenMP it computes the same on one core.
    let openmp = reference.openmp && at.toolchain.openmp();
    let reference = KernelSource { symbol: format!("{symbol}_reference"), openmp, ..reference };
    Ok(Chosen { task: task.clone(), source, reference, origin })
}

/// The kernel of the record that serves a task.
fn stored(
    state: &TaskState,
    store: &Store,
    at: &TargetContext,
    entry: &str,
    is_guessable: bool,
) -> Result<Option<(KernelSource, Origin)>, Error> {
    let tunables =
        [&state.kernels.tunables[..], std::slice::from_ref(&state.kernels.plain)].concat();
    for (near, r) in store.serving(&Query::task(state.task.id), &at.place)? {
        // Plain loops that met no other kernel hold the task only because nothing was tried.
        if is_guessable && r.is_untuned() && !has_trial(store, &r)? {
            continue;
        }
        let Some(source) = realize(&tunables, &r, entry) else { continue };
        let r = Box::new(r);
        let origin = if near.is_here() { Origin::Tuned(r) } else { Origin::Elsewhere(r) };
        return Ok(Some((source, origin)));
    }
    Ok(None)
}

/// Whether any trial of a record's task ran where the record was made.
fn has_trial(store: &Store, r: &Record) -> Result<bool, Error> {
    let trials = store.trials(r.task, &r.device, &r.toolchain)?;
    Ok(trials.iter().any(|t| t.kind == RecordKind::Trial && t.outcome.time().is_some()))
}

/// The kernel of the best guess.
fn guessed(
    state: &mut TaskState,
    guesser: &mut Guesser<'_, '_, '_>,
    entry: &str,
) -> Result<Option<(KernelSource, Origin)>, Error> {
    let Some((record, from)) = guesser.guess(state)? else { return Ok(None) };
    let source = realize(&state.kernels.tunables, &record, entry);
    Ok(source.map(|s| (s, Origin::Guessed(Box::new(record), from))))
}

fn realize(
    tunables: &[std::sync::Arc<dyn Tunable>],
    r: &Record,
    symbol: &str,
) -> Option<KernelSource> {
    if !matches!(r.outcome, Outcome::Measured(_)) {
        return None;
    }
    let tunable = find_tunable(tunables, &r.tunable)?;
    tunable.realize(&tunable.space().parse(&r.configuration).ok()?, symbol).ok()
}

/// A C name for a task: readable, and unique through the id.
fn symbol(task: &Task) -> String {
    let clean: String = task
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .take(60)
        .collect();
    let id = task.id.to_string();
    format!("squall_{}_{}", clean.trim_matches('_'), &id[..8])
}
