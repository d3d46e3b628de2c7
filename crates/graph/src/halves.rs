//! Widens a model that computes in 16-bit floats (f16 or bf16) to one that computes in 32 bits:
//! weights and values between operators become 32-bit floats; inputs and outputs keep the types of
//! the file. On GPUs `squall/src/input/in_precision.rs` gives kernels the 16-bit format again.
//!
//! The promise for results: operators compute in 32 bits and round nothing. A value is rounded to
//! the format of the file (to nearest, ties to even, beyond the largest number to infinity) where
//! the file's own type is visible: in outputs, in `Cast`s to and from a 16-bit format, in operands
//! of operators whose results are no floats (comparisons, indices), and in operands of operators
//! that jump (`Floor`, `Round`). Sums of products are thereby at least as good as those of a
//! library that rounds every result.

mod bodies;

use self::bodies::bodies;
use crate::numbered::{numbered, root as root_of};
use squall_core::DType;
use squall_core::graph::infer::{Ctx, onnx_type, region};
use squall_core::graph::{Attribute, Constant, Model, Node, Value, ValueId};
use squall_core::operators;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The 16-bit format that a widened model was in, and the values that had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halves {
    /// The format in which the model of the file computes.
    pub format: DType,
    /// The names of the 32-bit values that stand for values of this format.
    pub values: HashSet<String>,
}

/// Operators whose results are numbers of their operands, unchanged or negated: numbers that the
/// 16-bit format holds exactly stay so.
const HANDS_ON: &[&str] = &[
    "Abs",
    "Compress",
    "Concat",
    "DepthToSpace",
    "Dropout",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "GlobalMaxPool",
    "Identity",
    "Max",
    "MaxPool",
    "Min",
    "Neg",
    "Pad",
    "ReduceMax",
    "ReduceMin",
    "Relu",
    "Reshape",
    "ReverseSequence",
    "ScatterElements",
    "ScatterND",
    "Sign",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
];

/// Operators whose results jump where their operands change in the last place.
const JUMPS: &[&str] = &["Ceil", "Floor", "Mod", "Round", "Sign"];

/// Operators whose whole numbers and booleans depend on no float.
const NO_NUMBERS: &[&str] = &["Dropout", "Shape", "Size"];

/// Attributes that name the type of a result.
const TYPES: &[&str] = &["dtype", "output_datatype", "output_dtype", "to"];

/// The model with 32-bit floats in place of 16-bit ones, and its former format and values. A model
/// without 16-bit floats stays as it is.
pub fn widened(model: Model) -> (Model, Option<Halves>) {
    let is_half = |m: &Model| m.values.iter().any(|v| v.dtype.is_some_and(DType::is_half));
    if !is_half(&model) && !bodies(&model).into_iter().any(is_half) {
        return (model, None);
    }
    let format = computes_in(&model);
    let mut w = Widener::new(&model);
    w.inputs(&model);
    w.constants(&model);
    for n in &model.nodes {
        let mut node = n.clone();
        node.inputs.iter_mut().flatten().for_each(|v| *v = w.to[*v]);
        w.node(node);
    }
    let outputs = w.outputs(&model);
    let stands_for =
        |v: &Value, was: &Option<DType>| was.is_some() && *was == format && was != &v.dtype;
    let pairs = w.values.iter().zip(&w.was);
    let values = pairs.filter(|(v, was)| stands_for(v, was)).map(|(v, _)| v.name.clone()).collect();
    let ends = Model { nodes: Vec::new(), values: Vec::new(), outputs, ..head(&model) };
    let made = numbered(&ends, w.values, w.nodes);
    match made.verify() {
        Ok(()) => (made, format.map(|format| Halves { format, values })),
        Err(_) => (model, None),
    }
}

