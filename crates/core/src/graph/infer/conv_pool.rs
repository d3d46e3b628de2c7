//! Shape inference of convolutions, pooling, normalisations of channels, and other operators on
//! images `[n, c, ..]`, such as `Resize` and `DepthToSpace`. Input: a node with the shapes of its
//! operands; output: the types and shapes of its results. [`Window`] holds the kernel, strides,
//! padding and dilation that a node's attributes give; kernels and plain operators read them from
//! it, too.

use super::{Ctx, Output};
use crate::DType;

/// The largest number that an attribute of a window may have; products of such numbers fit 64 bits.
const MOST: i64 = 1 << 20;

pub(super) fn spatial(
    ctx: &Ctx,
    name: &str,
    rank: usize,
    least: i64,
    default: i64,
) -> Result<Vec<i64>, String> {
    let Some(v) = ctx.ints(name)? else { return Ok(vec![default; rank]) };
    if v.len() != rank {
        return Err(format!("attribute `{name}` has {} elements, {rank} are expected", v.len()));
    }
    match v.iter().find(|x| !(least..=MOST).contains(*x)) {
        Some(x) => Err(format!("attribute `{name}` holds {x}, from {least} to {MOST} is expected")),
        None => Ok(v.to_vec()),
    }
}

/// The spatial extents of an operand `[n, c, ..]`.
fn image_shape<'a>(ctx: &Ctx<'a>) -> Result<(&'a [i64], &'a [i64]), String> {
    let x = ctx.shape(0)?;
    if x.len() < 3 {
        return Err(format!("its input has shape {x:?}, at least three dimensions are expected"));
    }
    Ok(x.split_at(2))
}

/// The movement of a window over an image: along each spatial axis the window's extent, its steps,
/// the padding, and how often it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the attributes
pub struct Window {
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    /// Padding before the image; what lies behind it follows of `out`.
    pub before: Vec<i64>,
    /// Padding behind the image.
    pub after: Vec<i64>,
    pub out: Vec<i64>,
}

/// How the window of a convolution or a pooling node moves.
pub fn window(ctx: &Ctx) -> Result<Window, String> {
    let (_, image) = image_shape(ctx)?;
    let kernel = match (ctx.ints("kernel_shape")?, ctx.node.op.contains("Conv")) {
        (Some(_), _) => spatial(ctx, "kernel_shape", image.len(), 1, 1)?,
        (None, true) => ctx.shape(1)?.get(2..).unwrap_or_default().to_vec(),
        (None, false) => return Err("attribute `kernel_shape` is missing".into()),
    };
    spread(ctx, image, &kernel)
}

/// How a window of these extents moves over an image, as the node's attributes say.
pub fn spread(ctx: &Ctx, image: &[i64], kernel: &[i64]) -> Result<Window, String> {
    let rank = image.len();
    if kernel.len() != rank || kernel.iter().any(|k| !(1..=MOST).contains(k)) {
        return Err(format!(
            "the kernel's extents {kernel:?} do not suit an image of extents {image:?}"
        ));
    }
    let strides = spatial(ctx, "strides", rank, 1, 1)?;
    let dilations = spatial(ctx, "dilations", rank, 1, 1)?;
    let pads = spatial(ctx, "pads", 2 * rank, -MOST, 0)?;
    let ceil = ctx.int_or("ceil_mode", 0)? != 0;
    let auto = ctx.text("auto_pad", "NOTSET")?;
    let mut w = Window {
        kernel: kernel.to_vec(),
        before: vec![0; rank],
        after: vec![0; rank],
        out: vec![0; rank],
        strides,
        dilations,
    };
    for i in 0..rank {
        let (extent, stride) = (image[i], w.strides[i]);
        let window = (kernel[i] - 1) * w.dilations[i] + 1;
        let (before, after) = match auto {
            "SAME_UPPER" | "SAME_LOWER" => {
                let n = extent.div_ceil_to(stride);
                let padding = ((n - 1) * stride + window - extent).max(0);
                let small = padding / 2;
                let upper = auto == "SAME_UPPER";
                w.out[i] = n;
                w.before[i] = if upper { small } else { padding - small };
                w.after[i] = padding - w.before[i];
                continue;
            }
            "NOTSET" | "" => (pads[i], pads[rank + i]),
            "VALID" => (0, 0),
            other => {
                return Err(format!("attribute `auto_pad` is `{}`", crate::text::shown(other)));
            }
        };
        let padded = extent + before + after;
        let free = padded - window;
        if free < 0 {
            return Err(format!(
                "its window of {window} is larger than the padded image of {padded} along spatial \
                 axis {i}"
            ));
        }
        let n = if ceil { free.div_ceil_to(stride) } else { free / stride } + 1;
        // A window that would start in the padding after the image does not count.
        w.out[i] = if ceil && (n - 1) * stride >= extent + before { n - 1 } else { n };
        (w.before[i], w.after[i]) = (before, after);
    }
    Ok(w)
}

