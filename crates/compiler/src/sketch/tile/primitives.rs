//! The schedule of a configuration of multi-level tiling (`tile/mod.rs`): from the [`Shape`] of a
//! workload (a tensor expression) and a value for each knob (`knobs.rs`) to a list of schedule
//! primitives (`split`, `reorder`, `cache_write`, `pack`, ..), which `schedule::apply` runs on the
//! sketch's nest.
//!
//! The loop of axis `k` at level 2 is named `k2`; level 3 is the register tile.

use super::super::divisors;
use super::super::powers;
use super::super::short::{parallel, split, step, unroll, vectorize};
use super::parts::Parts;
use super::{Border, Shape, TileAxis, WIDE_COPY};
use crate::schedule::Primitive;
use squall_core::Configuration;

/// The schedule of a configuration.
pub(super) fn primitives(s: &Shape, c: &str, k: &Configuration) -> Vec<Primitive> {
    let b = Builder::new(s, k);
    let mut p = Vec::new();
    b.spatial_splits(&mut p);
    b.reduction(&mut p);
    b.unrolling(&mut p);
    b.accumulators(c, &mut p);
    if b.interleaves() {
        b.interleaved_epilogue(&mut p);
    } else {
        epilogue(s, &mut p, &b.tile, b.lanes());
    }
    if let Some(buffer) = s.zeros.clone().filter(|_| k.word("zeros") == Some("skip")) {
        p.push(Primitive::Skip { buffer });
    }
    b.packing(&mut p);
    b.copy_by_rows(&mut p);
    copy(s.border.as_ref(), b.copy_lanes(), &mut p);
    copy_is_parallel(s.threads, s.copy_outer.as_ref(), s.border.as_ref(), &s.outer, &mut p);
    b.prefetching(&mut p);
    b.parts(&mut p);
    if s.has_versions {
        p.push(Primitive::Version { at: b.home() });
    }
    b.threads(&mut p);
    p
}

/// The loop of an axis at a level.
fn at(a: &TileAxis, level: u8) -> String {
    format!("{}{level}", a.short)
}

/// A configuration, its schedule so far, and the names of the loops that splits make.
struct Builder<'a> {
    s: &'a Shape,
    k: &'a Configuration,
    /// Loops of the register tile: the lane axis's vectors last, then the lanes.
    tile: Vec<String>,
    /// Spatial loops around the register tile inside of the outer reduction (`middle`), and outside
    /// of all reductions in the configuration's order.
    middle: Vec<String>,
    outermost: Vec<String>,
    outside: Vec<String>,
    /// The inner reduction loops' axes, outermost first.
    inner: Vec<&'a TileAxis>,
}

