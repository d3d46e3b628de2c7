//! The order of execution of a model: kernels through the caller, data movement by plain
//! evaluation. What a tuned model is checked with.

use crate::lower::Norm;
use crate::onnx::{Constant, Element, Model, ValueId, fold};
use squall_core::TaskId;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// What a kernel's input is made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Feed {
    /// A value as it is.
    Value(ValueId),
    /// Filters, each scaled as a batch normalisation scales its channel.
    Scaled { weight: ValueId, norm: Norm },
    /// The factor of each channel.
    Factor(Norm),
    /// The addend of each channel, with what was added before the normalisation.
    Addend { bias: Option<ValueId>, norm: Norm },
}

/// One step of the execution.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A tuned kernel and the nodes that it covers, the first of which stands for it in messages.
    Kernel { task: TaskId, nodes: Vec<usize>, feeds: Vec<Feed>, output: ValueId },
    /// A node that is not tuned.
    Node { node: usize, reason: String },
}

/// A model that can be run.
#[derive(Clone)]
pub struct Graph {
    /// Names and shapes of what the caller gives.
    pub inputs: Vec<(String, Vec<i64>)>,
    /// Names and shapes of what it gets.
    pub outputs: Vec<(String, Vec<i64>)>,
    pub(crate) model: Arc<Model>,
    pub(crate) steps: Vec<Step>,
    /// For each step, the values that nobody reads after it.
    last: Vec<Vec<ValueId>>,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph of {} steps, {:?} -> {:?}", self.steps.len(), self.inputs, self.outputs)
    }
}

/// Calls a kernel: its task and all its inputs in the workload's order, data and weights.
pub type Call<'a> = dyn FnMut(TaskId, &[&[f32]]) -> Result<Vec<f32>, String> + 'a;

impl Graph {
    pub(crate) fn new(model: Arc<Model>, steps: Vec<Step>) -> Graph {
        let facts = |ids: &[ValueId]| {
            let one = |&id: &ValueId| {
                (model.values[id].name.clone(), model.values[id].shape.clone().unwrap_or_default())
            };
            ids.iter().map(one).collect()
        };
        let (inputs, outputs) = (facts(&model.inputs), facts(&model.outputs));
        let root = |id: ValueId| model.values[id].alias.unwrap_or(id);
        let mut reader = HashMap::new();
        for (i, step) in steps.iter().enumerate() {
            let reads = match step {
                Step::Kernel { feeds, .. } => feeds
                    .iter()
                    .filter_map(|f| if let Feed::Value(v) = f { Some(root(*v)) } else { None })
                    .collect(),
                Step::Node { node, .. } => {
                    model.nodes[*node].inputs.iter().flatten().map(|v| root(*v)).collect::<Vec<_>>()
                }
            };
            reads.into_iter().for_each(|v| _ = reader.insert(v, i));
        }
        model.outputs.iter().for_each(|&v| _ = reader.remove(&root(v)));
        let mut last = vec![Vec::new(); steps.len()];
        reader.into_iter().for_each(|(v, i)| last[i].push(v));
        Graph { inputs, outputs, model, steps, last }
    }

    /// Runs the model: `inputs` in the order of [`Graph::inputs`], results in that of
    /// [`Graph::outputs`].
    pub fn run(&self, inputs: &[Vec<f32>], kernel: &mut Call<'_>) -> Result<Vec<Vec<f32>>, String> {
        if inputs.len() != self.inputs.len() {
            return Err(format!(
                "the model has {} inputs, given are {}",
                self.inputs.len(),
                inputs.len()
            ));
        }
        let mut state = State { model: &self.model, values: HashMap::new() };
        for ((id, (name, shape)), data) in self.model.inputs.iter().zip(&self.inputs).zip(inputs) {
            let expected: i64 = shape.iter().product();
            if data.len() as i64 != expected {
                return Err(format!(
                    "input `{name}` is {shape:?}, {expected} elements; given are {}",
                    data.len()
                ));
            }
            let element = self.model.values[*id].element;
            if element != Element::F32 {
                return Err(format!("input `{name}` is of {element}; models are run on floats"));
            }
            state.values.insert(*id, Constant::F32 { shape: shape.clone(), data: data.clone() });
        }
        for (step, over) in self.steps.iter().zip(&self.last) {
            match step {
                Step::Kernel { task, nodes, feeds, output } => {
                    let at = |e: String| format!("node `{}`: {e}", self.model.nodes[nodes[0]].name);
                    let made = state.call(*task, feeds, *output, kernel).map_err(at)?;
                    state.values.insert(*output, made);
                }
                Step::Node { node, reason } => state.evaluate(*node, reason)?,
            }
            over.iter().for_each(|v| _ = state.values.remove(v));
        }
        let result = |&id: &ValueId| match state.get(id) {
            Some(Constant::F32 { data, .. }) => Ok(data.clone()),
            Some(_) => Err(format!("output `{}` is not of floats", self.model.values[id].name)),
            None => Err(state.absent(id)),
        };
        self.model.outputs.iter().map(result).collect()
    }
}

