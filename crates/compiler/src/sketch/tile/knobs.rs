//! The space of the tiling sketch for CPUs: its knobs, and the constraints that make their values
//! legal or sensible. Input: the [`Shape`] of a workload (a tensor expression) and a target;
//! output: a draft of a space, which `tile/mod.rs` opens. `primitives.rs` turns a configuration (a
//! value for each knob) of it into a schedule.
//!
//! For an axis `k` the knobs are `k3` (its part of the register tile) and `k2`, `k1` (tiles around
//! it); further knobs are `lanes`, the cut of the reduction, the loop order, packing, prefetching
//! and threads. Example: `k3=2,lanes=16`.

use super::super::{Draft, divisors, overlap_at_most, powers, prefetch_knob};
use super::{FEW_REGISTERS, Packing, Shape, TileAxis, WIDE_COPY};
use squall_core::Target;
use squall_core::space::{Knob, Role, Term};

/// The most tiles of one level in a tile of the next.
const MOST_TILES: i64 = 64;

/// The knobs and constraints of a shape, on a target whose vectors have `native` lanes. With
/// `any_tile`, tiles may be small or overlap by much.
pub(super) fn draft(s: &Shape, t: &Target, native: i64, any_tile: bool) -> Draft {
    let mut d = Draft::default();
    // Half vectors are offered only where whole ones do not fit the extent, narrower ones only
    // where it is short.
    let widths = widths(s.tiled[s.lane].extent, native);
    d.knobs.push(Knob::ints("lanes", Role::Vector, widths.clone()));
    register_tile(&mut d, s, t, native);
    for (i, a) in s.tiled.iter().enumerate() {
        let widths = if i == s.lane { &widths[..] } else { &[] };
        outer_levels(&mut d, s, a, widths);
        if !any_tile {
            d.must.push(overlap(s, a, widths));
        }
    }
    if any_tile {
        d.should.clear();
    }
    if !s.whole {
        cut_reduction(&mut d, s, t);
    }
    ways(&mut d, s, t);
    d
}

/// The name and the role of the knob of an axis at a level.
fn tile(a: &TileAxis, level: u8) -> (String, Role) {
    (format!("{}{level}", a.short), Role::Tile { axis: a.short.clone(), level })
}

/// The number of vectors of sums in the register tile.
fn accumulators(s: &Shape) -> Term {
    Term::product(s.tiled.iter().map(|a| Term::knob(format!("{}3", a.short))))
}

/// The register tile comes first, because its knobs depend most on one another.
fn register_tile(d: &mut Draft, s: &Shape, t: &Target, native: i64) {
    let registers = t.vector_registers() as i64;
    let narrow = native.min(4);
    for (i, a) in s.tiled.iter().enumerate() {
        let (name, role) = tile(a, 3);
        let most = if i == s.lane { 8.min(a.extent / narrow) } else { 16.min(a.extent) };
        d.knobs.push(Knob::ints(name, role, 1..=most.max(1)));
    }
    d.must.push(accumulators(s).at_most(registers - 2));
    let most: i64 = s
        .tiled
        .iter()
        .enumerate()
        .map(|(i, a)| if i == s.lane { (a.extent / native).max(1) } else { a.extent })
        .product();
    d.should.push(Term::Const(most.min(registers / 4)).at_most(accumulators(s)));
}

/// Adds the knobs of an axis around the register tile; `widths` are the lanes' possible widths on
/// the axis that has the lanes.
fn outer_levels(d: &mut Draft, s: &Shape, a: &TileAxis, widths: &[i64]) {
    for &level in s.levels() {
        let (name, role) = tile(a, level);
        let most = if s.by_rows && !widths.is_empty() { 4 * MOST_TILES } else { MOST_TILES };
        let values = divisors(a.extent).into_iter().chain(powers(1, a.extent));
        let values = values.filter(|&d| d <= most);
        d.knobs.push(Knob::ints(name, role, values));
    }
    d.must.push(whole(s, a, widths).at_most(a.extent));
}

