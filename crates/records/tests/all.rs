//! The integration tests of the crate `squall-records` (the store of trials), linked as one program
//! because linking is slow. Each module opens stores in temporary folders and checks one subject:
//! folders, faults, older versions, examples.

mod examples;
mod find_blocks;
mod folder;
mod hostile;
mod store;
mod version2;
mod version3;
