//! Convolutions of bytes rewritten as convolutions of 32-bit floats over the same memory: each byte
//! becomes one element, and the sums are floats. Input is a workload over packed bytes (`u8x4`,
//! four bytes an element), output the same workload over single bytes that are converted when they
//! are read.
//!
//! The rewriting opens Winograd's filtering to quantised convolutions, which then needs a third of
//! the products; `sketch/mod.rs` derives the sketches of `winograd` for it. The sums are not exact:
//! of 16 million results of random convolutions 36 were rounded to the next step.

use super::factors::{ahead, put_ahead};
use squall_core::expr::{Affine, Binary, Expr, Source, Var};
use squall_core::workload::{Axis, Stage};
use squall_core::{DType, TensorKind, Workload};

/// Bytes of an element of four.
const FOUR: i64 = 4;

/// The workload over floats; `None` where it is not a convolution of images with channels last by
/// constant filters, or where its result is floats: those of dynamically quantised models must be
/// exact sums.
pub(super) fn by_floats(w: &Workload) -> Option<Workload> {
    if w.output().dtype != DType::U8 {
        return None;
    }
    let main = w.stages.iter().position(|s| s.reduction.is_some())?;
    let stage = &w.stages[main];
    let Expr::Binary(Binary::Dot, x, y) = &stage.body else { return None };
    let (Expr::Load { source: data, index: at }, Expr::Load { source: filter, index: of }) =
        (&**x, &**y)
    else {
        return None;
    };
    let weight = w.inputs.get(filter.0 as usize).filter(|i| i.kind == TensorKind::Weight)?;
    // The channels are the last place of both, by themselves.
    let c = at.last()?.as_var()?;
    let [k, r, s, last] = &of[..] else { return None };
    let others = |index: &[Affine]| !index[..index.len() - 1].iter().any(|i| i.uses(c));
    if last.as_var() != Some(c) || at.len() != 4 || !others(at) || !others(of) {
        return None;
    }
    let mut made = w.clone();
    unpacked(&mut made, *data)?;
    let filters = &mut made.inputs[filter.0 as usize];
    filters.dtype = DType::I8;
    *filters.shape.last_mut()? *= FOUR;
    let arranged = arranged(&weight.name, &filters.shape, *filter)?;
    let (body, reduce) = (
        Expr::binary(
            Binary::Mul,
            Expr::load(*data, at.clone()),
            Expr::load(ahead(0), vec![k.clone(), last.clone(), r.clone(), s.clone()]),
        ),
        c.0.checked_sub(stage.axes.len() as u32)?,
    );
    let to = &mut made.stages[main];
    to.body = body;
    to.dtype = DType::F32;
    to.reduction.as_mut()?.axes.get_mut(reduce as usize)?.extent *= FOUR;
    put_ahead(&mut made, vec![arranged]);
    made.check().ok().map(|()| made)
}

/// Makes each byte of what a product reads an element: of an input, or of a copy of one with a
/// border.
fn unpacked(made: &mut Workload, data: Source) -> Option<()> {
    let inputs = made.inputs.len();
    if let Some(copy) = (data.0 as usize).checked_sub(inputs) {
        let stage = made.stages.get_mut(copy)?;
        let Expr::Select { conds, then, other } = &stage.body else { return None };
        let (Expr::Load { source, index }, Expr::Const(border)) = (&**then, &**other) else {
            return None;
        };
        let innermost = Var(stage.axes.len().checked_sub(1)? as u32);
        let (last, outer) = index.split_last()?;
        let tests = conds.iter().map(|c| &c.index);
        let apart = !outer.iter().chain(tests).any(|i| i.uses(innermost));
        let bytes = (*border as u32).to_le_bytes();
        if last.as_var() != Some(innermost) || !apart || bytes != [bytes[0]; 4] {
            return None;
        }
        let source = *source;
        stage.body = Expr::Select {
            conds: conds.clone(),
            then: then.clone(),
            other: Box::new(Expr::Const(f64::from(bytes[0]))),
        };
        stage.dtype = DType::U8;
        stage.axes.last_mut()?.extent *= FOUR;
        return ((source.0 as usize) < inputs).then(|| unpacked(made, source))?;
    }
    let input = made.inputs.get_mut(data.0 as usize)?;
    if input.dtype != DType::U8x4 {
        return None;
    }
    input.dtype = DType::U8;
    *input.shape.last_mut()? *= FOUR;
    if let Some(room) = made.rooms.get_mut(&input.name) {
        *room.last_mut()? *= FOUR;
    }
    Some(())
}

/// The stage that arranges filters `[outputs, rows, columns, channels]` as Winograd's reads them.
fn arranged(name: &str, shape: &[i64], source: Source) -> Option<Stage> {
    let &[k, r, s, c] = shape else { return None };
    let axes = [("k", k), ("c", c), ("r", r), ("s", s)].map(|(name, n)| Axis::new(name, n));
    let index = [0, 2, 3, 1].map(|d| Affine::var(Var(d))).to_vec();
    let body = Expr::load(source, index);
    let name = format!("{name}_filter");
    Some(Stage { name, dtype: DType::I8, axes: axes.to_vec(), reduction: None, body })
}
