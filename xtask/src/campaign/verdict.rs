//! The verdict on a campaign's case (right, panic, hang, too much memory, escape from its folder,
//! missing trial, ..), the line by which a finished case is kept in the campaign's list, and the
//! table of all verdicts.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// The result of a case. Every variant but the first is bad, and says what was seen.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It did what it should.
    Right,
    /// It panicked, or died by a signal of its own doing.
    Panic(String),
    /// It did not end within its limit.
    Hang(String),
    /// It wanted more memory than its limit.
    Memory(String),
    /// It wrote or ran something outside of its folder, or spoke to the terminal.
    Escape(String),
    /// It succeeded on what is certainly wrong.
    Garbage(String),
    /// It failed without a message.
    Silent(String),
    /// A reported trial is missing.
    Missing(String),
    /// It left something behind, or ended otherwise than it should.
    Wrong(String),
    /// The case could not be run.
    Unrun(String),
}

/// The bad ones, as columns.
const COLUMNS: [&str; 9] =
    ["panic", "hang", "memory", "escape", "garbage", "silent", "missing", "wrong", "unrun"];

impl Verdict {
    /// Whether nothing is wrong.
    pub fn is_right(&self) -> bool {
        *self == Verdict::Right
    }

    /// Whether the program under test is at fault. A case that this machine cannot bring about is
    /// counted by itself.
    pub fn is_bad(&self) -> bool {
        !self.is_right() && !matches!(self, Verdict::Unrun(_))
    }

    /// Its column and what was seen.
    fn parts(&self) -> Option<(usize, &str)> {
        Some(match self {
            Verdict::Right => return None,
            Verdict::Panic(s) => (0, s),
            Verdict::Hang(s) => (1, s),
            Verdict::Memory(s) => (2, s),
            Verdict::Escape(s) => (3, s),
            Verdict::Garbage(s) => (4, s),
            Verdict::Silent(s) => (5, s),
            Verdict::Missing(s) => (6, s),
            Verdict::Wrong(s) => (7, s),
            Verdict::Unrun(s) => (8, s),
        })
    }

    fn new(column: usize, seen: String) -> Verdict {
        let make = [
            Verdict::Panic,
            Verdict::Hang,
            Verdict::Memory,
            Verdict::Escape,
            Verdict::Garbage,
            Verdict::Silent,
            Verdict::Missing,
            Verdict::Wrong,
            Verdict::Unrun,
        ];
        make[column.min(8)](seen)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            None => f.write_str("right"),
            Some((column, seen)) => write!(f, "{}: {}", COLUMNS[column], seen.replace('\n', " | ")),
        }
    }
}

/// The first of some verdicts that is bad.
pub fn first(all: impl IntoIterator<Item = Verdict>) -> Verdict {
    all.into_iter().find(|v| !v.is_right()).unwrap_or(Verdict::Right)
}

/// A case that was run.
#[derive(Clone)]
pub struct Done {
    /// Which.
    pub id: String,
    /// Its kind.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// How long it took.
    pub seconds: f64,
}

impl Done {
    /// The case as a line.
    pub fn line(&self) -> String {
        format!("{}\t{}\t{:.3}\t{}", self.id, self.name, self.seconds, self.verdict)
    }

    /// Reads such a line.
    pub fn parse(line: &str) -> Option<Done> {
        let mut words = line.splitn(4, '\t');
        let (id, name) = (words.next()?.to_string(), words.next()?.to_string());
        let seconds = words.next()?.parse().ok()?;
        let text = words.next()?;
        let verdict = match text.split_once(": ") {
            None => Verdict::Right,
            Some((word, seen)) => {
                Verdict::new(COLUMNS.iter().position(|c| *c == word)?, seen.into())
            }
        };
        Some(Done { id, name, verdict, seconds })
    }
}

/// The table: a row a kind, the totals last.
pub fn table(done: &[Done]) -> String {
    let mut rows: BTreeMap<(String, String), (usize, [usize; 9], f64)> = BTreeMap::new();
    for d in done {
        let kind = d.id.split('-').next().unwrap_or_default();
        let places = [(kind.to_string(), d.name.clone()), ("~".into(), format!("all {kind}s"))];
        for place in places {
            let row = rows.entry(place).or_default();
            row.0 += 1;
            row.2 = row.2.max(d.seconds);
            if let Some((column, _)) = d.verdict.parts() {
                row.1[column] += 1;
            }
        }
    }
    let mut text = format!("| kind | cases | {} | longest |\n", COLUMNS.join(" | "));
    text += &"|---".repeat(COLUMNS.len() + 3);
    text += "|\n";
    for ((kind, name), (cases, bad, longest)) in rows {
        let name = if kind == "~" { format!("**{name}**") } else { format!("{kind}: {name}") };
        let bad: Vec<String> = bad.iter().map(usize::to_string).collect();
        let _ = writeln!(text, "| {name} | {cases} | {} | {longest:.1} s |", bad.join(" | "));
    }
    text
}
