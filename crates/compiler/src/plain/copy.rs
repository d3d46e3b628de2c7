//! Plain kernels (untuned C for one ONNX operator) of operators that only move elements to places
//! known before the run: `Transpose`, `Slice`, `Concat`, `Pad`, `Tile`, `Expand`, `Split` and
//! others. Input: a call at constant shapes; output: C loops over strides (`broadcast.rs`).
//! `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::broadcast::Nest;
use super::elementwise::only;
use super::program::{Program, loops, offset, product, strides};
use squall_core::graph::infer::{self, axes_of, slices, split_sizes, transpose_order};
use std::fmt::Write as _;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("CenterCropPad", center),
    ("Concat", concat),
    ("DepthToSpace", blocks),
    ("Expand", expand),
    ("Pad", pad),
    ("ReverseSequence", reverse),
    ("Slice", slice),
    ("SpaceToDepth", blocks),
    ("Split", split),
    ("Tile", tile),
    ("Transpose", transpose),
    ("Trilu", trilu),
];

/// Copies a strided view of the first operand: `steps` are the operand's strides along the result's
/// axes, `from` its first element, `to` the number of the result.
fn view(p: &mut Program, shape: &[i64], steps: &[i64], from: i64, to: usize) {
    let text = Nest::new(shape, &[steps.to_vec()]).text(&format!(
        "    y{to}[@OUT] = x0[{}@IN0];",
        match from {
            0 => String::new(),
            n => format!("{n}L + "),
        }
    ));
    if product(shape) > 0 {
        p.body(&text);
    }
}

fn transpose(p: &mut Program) -> Result<(), String> {
    only(p, &["perm"])?;
    let own = strides(p.shape(0)?);
    let steps: Vec<i64> = transpose_order(&p.ctx)?.iter().map(|a| own[*a]).collect();
    let shape = p.out()?;
    view(p, shape, &steps, 0, 0);
    Ok(())
}

fn slice(p: &mut Program) -> Result<(), String> {
    only(p, &["axes", "starts", "ends"])?;
    let (own, cuts) = (strides(p.shape(0)?), slices(&p.ctx)?);
    let steps: Vec<i64> = own.iter().zip(&cuts).map(|(s, c)| s.saturating_mul(c.step)).collect();
    let from = own.iter().zip(&cuts).filter(|(_, c)| c.count > 0).map(|(s, c)| s * c.start).sum();
    let shape = p.out()?;
    // A step that is never made may be too long for C's numbers.
    let steps: Vec<i64> =
        steps.iter().zip(shape).map(|(s, e)| if *e == 1 { 0 } else { *s }).collect();
    view(p, shape, &steps, from, 0);
    Ok(())
}

fn split(p: &mut Program) -> Result<(), String> {
    only(p, &["axis", "split", "num_outputs"])?;
    let (own, (axis, sizes)) = (strides(p.shape(0)?), split_sizes(&p.ctx)?);
    let mut from = 0;
    for (i, size) in sizes.iter().enumerate() {
        if let Some((_, shape)) = p.result(i) {
            view(p, shape, &own, from * own[axis], i);
        }
        from += size;
    }
    Ok(())
}

fn expand(p: &mut Program) -> Result<(), String> {
    only(p, &[])?;
    let shape = p.out()?;
    let steps = super::broadcast::broadcast_strides(p.shape(0)?, shape);
    view(p, shape, &steps, 0, 0);
    Ok(())
}

fn tile(p: &mut Program) -> Result<(), String> {
    only(p, &[])?;
    let (x, out) = (p.shape(0)?, p.out()?);
    // Each axis becomes two: the repeats, which do not move, and the extent.
    let mut shape = Vec::new();
    let mut steps = Vec::new();
    for ((d, o), s) in x.iter().zip(out).zip(strides(x)) {
        shape.extend([if *d == 0 { 0 } else { o / d }, *d]);
        steps.extend([0, s]);
    }
    view(p, &shape, &steps, 0, 0);
    Ok(())
}

fn concat(p: &mut Program) -> Result<(), String> {
    only(p, &["axis"])?;
    let out = p.out()?;
    let axis = p.ctx.axis(p.ctx.int_or("axis", 1)?, out.len())?;
    let (outer, inner) = (product(&out[..axis]), product(&out[axis + 1..]));
    let mut at = 0;
    for i in 0..p.ctx.inputs.len() {
        let part = p.shape(i)?[axis] * inner;
        let text = format!(
            "  for (long o = 0; o < {outer}L; o++) memcpy(y0 + (o * {}L + {at}L), x{i} + o * \
            {part}L, \
             {part} * sizeof(Y0));\n",
            out[axis] * inner
        );
        if part > 0 && outer > 0 {
            p.body(&text);
        }
        at += part;
    }
    Ok(())
}

fn blocks(p: &mut Program) -> Result<(), String> {
    only(p, &["blocksize", "mode"])?;
    let b = p.ctx.int("blocksize")?.ok_or("attribute `blocksize` is missing")?;
    let [n, c, h, w] = <[i64; 4]>::try_from(p.shape(0)?).map_err(|_| "it is no image")?;
    let column_row = p.ctx.text("mode", "DCR")? == "CRD";
    let own = |extents: &[i64; 6], order: [usize; 6]| {
        let s = strides(extents);
        (order.map(|a| extents[a]), order.map(|a| s[a]))
    };
    let (shape, steps) = match (p.ctx.node.op == "DepthToSpace", column_row) {
        (true, false) => own(&[n, b, b, c / (b * b), h, w], [0, 3, 4, 1, 5, 2]),
        (true, true) => own(&[n, c / (b * b), b, b, h, w], [0, 1, 4, 2, 5, 3]),
        (false, false) => own(&[n, c, h / b, b, w / b, b], [0, 3, 5, 1, 2, 4]),
        (false, true) => own(&[n, c, h / b, b, w / b, b], [0, 1, 3, 5, 2, 4]),
    };
    view(p, &shape, &steps, 0, 0);
    Ok(())
}

