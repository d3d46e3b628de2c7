//! The C helper functions for narrow number formats: conversions between 16-bit floats or bytes in
//! memory and 32-bit lanes, and dot products of four bytes with four (`dot`) or of two bf16 numbers
//! with two (`dot_pair`), each with variants for the instruction sets that have them. Input: the
//! helpers that a kernel used; output: their C text for `c_prelude.rs`.

use super::dialect::Used;
use std::fmt::Write;

/// Conversions from and to elements of 16 bits, to the nearest and ties to even.
const HALVES: &[(&str, &str)] = &[
    (
        "from_bf16",
        "static inline float from_bf16(unsigned short h) { union float_bits u = {(unsigned)h << \
         16}; return u.x; }\n",
    ),
    (
        "to_bf16",
        "static inline unsigned short to_bf16(float x) {\n  union float_bits u = {.x = x};\n  \
         return x != x ? 0x7fff : (unsigned short)((u.bits + 0x7fff + (u.bits >> 16 & 1)) >> \
         16);\n}\n",
    ),
    // Scaled by 2^112, exponents of both formats agree, below the normal range too.
    (
        "from_f16",
        "static inline float from_f16(unsigned short h) {\n  union float_bits u = {(unsigned)(h & \
         0x7fff) << 13};\n  \
         u.x *= 0x1p112f;\n  if ((h & 0x7c00) == 0x7c00) u.bits |= 0x7f800000;\n  u.bits |= \
         (unsigned)(h & 0x8000) << 16;\n  return u.x;\n}\n",
    ),
    (
        "to_f16",
        "static inline unsigned short to_f16(float x) {\n  union float_bits u = {.x = x};\n  \
         unsigned sign = u.bits >> 16 & 0x8000;\n  \
         u.bits &= 0x7fffffff;\n  if (x != x) return 0x7fff;\n  if (u.x >= 65520.0f) return \
         (unsigned short)(sign | 0x7c00);\n  \
         if (u.x < 0x1p-14f) {\n    u.x += 0.5f;\n    return (unsigned short)(sign | (u.bits - \
         0x3f000000));\n  }\n  \
         return (unsigned short)(sign | ((u.bits - 0x38000000 + 0xfff + (u.bits >> 13 & 1)) >> \
         13));\n}\n",
    ),
];

/// The functions of single numbers that a program used.
pub(super) fn scalars(used: &Used) -> String {
    let mut s = String::new();
    if HALVES.iter().any(|(n, _)| used.has(n)) {
        s += "union float_bits { unsigned bits; float x; };\n";
        HALVES.iter().filter(|(n, _)| used.has(n)).for_each(|(_, text)| s += text);
    }
    if used.has("dot") {
        s += DOT;
    }
    if used.has("pair") || used.has("dot_pair") {
        s += PAIRS;
    }
    words(used, &mut s);
    s
}

/// The names of the functions that make two words of four bytes, which bytes they take, and whether
/// these have a sign.
const WORDS: [(&str, u8, bool); 4] =
    [("even_u8", 0, false), ("odd_u8", 8, false), ("even_i8", 0, true), ("odd_i8", 8, true)];

/// Words of single elements, and their products; references keep an element's bits in a double.
fn words(used: &Used, s: &mut String) {
    let mut doubled = |name: &str, text: String, arguments: &str, call: &str| {
        *s += &text;
        let _ = writeln!(
            s,
            "static inline double {name}_d({arguments}) {{ return (double)(unsigned){call}; }}"
        );
    };
    let bits = |x: &str| format!("(int)(unsigned)(long long){x}");
    for (name, shift, sign) in WORDS.into_iter().filter(|(name, ..)| used.has(name)) {
        let word = |at: u8| match sign {
            true => format!("((signed char)((unsigned)x >> {at}) & 0xffff)"),
            false => format!("((unsigned)x >> {at} & 255)"),
        };
        let (low, high) = (word(shift), word(shift + 16));
        let text = format!(
            "static inline int {name}_f(int x) {{ return (int)((unsigned){low} | (unsigned){high} \
             << 16); }}\n"
        );
        doubled(name, text, "double x", &format!("{name}_f({})", bits("x")));
    }
    if used.has("dot_words") {
        *s += "static inline int dot_words_f(int s, int a, int b) {\n  \
               return s + (short)a * (short)b + (a >> 16) * (b >> 16);\n}\n";
        let _ = writeln!(
            s,
            "static inline double dot_words_d(double s, double a, double b) {{ return s + \
             dot_words_f(0, {}, {}); }}",
            bits("a"),
            bits("b")
        );
    }
}

