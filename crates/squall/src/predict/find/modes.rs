//! MIOpen's find modes (ways in which it picks a solver for a convolution), simulated on problems
//! whose solvers were all timed. Input: find tables of a store and a trained chooser; output for
//! each mode: the cost of finding a solver plus that of running it a number of times. Modes that
//! ask the chooser are compared with MIOpen's own. `api/choose.rs` calls it; `modes_page.rs`
//! draws the result.

use crate::base::error::Error;
use crate::predict::find::{tables, timings};
use crate::predict::forecast::Question;
use squall_core::find::{FindTable, Found};
use squall_predict::find::{Asked, Choice, Chooser};
use std::collections::HashMap;
use std::path::Path;

/// How a solver is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindMode {
    /// Every solver runs once, the fastest is kept: MIOpen's NORMAL, and its HYBRID on a miss.
    Normal,
    /// The solvers that need no compilation of their own run once: DYNAMIC_HYBRID on a miss.
    Dynamic,
    /// Nothing runs: the solver that is the best on average of those listed. MIOpen's FAST and
    /// immediate mode on a miss, without a network.
    Average,
    /// Nothing runs: the chooser's first.
    Asked,
    /// The chooser's first two run once, the faster is kept.
    FirstTwo,
    /// As many of the chooser's first run once as are worth it for the number of runs
    /// (`measure.rs`).
    Worth,
}

/// All modes, with their names.
pub const MODES: [(FindMode, &str); 6] = [
    (FindMode::Normal, "normal, hybrid: each solver once"),
    (FindMode::Dynamic, "dynamic hybrid: each ready-made solver once"),
    (FindMode::Average, "fast, immediate: the best on average"),
    (FindMode::Asked, "ours: the first"),
    (FindMode::FirstTwo, "ours: the faster of the first two"),
    (FindMode::Worth, "ours: as many as are worth it"),
];

/// Numbers of runs that are looked at.
pub const RUNS: [f64; 7] = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];

/// The costs of a set of problems under the modes.
#[derive(Clone, Debug, PartialEq)]
pub struct ModeCosts {
    /// Problems whose times are known, and those that were left out.
    pub problems: (usize, usize),
    /// Milliseconds by mode and by number of runs.
    pub ms: Vec<Vec<f64>>,
    /// Of these the milliseconds of finding.
    pub finding: Vec<Vec<f64>>,
}

/// Whether a solver runs without being compiled for the problem.
fn is_ready_made(name: &str) -> bool {
    ["Dynamic", "Winograd", "Naive", "Group"].iter().any(|w| name.contains(w))
        || name.starts_with("Gemm")
}

/// Solvers by how often they are first in a table, by direction and precision.
type Firsts = HashMap<(u8, u8, u16), u32>;

struct Truth<'a> {
    table: &'a FindTable,
    firsts: Firsts,
}

impl Truth<'_> {
    fn name(&self, row: &Found) -> &str {
        &self.table.solvers[usize::from(row.solver)].name
    }

    /// The cost of finding a solver, and the time of a run with it.
    fn cost(&self, mode: FindMode, problem: usize, choices: &[Listed], runs: f64) -> (f64, f64) {
        let rows = self.table.rows_of(problem);
        let ms = |r: &Found| f64::from(r.ms);
        let p = &self.table.problems[problem];
        match mode {
            FindMode::Normal => (rows.iter().map(ms).sum(), ms(&rows[0])),
            FindMode::Dynamic => {
                let ready: Vec<&Found> =
                    rows.iter().filter(|r| is_ready_made(self.name(r))).collect();
                match ready.first() {
                    Some(first) => (ready.iter().map(|r| ms(r)).sum(), ms(first)),
                    None => (rows.iter().map(ms).sum(), ms(&rows[0])),
                }
            }
            FindMode::Average => {
                let often = |r: &&Found| {
                    self.firsts.get(&(p.direction, p.precision, r.solver)).copied().unwrap_or(0)
                };
                (0.0, rows.iter().max_by_key(often).map_or(0.0, ms))
            }
            FindMode::Asked => (0.0, self.kept(problem, choices, 1).1),
            FindMode::FirstTwo => self.kept(problem, choices, 2),
            FindMode::Worth => {
                let all: Vec<Choice> = choices.iter().map(|c| c.choice.clone()).collect();
                self.kept(problem, choices, timings(&all, None, runs).measure.max(1))
            }
        }
    }

    /// The cost of timing the first that are listed, and the time of the fastest; where none is,
    /// the slowest listed solver.
    fn kept(&self, problem: usize, choices: &[Listed], k: usize) -> (f64, f64) {
        let rows = self.table.rows_of(problem);
        let listed: Vec<f64> = choices
            .iter()
            .filter_map(|c| rows.iter().find(|r| self.name(r) == c.name))
            .take(k)
            .map(|r| f64::from(r.ms))
            .collect();
        let slowest = f64::from(rows[rows.len() - 1].ms);
        let best = listed.iter().copied().fold(f64::INFINITY, f64::min);
        let cost = if k > 1 { listed.iter().sum() } else { 0.0 };
        (cost, if listed.is_empty() { slowest } else { best })
    }
}

/// An answer's solver by name.
struct Listed {
    name: String,
    choice: Choice,
}

/// Simulates the modes on the problems that the store measured on a GPU. The chooser does not look
/// at these measurements.
pub fn simulate(
    chooser: &Chooser,
    store: &Path,
    questions: &[Question],
    device: &str,
) -> Result<ModeCosts, Error> {
    let all = tables(store, Some(device))?;
    let table = &all[0];
    let places: HashMap<_, usize> = table.problems.iter().zip(0..).collect();
    let mut firsts = Firsts::new();
    for (i, p) in table.problems.iter().enumerate() {
        *firsts.entry((p.direction, p.precision, table.rows_of(i)[0].solver)).or_default() += 1;
    }
    let truth = Truth { table, firsts };
    let mut out = ModeCosts {
        problems: (0, 0),
        ms: vec![vec![0.0; RUNS.len()]; MODES.len()],
        finding: vec![vec![0.0; RUNS.len()]; MODES.len()],
    };
    for q in questions {
        let problem = q.convolution.find_problem().ok();
        let Some((problem, &at)) = problem.and_then(|p| Some((p.clone(), places.get(&p)?))) else {
            out.problems.1 += 1;
            continue;
        };
        out.problems.0 += 1;
        let asked =
            Asked { problem: &problem, device, workspace: None, without: &[], recall: false };
        let choices: Vec<Listed> = chooser
            .choose(&asked)
            .choices
            .into_iter()
            .map(|choice| Listed { name: chooser.solver(choice.solver).name.clone(), choice })
            .collect();
        for (m, (mode, _)) in MODES.iter().enumerate() {
            for (r, &runs) in RUNS.iter().enumerate() {
                let (finding, ms) = truth.cost(*mode, at, &choices, runs);
                out.finding[m][r] += finding;
                out.ms[m][r] += finding + runs * ms;
            }
        }
    }
    if out.problems.0 == 0 {
        return Err(Error::Nothing(format!(
            "none of the problems was measured on {device}: nothing says what they cost"
        )));
    }
    Ok(out)
}
