//! Evaluation of operators over known elements: what shapes are computed with, and the movement of
//! data. Shapes come from inference, so both always agree.

use super::infer::{self, Ctx, GatherAxis, Operand, Output, slices, split_sizes, transpose_order};
use super::{Attribute, Constant, Element, Node, elements};

/// More elements than any evaluation makes: beyond it lies a hostile model.
const MOST: i64 = 1 << 31;

/// Types and shapes where operands are known as constants only.
fn context<'a>(node: &'a Node, inputs: &'a [Option<Constant>], opset: i64) -> Ctx<'a> {
    let operand = |c: &'a Constant| Operand {
        name: "",
        element: c.element(),
        shape: Some(c.shape()),
        constant: Some(c),
    };
    Ctx { node, opset, inputs: inputs.iter().map(|i| i.as_ref().map(operand)).collect() }
}

/// The results of a node over known operands; `None` where the operator is not evaluated here.
pub(crate) fn evaluate(
    node: &Node,
    inputs: &[Option<Constant>],
    opset: i64,
) -> Option<Result<Vec<Constant>, String>> {
    if !matches!(node.domain.as_str(), "" | "ai.onnx") {
        return None;
    }
    let evaluator = EVALUATORS.iter().find(|(names, _)| names.contains(&node.op.as_str()))?.1;
    let ctx = context(node, inputs, opset);
    let run = || {
        let outputs = infer::infer(&ctx)?;
        for o in &outputs {
            if elements(&o.shape)? > MOST {
                return Err(format!("its result of shape {:?} is too large", o.shape));
            }
        }
        evaluator(&ctx, &outputs)
    };
    match run() {
        Err(e) if e == NOT_HERE => None,
        other => Some(other),
    }
}

/// `Shape` and `Size`, which need no elements.
pub(crate) fn of_shape(ctx: &Ctx) -> Result<Vec<Constant>, String> {
    if ctx.node.op == "Size" { size(ctx, &[]) } else { shape(ctx, &[]) }
}

/// What an evaluator says of a form that it leaves alone.
const NOT_HERE: &str = "not evaluated here";

type Evaluator = fn(&Ctx, &[Output]) -> Result<Vec<Constant>, String>;

const EVALUATORS: &[(&[&str], Evaluator)] = &[
    (&["Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze"], renamed),
    (&["Constant"], constant),
    (&["Shape"], shape),
    (&["Size"], size),
    (&["ConstantOfShape"], constant_of_shape),
    (&["Range"], range),
    (&["Cast"], cast),
    (&["Transpose"], transpose),
    (&["Slice"], slice),
    (&["Split"], split),
    (&["Concat"], concat),
    (&["Gather"], gather),
    (&["Expand"], expand),
    (&["Tile"], tile),
    (&["Pad"], pad),
    (&["Where"], select),
    (&["Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Sum"], arithmetic),
    (&["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor"], compare),
    (
        &[
            "Neg",
            "Abs",
            "Floor",
            "Ceil",
            "Round",
            "Sqrt",
            "Reciprocal",
            "Exp",
            "Log",
            "Sign",
            "Not",
        ],
        unary,
    ),
    (&["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"], reduce),
];

/// Runs `$body` for the elements `$data` of any type and makes a constant of `$shape` of it.
macro_rules! map_data {
    ($constant:expr, $shape:expr, $data:ident => $body:expr) => {
        match $constant {
            Constant::F32 { data: $data, .. } => Constant::F32 { shape: $shape, data: $body },
            Constant::I64 { data: $data, .. } => Constant::I64 { shape: $shape, data: $body },
            Constant::Bool { data: $data, .. } => Constant::Bool { shape: $shape, data: $body },
        }
    };
}

fn need<'a>(ctx: &Ctx<'a>, i: usize) -> Result<&'a Constant, String> {
    ctx.constant(i, "operand")?.ok_or_else(|| format!("input {i} is missing"))
}

