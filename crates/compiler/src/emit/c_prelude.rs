//! The C text ahead of a kernel: vector types and helper functions (`exp_v8`, `max_f`, shuffles,
//! ..), only those that the kernel used and in the widths that it used. Input: the set `Used` that
//! the printer collected; output: C text.
//!
//! The text uses GCC's and Clang's vector extensions, so that it compiles for any instruction set.
//! Single instructions are called by their built-in names only where compilers do not find them by
//! themselves, behind a preprocessor test.

use super::dialect::Used;
use super::{c_fma, c_formats, c_functions, tiles};
use std::fmt::Write;

/// The types and functions that a program used.
pub fn text(used: &Used) -> String {
    let mut s = String::from("#include <stddef.h>\n");
    // Reading math.h takes longer than compiling a small kernel.
    if SCALAR.iter().any(|(n, ..)| used.has(n)) {
        s += "#include <math.h>\n";
    }
    s += &c_formats::scalars(used);
    s += &c_fma::scalars(used);
    if used.has("tiles") {
        s += &tiles::prelude();
        if used.has("dot_pair") {
            s += tiles::PRELUDE_PAIRS;
        }
    }
    for (name, strict, sign) in EXTREMES {
        for (suffix, ty) in [("f", "float"), ("d", "double")] {
            let head = format!("static inline {ty} {name}");
            if used.has(name) || used.has(strict) {
                let _ =
                    writeln!(s, "{head}_{suffix}({ty} a, {ty} b) {{ return a {sign} b ? a : b; }}");
            }
            if used.has(strict) {
                let _ = writeln!(
                    s,
                    "{head}_nan_{suffix}({ty} a, {ty} b) {{ {ty} m = {name}_{suffix}(a, b); \
                     return a != a ? a : m; }}"
                );
            }
        }
    }
    for &(name, f, d) in SCALAR.iter().filter(|x| used.has(x.0)) {
        let (arguments, call) = if name == "pow" { ("X x, X y", "x, y") } else { ("X x", "x") };
        for (suffix, ty, body) in [("f", "float", f), ("d", "double", d)] {
            let body =
                if body.contains('(') { body.to_string() } else { format!("{body}({call})") };
            let _ = writeln!(
                s,
                "static inline {ty} {name}_{suffix}({}) {{ return {body}; }}",
                arguments.replace('X', ty)
            );
        }
    }
    used.lanes.iter().for_each(|&l| vector(l, used, &mut s));
    let shuffles = ["even", "masked_even", "transpose", "interleave_low", "interleave_high"];
    if shuffles.iter().any(|f| used.has(f)) || ACROSS.iter().any(|(word, _)| used.has(word)) {
        s.insert_str(0, SHUFFLE);
    }
    if used.has("in_register") {
        s.insert_str(0, IN_REGISTER);
    }
    s
}

/// A number for each lane.
fn lanes(l: i64, f: impl Fn(i64) -> i64) -> String {
    (0..l).map(|i| f(i).to_string()).collect::<Vec<_>>().join(", ")
}

/// Every second element, of `l` from a place on and `l` from `l - 1` behind it, `a` and `b`.
fn shuffled_even(l: i64) -> String {
    let list = lanes(l, |i| if 2 * i < l { 2 * i } else { 2 * i + 1 });
    format!("SHUFFLE({l}, a, b, {list})")
}

/// The body of a function that one instruction does where a feature is there, by the name that GCC
/// has for it.
fn built_in(feature: &str, by_one: &str, portable: &str) -> String {
    format!(
        "\n#if defined({feature}) && !defined(__clang__)\n  {by_one}\n#else\n  \
         {portable}\n#endif\n"
    )
}

