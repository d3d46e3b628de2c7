//! The lexer of line-based texts: a line is a list of words, which are bare or stand between double
//! quotes, where a backslash escapes. Models and the graph's stages (candidates, assignments,
//! plans) have texts of this form, such as `node "conv" "Conv"`. Names of files are always quoted,
//! so they may hold any character. Empty lines and lines that begin with `#` are skipped.

use crate::DType;
use crate::graph::elements;
use crate::text::TextError;
use std::fmt::Write as _;
use std::str::FromStr;

/// A name between quotes.
pub fn quote(name: &str) -> String {
    let mut out = String::from('"');
    for c in name.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => _ = write!(out, "\\u{{{:x}}}", c as u32),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Extents as one word.
pub fn shape_word(shape: &[i64]) -> String {
    let list: Vec<String> = shape.iter().map(i64::to_string).collect();
    format!("[{}]", list.join(","))
}

/// The words of one line.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    line: &'a str,
    number: usize,
    at: usize,
}

/// The lines of a text that say something.
pub fn lines(text: &str) -> impl Iterator<Item = Words<'_>> {
    text.lines()
        .enumerate()
        .map(|(i, line)| Words { line, number: i + 1, at: 0 })
        .filter(|w| !w.line.trim().is_empty() && !w.line.trim_start().starts_with('#'))
}

/// An error at a text's end.
pub fn at_end<T>(text: &str, message: impl Into<String>) -> Result<T, TextError> {
    Err(TextError { line: text.lines().count() + 1, column: 1, message: message.into() })
}

impl<'a> Words<'a> {
    /// An error at the next word.
    pub fn error<T>(&self, message: impl Into<String>) -> Result<T, TextError> {
        let rest = &self.line[self.at..];
        let next = self.at + (rest.len() - rest.trim_start().len());
        let column = self.line[..next].chars().count() + 1;
        Err(TextError { line: self.number, column, message: message.into() })
    }

    /// The line's number in its text, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Takes all that is left, as it stands.
    pub fn take_rest(&mut self) -> &'a str {
        let rest = self.rest();
        self.at = self.line.len();
        rest
    }

    fn rest(&mut self) -> &'a str {
        let rest = &self.line[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.line[self.at..]
    }

    /// Whether no word is left.
    pub fn is_done(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// Fails where a word is left.
    pub fn end(&mut self) -> Result<(), TextError> {
        match self.rest() {
            "" => Ok(()),
            _ => self.error("the line should end here"),
        }
    }

    /// The next bare word without taking it.
    pub fn peek(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        if rest.is_empty() || rest.starts_with('"') {
            return None;
        }
        Some(&rest[..rest.find(char::is_whitespace).unwrap_or(rest.len())])
    }

    /// Takes the next word, which must be bare.
    pub fn bare(&mut self) -> Result<&'a str, TextError> {
        match self.peek() {
            Some(word) => {
                self.at += word.len();
                Ok(word)
            }
            None => self.error("expected a word"),
        }
    }

    /// Takes this very word if it is next.
    pub fn accept(&mut self, word: &str) -> bool {
        let yes = self.peek() == Some(word);
        if yes {
            self.at += word.len();
        }
        yes
    }

    /// Takes this very word or fails.
    pub fn expect(&mut self, word: &str) -> Result<(), TextError> {
        if self.accept(word) { Ok(()) } else { self.error(format!("expected `{word}`")) }
    }

    /// Takes a number or another thing that is one bare word.
    pub fn value<T: FromStr>(&mut self, what: &str) -> Result<T, TextError> {
        let start = self.clone();
        match self.bare().ok().and_then(|w| w.parse().ok()) {
            Some(x) => Ok(x),
            None => start.error(format!("expected {what}")),
        }
    }

    /// Takes all words that are left as numbers.
    pub fn values<T: FromStr>(&mut self, what: &str) -> Result<Vec<T>, TextError> {
        let mut list = Vec::new();
        while !self.is_done() {
            list.push(self.value(what)?);
        }
        Ok(list)
    }

    /// Whether a quoted name is next.
    pub fn is_quoted(&mut self) -> bool {
        self.rest().starts_with('"')
    }

    /// Takes a quoted name.
    pub fn quoted(&mut self) -> Result<String, TextError> {
        let Some(body) = self.rest().strip_prefix('"') else {
            return self.error("expected a name between double quotes");
        };
        let mut out = String::new();
        let mut chars = body.char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += 1 + i + 1;
                    return Ok(out);
                }
                '\\' => match escaped(&mut chars) {
                    Some(c) => out.push(c),
                    None => return self.error("this name holds an escape that is not known"),
                },
                c => out.push(c),
            }
        }
        self.error("the name's quote is not closed")
    }

    /// Takes a type of elements, or `?` for none.
    pub fn dtype(&mut self) -> Result<Option<DType>, TextError> {
        if self.accept("?") {
            return Ok(None);
        }
        match self.peek().and_then(DType::from_name) {
            Some(d) => {
                self.bare()?;
                Ok(Some(d))
            }
            None => self.error("expected a type of elements, or `?`"),
        }
    }

    /// Takes extents, or `?` where they are not known.
    pub fn shape(&mut self) -> Result<Option<Vec<i64>>, TextError> {
        if self.accept("?") {
            return Ok(None);
        }
        let start = self.clone();
        let inner = self.bare()?.strip_prefix('[').and_then(|w| w.strip_suffix(']'));
        let numbers = |w: &str| w.split(',').map(str::parse).collect::<Result<Vec<i64>, _>>();
        let shape = match inner {
            Some("") => Some(Vec::new()),
            Some(list) => numbers(list).ok(),
            None => None,
        };
        match shape {
            // Open extents are below 0; a model's are verified.
            Some(shape) => match elements(&shape.iter().map(|e| (*e).max(0)).collect::<Vec<_>>()) {
                Ok(_) => Ok(Some(shape)),
                Err(e) => start.error(e),
            },
            None => start.error("expected extents like [1,64,56,56], or `?`"),
        }
    }
}

