//! Gives the blocks of a network's plan, and the scratch memory of its kernels, their addresses in
//! one region of memory. Input: a graph's plan and the kernels; output: a [`FileLayout`], by which
//! `files.rs` writes the plan. `arena.rs` places blocks, `branches.rs` says which may share bytes.

use super::arena::{ALIGNMENT, Block, lay_out, lay_out_by};
use super::branches::Order;
use super::plain::PlainOperators;
use crate::predict::choose::Chosen;
use squall_graph::plan::{BlockPlace, Plan, Work};
use std::collections::HashMap;

/// The addresses of a plan's blocks in the region of memory.
pub struct FileLayout {
    /// Byte offsets of the plan's blocks.
    offsets: Vec<usize>,
    /// Where kernels have their scratch memory: by step, or all the same where they run one by one.
    workspaces: Workspaces,
    /// Bytes in all.
    pub bytes: usize,
    /// Places are multiples of this.
    pub alignment: usize,
}

/// Where scratch memory lies.
enum Workspaces {
    All(usize),
    ByStep(HashMap<usize, usize>),
}

impl FileLayout {
    /// Places all blocks, where steps run one by one.
    pub fn new(plan: &Plan, kernels: &[Chosen], plain: &PlainOperators) -> FileLayout {
        let bytes = plan.blocks.iter().map(|b| b.elements * b.dtype.bytes() as usize);
        let blocks: Vec<Block> = bytes
            .zip(plan.lifetimes())
            .map(|(bytes, (first, last))| Block { bytes, first, last })
            .collect();
        let (offsets, workspace) = lay_out(&blocks, ALIGNMENT);
        let sources = kernels.iter().map(|k| &k.source).chain(&plain.sources);
        let scratch = sources.map(|k| k.workspace.0 as usize).max().unwrap_or(0);
        let bytes = workspace + scratch.next_multiple_of(ALIGNMENT);
        FileLayout { offsets, workspaces: Workspaces::All(workspace), bytes, alignment: ALIGNMENT }
    }

    /// Places all blocks at multiples of `alignment`, where steps that do not depend on each other
    /// may run at the same time.
    pub fn parted(
        plan: &Plan,
        kernels: &[Chosen],
        plain: &PlainOperators,
        alignment: usize,
    ) -> FileLayout {
        let mut order = Order::of(plan);
        let bytes = plan.blocks.iter().map(|b| b.elements * b.dtype.bytes() as usize);
        let lives = plan.lifetimes().into_iter().map(|(first, _)| first);
        let mut blocks: Vec<(usize, usize)> = bytes.zip(lives).collect();
        let mut own: Vec<usize> = Vec::new();
        for (i, step) in plan.steps.iter().enumerate() {
            let source = match &step.work {
                Work::Kernel { task, .. } => {
                    kernels.iter().find(|k| k.task.id == *task).map(|k| &k.source)
                }
                _ => plain.of_step.get(&i).map(|n| &plain.sources[*n]),
            };
            let scratch = source.map_or(0, |s| s.workspace.0 as usize);
            if scratch > 0 {
                order.add(i);
                blocks.push((scratch, i));
                own.push(i);
            }
        }
        let (mut offsets, bytes) = lay_out_by(&blocks, alignment, &|a, b| order.meet(a, b));
        let scratch = offsets.split_off(plan.blocks.len());
        let workspaces = Workspaces::ByStep(own.into_iter().zip(scratch).collect());
        FileLayout { offsets, workspaces, bytes, alignment }
    }

    /// Where a place of a block lies.
    pub fn at(&self, plan: &Plan, p: &BlockPlace) -> u64 {
        let size = plan.blocks[p.block].dtype.bytes() as usize;
        (self.offsets[p.block] + p.offset * size) as u64
    }

    /// Where a step has its scratch memory.
    pub fn workspace(&self, step: usize) -> u64 {
        let at = match &self.workspaces {
            Workspaces::All(at) => *at,
            Workspaces::ByStep(all) => all.get(&step).copied().unwrap_or(0),
        };
        at as u64
    }
}
