//! A random graph while it is drawn: nodes and values, with the facts that are known of their
//! elements (exact, rounded, possibly NaN), and helpers by which the rows of the table (`rows/`)
//! choose operands, shapes and types. Output: a [`Call`] for each node, and at the end a case.

pub use super::numbers::{Fill, Hardness};
use prost::Message as _;
use squall_core::DType;
use squall_frontend::npy::Array;
use squall_frontend::onnx;
use squall_frontend::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
};
use squall_fuzz::Draw;
use squall_testing::onnx as build;

/// The effect of an operator on the facts that are known of its operands' elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Its result is as exact as its operands, and as tame: elements are moved, or changed by no
    /// more than their operands are.
    Keeps,
    /// Its result keeps the facts for exact operands alone: a small error of theirs may change it
    /// by far.
    Exact,
    /// As `Exact`, and its result may be infinite or NaN where the operands are not.
    Breaks,
    /// Its result is rounded, and what was rounded before stays about as wrong.
    Rounds,
    /// Its result is rounded, and small errors of its operands may become large.
    Amplifies,
}

/// A value of the graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its name, unique in the model.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its extents.
    pub shape: Vec<i64>,
    /// Whether every correct program agrees on every bit of it.
    pub is_exact: bool,
    /// Whether its elements are finite, and of floats at most 4.
    pub is_tame: bool,
    /// Whether a node makes it.
    pub is_made: bool,
    /// Its elements, where the table knows them.
    pub known: Option<Array>,
}

/// A use of an operator that a row made.
pub struct Call {
    /// Its operands by their numbers.
    pub inputs: Vec<Option<usize>>,
    /// How many results are named.
    pub outputs: usize,
    /// Its attributes.
    pub attributes: Vec<AttributeProto>,
    /// Types and shapes of its results, where the reader cannot know them and the row does.
    pub results: Vec<(DType, Vec<i64>)>,
}

impl Call {
    /// A use of these operands with one result.
    pub fn of(inputs: &[usize]) -> Call {
        let inputs = inputs.iter().copied().map(Some).collect();
        Call { inputs, outputs: 1, attributes: Vec::new(), results: Vec::new() }
    }

    /// The same with an attribute more.
    pub fn with(mut self, attribute: AttributeProto) -> Call {
        self.attributes.push(attribute);
        self
    }

    /// The same with an attribute more where there is one.
    pub fn maybe(mut self, attribute: Option<AttributeProto>) -> Call {
        self.attributes.extend(attribute);
        self
    }

    /// The same with an operand more, or a gap.
    pub fn and(mut self, input: Option<usize>) -> Call {
        self.inputs.push(input);
        self
    }

    /// The same with results that only the run decides, which are these.
    pub fn shaped(mut self, results: Vec<(DType, Vec<i64>)>) -> Call {
        self.outputs = results.len();
        self.results = results;
        self
    }

    /// The same with a number of results.
    pub fn gives(mut self, outputs: usize) -> Call {
        self.outputs = outputs;
        self
    }
}

/// A graph under construction.
pub struct Graph<'d> {
    /// The source of all choices.
    pub draw: &'d mut Draw<'static>,
    /// The version of the operators.
    pub opset: i64,
    /// How hard its inputs are.
    pub hardness: Hardness,
    /// Before the names of its values and nodes.
    pub prefix: String,
    /// All values so far.
    pub values: Vec<Value>,
    /// The nodes in order.
    pub nodes: Vec<NodeProto>,
    /// Names and elements of what the caller gives.
    pub inputs: Vec<(String, Array)>,
    /// What the file holds.
    pub constants: Vec<TensorProto>,
    /// Whether the row that is asked next takes exact operands alone.
    pub needs_exact: bool,
    /// Whether it takes tame ones alone.
    pub needs_tame: bool,
}

/// Element types by their numbers in files.
pub const NUMBERS: [(DType, i32); 13] = [
    (DType::F32, 1),
    (DType::U8, 2),
    (DType::I8, 3),
    (DType::U16, 4),
    (DType::I16, 5),
    (DType::I32, 6),
    (DType::I64, 7),
    (DType::Bool, 9),
    (DType::F16, 10),
    (DType::F64, 11),
    (DType::U32, 12),
    (DType::U64, 13),
    (DType::Bf16, 16),
];

