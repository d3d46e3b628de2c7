//! Plain kernels (untuned C for one ONNX operator) of signal processing: Fourier transforms (`DFT`,
//! `STFT`), window functions and `MelWeightMatrix`. Input: a call at constant shapes; output: C;
//! windows and mel weights are computed at generation time and printed as tables; `fourier.rs` has
//! the transforms for GPUs. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::fourier::{Transform, on_device};
use super::program::{Program, number as literal, product};
use super::reduce::split_at;
use squall_core::graph::infer::{Fourier, frames, number};

pub(super) const OPS: &[(&str, Generator)] = &[
    ("BlackmanWindow", window),
    ("DFT", dft),
    ("HammingWindow", window),
    ("HannWindow", window),
    ("MelWeightMatrix", mel),
    ("STFT", stft),
];

/// Writes a result whose values are known at generation time, as a table.
fn values(p: &mut Program, values: &[f64]) {
    let list: Vec<String> = values.iter().map(|v| literal(*v)).collect();
    p.table("VALUES", format!("static const double VALUES[] = {{{}}};\n", list.join(", ")));
    if !values.is_empty() {
        p.body("  for (long i = 0; i < M0; i++) y0[i] = (Y0)VALUES[i];\n");
    }
}

/// The window functions.
fn window(p: &mut Program) -> Result<(), String> {
    only(p, &["output_datatype", "periodic"])?;
    let size = product(p.out()?);
    let n = match p.ctx.int_or("periodic", 1)? != 0 {
        true => size as f64,
        false => (size - 1) as f64,
    };
    let form = |i: i64| {
        let a = 2.0 * std::f64::consts::PI * i as f64 / n;
        match p.ctx.node.op.as_str() {
            "HannWindow" => 0.5 - 0.5 * a.cos(),
            "HammingWindow" => 25.0 / 46.0 - 21.0 / 46.0 * a.cos(),
            _ => 0.42 - 0.5 * a.cos() + 0.08 * (2.0 * a).cos(),
        }
    };
    if size > 1 << 20 {
        return Err(format!("a window of {size} elements is not supported"));
    }
    let list: Vec<f64> = (0..size).map(form).collect();
    values(p, &list);
    Ok(())
}

fn mel(p: &mut Program) -> Result<(), String> {
    only(p, &["output_datatype"])?;
    let [bins, bands] = *p.out()? else { return Err("its result is no matrix".into()) };
    let get = |i: usize, what: &str| number(&p.ctx, i, what);
    let (length, rate) = (get(1, "dft_length")?, get(2, "sample_rate")?);
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let (low, high) = (mel(get(3, "lower_edge_hertz")?), mel(get(4, "upper_edge_hertz")?));
    let step = (high - low) / (bands + 2) as f64;
    let bin = |i: i64| {
        let hertz = 700.0 * (10f64.powf((i as f64 * step + low) / 2595.0) - 1.0);
        ((length + 1.0) * hertz / rate).floor() as i64
    };
    if bins.saturating_mul(bands) > 1 << 20 {
        return Err(format!("{bins} bins of {bands} bands are not supported"));
    }
    let mut list = vec![0.0; (bins * bands) as usize];
    for i in 0..bands {
        let (lower, center, higher) = (bin(i), bin(i + 1), bin(i + 2));
        if lower < 0 || higher > bins {
            return Err("its band edges lie outside the spectrum".into());
        }
        let mut set = |j: i64, v: f64| {
            if j < bins {
                list[(j * bands + i) as usize] = v;
            }
        };
        if center == lower {
            set(center, 1.0);
        } else {
            (lower..=center).for_each(|j| set(j, (j - lower) as f64 / (center - lower) as f64));
        }
        (center..higher).for_each(|j| set(j, (higher - j) as f64 / (higher - center) as f64));
    }
    values(p, &list);
    Ok(())
}

/// Cosines and sines of one turn in `LENGTH` steps.
fn circle(p: &mut Program, length: i64) {
    p.int("LENGTH", length);
    p.scratch_pointer("double", "turn", 2 * length, 8);
    p.body(
        "  for (long i = 0; i < LENGTH; i++) {
    turn[2 * i] = cos(2 * 3.14159265358979323846 * (double)i / (double)LENGTH);
    turn[2 * i + 1] = sin(2 * 3.14159265358979323846 * (double)i / (double)LENGTH);
  }
",
    );
}

