//! Plain kernels (untuned C for one ONNX operator) of normalisations: over the batch
//! (`BatchNormalization`), groups of channels or instances, rows (`LayerNormalization`,
//! `RMSNormalization`) and neighbouring channels (`LRN`). Input: a call at constant shapes; output:
//! C. Softmax is in `softmax.rs`. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::broadcast::broadcast_strides;
use super::elementwise::only;
use super::program::{Program, loops, offset, product, strides};
use super::reduce::split_at;
use squall_core::DType;
use squall_core::graph::infer::axes_of;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("BatchNormalization", batch_norm),
    ("GroupNormalization", group_norm),
    ("InstanceNormalization", group_norm),
    ("LRN", lrn),
    ("LayerNormalization", layer_norm),
    ("MeanVarianceNormalization", mean_variance),
    ("RMSNormalization", layer_norm),
];

fn batch_norm(p: &mut Program) -> Result<(), String> {
    only(p, &["epsilon", "momentum", "spatial", "training_mode", "is_test"])?;
    p.real0()?;
    if p.ctx.int_or("training_mode", 0)? != 0 || p.ctx.int_or("spatial", 1)? == 0 {
        return Err("training and non-spatial modes are not supported".into());
    }
    if (1..5).any(|i| p.result(i).is_some()) {
        return Err("results of training are not supported".into());
    }
    let shape = p.shape(0)?;
    split_at(p, shape, 1);
    let epsilon = p.ctx.float_or("epsilon", 1e-5)?;
    p.float("EPSILON", epsilon);
    p.body(
        "  for (long o = 0; o < OUTER; o++)
  for (long c = 0; c < EXTENT; c++) {
    const T0 *x = x0 + (o * EXTENT + c) * INNER;
    Y0 *y = y0 + (o * EXTENT + c) * INNER;
    const R scale = x1[c] / F(sqrt)(x4[c] + EPSILON), mean = x3[c], shift = x2[c];
    for (long i = 0; i < INNER; i++) y[i] = (x[i] - mean) * scale + shift;
  }
",
    );
    Ok(())
}

/// Normalises groups of channels; for `InstanceNormalization` each channel is a group.
fn group_norm(p: &mut Program) -> Result<(), String> {
    only(p, &["epsilon", "num_groups", "stash_type"])?;
    p.real0()?;
    let shape = p.shape(0)?;
    let channels = shape[1];
    let group = p.ctx.node.op == "GroupNormalization";
    let groups = match group {
        true => p.ctx.int("num_groups")?.ok_or("attribute `num_groups` is missing")?,
        false => channels,
    };
    if groups < 1 || channels % groups != 0 {
        return Err(format!("{groups} groups do not divide {channels} channels"));
    }
    let epsilon = p.ctx.float_or("epsilon", 1e-5)?;
    p.float("EPSILON", epsilon);
    p.int("OUTER", shape[0]);
    p.int("GROUPS", groups);
    p.int("EACH", channels / groups);
    p.int("INNER", product(&shape[2..]));
    // Before operator set 21 there is one scale and one bias a group.
    let place = if group && p.ctx.opset < 21 { "g" } else { "g * EACH + c" };
    p.body(&format!(
        "  for (long o = 0; o < OUTER; o++)
  for (long g = 0; g < GROUPS; g++) {{
    const T0 *x = x0 + (o * GROUPS + g) * EACH * INNER;
    Y0 *y = y0 + (o * GROUPS + g) * EACH * INNER;
    double sum = 0, square = 0;
    for (long i = 0; i < EACH * INNER; i++) sum += x[i];
    const double mean = sum / (EACH * INNER);
    for (long i = 0; i < EACH * INNER; i++) square += (x[i] - mean) * (x[i] - mean);
    const R factor = (R)(1 / sqrt(square / (EACH * INNER) + EPSILON)), middle = (R)mean;
    for (long c = 0; c < EACH; c++) {{
      const R scale = factor * x1[{place}], shift = x2[{place}];
      for (long i = 0; i < INNER; i++)
        y[c * INNER + i] = (x[c * INNER + i] - middle) * scale + shift;
    }}
  }}
"
    ));
    Ok(())
}

