//! What the driver of a network is built from and reads: a C file with the network's kernels and
//! the names of its steps, the plan as words, and constants as floats. All for one machine and
//! moment: the formats are private to `network.c`.

use super::arena::{ALIGNMENT, Block, lay_out};
use crate::error::Error;
use crate::export::{Chosen, declarations, literal};
use squall_core::{TaskId, TensorKind};
use squall_graph::plan::{Place, Plan, Source, Work};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

const BODY: &str = include_str!("network.c");

/// The most inputs that the driver's tables hold for one kernel.
const MOST_INPUTS: usize = 64;

/// A plan with addresses.
pub struct Layout {
    /// Byte offsets of the plan's blocks.
    offsets: Vec<usize>,
    /// Where kernels have their scratch memory: all the same, since they run one by one.
    workspace: usize,
    /// Bytes in all.
    pub bytes: usize,
}

impl Layout {
    /// Places all blocks.
    pub fn new(plan: &Plan, kernels: &[Chosen]) -> Layout {
        let bytes = plan.blocks.iter().map(|n| n * size_of::<f32>());
        let blocks: Vec<Block> = bytes
            .zip(plan.lifetimes())
            .map(|(bytes, (first, last))| Block { bytes, first, last })
            .collect();
        let (offsets, workspace) = lay_out(&blocks);
        let scratch = kernels.iter().map(|k| k.source.workspace.0 as usize).max().unwrap_or(0);
        Layout { offsets, workspace, bytes: workspace + scratch.div_ceil(ALIGNMENT) * ALIGNMENT }
    }

    fn at(&self, p: &Place) -> u64 {
        (self.offsets[p.block] + p.offset * size_of::<f32>()) as u64
    }
}

/// The driver's source: kernels and names of this network, then what is the same for all.
pub fn driver(plan: &Plan, kernels: &[Chosen], threads: usize) -> String {
    let mut c = format!(
        "/* Runs a network from one region of memory. Made by Squall. */\n#define _GNU_SOURCE\n\
         #include <signal.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n\
         #include <stdlib.h>\n#include <string.h>\n\
         #include <sys/mman.h>\n#include <time.h>\n#include <unistd.h>\n\n#define THREADS \
         {threads}\n\n"
    );
    for k in kernels {
        c += &declarations(&k.source);
    }
    c += "\nstruct kernel {\n  int (*run)(const void *const *, void *const *, const void *, void \
          *);\n  \
          int (*prepare)(const void *const *, void *);\n  size_t prepared_bytes;\n};\n\nstatic \
          const struct kernel kernels[] = {\n";
    for k in kernels {
        let (s, bytes) = (&k.source.symbol, k.source.prepared.0);
        let prepare = if bytes > 0 { format!("{s}_prepare") } else { "NULL".into() };
        let _ = writeln!(c, "    {{{s}, {prepare}, {bytes}}},");
    }
    c += "    {NULL, NULL, 0},\n};\n\n";
    let _ = writeln!(
        c,
        "static const size_t step_count = {};\nstatic const char *const step_names[] = {{",
        plan.steps.len()
    );
    for s in &plan.steps {
        let _ = writeln!(c, "    {},", literal(&format!("node `{}` ({})", s.node, s.op)));
    }
    c + "    NULL,\n};\n\n" + BODY
}

/// Writes `plan.bin` and `constants.bin`.
pub fn write(folder: &Path, plan: &Plan, layout: &Layout, kernels: &[Chosen]) -> Result<(), Error> {
    let put = |name: &str, bytes: Vec<u8>| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|source| Error::Write { path, source })
    };
    let words = words(plan, layout, kernels)?;
    put("plan.bin", words.iter().flat_map(|w| w.to_ne_bytes()).collect())?;
    put("constants.bin", plan.constants.iter().flatten().flat_map(|x| x.to_ne_bytes()).collect())
}

