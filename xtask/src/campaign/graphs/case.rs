//! A finished random graph with its inputs (a [`Case`]), and the ONNX models made of one or several
//! of them. `graph.rs` draws the graph; the campaign runs the model, compares its outputs, and
//! `shrink.rs` makes failing cases smaller.

use super::graph::{Graph, model_of, reads, tensor_of};
use super::rows::{self, Row};
use squall_core::DType;
use squall_frontend::npy::Array;
use squall_frontend::onnx::proto::{ModelProto, NodeProto, TensorProto};
use squall_fuzz::Draw;
use std::collections::{BTreeMap, HashSet};

/// A graph with its inputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// The number that it is drawn from.
    pub seed: u64,
    /// The version of the operators.
    pub opset: i64,
    /// In order.
    pub nodes: Vec<NodeProto>,
    /// The inputs that the caller gives.
    pub inputs: Vec<(String, Array)>,
    /// The constants that the file holds.
    pub constants: Vec<TensorProto>,
    /// The values that are asked for.
    pub outputs: Vec<String>,
    /// The results of nodes on which every correct program agrees in every bit.
    pub exact: HashSet<String>,
}

/// Operators that the reader refused, with how often and one of the reasons.
pub type Refused = BTreeMap<String, (usize, String)>;

/// Operators and kinds of numbers that are left out.
#[derive(Clone, Debug, Default)]
pub struct Without {
    /// Operators.
    pub operators: Vec<String>,
    /// All operators but these, where there are any.
    pub only: Vec<String>,
    /// Whether NaN, infinities and the like are.
    pub hard: bool,
    /// Whether 64-bit floats are.
    pub f64: bool,
}

impl Case {
    /// Draws one. `prefix` stands before all its names.
    pub fn draw(
        seed: u64,
        opset: i64,
        prefix: &str,
        without: &Without,
        refused: &mut Refused,
    ) -> Case {
        let mut draw = Draw::of_seed(seed);
        let mut g = Graph::new(&mut draw, opset, prefix);
        if without.hard {
            g.hardness = super::graph::Hardness::Tame;
        }
        let names = |list: &[String], r: &Row| list.iter().any(|o| *o == r.op);
        let is_there = |r: &&Row| {
            let is_asked_for = without.only.is_empty() || names(&without.only, r);
            r.since <= opset && is_asked_for && !names(&without.operators, r)
        };
        let table: Vec<&Row> = rows::all().into_iter().filter(is_there).collect();
        let wanted = g.within(2, 8) as usize;
        for _ in 0..wanted * 6 {
            if g.nodes.len() >= wanted {
                break;
            }
            let row = table[g.draw.below(table.len())];
            let before = (g.values.len(), g.inputs.len(), g.constants.len(), g.nodes.len());
            let Some(call) = row.call(&mut g) else {
                take_back(&mut g, before);
                continue;
            };
            if let Err(e) = g.add(row.op, call, row.effect) {
                let entry = refused.entry(row.op.into()).or_insert((0, e));
                entry.0 += 1;
                take_back(&mut g, before);
            } else if without.f64 && g.values.iter().any(|v| v.dtype == DType::F64) {
                take_back(&mut g, before);
            }
        }
        finish(seed, &mut g)
    }

    /// The model of it alone with these outputs.
    pub fn model(&self, outputs: &[String]) -> ModelProto {
        model_of(self.opset, &self.nodes, &self.inputs, &self.constants, outputs)
    }

    /// All that its nodes make.
    pub fn made(&self) -> Vec<String> {
        self.nodes.iter().flat_map(|n| n.output.clone()).filter(|n| !n.is_empty()).collect()
    }

    /// The same without the nodes, inputs and constants that no output needs.
    pub fn pruned(mut self) -> Case {
        let mut needed: HashSet<String> = self.outputs.iter().cloned().collect();
        let mut kept = Vec::new();
        for node in self.nodes.into_iter().rev() {
            if node.output.iter().any(|o| needed.contains(o)) {
                needed.extend(reads(&node));
                kept.push(node);
            }
        }
        kept.reverse();
        self.nodes = kept;
        self.inputs.retain(|i| needed.contains(&i.0));
        self.constants.retain(|c| needed.contains(&c.name));
        self
    }

    /// The operators in order, for messages.
    pub fn operators(&self) -> String {
        let all: Vec<&str> = self.nodes.iter().map(|n| n.op_type.as_str()).collect();
        all.join(" ")
    }

    /// The same with its inputs as constants: the reader evaluates what it can.
    pub fn known(&self) -> ModelProto {
        let mut constants = self.constants.clone();
        constants.extend(self.inputs.iter().map(|(n, a)| tensor_of(n, a)));
        model_of(self.opset, &self.nodes, &[], &constants, &self.outputs)
    }
}

/// Several graphs as parts of one model.
pub fn merged(cases: &[Case]) -> ModelProto {
    let all =
        |f: fn(&Case) -> &Vec<NodeProto>| cases.iter().flat_map(f).cloned().collect::<Vec<_>>();
    let nodes = all(|c| &c.nodes);
    let inputs: Vec<_> = cases.iter().flat_map(|c| c.inputs.clone()).collect();
    let constants: Vec<_> = cases.iter().flat_map(|c| c.constants.clone()).collect();
    let outputs: Vec<_> = cases.iter().flat_map(|c| c.outputs.clone()).collect();
    model_of(cases.first().map_or(20, |c| c.opset), &nodes, &inputs, &constants, &outputs)
}

/// Makes a graph as it was before a row made tensors for a use that came to nothing.
fn take_back(g: &mut Graph<'_>, before: (usize, usize, usize, usize)) {
    let (values, inputs, constants, nodes) = before;
    g.nodes.truncate(nodes);
    g.values.truncate(values);
    g.inputs.truncate(inputs);
    g.constants.truncate(constants);
}

fn finish(seed: u64, g: &mut Graph<'_>) -> Case {
    let read: HashSet<String> = g.nodes.iter().flat_map(reads).collect();
    let mut outputs = Vec::new();
    for i in 0..g.values.len() {
        // What nothing reads is asked for, and some of the rest: what is asked for is not fused.
        if g.values[i].is_made && (!read.contains(&g.values[i].name) || g.draw.below(5) == 0) {
            outputs.push(g.values[i].name.clone());
        }
    }
    let exact = g.values.iter().filter(|v| v.is_exact).map(|v| v.name.clone()).collect();
    Case {
        seed,
        opset: g.opset,
        nodes: std::mem::take(&mut g.nodes),
        inputs: std::mem::take(&mut g.inputs),
        constants: std::mem::take(&mut g.constants),
        outputs,
        exact,
    }
    .pruned()
}
