//! The input of the rules of `cargo xtask tidy`: the Rust and C sources of the repository, read and
//! parsed once ([`SourceFile`]: path, text, syntax tree, whether it is a test), and its documents.
//! Each rule takes a [`Repository`] and returns faults.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A source file in Rust or C.
pub struct SourceFile {
    /// Its path from the root, with `/` between folders.
    pub path: String,
    pub text: String,
    /// The parsed file; none for C.
    pub syntax: Option<syn::File>,
    /// Whether it is built for tests alone.
    pub is_test: bool,
}

impl SourceFile {
    /// The crate that it belongs to: `compiler` of `crates/compiler/src/lib.rs`, or `xtask`.
    pub fn crate_name(&self) -> &str {
        let mut parts = self.path.split('/');
        match parts.next() {
            Some("crates") => parts.next().unwrap_or(""),
            other => other.unwrap_or(""),
        }
    }
}

/// Whether a file's place or name says that it is built for tests alone.
fn is_named_test(path: &str) -> bool {
    let stem = stem(path);
    let folder = path.contains("/tests/") || path.contains("/examples/");
    folder || stem == "tests" || stem.ends_with("_tests")
}

/// Whether an item is built for tests alone.
pub fn for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        let list = a.path().is_ident("cfg")
            && matches!(&a.meta, syn::Meta::List(l) if l.tokens.to_string().contains("test"));
        list || a.path().is_ident("test")
    })
}

/// A file's name without folder and ending.
pub fn stem(path: &str) -> String {
    Path::new(path).file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The repository.
pub struct Repository {
    pub root: PathBuf,
    /// All sources, in order of their paths.
    pub sources: Vec<SourceFile>,
}

impl Repository {
    /// A repository of these texts, files in a folder of one crate, for tests of rules.
    #[cfg(test)]
    pub fn of_texts(folder: &str, files: &[(&str, &str)]) -> Repository {
        let source = |&(path, text): &(&str, &str)| SourceFile {
            path: format!("crates/x/{folder}/{path}"),
            text: text.into(),
            syntax: path.ends_with(".rs").then(|| syn::parse_file(text).expect("Rust")),
            is_test: false,
        };
        Repository { root: "/nowhere".into(), sources: files.iter().map(source).collect() }
    }

    /// Reads and parses every source below `crates` and `xtask`.
    pub fn read(root: PathBuf) -> Result<Repository, String> {
        let mut paths = Vec::new();
        for top in ["crates", "xtask"] {
            walk(&root.join(top), &mut paths).map_err(|e| format!("{top}: {e}"))?;
        }
        paths.sort();
        let mut sources = Vec::new();
        for file in paths {
            let path = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().into_owned();
            let text = fs::read_to_string(&file).map_err(|e| format!("{path}: {e}"))?;
            let syntax = match path.ends_with(".rs") {
                true => Some(syn::parse_file(&text).map_err(|e| format!("{path}: {e}"))?),
                false => None,
            };
            let is_test = is_named_test(&path);
            sources.push(SourceFile { path, text, syntax, is_test });
        }
        // `#[cfg(test)] mod races;` makes a test of `races.rs`.
        let declared: HashSet<String> = sources.iter().flat_map(modules_for_tests).collect();
        for s in &mut sources {
            s.is_test |= declared.contains(&s.path);
        }
        Ok(Repository { root, sources })
    }

    /// A document's text; empty where there is none.
    pub fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }

    /// Sources of a crate's library or binary, tests left out.
    pub fn of_crate<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a SourceFile> {
        let own = move |s: &&SourceFile| s.crate_name() == name && s.path.contains("/src/");
        self.sources.iter().filter(own).filter(|s| !s.is_test)
    }
}

/// The files of modules that a file declares for tests alone.
fn modules_for_tests(s: &SourceFile) -> Vec<String> {
    let items = s.syntax.iter().flat_map(|f| &f.items);
    let (folder, stem) = (s.path.rsplit_once('/').map_or("", |p| p.0), stem(&s.path));
    let inside = match stem.as_str() {
        "mod" | "lib" | "main" => folder.to_string(),
        other => format!("{folder}/{other}"),
    };
    let file = |item: &syn::Item| match item {
        syn::Item::Mod(m) if for_tests(&m.attrs) && m.content.is_none() => {
            Some(format!("{inside}/{}.rs", m.ident))
        }
        _ => None,
    };
    items.filter_map(file).collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "rs" || e == "c" || e == "h") {
            found.push(path);
        }
    }
    Ok(())
}
