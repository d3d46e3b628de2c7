//! Builds a plan (a network as steps over blocks of memory) from an assignment (the kernels that
//! cover a model, and its layouts): each step becomes work on blocks of memory (a kernel, a copy, a
//! fill or a plain operator), and all that depends on weights alone is computed now. Input: an
//! assignment and the model's weights; output: a [`Plan`](super::Plan). Each value first gets a
//! block of its own; `merge.rs`, `compose.rs` and `same.rs` then remove copies.

use super::movement::{self, Pattern, Piece};
use super::{
    Block, BlockPlace, BoundedOutput, PlainCall, Plan, PlanConstant, PlanStep, Stride, ValueSource,
    When, Work, alignment, compose, merge,
};
use crate::assignment::moving::carried;
use crate::assignment::{Assignment, Choice, Step};
use crate::candidate::root;
use crate::feed::Feed;
use crate::moves::renames;
use crate::site::{Site, common};
use crate::state::State;
use crate::view::View;
use crate::weights::Placed;
use crate::weights::complete;
use squall_core::graph::{Model, Node, OperatorCall, ValueId, Weights, is_bounded, type_name};
use squall_core::operators;
use squall_core::{DType, TaskId};
use std::collections::{HashMap, HashSet};

impl Assignment {
    /// Plans the model. `weights` are those of its file; absent ones become random.
    pub fn plan(&self, weights: Weights) -> Result<Plan, String> {
        self.plan_over(weights, &Placed::new())
    }

    /// The same with some weights left outside of the plan: they must be among those that [kernels
    /// alone read](Assignment::read_by_kernels_alone).
    pub fn plan_over(&self, weights: Weights, placed: &Placed) -> Result<Plan, String> {
        self.planned(weights, placed, false)
    }

    /// The same at an extent of a range: elements that are taken from a table by extents stay
    /// steps, for other extents take others.
    pub fn plan_over_range(&self, weights: Weights, placed: &Placed) -> Result<Plan, String> {
        self.planned(weights, placed, true)
    }

    fn planned(
        &self,
        weights: Weights,
        placed: &Placed,
        is_over_range: bool,
    ) -> Result<Plan, String> {
        let model = self.model();
        let mut state = State { model, values: HashMap::new() };
        let random = complete(weights, placed, &mut state);
        let view = View::new(model);
        let mut b = Builder {
            placed,
            state,
            view: &view,
            choice: self.choice(),
            sources: HashMap::new(),
            known: HashMap::new(),
            used: self.used(),
            bounded: HashMap::new(),
            when: Vec::new(),
            is_over_range,
            plan: Plan { random, ..Plan::default() },
        };
        for (id, (name, _)) in model.inputs.iter().zip(&self.inputs) {
            let dtype = model.values[*id].dtype;
            if dtype.is_none_or(|d| d == DType::Tf32) {
                let of = type_name(dtype);
                return Err(format!(
                    "input `{name}` is of {of}; models are run on floats of 16, 32 and 64 bits, \
                     whole numbers and booleans"
                ));
            }
            let place = b.block(*id)?;
            b.plan.inputs.push(place);
            b.plan.input_elements.push(b.elements(*id)?);
            b.sources.insert(*id, ValueSource::Block(place));
        }
        let conditions = self.conditions();
        for (i, (step, under)) in self.choice().steps.iter().zip(conditions).enumerate() {
            b.when = under
                .into_iter()
                .map(|(flag, is)| b.source(flag).map(|flag| When { flag, is }))
                .collect::<Result<_, String>>()?;
            match (*step, self.task_of_step(i)) {
                (Step::Kernel(c), Some(task)) => {
                    let c = &self.candidates().list[c];
                    b.kernel(task, c.nodes[0], &c.feeds, c.outputs[0])?;
                }
                (Step::Kernel(_), None) => return Err(format!("step {i} has no task")),
                (Step::Node(node), _) => b.node(node, &self.reason(node))?,
            }
        }
        for (i, &id) in model.outputs.iter().enumerate() {
            let place = b.output(id)?;
            b.plan.outputs.push(place);
            let elements = b.elements(id)?;
            b.plan.output_elements.push(elements);
            if let Some(bounded) = b.bounded.get(&b.root(id)) {
                b.plan.bounded.push(BoundedOutput { output: i, ..*bounded });
            }
        }
        compose::compose(&mut b.plan);
        merge::merge(&mut b.plan);
        b.plan.verify()?;
        Ok(b.plan)
    }

