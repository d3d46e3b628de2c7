//! The verb behind `squall tune`: searches the fastest kernels of an input within a budget and
//! keeps every trial in the store. Input: a [`TuneRequest`]; output: a [`Report`]. `session.rs`
//! tunes the tasks. Of a model, covers (which operators become one kernel) are compared, then close
//! kernels meet in the whole network, and inferences with the winners are timed.

use crate::base::error::Error;
use crate::decide::cover_runoff::{CoverRunOff, CoverShares, Shares};
use crate::decide::run_off::{RunOffRequest, run_off};
use crate::decide::tuning_context::Tuning;
use crate::inference::bench::{BenchRequest, bench_untold};
use crate::inference::timed::Inference;
use crate::input::user_input::Input;
use crate::target::target_context::Context;
use crate::task::event::{Event, Listen};
use crate::tuning::phase::PhaseRequest;
use crate::tuning::report::{Report, StopReason};
use crate::tuning::session::Session;
use crate::tuning::settings::{Budget, BudgetRequest, LEAST_RUN_OFF};
use crate::tuning::shard::Work;
use crate::tuning::tune_request::{InferenceRequest, TuneRequest};
use std::sync::atomic::AtomicBool;
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
    let tuning = &Tuning::open(context, request, stop, listen)?;
    let shares = Shares::of(tuning);
    let (work, own) = (tuning.work(shares.tasks)?, tuning.input.own());
    let (at, store, asked) = (&tuning.at, &tuning.store, request.session());
    let mut session = Session::open(asked, at, store, stop, &mut |e| tuning.say(e))?;
    let first = PhaseRequest { work, own, roof: request.roof, only_tried: false };
    let mut end = session.phase(&first, &mut |e| tuning.say(e))?.stop;
    let mut taken = None;
    if let Some(shares) = shares.covers
        && let Some(wanted) = tuning.whole
        && end != StopReason::Interrupted
    {
        (taken, end) = covers_met(tuning, &mut session, wanted, shares, end)?;
    }
    let held = taken.as_ref().unwrap_or(&tuning.input);
    let seconds = tuning.began.elapsed().as_secs_f64();
    tuning.store.confirm_all()?;
    let mut inference = None;
    if let Some(wanted) = tuning.whole.filter(|_| end != StopReason::Interrupted) {
        if decided_in_place(tuning, wanted) {
            session.learn_winners(held.tasks(), held.own())?;
        }
        if tuning.is_stopped() {
            end = StopReason::Interrupted;
        } else if request.target.is_cpu() {
            inference = Some(timed(tuning, wanted).map_err(|e| e.to_string()));
        }
    }
    Ok(Report { inference, ..session.report(&tuning.input, end, seconds) })
}

/// Lets the kernels that only costs choose have their share of trials, and the cheapest cover meet
/// the one before it. Gives the model by the kernels that hold it then, where they are others, and
/// why trials ended; the report has all that got trials, those that the model does not call with a
/// count of 0.
fn covers_met(
    tuning: &Tuning<'_>,
    session: &mut Session<'_>,
    wanted: &InferenceRequest,
    shares: CoverShares,
    mut end: StopReason,
) -> Result<(Option<Input>, StopReason), Error> {
    let began = Instant::now();
    let roof = session.roof().cloned();
    let met = CoverRunOff { tuning, wanted, roof }.hold(session, shares.covers)?;
    if let Some(note) = met.note {
        tuning.say(Event::Note(note));
    }
    if met.is_interrupted {
        end = StopReason::Interrupted;
    }
    let held = met.taken.as_ref().unwrap_or(&tuning.input);
    // What no other kernel was worth goes to those that the model has, too.
    let trials = shares.covers.trials.unwrap_or(0).saturating_sub(met.trials);
    let seconds = shares.covers.seconds.unwrap_or(0.0) - began.elapsed().as_secs_f64();
    let budget = BudgetRequest {
        trials: shares.rest.trials.map(|n| n + trials),
        seconds: shares.rest.seconds.map(|s| (s + seconds).max(0.0)),
        ..shares.rest
    };
    if budget != BudgetRequest::default() && end != StopReason::Interrupted {
        let work = Work::whole(held.select(None)?, Budget::of(budget, held.kind()));
        let roof = tuning.request.roof;
        let rest = PhaseRequest { work, own: held.own(), roof, only_tried: false };
        end = session.phase(&rest, &mut |e| tuning.say(e))?.stop;
    }
    // A kernel that was tuned in an earlier run and took its place in this one had no trial here.
    session.made_of(held.tasks())?;
    Ok((met.taken, end))
}

/// Lets close kernels meet in the whole network, where enough is left of the budget; whether other
/// kernels hold tasks since.
fn decided_in_place(tuning: &Tuning<'_>, wanted: &InferenceRequest) -> bool {
    let spent = tuning.began.elapsed().as_secs_f64();
    let budget = tuning.request.budget.seconds;
    let left = budget.map_or(RUN_OFF.1 * spent, |s| s - spent - BOUNDS.1);
    if left < LEAST_RUN_OFF {
        return false;
    }
    let seconds = left.min(RUN_OFF.0);
    let asked = RunOffRequest { network: tuning.network(wanted), seconds };
    match run_off(tuning.context, &asked, tuning.stop, &mut |e| tuning.say(e)) {
        Ok(Some(settled)) if settled.met > 0 => {
            tuning.say(Event::Note(settled.note()));
            !settled.taken.is_empty()
        }
        Ok(_) => false,
        // Ctrl-C reaches the networks' programs, too.
        Err(_) if tuning.is_stopped() => false,
        Err(e) => {
            let text = format!("close kernels did not meet in the whole network: {e}");
            tuning.say(Event::Trouble(text));
            false
        }
    }
}

/// The time of a whole inference.
fn timed(tuning: &Tuning<'_>, wanted: &InferenceRequest) -> Result<Inference, Error> {
    let seconds = tuning.request.budget.seconds.map_or(BOUNDS.1 / 2.0, |s| s * SHARE);
    let asked = BenchRequest {
        network: tuning.network(wanted),
        inputs: Vec::new(),
        seconds: seconds.clamp(BOUNDS.0, BOUNDS.1),
        beside: wanted.beside.clone(),
    };
    // What it says of its kernels stands in the report.
    let quiet = &mut |event: Event<'_>| {
        if matches!(event, Event::Trouble(_)) {
            tuning.say(event);
        }
    };
    Ok(bench_untold(tuning.context, &asked, quiet)?.inference)
}
