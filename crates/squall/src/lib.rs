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

pub mod arrays;
mod ask_tell;
mod belief;
pub mod check;
mod clock;
mod cover_runoff;
mod error;
mod event;
pub mod exchange;
pub mod export;
pub mod files;
pub mod find;
#[cfg(feature = "fleet")]
pub mod fleet;
pub mod forecast;
pub mod general;
mod given;
mod held_cover;
mod in_precision;
mod input;
mod kept_weights;
mod layout;
pub mod library;
mod machine;
pub mod network;
mod network_runoff;
pub mod peers;
pub mod polite;
mod precision;
pub mod recorder;
pub mod replay;
pub mod report;
mod request;
mod runner;
mod runoff;
mod session;
mod session_context;
mod settings;
mod shard;
mod stage;
mod target_context;
mod target_request;
mod task_kernels;
mod task_search;
mod task_state;
mod timing;
mod transfer;
pub mod trials;
mod verbs;
pub mod verify;
mod wishes;

pub use ask_tell::{AskTell, Parameter, ParameterValue, SearchSpace, Told};
pub use error::Error;
pub use event::{Event, Listen, Progress};
pub use export::{GuessRequest, KernelCounts};
pub use input::{Input, InputKind, ReadFor, beside, name_matches};
pub use layout::{Channels, CoverReport, CoverRow, covers};
pub use machine::{fitted_cpu, fitted_gpu};
pub use network_runoff::Settled;
pub use peers::{Library, Peer, PeerTimes};
pub use precision::Precision;
pub use report::{Factors, Inference, Report, Roof, RoofLevel, StopReason, TaskReport};
pub use request::{InferenceRequest, InputRequest, TuneRequest};
pub use runner::RunnerRequest;
pub use settings::{Budget, BudgetRequest};
pub use shard::Shard;
pub use stage::GRAPH_STAGES;
pub use target_context::{Context, TargetContext, gpu_roof, measure_roof, toolchain_id};
pub use target_request::TargetRequest;
pub use task_kernels::TaskKernels;
pub use verbs::*;

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
