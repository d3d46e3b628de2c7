//! Plain kernels (untuned C for one ONNX operator) of matrix products of floats and integers
//! (`MatMul`, `Gemm`), of `Einsum` (sums of products written as equations), and of determinants
//! (`Det`). Products go through one C function on tiles of 4 rows and 16 columns; `quantized.rs`
//! reuses the treatment of batches. Input: a call at constant shapes; output: C. `mod.rs` collects
//! the tables `OPS` of all families of operators.

use super::Generator;
use super::broadcast::broadcast_strides;
use super::elementwise::only;
use super::program::{Program, loops, offset, strides};
use squall_core::DType;
use squall_core::graph::infer::Equation;

pub(super) const OPS: &[(&str, Generator)] =
    &[("Det", det), ("Einsum", einsum), ("Gemm", gemm), ("MatMul", matmul)];

/// One matrix product `c[m][n] = sum a[m][k] * b[k][n]` in tiles of 4 rows and 16 columns; the
/// columns of `b` are copied side by side first. `TA`, `TB` are the operands' types, `S` the type
/// of the sums, `A_OF` and `B_OF` convert elements to it; `MM`, `NN`, `KK` are the extents, `AM` ..
/// the strides.
const PRODUCT: &str = "static void product(const TA *a, const TB *b, S *restrict c, \
                       S *restrict panel) {
  for (long n = 0; n < NN; n += 16) {
    long wide = NN - n < 16 ? NN - n : 16;
    for (long k = 0; k < KK; k++) {
      for (long l = 0; l < wide; l++) panel[k * 16 + l] = B_OF(b[k * BK + (n + l) * BN]);
      for (long l = wide; l < 16; l++) panel[k * 16 + l] = 0;
    }
    long m = 0;
    for (; m + 4 <= MM; m += 4) {
      S sum[4][16];
      for (int r = 0; r < 4; r++)
        for (int l = 0; l < 16; l++) sum[r][l] = 0;
      for (long k = 0; k < KK; k++)
        for (int r = 0; r < 4; r++) {
          const S v = A_OF(a[(m + r) * AM + k * AK]);
          for (int l = 0; l < 16; l++) sum[r][l] = MAD(v, panel[k * 16 + l], sum[r][l]);
        }
      for (int r = 0; r < 4; r++)
        for (long l = 0; l < wide; l++) c[(m + r) * NN + n + l] = sum[r][l];
    }
    for (; m < MM; m++) {
      S sum[16];
      for (int l = 0; l < 16; l++) sum[l] = 0;
      for (long k = 0; k < KK; k++) {
        const S v = A_OF(a[m * AM + k * AK]);
        for (int l = 0; l < 16; l++) sum[l] = MAD(v, panel[k * 16 + l], sum[l]);
      }
      for (long l = 0; l < wide; l++) c[m * NN + n + l] = sum[l];
    }
  }
}
";

/// The type in which products of a type are summed: integers wrap around in unsigned ones.
fn sum_type(d: DType) -> &'static str {
    match d {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::I64 | DType::U64 => "unsigned long long",
        _ => "unsigned",
    }
}

/// The extents and strides of a product, as macros.
fn extents(p: &mut Program, [m, n, k]: [i64; 3], [am, ak, bk, bn]: [i64; 4]) {
    let all = [("MM", m), ("NN", n), ("KK", k), ("AM", am), ("AK", ak), ("BK", bk), ("BN", bn)];
    all.iter().for_each(|(name, v)| p.int(name, *v));
    p.table("product", PRODUCT.into());
}

/// Matrices of two operands and their places in a batch: shapes, and the result's without batch.
pub(super) struct Batched {
    pub extents: [i64; 3],
    pub batch: Vec<i64>,
    pub a: Vec<i64>,
    pub b: Vec<i64>,
}

