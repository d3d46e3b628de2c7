//! A phase of a session: which task next, what to try first, when it is over. The trials themselves
//! are made by [`run_trials`]; a challenger becomes a task's winner only after it was measured
//! interleaved with the incumbent ([`run_off`]).

use crate::base::clock::cpu_time;
use crate::base::error::Error;
use crate::input::user_input::tunable_matches;
use crate::predict::forecast::proposals;
use crate::predict::general::Effort;
use crate::predict::transfer::{FIRST, LATER, TransferSource, guesses, transfer_sources};
use crate::target::roof::Roof;
use crate::target::target_context::TargetContext;
use crate::task::event::{Event, Listen};
use crate::task::task_kernels::TaskKernels;
use crate::task::task_state::{TaskState, name_of};
use crate::task::trials::{Limits, Rounds, TrialRecorder, run_trials};
use crate::tuning::phase_context::{PhaseContext, PhaseRecorder};
use crate::tuning::report::StopReason;
use crate::tuning::runoff::{host, next_rival, run_off};
use crate::tuning::session_context::SessionContext;
use crate::tuning::settings::Budget;
use crate::tuning::shard::{Work, weight};
use crate::tuning::task_search::{Found, Guided, Tally, TaskSearch};
use squall_core::{
    Candidate, CpuCost, Measurer, MeasurerError, Outcome, RecordKind, Task, TaskId, TaskSetup,
    Trial,
};
use squall_frontend::UserKernel;
use squall_predict::PredictError;
use squall_predict::task::TaskModel;
use squall_search::{Allocator, FIRST_TRIALS, Setting, TaskWeight};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The share of a task's expected trials that is a predictor's, and its bounds.
const PREDICTED: (usize, usize, usize) = (6, 4, 16);

/// What a phase is asked for.
pub(crate) struct PhaseRequest<'t> {
    pub work: Work<'t>,
    /// The user's own kernels, of which some tasks may be.
    pub own: &'t [UserKernel],
    /// Whether the machine's roof is measured first.
    pub roof: bool,
    /// Whether the report leaves out the tasks that got no trial.
    pub only_tried: bool,
}

/// How a phase ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseEnd {
    pub stop: StopReason,
    /// The trials that it made.
    pub trials: u64,
}

/// An open measurer. Each phase has one of its own, so that no process of it disturbs what else is
/// timed between phases.
pub(crate) struct OpenMeasurer {
    /// When it began to be opened, with which its phase begins.
    start: Instant,
    pub roof: Option<Roof>,
    measurer: Box<dyn Measurer>,
}

impl OpenMeasurer {
    /// Opens one, after the roof was measured where that is asked for.
    pub fn new(at: &TargetContext, roof: bool) -> Result<OpenMeasurer, Error> {
        let start = Instant::now();
        let is_wanted = roof && at.is_timed();
        let roof = if is_wanted { Some(at.roof()?) } else { None };
        Ok(OpenMeasurer { start, roof, measurer: at.measurer()? })
    }
}

/// A phase at work.
pub(crate) struct Phase<'p> {
    own: &'p [UserKernel],
    model: Option<&'p TaskModel>,
    sources: Vec<TransferSource>,
    measurer: Box<dyn Measurer>,
    context: PhaseContext<'p>,
}

