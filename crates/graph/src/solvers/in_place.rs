//! Moves of data without copies: a node that only moves elements becomes a place in memory (a site,
//! `../site.rs`). The part of a concatenation is stored directly inside the whole; a transposed,
//! sliced or gathered value is read where its elements lie. Where a kernel cannot read or write its
//! values so, or would lose its vector accesses, the copy stays.
//!
//! Input: fusion candidates (sets of nodes that may be one kernel) and a choice; output: the choice
//! with sites (places in another value's memory). It is the solver `in-place`, and the last step of
//! other solvers (`settled`).

use super::Cost;
use crate::assignment::moving::carried;
use crate::assignment::{Choice, Step};
use crate::candidate::{FusionCandidate, root};
use crate::candidates::Candidates;
use crate::feed::Feed;
use crate::moves::{is_seen_through, joints, pulled, pushed, renames};
use crate::plan::ALIGNMENT;
use crate::rules::{ATTENTION, JOINED};
use crate::site::{Factor, Site};
use crate::view::{View, axis, input, int};
use squall_core::DType;
use squall_core::graph::ValueId;
use std::collections::{BTreeMap, BTreeSet};

/// The fewest neighbouring channels that still fill a vector.
const LEAST_NEIGHBOURS: i64 = 16;

/// See [`super::Solve`].
pub fn solve(all: &Candidates, choice: Choice, _: &Cost<'_>) -> Choice {
    settled(all, &choice)
}

/// The solver for GPUs: only values that attention kernels alone read and write are placed in the
/// memory of others, wherever that saves a copy. See [`super::Solve`].
pub fn of_attention(all: &Candidates, choice: Choice, _: &Cost<'_>) -> Choice {
    let dense = Choice { sites: BTreeMap::new(), ..choice };
    settled_around(all, &dense, Some(ATTENTION))
}

/// The choice with values in the memory of others wherever that saves a copy.
pub fn settled(all: &Candidates, choice: &Choice) -> Choice {
    settled_around(all, choice, None)
}

/// The same, and if a rule is given only for values that no kernels of other rules touch. GPUs ask
/// for that: they fetch several elements at once from aligned places, and their sketch of attention
/// knows no axis in parts.
fn settled_around(all: &Candidates, choice: &Choice, rule: Option<&'static str>) -> Choice {
    let view = View::new(&all.model);
    let mut s = Settling::new(all, &view, choice, rule);
    let nodes: Vec<usize> = s.nodes.iter().copied().collect();
    for &n in nodes.iter().rev().filter(|&&n| view.model.nodes[n].op == "Concat") {
        s.concatenation(n);
    }
    for &n in nodes.iter().filter(|&&n| view.model.nodes[n].op != "Concat") {
        s.chain(n);
    }
    s.choice
}

/// A choice while its moves are replaced by places, one after the other.
struct Settling<'a> {
    all: &'a Candidates,
    view: &'a View<'a>,
    choice: Choice,
    /// Nodes that run as moves and can be expressed as places.
    nodes: BTreeSet<usize>,
    /// Values whose place is fixed, or that a step other than a kernel or such a move touches.
    fixed: BTreeSet<ValueId>,
    /// The kernels that read a value, and the one that gives it.
    kernels: BTreeMap<ValueId, Vec<usize>>,
    /// Whether places are for the kernels of a GPU.
    is_gpus: bool,
}

