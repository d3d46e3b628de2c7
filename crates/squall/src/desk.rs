//! A task while it is tuned: its tunables, its strategy, who stands where, and its growing report.

use crate::kit::Kit;
use crate::report::{Failures, StopReason, TaskReport, Winner, baseline};
use squall_core::{
    Candidate, CpuCost, KernelSource, Measurement, Nanos, Outcome, Record, RecordKind, Reference,
    Task, Trial, Tunable, find_candidate,
};
use squall_records::{Name, Standings};
use squall_search::Strategy;
use std::collections::HashSet;
use std::sync::Arc;

/// A task while it is tuned.
pub(crate) struct Desk<'a> {
    pub task: &'a Task,
    pub reference: Reference,
    pub tunables: Vec<Arc<dyn Tunable>>,
    pub plain: Arc<dyn Tunable>,
    pub strategy: Box<dyn Strategy>,
    /// The times that speak for each candidate, and who holds the task.
    pub standings: Standings<()>,
    /// Every candidate that had a trial.
    pub tried: HashSet<Name>,
    /// What a predictor would try next.
    pub predicted: Vec<Candidate>,
    pub failures: Failures,
    pub report: TaskReport,
    /// Why no more trials are made, once that is so.
    pub closed: Option<StopReason>,
    /// Seconds that it had.
    pub spent: f64,
    /// Search time of which no record speaks yet.
    pub search: f64,
}

/// What records call a candidate.
pub(crate) fn name_of(c: &Candidate) -> Name {
    (c.tunable.to_string(), c.configuration.to_string())
}

/// The source of a candidate, or why it can never have one.
pub(crate) fn realize(
    tunables: &[Arc<dyn Tunable>],
    candidate: &Candidate,
    symbol: &str,
) -> Result<KernelSource, Outcome> {
    match tunables.iter().find(|t| *t.name() == *candidate.tunable) {
        Some(t) => t
            .realize(&candidate.configuration, symbol)
            .map_err(|e| Outcome::Infeasible(e.to_string())),
        None => {
            Err(Outcome::Infeasible(format!("the task has no tunable `{}`", candidate.tunable)))
        }
    }
}

/// The strategy of a task that is not searched.
pub(crate) struct Idle;

impl Strategy for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }
    fn ask(&mut self, _: usize) -> Vec<Candidate> {
        Vec::new()
    }
    fn tell(&mut self, _: &[Trial]) {}
}

