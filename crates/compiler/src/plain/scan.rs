//! Plain kernels (untuned C for one ONNX operator) of scans along an axis: running sums and
//! products (`CumSum`, `CumProd`). Input: a call at constant shapes; output: C loops. On a GPU a
//! thread has a line of elements, a warp has one where it is contiguous, or threads have chunks of
//! lines that are few and long. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::device::MANY_LINES;
use super::elementwise::only;
use super::program::{DeviceLaunch, Launched, OF_WARP, Program, long, product};
use super::reduce::split_at;
use squall_core::DType;
use std::fmt::Write as _;

pub(super) const OPS: &[(&str, Generator)] = &[("CumProd", scan), ("CumSum", scan)];

/// Lines of at most this number of elements are never cut into chunks.
const SHORT: i64 = 64;
/// Lines of more elements than these have groups of chunks.
const LONG: i64 = 256;

/// The most elements of a contiguous line that a warp scans, and the least number of such lines: of
/// fewer ones too few threads would be at work.
const OF_WARPS: [i64; 2] = [8192, 64];

/// The operation of a scan, and its order.
struct Form {
    /// The value ahead of the first element, and the operation.
    start: &'static str,
    operation: &'static str,
    /// Whether an element's result leaves the element itself out.
    is_exclusive: bool,
    /// Whether the last element comes first.
    is_reverse: bool,
}

impl Form {
    /// Where the element lies that comes as the `k`-th of line `o`, but for the inner axes; the
    /// names are those of the extents along the axis and behind it.
    fn place(&self, k: &str, [extent, inner]: [&str; 2]) -> String {
        match self.is_reverse {
            true => format!("(o * {extent} + {extent} - 1 - ({k})) * {inner}"),
            false => format!("(o * {extent} + {k}) * {inner}"),
        }
    }

    /// Loops over the lines, each from its start to its end; the names are those of the extents
    /// ahead of the axis, along it and behind it.
    fn line_by_line(&self, [outer, extent, inner]: [&str; 3]) -> String {
        let step = format!("s {}= (S)*x;", self.operation);
        let (store, now) = ("*y = (Y0)s;", self.place("k", [extent, inner]));
        let (first, second) =
            if self.is_exclusive { (store, step.as_str()) } else { (step.as_str(), store) };
        format!(
            "  for (long o = 0; o < {outer}; o++)
  for (long i = 0; i < {inner}; i++) {{
    S s = {};
    for (long k = 0; k < {extent}; k++) {{
      const T0 *x = x0 + {now} + i;
      Y0 *y = y0 + {now} + i;
      {first} {second}
    }}
  }}
",
            self.start
        )
    }
}

/// The axis may be known only at run time: the extents around it are computed from it.
fn scan(p: &mut Program) -> Result<(), String> {
    only(p, &["exclusive", "reverse"])?;
    let d = p.dtype(0)?;
    let shape = p.shape(0)?;
    if shape.is_empty() {
        return Err("its operand is a scalar".into());
    }
    p.int("RANK", shape.len() as i64);
    p.ints("SHAPE", shape);
    let is_sum = p.ctx.node.op == "CumSum";
    let (start, operation) = if is_sum { ("0", "+") } else { ("1", "*") };
    let form = Form {
        start,
        operation,
        is_exclusive: p.ctx.int_or("exclusive", 0)? != 0,
        is_reverse: p.ctx.int_or("reverse", 0)? != 0,
    };
    // Integers wrap around in an unsigned type.
    let ty = if matches!(d, DType::F32 | DType::F64) { "T0" } else { "unsigned long long" };
    p.define("S", ty);
    on_device(p, &form, shape)?;
    let one_by_one = form.line_by_line(["outer", "extent", "inner"]);
    // Rows that lie behind one another are added up as a whole.
    let names = ["extent", "inner"];
    let (now, before) = (form.place("k", names), form.place("k - 1", names));
    let (begin, term) = match form.is_exclusive {
        true => (start, before.as_str()),
        false => ("x[i]", now.as_str()),
    };
    p.body(&format!(
        "  long axis = (long)*x1, outer = 1, inner = 1;
  if (axis < 0) axis += RANK;
  if (axis < 0 || axis >= RANK) return 1;
  for (long a = 0; a < axis; a++) outer *= SHAPE[a];
  for (long a = axis + 1; a < RANK; a++) inner *= SHAPE[a];
  const long extent = SHAPE[axis];
  if (inner == 1) {{
{one_by_one}    return 0;
  }}
  for (long o = 0; o < outer; o++)
  for (long k = 0; k < extent; k++) {{
    Y0 *y = y0 + {now};
    const T0 *x = x0 + (k ? {term} : {now});
    if (k) {{
      const Y0 *last = y0 + {before};
      for (long i = 0; i < inner; i++) y[i] = (Y0)((S)last[i] {operation} (S)x[i]);
    }} else {{
      (void)x;
      for (long i = 0; i < inner; i++) y[i] = (Y0){begin};
    }}
  }}
"
    ));
    Ok(())
}

