//! The conditions under which each step of an assignment has to run: a step whose results only one
//! branch of an `If` needs runs only where the run takes that branch. Input: an assignment (kernels
//! and nodes that cover a model); output: for each step a list of booleans of the model with the
//! value that each must have. The analysis itself is `core/src/graph/demand.rs`; `plan/build.rs`
//! and `run.rs` use it.

use crate::assignment::{Assignment, Step};
use crate::candidate::root;
use crate::feed::Feed;
use squall_core::graph::ValueId;
use squall_core::graph::demand::{self, Reads};
use std::collections::HashSet;

pub use squall_core::graph::demand::Conditions;

impl Assignment {
    /// For each step the conditions under which it has to run; an empty list where it always has
    /// to. The flags are computed before the step.
    pub(crate) fn conditions(&self) -> Vec<Conditions> {
        let model = self.model();
        let at = |v: ValueId| root(model, v);
        let reads = |step: &Step| match *step {
            Step::Kernel(c) => {
                let of = &self.candidates().list[c];
                let read = of.feeds.iter().flat_map(Feed::values);
                let needs = read.map(|v| (at(v), Conditions::new())).collect();
                let gives = of.outputs.iter().map(|v| at(*v)).collect();
                Reads { needs, gives }
            }
            Step::Node(n) => Reads::of(&model.nodes[n], &at, &|v| model.values[v].dtype),
        };
        let steps: Vec<Reads> = self.choice().steps.iter().map(reads).collect();
        let mut results: Vec<ValueId> = model.outputs.iter().map(|v| at(*v)).collect();
        // A step whose results nothing reads runs all the same.
        let read = steps.iter().flat_map(|s| s.needs.iter().map(|n| n.0));
        let read: HashSet<ValueId> = read.chain(results.iter().copied()).collect();
        let is_read = |s: &&Reads| s.gives.iter().any(|v| read.contains(v));
        results.extend(steps.iter().filter(|s| !is_read(s)).flat_map(|s| &s.gives));
        demand::conditions(&steps, &results).into_iter().map(Option::unwrap_or_default).collect()
    }
}
