//! The values that are known while a model is planned or run: its constants, and all that was
//! computed since. Input: a model and a map of values; output: the elements of a value, and the
//! numbers that kernels' feeds (`feed.rs`) are made of, such as filters scaled by a batch
//! normalisation. Used by `run.rs`, `weights.rs` and `plan/build.rs`.

use crate::feed::{Feed, Norm};
use squall_core::graph::infer::is_choice;
use squall_core::graph::{Constant, Model, ValueId};
use squall_core::operators;
use std::collections::HashMap;

/// A model and the values known so far.
pub struct State<'a> {
    /// The model.
    pub model: &'a Model,
    /// Values that were computed, or read from a file beside the model.
    pub values: HashMap<ValueId, Constant>,
}

impl State<'_> {
    /// The elements of a value, where they are known by now.
    pub fn get(&self, id: ValueId) -> Option<&Constant> {
        let root = self.model.values[id].alias.unwrap_or(id);
        let known = |v: ValueId| self.model.values[v].constant.as_deref();
        self.values.get(&root).or_else(|| known(id)).or_else(|| known(root))
    }

    /// The error message for a value that is not known.
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

    /// The first of a value's booleans, where they are known by now.
    pub fn truth(&self, id: ValueId) -> Option<bool> {
        self.get(id)?.as_bool()?.first().copied()
    }

    /// The elements of a value of floats.
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

    /// The floats of a kernel's input.
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

    /// Makes the results of a node that is no kernel known; `reason` says why it is none.
    pub fn evaluate(&mut self, index: usize, reason: &str) -> Result<(), String> {
        let node = &self.model.nodes[index];
        if is_choice(node)
            && let [Some(flag), yes, no] = node.inputs[..]
            && let Some(taken) = self.truth(flag)
        {
            let from = if taken { yes } else { no };
            let made = from.and_then(|v| self.get(v)).cloned();
            let made = made.ok_or_else(|| format!("node `{}`: it has no operand", node.name))?;
            self.values.insert(node.outputs[0], made);
            return Ok(());
        }
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
        let types = self.model.operand_types(node);
        let made = match operators::evaluate_as(node, &inputs, &types, self.model.opset) {
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