/// Every second element of the `2 * l - 1` from a place on.
fn every_second(l: i64) -> String {
    let at_once = shuffled_even(l);
    // Compilers do not see that AVX2, whose shuffles stay within halves, does it in two steps.
    let body = match l {
        8 => format!(
            "\n#if defined(__AVX2__) && !defined(__AVX512VL__)\n  \
             v8 t = SHUFFLE(8, a, b, 0, 2, 9, 11, 4, 6, 13, 15);\n  \
             return SHUFFLE(8, t, t, 0, 1, 4, 5, 2, 3, 6, 7);\n#else\n  return {at_once};\n#endif\n"
        ),
        _ => format!(" return {at_once}; "),
    };
    format!(
        "static inline v{l} even_v{l}(const float *p) {{ v{l} a = *(const v{l} *)p, b = \
         *(const v{l} *)(p + {});{body}}}\n",
        l - 1
    )
}

/// `inside_vN`: the lanes for which `0 <= from + step * lane < extent`. `some_vN`: loads those
/// lanes and reads no other element. `masked_vN` and `masked_even_vN`: in those lanes the elements
/// from a place on, or every second one, and in the other lanes those of `other`.
fn masked(l: i64, has_half: bool) -> String {
    let by_element = format!(
        "v{l} r = all_v{l}(0.0f); for (int i = 0; i < {l}; i++) if (m[i]) r[i] = p[i]; return r;"
    );
    let at_once = |call: &str| {
        let type_of = |ty: &str, name: &str| {
            format!("typedef {ty} {name} __attribute__((vector_size({})));", 4 * l)
        };
        let (w, k) = (type_of("float", "w"), type_of("int", "k"));
        let load = format!("{w} {k} return (v{l}){call}((const w *)p, (k)m);");
        built_in("__AVX__", &load, &by_element)
    };
    let some = match l {
        4 => at_once("__builtin_ia32_maskloadps"),
        8 => at_once("__builtin_ia32_maskloadps256"),
        16 if has_half => " union { i16 whole; i8 part[2]; } k = {m}; union { v8 part[2]; v16 \
                           whole; } r = {{some_v8(p, k.part[0]), some_v8(p + 8, k.part[1])}}; \
                           return r.whole; "
            .to_string(),
        _ => format!(" {by_element} "),
    };
    let place = lanes(l, |i| i);
    // The even elements of the vector at a place, and the odd ones of the vector `l - 1` elements
    // later.
    let low = lanes(l, |i| if i % 2 == 0 { i / 2 } else { l });
    let high = lanes(l, |i| if i % 2 == 1 { (l - 1 + i) / 2 } else { l });
    let even = shuffled_even(l);
    format!(
        "static inline i{l} inside_v{l}(long from, int step, int extent) {{ i{l} x = (int)from + \
         step * (i{l}){{{place}}}; return (x >= 0) & (x < extent); }}\n\
         static inline v{l} some_v{l}(const float *p, i{l} m) {{{some}}}\n\
         static inline v{l} masked_v{l}(const float *p, i{l} m, v{l} other) {{ return \
         (v{l})((i{l})some_v{l}(p, m) | ((i{l})other & ~m)); }}\n\
         #ifdef SHUFFLE\n\
         static inline v{l} masked_even_v{l}(const float *p, i{l} m, v{l} other) {{\n  \
         i{l} none = m ^ m;\n  \
         v{l} a = some_v{l}(p, SHUFFLE({l}, m, none, {low}));\n  \
         v{l} b = some_v{l}(p + {last}, SHUFFLE({l}, m, none, {high}));\n  \
         return (v{l})((i{l}){even} | ((i{l})other & ~m));\n}}\n#endif\n",
        last = l - 1
    )
}

