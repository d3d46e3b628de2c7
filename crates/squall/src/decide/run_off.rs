//! The verb that lets close kernels of a model meet in place: it runs whole networks of the winners
//! and of their closest rivals in turns and records which kernel is faster between its neighbours
//! (`crate::network_runoff`). `squall tune` does this at the end of a model's budget.

use crate::base::error::Error;
use crate::decide::network_runoff::{NetworkRunOff, Settled};
use crate::inference::network_request::NetworkRequest;
use crate::target::target_context::Context;
use crate::task::event::Listen;
use squall_records::Store;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A network whose close kernels are compared in place.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOffRequest {
    /// The network; its store takes the results.
    pub network: NetworkRequest,
    /// The seconds after which nothing more is run; undecided tasks keep their winners.
    pub seconds: f64,
}

/// Lets each task's winner and the candidates that come close to it run in turns in the whole
/// network, and keeps in the store which of them is faster there; nothing where the store has no
/// close candidates.
///
/// # Errors
/// Where there is no store, the model cannot be run, or the target has no times.
pub fn run_off(
    context: &Context,
    request: &RunOffRequest,
    stop: &AtomicBool,
    listen: &mut Listen<'_>,
) -> Result<Option<Settled>, Error> {
    let NetworkRequest { input, store, guess, target, threads, .. } = &request.network;
    let Some(path) = store else {
        return Err(Error::Usage {
            message: "kernels come close to each other in a store, and none is named".into(),
            hint: "name the store of a tuning".into(),
        });
    };
    if request.seconds.is_nan() || request.seconds <= 0.0 {
        return Ok(None);
    }
    let end = Instant::now() + Duration::from_secs_f64(request.seconds.min(1e8));
    let at = &context.target(*target, *threads)?;
    if !at.is_timed() {
        return Ok(None);
    }
    let store = &Store::open(path)?;
    let input = &input.load_tuned(context, Some(store), *target, *threads)?;
    let settled = NetworkRunOff { input, guess, store, at, end, stop }.hold(listen)?;
    store.confirm_all()?;
    Ok(settled)
}
