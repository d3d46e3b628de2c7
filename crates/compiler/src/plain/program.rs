//! The builder of one plain kernel's text: generators add a body, macros, tables of constants and
//! scratch memory to a [`Program`]; `finish` prints a C file with names for the operands' types
//! (`T0`, `Y0`), sizes (`N0`, `M0`) and pointers (`x0`, `y0`), and those helper functions
//! (`functions.rs`) and macros that the body names.

use super::PlainSource;
use super::context::operands;
use super::functions::HELPERS;
use squall_core::DType;
use squall_core::graph::infer::Ctx;
use squall_core::graph::{Node, OperatorCall, elements};
use std::collections::HashSet;
use std::fmt::Write as _;

/// Functions of the C library of which `functions.rs` has forms for vectors of 32-bit floats, which
/// bodies name in capitals.
const VECTORS: &[&str] =
    &["acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "log", "sinh"];

/// A kernel while it is written.
pub(super) struct Program<'a> {
    /// The node with the types, shapes and constants of its operands.
    pub ctx: Ctx<'a>,
    call: &'a OperatorCall,
    /// Macros by name.
    defines: Vec<(String, String)>,
    /// Definitions at file scope by name: types, tables, functions.
    tables: Vec<(String, String)>,
    body: String,
    /// The body where many threads share the work, if it is another.
    device: Option<String>,
    /// The functions that a GPU runs in the body's place, if it does.
    launched: Option<Launched>,
    scratch: u64,
    /// Bytes of memory that the body for a GPU works in, where it is another.
    device_scratch: u64,
    shares_loops: bool,
    /// Whether each operand is the same in all calls.
    fixed: &'a [bool],
    /// The text that packs fixed operands ahead of all calls, the bytes that it packs them into,
    /// and the operands that it reads in the body's place.
    prepare: String,
    prepared: u64,
    weights: Vec<usize>,
    /// Functions that it calls; `@SELF` stands for its own symbol.
    pub parts: Vec<super::PlainPart>,
}

/// Functions that a GPU runs in the place of a body.
pub(super) struct Launched {
    /// The functions' bodies. `step_` is the integer of a launch. Blocks are whole warps of 32
    /// threads along x, so that the threads of a warp may exchange values.
    pub functions: Vec<String>,
    /// The launches, in order.
    pub launches: Vec<DeviceLaunch>,
}

/// The beginning of a function of [`Launched`]: the numbers of its thread, of that among those of
/// its warp, and of the warp, and the number of warps.
pub(super) const OF_WARP: &str = "  const int lane = threadIdx.x & 31;
  const long thread = (long)blockIdx.x * blockDim.x + threadIdx.x;
  const long warp = thread / 32, warps = (long)gridDim.x * blockDim.x / 32;
";

/// A launch of one of [`Launched`]'s functions.
#[derive(Clone, Copy)]
pub(super) struct DeviceLaunch {
    /// Which function.
    pub function: usize,
    /// How many threads may share the work.
    pub width: u64,
    /// The integer that the function is given.
    pub step: i32,
}

/// The C type of elements; an error for types that plain kernels do not compute in.
pub(super) fn c_type(dtype: DType) -> Result<&'static str, String> {
    Ok(match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::I8 => "signed char",
        DType::U8 | DType::Bool => "unsigned char",
        DType::I16 => "short",
        DType::U16 => "unsigned short",
        DType::I32 => "int",
        DType::U32 => "unsigned",
        DType::I64 => "long long",
        DType::U64 => "unsigned long long",
        _ => return Err(format!("elements of type {} are not supported", dtype.name())),
    })
}

/// Whether a type has no negative numbers.
pub(super) fn is_unsigned(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool)
}

