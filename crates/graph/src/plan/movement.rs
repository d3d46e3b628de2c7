//! Nodes that only move data, as copies. The source of each element of the result is found by
//! evaluating the node on element numbers instead of values, and the numbers are read back as
//! strides. One rule thus serves all moving operators, and cannot disagree with constant folding,
//! whose evaluators (`core/src/graph/fold`) it uses. Input: a node with the shapes of its operands;
//! output: [`Moved`], a list of strided copies. Called by `build.rs`.

use super::Stride;
use squall_core::graph::{Attribute, Constant, Node};
use squall_core::operators::{self, Moving};

/// An input of a node.
pub enum MoveOperand {
    /// An optional input that is absent.
    Absent,
    /// A value of this shape that a step computes.
    Made(Vec<i64>),
    /// A value that is known before the run.
    Known(Constant),
}

/// A result of a node.
#[derive(Debug, PartialEq)]
pub struct Moved {
    /// The number of elements.
    pub elements: usize,
    /// The value of elements that no operand gives.
    pub fill: Option<f32>,
    /// The copies that make the result.
    pub pieces: Vec<Piece>,
}

/// Elements of one operand that go into a result.
#[derive(Debug, PartialEq)]
pub struct Piece {
    /// The operand.
    pub input: usize,
    /// The first element in the result.
    pub to: usize,
    /// The first element in the operand.
    pub from: usize,
    /// How the further elements lie.
    pub pattern: Pattern,
}

/// How the elements of a piece lie.
#[derive(Debug, PartialEq)]
pub enum Pattern {
    /// Along axes, outermost first; none for a single element.
    Axes(Vec<Stride>),
    /// (target, source, length), both from the beginning of their tensors.
    Runs(Vec<[usize; 3]>),
}

/// The results of a node that moves data; `None` for other nodes.
pub fn trace(
    node: &Node,
    operands: &[MoveOperand],
    opset: i64,
) -> Option<Result<Vec<Moved>, String>> {
    if !matches!(node.domain.as_str(), "" | "ai.onnx") {
        return None;
    }
    let moving = operators::standard(&node.op)?.moving;
    if moving == Moving::No {
        return None;
    }
    let moves = |i: usize| match moving {
        Moving::All => true,
        Moving::Only(list) => list.contains(&i),
        Moving::No => false,
    };
    // Index 0 stands for the fill of `Pad`, which is no operand.
    let mut next = 1i64;
    let mut starts = Vec::new();
    let mut inputs = Vec::new();
    for (i, operand) in operands.iter().enumerate() {
        starts.push(next);
        let shape = match operand {
            MoveOperand::Known(c) => c.shape(),
            MoveOperand::Made(shape) => shape,
            MoveOperand::Absent => &[],
        };
        inputs.push(match operand {
            MoveOperand::Absent => None,
            MoveOperand::Known(c) if !moves(i) => Some(c.clone()),
            // Where to is found when the model runs.
            MoveOperand::Made(_) if !moves(i) => return None,
            MoveOperand::Known(_) | MoveOperand::Made(_) => {
                let count = shape.iter().product::<i64>().max(0);
                let data = (next..next + count).collect();
                next += count;
                Some(Constant::I64 { shape: shape.to_vec(), data })
            }
        });
    }
    let made = match operators::evaluate(node, &inputs, opset)? {
        Ok(made) => made,
        Err(e) => return Some(Err(e)),
    };
    let fill = match node.attributes.get("value") {
        Some(Attribute::Float(f)) if opset < 11 => *f,
        _ => 0.0,
    };
    made.iter().map(|c| moved(c.as_i64()?, &starts, fill)).collect::<Option<Vec<_>>>().map(Ok)
}

fn moved(indices: &[i64], starts: &[i64], fill: f32) -> Option<Moved> {
    // (target, source) of each element, by operand.
    let mut pairs: Vec<Vec<(usize, usize)>> = vec![Vec::new(); starts.len()];
    for (to, &index) in indices.iter().enumerate().filter(|(_, i)| **i > 0) {
        // Operands that are not given or not moved begin where the next one does.
        let input = starts.iter().rposition(|s| *s <= index)?;
        pairs[input].push((to, (index - starts[input]) as usize));
    }
    let given: usize = pairs.iter().map(Vec::len).sum();
    let pieces = pairs
        .into_iter()
        .enumerate()
        .filter(|(_, p)| !p.is_empty())
        .map(|(input, p)| piece(input, &p))
        .collect();
    Some(Moved { elements: indices.len(), fill: (given < indices.len()).then_some(fill), pieces })
}

fn piece(input: usize, pairs: &[(usize, usize)]) -> Piece {
    let (to, from) = pairs[0];
    match axes(pairs) {
        Some(axes) => Piece { input, to, from, pattern: Pattern::Axes(axes) },
        None => Piece { input, to: 0, from: 0, pattern: Pattern::Runs(runs(pairs)) },
    }
}

/// The axes along which the pairs lie, if they do.
fn axes(pairs: &[(usize, usize)]) -> Option<Vec<Stride>> {
    let mut axes = Vec::new();
    let mut rest: Vec<(usize, usize)> = pairs.to_vec();
    let apart = |a: (usize, usize), b: (usize, usize)| (b.0 - a.0, b.1 as isize - a.1 as isize);
    while rest.len() > 1 {
        let step = apart(rest[0], rest[1]);
        let extent = 1 + rest.windows(2).take_while(|w| apart(w[0], w[1]) == step).count();
        let even = rest.len().is_multiple_of(extent);
        if !even || rest.chunks(extent).any(|c| c.windows(2).any(|w| apart(w[0], w[1]) != step)) {
            return None;
        }
        axes.push(Stride { extent, to: step.0, from: step.1 });
        rest = rest.into_iter().step_by(extent).collect();
    }
    axes.reverse();
    Some(axes)
}

fn runs(pairs: &[(usize, usize)]) -> Vec<[usize; 3]> {
    let mut runs: Vec<[usize; 3]> = Vec::new();
    for &(to, from) in pairs {
        match runs.last_mut() {
            Some([t, f, n]) if *t + *n == to && *f + *n == from => *n += 1,
            _ => runs.push([to, from, 1]),
        }
    }
    runs
}
