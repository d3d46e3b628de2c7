//! Many machines (docs/fleet.md): jobs that are put in, workers that tune slices of them, builders
//! that compile for workers, and records that go from store to server and back. The server is
//! PostgreSQL; what it keeps and how it leases work is `squall-fleet`'s. A session knows only its
//! own store, whatever the server does.

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