/// A model's ends, its version and its name.
fn head(model: &Model) -> Model {
    Model {
        nodes: Vec::new(),
        values: Vec::new(),
        inputs: model.inputs.clone(),
        outputs: model.outputs.clone(),
        opset: model.opset,
        name: model.name.clone(),
    }
}

/// The format of 16 bits in which most operators compute that compute in any.
fn computes_in(model: &Model) -> Option<DType> {
    let format = |m: &Model, n: &Node| {
        let computes = !n.folded && n.op != "Cast" && n.op != "CastLike";
        let computes = computes && !HANDS_ON.contains(&n.op.as_str());
        let of = n.outputs.first().and_then(|o| m.values[*o].dtype);
        of.filter(|d| computes && d.is_half())
    };
    let parts = std::iter::once(model).chain(bodies(model));
    let of_part = |m: &Model| m.nodes.iter().filter_map(|n| format(m, n)).collect::<Vec<_>>();
    let all: Vec<DType> = parts.flat_map(of_part).collect();
    let count = |f: DType| all.iter().filter(|d| **d == f).count();
    let most = [DType::F16, DType::Bf16].into_iter().max_by_key(|f| count(*f));
    most.filter(|f| count(*f) > 0)
}

/// The number that ONNX gives a type.
fn number(dtype: DType) -> i64 {
    (1..64).find(|n| onnx_type(*n) == Some(dtype)).unwrap_or(1)
}

fn is_standard(n: &Node) -> bool {
    matches!(n.domain.as_str(), "" | "ai.onnx")
}

/// A constant's floats, rounded.
fn round(c: &mut Constant, format: DType) {
    if let Constant::F32 { data, .. } = c {
        for x in data {
            *x = format.half_bits(*x).and_then(|bits| format.half_value(bits)).unwrap_or(*x);
        }
    }
}

/// A model while it is widened.
struct Widener {
    opset: i64,
    values: Vec<Value>,
    /// For each value the 16-bit format that it had.
    was: Vec<Option<DType>>,
    /// Whether a value is known to be a number of the format that it had.
    exact: Vec<bool>,
    /// For each value of the model the value that is read in its place.
    to: Vec<ValueId>,
    nodes: Vec<Node>,
    /// Values that were rounded already, by their roots.
    rounded: HashMap<ValueId, ValueId>,
    /// Names of values and of nodes.
    taken: HashSet<String>,
}

impl Widener {
    fn new(model: &Model) -> Widener {
        let half = |v: &Value| v.dtype.filter(|d| d.is_half());
        let names = model.values.iter().map(|v| &v.name).chain(model.nodes.iter().map(|n| &n.name));
        Widener {
            opset: model.opset,
            values: model.values.clone(),
            was: model.values.iter().map(half).collect(),
            exact: vec![false; model.values.len()],
            to: (0..model.values.len()).collect(),
            nodes: Vec::new(),
            rounded: HashMap::new(),
            taken: names.cloned().collect(),
        }
    }

    fn fresh(&mut self) -> String {
        let free = (self.values.len() + self.nodes.len()..).map(|k| format!("squall/halves/{k}"));
        let name = free.into_iter().find(|n| !self.taken.contains(n)).unwrap_or_default();
        self.taken.insert(name.clone());
        name
    }

    /// A new value of the shape of another.
    fn value(&mut self, like: ValueId, dtype: DType, was: Option<DType>) -> ValueId {
        let name = self.fresh();
        let shape = self.values[like].shape.clone();
        let dtype = Some(dtype);
        self.values.push(Value { name, dtype, shape, constant: None, weight: false, alias: None });
        self.was.push(was);
        self.exact.push(was.is_some());
        self.values.len() - 1
    }

    /// A node that converts.
    fn cast(&mut self, from: ValueId, to: ValueId) {
        let dtype = self.values[to].dtype.unwrap_or(DType::F32);
        let attributes = [("to".to_string(), Attribute::Int(number(dtype)))].into();
        let name = self.fresh();
        self.nodes.push(Node {
            name,
            op: "Cast".into(),
            domain: String::new(),
            inputs: vec![Some(from)],
            outputs: vec![to],
            attributes,
            folded: false,
            problem: None,
        });
    }

