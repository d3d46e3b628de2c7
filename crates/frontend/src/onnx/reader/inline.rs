//! Renames the nodes of a body (a subgraph or a function of the file), so that they can stand in
//! the place of the node that held them: names that the body defines get a prefix, names of the
//! graph around it stay. `control.rs` inlines branches, loops and functions by it.

use crate::onnx::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto};
use prost::Message;
use std::collections::{HashMap, HashSet};

/// The deepest nesting that is read, more than any exporter makes.
const DEEPEST: usize = 16;

/// The subgraphs of a node's attributes, where they can be read.
fn subgraphs(n: &NodeProto) -> impl Iterator<Item = GraphProto> {
    let bytes = n.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs));
    bytes.filter_map(|b| GraphProto::decode(b.as_slice()).ok())
}

/// The names that a node's subgraphs read of the graph around them.
pub(super) fn captured(n: &NodeProto) -> Vec<String> {
    let mut out = Vec::new();
    collect(n, DEEPEST, &mut out);
    out.sort_unstable();
    out.dedup();
    out
}

fn collect(n: &NodeProto, depth: usize, out: &mut Vec<String>) {
    if depth == 0 {
        return;
    }
    for g in subgraphs(n) {
        let mut own: HashSet<&str> = g.input.iter().map(|v| v.name.as_str()).collect();
        own.extend(g.initializer.iter().map(|t| t.name.as_str()));
        own.extend(g.node.iter().flat_map(|n| n.output.iter().map(String::as_str)));
        let mut used: Vec<String> = g.output.iter().map(|v| v.name.clone()).collect();
        for inner in &g.node {
            used.extend(inner.input.iter().cloned());
            collect(inner, depth - 1, &mut used);
        }
        out.extend(used.into_iter().filter(|u| !u.is_empty() && !own.contains(u.as_str())));
    }
}

/// The subgraph that an attribute of a node holds.
pub(super) fn subgraph(n: &NodeProto, name: &str) -> Result<GraphProto, String> {
    let attribute = n.attribute.iter().find(|a| a.name == name);
    let bytes = attribute.and_then(|a| a.g.as_ref());
    let bytes = bytes.ok_or_else(|| format!("attribute `{name}` holds no graph"))?;
    GraphProto::decode(bytes.as_slice()).map_err(|e| format!("attribute `{name}`: {e}"))
}

/// The new names of a body's values.
pub(super) type Names = HashMap<String, String>;

fn renamed(name: &str, names: &Names) -> String {
    names.get(name).cloned().unwrap_or_else(|| name.to_string())
}

/// A node of a body under other names; its name gets the prefix.
fn node(n: &NodeProto, names: &Names, prefix: &str, depth: usize) -> NodeProto {
    let each = |list: &[String]| list.iter().map(|x| renamed(x, names)).collect();
    let name = if n.name.is_empty() { String::new() } else { format!("{prefix}{}", n.name) };
    let attribute = n.attribute.iter().map(|a| attribute(a, names, depth)).collect();
    NodeProto { name, input: each(&n.input), output: each(&n.output), attribute, ..n.clone() }
}

/// An attribute whose subgraphs read the graph around them under other names.
fn attribute(a: &AttributeProto, names: &Names, depth: usize) -> AttributeProto {
    let graph = |bytes: &Vec<u8>| match GraphProto::decode(bytes.as_slice()) {
        Ok(g) if depth > 0 => inner_graph(g, names, depth - 1).encode_to_vec(),
        _ => bytes.clone(),
    };
    let (g, graphs) = (a.g.as_ref().map(graph), a.graphs.iter().map(graph).collect());
    AttributeProto { g, graphs, ..a.clone() }
}

/// A subgraph of a body: its own names stay, those around it change.
fn inner_graph(mut g: GraphProto, names: &Names, depth: usize) -> GraphProto {
    let mut outer = names.clone();
    g.input.iter().for_each(|v| _ = outer.remove(&v.name));
    g.initializer.iter().for_each(|t| _ = outer.remove(&t.name));
    g.node.iter().flat_map(|n| &n.output).for_each(|o| _ = outer.remove(o));
    g.node = g.node.iter().map(|n| node(n, &outer, "", depth)).collect();
    for o in &mut g.output {
        o.name = renamed(&o.name, &outer);
    }
    g
}

/// The nodes of a subgraph with every name that it defines behind a prefix; its inputs are these
/// names of the graph around it. `names` says afterwards what each name became.
pub(super) fn nodes(g: &GraphProto, prefix: &str, names: &mut Names) -> Vec<NodeProto> {
    let made = g.node.iter().flat_map(|n| &n.output).chain(g.initializer.iter().map(|t| &t.name));
    for name in made.filter(|n| !n.is_empty()) {
        names.insert(name.clone(), format!("{prefix}{name}"));
    }
    g.node.iter().map(|n| node(n, names, prefix, DEEPEST)).collect()
}

/// The nodes of a function's body as a call of it needs them: attributes have the call's values.
pub(super) fn body(f: &FunctionProto, call: &NodeProto, prefix: &str) -> Vec<NodeProto> {
    let mut names = Names::new();
    for made in f.node.iter().flat_map(|n| &n.output).filter(|n| !n.is_empty()) {
        names.insert(made.clone(), format!("{prefix}{made}"));
    }
    for (i, input) in f.input.iter().enumerate() {
        names.insert(input.clone(), call.input.get(i).cloned().unwrap_or_default());
    }
    let value = |a: &AttributeProto| -> Option<AttributeProto> {
        if a.ref_attr_name.is_empty() {
            return Some(a.clone());
        }
        let same = |b: &&AttributeProto| b.name == a.ref_attr_name;
        let given = call.attribute.iter().find(same).or(f.attribute_proto.iter().find(same));
        given.map(|g| AttributeProto { name: a.name.clone(), ..g.clone() })
    };
    let filled = |n: &NodeProto| {
        let attribute = n.attribute.iter().filter_map(value).collect();
        node(&NodeProto { attribute, ..n.clone() }, &names, prefix, DEEPEST)
    };
    let mut nodes: Vec<NodeProto> = f.node.iter().map(filled).collect();
    for (i, output) in f.output.iter().enumerate() {
        if let Some(to) = call.output.get(i).filter(|o| !o.is_empty()) {
            nodes.push(identity(&renamed(output, &names), to));
        }
    }
    nodes
}

/// A node that hands a value on under another name.
pub(super) fn identity(from: &str, to: &str) -> NodeProto {
    simple("Identity", &[from], to)
}

/// A node of an operator without attributes.
pub(super) fn simple(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: op.into(),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: vec![output.into()],
        ..Default::default()
    }
}

/// The attribute of a Constant.
pub(super) fn value(t: TensorProto) -> AttributeProto {
    AttributeProto {
        name: "value".into(),
        t: Some(t),
        r#type: crate::onnx::proto::attribute::TENSOR,
        ..Default::default()
    }
}

/// A list of whole numbers.
pub(super) fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        ints: values.to_vec(),
        r#type: crate::onnx::proto::attribute::INTS,
        ..Default::default()
    }
}

/// An attribute that is a whole number.
pub(super) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        i: Some(value),
        r#type: crate::onnx::proto::attribute::INT,
        ..Default::default()
    }
}