/// The least and the largest number of a type of integers, as C writes them.
pub(super) fn limits(dtype: DType) -> Option<(&'static str, &'static str)> {
    Some(match dtype {
        DType::I8 => ("(-128)", "127"),
        DType::U8 => ("0", "255"),
        DType::Bool => ("0", "1"),
        DType::I16 => ("(-32768)", "32767"),
        DType::U16 => ("0", "65535"),
        DType::I32 => ("(-2147483647 - 1)", "2147483647"),
        DType::U32 => ("0", "4294967295u"),
        DType::I64 => ("(-9223372036854775807LL - 1)", "9223372036854775807LL"),
        DType::U64 => ("0", "18446744073709551615ULL"),
        _ => return None,
    })
}

/// The distances of neighbours along each axis of a row-major tensor.
pub(super) fn strides(shape: &[i64]) -> Vec<i64> {
    let mut out = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i] * shape[i];
    }
    out
}

/// The product of extents.
pub(super) fn product(shape: &[i64]) -> i64 {
    shape.iter().product()
}

/// `i0*12 + i1*4 + i2`: the sum of loop variables times their strides.
pub(super) fn offset(prefix: &str, strides: &[i64]) -> String {
    let terms: Vec<String> = strides
        .iter()
        .enumerate()
        .filter(|(_, s)| **s != 0)
        .map(|(i, s)| if *s == 1 { format!("{prefix}{i}") } else { format!("{prefix}{i} * {s}L") })
        .collect();
    if terms.is_empty() { "0".into() } else { terms.join(" + ") }
}

/// Loops over these extents with variables `prefix0`, `prefix1` ...; `inner` is the body.
pub(super) fn loops(prefix: &str, extents: &[i64], inner: &str) -> String {
    let mut text = String::new();
    for (i, e) in extents.iter().enumerate() {
        let v = format!("{prefix}{i}");
        let _ = writeln!(text, "  for (long {v} = 0; {v} < {e}; {v}++) {{");
    }
    // Without loops, names of the body still end with it.
    let (open, close) = if extents.is_empty() { ("  {\n", "\n  }") } else { ("", "\n  ") };
    text + open + inner + close + &"}".repeat(extents.len()) + "\n"
}

