//! Spans: which elements of each dimension of a source tensor the tile of an operand takes. For an
//! index such as `2*p + r`, where the tile has 8 of `p` and 3 of `r`, the tile takes the 17
//! elements from `2 * p_start` on.
//!
//! Input: an operand's index and the tile's part of each loop; output: one [`Span`] a dimension,
//! from which `contract` and `tensor` write the loops that fetch the tile into shared memory.

use super::problem::Contraction;
use crate::gcd;
use squall_core::expr::Affine;

/// One dimension of an operand's tile: the source is read at `base + step * f` for `f` below
/// `extent`, and `inner` is the `f` of the element that a step of the sum needs.
pub(super) struct Span {
    pub base: Affine,
    pub step: i64,
    pub extent: i64,
    pub inner: Affine,
    /// Whether threads side by side lie along it.
    pub spatial: bool,
    /// Elements that a thread fetches at once, as one vector.
    pub lanes: i64,
}

/// A loop that an index depends on.
pub(super) enum SpannedLoop {
    /// An axis of the output, by its number.
    Axis(usize),
    /// The reduction that is cut into chunks.
    Chunk,
    /// Another reduction axis, by its number among them.
    Window(usize),
}

impl Span {
    /// A dimension of which `extent` elements from `base` on are read.
    pub fn new(base: Affine, extent: i64, inner: Affine) -> Span {
        Span { base, step: 1, extent, inner, spatial: false, lanes: 1 }
    }

    /// The span of a dimension that is read at `index`. For each loop `part` gives the start of its
    /// tile, the element of the tile that is meant, and the tile's extent.
    pub fn of(
        p: &Contraction,
        index: &Affine,
        part: &dyn Fn(SpannedLoop) -> (Affine, Affine, i64),
    ) -> Span {
        let mut s =
            Span { step: 0, ..Span::new(Affine::constant(index.offset()), 1, Affine::constant(0)) };
        let mut width = 0;
        for &(v, c) in index.terms() {
            let axis = p.axes.iter().position(|x| x.var == v);
            let (base, inner, extent) = match (axis, p.reduce.iter().position(|x| x.var == v)) {
                (Some(k), _) => part(SpannedLoop::Axis(k)),
                (None, Some(0)) => part(SpannedLoop::Chunk),
                (None, Some(k)) => part(SpannedLoop::Window(k - 1)),
                (None, None) => continue,
            };
            s.spatial |= axis.is_some();
            s.base = s.base.add(&base.scale(c));
            if extent > 1 {
                s.inner = s.inner.add(&inner.scale(c));
                s.step = gcd(s.step, c);
                width += c * (extent - 1);
            }
        }
        s.step = s.step.max(1);
        s.extent = width / s.step + 1;
        s.inner = Affine::new(
            s.inner.terms().iter().map(|t| (t.0, t.1 / s.step)),
            s.inner.offset() / s.step,
        );
        s
    }

    /// Fetches `width` elements at once, from an aligned one on.
    pub fn align(&mut self, width: i64) {
        let shift = self.base.offset().rem_euclid(width);
        self.base = self.base.plus(-shift);
        self.inner = self.inner.plus(shift);
        self.extent = (self.extent + shift + width - 1) / width * width;
        self.lanes = width;
    }
}
