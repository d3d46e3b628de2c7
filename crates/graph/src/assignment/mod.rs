//! The second stage of the graph compiler: an assignment says which fusion candidates cover the
//! model, in which order they run, and in which layout each value lies. Input:
//! [`Candidates`](crate::Candidates) and a [`Choice`] that a solver (`../solvers`) or a user's text
//! made; output: an [`Assignment`], a choice that was found legal (`verify.rs`), with one tuning
//! task for each different kernel. It prints and parses (`text.rs`), can be run step by step
//! ([`Assignment::run`]), and becomes a plan ([`Assignment::plan`]).

mod cover;
pub mod flow;
pub mod moving;
mod text;
mod verify;

use crate::candidate::root;
use crate::candidates::Candidates;
use crate::layout::{Layout, image};
use crate::rewrite::Lies;
use crate::site::Site;
use crate::weights::random_input;
use squall_core::graph::{Model, Node, ValueId};
use squall_core::tasks::{Tasks, Untuned};
use squall_core::{Task, TaskId, Workload};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// One step of the execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A kernel, by its place among the candidates.
    Kernel(usize),
    /// A node that no kernel is made for.
    Node(usize),
}

/// A solver's choice of kernels and places.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The steps in order of execution.
    pub steps: Vec<Step>,
    /// The layouts of values that do not lie as in the model and have memory of their own.
    pub layouts: BTreeMap<ValueId, Layout>,
    /// The sites of values that lie in the memory of other values: nodes that move data between the
    /// two then copy nothing.
    pub sites: BTreeMap<ValueId, Site>,
}

impl Choice {
    /// The layout of a value in memory of its own.
    pub fn layout(&self, v: ValueId) -> Layout {
        self.layouts.get(&v).copied().unwrap_or(Layout::Model)
    }

    /// The place of a value's elements, in another value's memory or in its own.
    pub fn site(&self, model: &Model, v: ValueId) -> Option<Site> {
        self.sites.get(&v).cloned().or_else(|| Site::own(model, v, self.layout(v)))
    }

    /// Whether a value lies as the model has it: in its own memory, or as one contiguous stretch of
    /// another's.
    pub fn is_plain(&self, v: ValueId) -> bool {
        self.layout(v) == Layout::Model && self.sites.get(&v).is_none_or(Site::is_dense)
    }

    /// How a value lies, for the rewriting of a kernel that reads or writes it; `None` where its
    /// layout needs an image and it is none.
    pub fn lies(&self, model: &Model, v: ValueId) -> Option<Lies<'_>> {
        let v = root(model, v);
        match self.sites.get(&v) {
            Some(site) if site.is_dense() => Some(Lies::Model),
            Some(site) => Some(Lies::At(site)),
            None if self.layout(v) == Layout::Model => Some(Lies::Model),
            None => image(model, v).map(Lies::ChannelsLast),
        }
    }

    /// The layout that a value has, be it in its own memory or in another's.
    pub(crate) fn looks(&self, v: ValueId) -> Layout {
        let last = |s: &Site| match &s.dims[..] {
            [_, channels, _, _] => channels.last().is_some_and(|f| f.stride == 1),
            _ => false,
        };
        match self.sites.get(&v) {
            Some(site) if !site.is_dense() && last(site) => Layout::ChannelsLast,
            Some(_) => Layout::Model,
            None => self.layout(v),
        }
    }
}

/// A legal cover of a model by kernels.
#[derive(Clone)]
pub struct Assignment {
    /// Names and shapes of the model's inputs.
    pub inputs: Vec<(String, Vec<i64>)>,
    /// Names and shapes of the model's outputs.
    pub outputs: Vec<(String, Vec<i64>)>,
    candidates: Arc<Candidates>,
    choice: Choice,
    /// For each step the task of its kernel.
    of_step: Vec<Option<TaskId>>,
    tasks: Vec<Task>,
    /// For each step, the values that no later step reads.
    last: Vec<Vec<ValueId>>,
}

impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (steps, ins, outs) = (self.choice.steps.len(), &self.inputs, &self.outputs);
        write!(f, "Assignment of {steps} steps, {ins:?} -> {outs:?}")
    }
}

impl Assignment {
    /// The assignment of a choice; an error with the fault where the choice is not legal.
    pub fn new(candidates: Arc<Candidates>, choice: Choice) -> Result<Assignment, String> {
        verify::verify(&candidates, &choice)?;
        let model = &candidates.model;
        let facts = |ids: &[ValueId]| {
            let one = |&id: &ValueId| {
                (model.values[id].name.clone(), model.values[id].shape.clone().unwrap_or_default())
            };
            ids.iter().map(one).collect()
        };
        let (of_step, tasks) = tasks(&candidates, &choice)?;
        let (inputs, outputs) = (facts(&model.inputs), facts(&model.outputs));
        let last = last_reads(&candidates, &choice);
        Ok(Assignment { inputs, outputs, candidates, choice, of_step, tasks, last })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.candidates.model
    }

    /// The candidates that the choice was made from.
    pub fn candidates(&self) -> &Arc<Candidates> {
        &self.candidates
    }

