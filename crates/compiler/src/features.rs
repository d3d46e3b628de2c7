//! What the cost model sees of a scheduled nest: amounts of work, vectors, registers, and how
//! much memory each buffer's accesses touch at each cache level. Logarithms throughout, so that
//! ratios of kernels are differences of features.

pub(crate) mod gpu;

use crate::emit::{register_count, stack_bytes};
use crate::nest::{Loop, Mode, Nest, Scope, Stmt};
use squall_core::Target;
use squall_core::expr::{Affine, Expr, Source};
use squall_core::workload::flatten;
use std::collections::HashMap;

/// Names of the features, in order.
pub const FEATURES: &[&str] = &[
    "estimate",
    "flop",
    "vector_flop",
    "scalar_flop",
    "update_statements",
    "inner_trip",
    "unrolled_body",
    "lanes",
    "accumulators",
    "registers_named",
    "flop_per_load",
    "loads_vector",
    "loads_broadcast",
    "loads_strided",
    "loads_scalar",
    "stores_vector",
    "stores_strided",
    "stores_scalar",
    "loop_iterations",
    "stack_bytes",
    "workspace_bytes",
    "prepared_bytes",
    "parallel_iterations",
    "parallel_depth",
    "innermost_serial_extent",
    "reduction_before_flush",
    "a_lines",
    "a_unique",
    "a_stride",
    "a_reuse_l1",
    "a_traffic_l1",
    "a_traffic_l2",
    "b_lines",
    "b_unique",
    "b_stride",
    "b_reuse_l1",
    "b_traffic_l1",
    "b_traffic_l2",
    "c_lines",
    "c_unique",
    "c_stride",
    "c_reuse_l1",
    "c_traffic_l1",
    "c_traffic_l2",
    "traffic_l1",
    "traffic_l2",
    "intensity_l1",
    "intensity_l2",
    "copy_elements",
    "main_share",
    "tile_imbalance",
    "branches",
    "conflict",
    "hints",
    "hint_distance",
];

struct Ring<'a> {
    l: &'a Loop,
}

/// An access of a statement under its loops.
struct Touch {
    buffer: Source,
    index: Vec<Affine>,
    write: bool,
}

#[derive(Default)]
struct Sums {
    values: HashMap<&'static str, f64>,
    /// The statement with most work: its points and loop chain facts.
    main_points: f64,
    main: HashMap<&'static str, f64>,
    total_points: f64,
}

impl Sums {
    fn add(&mut self, k: &'static str, x: f64) {
        *self.values.entry(k).or_default() += x;
    }
}

/// The features of a nest on a target, one for each of [`FEATURES`].
pub fn extract(n: &Nest, t: &Target) -> Vec<f32> {
    let mut s = Sums::default();
    walk(n, t, &n.body, &mut Vec::new(), &mut s);
    let registers: i64 = register_count(n).values().sum();
    s.add("registers_named", registers as f64);
    s.add("stack_bytes", stack_bytes(n) as f64);
    s.add("workspace_bytes", n.scope_bytes(|x| *x == Scope::Workspace) as f64);
    s.add("prepared_bytes", n.scope_bytes(|x| *x == Scope::Prepared) as f64);
    let flop = s.values.get("flop").copied().unwrap_or(1.0).max(1.0);
    for (k, from) in [("intensity_l1", "traffic_l1"), ("intensity_l2", "traffic_l2")] {
        let bytes = s.values.get(from).copied().unwrap_or(0.0);
        s.values.insert(k, flop / (bytes + 1.0));
    }
    let loads: f64 = ["loads_vector", "loads_broadcast", "loads_strided", "loads_scalar"]
        .iter()
        .filter_map(|k| s.values.get(k))
        .sum();
    s.add("flop_per_load", flop / (loads + 1.0));
    let share = s.main_points / s.total_points.max(1.0);
    s.add("main_share", share);
    for (k, v) in std::mem::take(&mut s.main) {
        s.values.insert(k, v);
    }
    let cycles = estimate(&s, t);
    s.values.insert("estimate", cycles);
    FEATURES
        .iter()
        .map(|k| (s.values.get(k).copied().unwrap_or(0.0).max(0.0) + 1.0).log2() as f32)
        .collect()
}