/// What an escape stands for, its backslash taken.
fn escaped(chars: &mut std::str::CharIndices<'_>) -> Option<char> {
    match chars.next()?.1 {
        'n' => Some('\n'),
        'r' => Some('\r'),
        c @ ('"' | '\\') => Some(c),
        'u' => {
            if chars.next()?.1 != '{' {
                return None;
            }
            let mut code = 0u32;
            loop {
                match chars.next()?.1 {
                    '}' => return char::from_u32(code),
                    c => code = code.checked_mul(16)?.checked_add(c.to_digit(16)?)?,
                }
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_kind_come_back() {
        for name in ["", "a b", "\"\\", "x\ny\r\u{1}\u{7f}", "\u{e9}\u{1f600}#", "\\u{41}"] {
            let text = format!("{} [2,3] ? f16 -7", quote(name));
            let mut w = lines(&text).next().unwrap();
            assert_eq!(w.quoted().as_deref(), Ok(name));
            assert_eq!(w.shape(), Ok(Some(vec![2, 3])));
            assert_eq!((w.shape(), w.dtype()), (Ok(None), Ok(Some(DType::F16))));
            assert_eq!(w.value::<i64>("a number"), Ok(-7));
            assert_eq!(w.end(), Ok(()));
        }
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        let wrong = |text: &str| lines(text).next().unwrap().quoted().unwrap_err().to_string();
        assert_eq!(wrong("\n  x"), "line 2, column 3: expected a name between double quotes");
        assert!(wrong("\"abc").contains("not closed"));
        assert!(wrong("\"\\q\"").contains("escape"));
        assert!(wrong("\"\\u{110000}\"").contains("escape"));
        assert!(wrong("\"\\u{fffffffff}\"").contains("escape"));
        let shape = |text: &str| lines(text).next().unwrap().shape();
        assert!(shape("[1").is_err() && shape("[9999999999999]").is_err());
        // An extent that only the run knows.
        assert_eq!(shape("[1,-2]"), Ok(Some(vec![1, -2])));
        assert_eq!(shape("[]"), Ok(Some(vec![])));
    }
}
