//! The store: every trial that was ever made, in one embedded database file (SQLite). It is
//! append-only (the database itself refuses to change or delete a record), versioned (a record
//! written today loads for ever), and safe under `kill -9` (one transaction a record) and under
//! several writers.
//!
//! [`Store`] is the file, [`Query`] chooses records, [`wire`] is their text form, [`Store::best`]
//! says which candidate holds each task, and [`Store::serving`] which of several devices'
//! candidates serves at a place. Beside its records a store keeps examples for predictors
//! ([`Store::examples`]), lines of find databases ([`Store::find_lines`]) and wishes, tasks whose
//! kernels were used untuned ([`Wish`]).
//!
//! A folder is a store, too, for processes that share no server: each writes a file of its own.
//! Records of others are checked before they are taken over ([`fault`]), SQL in databases of others
//! is never run, and locks of others are waited for as [`Patience`] says.

mod append;
mod best;
mod check;
mod error;
mod example;
mod find_block;
mod folder;
mod own_file;
mod query;
mod schema;
mod serving;
mod standings;
mod store;
mod strangers;
mod wait;
pub mod wire;
mod wish;

pub use best::{Accept, Entry, Summary};
pub use check::{Taken, fault};
pub use error::StoreError;
pub use find_block::FindAdded;
pub use query::Query;
pub use schema::CURRENT;
pub use serving::{Nearness, Place};
pub use standings::{Name, REMATCH_MARGIN, Standings};
pub use store::{Durability, Store};
pub use wait::{Patience, set_patience};
pub use wish::Wish;
