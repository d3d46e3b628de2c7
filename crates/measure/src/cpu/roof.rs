//! Measures a CPU's roof (roofline model): the peak rate of fused multiply-adds, and the read
//! bandwidth of each cache level and of memory. `roof.c` is the program that does it, compiled for
//! the device. Frequencies drift, so a rate should be compared with a peak of the same run:
//! [`Prober::peak_now`] costs 20 ms.

use super::line::run_there;
use super::{Device, Execution, Toolchain, program};
use crate::folder::TemporaryFolder;
use crate::process::describe;
use squall_core::is_stopped;
use squall_core::{Bytes, MeasurerError};
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SOURCE: &str = include_str!("roof.c");

/// Reading speed of one level of the memory hierarchy.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryLevel {
    /// `L1`, `L2`, .. or `memory`.
    pub name: String,
    /// The bytes that each core read over and over.
    pub working_set: Bytes,
    /// All cores of the device together, in GB/s.
    pub read_gbs: f64,
}

/// The machine's limits, in f32 and for as many cores as the device has threads.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuRoof {
    /// Fused multiply-adds on all cores of the device, in GFLOP/s (one is two operations).
    pub peak_gflops: f64,
    /// The same on one core alone.
    pub core_gflops: f64,
    /// Reading from memory, in GB/s.
    pub bandwidth_gbs: f64,
    /// Copying within memory, in GB/s; bytes read and bytes written both count.
    pub copy_gbs: f64,
    /// Reading speeds, innermost level first, memory last.
    pub levels: Vec<MemoryLevel>,
}

impl CpuRoof {
    /// The least time in nanoseconds that so much work can take with its data in memory.
    pub fn bound_nanos(&self, flop: f64, bytes: f64) -> f64 {
        (flop / self.peak_gflops).max(bytes / self.bandwidth_gbs)
    }
}

/// The measuring program, compiled for a device.
pub struct Prober {
    folder: TemporaryFolder,
    device: Device,
}

impl Prober {
    /// Compiles it.
    pub fn build(device: &Device, toolchain: &Toolchain) -> Result<Prober, MeasurerError> {
        device.can_time()?;
        let folder = TemporaryFolder::new("probe")?;
        let bytes = format!("-DVECTOR_BYTES={}", device.target.vector_bytes());
        let registers = format!("-DVECTOR_REGISTERS={}", device.target.vector_registers());
        let mut args = vec!["-O2", &bytes, &registers, "-pthread"];
        args.extend(toolchain.flags().iter().map(String::as_str));
        if let Err(why) =
            program::make(folder.path(), toolchain, "roof", &[("roof.c", SOURCE)], &args)?
        {
            return Err(MeasurerError::Runner(format!(
                "`{}` cannot build the roof's program: {why}",
                toolchain.command()
            )));
        }
        Ok(Prober { folder, device: device.clone() })
    }

    /// Measures everything, in about half a second.
    pub fn measure(&self) -> Result<CpuRoof, MeasurerError> {
        let t = &self.device.target;
        let threads = t.threads as u64;
        let sizes: Vec<u64> = (1..=t.machine.caches.len().max(2)).map(|l| t.cache(l)).collect();
        let mut sets: Vec<(String, u64, u32)> = Vec::new();
        for (i, &size) in sizes.iter().enumerate() {
            // Half of a level, so that it fits; but far more than the level below.
            let inner = if i > 0 { sizes[i - 1] } else { 0 };
            sets.push((format!("L{}", i + 1), (size / 2).max(2 * inner).min(size.max(8192)), 20));
        }
        let last = self.device.caches.last().map_or(32 << 20, |c| c.size.0);
        let memory = (4 * last).clamp(64 << 20, 256 << 20) / threads;
        sets.push(("memory".into(), memory.max(16 << 20), 60));
        let mut tests = vec!["fma:40".to_string()];
        tests.extend(sets.iter().map(|(_, bytes, ms)| format!("read:{bytes}:{ms}")));
        tests.push(format!("copy:{}:60", memory.max(16 << 20)));
        let all = self.run(&self.device.cores, &tests)?;
        let core_gflops =
            if t.threads == 1 { all[0] } else { self.fma(&self.device.cores[..1], 20)? };
        let levels: Vec<MemoryLevel> = sets
            .into_iter()
            .zip(&all[1..])
            .map(|((name, bytes, _), &read_gbs)| MemoryLevel {
                name,
                working_set: Bytes(bytes),
                read_gbs,
            })
            .collect();
        let bandwidth_gbs = levels.last().map_or(0.0, |l| l.read_gbs);
        Ok(CpuRoof {
            peak_gflops: all[0],
            core_gflops,
            bandwidth_gbs,
            copy_gbs: all[all.len() - 1],
            levels,
        })
    }

    /// The rate of fused multiply-adds on all cores of the device at this moment, in GFLOP/s.
    pub fn peak_now(&self) -> Result<f64, MeasurerError> {
        self.fma(&self.device.cores, 20)
    }

