//! Plain kernels (untuned C for one ONNX operator) of normalisations along one axis: `Softmax`,
//! `LogSoftmax`, `Hardmax` and `LpNormalization`. Input: a call at constant shapes; output: C loops
//! over rows of the axis. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, product};
use super::reduce::split_at;

pub(super) const OPS: &[(&str, Generator)] =
    &[("Hardmax", along), ("LogSoftmax", along), ("LpNormalization", lp_norm), ("Softmax", along)];

/// Defines the extents before, of and behind the axis: before operator set 13 the axis includes all
/// axes behind it.
fn axis(p: &mut Program) -> Result<(), String> {
    let shape = p.shape(0)?;
    if shape.is_empty() {
        [("OUTER", 1), ("EXTENT", 1), ("INNER", 1)].iter().for_each(|(n, v)| p.int(n, *v));
        return Ok(());
    }
    if p.ctx.opset >= 13 {
        let axis = p.ctx.axis(p.ctx.int_or("axis", -1)?, shape.len())?;
        split_at(p, shape, axis);
        return Ok(());
    }
    let axis = p.ctx.int_or("axis", 1)?;
    let axis = match axis == shape.len() as i64 {
        true => shape.len(),
        false => p.ctx.axis(axis, shape.len())?,
    };
    p.int("OUTER", product(&shape[..axis]));
    p.int("EXTENT", product(&shape[axis..]));
    p.int("INNER", 1);
    Ok(())
}

const SOFTMAX: &str = "  for (long o = 0; o < OUTER; o++)
  for (long i = 0; i < INNER; i++) {
    const T0 *x = x0 + o * EXTENT * INNER + i;
    Y0 *y = y0 + o * EXTENT * INNER + i;
    R most = x[0], sum = 0;
    for (long k = 1; k < EXTENT; k++) most = x[k * INNER] > most ? x[k * INNER] : most;
    for (long k = 0; k < EXTENT; k++) y[k * INNER] = EXP(x[k * INNER] - most);
    for (long k = 0; k < EXTENT; k++) sum += y[k * INNER];
    R scale = C(1) / sum;
    for (long k = 0; k < EXTENT; k++) y[k * INNER] *= scale;
  }
";

const LOG_SOFTMAX: &str = "  for (long o = 0; o < OUTER; o++)
  for (long i = 0; i < INNER; i++) {
    const T0 *x = x0 + o * EXTENT * INNER + i;
    Y0 *y = y0 + o * EXTENT * INNER + i;
    R most = x[0], sum = 0;
    for (long k = 1; k < EXTENT; k++) most = x[k * INNER] > most ? x[k * INNER] : most;
    for (long k = 0; k < EXTENT; k++) sum += EXP(x[k * INNER] - most);
    R low = F(log)(sum);
    for (long k = 0; k < EXTENT; k++) y[k * INNER] = (x[k * INNER] - most) - low;
  }
";

const HARDMAX: &str = "  for (long o = 0; o < OUTER; o++)
  for (long i = 0; i < INNER; i++) {
    const T0 *x = x0 + o * EXTENT * INNER + i;
    Y0 *y = y0 + o * EXTENT * INNER + i;
    long at = 0;
    for (long k = 1; k < EXTENT; k++) {
      const T0 a = x[k * INNER], b = x[at * INNER];
      at = a > b || (a != a && b == b) ? k : at;
    }
    for (long k = 0; k < EXTENT; k++) y[k * INNER] = k == at;
  }
";

fn along(p: &mut Program) -> Result<(), String> {
    only(p, &["axis"])?;
    p.real0()?;
    axis(p)?;
    if product(p.shape(0)?) == 0 {
        return Ok(());
    }
    p.body(match p.ctx.node.op.as_str() {
        "Softmax" => SOFTMAX,
        "LogSoftmax" => LOG_SOFTMAX,
        _ => HARDMAX,
    });
    Ok(())
}

fn lp_norm(p: &mut Program) -> Result<(), String> {
    only(p, &["axis", "p"])?;
    p.real0()?;
    let shape = p.shape(0)?;
    let axis = p.ctx.axis(p.ctx.int_or("axis", -1)?, shape.len())?;
    split_at(p, shape, axis);
    let (step, end) = match p.ctx.int_or("p", 2)? {
        1 => ("F(fabs)(v)", "sum"),
        2 => ("v * v", "F(sqrt)(sum)"),
        n => return Err(format!("attribute `p` is {n}")),
    };
    p.body(&format!(
        "  for (long o = 0; o < OUTER; o++)
  for (long i = 0; i < INNER; i++) {{
    const T0 *x = x0 + o * EXTENT * INNER + i;
    Y0 *y = y0 + o * EXTENT * INNER + i;
    R sum = 0;
    for (long k = 0; k < EXTENT; k++) {{ R v = x[k * INNER]; sum += {step}; }}
    R norm = {end};
    for (long k = 0; k < EXTENT; k++) y[k * INNER] = norm == 0 ? C(0) : x[k * INNER] / norm;
  }}
"
    ));
    Ok(())
}
