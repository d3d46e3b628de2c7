//! The images of an assignment: values of four dimensions that kernels alone write and read, in
//! loops that can go over them in either order, with a convolution or a pool among those kernels or
//! connected to them by other images. Where moves along the channels are seen through, the images
//! that one joins are laid out alike.

use crate::assignment::{Choice, Step, reads};
use crate::candidate::{FusionCandidate, root};
use crate::candidates::Candidates;
use crate::feed::Feed;
use crate::layout::{Layout, image};
use crate::view::{int, ints};
use squall_core::Workload;
use squall_core::graph::{Node, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// More images than a kernel is asked about in all combinations.
const MOST_TOUCHED: usize = 6;

/// Workloads whose loops go over images as such: only with them does the order of axes matter.
/// Heads of attention have four axes too.
const OF_IMAGES: &[&str] = &["conv2d", "depthwise_conv2d", "pool"];

/// The images of an assignment, and the kernels between them.
pub struct Images<'a> {
    all: &'a Candidates,
    steps: &'a [Step],
    /// Images whose channels may lie last, each with the number of its group: those of a group lie
    /// alike.
    pub values: BTreeMap<ValueId, usize>,
    /// How many groups.
    pub groups: usize,
    /// The kernels that touch one.
    pub kernels: Vec<Kernel>,
    /// Images that moves join.
    joined: Vec<Vec<ValueId>>,
}

/// A kernel with the groups of images that it touches, each once.
pub struct Kernel {
    candidate: usize,
    /// Ascending.
    pub touched: Vec<usize>,
}

impl<'a> Images<'a> {
    /// Looks for images. Nodes that move data pin what they touch, unless `through` says that moves
    /// along the channels are seen through.
    pub fn new(all: &'a Candidates, choice: &'a Choice, through: bool) -> Images<'a> {
        let m = &all.model;
        let is_image = |v: &ValueId| image(m, *v).is_some_and(|x| x[1] > 1);
        let (mut made, mut joined) = (BTreeSet::new(), Vec::new());
        let is_joint = |n: &Node| through && moves_channels(all, n);
        for step in &choice.steps {
            match *step {
                Step::Kernel(i) => {
                    made.extend(all.list[i].outputs.iter().copied().filter(is_image))
                }
                Step::Node(n) if is_joint(&m.nodes[n]) => {
                    let node = &m.nodes[n];
                    made.extend(node.outputs.iter().copied().filter(is_image));
                    let ends = match node.op.as_str() {
                        "Concat" => &node.inputs[..],
                        _ => &node.inputs[..1],
                    };
                    let ends = ends.iter().flatten().map(|&v| root(m, v));
                    joined.push(ends.chain(node.outputs.iter().copied()).collect());
                }
                Step::Node(_) => {}
            }
        }
        m.outputs.iter().for_each(|&v| _ = made.remove(&root(m, v)));
        for step in &choice.steps {
            match *step {
                Step::Node(n) if is_joint(&m.nodes[n]) => {}
                Step::Node(_) => reads(all, step).iter().for_each(|v| _ = made.remove(v)),
                // What is made of weights ahead would not know an image in its new order.
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
        // An image that one of its kernels cannot take in the other order stays as it is.
        let mut refused = BTreeSet::new();
        for k in &images.kernels {
            let c = images.candidate(k);
            for v in c.touched(m).into_iter().filter(|v| images.values.contains_key(v)) {
                if k.touched.len() > MOST_TOUCHED || !c.layouts.contains(&(v, Layout::ChannelsLast))
                {
                    refused.insert(v);
                }
            }
        }
        images.keep(&|v, _| !refused.contains(&v));
        let reached = images.near_windows();
        images.keep(&|_, group| reached.contains(&group));
        images
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

    /// The groups that convolutions and pools touch, and those that share a kernel with one of
    /// them.
    fn near_windows(&self) -> BTreeSet<usize> {
        let mut kernels: Vec<Vec<usize>> = vec![Vec::new(); self.groups];
        for (k, kernel) in self.kernels.iter().enumerate() {
            kernel.touched.iter().for_each(|&i| kernels[i].push(k));
        }
        let of_images = |k: &&Kernel| OF_IMAGES.contains(&self.candidate(k).workload.kind.as_str());
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

/// Whether a node joins or cuts images along their channels and does nothing else.
fn moves_channels(all: &Candidates, node: &Node) -> bool {
    let m = &all.model;
    let rank = |v: ValueId| m.values[v].shape.as_ref().map(Vec::len);
    let of_images = || node.inputs.first().copied().flatten().and_then(rank) == Some(4);
    let known = matches!(node.domain.as_str(), "" | "ai.onnx");
    let list = |i: usize, name: &'static str| match node.inputs.get(i).copied().flatten() {
        Some(v) => match m.values[v].constant.as_ref().or(m.values[root(m, v)].constant.as_ref()) {
            Some(squall_core::graph::Constant::I64 { data, .. }) => Some(data.clone()),
            _ => None,
        },
        None => ints(node, name).map(<[i64]>::to_vec),
    };
    let along = match node.op.as_str() {
        "Concat" | "Split" => matches!(int(node, "axis", 0), 1 | -3),
        "Slice" => list(3, "axes").is_some_and(|l| matches!(l[..], [1 | -3])),
        _ => false,
    };
    known && along && of_images()
}
