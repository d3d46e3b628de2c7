//! The chooser: for a convolution and a GPU it gives the solvers of MIOpen that may serve, best
//! first, with times, their ranges, workspaces and the probability of being the fastest. A problem
//! that was measured on the GPU is looked up; others are answered by trees over measured
//! neighbours. `squall choose` asks it.

use super::candidates::{Candidate, candidates, features, roof_ratio, told};
use super::gpu::GpuFacts;
use super::memory::{GpuMemory, Memory, Near, Without};
use super::models::{Models, Said};
use super::problem::work;
use super::workspace::workspace;
use serde::{Deserialize, Serialize};
use squall_core::find::{FindProblem, FindSolver};

/// The number of GPUs whose neighbours answer for a GPU that is not known.
const SOURCES: usize = 2;
/// The share of the second such GPU's probability that is believed.
const SECOND_SHARE: f32 = 0.1;
/// The most neighbours from which the workspace is computed.
const MOST_ROWS: usize = 3;
/// The times of solvers that no neighbour lists may be off by this, as a logarithm.
const SELDOM_SPREAD: f32 = 1.1;

/// Where an answer is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChooserSource {
    /// The problem was measured on this GPU.
    Database,
    /// Trees, from neighbours on this GPU or on others.
    Model,
    /// No measured problem is near: the answer has the solvers that are listed elsewhere.
    Neighbours,
}

/// A solver of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Its number in the chooser.
    pub solver: u16,
    /// Milliseconds.
    pub ms: f64,
    /// 80 % of the times are in this range.
    pub range: (f64, f64),
    /// Bytes.
    pub workspace: u64,
    /// That it is the fastest of those that are allowed; 0 of those that no neighbour lists.
    pub probability: f64,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct FindAnswer {
    /// Where it is from.
    pub source: ChooserSource,
    /// Best first.
    pub choices: Vec<Choice>,
    /// What it rests on, in words.
    pub reason: String,
}

/// What a chooser is asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The problem.
    pub problem: &'a FindProblem,
    /// The GPU by MIOpen's name.
    pub device: &'a str,
    /// Bytes of workspace that there are.
    pub workspace: Option<u64>,
    /// Solvers that may not be taken.
    pub without: &'a [String],
    /// Whether measured times of the problem itself may answer.
    pub recall: bool,
}

/// What a GPU with few measured problems says against the answers of others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Correction {
    /// The problem's number in the GPU's table.
    pub problem: u32,
    /// The solver's number.
    pub solver: u16,
    /// Added to the expected loss.
    pub order: f32,
    /// Added to the logarithm of the time.
    pub time: f32,
}

/// Facts about a chooser.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChooserInfo {
    /// Salt of the split that was held out; none where all was learned.
    pub salt: Option<String>,
    /// GPUs and how many of their problems were learned.
    pub learned: Vec<(String, usize)>,
    /// The GPU that was left out whole.
    pub left_out: Vec<String>,
    /// Seed of the training.
    pub seed: u64,
}

/// A trained chooser.
pub struct Chooser {
    /// The measured problems.
    pub memory: Memory,
    /// By GPU of the memory: its own trees, where enough of it was measured.
    pub native: Vec<Option<Models>>,
    /// Trees for GPUs for which those of others vote.
    pub foreign: Option<Models>,
    /// By GPU of the memory: corrections of those with few problems.
    pub corrections: Vec<Vec<Correction>>,
    /// Facts.
    pub info: ChooserInfo,
}

/// A candidate with what is said of it.
pub(super) struct Judged {
    pub solver: u16,
    pub order: f32,
    pub best: f32,
    pub time: f32,
    pub spread: f32,
    pub workspace: u64,
}

impl Chooser {
    /// A solver by its number.
    pub fn solver(&self, number: u16) -> &FindSolver {
        &self.memory.solvers[usize::from(number)]
    }

