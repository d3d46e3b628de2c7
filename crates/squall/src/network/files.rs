//! What the program of a network is built from and reads: a C file with the network's kernels, the
//! plan, and constants as floats.

use super::arena::{ALIGNMENT, Block, lay_out};
use crate::error::Error;
use crate::export::{Chosen, declarations, symbols};
use squall_core::{TaskId, TensorKind};
use squall_graph::plan::{Place, Plan, PlanStep, Source, Work};
use squall_runtime::plan::{
    self as runtime, At, Axis, Buffer, Element, Region, Role, Step, Work as Does,
};
use std::collections::HashMap;
use std::path::Path;

/// The file of the plan.
const PLAN: &str = "plan.txt";
/// The file of the constants.
const CONSTANTS: &str = "constants.bin";

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

/// What the program is compiled with: the library, and the kernels that are linked in.
pub fn linked(kernels: &[Chosen], threads: usize) -> String {
    let mut c = format!(
        "/* The kernels of a network. Made by Squall. */\n#define SQUALL_NETWORK\n#define THREADS \
         {threads}\n#include \"runtime/runtime.c\"\n\n"
    );
    c.extend(kernels.iter().map(|k| declarations(&k.source)));
    c += "\n";
    c + &symbols(kernels.iter().map(|k| &k.source))
}

/// Writes the plan and the constants.
pub fn write(folder: &Path, plan: &Plan, layout: &Layout, kernels: &[Chosen]) -> Result<(), Error> {
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|source| Error::Write { path, source })
    };
    let (described, constants) = Builder::new(plan, layout, kernels)?.build()?;
    described.verify().map_err(|e| Error::Nothing(e.to_string()))?;
    put(PLAN, described.to_string().as_bytes())?;
    put(CONSTANTS, &constants)
}

/// Makes a described plan of a model's.
struct Builder<'a> {
    plan: &'a Plan,
    layout: &'a Layout,
    kernels: &'a [Chosen],
    by_task: HashMap<TaskId, usize>,
    described: runtime::Plan,
    /// Buffers of places that steps name, by block, first element and elements.
    places: HashMap<(usize, usize, usize), u32>,
    /// Buffers of constants, by whether only a preparation reads them.
    constants: HashMap<(usize, bool), u32>,
    /// The bytes of the constant and of the weight region.
    bytes: [Vec<u8>; 2],
    prepared: u64,
}

/// The regions of a network's plan, by number.
const ARENA: u32 = 0;
const CONSTANT: u32 = 1;
const WEIGHT: u32 = 2;
const PREPARED: u32 = 3;

