//! The integration tests of the crate `squall-records`, linked as one program because linking is
//! slow. Each module opens stores in temporary folders.

mod examples;
mod find_blocks;
mod folder;
mod hostile;
mod store;
mod version2;
mod version3;
