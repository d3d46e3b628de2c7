//! The integration tests of the crate `squall-compiler` as one program: a program is linked once.

mod amx;
mod attention;
mod borders;
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
mod primitives;
mod rounding;
mod semantics;
mod tensor;
mod warpgroup;
