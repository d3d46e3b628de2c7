//! The C helper functions `sin_vN`, `cos_vN`, `tanh_vN` and `log_vN` of vectors of N floats: with
//! no branch but for numbers that are very large. Input: the set of helpers and the vector widths
//! that a kernel used; output: their C text, which `c_prelude.rs` puts ahead of the kernel. Errors
//! are at most 1.6 units in the last place of sines and cosines, 2.5 of tanh and 0.9 of logarithms,
//! tried over millions of arguments. NaN, infinities, zeros and denormal numbers are as the C
//! library has them.

use super::dialect::Used;

/// Name and form; `@` is the number of lanes.
const FORMS: &[(&str, &str)] = &[("sin", SIN), ("cos", COS), ("tanh", TANH), ("log", LOG)];

/// Whether a function of vectors is one of these.
pub fn has(name: &str) -> bool {
    FORMS.iter().any(|(n, _)| *n == name)
}

/// The functions on vectors of `l` lanes that a kernel uses.
pub fn vectors(l: i64, used: &Used) -> String {
    let turns = ["sin", "cos"].iter().any(|f| used.has(f));
    let before = if turns { TURNED } else { "" };
    let forms = FORMS.iter().filter(|(name, _)| used.has(name)).map(|(_, form)| *form);
    let text: String = std::iter::once(before).chain(forms).collect();
    text.replace('@', &l.to_string())
}

/// The sine of x plus a quarter turn `first` times: the remainder of x by quarter turns, in three
/// parts (after Cody and Waite), and the polynomials of Cephes' `sinf` and `cosf`. Without fused
/// multiply-add the parts have so few bits that their products are exact. `far_vN` are the lanes
/// that are too large for it, or no numbers.
const TURNED: &str = "static inline v@ turned_v@(v@ x, int first) {
  v@ n = fma_v@(x, all_v@(0.636619772f), all_v@(12582912.0f)) - 12582912.0f;
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  v@ r = fma_v@(n, all_v@(-1.57079637f), x);
  r = fma_v@(n, all_v@(1.71512451e-15f), fma_v@(n, all_v@(4.37113883e-8f), r));
#else
  v@ r = x - n * 1.5703125f - n * 4.837512969970703125e-4f - n * 7.54978995489188216e-8f;
#endif
  v@ z = r * r;
  v@ s = fma_v@(z, all_v@(-1.9515295891e-4f), all_v@(8.3321608736e-3f));
  s = fma_v@(fma_v@(z, s, all_v@(-1.6666654611e-1f)), z * r, r);
  v@ c = fma_v@(z, all_v@(2.443315711809948e-5f), all_v@(-1.388731625493765e-3f));
  c = fma_v@(z, c, all_v@(4.166664568298827e-2f));
  c = fma_v@(z * z, c, fma_v@(z, all_v@(-0.5f), all_v@(1.0f)));
  i@ q = __builtin_convertvector(n, i@) + first, odd = -(q & 1);
  i@ y = (odd & (i@)c) | (~odd & (i@)s);
  return (v@)(y ^ ((q & 2) << 30));
}
static inline i@ far_v@(v@ x) { return ~(abs_v@(x) < 8192.0f); }
static inline int any_v@(i@ x) {
  int any = 0;
  for (int i = 0; i < @; i++) any |= x[i];
  return any;
}
";

const SIN: &str = "static inline v@ sin_v@(v@ x) {
  v@ y = turned_v@(x, 0);
  i@ zero = x == 0.0f;
  y = (v@)((zero & (i@)x) | (~zero & (i@)y));
  i@ far = far_v@(x);
  if (any_v@(far)) for (int i = 0; i < @; i++) if (far[i]) y[i] = sinf(x[i]);
  return y;
}
";

const COS: &str = "static inline v@ cos_v@(v@ x) {
  v@ y = turned_v@(x, 1);
  i@ far = far_v@(x);
  if (any_v@(far)) for (int i = 0; i < @; i++) if (far[i]) y[i] = cosf(x[i]);
  return y;
}
";

/// tanh x = m / (m + 2) with m = e^2x - 1, which is s (t + t t p) + (s - 1) for the power of two s
/// and e^t = 1 + t + t t p, so that nothing cancels where x is small. Behind 9.25 it is 1.
const TANH: &str = "static inline v@ tanh_v@(v@ x) {
  v@ a = min_v@(all_v@(18.5f), max_v@(all_v@(-18.5f), x + x));
  v@ n = fma_v@(a, all_v@(1.44269504f), all_v@(12583039.0f));
  v@ s = (v@)((i@)n << 23);
  n -= 12583039.0f;
  v@ t = fma_v@(n, all_v@(2.12194440e-4f), fma_v@(n, all_v@(-0.693359375f), a));
  v@ p = fma_v@(all_v@(1.3882517e-3f), t, all_v@(8.3665475e-3f));
  p = fma_v@(p, t, all_v@(4.1667201e-2f)), p = fma_v@(p, t, all_v@(1.6666543e-1f));
  p = fma_v@(p, t, all_v@(4.9999997e-1f));
  p = fma_v@(s, fma_v@(t * t, p, t), s - 1.0f);
  return (v@)((i@)(p / (p + 2.0f)) | ((i@)x & (int)0x80000000));
}
";

/// Cephes' `logf`: x is m 2^k with m between the roots of a half and of two, and log m a polynomial
/// of m - 1.
const LOG: &str = "static inline v@ log_v@(v@ x) {
  i@ tiny = x < 1.17549435e-38f;
  v@ y = (v@)((tiny & (i@)(x * 8388608.0f)) | (~tiny & (i@)x));
  i@ b = (i@)y - 0x3f3504f3, k = (b >> 23) - (tiny & 23);
  v@ f = (v@)((b & 0x7fffff) + 0x3f3504f3) - 1.0f, n = __builtin_convertvector(k, v@), z = f * f;
  v@ p = fma_v@(f, all_v@(7.0376836292e-2f), all_v@(-1.1514610310e-1f));
  p = fma_v@(f, p, all_v@(1.1676998740e-1f)), p = fma_v@(f, p, all_v@(-1.2420140846e-1f));
  p = fma_v@(f, p, all_v@(1.4249322787e-1f)), p = fma_v@(f, p, all_v@(-1.6668057665e-1f));
  p = fma_v@(f, p, all_v@(2.0000714765e-1f)), p = fma_v@(f, p, all_v@(-2.4999993993e-1f));
  p = fma_v@(f, p, all_v@(3.3333331174e-1f)) * f * z;
  p = fma_v@(z, all_v@(-0.5f), fma_v@(n, all_v@(-2.12194440e-4f), p));
  v@ r = fma_v@(n, all_v@(0.693359375f), f + p);
  i@ odd = ~((x > 0.0f) & (x < INFINITY)), zero = x == 0.0f, below = (x < 0.0f) & 0x7fc00000;
  i@ other = (zero & (i@)all_v@(-INFINITY)) | (~zero & ((i@)x | below));
  return (v@)((odd & other) | (~odd & (i@)r));
}
";
