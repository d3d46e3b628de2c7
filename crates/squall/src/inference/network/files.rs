//! Writes a network's files: `plan.txt` (docs/plan-format.md), a plan with addresses, and
//! `constants.bin`, from a graph's plan and the chosen kernels, which `program.rs` links.

use super::layout::FileLayout;
use super::operands::{number, source_of, target_of};
use super::plain::PlainOperators;
use super::ports::{is_whole_block, ports};
use crate::base::error::Error;
use crate::base::files::{put_in_folder, put_in_folder_by};
use crate::input::weights::Place;
use crate::predict::choose::Chosen;
use squall_core::graph::CallOperand;
use squall_core::graph::infer::region::grown_of;
use squall_core::{DType, KernelSource, TaskId, TensorKind};
use squall_graph::plan::{BlockPlace, Plan, PlanStep, ValueSource, Work};
use squall_measure::cuda::cubin_file;
use squall_runtime::plan::{
    self as runtime, At, Buffer, Element, MoveAxis, Region, Role, Step, Work as Does,
};
use std::collections::HashMap;
use std::io::{Read as _, Seek as _, SeekFrom, Write};
use std::path::Path;

/// The file of the plan.
pub(super) const PLAN: &str = "plan.txt";
/// The file of the constants.
const CONSTANTS: &str = "constants.bin";

/// Weights that no one read, by the numbers that a plan's constants have.
pub struct Places<'a> {
    /// Where they lie.
    pub list: &'a [Place],
    /// Whether the folder gets a copy of them: a link to their file is enough for one that goes
    /// when the run is over.
    pub is_copied: bool,
}

/// Bytes of a file that is written.
enum Piece {
    /// Of a constant of the plan.
    Constant(usize),
    /// Made here.
    Bytes(Vec<u8>),
}

/// A plan as it is written, and the bytes of its constants.
pub struct Described<'a> {
    /// The plan.
    pub plan: runtime::HostPlan,
    pieces: [Vec<(Piece, u64)>; 2],
    linked: Vec<(&'a Path, u64)>,
}

impl Described<'_> {
    /// The constants of the model's plan that lie in the constant region, each with the byte of
    /// the region where it begins; nothing in the place of bytes that are none of a constant.
    pub fn constants(&self) -> Vec<(Option<usize>, u64)> {
        let mut at = 0;
        let mut all = Vec::new();
        for (piece, bytes) in &self.pieces[0] {
            let constant = match piece {
                Piece::Constant(c) => Some(*c),
                Piece::Bytes(_) => None,
            };
            all.push((constant, at));
            at += bytes;
        }
        all
    }
}

/// Describes a plan.
pub fn describe<'a>(
    plan: &'a Plan,
    places: &'a Places<'a>,
    layout: &'a FileLayout,
    kernels: &'a [Chosen],
    plain: &'a PlainOperators,
) -> Result<Described<'a>, Error> {
    let mut b = Builder::new(plan, places, layout, kernels, plain)?;
    b.build()?;
    b.described.verify().map_err(|e| Error::Nothing(e.to_string()))?;
    Ok(Described { plan: b.described, pieces: b.pieces, linked: b.linked })
}

/// Writes the plan and the constants.
pub fn write(
    folder: &Path,
    plan: &Plan,
    places: &Places<'_>,
    described: &Described<'_>,
) -> Result<(), Error> {
    put_in_folder(&folder.join(PLAN), described.plan.to_string().as_bytes())?;
    let constants = folder.join(CONSTANTS);
    let fail = |source| Error::Write { path: constants.clone(), source };
    for (i, (file, _)) in described.linked.iter().enumerate() {
        let link = folder.join(linked(i));
        crate::base::files::unlink(&link);
        std::os::unix::fs::symlink(file, link).map_err(fail)?;
    }
    put_in_folder_by(&constants, &mut |to| {
        for (piece, bytes) in described.pieces.iter().flatten() {
            let written = match piece {
                Piece::Bytes(bytes) => to.write_all(bytes).map(|()| bytes.len() as u64)?,
                Piece::Constant(c) => {
                    let c = &plan.constants[*c];
                    match c.place.and_then(|n| places.list.get(n)) {
                        Some(place) => copied(place, (c.elements as u64) * c.dtype.bytes(), to)?,
                        None => to.write_all(&c.data).map(|()| c.data.len() as u64)?,
                    }
                }
            };
            to.write_all(&vec![0; bytes.saturating_sub(written) as usize])?;
        }
        Ok(())
    })
}

