//! The order of axes that a model's images have between its kernels. What the caller gives and gets
//! stays in the model's order.

use crate::aim::Aimed;
use crate::error::Error;
use crate::input::Input;
use crate::settings::Aim;
use squall_core::TaskId;
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
    pub fn usual(aim: Aim) -> Channels {
        if aim == Aim::Cpu { Channels::Last } else { Channels::First }
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
    /// store are fastest together, by an exact choice; as it is where the store knows no better.
    pub fn with_fastest_layout(self, store: &Store, aimed: &Aimed) -> Result<Input, Error> {
        if self.graph.is_none() {
            return Ok(self);
        }
        // Of each task the record that it would get: the nearest, then the fastest.
        let mut known: HashMap<TaskId, ((u8, bool), f64)> = HashMap::new();
        for r in store.best(&Query::default())? {
            let Some(time) = r.outcome.time() else { continue };
            let mine = (aimed.far(&r), time.0);
            let held = known.entry(r.task).or_insert(mine);
            if mine.0.cmp(&held.0).then(mine.1.total_cmp(&held.1)).is_lt() {
                *held = mine;
            }
        }
        let time = |&((distance, other_tools), ns): &((u8, bool), f64)| {
            if distance < 2 && !other_tools { ns } else { ELSEWHERE + ns }
        };
        Ok(self.solved(FASTEST_LAYOUTS, &|id| known.get(&id).map(time)))
    }
}
