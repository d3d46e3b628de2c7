//! `LpNormalization` and `ReduceLogSumExp` over other than the last dimensions, as reductions with
//! elementwise operators between them: kernels that reduce over such dimensions hold neighbours in
//! vectors. Over the last dimensions each is one kernel, and the node stays
//! (`graph/src/fuse/anchor.rs`). So do nodes of 16-bit floats, in which the constants of this file
//! would be rounded to 0 or infinity.

use crate::onnx::reader::body::Body;
use crate::onnx::reader::inline::ints;
use squall_core::DType;
use squall_core::operator::LpNorm;

/// The first version of the operators in which sums have their axes as an operand.
const OPSET: i64 = 13;

/// The node's operand with its shape, where it is of 32-bit floats and not empty.
fn operand(b: &Body) -> Option<(String, Vec<i64>)> {
    let (x, shape) = (b.input(0).ok()?, b.shape(0).ok()?);
    let is_known = b.around.opset >= OPSET && (b.around.dtype)(&x) == Some(DType::F32);
    (is_known && shape.iter().all(|e| *e > 0)).then_some((x, shape))
}

/// The dimension that a number from a file means.
fn dimension(of: i64, rank: usize) -> Option<usize> {
    let of = if of < 0 { of.checked_add(rank as i64)? } else { of };
    usize::try_from(of).ok().filter(|d| *d < rank)
}

/// Whether the reduced dimensions are the last ones, but for those of extent 1.
fn are_last(shape: &[i64], reduced: &[usize]) -> bool {
    let long = (0..shape.len()).filter(|d| shape[*d] != 1);
    long.skip_while(|d| !reduced.contains(d)).all(|d| reduced.contains(&d))
}

/// A reduction that keeps its dimensions with extent 1.
fn reduced(b: &mut Body, op: &str, x: &str, axes: &[usize]) -> String {
    let axes: Vec<i64> = axes.iter().map(|a| *a as i64).collect();
    // Other reductions than sums have their axes as an operand since version 18.
    if b.around.opset < 18 && op != "ReduceSum" {
        return b.op(op, &[x], vec![ints("axes", &axes)]);
    }
    let axes = b.integers(&axes);
    b.op(op, &[x, &axes], vec![])
}

/// A tensor divided by the norms along an axis. Elements whose norm is below `LpNorm::least` are
/// divided by that number instead, so that elements whose norm is 0 become 0.
pub(super) fn lp_normalization(b: &mut Body) -> Option<()> {
    let (x, shape) = operand(b)?;
    let axis = dimension(b.int("axis", -1), shape.len())?;
    let p = b.int("p", 2);
    let op = match p {
        1 => "ReduceL1",
        2 => "ReduceL2",
        _ => return None,
    };
    if are_last(&shape, &[axis]) {
        return None;
    }
    let norm = reduced(b, op, &x, &[axis]);
    let least = b.scalar(LpNorm::least(p));
    let held = b.op("Max", &[&norm, &least], vec![]);
    let y = b.op("Div", &[&x, &held], vec![]);
    b.hand_on(&y, 0);
    Some(())
}

/// The logarithm of a sum of powers. The largest element is taken from all others first, so that no
/// power overflows. Where the largest element is infinite, the nearest finite number is taken
/// instead, and powers are infinite or 0, as they should be. A NaN stays a NaN among the powers,
/// no matter which number was taken from it.
pub(super) fn reduce_log_sum_exp(b: &mut Body) -> Option<()> {
    let (x, shape) = operand(b)?;
    let listed = match (b.attribute("axes"), b.given(1)) {
        (Some(list), _) => list.ints.clone(),
        (None, Some(name)) => (b.around.integers)(&name)?,
        (None, None) => return None,
    };
    let axes = listed.iter().map(|a| dimension(*a, shape.len())).collect::<Option<Vec<_>>>()?;
    if are_last(&shape, &axes) {
        return None;
    }
    let most = reduced(b, "ReduceMax", &x, &axes);
    let (low, high) = (b.scalar(f32::MIN), b.scalar(f32::MAX));
    let held = b.op("Max", &[&most, &low], vec![]);
    let held = b.op("Min", &[&held, &high], vec![]);
    let apart = b.op("Sub", &[&x, &held], vec![]);
    let powers = b.op("Exp", &[&apart], vec![]);
    let sum = reduced(b, "ReduceSum", &powers, &axes);
    let log = b.op("Log", &[&sum], vec![]);
    let mut y = b.op("Add", &[&log, &held], vec![]);
    if b.int("keepdims", 1) == 0 {
        let kept = (0..shape.len()).filter(|d| !axes.contains(d)).map(|d| shape[d]);
        y = b.reshape(&y, &kept.collect::<Vec<_>>());
    }
    b.hand_on(&y, 0);
    Some(())
}
