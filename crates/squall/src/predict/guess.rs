//! Guesses: kernels for tasks of which the store has no usable record. Candidates come, in this
//! order, from the winner of the most similar tuned task, a predictor that the user names, the
//! general predictor inside the binary, and the cost formula. A guess is built and verified like
//! any trial before it is used. What was found is kept in a store in the user's cache folder, so
//! that the next run finds it there. `choose.rs` calls this.

use crate::base::error::Error;
use crate::base::recorder::Recorder;
use crate::predict::forecast::proposals;
use crate::predict::general::{Effort, GeneralPredictor, Predictors};
use crate::predict::transfer::{TransferSource, guesses, transfer_sources};
use crate::target::target_context::TargetContext;
use crate::task::event::{Event, Listen};
use crate::task::task_state::{TaskState, name_of};
use crate::task::trials::{Limits, Rounds, TrialRecorder, run_trials};
use squall_core::{
    Candidate, Measurer as _, MeasurerError, Record, RecordKind, Target, TargetKind, Task, TaskId,
    Trial,
};
use squall_measure::{LocalMeasurer, TemporaryFolder};
use squall_predict::{PredictError, Predictor};
use squall_records::{Store, StoreError};
use squall_search::{Setting, Strategy, TaskWeight, strategies};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The number of guesses that are timed for a task that takes more than its share of the network's
/// time; the fastest is used. For every other task the first right one is used.
const SEVERAL: usize = 3;
/// The same for a task on a GPU, where a trial takes less time and the predictor has learned from
/// few rows and columns.
const SEVERAL_ON_GPUS: usize = 6;
/// The number of rounds in which every guess failed after which plain loops are used.
const ROUNDS: usize = 4;
/// The seed of guesses: the same command makes the same ones each time.
const SEED: u64 = 0;
/// The number of the general predictor's candidates among which an untried one is looked for.
const GENERAL: usize = 4;
/// The file in the cache folder.
const CACHE: &str = "guesses.squall";

/// Where a guess comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuessSource {
    /// It holds the most similar tuned task of the store.
    Similar,
    /// A predictor proposed it.
    Predictor,
    /// The general predictor ranked it first.
    General,
    /// The cost formula ranked it first.
    Formula,
    /// An earlier run guessed and verified it.
    Kept,
}

impl GuessSource {
    /// All of them, the best first.
    pub const ALL: [GuessSource; 5] = [
        GuessSource::Similar,
        GuessSource::Predictor,
        GuessSource::General,
        GuessSource::Formula,
        GuessSource::Kept,
    ];

    /// The name in manifests.
    pub fn name(self) -> &'static str {
        match self {
            GuessSource::Similar => "similar",
            GuessSource::Predictor => "predictor",
            GuessSource::General => "general",
            GuessSource::Formula => "formula",
            GuessSource::Kept => "kept",
        }
    }

    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            GuessSource::Similar => "by the most similar tuned task",
            GuessSource::Predictor => "by the predictor",
            GuessSource::General => "by the general predictor",
            GuessSource::Formula => "by the cost formula",
            GuessSource::Kept => "by an earlier run",
        }
    }
}

/// Options for making guesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuessRequest {
    /// A predictor that was trained on records of this device, or a general one in place of
    /// Squall's own.
    pub predictor: Option<PathBuf>,
    /// The folder in which verified guesses are kept; it is made where it is absent.
    pub cache: Option<PathBuf>,
    /// Whether a kernel that was not tuned here is an error instead.
    pub locked: bool,
    /// Whether the first result matters more than its speed: the first right guess of each task
    /// serves, and none is timed. Without it several are timed for tasks that take more than their
    /// share of a model's time.
    pub soon: bool,
}

/// The store of guesses.
struct Cache {
    store: Store,
    /// The folder of a store that lasts no longer than this process.
    temporary: Option<TemporaryFolder>,
}

impl Cache {
    /// Opens the one of a folder; one that cannot be used is ignored, and the user is told.
    fn open(folder: Option<&Path>, listen: &mut Listen<'_>) -> Result<Cache, Error> {
        let Some(folder) = folder else { return Cache::temporary() };
        let path = folder.join(CACHE);
        let made = std::fs::create_dir_all(folder)
            .map_err(|source| Error::Write { path: folder.into(), source });
        match made.and_then(|()| Ok(Store::open(&path)?.expendable())) {
            Ok(store) => Ok(Cache { store, temporary: None }),
            Err(e) => {
                listen(Event::Trouble(ignored(&path, &e)));
                Cache::temporary()
            }
        }
    }

    fn temporary() -> Result<Cache, Error> {
        let folder = TemporaryFolder::new("guesses")?;
        let store = Store::open(folder.path().join(CACHE))?;
        Ok(Cache { store, temporary: Some(folder) })
    }
}

