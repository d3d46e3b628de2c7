//! The output of `squall import` for MIOpen's performance databases (tuned parameters of solvers):
//! a table or JSON of the examples that went into the store.

use crate::failure::Failure;
use crate::terminal::{note, say, table};
use serde_json::{Value, json};
use squall::forecast::Imported;
use std::collections::BTreeMap;

/// Rows that are named one by one without `--json`.
const SHOWN: usize = 5;

/// What was taken over, as JSON.
pub fn json(all: &[Imported]) -> Value {
    all.iter().map(file).collect()
}

/// Says what was taken over.
pub fn show(all: &[Imported]) -> Result<(), Failure> {
    let mut t = table(&["solver", "device", "examples"]);
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for e in all.iter().flat_map(|i| &i.database.examples) {
        *counts.entry((&e.problem.solver, &e.problem.device)).or_default() += 1;
    }
    for ((solver, device), n) in counts {
        t.add_row([solver.to_string(), device.to_string(), n.to_string()]);
    }
    say(t)?;
    for i in all {
        say(format_args!(
            "{}: {} new examples, {} known already",
            i.file.display(),
            i.new,
            i.known
        ))?;
        let bad = &i.database.bad;
        for b in bad.iter().take(SHOWN) {
            note(format_args!("{}:{}: left out: {}", i.file.display(), b.row, b.what));
        }
        if bad.len() > SHOWN {
            note(format_args!(
                "{}: {} rows in all were left out; --json names each",
                i.file.display(),
                bad.len()
            ));
        }
        if i.database.assumed > 0 {
            note(format_args!(
                "{}: {} rows leave the size of the output open; the one that the stride divides \
                 was taken",
                i.file.display(),
                i.database.assumed
            ));
        }
    }
    Ok(())
}

fn file(i: &Imported) -> Value {
    let bad: Vec<_> =
        i.database.bad.iter().map(|b| json!({"row": b.row, "what": b.what})).collect();
    json!({
        "file": i.file, "new": i.new, "known": i.known, "solvers": i.database.counts(),
        "left_out": bad, "assumed_sizes": i.database.assumed,
    })
}
