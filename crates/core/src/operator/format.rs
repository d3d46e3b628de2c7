//! Rewrites a workload of 32-bit floats to another format: with `f16` or `bf16` its inputs and
//! output have 16 bits, while sums stay in 32; with `tf32` the tensors stay as they are and factors
//! of products are rounded, as libraries do where their users allow it.
//! `squall/src/input/in_precision.rs` makes a model's tasks in a format by this.

use super::{BACK_TO_BACK, checked};
use crate::expr::{Affine, Binary, Expr, Var};
use crate::workload::{Reducer, Stage};
use crate::{DType, Workload};

/// A workload of 32-bit floats in another format. A format of 16 bits becomes that of all inputs
/// and of the output, while the values computed between them stay 32-bit floats: see [`in_half`].
/// Tf32 leaves all tensors as they are and allows factors to be rounded to it, as libraries do
/// where their users allow it.
pub fn in_format(mut w: Workload, format: DType) -> Result<Workload, String> {
    if format.is_half() {
        return in_half(w, format, format);
    }
    let mut products = 0;
    for s in w.stages.iter_mut().filter(|s| s.reduction.is_some()) {
        let body = std::mem::replace(&mut s.body, Expr::Const(0.0));
        s.body = match body {
            Expr::Binary(Binary::Mul, a, b) if is_load(&a) && is_load(&b) => {
                products += 1;
                let cast = |e| Expr::Cast(format, e);
                Expr::binary(Binary::Mul, cast(a), cast(b))
            }
            other => other,
        };
    }
    match products {
        0 => Err(format!("nothing is multiplied that {} could be for", format.name())),
        _ => checked(w),
    }
}

/// A workload of 32-bit floats that reads a format of 16 bits and gives `output`, that format or
/// 32-bit floats. Copies of what is read, as padding is, have its format; everything else between
/// the inputs and the output is computed and kept in 32-bit floats, and rounded once.
pub fn in_half(mut w: Workload, format: DType, output: DType) -> Result<Workload, String> {
    let tensors = w.inputs.iter().map(|i| i.dtype).chain(w.stages.iter().map(|s| s.dtype));
    if let Some(other) = tensors.into_iter().find(|d| *d != DType::F32) {
        return Err(format!("it has a tensor of {}", other.name()));
    }
    let last = w.stages.len().checked_sub(1).ok_or("it computes nothing that is known")?;
    w.inputs.iter_mut().for_each(|i| i.dtype = format);
    let inputs = w.inputs.len();
    let mut is_read: Vec<bool> = vec![true; inputs];
    for (k, s) in w.stages.iter_mut().enumerate() {
        let is_copy = s.reduction.is_none() && k != last && hands_on(&s.body, &is_read);
        is_read.push(is_copy);
        if is_copy || k == last {
            s.dtype = if is_copy { format } else { output };
        }
    }
    // Sums that are the output are made in 32-bit floats, too. Products and convolutions are made
    // so anyway, and their texts are older than this.
    let sums = w.stages[last].reduction.as_ref().is_some_and(|r| r.op != Reducer::Max);
    if sums && output.is_half() && matches!(w.kind.as_str(), "pool" | "reduce" | BACK_TO_BACK) {
        let name = format!("{}s", w.stages[last].name);
        let sum = &mut w.stages[last];
        let (axes, given) = (sum.axes.clone(), std::mem::replace(&mut sum.name, name));
        sum.dtype = DType::F32;
        let index = (0..axes.len()).map(|i| Affine::var(Var(i as u32))).collect();
        let body = Expr::load(w.stage_source(last), index);
        w.stages.push(Stage { name: given, dtype: output, axes, reduction: None, body });
    }
    checked(w)
}

/// The workload of 32-bit floats that [`in_half`] makes this one of; none where it does not.
pub fn of_floats(w: &Workload, format: DType) -> Option<Workload> {
    let output = w.stages.last()?.dtype;
    let comes_back = |made: &Workload| in_half(made.clone(), format, output).as_ref() == Ok(w);
    let mut made = w.clone();
    made.inputs.iter_mut().for_each(|i| i.dtype = DType::F32);
    made.stages.iter_mut().for_each(|s| s.dtype = DType::F32);
    // A sum that is the output got a stage of its own.
    let mut of_sum = made.clone();
    if let (Some(given), Some(sum)) = (of_sum.stages.pop(), of_sum.stages.last_mut()) {
        sum.name = given.name;
        if comes_back(&of_sum) {
            return Some(of_sum);
        }
    }
    Some(made).filter(comes_back)
}

/// Whether an expression is an element of what is read, or a number outside of it.
fn hands_on(e: &Expr, is_read: &[bool]) -> bool {
    match e {
        Expr::Load { source, .. } => is_read.get(source.0 as usize).is_some_and(|r| *r),
        Expr::Select { then, other, .. } => {
            hands_on(then, is_read) && matches!(**other, Expr::Const(_))
        }
        _ => false,
    }
}

fn is_load(e: &Expr) -> bool {
    // A padded input is a load as well, since padding is a stage of its own.
    matches!(e, Expr::Load { .. }) && !e.loads().iter().any(|(_, i): &(_, &[Affine])| i.is_empty())
}
