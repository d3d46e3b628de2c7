//! The operators of operator lines: each with its keys and the workload that it makes.

use super::steps::{STEPS, push};
use super::{Line, LineError, nearest};
use crate::build::{Conv, Core, Epilogue, MatMul, Pool, PoolKind, ReduceOp, Window, elementwise, layernorm, placeholder, reduce, softmax};
use crate::error::shown;
use squall_core::{TensorKind, Workload};

/// A kernel, with the name that it gets where the line has none.
pub(super) struct Made {
    pub name: String,
    pub workload: Workload,
}

pub(super) struct Operator {
    pub name: &'static str,
    pub keys: &'static [&'static str],
    pub build: fn(&Line) -> Result<Made, LineError>,
}

const CONV_KEYS: &[&str] = &[
    "n", "c", "h", "w", "k", "r", "s", "stride", "pad", "dilation", "groups", "dtype", "epilogue", "stride_h", "stride_w", "pad_h", "pad_w", "pad_top",
    "pad_left", "pad_bottom", "pad_right", "dilation_h", "dilation_w",
];

const POOL_KEYS: &[&str] = &[
    "kind", "n", "c", "h", "w", "r", "s", "stride", "pad", "dilation", "include_pad", "dtype", "epilogue", "stride_h", "stride_w", "pad_h", "pad_w",
    "pad_top", "pad_left", "pad_bottom", "pad_right", "dilation_h", "dilation_w",
];

pub(super) const OPERATORS: &[Operator] = &[
    Operator { name: "conv2d", keys: CONV_KEYS, build: conv },
    Operator { name: "depthwise_conv2d", keys: CONV_KEYS, build: conv },
    Operator { name: "matmul", keys: &["m", "n", "k", "batch", "weight", "trans_a", "trans_b", "dtype", "epilogue"], build: matmul },
    Operator { name: "softmax", keys: &["rows", "cols", "dtype"], build: |l| rows(l, |r, c| softmax(r, c, 1, false)) },
    Operator { name: "log_softmax", keys: &["rows", "cols", "dtype"], build: |l| rows(l, |r, c| softmax(r, c, 1, true)) },
    Operator { name: "layernorm", keys: &["rows", "cols", "eps", "dtype"], build: norm },
    Operator { name: "pool", keys: POOL_KEYS, build: pool },
    Operator { name: "reduce", keys: &["op", "rows", "cols", "dtype", "epilogue"], build: reduction },
    Operator { name: "elementwise", keys: &["op", "n", "dtype"], build: pointwise },
];

/// Kernels are made for float32 today.
fn only_f32(l: &Line) -> Result<(), LineError> {
    match l.field("dtype") {
        Some(f) if f.value != "f32" => Err(l.bad(f, "f32, the only format that is tuned")),
        _ => Ok(()),
    }
}

/// The operator with the line's epilogue.
fn made(l: &Line, core: Result<Core, String>, shape: &[i64], bias: Option<&[i64]>) -> Result<Made, LineError> {
    only_f32(l)?;
    let core = core.map_err(|m| l.whole(m))?;
    let mut steps = Epilogue::none();
    let mut name = core.label.clone();
    for (column, word) in l.list("epilogue") {
        if word == "none" {
            continue;
        }
        add_step(l, &mut steps, column, word, shape, bias)?;
        name += &format!("_{word}");
    }
    let workload = core.finish(Some(steps), shape).map_err(|m| l.whole(m))?;
    Ok(Made { name, workload })
}

fn add_step(l: &Line, e: &mut Epilogue, column: usize, word: &str, shape: &[i64], bias: Option<&[i64]>) -> Result<(), LineError> {
    let Some((name, step)) = STEPS.iter().find(|(n, _)| *n == word) else {
        let known: Vec<&str> = STEPS.iter().map(|s| s.0).collect();
        return Err(l.at(column, format!("`{}` is no step{}; steps: {}", shown(word), nearest(word, &known), known.join(", "))));
    };
    push(e, name, step, shape, bias).map_err(|m| l.at(column, m))?;
    match e.operands.len() <= crate::build::MOST_OPERANDS && e.body.flop() <= 4 * crate::build::MOST_STEPS {
        true => Ok(()),
        false => Err(l.at(column, "these are too many steps for one kernel".into())),
    }
}

