//! The integration tests of the crate `squall-frontend`, linked as one program because linking is
//! slow. Each module builds ONNX models in memory or reads files, and checks the
//! [`Model`](squall_core::graph::Model) or the error that the reader gives.

mod branches;
mod contrib;
mod models;
mod nasty;
mod opsets;
mod quantised;
