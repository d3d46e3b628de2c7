//! Plain kernels (untuned C for one ONNX operator) of reductions along axes (`ReduceSum`,
//! `ReduceMax`, ..), and of `ArgMax` and `ArgMin`. Input: a call at constant shapes; output: C
//! loops, written from a form per operator: initial value, step, join of two partial results, end.
//! `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::device::MANY_LINES;
use super::elementwise::only;
use super::program::{Program, limits, long, loops, offset, product, strides};
use squall_core::DType;
use squall_core::graph::infer;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("ArgMax", arg),
    ("ArgMin", arg),
    ("ReduceL1", reduce),
    ("ReduceL2", reduce),
    ("ReduceLogSum", reduce),
    ("ReduceLogSumExp", log_sum_exp),
    ("ReduceMax", reduce),
    ("ReduceMean", reduce),
    ("ReduceMin", reduce),
    ("ReduceProd", reduce),
    ("ReduceSum", reduce),
    ("ReduceSumSquare", reduce),
];

/// The C texts of a reduction into `s`: its initial value, the step with an element `x`, the join
/// of two partial results `s` and `t`, and the result.
struct Form {
    start: String,
    step: &'static str,
    join: &'static str,
    end: &'static str,
}

/// The form of a program's reduction in a type.
fn form(p: &Program, d: DType) -> Result<Form, String> {
    let real = matches!(d, DType::F32 | DType::F64);
    let ends = |low: bool| match (limits(d), low) {
        (None, true) => "-(S)INFINITY".to_string(),
        (None, false) => "(S)INFINITY".to_string(),
        (Some((l, _)), true) => l.into(),
        (Some((_, h)), false) => h.into(),
    };
    let f = |start: &str, step, join, end| Form { start: start.into(), step, join, end };
    let larger = if real { "s = x > s || x != x ? x : s" } else { "s = x > s ? x : s" };
    let smaller = if real { "s = x < s || x != x ? x : s" } else { "s = x < s ? x : s" };
    let size = if real { "s += x < 0 ? -x : x" } else { "s += x < 0 ? -(S)x : (S)x" };
    let form = match p.ctx.node.op.as_str() {
        "ReduceSum" => f("0", "s += (S)x", "s += t", "s"),
        "ReduceMean" => f("0", "s += (S)x", "s += t", "s / (S)COUNT"),
        "ReduceProd" => f("1", "s *= (S)x", "s *= t", "s"),
        "ReduceSumSquare" => f("0", "s += (S)x * (S)x", "s += t", "s"),
        "ReduceL2" if real => f("0", "s += (S)x * (S)x", "s += t", "F(sqrt)(s)"),
        "ReduceL2" => f("0", "s += (S)x * (S)x", "s += t", "sqrt((double)s)"),
        "ReduceLogSum" if real => f("0", "s += (S)x", "s += t", "F(log)(s)"),
        "ReduceL1" if super::program::is_unsigned(d) => f("0", "s += (S)x", "s += t", "s"),
        "ReduceL1" => f("0", size, "s += t", "s"),
        "ReduceMax" if real => f(&ends(true), larger, "s = t > s || t != t ? t : s", "s"),
        "ReduceMin" if real => f(&ends(false), smaller, "s = t < s || t != t ? t : s", "s"),
        "ReduceMax" => f(&ends(true), larger, "s = t > s ? t : s", "s"),
        "ReduceMin" => f(&ends(false), smaller, "s = t < s ? t : s", "s"),
        _ => return Err(format!("elements of type {} are not supported", d.name())),
    };
    if d == DType::Bool && !p.ctx.node.op.ends_with("Max") && !p.ctx.node.op.ends_with("Min") {
        return Err("elements of type bool are not supported".into());
    }
    Ok(form)
}

/// Axes of a reduction, joined where neighbours are kept or reduced alike: extents, strides, and
/// whether each is reduced.
fn grouped(shape: &[i64], axes: &[usize]) -> Vec<(i64, i64, bool)> {
    let own = strides(shape);
    let mut groups: Vec<(i64, i64, bool)> = Vec::new();
    for (i, &e) in shape.iter().enumerate().filter(|(_, e)| **e != 1) {
        let reduced = axes.contains(&i);
        match groups.last_mut() {
            Some((extent, stride, r)) if *r == reduced => {
                *extent *= e;
                *stride = own[i];
            }
            _ => groups.push((e, own[i], reduced)),
        }
    }
    groups
}

