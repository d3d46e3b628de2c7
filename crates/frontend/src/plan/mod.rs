//! A model as a program over blocks of memory: everything that is known before a call is made
//! ahead, and what remains are kernels and moves of data between places.

mod merge;
mod movement;

use crate::graph::{Feed, Graph, State, Step};
use crate::onnx::{Constant, Element, ValueId, fold};
use crate::weights::{Weights, random_input};
use movement::{Pattern, Piece};
use squall_core::TaskId;
use std::collections::HashMap;

/// Elements between places that kernels may be given: 64 bytes.
pub const ALIGNMENT: usize = 16;

/// A position in memory that a run writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index into [`Plan::blocks`].
    pub block: usize,
    /// Elements from its start.
    pub offset: usize,
}

/// What a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Index into [`Plan::constants`].
    Constant(usize),
    /// What an earlier step wrote.
    Place(Place),
}

/// One axis of a move: `extent` elements, so far apart in the target and in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// How many.
    pub extent: usize,
    /// Distance in the target.
    pub to: usize,
    /// Distance in the source; a mirror goes backwards.
    pub from: isize,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names say it
pub enum Work {
    /// A kernel, with its inputs in the workload's order.
    Kernel { task: TaskId, inputs: Vec<Source>, output: Place },
    /// A strided copy, outermost axis first. `from_offset` is relative to the source.
    Copy { from: Source, from_offset: usize, to: Place, axes: Vec<Stride> },
    /// A copy without a pattern: (target, source, length) each.
    Runs { from: Source, to: Place, runs: Vec<[usize; 3]> },
    /// The same number everywhere.
    Fill { to: Place, elements: usize, value: f32 },
}

impl Work {
    /// The place that is written.
    pub fn to(&self) -> Place {
        match self {
            Work::Kernel { output, .. } => *output,
            Work::Copy { to, .. } | Work::Runs { to, .. } | Work::Fill { to, .. } => *to,
        }
    }

    /// What is read.
    pub fn reads(&self) -> &[Source] {
        match self {
            Work::Kernel { inputs, .. } => inputs,
            Work::Copy { from, .. } | Work::Runs { from, .. } => std::slice::from_ref(from),
            Work::Fill { .. } => &[],
        }
    }
}

/// A step with the node that it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanStep {
    /// The node's name; of a kernel the first one's.
    pub node: String,
    /// The node's operator.
    pub op: String,
    /// What is done.
    pub work: Work,
}

/// A model ready to be laid out in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Everything known before a call that steps read.
    pub constants: Vec<Vec<f32>>,
    /// Elements of each block of memory.
    pub blocks: Vec<usize>,
    /// In order.
    pub steps: Vec<PlanStep>,
    /// Where the model's inputs go.
    pub inputs: Vec<Place>,
    /// Where its outputs are after the last step.
    pub outputs: Vec<Place>,
    /// Elements of each input.
    pub input_elements: Vec<usize>,
    /// Elements of each output.
    pub output_elements: Vec<usize>,
    /// Weights that the file does not hold: they are random.
    pub random: Vec<String>,
}

impl Plan {
    /// For each block the first and last step during which it holds something; inputs are there
    /// from the first step on, outputs until after the last.
    pub fn lifetimes(&self) -> Vec<(usize, usize)> {
        let mut lives = vec![(usize::MAX, 0); self.blocks.len()];
        let mut touch = |p: &Place, at: usize| {
            let life = &mut lives[p.block];
            *life = (life.0.min(at), life.1.max(at));
        };
        self.inputs.iter().for_each(|p| touch(p, 0));
        for (i, step) in self.steps.iter().enumerate() {
            touch(&step.work.to(), i);
            for s in step.work.reads() {
                if let Source::Place(p) = s {
                    touch(p, i);
                }
            }
        }
        self.outputs.iter().for_each(|p| touch(p, self.steps.len()));
        lives.into_iter().map(|(a, b)| (a.min(b), b)).collect()
    }
}