/// The body for a GPU.
fn on_device(p: &mut Program, form: &Form, shape: &[i64]) -> Result<(), String> {
    let known = p.ctx.integers(1, "axis").ok().flatten();
    let known = known.and_then(|a| p.ctx.axis(*a.first()?, shape.len()).ok());
    let Some(axis) = known else {
        let text = at_run_time(shape) + &form.line_by_line(["outer", "extent", "inner"]);
        p.on_device(&text);
        return Ok(());
    };
    split_at(p, shape, axis);
    let lines = product(&shape[..axis]) * product(&shape[axis + 1..]);
    // The product of a chunk may overflow although no running product of its line does; so may the
    // sum of a chunk, unless it is summed in wider floats, as 32-bit floats are.
    let is_exact = match p.dtype(0)? {
        DType::F64 => false,
        DType::F32 => form.operation == "+",
        _ => true,
    };
    let is_cut = shape[axis] > SHORT && lines > 0 && lines < MANY_LINES && is_exact;
    let [longest, fewest] = OF_WARPS;
    if is_cut && axis + 1 == shape.len() && shape[axis] <= longest && lines >= fewest {
        let functions = vec![by_warps(p, form)?];
        let launches = vec![DeviceLaunch { function: 0, width: 32 * lines as u64, step: 0 }];
        p.launched_on_device(Launched { functions, launches });
        return Ok(());
    }
    let text = match is_cut {
        true => by_chunks(p, form, shape[axis], lines)?,
        false => form.line_by_line(["OUTER", "EXTENT", "INNER"]),
    };
    p.on_device(&text);
    Ok(())
}

/// A function in which each warp scans contiguous lines, 128 elements at a time, four a thread.
fn by_warps(p: &mut Program, form: &Form) -> Result<String, String> {
    wide(p)?;
    let of_lane = "static inline W of_lane(W x, int lane) {
  union { W x; unsigned part[2]; } u;
  u.x = x;
  u.part[0] = __shfl_sync(0xffffffffu, u.part[0], lane);
  u.part[1] = __shfl_sync(0xffffffffu, u.part[1], lane);
  return u.x;
}
";
    p.table("of_lane", of_lane.into());
    let (start, by, place) = (form.start, form.operation, form.place("k", ["EXTENT", "1"]));
    let (first, second) = ("each[j] = s;", format!("s {by}= x;"));
    let (first, second) =
        if form.is_exclusive { (first, second.as_str()) } else { (second.as_str(), first) };
    Ok(format!(
        "{OF_WARP}  (void)step_;
  for (long o = warp; o < OUTER; o += warps) {{
    W before = {start};
#pragma unroll 4
    for (long from = 4 * lane; from < EXTENT + 4 * lane; from += 128) {{
      W each[4], s = {start};
#pragma unroll
      for (int j = 0; j < 4; j++) {{
        const long k = from + j;
        const W x = k < EXTENT ? (W)x0[{place}] : (W){start};
        {first} {second}
      }}
      W all = s;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {{
        const W other = of_lane(all, lane >= d ? lane - d : lane);
        if (lane >= d) all = other {by} all;
      }}
      const W other = of_lane(all, lane ? lane - 1 : 0), total = of_lane(all, 31);
      const W ahead = lane ? before {by} other : before;
#pragma unroll
      for (int j = 0; j < 4; j++) {{
        const long k = from + j;
        if (k < EXTENT) y0[{place}] = (Y0)(ahead {by} each[j]);
      }}
      before = before {by} total;
    }}
  }}
"
    ))
}

/// Defines the type `W` of totals: those of floats have 64 bits, since their order is not that of a
/// CPU, and they are no less exact.
fn wide(p: &mut Program) -> Result<(), String> {
    let is_float = matches!(p.dtype(0)?, DType::F32 | DType::F64);
    let wide = if is_float { "double" } else { "unsigned long long" };
    p.table("W", format!("typedef {wide} W;\n"));
    Ok(())
}

