//! Inlines the files that a user's C or CUDA source includes from its own folder (`#include "x"`),
//! so that the text that is measured, stored by its hash and exported stands alone. Input: a file's
//! name and a function that reads files; output: one text.

use std::collections::HashSet;

/// Reads a file, its path relative to the kernel.toml; an error says why it cannot be read.
pub type Read<'a> = dyn Fn(&str) -> Result<Vec<u8>, String> + 'a;

fn read_text(file: &str, read: &Read) -> Result<String, String> {
    String::from_utf8(read(file)?).map_err(|_| "it is not UTF-8 text".into())
}

/// The deepest inclusion: two files that include each other end here.
const MAX_DEPTH: usize = 32;
/// The most bytes of text, more than any real kernel has.
const MAX_BYTES: usize = 8 << 20;

/// The text of `file`, its `#include "x"` lines replaced by the files where these can be read.
/// The others are left to the compiler.
pub fn expand(file: &str, read: &Read) -> Result<String, String> {
    let mut out = String::new();
    let text = read_text(file, read)?;
    append(file, &text, read, 0, &mut HashSet::new(), &mut out)?;
    Ok(out)
}

fn append(
    file: &str,
    text: &str,
    read: &Read,
    depth: usize,
    once: &mut HashSet<String>,
    out: &mut String,
) -> Result<(), String> {
    if depth > MAX_DEPTH || out.len() + text.len() > MAX_BYTES {
        return Err(
            "its includes are nested too deeply or too large: do two files include each other?"
                .into(),
        );
    }
    let marker =
        |line: usize| format!("#line {line} \"{}\"\n", file.replace(['\\', '"', '\n'], "_"));
    *out += &marker(1);
    for (i, line) in text.lines().enumerate() {
        if line.split_whitespace().eq(["#pragma", "once"]) {
            once.insert(file.into());
            out.push('\n');
            continue;
        }
        let included = quoted_include(line).map(|name| match file.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{name}"),
            None => name.to_string(),
        });
        match included {
            Some(path) if once.contains(&path) => out.push('\n'),
            Some(path) if let Ok(inner) = read_text(&path, read) => {
                append(&path, &inner, read, depth + 1, once, out)?;
                *out += &marker(i + 2);
            }
            _ => {
                *out += line;
                out.push('\n');
            }
        }
    }
    Ok(())
}

/// The file of an `#include "file"`.
fn quoted_include(line: &str) -> Option<&str> {
    let rest = line
        .trim_start()
        .strip_prefix('#')?
        .trim_start()
        .strip_prefix("include")?
        .trim_start()
        .strip_prefix('"')?;
    rest.split_once('"').map(|(name, _)| name)
}