    /// The roots of values that steps or the caller read, without values that only nodes with
    /// unread results read.
    fn used(&self) -> HashSet<ValueId> {
        let model = self.model();
        let mut used: HashSet<ValueId> = model.outputs.iter().map(|&v| root(model, v)).collect();
        for step in self.choice().steps.iter().rev() {
            match *step {
                Step::Kernel(c) => {
                    let feeds = self.candidates().list[c].feeds.iter().flat_map(Feed::values);
                    used.extend(feeds.map(|v| root(model, v)));
                }
                Step::Node(n) if is_needed(model, &model.nodes[n], &used) => {
                    let inputs = model.nodes[n].inputs.iter().flatten();
                    used.extend(inputs.map(|&v| root(model, v)));
                }
                Step::Node(_) => {}
            }
        }
        used
    }
}

/// Whether a result of a node is used, by its root.
fn is_needed(model: &Model, node: &Node, used: &HashSet<ValueId>) -> bool {
    node.outputs.iter().any(|&o| used.contains(&root(model, o)))
}

/// A plan while it is made.
struct Builder<'a> {
    placed: &'a Placed,
    state: State<'a>,
    view: &'a View<'a>,
    choice: &'a Choice,
    /// Where the values of a run are, by their roots.
    sources: HashMap<ValueId, ValueSource>,
    /// Constants that the plan has already.
    known: HashMap<ValueId, usize>,
    /// The roots of values that steps or the caller read.
    used: HashSet<ValueId>,
    /// Where the extents of values are that only the run knows.
    bounded: HashMap<ValueId, BoundedOutput>,
    /// The conditions under which the step at hand runs.
    when: Vec<When>,
    /// Whether other extents have the same steps.
    is_over_range: bool,
    plan: Plan,
}