/// The name in the folder of a file of weights outside of it.
fn linked(number: usize) -> String {
    format!("weights_{number}.bin")
}

/// Copies a weight; how many bytes that were.
fn copied(place: &Place, bytes: u64, to: &mut dyn Write) -> std::io::Result<u64> {
    let mut from = std::fs::File::open(&place.file)?;
    from.seek(SeekFrom::Start(place.offset))?;
    let done = std::io::copy(&mut from.take(bytes), &mut { to })?;
    let cut = || std::io::Error::other(format!("{} became shorter", place.file.display()));
    (done == bytes).then_some(done).ok_or_else(cut)
}

/// Makes a described plan of a model's.
struct Builder<'a> {
    plan: &'a Plan,
    weights: &'a Places<'a>,
    layout: &'a FileLayout,
    kernels: &'a [Chosen],
    plain: &'a PlainOperators,
    by_task: HashMap<TaskId, usize>,
    described: runtime::HostPlan,
    /// Buffers of places that steps name, by block, first element and elements.
    places: HashMap<(usize, usize, usize), u32>,
    /// The inputs and outputs that are whole blocks, by block: steps may find them in the caller's
    /// memory.
    ports: HashMap<usize, u32>,
    /// Buffers of constants, by whether only a preparation reads them.
    constants: HashMap<(usize, bool), u32>,
    /// What the constant and the weight region hold, each with its bytes up to the next.
    pieces: [Vec<(Piece, u64)>; 2],
    /// Files outside of the folder that hold weights, each with the bytes of it that are used.
    linked: Vec<(&'a Path, u64)>,
    prepared: u64,
}

/// The regions of a network's plan, by number.
const ARENA: u32 = 0;
const CONSTANT: u32 = 1;
const WEIGHT: u32 = 2;
const PREPARED: u32 = 3;
/// The first of those that lie in other files.
const LINKED: u32 = 4;

