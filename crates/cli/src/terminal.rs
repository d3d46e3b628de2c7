//! Writing to the terminal: lines, tables, numbers for people. A closed pipe is no error.

use crate::failure::Failure;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use std::io::{self, IsTerminal, Write};

/// Prints a line on stdout at once.
pub fn say(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Prints a line on stderr; where that fails, the command goes on.
pub fn note(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A line below the header, and otherwise space.
const RULED: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

/// A table with these columns; all but the first are numbers, aligned to the right.
pub fn table(columns: &[&str]) -> Table {
    let mut t = Table::new();
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
    t
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
pub fn or_dash(x: Option<impl std::fmt::Display>) -> String {
    x.map_or("-".into(), |x| x.to_string())
}

/// A share in percent.
pub fn percent(x: f64) -> String {
    format!("{:.0} %", x * 100.0)
}
