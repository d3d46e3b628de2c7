//! The images of an assignment: values of four dimensions that kernels alone write and read, in
//! loops that can go over them in either order, with a convolution or a pool among those kernels or
//! connected to them by other images.

use crate::assignment::{Choice, Step, reads};
use crate::candidate::{FusionCandidate, root};
use crate::candidates::Candidates;
use crate::feed::Feed;
use crate::layout::{Layout, image};
use squall_core::Workload;
use squall_core::graph::ValueId;
use std::collections::{BTreeSet, HashMap};

/// More images than a kernel is asked about in all combinations.
const MOST_TOUCHED: usize = 6;

/// Workloads whose loops go over images as such: only with them does the order of axes matter.
/// Heads of attention have four axes too.
const OF_IMAGES: &[&str] = &["conv2d", "depthwise_conv2d", "pool"];

/// The images of an assignment, and the kernels between them.
pub struct Images<'a> {
    all: &'a Candidates,
    steps: &'a [Step],
    /// Images whose channels may lie last.
    pub values: Vec<ValueId>,
    /// The kernels that touch one.
    pub kernels: Vec<Kernel>,
}

/// A kernel with the images that it touches, each once.
pub struct Kernel {
    candidate: usize,
    /// Places in [`Images::values`], ascending.
    pub touched: Vec<usize>,
}

impl<'a> Images<'a> {
    /// Looks for images.
    pub fn new(all: &'a Candidates, choice: &'a Choice) -> Images<'a> {
        let m = &all.model;
        let mut made = BTreeSet::new();
        for step in &choice.steps {
            if let Step::Kernel(i) = step {
                let outputs = all.list[*i].outputs.iter().copied();
                made.extend(outputs.filter(|&v| image(m, v).is_some_and(|x| x[1] > 1)));
            }
        }
        m.outputs.iter().for_each(|&v| _ = made.remove(&root(m, v)));
        for step in &choice.steps {
            match step {
                Step::Node(_) => reads(all, step).iter().for_each(|v| _ = made.remove(v)),
                // What is made of weights ahead would not know an image in its new order.
                Step::Kernel(i) => {
                    let ahead = all.list[*i].feeds.iter().filter(|f| f.is_made());
                    ahead.flat_map(Feed::values).for_each(|v| _ = made.remove(&root(m, v)));
                }
            }
        }
        let values = made.into_iter().collect();
        let mut images = Images { all, steps: &choice.steps, values, kernels: Vec::new() };
        images.kernels = images.find_kernels();
        // An image that one of its kernels cannot take in the other order stays as it is.
        let takes = |k: &Kernel, i: usize| {
            let lies = (images.values[i], Layout::ChannelsLast);
            k.touched.len() <= MOST_TOUCHED && images.candidate(k).layouts.contains(&lies)
        };
        let refused = images
            .kernels
            .iter()
            .flat_map(|k| k.touched.iter().copied().filter(move |&i| !takes(k, i)));
        let refused: BTreeSet<ValueId> = refused.map(|i| images.values[i]).collect();
        images.keep(&|v| !refused.contains(&v));
        let reached = images.near_windows();
        images.keep(&|v| reached.contains(&v));
        images
    }

    fn candidate(&self, k: &Kernel) -> &'a FusionCandidate {
        &self.all.list[k.candidate]
    }

    /// Keeps some images only; kernels no longer touch the others.
    fn keep(&mut self, kept: &dyn Fn(ValueId) -> bool) {
        self.values.retain(|&v| kept(v));
        self.kernels = self.find_kernels();
    }

    /// The images that convolutions and pools touch, and those that share a kernel with one of
    /// them.
    fn near_windows(&self) -> BTreeSet<ValueId> {
        let mut kernels: Vec<Vec<usize>> = vec![Vec::new(); self.values.len()];
        for (k, kernel) in self.kernels.iter().enumerate() {
            kernel.touched.iter().for_each(|&i| kernels[i].push(k));
        }
        let of_images = |k: &&Kernel| OF_IMAGES.contains(&self.candidate(k).workload.kind.as_str());
        let near = self.kernels.iter().filter(of_images);
        let mut open: Vec<usize> = near.flat_map(|k| k.touched.iter().copied()).collect();
        let mut reached = BTreeSet::new();
        while let Some(i) = open.pop() {
            if reached.insert(self.values[i]) {
                let kernels = kernels[i].iter().map(|&k| &self.kernels[k]);
                open.extend(kernels.flat_map(|k| k.touched.iter().copied()));
            }
        }
        reached
    }

    fn find_kernels(&self) -> Vec<Kernel> {
        let by_value: HashMap<ValueId, usize> =
            self.values.iter().enumerate().map(|(i, v)| (*v, i)).collect();
        let kernel = |s: &Step| {
            let Step::Kernel(candidate) = *s else { return None };
            let values = self.all.list[candidate].touched(&self.all.model);
            let mut touched: Vec<usize> =
                values.iter().filter_map(|v| by_value.get(v).copied()).collect();
            touched.sort_unstable();
            (!touched.is_empty()).then_some(Kernel { candidate, touched })
        };
        self.steps.iter().filter_map(kernel).collect()
    }

    /// A kernel's workload where `last` says which images have their channels last.
    pub fn variant(&self, k: &Kernel, last: &dyn Fn(usize) -> bool) -> Option<Workload> {
        let layout = |v: ValueId| match self.values.binary_search(&v) {
            Ok(i) if last(i) => Layout::ChannelsLast,
            _ => Layout::Model,
        };
        self.candidate(k).variant(&self.all.model, &layout)
    }
}
