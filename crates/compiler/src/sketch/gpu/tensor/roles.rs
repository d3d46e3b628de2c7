//! The roles on tensor cores of the two operands of a contraction (a sum of products,
//! `problem.rs`): which one gives the rows of the product and which the columns, over which axes of
//! the output, and in which order the elements of each lie in memory and in shared memory. Input: a
//! contraction; output: `Roles`, or `None` where tensor cores cannot multiply it. All other files
//! of `tensor` and `warpgroup` build on them.

use super::super::problem::{Contraction, ContractionOperand};
use crate::nest::{Nest, Scope};
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Expr, Var};
use squall_core::space::Term;
use squall_core::workload::{Reducer, flatten};

/// The number of rows, and of columns, of a matrix of sums.
pub const SIDE: i64 = 16;

/// Elements of 16 bits in a swizzled row of shared memory.
pub const SWIZZLED_ROW: i64 = 64;

/// The role of one factor.
#[derive(Clone)]
pub struct Factor {
    /// The number of the operand in the problem.
    pub operand: usize,
    /// The axes of the output that only this factor has, by number.
    pub axes: Vec<usize>,
    /// The dimension of the operand that the reduction runs along.
    pub along: usize,
    /// The order of its elements in shared memory.
    pub layout: TileLayout,
    /// Whether it is filled up with zeros behind the reduction's end.
    pub filled: bool,
}

/// The elements that lie side by side in shared memory.
#[derive(Clone, Copy, PartialEq)]
pub enum TileLayout {
    /// The reduction, in a copy of a weight that was made ahead of time.
    Packed,
    /// The reduction, as in device memory.
    KMajor,
    /// The reduction, transposed on the way.
    Transposed,
    /// Everything but the reduction, which comes first: elements of 32 bits are gathered one by one
    /// when a matrix is loaded.
    Planes,
    /// The last axis, as in device memory: matrices are transposed when they are loaded.
    MnMajor,
    /// As in device memory, where the reduction moves along a dimension together with an axis:
    /// elements of 32 bits are gathered one by one.
    Sliding,
}

impl TileLayout {
    /// Whether elements are gathered one by one.
    pub fn gathered(self) -> bool {
        matches!(self, TileLayout::Planes | TileLayout::Sliding)
    }
}

impl Factor {
    /// Each of the factor's axes, with the axes that stand before it.
    pub fn cuts(&self) -> impl Iterator<Item = (&[usize], usize)> {
        (0..self.axes.len()).map(|i| (&self.axes[..i], self.axes[i]))
    }
}

/// The parts that the operands of a product play.
pub struct Roles {
    pub format: DType,
    /// Whether images are walked through ([`Contraction::sums_over_images`]): a step takes some
    /// places of the last reduction and one of each before it, but all of the first.
    pub images: bool,
    /// Each factor is the sum of two numbers, for products as precise as those of 32-bit floats.
    pub split: bool,
    pub rows: Factor,
    pub columns: Factor,
}

/// How the window moves along a factor's last axis.
#[derive(Clone, Copy)]
pub struct Slide {
    /// Distances in the factor's source of neighbours and of the window's positions.
    pub step: i64,
    pub dilation: i64,
    /// Positions of the window.
    pub extent: i64,
}

/// Whether the last loop over the window moves along the last axis of a factor, so that neighbours
/// read the same elements.
pub fn slides(p: &Contraction, f: &Factor) -> Option<Slide> {
    let (o, &last) = (&p.operands[f.operand], f.axes.last()?);
    let window = p.reduce[1..].last()?;
    let using = |v: Var| o.index.iter().filter(move |i| i.uses(v));
    let dimension = using(window.var).next()?;
    let alone = using(window.var).count() == 1
        && using(p.axes[last].var).count() == 1
        && f.layout != TileLayout::Packed;
    let (step, dilation) =
        (dimension.coefficient(p.axes[last].var), dimension.coefficient(window.var));
    (alone && step > 0).then_some(Slide { step, dilation, extent: window.extent })
}

/// The knob that says how many elements of an axis a block takes.
pub fn tile_knob(p: &Contraction, axis: usize) -> Term {
    Term::knob(format!("{}_b", p.axes[axis].short))
}

impl Roles {
    /// Rows and columns.
    pub fn both(&self) -> [&Factor; 2] {
        [&self.rows, &self.columns]
    }

    /// The factor whose matrices take runs of neighbours: 0 for rows, 1 for columns.
    pub fn sliding(&self, p: &Contraction) -> Option<usize> {
        [(1, &self.columns), (0, &self.rows)]
            .into_iter()
            .find(|(_, f)| !self.images && slides(p, f).is_some())
            .map(|f| f.0)
    }

    /// The constraint that the blocks of a cluster can share out the rows or the columns of their
    /// tile: they cut an axis evenly, and the tile has one element along the axes of its factor
    /// that come before.
    pub fn shared_out(&self, p: &Contraction) -> Term {
        let knob = |a: usize| tile_knob(p, a);
        self.both().into_iter().flat_map(Factor::cuts).fold(
            Term::knob("split_blocks").equals(1),
            |t, (before, a)| {
                let alone = Term::product(before.iter().map(|&b| knob(b))).equals(1);
                t.or(Term::product([alone, Term::knob("split_blocks").divides(knob(a))]))
            },
        )
    }