fn reduce(p: &mut Program) -> Result<(), String> {
    only(p, &["axes", "keepdims", "noop_with_empty_axes"])?;
    let d = p.dtype(0)?;
    let axes = infer::reduced_axes(&p.ctx)?;
    let shape = p.shape(0)?;
    let f = form(p, d)?;
    match d {
        DType::F32 | DType::F64 => {
            p.real0()?;
            p.table("S", "typedef R S;\n".into());
        }
        // Integers are summed in an unsigned type, where they wrap around.
        _ if f.join != "s += t" && f.join != "s *= t" => {
            p.table("S", "typedef T0 S;\n".into());
        }
        _ => p.table("S", "typedef long long S;\n".into()),
    }
    let count = product(&axes.iter().map(|a| shape[*a]).collect::<Vec<_>>());
    p.int("COUNT", count);
    if axes.is_empty() && p.ctx.int_or("noop_with_empty_axes", 0)? != 0 {
        let noop = !matches!(p.ctx.node.op.as_str(), "ReduceL2" | "ReduceSumSquare" | "ReduceL1");
        if noop && !p.ctx.node.op.contains("Log") {
            p.body("  memcpy(y0, x0, (size_t)M0 * sizeof(T0));\n");
            return Ok(());
        }
    }
    if product(shape) == 0 {
        let Form { start, end, .. } = f;
        p.body(&format!(
            "  for (long i = 0; i < M0; i++) {{ S s = {start}; y0[i] = (Y0)({end}); }}\n"
        ));
        return Ok(());
    }
    let groups = grouped(shape, &axes);
    let pick = |r: bool| -> Vec<(i64, i64)> {
        groups.iter().filter(|g| g.2 == r).map(|g| (g.0, g.1)).collect()
    };
    match groups.last().is_some_and(|g| g.2) {
        true => along_rows(p, &f, &pick(false), &pick(true)),
        false => across_rows(p, &f, &pick(false), &pick(true)),
    }
    Ok(())
}

/// The extents of axes.
fn extents(axes: &[(i64, i64)]) -> Vec<i64> {
    axes.iter().map(|g| g.0).collect()
}

/// The strides of axes.
fn steps(axes: &[(i64, i64)]) -> Vec<i64> {
    axes.iter().map(|g| g.1).collect()
}

/// Reduces the innermost axis, and others with it: sixteen sums at a time, of which compilers make
/// vectors.
fn along_rows(p: &mut Program, f: &Form, kept: &[(i64, i64)], reduced: &[(i64, i64)]) {
    let Form { start, step, join, end } = f;
    let Some(((row, _), outer)) = reduced.split_last() else { return };
    let to = offset("k", &strides(&extents(kept)));
    let part = format!(
        "    const T0 *v = x0 + ({} + {});\n    long j = 0;\n    for (; j + 16 <= {row}; j += 16) \
         {{\n      for (int l = 0; l < 16; l++) {{ T0 x = v[j + l]; S s = part[l]; {step}; \
         part[l] = s; }}\n    }}\n    for (; j < {row}; j++) {{ T0 x = v[j]; S s = part[0]; \
         {step}; part[0] = s; }}",
        offset("k", &steps(kept)),
        offset("r", &steps(outer))
    );
    let inner = format!(
        "    S part[16];\n    for (int l = 0; l < 16; l++) part[l] = {start};\n{}    S s = \
         part[0];\n    for (int l = 1; l < 16; l++) {{ S t = part[l]; {join}; }}\n    y0[{to}] = \
         (Y0)({end});",
        loops("r", &extents(outer), &part)
    );
    p.body(&loops("k", &extents(kept), &inner));
}

/// Reduces other axes than the innermost, which stays: whole rows are added up.
fn across_rows(p: &mut Program, f: &Form, kept: &[(i64, i64)], reduced: &[(i64, i64)]) {
    let Form { start, step, end, .. } = f;
    let row = kept.last().map_or(1, |g| g.0);
    let outer = &kept[..kept.len().saturating_sub(1)];
    let to = offset("k", &strides(&extents(kept))[..outer.len()]);
    let from = format!("{} + {}", offset("k", &steps(outer)), offset("r", &steps(reduced)));
    p.scratch_pointer("S", "sums", row, 8);
    let part = format!(
        "    const T0 *v = x0 + ({from});\n    for (long j = 0; j < {row}; j++) {{ T0 x = \
         v[j]; S s = sums[j]; {step}; sums[j] = s; }}"
    );
    let inner = format!(
        "    for (long j = 0; j < {row}; j++) sums[j] = {start};\n{}    for (long j = 0; j < \
         {row}; j++) {{ S s = sums[j]; y0[{to} + j] = (Y0)({end}); }}",
        loops("r", &extents(reduced), &part)
    );
    p.body(&loops("k", &extents(outer), &inner));
}

