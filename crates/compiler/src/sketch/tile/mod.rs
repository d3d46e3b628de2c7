//! Multi-level tiling for CPUs: the sketch of convolutions, matrix products, depthwise convolutions
//! and pooling, that is of workloads with one reduction. Elementwise stages behind it are fused
//! (the epilogue), sums stay in registers (`cache_write`), operands may be packed.
//!
//! The structure is SSRSRS as in Ansor: spatial levels 0 and 1 outside, an outer reduction level,
//! spatial level 2, the inner reduction level, and the register tile (level 3) with the vector
//! lanes innermost. Each axis that can hold the lanes gives two sketches: reduction in one piece,
//! or cut. `derive` makes them: `shape_base` prepares the loop nest, `Shape` holds facts, `knobs`
//! makes the space, `primitives` the schedule of a configuration (a value for each knob).

mod amx;
mod border;
mod knobs;
mod parts;
mod primitives;

pub(super) use amx::AMX;

use super::collapse::collapse;
use super::pairs::is_by_pairs;
use super::words::is_by_words;
use super::{Facts, Sketch, attempt, start};
use crate::cores::on_all_cores;
use crate::nest::{Loop, Nest, Scope, Stmt, accesses, aligned_bytes};
use crate::schedule::{Primitive, has_zeros};
use border::{Border, TestsOfLanes, copy_loops, pad_name, tests_of_lanes};
use knobs::{draft, orders};
use parts::{Parts, packed, parts, reads_parts};
use primitives::primitives;
use squall_core::expr::{Affine, Binary, Expr, Names, Source, Var};
use squall_core::workload::{Stage, Workload};
use squall_core::{Configuration, DType, Target};
use std::sync::Arc;

/// Vector registers with at most this many bytes in all are few (AVX2, NEON): values that unrolled
/// steps share push sums out of them.
const FEW_REGISTERS: usize = 1024;

/// Lanes of the vectors of padded copies, unless a configuration asks for the machine's own.
const WIDE_COPY: i64 = 16;

/// The most axes that are tiled. Where there are more, the outermost stay untiled.
const MOST_TILED: usize = 5;

/// The most results of a step of the reduction, for each lane, that count as few beside the
/// elements that the step reads.
const FEW_RESULTS: i64 = 16;

/// The most products that a result adds up, as in depthwise convolutions, for which lanes along a
/// row are worth it. Beyond, lanes of output channels are two to three times as fast.
pub(super) const MOST_PRODUCTS: i64 = 200;

/// Reductions below this many steps stay in one piece.
const SHORT: i64 = 32;

/// An axis of the main stage: loop name, short name for knobs, extent.
#[derive(Clone, Debug)]
pub(super) struct TileAxis {
    pub name: String,
    pub short: String,
    pub extent: i64,
    pub var: Var,
}

/// How a stage's padding is computed.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pad {
    /// The stage has no padding.
    None,
    /// A padded copy of the whole input, made first.
    Copy,
    /// A test at each read.
    Guard,
    /// A padded copy of what one iteration of the outermost axes needs.
    Near,
}

impl Shape {
    /// Spatial levels outside of the register tile that are knobs, inner ones first. Around a
    /// whole reduction the middle level would only be another outer one.
    fn levels(&self) -> &'static [u8] {
        if self.whole { &[1] } else { &[2, 1] }
    }

    /// Whether there is a padded copy, made of vectors that lie as they are read.
    fn copies_neighbours(&self) -> bool {
        self.border.as_ref().is_some_and(|b| !b.takes_steps)
    }
}

/// How an operand may be packed.
#[derive(Clone, Copy, PartialEq)]
enum Packing {
    /// A weight whose layout the lanes cannot read, or a large one: it is always packed.
    Forced,
    /// A weight that is packed ahead of time or not at all.
    Weight,
    /// Data that is packed at each call, as a whole or tile by tile, or not at all.
    Data,
    /// Data that lanes cannot read as it lies: it is packed at each call in one of these ways.
    Far,
}

