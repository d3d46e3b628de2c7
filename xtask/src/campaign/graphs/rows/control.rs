//! The rows of operators that hold graphs (`If`, `Loop`, `Scan`) in the campaign's table of random
//! graphs (`rows/mod.rs`): bodies of a few nodes, which may read values of the graph around them. A
//! row's function draws one use of the operator, a node with operands and attributes, in the graph
//! under construction (`graph.rs`); its effect, such as `Keeps` or `Rounds`, says whether results
//! stay exact. `cargo xtask campaign graphs` runs the graphs by Squall and by onnxruntime.

use super::Row;
use crate::campaign::graphs::graph::Effect::{self, Amplifies, Exact};
use crate::campaign::graphs::graph::{Call, Fill, Graph, number_of};
use prost::Message as _;
use squall_core::DType::{self, Bool, F32, I32, I64};
use squall_frontend::onnx::proto::{AttributeProto, GraphProto, NodeProto, ValueInfoProto};
use squall_testing::onnx::{self, int, ints};

const fn row(op: &'static str, effect: Effect, make: fn(&mut Graph<'_>) -> Option<Call>) -> Row {
    Row::own(op, effect, make).since(18)
}

// Errors grow from turn to turn: operands are exact and tame, and whole numbers stay exact.
pub const ROWS: &[Row] = &[
    row("If", Amplifies, |g| branches(g, F32, 0)).tame(),
    row("If", Exact, |g| {
        let dtype = g.dtype(&[I32, I64]);
        branches(g, dtype, 0)
    })
    .tame(),
    row("Loop", Amplifies, |g| looped(g, F32)).tame(),
    row("Loop", Exact, |g| looped(g, I64)).tame(),
    row("Scan", Amplifies, |g| scanned(g, F32)).tame(),
    row("Scan", Exact, |g| scanned(g, I64)).tame(),
];

/// A graph under construction inside of a node.
struct Inner {
    prefix: String,
    nodes: Vec<NodeProto>,
    inputs: Vec<ValueInfoProto>,
    outputs: Vec<ValueInfoProto>,
}

impl Inner {
    fn new(g: &Graph<'_>, what: &str) -> Inner {
        let prefix = format!("{}b{}{what}", g.prefix, g.values.len());
        Inner { prefix, nodes: Vec::new(), inputs: Vec::new(), outputs: Vec::new() }
    }

    fn name(&self, what: &str) -> String {
        format!("{}_{what}", self.prefix)
    }

    fn input(&mut self, what: &str, dtype: DType, shape: &[i64]) -> String {
        let name = self.name(what);
        self.inputs.push(onnx::info(&name, number_of(dtype), shape));
        name
    }

    fn node(&mut self, op: &str, operands: &[&str], attributes: &[AttributeProto]) -> String {
        let made = self.name(&format!("t{}", self.nodes.len()));
        let mut node = onnx::node(op, operands, &[&made], attributes);
        node.name = self.name(&format!("n{}", self.nodes.len()));
        self.nodes.push(node);
        made
    }

    /// Some steps from a value on, of which some read others of the same shape.
    fn steps(&mut self, g: &mut Graph<'_>, dtype: DType, from: &str, others: &[String]) -> String {
        const REAL: [&str; 4] = ["Tanh", "Sigmoid", "Relu", "Neg"];
        const WHOLE: [&str; 2] = ["Neg", "Abs"];
        let mut last = from.to_string();
        for _ in 0..g.within(1, 3) {
            let one = if dtype.is_float() { REAL[g.draw.below(4)] } else { WHOLE[g.draw.below(2)] };
            last = if others.is_empty() || g.draw.below(3) == 0 {
                self.node(one, &[&last], &[])
            } else {
                let other = others[g.draw.below(others.len())].clone();
                let two = ["Add", "Sub", "Mul", "Max", "Min"][g.draw.below(5)];
                self.node(two, &[&last, &other], &[])
            };
        }
        last
    }

    /// Ends it with a value under a name of its own.
    fn output(&mut self, dtype: DType, value: &str) {
        let name = self.node("Identity", &[value], &[]);
        let mut info = onnx::info(&name, number_of(dtype), &[]);
        if let Some(t) = info.r#type.as_mut().and_then(|t| t.tensor_type.as_mut()) {
            t.shape = None;
        }
        self.outputs.push(info);
    }

    fn attribute(self, name: &str) -> AttributeProto {
        let graph = GraphProto {
            node: self.nodes,
            name: self.prefix,
            input: self.inputs,
            output: self.outputs,
            ..Default::default()
        };
        let mut attribute = onnx::branch(name, &[], "");
        attribute.g = Some(graph.encode_to_vec());
        attribute
    }
}

/// A condition: of the file, of the caller, or computed.
fn condition(g: &mut Graph<'_>) -> Option<usize> {
    let is_constant = match g.draw.below(4) {
        0 => true,
        1 => false,
        _ => {
            let of = g.shape(0, 2);
            let (a, b) = (g.tensor(F32, &of, Fill::Tame, false), g.reals(&[], &[0.25]));
            let axes = Call::of(&[a]).with(int("keepdims", 0));
            g.add("ReduceMax", axes, Effect::Keeps).ok()?;
            let largest = g.values.len() - 1;
            g.add("Less", Call::of(&[b, largest]), Exact).ok()?;
            return Some(g.values.len() - 1);
        }
    };
    Some(g.tensor(Bool, &[], Fill::Any, is_constant))
}

