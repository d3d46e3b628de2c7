//! The plain kernel (untuned C for one ONNX operator) of `DeformConv`, a convolution whose window
//! has an offset at each place (Dai et al., ICCV 2017). Input: a call at constant shapes; output:
//! C. Of 64 places at a time the sampled elements become a panel in memory, which all filters
//! multiply (`panel.c`); 64-bit floats take a loop for each result. A GPU's threads fetch all
//! sampled elements first and multiply them then (`deform_threads.c`), unless these take too much
//! memory. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, without_comment};
use squall_core::DType;
use squall_core::graph::infer::spread;

pub(super) const OPS: &[(&str, Generator)] = &[("DeformConv", deform_conv)];

/// The most bytes of sampled elements that a GPU keeps; where there are more, each of its threads
/// samples the elements that its own results need.
const MOST_SAMPLED: i64 = 1 << 28;
/// The most filters that a GPU's thread multiplies by, and the most channels that it samples at one
/// place.
const MOST_FILTERS: i64 = 4;
const SAMPLED: i64 = 8;

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
    p.int("TAPS", w[2] * w[3]);
    p.int("DEPTH", w[1] * w[2] * w[3]);
    let factor = if p.has(4) { "x4[((b * OFFSETS + g) * KH * KW + k) * POINTS + at]" } else { "1" };
    // Operands are declared where a body names them.
    let named =
        |text: &str| text.replace("BIAS", bias).replace("BEGIN", begin).replace("FACTOR", factor);
    let each = named(include_str!("deform_each.c"));
    let points = out[2] * out[3];
    let sampled = x[0].saturating_mul(x[1]).saturating_mul(w[2] * w[3]).saturating_mul(points);
    match sampled.saturating_mul(p.dtype(0)?.bytes() as i64) {
        bytes if bytes <= MOST_SAMPLED => {
            shared_by_threads(p, out[1] / group, x[1] / offsets, out[0] * out[1] * points);
            let columns = p.device_pointer("R", "columns", sampled, p.dtype(0)?.bytes());
            p.on_device(&(columns + &named(without_comment(include_str!("deform_threads.c")))));
        }
        _ => {
            let alone = named(without_comment(include_str!("deform_each.c")));
            p.on_device(&alone);
        }
    }
    if p.dtype(0)? != DType::F32 || x[2] * x[3] > i64::from(i32::MAX) {
        p.body(&each);
        return Ok(());
    }
    let depth = w[1] * w[2] * w[3];
    p.scratch_pointer("float", "panel", 64 * depth, 4);
    p.body(&named(include_str!("deform_panel.c")));
    Ok(())
}

/// The macros that say how a GPU's threads share the work (`deform_threads.c`): of each group of
/// filters, of the channels that share offsets, and of all results. Where there are few results, a
/// thread makes fewer of them, so that there is work for more threads.
fn shared_by_threads(p: &mut Program, filters: i64, channels: i64, results: i64) {
    let own = filters.clamp(1, MOST_FILTERS);
    let places = match results {
        n if n >= 1 << 20 => 4,
        n if n >= 1 << 17 => 2,
        _ => 1,
    };
    let points = p.value("POINTS").unwrap_or(0) as i64;
    for (name, v) in [
        ("SOME", SAMPLED),
        ("PARTS", (channels + SAMPLED - 1) / SAMPLED),
        ("RESULTS", own),
        ("TILES", (filters + own - 1) / own),
        ("PLACES", places),
        ("BLOCKS", (points + 32 * places - 1) / (32 * places)),
    ] {
        p.int(name, v);
    }
}
