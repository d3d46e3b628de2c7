//! The verb behind `squall tune`: searches the fastest kernels of an input within a budget and
//! keeps every trial in the store. Input: a [`TuneRequest`]; output: a [`Report`]. `session.rs`
//! tunes the tasks. Of a model, covers (which operators become one kernel) are compared, then close
//! kernels meet in the whole network, and inferences with the winners are timed.

use crate::base::error::Error;
use crate::decide::cover_runoff::{CoverRunOff, Shares};
use crate::decide::run_off::{RunOffRequest, run_off};
use crate::inference::bench::{BenchRequest, bench_untold};
use crate::inference::run::NetworkRequest;
use crate::inference::timed::Inference;
use crate::input::user_input::{Input, InputKind};
use crate::target::target_context::Context;
use crate::task::event::{Event, Listen, without_opening};
use crate::task::task_kernels::TaskKernels;
use crate::task::task_state::TaskState;
use crate::tuning::report::{FailureClass, Report, StopReason, TaskReport, Winner};
use crate::tuning::session::Session;
use crate::tuning::settings::{BudgetRequest, LEAST_RUN_OFF};
use crate::tuning::tune_request::{InferenceRequest, TuneRequest};
use squall_core::Task;
use squall_records::Store;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Whole inferences are timed for this share of a budget in seconds, within these bounds.
const SHARE: f64 = 0.02;
const BOUNDS: (f64, f64) = (0.2, 2.0);

/// The most seconds for the run-off of whole networks, and, where the budget is in trials, its
/// share of the time that the trials took.
const RUN_OFF: (f64, f64) = (60.0, 0.15);

/// Tunes an input's tasks until the budget ends or `stop` is set; either way the store is complete.
/// Close kernels of a model then meet in the whole network, which is timed with the winners.
pub fn tune(
    context: &Context,
    request: &TuneRequest,
    stop: &AtomicBool,
    listen: &mut Listen<'_>,
) -> Result<Report, Error> {
    let began = Instant::now();
    let mut input = request.input.load(request.target)?;
    input.own_precision_note().into_iter().for_each(|text| listen(Event::Note(text)));
    if let Some(judge) = &request.judge {
        input.own = input.own.into_iter().map(|k| k.judged(judge.clone())).collect();
    }
    for k in input.own.iter().filter(|k| k.restored.0 > 0) {
        listen(Event::Note(format!(
            "{} writes over its input: a fresh copy of {} is part of each timed call",
            k.task.name, k.restored
        )));
    }
    if let Some(crowding) = context.crowding(request.target, request.threads)? {
        listen(Event::Trouble(crowding));
    }
    let store = Store::open(&request.store)?;
    let mut input = decided(context, request, input, &store)?;
    let shares = Shares::of(request, context, &input);
    let tasks = shares.as_ref().map_or(request.budget, |s| s.tasks);
    let main = TuneRequest { budget: tasks, ..request.clone() };
    let mut report =
        Session { request: &main, store: &store, stop }.tune(&input, context, listen)?;
    if let Some(shares) = shares.filter(|_| report.stop != StopReason::Interrupted) {
        let session = Session { request, store: &store, stop };
        input = covers_met(context, &session, input, shares, &mut report, listen)?;
    }
    report.seconds = began.elapsed().as_secs_f64();
    store.confirm_all()?;
    if let Some(wanted) = request.whole_network(context)
        && input.kind == InputKind::Model
        && report.stop != StopReason::Interrupted
    {
        let spent = began.elapsed().as_secs_f64();
        let is_other = decided_in_place(context, request, wanted, spent, stop, listen);
        if is_other {
            name_winners(context, request, &input, &store, &mut report)?;
        }
        if stop.load(Ordering::Relaxed) {
            report.stop = StopReason::Interrupted;
            return Ok(report);
        }
        if request.target.is_cpu() {
            let timed = inference(context, request, wanted, listen);
            report.inference = Some(timed.map_err(|e| e.to_string()));
        }
    }
    Ok(report)
}

/// A model by the kernels that hold it by what the store says, as it is to be tuned.
fn decided(
    context: &Context,
    request: &TuneRequest,
    input: Input,
    store: &Store,
) -> Result<Input, Error> {
    let target = request.target;
    if input.kind != InputKind::Model || !request.input.is_cover_open() {
        return Ok(input);
    }
    let at = context.target(target, request.threads)?.with_caches(request.caches);
    input.by_decision(store, &at)?.in_usual_form(target)
}

