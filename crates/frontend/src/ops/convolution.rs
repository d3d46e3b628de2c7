//! The operator lines of convolutions, such as `conv2d c=64 h=56 k=64 r=3 pad=1`: two and three
//! dimensions, all directions, and transposed ones. Each operator has the list of its keys and a
//! function from a parsed line to a workload with a name; `ops.rs` has the table of operators.

use super::{Fault, Line, Made, fault};
use squall_core::operator::{ByteResult, Channels, Conv, ConvAxis, Convolution, Direction};

pub(super) const CONV2D: &[&str] = &[
    "n",
    "c",
    "h",
    "w",
    "k",
    "r",
    "s",
    "stride",
    "stride_h",
    "stride_w",
    "pad",
    "pad_h",
    "pad_w",
    "dilation",
    "dilation_h",
    "dilation_w",
    "groups",
    "direction",
    "layout",
    "dtype",
    "epilogue",
];

pub(super) const CONV3D: &[&str] = &[
    "n",
    "c",
    "d",
    "h",
    "w",
    "k",
    "t",
    "r",
    "s",
    "stride",
    "stride_d",
    "stride_h",
    "stride_w",
    "pad",
    "pad_d",
    "pad_h",
    "pad_w",
    "dilation",
    "dilation_d",
    "dilation_h",
    "dilation_w",
    "groups",
    "direction",
    "layout",
    "dtype",
    "epilogue",
];

pub(super) const TRANSPOSE2D: &[&str] = &[
    "n",
    "c",
    "h",
    "w",
    "k",
    "r",
    "s",
    "stride",
    "stride_h",
    "stride_w",
    "pad",
    "pad_h",
    "pad_w",
    "output_pad",
    "output_pad_h",
    "output_pad_w",
    "dilation",
    "dilation_h",
    "dilation_w",
    "groups",
    "layout",
    "dtype",
    "epilogue",
];

pub(super) const TRANSPOSE3D: &[&str] = &[
    "n",
    "c",
    "d",
    "h",
    "w",
    "k",
    "t",
    "r",
    "s",
    "stride",
    "stride_d",
    "stride_h",
    "stride_w",
    "pad",
    "pad_d",
    "pad_h",
    "pad_w",
    "output_pad",
    "output_pad_d",
    "output_pad_h",
    "output_pad_w",
    "dilation",
    "dilation_d",
    "dilation_h",
    "dilation_w",
    "groups",
    "layout",
    "dtype",
    "epilogue",
];

pub(super) fn conv2d(l: &Line<'_>) -> Made {
    let (direction, channels) = (direction(l)?, channels(l, ["nchw", "nhwc"])?);
    let axes = axes2(l)?;
    let (n, groups) = (l.or("n", 1)?, l.or("groups", 1)?);
    let (c, k) = (l.need("c")?, l.need("k")?);
    let bytes = l.pair("dtype").is_some_and(|p| p.value == "u8");
    // Kernels of bytes have their channels last, whatever is said.
    let first = channels == Channels::First || bytes;
    if let (Direction::Forward, true, [h, w]) = (direction, first, axes) {
        let conv = Conv {
            n,
            c,
            h: h.extent,
            w: w.extent,
            k,
            r: h.kernel,
            s: w.kernel,
            stride: [h.stride, w.stride],
            pads: [h.pads[0], w.pads[0], h.pads[1], w.pads[1]],
            dilation: [h.dilation, w.dilation],
            groups,
        };
        if let Some(made) = l.in_bytes(&conv.name(), || conv.in_bytes(0, ByteResult::ANY)) {
            return made;
        }
        let bias = Some(("B", vec![conv.k, 1, 1]));
        return l.finish(&conv.name(), conv.workload(), &conv.output(), bias);
    }
    let conv = Convolution { direction, channels, n, c, k, groups, axes: axes.to_vec() };
    finish(l, &conv, &conv.name())
}

