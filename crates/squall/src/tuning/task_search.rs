//! A task during a session: its state, its strategy, its predicted candidates, and the counts from
//! which its report is made. [`Guided`] wraps the strategy and mixes the predictor's candidates and
//! guesses from similar tasks into its batches. `session.rs` drives it.

use crate::target::roof::Factors;
use crate::task::task_kernels::baseline;
use crate::task::task_state::{History, TaskState, name_of};
use crate::tuning::report::{FailureClass, Failures, StopReason, TaskReport, Winner};
use squall_core::{
    Candidate, CpuCost, Measurement, Nanos, Outcome, Task, TaskId, TaskSetup, Trial, is_untuned,
};
use squall_records::Name;
use squall_search::{FIRST_TRIALS, Strategy};

/// The most classes of failures that a phase reports.
const CLASSES: usize = 5;

/// A task while it is tuned.
pub(crate) struct TaskSearch<'a> {
    pub state: TaskState<'a>,
    pub setup: TaskSetup,
    pub strategy: Box<dyn Strategy>,
    /// The predictor's candidates that were not tried yet.
    pub predicted: Vec<Candidate>,
    pub tally: Tally,
    /// The reason, once no more trials of it are made.
    pub closed: Option<StopReason>,
    /// The seconds that were spent on it.
    pub spent: f64,
    /// CPU seconds of the search that are in no record yet.
    pub search: f64,
}

/// What is counted of a task in a phase of a session; of what was found, in all phases.
#[derive(Default)]
pub(crate) struct Tally {
    /// Trials that the store knew before.
    pub known: u64,
    /// Trials made since.
    pub trials: u64,
    /// Trials of this session without a time.
    pub failed: u64,
    /// Trials of this session that were right under an emulator, where there are no times.
    pub right: u64,
    /// Trials of this session that a predictor proposed.
    pub predicted: u64,
    /// The baseline's time.
    pub untuned: Option<Nanos>,
    /// The best time so far, before rematches.
    pub best: Option<Nanos>,
    /// What they cost.
    pub cost: CpuCost,
    pub failures: Failures,
    /// The most frequent classes of earlier phases' failures.
    failed_before: Vec<FailureClass>,
    throttled: (u64, Vec<&'static str>),
    curve: Vec<(u64, Nanos)>,
}

impl Tally {
    /// Takes over what the store knew.
    pub fn learn(&mut self, history: &History) {
        for (name, time, known) in &history.times {
            self.known = *known;
            self.improve(name, *time);
        }
        (self.known, self.untuned) = (history.known, history.untuned);
    }

    /// A candidate ran in this time.
    pub fn improve(&mut self, name: &Name, time: Nanos) {
        // The baseline has a line of its own beside the curve.
        if !is_untuned(&name.0) && self.curve.last().is_none_or(|c| time.0 < c.1.0) {
            self.curve.push((self.known + self.trials, time));
        }
        if self.best.is_none_or(|b| time.0 < b.0) {
            self.best = Some(time);
        }
    }

    /// Takes over what was counted in earlier phases, whose trials the store knew in this one.
    fn follow(&mut self, before: Tally) {
        self.failed_before = before.classes();
        self.known = before.known;
        self.trials += before.trials;
        self.failed += before.failed;
        self.right += before.right;
        self.predicted += before.predicted;
        self.untuned = before.untuned.or(self.untuned);
        self.cost += before.cost;
        let (count, reasons) = std::mem::replace(&mut self.throttled, before.throttled);
        self.throttled.0 += count;
        // In the order in which they first occurred: the list is not sorted.
        for reason in reasons {
            if !self.throttled.1.contains(&reason) {
                self.throttled.1.push(reason);
            }
        }
    }

    /// The most frequent classes of failures, those of earlier phases among them.
    fn classes(&self) -> Vec<FailureClass> {
        let mut all = self.failures.top(CLASSES);
        for f in &self.failed_before {
            match all.iter_mut().find(|x| (&x.stage, &x.detail) == (&f.stage, &f.detail)) {
                Some(same) => same.count += f.count,
                None => all.push(f.clone()),
            }
        }
        all.sort_by_key(|f| std::cmp::Reverse(f.count));
        all
    }

