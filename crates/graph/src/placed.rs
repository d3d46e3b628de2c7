//! Weights that need not be loaded for planning: those in a file beside the model that only kernels
//! read, unchanged. Input: an assignment (the kernels that cover a model, and its layouts); output:
//! their names. `squall/src/input/weights.rs` leaves them in the file until the network's program
//! packs them.

use crate::assignment::{Assignment, Step};
use crate::candidate::root;
use crate::feed::Feed;
use squall_core::DType;
use squall_core::graph::ValueId;
use std::collections::HashSet;

impl Assignment {
    /// The names of the weights whose elements no step of planning asks for: 32-bit floats that the
    /// model does not hold and that kernels alone read, as they are.
    pub fn read_by_kernels_alone(&self) -> HashSet<String> {
        let model = self.model();
        let made: HashSet<ValueId> = model.nodes.iter().flat_map(|n| n.outputs.clone()).collect();
        let mut by_others: HashSet<ValueId> =
            model.outputs.iter().map(|&v| root(model, v)).collect();
        let hands_on = |n: &squall_core::graph::Node| {
            n.outputs.iter().all(|o| model.values[*o].alias.is_some())
        };
        let folded = model.nodes.iter().filter(|n| n.folded && !hands_on(n));
        by_others.extend(folded.flat_map(|n| n.inputs.iter().flatten()).map(|&v| root(model, v)));
        let mut by_kernels = HashSet::new();
        for step in &self.choice().steps {
            match *step {
                Step::Kernel(c) => {
                    for feed in &self.candidates().list[c].feeds {
                        match feed {
                            Feed::Value(v) => _ = by_kernels.insert(root(model, *v)),
                            other => {
                                by_others.extend(other.values().iter().map(|&v| root(model, v)));
                            }
                        }
                    }
                }
                Step::Node(n) => {
                    let inputs = model.nodes[n].inputs.iter().flatten();
                    by_others.extend(inputs.map(|&v| root(model, v)));
                }
            }
        }
        let suits = |v: &&ValueId| {
            let value = &model.values[**v];
            value.weight
                && value.constant.is_none()
                && value.dtype == Some(DType::F32)
                && value.shape.is_some()
                && !made.contains(*v)
                && !by_others.contains(*v)
        };
        by_kernels.iter().filter(suits).map(|v| model.values[*v].name.clone()).collect()
    }
}
