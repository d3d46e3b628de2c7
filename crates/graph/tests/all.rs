//! The integration tests of the crate `squall-graph` as one program, because linking one program is
//! faster than linking many. Each `mod` is a file of tests; `net` holds the helpers that build
//! small models.

mod attention;
mod back_to_back;
mod branches;
mod few_bits;
mod fusion;
mod halves;
mod in_place;
mod korch;
mod layouts;
mod models;
mod net;
mod plan;
mod ranges;
mod separable;
mod stages;