impl<'a> Builder<'a> {
    fn new(
        plan: &'a Plan,
        layout: &'a Layout,
        kernels: &'a [Chosen],
    ) -> Result<Builder<'a>, Error> {
        let (Some(input), Some(output)) = (plan.inputs.first(), plan.outputs.first()) else {
            return Err(Error::Nothing("the network has no input or no output".into()));
        };
        let mut b = Builder {
            plan,
            layout,
            kernels,
            by_task: kernels.iter().enumerate().map(|(i, k)| (k.task.id, i)).collect(),
            described: runtime::Plan::default(),
            places: HashMap::new(),
            constants: HashMap::new(),
            bytes: [Vec::new(), Vec::new()],
            prepared: 0,
        };
        for (role, place, elements) in [
            (Role::Data, input, plan.input_elements[0]),
            (Role::Output, output, plan.output_elements[0]),
        ] {
            let at = Some((ARENA, layout.at(place)));
            b.buffer(role, Element::F32, elements as u64, at);
        }
        b.described.kernels = kernels
            .iter()
            .map(|k| {
                let tensors = runtime::Plan::of_workload(&k.task.workload).buffers;
                runtime::Kernel::of_source(&k.source, None, &tensors)
            })
            .collect();
        Ok(b)
    }

    fn build(mut self) -> Result<(runtime::Plan, Vec<u8>), Error> {
        for step in &self.plan.steps {
            let work = self.work(step).map_err(|message: String| {
                Error::Nothing(format!("node `{}`: {message}", step.node))
            })?;
            let name = format!("node `{}` ({})", step.node, step.op);
            self.described.steps.push(Step { name, work });
        }
        let [constant, weight] = self.bytes;
        let (kept, read) = (constant.len() as u64, weight.len() as u64);
        let region = |role, bytes| Region { role, bytes, file: None };
        let filled = |role, bytes, at| Region { file: Some((CONSTANTS.into(), at)), role, bytes };
        self.described.regions = vec![
            region(Role::Scratch, self.layout.bytes as u64),
            filled(Role::Constant, kept, 0),
            filled(Role::Weight, read, kept),
            region(Role::Prepared, self.prepared),
        ];
        Ok((self.described, [constant, weight].concat()))
    }

    fn buffer(
        &mut self,
        role: Role,
        element: Element,
        count: u64,
        place: Option<(u32, u64)>,
    ) -> u32 {
        self.described.buffers.push(Buffer { place, ..Buffer::own(role, element, count) });
        self.described.buffers.len() as u32 - 1
    }

    /// The buffer of so many elements from a place on.
    fn place(&mut self, p: &Place, elements: usize) -> u32 {
        let key = (p.block, p.offset, elements);
        if let Some(known) = self.places.get(&key) {
            return *known;
        }
        let at = Some((ARENA, self.layout.at(p)));
        let number = self.buffer(Role::Scratch, Element::F32, elements as u64, at);
        self.places.insert(key, number);
        number
    }

    /// The buffer of a constant, whose values go to the file.
    fn constant(&mut self, c: usize, is_weight: bool) -> u32 {
        if let Some(known) = self.constants.get(&(c, is_weight)) {
            return *known;
        }
        let values = &self.plan.constants[c];
        let (role, region) =
            if is_weight { (Role::Weight, WEIGHT) } else { (Role::Constant, CONSTANT) };
        let bytes = &mut self.bytes[usize::from(is_weight)];
        let at = bytes.len() as u64;
        bytes.extend(values.iter().flat_map(|x| x.to_ne_bytes()));
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        let number = self.buffer(role, Element::F32, values.len() as u64, Some((region, at)));
        self.constants.insert((c, is_weight), number);
        number
    }

    /// Where a move starts in what it reads: a whole constant, or a block.
    fn source(&mut self, s: &Source) -> At {
        match s {
            Source::Constant(c) => At { buffer: self.constant(*c, false), element: 0 },
            Source::Place(p) => self.target(p),
        }
    }

    /// Where a move starts in a block.
    fn target(&mut self, p: &Place) -> At {
        let block = Place { block: p.block, offset: 0 };
        let buffer = self.place(&block, self.plan.blocks[p.block]);
        At { buffer, element: p.offset as u64 }
    }

    fn work(&mut self, step: &PlanStep) -> Result<Does, String> {
        Ok(match &step.work {
            Work::Kernel { task, inputs, output } => self.call(*task, inputs, output)?,
            Work::Copy { from, from_offset, to, axes } => {
                let mut from = self.source(from);
                let moved = from.element.checked_add_signed(*from_offset as i64);
                from.element = moved.ok_or("it reads before its source")?;
                let axis = |a: &squall_graph::plan::Stride| Axis {
                    extent: a.extent as u64,
                    to: a.to as u64,
                    from: a.from as i64,
                };
                let mut axes: Vec<Axis> = axes.iter().map(axis).collect();
                if axes.is_empty() {
                    axes.push(Axis { extent: 1, to: 1, from: 1 });
                }
                Does::Copy { from, to: self.target(to), axes }
            }
            Work::Runs { from, to, runs } => {
                let runs = runs.iter().map(|r| r.map(|n| n as u64)).collect();
                Does::Runs { from: self.source(from), to: self.target(to), runs }
            }
            Work::Fill { to, elements, value } => {
                let to = self.target(to);
                Does::Fill { to, count: *elements as u64, bits: value.to_bits() }
            }
        })
    }

    fn call(&mut self, task: TaskId, inputs: &[Source], output: &Place) -> Result<Does, String> {
        let index =
            *self.by_task.get(&task).ok_or_else(|| format!("there is no kernel of task {task}"))?;
        let k = &self.kernels[index];
        let workload = &k.task.workload;
        let takes = workload.inputs.len();
        if inputs.len() != takes {
            return Err(format!("its kernel takes {takes} inputs, not {}", inputs.len()));
        }
        let mut buffers = Vec::new();
        for (s, i) in inputs.iter().zip(&workload.inputs) {
            let elements = i.shape.iter().product::<i64>() as usize;
            let holds = match s {
                Source::Constant(c) => self.plan.constants[*c].len() == elements,
                Source::Place(p) => p.offset + elements <= self.plan.blocks[p.block],
            };
            if !holds {
                return Err(format!(
                    "input `{}` of its kernel is {:?}, which is not what the model has",
                    i.name, i.shape
                ));
            }
            buffers.push(match (i.kind, s) {
                (TensorKind::Data, Source::Place(p)) => self.place(p, elements),
                (kind, Source::Constant(c)) => self.constant(*c, kind == TensorKind::Weight),
                (TensorKind::Weight, _) => {
                    return Err(format!("its weight `{}` is computed at run time", i.name));
                }
            });
        }
        let elements = workload.output().elements() as usize;
        if output.offset + elements > self.plan.blocks[output.block] {
            return Err("its kernel's result is larger than the model says".into());
        }
        buffers.push(self.place(output, elements));
        let (prepared, workspace) = (k.source.prepared.0, k.source.workspace.0);
        let prepared = (prepared > 0).then(|| {
            let at = Some((PREPARED, self.prepared));
            self.prepared += prepared.next_multiple_of(ALIGNMENT as u64);
            self.buffer(Role::Prepared, Element::U8, prepared, at)
        });
        let workspace = (workspace > 0).then(|| {
            let at = Some((ARENA, self.layout.workspace as u64));
            self.buffer(Role::Workspace, Element::U8, workspace, at)
        });
        Ok(Does::Call { kernel: index as u32, buffers, prepared, workspace })
    }
}
