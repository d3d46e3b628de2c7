//! The rule for AMX, the matrix unit of Xeons: sums of products of bytes or of pairs of bf16
//! (`pairs.rs`) whose register tile consists of AMX tiles, registers of up to 16 rows by 16 columns
//! of sums.
//!
//! The rows of a tile lie along an axis that only the data has, its columns along an axis that only
//! the weight has, and a row of the left factor along the reduction, where the data must lie side
//! by side: images with their channels last and the rows of matrix products do. Weights are packed
//! tile after tile before the call. The reduction is done in one piece; the sums of a register tile
//! go through the stack, from where vector code reads them for the epilogue. The loops that become
//! AMX instructions have the mode `amx` (`nest/amx.rs`); the names of the sketches begin with
//! `amx@`.

use super::super::pairs::is_by_pairs;
use super::super::short::{parallel, split, unroll, vectorize};
use super::super::{Draft, Facts, Sketch, divisors, powers};
use super::knobs::orders;
use super::primitives::{copy, copy_is_parallel};
use super::{Border, Main, Pad, TileAxis, copy_loops, main_loops, operands, pad_name};
use crate::nest::{Mode, Nest, Scope};
use crate::schedule::Primitive;
use squall_core::expr::{Binary, Expr};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Configuration, Target, TileUnit};
use std::sync::Arc;

/// The start of the names of AMX sketches.
pub(in crate::sketch) const AMX: &str = "amx@";

/// The fewest rows, and elements of a row of the left factor, for which an AMX tile is worth it.
const FEWEST: i64 = 4;

/// The facts of a workload that the schedule is built from.
struct Shape {
    outer: Vec<TileAxis>,
    tiled: Vec<TileAxis>,
    /// Which of `tiled` are the axis of a tile's rows and the axis of its columns.
    rows: usize,
    columns: usize,
    /// The reduction's axes; the last is cut into rows of left factors.
    reduce: Vec<TileAxis>,
    /// Elements of a row of a left factor.
    depth: i64,
    weight: String,
    orders: Vec<(String, Vec<usize>)>,
    threads: usize,
    border: Option<Border>,
    copy_outer: Option<String>,
    copy_lanes: i64,
}

/// The sketch of a nest on a machine that multiplies tiles, where its main stage is such a sum.
pub(super) fn derive(
    f: &Facts<'_>,
    c: &str,
    base: &Nest,
    prefix: &[Primitive],
    pad: Pad,
) -> Option<Sketch> {
    let unit = f.target.machine.tiles?;
    let shape = shape(f.target, unit, c, base, pad)?;
    let pairs = if is_by_pairs(f.workload) { ",pairs" } else { "" };
    let name = format!("{AMX}{}{}{pairs}", shape.tiled[shape.columns].short, pad_name(pad));
    if !(f.wanted)(&name) {
        return None;
    }
    let space = draft(&shape, unit).open()?;
    let c = c.to_string();
    let shape = Arc::new(shape);
    let primitives = move |k: &Configuration| Builder { s: &shape, k, unit }.primitives(&c);
    Some(Sketch {
        name,
        target: f.target.clone(),
        space,
        base: base.clone(),
        prefix: prefix.to_vec(),
        primitives: Box::new(primitives),
        full_optimisation: false,
        template: None,
        both: None,
    })
}

