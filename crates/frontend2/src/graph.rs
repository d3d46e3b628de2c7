//! The order of execution.

/// Order.
#[derive(Clone, Debug)]
pub struct Graph {}
