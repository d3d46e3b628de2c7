//! `cargo xtask tables`: writes the tables and the picture of the documents (README.md, `docs/`)
//! from the results in `benches/runs/`. A table stands between `<!-- table: NAME -->` and
//! `<!-- end -->`; `--check` writes nothing and fails where a document differs from its run files.
//! Each file below this one makes the tables of one subject.

mod cpu;
mod gpu;
mod predictor;
mod results;
mod run;
mod search;
mod table;

#[cfg(test)]
mod tests;

use run::Runs;
use std::fs;
use std::path::{Path, PathBuf};

/// A table: its name in the documents and the function that makes its Markdown.
type Made = (&'static str, fn(&Runs) -> Result<String, String>);

const TABLES: &[Made] = &[
    ("cpu-budgets", cpu::budgets),
    ("cpu-kernels", cpu::kernels),
    ("cpu-networks", cpu::networks),
    ("examples", cpu::examples),
    ("results", results::table),
    ("gpu-batch-1", gpu::batch_1),
    ("gpu-batch-16", gpu::batch_16),
    ("gpu-networks", gpu::networks),
    ("search-kernels", search::kernels),
    ("search-spaces", search::spaces),
    ("search-strategies", search::strategies),
    ("predictor-random", predictor::random_split),
    ("predictor-unseen", predictor::unseen),
    ("predictor-models", predictor::models),
    ("predictor-tasks", predictor::own_tasks),
];

const OPENING: &str = "<!-- table: ";
const CLOSING: &str = "<!-- end -->";

/// Runs the command: without arguments it writes, with `--check` it compares.
pub fn tables(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let check = match arguments {
        [] => false,
        ["--check"] => true,
        _ => return Err("usage: cargo xtask tables [--check]".into()),
    };
    let mut stale = Vec::new();
    for document in documents(root)? {
        let before = read(&document)?;
        let after = with_tables(&before, &Runs::of(root))
            .map_err(|e| format!("{}: {e}", document.display()))?;
        if before == after {
            continue;
        }
        stale.push(document.display().to_string());
        if !check {
            fs::write(&document, after).map_err(|e| format!("{}: {e}", document.display()))?;
        }
    }
    let picture = root.join("docs/results.svg");
    let made = results::picture(&Runs::of(root))?;
    if fs::read_to_string(&picture).ok().as_ref() != Some(&made) {
        stale.push(picture.display().to_string());
        if !check {
            fs::write(&picture, made).map_err(|e| format!("{}: {e}", picture.display()))?;
        }
    }
    match (check, stale.is_empty()) {
        (true, false) => Err(format!(
            "tables that differ from benches/runs/ (`cargo xtask tables` writes them): {}",
            stale.join(", ")
        )),
        (true, true) => Ok(()),
        (false, _) => {
            println!("tables: {} documents changed", stale.len());
            Ok(())
        }
    }
}

/// The documents that may hold tables: README.md and the pages of `docs/`.
fn documents(root: &Path) -> Result<Vec<PathBuf>, String> {
    let folder = root.join("docs");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut pages: Vec<PathBuf> = entries
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "md"))
        .collect();
    pages.push(root.join("README.md"));
    pages.sort();
    Ok(pages)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// The text with each of its tables made anew.
fn with_tables(text: &str, runs: &Runs) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(OPENING) {
        let (before, marked) = rest.split_at(start);
        let line = marked.lines().next().unwrap_or("");
        let name = line.strip_prefix(OPENING).and_then(|l| l.strip_suffix(" -->"));
        let name = name.ok_or_else(|| format!("`{line}`: expected `{OPENING}NAME -->`"))?;
        let (_, make) =
            TABLES.iter().find(|(n, _)| *n == name).ok_or_else(|| unknown_table(name))?;
        let end = marked.find(CLOSING).ok_or_else(|| format!("`{line}` has no `{CLOSING}`"))?;
        if marked[line.len()..end].contains(OPENING) {
            return Err(format!("`{line}` has no `{CLOSING}` before the next table"));
        }
        out.push_str(before);
        out.push_str(&format!("{line}\n{}{CLOSING}", make(runs)?));
        rest = &marked[end + CLOSING.len()..];
    }
    out.push_str(rest);
    Ok(out)
}

fn unknown_table(name: &str) -> String {
    let known: Vec<&str> = TABLES.iter().map(|(n, _)| *n).collect();
    format!("there is no table `{name}`; there are {}", known.join(", "))
}