/// Division of numbers that are not negative, rounded up.
trait CeilTo {
    fn div_ceil_to(self, by: i64) -> i64;
}

impl CeilTo for i64 {
    fn div_ceil_to(self, by: i64) -> i64 {
        (self + by - 1) / by
    }
}

fn groups(ctx: &Ctx) -> Result<i64, String> {
    match ctx.int_or("group", 1)? {
        g if g >= 1 => Ok(g),
        g => Err(format!("attribute `group` is {g}")),
    }
}

fn bias(ctx: &Ctx, channels: i64) -> Result<(), String> {
    match ctx.optional_shape(2)? {
        Some(b) if b != [channels] => {
            Err(format!("its bias has shape {b:?}, [{channels}] is expected"))
        }
        _ => Ok(()),
    }
}

fn filters<'a>(ctx: &Ctx<'a>, rank: usize) -> Result<&'a [i64], String> {
    let w = ctx.shape(1)?;
    if w.len() != rank {
        return Err(format!("its filters have shape {w:?}, {rank} dimensions are expected"));
    }
    match ctx.ints("kernel_shape")? {
        Some(k) if *k != w[2..] => {
            Err(format!("attribute `kernel_shape` is {k:?}, its filters have shape {w:?}"))
        }
        _ => Ok(w),
    }
}

pub(crate) fn conv(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (head, image) = image_shape(ctx)?;
    let w = filters(ctx, image.len() + 2)?;
    let group = groups(ctx)?;
    if w[1].checked_mul(group) != Some(head[1]) || w[0] % group != 0 {
        return Err(format!(
            "{group} groups of filters {w:?} do not suit an input of {} channels",
            head[1]
        ));
    }
    bias(ctx, w[0])?;
    let shape = [&[head[0], w[0]], window(ctx)?.out.as_slice()].concat();
    Ok(vec![Output { dtype: ctx.dtype(0), shape }])
}

