//! The user's wish to stop, as far as it concerns what this process waits for: compilers, programs
//! that look at the machine, a fleet's server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Names the flag whose setting ends every compiler run and every look at the machine in this
/// process, with [`MeasurerError::Stopped`](crate::MeasurerError::Stopped), and within two seconds
/// every wait for a fleet's server. Only the first call counts; false for every later one.
pub fn set_stop(flag: Arc<AtomicBool>) -> bool {
    STOP.set(flag).is_ok()
}

/// Whether the flag is set.
pub fn is_stopped() -> bool {
    STOP.get().is_some_and(|s| s.load(Ordering::Relaxed))
}
