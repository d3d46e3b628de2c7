//! Compares the outputs of a random graph with those of a reference: are they the same but for
//! rounding? Input: arrays by name, and the bounds of their errors (`bounds.rs`); output: the first
//! difference in words, or nothing.

use super::case::Case;
use squall_core::DType;
use squall_frontend::npy::Array;
use std::collections::HashMap;

/// Arrays by the names of their values.
pub type Arrays = HashMap<String, Array>;

/// The errors that a case's values may have; infinite where nothing is known of an element.
pub type Bounds = HashMap<String, Vec<f64>>;

/// The difference between the results of a case and those of a reference, in words. Values that the
/// reference lacks are not compared. Values without bounds are equal in every bit.
pub fn difference(case: &Case, got: &Arrays, want: &Arrays, bounds: &Bounds) -> Option<String> {
    for name in &case.outputs {
        let Some(w) = want.get(name) else { continue };
        let Some(g) = got.get(name) else { return Some(format!("{name} is missing")) };
        if let Some(d) = unequal(g, w, bounds.get(name).map(Vec::as_slice)) {
            let op = case.nodes.iter().find(|n| n.output.contains(name));
            let op = op.map_or("", |n| n.op_type.as_str());
            return Some(format!("{name} of {op}: {d}"));
        }
    }
    None
}

fn unequal(g: &Array, w: &Array, bounds: Option<&[f64]>) -> Option<String> {
    // Programs write bf16 as bits.
    let are_bits = g.dtype == DType::U16 && w.dtype == DType::Bf16;
    if (g.dtype != w.dtype && !are_bits) || g.shape != w.shape {
        return Some(format!("{:?} {:?}, not {:?} {:?}", g.dtype, g.shape, w.dtype, w.shape));
    }
    let g = &Array { dtype: w.dtype, ..g.clone() };
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
        let allowed = bounds.and_then(|b| b.get(i)).copied().unwrap_or(0.0);
        if g.dtype.is_float() && ((x - y).abs() <= allowed || allowed == f64::INFINITY) {
            continue;
        }
        let words = format!("element {i} of {:?} is {x:e}, not {y:e}", w.shape);
        return Some(if allowed > 0.0 { format!("{words} by {allowed:.1e}") } else { words });
    }
    None
}