impl Batched {
    /// The batched product of two shapes by NumPy's rules.
    pub fn of(a: &[i64], b: &[i64]) -> Result<Batched, String> {
        let (m, k, rows) = match a {
            [rest @ .., m, k] => (*m, *k, rest),
            [k] => (1, *k, &[][..]),
            [] => return Err("its first input is a scalar".into()),
        };
        let (n, columns) = match b {
            [rest @ .., _, n] => (*n, rest),
            _ => (1, &[][..]),
        };
        let batch = squall_core::graph::infer::broadcast(rows, columns)?;
        let scaled = |own: &[i64], size: i64| -> Vec<i64> {
            broadcast_strides(own, &batch).iter().map(|s| s * size).collect()
        };
        let (a, b) = (scaled(rows, m * k), scaled(columns, k * n));
        Ok(Batched { extents: [m, n, k], batch, a, b })
    }

    /// The loops over the batch around `call`, where `@A`, `@B` and `@C` are the matrices' places.
    pub fn text(&self, call: &str) -> String {
        let [m, n, _] = self.extents;
        let c: Vec<i64> = strides(&self.batch).iter().map(|s| s * m * n).collect();
        let call = call
            .replace("@A", &offset("i", &self.a))
            .replace("@B", &offset("i", &self.b))
            .replace("@C", &offset("i", &c));
        loops("i", &self.batch, &call)
    }
}

fn types(p: &mut Program, d: DType) -> Result<(), String> {
    if d == DType::Bool {
        return Err("elements of type bool are not supported".into());
    }
    p.sums(sum_type(d));
    for (macro_name, text) in
        [("TA", "T0"), ("TB", "T1"), ("A_OF(v)", "((S)(v))"), ("B_OF(v)", "((S)(v))")]
    {
        p.define(macro_name, text);
    }
    Ok(())
}

fn matmul(p: &mut Program) -> Result<(), String> {
    only(p, &[])?;
    let d = p.dtype(0)?;
    types(p, d)?;
    let batched = Batched::of(p.shape(0)?, p.shape(1)?)?;
    let [_, n, k] = batched.extents;
    extents(p, batched.extents, [k, 1, n, 1]);
    p.scratch_pointer("S", "panel", 16 * k, 8);
    let sums = sum_type(d);
    let direct = matches!(d, DType::F32 | DType::F64 | DType::U32 | DType::U64);
    if direct {
        let text = batched.text("    product(x0 + (@A), x1 + (@B), y0 + (@C), panel);");
        p.body(&text);
        return Ok(());
    }
    p.scratch_pointer(sums, "c", batched.extents[0] * n, 8);
    let text = batched.text(
        "    product(x0 + (@A), x1 + (@B), c, panel);\n    for (long j = 0; j < MM * NN; j++) \
         y0[(@C) + j] = (Y0)c[j];",
    );
    p.body(&text);
    Ok(())
}

fn gemm(p: &mut Program) -> Result<(), String> {
    only(p, &["alpha", "beta", "transA", "transB", "broadcast"])?;
    let d = p.dtype(0)?;
    types(p, d)?;
    let (ta, tb) = (p.ctx.int_or("transA", 0)? != 0, p.ctx.int_or("transB", 0)? != 0);
    let ([a0, a1], [_, b1], [m, n]) = (p.shape(0)?, p.shape(1)?, p.out()?) else {
        return Err("its operands are no matrices".into());
    };
    let k = if ta { *a0 } else { *a1 };
    let (am, ak) = if ta { (1, *a1) } else { (*a1, 1) };
    let (bk, bn) = if tb { (1, *b1) } else { (*b1, 1) };
    extents(p, [*m, *n, k], [am, ak, bk, bn]);
    let (alpha, beta) = (p.ctx.float_or("alpha", 1.0)?, p.ctx.float_or("beta", 1.0)?);
    let real = matches!(d, DType::F32 | DType::F64);
    if !real && (alpha.fract() != 0.0 || beta.fract() != 0.0) {
        return Err(format!("attributes `alpha` {alpha} and `beta` {beta} of integers"));
    }
    p.scratch_pointer("S", "panel", 16 * k, 8);
    p.scratch_pointer("S", "c", m * n, 8);
    let cast = if real { "" } else { "(S)(long long)" };
    let scaled = |v: &str, by: f32| match by == 1.0 {
        true => v.to_string(),
        false => format!("{cast}{} * {v}", super::program::number(f64::from(by))),
    };
    let mut value = scaled("c[i0 * NN + i1]", alpha);
    if p.has(2) {
        let place = offset("i", &broadcast_strides(p.shape(2)?, &[*m, *n]));
        value += &format!(" + {}", scaled(&format!("(S)x2[{place}]"), beta));
    }
    p.body("  product(x0, x1, c, panel);\n");
    let text = loops("i", &[*m, *n], &format!("    y0[i0 * NN + i1] = (Y0)({value});"));
    p.body(&text);
    Ok(())
}

