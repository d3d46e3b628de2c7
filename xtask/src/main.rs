//! The repository's own chores. `cargo xtask tidy` checks the invariants of ARCHITECTURE.md that no
//! compiler checks; it reads files and changes nothing. `cargo xtask bench cpu` compares tuned
//! kernels with libraries, `cargo xtask bench trust` run-offs with each other, `cargo xtask bench
//! threads` kernels of two threads with those of one, and `cargo xtask bench examples` says what
//! tuning gains on the examples.

mod bench;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        ["bench", "cpu", ref rest @ ..] => done(bench::cpu(&root(), rest)),
        ["bench", "trust"] => done(bench::trust(&root())),
        ["bench", "threads", ref rest @ ..] => done(bench::threads(&root(), rest)),
        ["bench", "examples", ref rest @ ..] => done(bench::examples(&root(), rest)),
        _ => {
            eprintln!(
                "usage: cargo xtask tidy | cargo xtask bench cpu [--short] | cargo xtask bench \
                 (trust | threads | examples)"
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

/// The repository's root.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A rule: looks at the repository and says what breaks it.
type Rule = fn(&Repository) -> Vec<String>;

const RULES: &[(&str, Rule)] = &[
    ("rooms depend on core only", rooms),
    (
        "core, compiler and search do no IO and read no clock, environment or global random state",
        pure_rooms,
    ),
    ("unsafe stands in measure, and around one product in predict", unsafe_code),
    ("files open with //! and stay under 600 lines", files),
    ("names say what they hold", names),
    ("every dependency has its reason", dependencies),
    ("the documents are there and short enough", documents),
];

fn tidy() -> ExitCode {
    let r = match Repository::read(root()) {
        Ok(r) => r,
        Err(e) => {
            eprintln!("tidy: {e}");
            return ExitCode::FAILURE;
        }
    };
    let mut broken = 0;
    for (name, rule) in RULES {
        for fault in rule(&r) {
            eprintln!("tidy: {name}: {fault}");
            broken += 1;
        }
    }
    println!("tidy: {} rules over {} files, {broken} faults", RULES.len(), r.sources.len());
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A source file, with its path from the root.
struct Source {
    path: String,
    text: String,
}

struct Repository {
    root: PathBuf,
    sources: Vec<Source>,
}

impl Repository {
    fn read(root: PathBuf) -> std::io::Result<Repository> {
        let mut sources = Vec::new();
        for top in ["crates", "xtask"] {
            walk(&root.join(top), &mut |p| {
                if p.extension().is_some_and(|e| e == "rs" || e == "c" || e == "h") {
                    let path = p.strip_prefix(&root).unwrap_or(p).to_string_lossy().into_owned();
                    sources.push(Source { path, text: fs::read_to_string(p)? });
                }
                Ok(())
            })?;
        }
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Repository { root, sources })
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    /// Sources of a crate's library or binary, tests left out.
    fn of_crate<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Source> {
        let folder = format!("crates/{name}/src/");
        self.sources
            .iter()
            .filter(move |s| s.path.starts_with(&folder) && !s.path.ends_with("tests.rs"))
    }
}

fn walk(folder: &Path, f: &mut dyn FnMut(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, f)?;
        } else {
            f(&path)?;
        }
    }
    Ok(())
}

/// Code lines: without comments and without the test module at a file's end.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end = text.find("#[cfg(test)]").unwrap_or(text.len());
    text[..end]
        .lines()
        .enumerate()
        .map(|(i, l)| (i + 1, l))
        .filter(|(_, l)| !l.trim_start().starts_with("//"))
}

const ROOMS: &[&str] =
    &["frontend", "graph", "compiler", "search", "measure", "records", "predict"];