/// The elements of an axis in a tile of the outermost level.
fn whole(s: &Shape, a: &TileAxis, widths: &[i64]) -> Term {
    let lanes = (!widths.is_empty()).then(|| Term::knob("lanes"));
    let levels = s.levels().iter().copied().chain([3]);
    let knobs = levels.map(|l| Term::knob(format!("{}{l}", a.short)));
    Term::product(lanes.into_iter().chain(knobs))
}

/// Tiles that overlap are computed twice: at most a seventh more work (7 rows by 4), or one
/// lane's.
fn overlap(s: &Shape, a: &TileAxis, widths: &[i64]) -> Term {
    let whole = || whole(s, a, widths);
    let waste = overlap_at_most(a.extent, whole, 7);
    match widths.iter().map(|l| (a.extent + l - 1) / l * l).min() {
        Some(fewest) => {
            let total = Term::product([Term::Const(a.extent).ceil_div(whole()), whole()]);
            waste.or(total.at_most(fewest.max(a.extent + a.extent / 7)))
        }
        None => waste,
    }
}

/// The reduction's inner part, and what of the operands it takes fits a cache.
fn cut_reduction(d: &mut Draft, s: &Shape, t: &Target) {
    let reduction: i64 = s.reduce.iter().map(|a| a.extent).product();
    for a in &s.reduce {
        let (name, role) = tile(a, 1);
        let rows = |d: &i64| s.by_rows && (4..=32).contains(d);
        let values = divisors(a.extent).into_iter();
        let values = values.filter(|d| *d == a.extent || d * 64 >= a.extent || rows(d));
        d.knobs.push(Knob::ints(name, role, values));
    }
    let inner = || Term::product(s.reduce.iter().map(|a| Term::knob(format!("{}1", a.short))));
    let partial = s.tiled.iter().enumerate().flat_map(|(i, a)| {
        let lanes = (i == s.lane).then(|| Term::knob("lanes"));
        let levels = [2, 3].map(|level| Term::knob(format!("{}{level}", a.short)));
        lanes.into_iter().chain(levels)
    });
    let room = (t.cache(2) / 16).clamp(4096, 65536) as i64;
    d.must.push(inner().at_most(reduction - 1));
    d.must.push(Term::product(partial).at_most(room));
    let least = if s.by_rows { 4 } else { 32 };
    d.should.push(Term::Const(reduction.min(least)).at_most(inner()));
}

