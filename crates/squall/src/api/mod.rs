//! The verbs: one function for each thing that Squall does (tune, predict, choose, run, export,
//! import, replay, explain, ..), each taking a plain request. All policy, such as defaults,
//! preferences and fallbacks, is decided here and below, never in the command line or the Python
//! package above.

mod advise;
mod check;
mod choose;
mod explain;
mod export;
mod export_network;
mod import;
mod predict;
mod replay;
mod watch;

pub use crate::decide::run_off::{RunOffRequest, run_off};
pub use crate::decide::tune::tune;
pub use crate::inference::bench::{BenchRequest, Benched, bench};
pub use crate::inference::network_request::NetworkRequest;
pub use crate::inference::run::{Ran, RunRequest, network, run, write_outputs};
pub use advise::{Advice, AdviceSource, AdviseRequest, Advised, advise};
pub use check::{CheckData, CheckRequest, check};
pub use choose::{ChoiceNotes, ChooseRequest, Chosen, ModesRequest, Solution, choose, find_modes};
pub use explain::{ExplainRequest, Explained, explain};
pub use export::{ExportRequest, export};
pub use export_network::{LibraryRequest, export_network};
pub use import::{ImportRequest, Imports, import};
pub use predict::{PredictRequest, Predictions, Problems, TaskPredictions, predict};
pub use replay::{ReplayRequest, Replayed, replay};
pub use watch::{Version, WatchRequest, watch};
