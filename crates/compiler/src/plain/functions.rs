//! C helper functions that the bodies of plain kernels may call, such as `exp_f32` or `madf`, by
//! name. (A plain kernel is untuned C for one operator.) `program.rs` prints only those that a body
//! names, in this order, in which each function uses only earlier ones.

/// Name and definition.
pub(super) const HELPERS: &[(&str, &str)] = &[
    (
        // The kind of build, on which the extents of packed panels depend: a call refuses panels of
        // another.
        "PACKED_BY",
        r#"enum { PACKED_BY = 0x5eed00
#ifdef __AVX__
+ 1
#endif
#ifdef __AVX2__
+ 2
#endif
#ifdef __AVX512F__
+ 4
#endif
#if defined __AVX512BW__ && defined __AVX512VNNI__
+ 8
#endif
};
"#,
    ),
    (
        // Compilers are not to contract products and sums as they like, or a text would give other
        // bits at another level of optimisation. Long sums of products say where they may be, for
        // that is twice as fast where the processor has such instructions.
        "madf",
        r#"#if defined __FMA__ || defined __ARM_FEATURE_FMA
static inline float madf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
static inline float madf(float a, float b, float c) { return c + a * b; }
#endif
"#,
    ),
    (
        // The same of doubles.
        "mad",
        r#"#if defined __FMA__ || defined __ARM_FEATURE_FMA
static inline double mad(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
static inline double mad(double a, double b, double c) { return c + a * b; }
#endif
"#,
    ),
    (
        // The same of `R`, the type that a kernel computes in.
        "mad_r",
        r#"#if defined __FMA__ || defined __ARM_FEATURE_FMA
static inline R mad_r(R a, R b, R c) { return F(__builtin_fma)(a, b, c); }
#else
static inline R mad_r(R a, R b, R c) { return c + a * b; }
#endif
"#,
    ),
    (
        // Argument reduction to |r| <= ln(2)/2 and a polynomial of degree 6, about 1 ulp; compilers
        // vectorise it. The power of two is applied in two halves.
        "exp_f32",
        r#"static inline float exp_f32(float x) {
  union { int i; float f; } a, b;
  float z = x < -104.0f ? -104.0f : x;
  z = z > 89.0f ? 89.0f : z;
  float n = (z * 1.44269504f + 12582912.0f) - 12582912.0f;
  float r = (z - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f, p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f, p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  int k = (int)(n == n ? n : 0.0f), h = k >> 1;
  a.i = (h + 127) * (1 << 23), b.i = (k - h + 127) * (1 << 23);
  return x == x ? p * a.f * b.f : x;
}
"#,
    ),
    (
        // By exp where |x| is not small, else a short odd polynomial; compilers vectorise it.
        "tanh_f32",
        r#"static inline float tanh_f32(float x) {
  const float a = x < 0 ? -x : x, q = x * x, big = 1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f);
  float s = q * -5.70498872e-3f + 2.06390887e-2f;
  s = q * s - 5.37397155e-2f, s = q * s + 1.33314422e-1f, s = q * s - 3.33332819e-1f;
  const float small = x * q * s + x;
  return x == 0 ? x : a > 0.625f ? (x < 0 ? -big : big) : small;
}
"#,
    ),
    (
        // 1 / (1 + e^-x), within 2.5 units in the last place: e^-x is s (1 + p) for the power of
        // two s, whose exponent stands in the last bits of `n` before 12583039 is taken from it.
        // Below -88.4 s is infinite and the result 0. NaN reaches the result through r and p.
        // `exp_f32` and a division have twice as many operations.
        "gate_sigmoid",
        r#"static inline float gate_sigmoid(float x) {
  union { float f; int i; } n, s;
  float a = x > 87.0f ? 87.0f : x;
  a = a < -89.0f ? -89.0f : a;
  n.f = madf(a, -1.44269504f, 12583039.0f);
  s.i = (int)((unsigned)n.i << 23);
  n.f -= 12583039.0f;
  const float r = madf(n.f, 2.12194440e-4f, madf(n.f, -0.693359375f, -a));
  float p = madf(1.9875691500e-4f, r, 1.3981999507e-3f);
  p = madf(p, r, 8.3334519073e-3f), p = madf(p, r, 4.1665795894e-2f);
  p = madf(p, r, 1.6666665459e-1f), p = madf(p, r, 5.0000001201e-1f);
  p = madf(r * r, p, r);
  return 1.0f / madf(s.f, 1.0f + p, 1.0f);
}
"#,
    ),
    (
        // m / (m + 2) with the sign of x and m = e^2|x| - 1 = s p + (s - 1), so that nothing
        // cancels where x is small; within 2.4 units in the last place, and 1 behind 9.25.
        "gate_tanh",
        r#"static inline float gate_tanh(float x) {
  union { float f; int i; } n, s, sign, y;
  float a = x < 0 ? -2.0f * x : 2.0f * x;
  a = a > 18.5f ? 18.5f : a;
  n.f = madf(a, 1.44269504f, 12583039.0f);
  s.i = (int)((unsigned)n.i << 23);
  n.f -= 12583039.0f;
  const float r = madf(n.f, 2.12194440e-4f, madf(n.f, -0.693359375f, a));
  float p = madf(1.9875691500e-4f, r, 1.3981999507e-3f);
  p = madf(p, r, 8.3334519073e-3f), p = madf(p, r, 4.1665795894e-2f);
  p = madf(p, r, 1.6666665459e-1f), p = madf(p, r, 5.0000001201e-1f);
  p = madf(s.f, madf(r * r, p, r), s.f - 1.0f);
  y.f = p / (p + 2.0f), sign.f = x;
  y.i |= sign.i & (-2147483647 - 1);
  return y.f;
}
"#,
    ),
    (
        // Cephes' `logf`: a power of two and a polynomial, within 0.9 units in the last place.
        "log_f32",
        r#"static inline float log_f32(float x) {
  union { float f; int i; } y, m;
  const int tiny = x < 1.17549435e-38f;
  y.f = tiny ? x * 8388608.0f : x;
  const int b = y.i - 0x3f3504f3;
  m.i = (b & 0x7fffff) + 0x3f3504f3;
  const float n = (float)((b >> 23) - (tiny ? 23 : 0)), f = m.f - 1.0f, z = f * f;
  float p = f * 7.0376836292e-2f - 1.1514610310e-1f;
  p = f * p + 1.1676998740e-1f, p = f * p - 1.2420140846e-1f, p = f * p + 1.4249322787e-1f;
  p = f * p - 1.6668057665e-1f, p = f * p + 2.0000714765e-1f, p = f * p - 2.4999993993e-1f;
  p = (f * p + 3.3333331174e-1f) * f * z;
  p = n * -2.12194440e-4f + p, p = z * -0.5f + p;
  const float r = n * 0.693359375f + (f + p);
  const float odd = x == 0 ? -INFINITY : x < 0 ? NAN : x;
  return x > 0 && x < INFINITY ? r : odd;
}
"#,
    ),
    (
        // This and the next are after Cephes, within 3.7 units in the last place and without a
        // branch, so that compilers vectorise them.
        "atan_f32",
        r#"static inline float atan_f32(float x) {
  const float a = x < 0 ? -x : x;
  const int far = a > 2.414213562f, mid = a > 0.4142135624f;
  const float d = far ? a : mid ? a + 1.0f : 1.0f;
  const float z = (far ? -1.0f : mid ? a - 1.0f : a) / d, q = z * z;
  float p = 8.05374449538e-2f * q - 1.38776856032e-1f;
  p = p * q + 1.99777106478e-1f, p = p * q - 3.33329491539e-1f;
  const float y = (far ? 1.57079637f : mid ? 0.785398163f : 0.0f) + (p * q * z + z);
  return x == 0 ? x : x < 0 ? -y : y;
}
"#,
    ),
    (
        // The arcsine of `s`, whose square is `z`, up to a half.
        "arc_f32",
        r#"static inline float arc_f32(float z, float s) {
  float p = 4.2163199048e-2f * z + 2.4181311049e-2f;
  p = p * z + 4.5470025998e-2f, p = p * z + 7.4953002686e-2f, p = p * z + 1.6666752422e-1f;
  return p * z * s + s;
}
"#,
    ),
    (
        "asin_f32",
        r#"static inline float asin_f32(float x) {
  const float a = x < 0 ? -x : x, z = a > 0.5f ? 0.5f * (1.0f - a) : a * a;
  const float r = arc_f32(z, a > 0.5f ? sqrtf(z) : a), y = a > 0.5f ? 1.57079637f - 2.0f * r : r;
  return x == 0 ? x : x < 0 ? -y : y;
}
"#,
    ),
    (
        "acos_f32",
        r#"static inline float acos_f32(float x) {
  const float a = x < 0 ? -x : x, z = a > 0.5f ? 0.5f * (1.0f - a) : a * a;
  const float r = arc_f32(z, a > 0.5f ? sqrtf(z) : a);
  return a > 0.5f ? (x < 0 ? 3.14159274f - 2.0f * r : 2.0f * r) : 1.57079637f - (x < 0 ? -r : r);
}
"#,
    ),
    (
        "sinh_f32",
        r#"static inline float sinh_f32(float x) {
  const float a = x < 0 ? -x : x, z = x * x, e = exp_f32(0.5f * a), q = e * e;
  const float big = 0.5f * e * e - 0.5f / q;
  float p = 2.03721912945e-4f * z + 8.33028376239e-3f;
  p = (p * z + 1.66667160211e-1f) * z * x + x;
  return a > 1.0f ? (x < 0 ? -big : big) : p;
}
"#,
    ),
    (
        "cosh_f32",
        r#"static inline float cosh_f32(float x) {
  const float e = exp_f32(0.5f * (x < 0 ? -x : x));
  return 0.5f * e * e + 0.5f / (e * e);
}
"#,
    ),
    (
        "asinh_f32",
        r#"static inline float asinh_f32(float x) {
  const float a = x < 0 ? -x : x, z = x * x;
  float p = 2.0122003309e-2f * z - 4.2699340972e-2f;
  p = p * z + 7.4847586088e-2f, p = (p * z - 1.6666288134e-1f) * z * x + x;
  const float far = log_f32(a) + 0.693147181f, near = log_f32(a + sqrtf(z + 1.0f));
  const float y = a > 1500.0f ? far : near;
  return a < 0.5f ? p : x < 0 ? -y : y;
}
"#,
    ),
    (
        "acosh_f32",
        r#"static inline float acosh_f32(float x) {
  const float z = x - 1.0f;
  float p = 1.7596881071e-3f * z - 7.5272886713e-3f;
  p = p * z + 2.6454905019e-2f, p = p * z - 1.1784741703e-1f, p = p * z + 1.4142135263f;
  const float far = log_f32(x) + 0.693147181f, near = log_f32(x + sqrtf(z * (x + 1.0f)));
  return z < 0.5f ? p * sqrtf(z) : x > 1500.0f ? far : near;
}
"#,
    ),
    (
        "atanh_f32",
        r#"static inline float atanh_f32(float x) {
  const float a = x < 0 ? -x : x, z = x * x, y = 0.5f * log_f32((1.0f + x) / (1.0f - x));
  float p = 1.81740078349e-1f * z + 8.24370301058e-2f;
  p = p * z + 1.46691431730e-1f, p = p * z + 1.99782164500e-1f;
  p = (p * z + 3.33337300303e-1f) * z * x + x;
  return a < 0.5f ? p : y;
}
"#,
    ),
    ("lanes", include_str!("lanes.c")),
    ("dot_matrix", include_str!("dots.c")),
    ("packed_panel", include_str!("packed.c")),
    ("matrix_by_loops", include_str!("matrix_by_loops.c")),
    ("packed_matrix", include_str!("packed_matrix.c")),
    ("columns_matrix", include_str!("columns_matrix.c")),
    ("panel_products", include_str!("panel.c")),
    ("larger_r", "static inline R larger_r(R a, R b) { return a > b || a != a ? a : b; }\n"),
    ("unit_r", "static inline R unit_r(R x) { return x < 0 ? C(0) : x > 1 ? C(1) : x; }\n"),
    ("tanh_r", "static inline R tanh_r(R x) { return TANH(x); }\n"),
    ("sigmoid_r", "static inline R sigmoid_r(R x) { return C(1) / (C(1) + EXP(-x)); }\n"),
    (
        "softplus_r",
        "static inline R softplus_r(R x) { return (x > 0 ? x : C(0)) + \
         F(log1p)(F(exp)(-F(fabs)(x))); }\n",
    ),
    (
        // The modulus of floats: a zero has the divisor's sign, too.
        "float_mod",
        r#"static inline R float_mod(R a, R b) {
  R r = F(fmod)(a, b);
  if (r != r || b == 0) return r;
  if (r == 0) return F(copysign)(0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
"#,
    ),
    (
        // The remainder whose sign follows the divisor, as in Python.
        "python_mod",
        "#define python_mod(T, a, b) ((T)((a) % (b)) != 0 && (((a) % (b)) < 0) != ((b) < 0) ? \
         (T)((a) % (b) + (b)) : (T)((a) % (b)))\n",
    ),
    (
        "integer_power",
        r#"static inline unsigned long long integer_power(unsigned long long a, long long n) {
  unsigned long long r = 1;
  for (; n > 0; n >>= 1, a *= a) {
    if (n & 1) r *= a;
  }
  return r;
}
"#,
    ),
    (
        // Ties to even, whatever the rounding mode is.
        "round_even",
        "static inline double round_even(double x) { double f = floor(x), d = x - f; return d < \
         0.5 ? f : d > 0.5 ? f + 1 : floor(f / 2) * 2 == f ? f : f + 1; }\n",
    ),
    (
        "to_i64",
        r#"static inline long long to_i64(double x) {
  if (!(x == x)) return -9223372036854775807LL - 1;
  if (x >= 9223372036854775808.0) return -9223372036854775807LL - 1;
  if (x < -9223372036854775808.0) return -9223372036854775807LL - 1;
  return (long long)x;
}
"#,
    ),
    (
        "to_u64",
        r#"static inline unsigned long long to_u64(double x) {
  if (!(x == x) || x <= -9223372036854775808.0 || x >= 18446744073709551616.0) return 0;
  return x < 0 ? (unsigned long long)(long long)x : (unsigned long long)x;
}
"#,
    ),
];
