//! Test workloads of a depthwise convolution fused with the pointwise convolutions beside it
//! (inverted residuals), the workload kind `separable_conv2d`, which GPU sketches make one kernel.
//! Each is a name and a text that `gpu.rs` parses and runs every sketch on.

/// Names and texts of the workloads, like [`super::CASES`].
pub const SEPARABLE: &[(&str, &str)] = &[
    (
        "inverted_residual",
        "workload separable_conv2d
data X: f32[1, 6, 7, 9]
weight W: f32[24, 6, 1, 1]
weight B: f32[24]
weight D: f32[24, 1, 3, 3]
weight B1: f32[24]
weight W1: f32[8, 24, 1, 1]
weight B2: f32[8]
data R: f32[1, 8, 7, 9]
stage C: f32[n: 1, k: 24, p: 7, q: 9] = sum(c: 6, r: 1, s: 1) X[n, c, p + r, q + s] * W[k, c, r, s]
stage E: f32[n: 1, k: 24, p: 7, q: 9] = min(max(C[n, k, p, q] + B[k], 0), 6)
stage P: f32[n: 1, c: 24, h: 9, w: 11] = select(0 <= h - 1 < 7 and 0 <= w - 1 < 9, E[n, c, h - 1, \
w - 1], 0)
stage C1: f32[n: 1, k: 24, p: 7, q: 9] = sum(r: 3, s: 3) P[n, k, p + r, q + s] * D[k, 0, r, s]
stage E1: f32[n: 1, k: 24, p: 7, q: 9] = min(max(C1[n, k, p, q] + B1[k], 0), 6)
stage C2: f32[n: 1, k: 8, p: 7, q: 9] = sum(c: 24, r: 1, s: 1) E1[n, c, p + r, q + s] * W1[k, c, \
r, s]
stage Y: f32[n: 1, k: 8, p: 7, q: 9] = C2[n, k, p, q] + B2[k] + R[n, k, p, q]
output Y",
    ),
    (
        "inverted_residual_nhwc",
        "workload separable_conv2d
data X: f32[2, 9, 8, 4]
weight W: f32[16, 4, 1, 1]
weight D: f32[16, 1, 5, 3]
weight W1: f32[6, 16, 1, 1]
stage E: f32[n: 2, k: 16, p: 9, q: 8] = sum(c: 4, r: 1, s: 1) X[n, p + r, q + s, c] * W[k, c, r, s]
stage P: f32[n: 2, c: 16, h: 13, w: 10] = select(0 <= h - 2 < 9 and 0 <= w - 1 < 8, E[n, c, h - 2, \
w - 1], 0)
stage E1: f32[n: 2, k: 16, p: 5, q: 4] = sum(r: 5, s: 3) P[n, k, 2*p + r, 2*q + s] * D[k, 0, r, s]
stage Y: f32[n: 2, p: 5, q: 4, k: 6] = sum(c: 16, r: 1, s: 1) E1[n, c, p + r, q + s] * W1[k, c, r, \
s]
output Y",
    ),
    (
        "expand_and_windows",
        "workload separable_conv2d
data X: f32[1, 6, 8, 9]
weight W: f32[20, 6, 1, 1]
weight B: f32[20]
weight D: f32[20, 1, 3, 3]
stage C: f32[n: 1, k: 20, p: 8, q: 9] = sum(c: 6, r: 1, s: 1) X[n, c, p + r, q + s] * W[k, c, r, s]
stage E: f32[n: 1, k: 20, p: 8, q: 9] = max(C[n, k, p, q] + B[k], 0)
stage C1: f32[n: 1, k: 20, p: 4, q: 5] = sum(r: 3, s: 3) E[n, k, p + 2*r, q + 2*s] * D[k, 0, r, s]
stage Y: f32[n: 1, k: 20, p: 4, q: 5] = max(C1[n, k, p, q], 0)
output Y",
    ),
    (
        "windows_and_project",
        "workload separable_conv2d
data X: f32[1, 12, 10, 7]
weight D: f32[12, 1, 3, 3]
weight B: f32[12]
weight W: f32[16, 12, 1, 1]
stage P: f32[n: 1, c: 12, h: 12, w: 9] = select(0 <= h - 1 < 10 and 0 <= w - 1 < 7, X[n, c, h - 1, \
w - 1], 0)
stage C: f32[n: 1, k: 12, p: 10, q: 7] = sum(r: 3, s: 3) P[n, k, p + r, q + s] * D[k, 0, r, s]
stage E: f32[n: 1, k: 12, p: 10, q: 7] = max(C[n, k, p, q] + B[k], 0)
stage Y: f32[n: 1, k: 16, p: 10, q: 7] = sum(c: 12, r: 1, s: 1) E[n, c, p + r, q + s] * W[k, c, r, \
s]
output Y",
    ),
];
