//! Tiles of factors that arrive as boxes (compute capability 9.0): the copy engine fetches them by
//! itself, told of the tensor once. Threads neither work out addresses nor hold what is on its way,
//! which leaves more of the power that a GPU may draw to the tensor cores (docs/decisions/0030).
//!
//! In shared memory a tile consists of rows of 128 bytes, swizzled: 64 elements of the reduction, a
//! row of the tile each; or, where a factor lies across, 64 rows of the tile, an element of the
//! reduction each.

use super::around;
use super::group::ROWS;
use super::problem::Problem;
use super::tensor::{Factor, Layout, Roles};
use super::tensor_tile::{Tiling, guarded};
use crate::nest::{MOST_SPANNED, MOST_STEP, Mode, Scope, Stmt};
use squall_core::Gpu;
use squall_core::expr::{Affine, Cond, Expr, Source, Var};
use squall_core::space::Term;

/// The dimension of its source that an axis moves along, and how far.
fn moves(p: &Problem, f: &Factor, axis: usize) -> Option<i64> {
    let mut found = p.operands[f.operand].index.iter().filter(|i| i.uses(p.axes[axis].var));
    let first = found.next()?.coefficient(p.axes[axis].var);
    found.next().is_none().then_some(first)
}

/// Whether a factor's tiles are boxes of a tensor.
fn is_box(p: &Problem, f: &Factor) -> bool {
    let o = &p.operands[f.operand];
    if f.layout == Layout::Packed {
        return true;
    }
    // Rows of copies are filled up.
    let aligned = f.layout == Layout::Turned
        || p.base.buffer(o.source).shape.last().is_some_and(|x| x % 8 == 0);
    let apart =
        o.index.iter().all(|i| f.axes.iter().filter(|&&a| i.uses(p.axes[a].var)).count() <= 1);
    let steps =
        f.axes.iter().all(|&a| moves(p, f, a).is_some_and(|c| (1..=MOST_STEP).contains(&c)));
    // Outside are zeros, as conditions say.
    let zeros = |c: &Cond| {
        o.index
            .iter()
            .any(|i| i.terms() == c.index.terms() && c.low <= c.index.offset() - i.offset())
    };
    let layout = matches!(f.layout, Layout::Along | Layout::Across | Layout::Turned);
    layout
        && aligned
        && apart
        && steps
        && o.index[f.along].terms().len() == 1
        && o.conds.iter().all(zeros)
}

/// What holds in a space where tiles arrive as boxes, which `boxed` says, in steps of `whole`
/// elements of the reduction; nothing where they cannot.
pub(super) fn constraints(
    p: &Problem,
    roles: &Roles,
    gpu: Gpu,
    boxed: &Term,
    whole: &Term,
) -> Option<Vec<Term>> {
    let both = [&roles.rows, &roles.columns];
    if gpu.capability < 90 || !roles.format.is_half() || !both.iter().all(|f| is_box(p, f)) {
        return None;
    }
    let knob = |a: usize| Term::knob(format!("{}_b", p.axes[a].short));
    let unboxed = || boxed.clone().equals(0);
    let mut out = Vec::new();
    for f in both {
        let rows = unboxed().or(Term::from(ROWS).divides(whole.clone()));
        match (f.layout, f.axes.split_last()) {
            (Layout::Across, Some((&last, before))) => {
                let others = Term::product(before.iter().map(|&a| knob(a))).equals(1);
                let across = Term::product([
                    Term::from(ROWS).divides(knob(last)),
                    others.or(knob(last).at_most(ROWS)),
                ]);
                out.push(unboxed().or(across));
            }
            _ => out.push(rows),
        }
        if f.layout != Layout::Packed {
            for &a in &f.axes {
                let c = moves(p, f, a).unwrap_or(1);
                if c > 1 {
                    out.push(
                        unboxed()
                            .or(Term::product([Term::from(c), knob(a)])
                                .at_most(MOST_SPANNED + c - 1)),
                    );
                }
            }
        }
    }
    Some(out)
}

