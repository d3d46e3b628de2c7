//! Repairs the text of a JSON file that ends early. A search writes its cache record by record, so
//! the file of an interrupted search, or of a full disk, ends anywhere; the records before that
//! place are valid. Input: the text; output: the text up to its last whole record, closed as JSON
//! requires, with a note for the user. Python's `NaN` and `Infinity`, which JSON lacks, become
//! `null`.

use crate::error::shown;

/// The words of Python for numbers that JSON does not have; `null` takes their place.
const NUMBERS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];

/// A text that ends as JSON does.
#[derive(Debug)]
pub(super) struct Whole {
    pub text: String,
    /// A note for the user on the part that was left out.
    pub note: Option<String>,
}

/// A place behind which a text may be cut: what it needs to end there.
struct Place {
    /// Bytes of the text that was written.
    length: usize,
    /// Bytes of the text that was read.
    read: usize,
    close: &'static str,
}

/// One walk through the text of an object.
#[derive(Default)]
struct Walk {
    out: Vec<u8>,
    /// Objects and lists that are open.
    depth: usize,
    /// The string that ended last, if nothing but a colon stands behind it.
    key: Vec<u8>,
    is_in_cache: bool,
    /// Whole records of the cache.
    records: usize,
    place: Option<Place>,
}

/// The text with its end put right; why it is no single document of which records can be read.
pub(super) fn whole(text: &str) -> Result<Whole, String> {
    let bytes = text.as_bytes();
    let mut walk = Walk { out: Vec::with_capacity(bytes.len() + 8), ..Walk::default() };
    let is_object = text.trim_start().starts_with('{');
    let mut at = 0;
    while at < bytes.len() {
        at += walk.step(&bytes[at..], at);
        if is_object && walk.depth == 0 && !walk.out.trim_ascii().is_empty() {
            refuse_more(text, at)?;
        }
    }
    let (mut out, mut note) = (walk.out, None);
    if walk.depth > 0
        && let Some(place) = &walk.place
    {
        out.truncate(place.length);
        out.extend(place.close.bytes());
        let is_begun = bytes[place.read..].iter().any(|b| !b.is_ascii_whitespace() && *b != b',');
        let what = if is_begun { ", and what was begun behind them is left out" } else { "" };
        let one = if walk.records == 1 { "" } else { "s" };
        note = Some(format!("it is cut short: {} whole record{one} read{what}", walk.records));
    } else if walk.depth > 0 && walk.is_in_cache {
        return Err("it is cut short ahead of the end of its first record".into());
    }
    // Only whole ASCII words were put into the place of others.
    let text = String::from_utf8(out).map_err(|e| e.to_string())?;
    Ok(Whole { text, note })
}

/// Refuses what stands behind the end of the document, which is read no further.
fn refuse_more(text: &str, end: usize) -> Result<(), String> {
    let rest = text[end..].trim_start();
    if rest.is_empty() {
        return Ok(());
    }
    let line = text[..text.len() - rest.len()].matches('\n').count() + 1;
    let begin: String = rest.chars().take(60).collect();
    Err(format!("behind its end, on line {line}, there is more: `{}`", shown(&begin)))
}

impl Walk {
    /// Goes on by the string, word or sign that `rest` begins with, which lies at byte `at` of the
    /// text; how many bytes those are.
    fn step(&mut self, rest: &[u8], at: usize) -> usize {
        let mut taken = 1;
        match rest[0] {
            b'"' => {
                taken = string(rest);
                let inside = &rest[1..taken.max(2) - 1];
                self.key = if self.depth == 1 { inside.to_vec() } else { Vec::new() };
            }
            b':' | b' ' | b'\t' | b'\n' | b'\r' => {}
            b'{' | b'[' => {
                self.depth += 1;
                self.is_in_cache |= self.depth == 2 && rest[0] == b'{' && self.key == b"cache";
                self.key.clear();
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.key.clear();
            }
            _ => {
                self.key.clear();
                if let Some(word) = NUMBERS.iter().find(|w| rest.starts_with(w)) {
                    self.out.extend(b"null");
                    return word.len();
                }
            }
        }
        self.out.extend(&rest[..taken]);
        if rest[0] == b'}' && self.is_in_cache && self.depth <= 2 {
            let close = if self.depth == 2 { "}}" } else { "}" };
            self.records += usize::from(self.depth == 2);
            self.is_in_cache = self.depth == 2;
            self.place = Some(Place { length: self.out.len(), read: at + 1, close });
        }
        taken
    }
}

/// Bytes of the string that a text begins with, with both its quotes.
fn string(rest: &[u8]) -> usize {
    let mut is_escaped = false;
    for (i, b) in rest.iter().enumerate().skip(1) {
        match b {
            b'"' if !is_escaped => return i + 1,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    rest.len()
}
