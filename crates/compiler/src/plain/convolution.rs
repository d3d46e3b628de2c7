//! Plain kernels (untuned C for one ONNX operator) of convolutions, forward and transposed, of
//! floats and of integers (`Conv`, `ConvInteger`, `ConvTranspose`): direct loops in C for a call at
//! constant shapes. `quantized.rs` reuses them for `QLinearConv`. They serve where no sketch makes
//! a tuned kernel. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, loops, product, strides};
use squall_core::DType;
use squall_core::graph::infer::{Window, window};
use std::fmt::Write as _;

pub(super) const OPS: &[(&str, Generator)] =
    &[("Conv", conv), ("ConvInteger", conv_integer), ("ConvTranspose", conv_transpose)];

/// The attributes of convolutions that are known.
const ATTRIBUTES: &[&str] = &[
    "auto_pad",
    "dilations",
    "group",
    "kernel_shape",
    "output_padding",
    "output_shape",
    "pads",
    "strides",
];

/// The numbers of a convolution's image and filters among the operands, and the C text of their
/// elements.
pub(super) struct Operands {
    pub image: usize,
    pub filters: usize,
    /// The text of an element of the image and of the filters, `@` is its place.
    pub image_element: String,
    pub filter_element: String,
}

/// Extents as macros: `BATCH`, `GROUPS`, channels in and out of a group, `IMAGE`, `OUT`, `KERNEL`.
fn extents(p: &mut Program, o: &Operands, w: &Window) -> Result<(), String> {
    let (x, filters) = (p.shape(o.image)?, p.shape(o.filters)?);
    let group = p.ctx.int_or("group", 1)?;
    let transposed = p.ctx.node.op == "ConvTranspose";
    let outs = if transposed { filters[1] } else { filters[0] / group };
    let all = [
        ("BATCH", x[0]),
        ("GROUPS", group),
        ("INS", x[1] / group),
        ("OUTS", outs),
        ("IMAGE", product(&x[2..])),
        ("OUT", product(&w.out)),
        ("KERNEL", product(&w.kernel)),
    ];
    all.iter().for_each(|(n, v)| p.int(n, *v));
    Ok(())
}

/// Adds the products of a convolution to `sums`: for each element of a filter, the part of the
/// image that it sees is added in rows.
pub(super) fn forward(p: &mut Program, o: &Operands, w: &Window) -> Result<(), String> {
    extents(p, o, w)?;
    let rank = w.out.len();
    let image = &p.shape(o.image)?[2..];
    let (xs, ys, ks) = (strides(image), strides(&w.out), strides(&w.kernel));
    let mut text = String::new();
    for i in 0..rank {
        let _ = writeln!(text, "    for (long k{i} = 0; k{i} < {}; k{i}++)", w.kernel[i]);
    }
    text += "    {\n";
    for (i, e) in image.iter().enumerate() {
        // Places of the result whose element of the image exists.
        let (s, b, d, n) = (w.strides[i], w.before[i], w.dilations[i], w.out[i]);
        let _ = writeln!(
            text,
            "      const long at{i} = k{i} * {d}L - ({b}L);\n      const long low{i} = at{i} < 0 ? \
             (-at{i} + {s}L - 1) / {s}L : 0;\n      long end{i} = at{i} < {e}L ? ({e}L - 1 - \
             at{i}) / \
             {s}L + 1 : 0;\n      if (end{i} > {n}L) end{i} = {n}L;"
        );
    }
    let sum = |prefix: &str, s: &[i64]| super::program::offset(prefix, s);
    let filter = o.filter_element.replace('@', &format!("w[{}]", sum("k", &ks)));
    let _ = writeln!(text, "      const S v = {filter};");
    for i in 0..rank - 1 {
        let _ = writeln!(text, "      for (long o{i} = low{i}; o{i} < end{i}; o{i}++)");
    }
    let last = rank - 1;
    let row_y = sum("o", &ys[..last]);
    let mut row_x: Vec<String> =
        (0..last).map(|i| format!("(o{i} * {}L + at{i}) * {}L", w.strides[i], xs[i])).collect();
    row_x.push(format!("at{last}"));
    let element = o.image_element.replace('@', &format!("r[o * {}L]", w.strides[last]));
    let _ = writeln!(
        text,
        "      {{\n        S *t = s + ({row_y});\n        const {ty} *r = x + ({});\n        for \
         (long o = low{last}; o < end{last}; o++) t[o] = MAD(v, {element}, t[o]);\n      }}\n    \
         }}",
        row_x.join(" + "),
        ty = format_args!("T{}", o.image),
    );
    p.body(&format!(
        "  for (long b = 0; b < BATCH; b++)
  for (long g = 0; g < GROUPS; g++)
  for (long m = 0; m < OUTS; m++) {{
    S *s = sums + ((b * GROUPS + g) * OUTS + m) * OUT;
    for (long c = 0; c < INS; c++) {{
    const T{i} *x = x{i} + ((b * GROUPS + g) * INS + c) * IMAGE;
    const T{f} *w = x{f} + ((g * OUTS + m) * INS + c) * KERNEL;
{text}    }}
  }}
",
        i = o.image,
        f = o.filters,
    ));
    Ok(())
}

