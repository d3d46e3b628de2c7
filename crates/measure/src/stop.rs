//! The user's wish to stop, as far as it concerns children that we wait for: compilers and the
//! programs that look at the machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Names the flag whose setting ends every compiler run and every look at the machine in this
/// process, with [`MeasurerError::Stopped`](squall_core::MeasurerError::Stopped). Only the first
/// call counts; false for every later one.
pub fn set_stop(flag: Arc<AtomicBool>) -> bool {
    STOP.set(flag).is_ok()
}

/// Whether the flag is set.
pub(crate) fn is_stopped() -> bool {
    STOP.get().is_some_and(|s| s.load(Ordering::Relaxed))
}
