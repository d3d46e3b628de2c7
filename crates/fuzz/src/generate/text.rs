//! Generators of line-based files and of files with small headers: operator lines, workloads,
//! kernel.toml, MIOpen's text databases, NumPy arrays, predictors, and the replies of a runner
//! process. Input: a [`Draw`]; output: the bytes of a file, most of it right.

use crate::draw::Draw;

/// Operator lines.
pub fn operators(draw: &mut Draw<'_>) -> Vec<u8> {
    const KINDS: &[&str] = &[
        "conv2d",
        "conv3d",
        "conv_transpose2d",
        "matmul",
        "softmax",
        "layernorm",
        "depthwise",
        "pool",
        "?",
    ];
    const KEYS: &[&str] = &[
        "n",
        "c",
        "h",
        "w",
        "k",
        "r",
        "s",
        "stride",
        "pad",
        "dilation",
        "groups",
        "m",
        "rows",
        "cols",
        "eps",
        "weight",
        "epilogue",
        "dtype",
        "bits",
        "direction",
        "layout",
        "output_pad",
    ];
    const WORDS: &[&str] = &[
        "bias,relu",
        "none",
        "b",
        "f16",
        "relu6",
        "gelu,gelu,gelu",
        "backward_data",
        "backward_weights",
        "nhwc",
        "",
    ];
    let mut text = String::new();
    for _ in 0..1 + draw.below(4) {
        if draw.once_in(2) {
            text += &format!("{}: ", draw.name());
        }
        let kind = draw.one(KINDS);
        text += kind;
        let usual: &[&str] = match kind {
            "conv2d" | "conv_transpose2d" => &["n", "c", "h", "w", "k", "r", "s"],
            "conv3d" => &["n", "c", "d", "h", "w", "k", "t", "r", "s"],
            "matmul" => &["m", "n", "k"],
            "softmax" | "layernorm" => &["rows", "cols"],
            _ => &[],
        };
        for key in usual {
            text += &format!(" {key}={}", draw.extent());
        }
        for _ in 0..draw.below(4) {
            let (key, word) = (draw.one(KEYS), draw.one(WORDS).to_string());
            let value = if draw.once_in(3) { word } else { draw.number() };
            text += &format!(" {key}={value}");
        }
        text.push(if draw.once_in(20) { '\r' } else { '\n' });
    }
    text.into_bytes()
}

/// A workload's text.
pub fn workload(draw: &mut Draw<'_>) -> Vec<u8> {
    let (m, n, k) = (draw.extent(), draw.extent(), draw.extent());
    let expression = draw.one(&[
        "sum(k: K) A[i, k] * B[k, j]",
        "max(A[i, j], 0)",
        "A[i * j, i / 0]",
        "select(0 <= i - 1 < 9, A[i, j], 0)",
        "sum(k: K) sum(l: K) A[i, k]",
        "exp(exp(exp(A[i, j]))) / 0",
        "A[9999999999999999999, 0]",
        "((((((((((A[i, j]))))))))))",
    ]);
    let expression = expression.replace('K', &k.to_string());
    let deep = if draw.once_in(30) { "(".repeat(50_000) } else { String::new() };
    format!(
        "workload {}\ndata A: {}[{m}, {k}]\nweight B: f32[{k}, {n}]\nstage Y: f32[i: {m}, j: {n}] \
        = \
         {deep}{expression}\noutput {}\n",
        draw.name(),
        draw.one(&["f32", "f16", "i8", "q9"]),
        draw.one(&["Y", "A", "Z", ""]),
    )
    .into_bytes()
}

/// A kernel.toml.
pub fn kernel_toml(draw: &mut Draw<'_>) -> Vec<u8> {
    let text = |s: &str| format!("{s:?}");
    let source = draw.one(&["kernel.c", "../outside/secret", "/etc/passwd", "pipe", "", "none.c"]);
    let flag = draw.one(&[
        "-O2",
        "-fplugin=./x.so",
        "-Wl,-rpath,x",
        "-Wp,-MD,pwned",
        "-Wa,-al=pwned",
        "-fdump-tree-all",
        "-DX=1",
        "-o",
        "@x",
        "-ffast-math",
        "-fuse-ld=./x",
        "-specs=x",
    ]);
    let values = (0..draw.below(5)).map(|_| draw.number()).collect::<Vec<_>>().join(", ");
    format!(
        "name = {}\nsource = {}\nentry = {}\nflop = {}\nflags = [{}]\nconstraints = [{}]\n\n\
         [[argument]]\nname = \"n\"\ntype = {}\nrole = \"scalar\"\nvalue = \
         {}\n\n[[argument]]\nname = \
         \"x\"\ntype = \"f32\"\nrole = {}\nshape = [{}]\n\n[[argument]]\nname = \"y\"\ntype = \
         \"f32\"\nrole = \"output\"\nshape = [\"n\"]\n\n[[knob]]\nname = {}\nvalues = \
         [{values}]\n\n\
         [[problem]]\nn = {}\n\n[reference]\nentry = {}\n",
        text(&draw.name()),
        text(source),
        text(draw.one(&["axpy", "main", "system", "a b", ""])),
        text(draw.one(&["2 * n", "n / 0", "n ** n", "(((", "9e999"])),
        text(flag),
        text(draw.one(&["K * 16 <= 4096", "K in [1, 2]", "K divides 0", "1", "K and or"])),
        text(draw.one(&["i64", "f32", "void", ""])),
        text(draw.one(&["n", "m", "n * n * n * n", ""])),
        text(draw.one(&["input", "inout", "knob", "?"])),
        text(draw.one(&["n", "n * 99999999999", "-1", "q"])),
        text(draw.one(&["K", "n", "if", "", "__FILE__"])),
        draw.number(),
        text(draw.one(&["axpy_reference", "axpy", "none"])),
    )
    .into_bytes()
}