fn layer_norm(p: &mut Program) -> Result<(), String> {
    only(p, &["axis", "epsilon", "stash_type"])?;
    p.real0()?;
    let shape = p.shape(0)?;
    let axis = p.ctx.axis(p.ctx.int_or("axis", -1)?, shape.len())?;
    let epsilon = p.ctx.float_or("epsilon", 1e-5)?;
    p.float("EPSILON", epsilon);
    let (rows, row) = (product(&shape[..axis]), product(&shape[axis..]));
    p.int("ROWS", rows);
    p.int("ROW", row);
    let rms = p.ctx.node.op == "RMSNormalization";
    p.body("  for (long o = 0; o < ROWS; o++) {\n    const T0 *x = x0 + o * ROW;\n");
    p.body("    double sum = 0, square = 0;\n");
    if rms {
        p.body("    const R middle = 0;\n    (void)sum;\n");
        p.body("    for (long i = 0; i < ROW; i++) square += (double)x[i] * x[i];\n");
    } else {
        p.body("    for (long i = 0; i < ROW; i++) sum += x[i];\n");
        p.body("    const double mean = sum / ROW;\n    const R middle = (R)mean;\n");
        p.body("    for (long i = 0; i < ROW; i++) square += (x[i] - mean) * (x[i] - mean);\n");
    }
    p.body("    const R factor = (R)(1 / sqrt(square / ROW + EPSILON));\n");
    if !rms && p.result(1).is_some() {
        p.body("    y1[o] = (Y1)middle;\n");
    }
    if !rms && p.result(2).is_some() {
        p.body("    y2[o] = (Y2)factor;\n");
    }
    p.body("  }\n");
    // Scale and bias broadcast to the operand: along the row at the usual shapes.
    let in_row = |i: usize| -> Result<Option<String>, String> {
        let s = broadcast_strides(p.shape(i)?, shape);
        let fits = s[..axis].iter().all(|x| *x == 0) && s[axis..] == strides(shape)[axis..];
        Ok(fits.then(|| "i".to_string()))
    };
    let place = |i: usize| -> Result<String, String> {
        match in_row(i)? {
            Some(place) => Ok(place),
            None => {
                let s = broadcast_strides(p.shape(i)?, shape);
                let own = strides(shape);
                let at =
                    |a: usize| format!("(o * ROW + i) / {}L % {}L * {}L", own[a], shape[a], s[a]);
                let terms: Vec<String> = (0..shape.len()).filter(|a| s[*a] != 0).map(at).collect();
                Ok(if terms.is_empty() { "0".into() } else { terms.join(" + ") })
            }
        }
    };
    let scale = place(1)?;
    let shift = if p.has(2) { format!(" + x2[{}]", place(2)?) } else { String::new() };
    // The factor is known where the loop over rows ends.
    let store = format!(
        "    for (long i = 0; i < ROW; i++) y0[o * ROW + i] = (Y0)((x[i] - middle) * factor * \
         x1[{scale}]{shift});\n  }}\n"
    );
    p.replace_end("  }\n", &store);
    Ok(())
}

fn mean_variance(p: &mut Program) -> Result<(), String> {
    only(p, &["axes"])?;
    p.real0()?;
    let shape = p.shape(0)?;
    let axes = axes_of(p.ctx.ints("axes")?.unwrap_or(&[0, 2, 3]), shape.len())?;
    let own = strides(shape);
    let of = |inside: bool, list: &[i64]| -> Vec<i64> {
        (0..shape.len()).filter(|i| axes.contains(i) == inside).map(|i| list[i]).collect()
    };
    let place = format!("{} + {}", offset("k", &of(false, &own)), offset("r", &of(true, &own)));
    let reduced = of(true, shape);
    p.int("COUNT", product(&reduced));
    let inner = format!(
        "    double sum = 0, square = 0;\n{}    const double mean = sum / COUNT;\n{}    const \
        double \
         factor = 1 / (sqrt(square / COUNT) + 1e-9);\n{}",
        loops("r", &reduced, &format!("    sum += x0[{place}];")),
        loops("r", &reduced, &format!("    double d = x0[{place}] - mean; square += d * d;")),
        loops("r", &reduced, &format!("    y0[{place}] = (Y0)((x0[{place}] - mean) * factor);")),
    );
    let text = loops("k", &of(false, shape), &inner);
    p.body(&text);
    Ok(())
}

fn lrn(p: &mut Program) -> Result<(), String> {
    only(p, &["alpha", "beta", "bias", "size"])?;
    p.real0()?;
    if p.dtype(0)? != DType::F32 {
        return Err("elements of type f64 are not supported".into());
    }
    let shape = p.shape(0)?;
    split_at(p, shape, 1);
    let size = p.ctx.int("size")?.ok_or("attribute `size` is missing")?;
    p.int("SIZE", size);
    for (name, attribute, default) in
        [("ALPHA", "alpha", 1e-4), ("BETA", "beta", 0.75), ("BIAS", "bias", 1.0)]
    {
        let value = p.ctx.float_or(attribute, default)?;
        p.float(name, value);
    }
    p.body(
        "  for (long o = 0; o < OUTER; o++)
  for (long c = 0; c < EXTENT; c++)
  for (long i = 0; i < INNER; i++) {
    R sum = 0;
    for (long k = c - (SIZE - 1) / 2; k <= c + SIZE / 2; k++) {
      if (k < 0 || k >= EXTENT) continue;
      R v = x0[(o * EXTENT + k) * INNER + i];
      sum += v * v;
    }
    long at = (o * EXTENT + c) * INNER + i;
    y0[at] = x0[at] / F(pow)(BIAS + ALPHA / SIZE * sum, BETA);
  }
",
    );
    Ok(())
}
