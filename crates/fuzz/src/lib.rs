//! Hostile files for every format that Squall reads, and the readers that must survive them: no
//! file may make a reader panic.
//!
//! A generator draws a file from a [`Draw`]: from a seed, as `cargo xtask campaign` does, or from
//! the bytes of a fuzzer, which so searches among structures and not among bytes alone. [`targets`]
//! names the readers; the folder `fuzz/` hands them to cargo-fuzz, and this crate's test runs the
//! same readers over the corpus and over drawn files, without nightly.

mod draw;
pub mod generate;
mod mutate;
#[cfg(feature = "targets")]
pub mod targets;

pub use draw::Draw;
pub use mutate::mutate;
