//! Tests of the trial loop with a mock measurer (a function that returns outcomes): the order of
//! recording and telling, limits, errors, and candidates without a source.

#[path = "../../../../search/src/conformance/in_order.rs"]
mod in_order;

use super::*;
use squall_core::{
    FailStage, Measurement, MeasurerError, MeasurerIdentity, Nanos, Reference, Space, TaskSetup,
    Workload,
};
use squall_measure::MockMeasurer;
use squall_search::Setting;
use std::cell::RefCell;

/// A tunable with sixteen configurations of one knob and no features; the last configuration has no
/// source.
struct Flat(Space);

impl Tunable for Flat {
    fn name(&self) -> &str {
        "flat"
    }
    fn space(&self) -> &Space {
        &self.0
    }
    fn realize(
        &self,
        c: &squall_core::Configuration,
        symbol: &str,
    ) -> Result<KernelSource, squall_core::RealizeError> {
        if c.int("k") == Some(15) {
            return Err(squall_core::RealizeError("there is none".into()));
        }
        Ok(KernelSource {
            language: squall_core::Language::C,
            source: c.to_string(),
            symbol: symbol.into(),
            prepared: squall_core::Bytes(0),
            workspace: squall_core::Bytes(0),
            openmp: false,
            full_optimisation: false,
            flags: Vec::new(),
            launches: Vec::new(),
        })
    }
    fn is_flat(&self) -> bool {
        true
    }
    fn features(&self, c: &squall_core::Configuration) -> Vec<f32> {
        c.indices().map(|i| i as f32).collect()
    }
}

/// All strategies and one that is no part of Squall: its file and this line add it.
fn strategies() -> impl Iterator<Item = &'static StrategyInfo> + Clone {
    squall_search::strategies().iter().chain([&in_order::IN_ORDER])
}

fn tunables() -> Vec<Arc<dyn Tunable>> {
    use squall_core::space::{Knob, Role};
    let knob = Knob::ints("k", Role::Choice, 0..16);
    vec![Arc::new(Flat(Space::new(vec![knob], &[]).expect("a space")))]
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

/// A device on which every third kernel fails.
fn mock() -> MockMeasurer {
    let trial = |_: &TaskSetup, job: &Job| {
        let k: f64 = job.candidate.configuration.trim_start_matches("k=").parse().unwrap_or(0.0);
        let outcome = if k % 3.0 == 2.0 {
            Outcome::Failed { stage: FailStage::Launch, detail: "no".into() }
        } else {
            measured(100.0 + (k - 6.0).abs())
        };
        Ok((outcome, CpuCost { build: 1.0, measure: 2.0, search: 0.0 }))
    };
    MockMeasurer::new(MeasurerIdentity::new("mock", "none"), trial)
}

fn ready(mut measurer: MockMeasurer) -> MockMeasurer {
    let text = "workload relu\ndata X: f32[16]\nstage Y: f32[i: 16] = max(X[i], 0)\noutput Y\n";
    let workload = Workload::parse(text).expect("a workload");
    measurer.set_task(&TaskSetup::new(workload, Reference::default(), 0)).expect("a task");
    measurer
}

/// The steps that were made, in order.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Asked(usize),
    Recorded(String),
    Told(Vec<String>),
}

/// A strategy and a recorder that write down what they are asked and told.
struct Observed<'l> {
    inner: Box<dyn Strategy>,
    log: &'l std::sync::Mutex<Vec<Step>>,
}

impl Strategy for Observed<'_> {
    fn name(&self) -> &'static str {
        "observed"
    }
    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let asked = self.inner.ask(n);
        self.log.lock().unwrap().push(Step::Asked(asked.len()));
        asked
    }
    fn tell(&mut self, trials: &[Trial]) {
        let names = trials.iter().map(|t| t.candidate.configuration.to_string()).collect();
        self.log.lock().unwrap().push(Step::Told(names));
        self.inner.tell(trials);
    }
}

struct Log<'l> {
    log: &'l std::sync::Mutex<Vec<Step>>,
    /// The number of records after which keeping fails.
    room: usize,
    kept: RefCell<Vec<Trial>>,
    /// Set once this many records are kept.
    stop: Option<(usize, &'l AtomicBool)>,
}

