//! Generators of files of every format that Squall reads, drawn as structures: most of a file is
//! right, and the rest are values that a reader may trust too much (huge extents, wrong counts,
//! names with control characters). Input: a [`Draw`](crate::Draw); output: bytes. [`ALL`] lists
//! them by name.

mod find;
mod onnx;
mod recording;
mod text;

pub use find::{find_database, problem_key, problems};
pub use onnx::{external, model, test_data};
pub use recording::{exported_lines, kernel_tuner, t1, t4};
pub use text::{kernel_toml, miopen, npy, operators, predictor, reply, workload};

/// A generator of files.
pub type Generator = fn(&mut crate::Draw<'_>) -> Vec<u8>;

/// All generators, by name.
pub const ALL: &[(&str, Generator)] = &[
    ("onnx", model),
    ("external", external),
    ("operators", operators),
    ("workload", workload),
    ("kernel_toml", kernel_toml),
    ("npy", npy),
    ("kernel_tuner", kernel_tuner),
    ("t1", t1),
    ("t4", t4),
    ("miopen", miopen),
    ("find_database", find_database),
    ("problems", problems),
    ("tensor", test_data),
    ("exported_lines", exported_lines),
    ("predictor", predictor),
    ("reply", reply),
];
