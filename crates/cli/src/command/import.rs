//! `squall import`: what others found, taken into the store. Files are told apart here and nowhere else.

use super::import_database;
use crate::failure::Failure;
use crate::option::{JsonArgs, StoreArgs};
use std::path::PathBuf;

/// Take over what others tuned
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall import gfx900_56.cd.pdb.txt.gz gfx906_60.cd.pdb.txt.gz --store miopen.squall
  squall import miopen.db --device gfx906_60 --store miopen.squall

FILE is a performance database of MIOpen's: text, plain or packed (.gz, .bz2), or SQLite (.db, .db.bz2).
Its rows become examples for `squall train`; what the store has already is not added again. Rows
that cannot be right are counted and left out; --json names each.")]
pub struct Args {
    /// Databases of tuned parameters
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The device that the databases are for, where their names do not say: gfx906 or gfx906_60
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    import_database::run(&a.files, a.device.as_deref(), &a.store.store, a.json.json)
}
