//! A model as the importer sees it: values by number, nodes in order, attributes decoded.

use crate::error::{Outcome, unknown, wrong};
use crate::tensor::{Elem, Tensor};
use std::sync::Arc;

/// Extents above this and tensors of more elements than the other are refused.
pub(crate) const MAX_EXTENT: i64 = 1 << 31;
pub(crate) const MAX_ELEMENTS: u64 = 1 << 40;

pub(crate) type ValueId = usize;

/// What is known of a tensor of the graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Value {
    pub name: String,
    pub elem: Option<Elem>,
    pub shape: Option<Vec<i64>>,
    /// Whether it is the same at every call.
    pub constant: bool,
    /// Its values, where it is constant and the file holds them.
    pub data: Option<Arc<Tensor>>,
    /// The shape that the file's value_info states.
    pub declared: Option<(Elem, Vec<i64>)>,
    /// The node that computes it.
    pub producer: Option<usize>,
}

/// An attribute's value.
#[derive(Clone, Debug)]
pub(crate) enum Attr {
    Int(i64),
    Float(f32),
    Str(String),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Tensor(TensorFact),
    Other,
}

/// A tensor of the file, whose values may lie elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct TensorFact {
    pub elem: Elem,
    pub shape: Vec<i64>,
    pub data: Option<Arc<Tensor>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Unique in the graph.
    pub name: String,
    pub op: String,
    pub domain: String,
    /// Version of the domain's operator set.
    pub version: i64,
    pub inputs: Vec<Option<ValueId>>,
    /// Values that its subgraphs read from outside.
    pub captures: Vec<ValueId>,
    pub outputs: Vec<Option<ValueId>>,
    pub attrs: Vec<(String, Attr)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub values: Vec<Value>,
    pub nodes: Vec<Node>,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
}

/// A node with what is known of its inputs: what an operator's functions are given.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub node: &'a Node,
    pub values: &'a [Value],
}

impl<'a> Call<'a> {
    pub fn version(&self) -> i64 {
        self.node.version
    }

