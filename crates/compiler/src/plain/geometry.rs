//! Plain kernels (untuned C for one ONNX operator) of operators whose results depend on shapes and
//! few numbers only: `Range`, `EyeLike`, `ConstantOfShape` and `AffineGrid`. Input: a call at
//! constant shapes; output: C. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, is_unsigned};
use squall_core::DType;
use squall_core::graph::Attribute;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("AffineGrid", affine_grid),
    ("ConstantOfShape", constant_of_shape),
    ("EyeLike", eye),
    ("Range", range),
];

fn constant_of_shape(p: &mut Program) -> Result<(), String> {
    only(p, &["value"])?;
    let value = match p.ctx.node.attributes.get("value") {
        None => "0".to_string(),
        Some(Attribute::Tensor(t)) => match &t.constant {
            Some(squall_core::graph::Constant::F32 { data, .. }) => {
                super::program::number(f64::from(data[0]))
            }
            Some(squall_core::graph::Constant::F64 { data, .. }) => super::program::number(data[0]),
            Some(squall_core::graph::Constant::I64 { data, .. }) => super::program::long(data[0]),
            Some(squall_core::graph::Constant::Bool { data, .. }) => u8::from(data[0]).to_string(),
            None => return Err("attribute `value` is not known".into()),
        },
        Some(_) => return Err("attribute `value` is no tensor".into()),
    };
    p.body(&format!("  for (long i = 0; i < M0; i++) y0[i] = (Y0){value};\n"));
    Ok(())
}

fn eye(p: &mut Program) -> Result<(), String> {
    only(p, &["dtype", "k"])?;
    let columns = p.out()?.last().copied().unwrap_or(1);
    let k = p.ctx.int_or("k", 0)?;
    p.int("COLUMNS", columns);
    p.int("SHIFT", k);
    p.body("  for (long i = 0; i < M0; i++) y0[i] = i % COLUMNS - i / COLUMNS == SHIFT ? 1 : 0;\n");
    Ok(())
}

/// `Range`: the number of elements is known before the run; start and step are read at run time.
fn range(p: &mut Program) -> Result<(), String> {
    only(p, &[])?;
    let d = p.dtype(0)?;
    let form = match d {
        DType::F32 | DType::F64 => "*x0 + (T0)i * *x2",
        _ if is_unsigned(d) => "(T0)(*x0 + (T0)i * *x2)",
        _ => "(T0)(*x0 + i * *x2)",
    };
    p.body(&format!("  for (long i = 0; i < M0; i++) y0[i] = {form};\n"));
    Ok(())
}

fn affine_grid(p: &mut Program) -> Result<(), String> {
    only(p, &["align_corners"])?;
    p.real0()?;
    let out = p.out()?;
    let rank = out.len() - 2;
    let corners = p.ctx.int_or("align_corners", 0)? != 0;
    p.int("RANK", rank as i64);
    p.ints("SIZE", &out[1..=rank]);
    p.int("POINTS", out[1..=rank].iter().product());
    p.int("BATCH", out[0]);
    let place = match corners {
        true => "SIZE[a] > 1 ? C(-1) + C(2) * (R)at / (R)(SIZE[a] - 1) : C(0)",
        false => "(C(2) * (R)at + C(1)) / (R)SIZE[a] - C(1)",
    };
    p.body(&format!(
        "  for (long b = 0; b < BATCH; b++)
  for (long i = 0; i < POINTS; i++) {{
    R place[3] = {{0, 0, 0}};
    long rest = i;
    for (long a = RANK - 1; a >= 0; a--) {{
      const long at = rest % SIZE[a];
      rest /= SIZE[a];
      place[RANK - 1 - a] = {place};
    }}
    for (long r = 0; r < RANK; r++) {{
      const T0 *row = x0 + (b * RANK + r) * (RANK + 1);
      R s = row[RANK];
      for (long c = 0; c < RANK; c++) s += row[c] * place[c];
      y0[(b * POINTS + i) * RANK + r] = s;
    }}
  }}
"
    ));
    Ok(())
}
