//! The names of the features of GPU kernels (the numbers that the cost model reads off a loop
//! nest), in order; the macro declares the struct `GpuFeatures` with a field for each. `gpu.rs`
//! computes them and `features.rs` hands their logarithms to the cost model.

features! {
    /// The features of a GPU kernel, before logarithms are taken: its launch, the resources that
    /// limit how many blocks a multiprocessor holds, and the work of a thread.
    GpuFeatures,
    /// Names of the features of GPU programs, in order.
    GPU_FEATURES:
    estimate
    blocks
    cluster
    threads
    shared_bytes
    registers
    flop
    shared_loads
    shared_stores
    global_loads
    global_loads_scattered
    global_stores
    barriers
    steps
    unrolled
    resident_blocks
    resident_warps
    waves
    blocks_of_the_last_wave
    warps_per_multiprocessor
    flop_per_shared_load
    flop_per_global_byte
    traffic
    conflicts
    block_flop
    idle_lanes
    matrix_products
    matrix_loads
    stages_ahead
}
