//! The ask/tell interface: Squall's search without its code generation, builds, runs or records,
//! for users who measure by themselves (among others the `AskTell` of the Python package). A
//! [`SearchSpace`] is made of parameters and restrictions, as in Kernel Tuner. An [`AskTell`] over
//! it proposes configurations and is told their times:
//!
//! ```text
//! loop: configurations = ask(n); the caller measures each; tell(configuration, seconds)
//! ```

use crate::base::error::Error;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::space::{Knob, Names, Role, Space, SpaceError, Term};
use squall_core::{
    Candidate, Configuration, CpuCost, FailStage, KernelSource, Measurement, Nanos, Outcome,
    RealizeError, Trial, Tunable,
};
use squall_search::{Setting, Strategy, StrategyInfo};
use std::collections::HashSet;
use std::sync::Arc;

pub use squall_core::space::Value as ParameterValue;

/// A parameter: its name and the values that it may have, in the caller's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Letters, digits and `_`; restrictions name it so.
    pub name: String,
    /// At least one, all different.
    pub values: Vec<ParameterValue>,
    /// Whether values that are next to each other in the list are next to each other in meaning,
    /// as sizes are. Numbers that ascend always are.
    pub is_scale: bool,
}

/// The configurations of some parameters that meet all restrictions. Here a configuration is one
/// index for each parameter, in the parameters' order: `[2, 0]` is the third value of the first
/// parameter and the first value of the second.
#[derive(Clone)]
pub struct SearchSpace {
    space: Space,
    /// `inner[p][i]` is the index, in the knob that stands for parameter `p`, of the caller's value
    /// `i`. The two differ because a knob's numbers ascend, and the caller's need not.
    inner: Vec<Vec<usize>>,
    /// The inverse of `inner`: `outer[p][k]` is the caller's index of the knob's value `k`.
    outer: Vec<Vec<usize>>,
}

/// The result that the caller reports for a configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// It ran: its time in seconds, or another cost above 0. The least cost is the best.
    Seconds(f64),
    /// It failed at this stage, for this reason.
    Failed(FailStage, String),
}

/// The most draws per wanted sample before a space counts as drawn out.
const DRAWS: usize = 20;

impl SearchSpace {
    /// The configurations that meet every restriction. A restriction is a condition over the
    /// parameters' names in the spelling of Python: `block_x * block_y <= 1024`.
    ///
    /// # Errors
    /// A parameter without values or with equal ones, a restriction that cannot be read, no
    /// configuration that meets all.
    pub fn new(parameters: &[Parameter], restrictions: &[String]) -> Result<SearchSpace, Error> {
        let (knobs, inner) = knobs(parameters);
        let term = |text: &String| {
            Term::parse(text, Names { knobs: &knobs, constants: &[] }).map_err(|e| Error::Input {
                place: format!("restriction `{text}`"),
                message: e.to_string(),
                hint: "restrictions compare whole numbers and words in Python's spelling".into(),
            })
        };
        let terms = restrictions.iter().map(term).collect::<Result<Vec<_>, _>>()?;
        Ok(SearchSpace::over(Space::new(knobs, &terms).map_err(refused)?, inner))
    }

    /// Just these configurations: for spaces whose rules only the caller can evaluate.
    ///
    /// # Errors
    /// A parameter without values or with equal ones, a configuration with another number of
    /// positions or a position outside of its list, no configuration at all.
    pub fn listed(
        parameters: &[Parameter],
        configurations: &[Vec<usize>],
    ) -> Result<SearchSpace, Error> {
        let (knobs, inner) = knobs(parameters);
        let point = |c: &Vec<usize>| -> Result<Box<[u16]>, Error> {
            positions(&inner, c).map(|p| p.iter().map(|&i| i as u16).collect()).ok_or_else(|| {
                let known = format!("{} parameters", parameters.len());
                let message = format!("{c:?} is no configuration of {known}");
                usage(message, "give the position of each parameter's value in its list")
            })
        };
        let points = configurations.iter().map(point).collect::<Result<Vec<_>, _>>()?;
        Ok(SearchSpace::over(Space::listed(knobs, points).map_err(refused)?, inner))
    }

