//! Operands that lie in several tensors side by side, such as an input that is a concatenation
//! (`core/src/operator/in_parts.rs`): a sum over them tests at each element which tensor it is in.
//! The reduction's loop is cut where the parts meet (`peel`), so that no piece of it needs the
//! test. Input: a workload (a tensor expression) or nest; output: the positions of the cuts, used
//! by `tile/mod.rs` and `primitives.rs`.

use super::{Packing, TileAxis};
use crate::nest::{Nest, Stmt, visit};
use squall_core::Workload;
use squall_core::expr::Expr;
use squall_core::workload::Stage;

/// The positions along a reduction where one tensor of a summed operand ends and the next begins.
pub(super) struct Parts {
    /// The number of the axis among the reductions.
    pub axis: usize,
    /// The positions, ascending, without the axis's two ends.
    pub cuts: Vec<i64>,
}

/// Whether an expression selects between reads of two tensors.
fn is_of_parts(e: &Expr) -> bool {
    matches!(e, Expr::Select { other, .. } if !other.loads().is_empty())
}

/// Whether a stage ahead of the main one selects which tensor an element is read from.
pub(super) fn reads_parts(w: &Workload, main: usize) -> bool {
    w.stages[..main].iter().any(|s: &Stage| is_of_parts(&s.body))
}

/// The parts that a sum into a buffer of this name reads; `None` where its operands are whole
/// tensors.
pub(super) fn parts(n: &Nest, name: &str, reduce: &[TileAxis]) -> Option<Parts> {
    let target = n.find_buffer(name);
    let mut found = None::<Parts>;
    let mut note = |e: &Expr| {
        let Expr::Select { conds, .. } = e else { return };
        if !is_of_parts(e) {
            return;
        }
        for c in conds {
            let axis =
                reduce.iter().position(|r| matches!(c.index.terms(), [(v, 1)] if *v == r.var));
            let Some(axis) = axis else { continue };
            let parts = found.get_or_insert(Parts { axis, cuts: Vec::new() });
            let ends = [c.low, c.high].map(|end| end - c.index.offset());
            let is_inside = |end: &i64| (1..reduce[axis].extent).contains(end);
            if parts.axis == axis {
                parts.cuts.extend(ends.into_iter().filter(is_inside));
            }
        }
    };
    visit(&n.body, &mut |s| match s {
        Stmt::Update { buffer, value, .. } if Some(*buffer) == target => value.visit(&mut note),
        _ => {}
    });
    let mut parts = found?;
    parts.cuts.sort_unstable();
    parts.cuts.dedup();
    Some(parts)
}

/// The operands of a sum that can be packed: those that do not lie in parts.
pub(super) fn packed(
    mut all: Vec<(String, Packing)>,
    parts: Option<&Parts>,
) -> Vec<(String, Packing)> {
    all.retain(|(_, p)| parts.is_none() || !matches!(p, Packing::Data | Packing::Far));
    all
}