impl Tiling<'_> {
    /// The swizzled rows of a factor's tiles.
    pub(super) fn box_tile(&mut self, f: &Factor, from: Source) -> Source {
        let lines = self.lines(f);
        let shape = match f.layout {
            Layout::Across => vec![self.stages, lines / ROWS, self.whole(), ROWS],
            _ => vec![self.stages, self.whole() / ROWS, (lines + 7) / 8 * 8, ROWS],
        };
        let name = format!("{}_s", self.n.buffer(from).name);
        self.buffer(&name, shape, Scope::Swizzled, self.format)
    }

    /// Copies a factor's tile at a step, which counts the chunks of all blocks, to one of the
    /// stages.
    pub(super) fn boxes(
        &mut self,
        f: &Factor,
        (from, to): (Source, Source),
        number: &Affine,
        window: &[Affine],
        stage: &Affine,
    ) -> Vec<Stmt> {
        let across = (f.layout == Layout::Across).then(|| f.axes.last().copied()).flatten();
        let blocks = across.map_or(self.whole(), |a| self.size[a]) / ROWS;
        let mut out = Vec::new();
        for block in 0..blocks {
            let mut at = vec![Affine::constant(0); self.p.axes.len()];
            let mut loops: Vec<(Var, i64)> = Vec::new();
            for &a in f.axes.iter().filter(|a| Some(**a) != across) {
                let v = self.n.new_var(&format!("{}x", self.p.axes[a].short));
                loops.push((v, self.size[a]));
                at[a] = Affine::var(v);
            }
            let inner = self.n.new_var("v");
            let row = Affine::new([(inner, 1)], block * ROWS);
            let (main, mut index) = match across {
                Some(a) => {
                    let x = self.n.new_var("xk");
                    let lead = self.lead(f, &at);
                    at[a] = row;
                    loops.push((x, self.whole()));
                    (Affine::var(x), vec![lead.plus(block), Affine::var(x)])
                }
                None => (row, vec![Affine::constant(block), self.place(f, &at)]),
            };
            loops.push((inner, ROWS));
            // Where a step is one row of elements, there is nothing to count.
            if across.is_none() && self.n.buffer(to).shape.len() == 3 {
                index.remove(0);
            }
            let index =
                [stage.clone()].into_iter().chain(index).chain([Affine::var(inner)]).collect();
            let value = self.fetched(f, from, number, window, &at, &main);
            out.extend(around(&loops, Mode::Box, vec![Stmt::Store { buffer: to, index, value }]));
        }
        out
    }

    /// Blocks of 64 of the last axis that lie before an element of the others, in the order of all
    /// rows.
    pub(super) fn lead(&self, f: &Factor, at: &[Affine]) -> Affine {
        let lead = self.place(f, at);
        Affine::new(lead.terms().iter().map(|t| (t.0, t.1 / ROWS)), lead.offset() / ROWS)
    }

    /// Where a slice's matrices lie in a tile: the digits that count its rows, and the place of a
    /// column and a row.
    pub(super) fn swizzled(
        &mut self,
        f: &Factor,
        stage: &Affine,
        slice: i64,
        column: Var,
    ) -> (Vec<(Var, i64)>, Vec<Affine>) {
        let lines = self.lines(f);
        let from = slice * self.depth;
        if f.layout == Layout::Across {
            let [block, place] = ["block", "place"].map(|x| self.n.new_var(x));
            let main = Affine::new([(self.group, self.chunk), (column, 1)], from);
            return (
                vec![(block, lines / ROWS), (place, ROWS)],
                vec![stage.clone(), Affine::var(block), main, Affine::var(place)],
            );
        }
        let line = self.n.new_var("line");
        // Chunks of groups of warps are whole rows, or all of them are one.
        let rows = self.chunk % ROWS == 0;
        let (far, near) = if rows { (self.chunk / ROWS, 0) } else { (0, self.chunk) };
        let block = Affine::new([(self.group, far)], from / ROWS);
        let place = Affine::new([(self.group, near), (column, 1)], from % ROWS);
        (vec![(line, lines)], vec![stage.clone(), block, Affine::var(line), place])
    }

    /// The element of a factor at a row of the tile and place in a step's part of the reduction;
    /// zero outside.
    pub(super) fn fetched(
        &self,
        f: &Factor,
        from: Source,
        number: &Affine,
        window: &[Affine],
        at: &[Affine],
        main: &Affine,
    ) -> Expr {
        let p = self.p;
        if f.layout == Layout::Packed {
            let o = &p.operands[f.operand];
            let used = |v: Var| o.index.iter().any(|i| i.uses(v));
            let axes: Vec<usize> = (0..p.axes.len()).filter(|&a| used(p.axes[a].var)).collect();
            let mut index: Vec<Affine> = axes.iter().map(|&a| Affine::var(self.block[a])).collect();
            index.push(number.clone());
            index.extend(
                (1..p.reduce.len())
                    .filter(|&r| used(p.reduce[r].var))
                    .map(|r| window[r - 1].clone()),
            );
            index.extend(axes.iter().map(|&a| at[a].clone()));
            index.push(main.clone());
            return Expr::load(from, index);
        }
        let k = number.scale(self.whole()).add(main);
        let o = self.operands[f.operand].clone();
        let place = |v: Var| match (
            p.axes.iter().position(|a| a.var == v),
            p.reduce.iter().position(|r| r.var == v),
        ) {
            (Some(a), _) => at[a].add(&Affine::var(self.start[a])),
            (None, Some(0)) => k.clone(),
            (None, Some(r)) => window[r - 1].clone(),
            (None, None) => Affine::var(v),
        };
        let mut conds: Vec<Cond> =
            o.conds.iter().map(|c| Cond { index: c.index.map_vars(place), ..c.clone() }).collect();
        if !f.filled && self.runs_over() {
            conds.push(Cond { index: k.clone(), low: 0, high: p.reduce[0].extent });
        }
        guarded(conds, Expr::load(from, o.index.iter().map(|i| i.map_vars(place)).collect()))
    }
}
