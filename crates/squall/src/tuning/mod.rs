//! Search on one device with one store: a session has phases, each of which gives a budget to
//! tasks, and ends in a report; beside it search alone, for users who measure themselves, and
//! replays of recordings. In: a [`tune_request::TuneRequest`] and an input. Out: records in the
//! store and a [`report::Report`]. It uses `inference`, `predict` and the rooms below; `decide`
//! runs the phases.

pub(crate) mod ask_tell;
pub(crate) mod phase;
pub(crate) mod phase_context;
pub mod replay;
pub mod report;
pub(crate) mod runoff;
pub(crate) mod session;
pub(crate) mod session_context;
pub(crate) mod settings;
pub(crate) mod shard;
pub(crate) mod task_search;
pub(crate) mod tune_request;
