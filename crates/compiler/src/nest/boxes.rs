//! Loops that copy a box: what the copy engine of a GPU (compute capability 9.0) is told of them.
//!
//! A tensor map describes the source once: extents and strides of its dimensions, and how many
//! elements of each a box takes. A copy names the box's first element along each dimension; what
//! lies outside of the tensor arrives as zeros. The box fills rows of 128 bytes one behind the
//! other, its dimensions in the order of the loops.

use super::{Loop, Mode, Nest, Scope, Stmt, chain, copied};
use squall_core::expr::{Affine, Cond, Source};
use squall_core::workload::flatten;

/// Bytes of a row.
const ROW: i64 = 128;
/// What is swizzled as one: eight rows.
const GROUP: i64 = 8 * ROW;
/// Limits of CUDA's tensor maps.
const MOST_DIMENSIONS: usize = 5;
pub(crate) const MOST_SPANNED: i64 = 256;
pub(crate) const MOST_STEP: i64 = 8;

/// One dimension of the source as a box sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct BoxSide {
    /// Elements of the tensor.
    pub extent: i64,
    /// Elements from one to the next in memory.
    pub stride: i64,
    /// Elements that the box takes, and the distance between them.
    pub taken: i64,
    /// See `taken`.
    pub step: i64,
    /// The first of them.
    pub first: Affine,
}

impl BoxSide {
    /// Elements from the first that is taken to the last.
    pub fn spanned(&self) -> i64 {
        (self.taken - 1) * self.step + 1
    }
}

/// A copy of a box.
#[derive(Clone, Debug, PartialEq)]
pub struct BoxCopy {
    /// Device memory.
    pub from: Source,
    /// Innermost first.
    pub sides: Vec<BoxSide>,
    /// Swizzled rows.
    pub to: Source,
    /// Where the box begins there.
    pub at: Vec<Affine>,
    /// How much is copied.
    pub bytes: i64,
}

/// What directly nested loops copy, if it is a box of a tensor.
pub fn box_copy(n: &Nest, top: &Loop) -> Result<BoxCopy, String> {
    let loops = chain(top);
    let [Stmt::Store { buffer: to, index, value }] = &loops[loops.len() - 1].body[..] else {
        return Err("a box is one store".into());
    };
    let Some((from, at, conds)) = copied(n, value) else {
        return Err("a box is copied from device memory as it is".into());
    };
    let (source, target) = (n.buffer(from), n.buffer(*to));
    let bytes = target.dtype.bytes() as i64;
    if target.scope != Scope::Swizzled || source.dtype != target.dtype || bytes != 2 {
        return Err(format!(
            "`{}` does not hold rows of a box: swizzled, of the source's format, of 16 bits",
            target.name
        ));
    }
    // The box lies there without gaps, whole rows, from a group of eight of them on.
    let still =
        |a: &Affine| loops.iter().fold(a.clone(), |a, l| a.substitute(l.var, &Affine::constant(0)));
    let place = flatten(index, &target.shape);
    let mut size = 1;
    for l in loops.iter().rev() {
        if l.extent > 1 && place.coefficient(l.var) != size {
            return Err(format!("a box leaves gaps in `{}`", target.name));
        }
        size *= l.extent;
    }
    let begin = still(&place);
    let whole = |x: i64| x * bytes % GROUP == 0;
    let inner = loops[loops.len() - 1];
    if inner.extent * bytes != ROW
        || !whole(begin.offset())
        || !begin.terms().iter().all(|t| whole(t.1))
    {
        return Err(format!(
            "a box does not begin with whole rows of `{}`, eight by eight",
            target.name
        ));
    }
    // Which dimension a condition tests, and where the tensor ends then.
    let tests = |c: &Cond, at: &Affine| {
        let rest = c.index.add(&at.scale(-1));
        (rest.terms().is_empty() && c.low <= rest.offset()).then(|| c.high - rest.offset())
    };
    if conds.iter().any(|c| at.iter().all(|a| tests(c, a).is_none())) {
        return Err(format!(
            "outside of a box of `{}` is not what lies outside of the tensor",
            source.name
        ));
    }
    let mut sides: Vec<(usize, BoxSide)> = Vec::new();
    let mut joins = false;
    for (d, place) in at.iter().enumerate() {
        let moving: Vec<(usize, &Loop)> = loops
            .iter()
            .copied()
            .rev()
            .enumerate()
            .filter(|l| l.1.extent > 1 && place.uses(l.1.var))
            .collect();
        let (order, taken, step) = match moving[..] {
            [] => (loops.len(), 1, 1),
            [(i, l)] => (i, l.extent, place.coefficient(l.var)),
            _ => {
                return Err(format!(
                    "two loops of a box move along dimension {d} of `{}`",
                    source.name
                ));
            }
        };
        let ends = conds.iter().filter_map(|c| tests(c, place)).min();
        let extent = ends.map_or(source.shape[d], |e| e.min(source.shape[d]));
        let stride = source.shape[d + 1..].iter().product();
        let side = BoxSide { extent, stride, taken, step, first: still(place) };
        // Dimensions of which a box has one element, inside of the tensor, are one: there may not
        // be many.
        let alone = taken == 1 && ends.is_none();
        match sides.last_mut().filter(|_| alone && joins) {
            Some((_, last)) => {
                let first = last.first.scale(side.extent).add(&side.first);
                *last = BoxSide { extent: last.extent * side.extent, first, ..side };
            }
            None => sides.push((order, side)),
        }
        joins = alone;
    }
    let moved = |i: usize| sides.iter().filter(|s| s.0 == i).count();
    if loops.iter().rev().enumerate().any(|(i, l)| l.extent > 1 && moved(i) != 1) {
        return Err(format!("loops of a box move along no dimension of `{}`, or two", source.name));
    }
    // Dimensions of one element need not be told of.
    sides.retain(|(_, s)| s.taken > 1 || s.extent > 1 || s.first != Affine::constant(0));
    sides.sort_by_key(|(order, s)| (*order, s.stride));
    let sides: Vec<BoxSide> = sides.into_iter().map(|s| s.1).collect();
    let fits = |s: &BoxSide| {
        (1..=MOST_STEP).contains(&s.step) && s.spanned() <= MOST_SPANNED && s.extent > 0
    };
    let strides = sides.iter().skip(1).all(|s| s.stride * bytes % 16 == 0);
    if !sides.iter().all(fits)
        || !strides
        || sides.len() > MOST_DIMENSIONS
        || !sides.first().is_some_and(|s| s.stride == 1 && s.step == 1)
    {
        return Err(format!("`{}` has not what a tensor map takes", source.name));
    }
    Ok(BoxCopy { from, sides, to: *to, at: index.iter().map(still).collect(), bytes: size * bytes })
}

/// Whether a program copies boxes.
pub fn copies_boxes(stmts: &[Stmt]) -> bool {
    let mut found = false;
    super::visit(stmts, &mut |s| found |= matches!(s, Stmt::Loop(l) if l.mode == Mode::Box));
    found
}