fn first(outputs: &[Output]) -> Result<&Output, String> {
    outputs.first().ok_or_else(|| "it has no result".into())
}

fn renamed(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    if ctx.node.outputs.len() > 1 {
        return Err(NOT_HERE.into());
    }
    Ok(vec![need(ctx, 0)?.clone().reshaped(first(outputs)?.shape.clone())])
}

fn constant(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let attribute = |name: &str| ctx.node.attributes.get(name);
    if let Some(Attribute::Tensor(t)) = attribute("value") {
        return t.constant.clone().map(|c| vec![c]).ok_or_else(|| NOT_HERE.into());
    }
    let names = ["value_int", "value_ints", "value_float", "value_floats"];
    match names.iter().find_map(|n| attribute(n)) {
        Some(Attribute::Int(i)) => Ok(vec![Constant::I64 { shape, data: vec![*i] }]),
        Some(Attribute::Ints(v)) => Ok(vec![Constant::I64 { shape, data: v.clone() }]),
        Some(Attribute::Float(f)) => Ok(vec![Constant::F32 { shape, data: vec![*f] }]),
        Some(Attribute::Floats(v)) => Ok(vec![Constant::F32 { shape, data: v.clone() }]),
        _ => Err(NOT_HERE.into()),
    }
}

fn shape(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    Ok(vec![Constant::ints(ctx.shape(0)?[infer::shape_range(ctx)?].to_vec())])
}

fn size(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    Ok(vec![Constant::I64 { shape: vec![], data: vec![elements(ctx.shape(0)?)?] }])
}

fn constant_of_shape(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let n = elements(&shape)? as usize;
    match ctx.node.attributes.get("value") {
        None => Ok(vec![Constant::F32 { shape, data: vec![0.0; n] }]),
        Some(Attribute::Tensor(t)) => match &t.constant {
            Some(c) if c.len() == 1 => Ok(vec![map_data!(c, shape, data => vec![data[0]; n])]),
            _ => Err(NOT_HERE.into()),
        },
        Some(_) => Err(NOT_HERE.into()),
    }
}

fn range(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let n = elements(&shape)?;
    Ok(vec![match (need(ctx, 0)?, need(ctx, 2)?) {
        (Constant::I64 { data: s, .. }, Constant::I64 { data: d, .. }) => Constant::I64 {
            shape,
            data: (0..n).map(|i| s[0].wrapping_add(i.wrapping_mul(d[0]))).collect(),
        },
        (Constant::F32 { data: s, .. }, Constant::F32 { data: d, .. }) => {
            Constant::F32 { shape, data: (0..n).map(|i| s[0] + i as f32 * d[0]).collect() }
        }
        _ => return Err(NOT_HERE.into()),
    }])
}

fn cast(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let o = first(outputs)?;
    let (x, shape) = (need(ctx, 0)?, o.shape.clone());
    Ok(vec![match (o.element, x) {
        (Element::Bool, Constant::F32 { data, .. }) => {
            Constant::Bool { shape, data: data.iter().map(|v| *v != 0.0).collect() }
        }
        (Element::Bool, Constant::I64 { data, .. }) => {
            Constant::Bool { shape, data: data.iter().map(|v| *v != 0).collect() }
        }
        (Element::Bool, Constant::Bool { .. }) => x.clone(),
        (Element::F32 | Element::F64, Constant::F32 { .. }) => x.clone(),
        (Element::F32 | Element::F64, Constant::I64 { data, .. }) => {
            Constant::F32 { shape, data: data.iter().map(|v| *v as f32).collect() }
        }
        (Element::F32 | Element::F64, Constant::Bool { data, .. }) => {
            Constant::F32 { shape, data: data.iter().map(|v| f32::from(u8::from(*v))).collect() }
        }
        (e, _) if e.is_float() || e.bytes() == 0 => return Err(NOT_HERE.into()),
        (e, Constant::F32 { data, .. }) => {
            Constant::I64 { shape, data: data.iter().map(|v| narrowed(*v as i64, e)).collect() }
        }
        (e, Constant::I64 { data, .. }) => {
            Constant::I64 { shape, data: data.iter().map(|v| narrowed(*v, e)).collect() }
        }
        (_, Constant::Bool { data, .. }) => {
            Constant::I64 { shape, data: data.iter().map(|v| i64::from(*v)).collect() }
        }
    }])
}

