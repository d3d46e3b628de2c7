//! The images of an assignment (the kernels that cover a model, and its layouts): values of four
//! axes whose channels may lie first or last, because only kernels read and write them. Images
//! count only if a convolution or pool is among those kernels or connected to them through other
//! images. Images that a move joins, such as the parts of a concatenation along channels, form a
//! group with one layout.
//!
//! Input: fusion candidates (sets of nodes that may be one kernel) and a choice of steps; output:
//! [`Images`] with their groups and the kernels that touch them. `layouts.rs` and `whole.rs` choose
//! the layouts.

use crate::assignment::{Choice, Step, reads};
use crate::candidate::{FusionCandidate, root};
use crate::candidates::Candidates;
use crate::feed::Feed;
use crate::layout::{Layout, image};
use crate::rules::JOINED;
use crate::view::{View, input, int, ints};
use squall_core::Workload;
use squall_core::graph::{Model, Node, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The most images of one kernel whose layouts are considered in all combinations.
const MOST_TOUCHED: usize = 6;

/// The kinds of workloads whose loops go over images: only for them does the order of axes matter.
/// Heads of attention have four axes too.
const OF_IMAGES: &[&str] = &[
    "conv2d",
    "depthwise_conv2d",
    "conv2d_backward_data",
    "depthwise_conv2d_backward_data",
    "pool",
];

/// The images of an assignment, and the kernels between them.
pub struct Images<'a> {
    all: &'a Candidates,
    steps: &'a [Step],
    /// Images whose channels may lie last, each with the number of its group; the images of a group
    /// have one layout.
    pub values: BTreeMap<ValueId, usize>,
    /// The number of groups.
    pub groups: usize,
    /// The kernels that read or write an image.
    pub kernels: Vec<Kernel>,
    /// Images that moves join.
    joined: Vec<Vec<ValueId>>,
}

/// A kernel with the groups of images that it reads or writes, each once.
pub struct Kernel {
    candidate: usize,
    /// Ascending.
    pub touched: Vec<usize>,
}

