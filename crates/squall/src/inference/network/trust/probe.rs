//! A test plan made of single steps of a network's plan. Each step's operands become inputs of the
//! test plan and its results become outputs, so that two programs that run the test plan (GPU and
//! host) can be compared step by step. `on_gpu.rs` uses it; `values.rs` draws the operands.

use super::values::{random, whole_range};
use super::{constant, count, least, legal};
use crate::inference::network::operands::{source_of, target_of};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use squall_core::DType;
use squall_core::graph::{CallOperand, OperatorCall};
use squall_frontend::npy::Array;
use squall_graph::plan::{
    Block, BlockPlace, BoundedOutput, PlainCall, Plan, PlanConstant, PlanStep, ValueSource, When,
    Work,
};

/// The beginning of the error message that a program prints for a step.
pub const TRIAL: &str = "node `trial_";

/// The test plan, and the facts of its inputs and outputs.
#[derive(Default)]
pub struct Probe {
    pub plan: Plan,
    trials: Vec<Trial>,
    inputs: Vec<Input>,
}

/// A step under test.
struct Trial {
    /// The number of its first output, and how many it has.
    outputs: (usize, usize),
    /// Whether operands are floats.
    of_floats: bool,
    /// The set that its operands are of, and the range of whole numbers.
    set: usize,
    range: usize,
}

/// An operand of a trial.
struct Input {
    trial: usize,
    dtype: DType,
    elements: usize,
    /// Of a plain operator: the least extent of its call, and the whole numbers that its text
    /// names.
    least: i64,
    legal: Option<(i64, i64)>,
    /// The factor of its random floats.
    scale: f32,
}

impl Probe {
    /// The plan of steps of a plan, each with the set of its operands and the range of whole
    /// numbers among them.
    pub fn new<'a>(
        plan: &Plan,
        steps: impl Iterator<Item = (&'a PlanStep, usize, usize)>,
    ) -> Probe {
        let mut probe = Probe::default();
        for (step, set, range) in steps {
            probe.add(plan, step, set, range);
        }
        probe
    }

    /// How many steps are tried.
    pub fn trials(&self) -> usize {
        self.trials.len()
    }

    /// Whether a trial's operands have whole numbers, which may be drawn from another range.
    pub fn has_whole(&self, trial: usize) -> bool {
        self.inputs.iter().any(|i| i.trial == trial && i.dtype.is_integer())
    }

    /// The bytes of each input: those of a trial's are the same whatever trials there are.
    pub fn operands(&self) -> Vec<Vec<u8>> {
        // Operands of one trial differ: one that is read in the place of another is to show.
        let place = |at: usize| {
            let trial = self.inputs[at].trial;
            self.inputs[..at].iter().filter(|i| i.trial == trial).count()
        };
        let operand = |(at, i): (usize, &Input)| {
            let Trial { set, range, .. } = self.trials[i.trial];
            let seed = [set, range, i.elements, i.dtype as usize, place(at)];
            let seed = seed.iter().fold(77u64, |s, n| s.wrapping_mul(31).wrapping_add(*n as u64));
            let range = whole_range(i.dtype, range, i.legal, i.least);
            let made = random(&mut Random::seed_from_u64(seed), i.dtype, i.elements, set, range);
            if i.scale == 1.0 { made } else { scaled(&made, i.scale) }
        };
        self.inputs.iter().enumerate().map(operand).collect()
    }

    /// Where one program's results of a trial differ from another's by more than the order of sums
    /// and functions of other libraries account for.
    pub fn difference(&self, trial: usize, got: &[Vec<u8>], want: &[Vec<u8>]) -> Option<String> {
        let Trial { outputs: (first, count), of_floats, .. } = self.trials[trial];
        (first..first + count).find_map(|output| {
            let result = output - first;
            let mut elements = self.plan.output_elements[output];
            if let Some(at) = self.plan.bounded.iter().position(|b| b.output == output) {
                let b = self.plan.bounded[at];
                let [said, wanted] = [got, want].map(|all| {
                    let words = all[self.plan.outputs.len() + at].as_chunks::<8>().0;
                    let all = words.iter().map(|w| i64::from_ne_bytes(*w));
                    all.skip(b.before).take(b.rank).collect::<Vec<i64>>()
                });
                if said != wanted {
                    return Some(format!(
                        "result {result} has the extents {said:?} and not {wanted:?}"
                    ));
                }
                elements = elements.min(said.iter().product::<i64>().max(0) as usize);
            }
            let dtype = self.plan.blocks[self.plan.outputs[output].block].dtype;
            // Behind the true extents of a bounded result memory is as it was.
            let array = |bytes: &Vec<u8>| {
                let bytes = bytes.get(..elements * dtype.bytes() as usize)?.to_vec();
                Some(Array { dtype, shape: vec![elements as i64], bytes })
            };
            let (Some(got), Some(want)) = (array(&got[output]), array(&want[output])) else {
                return Some(format!("result {result} has fewer elements than {elements}"));
            };
            let (at, x, y) = differing(&got, &want, of_floats)?;
            Some(format!("element {at} of result {result} is {x:.6e} and not {y:.6e}"))
        })
    }

