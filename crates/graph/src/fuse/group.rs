//! Groups: sets of nodes that one kernel computes, an anchor (`anchor.rs`) or an elementwise node,
//! grown step by step by the elementwise nodes that read its result. Input: a node; output: a
//! group, whose [`Kernel`] has a name, a workload and a feed for each input. The rules of fusion
//! (`../rules`) make candidates of groups.

use super::anchor::Anchor;
use super::step::{is_commutative, is_elementwise, norm, step};
use crate::feed::{Feed, Norm};
use crate::view::View;
use squall_core::expr::Expr;
use squall_core::graph::{Node, ValueId};
use squall_core::operator::{Epilogue, elementwise, functions, placeholder};
use squall_core::tasks::named;
use squall_core::{TensorKind, Workload};
use std::collections::BTreeMap;

/// The most nodes that are followed to find where branches of values come together again, as in a
/// residual.
const MOST_PENDING: usize = 12;

/// The most inputs of a node that joins a kernel.
const MOST_INPUTS: usize = 8;

/// Nodes that one kernel computes.
#[derive(Clone)]
pub struct Group {
    /// The nodes in the order in which they joined.
    pub nodes: Vec<usize>,
    /// The value of the result.
    pub output: ValueId,
    anchor: Option<Anchor>,
    steps: Epilogue,
    /// One feed for each operand of the steps.
    feeds: Vec<Feed>,
    /// Values inside the group, as expressions of operands.
    inside: BTreeMap<ValueId, Expr>,
    shape: Vec<i64>,
}

/// A group as a kernel.
pub struct Kernel {
    /// A readable name of the anchor and the steps.
    pub name: String,
    /// The workload.
    pub workload: Workload,
    /// One feed for each input of the workload.
    pub feeds: Vec<Feed>,
}

impl Group {
    /// A group around an anchor.
    pub fn around(node: usize, mut anchor: Anchor) -> Group {
        let steps = std::mem::replace(&mut anchor.steps, Epilogue::none());
        let feeds = std::mem::take(&mut anchor.step_feeds);
        let inside = BTreeMap::from([(anchor.output, steps.body.clone())]);
        Group {
            nodes: vec![node],
            output: anchor.output,
            shape: anchor.shape.clone(),
            anchor: Some(anchor),
            steps,
            feeds,
            inside,
        }
    }

    /// A group that begins with an elementwise node.
    pub fn elementwise(view: &View<'_>, node: usize) -> Result<Group, String> {
        let (output, shape) = view.result(&view.model.nodes[node])?;
        let steps = Epilogue::none();
        let mut group = Group {
            nodes: vec![],
            output,
            anchor: None,
            steps,
            feeds: vec![],
            inside: BTreeMap::new(),
            shape: shape.to_vec(),
        };
        group.join(view, node)?;
        group.check()?;
        Ok(group)
    }

    /// The group with what follows taken in, up to where one value leaves it again; none where
    /// nothing more fits.
    pub fn grown(&self, view: &View<'_>) -> Option<Group> {
        let mut group = self.clone();
        for _ in 0..MOST_PENDING {
            let node = group.follower(view)?;
            if !is_elementwise(&view.model.nodes[node].op) {
                return None;
            }
            group.join(view, node).ok()?;
            group.check().ok()?;
            if group.is_closed(view) {
                return Some(group);
            }
        }
        None
    }

    /// The first node outside that reads a value of the group.
    fn follower(&self, view: &View<'_>) -> Option<usize> {
        let users = self.inside.keys().flat_map(|&v| view.users(v));
        users.copied().filter(|n| !self.nodes.contains(n)).min()
    }

    /// Whether the newest value is all that the rest of the model sees.
    fn is_closed(&self, view: &View<'_>) -> bool {
        let leaves =
            |v: ValueId| view.is_output(v) || view.users(v).iter().any(|n| !self.nodes.contains(n));
        self.inside.keys().all(|&v| v == self.output || !leaves(v))
    }

