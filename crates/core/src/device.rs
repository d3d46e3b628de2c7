//! The device that a measured time belongs to: the machine, its vector width and threads, and
//! whether its caches were warm or cold. Times compare only where all of these are equal. Records
//! carry a device as one line of text, such as `cuda NVIDIA H200` or
//! `cpu MODEL, 64-byte vectors, 2 threads, cold caches`; [`DeviceIdentity`] is the same as data,
//! and this file alone parses and prints the text.

use crate::isa::{Isa, LEVELS, Level};
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// Whether the caches are warm or cold when a call is timed. Times of the two kinds are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Caches {
    /// The caches hold the data that the call before left.
    #[default]
    Warm,
    /// The caches hold nothing; on a CPU they hold the data inputs alone, as if a layer before had
    /// just written them.
    Cold,
}

impl FromStr for Caches {
    type Err = String;
    fn from_str(text: &str) -> Result<Caches, String> {
        match text {
            "warm" => Ok(Caches::Warm),
            "cold" => Ok(Caches::Cold),
            _ => Err("expected `warm` or `cold`".into()),
        }
    }
}

/// The machine that runs kernels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// A CPU; kernels of other vector widths or other numbers of threads are not comparable.
    Cpu {
        /// The processor's model.
        model: String,
        /// Width of a vector register.
        vector_bytes: usize,
        /// Threads that a kernel may use.
        threads: usize,
        /// The level of instructions that kernels were held to, where it is less than what the
        /// machine has.
        isa: Option<Isa>,
    },
    /// An NVIDIA GPU.
    Cuda {
        /// The model.
        model: String,
    },
    /// A machine that Squall did not look at itself, as others named it.
    Other(String),
}

/// What ends the model of a CPU whose kernels ran under an emulator.
const EMULATED: &str = " processor under emulation";

/// What ends the model of one of several machines of a name, before its number.
const MACHINE: &str = " (machine ";

/// What ends the text of a device whose caches are cold.
const COLD: &str = ", cold caches";

/// A device, as records name it. Every text is one: what is not in Squall's own form is
/// [`Machine::Other`], and printing gives the text back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceIdentity {
    /// The machine.
    pub machine: Machine,
    /// What its caches hold.
    pub caches: Caches,
}

impl DeviceIdentity {
    /// A CPU with warm caches.
    pub fn cpu(model: impl Into<String>, vector_bytes: usize, threads: usize) -> DeviceIdentity {
        let machine = Machine::Cpu { model: model.into(), vector_bytes, threads, isa: None };
        DeviceIdentity { machine, caches: Caches::Warm }
    }

    /// The model of an architecture's CPUs under an emulator, whose times say nothing.
    pub fn emulated(architecture: &str) -> String {
        format!("{architecture}{EMULATED}")
    }

    /// Whether times of it say nothing of any machine.
    pub fn is_emulated(&self) -> bool {
        matches!(&self.machine, Machine::Cpu { model, .. } if model.ends_with(EMULATED))
    }

    /// The same device, its kernels held to a level of instructions; all that a CPU has if none.
    pub fn with_isa(mut self, level: Option<Isa>) -> DeviceIdentity {
        if let Machine::Cpu { isa, .. } = &mut self.machine {
            *isa = level;
        }
        self
    }

    /// A GPU with warm caches.
    pub fn cuda(model: impl Into<String>) -> DeviceIdentity {
        DeviceIdentity { machine: Machine::Cuda { model: model.into() }, caches: Caches::Warm }
    }

    /// The device of the machine of this number among those of one name whose times do not compare.
    pub fn numbered(mut self, number: i32) -> DeviceIdentity {
        *self.machine.model_mut() += &format!("{MACHINE}{number})");
        self
    }

    /// The device without its machine's number, and the number, where it has one.
    pub fn number(&self) -> Option<(DeviceIdentity, i32)> {
        let mut plain = self.clone();
        let model = plain.machine.model_mut();
        let (rest, number) = model.strip_suffix(')')?.rsplit_once(MACHINE)?;
        let number = number.parse().ok()?;
        *model = rest.to_string();
        Some((plain, number))
    }

    /// The device of a record.
    pub fn parse(text: &str) -> DeviceIdentity {
        let (bare, caches) = match text.strip_suffix(COLD) {
            Some(bare) => (bare, Caches::Cold),
            None => (text, Caches::Warm),
        };
        DeviceIdentity { machine: Machine::parse(bare), caches }
    }

    /// The same machine with such caches.
    pub fn with_caches(&self, caches: Caches) -> DeviceIdentity {
        DeviceIdentity { machine: self.machine.clone(), caches }
    }
}

impl Machine {
    fn model_mut(&mut self) -> &mut String {
        match self {
            Machine::Cpu { model, .. } | Machine::Cuda { model } | Machine::Other(model) => model,
        }
    }

