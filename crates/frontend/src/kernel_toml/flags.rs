//! Checks the compiler flags that a kernel.toml names. A kernel.toml may come from a stranger, so a
//! flag that would make the compiler do more than compile this kernel (load a plugin, run a
//! program, write files of its own) is refused with its place in the file.

use super::document::{Fault, fault};
use std::ops::Range;

/// Refuses a flag that the compiler of the language does not take for one kernel.
pub fn check(flag: &str, cuda: bool, at: Range<usize>) -> Result<(), Fault> {
    if cuda { check_nvrtc(flag, at) } else { check_c(flag, at) }
}

/// Beginnings of `-f` and `-m` flags that load code, run other programs, choose another linker, or
/// write or read files of their own; of gcc and clang.
const REACHING: [&str; 34] = [
    "-fplugin",
    "-fpass-plugin",
    "-fuse-ld",
    "-fmodule",
    "-fdump",
    "-fprofile",
    "-fauto-profile",
    "-fcs-profile",
    "-fmemory-profile",
    "-fbranch-probabilities",
    "-ftest-coverage",
    "-fcoverage",
    "-fcallgraph-info",
    "-fstack-usage",
    "-fopt-info",
    "-fsave-optimization-record",
    "-foptimization-record",
    "-fcompare-debug",
    "-fdiagnostics-",
    "-fcrash-diagnostics",
    "-fproc-stat-report",
    "-ftime-trace",
    "-fembed-",
    "-foffload",
    "-fopenmp-targets",
    "-fsanitize-",
    "-fxray",
    "-fbuild-session",
    "-fprebuilt",
    "-fpch",
    "-frandomize-layout-seed-file",
    "-fthinlto-index",
    "-mllvm",
    "-mmlir",
];

/// Beginnings of `-W` flags that hand words to the linker, the preprocessor or the assembler.
const HANDED_ON: [&str; 3] = ["-Wl", "-Wp", "-Wa"];

/// Whether a flag would make the compiler do more than compile. `-Wpedantic` and its like only
/// warn.
fn reaches_out(flag: &str) -> bool {
    let is_handed_on = |p: &&str| {
        flag.strip_prefix(*p).is_some_and(|rest| rest.starts_with(',') || rest.is_empty())
    };
    REACHING.iter().any(|p| flag.starts_with(p))
        || HANDED_ON.iter().any(is_handed_on)
        // Names a file in which the compiler leaves or looks for parts of the program.
        || flag.starts_with("-gsplit-dwarf")
}

fn check_c(flag: &str, at: Range<usize>) -> Result<(), Fault> {
    let meant = flag.is_empty()
        || ["-O", "-f", "-m", "-D", "-U", "-I", "-W", "-w", "-std=", "-g", "--param="]
            .iter()
            .any(|p| flag.starts_with(p));
    if reaches_out(flag) {
        return fault(
            at,
            format!(
                "`{flag}` makes the compiler load, run or write more than this kernel: such flags \
                 are not taken"
            ),
        );
    }
    if !meant || flag.contains(char::is_whitespace) {
        return fault(
            at,
            format!(
                "`{flag}` is no flag for one kernel: -O, -f, -m, -D, -U, -I, -W, -std, -g and \
                 --param= are, without spaces"
            ),
        );
    }
    Ok(())
}

fn check_nvrtc(flag: &str, at: Range<usize>) -> Result<(), Fault> {
    let (dashes, word) = flag.split_at(flag.len() - flag.trim_start_matches('-').len());
    let words = [
        "use_fast_math",
        "maxrregcount=",
        "fmad=",
        "ftz=",
        "prec-div=",
        "prec-sqrt=",
        "std=",
        "extra-device-vectorization",
        "lineinfo",
        "restrict",
        "D",
        "U",
        "I",
    ];
    let meant = flag.is_empty()
        || (matches!(dashes, "-" | "--") && words.iter().any(|w| word.starts_with(w)));
    if !meant || flag.contains(char::is_whitespace) {
        return fault(
            at,
            format!(
                "`{flag}` is no flag of NVRTC for one kernel: -D, -U, -I, --std=, \
                 --use_fast_math, --maxrregcount=, --fmad=, --ftz=, --prec-div=, --prec-sqrt=, \
                 --extra-device-vectorization, --restrict and -lineinfo are, without spaces"
            ),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_do_more_than_compile_are_refused() {
        for flag in [
            "-fplugin=./evil.so",
            "-fplugin-arg-evil-x=1",
            "-fpass-plugin=./evil.so",
            "-Wl,--version-script=x",
            "-Wp,-MD,/tmp/x",
            "-Wa,-alh=/tmp/x",
            "-Wl",
            "-fdump-tree-all",
            "-fdump-rtl-all=/tmp/x",
            "-fuse-ld=/tmp/ld",
            "-fmodule-mapper=|sh",
            "-fprofile-generate=/tmp/x",
            "-fopt-info-all=/tmp/x",
            "-fdiagnostics-add-output=sarif:file=/tmp/x",
            "-mllvm",
            "-mllvm=-load=x.so",
            "-gsplit-dwarf",
            "-B/tmp",
            "-specs=x",
            "-o",
            "@file",
            "-O2 -x",
        ] {
            assert!(check_c(flag, 0..0).is_err(), "{flag}");
        }
        for flag in [
            "",
            "-O1",
            "-Ofast",
            "-ffast-math",
            "-fno-tree-vectorize",
            "-mavx2",
            "-march=native",
            "-mprefer-vector-width=256",
            "-DX=1",
            "-UX",
            "-Iinclude",
            "-Wall",
            "-Wpedantic",
            "-Wparentheses",
            "-Wlogical-op",
            "-Waddress",
            "-Wno-array-bounds",
            "-w",
            "-std=c11",
            "-g",
            "--param=inline-unit-growth=40",
            "-fsanitize=address",
            "-fopenmp",
            "-flto",
        ] {
            assert!(check_c(flag, 0..0).is_ok(), "{flag}");
        }
    }
}
