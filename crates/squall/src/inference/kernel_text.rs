//! C text around kernels: the comment above one, its prototypes, tables of those that are linked
//! in, string literals. Programs of networks, exports and libraries are written with it.

use crate::predict::choose::{Chosen, Origin};
use crate::task::task_kernels::baseline;
use squall_core::KernelSource;
use std::fmt::Write as _;

/// What stands above a kernel's code. Nothing in it can end the comment early.
pub(crate) fn comment(k: &Chosen) -> String {
    let mut text = format!("{} (task {})\n", k.task.name, k.task.id);
    match &k.origin {
        Origin::Plain => {
            text += &format!(
                "{}: no better kernel can be made of this task\n",
                baseline(&k.task.workload)
            )
        }
        Origin::Tuned(r) | Origin::Elsewhere(r) | Origin::Guessed(r, _) => {
            if matches!(k.origin, Origin::Guessed(..)) {
                text += "never tuned: a verified guess\n";
            }
            let _ = writeln!(text, "{}: {}", r.tunable, r.configuration);
            if let Some(t) = k.origin.time() {
                let rate = t.giga_rate(k.task.workload.flop() as f64);
                let _ = writeln!(text, "{t} ({rate:.2} GFLOP/s) on {}\n{}", r.device, r.toolchain);
            }
        }
    }
    let _ = write!(text, "\n{}", k.task.workload);
    format!(
        "/* {} */\n",
        text.replace("*/", "* /").replace("/*", "/ *").trim_end().replace('\n', "\n * ")
    )
}

/// The prototypes of a kernel.
pub(crate) fn declarations(k: &KernelSource) -> String {
    let s = &k.symbol;
    let mut text = format!(
        "int {s}(const void *const *data, void *const *outputs, const void *prepared, void \
         *workspace);\nsize_t {s}_workspace_bytes(void);\n"
    );
    if k.prepared.0 > 0 {
        let _ = write!(
            text,
            "size_t {s}_prepared_bytes(void);\nint {s}_prepare(const void *const *weights, void \
             *prepared);\n"
        );
    }
    text
}

/// The rows of a table of kernels that are linked in.
pub(crate) fn symbols<'a>(kernels: impl Iterator<Item = &'a KernelSource>) -> String {
    let mut c = String::from("static const rt_symbol rt_symbols[] = {\n");
    for k in kernels {
        let s = &k.symbol;
        let prepare = format!("(void (*)(void)){s}_prepare");
        let prepare = if k.prepared.0 > 0 { prepare } else { "NULL".into() };
        let _ = writeln!(c, "    {{\"{s}\", (void (*)(void)){s}, {prepare}}},");
    }
    c + "};\n"
}

/// A C string literal.
pub(crate) fn literal(text: impl AsRef<[u8]>) -> String {
    let mut s = String::from("\"");
    for &b in text.as_ref() {
        match b {
            b'"' | b'\\' => {
                s.push('\\');
                s.push(b as char);
            }
            // Three octal digits end the escape; `?` could begin a trigraph.
            b' '..=b'~' if b != b'?' => s.push(b as char),
            _ => {
                let _ = write!(s, "\\{b:03o}");
            }
        }
    }
    s + "\""
}
