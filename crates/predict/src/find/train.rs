//! Trains a chooser of solvers. Input: find tables and [`FindTraining`]; output: a chooser. Each
//! measured problem becomes a lesson: the candidates that its neighbours name, where its own layer
//! or family is left out, and the true time of each. Trees (`models.rs`) learn from these lessons.

use super::candidates::{
    Candidate, MOST_LOSS, TimesFrom, WIDTH, candidates, features, is_open, roof_ratio, told,
};
use super::chooser::{Chooser, ChooserInfo, Correction};
use super::gpu::GpuFacts;
use super::memory::{Memory, Without, hashes, log_pace};
use super::models::{Effort, Lessons, ModelStanding, Models, PARTS, train as train_models};
use super::trees::Bins;
use crate::parallel;
use squall_core::find::{FindPart, FindTable, find_part};

/// The number of problems whose features decide where numbers are cut into bins.
const SAMPLE: usize = 8000;
/// The most measured problems of a GPU with few of them that correct the answers for it.
const MOST_CORRECTIONS: usize = 1500;
/// The least number of such problems for which a correction is made.
const LEAST_CORRECTIONS: usize = 10;

/// The data and the options of a training.
#[derive(Clone, Debug)]
pub struct FindTraining {
    /// Salt of the split whose layers and families are left out; all is learned without one.
    pub salt: Option<String>,
    /// GPUs that are left out whole.
    pub left_out: Vec<String>,
    /// Trees of a forest.
    pub rounds: usize,
    /// Threads; they do not change the result.
    pub threads: usize,
    /// The seed of every random choice.
    pub seed: u64,
}

impl Default for FindTraining {
    fn default() -> FindTraining {
        FindTraining { salt: None, left_out: Vec::new(), rounds: 250, threads: 1, seed: 1 }
    }
}

