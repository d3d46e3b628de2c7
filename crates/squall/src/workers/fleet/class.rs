//! Finds the class of this machine's device in a fleet. A class is a set of devices whose measured
//! times compare: the same model, toolchain, caches and instructions, and similar measured rates.
//! The measured part of the fingerprint (the roof, and the speed of one calibration kernel) takes a
//! few seconds, once for each boot of the machine; `squall-fleet` compares it with those of known
//! classes.

use super::{Fleet, FleetError};
use crate::base::error::Error;
use crate::predict::general::{Effort, formula_outlook};
use crate::target::target_context::TargetContext;
use crate::task::task_kernels::TaskKernels;
use crate::task::trials::{Limits, NoRecords, Rounds, run_trials};
use squall_core::operator::MatMul;
use squall_core::{Nanos, Task, TensorKind};
use squall_fleet::{DeviceOfMachine, Fingerprint};
use squall_measure::cpu::Execution;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// Where Linux keeps the random id of the present boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// How often the roof is measured: on a busy machine, some of the measurements still show its
/// speed.
const ROOFS: usize = 3;
/// The calibration kernel, whose speed is part of a class, is a product of square matrices of this
/// size. It shows how fast generated code runs as this compiler builds it.
const CALIBRATION: i64 = 128;
/// How often it is timed.
const ROUNDS: usize = 3;

/// The id of this machine's present boot.
pub(super) fn this_boot() -> String {
    std::fs::read_to_string(BOOT).unwrap_or_default().trim().to_string()
}

/// The present run of the machine on which kernels run.
pub(super) fn boot_of(at: &TargetContext) -> String {
    match &at.device.execution {
        Execution::Board(board) if at.gpus.is_empty() => {
            board.boot().unwrap_or_else(|| format!("{} {}", board.address(), this_boot()))
        }
        _ => this_boot(),
    }
}

/// The class of a device.
pub(super) fn class_of(fleet: &mut Fleet, at: &TargetContext) -> Result<i32, Error> {
    let (boot, device) = (boot_of(at), at.device_name());
    let here = DeviceOfMachine { boot: &boot, device: &device, toolchain: &at.place.toolchain };
    match fleet.class_since_boot(here)? {
        Some(class) => Ok(class),
        None => Ok(fleet.class(here, &fingerprint(at)?)?),
    }
}

/// The fingerprint of the device: the properties that its name does not tell.
fn fingerprint(at: &TargetContext) -> Result<Fingerprint, Error> {
    let mut facts = BTreeMap::new();
    if at.gpus.is_empty() {
        for c in &at.device.caches {
            let shared = format!("{} shared by {}", c.size, c.shared_by);
            facts.insert(format!("cache {}", c.level), shared);
        }
        let mut features = at.device.features.clone();
        features.sort_unstable();
        facts.insert("instructions".into(), features.join(" "));
    }
    let mut found = Fingerprint { facts, rates: BTreeMap::new() };
    // Under an emulator there are no times.
    if !at.is_timed() {
        return Ok(found);
    }
    for _ in 0..ROOFS {
        let roof = at.roof_now()?;
        let mut best = |name: String, rate: f64| {
            let known = found.rates.entry(name).or_insert(rate);
            *known = known.max(rate);
        };
        best("peak".into(), roof.peak_gflops * 1e9);
        best("read memory".into(), roof.memory_gbs * 1e9);
        for level in &roof.levels {
            best(format!("read {}", level.name), level.gbs * 1e9);
        }
    }
    if let Some(rate) = calibration(at)? {
        found.rates.insert("calibration".into(), rate);
    }
    found.rates.retain(|_, rate| rate.is_finite() && *rate > 0.0);
    Ok(found)
}

/// The speed of one generated kernel in FLOP/s; none where it cannot be made or is not right.
fn calibration(at: &TargetContext) -> Result<Option<f64>, Error> {
    let product = MatMul::plain(CALIBRATION, CALIBRATION, CALIBRATION, TensorKind::Weight);
    let task = Task::new("calibration", product.workload().map_err(FleetError::Nothing)?);
    let kernels = TaskKernels::generated(&task, &at.target);
    let first = formula_outlook(&task, &kernels.tunables, Effort::Calibration, 1).candidates;
    let mut measurer = at.measurer()?;
    measurer.set_task(&kernels.setup(&task, 0))?;
    let mut rounds = Rounds::new(first, ROUNDS);
    if rounds.is_empty() {
        return Ok(None);
    }
    let stop = AtomicBool::new(false);
    let limits = Limits::new(rounds.len(), rounds.batch(), &stop);
    run_trials(&mut *measurer, &kernels.tunables, &mut rounds, &mut NoRecords, &limits)?;
    let times = rounds.into_times().into_iter().flat_map(|(_, times)| times);
    let best = times.reduce(f64::min);
    Ok(best.map(|t| task.workload.flop() as f64 / Nanos(t).seconds()))
}
