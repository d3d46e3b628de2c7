//! The names of the features of CPU kernels (the numbers that the cost model reads off a loop
//! nest), in order; the macro declares the struct `Features` with a field for each. `cpu.rs`
//! computes them and `features.rs` hands their logarithms to the cost model. A new feature is a
//! line here and its computation there.

features! {
    /// The features of a CPU kernel, before logarithms are taken. Names that begin with `a`, `b`
    /// and `c` belong to the first two operands and the result of the statement with most
    /// operations.
    Features,
    /// Names of the features of a CPU's kernels, in order.
    FEATURES:
    estimate
    flop
    vector_flop
    scalar_flop
    update_statements
    inner_trip
    unrolled_body
    lanes
    accumulators
    registers_named
    flop_per_load
    loads_vector
    loads_broadcast
    loads_strided
    loads_scalar
    stores_vector
    stores_strided
    stores_scalar
    loop_iterations
    stack_bytes
    workspace_bytes
    prepared_bytes
    parallel_iterations
    parallel_depth
    innermost_serial_extent
    reduction_before_flush
    a_lines
    a_unique
    a_stride
    a_reuse_l1
    a_traffic_l1
    a_traffic_l2
    b_lines
    b_unique
    b_stride
    b_reuse_l1
    b_traffic_l1
    b_traffic_l2
    c_lines
    c_unique
    c_stride
    c_reuse_l1
    c_traffic_l1
    c_traffic_l2
    traffic_l1
    traffic_l2
    intensity_l1
    intensity_l2
    copy_elements
    main_share
    tile_imbalance
    branches
    conflict
    hints
    hint_distance
}