impl<'a> Program<'a> {
    /// An empty kernel of a call; `node` is the call as a node, and `fixed` says which operands are
    /// the same in all calls: none of those behind its end.
    pub fn new(
        call: &'a OperatorCall,
        node: &'a Node,
        fixed: &'a [bool],
    ) -> Result<Program<'a>, String> {
        let mut p = Program {
            ctx: Ctx { node, opset: call.opset, inputs: operands(&call.inputs) },
            call,
            defines: Vec::new(),
            tables: Vec::new(),
            body: String::new(),
            device: None,
            launched: None,
            scratch: 0,
            device_scratch: 0,
            shares_loops: false,
            fixed,
            prepare: String::new(),
            prepared: 0,
            weights: Vec::new(),
            parts: Vec::new(),
        };
        for (sides, of, ptr, n) in [(&call.inputs, "T", "x", "N"), (&call.outputs, "Y", "y", "M")] {
            for (i, o) in sides.iter().enumerate() {
                let Some(o) = o else {
                    p.int(&format!("HAS{}{i}", ptr.to_uppercase()), 0);
                    continue;
                };
                let ty = c_type(o.dtype)?;
                p.table(&format!("{of}{i}"), format!("typedef {ty} {of}{i};\n"));
                p.int(&format!("{n}{i}"), elements(&o.shape)?);
                p.int(&format!("HAS{}{i}", ptr.to_uppercase()), 1);
            }
        }
        Ok(p)
    }

    /// The type of an operand that must be there.
    pub fn dtype(&self, i: usize) -> Result<DType, String> {
        self.ctx.dtype(i).ok_or_else(|| format!("input {i} is missing"))
    }

    /// The shape of an operand that must be there.
    pub fn shape(&self, i: usize) -> Result<&'a [i64], String> {
        self.ctx.shape(i)
    }

    /// Whether an operand is there.
    pub fn has(&self, i: usize) -> bool {
        self.ctx.operand(i).is_some()
    }

    /// The type and shape of a result that is asked for.
    pub fn result(&self, i: usize) -> Option<(DType, &'a [i64])> {
        let o = self.call.outputs.get(i)?.as_ref()?;
        Some((o.dtype, &o.shape))
    }

    /// The shape of the first result.
    pub fn out(&self) -> Result<&'a [i64], String> {
        self.result(0).map(|r| r.1).ok_or_else(|| "its first result is not asked for".into())
    }

    /// The type of the first result.
    pub fn out_type(&self) -> Result<DType, String> {
        self.result(0).map(|r| r.0).ok_or_else(|| "its first result is not asked for".into())
    }

    /// Refuses an operand of any but these types.
    pub fn expect(&self, i: usize, allowed: &[DType]) -> Result<DType, String> {
        let d = self.dtype(i)?;
        if allowed.contains(&d) {
            return Ok(d);
        }
        Err(format!("input {i} of type {} is not supported", d.name()))
    }

    /// A macro for a whole number.
    pub fn int(&mut self, name: &str, value: i64) {
        self.define(name, long(value));
    }

    /// A macro for a number in the type of the computation.
    pub fn float(&mut self, name: &str, value: f32) {
        self.define(name, format!("((R){})", number(f64::from(value))));
    }

    /// A macro.
    pub fn define(&mut self, name: &str, text: impl Into<String>) {
        self.defines.retain(|(n, _)| n != name);
        self.defines.push((name.into(), text.into()));
    }

    /// `S`, the type of sums of products, a C type or `R`, with `MAD(a, b, c)`, which adds a
    /// product to one.
    pub fn sums(&mut self, ty: &str) {
        self.define("S", ty);
        let mad = match ty {
            "float" => "madf(a, b, c)",
            "double" => "mad(a, b, c)",
            "R" => "mad_r(a, b, c)",
            _ => "((c) + (a) * (b))",
        };
        self.define("MAD(a, b, c)", mad);
    }

    /// A table of whole numbers.
    pub fn ints(&mut self, name: &str, values: &[i64]) {
        let list: Vec<String> = values.iter().map(|v| long(*v)).collect();
        let list = if list.is_empty() { "0L".into() } else { list.join(", ") };
        self.table(name, format!("static const long {name}[] = {{{list}}};\n"));
    }

    /// A table of floats.
    pub fn floats(&mut self, name: &str, values: &[f64]) {
        let list: Vec<String> = values.iter().map(|v| number(*v)).collect();
        let list = if list.is_empty() { "0".into() } else { list.join(", ") };
        self.table(name, format!("static const float {name}[] = {{{list}}};\n"));
    }

    /// A table of floats of 64 bits.
    pub fn doubles(&mut self, name: &str, values: &[f64]) {
        let list: Vec<String> = values.iter().map(|v| number(*v)).collect();
        let list = if list.is_empty() { "0".into() } else { list.join(", ") };
        self.table(name, format!("static const double {name}[] = {{{list}}};\n"));
    }

    /// A definition at file scope, printed where its name is used.
    pub fn table(&mut self, name: &str, text: String) {
        self.tables.retain(|(n, _)| n != name);
        self.tables.push((name.into(), text));
    }

    /// Whether there is a definition of a name at file scope.
    pub fn has_table(&self, name: &str) -> bool {
        self.tables.iter().any(|t| t.0 == name)
    }

    /// `R`, the floating type of the computation, with `F(exp)`, its functions, `C(0.5)`, its
    /// literals, and `EXP`.
    pub fn real(&mut self, dtype: DType) -> Result<(), String> {
        match dtype {
            DType::F32 => {
                self.table("R", "typedef float R;\n".into());
                self.define("F(name)", "name##f");
                self.define("EXP", "exp_f32");
                self.define("TANH", "tanh_f32");
                for name in VECTORS {
                    self.define(&name.to_uppercase(), format!("{name}_f32"));
                }
            }
            DType::F64 => {
                self.table("R", "typedef double R;\n".into());
                self.define("F(name)", "name");
                self.define("EXP", "exp");
                self.define("TANH", "tanh");
                for name in VECTORS {
                    self.define(&name.to_uppercase(), *name);
                }
            }
            d => return Err(format!("elements of type {} are not supported", d.name())),
        }
        self.define("C(value)", "((R)(value))");
        Ok(())
    }

    /// `R` of the first operand.
    pub fn real0(&mut self) -> Result<(), String> {
        let dtype = self.dtype(0)?;
        self.real(dtype)
    }

    /// Text of the function's body.
    pub fn body(&mut self, text: &str) {
        self.body += text;
    }

    /// Says that the body has a loop which OpenMP may share.
    pub fn shares_loops(&mut self) {
        self.shares_loops = true;
    }

    /// The body for a GPU, whose loops are such that each element is one instance of them.
    pub fn on_device(&mut self, text: &str) {
        self.device = Some(text.into());
    }

    /// Asks for memory during a call of the body for a GPU, and gives the text that declares a
    /// pointer into it. One of that body's loops writes values there that the loops behind it read.
    pub fn device_pointer(&mut self, ty: &str, name: &str, count: i64, bytes: u64) -> String {
        let at = self.device_scratch;
        self.device_scratch = (at + count.max(1) as u64 * bytes).next_multiple_of(64);
        format!("  {ty} *{name} = ({ty} *)(void *)((char *)scratch + {at});\n")
    }

    /// The functions for a GPU and their launches, which may be many: a function's text depends on
    /// the launch by its integer alone.
    pub fn launched_on_device(&mut self, launched: Launched) {
        self.launched = Some(launched);
    }

    /// Writes another text in place of the body's end.
    pub fn replace_end(&mut self, end: &str, text: &str) {
        let kept = self.body.strip_suffix(end).unwrap_or(&self.body).len();
        self.body.truncate(kept);
        self.body += text;
    }

    /// Asks for memory during the call; gives its offset in bytes.
    pub fn scratch(&mut self, bytes: u64) -> u64 {
        let at = self.scratch;
        self.scratch = (at + bytes).next_multiple_of(64);
        at
    }

    /// Declares a pointer into the memory of the call.
    pub fn scratch_pointer(&mut self, ty: &str, name: &str, count: i64, bytes: u64) {
        let at = self.scratch(count.max(1) as u64 * bytes);
        let text = format!("  {ty} *{name} = ({ty} *)(void *)((char *)scratch + {at});\n");
        self.body += &text;
    }

    /// Whether an operand is the same in all calls, so that an operator may pack it once ahead of
    /// them. An operand without elements does not count as such, since there is nothing to pack.
    pub fn is_fixed(&self, i: usize) -> bool {
        let operand = self.call.inputs.get(i).and_then(Option::as_ref);
        let has_elements = operand.is_some_and(|o| o.shape.iter().all(|e| *e > 0));
        has_elements && self.fixed.get(i) == Some(&true)
    }

    /// Declares a pointer into memory that the text of `prepare` fills and the body reads.
    pub fn prepared_pointer(&mut self, ty: &str, name: &str, count: i64, bytes: u64) {
        // A number ahead of it says which kind of build packed it.
        let at = self.prepared.max(64);
        self.prepared = (at + count.max(1) as u64 * bytes).next_multiple_of(64);
        let declared = format!("  {ty} *{name} = ({ty} *)(void *)((char *)prepared + {at});\n");
        self.prepare += &declared;
        let from = self.call.inputs.len();
        let _ = writeln!(
            self.body,
            "  const {ty} *{name} = (const {ty} *)(const void *)((const char *)in[{from}] + {at});"
        );
    }

    /// Adds text that runs once ahead of all calls and reads these fixed operands, which the body
    /// then must not name.
    pub fn prepare(&mut self, from: &[usize], text: &str) {
        let there: Vec<usize> = from.iter().copied().filter(|i| self.has(*i)).collect();
        self.prepare += text;
        self.weights.extend(there);
        self.weights.sort_unstable();
        self.weights.dedup();
    }

    /// The function that packs fixed operands, and a call's test that the same kind of build packed
    /// them, since panels of another build may have other extents. Both are empty where no operand
    /// is packed.
    fn preparation(&self, symbol: &str) -> [String; 2] {
        if self.prepared == 0 {
            return Default::default();
        }
        let place = |from: &str, i: usize| format!("{from}[{i}]");
        let head = format!("int {symbol}_prepare(const void *const *in, void *prepared)");
        let mut text = format!("{head};\n{head} {{\n  *(int *)prepared = PACKED_BY;\n");
        for (ty, name, from) in &self.parts(&self.prepare, &place).pointers {
            let _ = writeln!(text, "  {ty} *restrict {name} = {from};");
        }
        text = text + &self.prepare + "  return 0;\n}\n";
        let from = self.call.inputs.len();
        [text, format!("  if (*(const int *)in[{from}] != PACKED_BY) return 1;\n")]
    }

    /// The whole text.
    pub fn finish(self, symbol: &str) -> PlainSource {
        let pointers = |from: &str, i: usize| format!("{from}[{i}]");
        let parts = self.parts(&self.body, &pointers);
        let [preparation, test] = self.preparation(symbol);
        let is_read = |name: &str| parts.pointers.iter().any(|(_, read, _)| read == name);
        debug_assert!(self.weights.iter().all(|i| !is_read(&format!("x{i}"))), "{symbol}");
        let mut text = String::from("#include <math.h>\n#include <string.h>\n");
        text += &match preparation.is_empty() {
            true => parts.definitions,
            false => self.parts(&format!("{}{preparation}", self.body), &pointers).definitions,
        };
        text += &preparation;
        let head = format!("int {symbol}(const void *const *in, void *const *out, void *scratch)");
        let _ = write!(text, "{head};\n{head} {{\n  (void)in, (void)out, (void)scratch;\n");
        for (ty, name, from) in &parts.pointers {
            let _ = writeln!(text, "  {ty} *restrict {name} = {from};");
        }
        text = text + &test + &self.body + "  return 0;\n}\n";
        let mut parts = self.parts;
        if !parts.is_empty() {
            text = text.replace("@SELF", symbol);
            for p in &mut parts {
                p.symbol = p.symbol.replace("@SELF", symbol);
                p.text = p.text.replace("@SELF", symbol);
            }
        }
        let (scratch_bytes, shares_loops) = (self.scratch, self.shares_loops);
        let (prepared_bytes, weights) = (self.prepared, self.weights);
        PlainSource { text, scratch_bytes, shares_loops, parts, prepared_bytes, weights }
    }

    /// The text around a body; `place` gives the expression of the n-th pointer of a list.
    pub(super) fn parts(&self, body: &str, place: &dyn Fn(&str, usize) -> String) -> Parts {
        let mut used: HashSet<String> = HashSet::new();
        identifiers(body, &mut used);
        let mut pointers: Vec<(String, String, String)> = Vec::new();
        for (list, c, of, ptr) in
            [(&self.call.inputs, "const ", "T", "x"), (&self.call.outputs, "", "Y", "y")]
        {
            let from = if ptr == "x" { "in" } else { "out" };
            for (i, _) in list.iter().enumerate().filter(|(_, o)| o.is_some()) {
                let name = format!("{ptr}{i}");
                if used.contains(&name) {
                    used.insert(format!("{of}{i}"));
                    pointers.push((format!("{c}{of}{i}"), name, place(from, i)));
                }
            }
        }
        // Helpers that used helpers name are used, too.
        let named = |n: &str| n.split('(').next().unwrap_or("").to_string();
        let define = |(n, t): &(String, String)| (named(n), n.clone(), t.clone());
        let table = |(n, t): &(String, String)| (n.clone(), n.clone(), t.clone());
        let mut open: Vec<(String, String, String)> = self.defines.iter().map(define).collect();
        open.extend(self.tables.iter().map(table));
        open.extend(HELPERS.iter().map(|(n, t)| (n.to_string(), n.to_string(), t.to_string())));
        let mut kept: HashSet<String> = HashSet::new();
        loop {
            let before = open.len();
            open.retain(|(word, name, text)| {
                if !used.contains(word) {
                    return true;
                }
                kept.insert(name.clone());
                identifiers(text, &mut used);
                false
            });
            if open.len() == before {
                break;
            }
        }
        let mut text = String::new();
        for (name, value) in self.defines.iter().filter(|d| kept.contains(&d.0)) {
            let _ = writeln!(text, "#define {name} {value}");
        }
        // Types come first: helpers are written in them, and other definitions use both.
        let tables = |types: bool| {
            let chosen = move |t: &&(String, String)| t.1.starts_with("typedef") == types;
            self.tables.iter().filter(|t| kept.contains(&t.0)).filter(chosen)
        };
        tables(true).for_each(|t| text += &t.1);
        HELPERS.iter().filter(|h| kept.contains(h.0)).for_each(|h| text += h.1);
        tables(false).for_each(|t| text += &t.1);
        Parts { definitions: text, pointers }
    }

    /// The call that it is for.
    pub(super) fn call(&self) -> &'a OperatorCall {
        self.call
    }

    /// The value of an integer, written out or as a macro; `None` for numbers known at run time
    /// only.
    pub(super) fn value(&self, text: &str) -> Option<u64> {
        let text = match self.defines.iter().find(|(n, _)| n == text) {
            Some((_, value)) => value,
            None => text,
        };
        text.strip_suffix('L').unwrap_or(text).parse().ok()
    }

    /// The body as it was written, and that for a GPU where it has one of its own.
    pub(super) fn bodies(&self) -> (&str, Option<&str>) {
        (&self.body, self.device.as_deref())
    }

    /// Bytes of memory that a call needs on a GPU.
    pub(super) fn scratch_on_device(&self) -> u64 {
        let has_own = self.device.is_some() || self.launched.is_some();
        if has_own { self.device_scratch } else { self.scratch }
    }

    /// The functions that a GPU runs in the body's place.
    pub(super) fn launched(&self) -> Option<&Launched> {
        self.launched.as_ref()
    }
}