/// The types of a width, and the functions that were used.
fn vector(l: i64, used: &Used, s: &mut String) {
    let bytes = l * 4;
    for (ty, name) in [("float", 'v'), ("int", 'i')] {
        let _ = writeln!(
            s,
            "typedef {ty} {name}{l} __attribute__((vector_size({bytes}), aligned(4), may_alias));"
        );
    }
    // `all` comes first: the others use it.
    let list = |f: &dyn Fn(i64) -> String| (0..l).map(f).collect::<Vec<_>>().join(", ");
    let _ = writeln!(
        s,
        "static inline v{l} all_v{l}(float x) {{ return (v{l}){{{}}}; }}",
        list(&|_| "x".into())
    );
    let blend = |m: &str| format!("(v{l})(({m} & (i{l})a) | (~{m} & (i{l})b))");
    let needs_exp = ["exp", "sigmoid", "erf"].iter().any(|f| used.has(f));
    let clamps = needs_exp || used.has("tanh");
    for (name, strict, sign) in EXTREMES {
        if used.has(name) || used.has(strict) || clamps {
            *s += &extreme(l, name, &format!("i{l} m = a {sign} b; return {};", blend("m")));
        }
        if used.has(strict) {
            *s += &strict_extreme(l, name);
        }
    }
    if ["abs", "erf", "sin", "cos"].iter().any(|f| used.has(f)) {
        let _ = writeln!(
            s,
            "static inline v{l} abs_v{l}(v{l} x) {{ return (v{l})((i{l})x & 0x7fffffff); }}"
        );
    }
    *s += &c_fma::vectors(l, used);
    *s += &c_formats::vectors(l, used);
    if used.has("even") {
        *s += &every_second(l);
    }
    if used.has("masked") {
        *s += &masked(l, used.lanes.contains(&(l / 2)));
    }
    for (name, first) in [("interleave_low", 0), ("interleave_high", l / 2)] {
        if used.has(name) {
            let mask = list(&|i| (first + i / 2 + i % 2 * l).to_string());
            let _ = writeln!(
                s,
                "static inline v{l} {name}_v{l}(v{l} a, v{l} b) {{ return SHUFFLE({l}, a, b, \
                 {mask}); }}"
            );
        }
    }
    for (word, combine) in ACROSS {
        // A vector that is combined across its lanes needs all narrower vectors; other widths may
        // lack them.
        let mut narrower =
            std::iter::successors(Some(l / 2), |l| Some(l / 2)).take_while(|l| *l > 1);
        if used.has(word) && l.count_ones() == 1 && narrower.all(|l| used.lanes.contains(&l)) {
            *s += &across(l, word, combine);
        }
    }
    let joined = [8, 16].contains(&l) && used.lanes.contains(&(l / 2));
    if used.has("transpose") && (l == 4 || joined) {
        *s += &transpose(l);
    }
    if needs_exp {
        let (fast, end) = if l == 16 { (EXP_SCALE, "#endif\n") } else { ("", "") };
        let form = if l == 16 { EXP } else { EXP_BY_BITS };
        *s += &form.replace("SCALE\n", fast).replace("END\n", end).replace('@', &l.to_string());
    }
    for (name, form) in [("sigmoid", SIGMOID), ("erf", ERF)] {
        if used.has(name) {
            *s += &form.replace('@', &l.to_string());
        }
    }
    *s += &c_functions::vectors(l, used);
    for &(name, f, _) in SCALAR.iter().filter(|x| used.has(x.0)) {
        *s += &by_lane(l, name, f);
    }
}

/// Rounding to the nearest, ties to even: one instruction on x86.
fn round(l: i64) -> String {
    let (feature, call) = match l {
        16 => ("__AVX512F__", "(v16)__builtin_ia32_rndscaleps_mask(x, 4, x, (short)-1, 4)"),
        8 => ("__AVX__", "(v8)__builtin_ia32_roundps256(x, 4)"),
        4 => ("__SSE4_1__", "(v4)__builtin_ia32_roundps(x, 4)"),
        _ => ("__none__", "x"),
    };
    let by_element = format!("v{l} r; for (int i = 0; i < {l}; i++) r[i] = rintf(x[i]); return r;");
    let body = built_in(feature, &format!("return {call};"), &by_element);
    format!("static inline v{l} round_v{l}(v{l} x) {{{body}}}\n")
}

