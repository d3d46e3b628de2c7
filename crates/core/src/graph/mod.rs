//! A neural network as data, a [`Model`]: nodes (applications of ONNX operators) over values, in an
//! order of execution. `frontend/src/onnx` makes one from a file; the crate `graph` covers it with
//! kernels. Shape inference ([`infer`]) and constant folding ([`fold`]) lie here because both
//! crates call them. A model has a text that prints and parses back ([`text`]).

mod call;
mod constant;
mod deciding;
pub mod demand;
pub mod fold;
pub mod infer;
pub mod text;
mod verify;
pub mod words;

pub use call::{BOUNDED, CallOperand, MOST_CALL_ELEMENTS, OperatorCall, is_bounded};
pub use constant::{Constant, Tensor};
pub use deciding::{NOT_KNOWN, deciding_inputs};

use crate::DType;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The index of a value in [`Model::values`].
pub type ValueId = usize;

/// The most elements of any value.
pub const MOST_ELEMENTS: i64 = 1 << 40;
/// The most elements of a constant that is kept in memory.
pub const MOST_CONSTANT_ELEMENTS: i64 = 1 << 20;

/// A model: nodes in an order of execution, every shape known where the problem of a node does not
/// forbid it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// In an order of execution.
    pub nodes: Vec<Node>,
    /// All values: inputs, weights, and what nodes produce.
    pub values: Vec<Value>,
    /// The values that the caller gives; initializers are none of them.
    pub inputs: Vec<ValueId>,
    /// The values that the model gives.
    pub outputs: Vec<ValueId>,
    /// The version of the standard operators.
    pub opset: i64,
    /// The graph's name, or the file's.
    pub name: String,
}

impl Model {
    /// The types of a node's operands, where they are known.
    pub fn operand_types(&self, node: &Node) -> Vec<Option<DType>> {
        let dtype = |id: &Option<ValueId>| id.and_then(|id| self.values.get(id)?.dtype);
        node.inputs.iter().map(dtype).collect()
    }
}

/// One application of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Unique and never empty: made from the operator and the index where the file has none.
    pub name: String,
    /// The operator.
    pub op: String,
    /// The operator's domain; empty for the standard ones.
    pub domain: String,
    /// Operands; optional ones may be absent.
    pub inputs: Vec<Option<ValueId>>,
    /// Results.
    pub outputs: Vec<ValueId>,
    /// Named constants.
    pub attributes: BTreeMap<String, Attribute>,
    /// Needs no execution at inference: its results are known or depend on weights alone, or it
    /// hands its operand on.
    pub folded: bool,
    /// Why its shapes cannot be inferred.
    pub problem: Option<String>,
}

impl Node {
    /// A whole number among its attributes, or `usual` where it names none.
    pub fn int_or(&self, name: &str, usual: i64) -> i64 {
        match self.attributes.get(name) {
            Some(Attribute::Int(i)) => *i,
            _ => usual,
        }
    }
}

/// A named constant of a node.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the types
pub enum Attribute {
    Int(i64),
    Float(f32),
    String(String),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strings(Vec<String>),
    Tensor(Tensor),
    /// The nodes of a region ([`infer::region`]).
    Body(Box<Model>),
    /// A subgraph, which stays unread.
    Graph,
    /// A kind of constant that no operator here uses.
    Other,
}

/// A tensor that flows between nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Unique.
    pub name: String,
    /// The type of its elements; none where it is not stated or no type of numbers.
    pub dtype: Option<DType>,
    /// Extents, outermost first, where known.
    pub shape: Option<Vec<i64>>,
    /// Its elements, where known at import and few enough.
    pub constant: Option<Arc<Constant>>,
    /// The same in every call; its elements may be absent.
    pub weight: bool,
    /// The value that it equals, where its node only hands that on; never an alias itself.
    pub alias: Option<ValueId>,
}

/// What is known of a model's weights beyond what the model holds, by the name of the value.
pub type Weights = HashMap<String, Constant>;

/// A type of elements as messages name it.
pub fn type_name(dtype: Option<DType>) -> &'static str {
    dtype.map_or("an unknown type", DType::name)
}

/// The number of elements of a shape; an error for negative extents and for more than
/// [`MOST_ELEMENTS`], in the whole or along one axis.
pub fn elements(shape: &[i64]) -> Result<i64, String> {
    if shape.len() > 32 {
        return Err(format!("it has {} dimensions, at most 32 are supported", shape.len()));
    }
    let mut count: i64 = 1;
    for &d in shape {
        if d < 0 {
            return Err(format!("shape {shape:?} has a negative dimension"));
        }
        let product = count.checked_mul(d.max(1)).filter(|n| *n <= MOST_ELEMENTS);
        count = product.ok_or_else(|| format!("shape {shape:?} has more than 2^40 elements"))?;
    }
    Ok(if shape.contains(&0) { 0 } else { count })
}
