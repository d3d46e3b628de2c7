//! Anchors (the operators that fused kernels are built around) of convolutions in three dimensions,
//! and of transposed convolutions in one to three. Input: a node with constant filters; output: an
//! [`Anchor`] with the workload that `core/src/operator/convolution.rs` builds, or the reason why
//! there is none. Two-dimensional convolutions are in `../anchor.rs`.

use super::{Anchor, FARTHEST, plain};
use crate::view::{View, input, int, ints, word};
use squall_core::graph::{Node, ValueId};
use squall_core::operator::{Channels, ConvAxis, Convolution, Direction};

/// A node's operands: the image and its shape, the filters and their shape.
struct Operands<'a> {
    x: ValueId,
    xs: &'a [i64],
    w: ValueId,
    ws: &'a [i64],
}

fn operands<'a>(view: &View<'a>, node: &Node) -> Result<Operands<'a>, String> {
    let ((x, xs), (w, ws)) = (view.operand(node, 0)?, view.operand(node, 1)?);
    if !view.is_weight(w) {
        return Err(
            "its filters are computed at run time; kernels are made for constant ones".into()
        );
    }
    if ws.len() != xs.len() || !(3..=5).contains(&xs.len()) {
        return Err(format!("its filters are {ws:?}, its image is {xs:?}"));
    }
    Ok(Operands { x, xs, w, ws })
}

/// The window along each axis of an image, by the node's attributes.
fn axes(node: &Node, image: &[i64], kernel: &[i64]) -> Result<Vec<ConvAxis>, String> {
    let rank = image.len();
    let numbers = |name: &str, count: usize, default: i64| match ints(node, name) {
        None => Ok(vec![default; count]),
        Some(list) if list.iter().any(|x| x.unsigned_abs() > FARTHEST) => {
            Err(format!("its {name} are too large: {list:?}"))
        }
        Some(list) if list.len() == count => Ok(list.to_vec()),
        Some(list) => Err(format!("its {name} has {} numbers, expected {count}", list.len())),
    };
    let (stride, dilation) = (numbers("strides", rank, 1)?, numbers("dilations", rank, 1)?);
    let pads = match word(node, "auto_pad", "NOTSET") {
        "NOTSET" | "" => numbers("pads", 2 * rank, 0)?,
        "VALID" => vec![0; 2 * rank],
        other => {
            return Err(format!("kernels of this form are not made for auto_pad `{other}`"));
        }
    };
    let axis = |i: usize| ConvAxis {
        extent: image[i],
        kernel: kernel[i],
        stride: stride[i],
        pads: [pads[i], pads[rank + i]],
        dilation: dilation[i],
    };
    Ok((0..rank).map(axis).collect())
}

/// The anchor of a convolution whose result has these channels, with its bias.
fn anchor(
    view: &View<'_>,
    node: &Node,
    conv: &Convolution,
    name: String,
    o: &Operands<'_>,
    channels: i64,
) -> Result<Anchor, String> {
    let mut a = plain(view, node, name, conv.workload()?, vec![o.x, o.w])?;
    if let Some(b) = input(node, 2) {
        let mut shape = vec![1; o.ws.len() - 1];
        shape[0] = channels;
        view.operand(node, 2)?;
        a.with(b, view.kind(b), shape, 1.0);
    }
    Ok(a)
}

pub(super) fn conv3d(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let o = operands(view, node)?;
    let groups = int(node, "group", 1);
    let conv = Convolution {
        direction: Direction::Forward,
        channels: Channels::First,
        n: o.xs[0],
        c: o.xs[1],
        k: o.ws[0],
        groups,
        axes: axes(node, &o.xs[2..], &o.ws[2..])?,
    };
    if o.ws[1].checked_mul(groups) != Some(conv.c) {
        return Err(format!(
            "its filters {:?} in {groups} groups do not fit {} channels",
            o.ws, conv.c
        ));
    }
    let mut a = anchor(view, node, &conv, conv.name(), &o, conv.k)?;
    a.scalable = true;
    Ok(a)
}

pub(super) fn transposed(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let o = operands(view, node)?;
    let (_, ys) = view.result(node)?;
    let groups = int(node, "group", 1);
    let outputs = o.ws[1].checked_mul(groups).ok_or("it has too many channels")?;
    if o.ws[0] != o.xs[1] {
        return Err(format!("its filters {:?} do not fit {} channels", o.ws, o.xs[1]));
    }
    let rank = o.xs.len() - 2;
    let added = ints(node, "output_padding").map_or_else(|| vec![0; rank], <[i64]>::to_vec);
    if added.len() != rank {
        return Err(format!("its output_padding has {} numbers, expected {rank}", added.len()));
    }
    let axes: Vec<(ConvAxis, i64)> =
        axes(node, &o.xs[2..], &o.ws[2..])?.into_iter().zip(added).collect();
    let sizes = [o.xs[0], o.xs[1], outputs, groups];
    let (conv, name) = Convolution::transposed(Channels::First, sizes, &axes)?;
    let result: Vec<i64> = conv.axes.iter().map(|a| a.extent).collect();
    if ys[2..] != result {
        return Err(format!(
            "its result {:?} is not the {result:?} that its strides and pads give",
            &ys[2..]
        ));
    }
    if conv.computed() != result {
        return Err(format!(
            "kernels are made for results that are multiples of the strides, not for {result:?}"
        ));
    }
    anchor(view, node, &conv, name, &o, outputs)
}
