//! The output of `squall import` for recordings (spaces that another tuner measured): a table or
//! JSON of the trials that went into the store.

use crate::failure::Failure;
use crate::terminal::{left_out, note, say, table};
use serde_json::{Value, json};
use squall::exchange::Imported;

/// What was taken over, as JSON.
pub fn json(done: &[Imported]) -> Value {
    let one = |i: &Imported| {
        json!({
            "task": i.task.to_string(),
            "name": i.name,
            "device": i.device,
            "failed": i.failed,
            "new": i.new,
            "known": i.known,
            "left_out": i.refused,
            "reasons": i.reasons,
            "note": i.note,
        })
    };
    done.iter().map(one).collect()
}

/// Says what was taken over.
pub fn show(done: &[Imported]) -> Result<(), Failure> {
    let mut t = table(&["task", "id", "trials", "failed", "new", "device"]);
    for i in done {
        t.add_row([
            i.name.clone(),
            i.task.to_string(),
            (i.new + i.known).to_string(),
            i.failed.to_string(),
            i.new.to_string(),
            i.device.clone(),
        ]);
    }
    say(t)?;
    for i in done {
        left_out(&i.name, i.refused, &i.reasons);
        if let Some(what) = &i.note {
            note(format_args!("warning: {}: {what}", i.name));
        }
    }
    Ok(())
}
