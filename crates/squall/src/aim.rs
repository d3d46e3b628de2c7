//! What kernels are made for: this machine's CPU or GPUs, looked at, with the names that records
//! give them.

use crate::error::Error;
use crate::report::{Roof, RoofLevel};
use crate::settings::Aim;
use squall_compiler::CODEGEN_VERSION;
use squall_core::MeasurerError as MeasureError;
use squall_core::Target;
use squall_measure::LocalMeasurer;
use squall_measure::cpu::{Device, Toolchain, roof};
use squall_measure::cuda::Gpu;

/// The toolchain's name in records: what turns a configuration into machine code.
pub fn toolchain_id(toolchain: &Toolchain) -> String {
    format!("squall-codegen {CODEGEN_VERSION}; {}", toolchain.id())
}

/// What kernels are made for, as records and search see it, and what measures there.
#[derive(Clone, Debug)]
pub struct Aimed {
    /// The device's name in records.
    pub id: String,
    /// The toolchain's name in records.
    pub tools: String,
    /// What code generation and search need to know.
    pub target: Target,
    /// The C compiler, which references need wherever kernels run.
    pub toolchain: Toolchain,
    /// The CPU; beside GPUs, one core of it runs references and starts kernels, the others compile.
    pub device: Device,
    /// The GPUs, of one model; none for a CPU.
    pub gpus: Vec<Gpu>,
    /// Whether calls are timed with cold caches.
    pub is_cold: bool,
}

/// What the names of devices end with whose caches are cold: times of the two kinds do not mix.
const COLD: &str = ", cold caches";

impl Aimed {
    /// Looks at the machine; `threads` are a kernel's on the CPU.
    pub fn at(aim: Aim, threads: usize) -> Result<Aimed, Error> {
        let toolchain = Toolchain::detect()?;
        let gpus = match aim {
            Aim::Cpu => {
                let device = Device::detect(threads, &toolchain)?;
                let (id, tools, target) =
                    (device.id(), toolchain_id(&toolchain), device.target.clone());
                return Ok(Aimed {
                    id,
                    tools,
                    target,
                    toolchain,
                    device,
                    gpus: Vec::new(),
                    is_cold: false,
                });
            }
            Aim::Cuda(ordinal) => vec![Gpu::detect(ordinal, &toolchain)?],
            Aim::CudaAll => Gpu::detect_all(&toolchain)?,
        };
        let first = &gpus[0];
        if let Some(other) = gpus.iter().find(|g| g.id() != first.id() || g.limits != first.limits)
        {
            return Err(MeasureError::Device(format!(
                "the GPUs differ, and times compare only within one model: {} is {}, {} is {}; \
                 name one with --target cuda:N",
                first.ordinal, first.name, other.ordinal, other.name
            ))
            .into());
        }
        let device = Device::detect(1, &toolchain)?;
        let tools = format!("squall-codegen {CODEGEN_VERSION}; {}", first.toolchain());
        let (id, target) = (first.id(), first.target.clone());
        Ok(Aimed { id, tools, target, toolchain, device, gpus, is_cold: false })
    }

    /// The same with cold caches.
    pub fn cold(mut self) -> Aimed {
        if !std::mem::replace(&mut self.is_cold, true) {
            self.id += COLD;
        }
        self
    }

    /// How far a device is from this one: 0 is this one, 1 this one with other caches.
    pub fn distance(&self, device: &str) -> u8 {
        let bare = |d: &str| d.strip_suffix(COLD).unwrap_or(d).to_string();
        if device == self.id { 0 } else { 2 - u8::from(bare(device) == bare(&self.id)) }
    }

    /// How far what a record says is from here: by device, then whether another toolchain made it.
    pub(crate) fn far(&self, r: &squall_core::Record) -> (u8, bool) {
        (self.distance(&r.device), r.toolchain != self.tools)
    }

    /// What the machine can do at most, measured now (half a second).
    pub fn roof(&self) -> Result<Roof, Error> {
        match self.gpus.first() {
            Some(gpu) => gpu_roof(gpu, &self.toolchain),
            None => measure_roof(&self.device, &self.toolchain),
        }
    }

    /// Opens a laboratory there.
    pub fn lab(&self) -> Result<LocalMeasurer, Error> {
        let (device, toolchain) = (self.device.clone(), self.toolchain.clone());
        let mut lab = if self.gpus.is_empty() {
            LocalMeasurer::on_cpu(device, toolchain)?
        } else {
            LocalMeasurer::on_gpus(&self.gpus, device, toolchain)?
        };
        if self.is_cold {
            lab.set_cache_flush(self.flushing_bytes());
        }
        Ok(lab)
    }

    /// Bytes that push everything out of the caches.
    fn flushing_bytes(&self) -> u64 {
        match self.gpus.first() {
            Some(gpu) => 2 * u64::from(gpu.limits.l2),
            // A walk through more would cost more than the kernels.
            None => self
                .device
                .caches
                .iter()
                .map(|c| c.size.0)
                .max()
                .unwrap_or(32 << 20)
                .clamp(1 << 20, 64 << 20),
        }
    }
}

/// The roof of a CPU, in the report's words.
pub fn measure_roof(device: &Device, toolchain: &Toolchain) -> Result<Roof, Error> {
    let r = roof(device, toolchain)?;
    let caches = r.levels.iter().filter(|l| l.name != "memory").enumerate();
    let level = |(i, l): (usize, &squall_measure::cpu::Level)| RoofLevel {
        name: l.name.clone(),
        bytes: device.target.cache(i + 1),
        gbs: l.read_gbs,
    };
    Ok(Roof {
        peak_gflops: r.peak_gflops,
        memory_gbs: r.bandwidth_gbs,
        levels: caches.map(level).collect(),
    })
}

/// The same of a GPU: f32 without tensor cores, its second-level cache, its memory.
pub fn gpu_roof(gpu: &Gpu, toolchain: &Toolchain) -> Result<Roof, Error> {
    let r = gpu.roof(toolchain)?;
    let l2 = RoofLevel { name: "L2".into(), bytes: u64::from(gpu.limits.l2), gbs: r.l2_gbs };
    Ok(Roof { peak_gflops: r.peak_gflops, memory_gbs: r.copy_gbs, levels: vec![l2] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_other_caches_is_nearer_than_another_machine() {
        let warm = Aimed::at(Aim::Cpu, 1).expect("a CPU and a compiler");
        let cold = warm.clone().cold();
        assert_eq!(
            [warm.distance(&warm.id), warm.distance(&cold.id), warm.distance("another")],
            [0, 1, 2]
        );
        assert_eq!(
            [cold.distance(&cold.id), cold.distance(&warm.id), cold.distance("another")],
            [0, 1, 2]
        );
        assert_eq!(cold.clone().cold().id, cold.id);
    }
}