/// Signals that are transformed side by side.
const SIDE_BY_SIDE: i64 = 8;

/// The factors of a length, fours first; the largest primes make passes of as many steps each.
fn factors(length: i64) -> Vec<i64> {
    let (mut rest, mut all) = (length, Vec::new());
    let mut divisors = [4i64, 2].into_iter().chain((3..).step_by(2));
    while let Some(d) = divisors.next().filter(|_| rest > 1) {
        let d = if d > 4 && d.saturating_mul(d) > rest { rest } else { d };
        while rest % d == 0 && rest > 1 {
            all.push(d);
            rest /= d;
        }
    }
    all
}

/// `fft` of `length` points and what it works in: `re`, `im` and two more of their kind.
fn transform(p: &mut Program, length: i64, factors: &[i64]) {
    p.int("SIGNALS", SIDE_BY_SIDE);
    p.int("PASSES", factors.len() as i64);
    p.ints("FACTORS", factors);
    p.table("fft", include_str!("fft.c").into());
    for name in ["re", "im", "re2", "im2"] {
        p.scratch_pointer("double", name, length * SIDE_BY_SIDE, 8);
    }
}

fn dft(p: &mut Program) -> Result<(), String> {
    only(p, &["axis", "inverse", "onesided"])?;
    p.real0()?;
    let f = Fourier::of(&p.ctx)?;
    let x = p.shape(0)?;
    let (inner, parts) = (&x[..x.len() - 1], x[x.len() - 1]);
    split_at(p, inner, f.axis);
    let inverse = p.ctx.int_or("inverse", 0)? != 0;
    circle(p, f.length);
    let factors = factors(f.length);
    transform(p, f.length, &factors);
    p.int("PARTS", parts);
    p.int("RESULTS", f.results);
    p.int("GIVEN", x[f.axis].min(if f.half_inverse { f.length / 2 + 1 } else { f.length }));
    let imaginary = if parts == 2 { "x0[from + 1]" } else { "0" };
    dft_on_device(p, &f, inverse, &factors);
    let (sign, end) = if inverse { ("1.0", " / LENGTH") } else { ("-1.0", "") };
    // Half a spectrum stands for a whole one: its other half is conjugate.
    let mirror = match f.half_inverse {
        true => {
            "    for (long n = LENGTH / 2 + 1; n < LENGTH; n++)
      for (long l = 0; l < count; l++) {
        re[n * SIGNALS + l] = re[(LENGTH - n) * SIGNALS + l];
        im[n * SIGNALS + l] = -im[(LENGTH - n) * SIGNALS + l];
      }
"
        }
        false => "",
    };
    let store = match f.half_inverse {
        true => format!("y0[at] = (Y0)(re[k * SIGNALS + l]{end});"),
        false => format!(
            "y0[2 * at] = (Y0)(re[k * SIGNALS + l]{end}), y0[2 * at + 1] = (Y0)(im[k * SIGNALS + \
             l]{end});"
        ),
    };
    p.body(&format!(
        "  for (long first = 0; first < OUTER * INNER; first += SIGNALS) {{
    const long left = OUTER * INNER - first, count = left < SIGNALS ? left : SIGNALS;
    memset(re, 0, sizeof(double) * LENGTH * SIGNALS);
    memset(im, 0, sizeof(double) * LENGTH * SIGNALS);
    for (long l = 0; l < count; l++) {{
      const long o = (first + l) / INNER, i = (first + l) % INNER;
      for (long n = 0; n < GIVEN; n++) {{
        const long from = ((o * EXTENT + n) * INNER + i) * PARTS;
        re[n * SIGNALS + l] = x0[from], im[n * SIGNALS + l] = {imaginary};
      }}
    }}
{mirror}    fft({sign}, turn, re, im, re2, im2);
    for (long l = 0; l < count; l++) {{
      const long o = (first + l) / INNER, i = (first + l) % INNER;
      for (long k = 0; k < RESULTS; k++) {{
        const long at = (o * RESULTS + k) * INNER + i;
        {store}
      }}
    }}
  }}
"
    ));
    Ok(())
}