/// Lets the kernels that only costs choose have their share of trials, and the cheapest cover meet
/// the one before it. Gives the model by the kernels that hold it then; the report has all that got
/// trials, those that the model does not call with a count of 0.
fn covers_met(
    context: &Context,
    session: &Session<'_>,
    input: Input,
    shares: Shares,
    report: &mut Report,
    listen: &mut Listen<'_>,
) -> Result<Input, Error> {
    let Session { request, store, stop } = *session;
    let Some(wanted) = request.whole_network(context) else { return Ok(input) };
    let at = &context.target(request.target, request.threads)?.with_caches(request.caches);
    let roof = report.roof.clone();
    let roof = roof.as_ref();
    let began = Instant::now();
    let precision = input.precision;
    let run_off = CoverRunOff { context, request, precision, wanted, store, at, roof, stop };
    let met = run_off.hold(&input, shares.covers, listen)?;
    if let Some(note) = met.note {
        listen(Event::Note(note));
    }
    if met.is_interrupted {
        report.stop = StopReason::Interrupted;
    }
    let spent: u64 = met.reports.iter().map(|t| t.trials).sum();
    add(report, met.reports);
    let held = met.taken.unwrap_or(input);
    // What no other kernel was worth goes to those that the model has, too.
    let trials = shares.covers.trials.unwrap_or(0).saturating_sub(spent);
    let seconds = shares.covers.seconds.unwrap_or(0.0) - began.elapsed().as_secs_f64();
    let budget = BudgetRequest {
        trials: shares.rest.trials.map(|n| n + trials),
        seconds: shares.rest.seconds.map(|s| (s + seconds).max(0.0)),
        ..shares.rest
    };
    if budget != BudgetRequest::default() && report.stop != StopReason::Interrupted {
        let rest = TuneRequest { budget, inference: None, ..request.clone() };
        let quiet = &mut without_opening(listen);
        let more = Session { request: &rest, store, stop }.tune(&held, context, quiet)?;
        report.stop = more.stop;
        add(report, more.tasks);
    }
    // A kernel that was tuned in an earlier run and took its place in this one had no trial here.
    let is_told = |task: &Task| report.tasks.iter().any(|t| t.id == task.id);
    let untold: Vec<Task> = held.tasks.iter().filter(|task| !is_told(task)).cloned().collect();
    if !untold.is_empty() {
        let budget = BudgetRequest { trials: Some(0), ..BudgetRequest::default() };
        let none = TuneRequest { budget, inference: None, ..request.clone() };
        let input = Input { tasks: untold, ..held.clone() };
        let known = Session { request: &none, store, stop }.tune(&input, context, &mut |_| ())?;
        add(report, known.tasks);
    }
    for t in &mut report.tasks {
        let task = held.tasks.iter().find(|task| task.id == t.id);
        t.count = task.map_or(0, |task| task.count);
    }
    Ok(held)
}

/// Adds what a later session found, which knows the trials of the earlier ones.
fn add(report: &mut Report, tasks: Vec<TaskReport>) {
    add_tasks(&mut report.tasks, tasks);
}

fn add_tasks(known: &mut Vec<TaskReport>, tasks: Vec<TaskReport>) {
    for new in tasks {
        match known.iter_mut().find(|t| t.id == new.id) {
            // It had no turn.
            Some(old) if new.trials == 0 => old.cost += new.cost,
            Some(old) => {
                let before = std::mem::replace(old, new);
                old.trials += before.trials;
                old.failed += before.failed;
                old.right += before.right;
                old.predicted += before.predicted;
                old.known = before.known;
                old.cost += before.cost;
                old.untuned = before.untuned.or(old.untuned);
                old.throttled.0 += before.throttled.0;
                let reasons = std::mem::replace(&mut old.throttled.1, before.throttled.1);
                // In the order in which they first occurred: the list is not sorted.
                for reason in reasons {
                    if !old.throttled.1.contains(&reason) {
                        old.throttled.1.push(reason);
                    }
                }
                for f in before.failures {
                    let is_same =
                        |x: &&mut FailureClass| (&x.stage, &x.detail) == (&f.stage, &f.detail);
                    match old.failures.iter_mut().find(is_same) {
                        Some(same) => same.count += f.count,
                        None => old.failures.push(f),
                    }
                }
                old.failures.sort_by_key(|f| std::cmp::Reverse(f.count));
            }
            None => known.push(new),
        }
    }
}

