//! Reads the bytes of an ONNX file into a [`Model`]: names become values, nodes are put in order,
//! shapes are inferred and constants folded on the way. Nodes that hold others are replaced
//! (`reader/control.rs`), quantised and onnxruntime's operators are written as standard ones.

mod body;
mod composed;
mod contrib;
mod control;
mod folding;
mod inline;
mod legacy;
mod open;
mod quantised;
mod regions;
mod rolled;

pub use self::composed::composed_operators;
use self::control::Expansion;
use super::proto::{self, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use super::stored::Stored;
use super::tensor::tensor;
use crate::error::{ImportError, shown};
use prost::Message;
use squall_core::DType;
use squall_core::graph::infer::{self, Ctx};
use squall_core::graph::{
    Attribute, MOST_CONSTANT_ELEMENTS, MOST_ELEMENTS, Model, Node, Tensor, Value, ValueId, elements,
};
use squall_core::operators;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

/// A type, where it is one that Squall knows, and a shape that a file states.
type Declared = (Option<DType>, Vec<i64>);

/// The most elements of all folded constants of a model together.
const MOST_FOLDED_ELEMENTS: i64 = 1 << 26;

/// The most elements of a constant that is kept under another name, too.
const MOST_COPIED: usize = 4096;

const REPAIR: &str = "the file is damaged or its exporter wrong; export the model again";

/// Reads a model; `name` is for messages, `dims` gives values to dimensions that are left open.
pub fn read(bytes: &[u8], name: &str, dims: &[(String, i64)]) -> Result<Model, ImportError> {
    read_bound(bytes, name, dims, &[])
}

/// The same model at extents that are of a range: other extents have the same nodes.
pub fn read_over_range(
    bytes: &[u8],
    name: &str,
    dims: &[(String, i64)],
) -> Result<Model, ImportError> {
    read_as(bytes, name, dims, &[], true)
}

/// The same model where some inputs and initializers have given values and become constants.
pub fn read_bound(
    bytes: &[u8],
    name: &str,
    dims: &[(String, i64)],
    bound: &[(String, Tensor)],
) -> Result<Model, ImportError> {
    read_as(bytes, name, dims, bound, false)
}

fn read_as(
    bytes: &[u8],
    name: &str,
    dims: &[(String, i64)],
    bound: &[(String, Tensor)],
    is_over_range: bool,
) -> Result<Model, ImportError> {
    let not_onnx = |why: String| ImportError::NotOnnx { name: name.into(), why };
    if bytes.is_empty() {
        return Err(not_onnx("the file is empty".into()));
    }
    let model = ModelProto::decode(bytes).map_err(|e| not_onnx(shown(&e.to_string())))?;
    let graph = model.graph.ok_or_else(|| not_onnx("it holds no graph".into()))?;
    let standard = model.opset_import.iter().find(|o| matches!(o.domain.as_str(), "" | "ai.onnx"));
    let opset = match standard {
        Some(o) if (1..=1000).contains(&o.version) => o.version,
        Some(o) => return Err(not_onnx(format!("its operators are of version {}", o.version))),
        // Before version 3 of the format there was one set of operators only.
        None if (1..3).contains(&model.ir_version) => 1,
        None if graph.node.iter().all(|n| !matches!(n.domain.as_str(), "" | "ai.onnx"))
            && !model.opset_import.is_empty() =>
        {
            1
        }
        None => return Err(not_onnx("it does not say the version of its operators".into())),
    };
    let (values, by_name, nodes, taken, seen, refused) = Default::default();
    let (open, varying, made_of, of_extents) = Default::default();
    let functions = model.functions;
    let reader = Reader {
        file: name,
        dims,
        bound,
        opset,
        functions,
        values,
        by_name,
        nodes,
        taken,
        seen,
        depth: 0,
        undecided: 0,
        folded: 0,
        is_over_range,
        of_extents,
        refused,
        open,
        extents: 0,
        varying,
        made_of,
    };
    reader.read(graph)
}

struct Reader<'a> {
    file: &'a str,
    dims: &'a [(String, i64)],
    bound: &'a [(String, Tensor)],
    opset: i64,
    values: Vec<Value>,
    by_name: HashMap<String, ValueId>,
    /// Operators that the file defines.
    functions: Vec<FunctionProto>,
    /// The nodes that are read so far.
    nodes: Vec<Node>,
    /// Names that nodes have in the file, or were given.
    taken: HashSet<String>,
    /// Names of the nodes that are read.
    seen: HashSet<String>,
    /// How many bodies of nodes hold what is being read.
    depth: usize,
    /// How many branches that only the run decides hold what is being read.
    undecided: usize,
    /// Elements of folded constants so far.
    folded: i64,
    /// Whether it is read for a range of extents, and values that follow from extents.
    is_over_range: bool,
    of_extents: HashSet<ValueId>,
    /// Why some nodes cannot be read, by the name of their first result.
    refused: quantised::Refused,
    /// Extents of values of which only the run knows some: those are below 0.
    open: HashMap<ValueId, Vec<i64>>,
    /// The open extent that was named last.
    extents: i64,
    /// Values that differ from turn to turn of a loop.
    varying: HashSet<ValueId>,
    /// The values that each value is computed from.
    made_of: HashMap<ValueId, Vec<ValueId>>,
}

