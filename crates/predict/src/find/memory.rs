//! The measured problems of some GPUs, and the search for those nearest to a problem. Input: find
//! tables; output: for a problem on a GPU the neighbours by distance, among problems of the same
//! dimension, precision and direction. `candidates.rs` counts their votes.

use super::gpu::GpuFacts;
use super::problem::{PLACE, place, work};
use squall_core::find::{FindProblem, FindSolver, FindTable, fnv};
use std::collections::HashMap;
use std::sync::OnceLock;

/// The number of measured problems from which a GPU answers for itself; below it, other GPUs answer
/// and its own measurements correct them.
const ENOUGH: usize = 3000;
/// Neighbours that vote.
pub const NEIGHBOURS: usize = 16;
/// Places are compared in runs of so many.
const RUN: usize = 128;

/// Problems of one GPU, dimension, precision and direction.
pub struct LayerGroup {
    /// Their numbers in the GPU's table, ascending.
    pub problems: Vec<u32>,
    /// Coordinate after coordinate.
    places: Vec<f32>,
    /// Hashes of layers and of families.
    hashes: Vec<(u64, u64)>,
    /// The solvers that any of them lists, the most frequent first.
    pub solvers: Vec<GroupSolver>,
}

/// A solver among all problems of a group.
#[derive(Clone, Debug, Default)]
pub struct GroupSolver {
    /// Its number.
    pub number: u16,
    /// Problems that list it.
    pub listed: u32,
    /// Mean logarithm of time over work.
    pub pace: f32,
    /// A problem that lists it, in the GPU's table, and the workspace there.
    pub example: (u32, u64),
}

/// The problems that a search leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// Nothing.
    Nothing,
    /// Problems of the same layer.
    Layer,
    /// Problems of the same family.
    Family,
}

/// The measured problems of a GPU.
pub struct GpuMemory {
    /// Its facts.
    pub facts: GpuFacts,
    /// Its problems; solvers are numbered as in [`Memory::solvers`].
    pub table: FindTable,
    groups: Vec<OnceLock<LayerGroup>>,
    /// Problems by themselves, made at the first question.
    known: OnceLock<HashMap<FindProblem, u32>>,
}

/// All measured problems.
#[derive(Default)]
pub struct Memory {
    /// Solvers by number, of all GPUs.
    pub solvers: Vec<FindSolver>,
    /// GPUs in the order in which they were given.
    pub gpus: Vec<GpuMemory>,
}

/// A neighbour: its problem in the GPU's table, and how far it is.
pub type Near = (u32, f32);

/// The hashes of a problem's layer and family.
pub fn hashes(p: &FindProblem) -> (u64, u64) {
    (fnv(&[&p.layer()]), fnv(&[&p.family()]))
}

fn group_of(p: &FindProblem) -> usize {
    (usize::from(p.deep) * 4 + usize::from(p.precision)) * 3 + usize::from(p.direction)
}

const GROUPS: usize = 24;

fn group_solvers(table: &FindTable, problems: &[u32]) -> Vec<GroupSolver> {
    let mut all: HashMap<u16, GroupSolver> = HashMap::new();
    for &i in problems {
        let p = &table.problems[i as usize];
        for row in table.rows_of(i as usize) {
            let s = all.entry(row.solver).or_insert_with(|| GroupSolver {
                number: row.solver,
                example: (i, row.workspace),
                ..GroupSolver::default()
            });
            s.listed += 1;
            s.pace += log_pace(p, row.ms);
        }
    }
    let mut all: Vec<GroupSolver> = all.into_values().collect();
    all.iter_mut().for_each(|s| s.pace /= s.listed as f32);
    all.sort_by_key(|s| (std::cmp::Reverse(s.listed), s.number));
    all
}

impl GpuMemory {
    fn new(table: FindTable) -> GpuMemory {
        GpuMemory {
            facts: GpuFacts::of(&table.device).0,
            groups: (0..GROUPS).map(|_| OnceLock::new()).collect(),
            table,
            known: OnceLock::new(),
        }
    }

