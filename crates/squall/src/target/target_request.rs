//! The options `--target` and `--isa`: the device that a user asks for, as plain data.
//! `target_context.rs` then looks for that device on the machine.

use crate::base::error::Error;
use squall_core::Isa;

/// The device that kernels are tuned for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TargetRequest {
    /// This machine's CPU, with all of its instructions.
    #[default]
    Cpu,
    /// A CPU held to a level of instructions; this machine's where it has that level.
    CpuAt(Isa),
    /// The CUDA device of this number.
    Cuda(u32),
    /// All CUDA devices side by side; they are of one model.
    CudaAll,
}

impl TargetRequest {
    /// Whether kernels are for a CPU.
    pub fn is_cpu(self) -> bool {
        matches!(self, TargetRequest::Cpu | TargetRequest::CpuAt(_))
    }

    /// The level of instructions that it is held to, if any.
    pub fn isa(&self) -> Option<Isa> {
        match self {
            TargetRequest::CpuAt(isa) => Some(*isa),
            _ => None,
        }
    }

    /// The same target held to a level of instructions; to all that the machine has if none.
    pub fn at(self, isa: Option<Isa>) -> Result<TargetRequest, Error> {
        match (self, isa) {
            (target, None) => Ok(target),
            (TargetRequest::Cpu | TargetRequest::CpuAt(_), Some(isa)) => {
                Ok(TargetRequest::CpuAt(isa))
            }
            (_, Some(isa)) => Err(Error::Usage {
                message: format!("{isa} is a level of CPUs, and the target is a GPU"),
                hint: "leave --isa away, or say `--target cpu`".into(),
            }),
        }
    }
}

impl std::str::FromStr for TargetRequest {
    type Err = String;
    fn from_str(text: &str) -> Result<TargetRequest, String> {
        let number = match text {
            "cpu" => return Ok(TargetRequest::Cpu),
            "cuda:all" => return Ok(TargetRequest::CudaAll),
            "cuda" => Some(0),
            _ => text.strip_prefix("cuda:").and_then(|n| n.parse().ok()),
        };
        number.map(TargetRequest::Cuda).ok_or_else(|| {
            "expected `cpu`, `cuda`, `cuda:N` with the number of a device, or `cuda:all`".into()
        })
    }
}
