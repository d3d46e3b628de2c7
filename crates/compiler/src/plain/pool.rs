//! Plain kernels (untuned C for one ONNX operator) of pooling over windows (`MaxPool`,
//! `AveragePool`, `LpPool`), over whole images (`Global*Pool`), and of `MaxUnpool`. Input: a call
//! at constant shapes; output: C loops over images, windows and their elements. `mod.rs` collects
//! the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, limits, loops, offset, product, strides};
use squall_core::DType;
use squall_core::graph::infer::window;
use std::fmt::Write as _;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("AveragePool", pool),
    ("GlobalAveragePool", global),
    ("GlobalLpPool", global),
    ("GlobalMaxPool", global),
    ("LpPool", pool),
    ("MaxPool", pool),
    ("MaxUnpool", unpool),
];

/// The expressions of an element's share of an Lp norm, and of the norm of the sum.
fn power(p: &mut Program) -> Result<(&'static str, &'static str), String> {
    Ok(match p.ctx.int_or("p", 2)? {
        1 => ("F(fabs)(v)", "s"),
        2 => ("v * v", "F(sqrt)(s)"),
        n => {
            p.float("POWER", n as f32);
            ("F(pow)(F(fabs)(v), POWER)", "F(pow)(s, C(1) / POWER)")
        }
    })
}

const POOL: &[&str] = &[
    "auto_pad",
    "ceil_mode",
    "count_include_pad",
    "dilations",
    "kernel_shape",
    "p",
    "pads",
    "storage_order",
    "strides",
];

/// The C texts of a window: before its elements, for each element, and after them.
type Steps = (String, String, String);

/// The texts that find the largest element of a window and its place.
fn largest(p: &Program, image: &[i64], from: &str, to: &str) -> Result<Steps, String> {
    let low = limits(p.dtype(0)?).map_or("-(T0)INFINITY", |l| l.0);
    let start = format!("    T0 s = {low};\n    long found = -1;\n");
    let step = format!(
        "      const T0 v = x[{from}];\n      if (found < 0 || v > s || (v != v && s == s)) s = v, \
         found = {};\n",
        flat(p, image)?
    );
    let mut end = format!("    y0[n * OUT + ({to})] = s;\n    (void)found;\n");
    if p.result(0).is_none() {
        end = "    (void)s;\n".into();
    }
    if p.result(1).is_some() {
        let _ = writeln!(end, "    y1[n * OUT + ({to})] = n * IMAGE + found;");
    }
    Ok((start, step, end))
}

fn pool(p: &mut Program) -> Result<(), String> {
    only(p, POOL)?;
    let w = window(&p.ctx)?;
    let shape = p.shape(0)?;
    let image = &shape[2..];
    let op = p.ctx.node.op.clone();
    if op != "MaxPool" {
        p.real0()?;
    }
    p.int("PLANES", shape[0] * shape[1]);
    p.int("IMAGE", product(image));
    p.int("OUT", product(&w.out));
    let include = p.ctx.int_or("count_include_pad", 0)? != 0;
    let (mut inner, mut visit) = (String::new(), String::new());
    let (mut count, mut tests) = (Vec::new(), Vec::new());
    for (i, e) in image.iter().enumerate() {
        let (s, b, dl, k) = (w.strides[i], w.before[i], w.dilations[i], w.kernel[i]);
        let _ = writeln!(inner, "    const long at{i} = o{i} * {s}L - ({b}L);");
        // Windows that a ceiling adds may reach beyond the padding, which then does not count.
        let padded = e + w.after[i];
        count.push(format!(
            "(({padded}L - at{i} + {dl}L - 1) / {dl}L < {k}L ? ({padded}L - at{i} + {dl}L - 1) / \
             {dl}L : {k}L)"
        ));
        tests.push(format!("c{i} >= 0 && c{i} < {e}L"));
        let _ = writeln!(visit, "      const long c{i} = at{i} + k{i} * {dl}L;");
    }
    let _ = writeln!(visit, "      if (!({})) continue;", tests.join(" && "));
    let (from, to) = (offset("c", &strides(image)), offset("o", &strides(&w.out)));
    let (start, step, end) = match op.as_str() {
        "MaxPool" => largest(p, image, &from, &to)?,
        "LpPool" => {
            let (step, end) = power(p)?;
            let step = format!("      const R v = x[{from}];\n      s += {step};\n");
            ("    R s = 0;\n".into(), step, format!("    y0[n * OUT + ({to})] = {end};\n"))
        }
        _ => {
            let divisor = if include { count.join(" * ") } else { "count".into() };
            (
                "    R s = 0;\n    long count = 0;\n".into(),
                format!("      s += x[{from}];\n      count++;\n"),
                format!("    (void)count;\n    y0[n * OUT + ({to})] = s / (R)({divisor});\n"),
            )
        }
    };
    let body = format!("{inner}{start}{}{end}", loops("k", &w.kernel, &(visit + &step)));
    let text = loops("o", &w.out, &body);
    p.body(&format!(
        "  for (long n = 0; n < PLANES; n++) {{\n  const T0 *x = x0 + n * IMAGE;\n{text}  }}\n"
    ));
    Ok(())
}

