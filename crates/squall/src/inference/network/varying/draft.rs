//! A network that is planned at one extent of a symbol, and not built. Input: the model at this
//! extent and kernels of its tasks; output: a [`Draft`] with the plan as it would be written.

use super::super::files::{self, Places};
use super::super::layout::FileLayout;
use super::super::plain::PlainOperators;
use super::super::values::ends;
use super::super::{NetworkValue, Packing, UNTUNED_HINT, fault, name_remade, untasked};
use crate::base::error::Error;
use crate::input::user_input::ModelInput;
use crate::input::weights::{Place, weights_but};
use crate::predict::choose::Chosen;
use crate::target::target_context::TargetContext;
use squall_graph::plan::Plan;
use std::collections::HashSet;

/// A network at one extent.
pub struct Draft {
    /// The extent.
    pub extent: i64,
    /// The inputs and the outputs.
    pub ends: [Vec<NetworkValue>; 2],
    /// The plan.
    pub plan: Plan,
    /// Weights that stay in their files.
    pub places: Vec<Place>,
    /// Plain operators.
    pub plain: PlainOperators,
}

impl Draft {
    /// Plans a model at an extent.
    pub fn of(
        extent: i64,
        model: &ModelInput,
        packing: Packing,
        at: &TargetContext,
    ) -> Result<Draft, Error> {
        let graph = &model.graph;
        let fail = |why: String| fault(model, why, UNTUNED_HINT);
        let ends = ends(graph).map_err(fail)?;
        let mut stay =
            if model.remade.is_empty() { graph.read_by_kernels_alone() } else { HashSet::new() };
        model.bound.iter().for_each(|(name, _)| _ = stay.remove(name));
        let read = weights_but(model, &stay)?;
        let mut plan = graph.plan_over_range(read.weights, &read.placed).map_err(fail)?;
        name_remade(&mut plan, model);
        let plain = untasked(&plan, at, packing).map_err(fail)?;
        Ok(Draft { extent, ends, plan, places: read.places, plain })
    }

    /// The plan as it is written, with kernels for its tasks and addresses of a layout.
    pub fn described<'a>(
        &'a self,
        places: &'a Places<'a>,
        layout: &'a FileLayout,
        kernels: &'a [Chosen],
    ) -> Result<files::Described<'a>, Error> {
        files::describe(&self.plan, places, layout, kernels, &self.plain)
    }
}
