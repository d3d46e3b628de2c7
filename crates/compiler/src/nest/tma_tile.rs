//! TMA tiles: reads from copying loops of the mode `tma` how a GPU's copy engine (the tensor memory
//! accelerator of compute capability 9.0) copies the tile. Input: a loop; output: a [`TmaTile`],
//! from which `emit/tma.rs` prints the copy and the launch encodes the tensor map.
//!
//! A tensor map describes the source once: extents and strides of its dimensions, and how many
//! elements of each a tile takes. A copy names the tile's first element along each dimension;
//! elements outside of the tensor arrive as zeros. The tile fills rows of 128 bytes one behind the
//! other, its dimensions in the order of the loops.

use super::{Buffer, Loop, Mode, Nest, Scope, Stmt, chain, copied};
use squall_core::expr::{Affine, Cond, Source};
use squall_core::workload::flatten;

/// Bytes of a row of shared memory.
const ROW: i64 = 128;
/// Bytes of the eight rows that are swizzled as one.
const EIGHT_ROWS: i64 = 8 * ROW;
/// Limits of CUDA's tensor maps.
const MOST_DIMENSIONS: usize = 5;
pub(crate) const MOST_SPANNED: i64 = 256;
pub(crate) const MOST_STEP: i64 = 8;

/// One dimension of the source as a TMA tile sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct TmaDimension {
    /// Elements of the tensor along this dimension.
    pub extent: i64,
    /// The distance in memory from one element to the next, in elements.
    pub stride: i64,
    /// How many elements the tile takes.
    pub taken: i64,
    /// The distance between two elements that the tile takes.
    pub step: i64,
    /// The first element that the tile takes.
    pub first: Affine,
}

impl TmaDimension {
    /// Elements from the first that is taken to the last.
    pub fn spanned(&self) -> i64 {
        (self.taken - 1) * self.step + 1
    }
}

/// A copy of a TMA tile.
#[derive(Clone, Debug, PartialEq)]
pub struct TmaTile {
    /// A buffer in device memory.
    pub from: Source,
    /// Dimensions of the source, innermost first.
    pub dimensions: Vec<TmaDimension>,
    /// A buffer of swizzled rows.
    pub to: Source,
    /// The index of the tile's first element there.
    pub at: Vec<Affine>,
    /// The bytes that are copied.
    pub bytes: i64,
}

/// The loops around a copy, and the copy's parts.
struct Copy<'a> {
    /// Outermost first.
    loops: Vec<&'a Loop>,
    source: &'a Buffer,
    target: &'a Buffer,
    /// The index in the target.
    index: &'a [Affine],
    /// The index in the source.
    at: &'a [Affine],
    /// Conditions outside of which zeros are stored.
    conds: &'a [Cond],
}

/// The TMA tile that directly nested loops copy, or why they copy none.
pub fn tma_tile(n: &Nest, top: &Loop) -> Result<TmaTile, String> {
    let loops = chain(top);
    let [Stmt::Store { buffer: to, index, value }] = &loops[loops.len() - 1].body[..] else {
        return Err("a TMA tile is one store".into());
    };
    let Some((from, at, conds)) = copied(n, value) else {
        return Err("a TMA tile is copied from device memory as it is".into());
    };
    let copy = Copy { loops, source: n.buffer(from), target: n.buffer(*to), index, at, conds };
    copy.check_formats()?;
    copy.check_rows()?;
    copy.check_conditions()?;
    let dimensions = copy.dimensions()?;
    copy.check_tensor_map(&dimensions)?;
    let at = index.iter().map(|a| copy.first(a)).collect();
    Ok(TmaTile { from, dimensions, to: *to, at, bytes: copy.elements() * copy.element_bytes() })
}

