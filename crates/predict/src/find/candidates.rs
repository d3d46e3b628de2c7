//! The solvers of MIOpen that may serve a problem, as its measured neighbours say: how many of them
//! list a solver, how often it is the fastest, how much time is lost by taking it. Input: the
//! nearest measured problems; output: candidates, and the features of each that the trees
//! (`models.rs`) read.

use super::gpu::{FACTS, GpuFacts};
use super::memory::{GpuMemory, Near, log_pace};
use super::problem::{self, work};
use serde::{Deserialize, Serialize};
use squall_core::find::{FindProblem, FindTable, ListEnd};

/// The largest loss that is counted: e^3 times the best time.
pub const MOST_LOSS: f32 = 3.0;
/// Added to distances, so that the nearest neighbour does not vote alone.
const SOFT: f32 = 0.3;

/// A solver and what the neighbours say of it.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    /// Its number.
    pub solver: u16,
    /// Share of the votes that list it.
    pub listed: f32,
    /// Share of the votes in which it is first.
    pub first: f32,
    /// Mean loss where it is listed.
    pub loss_listed: f32,
    /// Mean loss where it applied; where a cut list lacks it, that of the last one counts.
    pub loss: f32,
    /// The least loss.
    pub least: f32,
    /// The distance of the nearest neighbour that lists it, and its loss there.
    pub near: (f32, f32),
    /// The number of times that it is first among the three nearest.
    pub first_of_three: f32,
    /// Mean logarithm of time over work, and that of the nearest.
    pub pace: (f32, f32),
    /// Share of the votes that do not exclude that it applies.
    pub applies: f32,
}

/// Sums over neighbours, of one solver.
#[derive(Clone, Default)]
struct Sums {
    solver: u16,
    listed: f32,
    first: f32,
    loss: f32,
    pace: f32,
    /// Weight, and loss of the last one, of the cut lists that have it.
    cut: (f32, f32),
    least: f32,
    near: Option<(f32, f32, f32)>,
    three: f32,
}

/// How much is lost by a list's last solver, at most [`MOST_LOSS`].
fn last_loss(table: &FindTable, problem: usize) -> f32 {
    let rows = table.rows_of(problem);
    (rows[rows.len() - 1].ms / rows[0].ms).ln().min(MOST_LOSS)
}

/// What a list's end says: whether solvers that it lacks may apply.
pub fn is_open(end: ListEnd) -> bool {
    end == ListEnd::Cut
}

/// The solvers that neighbours list, in the order of their numbers.
pub fn candidates(gpu: &GpuMemory, near: &[Near]) -> Vec<Candidate> {
    let table = &gpu.table;
    let mut all: Vec<Sums> = Vec::with_capacity(12);
    let (mut weight, mut open, mut open_loss) = (1e-9f32, 0.0, 0.0);
    for (place, &(i, far)) in near.iter().enumerate() {
        let i = i as usize;
        let w = 1.0 / (SOFT + far);
        weight += w;
        let (rows, p) = (table.rows_of(i), &table.problems[i]);
        let last = last_loss(table, i);
        let cut = is_open(table.ends[i]);
        if cut {
            open += w;
            open_loss += w * last;
        }
        for (rank, row) in rows.iter().enumerate() {
            let at = match all.iter().position(|s| s.solver == row.solver) {
                Some(at) => at,
                None => {
                    all.push(Sums { solver: row.solver, least: 9.0, ..Sums::default() });
                    all.len() - 1
                }
            };
            let (s, raw) = (&mut all[at], (row.ms / rows[0].ms).ln());
            let (loss, pace) = (raw.min(MOST_LOSS), log_pace(p, row.ms));
            s.listed += w;
            s.loss += w * loss;
            s.pace += w * pace;
            if cut {
                s.cut = (s.cut.0 + w, s.cut.1 + w * last);
            }
            s.least = s.least.min(raw);
            s.near.get_or_insert((far, loss, pace));
            if rank == 0 {
                s.first += w;
                s.three += f32::from(place < 3);
            }
        }
    }
    all.sort_by_key(|s| s.solver);
    let told = |s: Sums| {
        // Cut lists that lack it: it may apply there and be slower than the last one.
        let absent = (open - s.cut.0).max(0.0);
        let near = s.near.unwrap_or_default();
        Candidate {
            solver: s.solver,
            listed: s.listed / weight,
            first: s.first / weight,
            loss_listed: s.loss / s.listed,
            loss: (s.loss + open_loss - s.cut.1) / (s.listed + absent),
            least: s.least,
            near: (near.0, near.1),
            first_of_three: s.three,
            pace: (s.pace / s.listed, near.2),
            applies: (s.listed + absent) / weight,
        }
    };
    all.into_iter().map(told).collect()
}

