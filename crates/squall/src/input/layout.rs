//! Chooses the layout of a model's images (NCHW or NHWC) between its kernels, and the cover (which
//! operators become one kernel) that is cheapest by measured times. Input: a model and a store of
//! records; output: the model with another assignment of operators to kernels, or a table of the
//! costs of several covers (`squall tasks`). Tensors that the caller gives and gets keep the
//! model's own layout.

use crate::base::error::Error;
use crate::input::precision::Precision;
use crate::input::user_input::{Input, ModelInput};
use crate::target::belief::least_time;
use crate::target::target_context::TargetContext;
use crate::target::target_request::TargetRequest;
use squall_core::{Objective, Record, TaskId, Workload};
use squall_graph::rules::ATTENTION;
use squall_graph::solvers::{
    ATTENTION_IN_PLACE, CHANNELS_LAST, CHANNELS_LAST_IN_PLACE, Cost, CoverCost, FASTEST_IN_PLACE,
    FASTEST_LAYOUTS, IN_PLACE, SOLVERS, solver, standings,
};
use squall_graph::{Assignment, Step};
use squall_records::{Query, Store};
use std::collections::{HashMap, HashSet};

/// The place of the channel axis in images between kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// Before rows and columns, as in the model.
    First,
    /// After rows and columns, wherever kernels alone see the image and can go over it in either
    /// order.
    Last,
}

impl Channels {
    /// Both, with their spelling.
    pub const ALL: &'static [(Channels, &'static str)] =
        &[(Channels::First, "first"), (Channels::Last, "last")];

    /// The default layout for a target. CPUs take channels last; so do GPUs for formats of 16 bits,
    /// because their matrix units load those by whole rows of channels.
    pub fn usual(target: TargetRequest, precision: Precision) -> Channels {
        match target.is_cpu() || precision.half().is_some() {
            true => Channels::Last,
            false => Channels::First,
        }
    }
}

/// The nanoseconds that are added to a time that was measured on another device or with another
/// toolchain. The sum is more than any kernel takes and less than the cost of a kernel without a
/// time, so times from here come first and unknown kernels last.
const ELSEWHERE: f64 = 1e10;

/// The best known time of each task of a store, in nanoseconds. Times of other devices and
/// toolchains are raised above all times from here (`ELSEWHERE`).
pub fn known_times(store: &Store, at: &TargetContext) -> Result<HashMap<TaskId, f64>, Error> {
    Ok(records_with_times(store, at)?.into_iter().map(|(r, time)| (r.task, time)).collect())
}

/// The record that serves each task, with its time.
fn records_with_times(store: &Store, at: &TargetContext) -> Result<Vec<(Record, f64)>, Error> {
    let (mut known, mut found) = (HashSet::new(), Vec::new());
    for (near, r) in store.serving(&Query::default(), &at.place)? {
        let Some(time) = r.outcome.time() else { continue };
        let is_possible = |w: &Workload| time.0 >= least_time(w, &at.target, None).0;
        if near.is_here() && !Workload::parse(&r.workload).is_ok_and(|w| is_possible(&w)) {
            continue;
        }
        let far = if near.is_here() { 0.0 } else { ELSEWHERE };
        if known.insert(r.task) {
            found.push((r, far + time.0));
        }
    }
    Ok(found)
}

/// The known times of this device and toolchain alone, because times of others cannot be compared
/// with estimates. Keys are the tasks of a model's graph, in 32-bit floats; the times are of the
/// kernels that stand for them in `precision`. Where two such kernels differ only in the format of
/// their result, the slower time counts.
pub(crate) fn times_here(
    store: &Store,
    at: &TargetContext,
    precision: Precision,
) -> Result<HashMap<TaskId, f64>, Error> {
    // Kernels of tf32 are those of 32 bits or others, which is not seen in a store.
    if precision == Precision::Tf32 {
        return Ok(HashMap::new());
    }
    let in_graph = |r: &Record| match precision.half() {
        None => Some(r.task),
        Some(_) => {
            let w = precision.in_graph(Workload::parse(&r.workload).ok()?)?;
            Some(TaskId::of(&w, Objective::Time))
        }
    };
    let mut times: HashMap<TaskId, f64> = HashMap::new();
    for (r, time) in records_with_times(store, at)?.iter().filter(|(_, t)| *t < ELSEWHERE) {
        if let Some(task) = in_graph(r) {
            let slower = times.entry(task).or_insert(*time);
            *slower = slower.max(*time);
        }
    }
    Ok(times)
}

/// The ways to cover a model by kernels that can be asked for by name, each with what it does.
pub fn covers() -> impl Iterator<Item = (&'static str, &'static str)> {
    SOLVERS.iter().map(|s| (s.name, s.about))
}

/// The covers of a model (sets of kernels that compute it): the chosen one, the others, and costs.
pub struct CoverReport {
    /// The sum of the chosen kernels' times, in nanoseconds.
    pub time: f64,
    /// The chosen ones, then all others.
    pub kernels: Vec<CoverRow>,
}

/// A kernel in the cheapest cover that it can be part of.
pub struct CoverRow {
    /// The candidate's name.
    pub name: String,
    /// The names of the nodes that it covers.
    pub nodes: Vec<String>,
    /// Its time, in nanoseconds.
    pub time: f64,
    /// Whether that is an estimate.
    pub estimated: bool,
    /// How much longer that cover takes; none of the chosen ones.
    pub behind: Option<f64>,
}

