//! `squall train --records --general`: trains one predictor for all tasks and CPUs from the records
//! of several stores, and writes its file (`squall::general`).

use super::Args;
use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::terminal::{note, say};
use serde_json::{Value, json};
use squall::files::{put, read_text};
use squall::general::{GeneralRequest, KnownMachine, train_general};
use squall::{Channels, Context, InputRequest, MachineModel};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let stop = interruptible()?;
    let target = a.target.request()?;
    let at = Context::new().target(target, 1)?;
    let mut machines = Vec::new();
    for given in &a.machine {
        machines.push(machine(given)?);
    }
    // What is given for this machine is meant for it.
    if let Some(own) = KnownMachine::of(&at) {
        machines.push(own);
    }
    let mut without = BTreeSet::new();
    for source in &a.without {
        // A model's kernels are others in other layouts.
        for channels in [None, Some(Channels::First), Some(Channels::Last)] {
            let input = InputRequest { channels, ..InputRequest::new(source) };
            without.extend(input.load(target)?.tasks().iter().map(|t| t.id));
        }
    }
    let request = GeneralRequest { stores: a.store.clone(), machines, without, seed: a.seed };
    let began = Instant::now();
    let trained = train_general(&request, &mut |text| {
        note(format_args!("{:6.0} s  {text}", began.elapsed().as_secs_f64()));
        !stop.load(Ordering::Relaxed)
    })?;
    let Some(predictor) = trained else {
        note("stopped; nothing was written");
        return Ok(130);
    };
    let bytes = predictor.to_bytes()?;
    put(&a.out, &bytes)?;
    let seconds = began.elapsed().as_secs_f64();
    let p = predictor.provenance();
    if a.json.json {
        say(json!({
            "predictor": a.out,
            "seconds": seconds,
            "bytes": bytes.len(),
            "provenance": p,
        }))?;
        return Ok(0);
    }
    let held = &p.held;
    let percent = |x: f64| format!("{:.0} %", 100.0 * x);
    say(format_args!(
        "{} tasks held out in turn, their measured candidates in its order: the first reaches {} \
         of the best measured, the best of four {}; in the formula's order {} and {}",
        held.tasks,
        percent(held.predictor.0),
        percent(held.predictor.1),
        percent(held.formula.0),
        percent(held.formula.1),
    ))?;
    for m in &p.machines {
        say(format_args!("{}: {} tasks, {} candidates", m.device, m.tasks, m.candidates))?;
    }
    say(format_args!("{} bytes in {seconds:.0} s: {}", bytes.len(), a.out.display()))?;
    Ok(0)
}

/// A machine that the user describes: `MODEL=FILE`.
fn machine(given: &str) -> Result<KnownMachine, Failure> {
    let hint = "for instance --machine 'AMD Ryzen 5 5600X=zen3.json', where the file holds what \
                `squall doctor --json` printed there";
    let Some((model, file)) = given.rsplit_once('=') else {
        return Err(Failure::usage(format!("`{given}` is not MODEL=FILE"), hint));
    };
    let path = Path::new(file);
    let text = read_text(path)?;
    let fault = |e: serde_json::Error| {
        Failure::usage(format!("`{file}` holds no machine model: {e}"), hint)
    };
    let value: Value = serde_json::from_str(&text).map_err(fault)?;
    // The doctor's report has the model among other things.
    let inner = value.get("model").filter(|m| m.is_object()).unwrap_or(&value);
    let machine: MachineModel = serde_json::from_value(inner.clone()).map_err(fault)?;
    Ok(KnownMachine { model: model.into(), machine })
}