impl TrialRecorder for Log<'_> {
    fn record(&mut self, trial: Trial, _: f64) -> Result<Trial, Error> {
        if self.kept.borrow().len() == self.room {
            return Err(Error::Nothing("the disk is full".into()));
        }
        self.log.lock().unwrap().push(Step::Recorded(trial.candidate.configuration.to_string()));
        self.kept.borrow_mut().push(trial.clone());
        if let Some((n, stop)) = self.stop
            && self.kept.borrow().len() == n
        {
            stop.store(true, Ordering::Relaxed);
        }
        Ok(trial)
    }
}

/// A run of a strategy with a room for records, and a trial after which it is stopped.
fn run(
    name: &str,
    measurer: MockMeasurer,
    trials: usize,
    batch: usize,
    room: usize,
    stop_after: usize,
) -> (Result<Ran, Error>, Vec<Step>, Vec<Trial>) {
    let (tunables, mut measurer) = (tunables(), ready(measurer));
    let info = strategy(name, strategies()).expect("a strategy");
    let setting = Setting::new(tunables.clone(), 3, trials);
    let (log, stop) = (std::sync::Mutex::new(Vec::new()), AtomicBool::new(false));
    let mut search = Observed { inner: (info.make)(&setting), log: &log };
    let kept = RefCell::new(Vec::new());
    let mut recorder = Log { log: &log, room, kept, stop: Some((stop_after, &stop)) };
    let limits = Limits::new(trials, batch, &stop);
    let ran = run_trials(&mut measurer, &tunables, &mut search, &mut recorder, &limits);
    let kept = recorder.kept.into_inner();
    (ran, log.into_inner().unwrap(), kept)
}

/// Every trial is recorded before any is told, and exactly those recorded are told.
fn assert_order(steps: &[Step]) {
    let mut waiting: Vec<&String> = Vec::new();
    for s in steps {
        match s {
            Step::Asked(_) => assert!(waiting.is_empty(), "{steps:?}"),
            Step::Recorded(name) => waiting.push(name),
            Step::Told(names) => {
                assert_eq!(names.iter().collect::<Vec<_>>(), waiting);
                waiting.clear();
            }
        }
    }
}

#[test]
fn every_strategy_sees_an_exhausted_space_to_its_end_failures_and_all() {
    assert!(strategies().any(|s| s.name == "in-order"));
    for info in strategies() {
        let (ran, steps, kept) = run(info.name, mock(), 100, 4, usize::MAX, usize::MAX);
        let ran = ran.expect("it runs");
        assert_eq!((ran.trials, ran.exhausted), (16, true), "{}", info.name);
        assert_order(&steps);
        let mut names: Vec<String> =
            kept.iter().map(|t| t.candidate.configuration.to_string()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 16);
        let failed = kept.iter().filter(|t| matches!(t.outcome, Outcome::Failed { .. })).count();
        let infeasible = kept.iter().filter(|t| matches!(t.outcome, Outcome::Infeasible(_)));
        assert_eq!((failed, infeasible.count()), (5, 1), "{}", info.name);
        let cost = kept.iter().map(|t| t.cost.build).sum::<f64>();
        assert_eq!(cost, 15.0, "what has no kernel costs no build");
    }
}

#[test]
fn the_limits_are_kept_and_the_same_seed_gives_the_same_trials() {
    let (ran, steps, kept) = run("random", mock(), 10, 4, usize::MAX, usize::MAX);
    let ran = ran.expect("it runs");
    assert_eq!((ran.trials, ran.exhausted, kept.len()), (10, false, 10));
    let asked: Vec<&Step> = steps.iter().filter(|s| matches!(s, Step::Asked(_))).collect();
    assert_eq!(asked, [&Step::Asked(4), &Step::Asked(4), &Step::Asked(2)]);
    assert_eq!(run("random", mock(), 10, 4, usize::MAX, usize::MAX).1, steps);
}

#[test]
fn a_stop_finishes_the_trial_at_hand_and_tells_it() {
    let (ran, steps, kept) = run("random", mock(), 100, 8, usize::MAX, 3);
    assert!(!ran.expect("it runs").exhausted);
    // Infeasible candidates are recorded before the first is measured; the stop is seen then.
    assert!(kept.len() <= 5 && kept.len() >= 3, "{steps:?}");
    assert_order(&steps);
    assert!(matches!(steps.last(), Some(Step::Told(names)) if names.len() == kept.len()));
}

