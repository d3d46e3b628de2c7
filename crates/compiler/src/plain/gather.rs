//! Plain kernels (untuned C for one ONNX operator) of operators that read or write elements at
//! indices known only at run time: `Gather`, `Scatter`, `OneHot` and their variants. Input: a call
//! at constant shapes; output: C, in which an index out of range ends the call with the return
//! value 1. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, loops, offset, product, strides};
use super::reduce::split_at;
use squall_core::DType;
use squall_core::text::shown;
use std::fmt::Write as _;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("Gather", gather),
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("OneHot", one_hot),
    ("Scatter", scatter_elements),
    ("ScatterElements", scatter_elements),
    ("ScatterND", scatter_nd),
    ("TensorScatter", tensor_scatter),
];

/// The axis that the attribute `axis` names.
fn axis(p: &mut Program, default: i64) -> Result<usize, String> {
    let shape = p.shape(0)?;
    p.ctx.axis(p.ctx.int_or("axis", default)?, shape.len())
}

fn gather(p: &mut Program) -> Result<(), String> {
    only(p, &["axis"])?;
    let (shape, axis) = (p.shape(0)?, axis(p, 0)?);
    split_at(p, shape, axis);
    p.body(
        "  for (long o = 0; o < OUTER; o++)
  for (long i = 0; i < N1; i++) {
    long at = (long)x1[i];
    if (at < 0) at += EXTENT;
    if (at < 0 || at >= EXTENT) return 1;
    const T0 *from = x0 + (o * EXTENT + at) * INNER;
    Y0 *to = y0 + (o * N1 + i) * INNER;
    for (long k = 0; k < INNER; k++) to[k] = from[k];
  }
",
    );
    p.on_device(
        "  for (long o = 0; o < OUTER; o++)
  for (long i = 0; i < N1; i++)
  for (long k = 0; k < INNER; k++) {
    long at = (long)x1[i];
    if (at < 0) at += EXTENT;
    if (at < 0 || at >= EXTENT) return 1;
    y0[(o * N1 + i) * INNER + k] = x0[(o * EXTENT + at) * INNER + k];
  }
",
    );
    Ok(())
}

/// For each index: its own place, with that along the axis as it says.
fn along_axis(p: &Program, axis: usize, inner: &str) -> Result<String, String> {
    let (x, indices) = (p.shape(0)?, p.shape(1)?);
    if x.len() != indices.len() {
        return Err(format!("indices of shape {indices:?} do not suit {x:?}"));
    }
    let mut steps = strides(x);
    let step = steps[axis];
    steps[axis] = 0;
    let head = format!(
        "    long at = (long)x1[{own}];\n    if (at < 0) at += {e}L;\n    if (at < 0 || at >= \
        {e}L) return \
         1;\n    const long own = {own}, place = {} + at * {step}L;\n",
        offset("i", &steps),
        own = offset("i", &strides(indices)),
        e = x[axis]
    );
    Ok(loops("i", indices, &(head + inner)))
}

fn gather_elements(p: &mut Program) -> Result<(), String> {
    only(p, &["axis"])?;
    let axis = axis(p, 0)?;
    let text = along_axis(p, axis, "    y0[own] = x0[place];")?;
    p.body(&text);
    Ok(())
}

/// The C statement by which an update `u` changes the element `t`.
fn update(p: &Program) -> Result<String, String> {
    let d = p.dtype(0)?;
    let wide = match d {
        DType::F32 | DType::F64 => "T0",
        DType::I64 | DType::U64 => "unsigned long long",
        _ => "unsigned",
    };
    let reduction = p.ctx.text("reduction", "none")?;
    if d == DType::Bool && reduction != "none" {
        return Err(format!("attribute `reduction` `{}` of booleans", shown(reduction)));
    }
    Ok(match reduction {
        "none" => "*t = u;".into(),
        "add" => format!("*t = (Y0)(({wide})*t + ({wide})u);"),
        "mul" => format!("*t = (Y0)(({wide})*t * ({wide})u);"),
        "max" => "*t = u > *t || u != u ? u : *t;".into(),
        "min" => "*t = u < *t || u != u ? u : *t;".into(),
        other => return Err(format!("attribute `reduction` is `{}`", shown(other))),
    })
}

fn scatter_elements(p: &mut Program) -> Result<(), String> {
    only(p, &["axis", "reduction"])?;
    let axis = axis(p, 0)?;
    if p.shape(1)? != p.shape(2)? {
        return Err("its updates have not the shape of its indices".into());
    }
    let update = update(p)?;
    let text = along_axis(
        p,
        axis,
        &format!("    Y0 *t = y0 + place;\n    const T2 u = x2[own];\n    {update}"),
    )?;
    p.body("  for (long i = 0; i < M0; i++) y0[i] = x0[i];\n");
    p.body(&text);
    Ok(())
}

