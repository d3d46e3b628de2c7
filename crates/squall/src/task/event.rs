//! What a session lets be known while it works.

use crate::target::roof::Roof;
use squall_core::{Nanos, Record, Task};

/// How a session stands.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The task's name.
    pub name: String,
    /// Its best time.
    pub best: Option<Nanos>,
    /// Its best rate.
    pub gflops: Option<f64>,
    /// The share of its bound that the best reaches.
    pub share: Option<f64>,
    /// Trials made in this session, and planned if that is known.
    pub trials: (u64, Option<u64>),
    /// Trials a second.
    pub rate: f64,
    /// Seconds left, as far as known.
    pub left: Option<f64>,
}

/// What happens, as it happens.
#[allow(missing_docs)] // the variants say what the fields are
pub enum Event<'a> {
    /// The machine is known.
    Opened { device: &'a str, toolchain: &'a str, gpus: usize, roof: Option<&'a Roof> },
    /// Work on a task begins; so many of its trials are known.
    Task { task: &'a Task, known: u64, untuned: Option<Nanos> },
    /// These candidates (`TUNABLE: CONFIGURATION`) are measured now, in this order.
    Batch { candidates: &'a [String] },
    /// A trial was made and stands in the store.
    Trial { record: &'a Record, progress: &'a Progress },
    /// A challenger met the incumbent.
    Rematch { task: &'a Task, challenger: Nanos, incumbent: Nanos, faster: bool },
    /// Something that is good to know.
    Note(String),
    /// Something that is not as it should be, while it goes on.
    Trouble(String),
}

/// A listener.
pub type Listen<'a> = dyn FnMut(Event<'_>) + 'a;
