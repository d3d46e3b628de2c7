//! The order of axes that a model's images have between its kernels. What the caller gives and gets
//! stays in the model's order.

use crate::belief::least_time;
use crate::error::Error;
use crate::input::Input;
use crate::settings::TargetRequest;
use crate::target_context::TargetContext;
use squall_core::{TaskId, Workload};
use squall_graph::solvers::{CHANNELS_LAST, Cost, FASTEST_LAYOUTS, solver};
use squall_records::{Query, Store};
use std::collections::HashMap;

/// Where images between kernels have their channels.
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

    /// What kernels for a target are tuned with, unless the user says otherwise.
    pub fn usual(aim: TargetRequest) -> Channels {
        if aim.is_cpu() { Channels::Last } else { Channels::First }
    }
}

/// What a time counts more if it is of another device or toolchain: more than any kernel takes in
/// nanoseconds, less than one of which nothing is known.
const ELSEWHERE: f64 = 1e10;

impl Input {
    /// The same input with its images so; single kernels stay as they are.
    pub fn with_channels(self, channels: Channels) -> Input {
        if channels == Channels::First {
            return self;
        }
        self.solved(CHANNELS_LAST, &|_| None)
    }

    /// The same model as a solver of assignments has it; as it is where that makes none, or where
    /// it is no model.
    pub fn solved(self, name: &str, cost: &Cost<'_>) -> Input {
        let made = self.graph.as_ref().zip(solver(name)).map(|(g, s)| g.solved(s, cost));
        match made {
            Some(Ok(graph)) => self.with_graph(graph),
            _ => self,
        }
    }

    /// The model with each image in the order for which the kernels that would be taken from the
    /// store are fastest together, by an exact choice; as kernels are usually tuned where the store
    /// has none of them.
    pub fn with_fastest_layout(self, store: &Store, aimed: &TargetContext) -> Result<Input, Error> {
        if self.graph.is_none() {
            return Ok(self);
        }
        // Of each task the record that serves it.
        let mut known: HashMap<TaskId, f64> = HashMap::new();
        for (near, r) in store.serving(&Query::default(), &aimed.place)? {
            let Some(time) = r.outcome.time() else { continue };
            let is_possible = |w: &Workload| time.0 >= least_time(w, &aimed.target, None).0;
            if near.is_here() && !Workload::parse(&r.workload).is_ok_and(|w| is_possible(&w)) {
                continue;
            }
            let far = if near.is_here() { 0.0 } else { ELSEWHERE };
            known.entry(r.task).or_insert(far + time.0);
        }
        let solved = self.solved(FASTEST_LAYOUTS, &|id| known.get(&id).copied());
        if !aimed.gpus.is_empty() || solved.tasks.iter().any(|t| known.contains_key(&t.id)) {
            return Ok(solved);
        }
        Ok(solved.with_channels(Channels::usual(TargetRequest::Cpu)))
    }
}
