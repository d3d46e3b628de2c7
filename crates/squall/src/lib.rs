//! The hallway of Squall, where the rooms meet: read an input ([`Input`]), tune its tasks
//! ([`Session`]), look at what was found ([`Report`]), ship it ([`export`]), check it ([`check`])
//! and run it as a whole ([`network`]). [`verify`] holds stored winners against their runners-up
//! again, and [`ablation`] search strategies against each other. [`exchange`] takes in what others
//! measured and gives out what they read; [`forecast`] takes tuning databases in and gives
//! predictions back.
//!
//! ```no_run
//! use squall::{Budget, Input, Session, Settings, Store};
//! use std::sync::atomic::AtomicBool;
//! let input = Input::load("matmul m=256 n=256 k=256", &[])?;
//! let settings = Settings { budget: Budget { task_trials: Some(64), ..Budget::default() }, ..Settings::default() };
//! let store = Store::open("tuned.squall")?;
//! let report = Session::new(&settings, &store, &AtomicBool::new(false)).tune(&input, &mut |_| ())?;
//! println!("{:?}", report.gain());
//! # Ok::<(), squall::Error>(())
//! ```

pub mod ablation;
mod aim;
pub mod check;
mod desk;
mod error;
mod event;
pub mod exchange;
pub mod export;
pub mod files;
pub mod forecast;
mod input;
mod kin;
mod kit;
mod layout;
pub mod network;
pub mod replay;
pub mod report;
mod runoff;
mod session;
mod settings;
mod stage;
pub mod verify;

pub use aim::{Aimed, gpu_roof, measure_roof, toolchain_id};
pub use error::Error;
pub use event::{Event, Listen, Progress};
pub use input::{Input, InputKind, beside, name_matches};
pub use layout::Channels;
pub use report::{Report, Roof, RoofLevel, StopReason, TaskReport};
pub use session::Session;
pub use settings::{Aim, Budget, Caches, Settings};
pub use squall_compiler as compiler;
pub use squall_core as core;
pub use squall_frontend as frontend;
pub use squall_graph as graph;
pub use squall_measure as measure;
pub use squall_predict as predict;
pub use squall_records as records;
pub use squall_records::{Query, Store};
pub use squall_search as search;
pub use stage::GRAPH_STAGES;
