//! Groups of nodes to tasks, and the order in which they run.

use super::fuse::{Fuser, Group, Role, Source};
use super::infer::Inferred;
use super::model::{Call, Model, ValueId};
use super::op::Scalable;
use super::read::Fault;
use crate::build::{Epilogue, elementwise};
use crate::error::Trouble;
use crate::graph::{Feed, Graph, Step};
use crate::import::{Import, Tasks, Untuned};
use crate::tensor::{Data, Elem, Tensor, strides_of};
use squall_core::expr::{Binary, Expr, Source as Number};
use squall_core::{TensorKind, Workload};
use std::collections::HashMap;
use std::sync::Arc;

/// A kernel of the model.
struct Built {
    name: String,
    workload: Workload,
    feeds: Vec<Feed>,
}

/// Lowers a model whose values are inferred.
pub(crate) fn lower(model: Model, mut inferred: Inferred) -> Result<Import, Fault> {
    let mut fuser = Fuser::new(&model, &mut inferred)?;
    let groups = fuser.groups();
    let label = |i: usize| model.nodes[i].name.clone();
    // What runs, by the last node that it needs.
    let mut work: Vec<(usize, Result<&Group, usize>)> = groups.iter().filter_map(|g| Some((*g.nodes().last()?, Ok(g)))).collect();
    work.extend(fuser.roles.iter().enumerate().filter(|(_, r)| matches!(r, Role::Plain(_))).map(|(i, _)| (i, Err(i))));
    work.sort_by_key(|w| w.0);
    let mut tasks = Tasks::default();
    let mut untuned = Vec::new();
    let mut steps = Vec::new();
    let mut plain = |i: usize, reason: &str, steps: &mut Vec<Step>| {
        untuned.push((i, Untuned { node: label(i), op: model.nodes[i].op.clone(), reason: reason.into() }));
        steps.push(Step::Plain { node: i });
    };
    for (_, what) in work {
        match what {
            Err(i) => {
                if let Role::Plain(reason) = &fuser.roles[i] {
                    plain(i, reason, &mut steps);
                }
            }
            Ok(group) => match build(&fuser, group) {
                Ok(b) => {
                    let task = tasks.add(b.name.clone(), b.workload, group.nodes().into_iter().map(label).collect());
                    let shape = model.values[group.out].shape.clone().unwrap_or_default();
                    steps.push(Step::Kernel { task, name: b.name, feeds: b.feeds, out: group.out, shape });
                }
                Err(t) => {
                    let reason = t.message();
                    for i in group.nodes() {
                        plain(i, &reason, &mut steps);
                    }
                }
            },
        }
    }
    untuned.sort_by_key(|u| u.0);
    let folded = fuser.roles.iter().enumerate().filter(|(_, r)| matches!(r, Role::Folded)).map(|(i, _)| label(i)).collect();
    let root = std::mem::take(&mut fuser.root);
    drop(fuser);
    let graph = Graph::new(model, root, steps);
    Ok(Import { tasks: tasks.finish(), untuned: untuned.into_iter().map(|u| u.1).collect(), folded, graph })
}

/// Gathers a group's operands while its expression is built.
struct Weaver<'a, 'm> {
    fuser: &'a Fuser<'m>,
    epilogue: Epilogue,
    feeds: Vec<Feed>,
    /// What values inside the group, and tensors read before, are in the expression.
    exprs: HashMap<ValueId, Expr>,
}

fn build(fuser: &Fuser, group: &Group) -> Result<Built, Trouble> {
    let shape = fuser.model.values[group.out].shape.clone().unwrap_or_default();
    let mut weaver = Weaver { fuser, epilogue: Epilogue::none(), feeds: Vec::new(), exprs: HashMap::new() };
    let Some(anchor) = group.anchor else {
        weaver.steps(group)?;
        let core = elementwise(&shape, &weaver.epilogue).map_err(Trouble::Unknown)?;
        let name = named(&format!("elementwise_{}", tags(&weaver.epilogue.tags)), core.label.trim_start_matches("elementwise_"));
        let workload = core.finish(None, &shape).map_err(Trouble::Unknown)?;
        return Ok(Built { name, workload, feeds: weaver.feeds });
    };
    let Role::Kernel(kernel) = &fuser.roles[anchor] else { return Err(Trouble::Unknown("it has no kernel".into())) };
    let call = Call { node: &fuser.model.nodes[anchor], values: &fuser.model.values };
    let mut core = kernel.core.clone();
    let mut feeds: Vec<Feed> = kernel.feeds.iter().map(|&i| feed(fuser, call.node.inputs.get(i).copied().flatten())).collect();
    let mut start = call.node.outputs.first().copied().flatten();
    if let (Some(next), Some(s)) = (group.scaled, kernel.scalable) {
        start = fuser.model.nodes[next].outputs.first().copied().flatten();
        fold_scale(fuser, next, s, &kernel.feeds, &mut feeds);
        if s.bias.is_none() {
            let channels = shape.get(s.channel).copied().unwrap_or(1);
            let mut bias_shape = vec![1; shape.len().saturating_sub(s.channel)];
            bias_shape[0] = channels;
            let bias = core.own.operand("B", TensorKind::Weight, bias_shape);
            core.own.then("bias", |x| Expr::binary(Binary::Add, x, bias));
        }
    }
    if let Some(v) = start {
        weaver.exprs.insert(v, crate::build::placeholder(0));
    }
    weaver.steps(group)?;
    let mut all = core.own.tags.clone();
    all.extend(weaver.epilogue.tags.iter().cloned());
    let name = named(&core.label, &tags(&all));
    let workload = core.finish(Some(weaver.epilogue), &shape).map_err(Trouble::Unknown)?;
    feeds.extend(weaver.feeds);
    Ok(Built { name, workload, feeds })
}

