//! The integration tests of the crate `squall-runtime` as one program: a program is linked once.

mod host;
mod plan;
