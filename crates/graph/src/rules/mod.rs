//! The rules of fusion: each finds the sets of nodes that may be one kernel. A rule is a file here
//! and a line in [`RULES`].

mod anchored;
mod attention;
mod chain;
mod elementwise;
mod joined;
mod prologue;
mod range;

use crate::candidate::{FusionCandidate, MakesChain};
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::{View, input, is_of_known_domain};
use squall_core::graph::ValueId;

/// The kernels that a rule finds to begin with a node, smallest first; none where the rule is not
/// about such nodes, and the reason where it is and finds nothing.
pub type Find = fn(&View<'_>, usize, MakesChain) -> Option<Result<Vec<FusionCandidate>, String>>;

/// A rule.
pub struct Rule {
    /// Its name in texts.
    pub name: &'static str,
    /// What it does.
    pub find: Find,
    /// Whether its kernels may be slower than those that they stand for: costs say whether one is
    /// taken, and no rule of thumb does.
    pub is_for_costs: bool,
}

/// All rules. Where several find kernels for a node, all of them are candidates.
pub const RULES: &[Rule] = &[
    Rule { name: anchored::NAME, find: |v, n, _| anchored::find(v, n), is_for_costs: false },
    Rule { name: elementwise::NAME, find: |v, n, _| elementwise::find(v, n), is_for_costs: false },
    Rule { name: JOINED, find: |v, n, _| joined::find(v, n), is_for_costs: false },
    Rule { name: PROLOGUE, find: |v, n, _| prologue::find(v, n), is_for_costs: true },
    Rule { name: ATTENTION, find: |v, n, _| attention::find(v, n), is_for_costs: true },
    Rule { name: RANGE, find: |v, n, _| range::find(v, n), is_for_costs: true },
    Rule { name: chain::NAME, find: chain::find, is_for_costs: true },
];

/// Whether a candidate may be slower than the kernels that it stands for: costs say whether it is
/// taken.
pub fn is_for_costs(candidate: &FusionCandidate) -> bool {
    RULES.iter().any(|r| r.name == candidate.rule && r.is_for_costs)
}

/// The rule that a name in a text is of, which an older build may have written.
pub fn named(name: &str) -> &str {
    if chain::OLDER.contains(&name) { chain::NAME } else { name }
}

/// The rule of what comes ahead of an operator.
pub const PROLOGUE: &str = prologue::NAME;
/// The rule of two products with a softmax between them.
pub const ATTENTION: &str = attention::NAME;
/// The rule of convolutions that read ranges of several values.
pub const JOINED: &str = joined::NAME;
/// The rule of results that are quantised in every run.
pub const RANGE: &str = range::NAME;

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

/// The group around the operator that alone reads what a group makes. What follows that elementwise
/// has no reason to wait.
fn behind(view: &View<'_>, made: &Group) -> Option<Group> {
    let reader = only_reader(view, made.output)?;
    if !is_of_known_domain(&view.model.nodes[reader]) {
        return None;
    }
    let anchor = anchor(view, &view.model.nodes[reader])?.ok()?;
    grown(view, Group::around(reader, anchor)).pop()
}

/// What the reader found wrong with a node says more than what follows from it.
fn blamed<T>(view: &View<'_>, node: usize, made: Result<T, String>) -> Result<T, String> {
    made.map_err(|why| view.model.nodes[node].problem.clone().unwrap_or(why))
}