/// Where in its plane an element lies, in the order that the attribute `storage_order` says.
fn flat(p: &Program, image: &[i64]) -> Result<String, String> {
    if p.ctx.int_or("storage_order", 0)? == 0 {
        return Ok(offset("c", &strides(image)));
    }
    // Column-major: the first spatial axis is the innermost.
    let mut steps = vec![1; image.len()];
    for i in 1..image.len() {
        steps[i] = steps[i - 1] * image[i - 1];
    }
    Ok(offset("c", &steps))
}

fn global(p: &mut Program) -> Result<(), String> {
    only(p, &["p"])?;
    p.real0()?;
    let shape = p.shape(0)?;
    p.int("PLANES", shape[0] * shape[1]);
    p.int("IMAGE", product(&shape[2..]));
    let op = p.ctx.node.op.clone();
    let (start, step, end) = match op.as_str() {
        "GlobalMaxPool" => ("x[0]", "s = v > s || v != v ? v : s".to_string(), "s"),
        "GlobalAveragePool" => ("0", "s += v".to_string(), "s / (R)IMAGE"),
        _ => {
            let (step, end) = power(p)?;
            ("0", format!("s += {step}"), end)
        }
    };
    p.body(&format!(
        "  for (long n = 0; n < PLANES; n++) {{
    const T0 *x = x0 + n * IMAGE;
    R s = {start};
    for (long i = 0; i < IMAGE; i++) {{ const R v = x[i]; {step}; }}
    y0[n] = {end};
  }}
"
    ));
    Ok(())
}

/// Elements go where `MaxPool` found them. Its indices count in the extents that the node would
/// give of itself, even where others are asked for.
fn unpool(p: &mut Program) -> Result<(), String> {
    only(p, &["kernel_shape", "pads", "strides"])?;
    if p.dtype(0)? == DType::Bool {
        return Err("elements of type bool are not supported".into());
    }
    let own = squall_core::graph::infer::unpooled(&p.ctx)?;
    let out = p.out()?;
    p.body("  for (long i = 0; i < M0; i++) y0[i] = 0;\n");
    let mut text = String::from(
        "  for (long i = 0; i < N0; i++) {\n    long rest = (long)x1[i], at = 0;\n    if (rest < \
        0) \
         return 1;\n",
    );
    let (from, to) = (strides(&own), strides(out));
    for a in 0..own.len() {
        let _ = writeln!(
            text,
            "    if (rest / {f}L >= {}L) return 1;\n    at += rest / {f}L * {}L, rest %= {f}L;",
            out[a],
            to[a],
            f = from[a]
        );
    }
    if product(p.shape(0)?) <= i64::from(i32::MAX) {
        unpool_on_device(p, &text, product(out));
    }
    p.body(&(text + "    y0[at] = x0[i];\n  }\n"));
    Ok(())
}

/// On a GPU threads share the elements. Where several elements go to one place, the last one stays
/// there, as on a CPU: a first loop finds for each place the largest number of an element that goes
/// there. `find` is C that begins the loop over elements and finds an element's place.
fn unpool_on_device(p: &mut Program, find: &str, results: i64) {
    let last = p.device_pointer("int", "last", results, 4);
    let text = format!(
        "{last}  for (long i = 0; i < M0; i++) last[i] = -1;
{find}    atomicMax(last + at, (int)i);
  }}
  for (long i = 0; i < M0; i++) {{
    y0[i] = 0;
    if (last[i] >= 0) y0[i] = x0[last[i]];
  }}
"
    );
    p.on_device(&text);
}
