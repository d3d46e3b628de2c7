//! `squall evaluate` of a general predictor: its first candidates measured beside what tuning
//! found and beside the cost formula's.

use super::Args;
use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::terminal::{note, say, table};
use serde_json::json;
use squall::general::{
    FIRST, GENERAL_WAYS, GeneralPredictor, GeneralTried, GeneralTrying, general_share,
    measure_general,
};
use squall::{Context, Nanos};

/// Runs it.
pub fn run(a: &Args, predictor: &GeneralPredictor) -> Result<u8, Failure> {
    let stop = interruptible()?;
    let at = Context::new().target(a.target.request()?, a.threads.threads.into())?;
    let trying = GeneralTrying { store: a.store.store.clone(), rounds: a.rounds.into(), seed: 1 };
    let found = measure_general(predictor, &trying, &at, &stop, &mut |t| {
        note(format_args!("{}: {}", t.name, cells(t).join(", ")));
    })?;
    if a.json.json {
        let task = |t: &GeneralTried| {
            json!({
                "task": t.name,
                "trials": t.trials,
                "tuned_ns": t.tuned,
                "asked_cpu_seconds": t.asked,
                "general_ns": t.times[0],
                "formula_ns": t.times[1],
                "general": t.candidates[0],
                "formula": t.candidates[1],
            })
        };
        let mean = |w: usize| {
            json!({
                "way": GENERAL_WAYS[w],
                "first": general_share(&found, w, 1),
                "best_of_four": general_share(&found, w, FIRST),
            })
        };
        say(json!({
            "device": at.device_name(),
            "provenance": predictor.provenance(),
            "rounds": a.rounds,
            "means": [mean(0), mean(1)],
            "tasks": found.iter().map(task).collect::<Vec<_>>(),
        }))?;
        return Ok(0);
    }
    let heads: Vec<String> =
        GENERAL_WAYS.iter().map(|w| format!("{w}: first/best of {FIRST}, %")).collect();
    let mut columns = vec!["task", "tuned", "trials"];
    columns.extend(heads.iter().map(String::as_str));
    let mut t = table(&columns);
    for x in &found {
        let mut row = vec![x.name.clone(), Nanos(x.tuned).to_string(), x.trials.to_string()];
        row.extend(cells(x));
        t.add_row(row);
    }
    let mean = |w: usize| percents(general_share(&found, w, 1), general_share(&found, w, FIRST));
    t.add_row(vec!["geometric mean".into(), String::new(), String::new(), mean(0), mean(1)]);
    say(t)?;
    let asked: f64 = found.iter().map(|t| t.asked).sum::<f64>() / found.len().max(1) as f64;
    say(format_args!("an answer took {asked:.2} CPU-seconds on average"))?;
    Ok(0)
}

fn percents(first: f64, four: f64) -> String {
    format!("{:.0}/{:.0}", 100.0 * first, 100.0 * four)
}

fn cells(t: &GeneralTried) -> Vec<String> {
    (0..GENERAL_WAYS.len()).map(|w| percents(t.share(w, 1), t.share(w, FIRST))).collect()
}