/// The number of a type in files.
pub fn number_of(dtype: DType) -> i32 {
    NUMBERS.iter().find(|n| n.0 == dtype).map_or(1, |n| n.1)
}

impl<'d> Graph<'d> {
    /// An empty one.
    pub fn new(draw: &'d mut Draw<'static>, opset: i64, prefix: &str) -> Graph<'d> {
        let hardness = [Hardness::Tame, Hardness::Tame, Hardness::Special, Hardness::Huge];
        let hardness = hardness[draw.below(4)];
        Graph {
            draw,
            opset,
            hardness,
            prefix: prefix.into(),
            values: Vec::new(),
            nodes: Vec::new(),
            inputs: Vec::new(),
            constants: Vec::new(),
            needs_exact: false,
            needs_tame: false,
        }
    }

    /// A number from the first to the second, both included.
    pub fn within(&mut self, from: i64, to: i64) -> i64 {
        from + self.draw.below((to - from + 1).max(1) as usize) as i64
    }

    /// Whether a coin falls on its head.
    pub fn coin(&mut self) -> bool {
        self.draw.below(2) == 0
    }

    /// An extent.
    pub fn extent(&mut self) -> i64 {
        match self.draw.below(40) {
            0 => 0,
            1..=5 => 1,
            6 => 16,
            7 => 17,
            _ => self.within(2, 9),
        }
    }

    /// An extent above 0.
    pub fn some(&mut self) -> i64 {
        self.extent().max(1)
    }

    /// A shape of a rank between two.
    pub fn shape(&mut self, least: usize, most: usize) -> Vec<i64> {
        let rank = self.within(least as i64, most as i64);
        let mut shape: Vec<i64> = (0..rank).map(|_| self.extent()).collect();
        while shape.iter().product::<i64>() > 1200 {
            let i = self.draw.below(shape.len());
            shape[i] = self.within(1, 3);
        }
        shape
    }

    /// A pick among some types.
    pub fn dtype(&mut self, of: &[DType]) -> DType {
        of[self.draw.below(of.len())]
    }

    /// A value of one of these types and of a rank between two: one that is there, or a new one.
    pub fn any(&mut self, of: &[DType], least: usize, most: usize) -> usize {
        let fits = |v: &Value| {
            of.contains(&v.dtype)
                && (least..=most).contains(&v.shape.len())
                && (v.is_exact || !self.needs_exact)
                && (v.is_tame || !self.needs_tame)
                && v.shape.iter().product::<i64>() <= 3000
        };
        let there: Vec<usize> = (0..self.values.len()).filter(|&i| fits(&self.values[i])).collect();
        if !there.is_empty() && self.draw.below(8) < 7 {
            // Later ones are likelier: graphs grow deep.
            let a = self.draw.below(there.len());
            let b = self.draw.below(there.len());
            return there[a.max(b)];
        }
        let dtype = self.dtype(of);
        let shape = self.shape(least, most);
        self.fresh(dtype, &shape, Fill::Any)
    }

    /// A value of floats.
    pub fn floats(&mut self, least: usize, most: usize) -> usize {
        self.any(&[DType::F32], least, most)
    }

    /// The extents of a value.
    pub fn shape_of(&self, v: usize) -> Vec<i64> {
        self.values[v].shape.clone()
    }

    /// A value of the same type that is broadcast with another, there or new.
    pub fn partner(&mut self, v: usize, fill: Fill) -> usize {
        let (dtype, shape) = (self.values[v].dtype, self.shape_of(v));
        if fill == Fill::Any && self.coin() {
            let exact = self.needs_exact;
            let tame = self.needs_tame;
            let fits = |w: &Value| {
                w.dtype == dtype
                    && (w.is_exact || !exact)
                    && (w.is_tame || !tame)
                    && broadcast(&w.shape, &shape).is_some_and(|s| s.iter().product::<i64>() < 3000)
            };
            let all: Vec<usize> =
                (0..self.values.len()).filter(|&i| fits(&self.values[i])).collect();
            if !all.is_empty() {
                return all[self.draw.below(all.len())];
            }
        }
        let shape = self.broadcast_shape(&shape);
        self.fresh(dtype, &shape, fill)
    }

    /// A shape that is broadcast with another.
    pub fn broadcast_shape(&mut self, shape: &[i64]) -> Vec<i64> {
        let mut shape = shape.to_vec();
        match self.draw.below(6) {
            0 => shape.iter_mut().for_each(|e| *e = 1),
            1 => _ = shape.drain(..shape.len() / 2),
            2 => shape.clear(),
            3 => {
                for e in &mut shape {
                    if self.draw.below(2) == 0 {
                        *e = if *e == 1 { self.draw.below(4) as i64 + 1 } else { 1 };
                    }
                }
            }
            _ => {}
        }
        shape
    }

    /// A new tensor: mostly an input, at times a constant of the file.
    pub fn fresh(&mut self, dtype: DType, shape: &[i64], fill: Fill) -> usize {
        let is_constant = self.draw.below(4) == 0;
        self.tensor(dtype, shape, fill, is_constant)
    }

    /// A new tensor, a constant of the file or an input.
    pub fn tensor(&mut self, dtype: DType, shape: &[i64], fill: Fill, is_constant: bool) -> usize {
        let fill = if fill == Fill::Any && self.needs_tame { Fill::Tame } else { fill };
        let array = super::numbers::array(self.draw, dtype, shape, fill, self.hardness);
        let is_tame = !dtype.is_float() || fill != Fill::Any || self.hardness == Hardness::Tame;
        self.given(array, is_constant, is_tame)
    }

    /// Whole numbers that decide shapes or places: mostly a constant; at times the caller gives
    /// them, or nodes compute them.
    pub fn ints(&mut self, shape: &[i64], data: &[i64]) -> usize {
        let array = |data: &[i64]| {
            let bytes = data.iter().flat_map(|x| x.to_ne_bytes()).collect();
            Array { dtype: DType::I64, shape: shape.to_vec(), bytes }
        };
        let is_small = data.iter().all(|x| x.unsigned_abs() < 1 << 20);
        let computed = match self.draw.below(24) {
            0 => return self.given(array(data), false, true),
            1 if is_small => {
                let less: Vec<i64> = data.iter().map(|x| x - 3).collect();
                let a = self.given(array(&less), false, true);
                let b = self.given(array(&vec![3; data.len()]), true, true);
                self.add("Add", Call::of(&[a, b]), Effect::Exact)
            }
            2 if is_small => {
                let reals: Vec<f32> = data.iter().map(|x| *x as f32).collect();
                let a = self.given_reals(shape, &reals);
                self.add("Cast", Call::of(&[a]).with(build::int("to", 7)), Effect::Exact)
            }
            // Only the run knows how many numbers are not 0.
            3 if data.len() == 1 && (0..=24).contains(&data[0]) => self.count_of(shape, data[0]),
            4 if is_small => {
                let a = self.given(array(data), false, true);
                let limits = [-(1 << 20), 1 << 20].map(|x: i64| {
                    let bytes = x.to_ne_bytes().to_vec();
                    self.given(Array { dtype: DType::I64, shape: vec![], bytes }, true, true)
                });
                self.add("Clip", Call::of(&[a, limits[0], limits[1]]), Effect::Exact)
            }
            _ => return self.given(array(data), true, true),
        };
        if computed.is_err() {
            return self.given(array(data), true, true);
        }
        let made = self.values.len() - 1;
        self.values[made].known = Some(array(data));
        made
    }

    /// A number that is how many of a tensor's elements are not 0.
    fn count_of(&mut self, shape: &[i64], n: i64) -> Result<(), String> {
        let marks: Vec<f32> = (0..40).map(|i| if i < n { 1.0 } else { 0.0 }).collect();
        let a = self.given_reals(&[40], &marks);
        let found = Call::of(&[a]).shaped(vec![(DType::I64, vec![1, n])]);
        self.add("NonZero", found, Effect::Exact)?;
        self.add("Shape", Call::of(&[self.values.len() - 1]), Effect::Exact)?;
        let extents = self.values.len() - 1;
        let one = 1_i64.to_ne_bytes().to_vec();
        let which = Array { dtype: DType::I64, shape: shape.to_vec(), bytes: one };
        let which = self.given(which, true, true);
        self.add("Gather", Call::of(&[extents, which]), Effect::Exact)
    }

    /// Floats that the caller gives.
    pub fn given_reals(&mut self, shape: &[i64], data: &[f32]) -> usize {
        self.given(Array::floats(shape.to_vec(), data), false, true)
    }

    /// A constant list of whole numbers.
    pub fn list(&mut self, data: &[i64]) -> usize {
        self.ints(&[data.len() as i64], data)
    }

    /// A constant of floats.
    pub fn reals(&mut self, shape: &[i64], data: &[f32]) -> usize {
        self.given(Array::floats(shape.to_vec(), data), true, true)
    }

    /// The elements of a value that no node makes.
    pub fn bytes(&self, v: usize) -> Option<Vec<u8>> {
        let name = &self.values[v].name;
        let input = self.inputs.iter().find(|i| i.0 == *name).map(|i| i.1.bytes.clone());
        let constant = || self.constants.iter().find(|c| c.name == *name);
        input.or_else(|| Some(constant()?.raw_data.clone()))
    }

    fn given(&mut self, array: Array, is_constant: bool, is_tame: bool) -> usize {
        let name = format!("{}v{}", self.prefix, self.values.len());
        self.values.push(Value {
            name: name.clone(),
            dtype: array.dtype,
            shape: array.shape.clone(),
            is_exact: true,
            is_tame,
            is_made: false,
            known: Some(array.clone()),
        });
        if is_constant {
            self.constants.push(tensor_of(&name, &array));
        } else {
            self.inputs.push((name, array));
        }
        self.values.len() - 1
    }

    /// Adds a node; the reason where the reader refuses it, and the graph is then as it was.
    pub fn add(&mut self, op: &str, call: Call, effect: Effect) -> Result<(), String> {
        let before = self.values.len();
        let of = |i: &Option<usize>| i.map_or(String::new(), |i| self.values[i].name.clone());
        let input: Vec<String> = call.inputs.iter().map(of).collect();
        let operands: Vec<&Value> =
            call.inputs.iter().flatten().map(|&i| &self.values[i]).collect();
        let is_exact = operands.iter().all(|v| v.is_exact);
        let is_tame = operands.iter().all(|v| v.is_tame);
        let output: Vec<String> =
            (0..call.outputs).map(|i| format!("{}v{}", self.prefix, before + i)).collect();
        let (domain, op) = op.rsplit_once('.').unwrap_or(("", op));
        self.nodes.push(NodeProto {
            input,
            output: output.clone(),
            name: format!("{}n{}_{op}", self.prefix, self.nodes.len()),
            op_type: op.into(),
            domain: domain.into(),
            attribute: call.attributes,
            ..Default::default()
        });
        let typed = self.types(&output, call.results);
        let typed = typed.inspect_err(|_| _ = self.nodes.pop())?;
        for (name, (dtype, shape)) in output.into_iter().zip(typed) {
            let stays = matches!(effect, Effect::Keeps | Effect::Exact | Effect::Breaks);
            self.values.push(Value {
                name,
                dtype,
                shape,
                is_exact: is_exact && (stays || !dtype.is_float()),
                is_tame: is_tame
                    && (matches!(effect, Effect::Keeps | Effect::Exact) || !dtype.is_float()),
                is_made: true,
                known: None,
            });
        }
        Ok(())
    }

    /// Types and shapes of the last node's results, as Squall infers them where the row does not
    /// know them better.
    fn types(
        &self,
        names: &[String],
        results: Vec<(DType, Vec<i64>)>,
    ) -> Result<Vec<(DType, Vec<i64>)>, String> {
        let model = model_of(self.opset, &self.nodes, &self.inputs, &self.constants, names);
        let read = read(&model)?;
        // Inputs that decide shapes become constants when a model runs.
        let waits = |n: &squall_core::graph::Node| {
            n.problem.as_ref().is_some_and(|p| p.contains(squall_core::graph::NOT_KNOWN))
        };
        // What stands behind those has no shapes before.
        let problem = read.nodes.iter().find_map(|n| n.problem.clone());
        if let Some(p) = problem.filter(|_| !read.nodes.iter().any(waits)) {
            return Err(p);
        }
        if !results.is_empty() {
            return Ok(results);
        }
        let in_region = |n: &squall_core::graph::Node| {
            n.op == "Region" && n.outputs.iter().any(|o| names.contains(&read.values[*o].name))
        };
        let types = types_of(&read, names);
        if types.is_ok() && !read.nodes.iter().any(in_region) {
            return types;
        }
        // What lies behind a length that only the run decides has no types there: the node alone
        // has them, over operands of the shapes that they will have.
        let node = self.nodes.last().ok_or("there is no node")?;
        let mut model = model_of(self.opset, std::slice::from_ref(node), &[], &[], names);
        let graph = model.graph.get_or_insert_default();
        for name in reads(node) {
            let Some(v) = self.values.iter().find(|v| v.name == name) else { continue };
            if graph.input.iter().any(|i| i.name == name) {
                continue;
            }
            match &v.known {
                Some(a) => graph.initializer.push(tensor_of(&name, a)),
                None => graph.input.push(build::info(&name, number_of(v.dtype), &v.shape)),
            }
        }
        graph.initializer.dedup_by(|a, b| a.name == b.name);
        let read = self::read(&model)?;
        if read.nodes.iter().any(|n| n.op == "Region") {
            return Err("only the run decides its shape".into());
        }
        if let Some(p) = read.nodes.iter().find_map(|n| n.problem.clone()) {
            return Err(p);
        }
        types_of(&read, names)
    }
}