    /// Adds a node; an error where it cannot be part of the kernel. The group is then half
    /// changed, and the caller forgets it.
    fn join(&mut self, view: &View<'_>, index: usize) -> Result<(), String> {
        let node = &view.model.nodes[index];
        let (output, shape) = view.result(node)?;
        if without_ones(shape) != without_ones(&self.shape) {
            return Err(format!(
                "its result {shape:?} is not of the kernel's shape {:?}",
                self.shape
            ));
        }
        let body = match node.op.as_str() {
            "BatchNormalization" => self.normalise(view, node)?,
            _ => {
                let (body, tag) = self.apply(view, node)?;
                self.steps.tags.push(tag);
                body
            }
        };
        self.inside.insert(output, body.clone());
        self.steps.body = body;
        self.nodes.push(index);
        self.output = output;
        Ok(())
    }

    /// The node's expression over the group's values and new operands.
    fn apply(&mut self, view: &View<'_>, node: &Node) -> Result<(Expr, String), String> {
        if node.inputs.len() > MOST_INPUTS {
            return Err(format!(
                "it has {} inputs, more than a kernel should read",
                node.inputs.len()
            ));
        }
        let mut order: Vec<usize> = (0..node.inputs.len()).collect();
        if is_commutative(&node.op) {
            // The group's own value comes first, then tensors of the full size: both orders give
            // one text.
            order.sort_by_key(|&i| node.inputs[i].map_or(3, |id| self.rank(view, id)));
        }
        let adds = matches!(node.op.as_str(), "Add" | "Sub" | "Sum");
        let before = self.steps.operands.len();
        let mut args = Vec::new();
        for i in order {
            args.push(match node.inputs[i] {
                None => None,
                Some(id) => Some(self.value(view, id, adds)?),
            });
        }
        let (body, mut tag) = step(view, node, &args)?;
        let added = &self.steps.operands[before..];
        if tag == "add"
            && self.anchor.is_some()
            && matches!(added, [o] if o.kind == TensorKind::Weight)
        {
            tag = "bias".into();
        }
        Ok((body, tag))
    }

    fn rank(&self, view: &View<'_>, id: ValueId) -> u8 {
        match view.shape(id) {
            _ if self.inside.contains_key(&view.root(id)) => 0,
            Some(s) if without_ones(s) == without_ones(&self.shape) && !view.is_weight(id) => 1,
            _ => 2,
        }
    }

    /// The expression that stands for a value: one of the group, a number, or an operand.
    fn value(&mut self, view: &View<'_>, id: ValueId, adds: bool) -> Result<Expr, String> {
        let root = view.root(id);
        if let Some(e) = self.inside.get(&root) {
            return Ok(e.clone());
        }
        if !view.is_f32(id) {
            return Err(format!(
                "its input `{}` is not of 32-bit floats; kernels are made for f32 today",
                view.name(id)
            ));
        }
        if let Some(x) = view.scalar(id) {
            return Ok(functions::c(x));
        }
        let shape = view
            .shape(id)
            .ok_or_else(|| format!("the shape of `{}` is not known", view.name(id)))?;
        let kind = view.kind(id);
        let name = match (kind, adds) {
            (TensorKind::Data, _) => "R",
            (TensorKind::Weight, true) => self.anchor.as_ref().map_or("T", |a| a.bias_name),
            (TensorKind::Weight, false) => "S",
        };
        Ok(self.read(Feed::Value(root), name, kind, shape.to_vec()))
    }

    /// The operand that a feed is, new or known.
    fn read(&mut self, feed: Feed, name: &'static str, kind: TensorKind, shape: Vec<i64>) -> Expr {
        match (0..self.feeds.len())
            .find(|&i| self.feeds[i] == feed && self.steps.operands[i].shape == shape)
        {
            Some(i) => placeholder(i as u32 + 1),
            None => {
                self.feeds.push(feed);
                self.steps.operand(name, kind, shape)
            }
        }
    }