impl<'a> Desk<'a> {
    /// A desk without history.
    pub fn new(task: &'a Task, kit: Kit, strategy: Box<dyn Strategy>) -> Desk<'a> {
        Desk {
            task,
            reference: kit.reference(task, "squall_reference"),
            tunables: kit.tunables,
            plain: kit.plain,
            strategy,
            standings: Standings::default(),
            tried: HashSet::new(),
            predicted: Vec::new(),
            failures: Failures::default(),
            report: Desk::blank(task, StopReason::Exhausted),
            closed: None,
            spent: 0.0,
            search: 0.0,
        }
    }

    /// The report of a task of which nothing is known.
    pub fn blank(task: &Task, stop: StopReason) -> TaskReport {
        TaskReport {
            id: task.id,
            name: task.name.clone(),
            kind: task.workload.kind.clone(),
            count: task.count,
            nodes: task.nodes.clone(),
            flop: task.workload.flop(),
            bytes: task.workload.bytes().0,
            baseline: baseline(&task.workload),
            untuned: None,
            best: None,
            winner: None,
            trials: 0,
            failed: 0,
            throttled: (0, Vec::new()),
            known: 0,
            predicted: 0,
            stop,
            curve: Vec::new(),
            failures: Vec::new(),
            cost: CpuCost::default(),
        }
    }

    /// Takes the store's records of the task over, and tells the strategy.
    pub fn learn(&mut self, mut records: Vec<Record>) {
        // A merged store has them in another order; what is newest counts.
        records.sort_by(|a, b| a.time.total_cmp(&b.time));
        let mut trials = Vec::new();
        for r in records {
            // Records keep the names that a tunable and its knobs had when they were written.
            let known = find_candidate(&self.tunables, &r.tunable, &r.configuration);
            let name = known
                .as_ref()
                .map_or_else(|| (r.tunable.clone(), r.configuration.clone()), name_of);
            match r.kind {
                RecordKind::Untuned => {
                    self.report.untuned = r.outcome.time().or(self.report.untuned);
                    if let Some(t) = r.outcome.time() {
                        self.stand(name, t);
                    }
                }
                RecordKind::Rematch => self.standings.rematch(name, r.outcome.time(), ()),
                RecordKind::Trial => {
                    self.report.known += 1;
                    self.tried.insert(name.clone());
                    if let Some(t) = r.outcome.time() {
                        self.stand(name, t);
                    }
                    // What an older sketch proposed and none proposes now is of no use to search.
                    if let Some(candidate) = known {
                        trials.push(Trial { candidate, outcome: r.outcome, cost: r.cost });
                    }
                }
            }
        }
        self.crown();
        self.strategy.tell(&trials);
    }

    /// A candidate ran in this time.
    pub fn stand(&mut self, name: Name, time: Nanos) {
        // The plain loops have a line of their own beside the curve.
        if name.0 != self.plain.name() && self.report.curve.last().is_none_or(|c| time.0 < c.1.0) {
            self.report.curve.push((self.report.known + self.report.trials, time));
        }
        if self.report.best.is_none_or(|b| time.0 < b.0) {
            self.report.best = Some(time);
            self.report.winner =
                Some(Winner { tunable: name.0.clone(), configuration: name.1.clone() });
        }
        self.standings.trial(name, Some(time), ());
    }

    /// A trial of this session ended so.
    pub fn note(&mut self, name: &Name, outcome: &Outcome) {
        self.tried.insert(name.clone());
        match outcome.time() {
            Some(t) => {
                self.stand(name.clone(), t);
                self.heed(outcome);
            }
            None => {
                self.report.failed += 1;
                self.failures.add(outcome);
            }
        }
    }

    /// Remembers that a GPU was slowed down meanwhile.
    fn heed(&mut self, outcome: &Outcome) {
        let Outcome::Measured(Measurement { gpu: Some(gpu), .. }) = outcome else { return };
        let (count, reasons) = &mut self.report.throttled;
        *count += u64::from(gpu.throttle != 0);
        for reason in gpu.throttled_by() {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }

    /// Makes the candidate that holds the task the winner.
    pub fn crown(&mut self) {
        let winner = self.standings.winner().map(|(name, time, ())| (name.clone(), time));
        self.report.best = winner.as_ref().map(|w| w.1);
        self.report.winner =
            winner.map(|((tunable, configuration), _)| Winner { tunable, configuration });
    }

    /// The kernel of a candidate.
    pub fn source(&self, name: &Name, symbol: &str) -> Option<KernelSource> {
        let tunable = self.tunables.iter().chain([&self.plain]).find(|t| t.name() == name.0)?;
        tunable.realize(&tunable.space().parse(&name.1).ok()?, symbol).ok()
    }

    /// The report, for a session that ended because of `stop`.
    pub fn finish(mut self, stop: StopReason) -> TaskReport {
        self.crown();
        self.report.stop = self.closed.unwrap_or(stop);
        self.report.cost.search += self.search;
        self.report.failures = self.failures.top(5);
        self.report
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use squall_core::{Bytes, FailStage, Target, Workload};

    fn task() -> Task {
        let text = "workload matmul\ndata A: f32[16, 16]\nweight B: f32[16, 16]\nstage Y: f32[i: \
                    16, j: 16] = sum(k: 16) A[i, k] * B[k, j]\noutput Y\n";
        Task::new("mm", Workload::parse(text).expect("a workload"))
    }

    /// A machine of no particular make.
    pub fn target() -> Target {
        Target::cpu(32, 16, &[Bytes(32 << 10), Bytes(1 << 20)])
    }

    fn desk(task: &Task) -> Desk<'_> {
        let target = target();
        let kit = Kit::generated(task, &target);
        let setting =
            squall_search::Setting { tunables: kit.tunables.clone(), seed: 1, trials: 10 };
        let strategy = (squall_search::strategies()[0].make)(&setting);
        Desk::new(task, kit, strategy)
    }

    fn measured(ns: f64) -> Outcome {
        Outcome::Measured(Measurement {
            samples: vec![Nanos(ns)],
            calls: 1,
            error: 0.0,
            gpu: None,
            pace: None,
        })
    }

    /// The i-th configuration of the first sketch.
    fn name(d: &Desk, i: u128) -> Name {
        (d.tunables[0].name().into(), d.tunables[0].space().nth(i).to_string())
    }

    fn record(d: &Desk, kind: RecordKind, name: &Name, outcome: Outcome) -> Record {
        Record {
            kind,
            task: d.task.id,
            name: "mm".into(),
            workload: d.task.workload.to_string(),
            device: "cpu".into(),
            toolchain: "gcc".into(),
            tunable: name.0.clone(),
            configuration: name.1.clone(),
            outcome,
            cost: CpuCost::default(),
            seed: 0,
            time: 0.0,
        }
    }

    #[test]
    fn history_is_taken_over_and_its_winner_keeps_the_task_against_noise() {
        let task = task();
        let mut d = desk(&task);
        let names: Vec<Name> = (0..4).map(|i| name(&d, i)).collect();
        let plain: Name = ("untuned".into(), String::new());
        let failed = Outcome::Failed { stage: FailStage::Build, detail: "no".into() };
        let history = vec![
            record(&d, RecordKind::Untuned, &plain, measured(900.0)),
            record(&d, RecordKind::Trial, &names[0], measured(100.0)),
            record(&d, RecordKind::Trial, &names[1], measured(95.0)),
            record(&d, RecordKind::Trial, &names[2], failed),
            record(&d, RecordKind::Trial, &("gone".into(), "x=1".into()), measured(98.0)),
            record(&d, RecordKind::Rematch, &names[1], measured(104.0)),
            record(&d, RecordKind::Rematch, &names[0], measured(99.0)),
        ];
        d.learn(history);
        assert_eq!((d.report.known, d.report.trials, d.report.untuned), (4, 0, Some(Nanos(900.0))));
        assert_eq!(d.report.best, Some(Nanos(99.0)));
        assert_eq!(d.report.winner.as_ref().map(|w| &w.configuration), Some(&names[0].1));
        // A known configuration is never asked for again.
        for c in d.strategy.ask(64) {
            assert!(names[..3].iter().all(|n| n.1 != c.configuration.to_string()), "{c} is known");
        }
        // Noise does not take the task, a clear gain does.
        d.note(&names[3], &measured(97.5));
        d.crown();
        assert_eq!(d.report.best, Some(Nanos(99.0)));
        d.note(&names[3], &measured(90.0));
        d.crown();
        assert_eq!(d.report.best, Some(Nanos(90.0)));
    }

    #[test]
    fn failures_are_counted_in_classes() {
        let task = task();
        let mut d = desk(&task);
        for i in 0..6 {
            let n = name(&d, i);
            d.report.trials += 1;
            let detail = if i < 4 {
                format!("/tmp/k{i}.c:{i}: error: too many {i}")
            } else {
                "segmentation fault".into()
            };
            d.note(
                &n,
                &Outcome::Failed {
                    stage: if i < 4 { FailStage::Build } else { FailStage::Launch },
                    detail,
                },
            );
        }
        let r = d.finish(StopReason::Trials);
        assert_eq!((r.failed, r.best, r.winner), (6, None, None));
        assert_eq!(
            r.failures.iter().map(|f| (f.stage.as_str(), f.count)).collect::<Vec<_>>(),
            [("build", 4), ("launch", 2)]
        );
    }
}