    /// Columns of a matrix of factors.
    pub fn depth(&self) -> i64 {
        32 / self.format.bytes() as i64
    }
}

/// The knob that says how many places of the last reduction a step takes, where sums run over
/// images.
pub fn group_knob(p: &Contraction) -> String {
    format!("{}_chunk", p.reduce.last().map_or("", |r| &r.short))
}

/// The reduction that is summed by matrices, where the first would leave most of their columns
/// empty: along an image of three channels a window of seven fills them better. Of whole images it
/// is the one along their lines.
pub fn leading(p: &Contraction) -> Option<usize> {
    if p.sums_over_images() {
        return Some(p.reduce.len() - 1);
    }
    let depth = match format(&p.base, p)? {
        DType::F32 | DType::Tf32 => 8,
        _ => 16,
    };
    // The multiplied columns, padding included, in eighths of the columns that the reduction has.
    let filled =
        |r: usize| (p.reduce[r].extent + depth - 1) / depth * depth * 8 / p.reduce[r].extent;
    let best = (1..p.reduce.len()).rev().min_by_key(|&r| filled(r))?;
    (2 * filled(best) <= filled(0)).then_some(best)
}

/// The format that both factors of the summand lie or are allowed to be rounded in.
fn format(n: &Nest, p: &Contraction) -> Option<DType> {
    let Expr::Binary(Binary::Mul, x, y) = &p.value else { return None };
    let factor = |e: &Expr| match e {
        Expr::Load { source, .. } => {
            Some((source.0, n.buffer(p.operands[source.0 as usize].source).dtype))
        }
        Expr::Cast(DType::Tf32, a) => match &**a {
            Expr::Load { source, .. }
                if n.buffer(p.operands[source.0 as usize].source).dtype == DType::F32 =>
            {
                Some((source.0, DType::Tf32))
            }
            _ => None,
        },
        _ => None,
    };
    let ((a, x), (b, y)) = (factor(x)?, factor(y)?);
    (a != b && x == y && (x.is_half() || matches!(x, DType::Tf32 | DType::F32))).then_some(x)
}

pub fn roles(p: &Contraction) -> Option<Roles> {
    let n = &p.base;
    let (format, split) = match format(n, p)? {
        DType::F32 => (DType::Tf32, true),
        other => (other, false),
    };
    // A value computed from 16-bit elements is a 32-bit float, which their tiles cannot hold.
    let is_float = |o: &ContractionOperand| n.buffer(o.source).dtype == DType::F32;
    let taken = |o: &ContractionOperand| o.other == 0.0 && (o.prologue.is_none() || is_float(o));
    if p.op != Reducer::Sum || p.operands.len() != 2 || !p.operands.iter().all(taken) {
        return None;
    }
    let uses = |o: usize, a: usize| p.operands[o].index.iter().any(|i| i.uses(p.axes[a].var));
    let own = |o: usize| -> Vec<usize> {
        (0..p.axes.len()).filter(|&a| uses(o, a) && !uses(1 - o, a)).collect()
    };
    let both = |a: usize| uses(0, a) && uses(1, a);
    if own(0).is_empty() || own(1).is_empty() {
        return None;
    }
    let y = flatten(&p.y_index, &n.buffer(p.output).shape);
    let columns =
        (0..2).find(|&o| own(o).iter().any(|&a| y.coefficient(p.axes[a].var) == 1)).unwrap_or(1);
    let factor = |operand: usize| {
        let o = &p.operands[operand];
        let k = p.reduce[0].var;
        let along = o.index.iter().position(|i| i.uses(k))?;
        // The reduction's dimension may also hold axes that both factors have, as grouped
        // convolutions do.
        let simple = o.index.iter().filter(|i| i.uses(k)).count() == 1
            && o.index[along].coefficient(k) == 1
            && o.index[along]
                .terms()
                .iter()
                .all(|t| t.0 == k || (0..p.axes.len()).any(|a| p.axes[a].var == t.0 && both(a)));
        let axes = own(operand);
        let sliding = format == DType::Tf32 && !o.packed;
        let layout =
            if simple { layout(n, p, o, &axes, along, format) } else { TileLayout::Sliding };
        (simple || sliding).then_some(Factor { operand, layout, axes, along, filled: false })
    };
    let (rows, columns) = (factor(1 - columns)?, factor(columns)?);
    Some(Roles { format, images: false, split, rows, columns })
}

fn layout(
    n: &Nest,
    p: &Contraction,
    o: &ContractionOperand,
    axes: &[usize],
    along: usize,
    format: DType,
) -> TileLayout {
    let buffer = n.buffer(o.source);
    if o.packed && buffer.scope == Scope::Prepared {
        return TileLayout::Packed;
    }
    let last = o.index.len() - 1;
    if along == last {
        return TileLayout::KMajor;
    }
    let single = |i: &Affine| {
        i.as_var()
            .is_some_and(|v| axes.iter().any(|&a| p.axes[a].var == v && p.axes[a].extent % 8 == 0))
    };
    let tested = o.conds.iter().any(|c| c.index.terms() == o.index[last].terms());
    if format.is_half() && single(&o.index[last]) && !tested && buffer.shape[last] % 8 == 0 {
        TileLayout::MnMajor
    } else {
        TileLayout::Transposed
    }
}