    /// An input, `None` where it is left out.
    pub fn input(&self, i: usize) -> Option<&'a Value> {
        self.node.inputs.get(i).copied().flatten().map(|v| &self.values[v])
    }

    /// An input that must be there.
    pub fn need(&self, i: usize) -> Outcome<&'a Value> {
        match self.input(i) {
            Some(v) => Ok(v),
            None => wrong(format!("input {i} is missing")),
        }
    }

    pub fn shape(&self, i: usize) -> Outcome<&'a [i64]> {
        let v = self.need(i)?;
        match &v.shape {
            Some(s) => Ok(s),
            None => unknown(format!("the shape of its input `{}` is not known", crate::error::shown(&v.name))),
        }
    }

    pub fn rank_at_least(&self, i: usize, rank: usize) -> Outcome<&'a [i64]> {
        let s = self.shape(i)?;
        if s.len() < rank { wrong(format!("input {i} has shape {s:?}, expected at least {rank} dimensions")) } else { Ok(s) }
    }

    pub fn elem(&self, i: usize) -> Outcome<Elem> {
        let v = self.need(i)?;
        v.elem.map_or_else(|| unknown(format!("the element type of its input `{}` is not known", crate::error::shown(&v.name))), Ok)
    }

    /// The integers of an input, `None` where it is left out.
    pub fn ints(&self, i: usize) -> Outcome<Option<&'a [i64]>> {
        let Some(v) = self.input(i) else { return Ok(None) };
        match &v.data {
            Some(t) => t.as_ints().map_or_else(|| wrong(format!("input {i} holds {}, expected integers", t.elem.name())), |x| Ok(Some(x))),
            None => unknown(format!("its input `{}` is computed at run time", crate::error::shown(&v.name))),
        }
    }

    /// The number in an input of one element, `None` where it is left out.
    pub fn number(&self, i: usize) -> Outcome<Option<f64>> {
        let Some(v) = self.input(i) else { return Ok(None) };
        match &v.data {
            Some(t) => t.scalar().map_or_else(|| wrong(format!("input {i} has shape {:?}, expected one number", t.shape)), |x| Ok(Some(x))),
            None => unknown(format!("its input `{}` is computed at run time", crate::error::shown(&v.name))),
        }
    }

    pub fn attr(&self, name: &str) -> Option<&'a Attr> {
        self.node.attrs.iter().find(|(n, _)| n == name).map(|(_, a)| a)
    }

    pub fn int_or(&self, name: &str) -> Outcome<Option<i64>> {
        match self.attr(name) {
            None => Ok(None),
            Some(Attr::Int(i)) => Ok(Some(*i)),
            Some(_) => wrong(format!("attribute `{name}` is no integer")),
        }
    }

    pub fn int(&self, name: &str, default: i64) -> Outcome<i64> {
        Ok(self.int_or(name)?.unwrap_or(default))
    }

    pub fn need_int(&self, name: &str) -> Outcome<i64> {
        self.int_or(name)?.map_or_else(|| wrong(format!("attribute `{name}` is missing")), Ok)
    }

    pub fn float(&self, name: &str, default: f32) -> Outcome<f64> {
        match self.attr(name) {
            None => Ok(decimal(default)),
            Some(Attr::Float(x)) => Ok(decimal(*x)),
            Some(_) => wrong(format!("attribute `{name}` is no number")),
        }
    }

    pub fn string(&self, name: &str, default: &'a str) -> Outcome<&'a str> {
        match self.attr(name) {
            None => Ok(default),
            Some(Attr::Str(s)) => Ok(s),
            Some(_) => wrong(format!("attribute `{name}` is no string")),
        }
    }

    pub fn list(&self, name: &str) -> Outcome<Option<&'a [i64]>> {
        match self.attr(name) {
            None => Ok(None),
            Some(Attr::Ints(v)) => Ok(Some(v)),
            Some(_) => wrong(format!("attribute `{name}` is no list of integers")),
        }
    }

    /// A list with one number for each of `len` things, `default` where it is left out.
    pub fn list_of(&self, name: &str, len: usize, default: i64) -> Outcome<Vec<i64>> {
        match self.list(name)? {
            None => Ok(vec![default; len]),
            Some(v) if v.len() == len => Ok(v.to_vec()),
            Some(v) => wrong(format!("attribute `{name}` has {} numbers, expected {len}", v.len())),
        }
    }

    /// An axis of a tensor with `rank` dimensions; negative ones count from the end.
    pub fn axis(&self, axis: i64, rank: usize) -> Outcome<usize> {
        let positive = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        match positive.and_then(|a| usize::try_from(a).ok()).filter(|a| *a < rank) {
            Some(a) => Ok(a),
            None => wrong(format!("axis {axis} does not exist in a tensor of {rank} dimensions")),
        }
    }

    /// Axes from an attribute up to a version of the operator, from an input after it. `None`
    /// where neither is there.
    pub fn axes(&self, attr: &str, input: usize, rank: usize) -> Outcome<Option<Vec<usize>>> {
        let list = match self.list(attr)? {
            Some(l) => l,
            None => match self.ints(input)? {
                Some(l) => l,
                None => return Ok(None),
            },
        };
        let mut axes = list.iter().map(|&a| self.axis(a, rank)).collect::<Outcome<Vec<_>>>()?;
        axes.sort_unstable();
        if axes.windows(2).any(|w| w[0] == w[1]) {
            return wrong(format!("axes {list:?} name one twice"));
        }
        Ok(Some(axes))
    }

    /// The shape of an output, known after inference.
    pub fn out_shape(&self, i: usize) -> Outcome<&'a [i64]> {
        match self.node.outputs.get(i).copied().flatten().and_then(|v| self.values[v].shape.as_deref()) {
            Some(s) => Ok(s),
            None => unknown(format!("the shape of output {i} is not known")),
        }
    }

    pub fn has_output(&self, i: usize) -> bool {
        self.node.outputs.get(i).is_some_and(Option::is_some)
    }
}

/// The shortest decimal that means this float: what the author of a model wrote, and what an
/// operator line says.
pub(crate) fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}