impl Copy<'_> {
    fn element_bytes(&self) -> i64 {
        self.target.dtype.bytes() as i64
    }

    /// Elements of the tile.
    fn elements(&self) -> i64 {
        self.loops.iter().map(|l| l.extent).product()
    }

    /// An index at the tile's first element, where all loops begin.
    fn first(&self, a: &Affine) -> Affine {
        let zero = Affine::constant(0);
        self.loops.iter().fold(a.clone(), |a, l| a.substitute(l.var, &zero))
    }

    fn check_formats(&self) -> Result<(), String> {
        let (source, target) = (self.source, self.target);
        let fits = target.scope == Scope::Swizzled
            && source.dtype == target.dtype
            && self.element_bytes() == 2;
        match fits {
            true => Ok(()),
            false => Err(format!(
                "`{}` does not hold rows of a TMA tile: swizzled, of the source's format, of 16 \
                 bits",
                target.name
            )),
        }
    }

    /// Checks that the tile lies in its target without gaps, in whole rows, and begins where eight
    /// rows begin that are swizzled as one.
    fn check_rows(&self) -> Result<(), String> {
        let place = flatten(self.index, &self.target.shape);
        let mut size = 1;
        for l in self.loops.iter().rev() {
            if l.extent > 1 && place.coefficient(l.var) != size {
                return Err(format!("a TMA tile leaves gaps in `{}`", self.target.name));
            }
            size *= l.extent;
        }
        let begin = self.first(&place);
        let bytes = self.element_bytes();
        let whole = |elements: i64| elements * bytes % EIGHT_ROWS == 0;
        let inner = self.loops[self.loops.len() - 1];
        if inner.extent * bytes != ROW
            || !whole(begin.offset())
            || !begin.terms().iter().all(|t| whole(t.1))
        {
            return Err(format!(
                "a TMA tile does not begin with whole rows of `{}`, eight by eight",
                self.target.name
            ));
        }
        Ok(())
    }

    /// Checks that each condition says where the tensor ends along a dimension: the copy engine
    /// fills in zeros there and nowhere else.
    fn check_conditions(&self) -> Result<(), String> {
        match self.conds.iter().all(|c| self.at.iter().any(|a| tested_end(c, a).is_some())) {
            true => Ok(()),
            false => Err(format!(
                "outside of a TMA tile of `{}` is not what lies outside of the tensor",
                self.source.name
            )),
        }
    }

    /// The dimensions of the source, in the order in which loops move along them.
    fn dimensions(&self) -> Result<Vec<TmaDimension>, String> {
        let mut found: Vec<(usize, TmaDimension)> = Vec::new();
        let mut joins = false;
        for d in 0..self.at.len() {
            let (order, dimension, ends) = self.dimension(d)?;
            // Neighbouring dimensions that a tile takes one element of, inside of the tensor, are
            // described as one, because a tensor map has few dimensions.
            let alone = dimension.taken == 1 && !ends;
            match found.last_mut().filter(|_| alone && joins) {
                Some((_, last)) => {
                    let first = last.first.scale(dimension.extent).add(&dimension.first);
                    let extent = last.extent * dimension.extent;
                    *last = TmaDimension { extent, first, ..dimension };
                }
                None => found.push((order, dimension)),
            }
            joins = alone;
        }
        let moved = |i: usize| found.iter().filter(|d| d.0 == i).count();
        if self.loops.iter().rev().enumerate().any(|(i, l)| l.extent > 1 && moved(i) != 1) {
            return Err(format!(
                "loops of a TMA tile move along no dimension of `{}`, or two",
                self.source.name
            ));
        }
        // The tensor map leaves out dimensions of one element.
        found.retain(|(_, d)| d.taken > 1 || d.extent > 1 || d.first != Affine::constant(0));
        found.sort_by_key(|(order, d)| (*order, d.stride));
        Ok(found.into_iter().map(|d| d.1).collect())
    }

    /// Dimension `d` of the source; the number, innermost first, of the loop that moves along it,
    /// or the number of all loops where none does; and whether a condition tests where it ends.
    fn dimension(&self, d: usize) -> Result<(usize, TmaDimension, bool), String> {
        let place = &self.at[d];
        let inner_first = self.loops.iter().copied().rev().enumerate();
        let moving: Vec<(usize, &Loop)> =
            inner_first.filter(|l| l.1.extent > 1 && place.uses(l.1.var)).collect();
        let (order, taken, step) = match moving[..] {
            [] => (self.loops.len(), 1, 1),
            [(i, l)] => (i, l.extent, place.coefficient(l.var)),
            _ => {
                return Err(format!(
                    "two loops of a TMA tile move along dimension {d} of `{}`",
                    self.source.name
                ));
            }
        };
        let shape = &self.source.shape;
        let end = self.conds.iter().filter_map(|c| tested_end(c, place)).min();
        let extent = end.map_or(shape[d], |e| e.min(shape[d]));
        let stride = shape[d + 1..].iter().product();
        let first = self.first(place);
        Ok((order, TmaDimension { extent, stride, taken, step, first }, end.is_some()))
    }

    /// Checks the limits of tensor maps.
    fn check_tensor_map(&self, dimensions: &[TmaDimension]) -> Result<(), String> {
        let fits = |d: &TmaDimension| {
            (1..=MOST_STEP).contains(&d.step) && d.spanned() <= MOST_SPANNED && d.extent > 0
        };
        let bytes = self.element_bytes();
        if !dimensions.iter().all(fits)
            || !dimensions.iter().skip(1).all(|d| d.stride * bytes % 16 == 0)
            || dimensions.len() > MOST_DIMENSIONS
            || !dimensions.first().is_some_and(|d| d.stride == 1 && d.step == 1)
        {
            return Err(format!(
                "`{}` cannot be described by a tensor map: too many dimensions, too large steps, \
                 or strides that are not whole vectors",
                self.source.name
            ));
        }
        Ok(())
    }
}

/// Where a dimension ends that is indexed by `at`, if that is what a condition tests.
fn tested_end(c: &Cond, at: &Affine) -> Option<i64> {
    let rest = c.index.add(&at.scale(-1));
    (rest.terms().is_empty() && c.low <= rest.offset()).then(|| c.high - rest.offset())
}

/// Whether a program copies TMA tiles.
pub fn copies_tma_tiles(stmts: &[Stmt]) -> bool {
    let mut found = false;
    super::visit(stmts, &mut |s| found |= matches!(s, Stmt::Loop(l) if l.mode == Mode::Tma));
    found
}
