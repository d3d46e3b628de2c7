//! The body of a Fourier transform for a GPU, whose threads share passes over all signals. Input:
//! a [`Transform`] (how points are read and results stored, as C) and the factors of its length.
//! Output: the body, a loop for each pass, or one function in which each warp transforms signals as
//! a whole, where signals are many and short. The body for a CPU is in `signal.rs`.
//!
//! A pass takes one small factor or two, where a thread keeps the points of both in registers
//! (`fft_step.c`), or a large prime, where a thread makes one result of the prime's transform. The
//! first pass reads the operand and the last one writes the result; points between passes lie in
//! scratch memory.

use super::program::{DeviceLaunch, Launched, OF_WARP, Program};
use std::fmt::Write as _;

/// The texts by which a transform reads and stores. `OUTER` times `INNER` signals have `LENGTH`
/// points each; `o` and `i` are a signal's numbers.
pub(super) struct Transform {
    /// The number of points.
    pub length: i64,
    /// 1 for a transform back, -1 for one forward.
    pub sign: f64,
    /// C that sets `vr` and `vi` to point `n`.
    pub read: String,
    /// C that stores `vr` and `vi` as result `n`, where that is asked for.
    pub store: String,
}

/// The most points of a transform whose cosines and sines stand in the text as a table. The body of
/// a longer transform computes them first.
const MOST_WRITTEN: i64 = 4096;
/// The largest factor that a thread transforms as a whole, and the most points that it keeps.
const MOST_RADIX: i64 = 7;
const MOST_KEPT: i64 = 16;

/// The most points of a signal that a warp transforms, and the least number of such signals: of
/// fewer ones too few threads would be at work. A launch for each pass would take longer.
const OF_WARPS: [i64; 2] = [2048, 16];

/// The factors of each pass: one, or two that a thread takes together.
fn passes(factors: &[i64]) -> Vec<[i64; 2]> {
    let mut all: Vec<[i64; 2]> = Vec::new();
    for &f in factors {
        match all.last_mut() {
            Some([a, b])
                if *b == 1 && *a <= MOST_RADIX && f <= MOST_RADIX && *a * f <= MOST_KEPT =>
            {
                *b = f;
            }
            _ => all.push([f, 1]),
        }
    }
    if all.is_empty() {
        all.push([1, 1]);
    }
    all
}

/// A pass among the others.
struct Pass {
    factors: [i64; 2],
    /// The points of each transform that is left to do, and how many of those lie side by side.
    size: i64,
    run: i64,
    /// C that sets `vr` and `vi` to point `n`, and that stores them as point `n`.
    read: String,
    store: String,
    by_warps: bool,
}

/// Gives a call the body of `t` for a GPU; `signals` is the number of signals.
pub(super) fn on_device(p: &mut Program, t: &Transform, factors: &[i64], signals: i64) {
    let passes = passes(factors);
    p.define("SIGN", if t.sign < 0.0 { "(-1.0)" } else { "1.0" });
    p.table("fft_step", super::program::without_comment(include_str!("fft_step.c")).into());
    let by_warps = t.length <= OF_WARPS[0] && signals >= OF_WARPS[1];
    let mut text = turn(p, t.length);
    for n in 0..(passes.len() - 1).min(2) {
        text += &p.device_pointer("double", &format!("points{n}"), signals * t.length * 2, 8);
    }
    if by_warps {
        text += OF_WARP;
        text += "  (void)step_;
  for (long signal = warp; signal < OUTER * INNER; signal += warps) {
  const long o = signal / INNER, i = signal % INNER;
";
    }
    let (mut size, mut run) = (t.length, 1);
    for (n, factors) in passes.iter().enumerate() {
        // A pass reads the points that the pass before it wrote, in one of two places.
        let place = |n: usize| format!("points{} + ((o * LENGTH + n) * INNER + i) * 2", n % 2);
        let read = match n {
            0 => t.read.clone(),
            _ => format!("const double *p = {}; vr = p[0], vi = p[1];", place(n - 1)),
        };
        let store = match n + 1 == passes.len() {
            true => t.store.clone(),
            false => format!("double *p = {}; p[0] = vr, p[1] = vi;", place(n)),
        };
        let pass = Pass { factors: *factors, size, run, read, store, by_warps };
        text += &pass.text();
        if by_warps && n + 1 < passes.len() {
            text += "  __syncwarp();\n";
        }
        size /= factors[0] * factors[1];
        run *= factors[0] * factors[1];
    }
    if !by_warps {
        return p.on_device(&text);
    }
    text += "  }\n";
    let launches = vec![DeviceLaunch { function: 0, width: 32 * signals as u64, step: 0 }];
    p.launched_on_device(Launched { functions: vec![text], launches });
}

/// The cosines and sines that passes read as `TURN`: a table, or text that computes them.
fn turn(p: &mut Program, length: i64) -> String {
    if length <= MOST_WRITTEN {
        let part = |i: i64| 2.0 * std::f64::consts::PI * i as f64 / length as f64;
        let all: Vec<f64> = (0..length).flat_map(|i| [part(i).cos(), part(i).sin()]).collect();
        p.doubles("TURN", &all);
        return String::new();
    }
    p.device_pointer("double", "TURN", 2 * length, 8)
        + "  for (long i = 0; i < LENGTH; i++) {
    TURN[2 * i] = cos(2 * 3.14159265358979323846 * (double)i / (double)LENGTH);
    TURN[2 * i + 1] = sin(2 * 3.14159265358979323846 * (double)i / (double)LENGTH);
  }
"
}

