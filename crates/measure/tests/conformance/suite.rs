//! The rules that every implementation of `Measurer` must keep, as tests over a [`Subject`]:
//! results come in order and once each, nothing is measured before a task is set, faults do not
//! affect the next kernel, rematches find the faster kernel.

use squall_core::measurer::MESSAGE_VERSION;
use squall_core::{
    CandidateText, CpuCost, DeviceIdentity, FailStage, Job, JobResult, KernelSource, Measurer,
    MeasurerError, Outcome, TaskSetup, Verdict,
};
use squall_measure::serve;
use std::sync::atomic::{AtomicBool, Ordering};

/// The behaviour of a kernel of the suite. Kernels of one kind have different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Its results are right.
    Right,
    /// Its results are right, after many times the time.
    Slow,
    /// Its results are right, so slowly that measuring forty takes seconds.
    Long,
    /// Its results are wrong.
    Wrong,
    /// It ends its process, or its GPU's context.
    Crashing,
    /// No compiler takes it.
    Unbuildable,
    /// Its results are right for the other task.
    Other,
}

/// A measurer, and the kernels and tasks that it knows.
pub struct Subject {
    pub measurer: Box<dyn Measurer>,
    /// Whether a kernel that is right has a time. Under an emulator it has none.
    pub times: bool,
    /// Nothing for a measurer that needs no sources.
    pub source: fn(Kind, usize) -> Option<KernelSource>,
    pub task: TaskSetup,
    pub other: TaskSetup,
}

/// The name of a kernel of the suite.
pub fn name(kind: Kind, number: usize) -> CandidateText {
    CandidateText::new("suite", format!("{kind:?}={number}"))
}

impl Subject {
    fn job(&self, kind: Kind, number: usize) -> Job {
        let candidate = name(kind, number);
        match (self.source)(kind, number) {
            Some(source) => Job::new(candidate, source),
            None => Job::without_source(candidate),
        }
    }

    fn set_task(&mut self) {
        self.measurer.set_task(&self.task).unwrap();
    }

    /// The results of jobs, which must come in order and once each.
    fn results(&mut self, jobs: &[Job]) -> Result<Vec<JobResult>, MeasurerError> {
        let mut results: Vec<JobResult> = Vec::new();
        self.measurer.run(jobs, &AtomicBool::new(false), &mut |r| {
            assert_eq!(r.job, results.len(), "{r:?}");
            results.push(r);
        })?;
        assert_eq!(results.len(), jobs.len());
        Ok(results)
    }

    fn outcome(&mut self, kind: Kind, number: usize) -> Outcome {
        let job = self.job(kind, number);
        self.results(&[job]).unwrap().remove(0).outcome
    }

    /// Whether a kernel ran, was right, and has a time exactly where this measurer gives times.
    fn is_measured(&mut self, kind: Kind, number: usize) -> bool {
        let outcome = self.outcome(kind, number);
        println!("{kind:?}: {outcome:?}");
        self.is_as_expected(&outcome)
    }

    fn is_as_expected(&self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Right { error } => !self.times && *error >= 0.0,
            Outcome::Measured(_) => {
                self.times && outcome.time().is_some_and(|t| t.0 > 0.0 && t.0.is_finite())
            }
            Outcome::Infeasible(_) | Outcome::Failed { .. } => false,
        }
    }
}

/// Checks everything.
pub fn conforms(mut s: Subject) {
    it_has_names(&s);
    nothing_is_measured_before_a_task_is_set(&mut s);
    results_come_in_order_and_once_each(&mut s);
    failures_are_outcomes(&mut s);
    stop_is_heard(&mut s);
    a_rematch_is_decided(&mut s);
    a_contender_that_fails_is_named(&mut s);
    tasks_can_be_returned_to(&mut s);
    a_missing_source_is_an_error_where_one_is_needed(&mut s);
    another_version_is_refused(&mut s);
}

fn it_has_names(s: &Subject) {
    let identity = s.measurer.identity();
    assert!(!identity.toolchain.is_empty(), "{identity:?}");
    let device = identity.device.to_string();
    assert!(!device.is_empty(), "{identity:?}");
    assert_eq!(DeviceIdentity::parse(&device), identity.device);
}