/// Cycles by a formula: arithmetic, loads and the traffic of two caches overlap by a third,
/// stores and loops come on top. Only an order to begin with, before anything is measured; trees
/// learn from it and correct it. The weights were fitted on 2,900 kernels of 42 tasks
/// (docs/performance.md).
fn estimate(s: &Sums, t: &Target) -> f64 {
    let get = |k: &str| s.values.get(k).copied().unwrap_or(0.0);
    // Fewer independent sums than the units' latency times their number wait for each other.
    let waiting = (8.0 / get("accumulators").max(1.0)).max(1.0).powf(0.25);
    let registers = t.vector_registers as f64;
    let spilled = 1.0 + 0.3 * (get("registers_named") - registers).max(0.0) / registers;
    let arithmetic = get("vector_flop") / 4.0 * waiting * spilled + get("scalar_flop") / 2.0;
    // A broadcast is part of the arithmetic's instruction.
    let loads = (get("loads_vector") + 0.4 * get("loads_broadcast") + get("loads_scalar")) / 2.0
        + 1.75 * get("loads_strided");
    let stores = get("stores_vector") + get("stores_scalar") + get("stores_strided");
    let parts = [arithmetic, loads, get("traffic_l1") / 80.0, get("traffic_l2") / 8.0];
    let longest = parts.iter().copied().fold(0.0, f64::max);
    // Asked for ahead, data come while others are worked on.
    let waits = if get("hints") > 0.0 { 0.45 } else { 0.7 };
    longest
        + waits * (parts.iter().sum::<f64>() - longest)
        + 0.6 * stores
        + 0.2 * get("loop_iterations")
        + 0.25 * get("hints")
}

fn walk<'a>(n: &'a Nest, t: &Target, stmts: &'a [Stmt], rings: &mut Vec<Ring<'a>>, s: &mut Sums) {
    for st in stmts {
        match st {
            Stmt::Loop(l) => {
                rings.push(Ring { l });
                if l.mode == Mode::Serial || l.mode == Mode::Parallel {
                    s.add(
                        "loop_iterations",
                        rings
                            .iter()
                            .filter(|r| !matches!(r.l.mode, Mode::Unroll | Mode::Vector))
                            .map(|r| r.l.extent as f64)
                            .product(),
                    );
                }
                walk(n, t, &l.body, rings, s);
                rings.pop();
            }
            Stmt::If { body, .. } => walk(n, t, body, rings, s),
            Stmt::Prefetch { buffer, at } => {
                s.add("hints", rings.iter().map(|r| r.l.extent as f64).product());
                let lines = at.offset() * n.buffer(*buffer).dtype.bytes() as i64 / 64;
                s.add("hint_distance", lines as f64);
            }
            Stmt::Store { buffer, index, value } => {
                statement(n, t, rings, *buffer, index, value, false, s)
            }
            Stmt::Update { buffer, index, value, .. } => {
                statement(n, t, rings, *buffer, index, value, true, s)
            }
            _ => {}
        }
    }
}