#[test]
fn a_store_error_ends_the_run_and_nothing_recorded_is_lost() {
    let (ran, steps, kept) = run("random", mock(), 100, 4, 6, usize::MAX);
    assert!(matches!(ran, Err(Error::Nothing(m)) if m == "the disk is full"));
    let told: usize =
        steps.iter().map(|s| if let Step::Told(names) = s { names.len() } else { 0 }).sum();
    assert_eq!((kept.len(), told), (6, 4), "the second batch is kept in part and told not at all");
}

/// A device that ends what it has in flight, whatever it is told meanwhile.
struct Busy(MockMeasurer);

impl Measurer for Busy {
    fn identity(&self) -> &MeasurerIdentity {
        self.0.identity()
    }
    fn set_task(&mut self, task: &TaskSetup) -> Result<(), MeasurerError> {
        self.0.set_task(task)
    }
    fn run(
        &mut self,
        jobs: &[Job],
        _: &AtomicBool,
        each: &mut dyn FnMut(squall_core::JobResult),
    ) -> Result<(), MeasurerError> {
        self.0.run(jobs, &AtomicBool::new(false), each)
    }
    fn rematch(&mut self, a: &Job, b: &Job) -> Result<squall_core::Rematch, MeasurerError> {
        self.0.rematch(a, b)
    }
    fn overhead(&self) -> CpuCost {
        self.0.overhead()
    }
}

/// A recorder that can keep nothing.
struct Full(usize);

impl TrialRecorder for Full {
    fn record(&mut self, _: Trial, _: f64) -> Result<Trial, Error> {
        self.0 += 1;
        Err(Error::Nothing("the disk is full".into()))
    }
}

#[test]
fn what_is_in_flight_when_a_store_goes_away_is_not_offered_to_it() {
    let (tunables, stop) = (tunables(), AtomicBool::new(false));
    let candidates = (0..6)
        .map(|i| Candidate { tunable: "flat".into(), configuration: tunables[0].space().nth(i) });
    let mut rounds = Rounds::new(candidates.collect(), 1);
    let (mut measurer, mut recorder) = (Busy(ready(mock())), Full(0));
    let limits = Limits::new(6, 6, &stop);
    let ran = run_trials(&mut measurer, &tunables, &mut rounds, &mut recorder, &limits);
    assert!(matches!(ran, Err(Error::Nothing(_))) && recorder.0 == 1, "{} times", recorder.0);
}

#[test]
fn a_device_that_is_lost_ends_the_run_and_what_it_measured_is_kept() {
    let mut left = 6;
    let trial = move |_: &TaskSetup, _: &Job| {
        left -= 1;
        if left < 0 {
            return Err(MeasurerError::Device("the GPU fell off the bus".into()));
        }
        Ok((measured(1.0), CpuCost::default()))
    };
    let measurer = MockMeasurer::new(MeasurerIdentity::new("mock", "none"), trial);
    let (ran, steps, kept) = run("random", measurer, 100, 4, usize::MAX, usize::MAX);
    assert!(matches!(ran, Err(Error::Measure(MeasurerError::Device(_)))));
    assert!(kept.len() >= 6, "{steps:?}");
    assert_eq!(steps.iter().filter(|s| matches!(s, Step::Told(_))).count(), 1);
}

#[test]
fn rounds_measure_each_candidate_so_often_and_begin_elsewhere_each_time() {
    let (tunables, mut measurer) = (tunables(), ready(mock()));
    let space = tunables[0].space();
    let candidate = |i| Candidate { tunable: "flat".into(), configuration: space.nth(i) };
    let mut rounds = Rounds::new((0..4).map(candidate).collect(), 4);
    let stop = AtomicBool::new(false);
    let log = std::sync::Mutex::new(Vec::new());
    let kept = RefCell::new(Vec::new());
    let mut recorder = Log { log: &log, room: usize::MAX, kept, stop: None };
    let limits = Limits::new(rounds.len(), rounds.batch(), &stop);
    let ran = run_trials(&mut measurer, &tunables, &mut rounds, &mut recorder, &limits);
    assert_eq!(ran.expect("it runs").trials, 16);
    let firsts = |k: usize| recorder.kept.borrow()[4 * k].candidate.configuration.to_string();
    assert_eq!((0..4).map(firsts).collect::<Vec<_>>(), ["k=0", "k=1", "k=2", "k=3"]);
    let times: Vec<usize> = rounds.into_times().iter().map(|(_, t)| t.len()).collect();
    assert_eq!(times, [4, 4, 0, 4]);
}
