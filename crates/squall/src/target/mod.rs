//! The device that kernels are for: asked for, looked for once, measured. In: a
//! [`target_request::TargetRequest`] and what runs kernels. Out: a [`target_context::Context`] that
//! opens measurers, the machine's roof and model, and the least time of some work that is believed.
//! It uses `base`; all rooms above ask it where they are.

pub(crate) mod belief;
pub(crate) mod kept_weights;
pub(crate) mod machine;
pub(crate) mod roof;
pub(crate) mod runner;
pub(crate) mod target_context;
pub(crate) mod target_request;
