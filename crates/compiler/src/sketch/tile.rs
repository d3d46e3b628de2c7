//! Multi-level tiling with consumer fusion, cache write into registers and packed operands: the
//! sketch of convolutions, matrix products, depthwise convolutions and pooling.
//!
//! Structure SSRSRS: spatial levels 0 and 1 outside, an outer reduction level, spatial level 2,
//! the inner reduction level, and the register tile (level 3) with the vector lanes innermost.
//! One sketch for each axis that can hold the lanes.

use super::collapse::collapse;
use super::short::{parallel, split, unroll, vectorize};
use super::{Facts, Sketch, attempt, divisors, powers, start};
use crate::nest::{Loop, Nest, Scope, Stmt, accesses};
use crate::schedule::Primitive;
use squall_core::expr::{Affine, Expr, Names, Source, Var};
use squall_core::space::{Knob, Role, Term};
use squall_core::workload::{Stage, Workload};
use squall_core::{Configuration, Space, Target};
use std::sync::Arc;

/// An axis of the main stage: loop name, short name for knobs, extent.
#[derive(Clone, Debug)]
struct Axis {
    name: String,
    short: String,
    extent: i64,
    var: Var,
}

/// How padding is done.
#[derive(Clone, Copy, PartialEq)]
enum Pad {
    /// There is none.
    None,
    /// A padded copy of the whole input, made first.
    Copy,
    /// A test at each read.
    Guard,
    /// A padded copy of what one iteration of the outermost axes needs.
    Near,
}

/// What the schedule builder needs to know about a sketch.
struct Shape {
    /// Axes that stay outermost and untiled.
    outer: Vec<Axis>,
    /// Tiled spatial axes.
    tiled: Vec<Axis>,
    reduce: Vec<Axis>,
    /// Which of `tiled` holds the lanes.
    lane: usize,
    /// The lanes run along the output's innermost axis.
    contiguous: bool,
    /// Buffers that can be packed and whether they must.
    packable: Vec<(String, bool)>,
    orders: Vec<(String, Vec<usize>)>,
    /// Dimensions of the accumulated buffer with the lane's last.
    layout: Vec<usize>,
    threads: usize,
    /// Loops of the padded copy: innermost loop, low border, end of the inside, extent.
    border: Option<(String, i64, i64, i64)>,
    copy_outer: Option<String>,
}

pub fn derive(f: &Facts<'_>) -> Vec<Sketch> {
    let Some((w, main)) = with_epilogue(f.workload) else { return Vec::new() };
    let mut out = Vec::new();
    let pads = match padding(&w, main) {
        true => vec![Pad::Copy, Pad::Near, Pad::Guard],
        false => vec![Pad::None],
    };
    for pad in pads {
        let Some((base, prefix)) = shape_base(&w, main, pad) else { continue };
        let lanes: Vec<Sketch> = lane_axes(&base, &w.stages[main].name)
            .into_iter()
            .filter_map(|lane| sketch(f.target, &w.stages[main].name, &base, &prefix, lane, pad))
            .collect();
        out.extend(lanes);
        // A padded copy next to its use is always better than one of the whole input.
        if pad == Pad::Near && !out.is_empty() {
            out.retain(|s| !s.name.contains("copy"));
        }
    }
    out
}

