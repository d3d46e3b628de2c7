//! The loop-nest IR: loops over affine statements on buffers (as in Halide's or TVM's lowered
//! loops). Workloads are lowered to it (`lower`), schedules rewrite it (`../schedule`), `verify`
//! checks it, `interpret` runs it, and `../emit` prints it as C or CUDA C. A nest prints as text
//! and parses back:
//!
//! ```text
//! nest matmul
//! data A: f32[64, 32]
//! weight B: f32[32, 48]
//! output Y: f32[64, 48]
//! {
//!   parallel m in 64 {
//!     for n in 48 {
//!       Y[m, n] = 0
//!       for k in 32 {
//!         Y[m, n] += A[m, k] * B[k, n]
//!       }
//!     }
//!   }
//! }
//! ```
//!
//! A loop may bind a second variable, the start of a tile whose last instance is moved back to stay
//! inside the extent: `for mo in 8 at m = 8*mo cap 54` gives `m = min(8*mo, 54)`.

mod amx;
mod inside;
mod interpret;
mod lenient;
mod lower;
mod parse;
mod print;
mod remap;
mod shares;
mod simt;
mod state;
mod text;
mod tma_tile;
mod verify;
mod warp;

pub use amx::{TilePlace, TileRegisters, TileStep, TileWork, has_tiles, tile_registers, tile_step};
pub use inside::{decided, inside, share};
pub use interpret::{interpret, try_interpret};
pub use lower::lower;
pub use parse::parse;
pub(crate) use remap::{Remap, remapped};
pub use shares::shared_chain;
pub(crate) use tma_tile::{MOST_SPANNED, MOST_STEP};
pub use tma_tile::{TmaDimension, TmaTile, copies_tma_tiles, tma_tile};
pub use verify::verify;
pub use warp::{
    Matrix, THREAD_PART, TileSlice, Warp, extents, lies_across, thread_elements, thread_place,
};

use squall_core::DType;
use squall_core::expr::{Affine, Cond, Expr, Source, Var};
use squall_core::workload::Reducer;
use std::collections::HashMap;

/// Where a buffer lives and what fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The i-th data input: read only.
    Data(usize),
    /// The i-th weight: read only in `prepare`, absent from the timed call.
    Weight(usize),
    /// The result.
    Output,
    /// Filled by `prepare` from weights, read by the body.
    Prepared,
    /// Scratch memory of one call.
    Workspace,
    /// Declared inside a loop body, undefined at each declaration: registers or stack.
    Local,
    /// Declared inside the thread loops, one for each block: shared memory.
    Shared,
    /// Shared memory of the blocks of a cluster, seen by all of them: the first index says whose.
    Cluster,
    /// Shared memory in rows of 128 bytes, as warpgroups multiply it: what lies in the c-th 16
    /// bytes of row r is printed as the (c xor r mod 8)-th, so that a column is not one bank.
    Swizzled,
    /// Declared inside thread loops, one for each warp: matrices across its threads' registers.
    Fragment,
}

impl Scope {
    /// Whether the timed call reads it from the device's memory.
    pub fn is_read_from_memory(self) -> bool {
        matches!(self, Scope::Data(_) | Scope::Prepared | Scope::Workspace)
    }
}

/// A dense row-major array.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Unique in its nest.
    pub name: String,
    /// Element format.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// Where it lives.
    pub scope: Scope,
    /// Whether its maxima or minima may lose a NaN, which shows in the result all the same.
    pub lenient: bool,
}

impl Buffer {
    /// Number of elements.
    pub fn elements(&self) -> i64 {
        self.shape.iter().product()
    }
}

/// How a loop is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One iteration after another.
    Serial,
    /// Iterations are shared among threads. The last tile of a loop may be moved back into the one
    /// before it: a thread that has the one has the other, too, and does it later. So elements that
    /// both touch have one writer, and their order does not depend on the threads.
    Parallel,
    /// Iterations are the lanes of vector operations.
    Vector,
    /// The body is written out once for each iteration.
    Unroll,
    /// Unrolled like `Unroll`, but elements that one iteration loads are not kept for the next,
    /// which loads them anew: with few registers, shared values push others out of them.
    Step,
    /// Two or three directly nested loops of this mode are one instruction on registers that hold
    /// tiles of a matrix (`nest/amx.rs`).
    Amx,
    /// Iterations are the blocks of a GPU launch; only outermost.
    Block,
    /// Iterations are the blocks of a cluster, which can read each other's [`Scope::Cluster`].
    Cluster,
    /// Iterations are the threads of a block.
    Thread,
    /// Iterations of directly nested loops of this mode, counted together, are dealt to the
    /// threads of the block in turn: the i-th to thread `i mod threads`.
    Share,
    /// Directly nested loops of this mode copy a TMA tile of a tensor to rows of shared memory, all
    /// of it at once: one thread asks for it, and no thread's registers or instructions take part.
    /// TMA tiles are committed and awaited in batches, as all copies are.
    Tma,
}