/// Features before this one are the candidate's own; the others are of its problem and GPU.
pub const FIRST_SHARED: usize = 18;

/// The loss that neighbours tell.
pub const VOTED: usize = 4;

/// Features from this one on are of GPUs.
pub const FIRST_FACT: usize = FIRST_SHARED + problem::FEATURES;

/// Features of a candidate of a problem, in all.
pub const WIDTH: usize = FIRST_FACT + 2 * FACTS;

/// What trees see of each candidate: itself, beside the others, the problem, the GPU that is asked
/// for, and how it differs from the GPU whose neighbours vote. One row after another.
pub fn features(
    p: &FindProblem,
    near: &[Near],
    all: &[Candidate],
    gpu: (&GpuFacts, &GpuFacts),
    out: &mut Vec<f32>,
) {
    out.clear();
    let least = |f: fn(&Candidate) -> f32| all.iter().map(f).fold(f32::INFINITY, f32::min);
    let (pace, loss) = (least(|c| c.pace.0), least(|c| c.loss));
    let first = -least(|c| -c.first);
    let (asked, told) = (gpu.0.numbers(), gpu.1.numbers());
    let mut shared = Vec::with_capacity(WIDTH);
    problem::features(p, &mut shared);
    shared.extend(asked);
    shared.extend((0..FACTS).map(|i| asked[i] - told[i]));
    let far = |i: usize| near.get(i).or(near.last()).map_or(99.0, |n| n.1);
    for c in all {
        out.extend([
            f32::from(c.solver),
            c.listed,
            c.first,
            c.loss_listed,
            c.loss,
            c.least,
            c.near.0,
            c.near.1,
            c.first_of_three,
            c.pace.0 - pace,
            c.applies,
            far(0),
            far(7),
            c.pace.1,
            c.pace.0,
            c.loss - loss,
            c.first - first,
            all.len() as f32,
        ]);
        out.extend(&shared);
    }
}

/// The logarithm of how much slower one GPU's roof is than another's: half by arithmetic, half by
/// memory.
pub fn roof_ratio(p: &FindProblem, gpu: (&GpuFacts, &GpuFacts)) -> f32 {
    let (asked, told) = (gpu.0.roof(p.precision), gpu.1.roof(p.precision));
    (0.5 * ((told.0 / asked.0).ln() + (told.1 / asked.1).ln())) as f32
}

/// A time as the problem alone tells it, as the logarithm of milliseconds: that of its work at the
/// GPU's peak. Trees add what a solver takes beyond.
pub fn time_at_peak(p: &FindProblem, gpu: &GpuFacts) -> f32 {
    let nanoseconds = work(p) - gpu.roof(p.precision).0.ln() as f32;
    nanoseconds - 1e6f32.ln()
}

/// What times are foretold from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimesFrom {
    /// The problem alone, by its work and the GPU's roof. Where the GPU was measured, what
    /// neighbours took makes trees no better but worse.
    #[default]
    Problem,
    /// The times of neighbours on another GPU.
    Neighbours,
}

/// What times are measured against. Those that neighbours on another GPU took follow a share of the
/// ratio of the two roofs.
pub fn told(
    from: TimesFrom,
    p: &FindProblem,
    all: &[Candidate],
    gpu: (&GpuFacts, &GpuFacts),
    roof_share: f32,
) -> Vec<f32> {
    let of = |c: &Candidate| match from {
        TimesFrom::Problem => time_at_peak(p, gpu.0),
        TimesFrom::Neighbours => c.pace.0 + work(p) + roof_share * roof_ratio(p, gpu),
    };
    all.iter().map(of).collect()
}
