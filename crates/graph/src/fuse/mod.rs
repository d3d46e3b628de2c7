//! Kernels of several nodes: what an anchor computes ([`anchor`]), what elementwise nodes add to it
//! ([`step`]), and how the two grow together ([`group`]). Rules of fusion are made of these.

pub mod anchor;
pub mod group;
pub mod step;