/// A model as Squall reads it, or why it refuses it.
fn read(model: &ModelProto) -> Result<squall_core::graph::Model, String> {
    let read = onnx::read(&prost::Message::encode_to_vec(model), "graph.onnx", &[]);
    read.map_err(|e| e.to_string())
}

fn types_of(
    read: &squall_core::graph::Model,
    names: &[String],
) -> Result<Vec<(DType, Vec<i64>)>, String> {
    let of = |name: &String| {
        let v = read.values.iter().find(|v| v.name == *name).ok_or("its result is gone")?;
        let shape = v.shape.clone().ok_or("its shape is not known")?;
        if shape.iter().any(|e| *e < 0) || shape.iter().product::<i64>() > 20_000 {
            return Err("its result is too large");
        }
        Ok((v.dtype.ok_or("its type is not known")?, shape))
    };
    names.iter().map(of).collect::<Result<_, &str>>().map_err(String::from)
}

/// What a node and the graphs in it read, also of what stands in these.
pub fn reads(node: &NodeProto) -> Vec<String> {
    let mut all = node.input.clone();
    for graph in node.attribute.iter().filter_map(|a| a.g.as_ref()) {
        let Ok(graph) = GraphProto::decode(&graph[..]) else { continue };
        all.extend(graph.node.iter().flat_map(reads));
        all.extend(graph.output.iter().map(|o| o.name.clone()));
    }
    all
}

