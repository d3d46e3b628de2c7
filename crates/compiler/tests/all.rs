//! The integration tests of the crate `squall-compiler` as one program, because linking one program
//! is faster than linking many. Each `mod` is a file of tests; `cases`, `machines` and
//! `plain_cases` hold the workloads and helpers that the others share.

mod amx;
mod attention;
mod borders;
mod byte_products;
mod byte_shapes;
mod bytes;
mod cases;
mod dialect;
mod features;
mod gpu;
mod machines;
mod nan;
mod nbits;
mod operations;
mod pairs;
mod placed;
mod plain;
mod plain_cases;
mod plain_threads;
mod primitives;
mod recurrent;
mod rounding;
mod semantics;
mod shared;
mod tensor;
mod warpgroup;
