//! The rules of `cargo xtask tidy` about text: files open with a comment that says what they own
//! and have at most 600 lines of 100 columns, names of files say something, comments use plain
//! words, dependencies have reasons, documents are there and short enough.

use super::repository::{Repository, stem};

/// Files open with what they own, have at most 600 lines, and lines at most 100 columns.
pub fn files(r: &Repository) -> Vec<String> {
    let mut faults = Vec::new();
    for s in &r.sources {
        let lines = s.text.lines().count();
        if lines > 600 {
            faults.push(format!("{} has {lines} lines, 600 are allowed", s.path));
        }
        let opening = if s.path.ends_with(".rs") { "//!" } else { "/*" };
        if !s.text.starts_with(opening) {
            faults.push(format!("{} does not open with `{opening}` and what it owns", s.path));
        }
        for (i, line) in s.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > 100 {
                faults.push(format!("{}:{}: {columns} columns, 100 are allowed", s.path, i + 1));
            }
        }
    }
    faults
}

/// No file is named after nothing.
pub fn names(r: &Repository) -> Vec<String> {
    let bad = ["utils", "util", "common", "manager", "helpers", "helper", "misc"];
    let named = r.sources.iter().filter(|s| bad.contains(&stem(&s.path).as_str()));
    named.map(|s| format!("{}: a name that says nothing", s.path)).collect()
}

/// Comments say which part of the program acts: nobody and somebody are not parts.
pub fn plain_comments(r: &Repository) -> Vec<String> {
    let vague = ["nobody", "somebody", "whoever", "anybody"];
    let mut faults = Vec::new();
    for s in r.sources.iter().filter(|s| !s.path.starts_with("xtask/src/tidy/")) {
        for (i, line) in s.text.lines().enumerate() {
            let comment = match line.find("//").or_else(|| line.find("/*")) {
                Some(at) => line[at..].to_lowercase(),
                None if line.trim_start().starts_with("* ") => line.to_lowercase(),
                None => continue,
            };
            let words = || comment.split(|c: char| !c.is_alphanumeric());
            if let Some(w) = vague.iter().find(|w| words().any(|x| x == **w)) {
                faults.push(format!("{}:{}: a comment says `{w}`", s.path, i + 1));
            }
        }
    }
    faults
}

/// Every dependency has a line that says why.
pub fn dependencies(r: &Repository) -> Vec<String> {
    let reasons = r.text("docs/dependencies.md");
    let manifest = r.text("Cargo.toml");
    let list = manifest.split("[workspace.dependencies]").nth(1).unwrap_or("");
    let mut faults = Vec::new();
    for line in list.lines().take_while(|l| !l.starts_with('[')) {
        let name = line.split([' ', '=']).next().unwrap_or("");
        let other = !name.is_empty() && !name.starts_with("squall") && !name.starts_with('#');
        if other && !reasons.contains(&format!("`{name}`")) {
            faults.push(format!("`{name}` has no line in docs/dependencies.md"));
        }
    }
    faults
}

/// The documents are there and short enough.
pub fn documents(r: &Repository) -> Vec<String> {
    let mut faults = Vec::new();
    let needed = [
        "README.md",
        "ARCHITECTURE.md",
        "GLOSSARY.md",
        "CHANGELOG.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "docs/dependencies.md",
        ".ci/run",
    ];
    for d in needed {
        if !r.root.join(d).exists() {
            faults.push(format!("{d} is missing"));
        }
    }
    let limits = [
        ("ARCHITECTURE.md", 200),
        ("docs/performance.md", 100),
        ("docs/performance-gpu.md", 100),
        ("docs/predictor.md", 130),
    ];
    for (d, most) in limits {
        let lines = r.text(d).lines().count();
        if lines > most {
            faults.push(format!("{d} has {lines} lines, {most} are allowed"));
        }
    }
    if r.text("README.md").matches("```sh").count() < 2 {
        faults.push("README.md needs its two commands as the first two `sh` blocks".into());
    }
    faults
}