impl<'p> Phase<'p> {
    /// A phase of a session.
    pub fn new(
        session: &'p SessionContext<'p>,
        request: &PhaseRequest<'p>,
        open: OpenMeasurer,
        listen: &'p mut Listen<'p>,
    ) -> Result<Phase<'p>, Error> {
        let OpenMeasurer { start, roof, measurer } = open;
        let Work { tasks, seed, budget } = &request.work;
        let ours: Vec<TaskId> = tasks.iter().map(|t| t.id).collect();
        let sources = match session.request.transfer {
            true => transfer_sources(session.recorder.store, &session.at.place, &ours)?,
            false => Vec::new(),
        };
        // Shared time keeps a little back for the rematches at its end.
        let search_share = if tasks.len() > 1 { 0.92 } else { 0.98 };
        let deadline = budget.seconds.map(|s| start + Duration::from_secs_f64(s * search_share));
        let context = PhaseContext {
            session,
            budget: *budget,
            roof,
            tasks: tasks.len(),
            seed: session.request.seed ^ seed,
            start,
            searching: None,
            deadline,
            made: 0,
            opening: measurer.overhead(),
            listen,
        };
        Ok(Phase { own: request.own, model: session.model()?, sources, measurer, context })
    }

    /// Makes trials until the phase is over, and the rematches that are due then: what was found
    /// for each task.
    pub fn run(mut self, tasks: &[&Task]) -> Result<(Vec<Found>, PhaseEnd), Error> {
        let (searches, stop) = self.search(tasks)?;
        let found = self.settle_all(tasks, searches, stop)?;
        Ok((found, PhaseEnd { stop, trials: self.context.made }))
    }

    /// Makes trials until the phase is over: of each task what it had of them, and why.
    fn search<'t>(
        &mut self,
        tasks: &[&'t Task],
    ) -> Result<(Vec<Option<TaskSearch<'t>>>, StopReason), Error> {
        let session = self.context.session;
        let weights: Vec<TaskWeight> = tasks.iter().map(|t| weight(t)).collect();
        let mut allocator = Allocator::new(&weights, self.context.seed);
        let mut searches: Vec<Option<TaskSearch>> = tasks.iter().map(|_| None).collect();
        let mut open = vec![true; tasks.len()];
        let shared = self.context.budget.is_shared();
        let mut new = 0;
        for task in tasks {
            let known = session.known(task)?;
            let trials = known.iter().filter(|r| r.kind == RecordKind::Trial).count();
            new += usize::from(trials < FIRST_TRIALS);
        }
        if let Some(text) = too_small(&self.context.budget, new) {
            (self.context.listen)(Event::Trouble(text));
        }
        loop {
            if let Some(reason) = self.over() {
                return Ok((searches, reason));
            }
            let new: Vec<bool> = (0..tasks.len()).map(|i| allocator.is_new(i)).collect();
            let next = if shared { allocator.next(&open) } else { open.iter().position(|o| *o) };
            let Some(i) = next else {
                let reason = common_reason(&searches);
                return Ok((searches, reason));
            };
            let before = Instant::now();
            let search = match searches[i].take() {
                Some(search) => search,
                None => match self.begin(tasks[i]) {
                    Err(e) if e.is_stop() => return Ok((searches, StopReason::Interrupted)),
                    begun => begun?,
                },
            };
            let guesses = match session.request.transfer {
                true => guesses(
                    &search.state,
                    searches.iter().flatten().map(|s| &s.state),
                    &self.sources,
                    if search.state.tried.is_empty() { FIRST } else { LATER },
                ),
                false => Vec::new(),
            };
            // One task that has the budget to itself needs no turns.
            let is_first = shared && tasks.len() > 1 && new[i];
            let most = session.batch();
            let most = if is_first { FIRST_TRIALS.min(most) } else { most };
            let search = searches[i].insert(search);
            let made = match self.batch(search, guesses, most, before) {
                Err(e) if e.is_stop() => return Ok((searches, StopReason::Interrupted)),
                made => made?,
            };
            search.spent += before.elapsed().as_secs_f64();
            allocator.report(i, made, search.tally.best);
            open[i] = search.closed.is_none();
            if !open[i] && !shared {
                match self.settle(search) {
                    Err(e) if e.is_stop() => return Ok((searches, StopReason::Interrupted)),
                    settled => settled?,
                }
            }
        }
    }

    /// What was found for all tasks, after the rematches that are still due.
    fn settle_all(
        &mut self,
        tasks: &[&Task],
        searches: Vec<Option<TaskSearch>>,
        stop: StopReason,
    ) -> Result<Vec<Found>, Error> {
        let budget = self.context.budget;
        let end = budget.seconds.map(|s| self.context.start + Duration::from_secs_f64(s));
        let mut all = Vec::new();
        for (task, search) in tasks.iter().zip(searches) {
            all.push(match search {
                Some(mut search) => {
                    let unsettled = budget.is_shared() || search.closed.is_none();
                    if unsettled
                        && stop != StopReason::Interrupted
                        && end.is_none_or(|e| Instant::now() < e)
                    {
                        match self.settle(&mut search) {
                            // The trials stand; the report says that they were interrupted.
                            Err(e) if e.is_stop() => {}
                            settled => settled?,
                        }
                    }
                    search.finish(stop)
                }
                None => self.context.session.recall(task, self.context.roof.as_ref(), stop)?,
            });
        }
        Ok(all)
    }

    /// Whether the phase as a whole is over.
    fn over(&self) -> Option<StopReason> {
        if self.context.session.stop.load(Ordering::Relaxed) {
            Some(StopReason::Interrupted)
        } else if self.context.deadline.is_some_and(|d| Instant::now() >= d) {
            Some(StopReason::Seconds)
        } else if self.context.budget.trials.is_some_and(|n| self.context.made >= n) {
            Some(StopReason::Trials)
        } else {
            None
        }
    }

    /// Sets a task up: what is known of it, its spaces, its baseline's time.
    fn begin<'t>(&mut self, task: &'t Task) -> Result<TaskSearch<'t>, Error> {
        let clock = cpu_time();
        let session = self.context.session;
        let target = &session.at.target;
        let mut kernels = TaskKernels::new(task, self.own, target)?;
        if let Some(pattern) = session.request.sketch
            && kernels.tunables.iter().any(|t| tunable_matches(pattern, t.name()))
        {
            kernels.search_only(&|name| tunable_matches(pattern, name));
        }
        let kernels = kernels.with_roof(task, target, self.context.roof.as_ref());
        let mut state = TaskState::new(task, kernels);
        let history = state.learn(session.known(task)?);
        if let n @ 1.. = state.doubts().count() {
            (self.context.listen)(Event::Trouble(format!(
                "{n} stored times of {} are below {}, which nothing here reaches: they count once \
                 their candidates were measured again",
                task.name, state.kernels.least
            )));
        }
        let seed = self.context.seed ^ task.id.number();
        let left = self.context.budget.expected_trials(self.context.tasks);
        let trials = history.known as usize + left;
        let mut setting = Setting::new(state.kernels.tunables.clone(), seed, trials);
        let mut predicted = Vec::new();
        // The openings of algorithms are over where half of the trials were made.
        let opens = history.known == 0 || (history.known as usize) < left;
        if let Some(general) = session.general.as_ref().filter(|_| opens) {
            let effort = if self.context.tasks > 1 { Effort::Little } else { Effort::Much };
            let tunables = &setting.tunables;
            let outlook = general.outlook(task, tunables, target, effort, FIRST_TRIALS);
            setting.expected = outlook.algorithms;
            // What it would try first is worth nothing beside what was tried.
            if history.known == 0 {
                predicted = outlook.candidates;
            }
        }
        let mut search = TaskSearch {
            setup: state.setup(session.request.seed),
            state,
            strategy: (session.strategy.make)(&setting),
            predicted,
            tally: Tally::default(),
            closed: None,
            spent: 0.0,
            search: 0.0,
        };
        search.tally.learn(&history);
        search.crown();
        search.strategy.tell(&history.trials);
        if let Some(model) = self.model {
            self.foretell(&mut search, model)?;
        }
        search.search += cpu_time() - clock;
        search.tally.cost += std::mem::take(&mut self.context.opening);
        let (known, untuned) = (search.tally.known, search.tally.untuned);
        (self.context.listen)(Event::Task { task, known, untuned });
        match self.set_task(&search.setup, &mut search.tally) {
            Ok(()) if untuned.is_none() && session.at.is_timed() => {
                self.measure_untuned(&mut search)?
            }
            Ok(()) => {}
            Err(Error::Measure(e @ MeasurerError::Reference(_))) => {
                let text = format!("{} cannot be measured: {e}", task.name);
                (self.context.listen)(Event::Trouble(text));
                search.closed = Some(StopReason::Unmeasurable);
            }
            Err(e) => return Err(e),
        }
        Ok(search)
    }

    /// Asks a predictor what to try first; what was tried before does not count as asked.
    fn foretell(&mut self, search: &mut TaskSearch, model: &TaskModel) -> Result<(), Error> {
        let (share, least, most) = PREDICTED;
        let expected = self.context.budget.expected_trials(self.context.tasks);
        let n = (expected / share).clamp(least, most);
        let (state, device) = (&search.state, self.context.session.at.device_name());
        match proposals(model, state.task, &state.kernels.tunables, &device, n) {
            Ok(found) => {
                let untried = |c: &Candidate| !state.tried.contains(&name_of(c));
                search.predicted = found.into_iter().map(|p| p.candidate).filter(untried).collect();
            }
            Err(e @ PredictError::Kind { .. }) => {
                (self.context.listen)(Event::Trouble(format!(
                    "{} is searched without the predictor: {e}",
                    state.task.name
                )));
            }
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Makes a task the measurer's, and books what that costs.
    fn set_task(&mut self, setup: &TaskSetup, tally: &mut Tally) -> Result<(), Error> {
        let before = self.measurer.overhead();
        let done = self.measurer.set_task(setup);
        let after = self.measurer.overhead();
        tally.cost += CpuCost {
            build: after.build - before.build,
            measure: after.measure - before.measure,
            search: 0.0,
        };
        Ok(done?)
    }

    /// Times the baseline, from which every gain is counted.
    fn measure_untuned(&mut self, search: &mut TaskSearch) -> Result<(), Error> {
        let TaskSearch { state, tally, .. } = search;
        let stop = self.context.session.stop;
        let plain = state.kernels.plain.clone();
        let candidate =
            Candidate { tunable: plain.name().into(), configuration: plain.space().nth(0) };
        let mut once = Rounds::new(vec![candidate], 1);
        let symbol = state.symbol.clone();
        let mut recorder = UntunedRecorder { context: &mut self.context, state, tally };
        let limits = Limits { symbol: &symbol, ..Limits::new(1, 1, stop) };
        run_trials(&mut *self.measurer, &[plain], &mut once, &mut recorder, &limits)?;
        Ok(())
    }

    /// Tries the guesses and a few candidates that the strategy is asked for, `most` in all; how
    /// many trials were made.
    fn batch(
        &mut self,
        search: &mut TaskSearch,
        guesses: Vec<Candidate>,
        most: usize,
        since: Instant,
    ) -> Result<usize, Error> {
        let session = self.context.session;
        let b = &self.context.budget;
        let left = b.task_trials.map(|n| n.saturating_sub(search.tally.trials)).into_iter();
        let left = left
            .chain(b.trials.map(|n| n.saturating_sub(self.context.made)))
            .min()
            .unwrap_or(u64::MAX)
            .min(most as u64) as usize;
        let task_end =
            b.task_seconds.map(|s| since + Duration::from_secs_f64((s - search.spent).max(0.0)));
        if left == 0 {
            search.closed.get_or_insert(StopReason::Trials);
        } else if task_end.is_some_and(|e| Instant::now() >= e) {
            search.closed.get_or_insert(StopReason::Seconds);
        }
        if search.closed.is_some() {
            return Ok(0);
        }
        let TaskSearch { state, setup, strategy, predicted, tally, .. } = search;
        self.set_task(setup, tally)?;
        self.context.searching.get_or_insert_with(Instant::now);
        let symbol = state.symbol.clone();
        let limits = Limits {
            asks: 1,
            symbol: &symbol,
            end: self.context.deadline.into_iter().chain(task_end).min(),
            search: search.search,
            ..Limits::new(left, left, session.stop)
        };
        let tunables = state.kernels.tunables.clone();
        let is_general = session.general.is_some();
        let mut guided = Guided::new(&mut **strategy, predicted, guesses, is_general);
        let mut recorder = PhaseRecorder { context: &mut self.context, state, tally };
        let ran = run_trials(&mut *self.measurer, &tunables, &mut guided, &mut recorder, &limits)?;
        tally.predicted += guided.heard;
        search.search = ran.search;
        if ran.exhausted {
            search.closed = Some(StopReason::Exhausted);
        }
        Ok(ran.trials)
    }

    /// Lets the best candidates meet the incumbent, interleaved; the one that holds the task then
    /// is its winner.
    fn settle(&mut self, search: &mut TaskSearch) -> Result<(), Error> {
        if search.tally.trials == 0 || search.closed == Some(StopReason::Unmeasurable) {
            return Ok(());
        }
        let TaskSearch { state, setup, tally, .. } = search;
        let incumbent = host(state);
        let rival = incumbent.as_ref().and_then(|i| next_rival(state, i, &[]));
        if rival.is_some() || state.doubts().next().is_some() {
            self.set_task(setup, tally)?;
        }
        let session = self.context.session;
        let context = &mut self.context;
        run_off(&mut *self.measurer, state, &session.recorder, session.stop, &mut |state, met| {
            context.meeting(state, tally, met);
        })?;
        search.crown();
        Ok(())
    }
}

/// Records the baseline's time.
struct UntunedRecorder<'r, 't, 'p> {
    context: &'r mut PhaseContext<'p>,
    state: &'r mut TaskState<'t>,
    tally: &'r mut Tally,
}

