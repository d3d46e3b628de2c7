//! A session: phases on one device with one store, and the one report of what they found. The
//! measurer is open in phases alone, so that whole networks can be timed between them.

use crate::base::clock::now;
use crate::base::error::Error;
use crate::base::recorder::Recorder;
use crate::input::user_input::Input;
use crate::predict::general::Predictors;
use crate::target::roof::Roof;
use crate::target::target_context::TargetContext;
use crate::task::event::{Event, Listen};
use crate::task::task_kernels::TaskKernels;
use crate::task::task_state::TaskState;
use crate::task::trials::strategy;
use crate::tuning::phase::{OpenMeasurer, Phase, PhaseEnd, PhaseRequest};
use crate::tuning::report::{Report, StopReason, UntunedNode};
use crate::tuning::session_context::{SessionContext, SessionRequest};
use crate::tuning::task_search::Found;
use squall_core::Task;
use squall_frontend::UserKernel;
use squall_predict::{PredictError, Predictor};
use squall_records::Store;
use squall_search::{DEFAULT, strategies};
use std::sync::atomic::{AtomicBool, Ordering};

/// A session on one device with one store.
pub(crate) struct Session<'a> {
    context: SessionContext<'a>,
    /// What was opened with the session, until the first phase takes it.
    open: Option<OpenMeasurer>,
    roof: Option<Roof>,
    /// When it began, in seconds since 1970.
    started: f64,
    /// What the phases found, a task in the place where it was first found.
    found: Vec<Found>,
}

impl<'a> Session<'a> {
    /// Reads predictors, measures the roof where that is asked for, opens the measurer of the
    /// first phase and says what it is.
    pub fn open(
        request: SessionRequest<'a>,
        at: &'a TargetContext,
        store: &'a Store,
        stop: &'a AtomicBool,
        listen: &mut Listen<'_>,
    ) -> Result<Session<'a>, Error> {
        let started = now();
        // A file that is no predictor shows before the machine is measured.
        let Predictors { learned, general } = Predictors::of(request.predictor)?;
        let model = learned.as_ref().map(Predictor::tasks).transpose()?;
        // What other tasks teach is left out where that is asked for.
        let is_general_asked = request.transfer || request.predictor.is_some();
        let general = general.filter(|_| is_general_asked && model.is_none());
        let strategy = strategy(request.strategy.unwrap_or(DEFAULT), strategies())?;
        let open = OpenMeasurer::new(at, request.roof)?;
        let roof = open.roof.clone();
        let asked = at.device_name();
        listen(Event::Opened {
            device: &asked,
            toolchain: &at.place.toolchain,
            gpus: at.gpus.len(),
            roof: roof.as_ref(),
        });
        if let Some(learned) = model.map(|m| &m.facts().device).filter(|d| **d != asked) {
            return Err(PredictError::Device { learned: learned.clone(), asked }.into());
        }
        let recorder = Recorder { store, place: at.place.clone(), seed: request.seed };
        let context = SessionContext { request, at, recorder, stop, strategy, learned, general };
        Ok(Session { context, open: Some(open), roof, started, found: Vec::new() })
    }

    /// The machine's roof, where it was measured.
    pub fn roof(&self) -> Option<&Roof> {
        self.roof.as_ref()
    }

    /// Tunes some tasks until a budget ends. What is found adds to what earlier phases found.
    pub fn phase(
        &mut self,
        request: &PhaseRequest<'_>,
        listen: &mut Listen<'_>,
    ) -> Result<PhaseEnd, Error> {
        let open = match self.open.take() {
            Some(open) => open,
            None => OpenMeasurer::new(self.context.at, request.roof)?,
        };
        let phase = Phase::new(&self.context, request, open, listen)?;
        let (found, end) = phase.run(&request.work.tasks)?;
        // A kernel.toml may list a task twice; the first phase tells both.
        let is_first = self.found.is_empty();
        for later in found.into_iter().filter(|f| f.is_tried() || !request.only_tried) {
            match self.found.iter_mut().find(|f| !is_first && f.id() == later.id()) {
                Some(earlier) => earlier.add(later),
                None => self.found.push(later),
            }
        }
        Ok(end)
    }

    /// Adds what the store says of those of a model's tasks that no phase was given, and counts how
    /// often the model calls each task: those of which it is made, and no others.
    pub fn made_of(&mut self, tasks: &[Task]) -> Result<(), Error> {
        let stop = match self.context.stop.load(Ordering::Relaxed) {
            true => StopReason::Interrupted,
            false => StopReason::Trials,
        };
        for task in tasks {
            if !self.found.iter().any(|f| f.id() == task.id) {
                self.found.push(self.context.recall(task, self.roof.as_ref(), stop)?);
            }
        }
        for f in &mut self.found {
            let task = tasks.iter().find(|task| task.id == f.id());
            f.count(task.map_or(0, |task| task.count));
        }
        Ok(())
    }

    /// Names the candidates that hold tasks now: a whole network may have decided otherwise than
    /// trials.
    pub fn learn_winners(&mut self, tasks: &[Task], own: &[UserKernel]) -> Result<(), Error> {
        for f in &mut self.found {
            let Some(task) = tasks.iter().find(|task| task.id == f.id()) else { continue };
            let kernels = TaskKernels::new(task, own, &self.context.at.target)?;
            let mut state = TaskState::new(task, kernels);
            state.learn(self.context.known(task)?);
            f.hold(&state);
        }
        Ok(())
    }

    /// The report of all phases on an input; `seconds` have passed since the tuning began.
    pub fn report(self, input: &Input, stop: StopReason, seconds: f64) -> Report {
        let SessionContext { request, at, recorder, strategy, .. } = self.context;
        let untuned = input.untuned().iter().map(|u| UntunedNode {
            node: u.node.clone(),
            op: u.op.clone(),
            reason: u.reason.clone(),
        });
        Report {
            input: input.name().into(),
            threads: request.threads,
            strategy: strategy.name.into(),
            seed: request.seed,
            started: self.started,
            seconds,
            stop,
            store: recorder.store.path().to_path_buf(),
            tasks: self.found.into_iter().map(Found::report).collect(),
            untuned: untuned.collect(),
            device: at.device_name(),
            toolchain: at.place.toolchain.clone(),
            roof: self.roof,
            inference: None,
        }
    }
}
