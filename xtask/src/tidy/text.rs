//! The rules of `cargo xtask tidy` about text: files open with a comment that says what they own
//! and have at most 600 lines of 100 columns, names of files say something, comments use plain
//! words, dependencies have reasons, documents are there and short enough.

use super::repository::{Repository, SourceFile, stem};

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

/// A file that a comment names by its path is there: a path has a folder and a source's ending,
/// and may leave out the folders before it.
pub fn paths_in_comments(r: &Repository) -> Vec<String> {
    let mut faults = Vec::new();
    for s in &r.sources {
        for (i, line) in s.text.lines().enumerate() {
            let text = line.trim_start();
            if !["//", "/*", "* "].iter().any(|begin| text.starts_with(begin)) {
                continue;
            }
            for path in text.split('`').skip(1).step_by(2).filter(|p| names_a_source(p)) {
                if !is_there(r, &s.path, path) {
                    faults.push(format!("{}:{}: there is no `{path}`", s.path, i + 1));
                }
            }
        }
    }
    faults
}

/// Whether a text in code marks is the path of a source.
fn names_a_source(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let ends = [".rs", ".c", ".h"].iter().any(|end| text.ends_with(end));
    ends && text.contains('/') && text.chars().all(is_plain)
}

/// Whether a source ends in a path, or lies there from the folder of the file that names it.
fn is_there(r: &Repository, by: &str, path: &str) -> bool {
    let above = |folder: &str| folder.rsplit_once('/').map_or(String::new(), |p| p.0.to_string());
    let (mut folder, mut path) = (above(by), path);
    while let Some(rest) = path.strip_prefix("../") {
        (folder, path) = (above(&folder), rest);
    }
    let beside = format!("{folder}/{path}");
    let ending = format!("/{path}");
    let is_it = |s: &SourceFile| s.path == path || s.path == beside || s.path.ends_with(&ending);
    r.sources.iter().any(is_it)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_comments_lead_to_sources() {
        let text = "//! See `src/b.rs`, `x/src/b.rs`, `other/b.rs`, `b.rs`; `a/..` is none.\n";
        let r = Repository::of_texts("src", &[("a.rs", text), ("b.rs", "//! B.\n")]);
        assert_eq!(paths_in_comments(&r), ["crates/x/src/a.rs:1: there is no `other/b.rs`"]);
    }
}
