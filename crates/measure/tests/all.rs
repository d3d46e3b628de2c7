//! The integration tests of the crate `squall-measure` as one program: a program is linked once.

mod conformance;
mod cuda;
mod faults;
mod local;
mod support;