impl Pass {
    fn text(&self) -> String {
        match self.factors[0] > MOST_RADIX {
            true => self.by_results(),
            false => self.by_steps(),
        }
    }

    /// Loops over a pass's instances, numbered by these names and counts, of all signals or of the
    /// warp's own.
    fn loops(&self, axes: &[(&str, i64)]) -> String {
        if !self.by_warps {
            let inner: String = axes
                .iter()
                .map(|(a, n)| format!("  for (long {a} = 0; {a} < {n}; {a}++)\n"))
                .collect();
            return format!(
                "  for (long o = 0; o < OUTER; o++)\n{inner}  for (long i = 0; i < INNER; i++) {{\n"
            );
        }
        let all: i64 = axes.iter().map(|a| a.1).product();
        let mut text = format!("  for (int all = lane; all < {all}; all += 32) {{\n");
        let mut apart = all;
        for (a, n) in axes {
            apart /= n;
            let _ = writeln!(text, "    const long {a} = all / {apart} % {n};");
        }
        text
    }

    /// Each thread makes one result of a transform of as many points as the factor says.
    fn by_results(&self) -> String {
        let (radix, run, read, store) = (self.factors[0], self.run, &self.read, &self.store);
        let part = self.size / radix;
        let step = format!("(LENGTH / {}L)", self.size);
        format!(
            "{loops}    double a = 0, b = 0, vr, vi;
    long w = 0;
    for (long j = 0; j < {radix}; j++) {{
      const long n = k * {run}L + q + j * {apart}L;
      {{ {read} }}
      const double wc = TURN[2 * (w * (LENGTH / {radix}L))];
      const double ws = SIGN * TURN[2 * (w * (LENGTH / {radix}L)) + 1];
      if (j) a += vr * wc - vi * ws, b += vr * ws + vi * wc;
      else a = vr, b = vi;
      w = w + r < {radix}L ? w + r : w + r - {radix}L;
    }}
    const double c = TURN[2 * k * r * {step}], s = SIGN * TURN[2 * k * r * {step} + 1];
    const long n = (k * {radix}L + r) * {run}L + q;
    vr = a * c - b * s, vi = a * s + b * c;
    {{ {store} }}
  }}
",
            loops = self.loops(&[("k", part), ("r", radix), ("q", run)]),
            apart = part * run,
        )
    }

    /// Each thread transforms the points of both factors.
    fn by_steps(&self) -> String {
        let ([one, two], run) = (self.factors, self.run);
        let (read, store) = (&self.read, &self.store);
        let mut text = format!(
            "{loops}    double re[{all}], im[{all}], vr, vi;
    for (long j = 0; j < {two}; j++) {{
      const long m = k + j * {part}L;
      for (long l = 0; l < {one}; l++) {{
        const long n = m * {run}L + q + l * {apart}L;
        {{ {read} }}
        re[j * {one}L + l] = vr, im[j * {one}L + l] = vi;
      }}
      fft_step({one}L, m, LENGTH / {size}L, SIGN, TURN, re + j * {one}L, im + j * {one}L);
    }}
    for (long l = 0; l < {one}; l++) {{
      double r[{two}], t[{two}];
      for (long j = 0; j < {two}; j++) r[j] = re[j * {one}L + l], t[j] = im[j * {one}L + l];
",
            loops = self.loops(&[("k", self.size / (one * two)), ("q", run)]),
            part = self.size / (one * two),
            all = one * two,
            apart = self.size / one * run,
            size = self.size,
        );
        if two > 1 {
            let _ = writeln!(
                text,
                "      fft_step({two}L, k, LENGTH / {}L, SIGN, TURN, r, t);",
                self.size / one
            );
        }
        let _ = write!(
            text,
            "      for (long j = 0; j < {two}; j++) {{
        const long n = ((k * {two}L + j) * {one}L + l) * {run}L + q;
        vr = r[j], vi = t[j];
        {{ {store} }}
      }}
    }}
  }}
"
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::passes;

    #[test]
    fn passes_take_small_factors_in_pairs() {
        assert_eq!(passes(&[4, 4, 4, 4, 2]), [[4, 4], [4, 4], [2, 1]]);
        assert_eq!(passes(&[2, 1009]), [[2, 1], [1009, 1]]);
        assert_eq!(passes(&[3, 5, 7, 11]), [[3, 5], [7, 1], [11, 1]]);
        assert_eq!(passes(&[]), [[1, 1]]);
    }
}
