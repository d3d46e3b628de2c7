//! What a user hands in, as its tasks: a model, a list of operators, one operator, the text of a
//! workload or a kernel of the user's own, in a format, in layouts, covered by kernels. In: an
//! [`input_request::InputRequest`], a target, what a store knows of layouts and covers. Out: a
//! [`user_input::Input`]. It uses `target` and `base`; all rooms above read inputs through it.

pub mod arrays;
pub(crate) mod given;
pub(crate) mod held_cover;
pub(crate) mod in_precision;
pub(crate) mod input_request;
pub(crate) mod layout;
pub(crate) mod precision;
pub(crate) mod stage;
pub(crate) mod user_input;
pub(crate) mod weights;
