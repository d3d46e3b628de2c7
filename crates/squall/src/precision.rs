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
use squall_graph::halves::Halves;
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
    /// inputs and outputs keep the types of its file.
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

    /// The one in which tensors are kept in a format of 16 bits.
    fn of_half(format: DType) -> Option<Precision> {
        Precision::ALL.iter().map(|(p, _)| *p).find(|p| p.half() == Some(format))
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
    /// The same input, its kernels to work in a format. Where none is asked for, GPUs compute a
    /// model whose file computes in 16 bits in those, as they have arithmetic for them.
    pub(crate) fn to_compute_in(self, asked: Option<Precision>, target: TargetRequest) -> Input {
        let own = self.halves.as_ref().and_then(|h| Precision::of_half(h.format));
        let own = own.filter(|_| asked.is_none() && !target.is_cpu());
        let precision = asked.or(own).unwrap_or_default();
        Input { precision, is_own_precision: own.is_some(), ..self }
    }

    /// What there is to say of a format that is the file's and was not asked for: which one it is,
    /// and how many kernels have it.
    pub fn own_precision_note(&self) -> Option<String> {
        let half = self.precision.half().filter(|_| self.is_own_precision)?;
        let is_wide = |t: &&Task| {
            let w = &t.workload;
            w.inputs.iter().map(|i| i.dtype).chain([w.output().dtype]).all(|d| d != half)
        };
        let (all, wide) = (self.tasks.len(), self.tasks.iter().filter(is_wide).count());
        let kernels = match wide {
            0 => "its kernels".to_string(),
            n => format!("{} of its {all} kernels", all - n),
        };
        Some(format!(
            "the model's file computes in {}, and so do {kernels}; `--precision f32` computes in \
             32-bit floats",
            self.precision.name()
        ))
    }

    /// The same model in its format; kernels of tf32 without products stay as they are.
    pub fn in_precision(mut self, target: TargetRequest) -> Result<Input, Error> {
        let p = self.precision;
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
        let own = self.halves.as_ref().filter(|_| self.is_own_precision);
        let wide = self.graph.as_ref().zip(own).map(|(g, h)| wide_ones(g, h)).unwrap_or_default();
        for t in self.tasks.iter_mut().filter(|t| !wide.contains(&t.id)) {
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

/// The tasks of kernels that read or give 32-bit floats by the model's file: what they compute is
/// not rounded to 16 bits there. A task of which one kernel does so counts as a whole.
fn wide_ones(graph: &Assignment, halves: &Halves) -> HashSet<TaskId> {
    let (model, candidates) = (graph.model(), graph.candidates());
    let is_wide = |v: ValueId| {
        let value = &model.values[root(model, v)];
        value.dtype == Some(DType::F32) && !halves.values.contains(&value.name)
    };
    let steps = graph.choice().steps.iter().enumerate();
    let wide = steps.filter_map(|(i, step)| {
        let Step::Kernel(c) = *step else { return None };
        let given = candidates.list[c].outputs.iter().copied();
        let touched = reads(candidates, step).into_iter().chain(given);
        graph.task_of_step(i).filter(|_| touched.into_iter().any(is_wide))
    });
    wide.collect()
}
