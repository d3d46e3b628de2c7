//! What each search strategy is worth on real kernels: equal trials, several seeds, every run
//! afresh. A candidate that two runs propose is measured once and its outcome shared, so that all
//! strategies search the very same landscape; the trial is paid by both. The best few of every run
//! are measured again, all runs' together, and more of them where these had been lucky, as in a
//! session's run-off: who met a good moment of the machine has found nothing.

mod page;

pub use page::page;

use crate::aim::Aimed;
use crate::desk::{name_of, realize};
use crate::error::Error;
use crate::input::Input;
use crate::kit::Kit;
use crate::runoff::Scribe;
use crate::session::{BATCH, SYMBOL, cpu_time, strategy};
use crate::settings::Aim;
use squall_core::MeasurerError as MeasureError;
use squall_core::{
    Candidate, CpuCost, Nanos, Outcome, RecordKind, Task, TaskId, Trial, Tunable, median,
};
use squall_core::{CandidateText, Job, Measurer, TaskSetup};
use squall_records::{Name, Store};
use squall_search::{Setting, Strategy, StrategyInfo, ablations, strategies};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Kernels that compile and run quickly and are unlike each other: the set where none is given.
pub const BUILT_IN: &str = "\
conv3x3: conv2d n=1 c=64 h=28 w=28 k=64 r=3 s=3 stride=1 pad=1 dilation=1 groups=1 \
epilogue=bias,relu
conv3x3_s2: conv2d n=1 c=64 h=28 w=28 k=128 r=3 s=3 stride=2 pad=1 dilation=1 groups=1
conv1x1: conv2d n=1 c=64 h=28 w=28 k=128 r=1 s=1 stride=1 pad=0 dilation=1 groups=1
depthwise3x3: conv2d n=1 c=96 h=56 w=56 k=96 r=3 s=3 stride=1 pad=1 dilation=1 groups=96
matmul_256: matmul m=256 n=256 k=256 weight=none
matmul_128x768x768: matmul m=128 n=768 k=768 weight=b
matmul_1x1024x1024: matmul m=1 n=1024 k=1024 weight=b
matmul_odd: matmul m=97 n=211 k=130 weight=b
softmax_64x1024: softmax rows=64 cols=1024
layernorm_128x768: layernorm rows=128 cols=768 eps=1e-05
";

/// The share of the best known rate that a run is taken to reach that found nothing.
const NOTHING: f64 = 0.01;

/// How often a race says where it stands.
const NEWS: Duration = Duration::from_secs(30);

/// How many of a run's best are measured again together; then as many more, as long as there are
/// any whose trials were faster than what the run has settled at, as in a session's run-off.
pub const FINALISTS: usize = 12;

/// No more than these of a run.
const LEADERS: usize = 8 * FINALISTS;

/// How often each of them is, a round of all at a time.
const LOOKS: usize = 5;

/// What to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Strategies by name, those of [`ablations`] among them.
    pub strategies: Vec<String>,
    /// Budgets, each a run of its own: strategies plan by their budget.
    pub trials: Vec<usize>,
    /// Seeds 0, 1, .. so many.
    pub seeds: u64,
    /// What kernels are made for.
    pub aim: Aim,
    /// Threads that a kernel may use on a CPU.
    pub threads: usize,
    /// Whether outcomes of the store and of earlier runs are shared.
    pub cache: bool,
}

/// One task searched by one strategy with one seed and one budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The task's place in [`Ablation::tasks`].
    pub task: usize,
    /// The strategy's place in the plan.
    pub strategy: usize,
    /// The seed.
    pub seed: u64,
    /// The budget.
    pub budget: usize,
    /// Trials made; fewer than the budget where nothing was left.
    pub made: usize,
    /// Trials that had to be measured, not taken from the cache.
    pub measured: usize,
    /// After which trial the best time fell to what.
    pub steps: Vec<(usize, Nanos)>,
    /// The time of what it found: the best of its [`FINALISTS`], and more where these had been
    /// lucky, when measured again beside those of all other runs.
    pub settled: Option<Nanos>,
    /// CPU seconds of the process while the strategy thought: what was done for others meanwhile
    /// (printing their kernels) is among them.
    pub search_seconds: f64,
}

impl Run {
    /// The best time after so many trials.
    fn best_after(&self, trials: usize) -> Option<f64> {
        self.steps.iter().take_while(|s| s.0 <= trials).last().map(|s| s.1.0)
    }
}

