//! The integration tests of the crate `squall-fleet`; they need PostgreSQL on this machine.

mod server;
