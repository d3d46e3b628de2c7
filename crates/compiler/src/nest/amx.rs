//! Loops of the mode `amx`: two or three of them, directly nested around one statement, are one
//! instruction on AMX tiles, the matrix registers of Xeons (up to 16 rows of 64 bytes). The three
//! forms multiply, clear and store a tile:
//!
//! ```text
//! amx row in 16 {                              amx row in 16 {        amx row in 16 {
//!   amx step in 16 {                             amx v in 16 {          amx v in 16 {
//!     amx v in 16 {                                sums[row, v] = 0       C[row, v] = sums[row, v]
//!       sums[row, v] += dot(A[row, step],        }                      }
//!                           B[step, v])        }                      }
//! ```
//!
//! `tile_step` reads such loops as a [`TileStep`], which `emit/tiles.rs` prints as intrinsics. A
//! buffer of sums lies in tile registers where only such steps touch it and all of it fits;
//! elsewhere the loops are printed as they stand.

use super::{Loop, Mode, Nest, Scope, Stmt, accesses, visit};
use squall_core::AMX_TILES;
use squall_core::expr::{Affine, Binary, Expr, Source, Var};
use squall_core::workload::{Reducer, flatten};
use std::collections::HashSet;

/// Where a tile lies in memory: the place of its first element, and the distance from row to row.
#[derive(Clone, Debug, PartialEq)]
pub struct TilePlace {
    /// The buffer.
    pub buffer: Source,
    /// The offset of its first element.
    pub at: Affine,
    /// Elements between the starts of two rows.
    pub stride: i64,
}

/// The operation of a step on a tile of sums.
#[derive(Clone, Debug, PartialEq)]
pub enum TileWork {
    /// Sets the tile to 0.
    Zero,
    /// Adds the product of two tiles.
    Multiply {
        /// The product of two elements, which are four bytes or two numbers of bf16 each.
        op: Binary,
        /// The factor that has a row for each row of sums.
        left: TilePlace,
        /// The factor that has a row for each element of a row of the left one.
        right: TilePlace,
        /// Elements of a row of the left factor.
        depth: i64,
    },
    /// Writes the tile to memory.
    Store(TilePlace),
}

/// One operation on tiles, as read from loops of the mode `amx`.
#[derive(Clone, Debug, PartialEq)]
pub struct TileStep {
    /// The buffer of sums.
    pub sums: Source,
    /// The offset of the tile in that buffer.
    pub at: Affine,
    /// Rows of the tile of sums.
    pub rows: i64,
    /// The operation on the tile.
    pub work: TileWork,
}

/// The step that a loop of the mode `amx` is, or why it is none.
pub fn tile_step(n: &Nest, top: &Loop) -> Result<TileStep, String> {
    let loops = super::chain(top);
    let inner = loops[loops.len() - 1];
    let refuse = |why: &str| Err(format!("the amx loop `{}` {why}", n.vars[top.var.0 as usize]));
    let [only] = &inner.body[..] else { return refuse("has several statements") };
    if loops.iter().any(|l| l.start.is_some() || l.extent > AMX_TILES.rows) {
        return refuse("counts tiles, or more than a tile's rows");
    }
    if inner.extent != AMX_TILES.rows {
        return refuse("has not as many lanes as a row has elements");
    }
    let vars: Vec<Var> = loops.iter().map(|l| l.var).collect();
    let (rows, lanes) = (top.var, inner.var);
    let step = match (only, &vars[..]) {
        (Stmt::Store { buffer, index, value: Expr::Const(0.0) }, [_, _]) => {
            let place = place(n, *buffer, index, rows, lanes, &vars);
            place.map(|p| (p, TileWork::Zero))
        }
        (Stmt::Store { buffer, index, value: Expr::Load { source, index: from } }, [_, _]) => {
            let to = place(n, *buffer, index, rows, lanes, &vars);
            place(n, *source, from, rows, lanes, &vars).zip(to.map(TileWork::Store))
        }
        (
            Stmt::Update {
                op: Reducer::Sum,
                buffer,
                index,
                value: Expr::Binary(op @ (Binary::Dot | Binary::DotPair), a, b),
            },
            &[_, depth, _],
        ) => match (&**a, &**b) {
            (Expr::Load { source: a, index: i }, Expr::Load { source: b, index: j }) => {
                let left = place(n, *a, i, rows, depth, &vars);
                let right = place(n, *b, j, depth, lanes, &vars);
                let sums = place(n, *buffer, index, rows, lanes, &vars);
                let depth = loops[1].extent;
                let work = |(left, right)| TileWork::Multiply { op: *op, left, right, depth };
                sums.zip(left.zip(right).map(work))
            }
            _ => None,
        },
        _ => None,
    };
    let Some((sums, work)) = step else { return refuse("is no step on tiles") };
    if n.buffer(sums.buffer).scope != Scope::Local || sums.stride != AMX_TILES.rows {
        return refuse("keeps sums that do not lie tile by tile");
    }
    Ok(TileStep { sums: sums.buffer, at: sums.at, rows: top.extent, work })
}

