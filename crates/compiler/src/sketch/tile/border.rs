//! The padded copy of an image: its innermost loop, and between which positions that loop reads
//! data and not the border. Schedules cut the loop there (`peel`), so that the inside needs no
//! tests and can be vectorised.
//!
//! Input: a loop nest and the name of the main stage's buffer. Output: a [`Border`], from which
//! `primitives.rs` schedules the copy, and [`TestsOfLanes`], which says whether tests at each read
//! allow vector lanes.

use super::{Main, Pad, TileAxis, computes, stride};
use crate::nest::{Nest, Scope, Stmt, aligned_bytes};
use squall_core::expr::{Affine, Binary, Cond, Expr, Names, Source, Var};
use squall_core::{DType, Target};

/// The loop of a padded copy that runs through a low border, data, and a high border: the innermost
/// loop, or the one around the channels where pairs lie along a row.
pub(super) struct Border {
    pub name: String,
    /// Whether the loop is the innermost, whose steps are lanes.
    pub is_innermost: bool,
    /// Whether consecutive steps read elements that are not neighbours in memory.
    pub takes_steps: bool,
    pub low: i64,
    pub high: i64,
    pub extent: i64,
}

/// How the tests of a sum's reads (whether an element lies in the border) differ between lanes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TestsOfLanes {
    /// A test is the same for all lanes.
    None,
    /// A test differs between lanes, and each lane then loads from neighbours or from every second
    /// element, or is a constant.
    OfLoads,
    /// Lanes differ in more than the elements that they load.
    Others,
}

impl TestsOfLanes {
    /// Whether lanes with such tests are still faster than others; lanes that differ in more than
    /// the elements that they load are computed one by one.
    pub fn is_worth_it(self, is_for_few: bool) -> bool {
        self == TestsOfLanes::None || self == TestsOfLanes::OfLoads && is_for_few
    }
}

/// How the tests of the values added to a buffer differ between the lanes that `lane` counts.
pub(super) fn tests_of_lanes(n: &Nest, name: &str, lane: Var) -> TestsOfLanes {
    let target = n.find_buffer(name);
    let is_load = |then: &Expr| match then {
        Expr::Load { source, index } => {
            n.buffer(*source).dtype == DType::F32
                && [1, 2].contains(&stride(n, *source, index, lane))
        }
        _ => false,
    };
    let of = |e: &Expr| match e {
        Expr::Select { conds, then, other } if conds.iter().any(|c| c.index.uses(lane)) => {
            match is_load(then) && matches!(**other, Expr::Const(_)) {
                true => TestsOfLanes::OfLoads,
                false => TestsOfLanes::Others,
            }
        }
        _ => TestsOfLanes::None,
    };
    let mut found = TestsOfLanes::None;
    crate::nest::visit(&n.body, &mut |s| match s {
        Stmt::Update { buffer, value, .. } if Some(*buffer) == target => {
            value.visit(&mut |e| found = found.max(of(e)));
        }
        _ => {}
    });
    found
}

/// The part of a sketch's name that says how padding is computed.
pub(super) fn pad_name(pad: Pad) -> &'static str {
    match pad {
        Pad::None => "",
        Pad::Copy => ",pad=copy",
        Pad::Guard => ",pad=guard",
        Pad::Near => ",pad=near",
    }
}

/// The innermost loop of the padded copy and where its inside begins and ends.
pub(super) fn copy_loops(n: &Nest, pad: Pad) -> (Option<Border>, Option<String>) {
    if !matches!(pad, Pad::Copy | Pad::Near) {
        return (None, None);
    }
    let mut found = (None, None);
    for top in &n.body {
        let mut chain = Vec::new();
        copy_chain(n, top, &mut chain, &mut |chain, (conds, value), pairs| {
            // Inside of the loop over pairs along a row lies that over the channels.
            let at = chain.len().checked_sub(if pairs { 2 } else { 1 });
            let Some((v, extent)) = at.map(|i| chain[i]) else { return };
            let (low, high) = inside(conds, v, extent, chain, pairs);
            let name = n.var(v).to_string();
            // One of several phases.
            let is_apart = |i: &Affine| i.coefficient(v) > 1 && i.terms().len() > 1;
            let loads = value.loads();
            let takes_steps = !pairs && loads.iter().any(|(_, i)| i.last().is_some_and(is_apart));
            found = (
                Some(Border { name, is_innermost: !pairs, takes_steps, low, high, extent }),
                Some(n.var(chain[0].0).to_string()),
            );
        });
    }
    found
}

