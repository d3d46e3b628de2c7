//! The order of axes that a model's images have between its kernels. What the caller gives and gets
//! stays in the model's order.

use crate::aim::Aimed;
use crate::error::Error;
use crate::input::Input;
use squall_core::TaskId;
use squall_frontend::Layouts;
use squall_records::{Query, Store};

/// Where images between kernels have their channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// Before rows and columns, as in the model.
    First,
    /// After rows and columns, wherever kernels alone see the image.
    Last,
}

impl Channels {
    /// Both, with their spelling.
    pub const ALL: &'static [(Channels, &'static str)] = &[(Channels::First, "first"), (Channels::Last, "last")];
}

impl Input {
    /// The same input with its images so; single kernels stay as they are.
    pub fn with_channels(self, channels: Channels) -> Input {
        let Some(layouts) = self.graph.as_ref().map(|g| Layouts::new(g, &self.tasks)) else { return self };
        if channels == Channels::First || layouts.images() == 0 {
            return self;
        }
        let (graph, tasks) = layouts.lay_out(&vec![true; layouts.images()]);
        Input { graph: Some(graph), tasks, ..self }
    }

    /// The model with each image in the order for which the kernels that the store has for this device
    /// are fastest together, by an exact choice; as it is where the store knows no better.
    pub fn with_fastest_layout(&self, store: Option<&Store>, aimed: &Aimed) -> Result<Option<Input>, Error> {
        let (Some(graph), Some(store)) = (&self.graph, store) else { return Ok(None) };
        let layouts = Layouts::new(graph, &self.tasks);
        let query = Query { toolchain: Some(aimed.tools.clone()), ..Query::default() };
        let mut times: std::collections::HashMap<TaskId, f64> = std::collections::HashMap::new();
        for r in store.best(&query)? {
            if let Some(t) = r.outcome.time().filter(|_| aimed.distance(&r.device) < 2) {
                let time = times.entry(r.task).or_insert(f64::INFINITY);
                *time = time.min(t.0);
            }
        }
        let last = layouts.cheapest(&|id| times.get(&id).copied());
        if !last.contains(&true) {
            return Ok(None);
        }
        let (graph, tasks) = layouts.lay_out(&last);
        Ok(Some(Input {
            name: self.name.clone(),
            kind: self.kind,
            tasks,
            untuned: self.untuned.clone(),
            graph: Some(graph),
            path: self.path.clone(),
            own: Vec::new(),
        }))
    }
}
