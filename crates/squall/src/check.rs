//! A model run layer by layer through its kernels, against known output. Kernels run in a child
//! process, call by call, through the driver of an export.

use crate::error::Error;
use crate::export::{Chosen, DRIVER, KernelCounts, build, write};
use crate::input::Input;
use crate::network::MakeKernels;
use crate::target_context::TargetContext;
use squall_core::TaskId;
use squall_frontend::npy::{self, Array};

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a check found.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Largest absolute difference.
    pub max_error: f64,
    /// Elements that differ by more than the tolerance (absolute, and relative to the expected
    /// value: the larger allowance counts).
    pub wrong: u64,
    /// Elements compared.
    pub elements: u64,
    /// Calls of kernels.
    pub calls: u64,
    /// Distinct kernels, and how many of them were tuned.
    pub kernels: KernelCounts,
}

/// Reads a .npy file.
pub fn read_array(path: &Path) -> Result<Array, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.into(), source })?;
    npy::read(&bytes).map_err(|e| Error::Input {
        place: path.display().to_string(),
        message: e.to_string(),
        hint: "numpy.save writes such files: numpy.save('x.npy', x.astype('float32'))".into(),
    })
}

/// Compares two arrays.
fn compare(got: &[f32], want: &[f32], tolerance: f64) -> (f64, u64) {
    let (mut max, mut wrong) = (0f64, 0);
    for (&g, &w) in got.iter().zip(want) {
        let (g, w) = (f64::from(g), f64::from(w));
        if g == w || (g.is_nan() && w.is_nan()) {
            continue;
        }
        let d = (g - w).abs();
        // A NaN on one side only is as wrong as can be.
        max = if d.is_nan() { f64::INFINITY } else { max.max(d) };
        if d.is_nan() || d > tolerance * w.abs().max(1.0) {
            wrong += 1;
        }
    }
    (max, wrong)
}

/// The built kernels of a model, called in child processes.
struct Kernels {
    folder: tempfile::TempDir,
    chosen: Vec<Chosen>,
    calls: u64,
}

impl Kernels {
    fn build(chosen: Vec<Chosen>, aimed: &TargetContext) -> Result<Kernels, Error> {
        let temporary = |source| Error::Write { path: std::env::temp_dir(), source };
        let folder =
            tempfile::Builder::new().prefix("squall-check-").tempdir().map_err(temporary)?;
        write(folder.path(), &chosen, aimed)?;
        build(folder.path(), &chosen, aimed)?;
        Ok(Kernels { folder, chosen, calls: 0 })
    }

    /// One call; inputs in the workload's order.
    fn call(&mut self, task: TaskId, inputs: &[&[f32]]) -> Result<Vec<f32>, String> {
        let kernel = self
            .chosen
            .iter()
            .find(|k| k.task.id == task)
            .ok_or_else(|| format!("there is no kernel of task {task}"))?;
        let expected = kernel.task.workload.output().elements() as usize;
        let put = |i: usize, data: &[f32]| -> Result<PathBuf, String> {
            let path = self.folder.path().join(format!("input{i}"));
            let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_ne_bytes()).collect();
            std::fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok(path)
        };
        let files: Vec<PathBuf> =
            inputs.iter().enumerate().map(|(i, data)| put(i, data)).collect::<Result<_, _>>()?;
        let out = self.folder.path().join("output");
        let mut command = Command::new(self.folder.path().join(DRIVER));
        command
            .arg("--call")
            .arg(&kernel.source.symbol)
            .arg(&out)
            .args(&files)
            .stdin(Stdio::null());
        let done = command.output().map_err(|e| format!("the driver does not start: {e}"))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(format!(
                "the kernel of {} failed ({}): {}",
                kernel.task.name,
                done.status,
                said.trim()
            ));
        }
        let bytes = std::fs::read(&out).map_err(|e| format!("{}: {e}", out.display()))?;
        let _ = std::fs::remove_file(&out);
        if bytes.len() != expected * 4 {
            return Err(format!(
                "the kernel of {} gave {} bytes instead of {}",
                kernel.task.name,
                bytes.len(),
                expected * 4
            ));
        }
        self.calls += 1;
        Ok(bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect())
    }
}

/// Runs a model on the first of two arrays, with the kernels that `make` gives for its tasks, and
/// compares its first output with the second.
pub fn check(
    input: &Input,
    at: &TargetContext,
    make: &mut MakeKernels<'_>,
    (x, expected): (&Array, &Array),
    tolerance: f64,
) -> Result<Checked, Error> {
    let fault = |message: String, hint: &str| Error::Input {
        place: input.name.clone(),
        message,
        hint: hint.into(),
    };
    let Some(graph) = &input.graph else {
        return Err(fault(
            "it is no model that can be run".into(),
            "check takes a model.onnx with weights",
        ));
    };
    let [(name, shape)] = graph.inputs.as_slice() else {
        let names: Vec<&str> = graph.inputs.iter().map(|i| i.0.as_str()).collect();
        return Err(fault(
            format!("it takes {} inputs ({})", names.len(), names.join(", ")),
            "check runs models of one input",
        ));
    };
    if elements(shape) != x.data.len() as u64 {
        let message = format!("input `{name}` has shape {shape:?}, the given array {:?}", x.shape);
        return Err(fault(message, "give an array of the input's shape, or the batch with --dim"));
    }
    let Some((name, shape)) = graph.outputs.first() else {
        return Err(fault("it has no output".into(), "check compares the first output"));
    };
    if elements(shape) != expected.data.len() as u64 {
        let message =
            format!("output `{name}` has shape {shape:?}, the expected array {:?}", expected.shape);
        return Err(fault(message, "give the array that the model shall compute from the input"));
    }
    let mut kernels = Kernels::build(make(&input.tasks.iter().collect::<Vec<_>>())?, at)?;
    let outputs =
        graph.run(std::slice::from_ref(&x.data), &mut |task, inputs| kernels.call(task, inputs));
    let outputs =
        outputs.map_err(|e| fault(e, "models without weights can be tuned, but not run"))?;
    let got = outputs.first().map_or(&[][..], |o| o.as_slice());
    if got.len() != expected.data.len() {
        return Err(fault(
            format!("it gave {} elements instead of {}", got.len(), expected.data.len()),
            "please report this: it is a fault of Squall's",
        ));
    }
    let (max_error, wrong) = compare(got, &expected.data, tolerance);
    Ok(Checked {
        max_error,
        wrong,
        elements: got.len() as u64,
        calls: kernels.calls,
        kernels: KernelCounts::of(&kernels.chosen),
    })
}

fn elements(shape: &[i64]) -> u64 {
    shape.iter().map(|&e| e.max(0) as u64).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_and_tolerated_by_size() {
        assert_eq!(
            compare(&[1.0, f32::NAN, f32::INFINITY], &[1.0, f32::NAN, f32::INFINITY], 0.0),
            (0.0, 0)
        );
        let (max, wrong) = compare(&[1.0, 1000.05], &[1.0, 1000.0], 1e-4);
        assert!(max > 0.04 && wrong == 0);
        assert_eq!(compare(&[0.0002], &[0.0], 1e-4).1, 1);
        assert_eq!(compare(&[f32::NAN, 1.0], &[0.0, 1.0], 1.0), (f64::INFINITY, 1));
    }
}