/// The functions of vectors of a width that a program used.
pub(super) fn vectors(l: i64, used: &Used) -> String {
    let mut s = String::new();
    if used.has("all_whole") {
        let list = vec!["x"; l as usize].join(", ");
        let _ =
            writeln!(s, "static inline i{l} all_whole_v{l}(int x) {{ return (i{l}){{{list}}}; }}");
    }
    for (name, from, to) in [("number", 'i', 'v'), ("whole", 'v', 'i')] {
        if used.has(name) {
            let _ = writeln!(
                s,
                "static inline {to}{l} {name}_v{l}({from}{l} x) {{ return \
                 __builtin_convertvector(x, {to}{l}); }}"
            );
        }
    }
    for (kind, ty) in [("u8", "unsigned char"), ("i8", "signed char")] {
        bytes(l, kind, ty, used, &mut s);
    }
    if used.has("round_u8") {
        s += &rounded_bytes(l);
    }
    for kind in ["bf16", "f16"] {
        halves(l, kind, used, &mut s);
    }
    if used.has("dot") {
        s += &dot(l);
    }
    if used.has("pair") {
        let _ = writeln!(
            s,
            "static inline i{l} pair_v{l}(v{l} low, v{l} high) {{ return ((i{l})low >> 16 & \
             0xffff) | ((i{l})high & -0x10000); }}"
        );
    }
    if used.has("dot_pair") {
        s += &dot_pair(l);
    }
    words_of_lanes(l, used, &mut s);
    s
}

/// Words of lanes, and their products. A conversion of lanes of 16 bits is written as shifts.
fn words_of_lanes(l: i64, used: &Used, s: &mut String) {
    let made: Vec<_> = WORDS.into_iter().filter(|(name, ..)| used.has(name)).collect();
    let dot = used.has("dot_words");
    if made.is_empty() && !dot {
        return;
    }
    let _ = writeln!(s, "typedef short w{l} __attribute__((vector_size({}), may_alias));", 4 * l);
    for (name, shift, sign) in made {
        let value = match (shift, sign) {
            (0, false) => "x & 0xff00ff".into(),
            (_, false) => "x >> 8 & 0xff00ff".into(),
            (0, true) => format!("(i{l})((w{l})x << 8 >> 8)"),
            (_, true) => format!("(i{l})((w{l})x >> 8)"),
        };
        let _ = writeln!(s, "static inline i{l} {name}_v{l}(i{l} x) {{ return {value}; }}");
    }
    if dot {
        *s += &dot_words(l);
    }
}

/// `s + a * b` for two words a lane: `vpmaddwd` and an addition where there is that. Of two
/// functions of their own GCC adds products to each other first, and runs out of registers, so that
/// they are written as they are assembled.
fn dot_words(l: i64) -> String {
    let assembled = |feature: &str, register: char| {
        format!(
            "#if defined({feature})\n  i{l} t;\n  __asm__(\"vpmaddwd %3, %2, %1\\n\\tvpaddd %1, \
             %0, %0\" : \"+{register}\"(s), \"=&{register}\"(t) : \"{register}\"(a), \
             \"{register}\"(b));\n  return s;\n"
        )
    };
    let single = match l {
        16 => assembled("__AVX512BW__", 'v'),
        8 => assembled("__AVX2__", 'x'),
        4 => "#if defined(__SSE2__)\n  \
              return s + (i4)__builtin_ia32_pmaddwd128((w4)a, (w4)b);\n"
            .into(),
        _ => "#if 0\n".into(),
    };
    format!(
        "static inline i{l} dot_words_v{l}(i{l} s, i{l} a, i{l} b) {{\n{single}#else\n  \
         return s + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);\n#endif\n}}\n"
    )
}