fn shape(t: &Target, unit: TileUnit, c: &str, base: &Nest, pad: Pad) -> Option<Shape> {
    let (spatial, mut reduce) = main_loops(base, c)?;
    let operands = operands(base, c);
    let [left, right] = &operands[..] else { return None };
    let weight = base.buffer(right.0);
    if !multiplies_packed(base, c) || weight.scope != Scope::Prepared || pad == Pad::Guard {
        return None;
    }
    let (data, weight) = (left.clone(), weight.name.clone());
    let of_weight = right.clone();
    let main = Main { base, c, operands, spatial };
    let of_data = |a: &TileAxis| main.stride(data.0, &data.1, a);
    let moves_weight = |a: &TileAxis| main.stride(of_weight.0, &of_weight.1, a) != 0;
    let columns = main.spatial.len().checked_sub(1)?;
    let last = &main.spatial[columns];
    if of_data(last) != 0 || !moves_weight(last) || last.extent < unit.rows {
        return None;
    }
    let cut = main.outside(columns, pad)?.max(main.spatial.len().saturating_sub(super::MOST_TILED));
    let is_row = |i: &usize| {
        let a = &main.spatial[*i];
        of_data(a) > 0 && !moves_weight(a) && a.extent >= FEWEST
    };
    let rows = (cut..columns).filter(is_row).max_by_key(|&i| main.spatial[i].extent)?;
    // Rows of the left factor lie side by side in memory.
    let along = reduce.iter().position(|a| of_data(a) == 1)?;
    let deepest = reduce.remove(along);
    let depth = divisors(deepest.extent).into_iter().rfind(|d| *d <= unit.rows)?;
    reduce.push(deepest);
    if depth < FEWEST {
        return None;
    }
    let (border, copy_outer) = copy_loops(base, pad);
    let tiled = main.spatial[cut..].to_vec();
    Some(Shape {
        outer: main.spatial[..cut].to_vec(),
        rows: rows - cut,
        columns: columns - cut,
        orders: orders(&tiled),
        tiled,
        reduce,
        depth,
        weight,
        threads: t.threads,
        border,
        copy_outer,
        copy_lanes: t.lanes_f32(),
    })
}

/// Whether the main stage sums products of four bytes, or of pairs, that are read as they lie.
fn multiplies_packed(n: &Nest, c: &str) -> bool {
    let target = n.find_buffer(c);
    let mut found = false;
    crate::nest::visit(&n.body, &mut |s| {
        if let crate::nest::Stmt::Update { buffer, value, .. } = s
            && Some(*buffer) == target
        {
            let is_load = |e: &Expr| matches!(e, Expr::Load { .. });
            found = matches!(value, Expr::Binary(Binary::Dot | Binary::DotPair, a, b)
                if is_load(a) && is_load(b));
        }
    });
    found
}

/// Row counts of tiles that are worth trying for an extent.
fn row_counts(extent: i64, most: i64) -> Vec<i64> {
    let fewest = (extent + most - 1) / most;
    let even = [fewest, fewest + 1].map(|tiles| (extent + tiles - 1) / tiles);
    let mut list: Vec<i64> = divisors(extent).into_iter().chain(even).chain([most]).collect();
    list.retain(|r| (FEWEST..=most.min(extent)).contains(r));
    list.sort_unstable();
    list.dedup();
    // Rows are what a product's time grows with, but the right factor is loaded for each anew.
    list.split_off(list.len().saturating_sub(4))
}