impl TrialRecorder for UntunedRecorder<'_, '_, '_> {
    fn record(&mut self, trial: Trial, _: f64) -> Result<Trial, Error> {
        self.tally.cost += trial.cost;
        let (name, task) = (name_of(&trial.candidate), self.state.task);
        let baseline = crate::task::task_kernels::baseline(&task.workload);
        let trouble = match &trial.outcome {
            Outcome::Measured(m) => {
                self.tally.untuned = Some(m.median());
                self.tally.improve(&name, m.median());
                self.state.stand(name.clone(), m.median());
                None
            }
            Outcome::Right { .. } => None,
            Outcome::Infeasible(why) => Some(format!("{}: no {baseline}: {why}", task.name)),
            other => Some(format!("{}: its {baseline} failed: {other:?}", task.name)),
        };
        if let Some(text) = trouble {
            (self.context.listen)(Event::Trouble(text));
        }
        // A baseline that cannot be made has nothing to record.
        if !matches!(trial.outcome, Outcome::Infeasible(_)) {
            let (outcome, cost) = (trial.outcome.clone(), trial.cost);
            self.context.session.recorder.keep(task, RecordKind::Untuned, &name, outcome, cost)?;
        }
        Ok(trial)
    }
}

/// What the user is told where a budget that tasks share is too small for the first trials of those
/// that had none before.
fn too_small(budget: &Budget, tasks: usize) -> Option<String> {
    if tasks == 0 {
        return None;
    }
    let wanted = (FIRST_TRIALS * tasks) as u64;
    let (spent, are) = match (budget.trials, budget.seconds) {
        (Some(trials), _) if trials < wanted => (format!("{trials} trials"), "are"),
        (_, Some(seconds)) if budget.expected_trials(tasks) < FIRST_TRIALS => {
            (format!("{seconds:.0} seconds"), "are probably")
        }
        _ => return None,
    };
    budget.is_shared().then(|| {
        format!(
            "{spent} {are} too few for {tasks} tasks, of which each needs {FIRST_TRIALS} trials \
             ({wanted} in all): they go to the tasks that are expected to take most of the time"
        )
    })
}

