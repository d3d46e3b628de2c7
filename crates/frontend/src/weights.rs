//! Weights to run a model with: those of its file, of any size, and random ones where the file
//! holds none. Tuning needs no weights, so the reader keeps small ones only.

use crate::error::{ImportError, shown};
use crate::graph::State;
use crate::onnx::proto::{ModelProto, TensorProto};
use crate::onnx::{
    Constant, Element, MOST_CONSTANT_ELEMENTS, MOST_ELEMENTS, Model, ValueId, elements, fold,
    tensor_of,
};
use prost::Message;
use std::collections::{HashMap, HashSet};

/// Bytes that lie beside a model's file: a name, an offset and a length.
pub type Beside<'a> = dyn FnMut(&str, u64, u64) -> Option<Vec<u8>> + 'a;

/// What a model's file holds beyond what its import keeps.
#[derive(Debug, Default)]
pub struct Weights {
    /// By the name of the value.
    known: HashMap<String, Constant>,
}

impl Weights {
    /// Reads the large weights of a model's file, and those beside it that `beside` has; `name`
    /// says in errors which file it is.
    pub fn read(bytes: &[u8], name: &str, beside: &mut Beside<'_>) -> Result<Weights, ImportError> {
        let not_onnx = |why: String| ImportError::NotOnnx { name: name.into(), why };
        let model = ModelProto::decode(bytes).map_err(|e| not_onnx(shown(&e.to_string())))?;
        let graph = model.graph.ok_or_else(|| not_onnx("it holds no graph".into()))?;
        let mut known = HashMap::new();
        let mut keep = |name: String, t: &TensorProto| {
            let fault = |e: String| not_onnx(format!("tensor `{}`: {e}", shown(&name)));
            let outside =
                if t.data_location == 1 { fetch(t, beside).map_err(fault)? } else { None };
            let read = tensor_of(outside.as_ref().unwrap_or(t), MOST_ELEMENTS).map_err(fault)?;
            let kept_by_import =
                |c: &Constant| outside.is_none() && c.len() as i64 <= MOST_CONSTANT_ELEMENTS;
            if let Some(c) = read.constant.filter(|c| !kept_by_import(c)) {
                known.insert(name, c);
            }
            Ok(())
        };
        for mut t in graph.initializer {
            keep(std::mem::take(&mut t.name), &t)?;
        }
        for node in graph.node.into_iter().filter(|n| n.op_type == "Constant") {
            let value =
                node.attribute.iter().find(|a| a.name == "value").and_then(|a| a.t.as_ref());
            if let (Some(t), Some(output)) = (value, node.output.first()) {
                keep(output.clone(), t)?;
            }
        }
        Ok(Weights { known })
    }

    /// Makes every weight known in `state`; gives the names of those that had to be random. What
    /// cannot be made stays absent: it is an error only where a step reads it.
    pub(crate) fn complete(mut self, state: &mut State<'_>) -> Vec<String> {
        let model = state.model;
        let variances = variances(model);
        let made_by_nodes: HashSet<ValueId> =
            model.nodes.iter().flat_map(|n| n.outputs.iter().copied()).collect();
        let mut random = Vec::new();
        for (id, v) in model.values.iter().enumerate() {
            if let Some(c) = self.known.remove(&v.name) {
                state.values.insert(id, c);
            } else if v.weight
                && v.constant.is_none()
                && v.alias.is_none()
                && !made_by_nodes.contains(&id)
            {
                let float =
                    matches!(v.element, Element::F32 | Element::F16 | Element::BF16 | Element::F64);
                if let Some(shape) = v.shape.as_ref().filter(|_| float) {
                    random.push(v.name.clone());
                    state.values.insert(id, random_weight(&v.name, shape, variances.contains(&id)));
                }
            }
        }
        // What depends on weights alone comes next, in the order of execution.
        for node in model.nodes.iter().filter(|n| n.folded) {
            let known = |id: &ValueId| state.get(*id).is_some();
            if node.outputs.iter().all(known) || !node.inputs.iter().flatten().all(known) {
                continue;
            }
            let inputs: Vec<Option<Constant>> =
                node.inputs.iter().map(|i| i.and_then(|i| state.get(i).cloned())).collect();
            if let Some(Ok(made)) = fold::evaluate(node, &inputs, model.opset) {
                state.values.extend(node.outputs.iter().copied().zip(made));
            }
        }
        random
    }
}

/// A tensor with its bytes from beside the file, where they are there.
fn fetch(t: &TensorProto, beside: &mut Beside<'_>) -> Result<Option<TensorProto>, String> {
    let entry = |key: &str| t.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
    let Some(location) = entry("location") else { return Ok(None) };
    let offset = entry("offset")
        .map_or(Ok(0), str::parse)
        .map_err(|_| "its offset is no number".to_string())?;
    let length =
        elements(&t.dims)? as u64 * Element::from_onnx(i64::from(t.data_type)).bytes() as u64;
    let tensor = |raw_data| TensorProto {
        raw_data,
        data_location: 0,
        external_data: Vec::new(),
        ..t.clone()
    };
    Ok(beside(location, offset, length).map(tensor))
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
pub(crate) fn random_input(count: usize) -> Vec<f32> {
    let mut random = Random(1);
    (0..count).map(|_| (2.0 * random.uniform() - 1.0) as f32).collect()
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

    /// Of variance 1.
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

    #[test]
    fn weights_beside_the_file_are_read() {
        use crate::onnx::proto::{GraphProto, StringStringEntryProto};
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: key.into(),
            value: value.into(),
        };
        let external_data = vec![entry("location", "w.data"), entry("offset", "8")];
        let w = TensorProto {
            name: "w".into(),
            dims: vec![2],
            data_type: 1,
            data_location: 1,
            external_data,
            ..Default::default()
        };
        let graph = GraphProto { initializer: vec![w], ..Default::default() };
        let bytes = ModelProto { graph: Some(graph), ..Default::default() }.encode_to_vec();
        let mut asked = Vec::new();
        let mut there = |name: &str, offset: u64, length: u64| {
            asked.push((name.to_string(), offset, length));
            Some([1f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect())
        };
        let read = Weights::read(&bytes, "m", &mut there).unwrap();
        assert_eq!(read.known["w"], Constant::F32 { shape: vec![2], data: vec![1.0, 2.0] });
        assert_eq!(asked, [("w.data".to_string(), 8, 8)]);
        assert!(Weights::read(&bytes, "m", &mut |_, _, _| None).unwrap().known.is_empty());
        assert!(Weights::read(&bytes[..bytes.len() - 3], "m", &mut |_, _, _| None).is_err());
    }
}
