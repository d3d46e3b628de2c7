//! The work that a step of a network must do at least, and the least time that a machine's roof
//! (its measured peak and bandwidths) leaves to it. Input: a plan, a step of it and the network's
//! kernels; output: a [`StepWork`], or nothing where the work is not known ahead of the run.
//! `plain_steps.rs` asks it of the steps that run as plain C.

use super::plain::parameters;
use crate::predict::choose::Chosen;
use crate::target::roof::{Factors, Roof};
use squall_compiler::plain::least_work;
use squall_core::Nanos;
use squall_graph::plan::{BlockPlace, Plan, PlanStep, ValueSource, Work};

/// The work that a step takes at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepWork {
    /// Operations of products and their sums, where these are counted.
    pub operations: u64,
    /// Bytes that are read and written.
    pub bytes: u64,
    /// The kind of factors.
    pub factors: Factors,
}

impl StepWork {
    /// The least time in which a machine can do it.
    pub fn bound(&self, roof: &Roof) -> Nanos {
        roof.bound(roof.paced(self.operations, self.factors), self.bytes)
    }

    fn moving(bytes: usize) -> StepWork {
        StepWork { operations: 0, bytes: bytes as u64, factors: Factors::Floats }
    }
}

/// The work of a step; nothing where it is not known. A step under a condition may have no work in
/// a run, since it belongs to a branch that the run may not take.
pub(super) fn work_of(plan: &Plan, step: &PlanStep, kernels: &[Chosen]) -> Option<StepWork> {
    if !step.when.is_empty() {
        return None;
    }
    let written = |to: &BlockPlace| plan.blocks[to.block].dtype.bytes() as usize;
    Some(match &step.work {
        Work::Kernel { task, .. } => {
            let w = &kernels.iter().find(|k| k.task.id == *task)?.task.workload;
            let operations = w.flop();
            StepWork { operations, bytes: w.bytes().0, factors: Factors::of(w, operations) }
        }
        Work::Copy { from, to, axes, .. } => {
            let results: usize = axes.iter().map(|a| a.extent).product();
            // Along an axis without a stride in the source one element is read for all.
            let moving = axes.iter().filter(|a| a.from != 0);
            let elements: usize = moving.map(|a| a.extent).product();
            let elements = elements.min(results);
            StepWork::moving(results * written(to) + elements * read(plan, from, written(to)))
        }
        Work::Runs { from, to, runs } => {
            let elements: usize = runs.iter().map(|[_, _, length]| length).sum();
            StepWork::moving(elements * (written(to) + read(plan, from, written(to))))
        }
        Work::Fill { to, elements, .. } => StepWork::moving(elements * written(to)),
        Work::Plain { call, .. } => {
            let work = least_work(call.0.as_deref()?)?;
            let factors = if work.multiplies_bytes { Factors::Bytes } else { Factors::Floats };
            StepWork { operations: work.operations, bytes: work.bytes, factors }
        }
    })
}

/// Bytes of an element of a move's source. The plan of a network that was built no longer has its
/// constants: these are moved in the format of the target.
fn read(plan: &Plan, from: &ValueSource, written: usize) -> usize {
    match from {
        ValueSource::Block(p) => plan.blocks[p.block].dtype.bytes() as usize,
        ValueSource::Constant(c) => {
            plan.constants.get(*c).map_or(written, |c| c.dtype.bytes() as usize)
        }
    }
}

