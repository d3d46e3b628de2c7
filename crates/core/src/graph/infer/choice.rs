//! Shapes of `Choose`, which readers write for an `If` whose condition only the run knows (its
//! domain is [`DOMAIN`](super::nbits::DOMAIN)): the result is the second operand where the first,
//! one boolean, is true, else the third. Unlike `Where` it needs only the operand that it hands on,
//! so the nodes that make the other operand need not run (`graph/demand.rs`).

use super::{Ctx, Output};
use crate::DType;
use crate::graph::{Node, elements};

/// The operator's name.
pub const CHOOSE: &str = "Choose";

/// Whether a node hands one of two operands on.
pub fn is_choice(node: &Node) -> bool {
    node.domain == super::nbits::DOMAIN && node.op == CHOOSE
}

pub(crate) fn choose(ctx: &Ctx) -> Result<Vec<Output>, String> {
    if ctx.dtype(0) != Some(DType::Bool) || elements(ctx.shape(0)?)? != 1 {
        return Err("its condition is not one boolean".into());
    }
    let (yes, no) = (ctx.shape(1)?, ctx.shape(2)?);
    if yes != no || ctx.dtype(1) != ctx.dtype(2) {
        return Err(format!("its branches give {yes:?} and {no:?}, or different types"));
    }
    Ok(vec![Output { dtype: ctx.dtype(1), shape: yes.to_vec() }])
}