impl Graph {
    /// Compiles the model. `weights` are those of its file; absent ones become random.
    pub fn plan(&self, weights: Weights) -> Result<Plan, String> {
        let mut state = State { model: &self.model, values: HashMap::new() };
        let random = weights.complete(&mut state);
        let mut b = Builder {
            state,
            sources: HashMap::new(),
            known: HashMap::new(),
            plan: Plan { random, ..Plan::default() },
        };
        for (id, (name, _)) in self.model.inputs.iter().zip(&self.inputs) {
            let value = &self.model.values[*id];
            if value.element != Element::F32 {
                return Err(format!(
                    "input `{name}` is of {}; models are run on floats",
                    value.element
                ));
            }
            let elements = b.elements(*id)?;
            let place = b.block(elements);
            b.plan.inputs.push(place);
            b.plan.input_elements.push(elements);
            b.sources.insert(*id, Source::Place(place));
        }
        for step in &self.steps {
            match step {
                Step::Kernel { task, nodes, feeds, output } => {
                    b.kernel(*task, nodes[0], feeds, *output)?
                }
                Step::Node { node, reason } => b.node(*node, reason)?,
            }
        }
        for &id in &self.model.outputs {
            let place = b.output(id)?;
            b.plan.outputs.push(place);
            let elements = b.elements(id)?;
            b.plan.output_elements.push(elements);
        }
        merge::merge(&mut b.plan);
        Ok(b.plan)
    }

    /// Numbers for an input where the user gives none: the same in every run.
    pub fn random_input(&self, index: usize) -> Vec<f32> {
        random_input(
            self.inputs
                .get(index)
                .map_or(0, |(_, shape)| shape.iter().product::<i64>().max(0) as usize),
        )
    }
}

/// A plan while it is made.
struct Builder<'a> {
    state: State<'a>,
    /// Where the values of a run are, by their roots.
    sources: HashMap<ValueId, Source>,
    /// Constants that the plan has already.
    known: HashMap<ValueId, usize>,
    plan: Plan,
}