fn named(label: &str, tags: &str) -> String {
    if tags.is_empty() { label.into() } else { format!("{}_{tags}", label.trim_end_matches('_')) }
}

/// Names of steps in a task's name: known chains by their names, long ones cut.
fn tags(all: &[String]) -> String {
    let mut short: Vec<&str> = all.iter().map(String::as_str).collect();
    // GELU written out: x / sqrt(2), erf, + 1, * x, / 2.
    while let Some(i) = short.iter().position(|t| *t == "erf") {
        let plain = |t: &&str| matches!(*t, "mul" | "div" | "add");
        if i == 0 || short.len() < i + 4 || !plain(&short[i - 1]) || !short[i + 1..i + 4].iter().all(|t| plain(t)) {
            break;
        }
        short.splice(i - 1..i + 4, ["gelu"]);
    }
    let cut = short.len() > 5;
    short.truncate(5);
    if cut {
        short.push("more");
    }
    short.join("_")
}

impl Weaver<'_, '_> {
    /// Weaves the group's elementwise nodes; the last one's result is the epilogue's body.
    fn steps(&mut self, group: &Group) -> Result<(), Trouble> {
        for &node in &group.steps {
            let op = self.fuser.model.nodes[node].op.as_str();
            let mut sources = self.fuser.sources(node);
            if matches!(op, "Add" | "Mul" | "Max" | "Min" | "Sum") {
                // The value itself first, then data, weights and numbers: one text for one sum.
                sources.sort_by_key(|s| s.as_ref().map_or(5, |s| self.order(s, group.out)));
            }
            let mut operands: Vec<Option<Expr>> = Vec::with_capacity(sources.len());
            let mut weight = false;
            for s in sources {
                operands.push(s.map(|s| match s {
                    Source::Number(x) => Expr::Const(x),
                    Source::Tensor(v) => {
                        weight |= self.fuser.model.values[v].constant;
                        self.tensor(v)
                    }
                }));
            }
            let mut scale_shift = [Expr::Const(1.0), Expr::Const(0.0)];
            if matches!(self.fuser.roles[node], Role::Scale) {
                scale_shift = self.scale_shift(node);
            }
            let tag = match op {
                "Add" if weight => "bias".to_string(),
                "BatchNormalization" => "scale_shift".into(),
                _ => op.to_lowercase(),
            };
            let e = self.fuser.point(node, operands, scale_shift)?;
            self.epilogue.tags.push(tag);
            if let Some(v) = self.fuser.model.nodes[node].outputs.first().copied().flatten() {
                self.exprs.insert(v, e);
            }
        }
        if let Some(e) = self.exprs.get(&group.out) {
            self.epilogue.body = e.clone();
        }
        Ok(())
    }

    /// Where a commutative operator's operand stands.
    fn order(&self, s: &Source, out: ValueId) -> u8 {
        let values = &self.fuser.model.values;
        match s {
            Source::Number(_) => 4,
            Source::Tensor(v) => match self.exprs.get(v) {
                Some(e) if e.loads().iter().any(|(s, _)| *s == Number(0)) => 0,
                _ if values[*v].constant => 3,
                _ if values[*v].shape == values[out].shape => 1,
                _ => 2,
            },
        }
    }

    fn tensor(&mut self, v: ValueId) -> Expr {
        if let Some(e) = self.exprs.get(&v) {
            return e.clone();
        }
        let value = &self.fuser.model.values[v];
        let (name, kind) = if value.constant { ("B", TensorKind::Weight) } else { ("R", TensorKind::Data) };
        let e = self.epilogue.operand(name, kind, value.shape.clone().unwrap_or_default());
        self.feeds.push(feed(self.fuser, Some(v)));
        self.exprs.insert(v, e.clone());
        e
    }

