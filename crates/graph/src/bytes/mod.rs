//! Rewrites a quantised model so that its kernels read and write bytes (8-bit integers), for CPUs.
//! A reader leaves such a model as floats: `DequantizeLinear`, an operator on floats,
//! `QuantizeLinear`. Here the operator between the two becomes an operator over bytes that rounds
//! its result itself (`core/src/graph/infer/bytes.rs`), and bytes pass from one to the next. A node
//! without an operator over bytes stays as it is, between `FromBytes` and `ToBytes`; a model that
//! multiplies nothing in bytes stays as a whole.
//!
//! Input and output: a model. Results differ from those of floats where a value lies between two
//! steps, because sums are exact here. `operators` replaces nodes that end in `QuantizeLinear`,
//! `windows` has convolutions and pools, `table` functions of one byte, `dynamic` scales computed
//! at run time; `trace` recognises weights and roundings, `hold` keeps the bytes of each tensor,
//! `finish` removes dead nodes.

mod dynamic;
mod few_bits;
mod finish;
mod hold;
mod operators;
mod signs;
mod stayed;
mod table;
mod trace;
mod windows;

use crate::numbered::add_value;
use crate::view::{View, is_standard};
pub(crate) use few_bits::KERNEL;
use hold::{Holder, Quantised};
use squall_core::DType;
use squall_core::graph::infer::{Ctx, nbits};
use squall_core::graph::{Attribute, Constant, Model, Node, Value, ValueId};
use squall_core::operators::infer;
pub use stayed::stayed;
use std::collections::{BTreeMap, HashMap};

/// The model with its quantised operators over bytes, and with products of few bits as kernels;
/// `None` where it has neither, or where the rewriting would break it.
pub fn in_bytes(model: &Model) -> Option<Model> {
    let made = over_bytes(model);
    few_bits::marked(made.as_ref().unwrap_or(model)).or(made)
}

/// The model with its quantised operators over bytes.
fn over_bytes(model: &Model) -> Option<Model> {
    // The reader writes dynamic quantisation out with a `Round`.
    let marks = ["DequantizeLinear", "Round"];
    let is_marked = |n: &Node| marks.iter().any(|op| is_standard(n, op)) && !n.folded;
    if !model.nodes.iter().any(is_marked) {
        return None;
    }
    let mut r = Rewriter::new(model);
    model.nodes.iter().for_each(|n| r.node(n));
    if !r.multiplies {
        return None;
    }
    let made = finish::finished(model, r.values, r.nodes);
    made.verify().is_ok().then_some(made)
}

/// A model while it is rewritten: the old nodes are visited one after the other, and each is kept,
/// followed or replaced by new nodes.
struct Rewriter<'a> {
    /// The old model.
    view: View<'a>,
    /// The old model's values, and behind them those of the new nodes.
    values: Vec<Value>,
    /// The new nodes.
    nodes: Vec<Node>,
    /// The old node that makes each value, folded nodes included.
    producers: HashMap<ValueId, &'a Node>,
    /// The tensors that are held as bytes.
    holders: Vec<Holder>,
    /// For each integer value of the file, by its root, the number of its holder.
    integers: HashMap<ValueId, usize>,
    /// Floats that are bytes with a scale, by their roots.
    floats: HashMap<ValueId, Quantised>,
    /// Bytes of activations that are quantised in every run, by the floats that hold them, and
    /// whether their channels are last.
    dynamic: HashMap<(ValueId, bool), ValueId>,
    /// Whether each value of the old model has no negative element.
    never_negative: Vec<bool>,
    /// Whether a product of bytes was made.
    multiplies: bool,
}

