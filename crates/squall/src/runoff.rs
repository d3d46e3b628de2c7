//! The run-off at the end of a task: the best few meet the incumbent, two by two, in processes
//! that ran no trials. Whoever holds the task then is its winner; in a tie the incumbent stays,
//! so that equal kernels do not take turns.

use crate::desk::Desk;
use crate::error::Error;
use crate::session::{SYMBOL, now};
use squall_core::{CandidateText, Job, Measurer};
use squall_core::{CpuCost, FailStage, Outcome, Record, RecordKind, Task};
use squall_core::{MeasurerError as MeasureError, Rematch, Verdict};
use squall_records::{Name, REMATCH_MARGIN, Store};
use std::sync::atomic::{AtomicBool, Ordering};

/// At most so many rivals within the margin meet the incumbent.
const RIVALS: usize = 3;
/// At most so many meet it in all, where trials of still others were clearly faster than its own.
const MOST: usize = 12;
/// The runner-up meets the incumbent if it is slower by no more than this, even where no other
/// comes so close: a winner by one lucky measurement is found out. On shared machines a trial can
/// be lucky by a third; who is really that much slower is told so after a few windows.
pub(crate) const RUNNER_UP: f64 = 0.5;

/// Who writes records, and under which names.
#[derive(Clone, Copy)]
pub(crate) struct Scribe<'a> {
    pub store: &'a Store,
    pub device: &'a str,
    pub toolchain: &'a str,
    pub seed: u64,
}

impl Scribe<'_> {
    /// A record of now.
    pub fn record(
        &self,
        task: &Task,
        kind: RecordKind,
        candidate: (&str, &str),
        outcome: Outcome,
        cost: CpuCost,
    ) -> Record {
        Record {
            kind,
            task: task.id,
            name: task.name.clone(),
            workload: task.workload.to_string(),
            device: self.device.into(),
            toolchain: self.toolchain.into(),
            tunable: candidate.0.into(),
            configuration: candidate.1.into(),
            outcome,
            cost,
            seed: self.seed,
            time: now(),
        }
    }

    /// Keeps what a run-off said of a candidate, in the store and on the desk.
    pub fn rematch(&self, desk: &mut Desk, name: &Name, outcome: Outcome) -> Result<(), Error> {
        desk.standings.rematch(name.clone(), outcome.time(), ());
        let record = self.record(
            desk.task,
            RecordKind::Rematch,
            (&name.0, &name.1),
            outcome,
            CpuCost::default(),
        );
        self.store.append(&record)?;
        Ok(())
    }
}

/// How a meeting ended.
pub(crate) enum Met {
    /// Both ran.
    Measured(Rematch),
    /// One failed: the rival, or else the incumbent.
    Failed { rival: bool, detail: String },
    /// One of them cannot be made any more.
    Gone,
}

/// What of a meeting goes into the store.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Keep {
    All,
    Failures,
}

/// Lets the second of a pair meet the first, its incumbent, and keeps what came of it. The desk's
/// task is the laboratory's.
pub(crate) fn meet(
    lab: &mut dyn Measurer,
    desk: &mut Desk,
    scribe: Scribe,
    (incumbent, rival): (&Name, &Name),
    keep: Keep,
) -> Result<Met, Error> {
    let (Some(a), Some(b)) = (desk.source(incumbent, SYMBOL), desk.source(rival, SYMBOL)) else {
        return Ok(Met::Gone);
    };
    let job = |n: &Name, source| Job::new(CandidateText::new(&*n.0, &*n.1), source);
    match lab.rematch(&job(incumbent, a), &job(rival, b)) {
        Ok(m) => {
            desk.report.cost += m.cost;
            if keep == Keep::Failures {
                return Ok(Met::Measured(m));
            }
            let (holds, comes) = ((incumbent, m.incumbent.clone()), (rival, m.challenger.clone()));
            let (loser, winner) =
                if m.verdict == Verdict::Faster { (holds, comes) } else { (comes, holds) };
            // The winner's record comes last: it is who holds the task for later readers. Who met
            // itself gets one record.
            for (name, measurement) in
                [loser, winner].into_iter().skip(usize::from(incumbent == rival))
            {
                scribe.rematch(desk, name, Outcome::Measured(measurement))?;
            }
            Ok(Met::Measured(m))
        }
        Err(MeasureError::Contender { challenger, detail }) => {
            let outcome = Outcome::Failed { stage: FailStage::Launch, detail: detail.clone() };
            desk.failures.add(&outcome);
            scribe.rematch(desk, if challenger { rival } else { incumbent }, outcome)?;
            Ok(Met::Failed { rival: challenger, detail })
        }
        Err(e) => Err(e.into()),
    }
}