/// The largest element is taken out first, so that no exponential overflows.
fn log_sum_exp(p: &mut Program) -> Result<(), String> {
    only(p, &["axes", "keepdims", "noop_with_empty_axes"])?;
    p.real0()?;
    let (axes, shape) = (infer::reduced_axes(&p.ctx)?, p.shape(0)?);
    if product(shape) == 0 {
        p.body("  for (long i = 0; i < M0; i++) y0[i] = (Y0)-INFINITY;\n");
        return Ok(());
    }
    let groups = grouped(shape, &axes);
    let pick = |r: bool, f: fn(&(i64, i64, bool)) -> i64| -> Vec<i64> {
        groups.iter().filter(|g| g.2 == r).map(f).collect()
    };
    let (kept, reduced) = (pick(false, |g| g.0), pick(true, |g| g.0));
    let from =
        format!("{} + {}", offset("k", &pick(false, |g| g.1)), offset("r", &pick(true, |g| g.1)));
    let inner = format!(
        "    R most = -C(INFINITY), s = 0;\n{}    if (!(most > -C(INFINITY) && most < \
        C(INFINITY))) \
         most = 0;\n{}    y0[{}] = most + F(log)(s);",
        loops("r", &reduced, &format!("    R x = x0[{from}]; if (x > most) most = x;")),
        loops("r", &reduced, &format!("    s += EXP(x0[{from}] - most);")),
        offset("k", &strides(&kept)),
    );
    let text = loops("k", &kept, &inner);
    p.body(&text);
    Ok(())
}

/// An axis of a shape as outer, its own and inner extents.
pub(super) fn split_at(p: &mut Program, shape: &[i64], axis: usize) {
    p.int("OUTER", product(&shape[..axis]));
    p.int("EXTENT", shape[axis]);
    p.int("INNER", product(&shape[axis + 1..]));
}

/// The places of the best elements, a result at a time.
const ARG_ONE_BY_ONE: &str = "  for (long o = 0; o < OUTER; o++)
  for (long i = 0; i < INNER; i++) {
    const T0 *v = x0 + o * EXTENT * INNER + i;
    T0 best = v[0];
    long at = 0;
    for (long k = 1; k < EXTENT; k++) {
      const T0 a = v[k * INNER];
      if (BETTER(a, best)) best = a, at = k;
    }
    y0[o * INNER + i] = at;
  }
";

/// The same across rows: of some neighbours at a time, each has its best element and its place.
const ARG_ACROSS_ROWS: &str = "  for (long o = 0; o < OUTER; o++)
  for (long first = 0; first < INNER; first += 128) {
    const long count = INNER - first < 128 ? INNER - first : 128;
    const T0 *v = x0 + o * EXTENT * INNER + first;
    T0 bests[128];
    int places[128];
    for (long i = 0; i < count; i++) bests[i] = v[i], places[i] = 0;
    for (long k = 1; k < EXTENT; k++) {
      const T0 *row = v + k * INNER;
      for (long i = 0; i < count; i++) {
        const T0 a = row[i], best = bests[i];
        const int is = BETTER(a, best);
        bests[i] = is ? a : best, places[i] = is ? (int)k : places[i];
      }
    }
    for (long i = 0; i < count; i++) y0[o * INNER + first + i] = places[i];
  }
";

/// The same of rows in 32 parts, each 32nd element in one; then the best of the parts' counts.
const ARG_OF_ROWS: &str = "  for (long o = 0; o < OUTER; o++) {
    const T0 *v = x0 + o * EXTENT;
    T0 bests[32];
    int places[32];
    long k = 0;
    for (int l = 0; l < 32; l++) bests[l] = v[0], places[l] = 0;
    for (; k + 32 <= EXTENT; k += 32)
      for (int l = 0; l < 32; l++) {
        const T0 a = v[k + l], best = bests[l];
        const int is = BETTER(a, best);
        bests[l] = is ? a : best, places[l] = is ? (int)k + l : places[l];
      }
    for (; k < EXTENT; k++) {
      const T0 a = v[k], best = bests[0];
      if (BETTER(a, best)) bests[0] = a, places[0] = (int)k;
    }
    T0 best = bests[0];
    long at = places[0];
    for (int l = 1; l < 32; l++) {
      const T0 a = bests[l];
        const int same = !AHEAD(a, best) && !AHEAD(best, a);
      if (AHEAD(a, best) || (same && EARLIER(places[l], at))) best = a, at = places[l];
    }
    y0[o] = at;
  }
