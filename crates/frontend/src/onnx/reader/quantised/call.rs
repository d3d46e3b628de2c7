//! [`Call`], a node of a quantised ONNX model with its inputs, results and attributes by place and
//! name: the input of the functions in `calls.rs`, which rewrite such nodes as nodes over floats.

use crate::onnx::proto::{AttributeProto, NodeProto};

/// A node, by its inputs and attributes.
pub(super) struct Call<'a> {
    pub node: &'a NodeProto,
}

impl<'a> Call<'a> {
    /// An input, where it is given.
    pub fn given(&self, i: usize) -> Option<&'a str> {
        self.node.input.get(i).map(String::as_str).filter(|s| !s.is_empty())
    }

    /// The first result.
    pub fn output(&self) -> Option<&'a str> {
        self.node.output.first().map(String::as_str).filter(|s| !s.is_empty())
    }

    /// An attribute, where it is given.
    pub fn attribute(&self, name: &str) -> Option<&'a AttributeProto> {
        self.node.attribute.iter().find(|a| a.name == name)
    }

    /// An attribute that is a whole number.
    pub fn int(&self, name: &str, otherwise: i64) -> i64 {
        self.attribute(name).and_then(|a| a.i).unwrap_or(otherwise)
    }

    /// The attributes that an operator of floats has, too.
    pub fn attributes(&self, names: &[&str]) -> Vec<AttributeProto> {
        let all = self.node.attribute.iter();
        all.filter(|a| names.contains(&a.name.as_str())).cloned().collect()
    }

    /// An axis of a tensor of `rank` dimensions.
    pub fn axis(&self, otherwise: i64, rank: usize) -> Option<usize> {
        let axis = self.int("axis", otherwise);
        let axis = if axis < 0 { axis + rank as i64 } else { axis };
        usize::try_from(axis).ok().filter(|a| *a < rank)
    }
}
