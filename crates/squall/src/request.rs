//! The requests that the crate's functions take, as plain data: [`InputRequest`] (a model or
//! kernels), [`TuneRequest`] (an input, a store, a budget, a target) and [`InferenceRequest`]
//! (whole inferences to time). The command line and the Python package fill them in; `verbs/`
//! serves them.

use crate::arrays::NamedArray;
use crate::error::Error;
use crate::export::GuessRequest;
use crate::input::{Input, ReadFor};
use crate::layout::{Channels, CoverReport, times_here};
use crate::peers::Library;
use crate::precision::Precision;
use crate::settings::BudgetRequest;
use crate::shard::Shard;
use crate::target_context::Context;
use crate::target_request::TargetRequest;
use squall_core::{Caches, Judge};
use squall_graph::ranges::is_in_ranges;
use squall_graph::solvers::has_values_in_place;
use squall_records::Store;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A model or kernels, and how they are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputRequest {
    /// A model.onnx, a list.ops of operator lines, a kernel.toml, a file.workload, or one operator
    /// line.
    pub source: String,
    /// Extents of symbolic dimensions of a model.
    pub dims: Vec<(String, i64)>,
    /// Where images that only a model's kernels see have their channels; if none, Squall chooses.
    pub channels: Option<Channels>,
    /// A file that says which kernels a model is made of and in which layouts.
    pub assignment: Option<PathBuf>,
    /// The name of the solver that says it; see [`crate::layout::covers`].
    pub cover: Option<String>,
    /// In which format its kernels work. If none, on GPUs that in which a model's file computes,
    /// and else 32-bit floats.
    pub precision: Option<Precision>,
}

impl InputRequest {
    /// A source with nothing else said of it.
    pub fn new(source: impl Into<String>) -> InputRequest {
        InputRequest { source: source.into(), ..InputRequest::default() }
    }

    /// Reads it as its kernels see it, whichever these are: quantised models over bytes where those
    /// of the target take bytes, shuffled channels in ranges where they take those and values may
    /// lie in the memory of others.
    fn read(&self, target: TargetRequest, given: &[NamedArray]) -> Result<Input, Error> {
        self.read_as(target, given, self.cover.as_deref().is_none_or(has_values_in_place))
    }

    /// The same, with shuffled channels in ranges only if it is said so.
    fn read_as(
        &self,
        target: TargetRequest,
        given: &[NamedArray],
        in_ranges: bool,
    ) -> Result<Input, Error> {
        let read_for = ReadFor { target, precision: self.precision };
        let input = Input::load_for(&self.source, &self.dims, given, read_for)?;
        // CPUs have kernels of bytes and of ranges, beside those of 32-bit floats.
        let has_bytes = target.is_cpu() && input.precision == Precision::F32;
        Ok(match in_ranges {
            true if has_bytes => input.in_bytes().in_ranges(),
            false if has_bytes => input.in_bytes(),
            _ => input,
        })
    }

    /// Reads it, as it is to be tuned for a target.
    pub fn load(&self, target: TargetRequest) -> Result<Input, Error> {
        self.load_given(target, &[])
    }

    /// The same, as it is run with these arrays.
    pub fn load_given(&self, target: TargetRequest, given: &[NamedArray]) -> Result<Input, Error> {
        let input = self.read(target, given)?;
        let input = match (&self.assignment, &self.cover) {
            (Some(file), _) => {
                let is_ranged = input.graph.as_ref().is_some_and(|g| is_in_ranges(g.model()));
                match input.with_assignment_file(file) {
                    // It may be one of the model as it was written.
                    Err(e) if is_ranged => {
                        let copied = self.read_as(target, given, false)?;
                        copied.with_assignment_file(file).map_err(|_| e)?
                    }
                    made => made?,
                }
            }
            (None, Some(name)) => input.covered(name, &HashMap::new(), target)?,
            (None, None) => {
                let usual = Channels::usual(target, input.precision);
                input.with_channels(self.channels.unwrap_or(usual), target)
            }
        };
        input.in_precision(target)
    }

    /// Whether the kernels of a model are Squall's to choose: nothing else is asked for.
    pub(crate) fn is_cover_open(&self) -> bool {
        let is_asked = self.assignment.is_some() || self.cover.is_some() || self.channels.is_some();
        !is_asked && self.precision != Some(Precision::Tf32)
    }

    /// How the candidates for kernels of a model stand to each other by the times that a store has,
    /// and by estimates where it has none.
    pub fn cover_report(
        &self,
        context: &Context,
        store: Option<&Path>,
        target: TargetRequest,
        threads: usize,
    ) -> Result<CoverReport, Error> {
        let input = self.read(target, &[])?;
        let known = match store {
            Some(path) => {
                let at = &context.target(target, threads)?;
                times_here(&Store::open_read_only(path)?, at, input.precision)?
            }
            None => HashMap::new(),
        };
        input.cover_report(&known)
    }

    /// Reads it, as it is to be run or shipped: unless the user says where channels are, each image
    /// is as the kernels that the store has are fastest together, or as kernels are usually tuned
    /// where it has none.
    pub fn load_tuned(
        &self,
        context: &Context,
        store: Option<&Store>,
        target: TargetRequest,
        threads: usize,
    ) -> Result<Input, Error> {
        self.load_tuned_given(context, store, target, threads, &[])
    }

    /// The same, as it is to be run with these arrays.
    pub fn load_tuned_given(
        &self,
        context: &Context,
        store: Option<&Store>,
        target: TargetRequest,
        threads: usize,
        given: &[NamedArray],
    ) -> Result<Input, Error> {
        let (Some(store), None, None) = (store, &self.assignment, self.channels) else {
            return self.load_given(target, given);
        };
        let mut input = self.read(target, given)?;
        if let Some(name) = &self.cover {
            let at = &context.target(target, threads)?;
            let known = times_here(store, at, input.precision)?;
            return input.covered(name, &known, target)?.in_precision(target);
        }
        if input.graph.is_some() {
            let at = &context.target(target, threads)?;
            if self.is_cover_open() {
                input = input.by_decision(store, at)?;
            }
            // Kernels of other precisions are tuned in the usual layouts alone.
            if input.precision == Precision::F32 {
                return input.with_fastest_layout(store, at);
            }
        }
        input.in_usual_form(target)
    }
}

/// An input to tune, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct TuneRequest {
    /// The model or kernels to tune.
    pub input: InputRequest,
    /// Where trials are kept, and what is known is found.
    pub store: PathBuf,
    /// How much may be spent.
    pub budget: BudgetRequest,
    /// The device that kernels are tuned for.
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
    /// The function that judges the results of a user's own kernels, in place of a comparison.
    pub judge: Option<Judge>,
}

impl TuneRequest {
    /// What is to be done with the whole network at the end: it takes all tasks, and a device of
    /// this machine.
    pub(crate) fn whole_network(&self, context: &Context) -> Option<&InferenceRequest> {
        let is_whole = self.only.is_none() && self.shard.is_none() && context.is_here();
        self.inference.as_ref().filter(|_| is_whole)
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
