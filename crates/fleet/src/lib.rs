//! A fleet: jobs, leases and records on a PostgreSQL server, for tuning by workers on many
//! machines.
//!
//! A tuning session knows one store only, its own file. A fleet adds three things: a worker
//! **leases** a slice of a task ([`Fleet::claim`]), **pulls** the records that the server has of it
//! ([`Fleet::pull`]), tunes as always, and **ships** its new records ([`Fleet::ship`]). Records are
//! identified by what was tried, so that shipping twice changes nothing, and a server that is down
//! costs freshness alone. Everything that must be consistent is in the server's functions
//! (`v1.sql`; `v2.sql` for classes of devices and for builders, machines that compile for workers;
//! `v3.sql` keeps workers of one task apart).

mod builds;
mod class;
mod client;
mod connection;
mod error;
mod facts;
mod jobs;
mod lease;
mod status;
mod tls;
mod url;

pub use builds::{BuildOrder, Offered};
pub use class::{DeviceOfMachine, Fingerprint};
pub use connection::{Fleet, VERSION};
pub use error::FleetError;
pub use facts::Mark;
pub use jobs::{Submitted, TaskOrder};
pub use lease::{Ended, Lease, Worker, WorkerName};
pub use status::{ClassStatus, JobStatus, SliceStatus, Status, WorkerStatus};
pub use url::is_url;
