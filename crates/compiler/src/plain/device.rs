//! Plain kernels (untuned C for one ONNX operator) on a GPU: turns the C body of an operator
//! (`program.rs`) into CUDA C++. Loops whose iterations are independent are spread over threads
//! (bodies for GPUs, and those of operators whose rows in `core/src/operators` say `spreads`); an
//! operator may bring functions of its own, which are launched in the order that it lists
//! ([`Launched`]); all other bodies run in one thread, which is slow and right. Output: a
//! [`DeviceSource`] with functions to launch in order.
//! `squall/src/inference/network/device.rs` uses it for operators without a tuned kernel.

use super::elementwise;
use super::program::{DeviceLaunch, Launched, Program};
use squall_core::operators::operator;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The CUDA C++ of one operator at constant shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSource {
    /// A translation unit that stands alone. Its functions take a pointer for each operand that is
    /// present, one for each result, the extents where there are some, scratch memory, and a
    /// pointer to an integer that they set where the call does not succeed. Behind these, a
    /// function whose phases have a `step` takes that as an `int`.
    pub text: String,
    /// The launches of the functions, in order; one function may be launched several times.
    pub phases: Vec<Phase>,
    /// Bytes of scratch memory; 0 where the pointer may be null.
    pub scratch_bytes: u64,
}

/// A launch of a function of a [`DeviceSource`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The function's name.
    pub entry: String,
    /// How many threads may share its work; 1 where it is not known that several can.
    pub width: u64,
    /// The integer that the function is given behind its other arguments, if it takes one.
    pub step: Option<i32>,
    /// Whether the threads of a warp exchange values: a block must then have a multiple of 32
    /// threads, all of them along x.
    pub in_warps: bool,
}

impl DeviceSource {
    /// The same functions with a boolean for each of `wanted` ahead of their other parameters; they
    /// do nothing unless each boolean is as wanted.
    pub fn only_where(mut self, wanted: &[bool]) -> DeviceSource {
        if wanted.is_empty() {
            return self;
        }
        let (mut flags, mut tests) = (String::new(), String::new());
        for (i, is) in wanted.iter().enumerate() {
            let _ = write!(flags, "const unsigned char *when{i}_, ");
            let _ = write!(tests, "\n  if ((*when{i}_ != 0) != {}) return;", u8::from(*is));
        }
        let entries: BTreeSet<String> = self.phases.iter().map(|p| p.entry.clone()).collect();
        for entry in entries {
            let head = format!("extern \"C\" __global__ void {entry}(");
            let Some(at) = self.text.find(&head).map(|at| at + head.len()) else { continue };
            self.text.insert_str(at, &flags);
            if let Some(open) = self.text[at..].find('{') {
                self.text.insert_str(at + open + 1, &tests);
            }
        }
        self
    }
}

/// The number of lines of elements from which a thread for each keeps a GPU busy.
pub(super) const MANY_LINES: i64 = 32 << 10;
/// The largest number of instances that loops count in 32 bits, in which a GPU divides several
/// times as fast as in 64. A thread's last step leads behind this number and must not overflow.
const MOST_SHORT: u64 = 1 << 31;

/// Whether GPU threads may share the loops of a call. Loops of a body for GPUs may always be
/// shared.
fn is_spread(p: &Program) -> bool {
    if p.bodies().1.is_some() {
        return true;
    }
    let (domain, op) = (&p.ctx.node.domain, p.ctx.node.op.as_str());
    let row = operator(domain, op);
    let is_free = row.is_some_and(|row| row.spreads || elementwise::writes(row));
    is_free && p.scratch_on_device() == 0
}

/// A statement of a body.
enum BodyPiece<'t> {
    /// Perfectly nested loops, and the text of the innermost body.
    Loops { heads: Vec<Head<'t>>, inner: &'t str },
    /// Something that defines or tests and writes no memory.
    Quiet(&'t str),
    /// Anything else.
    Other,
}

/// `for (long NAME = 0; NAME < END; NAME++)`.
struct Head<'t> {
    name: &'t str,
    end: &'t str,
}