/// The facts of a sketch that its schedule is built from.
struct Shape {
    /// Axes that stay outermost and untiled.
    outer: Vec<TileAxis>,
    /// Tiled spatial axes.
    tiled: Vec<TileAxis>,
    reduce: Vec<TileAxis>,
    /// Which of `tiled` holds the lanes.
    lane: usize,
    /// The lanes run along the output's innermost axis.
    contiguous: bool,
    /// Buffers that can be packed.
    packable: Vec<(String, Packing)>,
    orders: Vec<(String, Vec<usize>)>,
    /// Dimensions of the accumulated buffer with the lane's last.
    layout: Vec<usize>,
    threads: usize,
    /// The reduction is done in one piece, with one spatial level outside of the register tile.
    whole: bool,
    /// Loops of the padded copy: innermost loop, low border, end of the inside, extent.
    border: Option<Border>,
    copy_outer: Option<String>,
    /// A padded copy near its use that the first cache does not hold, and which of `tiled` counts
    /// its rows: it may be made for a tile of them.
    rows_of_copy: Option<(String, usize)>,
    /// Lanes differ in whether they lie in the border, so that what lies inside has its own code.
    has_versions: bool,
    /// Present where a summed operand lies in parts.
    parts: Option<Parts>,
    /// Lanes of the machine's own vectors, for the padded copy.
    copy_lanes: i64,
    /// An operand that the first cache does not hold, the weight or the one that vectors are read
    /// from: prefetching it may pay off.
    stream: Option<String>,
    /// The stream lies row by row as the caller gave it, is larger than the second cache, and few
    /// results share a row. Steps of the reduction are rows then: a few at a time, through all
    /// columns, are as many streams in order, where many rows of few columns are a page each.
    by_rows: bool,
    /// A weight that is 0 by a test where the sum has nothing to add.
    zeros: Option<String>,
}

pub fn derive(f: &Facts<'_>) -> Vec<Sketch> {
    let Some((w, main)) = with_epilogue(f.workload) else { return Vec::new() };
    let mut out = Vec::new();
    // Without the copy each pair would take two tests at each read.
    let of_pairs = |s: &Stage| makes_pairs(&s.body) && !w.is_of_weights(s);
    // In a copy of what lies in parts each lane would ask where it lies.
    let in_parts = reads_parts(&w, main);
    let pads = match padding(&w, main) {
        true if in_parts => vec![Pad::Guard],
        true if w.stages[..main].iter().any(of_pairs) => vec![Pad::Copy, Pad::Near],
        true => vec![Pad::Copy, Pad::Near, Pad::Guard],
        false => vec![Pad::None],
    };
    for pad in pads {
        let Some((base, prefix)) = shape_base(&w, main, pad) else { continue };
        let name = &w.stages[main].name;
        let both = |lane: String| [true, false].map(|whole| Way { lane: lane.clone(), pad, whole });
        let ways: Vec<Way> = lane_axes(&base, name).into_iter().flat_map(both).collect();
        let made = on_all_cores(&ways, |way| sketch(f, name, &base, &prefix, way));
        out.extend(made.into_iter().flatten());
        out.extend(amx::derive(f, name, &base, &prefix, pad));
        // A padded copy next to its use is always faster than one of the whole input.
        let is_copied = |s: &Stage| matches!(s.body, Expr::Select { .. }) && !w.is_of_weights(s);
        if pad == Pad::Near && !out.is_empty() && w.stages[..main].iter().any(is_copied) {
            out.retain(|s| !s.name.contains("copy"));
        }
    }
    out
}

/// The workload with exactly one reduction, followed by exactly one elementwise stage, and the
/// position of the reduction; an identity stage is added where there is none.
pub(super) fn with_epilogue(w: &Workload) -> Option<(Workload, usize)> {
    let mut w = side_stages_first(w);
    let reads = |s: &Stage| !s.body.loads().is_empty();
    let reductions: Vec<usize> = (0..w.stages.len())
        .filter(|&i| w.stages[i].reduction.is_some() && reads(&w.stages[i]))
        .collect();
    let [main] = reductions[..] else { return None };
    if main + 1 == w.stages.len() {
        let old = &mut w.stages[main];
        let name = std::mem::replace(&mut old.name, "C_acc".into());
        let axes = old.axes.clone();
        // Sums of 16-bit elements are rounded once, when they are stored.
        let dtype = old.dtype;
        if dtype.is_half() {
            old.dtype = DType::F32;
        }
        let index = (0..axes.len()).map(|i| Affine::var(Var(i as u32))).collect();
        let body = Expr::load(w.stage_source(main), index);
        w.stages.push(Stage { name, dtype, axes, reduction: None, body });
    }
    (main + 2 == w.stages.len()).then_some((w, main))
}

