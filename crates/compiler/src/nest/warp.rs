//! Warp instructions of the loop-nest IR: statements that the 32 threads of a warp execute together
//! on fragments, matrices that lie across their registers and are moved and multiplied as wholes by
//! tensor cores. `emit/warps.rs` prints them as PTX, `simt/warp.rs` interprets them,
//! `verify/warp.rs` checks them.
//!
//! ```text
//! fragment A_f: bf16[4, 16, 16]
//! warp_load rows p in 8, q in 14 from 16*i column k: A_f[i] = X_s[p, q, k]
//! warp_multiply C_f[i, j] += A_f[i] * B_f[j]
//! warp_store row m column n: T[m, n] = C_f[i, j]
//! ```
//!
//! A thread computes with its own elements of a matrix where they lie in a local buffer, whose last
//! dimensions are `[.., 2, 2]`: thread `l` of the warp has in `[h, r, p]` the element of row
//! `l / 4 + 8 r` and column `8 h + 2 (l mod 4) + p`; eights of columns may be counted by several
//! dimensions. Four threads side by side share two rows.
//!
//! ```text
//! fragment S_f: f32[4, 16, 16]
//! fragment P_f: bf16[4, 16, 16]
//! local s: f32[4, 2, 2, 2]
//! local most: f32[2]
//! warp_unpack s[j] = S_f[j]
//! warp_reduce max of 4: most
//! warp_pack P_f[j] = s[j]
//! ```
//!
//! `warp_load .. column k in 7: ..` reads seven columns; the others of the matrix become zero.
//! `warp_load ..: A_f[i] and A_rest[i] = ..` also keeps the remainders of rounding. A warpgroup,
//! four warps side by side, multiplies matrices directly from shared memory:
//!
//! ```text
//! swizzled A_s: bf16[4, 128, 64]
//! swizzled B_s: bf16[4, 256, 64]
//! fragment C_f: f32[1, 16, 256]
//! warpgroup_multiply rows from 64*g of 112 columns from 0 of 250: C_f += A_s[stage] * B_s[stage]
//! await_products 1
//! ```
//!
//! adds to 64 rows of sums for each of C_f's matrices; the q-th warp of the warpgroup keeps rows 16
//! q to 16 q + 15 of each 64. Rows and columns beyond the tile's (of 112, of 250) have undefined
//! sums. Such a product runs asynchronously until it is awaited. A factor may also lie across,
//! `B_s: bf16[4, 4, 64, 64]` as `[stage, row / 64, k, row mod 64]`. With `=` for `+=` sums are the
//! product alone. The first factor of 64 rows may lie in registers instead, each warp's rows in its
//! own, `P_f: bf16[2, 4, 16, 16]` as `[.., k / 16, m, k mod 16]`; its product is added:
//!
//! ```text
//! warpgroup_multiply rows from 0 of 64 columns from 0 of 64: O_f += P_f[1] * V_s[stage]
//! ```
//!
//! A fragment's last two dimensions are a matrix; the indices of the dimensions before select the
//! matrix. The second factor of a product lies transposed, as `[n, k]`, so that both are loaded
//! alike. Products of elements are exact, their sums are rounded to the format of the fragment that
//! they are added to.

use super::Nest;
use squall_core::expr::{Affine, Names, Source, Var, print_affine};
use squall_core::workload::Reducer;
use std::fmt;

/// One of the matrices of a fragment.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// The fragment.
    pub buffer: Source,
    /// Indices of all dimensions but the last two.
    pub at: Vec<Affine>,
}

/// Which rows or columns of a tile a warpgroup takes.
#[derive(Clone, Debug, PartialEq)]
pub struct TileSlice {
    /// The first row or column.
    pub first: Affine,
    /// How many of them the tile has. Memory has room for more, but no thread fills it, so sums of
    /// further rows or columns are undefined.
    pub all: i64,
}