/// The shape that two are broadcast to.
pub fn broadcast(a: &[i64], b: &[i64]) -> Option<Vec<i64>> {
    let rank = a.len().max(b.len());
    let at = |s: &[i64], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// A tensor of a file.
pub fn tensor_of(name: &str, array: &Array) -> TensorProto {
    TensorProto {
        dims: array.shape.clone(),
        data_type: number_of(array.dtype),
        name: name.into(),
        raw_data: array.bytes.clone(),
        ..Default::default()
    }
}

/// A model of nodes with some outputs.
pub fn model_of(
    opset: i64,
    nodes: &[NodeProto],
    inputs: &[(String, Array)],
    constants: &[TensorProto],
    outputs: &[String],
) -> ModelProto {
    let info = |(n, a): &(String, Array)| build::info(n, number_of(a.dtype), &a.shape);
    let untyped = |n: &String| onnx::proto::ValueInfoProto { name: n.clone(), r#type: None };
    ModelProto {
        ir_version: 8,
        graph: Some(GraphProto {
            node: nodes.to_vec(),
            name: "graph".into(),
            initializer: constants.to_vec(),
            input: inputs.iter().map(info).collect(),
            output: outputs.iter().map(untyped).collect(),
            ..Default::default()
        }),
        opset_import: [("", opset), ("com.microsoft", 1)]
            .map(|(domain, version)| OperatorSetIdProto { domain: domain.into(), version })
            .to_vec(),
        ..Default::default()
    }
}