    /// Answers. A problem that nothing is like has an answer without choices.
    pub fn choose(&self, asked: &Asked<'_>) -> FindAnswer {
        let own = self.memory.gpu(asked.device);
        let measured = own.filter(|_| asked.recall).and_then(|g| {
            let gpu = &self.memory.gpus[g];
            Some((gpu, gpu.find(asked.problem)?))
        });
        let (mut judged, near, told_by) = self.judge(asked.problem, asked.device, Without::Nothing);
        if let Some(g) = told_by {
            self.add_seldom(g, asked, &mut judged);
        }
        let mut choices = self.allowed(asked, judged);
        let mut source =
            if near.is_empty() { ChooserSource::Neighbours } else { ChooserSource::Model };
        if let Some((gpu, problem)) = measured {
            self.recalled(gpu, problem, asked, &mut choices);
            source = ChooserSource::Database;
        }
        let reason = self.reason(asked, source, &near, told_by);
        FindAnswer { source, choices, reason }
    }

    /// Candidates with what is said of them, the neighbours of the first source, and its place.
    pub(super) fn judge(
        &self,
        p: &FindProblem,
        device: &str,
        without: Without,
    ) -> (Vec<Judged>, Vec<Near>, Option<usize>) {
        let own = self.memory.gpu(device);
        let enough = self.memory.enough();
        if let Some((g, models)) = own.and_then(|g| Some((g, self.native[g].as_ref()?))) {
            let gpu = &self.memory.gpus[g];
            let (judged, near) = one_source(gpu, &gpu.facts, models, p, without);
            if !near.is_empty() {
                return (judged, near, Some(g));
            }
        }
        let facts = GpuFacts::of(device).0;
        // With one GPU measured, its own trees are all that there is.
        let only = self.native.iter().flatten().next();
        let Some(models) = self.foreign.as_ref().or(only) else {
            return (Vec::new(), Vec::new(), None);
        };
        let mut all: Vec<Judged> = Vec::new();
        let (mut nearest, mut told_by, mut asked_of) = (Vec::new(), None, 0);
        for g in self.memory.alike(&facts, enough) {
            if Some(g) == own || asked_of == SOURCES {
                continue;
            }
            let (judged, near) = one_source(&self.memory.gpus[g], &facts, models, p, without);
            if near.is_empty() {
                continue;
            }
            asked_of += 1;
            if told_by.is_none() {
                (all, nearest, told_by) = (judged, near, Some(g));
            } else {
                append(&mut all, judged);
            }
        }
        if let Some(g) = own.filter(|&g| !self.corrections[g].is_empty()) {
            // Corrections bring orders to losses above what was the least of them.
            let least = least_order(&all);
            self.correct(g, p, &mut all);
            self.add_own(g, p, without, if all.is_empty() { 0.0 } else { least }, &mut all);
            rescale(&mut all);
        }
        (all, nearest, told_by)
    }

    /// Brings candidates to what the GPU's own few problems say.
    fn correct(&self, gpu: usize, p: &FindProblem, all: &mut [Judged]) {
        let here = super::problem::place(p);
        let table = &self.memory.gpus[gpu].table;
        // Without corrections a sum is drawn to none, a solver's to that of all.
        let (mut overall, mut mass) = (0.0f32, 1.0f32);
        let mut by_solver = vec![(0.0f32, 0.0f32, 0.0f32); all.len()];
        for c in &self.corrections[gpu] {
            let q = &table.problems[c.problem as usize];
            let there = super::problem::place(q);
            let far: f32 = there.iter().zip(here).map(|(a, b)| (a - b).abs()).sum();
            let same = q.precision == p.precision && q.direction == p.direction;
            let w = if same { 1.0 } else { 0.3 } / (1.0 + far);
            overall += w * c.time;
            mass += w;
            if let Some(i) = all.iter().position(|j| j.solver == c.solver) {
                let s = &mut by_solver[i];
                *s = (s.0 + w, s.1 + w * c.order, s.2 + w * c.time);
            }
        }
        let overall = overall / mass;
        for (j, (w, order, time)) in all.iter_mut().zip(by_solver) {
            j.order += order / (w + 0.5);
            j.time += (time + 0.5 * overall) / (w + 0.5);
        }
    }

