//! The rule for elementwise kernels on a GPU, and the plain loops that serve as the untuned kernel.
//!
//! Input: a workload without reductions; all its stages are inlined into one. Output: a program in
//! which blocks of threads walk along the last axis, each thread with several vectors; where that
//! axis is short, a block's threads share a tile of several axes. The knobs are `threads`, `vector`
//! and `unroll`. `plain` takes any workload and gives one launch a stage
//! with one thread an element. `mod.rs` lists the rules.

use super::super::{Facts, attempt, collapse::collapse, plain::scalars, powers, start};
use super::Program;
use super::loops::{around, count, launches, tiles};
use crate::nest::{Mode, Nest, Stmt, lower, substitute};
use crate::schedule::Primitive;
use squall_core::expr::{Affine, Var};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Gpu, Space};

/// One launch a stage, one thread an element.
pub fn plain(f: &Facts<'_>) -> Nest {
    let mut n = lower(f.workload);
    scalars(&mut n);
    let (prepare, body) = (std::mem::take(&mut n.prepare), std::mem::take(&mut n.body));
    n.prepare = launches(&mut n, prepare);
    n.body = launches(&mut n, body);
    n
}

/// Along an axis of fewer elements a block would have too few threads.
const SHORT: i64 = 256;

/// Blocks of threads that walk through the last axis, several vectors each.
pub fn derive(f: &Facts<'_>, gpu: Gpu) -> Vec<Program> {
    let w = f.workload;
    if w.stages.iter().any(|s| s.reduction.is_some()) {
        return Vec::new();
    }
    let (mut base, mut prefix) = start(w);
    for s in &w.stages[..w.stages.len() - 1] {
        if attempt(&mut base, &mut prefix, vec![Primitive::Inline { buffer: s.name.clone() }])
            .is_none()
        {
            return Vec::new();
        }
    }
    collapse(&mut base, &mut prefix);
    let mut chain = Vec::new();
    let mut body = &base.body[..];
    while let [Stmt::Loop(l)] = body {
        chain.push((l.var, l.extent));
        body = &l.body;
    }
    let body = body.to_vec();
    let Some((last, extent)) = chain.pop() else { return Vec::new() };
    let prepare = std::mem::take(&mut base.prepare);
    base.prepare = launches(&mut base, prepare);
    if extent < SHORT && !chain.is_empty() {
        chain.push((last, extent));
        return tiled(base, chain, body, gpu).into_iter().collect();
    }
    let knobs = vec![
        Knob::ints("threads", Role::Parallel, powers(1, 1024)),
        Knob::ints("vector", Role::Vector, [1, 2, 4]),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8]),
    ];
    let product = |k: &[&str]| Term::product(k.iter().map(|k| Term::knob(*k)));
    let Ok(space) = Space::new(knobs, &[product(&["threads", "vector", "unroll"]).at_most(extent)])
    else {
        return Vec::new();
    };
    let make = move |c: &squall_core::Configuration| {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let (threads, vector, unroll) = (get("threads"), get("vector"), get("unroll"));
        let mut n = base.clone();
        let [b, at, t, u, v] = ["b", "base", "t", "u", "v"].map(|x| n.new_var(x));
        let mut inner = body.clone();
        substitute(
            &mut inner,
            last,
            &Affine::new([(at, 1), (u, threads * vector), (t, vector), (v, 1)], 0),
        );
        let inner =
            vec![count(u, unroll, Mode::Unroll, vec![count(v, vector, Mode::Vector, inner)])];
        let block = tiles(
            b,
            at,
            extent,
            threads * vector * unroll,
            vec![count(t, threads, Mode::Thread, inner)],
        );
        n.body = around(&chain, Mode::Block, vec![block]);
        Ok(n)
    };
    vec![Program { name: "gpu_map".into(), space, gpu, make: Box::new(make) }]
}

/// Blocks whose threads share a tile of the last axes: all of the innermost ones, and as much of
/// the axis before them as gives each thread its vectors.
fn tiled(base: Nest, mut axes: Vec<(Var, i64)>, body: Vec<Stmt>, gpu: Gpu) -> Option<Program> {
    let (last, extent) = axes.pop()?;
    let mut inner = Vec::new();
    let mut elements = extent;
    let cut = loop {
        let axis = axes.pop()?;
        if elements * axis.1 >= SHORT || axes.is_empty() {
            break axis;
        }
        elements *= axis.1;
        inner.insert(0, axis);
    };
    let vectors = [1, 2, 4].into_iter().filter(|v| extent % v == 0);
    let knobs = vec![
        Knob::ints("threads", Role::Parallel, powers(32, 1024)),
        Knob::ints("vector", Role::Vector, vectors),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8]),
    ];
    let product = Term::product(["threads", "vector", "unroll"].map(Term::knob));
    let space = Space::new(knobs, &[product.at_most((elements * cut.1).max(32))]).ok()?;
    let make = move |c: &squall_core::Configuration| {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let (threads, vector) = (get("threads"), get("vector"));
        let mut n = base.clone();
        let tile = (threads * vector * get("unroll") / elements).clamp(1, cut.1);
        let [b, at, t, c, o, v] = ["b", "base", "t", "c", "o", "v"].map(|x| n.new_var(x));
        let mut body = body.clone();
        substitute(&mut body, last, &Affine::new([(o, vector), (v, 1)], 0));
        substitute(&mut body, cut.0, &Affine::new([(at, 1), (c, 1)], 0));
        let body = vec![count(v, vector, Mode::Vector, body)];
        let shared = [&[(c, tile)], &inner[..], &[(o, extent / vector)]].concat();
        let shared = around(&shared, Mode::Share, body);
        let block = tiles(b, at, cut.1, tile, vec![count(t, threads, Mode::Thread, shared)]);
        n.body = around(&axes, Mode::Block, vec![block]);
        Ok(n)
    };
    Some(Program { name: "gpu_map,tiled".into(), space, gpu, make: Box::new(make) })
}
