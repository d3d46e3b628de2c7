//! The host plan: what the C host library runs, as types and as a text that prints and parses back.
//! A plan lists regions of memory, buffers in them, kernels, and steps (calls and moves of data) in
//! order: one kernel for a measurement or a driver, many for a network. `parse.rs`, `print.rs` and
//! `verify.rs` read, write and check it; `host/plan.c` is the reader in C.

mod kernel;
mod parse;
mod print;
mod verify;

pub use kernel::letter;

use squall_core::workload::Hard;
use squall_core::{Language, LaunchPhase, TensorMap};

/// The version of the text format.
pub const VERSION: u32 = 2;

/// The largest size, offset, count or stride: a sum of three fits 64 bits.
pub const MOST_BYTES: u64 = 1 << 62;

/// The most axes of a copy.
pub const MOST_AXES: usize = 32;

/// The most parameters of a kernel.
pub const MOST_PARAMETERS: usize = 512;

/// The most arguments of a launch.
pub const MOST_ARGUMENTS: usize = 1024;

/// The most tensor maps of a launch.
pub const MOST_MAPS: usize = 8;

/// Buffers in regions start at multiples of this: what kernels are promised.
pub const ALIGNMENT: u64 = 64;

/// The role of a buffer or a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Given to each run.
    Data,
    /// Constant over runs, and read by the preparation only.
    Weight,
    /// An output.
    Output,
    /// Between steps.
    Scratch,
    /// Constant over runs.
    Constant,
    /// Packed weights, which a kernel's preparation fills.
    Prepared,
    /// Scratch memory that a kernel needs during a call.
    Workspace,
}

/// The type of an element: the letter of `host/element.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Element(char);

impl Element {
    /// f32.
    pub const F32: Element = Element('f');
    /// Bytes.
    pub const U8: Element = Element('u');
    /// bf16.
    pub const BF16: Element = Element('B');
    /// Booleans.
    pub const BOOL: Element = Element('o');
    /// f16.
    pub const F16: Element = Element('h');
    /// All letters.
    pub const LETTERS: &str = "fdhBbusSiIlLo";

    /// The type of a letter.
    pub fn new(letter: char) -> Option<Element> {
        Element::LETTERS.contains(letter).then_some(Element(letter))
    }

    /// Its letter.
    pub fn letter(self) -> char {
        self.0
    }

    /// The size of an element.
    pub fn bytes(self) -> u64 {
        match self.0 {
            'd' | 'l' | 'L' => 8,
            'f' | 'i' | 'I' => 4,
            'h' | 'B' | 's' | 'S' => 2,
            _ => 1,
        }
    }
}

/// Memory that buffers share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Scratch, constant, weight or prepared.
    pub role: Role,
    /// Its size.
    pub bytes: u64,
    /// The file that holds its content, and from which byte on.
    pub file: Option<(String, u64)>,
}

/// A tensor in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Its role.
    pub role: Role,
    /// The type of its elements.
    pub element: Element,
    /// How many there are.
    pub count: u64,
    /// The region that it lies in and the byte where it starts; or memory of its own.
    pub place: Option<(u32, u64)>,
    /// The least and the largest value of an input that is made.
    pub range: Option<(f64, f64)>,
    /// The hard values that an input which is made holds beside others.
    pub hard: Option<Hard>,
    /// The file of an input that is given.
    pub file: Option<String>,
    /// Of an output: what the reference leaves as it was is no part of it, and no kernel may write
    /// there.
    pub gaps: bool,
    /// Of an output: it is a record of memory that the run took; who reads it frees that.
    pub grown: bool,
    /// The input or output that it is a part of, by its number: a run may find it in the caller's
    /// own memory. An input may be a part of an output, into which it is copied then.
    pub of: Option<u32>,
    /// Of a constant of 64-bit integers that lies in no region: its elements.
    pub values: Vec<i64>,
}

impl Buffer {
    /// A buffer with memory of its own.
    pub fn own(role: Role, element: Element, count: u64) -> Buffer {
        Buffer {
            role,
            element,
            count,
            place: None,
            range: None,
            hard: None,
            file: None,
            gaps: false,
            grown: false,
            of: None,
            values: Vec::new(),
        }
    }

    /// Its size; the verifier has seen that it fits.
    pub fn bytes(&self) -> u64 {
        self.count.saturating_mul(self.element.bytes())
    }
}