/// The steps of a loop for which all tests of it hold, wherever the other loops are: from the first
/// to behind the last. Only pairs and phases take several places a step.
fn inside(conds: &[Cond], v: Var, extent: i64, chain: &[(Var, i64)], pairs: bool) -> (i64, i64) {
    let last = |u: Var| chain.iter().find(|(w, _)| *w == u).map_or(0, |(_, extent)| extent - 1);
    let of_loop = |c: &&Cond| {
        let step = c.index.coefficient(v);
        step > 0 && (c.index.terms().len() > 1 || step == 1 || pairs && step == 2)
    };
    conds.iter().filter(of_loop).fold((0, extent), |(low, high), c| {
        let step = c.index.coefficient(v);
        let mut others = c.index.clone();
        others.add_term(v, -step);
        let (least, most) = others.range(last);
        // The quotient rounded up.
        let from = |bound: i64, offset: i64| (bound - offset + step - 1).div_euclid(step);
        let low = from(c.low, least).clamp(low, extent);
        (low, from(c.high, most).min(high).max(low))
    })
}

impl Main<'_> {
    /// See [`super::Shape::rows_of_copy`]; the dimensions of the `border` and behind it stay
    /// whole, for its beginning and its end are steps of their own.
    pub(super) fn rows_of_copy(
        &self,
        t: &Target,
        tiled: &[TileAxis],
        border: Option<&Border>,
    ) -> Option<(String, usize)> {
        let is_near = |b: Source| self.base.buffer(b).scope == Scope::Local;
        let (copy, index) = self.operands.iter().find(|(b, _)| is_near(*b))?;
        let copy = self.base.buffer(*copy);
        let kept = if border?.is_innermost { 1 } else { 2 };
        let (rows, along) = index.split_at(index.len().checked_sub(kept)?);
        let is_row = |a: &TileAxis| {
            rows.iter().any(|i| i.uses(a.var)) && !along.iter().any(|i| i.uses(a.var))
        };
        let found = tiled.iter().position(is_row)?;
        (aligned_bytes(copy) > t.cache(1)).then(|| (copy.name.clone(), found))
    }
}

/// Called with the loops around a copy, the stored value with its tests, and whether pairs along a
/// row are stored with channels innermost.
type Visit<'a> = &'a mut dyn FnMut(&[(Var, i64)], (&[Cond], &Expr), bool);

fn copy_chain(n: &Nest, s: &Stmt, chain: &mut Vec<(Var, i64)>, f: Visit<'_>) {
    match s {
        Stmt::Loop(l) => {
            chain.push((l.var, l.extent));
            l.body.iter().for_each(|s| copy_chain(n, s, chain, f));
            chain.pop();
        }
        Stmt::Store { value: value @ Expr::Select { conds, .. }, .. } => {
            f(chain, (conds, value), false);
        }
        Stmt::Store { value: value @ Expr::Binary(Binary::Pair, low, high), .. }
            if let [Expr::Select { conds, .. }, Expr::Select { conds: more, .. }] =
                [&**low, &**high]
                && chain.len() > 1
                && chain.last().is_some_and(|(v, _)| !conds.iter().any(|c| c.index.uses(*v))) =>
        {
            f(chain, (&[&conds[..], more].concat(), value), true);
        }
        // Values computed ahead have no border.
        Stmt::Store { buffer, value, .. }
            if n.buffer(*buffer).scope != Scope::Output && computes(value) =>
        {
            f(chain, (&[], value), false);
        }
        _ => {}
    }
}
