//! Plain kernels (untuned C for one ONNX operator) of the loss operators
//! `NegativeLogLikelihoodLoss` and `SoftmaxCrossEntropyLoss`, which some exported models contain:
//! the negative logarithm of each target's probability, optionally weighted, summed or averaged.
//! Input: a call at constant shapes; output: C. `mod.rs` collects the tables `OPS` of all families
//! of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, product};

pub(super) const OPS: &[(&str, Generator)] =
    &[("NegativeLogLikelihoodLoss", loss), ("SoftmaxCrossEntropyLoss", loss)];

/// Writes both operators.
fn loss(p: &mut Program) -> Result<(), String> {
    only(p, &["ignore_index", "reduction"])?;
    p.real0()?;
    let shape = p.shape(0)?;
    p.int("BATCH", shape[0]);
    p.int("CLASSES", shape[1]);
    p.int("INNER", product(&shape[2..]));
    let soft = p.ctx.node.op == "SoftmaxCrossEntropyLoss";
    let ignored = match p.ctx.int("ignore_index")? {
        Some(i) => format!("c == {}", super::program::long(i)),
        None => "0".into(),
    };
    let weight = if p.has(2) { "x2[c]" } else { "C(1)" };
    let reduction = p.ctx.text("reduction", "mean")?;
    let log = match soft {
        true => {
            "    R most = x[0], sum = 0;
    for (long k = 1; k < CLASSES; k++) most = x[k * INNER] > most ? x[k * INNER] : most;
    for (long k = 0; k < CLASSES; k++) sum += EXP(x[k * INNER] - most);
    const R low = F(log)(sum);
"
        }
        false => "",
    };
    let chosen = if soft { "(x[c * INNER] - most) - low" } else { "x[c * INNER]" };
    let all = match p.result(1).is_some() && soft {
        true => {
            "    for (long k = 0; k < CLASSES; k++)
      y1[(b * CLASSES + k) * INNER + i] = (x[k * INNER] - most) - low;
"
        }
        false => "",
    };
    let end = match reduction {
        "none" => "",
        "sum" => "  y0[0] = (Y0)total;\n",
        _ => "  y0[0] = (Y0)(total / weights);\n",
    };
    let each = if reduction == "none" { "y0[b * INNER + i] = value;" } else { "total += value;" };
    p.body(&format!(
        "  double total = 0, weights = 0;
  for (long b = 0; b < BATCH; b++)
  for (long i = 0; i < INNER; i++) {{
    const T0 *x = x0 + b * CLASSES * INNER + i;
{log}{all}    const long c = (long)x1[b * INNER + i];
    R value = 0;
    if (!({ignored})) {{
      if (c < 0 || c >= CLASSES) return 1;
      const R w = {weight};
      value = -({chosen}) * w, weights += w;
    }}
    {each}
  }}
  (void)total, (void)weights;
{end}"
    ));
    Ok(())
}
