//! The store: every trial that was ever made, in one embedded database file. Append-only (the
//! database itself refuses to change or delete a record), versioned (a record written today
//! loads for ever), safe under `kill -9` (one transaction a record) and under several writers.
//!
//! [`Store`] is the file, [`Query`] chooses records, [`wire`] is their text form,
//! [`Store::best`] says which candidate holds each task, and [`Store::serving`] which of several
//! devices' candidates serves at a place. Beside its records a store keeps examples for predictors
//! ([`Store::examples`]).

mod best;
mod error;
mod example;
mod query;
mod schema;
mod serving;
mod standings;
mod store;
pub mod wire;

pub use best::Summary;
pub use error::StoreError;
pub use query::Query;
pub use schema::CURRENT;
pub use serving::{Nearness, Place};
pub use standings::{Name, REMATCH_MARGIN, Standings};
pub use store::{Durability, Store};