fn nothing_is_measured_before_a_task_is_set(s: &mut Subject) {
    let job = s.job(Kind::Right, 0);
    for error in [
        s.results(std::slice::from_ref(&job)).unwrap_err(),
        s.measurer.rematch(&job, &job).unwrap_err(),
    ] {
        assert!(matches!(error, MeasurerError::Reference(_)), "{error}");
        assert!(error.to_string().contains("no task was set"), "{error}");
    }
    // Nothing was lost by it.
    s.set_task();
    assert!(s.is_measured(Kind::Right, 0));
}

fn results_come_in_order_and_once_each(s: &mut Subject) {
    let kind = |i: usize| [Kind::Right, Kind::Slow, Kind::Wrong][i % 3];
    let mut jobs: Vec<Job> = (0..9).map(|i| s.job(kind(i), i)).collect();
    // An equal job is a job of its own.
    jobs.push(jobs[0].clone());
    let before = s.measurer.overhead();
    let results = s.results(&jobs).unwrap();
    for r in &results {
        let right = s.is_as_expected(&r.outcome);
        assert_eq!(right, r.job == 9 || kind(r.job) != Kind::Wrong, "{r:?}");
        let CpuCost { build, measure, search } = r.cost;
        assert!(build >= 0.0 && measure >= 0.0 && search == 0.0, "{r:?}");
    }
    assert!(s.results(&[]).unwrap().is_empty());
    assert!(s.measurer.overhead().total() >= before.total());
}

fn failures_are_outcomes(s: &mut Subject) {
    let expected = [
        (Kind::Wrong, FailStage::WrongAnswer),
        (Kind::Crashing, FailStage::Launch),
        (Kind::Unbuildable, FailStage::Build),
    ];
    let mut jobs: Vec<Job> = expected.iter().map(|e| s.job(e.0, 20)).collect();
    jobs.push(s.job(Kind::Right, 20));
    let results = s.results(&jobs).unwrap();
    for (r, (kind, stage)) in results.iter().zip(expected) {
        match &r.outcome {
            Outcome::Failed { stage: found, detail } => {
                assert_eq!(*found, stage, "{kind:?}: {detail}");
                assert!(!detail.is_empty());
            }
            other => panic!("{kind:?}: {other:?}"),
        }
    }
    assert!(s.is_as_expected(&results[3].outcome), "{:?}", results[3]);
}

fn stop_is_heard(s: &mut Subject) {
    let jobs: Vec<Job> = (0..40).map(|i| s.job(Kind::Long, i)).collect();
    let stop = AtomicBool::new(false);
    let mut seen: Vec<usize> = Vec::new();
    let mut each = |r: JobResult| {
        // Where several workers measure, one may hear of it before the job that it has begun.
        assert!(seen.last().is_none_or(|&last| last < r.job), "{seen:?} {r:?}");
        seen.push(r.job);
        stop.store(true, Ordering::Relaxed);
    };
    s.measurer.run(&jobs, &stop, &mut each).unwrap();
    println!("stopped after {seen:?} of {} jobs", jobs.len());
    assert!((1..jobs.len()).contains(&seen.len()) && seen[0] == 0, "{seen:?}");
    s.measurer.run(&jobs, &stop, &mut |r| panic!("stopped before the start: {r:?}")).unwrap();
    // A stop is of one run.
    assert!(s.is_measured(Kind::Right, 30));
}

