//! Search alone, for users who measure themselves: a space of parameters with restrictions, and a
//! search that is asked for configurations and told their times (ask and tell). Configurations are
//! positions of values; Python's side knows the values themselves.

use crate::raised;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use squall::{FailStage, Parameter, ParameterValue, Told};
use std::sync::{Mutex, MutexGuard};

/// A parameter as Python gives it: name, values (all numbers, or all words), whether their order
/// means something.
type Given = (String, Vec<GivenValue>, bool);

#[derive(FromPyObject)]
pub enum GivenValue {
    Int(i64),
    Word(String),
}

fn parameters(given: Vec<Given>) -> Vec<Parameter> {
    let value = |v| match v {
        GivenValue::Int(i) => ParameterValue::Int(i),
        GivenValue::Word(w) => ParameterValue::Word(w),
    };
    let parameter = |(name, values, is_scale): Given| {
        let values = values.into_iter().map(value).collect();
        Parameter { name, values, is_scale }
    };
    given.into_iter().map(parameter).collect()
}

/// The legal configurations of some parameters.
#[pyclass(frozen)]
pub struct SearchSpace(squall::SearchSpace);

#[pymethods]
impl SearchSpace {
    /// Configurations that meet restrictions in Squall's language.
    #[new]
    fn new(py: Python<'_>, given: Vec<Given>, restrictions: Vec<String>) -> PyResult<SearchSpace> {
        let space = py.detach(|| squall::SearchSpace::new(&parameters(given), &restrictions));
        space.map(SearchSpace).map_err(|e| raised(py, &e))
    }

    /// Just these configurations.
    #[staticmethod]
    fn listed(py: Python<'_>, given: Vec<Given>, all: Vec<Vec<usize>>) -> PyResult<SearchSpace> {
        let space = py.detach(|| squall::SearchSpace::listed(&parameters(given), &all));
        space.map(SearchSpace).map_err(|e| raised(py, &e))
    }

    /// How many configurations are legal.
    fn count(&self) -> u128 {
        self.0.len()
    }

    /// Whether a configuration is legal.
    fn contains(&self, configuration: Vec<usize>) -> bool {
        self.0.contains(&configuration)
    }

    /// Configurations of ranks `first` to `first + count`, as far as there are any.
    fn range(&self, first: u128, count: usize) -> Vec<Vec<usize>> {
        (0..count as u128).map_while(|i| self.0.nth(first + i)).collect()
    }

    /// Configurations drawn evenly, no two equal.
    fn sample(&self, py: Python<'_>, count: usize, seed: u64) -> Vec<Vec<usize>> {
        py.detach(|| self.0.sample(count, seed))
    }
}

/// A search over a space.
#[pyclass(frozen)]
pub struct AskTell(Mutex<squall::AskTell>);

impl AskTell {
    fn lock(&self) -> PyResult<MutexGuard<'_, squall::AskTell>> {
        let broken = |_| PyValueError::new_err("an earlier call of this search failed");
        self.0.lock().map_err(broken)
    }
}

#[pymethods]
impl AskTell {
    #[new]
    fn new(
        py: Python<'_>,
        space: &SearchSpace,
        strategy: Option<&str>,
        trials: usize,
        seed: u64,
    ) -> PyResult<AskTell> {
        let search = py.detach(|| squall::AskTell::new(&space.0, strategy, trials, seed));
        search.map(|s| AskTell(Mutex::new(s))).map_err(|e| raised(py, &e))
    }

    /// At most `count` configurations that were neither asked nor told before.
    fn ask(&self, py: Python<'_>, count: usize) -> PyResult<Vec<Vec<usize>>> {
        py.detach(|| Ok(self.lock()?.ask(count)))
    }

    /// Takes note of outcomes: configuration, seconds, and of a failure its stage and reason.
    fn tell(
        &self,
        py: Python<'_>,
        outcomes: Vec<(Vec<usize>, Option<f64>, String, String)>,
    ) -> PyResult<()> {
        let told = |(c, seconds, stage, why): (Vec<usize>, Option<f64>, String, String)| {
            let told = match seconds {
                Some(s) => Told::Seconds(s),
                None => Told::Failed(stage_of(&stage)?, why),
            };
            Ok((c, told))
        };
        let outcomes = outcomes.into_iter().map(told).collect::<PyResult<Vec<_>>>()?;
        let done = py.detach(|| Ok::<_, PyErr>(self.lock()?.tell(&outcomes)))?;
        done.map_err(|e| raised(py, &e))
    }
}

/// The stage of this name.
fn stage_of(name: &str) -> PyResult<FailStage> {
    let all = [FailStage::Build, FailStage::Launch, FailStage::Timeout, FailStage::WrongAnswer];
    all.into_iter().find(|s| s.name() == name).ok_or_else(|| {
        let known = all.map(FailStage::name).join(", ");
        PyValueError::new_err(format!("there is no stage `{name}` of a failure; there are {known}"))
    })
}

/// Name and summary of every strategy, the default first.
#[pyfunction]
pub fn strategies() -> Vec<(&'static str, &'static str)> {
    squall::strategies().iter().map(|s| (s.name, s.summary)).collect()
}