    /// Inputs keep their types; a conversion of each is what nodes read.
    fn inputs(&mut self, model: &Model) {
        for &v in &model.inputs {
            let Some(format) = self.was[v] else { continue };
            let wide = self.value(v, DType::F32, Some(format));
            self.cast(v, wide);
            self.to[v] = wide;
        }
        let moved: Vec<Option<ValueId>> =
            self.values.iter().map(|v| v.alias.map(|a| self.to[a])).collect();
        self.values.iter_mut().zip(moved).for_each(|(v, alias)| v.alias = alias);
    }

    /// All values but inputs become 32-bit floats. A constant that a node makes is rounded to its
    /// former format; a constant that no node makes is a number of that format already.
    fn constants(&mut self, model: &Model) {
        let made: HashSet<ValueId> = model.nodes.iter().flat_map(|n| n.outputs.clone()).collect();
        for v in 0..model.values.len() {
            let (Some(format), false) = (self.was[v], model.inputs.contains(&v)) else { continue };
            let value = &mut self.values[v];
            value.dtype = Some(DType::F32);
            if let (true, Some(c)) = (made.contains(&v), &mut value.constant) {
                round(Arc::make_mut(c), format);
            }
            self.exact[v] = !made.contains(&v) || value.constant.is_some();
        }
    }

    /// A value as a number of the format that it had.
    fn rounded(&mut self, v: ValueId) -> ValueId {
        let root = root_of(&self.values, v);
        let Some(format) = self.was[v] else { return v };
        if self.exact[root] || self.values[root].weight || self.values[v].shape.is_none() {
            return v;
        }
        if let Some(known) = self.rounded.get(&root) {
            return *known;
        }
        let narrow = self.value(v, format, None);
        let wide = self.value(v, DType::F32, Some(format));
        self.cast(v, narrow);
        self.cast(narrow, wide);
        self.rounded.insert(root, wide);
        wide
    }

    fn node(&mut self, mut node: Node) {
        let reads_half = node.inputs.iter().flatten().any(|v| self.was[*v].is_some());
        let gives_half = node.outputs.iter().any(|v| self.was[*v].is_some());
        if node.problem.is_some() {
            self.infer(&mut node);
        }
        if region::body(&node).is_some() {
            self.widen_body(&mut node);
            self.nodes.push(node);
            return;
        }
        if !reads_half && !gives_half {
            self.nodes.push(node);
            return;
        }
        let converts = is_standard(&node) && matches!(node.op.as_str(), "Cast" | "CastLike");
        if converts && !node.folded && node.problem.is_none() && node.outputs.len() == 1 {
            return self.conversion(node);
        }
        if is_standard(&node) && node.op == "BitCast" {
            node.problem = Some("the bits of floats of 16 bits are not supported".into());
        }
        self.widen_attributes(&mut node);
        if node.folded {
            self.nodes.push(node);
            return;
        }
        let is_whole =
            |v: &ValueId| self.values[*v].dtype.is_some_and(|d| d.is_integer() || d == DType::Bool);
        let op = node.op.as_str();
        let leaves = !NO_NUMBERS.contains(&op) && node.outputs.iter().any(is_whole);
        if leaves || (is_standard(&node) && JUMPS.contains(&op)) {
            for i in 0..node.inputs.len() {
                node.inputs[i] = node.inputs[i].map(|v| self.rounded(v));
            }
        }
        let is_exact = |v: &ValueId| {
            self.was[*v].is_none()
                || self.exact[root_of(&self.values, *v)]
                || self.values[*v].weight
        };
        let hands_on = is_standard(&node) && HANDS_ON.contains(&node.op.as_str());
        if hands_on && node.inputs.iter().flatten().all(is_exact) {
            node.outputs.iter().for_each(|v| self.exact[*v] = true);
        }
        self.nodes.push(node);
    }

