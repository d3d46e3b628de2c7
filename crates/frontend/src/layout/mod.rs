//! Layouts of images between kernels. Every kernel of a model is made for channels first, as ONNX
//! has them; images that only kernels see may just as well have their channels last, where vectors
//! of channels lie in order. [`Layouts`] knows which images those are, gives the network for any
//! choice, and finds the cheapest choice exactly.

mod cheapest;
mod rewrite;

use crate::graph::{Feed, Graph, Step};
use crate::import::Tasks;
use crate::onnx::ValueId;
use cheapest::{Factor, cheapest};
use rewrite::{Image, rewrite};
use squall_core::{Task, TaskId, Workload};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// More images than a kernel is asked about in all combinations.
const MOST_TOUCHED: usize = 6;

/// A model's images, and the kernels between them.
pub struct Layouts<'a> {
    graph: &'a Graph,
    tasks: HashMap<TaskId, &'a Task>,
    /// Images whose channels may lie last.
    images: Vec<(ValueId, Image)>,
    kernels: Vec<Kernel>,
}

/// What a step's kernel has to do with the images.
struct Kernel {
    step: usize,
    task: TaskId,
    /// For each input, which image it is.
    inputs: Vec<Option<usize>>,
    output: Option<usize>,
    /// Each image once.
    touched: Vec<usize>,
    /// Whether it writes places and channels that stay in the model's order.
    writes_first: bool,
}

/// Workloads whose loops go over images as such: only with them does the order of axes matter.
/// Heads of attention have four axes too.
const OF_IMAGES: &[&str] = &["conv2d", "depthwise_conv2d", "pool"];

