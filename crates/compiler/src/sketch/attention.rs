//! Attention: two products with a softmax between them, over rows of the first. A tile of rows is
//! carried through all stages: its scores, which the plain loops would keep for all rows at once,
//! stay in a near cache, and memory grows with the tokens, not with their square. Each product has
//! a register tile of rows by vectors; the maxima and sums of a row run in vector lanes.

use super::short::{parallel, split, unroll, vectorize};
use super::{Facts, Sketch, attempt, powers, rows, start};
use crate::nest::Scope;
use crate::schedule::Primitive;
use squall_core::Space;
use squall_core::space::{Knob, Role, Term};
use squall_core::workload::{Axis, Reducer, Stage};

/// A stage's part in the chain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Sums products of two tensors.
    Product,
    /// Reduces a row to a number.
    RowReduction,
    /// Computes a row's elements one by one.
    Elementwise,
}

/// A stage with the names of its loops: rows' batch axes aside, its last axis and its reduction.
#[derive(Clone)]
struct Link {
    stage: String,
    part: Part,
    /// The last axis, where it is not a row's own number.
    across: Option<(String, i64)>,
    reduction: Option<(String, i64)>,
}

/// The chain of stages around two products, and the axes of rows; none where the workload is
/// another.
fn links(f: &Facts<'_>) -> Option<(Vec<Link>, Vec<Axis>)> {
    let w = f.workload;
    let products = |s: &Stage| s.body.loads().len() == 2 && s.reduction.is_some();
    let rank = w.output().axes.len();
    if rank < 2 || w.stages.iter().filter(|s| products(s)).count() != 2 {
        return None;
    }
    let rows = w.stages[0].axes.get(..rank - 1)?.to_vec();
    let link = |s: &Stage| {
        let name = |axis: &str| format!("{axis}_{}", s.name);
        let reduction = match s.reduce_axes() {
            [] => None,
            [a] => Some((name(&a.name), a.extent)),
            _ => return None,
        };
        // The output may have its axes in another order.
        let mut others = s.axes.iter().filter(|a| !rows.contains(a));
        let across = others.next().map(|a| (name(&a.name), a.extent));
        let part = match (&s.reduction, &across) {
            (Some(r), Some(_)) if products(s) && r.op == Reducer::Sum => Part::Product,
            (Some(_), None) => Part::RowReduction,
            (None, Some(_)) => Part::Elementwise,
            _ => return None,
        };
        let fits = s.axes.len() - usize::from(across.is_some()) == rows.len();
        fits.then(|| Link { stage: s.name.clone(), part, across, reduction })
    };
    let all: Vec<Link> = w.stages.iter().map(link).collect::<Option<_>>()?;
    // Between the products every row is reduced: without that they are products in a chain.
    let place = |p: Part| all.iter().position(|l| l.part == p);
    (place(Part::Product)? < place(Part::RowReduction)?).then_some((all, rows))
}

pub fn derive(f: &Facts<'_>) -> Vec<Sketch> {
    sketch(f).into_iter().collect()
}