fn branches(g: &mut Graph<'_>, dtype: DType, depth: usize) -> Option<Call> {
    let x = g.any(&[dtype], 0, 3);
    let shape = g.shape_of(x);
    let y = g.fresh(dtype, &shape, Fill::Any);
    let c = condition(g)?;
    let second = if depth == 0 && g.draw.below(3) == 0 { condition(g) } else { None };
    let names = [x, y].map(|v| g.values[v].name.clone());
    let branch = |g: &mut Graph<'_>, what: &str, inner: Option<(&str, String)>| {
        let mut b = Inner::new(g, what);
        let from = g.draw.below(2);
        let mut last = b.steps(g, dtype, &names[from], &names);
        if let Some((condition, outer)) = inner {
            // The inner branches read what the outer one made.
            let all = [last.clone(), outer];
            let ways = ["then_branch", "else_branch"].map(|way| {
                let mut deep = Inner::new(g, &format!("{what}_{way}"));
                let made = deep.steps(g, dtype, &last, &all);
                deep.output(dtype, &made);
                deep.attribute(way)
            });
            last = b.node("If", &[condition], &ways);
        }
        b.output(dtype, &last);
        let more = b.steps(g, dtype, &last, &names);
        b.output(dtype, &more);
        b
    };
    let inner = second.map(|s| g.values[s].name.clone());
    let inner = inner.as_deref().map(|s| (s, names[1].clone()));
    let yes = branch(g, "then", inner).attribute("then_branch");
    let no = branch(g, "else", None).attribute("else_branch");
    Some(Call::of(&[c]).with(yes).with(no).gives(2))
}

fn looped(g: &mut Graph<'_>, dtype: DType) -> Option<Call> {
    let x = g.any(&[dtype], 0, 2);
    let shape = g.shape_of(x);
    let y = g.fresh(dtype, &shape, Fill::Any);
    let most = g.within(0, 4);
    let m = g.ints(&[], &[most]);
    let start = match g.draw.below(3) {
        0 => None,
        _ => Some(g.tensor(Bool, &[], Fill::Within(1, 1), true)),
    };
    let outer = g.values[y].name.clone();
    let (mut b, mut trips) = (Inner::new(g, "body"), most);
    let turn = b.input("i", I64, &[]);
    let going = b.input("going", Bool, &[]);
    let carried = b.input("carried", dtype, &shape);
    let mut others = vec![outer, carried.clone()];
    if dtype == I64 {
        others.push(turn.clone());
    }
    let made = b.steps(g, dtype, &carried, &others);
    // It goes on, or ends after a turn that a number says, or when a value says so.
    let (mut is_known, goes) = match g.draw.below(3) {
        0 => (true, b.node("Identity", &[&going], &[])),
        1 => {
            let last = g.within(0, 5);
            let v = g.ints(&[], &[last]);
            trips = trips.min(last + 1);
            let name = g.values[v].name.clone();
            (true, b.node("Less", &[&turn, &name], &[]))
        }
        _ => {
            let axes = [int("keepdims", 0)];
            let largest = b.node("ReduceMax", &[&made], &axes);
            let limit = g.tensor(dtype, &[], Fill::Within(0, 9), false);
            let limit = g.values[limit].name.clone();
            (false, b.node("Less", &[&largest, &limit], &[]))
        }
    };
    // The largest of nothing has no meaning.
    is_known |= shape.contains(&0);
    if shape.contains(&0) && goes != going && b.nodes.iter().any(|n| n.op_type == "ReduceMax") {
        return None;
    }
    b.output(Bool, &goes);
    b.output(dtype, &made);
    let mut results = vec![(dtype, shape.clone())];
    if is_known && g.coin() {
        let seen = b.steps(g, dtype, &made, &others);
        b.output(dtype, &seen);
        results.push((dtype, [vec![trips], shape].concat()));
    }
    let mut call = Call::of(&[m]).and(start).and(Some(x));
    call = call.with(b.attribute("body"));
    Some(call.shaped(results))
}

fn scanned(g: &mut Graph<'_>, dtype: DType) -> Option<Call> {
    let x = g.any(&[dtype], 1, 3);
    let shape = g.shape_of(x);
    let axis = g.draw.below(shape.len());
    let mut slice = shape.clone();
    let steps = slice.remove(axis);
    if steps == 0 {
        return None;
    }
    let state = g.fresh(dtype, &slice, Fill::Any);
    let mut call = Call::of(&[state, x]);
    let mut b = Inner::new(g, "body");
    let carried = b.input("carried", dtype, &slice);
    let part = b.input("part", dtype, &slice);
    let mut others = vec![part, carried.clone()];
    let (mut axes, mut ways) = (vec![axis as i64], vec![g.within(0, 1)]);
    if g.coin() {
        // A second one that is scanned along another axis.
        let at = g.draw.below(slice.len() + 1);
        let mut of = slice.clone();
        of.insert(at, steps);
        let second = g.fresh(dtype, &of, Fill::Any);
        call = call.and(Some(second));
        others.push(b.input("second", dtype, &slice));
        axes.push(at as i64);
        ways.push(g.within(0, 1));
    }
    let made = b.steps(g, dtype, &carried, &others);
    b.output(dtype, &made);
    let seen = b.steps(g, dtype, &made, &others);
    b.output(dtype, &seen);
    let at = g.draw.below(slice.len() + 1);
    let way = g.within(0, 1);
    let call = call.with(int("num_scan_inputs", axes.len() as i64)).with(b.attribute("body"));
    let call = call.with(ints("scan_input_axes", &axes)).with(ints("scan_input_directions", &ways));
    let call = call.with(ints("scan_output_axes", &[at as i64]));
    Some(call.with(ints("scan_output_directions", &[way])).gives(2))
}