/// Each element of the result is a sum over the indices that it lacks.
fn einsum(p: &mut Program) -> Result<(), String> {
    only(p, &["equation"])?;
    let d = p.dtype(0)?;
    types(p, d)?;
    let e = Equation::of(&p.ctx)?;
    let n = e.extents.len();
    // An index that an operand has twice walks along its diagonal.
    let along = |indices: &[usize], shape: &[i64]| {
        let own = strides(shape);
        let mut out = vec![0; n];
        let moving = indices.iter().zip(own).zip(shape).filter(|(_, e)| **e != 1);
        moving.for_each(|((i, s), _)| out[*i] += s);
        out
    };
    let mut steps = Vec::new();
    for (i, indices) in e.operands.iter().enumerate() {
        steps.push(along(indices, p.shape(i)?));
    }
    let free: Vec<usize> = (0..n).filter(|i| !e.result.contains(i)).collect();
    let of = |list: &[usize], s: &[i64]| list.iter().map(|i| s[*i]).collect::<Vec<i64>>();
    let terms: Vec<String> = steps
        .iter()
        .enumerate()
        .map(|(i, s)| {
            let (k, r) = (offset("k", &of(&e.result, s)), offset("r", &of(&free, s)));
            format!("(S)x{i}[{k} + {r}]")
        })
        .collect();
    let kept = of(&e.result, &e.extents);
    let inner = format!(
        "    S sum = 0;\n{}    y0[{}] = (Y0)sum;",
        loops("r", &of(&free, &e.extents), &format!("    sum += {};", terms.join(" * "))),
        offset("k", &strides(&kept))
    );
    let text = loops("k", &kept, &inner);
    p.body(&text);
    Ok(())
}

/// By elimination with the largest pivot, in double precision.
fn det(p: &mut Program) -> Result<(), String> {
    only(p, &[])?;
    p.real0()?;
    let n = p.shape(0)?.last().copied().unwrap_or(1);
    p.int("NN", n);
    p.scratch_pointer("double", "a", n * n, 8);
    p.body(
        "  for (long b = 0; b < M0; b++) {
    double result = 1;
    for (long i = 0; i < NN * NN; i++) a[i] = x0[b * NN * NN + i];
    for (long c = 0; c < NN; c++) {
      long pivot = c;
      for (long r = c + 1; r < NN; r++) {
        if (fabs(a[r * NN + c]) > fabs(a[pivot * NN + c])) pivot = r;
      }
      if (pivot != c) {
        result = -result;
        for (long j = 0; j < NN; j++) {
          double t = a[c * NN + j];
          a[c * NN + j] = a[pivot * NN + j], a[pivot * NN + j] = t;
        }
      }
      result *= a[c * NN + c];
      if (a[c * NN + c] == 0) break;
      for (long r = c + 1; r < NN; r++) {
        double f = a[r * NN + c] / a[c * NN + c];
        for (long j = c; j < NN; j++) a[r * NN + j] -= f * a[c * NN + j];
      }
    }
    y0[b] = (Y0)result;
  }
",
    );
    Ok(())
}