impl Builder<'_> {
    fn root(&self, id: ValueId) -> ValueId {
        root(self.state.model, id)
    }

    /// Memory for a value.
    fn block(&mut self, id: ValueId) -> Result<BlockPlace, String> {
        let (dtype, elements) = (self.dtype(id)?, self.elements(id)?);
        Ok(self.memory(dtype, elements))
    }

    fn memory(&mut self, dtype: DType, elements: usize) -> BlockPlace {
        self.plan.blocks.push(Block { dtype, elements });
        BlockPlace { block: self.plan.blocks.len() - 1, offset: 0 }
    }

    fn dtype(&self, id: ValueId) -> Result<DType, String> {
        let value = &self.state.model.values[id];
        value.dtype.ok_or_else(|| format!("the type of `{}` is not known", value.name))
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
        let (node, op, when) = (n.name.clone(), n.op.clone(), self.when.clone());
        self.plan.steps.push(PlanStep { node, op, when, work });
    }

    /// Numbers that a kernel reads.
    fn feed(&mut self, feed: &Feed) -> Result<ValueSource, String> {
        if let Feed::Value(id) = feed {
            return self.source(*id);
        }
        let data = self.state.feed(feed)?.iter().flat_map(|x| x.to_ne_bytes()).collect();
        Ok(self.constant(feed.text(self.state.model), DType::F32, data))
    }

    fn constant(&mut self, name: String, dtype: DType, data: Vec<u8>) -> ValueSource {
        let elements = data.len() / dtype.bytes() as usize;
        self.plan.constants.push(PlanConstant { name, dtype, elements, data, place: None });
        ValueSource::Constant(self.plan.constants.len() - 1)
    }

    /// Where a value is: what a step made, or a constant.
    fn source(&mut self, id: ValueId) -> Result<ValueSource, String> {
        let root = self.root(id);
        if let Some(s) = self.sources.get(&root) {
            return Ok(*s);
        }
        if let Some(&c) = self.known.get(&root) {
            return Ok(ValueSource::Constant(c));
        }
        if let Some(&place) = self.placed.get(&self.state.model.values[root].name) {
            let (dtype, elements) = (self.dtype(root)?, self.elements(root)?);
            let name = Feed::Value(id).text(self.state.model);
            let (data, place) = (Vec::new(), Some(place));
            self.plan.constants.push(PlanConstant { name, dtype, elements, data, place });
            self.known.insert(root, self.plan.constants.len() - 1);
            return Ok(ValueSource::Constant(self.plan.constants.len() - 1));
        }
        let constant = self.state.get(id).ok_or_else(|| self.state.absent(id))?;
        let dtype = self.state.model.values[id].dtype.unwrap_or(constant.dtype());
        let data = constant.bytes(dtype).ok_or_else(|| {
            let name = &self.state.model.values[id].name;
            format!("the constant `{name}` is of {}, which models are not run on", dtype.name())
        })?;
        self.known.insert(root, self.plan.constants.len());
        Ok(self.constant(Feed::Value(id).text(self.state.model), dtype, data))
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
        for id in feeds.iter().flat_map(Feed::values) {
            self.not_bounded(id).map_err(|e| at(e, self))?;
        }
        let inputs: Result<Vec<ValueSource>, String> = feeds.iter().map(|f| self.feed(f)).collect();
        let inputs = inputs.map_err(|e| at(e, self))?;
        let place = self.place(output).map_err(|e| at(e, self))?;
        self.push(node, Work::Kernel { task, inputs, output: place });
        Ok(())
    }

    /// Where a value goes that a step makes: memory of its own, or a part of its host's, which
    /// begins with the first value that is made in it.
    fn place(&mut self, v: ValueId) -> Result<BlockPlace, String> {
        if let Some(ValueSource::Block(p)) = self.sources.get(&v) {
            return Ok(*p);
        }
        let place = match self.choice.sites.get(&v) {
            Some(site) => {
                let host = self.place(site.host)?;
                BlockPlace { block: host.block, offset: host.offset + site.offset as usize }
            }
            None => self.block(v)?,
        };
        self.sources.insert(v, ValueSource::Block(place));
        Ok(place)
    }

    /// A node that moves data and whose operands or results do not lie as in the model: elements
    /// that are not in their place already are copied there.
    fn seen_through(&mut self, index: usize) -> Result<(), String> {
        for c in carried(self.view, self.choice, index)? {
            let result = self.place(c.result)?;
            if c.is_done() {
                continue;
            }
            let operand = self.state.model.nodes[index].inputs[c.operand].unwrap_or(c.result);
            let from = self.source(operand)?;
            // A site counts from its host's start, a source from the value's.
            let begins = |v: ValueId, s: &Site| match self.choice.sites.get(&v) {
                Some(own) => s.offset - own.offset,
                None => s.offset,
            };
            let from_offset = begins(self.root(operand), &c.from);
            let offset = result.offset as i64 + begins(c.result, &c.to);
            let (Ok(from_offset), Ok(offset)) =
                (usize::try_from(from_offset), usize::try_from(offset))
            else {
                return Err("a part of it begins before the whole".into());
            };
            let axes =
                common(&c.to, &c.from).ok_or("its values lie so that no strides copy them")?;
            let mut axes: Vec<Stride> = axes
                .into_iter()
                .map(|(extent, to, from)| Stride {
                    extent: extent as usize,
                    to: to as usize,
                    from: from as isize,
                })
                .collect();
            // In the order of the target's memory.
            axes.sort_by_key(|a| std::cmp::Reverse(a.to));
            let to = BlockPlace { block: result.block, offset };
            self.push(index, Work::Copy { from, from_offset, to, axes });
        }
        Ok(())
    }

    /// Whether a node reads or gives a value that does not lie as the model has it.
    fn is_apart(&self, index: usize) -> bool {
        let node = &self.state.model.nodes[index];
        let all = node.inputs.iter().flatten().chain(&node.outputs);
        let apart = |v: ValueId| self.choice.sites.contains_key(&v) || !self.choice.is_plain(v);
        all.map(|&v| self.root(v)).any(apart)
    }

    /// Checks that a value's extents are known ahead of the run.
    fn not_bounded(&self, id: ValueId) -> Result<(), String> {
        if !self.bounded.contains_key(&self.root(id)) {
            return Ok(());
        }
        Err(format!(
            "it reads `{}`, whose extents only the run knows; such values can be outputs of the \
             model, and no node can go on from them",
            self.state.model.values[id].name
        ))
    }

    /// Makes the table of a node that takes elements of it a constant of the plan, for a range,
    /// which the reader left to the run.
    fn keep_table(&mut self, index: usize) -> Result<(), String> {
        /// Shorter ones are lists of extents themselves.
        const LEAST_TABLE: usize = 65;
        if !self.is_over_range {
            return Ok(());
        }
        let node = &self.state.model.nodes[index];
        let takes = matches!(node.op.as_str(), "Gather" | "GatherND" | "GatherElements" | "Slice");
        let Some(Some(table)) = node.inputs.first().copied() else { return Ok(()) };
        let is_table = self.state.get(table).is_some_and(|c| c.len() >= LEAST_TABLE);
        if takes && is_table {
            let source = self.source(table)?;
            let root = self.root(table);
            self.sources.insert(root, source);
        }
        Ok(())
    }

    /// A node that is not tuned: known, renamed, moved, or run by a plain operator.
    fn node(&mut self, index: usize, reason: &str) -> Result<(), String> {
        let model = self.state.model;
        let node = &model.nodes[index];
        let at = |e: String| format!("node `{}` ({}): {e}", node.name, node.op);
        let is_known = node.outputs.iter().all(|o| self.state.get(*o).is_some());
        // A node whose results nothing reads has no step: a function without results is none.
        if is_known || !is_needed(model, node, &self.used) {
            return Ok(());
        }
        self.keep_table(index).map_err(at)?;
        let moving: Vec<Option<ValueSource>> = node
            .inputs
            .iter()
            .map(|i| i.and_then(|i| self.sources.get(&self.root(i)).copied()))
            .collect();
        if moving.iter().all(Option::is_none) && self.known(index)? {
            return Ok(());
        }
        for id in node.inputs.iter().flatten() {
            self.not_bounded(*id).map_err(at)?;
        }
        if self.is_apart(index) {
            return self.seen_through(index).map_err(at);
        }
        // The run finds the extents of nothing, too.
        let is_found = is_bounded(&node.domain, &node.op);
        if !is_found && node.outputs.iter().all(|o| self.elements(*o) == Ok(0)) {
            for &output in &node.outputs {
                let place = self.block(output).map_err(at)?;
                self.sources.insert(output, ValueSource::Block(place));
            }
            return Ok(());
        }
        let unused = node.outputs.iter().skip(1).all(|o| !self.used.contains(o));
        if let (true, true, Some(Some(source))) = (renames(node), unused, moving.first()) {
            self.sources.insert(node.outputs[0], *source);
            return Ok(());
        }
        if self.converts(index) {
            return self.conversion(index).map_err(at);
        }
        let moves = match self.moves(index) {
            Err(_) if !self.when.is_empty() => None,
            other => other.map_err(at)?,
        };
        if let Some(results) = moves {
            for (&output, result) in node.outputs.iter().zip(results) {
                self.result(index, output, result).map_err(at)?;
            }
            return Ok(());
        }
        self.plain(index).map_err(|e| match reason {
            "" => at(e),
            _ => at(format!("it cannot be run: {reason} ({e})")),
        })
    }

    /// Whether a node converts between floats of 32 and of 16 bits.
    fn converts(&self, index: usize) -> bool {
        let model = self.state.model;
        let node = &model.nodes[index];
        let (Some(Some(from)), [to]) = (node.inputs.first(), &node.outputs[..]) else {
            return false;
        };
        let types = [*from, *to].map(|v| model.values[v].dtype);
        let wide = types.iter().filter(|d| **d == Some(DType::F32)).count();
        let narrow = types.iter().flatten().filter(|d| d.is_half()).count();
        node.op == "Cast" && wide == 1 && narrow == 1
    }

    /// A conversion is a copy between blocks of both types.
    fn conversion(&mut self, index: usize) -> Result<(), String> {
        let node = &self.state.model.nodes[index];
        let (Some(Some(from)), [output]) = (node.inputs.first(), &node.outputs[..]) else {
            return Err("it has no operand".into());
        };
        let (from, extent) = (self.source(*from)?, self.elements(*output)?);
        let to = self.block(*output)?;
        let axes = vec![Stride { extent, to: 1, from: 1 }];
        self.push(index, Work::Copy { from, from_offset: 0, to, axes });
        self.sources.insert(*output, ValueSource::Block(to));
        Ok(())
    }

    /// Whether a node could be evaluated ahead; no step makes any of its operands.
    fn known(&mut self, index: usize) -> Result<bool, String> {
        let model = self.state.model;
        let node = &model.nodes[index];
        let at = |e: String| format!("node `{}` ({}): {e}", node.name, node.op);
        let mut inputs = Vec::new();
        for id in &node.inputs {
            let known =
                |i: ValueId| self.state.get(i).cloned().ok_or_else(|| at(self.state.absent(i)));
            inputs.push(id.map(known).transpose()?);
        }
        match operators::evaluate_as(node, &inputs, &model.operand_types(node), model.opset) {
            Some(Ok(made)) if made.len() >= node.outputs.len() => {
                self.state.values.extend(node.outputs.iter().copied().zip(made));
                Ok(true)
            }
            // A branch that is not taken may be illegal: the run says it, where it comes to it.
            Some(Err(_)) if !self.when.is_empty() => Ok(false),
            Some(Err(e)) => Err(at(e)),
            _ => Ok(false),
        }
    }

    /// How a node moves data, if it does nothing else.
    fn moves(&self, index: usize) -> Result<Option<Vec<movement::Moved>>, String> {
        let model = self.state.model;
        let node = &model.nodes[index];
        let mut operands = Vec::new();
        for id in &node.inputs {
            let Some(id) = *id else {
                operands.push(movement::MoveOperand::Absent);
                continue;
            };
            let value = &model.values[id];
            let made = self.sources.contains_key(&self.root(id));
            operands.push(match (made, self.state.get(id)) {
                (true, _) => movement::MoveOperand::Made(
                    value
                        .shape
                        .clone()
                        .ok_or_else(|| format!("the shape of `{}` is not known", value.name))?,
                ),
                (false, Some(c)) => movement::MoveOperand::Known(c.clone()),
                (false, None) => return Err(self.state.absent(id)),
            });
        }
        movement::trace(node, &operands, model.opset).transpose()
    }

    /// A step that runs a node by a plain operator.
    fn plain(&mut self, index: usize) -> Result<(), String> {
        let model = self.state.model;
        let node = &model.nodes[index];
        if let Some(problem) = &node.problem {
            return Err(problem.clone());
        }
        let (state, sources) = (&self.state, &self.sources);
        let constant = |id: ValueId| match sources.contains_key(&root(model, id)) {
            true => None,
            false => state.get(id),
        };
        let wanted = |id: ValueId| self.used.contains(&id);
        let call = OperatorCall::of_node(model, node, &constant, &wanted)?;
        for o in call.inputs.iter().chain(&call.outputs).flatten() {
            if o.dtype.is_half() || o.dtype == DType::Tf32 {
                return Err(format!("models are not run on {}", o.dtype.name()));
            }
        }
        let inputs = node.inputs.iter().map(|i| i.map(|i| self.source(i)).transpose());
        let inputs = inputs.collect::<Result<Vec<_>, String>>()?;
        let mut outputs = Vec::new();
        for (&id, o) in node.outputs.iter().zip(&call.outputs) {
            let place = o.as_ref().map(|_| self.block(id)).transpose()?;
            if let Some(place) = place {
                self.sources.insert(id, ValueSource::Block(place));
            }
            outputs.push(place);
        }
        let is_bounded = is_bounded(&call.domain, &call.op);
        let extents = is_bounded.then(|| self.memory(DType::I64, call.extents()));
        if let Some(extents) = extents {
            let mut before = 0;
            for (&id, o) in node.outputs.iter().zip(&call.outputs) {
                let Some(o) = o else { continue };
                let rank = o.shape.len();
                let bounded = BoundedOutput { output: 0, extents, before, rank };
                self.bounded.insert(id, bounded);
                before += rank;
            }
        }
        let call = PlainCall(Some(Box::new(call)));
        self.push(index, Work::Plain { call, inputs, outputs, extents });
        Ok(())
    }

    /// Steps that make one result of a node that moves data.
    fn result(
        &mut self,
        node: usize,
        output: ValueId,
        result: movement::Moved,
    ) -> Result<(), String> {
        let dtype = self.dtype(output)?;
        let input = |b: &mut Self, i: usize| match b.state.model.nodes[node].inputs.get(i) {
            Some(Some(id)) => b.source(*id),
            _ => Err(format!("its input {i} is missing")),
        };
        // All in one piece: no copy, only a name for a place.
        if let (None, [Piece { input: i, from, to: 0, pattern: Pattern::Axes(axes) }]) =
            (result.fill, &result.pieces[..])
            && matches!(axes[..], [] | [Stride { to: 1, from: 1, .. }])
            && let ValueSource::Block(p) = input(self, *i)?
            && (p.offset + from).is_multiple_of(alignment(dtype))
        {
            let place = BlockPlace { block: p.block, offset: p.offset + from };
            self.sources.insert(output, ValueSource::Block(place));
            return Ok(());
        }
        let place = self.memory(dtype, result.elements);
        if let Some(value) = result.fill {
            self.push(node, Work::Fill { to: place, elements: result.elements, value });
        }
        for Piece { input: i, from: from_offset, to: offset, pattern } in result.pieces {
            let from = input(self, i)?;
            let work = match pattern {
                Pattern::Axes(axes) => {
                    Work::Copy { from, from_offset, to: BlockPlace { offset, ..place }, axes }
                }
                Pattern::Runs(runs) => Work::Runs { from, to: place, runs },
            };
            self.push(node, work);
        }
        self.sources.insert(output, ValueSource::Block(place));
        Ok(())
    }

    /// The place of a result of the model: constants and handed-on inputs are copied.
    fn output(&mut self, id: ValueId) -> Result<BlockPlace, String> {
        if let Some(ValueSource::Block(p)) = self.sources.get(&self.root(id)) {
            return Ok(*p);
        }
        let from = self.source(id)?;
        let (to, extent) = (self.block(id)?, self.elements(id)?);
        if extent > 0 {
            let axes = vec![Stride { extent, to: 1, from: 1 }];
            let name = self.state.model.values[id].name.clone();
            self.plan.steps.push(PlanStep {
                node: name,
                op: "output".into(),
                when: Vec::new(),
                work: Work::Copy { from, from_offset: 0, to, axes },
            });
        }
        Ok(to)
    }
}
