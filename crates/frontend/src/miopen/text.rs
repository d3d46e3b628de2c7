//! Reads MIOpen's text databases of tuned parameters, one problem a line:
//! `PROBLEM=Solver:params;Solver:params;..`. Output: rows that `mod.rs` checks against the kernel
//! families, and the lines that are no rows, with their numbers. `merge` writes rows into the text
//! of an existing database.

use super::{BadRow, Convolution, DatabaseError, Device, Rows, fault, parameters};
use crate::error::shown;
use squall_core::forecast::Example;
use std::collections::HashMap;

/// Reads all rows. A text of which not one line has the form is refused.
pub(super) fn read(name: &str, text: &str, device: &Device) -> Result<Rows, DatabaseError> {
    let mut rows = Rows::default();
    let (mut lines, mut formed) = (0u64, false);
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        lines += 1;
        let row = i as u64 + 1;
        let mut bad = |what: String| rows.bad.push(BadRow { row, what });
        let Some((key, solvers)) = line.trim().split_once('=') else {
            bad(format!("`{}` is no `PROBLEM=Solver:params`", shown(line)));
            continue;
        };
        let problem = match Convolution::parse(key) {
            Ok(p) => p,
            Err(what) => {
                bad(what);
                continue;
            }
        };
        formed = true;
        for part in solvers.split(';').filter(|p| !p.is_empty()) {
            let parsed = match part.split_once(':') {
                Some((solver, values)) if !solver.is_empty() => {
                    parameters(values).map(|v| (solver, v))
                }
                _ => Err(format!("`{}` is no `Solver:params`", shown(part))),
            };
            match parsed {
                Ok((solver, values)) => rows
                    .examples
                    .push((row, Example { problem: problem.problem(solver, device), values })),
                Err(what) => rows.bad.push(BadRow { row, what }),
            }
        }
    }
    if lines > 0 && !formed {
        let what = format!(
            "not one line has the form `PROBLEM=Solver:params` (the first: {})",
            rows.bad[0].what
        );
        return Err(fault(
            name,
            what,
            "give one of MIOpen's performance databases, text or SQLite",
        ));
    }
    Ok(rows)
}

/// Refuses a text that is no database; an empty one may become one.
pub fn recognise(name: &str, text: &str) -> Result<(), DatabaseError> {
    let any = Device { name: String::new(), gfx: 0, units: None };
    read(name, text, &any).map(|_| ())
}

/// The text of a database with rows added or replaced; all else stays as it was. `rows` are a key,
/// a solver and its serialised values.
pub fn merge(old: &str, rows: &[(String, String, String)]) -> String {
    let mut by_key: HashMap<&str, Vec<&(String, String, String)>> = HashMap::new();
    let mut order = Vec::new();
    for r in rows {
        let of_key = by_key.entry(&r.0).or_insert_with(|| {
            order.push(r.0.as_str());
            Vec::new()
        });
        // The last one said holds.
        of_key.retain(|o| o.1 != r.1);
        of_key.push(r);
    }
    let mut out = String::with_capacity(old.len() + rows.len() * 64);
    for line in old.lines() {
        let key = line.split_once('=').map_or("", |(k, _)| k.trim());
        let Some(new) = by_key.remove(key) else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let kept =
            line.split_once('=').map_or("", |(_, s)| s.trim()).split(';').filter(|p| !p.is_empty());
        let kept =
            kept.filter(|p| !new.iter().any(|n| p.split_once(':').is_some_and(|(s, _)| s == n.1)));
        let parts: Vec<String> =
            kept.map(String::from).chain(new.iter().map(|n| format!("{}:{}", n.1, n.2))).collect();
        out.push_str(&format!("{key}={}\n", parts.join(";")));
    }
    for key in order {
        if let Some(new) = by_key.remove(key) {
            let parts: Vec<String> = new.iter().map(|n| format!("{}:{}", n.1, n.2)).collect();
            out.push_str(&format!("{key}={}\n", parts.join(";")));
        }
    }
    out
}
