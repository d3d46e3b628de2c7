//! Tuning that nothing waits for: polite workers while a machine is idle, and workers and builders
//! of a fleet (feature `fleet`). In: wishes of a store, jobs of a server. Out: records. It uses
//! `decide` and the rooms below; the command line starts it.

#[cfg(feature = "fleet")]
pub mod fleet;
pub mod polite;