/// The plan in the order in which `load` in `network.c` reads it.
fn words(plan: &Plan, layout: &Layout, kernels: &[Chosen]) -> Result<Vec<u64>, Error> {
    let float = size_of::<f32>() as u64;
    let (Some(input), Some(output)) = (plan.inputs.first(), plan.outputs.first()) else {
        return Err(Error::Nothing("the network has no input or no output".into()));
    };
    let (x, y) = (&plan.input_elements, &plan.output_elements);
    let ends = [layout.at(input), x[0] as u64 * float, layout.at(output), y[0] as u64 * float];
    let mut w = vec![layout.bytes as u64, layout.workspace as u64];
    w.extend(ends);
    let by_task: HashMap<TaskId, usize> =
        kernels.iter().enumerate().map(|(i, k)| (k.task.id, i)).collect();
    let mut kept = vec![0; plan.constants.len()];
    let mut steps = vec![plan.steps.len() as u64];
    for step in &plan.steps {
        let fault = |message: String| Error::Nothing(format!("node `{}`: {message}", step.node));
        let mut source = |s: &Source| match s {
            Source::Constant(c) => {
                kept[*c] = 1;
                [1, *c as u64]
            }
            Source::Place(p) => [0, layout.at(p)],
        };
        match &step.work {
            Work::Kernel { task, inputs, output } => {
                let index = *by_task
                    .get(task)
                    .ok_or_else(|| fault(format!("there is no kernel of task {task}")))?;
                let workload = &kernels[index].task.workload;
                if inputs.len() != workload.inputs.len() || inputs.len() > MOST_INPUTS {
                    return Err(fault(format!(
                        "its kernel takes {} inputs, not {}",
                        workload.inputs.len(),
                        inputs.len()
                    )));
                }
                let (mut data, mut weights) = (Vec::new(), Vec::new());
                for (s, i) in inputs.iter().zip(&workload.inputs) {
                    let takes = i.shape.iter().product::<i64>() as usize;
                    let holds = match s {
                        Source::Constant(c) => plan.constants[*c].len() == takes,
                        Source::Place(p) => p.offset + takes <= plan.blocks[p.block],
                    };
                    if !holds {
                        return Err(fault(format!(
                            "input `{}` of its kernel is {:?}, which is not what the model has",
                            i.name, i.shape
                        )));
                    }
                    match (i.kind, s) {
                        (TensorKind::Data, s) => data.extend(source(s)),
                        (TensorKind::Weight, Source::Constant(c)) => weights.push(*c as u64),
                        (TensorKind::Weight, _) => {
                            return Err(fault(format!(
                                "its weight `{}` is computed at run time",
                                i.name
                            )));
                        }
                    }
                }
                if output.offset + workload.output().elements() as usize > plan.blocks[output.block]
                {
                    return Err(fault("its kernel's result is larger than the model says".into()));
                }
                steps.extend([0, index as u64, data.len() as u64 / 2]);
                steps.extend(data);
                steps.push(weights.len() as u64);
                steps.extend(weights);
                steps.push(layout.at(output));
            }
            Work::Copy { from, from_offset, to, axes } => {
                let [is_constant, value] = source(from);
                steps.extend([
                    1,
                    is_constant,
                    value,
                    *from_offset as u64,
                    layout.at(to),
                    axes.len() as u64,
                ]);
                steps.extend(
                    axes.iter().flat_map(|a| [a.extent as u64, a.to as u64, a.from as i64 as u64]),
                );
            }
            Work::Runs { from, to, runs } => {
                let [is_constant, value] = source(from);
                steps.extend([2, is_constant, value, layout.at(to), runs.len() as u64]);
                steps.extend(runs.iter().flatten().map(|&n| n as u64));
            }
            Work::Fill { to, elements, value } => {
                steps.extend([3, layout.at(to), *elements as u64, u64::from(value.to_bits())])
            }
        }
    }
    w.push(plan.constants.len() as u64);
    w.extend(plan.constants.iter().zip(kept).flat_map(|(c, kept)| [c.len() as u64, kept]));
    w.extend(steps);
    Ok(w)
}
