//! Parses command lines of MIOpenDriver, MIOpen's benchmark program, as users type them or as logs
//! hold them: `MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 64 -c 256 -H
//! 56 ..`. Output: a [`Convolution`] for each direction that the line asks for; flags that are left
//! out have MIOpenDriver's defaults.

use super::Convolution;
use super::convolution::whole;
use crate::error::shown;

/// Flags of sizes, short and long, with MIOpenDriver's defaults.
const SIZES: [(&str, &str, i64); 22] = [
    ("n", "batchsize", 100),
    ("c", "in_channels", 3),
    ("!", "in_d", 32),
    ("H", "in_h", 32),
    ("W", "in_w", 32),
    ("k", "out_channels", 32),
    ("@", "fil_d", 3),
    ("y", "fil_h", 3),
    ("x", "fil_w", 3),
    ("#", "conv_stride_d", 1),
    ("u", "conv_stride_h", 1),
    ("v", "conv_stride_w", 1),
    ("$", "pad_d", 0),
    ("p", "pad_h", 0),
    ("q", "pad_w", 0),
    ("^", "dilation_d", 1),
    ("l", "dilation_h", 1),
    ("j", "dilation_w", 1),
    ("b", "bias", 0),
    ("g", "group_count", 1),
    ("_", "spatial_dim", 2),
    ("F", "forw", 0),
];

/// Flags of words, short and long, with the defaults.
const WORDS: [(&str, &str, &str); 5] = [
    ("m", "mode", "conv"),
    ("z", "pad_mode", "default"),
    ("I", "in_layout", ""),
    ("O", "out_layout", ""),
    ("f", "fil_layout", ""),
];

/// Flags whose value does not belong to the problem.
const OTHERS: [(&str, &str); 25] = [
    ("V", "verify"),
    ("t", "time"),
    ("w", "wall"),
    ("i", "iter"),
    ("s", "search"),
    ("P", "printconv"),
    ("o", "dump_output"),
    ("d", "in_data"),
    ("e", "weights"),
    ("a", "in_bias"),
    ("D", "dout_data"),
    ("C", "verification_cache"),
    ("S", "solution"),
    ("G", "gpualloc"),
    ("r", "pad_val"),
    ("Z", "tensor_vect"),
    ("L", "vector_length"),
    ("X", "trans_output_pad_w"),
    ("Y", "trans_output_pad_h"),
    ("%", "trans_output_pad_d"),
    ("R", "wei_cast_type"),
    ("U", "in_cast_type"),
    ("T", "out_cast_type"),
    ("B", "seed"),
    ("A", "alpha_beta"),
];

/// Whether a line is a command of MIOpenDriver.
pub fn is_driver_line(line: &str) -> bool {
    line.contains("MIOpenDriver")
        || line.split_whitespace().next().is_some_and(|w| precision(w).is_some())
}

fn precision(command: &str) -> Option<&'static str> {
    match command {
        "conv" => Some("FP32"),
        "convfp16" => Some("FP16"),
        "convbfp16" => Some("BF16"),
        "convint8" => Some("INT8"),
        _ => None,
    }
}

/// The flags of a line: sizes in the order of [`SIZES`], words in that of [`WORDS`].
struct Flags {
    precision: &'static str,
    sizes: [i64; SIZES.len()],
    words: [String; WORDS.len()],
}

/// Reads the command and the flags of a line; what it leaves out has MIOpenDriver's default.
fn flags(line: &str) -> Result<Flags, String> {
    let mut tokens =
        line.split_whitespace().map(|t| t.trim_matches(|c| c == '\'' || c == '"')).peekable();
    if line.contains("MIOpenDriver") {
        for t in tokens.by_ref() {
            if t.ends_with("MIOpenDriver") || t.ends_with("MIOpenDriver.exe") {
                break;
            }
        }
    }
    let command = tokens.next().unwrap_or("");
    let Some(precision) = precision(command) else {
        return Err(format!(
            "MIOpenDriver's `{}` is not read; conv, convfp16, convbfp16 and convint8 are",
            shown(command)
        ));
    };
    let mut sizes = SIZES.map(|(.., default)| default);
    let mut words = WORDS.map(|(.., default)| default.to_string());
    while let Some(t) = tokens.next() {
        let is = |short: &str, long: &str| match t.strip_prefix("--") {
            Some(name) => name == long,
            None => t.strip_prefix('-') == Some(short),
        };
        let Some(value) = tokens.next() else { return Err(format!("`{}` has no value", shown(t))) };
        if let Some(i) = SIZES.iter().position(|(s, l, _)| is(s, l)) {
            let Some(n) = whole(value) else {
                return Err(format!("`{} {}` is no size", SIZES[i].1, shown(value)));
            };
            sizes[i] = n;
        } else if let Some(i) = WORDS.iter().position(|(s, l, _)| is(s, l)) {
            words[i] = value.into();
        } else if !OTHERS.iter().any(|(s, l)| is(s, l)) {
            return Err(format!("MIOpenDriver has no flag `{}`", shown(t)));
        }
    }
    Ok(Flags { precision, sizes, words })
}

