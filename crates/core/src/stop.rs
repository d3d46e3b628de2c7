//! The flag by which the user's wish to stop (Ctrl-C) ends everything that this process waits for:
//! compilers, programs that look at the machine, a fleet's server. The command line and the Python
//! package set the flag once by [`set_stop`]; code that waits asks [`is_stopped`].

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