/// The place that a row of indices names, in elements from the operand's start.
fn place_of_row(x: &[i64], first: usize, depth: usize) -> String {
    let s = strides(x);
    let mut text = String::from("    long place = 0;\n");
    for d in 0..depth {
        let (e, step) = (x[first + d], s[first + d]);
        let _ = writeln!(
            text,
            "    {{ long at = (long)x1[i * DEPTH + {d}]; if (at < 0) at += {e}L; if (at < 0 || \
            at >= \
             {e}L) return 1; place += at * {step}L; }}"
        );
    }
    text
}

fn gather_nd(p: &mut Program) -> Result<(), String> {
    only(p, &["batch_dims"])?;
    let (x, indices) = (p.shape(0)?, p.shape(1)?);
    let batch = p.ctx.int_or("batch_dims", 0)? as usize;
    let depth = *indices.last().ok_or("its indices are a scalar")? as usize;
    let rows = product(&indices[..indices.len() - 1]);
    let batches = product(&x[..batch]);
    p.int("DEPTH", depth as i64);
    p.int("ROWS", rows);
    p.int("EACH", if batches == 0 { 1 } else { (rows / batches).max(1) });
    p.int("BATCH", product(&x[batch..]));
    p.int("INNER", product(&x[batch + depth..]));
    let place = place_of_row(x, batch, depth);
    p.body(&format!(
        "  for (long i = 0; i < ROWS; i++) {{
{place}    const T0 *from = x0 + i / EACH * BATCH + place;
    for (long k = 0; k < INNER; k++) y0[i * INNER + k] = from[k];
  }}
"
    ));
    Ok(())
}

fn scatter_nd(p: &mut Program) -> Result<(), String> {
    only(p, &["reduction"])?;
    let (x, indices, updates) = (p.shape(0)?, p.shape(1)?, p.shape(2)?);
    let (&depth, rows) = indices.split_last().ok_or("its indices are a scalar")?;
    let depth = usize::try_from(depth).ok().filter(|d| *d <= x.len());
    let depth = depth.ok_or_else(|| format!("indices of shape {indices:?} do not suit {x:?}"))?;
    if updates != [rows, &x[depth..]].concat() {
        return Err(format!("its updates have shape {updates:?}"));
    }
    p.int("DEPTH", depth as i64);
    p.int("ROWS", product(rows));
    p.int("INNER", product(&x[depth..]));
    let (place, update) = (place_of_row(x, 0, depth), update(p)?);
    p.body(&format!(
        "  for (long i = 0; i < M0; i++) y0[i] = x0[i];
  for (long i = 0; i < ROWS; i++) {{
{place}    for (long k = 0; k < INNER; k++) {{
      Y0 *t = y0 + place + k;
      const T2 u = x2[i * INNER + k];
      {update}
    }}
  }}
"
    ));
    Ok(())
}

fn one_hot(p: &mut Program) -> Result<(), String> {
    only(p, &["axis"])?;
    let out = p.out()?;
    let axis = p.ctx.axis(p.ctx.int_or("axis", -1)?, out.len())?;
    split_at(p, out, axis);
    p.body(
        "  for (long o = 0; o < OUTER; o++)
  for (long k = 0; k < EXTENT; k++)
  for (long i = 0; i < INNER; i++) {
    long at = (long)x0[o * INNER + i];
    if (at < 0) at += EXTENT;
    y0[(o * EXTENT + k) * INNER + i] = x2[at == k ? 1 : 0];
  }
",
    );
    Ok(())
}

fn tensor_scatter(p: &mut Program) -> Result<(), String> {
    only(p, &["axis", "mode"])?;
    let (x, update) = (p.shape(0)?, p.shape(1)?);
    let axis = axis(p, -2)?;
    split_at(p, x, axis);
    p.int("STEPS", update[axis]);
    p.int("EACH", product(&x[1..axis]));
    let start = if p.has(2) { "(long)x2[o / EACH]" } else { "0" };
    let wrap = match p.ctx.text("mode", "linear")? {
        "linear" => "if (at < 0 || at >= EXTENT) return 1;",
        "circular" => "at = (at % EXTENT + EXTENT) % EXTENT;",
        other => return Err(format!("attribute `mode` is `{}`", shown(other))),
    };
    p.body(&format!(
        "  for (long i = 0; i < M0; i++) y0[i] = x0[i];
  for (long o = 0; o < OUTER; o++)
  for (long s = 0; s < STEPS; s++) {{
    long at = {start} + s;
    {wrap}
    const T1 *from = x1 + (o * STEPS + s) * INNER;
    Y0 *to = y0 + (o * EXTENT + at) * INNER;
    for (long k = 0; k < INNER; k++) to[k] = from[k];
  }}
"
    ));
    Ok(())
}
