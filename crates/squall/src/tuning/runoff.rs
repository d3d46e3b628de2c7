//! The run-off at the end of a task. The incumbent (the best candidate so far) meets its closest
//! rivals, two by two, in processes that ran no trials; each meeting is a rematch, interleaved
//! measurements until a sequential test decides. The candidate that holds the task then is its
//! winner. In a tie the incumbent stays, so that equal kernels do not take turns. `session.rs` and
//! `verify.rs` hold run-offs.

use crate::base::error::Error;
use crate::base::recorder::Recorder;
use crate::task::task_state::TaskState;
use squall_core::{
    CpuCost, FailStage, Measurer, MeasurerError, Nanos, Outcome, RecordKind, Rematch, Verdict,
};
use squall_records::{Name, REMATCH_MARGIN};
use std::sync::atomic::{AtomicBool, Ordering};

/// The most rivals within the margin that meet the incumbent.
const RIVALS: usize = 3;
/// The most meetings in all, where trials of further candidates were clearly faster than the
/// incumbent's.
const MOST: usize = 12;
/// The runner-up meets the incumbent if it is slower by no more than this share, even if it is
/// outside the margin, so that a winner by one lucky measurement is found out. On shared machines a
/// trial can be lucky by a third; a candidate that is really so much slower is recognised after a
/// few windows.
pub(crate) const RUNNER_UP: f64 = 0.5;

/// How a meeting ended.
pub(crate) enum Met {
    /// Both ran.
    Measured(Rematch),
    /// One failed: the rival, or else the incumbent.
    Failed { rival: bool, outcome: Outcome, detail: String },
    /// One of them cannot be made any more.
    Gone,
}

/// The part of a meeting's results that goes into the store.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Keep {
    All,
    Failures,
}

/// Keeps what a run-off said of a candidate, in the store and in the task's standings.
fn keep(
    recorder: &Recorder,
    state: &mut TaskState,
    name: &Name,
    outcome: Outcome,
) -> Result<(), Error> {
    let time = outcome.time();
    let stored = state.stored_name(name);
    recorder.keep(state.task, RecordKind::Rematch, stored, outcome, CpuCost::default())?;
    state.standings.rematch(name.clone(), time, ());
    Ok(())
}

/// Lets the second of a pair meet the first, its incumbent, and keeps what came of it. The task
/// must be the measurer's.
pub(crate) fn meet(
    measurer: &mut dyn Measurer,
    state: &mut TaskState,
    recorder: &Recorder,
    incumbent: &Name,
    rival: &Name,
    what: Keep,
) -> Result<Met, Error> {
    let (Some(a), Some(b)) = (state.job(incumbent), state.job(rival)) else {
        return Ok(Met::Gone);
    };
    match measurer.rematch(&a, &b) {
        Ok(m) => {
            if what == Keep::Failures {
                return Ok(Met::Measured(m));
            }
            let (holds, comes) = ((incumbent, m.incumbent.clone()), (rival, m.challenger.clone()));
            let (loser, winner) =
                if m.verdict == Verdict::Faster { (holds, comes) } else { (comes, holds) };
            // The winner's record comes last: by it the winner holds the task for later readers. A
            // candidate that met itself gets one record.
            for (name, measurement) in
                [loser, winner].into_iter().skip(usize::from(incumbent == rival))
            {
                keep(recorder, state, name, Outcome::Measured(measurement))?;
            }
            Ok(Met::Measured(m))
        }
        Err(MeasurerError::Contender { challenger, detail }) => {
            let outcome = Outcome::Failed { stage: FailStage::Launch, detail: detail.clone() };
            keep(recorder, state, if challenger { rival } else { incumbent }, outcome.clone())?;
            Ok(Met::Failed { rival: challenger, outcome, detail })
        }
        Err(e) => Err(e.into()),
    }
}

/// The candidate that should meet the incumbent next, after some that did already.
pub(crate) fn next_rival(state: &TaskState, incumbent: &Name, met: &[Name]) -> Option<Name> {
    let unmet = |n: &Name| n != incumbent && !met.contains(n);
    // What a whole network decided, kernels alone do not turn over.
    let in_network = |n: &Name| state.standings.has_met_in_network(n);
    let is_decided = in_network(incumbent) || met.iter().any(in_network);
    let is_open = |n: &Name| unmet(n) && !(is_decided && in_network(n));
    let doubted = || state.doubts().find(|n| met.len() < MOST && unmet(n)).cloned();
    let Some(Nanos(time)) = state.standings.time(incumbent) else { return doubted() };
    let ranking = state.standings.ranking();
    let nearest = ranking.iter().find(|c| is_open(c.0));
    let margin = if met.is_empty() { RUNNER_UP } else { REMATCH_MARGIN };
    let near =
        nearest.filter(|c| met.len() < RIVALS && c.1.0 <= time * (1.0 + margin)).map(|c| c.0);
    let usurper =
        || state.standings.usurpers(incumbent).into_iter().find(|n| met.len() < MOST && unmet(n));
    near.or_else(usurper).cloned().or_else(doubted)
}

/// The candidate that the others meet: the one that holds the task, or one whose time is doubted
/// where none does.
pub(crate) fn host(state: &TaskState) -> Option<Name> {
    state.standings.incumbent().or_else(|| state.doubts().next()).cloned()
}

