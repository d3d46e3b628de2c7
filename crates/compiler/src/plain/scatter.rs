//! Plain kernels (untuned C for one ONNX operator) of operators that write elements at indices
//! known only at run time: `ScatterElements`, `ScatterND` and `TensorScatter`. Input: a call at
//! constant shapes; output: C, which returns 1 where an index is out of range. Where several
//! updates have one place, they are made in their own order: on a GPU a thread makes a result with
//! all of its updates. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::gather::{along_axis, axis, place_of_row};
use super::program::{Program, product};
use super::reduce::split_at;
use squall_core::DType;
use squall_core::text::shown;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("Scatter", scatter_elements),
    ("ScatterElements", scatter_elements),
    ("ScatterND", scatter_nd),
    ("TensorScatter", tensor_scatter),
];

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
    let updates = p.shape(2)?;
    if p.shape(1)? != updates {
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
    let rows = |inner: &str| along_axis(p, axis, inner);
    let loops = [rows(CHAINS_ROW)?, rows(LAST_ROW)?];
    p.int("INNER", 1);
    on_device(p, product(updates), &update, loops)
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
    let over_rows = |inner: &str| {
        let head = "  for (long i = 0; i < ROWS; i++) {\n";
        format!("{head}{place}    const long own = i;\n{inner}\n  }}\n")
    };
    on_device(p, product(rows), &update, [over_rows(CHAINS_ROW), over_rows(LAST_ROW)])
}

/// The row of updates with the number `own` joins the chain of the rows that have the same place.
const CHAINS_ROW: &str = "    next[own] = atomicExch(heads + place / INNER, (int)own);";
/// Each place keeps the number of the last row of updates that has it.
const LAST_ROW: &str = "    atomicMax(heads + place / INNER, (int)own);";

/// `sorted_chain` gives the chain whose first row is `list` in ascending order: chains of 1, 2, 4
/// .. rows wait until there are two of a length, which are merged. A chain ends with -1.
const SORTED_CHAIN: &str = "static int merged_chain(int *next, int a, int b) {
  int first = -1, last = -1;
  while (a >= 0 || b >= 0) {
    const int is_a = b < 0 || (a >= 0 && a < b), one = is_a ? a : b;
    if (is_a) a = next[a];
    else b = next[b];
    if (last < 0) first = one;
    else next[last] = one;
    last = one;
  }
  return first;
}
static int sorted_chain(int *next, int list) {
  int waiting[32];
  for (int i = 0; i < 32; i++) waiting[i] = -1;
  while (list >= 0) {
    int one = list, i = 0;
    list = next[one], next[one] = -1;
    for (; waiting[i] >= 0; i++) one = merged_chain(next, waiting[i], one), waiting[i] = -1;
    waiting[i] = one;
  }
  int all = -1;
  for (int i = 0; i < 32; i++)
    if (waiting[i] >= 0) all = merged_chain(next, waiting[i], all);
  return all;
}
";

/// The body for a GPU, for `rows` rows of `INNER` updates each. The first loop marks all places as
/// without updates. The second finds the rows of each place: its text is `chains` where a reduction
/// needs all of them, and `last` where the last row replaces the element. Then each result takes
/// the last of its rows, or all of them in their own order.
fn on_device(
    p: &mut Program,
    rows: i64,
    update: &str,
    [chains, last]: [String; 2],
) -> Result<(), String> {
    let results = product(p.out()?);
    // Without results there is nothing to share, and rows are counted by 32 bits.
    if results == 0 || rows > i64::from(i32::MAX) {
        return Ok(());
    }
    let is_reduced = p.ctx.text("reduction", "none")? != "none";
    let inner = p.value("INNER").map_or(1, |n| n as i64).max(1);
    p.int("PLACES", results / inner);
    let mut text = p.device_pointer("int", "heads", results / inner, 4);
    if is_reduced {
        text += &p.device_pointer("int", "next", rows, 4);
    }
    text += "  for (long s = 0; s < PLACES; s++) heads[s] = -1;\n";
    text += if is_reduced { chains.as_str() } else { last.as_str() };
    text += match is_reduced {
        true => {
            "  for (long s = 0; s < PLACES; s++) {
    const int head = heads[s];
    if (head >= 0 && next[head] >= 0) heads[s] = sorted_chain(next, head);
  }
"
        }
        false => "",
    };
    let each = match is_reduced {
        true => format!(
            "    Y0 sum = x0[at], *t = &sum;
    for (int row = heads[s]; row >= 0; row = next[row]) {{
      const T2 u = x2[row * INNER + k];
      {update}
    }}
    y0[at] = sum;"
        ),
        false => "    const int row = heads[s];
    y0[at] = row < 0 ? x0[at] : x2[row * INNER + k];"
            .into(),
    };
    text += &format!(
        "  for (long s = 0; s < PLACES; s++)
  for (long k = 0; k < INNER; k++) {{
    const long at = s * INNER + k;
{each}
  }}
"
    );
    p.table("sorted_chain", SORTED_CHAIN.into());
    p.on_device(&text);
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
    tensor_scatter_on_device(p, start)
}

/// On a GPU a thread has a result, and finds the last of the updates that has its place.
fn tensor_scatter_on_device(p: &mut Program, start: &str) -> Result<(), String> {
    if product(p.out()?) == 0 {
        return Ok(());
    }
    let find = match p.ctx.text("mode", "linear")? {
        "linear" => {
            "    const long first = START;
    if (STEPS > 0 && (first < 0 || first > EXTENT - STEPS)) return 1;
    const long s = e - first;\n"
        }
        _ => {
            "    const long s0 = ((e - START % EXTENT) % EXTENT + EXTENT) % EXTENT;
    const long s = s0 < STEPS ? s0 + (STEPS - 1 - s0) / EXTENT * EXTENT : STEPS;\n"
        }
    };
    let find = find.replace("START", start);
    p.on_device(&format!(
        "  for (long o = 0; o < OUTER; o++)
  for (long e = 0; e < EXTENT; e++)
  for (long k = 0; k < INNER; k++) {{
{find}    const long at = (o * EXTENT + e) * INNER + k;
    y0[at] = s >= 0 && s < STEPS ? x1[(o * STEPS + s) * INNER + k] : x0[at];
  }}
"
    ));
    Ok(())
}