    /// The choice.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The distinct kernels, in order of first appearance, with their counts.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// The task of each step that is a kernel.
    pub fn task_of_step(&self, step: usize) -> Option<TaskId> {
        self.of_step.get(step).copied().flatten()
    }

    /// The values that no step after this one reads.
    pub fn last_read_by(&self, step: usize) -> &[ValueId] {
        &self.last[step]
    }

    /// The nodes that are not tuned, in order of execution, and why.
    pub fn untuned(&self) -> Vec<Untuned> {
        let of = |s: &Step| match *s {
            Step::Kernel(_) => None,
            Step::Node(n) => {
                let node = &self.model().nodes[n];
                Some(Untuned {
                    node: node.name.clone(),
                    op: operator(node),
                    reason: self.reason(n),
                })
            }
        };
        self.choice.steps.iter().filter_map(of).collect()
    }

    /// Why no kernel is made for a node.
    pub fn reason(&self, node: usize) -> String {
        self.candidates.refused.get(&node).cloned().unwrap_or_default()
    }

    /// The same model and kernels over other weights.
    pub fn with_model(&self, model: Arc<Model>) -> Assignment {
        let candidates = Candidates { model, ..(*self.candidates).clone() };
        Assignment { candidates: Arc::new(candidates), ..self.clone() }
    }

    /// Numbers for an input where the user gives none: the same in every run.
    pub fn random_input(&self, index: usize) -> Vec<f32> {
        let elements = |shape: &[i64]| shape.iter().product::<i64>().max(0) as usize;
        random_input(self.inputs.get(index).map_or(0, |(_, shape)| elements(shape)))
    }
}

fn operator(node: &Node) -> String {
    match node.domain.as_str() {
        "" | "ai.onnx" => node.op.clone(),
        domain => format!("{domain}.{}", node.op),
    }
}

/// The workload of a candidate where values lie as chosen.
pub fn workload(candidates: &Candidates, choice: &Choice, index: usize) -> Option<Workload> {
    let model = &candidates.model;
    candidates.list.get(index)?.placed(&|v| choice.lies(model, v))
}

/// The task of each step, and all tasks. Names are made unique as the model has its values, and get
/// what says their layouts then: a kernel keeps its name in every layout.
fn tasks(
    candidates: &Candidates,
    choice: &Choice,
) -> Result<(Vec<Option<TaskId>>, Vec<Task>), String> {
    let model = &candidates.model;
    let nodes = |i: usize| {
        let names = candidates.list[i].nodes.iter().map(|&n| model.nodes[n].name.clone());
        names.collect::<Vec<String>>()
    };
    let mut plain = Tasks::default();
    let id = |plain: &mut Tasks, s: &Step| match *s {
        Step::Kernel(i) => {
            let c = &candidates.list[i];
            Some(plain.add(&c.name, c.workload.clone(), nodes(i)))
        }
        Step::Node(_) => None,
    };
    let ids: Vec<Option<TaskId>> = choice.steps.iter().map(|s| id(&mut plain, s)).collect();
    let plain = plain.finish();
    if choice.layouts.is_empty() && choice.sites.is_empty() {
        return Ok((ids, plain));
    }
    let names: HashMap<TaskId, &str> = plain.iter().map(|t| (t.id, t.name.as_str())).collect();
    let mut laid_out = Tasks::default();
    let mut of_step = Vec::new();
    for (step, id) in choice.steps.iter().zip(ids) {
        let (Step::Kernel(i), Some(id)) = (*step, id) else {
            of_step.push(None);
            continue;
        };
        let c = &candidates.list[i];
        let made = workload(candidates, choice, i)
            .ok_or_else(|| format!("kernel `{}` cannot have these layouts", c.name))?;
        let suffix = c.suffix(model, &|v| choice.looks(v));
        let apart = |v: &ValueId| choice.sites.get(v).is_some_and(|s| !s.is_dense());
        let within = if c.touched(model).iter().any(apart) { "_placed" } else { "" };
        let name = format!("{}{suffix}{within}", names.get(&id).copied().unwrap_or_default());
        of_step.push(Some(laid_out.add(&name, made, nodes(i))));
    }
    Ok((of_step, laid_out.finish()))
}

/// The values that a step reads at run time, by their roots.
pub fn reads(candidates: &Candidates, step: &Step) -> Vec<ValueId> {
    let model = &candidates.model;
    let list: Vec<ValueId> = match *step {
        Step::Kernel(i) => {
            let feeds = candidates.list[i].feeds.iter().filter(|f| !f.is_made());
            feeds.flat_map(|f| f.values()).collect()
        }
        Step::Node(n) => model.nodes[n].inputs.iter().flatten().copied().collect(),
    };
    list.into_iter().map(|v| root(model, v)).collect()
}

fn last_reads(candidates: &Candidates, choice: &Choice) -> Vec<Vec<ValueId>> {
    let model = &candidates.model;
    let mut reader = HashMap::new();
    for (i, step) in choice.steps.iter().enumerate() {
        reads(candidates, step).into_iter().for_each(|v| _ = reader.insert(v, i));
    }
    model.outputs.iter().for_each(|&v| _ = reader.remove(&root(model, v)));
    let mut last = vec![Vec::new(); choice.steps.len()];
    reader.into_iter().for_each(|(v, i)| last[i].push(v));
    last
}
