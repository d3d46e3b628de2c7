//! Concatenations without copies: where a step copies a whole block into a part of a larger one,
//! the block is placed inside the larger one, so that its producer writes there directly. Larger
//! concatenations go first: in networks that concatenate repeatedly (DenseNet), the largest holds
//! all blocks, and smaller concatenations are parts of it. Input and output: a plan (a network as
//! steps over blocks of memory); `build.rs` calls this.

use super::{BlockPlace, Plan, PlanStep, Stride, ValueSource, Work, alignment};
use std::collections::BTreeMap;

/// A step that copies contiguous elements unchanged.
#[derive(Clone, Copy)]
struct Stretch {
    step: usize,
    from: BlockPlace,
    to: usize,
    extent: usize,
}

/// For each block the place inside another block that it was given, if any.
struct Placed(Vec<Option<BlockPlace>>);

impl Placed {
    /// The final place of a place in a block that may lie inside another one.
    fn locate(&self, mut p: BlockPlace) -> BlockPlace {
        while let Some(outer) = self.0[p.block] {
            p = BlockPlace { block: outer.block, offset: outer.offset + p.offset };
        }
        p
    }
}

/// Removes copies by placing blocks inside each other.
pub fn merge(plan: &mut Plan) {
    let mut placed = Placed(vec![None; plan.blocks.len()]);
    let mut useless = vec![false; plan.steps.len()];
    for (target, stretches) in targets(plan).into_iter().rev() {
        if adopt(plan, &mut placed, target, &stretches) {
            stretches.iter().for_each(|s| useless[s.step] = true);
            continue;
        }
        for s in stretches {
            let to = placed.locate(BlockPlace { block: target, offset: s.to });
            let whole = s.from.offset == 0 && s.extent == plan.blocks[s.from.block].elements;
            let free = placed.0[s.from.block].is_none() && to.block != s.from.block;
            let aligned = alignment(plan.blocks[target].dtype);
            if whole && free && to.offset.is_multiple_of(aligned) {
                placed.0[s.from.block] = Some(to);
                useless[s.step] = true;
            }
        }
    }
    let mut at = useless.iter();
    plan.steps.retain(|_| at.next() == Some(&false));
    rename(plan, &placed);
}

/// Blocks that only copies of contiguous elements write, with these copies; sorted so that larger
/// blocks, and then later ones, come last.
fn targets(plan: &Plan) -> Vec<(usize, Vec<Stretch>)> {
    let mut made: BTreeMap<usize, Option<Vec<Stretch>>> = BTreeMap::new();
    let mut last = vec![0; plan.blocks.len()];
    for (i, PlanStep { work, .. }) in plan.steps.iter().enumerate() {
        for to in work.writes() {
            last[to.block] = i;
            let list = made.entry(to.block).or_insert(Some(Vec::new()));
            let alike = work.reads().iter().all(|s| plan.dtype(s) == plan.blocks[to.block].dtype);
            match (stretch(i, work).filter(|_| alike), list.as_mut()) {
                (Some(s), Some(l)) => l.push(s),
                _ => *list = None,
            }
        }
    }
    let mut targets: Vec<_> =
        made.into_iter().filter_map(|(block, list)| Some((block, list?))).collect();
    targets.sort_by_key(|(block, _)| (plan.blocks[*block].elements, last[*block]));
    targets
}

fn stretch(step: usize, work: &Work) -> Option<Stretch> {
    let Work::Copy { from: ValueSource::Block(from), from_offset, to, axes } = work else {
        return None;
    };
    let extent = match axes[..] {
        [] => 1,
        [Stride { extent, to: 1, from: 1 }] => extent,
        _ => return None,
    };
    let from = BlockPlace { block: from.block, offset: from.offset + from_offset };
    Some(Stretch { step, from, to: to.offset, extent })
}

/// Makes a block a part of another that holds all its stretches in its order already.
fn adopt(plan: &Plan, placed: &mut Placed, target: usize, stretches: &[Stretch]) -> bool {
    let Some(first) = stretches.first().map(|s| placed.locate(s.from)) else { return false };
    let covered: usize = stretches.iter().map(|s| s.extent).sum();
    let Some(start) = first.offset.checked_sub(stretches[0].to) else { return false };
    let fits = |s: &Stretch| {
        placed.locate(s.from) == BlockPlace { block: first.block, offset: start + s.to }
    };
    let free = placed.0[target].is_none() && first.block != target;
    if !free
        || covered != plan.blocks[target].elements
        || !start.is_multiple_of(alignment(plan.blocks[target].dtype))
        || !stretches.iter().all(fits)
    {
        return false;
    }
    placed.0[target] = Some(BlockPlace { block: first.block, offset: start });
    true
}

/// Gives every place its final name; blocks that became parts of others vanish.
fn rename(plan: &mut Plan, placed: &Placed) {
    let mut number = vec![0; plan.blocks.len()];
    let mut blocks = Vec::new();
    for (i, block) in plan.blocks.iter().enumerate() {
        if placed.0[i].is_none() {
            number[i] = blocks.len();
            blocks.push(*block);
        }
    }
    plan.rename(&|p| {
        let found = placed.locate(p);
        BlockPlace { block: number[found.block], offset: found.offset }
    });
    plan.blocks = blocks;
}
