//! What is wrong with an input, and where.

use std::fmt;

/// Where in an input something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    File,
    /// A node of a model's graph.
    Node {
        /// Its name, or one made from operator and position.
        name: String,
        /// Its operator.
        op: String,
    },
    /// A tensor of a model: an input, an initializer or a result.
    Tensor(String),
    /// A position in a text, both counted from 1.
    Position {
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
}

/// An input that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ImportError {
    /// The input's name, as the caller gave it.
    pub file: String,
    /// Where.
    pub place: Place,
    /// What is wrong and what was expected.
    pub message: String,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ImportError { file, place, message } = self;
        match place {
            Place::File => write!(f, "{file}: {message}"),
            Place::Node { name, op } => write!(f, "{file}: node `{}` ({op}): {message}", shown(name)),
            Place::Tensor(name) => write!(f, "{file}: tensor `{}`: {message}", shown(name)),
            Place::Position { line, column } => write!(f, "{file}:{line}:{column}: {message}"),
        }
    }
}

/// Names come from files: what is printed stays on one line and short.
pub(crate) fn shown(name: &str) -> String {
    let clean: String = name.chars().take(120).map(|c| if c.is_control() { '?' } else { c }).collect();
    if name.chars().nth(120).is_some() { clean + ".." } else { clean }
}

/// Why one operator gives nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Trouble {
    /// It may be right, but we do not know enough of it: the operator is listed as untuned.
    Unknown(String),
    /// It contradicts the operator's definition: the import fails.
    Wrong(String),
}

pub(crate) type Outcome<T> = Result<T, Trouble>;

pub(crate) fn unknown<T>(message: impl Into<String>) -> Outcome<T> {
    Err(Trouble::Unknown(message.into()))
}

pub(crate) fn wrong<T>(message: impl Into<String>) -> Outcome<T> {
    Err(Trouble::Wrong(message.into()))
}

impl Trouble {
    pub fn message(self) -> String {
        match self {
            Trouble::Unknown(m) | Trouble::Wrong(m) => m,
        }
    }
}