/// Elements whose places along all axes are inside; others are a fill.
fn placed(p: &mut Program, places: &[String], fill: &str) -> Result<(), String> {
    let (x, out) = (p.shape(0)?, p.out()?);
    let mut inner = String::new();
    let mut tests = Vec::new();
    for (i, place) in places.iter().enumerate() {
        let _ = writeln!(inner, "    const long p{i} = {place};");
        tests.push(format!("p{i} >= 0 && p{i} < {}L", x[i]));
    }
    let test = if tests.is_empty() { "1".into() } else { tests.join(" && ") };
    let _ = write!(
        inner,
        "    y0[{}] = {test} ? x0[{}] : {fill};",
        offset("i", &strides(out)),
        offset("p", &strides(x))
    );
    let text = loops("i", out, &inner);
    p.body(&text);
    Ok(())
}

fn pad(p: &mut Program) -> Result<(), String> {
    only(p, &["mode", "pads", "paddings", "value"])?;
    let amounts = infer::pad_amounts(&p.ctx)?;
    let x = p.shape(0)?;
    let mode = p.ctx.text("mode", "constant")?;
    let mut places = Vec::new();
    for (i, (before, _)) in amounts.iter().enumerate() {
        let e = x[i];
        let at = format!("i{i} - ({before}L)");
        if e == 0 && mode != "constant" {
            return Err("it pads an axis without elements".into());
        }
        places.push(match mode {
            "constant" => at,
            "edge" => format!("{at} < 0 ? 0 : {at} >= {e}L ? {e}L - 1 : {at}"),
            "wrap" => format!("(({at}) % {e}L + {e}L) % {e}L"),
            "reflect" => {
                p.table("mirror", MIRROR.into());
                format!("mirror({at}, {e}L)")
            }
            other => {
                let other = squall_core::text::shown(other);
                return Err(format!("attribute `mode` `{other}` is not supported"));
            }
        });
    }
    let fill = match (p.ctx.opset >= 11, p.has(2)) {
        (true, true) => "*x2".to_string(),
        (true, false) => "0".into(),
        _ => format!("(Y0){}", super::program::number(f64::from(p.ctx.float_or("value", 0.0)?))),
    };
    placed(p, &places, &fill)
}

const MIRROR: &str = "static inline long mirror(long at, long extent) {
  if (extent == 1) return 0;
  long period = 2 * (extent - 1);
  at = (at % period + period) % period;
  return at < extent ? at : period - at;
}
";

fn center(p: &mut Program) -> Result<(), String> {
    only(p, &["axes"])?;
    let (x, out) = (p.shape(0)?, p.out()?);
    let axes = match p.ctx.ints("axes")? {
        Some(a) => axes_of(a, x.len())?,
        None => (0..x.len()).collect(),
    };
    let shift = |a: usize| match axes.contains(&a) {
        true if out[a] < x[a] => (x[a] - out[a]) / 2,
        true => -((out[a] - x[a]) / 2),
        false => 0,
    };
    let places: Vec<String> = (0..x.len()).map(|a| format!("i{a} + ({}L)", shift(a))).collect();
    placed(p, &places, "0")
}

fn reverse(p: &mut Program) -> Result<(), String> {
    only(p, &["batch_axis", "time_axis"])?;
    let (batch, time) = (p.ctx.int_or("batch_axis", 1)?, p.ctx.int_or("time_axis", 0)?);
    let x = p.shape(0)?;
    let own = strides(x);
    let mut moved = own.clone();
    moved[time as usize] = 0;
    p.body(&format!(
        "  for (long i = 0; i < N1; i++) {{\n    if (x1[i] < 0 || x1[i] > {}L) return 1;\n  }}\n",
        x[time as usize]
    ));
    let inner = format!(
        "    const long length = (long)x1[i{batch}], t = i{time} < length ? length - 1 - i{time} : \
         i{time};\n    y0[{}] = x0[{} + t * {}L];",
        offset("i", &own),
        offset("i", &moved),
        own[time as usize]
    );
    let text = loops("i", x, &inner);
    p.body(&text);
    Ok(())
}

fn trilu(p: &mut Program) -> Result<(), String> {
    only(p, &["upper"])?;
    let x = p.shape(0)?;
    let [.., rows, columns] = *x else { return Err("its input is no matrix".into()) };
    p.int("BATCH", product(&x[..x.len() - 2]));
    p.int("ROWS", rows);
    p.int("COLUMNS", columns);
    let sign = if p.ctx.int_or("upper", 1)? != 0 { ">=" } else { "<=" };
    let k = if p.has(1) { "(long)*x1" } else { "0" };
    p.body(&format!(
        "  const long k = {k};
  for (long b = 0; b < BATCH; b++)
  for (long r = 0; r < ROWS; r++)
  for (long c = 0; c < COLUMNS; c++) {{
    const long at = (b * ROWS + r) * COLUMNS + c;
    y0[at] = c - r {sign} k ? x0[at] : 0;
  }}
"
    ));
    Ok(())
}
