//! From a model's nodes to tasks: one kernel for each anchor with the elementwise nodes that
//! follow it, one for each chain of elementwise nodes. What is not tuned is listed with its reason.

mod anchor;
mod group;
mod step;
mod view;

pub(crate) use step::Norm;

use crate::error::ImportError;
use crate::graph::{Graph, Step};
use crate::import::{Import, Tasks, Untuned};
use crate::onnx::{self, Model, Node};
use group::{Group, Kernel};
use std::sync::Arc;
use view::View;

/// Reads a model and gives its distinct kernels. `dims` gives symbolic dimensions their extents;
/// `name` says in errors which file it is.
pub fn import_onnx(
    bytes: &[u8],
    name: &str,
    dims: &[(String, i64)],
) -> Result<Import, ImportError> {
    let model = Arc::new(onnx::read(bytes, name, dims)?);
    Ok(lower(model))
}

fn lower(model: Arc<Model>) -> Import {
    let view = View::new(&model);
    let mut import = Import::default();
    let mut tasks = Tasks::default();
    let mut steps = Vec::new();
    // Nodes whose results exist once the steps so far have run.
    let mut done = vec![false; model.nodes.len()];
    for (i, node) in model.nodes.iter().enumerate() {
        if done[i] {
            continue;
        }
        if node.folded {
            import.folded.push(node.name.clone());
            done[i] = true;
            continue;
        }
        match kernel(&view, i, &done) {
            Ok((group, kernel)) => {
                let nodes = group.nodes.iter().map(|&n| model.nodes[n].name.clone()).collect();
                group.nodes.iter().for_each(|&n| done[n] = true);
                let task = tasks.add(&kernel.name, kernel.workload, nodes);
                steps.push(Step::Kernel {
                    task,
                    nodes: group.nodes,
                    feeds: kernel.feeds,
                    output: group.output,
                });
            }
            Err(reason) => {
                done[i] = true;
                steps.push(Step::Node { node: i, reason: reason.clone() });
                import.untuned.push(Untuned {
                    node: node.name.clone(),
                    op: operator(node),
                    reason,
                });
            }
        }
    }
    import.tasks = tasks.finish();
    import.graph = Some(Graph::new(model, steps));
    import
}

/// The kernel that begins with a node, or why there is none.
fn kernel(view: &View<'_>, index: usize, done: &[bool]) -> Result<(Group, Kernel), String> {
    let node = &view.model.nodes[index];
    if !matches!(node.domain.as_str(), "" | "ai.onnx") {
        return Err(format!("operators of the domain `{}` are not known", node.domain));
    }
    let mut group = match anchor::anchor(view, node) {
        Some(made) => Group::around(index, blamed(node, made)?),
        None if step::is_elementwise(&node.op) => {
            blamed(node, Group::elementwise(view, index, done))?
        }
        None => return Err(why_not(node)),
    };
    group.grow(view, done);
    let kernel = group.kernel()?;
    Ok((group, kernel))
}

/// What the reader found wrong with a node says more than what follows from it.
fn blamed<T>(node: &Node, made: Result<T, String>) -> Result<T, String> {
    made.map_err(|why| node.problem.clone().unwrap_or(why))
}

fn operator(node: &Node) -> String {
    match node.domain.as_str() {
        "" | "ai.onnx" => node.op.clone(),
        domain => format!("{domain}.{}", node.op),
    }
}

/// Operators that move or make data without arithmetic.
const MOVES: &[&str] = &[
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Concat",
    "Split",
    "Slice",
    "Gather",
    "GatherElements",
    "GatherND",
    "ScatterElements",
    "ScatterND",
    "Expand",
    "Tile",
    "Pad",
    "DepthToSpace",
    "SpaceToDepth",
    "Identity",
    "Dropout",
    "Constant",
    "ConstantOfShape",
    "Shape",
    "Size",
    "Range",
    "Where",
    "Cast",
    "OneHot",
    "EyeLike",
    "ReverseSequence",
];

/// Why an operator has no kernel.
fn why_not(node: &Node) -> String {
    if let Some(problem) = &node.problem {
        return problem.clone();
    }
    match node.op.as_str() {
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => {
            "it only renames dimensions: nothing is computed".into()
        }
        op if MOVES.contains(&op) => "it moves data without computing: nothing to tune".into(),
        "If" | "Loop" | "Scan" => {
            "it is control flow, and the nodes inside are not looked at".into()
        }
        "ConvTranspose" | "Resize" | "Upsample" | "LSTM" | "GRU" | "RNN" | "Einsum"
        | "Attention" => {
            format!("kernels for {} are not made yet", node.op)
        }
        op => format!("there is no kernel for {op}"),
    }
}

#[cfg(test)]
mod models;
#[cfg(test)]
pub(crate) mod tests;
