//! The integration tests of the crate `squall-runtime`, all in one program, because each test
//! program takes time to link.

mod host;
mod plan;
