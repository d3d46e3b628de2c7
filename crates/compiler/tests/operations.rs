//! Tests of the operations that reports count for kernels with an algorithm of fewer
//! multiplications than the expression (Winograd): the counted share is no more than the kernel
//! really executes, so that no kernel seems faster than the machine's peak.

use crate::cases;

use cases::h200;
use squall_compiler::sketches;
use squall_core::{Bytes, Target, Workload};

/// A 3x3 convolution of stride 1, padded by one on each side.
fn convolution(channels: i64, outputs: i64, size: i64) -> Workload {
    let padded = size + 2;
    let text = format!(
        "workload conv2d\ndata X: f32[1, {channels}, {size}, {size}]\nweight W: f32[{outputs}, \
         {channels}, 3, 3]\nstage P: f32[n: 1, c: {channels}, h: {padded}, w: {padded}] = \
         select(0 <= h - 1 < {size} and 0 <= w - 1 < {size}, X[n, c, h - 1, w - 1], 0)\nstage Y: \
         f32[n: 1, k: {outputs}, p: {size}, q: {size}] = sum(c: {channels}, r: 3, s: 3) P[n, c, p \
         + r, q + s] * W[k, c, r, s]\noutput Y\n"
    );
    Workload::parse(&text).expect("a convolution")
}

#[test]
fn winograds_multiplications_are_counted_and_not_the_expressions() {
    let cpu = |bytes, registers, threads| {
        let caches = [Bytes(32 << 10), Bytes(1 << 20), Bytes(32 << 20)];
        Target { threads, ..Target::cpu(bytes, registers, &caches) }
    };
    let mut seen = 0;
    for (channels, outputs, size) in [(64, 64, 56), (128, 96, 28), (48, 64, 13)] {
        let w = convolution(channels, outputs, size);
        for target in [cpu(32, 16, 1), cpu(64, 32, 1), cpu(32, 16, 2)] {
            for t in sketches(&w, &target) {
                let n = t.space().len();
                let sampled = (0..24).map(|i| t.space().nth(i * (n / 24).max(1) % n));
                for c in sampled {
                    let Some(share) = t.share_of_operations(&c) else {
                        assert_ne!(t.name(), "winograd");
                        continue;
                    };
                    let counted = (w.flop() as f64 * share) as u64;
                    seen += 1;
                    // All elements of each transformed tile are multiplied: the counted operations
                    // must be no more than those executed, so that no share of a bound exceeds 1.
                    let m = c.int("m").expect("a tile");
                    let tiles = (size as u64).div_ceil(m as u64).pow(2);
                    let products = 2 * ((m + 2) * (m + 2) * channels * outputs) as u64 * tiles;
                    assert!(counted <= products, "{c}: {counted} of {products}");
                    // Tiles over the edge are the rest.
                    assert!(size < 28 || 3 * counted > 2 * products, "{c}: {counted}");
                    assert!(m < 4 || 4 * counted <= w.flop(), "{c}: {counted}");
                }
            }
        }
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn other_algorithms_count_as_the_expression_says() {
    let w = convolution(64, 64, 28);
    for t in sketches(&w, &h200()) {
        let c = t.space().nth(0);
        match t.share_of_operations(&c) {
            Some(share) => assert!(t.name() == "gpu_winograd" && share < 0.5, "{share}"),
            None => assert_ne!(t.name(), "gpu_winograd"),
        }
    }
}
