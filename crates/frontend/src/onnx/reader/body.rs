//! Replaces one ONNX node by several: [`Body`] collects the nodes that stand for a call, gives them
//! names behind its own, and reads its inputs and attributes. `contrib.rs` writes onnxruntime's
//! operators with it, `composed.rs` the standard operators that are made of others.

use super::inline::{self, identity, int, ints, simple};
use crate::onnx::proto::{AttributeProto, NodeProto, TensorProto, attribute};
use squall_core::DType;

/// The facts that are known of the graph around a node.
pub(super) struct Around<'a> {
    /// The version of the standard operators.
    pub opset: i64,
    /// The shape of a value.
    pub shape: &'a dyn Fn(&str) -> Option<Vec<i64>>,
    /// The type of its elements.
    pub dtype: &'a dyn Fn(&str) -> Option<DType>,
    /// Its elements, where they are known whole numbers.
    pub integers: &'a dyn Fn(&str) -> Option<Vec<i64>>,
}

/// The nodes that stand for a call.
pub(super) struct Body<'a> {
    pub call: &'a NodeProto,
    pub prefix: &'a str,
    pub around: &'a Around<'a>,
    pub nodes: Vec<NodeProto>,
}

impl Body<'_> {
    /// The name of an input that is given.
    pub fn given(&self, i: usize) -> Option<String> {
        self.call.input.get(i).filter(|s| !s.is_empty()).cloned()
    }

    pub fn input(&self, i: usize) -> Result<String, String> {
        self.given(i).ok_or_else(|| format!("input {i} is missing"))
    }

    /// The shape of an input whose every extent is known.
    pub fn shape(&self, i: usize) -> Result<Vec<i64>, String> {
        let name = self.input(i)?;
        (self.around.shape)(&name).ok_or_else(|| format!("the shape of input {i} is not known"))
    }

    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.call.attribute.iter().find(|a| a.name == name)
    }

    pub fn int(&self, name: &str, otherwise: i64) -> i64 {
        self.attribute(name).and_then(|a| a.i).unwrap_or(otherwise)
    }

    pub fn float(&self, name: &str, otherwise: f32) -> f32 {
        self.attribute(name).and_then(|a| a.f).unwrap_or(otherwise)
    }

    /// Refuses a use in which a further output is read.
    pub fn only_outputs(&self, wanted: &[usize]) -> Result<(), String> {
        let read = |i: &usize| self.call.output.get(*i).is_some_and(|o| !o.is_empty());
        match (0..self.call.output.len()).filter(read).find(|i| !wanted.contains(i)) {
            None => Ok(()),
            Some(i) => Err(format!("its output {i} is not supported")),
        }
    }

    /// Refuses a use in which one of these inputs is given.
    pub fn without_inputs(&self, which: impl IntoIterator<Item = usize>) -> Result<(), String> {
        match which.into_iter().find(|i| self.given(*i).is_some()) {
            None => Ok(()),
            Some(i) => Err(format!("its input {i} is not supported")),
        }
    }

    pub fn fresh(&self) -> String {
        format!("{}{}", self.prefix, self.nodes.len())
    }

    /// A node of several outputs; their names.
    pub fn node(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
        outputs: usize,
    ) -> Vec<String> {
        let first = self.fresh();
        let made: Vec<String> = (0..outputs).map(|i| format!("{first}/{i}")).collect();
        let mut node = simple(op, inputs, "");
        node.output.clone_from(&made);
        node.attribute = attributes;
        self.nodes.push(node);
        made
    }

    pub fn op(&mut self, op: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        self.node(op, inputs, attributes, 1).remove(0)
    }

    /// The call's inputs and attributes given to a standard operator of the same meaning.
    pub fn same(&mut self, op: &str) -> Result<(), String> {
        let inputs: Vec<String> = self.call.input.clone();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let y = self.op(op, &inputs, self.call.attribute.clone());
        self.hand_on(&y, 0);
        Ok(())
    }

    /// Gives a value the name of the call's output.
    pub fn hand_on(&mut self, from: &str, output: usize) {
        if let Some(to) = self.call.output.get(output).filter(|o| !o.is_empty()) {
            self.nodes.push(identity(from, to));
        }
    }

    pub fn constant(&mut self, value: TensorProto) -> String {
        self.op("Constant", &[], vec![inline::value(value)])
    }

    pub fn floats(&mut self, dims: &[i64], float_data: Vec<f32>) -> String {
        let dims = dims.to_vec();
        self.constant(TensorProto { dims, data_type: 1, float_data, ..Default::default() })
    }

    pub fn scalar(&mut self, x: f32) -> String {
        self.floats(&[], vec![x])
    }

    pub fn integers(&mut self, int64_data: &[i64]) -> String {
        let (dims, int64_data) = (vec![int64_data.len() as i64], int64_data.to_vec());
        self.constant(TensorProto { dims, data_type: 7, int64_data, ..Default::default() })
    }

    /// Indices below 0, which count from the end elsewhere, as one behind the end: reading there is
    /// an error.
    pub fn counted_from_front(&mut self, indices: &str, extent: i64) -> String {
        let (zero, end) = (self.integers(&[0]), self.integers(&[extent]));
        let is_below = self.op("Less", &[indices, &zero], vec![]);
        self.op("Where", &[&is_below, &end, indices], vec![])
    }

    pub fn reshape(&mut self, x: &str, to: &[i64]) -> String {
        let shape = self.integers(to);
        self.op("Reshape", &[x, &shape], vec![])
    }

    pub fn transpose(&mut self, x: &str, order: &[i64]) -> String {
        self.op("Transpose", &[x], vec![ints("perm", order)])
    }

    /// A `[queries, keys]` tensor to add to the scores of attention: 0 where query `i` may see key
    /// `j`, which holds for `j <= i + ahead`, and `hidden` elsewhere.
    pub fn causal_mask(&mut self, queries: i64, keys: i64, ahead: i64, hidden: f32) -> String {
        let places = (0..queries).flat_map(|i| (0..keys).map(move |j| j <= i + ahead));
        let mask = places.map(|is_seen| if is_seen { 0.0 } else { hidden }).collect();
        self.floats(&[queries, keys], mask)
    }

    /// Parts of equal extent along an axis.
    pub fn split(&mut self, x: &str, axis: i64, parts: usize) -> Vec<String> {
        let mut attributes = vec![int("axis", axis)];
        if self.around.opset >= 18 {
            attributes.push(int("num_outputs", parts as i64));
        }
        self.node("Split", &[x], attributes, parts)
    }
}

pub(super) fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        f: Some(value),
        r#type: attribute::FLOAT,
        ..Default::default()
    }
}

pub(super) fn word(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        s: Some(value.as_bytes().to_vec()),
        r#type: attribute::STRING,
        ..Default::default()
    }
}