impl<'a> Images<'a> {
    /// Finds the images. A node that moves data fixes the layout of its values, unless `through`
    /// says that moves along the channels need no copy.
    pub fn new(all: &'a Candidates, choice: &'a Choice, through: bool) -> Images<'a> {
        let images = Images::found(all, choice, through);
        // An image that one of its kernels cannot take with channels last keeps its layout.
        let takes = |c: &FusionCandidate, v| c.layouts.contains(&(v, Layout::ChannelsLast));
        images.taken(&takes)
    }

    /// Finds the images among all candidates of a model at once, with moves along the channels seen
    /// through; an image stays one even if some candidate cannot take it with channels last.
    pub fn of_all(all: &'a Candidates, choice: &'a Choice) -> Images<'a> {
        Images::found(all, choice, true).taken(&|_, _| true)
    }

    fn found(all: &'a Candidates, choice: &'a Choice, through: bool) -> Images<'a> {
        let m = &all.model;
        let is_image = |v: &ValueId| image(m, *v).is_some_and(|x| x[1] > 1);
        let (mut made, mut joined) = (BTreeSet::new(), Vec::new());
        let is_joint = |n: &Node| through && moves_channels(all, n);
        let shuffles = if through { Shuffles::of(m, choice) } else { Shuffles::default() };
        for step in &choice.steps {
            match *step {
                Step::Kernel(i) => {
                    let c = &all.list[i];
                    made.extend(c.outputs.iter().copied().filter(is_image));
                    // Parts of what one kernel reads lie alike.
                    if through && c.rule == JOINED {
                        let parts = m.nodes[c.nodes[0]].inputs.iter().flatten();
                        joined.push(parts.map(|&v| root(m, v)).collect());
                    }
                }
                Step::Node(n) if is_joint(&m.nodes[n]) => {
                    let node = &m.nodes[n];
                    // A single channel lies either way.
                    made.extend(node.outputs.iter().copied().filter(|v| image(m, *v).is_some()));
                    let ends = match node.op.as_str() {
                        "Concat" => &node.inputs[..],
                        _ => &node.inputs[..1],
                    };
                    let ends = ends.iter().flatten().map(|&v| root(m, v));
                    joined.push(ends.chain(node.outputs.iter().copied()).collect());
                }
                Step::Node(n) => {
                    if let Some((from, to)) = shuffles.ends.get(&n).filter(|e| is_image(&e.1)) {
                        made.insert(*to);
                        joined.push(vec![*from, *to]);
                    }
                }
            }
        }
        m.outputs.iter().for_each(|&v| _ = made.remove(&root(m, v)));
        for step in &choice.steps {
            match *step {
                Step::Node(n) if is_joint(&m.nodes[n]) || shuffles.nodes.contains(&n) => {}
                Step::Node(_) => reads(all, step).iter().for_each(|v| _ = made.remove(v)),
                // Feeds that are made of weights ahead do not know an image in its new order.
                Step::Kernel(i) => {
                    let ahead = all.list[i].feeds.iter().filter(|f| f.is_made());
                    ahead.flat_map(Feed::values).for_each(|v| _ = made.remove(&root(m, v)));
                }
            }
        }
        let steps = &choice.steps;
        let values = BTreeMap::new();
        let mut images = Images { all, steps, values, groups: 0, kernels: Vec::new(), joined };
        images.group(made);
        images
    }

    /// Drops the images that a kernel does not take in the other order, and images that are far
    /// from any convolution.
    fn taken(mut self, takes: &dyn Fn(&FusionCandidate, ValueId) -> bool) -> Images<'a> {
        let mut refused = BTreeSet::new();
        for k in &self.kernels {
            let c = self.candidate(k);
            let values = c.touched(&self.all.model);
            for v in values.into_iter().filter(|v| self.values.contains_key(v)) {
                if k.touched.len() > MOST_TOUCHED || !takes(c, v) {
                    refused.insert(v);
                }
            }
        }
        self.keep(&|v, _| !refused.contains(&v));
        let reached = self.near_windows();
        self.keep(&|_, group| reached.contains(&group));
        self
    }

    fn candidate(&self, k: &Kernel) -> &'a FusionCandidate {
        &self.all.list[k.candidate]
    }

    /// Keeps some images only; kernels no longer touch the others.
    fn keep(&mut self, kept: &dyn Fn(ValueId, usize) -> bool) {
        let left = self.values.iter().filter(|(v, g)| kept(**v, **g)).map(|(v, _)| *v);
        self.group(left.collect());
    }

    /// Takes images and numbers their groups; a move whose other images are none pins its own.
    fn group(&mut self, mut left: BTreeSet<ValueId>) {
        loop {
            let before = left.len();
            for list in &self.joined {
                if list.iter().any(|v| !left.contains(v)) {
                    list.iter().for_each(|v| _ = left.remove(v));
                }
            }
            if left.len() == before {
                break;
            }
        }
        let mut of: BTreeMap<ValueId, ValueId> = left.iter().map(|&v| (v, v)).collect();
        // The least value of a group names it.
        loop {
            let before = of.clone();
            for list in &self.joined {
                let Some(least) = list.iter().filter_map(|v| of.get(v).copied()).min() else {
                    continue;
                };
                list.iter().for_each(|v| _ = of.insert(*v, least));
            }
            if of == before {
                break;
            }
        }
        let names: BTreeSet<ValueId> = of.values().copied().collect();
        let number: BTreeMap<ValueId, usize> = names.into_iter().zip(0..).collect();
        self.groups = number.len();
        self.values = of.into_iter().map(|(v, name)| (v, number[&name])).collect();
        self.kernels = self.find_kernels();
    }

    /// The groups that convolutions and pools touch, and the groups connected to them by shared
    /// kernels.
    fn near_windows(&self) -> BTreeSet<usize> {
        let mut kernels: Vec<Vec<usize>> = vec![Vec::new(); self.groups];
        for (k, kernel) in self.kernels.iter().enumerate() {
            kernel.touched.iter().for_each(|&i| kernels[i].push(k));
        }
        let of_images = |k: &&Kernel| OF_IMAGES.contains(&self.candidate(k).kind(&self.all.model));
        let near = self.kernels.iter().filter(of_images);
        let mut open: Vec<usize> = near.flat_map(|k| k.touched.iter().copied()).collect();
        let mut reached = BTreeSet::new();
        while let Some(i) = open.pop() {
            if reached.insert(i) {
                let kernels = kernels[i].iter().map(|&k| &self.kernels[k]);
                open.extend(kernels.flat_map(|k| k.touched.iter().copied()));
            }
        }
        reached
    }

    fn find_kernels(&self) -> Vec<Kernel> {
        let kernel = |s: &Step| {
            let Step::Kernel(candidate) = *s else { return None };
            let values = self.all.list[candidate].touched(&self.all.model);
            let mut touched: Vec<usize> =
                values.iter().filter_map(|v| self.values.get(v).copied()).collect();
            touched.sort_unstable();
            touched.dedup();
            (!touched.is_empty()).then_some(Kernel { candidate, touched })
        };
        self.steps.iter().filter_map(kernel).collect()
    }

    /// The choice where `last` says which groups have their channels last.
    pub fn laid_out(&self, last: &dyn Fn(usize) -> bool) -> Choice {
        let chosen = self.values.iter().filter(|(_, g)| last(**g));
        let layouts = chosen.map(|(&v, _)| (v, Layout::ChannelsLast)).collect();
        Choice { steps: self.steps.to_vec(), layouts, ..Choice::default() }
    }

    /// A kernel's workload where the choice says how values lie.
    pub fn variant(&self, k: &Kernel, choice: &Choice) -> Option<Workload> {
        self.candidate(k).placed(&|v| choice.lies(&self.all.model, v))
    }
}

