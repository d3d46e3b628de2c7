//! Runs a comparison of search strategies: task by task, budget by budget, and at the end the best
//! candidates of all runs are measured again. Input: a [`Comparison`](super::Comparison); output:
//! the runs with their times, from which `mod.rs` computes scores and `page.rs` a page.

use super::race::{Entrant, Race, think};
use super::{Ablation, Compared, Comparison, FINALISTS, Run};
use squall::recorder::Recorder;
use squall::trials::{
    Limits, NoRecords, Rounds, SYMBOL, TrialRecorder, cpu_time, name_of, realize, run_trials,
    strategy,
};
use squall::{Context, Error, Input, Store, TaskKernels};
use squall_core::{
    Candidate, Measurer, MeasurerError, Nanos, Outcome, Record, RecordKind, Task, Trial, Tunable,
    find_candidate, median,
};
use squall_records::Name;
use squall_search::{Setting, StrategyInfo, ablations, strategies};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The time between two reports of a race's progress.
const NEWS: Duration = Duration::from_secs(30);

/// The number of times that each finalist is measured, a round of all at a time.
const LOOKS: usize = 5;

/// Runs a comparison; `heard` learns of each run as it ends, and of what goes wrong.
pub fn ablate(
    context: &Context,
    input: &Input,
    comparison: &Comparison,
    store: &Store,
    stop: &AtomicBool,
    heard: &mut dyn FnMut(&str),
) -> Result<Ablation, Error> {
    let chosen =
        comparison.strategies.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?;
    let tasks = input.select(None)?;
    let at = context.target(comparison.target, comparison.threads)?;
    let recorder = Recorder { store, place: at.place.clone(), seed: 0 };
    let mut study = Study { measurer: at.measurer()?, recorder, comparison, chosen, stop };
    let mut done = Ablation {
        comparison: comparison.clone(),
        device: at.device_name(),
        toolchain: at.place.toolchain.clone(),
        tasks: Vec::new(),
        runs: Vec::new(),
        interrupted: false,
    };
    for task in tasks {
        let kernels = input.task_kernels(task, &at.target)?;
        study.compare(&mut done, task, &kernels, heard)?;
        if stop.load(Ordering::Relaxed) {
            done.interrupted = true;
            break;
        }
    }
    Ok(done)
}

/// The strategy of this name, those without a part among them.
pub(super) fn find(name: &str) -> Result<&'static StrategyInfo, Error> {
    strategy(name, strategies().iter().chain(ablations()))
}

/// A comparison whose measurer is open.
struct Study<'a> {
    measurer: Box<dyn Measurer>,
    recorder: Recorder<'a>,
    comparison: &'a Comparison,
    chosen: Vec<&'static StrategyInfo>,
    stop: &'a AtomicBool,
}

/// What is known of a task before a race and after it.
struct Landscape<'a> {
    task: &'a Task,
    tunables: &'a [Arc<dyn Tunable>],
    /// Outcomes that runs share, if they do.
    known: Option<HashMap<Name, Outcome>>,
    best: Option<Nanos>,
}

