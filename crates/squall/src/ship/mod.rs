//! Kernels and networks as files that need no Squall: an exported folder of kernels, a C library of
//! a network. In: chosen kernels, or a network. Out: a folder, built where that is asked for. It
//! uses `inference`, `predict` and the rooms below, and knows no session; the verbs of `api` use
//! it.

pub mod export;
pub mod library;
