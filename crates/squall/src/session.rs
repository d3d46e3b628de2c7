//! The loop: which task next, what to try, build and run it, keep it, learn from it.
//!
//! A trial is appended to the store before anybody hears of it. A challenger becomes a task's
//! winner only after it was measured interleaved with the incumbent ([`run_off`]).

use crate::aim::Aimed;
use crate::desk::{Desk, Idle, name_of, realize};
use crate::error::Error;
use crate::event::{Event, Listen, Progress};
use crate::forecast::{load, proposals};
use crate::input::{Input, name_matches};
use crate::kin::{FIRST, LATER, elders, guesses};
use crate::kit::Kit;
use crate::report::{Report, Roof, StopReason, UntunedNode};
use crate::runoff::{Scribe, next_rival, run_off};
use crate::settings::{Caches, Settings};
use rustix::time::{ClockId, clock_gettime};
use squall_core::{Candidate, CpuCost, Outcome, Record, RecordKind, Target, Task, TaskId, Trial};
use squall_core::{CandidateText, Job, Measurer, TaskSetup};
use squall_core::{MeasurerError as MeasureError, Verdict};
use squall_predict::task::TaskModel;
use squall_predict::{PredictError, Predictor};
use squall_records::Store;
use squall_search::{Allocator, DEFAULT, Setting, StrategyInfo, TaskWeight, strategies};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Trials between two decisions: enough for a cost model to learn from, few enough to turn soon.
pub(crate) const BATCH: usize = 16;
/// The same where all cores but one compile: twice as many as there are, so that none waits for the
/// slowest.
const BATCH_MOST: usize = 32;
/// The share of a task's expected trials that is a predictor's, and its bounds.
const PREDICTED: (usize, usize, usize) = (6, 4, 16);
/// Entry point of the kernels measured here; each is a library of its own.
pub(crate) const SYMBOL: &str = "squall_kernel";
/// After so many trials of a task without a single time, the user hears of it.
const TROUBLE: u64 = 32;

/// A session on one device with one store.
pub struct Session<'a> {
    settings: &'a Settings,
    store: &'a Store,
    stop: &'a AtomicBool,
}

/// The machine of a session.
struct Bench<'l, 'e> {
    lab: squall_measure::LocalMeasurer,
    hall: Hall<'l, 'e>,
}

/// What is needed while the laboratory is busy.
struct Hall<'l, 'e> {
    target: Target,
    device: String,
    toolchain: String,
    roof: Option<Roof>,
    strategy: &'static StrategyInfo,
    tasks: usize,
    batch: usize,
    start: Instant,
    /// When the first trials were asked for: what came before says nothing of their rate.
    searching: Option<Instant>,
    deadline: Option<Instant>,
    made: u64,
    /// What opening the laboratory cost; the first task pays.
    opening: CpuCost,
    listen: &'l mut Listen<'e>,
}