impl<'a> Builder<'a> {
    fn new(s: &'a Shape, k: &'a Configuration) -> Builder<'a> {
        let others = s.tiled.iter().enumerate().filter(|(i, _)| *i != s.lane);
        let vectors = format!("{}6", s.tiled[s.lane].short);
        let tile = others.map(|(_, a)| at(a, 3)).chain([vectors, "v".into()]).collect();
        let order = s
            .orders
            .iter()
            .find(|o| Some(o.0.as_str()) == k.word("order"))
            .map_or_else(|| (0..s.tiled.len()).collect(), |o| o.1.clone());
        let level = |l: u8| order.iter().map(move |&i| at(&s.tiled[i], l));
        let mut inner: Vec<&TileAxis> = s.reduce.iter().collect();
        if k.word("reduce") == Some("first_inside") {
            inner.rotate_left(1);
        }
        Builder {
            s,
            k,
            tile,
            middle: s.tiled.iter().map(|a| at(a, 2)).collect(),
            outermost: level(0).collect(),
            outside: level(0).chain(level(1)).collect(),
            inner,
        }
    }

    fn get(&self, name: &str) -> i64 {
        self.k.int(name).unwrap_or(1)
    }

    fn lanes(&self) -> i64 {
        self.get("lanes")
    }

    /// Most lanes of the padded copy's vectors.
    fn copy_lanes(&self) -> i64 {
        let is_wide = self.k.word("hold") == Some("shared") && self.s.copies_neighbours();
        if is_wide { WIDE_COPY } else { self.s.copy_lanes }
    }

    fn factor(&self, a: &TileAxis, level: u8) -> i64 {
        self.get(&at(a, level))
    }

    /// How much of a reduction axis the inner loop takes.
    fn inner_extent(&self, a: &TileAxis) -> i64 {
        if self.s.whole { a.extent } else { self.factor(a, 1) }
    }

    fn spatial_splits(&self, p: &mut Vec<Primitive>) {
        for (i, a) in self.s.tiled.iter().enumerate() {
            let l = if i == self.s.lane { self.lanes() } else { 1 };
            let (f1, f2, f3) = (self.factor(a, 1), self.factor(a, 2), self.factor(a, 3) * l);
            p.push(split(&a.name, f1 * f2 * f3, at(a, 0), at(a, 4)));
            p.push(split(&at(a, 4), f2 * f3, at(a, 1), at(a, 5)));
            p.push(split(&at(a, 5), f3, at(a, 2), at(a, 3)));
            if i == self.s.lane {
                p.push(split(&at(a, 3), l, format!("{}6", a.short), "v"));
            }
        }
        let loops = self.outside.iter().chain(&self.middle).chain(&self.tile).cloned().collect();
        p.push(Primitive::Reorder { loops });
    }

    /// The register tile's loops around a multiplication. What the innermost one moves comes and
    /// goes, what the outer ones move is held: vectors inside hold them all for each element that
    /// is broadcast; elements inside hold those for each vector.
    fn tile_order(&self) -> Vec<String> {
        let (others, vectors) = self.tile.split_at(self.tile.len() - 2);
        match self.k.word("form") {
            Some("elements") => [&vectors[..1], others, &vectors[1..]].concat(),
            _ => self.tile.clone(),
        }
    }

    /// Splits the reduction and moves it into the loops that it stays inside of.
    fn reduction(&self, p: &mut Vec<Primitive>) {
        let middle: &[String] = if self.s.whole { &[] } else { &self.middle };
        for l in middle.iter().chain(&self.tile).rev() {
            let names = vec![format!("{l}i"), l.clone(), format!("{l}e")];
            p.push(Primitive::Fission { of: l.clone(), names });
        }
        for a in &self.s.reduce {
            p.push(split(&a.name, self.inner_extent(a), at(a, 0), at(a, 1)));
        }
        let mut loops: Vec<String> = self.s.reduce.iter().map(|a| at(a, 0)).collect();
        loops.extend(middle.iter().cloned());
        loops.extend(self.inner.iter().map(|a| at(a, 1)));
        loops.extend(self.tile_order());
        p.push(Primitive::Reorder { loops });
    }

    /// Unrolls from the innermost reduction loop outwards, and the register tile.
    fn unrolling(&self, p: &mut Vec<Primitive>) {
        let mut room = self.get("unroll");
        let held = self.k.word("hold") != Some("step");
        let written_out = |l: String| if held { unroll(l) } else { step(l) };
        for a in self.inner.iter().rev() {
            let (name, extent) = (at(a, 1), self.inner_extent(a));
            if room >= extent {
                p.push(written_out(name));
                room /= extent;
                continue;
            }
            if let Some(d) = divisors(extent).into_iter().rfind(|d| *d <= room && *d > 1) {
                let inner_name = format!("{}2u", a.short);
                p.push(split(&name, d, format!("{}1o", a.short), inner_name.clone()));
                p.push(written_out(inner_name));
            }
            break;
        }
        mark_tile(p, &self.tile, "");
    }

    /// The innermost loop around the whole of a tile's work.
    fn home(&self) -> String {
        let last_outer = if self.s.whole { &self.middle } else { &self.outside };
        last_outer.last().map_or("v", |l| l).to_string()
    }

    fn accumulators(&self, c: &str, p: &mut Vec<Primitive>) {
        let s = self.s;
        p.push(Primitive::Contract { buffer: c.into(), at: self.home() });
        if s.contiguous && s.whole {
            return mark_tile(p, &self.tile, "i");
        }
        if !s.contiguous {
            p.push(Primitive::Relayout { buffer: c.into(), order: s.layout.clone() });
        }
        if !s.whole {
            p.push(vectorize("vi"));
        } else {
            mark_tile(p, &self.tile, "i");
        }
        // The loop that holds the whole inner reduction.
        let first = self.inner.first().map(|a| at(a, 1)).unwrap_or_default();
        let split_first =
            p.iter().any(|x| matches!(x, Primitive::Split { of: l, .. } if *l == first));
        let root = if split_first { format!("{}1o", self.inner[0].short) } else { first };
        p.push(Primitive::CacheWrite { at: root, buffer: c.into(), local: "acc".into() });
        if s.whole {
            p.push(Primitive::Forward { buffer: c.into() });
        }
    }

    /// Whether the tile holds both phases of a strided gradient, which lie in turn in the rows that
    /// its lanes run along.
    fn interleaves(&self) -> bool {
        let last = &self.s.tiled[self.s.tiled.len() - 1];
        self.k.word("zeros") == Some("skip")
            && self.s.lane + 2 == self.s.tiled.len()
            && (last.extent, self.factor(last, 3)) == (2, 2)
    }

    /// Stores vectors of both phases together.
    fn interleaved_epilogue(&self, p: &mut Vec<Primitive>) {
        // The tile's loops end with the last axis, the lanes' axis's vectors and the lanes.
        let mut loops: Vec<String> = self.tile.iter().map(|l| format!("{l}e")).collect();
        let vectors = loops.len() - 2;
        loops.swap(vectors - 1, vectors);
        let phase = loops[vectors].clone();
        p.push(Primitive::Reorder { loops });
        p.push(unroll(phase));
        p.push(vectorize("ve"));
    }

    fn packing(&self, p: &mut Vec<Primitive>) {
        for (name, _) in &self.s.packable {
            let (buffer, packed) = (name.clone(), format!("{name}_packed"));
            match self.k.word(&format!("pack_{name}")) {
                Some("yes") => {
                    let at = self.s.outer.first().map_or(&self.outside[0], |a| &a.name).clone();
                    p.push(Primitive::Pack { buffer, at, packed });
                }
                // Inside the outermost tile loop, where all loops within read the same part again.
                Some("near") => {
                    let at = self.outside[0].clone();
                    p.push(Primitive::PackNear { buffer, at, packed });
                }
                _ => {}
            }
        }
    }

    /// Makes a padded copy for a tile of its rows.
    fn copy_by_rows(&self, p: &mut Vec<Primitive>) {
        if let Some((buffer, rows)) = &self.s.rows_of_copy
            && self.k.word("copy_at") == Some("tile")
        {
            let at = at(&self.s.tiled[*rows], 0);
            p.push(Primitive::ComputeAt { buffer: buffer.clone(), at });
        }
    }

    fn prefetching(&self, p: &mut Vec<Primitive>) {
        let lines = self.get("prefetch");
        let Some(name) = self.s.stream.as_ref().filter(|_| lines > 1) else { return };
        match self.k.word(&format!("pack_{name}")) {
            Some("yes") => {
                p.push(Primitive::Prefetch { buffer: format!("{name}_packed"), lines });
            }
            // A copy next to its use is in a near cache.
            Some("near") => {}
            _ => p.push(Primitive::Prefetch { buffer: name.clone(), lines }),
        }
    }

    /// Cuts the reduction's loop where the parts of an operand meet. Steps with elements of two
    /// parts are loops of their own.
    fn parts(&self, p: &mut Vec<Primitive>) {
        let Some(Parts { axis, cuts }) = &self.s.parts else { return };
        let a = &self.s.reduce[*axis];
        let whole = at(a, 1);
        let is_written_out =
            |x: &Primitive| matches!(x, Primitive::Mark { of, .. } if *of == whole);
        if p.iter().any(is_written_out) {
            return;
        }
        let split = p.iter().find_map(|x| match x {
            Primitive::Split { of, factor, outer, .. } if *of == whole => Some((outer, *factor)),
            _ => None,
        });
        let (mut of, step) = match split {
            Some((outer, factor)) => (outer.clone(), factor),
            None => (whole, 1),
        };
        let mut ends: Vec<i64> =
            cuts.iter().flat_map(|c| [c / step, (c + step - 1) / step]).collect();
        ends.retain(|end| (1..a.extent / step).contains(end));
        ends.dedup();
        let mut from = 0;
        for (i, end) in ends.into_iter().enumerate() {
            let rest = format!("{}_part{}", a.short, i + 1);
            p.push(Primitive::Peel { of, at: end - from, rest: rest.clone() });
            (of, from) = (rest, end);
        }
    }

    fn threads(&self, p: &mut Vec<Primitive>) {
        if self.s.threads > 1 {
            let outer = self.s.outer.iter().map(|a| &a.name);
            let all = outer.chain(&self.outermost).take(self.get("parallel") as usize);
            p.extend(all.map(|l| parallel(l.clone())));
        }
    }
}

