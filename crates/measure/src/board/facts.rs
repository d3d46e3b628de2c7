//! Facts of a board: its `/proc/cpuinfo` and other system files, as the keeper (the program on the
//! board) sends them when the connection opens. From them follow the board's architecture and the
//! highest instruction level (such as armv8.2-a) whose code it runs.

use squall_core::{Architecture, Isa, LEVELS, Level};
use std::collections::HashMap;

/// CPU features whose name in Linux differs from the compilers': (compilers' name, Linux's name).
const LINUX: [(&str, &str); 11] = [
    ("sse3", "pni"),
    ("sse4.1", "sse4_1"),
    ("sse4.2", "sse4_2"),
    ("lzcnt", "abm"),
    ("avx512vnni", "avx512_vnni"),
    ("avx512bf16", "avx512_bf16"),
    ("avxvnni", "avx_vnni"),
    ("dotprod", "asimddp"),
    ("amx-tile", "amx_tile"),
    ("amx-int8", "amx_int8"),
    ("amx-bf16", "amx_bf16"),
];

/// The facts of a board.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The machine's name by its operating system, such as `aarch64`.
    pub machine: String,
    /// The cores that may be used there.
    pub cores: Vec<usize>,
    /// Files by their paths.
    pub files: HashMap<String, String>,
}

impl Facts {
    /// The text of a file of its system, without spaces around it.
    pub fn read(&self, path: &str) -> Option<String> {
        self.files.get(path).map(|text| text.trim().to_string())
    }

    /// The architecture that its kernels are compiled for, if Squall knows it.
    pub fn architecture(&self) -> Option<Architecture> {
        let named = |a: &Architecture| {
            a.name() == self.machine || (self.machine == "arm64" && *a == Architecture::Aarch64)
        };
        [Architecture::X86_64, Architecture::Aarch64].into_iter().find(named)
    }

    /// The features of a level of instructions that it lacks.
    pub fn absent(&self, level: &Level) -> Vec<&'static str> {
        let cpuinfo = self.read("/proc/cpuinfo").unwrap_or_default();
        let flags: Vec<&str> = cpuinfo
            .lines()
            .filter_map(|l| l.split_once(':'))
            .find(|(key, _)| matches!(key.trim(), "flags" | "Features"))
            .map(|(_, flags)| flags.split_whitespace().collect())
            .unwrap_or_default();
        let word = |name: &'static str| {
            LINUX.iter().find(|(ours, _)| *ours == name).map_or(name, |(_, theirs)| theirs)
        };
        let needs = level.needs().map(|f| f.name);
        needs.filter(|name| !flags.contains(&word(name))).collect()
    }

    /// The highest level of instructions that it has.
    pub fn highest_level(&self) -> Option<Isa> {
        let ours = self.architecture()?;
        let levels = LEVELS.iter().rev().filter(|l| l.architecture == ours);
        levels.into_iter().find(|l| self.absent(l).is_empty()).map(|l| l.isa)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(machine: &str, cpuinfo: &str) -> Facts {
        let files = HashMap::from([("/proc/cpuinfo".to_string(), cpuinfo.to_string())]);
        Facts { machine: machine.into(), cores: vec![0], files }
    }

    #[test]
    fn the_level_follows_from_the_flags() {
        let v3 = "flags\t\t: fpu pni ssse3 sse4_1 sse4_2 popcnt fma movbe avx f16c abm bmi1 avx2 \
                  bmi2\n";
        assert_eq!(facts("x86_64", v3).highest_level(), Some(Isa::X86_64V3));
        assert_eq!(facts("x86_64", v3).absent(Isa::X86_64V4.level())[0], "avx512f");
        assert_eq!(facts("x86_64", "flags : fpu\n").highest_level(), None);
        assert_eq!(facts("aarch64", "CPU part : 0xd0b\n").highest_level(), Some(Isa::Armv8A));
        let arm = "Features\t: fp asimd aes atomics asimdhp asimddp\n";
        assert_eq!(facts("aarch64", arm).highest_level(), Some(Isa::Armv82Dotprod));
        let arm = "Features\t: fp asimd asimddp sve i8mm bf16\n";
        assert_eq!(facts("aarch64", arm).highest_level(), Some(Isa::Armv86A));
        assert_eq!(facts("riscv64", "").architecture(), None);
    }
}