/// Why nothing is left to do: what most tasks ended for.
fn common_reason(searches: &[Option<TaskSearch>]) -> StopReason {
    let reasons: Vec<StopReason> = searches.iter().flatten().filter_map(|s| s.closed).collect();
    let count = |r: StopReason| reasons.iter().filter(|x| **x == r).count();
    reasons.iter().copied().max_by_key(|r| count(*r)).unwrap_or(StopReason::Exhausted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_too_small_for_every_task_is_said_beforehand() {
        let none = Budget { task_trials: None, task_seconds: None, trials: None, seconds: None };
        let trials = |n| Budget { trials: Some(n), ..none };
        let seconds = |s| Budget { seconds: Some(s), ..none };
        let said = too_small(&trials(199), 50).unwrap();
        assert!(said.contains("199 trials are too few for 50 tasks"), "{said}");
        assert!(said.contains("200 in all"), "{said}");
        assert_eq!(too_small(&trials(200), 50), None);
        let said = too_small(&seconds(20.0), 50).unwrap();
        assert!(said.contains("20 seconds are probably too few"), "{said}");
        assert_eq!(too_small(&seconds(600.0), 50), None);
        // Each task has its own.
        assert_eq!(too_small(&Budget { task_trials: Some(1), ..none }, 50), None);
    }
}
