//! Generators of hostile MIOpen files: find databases (which solvers were timed for a problem, in
//! both of their forms) and lists of problem keys. Input: a [`Draw`]; output: the bytes of a file,
//! most of it right. `targets.rs` names the readers.

use crate::draw::Draw;

const SOLVERS: &[&str] = &[
    "ConvAsm1x1U",
    "GemmFwd1x1_0_1",
    "ConvBinWinogradRxSf2x3",
    "ConvHipImplicitGemmFwdXdlops<64,1>",
    "",
    "\u{1b}[2J",
    "a=b",
    "miopenConvolutionFwdAlgoGEMM",
];

const ALGORITHMS: &[&str] = &[
    "miopenConvolutionFwdAlgoGEMM",
    "miopenConvolutionFwdAlgoDirect",
    "miopenConvolutionBwdDataAlgoWinograd",
    "miopenConvolution",
    "",
    "\u{1b}]0;t",
];

/// A key of a problem, mostly one that there is.
pub fn problem_key(draw: &mut Draw<'_>) -> String {
    let extent = |draw: &mut Draw<'_>| match draw.below(20) {
        0 => draw.number(),
        1 => draw.integer().to_string(),
        _ => (1 + draw.below(256)).to_string(),
    };
    let sizes: Vec<String> = (0..5).map(|_| extent(draw)).collect();
    let deep = draw.once_in(8);
    let filter = draw.one(&["1x1", "3x3", "7x7", "0x0", "x", "-1x-1"]);
    let layout = if deep { "NCDHW" } else { draw.one(&["NCHW", "NHWC", "NCHW-NHWC-NCHW", "Q"]) };
    let middle = if deep { format!("{}-", extent(draw)) } else { String::new() };
    format!(
        "{}-{middle}{}-{}-{filter}-{}-{middle}{}-{}-{}-0x0-1x1-1x1-0-{layout}-{}-{}{}",
        sizes[0],
        sizes[1],
        sizes[2],
        sizes[3],
        sizes[1],
        sizes[2],
        sizes[4],
        draw.one(&["FP16", "FP32", "BF16", "INT8", "FP99"]),
        draw.one(&["F", "B", "W", "Q"]),
        draw.one(&["", "", "", "_g2", "_g0", "_g-1"]),
    )
}

/// Problems, one a line.
pub fn problems(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..1 + draw.below(4) {
        match draw.below(4) {
            0 => {
                text += &format!(
                    "MIOpen(HIP): ./bin/MIOpenDriver conv{} -n {} -c {} -H {} -W {} -k {} -y {} \
                     -x 1 -F {}",
                    draw.one(&["", "fp16", "bfp16", "?"]),
                    draw.number(),
                    draw.extent(),
                    draw.extent(),
                    draw.extent(),
                    draw.number(),
                    draw.extent(),
                    draw.number(),
                );
            }
            1 => text += &draw.name(),
            _ => text += &problem_key(draw),
        }
        text.push('\n');
    }
    text.into_bytes()
}

/// A find database, by solver or by algorithm.
pub fn find_database(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut text = String::new();
    let by_algorithm = draw.once_in(3);
    for _ in 0..1 + draw.below(8) {
        text += &problem_key(draw);
        text.push('=');
        for i in 0..draw.below(7) {
            let time = match draw.below(8) {
                0 => draw.number(),
                1 => "0.0".into(),
                _ => format!("{}.{:05}", draw.below(3), draw.below(100_000)),
            };
            let workspace = match draw.below(6) {
                0 => draw.number(),
                _ => (draw.below(1 << 20) * 64).to_string(),
            };
            let (solver, algorithm) = (draw.one(SOLVERS), draw.one(ALGORITHMS));
            let separator = if i > 0 { ";" } else { "" };
            text += &if by_algorithm != draw.once_in(20) {
                format!("{separator}{algorithm}:{solver},{time},{workspace},{algorithm},not used")
            } else {
                format!("{separator}{solver}:{time},{workspace},{algorithm}")
            };
        }
        text.push_str(if draw.once_in(20) { "\r\n" } else { "\n" });
    }
    text.into_bytes()
}