/// A tensor that a kernel takes or gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Data, weight or output.
    pub role: Role,
    /// The type of its elements.
    pub element: Element,
    /// How many there are.
    pub count: u64,
}

/// An argument of a GPU function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The n-th data pointer.
    Data(u32),
    /// The n-th weight.
    Weight(u32),
    /// The n-th output.
    Output(u32),
    /// The n-th output, after the bytes of some data were copied to it.
    Restored {
        /// Which output.
        output: u32,
        /// Which data.
        data: u32,
    },
    /// The prepared memory.
    Prepared,
    /// The workspace.
    Workspace,
    /// A whole number of 32 bits in which a call says that it did not succeed.
    Status,
    /// A number, by the bytes that it has in memory.
    Number(Vec<u8>),
    /// The n-th tensor map, by value.
    Map(u32),
}

/// A launch of a GPU function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// When it happens.
    pub phase: LaunchPhase,
    /// The function's name in the cubin.
    pub entry: String,
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y and z.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The arguments of its parameters.
    pub arguments: Vec<Argument>,
    /// Tensors whose tiles the copy engine fetches.
    pub maps: Vec<TensorMap>,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its language.
    pub language: Language,
    /// Its name in C.
    pub symbol: String,
    /// The shared library or cubin; nothing where it is linked into the program.
    pub library: Option<String>,
    /// Bytes of packed weights.
    pub prepared: u64,
    /// Bytes that a call needs.
    pub workspace: u64,
    /// The values that the loader writes into the library's array `SYMBOL_numbers`; empty for a
    /// kernel without one.
    pub numbers: Vec<u64>,
    /// What it takes and gives; data, weights and outputs count by themselves.
    pub parameters: Vec<Parameter>,
    /// How it is launched, from a cubin.
    pub launches: Vec<Launch>,
}

/// One axis of a copy: `extent` elements, so far apart in the target and in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveAxis {
    /// How many.
    pub extent: u64,
    /// Distance in the target.
    pub to: u64,
    /// Distance in the source; a mirror goes backwards.
    pub from: i64,
}

/// An element of a buffer, where a move starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The buffer.
    pub buffer: u32,
    /// The element.
    pub element: u64,
}

/// The work of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Calls a kernel.
    Call {
        /// Which.
        kernel: u32,
        /// The buffer of each parameter.
        buffers: Vec<u32>,
        /// Packed weights.
        prepared: Option<u32>,
        /// Memory for the call.
        workspace: Option<u32>,
    },
    /// A strided copy, outermost axis first.
    Copy {
        /// The source.
        from: At,
        /// The target.
        to: At,
        /// The axes.
        axes: Vec<MoveAxis>,
    },
    /// A copy without a pattern: (target, source, length) each, relative to the ends.
    Runs {
        /// The source.
        from: At,
        /// The target.
        to: At,
        /// The runs.
        runs: Vec<[u64; 3]>,
    },
    /// The same number everywhere.
    Fill {
        /// The target.
        to: At,
        /// How many.
        count: u64,
        /// The bytes of the number, as many as an element has.
        value: Vec<u8>,
    },
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// For messages.
    pub name: String,
    /// Buffers that begin with a boolean, and what each has to be; else the step does nothing.
    pub when: Vec<(u32, bool)>,
    /// Its work.
    pub work: Work,
}

/// A plan whose parts fit together once [`HostPlan::verify`] says so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostPlan {
    /// Memory that buffers share.
    pub regions: Vec<Region>,
    /// Tensors.
    pub buffers: Vec<Buffer>,
    /// Kernels.
    pub kernels: Vec<Kernel>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// Why a text is no plan, or a plan does not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostPlanError {
    /// The text cannot be read.
    #[error("plan: line {line}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The reason.
        why: &'static str,
    },
    /// Parts do not fit.
    #[error("plan: {0}")]
    Unfit(String),
}

impl HostPlan {
    /// Reads a plan and verifies it.
    pub fn parse(text: &str) -> Result<HostPlan, HostPlanError> {
        let plan = parse::plan(text)?;
        plan.verify()?;
        Ok(plan)
    }

    /// Whether every number of a buffer, kernel or region exists, every size and offset stays
    /// inside, and no sum overflows.
    pub fn verify(&self) -> Result<(), HostPlanError> {
        verify::plan(self)
    }
}
