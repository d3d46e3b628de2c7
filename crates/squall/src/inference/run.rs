//! The verb behind `squall run`: builds a whole model as one program from the kernels that serve
//! its tasks and runs it on input files. Input: a [`RunRequest`]; output: [`Ran`], with the outputs
//! and the kernels' origins. `network_for` is also how `bench`, `check` and `export --network` get
//! their network.

use crate::base::error::Error;
use crate::inference::network::{Layer, Network, Packing, accepts};
use crate::inference::network_request::{NetworkRequest, signature};
use crate::inference::ranged::{moved, varying};
use crate::inference::wishes::{leave, seconds_of, wishes_of};
use crate::input::arrays::{ArrayFile, NamedArray, named, read_array, write_array};
use crate::predict::choose::{Chosen, Origin, kernels_of};
use crate::predict::counts::KernelCounts;
use crate::predict::guess::GuessSource;
use crate::predict::locked::refuse_misses;
use crate::target::target_context::Context;
use crate::task::event::{Event, Listen};
use squall_core::Task;
use squall_records::Store;

/// A model run once.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRequest {
    /// The model.
    pub network: NetworkRequest,
    /// Its inputs: .npy files, or .pb files in ONNX's own form.
    pub inputs: Vec<ArrayFile>,
    /// Where its outputs are written: .npy files.
    pub outputs: Vec<ArrayFile>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Ran {
    /// The network, which can be run again.
    pub network: Network,
    /// All outputs by name.
    pub outputs: Vec<NamedArray>,
    /// The steps, with the time that each took in this one run.
    pub layers: Vec<Layer>,
}

/// Says which kernels were never tuned, and how they were chosen.
fn say_untuned(kernels: &[Chosen], listen: &mut Listen<'_>) {
    let counts = KernelCounts::of(kernels);
    let by = |from: GuessSource| {
        let is_from = |k: &&Chosen| matches!(k.origin, Origin::Guessed(_, f) if f == from);
        let n = kernels.iter().filter(is_from).count();
        (n > 0).then(|| format!("{n} {}", from.describe()))
    };
    if counts.guessed > 0 {
        let by: Vec<String> = GuessSource::ALL.iter().filter_map(|f| by(*f)).collect();
        listen(Event::Note(format!(
            "{} of {} kernels were never tuned and are guessed: {}",
            counts.guessed,
            counts.kernels,
            by.join(", ")
        )));
    }
    if counts.plain > 0 {
        let text = format!("{} of {} kernels are plain loops", counts.plain, counts.kernels);
        listen(Event::Note(text));
    }
}

/// The arrays of a model's inputs by name.
pub(crate) fn given(
    request: &NetworkRequest,
    files: &[ArrayFile],
) -> Result<Vec<NamedArray>, Error> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let signature = signature(request)?;
    let inputs: Vec<String> = signature.inputs.iter().map(|i| i.name.clone()).collect();
    let all = [&inputs[..], &signature.initializers].concat();
    let list = named(files, &all, &inputs, "input", &request.input.source)?;
    list.into_iter().map(|(name, path)| Ok((name, read_array(&path)?))).collect()
}

/// Builds a model for inputs of its, and says what its kernels and weights are.
pub(crate) fn network_for(
    context: &Context,
    request: &NetworkRequest,
    given: &[NamedArray],
    listen: &mut Listen<'_>,
) -> Result<Network, Error> {
    network_packing(context, request, given, Packing::Ahead, listen)
}

/// Builds a model whose sources are exported.
pub(crate) fn network_to_export(
    context: &Context,
    request: &NetworkRequest,
    listen: &mut Listen<'_>,
) -> Result<Network, Error> {
    network_packing(context, request, &[], Packing::InCalls, listen)
}