/// What is known while a model runs.
pub(crate) struct State<'a> {
    pub model: &'a Model,
    pub values: HashMap<ValueId, Constant>,
}

impl State<'_> {
    pub fn get(&self, id: ValueId) -> Option<&Constant> {
        let root = self.model.values[id].alias.unwrap_or(id);
        let known = |v: ValueId| self.model.values[v].constant.as_ref();
        self.values.get(&root).or_else(|| known(id)).or_else(|| known(root))
    }

    /// Why a value is not there.
    pub fn absent(&self, id: ValueId) -> String {
        let value = &self.model.values[id];
        match value.weight {
            true => format!(
                "the weight `{}` {:?} is not in the file (its data is external, or too large to \
                 keep): the model can be tuned, not run",
                value.name,
                value.shape.as_deref().unwrap_or_default()
            ),
            false => format!("the value `{}` is not computed by any node that ran", value.name),
        }
    }

    fn floats(&self, id: ValueId) -> Result<&[f32], String> {
        match self.get(id) {
            Some(Constant::F32 { data, .. }) => Ok(data),
            Some(_) => Err(format!("`{}` is not of floats", self.model.values[id].name)),
            None => Err(self.absent(id)),
        }
    }

    /// Factor and addend of each channel.
    fn norm(&self, norm: &Norm) -> Result<(Vec<f64>, Vec<f64>), String> {
        let [scale, shift, mean, variance] = norm.parameters.map(|id| self.floats(id));
        let (scale, shift, mean, variance) = (scale?, shift?, mean?, variance?);
        let factors: Vec<f64> = scale
            .iter()
            .zip(variance)
            .map(|(s, v)| f64::from(*s) / (f64::from(*v) + norm.eps).sqrt())
            .collect();
        let addends = shift
            .iter()
            .zip(mean)
            .zip(&factors)
            .map(|((b, m), f)| f64::from(*b) - f64::from(*m) * f)
            .collect();
        Ok((factors, addends))
    }

    pub fn feed(&self, feed: &Feed) -> Result<std::borrow::Cow<'_, [f32]>, String> {
        let made: Vec<f32> = match feed {
            Feed::Value(id) => return Ok(self.floats(*id)?.into()),
            Feed::Scaled { weight, norm } => {
                let (factors, _) = self.norm(norm)?;
                let weight = self.floats(*weight)?;
                let each = (weight.len() / factors.len().max(1)).max(1);
                weight
                    .chunks(each)
                    .zip(&factors)
                    .flat_map(|(filter, f)| filter.iter().map(move |w| (f64::from(*w) * f) as f32))
                    .collect()
            }
            Feed::Factor(norm) => self.norm(norm)?.0.into_iter().map(|x| x as f32).collect(),
            Feed::Addend { bias, norm } => {
                let (factors, addends) = self.norm(norm)?;
                match bias {
                    None => addends.into_iter().map(|x| x as f32).collect(),
                    Some(b) => {
                        let bias = self.floats(*b)?;
                        bias.iter()
                            .zip(factors)
                            .zip(addends)
                            .map(|((b, f), a)| (f64::from(*b) * f + a) as f32)
                            .collect()
                    }
                }
            }
        };
        Ok(made.into())
    }

    fn call(
        &self,
        task: TaskId,
        feeds: &[Feed],
        output: ValueId,
        kernel: &mut Call<'_>,
    ) -> Result<Constant, String> {
        let feeds = feeds.iter().map(|f| self.feed(f)).collect::<Result<Vec<_>, _>>()?;
        let inputs: Vec<&[f32]> = feeds.iter().map(|f| f.as_ref()).collect();
        let data = kernel(task, &inputs)?;
        let shape = self.model.values[output].shape.clone().unwrap_or_default();
        let expected: i64 = shape.iter().product();
        if data.len() as i64 != expected {
            return Err(format!("the kernel gave {} elements, expected {shape:?}", data.len()));
        }
        Ok(Constant::F32 { shape, data })
    }

    fn evaluate(&mut self, index: usize, reason: &str) -> Result<(), String> {
        let node = &self.model.nodes[index];
        let mut inputs = Vec::new();
        for id in &node.inputs {
            inputs.push(match id {
                None => None,
                Some(id) => Some(
                    self.get(*id)
                        .cloned()
                        .ok_or_else(|| format!("node `{}`: {}", node.name, self.absent(*id)))?,
                ),
            });
        }
        let made = match fold::evaluate(node, &inputs, self.model.opset) {
            Some(made) => made.map_err(|e| format!("node `{}` ({}): {e}", node.name, node.op))?,
            None => {
                return Err(format!("node `{}` ({}) cannot be run: {reason}", node.name, node.op));
            }
        };
        for (&id, value) in node.outputs.iter().zip(made) {
            self.values.insert(id, value);
        }
        Ok(())
    }
}
