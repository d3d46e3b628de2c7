//! The rules of `cargo xtask tidy` about crates: which of ours each may depend on, and what outside
//! of the process each may touch (files, processes, clock, environment, terminal, unsafe code). The
//! tables are ARCHITECTURE.md's, row by row.

use super::repository::{Repository, SourceFile};

/// A crate, the crates of ours that it may depend on, and the privileges that it has.
struct Row {
    name: &'static str,
    depends: &'static [&'static str],
    may: &'static [Privilege],
}

/// Something outside of a pure computation.
#[derive(Clone, Copy, PartialEq)]
enum Privilege {
    Files,
    Processes,
    Clock,
    Environment,
    Terminal,
    Unsafe,
}

use Privilege::{Clock, Environment, Files, Processes, Terminal, Unsafe};

const INNER: &[&str] = &[
    "core", "frontend", "graph", "compiler", "search", "predict", "measure", "runtime", "records",
    "fleet",
];

const TABLE: &[Row] = &[
    Row { name: "core", depends: &[], may: &[] },
    Row { name: "frontend", depends: &["core"], may: &[Files] },
    Row { name: "graph", depends: &["core"], may: &[] },
    Row { name: "compiler", depends: &["core"], may: &[] },
    Row { name: "search", depends: &["core"], may: &[] },
    Row { name: "predict", depends: &["core"], may: &[Files, Unsafe] },
    Row { name: "runtime", depends: &["core"], may: &[] },
    Row {
        name: "measure",
        depends: &["core", "runtime"],
        may: &[Files, Processes, Clock, Environment, Unsafe],
    },
    Row { name: "records", depends: &["core"], may: &[Files, Clock, Environment] },
    Row { name: "fleet", depends: &["core"], may: &[Clock, Environment] },
    Row { name: "squall", depends: INNER, may: &[Files, Processes, Clock, Environment] },
    Row { name: "study", depends: &["squall", "*"], may: &[Files, Clock] },
    Row { name: "fuzz", depends: INNER, may: &[] },
    Row {
        name: "testing",
        depends: &["core", "frontend"],
        may: &[Files, Processes, Environment, Terminal],
    },
    Row {
        name: "cli",
        depends: &["squall", "study"],
        may: &[Files, Processes, Clock, Environment, Terminal],
    },
    Row { name: "python", depends: &["squall"], may: &[] },
];

impl Privilege {
    /// The words that show that code uses it.
    fn words(self) -> &'static [&'static str] {
        match self {
            Files => &["std::fs", "fs::read", "fs::write", "File::open", "File::create"],
            Processes => &["process::Command", "Command::new"],
            Clock => &["std::time::Instant", "SystemTime", "Instant::now", "clock_gettime"],
            Environment => &["std::env", "env::var"],
            Terminal => &["println!", "eprintln!", "std::io::stdin", "std::io::stdout"],
            Unsafe => &["unsafe {", "unsafe fn", "unsafe impl", "allow(unsafe_code)"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Files => "files",
            Processes => "processes",
            Clock => "the clock",
            Environment => "the environment",
            Terminal => "the terminal",
            Unsafe => "unsafe code",
        }
    }
}

const PRIVILEGES: &[Privilege] = &[Files, Processes, Clock, Environment, Terminal, Unsafe];

/// Sources of randomness and network that no crate may touch: seeds are given.
const FORBIDDEN: &[&str] = &["thread_rng", "rand::rng(", "getrandom", "std::net"];

/// Files that may use `unsafe` in crates that otherwise may not use all of it.
const UNSAFE_FILES: &[(&str, &str)] = &[("predict", "crates/predict/src/nn/product.rs")];

/// Crates depend on those of ours that the table says.
pub fn dependencies_between_crates(r: &Repository) -> Vec<String> {
    let mut faults = Vec::new();
    for row in TABLE {
        let manifest = r.text(&format!("crates/{}/Cargo.toml", row.name));
        if manifest.is_empty() {
            faults.push(format!("crates/{}/Cargo.toml is missing", row.name));
        }
        for dependency in ours(&manifest) {
            let short = dependency.strip_prefix("squall-").unwrap_or(&dependency);
            let allowed = row.depends.contains(&short)
                || (row.depends.contains(&"*") && INNER.contains(&short));
            if !allowed {
                faults.push(format!("crates/{} depends on {dependency}", row.name));
            }
        }
    }
    let known = |name: &str| name == "xtask" || TABLE.iter().any(|row| row.name == name);
    for s in r.sources.iter().filter(|s| !known(s.crate_name())) {
        faults.push(format!("crate `{}` has no row in xtask/src/tidy/crates.rs", s.crate_name()));
    }
    faults.dedup();
    faults
}

/// Our crates among a manifest's dependencies; those of tests are free.
fn ours(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split(['=', '.', ' ']).next().unwrap_or("");
        let is_ours = name == "squall" || name.starts_with("squall-");
        if section == "[dependencies]" && is_ours {
            found.push(name.to_string());
        }
    }
    found
}

/// Where temporary folders are made that the next process removes when theirs is killed, and what
/// would make others.
const TEMPORARY: &str = "crates/measure/src/folder.rs";
const FOLDERS: &[&str] = &["tempdir()", "tempdir_in(", "TempDir::new", "tempfile::Builder"];

/// Crates touch what the table says and nothing else.
pub fn privileges(r: &Repository) -> Vec<String> {
    let mut faults = Vec::new();
    for row in TABLE {
        for s in r.of_crate(row.name).filter(|s| s.syntax.is_some()) {
            for p in PRIVILEGES {
                let unsafe_elsewhere = *p == Unsafe
                    && UNSAFE_FILES.iter().any(|(name, file)| *name == row.name && s.path != *file);
                if !row.may.contains(p) || unsafe_elsewhere {
                    faults.extend(uses(s, p.words(), p.name()));
                }
            }
            faults.extend(uses(s, FORBIDDEN, "the network or a global random state"));
            if s.path != TEMPORARY && !["fuzz", "testing"].contains(&row.name) {
                faults.extend(uses(s, FOLDERS, "folders that stay when their process is killed"));
            }
        }
    }
    faults
}

fn uses(s: &SourceFile, words: &[&str], what: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (i, line) in code(&s.text) {
        if let Some(w) = words.iter().find(|w| line.contains(**w)) {
            faults.push(format!("{}:{i}: `{w}` touches {what}", s.path));
        }
    }
    faults
}

/// Code lines: without comments and without the test module at a file's end.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = ["#[cfg(test)]\nmod ", "#[cfg(test)]\npub(crate) mod "];
    let end = tests.iter().filter_map(|t| text.find(t)).min().unwrap_or(text.len());
    let numbered = text[..end].lines().enumerate().map(|(i, l)| (i + 1, l));
    numbered.filter(|(_, l)| !l.trim_start().starts_with("//"))
}