/// An instruction of a warp.
#[derive(Clone, Debug, PartialEq)]
pub enum Warp {
    /// All elements become zero.
    Zero(Matrix),
    /// A matrix is read from shared memory and rounded to its format.
    Load {
        /// The matrix that is filled.
        to: Matrix,
        /// A matrix that is filled with what rounding leaves, rounded itself, so that products of
        /// both parts are nearly as precise as products of what was read.
        rest: Option<Matrix>,
        /// Variables that say which row; counted together, the last fastest.
        rows: Vec<(Var, i64)>,
        /// The count at the matrix's first row. Where the count runs over its end, the last row is
        /// read again.
        first: Affine,
        /// Counts columns.
        column: Var,
        /// How many columns are read; further ones of the matrix become zero.
        columns: i64,
        /// Where elements come from.
        from: Source,
        /// The element of a row and column.
        index: Vec<Affine>,
    },
    /// `to[m, n] += sum(k) a[m, k] * b[n, k]`
    Multiply {
        /// Added to.
        to: Matrix,
        /// The first factor.
        a: Matrix,
        /// The second, transposed.
        b: Matrix,
    },
    /// Begins `to[i][m, n] += sum(k) a[rows.first + 64 i + 16 q + m, k] * b[columns.first + n, k]`
    /// for each matrix i of the fragment and the q-th of the warpgroup's four warps, which all come
    /// here; k runs over whole rows of 64.
    /// [`Stmt::AwaitProducts`](super::Stmt::AwaitProducts) waits for it.
    WarpgroupMultiply {
        /// All matrices of this fragment are added to.
        to: Source,
        /// Which rows of `a`; a multiple of 8.
        rows: TileSlice,
        /// Which rows of `b`; a multiple of 8.
        columns: TileSlice,
        /// The first factor: a swizzled buffer of which the last two dimensions, `[row, k]`, are
        /// not indexed, or the last three, `[row / 64, k, row mod 64]`, where rows lie side by
        /// side; or a fragment of which the last three, `[k / 16, m, k mod 16]`, are not.
        a: Matrix,
        /// The second, transposed.
        b: Matrix,
        /// Whether the product takes the place of the sums.
        replaces: bool,
    },
    /// A matrix is written to shared memory or to an output; its elements are only rounded.
    Store {
        /// The matrix that is written.
        from: Matrix,
        /// Counts rows.
        row: Var,
        /// Counts columns.
        column: Var,
        /// Where elements go.
        to: Source,
        /// The element of a row and column.
        index: Vec<Affine>,
    },
    /// Each thread reads its elements of a matrix of sums.
    Unpack {
        /// A local buffer, and the indices of its dimensions before the thread's elements.
        to: Matrix,
        /// The matrix.
        from: Matrix,
    },
    /// A matrix of sums or of factors is made of what each thread has of it, rounded to its format.
    Pack {
        /// The matrix.
        to: Matrix,
        /// A local buffer, and the indices of its dimensions before the thread's elements.
        from: Matrix,
    },
    /// Each element of a local buffer becomes that of `lanes` threads side by side, combined.
    Reduce {
        /// The combination.
        op: Reducer,
        /// The local buffer, each of whose elements is combined with the elements of other threads
        /// at the same index.
        buffer: Source,
        /// How many threads have the same result: a power of two, 32 at most.
        lanes: i64,
    },
}

/// The last dimensions of a local buffer that holds a thread's elements of a matrix of 16 columns.
pub const THREAD_PART: [i64; 3] = [2, 2, 2];

/// How many of its elements a thread has.
pub fn thread_elements(n: &Nest, m: &Matrix) -> i64 {
    let (rows, columns) = extents(n, m);
    rows * columns / 32
}

/// Row and column of a thread's element `i` of a matrix.
pub fn thread_place(lane: i64, i: i64) -> (i64, i64) {
    (lane / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (lane % 4) + i % 2)
}

impl Warp {
    /// Calls `f` on every affine form.
    pub fn affine_mut(&mut self, f: &mut dyn FnMut(&mut Affine)) {
        let (matrices, more): (Vec<&mut Matrix>, Vec<&mut Affine>) = match self {
            Warp::Zero(m) => (vec![m], Vec::new()),
            Warp::Load { to, rest, first, index, .. } => {
                ([to].into_iter().chain(rest).collect(), index.iter_mut().chain([first]).collect())
            }
            Warp::Multiply { to, a, b } => (vec![to, a, b], Vec::new()),
            Warp::WarpgroupMultiply { rows, columns, a, b, .. } => {
                (vec![a, b], vec![&mut rows.first, &mut columns.first])
            }
            Warp::Store { from, index, .. } => (vec![from], index.iter_mut().collect()),
            Warp::Unpack { to, from } | Warp::Pack { to, from } => (vec![to, from], Vec::new()),
            Warp::Reduce { .. } => Default::default(),
        };
        matrices.into_iter().flat_map(|m| &mut m.at).chain(more).for_each(f);
    }

