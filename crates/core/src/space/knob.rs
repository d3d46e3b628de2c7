//! Knobs, the tunable parameters of a kernel: a name, an ordered list of values, a role (tile size,
//! vector width, unrolling), and a rule that says which values are next to which, by which local
//! searches step. A knob also lists the names that it and its values had before, so that older
//! records still parse. A [`Space`](super::Space) is made of knobs and constraints.

use super::Term;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A value of a knob.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number: a tile size, a depth, a width.
    Int(i64),
    /// A word: one of several ways.
    Word(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(i) => write!(f, "{i}"),
            Value::Word(w) => write!(f, "{w}"),
        }
    }
}

/// The role of a knob in a kernel; moves and features depend on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The factor of one level of a tiled axis. Knobs of equal `axis` can trade factors.
    Tile {
        /// The axis that is tiled.
        axis: String,
        /// 0 is the outermost level that is a knob.
        level: u8,
    },
    /// Vector width.
    Vector,
    /// Depth of unrolling.
    Unroll,
    /// How much runs in parallel.
    Parallel,
    /// A memory layout: packing, padding.
    Layout,
    /// An order of loops.
    Order,
    /// Anything else.
    Choice,
}

/// The neighbourhood of a knob's values: which of them are next to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Neighbourhood {
    /// A scale: a value is next to the one before it and to the one behind it in the list.
    Scale,
    /// No order: a value is next to every other.
    All,
}

/// A pair `knob=value` of texts that were written before the knob, or its values, had the names
/// that they have now.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Former {
    /// The knob's name in the old text; another knob of the space may have that name now.
    pub knob: String,
    /// The value in the old text.
    pub value: String,
    /// The position of the value that it stands for.
    pub means: u16,
}

/// A tunable parameter: a list of values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Knob {
    /// Unique in its space; letters, digits and `_`.
    pub name: String,
    /// At least one, without duplicates. Numbers ascend, so that neighbours in the list are
    /// neighbours in value (descent depends on it).
    pub values: Vec<Value>,
    /// What it decides.
    pub role: Role,
    /// Which values are next to which.
    pub neighbourhood: Neighbourhood,
    /// How older texts say what this knob decides.
    #[serde(default)]
    pub formers: Vec<Former>,
    /// The position that texts mean which do not name the knob: they were written before there was
    /// one. None where a text without it is no configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<u16>,
}

impl Knob {
    /// A knob over these values: numbers are a scale, anything else has no order.
    pub fn new(name: impl Into<String>, role: Role, values: Vec<Value>) -> Knob {
        let numbers = values.iter().all(|v| matches!(v, Value::Int(_)));
        let neighbourhood = if numbers { Neighbourhood::Scale } else { Neighbourhood::All };
        let (name, formers) = (name.into(), Vec::new());
        Knob { name, values, role, neighbourhood, formers, absent: None }
    }

    /// A knob over numbers, sorted and without duplicates.
    pub fn ints(
        name: impl Into<String>,
        role: Role,
        values: impl IntoIterator<Item = i64>,
    ) -> Knob {
        let mut v: Vec<i64> = values.into_iter().collect();
        v.sort_unstable();
        v.dedup();
        Knob::new(name, role, v.into_iter().map(Value::Int).collect())
    }

    /// A knob over words, in the given order, which means nothing.
    pub fn words(name: impl Into<String>, role: Role, values: &[&str]) -> Knob {
        Knob::new(name, role, values.iter().map(|w| Value::Word(w.to_string())).collect())
    }

    /// A knob over words that go from less to more.
    pub fn scale(name: impl Into<String>, role: Role, values: &[&str]) -> Knob {
        Knob { neighbourhood: Neighbourhood::Scale, ..Knob::words(name, role, values) }
    }

    /// The same knob, which also reads texts in which a knob called `name` had one of the values
    /// of `pairs`, each with the value that it stands for. A pair whose value this knob does not
    /// have is left out.
    pub fn formerly(mut self, name: &str, pairs: &[(&str, &str)]) -> Knob {
        for (old, new) in pairs {
            if let Some(at) = self.position(new) {
                let (knob, value) = (name.into(), old.to_string());
                self.formers.push(Former { knob, value, means: at as u16 });
            }
        }
        self
    }

    /// The same knob, which stands at `value` in texts that do not name it.
    pub fn where_absent(mut self, value: &str) -> Knob {
        self.absent = self.position(value).map(|at| at as u16);
        self
    }

    /// Whether the values are a scale, so that positions in the list say how far apart they are.
    pub fn is_ordered(&self) -> bool {
        self.neighbourhood == Neighbourhood::Scale
    }

    /// The numbers, if all values are numbers.
    pub fn numbers(&self) -> Option<Vec<i64>> {
        self.values.iter().map(|v| if let Value::Int(i) = v { Some(*i) } else { None }).collect()
    }

    /// Steps from one position to another: of a scale, how far apart they lie; without an order,
    /// one.
    pub fn steps_between(&self, a: usize, b: usize) -> usize {
        match self.neighbourhood {
            Neighbourhood::Scale => a.abs_diff(b),
            Neighbourhood::All => usize::from(a != b),
        }
    }

    /// The positions that lie `radius` steps from another, ascending.
    pub fn neighbours(&self, position: usize, radius: usize) -> Vec<usize> {
        match self.neighbourhood {
            Neighbourhood::Scale => [position.checked_sub(radius), position.checked_add(radius)]
                .into_iter()
                .flatten()
                .filter(|&p| p < self.values.len() && p != position)
                .collect(),
            Neighbourhood::All if radius == 1 => {
                (0..self.values.len()).filter(|&p| p != position).collect()
            }
            Neighbourhood::All => Vec::new(),
        }
    }

    /// The position of the value that is spelled so.
    pub fn position(&self, value: &str) -> Option<usize> {
        self.values.iter().position(|v| match v {
            Value::Word(w) => w == value,
            Value::Int(_) => v.to_string() == value,
        })
    }

    /// The position of the value that an older text's pair stands for.
    pub fn position_formerly(&self, knob: &str, value: &str) -> Option<usize> {
        let said = |f: &&Former| f.knob == knob && f.value == value;
        self.formers.iter().find(said).map(|f| f.means.into())
    }

    /// The constraint that the knob stands at this value; it never holds where there is no such
    /// value.
    pub fn is(&self, value: &str) -> Term {
        let Some(at) = self.position(value) else { return Term::Const(0) };
        let number = match self.values[at] {
            Value::Int(i) => i,
            // A knob of words counts as the position of its value.
            Value::Word(_) => at as i64,
        };
        Term::knob(self.name.as_str()).equals(number)
    }
}
