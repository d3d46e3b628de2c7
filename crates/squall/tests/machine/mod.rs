//! The GPU target (an H200) for which tests generate and compare kernels; no such GPU needs to be
//! present.

use squall_core::{Gpu, Target};

/// An NVIDIA H200.
pub fn h200() -> Target {
    Target::cuda(Gpu {
        capability: 90,
        multiprocessors: 132,
        threads_per_block: 1024,
        threads_per_multiprocessor: 2048,
        shared_per_block: 232448,
        shared_per_multiprocessor: 233472,
        registers_per_multiprocessor: 65536,
        l2: 60 << 20,
    })
}
