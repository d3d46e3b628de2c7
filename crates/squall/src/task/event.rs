//! Events: what a running request tells its caller as it happens, such as the device that was
//! found, a finished trial, or a warning. Functions of `api/` take a callback ([`Listen`]) and
//! call it with each [`Event`]; the command line turns events into its progress display and JSON
//! lines.

use crate::target::roof::Roof;
use squall_core::{Nanos, Record, Task};

/// How far a tuning session has come with one task.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The task's name.
    pub name: String,
    /// Its best time.
    pub best: Option<Nanos>,
    /// Its best rate.
    pub gflops: Option<f64>,
    /// The best time's share of the task's bound (the least time by the machine's measured peak and
    /// bandwidths).
    pub share: Option<f64>,
    /// Trials made in this session, and planned if that is known.
    pub trials: (u64, Option<u64>),
    /// Trials a second.
    pub rate: f64,
    /// Seconds left, as far as known.
    pub left: Option<f64>,
}

/// One event.
#[allow(missing_docs)] // the variants say what the fields are
pub enum Event<'a> {
    /// The machine is known.
    Opened { device: &'a str, toolchain: &'a str, gpus: usize, roof: Option<&'a Roof> },
    /// Work on a task begins; `known` of its trials are in the store already.
    Task { task: &'a Task, known: u64, untuned: Option<Nanos> },
    /// These candidates (`TUNABLE: CONFIGURATION`) are measured now, in this order.
    Batch { candidates: &'a [String] },
    /// A trial was made and stands in the store.
    Trial { record: &'a Record, progress: &'a Progress },
    /// A challenger met the incumbent.
    Rematch { task: &'a Task, challenger: Nanos, incumbent: Nanos, faster: bool },
    /// A sentence for the user.
    Note(String),
    /// A warning: something is not as it should be, and the request goes on.
    Trouble(String),
}

/// A listener.
pub type Listen<'a> = dyn FnMut(Event<'_>) + 'a;
