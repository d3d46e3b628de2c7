//! The rule for row kernels on CPUs: softmax, layer normalisation, global pooling, and reductions
//! along the contiguous axis.
//!
//! All stages of the workload (a tensor expression) are joined at the loops over rows, so that
//! intermediates shrink to one row. Each pass over a row is vectorised; a reduction runs in vector
//! lanes and in several independent chains (`rfactor`). There are two sketches, `rows` and
//! `rows,recompute`: elementwise intermediates are kept for the row or computed again at each use.
//! [`joined`] is also what `gpu/rows.rs` starts from. `mod.rs` lists the rules.

use super::short::{parallel, split, unroll, vectorize};
use super::{Facts, Sketch, attempt, collapse::collapse, powers, start};
use crate::nest::{Loop, Nest, Scope, Stmt, accesses};
use crate::schedule::Primitive;
use squall_core::Space;
use squall_core::expr::Names;
use squall_core::space::{Knob, Role, Term};

/// One pass over the row: its loop's name and extent, and whether it reduces.
#[derive(Clone)]
pub(super) struct Pass {
    name: String,
    extent: i64,
    reduces: bool,
}

/// The sketches of a workload whose stages can be joined at rows; none for other workloads.
pub fn derive(f: &Facts<'_>) -> Vec<Sketch> {
    let w = f.workload;
    if w.stages.iter().all(|s| s.reduction.is_none()) {
        return Vec::new();
    }
    shaped(f, false).into_iter().chain(shaped(f, true)).collect()
}

/// A nest with all stages joined at the loops over rows.
pub(super) struct Joined {
    pub nest: Nest,
    prefix: Vec<Primitive>,
    /// The row loops, outermost first: name and extent.
    pub rows: Vec<(String, i64)>,
    /// The passes over a row: name, extent, whether it reduces.
    pub passes: Vec<(String, i64, bool)>,
}

/// Joins the stages, with elementwise intermediates kept for the row or computed again at each use.
pub(super) fn joined(f: &Facts<'_>, inline: bool) -> Option<Joined> {
    let w = f.workload;
    let (mut n, mut prefix) = start(w);
    let mut inlined = 0;
    for s in &w.stages[..w.stages.len() - 1] {
        let pad = matches!(s.body, squall_core::expr::Expr::Select { .. });
        if s.reduction.is_none()
            && (inline || pad)
            && attempt(&mut n, &mut prefix, vec![Primitive::Inline { buffer: s.name.clone() }])
                .is_some()
        {
            inlined += usize::from(!pad);
        }
    }
    if inline && inlined == 0 {
        return None;
    }
    collapse(&mut n, &mut prefix);
    // Join all stages loop by loop, as deep as it goes.
    let mut rows: Vec<(String, i64)> = Vec::new();
    loop {
        let level = siblings(&n, rows.last().map(|r| r.0.as_str()));
        let Some((first, rest)) = level.split_first() else { break };
        let joins: Vec<Primitive> = rest
            .iter()
            .map(|l| Primitive::Join { first: first.0.clone(), second: l.0.clone() })
            .collect();
        // A lone loop that itself reduces is a pass, not a row.
        if (rest.is_empty() && only_pass(&n, &first.0))
            || attempt(&mut n, &mut prefix, joins).is_none()
        {
            break;
        }
        rows.push(first.clone());
    }
    let row = rows.last()?.0.clone();
    let locals: Vec<String> =
        n.buffers.iter().filter(|b| b.scope == Scope::Workspace).map(|b| b.name.clone()).collect();
    for b in locals {
        let mut at = rows.iter().rev();
        let placed = at.any(|r| {
            attempt(
                &mut n,
                &mut prefix,
                vec![Primitive::Contract { buffer: b.clone(), at: r.0.clone() }],
            )
            .is_some()
        });
        if !placed {
            return None;
        }
    }
    let passes = passes(&n, &row)?.into_iter().map(|p| (p.name, p.extent, p.reduces)).collect();
    Some(Joined { nest: n, prefix, rows, passes })
}

fn shaped(f: &Facts<'_>, inline: bool) -> Option<Sketch> {
    let Joined { nest: n, prefix, rows, passes } = joined(f, inline)?;
    let passes: Vec<Pass> =
        passes.into_iter().map(|(name, extent, reduces)| Pass { name, extent, reduces }).collect();
    let longest = passes.iter().map(|p| p.extent).max()?;
    let lanes = f.target.lanes_f32();
    let knobs = vec![
        Knob::ints("lanes", Role::Vector, powers(1, lanes).filter(|&l| l == 1 || l <= longest)),
        Knob::ints("chains", Role::Unroll, [1, 2, 4, 8]),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8]),
        Knob::ints(
            "parallel",
            Role::Parallel,
            if f.target.threads > 1 { vec![0, 1] } else { vec![0] },
        ),
    ];
    let constraints = [Term::product([Term::knob("lanes"), Term::knob("chains")]).at_most(longest)];
    let space = Space::new(knobs, &constraints).ok()?;
    let top = rows[0].0.clone();
    let primitives = move |c: &squall_core::Configuration| {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let mut p = Vec::new();
        for (i, pass) in passes.iter().enumerate() {
            one(&mut p, i, pass, get("lanes"), get("chains"), get("unroll"));
        }
        if get("parallel") > 0 {
            p.push(parallel(top.clone()));
        }
        p
    };
    Some(Sketch {
        name: if inline { "rows,recompute" } else { "rows" }.into(),
        target: f.target.clone(),
        space,
        base: n,
        prefix,
        primitives: Box::new(primitives),
        full_optimisation: false,
        template: None,
        both: None,
    })
}

