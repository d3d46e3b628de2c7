//! The parts of an exported library's C text that are not templates: tables, the kernels renamed
//! with the library's prefix, and macros that give the runtime's functions (`rt_..`) names of the
//! library's own, so that two libraries can be linked into one program. `mod.rs` and `gpu.rs` write
//! the files.

use super::interface::{Extents, Name, Ports, plain, spelling};
use super::shared_loops::shared;
use crate::inference::kernel_text::literal;
use crate::inference::network::Kernel;
use serde_json::Value;
use squall_runtime::host;
use std::collections::BTreeSet;
use std::fmt::Write as _;

impl Kernel<'_> {
    /// Its symbol in the library: the network's name, and its own.
    pub fn symbol(&self, name: &Name) -> String {
        let own = self.source.symbol.strip_prefix("squall_").unwrap_or(&self.source.symbol);
        format!("{}_{own}", name.text())
    }

    /// Its text in the library.
    pub fn text(&self, name: &Name) -> String {
        let (old, new) = (&self.source.symbol, self.symbol(name));
        let text = shared(&replaced(&self.source.source, old, &new), &new);
        // A generated text may have a helper that this kernel does not call, and GCC warns of
        // vectors that are wider than the processor's between functions, which are all inlined.
        let ignored = ["-Wunused-function", "-Wpsabi"];
        let ignored = ignored.map(|w| format!("#pragma GCC diagnostic ignored \"{w}\"\n"));
        format!("{}#include \"names.h\"\n{}{text}", self.head, ignored.concat())
    }
}

/// A text with one identifier, and those that begin with it and a `_`, renamed.
fn replaced(text: &str, old: &str, new: &str) -> String {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(old) {
        let before = rest[..at].chars().next_back().or(out.chars().next_back());
        out += &rest[..at];
        out += if is_part(before) { old } else { new };
        rest = &rest[at + old.len()..];
    }
    out + rest
}

/// A template with its places filled.
pub fn filled(template: &str, places: &[(&str, &str)]) -> String {
    let mut text = template.to_string();
    for (place, with) in places {
        text = text.replace(&format!("@{place}@"), with);
    }
    text
}

/// Symbols of these files of the runtime that are visible outside of their file.
fn runtime_symbols(files: &[&str]) -> BTreeSet<&'static str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut all = BTreeSet::new();
    for (_, text) in host::exported(files).filter(|(file, _)| file.ends_with(".c")) {
        for line in text.lines().filter(|l| l.starts_with(|c: char| c.is_ascii_lowercase())) {
            let Some((before, _)) = line.split_once('(') else { continue };
            if before.starts_with("static") || before.starts_with("typedef") {
                continue;
            }
            let name = before.rsplit(|c| !is_name(c)).next().unwrap_or("");
            if name.starts_with("rt_") {
                all.insert(name);
            }
        }
    }
    all
}

/// Macros that put the network's name before the symbols of files of the runtime.
pub fn names(name: &Name, files: &[&str]) -> String {
    let mut text = String::from(
        "/* The runtime's symbols have the network's name before theirs, so that several networks \
         fit one\n * program. Made by Squall. */\n",
    );
    text.extend(runtime_symbols(files).iter().map(|symbol| renamed(name, symbol)));
    text
}

/// A macro that puts the network's name before one symbol.
pub fn renamed(name: &Name, symbol: &str) -> String {
    format!("#define {symbol} {}_{symbol}\n", name.text())
}

