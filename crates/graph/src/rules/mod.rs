//! The rules of fusion: each rule looks at one node of a model and finds the sets of nodes,
//! beginning with it, that may be one kernel. Input: a view of a model and a node; output:
//! [`FusionCandidate`]s, or the reason why there are none. `candidates/mod.rs` runs all rules at
//! every node. A rule is a file here, built of the parts in `../fuse`, and a line in [`RULES`].

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

/// A rule's function: the kernels that it finds to begin with a node, smallest first; `None` where
/// the rule is not about such nodes, and the reason where it is and finds nothing.
pub type Find = fn(&View<'_>, usize, MakesChain) -> Option<Result<Vec<FusionCandidate>, String>>;

/// A rule of fusion.
pub struct Rule {
    /// Its name in texts.
    pub name: &'static str,
    /// Its function.
    pub find: Find,
    /// Whether its kernels may be slower than the separate kernels that they replace: then only
    /// times, known or estimated, decide for them, never greedy fusion.
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

/// Whether a candidate may be slower than the separate kernels that it replaces, so that only times
/// decide for it.
pub fn is_for_costs(candidate: &FusionCandidate) -> bool {
    RULES.iter().any(|r| r.name == candidate.rule && r.is_for_costs)
}

/// The present name of a rule for a name in a text, which an older build may have written.
pub fn named(name: &str) -> &str {
    if chain::OLDER.contains(&name) { chain::NAME } else { name }
}

/// The rule of elementwise nodes ahead of an operator.
pub const PROLOGUE: &str = prologue::NAME;
/// The rule of two products with a softmax between them.
pub const ATTENTION: &str = attention::NAME;
/// The rule of convolutions that read ranges of several values.
pub const JOINED: &str = joined::NAME;
/// The rule of results that are quantised in every run.
pub const RANGE: &str = range::NAME;

/// The candidates of a group and of all that it grows to, one for each size at which a single value
/// leaves it.
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

/// A fault that the model's reader found in a node explains more than the faults that follow from
/// it.
fn blamed<T>(view: &View<'_>, node: usize, made: Result<T, String>) -> Result<T, String> {
    made.map_err(|why| view.model.nodes[node].problem.clone().unwrap_or(why))
}