    /// Adds the solvers that only the GPU's own few problems list: newer GPUs have new ones. One
    /// that loses nothing has the order `least`.
    fn add_own(
        &self,
        gpu: usize,
        p: &FindProblem,
        without: Without,
        least: f32,
        all: &mut Vec<Judged>,
    ) {
        let own = &self.memory.gpus[gpu];
        let near = own.nearest(p, without);
        for c in candidates(own, &near) {
            if holds(all, c.solver) {
                continue;
            }
            all.push(Judged {
                solver: c.solver,
                order: least + c.loss,
                best: c.first,
                time: c.pace.0 + work(p),
                spread: SELDOM_SPREAD,
                workspace: needed(own, &near, c.solver, p),
            });
        }
    }

    /// Puts the solvers behind that no neighbour lists and that serve other problems of the kind:
    /// where none of the candidates applies, one of these does.
    fn add_seldom(&self, gpu: usize, asked: &Asked<'_>, all: &mut Vec<Judged>) {
        let p = asked.problem;
        let source = &self.memory.gpus[gpu];
        let facts = GpuFacts::of(asked.device).0;
        let share = self.foreign.as_ref().map_or(0.5, |m| m.roof_share);
        let last = last_order(all) + 1.0;
        for (s, place) in source.group(p).solvers.iter().zip(0u16..) {
            if holds(all, s.number) {
                continue;
            }
            let example = (&source.table.problems[s.example.0 as usize], s.example.1);
            all.push(Judged {
                solver: s.number,
                order: last + f32::from(place),
                best: 0.0,
                time: s.pace + work(p) + share * roof_ratio(p, (&facts, &source.facts)),
                spread: SELDOM_SPREAD,
                workspace: workspace(p, &[example]),
            });
        }
    }

    /// Candidates that are allowed, best first.
    fn allowed(&self, asked: &Asked<'_>, mut judged: Vec<Judged>) -> Vec<Choice> {
        judged.retain(|j| {
            asked.workspace.is_none_or(|room| j.workspace <= room)
                && !asked.without.contains(&self.solver(j.solver).name)
        });
        judged.sort_by(|a, b| a.order.total_cmp(&b.order).then(a.solver.cmp(&b.solver)));
        let sum: f32 = judged.iter().map(|j| j.best).sum();
        let choice = |j: &Judged| {
            let ms = |off: f32| f64::from(j.time + off).exp();
            Choice {
                solver: j.solver,
                ms: ms(0.0),
                range: (ms(-j.spread), ms(j.spread)),
                workspace: j.workspace,
                probability: f64::from(j.best / sum.max(1e-9)),
            }
        };
        judged.iter().map(choice).collect()
    }

    /// Puts what was measured of the problem first.
    fn recalled(
        &self,
        gpu: &GpuMemory,
        problem: usize,
        asked: &Asked<'_>,
        choices: &mut Vec<Choice>,
    ) {
        let rows = gpu.table.rows_of(problem).iter().filter(|r| {
            asked.workspace.is_none_or(|room| r.workspace <= room)
                && !asked.without.contains(&self.solver(r.solver).name)
        });
        let known = |r: &squall_core::find::Found, first: bool| {
            let ms = f64::from(r.ms);
            // A second measurement moves times by a fifth.
            let range = (ms / 1.2, ms * 1.2);
            let probability = if first { 0.85 } else { 0.05 };
            Choice { solver: r.solver, ms, range, workspace: r.workspace, probability }
        };
        let listed: Vec<Choice> = rows.enumerate().map(|(i, r)| known(r, i == 0)).collect();
        if listed.is_empty() {
            return;
        }
        choices.retain(|c| gpu.table.rows_of(problem).iter().all(|r| r.solver != c.solver));
        let slowest = listed[listed.len() - 1].ms;
        for c in choices.iter_mut() {
            c.probability *= 0.02;
            c.ms = c.ms.max(slowest);
            c.range = (c.range.0.min(c.ms), c.range.1.max(c.ms));
        }
        choices.splice(0..0, listed);
        let sum: f64 = choices.iter().map(|c| c.probability).sum();
        choices.iter_mut().for_each(|c| c.probability /= sum.max(1e-9));
    }

