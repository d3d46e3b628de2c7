//! The CPU sketch of attention: two matrix products with a softmax between them
//! (`core/src/operator/attention.rs` builds the workload). Input: a workload; output: a sketch,
//! that is, its loop nest and the schedule primitives of each configuration. A tile of rows is
//! carried through all stages: its scores, which plain loops would keep for all rows at once, stay
//! in a near cache, and memory grows with the tokens, not with their square. Each product has a
//! register tile of rows by vectors; the maxima and sums of a row run in vector lanes.
//! `gpu/attention` has the sketches for GPUs.

use super::short::{parallel, split, unroll, vectorize};
use super::{Facts, Sketch, attempt, divisors, powers, rows, start};
use crate::nest::{Nest, Scope};
use crate::schedule::Primitive;
use squall_core::space::{Knob, Role, Term};
use squall_core::workload::{Axis, Reducer, Stage};
use squall_core::{Configuration, Space, Workload};

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

/// A stage of the workload with the names of its loops beside those over rows: its last axis and
/// its reduction.
#[derive(Clone)]
struct Link {
    stage: String,
    part: Part,
    /// The last axis with its extent, where it is not an axis of rows.
    across: Option<(String, i64)>,
    reduction: Option<(String, i64)>,
}

/// The chain of stages around two products, and the axes of rows; none where the workload has
/// another form.
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
        // What the output is made of may have its axes in another order.
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
    let mut shared = join(w, &links, &of_rows, &mut n, &mut prefix)?;
    let space = space(f, &links, of_rows.last()?.extent)?;
    let row = shared.pop()?;
    // The second factor of the first product, which its lanes read across.
    let second = w.stages.first()?.body.loads().get(1).map(|l| l.0.0 as usize);
    let chain = Chain {
        links,
        locals: n
            .buffers
            .iter()
            .filter(|b| b.scope == Scope::Workspace)
            .map(|b| b.name.clone())
            .collect(),
        keys: second.and_then(|i| w.inputs.get(i)).map(|i| i.name.clone()),
        row,
        outer: shared.first().cloned(),
        batch: shared.last().cloned(),
        threads: f.target.threads,
    };
    Some(Sketch {
        name: "attention".into(),
        target: f.target.clone(),
        space,
        base: n,
        prefix,
        primitives: Box::new(move |c| chain.primitives(c)),
        full_optimisation: false,
        template: None,
        both: None,
    })
}

/// Gives all stages one common loop over each axis of rows; returns the loops' names.
fn join(
    w: &Workload,
    links: &[Link],
    rows: &[Axis],
    n: &mut Nest,
    prefix: &mut Vec<Primitive>,
) -> Option<Vec<String>> {
    let name = |axis: &Axis, stage: &str| format!("{}_{stage}", axis.name);
    for l in links.iter().filter(|l| l.across.is_some()) {
        let own = rows.iter().map(|a| name(a, &l.stage));
        let loops: Vec<String> = own.chain(l.across.iter().map(|a| a.0.clone())).collect();
        let stage = w.stages.iter().find(|s| s.name == l.stage)?;
        if !stage.axes.iter().map(|a| name(a, &l.stage)).eq(loops.iter().cloned()) {
            attempt(n, prefix, vec![Primitive::Reorder { loops }])?;
        }
    }
    let mut shared = Vec::new();
    for axis in rows {
        let first = name(axis, &links[0].stage);
        let join =
            |l: &Link| Primitive::Join { first: first.clone(), second: name(axis, &l.stage) };
        attempt(n, prefix, links[1..].iter().map(join).collect())?;
        shared.push(first);
    }
    Some(shared)
}

fn space(f: &Facts<'_>, links: &[Link], rows: i64) -> Option<Space> {
    let knobs = vec![
        Knob::ints("rows", Role::Tile { axis: "m".into(), level: 0 }, 1..=8.min(rows)),
        Knob::ints("lanes", Role::Vector, powers(1, f.target.lanes_f32())),
        Knob::ints("scores", Role::Tile { axis: "n".into(), level: 0 }, [1, 2, 3, 4]),
        Knob::ints("columns", Role::Tile { axis: "c".into(), level: 0 }, [1, 2, 3, 4]),
        Knob::ints("chains", Role::Unroll, [1, 2, 4]),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4]),
        Knob::words("pack", Role::Layout, &["no", "yes"]),
    ];
    let least = links.iter().filter_map(|l| Some(l.across.as_ref()?.1)).min()?;
    let tile = |k: &str| Term::product([Term::knob("lanes"), Term::knob(k)]).at_most(least);
    let most = f.target.vector_registers() as i64;
    let sums = |k: &str| Term::product([Term::knob("rows"), Term::knob(k)]).at_most(most);
    let all = [tile("scores"), tile("columns"), tile("chains"), sums("scores"), sums("columns")];
    Space::new(knobs, &all).ok()
}