/// The progress of a training. Each GPU learns from its own problems, and at last all from those of
/// others, for GPUs that were not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindStep<'a> {
    /// Neighbours of so many problems are looked for.
    Neighbours(usize, Option<&'a str>),
    /// Trees are grown from so many candidates.
    Trees(usize, Option<&'a str>),
}

/// A problem to learn from.
struct Item {
    /// The GPU whose times are learned.
    gpu: usize,
    /// The GPU whose neighbours vote.
    source: usize,
    problem: u32,
    without: Without,
    part: u8,
}

/// The lesson of an item: a run of candidates.
#[derive(Default)]
struct Lesson {
    /// Bins of features, candidate after candidate.
    bins: Vec<u8>,
    losses: Vec<f32>,
    standings: Vec<ModelStanding>,
    told: Vec<f32>,
    residuals: Vec<f32>,
}

/// The problems of a table that a split gives.
fn given(table: FindTable, salt: &str) -> FindTable {
    let mut out = FindTable {
        device: table.device.clone(),
        solvers: table.solvers.clone(),
        starts: vec![0],
        ..FindTable::default()
    };
    for (i, p) in table.problems.iter().enumerate() {
        if find_part(p, salt) == FindPart::Given {
            out.rows.extend(table.rows_of(i));
            out.starts.push(out.rows.len() as u32);
            out.ends.push(table.ends[i]);
            out.problems.push(p.clone());
        }
    }
    out
}

/// Trains a chooser; nothing where it was stopped.
pub fn train(
    tables: Vec<FindTable>,
    t: &FindTraining,
    go_on: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn FnMut(FindStep<'_>),
) -> Option<Chooser> {
    let kept = tables.into_iter().filter(|x| !t.left_out.contains(&x.device));
    let tables: Vec<FindTable> = match &t.salt {
        Some(salt) => kept.map(|x| given(x, salt)).collect(),
        None => kept.collect(),
    };
    let memory = Memory::new(tables);
    let enough = memory.enough();
    let rich: Vec<usize> =
        (0..memory.gpus.len()).filter(|&g| memory.gpus[g].table.problems.len() >= enough).collect();
    let mut models = |only: Option<usize>| -> Option<Models> {
        let items = items(&memory, &rich, only);
        let name = only.map(|g| memory.gpus[g].table.device.as_str());
        progress(FindStep::Neighbours(items.len(), name));
        let from = if only.is_none() { TimesFrom::Neighbours } else { TimesFrom::Problem };
        let sample = Sample::new(&memory, &items, t.threads);
        let share = sample.roof_share;
        let (bins, rows, lessons) = lessons(&memory, &items, from, sample, t.threads, go_on)?;
        progress(FindStep::Trees(lessons.losses.len(), name));
        let rounds = if only.is_none() { t.rounds * 3 / 5 } else { t.rounds };
        let effort = Effort { rounds, threads: t.threads, seed: t.seed };
        let mut models = train_models(bins, &rows, &lessons, from, &effort, go_on);
        models.roof_share = share;
        go_on().then_some(models)
    };
    let mut native: Vec<Option<Models>> = (0..memory.gpus.len()).map(|_| None).collect();
    for &g in &rich {
        native[g] = Some(models(Some(g))?);
    }
    let foreign = if rich.len() > 1 { Some(models(None)?) } else { None };
    let info = ChooserInfo {
        salt: t.salt.clone(),
        learned: memory
            .gpus
            .iter()
            .map(|g| (g.table.device.clone(), g.table.problems.len()))
            .collect(),
        left_out: t.left_out.clone(),
        seed: t.seed,
    };
    let none = vec![Vec::new(); memory.gpus.len()];
    let mut chooser = Chooser { memory, native, foreign, corrections: none, info };
    for g in (0..chooser.memory.gpus.len()).filter(|g| !rich.contains(g)) {
        chooser.corrections[g] = corrections(&chooser, g);
    }
    Some(chooser)
}

/// The problems to learn from: those of one GPU with its own neighbours, or those of all with the
/// neighbours of others. Half of them see neighbours without their layer, half without their
/// family; of other GPUs' neighbours a third sees all.
fn items(memory: &Memory, rich: &[usize], only: Option<usize>) -> Vec<Item> {
    let mut all = Vec::new();
    for &gpu in rich.iter().filter(|&&g| only.is_none_or(|x| x == g)) {
        let g = &memory.gpus[gpu];
        let sources: Vec<usize> =
            memory.alike(&g.facts, memory.enough()).into_iter().filter(|&s| s != gpu).collect();
        for (i, p) in g.table.problems.iter().enumerate() {
            let (layer, family) = hashes(p);
            let part = ((family >> 33) % PARTS) as u8;
            let way = family >> 21;
            let mut item =
                Item { gpu, source: gpu, problem: i as u32, without: Without::Layer, part };
            if only.is_none() {
                if layer >> 17 & 3 == 0 || sources.is_empty() {
                    continue;
                }
                let second = usize::from(sources.len() > 1 && layer >> 40 & 3 == 0);
                item.source = sources[second];
                // Forests are judged by GPUs that they did not see, the newest: names rise.
                item.part = rich.iter().rev().position(|&g| g == gpu).unwrap_or(0) as u8;
                item.without = match way % 3 {
                    0 => Without::Nothing,
                    1 => Without::Layer,
                    _ => Without::Family,
                };
            } else if way & 1 == 0 {
                item.without = Without::Family;
            }
            all.push(item);
        }
    }
    all
}

/// What neighbours say of an item: candidates and their features.
fn shown(memory: &Memory, item: &Item, rows: &mut Vec<f32>) -> Vec<Candidate> {
    let (target, source) = (&memory.gpus[item.gpu], &memory.gpus[item.source]);
    let p = &target.table.problems[item.problem as usize];
    let near = source.nearest(p, item.without);
    let all = candidates(source, &near);
    features(p, &near, &all, (&target.facts, &source.facts), rows);
    all
}

/// Numbers that a sample of the items gives before any item is learned.
struct Sample {
    /// Where the features are cut into bins.
    bins: Bins,
    /// The share of the ratio of two GPUs' roofs that times follow: the least squares' through 0.
    roof_share: f32,
}

impl Sample {
    fn new(memory: &Memory, items: &[Item], threads: usize) -> Sample {
        let step = (items.len() / SAMPLE).max(1);
        let sample: Vec<&Item> = items.iter().step_by(step).collect();
        let told = parallel::map(threads, &sample, |item, _: &mut ()| {
            let mut rows = Vec::new();
            let all = shown(memory, item, &mut rows);
            (rows, ratios(memory, item, &all))
        });
        let sum = |of: fn(&(f32, f32)) -> f32| told.iter().flat_map(|t| &t.1).map(of).sum::<f32>();
        let (both, roofs) = (sum(|x| x.0 * x.1), sum(|x| x.0 * x.0));
        let roof_share = if roofs > 0.0 { (both / roofs).clamp(0.0, 1.0) } else { 0.5 };
        let rows: Vec<f32> = told.into_iter().flat_map(|t| t.0).collect();
        let bins = Bins::new(WIDTH, rows.len() / WIDTH, &|r, f| rows[r * WIDTH + f]);
        Sample { bins, roof_share }
    }
}

/// How much slower an item's GPU is than that of its neighbours: by the roofs, and by the times of
/// each candidate that both list.
fn ratios(memory: &Memory, item: &Item, all: &[Candidate]) -> Vec<(f32, f32)> {
    let (target, source) = (&memory.gpus[item.gpu], &memory.gpus[item.source]);
    let p = &target.table.problems[item.problem as usize];
    let roof = roof_ratio(p, (&target.facts, &source.facts));
    let of = |c: &Candidate| match standing(&target.table, item.problem as usize, c.solver) {
        (ModelStanding::Listed, ms) => Some((roof, log_pace(p, ms) - c.pace.0)),
        _ => None,
    };
    all.iter().filter_map(of).collect()
}

/// Lessons of all items, with the bins of their features.
fn lessons(
    memory: &Memory,
    items: &[Item],
    from: TimesFrom,
    sample: Sample,
    threads: usize,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Option<(Bins, Vec<u8>, Lessons)> {
    let Sample { bins, roof_share } = sample;
    let all: Vec<Lesson> = parallel::map(threads, items, |item, rows: &mut Vec<f32>| {
        if !go_on() {
            return Lesson::default();
        }
        lesson(memory, item, from, roof_share, &bins, rows)
    });
    if !go_on() {
        return None;
    }
    let n: usize = all.iter().map(|l| l.bins.len()).sum();
    let mut rows = Vec::with_capacity(n);
    let mut out = Lessons { starts: vec![0], ..Lessons::default() };
    for (item, l) in items.iter().zip(all).filter(|(_, l)| !l.losses.is_empty()) {
        rows.extend(l.bins);
        out.losses.extend(l.losses);
        out.standings.extend(l.standings);
        out.told.extend(l.told);
        out.residuals.extend(l.residuals);
        out.deep.push(memory.gpus[item.gpu].table.problems[item.problem as usize].deep);
        out.starts.push(out.losses.len() as u32);
        out.parts.push(item.part);
    }
    Some((bins, rows, out))
}

fn lesson(
    memory: &Memory,
    item: &Item,
    from: TimesFrom,
    roof_share: f32,
    bins: &Bins,
    rows: &mut Vec<f32>,
) -> Lesson {
    let all = shown(memory, item, rows);
    let (target, source) = (&memory.gpus[item.gpu], &memory.gpus[item.source]);
    let problem = item.problem as usize;
    let (p, list) = (&target.table.problems[problem], target.table.rows_of(problem));
    let told = told(from, p, &all, (&target.facts, &source.facts), roof_share);
    let mut out = Lesson::default();
    for ((c, row), told) in all.iter().zip(rows.chunks_exact(WIDTH)).zip(&told) {
        let (standing, ms) = standing(&target.table, problem, c.solver);
        out.bins.extend(row.iter().enumerate().map(|(f, &x)| bins.of(f, x)));
        out.losses.push((ms / list[0].ms).ln().min(MOST_LOSS));
        out.residuals.push(match standing {
            ModelStanding::Listed => ms.ln() - told,
            _ => 0.0,
        });
        out.standings.push(standing);
    }
    out.told = told;
    out
}

/// What became of a solver, and its time; where a list lacks it, that of the last one.
pub(super) fn standing(table: &FindTable, problem: usize, solver: u16) -> (ModelStanding, f32) {
    let list = table.rows_of(problem);
    let last = list[list.len() - 1].ms;
    match list.iter().find(|r| r.solver == solver) {
        Some(r) => (ModelStanding::Listed, r.ms),
        None if is_open(table.ends[problem]) => (ModelStanding::Behind, last),
        None => (ModelStanding::Out, last),
    }
}

/// How the few measurements of a GPU differ from what those of others foretell.
fn corrections(chooser: &Chooser, gpu: usize) -> Vec<Correction> {
    let table = &chooser.memory.gpus[gpu].table;
    let n = table.problems.len();
    if n < LEAST_CORRECTIONS {
        return Vec::new();
    }
    let mut out = Vec::new();
    for problem in (0..n).step_by(n.div_ceil(MOST_CORRECTIONS)) {
        let p = &table.problems[problem];
        let (judged, ..) = chooser.judge(p, &table.device, Without::Nothing);
        let least = judged.iter().map(|j| j.order).fold(f32::INFINITY, f32::min);
        let best = table.rows_of(problem)[0].ms;
        for j in judged {
            let (standing, ms) = standing(table, problem, j.solver);
            // A solver that did not apply is as bad as one that takes long.
            let loss = match standing {
                ModelStanding::Out => MOST_LOSS / 2.0,
                _ => (ms / best).ln().min(MOST_LOSS),
            };
            let time = if standing == ModelStanding::Listed { ms.ln() - j.time } else { 0.0 };
            let order = (loss - (j.order - least)).clamp(-2.0, 2.0);
            let time = time.clamp(-1.5, 1.5);
            out.push(Correction { problem: problem as u32, solver: j.solver, order, time });
        }
    }
    out
}

/// Whether the facts of a GPU are known by its name.
pub fn is_known_gpu(device: &str) -> bool {
    GpuFacts::of(device).1
}
