//! Rewrites onnxruntime's `MatMulNBits`, a product with weights of 4 or 8 bits, as Squall's own
//! operators: one packs the weights when the model is loaded, one multiplies with the packed form
//! (`core/src/graph/infer/nbits.rs` describes both).

use crate::onnx::proto::AttributeProto;
use crate::onnx::reader::body::{Body, word};
use crate::onnx::reader::inline::int;
use squall_core::DType;
use squall_core::graph::infer::nbits::{DOMAIN, Form, NBits, Typed};

/// The accuracy level by which a file asks for activations quantised to 8 bits.
const INTEGERS: i64 = 4;

/// A product with weights of 4 or 8 bits, whose packed form is made when the model is loaded.
/// Where each row of weights names its group, weights become floats then.
pub(super) fn matmul_nbits(b: &mut Body) -> Result<(), String> {
    b.only_outputs(&[0])?;
    if b.int("weight_prepacked", 0) != 0 {
        return Err("its weights are packed for one library".into());
    }
    let w = NBits {
        k: b.int("K", 0),
        n: b.int("N", 0),
        bits: b.int("bits", 4),
        block: b.int("block_size", 128),
        signed: false,
        form: Form::Packed,
    };
    w.check()?;
    let (x, weights, scales) = (b.input(0)?, b.input(1)?, b.input(2)?);
    let (zeros, groups, bias) = (b.given(3), b.given(4), b.given(5));
    suits(b, &w)?;
    let inputs = [Some(weights), Some(scales), zeros];
    let mut given: Vec<String> = inputs.into_iter().map(Option::unwrap_or_default).collect();
    if let Some(groups) = groups {
        given.push(groups);
        let unpacked = own(b, "UnpackNBits", &given, attributes(&w), 1).remove(0);
        let mut y = b.op("MatMul", &[&x, &unpacked], vec![]);
        if let Some(bias) = bias {
            y = b.op("Add", &[&y, &bias], vec![]);
        }
        b.hand_on(&y, 0);
        return Ok(());
    }
    let has_zeros = !given[2].is_empty();
    let packed = own(b, "PackNBits", &given, attributes(&w), if has_zeros { 3 } else { 2 });
    let (codes, vectors) = (packed[0].clone(), packed[1].clone());
    let mut inputs = vec![x, codes, vectors, packed.get(2).cloned().unwrap_or_default()];
    inputs.extend(bias);
    let mut all = attributes(&w);
    // Any other level asks for floats of some format, of which those of 32 bits are the widest.
    let level = b.int("accuracy_level", 0);
    all.push(int("accuracy_level", if level == INTEGERS { INTEGERS } else { 0 }));
    let y = own(b, "MatMulNBits", &inputs, all, 1).remove(0);
    b.hand_on(&y, 0);
    Ok(())
}

/// Says which operand is not what the attributes say.
fn suits(b: &Body, w: &NBits) -> Result<(), String> {
    let dtype = |i: usize| b.given(i).and_then(|name| (b.around.dtype)(&name));
    for i in [0, 2] {
        if dtype(i).is_some_and(|d| d != DType::F32 && !d.is_half()) {
            return Err(format!("its input {i} is not of floats of 32 or 16 bits"));
        }
    }
    if dtype(1).is_some_and(|d| d != DType::U8) {
        return Err("its weights are not of unsigned bytes".into());
    }
    let zeros = dtype(3);
    if zeros.is_some_and(|d| d != DType::U8 && d != DType::F32 && !d.is_half()) {
        return Err("its zero points are neither packed in unsigned bytes nor floats".into());
    }
    let scales = b.shape(2)?;
    let zero_shape = b.given(3).map(|_| b.shape(3)).transpose()?;
    let zeros = zero_shape.as_deref().map(|shape| Typed { dtype: zeros, shape });
    w.suits(&b.shape(1)?, Typed { dtype: dtype(2), shape: &scales }, zeros)
}

/// The extents of the weights as attributes.
pub fn attributes(w: &NBits) -> Vec<AttributeProto> {
    let form = match w.form {
        Form::Packed => "packed",
        Form::Rows => "rows",
        Form::Columns => "columns",
    };
    vec![
        int("K", w.k),
        int("N", w.n),
        int("bits", w.bits),
        int("block_size", w.block),
        int("signed", i64::from(w.signed)),
        word("form", form),
    ]
}

/// A node of an operator that only readers write.
fn own(
    b: &mut Body,
    op: &str,
    inputs: &[String],
    attributes: Vec<AttributeProto>,
    outputs: usize,
) -> Vec<String> {
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let made = b.node(op, &inputs, attributes, outputs);
    if let Some(node) = b.nodes.last_mut() {
        node.domain = DOMAIN.into();
        node.name = format!("{}{op}", b.prefix);
    }
    made
}