impl<'a> Layouts<'a> {
    /// Looks for images: values of four dimensions that kernels alone write and read, in loops that
    /// can go over them in either order, with a convolution or a pool among those kernels or
    /// connected to them by other images.
    pub fn new(graph: &'a Graph, tasks: &'a [Task]) -> Layouts<'a> {
        let tasks: HashMap<TaskId, &Task> = tasks.iter().map(|t| (t.id, t)).collect();
        let root = |v: ValueId| graph.model.values[v].alias.unwrap_or(v);
        let mut made: BTreeMap<ValueId, Image> = BTreeMap::new();
        for step in &graph.steps {
            if let Step::Kernel { output, .. } = step
                && let Some(image) = places(graph, *output)
                && image[1] > 1
            {
                made.insert(*output, image);
            }
        }
        let mut drop = |v: ValueId| _ = made.remove(&root(v));
        graph.model.outputs.iter().for_each(|&v| drop(v));
        for step in &graph.steps {
            match step {
                Step::Node { node, .. } => {
                    graph.model.nodes[*node].inputs.iter().flatten().for_each(|&v| drop(v))
                }
                Step::Kernel { feeds, .. } => feeds.iter().for_each(|f| match f {
                    Feed::Value(_) => {}
                    // Weights only; an image here would not be known in its new order.
                    Feed::Scaled { weight, .. } => drop(*weight),
                    Feed::Factor(_) | Feed::Addend { .. } => {}
                }),
            }
        }
        let mut layouts =
            Layouts { graph, tasks, images: made.into_iter().collect(), kernels: Vec::new() };
        layouts.kernels = layouts.find_kernels();
        // An image that one of its kernels cannot take in the other order stays as it is.
        let takes = |k: &Kernel, i: usize| {
            k.touched.len() <= MOST_TOUCHED && layouts.variant(k, &|j| j == i).is_some()
        };
        let refused = layouts
            .kernels
            .iter()
            .flat_map(|k| k.touched.iter().copied().filter(move |&i| !takes(k, i)));
        let refused: BTreeSet<ValueId> = refused.map(|i| layouts.images[i].0).collect();
        layouts.keep(&|v| !refused.contains(&v));
        let reached = layouts.near_windows();
        layouts.keep(&|v| reached.contains(&v));
        layouts
    }

    /// Keeps some images only; kernels no longer touch the others.
    fn keep(&mut self, kept: &dyn Fn(ValueId) -> bool) {
        self.images.retain(|(v, _)| kept(*v));
        self.kernels = self.find_kernels();
    }

    /// The images that convolutions and pools touch, and those that share a kernel with one of
    /// them.
    fn near_windows(&self) -> BTreeSet<ValueId> {
        let mut kernels: Vec<Vec<usize>> = vec![Vec::new(); self.images.len()];
        self.kernels
            .iter()
            .enumerate()
            .for_each(|(k, kernel)| kernel.touched.iter().for_each(|&i| kernels[i].push(k)));
        let of_images = |k: &&Kernel| {
            self.tasks.get(&k.task).is_some_and(|t| OF_IMAGES.contains(&t.workload.kind.as_str()))
        };
        let mut open: Vec<usize> =
            self.kernels.iter().filter(of_images).flat_map(|k| k.touched.iter().copied()).collect();
        let mut reached = BTreeSet::new();
        while let Some(i) = open.pop() {
            if reached.insert(self.images[i].0) {
                open.extend(
                    kernels[i].iter().flat_map(|&k| self.kernels[k].touched.iter().copied()),
                );
            }
        }
        reached
    }

    fn find_kernels(&self) -> Vec<Kernel> {
        let by_value: HashMap<ValueId, usize> =
            self.images.iter().enumerate().map(|(i, (v, _))| (*v, i)).collect();
        let root = |v: ValueId| self.graph.model.values[v].alias.unwrap_or(v);
        let kernel = |(step, s): (usize, &Step)| {
            let Step::Kernel { task, feeds, output, .. } = s else { return None };
            let image = |f: &Feed| {
                if let Feed::Value(v) = f { by_value.get(&root(*v)).copied() } else { None }
            };
            let several = places(self.graph, *output).is_some();
            let (inputs, output): (Vec<_>, _) =
                (feeds.iter().map(image).collect(), by_value.get(output).copied());
            let mut touched: Vec<usize> = inputs.iter().flatten().copied().chain(output).collect();
            touched.sort_unstable();
            touched.dedup();
            let writes_first = several && output.is_none();
            (!touched.is_empty()).then_some(Kernel {
                step,
                task: *task,
                inputs,
                output,
                touched,
                writes_first,
            })
        };
        self.graph.steps.iter().enumerate().filter_map(kernel).collect()
    }

    /// How many images there are to choose for.
    pub fn images(&self) -> usize {
        self.images.len()
    }

    /// A kernel's workload where `last` says which images have their channels last.
    fn variant(&self, k: &Kernel, last: &dyn Fn(usize) -> bool) -> Option<Workload> {
        let image = |i: &Option<usize>| i.filter(|&i| last(i)).map(|i| self.images[i].1);
        let task = self.tasks.get(&k.task)?;
        let inputs: Vec<Option<Image>> = k.inputs.iter().map(image).collect();
        match (inputs.iter().all(Option::is_none), image(&k.output)) {
            (true, None) => Some(task.workload.clone()),
            (_, output) => rewrite(&task.workload, &inputs, output),
        }
    }

    /// The network where the channels of those images lie last, and its tasks; images that are not
    /// named keep their order.
    pub fn lay_out(&self, last: &[bool]) -> (Graph, Vec<Task>) {
        // Each image alone fits its kernels, and they are rewritten apart from one another. Should
        // some not fit together all the same, half a change would be a wrong network.
        let fits =
            self.kernels.iter().all(|k| self.variant(k, &|i| last.get(i) == Some(&true)).is_some());
        let is_last = |i: usize| fits && last.get(i) == Some(&true);
        let mut tasks = Tasks::default();
        let mut steps = self.graph.steps.clone();
        let mut kernels = self.kernels.iter().peekable();
        for (i, step) in steps.iter_mut().enumerate() {
            let Step::Kernel { task: id, nodes, .. } = step else { continue };
            let Some(task) = self.tasks.get(id) else { continue };
            let kernel = kernels.next_if(|k| k.step == i);
            let made = kernel.and_then(|k| Some((self.variant(k, &is_last)?, name(k, &is_last))));
            let (workload, suffix) = made.unwrap_or_else(|| (task.workload.clone(), ""));
            let nodes = nodes.iter().map(|&n| self.graph.model.nodes[n].name.clone()).collect();
            *id = tasks.add(&format!("{}{suffix}", task.name), workload, nodes);
        }
        (Graph::new(self.graph.model.clone(), steps), tasks.finish())
    }

    /// The choice for which the kernels' times add up to least; `time` is what is known of a task's
    /// kernel, in nanoseconds. Kernels of which nothing is known are avoided first.
    pub fn cheapest(&self, time: &dyn Fn(TaskId) -> Option<f64>) -> Vec<bool> {
        /// Slower than any kernel in nanoseconds (three hours), and small enough that sums of
        /// thousands stay exact to a nanosecond.
        const UNKNOWN: f64 = 1e13;
        let factor = |k: &Kernel| {
            let costs = (0..1usize << k.touched.len()).map(|bits| {
                let last = |i: usize| {
                    k.touched.iter().position(|&t| t == i).is_some_and(|p| bits >> p & 1 == 1)
                };
                let id = self.variant(k, &last).map(|w| Task::new("", w).id);
                id.and_then(time).unwrap_or(UNKNOWN)
            });
            let costs: Vec<f64> = costs.collect();
            // Where nothing is known either way, nothing can be avoided.
            let blind = costs.iter().all(|&c| c == UNKNOWN);
            Factor {
                scope: k.touched.clone(),
                costs: if blind { vec![0.0; costs.len()] } else { costs },
            }
        };
        cheapest(self.images.len(), self.kernels.iter().map(factor).collect())
    }
}

/// Extents of a value of four axes with more than one place.
fn places(graph: &Graph, v: ValueId) -> Option<Image> {
    let &[n, c, h, w] = graph.model.values[v].shape.as_deref()? else { return None };
    (h.checked_mul(w)? > 1).then_some([n, c, h, w])
}

/// What a kernel's name gets for its images' order: `_nhwc` where all that it reads and writes
/// first has its channels last, `_to_nhwc` and `_from_nhwc` where it crosses over, `_beside_nhwc`
/// where only what it adds on the way has.
fn name(k: &Kernel, last: &dyn Fn(usize) -> bool) -> &'static str {
    let input = k.inputs.first().copied().flatten().is_some_and(last);
    match (input, k.output.is_some_and(last)) {
        (true, false) if k.writes_first || k.output.is_some() => "_from_nhwc",
        (true, _) => "_nhwc",
        (false, true) => "_to_nhwc",
        (false, false) if k.touched.iter().any(|&i| last(i)) => "_beside_nhwc",
        (false, false) => "",
    }
}

#[cfg(test)]
mod tests;
