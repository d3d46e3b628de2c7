//! A tuning as all its parts see it: what was asked for, the input as it is tuned, the store, the
//! device, what ends it and who listens, each resolved once.

use crate::base::error::Error;
use crate::inference::network_request::NetworkRequest;
use crate::input::user_input::{Input, InputKind};
use crate::target::target_context::{Context, TargetContext};
use crate::task::event::{Event, Listen};
use crate::tuning::settings::{Budget, BudgetRequest};
use crate::tuning::shard::Work;
use crate::tuning::tune_request::{InferenceRequest, TuneRequest};
use squall_records::Store;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A tuning, with all that was asked for resolved.
pub(crate) struct Tuning<'a> {
    pub context: &'a Context,
    pub request: &'a TuneRequest,
    /// The input; a model by the kernels that hold it by what the store said when tuning began.
    pub input: Input,
    pub store: Store,
    /// The device, with caches as they are asked for.
    pub at: TargetContext,
    /// What is to be done with the whole network at the end, where the input is a model that is
    /// tuned as a whole and here.
    pub whole: Option<&'a InferenceRequest>,
    /// Ends it once it is set.
    pub stop: &'a AtomicBool,
    pub began: Instant,
    /// All parts say what they do through it, one at a time.
    listen: RefCell<&'a mut Listen<'a>>,
}

impl<'a> Tuning<'a> {
    /// Reads the input, looks at the device and opens the store.
    pub fn open(
        context: &'a Context,
        request: &'a TuneRequest,
        stop: &'a AtomicBool,
        listen: &'a mut Listen<'a>,
    ) -> Result<Tuning<'a>, Error> {
        let began = Instant::now();
        let mut input = request.input.load(request.target)?;
        input.own_precision_note().into_iter().for_each(|text| listen(Event::Note(text)));
        if let (Some(judge), Input::Kernels(kernels)) = (&request.judge, &mut input) {
            let own = std::mem::take(&mut kernels.own).into_iter();
            kernels.own = own.map(|k| k.judged(judge.clone())).collect();
        }
        for k in input.own().iter().filter(|k| k.restored.0 > 0) {
            listen(Event::Note(format!(
                "{} writes over its input: a fresh copy of {} is part of each timed call",
                k.task.name, k.restored
            )));
        }
        let at = context.target(request.target, request.threads)?.with_caches(request.caches);
        if let Some(crowding) = context.crowding(request.target, request.threads)? {
            listen(Event::Trouble(crowding));
        }
        let store = Store::open(&request.store)?;
        if request.input.is_cover_open() {
            input =
                input.try_model(|m| m.by_decision(&store, &at)?.in_usual_form(request.target))?;
        }
        let is_model = input.kind() == InputKind::Model;
        let whole = request.whole_network(context).filter(|_| is_model);
        let listen = RefCell::new(listen);
        Ok(Tuning { context, request, input, store, at, whole, stop, began, listen })
    }

    /// Lets something be known.
    pub fn say(&self, event: Event<'_>) {
        let mut listener = self.listen.borrow_mut();
        let listen: &mut Listen<'_> = &mut **listener;
        listen(event);
    }

    /// Whether the user ended it.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The tasks that are asked for and what may be spent on them; a shard's part of both.
    pub fn work(&self, budget: BudgetRequest) -> Result<Work<'_>, Error> {
        let tasks = self.input.select(self.request.only.as_deref())?;
        let budget = Budget::of(budget, self.input.kind());
        Ok(match self.request.shard {
            Some(shard) => shard.part(&tasks, budget),
            None => Work::whole(tasks, budget),
        })
    }

    /// The network that the store's kernels make.
    pub fn network(&self, wanted: &InferenceRequest) -> NetworkRequest {
        let request = self.request;
        NetworkRequest {
            input: request.input.clone(),
            store: Some(request.store.clone()),
            guess: wanted.guess.clone(),
            target: request.target,
            threads: request.threads,
            keep: None,
        }
    }
}
