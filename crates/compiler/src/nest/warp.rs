//! What the 32 threads of a warp do together: matrices that lie across their registers, moved and
//! multiplied as wholes by tensor cores.
//!
//! ```text
//! fragment A_f: bf16[4, 16, 16]
//! warp_load rows p in 8, q in 14 from 16*i column k: A_f[i] = X_s[p, q, k]
//! warp_multiply C_f[i, j] += A_f[i] * B_f[j]
//! warp_store row m column n: T[m, n] = C_f[i, j]
//! ```
//!
//! `warp_load ..: A_f[i] and A_rest[i] = ..` also keeps what rounding leaves.
//! A fragment's last two dimensions are the matrix, the ones before say which. The second factor of
//! a product lies transposed, as `[n, k]`, so that both are loaded alike. Products of elements are
//! exact, their sums are rounded to the format of what they are added to.

use super::Nest;
use squall_core::expr::{Affine, Names, Source, Var, print_affine};
use std::fmt;

/// One of the matrices of a fragment.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// The fragment.
    pub buffer: Source,
    /// Indices of all dimensions but the last two.
    pub at: Vec<Affine>,
}

/// An instruction of a warp.
#[derive(Clone, Debug, PartialEq)]
pub enum Warp {
    /// All elements become zero.
    Zero(Matrix),
    /// A matrix is read from shared memory and rounded to its format.
    Load {
        /// What is filled.
        to: Matrix,
        /// Filled with what rounding leaves, rounded itself: products of both parts are as precise as
        /// products of what was read.
        rest: Option<Matrix>,
        /// Variables that say which row; counted together, the last fastest.
        rows: Vec<(Var, i64)>,
        /// The count at the matrix's first row. Where the count runs over, the last row is read again.
        first: Affine,
        /// Counts columns.
        column: Var,
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
    /// A matrix is written to shared memory.
    Store {
        /// What is written.
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
            Warp::Store { from, index, .. } => (vec![from], index.iter_mut().collect()),
        };
        matrices.into_iter().flat_map(|m| &mut m.at).chain(more).for_each(f);
    }

    /// The matrices that it names, the changed one first.
    pub fn matrices(&self) -> Vec<&Matrix> {
        match self {
            Warp::Zero(m) | Warp::Store { from: m, .. } => vec![m],
            Warp::Load { to, rest, .. } => [to].into_iter().chain(rest).collect(),
            Warp::Multiply { to, a, b } => vec![to, a, b],
        }
    }
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
        super::print::index(f, n, &m.at)
    };
    match w {
        Warp::Zero(m) => {
            write!(f, "warp_zero ")?;
            matrix(f, m)?;
        }
        Warp::Load { to, rest, rows, first, column, from, index } => {
            write!(f, "warp_load rows ")?;
            for (i, (v, e)) in rows.iter().enumerate() {
                write!(f, "{}{} in {e}", if i > 0 { ", " } else { "" }, n.var(*v))?;
            }
            write!(f, " from ")?;
            print_affine(f, first, n)?;
            write!(f, " column {}: ", n.var(*column))?;
            matrix(f, to)?;
            if let Some(rest) = rest {
                write!(f, " and ")?;
                matrix(f, rest)?;
            }
            write!(f, " = {}", n.source(*from))?;
            super::print::index(f, n, index)?;
        }
        Warp::Multiply { to, a, b } => {
            write!(f, "warp_multiply ")?;
            matrix(f, to)?;
            write!(f, " += ")?;
            matrix(f, a)?;
            write!(f, " * ")?;
            matrix(f, b)?;
        }
        Warp::Store { from, row, column, to, index } => {
            write!(f, "warp_store row {} column {}: {}", n.var(*row), n.var(*column), n.source(*to))?;
            super::print::index(f, n, index)?;
            write!(f, " = ")?;
            matrix(f, from)?;
        }
    }
    writeln!(f)
}
