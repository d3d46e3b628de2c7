//! The layout of tiles in shared memory for tensor cores: which dimensions of a factor follow each
//! other in which order, and how much padding keeps simultaneous reads out of the same banks.
//! Input: a factor and its spans; output: a [`SharedTile`], whose `index` maps an element of the
//! factor to the shared buffer.
//!
//! Tiles that the copy engine brings (TMA tiles) lie in swizzled rows of 128 bytes: 64 elements of
//! the reduction for each row of the tile; or, where a factor's last axis stays last, 64 rows of
//! the tile for each element of the reduction.

use super::super::problem::Contraction;
use super::super::span::Span;
use super::roles::{Factor, SIDE, SWIZZLED_ROW, TileLayout};
use super::tile::Tiling;
use crate::nest::Scope;
use squall_core::expr::{Affine, Source, Var};

/// A factor's tile in shared memory.
pub struct SharedTile {
    pub buffer: Source,
    /// The buffer in device memory that it is fetched from.
    pub from: Source,
    /// The dimension of the source that the reduction runs along.
    pub along: usize,
    /// Dimensions of the source in the tile's order.
    pub order: Vec<usize>,
    /// Extents of the tile, in its order, padding included.
    extents: Vec<i64>,
}

impl SharedTile {
    /// The element at `at` along each dimension of the source.
    pub fn index(&self, stage: &Affine, planes: bool, at: impl Fn(usize) -> Affine) -> Vec<Affine> {
        let mut index = vec![stage.clone()];
        if planes {
            index.push(at(self.order[0]));
            let rest = self.order.iter().zip(&self.extents).skip(1);
            index.push(rest.fold(Affine::constant(0), |sum, (&d, &e)| sum.scale(e).add(&at(d))));
        } else {
            index.extend(self.order.iter().map(|&d| at(d)));
        }
        index
    }
}

/// The most of the 32-bit numbers at these places that share one of the memory's banks.
pub fn most_in_a_bank(places: impl Iterator<Item = i64>) -> i64 {
    const BANKS: i64 = 32;
    let mut banks = [0; BANKS as usize];
    places.for_each(|at| banks[(at % BANKS) as usize] += 1);
    banks.into_iter().max().unwrap_or(0)
}

/// The dimension of a factor's tile that the window's first loop moves along, if the factor is a
/// weight packed in tiles.
pub fn pieces(p: &Contraction, f: &Factor) -> Option<usize> {
    let used = |v: Var| p.operands[f.operand].index.iter().any(|i| i.uses(v));
    let first = p.reduce.get(1)?;
    // Tiles, steps, then the window.
    let dimension = p.axes.iter().filter(|a| used(a.var)).count() + 1;
    (f.layout == TileLayout::Packed && used(first.var) && first.extent > 1).then_some(dimension)
}