pub(super) fn conv3d(l: &Line<'_>) -> Made {
    let (direction, channels) = (direction(l)?, channels(l, ["ncdhw", "ndhwc"])?);
    let (n, groups) = (l.or("n", 1)?, l.or("groups", 1)?);
    let (c, k, axes) = (l.need("c")?, l.need("k")?, axes3(l)?.to_vec());
    let conv = Convolution { direction, channels, n, c, k, groups, axes };
    finish(l, &conv, &conv.name())
}

pub(super) fn transpose2d(l: &Line<'_>) -> Made {
    let added = l.along("output_pad", ["h", "w"], 0, 0)?;
    transposed(l, channels(l, ["nchw", "nhwc"])?, &axes2(l)?, &added)
}

pub(super) fn transpose3d(l: &Line<'_>) -> Made {
    let added = l.along("output_pad", ["d", "h", "w"], 0, 0)?;
    transposed(l, channels(l, ["ncdhw", "ndhwc"])?, &axes3(l)?, &added)
}

fn transposed(l: &Line<'_>, channels: Channels, axes: &[ConvAxis], added: &[i64]) -> Made {
    let sizes = [l.or("n", 1)?, l.need("c")?, l.need("k")?, l.or("groups", 1)?];
    let axes: Vec<(ConvAxis, i64)> = axes.iter().copied().zip(added.iter().copied()).collect();
    let made = Convolution::transposed(channels, sizes, &axes);
    let (conv, name) = made.map_err(|message| Fault { at: l.operator_at, message })?;
    let result: Vec<i64> = conv.axes.iter().map(|a| a.extent).collect();
    if conv.computed() != result {
        return fault(
            l.operator_at,
            format!(
                "a result of {result:?} is no multiple of the strides; with output_pad= it can \
                 be made {:?}",
                conv.computed()
            ),
        );
    }
    finish(l, &conv, &name)
}

fn finish(l: &Line<'_>, conv: &Convolution, name: &str) -> Made {
    l.finish(name, conv.workload(), &conv.output(), conv.bias().map(|b| ("B", b)))
}

fn direction(l: &Line<'_>) -> Result<Direction, Fault> {
    let words = ["forward", "backward_data", "backward_weights"];
    Ok(match l.word("direction", &words, Some("forward"))? {
        "backward_data" => Direction::BackwardData,
        "backward_weights" => Direction::BackwardWeights,
        _ => Direction::Forward,
    })
}

/// `layout=`, the first of these words where it is not given.
fn channels(l: &Line<'_>, words: [&'static str; 2]) -> Result<Channels, Fault> {
    let last = l.word("layout", &words, Some(words[0]))? == words[1];
    Ok(if last { Channels::Last } else { Channels::First })
}

/// Height and width; a width that is not given is the height.
fn axes2(l: &Line<'_>) -> Result<[ConvAxis; 2], Fault> {
    let (h, r) = (l.need("h")?, l.need("r")?);
    axes(l, ["h", "w"], [h, l.or("w", h)?], [r, l.or("s", r)?])
}

/// Depth, height and width; a height that is not given is the depth, a width the height.
fn axes3(l: &Line<'_>) -> Result<[ConvAxis; 3], Fault> {
    let (d, t) = (l.need("d")?, l.need("t")?);
    let (h, r) = (l.or("h", d)?, l.or("r", t)?);
    axes(l, ["d", "h", "w"], [d, h, l.or("w", h)?], [t, r, l.or("s", r)?])
}

fn axes<const N: usize>(
    l: &Line<'_>,
    sides: [&str; N],
    extents: [i64; N],
    kernels: [i64; N],
) -> Result<[ConvAxis; N], Fault> {
    let stride = l.along("stride", sides, 1, 1)?;
    let pad = l.along("pad", sides, 0, 0)?;
    let dilation = l.along("dilation", sides, 1, 1)?;
    Ok(std::array::from_fn(|i| ConvAxis {
        extent: extents[i],
        kernel: kernels[i],
        stride: stride[i],
        pads: [pad[i]; 2],
        dilation: dilation[i],
    }))
}
