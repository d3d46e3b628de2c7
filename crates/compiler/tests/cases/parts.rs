//! Test workloads of convolutions that read several tensors, a gate or a concatenation whose parts
//! are read where they lie (`select` between tensors), and of operators across rows and along short
//! axes: softmax over channels, a rotary embedding. Each is a name and a text that
//! `semantics.rs` and `gpu.rs` parse and run every sketch on.

/// Names and texts of the workloads, like [`super::CASES`].
pub const PARTS: &[(&str, &str)] = &[
    (
        "conv_after_gate",
        "workload conv2d
data X: f32[2, 4, 6, 4]
data G: f32[2, 4, 1, 1]
weight W: f32[6, 4, 1, 1]
stage N: f32[n: 2, c: 4, h: 6, w: 4] = X[n, c, h, w] * G[n, c, 0, 0]
stage Y: f32[n: 2, k: 6, p: 6, q: 4] = sum(c: 4, r: 1, s: 1) N[n, c, p + r, q + s] * W[k, c, r, s]
output Y",
    ),
    (
        "conv_of_parts",
        "workload conv2d
data X: f32[1, 5, 6, 3]
data X2: f32[1, 5, 6, 1]
data X3: f32[1, 5, 6, 14]
weight W: f32[20, 18, 1, 1]
weight B: f32[20]
stage N: f32[n: 1, h: 5, w: 6, c: 18] = select(0 <= c < 3, X[n, h, w, c], select(0 <= c - 3 < 1, \
X2[n, h, w, c - 3], select(0 <= c - 4 < 14, X3[n, h, w, c - 4], 0)))
stage C: f32[n: 1, p: 5, q: 6, k: 20] = sum(c: 18, r: 1, s: 1) N[n, p + r, q + s, c] * W[k, c, r, s]
stage Y: f32[n: 1, p: 5, q: 6, k: 20] = max(C[n, p, q, k] + B[k], 0)
output Y",
    ),
    (
        "conv_of_parts_padded",
        "workload conv2d
data X: f32[1, 3, 6, 9]
data X2: f32[1, 2, 6, 9]
weight W: f32[8, 5, 3, 3]
stage N: f32[n: 1, c: 5, h: 6, w: 9] = select(0 <= c < 3, X[n, c, h, w], select(0 <= c - 3 < 2, \
X2[n, c - 3, h, w], 0))
stage P: f32[n: 1, c: 5, h: 8, w: 11] = select(0 <= h - 1 < 6 and 0 <= w - 1 < 9, N[n, c, h - 1, w \
- 1], 0)
stage Y: f32[n: 1, k: 8, p: 6, q: 9] = sum(c: 5, r: 3, s: 3) P[n, c, p + r, q + s] * W[k, c, r, s]
output Y",
    ),
    (
        "softmax_across",
        "workload softmax
data X: f32[2, 7, 45]
stage M: f32[a: 2, b: 45] = max(j: 7) X[a, j, b]
stage E: f32[a: 2, j: 7, b: 45] = exp(X[a, j, b] - M[a, b])
stage S: f32[a: 2, b: 45] = sum(j: 7) E[a, j, b]
stage Y: f32[a: 2, j: 7, b: 45] = E[a, j, b] / S[a, b]
output Y",
    ),
    (
        "rotary_short",
        "workload rotary
data X: f32[1, 3, 20, 2, 12]
weight C: f32[1, 20, 12]
weight S: f32[1, 20, 12]
stage Y: f32[a: 1, h: 3, t: 20, p: 2, k: 12] = X[a, h, t, p, k] * C[a, t, k] + select(0 <= p < 1, \
neg(X[a, h, t, 1, k]), X[a, h, t, 0, k]) * S[a, t, k]
output Y",
    ),
    (
        "sums_behind_a_border",
        "workload pool
data X: f32[2, 3, 9]
stage S: f32[a: 2, c: 3, q: 7] = sum(s: 3) X[a, c, q + s]
stage Y: f32[a: 2, c: 3, q: 9] = select(0 <= q - 1 < 7, S[a, c, q - 1], 0)
output Y",
    ),
];
