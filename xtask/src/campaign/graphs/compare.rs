//! Whether two results are the same but for rounding.

use super::case::Case;
use squall_core::DType;
use squall_frontend::npy::Array;
use std::collections::HashMap;

/// Arrays by the names of their values.
pub type Arrays = HashMap<String, Array>;

/// What differs between results of a case and those of a reference, in words. What the reference
/// does not have is not compared.
pub fn difference(case: &Case, got: &Arrays, want: &Arrays) -> Option<String> {
    let scale = scale(case, want);
    let longest = longest(case, want);
    for name in &case.outputs {
        let Some(w) = want.get(name) else { continue };
        let Some(g) = got.get(name) else { return Some(format!("{name} is missing")) };
        let is_exact = case.exact.contains(name);
        if let Some(d) = unequal(g, w, is_exact, scale, longest) {
            let op = case.nodes.iter().find(|n| n.output.contains(name));
            let op = op.map_or("", |n| n.op_type.as_str());
            return Some(format!("{name} of {op}: {d}"));
        }
    }
    None
}

/// The largest finite number among a case's inputs and values.
fn scale(case: &Case, values: &Arrays) -> f64 {
    let all = case.inputs.iter().map(|i| &i.1).chain(values.values());
    let floats = all.filter(|a| a.dtype.is_float());
    let numbers = floats.flat_map(|a| (0..a.elements()).filter_map(|i| a.number(i)));
    numbers.filter(|x| x.is_finite()).fold(1.0, |m, x| m.max(x.abs()))
}

/// The most elements that one of a case's sums may have.
fn longest(case: &Case, values: &Arrays) -> f64 {
    let all = case.inputs.iter().map(|i| &i.1).chain(values.values());
    all.map(Array::elements).max().unwrap_or(1) as f64
}

fn unequal(g: &Array, w: &Array, is_exact: bool, scale: f64, longest: f64) -> Option<String> {
    if g.dtype != w.dtype || g.shape != w.shape {
        return Some(format!("{:?} {:?}, not {:?} {:?}", g.dtype, g.shape, w.dtype, w.shape));
    }
    let epsilon = if g.dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let relative = epsilon * (64.0 + 16.0 * longest.sqrt());
    let size = g.dtype.bytes() as usize;
    for i in 0..w.elements() {
        if g.bytes[i * size..][..size] == w.bytes[i * size..][..size] {
            continue;
        }
        let (Some(x), Some(y)) = (g.number(i), w.number(i)) else { continue };
        // The sign of a zero is not kept, nor which NaN it is.
        if g.dtype.is_float() && (x == y || (x.is_nan() && y.is_nan())) {
            continue;
        }
        if g.dtype.is_float() && !is_exact {
            let allowed = relative * (y.abs() + scale * 0.05) + epsilon * scale;
            // Sums of what is near the limit overflow in one order and not in another.
            let overflows = scale > 1e15 && !(x.is_finite() && y.is_finite());
            if (x - y).abs() <= allowed || overflows {
                continue;
            }
        }
        return Some(format!("element {i} of {:?} is {x:e}, not {y:e}", w.shape));
    }
    None
}
