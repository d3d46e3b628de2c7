//! A task as the process that runs kernels is told it: the files of what is given, sizes and types
//! in the words of `runner.c`, and what was learned while measuring it.

use super::pace::{Pacemaker, Slowness};
use crate::artifact::digest;
use crate::cpu::letter;
use squall_core::{DType, Measurement, MeasurerError, TaskSetup, TensorKind, Workload};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A task that was set up; its reference outputs lie in the folder.
#[derive(Clone)]
pub(super) struct LocalTask {
    /// Its number in the measurer.
    pub number: usize,
    /// The runner's command without the library: seed and file.
    pub head: String,
    /// The sizes of outputs and inputs.
    pub tail: String,
    pub tolerance: f64,
    pub reference_seconds: f64,
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
        let outputs = outputs(workload)?;
        let inputs = inputs(setup, number, folder)?;
        if reference.kernel.is_none() {
            // The same for both sets of inputs, of which at least those that decide are given.
            let twice = [&*reference.outputs, &*reference.outputs].concat();
            write(folder, &format!("reference-{number}"), &twice)?;
        }
        Ok(LocalTask {
            number,
            head: format!("task {seed} reference-{number}"),
            tail: format!("{outputs} {inputs}"),
            tolerance: workload.tolerance(),
            reference_seconds: 0.0,
            best: Arc::new(AtomicU64::new(f64::INFINITY.to_bits())),
            pacemaker: Arc::default(),
        })
    }

    pub fn pacemaker(&self) -> MutexGuard<'_, Option<Pacemaker>> {
        self.pacemaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins two measurements of one kernel. The second is left out where the task has no
    /// pacemaker any more.
    pub fn join(
        &self,
        (first, before): (&mut Measurement, Slowness),
        second: (Measurement, Slowness),
    ) {
        let best = first.median().0.to_bits();
        if let Some(p) = self.pacemaker().as_mut() {
            p.join((first, before), second);
        }
        // Where the first measurement was the task's best, the joined one takes its place: the
        // moment may have flattered it.
        let joined = first.median().0.to_bits();
        let _ = self.best.compare_exchange(best, joined, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The outputs as the runner reads them: letters of types, and numbers of elements.
fn outputs(workload: &Workload) -> Result<String, MeasurerError> {
    let mut results = Vec::new();
    for o in workload.outputs() {
        let written =
            if workload.foreign.is_some() || o.dtype.is_half() { o.dtype } else { DType::F32 };
        let Some(letter) = letter(written) else {
            return Err(MeasurerError::Reference(format!(
                "the output is {}: this cannot be measured yet",
                written.name()
            )));
        };
        results.push(format!("{letter},{}", o.elements()));
    }
    Ok(results.join(";"))
}

/// The inputs as the runner reads them; bytes that are given are written into `folder`.
fn inputs(setup: &TaskSetup, number: usize, folder: &Path) -> Result<String, MeasurerError> {
    let workload = &setup.workload;
    let mut text = workload.inputs.len().to_string();
    for (k, i) in workload.inputs.iter().enumerate() {
        // Kernels made by rule know f32 and the formats of 16 bits.
        let known = workload.foreign.is_some() || i.dtype == DType::F32 || i.dtype.is_half();
        let Some(letter) = letter(i.dtype).filter(|_| known) else {
            return Err(MeasurerError::Reference(format!(
                "input `{}` is {}: this cannot be measured yet",
                i.name,
                i.dtype.name()
            )));
        };
        let kind = if i.kind == TensorKind::Data { 'd' } else { 'w' };
        let _ = write!(text, " {kind}{letter},{}", i.shape.iter().product::<i64>());
        if let Some((low, high)) =
            workload.foreign.as_ref().and_then(|f| f.ranges.get(k).copied().flatten())
        {
            let _ = write!(text, ",{low:?},{high:?}");
        }
        if let Some(bytes) = setup.reference.inputs.get(k).and_then(Option::as_ref) {
            write(folder, &format!("input-{number}-{k}"), bytes)?;
            let _ = write!(text, ",@input-{number}-{k}");
        }
    }
    Ok(text)
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), MeasurerError> {
    let path = folder.join(name);
    std::fs::write(&path, bytes).map_err(|e| MeasurerError::folder(&path, &e))
}