fn floats() -> Operands {
    let plain = || "@".to_string();
    Operands { image: 0, filters: 1, image_element: plain(), filter_element: plain() }
}

/// Sums begin with the bias.
fn begin(p: &mut Program) {
    let bias = if p.has(2) { "x2[i / OUT % (GROUPS * OUTS)]" } else { "0" };
    p.body(&format!("  Y0 *sums = y0;\n  for (long i = 0; i < M0; i++) sums[i] = {bias};\n"));
}

fn conv(p: &mut Program) -> Result<(), String> {
    only(p, ATTRIBUTES)?;
    p.real0()?;
    p.sums("R");
    let w = window(&p.ctx)?;
    begin(p);
    forward(p, &floats(), &w)
}

/// An operand's zero point: none, one, or one of each of `channels` channels (`channel` is the
/// text of their number).
fn zero(p: &Program, i: usize, channel: &str, channels: i64) -> Result<String, String> {
    if !p.has(i) {
        return Ok("0".into());
    }
    match p.shape(i)? {
        [] | [1] => Ok(format!("x{i}[0]")),
        [n] if *n == channels => Ok(format!("x{i}[{channel}]")),
        s => Err(format!("its zero point of shape {s:?} is not supported")),
    }
}

fn conv_integer(p: &mut Program) -> Result<(), String> {
    only(p, ATTRIBUTES)?;
    p.sums("int");
    let w = window(&p.ctx)?;
    p.body("  Y0 *sums = y0;\n  for (long i = 0; i < M0; i++) sums[i] = 0;\n");
    let operands = Operands {
        image: 0,
        filters: 1,
        image_element: format!("((int)@ - {})", zero(p, 2, "0", 1)?),
        filter_element: format!("((int)@ - {})", zero(p, 3, "g * OUTS + m", p.shape(1)?[0])?),
    };
    forward(p, &operands, &w)?;
    one_by_one(p, &operands, &w, ["0", "y0[at] = (Y0)(int)sum;"])
}

/// The image and the filters of a quantized convolution, less their zero points.
pub(super) fn quantized_operands(p: &Program) -> Result<Operands, String> {
    Ok(Operands {
        image: 0,
        filters: 3,
        image_element: format!("((int)@ - {})", zero(p, 2, "0", 1)?),
        filter_element: format!("((int)@ - {})", zero(p, 5, "g * OUTS + m", p.shape(3)?[0])?),
    })
}

/// The body for a GPU of a convolution of integers: a thread has a result's sum, which wraps around
/// in an unsigned type. `begin` is its first value, and `store` does something with `sum`, whose
/// place among the results is `at`.
pub(super) fn one_by_one(
    p: &mut Program,
    o: &Operands,
    w: &Window,
    [begin, store]: [&str; 2],
) -> Result<(), String> {
    let image = &p.shape(o.image)?[2..];
    let (xs, ys, ks) = (strides(image), strides(&w.out), strides(&w.kernel));
    let offset = super::program::offset;
    let mut text = String::from(
        "  for (long b = 0; b < BATCH; b++)
  for (long g = 0; g < GROUPS; g++)
  for (long m = 0; m < OUTS; m++)
",
    );
    for (i, e) in w.out.iter().enumerate() {
        let _ = writeln!(text, "  for (long o{i} = 0; o{i} < {e}; o{i}++)");
    }
    let _ = write!(
        text,
        "  {{
    unsigned sum = {begin};
    for (long c = 0; c < INS; c++) {{
      const T{i} *x = x{i} + ((b * GROUPS + g) * INS + c) * IMAGE;
      const T{f} *w = x{f} + ((g * OUTS + m) * INS + c) * KERNEL;
",
        i = o.image,
        f = o.filters
    );
    for (i, e) in image.iter().enumerate() {
        let (s, b, d) = (w.strides[i], w.before[i], w.dilations[i]);
        let _ = writeln!(
            text,
            "      for (long k{i} = 0; k{i} < {}; k{i}++) {{
        const long at{i} = o{i} * {s}L + k{i} * {d}L - ({b}L);
        if (at{i} < 0 || at{i} >= {e}L) continue;",
            w.kernel[i]
        );
    }
    let element = o.image_element.replace('@', &format!("x[{}]", offset("at", &xs)));
    let filter = o.filter_element.replace('@', &format!("w[{}]", offset("k", &ks)));
    let _ = writeln!(
        text,
        "        sum += (unsigned){element} * (unsigned){filter};
      {}
    }}
    const long at = ((b * GROUPS + g) * OUTS + m) * OUT + {};
    {store}
  }}",
        "}".repeat(image.len()),
        offset("o", &ys)
    );
    p.on_device(&text);
    Ok(())
}