fn ignored(path: &Path, e: &Error) -> String {
    format!("the kept guesses in `{}` are ignored: {e}; remove the file", path.display())
}

/// The guesses of a task as far as they are begun: those that are known, and the first of those to
/// try next.
pub(super) struct Beginning {
    known: Vec<(Record, GuessSource)>,
    next: Vec<(Candidate, GuessSource)>,
    wanted: usize,
    is_timed: bool,
    /// Whether the general predictor is asked for more, which may take a tenth of a second.
    pub asks: bool,
}

/// The guesses of a task: those that are known, and those to try next.
pub(super) struct Guessing {
    known: Vec<(Record, GuessSource)>,
    next: Vec<(Candidate, GuessSource)>,
    /// How many are tried at once.
    wanted: usize,
    /// Whether they are timed: where there is a choice, and times mean something.
    pub is_timed: bool,
    formula: Box<dyn Strategy>,
}

impl Guessing {
    /// The candidates that are to be built and measured.
    pub fn next(&self) -> impl Iterator<Item = &Candidate> {
        self.next.iter().map(|(c, _)| c)
    }

    /// Whether any guess ran and was right.
    fn is_right(&self) -> bool {
        self.known.iter().any(|(r, _)| r.outcome.is_right())
    }

    /// Asks the cost formula for more where nothing is known to be right.
    fn fill(&mut self, state: &TaskState) {
        if !self.is_right() && self.next.len() < self.wanted {
            let more = self.formula.ask(self.wanted - self.next.len()).into_iter();
            let untried = more.filter(|c| !state.tried.contains(&name_of(c)));
            self.next.extend(untried.map(|c| (c, GuessSource::Formula)));
        }
    }
}

/// Makes guesses for the tasks of one input.
pub struct Guesser<'a, 'l, 'e> {
    pub(super) at: &'a TargetContext,
    sources: Vec<TransferSource>,
    predictor: Option<Predictor>,
    general: Option<Arc<GeneralPredictor>>,
    cache: Cache,
    /// Opened when the first guess must be measured.
    measurer: Option<LocalMeasurer>,
    /// The tasks that take more than their share of the time.
    heavy: Vec<TaskId>,
    listen: &'l mut Listen<'e>,
}