fn draft(s: &Shape, unit: TileUnit) -> Draft {
    let mut d = Draft::default();
    let counts = row_counts(s.tiled[s.rows].extent, unit.rows);
    d.knobs.push(Knob::ints(ROWS, Role::Vector, counts));
    let sums = || Term::product(s.tiled.iter().map(|a| Term::knob(at(a, 3))));
    let most = unit.registers - 2;
    // Registers that an axis could fill, each with its part of the axis.
    let whole = |i: usize, a: &TileAxis| match i {
        _ if i == s.rows || i == s.columns => (a.extent / unit.rows).max(1),
        _ => a.extent,
    };
    for (i, a) in s.tiled.iter().enumerate() {
        let role = Role::Tile { axis: a.short.clone(), level: 3 };
        let width = if i == s.rows { FEWEST } else { a.extent / whole(i, a) };
        d.knobs.push(Knob::ints(at(a, 3), role, 1..=most.min((a.extent / width).max(1))));
    }
    d.must.push(sums().at_most(most));
    for (i, a) in s.tiled.iter().enumerate() {
        let role = Role::Tile { axis: a.short.clone(), level: 1 };
        let values = divisors(a.extent).into_iter().chain(powers(1, a.extent));
        d.knobs.push(Knob::ints(at(a, 1), role, values.filter(|&v| v <= 64)));
        let taken = || {
            let width = match i {
                _ if i == s.rows => Some(Term::knob(ROWS)),
                _ if i == s.columns => Some(Term::Const(unit.rows)),
                _ => None,
            };
            Term::product([1, 3].map(|l| Term::knob(at(a, l))).into_iter().chain(width))
        };
        d.must.push(taken().at_most(a.extent));
        // Tiles that overlap are computed twice: at most a seventh more work, or what whole
        // registers take at least.
        let least = match i == s.columns {
            true => (a.extent + unit.rows - 1) / unit.rows * unit.rows,
            false => 0,
        };
        let total = Term::product([Term::Const(a.extent).ceil_div(taken()), taken()]);
        d.must.push(total.at_most(least.max(a.extent + a.extent / 7)));
    }
    // Where there is room, several products are on their way.
    let room: i64 = s.tiled.iter().enumerate().map(|(i, a)| whole(i, a)).product();
    d.should.push(Term::Const(room.min(4)).at_most(sums()));
    let names: Vec<&str> = s.orders.iter().map(|o| o.0.as_str()).collect();
    d.knobs.push(Knob::words("order", Role::Order, &names));
    // Cache lines of the weight to prefetch ahead: for the latency of a near cache, and of a far
    // one.
    if s.reduce.iter().map(|a| a.extent).product::<i64>() > s.depth {
        let ahead = Knob::ints("prefetch", Role::Choice, [0, 32, 128]);
        d.knobs.push(ahead.where_absent("0"));
    }
    if s.threads > 1 {
        let loops = (s.outer.len() + s.tiled.len()).min(3) as i64;
        d.knobs.push(Knob::ints("parallel", Role::Parallel, 1..=loops));
    }
    d
}

/// A configuration's schedule.
struct Builder<'a> {
    s: &'a Shape,
    k: &'a Configuration,
    unit: TileUnit,
}

/// The loops inside a tile: its rows, the elements of a left factor's row, its columns.
const ROWS: &str = "rows";
const DEPTH: &str = "depth";
/// The loop over left factors along the reduction.
const DEEP: &str = "deep";
const COLUMNS: &str = "v";