    fn over(space: Space, inner: Vec<Vec<usize>>) -> SearchSpace {
        let reverse = |at: &Vec<usize>| {
            let mut back = vec![0; at.len()];
            at.iter().enumerate().for_each(|(outer, &i)| back[i] = outer);
            back
        };
        let outer = inner.iter().map(reverse).collect();
        SearchSpace { space, inner, outer }
    }

    /// How many configurations are legal; at least one. Saturates at `u128::MAX`.
    #[allow(clippy::len_without_is_empty)] // a space is never empty
    pub fn len(&self) -> u128 {
        self.space.len()
    }

    /// Whether a configuration is legal.
    pub fn contains(&self, configuration: &[usize]) -> bool {
        positions(&self.inner, configuration).is_some_and(|p| self.space.contains(&p))
    }

    /// The legal configuration of this rank, counted from 0; none beyond the last.
    pub fn nth(&self, rank: u128) -> Option<Vec<usize>> {
        (rank < self.len()).then(|| self.given(&self.space.nth(rank)))
    }

    /// Legal configurations drawn evenly, no two equal: `count` of them, or all where there are
    /// fewer.
    pub fn sample(&self, count: usize, seed: u64) -> Vec<Vec<usize>> {
        if self.len() <= count as u128 {
            return (0..self.len()).filter_map(|r| self.nth(r)).collect();
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut seen = HashSet::new();
        let mut drawn = Vec::with_capacity(count);
        for _ in 0..count * DRAWS {
            let c = self.given(&self.space.sample(&mut rng));
            if seen.insert(c.clone()) {
                drawn.push(c);
            }
            if drawn.len() == count {
                return drawn;
            }
        }
        // Nearly all are wanted: the rest comes in order.
        let rest = (0..self.len()).filter_map(|r| self.nth(r)).filter(|c| !seen.contains(c));
        let missing = count - drawn.len();
        drawn.extend(rest.take(missing));
        drawn
    }

    /// A configuration by the caller's positions.
    fn given(&self, c: &Configuration) -> Vec<usize> {
        c.indices().zip(&self.outer).map(|(i, back)| back[i]).collect()
    }

    fn configuration(&self, c: &[usize]) -> Option<Configuration> {
        self.space.configuration(&positions(&self.inner, c)?)
    }
}

/// The knobs of parameters, and for each value its position among its knob's.
fn knobs(parameters: &[Parameter]) -> (Vec<Knob>, Vec<Vec<usize>>) {
    parameters.iter().map(knob).unzip()
}

fn knob(p: &Parameter) -> (Knob, Vec<usize>) {
    let mut order: Vec<usize> = (0..p.values.len()).collect();
    let is_number = |v: &ParameterValue| matches!(v, ParameterValue::Int(_));
    if p.values.iter().all(is_number) {
        order.sort_by_key(|&i| p.values[i].clone());
    }
    let mut at = vec![0; order.len()];
    order.iter().enumerate().for_each(|(inner, &outer)| at[outer] = inner);
    let values: Vec<ParameterValue> = order.iter().map(|&i| p.values[i].clone()).collect();
    let mut knob = Knob::new(&p.name, Role::Choice, values);
    if p.is_scale {
        knob.neighbourhood = squall_core::space::Neighbourhood::Scale;
    }
    (knob, at)
}

/// The positions among the knobs' values; none where a configuration does not fit.
fn positions(inner: &[Vec<usize>], configuration: &[usize]) -> Option<Vec<usize>> {
    if configuration.len() != inner.len() {
        return None;
    }
    configuration.iter().zip(inner).map(|(&i, at)| at.get(i).copied()).collect()
}

fn refused(e: SpaceError) -> Error {
    let hint = "each parameter needs different values, and one configuration must be legal";
    usage(e.to_string(), hint)
}

fn usage(message: String, hint: &str) -> Error {
    Error::Usage { message, hint: hint.into() }
}

/// A tunable of which only the space is known: what it costs, others say.
pub(crate) struct FlatTunable {
    /// Its name in records.
    pub name: &'static str,
    /// Its legal configurations.
    pub space: Space,
}

impl Tunable for FlatTunable {
    fn name(&self) -> &str {
        self.name
    }
    fn space(&self) -> &Space {
        &self.space
    }
    fn realize(&self, _: &Configuration, _: &str) -> Result<KernelSource, RealizeError> {
        Err(RealizeError(format!("{} has no sources", self.name)))
    }
    fn is_flat(&self) -> bool {
        true
    }
    fn features(&self, c: &Configuration) -> Vec<f32> {
        c.indices().map(|i| i as f32).collect()
    }
}

/// The name of a user's space among tunables.
const USER: &str = "user";

/// A search that proposes configurations and learns from their times.
pub struct AskTell {
    space: SearchSpace,
    strategy: Box<dyn Strategy>,
}

impl AskTell {
    /// A search of `space` by `strategy`, where none is named the default, that expects to be told
    /// of `trials` configurations in all: how long it explores depends on that. The same seed and
    /// the same outcomes give the same proposals.
    ///
    /// # Errors
    /// There is no strategy of this name.
    pub fn new(
        space: &SearchSpace,
        strategy: Option<&str>,
        trials: usize,
        seed: u64,
    ) -> Result<AskTell, Error> {
        let tunable = FlatTunable { name: USER, space: space.space.clone() };
        let setting = Setting::new(vec![Arc::new(tunable)], seed, trials);
        let strategy = (named(strategy)?.make)(&setting);
        Ok(AskTell { space: space.clone(), strategy })
    }