    fn parse(text: &str) -> Machine {
        let own = text
            .strip_prefix("cuda ")
            .map(|model| Machine::Cuda { model: model.into() })
            .or_else(|| Machine::parse_cpu(text));
        // A text that is nearly of our form must come back as it was written.
        own.filter(|m| m.to_string() == text).unwrap_or_else(|| Machine::Other(text.into()))
    }

    fn parse_cpu(text: &str) -> Option<Machine> {
        let held = |l: &&Level| text.strip_suffix(l.name).is_some_and(|rest| rest.ends_with(", "));
        let isa = LEVELS.iter().find(held);
        let text = match isa {
            Some(l) => &text[..text.len() - l.name.len() - 2],
            None => text,
        };
        let (rest, threads) = text.strip_prefix("cpu ")?.rsplit_once(", ")?;
        let (model, vectors) = rest.rsplit_once(", ")?;
        Some(Machine::Cpu {
            model: model.into(),
            vector_bytes: vectors.strip_suffix("-byte vectors")?.parse().ok()?,
            threads: threads.split_once(" thread")?.0.parse().ok()?,
            isa: isa.map(|l| l.isa),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Machine::Cpu { model, vector_bytes, threads, isa } => {
                let plural = if *threads == 1 { "" } else { "s" };
                write!(f, "cpu {model}, {vector_bytes}-byte vectors, {threads} thread{plural}")?;
                isa.map_or(Ok(()), |isa| write!(f, ", {isa}"))
            }
            Machine::Cuda { model } => write!(f, "cuda {model}"),
            Machine::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for DeviceIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caches = if self.caches == Caches::Cold { COLD } else { "" };
        write!(f, "{}{caches}", self.machine)
    }
}

impl FromStr for DeviceIdentity {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<DeviceIdentity, Infallible> {
        Ok(DeviceIdentity::parse(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_records_are_read_and_printed_as_they_stand() {
        let xeon = DeviceIdentity::cpu("Intel(R) Xeon(R) Platinum 8488C, rev 2", 64, 2);
        let text = "cpu Intel(R) Xeon(R) Platinum 8488C, rev 2, 64-byte vectors, 2 threads";
        assert_eq!((xeon.to_string().as_str(), DeviceIdentity::parse(text)), (text, xeon.clone()));
        let cold = format!("{text}, cold caches");
        assert_eq!(DeviceIdentity::parse(&cold), xeon.with_caches(Caches::Cold));
        assert_eq!(xeon.with_caches(Caches::Cold).to_string(), cold);
        let gpu = DeviceIdentity::cuda("NVIDIA H200");
        assert_eq!(gpu.to_string(), "cuda NVIDIA H200");
        for text in [
            "cpu X, 32-byte vectors, 1 thread",
            "cpu X, 32-byte vectors, 1 threads",
            "cpu X, 32-byte vectors, 1 thread, x86-64-v3",
            "cpu X, 32-byte vectors, 1 thread, x86-64-v3, cold caches",
            "cpu X, 32-byte vectors, 1 thread, x86-64-v3, x86-64-v3",
            ", x86-64-v3",
            "cpu X, 32-byte vectors, 01 thread",
            "cpu , 0-byte vectors, 0 threads, cold caches",
            "cuda NVIDIA H200, cold caches",
            "cuda ",
            "unknown",
            "A100, cold caches, cold caches",
            ", cold caches",
            "",
        ] {
            assert_eq!(DeviceIdentity::parse(text).to_string(), text);
        }
        let odd = DeviceIdentity::parse("cpu X, 32-byte vectors, 1 threads");
        assert!(matches!(odd.machine, Machine::Other(_)));
        let one = DeviceIdentity::parse("cpu X, 32-byte vectors, 1 thread");
        assert_eq!(one, DeviceIdentity::cpu("X", 32, 1));
        let held = DeviceIdentity::parse("cpu X, 32-byte vectors, 1 thread, x86-64-v3");
        assert_eq!(held, one.clone().with_isa(Some(Isa::X86_64V3)));
        assert_ne!(held, one);
        let second = held.clone().numbered(2);
        assert_eq!(second.to_string(), "cpu X (machine 2), 32-byte vectors, 1 thread, x86-64-v3");
        assert_eq!(DeviceIdentity::parse(&second.to_string()).number(), Some((held.clone(), 2)));
        assert_eq!(held.number(), None);
        assert_eq!(DeviceIdentity::parse("A100 (machine x)").number(), None);
        let emulated = DeviceIdentity::cpu(DeviceIdentity::emulated("aarch64"), 16, 1);
        assert!(DeviceIdentity::parse(&emulated.to_string()).is_emulated() && !one.is_emulated());
    }
}