impl<'a> Rewriter<'a> {
    fn new(old: &'a Model) -> Rewriter<'a> {
        let given = old.nodes.iter().flat_map(|n| n.outputs.iter().map(move |&o| (o, n)));
        let view = View::new(old);
        Rewriter {
            never_negative: signs::never_negative(&view),
            view,
            values: old.values.clone(),
            nodes: Vec::new(),
            producers: given.collect(),
            holders: Vec::new(),
            integers: HashMap::new(),
            floats: HashMap::new(),
            dynamic: HashMap::new(),
            multiplies: false,
        }
    }

    /// Takes over one node of the old model.
    fn node(&mut self, n: &'a Node) {
        let replaced = match n.op.as_str() {
            op if n.folded || !is_standard(n, op) => false,
            "QuantizeLinear" => self.quantise(n),
            "DequantizeLinear" => self.dequantise(n),
            "Mul" => {
                self.scale(n);
                false
            }
            "MaxPool" => self.greatest(n).is_some_and(|h| self.leaves(n, h)),
            "Split" => self.splits(n),
            "MatMul" | "Conv" => self.dynamic(n),
            "Min" => self.least(n),
            op if MOVES.contains(&op) => self.moves(n).is_some_and(|h| self.leaves(n, h)),
            _ => false,
        };
        if !replaced {
            self.nodes.push(n.clone());
        }
    }

    /// The one float that a value is known to be.
    fn number(&self, v: ValueId) -> Option<f64> {
        match self.view.constant(v)?.as_f32()? {
            [x] => Some(f64::from(*x)),
            _ => None,
        }
    }

    /// The old node that gives a value.
    fn producer(&self, v: ValueId) -> Option<&'a Node> {
        self.producers.get(&self.view.root(v)).copied()
    }

    /// A new value.
    fn value(
        &mut self,
        dtype: Option<DType>,
        shape: Vec<i64>,
        constant: Option<Constant>,
    ) -> ValueId {
        add_value(&mut self.values, "bytes", dtype, shape, constant)
    }

    /// A new constant.
    fn known(&mut self, dtype: DType, constant: Constant) -> ValueId {
        self.value(Some(dtype), constant.shape().to_vec(), Some(constant))
    }

    /// A few floats that a kernel reads.
    fn parameters(&mut self, list: &[f64]) -> ValueId {
        let data: Vec<f32> = list.iter().map(|x| *x as f32).collect();
        self.known(DType::F32, Constant::F32 { shape: vec![data.len() as i64], data })
    }

    /// Adds a new node with `count` new values, and returns them; `None` where its operator does
    /// not take the operands.
    fn results(&mut self, of: &str, call: Call<'_>, count: usize) -> Option<Vec<ValueId>> {
        let mut node = call.node(format!("{of}/{}/{}", call.op, self.values.len()));
        node.outputs = vec![0; count];
        let made = infer(&Ctx::new(&node, self.view.model.opset, &self.values)).ok()?;
        if made.len() < count {
            return None;
        }
        let made = made.into_iter().take(count);
        node.outputs = made.map(|o| self.value(o.dtype, o.shape, None)).collect();
        let outputs = node.outputs.clone();
        self.nodes.push(node);
        Some(outputs)
    }

    /// Adds a new node with one new value, and returns it.
    fn result(&mut self, of: &str, call: Call<'_>) -> Option<ValueId> {
        self.results(of, call, 1)?.pop()
    }

    /// A new node of this name that gives an old value.
    fn gives(&mut self, name: &str, call: Call<'_>, y: ValueId) {
        let node = call.node(name.into());
        self.nodes.push(Node { outputs: vec![y], ..node });
    }
}

/// Operators that bytes go through as they are.
const MOVES: &[&str] = &["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice"];

/// A node that is to be made.
struct Call<'a> {
    op: &'a str,
    domain: &'a str,
    inputs: Vec<Option<ValueId>>,
    attributes: Attributes,
}

impl Call<'_> {
    /// The node, without results.
    fn node(&self, name: String) -> Node {
        Node {
            name,
            op: self.op.into(),
            domain: self.domain.into(),
            inputs: self.inputs.clone(),
            outputs: Vec::new(),
            attributes: self.attributes.0.clone(),
            folded: false,
            problem: None,
        }
    }
}

/// An operator of bytes.
fn of_bytes<'a>(op: &'a str, inputs: &[ValueId], attributes: Attributes) -> Call<'a> {
    let inputs = inputs.iter().copied().map(Some).collect();
    Call { op, domain: nbits::DOMAIN, inputs, attributes }
}

/// A node's operator over other bytes than its first operand.
fn over<'a>(n: &'a Node, bytes: ValueId) -> Call<'a> {
    let rest = n.inputs.iter().skip(1).copied();
    let inputs = [Some(bytes)].into_iter().chain(rest).collect();
    Call { op: &n.op, domain: "", inputs, attributes: Attributes(n.attributes.clone()) }
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

    fn word(self, name: &str, value: &str) -> Attributes {
        self.with(name, Attribute::String(value.into()))
    }

    fn and(mut self, others: Attributes) -> Attributes {
        self.0.extend(others.0);
        self
    }
}