/// Nodes that put the channels of images into another order: a shape in which they lie in groups,
/// a transposition of groups and their members, and the first shape again.
#[derive(Default)]
struct Shuffles {
    /// For the last node of each what comes in and what goes out.
    ends: BTreeMap<usize, (ValueId, ValueId)>,
    /// All their nodes.
    nodes: BTreeSet<usize>,
}

impl Shuffles {
    fn of(m: &Model, choice: &Choice) -> Shuffles {
        let view = View::new(m);
        let node = |s: &Step| if let Step::Node(n) = *s { Some(n) } else { None };
        let steps: BTreeSet<usize> = choice.steps.iter().filter_map(node).collect();
        let moves = |n: &usize| steps.contains(n);
        // The node before a node, if the latter alone reads its result.
        let before = |n: usize| {
            let v = view.root(input(&m.nodes[n], 0)?);
            let alone = view.users(v) == [n] && !view.is_output(v);
            view.producer(v).filter(|p| alone && moves(p))
        };
        let mut made = Shuffles::default();
        for last in (0..m.nodes.len()).filter(moves).filter(|&n| m.nodes[n].op == "Reshape") {
            let Some(turn) = before(last).filter(|&n| m.nodes[n].op == "Transpose") else {
                continue;
            };
            let Some(first) = before(turn).filter(|&n| m.nodes[n].op == "Reshape") else {
                continue;
            };
            let (Some(x), Some(&y)) = (input(&m.nodes[first], 0), m.nodes[last].outputs.first())
            else {
                continue;
            };
            let parted = m.nodes[first].outputs.first().and_then(|&v| view.shape(v));
            let alike = view.shape(x).is_some() && view.shape(x) == view.shape(y);
            let in_groups = match (view.shape(x), parted) {
                (Some(&[n, c, h, w]), Some(&[pn, g, pc, ph, pw])) => {
                    [n, h, w] == [pn, ph, pw] && g.checked_mul(pc) == Some(c)
                }
                _ => false,
            };
            if alike && in_groups && ints(&m.nodes[turn], "perm") == Some(&[0, 2, 1, 3, 4]) {
                made.ends.insert(last, (view.root(x), y));
                made.nodes.extend([first, turn, last]);
            }
        }
        made
    }
}

/// Whether a node joins or cuts images along their channels and does nothing else.
fn moves_channels(all: &Candidates, node: &Node) -> bool {
    let m = &all.model;
    let rank = |v: ValueId| m.values[v].shape.as_ref().map(Vec::len);
    let of_images = || node.inputs.first().copied().flatten().and_then(rank) == Some(4);
    let known = matches!(node.domain.as_str(), "" | "ai.onnx");
    let list = |i: usize, name: &'static str| match node.inputs.get(i).copied().flatten() {
        Some(v) => {
            match m.values[v].constant.as_deref().or(m.values[root(m, v)].constant.as_deref()) {
                Some(squall_core::graph::Constant::I64 { data, .. }) => Some(data.clone()),
                _ => None,
            }
        }
        None => ints(node, name).map(<[i64]>::to_vec),
    };
    let along = match node.op.as_str() {
        "Concat" | "Split" => matches!(int(node, "axis", 0), 1 | -3),
        "Slice" => list(3, "axes").is_some_and(|l| matches!(l[..], [1 | -3])),
        _ => false,
    };
    known && along && of_images()
}
