//! The repository's own chores, run as `cargo xtask COMMAND`:
//!
//! - `tidy` checks the invariants of ARCHITECTURE.md that no compiler checks; it reads files and
//!   changes nothing.
//! - `bench cpu` compares tuned kernels with libraries, `bench trust` rematches with each other,
//!   and `bench threads` kernels of two threads with those of one; `bench examples` says how much
//!   tuning gains on the examples, and `bench gpu-networks` prepares whole networks for a GPU.
//! - `tables` writes the documents' tables from the results of benchmarks.
//! - `campaign` gives hostile inputs and faults to the built binary.

mod bench;
mod campaign;
mod report;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::tidy(root(), None),
        ["tidy", only] => tidy::tidy(root(), Some(only)),
        ["bench", "cpu", ref rest @ ..] => done(bench::cpu(&root(), rest)),
        ["bench", "trust"] => done(bench::trust(&root())),
        ["bench", "threads", ref rest @ ..] => done(bench::threads(&root(), rest)),
        ["bench", "examples", ref rest @ ..] => done(bench::examples(&root(), rest)),
        ["bench", "gpu-networks", ref rest @ ..] => done(bench::gpu_networks(&root(), rest)),
        ["campaign", ref rest @ ..] => campaign::campaign(&root(), rest),
        ["tables", ref rest @ ..] => done(report::tables(&root(), rest)),
        _ => {
            eprintln!(
                "usage: cargo xtask tidy [WORD] | cargo xtask tables [--check] | cargo xtask \
                 campaign [--cases N] [--seed K] | cargo xtask bench cpu [--short] | cargo xtask \
                 bench (trust | threads | examples | gpu-networks)"
            );
            ExitCode::from(2)
        }
    }
}

fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root: the folder at or above the current one with the workspace's lock file,
/// else the one that this program was built in.
fn root() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = std::env::current_dir().unwrap_or_default();
    let above =
        here.ancestors().find(|a| a.join("Cargo.lock").exists() && a.join("xtask").exists());
    above.or(built.parent()).unwrap_or(built).to_path_buf()
}
