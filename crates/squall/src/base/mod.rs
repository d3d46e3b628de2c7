//! What every room needs: errors with what the user can do about them, files that are whole or not
//! there, clocks, what pages share, and the writer of records. In: paths, texts, outcomes. Out:
//! bytes, [`error::Error`], records in a store. It uses no other room; all others use it.

pub(crate) mod clock;
pub(crate) mod error;
pub mod files;
pub(crate) mod page;
pub mod recorder;
