//! Solvers: algorithms that choose, from the fusion candidates (sets of nodes that may be one
//! kernel) of a model, the kernels that cover it and the layouts of its values. Input:
//! [`Candidates`], a choice to start from, and the known times of tasks ([`Cost`]); output: a
//! [`Choice`]. Examples: greedy fusion, no fusion, channels last, the exact cheapest cover
//! (`whole.rs`). A solver is a file here and a line in [`SOLVERS`]; `Assignment::solved` applies
//! one.

mod cover;
mod elimination;
mod greedy;
mod images;
mod in_place;
mod layouts;
mod unfused;
mod whole;

pub use whole::{
    CheapestCover, CoverCost, CoverCosting, CoverCosts, Unknown, cheapest_cover, standings,
};

use crate::assignment::{Assignment, Choice};
use crate::candidate::MakesChain;
use crate::candidates::Candidates;
use crate::layout::Layout;
use squall_core::TaskId;
use squall_core::graph::{Model, ValueId};
use std::collections::HashMap;
use std::sync::Arc;

/// The time of a task's kernel in nanoseconds, where one is known.
pub type Cost<'a> = dyn Fn(TaskId) -> Option<f64> + 'a;

/// A solver: makes a choice of kernels and layouts, and may keep parts of the choice that it is
/// given.
pub type Solve = fn(&Candidates, Choice, &Cost<'_>) -> Choice;

/// A way to choose kernels and layouts.
pub struct AssignmentSolver {
    /// Its name.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// See [`Solve`].
    pub solve: Solve,
}

/// All solvers.
pub const SOLVERS: &[AssignmentSolver] = &[
    AssignmentSolver {
        name: GREEDY,
        about: "each kernel takes in all elementwise nodes that follow it",
        solve: greedy::solve,
    },
    AssignmentSolver {
        name: "unfused",
        about: "a kernel for each node that computes",
        solve: unfused::solve,
    },
    AssignmentSolver {
        name: CHANNELS_LAST,
        about: "images that kernels alone see have their channels last",
        solve: layouts::channels_last,
    },
    AssignmentSolver {
        name: FASTEST_LAYOUTS,
        about: "each image as the kernels that are known are fastest together, exactly",
        solve: layouts::fastest,
    },
    AssignmentSolver {
        name: IN_PLACE,
        about: "values lie in the memory of others wherever that saves a copy",
        solve: in_place::solve,
    },
    AssignmentSolver {
        name: CHANNELS_LAST_IN_PLACE,
        about: "the same, and images have their channels last through concatenations",
        solve: layouts::channels_last_in_place,
    },
    AssignmentSolver {
        name: FASTEST_IN_PLACE,
        about: "the same, each image as the kernels that are known are fastest together, exactly",
        solve: layouts::fastest_in_place,
    },
    AssignmentSolver {
        name: ATTENTION_IN_PLACE,
        about: "what attention alone reads and writes lies in the memory of others",
        solve: in_place::of_attention,
    },
    AssignmentSolver {
        name: CHEAPEST,
        about: "kernels and layouts whose times add up to least, exactly; unknown ones estimated",
        solve: whole::solve,
    },
];

/// The solver that chooses kernels where the user says nothing else.
pub const GREEDY: &str = "greedy";
/// The solver that moves the channels of all images.
pub const CHANNELS_LAST: &str = "channels-last";
/// The solver that chooses layouts by measured times.
pub const FASTEST_LAYOUTS: &str = "fastest-layouts";
/// The solver that saves copies around attention. On a GPU matrix units take tensors of their own
/// alone, and no other kernels have their values elsewhere.
pub const ATTENTION_IN_PLACE: &str = "attention-in-place";
/// The solver that saves copies.
pub const IN_PLACE: &str = "in-place";
/// The solver that saves copies and moves the channels of all images.
pub const CHANNELS_LAST_IN_PLACE: &str = "channels-last-in-place";
/// The solver that chooses kernels and layouts together by their times.
pub const CHEAPEST: &str = "cheapest";
/// The solver that saves copies and chooses layouts by measured times.
pub const FASTEST_IN_PLACE: &str = "fastest-in-place";

/// Whether a solver of this name lets values lie in the memory of others, on a device whose kernels
/// take that.
pub fn has_values_in_place(name: &str) -> bool {
    [IN_PLACE, CHANNELS_LAST_IN_PLACE, FASTEST_IN_PLACE, CHEAPEST].contains(&name)
}

/// The solver of a name.
pub fn solver(name: &str) -> Option<&'static AssignmentSolver> {
    SOLVERS.iter().find(|s| s.name == name)
}

impl Assignment {
    /// The model with its kernels as large as they become by the greedy rule, everything in the
    /// model's layout.
    pub fn of(model: Arc<Model>, makes_chain: MakesChain) -> Result<Assignment, String> {
        let candidates = Arc::new(Candidates::of(model, makes_chain));
        let choice = greedy::solve(&candidates, Choice::default(), &|_| None);
        Assignment::new(candidates, choice)
    }

    /// This model covered as `other` covers the same model with other extents: the same kernels,
    /// images laid out alike, and values in the memory of others if `other` has such. An error
    /// where this model has no such kernels.
    pub fn like(&self, other: &Assignment) -> Result<Assignment, String> {
        let covered = self.covered_by(&other.cover_line())?;
        let theirs = other.model().values.iter().enumerate();
        let of_other: HashMap<&str, ValueId> = theirs.map(|(i, v)| (v.name.as_str(), i)).collect();
        let own = &self.model().values;
        let looks = |v: ValueId| match of_other.get(own[v].name.as_str()) {
            Some(same) => other.choice().looks(*same),
            None => Layout::Model,
        };
        let in_place = !other.choice().sites.is_empty();
        let choice = layouts::laid_out_as(self.candidates(), covered.choice(), in_place, &looks);
        Assignment::new(self.candidates().clone(), choice)
    }

    /// The assignment of a solver that starts from this one.
    pub fn solved(&self, solver: &AssignmentSolver, cost: &Cost<'_>) -> Result<Assignment, String> {
        let choice = (solver.solve)(self.candidates(), self.choice().clone(), cost);
        let made = Assignment::new(self.candidates().clone(), choice);
        made.map_err(|e| format!("the solver `{}` made an illegal assignment: {e}", solver.name))
    }
}