fn a_rematch_is_decided(s: &mut Subject) {
    let (right, slow) = (s.job(Kind::Right, 40), s.job(Kind::Slow, 40));
    assert!(s.is_measured(Kind::Right, 40) && s.is_measured(Kind::Slow, 40));
    if !s.times {
        let refused = s.measurer.rematch(&slow, &right).unwrap_err();
        assert!(matches!(refused, MeasurerError::Device(_)), "{refused}");
        assert!(refused.to_string().contains("under an emulator"), "{refused}");
        return;
    }
    for (incumbent, challenger, verdict) in [
        (&slow, &right, Verdict::Faster),
        (&right, &slow, Verdict::Slower),
        (&right, &right, Verdict::Tie),
    ] {
        let m = s.measurer.rematch(incumbent, challenger).unwrap();
        assert_eq!(m.verdict, verdict, "{m:?}");
        assert!((0.0..=1.0).contains(&m.confidence), "{m:?}");
        assert!(!m.incumbent.samples.is_empty() && !m.challenger.samples.is_empty(), "{m:?}");
        let faster = m.challenger.median().0 < m.incumbent.median().0;
        match verdict {
            Verdict::Faster => assert!(faster && m.ratio < 0.9, "{m:?}"),
            Verdict::Slower => assert!(!faster && m.ratio > 1.1, "{m:?}"),
            Verdict::Tie => assert!((m.ratio - 1.0).abs() < 0.5, "{m:?}"),
        }
    }
}

fn a_contender_that_fails_is_named(s: &mut Subject) {
    if !s.times {
        return;
    }
    let (right, wrong) = (s.job(Kind::Right, 50), s.job(Kind::Wrong, 50));
    for (incumbent, rival, is_challenger) in [(&right, &wrong, true), (&wrong, &right, false)] {
        match s.measurer.rematch(incumbent, rival).unwrap_err() {
            MeasurerError::Contender { challenger, detail } => {
                assert_eq!(challenger, is_challenger, "{detail}");
                assert!(!detail.is_empty());
            }
            e => panic!("{e}"),
        }
    }
    assert!(s.is_measured(Kind::Right, 51));
}

fn tasks_can_be_returned_to(s: &mut Subject) {
    for round in 0..2 {
        s.measurer.set_task(&s.other).unwrap();
        assert!(s.is_measured(Kind::Other, round));
        s.set_task();
        assert!(s.is_measured(Kind::Right, 60 + round));
    }
    // Setting the present one again changes nothing.
    s.set_task();
    assert!(s.is_measured(Kind::Right, 62));
}

fn a_missing_source_is_an_error_where_one_is_needed(s: &mut Subject) {
    let job = Job::without_source(name(Kind::Right, 70));
    let needed = s.measurer.needs_source();
    match s.results(std::slice::from_ref(&job)) {
        Ok(results) => assert!(!needed && s.is_as_expected(&results[0].outcome), "{results:?}"),
        Err(e) => {
            assert!(needed);
            assert_eq!(e, MeasurerError::NoSource { candidate: "suite: Right=70".into() });
            if s.times {
                assert_eq!(s.measurer.rematch(&job, &job).unwrap_err(), e);
            }
        }
    }
    assert!(s.is_measured(Kind::Right, 71));
}

fn another_version_is_refused(s: &mut Subject) {
    let newer = MESSAGE_VERSION + 1;
    let requests = format!(
        "{{\"version\":{newer},\"message\":\"stop\"}}\n\
         {{\"version\":{MESSAGE_VERSION},\"message\":{{\"run\":[{{\"version\":{newer}}}]}}}}\n\
         no message\n\
         {{\"version\":{MESSAGE_VERSION},\"message\":{{\"run\":[]}}}}\n"
    );
    let mut replies = Vec::new();
    serve(&mut *s.measurer, requests.as_bytes(), &mut replies).unwrap();
    let replies = String::from_utf8(replies).unwrap();
    let replies: Vec<&str> = replies.lines().collect();
    assert_eq!(replies.len(), 5, "{replies:?}");
    assert!(replies[0].contains("\"hello\""), "{replies:?}");
    let refused = format!("{{\"theirs\":{newer},\"ours\":{MESSAGE_VERSION}}}");
    assert!(replies[1].contains(&refused), "{replies:?}");
    for number in [newer, MESSAGE_VERSION] {
        assert!(replies[2].contains(&format!("version {number}")), "{replies:?}");
    }
    assert!(replies[3].contains("no message"), "{replies:?}");
    // The next request is answered all the same.
    assert!(replies[4].contains("\"error\":null"), "{replies:?}");
    assert!(s.is_measured(Kind::Right, 80));
}