/// A function without a vector form of ours goes lane by lane.
fn by_lane(l: i64, name: &str, f: &str) -> String {
    if name == "round" {
        return round(l);
    }
    let is_written = ["exp", "sigmoid", "erf", "abs"].contains(&name);
    if is_written || c_functions::has(name) {
        return String::new();
    }
    let (arguments, call) = if name == "pow" {
        (format!("v{l} x, v{l} y"), "x[i], y[i]")
    } else {
        (format!("v{l} x"), "x[i]")
    };
    let body = if f.contains('(') { format!("{name}_f({call})") } else { format!("{f}({call})") };
    format!(
        "static inline v{l} {name}_v{l}({arguments}) {{ v{l} r; for (int i = 0; i < {l}; i++) \
         r[i] = {body}; return r; }}\n"
    )
}

/// Name, float and double form: a C function, or an expression in `x`.
const SCALAR: &[(&str, &str, &str)] = &[
    ("exp", "expf", "exp"),
    ("log", "logf", "log"),
    ("sqrt", "sqrtf", "sqrt"),
    ("tanh", "tanhf", "tanh"),
    ("erf", "erff", "erf"),
    ("floor", "floorf", "floor"),
    ("ceil", "ceilf", "ceil"),
    ("round", "rintf", "rint"),
    ("sin", "sinf", "sin"),
    ("cos", "cosf", "cos"),
    ("abs", "fabsf", "fabs"),
    ("pow", "powf", "pow"),
    ("sign", "x != x ? x : (float)((x > 0) - (x < 0))", "x != x ? x : (double)((x > 0) - (x < 0))"),
    ("sigmoid", "1.0f / (1.0f + expf(-x))", "1.0 / (1.0 + exp(-x))"),
];

/// An empty instruction that takes and gives a vector in a register.
const IN_REGISTER: &str = "#if defined(__AVX2__) && !defined(__AVX512F__)
#define IN_REGISTER(x) __asm__(\"\" : \"+x\"(x))
#else
#define IN_REGISTER(x) (void)0
#endif
";

const SHUFFLE: &str = "#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(l, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define JOIN(l, half, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define PART(l, x, list, ...) __builtin_shufflevector(x, x, __VA_ARGS__)
#else
#define SHUFFLE(l, a, b, ...) __builtin_shuffle(a, b, (i##l){__VA_ARGS__})
#define JOIN(l, half, a, b, ...) (((union { v##half part[2]; v##l whole; }){{a, b}}).whole)
#define PLAIN(...) __VA_ARGS__
#define PART(l, x, list, ...) (v##l){PLAIN list}
#endif
";

/// Maximum and minimum: the name of the function that returns the second operand if one is NaN, the
/// name of the function that then returns NaN, and the comparison that chooses the first operand.
const EXTREMES: [(&str, &str, char); 2] = [("max", "max_nan", '>'), ("min", "min_nan", '<')];

/// The larger or smaller of two vectors, NaN where one is: of the first all bits are set, or it
/// stands in the lanes that a mask leaves alone. ARM has one instruction.
fn strict_extreme(l: i64, name: &str) -> String {
    let masked = |bits: i64, ty: &str, end: &str| {
        let order = format!("__builtin_ia32_cmpps{bits}_mask(a, a, 7, ({ty})-1{end})");
        format!(
            "  return (v{l})__builtin_ia32_{name}ps{bits}_mask(a, b, a, {order}{end});\n#else\n"
        )
    };
    let gcc = "&& !defined(__clang__)";
    let single = match l {
        16 => format!("#if defined(__AVX512F__) {gcc}\n{}", masked(512, "short", ", 4")),
        8 => format!("#if defined(__AVX512VL__) {gcc}\n{}", masked(256, "char", "")),
        4 => format!(
            "#if defined(__aarch64__)\n  v4 r;\n  __asm__(\"f{name} %0.4s, %1.4s, %2.4s\" : \
             \"=w\"(r) : \"w\"(a), \"w\"(b));\n  return r;\n#else\n"
        ),
        _ => "#if 1\n".into(),
    };
    format!(
        "static inline v{l} {name}_nan_v{l}(v{l} a, v{l} b) {{\n{single}  \
         return (v{l})((i{l}){name}_v{l}(a, b) | (a != a));\n#endif\n}}\n"
    )
}

