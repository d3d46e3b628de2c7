//! Products in other formats than 32-bit floats.

use super::checked;
use crate::expr::{Affine, Binary, Expr};
use crate::{DType, Workload};

/// A workload of 32-bit floats in another format. A format of 16 bits becomes that of all inputs
/// and of the output, while sums between them stay 32-bit floats. Tf32 leaves all tensors as they
/// are and allows factors to be rounded to it, as libraries do where their users allow it.
pub fn in_format(mut w: Workload, format: DType) -> Result<Workload, String> {
    if format.is_half() {
        w.inputs.iter_mut().for_each(|i| i.dtype = format);
        let last = w.stages.len() - 1;
        for (k, s) in w.stages.iter_mut().enumerate() {
            if k == last || s.reduction.is_none() {
                s.dtype = format;
            }
        }
        return checked(w);
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

fn is_load(e: &Expr) -> bool {
    // A padded input is a load as well, since padding is a stage of its own.
    matches!(e, Expr::Load { .. }) && !e.loads().iter().any(|(_, i): &(_, &[Affine])| i.is_empty())
}
