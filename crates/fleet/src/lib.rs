//! A fleet: jobs, leases and records on a PostgreSQL server, for workers on many machines.
//!
//! A session knows one store only, its own file. A fleet is three things beside it: a worker
//! **leases** a slice of a task ([`Fleet::claim`]), **pulls** what is known of it
//! ([`Fleet::pull`]), tunes as always, and **ships** what is new ([`Fleet::ship`]). Facts are named
//! by what was tried, so that shipping twice changes nothing, and a server that is down costs
//! freshness alone. What must be right is in the server's functions (`v1.sql`; `v2.sql` for
//! classes of devices and for builders, machines that compile what workers will want; `v3.sql`
//! keeps workers of one task apart).

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
