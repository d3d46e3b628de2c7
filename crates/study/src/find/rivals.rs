//! Baselines for the study of choosers, which need no training of trees: the solver that is best on
//! average, a rule for each kind of problem, and the votes of the nearest measured problems.
//! Output: an order of solvers, as the chooser's.

use squall_core::find::FindProblem;
use squall_predict::find::{Chooser, GpuFacts, Without};
use std::collections::HashMap;

/// A rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// The solvers by how often they are first, by direction.
    Average,
    /// The solvers by how often they are first, by direction, precision, filter, stride and groups.
    Rule,
    /// The votes of the eight nearest problems.
    Neighbours,
}

/// All rivals, with their names.
pub const RIVALS: &[(Rival, &str)] = &[
    (Rival::Average, "best on average"),
    (Rival::Rule, "rule per direction, precision, filter, stride, groups"),
    (Rival::Neighbours, "eight nearest problems"),
];

type Kind = (u8, u8, [i32; 3], [i32; 3], bool);
/// The number of times that each solver is first, and listed.
type Votes = HashMap<u16, (u32, u32)>;

/// Rivals that know what the chooser knows of a GPU; of one that it does not know, what it knows of
/// the most alike.
pub struct Rivals<'a> {
    chooser: &'a Chooser,
    gpu: Option<usize>,
    average: HashMap<u8, Vec<u16>>,
    rules: HashMap<Kind, Vec<u16>>,
}

fn kind(p: &FindProblem) -> Kind {
    let three = |at: usize| [p.sizes[at], p.sizes[at + 1], p.sizes[at + 2]];
    (p.direction, p.precision, three(9), three(15), p.sizes[21] > 1)
}

fn ordered(votes: Votes) -> Vec<u16> {
    let mut all: Vec<(u16, (u32, u32))> = votes.into_iter().collect();
    all.sort_by_key(|(s, v)| (std::cmp::Reverse(*v), *s));
    all.into_iter().map(|(s, _)| s).collect()
}

impl<'a> Rivals<'a> {
    /// Learns the rules.
    pub fn new(chooser: &'a Chooser, device: &str) -> Rivals<'a> {
        let memory = &chooser.memory;
        let alike = || memory.alike(&GpuFacts::of(device).0, 1).first().copied();
        let gpu = memory.gpu(device).or_else(alike);
        let mut average: HashMap<u8, Votes> = HashMap::new();
        let mut rules: HashMap<Kind, Votes> = HashMap::new();
        if let Some(g) = gpu {
            let table = &memory.gpus[g].table;
            for (i, p) in table.problems.iter().enumerate() {
                for (rank, row) in table.rows_of(i).iter().enumerate() {
                    for votes in
                        [average.entry(p.direction).or_default(), rules.entry(kind(p)).or_default()]
                    {
                        let v = votes.entry(row.solver).or_default();
                        v.0 += u32::from(rank == 0);
                        v.1 += 1;
                    }
                }
            }
        }
        let average = average.into_iter().map(|(k, v)| (k, ordered(v))).collect();
        let rules = rules.into_iter().map(|(k, v)| (k, ordered(v))).collect();
        Rivals { chooser, gpu, average, rules }
    }

    /// The names of solvers, best first.
    pub fn order(&self, rival: Rival, p: &FindProblem) -> Vec<String> {
        let none = Vec::new();
        let average = self.average.get(&p.direction).unwrap_or(&none);
        let mut all = match rival {
            Rival::Average => average.clone(),
            Rival::Rule => self.rules.get(&kind(p)).unwrap_or(&none).clone(),
            Rival::Neighbours => self.neighbours(p),
        };
        all.extend(average.iter().filter(|s| !all.contains(s)).copied().collect::<Vec<_>>());
        all.into_iter().map(|s| self.chooser.solver(s).name.clone()).collect()
    }

    fn neighbours(&self, p: &FindProblem) -> Vec<u16> {
        let Some(g) = self.gpu else { return Vec::new() };
        let gpu = &self.chooser.memory.gpus[g];
        let mut votes: HashMap<u16, (f32, f32)> = HashMap::new();
        for &(i, far) in gpu.nearest(p, Without::Nothing).iter().take(8) {
            for (rank, row) in gpu.table.rows_of(i as usize).iter().enumerate() {
                let v = votes.entry(row.solver).or_default();
                let w = 1.0 / (0.1 + far);
                v.0 += if rank == 0 { w } else { 0.0 };
                v.1 += w;
            }
        }
        let mut all: Vec<(u16, (f32, f32))> = votes.into_iter().collect();
        all.sort_by(|a, b| {
            b.1.0.total_cmp(&a.1.0).then(b.1.1.total_cmp(&a.1.1)).then(a.0.cmp(&b.0))
        });
        all.into_iter().map(|(s, _)| s).collect()
    }
}