pub(crate) fn conv_transpose(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (head, image) = image_shape(ctx)?;
    let rank = image.len();
    let w = filters(ctx, rank + 2)?;
    let group = groups(ctx)?;
    if w[0] != head[1] || w[0] % group != 0 {
        return Err(format!(
            "{group} groups of filters {w:?} do not suit an input of {} channels",
            head[1]
        ));
    }
    let channels = w[1].checked_mul(group).ok_or("it has too many channels")?;
    bias(ctx, channels)?;
    if w[2..].iter().any(|k| !(1..=MOST).contains(k)) {
        return Err(format!("its filters have shape {w:?}"));
    }
    let strides = spatial(ctx, "strides", rank, 1, 1)?;
    let dilations = spatial(ctx, "dilations", rank, 1, 1)?;
    let pads = spatial(ctx, "pads", 2 * rank, -MOST, 0)?;
    let extra = spatial(ctx, "output_padding", rank, 0, 0)?;
    let mut shape = vec![head[0], channels];
    match ctx.ints("output_shape")? {
        // Some exporters write batch and channels too.
        Some(s) if s.len() == rank || s.len() == rank + 2 => shape.extend(&s[s.len() - rank..]),
        Some(s) => {
            return Err(format!(
                "attribute `output_shape` has {} elements, {rank} are expected",
                s.len()
            ));
        }
        None => {
            let same = matches!(ctx.text("auto_pad", "NOTSET")?, "SAME_UPPER" | "SAME_LOWER");
            let valid = ctx.text("auto_pad", "NOTSET")? == "VALID";
            for i in 0..rank {
                let window = (w[2 + i] - 1) * dilations[i] + 1;
                let padding = if valid { 0 } else { pads[i] + pads[rank + i] };
                let full =
                    (image[i] - 1).checked_mul(strides[i]).ok_or("its result is too large")?
                        + extra[i]
                        + window
                        - padding;
                shape.push(if same {
                    image[i].checked_mul(strides[i]).ok_or("its result is too large")?
                } else {
                    full
                });
            }
        }
    }
    if shape[2..].iter().any(|d| *d < 1) {
        return Err(format!("its result would have shape {shape:?}"));
    }
    Ok(vec![Output { dtype: ctx.dtype(0), shape }])
}

pub(crate) fn pool(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (head, _) = image_shape(ctx)?;
    let shape = [head, window(ctx)?.out.as_slice()].concat();
    // Only max pooling has a second result: where it found its values.
    Ok(vec![
        Output { dtype: ctx.dtype(0), shape: shape.clone() },
        Output { dtype: Some(DType::I64), shape },
    ])
}

pub(crate) fn global_pool(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (head, image) = image_shape(ctx)?;
    if image.contains(&0) {
        return Err("its image is empty".into());
    }
    Ok(vec![Output { dtype: ctx.dtype(0), shape: [head, &vec![1; image.len()]].concat() }])
}

/// The shape of a per-channel operand must be the channels.
fn per_channel(ctx: &Ctx, inputs: std::ops::Range<usize>, channels: i64) -> Result<(), String> {
    for i in inputs {
        let s = ctx.shape(i)?;
        if s != [channels] {
            return Err(format!("its input {i} has shape {s:?}, [{channels}] is expected"));
        }
    }
    Ok(())
}

pub(crate) fn batch_norm(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    if x.len() < 2 {
        return Err(format!("its input has shape {x:?}, at least two dimensions are expected"));
    }
    per_channel(ctx, 1..5, x[1])?;
    let trains =
        ctx.int_or("training_mode", 0)? != 0 || (ctx.opset < 7 && ctx.int_or("is_test", 0)? == 0);
    if trains {
        return Err("it is in training mode; export the model for inference".into());
    }
    let mut outputs = vec![Output { dtype: ctx.dtype(0), shape: x.to_vec() }];
    outputs.extend((1..5).map(|_| Output { dtype: ctx.dtype(1), shape: vec![x[1]] }));
    Ok(outputs)
}

pub(crate) fn channel_norm(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (head, _) = image_shape(ctx)?;
    let per_group = ctx.node.op == "GroupNormalization" && ctx.opset < 21;
    let channels = if per_group {
        ctx.int("num_groups")?.ok_or("attribute `num_groups` is missing")?
    } else {
        head[1]
    };
    if channels < 1 || head[1] % channels != 0 {
        return Err(format!("{channels} groups do not divide {} channels", head[1]));
    }
    per_channel(ctx, 1..3, channels)?;
    image(ctx)
}

pub(crate) fn image(ctx: &Ctx) -> Result<Vec<Output>, String> {
    image_shape(ctx)?;
    Ok(vec![Output { dtype: ctx.dtype(0), shape: ctx.shape(0)?.to_vec() }])
}

fn blocks(ctx: &Ctx) -> Result<([i64; 4], i64), String> {
    let x = ctx.shape(0)?;
    let block = ctx.int("blocksize")?.ok_or("attribute `blocksize` is missing")?;
    let four = <[i64; 4]>::try_from(x)
        .map_err(|_| format!("its input has shape {x:?}, four dimensions are expected"))?;
    if !(1..=MOST).contains(&block) {
        return Err(format!("attribute `blocksize` is {block}"));
    }
    Ok((four, block))
}