/// C that finds the axis and the extents around it, for an axis that only the run knows. It has no
/// loop, because each loop of a body for a GPU becomes a launch of its own.
fn at_run_time(shape: &[i64]) -> String {
    let choice = |of: &dyn Fn(usize) -> i64| {
        let mut text = String::new();
        for axis in 0..shape.len() - 1 {
            let _ = write!(text, "axis == {axis} ? {} : ", long(of(axis)));
        }
        text + &long(of(shape.len() - 1))
    };
    format!(
        "  long axis = (long)*x1;
  if (axis < 0) axis += RANK;
  if (axis < 0 || axis >= RANK) return 1;
  const long outer = {};
  const long inner = {};
  const long extent = {};
",
        choice(&|axis| product(&shape[..axis])),
        choice(&|axis| product(&shape[axis + 1..])),
        choice(&|axis| shape[axis])
    )
}

/// A number near the root of an extent, if possible one that divides it.
fn near_root(extent: i64, degree: f64) -> i64 {
    let root = ((extent as f64).powf(1.0 / degree).ceil() as i64).max(1);
    let near = (root / 2).max(1)..=2 * root;
    let divisors = near.filter(|n| extent % n == 0);
    divisors.min_by_key(|n| (n - root).abs()).unwrap_or(root)
}

/// The loops over lines that are cut into chunks: the first loop makes the total of each chunk;
/// where there are many chunks, a second one makes the total of each group of chunks; and the last
/// loop begins each chunk with the totals ahead of it.
fn by_chunks(p: &mut Program, form: &Form, extent: i64, lines: i64) -> Result<String, String> {
    let has_groups = extent > LONG;
    let chunk = near_root(extent, if has_groups { 3.0 } else { 2.0 });
    let chunks = (extent + chunk - 1) / chunk;
    let group = if has_groups { near_root(chunks, 2.0) } else { 1 };
    let groups = (chunks + group - 1) / group;
    for (name, value) in
        [("CHUNK", chunk), ("CHUNKS", chunks), ("GROUP", group), ("GROUPS", groups)]
    {
        p.int(name, value);
    }
    wide(p)?;
    let mut text = p.device_pointer("W", "totals", lines * chunks, 8);
    if has_groups {
        text += &p.device_pointer("W", "sums", lines * groups, 8);
    }
    let (start, by) = (form.start, form.operation);
    // Loops of constant length are unrolled, and their loads do not wait for each other.
    let end = |begin: &str, step: &str, all: &str, divides: bool| match divides {
        true => format!("{begin} + {step}"),
        false => format!("{begin} + {step} < {all} ? {begin} + {step} : {all}"),
    };
    let range = format!(
        "    const long from = c * CHUNK;\n    const long end = {};\n",
        end("from", "CHUNK", "EXTENT", extent % chunk == 0)
    );
    let (over_chunks, place) = (
        "  for (long o = 0; o < OUTER; o++)\n  for (long c = 0; c < CHUNKS; c++)\n  for (long i = \
         0; i < INNER; i++) {\n",
        form.place("k", ["EXTENT", "INNER"]),
    );
    let total = |c: &str| format!("totals[(o * CHUNKS + {c}) * INNER + i]");
    text += &format!(
        "{over_chunks}{range}    W s = {start};
    for (long k = from; k < end; k++) s {by}= (W)x0[{place} + i];
    {} = s;
  }}
",
        total("c")
    );
    let mut ahead = format!("    for (long j = 0; j < c; j++) s {by}= {};\n", total("j"));
    if has_groups {
        text += &format!(
            "  for (long o = 0; o < OUTER; o++)
  for (long g = 0; g < GROUPS; g++)
  for (long i = 0; i < INNER; i++) {{
    const long from = g * GROUP, end = {};
    W s = {start};
    for (long j = from; j < end; j++) s {by}= {};
    sums[(o * GROUPS + g) * INNER + i] = s;
  }}
",
            end("from", "GROUP", "CHUNKS", chunks % group == 0),
            total("j")
        );
        ahead = format!(
            "    const long g = c / GROUP;
    for (long j = 0; j < g; j++) s {by}= sums[(o * GROUPS + j) * INNER + i];
    for (long j = g * GROUP; j < c; j++) s {by}= {};
",
            total("j")
        );
    }
    let (store, step) = (format!("y0[{place} + i] = (Y0)s;"), format!("s {by}= x;"));
    let (first, second) = if form.is_exclusive { (store, step) } else { (step, store) };
    text += &format!(
        "{over_chunks}{range}    W s = {start};
{ahead}    for (long k = from; k < end; k++) {{
      const W x = (W)x0[{place} + i];
      {first} {second}
    }}
  }}
"
    );
    Ok(text)
}