    fn block(&mut self, dtype: DType, elements: usize) -> usize {
        self.plan.blocks.push(Block { dtype, elements });
        self.plan.blocks.len() - 1
    }

    fn constant(&mut self, dtype: DType, data: Vec<u8>) -> ValueSource {
        let elements = data.len() / dtype.bytes() as usize;
        let name = format!("constant {}", self.plan.constants.len());
        self.plan.constants.push(PlanConstant { name, dtype, elements, data, place: None });
        ValueSource::Constant(self.plan.constants.len() - 1)
    }

    /// A block that is an input.
    fn input(&mut self, input: Input) -> usize {
        let block = self.block(input.dtype, input.elements);
        self.plan.inputs.push(BlockPlace { block, offset: 0 });
        self.plan.input_elements.push(input.elements);
        self.inputs.push(input);
        block
    }

    /// A block that is an output.
    fn output(&mut self, dtype: DType, elements: usize) -> usize {
        let block = self.block(dtype, elements);
        self.plan.outputs.push(BlockPlace { block, offset: 0 });
        self.plan.output_elements.push(elements);
        block
    }

    /// Adds a step with blocks of its own, as large as those of its plan.
    fn add(&mut self, plan: &Plan, step: &PlanStep, set: usize, range: usize) {
        let (first_input, first_output) = (self.plan.inputs.len(), self.plan.outputs.len());
        let work = match &step.work {
            Work::Copy { from, from_offset, to, axes } => Work::Copy {
                from: self.moved(plan, from),
                from_offset: *from_offset,
                to: self.target(plan, to),
                axes: axes.clone(),
            },
            Work::Runs { from, to, runs } => Work::Runs {
                from: self.moved(plan, from),
                to: self.target(plan, to),
                runs: runs.clone(),
            },
            Work::Fill { to, elements, value } => {
                Work::Fill { to: self.target(plan, to), elements: *elements, value: *value }
            }
            Work::Plain { call, extents, .. } => {
                let words = extents.map_or(0, |p| plan.blocks[p.block].elements);
                self.plain(call, extents.is_some(), words)
            }
            // A task's kernel has a reference of its own.
            Work::Kernel { .. } => return,
        };
        let flag = |probe: &mut Probe, w: &When| When {
            flag: probe.constant(DType::Bool, vec![u8::from(w.is)]),
            is: w.is,
        };
        let when = step.when.iter().map(|w| flag(self, w)).collect();
        self.step(&step.op, when, work);
        self.trials.push(Trial {
            outputs: (first_output, self.plan.outputs.len() - first_output),
            of_floats: self.inputs[first_input..].iter().any(|i| i.dtype.is_float()),
            set,
            range,
        });
    }

    fn step(&mut self, op: &str, when: Vec<When>, work: Work) {
        let node = format!("trial_{}", self.trials.len());
        self.plan.steps.push(PlanStep { node, op: op.into(), when, work });
    }

    /// The source of a move, as an input.
    fn moved(&mut self, plan: &Plan, from: &ValueSource) -> ValueSource {
        let (dtype, elements) = source_of(plan, from);
        let trial = self.trials.len();
        let block = self.input(Input { trial, dtype, elements, least: 1, legal: None, scale: 1.0 });
        let offset = match from {
            ValueSource::Constant(_) => 0,
            ValueSource::Block(p) => p.offset,
        };
        ValueSource::Block(BlockPlace { block, offset })
    }

    /// The target of a move, as an output. All of the block is compared, of which a move may write
    /// a part: it is filled before.
    fn target(&mut self, plan: &Plan, to: &BlockPlace) -> BlockPlace {
        let (dtype, elements) = target_of(plan, to);
        let block = self.output(dtype, elements);
        let to_all = BlockPlace { block, offset: 0 };
        self.step("Fill", Vec::new(), Work::Fill { to: to_all, elements, value: 1.0 });
        BlockPlace { block, offset: to.offset }
    }

