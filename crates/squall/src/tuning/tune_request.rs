//! What tuning is asked for, as plain data: an input, a store, a budget, and how it is spent. The
//! verb `tune` and a session read it.

use crate::inference::peers::Library;
use crate::input::input_request::InputRequest;
use crate::predict::guess::GuessRequest;
use crate::target::target_context::Context;
use crate::target::target_request::TargetRequest;
use crate::tuning::session_context::SessionRequest;
use crate::tuning::settings::BudgetRequest;
use crate::tuning::shard::Shard;
use squall_core::{Caches, Judge};
use std::path::PathBuf;

/// What to tune, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct TuneRequest {
    /// What to tune.
    pub input: InputRequest,
    /// Where trials are kept, and what is known is found.
    pub store: PathBuf,
    /// How much may be spent.
    pub budget: BudgetRequest,
    /// What kernels are tuned for.
    pub target: TargetRequest,
    /// Threads that a kernel may use; of no meaning on a GPU.
    pub threads: usize,
    /// What the caches hold when a call is timed.
    pub caches: Caches,
    /// Of everything random.
    pub seed: u64,
    /// The strategy's name; the first of [`squall_search::strategies`] if none.
    pub strategy: Option<String>,
    /// Only tasks whose name or id matches.
    pub only: Option<String>,
    /// Only this process's part of them and of the budget, where several tune together.
    pub shard: Option<Shard>,
    /// Only sketches whose name matches, where any does.
    pub sketch: Option<String>,
    /// Whether the winners of similar tasks are tried first, and what the general predictor ranks
    /// first.
    pub transfer: bool,
    /// A predictor trained on records, whose candidates are each task's first trials.
    pub predictor: Option<PathBuf>,
    /// Whether the machine's roof is measured first (half a second).
    pub roof: bool,
    /// How a model's close kernels meet in the whole network at the end, if they shall, and on a
    /// CPU how it is timed then.
    pub inference: Option<InferenceRequest>,
    /// What says whether the results of kernels of one's own are right, in place of a comparison.
    pub judge: Option<Judge>,
}

impl TuneRequest {
    /// What is to be done with the whole network at the end: it takes all tasks, and a device of
    /// this machine.
    pub(crate) fn whole_network(&self, context: &Context) -> Option<&InferenceRequest> {
        let is_whole = self.only.is_none() && self.shard.is_none() && context.is_here();
        self.inference.as_ref().filter(|_| is_whole)
    }

    /// How the sessions that it asks for search.
    pub(crate) fn session(&self) -> SessionRequest<'_> {
        SessionRequest {
            seed: self.seed,
            threads: self.threads,
            strategy: self.strategy.as_deref(),
            sketch: self.sketch.as_deref(),
            transfer: self.transfer,
            predictor: self.predictor.as_deref(),
            roof: self.roof,
        }
    }
}

/// How a tuned model is timed as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferenceRequest {
    /// How kernels that no trial was made of are chosen.
    pub guess: GuessRequest,
    /// The libraries whose times are put next to ours.
    pub beside: Vec<Library>,
}

impl TuneRequest {
    /// A request with one thread, seed 0 and all else as usual.
    pub fn new(
        input: InputRequest,
        store: impl Into<PathBuf>,
        budget: BudgetRequest,
    ) -> TuneRequest {
        TuneRequest {
            input,
            store: store.into(),
            budget,
            target: TargetRequest::Cpu,
            threads: 1,
            caches: Caches::Warm,
            seed: 0,
            strategy: None,
            only: None,
            shard: None,
            sketch: None,
            transfer: true,
            predictor: None,
            roof: true,
            inference: Some(InferenceRequest::default()),
            judge: None,
        }
    }
}