impl<'a> Builder<'a> {
    fn new(
        plan: &'a Plan,
        weights: &'a Places<'a>,
        layout: &'a FileLayout,
        kernels: &'a [Chosen],
        plain: &'a PlainOperators,
    ) -> Result<Builder<'a>, Error> {
        let mut b = Builder {
            plan,
            weights,
            layout,
            kernels,
            plain,
            by_task: kernels.iter().enumerate().map(|(i, k)| (k.task.id, i)).collect(),
            described: runtime::HostPlan::default(),
            places: HashMap::new(),
            ports: HashMap::new(),
            constants: HashMap::new(),
            pieces: [Vec::new(), Vec::new()],
            linked: Vec::new(),
            prepared: 0,
        };
        for (role, place, elements) in ports(plan) {
            let at = Some((ARENA, layout.at(plan, place)));
            let element = element(plan.blocks[place.block].dtype)?;
            let number = b.buffer(role, element, elements as u64, at);
            let grown = role == Role::Output && grows(plan, place);
            b.described.buffers[number as usize].grown = grown;
            if !grown && is_whole_block(plan, role, place, elements) {
                b.ports.insert(place.block, number);
            }
        }
        for (number, place) in plan.inputs.iter().enumerate() {
            let port = b.ports.get(&place.block).filter(|port| **port as usize != number);
            b.described.buffers[number].of = port.copied();
        }
        let tuned = kernels.iter().map(|k| {
            let tensors = runtime::HostPlan::of_workload(&k.task.workload).buffers;
            runtime::Kernel::of_source(&k.source, library(&k.source).as_deref(), &tensors)
        });
        b.described.kernels = tuned.collect();
        for i in 0..plain.sources.len() {
            b.described.kernels.push(b.plain_kernel(i)?);
        }
        Ok(b)
    }

    /// The kernel that a generated function is: what its first step reads and writes.
    fn plain_kernel(&self, index: usize) -> Result<runtime::Kernel, Error> {
        let step = self.plain.of_step.iter().filter(|(_, i)| **i == index).map(|(s, _)| *s).min();
        let step = step.and_then(|s| self.plan.steps.get(s));
        let step = step.ok_or_else(|| Error::Nothing("a generated kernel has no step".into()))?;
        let source = &self.plain.sources[index];
        let flag = Buffer::own(Role::Data, Element::BOOL, 1);
        let mut tensors = vec![flag; self.plain.conditions_of(step)];
        tensors.extend(self.tensors(&step.work, self.plain.weights_of(index))?);
        Ok(runtime::Kernel::of_source(source, library(source).as_deref(), &tensors))
    }

    /// The parameters of a step's generated kernel; `weights` are the operands that are packed
    /// ahead.
    fn tensors(&self, work: &Work, weights: &[usize]) -> Result<Vec<Buffer>, Error> {
        let own = |role, (dtype, count): (DType, usize)| {
            Ok::<_, Error>(Buffer::own(role, element(dtype)?, count as u64))
        };
        let operand =
            |o: &CallOperand, role| own(role, (o.dtype, o.shape.iter().product::<i64>() as usize));
        let source = |from: &ValueSource| own(Role::Data, source_of(self.plan, from));
        let target = |to: &BlockPlace| own(Role::Output, target_of(self.plan, to));
        Ok(match work {
            Work::Copy { from, to, .. } => vec![source(from)?, target(to)?],
            Work::Runs { from, to, runs } => {
                let table = own(Role::Data, (DType::I64, 3 * runs.len()))?;
                vec![source(from)?, table, target(to)?]
            }
            Work::Fill { to, .. } => vec![target(to)?],
            Work::Plain { call, extents, .. } => {
                let none: &[Option<CallOperand>] = &[];
                let (inputs, outputs) = (call.0.as_deref())
                    .map_or((none, none), |c| (c.inputs.as_slice(), c.outputs.as_slice()));
                let mut all = Vec::new();
                for (i, o) in inputs.iter().enumerate() {
                    let role = if weights.contains(&i) { Role::Weight } else { Role::Data };
                    all.extend(o.as_ref().map(|o| operand(o, role)).transpose()?);
                }
                for o in outputs.iter().flatten() {
                    all.push(operand(o, Role::Output)?);
                }
                if let Some(p) = extents {
                    all.push(own(Role::Output, (DType::I64, self.plan.blocks[p.block].elements))?);
                }
                all
            }
            Work::Kernel { .. } => Vec::new(),
        })
    }

    /// Describes the steps, then what they need.
    fn build(&mut self) -> Result<(), Error> {
        for (i, step) in self.plan.steps.iter().enumerate() {
            let work = self.work(i, step).map_err(|message: String| {
                Error::Nothing(format!("node `{}`: {message}", step.node))
            })?;
            let name = format!("node `{}` ({})", step.node, step.op);
            let when = self.conditions(step);
            self.described.steps.push(Step { name, when, work });
        }
        let [kept, read] = [0, 1].map(|i: usize| self.pieces[i].iter().map(|p| p.1).sum::<u64>());
        let region = |role, bytes| Region { role, bytes, file: None };
        let filled = |role, bytes, at| Region { file: Some((CONSTANTS.into(), at)), role, bytes };
        self.described.regions = vec![
            region(Role::Scratch, self.layout.bytes as u64),
            filled(Role::Constant, kept, 0),
            filled(Role::Weight, read, kept),
            region(Role::Prepared, self.prepared),
        ];
        let others = self.linked.iter().enumerate();
        let other = |(i, (_, bytes)): (usize, &(&Path, u64))| Region {
            role: Role::Weight,
            bytes: *bytes,
            file: Some((linked(i), 0)),
        };
        self.described.regions.extend(others.map(other));
        Ok(())
    }

    /// The booleans that say whether a step is done, as the runtime reads them. Kernels of a GPU
    /// read them by themselves.
    fn conditions(&mut self, step: &PlanStep) -> Vec<(u32, bool)> {
        if self.plain.on_device {
            return Vec::new();
        }
        step.when.iter().map(|w| (self.flag(&w.flag), w.is)).collect()
    }

    /// The buffer of one boolean.
    fn flag(&mut self, flag: &ValueSource) -> u32 {
        match flag {
            ValueSource::Block(p) => self.place(p, 1),
            ValueSource::Constant(c) => self.constant(*c, false),
        }
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

    /// The buffer of `elements` elements from a place on.
    fn place(&mut self, p: &BlockPlace, elements: usize) -> u32 {
        let key = (p.block, p.offset, elements);
        if let Some(known) = self.places.get(&key) {
            return *known;
        }
        let at = Some((ARENA, self.layout.at(self.plan, p)));
        let letter = element_of(self.plan.blocks[p.block].dtype);
        let number = self.buffer(Role::Scratch, letter, elements as u64, at);
        self.described.buffers[number as usize].of = self.ports.get(&p.block).copied();
        self.places.insert(key, number);
        number
    }

    /// The buffer of a constant, whose values go to the file.
    fn constant(&mut self, c: usize, is_weight: bool) -> u32 {
        if let Some(known) = self.constants.get(&(c, is_weight)) {
            return *known;
        }
        let plan = self.plan;
        let values = &plan.constants[c];
        let (role, region) =
            if is_weight { (Role::Weight, WEIGHT) } else { (Role::Constant, CONSTANT) };
        let letter = element_of(values.dtype);
        let bytes = values.elements as u64 * values.dtype.bytes();
        let link = values.place.and_then(|n| self.weights.list.get(n));
        let place = match link.filter(|_| is_weight && !self.weights.is_copied) {
            Some(at) => self.link(at, bytes),
            None => self.append(Piece::Constant(c), bytes, region),
        };
        let number = self.buffer(role, letter, values.len() as u64, place);
        self.constants.insert((c, is_weight), number);
        number
    }

    /// Puts bytes behind those of a region's file; where they lie.
    fn append(&mut self, piece: Piece, bytes: u64, region: u32) -> Option<(u32, u64)> {
        let pieces = &mut self.pieces[usize::from(region == WEIGHT)];
        let at = pieces.iter().map(|p| p.1).sum();
        pieces.push((piece, bytes.next_multiple_of(self.layout.alignment as u64)));
        Some((region, at))
    }

    /// Where bytes lie that stay in their file.
    fn link(&mut self, at: &'a Place, bytes: u64) -> Option<(u32, u64)> {
        let known = self.linked.iter().position(|(file, _)| *file == at.file);
        let number = known.unwrap_or(self.linked.len());
        if known.is_none() {
            self.linked.push((&at.file, 0));
        }
        let used = &mut self.linked[number].1;
        *used = (*used).max(at.offset + bytes);
        Some((LINKED + number as u32, at.offset))
    }

    /// Where a move starts in what it reads: a whole constant, or a block.
    fn source(&mut self, s: &ValueSource) -> At {
        match s {
            ValueSource::Constant(c) => At { buffer: self.constant(*c, false), element: 0 },
            ValueSource::Block(p) => self.target(p),
        }
    }

    /// Where a move starts in a block.
    fn target(&mut self, p: &BlockPlace) -> At {
        let block = BlockPlace { block: p.block, offset: 0 };
        let buffer = self.place(&block, self.plan.blocks[p.block].elements);
        At { buffer, element: p.offset as u64 }
    }

    fn work(&mut self, index: usize, step: &PlanStep) -> Result<Does, String> {
        let source = self.plain.of_step.get(&index).copied();
        if let Some(source) = source.filter(|_| !matches!(step.work, Work::Plain { .. })) {
            return self.made_move(source, &step.work);
        }
        Ok(match &step.work {
            Work::Kernel { task, inputs, output } => self.call(index, *task, inputs, output)?,
            Work::Copy { from, from_offset, to, axes } => {
                let mut from = self.source(from);
                let moved = from.element.checked_add_signed(*from_offset as i64);
                from.element = moved.ok_or("it reads before its source")?;
                let axis = |a: &squall_graph::plan::Stride| MoveAxis {
                    extent: a.extent as u64,
                    to: a.to as u64,
                    from: a.from as i64,
                };
                let mut axes: Vec<MoveAxis> = axes.iter().map(axis).collect();
                if axes.is_empty() {
                    axes.push(MoveAxis { extent: 1, to: 1, from: 1 });
                }
                Does::Copy { from, to: self.target(to), axes }
            }
            Work::Runs { from, to, runs } => {
                let runs = runs.iter().map(|r| r.map(|n| n as u64)).collect();
                Does::Runs { from: self.source(from), to: self.target(to), runs }
            }
            Work::Fill { to, elements, value } => {
                let value = number(*value, self.plan.blocks[to.block].dtype);
                Does::Fill { to: self.target(to), count: *elements as u64, value }
            }
            Work::Plain { call, inputs, outputs, extents } => {
                let call = call.0.as_ref().ok_or("its call is not known")?;
                let sizes = |all: &[Option<CallOperand>]| {
                    let one = |o: &CallOperand| o.shape.iter().product::<i64>() as usize;
                    all.iter().flatten().map(one).collect::<Vec<usize>>()
                };
                let source = *self.plain.of_step.get(&index).ok_or("it has no operator")?;
                let plain = self.plain;
                let flags = &step.when[..plain.conditions_of(step)];
                let mut buffers: Vec<u32> = flags.iter().map(|w| self.flag(&w.flag)).collect();
                let there = inputs.iter().enumerate().filter_map(|(i, s)| Some((i, s.as_ref()?)));
                for ((i, s), n) in there.zip(sizes(&call.inputs)) {
                    buffers.push(match s {
                        ValueSource::Block(p) => self.place(p, n),
                        ValueSource::Constant(c) => {
                            self.constant(*c, plain.weights_of(source).contains(&i))
                        }
                    });
                }
                for (p, n) in outputs.iter().flatten().zip(sizes(&call.outputs)) {
                    buffers.push(self.place(p, n));
                }
                if let Some(p) = extents {
                    buffers.push(self.place(p, self.plan.blocks[p.block].elements));
                }
                let made = &plain.sources[source];
                let prepared = self.prepared(made.prepared.0);
                let workspace = self.workspace(index, made.workspace.0);
                let kernel = (self.kernels.len() + source) as u32;
                Does::Call { kernel, buffers, prepared, workspace }
            }
        })
    }

    /// A move that a generated kernel makes, over whole blocks.
    fn made_move(&mut self, source: usize, work: &Work) -> Result<Does, String> {
        let mut buffers = Vec::new();
        match work {
            Work::Copy { from, .. } => buffers.push(self.source(from).buffer),
            Work::Runs { from, runs, .. } => {
                buffers.push(self.source(from).buffer);
                let numbers = runs.iter().flatten();
                let bytes: Vec<u8> =
                    numbers.flat_map(|n| (*n as u64 as i64).to_ne_bytes()).collect();
                let length = bytes.len() as u64;
                let place = self.append(Piece::Bytes(bytes), length, CONSTANT);
                let count = 3 * runs.len() as u64;
                buffers.push(self.buffer(Role::Constant, element_of(DType::I64), count, place));
            }
            _ => {}
        }
        buffers.extend(work.writes().iter().map(|to| self.target(to).buffer));
        let kernel = (self.kernels.len() + source) as u32;
        Ok(Does::Call { kernel, buffers, prepared: None, workspace: None })
    }

    fn call(
        &mut self,
        step: usize,
        task: TaskId,
        inputs: &[ValueSource],
        output: &BlockPlace,
    ) -> Result<Does, String> {
        let index =
            *self.by_task.get(&task).ok_or_else(|| format!("there is no kernel of task {task}"))?;
        let k = &self.kernels[index];
        let workload = &k.task.workload;
        let takes = workload.inputs.len();
        if inputs.len() != takes {
            return Err(format!("its kernel takes {takes} inputs, not {}", inputs.len()));
        }
        let mut buffers = Vec::new();
        for (n, (s, i)) in inputs.iter().zip(&workload.inputs).enumerate() {
            let each = i.dtype.packed() as usize;
            let elements = workload.input_span(n) as usize * each;
            let holds = match s {
                ValueSource::Constant(c) => self.plan.constants[*c].len() == elements,
                ValueSource::Block(p) => p.offset + elements <= self.plan.blocks[p.block].elements,
            };
            if !holds {
                return Err(format!(
                    "input `{}` of its kernel is {:?}, which is not what the model has",
                    i.name, i.shape
                ));
            }
            buffers.push(match (i.kind, s) {
                (TensorKind::Data, ValueSource::Block(p)) => self.place(p, elements),
                (kind, ValueSource::Constant(c)) => self.constant(*c, kind == TensorKind::Weight),
                (TensorKind::Weight, _) => {
                    return Err(format!("its weight `{}` is computed at run time", i.name));
                }
            });
        }
        let elements = workload.output_span() as usize;
        if output.offset + elements > self.plan.blocks[output.block].elements {
            return Err("its kernel's result is larger than the model says".into());
        }
        buffers.push(self.place(output, elements));
        let (prepared, workspace) = (k.source.prepared.0, k.source.workspace.0);
        let prepared = self.prepared(prepared);
        let workspace = self.workspace(step, workspace);
        Ok(Does::Call { kernel: index as u32, buffers, prepared, workspace })
    }

    /// Memory of a call's packed weights.
    fn prepared(&mut self, bytes: u64) -> Option<u32> {
        (bytes > 0).then(|| {
            let at = Some((PREPARED, self.prepared));
            self.prepared += bytes.next_multiple_of(self.layout.alignment as u64);
            self.buffer(Role::Prepared, Element::U8, bytes, at)
        })
    }

    /// Scratch memory of a step's call.
    fn workspace(&mut self, step: usize, bytes: u64) -> Option<u32> {
        (bytes > 0).then(|| {
            let at = Some((ARENA, self.layout.workspace(step)));
            self.buffer(Role::Workspace, Element::U8, bytes, at)
        })
    }
}

/// Whether a region says at a place where its result is.
fn grows(plan: &Plan, place: &BlockPlace) -> bool {
    plan.steps.iter().any(|s| {
        let Work::Plain { call, outputs, .. } = &s.work else { return false };
        let Some(call) = &call.0 else { return false };
        let grown = grown_of(&call.op, &call.attributes);
        outputs.iter().zip(grown).any(|(o, g)| g.is_some() && o.as_ref() == Some(place))
    })
}

/// The file that a kernel lies in, where it is not linked into the program: in the network's
/// folder, which is where the program runs.
fn library(source: &KernelSource) -> Option<String> {
    source.language.is_launched().then(|| format!("./{}", cubin_file(source)))
}

/// A type as the runtime knows it.
fn element(dtype: DType) -> Result<Element, Error> {
    let known = runtime::letter(dtype).and_then(Element::new);
    known.ok_or_else(|| Error::Nothing(format!("networks are not run on {}", dtype.name())))
}

/// The same of a block or a constant, whose type the network's values have.
fn element_of(dtype: DType) -> Element {
    runtime::letter(dtype).and_then(Element::new).unwrap_or(Element::U8)
}