/// Which threads wait for each other at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// The threads of a block.
    Block,
    /// The threads of all blocks of a cluster.
    Cluster,
}

/// `start = min(step * loop variable, cap)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Start {
    /// The variable that is bound.
    pub var: Var,
    /// Tile size.
    pub step: i64,
    /// The last tile's start.
    pub cap: i64,
}

/// A loop from 0 to `extent`.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// Counts iterations.
    pub var: Var,
    /// Number of iterations.
    pub extent: i64,
    /// How it runs.
    pub mode: Mode,
    /// A tile start bound along.
    pub start: Option<Start>,
    /// The statements of the loop.
    pub body: Vec<Stmt>,
}

impl Loop {
    /// Whether a form changes from iteration to iteration, by the counter or the tile's start.
    pub fn moves(&self, a: &Affine) -> bool {
        a.uses(self.var) || self.start.is_some_and(|s| a.uses(s.var))
    }

    /// Whether the last tile was moved back into the one before it.
    pub fn overlaps(&self) -> bool {
        self.start.is_some_and(|s| s.cap < s.step * (self.extent - 1))
    }

    /// The number of parts that threads can share ([`Mode::Parallel`]): each an iteration, the last
    /// one two where tiles overlap.
    pub fn shares(&self) -> i64 {
        self.extent - i64::from(self.overlaps())
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// A loop.
    Loop(Loop),
    /// Declares a local buffer for the rest of the block; its content is undefined.
    Local(Source),
    /// `buffer[index] = value`
    Store {
        /// Written.
        buffer: Source,
        /// One for each dimension.
        index: Vec<Affine>,
        /// The new value.
        value: Expr,
    },
    /// `buffer[index] = buffer[index] op value`; iterations may be done in any order.
    Update {
        /// The combination.
        op: Reducer,
        /// Written.
        buffer: Source,
        /// One for each dimension.
        index: Vec<Affine>,
        /// The value that is combined into the element.
        value: Expr,
    },
    /// Statements that run only where all conditions hold.
    If {
        /// All must hold.
        conds: Vec<Cond>,
        /// Guarded.
        body: Vec<Stmt>,
    },
    /// Asks for the cache line of an element, by its place in the flat buffer, before it is read.
    /// Only a hint: nothing depends on it, and the place may lie outside of the buffer.
    Prefetch {
        /// Read soon.
        buffer: Source,
        /// Elements from its start.
        at: Affine,
    },
    /// The rest of the block is emitted twice: for iterations in which all tests hold, without the
    /// tests, and with them for the others. Only a hint to programs by vectors; both versions
    /// compute the same.
    Version,
    /// Threads wait for each other; what was written before is seen after.
    Barrier(Reach),
    /// Binds a variable for the rest of the block: `value / divisor mod modulo`, rounded down.
    Let {
        /// The variable.
        var: Var,
        /// Not negative.
        value: Affine,
        /// Above 0.
        divisor: i64,
        /// Above 0.
        modulo: i64,
    },
    /// An instruction that the threads of a warp execute together.
    Warp(Warp),
    /// Ends a batch of copies from device to shared memory. In programs with such statements
    /// copies are on their way until they are awaited; elsewhere every barrier awaits them.
    CommitCopies,
    /// Waits until all batches of the thread's copies but the last `n` have arrived. If TMA tiles
    /// are among them, that must be exactly one batch more than had arrived before. Other threads
    /// see the elements after a barrier.
    AwaitCopies(u32),
    /// Waits until all products that the thread's warpgroup started, but the last `n`, are done.
    /// Until then their sums must not be touched, nor the elements that they read be written.
    AwaitProducts(u32),
}

/// A program: `prepare` runs once on weights, `body` at every call.
#[derive(Clone, Debug, PartialEq)]
pub struct Nest {
    /// The kernel's name.
    pub name: String,
    /// Names of variables, by number.
    pub vars: Vec<String>,
    /// Buffers, by number.
    pub buffers: Vec<Buffer>,
    /// Packs weights.
    pub prepare: Vec<Stmt>,
    /// Computes the output.
    pub body: Vec<Stmt>,
}

impl Nest {
    /// The buffer of a source.
    pub fn buffer(&self, s: Source) -> &Buffer {
        &self.buffers[s.0 as usize]
    }

