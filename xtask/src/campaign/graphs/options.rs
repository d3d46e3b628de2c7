//! The command line of `cargo xtask campaign graphs`, which runs random graphs by Squall and by
//! onnxruntime: its usage text, and the parser that gives [`Options`] (number of graphs, seed,
//! operators to leave out, folders).

use super::case::Without;
use crate::campaign::options::{newest, target};
use std::path::{Path, PathBuf};

/// How to use it.
pub const USAGE: &str = "\
usage: cargo xtask campaign graphs [--graphs N] [--seed K] [--short] [--jobs N] [--seconds S]
                                   [--python FILE] [--binary FILE] [--case N] [--without LIST]
                                   [--only LIST] [--work DIR] [--out DIR]

  --graphs N      graphs (20000)
  --seed K        the campaign (1); the same seed gives the same graphs
  --short         a few seconds of them, as in CI
  --jobs N        models at once (2)
  --seconds S     end after so long; the same command goes on where it ended
  --python FILE   a Python with numpy, onnx and onnxruntime (python3)
  --binary FILE   the program under test (the newest target/release/squall or target/debug/squall)
  --case N        one graph alone, by the number that the campaign said
  --without LIST  operators with commas between them; also `hard` (NaN, infinities, limits), `f64`
  --only LIST     of the operators these alone
  --work DIR      where models lie and kernels are kept (target/campaign/graphs-SEED)
  --out DIR       what is found there, too, in two files: graphs-SEED.txt and graphs-SEED.tar.gz

A graph that differs is made smaller and kept in target/campaign/graphs-SEED/bad/N: model.onnx, its
test data in ONNX's form, and the command that shows it again.

On a machine with nothing but a checkout and the two programs, from the checkout's root:

  carry/xtask campaign graphs --binary carry/squall --jobs 30 --seconds 540 --seed 1 \\
      --python /opt/torch/.venv/bin/python3 --work /tmp/graphs --out $OUT";

/// The options that were given.
pub struct Options {
    /// The number of graphs.
    pub graphs: u64,
    /// The campaign.
    pub seed: u64,
    /// Models at once.
    pub jobs: usize,
    /// The end, in seconds.
    pub seconds: Option<u64>,
    /// Python.
    pub python: Option<PathBuf>,
    /// The program under test.
    pub binary: PathBuf,
    /// One graph alone.
    pub case: Option<u64>,
    /// What is left out.
    pub without: Without,
    /// Where the campaign lies.
    pub folder: PathBuf,
    /// Where what is found is packed, too.
    pub out: Option<PathBuf>,
    /// The repository.
    pub root: PathBuf,
    /// Whether it is CI's form, of which nothing is kept.
    pub is_short: bool,
}

impl Options {
    /// Reads the command line.
    pub fn parse(root: &Path, arguments: &[&str]) -> Result<Options, String> {
        let mut o = Options {
            graphs: 20_000,
            seed: 1,
            jobs: 2,
            seconds: None,
            python: std::env::var_os("SQUALL_PEER_PYTHON").map(PathBuf::from),
            binary: PathBuf::new(),
            case: None,
            without: Without::default(),
            folder: PathBuf::new(),
            out: None,
            root: root.into(),
            is_short: false,
        };
        let (mut words, mut binary, mut work) = (arguments.iter(), None, None);
        let mut only: Vec<String> = Vec::new();
        while let Some(word) = words.next() {
            if *word == "--short" {
                (o.graphs, o.seconds, o.is_short) = (200, Some(35), true);
                continue;
            }
            let value = words.next().ok_or(USAGE)?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word} {value}?\n{USAGE}"));
            match *word {
                "--graphs" => o.graphs = number()?,
                "--seed" => o.seed = number()?,
                "--jobs" => o.jobs = number()?.clamp(1, 64) as usize,
                "--seconds" => o.seconds = Some(number()?),
                "--python" => o.python = Some(PathBuf::from(value)),
                "--binary" => binary = Some(PathBuf::from(value)),
                "--case" => o.case = Some(number()?),
                "--only" => only = value.split(',').map(String::from).collect(),
                "--work" => work = Some(PathBuf::from(value)),
                "--out" => o.out = Some(PathBuf::from(value)),
                "--without" => o.without = without(value),
                _ => return Err(USAGE.into()),
            }
        }
        let binary = binary.or_else(|| newest(root)).ok_or(
            "there is no target/release/squall or target/debug/squall: `cargo build` makes one",
        )?;
        o.binary = binary.canonicalize().map_err(|e| format!("{}: {e}", binary.display()))?;
        o.without.only = only;
        let usual = || target(root).join("campaign").join(format!("graphs-{}", o.seed));
        o.folder = work.unwrap_or_else(usual);
        // The program under test runs in folders below it.
        std::fs::create_dir_all(&o.folder).map_err(|e| format!("{}: {e}", o.folder.display()))?;
        o.folder = o.folder.canonicalize().map_err(|e| format!("{}: {e}", o.folder.display()))?;
        Ok(o)
    }
}

fn without(list: &str) -> Without {
    let words: Vec<&str> = list.split(',').collect();
    Without {
        hard: words.contains(&"hard"),
        f64: words.contains(&"f64"),
        only: Vec::new(),
        operators: words.iter().map(|w| w.to_string()).collect(),
    }
}