    fn reason(
        &self,
        asked: &Asked<'_>,
        source: ChooserSource,
        near: &[Near],
        told_by: Option<usize>,
    ) -> String {
        let Some(g) = told_by else {
            return "no measured problem has this precision, direction and number of dimensions"
                .into();
        };
        let gpu = &self.memory.gpus[g].table.device;
        match source {
            ChooserSource::Database => format!("it was measured on {}", asked.device),
            _ if gpu == asked.device => format!(
                "{} measured problems are like it, the nearest at a distance of {:.2}",
                near.len(),
                near.first().map_or(0.0, |n| n.1)
            ),
            _ => {
                let own = self.memory.gpu(asked.device).map_or(0, |g| self.corrections[g].len());
                let known = match own {
                    0 => format!("nothing was measured on {}", asked.device),
                    n => format!("{n} times of {} correct it", asked.device),
                };
                format!(
                    "{} problems measured on {gpu} are like it, the nearest at a distance of \
                     {:.2}; {known}",
                    near.len(),
                    near.first().map_or(0.0, |n| n.1)
                )
            }
        }
    }
}

/// What one GPU's neighbours say, by trees.
fn one_source(
    gpu: &GpuMemory,
    facts: &GpuFacts,
    models: &Models,
    p: &FindProblem,
    without: Without,
) -> (Vec<Judged>, Vec<Near>) {
    let near = gpu.nearest(p, without);
    let all = candidates(gpu, &near);
    let mut rows = Vec::new();
    let pair = (facts, &gpu.facts);
    features(p, &near, &all, pair, &mut rows);
    let told = told(models.times_from, p, &all, pair, models.roof_share);
    let said = models.say(p.deep, &told, &rows);
    let judge = |(c, s): (&Candidate, Said)| Judged {
        solver: c.solver,
        order: s.order,
        best: s.best,
        time: s.time,
        spread: s.spread,
        workspace: needed(gpu, &near, c.solver, p),
    };
    (all.iter().zip(said).map(judge).collect(), near)
}

/// The workspace that the neighbours tell, those of the same layout first: a solver may need room
/// to turn the other one round.
fn needed(gpu: &GpuMemory, near: &[Near], solver: u16, p: &FindProblem) -> u64 {
    let listed = near.iter().filter_map(|&(i, _)| {
        let row = gpu.table.rows_of(i as usize).iter().find(|r| r.solver == solver)?;
        Some((&gpu.table.problems[i as usize], row.workspace))
    });
    let (mut same, other): (Vec<_>, Vec<_>) = listed.partition(|(q, _)| q.order == p.order);
    same.extend(other);
    same.truncate(MOST_ROWS);
    workspace(p, &same)
}

fn holds(all: &[Judged], solver: u16) -> bool {
    all.iter().any(|j| j.solver == solver)
}

fn least_order(all: &[Judged]) -> f32 {
    all.iter().map(|j| j.order).fold(f32::INFINITY, f32::min)
}

/// The order behind which nothing stands.
fn last_order(all: &[Judged]) -> f32 {
    all.iter().map(|j| j.order).fold(0.0, f32::max)
}

/// Puts the candidates behind that only the second GPU's neighbours name.
fn append(all: &mut Vec<Judged>, more: Vec<Judged>) {
    let last = last_order(all);
    for m in more {
        if !holds(all, m.solver) {
            all.push(Judged { order: last + m.order, best: m.best * SECOND_SHARE, ..m });
        }
    }
}

/// Probabilities that follow the order after it was corrected.
fn rescale(all: &mut [Judged]) {
    let least = least_order(all);
    let weight = |j: &Judged| (-(j.order - least) / 0.15).exp() * (0.05 + j.best);
    let sum: f32 = all.iter().map(weight).sum();
    for j in all.iter_mut() {
        j.best = weight(j) / sum;
    }
}