/// The padding before a transposed convolution's result, along each axis.
fn cut(p: &Program, rank: usize) -> Result<Vec<i64>, String> {
    let ctx = &p.ctx;
    let (x, w, y) = (p.shape(0)?, p.shape(1)?, p.out()?);
    let list = |name: &str, default: i64, n: usize| -> Result<Vec<i64>, String> {
        Ok(ctx.ints(name)?.map_or_else(|| vec![default; n], <[i64]>::to_vec))
    };
    let (strides, dilations) = (list("strides", 1, rank)?, list("dilations", 1, rank)?);
    let (pads, extra) = (list("pads", 0, 2 * rank)?, list("output_padding", 0, rank)?);
    let auto = ctx.text("auto_pad", "NOTSET")?;
    let asked = ctx.ints("output_shape")?.is_some();
    (0..rank)
        .map(|i| {
            let full = (x[2 + i] - 1) * strides[i] + extra[i] + (w[2 + i] - 1) * dilations[i] + 1;
            // Where more is asked for than there is, the rest lies behind.
            let total = (full - y[2 + i]).max(0);
            Ok(match (auto, asked) {
                ("SAME_UPPER", _) => total / 2,
                ("SAME_LOWER", _) => total - total / 2,
                (_, true) => total - total / 2,
                ("VALID", _) => 0,
                _ => pads[i],
            })
        })
        .collect()
}

fn conv_transpose(p: &mut Program) -> Result<(), String> {
    only(p, ATTRIBUTES)?;
    p.real0()?;
    p.sums("R");
    let rank = p.shape(0)?.len() - 2;
    let before = cut(p, rank)?;
    let (image, out) = (&p.shape(0)?[2..], &p.out()?[2..]);
    let list = |name: &str| -> Result<Vec<i64>, String> {
        Ok(p.ctx.ints(name)?.map_or_else(|| vec![1; rank], <[i64]>::to_vec))
    };
    let (steps, dilations) = (list("strides")?, list("dilations")?);
    let kernel = p.shape(1)?[2..].to_vec();
    let w = Window {
        kernel: kernel.clone(),
        strides: steps.clone(),
        dilations: dilations.clone(),
        before: before.clone(),
        after: vec![0; rank],
        out: out.to_vec(),
    };
    extents(p, &floats(), &w)?;
    begin(p);
    let (ys, xs) = (strides(out), strides(image));
    let mut inner = String::new();
    let mut tests = Vec::new();
    for i in 0..rank {
        let _ = writeln!(
            inner,
            "      const long o{i} = i{i} * {}L + k{i} * {}L - ({}L);",
            steps[i], dilations[i], before[i]
        );
        tests.push(format!("o{i} >= 0 && o{i} < {}L", out[i]));
    }
    let offset = super::program::offset;
    let _ = writeln!(
        inner,
        "      if ({}) s[{}] += v * x[{}];",
        tests.join(" && "),
        offset("o", &ys),
        offset("i", &xs)
    );
    let each = format!(
        "    const R v = w[{}];\n{}",
        offset("k", &strides(&kernel)),
        loops("i", image, &inner)
    );
    let text = loops("k", &kernel, &each);
    p.body(&format!(
        "  for (long b = 0; b < BATCH; b++)
  for (long g = 0; g < GROUPS; g++)
  for (long m = 0; m < OUTS; m++)
  for (long c = 0; c < INS; c++) {{
    R *s = sums + ((b * GROUPS + g) * OUTS + m) * OUT;
    const T0 *x = x0 + ((b * GROUPS + g) * INS + c) * IMAGE;
    const T1 *w = x1 + ((g * INS + c) * OUTS + m) * KERNEL;
{text}  }}
"
    ));
    match p.dtype(0)? {
        DType::F32 | DType::F64 => Ok(()),
        d => Err(format!("elements of type {} are not supported", d.name())),
    }
}