impl Tiling<'_> {
    /// The shared buffer of a factor's tile.
    pub fn shared_tile(&mut self, f: &Factor, from: Source, spans: &[Span]) -> SharedTile {
        let along = if f.layout == TileLayout::Packed { spans.len() - 1 } else { f.along };
        if self.tma {
            return SharedTile {
                buffer: self.swizzled_rows(f, from),
                from,
                along,
                order: Vec::new(),
                extents: Vec::new(),
            };
        }
        if f.layout.gathered() {
            let planes = f.layout == TileLayout::Planes;
            let mut order: Vec<usize> = (0..spans.len())
                .filter(|&d| spans[d].extent > 1 && !(planes && d == along))
                .collect();
            if planes {
                order.insert(0, along);
            }
            let mut extents: Vec<i64> = order.iter().map(|&d| spans[d].extent).collect();
            let plane: i64 = extents[1..].iter().product();
            let plane = if planes && self.pad > 0 {
                self.pitches(f, &order, &mut extents, spans)
            } else {
                (plane + 3) / 4 * 4
            };
            let name = format!("{}_s", self.n.buffer(from).name);
            let dtype = self.n.buffer(from).dtype;
            let buffer =
                self.buffer(&name, vec![self.stages, extents[0], plane], Scope::Shared, dtype);
            return SharedTile { buffer, from, along, order, extents };
        }
        let last = if f.layout == TileLayout::MnMajor { spans.len() - 1 } else { along };
        let mut order: Vec<usize> =
            (0..spans.len()).filter(|&d| d != along && d != last && spans[d].extent > 1).collect();
        if last != along {
            order.push(along);
        }
        order.push(last);
        let mut shape: Vec<i64> =
            [self.stages].into_iter().chain(order.iter().map(|&d| spans[d].extent)).collect();
        if let Some(last) = shape.last_mut() {
            *last += self.pad;
        }
        // Elements that pass through registers on their way are rounded there; others are rounded
        // when matrices are loaded.
        let rounded =
            matches!(f.layout, TileLayout::Packed | TileLayout::Transposed) && !self.split;
        let dtype = if rounded { self.format } else { self.n.buffer(from).dtype };
        let name = format!("{}_s", self.n.buffer(from).name);
        let extents = order.iter().map(|&d| spans[d].extent).collect();
        SharedTile {
            buffer: self.buffer(&name, shape, Scope::Shared, dtype),
            from,
            along,
            order,
            extents,
        }
    }

    /// Distances of planes, and of lines in them. Four planes are read at once, eight elements of
    /// each: they shall not meet in banks. Both are whole vectors.
    fn pitches(&self, f: &Factor, order: &[usize], extents: &mut [i64], spans: &[Span]) -> i64 {
        let (p, o) = (self.p, &self.operands[f.operand]);
        let run = |a: usize| if f.axes.last() == Some(&a) { self.run.iter().product() } else { 1 };
        // Where the rows of the first matrix begin.
        let rows = |extents: &[i64]| -> Vec<i64> {
            let far = |n: usize| extents[n + 1..].iter().product::<i64>();
            let step = |a: usize| -> i64 {
                let each = |n: usize| {
                    o.index[order[n]].coefficient(p.axes[a].var) / spans[order[n]].step * far(n)
                };
                (1..order.len()).map(each).sum()
            };
            let place = |mut count: i64| {
                let mut at = 0;
                for &a in f.axes.iter().rev() {
                    at += count % (self.size[a] / run(a)) * run(a) * step(a);
                    count /= self.size[a] / run(a);
                }
                at
            };
            (0..SIDE).map(place).collect()
        };
        let meet = |rows: &[i64], plane: i64| {
            most_in_a_bank(rows.iter().flat_map(|row| (0..4).map(move |k| row + k * plane)))
        };
        let mut best: Option<((i64, i64), Vec<i64>)> = None;
        for line in (0..8).filter(|&l| l == 0 || extents.len() > 2) {
            let mut wide = extents.to_vec();
            if let Some(last) = wide.last_mut().filter(|_| line > 0) {
                *last = (*last + 3) / 4 * 4 + 4 * (line - 1);
            }
            let (rows, least) = (rows(&wide), (wide[1..].iter().product::<i64>() + 3) / 4 * 4);
            for plane in (0..8).map(|i| least + 4 * i) {
                let cost = (rows.chunks(8).map(|half| meet(half, plane)).sum(), plane);
                if best.as_ref().is_none_or(|b| cost < b.0) {
                    best = Some((cost, wide.clone()));
                }
            }
        }
        let Some(((_, plane), wide)) = best else { return 0 };
        extents.copy_from_slice(&wide);
        plane
    }

    /// The swizzled rows of a factor's tiles.
    fn swizzled_rows(&mut self, f: &Factor, from: Source) -> Source {
        let lines = self.lines(f);
        let shape = match f.layout {
            TileLayout::MnMajor => [self.stages, lines / SWIZZLED_ROW, self.whole(), SWIZZLED_ROW],
            _ => [self.stages, self.whole() / SWIZZLED_ROW, (lines + 7) / 8 * 8, SWIZZLED_ROW],
        };
        let name = format!("{}_s", self.n.buffer(from).name);
        self.buffer(&name, shape.to_vec(), Scope::Swizzled, self.format)
    }

    /// The number of blocks of 64 along the last axis that lie before an element of the other axes,
    /// in the order of all rows.
    pub fn lead(&self, f: &Factor, at: &[Affine]) -> Affine {
        let lead = self.place(f, at);
        let terms = lead.terms().iter().map(|t| (t.0, t.1 / SWIZZLED_ROW));
        Affine::new(terms, lead.offset() / SWIZZLED_ROW)
    }

    /// Where a slice's matrices lie in swizzled rows: the digits that count its rows, and the place
    /// of a column and a row.
    pub fn swizzled(
        &mut self,
        f: &Factor,
        stage: &Affine,
        slice: i64,
        column: Var,
    ) -> (Vec<(Var, i64)>, Vec<Affine>) {
        let lines = self.lines(f);
        let from = slice * self.depth;
        if f.layout == TileLayout::MnMajor {
            let [block, place] = ["block", "place"].map(|x| self.n.new_var(x));
            let main = Affine::new([(self.group, self.chunk), (column, 1)], from);
            return (
                vec![(block, lines / SWIZZLED_ROW), (place, SWIZZLED_ROW)],
                vec![stage.clone(), Affine::var(block), main, Affine::var(place)],
            );
        }
        let line = self.n.new_var("line");
        // The chunk of each group of warps is whole rows, or the chunks of all groups make up one
        // row.
        let rows = self.chunk % SWIZZLED_ROW == 0;
        let (far, near) = if rows { (self.chunk / SWIZZLED_ROW, 0) } else { (0, self.chunk) };
        let block = Affine::new([(self.group, far)], from / SWIZZLED_ROW);
        let place = Affine::new([(self.group, near), (column, 1)], from % SWIZZLED_ROW);
        (vec![(line, lines)], vec![stage.clone(), block, Affine::var(line), place])
    }
}
