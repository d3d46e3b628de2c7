//! Plans, the last stage of the graph compiler: a plan is an assignment (the kernels that cover a
//! model, and its layouts) as a program over blocks of memory. Everything that is known before a
//! call (folded weights, scaled filters) is computed and stored as constants; the steps that remain
//! are kernels, copies, fills and plain operators, each with the places that it reads and writes.
//!
//! Input: an assignment and weights (`build.rs`); output: a [`Plan`], which prints and parses
//! (`text.rs`) and is verified (`verify.rs`). `squall/src/inference/network` prints it as one
//! program. `movement.rs` turns nodes that move data into copies; `merge.rs`, `compose.rs` and
//! `same.rs` remove copies; `format.rs` inserts conversions of number formats.

mod build;
mod compose;
mod format;
mod merge;
mod movement;
mod same;
mod text;
mod verify;

use squall_core::graph::OperatorCall;
use squall_core::{DType, TaskId};

/// The alignment in bytes of places that are passed to kernels.
const ALIGNED_BYTES: usize = 64;

/// The alignment of places that are passed to kernels in elements of f32: 64 bytes.
pub const ALIGNMENT: usize = alignment(DType::F32);

/// The alignment of places that are passed to kernels in elements of a type: 64 bytes.
pub const fn alignment(dtype: DType) -> usize {
    match dtype {
        DType::F64 | DType::I64 | DType::U64 => ALIGNED_BYTES / 8,
        DType::F32
        | DType::I32
        | DType::U32
        | DType::Tf32
        | DType::U8x4
        | DType::I8x4
        | DType::Bf16x2
        | DType::I16x2 => ALIGNED_BYTES / 4,
        DType::F16 | DType::Bf16 | DType::I16 | DType::U16 => ALIGNED_BYTES / 2,
        DType::I8 | DType::U8 | DType::Bool => ALIGNED_BYTES,
    }
}

/// Memory for elements of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The type.
    pub dtype: DType,
    /// The number of elements.
    pub elements: usize,
}

/// A position in memory that a run writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockPlace {
    /// Index into [`Plan::blocks`].
    pub block: usize,
    /// Elements from its start.
    pub offset: usize,
}

/// An operand of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// Index into [`Plan::constants`].
    Constant(usize),
    /// A place that an earlier step wrote.
    Block(BlockPlace),
}

/// One axis of a copy: `extent` elements, with a stride in the target and one in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// The number of elements.
    pub extent: usize,
    /// The stride in the target, in elements.
    pub to: usize,
    /// Distance in the source; a mirror goes backwards.
    pub from: isize,
}

/// The work of a step.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names say it
pub enum Work {
    /// A kernel, with its inputs in the workload's order.
    Kernel { task: TaskId, inputs: Vec<ValueSource>, output: BlockPlace },
    /// A strided copy, outermost axis first. `from_offset` is relative to the source. Between
    /// floats of 32 bits and of 16 it converts.
    Copy { from: ValueSource, from_offset: usize, to: BlockPlace, axes: Vec<Stride> },
    /// A copy without a pattern: (target, source, length) each.
    Runs { from: ValueSource, to: BlockPlace, runs: Vec<[usize; 3]> },
    /// One number in all elements; for integers and booleans it is converted to the type.
    Fill { to: BlockPlace, elements: usize, value: f32 },
    /// A node that no kernel is made for, as a generated C function: its operands and results, as
    /// far as it has them. `extents` is where a bounded operator says the extents of its results.
    Plain {
        call: PlainCall,
        inputs: Vec<Option<ValueSource>>,
        outputs: Vec<Option<BlockPlace>>,
        extents: Option<BlockPlace>,
    },
}

/// The call that a plain operator is generated from; `None` in a plan that was read from a text.
#[derive(Clone, Debug, Default)]
pub struct PlainCall(pub Option<Box<OperatorCall>>);

/// Equal plans have the same steps; what a node computes is the model's affair.
impl PartialEq for PlainCall {
    fn eq(&self, _: &PlainCall) -> bool {
        true
    }
}

impl Work {
    /// The places that are written.
    pub fn writes(&self) -> Vec<BlockPlace> {
        match self {
            Work::Kernel { output, .. } => vec![*output],
            Work::Copy { to, .. } | Work::Runs { to, .. } | Work::Fill { to, .. } => vec![*to],
            Work::Plain { outputs, extents, .. } => {
                outputs.iter().flatten().chain(extents).copied().collect()
            }
        }
    }

    /// The sources that the work reads.
    pub fn reads(&self) -> Vec<ValueSource> {
        match self {
            Work::Kernel { inputs, .. } => inputs.clone(),
            Work::Copy { from, .. } | Work::Runs { from, .. } => vec![*from],
            Work::Fill { .. } => Vec::new(),
            Work::Plain { inputs, .. } => inputs.iter().flatten().copied().collect(),
        }
    }
}

/// A condition of a step: a boolean that the run computes, and the value that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// The boolean: the first element there.
    pub flag: ValueSource,
    /// The value that it must have.
    pub is: bool,
}