impl Study<'_> {
    /// All runs on one task, and their second looks.
    fn compare(
        &mut self,
        done: &mut Ablation,
        task: &Task,
        kernels: &TaskKernels,
        heard: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        match self.measurer.set_task(&kernels.setup(task, 0)) {
            Err(MeasurerError::Reference(why)) => {
                heard(&format!("warning: {} cannot be measured: {why}", task.name));
                return Ok(());
            }
            set => set?,
        }
        let mut landscape = self.landscape(task, &kernels.tunables)?;
        let (place, first) = (done.tasks.len(), done.runs.len());
        let name = task.name.clone();
        done.tasks.push(Compared { id: task.id, name, best: None, settled: None });
        let mut finalists = Vec::new();
        for &budget in &self.comparison.trials {
            let mut entrants = self.entrants(&landscape, place, budget);
            if !self.race(&mut landscape, &mut entrants, heard)? {
                break;
            }
            for Entrant { run, leaders, .. } in entrants {
                let best = run.steps.last().map_or("nothing ran".into(), |s| s.1.to_string());
                let name = self.chosen[run.strategy].name;
                heard(&format!(
                    "{}: {} trials by {name} (seed {}): {best}; {} measured, the others known",
                    task.name, run.made, run.seed, run.measured
                ));
                done.runs.push(run);
                finalists.push(leaders);
            }
        }
        done.tasks[place].best = landscape.best;
        let times = self.settle(&landscape, &finalists)?;
        for (run, time) in done.runs[first..].iter_mut().zip(times) {
            run.settled = time;
        }
        let settled = done.runs[first..].iter().filter_map(|r| r.settled);
        done.tasks[place].settled = settled.min_by(|a, b| a.0.total_cmp(&b.0));
        Ok(())
    }

    /// A task as the store knows it.
    fn landscape<'t>(
        &self,
        task: &'t Task,
        tunables: &'t [Arc<dyn Tunable>],
    ) -> Result<Landscape<'t>, Error> {
        let mut landscape = Landscape { task, tunables, known: None, best: None };
        if self.comparison.cache {
            let place = &self.recorder.place;
            let device = place.device.to_string();
            let records = self.recorder.store.trials(task.id, &device, &place.toolchain)?;
            let trials = records.into_iter().filter(|r| r.kind == RecordKind::Trial);
            // Candidates are asked for by today's names.
            let name = |r: &Record| {
                let found = find_candidate(tunables, &r.tunable, &r.configuration);
                found.map_or_else(|| (r.tunable.clone(), r.configuration.clone()), |c| name_of(&c))
            };
            let known: HashMap<Name, Outcome> = trials.map(|r| (name(&r), r.outcome)).collect();
            let times = known.values().filter_map(Outcome::time);
            landscape.best = times.min_by(|a, b| a.0.total_cmp(&b.0));
            landscape.known = Some(known);
        }
        Ok(landscape)
    }

    /// The runs of a budget, none of which has begun.
    fn entrants(&self, landscape: &Landscape, task: usize, budget: usize) -> Vec<Entrant> {
        let entrant = |seed: u64, strategy: usize, info: &StrategyInfo| {
            let clock = cpu_time();
            // As a session seeds it: the same seed is another stream on each task.
            let search = (info.make)(&Setting::new(
                landscape.tunables.to_vec(),
                seed ^ landscape.task.id.number(),
                budget,
            ));
            let search_seconds = cpu_time() - clock;
            let run = Run {
                task,
                strategy,
                seed,
                budget,
                made: 0,
                measured: 0,
                steps: Vec::new(),
                settled: None,
                search_seconds,
            };
            Entrant { search, run, leaders: Vec::new() }
        };
        (0..self.comparison.seeds)
            .flat_map(|seed| self.chosen.iter().enumerate().map(move |(k, info)| (seed, k, *info)))
            .map(|(seed, k, info)| entrant(seed, k, info))
            .collect()
    }

    /// All runs to their ends. Whether they ended; else it was ended early.
    fn race(
        &mut self,
        landscape: &mut Landscape,
        entrants: &mut [Entrant],
        heard: &mut dyn FnMut(&str),
    ) -> Result<bool, Error> {
        let all: usize = entrants.iter().map(|e| e.run.budget).sum();
        let (asks, asked) = channel();
        let (tells, told) = channel();
        let mut race = Race::new(asked, tells, landscape.known.take(), landscape.best);
        let mut recorder = StudyRecorder {
            recorder: &self.recorder,
            task: landscape.task,
            all,
            made: 0,
            told: Instant::now(),
            heard,
        };
        let limits = Limits::new(usize::MAX, usize::MAX, self.stop);
        let measurer = &mut *self.measurer;
        std::thread::scope(|scope| {
            let thinking = scope.spawn(move || think(entrants, &asks, &told));
            let ran = run_trials(measurer, landscape.tunables, &mut race, &mut recorder, &limits);
            (landscape.known, landscape.best) = (race.known.take(), race.best);
            // Without this end of the channels the runs stop waiting.
            drop(race);
            let ended = thinking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ran.map(|_| ended)
        })
    }

    /// The time of the best of each run's leaders, all runs' measured again in turns; nothing where
    /// that was ended early.
    fn settle(
        &mut self,
        landscape: &Landscape,
        leaders: &[Vec<(Nanos, Candidate)>],
    ) -> Result<Vec<Option<Nanos>>, Error> {
        // None of one that failed once.
        let mut seen: HashMap<Name, Option<f64>> = HashMap::new();
        loop {
            let settled = settled(leaders, &seen);
            let mut wave: Vec<Candidate> = Vec::new();
            for (run, settled) in leaders.iter().zip(&settled) {
                let faster = |l: &&(Nanos, Candidate)| settled.is_none_or(|s| l.0.0 < s.0);
                let unseen: Vec<&Candidate> = run
                    .iter()
                    .filter(faster)
                    .map(|l| &l.1)
                    .filter(|c| !seen.contains_key(&name_of(c)))
                    .collect();
                for c in unseen.into_iter().take(FINALISTS) {
                    if !wave.contains(c) && realize(landscape.tunables, c, SYMBOL).is_ok() {
                        wave.push(c.clone());
                    }
                }
            }
            if wave.is_empty() {
                return Ok(settled);
            }
            let mut looks = Rounds::new(wave, LOOKS).in_order();
            let limits = Limits::new(looks.len(), looks.batch(), self.stop);
            let measurer = &mut *self.measurer;
            run_trials(measurer, landscape.tunables, &mut looks, &mut NoRecords, &limits)?;
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Vec::new());
            }
            let times = looks.into_times().into_iter();
            seen.extend(times.map(|(c, t)| (name_of(&c), (t.len() == LOOKS).then(|| median(t)))));
        }
    }
}

/// The time of each run's best among those that were measured again.
fn settled(
    leaders: &[Vec<(Nanos, Candidate)>],
    seen: &HashMap<Name, Option<f64>>,
) -> Vec<Option<Nanos>> {
    let time = |l: &(Nanos, Candidate)| seen.get(&name_of(&l.1)).copied().flatten();
    leaders
        .iter()
        .map(|run| run.iter().filter_map(time).min_by(f64::total_cmp).map(Nanos))
        .collect()
}

/// Appends what was measured to the store, and says now and then how far a race is.
struct StudyRecorder<'r, 'h> {
    recorder: &'r Recorder<'r>,
    task: &'r Task,
    /// Trials of all runs of the race.
    all: usize,
    /// Trials measured so far.
    made: usize,
    told: Instant,
    heard: &'h mut dyn FnMut(&str),
}

impl TrialRecorder for StudyRecorder<'_, '_> {
    fn record(&mut self, trial: Trial, _: f64) -> Result<Trial, Error> {
        // A candidate without a kernel costs nothing to find again.
        if !matches!(trial.outcome, Outcome::Infeasible(_)) {
            let name = name_of(&trial.candidate);
            let (outcome, cost) = (trial.outcome.clone(), trial.cost);
            self.recorder.keep(self.task, RecordKind::Trial, &name, outcome, cost)?;
        }
        self.made += 1;
        if self.told.elapsed() >= NEWS {
            (self.heard)(&format!(
                "{}: {} measured for {} trials",
                self.task.name, self.made, self.all
            ));
            self.told = Instant::now();
        }
        Ok(trial)
    }
}