/// Whether one of the kernels that a model is made of is attention.
fn has_attention(graph: &Assignment) -> bool {
    let list = &graph.candidates().list;
    let is = |s: &Step| matches!(*s, Step::Kernel(i) if list[i].rule == ATTENTION);
    graph.choice().steps.iter().any(is)
}

impl Input {
    /// How the candidates for kernels of a model stand to each other, by what is known of times.
    pub fn cover_report(&self, known: &HashMap<TaskId, f64>) -> Result<CoverReport, Error> {
        let model = self.model_or("there is no model to cover")?;
        let all = model.graph.candidates();
        let made = standings(all, &|id| known.get(&id).copied()).map_err(|message| {
            let hint = "greedy fusion needs no proof: `--cover greedy`".into();
            Error::Input { place: model.name.clone(), message, hint }
        })?;
        let row = |s: &CoverCost, behind| {
            let c = &all.list[s.candidate];
            let nodes = c.nodes.iter().map(|&n| all.model.nodes[n].name.clone()).collect();
            CoverRow { name: c.name.clone(), nodes, time: s.time, estimated: s.estimated, behind }
        };
        let chosen = made.chosen.iter().map(|s| row(s, None));
        let lost = made.lost.iter().map(|s| row(s, Some(s.behind)));
        Ok(CoverReport { time: made.time, kernels: chosen.chain(lost).collect() })
    }

    /// A model covered by the solver of a name for a target, with what is known of times; single
    /// kernels stay as they are.
    pub fn covered(
        self,
        name: &str,
        known: &HashMap<TaskId, f64>,
        target: TargetRequest,
    ) -> Result<Input, Error> {
        let Some(s) = solver(name) else {
            let names: Vec<&str> = covers().map(|c| c.0).collect();
            return Err(Error::Input {
                place: name.into(),
                message: "there is no such way to cover a model".into(),
                hint: format!("there are {}", names.join(", ")),
            });
        };
        self.try_model(|model| {
            let made = model.graph.solved(s, &|id| known.get(&id).copied());
            let made = made.map_err(|message| Error::Input {
                place: model.name.clone(),
                message,
                hint: "please report this: it is a fault of Squall's".into(),
            })?;
            let made = model.with_graph(made);
            Ok(match target.is_cpu() {
                true => made,
                // No other kernel of a GPU's than attention has its values in the memory of others.
                false => made.solved(ATTENTION_IN_PLACE, &|id| known.get(&id).copied()),
            })
        })
    }

    /// The same input with its images so; single kernels stay as they are.
    pub fn with_channels(self, channels: Channels, target: TargetRequest) -> Input {
        self.map_model(|model| model.with_channels(channels, target))
    }
}

impl ModelInput {
    /// The same model with its images so; for a CPU, values lie in the memory of others wherever
    /// that saves a copy. On a GPU matrix units take tensors of their own alone.
    fn with_channels(self, channels: Channels, target: TargetRequest) -> ModelInput {
        match (channels, target.is_cpu()) {
            (Channels::First, true) => self.solved(IN_PLACE, &|_| None),
            (Channels::Last, true) => self.solved(CHANNELS_LAST_IN_PLACE, &|_| None),
            (Channels::First, false) => self.solved(ATTENTION_IN_PLACE, &|_| None),
            (Channels::Last, false) => {
                let made = self.solved(CHANNELS_LAST, &|_| None);
                match has_attention(&made.graph) {
                    true => made.solved(ATTENTION_IN_PLACE, &|_| None),
                    false => made,
                }
            }
        }
    }

    /// The same model as it is usually tuned in its format.
    pub(crate) fn in_usual_form(self, target: TargetRequest) -> Result<ModelInput, Error> {
        let usual = Channels::usual(target, self.precision);
        self.with_channels(usual, target).in_precision(target)
    }

    /// The same model as a solver of assignments has it; as it is where that makes none.
    fn solved(self, name: &str, cost: &Cost<'_>) -> ModelInput {
        let made = solver(name).map(|s| self.graph.solved(s, cost));
        match made {
            Some(Ok(graph)) => self.with_graph(graph),
            _ => self,
        }
    }

    /// The model with each image in the order for which the kernels of these times are fastest, and
    /// values where the target's kernels can have them.
    pub(crate) fn laid_out(self, known: &HashMap<TaskId, f64>, at: &TargetContext) -> ModelInput {
        let time = |id| known.get(&id).copied();
        match at.gpus.is_empty() {
            true => self.solved(FASTEST_IN_PLACE, &time),
            false => self.solved(FASTEST_LAYOUTS, &time).solved(ATTENTION_IN_PLACE, &time),
        }
    }

    /// The model with each image in the order for which the kernels that would be taken from the
    /// store are fastest together, by an exact choice; as kernels are usually tuned where the store
    /// has none of them.
    pub(crate) fn with_fastest_layout(
        self,
        store: &Store,
        at: &TargetContext,
    ) -> Result<ModelInput, Error> {
        let known = known_times(store, at)?;
        let solved = self.laid_out(&known, at);
        if !at.gpus.is_empty() || solved.tasks.iter().any(|t| known.contains_key(&t.id)) {
            return Ok(solved);
        }
        let cpu = TargetRequest::Cpu;
        Ok(solved.with_channels(Channels::usual(cpu, Precision::F32), cpu))
    }
}