    /// Remembers that a GPU was slowed down meanwhile.
    fn note_throttling(&mut self, outcome: &Outcome) {
        let Outcome::Measured(Measurement { gpu: Some(gpu), .. }) = outcome else { return };
        let (count, reasons) = &mut self.throttled;
        *count += u64::from(gpu.throttle != 0);
        for reason in gpu.throttled_by() {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }
}

/// Counts a trial.
pub(crate) fn count_trial(state: &mut TaskState, tally: &mut Tally, trial: &Trial) {
    let name = name_of(&trial.candidate);
    tally.trials += 1;
    tally.cost += trial.cost;
    state.tried.insert(name.clone());
    match trial.outcome.time() {
        Some(time) => {
            tally.improve(&name, time);
            tally.note_throttling(&trial.outcome);
            state.stand(name, time);
        }
        None if matches!(trial.outcome, Outcome::Right { .. }) => tally.right += 1,
        None => {
            tally.failed += 1;
            tally.failures.add(&trial.outcome);
        }
    }
}

impl TaskSearch<'_> {
    /// Makes the time of the candidate that holds the task the best.
    pub fn crown(&mut self) {
        self.tally.best = self.state.standings.winner().map(|w| w.1);
    }

    /// What was found in a phase that ended because of `stop`.
    pub fn finish(mut self, stop: StopReason) -> Found {
        self.tally.cost.search += self.search;
        Found::new(&self.state, self.tally, self.closed.unwrap_or(stop))
    }
}

/// What phases of a session found for a task.
pub(crate) struct Found {
    task: Task,
    /// The candidate that holds the task, and its time.
    winner: Option<(Name, Nanos)>,
    /// Operations of a call of the winner.
    operations: u64,
    factors: Factors,
    tally: Tally,
    /// Why its trials ended.
    stop: StopReason,
}

impl Found {
    /// What one phase found, in which the task's trials ended for a reason.
    pub fn new(state: &TaskState, tally: Tally, stop: StopReason) -> Found {
        let (task, winner) = (state.task.clone(), state.standings.winner());
        let operations = winner.map_or(task.workload.flop(), |w| state.operations(w.0));
        Found {
            winner: winner.map(|w| (w.0.clone(), w.1)),
            operations,
            factors: Factors::of(&task.workload, operations),
            task,
            tally,
            stop,
        }
    }

    /// The task.
    pub fn id(&self) -> TaskId {
        self.task.id
    }

    /// Whether any trial was made.
    pub fn is_tried(&self) -> bool {
        self.tally.trials > 0
    }

    /// Adds what a later phase found, which knew the trials of the earlier ones.
    pub fn add(&mut self, later: Found) {
        if !later.is_tried() {
            // It had no turn.
            self.tally.cost += later.tally.cost;
            return;
        }
        let before = std::mem::replace(self, later);
        self.tally.follow(before.tally);
    }

    /// Names the candidate that holds the task by what is known now.
    pub fn hold(&mut self, state: &TaskState) {
        if let Some((name, time, ())) = state.standings.winner() {
            self.operations = state.operations(name);
            self.winner = Some((name.clone(), time));
        }
    }

    /// Says how often the model calls it.
    pub fn count(&mut self, count: u64) {
        self.task.count = count;
    }

    /// The report.
    pub fn report(self) -> TaskReport {
        let Found { task, winner, operations, factors, tally, stop } = self;
        let failures = tally.classes();
        let (name, best) = winner.unzip();
        TaskReport {
            id: task.id,
            name: task.name,
            flop: task.workload.flop(),
            bytes: task.workload.bytes().0,
            baseline: baseline(&task.workload),
            kind: task.workload.kind,
            count: task.count,
            nodes: task.nodes,
            operations,
            factors,
            untuned: tally.untuned,
            best,
            winner: name.map(|(tunable, configuration)| Winner { tunable, configuration }),
            trials: tally.trials,
            failed: tally.failed,
            right: tally.right,
            throttled: tally.throttled,
            known: tally.known,
            predicted: tally.predicted,
            stop,
            curve: tally.curve,
            failures,
            cost: tally.cost,
        }
    }
}

/// A strategy for one batch: a predictor's candidates come first and alone, since the search begins
/// from what becomes of them, but that guesses from similar tasks take turns with the general
/// predictor's; else guesses take up to half of the batch.
pub(crate) struct Guided<'s> {
    strategy: &'s mut dyn Strategy,
    predicted: &'s mut Vec<Candidate>,
    /// Whether the general predictor foretold.
    is_general: bool,
    guesses: Vec<Candidate>,
    /// The predictor's among the trials that were told.
    pub heard: u64,
    asked: Vec<Candidate>,
}

