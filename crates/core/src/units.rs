//! Units that all crates share: [`Nanos`], the duration of a kernel in nanoseconds (a fraction,
//! since it is a mean over many calls), and [`Bytes`], a size of memory. Both print with a unit
//! that fits the number, such as `1.25 us`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A duration in nanoseconds. It may be a fraction, since a kernel's time is a mean over many
/// calls.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub f64);

impl Nanos {
    /// The duration in seconds.
    pub fn seconds(self) -> f64 {
        self.0 * 1e-9
    }

    /// A duration given in seconds.
    pub fn from_seconds(s: f64) -> Nanos {
        Nanos(s * 1e9)
    }

    /// The rate in GFLOP/s (or GB/s) of `amount` operations (or bytes) done in this time.
    pub fn giga_rate(self, amount: f64) -> f64 {
        if self.0 > 0.0 { amount / self.0 } else { 0.0 }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            t if t < 1e3 => write!(f, "{t:.1} ns"),
            t if t < 1e6 => write!(f, "{:.2} us", t / 1e3),
            t if t < 1e9 => write!(f, "{:.3} ms", t / 1e6),
            t => write!(f, "{:.3} s", t / 1e9),
        }
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.0 as f64;
        match self.0 {
            n if n < 1 << 10 => write!(f, "{n} B"),
            n if n < 1 << 20 => write!(f, "{:.1} KiB", b / 1024.0),
            n if n < 1 << 30 => write!(f, "{:.1} MiB", b / 1024.0 / 1024.0),
            _ => write!(f, "{:.1} GiB", b / 1024.0 / 1024.0 / 1024.0),
        }
    }
}
