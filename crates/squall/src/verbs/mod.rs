//! What Squall does, each a function of a plain request: tune, predict, run, export, import,
//! replay, explain. What a request means is decided here and nowhere above.

mod explain;
mod export;
mod import;
mod predict;
mod replay;
mod run;
mod tune;

pub use explain::{ExplainRequest, Explained, explain};
pub use export::{ExportRequest, export};
pub use import::{ImportRequest, Imports, import};
pub use predict::{PredictRequest, Predictions, Problems, TaskPredictions, predict};
pub use replay::{ReplayRequest, Replayed, replay};
pub use run::{CheckRequest, NetworkRequest, RunRequest, check, network, run};
pub use tune::tune;
