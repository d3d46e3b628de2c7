//! `squall evaluate` of a general predictor (one ranking model for all tasks and CPUs): measures
//! its first candidates beside the tuned winners and the cost formula's candidates, and scores its
//! choice of algorithms against those that tuning found to be fastest (`squall::general`).

use super::Args;
use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::terminal::{note, say, table};
use serde_json::json;
use squall::general::{
    AlgorithmScore, AlgorithmTried, FIRST, GENERAL_WAYS, GeneralPredictor, GeneralTried,
    GeneralTrying, algorithm_scores, general_share, measure_general, try_algorithms,
};
use squall::{Context, Expectation, Nanos, TargetContext};

/// Runs it.
pub fn run(a: &Args, predictor: &GeneralPredictor) -> Result<u8, Failure> {
    let stop = interruptible()?;
    let at = Context::new().target(a.target.request()?, a.threads.threads.into())?;
    let chosen = try_algorithms(predictor, &a.store.store, &at, &stop)?;
    if a.unmeasured {
        return only_algorithms(a, predictor, &at, &chosen);
    }
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
            "algorithms": algorithms_json(&chosen),
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
    say_algorithms(&chosen)?;
    Ok(0)
}

/// Says only which algorithms are chosen.
fn only_algorithms(
    a: &Args,
    predictor: &GeneralPredictor,
    at: &TargetContext,
    chosen: &[AlgorithmTried],
) -> Result<u8, Failure> {
    if a.json.json {
        say(json!({
            "device": at.device_name(),
            "provenance": predictor.provenance(),
            "algorithms": algorithms_json(chosen),
        }))?;
        return Ok(0);
    }
    let mut t = table(&["task", "trials", "measured", "general expected", "formula expected"]);
    for x in chosen {
        let fastest = x.measured[0].1;
        let measured = x.measured.iter().map(|(n, time)| speed(n, fastest.0 / time.0));
        t.add_row(vec![
            x.name.clone(),
            x.trials.to_string(),
            measured.collect::<Vec<_>>().join(", "),
            expected(&x.general),
            expected(&x.formula),
        ]);
    }
    say(t)?;
    say_algorithms(chosen)?;
    Ok(0)
}

fn speed(algorithm: &str, speed: f64) -> String {
    format!("{algorithm} {speed:.2}")
}

fn expected(all: &[Expectation]) -> String {
    all.iter().map(|e| speed(&e.algorithm, e.speed)).collect::<Vec<_>>().join(", ")
}

/// Says how often each way chooses the algorithm that tuning found to be the fastest.
fn say_algorithms(chosen: &[AlgorithmTried]) -> Result<(), Failure> {
    if chosen.is_empty() {
        return say("no task of this store has trials of several algorithms");
    }
    let mut t = table(&["algorithm chosen by", "tasks", "right, %", "within 5 %, %", "mean loss"]);
    for s in algorithm_scores(chosen) {
        t.add_row(vec![
            s.way.name().into(),
            s.of.to_string(),
            format!("{:.1}", 100.0 * s.right),
            format!("{:.1}", 100.0 * s.within_5),
            format!("{:.3}", s.loss),
        ]);
    }
    say(t)?;
    say(format_args!("of {} tasks with trials of several algorithms", chosen.len()))
}

fn algorithms_json(chosen: &[AlgorithmTried]) -> serde_json::Value {
    let expected = |all: &[Expectation]| -> serde_json::Value {
        all.iter().map(|e| json!({"algorithm": e.algorithm, "speed": e.speed})).collect()
    };
    let task = |t: &AlgorithmTried| {
        let measured = t.measured.iter().map(|(a, t)| json!({"algorithm": a, "time_ns": t.0}));
        json!({
            "task": t.name,
            "trials": t.trials,
            "measured": measured.collect::<Vec<_>>(),
            "general": expected(&t.general),
            "formula": expected(&t.formula),
        })
    };
    let score = |s: &AlgorithmScore| {
        json!({
            "way": s.way.name(),
            "of": s.of,
            "right": s.right,
            "within_5_per_cent": s.within_5,
            "loss": s.loss,
        })
    };
    json!({
        "of": chosen.len(),
        "ways": algorithm_scores(chosen).iter().map(score).collect::<Vec<_>>(),
        "tasks": chosen.iter().map(task).collect::<Vec<_>>(),
    })
}

fn percents(first: f64, four: f64) -> String {
    format!("{:.0}/{:.0}", 100.0 * first, 100.0 * four)
}

fn cells(t: &GeneralTried) -> Vec<String> {
    (0..GENERAL_WAYS.len()).map(|w| percents(t.share(w, 1), t.share(w, FIRST))).collect()
}