impl<'a> Session<'a> {
    /// A session that ends early, with what it has, when `stop` is set.
    pub fn new(settings: &'a Settings, store: &'a Store, stop: &'a AtomicBool) -> Session<'a> {
        Session { settings, store, stop }
    }

    /// Tunes the input's tasks until the budget ends.
    pub fn tune(&self, input: &Input, listen: &mut Listen<'_>) -> Result<Report, Error> {
        let tasks = input.select(self.settings.only.as_deref())?;
        let started = now();
        // A file that is no predictor shows before the machine is looked at.
        let predictor = self.settings.predictor.as_deref().map(load).transpose()?;
        let model = predictor.as_ref().map(Predictor::tasks).transpose()?;
        let mut bench = self.bench(tasks.len(), listen)?;
        if let Some(learned) = model.map(|m| &m.facts().device).filter(|d| **d != bench.hall.device)
        {
            return Err(PredictError::Device {
                learned: learned.clone(),
                asked: bench.hall.device.clone(),
            }
            .into());
        }
        let facts: Vec<TaskWeight> =
            tasks.iter().map(|t| TaskWeight { count: t.count, flop: t.workload.flop() }).collect();
        let mut allocator = Allocator::new(&facts, self.settings.seed);
        let mut desks: Vec<Option<Desk>> = tasks.iter().map(|_| None).collect();
        let mut open = vec![true; tasks.len()];
        let elders = if self.settings.transfer {
            let ours: Vec<TaskId> = tasks.iter().map(|t| t.id).collect();
            elders(self.store, &bench.hall.device, &bench.hall.toolchain, &ours)?
        } else {
            Vec::new()
        };
        let stop = loop {
            if let Some(reason) = self.over(&bench) {
                break reason;
            }
            let shared = self.settings.budget.is_shared();
            let Some(i) =
                (if shared { allocator.next(&open) } else { open.iter().position(|o| *o) })
            else {
                break common_reason(&desks);
            };
            let before = Instant::now();
            let desk = match desks[i].take() {
                Some(desk) => desk,
                None => self.open(&mut bench, input, tasks[i], model)?,
            };
            let guesses = match self.settings.transfer {
                true => guesses(
                    &desk,
                    desks.iter().flatten(),
                    &elders,
                    if desk.tried.is_empty() { FIRST } else { LATER },
                ),
                false => Vec::new(),
            };
            let desk = desks[i].insert(desk);
            let made = self.batch(&mut bench, desk, guesses, before)?;
            desk.spent += before.elapsed().as_secs_f64();
            allocator.report(i, made, desk.report.best);
            open[i] = desk.closed.is_none();
            if !open[i] && !shared {
                self.settle(&mut bench, desk)?;
            }
        };
        let end =
            self.settings.budget.seconds.map(|s| bench.hall.start + Duration::from_secs_f64(s));
        let mut reports = Vec::new();
        for (task, desk) in tasks.iter().zip(desks) {
            reports.push(match desk {
                Some(mut desk) => {
                    let unsettled = self.settings.budget.is_shared() || desk.closed.is_none();
                    if unsettled
                        && stop != StopReason::Interrupted
                        && end.is_none_or(|e| Instant::now() < e)
                    {
                        self.settle(&mut bench, &mut desk)?;
                    }
                    desk.finish(stop)
                }
                None => self.recall(&bench, task)?.finish(stop),
            });
        }
        Ok(Report {
            input: input.name.clone(),
            threads: self.settings.threads,
            strategy: bench.hall.strategy.name.into(),
            seed: self.settings.seed,
            started,
            seconds: bench.hall.start.elapsed().as_secs_f64(),
            stop,
            store: self.store.path().to_path_buf(),
            tasks: reports,
            untuned: input
                .untuned
                .iter()
                .map(|u| UntunedNode {
                    node: u.node.clone(),
                    op: u.op.clone(),
                    reason: u.reason.clone(),
                })
                .collect(),
            device: bench.hall.device,
            toolchain: bench.hall.toolchain,
            roof: bench.hall.roof,
        })
    }

    /// Looks at the machine and opens the laboratory.
    fn bench<'l, 'e>(
        &self,
        tasks: usize,
        listen: &'l mut Listen<'e>,
    ) -> Result<Bench<'l, 'e>, Error> {
        let strategy =
            strategy(self.settings.strategy.as_deref().unwrap_or(DEFAULT), strategies())?;
        let start = Instant::now();
        let mut aimed = Aimed::at(self.settings.aim, self.settings.threads)?;
        if self.settings.caches == Caches::Cold {
            aimed = aimed.cold();
        }
        let roof = if self.settings.roof { Some(aimed.roof()?) } else { None };
        let lab = aimed.lab()?;
        let Aimed { id, tools, target, gpus, .. } = aimed;
        listen(Event::Opened {
            device: &id,
            toolchain: &tools,
            gpus: gpus.len(),
            roof: roof.as_ref(),
        });
        // Shared time keeps a little back for the rematches at its end.
        let search_share = if tasks > 1 { 0.92 } else { 0.98 };
        let deadline =
            self.settings.budget.seconds.map(|s| start + Duration::from_secs_f64(s * search_share));
        let opening = lab.overhead();
        Ok(Bench {
            lab,
            hall: Hall {
                target,
                device: id,
                toolchain: tools,
                roof,
                strategy,
                tasks,
                batch: if gpus.is_empty() { BATCH } else { BATCH_MOST * gpus.len() },
                start,
                searching: None,
                deadline,
                made: 0,
                opening,
                listen,
            },
        })
    }

    /// Whether the session as a whole is over.
    fn over(&self, bench: &Bench) -> Option<StopReason> {
        if self.stop.load(Ordering::Relaxed) {
            Some(StopReason::Interrupted)
        } else if bench.hall.deadline.is_some_and(|d| Instant::now() >= d) {
            Some(StopReason::Seconds)
        } else if self.settings.budget.trials.is_some_and(|n| bench.hall.made >= n) {
            Some(StopReason::Trials)
        } else {
            None
        }
    }

    /// Sets a task up: what is known of it, its spaces, its plain loops' time.
    fn open<'t>(
        &self,
        bench: &mut Bench,
        input: &Input,
        task: &'t Task,
        model: Option<&TaskModel>,
    ) -> Result<Desk<'t>, Error> {
        let clock = cpu_time();
        let mut kit = input.kit(task, &bench.hall.target)?;
        if let Some(pattern) = &self.settings.sketch
            && kit.tunables.iter().any(|t| name_matches(pattern, t.name()))
        {
            kit.tunables.retain(|t| name_matches(pattern, t.name()));
        }
        let known = self.store.trials(task.id, &bench.hall.device, &bench.hall.toolchain)?;
        let count = known.iter().filter(|r| r.kind == RecordKind::Trial).count();
        let setting = Setting {
            tunables: kit.tunables.clone(),
            seed: self.settings.seed ^ task.id.number(),
            trials: count + self.expected_trials(bench.hall.tasks),
        };
        let strategy = (bench.hall.strategy.make)(&setting);
        let mut desk = Desk::new(task, kit, strategy);
        desk.learn(known);
        if let Some(model) = model {
            self.foretell(&mut bench.hall, &mut desk, model)?;
        }
        desk.search += cpu_time() - clock;
        desk.report.cost += std::mem::take(&mut bench.hall.opening);
        let plain = desk.report.untuned;
        (bench.hall.listen)(Event::Task { task, known: desk.report.known, untuned: plain });
        match self.set_task(bench, &mut desk) {
            Ok(()) if plain.is_none() => self.measure_plain(bench, &mut desk)?,
            Ok(()) => {}
            Err(Error::Measure(e @ MeasureError::Reference(_))) => {
                (bench.hall.listen)(Event::Trouble(format!(
                    "{} cannot be measured: {e}",
                    task.name
                )));
                desk.closed = Some(StopReason::Unmeasurable);
            }
            Err(e) => return Err(e),
        }
        Ok(desk)
    }

    /// Asks a predictor what to try first; what was tried before does not count as asked.
    fn foretell(&self, hall: &mut Hall, desk: &mut Desk, model: &TaskModel) -> Result<(), Error> {
        let (share, least, most) = PREDICTED;
        let n = (self.expected_trials(hall.tasks) / share).clamp(least, most);
        match proposals(model, desk.task, &desk.tunables, &hall.device, n) {
            Ok(found) => {
                let untried = |c: &Candidate| !desk.tried.contains(&name_of(c));
                desk.predicted = found.into_iter().map(|p| p.candidate).filter(untried).collect();
            }
            Err(e @ PredictError::Kind { .. }) => {
                (hall.listen)(Event::Trouble(format!(
                    "{} is searched without the predictor: {e}",
                    desk.task.name
                )));
            }
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// What is known of a task that never had its turn.
    fn recall<'t>(&self, bench: &Bench, task: &'t Task) -> Result<Desk<'t>, Error> {
        // Reporting needs no sketches, and those of a large model take minutes.
        let mut desk = Desk::new(task, Kit::empty(task, &bench.hall.target), Box::new(Idle));
        desk.learn(self.store.trials(task.id, &bench.hall.device, &bench.hall.toolchain)?);
        Ok(desk)
    }

    fn expected_trials(&self, tasks: usize) -> usize {
        let b = &self.settings.budget;
        // Where time is the limit, half a second a trial is a fair guess.
        let seconds = b.task_seconds.or(b.seconds.map(|s| s / tasks as f64));
        let share = b.trials.map(|n| n.div_ceil(tasks as u64));
        b.task_trials.or(share).or(seconds.map(|s| (s * 2.0) as u64)).unwrap_or(1000).max(1)
            as usize
    }

    /// Makes the desk's task the laboratory's, and books what that costs.
    fn set_task(&self, bench: &mut Bench, desk: &mut Desk) -> Result<(), Error> {
        let before = bench.lab.overhead();
        let (workload, reference) = (desk.task.workload.clone(), desk.reference.clone());
        let done = bench.lab.set_task(&TaskSetup::new(workload, reference, self.settings.seed));
        let after = bench.lab.overhead();
        desk.report.cost += CpuCost {
            build: after.build - before.build,
            measure: after.measure - before.measure,
            search: 0.0,
        };
        Ok(done?)
    }

    /// Times the baseline, from which every gain is counted.
    fn measure_plain(&self, bench: &mut Bench, desk: &mut Desk) -> Result<(), Error> {
        let configuration = desk.plain.space().nth(0);
        let source = match desk.plain.realize(&configuration, SYMBOL) {
            Ok(source) => source,
            Err(e) => {
                (bench.hall.listen)(Event::Trouble(format!(
                    "{}: no {}: {e}",
                    desk.task.name, desk.report.baseline
                )));
                return Ok(());
            }
        };
        let mut found = None;
        let job =
            Job::new(CandidateText::new(desk.plain.name(), configuration.to_string()), source);
        bench.lab.run(&[job], self.stop, &mut |r| found = Some((r.outcome, r.cost)))?;
        let Some((outcome, cost)) = found else { return Ok(()) };
        desk.report.cost += cost;
        match &outcome {
            Outcome::Measured(m) => {
                desk.report.untuned = Some(m.median());
                desk.stand((desk.plain.name().into(), configuration.to_string()), m.median());
            }
            other => (bench.hall.listen)(Event::Trouble(format!(
                "{}: its {} failed: {other:?}",
                desk.task.name, desk.report.baseline
            ))),
        }
        let record = self.record(
            &bench.hall,
            desk.task,
            RecordKind::Untuned,
            (desk.plain.name(), &configuration.to_string()),
            outcome,
            cost,
        );
        self.store.append(&record)?;
        Ok(())
    }

    /// Tries the guesses and a few candidates that the strategy is asked for; how many trials were
    /// made.
    fn batch(
        &self,
        bench: &mut Bench,
        desk: &mut Desk,
        mut guesses: Vec<Candidate>,
        since: Instant,
    ) -> Result<usize, Error> {
        let b = &self.settings.budget;
        let left = b.task_trials.map(|n| n.saturating_sub(desk.report.trials)).into_iter();
        let left = left
            .chain(b.trials.map(|n| n.saturating_sub(bench.hall.made)))
            .min()
            .unwrap_or(u64::MAX)
            .min(bench.hall.batch as u64) as usize;
        let task_end =
            b.task_seconds.map(|s| since + Duration::from_secs_f64((s - desk.spent).max(0.0)));
        if left == 0 {
            desk.closed.get_or_insert(StopReason::Trials);
        } else if task_end.is_some_and(|e| Instant::now() >= e) {
            desk.closed.get_or_insert(StopReason::Seconds);
        }
        if desk.closed.is_some() {
            return Ok(0);
        }
        self.set_task(bench, desk)?;
        bench.hall.searching.get_or_insert_with(Instant::now);
        let clock = cpu_time();
        // Predictions come first and alone: the search begins from what becomes of them.
        let predicted: Vec<Candidate> =
            desk.predicted.drain(..desk.predicted.len().min(left)).collect();
        let mut asked = Vec::new();
        if predicted.is_empty() {
            guesses.truncate(left.div_ceil(2));
            asked = if left > guesses.len() {
                desk.strategy.ask(left - guesses.len())
            } else {
                Vec::new()
            };
            guesses.retain(|g| !asked.contains(g));
        } else {
            guesses.clone_from(&predicted);
        }
        if asked.is_empty() && guesses.is_empty() {
            desk.closed = Some(StopReason::Exhausted);
            return Ok(0);
        }
        let mut jobs = Vec::new();
        let mut candidates = Vec::new();
        let mut trials: Vec<Trial> = Vec::new();
        for candidate in guesses.into_iter().chain(asked) {
            match realize(&desk.tunables, &candidate, SYMBOL) {
                Ok(source) => {
                    jobs.push(Job::new(CandidateText::from(&candidate), source));
                    candidates.push(candidate);
                }
                Err(outcome) => trials.push(Trial { candidate, outcome, cost: CpuCost::default() }),
            }
        }
        desk.search += cpu_time() - clock;
        let each_search = std::mem::take(&mut desk.search) / (jobs.len() + trials.len()) as f64;
        let Bench { lab, hall } = bench;
        for t in &mut trials {
            t.cost.search = each_search;
            self.keep(hall, desk, t)?;
        }
        let end = hall.deadline.into_iter().chain(task_end).min();
        let (halt, done) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut failure = None;
        let ran = std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if self.stop.load(Ordering::Relaxed) || end.is_some_and(|e| Instant::now() >= e)
                    {
                        halt.store(true, Ordering::Relaxed);
                    }
                    std::thread::park_timeout(Duration::from_millis(20));
                }
            });
            let ran = lab.run(&jobs, &halt, &mut |result| {
                let (i, outcome, mut cost) = (result.job, result.outcome, result.cost);
                cost.search = each_search;
                let trial = Trial { candidate: candidates[i].clone(), outcome, cost };
                if let Err(e) = self.keep(hall, desk, &trial) {
                    failure.get_or_insert(e);
                    halt.store(true, Ordering::Relaxed);
                }
                trials.push(trial);
            });
            done.store(true, Ordering::Relaxed);
            watch.thread().unpark();
            ran
        });
        if let Some(e) = failure {
            return Err(e);
        }
        ran?;
        let clock = cpu_time();
        desk.strategy.tell(&trials);
        desk.search += cpu_time() - clock;
        desk.report.predicted +=
            trials.iter().filter(|t| predicted.contains(&t.candidate)).count() as u64;
        Ok(trials.len())
    }

    /// Appends a trial, then counts it and lets it be known.
    fn keep(&self, hall: &mut Hall, desk: &mut Desk, trial: &Trial) -> Result<(), Error> {
        let (tunable, configuration) =
            (trial.candidate.tunable.to_string(), trial.candidate.configuration.to_string());
        let record = self.record(
            hall,
            desk.task,
            RecordKind::Trial,
            (&tunable, &configuration),
            trial.outcome.clone(),
            trial.cost,
        );
        self.store.append(&record)?;
        hall.made += 1;
        desk.report.trials += 1;
        desk.report.cost += trial.cost;
        desk.note(&(tunable, configuration), &trial.outcome);
        let r = &desk.report;
        if r.trials == TROUBLE && r.failed == TROUBLE {
            let classes: Vec<String> = desk
                .failures
                .top(3)
                .iter()
                .map(|c| format!("{} ({}x): {}", c.stage, c.count, c.detail))
                .collect();
            (hall.listen)(Event::Trouble(format!(
                "the first {TROUBLE} trials of {} all failed; {}",
                r.name,
                classes.join("; ")
            )));
        }
        let progress = self.progress(hall, desk);
        (hall.listen)(Event::Trial { record: &record, progress: &progress });
        Ok(())
    }

    fn progress(&self, hall: &Hall, desk: &Desk) -> Progress {
        let b = &self.settings.budget;
        let r = &desk.report;
        let elapsed = hall.start.elapsed().as_secs_f64();
        let searching = hall.searching.map_or(0.0, |s| s.elapsed().as_secs_f64());
        let rate = hall.made as f64 / searching.max(1e-3);
        let planned = b.trials.or(b.task_trials.map(|n| n * hall.tasks as u64));
        let by_trials = planned.map(|p| p.saturating_sub(hall.made) as f64 / rate.max(1e-9));
        let all_seconds = b.seconds.or(b.task_seconds.map(|s| s * hall.tasks as f64));
        let by_time = all_seconds.map(|s| (s - elapsed).max(0.0));
        Progress {
            name: r.name.clone(),
            best: r.best,
            gflops: r.gflops().filter(|_| r.flop > 0),
            share: hall.roof.as_ref().and_then(|roof| r.share(roof)),
            trials: (hall.made, planned),
            rate,
            left: by_trials.into_iter().chain(by_time).reduce(f64::min),
        }
    }

    /// Lets the best candidates meet the incumbent, interleaved; whoever holds the task then is
    /// its winner.
    fn settle(&self, bench: &mut Bench, desk: &mut Desk) -> Result<(), Error> {
        if desk.report.trials == 0 || desk.closed == Some(StopReason::Unmeasurable) {
            return Ok(());
        }
        let rival =
            desk.standings.incumbent().and_then(|incumbent| next_rival(desk, incumbent, &[]));
        if rival.is_some() {
            self.set_task(bench, desk)?;
        }
        let Bench { lab, hall } = bench;
        let scribe = Scribe {
            store: self.store,
            device: &hall.device,
            toolchain: &hall.toolchain,
            seed: self.settings.seed,
        };
        let listen = &mut hall.listen;
        run_off(lab, desk, scribe, self.stop, &mut |task, m| {
            let faster = m.verdict == Verdict::Faster;
            listen(Event::Rematch {
                task,
                challenger: m.challenger.median(),
                incumbent: m.incumbent.median(),
                faster,
            });
        })
    }

    fn record(
        &self,
        hall: &Hall,
        task: &Task,
        kind: RecordKind,
        candidate: (&str, &str),
        outcome: Outcome,
        cost: CpuCost,
    ) -> Record {
        let scribe = Scribe {
            store: self.store,
            device: &hall.device,
            toolchain: &hall.toolchain,
            seed: self.settings.seed,
        };
        scribe.record(task, kind, candidate, outcome, cost)
    }
}

/// The strategy of this name among some.
pub(crate) fn strategy(
    name: &str,
    all: impl IntoIterator<Item = &'static StrategyInfo> + Clone,
) -> Result<&'static StrategyInfo, Error> {
    let known = || all.clone().into_iter().map(|s| s.name).collect::<Vec<_>>().join(", ");
    all.clone()
        .into_iter()
        .find(|s| s.is_called(name))
        .ok_or_else(|| Error::Strategy { name: name.into(), known: known() })
}

/// Why nothing is left to do: what most tasks ended for.
fn common_reason(desks: &[Option<Desk>]) -> StopReason {
    let reasons: Vec<StopReason> = desks.iter().flatten().filter_map(|d| d.closed).collect();
    let count = |r: StopReason| reasons.iter().filter(|x| **x == r).count();
    reasons.iter().copied().max_by_key(|r| count(*r)).unwrap_or(StopReason::Exhausted)
}

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// CPU seconds of this process, all its threads; compilers and kernels run in others.
pub(crate) fn cpu_time() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}
