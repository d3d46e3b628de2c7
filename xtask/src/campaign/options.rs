//! The command line of `cargo xtask campaign`, which gives hostile inputs and faults to the built
//! binary: its usage text, the parser that gives [`Options`] (numbers of cases, seed, limits), and
//! the search for the binary that was built last.

use std::path::{Path, PathBuf};

/// How to use it.
pub const USAGE: &str = "\
usage: cargo xtask campaign [--cases N] [--faults N] [--seed K] [--short] [--jobs N]
                            [--only WORD] [--seconds S] [--binary FILE]
       cargo xtask campaign graphs ..   random graphs against other implementations

  --cases N      hostile inputs (10000)
  --faults N     faults while tuning (a tenth of the inputs)
  --seed K       the campaign (1); the same seed gives the same cases
  --short        about two minutes of all kinds, as in CI
  --jobs N       cases at once (1; with --short 2)
  --only WORD    only kinds whose name contains it
  --seconds S    end after so long; the same command goes on where it ended
  --binary FILE  the program under test (the newest target/release/squall or target/debug/squall)

A case is drawn from its seed. A bad one is kept in target/campaign/SEED/bad/KIND-NAME-SEED with its
files, the command that shows it again, and what it printed.";

/// The options that were given.
pub struct Options {
    /// Hostile inputs.
    pub cases: usize,
    /// Faults.
    pub faults: usize,
    /// The campaign.
    pub seed: u64,
    /// Cases at once.
    pub jobs: usize,
    /// Only kinds with this word in their names.
    pub only: Option<String>,
    /// The end, in seconds.
    pub seconds: Option<u64>,
    /// The program under test.
    pub binary: PathBuf,
    /// Where the campaign lies.
    pub folder: PathBuf,
    /// The repository.
    pub root: PathBuf,
    /// Whether nothing of an earlier run counts.
    pub is_fresh: bool,
}

impl Options {
    /// Reads the command line.
    pub fn parse(root: &Path, arguments: &[&str]) -> Result<Options, String> {
        let (mut cases, mut faults, mut seed, mut jobs) = (10_000, None, 1, None);
        let (mut only, mut seconds, mut binary) = (None, None, None);
        let mut is_fresh = false;
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if *word == "--short" {
                (cases, faults, seconds, is_fresh) = (330, Some(26), Some(110), true);
                continue;
            }
            let value = words.next().ok_or(USAGE)?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word} {value}?\n{USAGE}"));
            match *word {
                "--cases" => cases = number()? as usize,
                "--faults" => faults = Some(number()? as usize),
                "--seed" => seed = number()?,
                "--jobs" => jobs = Some(number()?.clamp(1, 256) as usize),
                "--only" => only = Some(value.to_string()),
                "--seconds" => seconds = Some(number()?),
                "--binary" => binary = Some(PathBuf::from(value)),
                _ => return Err(USAGE.into()),
            }
        }
        let binary = binary.or_else(|| newest(root)).ok_or(
            "there is no target/release/squall or target/debug/squall: `cargo build` makes one",
        )?;
        let binary = binary.canonicalize().map_err(|e| format!("{}: {e}", binary.display()))?;
        Ok(Options {
            cases,
            faults: faults.unwrap_or(cases / 10),
            seed,
            jobs: jobs.unwrap_or(if is_fresh { 2 } else { 1 }),
            only,
            seconds,
            binary,
            folder: target(root).join("campaign").join(seed.to_string()),
            root: root.into(),
            is_fresh,
        })
    }
}

/// The folder of what is built.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The binary that was built last.
pub fn newest(root: &Path) -> Option<PathBuf> {
    let built = ["release", "debug"].map(|profile| target(root).join(profile).join("squall"));
    let made = |p: &PathBuf| std::fs::metadata(p).and_then(|m| m.modified()).ok();
    built.into_iter().filter(|p| p.is_file()).max_by_key(made)
}
