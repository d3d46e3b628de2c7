//! The study of search strategies on real kernels: equal trials, several seeds, every run afresh. A
//! candidate that two runs propose is measured once and its outcome shared, so that all strategies
//! search the very same landscape; both pay for the trial. The best few of every run are measured
//! again, all runs' together, and more of them where these had been lucky, as in a session's
//! run-off: a run that met a good moment of the machine has found nothing. `squall bench search`
//! shows the result.

mod page;
mod race;
mod run;

pub use page::page;
pub use run::ablate;

use squall::TargetRequest;
use squall_core::{Nanos, TaskId};

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

/// The number of a run's best candidates that are measured again together; then as many more, as
/// long as there are any whose trials were faster than the time at which the run has settled, as in
/// a session's run-off.
pub const FINALISTS: usize = 12;

/// The strategies, tasks and budgets to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Strategies by name, those of [`squall_search::ablations`] among them.
    pub strategies: Vec<String>,
    /// Budgets, each a run of its own: strategies plan by their budget.
    pub trials: Vec<usize>,
    /// Seeds 0, 1, .. so many.
    pub seeds: u64,
    /// What kernels are made for.
    pub target: TargetRequest,
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
    /// The strategy's place in the comparison.
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
    pub comparison: Comparison,
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
        let all = self.comparison.strategies.len() * self.comparison.seeds as usize;
        (0..self.tasks.len()).filter(|t| of(*t).count() == all).flat_map(of).collect()
    }

    /// The tasks that a budget's scores are over.
    pub fn compared(&self, budget: usize) -> usize {
        self.complete(budget).len()
            / (self.comparison.strategies.len() * self.comparison.seeds as usize).max(1)
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
        let seeds: Vec<f64> =
            (0..self.comparison.seeds).filter_map(|s| mean(&|r| r.seed == s)).collect();
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
        let Some(budget) =
            self.comparison.trials.iter().copied().filter(|b| self.compared(*b) > 0).max()
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

#[cfg(test)]
mod tests {
    use super::*;
    use squall::Input;

    fn ablation() -> Ablation {
        let comparison = Comparison {
            strategies: vec!["evolution".into(), "random".into()],
            trials: vec![4, 8],
            seeds: 2,
            target: TargetRequest::Cpu,
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
            comparison,
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
        let (evolution, random) =
            (a.score(0, 4).expect("a score"), a.score(1, 4).expect("a score"));
        assert!((evolution.mean - 1.0).abs() < 1e-12 && (random.mean - 0.5).abs() < 1e-12);
        assert!((random.worst_seed - 0.25).abs() < 1e-12 && (random.best_seed - 1.0).abs() < 1e-12);
        assert!((evolution.search_seconds - 0.1).abs() < 1e-12);
        assert!(a.score(0, 8).is_none());
        // A run that was cut off before second looks has no share, not a bad one.
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
        assert!(page.contains("evolution") && page.contains("&lt;b&gt;") && page.contains("0.500"));
        let nothing = Ablation { runs: Vec::new(), ..ablation() };
        assert!(super::page(&nothing).contains("</html>"));
    }

    #[test]
    fn strategies_without_a_part_are_found_by_name_too() {
        assert!(run::find("evolution-nomodel").is_ok() && run::find("storm").is_ok());
        let Err(e) = run::find("sunshine") else { panic!("it is found") };
        assert!(e.to_string().contains("evolution-nomodel"));
    }

    #[test]
    fn the_built_in_set_is_read() {
        let input = Input::lines(BUILT_IN, "built-in").expect("it is well-formed");
        assert!(input.tasks().len() >= 8);
    }
}
