//! A TOML document whose values know their place in the file, so that every error can show the line
//! with carets below the wrong part. [`Table`] reads keys with checks (unknown keys, types);
//! [`Fault`] is an error at bytes of the file. All readers of kernel.toml in this folder use these
//! two.

use crate::error::{ImportError, pointed};
use squall_core::text::{TextError, nearest};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value with its place.
pub type Item<'a> = &'a Spanned<DeValue<'a>>;

/// An error at bytes of the file.
#[derive(Debug)]
pub struct Fault {
    pub at: Range<usize>,
    pub message: String,
}

/// An error at a place.
pub fn fault<T>(at: Range<usize>, message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at, message: message.into() })
}

impl Fault {
    /// The error as users see it: the line, with carets below the wrong part.
    pub fn show(self, name: &str, text: &str) -> ImportError {
        // Byte offsets may lie inside a character where a file is hostile.
        let floor = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (start, end) = (floor(self.at.start), floor(self.at.end));
        let begin = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line = text[begin..].lines().next().unwrap_or("");
        let column = text[begin..start].chars().count();
        let width = text[start..end.max(start)].lines().next().unwrap_or("").chars().count().max(1);
        // Long lines are cut around the place; tabs would move the caret.
        let from = column.saturating_sub(60);
        let excerpt: String = line
            .chars()
            .skip(from)
            .take(110)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let number = text[..start].matches('\n').count() + 1;
        let width = width.min(110_usize.saturating_sub(column - from)).max(1);
        ImportError::Text {
            name: name.into(),
            line: number,
            column: column + 1,
            message: self.message,
            excerpt: pointed(number, &excerpt, column - from, width),
        }
    }
}

/// A table whose keys are all known.
pub struct Table<'a> {
    /// What it is, for messages: `a knob`.
    what: &'static str,
    table: &'a DeTable<'a>,
    /// Its header, or its braces.
    pub at: Range<usize>,
}

impl<'a> Table<'a> {
    /// A table that may have these keys; an empty list allows any.
    pub fn new(
        what: &'static str,
        table: &'a DeTable<'a>,
        at: Range<usize>,
        keys: &[&str],
    ) -> Result<Table<'a>, Fault> {
        for (key, _) in table.iter() {
            let word: &str = key.get_ref();
            if !keys.is_empty() && !keys.contains(&word) {
                let near = nearest(word, keys);
                return fault(
                    key.span(),
                    format!("{what} has no key `{word}`{near}; its keys are {}", keys.join(", ")),
                );
            }
        }
        Ok(Table { what, table, at })
    }

    /// A value that must be a table.
    pub fn of(what: &'static str, item: Item<'a>, keys: &[&str]) -> Result<Table<'a>, Fault> {
        match item.get_ref() {
            DeValue::Table(t) => Table::new(what, t, item.span(), keys),
            other => fault(
                item.span(),
                format!("expected {what} as a table, found a {}", other.type_str()),
            ),
        }
    }

    /// All keys and values, in the order of the file.
    pub fn entries(&self) -> Vec<(&'a str, Range<usize>, Item<'a>)> {
        let mut all: Vec<_> =
            self.table.iter().map(|(k, v)| (&**k.get_ref(), k.span(), v)).collect();
        all.sort_by_key(|(_, at, _)| at.start);
        all
    }

    /// A value.
    pub fn get(&self, key: &str) -> Option<Item<'a>> {
        self.table.iter().find(|(k, _)| &**k.get_ref() == key).map(|(_, v)| v)
    }

    /// A value that must be there.
    pub fn need(&self, key: &str) -> Result<Item<'a>, Fault> {
        match self.get(key) {
            Some(v) => Ok(v),
            None => fault(self.at.clone(), format!("{} needs `{key} = ..`", self.what)),
        }
    }

    /// The text at a key.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, Fault> {
        self.get(key).map(|v| text(v)).transpose()
    }

    /// The truth at a key; false where it is not there.
    pub fn truth(&self, key: &str) -> Result<bool, Fault> {
        match self.get(key).map(|v| (v.span(), v.get_ref())) {
            None => Ok(false),
            Some((_, DeValue::Boolean(b))) => Ok(*b),
            Some((at, other)) => {
                fault(at, format!("expected true or false, found a {}", other.type_str()))
            }
        }
    }

    /// The items of the list at a key; none where it is not there.
    pub fn list(&self, key: &str) -> Result<Vec<Item<'a>>, Fault> {
        self.get(key).map_or(Ok(Vec::new()), list)
    }

    /// The texts of the list at a key.
    pub fn texts(&self, key: &str) -> Result<Vec<&'a str>, Fault> {
        self.list(key)?.into_iter().map(text).collect()
    }

    /// One of several words.
    pub fn word<'w>(
        &self,
        key: &str,
        words: &[&'w str],
        default: &'w str,
    ) -> Result<&'w str, Fault> {
        let Some(v) = self.get(key) else { return Ok(default) };
        let said = text(v)?;
        match words.iter().find(|w| **w == said) {
            Some(w) => Ok(w),
            None => fault(
                v.span(),
                format!(
                    "`{key}` is one of {}, not `{said}`{}",
                    words.join(", "),
                    nearest(said, words)
                ),
            ),
        }
    }

    /// A name for C at a key, not among those taken.
    pub fn identifier(&self, key: &str, taken: &mut Vec<String>) -> Result<String, Fault> {
        let v = self.need(key)?;
        let name = identifier(text(v)?, v.span())?;
        if taken.contains(&name) {
            return fault(v.span(), format!("the name `{name}` is taken above"));
        }
        taken.push(name.clone());
        Ok(name)
    }
}

