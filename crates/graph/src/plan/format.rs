//! Number formats in a plan (a network as steps over blocks of memory): after tasks were changed to
//! 16-bit formats (`squall/src/input/in_precision.rs`), blocks between kernels take the kernels'
//! format, and a converting copy is inserted where a block must keep another one, such as the
//! caller's inputs and outputs. Input and output: a plan; the formats come from the tasks'
//! workloads.

use super::same::drop_same;
use super::{BlockPlace, Plan, PlanConstant, PlanStep, Stride, ValueSource, Work};
use squall_core::{DType, TaskId, Workload};
use std::collections::HashMap;

impl Plan {
    /// Lets each kernel read and write the formats of its workload. The model's inputs and outputs,
    /// and the operands and results of plain operators, keep their formats.
    pub fn in_formats(&mut self, of: &HashMap<TaskId, &Workload>) -> Result<(), String> {
        let preferred = preferred(self, of);
        let given: Vec<DType> = self.outputs.iter().map(|p| self.blocks[p.block].dtype).collect();
        let mut r = Rewriter {
            // A 16-bit format of the model itself stays.
            is_decided: self.blocks.iter().map(|b| b.dtype.is_half()).collect(),
            plan: self,
            preferred,
            casts: HashMap::new(),
            constants: HashMap::new(),
            steps: Vec::new(),
        };
        for place in r.plan.inputs.clone() {
            r.is_decided[place.block] = true;
        }
        for step in std::mem::take(&mut r.plan.steps) {
            r.step(step, of)?;
        }
        for (i, &given) in given.iter().enumerate().take(r.plan.outputs.len()) {
            let (place, elements) = (r.plan.outputs[i], r.plan.output_elements[i]);
            if converts(r.plan.blocks[place.block].dtype, given) {
                let step = ("output".to_string(), "output".to_string());
                r.plan.outputs[i] = r.cast(place, elements, given, &step);
            }
        }
        let steps = std::mem::take(&mut r.steps);
        self.steps = steps;
        drop_same(self);
        self.verify()
    }
}

/// For each block the 16-bit format in which a kernel reads or writes it, if any does.
fn preferred(plan: &Plan, of: &HashMap<TaskId, &Workload>) -> Vec<Option<DType>> {
    let mut list = vec![None; plan.blocks.len()];
    for step in &plan.steps {
        let Work::Kernel { task, inputs, output } = &step.work else { continue };
        let Some(w) = of.get(task) else { continue };
        let read = inputs.iter().zip(&w.inputs).filter_map(|(s, i)| match s {
            ValueSource::Block(p) => Some((p.block, i.dtype)),
            ValueSource::Constant(_) => None,
        });
        for (block, dtype) in read.chain([(output.block, w.output().dtype)]) {
            if dtype.is_half() {
                list[block] = Some(dtype);
            }
        }
    }
    list
}

/// A node's name and operator.
type Named = (String, String);

struct Rewriter<'a> {
    plan: &'a mut Plan,
    /// Whether the format of each block is decided.
    is_decided: Vec<bool>,
    preferred: Vec<Option<DType>>,
    /// Places that were converted already.
    casts: HashMap<(BlockPlace, usize, DType), BlockPlace>,
    constants: HashMap<(usize, DType), usize>,
    steps: Vec<PlanStep>,
}

/// Whether a copy can convert numbers of one format to the other.
fn converts(from: DType, to: DType) -> bool {
    let known = |d: DType| d == DType::F32 || d.is_half();
    from != to && known(from) && known(to)
}

