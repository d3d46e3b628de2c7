//! Inputs and outputs that a run may find in the caller's own memory, so that nothing is copied: a
//! port that is a whole block of the plan, on CPUs and on GPUs. `files.rs` says of each buffer in
//! such a block that it is a part of the port; `runtime/host/bases.c` decides at each call. A
//! network's own program on a GPU finds all ports in its arena and does not ask.

use squall_graph::plan::{BlockPlace, Plan, PlanStep};
use squall_runtime::plan::Role;

/// The inputs and outputs of a plan with their places and elements, and behind them the extents of
/// outputs of which only the run knows the extents.
pub fn ports(plan: &Plan) -> impl Iterator<Item = (Role, &BlockPlace, usize)> {
    let inputs = plan.inputs.iter().zip(&plan.input_elements);
    let outputs = plan.outputs.iter().zip(&plan.output_elements);
    let extents = plan.bounded.iter().map(|o| (&o.extents, plan.blocks[o.extents.block].elements));
    let outputs = outputs.map(|(p, n)| (p, *n)).chain(extents);
    let inputs = inputs.map(|(p, n)| (Role::Data, p, *n));
    inputs.chain(outputs.map(|(p, n)| (Role::Output, p, n)))
}

/// Whether an input or an output is a whole block, in which no other output lies: an input also
/// shares it with no other input, and no step writes it.
pub fn is_whole_block(plan: &Plan, role: Role, place: &BlockPlace, elements: usize) -> bool {
    let extents = plan.bounded.iter().map(|o| &o.extents);
    let outputs = plan.outputs.iter().chain(extents).filter(|p| p.block == place.block).count();
    let inputs = plan.inputs.iter().filter(|p| p.block == place.block).count();
    let is_written = |s: &PlanStep| s.work.writes().iter().any(|to| to.block == place.block);
    let is_alone = match role {
        Role::Data => inputs == 1 && outputs == 0 && !plan.steps.iter().any(is_written),
        _ => outputs == 1,
    };
    is_alone && place.offset == 0 && elements == plan.blocks[place.block].elements
}