impl Builder<'_> {
    fn get(&self, a: &TileAxis, level: u8) -> i64 {
        self.k.int(&at(a, level)).unwrap_or(1)
    }

    /// The elements of an axis that a register takes.
    fn width(&self, i: usize) -> i64 {
        match i {
            _ if i == self.s.rows => self.k.int(ROWS).unwrap_or(1),
            _ if i == self.s.columns => self.unit.rows,
            _ => 1,
        }
    }

    fn primitives(&self, c: &str) -> Vec<Primitive> {
        let s = self.s;
        let mut p = Vec::new();
        for (i, a) in s.tiled.iter().enumerate() {
            let (f1, f3) = (self.get(a, 1), self.get(a, 3) * self.width(i));
            p.push(split(&a.name, f1 * f3, at(a, 0), at(a, 4)));
            let inner = [(s.rows, ROWS), (s.columns, COLUMNS)].into_iter().find(|x| x.0 == i);
            let Some((_, own)) = inner else {
                p.push(split(&at(a, 4), f3, at(a, 1), at(a, 3)));
                continue;
            };
            p.push(split(&at(a, 4), f3, at(a, 1), at(a, 5)));
            p.push(split(&at(a, 5), self.width(i), at(a, 3), own));
        }
        let order = s
            .orders
            .iter()
            .find(|o| Some(o.0.as_str()) == self.k.word("order"))
            .map_or_else(|| (0..s.tiled.len()).collect(), |o| o.1.clone());
        let level = |l: u8| order.iter().map(move |&i| at(&s.tiled[i], l));
        let outside: Vec<String> = level(0).chain(level(1)).collect();
        let registers: Vec<String> = s.tiled.iter().map(|a| at(a, 3)).collect();
        let tile = || registers.iter().cloned().chain([ROWS, COLUMNS].map(String::from));
        p.push(Primitive::Reorder { loops: outside.iter().cloned().chain(tile()).collect() });
        for l in tile().collect::<Vec<_>>().iter().rev() {
            let names = vec![format!("{l}i"), l.clone(), format!("{l}e")];
            p.push(Primitive::Fission { of: l.clone(), names });
        }
        self.sums(c, &outside, &registers, &mut p);
        // The epilogue goes through the sums row by row.
        let columns = format!("{}e", registers[s.columns]);
        let others = registers.iter().map(|l| format!("{l}e")).filter(|l| *l != columns);
        let inside = [format!("{ROWS}e"), columns.clone(), format!("{COLUMNS}e")];
        p.push(Primitive::Reorder { loops: others.chain(inside).collect() });
        p.extend([unroll(columns), vectorize(format!("{COLUMNS}e"))]);
        let first = s.outer.first().map_or(&outside[0], |a| &a.name).clone();
        let (buffer, packed) = (s.weight.clone(), format!("{}_packed", s.weight));
        p.push(Primitive::Pack { buffer, at: first, packed: packed.clone() });
        for l in [ROWS.to_string(), format!("{ROWS}_load"), format!("{ROWS}_store")] {
            p.push(Primitive::Mark { mode: Mode::Amx, of: l });
        }
        let lines = self.k.int("prefetch").unwrap_or(0);
        if lines > 1 {
            p.push(Primitive::Prefetch { buffer: packed, lines });
        }
        copy(s.border.as_ref(), s.copy_lanes, &mut p);
        copy_is_parallel(s.threads, s.copy_outer.as_ref(), s.border.as_ref(), &s.outer, &mut p);
        if s.threads > 1 {
            let outer = s.outer.iter().map(|a| a.name.clone());
            let count = self.k.int("parallel").unwrap_or(1) as usize;
            p.extend(outer.chain(level(0)).take(count).map(parallel));
        }
        p
    }

    /// The reduction around the registers, whose sums stay in them.
    fn sums(&self, c: &str, outside: &[String], registers: &[String], p: &mut Vec<Primitive>) {
        let (others, deepest) = self.s.reduce.split_at(self.s.reduce.len() - 1);
        p.extend(deepest.iter().map(|a| split(&a.name, self.s.depth, DEEP, DEPTH)));
        let around = others.iter().map(|a| a.name.clone()).chain([DEEP.into()]);
        let loops: Vec<String> = around.collect();
        let inside = [ROWS, DEPTH, COLUMNS].map(String::from);
        let all = loops.iter().cloned().chain(registers.iter().cloned()).chain(inside);
        p.push(Primitive::Reorder { loops: all.collect() });
        // A loop of one iteration around the whole reduction keeps loads and stores of the sums
        // together.
        let outermost = others.first().or(deepest.first()).map_or(1, |a| a.extent);
        let extent = if others.is_empty() { outermost / self.s.depth } else { outermost };
        let root = "whole";
        p.push(split(&loops[0], extent, "once", root));
        p.extend(registers.iter().map(unroll));
        let home = outside[outside.len() - 1].clone();
        p.push(Primitive::Contract { buffer: c.into(), at: home });
        p.push(Primitive::CacheWrite { at: root.into(), buffer: c.into(), local: "acc".into() });
        p.push(Primitive::Forward { buffer: c.into() });
    }
}

/// The loop of an axis at a level.
fn at(a: &TileAxis, level: u8) -> String {
    format!("{}{level}", a.short)
}
