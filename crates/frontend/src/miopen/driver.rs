//! What users say to MIOpenDriver, as commands or as their logs hold it:
//! `MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 64 -c 256 -H 56 ..`.

use super::Convolution;
use super::convolution::whole;
use crate::error::shown;

/// Flags that say which problem it is, short and long, with what MIOpenDriver assumes.
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

/// Flags with a word.
const WORDS: [(&str, &str, &str); 5] = [
    ("m", "mode", "conv"),
    ("z", "pad_mode", "default"),
    ("I", "in_layout", ""),
    ("O", "out_layout", ""),
    ("f", "fil_layout", ""),
];

/// Flags with a value that says nothing of the problem.
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

/// Whether a line is meant for MIOpenDriver.
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

/// Reads a line: one convolution for each direction that `-F` asks for.
pub fn read(line: &str) -> Result<Vec<Convolution>, String> {
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
    let [mode, pad_mode, in_layout, out_layout, fil_layout] = words;
    let [
        n,
        c,
        d,
        h,
        w,
        k,
        t,
        r,
        s,
        sd,
        sh,
        sw,
        pd,
        ph,
        pw,
        dd,
        dh,
        dw,
        bias,
        groups,
        dimensions,
        forward,
    ] = sizes;
    if mode != "conv" {
        return Err(format!("convolutions of mode `{}` are not read, only `conv`", shown(&mode)));
    }
    if !(2..=3).contains(&dimensions) {
        return Err(format!(
            "a convolution in {dimensions} dimensions is not read, only in 2 or 3"
        ));
    }
    let axes = |depth: i64, height: i64, width: i64| {
        if dimensions == 3 { vec![depth, height, width] } else { vec![height, width] }
    };
    let size = axes(d, h, w);
    let (filter, stride, dilation) = (axes(t, r, s), axes(sd, sh, sw), axes(dd, dh, dw));
    let padding = match pad_mode.as_str() {
        "default" => axes(pd, ph, pw),
        "valid" => axes(0, 0, 0),
        other => {
            return Err(format!("padding of mode `{}` is not read; give -p and -q", shown(other)));
        }
    };
    if [n, c, k, groups]
        .iter()
        .chain(&size)
        .chain(&filter)
        .chain(&stride)
        .chain(&dilation)
        .any(|&x| x < 1)
    {
        return Err("sizes, strides and dilations must be at least 1".into());
    }
    if c % groups != 0 || k % groups != 0 {
        return Err(format!(
            "{groups} groups divide neither {c} nor {k} channels evenly, or only one of them"
        ));
    }
    let mut out = Vec::new();
    for i in 0..size.len() {
        let rest = size[i] + 2 * padding[i] - ((filter[i] - 1) * dilation[i] + 1);
        if rest < 0 {
            return Err(format!(
                "a filter of {} is larger than an input of {}",
                filter[i], size[i]
            ));
        }
        out.push(rest / stride[i] + 1);
    }
    let plain = if dimensions == 3 { "NCDHW" } else { "NCHW" };
    let layout = |l: &str| if l.is_empty() { plain.to_string() } else { l.to_string() };
    let (x, y, f) = (layout(&in_layout), layout(&out_layout), layout(&fil_layout));
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
        let ahead = direction == 'F';
        // Backward kernels read the gradient of the output and are named by it.
        let ((a, input, il), (b, output, ol)) =
            if ahead { ((c, &size, &x), (k, &out, &y)) } else { ((k, &out, &y), (c, &size, &x)) };
        let layout = if il == ol && *il == f { il.clone() } else { format!("{il}-{f}-{ol}") };
        let convolution = Convolution {
            a,
            input: input.clone(),
            filter: filter.clone(),
            b,
            output: output.clone(),
            n,
            padding: padding.clone(),
            stride: stride.clone(),
            dilation: dilation.clone(),
            bias,
            layout,
            precision: precision.into(),
            direction,
            groups,
        };
        all.push(convolution);
    }
    if all.is_empty() {
        return Err(format!(
            "-F {forward} asks for no direction; it is a sum of 1 (forward), 2 (data) and 4 \
             (weights), or 0 for all"
        ));
    }
    Ok(all)
}
