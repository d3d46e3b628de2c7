//! Squall's public interface, over which the command line, the Python package and the fuzzers work.
//! Each verb is a function of a plain request: [`tune`] finds the fastest kernels of an input,
//! [`export`] writes them as C files, [`run`] runs a model through them, [`choose`] says which of
//! MIOpen's solvers serves a problem, [`predict`] proposes parameters where nothing was tuned,
//! [`import`] takes in measurements of other tuners, [`replay`] compares search strategies on
//! recorded measurements. Requests that need to know this machine share a [`Context`], which
//! examines it once.
//!
//! [`report`] shows what tuning found, [`verify`] measures stored winners against their runners-up
//! again, [`exchange`] converts records to other formats, [`forecast`] trains predictors, and
//! [`trials`] holds the one loop by which anything is measured.
//!
//! ```no_run
//! use squall::{BudgetRequest, Context, InputRequest, TuneRequest, tune};
//! use std::sync::atomic::AtomicBool;
//! let input = InputRequest::new("matmul m=256 n=256 k=256");
//! let budget = BudgetRequest { trials: Some(64), ..BudgetRequest::default() };
//! let request = TuneRequest::new(input, "tuned.squall", budget);
//! let report = tune(&Context::new(), &request, &AtomicBool::new(false), &mut |_| ())?;
//! println!("{:?}", report.gain());
//! # Ok::<(), squall::Error>(())
//! ```

mod api;
mod base;
mod decide;
mod inference;
mod input;
mod predict;
mod ship;
mod target;
mod task;
mod tuning;
mod workers;

pub use api::*;
pub use base::error::Error;
pub use base::{files, recorder};
pub use decide::network_runoff::Settled;
pub use decide::verify;
pub use inference::peers::{Library, Peer, PeerTimes};
pub use inference::timed::Inference;
pub use inference::{check, network, peers};
pub use input::arrays;
pub use input::input_request::InputRequest;
pub use input::layout::{Channels, CoverReport, CoverRow, covers};
pub use input::precision::Precision;
pub use input::stage::GRAPH_STAGES;
pub use input::user_input::{
    Input, InputKind, KernelsInput, ModelInput, ReadFor, beside, name_matches,
};
pub use predict::counts::KernelCounts;
pub use predict::guess::GuessRequest;
pub use predict::{find, forecast, general};
pub use ship::{export, library};
pub use squall_runtime::varying::Symbol;
pub use target::machine::{fitted_cpu, fitted_gpu};
pub use target::roof::{Factors, Roof, RoofLevel};
pub use target::runner::RunnerRequest;
pub use target::target_context::{Context, TargetContext, gpu_roof, measure_roof, toolchain_id};
pub use target::target_request::TargetRequest;
pub use task::event::{Event, Listen, Progress};
pub use task::task_kernels::TaskKernels;
pub use task::{exchange, trials};
pub use tuning::ask_tell::{AskTell, Parameter, ParameterValue, SearchSpace, Told};
pub use tuning::report::{Report, StopReason, TaskReport};
pub use tuning::settings::{Budget, BudgetRequest};
pub use tuning::shard::Shard;
pub use tuning::tune_request::{InferenceRequest, TuneRequest};
pub use tuning::{replay, report};
#[cfg(feature = "fleet")]
pub use workers::fleet;
pub use workers::polite;

pub use squall_compiler::STAGES;
pub use squall_core::forecast::Split;
pub use squall_core::{
    Bytes, Caches, FailStage, Isa, Judge, LEVELS, MachineModel, Nanos, Outcome, Record, RecordKind,
    Task, TaskId, Verdict, set_stop,
};
pub use squall_frontend::Untuned;
pub use squall_frontend::npy::Array;
pub use squall_frontend::recording::Format;
pub use squall_measure::BoardAddress;
pub use squall_measure::cpu::{Device, Execution, Toolchain, highest_level, runs};
pub use squall_measure::cuda::Gpu;
pub use squall_predict::find::{Chooser, FindStep, FindTraining};
pub use squall_predict::{
    Kind, Options, PredictError, Predictor, Progress as TrainingProgress, task::TaskModel,
};
pub use squall_records::Wish;
pub use squall_records::wire::encode as encode_record;
pub use squall_records::{Patience, Place, Query, Store, StoreError, Taken, set_patience};
pub use squall_search::strategy::Expectation;
pub use squall_search::{StrategyInfo, strategies};