/// An integer as its type keeps it.
fn narrowed(v: i64, element: Element) -> i64 {
    match element {
        Element::I8 => i64::from(v as i8),
        Element::I16 => i64::from(v as i16),
        Element::I32 => i64::from(v as i32),
        Element::U8 => i64::from(v as u8),
        Element::U16 => i64::from(v as u16),
        Element::U32 => i64::from(v as u32),
        _ => v,
    }
}

/// The distances of neighbours along each axis of a row-major tensor.
fn strides(shape: &[i64]) -> Vec<i64> {
    let mut out = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i] * shape[i].max(1);
    }
    out
}

/// The elements of a view: `shape` extents, each with its stride in `data`, from `offset` on.
fn view<T: Copy>(
    data: &[T],
    shape: &[i64],
    strides: &[i64],
    offset: i64,
) -> Result<Vec<T>, String> {
    let count = elements(shape)? as usize;
    let mut out = Vec::with_capacity(count);
    if count == 0 {
        return Ok(out);
    }
    // Neighbouring axes that one stride traverses are one; axes of one element are none.
    let mut axes: Vec<(i64, i64)> = Vec::new();
    for (&extent, &stride) in shape.iter().zip(strides).filter(|(e, _)| **e != 1) {
        match axes.last_mut() {
            Some((e, s)) if *s == stride * extent => (*e, *s) = (*e * extent, stride),
            _ => axes.push((extent, stride)),
        }
    }
    let (extent, stride) = axes.pop().unwrap_or((1, 1));
    let outside = || "it reads outside its operand".to_string();
    let last = |at: i64| at + (extent - 1) * stride;
    let mut place = vec![0i64; axes.len()];
    let mut at = offset;
    loop {
        if at < 0 || last(at) < 0 || at.max(last(at)) >= data.len() as i64 {
            return Err(outside());
        }
        match stride {
            1 => out.extend_from_slice(&data[at as usize..(at + extent) as usize]),
            0 => out.extend(std::iter::repeat_n(data[at as usize], extent as usize)),
            _ => out.extend((0..extent).map(|i| data[(at + i * stride) as usize])),
        }
        let mut axis = axes.len();
        loop {
            if axis == 0 {
                return Ok(out);
            }
            axis -= 1;
            let (e, s) = axes[axis];
            place[axis] += 1;
            at += s;
            if place[axis] < e {
                break;
            }
            at -= s * e;
            place[axis] = 0;
        }
    }
}

/// A view of a constant, with the shape of the result.
fn viewed(
    c: &Constant,
    shape: &[i64],
    view_shape: &[i64],
    strides: &[i64],
    offset: i64,
) -> Result<Constant, String> {
    Ok(map_data!(c, shape.to_vec(), data => view(data, view_shape, strides, offset)?))
}

/// A constant broadcast to a shape.
fn broadcast(c: &Constant, to: &[i64]) -> Result<Constant, String> {
    if c.shape() == to {
        return Ok(c.clone());
    }
    let own = strides(c.shape());
    let skipped =
        to.len().checked_sub(c.shape().len()).ok_or("its operand has too many dimensions")?;
    let stride =
        |i: usize| if i < skipped || c.shape()[i - skipped] == 1 { 0 } else { own[i - skipped] };
    viewed(c, to, to, &(0..to.len()).map(stride).collect::<Vec<_>>(), 0)
}

fn transpose(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, &first(outputs)?.shape);
    let own = strides(x.shape());
    let strides: Vec<i64> = transpose_order(ctx)?.iter().map(|a| own[*a]).collect();
    Ok(vec![viewed(x, shape, shape, &strides, 0)?])
}