/// The facts that equal steps of an operator have in common: the types and extents of their
/// operands and results.
pub(super) fn operands_of(plan: &Plan, step: &PlanStep) -> String {
    match &step.work {
        Work::Kernel { task, .. } => task.to_string(),
        Work::Plain { call, .. } => call.0.as_deref().map(parameters).unwrap_or_default(),
        Work::Copy { to, axes, .. } => {
            let axes: Vec<String> =
                axes.iter().map(|a| format!("{} {} {}", a.extent, a.to, a.from)).collect();
            format!("copy {} {}", plan.blocks[to.block].dtype.name(), axes.join(", "))
        }
        Work::Runs { to, runs, .. } => {
            let elements: usize = runs.iter().map(|[_, _, length]| length).sum();
            let dtype = plan.blocks[to.block].dtype.name();
            format!("{} runs {dtype} {elements}", runs.len())
        }
        Work::Fill { to, elements, .. } => {
            format!("fill {} {elements}", plan.blocks[to.block].dtype.name())
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use squall_core::DType;
    use squall_core::graph::{CallOperand, OperatorCall};
    use squall_graph::plan::{Block, PlainCall, Stride, When};

    /// A machine of round numbers.
    pub fn roof() -> Roof {
        Roof {
            peak_gflops: 100.0,
            byte_pace: 4.0,
            pair_pace: 2.0,
            memory_gbs: 10.0,
            levels: Vec::new(),
        }
    }

    /// A plan of two blocks, of 32-bit and of 16-bit floats.
    fn plan() -> Plan {
        let block = |dtype| Block { dtype, elements: 1000 };
        Plan { blocks: vec![block(DType::F32), block(DType::Bf16)], ..Plan::default() }
    }

    fn step(work: Work) -> PlanStep {
        PlanStep { node: "n".into(), op: "o".into(), when: Vec::new(), work }
    }

    fn place(block: usize) -> BlockPlace {
        BlockPlace { block, offset: 0 }
    }

    fn copy(from: ValueSource, to: usize, axes: &[(usize, isize)]) -> PlanStep {
        let axes = axes.iter().map(|(extent, from)| Stride { extent: *extent, to: 1, from: *from });
        step(Work::Copy { from, from_offset: 0, to: place(to), axes: axes.collect() })
    }

    fn bytes(step: &PlanStep) -> Option<u64> {
        work_of(&plan(), step, &[]).map(|w| w.bytes)
    }

    #[test]
    fn a_move_reads_and_writes_each_element_once() {
        let from = ValueSource::Block(place(0));
        assert_eq!(bytes(&copy(from, 0, &[(3, 4), (4, 1)])), Some(12 * 4 * 2));
        assert_eq!(bytes(&copy(from, 1, &[(3, 4), (4, 1)])), Some(12 * 4 + 12 * 2), "converted");
        assert_eq!(bytes(&copy(from, 0, &[(5, 0), (4, 1)])), Some(20 * 4 + 4 * 4), "repeated");
        assert_eq!(bytes(&copy(from, 0, &[(5, 0)])), Some(5 * 4 + 4), "one element for all");
        assert_eq!(bytes(&copy(from, 0, &[(0, 0), (4, 1)])), Some(0), "nothing");
        // A network that was built has no constants any more.
        assert_eq!(bytes(&copy(ValueSource::Constant(7), 1, &[(4, 1)])), Some(16));
        let runs = vec![[0, 5, 3], [3, 9, 4]];
        assert_eq!(bytes(&step(Work::Runs { from, to: place(0), runs })), Some(7 * 8));
        let fill = |elements| step(Work::Fill { to: place(0), elements, value: 0.0 });
        assert_eq!((bytes(&fill(6)), bytes(&fill(0))), (Some(24), Some(0)));
        let work = work_of(&plan(), &fill(6), &[]).unwrap();
        assert_eq!(work.bound(&roof()), Nanos(2.4));
    }

    fn plain(op: &str, operands: &[(DType, &[i64])], result: &[i64]) -> PlanStep {
        let one = |dtype: DType, shape: &[i64]| {
            Some(CallOperand { dtype, shape: shape.to_vec(), constant: None })
        };
        let call = OperatorCall {
            op: op.into(),
            domain: String::new(),
            opset: 21,
            attributes: Default::default(),
            inputs: operands.iter().map(|(dtype, shape)| one(*dtype, shape)).collect(),
            outputs: vec![one(DType::F32, result)],
        };
        let call = PlainCall(Some(Box::new(call)));
        let (inputs, outputs) = (Vec::new(), Vec::new());
        step(Work::Plain { call, inputs, outputs, extents: None })
    }

    fn bound(step: &PlanStep) -> Option<Nanos> {
        work_of(&plan(), step, &[]).map(|w| w.bound(&roof()))
    }

    #[test]
    fn a_plain_operator_is_bound_by_its_products_or_by_its_bytes() {
        let (float, byte) = (DType::F32, DType::U8);
        let large: &[i64] = &[100, 100];
        // 2 million operations at 100 a nanosecond; 120,000 bytes at 10.
        let product = plain("MatMul", &[(float, large), (float, large)], large);
        assert_eq!(bound(&product), Some(Nanos(20_000.0)));
        let thin = plain("MatMul", &[(float, &[1, 100]), (float, large)], &[1, 100]);
        assert_eq!(bound(&thin), Some(Nanos(4080.0)));
        let of_bytes = plain("MatMulInteger", &[(byte, large), (byte, large)], large);
        assert_eq!(bound(&of_bytes), Some(Nanos(6000.0)), "20,000 / 4 is less than its bytes");
        let none = plain("MatMul", &[(float, &[0, 100]), (float, large)], &[0, 100]);
        assert_eq!(bound(&none), Some(Nanos(4000.0)), "its weights are read");
        assert_eq!(bound(&plain("Softmax", &[(float, &[0])], &[0])), Some(Nanos(0.0)));
    }

    #[test]
    fn of_what_is_not_known_there_is_no_bound() {
        assert_eq!(bound(&plain("Relu", &[(DType::F32, &[-1])], &[-1])), None);
        let call = PlainCall(None);
        let (inputs, outputs) = (Vec::new(), Vec::new());
        let unknown = step(Work::Plain { call, inputs, outputs, extents: None });
        assert_eq!(bound(&unknown), None);
        let mut of_a_branch = copy(ValueSource::Block(place(0)), 0, &[(4, 1)]);
        of_a_branch.when.push(When { flag: ValueSource::Block(place(1)), is: true });
        assert_eq!(bound(&of_a_branch), None);
    }

    #[test]
    fn steps_with_other_extents_are_told_apart() {
        let from = ValueSource::Block(place(0));
        let of = |step: &PlanStep| operands_of(&plan(), step);
        assert_eq!(of(&copy(from, 0, &[(3, 1)])), of(&copy(from, 0, &[(3, 1)])));
        assert_ne!(of(&copy(from, 0, &[(3, 1)])), of(&copy(from, 0, &[(3, 2)])));
        let softmax = |n: i64| plain("Softmax", &[(DType::F32, &[n])], &[n]);
        assert_eq!(of(&softmax(3)), of(&softmax(3)));
        assert_ne!(of(&softmax(3)), of(&softmax(4)));
    }
}