/// A text database of MIOpen's.
pub fn miopen(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..1 + draw.below(6) {
        let e = |draw: &mut Draw<'_>| {
            if draw.once_in(20) { draw.number() } else { draw.extent().to_string() }
        };
        let sizes: Vec<String> = (0..5).map(|_| e(draw)).collect();
        let key = format!(
            "{}-{}-{}-{}-{}-{}-{}-{}-0x0-1x1-1x1-0-NCHW-FP32-{}",
            sizes[0],
            sizes[1],
            sizes[2],
            draw.one(&["1x1", "3x3", "0x0", "1x", "-1x-1"]),
            sizes[3],
            sizes[1],
            sizes[2],
            sizes[4],
            draw.one(&["F", "B", "W", "Q"]),
        );
        let values = (0..draw.below(12)).map(|_| draw.number()).collect::<Vec<_>>().join(",");
        let solver = draw.one(&["ConvAsm1x1U", "ConvOclDirectFwd1x1", "None", "", "\u{1b}[2J"]);
        text += &format!("{key}={solver}:{values}");
        if draw.once_in(4) {
            text += &format!(";{solver}:{values}");
        }
        text.push('\n');
    }
    text.into_bytes()
}

/// A NumPy file whose head and body may not fit.
pub fn npy(draw: &mut Draw<'_>) -> Vec<u8> {
    let shape: Vec<String> = (0..draw.below(5)).map(|_| draw.extent().to_string()).collect();
    let header = format!(
        "{{'descr': '{}', 'fortran_order': {}, 'shape': ({},), }}",
        draw.one(&["<f4", ">f4", "<f8", "|O", "<i8", "|V999999999999", ""]),
        draw.one(&["False", "True", "None"]),
        shape.join(", ")
    );
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([1 + draw.below(4) as u8, 0]);
    let stated = if draw.once_in(6) { draw.below(65536) } else { header.len() };
    bytes.extend((stated as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(vec![0; draw.below(256)]);
    bytes
}

/// A predictor file: a head that states tensors, and bytes.
pub fn predictor(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut tensors = Vec::new();
    let mut at: i64 = 0;
    for i in 0..draw.below(5) {
        let (rows, columns) = (draw.extent(), draw.extent());
        let end = if draw.once_in(5) {
            draw.integer()
        } else {
            at.saturating_add(rows.saturating_mul(columns).saturating_mul(4))
        };
        tensors.push(format!(
            "\"t{i}\": {{\"dtype\": {:?}, \"shape\": [{rows}, {columns}], \"data_offsets\": \
            [{at}, {end}]}}",
            draw.one(&["F32", "F64", "U8", "X"])
        ));
        at = end;
    }
    tensors.push(format!(
        "\"__metadata__\": {{\"squall.predictor\": {:?}, \"squall\": {:?}, \"format\": \"pt\"}}",
        draw.one(&["{}", "{\"version\": 1}", "{\"version\": 99}", "[", "null"]),
        draw.name()
    ));
    let head = format!("{{{}}}", tensors.join(", "));
    let stated = if draw.once_in(8) { draw.bits() } else { head.len() as u64 };
    let mut bytes = stated.to_le_bytes().to_vec();
    bytes.extend(head.as_bytes());
    bytes.extend(vec![0; (at.clamp(0, 4096)) as usize]);
    bytes
}

/// What a process that runs kernels may answer.
pub fn reply(draw: &mut Draw<'_>) -> Vec<u8> {
    const VERBS: &[&str] = &[
        "ready", "task", "paced", "measured", "duel", "pairs", "built", "failed", "crash",
        "device", "roof", "?",
    ];
    const KEYS: &[&str] = &[
        "version",
        "seconds",
        "nonfinite",
        "nanos",
        "error",
        "calls",
        "samples",
        "pace",
        "gpu",
        "times",
        "bytes",
        "side",
        "where",
        "message",
        "errors",
    ];
    let mut text = String::new();
    for _ in 0..1 + draw.below(3) {
        text += &draw.number();
        text += &format!(" {}", draw.one(VERBS));
        for _ in 0..draw.below(6) {
            let list = (0..1 + draw.below(4)).map(|_| draw.number()).collect::<Vec<_>>().join(",");
            let word = if draw.once_in(4) { draw.name() } else { list };
            text += &format!(" {}={word}", draw.one(KEYS));
        }
        text.push('\n');
    }
    text.into_bytes()
}