/// Reductions that read nothing, such as the counts of an average's border, come first: they are
/// small tables made by plain loops.
fn side_stages_first(w: &Workload) -> Workload {
    let n = w.stages.len();
    let side = |i: &usize| {
        i + 1 < n && w.stages[*i].reduction.is_some() && w.stages[*i].body.loads().is_empty()
    };
    let order: Vec<usize> = (0..n).filter(side).chain((0..n).filter(|i| !side(i))).collect();
    let inputs = w.inputs.len();
    let moved = |s: Source| match (s.0 as usize).checked_sub(inputs) {
        Some(old) => Source((inputs + order.iter().position(|&o| o == old).unwrap_or(old)) as u32),
        None => s,
    };
    let stage = |&i: &usize| {
        let s = &w.stages[i];
        Stage { body: s.body.map_sources(moved), ..s.clone() }
    };
    Workload { stages: order.iter().map(stage).collect(), ..w.clone() }
}

/// Whether a stage before the main one has to be computed: it tests positions, as a padding does,
/// or has steps of its own ahead of the main stage.
pub(super) fn padding(w: &Workload, main: usize) -> bool {
    w.stages[..main].iter().any(|s| is_padding(w, s))
}

fn is_padding(w: &Workload, s: &Stage) -> bool {
    s.reduction.is_none()
        && (matches!(s.body, Expr::Select { .. }) || computes(&s.body))
        && !w.is_of_weights(s)
}

/// Whether a copy computes something: by arithmetic, or by making pairs or words.
fn computes(e: &Expr) -> bool {
    e.flop() > 0 || makes_pairs(e)
}

/// Whether a copy's elements are two numbers each: pairs, or words of bytes.
fn makes_pairs(e: &Expr) -> bool {
    match e {
        Expr::Binary(Binary::Pair, ..) => true,
        Expr::Unary(op, _) => op.makes_words(),
        Expr::Select { then, .. } => makes_pairs(then),
        _ => false,
    }
}

/// Whether a copy has a border, which is a number.
fn has_border(e: &Expr) -> bool {
    matches!(e, Expr::Select { other, .. } if matches!(**other, Expr::Const(_)))
}

/// How many axes a copy near its use is joined to, of those that it could be: all that a padding
/// shares, but of steps that are computed ahead all but one, so that what they make serves a tile.
fn joined_axes(s: &Stage, shared: usize) -> usize {
    let of_tests = matches!(s.body, Expr::Select { .. });
    let all = of_tests && (has_border(&s.body) || !makes_pairs(&s.body));
    if all { shared } else { shared.saturating_sub(1) }
}

/// Joins the epilogue, brings padding into its form and collapses axes.
pub(super) fn shape_base(w: &Workload, main: usize, pad: Pad) -> Option<(Nest, Vec<Primitive>)> {
    let (mut n, mut prefix) = start(w);
    let computed = |s: &&Stage| s.reduction.is_none() && !w.is_of_weights(s);
    for s in w.stages[..main].iter().filter(computed) {
        if !is_padding(w, s) || pad == Pad::Guard {
            attempt(&mut n, &mut prefix, vec![Primitive::Inline { buffer: s.name.clone() }])?;
        }
    }
    let (c, y) = (w.stages[main].name.clone(), w.stages[main + 1].name.clone());
    let names = |n: &Nest, stage: &str| -> Vec<String> {
        let s = w.stages.iter().find(|s| s.name == stage);
        let list = s.map(|s| {
            s.axes.iter().filter(|a| a.extent > 1).map(|a| format!("{}_{stage}", a.name)).collect()
        });
        let list: Vec<String> = list.unwrap_or_default();
        list.into_iter().filter(|x| n.find_var(x).is_some()).collect()
    };
    let (of_c, of_y) = (names(&n, &c), names(&n, &y));
    if of_c.len() != of_y.len() {
        return None;
    }
    let joins = of_c
        .iter()
        .zip(&of_y)
        .map(|(a, b)| Primitive::Join { first: a.clone(), second: b.clone() })
        .collect();
    attempt(&mut n, &mut prefix, joins)?;
    if pad == Pad::Near {
        // Join the copy to the axes that it shares with the main stage, outermost first.
        let stage = w.stages[..main].iter().find(|s| is_padding(w, s))?;
        let p = stage.name.clone();
        let join = |a: &String, b: &String| Primitive::Join { first: a.clone(), second: b.clone() };
        let mut trial = (n.clone(), prefix.clone());
        let pairs: Vec<(String, String)> = names(&n, &p).into_iter().zip(of_c).collect();
        let mut joins = Vec::new();
        for (a, b) in &pairs {
            if attempt(&mut trial.0, &mut trial.1, vec![join(a, b)]).is_none() {
                break;
            }
            joins.push(join(a, b));
        }
        joins.truncate(joined_axes(stage, joins.len()));
        let joined = joins.len().checked_sub(1).map(|i| pairs[i].0.clone());
        for j in joins {
            attempt(&mut n, &mut prefix, vec![j])?;
        }
        attempt(&mut n, &mut prefix, vec![Primitive::Contract { buffer: p.clone(), at: joined? }])?;
        // The copy is only made there if it fits the stack.
        let b = n.find_buffer(&p)?;
        if n.buffer(b).elements() > 32 << 10 {
            return None;
        }
    }
    collapse(&mut n, &mut prefix);
    Some((n, prefix))
}