/// The larger or smaller of two vectors, the second where one is NaN: one instruction on x86, which
/// GCC makes of a comparison and a selection only as two.
fn extreme(l: i64, name: &str, portable: &str) -> String {
    let (feature, call) = match l {
        16 => {
            ("__AVX512F__", format!("(v16)__builtin_ia32_{name}ps512_mask(a, b, a, (short)-1, 4)"))
        }
        8 => ("__AVX__", format!("(v8)__builtin_ia32_{name}ps256(a, b)")),
        4 => ("__SSE__", format!("(v4)__builtin_ia32_{name}ps(a, b)")),
        _ => return format!("static inline v{l} {name}_v{l}(v{l} a, v{l} b) {{ {portable} }}\n"),
    };
    let body = built_in(feature, &format!("return {call};"), portable);
    format!("static inline v{l} {name}_v{l}(v{l} a, v{l} b) {{{body}}}\n")
}

/// Reductions over all lanes: name, and how two values are combined (`@` is the width's suffix).
const ACROSS: &[(&str, &str)] = &[
    ("across_sum", "a + b"),
    ("across_prod", "a * b"),
    ("across_max", "max_@(a, b)"),
    ("across_min", "min_@(a, b)"),
    ("across_max_nan", "max_nan_@(a, b)"),
    ("across_min_nan", "min_nan_@(a, b)"),
];

/// A reduction over the lanes of a vector, half by half.
fn across(l: i64, word: &str, combine: &str) -> String {
    let half = l / 2;
    let body = |suffix: &str| combine.replace('@', suffix);
    match half {
        1 => format!(
            "static inline float {word}_v2(v2 x) {{ float a = x[0], b = x[1]; return {}; }}\n",
            body("f")
        ),
        _ => {
            let list = |from: i64| {
                (from..from + half).map(|i| format!("x[{i}]")).collect::<Vec<_>>().join(", ")
            };
            let part = |from: i64| {
                let lanes =
                    (from..from + half).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
                format!("PART({half}, x, ({}), {lanes})", list(from))
            };
            format!(
                "static inline float {word}_v{l}(v{l} x) {{ v{half} a = {}, b = {}; return \
                 {word}_v{half}({}); }}\n",
                part(0),
                part(half),
                body(&format!("v{half}"))
            )
        }
    }
}

/// `quads_vN(p, s)`: elements p[0..4], p[4 s..][..4], p[8 s..][..4], .. side by side.
/// `transpose_vN`: of four such vectors the 4 x 4 transposition of each four lanes.
fn transpose(l: i64) -> String {
    let four = |f: &dyn Fn(i64) -> [i64; 4]| {
        (0..l / 4).flat_map(|g| f(4 * g)).map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
    };
    let low = four(&|g| [g, l + g, g + 1, l + g + 1]);
    let high = four(&|g| [g + 2, l + g + 2, g + 3, l + g + 3]);
    let first = four(&|g| [g, g + 1, l + g, l + g + 1]);
    let second = four(&|g| [g + 2, g + 3, l + g + 2, l + g + 3]);
    let mut s = match l {
        4 => "static inline v4 quads_v4(const float *p, long s) { (void)s; return *(const v4 *)p; \
              }\n"
        .to_string(),
        _ => {
            let half = l / 2;
            let all = (0..l).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
            format!(
                "static inline v{l} quads_v{l}(const float *p, long s) {{\n  return JOIN({l}, \
                 {half}, quads_v{half}(p, s), quads_v{half}(p + {half}*s, s), {all});\n}}\n"
            )
        }
    };
    let _ = write!(
        s,
        "static inline void transpose_v{l}(v{l} *a, v{l} *b, v{l} *c, v{l} *d) {{
  v{l} e = SHUFFLE({l}, *a, *b, {low}), f = SHUFFLE({l}, *c, *d, {low});
  v{l} g = SHUFFLE({l}, *a, *b, {high}), h = SHUFFLE({l}, *c, *d, {high});
  *a = SHUFFLE({l}, e, f, {first}), *b = SHUFFLE({l}, e, f, {second});
  *c = SHUFFLE({l}, g, h, {first}), *d = SHUFFLE({l}, g, h, {second});
}}
"
    );
    s
}

