//! The C helper functions for fused multiply-add: `fma_vN(a, b, c)` is `a * b + c` of vectors of N
//! lanes, rounded once where the machine has the instruction, and `fms_vN` and `fnma_vN` negate an
//! operand. Input: the set of helpers and vector widths that a kernel used; output: their C text,
//! which `c_prelude.rs` puts ahead of the kernel.
//!
//! The functions are written out because compilers that may contract products and sums do so for
//! some elements of a tile and not for others, depending on the surrounding code: two overlapping
//! tiles, or two compilers, would then round one element in two ways. GCC has no generic built-in
//! function for vectors, so the built-ins of the instructions are called by name.

use super::dialect::Used;
use std::fmt::Write;

/// The functions with a negated operand, as calls of `fma`: compilers make one instruction of each.
const NEGATED: [(&str, &str); 2] = [("fms", "(a, b, -c)"), ("fnma", "(-a, b, c)")];

/// Further helper functions that add products.
const USERS: [&str; 8] = ["exp", "sigmoid", "tanh", "erf", "log", "sin", "cos", "dot_pair"];

/// Whether a program adds products.
fn has_any(used: &Used) -> bool {
    used.has("fma") || NEGATED.iter().any(|(name, _)| used.has(name))
}

/// Whether a program or a function that it uses adds products of vectors.
fn has_vectors(used: &Used) -> bool {
    has_any(used) || USERS.iter().any(|u| used.has(u))
}

/// A test whether the compiler has a built-in function for all vectors and the machine the
/// instruction; without the instruction the built-in would call a function for each lane.
const ELEMENTWISE: &str =
    "#if defined(__clang__) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA))
#if __has_builtin(__builtin_elementwise_fma)
#define ELEMENTWISE_FMA
#endif
#endif
";

/// The helper functions on single numbers.
pub fn scalars(used: &Used) -> String {
    let mut s = String::new();
    if !used.lanes.is_empty() && has_vectors(used) {
        s += ELEMENTWISE;
    }
    if has_any(used) {
        s += "#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)\n\
              static inline float fma_f(float a, float b, float c) { return __builtin_fmaf(a, b, \
              c); }\n#else\n\
              static inline float fma_f(float a, float b, float c) { return a * b + c; }\n#endif\n";
    }
    for (name, operands) in NEGATED.iter().filter(|(name, _)| used.has(name)) {
        let _ = writeln!(
            s,
            "static inline float {name}_f(float a, float b, float c) {{ return fma_f{operands}; }}"
        );
    }
    s
}

/// The functions on vectors of `l` lanes.
pub fn vectors(l: i64, used: &Used) -> String {
    let mut s = String::new();
    if has_vectors(used) {
        let _ = write!(
            s,
            "static inline v{l} fma_v{l}(v{l} a, v{l} b, v{l} c) {{\n\
             #ifdef ELEMENTWISE_FMA\n  \
             return __builtin_elementwise_fma(a, b, c);\n{}{}#else\n\
             #if defined(__clang__) && defined(__ARM_FEATURE_FMA)\n\
             #pragma clang fp contract(fast)\n#endif\n  return a * b + c;\n#endif\n}}\n",
            on_x86(l),
            on_arm(l),
        );
    }
    for (name, operands) in NEGATED.iter().filter(|(name, _)| used.has(name)) {
        let _ = writeln!(
            s,
            "static inline v{l} {name}_v{l}(v{l} a, v{l} b, v{l} c) {{ return fma_v{l}{operands}; \
             }}"
        );
    }
    s
}

/// The branches for x86, whose instructions have 4, 8 and, by AVX-512, 16 lanes.
fn on_x86(l: i64) -> String {
    let by = |condition: &str, body: &str| format!("#elif {condition}\n  {body}\n");
    let narrow = match l {
        4 => "return (v4)__builtin_ia32_vfmaddps(a, b, c);".to_string(),
        8 => "return (v8)__builtin_ia32_vfmaddps256(a, b, c);".to_string(),
        _ if l < 4 => in_one(l),
        _ if l % 8 == 0 => by_parts(l, 8, "__builtin_ia32_vfmaddps256"),
        _ => by_element(l),
    };
    let wide = match l {
        16 => by(
            "defined(__AVX512F__)",
            "return (v16)__builtin_ia32_vfmaddps512_mask(a, b, c, (short)-1, 4);",
        ),
        _ => String::new(),
    };
    wide + &by("defined(__FMA__)", &narrow)
}

/// The branch for ARM, whose instructions have 4 and 2 lanes.
fn on_arm(l: i64) -> String {
    let body = match l {
        2 => "return (v2)__builtin_aarch64_fmav2sf(a, b, c);".to_string(),
        4 => "return (v4)__builtin_aarch64_fmav4sf(a, b, c);".to_string(),
        _ if l % 4 == 0 => by_parts(l, 4, "__builtin_aarch64_fmav4sf"),
        _ => by_element(l),
    };
    format!("#elif defined(__aarch64__) && !defined(__clang__)\n  {body}\n")
}

/// Fewer lanes than the narrowest instruction has.
fn in_one(l: i64) -> String {
    let four = |x: &str| {
        let lanes: Vec<String> = (0..l).map(|i| format!("{x}[{i}]")).collect();
        format!("(w){{{}}}", lanes.join(", "))
    };
    let back: Vec<String> = (0..l).map(|i| format!("r[{i}]")).collect();
    format!(
        "typedef float w __attribute__((vector_size(16)));\n  w r = \
         __builtin_ia32_vfmaddps({}, {}, {});\n  return (v{l}){{{}}};",
        four("a"),
        four("b"),
        four("c"),
        back.join(", ")
    )
}

/// More lanes than the widest instruction has.
fn by_parts(l: i64, width: i64, instruction: &str) -> String {
    let parts = l / width;
    format!(
        "typedef float w __attribute__((vector_size({})));\n  \
         union {{ v{l} whole; w part[{parts}]; }} x = {{a}}, y = {{b}}, z = {{c}};\n  \
         for (int i = 0; i < {parts}; i++) z.part[i] = \
         {instruction}(x.part[i], y.part[i], z.part[i]);\n  return z.whole;",
        width * 4
    )
}

fn by_element(l: i64) -> String {
    format!(
        "v{l} r; for (int i = 0; i < {l}; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]); return r;"
    )
}
