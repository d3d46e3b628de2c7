//! Running: a model as a whole, through the kernels that serve its tasks.

use crate::check::{Checked, read_array};
use crate::error::Error;
use crate::event::{Event, Listen};
use crate::export::{Chosen, GuessRequest, GuessSource, Guesser, KernelCounts, Origin, choose};
use crate::network::{Network, accepts, write_array};
use crate::request::InputRequest;
use crate::settings::TargetRequest;
use crate::target_context::{Context, TargetContext};
use squall_core::Task;
use squall_frontend::npy::Array;
use squall_records::Store;
use std::path::PathBuf;

/// A model and what it is run with.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkRequest {
    /// The model.
    pub input: InputRequest,
    /// The store whose kernels are used, if any.
    pub store: Option<PathBuf>,
    /// How kernels that were never tuned are chosen.
    pub guess: GuessRequest,
    /// What it is run on.
    pub target: TargetRequest,
    /// Threads that a kernel may use.
    pub threads: usize,
    /// A folder for the program that runs it; what did not change there is not compiled again.
    pub keep: Option<PathBuf>,
}

/// A model run once.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRequest {
    /// The model.
    pub network: NetworkRequest,
    /// What it is given: a .npy file of float32.
    pub x: PathBuf,
    /// Where its first output is written: a .npy file of float32.
    pub output: PathBuf,
}

/// A model held against known output, layer by layer.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckRequest {
    /// The model; nothing of it is kept.
    pub network: NetworkRequest,
    /// What it is given: a .npy file of float32.
    pub x: PathBuf,
    /// What it must give: a .npy file of float32.
    pub expected: PathBuf,
    /// How far elements may be off, by their size.
    pub tolerance: f64,
}

impl NetworkRequest {
    /// Refuses GPUs, on which whole models are not run.
    fn only_cpu(&self) -> Result<(), Error> {
        match self.target {
            TargetRequest::Cpu => Ok(()),
            _ => Err(Error::Usage {
                message: "whole models are run on the CPU only".into(),
                hint: "`squall tune` and `squall export` make their kernels for a GPU; here say \
                       `--target cpu`"
                    .into(),
            }),
        }
    }
}

/// The kernels of a model's tasks.
fn kernels(
    request: &NetworkRequest,
    tasks: &[&Task],
    store: Option<&Store>,
    at: &TargetContext,
    listen: &mut Listen<'_>,
) -> Result<Vec<Chosen>, Error> {
    let mut guesser = Guesser::new(&request.guess, tasks, store, at, listen)?;
    choose(tasks, &[], store, &mut guesser)
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

/// Builds a model for an input of its, and says what its kernels and weights are.
pub fn network(
    context: &Context,
    request: &NetworkRequest,
    x: Option<&Array>,
    listen: &mut Listen<'_>,
) -> Result<Network, Error> {
    request.only_cpu()?;
    let store = request.store.as_ref().map(Store::open_read_only).transpose()?;
    let (target, threads) = (request.target, request.threads);
    let model = request.input.load_tuned(context, store.as_ref(), target, threads)?;
    x.map_or(Ok(()), |x| accepts(&model, x))?;
    let at = context.target(target, threads)?;
    let network = Network::build(&model, request.keep.as_deref(), &at, &mut |tasks| {
        kernels(request, tasks, store.as_ref(), &at, listen)
    })?;
    say_untuned(network.kernels(), listen);
    if let [first, ..] = network.random_weights() {
        let n = network.random_weights().len();
        listen(Event::Trouble(format!(
            "{n} weights are not in the file, for instance `{first}`: they are random"
        )));
    }
    Ok(network)
}

/// Runs a model on an input and writes its output; the network, and the output.
pub fn run(
    context: &Context,
    request: &RunRequest,
    listen: &mut Listen<'_>,
) -> Result<(Network, Array), Error> {
    request.network.only_cpu()?;
    let x = read_array(&request.x)?;
    let network = network(context, &request.network, Some(&x), listen)?;
    let y = network.run(&x)?;
    write_array(&request.output, &y)?;
    Ok((network, y))
}

/// Runs a model layer by layer through its kernels and compares what it gives.
pub fn check(
    context: &Context,
    request: &CheckRequest,
    listen: &mut Listen<'_>,
) -> Result<Checked, Error> {
    let network = &request.network;
    network.only_cpu()?;
    let (x, expected) = (read_array(&request.x)?, read_array(&request.expected)?);
    let store = network.store.as_ref().map(Store::open_read_only).transpose()?;
    let (target, threads) = (network.target, network.threads);
    let model = network.input.load_tuned(context, store.as_ref(), target, threads)?;
    let at = context.target(target, threads)?;
    let mut make = |tasks: &[&Task]| {
        let made = kernels(network, tasks, store.as_ref(), &at, listen)?;
        say_untuned(&made, listen);
        Ok(made)
    };
    crate::check::check(&model, &at, &mut make, (&x, &expected), request.tolerance)
}