#[allow(clippy::too_many_arguments)] // one call site pair; a struct would only rename them
fn statement(
    n: &Nest,
    t: &Target,
    rings: &[Ring<'_>],
    buffer: Source,
    index: &[Affine],
    value: &Expr,
    update: bool,
    s: &mut Sums,
) {
    let points: f64 = rings.iter().map(|r| r.l.extent as f64).product();
    let vector = rings.last().filter(|r| r.l.mode == Mode::Vector);
    let lanes = vector.map_or(1, |r| r.l.extent);
    let flop = points * (value.flop() + u64::from(update)) as f64;
    s.add("flop", flop);
    // In units of full vectors: what the machine has to issue.
    s.add(
        if lanes > 1 { "vector_flop" } else { "scalar_flop" },
        flop / lanes as f64 * (t.lanes_f32() as f64 / lanes as f64).max(1.0).sqrt(),
    );
    s.total_points += points;
    let mut branches = 0;
    value.visit(&mut |e| branches += u32::from(matches!(e, Expr::Select { .. })));
    s.add("branches", f64::from(branches) * points);
    let mut touches: Vec<Touch> = value
        .loads()
        .into_iter()
        .map(|(b, i)| Touch { buffer: b, index: i.to_vec(), write: false })
        .collect();
    touches.push(Touch { buffer, index: index.to_vec(), write: true });
    let is_main = update && points > s.main_points;
    if is_main {
        s.main_points = points;
        s.main.clear();
        main_facts(rings, index, lanes, s);
    }
    if !update && value.flop() == 0 {
        s.add("copy_elements", points);
    }
    if update {
        s.add("update_statements", 1.0);
    }
    let groups: [[&'static str; 6]; 3] = [
        ["a_lines", "a_unique", "a_stride", "a_reuse_l1", "a_traffic_l1", "a_traffic_l2"],
        ["b_lines", "b_unique", "b_stride", "b_reuse_l1", "b_traffic_l1", "b_traffic_l2"],
        ["c_lines", "c_unique", "c_stride", "c_reuse_l1", "c_traffic_l1", "c_traffic_l2"],
    ];
    // How much all touched memory is, from each loop inwards.
    let offsets: Vec<Affine> =
        touches.iter().map(|x| flatten(&x.index, &n.buffer(x.buffer).shape)).collect();
    let local = |b: Source| n.buffer(b).scope == Scope::Local && n.buffer(b).elements() <= 1024;
    let mut footprint = vec![0.0; rings.len() + 1];
    for (x, off) in touches.iter().zip(&offsets) {
        if local(x.buffer) {
            continue;
        }
        for (d, f) in footprint.iter_mut().enumerate() {
            *f += lines(off, &rings[d..]) * 64.0;
        }
    }
    let level = |bytes: u64| {
        (0..=rings.len()).find(|&d| footprint[d] <= bytes as f64).unwrap_or(rings.len())
    };
    let (l1, l2) = (level(t.cache(1) * 3 / 4), level(t.cache(2) * 3 / 4));
    let outside = |d: usize, off: &Affine| -> f64 {
        // Traffic into a level: the footprint inside it, once for each outer iteration; loops
        // directly outside that do not move the access reuse what is there.
        let mut d = d;
        while d > 0 && !rings[d - 1].l.moves(off) {
            d -= 1;
        }
        rings[..d].iter().map(|r| r.l.extent as f64).product::<f64>()
            * lines(off, &rings[d..])
            * 64.0
    };
    let mut operand = 0;
    for (x, off) in touches.iter().zip(&offsets) {
        let kind = vector.map(|r| off.coefficient(r.l.var).abs());
        // Accesses that unrolled loops repeat are loaded once for the body.
        let repeat: f64 = rings
            .iter()
            .rev()
            .take_while(|r| r.l.mode != Mode::Serial)
            .filter(|r| !r.l.moves(off))
            .map(|r| r.l.extent as f64)
            .product();
        let count = points / repeat.max(1.0);
        let key = match (kind, x.write) {
            _ if local(x.buffer) => continue,
            (None, false) => "loads_scalar",
            (Some(0), false) => "loads_broadcast",
            (Some(1), false) => "loads_vector",
            (Some(_), false) => "loads_strided",
            (None, true) => "stores_scalar",
            (Some(1), true) => "stores_vector",
            (Some(_), true) => "stores_strided",
        };
        s.add(key, if key.ends_with("vector") { count / lanes as f64 } else { count });
        let (t1, t2) = (outside(l1, off), outside(l2, off));
        s.add("traffic_l1", t1);
        s.add("traffic_l2", t2);
        if is_main && operand < 3 {
            let g = groups[if x.write { 2 } else { operand.min(1) }];
            let inner = rings.iter().rev().find(|r| r.l.mode == Mode::Serial && r.l.moves(off));
            let facts = [
                lines(off, &rings[l1..]),
                lines(off, rings),
                inner.map_or(0.0, |r| off.coefficient(r.l.var).abs() as f64),
                points / (lines(off, &rings[l1..]) + 1.0),
                t1,
                t2,
            ];
            for (k, v) in g.into_iter().zip(facts) {
                s.main.insert(k, v);
            }
            // Rows at a power-of-two distance fall into the same cache sets.
            let clash = rings.iter().any(|r| {
                let c = off.coefficient(r.l.var).unsigned_abs();
                c >= 1024 && c.is_power_of_two() && r.l.extent > 4
            });
            if clash {
                *s.main.entry("conflict").or_default() += 1.0;
            }
            operand += 1;
        }
    }
}

fn main_facts(rings: &[Ring<'_>], index: &[Affine], lanes: i64, s: &mut Sums) {
    let moved = |r: &Ring<'_>| index.iter().any(|a| r.l.moves(a));
    let unrolled =
        rings.iter().rev().take_while(|r| matches!(r.l.mode, Mode::Unroll | Mode::Vector));
    let body: f64 =
        unrolled.clone().filter(|r| r.l.mode == Mode::Unroll).map(|r| r.l.extent as f64).product();
    let accumulators: f64 = unrolled
        .clone()
        .filter(|r| r.l.mode == Mode::Unroll && moved(r))
        .map(|r| r.l.extent as f64)
        .product();
    let serial: Vec<&Ring<'_>> =
        rings.iter().filter(|r| r.l.mode == Mode::Serial && r.l.extent > 1).collect();
    s.main.insert("unrolled_body", body);
    s.main.insert("lanes", lanes as f64);
    s.main.insert("accumulators", accumulators);
    s.main.insert("innermost_serial_extent", serial.last().map_or(1.0, |r| r.l.extent as f64));
    s.main.insert("inner_trip", serial.iter().rev().take(2).map(|r| r.l.extent as f64).product());
    let flush: f64 = rings
        .iter()
        .rev()
        .take_while(|r| !moved(r) || matches!(r.l.mode, Mode::Unroll | Mode::Vector))
        .filter(|r| !moved(r))
        .map(|r| r.l.extent as f64)
        .product();
    s.main.insert("reduction_before_flush", flush);
    let par = rings.iter().filter(|r| r.l.mode == Mode::Parallel);
    s.main.insert("parallel_iterations", par.clone().map(|r| r.l.extent as f64).product());
    s.main.insert("parallel_depth", par.count() as f64);
    let waste: f64 = rings
        .iter()
        .filter_map(|r| {
            r.l.start.map(|st| (st.step * r.l.extent) as f64 / (st.cap + st.step) as f64)
        })
        .product();
    s.main.insert("tile_imbalance", (waste - 1.0) * 100.0);
}

/// Distinct cache lines that an access touches while the given loops run.
fn lines(off: &Affine, rings: &[Ring<'_>]) -> f64 {
    let mut steps: Vec<(i64, i64)> = rings
        .iter()
        .filter_map(|r| {
            let own = off.coefficient(r.l.var).abs();
            let tile = r.l.start.map_or(0, |s| off.coefficient(s.var).abs() * s.step);
            (own + tile > 0).then_some((own + tile, r.l.extent))
        })
        .collect();
    steps.sort_unstable();
    // A run of elements that grows while steps stay within a line of what is covered already.
    let (mut run, mut count) = (1i64, 1.0);
    for (step, extent) in steps {
        if step <= run + 15 {
            run += step * (extent - 1);
        } else {
            count *= extent as f64;
        }
    }
    count * ((run as f64 - 1.0) / 16.0 + 1.0)
}