fn slice(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, &first(outputs)?.shape);
    let (own, cuts) = (strides(x.shape()), slices(ctx)?);
    // A step may exceed 64 bits in elements only where one element is taken: it is then not used.
    let strides: Vec<i64> = own.iter().zip(&cuts).map(|(s, c)| s.saturating_mul(c.step)).collect();
    let offset = own.iter().zip(&cuts).filter(|(_, c)| c.count > 0).map(|(s, c)| s * c.start).sum();
    Ok(vec![viewed(x, shape, shape, &strides, offset)?])
}

fn split(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let x = need(ctx, 0)?;
    let (own, (axis, sizes)) = (strides(x.shape()), split_sizes(ctx)?);
    let mut offset = 0;
    let mut parts = Vec::new();
    for (o, size) in outputs.iter().zip(sizes) {
        parts.push(viewed(x, &o.shape, &o.shape, &own, offset * own[axis])?);
        offset += size;
    }
    Ok(parts)
}

fn concat(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let axis = ctx.axis(ctx.int_or("axis", 1)?, shape.len())?;
    let outer = elements(&shape[..axis])? as usize;
    let parts: Vec<&Constant> =
        (0..ctx.inputs.len()).map(|i| need(ctx, i)).collect::<Result<_, _>>()?;
    macro_rules! joined {
        ($variant:ident) => {{
            let mut data = Vec::with_capacity(elements(&shape)? as usize);
            for o in 0..outer {
                for p in &parts {
                    let Constant::$variant { data: d, .. } = p else {
                        return Err("its inputs have different types".into());
                    };
                    let block = d.len() / outer;
                    data.extend_from_slice(&d[o * block..(o + 1) * block]);
                }
            }
            Constant::$variant { shape, data }
        }};
    }
    Ok(vec![match parts.first() {
        Some(Constant::F32 { .. }) => joined!(F32),
        Some(Constant::I64 { .. }) => joined!(I64),
        Some(Constant::Bool { .. }) => joined!(Bool),
        None => return Err("it has no inputs".into()),
    }])
}

fn gather(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, first(outputs)?.shape.clone());
    let axis = GatherAxis::of(ctx)?;
    let indices = ctx.integers(1, "indices")?.ok_or("input 1 is missing")?;
    let places: Vec<usize> = indices.iter().map(|i| axis.place(*i)).collect::<Result<_, _>>()?;
    let block = axis.extent as usize * axis.inner;
    fn picked<T: Copy>(
        data: &[T],
        outer: usize,
        block: usize,
        inner: usize,
        places: &[usize],
    ) -> Vec<T> {
        let mut out = Vec::with_capacity(outer * inner * places.len());
        for o in 0..outer {
            for p in places {
                let at = o * block + p * inner;
                out.extend_from_slice(&data[at..at + inner]);
            }
        }
        out
    }
    Ok(vec![map_data!(x, shape, data => picked(data, axis.outer, block, axis.inner, &places))])
}

fn expand(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    Ok(vec![broadcast(need(ctx, 0)?, &first(outputs)?.shape)?])
}

fn tile(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, &first(outputs)?.shape);
    let repeats = ctx.integers(1, "repeats")?.ok_or("input 1 is missing")?;
    let own = strides(x.shape());
    // Each axis becomes two: the repeats, which do not move, and the extent.
    let view_shape: Vec<i64> = x.shape().iter().zip(repeats).flat_map(|(d, r)| [*r, *d]).collect();
    let view_strides: Vec<i64> = own.iter().flat_map(|s| [0, *s]).collect();
    if view_shape.len() > 32 {
        return Err(NOT_HERE.into());
    }
    Ok(vec![viewed(x, shape, &view_shape, &view_strides, 0)?])
}