/// A task of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The task.
    pub id: TaskId,
    /// Its name.
    pub name: String,
    /// The best time that any run or the store knows.
    pub best: Option<Nanos>,
    /// The best time that any run settled at.
    pub settled: Option<Nanos>,
}

/// How a strategy did with a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Geometric mean over tasks and seeds of the best settled time over the run's; 1 is best.
    pub mean: f64,
    /// The worst seed's mean over tasks.
    pub worst_seed: f64,
    /// The best seed's.
    pub best_seed: f64,
    /// CPU seconds of the process while the strategy thought, for a trial.
    pub search_seconds: f64,
}

/// All runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Ablation {
    /// What was compared.
    pub plan: Plan,
    /// The device.
    pub device: String,
    /// The toolchain.
    pub toolchain: String,
    /// The tasks that could be measured.
    pub tasks: Vec<Compared>,
    /// The runs that ended.
    pub runs: Vec<Run>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

impl Ablation {
    /// The runs of a budget on the tasks on which every strategy and seed has ended and settled: a
    /// mean over unequal tasks would compare nothing.
    fn complete(&self, budget: usize) -> Vec<&Run> {
        let settled = |t: usize| self.tasks[t].settled.is_some();
        let of = |t: usize| {
            self.runs.iter().filter(move |r| r.task == t && r.budget == budget && settled(t))
        };
        let all = self.plan.strategies.len() * self.plan.seeds as usize;
        (0..self.tasks.len()).filter(|t| of(*t).count() == all).flat_map(of).collect()
    }

    /// The tasks that a budget's scores are over.
    pub fn compared(&self, budget: usize) -> usize {
        self.complete(budget).len() / (self.plan.strategies.len() * self.plan.seeds as usize).max(1)
    }

    /// The share of the best settled rate that a run has reached in the end; none where its task
    /// was ended before its runs settled.
    pub fn share(&self, run: &Run) -> Option<f64> {
        let best = self.tasks.get(run.task)?.settled?;
        Some(run.settled.map_or(NOTHING, |t| (best.0 / t.0).max(NOTHING)))
    }

    /// The share of the best known rate that a run took itself to have reached after so many
    /// trials.
    fn share_after(&self, run: &Run, trials: usize) -> f64 {
        let known = self.tasks.get(run.task).and_then(|t| t.best).map_or(f64::NAN, |b| b.0);
        run.best_after(trials).map_or(NOTHING, |t| (known / t).max(NOTHING))
    }

    /// How a strategy did with a budget.
    pub fn score(&self, strategy: usize, budget: usize) -> Option<Score> {
        let runs: Vec<&Run> =
            self.complete(budget).into_iter().filter(|r| r.strategy == strategy).collect();
        let mean = |of: &dyn Fn(&Run) -> bool| {
            geometric(runs.iter().filter(|r| of(r)).filter_map(|r| self.share(r)))
        };
        let seeds: Vec<f64> = (0..self.plan.seeds).filter_map(|s| mean(&|r| r.seed == s)).collect();
        let made: usize = runs.iter().map(|r| r.made).sum();
        Some(Score {
            mean: mean(&|_| true)?,
            worst_seed: seeds.iter().copied().fold(f64::INFINITY, f64::min),
            best_seed: seeds.iter().copied().fold(0.0, f64::max),
            search_seconds: runs.iter().map(|r| r.search_seconds).sum::<f64>() / made.max(1) as f64,
        })
    }

    /// The mean share after each of some numbers of trials, in the runs of the largest complete
    /// budget.
    pub fn curve(&self, strategy: usize) -> Vec<(usize, f64)> {
        let Some(budget) = self.plan.trials.iter().copied().filter(|b| self.compared(*b) > 0).max()
        else {
            return Vec::new();
        };
        let runs: Vec<&Run> =
            self.complete(budget).into_iter().filter(|r| r.strategy == strategy).collect();
        let steps = 48;
        let mut places: Vec<usize> = (0..=steps)
            .map(|i| (budget as f64).powf(f64::from(i) / f64::from(steps)).round() as usize)
            .collect();
        places.dedup();
        // A mean over runs of which some have found nothing says more about luck than about search.
        let begun = |n: usize| runs.iter().all(|r| r.best_after(n).is_some());
        let mean = |n: usize| Some((n, geometric(runs.iter().map(|r| self.share_after(r, n)))?));
        places.into_iter().filter(|n| begun(*n)).filter_map(mean).collect()
    }
}

