//! Operator lines: kernels for people who have no model.
//!
//! ```text
//! # NAME: OPERATOR KEY=VALUE ..
//! conv2: conv2d c=64 h=56 k=64 r=3 pad=1 epilogue=bias,relu
//! matmul m=128 n=3072 k=768 weight=b
//! ```
//!
//! A name is made where none is given; `#` starts a comment. An operator is an entry of
//! [`kinds::OPERATORS`].

mod kinds;
mod steps;

use crate::error::{ImportError, Place, shown};
use crate::import::{Import, Tasks};
use std::collections::HashMap;

/// Extents above this are refused.
const MOST: i64 = 1 << 31;

/// Imports operator lines. `name` is the file's, for messages.
pub fn import_ops(text: &str, name: &str) -> Result<Import, ImportError> {
    lines(text).map_err(|e| ImportError {
        file: name.into(),
        place: Place::Position { line: e.line, column: e.column },
        message: e.message,
    })
}

/// What is wrong, and where; both counted from 1.
struct LineError {
    line: usize,
    column: usize,
    message: String,
}

/// `KEY=VALUE` with its place.
struct Field<'a> {
    key: &'a str,
    value: &'a str,
    column: usize,
}

/// One operator with its fields.
struct Line<'a> {
    number: usize,
    /// Where the operator's name stands.
    column: usize,
    op: &'a str,
    fields: Vec<Field<'a>>,
}

fn lines(text: &str) -> Result<Import, LineError> {
    let mut tasks = Tasks::default();
    let mut names: HashMap<String, usize> = HashMap::new();
    for (i, whole) in text.lines().enumerate() {
        let number = i + 1;
        let code = whole.split('#').next().unwrap_or("");
        let Some((name, line)) = split(code, number)? else { continue };
        let Some(kind) = kinds::OPERATORS.iter().find(|k| k.name == line.op) else {
            let known: Vec<&str> = kinds::OPERATORS.iter().map(|k| k.name).collect();
            return Err(line.at(line.column, format!("`{}` is no operator{}; operators: {}", shown(line.op), nearest(line.op, &known), known.join(", "))));
        };
        line.check(kind.keys)?;
        let made = (kind.build)(&line)?;
        let name = match name {
            Some((column, n)) => {
                if let Some(before) = names.insert(n.to_string(), number) {
                    return Err(LineError { line: number, column, message: format!("the name `{}` is taken by line {before}", shown(n)) });
                }
                n.to_string()
            }
            None => made.name,
        };
        tasks.add(name.clone(), made.workload, vec![name]);
    }
    let tasks = tasks.finish();
    if tasks.is_empty() {
        let line = text.lines().count().max(1);
        return Err(LineError { line, column: 1, message: "there is no operator line, expected for example `matmul m=64 n=64 k=64`".into() });
    }
    Ok(Import { tasks, ..Import::default() })
}

/// A line without its comment as name, with its column, and fields.
#[allow(clippy::type_complexity)] // read in one place, just above
fn split(code: &str, number: usize) -> Result<Option<(Option<(usize, &str)>, Line<'_>)>, LineError> {
    let column = |part: &str| code[..part.as_ptr() as usize - code.as_ptr() as usize].chars().count() + 1;
    let mut words = code.split_whitespace();
    let Some(mut first) = words.next() else { return Ok(None) };
    let mut name = None;
    if let Some((n, rest)) = first.split_once(':') {
        if n.is_empty() {
            return Err(LineError { line: number, column: column(first), message: "expected a name before `:`".into() });
        }
        name = Some((column(first), n));
        first = match (rest.is_empty(), words.next()) {
            (false, Some(next)) => {
                words = code[next.as_ptr() as usize - code.as_ptr() as usize..].split_whitespace();
                rest
            }
            (false, None) => rest,
            (true, Some(next)) => next,
            (true, None) => {
                return Err(LineError { line: number, column: code.trim_end().chars().count() + 1, message: "expected an operator after the name".into() });
            }
        };
    }
    let mut line = Line { number, column: column(first), op: first, fields: Vec::new() };
    for word in words {
        let column = column(word);
        match word.split_once('=') {
            Some((key, value)) if !key.is_empty() => line.fields.push(Field { key, value, column }),
            _ => return Err(line.at(column, format!("expected `key=value`, found `{}`", shown(word)))),
        }
    }
    Ok(Some((name, line)))
}