/// The text around a body.
pub(super) struct Parts {
    /// Macros, types, helpers and tables, as far as they are used.
    pub definitions: String,
    /// Pointers to operands: the type of elements, the name, where the pointer comes from.
    pub pointers: Vec<(String, String, String)>,
}

/// The text of a file of C behind the comment that it begins with.
pub(super) fn without_comment(file: &'static str) -> &'static str {
    file.split_once("*/\n").map_or(file, |(_, text)| text)
}

/// A whole number as C writes it.
pub(super) fn long(v: i64) -> String {
    match v {
        i64::MIN => "(-9223372036854775807L - 1)".into(),
        v if v < 0 => format!("({v}L)"),
        v => format!("{v}L"),
    }
}

/// A number as C writes it.
pub(super) fn number(v: f64) -> String {
    match v {
        _ if v.is_nan() => "NAN".into(),
        f64::INFINITY => "INFINITY".into(),
        f64::NEG_INFINITY => "(-INFINITY)".into(),
        _ if v < 0.0 || v.to_bits() >> 63 == 1 => format!("({v:?})"),
        _ => format!("{v:?}"),
    }
}

/// Adds the identifiers of a text.
fn identifiers(text: &str, to: &mut HashSet<String>) {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    to.extend(text.split(|c: char| !word(c)).filter(|w| !w.is_empty()).map(String::from));
}
