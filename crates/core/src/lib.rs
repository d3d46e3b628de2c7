//! The types that Squall's crates exchange, and nothing else: tensor expressions ([`expr`],
//! [`workload`], [`operator`]), models of them ([`graph`]), the tasks to tune and their machines
//! ([`target`], [`machine`], [`task`]), the legal configurations ([`space`]), the way from a
//! configuration to a kernel ([`kernel`]), how a kernel is measured ([`measurer`]) and with which
//! result ([`trial`]), and the data that predictors learn from ([`forecast`]); and the one flag by
//! which the user ends all waiting ([`set_stop`]). Every other crate depends on this one. This
//! crate does no IO and reads no clock.

pub mod algorithm;
pub mod device;
pub mod expr;
pub mod find;
pub mod forecast;
pub mod graph;
pub mod isa;
pub mod kernel;
pub mod machine;
pub mod measurer;
pub mod operator;
pub mod operators;
mod recorded;
pub mod similarity;
pub mod space;
mod stop;
pub mod target;
pub mod task;
pub mod tasks;
pub mod text;
pub mod trial;
pub mod units;
pub mod workload;

pub use algorithm::{TunableName, UNTUNED, is_untuned};
pub use device::{Caches, DeviceIdentity, Machine};
pub use isa::{
    AMX_TILES, Architecture, CpuidRegister, Feature, Isa, LEVELS, Level, Reported, TileUnit,
};
pub use kernel::{
    Candidate, Judge, KernelSource, Language, Launch, LaunchArgument, LaunchPhase, Mapped,
    RealizeError, Reference, TensorMap, Tunable,
};
pub use machine::{Gpu, MachineModel};
pub use measurer::{
    CandidateText, Job, JobResult, Measurer, MeasurerError, MeasurerIdentity, Rematch, TaskSetup,
    Verdict,
};
pub use recorded::{canonical_tunable_name, find_candidate, find_tunable, tunable_names};
pub use similarity::TaskShape;
pub use space::{Configuration, Prefix, Space};
pub use stop::{is_stopped, set_stop};
pub use target::{Target, TargetKind};
pub use task::{Objective, Task, TaskId};
pub use trial::{
    CpuCost, FailStage, GpuState, Measurement, Outcome, Record, RecordKind, Trial, median,
};
pub use units::{Bytes, Nanos};
pub use workload::{DType, Stage, TensorKind, Workload};
