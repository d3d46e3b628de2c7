//! The study of choosers of MIOpen's solvers on find databases: Squall's chooser against simple
//! rules, nearest neighbours, and TunaNet, MIOpen's own network. Output: rows of measures by GPU,
//! dimensions, part, precision and direction, for the layers, families and GPUs that the chooser
//! did not learn from.

mod measures;
mod page;
mod rivals;
mod tunanet;

pub use measures::{Scores, Times};
pub use page::page;
pub use rivals::RIVALS;
pub use tunanet::{Network, TunaNetError};

use measures::{Outcome, outcome};
use rivals::Rivals;
use squall::find::tables;
use squall_core::find::{FindPart, FindProblem, FindTable, PRECISIONS, find_part};
use squall_predict::find::{Asked, Chooser};
use std::collections::HashMap;
use std::path::Path;

/// Problems of a part of a GPU that are looked at, at most; others are skipped evenly.
const MOST: usize = 20_000;

/// The scope of the study.
#[derive(Clone, Debug, Default)]
pub struct FindStudy {
    /// Only this GPU.
    pub device: Option<String>,
    /// Networks that MIOpen ships.
    pub networks: Vec<Network>,
    /// At most so many problems of a part.
    pub most: Option<usize>,
}

/// A row of the evaluation.
#[derive(Clone, Debug)]
pub struct FindRow {
    /// The GPU.
    pub device: String,
    /// `layers`, `families`, or `all` of a GPU that was not learned.
    pub part: &'static str,
    /// Dimensions: 2 or 3.
    pub dimensions: u8,
    /// The precision, or all.
    pub precision: Option<&'static str>,
    /// The direction F, B, W, or all.
    pub direction: Option<char>,
    /// Who answers.
    pub method: String,
    /// How well.
    pub scores: Scores,
    /// Of the chooser: how well times are foretold.
    pub times: Option<Times>,
}

/// Answers of one method for the problems of a part.
struct Answers {
    method: String,
    outcomes: Vec<Outcome>,
    times: Vec<Times>,
}

/// Evaluates a chooser on what it did not learn: the layers and families that its salt held out,
/// and GPUs that it left out.
pub fn evaluate(
    chooser: &Chooser,
    store: &Path,
    study: &FindStudy,
    progress: &mut dyn FnMut(&str) -> bool,
) -> Result<Vec<FindRow>, squall::Error> {
    let mut rows = Vec::new();
    for table in tables(store, study.device.as_deref())? {
        let table = by_name(table);
        let learned = chooser.memory.gpu(&table.device).is_some();
        let parts: &[(&'static str, Option<FindPart>)] = match (&chooser.info.salt, learned) {
            (_, false) => &[("all", None)],
            (Some(_), true) => {
                &[("layers", Some(FindPart::Layer)), ("families", Some(FindPart::Family))]
            }
            (None, true) => &[],
        };
        for &(name, part) in parts {
            for deep in [false, true] {
                let salt = chooser.info.salt.as_deref().unwrap_or("");
                let wanted = |p: &FindProblem| {
                    p.deep == deep && part.is_none_or(|x| find_part(p, salt) == x)
                };
                let held: Vec<usize> =
                    (0..table.problems.len()).filter(|&i| wanted(&table.problems[i])).collect();
                if held.is_empty() {
                    continue;
                }
                let step = held.len().div_ceil(study.most.unwrap_or(MOST));
                let held: Vec<usize> = held.into_iter().step_by(step).collect();
                if !progress(&format!("{} {name}, {} problems", table.device, held.len())) {
                    return Ok(rows);
                }
                rows.extend(part_rows(chooser, &table, study, name, &held));
            }
        }
    }
    if rows.is_empty() {
        return Err(squall::Error::Nothing(
            "the chooser learned every problem of the store: train it with --salt or --leave-out"
                .into(),
        ));
    }
    Ok(rows)
}

/// The table with one number for each name. MIOpen gives a solver that serves several directions an
/// algorithm of each, and the store keeps them apart; an answer is right by its solver's name.
fn by_name(mut table: FindTable) -> FindTable {
    let first = numbers_of(&table);
    let numbers: Vec<u16> = table.solvers.iter().map(|s| first[s.name.as_str()]).collect();
    table.rows.iter_mut().for_each(|r| r.solver = numbers[usize::from(r.solver)]);
    table
}

/// Table numbers of solvers by name, the first of each.
fn numbers_of(table: &FindTable) -> HashMap<&str, u16> {
    let mut all = HashMap::new();
    (0u16..).zip(&table.solvers).for_each(|(n, s)| {
        all.entry(s.name.as_str()).or_insert(n);
    });
    all
}

/// Rows of one part of a GPU, in all and by precision and direction.
fn part_rows(
    chooser: &Chooser,
    table: &FindTable,
    study: &FindStudy,
    part: &'static str,
    held: &[usize],
) -> Vec<FindRow> {
    let names = numbers_of(table);
    let mut all = vec![ours(chooser, table, held, &names)];
    let rivals = Rivals::new(chooser, &table.device);
    for (method, name) in RIVALS {
        let order = |&i: &usize| {
            let told = rivals.order(*method, &table.problems[i]);
            outcome(table, i, &numbers(told.iter().map(String::as_str), &names))
        };
        let outcomes = held.iter().map(order).collect();
        all.push(Answers { method: (*name).into(), outcomes, times: Vec::new() });
    }
    let mut rows = Vec::new();
    let deep = table.problems[held[0]].deep;
    let mut add = |precision: Option<u8>, direction: Option<u8>, all: &[Answers]| {
        for a in all {
            let picked: Vec<usize> = (0..held.len())
                .filter(|&k| {
                    let p = &table.problems[held[k]];
                    precision.is_none_or(|x| x == p.precision)
                        && direction.is_none_or(|x| x == p.direction)
                })
                .collect();
            if picked.is_empty() {
                continue;
            }
            rows.push(FindRow {
                device: table.device.clone(),
                part,
                dimensions: if deep { 3 } else { 2 },
                precision: precision.map(|p| PRECISIONS[usize::from(p)]),
                direction: direction.map(|d| ['F', 'B', 'W'][usize::from(d)]),
                method: a.method.clone(),
                scores: Scores::of(picked.iter().map(|&k| &a.outcomes[k])),
                times: (!a.times.is_empty())
                    .then(|| Times::sum(picked.iter().map(|&k| &a.times[k]))),
            });
        }
    };
    add(None, None, &all);
    for precision in 0..PRECISIONS.len() as u8 {
        add(Some(precision), None, &all[..1]);
    }
    for direction in 0..3 {
        add(None, Some(direction), &all[..1]);
    }
    for network in study.networks.iter().filter(|n| n.serves(&table.device)) {
        rows.extend(against(chooser, table, network, part, held));
    }
    rows
}

/// Table numbers of solvers by name; those that the table lacks are 65535.
fn numbers<'a>(told: impl Iterator<Item = &'a str>, names: &HashMap<&str, u16>) -> Vec<u16> {
    told.map(|n| names.get(n).copied().unwrap_or(u16::MAX)).collect()
}