impl<'a> Settling<'a> {
    fn new(
        all: &'a Candidates,
        view: &'a View<'a>,
        choice: &Choice,
        rule: Option<&'static str>,
    ) -> Settling<'a> {
        let m = view.model;
        let known = |v: &ValueId| view.is_weight(*v);
        let mut nodes = BTreeSet::new();
        let mut fixed: BTreeSet<ValueId> =
            m.inputs.iter().chain(&m.outputs).map(|&v| root(m, v)).collect();
        let mut kernels: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for step in &choice.steps {
            match *step {
                Step::Kernel(k) => {
                    let c = &all.list[k];
                    c.touched(m).into_iter().for_each(|v| kernels.entry(v).or_default().push(k));
                    let ahead = c.feeds.iter().filter(|f| f.is_made()).flat_map(Feed::values);
                    fixed.extend(ahead.map(|v| root(m, v)));
                    if rule.is_some_and(|r| c.rule != r) {
                        fixed.extend(c.touched(m));
                    }
                }
                Step::Node(n) => {
                    let node = &m.nodes[n];
                    let runs = node.outputs.iter().any(|v| !known(v));
                    if is_seen_through(node) && runs {
                        nodes.insert(n);
                    } else {
                        let all = node.inputs.iter().flatten().chain(&node.outputs);
                        fixed.extend(all.map(|&v| root(m, v)));
                    }
                }
            }
        }
        let is_gpus = rule.is_some();
        Settling { all, view, choice: choice.clone(), nodes, fixed, kernels, is_gpus }
    }

    fn root(&self, v: ValueId) -> ValueId {
        root(self.view.model, v)
    }

    fn operand(&self, node: usize, i: usize) -> Option<ValueId> {
        let v = self.root(input(&self.view.model.nodes[node], i)?);
        (!self.view.is_weight(v)).then_some(v)
    }

    fn is_host(&self, v: ValueId) -> bool {
        self.choice.sites.values().any(|s| s.host == v)
    }

    /// Puts a value into another's memory if all that touch it can have it there. What lies
    /// densely has kernels that may count on an aligned start; rows of a larger box begin anywhere.
    fn put(&mut self, v: ValueId, site: Site, uncut: bool) -> bool {
        let m = self.view.model;
        let whole = m.values[site.host].shape.as_ref().map(|s| s.iter().product::<i64>());
        if self.fixed.contains(&v)
            || self.choice.sites.contains_key(&v)
            || self.is_host(v)
            || site.host == v
            || m.values[v].dtype != Some(DType::F32)
            || self.view.is_weight(site.host)
            || ((site.is_dense() || self.is_gpus) && site.offset % ALIGNMENT as i64 != 0)
            || !site.fits(whole)
        {
            return false;
        }
        let layout = self.choice.layouts.remove(&v);
        self.choice.sites.insert(v, site);
        let kernels = self.kernels.get(&v);
        let uncut = uncut || self.is_gpus;
        let fits = kernels.into_iter().flatten().all(|&k| self.takes(k, v, uncut));
        let moves = self.view.users(v).iter().copied().chain(self.view.producer(v));
        let mut moves = moves.filter(|n| self.nodes.contains(n));
        if fits && moves.all(|n| carried(self.view, &self.choice, n).is_ok()) {
            return true;
        }
        self.choice.sites.remove(&v);
        if let Some(layout) = layout {
            self.choice.layouts.insert(v, layout);
        }
        false
    }

    /// Whether a kernel can go over a value where it lies and keep its vectors.
    fn takes(&self, kernel: usize, v: ValueId, uncut: bool) -> bool {
        let c = &self.all.list[kernel];
        let m = self.view.model;
        let Some(w) = c.placed(&|u| self.choice.lies(m, u)) else { return false };
        let dims = |w: &squall_core::Workload| {
            let inputs = w.inputs.iter().map(|i| i.shape.len());
            inputs.chain(w.stages.iter().map(|s| s.axes.len())).sum::<usize>()
        };
        (!uncut || dims(&w) == dims(&c.workload))
            && (c.outputs.contains(&v) || self.is_smooth(c, v))
    }

    /// Whether a kernel that reads a value finds neighbours side by side. Where it adds up over the
    /// channels, a vector of them is enough, in whatever order these lie.
    fn is_smooth(&self, c: &FusionCandidate, v: ValueId) -> bool {
        let Some(site) = self.choice.sites.get(&v) else { return true };
        // Values that are read in parts are read channel by channel.
        if c.rule == JOINED {
            return true;
        }
        let kind = c.kind(self.view.model);
        let in_order = |f: Option<&Factor>| f.is_none_or(|f| f.stride == 1);
        let channels = match &site.dims[..] {
            [_, channels, _, _] => {
                let few = |f: &Factor| f.stride == 1 && f.extent >= LEAST_NEIGHBOURS;
                let windows = ["conv2d", "depthwise_conv2d"].contains(&kind);
                let sums = kind == "conv2d" && c.feeds.first() == Some(&Feed::Value(v));
                // Of a single channel a kernel reads no more than a copy would.
                channels.last().is_some_and(|f| f.stride == 1)
                    || (sums && channels.iter().any(few))
                    || (windows && channels.is_empty())
            }
            _ => false,
        };
        // A product packs tiles of an operand that it reads across memory, as a copy would.
        let products = ["matmul", "batch_matmul", "attention"];
        let is_product = products.contains(&kind);
        let packs = is_product && site.factors().iter().any(|f| f.stride == 1);
        kind == "elementwise" || channels || packs || in_order(site.factors().last())
    }

    /// The parts of a concatenation are stored where the whole has them.
    fn concatenation(&mut self, node: usize) {
        let n = &self.view.model.nodes[node];
        let Some(&whole) = n.outputs.first() else { return };
        self.adopt(node, whole);
        let Some(site) = self.choice.site(self.view.model, whole) else { return };
        let parts: Vec<(ValueId, Site)> = joints(n)
            .into_iter()
            .filter_map(|(i, _)| Some((self.operand(node, i)?, pulled(self.view, n, i, &site)?)))
            .collect();
        // Stretches of memory alone are the plan's affair: it places blocks inside each other.
        let by_move = |p: ValueId| self.view.producer(p).is_some_and(|p| self.nodes.contains(&p));
        let apart = self.choice.sites.contains_key(&whole);
        if apart || parts.iter().any(|(part, to)| by_move(*part) || !to.is_dense()) {
            for (part, to) in parts {
                self.pull_up(part, to, false);
            }
        }
    }

    /// A concatenation of values that lie side by side in a larger one already is a part of it.
    fn adopt(&mut self, node: usize, whole: ValueId) {
        let n = &self.view.model.nodes[node];
        let Some(shape) = self.view.shape(whole) else { return };
        let Ok(at) = axis(int(n, "axis", 0), shape.len()) else { return };
        let first = self.operand(node, 0).and_then(|v| self.choice.sites.get(&v)).cloned();
        let Some(mut site) = first else { return };
        let [Factor { stride, .. }] = site.dims[at][..] else { return };
        site.dims[at] = vec![Factor { extent: shape[at], stride }];
        let there = joints(n).into_iter().all(|(i, _)| {
            let own = self.operand(node, i).and_then(|v| self.choice.sites.get(&v));
            own.is_some() && own == pulled(self.view, n, i, &site).as_ref()
        });
        if there {
            self.put(whole, site, false);
        }
    }

    /// Gives a value a site, and, if a move made the value, the corresponding site to the value
    /// that it was moved from, and so on.
    fn pull_up(&mut self, v: ValueId, site: Site, uncut: bool) -> bool {
        if !self.put(v, site.clone(), uncut) {
            return false;
        }
        let Some(p) = self.view.producer(v).filter(|p| self.nodes.contains(p)) else { return true };
        let node = &self.view.model.nodes[p];
        if node.op == "Concat" {
            return true;
        }
        if let (Some(x), Some(from)) = (self.operand(p, 0), pulled(self.view, node, 0, &site)) {
            return self.pull_up(x, from, uncut);
        }
        false
    }

    /// Handles a move of one operand: either the operand's producer stores where the end of a chain
    /// of moves has the elements, or the readers read them where they are.
    fn chain(&mut self, node: usize) {
        let n = &self.view.model.nodes[node];
        let Some(x) = self.operand(node, 0) else { return };
        let apart = self.choice.sites.contains_key(&x);
        if renames(n) && !apart && !self.leads_to_moves(node) {
            return;
        }
        if n.outputs.iter().all(|o| self.choice.sites.contains_key(o)) {
            return;
        }
        if !apart && self.pull_chain(node, x) {
            return;
        }
        for (_, result) in joints(n) {
            let y = n.outputs[result];
            let Some(from) = self.choice.site(self.view.model, x) else { continue };
            if let Some(site) = pushed(self.view, n, result, &from) {
                self.put(y, site, false);
            }
        }
    }

    /// Whether a rename is followed by a move that is none.
    fn leads_to_moves(&self, node: usize) -> bool {
        let y = self.view.model.nodes[node].outputs[0];
        self.view.users(y).iter().any(|&u| {
            let n = &self.view.model.nodes[u];
            self.nodes.contains(&u) && n.op != "Concat" && (!renames(n) || self.leads_to_moves(u))
        })
    }

    /// Has the kernel before a chain of moves store where the chain's last value has the elements,
    /// if that needs no further loops.
    fn pull_chain(&mut self, node: usize, x: ValueId) -> bool {
        let m = self.view.model;
        if !self.kernels.contains_key(&x) || self.view.users(x) != [node] {
            return false;
        }
        let mut last = m.nodes[node].outputs[0];
        while let [next] = self.view.users(last)[..]
            && self.nodes.contains(&next)
            && (renames(&m.nodes[next]) || m.nodes[next].op == "Transpose")
            && !self.view.is_output(last)
        {
            last = m.nodes[next].outputs[0];
        }
        let before = self.choice.clone();
        let Some(p) = self.view.producer(last) else { return false };
        let (Some(site), Some(v)) = (self.choice.site(m, last), self.operand(p, 0)) else {
            return false;
        };
        let Some(to) = pulled(self.view, &m.nodes[p], 0, &site) else { return false };
        if self.pull_up(v, to, true) {
            return true;
        }
        self.choice = before;
        false
    }
}