fn sketch(f: &Facts<'_>) -> Option<Sketch> {
    let (links, of_rows) = links(f)?;
    let w = f.workload;
    let (mut n, mut prefix) = start(w);
    let name = |axis: &Axis, stage: &str| format!("{}_{stage}", axis.name);
    for l in links.iter().filter(|l| l.part == Part::Elementwise) {
        let own = of_rows.iter().map(|a| name(a, &l.stage));
        let loops: Vec<String> = own.chain(l.across.iter().map(|a| a.0.clone())).collect();
        let stage = w.stages.iter().find(|s| s.name == l.stage)?;
        if !stage.axes.iter().map(|a| name(a, &l.stage)).eq(loops.iter().cloned()) {
            attempt(&mut n, &mut prefix, vec![Primitive::Reorder { loops }])?;
        }
    }
    // All stages share the loops over batches and rows.
    let mut shared = Vec::new();
    for axis in &of_rows {
        let first = name(axis, &links[0].stage);
        let join =
            |l: &Link| Primitive::Join { first: first.clone(), second: name(axis, &l.stage) };
        attempt(&mut n, &mut prefix, links[1..].iter().map(join).collect())?;
        shared.push((first, axis.extent));
    }
    let (row, rows) = shared.pop()?;
    let most = f.target.lanes_f32();
    let knobs = vec![
        Knob::ints("rows", Role::Tile { axis: "m".into(), level: 0 }, 1..=8.min(rows)),
        Knob::ints("lanes", Role::Vector, powers(1, most)),
        Knob::ints("scores", Role::Tile { axis: "n".into(), level: 0 }, [1, 2, 3, 4]),
        Knob::ints("columns", Role::Tile { axis: "c".into(), level: 0 }, [1, 2, 3, 4]),
        Knob::ints("chains", Role::Unroll, [1, 2, 4]),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4]),
        Knob::words("pack", Role::Layout, &["no", "yes"]),
    ];
    let least = links.iter().filter_map(|l| Some(l.across.as_ref()?.1)).min()?;
    let tile = |k: &str| Term::product([Term::knob("lanes"), Term::knob(k)]).at_most(least);
    let registers = |k: &str| Term::product([Term::knob("rows"), Term::knob(k)]).at_most(16);
    let constraints = [
        tile("scores"),
        tile("columns"),
        tile("chains"),
        registers("scores"),
        registers("columns"),
    ];
    let space = Space::new(knobs, &constraints).ok()?;
    // The second factor of the first product, which its lanes read across.
    let keys = w.stages.first()?.body.loads().get(1).map(|l| w.inputs[l.0.0 as usize].name.clone());
    let locals: Vec<String> =
        n.buffers.iter().filter(|b| b.scope == Scope::Workspace).map(|b| b.name.clone()).collect();
    let threads = f.target.threads;
    let top = shared.first().map_or_else(|| "rows_o".to_string(), |s| s.0.clone());
    let batch = shared.last().map(|s| s.0.clone());
    let primitives = move |c: &squall_core::Configuration| {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let mut p = vec![split(&row, get("rows"), "rows_o", "rows_i")];
        let of = |l: &Link| format!("row_{}", l.stage);
        // A reduction of rows begins with a statement of its own.
        let mut names = Vec::new();
        for l in &links {
            if l.part == Part::RowReduction {
                names.push(format!("{}_init", of(l)));
            }
            names.push(of(l));
        }
        p.push(Primitive::Fission { of: "rows_i".into(), names });
        for b in &locals {
            p.push(Primitive::Contract { buffer: b.clone(), at: "rows_o".into() });
        }
        let mut products = ["scores", "columns"].into_iter();
        for (i, l) in links.iter().enumerate() {
            match l.part {
                Part::Product => {
                    let vectors = get(products.next().unwrap_or("columns"));
                    product(&mut p, i, l, &of(l), get("lanes"), vectors, get("unroll"));
                }
                Part::RowReduction => {
                    if let Some((name, extent)) = &l.reduction {
                        let pass = rows::pass(name, *extent, true);
                        rows::one(&mut p, i, &pass, get("lanes"), get("chains"), 1);
                    }
                }
                Part::Elementwise => {
                    if let Some((name, extent)) = &l.across {
                        let pass = rows::pass(name, *extent, false);
                        rows::one(&mut p, i, &pass, get("lanes"), 1, get("chains"));
                    }
                }
            }
        }
        if let (Some("yes"), Some(buffer), Some(at)) = (c.word("pack"), &keys, &batch) {
            let packed = format!("{buffer}_packed");
            p.push(Primitive::Pack { buffer: buffer.clone(), at: at.clone(), packed });
        }
        if threads > 1 {
            p.push(parallel(top.clone()));
        }
        p
    };
    Some(Sketch {
        name: "attention".into(),
        target: f.target.clone(),
        space,
        base: n,
        prefix,
        primitives: Box::new(primitives),
        full_optimisation: false,
    })
}

/// A product of a tile of rows by vectors of its last axis, which are held in registers over the
/// whole reduction.
fn product(
    p: &mut Vec<Primitive>,
    i: usize,
    l: &Link,
    row: &str,
    lanes: i64,
    vectors: i64,
    unrolled: i64,
) {
    let (Some((across, _)), Some((sum, extent))) = (&l.across, &l.reduction) else { return };
    let at = |s: &str| format!("{s}{i}");
    p.push(split(across, lanes * vectors, at("to"), at("ti")));
    p.push(split(&at("ti"), lanes, at("tu"), at("tv")));
    let tile = [row.to_string(), at("tu"), at("tv")];
    let order = |first: &str| [vec![first.to_string()], tile.to_vec()].concat();
    p.push(Primitive::Reorder { loops: order(&at("to")) });
    for t in tile.iter().rev() {
        let names = vec![format!("{t}i"), t.clone()];
        p.push(Primitive::Fission { of: t.clone(), names });
    }
    p.push(Primitive::Reorder { loops: order(sum) });
    let mut root = sum.clone();
    if let Some(d) = super::divisors(*extent).into_iter().rfind(|d| *d <= unrolled && *d > 1) {
        p.push(split(sum, d, at("so"), at("su")));
        p.push(unroll(at("su")));
        root = at("so");
    }
    for suffix in ["", "i"] {
        p.push(unroll(format!("{row}{suffix}")));
        p.push(unroll(at("tu") + suffix));
        p.push(vectorize(at("tv") + suffix));
    }
    p.push(Primitive::CacheWrite { at: root, buffer: l.stage.clone(), local: at("acc") });
}
