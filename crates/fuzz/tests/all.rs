//! The integration tests of the crate `squall-fuzz` as one program: a program is linked once.

mod corpus;
