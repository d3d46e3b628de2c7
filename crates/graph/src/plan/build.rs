//! From an assignment to its plan: each step's work over blocks of their own, which `merge.rs` then
//! places inside each other where that saves copies.

use super::movement::{self, Pattern, Piece};
use super::{ALIGNMENT, Place, Plan, PlanConstant, PlanStep, Source, Stride, Work, merge};
use crate::assignment::{Assignment, Step};
use crate::feed::Feed;
use crate::state::State;
use crate::weights::complete;
use squall_core::graph::{Constant, ValueId, Weights, fold, type_name};
use squall_core::{DType, TaskId};
use std::collections::HashMap;

impl Assignment {
    /// Plans the model. `weights` are those of its file; absent ones become random.
    pub fn plan(&self, weights: Weights) -> Result<Plan, String> {
        let model = self.model();
        let mut state = State { model, values: HashMap::new() };
        let random = complete(weights, &mut state);
        let mut b = Builder {
            state,
            sources: HashMap::new(),
            known: HashMap::new(),
            plan: Plan { random, ..Plan::default() },
        };
        for (id, (name, _)) in model.inputs.iter().zip(&self.inputs) {
            let dtype = model.values[*id].dtype;
            if dtype != Some(DType::F32) {
                let of = type_name(dtype);
                return Err(format!("input `{name}` is of {of}; models are run on floats"));
            }
            let elements = b.elements(*id)?;
            let place = b.block(elements);
            b.plan.inputs.push(place);
            b.plan.input_elements.push(elements);
            b.sources.insert(*id, Source::Place(place));
        }
        for (i, step) in self.choice().steps.iter().enumerate() {
            match (*step, self.task_of_step(i)) {
                (Step::Kernel(c), Some(task)) => {
                    let c = &self.candidates().list[c];
                    b.kernel(task, c.nodes[0], &c.feeds, c.outputs[0])?;
                }
                (Step::Kernel(_), None) => return Err(format!("step {i} has no task")),
                (Step::Node(node), _) => b.node(node, &self.reason(node))?,
            }
        }
        for &id in &model.outputs {
            let place = b.output(id)?;
            b.plan.outputs.push(place);
            let elements = b.elements(id)?;
            b.plan.output_elements.push(elements);
        }
        merge::merge(&mut b.plan);
        b.plan.verify()?;
        Ok(b.plan)
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

    fn constant(&mut self, feed: &Feed, data: Vec<f32>) -> Source {
        let (name, elements) = (feed.text(self.state.model), data.len());
        self.plan.constants.push(PlanConstant { name, elements, data });
        Source::Constant(self.plan.constants.len() - 1)
    }

    fn feed(&mut self, feed: &Feed) -> Result<Source, String> {
        let Feed::Value(id) = feed else {
            let data = self.state.feed(feed)?.into_owned();
            return Ok(self.constant(feed, data));
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
        Ok(self.constant(feed, data))
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
        if self.state.model.values[id].dtype != Some(DType::F32) {
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