/// Lets the best candidates meet the incumbent until the task's winner is known. `heard` learns of
/// each meeting.
pub(crate) fn run_off(
    measurer: &mut dyn Measurer,
    state: &mut TaskState,
    recorder: &Recorder,
    stop: &AtomicBool,
    heard: &mut dyn FnMut(&TaskState, &Met),
) -> Result<(), Error> {
    let mut met: Vec<Name> = Vec::new();
    // Where every time is doubted, the first of them is measured beside itself.
    if state.standings.incumbent().is_none()
        && let Some(only) = host(state)
        && !stop.load(Ordering::Relaxed)
    {
        let meeting = meet(measurer, state, recorder, &only, &only, Keep::All)?;
        heard(state, &meeting);
    }
    while let Some(incumbent) = state.standings.incumbent().cloned()
        && let Some(rival) = next_rival(state, &incumbent, &met)
        && !stop.load(Ordering::Relaxed)
    {
        let meeting = meet(measurer, state, recorder, &incumbent, &rival, Keep::All)?;
        heard(state, &meeting);
        // The loser need not meet the new incumbent: even if a third beat it, it was beaten since.
        if let Met::Measured(Rematch { verdict: Verdict::Faster, .. }) = meeting {
            met.push(incumbent);
        }
        met.push(rival);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::task_state::tests;
    use squall_core::{Task, Workload};

    fn name(text: &str) -> Name {
        ("tile".into(), text.into())
    }

    /// The candidates that the incumbent meets after such trials, if it beats them all; `held` is
    /// the time of the
    /// run-off by which `a` holds the task.
    fn rivals(trials: &[(&str, f64)], held: Option<f64>) -> Vec<String> {
        let text = "workload relu\ndata X: f32[16]\nstage Y: f32[i: 16] = max(X[i], 0)\noutput Y\n";
        let task = Task::new("relu", Workload::parse(text).expect("a workload"));
        let mut state = tests::state(&task);
        trials.iter().for_each(|t| state.standings.trial(name(t.0), Some(Nanos(t.1)), ()));
        held.into_iter().for_each(|t| state.standings.rematch(name("a"), Some(Nanos(t)), ()));
        let incumbent = state.standings.incumbent().cloned().expect("a candidate ran");
        let mut met = Vec::new();
        while let Some(rival) = next_rival(&state, &incumbent, &met) {
            state.standings.rematch(rival.clone(), state.standings.time(&rival), ());
            state.standings.rematch(incumbent.clone(), state.standings.time(&incumbent), ());
            met.push(rival);
        }
        met.into_iter().map(|n| n.1).collect()
    }

    #[test]
    fn the_runner_up_and_those_within_the_margin_meet_the_incumbent() {
        assert_eq!(
            rivals(&[("a", 100.0), ("b", 102.0), ("c", 103.5), ("d", 101.0), ("e", 250.0)], None),
            ["d", "b"]
        );
        // The runner-up alone may be farther off, and no more than three come at all.
        assert_eq!(rivals(&[("a", 100.0), ("b", 149.0), ("c", 149.5)], None), ["b"]);
        assert_eq!(rivals(&[("a", 100.0), ("b", 151.0)], None).len(), 0);
        assert_eq!(
            rivals(&[("a", 100.0), ("b", 100.1), ("c", 100.2), ("d", 100.3), ("e", 100.4)], None),
            ["b", "c", "d"]
        );
        assert_eq!(rivals(&[("a", 100.0)], None).len(), 0);
    }

    #[test]
    fn what_a_network_decided_is_not_asked_of_kernels_alone() {
        let text = "workload relu\ndata X: f32[16]\nstage Y: f32[i: 16] = max(X[i], 0)\noutput Y\n";
        let task = Task::new("relu", Workload::parse(text).expect("a workload"));
        let mut state = tests::state(&task);
        for (n, time) in [("a", 100.0), ("b", 102.0), ("c", 101.0)] {
            state.standings.trial(name(n), Some(Nanos(time)), ());
        }
        state.standings.in_network(name("a"));
        state.standings.in_network(name("b"));
        assert_eq!(state.standings.incumbent(), Some(&name("b")));
        assert_eq!(next_rival(&state, &name("b"), &[]), Some(name("c")), "it was not there");
        // Should that one win, the loser of the network does not come back through it.
        assert_eq!(next_rival(&state, &name("c"), &[name("b")]), None);
    }

    #[test]
    fn a_time_that_cannot_be_is_measured_again() {
        let text = "workload relu\ndata X: f32[16]\nstage Y: f32[i: 16] = max(X[i], 0)\noutput Y\n";
        let task = Task::new("relu", Workload::parse(text).expect("a workload"));
        let mut state = tests::state(&task);
        state.doubted.push(name("z"));
        assert_eq!(host(&state), Some(name("z")), "where nothing else holds the task");
        state.standings.trial(name("a"), Some(Nanos(100.0)), ());
        assert_eq!(host(&state), Some(name("a")));
        assert_eq!(next_rival(&state, &name("a"), &[]), Some(name("z")));
        state.standings.rematch(name("z"), Some(Nanos(300.0)), ());
        state.standings.rematch(name("a"), Some(Nanos(100.0)), ());
        assert_eq!(next_rival(&state, &name("a"), &[]), None, "it counts as it was measured");
    }

    #[test]
    fn those_whose_trials_were_clearly_faster_than_the_holders_all_meet_it() {
        // A run-off in a fast minute, 80 ns, hides no candidate whose trial beat the holder's.
        let trials =
            [("a", 100.0), ("b", 90.0), ("c", 91.0), ("d", 92.0), ("e", 93.0), ("f", 98.0)];
        assert_eq!(rivals(&trials, Some(80.0)), ["b", "c", "d", "e"]);
        let many: Vec<String> = (10..40).map(|i| format!("n{i}")).collect();
        let trials: Vec<(&str, f64)> =
            many.iter().map(|n| (n.as_str(), 90.0)).chain([("a", 100.0)]).collect();
        assert_eq!(rivals(&trials, Some(80.0)).len(), MOST);
    }
}