/// The transforms on a GPU. Points that are not given are 0, and half a spectrum stands for a whole
/// one.
fn dft_on_device(p: &mut Program, f: &Fourier, inverse: bool, factors: &[i64]) {
    let imaginary = if p.value("PARTS") == Some(2) { "x0[from + 1]" } else { "0" };
    let point = match f.half_inverse {
        true => "n > LENGTH / 2 ? LENGTH - n : n",
        false => "n",
    };
    let mirror = if f.half_inverse { " if (n > LENGTH / 2) vi = -vi;" } else { "" };
    let end = if inverse { " / LENGTH" } else { "" };
    let stored = match f.half_inverse {
        true => format!("y0[at] = (Y0)(vr{end});"),
        false => format!("y0[2 * at] = (Y0)(vr{end}), y0[2 * at + 1] = (Y0)(vi{end});"),
    };
    let t = Transform {
        length: f.length,
        sign: if inverse { 1.0 } else { -1.0 },
        read: format!(
            "const long given = {point}, from = ((o * EXTENT + given) * INNER + i) * PARTS; vr = \
             0, vi = 0; if (given < GIVEN) vr = x0[from], vi = {imaginary};{mirror}"
        ),
        store: format!(
            "if (n < RESULTS) {{ const long at = (o * RESULTS + n) * INNER + i; {stored} }}"
        ),
    };
    let signals = p.value("OUTER").unwrap_or(0) * p.value("INNER").unwrap_or(0);
    on_device(p, &t, factors, signals as i64);
}

fn stft(p: &mut Program) -> Result<(), String> {
    only(p, &["onesided"])?;
    p.real0()?;
    let (x, (step, length), out) = (p.shape(0)?, frames(&p.ctx)?, p.out()?);
    circle(p, length);
    let factors = factors(length);
    transform(p, length, &factors);
    for (name, v) in [
        ("BATCH", x[0]),
        ("SIGNAL", x[1]),
        ("PARTS", x[2]),
        ("STEP", step),
        ("FRAMES", out[1]),
        ("BINS", out[2]),
    ] {
        p.int(name, v);
    }
    let imaginary = if x[2] == 2 { "x0[from + 1]" } else { "0" };
    let weight = if p.has(2) { "x2[n]" } else { "1" };
    p.int("OUTER", x[0] * out[1]);
    p.int("INNER", 1);
    let on_gpu = Transform {
        length,
        sign: -1.0,
        read: format!(
            "const long from = (o / FRAMES * SIGNAL + o % FRAMES * STEP + n) * PARTS; vr = \
             (double)x0[from] * {weight}, vi = (double){imaginary} * {weight};"
        ),
        store: "if (n < BINS) { const long at = (o * BINS + n) * 2; y0[at] = (Y0)vr, y0[at + 1] = \
                (Y0)vi; }"
            .into(),
    };
    on_device(p, &on_gpu, &factors, x[0] * out[1]);
    p.body(&format!(
        "  for (long b = 0; b < BATCH; b++)
  for (long first = 0; first < FRAMES; first += SIGNALS) {{
    const long left = FRAMES - first, count = left < SIGNALS ? left : SIGNALS;
    memset(re, 0, sizeof(double) * LENGTH * SIGNALS);
    memset(im, 0, sizeof(double) * LENGTH * SIGNALS);
    for (long l = 0; l < count; l++)
      for (long n = 0; n < LENGTH; n++) {{
        const long from = (b * SIGNAL + (first + l) * STEP + n) * PARTS;
        re[n * SIGNALS + l] = (double)x0[from] * {weight};
        im[n * SIGNALS + l] = (double){imaginary} * {weight};
      }}
    fft(-1.0, turn, re, im, re2, im2);
    for (long l = 0; l < count; l++)
      for (long k = 0; k < BINS; k++) {{
        const long at = ((b * FRAMES + first + l) * BINS + k) * 2;
        y0[at] = (Y0)re[k * SIGNALS + l], y0[at + 1] = (Y0)im[k * SIGNALS + l];
      }}
  }}
"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::factors;

    #[test]
    fn factors_make_the_length() {
        for n in 1..2000 {
            let all = factors(n);
            assert_eq!(all.iter().product::<i64>(), n, "{all:?}");
            assert!(all.iter().all(|f| *f == 4 || (2..*f).all(|d| f % d != 0)), "{all:?}");
        }
        assert_eq!(factors(512), [4, 4, 4, 4, 2]);
        assert_eq!(factors(2 * 1009), [2, 1009]);
    }
}