impl Rewriter<'_> {
    fn step(&mut self, step: PlanStep, of: &HashMap<TaskId, &Workload>) -> Result<(), String> {
        let named = (step.node.clone(), step.op.clone());
        let mut behind = Vec::new();
        let work = match step.work {
            Work::Kernel { task, mut inputs, mut output } => {
                if let Some(w) = of.get(&task) {
                    for (source, i) in inputs.iter_mut().zip(&w.inputs) {
                        let elements = i.shape.iter().product::<i64>() as usize;
                        *source = self.read(*source, elements, i.dtype, &named)?;
                    }
                    let elements = w.output().elements() as usize;
                    let dtype = w.output().dtype;
                    output = self.write(output, elements, dtype, &named, &mut behind);
                }
                Work::Kernel { task, inputs, output }
            }
            Work::Copy { from, from_offset, to, axes } => {
                // A copy converts by itself.
                let (given, wanted) = (self.plan.dtype(&from), self.preferred[to.block]);
                // It does not convert between two formats of 16 bits.
                let other = given.is_half() && wanted.is_some_and(|w| w != given);
                self.decide(to.block, if other { DType::F32 } else { wanted.unwrap_or(given) });
                Work::Copy { from, from_offset, to, axes }
            }
            Work::Runs { mut from, to, runs } => {
                self.decide(to.block, self.plan.dtype(&from));
                let wanted = self.plan.blocks[to.block].dtype;
                from = match from {
                    ValueSource::Block(p) => {
                        let whole = ValueSource::Block(BlockPlace { block: p.block, offset: 0 });
                        let elements = self.plan.blocks[p.block].elements;
                        match self.read(whole, elements, wanted, &named)? {
                            ValueSource::Block(q) => {
                                ValueSource::Block(BlockPlace { offset: p.offset, ..q })
                            }
                            other => other,
                        }
                    }
                    other => self.read(other, 0, wanted, &named)?,
                };
                Work::Runs { from, to, runs }
            }
            Work::Fill { to, elements, value } => {
                self.decide(to.block, self.preferred[to.block].unwrap_or(DType::F32));
                Work::Fill { to, elements, value }
            }
            Work::Plain { call, mut inputs, mut outputs, extents } => {
                let sizes = |list: &[Option<squall_core::graph::CallOperand>]| -> Vec<usize> {
                    let one = |o: &squall_core::graph::CallOperand| {
                        o.shape.iter().product::<i64>().max(0) as usize
                    };
                    list.iter().map(|o| o.as_ref().map_or(0, one)).collect()
                };
                let made = call.0.as_deref();
                let (ins, outs) = (
                    made.map_or(Vec::new(), |c| sizes(&c.inputs)),
                    made.map_or(Vec::new(), |c| sizes(&c.outputs)),
                );
                for (source, n) in inputs.iter_mut().zip(ins) {
                    if let Some(s) = source {
                        *s = self.read(*s, n, DType::F32, &named)?;
                    }
                }
                for (place, n) in outputs.iter_mut().zip(outs) {
                    if let Some(p) = place {
                        *p = self.write(*p, n, DType::F32, &named, &mut behind);
                    }
                }
                Work::Plain { call, inputs, outputs, extents }
            }
        };
        for s in &mut behind {
            s.when.clone_from(&step.when);
        }
        self.steps.push(PlanStep { work, ..step });
        self.steps.append(&mut behind);
        Ok(())
    }

    /// Gives a block its format, unless that is decided. Integers stay integers.
    fn decide(&mut self, block: usize, dtype: DType) {
        if !std::mem::replace(&mut self.is_decided[block], true)
            && converts(self.plan.blocks[block].dtype, dtype)
        {
            self.plan.blocks[block].dtype = dtype;
        }
    }

    /// The source that a step reads, converted to the format that the step wants.
    fn read(
        &mut self,
        from: ValueSource,
        elements: usize,
        wanted: DType,
        named: &Named,
    ) -> Result<ValueSource, String> {
        if !converts(self.plan.dtype(&from), wanted) {
            return Ok(from);
        }
        match from {
            ValueSource::Block(p) => Ok(ValueSource::Block(self.cast(p, elements, wanted, named))),
            ValueSource::Constant(c) => {
                if let Some(known) = self.constants.get(&(c, wanted)) {
                    return Ok(ValueSource::Constant(*known));
                }
                let made = converted(&self.plan.constants[c], wanted)?;
                self.plan.constants.push(made);
                let number = self.plan.constants.len() - 1;
                self.constants.insert((c, wanted), number);
                Ok(ValueSource::Constant(number))
            }
        }
    }

    /// Elements from a place on in another format.
    fn cast(&mut self, p: BlockPlace, elements: usize, wanted: DType, named: &Named) -> BlockPlace {
        let key = (p, elements, wanted);
        if let Some(known) = self.casts.get(&key) {
            return *known;
        }
        let to = self.block(elements, wanted);
        self.steps.push(copy(p, to, elements, named));
        self.casts.insert(key, to);
        to
    }

    fn block(&mut self, elements: usize, dtype: DType) -> BlockPlace {
        self.plan.blocks.push(super::Block { dtype, elements });
        self.is_decided.push(true);
        self.preferred.push(None);
        BlockPlace { block: self.plan.blocks.len() - 1, offset: 0 }
    }

    /// The place that a step writes its result to in a format; a copy behind it converts the result
    /// where the final place has another format.
    fn write(
        &mut self,
        to: BlockPlace,
        elements: usize,
        dtype: DType,
        named: &Named,
        behind: &mut Vec<PlanStep>,
    ) -> BlockPlace {
        self.decide(to.block, dtype);
        if !converts(dtype, self.plan.blocks[to.block].dtype) {
            return to;
        }
        let own = self.block(elements, dtype);
        behind.push(copy(own, to, elements, named));
        own
    }
}