impl<'s> Guided<'s> {
    /// Such a strategy.
    pub fn new(
        strategy: &'s mut dyn Strategy,
        predicted: &'s mut Vec<Candidate>,
        guesses: Vec<Candidate>,
        is_general: bool,
    ) -> Guided<'s> {
        Guided { strategy, predicted, is_general, guesses, heard: 0, asked: Vec::new() }
    }

    /// What the general predictor foretold in turns with guesses, `n` in all. What of it is not
    /// tried now is not tried at all: the search knows more by then.
    fn in_turns(&mut self, n: usize) -> Vec<Candidate> {
        let predicted = std::mem::take(self.predicted);
        let mut guesses = std::mem::take(&mut self.guesses);
        guesses.retain(|g| !predicted.contains(g));
        let mut guesses = guesses.into_iter();
        let mut all = Vec::new();
        for p in predicted {
            all.push(p.clone());
            self.asked.push(p);
            all.extend(guesses.next());
        }
        all.truncate(n);
        self.asked.retain(|p| all.contains(p));
        all
    }
}

impl Strategy for Guided<'_> {
    fn name(&self) -> &'static str {
        self.strategy.name()
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        self.asked.clear();
        if self.is_general && !self.predicted.is_empty() {
            return self.in_turns(n.min(FIRST_TRIALS));
        }
        self.asked = self.predicted.drain(..self.predicted.len().min(n)).collect();
        if !self.asked.is_empty() {
            return self.asked.clone();
        }
        let mut guesses = std::mem::take(&mut self.guesses);
        guesses.truncate(n.div_ceil(2));
        let asked =
            if n > guesses.len() { self.strategy.ask(n - guesses.len()) } else { Vec::new() };
        guesses.retain(|g| !asked.contains(g));
        guesses.extend(asked);
        guesses
    }

    fn tell(&mut self, trials: &[Trial]) {
        self.heard += trials.iter().filter(|t| self.asked.contains(&t.candidate)).count() as u64;
        self.strategy.tell(trials);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::task_state::tests::{history, measured, name, state, task};
    use squall_core::FailStage;

    fn trial(s: &TaskState, name: &Name, outcome: Outcome) -> Trial {
        let candidate = s.kernels.candidate(&name.0, &name.1).expect("a candidate");
        Trial { candidate, outcome, cost: CpuCost::default() }
    }

    #[test]
    fn history_is_counted_and_its_winner_keeps_the_task_against_noise() {
        let task = task();
        let mut s = state(&task);
        let (names, records) = history(&s);
        let setting = squall_search::Setting::new(s.kernels.tunables.clone(), 1, 10);
        let mut strategy = (squall_search::strategies()[0].make)(&setting);
        let mut tally = Tally::default();
        let known = s.learn(records);
        tally.learn(&known);
        strategy.tell(&known.trials);
        assert_eq!((tally.known, tally.trials, tally.untuned), (4, 0, Some(Nanos(900.0))));
        assert_eq!(tally.curve, [(1, Nanos(100.0)), (2, Nanos(95.0))]);
        // A known configuration is never asked for again.
        for c in strategy.ask(64) {
            assert!(names[..3].iter().all(|n| n.1 != c.configuration.to_string()), "{c} is known");
        }
        // Noise does not take the task, a clear gain does.
        let t = trial(&s, &names[3], measured(97.5));
        count_trial(&mut s, &mut tally, &t);
        assert_eq!(s.standings.winner().map(|w| w.1), Some(Nanos(99.0)));
        let t = trial(&s, &names[3], measured(90.0));
        count_trial(&mut s, &mut tally, &t);
        let r = Found::new(&s, tally, StopReason::Trials).report();
        assert_eq!((r.best, r.known, r.trials), (Some(Nanos(90.0)), 4, 2));
        assert_eq!(r.winner.map(|w| w.configuration), Some(names[3].1.clone()));
    }

    #[test]
    fn the_general_predictor_and_similar_tasks_take_turns() {
        let task = task();
        let s = state(&task);
        let of = |i: u128| {
            let n = name(&s, i);
            s.kernels.candidate(&n.0, &n.1).expect("a candidate")
        };
        let setting = squall_search::Setting::new(s.kernels.tunables.clone(), 1, 10);
        let mut strategy = (squall_search::strategies()[0].make)(&setting);
        let mut ask = |predicted: &[u128], guesses: &[u128], is_general| {
            let mut predicted: Vec<Candidate> = predicted.iter().map(|i| of(*i)).collect();
            let guesses = guesses.iter().map(|i| of(*i)).collect();
            let mut guided = Guided::new(&mut *strategy, &mut predicted, guesses, is_general);
            let asked = guided.ask(16);
            let trials = asked.iter().map(|c| Trial {
                candidate: c.clone(),
                outcome: measured(1.0),
                cost: CpuCost::default(),
            });
            guided.tell(&trials.collect::<Vec<_>>());
            let heard = guided.heard;
            (asked, heard, predicted.len())
        };
        let list = |all: &[u128]| all.iter().map(|i| of(*i)).collect::<Vec<_>>();
        assert_eq!(ask(&[1, 2, 3, 4], &[], true), (list(&[1, 2, 3, 4]), 4, 0));
        assert_eq!(ask(&[1, 2, 3, 4], &[5, 1, 6], true), (list(&[1, 5, 2, 6]), 2, 0));
        assert_eq!(ask(&[1, 2], &[5], false), (list(&[1, 2]), 2, 0));
    }

    #[test]
    fn reasons_of_several_phases_are_named_once_in_the_order_in_which_they_occurred() {
        let task = task();
        let s = state(&task);
        let found = |throttled: (u64, Vec<&'static str>)| {
            let tally = Tally { trials: 1, throttled, ..Tally::default() };
            Found::new(&s, tally, StopReason::Trials)
        };
        let mut all = found((2, vec!["power", "heat"]));
        all.add(found((1, vec!["power", "sync"])));
        all.add(found((1, vec!["heat", "power"])));
        let report = all.report();
        assert_eq!((report.trials, report.throttled), (3, (4, vec!["power", "heat", "sync"])));
    }

    #[test]
    fn a_later_phase_counts_on_and_says_what_it_knows_better() {
        let task = task();
        let s = state(&task);
        let build = |line: &str| {
            let mut failures = Failures::default();
            let (stage, detail) = (FailStage::Build, line.to_string());
            failures.add(&Outcome::Failed { stage, detail });
            failures
        };
        let cost = |search| CpuCost { search, ..CpuCost::default() };
        let found = |known, trials, untuned: Option<f64>, line| {
            let tally = Tally {
                known,
                trials,
                failed: 1,
                untuned: untuned.map(Nanos),
                cost: cost(1.0),
                failures: build(line),
                curve: vec![(known + 1, Nanos(9.0))],
                ..Tally::default()
            };
            Found::new(&s, tally, StopReason::Seconds)
        };
        let mut all = found(2, 4, Some(7.0), "error: one");
        all.add(found(6, 3, Some(8.0), "error: two"));
        all.add(found(9, 2, None, "error: one"));
        // Without a trial it had no turn; its costs are counted.
        all.add(found(11, 0, None, "error: three"));
        let r = all.report();
        assert_eq!((r.known, r.trials, r.failed, r.untuned), (2, 9, 3, Some(Nanos(7.0))));
        assert_eq!((r.cost.search, r.curve), (4.0, vec![(10, Nanos(9.0))]));
        let classes: Vec<_> = r.failures.iter().map(|f| (f.detail.as_str(), f.count)).collect();
        assert_eq!(classes, [("error: one", 2), ("error: two", 1)]);
    }

    #[test]
    fn failures_are_counted_in_classes() {
        let task = task();
        let mut s = state(&task);
        let mut tally = Tally::default();
        for i in 0..6 {
            let n = name(&s, i);
            let detail = if i < 4 {
                format!("/tmp/k{i}.c:{i}: error: too many {i}")
            } else {
                "segmentation fault".into()
            };
            let stage = if i < 4 { FailStage::Build } else { FailStage::Launch };
            let t = trial(&s, &n, Outcome::Failed { stage, detail });
            count_trial(&mut s, &mut tally, &t);
        }
        let r = Found::new(&s, tally, StopReason::Trials).report();
        assert_eq!((r.failed, r.best, r.winner), (6, None, None));
        assert_eq!(
            r.failures.iter().map(|f| (f.stage.as_str(), f.count)).collect::<Vec<_>>(),
            [("build", 4), ("launch", 2)]
        );
    }
}
