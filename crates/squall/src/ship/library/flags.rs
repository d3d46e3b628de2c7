//! The compiler flags of a library's kernels, taken from the toolchain that tuned them and split
//! into the groups that `build_files.rs` writes: instruction set, tuning, and flags that every
//! compiler knows.

use squall_measure::cpu::Toolchain;

/// Flags of a library's kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// The instruction set, such as `-march=x86-64-v3`.
    pub machine: String,
    /// `-mtune=..`, which not all compilers know.
    pub tune: String,
    /// Flags that every compiler of the toolchain's kind takes.
    pub wanted: Vec<String>,
    /// The compiler, as in `CC`.
    pub compiler: String,
    /// The version that the compiler prints.
    pub version: String,
    /// Whether it compiles OpenMP.
    pub openmp: bool,
}

impl Flags {
    /// The flags of a toolchain.
    pub fn of(toolchain: &Toolchain) -> Flags {
        let is_tune = |f: &String| f.starts_with("-mtune=");
        let is_machine =
            |f: &String| ["-march=", "-mcpu=", "-mavx"].iter().any(|m| f.starts_with(m));
        let all = toolchain.flags();
        let only = |which: &dyn Fn(&String) -> bool| {
            all.iter().filter(|f| which(f)).map(String::as_str).collect::<Vec<_>>().join(" ")
        };
        let wanted = all.iter().filter(|f| !is_machine(f) && !is_tune(f));
        // Warnings are the library's to have none of.
        let wanted = wanted.filter(|f| *f != "-w").cloned().collect();
        Flags {
            machine: only(&is_machine),
            tune: only(&is_tune),
            wanted,
            compiler: toolchain.command(),
            version: toolchain.version().into(),
            openmp: toolchain.openmp(),
        }
    }
}
