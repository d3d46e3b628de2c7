//! A quantised model rewritten so that its kernels read and write bytes. A reader leaves such a
//! model as floats: `DequantizeLinear`, an operator of floats, `QuantizeLinear`. Here an operator
//! between the two becomes one of bytes with its rounding (`core/src/graph/infer/bytes.rs`), and
//! bytes go from one to the next. What has no operator of bytes stays as it is, between
//! `FromBytes` and `ToBytes`; so does all of a model in which nothing is multiplied in bytes.
//!
//! Results differ from those of floats where a value lies between two steps: sums are exact here.

mod dynamic;
mod finish;
mod hold;
mod operators;
mod table;
mod trace;
mod windows;

use crate::view::View;
use hold::{Holder, Quantised};
use squall_core::DType;
use squall_core::graph::{Attribute, Constant, Model, Node, Value, ValueId};
use std::collections::{BTreeMap, HashMap};

/// The model with its quantised operators over bytes; none where there are none, or where the
/// rewriting would break it.
pub fn in_bytes(model: &Model) -> Option<Model> {
    // The second is what dynamic quantisation is written out as.
    let marks = ["DequantizeLinear", "Round"];
    let is_marked = |n: &Node| marks.iter().any(|op| is_standard(n, op)) && !n.folded;
    if !model.nodes.iter().any(is_marked) {
        return None;
    }
    let mut r = Rewriter::new(model);
    for i in 0..model.nodes.len() {
        r.node(i);
    }
    if !r.multiplies {
        return None;
    }
    let made = finish::finished(r.made, r.nodes);
    made.verify().is_ok().then_some(made)
}

/// Whether a node is this operator of the standard domain.
fn is_standard(n: &Node, op: &str) -> bool {
    n.op == op && matches!(n.domain.as_str(), "" | "ai.onnx") && n.problem.is_none()
}

/// A model while it is rewritten: the old nodes one after the other, each followed or replaced by
/// what it becomes.
struct Rewriter<'a> {
    old: &'a Model,
    view: View<'a>,
    /// The model with values of the new nodes; its own nodes are of no meaning.
    made: Model,
    /// The new nodes.
    nodes: Vec<Node>,
    /// The old nodes that give values.
    producers: HashMap<ValueId, usize>,
    /// How often a value is read, by nodes that run and by the caller.
    reads: Vec<usize>,
    /// What is held as bytes.
    holders: Vec<Holder>,
    /// Integers of the file, by their roots: who holds them.
    integers: HashMap<ValueId, usize>,
    /// Floats that are bytes with a scale, by their roots.
    floats: HashMap<ValueId, Quantised>,
    /// Bytes of activations that are quantised in every run, by the floats that hold them.
    dynamic: HashMap<ValueId, ValueId>,
    /// Whether a product of bytes was made.
    multiplies: bool,
}

