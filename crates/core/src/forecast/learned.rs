//! Families of solvers whose constraints are not known: their space is the list of vectors (one
//! value per knob) that occur in tuned examples. Input: a solver's name and its examples; output: a
//! [`Family`], the same type as for families with rules. `squall/src/forecast` makes one where
//! MIOpen's databases name a solver without a rule file.

use super::Example;
use super::family::Family;
use super::spec::{FamilyError, FamilyKnob, FamilySpec};
use std::collections::{BTreeSet, HashMap};

impl Family {
    /// A family that is known from examples only: its space is the vectors that occur in them, for
    /// every problem in a direction and with a filter that occur. Examples with another number of
    /// values than most are left out; their number is given back.
    ///
    /// # Errors
    /// Where no example has values.
    pub fn learned(solver: &str, examples: &[&Example]) -> Result<(Family, usize), FamilyError> {
        let mut lengths: HashMap<usize, usize> = HashMap::new();
        for e in examples {
            *lengths.entry(e.values.len()).or_default() += 1;
        }
        let width = lengths.iter().map(|(&l, &n)| (n, l)).max().map(|(_, l)| l).filter(|&l| l > 0);
        let Some(width) = width else {
            return Err(FamilyError::NoExamples { solver: solver.into() });
        };
        let mut listed: Vec<Vec<i64>> =
            examples.iter().filter(|e| e.values.len() == width).map(|e| e.values.clone()).collect();
        let odd = examples.len() - listed.len();
        listed.sort_unstable();
        listed.dedup();
        let knob = |k: usize| {
            let mut values: Vec<i64> = listed.iter().map(|v| v[k]).collect();
            values.sort_unstable();
            values.dedup();
            FamilyKnob { name: format!("p{k}"), main: values.clone(), values, spare: Vec::new() }
        };
        let (words, numbers, legal) = applies(examples);
        let spec = FamilySpec {
            solver: solver.into(),
            words,
            numbers,
            knobs: (0..width).map(knob).collect(),
            definitions: Vec::new(),
            legal,
            tuned: Vec::new(),
            features: Vec::new(),
            kernel: Vec::new(),
            listed,
        };
        Ok((Family::new(spec)?, odd))
    }
}

/// The problems that a solver is for, by its examples: words, numbers and conditions of a spec. The
/// conditions are on filters, where few sizes occur.
#[allow(clippy::type_complexity)] // the three parts of a spec
fn applies(
    examples: &[&Example],
) -> (Vec<(String, Vec<String>)>, Vec<(String, Option<i64>)>, Vec<String>) {
    let mut words = Vec::new();
    let directions: Option<BTreeSet<&str>> =
        examples.iter().map(|e| e.problem.word("direction")).collect();
    if let Some(d) = directions {
        words.push(("direction".into(), d.into_iter().map(String::from).collect()));
    }
    let (mut numbers, mut legal) = (Vec::new(), Vec::new());
    for name in ["R", "S"] {
        let seen: Option<BTreeSet<i64>> = examples.iter().map(|e| e.problem.number(name)).collect();
        if let Some(seen) = seen.filter(|s| s.len() <= 3) {
            numbers.push((name.to_string(), None));
            legal.push(format!(
                "{name} in [{}]",
                seen.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
            ));
        }
    }
    (words, numbers, legal)
}