    /// The problems that a problem may be compared with.
    pub fn group(&self, p: &FindProblem) -> &LayerGroup {
        let at = group_of(p);
        self.groups[at].get_or_init(|| {
            let of = |q: &FindProblem| group_of(q) == at;
            let problems: Vec<u32> = (0..self.table.problems.len() as u32)
                .filter(|&i| of(&self.table.problems[i as usize]))
                .collect();
            let n = problems.len();
            let mut places = vec![0.0; n * PLACE];
            let mut hashed = Vec::with_capacity(n);
            for (i, &q) in problems.iter().enumerate() {
                let q = &self.table.problems[q as usize];
                for (d, x) in place(q).into_iter().enumerate() {
                    places[d * n + i] = x;
                }
                hashed.push(hashes(q));
            }
            let solvers = group_solvers(&self.table, &problems);
            LayerGroup { problems, places, hashes: hashed, solvers }
        })
    }

    /// The number of a problem, where it was measured.
    pub fn find(&self, p: &FindProblem) -> Option<usize> {
        let all = || self.table.problems.iter().cloned().zip(0..).collect();
        self.known.get_or_init(all).get(p).map(|&i| i as usize)
    }

    /// The nearest problems, nearest first.
    pub fn nearest(&self, p: &FindProblem, without: Without) -> Vec<Near> {
        let group = self.group(p);
        let n = group.problems.len();
        let at = place(p);
        let (layer, family) = if without == Without::Nothing { (0, 0) } else { hashes(p) };
        let mut found: Vec<Near> = Vec::with_capacity(NEIGHBOURS + 1);
        let mut sums = [0.0f32; RUN];
        for begin in (0..n).step_by(RUN) {
            let run = RUN.min(n - begin);
            let sums = &mut sums[..run];
            sums.fill(0.0);
            for (d, x) in at.iter().enumerate() {
                let column = &group.places[d * n + begin..][..run];
                for (s, y) in sums.iter_mut().zip(column) {
                    *s += (y - x).abs();
                }
            }
            for (i, &far) in sums.iter().enumerate() {
                if found.len() == NEIGHBOURS && far >= found[NEIGHBOURS - 1].1 {
                    continue;
                }
                let (l, f) = group.hashes[begin + i];
                let left_out = match without {
                    Without::Nothing => false,
                    Without::Layer => l == layer,
                    Without::Family => f == family || l == layer,
                };
                if left_out {
                    continue;
                }
                let place = found.partition_point(|x| x.1 <= far);
                found.insert(place, (group.problems[begin + i], far));
                found.truncate(NEIGHBOURS);
            }
        }
        found
    }
}

impl Memory {
    /// A memory of some GPUs' tables.
    pub fn new(tables: Vec<FindTable>) -> Memory {
        let mut memory = Memory::default();
        let mut numbers: HashMap<FindSolver, u16> = HashMap::new();
        for mut table in tables {
            let solvers = std::mem::take(&mut table.solvers);
            let map: Vec<u16> = solvers
                .into_iter()
                .map(|s| {
                    *numbers.entry(s.clone()).or_insert_with(|| {
                        memory.solvers.push(s);
                        (memory.solvers.len() - 1) as u16
                    })
                })
                .collect();
            for row in &mut table.rows {
                row.solver = map[usize::from(row.solver)];
            }
            memory.gpus.push(GpuMemory::new(table));
        }
        memory
    }

    /// A memory whose tables are numbered by its own solvers already.
    pub fn numbered(solvers: Vec<FindSolver>, tables: Vec<FindTable>) -> Memory {
        Memory { solvers, gpus: tables.into_iter().map(GpuMemory::new).collect() }
    }

    /// GPUs with so many problems answer by their own neighbours.
    pub fn enough(&self) -> usize {
        let largest = self.gpus.iter().map(|g| g.table.problems.len()).max().unwrap_or(0);
        ENOUGH.min(largest)
    }

    /// The place of a GPU by its name.
    pub fn gpu(&self, device: &str) -> Option<usize> {
        self.gpus.iter().position(|g| g.table.device == device)
    }

    /// The GPUs that are most like facts, of those that have at least `least` problems.
    pub fn alike(&self, facts: &GpuFacts, least: usize) -> Vec<usize> {
        let mut all: Vec<usize> =
            (0..self.gpus.len()).filter(|&g| self.gpus[g].table.problems.len() >= least).collect();
        all.sort_by(|&a, &b| {
            let far = |g: usize| self.gpus[g].facts.distance(facts);
            far(a).total_cmp(&far(b))
        });
        all
    }
}

/// The times of a problem's list against the work of the problem, as logarithms.
pub fn log_pace(p: &FindProblem, ms: f32) -> f32 {
    ms.max(1e-6).ln() - work(p)
}
