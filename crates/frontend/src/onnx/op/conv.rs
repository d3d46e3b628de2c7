//! Convolutions.

use super::super::model::Call;
use super::{Kernel, Lower, OpEntry, Out, Scalable, own_operand};
use crate::build::{Conv, Window};
use crate::error::{Outcome, Trouble, unknown, wrong};
use squall_core::expr::{Binary, Expr};

pub(super) const OPS: &[OpEntry] = &[
    OpEntry { name: "Conv", infer: infer_conv, eval: None, lower: Lower::Kernel(lower_conv) },
    OpEntry { name: "ConvTranspose", infer: infer_transposed, eval: None, lower: Lower::Untuned("transposed convolutions are not tuned") },
];

/// The windows of a convolution or pooling along its spatial dimensions. `kernel` is used where
/// the attribute is left out.
pub(super) fn windows(c: &Call, spatial: &[i64], kernel: Option<&[i64]>) -> Outcome<Vec<Window>> {
    let rank = spatial.len();
    let kernel = match (c.list("kernel_shape")?, kernel) {
        (Some(k), Some(w)) if k != w => return wrong(format!("attribute `kernel_shape` is {k:?}, but the weights are {w:?}")),
        (Some(k), _) | (None, Some(k)) if k.len() == rank => k.to_vec(),
        (Some(k), _) => return wrong(format!("attribute `kernel_shape` has {} numbers, expected {rank}", k.len())),
        (None, Some(_)) => return wrong("the weights' rank does not fit the input"),
        (None, None) => return wrong("attribute `kernel_shape` is missing"),
    };
    let strides = c.list_of("strides", rank, 1)?;
    let dilations = c.list_of("dilations", rank, 1)?;
    let pads = c.list_of("pads", 2 * rank, 0)?;
    let auto = c.string("auto_pad", "NOTSET")?;
    let mut out = Vec::with_capacity(rank);
    for i in 0..rank {
        let mut w =
            Window { extent: spatial[i], kernel: kernel[i], stride: strides[i], before: pads[i], after: pads[rank + i], dilation: dilations[i] };
        if auto != "NOTSET" {
            (w.before, w.after) = (0, 0);
        }
        let what = format!("spatial dimension {i}");
        let probe = if auto.starts_with("SAME") { Window { before: 1 << 20, ..w } } else { w };
        probe.check(&what).map_err(Trouble::Wrong)?;
        match auto {
            "NOTSET" | "VALID" => {}
            "SAME_UPPER" | "SAME_LOWER" => {
                let total = ((w.extent + w.stride - 1) / w.stride - 1) * w.stride + w.span() - w.extent;
                let (small, large) = (total.max(0) / 2, total.max(0) - total.max(0) / 2);
                (w.before, w.after) = if auto == "SAME_UPPER" { (small, large) } else { (large, small) };
            }
            other => return wrong(format!("attribute `auto_pad` is `{other}`, expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")),
        }
        w.check(&what).map_err(Trouble::Wrong)?;
        out.push(w);
    }
    Ok(out)
}

struct Problem {
    n: i64,
    c: i64,
    k: i64,
    groups: i64,
    windows: Vec<Window>,
}

fn problem(c: &Call) -> Outcome<Problem> {
    let (x, w) = (c.rank_at_least(0, 3)?, c.shape(1)?);
    if w.len() != x.len() {
        return wrong(format!("the input has {} dimensions and the weights {}, expected as many", x.len(), w.len()));
    }
    let groups = c.int("group", 1)?;
    if groups < 1 || x[1] % groups != 0 || w[0] % groups != 0 {
        return wrong(format!("attribute `group` is {groups}, expected a divisor of the {} channels and the {} filters", x[1], w[0]));
    }
    if w[1] != x[1] / groups {
        return wrong(format!("the weights {w:?} have {} channels, but the input {x:?} has {} in each of {groups} groups", w[1], x[1] / groups));
    }
    if let Some(b) = c.input(2).and_then(|b| b.shape.as_ref())
        && *b != [w[0]]
    {
        return wrong(format!("the bias has shape {b:?}, expected [{}]", w[0]));
    }
    Ok(Problem { n: x[0], c: x[1], k: w[0], groups, windows: windows(c, &x[2..], Some(&w[2..]))? })
}

fn infer_conv(c: &Call) -> Outcome<Vec<Out>> {
    let p = problem(c)?;
    let mut shape = vec![p.n, p.k];
    shape.extend(p.windows.iter().map(Window::positions));
    Ok(vec![Out::new(c.elem(0)?, shape)])
}

/// One dimension becomes two by an axis of extent 1.
pub(super) fn two_dimensions(windows: &[Window]) -> Outcome<[Window; 2]> {
    match *windows {
        [h, w] => Ok([h, w]),
        [w] => Ok([Window { extent: 1, kernel: 1, stride: 1, before: 0, after: 0, dilation: 1 }, w]),
        _ => unknown(format!("{} spatial dimensions are not tuned", windows.len())),
    }
}

fn lower_conv(c: &Call) -> Outcome<Kernel> {
    let p = problem(c)?;
    let conv = Conv { n: p.n, c: p.c, k: p.k, groups: p.groups, windows: two_dimensions(&p.windows)? };
    let mut core = conv.build().map_err(Trouble::Unknown)?;
    let mut feeds = vec![0, 1];
    if c.input(2).is_some() {
        let mut shape = vec![p.k];
        shape.extend(p.windows.iter().map(|_| 1));
        let bias = own_operand(&mut core.own, c, 2, shape);
        core.own.then("bias", |x| Expr::binary(Binary::Add, x, bias));
        feeds.push(2);
    }
    let scalable = Some(Scalable { weight: 1, axis: 0, bias: c.input(2).map(|_| 2), channel: 1 });
    Ok(Kernel { core, feeds, open: true, scalable })
}

fn infer_transposed(c: &Call) -> Outcome<Vec<Out>> {
    let (x, w) = (c.rank_at_least(0, 3)?, c.shape(1)?);
    if w.len() != x.len() {
        return wrong(format!("the input has {} dimensions and the weights {}, expected as many", x.len(), w.len()));
    }
    let rank = x.len() - 2;
    let mut shape = vec![x[0], w[1].saturating_mul(c.int("group", 1)?)];
    match c.list("output_shape")? {
        Some(s) if s.len() == rank => shape.extend(s),
        Some(s) if s.len() == rank + 2 => shape.extend(&s[2..]),
        Some(s) => return wrong(format!("attribute `output_shape` has {} numbers, expected {rank}", s.len())),
        None => {
            let (strides, dilations) = (c.list_of("strides", rank, 1)?, c.list_of("dilations", rank, 1)?);
            let (pads, extra) = (c.list_of("pads", 2 * rank, 0)?, c.list_of("output_padding", rank, 0)?);
            let auto = c.string("auto_pad", "NOTSET")?;
            for i in 0..rank {
                let small = |v: i64| v.clamp(-(1 << 24), 1 << 24);
                let (x, stride) = (small(x[2 + i]), small(strides[i]));
                let span = small(dilations[i]) * (small(w[2 + i]) - 1) + 1;
                let padding = if auto == "NOTSET" { small(pads[i]) + small(pads[rank + i]) } else { 0 };
                let same = auto.starts_with("SAME");
                shape.push(if same { x * stride } else { stride * (x - 1) + small(extra[i]) + span - padding });
            }
        }
    }
    Ok(vec![Out::new(c.elem(0)?, shape)])
}
