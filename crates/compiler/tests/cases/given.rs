//! Inputs and a device for the test workloads: random values from a seed, split into data and
//! weights, and the target description of an NVIDIA H200. Tests of sketches feed the inputs to a
//! workload's evaluation and to its kernels.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_core::{Gpu, Target, TensorKind, Workload};

/// Uniform values in [-1, 1), rounded to floats.
pub fn inputs(w: &Workload, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut one = || f64::from(rng.random_range(-1.0f32..1.0));
    w.inputs.iter().map(|i| (0..i.shape.iter().product::<i64>()).map(|_| one()).collect()).collect()
}

/// The values of data inputs and the values of weights, each in order.
pub fn split_inputs(w: &Workload, all: &[Vec<f64>]) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let pick = |k: TensorKind| {
        w.inputs.iter().zip(all).filter(|(i, _)| i.kind == k).map(|(_, v)| v.clone()).collect()
    };
    (pick(TensorKind::Data), pick(TensorKind::Weight))
}

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
