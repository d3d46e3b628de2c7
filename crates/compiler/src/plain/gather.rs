//! Plain kernels (untuned C for one ONNX operator) of operators that read elements at indices known
//! only at run time: `Gather` and its variants, and `OneHot`. Input: a call at constant shapes;
//! output: C, in which an index out of range ends the call with the return value 1. `scatter.rs`
//! has the operators that write at such indices. `mod.rs` collects the tables `OPS` of all families
//! of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, loops, offset, product, strides};
use super::reduce::split_at;
use squall_core::DType;
use std::fmt::Write as _;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("Gather", gather),
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("OneHot", one_hot),
];

/// The axis that the attribute `axis` names.
pub(super) fn axis(p: &mut Program, default: i64) -> Result<usize, String> {
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
    // Rows without elements have indices, too, which are tested.
    match product(&shape[axis + 1..]) {
        0 => Ok(()),
        row => gather_on_device(p, row),
    }
}

/// A group of elements with 16 bytes in all, which a thread moves at once where the group lies at a
/// multiple of 16 bytes.
const GROUP: &str = "typedef struct alignas(16) group_t { unsigned a, b, c, d; } group_t;\n";

/// The number of elements of a type that make a group; none where a row is not whole groups.
fn grouped(dtype: DType, row: i64) -> Option<i64> {
    let each = 16 / dtype.bytes() as i64;
    (row > 0 && row % each == 0).then_some(each)
}

/// On a GPU a thread moves a group of a row's elements, or one element where there are no groups.
fn gather_on_device(p: &mut Program, row: i64) -> Result<(), String> {
    let each = grouped(p.dtype(0)?, row).unwrap_or(1);
    p.int("GROUPS", row / each);
    let head = format!(
        "  for (long o = 0; o < OUTER; o++)
  for (long i = 0; i < N1; i++)
  for (long k = 0; k < GROUPS; k++) {{
    long at = (long)x1[i];
    if (at < 0) at += EXTENT;
    if (at < 0 || at >= EXTENT) return 1;
    const T0 *from = x0 + (o * EXTENT + at) * INNER + k * {each};
    Y0 *to = y0 + (o * N1 + i) * INNER + k * {each};
"
    );
    let copy = match each {
        1 => "    *to = *from;\n  }\n".to_string(),
        _ => {
            p.table("group_t", GROUP.into());
            format!(
                "    if (((size_t)from | (size_t)to) % 16 == 0)
      *(group_t *)to = *(const group_t *)from;
    else
      for (int l = 0; l < {each}; l++) to[l] = from[l];
  }}
"
            )
        }
    };
    p.on_device(&(head + &copy));
    Ok(())
}

/// For each index: its own place, with that along the axis as it says.
pub(super) fn along_axis(p: &Program, axis: usize, inner: &str) -> Result<String, String> {
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

/// The place that a row of indices names, in elements from the operand's start.
pub(super) fn place_of_row(x: &[i64], first: usize, depth: usize) -> String {
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
    // A row without elements has indices, which are tested.
    if product(&x[batch + depth..]) > 0 {
        p.on_device(&format!(
            "  for (long i = 0; i < ROWS; i++)
  for (long k = 0; k < INNER; k++) {{
{place}    y0[i * INNER + k] = x0[i / EACH * BATCH + place + k];
  }}
"
        ));
    }
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
    // On a GPU a thread writes a group of a row's results.
    let (row, dtype) = (product(&out[axis..]), p.out_type()?);
    let inner = product(&out[axis + 1..]);
    let Some(each) = grouped(dtype, row).filter(|_| inner == 1 && dtype.bytes() > 1) else {
        return Ok(());
    };
    p.table("group_t", GROUP.into());
    p.int("GROUPS", row / each);
    p.on_device(&format!(
        "  for (long o = 0; o < OUTER; o++)
  for (long k = 0; k < GROUPS; k++) {{
    long at = (long)x0[o];
    if (at < 0) at += EXTENT;
    at -= k * {each};
    const Y0 off = x2[0], on = x2[1];
    union {{ group_t all; Y0 each[{each}]; }} made;
    for (int l = 0; l < {each}; l++) made.each[l] = at == l ? on : off;
    Y0 *to = y0 + o * EXTENT + k * {each};
    if ((size_t)to % 16 == 0) *(group_t *)to = made.all;
    else
      for (int l = 0; l < {each}; l++) to[l] = made.each[l];
  }}
"
    ));
    Ok(())
}
