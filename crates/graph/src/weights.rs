//! Completes the weights of a model before it is planned: weights that were read are put in place,
//! weights that the file lacks become random (the same in every run, positive where a normalisation
//! divides by them), and nodes that depend on weights alone are evaluated. Input: the weights of
//! the file and a `State`; output: the names of the random ones. Called by `plan/build.rs`.

use crate::state::State;
use squall_core::DType;
use squall_core::graph::{Constant, Model, ValueId, Weights};
use squall_core::operators;
use std::collections::{HashMap, HashSet};

/// Weights that stay outside of the plan, by name, with numbers by which the caller knows them.
pub type Placed = HashMap<String, usize>;

/// Makes every weight known in `state` and returns the names of the random ones. A weight that
/// cannot be made stays absent, which is an error only where a step reads it. Weights in `placed`
/// stay where they are.
pub fn complete(mut weights: Weights, placed: &Placed, state: &mut State<'_>) -> Vec<String> {
    let model = state.model;
    let variances = variances(model);
    let made_by_nodes: HashSet<ValueId> =
        model.nodes.iter().flat_map(|n| n.outputs.iter().copied()).collect();
    let mut random = Vec::new();
    for (id, v) in model.values.iter().enumerate() {
        if let Some(c) = weights.remove(&v.name) {
            state.values.insert(id, c);
        } else if v.weight
            && !placed.contains_key(&v.name)
            && v.constant.is_none()
            && v.alias.is_none()
            && !made_by_nodes.contains(&id)
        {
            let float = v.dtype.is_some_and(DType::is_float);
            if let Some(shape) = v.shape.as_ref().filter(|_| float) {
                random.push(v.name.clone());
                let made = random_weight(&v.name, shape, variances.contains(&id));
                state.values.insert(id, made.kept_as(v.dtype));
            }
        }
    }
    // Nodes that depend on weights alone come next, in the order of execution.
    for node in model.nodes.iter().filter(|n| n.folded) {
        let known = |id: &ValueId| state.get(*id).is_some();
        if node.outputs.iter().all(known) || !node.inputs.iter().flatten().all(known) {
            continue;
        }
        let inputs: Vec<Option<Constant>> =
            node.inputs.iter().map(|i| i.and_then(|i| state.get(i).cloned())).collect();
        if let Some(Ok(made)) =
            operators::evaluate_as(node, &inputs, &model.operand_types(node), model.opset)
        {
            state.values.extend(node.outputs.iter().copied().zip(made));
        }
    }
    random
}

/// The values that a weight takes where the model's file does not hold it; nothing where it names
/// no weight that can be made.
pub fn random_value(model: &Model, name: &str) -> Option<Constant> {
    let (id, v) = model.values.iter().enumerate().find(|(_, v)| v.name == name)?;
    let shape = v.shape.as_ref().filter(|_| v.dtype.is_some_and(DType::is_float))?;
    Some(random_weight(&v.name, shape, variances(model).contains(&id)).kept_as(v.dtype))
}

/// The values that normalisations divide by: they must be positive.
fn variances(model: &Model) -> HashSet<ValueId> {
    let norms = model.nodes.iter().filter(|n| n.op == "BatchNormalization");
    norms
        .filter_map(|n| n.inputs.get(4).copied().flatten())
        .map(|id| model.values[id].alias.unwrap_or(id))
        .collect()
}

/// Numbers that depend on the name alone, of a size that keeps activations in range: scaled by the
/// fan-in where the weight has several axes.
fn random_weight(name: &str, shape: &[i64], variance: bool) -> Constant {
    let count = shape.iter().product::<i64>().max(0) as usize;
    let seed = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut random = Random(seed);
    let fan_in = shape.iter().skip(1).product::<i64>().max(1) as f64;
    let scale = (2.0 / fan_in).sqrt();
    let one = |r: &mut Random| match shape.len() {
        _ if variance => 0.5 + r.uniform(),
        0 | 1 => 0.2 * r.uniform() - 0.1,
        _ => r.normal() * scale,
    };
    Constant::F32 {
        shape: shape.to_vec(),
        data: (0..count).map(|_| one(&mut random) as f32).collect(),
    }
}

/// `count` numbers between -1 and 1, the same in every run: an input where none is given.
pub fn random_input(count: usize) -> Vec<f32> {
    let mut random = Random(1);
    (0..count).map(|_| (2.0 * random.uniform() - 1.0) as f32).collect()
}

/// `count` whole numbers from 0 on, all below a bound, the same in every run.
pub fn random_integers(count: usize, below: i64) -> Vec<i64> {
    let mut random = Random(1);
    (0..count).map(|_| ((random.uniform() * below as f64) as i64).min(below - 1)).collect()
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A normally distributed number of variance 1.
    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_weights_are_scaled_and_repeatable() {
        let Constant::F32 { data, .. } = random_weight("w", &[64, 32, 3, 3], false) else {
            panic!("no floats")
        };
        let variance = data.iter().map(|x| f64::from(x * x)).sum::<f64>() / data.len() as f64;
        assert!((variance * 288.0 / 2.0 - 1.0).abs() < 0.1, "{variance}");
        assert_eq!(random_weight("w", &[4, 4], false), random_weight("w", &[4, 4], false));
        assert_ne!(random_weight("w", &[4, 4], false), random_weight("v", &[4, 4], false));
        let Constant::F32 { data, .. } = random_weight("v", &[100], true) else {
            panic!("no floats")
        };
        assert!(data.iter().all(|v| (0.5..=1.5).contains(v)));
    }
}
