//! `squall import`: takes measurements and tuned parameters of other tuners (Kernel Tuner, MIOpen)
//! into a store and prints what was new. `squall::import` tells files apart by their contents;
//! `import_recording.rs`, `import_database.rs` and `import_find.rs` print the results of each kind.

use super::{import_database, import_find, import_recording};
use crate::failure::Failure;
use crate::option::{JsonArgs, StoreArgs};
use crate::terminal::say;
use serde_json::json;
use squall::{ImportRequest, Imports};
use std::path::PathBuf;

/// Take over what others measured or tuned
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall import convolution-A100.json.gz --store tuned.squall
  squall import results_T4.json convolution_T1.json       results with the description of their \
  space
  squall records list --store tuned.squall
  squall import gfx900_56.cd.pdb.txt.gz gfx906_60.cd.pdb.txt.gz --store miopen.squall
  squall import miopen.db --device gfx906_60 --store miopen.squall
  squall import gfx942130.HIP.fdb.txt.gz gfx90a6e.HIP.fdb.txt.gz --store find.squall

FILE is a Kernel Tuner cache file (an interrupted one too), T4 results, or a T1 description; plain
or gzipped. A description says the order, all values and the conditions of the parameters of those
recordings beside it that have the same parameters. Every configuration becomes a trial, failed ones
too. `squall records export` is the way back.

Or FILE is a performance database of MIOpen's: text, plain or packed (.gz, .bz2), or SQLite (.db,
.db.bz2). Its rows become examples for `squall train`; rows that cannot be right are counted and
left out, --json names each.

Or FILE is a find database of MIOpen's (gfx942130.HIP.fdb.txt, a user's .ufdb.txt, plain or packed):
which solvers were timed for which problems. `squall train --find` learns from it. Times of zero are
refused and counted.

What the store has already is not added again.")]
pub struct Args {
    /// Measured configurations, descriptions of their spaces, databases of tuned parameters
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The device that databases are for, where their names do not say: gfx906 or gfx906_60
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let request = ImportRequest {
        files: a.files.clone(),
        device: a.device.clone(),
        store: a.store.store.clone(),
    };
    let Imports { recordings, databases, find } = squall::import(&request)?;
    if a.json.json {
        let (imported, files) =
            (import_recording::json(&recordings), import_database::json(&databases));
        say(json!({"store": a.store.store, "imported": imported, "files": files,
            "find": import_find::json(&find)}))?;
        return Ok(0);
    }
    if !recordings.is_empty() {
        import_recording::show(&recordings)?;
    }
    if !databases.is_empty() {
        import_database::show(&databases)?;
    }
    if !find.is_empty() {
        import_find::show(&find)?;
    }
    Ok(0)
}