    /// At most `count` configurations that were neither asked nor told before. There are fewer
    /// when the search needs outcomes first, and none only when all have been asked.
    pub fn ask(&mut self, count: usize) -> Vec<Vec<usize>> {
        self.strategy.ask(count).iter().map(|c| self.space.given(&c.configuration)).collect()
    }

    /// Takes note of outcomes, of configurations that were asked or not. A later outcome of the
    /// same configuration replaces the earlier.
    ///
    /// # Errors
    /// A configuration is not legal, or a time is not above 0: nothing is taken note of then.
    pub fn tell(&mut self, outcomes: &[(Vec<usize>, Told)]) -> Result<(), Error> {
        let trial = |(c, told): &(Vec<usize>, Told)| {
            let configuration = self.space.configuration(c).ok_or_else(|| {
                let hint = "only legal configurations can be told";
                usage(format!("{c:?} is no legal configuration"), hint)
            })?;
            let outcome = told.outcome().ok_or_else(|| {
                let hint = "a time is more than 0; say of a failure that it failed";
                usage(format!("{told:?} is no time of {c:?}"), hint)
            })?;
            let candidate = Candidate { tunable: USER.into(), configuration };
            Ok(Trial { candidate, outcome, cost: CpuCost::default() })
        };
        let trials = outcomes.iter().map(trial).collect::<Result<Vec<_>, Error>>()?;
        self.strategy.tell(&trials);
        Ok(())
    }
}

impl Told {
    /// The outcome that strategies understand; none of a number that is no time.
    fn outcome(&self) -> Option<Outcome> {
        Some(match self {
            Told::Seconds(s) if s.is_nan() || *s <= 0.0 => return None,
            Told::Seconds(s) if s.is_infinite() => failed(FailStage::Launch, "it has no time"),
            Told::Seconds(s) => Outcome::Measured(Measurement {
                samples: vec![Nanos(s * 1e9)],
                calls: 1,
                error: 0.0,
                gpu: None,
                pace: None,
            }),
            Told::Failed(stage, why) => failed(*stage, why),
        })
    }
}

fn failed(stage: FailStage, why: &str) -> Outcome {
    Outcome::Failed { stage, detail: why.into() }
}

fn named(strategy: Option<&str>) -> Result<&'static StrategyInfo, Error> {
    let all = squall_search::strategies();
    let Some(name) = strategy else { return Ok(&all[0]) };
    all.iter().find(|s| s.is_called(name)).ok_or_else(|| {
        let known = all.iter().map(|s| s.name).collect::<Vec<_>>().join(", ");
        Error::Strategy { name: name.into(), known }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(name: &str, values: &[i64]) -> Parameter {
        let values = values.iter().map(|&v| ParameterValue::Int(v)).collect();
        Parameter { name: name.into(), values, is_scale: true }
    }

    /// A space whose values come in no order; a configuration is 0 where its values are best.
    fn space() -> SearchSpace {
        let parameters = [ints("x", &[8, 1, 64, 2, 16, 4, 32]), ints("y", &[3, 1, 2, 5, 4])];
        SearchSpace::new(&parameters, &["x * y <= 128".into()]).unwrap()
    }

    fn cost(c: &[usize]) -> f64 {
        let x = [8, 1, 64, 2, 16, 4, 32][c[0]] as f64;
        let y = [3, 1, 2, 5, 4][c[1]] as f64;
        1.0 + (x.log2() - 4.0).powi(2) + (y - 4.0).powi(2)
    }

    #[test]
    fn positions_are_those_of_the_callers_lists() {
        let s = space();
        assert_eq!(s.len(), 35 - 4);
        assert!(s.contains(&[0, 3]) && !s.contains(&[2, 3]), "8 * 5 is legal, 64 * 5 is not");
        assert!(!s.contains(&[7, 0]) && !s.contains(&[0]) && !s.contains(&[0, 0, 0]));
        let all: HashSet<Vec<usize>> = (0..s.len()).map(|r| s.nth(r).unwrap()).collect();
        assert_eq!((all.len(), s.nth(31)), (31, None));
        assert!(all.iter().all(|c| s.contains(c)));
        let few = s.sample(10, 1);
        assert_eq!((few.len(), few.iter().collect::<HashSet<_>>().len()), (10, 10));
        assert_eq!(s.sample(30, 1).iter().collect::<HashSet<_>>().len(), 30);
        assert_eq!(s.sample(100, 1).len(), 31);
        assert_ne!(few, s.sample(10, 2));
    }

    #[test]
    fn every_strategy_finds_the_least_of_a_bowl_and_asks_nothing_twice() {
        for info in squall_search::strategies() {
            let mut search = AskTell::new(&space(), Some(info.name), 31, 7).unwrap();
            let (mut seen, mut least) = (HashSet::new(), f64::INFINITY);
            loop {
                let asked = search.ask(3);
                if asked.is_empty() {
                    break;
                }
                for c in asked {
                    assert!(space().contains(&c) && seen.insert(c.clone()), "{}", info.name);
                    let told = match c[1] {
                        1 => Told::Failed(FailStage::Build, "no".into()),
                        _ => Told::Seconds(cost(&c)),
                    };
                    least = least.min(cost(&c));
                    search.tell(&[(c, told)]).unwrap();
                }
            }
            assert_eq!((seen.len(), least), (31, 1.0), "{}", info.name);
        }
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        let twice = [ints("x", &[1, 1])];
        assert!(SearchSpace::new(&twice, &[]).is_err());
        assert!(SearchSpace::new(&[ints("x", &[])], &[]).is_err());
        assert!(SearchSpace::new(&[ints("x", &[1])], &["x > 1".into()]).is_err());
        let unknown = SearchSpace::new(&[ints("x", &[1])], &["z > 1".into()]);
        assert!(unknown.err().unwrap().to_string().contains("z"));
        assert!(SearchSpace::listed(&[ints("x", &[1])], &[vec![1]]).is_err());
        assert!(SearchSpace::listed(&[ints("x", &[1])], &[]).is_err());
        let listed = SearchSpace::listed(&[ints("x", &[2, 1])], &[vec![0]]).unwrap();
        assert!(listed.contains(&[0]) && !listed.contains(&[1]));
        assert!(AskTell::new(&space(), Some("no such"), 1, 0).is_err());
        let mut search = AskTell::new(&space(), None, 10, 0).unwrap();
        assert!(search.tell(&[(vec![2, 3], Told::Seconds(1.0))]).is_err());
        for time in [f64::NAN, 0.0, -1.0] {
            assert!(search.tell(&[(vec![0, 0], Told::Seconds(time))]).is_err());
        }
    }
}
