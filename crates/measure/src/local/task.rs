//! A task as the runner (the process that runs kernels) needs it: files with the inputs and the
//! reference's outputs, a host plan of its tensors, and the state of measuring it: the pacemaker
//! and the best time. `mod.rs` makes one for each task.

use super::pace::{Pacemaker, Slowness};
use crate::artifact::digest;
use crate::cuda::{has_lowered_names, names_file};
use squall_core::{DType, Judge, KernelSource, Measurement, MeasurerError, TaskSetup};
use squall_runtime::HostPlan;
use squall_runtime::plan::letter;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A task that was set up; its reference outputs lie in the folder.
#[derive(Clone)]
pub(super) struct LocalTask {
    /// Its number in the measurer.
    pub number: usize,
    pub seed: u64,
    /// The file of the reference outputs.
    pub file: String,
    /// The tensors, without a kernel.
    pub tensors: HostPlan,
    pub tolerance: f64,
    pub reference_seconds: f64,
    /// The user's function that judges results in place of a comparison, if there is one.
    pub judge: Option<Judge>,
    /// The best time measured, for rejecting hopeless kernels quickly: the bits of a positive
    /// number, which are in the order of the numbers.
    pub best: Arc<AtomicU64>,
    /// The kernel that every other is timed beside; none for GPUs.
    pacemaker: Arc<Mutex<Option<Pacemaker>>>,
}

/// What tells tasks of one measurer apart. Outputs and inputs that are given are part of the
/// workload's digest.
pub(super) fn key(setup: &TaskSetup) -> String {
    let reference = setup.reference.kernel.as_ref().map_or_else(String::new, digest);
    format!("{} {reference} {}", setup.seed, setup.workload)
}

impl LocalTask {
    /// A task that nothing was measured of. What is given of inputs and outputs is written into
    /// `folder`.
    pub fn new(
        setup: &TaskSetup,
        number: usize,
        folder: &Path,
    ) -> Result<LocalTask, MeasurerError> {
        let TaskSetup { workload, reference, seed, .. } = setup;
        let tensors = tensors(setup, number, folder)?;
        if reference.kernel.is_none() {
            // The same for both sets of inputs, of which at least those that decide are given.
            let twice = [&*reference.outputs, &*reference.outputs].concat();
            write(folder, &format!("reference-{number}"), &twice)?;
        }
        Ok(LocalTask {
            number,
            seed: *seed,
            file: format!("reference-{number}"),
            tensors,
            tolerance: workload.tolerance(),
            reference_seconds: 0.0,
            judge: reference.judge.clone(),
            best: Arc::new(AtomicU64::new(f64::INFINITY.to_bits())),
            pacemaker: Arc::default(),
        })
    }

    /// The plan of a kernel that was built: the library in the folder, and how it is called.
    pub fn plan(
        &self,
        folder: &Path,
        library: &str,
        kernel: &KernelSource,
    ) -> Result<HostPlan, MeasurerError> {
        let mut names = Vec::new();
        if has_lowered_names(kernel) {
            let path = folder.join(names_file(library));
            let text =
                std::fs::read_to_string(&path).map_err(|e| MeasurerError::folder(&path, &e))?;
            names = text.lines().map(Into::into).collect();
        }
        Ok(self.tensors.with_kernel(kernel, Some(&format!("./{library}")), &names))
    }

    pub fn pacemaker(&self) -> MutexGuard<'_, Option<Pacemaker>> {
        self.pacemaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins two measurements of one kernel, with the slowness of the moment of each. The second is
    /// left out where the task has no pacemaker any more.
    pub fn join(
        &self,
        first: &mut Measurement,
        before: Slowness,
        second: Measurement,
        now: Slowness,
    ) {
        let best = first.median().0.to_bits();
        if let Some(p) = self.pacemaker().as_mut() {
            p.join((&mut *first, before), (second, now));
        }
        // Where the first measurement was the task's best, the joined one takes its place: the
        // moment may have flattered it.
        let joined = first.median().0.to_bits();
        let _ = self.best.compare_exchange(best, joined, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The plan of a task's tensors; bytes of inputs that are given are written into `folder`.
fn tensors(setup: &TaskSetup, number: usize, folder: &Path) -> Result<HostPlan, MeasurerError> {
    let workload = &setup.workload;
    let unknown = |what: String, d: DType| {
        MeasurerError::Reference(format!("{what} is {}: this cannot be measured yet", d.name()))
    };
    for i in &workload.inputs {
        // Kernels made by rule know f32, the formats of 16 bits and bytes.
        let known = match i.dtype {
            d if d.is_packed() => true,
            DType::F32 | DType::U8 | DType::I8 => true,
            d => workload.foreign.is_some() || d.is_half(),
        };
        if !known || !i.dtype.is_packed() && letter(i.dtype).is_none() {
            return Err(unknown(format!("input `{}`", i.name), i.dtype));
        }
    }
    for o in workload.outputs() {
        if workload.foreign.is_some() && letter(o.dtype).is_none() {
            return Err(unknown("the output".into(), o.dtype));
        }
    }
    let mut plan = HostPlan::of_workload(workload);
    for (k, bytes) in setup.reference.inputs.iter().enumerate() {
        if let (Some(bytes), Some(input)) = (bytes, plan.buffers.get_mut(k)) {
            let name = format!("input-{number}-{k}");
            write(folder, &name, bytes)?;
            // What is given has its own values.
            (input.file, input.range) = (Some(name), None);
        }
    }
    Ok(plan)
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), MeasurerError> {
    let path = folder.join(name);
    std::fs::write(&path, bytes).map_err(|e| MeasurerError::folder(&path, &e))
}