/// What the schedules of a chain have in common.
struct Chain {
    links: Vec<Link>,
    /// What lies between the stages.
    locals: Vec<String>,
    /// What the lanes of the first product read across.
    keys: Option<String>,
    /// The loop over rows, the outermost one around it and the innermost one, where there are any.
    row: String,
    outer: Option<String>,
    batch: Option<String>,
    threads: usize,
}

impl Chain {
    fn primitives(&self, c: &Configuration) -> Vec<Primitive> {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let mut p = vec![split(&self.row, get("rows"), "rows_o", "rows_i")];
        // A reduction of rows begins with a statement of its own.
        let mut names = Vec::new();
        for l in &self.links {
            if l.part == Part::RowReduction {
                names.push(format!("{}_init", l.row()));
            }
            names.push(l.row());
        }
        p.push(Primitive::Fission { of: "rows_i".into(), names });
        for b in &self.locals {
            p.push(Primitive::Contract { buffer: b.clone(), at: "rows_o".into() });
        }
        let mut vectors = ["scores", "columns"].into_iter();
        for (i, l) in self.links.iter().enumerate() {
            let pass = |over: &Option<(String, i64)>, reduces| {
                over.as_ref().map(|(name, extent)| rows::pass(name, *extent, reduces))
            };
            match l.part {
                Part::Product => l.product(&mut p, i, c, vectors.next().unwrap_or("columns")),
                Part::RowReduction => {
                    if let Some(pass) = pass(&l.reduction, true) {
                        rows::one(&mut p, i, &pass, get("lanes"), get("chains"), 1);
                    }
                }
                Part::Elementwise => {
                    if let Some(pass) = pass(&l.across, false) {
                        rows::one(&mut p, i, &pass, get("lanes"), 1, get("chains"));
                    }
                }
            }
        }
        if let (Some("yes"), Some(buffer)) = (c.word("pack"), &self.keys) {
            let (buffer, packed) = (buffer.clone(), format!("{buffer}_packed"));
            let at = self.batch.clone().unwrap_or_else(|| "rows_o".into());
            p.push(Primitive::Pack { buffer, at, packed });
        }
        if self.threads > 1 {
            p.push(parallel(self.outer.clone().unwrap_or_else(|| "rows_o".into())));
        }
        p
    }
}

impl Link {
    /// The loop over the rows of a tile.
    fn row(&self) -> String {
        format!("row_{}", self.stage)
    }

    /// A product of a tile of rows by vectors of its last axis, which are held in registers over
    /// the whole reduction; `knob` says how many vectors.
    fn product(&self, p: &mut Vec<Primitive>, i: usize, c: &Configuration, knob: &str) {
        let (Some((across, _)), Some((sum, extent))) = (&self.across, &self.reduction) else {
            return;
        };
        let get = |k: &str| c.int(k).unwrap_or(1);
        let (lanes, row) = (get("lanes"), self.row());
        let at = |s: &str| format!("{s}{i}");
        p.push(split(across, lanes * get(knob), at("to"), at("ti")));
        p.push(split(&at("ti"), lanes, at("tu"), at("tv")));
        let tile = [row.clone(), at("tu"), at("tv")];
        let order = |first: &str| [vec![first.to_string()], tile.to_vec()].concat();
        p.push(Primitive::Reorder { loops: order(&at("to")) });
        for t in tile.iter().rev() {
            let names = vec![format!("{t}i"), t.clone()];
            p.push(Primitive::Fission { of: t.clone(), names });
        }
        p.push(Primitive::Reorder { loops: order(sum) });
        let (mut root, unrolled) = (sum.clone(), get("unroll"));
        if let Some(d) = divisors(*extent).into_iter().rfind(|d| *d <= unrolled && *d > 1) {
            p.push(split(sum, d, at("so"), at("su")));
            p.push(unroll(at("su")));
            root = at("so");
        }
        for suffix in ["", "i"] {
            p.push(unroll(format!("{row}{suffix}")));
            p.push(unroll(at("tu") + suffix));
            p.push(vectorize(at("tv") + suffix));
        }
        let (buffer, local) = (self.stage.clone(), at("acc"));
        p.push(Primitive::CacheWrite { at: root, buffer, local });
    }
}
