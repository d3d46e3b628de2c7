//! Test workloads of convolutions with stride two, in both layouts, with and without padding; the
//! sketches (kernel structures with open knobs) by phases (`sketch/phases.rs`) apply to them. Each
//! is a name and a text that `semantics.rs` parses and runs every sketch on.

/// Names and texts of the workloads, like [`super::CASES`].
pub const STRIDED: &[(&str, &str)] = &[
    (
        "conv3x3_s2",
        "workload conv2d
data X: f32[2, 6, 11, 14]
weight W: f32[20, 6, 3, 3]
weight B: f32[20]
stage P: f32[n: 2, c: 6, h: 13, w: 16] = select(0 <= h - 1 < 11 and 0 <= w - 1 < 14, X[n, c, h - \
1, w - 1], 0)
stage C: f32[n: 2, k: 20, p: 6, q: 7] = sum(c: 6, r: 3, s: 3) P[n, c, 2*p + r, 2*q + s] * W[k, c, \
r, s]
stage Y: f32[n: 2, k: 20, p: 6, q: 7] = max(C[n, k, p, q] + B[k], 0)
output Y",
    ),
    (
        "conv3x3_s2_nhwc",
        "workload conv2d
data X: f32[1, 14, 11, 6]
weight W: f32[20, 6, 3, 3]
stage P: f32[n: 1, h: 15, w: 12, c: 6] = select(0 <= h < 14 and 0 <= w < 11, X[n, h, w, c], 0)
stage Y: f32[n: 1, p: 7, q: 5, k: 20] = sum(c: 6, r: 3, s: 3) P[n, 2*p + r, 2*q + s, c] * W[k, c, \
r, s]
output Y",
    ),
    (
        "conv3x3_s2_unpadded",
        "workload conv2d
data X: f32[1, 5, 12, 13]
weight W: f32[16, 5, 3, 3]
stage Y: f32[n: 1, k: 16, p: 5, q: 6] = sum(c: 5, r: 3, s: 3) X[n, c, 2*p + r, 2*q + s] * W[k, c, \
r, s]
output Y",
    ),
    (
        "depthwise5x5_s2",
        "workload depthwise_conv2d
data X: f32[2, 3, 13, 20]
weight W: f32[3, 1, 5, 5]
weight B: f32[3]
stage P: f32[n: 2, c: 3, h: 17, w: 24] = select(0 <= h - 2 < 13 and 0 <= w - 2 < 20, X[n, c, h - \
2, w - 2], 0)
stage C: f32[n: 2, k: 3, p: 7, q: 10] = sum(r: 5, s: 5) P[n, k, 2*p + r, 2*q + s] * W[k, 0, r, s]
stage Y: f32[n: 2, k: 3, p: 7, q: 10] = min(max(C[n, k, p, q] + B[k], 0), 6)
output Y",
    ),
    (
        "depthwise_s3_border_on_the_right",
        "workload depthwise_conv2d
data X: f32[1, 4, 13, 24]
weight W: f32[4, 3, 4]
stage P: f32[n: 1, c: 4, h: 13, w: 26] = select(0 <= w < 24, X[n, c, h, w], 0)
stage Y: f32[n: 1, c: 4, p: 6, q: 8] = sum(r: 3, s: 4) P[n, c, 2*p + r, 3*q + s] * W[c, r, s]
output Y",
    ),
    (
        "conv3x3_s2_of_a_border_alone",
        "workload conv2d
data X: f32[1, 8, 9, 1]
weight W: f32[16, 8, 3, 3]
stage P: f32[n: 1, c: 8, h: 11, w: 6] = select(0 <= h - 1 < 9 and 0 <= w - 5 < 1, X[n, c, h - 1, w \
- 5], 0)
stage Y: f32[n: 1, k: 16, p: 5, q: 2] = sum(c: 8, r: 3, s: 3) P[n, c, 2*p + r, 2*q + s] * W[k, c, \
r, s]
output Y",
    ),
];