    /// The buffer with a name.
    pub fn find_buffer(&self, name: &str) -> Option<Source> {
        self.buffers.iter().position(|b| b.name == name).map(|i| Source(i as u32))
    }

    /// The variable with a name.
    pub fn find_var(&self, name: &str) -> Option<Var> {
        self.vars.iter().position(|v| v == name).map(|i| Var(i as u32))
    }

    /// A new variable; a taken name gets a number.
    pub fn new_var(&mut self, name: &str) -> Var {
        let mut unique = name.to_string();
        let mut n = 1;
        while self.vars.contains(&unique) {
            n += 1;
            unique = format!("{name}_{n}");
        }
        self.vars.push(unique);
        Var(self.vars.len() as u32 - 1)
    }

    /// A new buffer; a taken name gets a number.
    pub fn new_buffer(&mut self, mut b: Buffer) -> Source {
        let base = b.name.clone();
        let mut n = 1;
        while self.buffers.iter().any(|o| o.name == b.name) {
            n += 1;
            b.name = format!("{base}_{n}");
        }
        self.buffers.push(b);
        Source(self.buffers.len() as u32 - 1)
    }

    /// The loop over a variable, in `prepare` or `body`.
    pub fn find_loop(&self, v: Var) -> Option<&Loop> {
        loop_over(&self.prepare, v).or_else(|| loop_over(&self.body, v))
    }

    /// Replaces the loop over `v` by what `f` makes of it; false where there is none.
    pub fn replace_loop(&mut self, v: Var, f: &mut dyn FnMut(Loop) -> Vec<Stmt>) -> bool {
        replace(&mut self.prepare, v, f) || replace(&mut self.body, v, f)
    }

