//! The rules of fusion: each finds the sets of nodes that may be one kernel. A rule is a file here
//! and a line in [`RULES`].

mod anchored;
mod attention;
mod back_to_back;
mod elementwise;
mod joined;
mod normed;
mod pooled;
mod products;
mod prologue;
mod range;
mod separable;

use crate::candidate::{FusionCandidate, Join};
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::{View, input, is_standard};
use squall_core::graph::ValueId;

/// The kernels that a rule finds to begin with a node, smallest first; none where the rule is not
/// about such nodes, and the reason where it is and finds nothing.
pub type Find = fn(&View<'_>, usize) -> Option<Result<Vec<FusionCandidate>, String>>;

/// A rule.
pub struct Rule {
    /// Its name in texts.
    pub name: &'static str,
    /// What it does.
    pub find: Find,
}

/// All rules. Where several find kernels for a node, all of them are candidates.
pub const RULES: &[Rule] = &[
    Rule { name: anchored::NAME, find: anchored::find },
    Rule { name: elementwise::NAME, find: elementwise::find },
    Rule { name: joined::NAME, find: joined::find },
    Rule { name: PROLOGUE, find: prologue::find },
    Rule { name: ATTENTION, find: attention::find },
    Rule { name: RANGE, find: range::find },
    Rule { name: back_to_back::NAME, find: back_to_back::find },
    Rule { name: separable::NAME, find: separable::find },
    Rule { name: pooled::NAME, find: pooled::find },
    Rule { name: products::NAME, find: products::find },
    Rule { name: normed::NAME, find: normed::find },
];

/// Whether the kernels of a rule may be slower than those that they stand for: costs say whether
/// one is taken, and no rule of thumb does.
pub fn is_for_costs(rule: &str) -> bool {
    [PROLOGUE, ATTENTION, RANGE].contains(&rule) || [CPU_RULES, GPU_RULES].concat().contains(&rule)
}

/// The rule of what comes ahead of an operator.
pub const PROLOGUE: &str = prologue::NAME;
/// The rule of two products with a softmax between them.
pub const ATTENTION: &str = attention::NAME;
/// The rule of convolutions that read ranges of several values.
pub const JOINED: &str = joined::NAME;
/// The rule of results that are quantised in every run.
pub const RANGE: &str = range::NAME;
/// Rules of kernels that CPUs alone have a sketch for: of two operators one behind the other, made
/// in parts.
pub const CPU_RULES: &[&str] = &[back_to_back::NAME];
/// Rules of kernels that GPUs alone have a sketch for.
pub const GPU_RULES: &[&str] = &[separable::NAME, pooled::NAME, products::NAME, normed::NAME];

/// A group and what it grows to, one kernel for each size at which a single value leaves it.
fn sizes(rule: &str, view: &View<'_>, group: Group) -> Result<Vec<FusionCandidate>, String> {
    let mut list = vec![FusionCandidate::of_group(rule, view, &group)?];
    let mut group = group;
    while let Some(grown) = group.grown(view) {
        // A size that makes no kernel does not end the growth.
        list.extend(FusionCandidate::of_group(rule, view, &grown));
        group = grown;
    }
    Ok(list)
}

/// A group and all that it grows to.
fn grown(view: &View<'_>, group: Group) -> Vec<Group> {
    std::iter::successors(Some(group), |g| g.grown(view)).collect()
}

/// The only node that reads a value, where it reads it as its first operand alone and the value is
/// no output.
fn only_reader(view: &View<'_>, v: ValueId) -> Option<usize> {
    let v = view.root(v);
    let [reader] = view.users(v)[..] else { return None };
    let node = &view.model.nodes[reader];
    let reads = |i: usize| input(node, i).is_some_and(|u| view.root(u) == v);
    let once = reads(0) && !(1..node.inputs.len()).any(reads);
    (once && !view.is_output(v)).then_some(reader)
}

/// The kernels that a rule makes of a node's group, at each size, with the group around the
/// operator that alone reads it: any, or one of these.
fn pairs(
    rule: &str,
    view: &View<'_>,
    node: usize,
    (seconds, join): (Option<&[&str]>, Join),
) -> Option<Result<Vec<FusionCandidate>, String>> {
    let first = anchor(view, &view.model.nodes[node])?.ok()?;
    let is_second = |g: &Group| seconds.is_none_or(|ops| is_one_of(view, g.nodes[0], ops));
    let mut list = Vec::new();
    for made in grown(view, Group::around(node, first)) {
        let asked = behind(view, &made).filter(is_second);
        list.extend(asked.and_then(|a| FusionCandidate::pair(rule, view, (&made, &a), join)));
    }
    (!list.is_empty()).then_some(Ok(list))
}

/// Whether a node is one of these operators.
fn is_one_of(view: &View<'_>, node: usize, ops: &[&str]) -> bool {
    ops.iter().any(|op| is_standard(&view.model.nodes[node], op))
}

/// Products of matrices.
const PRODUCTS: &[&str] = &["MatMul", "Gemm"];

/// The group around the operator that alone reads what a group makes. What follows that elementwise
/// has no reason to wait.
fn behind(view: &View<'_>, made: &Group) -> Option<Group> {
    let reader = only_reader(view, made.output)?;
    let anchor = anchor(view, &view.model.nodes[reader])?.ok()?;
    grown(view, Group::around(reader, anchor)).pop()
}

/// What the reader found wrong with a node says more than what follows from it.
fn blamed<T>(view: &View<'_>, node: usize, made: Result<T, String>) -> Result<T, String> {
    made.map_err(|why| view.model.nodes[node].problem.clone().unwrap_or(why))
}
