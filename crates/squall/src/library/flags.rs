//! What the kernels of a library are compiled with: the toolchain's flags, but for a processor that
//! is named, since `native` is another one wherever the library is built.

use squall_measure::cpu::Toolchain;
use std::process::{Command, Stdio};

/// The levels of x86-64, the highest first, with macros that a compiler defines where it may use
/// what is new in them.
const LEVELS: [(&str, &[&str]); 4] = [
    ("x86-64-v4", &["__AVX512F__", "__AVX512BW__", "__AVX512CD__", "__AVX512DQ__", "__AVX512VL__"]),
    ("x86-64-v3", &["__AVX2__", "__BMI__", "__BMI2__", "__F16C__", "__FMA__", "__LZCNT__"]),
    ("x86-64-v2", &["__SSE4_2__", "__SSSE3__", "__POPCNT__"]),
    ("x86-64", &["__x86_64__"]),
];

/// Flags of a library's kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// What they are compiled for.
    pub machine: String,
    /// For which machine of those instructions are ordered; not all compilers know it.
    pub tune: String,
    /// Flags that every compiler of the toolchain's kind takes.
    pub wanted: Vec<String>,
    /// The compiler, as in `CC`.
    pub compiler: String,
    /// What it says of itself.
    pub version: String,
    /// Whether it compiles OpenMP.
    pub openmp: bool,
}

impl Flags {
    /// Those of a toolchain.
    pub fn of(toolchain: &Toolchain) -> Flags {
        let is_machine = |f: &&String| f.starts_with("-march=") || f.starts_with("-mcpu=");
        let (machine, wanted): (Vec<&String>, Vec<&String>) =
            toolchain.flags().iter().partition(is_machine);
        let named: Vec<(String, String)> =
            machine.into_iter().map(|f| named(toolchain, f)).collect();
        let (machine, tune): (Vec<String>, Vec<String>) = named.into_iter().unzip();
        // Warnings are the library's to have none of.
        let wanted = wanted.into_iter().filter(|f| *f != "-w").cloned().collect();
        Flags {
            machine: machine.join(" "),
            tune: tune.concat(),
            wanted,
            compiler: toolchain.command(),
            version: toolchain.version().into(),
            openmp: toolchain.openmp(),
        }
    }
}

/// The same machine by its name, and the flag that orders instructions for it.
fn named(toolchain: &Toolchain, flag: &str) -> (String, String) {
    if !flag.ends_with("=native") {
        return (flag.into(), String::new());
    }
    let macros = said(toolchain, &[flag, "-dM", "-E", "-x", "c", "/dev/null"]);
    let has = |name: &&str| macros.lines().any(|l| l.split(' ').nth(1) == Some(name));
    let Some((level, _)) = LEVELS.iter().find(|(_, macros)| macros.iter().all(&has)) else {
        return (flag.into(), String::new());
    };
    // The order of instructions stays that of the machine; any of the level runs them.
    let help = said(toolchain, &[flag, "-Q", "--help=target"]);
    let tuned = help.lines().find_map(|l| l.trim().strip_prefix("-mtune="));
    let tuned = tuned.map(str::trim).filter(|t| !t.is_empty() && *t != "native");
    let tune = tuned.map_or(String::new(), |t| format!("-mtune={t}"));
    (format!("-march={level}"), tune)
}

/// What the compiler prints for some arguments; nothing where it fails.
fn said(toolchain: &Toolchain, arguments: &[&str]) -> String {
    let command = toolchain.command();
    let words: Vec<&str> = if std::path::Path::new(&command).is_file() {
        vec![&command]
    } else {
        command.split_whitespace().collect()
    };
    let Some((first, rest)) = words.split_first() else { return String::new() };
    let mut c = Command::new(first);
    c.args(rest).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).env("LC_ALL", "C");
    let out = c.output().ok().filter(|o| o.status.success());
    out.map_or(String::new(), |o| String::from_utf8_lossy(&o.stdout).into_owned())
}