/// e^x: argument reduction to |r| <= ln(2)/2 and a polynomial of degree 6 whose relative error is
/// least, within 0.95 units in the last place. The power of two is applied in two halves, so that
/// results next to overflow stay finite.
const EXP: &str = "static inline v@ exp_v@(v@ x) {
  x = min_v@(all_v@(89.0f), max_v@(all_v@(-104.0f), x));
  v@ n = fma_v@(x, all_v@(1.44269504f), all_v@(12582912.0f)) - 12582912.0f;
  v@ r = fma_v@(n, all_v@(2.12194440e-4f), fma_v@(n, all_v@(-0.693359375f), x));
  v@ p = fma_v@(all_v@(1.3882517e-3f), r, all_v@(8.3665475e-3f));
  p = fma_v@(p, r, all_v@(4.1667201e-2f)), p = fma_v@(p, r, all_v@(1.6666543e-1f));
  p = fma_v@(p, r, all_v@(4.9999997e-1f)), p = fma_v@(p, r, all_v@(1.0f));
  p = fma_v@(p, r, all_v@(1.0f));
SCALE
  i@ k = __builtin_convertvector(n, i@), h = k >> 1;
  return p * (v@)((h + 127) << 23) * (v@)((k - h + 127) << 23);
END
}
";

/// The exponential where no instruction scales by powers of two, in 15 operations instead of 24,
/// after XNNPACK's `rr2_p5`: the bits of the rounded quotient, shifted, are half the power of two,
/// and the polynomial has degree 5. Results next to overflow stay finite, with an error of about 2
/// ulp; below 1.7e-38 they are 0; NaN stays NaN.
const EXP_BY_BITS: &str = "static inline v@ exp_v@(v@ x) {
  i@ zero = x < -86.98f;
  x = min_v@(all_v@(89.0f), x);
  v@ n = fma_v@(x, all_v@(1.44269504f), all_v@(12583038.0f));
  v@ s = (v@)((i@)n << 23);
  n -= 12583038.0f;
  v@ t = fma_v@(n, all_v@(2.12194440e-4f), fma_v@(n, all_v@(-0.693359375f), x));
  v@ p = fma_v@(all_v@(8.290306e-3f), t, all_v@(4.1897975e-2f));
  p = fma_v@(p, t, all_v@(1.6667637e-1f)), p = fma_v@(p, t, all_v@(4.999915e-1f));
  p = fma_v@(p, t, all_v@(9.999997e-1f));
  p = fma_v@(t * s, p, s);
  return (v@)(~zero & (i@)(p + p));
}
";

/// The end of EXP where an instruction scales by powers of two.
const EXP_SCALE: &str = "#if defined(__AVX512F__) && !defined(__clang__)
  return (v@)__builtin_ia32_scalefps512_mask(p, n, p, (short)-1, 4);
#else
";

const SIGMOID: &str = "static inline v@ sigmoid_v@(v@ x) { return 1.0f / (1.0f + exp_v@(-x)); }\n";

/// erf: Abramowitz and Stegun 7.1.26, absolute error below 5e-7 in float.
const ERF: &str = "static inline v@ erf_v@(v@ x) {
  v@ a = abs_v@(x), t = 1.0f / fma_v@(a, all_v@(0.3275911f), all_v@(1.0f));
  v@ p = fma_v@(t, all_v@(1.061405429f), all_v@(-1.453152027f));
  p = fma_v@(t, p, all_v@(1.421413741f)), p = fma_v@(t, p, all_v@(-0.284496736f));
  p = t * fma_v@(t, p, all_v@(0.254829592f));
  v@ r = fma_v@(-p, exp_v@(-(a * a)), all_v@(1.0f));
  return (v@)((i@)r | ((i@)x & (int)0x80000000));
}
";