    /// A plain operator. A bounded one writes the extents of its results, into a block of as many
    /// whole numbers as `words` says.
    fn plain(&mut self, made: &PlainCall, is_bounded: bool, words: usize) -> Work {
        let Some(call) = made.0.as_deref() else {
            let call = PlainCall(None);
            return Work::Plain { call, inputs: Vec::new(), outputs: Vec::new(), extents: None };
        };
        let trial = self.trials.len();
        let mut inputs = Vec::new();
        for (i, o) in call.inputs.iter().enumerate() {
            inputs.push(o.as_ref().map(|o| match constant(o) {
                Some(data) => self.constant(o.dtype, data),
                None => {
                    let (dtype, elements) = (o.dtype, count(o) as usize);
                    let (least, legal) = (least(call), legal(call, i));
                    let scale = scale(call, i);
                    let block = self.input(Input { trial, dtype, elements, least, legal, scale });
                    ValueSource::Block(BlockPlace { block, offset: 0 })
                }
            }));
        }
        let extents =
            is_bounded.then(|| BlockPlace { block: self.block(DType::I64, words), offset: 0 });
        let mut before = 0;
        let mut result = |o: &CallOperand| {
            let block = self.output(o.dtype, count(o) as usize);
            let rank = o.shape.len();
            if let Some(extents) = extents {
                let output = self.plan.outputs.len() - 1;
                self.plan.bounded.push(BoundedOutput { output, extents, before, rank });
            }
            before += rank;
            BlockPlace { block, offset: 0 }
        };
        let outputs = call.outputs.iter().map(|o| o.as_ref().map(&mut result)).collect();
        Work::Plain { call: PlainCall(made.0.clone()), inputs, outputs, extents }
    }
}

/// The factor of an operand's random floats: below 1 for the weights of a recurrence. With large
/// weights a recurrence is chaotic: differences of 1e-7, by another order of sums, grow step by
/// step until nothing of the states is the same. With weights of this size, states of 512 units
/// differ by less than 1e-5 after 100 steps.
fn scale(call: &OperatorCall, operand: usize) -> f32 {
    let is_weight = matches!(call.op.as_str(), "LSTM" | "GRU" | "RNN") && matches!(operand, 1 | 2);
    let o = call.inputs.get(operand).and_then(Option::as_ref);
    let depth = o.filter(|o| is_weight && o.dtype == DType::F32).and_then(|o| o.shape.last());
    depth.map_or(1.0, |depth| 0.25 / ((*depth).max(1) as f32).sqrt())
}

/// The bytes of 32-bit floats times a number.
fn scaled(bytes: &[u8], by: f32) -> Vec<u8> {
    let floats = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_ne_bytes(*b) * by);
    floats.flat_map(f32::to_ne_bytes).collect()
}

/// How far elements may be off, of the larger of 1, the element wanted and the largest one: what
/// another order of sums and other functions of a library make.
fn share(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-11,
        DType::F16 => 4e-3,
        DType::Bf16 => 3e-2,
        _ => 2e-5,
    }
}

/// Above this, sums overflow in one order and not in another.
const NEAR_THE_LIMIT: f64 = 1e30;

/// The first element that differs, as it is and as it should be.
fn differing(got: &Array, want: &Array, of_floats: bool) -> Option<(usize, f64, f64)> {
    let (dtype, size) = (want.dtype, want.dtype.bytes() as usize);
    let elements = want.elements();
    if got.bytes.get(..elements * size)? == want.bytes.get(..elements * size)? {
        return None;
    }
    let numbers = (0..elements).filter_map(|i| want.number(i).map(f64::abs));
    let largest = numbers.filter(|x| *x < 1e10).fold(1.0, f64::max);
    (0..elements).find_map(|i| {
        let bytes = i * size..(i + 1) * size;
        if got.bytes[bytes.clone()] == want.bytes[bytes] {
            return None;
        }
        let (x, y) = (got.number(i)?, want.number(i)?);
        let is_same = match dtype.is_float() {
            true => {
                let near = (x - y).abs() <= share(dtype) * largest.max(y.abs());
                let one_is_beyond = x.is_finite() != y.is_finite() && !x.is_nan() && !y.is_nan();
                let beyond = one_is_beyond && x.abs().min(y.abs()) > NEAR_THE_LIMIT;
                (x.is_nan() && y.is_nan()) || x == y || (near && y.is_finite()) || beyond
            }
            // A sum near the middle between two is rounded otherwise by another order.
            false => of_floats && size == 1 && dtype != DType::Bool && (x - y).abs() <= 1.0,
        };
        (!is_same).then_some((i, x, y))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_order_of_sums_makes_is_the_same_and_no_more() {
        let of = |numbers: &[f32]| Array::floats(vec![numbers.len() as i64], numbers);
        let differ = |x: &[f32], y: &[f32]| differing(&of(x), &of(y), true).map(|d| d.0);
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        assert_eq!(differ(&[1.0, nan, inf], &[1.00001, -nan, inf]), None);
        assert_eq!(differ(&[1.0, 2.1], &[1.0, 2.0]), Some(1));
        for (x, y) in [(nan, 1.0), (1.0, nan), (inf, 1.0), (1.0, inf), (inf, -inf), (nan, inf)] {
            assert_eq!(differ(&[0.0, x], &[0.0, y]), Some(1), "{x} {y}");
        }
        assert_eq!(differ(&[inf], &[3e38]), None);
        let bytes = |b: &[u8]| Array { dtype: DType::U8, shape: vec![2], bytes: b.to_vec() };
        let differ = |of_floats| differing(&bytes(&[4, 5]), &bytes(&[4, 6]), of_floats).is_some();
        assert_eq!([differ(true), differ(false)], [false, true]);
    }
}