    fn scale_shift(&mut self, node: usize) -> [Expr; 2] {
        let call = Call { node: &self.fuser.model.nodes[node], values: &self.fuser.model.values };
        let x = call.shape(0).unwrap_or(&[]);
        let mut shape = vec![1; x.len().saturating_sub(1)];
        if let (Some(first), Some(&c)) = (shape.first_mut(), x.get(1)) {
            *first = c;
        }
        let (scale, shift) = match parameters(&call) {
            Ok((s, t)) => (floats(s), floats(t)),
            Err(missing) => (Feed::Missing(missing.clone()), Feed::Missing(missing)),
        };
        self.feeds.extend([scale, shift]);
        [self.epilogue.operand("S", TensorKind::Weight, shape.clone()), self.epilogue.operand("T", TensorKind::Weight, shape)]
    }
}

fn floats(v: Vec<f32>) -> Feed {
    Feed::Weight(Arc::new(Tensor::floats(vec![v.len() as i64], v)))
}

/// Where a kernel's input comes from.
fn feed(fuser: &Fuser, v: Option<ValueId>) -> Feed {
    let Some(v) = v.map(|v| fuser.root[v]) else { return Feed::Missing("an input that is left out".into()) };
    let value = &fuser.model.values[v];
    match (&value.data, value.constant) {
        (Some(t), true) => Feed::Weight(t.clone()),
        (None, true) => Feed::Missing(value.name.clone()),
        _ => Feed::Value(v),
    }
}

/// A batch normalisation's scale and shift per channel, or the name of a tensor without values.
fn parameters(call: &Call) -> Result<(Vec<f32>, Vec<f32>), String> {
    let mut columns = Vec::new();
    for i in 1..5 {
        let v = call.input(i).ok_or_else(|| format!("input {i}"))?;
        columns.push(v.data.as_ref().and_then(|t| t.as_floats()).ok_or_else(|| v.name.clone())?);
    }
    let eps = call.float("epsilon", 1e-5).unwrap_or(1e-5);
    let scale: Vec<f64> = columns[0].iter().zip(columns[3]).map(|(&s, &v)| f64::from(s) / (f64::from(v) + eps).sqrt()).collect();
    let shift = columns[1].iter().zip(columns[2]).zip(&scale).map(|((&b, &m), &s)| (f64::from(b) - f64::from(m) * s) as f32).collect();
    Ok((scale.iter().map(|&s| s as f32).collect(), shift))
}

/// Takes the scale and shift of node `next` into the weights and the bias of the node before it.
fn fold_scale(fuser: &Fuser, next: usize, s: Scalable, inputs: &[usize], feeds: &mut Vec<Feed>) {
    let parameters = parameters(&Call { node: &fuser.model.nodes[next], values: &fuser.model.values });
    let (scale, shift) = match parameters {
        Ok(p) => p,
        Err(name) => {
            if let Some(f) = inputs.iter().position(|&i| i == s.weight).and_then(|i| feeds.get_mut(i)) {
                *f = Feed::Missing(name.clone());
            }
            if s.bias.is_none() {
                feeds.push(Feed::Missing(name));
            }
            return;
        }
    };
    for (&i, f) in inputs.iter().zip(feeds.iter_mut()) {
        let Feed::Weight(t) = f else { continue };
        if i == s.weight {
            *f = scaled(t, s.axis, &scale).map_or_else(|| Feed::Missing("the scaled weights".into()), |t| Feed::Weight(Arc::new(t)));
        } else if Some(i) == s.bias
            && let Some(b) = t.as_floats()
        {
            let bias = b.iter().zip(scale.iter().zip(&shift)).map(|(b, (s, t))| b * s + t).collect();
            *f = floats(bias);
        }
    }
    if s.bias.is_none() {
        feeds.push(floats(shift));
    }
}

/// The tensor times a factor that varies along one axis.
fn scaled(t: &Tensor, axis: usize, factors: &[f32]) -> Option<Tensor> {
    let (values, stride, extent) = (t.as_floats()?, *strides_of(&t.shape).get(axis)? as usize, *t.shape.get(axis)? as usize);
    let factor = |i: usize| factors.get(i / stride.max(1) % extent.max(1)).copied();
    let data = values.iter().enumerate().map(|(i, x)| Some(x * factor(i)?)).collect::<Option<Vec<f32>>>()?;
    Some(Tensor { elem: Elem::F32, shape: t.shape.clone(), data: Data::Float(data) })
}
