//! Regions: nodes over values whose extents only the run knows, and loops, kept as one node. Its
//! attribute [`BODY`] is a model: its inputs are the node's operands, its outputs the node's
//! results. In a body, an extent below 0 is one that only the run knows; equal numbers are equal
//! extents. A result with such extents leaves a region as a [`GROWN`] record, with memory of its
//! own. `frontend/src/onnx/reader/regions.rs` makes regions, `compiler/src/plain/regions` generates
//! their C.

use super::nbits::DOMAIN;
use super::{Ctx, Output};
use crate::DType;
use crate::graph::{Attribute, Model, Node};
use std::collections::BTreeMap;

/// The operator of a region.
pub const REGION: &str = "Region";
/// The operator of a loop inside of a region. It reads the number of turns, the condition, what is
/// carried from turn to turn, and what its body reads of what stands around it; its body reads the
/// turn, the condition, the carried values and those around it, and gives the condition, the
/// carried values, and what each turn adds to a result.
pub const LOOP: &str = "Loop";
/// The attribute that holds the nodes.
pub const BODY: &str = "body";
/// The attribute of a loop that says how many values it carries.
pub const CARRIED: &str = "carried";

/// The attribute of a region that says under which conditions its results are needed: a result's
/// place, a boolean of the body, and what that has to be, three numbers for each.
pub const UNDER: &str = "under";

/// The words of 64 bits that say what a result is whose extents only the run knows: its address,
/// its bytes, its rank, and up to 32 extents. Who reads it frees it.
pub const GROWN: i64 = 35;

/// The only extent of a value of which only the run knows the rank.
pub const UNRANKED: i64 = i64::MIN + 1;

/// Whether only the run knows the rank of a value with these extents.
pub fn is_unranked(shape: &[i64]) -> bool {
    shape == [UNRANKED]
}

/// The body of a region or of a loop inside of one.
pub fn body(node: &Node) -> Option<&Model> {
    match node.attributes.get(BODY) {
        Some(Attribute::Body(m)) if node.domain == DOMAIN => Some(m),
        _ => None,
    }
}

/// Whether extents are known ahead of the run.
pub fn is_exact(shape: Option<&[i64]>) -> bool {
    shape.is_some_and(|s| s.iter().all(|e| *e >= 0))
}

/// The type and the extents of the results of a region that are grown, by their places.
pub fn grown(node: &Node) -> Vec<Option<(DType, Vec<i64>)>> {
    if node.domain == DOMAIN { grown_of(&node.op, &node.attributes) } else { Vec::new() }
}

/// The same by an operator of Squall's own and its attributes.
pub fn grown_of(
    op: &str,
    attributes: &BTreeMap<String, Attribute>,
) -> Vec<Option<(DType, Vec<i64>)>> {
    let Some(Attribute::Body(body)) = attributes.get(BODY).filter(|_| op == REGION) else {
        return Vec::new();
    };
    let one = |id: &usize| {
        let v = &body.values[*id];
        let shape = v.shape.clone().filter(|s| !is_exact(Some(s)))?;
        Some((v.dtype?, shape))
    };
    body.outputs.iter().map(one).collect()
}

pub(crate) fn region(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let body = body(ctx.node).ok_or("it has no body")?;
    let records = grown(ctx.node);
    let one = |(id, grown): (&usize, Option<(DType, Vec<i64>)>)| match grown {
        Some(_) => Ok(Output { dtype: Some(DType::I64), shape: vec![GROWN] }),
        None => {
            let v = &body.values[*id];
            let shape = v.shape.clone().ok_or_else(|| format!("`{}` has no rank", v.name))?;
            Ok(Output { dtype: v.dtype, shape })
        }
    };
    body.outputs.iter().zip(records).map(one).collect()
}

/// The most different extents that only the run knows among the nodes of one call.
pub const MOST_OPEN: usize = 12;

/// A number that stands for the extent `-symbol` in the trial `k`: trials with other numbers show
/// what depends on it. They are multiples of 64.
pub fn trial(k: usize, symbol: usize) -> i64 {
    let (first, step) = [(11, 6), (13, 10), (19, 14)][k % 3];
    64 * (first + step * symbol as i64)
}