/// The table of kernels.
pub fn kernels(name: &Name, all: &[Kernel<'_>]) -> String {
    let mut text = String::from("/* The kernels. Made by Squall. */\n");
    for k in all {
        let _ = writeln!(text, "extern rt_run_function {};", k.symbol(name));
    }
    text += "\nstatic const rt_library_kernel kernels[] = {\n";
    for k in all {
        let _ = writeln!(text, "    {{\"{}\", {}}},", k.source.symbol, k.symbol(name));
    }
    text + "};\n"
}

/// A text as a constant of C.
pub fn constant(comment: &str, name: &str, text: &str) -> String {
    let mut c = format!("/* {comment} Made by Squall. */\nstatic const char {name}[] =");
    for line in text.split_inclusive('\n') {
        // Compilers take literals of any length, editors lines that are not too long.
        for piece in line.as_bytes().chunks(3000) {
            let _ = write!(c, "\n    {}", literal(piece));
        }
    }
    c + ";\n"
}

/// C tables of the tensors, for a program over the interface.
pub fn example_tensors(ports: &Ports) -> String {
    let mut text = format!(
        "enum {{ INPUTS = {}, OUTPUTS = {} }};\n\n/* A tensor: its elements, their size, and `f` \
         or `d` of floating-point numbers. */\ntypedef struct {{\n  const char *name;\n  size_t \
         count, size;\n  char type;\n}} tensor;\n",
        ports.inputs.len(),
        ports.outputs.len()
    );
    for (what, list) in [("inputs", &ports.inputs), ("outputs", &ports.outputs)] {
        let _ = write!(text, "\nstatic const tensor {what}[] = {{\n");
        for p in list {
            let letter = Some(p.element.letter()).filter(|l| "fd".contains(*l)).unwrap_or('i');
            let (name, size) = (literal(plain(&p.name)), p.element.bytes());
            // What the run says of one of open extents is as many words of 64 bits.
            let (size, letter) =
                if p.extents == Extents::Grown { (8, 'o') } else { (size, letter) };
            let _ = writeln!(text, "    {{{name}, {}, {size}, '{letter}'}},", p.count);
        }
        text += "};\n";
    }
    text.trim_end().into()
}

/// The same for ONNX Runtime: the number of the type, and the extents.
pub fn onnx_tensors(ports: &Ports) -> String {
    let all = || ports.inputs.iter().chain(&ports.outputs);
    let most = all().map(|p| p.shape.len()).max().unwrap_or(0).max(1);
    let mut text = format!(
        "enum {{ INPUTS = {}, OUTPUTS = {}, RANK = {most} }};\n\ntypedef struct {{\n  int type;\n  \
         size_t rank;\n  int64_t extents[RANK];\n}} tensor;\n",
        ports.inputs.len(),
        ports.outputs.len()
    );
    for (what, list) in [("inputs", &ports.inputs), ("outputs", &ports.outputs)] {
        let _ = write!(text, "\nstatic const tensor {what}[] = {{\n");
        for p in list {
            let mut extents = p.shape.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
            if extents.is_empty() {
                extents.push('0');
            }
            let (type_, rank) = (spelling(p.element).2, p.shape.len());
            let _ = writeln!(text, "    {{{type_}, {rank}, {{{extents}}}}},");
        }
        text += "};\n";
    }
    text.trim_end().into()
}

/// JSON as a constant of C.
pub fn description(facts: &Value) -> String {
    constant("What the library says of itself.", "description", &format!("{facts:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_identifiers_are_renamed() {
        let text = "int squall_a(x) { squall_a_prepare; xsquall_a; 1 + squall_a; }";
        let want = "int n_a(x) { n_a_prepare; xsquall_a; 1 + n_a; }";
        assert_eq!(replaced(text, "squall_a", "n_a"), want);
    }

    #[test]
    fn all_symbols_of_the_runtime_are_found() {
        let all = runtime_symbols(&host::EXPORTED);
        for name in ["rt_execute", "rt_model_open", "rt_plan_read", "rt_fail", "rt_digest"] {
            assert!(all.contains(name), "{name}: {all:?}");
        }
        assert!(runtime_symbols(&host::EXPORTED_GPU).contains("rt_gpu_library_run"));
        for files in [&host::EXPORTED[..], &host::EXPORTED_GPU] {
            assert_eq!(host::exported(files).count(), files.len());
        }
    }

    #[test]
    fn long_lines_and_characters_survive() {
        let text = format!("{}ä\"?\n", "x".repeat(2999));
        let c = constant("C.", "c", &text);
        assert!(c.contains("\\303") && c.contains("\\\""), "{c}");
    }
}
