//! The option `--runner`: where kernels are run to be measured. Values are `here` (this machine),
//! `qemu` (an emulator on this machine, for correctness only) and `ssh://[user@]HOST[:PORT]` (a
//! board, a machine that only runs kernels).

use squall_measure::BoardAddress;
use std::fmt;
use std::str::FromStr;

/// The place where kernels are run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum RunnerRequest {
    /// This machine.
    #[default]
    Here,
    /// QEMU on this machine: kernels of a level of another architecture are held against their
    /// references, and none has a time.
    Emulator,
    /// Another machine.
    Board(BoardAddress),
}

impl FromStr for RunnerRequest {
    type Err = String;
    fn from_str(text: &str) -> Result<RunnerRequest, String> {
        match text {
            "here" => Ok(RunnerRequest::Here),
            "qemu" => Ok(RunnerRequest::Emulator),
            _ if text.starts_with("ssh:") => text.parse().map(RunnerRequest::Board),
            _ => Err("expected `here`, `qemu` or `ssh://[user@]HOST[:PORT]`".into()),
        }
    }
}

impl fmt::Display for RunnerRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunnerRequest::Here => f.write_str("here"),
            RunnerRequest::Emulator => f.write_str("qemu"),
            RunnerRequest::Board(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_are_read_as_they_are_printed() {
        for text in ["here", "qemu", "ssh://pi@board:2222"] {
            assert_eq!(text.parse::<RunnerRequest>().unwrap().to_string(), text);
        }
        for text in ["", "board", "ssh:board", "rsh://board"] {
            assert!(text.parse::<RunnerRequest>().unwrap_err().contains("ssh://[user@]HOST"));
        }
    }
}