/// Unrolls and vectorises a copy of the register tile's loops.
fn mark_tile(p: &mut Vec<Primitive>, tile: &[String], suffix: &str) {
    for l in &tile[..tile.len() - 1] {
        p.push(unroll(format!("{l}{suffix}")));
    }
    p.push(vectorize(format!("v{suffix}")));
}

/// Stores the tile: in place where the lanes are contiguous in the output, else transposed in
/// blocks of four by four.
fn epilogue(s: &Shape, p: &mut Vec<Primitive>, tile: &[String], lanes: i64) {
    let last = &s.tiled[s.tiled.len() - 1];
    if s.contiguous {
        return mark_tile(p, tile, "e");
    }
    let row = format!("{}3e", last.short);
    let extent = p.iter().find_map(|x| match x {
        Primitive::Split { of: l, factor: f, inner: i, .. }
            if *i == format!("{}3", last.short) && *l == format!("{}5", last.short) =>
        {
            Some(*f)
        }
        _ => None,
    });
    let vectors = format!("{}6e", s.tiled[s.lane].short);
    if extent.is_none_or(|e| e < 4) || lanes < 4 {
        return p.push(vectorize("ve"));
    }
    p.push(split(&row, 4, "row_o", "row_v"));
    p.push(split("ve", 4, "lane_o", "lane_u"));
    let keep: Vec<String> =
        tile[..tile.len() - 2].iter().map(|l| format!("{l}e")).filter(|l| *l != row).collect();
    let all = keep.into_iter().chain([
        vectors,
        "lane_o".into(),
        "row_o".into(),
        "lane_u".into(),
        "row_v".into(),
    ]);
    p.push(Primitive::Reorder { loops: all.collect() });
    p.push(unroll("lane_u"));
    p.push(vectorize("row_v"));
}

