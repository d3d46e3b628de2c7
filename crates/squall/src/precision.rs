//! In which format a model's kernels work: factors or all tensors between them may be rounded, sums
//! are of 32 bits.

use crate::error::Error;
use crate::input::Input;
use crate::settings::TargetRequest;
use squall_core::graph::ValueId;
use squall_core::operator::{in_format, in_half, of_floats};
use squall_core::{DType, Task, TaskId, Workload};
use squall_graph::assignment::reads;
use squall_graph::candidate::root;
use squall_graph::{Assignment, Step};
use std::collections::HashSet;

/// A format of a whole model. Kernels of each are tasks of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Floats of 32 bits.
    #[default]
    F32,
    /// Factors of convolutions and matrix products are rounded to tf32, 10 bits of the fraction;
    /// tensors stay as they are. On GPUs only.
    Tf32,
    /// All that lies between kernels, and their weights, are floats of 16 bits, 8 of them the
    /// exponent's; what a kernel computes stays 32-bit floats until it is stored. The model's
    /// inputs and outputs stay as they are.
    Bf16,
    /// The same with 5 bits of the exponent: larger numbers than 65504 become infinite. On GPUs
    /// only.
    F16,
}

impl Precision {
    /// All of them, with their spelling.
    pub const ALL: &'static [(Precision, &'static str)] = &[
        (Precision::F32, "f32"),
        (Precision::Tf32, "tf32"),
        (Precision::Bf16, "bf16"),
        (Precision::F16, "f16"),
    ];

    /// The format of 16 bits in which tensors are kept, if they are.
    pub fn half(self) -> Option<DType> {
        match self {
            Precision::Bf16 => Some(DType::Bf16),
            Precision::F16 => Some(DType::F16),
            Precision::F32 | Precision::Tf32 => None,
        }
    }

    /// The workload of 32-bit floats that stands in a model's graph for a kernel of this precision;
    /// none where no kernel of this precision computes it.
    pub(crate) fn in_graph(self, w: Workload) -> Option<Workload> {
        let Some(format) = self.half() else { return Some(w) };
        // What cannot be rounded stays as it is.
        let stays = |w: &Workload| in_half(w.clone(), format, format).is_err();
        of_floats(&w, format).or_else(|| Some(w).filter(stays))
    }

    /// What a kernel of a model's graph computes in this precision.
    pub(crate) fn rounded(self, w: &Workload) -> Workload {
        let made = self.half().and_then(|format| in_half(w.clone(), format, format).ok());
        made.unwrap_or_else(|| w.clone())
    }

    /// How far floats of a network may be from exact ones, absolutely and relative to values above
    /// 1, unless the user says otherwise: what rounding costs networks of some hundred layers.
    pub fn tolerance(self) -> f64 {
        match self {
            Precision::F32 => 1e-4,
            Precision::Tf32 | Precision::F16 => 2e-2,
            Precision::Bf16 => 1e-1,
        }
    }

    /// The spelling.
    pub fn name(self) -> &'static str {
        Precision::ALL.iter().find(|(p, _)| *p == self).map_or("", |(_, name)| name)
    }
}

impl Input {
    /// The same model in a format; kernels of tf32 without products stay as they are.
    pub fn in_precision(mut self, p: Precision, target: TargetRequest) -> Result<Input, Error> {
        let of_bytes = |t: &&Task| {
            let w = &t.workload;
            w.foreign.is_none()
                && w.inputs.iter().any(|i| i.dtype == DType::U8 || i.dtype.is_packed())
        };
        if let (false, Some(t)) = (target.is_cpu(), self.tasks.iter().find(of_bytes)) {
            return Err(Error::Usage {
                message: format!(
                    "`{}` is a kernel of bytes, and those are made for CPUs only",
                    t.name
                ),
                hint: "leave --target out, or choose another dtype".into(),
            });
        }
        if p == Precision::F32 {
            return Ok(self);
        }
        if target.is_cpu() && p != Precision::Bf16 {
            return Err(Error::Usage {
                message: format!("models in {} are run on GPUs only", p.name()),
                hint: "add `--target cuda`, choose `--precision bf16`, or leave it out".into(),
            });
        }
        let last = self.graph.as_ref().map(last_ones).unwrap_or_default();
        for t in self.tasks.iter_mut() {
            let w = t.workload.clone();
            let made = match p.half() {
                Some(format) => {
                    let given = if last.contains(&t.id) { DType::F32 } else { format };
                    in_half(w, format, given)
                }
                None => in_format(w, DType::Tf32),
            };
            let Ok(w) = made else { continue };
            let made = Task::new(format!("{}_{}", t.name, p.name()), w);
            self.remade.insert(t.id, made.id);
            *t = Task { count: t.count, nodes: std::mem::take(&mut t.nodes), ..made };
        }
        Ok(self)
    }
}

/// The tasks whose kernels give the model's outputs and nothing that another step reads: they need
/// not round what they give.
fn last_ones(graph: &Assignment) -> HashSet<TaskId> {
    let (model, candidates) = (graph.model(), graph.candidates());
    let outputs: HashSet<ValueId> = model.outputs.iter().map(|&v| root(model, v)).collect();
    let steps = &graph.choice().steps;
    let read: HashSet<ValueId> = steps.iter().flat_map(|s| reads(candidates, s)).collect();
    let (mut last, mut others) = (HashSet::new(), HashSet::new());
    for (i, step) in steps.iter().enumerate() {
        let (Step::Kernel(c), Some(task)) = (*step, graph.task_of_step(i)) else { continue };
        let given = root(model, candidates.list[c].outputs[0]);
        let is_last = outputs.contains(&given) && !read.contains(&given);
        _ = if is_last { last.insert(task) } else { others.insert(task) };
    }
    &last - &others
}
