//! Which kernel of a task is shipped: the store's best for this device and toolchain, those timed
//! with warm caches before those with cold ones, else the best of another that can be made here
//! too, else plain loops.

use crate::aim::Aimed;
use crate::error::Error;
use crate::kit::Kit;
use squall_core::{KernelSource, Outcome, Record, Task, Tunable, find_tunable};
use squall_frontend::OwnKernel;
use squall_records::{Query, Store};

/// Where a kernel comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Measured on this device with this toolchain.
    Tuned(Box<Record>),
    /// Measured elsewhere or with another toolchain: right, but perhaps not the fastest here.
    Elsewhere(Box<Record>),
    /// Plain loops: nothing better is known.
    Plain,
}

impl Origin {
    /// The record, if there is one.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Origin::Tuned(r) | Origin::Elsewhere(r) => Some(r),
            Origin::Plain => None,
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

/// The kernels of some tasks.
pub fn choose(
    tasks: &[&Task],
    own: &[OwnKernel],
    store: Option<&Store>,
    aimed: &Aimed,
) -> Result<Vec<Chosen>, Error> {
    let tools = &aimed.tools;
    let gpu = !aimed.gpus.is_empty();
    tasks
        .iter()
        .map(|task| {
            let mut kit = Kit::new(task, own, &aimed.target)?;
            kit.tunables.push(kit.plain.clone());
            let symbol = symbol(task);
            // The name without an ending is the launcher's, which the host calls.
            let entry = if gpu { format!("{symbol}_gpu") } else { symbol.clone() };
            let mut best = match store {
                Some(s) => s.best(&Query::task(task.id))?,
                None => Vec::new(),
            };
            // Nearest first: same device before same toolchain; then the faster.
            best.sort_by(|a, b| {
                let time = |r: &Record| r.outcome.time().map_or(f64::INFINITY, |t| t.0);
                aimed.far(a).cmp(&aimed.far(b)).then(time(a).total_cmp(&time(b)))
            });
            let made =
                best.into_iter().find_map(|r| Some((realize(&kit.tunables, &r, &entry)?, r)));
            let (source, origin) = match made {
                Some((source, r)) if aimed.distance(&r.device) < 2 && &r.toolchain == tools => {
                    (source, Origin::Tuned(Box::new(r)))
                }
                Some((source, r)) => (source, Origin::Elsewhere(Box::new(r))),
                None => {
                    let source = kit.plain.realize(&kit.plain.space().nth(0), &entry);
                    let fail =
                        |e| Error::Nothing(format!("`{}` cannot be made untuned: {e}", task.name));
                    (source.map_err(fail)?, Origin::Plain)
                }
            };
            let of_gpu = gpu && kit.is_reference_cuda();
            let Some(reference) = kit
                .reference(task, &format!("{symbol}_reference{}", if of_gpu { "_gpu" } else { "" }))
                .kernel
            else {
                return Err(Error::Input {
                    place: task.name.clone(),
                    message: "its right results stand in files, and an export checks itself \
                              against a second function"
                        .into(),
                    hint: "name a function as the reference, or take the winner's values from \
                           `squall records best` into your own build"
                        .into(),
                });
            };
            let source = KernelSource { symbol: symbol.clone(), ..source };
            // Without OpenMP it computes the same on one core.
            let openmp = reference.openmp && aimed.toolchain.openmp();
            let reference =
                KernelSource { symbol: format!("{symbol}_reference"), openmp, ..reference };
            Ok(Chosen { task: (*task).clone(), source, reference, origin })
        })
        .collect()
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
