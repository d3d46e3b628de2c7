//! The integration tests of the crate `squall-fleet` as one program: a program is linked once.

mod server;
