//! The verb behind `squall bench`: builds a model's network from the store's kernels and times
//! whole inferences, in turns with other libraries where asked. Input: a [`BenchRequest`]; output:
//! [`Benched`], with times, layers, outputs, and the machine's roof, from which the bounds of steps
//! that run as plain C are computed. `timing.rs` does the timing.

use crate::base::error::Error;
use crate::inference::network::{Network, Times};
use crate::inference::network_request::NetworkRequest;
use crate::inference::peers::Library;
use crate::inference::ranged::extents;
use crate::inference::run::{leave_wishes, network};
use crate::inference::timed::Inference;
use crate::inference::timing::{Timed, time_beside};
use crate::input::arrays::{ArrayFile, NamedArray};
use crate::target::roof::Roof;
use crate::target::target_context::Context;
use crate::task::event::{Event, Listen};

/// A model to time.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRequest {
    /// The model.
    pub network: NetworkRequest,
    /// Its inputs; the others are random, the same in every run.
    pub inputs: Vec<ArrayFile>,
    /// For how long inferences are repeated.
    pub seconds: f64,
    /// The libraries that run the same model in turns with ours, each for as long.
    pub beside: Vec<Library>,
}

/// A model that was timed.
pub struct Benched {
    /// The network that was timed.
    pub network: Network,
    /// All outputs by name.
    pub outputs: Vec<NamedArray>,
    /// Ours, layer by layer.
    pub times: Times,
    /// Whole inferences, with those of other libraries.
    pub inference: Inference,
    /// The machine's measured peak and bandwidths, where some step runs as plain C and they could
    /// be measured.
    pub roof: Option<Roof>,
}

/// Builds a model and times whole inferences of it.
pub fn bench(
    context: &Context,
    request: &BenchRequest,
    listen: &mut Listen<'_>,
) -> Result<Benched, Error> {
    let wanted = &request.network;
    if !wanted.target.is_cpu() && !request.beside.is_empty() {
        return Err(Error::Usage {
            message: "other libraries are timed on the CPU only".into(),
            hint: "leave --beside out, or say `--target cpu`".into(),
        });
    }
    if let Some(crowding) = context.crowding(wanted.target, wanted.threads)? {
        listen(Event::Trouble(crowding));
    }
    let done = bench_untold(context, request, listen)?;
    let roof = roof(context, wanted, &done.inference, listen);
    Ok(Benched { roof, ..done })
}

/// The machine's roof, measured where some step runs as plain C. Times are of use without it, so a
/// roof that cannot be measured is a note and no error.
fn roof(
    context: &Context,
    wanted: &NetworkRequest,
    inference: &Inference,
    listen: &mut Listen<'_>,
) -> Option<Roof> {
    if inference.plain.is_empty() {
        return None;
    }
    match context.target(wanted.target, wanted.threads).and_then(|at| at.roof()) {
        Ok(roof) => Some(roof),
        Err(e) => {
            listen(Event::Note(format!("plain C has no bounds, since the roof is not known: {e}")));
            None
        }
    }
}

/// Builds and times a model as `bench` does, without the warning of threads that share cores and
/// without the roof: `tune` has both itself.
pub(crate) fn bench_untold(
    context: &Context,
    request: &BenchRequest,
    listen: &mut Listen<'_>,
) -> Result<Benched, Error> {
    let wanted = &request.network;
    let (network, mut inputs) = network(context, wanted, &request.inputs, listen)?;
    let shown = wanted.input.at(&extents(wanted, network.inputs())?);
    let input = shown.load_given(wanted.target, &inputs)?;
    inputs.extend(network.random_inputs(&inputs));
    let (seconds, libraries) = (request.seconds, &request.beside);
    let model = Timed { input: &input, network: &network, inputs: &inputs };
    let (outputs, times, inference) =
        time_beside(&model, seconds, libraries, wanted.threads, listen)?;
    leave_wishes(context, wanted, &network, &times.layers, times.inferences)?;
    for note in inference.notes() {
        listen(Event::Note(note));
    }
    Ok(Benched { network, outputs, times, inference, roof: None })
}
