//! Elementwise nodes as steps of a fused kernel. Input: a node and expressions for its operands;
//! output: the expression of its result and a short name (`relu`). The formulas come from the
//! operators' rows in `core/src/operators/elementwise.rs`. A batch normalisation counts as
//! elementwise, with parameters that are folded into factors and addends (`feed.rs`).

use crate::feed::Norm;
use crate::view::{View, float, input, int};
use squall_core::expr::Expr;
use squall_core::graph::Node;
use squall_core::operators::{Operands, standard};

/// Whether an operator computes each element from the elements at the same place, as a step of a
/// kernel.
pub fn is_elementwise(op: &str) -> bool {
    // At inference, a batch normalisation by known statistics is a product and a sum.
    standard(op).is_some_and(|row| row.formula().is_some()) || op == "BatchNormalization"
}

/// Whether the order of the inputs does not matter.
pub fn is_commutative(op: &str) -> bool {
    standard(op).and_then(|row| row.each).is_some_and(|each| each.commutes)
}

/// The expression of the node's result and the name of the step. `args` stand for the inputs that
/// are given, in order; those of [`is_commutative`] operators in any order.
pub fn step(view: &View<'_>, node: &Node, args: &[Option<Expr>]) -> Result<(Expr, String), String> {
    let each = standard(&node.op).and_then(|row| row.each);
    let formula = each.and_then(|each| each.formula);
    let formula = formula.ok_or_else(|| format!("{} is not elementwise", node.op))?;
    let ctx = view.ctx(node);
    let is_weight = |i: usize| input(node, i).is_some_and(|id| view.is_weight(id));
    let operands = Operands { ctx: &ctx, values: args, is_weight: &is_weight };
    let name = each.and_then(|each| each.called?(&operands));
    let tag = name.map_or_else(|| node.op.to_ascii_lowercase(), String::from);
    Ok((formula.of(&operands)?, tag))
}

/// The parameters of a node that is a batch normalisation.
pub fn norm(view: &View<'_>, node: &Node, shape: &[i64]) -> Result<Norm, String> {
    let &[_, channels, ..] = shape else {
        return Err(format!("its input {shape:?} has no channels"));
    };
    if int(node, "training_mode", 0) != 0 {
        return Err("it is in training mode: it computes its statistics from the batch".into());
    }
    let mut parameters = [0; 4];
    for (i, p) in parameters.iter_mut().enumerate() {
        let (id, s) = view.operand(node, i + 1)?;
        if !view.is_weight(id) {
            return Err(format!("its parameter `{}` is computed at run time", view.name(id)));
        }
        if s.iter().product::<i64>() != channels {
            return Err(format!(
                "its parameter `{}` is {s:?}, expected {channels} channels",
                view.name(id)
            ));
        }
        *p = view.root(id);
    }
    Ok(Norm { parameters, eps: float(node, "epsilon", 1e-5), channels })
}
