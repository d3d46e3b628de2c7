//! The rule for elementwise kernels on CPUs: workloads without a reduction. All stages are inlined
//! into one pass over the output, with vector lanes along the last axis, several vectors unrolled,
//! blocks of them, and optionally threads. The one sketch is named `map`; its knobs are `lanes`,
//! `unroll`, `block` and `parallel`. `mod.rs` lists the rules.

use super::short::{parallel, split, unroll, vectorize};
use super::{Facts, Sketch, collapse::collapse, powers, start};
use crate::nest::Stmt;
use crate::schedule::Primitive;
use squall_core::Space;
use squall_core::expr::Names;
use squall_core::space::{Knob, Role, Term};

/// The sketch of an elementwise workload; none for other workloads.
pub fn derive(f: &Facts<'_>) -> Vec<Sketch> {
    let w = f.workload;
    if w.stages.iter().any(|s| s.reduction.is_some()) {
        return Vec::new();
    }
    let (mut base, mut prefix) = start(w);
    for s in &w.stages[..w.stages.len() - 1] {
        if super::attempt(
            &mut base,
            &mut prefix,
            vec![Primitive::Inline { buffer: s.name.clone() }],
        )
        .is_none()
        {
            return Vec::new();
        }
    }
    collapse(&mut base, &mut prefix);
    let mut chain = Vec::new();
    let mut at = &base.body[..];
    while let [Stmt::Loop(l)] = at {
        chain.push((base.var(l.var).to_string(), l.extent));
        at = &l.body;
    }
    let Some((last, extent)) = chain.pop() else { return Vec::new() };
    let lanes = f.target.lanes_f32();
    let knobs = vec![
        Knob::ints("lanes", Role::Vector, powers(1, lanes).filter(|&l| l == 1 || l <= extent)),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8]),
        Knob::ints("block", Role::Tile { axis: "last".into(), level: 0 }, powers(1, 1024)),
        Knob::ints(
            "parallel",
            Role::Parallel,
            if f.target.threads > 1 { vec![0, 1] } else { vec![0] },
        ),
    ];
    let tile = || Term::product(["lanes", "unroll", "block"].map(Term::knob));
    let Ok(space) = Space::new(knobs, &[tile().at_most(extent)]) else { return Vec::new() };
    let outer: Vec<String> = chain.into_iter().map(|c| c.0).collect();
    let primitives = move |c: &squall_core::Configuration| {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let (lanes, unrolled, block) = (get("lanes"), get("unroll"), get("block"));
        let mut s = vec![
            split(&last, lanes * unrolled * block, "x0", "xt"),
            split("xt", lanes * unrolled, "x1", "xu"),
            split("xu", lanes, "x2", "xv"),
            unroll("x2"),
            vectorize("xv"),
        ];
        if get("parallel") > 0 {
            s.push(parallel(outer.first().map_or("x0", |o| o)));
        }
        s
    };
    vec![Sketch {
        name: "map".into(),
        target: f.target.clone(),
        space,
        base,
        prefix,
        primitives: Box::new(primitives),
        full_optimisation: false,
        template: None,
        both: None,
    }]
}