/// A step with the node that it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanStep {
    /// The node's name; of a kernel the first one's.
    pub node: String,
    /// The node's operator.
    pub op: String,
    /// The conditions under which the step runs: all must hold, since the step belongs to a branch
    /// that may not be taken. Steps that read its results have at least the same conditions.
    pub when: Vec<When>,
    /// The work.
    pub work: Work,
}

impl PlanStep {
    /// The sources that the work and the conditions read.
    pub fn reads(&self) -> Vec<ValueSource> {
        let mut all = self.work.reads();
        all.extend(self.when.iter().map(|w| w.flag));
        all
    }
}

/// Numbers that are known before a call, in the order in which a kernel reads them.
#[derive(Clone, Debug)]
pub struct PlanConstant {
    /// A text that says what the constant is made of.
    pub name: String,
    /// The type of each.
    pub dtype: DType,
    /// The number of elements.
    pub elements: usize,
    /// The numbers' bytes as memory holds them; none in a plan that was read from a text.
    pub data: Vec<u8>,
    /// Where they lie in their place, by the caller's number of a placed weight.
    pub place: Option<usize>,
}

impl PlanConstant {
    /// How many numbers.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }
}

/// Equal plans have the same steps; the numbers are the model's affair.
impl PartialEq for PlanConstant {
    fn eq(&self, other: &PlanConstant) -> bool {
        (&self.name, self.dtype, self.elements) == (&other.name, other.dtype, other.elements)
    }
}

/// A model ready to be laid out in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Everything known before a call that steps read.
    pub constants: Vec<PlanConstant>,
    /// Memory that the run writes.
    pub blocks: Vec<Block>,
    /// In order.
    pub steps: Vec<PlanStep>,
    /// Where the model's inputs go.
    pub inputs: Vec<BlockPlace>,
    /// Where its outputs are after the last step.
    pub outputs: Vec<BlockPlace>,
    /// Elements of each input.
    pub input_elements: Vec<usize>,
    /// Elements of each output.
    pub output_elements: Vec<usize>,
    /// Outputs whose extents only the run knows.
    pub bounded: Vec<BoundedOutput>,
    /// Weights that the file does not hold: they are random.
    pub random: Vec<String>,
}

impl Plan {
    /// The type of what lies at a source.
    pub fn dtype(&self, s: &ValueSource) -> DType {
        match s {
            ValueSource::Constant(c) => self.constants[*c].dtype,
            ValueSource::Block(p) => self.blocks[p.block].dtype,
        }
    }
}

/// An output of which only the largest extents are known ahead of the run. Its elements lie
/// row-major in the extents that the run finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedOutput {
    /// Index into [`Plan::outputs`].
    pub output: usize,
    /// Where the run writes extents, as int64.
    pub extents: BlockPlace,
    /// The number of extents there that belong to earlier outputs.
    pub before: usize,
    /// How many dimensions it has.
    pub rank: usize,
}

impl Plan {
    /// For each block the first and last step during which it holds something; inputs are there
    /// from the first step on, outputs until after the last.
    pub fn lifetimes(&self) -> Vec<(usize, usize)> {
        let mut lives = vec![(usize::MAX, 0); self.blocks.len()];
        let mut touch = |p: &BlockPlace, at: usize| {
            let life = &mut lives[p.block];
            *life = (life.0.min(at), life.1.max(at));
        };
        self.inputs.iter().for_each(|p| touch(p, 0));
        for (i, step) in self.steps.iter().enumerate() {
            step.work.writes().iter().for_each(|p| touch(p, i));
            for s in step.reads() {
                if let ValueSource::Block(p) = s {
                    touch(&p, i);
                }
            }
        }
        self.bounded.iter().for_each(|b| touch(&b.extents, self.steps.len()));
        self.outputs.iter().for_each(|p| touch(p, self.steps.len()));
        lives.into_iter().map(|(a, b)| (a.min(b), b)).collect()
    }

    /// Gives every place another name.
    fn rename(&mut self, to: &dyn Fn(BlockPlace) -> BlockPlace) {
        let fix = |p: &mut BlockPlace| *p = to(*p);
        let source = |s: &mut ValueSource| {
            if let ValueSource::Block(p) = s {
                fix(p);
            }
        };
        for step in &mut self.steps {
            step.when.iter_mut().for_each(|w| source(&mut w.flag));
            match &mut step.work {
                Work::Kernel { inputs, output, .. } => {
                    inputs.iter_mut().for_each(source);
                    fix(output);
                }
                Work::Copy { from, to, .. } | Work::Runs { from, to, .. } => {
                    source(from);
                    fix(to);
                }
                Work::Fill { to, .. } => fix(to),
                Work::Plain { inputs, outputs, extents, .. } => {
                    inputs.iter_mut().flatten().for_each(source);
                    outputs.iter_mut().flatten().chain(extents).for_each(fix);
                }
            }
        }
        self.bounded.iter_mut().for_each(|b| fix(&mut b.extents));
        self.inputs.iter_mut().for_each(fix);
        self.outputs.iter_mut().for_each(fix);
    }
}
