//! Plain kernels (untuned C for one ONNX operator) of `Resize` and `Upsample`. For each axis and
//! each position of the result, the elements and weights that interpolate it are computed at
//! generation time and printed as tables; the C code sums over them axis by axis. Input: a call at
//! constant shapes; output: C; on a GPU a thread makes an element of the result as a whole.
//! `mod.rs` collects the tables `OPS` of all families of operators.

mod sums;

use super::Generator;
use super::elementwise::only;
use super::program::{Program, loops, offset, product, strides};
use squall_core::DType;
use squall_core::graph::Constant;
use squall_core::graph::infer::{axes_of, resized};
use squall_core::text::shown;
use std::fmt::Write as _;
use sums::AxisSums;

pub(super) const OPS: &[(&str, Generator)] = &[("Resize", resize), ("Upsample", resize)];

/// An axis that is resized: its extent, the result's extent, and their ratio.
struct ResizedAxis {
    extent: i64,
    result: i64,
    scale: f64,
    /// The part of the axis that is resized, as fractions of its length.
    part: (f64, f64),
}

/// The options of resizing that all axes share.
struct Options<'a> {
    transform: &'a str,
    nearest: &'a str,
    cubic: f64,
    antialias: bool,
    exclude: bool,
}

/// The elements and weights that make one element of the result; empty where it lies outside.
type Taps = Vec<(i64, f64)>;

/// The coordinate in the operand of a position of the result.
fn origin(a: &ResizedAxis, o: &Options, place: i64) -> Result<f64, String> {
    let (x, n) = (place as f64, a.extent as f64);
    let width = a.scale * n;
    let half = (x + 0.5) / a.scale - 0.5;
    Ok(match o.transform {
        "align_corners" if width == 1.0 => 0.0,
        "align_corners" => x * (n - 1.0) / (width - 1.0),
        "asymmetric" => x / a.scale,
        "tf_crop_and_resize" => {
            let (from, to) = a.part;
            let own = match width == 1.0 {
                true => (to - from) * (n - 1.0) / 2.0,
                false => x * (to - from) * (n - 1.0) / (width - 1.0),
            };
            own + from * (n - 1.0)
        }
        // ONNX's text and onnxruntime ask the number of elements; the evaluator of the onnx
        // package asks the width, which a scale makes a fraction.
        "pytorch_half_pixel" if a.result <= 1 => 0.0,
        "pytorch_half_pixel" | "half_pixel" => half,
        "half_pixel_symmetric" => n / 2.0 * (1.0 - a.result as f64 / width) + half,
        other => {
            let other = shown(other);
            return Err(format!("attribute `coordinate_transformation_mode` is `{other}`"));
        }
    })
}