";

fn arg(p: &mut Program) -> Result<(), String> {
    only(p, &["axis", "keepdims", "select_last_index"])?;
    let shape = p.shape(0)?;
    let axis = p.ctx.axis(p.ctx.int_or("axis", 0)?, shape.len())?;
    if shape[axis] == 0 {
        return Err("its axis has no elements".into());
    }
    split_at(p, shape, axis);
    let last = if p.ctx.int_or("select_last_index", 0)? != 0 { "=" } else { "" };
    let sign = if p.ctx.node.op == "ArgMax" { '>' } else { '<' };
    // As in NumPy, a NaN is both the largest and the smallest element.
    let none = match (last, matches!(p.dtype(0)?, DType::F32 | DType::F64)) {
        (_, false) => "",
        ("", true) => " || ((a) != (a) && (best) == (best))",
        (_, true) => " || (a) != (a)",
    };
    let only = if none.is_empty() { "" } else { " || ((a) != (a) && (best) == (best))" };
    // `BETTER` says whether an element takes the place of the best one before it, and `AHEAD`
    // whether one is better wherever it lies.
    p.define("BETTER(a, best)", format!("((a) {sign}{last} (best){none})"));
    p.define("AHEAD(a, best)", format!("((a) {sign} (best){only})"));
    p.define("EARLIER(a, b)", if last.is_empty() { "((a) < (b))" } else { "((a) > (b))" });
    arg_on_device(p, shape[axis])?;
    p.body(match product(&shape[axis + 1..]) {
        // Places in vectors are whole numbers of 32 bits.
        _ if shape[axis] > i64::from(i32::MAX) => ARG_ONE_BY_ONE,
        1 => ARG_OF_ROWS,
        _ => ARG_ACROSS_ROWS,
    });
    Ok(())
}

/// The number of neighbouring elements among which a GPU's thread finds the best.
const ARG_PART: i64 = 64;

/// On a GPU a thread finds a whole result. Where lines are few and long, it finds the best of
/// `ARG_PART` neighbours instead; the next loop finds the best among these, and so on until each
/// line has one. Elements are compared in their own order, so that the choice among equal elements
/// is that of a CPU.
fn arg_on_device(p: &mut Program, extent: i64) -> Result<(), String> {
    let lines = p.out()?.iter().product::<i64>();
    let places = extent <= i64::from(i32::MAX);
    if lines == 0 || lines >= MANY_LINES || extent <= 4 * ARG_PART || !places {
        p.on_device(ARG_ONE_BY_ONE);
        return Ok(());
    }
    let bytes = p.dtype(0)?.bytes();
    let mut text = String::new();
    let mut counts = vec![extent];
    while let Some(&last) = counts.last().filter(|c| **c > 1) {
        counts.push((last + ARG_PART - 1) / ARG_PART);
    }
    for side in 0..2 {
        // The last loop writes results.
        if let Some(room) = counts[1..counts.len() - 1].get(side) {
            text += &p.device_pointer("T0", &format!("bests{side}"), lines * room, bytes);
            text += &p.device_pointer("int", &format!("places{side}"), lines * room, 4);
        }
    }
    for (level, pair) in counts.windows(2).enumerate() {
        let [from, to] = [pair[0], pair[1]].map(long);
        let (was, now) = ((level + 1) % 2, level % 2);
        let element = |k: &str| match level {
            0 => format!("x0[(o * EXTENT + {k}) * INNER + i]"),
            _ => format!("bests{was}[(o * {from} + {k}) * INNER + i]"),
        };
        let place = match level {
            0 => "at".to_string(),
            _ => format!("places{was}[(o * {from} + at) * INNER + i]"),
        };
        let store = match level + 2 == counts.len() {
            true => format!("y0[o * INNER + i] = {place};"),
            false => format!(
                "const long put = (o * {to} + c) * INNER + i;
    bests{now}[put] = best, places{now}[put] = (int){place};"
            ),
        };
        text += &format!(
            "  for (long o = 0; o < OUTER; o++)
  for (long c = 0; c < {to}; c++)
  for (long i = 0; i < INNER; i++) {{
    const long end = c * {ARG_PART} + {ARG_PART} < {from} ? c * {ARG_PART} + {ARG_PART} : {from};
    long at = c * {ARG_PART};
    T0 best = {};
    for (long k = at + 1; k < end; k++) {{
      const T0 a = {};
      if (BETTER(a, best)) best = a, at = k;
    }}
    {store}
  }}
",
            element("at"),
            element("k")
        );
    }
    p.on_device(&text);
    Ok(())
}
