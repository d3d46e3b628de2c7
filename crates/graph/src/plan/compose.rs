//! Composes copies of copies in a plan (a network as steps over blocks of memory): where a block is
//! made by one copy and only copied from, its readers copy from the original source instead, and
//! the block is removed. Input and output: a plan. A transpose of a slice thus becomes one strided
//! copy. `build.rs` calls this.

use super::{BlockPlace, Plan, Stride, ValueSource, Work};

/// The most axes of a composed copy.
const MOST_AXES: usize = 8;

/// Composes copies from first to last, so that chains of them become one.
pub fn compose(plan: &mut Plan) {
    let mut at = 0;
    while at < plan.steps.len() {
        match composed(plan, at) {
            Some(readers) => {
                for (i, work) in readers {
                    plan.steps[i].work = work;
                }
                plan.steps.remove(at);
            }
            None => at += 1,
        }
    }
    drop_unused(plan);
}

/// The work of each reader of a copy's block after it reads from the copy's source; `None` where
/// the block must stay.
fn composed(plan: &Plan, at: usize) -> Option<Vec<(usize, Work)>> {
    let Work::Copy { from, from_offset, to, axes } = &plan.steps[at].work else { return None };
    let block = to.block;
    let ends = plan.inputs.iter().chain(&plan.outputs);
    let is_end = ends.chain(plan.bounded.iter().map(|b| &b.extents)).any(|p| p.block == block);
    let writers = plan.steps.iter().flat_map(|s| s.work.writes()).filter(|p| p.block == block);
    if is_end || writers.count() != 1 || to.offset != 0 {
        return None;
    }
    let inner = Dense::of(axes, plan.blocks[block].elements)?;
    let (source, between) = (plan.dtype(from), plan.blocks[block].dtype);
    // A rounding to 16 bits on the way must not be lost.
    if source != between && between.is_half() {
        return None;
    }
    let mut list = Vec::new();
    for (i, step) in plan.steps.iter().enumerate() {
        let is_read = |s: &ValueSource| matches!(s, ValueSource::Block(p) if p.block == block);
        if !step.reads().iter().any(is_read) {
            continue;
        }
        if step.when.iter().any(|w| is_read(&w.flag)) {
            return None;
        }
        let Work::Copy { from: ValueSource::Block(p), from_offset: first, to, axes } = &step.work
        else {
            return None;
        };
        // A copy converts between 32 bits and one format of 16.
        let target = plan.blocks[to.block].dtype;
        if source != between && ![source, between].contains(&target) {
            return None;
        }
        let (offset, axes) = inner.behind(p.offset + first, axes)?;
        let from_offset = usize::try_from(*from_offset as isize + offset).ok()?;
        list.push((i, Work::Copy { from: *from, from_offset, to: *to, axes }));
    }
    (!list.is_empty()).then_some(list)
}

/// A copy that fills a block: its axes, outermost in the block first.
struct Dense(Vec<Stride>);

impl Dense {
    fn of(axes: &[Stride], elements: usize) -> Option<Dense> {
        let mut axes: Vec<Stride> = axes.iter().copied().filter(|a| a.extent != 1).collect();
        axes.sort_by_key(|a| std::cmp::Reverse(a.to));
        let mut next = 1;
        for a in axes.iter().rev() {
            if a.to != next {
                return None;
            }
            next = next.checked_mul(a.extent)?;
        }
        (next == elements).then_some(Dense(axes))
    }

    /// For another copy, which reads the block from an element on along some axes: its first
    /// element in the source, and its axes there.
    fn behind(&self, first: usize, axes: &[Stride]) -> Option<(isize, Vec<Stride>)> {
        // The last coordinate that is reached along each axis.
        let mut reached = Vec::new();
        let (mut rest, mut offset) = (first, 0isize);
        for a in &self.0 {
            let coordinate = rest / a.to;
            rest %= a.to;
            offset += coordinate as isize * a.from;
            reached.push(coordinate);
        }
        let mut list = Vec::new();
        for a in axes.iter().filter(|a| a.extent != 1) {
            let mut open = vec![*a];
            while let Some(a) = open.pop() {
                let step = usize::try_from(a.from).ok().filter(|s| *s > 0)?;
                let i = self.0.iter().position(|d| d.to <= step)?;
                let d = self.0[i];
                let times = step / d.to;
                if step % d.to != 0 {
                    return None;
                }
                if times * (a.extent - 1) < d.extent {
                    reached[i] += times * (a.extent - 1);
                    list.push(Stride { from: times as isize * d.from, ..a });
                    continue;
                }
                // It goes on along the next axis of the block.
                let inside = d.extent / times;
                if !d.extent.is_multiple_of(times) || !a.extent.is_multiple_of(inside) || inside < 2
                {
                    return None;
                }
                let outer = Stride {
                    extent: a.extent / inside,
                    to: a.to * inside,
                    from: (step * inside) as isize,
                };
                open.extend([outer, Stride { extent: inside, ..a }]);
            }
        }
        let inside = reached.iter().zip(&self.0).all(|(r, a)| *r < a.extent);
        list.sort_by_key(|a| std::cmp::Reverse(a.to));
        (inside && list.len() <= MOST_AXES).then_some((offset, list))
    }
}