impl<'a> Rewriter<'a> {
    fn new(old: &'a Model) -> Rewriter<'a> {
        let mut reads = vec![0; old.values.len()];
        let root = |v: ValueId| old.values[v].alias.unwrap_or(v);
        for n in old.nodes.iter().filter(|n| !n.folded) {
            n.inputs.iter().flatten().for_each(|&v| reads[root(v)] += 1);
        }
        old.outputs.iter().for_each(|&v| reads[root(v)] += 1);
        let of_nodes = old.nodes.iter().enumerate();
        let producers =
            of_nodes.flat_map(|(i, n)| n.outputs.iter().map(move |&o| (o, i))).collect();
        Rewriter {
            old,
            view: View::new(old),
            made: old.clone(),
            nodes: Vec::new(),
            producers,
            reads,
            holders: Vec::new(),
            integers: HashMap::new(),
            floats: HashMap::new(),
            dynamic: HashMap::new(),
            multiplies: false,
        }
    }

    /// Takes over one node of the old model.
    fn node(&mut self, i: usize) {
        let n = &self.old.nodes[i];
        let known = matches!(n.domain.as_str(), "" | "ai.onnx") && n.problem.is_none();
        let replaced = match n.op.as_str() {
            _ if n.folded || !known => false,
            "QuantizeLinear" => self.quantise(n),
            "DequantizeLinear" => self.dequantise(n),
            "Mul" => {
                self.scale(n);
                false
            }
            "MaxPool" => self.greatest(n).is_some_and(|h| self.leaves(n, h)),
            "Split" => self.splits(n),
            "MatMul" => self.dynamic(n),
            op if MOVES.contains(&op) => self.moves(n).is_some_and(|h| self.leaves(n, h)),
            _ => false,
        };
        if !replaced {
            self.nodes.push(n.clone());
        }
    }

    /// A value's root.
    fn root(&self, v: ValueId) -> ValueId {
        self.made.values[v].alias.unwrap_or(v)
    }

    /// The extents of a value, where all are known and none is empty.
    fn shape(&self, v: ValueId) -> Option<Vec<i64>> {
        let own = |v: ValueId| self.made.values[v].shape.clone();
        own(v).or_else(|| own(self.root(v))).filter(|s| s.iter().all(|e| *e > 0))
    }

    /// The elements of a value, where they are known.
    fn constant(&self, v: ValueId) -> Option<&Constant> {
        let own = |v: ValueId| self.made.values[v].constant.as_ref();
        own(v).or_else(|| own(self.root(v)))
    }

    /// The one float that a value is known to be.
    fn number(&self, v: ValueId) -> Option<f64> {
        match self.constant(v)? {
            Constant::F32 { data, .. } => match data[..] {
                [x] => Some(f64::from(x)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether a value is the same in every run.
    fn is_weight(&self, v: ValueId) -> bool {
        let one = |v: ValueId| self.made.values[v].weight || self.made.values[v].constant.is_some();
        one(v) || one(self.root(v))
    }

    /// The old node that gives a value.
    fn producer(&self, v: ValueId) -> Option<&'a Node> {
        self.producers.get(&self.root(v)).map(|&i| &self.old.nodes[i])
    }

    /// A new value.
    fn value(&mut self, dtype: DType, shape: Vec<i64>, constant: Option<Constant>) -> ValueId {
        let name = format!("squall/bytes/{}", self.made.values.len());
        let weight = constant.is_some();
        let shape = Some(shape);
        self.made.values.push(Value {
            name,
            dtype: Some(dtype),
            shape,
            constant,
            weight,
            alias: None,
        });
        self.made.values.len() - 1
    }

    /// A few floats that a kernel reads.
    fn parameters(&mut self, list: &[f64]) -> ValueId {
        let data: Vec<f32> = list.iter().map(|x| *x as f32).collect();
        let shape = vec![data.len() as i64];
        self.value(DType::F32, shape.clone(), Some(Constant::F32 { shape, data }))
    }

    /// A new node that gives one tensor of bytes; that.
    fn bytes(&mut self, of: &str, call: Call<'_>, shape: Vec<i64>) -> ValueId {
        let output = self.value(DType::U8, shape, None);
        self.push(of, call, vec![output]);
        output
    }

    fn push(&mut self, of: &str, call: Call<'_>, outputs: Vec<ValueId>) {
        self.nodes.push(Node {
            name: format!("{of}/{}/{}", call.op, self.made.values.len()),
            op: call.op.into(),
            domain: call.domain.into(),
            inputs: call.inputs.iter().map(|&v| Some(v)).collect(),
            outputs,
            attributes: call.attributes,
            folded: false,
            problem: None,
        });
    }
}

/// Operators that bytes go through as they are.
const MOVES: &[&str] = &["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice"];

/// A node that is to be made.
struct Call<'a> {
    op: &'a str,
    domain: &'a str,
    inputs: &'a [ValueId],
    attributes: BTreeMap<String, Attribute>,
}

/// An operator of bytes.
fn of_bytes<'a>(op: &'a str, inputs: &'a [ValueId], attributes: Attributes) -> Call<'a> {
    let domain = squall_core::graph::infer::nbits::DOMAIN;
    Call { op, domain, inputs, attributes: attributes.0 }
}

/// Attributes of a node that is to be made.
#[derive(Default)]
struct Attributes(BTreeMap<String, Attribute>);

impl Attributes {
    fn with(mut self, name: &str, value: Attribute) -> Attributes {
        self.0.insert(name.into(), value);
        self
    }

    fn int(self, name: &str, value: i64) -> Attributes {
        self.with(name, Attribute::Int(value))
    }

    fn float(self, name: &str, value: f64) -> Attributes {
        self.with(name, Attribute::Float(value as f32))
    }

    fn ints(self, name: &str, value: &[i64]) -> Attributes {
        self.with(name, Attribute::Ints(value.to_vec()))
    }
}
