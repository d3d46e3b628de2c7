//! The integration tests of the crate `squall-fuzz`, linked as one program because linking is slow.

mod corpus;
