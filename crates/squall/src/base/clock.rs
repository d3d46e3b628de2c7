//! The clocks that tuning reads: the time of day, which goes into records, and the CPU time of this
//! process, which is reported as the cost of the search itself.

use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// CPU seconds of this process, all its threads; compilers and kernels run in others.
pub fn cpu_time() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}
