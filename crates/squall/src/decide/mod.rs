//! What whole networks or rematches decide and trials leave open: which operators become one
//! kernel, which of close kernels is faster in place, whether stored winners still win. In: a
//! request to tune, or a store. Out: decisions as records, and the report of [`tune::tune`], which
//! puts them between and behind the phases of its session. It uses `tuning`, `inference` and the
//! rooms below; `workers` and `api` use it.

pub(crate) mod cover_runoff;
pub(crate) mod network_runoff;
pub(crate) mod run_off;
pub(crate) mod tune;
pub(crate) mod tuning_context;
pub mod verify;