    /// The clock of one core at this moment, in GHz.
    pub fn clock(&self) -> Result<f64, MeasurerError> {
        Ok(self.run(&self.device.cores[..1], &["ghz:20".to_string()])?[0])
    }

    /// The spare cores that do not slow the first measured core down. Virtual machines hide which
    /// of their cores are two threads of one: such a pair computes no faster together than one of
    /// them alone, and a compiler on the other would halve what is measured. At most 16 cores are
    /// tried, each for a few milliseconds.
    pub fn undisturbing(&self) -> Result<Vec<usize>, MeasurerError> {
        let Some(&measured) = self.device.cores.first() else { return Ok(Vec::new()) };
        let mut kept = Vec::new();
        for &spare in self.device.spare.iter().take(16) {
            let alone = self.fma(&[measured], 10)?;
            if self.fma(&[measured, spare], 10)? > 1.5 * alone {
                kept.push(spare);
            }
        }
        Ok(kept)
    }

    fn fma(&self, cores: &[usize], milliseconds: u32) -> Result<f64, MeasurerError> {
        Ok(self.run(cores, &[format!("fma:{milliseconds}")])?[0])
    }

    /// One positive number for each test.
    fn run(&self, cores: &[usize], tests: &[String]) -> Result<Vec<f64>, MeasurerError> {
        let list: Vec<String> = cores.iter().map(usize::to_string).collect();
        if let Execution::Board(board) = &self.device.execution {
            let arguments = [&[list.join(",")][..], tests].concat();
            let program = self.folder.path().join("roof");
            let printed = run_there(board, &program, &arguments, Duration::from_secs(60))?;
            let failed = |how| MeasurerError::Runner(format!("the roof's program there: {how}"));
            return rates_of(&printed.map_err(failed)?, tests.len());
        }
        let path = self.folder.path().join("printed");
        let out = File::create(&path).map_err(|e| MeasurerError::folder(&path, &e))?;
        let program = self.folder.path().join("roof");
        let mut command = Command::new(&program);
        command
            .arg(list.join(","))
            .args(tests)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::null());
        let fault = |e| MeasurerError::folder(&program, &e);
        let ended = program::start_bound(&mut command)
            .map_err(fault)?
            .wait(Instant::now() + Duration::from_secs(60), None)
            .map_err(fault)?;
        let printed = fs::read_to_string(&path).unwrap_or_default();
        match ended {
            Some(e) if !e.status.success() => {
                Err(MeasurerError::Runner(format!("the roof's program: {}", describe(e.status))))
            }
            Some(_) => rates_of(&printed, tests.len()),
            None if is_stopped() => Err(MeasurerError::Stopped),
            None => Err(MeasurerError::Runner("the roof's program did not end within 60 s".into())),
        }
    }
}

/// The positive numbers, one a line, of so many tests.
fn rates_of(printed: &str, tests: usize) -> Result<Vec<f64>, MeasurerError> {
    let rates: Vec<f64> = printed.lines().filter_map(|l| l.parse().ok()).collect();
    if rates.len() == tests && rates.iter().all(|r| *r > 0.0) {
        return Ok(rates);
    }
    Err(MeasurerError::Runner("the roof's program prints no rates".into()))
}

/// Measures the clock of a device's first core, in GHz.
pub fn clock(device: &Device, toolchain: &Toolchain) -> Result<f64, MeasurerError> {
    Prober::build(device, toolchain)?.clock()
}

/// Measures the roof of a device.
pub fn roof(device: &Device, toolchain: &Toolchain) -> Result<CpuRoof, MeasurerError> {
    Prober::build(device, toolchain)?.measure()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roof_of_this_machine_is_plausible() {
        let t = Toolchain::detect().unwrap();
        let device = Device::detect(1, &t).unwrap();
        let prober = Prober::build(&device, &t).unwrap();
        let roof = prober.measure().unwrap();
        // One operation a lane at 0.2 GHz is what the slowest machine does; 16 a lane at 6 GHz is
        // beyond any.
        let lanes = device.target.lanes_f32() as f64;
        assert!(roof.peak_gflops > 0.2 * lanes && roof.peak_gflops < 96.0 * lanes, "{roof:?}");
        assert_eq!(roof.peak_gflops, roof.core_gflops);
        assert!(roof.levels.len() >= 3 && roof.levels[0].name == "L1");
        assert!(roof.levels[0].read_gbs > roof.bandwidth_gbs, "{roof:?}");
        assert!(roof.bandwidth_gbs > 0.1 && roof.copy_gbs > 0.1);
        let now = prober.peak_now().unwrap();
        assert!(now > roof.peak_gflops / 4.0 && now < roof.peak_gflops * 4.0, "{now} and {roof:?}");
        assert_eq!(roof.bound_nanos(1000.0, 0.0), 1000.0 / roof.peak_gflops);
        println!("{roof:?} now {now}");
        let ghz = prober.clock().unwrap();
        assert!(ghz > 0.2 && ghz < 10.0, "{ghz} GHz");
    }
}