fn geometric(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Runs a comparison; `heard` learns of each run as it ends, and of what goes wrong.
pub fn ablate(
    input: &Input,
    plan: &Plan,
    store: &Store,
    stop: &AtomicBool,
    heard: &mut dyn FnMut(&str),
) -> Result<Ablation, Error> {
    let chosen = plan.strategies.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>()?;
    let tasks = input.select(None)?;
    let aimed = Aimed::at(plan.aim, plan.threads)?;
    let scribe = Scribe { store, device: &aimed.id, toolchain: &aimed.tools, seed: 0 };
    let mut lab = aimed.lab()?;
    let mut done = Ablation {
        plan: plan.clone(),
        device: aimed.id.clone(),
        toolchain: aimed.tools.clone(),
        tasks: Vec::new(),
        runs: Vec::new(),
        interrupted: false,
    };
    for task in tasks {
        let kit = input.kit(task, &aimed.target)?;
        let Some(mut ground) = Ground::open(&mut lab, scribe, task, kit, plan.cache, heard)? else {
            continue;
        };
        let place = done.tasks.len();
        done.tasks.push(Compared {
            id: task.id,
            name: task.name.clone(),
            best: None,
            settled: None,
        });
        let (first, mut finalists) = (done.runs.len(), Vec::new());
        for &budget in &plan.trials {
            let entrants = (0..plan.seeds)
                .flat_map(|seed| chosen.iter().enumerate().map(move |(k, info)| (k, *info, seed)));
            let mut entrants: Vec<Entrant> = entrants
                .map(|(k, info, seed)| ground.entrant(info, (place, k), seed, budget))
                .collect();
            if !ground.race(&mut lab, &mut entrants, stop, heard)? {
                break;
            }
            for Entrant { run, leaders, .. } in entrants {
                let best = run.steps.last().map_or("nothing ran".into(), |s| s.1.to_string());
                heard(&format!(
                    "{}: {} trials by {} (seed {}): {best}; {} measured, the others known",
                    task.name, run.made, chosen[run.strategy].name, run.seed, run.measured
                ));
                done.runs.push(run);
                finalists.push(leaders);
            }
        }
        done.tasks[place].best = ground.best;
        let times = ground.settle(&mut lab, &finalists, stop)?;
        for (run, time) in done.runs[first..].iter_mut().zip(times) {
            run.settled = time;
        }
        let settled = done.runs[first..].iter().filter_map(|r| r.settled);
        done.tasks[place].settled = settled.min_by(|a, b| a.0.total_cmp(&b.0));
        if stop.load(Ordering::Relaxed) {
            done.interrupted = true;
            break;
        }
    }
    Ok(done)
}

fn find(name: &str) -> Result<&'static StrategyInfo, Error> {
    strategy(name, strategies().iter().chain(ablations()))
}

/// A task's landscape as far as it is known.
struct Ground<'a> {
    task: &'a Task,
    scribe: Scribe<'a>,
    tunables: Vec<Arc<dyn Tunable>>,
    cache: Option<HashMap<Name, Outcome>>,
    best: Option<Nanos>,
}

