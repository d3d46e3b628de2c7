//! One task: how its kernels are made, which candidates were tried and what their times say, the
//! one loop that tries more, what is told meanwhile, and trials that others made. In: a task of an
//! input, a strategy, a measurer. Out: trials, each recorded before anything hears of it. It uses
//! `input`, `target` and `base`; all rooms above use it.

pub(crate) mod event;
pub mod exchange;
pub(crate) mod task_kernels;
pub(crate) mod task_state;
pub mod trials;
