//! What is read in parts (`core/src/operator/in_parts.rs`): the sum's loop is cut where the parts
//! meet, so that none of its pieces asks which part an element is in.

use super::{Packing, TileAxis};
use crate::nest::{Nest, Stmt, visit};
use squall_core::Workload;
use squall_core::expr::Expr;
use squall_core::workload::Stage;

/// Where along a reduction the parts of what is summed meet.
pub(super) struct Parts {
    /// Among the reductions.
    pub axis: usize,
    /// Ascending, none of them at an end.
    pub cuts: Vec<i64>,
}

/// Whether an element is of one tensor or of another.
fn is_of_parts(e: &Expr) -> bool {
    matches!(e, Expr::Select { other, .. } if !other.loads().is_empty())
}

/// Whether a stage ahead of the main one says which part an element is in.
pub(super) fn reads_parts(w: &Workload, main: usize) -> bool {
    w.stages[..main].iter().any(|s: &Stage| is_of_parts(&s.body))
}

/// The parts that a sum into a buffer of this name reads, where it reads such.
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

/// What can be packed of a sum's operands: no parts.
pub(super) fn packed(
    mut all: Vec<(String, Packing)>,
    parts: Option<&Parts>,
) -> Vec<(String, Packing)> {
    all.retain(|(_, p)| parts.is_none() || !matches!(p, Packing::Data | Packing::Far));
    all
}
