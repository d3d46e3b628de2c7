//! Where the shared models lie, and random inputs.
#![allow(dead_code)] // each test uses its part

use std::path::PathBuf;

/// The shared folder: `SQUALL_SHARED`, or beside the repository. `None`, with a line that says
/// so, where it is absent.
pub fn shared() -> Option<PathBuf> {
    let path = match std::env::var_os("SQUALL_SHARED") {
        Some(p) => PathBuf::from(p),
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
    };
    if path.join("data/models").is_dir() {
        return Some(path);
    }
    println!("skipped: {} does not hold data/models (set SQUALL_SHARED)", path.display());
    None
}

/// All shared models, by name; none where they are absent.
pub fn models() -> Vec<(String, Vec<u8>)> {
    let Some(shared) = shared() else { return Vec::new() };
    let mut out: Vec<(String, Vec<u8>)> = std::fs::read_dir(shared.join("data/models"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "onnx"))
        .map(|p| (p.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read(p).unwrap()))
        .collect();
    out.sort();
    assert_eq!(out.len(), 22, "the shared models are 22");
    out
}

/// A file of the repository's `examples`.
pub fn example(name: &str) -> Vec<u8> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")).join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