    /// A batch normalisation: part of the filters where nothing but a bias is between, else a
    /// factor and an addend.
    fn normalise(&mut self, view: &View<'_>, node: &Node) -> Result<Expr, String> {
        let (x, shape) = view.operand(node, 0)?;
        let norm = norm(view, node, shape)?;
        let mut channels = vec![1; shape.len() - 1];
        channels[0] = norm.channels;
        if let Some(e) = self.fold_norm(view, &norm, &channels) {
            return Ok(e);
        }
        let value = self.value(view, x, false)?;
        let factor =
            self.read(Feed::Factor(norm.clone()), "S", TensorKind::Weight, channels.clone());
        let addend =
            self.read(Feed::Addend { bias: None, norm }, "T", TensorKind::Weight, channels);
        self.steps.tags.push("bn".into());
        Ok(functions::add(functions::mul(value, factor), addend))
    }

    fn fold_norm(&mut self, view: &View<'_>, norm: &Norm, channels: &[i64]) -> Option<Expr> {
        let anchor = self.anchor.as_mut().filter(|a| a.scalable && self.nodes.len() == 1)?;
        let [_, Feed::Value(w)] = anchor.feeds[..] else { return None };
        match (&self.feeds[..], &self.steps.operands[..]) {
            ([], []) => {
                anchor.feeds[1] = Feed::Scaled { weight: view.root(w), norm: norm.clone() };
                let name = anchor.bias_name;
                let addend = self.read(
                    Feed::Addend { bias: None, norm: norm.clone() },
                    name,
                    TensorKind::Weight,
                    channels.to_vec(),
                );
                self.steps.tags.push("bias".into());
                Some(functions::add(placeholder(0), addend))
            }
            (&[Feed::Value(b)], [operand]) if operand.kind == TensorKind::Weight => {
                anchor.feeds[1] = Feed::Scaled { weight: view.root(w), norm: norm.clone() };
                self.feeds[0] = Feed::Addend { bias: Some(view.root(b)), norm: norm.clone() };
                Some(self.steps.body.clone())
            }
            _ => None,
        }
    }

    /// Steps of a group without an anchor, what feeds their operands, and the result's shape.
    pub fn steps(&self) -> (&Epilogue, &[Feed], &[i64]) {
        (&self.steps, &self.feeds, &self.shape)
    }

    /// Whether the group is one kernel.
    fn check(&self) -> Result<(), String> {
        let fits = match &self.anchor {
            Some(a) => self.steps.is_none() || self.steps.fits(&a.workload, &self.shape),
            None => self.steps.is_small() && elementwise(&self.steps, &self.shape).is_ok(),
        };
        if fits {
            Ok(())
        } else {
            Err("its operands do not broadcast in a way that kernels are made for".into())
        }
    }

    /// The kernel.
    pub fn kernel(&self) -> Result<Kernel, String> {
        let Some(a) = &self.anchor else {
            let extents: Vec<String> =
                without_ones(&self.shape).iter().map(i64::to_string).collect();
            let stem = named("", &self.steps.tags);
            let stem = if self.steps.tags.len() > 6 {
                format!("map_{}_steps", self.steps.tags.len())
            } else {
                stem
            };
            let name =
                if extents.is_empty() { stem } else { format!("{stem}_{}", extents.join("x")) };
            return Ok(Kernel {
                name,
                workload: elementwise(&self.steps, &self.shape)?,
                feeds: self.feeds.clone(),
            });
        };
        let workload = self.steps.attach(a.workload.clone(), &self.shape)?;
        let feeds = a.feeds.iter().chain(&self.feeds).cloned().collect();
        Ok(Kernel { name: named(&a.stem, &self.steps.tags), workload, feeds })
    }
}

/// A shape without its leading ones.
pub fn without_ones(shape: &[i64]) -> &[i64] {
    &shape[shape.iter().take_while(|e| **e == 1).count()..]
}
