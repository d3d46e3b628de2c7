//! A model in order of execution, to run it with tuned kernels for its tasks and plain code for
//! the rest.

use crate::error::shown;
use crate::onnx::model::{Call, Model, ValueId};
use crate::onnx::op::{Lower, entry};
use crate::tensor::{Data, Elem, Tensor, elements};
use squall_core::TaskId;
use std::fmt;
use std::sync::Arc;

/// Larger tensors are not run by plain code.
const MOST_ELEMENTS: u64 = 1 << 31;

/// Where a kernel's input comes from.
#[derive(Clone, Debug)]
pub(crate) enum Feed {
    /// Computed before, or an input of the model.
    Value(ValueId),
    /// The same at every call.
    Weight(Arc<Tensor>),
    /// A weight of this name whose values the file does not hold.
    Missing(String),
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Kernel { task: TaskId, name: String, feeds: Vec<Feed>, out: ValueId, shape: Vec<i64> },
    Plain { node: usize },
}

/// A model that can be run.
#[derive(Clone)]
pub struct Graph {
    /// Names and shapes of the inputs.
    pub inputs: Vec<(String, Vec<i64>)>,
    /// Names and shapes of the outputs; a shape that depends on data is empty.
    pub outputs: Vec<(String, Vec<i64>)>,
    model: Arc<Model>,
    root: Vec<ValueId>,
    steps: Vec<Step>,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("inputs", &self.inputs).field("outputs", &self.outputs).field("steps", &self.steps.len()).finish()
    }
}

impl Graph {
    /// `None` where an input's shape is not known.
    pub(crate) fn new(model: Model, root: Vec<ValueId>, steps: Vec<Step>) -> Option<Graph> {
        let side = |v: &ValueId| (model.values[*v].name.clone(), model.values[*v].shape.clone());
        let inputs = model.inputs.iter().map(side).map(|(n, s)| Some((n, s?))).collect::<Option<_>>()?;
        let outputs = model.outputs.iter().map(side).map(|(n, s)| (n, s.unwrap_or_default())).collect();
        Some(Graph { inputs, outputs, model: Arc::new(model), root, steps })
    }

