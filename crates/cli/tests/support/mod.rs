//! Helpers of the command line's tests: a `Place` is a temporary folder in which the real binary
//! runs, and a `Ran` is the exit code and output of a run.

#![allow(dead_code)] // each test program uses some of it

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// An operator line whose kernel builds and runs in a moment.
pub const SMALL: &str = "matmul m=32 n=32 k=32";

/// A file of `examples/`, by its path.
pub fn example(name: &str) -> String {
    format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

pub struct Place {
    dir: tempfile::TempDir,
}

pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The last line of stdout as JSON.
    pub fn json(&self) -> Value {
        let last =
            self.out.lines().last().unwrap_or_else(|| panic!("no output; stderr: {}", self.err));
        serde_json::from_str(last)
            .unwrap_or_else(|e| panic!("{e} in `{last}`; stderr: {}", self.err))
    }

    pub fn ok(self) -> Ran {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// An error of ours: exit 1, a message, no panic.
    pub fn fails(self) -> Ran {
        assert_eq!(self.code, Some(1), "stdout: {}\nstderr: {}", self.out, self.err);
        assert!(self.err.contains("error: "), "{}", self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }
}

impl From<Output> for Ran {
    fn from(o: Output) -> Ran {
        Ran {
            code: o.status.code(),
            out: String::from_utf8_lossy(&o.stdout).into_owned(),
            err: String::from_utf8_lossy(&o.stderr).into_owned(),
        }
    }
}

/// Compiled files that tests share: what starts every run is the same for all.
fn shared_objects() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("objects");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

impl Place {
    /// A folder with a cache of its own, but for compiled files.
    pub fn new() -> Place {
        let place = Place::that_compiles_all();
        let cache = place.path().join("cache/squall");
        std::fs::create_dir_all(&cache).unwrap();
        std::os::unix::fs::symlink(shared_objects(), cache.join("objects")).unwrap();
        place
    }

    /// A folder with a cache of its own, in which nothing lies yet.
    pub fn that_compiles_all() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_squall"));
        c.args(args)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .env_remove("SQUALL_STORE")
            .env_remove("SQUALL_THREADS");
        c
    }

    pub fn squall(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// The identities of all trials in the store.
    pub fn identities(&self) -> Vec<String> {
        let shown = self.squall(&["records", "show", "--kind", "trial", "--json"]).ok().json();
        shown["records"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["identity"].as_str().unwrap().to_string())
            .collect()
    }
}

/// The identity that a line of `tune --json` reports, if it reports a trial.
pub fn reported(line: &str) -> Option<String> {
    let v: Value = serde_json::from_str(line).ok()?;
    Some(v["trial"]["identity"].as_str()?.to_string())
}
