//! Which kernel serves a task when nothing more is tuned: the store's winner, else a guess by
//! similar tasks, a trained predictor or the general one, which is built and verified; and which
//! solver serves a problem of MIOpen's. In: tasks, a store, predictors. Out: [`choose::Chosen`]
//! kernels, candidates worth trying first, trained predictors. It uses `task` and the rooms below;
//! networks, sessions and exports use it.

pub(crate) mod choose;
pub(crate) mod counts;
pub mod find;
pub mod forecast;
pub mod general;
pub(crate) mod guess;
pub(crate) mod locked;
pub(crate) mod transfer;