fn asked<'a>(problem: &'a FindProblem, device: &'a str) -> Asked<'a> {
    Asked { problem, device, workspace: None, without: &[], recall: false }
}

/// What the chooser answers.
fn ours(
    chooser: &Chooser,
    table: &FindTable,
    held: &[usize],
    names: &HashMap<&str, u16>,
) -> Answers {
    let mut out = Answers { method: "chooser".into(), outcomes: Vec::new(), times: Vec::new() };
    for &i in held {
        let answer = chooser.choose(&asked(&table.problems[i], &table.device));
        let told = answer.choices.iter().map(|c| chooser.solver(c.solver).name.as_str());
        let order = numbers(told, names);
        out.times.push(Times::of(table, i, &order, &answer.choices));
        out.outcomes.push(outcome(table, i, &order));
    }
    out
}

/// A network that MIOpen ships and the chooser, on the network's own ground: its problems, and its
/// solvers only.
fn against(
    chooser: &Chooser,
    table: &FindTable,
    network: &Network,
    part: &'static str,
    held: &[usize],
) -> Vec<FindRow> {
    let names = numbers_of(table);
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for &i in held {
        let Some(told) = network.order(&table.problems[i]) else { continue };
        let answer = chooser.choose(&asked(&table.problems[i], &table.device));
        let mine = answer.choices.iter().map(|c| chooser.solver(c.solver).name.as_str());
        let mine: Vec<&str> = mine.filter(|n| told.contains(n)).collect();
        theirs.push(outcome(table, i, &numbers(told.iter().copied(), &names)));
        ours.push(outcome(table, i, &numbers(mine.into_iter(), &names)));
    }
    let row = |method: String, outcomes: &[Outcome]| FindRow {
        device: table.device.clone(),
        part,
        dimensions: 2,
        precision: None,
        direction: None,
        method,
        scores: Scores::of(outcomes.iter()),
        times: None,
    };
    match theirs.is_empty() {
        true => Vec::new(),
        false => vec![
            row(format!("TunaNet {}", network.name), &theirs),
            row(format!("chooser, TunaNet {}'s problems and solvers", network.name), &ours),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::find::{ChannelOrder, FindSolver, Found, ListEnd};

    #[test]
    fn a_solver_is_the_same_under_the_algorithms_of_two_directions() {
        let solver = |name: &str, algorithm: &str| FindSolver {
            name: name.into(),
            algorithm: algorithm.into(),
        };
        let problem = FindProblem {
            deep: false,
            precision: 0,
            direction: 0,
            order: ChannelOrder::First,
            sizes: [1; 22],
        };
        let found = |solver, ms| Found { solver, ms, workspace: 0 };
        let table = by_name(FindTable {
            device: "gfx900_56".into(),
            solvers: vec![
                solver("fft", "FwdAlgoFFT"),
                solver("gemm", "FwdAlgoGEMM"),
                solver("fft", "BwdDataAlgoFFT"),
            ],
            problems: vec![problem.clone(), FindProblem { direction: 1, ..problem }],
            starts: vec![0, 2, 4],
            rows: vec![found(0, 1.0), found(1, 2.0), found(2, 1.0), found(1, 2.0)],
            ends: vec![ListEnd::Whole; 2],
        });
        let told = numbers(["fft", "gemm"].into_iter(), &numbers_of(&table));
        for problem in 0..2 {
            assert!(outcome(&table, problem, &told).best, "{problem}");
        }
        assert!(!outcome(&table, 1, &told[1..]).best);
    }
}