impl Builder<'_> {
    fn root(&self, id: ValueId) -> ValueId {
        self.state.model.values[id].alias.unwrap_or(id)
    }

    fn block(&mut self, elements: usize) -> Place {
        self.plan.blocks.push(elements);
        Place { block: self.plan.blocks.len() - 1, offset: 0 }
    }

    fn elements(&self, id: ValueId) -> Result<usize, String> {
        let value = &self.state.model.values[id];
        let shape = value
            .shape
            .as_ref()
            .ok_or_else(|| format!("the shape of `{}` is not known", value.name))?;
        Ok(shape.iter().product::<i64>().max(0) as usize)
    }

    fn push(&mut self, node: usize, work: Work) {
        let n = &self.state.model.nodes[node];
        self.plan.steps.push(PlanStep { node: n.name.clone(), op: n.op.clone(), work });
    }

    fn constant(&mut self, data: Vec<f32>) -> Source {
        self.plan.constants.push(data);
        Source::Constant(self.plan.constants.len() - 1)
    }

    fn feed(&mut self, feed: &Feed) -> Result<Source, String> {
        let Feed::Value(id) = feed else {
            let data = self.state.feed(feed)?.into_owned();
            return Ok(self.constant(data));
        };
        let root = self.root(*id);
        if let Some(s) = self.sources.get(&root) {
            return Ok(*s);
        }
        if let Some(&c) = self.known.get(&root) {
            return Ok(Source::Constant(c));
        }
        let data = self.state.feed(feed)?.into_owned();
        self.known.insert(root, self.plan.constants.len());
        Ok(self.constant(data))
    }

    fn kernel(
        &mut self,
        task: TaskId,
        node: usize,
        feeds: &[Feed],
        output: ValueId,
    ) -> Result<(), String> {
        let at =
            |e: String, b: &Builder<'_>| format!("node `{}`: {e}", b.state.model.nodes[node].name);
        let inputs: Result<Vec<Source>, String> = feeds.iter().map(|f| self.feed(f)).collect();
        let inputs = inputs.map_err(|e| at(e, self))?;
        let elements = self.elements(output).map_err(|e| at(e, self))?;
        let place = self.block(elements);
        self.sources.insert(output, Source::Place(place));
        self.push(node, Work::Kernel { task, inputs, output: place });
        Ok(())
    }

    /// A node that is not tuned: known, renamed or moved.
    fn node(&mut self, index: usize, reason: &str) -> Result<(), String> {
        let model = self.state.model;
        let node = &model.nodes[index];
        let at = |e: String| format!("node `{}` ({}): {e}", node.name, node.op);
        let roots: Vec<Option<ValueId>> =
            node.inputs.iter().map(|i| i.map(|i| self.root(i))).collect();
        let moving: Vec<Option<Source>> =
            roots.iter().map(|r| r.and_then(|r| self.sources.get(&r).copied())).collect();
        if node.outputs.iter().all(|o| self.state.get(*o).is_some()) {
            return Ok(());
        }
        if moving.iter().all(Option::is_none) {
            let mut inputs = Vec::new();
            for id in &node.inputs {
                let known =
                    |i: ValueId| self.state.get(i).cloned().ok_or_else(|| at(self.state.absent(i)));
                inputs.push(id.map(known).transpose()?);
            }
            let made = fold::evaluate(node, &inputs, model.opset)
                .ok_or_else(|| at(format!("it cannot be run: {reason}")))?;
            self.state.values.extend(node.outputs.iter().copied().zip(made.map_err(at)?));
            return Ok(());
        }
        if movement::renames(node) {
            let (Some(Some(source)), Some(&output)) = (moving.first(), node.outputs.first()) else {
                return Err(at("its data is not known".into()));
            };
            self.sources.insert(output, *source);
            return Ok(());
        }
        let mut operands = Vec::new();
        for (i, id) in node.inputs.iter().enumerate() {
            let Some(id) = *id else {
                operands.push(movement::Operand::Absent);
                continue;
            };
            operands.push(match (moving[i], self.state.get(id)) {
                (Some(_), _) => {
                    let shape = model.values[id].shape.clone();
                    movement::Operand::Floats(shape.ok_or_else(|| {
                        at(format!("the shape of `{}` is not known", model.values[id].name))
                    })?)
                }
                (None, Some(Constant::F32 { shape, .. })) => {
                    movement::Operand::Floats(shape.clone())
                }
                (None, Some(c)) => movement::Operand::Known(c.clone()),
                (None, None) => return Err(at(self.state.absent(id))),
            });
        }
        let results = movement::trace(node, &operands, model.opset)
            .ok_or_else(|| at(format!("it cannot be run: {reason}")))?;
        for (&output, result) in node.outputs.iter().zip(results.map_err(at)?) {
            self.result(index, output, result, &moving)?;
        }
        Ok(())
    }

    /// Steps that make one result of a node that moves data.
    fn result(
        &mut self,
        node: usize,
        output: ValueId,
        result: movement::Moved,
        moving: &[Option<Source>],
    ) -> Result<(), String> {
        let inputs = &self.state.model.nodes[node].inputs;
        let source = |b: &mut Self, i: usize| match (moving[i], inputs[i]) {
            (Some(s), _) => Ok(s),
            (None, Some(id)) => b.feed(&Feed::Value(id)),
            (None, None) => {
                Err(format!("node `{}`: its input {i} is missing", b.state.model.nodes[node].name))
            }
        };
        // All in one piece: no copy, only a name for a place.
        if let (None, [Piece { input, from, to: 0, pattern: Pattern::Axes(axes) }]) =
            (result.fill, &result.pieces[..])
            && let Some(Source::Place(p)) = moving[*input]
            && matches!(axes[..], [] | [Stride { to: 1, from: 1, .. }])
            && (p.offset + from).is_multiple_of(ALIGNMENT)
        {
            self.sources
                .insert(output, Source::Place(Place { block: p.block, offset: p.offset + from }));
            return Ok(());
        }
        let place = self.block(result.elements);
        if let Some(value) = result.fill {
            self.push(node, Work::Fill { to: place, elements: result.elements, value });
        }
        for Piece { input, from: from_offset, to: offset, pattern } in result.pieces {
            let from = source(self, input)?;
            let work = match pattern {
                Pattern::Axes(axes) => {
                    Work::Copy { from, from_offset, to: Place { offset, ..place }, axes }
                }
                Pattern::Runs(runs) => Work::Runs { from, to: place, runs },
            };
            self.push(node, work);
        }
        self.sources.insert(output, Source::Place(place));
        Ok(())
    }

    /// The place of a result of the model: constants and handed-on inputs are copied.
    fn output(&mut self, id: ValueId) -> Result<Place, String> {
        let root = self.root(id);
        if self.state.model.values[id].element != Element::F32 {
            return Err(format!("output `{}` is not of floats", self.state.model.values[id].name));
        }
        if let Some(Source::Place(p)) = self.sources.get(&root) {
            return Ok(*p);
        }
        let from = self.feed(&Feed::Value(id))?;
        let extent = self.elements(id)?;
        let to = self.block(extent);
        let axes = vec![Stride { extent, to: 1, from: 1 }];
        let name = self.state.model.values[id].name.clone();
        self.plan.steps.push(PlanStep {
            node: name,
            op: "output".into(),
            work: Work::Copy { from, from_offset: 0, to, axes },
        });
        Ok(to)
    }
}

#[cfg(test)]
mod tests;
