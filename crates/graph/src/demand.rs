//! Under which conditions each step of an assignment has to run: what only one branch of an `If`
//! needs runs where the run takes that branch.
//!
//! A `Choose` needs its condition and the operand that it hands on. What a step's results are
//! needed for, step by step back from the model's outputs, therefore says when it is needed: where
//! all that reads them is needed under a condition, so is the step. A step that is needed reads
//! nothing that was not, since what it reads is needed whenever it is.

use crate::assignment::{Assignment, Step};
use crate::candidate::root;
use crate::feed::Feed;
use squall_core::DType;
use squall_core::graph::infer::is_choice;
use squall_core::graph::{Node, ValueId};
use std::collections::{BTreeSet, HashMap};

/// Booleans with what each has to be, by their roots.
pub type Conditions = BTreeSet<(ValueId, bool)>;

/// The values that are needed so far, with the conditions under which each is.
struct Demand(HashMap<ValueId, Conditions>);

impl Demand {
    /// Notes that a value is needed under conditions, too.
    fn note(&mut self, v: ValueId, under: Conditions) {
        let both = match self.0.get(&v) {
            Some(known) => known.intersection(&under).copied().collect(),
            None => under,
        };
        self.0.insert(v, both);
    }
}

impl Assignment {
    /// For each step the conditions under which it has to run; none where it always has to. Each is
    /// known before the step.
    pub(crate) fn conditions(&self) -> Vec<Conditions> {
        let (model, steps) = (self.model(), &self.choice().steps);
        let mut all = vec![Conditions::new(); steps.len()];
        if !model.nodes.iter().any(is_choice) {
            return all;
        }
        let reads = |step: &Step| -> Vec<ValueId> {
            match *step {
                Step::Kernel(c) => {
                    self.candidates().list[c].feeds.iter().flat_map(Feed::values).collect()
                }
                Step::Node(n) => model.nodes[n].inputs.iter().flatten().copied().collect(),
            }
        };
        let gives = |step: &Step| match *step {
            Step::Kernel(c) => self.candidates().list[c].outputs.clone(),
            Step::Node(n) => model.nodes[n].outputs.clone(),
        };
        let mut made: HashMap<ValueId, usize> = HashMap::new();
        for (i, step) in steps.iter().enumerate() {
            made.extend(gives(step).into_iter().map(|v| (v, i)));
        }
        let mut demand = Demand(HashMap::new());
        model.outputs.iter().for_each(|v| demand.note(root(model, *v), Conditions::new()));
        for (i, step) in steps.iter().enumerate().rev() {
            let known = gives(step).into_iter().filter_map(|v| demand.0.get(&root(model, v)));
            let own = known.cloned().reduce(|a, b| a.intersection(&b).copied().collect());
            let mut own = own.unwrap_or_default();
            own.retain(|(flag, _)| made.get(flag).is_none_or(|at| *at < i));
            let choice = match step {
                Step::Node(n) => self.choice_of(&model.nodes[*n]),
                Step::Kernel(_) => None,
            };
            if let Some((flag, operands)) = choice {
                demand.note(flag, own.clone());
                for (v, is) in operands {
                    demand.note(v, own.iter().copied().chain([(flag, is)]).collect());
                }
            } else {
                reads(step).into_iter().for_each(|v| demand.note(root(model, v), own.clone()));
            }
            all[i] = own;
        }
        all
    }

    /// The condition of a node that hands one of two operands on, and when it needs each.
    fn choice_of(&self, node: &Node) -> Option<(ValueId, [(ValueId, bool); 2])> {
        let model = self.model();
        let [Some(flag), Some(yes), Some(no)] = node.inputs[..] else { return None };
        let flag = root(model, flag);
        let is_one = is_choice(node) && model.values[flag].dtype == Some(DType::Bool);
        is_one.then(|| (flag, [(root(model, yes), true), (root(model, no), false)]))
    }
}
