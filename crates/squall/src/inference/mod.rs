//! A model as a whole: its program is built of chosen kernels, runs, is checked, and is timed
//! beside other libraries. In: a [`network_request::NetworkRequest`], arrays. Out: outputs,
//! times, a [`network::Network`] that runs again, wishes for what was not tuned. It uses
//! `predict` and the rooms below; tuning reports its times, `ship` makes libraries of it, `decide`
//! compares two.

pub(crate) mod bench;
pub mod check;
pub(crate) mod kernel_graph;
pub(crate) mod kernel_text;
pub mod network;
pub(crate) mod network_request;
pub(crate) mod objects;
pub mod peers;
pub(crate) mod ranged;
pub(crate) mod run;
pub(crate) mod timed;
pub(crate) mod timing;
pub(crate) mod wishes;