/// The loops of the main stage: those around its fill, then those of its accumulation.
pub(super) fn main_loops(n: &Nest, c: &str) -> Option<(Vec<TileAxis>, Vec<TileAxis>)> {
    let b = n.find_buffer(c)?;
    let axis = |l: &Loop| {
        let name = n.var(l.var).to_string();
        let short = name.split('_').next().unwrap_or(&name).to_string();
        TileAxis { name, short, extent: l.extent, var: l.var }
    };
    let (mut spatial, mut reduce) = (Vec::new(), Vec::new());
    let mut at = n.body.iter().find_map(|s| match s {
        Stmt::Loop(l) if accesses(&l.body).iter().any(|a| a.buffer == b && a.write) => Some(l),
        _ => None,
    })?;
    loop {
        spatial.push(axis(at));
        let fills =
            |x: &Loop| accesses(&x.body).iter().any(|a| a.buffer == b && a.write && !a.read);
        let next = |l: &Stmt| matches!(l, Stmt::Loop(x) if fills(x));
        match at.body.iter().find(|s| next(s)) {
            Some(Stmt::Loop(l)) => at = l,
            _ => break,
        }
    }
    let mut inner = at.body.iter().find_map(|s| match s {
        Stmt::Loop(l) if accesses(&l.body).iter().any(|a| a.buffer == b && a.write && a.read) => {
            Some(l)
        }
        _ => None,
    });
    while let Some(l) = inner {
        reduce.push(axis(l));
        inner = match &l.body[..] {
            [Stmt::Loop(l)] => Some(l),
            _ => None,
        };
    }
    Some((spatial, reduce))
}

/// The operands that the accumulation reads.
fn operands(n: &Nest, c: &str) -> Vec<(Source, Vec<Affine>)> {
    let mut out = Vec::new();
    let target = n.find_buffer(c);
    crate::nest::visit(&n.body, &mut |s| {
        if let Stmt::Update { buffer, value, .. } = s
            && Some(*buffer) == target
        {
            out.extend(value.loads().into_iter().map(|(b, i)| (b, i.to_vec())));
        }
    });
    out
}

fn stride(n: &Nest, b: Source, index: &[Affine], v: Var) -> i64 {
    squall_core::workload::flatten(index, &n.buffer(b).shape).coefficient(v)
}

/// Axes along which every operand is constant, contiguous (or of a short stride), or a weight,
/// whose layout the compiler may choose. Where there is none, axes along which data is far apart
/// that can be packed at each call.
fn lane_axes(n: &Nest, c: &str) -> Vec<String> {
    let Some((spatial, _)) = main_loops(n, c) else { return Vec::new() };
    let ops = operands(n, c);
    let packs = |b: Source, i: &[Affine]| {
        matches!(n.buffer(b).scope, Scope::Data(_))
            && !is_window(i)
            && ops.iter().filter(|o| o.0 == b).count() == 1
            && spatial.iter().any(|a| stride(n, b, i, a.var) == 0)
    };
    let fits = |a: &TileAxis, packed: bool| {
        a.extent >= 4
            && ops.iter().all(|(b, i)| {
                let s = stride(n, *b, i, a.var);
                (0..=4).contains(&s)
                    || n.buffer(*b).scope == Scope::Prepared
                    || packed && packs(*b, i)
            })
            // Lanes over an axis that no operand but weights depends on still need one operand.
            && ops.iter().any(|(b, i)| stride(n, *b, i, a.var) != 0)
    };
    let all = |packed: bool| -> Vec<String> {
        spatial.iter().filter(|a| fits(a, packed)).map(|a| a.name.clone()).collect()
    };
    let as_it_lies = all(false);
    if as_it_lies.is_empty() { all(true) } else { as_it_lies }
}

