//! Products of bf16 by pairs: a workload over bf16 is rewritten over elements `bf16x2`, two numbers
//! that lie side by side along the reduction, in the same memory. One instruction (`vdpbf16ps`)
//! then multiplies the pairs of all lanes, at twice the rate of floats.
//!
//! The data must have the reduction's axis last in memory, as images with their channels last and
//! the rows of a matrix product do. Weights in another order are brought into pairs before the
//! call, and data in another order is copied into pairs if each element is read often enough. A
//! first layer of stride two has its channels first: there the padded copy is made of pairs along a
//! row, and a window of odd width gets a column of zeros. `sketch/mod.rs` derives the sketches by
//! tiles for the rewritten workload.

use super::factors::{self, only_product, put_ahead, readers};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Var};
use squall_core::workload::{Axis, Stage};
use squall_core::{DType, TensorKind, Workload};

/// How often each element of data must be read for a copy of pairs to pay off.
const WORTH_PAIRING: i64 = 16;

/// The workload over pairs; `None` where it has no product of bf16 that pairs can compute. Its
/// inputs are the same bytes as those of the given workload.
pub fn by_pairs(w: &Workload) -> Option<Workload> {
    if !w.inputs.iter().any(|i| i.dtype == DType::Bf16) {
        return None;
    }
    let (main, x, y) = only_product(w, Binary::Mul)?;
    let (Expr::Load { .. }, Expr::Load { .. }) = (x, y) else { return None };
    let stage = &w.stages[main];
    let first = stage.axes.len() as u32;
    let reduce = || stage.reduce_axes().iter().zip(first..);
    let along_memory = reduce().filter(|(a, _)| a.extent % 2 == 0).map(|(_, v)| (v, false));
    let along_rows = reduce().filter(|(a, _)| a.extent > 2).map(|(_, v)| (v, true));
    let mut all = along_memory.chain(along_rows);
    all.find_map(|(v, window)| Pairing { w, main, by: Var(v), window }.made(x, y))
}

/// Whether a workload was made by [`by_pairs`].
pub(super) fn is_by_pairs(w: &Workload) -> bool {
    let of_inputs = w.inputs.iter().map(|i| i.dtype);
    of_inputs.chain(w.stages.iter().map(|s| s.dtype)).any(|d| d == DType::Bf16x2)
}

/// A reduction's axis in a workload, two steps of which become one.
struct Pairing<'a> {
    w: &'a Workload,
    main: usize,
    by: Var,
    /// Whether pairs are made in the padded copy of the data, which they replace.
    window: bool,
}

