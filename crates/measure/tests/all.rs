//! The integration tests of the crate `squall-measure`, all in one program, because each test
//! program takes time to link. `support` has the hand-written kernels.

mod conformance;
mod cuda;
mod faults;
mod local;
mod shared;
mod support;