/// Loads and stores of bytes. Stored values are whole numbers within the range of a byte.
fn bytes(l: i64, kind: &str, ty: &str, used: &Used, s: &mut String) {
    let (from, to) = (format!("from_{kind}"), format!("to_{kind}"));
    let rounds = kind == "u8" && used.has("round_u8");
    if !used.has(&from) && !used.has(&to) && !rounds {
        return;
    }
    let _ = writeln!(
        s,
        "typedef {ty} {kind}_{l} __attribute__((vector_size({l}), aligned(1), may_alias));"
    );
    if used.has(&from) {
        *s += &widened(l, kind, ty);
    }
    if used.has(&to) {
        let stored = if kind == "u8" { narrowed(l) } else { plainly_narrowed(kind, l) };
        let _ = writeln!(
            s,
            "static inline void {to}_v{l}({ty} *p, v{l} x) {{\n  i{l} r = \
             __builtin_convertvector(x, i{l});\n{stored}}}"
        );
    }
}

/// Stores of floats as bytes, rounded to nearest within two bounds, ties to even. Instructions that
/// convert round so, and AVX-512's narrowing instruction clamps the 32 bits, read as an unsigned
/// number, to 255. A NaN becomes the lower bound.
fn rounded_bytes(l: i64) -> String {
    let one = |name: &str, out: &str| {
        format!("  __asm__(\"{name} %1, %0\" : \"={out}\"(r) : \"{out}\"(x));\n")
    };
    let (narrow, convert) = match l {
        16 => {
            let feature = "defined(__AVX512F__)";
            (feature, Some((feature, "vcvtps2dq")))
        }
        8 => ("defined(__AVX512VL__)", Some(("defined(__AVX__)", "vcvtps2dq"))),
        4 => ("defined(__AVX512VL__)", Some(("defined(__SSE2__)", "cvtps2dq"))),
        _ => ("0", None),
    };
    let wide = if l == 16 { "v" } else { "x" };
    let mut s = format!(
        "static inline void round_u8_v{l}(unsigned char *p, v{l} x, float low, float high) {{\n  \
         i{l} r;\n#if {narrow}\n  x = max_v{l}(x, all_v{l}(low));\n  \
         if (high < 255) x = min_v{l}(x, all_v{l}(high));\n{}  \
         __asm__(\"vpmovusdb %1, %0\" : \"=m\"(*(u8_{l} *)p) : \"v\"(r));\n#else\n  \
         x = min_v{l}(max_v{l}(x, all_v{l}(low)), all_v{l}(high));\n",
        one("vcvtps2dq", "v")
    );
    if let Some((feature, name)) = convert {
        let _ = write!(s, "#if {feature}\n{}", one(name, wide));
        if l == 4 {
            s += "#elif defined(__aarch64__)\n  \
                  __asm__(\"fcvtns %0.4s, %1.4s\" : \"=w\"(r) : \"w\"(x));\n";
        }
        s += "#else\n";
    }
    let _ = writeln!(s, "  for (int i = 0; i < {l}; i++) r[i] = (int)__builtin_rintf(x[i]);");
    s += if convert.is_some() { "#endif\n" } else { "" };
    s + &narrowed(l) + "#endif\n}\n"
}

/// The statements that store lanes of `r`, which bytes without sign hold, at `p`.
fn narrowed(l: i64) -> String {
    let plainly = plainly_narrowed("u8", l);
    match l {
        8 => format!("{NARROWED_BY_AVX2}#else\n{plainly}#endif\n"),
        _ => plainly,
    }
}

fn plainly_narrowed(kind: &str, l: i64) -> String {
    format!("  *({kind}_{l} *)p = __builtin_convertvector(r, {kind}_{l});\n")
}