impl Pairing<'_> {
    fn made(&self, x: &Expr, y: &Expr) -> Option<Workload> {
        let mut made = self.w.clone();
        let mut ahead = Vec::new();
        let a = self.factor(x, &mut made, &mut ahead)?;
        let b = self.factor(y, &mut made, &mut ahead)?;
        let stage = &mut made.stages[self.main];
        let place = self.by.0 as usize - stage.axes.len();
        let extent = &mut stage.reduction.as_mut()?.axes[place].extent;
        *extent = (*extent + 1) / 2;
        stage.body = Expr::binary(Binary::DotPair, a, b);
        put_ahead(&mut made, ahead);
        made.check().ok().map(|()| made)
    }

    /// A factor of the product as a read of pairs, after the input or copy that it is read from was
    /// changed to pairs.
    fn factor(&self, e: &Expr, made: &mut Workload, ahead: &mut Vec<Stage>) -> Option<Expr> {
        let Expr::Load { source, index } = e else { return None };
        let (last, outer) = index.split_last()?;
        let is_last = !outer.iter().any(|i| i.uses(self.by));
        let mut seen = made.clone();
        let view = |seen: &mut Workload| match self.window {
            true => self.copy(*source, seen),
            false => self.view(*source, seen),
        };
        if is_last
            && let Some(half) = self.halved(last)
            && view(&mut seen).is_some()
        {
            *made = seen;
            let index = outer.iter().cloned().chain([half]).collect();
            return Some(Expr::Load { source: *source, index });
        }
        let axis = index.iter().position(|i| i.as_var() == Some(self.by))?;
        let is_alone = index.iter().enumerate().all(|(d, i)| d == axis || !i.uses(self.by));
        let input = self.w.inputs.get(source.0 as usize)?;
        let uses = factors::uses(&self.w.stages[self.main], index);
        let pays = input.kind == TensorKind::Weight || uses >= WORTH_PAIRING;
        if !is_alone || !pays || input.dtype != DType::Bf16 || readers(self.w, *source) != 1 {
            return None;
        }
        let made = factors::ahead(ahead.len());
        ahead.push(in_pairs(input.name.as_str(), &input.shape, *source, axis));
        Some(Expr::Load { source: made, index: index.clone() })
    }

    /// Half of a place along the last axis; none where some places are odd.
    fn halved(&self, i: &Affine) -> Option<Affine> {
        let others = i.terms().iter().filter(|(v, _)| *v != self.by);
        let even = others.clone().all(|(_, c)| c % 2 == 0) && i.offset() % 2 == 0;
        (even && i.coefficient(self.by) == 1).then(|| {
            let halves = others.map(|(v, c)| (*v, c / 2)).chain([(self.by, 1)]);
            Affine::new(halves, i.offset() / 2)
        })
    }

    /// Changes a source to pairs: an input, or a padded copy of one.
    fn view(&self, s: Source, made: &mut Workload) -> Option<()> {
        if readers(self.w, s) != 1 {
            return None;
        }
        let number = s.0 as usize;
        let Some(copy) = number.checked_sub(self.w.inputs.len()) else {
            let input = &mut made.inputs[number];
            if input.dtype != DType::Bf16 {
                return None;
            }
            input.dtype = DType::Bf16x2;
            halve(input.shape.last_mut()?)?;
            let room = made.rooms.get_mut(&self.w.inputs[number].name);
            return room.map_or(Some(()), |r| halve(r.last_mut()?));
        };
        let stage = &self.w.stages[copy];
        let innermost = Var(stage.axes.len().checked_sub(1)? as u32);
        let (then, tests) = match &stage.body {
            Expr::Select { conds, then, other } if **other == Expr::Const(0.0) => {
                (&**then, &conds[..])
            }
            body => (body, &[][..]),
        };
        let Expr::Load { source, index } = then else { return None };
        let (last, outer) = index.split_last()?;
        let apart = !outer.iter().chain(tests.iter().map(|c| &c.index)).any(|i| i.uses(innermost));
        let input = (source.0 as usize) < self.w.inputs.len();
        if !apart || !input || last.as_var() != Some(innermost) || stage.reduction.is_some() {
            return None;
        }
        let to = &mut made.stages[copy];
        if to.dtype != DType::Bf16 {
            return None;
        }
        to.dtype = DType::Bf16x2;
        halve(&mut to.axes.last_mut()?.extent)?;
        self.view(*source, made)
    }

    /// Makes a copy with a border along its last axis one of pairs.
    fn copy(&self, s: Source, made: &mut Workload) -> Option<()> {
        let copy = (s.0 as usize).checked_sub(self.w.inputs.len())?;
        let stage = &self.w.stages[copy];
        let last = Var(stage.axes.len().checked_sub(1)? as u32);
        let Expr::Select { conds, then, other } = &stage.body else { return None };
        let Expr::Load { source, .. } = &**then else { return None };
        let input = self.w.inputs.get(source.0 as usize)?;
        let bounded = conds.iter().any(|c| c.index.uses(last)) && **other == Expr::Const(0.0);
        let is_bf16 = stage.dtype == DType::Bf16 && input.dtype == DType::Bf16;
        if !bounded || !is_bf16 || readers(self.w, s) != 1 {
            return None;
        }
        // The column `2 i + half` in the place of `i`.
        let at = |half: i64| {
            let column = |a: &Affine| {
                let c = a.coefficient(last);
                let mut moved = a.plus(half * c);
                moved.add_term(last, c);
                moved
            };
            stage.body.rewrite(&mut |a| column(a), &mut |e| e)
        };
        let to = &mut made.stages[copy];
        to.body = Expr::binary(Binary::Pair, at(0), at(1));
        to.dtype = DType::Bf16x2;
        let extent = &mut to.axes.last_mut()?.extent;
        *extent = (*extent + 1) / 2;
        Some(())
    }
}

fn halve(extent: &mut i64) -> Option<()> {
    (*extent % 2 == 0).then(|| *extent /= 2)
}

/// The stage that puts numbers in pairs along an axis; of an odd number the last goes with 0.
fn in_pairs(name: &str, shape: &[i64], source: Source, axis: usize) -> Stage {
    let extent = |d: usize, n: i64| if d == axis { (n + 1) / 2 } else { n };
    let half = |(d, &n): (usize, &i64)| Axis::new(format!("i{d}"), extent(d, n));
    let load = |offset: i64| {
        let place = |d: usize| match (Var(d as u32), d == axis) {
            (v, true) => Affine::new([(v, 2)], offset),
            (v, false) => Affine::var(v),
        };
        Expr::load(source, (0..shape.len()).map(place).collect())
    };
    let second = match shape[axis] % 2 {
        0 => load(1),
        _ => {
            let index = Affine::new([(Var(axis as u32), 2)], 1);
            let conds = vec![Cond { index, low: 0, high: shape[axis] }];
            Expr::Select { conds, then: Box::new(load(1)), other: Box::new(Expr::Const(0.0)) }
        }
    };
    Stage {
        name: format!("{name}_pairs"),
        dtype: DType::Bf16x2,
        axes: shape.iter().enumerate().map(half).collect(),
        reduction: None,
        body: Expr::binary(Binary::Pair, load(0), second),
    }
}