/// The operators of domain `com.microsoft` that are written out as standard ones.
pub fn onnxruntime_operators() -> impl Iterator<Item = &'static str> {
    contrib::onnxruntime_operators().chain(quantised::onnxruntime_operators())
}

/// What is not supported of operators of domain `com.microsoft`.
pub const ONNXRUNTIME_LIMITS: &[(&str, &str)] = &[
    (
        "MatMulNBits",
        "weights of 4 and 8 bits in blocks of a multiple of 8, activations of float32; with \
         `g_idx` weights become floats when the model is loaded",
    ),
    ("RotaryEmbedding", "without `is_packed_batching`"),
    ("QLinearAdd", CONSTANT),
    ("QLinearMul", CONSTANT),
    ("QLinearConcat", CONSTANT),
    ("QLinearGlobalAveragePool", CONSTANT),
    ("QLinearAveragePool", CONSTANT),
    ("QLinearSoftmax", CONSTANT),
    ("QLinearSigmoid", CONSTANT),
    ("QLinearLeakyRelu", CONSTANT),
    ("QGemm", "scales and zero points are constants, of weights one each or one a column"),
    ("MatMulIntegerToFloat", "weights are constants, zero points one each or one a column"),
    ("DynamicQuantizeMatMul", "weights are constants, zero points one each or one a column"),
];

/// What most operators of quantised tensors need.
const CONSTANT: &str = "scales and zero points are constants, one number each";

