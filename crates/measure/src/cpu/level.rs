//! How the code of an instruction level (such as x86-64-v3) can be run from here: by this CPU,
//! under an emulator (QEMU), on a board, or not at all, with the reason. Also the rates of byte and
//! bf16 products relative to f32 at a level.

use crate::board::Board;
use crate::process::program_file;
use squall_core::{Architecture, Feature, Isa, LEVELS, Level};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The way in which the code of a level is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Execution {
    /// This CPU: times are the machine's.
    #[default]
    Here,
    /// An emulator: the command and its arguments in front of a program. Results are right; times
    /// mean nothing.
    Emulated(Vec<String>),
    /// Another machine, over a connection.
    Board(Board),
    /// Nothing here; the reason, with the remedy.
    Nowhere(String),
}

/// The architecture of the CPU that this program runs on, where there are levels of it.
pub(super) fn architecture() -> Option<Architecture> {
    [Architecture::X86_64, Architecture::Aarch64]
        .into_iter()
        .find(|a| a.name() == std::env::consts::ARCH)
}

/// The highest level that this CPU and its operating system run.
pub fn highest_level() -> Option<Isa> {
    LEVELS.iter().rev().find(|l| runs(l) == Execution::Here).map(|l| l.isa)
}

/// The highest level of x86-64 whose instructions a compiler may use, by the macros that it
/// predefines (`#define NAME VALUE` lines).
pub(super) fn allowed(macros: &str) -> Option<&'static Level> {
    let defined: HashSet<&str> = macros.lines().filter_map(|l| l.split(' ').nth(1)).collect();
    let has = |f: &Feature| match f.name {
        "bmi1" => defined.contains("__BMI__"),
        name => {
            let name = name.replace(['.', '-'], "_").to_uppercase();
            defined.contains(format!("__{name}__").as_str())
        }
    };
    let is_x86 = defined.contains(Architecture::X86_64.defined_macro());
    let levels = LEVELS.iter().filter(|l| l.architecture == Architecture::X86_64);
    levels.rev().find(|l| is_x86 && l.needs().all(has))
}

/// How this machine runs the code of a level.
pub fn runs(level: &Level) -> Execution {
    if architecture() != Some(level.architecture) {
        return emulator(level);
    }
    let absent: Vec<&str> = level.needs().map(|f| f.name).filter(|f| !has(f)).collect();
    if absent.is_empty() {
        return Execution::Here;
    }
    Execution::Nowhere(format!(
        "this CPU cannot run {}: it lacks {}; name a lower level with --isa, or none",
        level.name,
        absent.join(", ")
    ))
}

/// QEMU's program for one process of another architecture.
fn emulator(level: &Level) -> Execution {
    let name = level.architecture.name();
    let program = format!("qemu-{name}");
    let found = [program.clone(), format!("{program}-static")].iter().find_map(|p| program_file(p));
    let Some(found) = found else {
        return Execution::Nowhere(format!(
            "{} is no level of this machine ({}), and there is no `{program}` to run its kernels; \
             `apt-get install qemu-user` gives it",
            level.name,
            std::env::consts::ARCH
        ));
    };
    let mut command = vec![found.display().to_string()];
    // Where Debian's cross compilers keep the libraries of the other machine.
    let root = PathBuf::from(format!("/usr/{name}-linux-gnu"));
    if root.is_dir() && std::env::var_os("QEMU_LD_PREFIX").is_none() {
        command.extend(["-L".into(), root.display().to_string()]);
    }
    Execution::Emulated(command)
}

/// How many operations on bytes, four of which are multiplied at once, take the time of one on
/// floats of 32 bits at a level, or on this machine: four by `vpdpbusd` and `usdot`, 32 by AMX.
/// Products of words of 16 bits are four instructions on three ports: 195 of 131 were measured.
/// Where neither is there, bytes are widened as they are loaded: 132 of 104.
pub fn byte_pace(isa: Option<Isa>) -> f64 {
    match isa.or_else(highest_level) {
        Some(Isa::X86_64V4Amx) => 32.0,
        Some(Isa::X86_64V3Vnni | Isa::X86_64V4Vnni | Isa::X86_64V4Bf16 | Isa::Armv86A) => 4.0,
        Some(isa) if isa.level().multiplies_words() => 1.5,
        _ => 132.0 / 104.0,
    }
}

/// How many operations on pairs of bf16 take the time of one on floats of 32 bits.
pub fn pair_pace(isa: Option<Isa>) -> f64 {
    match isa.or_else(highest_level) {
        Some(Isa::X86_64V4Amx) => 16.0,
        Some(Isa::X86_64V4Bf16 | Isa::Armv86A) => 2.0,
        _ => 1.0,
    }
}

/// Whether this CPU has a feature, and its operating system keeps what belongs to it.
#[cfg(target_arch = "x86_64")]
fn has(feature: &str) -> bool {
    macro_rules! detected {
        ($($name:tt)*) => { match feature {
            $($name => std::arch::is_x86_feature_detected!($name),)*
            _ => false,
        } };
    }
    detected!("sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "fma" "movbe" "avx" "f16c" "lzcnt" "bmi1"
        "avx2" "bmi2" "avx512f" "avx512dq" "avx512cd" "avx512bw" "avx512vl" "avx512vnni"
        "avx512bf16" "avxvnni")
        || has_tiles(feature)
}

/// Whether this CPU has a feature of AMX, for which the standard library has no name yet. Linux
/// lists it where it keeps tiles for programs that ask it to, as each kernel of tiles does.
#[cfg(target_arch = "x86_64")]
fn has_tiles(feature: &str) -> bool {
    static FLAGS: OnceLock<HashSet<String>> = OnceLock::new();
    let flags = FLAGS.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = text.lines().find(|l| l.starts_with("flags"));
        line.unwrap_or_default().split_whitespace().map(String::from).collect()
    });
    feature.starts_with("amx-") && flags.contains(&feature.replace('-', "_"))
}

#[cfg(target_arch = "aarch64")]
fn has(feature: &str) -> bool {
    match feature {
        "dotprod" => std::arch::is_aarch64_feature_detected!("dotprod"),
        "i8mm" => std::arch::is_aarch64_feature_detected!("i8mm"),
        "bf16" => std::arch::is_aarch64_feature_detected!("bf16"),
        _ => false,
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has(_: &str) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_levels_run_where_higher_ones_do() {
        let Some(highest) = highest_level() else { return };
        for l in LEVELS.iter().filter(|l| architecture() == Some(l.architecture)) {
            match runs(l) {
                Execution::Here => assert!(l.isa <= highest),
                Execution::Nowhere(why) => {
                    assert!(why.contains(l.name));
                    assert!(l.isa > highest || l.isa == Isa::X86_64V3Vnni);
                }
                e => panic!("{e:?}"),
            }
        }
    }

    #[test]
    fn each_feature_of_the_table_is_asked_for() {
        // On a machine of another architecture no feature is.
        if let Some(highest @ (Isa::X86_64V4Bf16 | Isa::X86_64V4Amx)) = highest_level() {
            assert!(highest.level().needs().all(|f| has(f.name)));
        }
        assert!(!has("a feature that no CPU has"));
    }
}