    /// The tasks in order of execution; one that occurs several times comes several times.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.steps.iter().filter_map(|s| match s {
            Step::Kernel { task, .. } => Some(*task),
            Step::Plain { .. } => None,
        })
    }

    /// Whether every weight's values are there; else the name of one that is not.
    pub fn missing_weight(&self) -> Option<&str> {
        self.steps.iter().find_map(|s| match s {
            Step::Kernel { feeds, .. } => feeds.iter().find_map(|f| match f {
                Feed::Missing(name) => Some(name.as_str()),
                _ => None,
            }),
            Step::Plain { .. } => None,
        })
    }

    /// Runs the model: `kernel` is called for each tuned kernel with the workload's inputs in
    /// order, weights included, and gives its output.
    pub fn run(
        &self,
        inputs: &[Vec<f32>],
        kernel: &mut dyn FnMut(TaskId, &[&[f32]]) -> Result<Vec<f32>, String>,
    ) -> Result<Vec<Vec<f32>>, String> {
        if let Some(name) = self.missing_weight() {
            return Err(format!(
                "the file does not hold the values of the weight `{}` (external data): the model can be tuned, but not run",
                shown(name)
            ));
        }
        if inputs.len() != self.inputs.len() {
            return Err(format!("the model has {} inputs, but {} are given", self.inputs.len(), inputs.len()));
        }
        let mut values: Vec<Option<Arc<Tensor>>> = vec![None; self.model.values.len()];
        for ((given, (name, shape)), &v) in inputs.iter().zip(&self.inputs).zip(&self.model.inputs) {
            if elements(shape) != Some(given.len() as u64) {
                return Err(format!("the input `{}` has shape {shape:?}, but {} values are given", shown(name), given.len()));
            }
            let elem = self.model.values[v].elem.unwrap_or(Elem::F32);
            let data = if elem.is_int() { Data::Int(given.iter().map(|&x| x as i64).collect()) } else { Data::Float(given.clone()) };
            values[v] = Some(Arc::new(Tensor { elem, shape: shape.clone(), data }));
        }
        let last = self.last_uses();
        for (at, step) in self.steps.iter().enumerate() {
            match step {
                Step::Kernel { task, name, feeds, out, shape } => {
                    let result = self.call(&values, *task, feeds, kernel).map_err(|e| format!("kernel `{name}`: {e}"))?;
                    if elements(shape) != Some(result.len() as u64) {
                        return Err(format!("kernel `{name}` gave {} values for a result of shape {shape:?}", result.len()));
                    }
                    values[*out] = Some(Arc::new(Tensor::floats(shape.clone(), result)));
                }
                Step::Plain { node } => self.plain(*node, &mut values)?,
            }
            for &v in &last[at] {
                values[v] = None;
            }
        }
        self.model.outputs.iter().map(|&v| self.result(v, &values)).collect()
    }

    fn result(&self, v: ValueId, values: &[Option<Arc<Tensor>>]) -> Result<Vec<f32>, String> {
        let name = shown(&self.model.values[v].name);
        let t = self.value(self.root[v], values).ok_or_else(|| format!("the output `{name}` was not computed"))?;
        Ok(match &t.data {
            Data::Float(v) => v.clone(),
            Data::Int(v) => v.iter().map(|&x| x as f32).collect(),
        })
    }

    fn value<'a>(&'a self, v: ValueId, values: &'a [Option<Arc<Tensor>>]) -> Option<&'a Tensor> {
        values[v].as_deref().or(self.model.values[v].data.as_deref())
    }

    fn call(
        &self,
        values: &[Option<Arc<Tensor>>],
        task: TaskId,
        feeds: &[Feed],
        kernel: &mut dyn FnMut(TaskId, &[&[f32]]) -> Result<Vec<f32>, String>,
    ) -> Result<Vec<f32>, String> {
        let mut operands = Vec::with_capacity(feeds.len());
        for f in feeds {
            let t = match f {
                Feed::Value(v) => self.value(*v, values).ok_or_else(|| format!("`{}` was not computed", shown(&self.model.values[*v].name)))?,
                Feed::Weight(t) => t,
                Feed::Missing(name) => return Err(format!("the values of `{}` are missing", shown(name))),
            };
            operands.push(t.as_floats().ok_or_else(|| format!("an input is {}, not float32", t.elem.name()))?);
        }
        kernel(task, &operands)
    }

    fn plain(&self, node: usize, values: &mut [Option<Arc<Tensor>>]) -> Result<(), String> {
        let n = &self.model.nodes[node];
        let place = |m: String| format!("node `{}` ({}): {m}", shown(&n.name), shown(&n.op));
        let known = entry(n);
        let Some(eval) = known.and_then(|e| e.eval) else {
            let same = known.is_some_and(|e| matches!(e.lower, Lower::Same));
            let input = n.inputs.first().copied().flatten().filter(|_| same).map(|v| self.root[v]);
            if let (Some(input), Some(&Some(out)), 1) = (input, n.outputs.first(), n.outputs.len()) {
                values[out] = values[input].clone();
                return Ok(());
            }
            return Err(place("there is no plain code for this operator, so that the model cannot be run".into()));
        };
        for &v in n.outputs.iter().flatten() {
            match self.model.values[v].shape.as_deref().map(elements) {
                Some(Some(e)) if e <= MOST_ELEMENTS => {}
                Some(_) => return Err(place("its result is too large".into())),
                None => return Err(place("its result's shape is not known before it runs".into())),
            }
        }
        let call = Call { node: n, values: &self.model.values };
        let mut inputs = Vec::with_capacity(n.inputs.len());
        for v in &n.inputs {
            inputs.push(match v {
                None => None,
                Some(v) => match self.value(self.root[*v], values) {
                    Some(t) => Some(t),
                    None => {
                        let name = shown(&self.model.values[*v].name);
                        return Err(place(format!("the values of `{name}` are missing (external data, or not computed)")));
                    }
                },
            });
        }
        let results = eval(&call, &inputs).map_err(|t| place(t.message()))?;
        for (id, t) in n.outputs.iter().zip(results) {
            if let Some(id) = *id {
                values[id] = Some(Arc::new(t));
            }
        }
        Ok(())
    }

    /// For each step the values that nothing reads after it.
    fn last_uses(&self) -> Vec<Vec<ValueId>> {
        let mut last: Vec<Option<usize>> = vec![None; self.model.values.len()];
        for (at, s) in self.steps.iter().enumerate() {
            let mut mark = |v: ValueId| last[self.root[v]] = Some(at);
            match s {
                Step::Kernel { feeds, .. } => feeds.iter().for_each(|f| {
                    if let Feed::Value(v) = f {
                        mark(*v);
                    }
                }),
                Step::Plain { node } => self.model.nodes[*node].inputs.iter().flatten().for_each(|v| mark(*v)),
            }
        }
        for &o in &self.model.outputs {
            last[self.root[o]] = None;
        }
        let mut out = vec![Vec::new(); self.steps.len()];
        for (v, at) in last.iter().enumerate() {
            if let Some(at) = at {
                out[*at].push(v);
            }
        }
        out
    }
}