/// Both windows of an image operator: `stride=` is for both, `stride_h=` for one.
fn windows(l: &Line) -> Result<[Window; 2], LineError> {
    let h = l.need("h")?;
    let r = l.need("r")?;
    let (w, s) = (l.or("w", 1, h)?, l.or("s", 1, r)?);
    let pair = |name: &str, least: i64, default: i64| -> Result<[i64; 2], LineError> {
        let both = l.or(name, least, default)?;
        Ok([l.or(&format!("{name}_h"), least, both)?, l.or(&format!("{name}_w"), least, both)?])
    };
    let (stride, pad, dilation) = (pair("stride", 1, 1)?, pair("pad", 0, 0)?, pair("dilation", 1, 1)?);
    let (top, bottom) = (l.or("pad_top", 0, pad[0])?, l.or("pad_bottom", 0, pad[0])?);
    let (left, right) = (l.or("pad_left", 0, pad[1])?, l.or("pad_right", 0, pad[1])?);
    Ok([
        Window { extent: h, kernel: r, stride: stride[0], before: top, after: bottom, dilation: dilation[0] },
        Window { extent: w, kernel: s, stride: stride[1], before: left, after: right, dilation: dilation[1] },
    ])
}

fn conv(l: &Line) -> Result<Made, LineError> {
    let depthwise = l.op == "depthwise_conv2d";
    let (n, c) = (l.or("n", 1, 1)?, l.need("c")?);
    let k = if depthwise { l.or("k", 1, c)? } else { l.need("k")? };
    let groups = l.or("groups", 1, if depthwise { c } else { 1 })?;
    let conv = Conv { n, c, k, groups, windows: windows(l)? };
    conv.check().map_err(|m| l.whole(m))?;
    let shape = [n, k, conv.windows[0].positions(), conv.windows[1].positions()];
    made(l, conv.build(), &shape, Some(&[k, 1, 1]))
}

fn pool(l: &Line) -> Result<Made, LineError> {
    let (n, c) = (l.or("n", 1, 1)?, l.need("c")?);
    let windows = windows(l)?;
    for (w, what) in windows.iter().zip(["height", "width"]) {
        w.check(what).map_err(|m| l.whole(m))?;
    }
    let positions = [windows[0].positions(), windows[1].positions()];
    let kind = match l.word("kind", &["max", "avg"])? {
        "max" => PoolKind::Max,
        _ => PoolKind::Average { include_pad: l.or("include_pad", 0, 0)? != 0 },
    };
    let core = Pool { kind, n, c, windows, positions }.build();
    made(l, core, &[n, c, positions[0], positions[1]], Some(&[c, 1, 1]))
}

fn matmul(l: &Line) -> Result<Made, LineError> {
    let (m, n, k, batch) = (l.need("m")?, l.need("n")?, l.need("k")?, l.or("batch", 1, 1)?);
    let weight = l.word("weight", &["none", "b", "a"])?;
    let kind = |operand: &str| if weight == operand { TensorKind::Weight } else { TensorKind::Data };
    let transposed = [l.or("trans_a", 0, 0)? != 0, l.or("trans_b", 0, 0)? != 0];
    let core = MatMul { m, n, k, batch: vec![(batch, true, true)], transposed, kinds: [kind("a"), kind("b")] }.build();
    made(l, core, &[batch, m, n], Some(&[n]))
}

fn rows(l: &Line, f: impl Fn(i64, i64) -> Result<Core, String>) -> Result<Made, LineError> {
    let (rows, cols) = (l.need("rows")?, l.need("cols")?);
    made(l, f(rows, cols), &[rows, cols], None)
}

fn norm(l: &Line) -> Result<Made, LineError> {
    let eps = match l.field("eps") {
        None => 1e-5,
        Some(f) => match f.value.parse::<f64>() {
            Ok(e) if e.is_finite() && e >= 0.0 => e,
            _ => return Err(l.bad(f, "a number from 0 on")),
        },
    };
    rows(l, |r, c| layernorm(r, c, eps, true))
}

fn reduction(l: &Line) -> Result<Made, LineError> {
    let ops = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod, ReduceOp::L1, ReduceOp::L2];
    let word = l.word("op", &["sum", "mean", "max", "min", "prod", "l1", "l2"])?;
    let op = ops.into_iter().find(|o| o.name() == word).unwrap_or(ReduceOp::Sum);
    let (rows, cols) = (l.need("rows")?, l.need("cols")?);
    made(l, reduce(&[rows, cols], &[false, true], op), &[rows], None)
}

fn pointwise(l: &Line) -> Result<Made, LineError> {
    only_f32(l)?;
    let n = l.need("n")?;
    let words = l.list("op");
    if words.is_empty() {
        return Err(l.at(l.column, "elementwise needs `op=`".into()));
    }
    // The value that the steps begin with is the first input.
    let mut e = Epilogue::none();
    e.body = e.operand("X", TensorKind::Data, vec![n]);
    let mut name = "elementwise".to_string();
    for (column, word) in words {
        add_step(l, &mut e, column, word, &[n], None)?;
        name += &format!("_{word}");
    }
    if e.body == placeholder(1) {
        return Err(l.at(l.column, "it computes nothing".into()));
    }
    let core = elementwise(&[n], &e).map_err(|m| l.whole(m))?;
    let workload = core.finish(None, &[n]).map_err(|m| l.whole(m))?;
    Ok(Made { name: format!("{name}_{n}"), workload })
}
