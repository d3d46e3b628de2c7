//! Configurations that a kernel.toml lists in a file of their own, one a line (`BX=16,TILE=2`): for
//! rules of legality that only the program that wrote the list can evaluate, such as functions in
//! Python. Output: a [`Listed`], which restricts a space to these configurations.

use super::document::{Fault, fault};
use super::model::TextSpan;
use super::source::Read;
use crate::error::shown;
use squall_core::Space;
use squall_core::space::{Knob, SpaceError};
use std::sync::Arc;

/// The positions of the values of every configuration that is listed.
#[derive(Clone)]
pub struct Listed {
    points: Arc<[Box<[u16]>]>,
    /// Where the file names the list.
    pub at: TextSpan,
    /// The list's content, for a kernel's identity.
    pub digest: String,
}

/// Reads a list: one configuration a line, `BX=16,TILE=2`, with every knob in it.
pub fn read(file: &str, at: TextSpan, knobs: &[Knob], read: &Read) -> Result<Listed, Fault> {
    let name = shown(file);
    let bytes = match read(file) {
        Ok(b) => b,
        Err(why) => return fault(at, format!("`{name}` cannot be read: {why}")),
    };
    let Ok(text) = std::str::from_utf8(&bytes) else {
        return fault(at, format!("`{name}` is not UTF-8 text"));
    };
    let all = Space::new(knobs.to_vec(), &[])
        .map_err(|e| Fault { at: at.clone(), message: e.to_string() })?;
    let mut points: Vec<Box<[u16]>> = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        match all.parse(line) {
            Ok(c) => points.push(c.indices().map(|i| i as u16).collect()),
            Err(e) => return fault(at, format!("line {} of `{name}`: {e}", i + 1)),
        }
    }
    if points.is_empty() {
        return fault(at, format!("`{name}` lists no configuration: one stands on each line"));
    }
    let digest = blake3::hash(&bytes).to_hex()[..16].to_string();
    Ok(Listed { points: points.into(), at, digest })
}

impl Listed {
    /// What is listed and legal in a space of the same knobs.
    pub fn within(&self, space: &Space) -> Result<Space, SpaceError> {
        let legal = |p: &[u16]| {
            let indices: Vec<usize> = p.iter().map(|&i| usize::from(i)).collect();
            space.contains(&indices)
        };
        let kept = self.points.iter().filter(|p| legal(p)).cloned().collect();
        Space::listed(space.knobs().to_vec(), kept)
    }
}
