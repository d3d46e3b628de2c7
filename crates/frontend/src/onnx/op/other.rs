//! Operators that are known by name and, where that is easy, by shape, but neither tuned nor run.

use super::super::model::Call;
use super::{Lower, OpEntry, Out};
use crate::error::{Outcome, unknown, wrong};
use crate::tensor::Elem;

/// An operator without a rule for shapes.
const fn opaque(name: &'static str, reason: &'static str) -> OpEntry {
    OpEntry { name, infer: |_| Ok(Vec::new()), eval: None, lower: Lower::Untuned(reason) }
}

const CONTROL: &str = "control flow is not tuned, nor is what it contains";
const RECURRENT: &str = "recurrent layers are not tuned";
const QUANTIZED: &str = "quantised operators are not tuned";
const RANDOM: &str = "random numbers are not tuned";

pub(super) const OPS: &[OpEntry] = &[
    opaque("If", CONTROL),
    opaque("Loop", CONTROL),
    opaque("Scan", CONTROL),
    opaque("LSTM", RECURRENT),
    opaque("GRU", RECURRENT),
    opaque("RNN", RECURRENT),
    opaque("QLinearConv", QUANTIZED),
    opaque("QLinearMatMul", QUANTIZED),
    opaque("ConvInteger", QUANTIZED),
    opaque("MatMulInteger", QUANTIZED),
    OpEntry { name: "QuantizeLinear", infer: quantized, eval: None, lower: Lower::Untuned(QUANTIZED) },
    OpEntry { name: "DequantizeLinear", infer: |c| Ok(vec![Out::new(c.elem(1)?, c.shape(0)?)]), eval: None, lower: Lower::Untuned(QUANTIZED) },
    opaque("RandomNormal", RANDOM),
    opaque("RandomUniform", RANDOM),
    opaque("RandomNormalLike", RANDOM),
    opaque("RandomUniformLike", RANDOM),
    opaque("Einsum", "general tensor products are not tuned"),
    opaque("GridSample", "sampling at computed positions is not tuned"),
    opaque("RoiAlign", "sampling at computed positions is not tuned"),
    OpEntry { name: "Resize", infer: resize, eval: None, lower: Lower::Untuned("resizing is not tuned") },
    OpEntry { name: "Upsample", infer: resize, eval: None, lower: Lower::Untuned("resizing is not tuned") },
];

fn quantized(c: &Call) -> Outcome<Vec<Out>> {
    let elem = if c.input(2).is_some() { c.elem(2)? } else { Elem(2) };
    Ok(vec![Out::new(elem, c.shape(0)?)])
}

/// By factors or by sizes; the factors were an attribute in versions 7 and 8.
fn resize(c: &Call) -> Outcome<Vec<Out>> {
    let s = c.shape(0)?;
    let axes: Vec<usize> = match c.list("axes")? {
        Some(a) => a.iter().map(|&a| c.axis(a, s.len())).collect::<Outcome<_>>()?,
        None => (0..s.len()).collect(),
    };
    let upsample = c.node.op == "Upsample" || c.version() < 11;
    if !upsample && c.input(3).is_some() && c.string("keep_aspect_ratio_policy", "stretch")? == "stretch" {
        let sizes = c.ints(3)?.unwrap_or(&[]);
        if sizes.len() != axes.len() {
            return wrong(format!("it has {} sizes for {} dimensions", sizes.len(), axes.len()));
        }
        let mut shape = s.to_vec();
        for (&a, &e) in axes.iter().zip(sizes) {
            shape[a] = e;
        }
        return Ok(vec![Out::new(c.elem(0)?, shape)]);
    }
    let factors: Vec<f32> = match c.attr("scales") {
        Some(super::super::model::Attr::Floats(f)) => f.clone(),
        _ => match c.input(if upsample { 1 } else { 2 }) {
            Some(v) => match v.data.as_ref().and_then(|t| t.as_floats()) {
                Some(f) => f.to_vec(),
                None => return unknown("its factors are computed at run time"),
            },
            None => return unknown("it has neither factors nor sizes"),
        },
    };
    if factors.len() != axes.len() {
        return wrong(format!("it has {} factors for {} dimensions", factors.len(), axes.len()));
    }
    let mut shape = s.to_vec();
    for (&a, &f) in axes.iter().zip(&factors) {
        let scaled = (s[a] as f64 * f64::from(f)).floor();
        if !(0.0..1e12).contains(&scaled) {
            return wrong(format!("a factor of {f} is not legal"));
        }
        shape[a] = scaled as i64;
    }
    Ok(vec![Out::new(c.elem(0)?, shape)])
}
