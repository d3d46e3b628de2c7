//! Which nodes share a kernel: every operator with a kernel of its own takes in the elementwise
//! nodes that follow it, the rest of these form kernels by themselves.
//!
//! A group is a set of nodes with one value that others read. All its nodes lead to that value,
//! so that groups can never wait for each other in a circle, and the order of their last nodes is
//! an order of execution.

use super::infer::Inferred;
use super::model::{Call, Model, ValueId};
use super::op::{Kernel, Lower, entry};
use super::read::Fault;
use crate::build::functions::{add, mul};
use crate::build::{MOST_OPERANDS, MOST_STEPS, placeholder, varies};
use crate::error::{Outcome, Place, Trouble, unknown, wrong};
use crate::tensor::{Elem, elements};
use squall_core::expr::Expr;
use std::collections::{BTreeSet, HashMap, HashSet};

/// What becomes of a node.
pub(crate) enum Role {
    /// Constant, an identity, or nobody reads it.
    Folded,
    Kernel(Box<Kernel>),
    /// A step of an elementwise kernel.
    Point,
    /// Scale and shift per channel: folded into a producer, or a step.
    Scale,
    /// Not tuned, for this reason.
    Plain(String),
}

/// Nodes that share a kernel.
#[derive(Debug)]
pub(crate) struct Group {
    /// The node with a kernel of its own; without one the group is elementwise.
    pub anchor: Option<usize>,
    /// A scale and shift that goes into the anchor's weights.
    pub scaled: Option<usize>,
    /// Elementwise nodes, in order.
    pub steps: Vec<usize>,
    /// What others read.
    pub out: ValueId,
}

impl Group {
    /// All nodes, in order.
    pub fn nodes(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.anchor.into_iter().chain(self.scaled).chain(self.steps.iter().copied()).collect();
        all.sort_unstable();
        all
    }
}

/// A node's input as its expression sees it.
pub(crate) enum Source {
    /// A number.
    Number(f64),
    /// A tensor.
    Tensor(ValueId),
}

pub(crate) struct Fuser<'a> {
    pub model: &'a Model,
    pub roles: Vec<Role>,
    /// The value that a value is, behind identities.
    pub root: Vec<ValueId>,
    /// The nodes that read a value when the model runs.
    uses: Vec<Vec<usize>>,
    is_output: Vec<bool>,
    claimed: Vec<bool>,
}

/// The elementwise nodes taken in while a group grows.
struct Growth {
    steps: Vec<usize>,
    /// Values inside, with the number of operations behind each.
    inside: HashMap<ValueId, u64>,
    out: ValueId,
}

impl<'a> Fuser<'a> {
    pub fn new(model: &'a Model, inferred: &mut Inferred) -> Result<Fuser<'a>, Fault> {
        let mut root: Vec<ValueId> = (0..model.values.len()).collect();
        for (i, n) in model.nodes.iter().enumerate() {
            if let (true, Some(&Some(from)), Some(&Some(to))) = (inferred.same[i], n.inputs.first(), n.outputs.first()) {
                root[to] = root[from];
            }
        }
        let mut live = vec![false; model.values.len()];
        for &o in &model.outputs {
            live[root[o]] = true;
        }
        let mut f = Fuser {
            roles: Vec::new(),
            uses: vec![Vec::new(); model.values.len()],
            is_output: live.clone(),
            claimed: vec![false; model.nodes.len()],
            root,
            model,
        };
        // From the outputs back: what nobody reads is left out.
        let mut roles = Vec::with_capacity(model.nodes.len());
        for (i, n) in model.nodes.iter().enumerate().rev() {
            let used = n.outputs.iter().flatten().any(|&v| live[v]);
            let constant = n.outputs.iter().flatten().all(|&v| model.values[v].constant);
            if !used || constant || inferred.same[i] {
                roles.push(Role::Folded);
                continue;
            }
            roles.push(f.role(i, inferred.trouble[i].take())?);
            for &v in n.inputs.iter().flatten().chain(&n.captures) {
                live[f.root[v]] = true;
                let users = &mut f.uses[f.root[v]];
                if users.last() != Some(&i) {
                    users.push(i);
                }
            }
        }
        roles.reverse();
        f.roles = roles;
        Ok(f)
    }

    fn call(&self, node: usize) -> Call<'a> {
        Call { node: &self.model.nodes[node], values: &self.model.values }
    }

