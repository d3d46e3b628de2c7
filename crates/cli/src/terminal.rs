//! Output helpers of the commands: lines, tables and short numbers, all cleaned by
//! [`plain`](crate::plain). A closed pipe is not an error.

use crate::failure::Failure;
pub use crate::plain::note;
use crate::plain::{CELL, clean, cut};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};
use squall::network::PlainShare;
use std::fmt;
use std::io::{self, IsTerminal, Write};

/// Prints a line on stdout at once.
pub fn say(text: impl fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", clean(&text.to_string()))?;
    out.flush()?;
    Ok(())
}

/// Says how many records of a file cannot be right and were not taken over.
pub fn left_out(place: &dyn fmt::Display, count: u64, reasons: &[String]) {
    if count > 0 {
        note(format_args!("warning: {place}: {count} records cannot be right and were left out"));
        reasons.iter().for_each(|why| note(format_args!("  {why}")));
    }
}

/// The plain operators of a network, for people.
pub fn say_plain(plain: &[PlainShare]) -> Result<(), Failure> {
    if plain.is_empty() {
        return Ok(());
    }
    let one = |p: &PlainShare| format!("{} {} x {}", percent(p.share), p.nodes, p.op);
    let list: Vec<String> = plain.iter().map(one).collect();
    let nodes: usize = plain.iter().map(|p| p.nodes).sum();
    let share = plain.iter().map(|p| p.share).sum();
    say(format_args!(
        "{nodes} nodes without a kernel run by plain operators, {} of the time: {}",
        percent(share),
        list.join(", ")
    ))
}

/// The same in JSON.
pub fn plain_json(p: &PlainShare) -> serde_json::Value {
    serde_json::json!({
        "op": p.op,
        "nodes": p.nodes,
        "best_ns": p.best_ns,
        "share": p.share,
    })
}

/// A line below the header, and otherwise space.
const RULED: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

/// A table, whose cells are cleaned and cut.
pub struct Table(comfy_table::Table);

impl Table {
    /// Adds a row.
    pub fn add_row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cell = |c: T| clean(&cut(c.as_ref(), CELL)).replace(['\n', '\t'], " ");
        self.0.add_row(cells.into_iter().map(cell).collect::<Vec<String>>());
    }

    /// Aligns a column of words to the left.
    pub fn align_left(&mut self, column: usize) {
        if let Some(c) = self.0.column_mut(column) {
            c.set_cell_alignment(CellAlignment::Left);
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A table with these columns; all but the first are numbers, aligned to the right.
pub fn table(columns: &[&str]) -> Table {
    let mut t = comfy_table::Table::new();
    t.load_style(RULED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(columns.to_vec());
    if !io::stdout().is_terminal() {
        // In a file or a pipe, every row is one line.
        t.set_content_arrangement(ContentArrangement::Disabled);
    }
    for i in 1..columns.len() {
        if let Some(c) = t.column_mut(i) {
            c.set_cell_alignment(CellAlignment::Right);
        }
    }
    Table(t)
}

/// A number in three digits.
pub fn three(x: f64) -> String {
    match x.abs() {
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

/// A number, or a dash where there is none.
pub fn or_dash(x: Option<impl fmt::Display>) -> String {
    x.map_or("-".into(), |x| x.to_string())
}

/// A share in percent.
pub fn percent(x: f64) -> String {
    format!("{:.0} %", x * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn names_do_not_speak_to_the_terminal() {
        let name = "conv\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}x";
        assert_eq!(clean(name), "conv\\u001b]0;owned\\u0007\\u009b2J\\u202ex");
        assert_eq!(clean("a\tb\nc µs ─"), "a\tb\nc µs ─");
        let value = serde_json::json!({ "name": name });
        let back: serde_json::Value = serde_json::from_str(&clean(&value.to_string())).unwrap();
        assert_eq!(back, value, "JSON keeps its meaning");
        let mut t = table(&["task", "best"]);
        t.add_row([name, "1 ns\n"]);
        let text = t.to_string();
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{text:?}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn a_long_name_is_cut() {
        let name = "é".repeat(10_000_000);
        let start = Instant::now();
        let mut t = table(&["task", "best"]);
        t.add_row([name.as_str(), "1 ns"]);
        let text = t.to_string();
        assert!(text.len() < 4000 && text.contains("20000000 bytes"), "{}", text.len());
        assert!(start.elapsed().as_secs_f64() < 2.0);
    }
}