fn pad(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, first(outputs)?.shape.clone());
    let mode = ctx.text("mode", "constant")?;
    let amounts = infer::pad_amounts(ctx)?;
    // For each axis, where each element of the result comes from; nowhere is padding.
    let mut sources: Vec<Vec<Option<usize>>> = Vec::new();
    for (i, (before, _)) in amounts.iter().enumerate() {
        let extent = x.shape()[i];
        let source = |at: i64| match mode {
            _ if (0..extent).contains(&at) => Ok(Some(at as usize)),
            "constant" => Ok(None),
            _ if extent == 0 => Err("it pads an empty axis from its elements".to_string()),
            "edge" => Ok(Some(at.clamp(0, extent - 1) as usize)),
            "wrap" => Ok(Some(at.rem_euclid(extent) as usize)),
            "reflect" => {
                let period = 2 * (extent - 1).max(1);
                let at = at.rem_euclid(period);
                Ok(Some(if extent == 1 { 0 } else { at.min(period - at) as usize }))
            }
            other => Err(format!("attribute `mode` is `{}`", crate::error::shown(other))),
        };
        // The result's extents are checked: the tables are no longer than the result or 2^31.
        let length = if elements(&shape)? == 0 { 0 } else { shape[i] };
        sources.push((0..length).map(|p| source(p - before)).collect::<Result<_, _>>()?);
    }
    let own = strides(x.shape());
    fn placed<T: Copy>(
        data: &[T],
        fill: T,
        count: usize,
        sources: &[Vec<Option<usize>>],
        own: &[i64],
    ) -> Vec<T> {
        let mut out = Vec::with_capacity(count);
        let Some((inner, outer)) = sources.split_last() else { return data.to_vec() };
        let mut place = vec![0usize; outer.len()];
        while out.len() < count {
            let base = place
                .iter()
                .enumerate()
                .try_fold(0, |sum, (a, p)| outer[a][*p].map(|s| sum + s * own[a] as usize));
            match base {
                None => out.extend(std::iter::repeat_n(fill, inner.len())),
                Some(base) => out.extend(inner.iter().map(|s| s.map_or(fill, |s| data[base + s]))),
            }
            for a in (0..outer.len()).rev() {
                place[a] += 1;
                if place[a] < outer[a].len() {
                    break;
                }
                place[a] = 0;
            }
        }
        out
    }
    let count = elements(&shape)? as usize;
    let value = if ctx.opset >= 11 {
        ctx.constant(2, "constant_value")?.filter(|c| c.len() == 1)
    } else {
        None
    };
    Ok(vec![match (x, value) {
        (Constant::F32 { data, .. }, v) => {
            let attribute = match ctx.node.attributes.get("value") {
                Some(Attribute::Float(f)) if ctx.opset < 11 => *f,
                _ => 0.0,
            };
            let fill = v.and_then(Constant::as_f32).map_or(attribute, |v| v[0]);
            Constant::F32 { shape, data: placed(data, fill, count, &sources, &own) }
        }
        (Constant::I64 { data, .. }, v) => {
            let fill = v.and_then(Constant::as_i64).map_or(0, |v| v[0]);
            Constant::I64 { shape, data: placed(data, fill, count, &sources, &own) }
        }
        (Constant::Bool { data, .. }, Some(Constant::Bool { data: v, .. })) => {
            Constant::Bool { shape, data: placed(data, v[0], count, &sources, &own) }
        }
        (Constant::Bool { data, .. }, _) => {
            Constant::Bool { shape, data: placed(data, false, count, &sources, &own) }
        }
    }])
}