    /// Types that attributes say.
    fn widen_attributes(&self, node: &mut Node) {
        for (name, a) in &mut node.attributes {
            match a {
                Attribute::Tensor(t) if t.dtype.is_some_and(DType::is_half) => {
                    t.dtype = Some(DType::F32);
                }
                Attribute::Int(n)
                    if TYPES.contains(&name.as_str())
                        && onnx_type(*n).is_some_and(DType::is_half) =>
                {
                    *n = number(DType::F32);
                }
                _ => {}
            }
        }
    }

    /// Infers a node's results anew, after its operands' types or known elements changed.
    fn infer(&mut self, node: &mut Node) {
        let mut wide = node.clone();
        self.widen_attributes(&mut wide);
        let Ok(made) = operators::infer(&Ctx::new(&wide, self.opset, &self.values)) else { return };
        let half = node.inputs.iter().flatten().find_map(|v| self.was[*v]);
        for (&id, o) in node.outputs.iter().zip(&made) {
            (self.values[id].dtype, self.values[id].shape) = (o.dtype, Some(o.shape.clone()));
            self.was[id] = half.filter(|_| o.dtype == Some(DType::F32));
        }
        node.problem = None;
    }

    /// A conversion that the file says: to a format of 16 bits it rounds, from one it reads what
    /// was rounded.
    fn conversion(&mut self, mut node: Node) {
        let (Some(Some(given)), [out]) = (node.inputs.first().copied(), &node.outputs[..]) else {
            self.nodes.push(node);
            return;
        };
        let out = *out;
        let mut x = self.rounded(given);
        node.op = "Cast".into();
        node.inputs = vec![Some(x)];
        let to = self.values[out].dtype.unwrap_or(DType::F32);
        node.attributes = [("to".to_string(), Attribute::Int(number(to)))].into();
        let Some(format) = self.was[out] else {
            if to == DType::F32 {
                self.alias(&mut node, x);
            }
            self.nodes.push(node);
            return;
        };
        let from = self.values[x].dtype;
        if matches!(from, Some(DType::Bool | DType::U8 | DType::I8)) {
            self.exact[out] = true;
            self.nodes.push(node);
            return;
        }
        if from != Some(DType::F32) {
            let wide = self.value(out, DType::F32, None);
            self.cast(x, wide);
            x = wide;
        }
        let narrow = self.value(out, format, None);
        self.cast(x, narrow);
        node.inputs = vec![Some(narrow)];
        self.exact[out] = true;
        self.nodes.push(node);
    }

    /// A node that hands its operand on.
    fn alias(&mut self, node: &mut Node, x: ValueId) {
        let root = root_of(&self.values, x);
        let out = node.outputs[0];
        self.values[out].alias = Some(root);
        self.values[out].weight = self.values[root].weight;
        node.folded = true;
    }

    /// Outputs get the types of the file again.
    fn outputs(&mut self, model: &Model) -> Vec<ValueId> {
        let mut known: HashMap<ValueId, ValueId> = HashMap::new();
        let mut list = Vec::new();
        for &v in &model.outputs {
            let Some(format) = self.was[v].filter(|_| !model.inputs.contains(&v)) else {
                list.push(v);
                continue;
            };
            if !self.nodes.iter().any(|n| n.outputs.contains(&v)) {
                // A weight that is handed out stays as it is.
                self.values[v].dtype = Some(format);
                list.push(v);
                continue;
            }
            let given = *known.entry(v).or_insert_with(|| {
                let given = self.value(v, format, None);
                self.cast(v, given);
                let name = std::mem::take(&mut self.values[given].name);
                self.values[given].name = std::mem::replace(&mut self.values[v].name, name);
                given
            });
            list.push(given);
        }
        list
    }
}