/// Whether a dimension is indexed by the sum of two axes, a window, which makes packed copies grow.
fn is_window(index: &[Affine]) -> bool {
    index.iter().any(|a| a.terms().len() > 1)
}

/// One way to tile: where lanes lie, how padding is done, whether the reduction stays in one piece.
struct Way {
    lane: String,
    pad: Pad,
    whole: bool,
}

/// The facts of the main stage that a way of tiling needs.
struct Main<'a> {
    base: &'a Nest,
    /// Its buffer's name.
    c: &'a str,
    operands: Vec<(Source, Vec<Affine>)>,
    spatial: Vec<TileAxis>,
}

impl Main<'_> {
    fn stride(&self, b: Source, index: &[Affine], a: &TileAxis) -> i64 {
        stride(self.base, b, index, a.var)
    }

    fn once(&self, b: Source) -> bool {
        self.operands.iter().filter(|o| o.0 == b).count() == 1
    }

    /// How many axes stay outside: axes that every operand depends on give no reuse, and axes that
    /// the padded copy is joined to hold it. `None` where the lanes' axis is one of them.
    fn outside(&self, lane_at: usize, pad: Pad) -> Option<usize> {
        let shared = |a: &TileAxis| self.operands.iter().all(|(b, i)| self.stride(*b, i, a) != 0);
        let of_copy = |a: &&TileAxis| !a.name.ends_with(&format!("_{}", self.c));
        let near =
            if pad == Pad::Near { self.spatial.iter().take_while(of_copy).count() } else { 0 };
        let mut cut = near;
        while cut < lane_at && shared(&self.spatial[cut]) && self.operands.len() > 1 {
            cut += 1;
        }
        (near <= lane_at).then_some(cut)
    }

    /// The operands that can be packed; `None` where a weight is not packed and lanes cannot read
    /// it as it lies.
    fn packable(&self, t: &Target, lane: &TileAxis) -> Option<Vec<(String, Packing)>> {
        let mut packable = Vec::new();
        for (b, i) in &self.operands {
            let buf = self.base.buffer(*b);
            let lane_stride = self.stride(*b, i, lane);
            let weight = buf.scope == Scope::Prepared;
            let reused = self.spatial.iter().any(|a| self.stride(*b, i, a) == 0);
            let input = weight || matches!(buf.scope, Scope::Data(_));
            // Weights are packed ahead of time: even where nothing is read twice, a stream in order
            // is faster.
            let gains = self.once(*b) && (reused || weight);
            if input && gains && !is_window(i) && buf.shape.len() > 1 {
                // A large one as it lies is read by pages, several times slower.
                let is_large = aligned_bytes(buf) > t.cache(1);
                let kind = match (weight, lane_stride > 1 || is_large) {
                    (true, true) => Packing::Forced,
                    (true, false) => Packing::Weight,
                    (false, _) if lane_stride > 4 => Packing::Far,
                    _ => Packing::Data,
                };
                packable.push((buf.name.clone(), kind));
            } else if weight && lane_stride > 4 {
                return None;
            }
        }
        Some(packable)
    }

    /// Dimensions of the accumulated buffer with the lane's last.
    fn layout(&self, lane: &TileAxis) -> Option<Vec<usize>> {
        let c = self.base.find_buffer(self.c)?;
        let dims = self.base.buffer(c).shape.len();
        let all = accesses(&self.base.body);
        let index = all.into_iter().find(|a| a.buffer == c).map(|a| a.index.to_vec())?;
        let lane_dim = index.iter().position(|a| a.uses(lane.var))?;
        Some((0..dims).filter(|&d| d != lane_dim).chain([lane_dim]).collect())
    }

    /// See [`Shape::zeros`].
    fn zeros(&self) -> Option<String> {
        let mut names = self.operands.iter().map(|(b, _)| &self.base.buffer(*b).name);
        names.find(|name| has_zeros(self.base, name)).cloned()
    }

    /// See [`Shape::stream`].
    fn stream(&self, t: &Target, lane: &TileAxis) -> Option<String> {
        let buffer = |b: Source| self.base.buffer(b);
        let large = |b: Source| aligned_bytes(buffer(b)) > t.cache(1) && self.once(b);
        let vectors = |b: Source, i: &[Affine]| {
            matches!(buffer(b).scope, Scope::Data(_)) && self.stride(b, i, lane) == 1
        };
        let mut all = self.operands.iter();
        let weight = all.find(|(b, _)| buffer(*b).scope == Scope::Prepared && large(*b));
        let read = |(b, i): &&(Source, Vec<Affine>)| vectors(*b, i) && large(*b) && !is_window(i);
        let found = weight.or_else(|| self.operands.iter().find(read));
        found.map(|(b, _)| buffer(*b).name.clone())
    }

    /// See [`Shape::by_rows`]; `tiled` are the axes that are tiled, and `lane` one of them.
    fn by_rows(&self, t: &Target, stream: Option<&str>, tiled: &[TileAxis], lane: usize) -> bool {
        let stream = stream.and_then(|name| self.base.find_buffer(name));
        let others = tiled.iter().enumerate().filter(|(i, _)| *i != lane).map(|(_, a)| a.extent);
        let is_far = |b: Source| {
            let b = self.base.buffer(b);
            matches!(b.scope, Scope::Data(_)) && aligned_bytes(b) > t.cache(2)
        };
        stream.is_some_and(is_far) && others.product::<i64>() <= FEW_RESULTS
    }
}