pub(crate) fn depth_to_space(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let ([n, c, h, w], b) = blocks(ctx)?;
    if c % (b * b) != 0 {
        return Err(format!("{c} channels are not divisible by blocks of {b} x {b}"));
    }
    let grown = |x: i64| x.checked_mul(b).ok_or("its result is too large");
    Ok(vec![Output { dtype: ctx.dtype(0), shape: vec![n, c / (b * b), grown(h)?, grown(w)?] }])
}

pub(crate) fn space_to_depth(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let ([n, c, h, w], b) = blocks(ctx)?;
    if h % b != 0 || w % b != 0 {
        return Err(format!("an image of {h} x {w} is not divisible into blocks of {b} x {b}"));
    }
    let channels = c.checked_mul(b * b).ok_or("its result is too large")?;
    Ok(vec![Output { dtype: ctx.dtype(0), shape: vec![n, channels, h / b, w / b] }])
}

pub(crate) fn resize(ctx: &Ctx) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype: ctx.dtype(0), shape: resized(ctx)?.0 }])
}

/// The extents of a resized tensor, and by how much each of its axes is stretched.
pub fn resized(ctx: &Ctx) -> Result<(Vec<i64>, Vec<f64>), String> {
    let x = ctx.shape(0)?;
    let upsample = ctx.node.op == "Upsample";
    let known =
        |i: usize| ctx.operand(i).filter(|o| !o.shape.is_some_and(|s| s.contains(&0))).is_some();
    let axes = match ctx.ints("axes")? {
        Some(a) => super::axes_of(a, x.len())?,
        None => (0..x.len()).collect(),
    };
    if ctx.text("coordinate_transformation_mode", "half_pixel")? == "tf_crop_and_resize" {
        ctx.constant(1, "roi")?;
    }
    let (mut shape, mut stretch) = (x.to_vec(), vec![1.0; x.len()]);
    let scales: Vec<f32> = match ctx.node.attributes.get("scales") {
        Some(crate::graph::Attribute::Floats(f)) if upsample => f.clone(),
        _ if upsample || ctx.opset < 11 => {
            ctx.floats(1, "scales")?.ok_or("its scales are missing")?.to_vec()
        }
        _ if known(3) => {
            let sizes = ctx.integers(3, "sizes")?.unwrap_or_default();
            if sizes.len() != axes.len() {
                return Err(format!("{} sizes are given for {} axes", sizes.len(), axes.len()));
            }
            let policy = ctx.text("keep_aspect_ratio_policy", "stretch")?;
            let ratios = axes.iter().zip(sizes).map(|(&a, &s)| s as f64 / x[a].max(1) as f64);
            let ratio = match policy {
                "not_larger" => Some(ratios.fold(f64::INFINITY, f64::min)),
                "not_smaller" => Some(ratios.fold(0.0, f64::max)),
                _ => None,
            };
            for (&a, &s) in axes.iter().zip(sizes) {
                shape[a] = ratio.map_or(s, |r| (r * x[a] as f64).round() as i64);
                stretch[a] = ratio.unwrap_or(s as f64 / x[a].max(1) as f64);
            }
            return Ok((shape, stretch));
        }
        _ if known(2) => ctx.floats(2, "scales")?.unwrap_or_default().to_vec(),
        _ => return Err("it has neither scales nor sizes".into()),
    };
    if scales.len() != axes.len() || scales.iter().any(|s| !(*s > 0.0 && s.is_finite())) {
        return Err(format!("scales {scales:?} do not suit {} axes", axes.len()));
    }
    for (&a, &s) in axes.iter().zip(&scales) {
        shape[a] = (x[a] as f64 * f64::from(s)).floor() as i64;
        stretch[a] = f64::from(s);
    }
    Ok((shape, stretch))
}