impl<'a> Line<'a> {
    fn at(&self, column: usize, message: String) -> LineError {
        LineError { line: self.number, column, message }
    }

    /// An error that concerns the operator as a whole.
    fn whole(&self, message: String) -> LineError {
        self.at(self.column, format!("{}: {message}", self.op))
    }

    /// Every key must be one of the operator's, once.
    fn check(&self, keys: &[&str]) -> Result<(), LineError> {
        for (i, f) in self.fields.iter().enumerate() {
            if !keys.contains(&f.key) {
                let message = format!("{} has no key `{}`{}; its keys: {}", self.op, shown(f.key), nearest(f.key, keys), keys.join(", "));
                return Err(self.at(f.column, message));
            }
            if self.fields[..i].iter().any(|g| g.key == f.key) {
                return Err(self.at(f.column, format!("`{}` is given twice", f.key)));
            }
        }
        Ok(())
    }

    fn field(&self, key: &str) -> Option<&Field<'a>> {
        self.fields.iter().find(|f| f.key == key)
    }

    /// An error at a field's value.
    fn bad(&self, f: &Field, expected: &str) -> LineError {
        let column = f.column + f.key.chars().count() + 1;
        self.at(column, format!("`{}=` expects {expected}, found `{}`", f.key, shown(f.value)))
    }

    /// A whole number of at least `least`, `None` where the key is left out.
    fn int(&self, key: &str, least: i64) -> Result<Option<i64>, LineError> {
        let Some(f) = self.field(key) else { return Ok(None) };
        match f.value.parse::<i64>() {
            Ok(i) if (least..=MOST).contains(&i) => Ok(Some(i)),
            _ => Err(self.bad(f, &format!("a whole number from {least} to {MOST}"))),
        }
    }

    /// A whole number that must be given.
    fn need(&self, key: &str) -> Result<i64, LineError> {
        self.int(key, 1)?.ok_or_else(|| self.at(self.column, format!("{} needs `{key}=`", self.op)))
    }

    fn or(&self, key: &str, least: i64, default: i64) -> Result<i64, LineError> {
        Ok(self.int(key, least)?.unwrap_or(default))
    }

    /// One of some words, the first of them where the key is left out.
    fn word(&self, key: &str, words: &[&'static str]) -> Result<&'static str, LineError> {
        let Some(f) = self.field(key) else { return Ok(words[0]) };
        words.iter().copied().find(|w| *w == f.value).ok_or_else(|| self.bad(f, &format!("{}{}", words.join(" or "), nearest(f.value, words))))
    }

    /// Parts of a list with their columns.
    fn list(&self, key: &str) -> Vec<(usize, &'a str)> {
        let Some(f) = self.field(key) else { return Vec::new() };
        let mut column = f.column + key.chars().count() + 1;
        let mut out = Vec::new();
        for part in f.value.split(',') {
            out.push((column, part));
            column += part.chars().count() + 1;
        }
        out
    }
}

/// ` (did you mean `stride`?)` where one of the words is close.
fn nearest(wrong: &str, words: &[&str]) -> String {
    let best = words.iter().map(|w| (distance(wrong, w), *w)).min_by_key(|(d, _)| *d);
    match best {
        Some((d, w)) if d <= 1 + w.len() / 3 && d < w.len() => format!(" (did you mean `{w}`?)"),
        _ => String::new(),
    }
}

/// Insertions, deletions and replacements between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests;