    /// The matrices of fragments that it names, the changed one first.
    pub fn matrices(&self) -> Vec<&Matrix> {
        match self {
            Warp::Zero(m) | Warp::Store { from: m, .. } => vec![m],
            Warp::Load { to, rest, .. } => [to].into_iter().chain(rest).collect(),
            Warp::Multiply { to, a, b } => vec![to, a, b],
            Warp::Unpack { from: m, .. } | Warp::Pack { to: m, .. } => vec![m],
            Warp::WarpgroupMultiply { .. } | Warp::Reduce { .. } => Vec::new(),
        }
    }
}

/// Whether a factor of a warpgroup's product lies across: its rows side by side, in blocks of 64.
pub fn lies_across(n: &Nest, m: &Matrix) -> bool {
    n.buffer(m.buffer).shape.len() == m.at.len() + 3
}

/// Rows and columns of a fragment's matrices.
pub fn extents(n: &Nest, m: &Matrix) -> (i64, i64) {
    match n.buffer(m.buffer).shape[..] {
        [.., r, c] => (r, c),
        _ => (1, 1),
    }
}

pub(super) fn print(f: &mut fmt::Formatter<'_>, n: &Nest, w: &Warp) -> fmt::Result {
    let matrix = |f: &mut fmt::Formatter<'_>, m: &Matrix| {
        write!(f, "{}", n.source(m.buffer))?;
        super::text::index(f, n, &m.at)
    };
    match w {
        Warp::Zero(m) => {
            write!(f, "warp_zero ")?;
            matrix(f, m)?;
        }
        Warp::Load { to, rest, rows, first, column, columns, from, index } => {
            write!(f, "warp_load rows ")?;
            for (i, (v, e)) in rows.iter().enumerate() {
                write!(f, "{}{} in {e}", if i > 0 { ", " } else { "" }, n.var(*v))?;
            }
            write!(f, " from ")?;
            print_affine(f, first, n)?;
            write!(f, " column {}", n.var(*column))?;
            if *columns != extents(n, to).1 {
                write!(f, " in {columns}")?;
            }
            write!(f, ": ")?;
            matrix(f, to)?;
            if let Some(rest) = rest {
                write!(f, " and ")?;
                matrix(f, rest)?;
            }
            write!(f, " = {}", n.source(*from))?;
            super::text::index(f, n, index)?;
        }
        Warp::Multiply { to, a, b } => {
            write!(f, "warp_multiply ")?;
            matrix(f, to)?;
            write!(f, " += ")?;
            matrix(f, a)?;
            write!(f, " * ")?;
            matrix(f, b)?;
        }
        Warp::WarpgroupMultiply { to, rows, columns, a, b, replaces } => {
            for (word, p) in [("warpgroup_multiply rows", rows), (" columns", columns)] {
                write!(f, "{word} from ")?;
                print_affine(f, &p.first, n)?;
                write!(f, " of {}", p.all)?;
            }
            write!(f, ": {} {} ", n.source(*to), if *replaces { "=" } else { "+=" })?;
            matrix(f, a)?;
            write!(f, " * ")?;
            matrix(f, b)?;
        }
        Warp::Store { from, row, column, to, index } => {
            write!(
                f,
                "warp_store row {} column {}: {}",
                n.var(*row),
                n.var(*column),
                n.source(*to)
            )?;
            super::text::index(f, n, index)?;
            write!(f, " = ")?;
            matrix(f, from)?;
        }
        Warp::Unpack { to, from } | Warp::Pack { to, from } => {
            let word = if matches!(w, Warp::Pack { .. }) { "pack" } else { "unpack" };
            write!(f, "warp_{word} ")?;
            matrix(f, to)?;
            write!(f, " = ")?;
            matrix(f, from)?;
        }
        Warp::Reduce { op, buffer, lanes } => {
            write!(f, "warp_reduce {} of {lanes}: {}", op.name(), n.source(*buffer))?;
        }
    }
    writeln!(f)
}