fn select(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let Constant::Bool { data: which, .. } = broadcast(need(ctx, 0)?, &shape)? else {
        return Err("its condition is not of type bool".into());
    };
    fn mixed<T: Copy>(which: &[bool], a: &[T], b: &[T]) -> Vec<T> {
        which.iter().zip(a.iter().zip(b)).map(|(w, (a, b))| if *w { *a } else { *b }).collect()
    }
    Ok(vec![match (broadcast(need(ctx, 1)?, &shape)?, broadcast(need(ctx, 2)?, &shape)?) {
        (Constant::F32 { data: a, .. }, Constant::F32 { data: b, .. }) => {
            Constant::F32 { shape, data: mixed(&which, &a, &b) }
        }
        (Constant::I64 { data: a, .. }, Constant::I64 { data: b, .. }) => {
            Constant::I64 { shape, data: mixed(&which, &a, &b) }
        }
        (Constant::Bool { data: a, .. }, Constant::Bool { data: b, .. }) => {
            Constant::Bool { shape, data: mixed(&which, &a, &b) }
        }
        _ => return Err("its inputs have different types".into()),
    }])
}

fn arithmetic(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let op = ctx.node.op.as_str();
    let fmod = ctx.int_or("fmod", 0)? != 0;
    let mut total = broadcast(need(ctx, 0)?, &shape)?;
    for i in 1..ctx.inputs.len() {
        match (&mut total, broadcast(need(ctx, i)?, &shape)?) {
            (Constant::F32 { data: a, .. }, Constant::F32 { data: b, .. }) => {
                a.iter_mut().zip(b).for_each(|(a, b)| *a = float_step(op, *a, b));
            }
            (Constant::I64 { data: a, .. }, Constant::I64 { data: b, .. }) => {
                for (a, b) in a.iter_mut().zip(b) {
                    *a = integer_step(op, fmod, *a, b)?;
                }
            }
            _ => return Err(NOT_HERE.into()),
        }
    }
    Ok(vec![total])
}

fn float_step(op: &str, a: f32, b: f32) -> f32 {
    match op {
        "Add" | "Sum" => a + b,
        "Sub" => a - b,
        "Mul" => a * b,
        "Div" => a / b,
        "Pow" => a.powf(b),
        "Min" => a.min(b),
        "Max" => a.max(b),
        // Of floats only the form of C's fmod is allowed.
        _ => a % b,
    }
}

fn integer_step(op: &str, fmod: bool, a: i64, b: i64) -> Result<i64, String> {
    Ok(match op {
        "Add" | "Sum" => a.wrapping_add(b),
        "Sub" => a.wrapping_sub(b),
        "Mul" => a.wrapping_mul(b),
        "Min" => a.min(b),
        "Max" => a.max(b),
        "Pow" if b >= 0 => a.wrapping_pow(u32::try_from(b).unwrap_or(u32::MAX)),
        "Pow" => (a as f64).powf(b as f64) as i64,
        _ if b == 0 => return Err("it divides by zero".into()),
        "Div" => a.wrapping_div(b),
        _ if fmod => a.wrapping_rem(b),
        // The sign follows the divisor, as in Python.
        _ => {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        }
    })
}

fn compare(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    fn all<T: PartialOrd>(op: &str, a: &[T], b: &[T]) -> Option<Vec<bool>> {
        let test: fn(&T, &T) -> bool = match op {
            "Equal" => |a, b| a == b,
            "Less" => |a, b| a < b,
            "Greater" => |a, b| a > b,
            "LessOrEqual" => |a, b| a <= b,
            "GreaterOrEqual" => |a, b| a >= b,
            _ => return None,
        };
        Some(a.iter().zip(b).map(|(a, b)| test(a, b)).collect())
    }
    let op = ctx.node.op.as_str();
    let data = match (broadcast(need(ctx, 0)?, &shape)?, broadcast(need(ctx, 1)?, &shape)?) {
        (Constant::F32 { data: a, .. }, Constant::F32 { data: b, .. }) => all(op, &a, &b),
        (Constant::I64 { data: a, .. }, Constant::I64 { data: b, .. }) => all(op, &a, &b),
        (Constant::Bool { data: a, .. }, Constant::Bool { data: b, .. }) => match op {
            "And" => Some(a.iter().zip(&b).map(|(a, b)| a & b).collect()),
            "Or" => Some(a.iter().zip(&b).map(|(a, b)| a | b).collect()),
            "Xor" => Some(a.iter().zip(&b).map(|(a, b)| a ^ b).collect()),
            _ => all(op, &a, &b),
        },
        _ => return Err("its inputs have different types".into()),
    };
    Ok(vec![Constant::Bool {
        shape,
        data: data.ok_or("its inputs are of a type that it does not take")?,
    }])
}