/// Lets close kernels meet in the whole network, where enough is left of the budget after the
/// seconds spent. Returns whether tasks have other winners since.
fn decided_in_place(
    context: &Context,
    request: &TuneRequest,
    wanted: &InferenceRequest,
    spent: f64,
    stop: &AtomicBool,
    listen: &mut Listen<'_>,
) -> bool {
    let left = request.budget.seconds.map_or(RUN_OFF.1 * spent, |s| s - spent - BOUNDS.1);
    if left < LEAST_RUN_OFF {
        return false;
    }
    let seconds = left.min(RUN_OFF.0);
    let asked = RunOffRequest { network: network(request, wanted), seconds };
    match run_off(context, &asked, stop, listen) {
        Ok(Some(settled)) if settled.met > 0 => {
            listen(Event::Note(settled.note()));
            !settled.taken.is_empty()
        }
        Ok(_) => false,
        // Ctrl-C reaches the networks' programs, too.
        Err(_) if stop.load(Ordering::Relaxed) => false,
        Err(e) => {
            let text = format!("close kernels did not meet in the whole network: {e}");
            listen(Event::Trouble(text));
            false
        }
    }
}

/// Names those that hold the tasks now: a whole network may have decided otherwise than trials.
fn name_winners(
    context: &Context,
    request: &TuneRequest,
    input: &Input,
    store: &Store,
    report: &mut Report,
) -> Result<(), Error> {
    let at = context.target(request.target, request.threads)?.with_caches(request.caches);
    let (device, toolchain) = (at.device_name(), &at.place.toolchain);
    for t in &mut report.tasks {
        let Some(task) = input.tasks.iter().find(|task| task.id == t.id) else { continue };
        let mut state = TaskState::new(task, TaskKernels::new(task, &input.own, &at.target)?);
        state.learn(store.trials(task.id, &device, toolchain)?);
        if let Some((name, time, ())) = state.standings.winner() {
            t.operations = state.operations(name);
            t.best = Some(time);
            t.winner = Some(Winner { tunable: name.0.clone(), configuration: name.1.clone() });
        }
    }
    Ok(())
}

/// The network that the store's kernels make.
fn network(request: &TuneRequest, wanted: &InferenceRequest) -> NetworkRequest {
    NetworkRequest {
        input: request.input.clone(),
        store: Some(request.store.clone()),
        guess: wanted.guess.clone(),
        target: request.target,
        threads: request.threads,
        keep: None,
    }
}

/// The time of a whole inference.
fn inference(
    context: &Context,
    request: &TuneRequest,
    wanted: &InferenceRequest,
    listen: &mut Listen<'_>,
) -> Result<Inference, Error> {
    let seconds = request.budget.seconds.map_or(BOUNDS.1 / 2.0, |s| s * SHARE);
    let asked = BenchRequest {
        network: network(request, wanted),
        inputs: Vec::new(),
        seconds: seconds.clamp(BOUNDS.0, BOUNDS.1),
        beside: wanted.beside.clone(),
    };
    // What it says of its kernels stands in the report.
    let quiet = &mut |event: Event<'_>| {
        if matches!(event, Event::Trouble(_)) {
            listen(event);
        }
    };
    Ok(bench_untold(context, &asked, quiet)?.inference)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::roof::Factors;
    use squall_core::{CpuCost, Objective, TaskId};

    fn told(throttled: (u64, Vec<&'static str>)) -> TaskReport {
        TaskReport {
            id: TaskId::of_text("", Objective::Time),
            name: "dense".into(),
            kind: "dense".into(),
            count: 1,
            nodes: Vec::new(),
            flop: 1,
            operations: 1,
            bytes: 1,
            factors: Factors::Floats,
            baseline: "plain loops",
            untuned: None,
            best: None,
            winner: None,
            trials: 1,
            failed: 0,
            right: 0,
            throttled,
            known: 0,
            predicted: 0,
            stop: StopReason::Trials,
            curve: Vec::new(),
            failures: Vec::new(),
            cost: CpuCost::default(),
        }
    }

    #[test]
    fn reasons_of_several_sessions_are_named_once_in_the_order_in_which_they_occurred() {
        let mut tasks = vec![told((2, vec!["power", "heat"]))];
        add_tasks(&mut tasks, vec![told((1, vec!["power", "sync"]))]);
        add_tasks(&mut tasks, vec![told((1, vec!["heat", "power"]))]);
        assert_eq!(tasks[0].throttled, (4, vec!["power", "heat", "sync"]));
    }
}