impl Reader<'_> {
    fn fault(&self, place: String, what: impl Into<String>, remedy: &str) -> ImportError {
        ImportError::Model {
            name: self.file.into(),
            place,
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    fn read(mut self, graph: GraphProto) -> Result<Model, ImportError> {
        let (graph, refused) = quantised::in_floats(graph);
        self.refused = refused;
        for t in &graph.initializer {
            let read = match self.bound.iter().find(|b| b.0 == t.name) {
                Some((_, given)) => Ok(given.clone()),
                None => tensor(t),
            };
            let read = read
                .map_err(|e| self.fault(format!("initializer `{}`", shown(&t.name)), e, REPAIR))?;
            self.define(&t.name, "initializer", Some(read))?;
        }
        let inputs = self.read_inputs(&graph.input)?;
        let declared = self.declared(&graph)?;
        self.read_nodes(&graph.node, &declared)?;
        let mut outputs = Vec::new();
        for o in &graph.output {
            let place = || format!("output `{}`", shown(&o.name));
            let made = self.by_name.get(&o.name);
            let absent = || self.fault(place(), "no node produces it", REPAIR);
            outputs.push(*made.ok_or_else(absent)?);
        }
        let name = if graph.name.is_empty() { self.file.to_string() } else { graph.name };
        Ok(self.model(inputs, outputs, name))
    }

    /// Reads nodes in an order of execution. Those that hold other nodes become these.
    fn read_nodes(
        &mut self,
        list: &[NodeProto],
        declared: &HashMap<String, Declared>,
    ) -> Result<(), ImportError> {
        let order = self.order(list)?;
        self.taken.extend(list.iter().map(|n| n.name.clone()));
        for index in order {
            let n = &list[index];
            let name = self.node_name(n, index);
            let why = match self.expand(n, &name, declared)? {
                Expansion::Done => continue,
                Expansion::Refused(why) => Some(why),
                Expansion::Plain => n.output.first().and_then(|o| self.refused.get(o)).cloned(),
            };
            let mut node = self.node(n, name)?;
            self.infer(&mut node, declared);
            if let (Some(why), true) = (why, node.problem.is_some()) {
                node.problem = Some(why);
            }
            self.nodes.push(node);
        }
        Ok(())
    }

    /// A name for a node that no other has.
    fn node_name(&mut self, n: &NodeProto, index: usize) -> String {
        let mut name = n.name.clone();
        if name.is_empty() || self.seen.contains(&name) {
            let stem = if name.is_empty() { &n.op_type } else { &name };
            let free = (0..).map(|k| {
                if k == 0 { format!("{stem}_{index}") } else { format!("{stem}_{index}_{k}") }
            });
            name = free.into_iter().find(|n| !self.taken.contains(n)).unwrap_or_default();
            self.taken.insert(name.clone());
        }
        self.seen.insert(name.clone());
        name
    }

    /// Makes a value of a name that must be new.
    fn define(
        &mut self,
        name: &str,
        what: &str,
        tensor: Option<Tensor>,
    ) -> Result<ValueId, ImportError> {
        let id = self.values.len();
        if name.is_empty() {
            return Err(self.fault(format!("{what} number {id}"), "it has no name", REPAIR));
        }
        if self.by_name.insert(name.into(), id).is_some() {
            return Err(self.fault(
                format!("{what} `{}`", shown(name)),
                "the name is defined twice",
                REPAIR,
            ));
        }
        let mut value = Value {
            name: name.into(),
            dtype: None,
            shape: None,
            constant: None,
            weight: false,
            alias: None,
        };
        if let Some(t) = tensor {
            value = Value {
                dtype: t.dtype,
                shape: Some(t.shape),
                constant: t.constant.map(Arc::new),
                weight: true,
                ..value
            };
        }
        self.values.push(value);
        Ok(id)
    }

    /// The inputs that are no initializers, with all dimensions known.
    fn read_inputs(&mut self, declared: &[ValueInfoProto]) -> Result<Vec<ValueId>, ImportError> {
        let mut missing: Vec<String> = Vec::new();
        let mut inputs = Vec::new();
        for input in declared {
            let place = format!("input `{}`", shown(&input.name));
            if self.by_name.get(&input.name).is_some_and(|id| self.values[*id].weight) {
                continue;
            }
            if let Some((_, given)) = self.bound.iter().find(|b| b.0 == input.name) {
                self.define(&input.name, "input", Some(given.clone()))?;
                continue;
            }
            let id = self.define(&input.name, "input", None)?;
            inputs.push(id);
            let Some(t) = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()) else {
                continue;
            };
            self.values[id].dtype = Stored::dtype(t.elem_type);
            let Some(shape) = &t.shape else { continue };
            let mut extents = Vec::new();
            for (i, d) in shape.dim.iter().enumerate() {
                // A dimension without a name is named by its input and place.
                let own = format!("{}.{i}", input.name);
                let dim = d.dim_param.as_ref().filter(|p| !p.is_empty()).unwrap_or(&own);
                let given = self.dims.iter().rev().find(|(n, _)| n == dim).map(|(_, v)| *v);
                match (d.dim_value, given) {
                    (Some(v), _) => extents.push(v),
                    (None, Some(v)) if (0..=MOST_ELEMENTS).contains(&v) => extents.push(v),
                    (None, Some(v)) => {
                        return Err(self.fault(
                            format!("`--dim {}={v}`", shown(dim)),
                            "the extent is impossible",
                            "give one of at least 0",
                        ));
                    }
                    (None, None) if missing.contains(&shown(dim)) => {}
                    (None, None) => missing.push(shown(dim)),
                }
            }
            elements(&extents).map_err(|e| {
                self.fault(
                    place,
                    e,
                    "export it with positive dimensions, or with named ones and `--dim`",
                )
            })?;
            self.values[id].shape = Some(extents);
        }
        if !missing.is_empty() {
            return Err(ImportError::Dimensions { name: self.file.into(), missing });
        }
        Ok(inputs)
    }

    /// Shapes that the file states, where they are plain numbers.
    fn declared(&self, graph: &GraphProto) -> Result<HashMap<String, Declared>, ImportError> {
        let mut out = HashMap::new();
        for v in graph.value_info.iter().chain(&graph.output) {
            let Some(t) = v.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()) else { continue };
            let Some(shape) = &t.shape else { continue };
            let extent = |d: &proto::DimensionProto| {
                d.dim_value.or_else(|| {
                    d.dim_param
                        .as_ref()
                        .and_then(|p| self.dims.iter().rev().find(|(n, _)| n == p).map(|(_, v)| *v))
                })
            };
            if let Some(shape) = shape.dim.iter().map(extent).collect::<Option<Vec<i64>>>() {
                elements(&shape).map_err(|e| {
                    self.fault(format!("value_info `{}`", shown(&v.name)), e, REPAIR)
                })?;
                out.insert(v.name.clone(), (Stored::dtype(t.elem_type), shape));
            }
        }
        Ok(out)
    }

    /// Indices of the nodes in an order of execution that stays as near to the file's as it can.
    fn order(&self, nodes: &[NodeProto]) -> Result<Vec<usize>, ImportError> {
        let place = |i: usize| {
            let n = &nodes[i];
            let name = if n.name.is_empty() {
                format!("number {i}")
            } else {
                format!("`{}`", shown(&n.name))
            };
            format!("node {name} ({})", shown(&n.op_type))
        };
        let mut producer: HashMap<&str, usize> = HashMap::new();
        for (i, n) in nodes.iter().enumerate() {
            for o in n.output.iter().filter(|o| !o.is_empty()) {
                if self.by_name.contains_key(o) || producer.insert(o, i).is_some() {
                    return Err(self.fault(
                        place(i),
                        format!("its output `{}` is defined twice", shown(o)),
                        REPAIR,
                    ));
                }
            }
        }
        let mut consumers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        let mut waits = vec![0usize; nodes.len()];
        for (i, n) in nodes.iter().enumerate() {
            // What its subgraphs read of the graph around them must be there before it, too.
            for captured in inline::captured(n) {
                if let Some(&p) = producer.get(captured.as_str()).filter(|p| **p != i) {
                    consumers[p].push(i);
                    waits[i] += 1;
                }
            }
            for input in n.input.iter().filter(|x| !x.is_empty() && !self.by_name.contains_key(*x))
            {
                let Some(&p) = producer.get(input.as_str()) else {
                    return Err(self.fault(
                        place(i),
                        format!("its input `{}` is not defined", shown(input)),
                        REPAIR,
                    ));
                };
                consumers[p].push(i);
                waits[i] += 1;
            }
        }
        let mut ready: BinaryHeap<Reverse<usize>> =
            (0..nodes.len()).filter(|i| waits[*i] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(nodes.len());
        while let Some(Reverse(i)) = ready.pop() {
            order.push(i);
            for &c in &consumers[i] {
                waits[c] -= 1;
                if waits[c] == 0 {
                    ready.push(Reverse(c));
                }
            }
        }
        if order.len() == nodes.len() {
            return Ok(order);
        }
        // Going back from any node that still waits leads into a cycle.
        let mut at = waits.iter().position(|w| *w > 0).unwrap_or(0);
        let mut visited = HashSet::new();
        let mut value = String::new();
        while visited.insert(at) {
            let waiting = nodes[at]
                .input
                .iter()
                .find_map(|x| producer.get(x.as_str()).filter(|p| waits[**p] > 0).map(|p| (x, *p)));
            let Some((name, p)) = waiting else { break };
            value = shown(name);
            at = p;
        }
        Err(self.fault(
            place(at),
            format!("its result `{value}` depends on itself: the graph has a cycle"),
            REPAIR,
        ))
    }

    /// A node with its operands and results as values.
    fn node(&mut self, n: &NodeProto, name: String) -> Result<Node, ImportError> {
        let mut inputs: Vec<Option<ValueId>> =
            n.input.iter().map(|x| self.by_name.get(x).copied()).collect();
        while inputs.last() == Some(&None) {
            inputs.pop();
        }
        let count = n.output.iter().rposition(|o| !o.is_empty()).map_or(0, |i| i + 1);
        let mut outputs = Vec::new();
        for (i, o) in n.output[..count].iter().enumerate() {
            if o.is_empty() {
                // A result that the file leaves without a name still has its place.
                let mut unwanted = format!("{name}.output{i}");
                while self.by_name.contains_key(&unwanted) {
                    unwanted.push('_');
                }
                outputs.push(self.define(&unwanted, "output", None)?);
            } else {
                outputs.push(self.define(o, "output", None)?);
            }
        }
        let mut attributes = BTreeMap::new();
        for a in &n.attribute {
            use proto::attribute as kind;
            let value = match a.r#type {
                kind::INT => Attribute::Int(a.i.unwrap_or(0)),
                kind::FLOAT => Attribute::Float(a.f.unwrap_or(0.0)),
                kind::STRING => Attribute::String(
                    String::from_utf8_lossy(a.s.as_deref().unwrap_or_default()).into_owned(),
                ),
                kind::INTS => Attribute::Ints(a.ints.clone()),
                kind::FLOATS => Attribute::Floats(a.floats.clone()),
                kind::STRINGS => Attribute::Strings(
                    a.strings.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect(),
                ),
                kind::GRAPH | kind::GRAPHS => Attribute::Graph,
                kind::TENSOR => {
                    let place =
                        || format!("attribute `{}` of node `{}`", shown(&a.name), shown(&name));
                    let t =
                        a.t.as_ref()
                            .ok_or_else(|| self.fault(place(), "it holds no tensor", REPAIR))?;
                    Attribute::Tensor(tensor(t).map_err(|e| self.fault(place(), e, REPAIR))?)
                }
                // Old exporters do not write the type.
                0 => match a {
                    _ if a.g.is_some() || !a.graphs.is_empty() => Attribute::Graph,
                    proto::AttributeProto { i: Some(i), .. } => Attribute::Int(*i),
                    proto::AttributeProto { f: Some(f), .. } => Attribute::Float(*f),
                    proto::AttributeProto { s: Some(s), .. } => {
                        Attribute::String(String::from_utf8_lossy(s).into_owned())
                    }
                    _ if !a.floats.is_empty() => Attribute::Floats(a.floats.clone()),
                    _ => Attribute::Ints(a.ints.clone()),
                },
                _ => Attribute::Other,
            };
            attributes.insert(a.name.clone(), value);
        }
        let (op, domain) = (
            n.op_type.clone(),
            if n.domain == "ai.onnx" { String::new() } else { n.domain.clone() },
        );
        Ok(Node { name, op, domain, inputs, outputs, attributes, folded: false, problem: None })
    }

    /// Shapes, constants and aliases of a node's results.
    fn infer(&mut self, node: &mut Node, declared: &HashMap<String, (Option<DType>, Vec<i64>)>) {
        if self.found_by_run(node) {
            return;
        }
        let ctx = Ctx::new(node, self.opset, &self.values);
        let inferred = operators::infer(&ctx);
        let passes_on = inferred.as_ref().is_ok_and(|o| infer::passes_on(&ctx, o));
        let outputs = match inferred {
            Ok(outputs) => outputs,
            Err(problem) if self.infer_decided_by_run(node, &problem) => return,
            Err(problem) => {
                node.problem = Some(problem);
                for &id in &node.outputs {
                    if let Some((dtype, shape)) = declared.get(&self.values[id].name) {
                        (self.values[id].dtype, self.values[id].shape) =
                            (*dtype, Some(shape.clone()));
                    }
                }
                return;
            }
        };
        let sizes: i64 = outputs
            .iter()
            .take(node.outputs.len())
            .map(|o| elements(&o.shape).unwrap_or(MOST_ELEMENTS))
            .fold(0, i64::saturating_add);
        for (&id, o) in node.outputs.iter().zip(&outputs) {
            (self.values[id].dtype, self.values[id].shape) = (o.dtype, Some(o.shape.clone()));
        }
        if passes_on {
            self.pass_on(node);
        }
        let of_shape = matches!(node.op.as_str(), "Shape" | "Size");
        let fixed = of_shape || node.inputs.iter().flatten().all(|i| self.values[*i].weight);
        if !fixed {
            return;
        }
        self.note_extents(node);
        if self.takes_by_extent(node) {
            return;
        }
        let known =
            of_shape || node.inputs.iter().flatten().all(|i| self.values[*i].constant.is_some());
        let small = sizes <= MOST_CONSTANT_ELEMENTS && self.folded + sizes <= MOST_FOLDED_ELEMENTS;
        let results = if known && small { self.fold(node) } else { None };
        match results {
            Some(Ok(constants)) if constants.len() >= node.outputs.len() => {
                for (&id, c) in node.outputs.iter().zip(constants) {
                    // Extents that depend on elements are known now, too.
                    self.values[id].shape = Some(c.shape().to_vec());
                    (self.values[id].constant, self.values[id].weight) = (Some(Arc::new(c)), true);
                }
                self.folded += sizes;
                node.folded = true;
            }
            // A branch that is not taken may be illegal: the run says it, where it comes to it.
            Some(Err(_)) if self.undecided > 0 => {}
            Some(Err(problem)) => node.problem = Some(problem),
            // Nodes that depend on absent weights alone wait for these if they can be evaluated.
            _ if (!known || !small) && operators::evaluates(node) && !self.may_be_illegal(node) => {
                node.outputs.iter().for_each(|id| self.values[*id].weight = true);
                node.folded = true;
            }
            _ => {}
        }
    }
}
