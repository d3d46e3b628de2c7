//! Plain kernels (untuned C for one ONNX operator) of conversions between element types (`Cast`,
//! `CastLike`), of operators that return the operand's elements unchanged (`Reshape`, `Flatten`,
//! `Identity`, ..), and of results that are known from shapes alone (`Shape`, `Size`, `Constant`).
//! `OPS` maps each operator to the function that writes its C. `mod.rs` collects the tables `OPS`
//! of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, is_unsigned};
use squall_core::DType;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("BitCast", same),
    ("Cast", cast),
    ("CastLike", cast),
    ("Flatten", same),
    ("Identity", same),
    ("OptionalGetElement", same),
    ("OptionalHasElement", has_element),
    ("Reshape", same),
    ("Squeeze", same),
    ("Unsqueeze", same),
    ("Shape", shape),
    ("Size", shape),
    ("Constant", constant),
];

/// `Cast` and `CastLike`.
fn cast(p: &mut Program) -> Result<(), String> {
    only(p, &["to", "saturate", "round_mode"])?;
    let (from, to) = (p.dtype(0)?, p.out_type()?);
    let form = convert(from, to, "x0[i]");
    p.body(&format!("  for (long i = 0; i < M0; i++) y0[i] = {form};\n"));
    Ok(())
}

/// The C text that converts an element `x` between types: floats are truncated to whole numbers,
/// integers keep their low bits, and any number but zero is true.
pub(super) fn convert(from: DType, to: DType, x: &str) -> String {
    let real = |d: DType| matches!(d, DType::F32 | DType::F64);
    match (from, to) {
        (_, DType::Bool) => format!("(Y0)({x} != 0)"),
        (f, t) if !real(f) || real(t) => format!("(Y0){x}"),
        (_, DType::U64) => format!("to_u64({x})"),
        (_, t) if t.bytes() == 4 && !is_unsigned(t) => {
            format!("({x} >= -2147483648.0f && {x} < 2147483648.0f ? (int){x} : -2147483647 - 1)")
        }
        _ => format!("(Y0)to_i64({x})"),
    }
}

/// The operand's bytes.
fn same(p: &mut Program) -> Result<(), String> {
    if p.dtype(0)?.bytes() != p.out_type()?.bytes() {
        return Err("its result has elements of another size".into());
    }
    p.body("  if (M0) memcpy(y0, x0, (size_t)M0 * sizeof(Y0));\n");
    Ok(())
}

fn has_element(p: &mut Program) -> Result<(), String> {
    p.body("  y0[0] = HASX0;\n");
    if p.ctx.inputs.is_empty() {
        p.int("HASX0", 0);
    }
    Ok(())
}

/// Writes a result that is known ahead of the run.
fn shape(p: &mut Program) -> Result<(), String> {
    let made = squall_core::graph::fold::of_shape(&p.ctx)?;
    let values = made.first().and_then(|c| c.as_i64()).unwrap_or_default().to_vec();
    p.ints("VALUES", &values);
    p.body("  for (long i = 0; i < M0; i++) y0[i] = VALUES[i];\n");
    Ok(())
}

fn constant(p: &mut Program) -> Result<(), String> {
    use squall_core::graph::{Attribute, Constant};
    let value = match p.ctx.node.attributes.iter().next() {
        Some((_, Attribute::Tensor(t))) => t.constant.clone(),
        Some((_, Attribute::Int(i))) => Some(Constant::I64 { shape: vec![], data: vec![*i] }),
        Some((_, Attribute::Ints(v))) => Some(Constant::ints(v.clone())),
        Some((_, Attribute::Float(x))) => Some(Constant::F32 { shape: vec![], data: vec![*x] }),
        Some((_, Attribute::Floats(v))) => {
            Some(Constant::F32 { shape: vec![v.len() as i64], data: v.clone() })
        }
        _ => None,
    };
    let value = value.ok_or("its value is not known")?;
    if value.len() > 65536 {
        return Err("its value is too large".into());
    }
    match &value {
        Constant::F32 { data, .. } => {
            p.floats("VALUES", &data.iter().map(|v| f64::from(*v)).collect::<Vec<_>>());
        }
        Constant::F64 { data, .. } => p.doubles("VALUES", data),
        Constant::I64 { data, .. } => p.ints("VALUES", data),
        Constant::Bool { data, .. } => {
            p.ints("VALUES", &data.iter().map(|v| i64::from(*v)).collect::<Vec<_>>());
        }
    }
    p.body("  for (long i = 0; i < M0; i++) y0[i] = (Y0)VALUES[i];\n");
    Ok(())
}
