//! Changes the number format in which a model's kernels compute. Input: an `Input` whose tasks are
//! of 32-bit floats; output: the same with tasks in tf32, bf16 or f16 in their place, and a map
//! from the old tasks to the new (`Input::remade`). What lies between kernels of different formats
//! is `graph/src/plan/format.rs`.

use crate::base::error::Error;
use crate::input::precision::Precision;
use crate::input::user_input::{Input, KernelsInput, ModelInput};
use crate::target::target_request::TargetRequest;
use squall_core::graph::ValueId;
use squall_core::operator::{in_format, in_half};
use squall_core::{DType, Task, TaskId};
use squall_graph::assignment::reads;
use squall_graph::candidate::root;
use squall_graph::halves::Halves;
use squall_graph::{Assignment, Step};
use std::collections::HashSet;

impl Input {
    /// What there is to say of a model's format that is its file's and was not asked for.
    pub fn own_precision_note(&self) -> Option<String> {
        self.model().and_then(ModelInput::own_precision_note)
    }

    /// The same input in its format; kernels of tf32 without products stay as they are.
    pub fn in_precision(self, target: TargetRequest) -> Result<Input, Error> {
        Ok(match self {
            Input::Model(model) => model.in_precision(target)?.into(),
            Input::Kernels(kernels) => Input::Kernels(kernels.in_precision(target)?),
        })
    }
}

impl ModelInput {
    /// What there is to say of a format that is the file's and was not asked for: which one it is,
    /// and how many kernels have it.
    fn own_precision_note(&self) -> Option<String> {
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

    /// The same model in its format.
    pub(crate) fn in_precision(mut self, target: TargetRequest) -> Result<ModelInput, Error> {
        let p = self.precision;
        check(&self.tasks, p, target)?;
        if p == Precision::F32 {
            return Ok(self);
        }
        let last = last_ones(&self.graph);
        let own = self.halves.as_ref().filter(|_| self.is_own_precision);
        let wide = own.map(|h| wide_ones(&self.graph, h)).unwrap_or_default();
        for t in self.tasks.iter_mut().filter(|t| !wide.contains(&t.id)) {
            if let Some(made) = remade(t, p, last.contains(&t.id)) {
                self.remade.insert(t.id, made.id);
                *t = made;
            }
        }
        Ok(self)
    }
}

impl KernelsInput {
    /// The same kernels in their format.
    fn in_precision(mut self, target: TargetRequest) -> Result<KernelsInput, Error> {
        let p = self.precision;
        check(&self.tasks, p, target)?;
        if p == Precision::F32 {
            return Ok(self);
        }
        for t in &mut self.tasks {
            if let Some(made) = remade(t, p, false) {
                *t = made;
            }
        }
        Ok(self)
    }
}

/// Refuses kernels and formats that a target does not have.
fn check(tasks: &[Task], p: Precision, target: TargetRequest) -> Result<(), Error> {
    let of_bytes = |t: &&Task| {
        let w = &t.workload;
        w.foreign.is_none() && w.inputs.iter().any(|i| i.dtype == DType::U8 || i.dtype.is_packed())
    };
    if let (false, Some(t)) = (target.is_cpu(), tasks.iter().find(of_bytes)) {
        return Err(Error::Usage {
            message: format!("`{}` is a kernel of bytes, and those are made for CPUs only", t.name),
            hint: "leave --target out, or choose another dtype".into(),
        });
    }
    if target.is_cpu() && !matches!(p, Precision::F32 | Precision::Bf16) {
        return Err(Error::Usage {
            message: format!("models in {} are run on GPUs only", p.name()),
            hint: "add `--target cuda`, choose `--precision bf16`, or leave it out".into(),
        });
    }
    Ok(())
}

/// The task that stands in another's place in a format, if there is one; the last of a model need
/// not round what it gives.
fn remade(t: &Task, p: Precision, is_last: bool) -> Option<Task> {
    let w = t.workload.clone();
    let made = match p.half() {
        Some(format) => in_half(w, format, if is_last { DType::F32 } else { format }),
        None => in_format(w, DType::Tf32),
    };
    let made = Task::new(format!("{}_{}", t.name, p.name()), made.ok()?);
    Some(Task { count: t.count, nodes: t.nodes.clone(), ..made })
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
