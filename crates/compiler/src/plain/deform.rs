//! The plain kernel (untuned C for one ONNX operator) of `DeformConv`, a convolution whose window
//! has an offset at each place (Dai et al., ICCV 2017). Input: a call at constant shapes; output:
//! C. Of 64 places at a time the sampled elements become a panel in memory, which all filters
//! multiply (`panel.c`); a GPU's threads and 64-bit floats take a loop for each result. `mod.rs`
//! collects the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::Program;
use squall_core::DType;
use squall_core::graph::infer::spread;

pub(super) const OPS: &[(&str, Generator)] = &[("DeformConv", deform_conv)];

const WINDOW: &[&str] =
    &["auto_pad", "dilations", "group", "kernel_shape", "offset_group", "pads", "strides"];

fn deform_conv(p: &mut Program) -> Result<(), String> {
    only(p, WINDOW)?;
    p.real0()?;
    let (x, w, out) = (p.shape(0)?, p.shape(1)?, p.out()?);
    let win = spread(&p.ctx, &x[2..], &w[2..])?;
    let (group, offsets) = (p.ctx.int_or("group", 1)?, p.ctx.int_or("offset_group", 1)?);
    for (name, v) in [
        ("BATCH", x[0]),
        ("CHANNELS", x[1]),
        ("HEIGHT", x[2]),
        ("WIDTH", x[3]),
        ("OUTS", out[1]),
        ("ROWS", out[2]),
        ("COLUMNS", out[3]),
        ("INS", w[1]),
        ("EACH", out[1] / group),
        ("SHARE", x[1] / offsets),
        ("OFFSETS", offsets),
        ("KH", w[2]),
        ("KW", w[3]),
        ("SH", win.strides[0]),
        ("SW", win.strides[1]),
        ("DH", win.dilations[0]),
        ("DW", win.dilations[1]),
        ("PH", win.before[0]),
        ("PW", win.before[1]),
    ] {
        p.int(name, v);
    }
    let bias = if p.has(3) { "x3[m]" } else { "0" };
    let begin = if p.has(3) { "(x3 + group * EACH)" } else { "0" };
    p.int("GROUPS", group);
    p.int("POINTS", out[2] * out[3]);
    let factor = if p.has(4) { "x4[((b * OFFSETS + g) * KH * KW + k) * POINTS + at]" } else { "1" };
    // Operands are declared where a body names them.
    let named =
        |text: &str| text.replace("BIAS", bias).replace("BEGIN", begin).replace("FACTOR", factor);
    let each = named(include_str!("deform_each.c"));
    if p.dtype(0)? != DType::F32 || x[2] * x[3] > i64::from(i32::MAX) {
        p.body(&each);
        return Ok(());
    }
    p.on_device(&each);
    let depth = w[1] * w[2] * w[3];
    p.int("DEPTH", depth);
    p.scratch_pointer("float", "panel", 64 * depth, 4);
    p.body(&named(include_str!("deform_panel.c")));
    Ok(())
}
