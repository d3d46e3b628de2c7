//! The decision of a run-off of covers, as the store keeps it. A cover is a set of kernels that
//! together compute a model; `cover_runoff.rs` times whole networks to find the best. Its winner is
//! a record of the tunable `cover`, whose configuration `kernels=..` lists the kernels;
//! `Input::by_decision` applies the record when the model is read for the same device and
//! precision.

use crate::base::error::Error;
use crate::base::recorder::RecordedTask;
use crate::input::precision::Precision;
use crate::input::user_input::ModelInput;
use crate::target::target_context::TargetContext;
use squall_core::graph::Model;
use squall_core::{Objective, TaskId};
use squall_graph::Assignment;
use squall_graph::FusionCandidate;
use squall_graph::rules::is_for_costs;
use squall_records::{Name, Query, Store};

/// The tunable of records of covers, and the key of its configurations.
const COVER: &str = "cover";
const KERNELS: &str = "kernels=";

/// The task under which covers of a model are recorded, in a precision. Its id is a digest of the
/// model's text.
pub(crate) fn recorded_as(model: &Model, name: &str, precision: Precision) -> RecordedTask {
    let digest = blake3::hash(model.to_string().as_bytes()).to_hex();
    let (of, mut name) = (&digest[..32], format!("cover_of_{name}"));
    let mut workload = format!("cover of the model {of}");
    if precision != Precision::F32 {
        workload += &format!(" in {}", precision.name());
        name += &format!("_{}", precision.name());
    }
    let id = TaskId::of_text(&workload, Objective::Time);
    RecordedTask { id, name, workload }
}

/// Whether a record is of a cover and not of a kernel.
pub(crate) fn is_cover(workload: &str) -> bool {
    workload.starts_with("cover of the model ")
}

/// The candidate kernels that greedy fusion never takes and only a comparison of costs chooses.
pub(crate) fn for_costs(graph: &Assignment) -> impl Iterator<Item = &FusionCandidate> {
    graph.candidates().list.iter().filter(|c| is_for_costs(c))
}

impl ModelInput {
    /// The same model by the kernels that a run-off of covers chose on this device in the model's
    /// precision, if one did, all in the model's layout and not yet in that precision.
    pub(crate) fn by_decision(
        self,
        store: &Store,
        at: &TargetContext,
    ) -> Result<ModelInput, Error> {
        let graph = &self.graph;
        if for_costs(graph).next().is_none() {
            return Ok(self);
        }
        let task = recorded_as(graph.model(), "", self.precision).id;
        let found = store.serving(&Query::task(task), &at.place)?;
        let line = found.into_iter().find(|(near, _)| near.is_here()).map(|(_, r)| r.configuration);
        // A line that a build with other rules wrote fits no longer: greedy fusion stays.
        let made = line.and_then(|l| graph.covered_by(l.strip_prefix(KERNELS)?).ok());
        Ok(match made {
            Some(graph) => self.with_graph(graph),
            None => self,
        })
    }
}

/// The candidate that a cover is in records.
pub(crate) fn name(graph: &Assignment) -> Name {
    (COVER.into(), format!("{KERNELS}{}", graph.cover_line()))
}