/// A pass of this loop.
pub(super) fn pass(name: &str, extent: i64, reduces: bool) -> Pass {
    Pass { name: name.into(), extent, reduces }
}

/// Schedules one pass: whole vectors first, a scalar rest where lanes do not divide.
pub(super) fn one(
    p: &mut Vec<Primitive>,
    i: usize,
    pass: &Pass,
    lanes: i64,
    chains: i64,
    unrolled: i64,
) {
    let n = |s: &str| format!("{s}{i}");
    let lanes = powers(1, lanes).filter(|l| *l <= pass.extent).last().unwrap_or(1);
    if !pass.reduces {
        let block = (lanes * unrolled).min(pass.extent / lanes * lanes);
        p.push(split(&pass.name, block, n("x"), n("xu")));
        p.push(split(&n("xu"), lanes, n("xv_o"), n("xv")));
        p.push(unroll(n("xv_o")));
        p.push(vectorize(n("xv")));
        return;
    }
    let width =
        powers(1, chains).map(|c| c * lanes).filter(|w| *w <= pass.extent).last().unwrap_or(1);
    if width < 2 {
        return;
    }
    let whole = pass.extent / width * width;
    if whole < pass.extent {
        p.push(Primitive::Peel { of: pass.name.clone(), at: whole, rest: n("rest") });
    }
    p.push(split(&pass.name, width, n("x"), n("xu")));
    p.push(Primitive::Rfactor { of: n("xu"), partial: n("part") });
    for (l, suffix) in [(n("xu"), ""), (n("xu") + "_init", "i")] {
        p.push(split(&l, lanes, n("xo") + suffix, n("xv") + suffix));
        p.push(unroll(n("xo") + suffix));
        p.push(vectorize(n("xv") + suffix));
    }
    p.push(unroll(n("xu") + "_sum"));
}

/// Loops directly inside the loop `at`, or at the top.
fn siblings(n: &Nest, at: Option<&str>) -> Vec<(String, i64)> {
    let stmts = match at {
        None => &n.body[..],
        Some(name) => match n.find_var(name).and_then(|v| n.find_loop(v)) {
            Some(l) => &l.body[..],
            None => return Vec::new(),
        },
    };
    let loops = stmts.iter().filter_map(|s| match s {
        Stmt::Loop(l) => Some((n.var(l.var).to_string(), l.extent)),
        _ => None,
    });
    let loops: Vec<_> = loops.collect();
    // Bare statements between loops mean that the rows end here.
    if at.is_some() && loops.len() != stmts.iter().filter(|s| !matches!(s, Stmt::Local(_))).count()
    {
        Vec::new()
    } else {
        loops
    }
}

/// Whether a loop is innermost: a pass over a row.
fn only_pass(n: &Nest, name: &str) -> bool {
    n.find_var(name)
        .and_then(|v| n.find_loop(v))
        .is_some_and(|l| !l.body.iter().any(|s| matches!(s, Stmt::Loop(_))))
}

/// The innermost one of loops that hold nothing but each other.
fn innermost(l: &Loop) -> &Loop {
    match &l.body[..] {
        [Stmt::Loop(inner)] => innermost(inner),
        _ => l,
    }
}

/// The passes inside the innermost row loop: each must be a single innermost loop. One that does
/// not reduce may lie in others, as over the places of each channel of a group.
fn passes(n: &Nest, row: &str) -> Option<Vec<Pass>> {
    let l = n.find_loop(n.find_var(row)?)?;
    let mut out = Vec::new();
    for s in &l.body {
        if let Stmt::Loop(whole) = s {
            let p @ Loop { body, .. } = innermost(whole);
            let is_nested = p.var != whole.var;
            let [inner] = &body[..] else { return None };
            let reduces = match inner {
                Stmt::Update { .. } if is_nested => return None,
                Stmt::Update { index, .. } => !index.iter().any(|a| a.uses(p.var)),
                Stmt::Store { .. } => false,
                _ => return None,
            };
            // Lanes need the pass to be contiguous in the tensor that it reads most.
            let name = n.var(p.var).to_string();
            let contiguous = accesses(body).iter().any(|a| {
                squall_core::workload::flatten(a.index, &n.buffer(a.buffer).shape)
                    .coefficient(p.var)
                    == 1
            });
            if !contiguous {
                return None;
            }
            out.push(Pass { name, extent: p.extent, reduces });
        }
    }
    (!out.is_empty()).then_some(out)
}
