//! The integration tests of the crate `squall-records` as one program: a program is linked once.

mod examples;
mod find_blocks;
mod folder;
mod hostile;
mod store;
mod version2;
mod version3;