/// Peels and vectorises the padded copy, by vectors of `most` lanes at most.
pub(super) fn copy(border: Option<&Border>, most: i64, p: &mut Vec<Primitive>) {
    let Some(Border { name, is_innermost, low, high, extent, .. }) = border else { return };
    let mut inside = name.clone();
    if *low > 0 && low < extent {
        p.push(Primitive::Peel { of: name.clone(), at: *low, rest: "pad_in".into() });
        inside = "pad_in".into();
    }
    if high < extent && high > low {
        p.push(Primitive::Peel { of: inside.clone(), at: high - low, rest: "pad_end".into() });
    }
    let width = if *is_innermost { high - low } else { 1 };
    let lanes = powers(1, most).take_while(|l| *l <= width).last().unwrap_or(1);
    if lanes > 1 {
        p.push(split(&inside, lanes, "pad_o", "pad_v"));
        p.push(vectorize("pad_v"));
    }
}

/// Shares the outermost loop of a padded copy among threads, unless it is one of the `outer` axes.
pub(super) fn copy_is_parallel(
    threads: usize,
    top: Option<&String>,
    border: Option<&Border>,
    outer: &[TileAxis],
    p: &mut Vec<Primitive>,
) {
    if let (Some(top), Some(border)) = (top, border)
        && threads > 1
        && outer.iter().all(|a| a.name != *top)
        && *top != border.name
    {
        p.push(parallel(top.clone()));
    }
}
