//! The output of `squall import` for MIOpen's find databases (timed solvers of each problem): a
//! table or JSON of the lines that went into the store.

use crate::failure::Failure;
use crate::terminal::{note, say, table};
use serde_json::{Value, json};
use squall::find::FindImported;

/// Rows that are named one by one without `--json`.
const SHOWN: usize = 5;

/// What was taken over, as JSON.
pub fn json(all: &[FindImported]) -> Value {
    all.iter().map(file).collect()
}

fn file(i: &FindImported) -> Value {
    let d = &i.database;
    let bad: Vec<_> = d.bad.iter().map(|b| json!({"row": b.row, "what": b.what})).collect();
    json!({
        "file": i.file, "device": d.device,
        "new": i.added.new, "changed": i.added.changed, "known": i.added.known,
        "rows": d.rows, "zero_rows": d.zero, "untimed_problems": d.untimed,
        "cut_lists": d.cut, "by_algorithm": d.by_algorithm, "solvers": d.solvers,
        "inconsistent_keys": d.inconsistent, "repeated_keys": d.repeated, "left_out": bad,
    })
}

/// Says what was taken over.
pub fn show(all: &[FindImported]) -> Result<(), Failure> {
    let columns = ["find database", "problems", "rows", "solvers", "cut lists", "zero rows", "new"];
    let mut t = table(&columns);
    for i in all {
        let d = &i.database;
        t.add_row([
            d.device.clone(),
            (i.added.new + i.added.changed + i.added.known).to_string(),
            d.rows.to_string(),
            d.solvers.to_string(),
            d.cut.to_string(),
            d.zero.to_string(),
            i.added.new.to_string(),
        ]);
    }
    say(t)?;
    for i in all {
        let (d, name) = (&i.database, i.file.display());
        let counted = [
            (d.zero, "rows have a time of zero, which were never timed: refused"),
            (d.untimed, "problems have no timed row: nothing is learned from them"),
            (d.by_algorithm, "lists hold the best solver of each algorithm only (the older form)"),
            (d.inconsistent, "keys have another size of the result than follows from the rest"),
            (d.repeated, "keys stand more than once: their last line is valid"),
            (
                i.added.changed,
                "problems were in the store with other times: the new ones are valid",
            ),
        ];
        for (n, what) in counted.iter().filter(|(n, _)| *n > 0) {
            note(format_args!("{name}: {n} {what}"));
        }
        for b in d.bad.iter().take(SHOWN) {
            note(format_args!("{name}:{}: left out: {}", b.row, b.what));
        }
        if d.bad.len() > SHOWN {
            let n = d.bad.len();
            note(format_args!("{name}: {n} rows in all were left out; --json names each"));
        }
    }
    Ok(())
}
