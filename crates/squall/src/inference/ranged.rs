//! Networks over ranges of extents, as `run`, `bench` and `export` ask for them. Input: a
//! [`NetworkRequest`] whose input has a range; output: a [`VaryingNetwork`], or the network at the
//! extent that arrays have.

use crate::base::error::Error;
use crate::inference::network::varying::{RangeRequest, VaryingNetwork};
use crate::inference::network::{NetworkValue, Packing};
use crate::inference::network_request::{NetworkRequest, signature};
use crate::input::input_request::{InputRequest, chosen_at};
use crate::input::user_input::ModelInput;
use crate::predict::choose::kernels_of;
use crate::predict::general::Predictors;
use crate::target::target_context::Context;
use crate::task::event::Listen;
use squall_frontend::onnx::Extent;
use squall_graph::Assignment;
use squall_records::Store;
use squall_runtime::varying::Symbol;

/// The symbol of a request's range; more than one is refused.
fn symbol(request: &NetworkRequest) -> Result<&Symbol, Error> {
    match &request.input.ranges[..] {
        [one] => Ok(one),
        all => Err(Error::Usage {
            message: format!("{} dimensions are ranges", all.len()),
            hint: "one dimension may be a range; give the others one extent".into(),
        }),
    }
}

/// The model as it is tuned at the extent where kernels are chosen.
fn base(
    context: &Context,
    request: &NetworkRequest,
    store: Option<&Store>,
) -> Result<ModelInput, Error> {
    let input = request.input.at(&[chosen_at(symbol(request)?)]);
    let loaded = input.load_tuned_given(context, store, request.target, request.threads, &[])?;
    loaded.model_or("it is no model that can be run").cloned()
}

/// The model at one extent of the range, covered by the kernels of `base`; as it is usually covered
/// where it has no such kernels, as where a constant is small enough to be folded.
fn model_at(request: &NetworkRequest, base: &Assignment, extent: i64) -> Result<ModelInput, Error> {
    let usual =
        InputRequest { assignment: None, cover: None, channels: None, ..request.input.clone() };
    let loaded = usual.at(&[extent]).load_given(request.target, &[])?;
    let model = loaded.model_or("it is no model that can be run")?;
    let model = model.clone();
    Ok(match model.graph.like(base) {
        Ok(graph) => model.with_graph(graph),
        Err(_) => model,
    })
}

/// Builds a network over the range of a request.
pub(crate) fn varying(
    context: &Context,
    request: &NetworkRequest,
    packing: Packing,
    listen: &mut Listen<'_>,
) -> Result<VaryingNetwork, Error> {
    let symbol = symbol(request)?;
    let store = request.store.as_ref().map(Store::open_read_only).transpose()?;
    let at = context.target(request.target, request.threads)?;
    let base = base(context, request, store.as_ref())?;
    let graph = base.graph.clone();
    let mut model = |extent| model_at(request, &graph, extent);
    let general = Predictors::of(request.guess.predictor.as_deref())?.general;
    let range = RangeRequest { symbol, at: &at, packing, general };
    VaryingNetwork::build(&range, base, &mut model, &mut |tasks| {
        kernels_of(&request.guess, tasks, store.as_ref(), &at, listen)
    })
}

/// Moves a network over a range to the extent that some tensors have, or to its largest one.
pub(crate) fn moved(
    context: &Context,
    request: &NetworkRequest,
    varying: &mut VaryingNetwork,
    tensors: &[(String, Vec<i64>)],
) -> Result<(), Error> {
    let extent = extent_of(request, tensors)?;
    let store = request.store.as_ref().map(Store::open_read_only).transpose()?;
    let at = context.target(request.target, request.threads)?;
    let base = base(context, request, store.as_ref())?;
    let model = model_at(request, &base.graph, extent)?;
    varying.moved_to(extent, &model, Packing::Ahead, &at).map(drop)
}

/// The extent of the request's symbol in tensors by name and shape; the largest where none has it.
fn extent_of(request: &NetworkRequest, tensors: &[(String, Vec<i64>)]) -> Result<i64, Error> {
    let symbol = symbol(request)?;
    for input in signature(request)?.inputs {
        let Some((_, shape)) = tensors.iter().find(|(n, _)| *n == input.name) else { continue };
        let extents = input.extents.unwrap_or_default();
        let found = extents
            .iter()
            .zip(shape)
            .find(|(e, _)| matches!(e, Extent::Open(name) if *name == symbol.name));
        let Some((_, n)) = found else { continue };
        if !symbol.holds(*n) {
            return Err(Error::Input {
                place: format!("input `{}`", input.name),
                message: format!("{} is {n}; it may be {symbol}", symbol.name),
                hint: format!("give another array, or --dim {}=LEAST..MOST", symbol.name),
            });
        }
        return Ok(*n);
    }
    Ok(symbol.last())
}

/// The shapes of a network's inputs by name.
pub(crate) fn shapes(inputs: &[NetworkValue]) -> Vec<(String, Vec<i64>)> {
    inputs.iter().map(|v| (v.name.clone(), v.shape.clone())).collect()
}

/// The extents of a request's ranges in tensors, for [`crate::InputRequest::at`].
pub(crate) fn extents(
    request: &NetworkRequest,
    inputs: &[NetworkValue],
) -> Result<Vec<i64>, Error> {
    if request.input.ranges.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![extent_of(request, &shapes(inputs))?])
}
