//! The integration tests of the crate `squall-fuzz` (hostile files and the readers that must
//! survive them), linked as one program because linking is slow. `corpus.rs` has the tests.

mod corpus;