    fn role(&self, i: usize, trouble: Option<String>) -> Result<Role, Fault> {
        let node = &self.model.nodes[i];
        let Some(known) = entry(node) else { return Ok(Role::Plain(trouble.unwrap_or_default())) };
        if let Some(reason) = trouble {
            return Ok(Role::Plain(reason));
        }
        let call = self.call(i);
        let lowered = match &known.lower {
            Lower::Same => Err(Trouble::Unknown("moves data only".into())),
            Lower::Untuned(reason) => Err(Trouble::Unknown((*reason).into())),
            Lower::Kernel(f) => tunable(&call).and_then(|()| f(&call)).map(|k| Role::Kernel(Box::new(k))),
            Lower::Pointwise(_) => tunable(&call).and_then(|()| self.step_of(i)).map(|_| Role::Point),
            Lower::ScaleShift => tunable(&call).and_then(|()| scale_shift(&call)).map(|()| Role::Scale),
        };
        match lowered {
            Ok(role) => Ok(role),
            Err(Trouble::Unknown(reason)) => Ok(Role::Plain(reason)),
            Err(Trouble::Wrong(m)) => Err((Place::Node { name: node.name.clone(), op: node.op.clone() }, m)),
        }
    }

    /// The inputs of an elementwise node: present ones, in order.
    pub fn sources(&self, node: usize) -> Vec<Option<Source>> {
        let n = &self.model.nodes[node];
        let inputs = if matches!(self.roles.get(node), Some(Role::Scale)) { &n.inputs[..1] } else { &n.inputs };
        let source = |v: ValueId| {
            let value = &self.model.values[v];
            match value.data.as_ref().filter(|_| value.constant).and_then(|t| t.scalar()) {
                Some(x) => Source::Number(super::model::decimal(x as f32)),
                None => Source::Tensor(self.root[v]),
            }
        };
        inputs.iter().map(|v| v.map(source)).collect()
    }

    /// The node as an expression of placeholders, one for each present input that is a tensor;
    /// scale and shift are two more.
    fn step_of(&self, node: usize) -> Outcome<(Expr, Vec<ValueId>)> {
        let mut tensors = Vec::new();
        let operands: Vec<Option<Expr>> = self
            .sources(node)
            .into_iter()
            .map(|s| {
                s.map(|s| match s {
                    Source::Number(x) => Expr::Const(x),
                    Source::Tensor(v) => {
                        tensors.push(v);
                        placeholder(tensors.len() - 1)
                    }
                })
            })
            .collect();
        if let Some(v) = tensors.iter().find(|v| self.model.values[**v].elem != Some(Elem::F32)) {
            return unknown(format!("`{}` is not float32", crate::error::shown(&self.model.values[*v].name)));
        }
        let n = tensors.len();
        Ok((self.point(node, operands, [placeholder(n), placeholder(n + 1)])?, tensors))
    }

    /// An elementwise node's result. `scale_shift` is what a normalisation multiplies and adds.
    pub fn point(&self, node: usize, operands: Vec<Option<Expr>>, scale_shift: [Expr; 2]) -> Outcome<Expr> {
        let call = self.call(node);
        match entry(call.node).map(|e| &e.lower) {
            Some(Lower::Pointwise(f)) => f(&call, &operands),
            Some(Lower::ScaleShift) => match operands.into_iter().next() {
                Some(Some(x)) => {
                    let [s, t] = scale_shift;
                    Ok(add(mul(x, s), t))
                }
                _ => wrong("input 0 is missing"),
            },
            _ => wrong("it is no elementwise operator"),
        }
    }