fn network_packing(
    context: &Context,
    request: &NetworkRequest,
    given: &[NamedArray],
    packing: Packing,
    listen: &mut Listen<'_>,
) -> Result<Network, Error> {
    if !request.input.ranges.is_empty() {
        return network_in_range(context, request, given, listen);
    }
    let store = request.store.as_ref().map(Store::open_read_only).transpose()?;
    let (target, threads) = (request.target, request.threads);
    let input = &request.input;
    let model = input.load_tuned_given(context, store.as_ref(), target, threads, given)?;
    accepts(&model, given)?;
    model.own_precision_note().into_iter().for_each(|text| listen(Event::Note(text)));
    let at = context.target(target, threads)?;
    if request.guess.locked {
        let tasks: Vec<&Task> = model.tasks().iter().collect();
        refuse_misses(input, &tasks, &[], store.as_ref(), &at)?;
    }
    let keep = request.keep.as_deref();
    let mut network = Network::build_packing(&model, keep, &at, packing, &mut |tasks| {
        kernels_of(&request.guess, tasks, store.as_ref(), &at, listen)
    })?;
    if let Some(kept) = context.kept_weights().filter(|_| request.keep.is_none()) {
        network.keep_weights(&kept);
    }
    say_of(&network, listen);
    Ok(network)
}

/// Builds a model over its range, and goes to the extent that the arrays have.
fn network_in_range(
    context: &Context,
    request: &NetworkRequest,
    given: &[NamedArray],
    listen: &mut Listen<'_>,
) -> Result<Network, Error> {
    let mut varying = varying(context, request, Packing::Ahead, listen)?;
    let shapes: Vec<(String, Vec<i64>)> =
        given.iter().map(|(n, a)| (n.clone(), a.shape.clone())).collect();
    moved(context, request, &mut varying, &shapes)?;
    say_of(&varying.network, listen);
    Ok(varying.network)
}

/// Says what a network's kernels and weights are.
pub(crate) fn say_of(network: &Network, listen: &mut Listen<'_>) {
    say_untuned(network.kernels(), listen);
    for text in network.fallbacks() {
        listen(Event::Trouble(text.clone()));
    }
    if let [first, rest @ ..] = network.bound() {
        let more: String = rest.iter().map(|(n, _)| format!(", `{n}`")).collect();
        listen(Event::Note(format!(
            "shapes depend on the values of `{}`{more}: the network is for these values only",
            first.0
        )));
    }
    if let [first, ..] = network.random_weights() {
        let n = network.random_weights().len();
        listen(Event::Trouble(format!(
            "{n} weights are not in the file, for instance `{first}`: they are random"
        )));
    }
}

/// Builds a model for the inputs of these files, and says what its kernels and weights are; gives
/// the arrays by name. Inputs without a file are left to the caller
/// ([`Network::random_inputs`]).
pub fn network(
    context: &Context,
    request: &NetworkRequest,
    files: &[ArrayFile],
    listen: &mut Listen<'_>,
) -> Result<(Network, Vec<NamedArray>), Error> {
    let given = given(request, files)?;
    Ok((network_for(context, request, &given, listen)?, given))
}

/// Writes outputs into the files that are asked for.
pub fn write_outputs(
    network: &Network,
    model: &str,
    outputs: &[NamedArray],
    files: &[ArrayFile],
) -> Result<(), Error> {
    let names: Vec<String> = network.outputs().iter().map(|o| o.name.clone()).collect();
    for (name, path) in named(files, &names, &names, "output", model)? {
        if let Some((_, array)) = outputs.iter().find(|(n, _)| *n == name) {
            write_array(&path, array)?;
        }
    }
    Ok(())
}

/// Runs a model on inputs and writes its outputs.
pub fn run(context: &Context, request: &RunRequest, listen: &mut Listen<'_>) -> Result<Ran, Error> {
    // Names that are none are found before anything is built.
    let outputs = signature(&request.network)?.outputs;
    let source = &request.network.input.source;
    named(&request.outputs, &outputs, &outputs, "output", source)?;
    let soon = request.network.soon();
    let (network, given) = network(context, &soon, &request.inputs, listen)?;
    let (outputs, layers) = network.run(&given)?;
    leave_wishes(context, &request.network, &network, &layers, 1)?;
    write_outputs(&network, source, &outputs, &request.outputs)?;
    Ok(Ran { network, outputs, layers })
}

/// Leaves a wish in the store for each kernel that was not tuned, with the time that so many
/// inferences of these steps took.
pub(crate) fn leave_wishes(
    context: &Context,
    request: &NetworkRequest,
    network: &Network,
    layers: &[Layer],
    inferences: u64,
) -> Result<(), Error> {
    let at = context.target(request.target, request.threads)?;
    let seconds = seconds_of(layers, inferences);
    let wishes = wishes_of(network.kernels(), &at, inferences.max(1), &seconds);
    leave(request.store.as_deref(), &wishes, &at);
    Ok(())
}