/// The head at the start of a text, and what follows it.
fn head(text: &str) -> Option<(Head<'_>, &str)> {
    let rest = text.strip_prefix("for (long ")?;
    let (name, rest) = rest.split_once(" = 0; ")?;
    let rest = rest.strip_prefix(name)?.strip_prefix(" < ")?;
    let (end, rest) = rest.split_once("; ")?;
    let rest = rest.strip_prefix(name)?.strip_prefix("++)")?;
    let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric());
    is_name.then_some((Head { name, end }, rest))
}

/// The statement at the start of a text, and what follows it.
fn statement(text: &str) -> Option<(&str, &str)> {
    let (mut depth, mut braces, mut is_control) = (0i32, 0i32, text.starts_with("for ("));
    is_control |= text.starts_with("if (") || text.starts_with('{');
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '{' => braces += 1,
            '}' => braces -= 1,
            _ => {}
        }
        let is_end = depth == 0 && braces == 0 && (c == ';' || (c == '}' && is_control));
        if is_end {
            return Some(text.split_at(i + 1));
        }
    }
    None
}

/// The perfectly nested loops of a statement, and the text of the innermost body.
fn nest(text: &str) -> Option<(Vec<Head<'_>>, &str)> {
    let (first, mut inner) = head(text)?;
    let mut heads = vec![first];
    loop {
        inner = inner.trim();
        let inside = match inner.strip_prefix('{') {
            Some(rest) => rest.strip_suffix('}')?.trim(),
            None => inner,
        };
        match head(inside) {
            // A loop that is all there is.
            Some((next, rest)) if statement(inside).is_some_and(|(_, r)| r.trim().is_empty()) => {
                heads.push(next);
                inner = rest;
            }
            _ => return Some((heads, inner)),
        }
    }
}

fn part(text: &str) -> BodyPiece<'_> {
    if let Some((heads, inner)) = nest(text) {
        return BodyPiece::Loops { heads, inner };
    }
    let first = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next();
    let types = ["const", "long", "double", "R", "S", "W", "float", "Y0", "T0", "int", "unsigned"];
    let defines = types.contains(&first.unwrap_or("")) && !text.starts_with("const void");
    let tests = text.starts_with("if (") && (text.ends_with("return 1;") || local_step(text));
    if defines || tests || text.starts_with("(void)") || local_step(text) {
        return BodyPiece::Quiet(text);
    }
    BodyPiece::Other
}

/// An assignment to a name, in a condition or not: names are a thread's own.
fn local_step(text: &str) -> bool {
    let text = match text.strip_prefix("if (") {
        Some(rest) => rest.split_once(") ").map_or("", |(_, then)| then),
        None => text,
    };
    let name: &str = text.split(' ').next().unwrap_or("");
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric());
    let behind = text[name.len()..].trim_start();
    is_name && ["= ", "+= ", "-= ", "*= "].iter().any(|o| behind.starts_with(o))
}

/// The parts of a body; none where it has no loop or something that is not known.
fn parts(body: &str) -> Option<Vec<BodyPiece<'_>>> {
    let (mut rest, mut list) = (body.trim(), Vec::new());
    while !rest.is_empty() {
        let (one, more) = statement(rest)?;
        list.push(part(one));
        rest = more.trim_start();
    }
    let is_known = list.iter().all(|p| !matches!(p, BodyPiece::Other));
    let loops = list.iter().filter(|p| matches!(p, BodyPiece::Loops { .. })).count();
    // A test of what an earlier loop wrote would need that loop's end.
    (is_known && loops > 0).then_some(list)
}

/// Loops as one whose instances threads share.
fn spread(p: &Program, heads: &[Head], inner: &str) -> String {
    let ends: Option<Vec<u64>> = heads.iter().map(|h| p.value(h.end)).collect();
    match (ends, instances(p, heads)) {
        (Some(ends), Some(all)) if all <= MOST_SHORT => spread_short(heads, &ends, all, inner),
        _ => spread_long(heads, inner),
    }
}

