//! Prints a host plan as text, one line for each region, buffer, kernel, launch and step;
//! `parse.rs` and `host/plan.c` read it. docs/plan-format.md describes the lines.

use super::{Argument, At, Buffer, HostPlan, Kernel, Launch, Region, Role, Step, Work};
use squall_core::{LaunchPhase, Mapped, TensorMap};
use std::fmt::{self, Display, Formatter};

pub(super) const ROLES: [(Role, &str); 7] = [
    (Role::Data, "data"),
    (Role::Weight, "weight"),
    (Role::Output, "output"),
    (Role::Scratch, "scratch"),
    (Role::Constant, "constant"),
    (Role::Prepared, "prepared"),
    (Role::Workspace, "workspace"),
];

impl Display for Role {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(ROLES.iter().find(|(role, _)| role == self).map_or("", |r| r.1))
    }
}

/// A name with its special characters escaped, so that it fits the rest of a line.
pub(super) fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\0', "\\0")
}

impl Display for Region {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "region {} {}", self.role, self.bytes)?;
        self.file.as_ref().map_or(Ok(()), |(name, at)| write!(f, " {name} {at}"))
    }
}

impl Display for Buffer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "buffer {} {} {} ", self.role, self.element.letter(), self.count)?;
        match self.place {
            Some((region, offset)) => write!(f, "in {region} {offset}")?,
            None => f.write_str("own")?,
        }
        if let Some((low, high)) = self.range {
            write!(f, " range {low:?} {high:?}")?;
        }
        if let Some(hard) = self.hard {
            write!(f, " hard {}", hard.word())?;
        }
        if self.gaps {
            f.write_str(" gaps")?;
        }
        if self.grown {
            f.write_str(" grown")?;
        }
        if let Some(number) = self.of {
            write!(f, " of {number}")?;
        }
        self.file.as_ref().map_or(Ok(()), |name| write!(f, " file {name}"))?;
        if !self.values.is_empty() {
            f.write_str(" values")?;
        }
        self.values.iter().try_for_each(|n| write!(f, " {n}"))
    }
}

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let library = self.library.as_deref().unwrap_or("-");
        write!(f, "kernel {} {} {library}", self.language.word(), self.symbol)?;
        write!(f, " {} {}", self.prepared, self.workspace)?;
        if !self.numbers.is_empty() {
            f.write_str("\nnumbers")?;
            self.numbers.iter().try_for_each(|n| write!(f, " {n}"))?;
        }
        for p in &self.parameters {
            write!(f, "\nparameter {} {} {}", p.role, p.element.letter(), p.count)?;
        }
        self.launches.iter().try_for_each(|l| write!(f, "\n{l}"))
    }
}

impl Display for Launch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let phase = if self.phase == LaunchPhase::Prepare { "prepare" } else { "call" };
        write!(f, "launch {phase} {}", self.entry)?;
        let sizes = self.blocks.iter().chain(&self.threads).chain([&self.shared]);
        sizes.into_iter().try_for_each(|n| write!(f, " {n}"))?;
        self.arguments.iter().try_for_each(|a| write!(f, " {a}"))?;
        self.maps.iter().try_for_each(|m| {
            f.write_str("\n")?;
            print_map(m, f)
        })
    }
}

impl Display for Argument {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Argument::Data(n) => write!(f, "d{n}"),
            Argument::Weight(n) => write!(f, "w{n}"),
            Argument::Output(n) => write!(f, "o{n}"),
            Argument::Restored { output, data } => write!(f, "r{output},{data}"),
            Argument::Prepared => f.write_str("p"),
            Argument::Workspace => f.write_str("s"),
            Argument::Status => f.write_str("e"),
            Argument::Map(n) => write!(f, "m{n}"),
            Argument::Number(bytes) => {
                f.write_str("x")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

fn print_map(m: &TensorMap, f: &mut Formatter<'_>) -> fmt::Result {
    let (memory, at) = match m.memory {
        Mapped::Data(n) => ("data", u64::from(n)),
        Mapped::Prepared(byte) => ("prepared", byte),
        Mapped::Workspace(byte) => ("workspace", byte),
    };
    write!(f, "map {memory} {at} {}", m.extents.len())?;
    m.extents.iter().chain(&m.strides).try_for_each(|n| write!(f, " {n}"))?;
    m.spanned.iter().chain(&m.steps).try_for_each(|n| write!(f, " {n}"))
}

impl Display for At {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.buffer, self.element)
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.work {
            Work::Call { kernel, buffers, prepared, workspace } => {
                write!(f, "call {kernel}")?;
                buffers.iter().try_for_each(|b| write!(f, " {b}"))?;
                for b in [prepared, workspace] {
                    match b {
                        Some(b) => write!(f, " {b}")?,
                        None => f.write_str(" -")?,
                    }
                }
            }
            Work::Copy { from, to, axes } => {
                write!(f, "copy {from} {to} {}", axes.len())?;
                axes.iter().try_for_each(|a| write!(f, " {} {} {}", a.extent, a.to, a.from))?;
            }
            Work::Runs { from, to, runs } => {
                write!(f, "runs {from} {to} {}", runs.len())?;
                runs.iter().flatten().try_for_each(|n| write!(f, " {n}"))?;
            }
            Work::Fill { to, count, value } => {
                write!(f, "fill {to} {count} x")?;
                value.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
            }
        }
        if !self.name.is_empty() {
            write!(f, " {}", escaped(&self.name))?;
        }
        self.when.iter().try_for_each(|(b, is)| write!(f, "\nwhen {b} {}", u8::from(*is)))
    }
}

impl Display for HostPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "squall plan {}", super::VERSION)?;
        self.regions.iter().try_for_each(|r| writeln!(f, "{r}"))?;
        self.buffers.iter().try_for_each(|b| writeln!(f, "{b}"))?;
        self.kernels.iter().try_for_each(|k| writeln!(f, "{k}"))?;
        self.steps.iter().try_for_each(|s| writeln!(f, "{s}"))
    }
}