/// A convolution seen forward: axes are depth (in three dimensions), height and width.
struct Layer {
    /// Batch.
    n: i64,
    /// Channels of the input.
    c: i64,
    /// Channels of the output.
    k: i64,
    groups: i64,
    bias: i64,
    input: Vec<i64>,
    filter: Vec<i64>,
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
}

impl Layer {
    fn new(sizes: [i64; SIZES.len()], pad_mode: &str) -> Result<Layer, String> {
        let [n, c, d, h, w, k, t, r, s, sd, sh, sw, pd, ph, pw, dd, dh, dw, bias, groups, dims, _] =
            sizes;
        if !(2..=3).contains(&dims) {
            return Err(format!("a convolution in {dims} dimensions is not read, only in 2 or 3"));
        }
        let axes = |depth: i64, height: i64, width: i64| {
            if dims == 3 { vec![depth, height, width] } else { vec![height, width] }
        };
        let padding = match pad_mode {
            "default" => axes(pd, ph, pw),
            "valid" => axes(0, 0, 0),
            other => {
                let other = shown(other);
                return Err(format!("padding of mode `{other}` is not read; give -p and -q"));
            }
        };
        let layer = Layer {
            n,
            c,
            k,
            groups,
            bias,
            input: axes(d, h, w),
            filter: axes(t, r, s),
            stride: axes(sd, sh, sw),
            padding,
            dilation: axes(dd, dh, dw),
        };
        let positive = [&layer.input, &layer.filter, &layer.stride, &layer.dilation];
        if [n, c, k, groups].iter().chain(positive.into_iter().flatten()).any(|&x| x < 1) {
            return Err("sizes, strides and dilations must be at least 1".into());
        }
        if c % groups != 0 || k % groups != 0 {
            return Err(format!(
                "{groups} groups divide neither {c} nor {k} channels evenly, or only one of them"
            ));
        }
        Ok(layer)
    }

    /// The extents of the output.
    fn output(&self) -> Result<Vec<i64>, String> {
        let extent = |i: usize| {
            let (input, filter) = (self.input[i], self.filter[i]);
            let rest = input + 2 * self.padding[i] - ((filter - 1) * self.dilation[i] + 1);
            match rest < 0 {
                true => Err(format!("a filter of {filter} is larger than an input of {input}")),
                false => Ok(rest / self.stride[i] + 1),
            }
        };
        (0..self.input.len()).map(extent).collect()
    }
}

/// Reads a line: one convolution for each direction that `-F` asks for.
///
/// # Errors
/// Where it is no convolution that MIOpenDriver takes, or one that is not read here; the text says
/// why.
pub fn read(line: &str) -> Result<Vec<Convolution>, String> {
    let Flags { precision, sizes, words } = flags(line)?;
    let forward = sizes[SIZES.len() - 1];
    let [mode, pad_mode, in_layout, out_layout, filter_layout] = words;
    if mode != "conv" {
        return Err(format!("convolutions of mode `{}` are not read, only `conv`", shown(&mode)));
    }
    let layer = Layer::new(sizes, &pad_mode)?;
    let output = layer.output()?;
    let plain = if layer.input.len() == 3 { "NCDHW" } else { "NCHW" };
    let layout = |l: &str| if l.is_empty() { plain.to_string() } else { l.to_string() };
    let (x, y, f) = (layout(&in_layout), layout(&out_layout), layout(&filter_layout));
    if let Some(bad) =
        [&x, &y, &f].into_iter().find(|l| !l.chars().all(|c| c.is_ascii_alphanumeric()))
    {
        return Err(format!("`{}` is no layout", shown(bad)));
    }
    let mut all = Vec::new();
    for (bit, direction) in [(1, 'F'), (2, 'B'), (4, 'W')] {
        if forward != 0 && forward & bit == 0 {
            continue;
        }
        // Backward kernels read the gradient of the output and are named by it.
        let (image, result) = ((layer.c, &layer.input, &x), (layer.k, &output, &y));
        let (from, to) = if direction == 'F' { (image, result) } else { (result, image) };
        let same = from.2 == to.2 && *from.2 == f;
        let layout = if same { f.clone() } else { format!("{}-{f}-{}", from.2, to.2) };
        all.push(Convolution {
            a: from.0,
            input: from.1.clone(),
            filter: layer.filter.clone(),
            b: to.0,
            output: to.1.clone(),
            n: layer.n,
            padding: layer.padding.clone(),
            stride: layer.stride.clone(),
            dilation: layer.dilation.clone(),
            bias: layer.bias,
            layout,
            precision: precision.into(),
            direction,
            groups: layer.groups,
        });
    }
    if all.is_empty() {
        return Err(format!(
            "-F {forward} asks for no direction; it is a sum of 1 (forward), 2 (data) and 4 \
             (weights), or 0 for all"
        ));
    }
    Ok(all)
}