/// Loops of known extents with `all` instances, counted in 32 bits.
fn spread_short(heads: &[Head], ends: &[u64], all: u64, inner: &str) -> String {
    let mut text = format!(
        "  const unsigned step_ = gridDim.x * blockDim.x;\n  for (unsigned t_ = blockIdx.x * \
         blockDim.x + threadIdx.x; t_ < {all}u; t_ += step_) {{\n    unsigned rest_ = t_;\n"
    );
    for (i, (h, end)) in heads.iter().zip(ends).enumerate().rev() {
        let _ = match (i, end) {
            (0, _) => writeln!(text, "    const long {} = (long)rest_;", h.name),
            (_, 0 | 1) => writeln!(text, "    const long {} = 0;", h.name),
            _ => writeln!(
                text,
                "    const long {} = (long)(rest_ % {end}u); rest_ /= {end}u;",
                h.name
            ),
        };
    }
    text + "    " + inner + "\n  }\n"
}

/// Loops of any extents, counted in 64 bits.
fn spread_long(heads: &[Head], inner: &str) -> String {
    let ends: Vec<String> = heads.iter().map(|h| format!("(long)({})", h.end)).collect();
    let mut text = format!(
        "  const long all_ = {};\n  for (long t_ = (long)blockIdx.x * blockDim.x + threadIdx.x; \
         t_ < all_; t_ += (long)gridDim.x * blockDim.x) {{\n    long rest_ = t_;\n",
        ends.join(" * ")
    );
    for (i, h) in heads.iter().enumerate().rev() {
        let _ = match i {
            0 => writeln!(text, "    const long {} = rest_;", h.name),
            _ => writeln!(
                text,
                "    const long {} = rest_ % ({e}); rest_ /= ({e});",
                h.name,
                e = h.end
            ),
        };
    }
    text + "    " + inner + "\n  }\n"
}

/// How many instances loops have, where that is known.
fn instances(p: &Program, heads: &[Head]) -> Option<u64> {
    heads.iter().map(|h| p.value(h.end)).try_fold(1u64, |all, n| all.checked_mul(n?))
}

/// The number of threads that share loops: that of the instances, where it is known.
fn width(p: &Program, heads: &[Head]) -> u64 {
    instances(p, heads).unwrap_or(1 << 16).max(1)
}

/// The functions of a body, a launch each: a function for each loop that threads share, or one for
/// all that a single thread does.
fn by_loops(p: &Program) -> Vec<(String, u64)> {
    let (plain, device) = p.bodies();
    let body = device.unwrap_or(plain);
    let parts = if is_spread(p) { parts(body) } else { None };
    let Some(parts) = parts else {
        return vec![(body.to_string(), 1)];
    };
    let mut functions = Vec::new();
    let mut before = String::new();
    for part in &parts {
        match part {
            BodyPiece::Quiet(text) => before = before + "  " + text + "\n",
            BodyPiece::Loops { heads, inner } => {
                functions.push((before.clone() + &spread(p, heads, inner), width(p, heads)));
            }
            BodyPiece::Other => {}
        }
    }
    functions
}

/// The whole text.
pub(super) fn finish(p: &Program, symbol: &str) -> DeviceSource {
    let scratch_bytes = p.scratch_on_device();
    let Some(launched) = p.launched() else {
        let (functions, widths): (Vec<String>, Vec<u64>) = by_loops(p).into_iter().unzip();
        let (text, entries) = functions_text(p, symbol, &functions, "");
        let phase = |(entry, width)| Phase { entry, width, step: None, in_warps: false };
        let phases = entries.into_iter().zip(widths).map(phase).collect();
        return DeviceSource { text, phases, scratch_bytes };
    };
    let Launched { functions, launches } = launched;
    let (text, entries) = functions_text(p, symbol, functions, ", int step_");
    let phase = |l: &DeviceLaunch| {
        let entry = entries[l.function].clone();
        Phase { entry, width: l.width, step: Some(l.step), in_warps: true }
    };
    let phases = launches.iter().map(phase).collect();
    DeviceSource { text, phases, scratch_bytes }
}