/// The items of a list.
pub fn list<'a>(item: Item<'a>) -> Result<Vec<Item<'a>>, Fault> {
    match item.get_ref() {
        DeValue::Array(a) => Ok(a.iter().collect()),
        other => {
            fault(item.span(), format!("expected a list in brackets, found a {}", other.type_str()))
        }
    }
}

/// A text.
pub fn text<'a>(item: Item<'a>) -> Result<&'a str, Fault> {
    match item.get_ref() {
        DeValue::String(s) => Ok(s),
        other => {
            fault(item.span(), format!("expected a text in quotes, found a {}", other.type_str()))
        }
    }
}

/// A whole number, if it is one.
pub fn whole(item: Item<'_>) -> Option<i64> {
    let DeValue::Integer(i) = item.get_ref() else { return None };
    i64::from_str_radix(&i.as_str().replace('_', ""), i.radix()).ok()
}

/// A number of any form.
pub fn number(item: Item<'_>) -> Result<f64, Fault> {
    let read = match item.get_ref() {
        DeValue::Float(x) => x.as_str().replace('_', "").parse().ok(),
        _ => whole(item).map(|i| i as f64),
    };
    match read.filter(|x: &f64| x.is_finite()) {
        Some(x) => Ok(x),
        None => {
            fault(item.span(), format!("expected a number, found a {}", item.get_ref().type_str()))
        }
    }
}

/// A name that C takes.
pub fn identifier(name: &str, at: Range<usize>) -> Result<String, Fault> {
    let good = |(i, c): (usize, char)| {
        c == '_' || c.is_ascii_alphabetic() || (i > 0 && c.is_ascii_digit())
    };
    if name.is_empty() || name.len() > 64 || !name.chars().enumerate().all(good) {
        return fault(
            at,
            format!(
                "`{}` is no name: letters, digits and `_`, no digit first",
                crate::error::shown(name)
            ),
        );
    }
    Ok(name.into())
}

/// An error inside the text of a value, moved to its place in the file; `before` characters were
/// put in front of the text.
pub fn inside(item: Item<'_>, before: usize, e: TextError) -> Fault {
    let span = item.span();
    // Behind the quote; where a text has escapes or several lines, its beginning must do.
    let plain = text(item).is_ok_and(|t| t.len() + 2 == span.len());
    let skipped: usize = text(item).map_or(0, |t| {
        t.chars().take((e.column - 1).saturating_sub(before)).map(char::len_utf8).sum()
    });
    let at = if plain && e.line == 1 { span.start + 1 + skipped } else { span.start };
    Fault { at: at..(at + 1).min(span.end), message: e.message }
}