fn rooms(r: &Repository) -> Vec<String> {
    let mut out = Vec::new();
    let allowed = |name: &str| -> Vec<String> {
        match name {
            "core" => vec![],
            "squall" => ROOMS.iter().chain(&["core"]).map(|s| format!("squall-{s}")).collect(),
            "cli" => vec!["squall".into()],
            _ => vec!["squall-core".into()],
        }
    };
    for name in ROOMS.iter().copied().chain(["core", "squall", "cli"]) {
        let manifest = r.text(&format!("crates/{name}/Cargo.toml"));
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let dependency = line.split(['=', '.', ' ']).next().unwrap_or("");
            let ours = dependency == "squall" || dependency.starts_with("squall-");
            if section == "[dependencies]"
                && ours
                && !allowed(name).contains(&dependency.to_string())
            {
                out.push(format!("crates/{name} depends on {dependency}"));
            }
        }
        if manifest.is_empty() {
            out.push(format!("crates/{name}/Cargo.toml is missing"));
        }
    }
    out
}

fn pure_rooms(r: &Repository) -> Vec<String> {
    let words = [
        "std::fs",
        "std::env",
        "std::time",
        "std::process",
        "std::net",
        "std::io",
        "SystemTime",
        "Instant::",
        "thread_rng",
        "rand::rng(",
        "getrandom",
    ];
    let rooms = ["core", "graph", "compiler", "search"];
    search(rooms.iter().flat_map(|n| r.of_crate(n)), &words)
}

fn unsafe_code(r: &Repository) -> Vec<String> {
    let may = ["crates/measure/", "crates/predict/src/nn/product.rs", "xtask/"];
    let others = r
        .sources
        .iter()
        .filter(|s| s.path.ends_with(".rs") && !may.iter().any(|m| s.path.starts_with(m)));
    search(others, &["unsafe {", "unsafe fn", "unsafe impl", "allow(unsafe_code)"])
}

fn search<'a>(sources: impl Iterator<Item = &'a Source>, words: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    for s in sources {
        for (i, line) in code(&s.text) {
            if let Some(w) = words.iter().find(|w| line.contains(**w)) {
                out.push(format!("{}:{i}: `{w}`", s.path));
            }
        }
    }
    out
}

fn files(r: &Repository) -> Vec<String> {
    let mut out = Vec::new();
    for s in &r.sources {
        let lines = s.text.lines().count();
        if lines > 600 {
            out.push(format!("{} has {lines} lines", s.path));
        }
        let opening = if s.path.ends_with(".rs") { "//!" } else { "/*" };
        if !s.text.starts_with(opening) {
            out.push(format!("{} does not open with `{opening}` and what it owns", s.path));
        }
    }
    out
}

fn names(r: &Repository) -> Vec<String> {
    let bad = ["utils", "util", "common", "manager", "helpers", "helper", "misc"];
    let stem = |p: &str| {
        Path::new(p).file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
    };
    r.sources
        .iter()
        .filter(|s| bad.contains(&stem(&s.path).as_str()))
        .map(|s| s.path.clone())
        .collect()
}

fn dependencies(r: &Repository) -> Vec<String> {
    let reasons = r.text("docs/dependencies.md");
    let manifest = r.text("Cargo.toml");
    let list = manifest.split("[workspace.dependencies]").nth(1).unwrap_or("");
    let mut out = Vec::new();
    for line in list.lines().take_while(|l| !l.starts_with('[')) {
        let name = line.split([' ', '=']).next().unwrap_or("");
        if !name.is_empty()
            && !name.starts_with("squall")
            && !name.starts_with('#')
            && !reasons.contains(&format!("`{name}`"))
        {
            out.push(format!("`{name}` has no line in docs/dependencies.md"));
        }
    }
    out
}

fn documents(r: &Repository) -> Vec<String> {
    let mut out = Vec::new();
    for d in [
        "README.md",
        "ARCHITECTURE.md",
        "GLOSSARY.md",
        "CHANGELOG.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "docs/dependencies.md",
        ".ci/run",
    ] {
        if !r.root.join(d).exists() {
            out.push(format!("{d} is missing"));
        }
    }
    let lines = r.text("ARCHITECTURE.md").lines().count();
    if lines > 200 {
        out.push(format!("ARCHITECTURE.md has {lines} lines, 200 are allowed"));
    }
    let readme = r.text("README.md");
    if readme.matches("```sh").count() < 2 {
        out.push("README.md needs its two commands as the first two `sh` blocks".into());
    }
    out
}