impl<'a> Ground<'a> {
    /// Sets a task up; none where it cannot be measured.
    fn open(
        lab: &mut dyn Measurer,
        scribe: Scribe<'a>,
        task: &'a Task,
        kit: Kit,
        cache: bool,
        heard: &mut dyn FnMut(&str),
    ) -> Result<Option<Ground<'a>>, Error> {
        let reference = kit.reference(task, "squall_reference");
        match lab.set_task(&TaskSetup::new(task.workload.clone(), reference, 0)) {
            Err(MeasureError::Reference(why)) => {
                heard(&format!("warning: {} cannot be measured: {why}", task.name));
                return Ok(None);
            }
            done => done?,
        }
        let mut ground = Ground {
            task,
            scribe,
            tunables: kit.tunables,
            cache: cache.then(HashMap::new),
            best: None,
        };
        if let Some(known) = &mut ground.cache {
            for r in scribe.store.trials(task.id, scribe.device, scribe.toolchain)? {
                if r.kind == RecordKind::Trial {
                    known.insert((r.tunable, r.configuration), r.outcome);
                }
            }
            let times = known.values().filter_map(Outcome::time);
            ground.best = times.min_by(|a, b| a.0.total_cmp(&b.0));
        }
        Ok(Some(ground))
    }

    /// A run that has not begun.
    fn entrant(
        &self,
        info: &StrategyInfo,
        (task, strategy): (usize, usize),
        seed: u64,
        budget: usize,
    ) -> Entrant {
        let clock = cpu_time();
        // As a session seeds it: the same seed is another stream on each task.
        let search = (info.make)(&Setting {
            tunables: self.tunables.clone(),
            seed: seed ^ self.task.id.number(),
            trials: budget,
        });
        let search_seconds = cpu_time() - clock;
        Entrant {
            search,
            run: Run {
                task,
                strategy,
                seed,
                budget,
                made: 0,
                measured: 0,
                steps: Vec::new(),
                settled: None,
                search_seconds,
            },
            leaders: Vec::new(),
        }
    }

    /// All runs to their ends, in two parties: while what one asked for is built and measured, the
    /// other thinks. Whether they ended; else it was ended early.
    fn race(
        &mut self,
        lab: &mut dyn Measurer,
        entrants: &mut [Entrant],
        stop: &AtomicBool,
        heard: &mut dyn FnMut(&str),
    ) -> Result<bool, Error> {
        let all: usize = entrants.iter().map(|e| e.run.budget).sum();
        let (mut told, mut made) = (Instant::now(), 0);
        let (mut here, mut there) = entrants.split_at_mut(entrants.len().div_ceil(2));
        let mut asked = ask(here);
        loop {
            let (done, next) = std::thread::scope(|scope| {
                let thinking = scope.spawn(|| ask(there));
                let done = self.measure(lab, here, &asked, stop);
                (done, thinking.join())
            });
            if !done? {
                return Ok(false);
            }
            let next = next.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            made += asked.iter().map(Vec::len).sum::<usize>();
            if told.elapsed() >= NEWS {
                heard(&format!("{}: {made} of {all} trials", self.task.name));
                told = Instant::now();
            }
            // Who has nothing left to ask for asks for nothing again.
            if asked.iter().chain(&next).all(Vec::is_empty) {
                return Ok(true);
            }
            (asked, here, there) = (next, there, here);
        }
    }

    /// What a party asked for, told to it; whether all of it is known.
    fn measure(
        &mut self,
        lab: &mut dyn Measurer,
        party: &mut [Entrant],
        asked: &[Vec<Candidate>],
        stop: &AtomicBool,
    ) -> Result<bool, Error> {
        let mut measured: Vec<usize> = vec![0; party.len()];
        let flat = asked
            .iter()
            .enumerate()
            .flat_map(|(who, list)| list.iter().map(move |c| (who, c.clone())))
            .collect();
        let Some(trials) = self.outcomes(lab, flat, &mut measured, stop)? else { return Ok(false) };
        let mut trials = trials.into_iter();
        for ((entrant, asked), measured) in party.iter_mut().zip(asked).zip(measured) {
            let own: Vec<Trial> = trials.by_ref().take(asked.len()).collect();
            for time in own.iter().filter_map(|t| t.outcome.time()) {
                if self.best.is_none_or(|b| time.0 < b.0) {
                    self.best = Some(time);
                }
            }
            entrant.run.measured += measured;
            entrant.tell(&own);
        }
        Ok(true)
    }

    /// The time of the best of each run's leaders, all runs' measured again in turns; nothing where
    /// that was ended early.
    fn settle(
        &self,
        lab: &mut dyn Measurer,
        leaders: &[Vec<(Nanos, Candidate)>],
        stop: &AtomicBool,
    ) -> Result<Vec<Option<Nanos>>, Error> {
        // None of one that failed once, or cannot be made.
        let mut seen: HashMap<Name, Option<f64>> = HashMap::new();
        loop {
            let settled = settled(leaders, &seen);
            let mut wave: Vec<(Name, Job)> = Vec::new();
            for (run, settled) in leaders.iter().zip(&settled) {
                let faster = |l: &&(Nanos, Candidate)| settled.is_none_or(|s| l.0.0 < s.0);
                let unseen: Vec<&Candidate> = run
                    .iter()
                    .filter(faster)
                    .map(|l| &l.1)
                    .filter(|c| !seen.contains_key(&name_of(c)))
                    .collect();
                for c in unseen.into_iter().take(FINALISTS) {
                    let name = name_of(c);
                    if !wave.iter().any(|w| w.0 == name)
                        && let Ok(source) = realize(&self.tunables, c, SYMBOL)
                    {
                        wave.push((name, Job::new(CandidateText::from(c), source)));
                    }
                }
            }
            if wave.is_empty() {
                return Ok(settled);
            }
            let (names, jobs): (Vec<Name>, Vec<Job>) = wave.into_iter().unzip();
            let mut looks: Vec<Vec<f64>> = vec![Vec::new(); jobs.len()];
            for _ in 0..LOOKS {
                lab.run(&jobs, stop, &mut |result| {
                    looks[result.job].extend(result.outcome.time().map(|t| t.0))
                })?;
                if stop.load(Ordering::Relaxed) {
                    return Ok(Vec::new());
                }
            }
            seen.extend(
                names
                    .into_iter()
                    .zip(looks)
                    .map(|(n, l)| (n, (l.len() == LOOKS).then(|| median(l)))),
            );
        }
    }

    /// What becomes of candidates, in their order, from the cache or the laboratory; none where it
    /// was ended early. `measured` counts the latter for each of those who asked; what several ask
    /// for at once is the first one's where outcomes are shared.
    fn outcomes(
        &mut self,
        lab: &mut dyn Measurer,
        asked: Vec<(usize, Candidate)>,
        measured: &mut [usize],
        stop: &AtomicBool,
    ) -> Result<Option<Vec<Trial>>, Error> {
        let mut outcomes: Vec<Option<Outcome>> = vec![None; asked.len()];
        let mut jobs: Vec<Job> = Vec::new();
        let mut places: Vec<usize> = Vec::new();
        let mut coming: HashSet<Name> = HashSet::new();
        for (i, (_, c)) in asked.iter().enumerate() {
            let known = self.cache.as_ref().and_then(|k| k.get(&name_of(c)).cloned());
            if known.is_some() || (self.cache.is_some() && !coming.insert(name_of(c))) {
                outcomes[i] = known;
                continue;
            }
            match realize(&self.tunables, c, SYMBOL) {
                Ok(source) => {
                    jobs.push(Job::new(CandidateText::from(c), source));
                    places.push(i);
                }
                Err(never) => outcomes[i] = Some(never),
            }
        }
        let mut failure = None;
        lab.run(&jobs, stop, &mut |result| {
            let (i, outcome, cost) = (places[result.job], result.outcome, result.cost);
            let (who, candidate) = &asked[i];
            let n = name_of(candidate);
            measured[*who] += 1;
            let record = self.scribe.record(
                self.task,
                RecordKind::Trial,
                (&n.0, &n.1),
                outcome.clone(),
                cost,
            );
            if let Err(e) = self.scribe.store.append(&record) {
                failure.get_or_insert(e);
            }
            if let Some(known) = &mut self.cache {
                known.insert(n, outcome.clone());
            }
            outcomes[i] = Some(outcome);
        })?;
        if let Some(e) = failure {
            return Err(e.into());
        }
        // Of those that came several times the first was measured, or is one that can never be.
        let firsts: HashMap<Name, Outcome> = asked
            .iter()
            .zip(&outcomes)
            .filter_map(|((_, c), o)| Some((name_of(c), o.clone()?)))
            .collect();
        let trial = |((_, candidate), outcome): ((usize, Candidate), Option<Outcome>)| {
            let outcome = outcome.or_else(|| firsts.get(&name_of(&candidate)).cloned())?;
            Some(Trial { candidate, outcome, cost: CpuCost::default() })
        };
        Ok(asked.into_iter().zip(outcomes).map(trial).collect())
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

/// What each of a party wants to know next.
fn ask(party: &mut [Entrant]) -> Vec<Vec<Candidate>> {
    party.iter_mut().map(Entrant::ask).collect()
}

/// A run on its way.
struct Entrant {
    search: Box<dyn Strategy>,
    run: Run,
    /// Its best candidates, the best first.
    leaders: Vec<(Nanos, Candidate)>,
}

impl Entrant {
    /// The next candidates; none at its end.
    fn ask(&mut self) -> Vec<Candidate> {
        let clock = cpu_time();
        let asked = self.search.ask((self.run.budget - self.run.made).min(BATCH));
        self.run.search_seconds += cpu_time() - clock;
        asked
    }

    fn tell(&mut self, trials: &[Trial]) {
        for t in trials {
            self.run.made += 1;
            let Some(time) = t.outcome.time() else { continue };
            if self.run.steps.last().is_none_or(|s| time.0 < s.1.0) {
                self.run.steps.push((self.run.made, time));
            }
            let place = self.leaders.partition_point(|l| l.0.0 <= time.0);
            self.leaders.insert(place, (time, t.candidate.clone()));
            self.leaders.truncate(LEADERS);
        }
        let clock = cpu_time();
        self.search.tell(trials);
        self.run.search_seconds += cpu_time() - clock;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ablation() -> Ablation {
        let plan = Plan {
            strategies: vec!["storm".into(), "random".into()],
            trials: vec![4, 8],
            seeds: 2,
            aim: Aim::Cpu,
            threads: 1,
            cache: true,
        };
        let id: TaskId = "00000000000000aa".parse().expect("an id");
        let task = |name: &str, ns: f64| Compared {
            id,
            name: name.into(),
            best: Some(Nanos(ns)),
            settled: Some(Nanos(ns)),
        };
        let run = |task, strategy, seed, budget, steps: &[(usize, f64)]| Run {
            task,
            strategy,
            seed,
            budget,
            made: budget,
            measured: 1,
            steps: steps.iter().map(|s| (s.0, Nanos(s.1))).collect(),
            settled: steps.last().map(|s| Nanos(s.1)),
            search_seconds: 0.4,
        };
        let runs = vec![
            run(0, 0, 0, 4, &[(1, 400.0), (3, 100.0)]),
            run(0, 0, 1, 4, &[(2, 100.0)]),
            run(0, 1, 0, 4, &[(1, 400.0)]),
            run(0, 1, 1, 4, &[(1, 100.0)]),
            // The second task's runs have not all ended: it counts nowhere.
            run(1, 0, 0, 4, &[(1, 1000.0)]),
        ];
        let tasks = vec![task("a", 100.0), task("<b>", 1.0)];
        Ablation {
            plan,
            device: "cpu".into(),
            toolchain: "gcc".into(),
            tasks,
            runs,
            interrupted: true,
        }
    }

    #[test]
    fn scores_are_geometric_means_over_what_all_strategies_ended() {
        let a = ablation();
        assert_eq!((a.compared(4), a.compared(8)), (1, 0));
        let (storm, random) = (a.score(0, 4).expect("a score"), a.score(1, 4).expect("a score"));
        assert!((storm.mean - 1.0).abs() < 1e-12 && (random.mean - 0.5).abs() < 1e-12);
        assert!((random.worst_seed - 0.25).abs() < 1e-12 && (random.best_seed - 1.0).abs() < 1e-12);
        assert!((storm.search_seconds - 0.1).abs() < 1e-12);
        assert!(a.score(0, 8).is_none());
        // Who was cut off before second looks has no share, not a bad one.
        let mut cut = ablation();
        (cut.tasks[1].settled, cut.runs[4].settled) = (None, None);
        assert!(
            cut.share(&cut.runs[4]).is_none()
                && cut.share(&cut.runs[0]).is_some()
                && cut.compared(4) == 1
        );
        // The curve begins where every run has found something.
        assert_eq!(a.curve(0).iter().map(|c| c.0).collect::<Vec<_>>(), [2, 3, 4]);
        assert!((a.curve(0)[0].1 - 0.5).abs() < 1e-12);
    }

    #[test]
    fn the_page_stands_alone_and_says_what_it_is_about() {
        let page = page(&ablation());
        assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("<b>&"));
        assert!(page.contains("storm") && page.contains("&lt;b&gt;") && page.contains("0.500"));
        let nothing = Ablation { runs: Vec::new(), ..ablation() };
        assert!(super::page(&nothing).contains("</html>"));
    }

    #[test]
    fn strategies_without_a_part_are_found_by_name_too() {
        assert!(find("evolution-nomodel").is_ok() && find("storm").is_ok());
        let Err(e) = find("sunshine") else { panic!("it is found") };
        assert!(e.to_string().contains("evolution-nomodel"));
    }

    #[test]
    fn the_built_in_set_is_read() {
        let input = Input::lines(BUILT_IN, "built-in").expect("it is well-formed");
        assert!(input.tasks.len() >= 8);
    }
}