/// A step that converts elements.
fn copy(from: BlockPlace, to: BlockPlace, elements: usize, named: &Named) -> PlanStep {
    let (node, op) = named;
    let axes = vec![Stride { extent: elements, to: 1, from: 1 }];
    let work = Work::Copy { from: ValueSource::Block(from), from_offset: 0, to, axes };
    PlanStep { node: node.clone(), op: format!("{op} (cast)"), when: Vec::new(), work }
}

/// Numbers in another format.
fn converted(c: &PlanConstant, wanted: DType) -> Result<PlanConstant, String> {
    let floats = c.data.as_chunks::<4>().0.iter().map(|b| f32::from_ne_bytes(*b));
    let mut data = Vec::with_capacity(c.elements * wanted.bytes() as usize);
    for x in floats {
        let bits = wanted.half_bits(x).filter(|_| c.dtype == DType::F32);
        let bits = bits.ok_or_else(|| {
            format!("constant {} of {} in {}", c.name, c.dtype.name(), wanted.name())
        })?;
        data.extend(bits.to_ne_bytes());
    }
    Ok(PlanConstant {
        name: c.name.clone(),
        dtype: wanted,
        elements: c.elements,
        data,
        place: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Block;
    use super::*;
    use squall_core::Task;

    /// A kernel of bf16 over the input and a constant, a copy of what it gives, and a second kernel
    /// that writes it, whose sums stay 32-bit floats.
    #[test]
    fn what_lies_between_kernels_takes_their_format() {
        let text = |given: &str| {
            format!(
                "workload m\ndata X: bf16[4]\nweight W: bf16[4]\nstage Y: {given}[i: 4] = X[i] * \
                 W[i]\noutput Y"
            )
        };
        let task = |given| Task::new("t", Workload::parse(&text(given)).unwrap());
        let (half, float) = (task("bf16"), task("f32"));
        let place = |block| BlockPlace { block, offset: 0 };
        let kernel = |task: &Task, from, to| PlanStep {
            node: "k".into(),
            op: "Mul".into(),
            when: Vec::new(),
            work: Work::Kernel {
                task: task.id,
                inputs: vec![ValueSource::Block(place(from)), ValueSource::Constant(0)],
                output: place(to),
            },
        };
        let named = ("c".to_string(), "Copy".to_string());
        // In the other direction the copy changes nothing, and both blocks become one.
        let mut turned = copy(place(1), place(2), 4, &named);
        if let Work::Copy { from_offset, axes, .. } = &mut turned.work {
            (*from_offset, axes[0].from) = (3, -1);
        }
        let numbers = [1.0f32, 2.0, 0.5, -4.0];
        let mut p = Plan {
            constants: vec![PlanConstant {
                name: "w".into(),
                dtype: DType::F32,
                elements: 4,
                data: numbers.iter().flat_map(|x| x.to_ne_bytes()).collect(),
                place: None,
            }],
            blocks: vec![Block { dtype: DType::F32, elements: 4 }; 4],
            steps: vec![kernel(&half, 0, 1), turned, kernel(&float, 2, 3)],
            inputs: vec![place(0)],
            outputs: vec![place(3), place(1)],
            input_elements: vec![4],
            output_elements: vec![4, 4],
            ..Plan::default()
        };
        let of = HashMap::from([(half.id, &half.workload), (float.id, &float.workload)]);
        p.in_formats(&of).unwrap();
        let of_step: Vec<String> = p.steps.iter().map(|s| s.op.clone()).collect();
        assert_eq!(of_step, ["Mul (cast)", "Mul", "Copy (cast)", "Mul", "output (cast)"]);
        let formats: Vec<&str> = p.blocks.iter().map(|b| b.dtype.name()).collect();
        assert_eq!(formats, ["f32", "bf16", "bf16", "f32", "bf16", "f32"]);
        // The second output is what a kernel of bf16 gave, as the caller wants it.
        assert_eq!((p.outputs[0].block, p.outputs[1].block), (3, 5));
        let bits: Vec<u16> =
            p.constants[1].data.as_chunks::<2>().0.iter().map(|b| u16::from_ne_bytes(*b)).collect();
        assert_eq!(bits, [0x3f80, 0x4000, 0x3f00, 0xc080]);
        assert_eq!(p.constants.len(), 2, "{p}");
    }
}
