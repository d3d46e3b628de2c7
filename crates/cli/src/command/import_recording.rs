//! What `squall import` says of recordings: what others measured becomes trials of the store.

use crate::failure::Failure;
use crate::terminal::{left_out, say, table};
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
    done.iter().for_each(|i| left_out(&i.name, i.refused, &i.reasons));
    Ok(())
}