/// Who should meet the incumbent next, having met some already.
pub(crate) fn next_rival(desk: &Desk, incumbent: &Name, met: &[Name]) -> Option<Name> {
    let time = desk.standings.time(incumbent)?.0;
    let unmet = |n: &Name| n != incumbent && !met.contains(n);
    let ranking = desk.standings.ranking();
    let nearest = ranking.iter().find(|c| unmet(c.0));
    let margin = if met.is_empty() { RUNNER_UP } else { REMATCH_MARGIN };
    let near =
        nearest.filter(|c| met.len() < RIVALS && c.1.0 <= time * (1.0 + margin)).map(|c| c.0);
    let usurper =
        || desk.standings.usurpers(incumbent).into_iter().find(|n| met.len() < MOST && unmet(n));
    near.or_else(usurper).cloned()
}

/// Lets the best candidates meet the incumbent until the task's winner is known. `heard` learns of
/// each meeting.
pub(crate) fn run_off(
    lab: &mut dyn Measurer,
    desk: &mut Desk,
    scribe: Scribe,
    stop: &AtomicBool,
    heard: &mut dyn FnMut(&Task, &Rematch),
) -> Result<(), Error> {
    let mut met: Vec<Name> = Vec::new();
    while let Some(incumbent) = desk.standings.incumbent().cloned()
        && let Some(rival) = next_rival(desk, &incumbent, &met)
        && !stop.load(Ordering::Relaxed)
    {
        match meet(lab, desk, scribe, (&incumbent, &rival), Keep::All)? {
            Met::Measured(m) => {
                heard(desk.task, &m);
                // Who lost need not meet the new incumbent: a third beat it who was beaten since.
                if m.verdict == Verdict::Faster {
                    met.push(incumbent);
                }
            }
            Met::Failed { .. } | Met::Gone => {}
        }
        met.push(rival);
    }
    desk.crown();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::{Idle, tests::target};
    use crate::kit::Kit;
    use squall_core::{Nanos, Workload};

    fn name(text: &str) -> Name {
        ("tile".into(), text.into())
    }

    /// Whom the incumbent meets after such trials, if it beats them all; `held` is the time of the
    /// run-off by which `a` holds the task.
    fn rivals(trials: &[(&str, f64)], held: Option<f64>) -> Vec<String> {
        let text = "workload relu\ndata X: f32[16]\nstage Y: f32[i: 16] = max(X[i], 0)\noutput Y\n";
        let task = Task::new("relu", Workload::parse(text).expect("a workload"));
        let target = target();
        let mut desk = Desk::new(&task, Kit::generated(&task, &target), Box::new(Idle));
        trials.iter().for_each(|t| desk.standings.trial(name(t.0), Some(Nanos(t.1)), ()));
        held.into_iter().for_each(|t| desk.standings.rematch(name("a"), Some(Nanos(t)), ()));
        let incumbent = desk.standings.incumbent().cloned().expect("somebody ran");
        let mut met = Vec::new();
        while let Some(rival) = next_rival(&desk, &incumbent, &met) {
            desk.standings.rematch(rival.clone(), desk.standings.time(&rival), ());
            desk.standings.rematch(incumbent.clone(), desk.standings.time(&incumbent), ());
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
    fn those_whose_trials_were_clearly_faster_than_the_holders_all_meet_it() {
        // A run-off in a fast minute, 80 ns, hides nobody whose trial beat the holder's.
        let trials =
            [("a", 100.0), ("b", 90.0), ("c", 91.0), ("d", 92.0), ("e", 93.0), ("f", 98.0)];
        assert_eq!(rivals(&trials, Some(80.0)), ["b", "c", "d", "e"]);
        let many: Vec<String> = (10..40).map(|i| format!("n{i}")).collect();
        let trials: Vec<(&str, f64)> =
            many.iter().map(|n| (n.as_str(), 90.0)).chain([("a", 100.0)]).collect();
        assert_eq!(rivals(&trials, Some(80.0)).len(), MOST);
    }
}
