//! Compiler flags that a kernel.toml may name. A flag that would make the compiler do anything but
//! compile this kernel is refused.

use super::document::{Fault, fault};
use std::ops::Range;

/// Refuses a flag that the compiler of the language does not take for one kernel.
pub fn check(flag: &str, cuda: bool, at: Range<usize>) -> Result<(), Fault> {
    if cuda { check_nvrtc(flag, at) } else { check_c(flag, at) }
}

fn check_c(flag: &str, at: Range<usize>) -> Result<(), Fault> {
    let meant = flag.is_empty()
        || ["-O", "-f", "-m", "-D", "-U", "-I", "-W", "-w", "-std=", "-g", "--param="]
            .iter()
            .any(|p| flag.starts_with(p));
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