/// The one element that is nearest to a place.
fn nearest(a: &ResizedAxis, o: &Options, x: f64) -> Result<i64, String> {
    let at = match o.nearest {
        "round_prefer_floor" => (x - 0.5).ceil(),
        "round_prefer_ceil" => (x + 0.5).floor(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        other => return Err(format!("attribute `nearest_mode` is `{}`", shown(other))),
    };
    Ok((at as i64).clamp(0, a.extent - 1))
}

/// The elements around a place with their weights.
fn around(a: &ResizedAxis, o: &Options, cubic: bool, x: f64) -> Taps {
    let scale = if o.antialias { a.scale.min(1.0) } else { 1.0 };
    let reach = if cubic { 2.0 } else { 1.0 };
    let first = (-reach / scale).floor() as i64 + 1;
    // A place on an element counts as the end of the stretch before it.
    let whole = x == x.floor();
    let (base, ratio) = if whole { (x as i64 - 1, 1.0) } else { (x.floor() as i64, x - x.floor()) };
    let weight = |i: i64| {
        let d = ((i as f64 - ratio) * scale).abs();
        let c = o.cubic;
        match cubic {
            false => (1.0 - d).clamp(0.0, 1.0),
            true if d <= 1.0 => ((c + 2.0) * d - (c + 3.0)) * d * d + 1.0,
            true if d < 2.0 => ((c * d - 5.0 * c) * d + 8.0 * c) * d - 4.0 * c,
            true => 0.0,
        }
    };
    let mut taps: Taps = (first..2 - first).map(|i| (base + i, weight(i))).collect();
    if o.exclude {
        let outside = |i: i64| !(0..a.extent).contains(&i);
        taps.iter_mut().filter(|t| outside(t.0)).for_each(|t| t.1 = 0.0);
    }
    let sum: f64 = taps.iter().map(|t| t.1).sum();
    taps.iter_mut().for_each(|t| *t = (t.0.clamp(0, a.extent - 1), t.1 / sum));
    taps
}

fn axes(p: &Program) -> Result<(Vec<ResizedAxis>, bool), String> {
    let x = p.shape(0)?;
    let (shape, scales) = resized(&p.ctx)?;
    let crops = p.ctx.text("coordinate_transformation_mode", "half_pixel")? == "tf_crop_and_resize";
    let mut part = vec![(0.0, 1.0); x.len()];
    if crops {
        let roi = p.ctx.constant(1, "roi")?.and_then(Constant::as_floats);
        let roi = roi.ok_or("its roi is missing")?;
        let axes = match p.ctx.ints("axes")? {
            Some(a) => axes_of(a, x.len())?,
            None => (0..x.len()).collect(),
        };
        if roi.len() != 2 * axes.len() {
            return Err(format!("its roi has {} elements", roi.len()));
        }
        for (i, &a) in axes.iter().enumerate() {
            part[a] = (roi[i], roi[axes.len() + i]);
        }
    }
    let axis =
        |i: usize| ResizedAxis { extent: x[i], result: shape[i], scale: scales[i], part: part[i] };
    Ok(((0..x.len()).map(axis).collect(), crops))
}

fn resize(p: &mut Program) -> Result<(), String> {
    only(
        p,
        &[
            "antialias",
            "axes",
            "coordinate_transformation_mode",
            "cubic_coeff_a",
            "exclude_outside",
            "extrapolation_value",
            "keep_aspect_ratio_policy",
            "mode",
            "nearest_mode",
            "scales",
            "height_scale",
            "width_scale",
        ],
    )?;
    if product(p.out()?) == 0 {
        return Ok(());
    }
    if product(p.shape(0)?) == 0 {
        return Err("it makes elements of none".into());
    }
    // Before version 11 places are scaled as they are, and cut.
    let old = p.ctx.node.op == "Upsample" || p.ctx.opset < 11;
    let o = Options {
        transform: match old {
            true => "asymmetric",
            false => p.ctx.text("coordinate_transformation_mode", "half_pixel")?,
        },
        nearest: match old {
            true => "floor",
            false => p.ctx.text("nearest_mode", "round_prefer_floor")?,
        },
        cubic: f64::from(p.ctx.float_or("cubic_coeff_a", -0.75)?),
        antialias: p.ctx.int_or("antialias", 0)? != 0,
        exclude: p.ctx.int_or("exclude_outside", 0)? != 0,
    };
    let (axes, crops) = axes(p)?;
    let mode = p.ctx.text("mode", "nearest")?;
    let mut all: Vec<Vec<Taps>> = Vec::new();
    for a in &axes {
        let mut taps = Vec::new();
        for place in 0..a.result {
            if a.extent == a.result && a.scale == 1.0 && !crops {
                taps.push(vec![(place, 1.0)]);
                continue;
            }
            let x = origin(a, &o, place)?;
            let outside = crops && (x < 0.0 || x > a.extent as f64 - 1.0);
            taps.push(match mode {
                _ if outside => Vec::new(),
                "nearest" => vec![(nearest(a, &o, x)?, 1.0)],
                "linear" | "bilinear" => around(a, &o, false, x),
                "cubic" => around(a, &o, true, x),
                other => return Err(format!("attribute `mode` is `{}`", shown(other))),
            });
        }
        all.push(taps);
    }
    let fill = p.ctx.float_or("extrapolation_value", 0.0)?;
    match mode {
        "nearest" => chosen(p, &all, fill),
        _ => weighted(p, &all, fill),
    }
}

/// Each element is one of the operand's, or the fill.
fn chosen(p: &mut Program, all: &[Vec<Taps>], fill: f32) -> Result<(), String> {
    let (x, out) = (p.shape(0)?, p.out()?);
    let (mut inner, mut tests) = (String::new(), Vec::new());
    for (i, taps) in all.iter().enumerate() {
        let same = taps.iter().enumerate().all(|(k, t)| t.first().map(|t| t.0) == Some(k as i64));
        if same {
            let _ = writeln!(inner, "    const long p{i} = i{i};");
            continue;
        }
        let places: Vec<i64> = taps.iter().map(|t| t.first().map_or(-1, |t| t.0)).collect();
        p.ints(&format!("PLACE{i}"), &places);
        let _ = writeln!(inner, "    const long p{i} = PLACE{i}[i{i}];");
        if places.contains(&-1) {
            tests.push(format!("p{i} >= 0"));
        }
    }
    let at = offset("p", &strides(x));
    let _ = match tests.is_empty() {
        true => write!(inner, "    y0[{}] = x0[{at}];", offset("i", &strides(out))),
        false => write!(
            inner,
            "    y0[{}] = {} ? x0[{at}] : (Y0){};",
            offset("i", &strides(out)),
            tests.join(" && "),
            super::program::number(f64::from(fill))
        ),
    };
    let text = loops("i", out, &inner);
    chosen_on_device(p, all, fill)?;
    match by_rows(p, all) {
        Some(rows) if tests.is_empty() => p.body(&rows),
        _ => p.body(&text),
    }
    Ok(())
}

/// Neighbouring axes as one, where all of them stay as they are, or one axis that is resized.
struct Stretch {
    /// The extents in the operand and in the result.
    extent: i64,
    result: i64,
    /// The axis, where it is resized.
    axis: Option<usize>,
}

/// The axes in stretches.
fn stretches(p: &Program, all: &[Vec<Taps>]) -> Result<Vec<Stretch>, String> {
    let (x, out) = (p.shape(0)?, p.out()?);
    let mut list: Vec<Stretch> = Vec::new();
    for (a, taps) in all.iter().enumerate() {
        if !is_same(taps, x[a]) {
            list.push(Stretch { extent: x[a], result: out[a], axis: Some(a) });
            continue;
        }
        match list.last_mut() {
            Some(s) if s.axis.is_none() => {
                s.extent *= x[a];
                s.result *= out[a];
            }
            _ => list.push(Stretch { extent: x[a], result: out[a], axis: None }),
        }
    }
    Ok(list)
}

/// Whether an axis stays as it is: each place of the result takes that of the operand.
fn is_same(taps: &[Taps], extent: i64) -> bool {
    let own = |(k, t): (usize, &Taps)| t.as_slice() == [(k as i64, 1.0)];
    taps.len() as i64 == extent && taps.iter().enumerate().all(own)
}

/// A table of whole numbers: of 32 bits where all of them fit, else of 64.
fn small(p: &mut Program, name: &str, values: &[i64]) {
    if values.iter().any(|v| i32::try_from(*v).is_err()) {
        return p.ints(name, values);
    }
    let list: Vec<String> = values.iter().map(i64::to_string).collect();
    p.table(name, format!("static const int {name}[] = {{{}}};\n", list.join(", ")));
}

/// The body of `chosen` for a GPU. Along an axis that repeats each element a whole number of times
/// a thread divides to find its element's place; along other axes it looks the place up in a table.
fn chosen_on_device(p: &mut Program, all: &[Vec<Taps>], fill: f32) -> Result<(), String> {
    let list = stretches(p, all)?;
    let (mut inner, mut tests) = (String::new(), Vec::new());
    for (i, s) in list.iter().enumerate() {
        let Some(a) = s.axis else {
            let _ = writeln!(inner, "    const long p{i} = i{i};");
            continue;
        };
        let places: Vec<i64> = all[a].iter().map(|t| t.first().map_or(-1, |t| t.0)).collect();
        let times = if s.extent > 0 { s.result / s.extent } else { 0 };
        let repeats = |n: i64| places.iter().enumerate().all(|(k, at)| *at == k as i64 / n);
        if times > 1 && s.result <= i64::from(i32::MAX) && repeats(times) {
            let _ = writeln!(inner, "    const long p{i} = (long)((unsigned)i{i} / {times}u);");
            continue;
        }
        small(p, &format!("NEAREST{a}"), &places);
        let _ = writeln!(inner, "    const long p{i} = NEAREST{a}[i{i}];");
        if places.contains(&-1) {
            tests.push(format!("p{i} >= 0"));
        }
    }
    let [from, to]: [Vec<i64>; 2] =
        [list.iter().map(|s| s.extent).collect(), list.iter().map(|s| s.result).collect()];
    let (at, place) = (offset("p", &strides(&from)), offset("i", &strides(&to)));
    let _ = match tests.is_empty() {
        true => write!(inner, "    y0[{place}] = x0[{at}];"),
        false => write!(
            inner,
            "    y0[{place}] = {} ? x0[{at}] : (Y0){};",
            tests.join(" && "),
            super::program::number(f64::from(fill))
        ),
    };
    p.on_device(&loops("i", &to, &inner));
    Ok(())
}

/// The text that fills the result by rows, each from a row of the operand; a row that is the one
/// before it is copied. Where each element stands for as many, that number is known to compilers.
fn by_rows(p: &mut Program, all: &[Vec<Taps>]) -> Option<String> {
    let (x, out) = (p.shape(0).ok()?, p.out().ok()?);
    let last = out.len().checked_sub(1)?;
    let place = |axis: usize, at: &str| match p.has_table(&format!("PLACE{axis}")) {
        true => format!("PLACE{axis}[{at}]"),
        false => at.to_string(),
    };
    let steps = strides(x);
    let row: Vec<String> =
        (0..last).map(|a| format!("{} * {}L", place(a, &format!("i{a}")), steps[a])).collect();
    let row = if row.is_empty() { "0".to_string() } else { row.join(" + ") };
    let (wide, own) = (out[last], x[last]);
    let taps = |k: usize| all[last][k].first().map(|t| t.0);
    let times = (own > 0 && wide % own == 0).then(|| wide / own);
    let repeats = times.filter(|n| (0..wide as usize).all(|k| taps(k) == Some(k as i64 / n)));
    let fill = match repeats {
        Some(1) => format!("memcpy(y, x, sizeof(Y0) * {wide});"),
        Some(n) => format!(
            "for (long k = 0; k < {own}; k++)\n      for (long j = 0; j < {n}; j++) y[k * {n} + j] \
             = x[k];"
        ),
        None => format!("for (long k = 0; k < {wide}; k++) y[k] = x[{}];", place(last, "k")),
    };
    let again = match last.checked_sub(1) {
        Some(a) if p.has_table(&format!("PLACE{a}")) => format!(
            "    if (i{a} > 0 && PLACE{a}[i{a}] == PLACE{a}[i{a} - 1]) {{\n      memcpy(y, y - \
             {wide}, sizeof(Y0) * {wide});\n      continue;\n    }}\n"
        ),
        _ => String::new(),
    };
    let inner = format!(
        "    const T0 *x = x0 + ({row});\n    Y0 *y = y0 + ({}) * {wide}L;\n{again}    {fill}",
        offset("i", &strides(&out[..last]))
    );
    Some(loops("i", &out[..last], &inner))
}

/// Axis by axis, each place is a weighted sum.
fn weighted(p: &mut Program, all: &[Vec<Taps>], fill: f32) -> Result<(), String> {
    let d = p.dtype(0)?;
    let integer = !matches!(d, DType::F32 | DType::F64);
    if integer && !matches!(d, DType::I8 | DType::U8 | DType::I32) {
        return Err(format!("elements of type {} are not supported", d.name()));
    }
    p.real(if d == DType::F64 { d } else { DType::F32 })?;
    let (mut shape, out) = (p.shape(0)?.to_vec(), p.out()?);
    let moving: Vec<usize> = (0..all.len()).filter(|i| !is_same(&all[*i], shape[*i])).collect();
    // Each step reads the sums that the step before it wrote, in one of two places; the first step
    // reads the operand and the last one writes the result.
    let (mut largest, mut grown) = (1, shape.clone());
    for &a in moving.iter().rev().skip(1).rev() {
        grown[a] = out[a];
        largest = largest.max(product(&grown));
    }
    let rooms = ["first", "second"];
    rooms.iter().take(moving.len().saturating_sub(1)).for_each(|room| {
        p.scratch_pointer("R", room, largest, 8);
    });
    if moving.is_empty() {
        p.body("  for (long i = 0; i < M0; i++) y0[i] = x0[i];\n");
    }
    for (step, &a) in moving.iter().enumerate() {
        let most = most(&all[a]);
        let (mut places, mut weights, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for taps in &all[a] {
            for k in 0..most {
                let (place, weight) = taps.get(k).copied().unwrap_or((0, 0.0));
                places.push(place);
                weights.push(weight);
            }
            rest.push(if taps.is_empty() { f64::from(fill) } else { 0.0 });
        }
        p.ints(&format!("PLACE{a}"), &places);
        p.floats(&format!("WEIGHT{a}"), &weights);
        p.floats(&format!("REST{a}"), &rest);
        let has_rest = all[a].iter().any(Vec::is_empty);
        if has_rest {
            let empty: Vec<i64> = all[a].iter().map(|t| t.is_empty().into()).collect();
            p.ints(&format!("EMPTY{a}"), &empty);
        }
        let from = if step == 0 { ("T0", "x0") } else { ("R", rooms[(step - 1) % 2]) };
        let is_last = step + 1 == moving.len();
        let to = if is_last { ("Y0", "y0") } else { ("R", rooms[step % 2]) };
        let value = if is_last { stored(d, "sum") } else { "sum".into() };
        let sums = AxisSums { axis: a, most, has_rest, from, to, value };
        p.body(&sums.text(&shape, out[a]));
        shape[a] = out[a];
    }
    weighted_on_device(p, all, &moving)
}

/// A sum in the result's type; whole numbers end at the type's limits.
fn stored(d: DType, sum: &str) -> String {
    match super::program::limits(d) {
        Some((low, high)) => {
            format!("(double){sum} <= {low} ? {low} : (double){sum} >= {high} ? {high} : (Y0){sum}")
        }
        None => sum.to_string(),
    }
}

/// The most elements of the operand that a GPU's thread reads for one element of the result, where
/// several axes are resized.
const MOST_READ: usize = 64;

/// How many elements a place of the result takes along an axis at most.
fn most(taps: &[Taps]) -> usize {
    taps.iter().map(Vec::len).max().unwrap_or(0).max(1)
}

/// The body of `weighted` for a GPU: a thread makes an element of the result from all elements of
/// its sum. Where these are many, the sums are made axis by axis.
fn weighted_on_device(p: &mut Program, all: &[Vec<Taps>], moving: &[usize]) -> Result<(), String> {
    let (d, shape) = (p.dtype(0)?, p.shape(0)?);
    let read = moving.iter().map(|a| most(&all[*a])).fold(1usize, usize::saturating_mul);
    let begins: Vec<Option<Vec<i64>>> =
        all.iter().zip(shape).map(|(taps, extent)| begins(taps, *extent)).collect();
    if (read > MOST_READ && moving.len() > 1) || moving.iter().any(|a| begins[*a].is_none()) {
        return axis_by_axis_on_device(p, all, moving);
    }
    let list = stretches(p, all)?;
    let (from, to): (Vec<i64>, Vec<i64>) = list.iter().map(|s| (s.extent, s.result)).unzip();
    let steps = strides(&from);
    let (mut begin, mut inner) = (String::new(), String::from("    const T0 *f0 = x0"));
    for (i, s) in list.iter().enumerate() {
        match s.axis {
            None => {
                let _ = write!(inner, " + i{i} * {}L", steps[i]);
            }
            Some(a) => {
                small(p, &format!("BEGIN{a}"), begins[a].as_deref().unwrap_or_default());
                let _ = writeln!(begin, "    const long b{a} = BEGIN{a}[i{i}];");
            }
        }
    }
    inner = format!("{inner};\n{begin}");
    // Sums along the first axis are the innermost ones, as on a CPU.
    let resized: Vec<usize> = (0..list.len()).filter(|i| list[*i].axis.is_some()).collect();
    let mut closed = String::from("(R)f[0]").replace('f', &format!("f{}", resized.len()));
    let mut ends = String::new();
    for (depth, &i) in resized.iter().rev().enumerate() {
        let (a, extent) = (list[i].axis.unwrap_or(0), list[i].extent);
        let n = most(&all[a]);
        let has_rest = all[a].iter().any(Vec::is_empty);
        let (rest, terms) = match has_rest {
            true => (format!("REST{a}[i{i}]"), format!("(EMPTY{a}[i{i}] ? 0 : {n})")),
            false => ("0".to_string(), n.to_string()),
        };
        let (at, next) = (format!("c{a}"), depth + 1);
        let _ = write!(
            inner,
            "    R s{depth} = {rest};
    for (long j{a} = 0; j{a} < {terms}; j{a}++) {{
    long {at} = b{a} + j{a};
    {at} = {at} < 0 ? 0 : {at} >= {extent}L ? {extent}L - 1 : {at};
    const T0 *f{next} = f{depth} + {at} * {step}L;
",
            step = steps[i],
        );
        let sum = match next == resized.len() {
            true => closed.clone(),
            false => format!("s{next}"),
        };
        ends = format!("    s{depth} += WEIGHT{a}[i{i} * {n}L + j{a}] * {sum};\n    }}\n{ends}");
    }
    if !resized.is_empty() {
        closed = "s0".into();
    }
    let value = stored(d, "v");
    let place = offset("i", &strides(&to));
    inner = format!("{inner}{ends}    const R v = {closed};\n    y0[{place}] = {value};");
    p.on_device(&loops("i", &to, &inner));
    Ok(())
}

/// The place of the first element of each sum along an axis, where the elements of every sum are
/// neighbours; places outside of the axis stand for its ends. None where a sum has others.
fn begins(all: &[Taps], extent: i64) -> Option<Vec<i64>> {
    let most = most(all) as i64;
    let begin = |taps: &Taps| {
        let zeros = taps.iter().take_while(|t| t.0 == 0).count() as i64;
        // A sum without elements takes the first element of the axis, with weights of 0.
        let first = taps.first().map_or(-most, |t| if zeros > 0 { 1 - zeros } else { t.0 });
        let is = |(k, t): (usize, &(i64, f64))| t.0 == (first + k as i64).clamp(0, extent - 1);
        taps.iter().enumerate().all(is).then_some(first)
    };
    all.iter().map(begin).collect()
}

/// The body of `weighted` for a GPU, axis by axis: a thread makes one sum along an axis.
fn axis_by_axis_on_device(
    p: &mut Program,
    all: &[Vec<Taps>],
    moving: &[usize],
) -> Result<(), String> {
    let (d, mut shape, out) = (p.dtype(0)?, p.shape(0)?.to_vec(), p.out()?);
    let (mut text, mut from) = (String::new(), "x0".to_string());
    for (n, &a) in moving.iter().enumerate() {
        let (most, extent) = (most(&all[a]), shape[a]);
        let terms = match all[a].iter().any(Vec::is_empty) {
            true => format!("(EMPTY{a}[k] ? 0 : {most})"),
            false => most.to_string(),
        };
        shape[a] = out[a];
        let (outer, inner) = (product(&shape[..a]), product(&shape[a + 1..]));
        let is_last = n + 1 == moving.len();
        let (to, value) = match is_last {
            true => ("y0".to_string(), stored(d, "t")),
            false => (format!("made{a}"), "t".into()),
        };
        if !is_last {
            text += &p.device_pointer("R", &to, product(&shape), 8);
        }
        let _ = write!(
            text,
            "  for (long o = 0; o < {outer}; o++)
  for (long k = 0; k < {wide}; k++)
  for (long i = 0; i < {inner}; i++) {{
    R t = REST{a}[k];
    for (long j = 0; j < {terms}; j++)
      t += WEIGHT{a}[k * {most}L + j] *
           (R){from}[(o * {extent}L + PLACE{a}[k * {most}L + j]) * {inner}L + i];
    {to}[(o * {wide}L + k) * {inner}L + i] = {value};
  }}
",
            wide = out[a],
        );
        from = to;
    }
    p.on_device(&text);
    Ok(())
}