/// Stores eight lanes that bytes hold as these: of a conversion GCC makes moves of single lanes.
const NARROWED_BY_AVX2: &str = "#if defined(__AVX2__)
  typedef int four __attribute__((vector_size(16)));
  four t;
  __asm__(\"vextracti128 $1, %2, %1\\n\\tvpackssdw %1, %x2, %1\\n\\t\"
          \"vpackuswb %1, %1, %1\\n\\tvmovq %1, %0\"
          : \"=m\"(*(u8_8 *)p), \"=&x\"(t) : \"x\"(r));
";

/// Loads of bytes as numbers. GCC makes single instructions of its own functions alone, and of a
/// conversion in two steps a few; of one step it makes moves of single bytes.
fn widened(l: i64, kind: &str, ty: &str) -> String {
    let sign = if kind == "u8" { 'z' } else { 's' };
    let head = format!("static inline v{l} from_{kind}_v{l}(const {ty} *p) {{\n");
    let single = match l {
        16 => Some((
            "__AVX512F__",
            format!("__builtin_ia32_pmov{sign}xbd512_mask(b, (i16){{0}}, (short)-1)"),
            "  const bytes16 b = *(const bytes16 *)p;\n",
        )),
        8 => Some((
            "__AVX2__",
            format!("__builtin_ia32_pmov{sign}xbd256(b)"),
            "  typedef long long eight __attribute__((aligned(1), may_alias));\n  typedef long \
             long eights __attribute__((vector_size(16)));\n  const bytes16 b = (bytes16)(eights)\
             {*(const eight *)p, 0};\n",
        )),
        _ => None,
    };
    let step = if kind == "u8" { "unsigned short" } else { "short" };
    let plain = format!(
        "  typedef {step} halves __attribute__((vector_size({})));\n  \
         return __builtin_convertvector(__builtin_convertvector(__builtin_convertvector(*(const \
         {kind}_{l} *)p, halves), i{l}), v{l});\n",
        2 * l
    );
    let Some((feature, call, load)) = single else { return format!("{head}{plain}}}\n") };
    format!(
        "{head}#if defined({feature}) && !defined(__clang__)\n  \
         typedef char bytes16 __attribute__((vector_size(16), aligned(1), may_alias));\n{load}  \
         return __builtin_convertvector({call}, v{l});\n#else\n{plain}#endif\n}}\n"
    )
}

/// Loads and stores of 16-bit numbers: bf16 by shifts, other formats one by one.
fn halves(l: i64, kind: &str, used: &Used, s: &mut String) {
    let (from, to) = (format!("from_{kind}"), format!("to_{kind}"));
    if !used.has(&from) && !used.has(&to) {
        return;
    }
    let _ = writeln!(
        s,
        "typedef unsigned short {kind}_{l} __attribute__((vector_size({}), aligned(2), \
         may_alias));",
        2 * l
    );
    if kind == "bf16" {
        bf16(l, used, s);
        return;
    }
    let head = "static inline";
    if used.has(&from) {
        let _ = writeln!(
            s,
            "{head} v{l} {from}_v{l}(const unsigned short *p) {{ v{l} r; for (int i = 0; i < {l}; \
             i++) r[i] = {from}(p[i]); return r; }}"
        );
    }
    if used.has(&to) {
        let _ = writeln!(
            s,
            "{head} void {to}_v{l}(unsigned short *p, v{l} x) {{ for (int i = 0; i < {l}; i++) \
             p[i] = {to}(x[i]); }}"
        );
    }
}

/// Loads and stores of bf16, which are the upper halves of floats. GCC makes single instructions of
/// 16 conversions only from its own functions; `vcvtneps2bf16`, which treats numbers below the
/// normal range as 0, has different types in different compilers, so it is written as inline
/// assembly.
fn bf16(l: i64, used: &Used, s: &mut String) {
    let own = |call: &str| format!("#if defined(__AVX512F__) && !defined(__clang__)\n  {call}\n");
    if used.has("from_bf16") {
        let plain = format!(
            "  return (v{l})(__builtin_convertvector(*(const bf16_{l} *)p, i{l}) << 16);\n"
        );
        let _ = writeln!(s, "static inline v{l} from_bf16_v{l}(const unsigned short *p) {{");
        *s += &match l {
            16 => format!(
                "{}#else\n{plain}#endif\n}}\n",
                own(
                    "typedef short s16 __attribute__((vector_size(32), aligned(2), may_alias));\n  \
                     return (v16)(__builtin_ia32_pmovzxwd512_mask(*(const s16 *)p, (i16){0}, \
                     (short)-1) << 16);"
                )
            ),
            _ => format!("{plain}}}\n"),
        };
    }
    if used.has("to_bf16") {
        let _ = writeln!(s, "static inline void to_bf16_v{l}(unsigned short *p, v{l} x) {{");
        let feature = match l {
            16 => Some("defined(__AVX512BF16__)"),
            8 => Some("defined(__AVX512BF16__) && defined(__AVX512VL__)"),
            _ => None,
        };
        if let Some(feature) = feature {
            let _ = writeln!(
                s,
                "#if {feature}\n  bf16_{l} r;\n  __asm__(\"vcvtneps2bf16 %1, %0\" : \"=v\"(r) : \
                 \"v\"(x));\n  *(bf16_{l} *)p = r;\n#else"
            );
        }
        let _ = writeln!(
            s,
            "  i{l} b = (i{l})x, none = x != x;\n  b = (b + 0x7fff + ((b >> 16) & 1)) >> 16;\n  \
             b = (none & 0x7fff) | (~none & b);"
        );
        let plain = format!("  *(bf16_{l} *)p = __builtin_convertvector(b, bf16_{l});\n");
        *s += &match l {
            16 => format!(
                "{}#else\n{plain}#endif\n",
                own("*(bf16_16 *)p = (bf16_16)__builtin_ia32_pmovdw512_mask(b, (short \
                     __attribute__((vector_size(32)))){0}, (short)-1);")
            ),
            _ => plain,
        };
        *s += if feature.is_some() { "#endif\n}\n" } else { "}\n" };
    }
}

/// The products of single numbers; references keep the four bytes of an element in a double.
const DOT: &str = "static inline int dot_f(int s, int a, int b) {
  for (int i = 0; i < 32; i += 8)
    s += (int)((unsigned)a >> i & 255) * (signed char)((unsigned)b >> i);
  return s;
}
static inline double dot_d(double s, double a, double b) {
  return s + dot_f(0, (int)(unsigned)(long long)a, (int)(unsigned)(long long)b);
}
";

