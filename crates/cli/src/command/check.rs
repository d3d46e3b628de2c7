//! `squall check`: a model run layer by layer through its kernels, against known output.

use crate::failure::Failure;

/// Being written.
#[derive(clap::Args)]
#[command(after_help = "Examples:")]
pub struct Args {}

/// Runs it.
pub fn run(_: &Args) -> Result<u8, Failure> {
    Err(Failure::new("being written", None))
}
