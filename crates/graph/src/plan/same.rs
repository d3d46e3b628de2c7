//! Removes copies that change nothing: of a whole block, in order, to a block of the same format.
//! They are left over where a model's file converts a value to a format that the kernel gives
//! anyway. Input and output: a plan (a network as steps over blocks of memory); both blocks of such
//! a copy become one.

use super::compose::drop_unused;
use super::{BlockPlace, Plan, ValueSource, Work};

/// Unites the two blocks of each copy that changes nothing.
pub fn drop_same(plan: &mut Plan) {
    let mut at = 0;
    while at < plan.steps.len() {
        let Some((gone, stays)) = same(plan, at) else {
            at += 1;
            continue;
        };
        plan.steps.remove(at);
        let renamed = |block| if block == gone { stays } else { block };
        plan.rename(&|p| BlockPlace { block: renamed(p.block), ..p });
    }
    drop_unused(plan);
}

/// For a step that copies a block unchanged: the block to remove and the block that replaces it.
fn same(plan: &Plan, at: usize) -> Option<(usize, usize)> {
    let step = &plan.steps[at];
    let Work::Copy { from: ValueSource::Block(from), from_offset: 0, to, axes } = &step.work else {
        return None;
    };
    let (a, b) = (&plan.blocks[from.block], &plan.blocks[to.block]);
    let mut axes = axes.iter().filter(|x| x.extent != 1);
    let count = axes.next().map_or(Some(1), |x| (x.to == 1 && x.from == 1).then_some(x.extent))?;
    let is_whole = from.offset == 0 && to.offset == 0 && a == b && a.elements == count;
    if !is_whole || axes.next().is_some() || !step.when.is_empty() || from.block == to.block {
        return None;
    }
    let written = |block: usize| {
        let writes = move |(_, s): &(usize, &super::PlanStep)| {
            s.work.writes().iter().any(|p| p.block == block)
        };
        plan.steps.iter().enumerate().filter(writes).map(|(i, _)| i)
    };
    // Later writes to one block must not show in the other.
    if written(from.block).any(|i| i >= at) || written(to.block).any(|i| i != at) {
        return None;
    }
    let is_given = |block| plan.outputs.iter().any(|p| p.block == block);
    let extents = |block| plan.bounded.iter().any(|b| b.extents.block == block);
    let is_taken = |block| plan.inputs.iter().any(|p| p.block == block) || extents(block);
    if !is_given(to.block) && !is_taken(to.block) {
        return Some((to.block, from.block));
    }
    let may_go = !is_given(from.block) && !is_taken(from.block) && !is_taken(to.block);
    may_go.then_some((from.block, to.block))
}

#[cfg(test)]
mod tests {
    use super::super::{Block, PlanStep, Stride};
    use super::*;
    use squall_core::DType;

    /// A copy of `extent` elements of a block to another one.
    fn copy(from: usize, to: usize, extent: usize, step: isize) -> PlanStep {
        let place = |block| BlockPlace { block, offset: 0 };
        let work = Work::Copy {
            from: ValueSource::Block(place(from)),
            from_offset: 0,
            to: place(to),
            axes: vec![Stride { extent, to: 1, from: step }],
        };
        PlanStep { node: "n".into(), op: "Cast".into(), when: Vec::new(), work }
    }

    /// From one input to one output over blocks of these types, by these copies.
    fn plan(types: &[DType], steps: Vec<PlanStep>, output: usize) -> Plan {
        let place = |block| BlockPlace { block, offset: 0 };
        let mut plan = Plan {
            blocks: types.iter().map(|&dtype| Block { dtype, elements: 4 }).collect(),
            steps,
            inputs: vec![place(0)],
            outputs: vec![place(output)],
            input_elements: vec![4],
            output_elements: vec![4],
            ..Plan::default()
        };
        drop_same(&mut plan);
        plan.verify().unwrap();
        plan
    }

    #[test]
    fn copies_of_one_format_vanish_and_others_stay() {
        use DType::{F16, F32};
        // Inputs and outputs have memory of their own.
        let p = plan(
            &[F16, F16, F32, F32],
            vec![copy(0, 1, 4, 1), copy(1, 2, 4, 1), copy(2, 3, 4, 1)],
            3,
        );
        assert_eq!((p.steps.len(), p.blocks.len()), (1, 2), "{p}");
        assert_eq!((p.inputs[0].block, p.outputs[0].block), (0, 1));
        let p = plan(&[F16, F16], vec![copy(0, 1, 4, 1)], 1);
        assert_eq!(p.steps.len(), 1, "{p}");
        // Another order, or a part, is another content.
        for odd in [copy(1, 2, 4, 0), copy(1, 2, 2, 1)] {
            let p = plan(&[F32, F16, F16, F32], vec![copy(0, 1, 4, 1), odd, copy(2, 3, 4, 1)], 3);
            assert_eq!(p.steps.len(), 3, "{p}");
        }
        // The first block gets another content before the second is read.
        let steps = vec![copy(0, 1, 4, 1), copy(1, 2, 4, 1), copy(0, 1, 4, 0), copy(2, 3, 4, 1)];
        assert_eq!(plan(&[F32, F16, F16, F32], steps, 3).steps.len(), 4);
    }
}
