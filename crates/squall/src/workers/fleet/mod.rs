//! Tuning on many machines (docs/fleet.md): `submit.rs` puts jobs in, workers (`work.rs`) tune
//! slices of them, builders (`build.rs`) compile for workers, and `exchange.rs` moves records
//! between stores and the server. The server is PostgreSQL; the crate `squall-fleet` has its tables
//! and queries. A tuning session knows only its own store, whatever the server does.

mod build;
mod class;
mod exchange;
mod lease_renewal;
mod line;
mod objects;
mod submit;
mod work;

pub use build::{BuilderRequest, BuiltForFleet, build};
pub use exchange::{Moved, PullRequest, PulledAndChecked, fetch, pull, pull_and_check, push};
pub use squall_fleet::{
    ClassStatus, Fleet, FleetError, JobStatus, SliceStatus, Status, Submitted, WorkerStatus, is_url,
};
pub use submit::{SubmitRequest, submit};
pub use work::{Worked, WorkerRequest, work};