/// Unrolling, orders of loops, packing, prefetching, and loops in parallel.
fn ways(d: &mut Draft, s: &Shape, t: &Target) {
    let reduction: i64 = s.reduce.iter().map(|a| a.extent).product();
    let depths = [1, 2, 3, 4, 7, 8, 9, 16].into_iter().filter(|&u| u <= reduction);
    d.knobs.push(Knob::ints("unroll", Role::Unroll, depths));
    // Beyond this size, compilers take longer over a body than the kernel gains.
    d.must.push(Term::product([accumulators(s), Term::knob("unroll")]).at_most(128));
    let names: Vec<&str> = s.orders.iter().map(|o| o.0.as_str()).collect();
    d.knobs.push(Knob::words("order", Role::Order, &names));
    if s.reduce.len() > 1 {
        d.knobs.push(Knob::words("reduce", Role::Order, &["first_outside", "first_inside"]));
    }
    for (name, kind) in &s.packable {
        let values: &[&str] = match kind {
            Packing::Forced => &["yes"],
            Packing::Weight => &["no", "yes"],
            Packing::Data => &["no", "near", "yes"],
            Packing::Far => &["near", "yes"],
        };
        let knob = Knob::words(format!("pack_{name}"), Role::Layout, values);
        // A winner of a task with data in this place says nothing of a weight, whose copy ahead of
        // the call costs nothing.
        let is_weight = matches!(kind, Packing::Forced | Packing::Weight);
        d.knobs.push(if is_weight { knob.where_absent("yes") } else { knob });
    }
    if s.stream.is_some() {
        d.knobs.push(prefetch_knob());
    }
    if s.threads > 1 {
        let loops = (s.outer.len() + s.tiled.len()).min(3) as i64;
        d.knobs.push(Knob::ints("parallel", Role::Parallel, 1..=loops));
    }
    // Texts without this knob multiply.
    if s.zeros.is_some() {
        let knob = Knob::words("zeros", Role::Choice, &["skip", "multiply"]);
        d.knobs.push(knob.where_absent("multiply"));
    }
    // Texts without this knob copy ahead of all tiles.
    if let Some((_, rows)) = s.rows_of_copy {
        let knob = Knob::words("copy_at", Role::Order, &["outside", "tile"]);
        let knob = knob.where_absent("outside");
        // With a single tile both values are the same.
        let a = &s.tiled[rows];
        let tile = s.levels().iter().chain(&[3]).map(|l| Term::knob(format!("{}{l}", a.short)));
        let lanes = (rows == s.lane).then(|| Term::knob("lanes"));
        let two_tiles = Term::product(tile.chain(lanes).chain([Term::Const(2)]));
        d.must.push(knob.is("outside").or(two_tiles.at_most(a.extent)));
        d.knobs.push(knob);
    }
    // With few registers, what one step shares with the next takes the place of sums. Texts without
    // this knob share it, and make padded copies by vectors of 16 whatever the machine's are.
    if t.vector_registers() * t.vector_bytes() <= FEW_REGISTERS {
        let narrow = s.copies_neighbours() && s.copy_lanes < WIDE_COPY;
        let words: &[&str] = if narrow { &["shared", "own", "step"] } else { &["shared", "step"] };
        let hold = Knob::words("hold", Role::Choice, words).where_absent("shared");
        let steps = || Term::Const(2).at_most(Term::knob("unroll"));
        d.must.push(hold.is("shared").or(hold.is("own")).or(steps()));
        d.knobs.push(hold);
        form(d, s);
    }
}

/// Which operand of the register tile is held while the other comes and goes.
fn form(d: &mut Draft, s: &Shape) {
    if s.tiled.len() < 2 {
        return;
    }
    let knob = Knob::words("form", Role::Choice, &["vectors", "elements"]).where_absent("vectors");
    // With one vector, or with one element, there is no choice.
    let vectors = || Term::knob(format!("{}3", s.tiled[s.lane].short));
    let several = Term::product([vectors(), Term::Const(2)]).at_most(accumulators(s));
    let is_several = Term::Const(2).at_most(vectors());
    d.must.push(knob.is("vectors").or(several));
    d.must.push(knob.is("vectors").or(is_several));
    d.knobs.push(knob);
}

/// Vector widths worth trying for an extent.
fn widths(extent: i64, native: i64) -> Vec<i64> {
    let fitting = |l: &i64| *l <= extent;
    let list: Vec<i64> = powers(native.min(4), native).filter(fitting).collect();
    let keep = if extent % native == 0 { 1 } else { 2 };
    list[list.len().saturating_sub(keep)..].to_vec()
}

/// Orders of the outer tile loops: all for up to three axes, rotations beyond.
pub(super) fn orders(tiled: &[TileAxis]) -> Vec<(String, Vec<usize>)> {
    let n = tiled.len();
    let mut list: Vec<Vec<usize>> = Vec::new();
    let mut heap = |p: Vec<usize>| list.push(p);
    match n {
        0 | 1 => heap((0..n).collect()),
        2 => [vec![0, 1], vec![1, 0]].into_iter().for_each(&mut heap),
        3 => [
            vec![0, 1, 2],
            vec![0, 2, 1],
            vec![1, 0, 2],
            vec![1, 2, 0],
            vec![2, 0, 1],
            vec![2, 1, 0],
        ]
        .into_iter()
        .for_each(&mut heap),
        _ => (0..n).for_each(|r| heap((0..n).map(|i| (i + r) % n).collect())),
    }
    list.into_iter()
        .map(|p| (p.iter().map(|&i| tiled[i].short.as_str()).collect::<Vec<_>>().join("_"), p))
        .collect()
}
