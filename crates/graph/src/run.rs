//! Runs an assignment (the kernels that cover a model, and its layouts) step by step: kernels by a
//! function that the caller gives, all other nodes by the evaluators of constant folding
//! (`core/src/graph/fold`). Input: tensors of 32-bit floats; output: the model's outputs. Slow and
//! simple: tuned models are checked against other ways to run them with it.

use crate::assignment::{Assignment, Step};
use crate::candidate::root;
use crate::feed::Feed;
use crate::state::State;
use squall_core::graph::{Constant, ValueId, type_name};
use squall_core::{DType, TaskId};
use std::borrow::Cow;
use std::collections::HashMap;

/// The caller's function for a kernel: it is given the task and all inputs in the workload's order,
/// data and weights, and returns the output.
pub type Call<'a> = dyn FnMut(TaskId, &[&[f32]]) -> Result<Vec<f32>, String> + 'a;

impl Assignment {
    /// Runs the model: `inputs` in the order of [`Assignment::inputs`], results in that of
    /// [`Assignment::outputs`].
    pub fn run(&self, inputs: &[Vec<f32>], kernel: &mut Call<'_>) -> Result<Vec<Vec<f32>>, String> {
        let model = self.model();
        let mut state = State { model, values: HashMap::new() };
        self.take_inputs(inputs, &mut state)?;
        let conditions = self.conditions();
        for (i, step) in self.choice().steps.iter().enumerate() {
            let holds = |(flag, is): &(ValueId, bool)| state.truth(*flag) == Some(*is);
            if !conditions[i].iter().all(holds) {
                continue;
            }
            match *step {
                Step::Kernel(c) => {
                    let c = &self.candidates().list[c];
                    let at = |e: String| format!("node `{}`: {e}", model.nodes[c.nodes[0]].name);
                    let task = self.task_of_step(i).ok_or_else(|| at("it has no task".into()))?;
                    let output = c.outputs[0];
                    let made = self.call(&state, task, &c.feeds, output, kernel).map_err(at)?;
                    state.values.insert(output, made);
                }
                Step::Node(node) => state.evaluate(node, &self.reason(node))?,
            }
            self.last_read_by(i).iter().for_each(|v| _ = state.values.remove(v));
        }
        let result = |&id: &ValueId| match state.get(id) {
            Some(Constant::F32 { data, .. }) => Ok(data.clone()),
            Some(_) => Err(format!("output `{}` is not of floats", model.values[id].name)),
            None => Err(state.absent(id)),
        };
        model.outputs.iter().map(result).collect()
    }

    /// Checks the inputs and makes them known.
    fn take_inputs(&self, inputs: &[Vec<f32>], state: &mut State<'_>) -> Result<(), String> {
        if inputs.len() != self.inputs.len() {
            let (has, given) = (self.inputs.len(), inputs.len());
            return Err(format!("the model has {has} inputs, given are {given}"));
        }
        let model = state.model;
        for ((id, (name, shape)), data) in model.inputs.iter().zip(&self.inputs).zip(inputs) {
            let expected: i64 = shape.iter().product();
            if data.len() as i64 != expected {
                return Err(format!(
                    "input `{name}` is {shape:?}, {expected} elements; given are {}",
                    data.len()
                ));
            }
            let dtype = model.values[*id].dtype;
            if dtype != Some(DType::F32) {
                let of = type_name(dtype);
                return Err(format!("input `{name}` is of {of}; models are run on floats"));
            }
            state.values.insert(*id, Constant::F32 { shape: shape.clone(), data: data.clone() });
        }
        Ok(())
    }
}

impl Assignment {
    /// Calls a kernel. Values are kept in the order of the model; a kernel has each in the order in
    /// which it lies in memory.
    fn call(
        &self,
        state: &State<'_>,
        task: TaskId,
        feeds: &[Feed],
        output: ValueId,
        kernel: &mut Call<'_>,
    ) -> Result<Constant, String> {
        let mut inputs = Vec::new();
        for f in feeds {
            let data = state.feed(f)?;
            let order =
                if let Feed::Value(v) = f { self.order(root(state.model, *v)) } else { None };
            inputs.push(match order {
                Some(order) => Cow::Owned(order.iter().map(|&i| data[i]).collect()),
                None => data,
            });
        }
        let inputs: Vec<&[f32]> = inputs.iter().map(|f| f.as_ref()).collect();
        let data = kernel(task, &inputs)?;
        let shape = state.model.values[output].shape.clone().unwrap_or_default();
        let expected: i64 = shape.iter().product();
        if data.len() as i64 != expected {
            return Err(format!("the kernel gave {} elements, expected {shape:?}", data.len()));
        }
        let data = match self.order(output) {
            Some(order) => {
                let mut put = vec![0.0; data.len()];
                order.iter().zip(data).for_each(|(&i, x)| put[i] = x);
                put
            }
            None => data,
        };
        Ok(Constant::F32 { shape, data })
    }

    /// The elements of a value in the order in which they lie, where that is not the model's.
    fn order(&self, v: ValueId) -> Option<Vec<usize>> {
        if self.choice().is_plain(v) {
            return None;
        }
        let site = self.choice().site(self.model(), v)?;
        // Each factor with how far apart its places are in the model's order, the farthest in
        // memory first.
        let mut inner = 1;
        let mut factors = Vec::new();
        for f in site.dims.iter().flatten().rev() {
            factors.push((f.stride, f.extent as usize, inner));
            inner *= f.extent as usize;
        }
        factors.sort_by_key(|f| std::cmp::Reverse(f.0));
        Some(factors.into_iter().fold(vec![0], |all, (_, extent, apart)| {
            all.iter().flat_map(|p| (0..extent).map(move |i| p + i * apart)).collect()
        }))
    }
}