/// Leaves out blocks that no step, input or output names any more.
pub fn drop_unused(plan: &mut Plan) {
    let mut is_used = vec![false; plan.blocks.len()];
    let mut places: Vec<BlockPlace> = plan.inputs.iter().chain(&plan.outputs).copied().collect();
    places.extend(plan.bounded.iter().map(|b| b.extents));
    for s in &plan.steps {
        places.extend(s.work.writes());
        places.extend(s.reads().iter().filter_map(|s| match s {
            ValueSource::Block(p) => Some(*p),
            ValueSource::Constant(_) => None,
        }));
    }
    places.iter().for_each(|p| is_used[p.block] = true);
    let mut number = Vec::new();
    let mut kept = Vec::new();
    for (block, used) in plan.blocks.iter().zip(is_used) {
        number.push(kept.len());
        if used {
            kept.push(*block);
        }
    }
    plan.rename(&|p| BlockPlace { block: number[p.block], offset: p.offset });
    plan.blocks = kept;
}

#[cfg(test)]
mod tests {
    use super::super::{Block, PlanStep};
    use super::*;
    use squall_core::DType;

    fn axis(extent: usize, to: usize, from: isize) -> Stride {
        Stride { extent, to, from }
    }

    fn copy(from: usize, first: usize, to: usize, axes: Vec<Stride>) -> PlanStep {
        let place = |block, offset| BlockPlace { block, offset };
        let from = ValueSource::Block(place(from, first));
        let work = Work::Copy { from, from_offset: 0, to: place(to, 0), axes };
        PlanStep { node: "n".into(), op: "Transpose".into(), when: Vec::new(), work }
    }

    fn plan(sizes: &[usize], steps: Vec<PlanStep>) -> Plan {
        let place = |block| BlockPlace { block, offset: 0 };
        let block = |&elements: &usize| Block { dtype: DType::F32, elements };
        Plan {
            blocks: sizes.iter().map(block).collect(),
            inputs: vec![place(0)],
            outputs: vec![place(sizes.len() - 1)],
            input_elements: vec![sizes[0]],
            output_elements: vec![sizes[sizes.len() - 1]],
            steps,
            ..Plan::default()
        }
    }

    /// The contents of the last block for an input that counts up.
    fn run(p: &Plan) -> Vec<usize> {
        let mut blocks: Vec<Vec<usize>> =
            p.blocks.iter().map(|b| vec![usize::MAX; b.elements]).collect();
        blocks[p.inputs[0].block] = (0..p.input_elements[0]).collect();
        for s in &p.steps {
            let Work::Copy { from: ValueSource::Block(from), from_offset, to, axes } = &s.work
            else {
                panic!("{s:?}")
            };
            let all: usize = axes.iter().map(|a| a.extent).product();
            for n in 0..all {
                let (mut rest, mut t, mut f) = (n, to.offset, (from.offset + from_offset) as isize);
                for a in axes {
                    let k = rest % a.extent;
                    rest /= a.extent;
                    t += k * a.to;
                    f += k as isize * a.from;
                }
                blocks[to.block][t] = blocks[from.block][f as usize];
            }
        }
        blocks[p.outputs[0].block].clone()
    }

    /// The queries of an attention: rows of three parts are taken apart, heads come first, and
    /// each is turned.
    #[test]
    fn chains_of_transpositions_become_one() {
        let steps = || {
            vec![
                copy(0, 0, 1, vec![axis(3, 40, 8), axis(5, 8, 24), axis(8, 1, 1)]),
                copy(1, 40, 2, vec![axis(2, 20, 4), axis(5, 4, 8), axis(4, 1, 1)]),
                copy(2, 0, 3, vec![axis(2, 20, 20), axis(4, 5, 1), axis(5, 1, 4)]),
            ]
        };
        let before = plan(&[120, 120, 40, 40], steps());
        let mut after = before.clone();
        compose(&mut after);
        after.verify().unwrap();
        assert_eq!((after.steps.len(), after.blocks.len()), (1, 2), "{after}");
        assert_eq!(run(&after), run(&before));
        // A run of elements is read across the ends of rows.
        let mut whole = plan(&[120, 120, 60], steps()[..1].to_vec());
        whole.steps.push(copy(1, 0, 2, vec![axis(60, 1, 2)]));
        let mut after = whole.clone();
        compose(&mut after);
        assert_eq!(run(&after), run(&whole));
        assert_eq!(after.steps.len(), 1, "{after}");
    }

    #[test]
    fn what_others_read_stays() {
        let turn = || vec![axis(4, 5, 1), axis(5, 1, 4)];
        // It is the model's output, too.
        let mut p = plan(&[20, 20, 20], vec![copy(0, 0, 1, turn()), copy(1, 0, 2, turn())]);
        p.outputs.push(BlockPlace { block: 1, offset: 0 });
        p.output_elements.push(20);
        compose(&mut p);
        assert_eq!(p.steps.len(), 2);
        // A window of it does not follow its axes.
        let window = vec![axis(3, 3, 3), axis(3, 1, 1)];
        let mut p = plan(&[20, 20, 9], vec![copy(0, 0, 1, turn()), copy(1, 2, 2, window)]);
        compose(&mut p);
        assert_eq!(p.steps.len(), 2);
    }
}
