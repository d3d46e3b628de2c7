//! Workloads of two operators back to back (the second alone reads the first's result), for tests
//! of the sketches (kernel structures with open knobs) that make them one kernel: expansion and
//! depthwise convolution, convolution and pooling, and others, in both layouts. Each is a name and
//! a text that `semantics.rs` and `gpu.rs` parse.

/// Names and texts of the workloads, like [`super::CASES`].
pub const BACK_TO_BACK: &[(&str, &str)] = &[
    (
        "expand_and_depthwise",
        "workload back_to_back
data X: f32[1, 6, 7, 9]
weight W: f32[24, 6, 1, 1]
weight B: f32[24]
weight D: f32[24, 1, 3, 3]
weight B1: f32[24]
stage C: f32[n: 1, k: 24, p: 7, q: 9] = sum(c: 6, r: 1, s: 1) X[n, c, p + r, q + s] * W[k, c, r, s]
stage E: f32[n: 1, k: 24, p: 7, q: 9] = min(max(C[n, k, p, q] + B[k], 0), 6)
stage P: f32[n: 1, c: 24, h: 9, w: 11] = select(0 <= h - 1 < 7 and 0 <= w - 1 < 9, E[n, c, h - 1, \
w - 1], 0)
stage C1: f32[n: 1, k: 24, p: 4, q: 5] = sum(r: 3, s: 3) P[n, k, 2*p + r, 2*q + s] * D[k, 0, r, s]
stage Y: f32[n: 1, k: 24, p: 4, q: 5] = min(max(C1[n, k, p, q] + B1[k], 0), 6)
output Y",
    ),
    (
        "expand_and_depthwise_nhwc",
        "workload back_to_back
data X: f32[2, 7, 9, 6]
weight W: f32[16, 6, 1, 1]
weight D: f32[16, 1, 3, 3]
stage E: f32[n: 2, k: 16, p: 7, q: 9] = sum(c: 6, r: 1, s: 1) X[n, p + r, q + s, c] * W[k, c, r, s]
stage P: f32[n: 2, c: 16, h: 9, w: 11] = select(0 <= h - 1 < 7 and 0 <= w - 1 < 9, E[n, c, h - 1, \
w - 1], 0)
stage Y: f32[n: 2, p: 7, q: 9, k: 16] = sum(r: 3, s: 3) P[n, k, p + r, q + s] * D[k, 0, r, s]
output Y",
    ),
    (
        "conv_and_pool",
        "workload back_to_back
data X: f32[1, 3, 11, 12]
weight W: f32[20, 3, 3, 3]
weight B: f32[20]
stage P: f32[n: 1, c: 3, h: 13, w: 14] = select(0 <= h - 1 < 11 and 0 <= w - 1 < 12, X[n, c, h - \
1, w - 1], 0)
stage C: f32[n: 1, k: 20, p: 11, q: 12] = sum(c: 3, r: 3, s: 3) P[n, c, p + r, q + s] * W[k, c, r, \
s]
stage E: f32[n: 1, k: 20, p: 11, q: 12] = max(C[n, k, p, q] + B[k], 0)
stage Y: f32[n: 1, c: 20, p: 5, q: 5] = max(r: 3, s: 3) E[n, c, 2*p + r, 2*q + s]
output Y",
    ),
    (
        "two_products",
        "workload back_to_back
data A: f32[24, 10]
weight B: f32[10, 36]
weight T: f32[36]
weight B1: f32[36, 18]
stage C: f32[m: 24, n: 36] = sum(k: 10) A[m, k] * B[k, n]
stage E: f32[m: 24, n: 36] = max(C[m, n] + T[n], 0)
stage Y: f32[m: 24, n: 18] = sum(k: 36) E[m, k] * B1[k, n]
output Y",
    ),
    (
        "product_and_softmax",
        "workload back_to_back
data A: f32[24, 10]
weight B: f32[10, 33]
stage E: f32[m: 24, n: 33] = sum(k: 10) A[m, k] * B[k, n]
stage M: f32[i: 24] = max(j: 33) E[i, j]
stage S: f32[i: 24] = sum(j: 33) exp(E[i, j] - M[i])
stage Y: f32[i: 24, j: 33] = exp(E[i, j] - M[i]) / S[i]
output Y",
    ),
    (
        "norm_and_product",
        "workload back_to_back
data X: f32[24, 19]
weight G: f32[19]
weight B: f32[19]
weight W: f32[19, 21]
stage S: f32[i: 24] = sum(j: 19) X[i, j]
stage D: f32[i: 24, j: 19] = X[i, j] - S[i] / 19
stage V: f32[i: 24] = sum(j: 19) D[i, j] * D[i, j]
stage E: f32[i: 24, j: 19] = D[i, j] / sqrt(V[i] / 19 + 1e-5) * G[j] + B[j]
stage C: f32[m: 24, n: 21] = sum(k: 19) E[m, k] * W[k, n]
stage Y: f32[m: 24, n: 21] = max(C[m, n], 0)
output Y",
    ),
    (
        "softmax_and_product",
        "workload back_to_back
data A: f32[24, 33]
weight B: f32[33, 10]
stage M: f32[i: 24] = max(j: 33) A[i, j]
stage S: f32[i: 24] = sum(j: 33) exp(A[i, j] - M[i])
stage E: f32[i: 24, j: 33] = exp(A[i, j] - M[i]) / S[i]
stage Y: f32[m: 24, n: 10] = sum(k: 33) E[m, k] * B[k, n]
output Y",
    ),
];