/// Pairs of single numbers; references keep the bits of one in a double.
const PAIRS: &str = "union pair_bits { unsigned bits; float x; };
static inline int pair_f(float low, float high) {
  union pair_bits l = {.x = low}, h = {.x = high};
  return (int)(l.bits >> 16 | (h.bits & 0xffff0000u));
}
static inline double pair_d(double low, double high) {
  return (double)(unsigned)pair_f((float)low, (float)high);
}
static inline float dot_pair_f(float s, int a, int b) {
  union pair_bits x = {(unsigned)a << 16}, y = {(unsigned)b << 16};
  union pair_bits z = {(unsigned)a & 0xffff0000u}, w = {(unsigned)b & 0xffff0000u};
  return s + x.x * y.x + z.x * w.x;
}
static inline double dot_pair_d(double s, double a, double b) {
  union pair_bits x = {(unsigned)(long long)a << 16}, y = {(unsigned)(long long)b << 16};
  union pair_bits z = {(unsigned)(long long)a & 0xffff0000u};
  union pair_bits w = {(unsigned)(long long)b & 0xffff0000u};
  return s + (double)x.x * y.x + (double)z.x * w.x;
}
";

/// `s + a * b` for two numbers of bf16 a lane: one instruction where there is `vdpbf16ps`, which
/// compilers have under different names and types, so that it is written as it is assembled, or
/// ARM's `bfdot`; elsewhere both products as floats.
fn dot_pair(l: i64) -> String {
    let feature = match l {
        16 => Some("defined(__AVX512BF16__)"),
        4 | 8 => Some("defined(__AVX512BF16__) && defined(__AVX512VL__)"),
        _ => None,
    };
    let arm = match l {
        4 => assembled(
            "#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)",
            &[("bfdot", "a")],
            "8h",
        ),
        _ => String::new(),
    };
    let mut s = format!("static inline v{l} dot_pair_v{l}(v{l} s, i{l} a, i{l} b) {{\n");
    if let Some(feature) = feature {
        let _ = writeln!(
            s,
            "#if {feature}\n  __asm__(\"vdpbf16ps %2, %1, %0\" : \"+v\"(s) : \"v\"(a), \
             \"v\"(b));\n  return s;\n{arm}#else"
        );
    }
    let _ = writeln!(
        s,
        "  s = fma_v{l}((v{l})(a << 16), (v{l})(b << 16), s);\n  \
         return fma_v{l}((v{l})(a & -0x10000), (v{l})(b & -0x10000), s);"
    );
    s += if feature.is_some() { "#endif\n}\n" } else { "}\n" };
    s
}