/// The workload with exactly one reduction, followed by exactly one elementwise stage, and the
/// position of the reduction; an identity stage is added where there is none.
fn with_epilogue(w: &Workload) -> Option<(Workload, usize)> {
    let mut w = side_stages_first(w);
    let reads = |s: &Stage| !s.body.loads().is_empty();
    let reductions: Vec<usize> = (0..w.stages.len()).filter(|&i| w.stages[i].reduction.is_some() && reads(&w.stages[i])).collect();
    let [main] = reductions[..] else { return None };
    if main + 1 == w.stages.len() {
        let old = &mut w.stages[main];
        let name = std::mem::replace(&mut old.name, "C_acc".into());
        let axes = old.axes.clone();
        let dtype = old.dtype;
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
    let side = |i: &usize| i + 1 < n && w.stages[*i].reduction.is_some() && w.stages[*i].body.loads().is_empty();
    let order: Vec<usize> = (0..n).filter(side).chain((0..n).filter(|i| !side(i))).collect();
    let inputs = w.inputs.len();
    let moved = |s: Source| match (s.0 as usize).checked_sub(inputs) {
        Some(old) => Source((inputs + order.iter().position(|&o| o == old).unwrap_or(old)) as u32),
        None => s,
    };
    let stage = |&i: &usize| {
        let s = &w.stages[i];
        let body = s.body.rewrite(&mut |a| a.clone(), &mut |e| match e {
            Expr::Load { source, index } => Expr::Load { source: moved(source), index },
            e => e,
        });
        Stage { body, ..s.clone() }
    };
    Workload { stages: order.iter().map(stage).collect(), ..w.clone() }
}

/// Whether a stage before the main one tests positions: a padding.
fn padding(w: &Workload, main: usize) -> bool {
    w.stages[..main].iter().any(is_padding)
}

fn is_padding(s: &Stage) -> bool {
    s.reduction.is_none() && matches!(s.body, Expr::Select { .. })
}

/// Joins the epilogue, brings padding into its form and collapses axes.
fn shape_base(w: &Workload, main: usize, pad: Pad) -> Option<(Nest, Vec<Primitive>)> {
    let (mut n, mut prefix) = start(w);
    for s in w.stages[..main].iter().filter(|s| s.reduction.is_none()) {
        if !is_padding(s) || pad == Pad::Guard {
            attempt(&mut n, &mut prefix, vec![Primitive::Inline(s.name.clone())])?;
        }
    }
    let (c, y) = (w.stages[main].name.clone(), w.stages[main + 1].name.clone());
    let names = |n: &Nest, stage: &str| -> Vec<String> {
        let s = w.stages.iter().find(|s| s.name == stage);
        let list = s.map(|s| s.axes.iter().filter(|a| a.extent > 1).map(|a| format!("{}_{stage}", a.name)).collect());
        let list: Vec<String> = list.unwrap_or_default();
        list.into_iter().filter(|x| n.find_var(x).is_some()).collect()
    };
    let (of_c, of_y) = (names(&n, &c), names(&n, &y));
    if of_c.len() != of_y.len() {
        return None;
    }
    let joins = of_c.iter().zip(&of_y).map(|(a, b)| Primitive::Join(a.clone(), b.clone())).collect();
    attempt(&mut n, &mut prefix, joins)?;
    if pad == Pad::Near {
        // Join the copy to the axes that it shares with the main stage, outermost first.
        let p = w.stages[..main].iter().find(|s| is_padding(s))?.name.clone();
        let mut joined = None;
        for (a, b) in names(&n, &p).iter().zip(&of_c) {
            if attempt(&mut n, &mut prefix, vec![Primitive::Join(a.clone(), b.clone())]).is_none() {
                break;
            }
            joined = Some(a.clone());
        }
        attempt(&mut n, &mut prefix, vec![Primitive::Contract(p.clone(), joined?)])?;
        // Small enough for the stack?
        let b = n.find_buffer(&p)?;
        if n.buffer(b).elements() > 32 << 10 {
            return None;
        }
    }
    collapse(&mut n, &mut prefix);
    Some((n, prefix))
}

/// The loops of the main stage: those around its fill, then those of its accumulation.
fn main_loops(n: &Nest, c: &str) -> Option<(Vec<Axis>, Vec<Axis>)> {
    let b = n.find_buffer(c)?;
    let axis = |l: &Loop| {
        let name = n.var(l.var).to_string();
        let short = name.split('_').next().unwrap_or(&name).to_string();
        Axis { name, short, extent: l.extent, var: l.var }
    };
    let (mut spatial, mut reduce) = (Vec::new(), Vec::new());
    let mut at = n.body.iter().find_map(|s| match s {
        Stmt::Loop(l) if accesses(&l.body).iter().any(|a| a.buffer == b && a.write) => Some(l),
        _ => None,
    })?;
    loop {
        spatial.push(axis(at));
        let next = |l: &Stmt| matches!(l, Stmt::Loop(x) if accesses(&x.body).iter().any(|a| a.buffer == b && a.write && !a.read));
        match at.body.iter().find(|s| next(s)) {
            Some(Stmt::Loop(l)) => at = l,
            _ => break,
        }
    }
    let mut inner = at.body.iter().find_map(|s| match s {
        Stmt::Loop(l) if accesses(&l.body).iter().any(|a| a.buffer == b && a.write && a.read) => Some(l),
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

/// What the accumulation reads.
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

/// Axes along which every operand is constant, contiguous (or a short stride), or a weight whose
/// layout is ours.
fn lane_axes(n: &Nest, c: &str) -> Vec<String> {
    let Some((spatial, _)) = main_loops(n, c) else { return Vec::new() };
    let ops = operands(n, c);
    let fits = |a: &Axis| {
        a.extent >= 4
            && ops.iter().all(|(b, i)| {
                let s = stride(n, *b, i, a.var);
                (0..=4).contains(&s) || n.buffer(*b).scope == Scope::Prepared
            })
            // Lanes over an axis that no operand but weights depends on still need one operand.
            && ops.iter().any(|(b, i)| stride(n, *b, i, a.var) != 0)
    };
    spatial.iter().filter(|a| fits(a)).map(|a| a.name.clone()).collect()
}

/// A window: dimensions indexed by the sum of two axes make packed copies grow.
fn is_window(index: &[Affine]) -> bool {
    index.iter().any(|a| a.terms().len() > 1)
}

fn sketch(t: &Target, c: &str, base: &Nest, prefix: &[Primitive], lane: String, pad: Pad) -> Option<Sketch> {
    let (spatial, reduce) = main_loops(base, c)?;
    let ops = operands(base, c);
    // Axes that every operand depends on give no reuse: they stay outside. So do axes that the
    // padded copy is joined to.
    let lane_at = spatial.iter().position(|a| a.name == lane)?;
    let shared = |a: &Axis| ops.iter().all(|(b, i)| stride(base, *b, i, a.var) != 0);
    let near = if pad == Pad::Near { spatial.iter().take_while(|a| !a.name.ends_with(&format!("_{c}"))).count() } else { 0 };
    let mut cut = near;
    while cut < lane_at && shared(&spatial[cut]) && ops.len() > 1 {
        cut += 1;
    }
    if near > lane_at {
        return None;
    }
    let (outer, tiled) = (spatial[..cut].to_vec(), spatial[cut..].to_vec());
    let lane_at = lane_at - cut;
    if tiled.len() > 4 {
        return None;
    }
    let lane_axis = &tiled[lane_at];
    let contiguous = lane_at + 1 == tiled.len();
    let lanes = t.lanes_f32();
    let source = |s: &str| base.find_buffer(s);
    let mut packable: Vec<(String, bool)> = Vec::new();
    for (b, i) in &ops {
        let buf = base.buffer(*b);
        let lane_stride = stride(base, *b, i, lane_axis.var);
        let weight = buf.scope == Scope::Prepared;
        let reused = spatial.iter().any(|a| stride(base, *b, i, a.var) == 0);
        let once = ops.iter().filter(|o| o.0 == *b).count() == 1;
        let input = weight || matches!(buf.scope, Scope::Data(_));
        if input && once && reused && !is_window(i) && buf.shape.len() > 1 {
            packable.push((buf.name.clone(), weight && lane_stride > 1));
        } else if weight && lane_stride > 4 {
            return None;
        }
    }
    let dims = base.buffer(source(c)?).shape.len();
    let c_index = accesses(&base.body).into_iter().find(|a| Some(a.buffer) == source(c)).map(|a| a.index.to_vec())?;
    let lane_dim = c_index.iter().position(|a| a.uses(lane_axis.var))?;
    let layout: Vec<usize> = (0..dims).filter(|&d| d != lane_dim).chain([lane_dim]).collect();
    let orders = orders(&tiled);
    let (border, copy_outer) = copy_loops(base, pad);
    let shape = Shape { outer, tiled, reduce, lane: lane_at, contiguous, packable, orders, layout, threads: t.threads, border, copy_outer };
    let (knobs, constraints, strict) = knobs(&shape, t, lanes);
    let all: Vec<Term> = constraints.iter().chain(&strict).cloned().collect();
    let space = Space::new(knobs.clone(), &all).or_else(|_| Space::new(knobs, &constraints)).ok()?;
    let kind = match pad {
        Pad::None => "",
        Pad::Copy => ",pad=copy",
        Pad::Guard => ",pad=guard",
        Pad::Near => ",pad=near",
    };
    // Lanes behind a test are computed one by one: not worth a sketch.
    if pad == Pad::Guard && contiguous {
        return None;
    }
    let name = format!("tile@{}{kind}", shape.tiled[shape.lane].short);
    let c = c.to_string();
    let shape = Arc::new(shape);
    let plan = move |k: &Configuration| plan(&shape, &c, k);
    Some(Sketch {
        name,
        target: t.clone(),
        space,
        base: base.clone(),
        prefix: prefix.to_vec(),
        plan: Box::new(plan),
        full_optimisation: false,
    })
}

/// Orders of the outer tile loops: all for up to three axes, rotations beyond.
fn orders(tiled: &[Axis]) -> Vec<(String, Vec<usize>)> {
    let n = tiled.len();
    let mut list: Vec<Vec<usize>> = Vec::new();
    let mut heap = |p: Vec<usize>| list.push(p);
    match n {
        0 | 1 => heap((0..n).collect()),
        2 => [vec![0, 1], vec![1, 0]].into_iter().for_each(&mut heap),
        3 => [vec![0, 1, 2], vec![0, 2, 1], vec![1, 0, 2], vec![1, 2, 0], vec![2, 0, 1], vec![2, 1, 0]].into_iter().for_each(&mut heap),
        _ => (0..n).for_each(|r| heap((0..n).map(|i| (i + r) % n).collect())),
    }
    list.into_iter().map(|p| (p.iter().map(|&i| tiled[i].short.as_str()).collect::<Vec<_>>().join("_"), p)).collect()
}

/// The innermost loop of the padded copy and where its inside begins and ends.
fn copy_loops(n: &Nest, pad: Pad) -> (Option<(String, i64, i64, i64)>, Option<String>) {
    if !matches!(pad, Pad::Copy | Pad::Near) {
        return (None, None);
    }
    let mut found = (None, None);
    for top in &n.body {
        let mut chain = Vec::new();
        copy_chain(top, &mut chain, &mut |chain, conds| {
            let Some(&(v, extent)) = chain.last() else { return };
            found.1 = Some(n.var(chain[0].0).to_string());
            found.0 = conds.iter().find(|c| c.index.coefficient(v) == 1 && c.index.terms().len() == 1).map(|c| {
                let low = (c.low - c.index.offset()).clamp(0, extent);
                let high = (c.high - c.index.offset()).clamp(low, extent);
                (n.var(v).to_string(), low, high, extent)
            });
            if found.0.is_none() {
                found.0 = Some((n.var(v).to_string(), 0, extent, extent));
            }
        });
    }
    found
}

type Visit<'a> = &'a mut dyn FnMut(&[(Var, i64)], &[squall_core::expr::Cond]);

fn copy_chain(s: &Stmt, chain: &mut Vec<(Var, i64)>, f: Visit<'_>) {
    match s {
        Stmt::Loop(l) => {
            chain.push((l.var, l.extent));
            l.body.iter().for_each(|s| copy_chain(s, chain, f));
            chain.pop();
        }
        Stmt::Store { value: Expr::Select { conds, .. }, .. } => f(chain, conds),
        _ => {}
    }
}

/// Knobs, constraints that must hold, and constraints that hold in every good kernel.
fn knobs(s: &Shape, t: &Target, native: i64) -> (Vec<Knob>, Vec<Term>, Vec<Term>) {
    let mut knobs = Vec::new();
    let (mut must, mut should) = (Vec::new(), Vec::new());
    let lane_extent = s.tiled[s.lane].extent;
    let narrow = native.min(4);
    // Half vectors only where whole ones do not fit the extent, narrower only where it is short.
    let widths = widths(lane_extent, native);
    knobs.push(Knob::ints("lanes", Role::Vector, widths.clone()));
    let tile = |a: &Axis, level: u8| (format!("{}{level}", a.short), Role::Tile { axis: a.short.clone(), level });
    let registers = t.vector_registers as i64;
    // The register tile first: its knobs are entangled with one another.
    for (i, a) in s.tiled.iter().enumerate() {
        let (name, role) = tile(a, 3);
        let most = if i == s.lane { 8.min(lane_extent / narrow) } else { 16.min(a.extent) };
        knobs.push(Knob::ints(name, role, 1..=most.max(1)));
    }
    let accumulators = || Term::product(s.tiled.iter().map(|a| Term::knob(format!("{}3", a.short))));
    must.push(accumulators().at_most(registers - 2));
    let most: i64 = s.tiled.iter().enumerate().map(|(i, a)| if i == s.lane { (a.extent / native).max(1) } else { a.extent }).product();
    should.push(Term::Const(most.min(registers / 4)).at_most(accumulators()));
    for (i, a) in s.tiled.iter().enumerate() {
        let base = if i == s.lane { vec![Term::knob("lanes")] } else { vec![] };
        for level in [2, 1] {
            let (name, role) = tile(a, level);
            let values = divisors(a.extent).into_iter().chain(powers(1, a.extent)).filter(|&d| d <= 64);
            knobs.push(Knob::ints(name, role, values));
        }
        let whole = || Term::product(base.iter().cloned().chain((1..=3).map(|l| Term::knob(format!("{}{l}", a.short)))));
        must.push(whole().at_most(a.extent));
        // Tiles that overlap are computed twice: at most an eighth more work, or one lane's.
        let waste = Term::product([Term::Const(a.extent).ceil_div(whole()), whole(), Term::Const(8)]).at_most(9 * a.extent);
        if i == s.lane {
            let fewest = widths.iter().map(|l| (a.extent + l - 1) / l * l).min().unwrap_or(a.extent);
            let total = Term::product([Term::Const(a.extent).ceil_div(whole()), whole()]);
            must.push(waste.or(total.at_most(fewest.max(a.extent + a.extent / 7))));
        } else {
            must.push(waste);
        }
    }
    for a in &s.reduce {
        knobs.push(Knob::ints(
            format!("{}1", a.short),
            Role::Tile { axis: a.short.clone(), level: 1 },
            divisors(a.extent).into_iter().filter(|&d| d == a.extent || d * 64 >= a.extent),
        ));
    }
    // With the reduction in one piece the middle spatial level is just another outer level.
    let whole_reduction = || Term::product(s.reduce.iter().map(|a| Term::knob(format!("{}1", a.short))));
    let reduction: i64 = s.reduce.iter().map(|a| a.extent).product();
    let partial = s.tiled.iter().enumerate().flat_map(|(i, a)| {
        let lanes = (i == s.lane).then(|| Term::knob("lanes"));
        lanes.into_iter().chain([Term::knob(format!("{}2", a.short)), Term::knob(format!("{}3", a.short))])
    });
    let in_cache = Term::product(partial).at_most((t.cache(2) / 16).clamp(4096, 65536) as i64);
    must.push(whole_reduction().equals(reduction).or(in_cache));
    should.push(Term::Const(reduction.min(32)).at_most(whole_reduction()));
    knobs.push(Knob::ints("unroll", Role::Unroll, [1, 2, 3, 4, 7, 8, 9, 16].into_iter().filter(|&u| u <= reduction)));
    // Compilers take longer than they gain over bodies beyond this.
    must.push(Term::product([accumulators(), Term::knob("unroll")]).at_most(128));
    let names: Vec<&str> = s.orders.iter().map(|o| o.0.as_str()).collect();
    knobs.push(Knob::words("order", Role::Order, &names));
    if s.reduce.len() > 1 {
        knobs.push(Knob::words("reduce", Role::Order, &["first_outside", "first_inside"]));
    }
    for (name, forced) in &s.packable {
        knobs.push(Knob::words(format!("pack_{name}"), Role::Layout, if *forced { &["yes"] } else { &["no", "yes"] }));
    }
    if s.threads > 1 {
        knobs.push(Knob::ints("parallel", Role::Parallel, 1..=(s.outer.len() + s.tiled.len()).min(3) as i64));
    }
    (knobs, must, should)
}

/// Vector widths worth trying for an extent.
fn widths(extent: i64, native: i64) -> Vec<i64> {
    let fitting = |l: &i64| *l <= extent;
    let list: Vec<i64> = powers(native.min(4), native).filter(fitting).collect();
    let keep = if extent % native == 0 { 1 } else { 2 };
    list[list.len().saturating_sub(keep)..].to_vec()
}

/// The schedule of a configuration.
fn plan(s: &Shape, c: &str, k: &Configuration) -> Vec<Primitive> {
    let get = |name: String| k.int(&name).unwrap_or(1);
    let factor = |a: &Axis, level: u8| get(format!("{}{level}", a.short));
    let lanes = get("lanes".into());
    let mut p = Vec::new();
    let at = |a: &Axis, level: u8| format!("{}{level}", a.short);
    // Spatial splits.
    for (i, a) in s.tiled.iter().enumerate() {
        let l = if i == s.lane { lanes } else { 1 };
        let (f1, f2, f3) = (factor(a, 1), factor(a, 2), factor(a, 3) * l);
        p.push(split(&a.name, f1 * f2 * f3, at(a, 0), at(a, 4)));
        p.push(split(&at(a, 4), f2 * f3, at(a, 1), at(a, 5)));
        p.push(split(&at(a, 5), f3, at(a, 2), at(a, 3)));
        if i == s.lane {
            let inner = format!("{}6", a.short);
            p.push(Primitive::Split(at(a, 3), l, inner, "v".into()));
        }
    }
    let lane = &s.tiled[s.lane];
    // Loops of the register tile: the lane axis's vectors last, then the lanes.
    let tile: Vec<String> = (s.tiled.iter().enumerate())
        .filter(|(i, _)| *i != s.lane)
        .map(|(_, a)| at(a, 3))
        .chain([format!("{}6", lane.short), "v".into()])
        .collect();
    let middle: Vec<String> = s.tiled.iter().map(|a| at(a, 2)).collect();
    let order = s.orders.iter().find(|o| Some(o.0.as_str()) == k.word("order")).map_or_else(|| (0..s.tiled.len()).collect(), |o| o.1.clone());
    let level = |l: u8| order.iter().map(move |&i| at(&s.tiled[i], l));
    let outside: Vec<String> = level(0).chain(level(1)).collect();
    p.push(Primitive::Reorder(outside.iter().chain(&middle).chain(&tile).cloned().collect()));
    // The reduction.
    let whole = s.reduce.iter().all(|a| factor(a, 1) == a.extent);
    let sunk: Vec<String> = if whole { tile.clone() } else { middle.iter().chain(&tile).cloned().collect() };
    for l in sunk.iter().rev() {
        p.push(Primitive::Fission(l.clone(), vec![format!("{l}i"), l.clone(), format!("{l}e")]));
    }
    for a in &s.reduce {
        p.push(split(&a.name, factor(a, 1), format!("{}0", a.short), format!("{}1", a.short)));
    }
    let mut inner: Vec<&Axis> = s.reduce.iter().collect();
    if k.word("reduce") == Some("first_inside") {
        inner.rotate_left(1);
    }
    let r0: Vec<String> = s.reduce.iter().map(|a| format!("{}0", a.short)).collect();
    let r1: Vec<String> = inner.iter().map(|a| format!("{}1", a.short)).collect();
    let mut chain: Vec<String> = r0;
    if !whole {
        chain.extend(middle.iter().cloned());
    }
    chain.extend(r1.iter().cloned());
    chain.extend(tile.iter().cloned());
    p.push(Primitive::Reorder(chain));
    // Unrolling, from the innermost reduction loop outwards.
    let mut room = get("unroll".into());
    for a in inner.iter().rev() {
        let (name, extent) = (format!("{}1", a.short), factor(a, 1));
        if room >= extent {
            p.push(unroll(name));
            room /= extent;
            continue;
        }
        if let Some(d) = divisors(extent).into_iter().rfind(|d| *d <= room && *d > 1) {
            let inner_name = format!("{}2u", a.short);
            p.push(split(&name, d, format!("{}1o", a.short), inner_name.clone()));
            p.push(unroll(inner_name));
        }
        break;
    }
    for l in &tile[..tile.len() - 1] {
        p.push(unroll(l.clone()));
    }
    p.push(vectorize("v"));
    // The accumulators.
    let last_outer = if whole { &middle } else { &outside };
    let home = last_outer.last().map_or("v", |l| l).to_string();
    p.push(Primitive::Contract(c.into(), home));
    let staged = !s.contiguous || !whole;
    if staged {
        if !s.contiguous {
            p.push(Primitive::Relayout(c.into(), s.layout.clone()));
        }
        if !whole {
            p.push(vectorize("vi"));
        } else {
            mark_tile(&mut p, &tile, "i");
        }
        // The loop that holds the whole inner reduction.
        let first = inner.first().map(|a| format!("{}1", a.short)).unwrap_or_default();
        let split_first = p.iter().any(|x| matches!(x, Primitive::Split(l, ..) if *l == first));
        let root = if split_first { format!("{}1o", inner[0].short) } else { first };
        p.push(Primitive::CacheWrite(root, c.into(), "acc".into()));
        if whole {
            p.push(Primitive::Forward(c.into()));
        }
    } else {
        mark_tile(&mut p, &tile, "i");
    }
    epilogue(s, &mut p, &tile, lanes);
    for (name, _) in &s.packable {
        if k.word(&format!("pack_{name}")) == Some("yes") {
            let top = s.outer.first().map_or(&outside[0], |a| &a.name);
            p.push(Primitive::Pack(name.clone(), top.clone(), format!("{name}_packed")));
        }
    }
    copy(s, &mut p, lanes);
    if s.threads > 1 {
        let all: Vec<String> = s.outer.iter().map(|a| a.name.clone()).chain(level(0)).collect();
        for l in all.iter().take(get("parallel".into()) as usize) {
            p.push(parallel(l.clone()));
        }
    }
    p
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
        Primitive::Split(l, f, _, i) if *i == format!("{}3", last.short) && *l == format!("{}5", last.short) => Some(*f),
        _ => None,
    });
    let vectors = format!("{}6e", s.tiled[s.lane].short);
    if extent.is_none_or(|e| e < 4) || lanes < 4 {
        return p.push(vectorize("ve"));
    }
    p.push(split(&row, 4, "row_o", "row_v"));
    p.push(split("ve", 4, "lane_o", "lane_u"));
    let keep: Vec<String> = tile[..tile.len() - 2].iter().map(|l| format!("{l}e")).filter(|l| *l != row).collect();
    let all = keep.into_iter().chain([vectors, "lane_o".into(), "row_o".into(), "lane_u".into(), "row_v".into()]);
    p.push(Primitive::Reorder(all.collect()));
    p.push(unroll("lane_u"));
    p.push(vectorize("row_v"));
}

/// Peels and vectorises the padded copy.
fn copy(s: &Shape, p: &mut Vec<Primitive>, _lanes: i64) {
    let Some((name, low, high, extent)) = &s.border else { return };
    let mut inside = name.clone();
    if *low > 0 && low < extent {
        p.push(Primitive::Peel(name.clone(), *low, "pad_in".into()));
        inside = "pad_in".into();
    }
    if high < extent && high > low {
        p.push(Primitive::Peel(inside.clone(), high - low, "pad_end".into()));
    }
    let width = high - low;
    let lanes = powers(1, 16).take_while(|l| *l <= width).last().unwrap_or(1);
    if lanes > 1 {
        p.push(split(&inside, lanes, "pad_o", "pad_v"));
        p.push(vectorize("pad_v"));
    }
    if s.threads > 1
        && let Some(top) = &s.copy_outer
        && s.outer.iter().all(|a| a.name != *top)
        && top != name
    {
        p.push(parallel(top.clone()));
    }
}