    fn shape(&self, v: ValueId) -> &'a [i64] {
        self.model.values[v].shape.as_deref().unwrap_or(&[])
    }

    fn output_of(&self, node: usize) -> Option<ValueId> {
        self.model.nodes[node].outputs.first().copied().flatten()
    }

    /// Groups all kernels and steps.
    pub fn groups(&mut self) -> Vec<Group> {
        let mut groups = Vec::new();
        let anchors = |f: &Self, heavy: bool| -> Vec<usize> {
            let is = |r: &Role| matches!(r, Role::Kernel(k) if k.scalable.is_some() == heavy);
            (0..f.roles.len()).rev().filter(|&i| is(&f.roles[i])).collect()
        };
        // Products and convolutions choose first, the later ones before the earlier: of the two
        // that a residual sum joins, the later one finds the other's result ready.
        for i in anchors(self, true).into_iter().chain(anchors(self, false)) {
            groups.extend(self.anchored(i));
        }
        for i in 0..self.roles.len() {
            if !self.claimed[i] && matches!(self.roles[i], Role::Point | Role::Scale) {
                groups.extend(self.elementwise(i));
            }
        }
        groups.sort_by_key(|g| g.nodes().last().copied());
        groups
    }

    fn anchored(&mut self, anchor: usize) -> Option<Group> {
        self.claimed[anchor] = true;
        let mut out = self.output_of(anchor)?;
        let Role::Kernel(kernel) = &self.roles[anchor] else { return None };
        let (open, scalable, axes) = (kernel.open, kernel.scalable, kernel.core.axes());
        let mut scaled = None;
        // A normalisation that alone reads the result goes into constant weights.
        if let (Some(s), &[next], false) = (scalable, &self.uses[out][..], self.is_output[out])
            && matches!(self.roles[next], Role::Scale)
            && !self.claimed[next]
            && s.channel == 1
            && [Some(s.weight), s.bias].into_iter().flatten().all(|i| self.call(anchor).input(i).is_some_and(|v| v.constant))
            && let Some(after) = self.output_of(next)
        {
            self.claimed[next] = true;
            scaled = Some(next);
            out = after;
        }
        let mut group = Group { anchor: Some(anchor), scaled, steps: Vec::new(), out };
        if open {
            let growth = Growth { steps: Vec::new(), inside: HashMap::from([(out, 0)]), out };
            let growth = self.grow(growth, &axes);
            group.steps = growth.steps;
            group.out = growth.out;
        }
        Some(group)
    }

    fn elementwise(&mut self, first: usize) -> Option<Group> {
        self.claimed[first] = true;
        let out = self.output_of(first)?;
        let axes = self.shape(out).to_vec();
        let size = self.step_of(first).map_or(0, |(e, _)| e.flop());
        let growth = Growth { steps: vec![first], inside: HashMap::from([(out, size)]), out };
        let mut growth = self.grow(growth, &axes);
        // Back as well: an operand that only this kernel reads may be computed in it.
        while let Some(node) = self.absorbable_producer(&growth, &axes) {
            self.claimed[node] = true;
            growth.steps.push(node);
            growth.steps.sort_unstable();
            if let Some(v) = self.output_of(node) {
                growth.inside.insert(v, 0);
            }
        }
        Some(Group { anchor: None, scaled: None, steps: growth.steps, out: growth.out })
    }

    fn absorbable_producer(&self, g: &Growth, shape: &[i64]) -> Option<usize> {
        self.operands(&g.steps, &g.inside).into_iter().find_map(|v| {
            let node = self.model.values[v].producer?;
            let free = !self.claimed[node] && matches!(self.roles[node], Role::Point | Role::Scale);
            // An operand that others read as well must be computed for them anyway.
            let only_here = !self.is_output[v] && self.uses[v].len() == 1 && self.output_of(node) == Some(v);
            if !(free && only_here && self.shape(v) == shape) {
                return None;
            }
            let mut steps = g.steps.clone();
            steps.push(node);
            steps.sort_unstable();
            let mut inside = g.inside.clone();
            inside.insert(v, 0);
            (self.size(&steps, g.out) <= MOST_STEPS && self.operands(&steps, &inside).len() <= MOST_OPERANDS).then_some(node)
        })
    }

    /// Operations behind a value, where a value that is read twice is computed twice.
    fn size(&self, steps: &[usize], out: ValueId) -> u64 {
        let mut sizes: HashMap<ValueId, u64> = HashMap::new();
        for &n in steps {
            let (Ok((e, tensors)), Some(v)) = (self.step_of(n), self.output_of(n)) else { return u64::MAX };
            let behind = e.loads().iter().filter_map(|(s, _)| sizes.get(tensors.get(s.0 as usize)?)).fold(0u64, |a, &b| a.saturating_add(b));
            sizes.insert(v, e.flop().saturating_add(behind));
        }
        sizes.get(&out).copied().unwrap_or(u64::MAX)
    }

    /// Tensors that steps read from outside.
    fn operands(&self, steps: &[usize], inside: &HashMap<ValueId, u64>) -> BTreeSet<ValueId> {
        let tensors = steps.iter().flat_map(|&n| self.sources(n)).flatten().filter_map(|s| match s {
            Source::Tensor(v) if !inside.contains_key(&v) => Some(v),
            _ => None,
        });
        tensors.collect()
    }

    /// Takes in elementwise nodes as long as there is a later point at which everything inside
    /// leads to one value.
    fn grow(&mut self, start: Growth, axes: &[i64]) -> Growth {
        let shape = self.shape(start.out).to_vec();
        let mut now = Growth { steps: start.steps.clone(), inside: start.inside.clone(), out: start.out };
        let mut kept = start;
        let mut waiting: BTreeSet<usize> = self.uses[now.out].iter().copied().collect();
        let mut seen: HashSet<usize> = now.steps.iter().copied().collect();
        while let Some(node) = waiting.pop_first() {
            if now.steps.len() > kept.steps.len() + 16 {
                break;
            }
            if !seen.insert(node) {
                continue;
            }
            let Some(size) = self.absorbable(node, &now, axes, &shape) else { continue };
            let Some(out) = self.output_of(node) else { continue };
            now.steps.push(node);
            now.inside.insert(out, size);
            waiting.extend(&self.uses[out]);
            let mut open = now.inside.keys().filter(|v| self.is_output[**v] || self.uses[**v].iter().any(|n| !now.steps.contains(n)));
            if let (Some(&only), None) = (open.next(), open.next()) {
                now.out = only;
                kept = Growth { steps: now.steps.clone(), inside: now.inside.clone(), out: only };
            }
        }
        for &n in &kept.steps {
            self.claimed[n] = true;
        }
        kept
    }

    /// The operations behind a node's result if it can join, `None` if it cannot.
    fn absorbable(&self, node: usize, g: &Growth, axes: &[i64], shape: &[i64]) -> Option<u64> {
        if self.claimed[node] || !matches!(self.roles[node], Role::Point | Role::Scale) {
            return None;
        }
        let out = self.output_of(node)?;
        if self.shape(out) != shape {
            return None;
        }
        let (step, tensors) = self.step_of(node).ok()?;
        let fits = |v: &ValueId| g.inside.contains_key(v) || varies(axes, shape, self.shape(*v)).is_some();
        if !tensors.iter().all(fits) {
            return None;
        }
        if matches!(self.roles[node], Role::Scale) {
            let mut channel = vec![1; shape.len().saturating_sub(1)];
            *channel.first_mut()? = *shape.get(1)?;
            varies(axes, shape, &channel)?;
        }
        // A value that is read twice is computed twice.
        let behind = step.loads().iter().filter_map(|(s, _)| g.inside.get(tensors.get(s.0 as usize)?)).fold(0u64, |a, &b| a.saturating_add(b));
        let size = step.flop().saturating_add(behind);
        let mut steps = g.steps.clone();
        steps.push(node);
        (size <= MOST_STEPS && self.operands(&steps, &g.inside).len() <= MOST_OPERANDS).then_some(size)
    }
}