    /// Bytes of all buffers of a scope, each rounded up to a cache line: the layout that the
    /// emitter uses.
    pub fn scope_bytes(&self, wanted: fn(&Scope) -> bool) -> u64 {
        self.buffers.iter().filter(|b| wanted(&b.scope)).map(aligned_bytes).sum()
    }
}

/// Size of a buffer rounded up to 64 bytes.
pub fn aligned_bytes(b: &Buffer) -> u64 {
    (b.elements() as u64 * b.dtype.bytes()).div_ceil(64) * 64
}

/// The bytes of shared memory that a buffer takes in one block, in whole vectors; 0 for buffers
/// elsewhere. Buffers of a GPU program lie one behind the other, and at the end of a block of
/// statements its buffers' bytes are free again.
pub fn shared_room(n: &Nest, b: Source) -> i64 {
    let buf = n.buffer(b);
    let elements = match buf.scope {
        Scope::Shared | Scope::Swizzled => buf.elements(),
        Scope::Cluster => buf.elements() / buf.shape[0],
        _ => 0,
    };
    (elements * buf.dtype.bytes() as i64 + 15) / 16 * 16
}

/// Where a buffer lies if shared memory is free from a byte on: swizzled rows count from multiples
/// of 1,024.
pub fn shared_place(n: &Nest, b: Source, free: i64) -> i64 {
    if n.buffer(b).scope == Scope::Swizzled { (free + 1023) / 1024 * 1024 } else { free }
}

/// The loop over a variable in the statements.
pub fn loop_over(stmts: &[Stmt], v: Var) -> Option<&Loop> {
    stmts.iter().find_map(|s| match s {
        Stmt::Loop(l) if l.var == v => Some(l),
        Stmt::Loop(l) => loop_over(&l.body, v),
        Stmt::If { body, .. } => loop_over(body, v),
        _ => None,
    })
}

fn replace(stmts: &mut Vec<Stmt>, v: Var, f: &mut dyn FnMut(Loop) -> Vec<Stmt>) -> bool {
    if let Some(i) = stmts.iter().position(|s| matches!(s, Stmt::Loop(l) if l.var == v)) {
        if let Stmt::Loop(l) = stmts.remove(i) {
            stmts.splice(i..i, f(l));
        }
        return true;
    }
    stmts.iter_mut().any(|s| match s {
        Stmt::Loop(Loop { body, .. }) | Stmt::If { body, .. } => replace(body, v, f),
        _ => false,
    })
}

/// A loop and the loops of the same mode that are directly nested in it, outermost first.
pub fn chain(top: &Loop) -> Vec<&Loop> {
    let mut all = vec![top];
    while let [Stmt::Loop(l)] = &all[all.len() - 1].body[..]
        && l.mode == top.mode
    {
        all.push(l);
    }
    all
}

/// Calls `f` on every statement, parents first.
pub fn visit<'a>(stmts: &'a [Stmt], f: &mut dyn FnMut(&'a Stmt)) {
    for s in stmts {
        f(s);
        if let Stmt::Loop(Loop { body, .. }) | Stmt::If { body, .. } = s {
            visit(body, f);
        }
    }
}

/// The largest value of each variable that is bound in the statements.
pub fn largest_values(stmts: &[Stmt]) -> HashMap<Var, i64> {
    let mut found = HashMap::new();
    visit(stmts, &mut |s| match s {
        Stmt::Loop(x) => {
            found.insert(x.var, x.extent - 1);
            found.extend(x.start.map(|s| (s.var, s.cap)));
        }
        Stmt::Let { var, modulo, .. } => _ = found.insert(*var, modulo - 1),
        _ => {}
    });
    found
}

/// Calls `f` on every statement, parents first, to change them.
pub fn visit_mut(stmts: &mut [Stmt], f: &mut dyn FnMut(&mut Stmt)) {
    for s in stmts {
        f(s);
        if let Stmt::Loop(Loop { body, .. }) | Stmt::If { body, .. } = s {
            visit_mut(body, f);
        }
    }
}

/// Passes every affine form and every expression node of the statements through the functions.
pub fn rewrite(
    stmts: &mut [Stmt],
    affine: &mut dyn FnMut(&Affine) -> Affine,
    leaf: &mut dyn FnMut(Expr) -> Expr,
) {
    visit_mut(stmts, &mut |s| match s {
        Stmt::Store { index, value, .. } | Stmt::Update { index, value, .. } => {
            index.iter_mut().for_each(|a| *a = affine(a));
            *value = value.rewrite(&mut |a| affine(a), &mut |e| leaf(e));
        }
        Stmt::If { conds, .. } => conds.iter_mut().for_each(|c| c.index = affine(&c.index)),
        Stmt::Let { value, .. } => *value = affine(value),
        Stmt::Prefetch { at, .. } => *at = affine(at),
        Stmt::Warp(w) => w.affine_mut(&mut |a| *a = affine(a)),
        _ => {}
    });
}

/// Replaces a variable everywhere in the statements.
pub fn substitute(stmts: &mut [Stmt], v: Var, by: &Affine) {
    rewrite(stmts, &mut |a| a.substitute(v, by), &mut |e| e);
}

/// The parts of a stored value that only copies from device memory: the source, its index, and the
/// conditions outside of which it is zero; `None` for other values.
pub fn copied<'e>(n: &Nest, value: &'e Expr) -> Option<(Source, &'e [Affine], &'e [Cond])> {
    let found = match value {
        Expr::Load { source, index } => (*source, &index[..], &[][..]),
        Expr::Select { conds, then, other } => match (&**then, &**other) {
            (Expr::Load { source, index }, Expr::Const(0.0)) => (*source, &index[..], &conds[..]),
            _ => return None,
        },
        _ => return None,
    };
    n.buffer(found.0).scope.is_read_from_memory().then_some(found)
}

/// One access of a buffer.
pub struct Access<'a> {
    /// The buffer.
    pub buffer: Source,
    /// The index.
    pub index: &'a [Affine],
    /// Whether it is written; an update is a write that also reads.
    pub write: bool,
    /// Whether it is read.
    pub read: bool,
}

/// All accesses in the statements, in order.
pub fn accesses(stmts: &[Stmt]) -> Vec<Access<'_>> {
    let mut out = Vec::new();
    visit(stmts, &mut |s| {
        if let Stmt::Store { buffer, index, value } | Stmt::Update { buffer, index, value, .. } = s
        {
            out.extend(value.loads().into_iter().map(|(buffer, index)| Access {
                buffer,
                index,
                write: false,
                read: true,
            }));
            let read = matches!(s, Stmt::Update { .. });
            out.push(Access { buffer: *buffer, index, write: true, read });
        }
    });
    out
}