/// The text of functions with these bodies, and the functions' names; `more` are parameters behind
/// those that all functions have.
fn functions_text(
    p: &Program,
    symbol: &str,
    bodies: &[String],
    more: &str,
) -> (String, Vec<String>) {
    let places = |from: &str, i: usize| format!("{from}{i}");
    let mut text = String::from(
        "#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif\n#ifndef \
         NAN\n#define NAN __int_as_float(0x7fffffff)\n#endif\n#define restrict \
         __restrict__\n__device__ static void failed_(int *status) { *status = 1; }\n",
    );
    text += &on_device(&p.parts(&bodies.concat(), &places).definitions);
    let mut entries = Vec::new();
    for (i, body) in bodies.iter().enumerate() {
        let entry = if bodies.len() == 1 { symbol.into() } else { format!("{symbol}_{i}") };
        let mut parameters: Vec<String> = Vec::new();
        for (list, from) in [(&p.call().inputs, "const void *in"), (&p.call().outputs, "void *out")]
        {
            let there = list.iter().enumerate().filter(|(_, o)| o.is_some());
            parameters.extend(there.map(|(i, _)| format!("{from}{i}")));
        }
        if p.call().extents() > 0 {
            parameters.push("void *extents_".into());
        }
        parameters.extend(["void *scratch".into(), "int *status_".into()]);
        let _ = writeln!(
            text,
            "extern \"C\" __global__ void {entry}({}{more}) {{\n  (void)scratch, (void)status_;",
            parameters.join(", ")
        );
        for (ty, name, from) in p.parts(body, &places).pointers {
            let _ = writeln!(text, "  {ty} *restrict {name} = ({ty} *){from};");
        }
        let count = p.call().outputs.len();
        let body = body
            .replace("return 1;", "return failed_(status_);")
            .replace(&format!("*extents = out[{count}];"), "*extents = (long long *)extents_;");
        let _ = writeln!(text, "{body}}}");
        entries.push(entry);
    }
    (text, entries)
}

/// Definitions at file scope as the device's own.
fn on_device(definitions: &str) -> String {
    let line = |l: &str| match l.strip_prefix("static ") {
        Some(rest) => format!("__device__ static {rest}\n"),
        None => format!("{l}\n"),
    };
    definitions.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_that_are_all_there_is_are_joined() {
        let text = "for (long o = 0; o < OUTER; o++)\n  for (long i = 0; i < 4; i++) {\n    for \
                    (long k = 0; k < 2; k++) y0[k] = 1;\n  y0[i] = 2;\n  }";
        let (heads, inner) = nest(text).unwrap();
        let names: Vec<&str> = heads.iter().map(|h| h.name).collect();
        assert_eq!((names, heads[0].end, heads[1].end), (vec!["o", "i"], "OUTER", "4"));
        assert!(inner.starts_with('{') && inner.ends_with('}'), "{inner}");
        assert!(nest("for (long i = 1; i < 4; i++) y0[i] = 0;").is_none());
        let joined = "for (long i0 = 0; i0 < 3; i0++) {\n  for (long i1 = 0; i1 < 5; i1++) \
                      {\n y0[i1] = 1;\n  }}";
        assert_eq!(nest(joined).unwrap().0.len(), 2);
    }

    #[test]
    fn what_writes_memory_outside_of_loops_is_not_spread() {
        assert!(parts("  y0[0] = 1;\n  for (long i = 0; i < 4; i++) y0[i] = 1;\n").is_none());
        assert!(parts("  memcpy(y0, x0, 4);\n").is_none());
        let test = "  long axis = *x1;\n  if (axis < 0) axis += 3;\n  if (axis > 2) return 1;\n  \
                    for (long i = 0; i < 4; i++) y0[i] = axis;\n";
        let list = parts(test).unwrap();
        assert_eq!(list.len(), 4);
        assert!(matches!(list[3], BodyPiece::Loops { .. }));
        // A loop that counts cannot be shared among threads.
        let counts = "  long count = 0;\n  for (long i = 0; i < 4; i++) count += x0[i];\n";
        assert!(parts(counts).is_some());
        assert!(!operator("", "NonZero").unwrap().spreads);
    }
}