/// Only tensors of float32 with known extents, none of them 0, become kernels.
fn tunable(c: &Call) -> Outcome<()> {
    let no = |reason: String| Err(Trouble::Unknown(reason));
    let outputs = c.node.outputs.iter().take(1).flatten().copied();
    for v in c.node.inputs.iter().flatten().copied().chain(outputs).map(|v| &c.values[v]) {
        let name = crate::error::shown(&v.name);
        match (v.elem, &v.shape) {
            (_, None) => return no(format!("the shape of `{name}` is not known")),
            (Some(Elem::F32), Some(s)) if elements(s) == Some(0) => return no(format!("`{name}` is empty")),
            (Some(Elem::F32), Some(_)) => {}
            // Axes and sizes among the inputs are constants.
            (Some(e), _) if e.is_int() && v.constant => {}
            (Some(e), _) => return no(format!("`{name}` is {}, and only float32 is tuned", e.name())),
            (None, _) => return no(format!("the element type of `{name}` is not known")),
        }
    }
    Ok(())
}

/// Whether a batch normalisation scales and shifts by constants.
fn scale_shift(c: &Call) -> Outcome<()> {
    let no = |reason: &str| Err(Trouble::Unknown(reason.into()));
    if c.int("training_mode", 0)? != 0 || (1..5).any(|i| c.has_output(i)) {
        return no("batch normalisation in training is not tuned");
    }
    if (1..5).any(|i| c.input(i).is_none_or(|v| !v.constant)) {
        return no("batch normalisation whose parameters change at every call is not tuned");
    }
    c.float("epsilon", 1e-5)?;
    Ok(())
}
