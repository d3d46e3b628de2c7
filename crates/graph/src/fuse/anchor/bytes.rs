//! Anchors (the operators that fused kernels are built around) of operators over bytes, which the
//! rewriting of quantised models (`bytes/mod.rs`) writes: `ConvBytes`, `MatMulBytes`, `SumBytes`
//! and others (`core/src/graph/infer/bytes.rs`). Each is a kernel of its own. Input: a node;
//! output: its name and workload, from the builders in `core/src/operator/bytes.rs`.

use super::{Anchor, few_bits};
use crate::bytes::KERNEL;
use crate::view::{View, int};
use squall_core::Workload;
use squall_core::graph::Node;
use squall_core::graph::infer::bytes::elements;
use squall_core::graph::infer::{Ctx, bytes, nbits};
use squall_core::operator::{ByteResult, ByteSum, Gate, byte_sum, rounded_to_bytes, scaled_bytes};

/// The anchor of an operator over bytes; `None` for nodes of another domain and for operators that
/// are no kernels.
pub(super) fn of(view: &View<'_>, node: &Node) -> Option<Result<Anchor, String>> {
    if node.domain != nbits::DOMAIN {
        return None;
    }
    let build = match node.op.as_str() {
        "ConvBytes" => conv,
        "MatMulBytes" => matmul,
        "ProductBytes" => dynamic,
        "ConvProductBytes" => dynamic_conv,
        // Where channels have to be padded, a plain operator does it.
        "ToBytes" if node.inputs.len() == 4 && is_whole(view, node) => rounded,
        "ScaleBytes" => scale,
        "SumBytes" => sum,
        "GateBytes" => gate,
        "MaxPoolBytes" => greatest,
        "MeanBytes" => mean,
        "MatMulNBits" if int(node, KERNEL, 0) == 1 => few_bits::of,
        _ => return None,
    };
    let ctx = Ctx::new(node, view.model.opset, &view.model.values);
    let made = build(&ctx).and_then(|(stem, workload)| {
        let output = *node.outputs.first().ok_or("it has no output")?;
        let shape = view.shape(output).ok_or("the shape of its result is not known")?;
        let feeds = node.inputs.iter().flatten().copied().collect();
        let suffix = if node.op == "MatMulNBits" { "" } else { "_u8" };
        Ok(Anchor::without_steps(format!("{stem}{suffix}"), workload, feeds, output, shape))
    });
    Some(made)
}

/// Whether the bytes have the order of the floats, or channels last without padding.
fn is_whole(view: &View<'_>, node: &Node) -> bool {
    let channels = || view.shape(node.inputs[0]?)?.get(1).copied();
    int(node, "channels_last", 0) == 0 || channels().is_some_and(|c| bytes::filled(c) == c)
}

/// The rounding of floats to bytes.
fn rounded(ctx: &Ctx) -> Made {
    let extents = match (ctx.int_or("channels_last", 0)?, ctx.shape(0)?) {
        (0, _) => [1, 1, elements(ctx, 0)?],
        (_, &[n, c, h, w]) => [n, c, h * w],
        _ => return Err("it is no image".into()),
    };
    let [n, c, places] = extents;
    let has_zero = ctx.operand(2).is_some();
    let suffix = if has_zero { "" } else { "_from_zero" };
    Ok((format!("round_{n}x{c}x{places}{suffix}"), rounded_to_bytes(extents, has_zero)?))
}

type Made = Result<(String, Workload), String>;

fn conv(ctx: &Ctx) -> Made {
    let (conv, result) = (bytes::convolution(ctx, 1)?, bytes::result(ctx)?);
    Ok((conv.name() + behind(result), conv.in_bytes(bytes::zero(ctx)?, result)?))
}

fn matmul(ctx: &Ctx) -> Made {
    let (product, result) = (bytes::product(ctx, 1)?, bytes::result(ctx)?);
    Ok((product.name() + behind(result), product.in_bytes(result)?))
}

fn dynamic(ctx: &Ctx) -> Made {
    let product = bytes::product(ctx, 2)?;
    Ok((product.name(), product.of_dynamic_bytes()?))
}

fn dynamic_conv(ctx: &Ctx) -> Made {
    let conv = bytes::convolution(ctx, 2)?;
    Ok((conv.name(), conv.of_dynamic_bytes()?))
}

/// The part of a task's name that says a sum is computed behind the operator.
fn behind(result: ByteResult) -> &'static str {
    match result.sum.map(|s| s.addends) {
        None => "",
        Some(1) => "_requantise",
        Some(_) => "_add",
    }
}

fn scale(ctx: &Ctx) -> Made {
    let channels = *ctx.shape(1)?.first().ok_or("it has no channels")?;
    let rows = elements(ctx, 0)? / channels.max(1);
    if ctx.shape(0)?.last() != Some(&channels) {
        return Err("its factors are not as many as its channels".into());
    }
    let workload = scaled_bytes(rows, channels, bytes::range(ctx)?)?;
    Ok((format!("scale_{rows}x{channels}"), workload))
}

fn sum(ctx: &Ctx) -> Made {
    let (count, addends) = (elements(ctx, 0)?, ctx.inputs.len() - 1);
    if addends == 2 && elements(ctx, 1)? != count {
        return Err("its operands are not of one size".into());
    }
    let name = if addends == 2 { "add" } else { "requantise" };
    Ok((
        format!("{name}_{count}"),
        byte_sum(count, ByteSum { addends, range: bytes::range(ctx)? })?,
    ))
}

fn gate(ctx: &Ctx) -> Made {
    let (all, gates) = (elements(ctx, 0)?, elements(ctx, 1)?);
    let x = ctx.shape(0)?;
    let gate = match (all == gates, x) {
        (true, _) => Gate { outer: 1, middle: 1, inner: all },
        (false, &[n, h, w, c]) if n * c == gates => Gate { outer: n, middle: h * w, inner: c },
        _ => return Err("its second operand is no gate of the first".into()),
    };
    let Gate { outer, middle, inner } = gate;
    Ok((format!("gate_{outer}x{middle}x{inner}"), gate.workload(bytes::range(ctx)?)?))
}

fn named(what: &str, ctx: &Ctx) -> Result<String, String> {
    let p = bytes::pool(ctx)?;
    let [r, s] = p.kernel;
    Ok(format!("{what}_{}x{}x{}_{r}x{s}_s{}", p.c, p.h, p.w, p.stride[0]))
}

fn greatest(ctx: &Ctx) -> Made {
    Ok((named("maxpool", ctx)?, bytes::pool(ctx)?.greatest()?))
}

fn mean(ctx: &Ctx) -> Made {
    let workload = bytes::pool(ctx)?.mean(bytes::zero(ctx)?, bytes::range(ctx)?)?;
    Ok((named("avgpool", ctx)?, workload))
}
