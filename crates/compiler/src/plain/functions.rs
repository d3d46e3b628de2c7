//! C helper functions that the bodies of plain kernels may call, such as `exp_f32` or `madf`, by
//! name. (A plain kernel is untuned C for one operator.) `program.rs` prints only those that a body
//! names, in this order, in which each function uses only earlier ones.

/// Name and definition.
pub(super) const HELPERS: &[(&str, &str)] = &[
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
    ("lanes", include_str!("lanes.c")),
    ("dot_matrix", include_str!("dots.c")),
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