/// Instructions of ARM, where a condition holds, that each add products of an operand with `b` to
/// `s`, by lanes of four bytes.
fn assembled(condition: &str, list: &[(&str, &str)], lanes: &str) -> String {
    let mut s = format!("{condition}\n");
    for (name, a) in list {
        let operands = format!("\"+w\"(s) : \"w\"({a}), \"w\"(b)");
        let text = format!("{name} %0.4s, %1.{lanes}, %2.{lanes}");
        let _ = writeln!(s, "  __asm__(\"{text}\" : {operands});");
    }
    s + "  return s;\n"
}

/// `s + a * b` for four bytes a lane, `a` unsigned: one instruction where there is `vpdpbusd` or
/// ARM's `usdot`. With `sdot` alone `a - 128` is multiplied, and 64 twice. Elsewhere even and odd
/// bytes are multiplied exactly in 16 bits. (`vpmaddubsw` takes bytes as they are, but its sums of
/// two products saturate.)
fn dot(l: i64) -> String {
    let single = match l {
        16 => Some(("defined(__AVX512VNNI__)", "512", "_v16si")),
        8 => Some((
            "defined(__AVXVNNI__) || defined(__AVX512VNNI__) && defined(__AVX512VL__)",
            "256",
            "_v8si",
        )),
        4 => Some((
            "defined(__AVXVNNI__) || defined(__AVX512VNNI__) && defined(__AVX512VL__)",
            "128",
            "_v4si",
        )),
        _ => None,
    };
    // The names in GCC and Clang of the product of 16-bit numbers; for 64 bytes it takes a mask in
    // GCC.
    let pairs = match l {
        16 => Some(("__AVX512BW__", "pmaddwd512_mask", ", (i16){0}, (unsigned short)-1")),
        8 => Some(("__AVX2__", "pmaddwd256", "")),
        4 => Some(("__SSE2__", "pmaddwd128", "")),
        _ => None,
    };
    let mut s = String::new();
    if pairs.is_some() {
        let _ =
            writeln!(s, "typedef short s{l} __attribute__((vector_size({}), may_alias));", 4 * l);
    }
    let _ = writeln!(s, "static inline i{l} dot_v{l}(i{l} s, i{l} a, i{l} b) {{");
    let mut head = "#if";
    if let Some((feature, clang, gcc)) = single {
        let _ = writeln!(
            s,
            "#if ({feature}) && defined(__clang__)\n  \
             return (i{l})__builtin_ia32_vpdpbusd{clang}(s, a, b);\n\
             #elif {feature}\n  \
             return (i{l})__builtin_ia32_vpdpbusd{gcc}(s, a, b);"
        );
        head = "#elif";
    }
    if let Some((feature, name, rest)) = pairs {
        let call = |a: &str, b: &str| format!("(i{l})__builtin_ia32_{name}({a}, {b}{rest})");
        let clang = if l == 16 { " && !defined(__clang__)" } else { "" };
        let _ = writeln!(
            s,
            "{head} defined({feature}){clang}\n  \
             s{l} even = (s{l})(a & 0xff00ff), odd = (s{l})(a >> 8 & 0xff00ff);\n  \
             s += {};\n  return s + {};",
            call("even", &format!("(s{l})b << 8 >> 8")),
            call("odd", &format!("(s{l})b >> 8")),
        );
        head = "#elif";
    }
    if l == 4 {
        let i8mm = format!("{head} defined(__ARM_FEATURE_MATMUL_INT8)");
        s += &assembled(&i8mm, &[("usdot", "a")], "16b");
        let apart = "#elif defined(__ARM_FEATURE_DOTPROD)\n  i4 c = a ^ (int)0x80808080;\n  i4 d = \
                     (i4){0} + 0x40404040;";
        s += &assembled(apart, &[("sdot", "c"), ("sdot", "d"), ("sdot", "d")], "16b");
        head = "#elif";
    }
    let portable = "s + (a & 255) * (b << 24 >> 24) + (a >> 8 & 255) * (b << 16 >> 24) + \
                    (a >> 16 & 255) * (b << 8 >> 24) + (a >> 24 & 255) * (b >> 24)";
    let _ = match head {
        "#if" => writeln!(s, "  return {portable};\n}}"),
        _ => writeln!(s, "#else\n  return {portable};\n#endif\n}}"),
    };
    s
}
