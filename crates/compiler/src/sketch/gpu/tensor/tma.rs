//! TMA tiles (compute capability 9.0): tiles of factors that a GPU's copy engine, the tensor memory
//! accelerator, brings to shared memory by itself, from a description of the tensor that it is
//! given once (a tensor map). Threads neither compute addresses nor hold elements on their way,
//! which leaves more of a GPU's power budget to the tensor cores (docs/decisions/0030).
//!
//! This file decides whether a factor can be fetched so and under which constraints on the knobs,
//! and writes the copying loops (mode `tma`) for `load.rs`. `nest/tma_tile.rs` reads the tensor map
//! back from these loops.

use super::super::loops::around;
use super::super::problem::Contraction;
use super::roles::{Factor, Roles, SWIZZLED_ROW, TileLayout, tile_knob};
use super::tile::{Step, Tiling};
use crate::nest::{MOST_SPANNED, MOST_STEP, Mode, Stmt};
use squall_core::Gpu;
use squall_core::expr::{Affine, Cond, Source, Var};
use squall_core::space::Term;

/// How far an axis moves along the one dimension of a factor that it moves along; `None` where
/// there are several.
fn moves(p: &Contraction, f: &Factor, axis: usize) -> Option<i64> {
    let mut found = p.operands[f.operand].index.iter().filter(|i| i.uses(p.axes[axis].var));
    let first = found.next()?.coefficient(p.axes[axis].var);
    found.next().is_none().then_some(first)
}

/// Whether the copy engine can fetch a factor's tiles.
fn is_tma_tile(p: &Contraction, f: &Factor) -> bool {
    let o = &p.operands[f.operand];
    if f.layout == TileLayout::Packed {
        return true;
    }
    // Rows of copies are filled up.
    let aligned = f.layout == TileLayout::Transposed
        || p.base.buffer(o.source).shape.last().is_some_and(|x| x % 8 == 0);
    let apart =
        o.index.iter().all(|i| f.axes.iter().filter(|&&a| i.uses(p.axes[a].var)).count() <= 1);
    let steps =
        f.axes.iter().all(|&a| moves(p, f, a).is_some_and(|c| (1..=MOST_STEP).contains(&c)));
    // The engine fills in zeros outside of the tensor, so the conditions must ask for zeros there.
    let zeros = |c: &Cond| {
        o.index
            .iter()
            .any(|i| i.terms() == c.index.terms() && c.low <= c.index.offset() - i.offset())
    };
    let layout =
        matches!(f.layout, TileLayout::KMajor | TileLayout::MnMajor | TileLayout::Transposed);
    layout
        && aligned
        && apart
        && steps
        && o.index[f.along].terms().len() == 1
        && o.conds.iter().all(zeros)
}

/// The constraints under which tiles arrive as TMA tiles, in steps of `whole` elements of the
/// reduction; `None` where they cannot.
pub fn constraints(p: &Contraction, roles: &Roles, gpu: Gpu, whole: &Term) -> Option<Vec<Term>> {
    let both = roles.both();
    if gpu.capability < 90 || !roles.format.is_half() || !both.iter().all(|f| is_tma_tile(p, f)) {
        return None;
    }
    let knob = |a: usize| tile_knob(p, a);
    let mut out = Vec::new();
    for f in both {
        match (f.layout, f.axes.split_last()) {
            (TileLayout::MnMajor, Some((&last, before))) => {
                let alone = Term::product(before.iter().map(|&a| knob(a))).equals(1);
                out.push(Term::from(SWIZZLED_ROW).divides(knob(last)));
                out.push(alone.or(knob(last).at_most(SWIZZLED_ROW)));
            }
            _ => out.push(Term::from(SWIZZLED_ROW).divides(whole.clone())),
        }
        if f.layout != TileLayout::Packed {
            let far = f.axes.iter().map(|&a| (a, moves(p, f, a).unwrap_or(1)));
            out.extend(far.filter(|(_, c)| *c > 1).map(|(a, c)| {
                Term::product([Term::from(c), knob(a)]).at_most(MOST_SPANNED + c - 1)
            }));
        }
    }
    Some(out)
}

impl Tiling<'_> {
    /// Copies a factor's tile at a step to one of the stages.
    pub fn tma_copies(
        &mut self,
        f: &Factor,
        from: Source,
        to: Source,
        step: &Step,
        stage: &Affine,
    ) -> Vec<Stmt> {
        let across = (f.layout == TileLayout::MnMajor).then(|| f.axes.last().copied()).flatten();
        let blocks = across.map_or(self.whole(), |a| self.size[a]) / SWIZZLED_ROW;
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
            let row = Affine::new([(inner, 1)], block * SWIZZLED_ROW);
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
            loops.push((inner, SWIZZLED_ROW));
            // Where a step is one row of elements, there is nothing to count.
            if across.is_none() && self.n.buffer(to).shape.len() == 3 {
                index.remove(0);
            }
            let index =
                [stage.clone()].into_iter().chain(index).chain([Affine::var(inner)]).collect();
            let value = self.element(f, from, step, &at, &main);
            out.extend(around(&loops, Mode::Tma, vec![Stmt::Store { buffer: to, index, value }]));
        }
        out
    }
}