impl<'a, 'l, 'e> Guesser<'a, 'l, 'e> {
    /// A guesser for these tasks, which learns from a store's tuned tasks.
    pub fn new(
        request: &GuessRequest,
        tasks: &[&Task],
        store: Option<&Store>,
        at: &'a TargetContext,
        listen: &'l mut Listen<'e>,
    ) -> Result<Guesser<'a, 'l, 'e>, Error> {
        let Predictors { learned: predictor, general } =
            Predictors::of(request.predictor.as_deref())?;
        if let Some(p) = &predictor {
            let learned = &p.tasks()?.facts().device;
            if *learned != at.device_name() {
                let (learned, asked) = (learned.clone(), at.device_name());
                return Err(PredictError::Device { learned, asked }.into());
            }
        }
        let sources =
            store.map(|s| transfer_sources(s, &at.place, &[])).transpose()?.unwrap_or_default();
        // Times under an emulator say nothing, so they are not kept.
        let cache = match at.place.device.is_emulated() {
            true => Cache::temporary()?,
            false => Cache::open(request.cache.as_deref(), listen)?,
        };
        let is_compared = !at.place.device.is_emulated() && !request.soon;
        let heavy = if is_compared { heavy(tasks) } else { Vec::new() };
        Ok(Guesser { at, sources, predictor, general, cache, measurer: None, heavy, listen })
    }

    /// Whether the task's kernels are generated and it can be guessed which is fast.
    pub(super) fn takes(&self, state: &TaskState) -> bool {
        (!self.at.gpus.is_empty() || self.at.device.can_run().is_ok())
            && state.task.workload.foreign.is_none()
            && !state.kernels.tunables.is_empty()
    }

    /// Begins the guesses of a task for which the store has no kernel.
    pub(super) fn begin(&mut self, state: &mut TaskState) -> Result<Beginning, Error> {
        match self.begun(state) {
            Err(Error::Store(e)) => {
                self.forget(e, state)?;
                self.begun(state)
            }
            other => other,
        }
    }

    /// The verified guess of what was proposed; none where none is right.
    pub(super) fn guess(
        &mut self,
        state: &mut TaskState,
        guessing: Guessing,
    ) -> Result<Option<(Record, GuessSource)>, Error> {
        match self.settled(state, guessing) {
            Err(Error::Store(e)) => {
                self.forget(e, state)?;
                let begun = self.begun(state)?;
                let answers = if begun.asks { self.asker().answers(state) } else { Vec::new() };
                let again = self.finished(begun, answers, state);
                self.settled(state, again)
            }
            Err(Error::Measure(e @ MeasurerError::Reference(_))) => {
                let text = format!("{} cannot be verified: {e}", state.task.name);
                (self.listen)(Event::Trouble(text));
                Ok(None)
            }
            other => other,
        }
    }

    /// Goes on without a store of guesses that cannot be used.
    fn forget(&mut self, e: StoreError, state: &mut TaskState) -> Result<(), Error> {
        if self.cache.temporary.is_some() {
            return Err(e.into());
        }
        let path = self.cache.store.path().to_path_buf();
        (self.listen)(Event::Trouble(ignored(&path, &e.into())));
        self.cache = Cache::temporary()?;
        state.tried.clear();
        Ok(())
    }

    /// The guesses that the cache knows, and else those of similar tasks and of a predictor.
    fn begun(&mut self, state: &mut TaskState) -> Result<Beginning, Error> {
        let task = state.task;
        let place = &self.at.place;
        let kept = self.cache.store.trials(task.id, &place.device.to_string(), &place.toolchain)?;
        let wanted = if self.heavy.contains(&task.id) { several(&self.at.target) } else { 1 };
        let is_timed = wanted > 1 && self.at.device.crowding().is_none();
        let mut known: Vec<(Record, GuessSource)> = Vec::new();
        // A model of which the task was a small part did not time it: that is done here.
        let mut untimed: Vec<(Candidate, GuessSource)> = Vec::new();
        for r in kept {
            // What an older sketch proposed and none proposes now is of no use.
            let Some(c) = state.kernels.candidate(&r.tunable, &r.configuration) else { continue };
            state.tried.insert(name_of(&c));
            if r.outcome.time().is_some() {
                untimed.retain(|(u, _)| *u != c);
            }
            match is_timed && r.outcome.is_right() && r.outcome.time().is_none() {
                true => untimed.push((c, GuessSource::Kept)),
                false => known.push((r, GuessSource::Kept)),
            }
        }
        let mut next = untimed;
        next.truncate(wanted);
        let room = wanted - next.len();
        let mut learned = self.learned(state, room)?;
        // Where earlier runs tried enough, the predictor is not asked again.
        let asks = learned.len() < room && state.tried.len() < room;
        next.append(&mut learned);
        Ok(Beginning { known, next, wanted, is_timed, asks })
    }

    /// The general predictor's answers, which several threads may ask for at once.
    pub(super) fn asker(&self) -> Asker<'_> {
        Asker { general: self.general.as_deref(), target: &self.at.target, heavy: &self.heavy }
    }

    /// The guesses to try for a task, before any of them is measured: the begun ones, and these
    /// answers of the general predictor where there is room.
    pub(super) fn finished(
        &self,
        begun: Beginning,
        answers: Vec<Candidate>,
        state: &mut TaskState,
    ) -> Guessing {
        let Beginning { known, mut next, wanted, is_timed, .. } = begun;
        for c in answers {
            add(&mut next, wanted, state, (c, GuessSource::General));
        }
        let setting = Setting::new(state.kernels.tunables.clone(), SEED, several(&self.at.target));
        let formula = (strategies()[0].make)(&setting);
        let mut guessing = Guessing { known, next, wanted, is_timed, formula };
        guessing.fill(state);
        guessing
    }

    /// Measures what was proposed, and more while nothing of it is right.
    fn settled(
        &mut self,
        state: &mut TaskState,
        mut g: Guessing,
    ) -> Result<Option<(Record, GuessSource)>, Error> {
        for round in 0..ROUNDS {
            if round > 0 {
                g.fill(state);
            }
            if g.next.is_empty() && g.is_right() {
                break;
            }
            let trials = self.measure(state, &mut g)?;
            g.formula.tell(&trials);
            g.next.clear();
        }
        let time = |r: &Record| r.outcome.time().map_or(f64::INFINITY, |t| t.0);
        let ran = g.known.into_iter().filter(|(r, _)| r.outcome.is_right());
        Ok(ran.min_by(|(a, _), (b, _)| time(a).total_cmp(&time(b))))
    }

    /// The guesses from the store's tuned tasks and from the predictor.
    fn learned(
        &self,
        state: &TaskState,
        wanted: usize,
    ) -> Result<Vec<(Candidate, GuessSource)>, Error> {
        let similar = guesses(state, std::iter::empty(), &self.sources, wanted);
        let mut all: Vec<(Candidate, GuessSource)> =
            similar.into_iter().map(|c| (c, GuessSource::Similar)).collect();
        if let Some(predictor) = self.predictor.as_ref().filter(|_| all.len() < wanted) {
            let (model, device) = (predictor.tasks()?, self.at.device_name());
            match proposals(model, state.task, &state.kernels.tunables, &device, wanted) {
                Ok(found) => {
                    for p in found {
                        add(&mut all, wanted, state, (p.candidate, GuessSource::Predictor));
                    }
                }
                // It knows no task of this kind.
                Err(PredictError::Kind { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(all)
    }

    /// Builds and verifies guesses, and times them where that decides; what came of each is kept.
    fn measure(&mut self, state: &mut TaskState, g: &mut Guessing) -> Result<Vec<Trial>, Error> {
        let Guessing { next, known, is_timed, .. } = g;
        if next.is_empty() {
            return Ok(Vec::new());
        }
        let measurer = match &mut self.measurer {
            Some(m) => m,
            None => {
                (self.listen)(Event::Note(
                    "the best guesses for kernels that were never tuned are built and verified"
                        .into(),
                ));
                self.measurer.insert(self.at.verifier()?)
            }
        };
        measurer.set_timed(*is_timed);
        measurer.set_task(&state.setup(SEED))?;
        let mut keep = Keep {
            recorder: Recorder {
                store: &self.cache.store,
                place: self.at.place.clone(),
                seed: SEED,
            },
            task: state.task,
            next,
            known,
            trials: Vec::new(),
        };
        let mut rounds = Rounds::new(next.iter().map(|(c, _)| c.clone()).collect(), 1);
        let stop = AtomicBool::new(false);
        let symbol = state.symbol.clone();
        let limits = Limits { symbol: &symbol, ..Limits::new(next.len(), next.len(), &stop) };
        let tunables = &state.kernels.tunables;
        run_trials(measurer, tunables, &mut rounds, &mut keep, &limits)?;
        let trials = keep.trials;
        state.tried.extend(trials.iter().map(|t| name_of(&t.candidate)));
        Ok(trials)
    }
}

/// Adds a candidate that was not tried, where there is room.
fn add(
    all: &mut Vec<(Candidate, GuessSource)>,
    wanted: usize,
    state: &TaskState,
    guess: (Candidate, GuessSource),
) {
    let known = state.tried.contains(&name_of(&guess.0));
    if all.len() < wanted && !known && all.iter().all(|(c, _)| *c != guess.0) {
        all.push(guess);
    }
}

/// Asks the general predictor.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    general: Option<&'a GeneralPredictor>,
    target: &'a Target,
    heavy: &'a [TaskId],
}

impl Asker<'_> {
    /// Its answers for a task, the best first.
    pub fn answers(self, state: &TaskState) -> Vec<Candidate> {
        let Some(general) = self.general else { return Vec::new() };
        let is_heavy = self.heavy.contains(&state.task.id);
        let effort = if is_heavy { Effort::Much } else { Effort::Little };
        let count = if is_heavy { GENERAL.max(several(self.target)) } else { GENERAL };
        general.ask(state.task, &state.kernels.tunables, self.target, effort, count)
    }
}

/// The number of guesses that are timed for a heavy task.
fn several(target: &Target) -> usize {
    match target.kind {
        TargetKind::Cpu => SEVERAL,
        _ => SEVERAL_ON_GPUS,
    }
}

/// The tasks that are expected to take more than an equal share of the time.
fn heavy(tasks: &[&Task]) -> Vec<TaskId> {
    let weight = |t: &Task| TaskWeight {
        count: t.count,
        flop: t.workload.flop(),
        bytes: t.workload.bytes().0,
    };
    let times: Vec<f64> = tasks.iter().map(|t| weight(t).expected_time()).collect();
    let share = times.iter().sum::<f64>() / tasks.len().max(1) as f64;
    tasks.iter().zip(times).filter(|(_, time)| *time >= share).map(|(t, _)| t.id).collect()
}

/// Keeps what came of guesses.
struct Keep<'k> {
    recorder: Recorder<'k>,
    task: &'k Task,
    next: &'k [(Candidate, GuessSource)],
    known: &'k mut Vec<(Record, GuessSource)>,
    trials: Vec<Trial>,
}

impl TrialRecorder for Keep<'_> {
    fn record(&mut self, trial: Trial, _: f64) -> Result<Trial, Error> {
        let name = name_of(&trial.candidate);
        let asked = self.next.iter().find(|(c, _)| *c == trial.candidate);
        let source = asked.map_or(GuessSource::Formula, |(_, source)| *source);
        // A trial is kept once: what was tried before without a time is measured again.
        let kind = match source {
            GuessSource::Kept => RecordKind::Rematch,
            _ => RecordKind::Trial,
        };
        let outcome = trial.outcome.clone();
        let record = self.recorder.keep(self.task, kind, &name, outcome, trial.cost)?;
        self.known.push((record, source));
        self.trials.push(trial.clone());
        Ok(trial)
    }
}
