//! The last stage: an assignment as a program over blocks of memory. What is known before a call is
//! computed ahead of it; what remains are kernels and moves of data between places.

mod build;
mod merge;
mod movement;
mod text;
mod verify;

use squall_core::TaskId;

/// Elements between places that kernels may be given: 64 bytes.
pub const ALIGNMENT: usize = 16;

/// A position in memory that a run writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index into [`Plan::blocks`].
    pub block: usize,
    /// Elements from its start.
    pub offset: usize,
}

/// What a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Index into [`Plan::constants`].
    Constant(usize),
    /// What an earlier step wrote.
    Place(Place),
}

/// One axis of a move: `extent` elements, so far apart in the target and in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// How many.
    pub extent: usize,
    /// Distance in the target.
    pub to: usize,
    /// Distance in the source; a mirror goes backwards.
    pub from: isize,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names say it
pub enum Work {
    /// A kernel, with its inputs in the workload's order.
    Kernel { task: TaskId, inputs: Vec<Source>, output: Place },
    /// A strided copy, outermost axis first. `from_offset` is relative to the source.
    Copy { from: Source, from_offset: usize, to: Place, axes: Vec<Stride> },
    /// A copy without a pattern: (target, source, length) each.
    Runs { from: Source, to: Place, runs: Vec<[usize; 3]> },
    /// The same number everywhere.
    Fill { to: Place, elements: usize, value: f32 },
}

impl Work {
    /// The place that is written.
    pub fn to(&self) -> Place {
        match self {
            Work::Kernel { output, .. } => *output,
            Work::Copy { to, .. } | Work::Runs { to, .. } | Work::Fill { to, .. } => *to,
        }
    }

    /// What is read.
    pub fn reads(&self) -> &[Source] {
        match self {
            Work::Kernel { inputs, .. } => inputs,
            Work::Copy { from, .. } | Work::Runs { from, .. } => std::slice::from_ref(from),
            Work::Fill { .. } => &[],
        }
    }
}

/// A step with the node that it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanStep {
    /// The node's name; of a kernel the first one's.
    pub node: String,
    /// The node's operator.
    pub op: String,
    /// What is done.
    pub work: Work,
}

/// Numbers that are known before a call, in the order in which a kernel reads them.
#[derive(Clone, Debug, Default)]
pub struct PlanConstant {
    /// What they are made of, in words.
    pub name: String,
    /// How many.
    pub elements: usize,
    /// The numbers themselves; none in a plan that was read from a text.
    pub data: Vec<f32>,
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

    /// The numbers.
    pub fn iter(&self) -> std::slice::Iter<'_, f32> {
        self.data.iter()
    }
}

impl<'a> IntoIterator for &'a PlanConstant {
    type Item = &'a f32;
    type IntoIter = std::slice::Iter<'a, f32>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Equal plans have the same steps; the numbers are the model's affair.
impl PartialEq for PlanConstant {
    fn eq(&self, other: &PlanConstant) -> bool {
        (&self.name, self.elements) == (&other.name, other.elements)
    }
}

/// A model ready to be laid out in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Everything known before a call that steps read.
    pub constants: Vec<PlanConstant>,
    /// Elements of each block of memory.
    pub blocks: Vec<usize>,
    /// In order.
    pub steps: Vec<PlanStep>,
    /// Where the model's inputs go.
    pub inputs: Vec<Place>,
    /// Where its outputs are after the last step.
    pub outputs: Vec<Place>,
    /// Elements of each input.
    pub input_elements: Vec<usize>,
    /// Elements of each output.
    pub output_elements: Vec<usize>,
    /// Weights that the file does not hold: they are random.
    pub random: Vec<String>,
}

impl Plan {
    /// For each block the first and last step during which it holds something; inputs are there
    /// from the first step on, outputs until after the last.
    pub fn lifetimes(&self) -> Vec<(usize, usize)> {
        let mut lives = vec![(usize::MAX, 0); self.blocks.len()];
        let mut touch = |p: &Place, at: usize| {
            let life = &mut lives[p.block];
            *life = (life.0.min(at), life.1.max(at));
        };
        self.inputs.iter().for_each(|p| touch(p, 0));
        for (i, step) in self.steps.iter().enumerate() {
            touch(&step.work.to(), i);
            for s in step.work.reads() {
                if let Source::Place(p) = s {
                    touch(p, i);
                }
            }
        }
        self.outputs.iter().for_each(|p| touch(p, self.steps.len()));
        lives.into_iter().map(|(a, b)| (a.min(b), b)).collect()
    }
}