/// The place of a tile whose rows one loop counts, and whose elements another; nothing where
/// another loop of the step moves it, or elements are no neighbours.
fn place(
    n: &Nest,
    buffer: Source,
    index: &[Affine],
    row: Var,
    element: Var,
    all: &[Var],
) -> Option<TilePlace> {
    let buf = n.buffer(buffer);
    let mut at = flatten(index, &buf.shape);
    let stride = at.coefficient(row);
    let moved = all.iter().any(|v| *v != row && *v != element && at.uses(*v));
    if moved || at.coefficient(element) != 1 || stride < 1 || buf.dtype.bytes() != 4 {
        return None;
    }
    at.add_term(row, -stride);
    at.add_term(element, -1);
    Some(TilePlace { buffer, at, stride })
}

/// How a program uses registers of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileRegisters {
    /// The buffer of sums.
    pub buffer: Source,
    /// Rows of sums and of left factors.
    pub rows: i64,
    /// Elements of a row of left factors, and rows of right ones.
    pub depth: i64,
    /// The number of registers of sums; registers of left factors come next, then those of right
    /// factors.
    pub sums: i64,
    /// Registers of left factors.
    pub left: i64,
}

/// Refuses loops of the mode that are no step on tiles.
pub(super) fn check(n: &Nest) -> Result<(), String> {
    let mut fault = None;
    tops(&n.body, &mut Vec::new(), &mut |l, _| fault = fault.take().or(tile_step(n, l).err()));
    fault.map_or(Ok(()), Err)
}

/// The registers of a program's tiles; none where it has no tiles, or registers cannot hold them:
/// these have several shapes or buffers of sums, are too many, are not known where code is printed,
/// or are touched by other statements.
pub fn tile_registers(n: &Nest) -> Option<TileRegisters> {
    let mut steps = Vec::new();
    let mut known = true;
    tops(&n.body, &mut Vec::new(), &mut |l, written_out| {
        let step = tile_step(n, l).ok();
        known &=
            step.as_ref().is_some_and(|s| s.at.terms().iter().all(|t| written_out.contains(&t.0)));
        steps.extend(step);
    });
    let first = steps.first().filter(|_| known)?;
    let depths = steps.iter().filter_map(|s| match s.work {
        TileWork::Multiply { depth, .. } => Some(depth),
        _ => None,
    });
    let depths: HashSet<i64> = depths.collect();
    let depth = *depths.iter().next()?;
    let sums = n.buffer(first.sums).elements() / (first.rows * AMX_TILES.rows);
    let alike = steps.iter().all(|s| s.rows == first.rows && s.sums == first.sums);
    let touched = accesses(&n.body).iter().filter(|a| a.buffer == first.sums).count();
    let fits = (1..=AMX_TILES.registers - 2).contains(&sums);
    // With few sums two of the left factors may be held while the right ones come.
    let left = if sums <= 4 { 2 } else { 1 };
    let found = TileRegisters { buffer: first.sums, rows: first.rows, depth, sums, left };
    (alike && fits && depths.len() == 1 && touched == steps.len()).then_some(found)
}

/// Whether statements have a step on tiles.
pub fn has_tiles(stmts: &[Stmt]) -> bool {
    let mut found = false;
    visit(stmts, &mut |s| found |= matches!(s, Stmt::Loop(l) if l.mode == Mode::Amx));
    found
}

/// Calls `f` with the outermost amx loops, and the variables that are known where code is printed.
fn tops<'a>(stmts: &'a [Stmt], written_out: &mut Vec<Var>, f: &mut dyn FnMut(&'a Loop, &[Var])) {
    for s in stmts {
        match s {
            Stmt::Loop(l) if l.mode == Mode::Amx => f(l, written_out),
            Stmt::Loop(l) => {
                let before = written_out.len();
                if l.extent == 1 || matches!(l.mode, Mode::Unroll | Mode::Step) {
                    written_out.extend([l.var].into_iter().chain(l.start.map(|s| s.var)));
                }
                tops(&l.body, written_out, f);
                written_out.truncate(before);
            }
            Stmt::If { body, .. } => tops(body, written_out, f),
            _ => {}
        }
    }
}
