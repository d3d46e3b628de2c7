//! Makes text safe for the terminal: names in files of unknown origin may hold control characters,
//! which are printed as `\u001b`, and overlong text is cut. All output goes through it
//! (`terminal.rs`).

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};

/// Characters of a table's cell.
pub const CELL: usize = 400;
/// Characters of a line on stderr.
const LINE: usize = 4000;

/// Whether a terminal would interpret a character, or reorder the text around it.
fn is_command(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Text whose commands to the terminal are spelled out. In JSON, where these stand in strings only,
/// it remains the same value.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(is_command) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_command(c) {
            // All of them lie below the place from which JSON needs pairs.
            let _ = write!(out, "\\u{:04x}", c as u32);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// At most so many characters of a text; of a longer one the beginning and how long it is.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}.. ({} bytes)", &text[..end], text.len())),
    }
}

/// Prints a line on stderr; where that fails, the command goes on.
pub fn note(text: impl fmt::Display) {
    let text = text.to_string();
    let _ = writeln!(io::stderr().lock(), "{}", clean(&cut(&text, LINE)));
}