fn sketch(f: &Facts<'_>, c: &str, base: &Nest, prefix: &[Primitive], way: &Way) -> Option<Sketch> {
    let (lane, pad, whole) = (&way.lane, way.pad, way.whole);
    let t = f.target;
    let (spatial, reduce) = main_loops(base, c)?;
    let parts = parts(base, c, &reduce);
    // Short reductions are not cut, and reductions over parts are cut where the parts meet.
    let is_short = reduce.iter().map(|a| a.extent).product::<i64>() < SHORT;
    if !whole && (is_short || parts.is_some()) {
        return None;
    }
    let lane_at = spatial.iter().position(|a| a.name == *lane)?;
    let main = Main { base, c, operands: operands(base, c), spatial };
    let many = main.spatial.len().saturating_sub(MOST_TILED);
    let cut = main.outside(lane_at, pad)?.max(many);
    if cut > lane_at {
        return None;
    }
    let (outer, tiled) = (main.spatial[..cut].to_vec(), main.spatial[cut..].to_vec());
    let lane_at = lane_at - cut;
    let lane = &tiled[lane_at];
    let tested = match pad {
        Pad::Guard => tests_of_lanes(base, c, lane.var),
        _ => TestsOfLanes::None,
    };
    let is_for_few = whole && reduce.iter().map(|a| a.extent).product::<i64>() <= MOST_PRODUCTS;
    tested.is_worth_it(is_for_few).then_some(())?;
    let (border, copy_outer) = copy_loops(base, pad);
    let stream = main.stream(t, lane);
    let shape = Shape {
        lane: lane_at,
        rows_of_copy: main.rows_of_copy(t, &tiled, border.as_ref()),
        by_rows: main.by_rows(t, stream.as_deref(), &tiled, lane_at),
        contiguous: lane_at + 1 == tiled.len(),
        packable: packed(main.packable(t, lane)?, parts.as_ref()),
        orders: orders(&tiled),
        layout: main.layout(lane)?,
        stream,
        zeros: main.zeros(),
        threads: t.threads,
        outer,
        reduce,
        whole,
        copy_lanes: t.lanes_f32().min(WIDE_COPY),
        border,
        copy_outer,
        has_versions: tested == TestsOfLanes::OfLoads,
        parts,
        tiled,
    };
    let part = if whole { "" } else { ",cut" };
    let elements = match f.workload {
        w if is_by_pairs(w) => ",pairs",
        w if is_by_words(w) => ",words",
        _ => "",
    };
    let name = format!("tile@{}{}{part}{elements}", shape.tiled[shape.lane].short, pad_name(pad));
    if !(f.wanted)(&name) {
        return None;
    }
    let space = draft(&shape, t, t.lanes_f32(), f.any_tile).open()?;
    let c = c.to_string();
    let shape = Arc::new(shape);
    let primitives = move |k: &Configuration| primitives(&shape, &c, k);
    Some(Sketch {
        name,
        target: t.clone(),
        space,
        base: base.clone(),
        prefix: prefix.to_vec(),
        primitives: Box::new(primitives),
        full_optimisation: false,
        template: None,
        both: None,
    })
}