fn unary(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    let op = ctx.node.op.as_str();
    let mut x = need(ctx, 0)?.clone();
    match &mut x {
        Constant::F32 { data, .. } => {
            let f: fn(f32) -> f32 = match op {
                "Neg" => |v| -v,
                "Abs" => f32::abs,
                "Floor" => f32::floor,
                "Ceil" => f32::ceil,
                "Round" => f32::round_ties_even,
                "Sqrt" => f32::sqrt,
                "Reciprocal" => f32::recip,
                "Exp" => f32::exp,
                "Log" => f32::ln,
                "Sign" => |v| if v == 0.0 { 0.0 } else { v.signum() },
                _ => return Err(NOT_HERE.into()),
            };
            data.iter_mut().for_each(|v| *v = f(*v));
        }
        Constant::I64 { data, .. } => {
            let f: fn(i64) -> i64 = match op {
                "Neg" => i64::wrapping_neg,
                "Abs" => i64::wrapping_abs,
                "Sign" => i64::signum,
                _ => return Err(NOT_HERE.into()),
            };
            data.iter_mut().for_each(|v| *v = f(*v));
        }
        Constant::Bool { data, .. } if op == "Not" => data.iter_mut().for_each(|v| *v = !*v),
        Constant::Bool { .. } => return Err(NOT_HERE.into()),
    }
    Ok(vec![x])
}

fn reduce(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, first(outputs)?.shape.clone());
    let axes = infer::reduced_axes(ctx)?;
    let own = strides(x.shape());
    let kept: Vec<usize> = (0..own.len()).filter(|a| !axes.contains(a)).collect();
    let order: Vec<usize> = kept.iter().chain(&axes).copied().collect();
    let extents = |order: &[usize]| order.iter().map(|a| x.shape()[*a]).collect::<Vec<_>>();
    // Reduced axes go innermost: each result then has its elements in one piece.
    let steps: Vec<i64> = order.iter().map(|a| own[*a]).collect();
    let moved = viewed(x, &extents(&order), &extents(&order), &steps, 0)?;
    let row = elements(&extents(&axes))? as usize;
    let op = ctx.node.op.as_str();
    if row == 0 && matches!(op, "ReduceMax" | "ReduceMin") {
        return Err(NOT_HERE.into());
    }
    let n = elements(&shape)? as usize;
    Ok(vec![match &moved {
        Constant::F32 { data, .. } => {
            let f: fn(&[f32]) -> f32 = match op {
                "ReduceSum" => |r| r.iter().sum(),
                "ReduceProd" => |r| r.iter().product(),
                "ReduceMax" => |r| r.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                _ => |r| r.iter().copied().fold(f32::INFINITY, f32::min),
            };
            Constant::F32 {
                shape,
                data: (0..n).map(|i| f(&data[i * row..(i + 1) * row])).collect(),
            }
        }
        Constant::I64 { data, .. } => {
            let f: fn(&[i64]) -> i64 = match op {
                "ReduceSum" => |r| r.iter().fold(0, |a, b| a.wrapping_add(*b)),
                "ReduceProd" => |r| r.iter().fold(1, |a, b| a.wrapping_mul(*b)),
                "ReduceMax" => |r| r.iter().copied().max().unwrap_or(i64::MIN),
                _ => |r| r.iter().copied().min().unwrap_or(i64::MAX),
            };
            Constant::I64 {
                shape,
                data: (0..n).map(|i| f(&data[i * row..(i + 1) * row])).collect(),
            }
        }
        Constant::Bool { .. } => return Err(NOT_HERE.into()),
    }])
}

#[cfg(test)]
mod tests;
