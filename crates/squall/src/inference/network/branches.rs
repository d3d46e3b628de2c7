//! Which blocks of memory may share bytes where independent steps of a plan run at the same time
//! (branches, on a GPU). Input: a plan; output: an [`Order`], which says whether two blocks may be
//! in use together. Two blocks may share bytes only if every step that touches one is an ancestor
//! of every step that writes the other. `layout.rs` gives this to `arena.rs`.

use squall_graph::plan::{Plan, ValueSource};

/// A set of steps, as bits of words.
type Steps = Vec<u64>;

/// The use of each block of memory, and the partial order of steps by their data dependences.
pub struct Order {
    /// For each block the steps that touch it.
    uses: Vec<Steps>,
    /// For each block the steps that are over before any step writes it.
    before: Vec<Steps>,
    /// Whether a block is needed until after the last step.
    is_kept: Vec<bool>,
    words: usize,
    /// For each step the steps that are over before it begins.
    ancestors: Vec<Steps>,
}

fn set(s: &mut [u64], i: usize) {
    s[i / 64] |= 1 << (i % 64);
}

impl Order {
    /// The order in which a plan's steps need each other's results.
    pub fn of(plan: &Plan) -> Order {
        let (steps, words) = (plan.steps.len(), plan.steps.len().div_ceil(64));
        let none = || vec![0u64; words];
        let mut writers: Vec<Vec<usize>> = vec![Vec::new(); plan.blocks.len()];
        let mut uses: Vec<Steps> = plan.blocks.iter().map(|_| none()).collect();
        let mut ancestors: Vec<Steps> = Vec::with_capacity(steps);
        for (i, step) in plan.steps.iter().enumerate() {
            let mut own = none();
            for s in step.reads() {
                let ValueSource::Block(p) = s else { continue };
                set(&mut uses[p.block], i);
                for &w in &writers[p.block] {
                    set(&mut own, w);
                    own.iter_mut().zip(&ancestors[w]).for_each(|(a, b): (&mut u64, _)| *a |= b);
                }
            }
            for p in step.work.writes() {
                set(&mut uses[p.block], i);
                writers[p.block].push(i);
            }
            ancestors.push(own);
        }
        let all = |list: &Vec<usize>| {
            let mut common = vec![u64::MAX; words];
            for &w in list {
                common.iter_mut().zip(&ancestors[w]).for_each(|(a, b)| *a &= b);
            }
            common
        };
        let mut before: Vec<Steps> = writers.iter().map(all).collect();
        let mut is_kept = vec![false; plan.blocks.len()];
        // Inputs are there from the beginning, and stay: an inference may be replayed with them.
        for p in &plan.inputs {
            before[p.block] = none();
            is_kept[p.block] = true;
        }
        let extents = plan.bounded.iter().map(|b| &b.extents);
        plan.outputs.iter().chain(extents).for_each(|p| is_kept[p.block] = true);
        Order { uses, before, is_kept, words, ancestors }
    }

    /// Adds memory that one step alone needs, behind all blocks.
    pub fn add(&mut self, step: usize) {
        let mut own = vec![0u64; self.words];
        set(&mut own, step);
        self.uses.push(own);
        self.before.push(self.ancestors[step].clone());
        self.is_kept.push(false);
    }

    /// Whether two blocks may be in use at the same time.
    pub fn meet(&self, a: usize, b: usize) -> bool {
        let is_over = |a: usize, b: usize| {
            let mut pairs = self.uses[a].iter().zip(&self.before[b]);
            !self.is_kept[a] && pairs.all(|(used, over)| used & !over == 0)
        };
        !is_over(a, b) && !is_over(b, a)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::DType;
    use squall_graph::plan::{Block, BlockPlace, PlanStep, Work};

    /// `a` from the input, `b` and `c` from `a`, the output from both.
    fn diamond() -> Plan {
        let place = |block| BlockPlace { block, offset: 0 };
        let step = |from: usize, to: usize| PlanStep {
            node: "n".into(),
            op: "Copy".into(),
            when: Vec::new(),
            work: Work::Copy {
                from: ValueSource::Block(place(from)),
                from_offset: 0,
                to: place(to),
                axes: Vec::new(),
            },
        };
        Plan {
            blocks: vec![Block { dtype: DType::F32, elements: 4 }; 6],
            steps: vec![step(0, 1), step(1, 2), step(1, 3), step(2, 4), step(3, 4), step(4, 5)],
            inputs: vec![place(0)],
            outputs: vec![place(5)],
            ..Plan::default()
        }
    }

    #[test]
    fn memory_is_shared_only_by_what_is_never_there_together() {
        let mut order = Order::of(&diamond());
        // The branches meet, and so do a step's source and target.
        assert!(order.meet(2, 3) && order.meet(0, 1) && order.meet(1, 2));
        // The input stays, `a` is over when both branches have read it.
        assert!(order.meet(0, 2) && order.meet(0, 5) && order.meet(1, 4));
        assert!(!order.meet(1, 5) && !order.meet(2, 5));
        // An output is kept, though nothing reads it.
        assert!(order.meet(4, 5));
        // What the second branch needs for itself meets all of the first.
        order.add(2);
        assert!(order.meet(6, 2) && order.meet(6, 3) && order.meet(6, 0) && !order.meet(6, 5));
    }
}
