//! The requests that the crate's functions take, as plain data: [`InputRequest`] (a model or
//! kernels), [`TuneRequest`] (an input, a store, a budget, a target) and [`InferenceRequest`]
//! (whole inferences to time). The command line and the Python package fill them in; `api/`
//! serves them.

use crate::base::error::Error;
use crate::input::arrays::NamedArray;
use crate::input::layout::{Channels, CoverReport, times_here};
use crate::input::precision::Precision;
use crate::input::user_input::{Input, ReadFor};
use crate::target::target_context::Context;
use crate::target::target_request::TargetRequest;
use squall_graph::ranges::is_in_ranges;
use squall_graph::solvers::has_values_in_place;
use squall_records::Store;
use squall_runtime::varying::Symbol;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The extent of a range at which kernels are chosen: a prime in its upper part, which does not end
/// evenly in tiles.
pub fn chosen_at(symbol: &Symbol) -> i64 {
    let (least, most) = (symbol.first() / symbol.step, symbol.last() / symbol.step);
    let at = least + (most - least) * 3 / 4;
    let is_prime = |n: &i64| *n > 1 && (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0);
    (least..=at).rev().take(200).find(is_prime).unwrap_or(at).max(1) * symbol.step
}

/// A model or kernels, and how they are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputRequest {
    /// A model.onnx, a list.ops of operator lines, a kernel.toml, a file.workload, or one operator
    /// line.
    pub source: String,
    /// Extents of symbolic dimensions of a model.
    pub dims: Vec<(String, i64)>,
    /// Symbolic dimensions of a model whose extents are a range: a network is built for all of
    /// them; kernels are tuned and shown at one extent of it.
    pub ranges: Vec<Symbol>,
    /// Whether its extents are some of a range, for all of which the nodes are the same.
    pub is_over_range: bool,
    /// Where images that only a model's kernels see have their channels; if none, Squall chooses.
    pub channels: Option<Channels>,
    /// A file that says which kernels a model is made of and in which layouts.
    pub assignment: Option<PathBuf>,
    /// The name of the solver that says it; see [`crate::covers`].
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

    /// The same at some extents of its ranges, one each.
    pub fn at(&self, extents: &[i64]) -> InputRequest {
        let ranged = self.ranges.iter().zip(extents).map(|(s, n)| (s.name.clone(), *n));
        let dims = self.dims.iter().cloned().chain(ranged).collect();
        InputRequest { dims, ranges: Vec::new(), is_over_range: true, ..self.clone() }
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
        let is_over_range = self.is_over_range || !self.ranges.is_empty();
        let read_for = ReadFor { target, precision: self.precision, is_over_range };
        let ranged = self.ranges.iter().map(|s| (s.name.clone(), chosen_at(s)));
        let dims: Vec<(String, i64)> = self.dims.iter().cloned().chain(ranged).collect();
        let input = Input::load_for(&self.source, &dims, given, read_for)?;
        // CPUs have kernels of bytes and of ranges, beside those of 32-bit floats.
        let has_bytes = target.is_cpu() && input.precision() == Precision::F32;
        Ok(match in_ranges {
            true if has_bytes => input.map_model(|m| m.in_bytes().in_ranges()),
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
                let is_ranged = input.graph().is_some_and(|g| is_in_ranges(g.model()));
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
                let usual = Channels::usual(target, input.precision());
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
                times_here(&Store::open_read_only(path)?, at, input.precision())?
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
        let input = self.read(target, given)?;
        if let Some(name) = &self.cover {
            let at = &context.target(target, threads)?;
            let known = times_here(store, at, input.precision())?;
            return input.covered(name, &known, target)?.in_precision(target);
        }
        let mut model = match input {
            Input::Model(model) => *model,
            kernels => return kernels.in_precision(target),
        };
        let at = &context.target(target, threads)?;
        if self.is_cover_open() {
            model = model.by_decision(store, at)?;
        }
        // Kernels of other precisions are tuned in the usual layouts alone.
        let made = match model.precision {
            Precision::F32 => model.with_fastest_layout(store, at)?,
            _ => model.in_usual_form(target)?,
        };
        Ok(made.into())
    }
}
