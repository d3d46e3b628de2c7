//! Test workloads: small tensor expressions of every kind (convolutions, products, pools, softmax,
//! ..) as text, with odd sizes, so that tiles do not divide extents. Each is a name and a text in
//! the workload language; the tests (`semantics.rs`, `gpu.rs`, ..) parse it and run every sketch (a
//! kernel structure with open knobs) on it. The sibling files have further lists of one kind each.

#![allow(dead_code, unused_imports)] // each test uses its part
mod back_to_back;
mod given;
mod parts;
mod separable;
mod strided;
pub use {back_to_back::*, given::*, parts::*, separable::*, strided::*};

pub const CASES: &[(&str, &str)] = &[
    (
        "conv3x3",
        "workload conv2d
data X: f32[1, 6, 9, 11]
weight W: f32[20, 6, 3, 3]
weight B: f32[20]
stage P: f32[n: 1, c: 6, h: 11, w: 13] = select(0 <= h - 1 < 9 and 0 <= w - 1 < 11, X[n, c, h - \
1, w - 1], 0)
stage C: f32[n: 1, k: 20, p: 9, q: 11] = sum(c: 6, r: 3, s: 3) P[n, c, p + r, q + s] * W[k, c, r, s]
stage Y: f32[n: 1, k: 20, p: 9, q: 11] = max(C[n, k, p, q] + B[k], 0)
output Y",
    ),
    (
        "conv3x3_nhwc",
        "workload conv2d
data X: f32[1, 9, 11, 6]
weight W: f32[20, 6, 3, 3]
weight B: f32[20]
stage P: f32[n: 1, h: 11, w: 13, c: 6] = select(0 <= h - 1 < 9 and 0 <= w - 1 < 11, X[n, h - 1, w \
- 1, c], 0)
stage C: f32[n: 1, p: 9, q: 11, k: 20] = sum(c: 6, r: 3, s: 3) P[n, p + r, q + s, c] * W[k, c, r, s]
stage Y: f32[n: 1, p: 9, q: 11, k: 20] = max(C[n, p, q, k] + B[k], 0)
output Y",
    ),
    (
        "largest_of_product",
        "workload matmul
data A: f32[7, 24]
weight B: f32[24, 20]
weight T: f32[20]
data D: f32[1]
stage C: f32[m: 7, n: 20] = sum(k: 24) A[m, k] * B[k, n]
stage Y: f32[m: 7, n: 20] = max(C[m, n] + T[n], 0)
stage M: f32[i: 1] = max(m: 7, n: 20) Y[m, n]
stage Z: f32[i: 1] = M[i] / 255 + D[i]
output Z",
    ),
    (
        "winograd_odd_to_nhwc",
        "workload conv2d
data X: f32[2, 8, 7, 9]
data R: f32[2, 9, 8, 12]
weight W: f32[12, 8, 3, 3]
stage P: f32[n: 2, c: 8, h: 11, w: 10] = select(0 <= h - 2 < 7 and 0 <= w < 9, X[n, c, h - 2, w], 0)
stage C: f32[n: 2, p: 9, q: 8, k: 12] = sum(c: 8, r: 3, s: 3) P[n, c, p + r, q + s] * W[k, c, r, s]
stage Y: f32[n: 2, p: 9, q: 8, k: 12] = max(C[n, p, q, k] + R[n, p, q, k], 0)
output Y",
    ),
    (
        "winograd_from_nhwc",
        "workload conv2d
data X: f32[1, 7, 9, 8]
weight W: f32[12, 8, 3, 3]
stage Y: f32[n: 1, k: 12, p: 5, q: 7] = sum(c: 8, r: 3, s: 3) X[n, p + r, q + s, c] * W[k, c, r, s]
output Y",
    ),
    (
        "conv1x1_s2_nhwc",
        "workload conv2d
data X: f32[1, 8, 10, 7]
data R: f32[1, 4, 5, 36]
weight W: f32[36, 7, 1, 1]
weight B: f32[36]
stage C: f32[n: 1, p: 4, q: 5, k: 36] = sum(c: 7, r: 1, s: 1) X[n, 2*p + r, 2*q + s, c] * W[k, c, \
r, s]
stage Y: f32[n: 1, p: 4, q: 5, k: 36] = max(C[n, p, q, k] + B[k] + R[n, p, q, k], 0)
output Y",
    ),
    (
        "depthwise_nhwc",
        "workload depthwise_conv2d
data X: f32[1, 7, 8, 20]
weight W: f32[20, 3, 3]
weight B: f32[20]
stage P: f32[n: 1, h: 9, w: 10, c: 20] = select(0 <= h - 1 < 7 and 0 <= w - 1 < 8, X[n, h - 1, w \
- 1, c], 0)
stage C: f32[n: 1, p: 7, q: 8, c: 20] = sum(r: 3, s: 3) P[n, p + r, q + s, c] * W[c, r, s]
stage Y: f32[n: 1, p: 7, q: 8, c: 20] = min(max(C[n, p, q, c] + B[c], 0), 6)
output Y",
    ),
    (
        "maxpool_nhwc",
        "workload pool
data X: f32[1, 9, 9, 18]
stage P: f32[n: 1, h: 11, w: 11, c: 18] = select(0 <= h - 1 < 9 and 0 <= w - 1 < 9, X[n, h - 1, w \
- 1, c], -inf)
stage Y: f32[n: 1, p: 5, q: 5, c: 18] = max(r: 3, s: 3) P[n, 2*p + r, 2*q + s, c]
output Y",
    ),
    (
        "winograd_odd",
        "workload conv2d
data X: f32[2, 8, 7, 9]
data R: f32[2, 12, 9, 8]
weight W: f32[12, 8, 3, 3]
stage P: f32[n: 2, c: 8, h: 11, w: 10] = select(0 <= h - 2 < 7 and 0 <= w < 9, X[n, c, h - 2, w], 0)
stage C: f32[n: 2, k: 12, p: 9, q: 8] = sum(c: 8, r: 3, s: 3) P[n, c, p + r, q + s] * W[k, c, r, s]
stage Y: f32[n: 2, k: 12, p: 9, q: 8] = max(C[n, k, p, q] + R[n, k, p, q], 0)
output Y",
    ),
    (
        "conv_valid",
        "workload conv2d
data X: f32[1, 4, 8, 12]
weight W: f32[5, 4, 3, 3]
stage Y: f32[n: 1, k: 5, p: 6, q: 10] = sum(c: 4, r: 3, s: 3) X[n, c, p + r, q + s] * W[k, c, r, s]
output Y",
    ),
    (
        "conv_s2_residual",
        "workload conv2d
data X: f32[2, 3, 12, 12]
data R: f32[2, 16, 6, 6]
weight W: f32[16, 3, 3, 3]
stage P: f32[n: 2, c: 3, h: 14, w: 14] = select(0 <= h - 1 < 12 and 0 <= w - 1 < 12, X[n, c, h - \
1, w - 1], 0)
stage C: f32[n: 2, k: 16, p: 6, q: 6] = sum(c: 3, r: 3, s: 3) P[n, c, 2*p + r, 2*q + s] * W[k, c, \
r, s]
stage Y: f32[n: 2, k: 16, p: 6, q: 6] = max(C[n, k, p, q] + R[n, k, p, q], 0)
output Y",
    ),
    (
        "conv1x1",
        "workload conv2d
data X: f32[1, 8, 7, 7]
weight W: f32[24, 8, 1, 1]
stage Y: f32[n: 1, k: 24, p: 7, q: 7] = sum(c: 8, r: 1, s: 1) X[n, c, p + r, q + s] * W[k, c, r, s]
output Y",
    ),
    (
        "conv_grouped",
        "workload conv2d
data X: f32[1, 8, 6, 6]
weight W: f32[2, 8, 4, 3, 3]
stage P: f32[n: 1, c: 8, h: 8, w: 8] = select(0 <= h - 1 < 6 and 0 <= w - 1 < 6, X[n, c, h - 1, w \
- 1], 0)
stage Y: f32[n: 1, g: 2, k: 8, p: 6, q: 6] = sum(c: 4, r: 3, s: 3) P[n, 4*g + c, p + r, q + s] * \
W[g, k, c, r, s]
output Y",
    ),
    (
        "depthwise",
        "workload depthwise_conv2d
data X: f32[1, 5, 10, 9]
weight W: f32[5, 3, 3]
weight B: f32[5]
stage P: f32[n: 1, c: 5, h: 12, w: 11] = select(0 <= h - 1 < 10 and 0 <= w - 1 < 9, X[n, c, h - \
1, w - 1], 0)
stage C: f32[n: 1, c: 5, p: 10, q: 9] = sum(r: 3, s: 3) P[n, c, p + r, q + s] * W[c, r, s]
stage Y: f32[n: 1, c: 5, p: 10, q: 9] = min(max(C[n, c, p, q] + B[c], 0), 6)
output Y",
    ),
    (
        "depthwise_s2",
        "workload depthwise_conv2d
data X: f32[1, 4, 16, 16]
weight W: f32[4, 3, 3]
stage P: f32[n: 1, c: 4, h: 18, w: 18] = select(0 <= h - 1 < 16 and 0 <= w - 1 < 16, X[n, c, h - \
1, w - 1], 0)
stage Y: f32[n: 1, c: 4, p: 8, q: 8] = sum(r: 3, s: 3) P[n, c, 2*p + r, 2*q + s] * W[c, r, s]
output Y",
    ),
    (
        "maxpool",
        "workload pool
data X: f32[1, 3, 13, 13]
stage P: f32[n: 1, c: 3, h: 15, w: 15] = select(0 <= h - 1 < 13 and 0 <= w - 1 < 13, X[n, c, h - \
1, w - 1], -inf)
stage Y: f32[n: 1, c: 3, p: 7, q: 7] = max(r: 3, s: 3) P[n, c, 2*p + r, 2*q + s]
output Y",
    ),
    (
        "matmul",
        "workload matmul
data A: f32[14, 24]
data B: f32[24, 40]
stage Y: f32[m: 14, n: 40] = sum(k: 24) A[m, k] * B[k, n]
output Y",
    ),
    (
        "matmul_weight_odd",
        "workload matmul
data A: f32[7, 13]
weight B: f32[19, 13]
weight C: f32[19]
stage T: f32[m: 7, n: 19] = sum(k: 13) A[m, k] * B[n, k]
stage Y: f32[m: 7, n: 19] = T[m, n] + C[n]
output Y",
    ),
    (
        "matvec",
        "workload matmul
data A: f32[1, 48]
weight B: f32[48, 70]
stage Y: f32[m: 1, n: 70] = sum(k: 48) A[m, k] * B[k, n]
output Y",
    ),
    (
        "batch_matmul",
        "workload batch_matmul
data A: f32[3, 9, 8]
data B: f32[3, 8, 17]
stage Y: f32[b: 3, m: 9, n: 17] = sum(k: 8) A[b, m, k] * B[b, k, n]
output Y",
    ),
    (
        "softmax",
        "workload softmax
data X: f32[5, 37]
stage M: f32[i: 5] = max(j: 37) X[i, j]
stage E: f32[i: 5, j: 37] = exp(X[i, j] - M[i])
stage S: f32[i: 5] = sum(j: 37) E[i, j]
stage Y: f32[i: 5, j: 37] = E[i, j] / S[i]
output Y",
    ),
    (
        "layernorm",
        "workload layernorm
data X: f32[6, 50]
weight G: f32[50]
weight B: f32[50]
stage S: f32[i: 6] = sum(j: 50) X[i, j]
stage M: f32[i: 6] = S[i] / 50
stage D: f32[i: 6, j: 50] = X[i, j] - M[i]
stage V: f32[i: 6] = sum(j: 50) D[i, j] * D[i, j]
stage Y: f32[i: 6, j: 50] = D[i, j] / sqrt(V[i] / 50 + 0.00001) * G[j] + B[j]
output Y",
    ),
    (
        "global_average",
        "workload reduce
data X: f32[1, 12, 7, 7]
stage S: f32[n: 1, c: 12] = sum(h: 7, w: 7) X[n, c, h, w]
stage Y: f32[n: 1, c: 12] = S[n, c] / 49
output Y",
    ),
    (
        "mean_over_middle",
        "workload reduce
data X: f32[3, 10, 24]
stage S: f32[a: 3, b: 24] = sum(k: 10) X[a, k, b]
stage Y: f32[a: 3, b: 24] = S[a, b] / 10
output Y",
    ),
    (
        "average_border",
        "workload pool
data X: f32[1, 3, 8, 8]
stage P: f32[n: 1, c: 3, h: 10, w: 10] = select(0 <= h - 1 < 8 and 0 <= w - 1 < 8, X[n, c, h - 1, \
w - 1], 0)
stage S: f32[n: 1, c: 3, p: 8, q: 8] = sum(r: 3, s: 3) P[n, c, p + r, q + s]
stage N: f32[p: 8, q: 8] = sum(r: 3, s: 3) select(0 <= p + r - 1 < 8 and 0 <= q + s - 1 < 8, 1, 0)
stage Y: f32[n: 1, c: 3, p: 8, q: 8] = S[n, c, p, q] / N[p, q]
output Y",
    ),
    (
        "gelu",
        "workload elementwise
data X: f32[3, 45]
stage Y: f32[i: 3, j: 45] = 0.5 * X[i, j] * (1 + erf(X[i, j] / 1.4142135))
output Y",
    ),
    (
        "scale_channel",
        "workload elementwise
data X: f32[1, 4, 6, 6]
data G: f32[4]
stage Y: f32[c: 4, h: 6, w: 6] = max(X[0, c, h, w] * sigmoid(G[c]), tanh(X[0, c, h, w]))
output Y",
    ),
    (
        "softmax_one_row",
        "workload softmax
data X: f32[1, 21]
stage M: f32[i: 1] = max(j: 21) X[i, j]
stage E: f32[i: 1, j: 21] = exp(X[i, j] - M[i])
stage S: f32[i: 1] = sum(j: 21) E[i, j]
stage Y: f32[i: 1, j: 21] = E[i, j] / S[i]
output Y",
    ),
    (
        "one_element",
        "workload reduce
data X: f32[100]
stage Y: f32[i: 1] = sum(k: 100) X[k]
output Y",
    ),
    (
        "backward_data",
        "workload conv2d_backward_data
data X: f32[1, 12, 8, 12]
weight W: f32[12, 8, 3, 3]
stage P: f32[n: 1, k: 12, h: 10, w: 14] = select(0 <= h - 1 < 8 and 0 <= w - 1 < 12, X[n, k, h \
- 1, w - 1], 0)
stage V: f32[c: 8, k: 12, r: 3, s: 3] = W[k, c, -r + 2, -s + 2]
stage Y: f32[n: 1, c: 8, h: 8, w: 12] = sum(k: 12, r: 3, s: 3) P[n, k, h + r, s + w] * V[c, k, \
r, s]
output Y",
    ),
    (
        "backward_data_nhwc",
        "workload conv2d_backward_data
data X: f32[1, 8, 12, 12]
weight W: f32[12, 8, 3, 3]
stage P: f32[n: 1, h: 10, w: 14, k: 12] = select(0 <= h - 1 < 8 and 0 <= w - 1 < 12, X[n, h - \
1, w - 1, k], 0)
stage V: f32[c: 8, k: 12, r: 3, s: 3] = W[k, c, -r + 2, -s + 2]
stage Y: f32[n: 1, h: 8, w: 12, c: 8] = sum(k: 12, r: 3, s: 3) P[n, h + r, s + w, k] * V[c, k, \
r, s]
output Y",
    ),
    (
        "backward_data_s2",
        "workload conv2d_backward_data
data X: f32[1, 6, 4, 6]
weight W: f32[6, 8, 3, 3]
stage P: f32[n: 1, k: 6, h: 6, w: 8] = select(0 <= h - 1 < 4 and 0 <= w - 1 < 6, X[n, k, h - 1, \
w - 1], 0)
stage V: f32[y: 2, x: 2, c: 8, k: 6, r: 2, s: 2] = select(0 <= -2*r - y + 3 < 3 and 0 <= -2*s - \
x + 3 < 3, W[k, c, -2*r - y + 3, -2*s - x + 3], 0)
stage Y: f32[n: 1, c: 8, h: 4, y: 2, w: 6, x: 2] = sum(k: 6, r: 2, s: 2) P[n, k, h + r + y, s + \
w + x] * V[y, x, c, k, r, s]
output Y",
    ),
    (
        "backward_data_s2_batch",
        "workload conv2d_backward_data
data X: f32[2, 4, 4, 6]
weight W: f32[4, 8, 3, 3]
stage P: f32[n: 2, k: 4, h: 6, w: 8] = select(0 <= h - 1 < 4 and 0 <= w - 1 < 6, X[n, k, h - 1, \
w - 1], 0)
stage V: f32[y: 2, x: 2, c: 8, k: 4, r: 2, s: 2] = select(0 <= -2*r - y + 3 < 3 and 0 <= -2*s - \
x + 3 < 3, W[k, c, -2*r - y + 3, -2*s - x + 3], 0)
stage Y: f32[n: 2, c: 8, h: 4, y: 2, w: 6, x: 2] = sum(k: 4, r: 2, s: 2) P[n, k, h + r + y, s + \
w + x] * V[y, x, c, k, r, s]
output Y",
    ),
    (
        "backward_data_s2_nhwc",
        "workload conv2d_backward_data
data X: f32[1, 4, 6, 6]
weight W: f32[6, 8, 3, 3]
stage P: f32[n: 1, h: 6, w: 8, k: 6] = select(0 <= h - 1 < 4 and 0 <= w - 1 < 6, X[n, h - 1, w \
- 1, k], 0)
stage V: f32[y: 2, x: 2, c: 8, k: 6, r: 2, s: 2] = select(0 <= -2*r - y + 3 < 3 and 0 <= -2*s - \
x + 3 < 3, W[k, c, -2*r - y + 3, -2*s - x + 3], 0)
stage Y: f32[n: 1, h: 4, y: 2, w: 6, x: 2, c: 8] = sum(k: 6, r: 2, s: 2) P[n, h + r + y, s + w \
+ x, k] * V[y, x, c, k, r, s]
output Y",
    ),
    (
        "backward_data_1x1_s2",
        "workload conv2d_backward_data
data X: f32[1, 6, 4, 6]
weight W: f32[6, 8, 1, 1]
stage V: f32[y: 2, x: 2, c: 8, k: 6, r: 1, s: 1] = select(0 <= -2*r + y < 1 and 0 <= -2*s + x < \
1, W[k, c, -2*r + y, -2*s + x], 0)
stage Y: f32[n: 1, c: 8, h: 4, y: 2, w: 6, x: 2] = sum(k: 6, r: 1, s: 1) X[n, k, h + r, s + w] \
* V[y, x, c, k, r, s]
output Y",
    ),
    (
        "backward_data_grouped",
        "workload conv2d_backward_data
data X: f32[1, 12, 8, 12]
weight W: f32[2, 6, 4, 3, 3]
stage P: f32[n: 1, k: 12, h: 10, w: 14] = select(0 <= h - 1 < 8 and 0 <= w - 1 < 12, X[n, k, h \
- 1, w - 1], 0)
stage V: f32[g: 2, c: 4, k: 6, r: 3, s: 3] = W[g, k, c, -r + 2, -s + 2]
stage Y: f32[n: 1, g: 2, c: 4, h: 8, w: 12] = sum(k: 6, r: 3, s: 3) P[n, 6*g + k, h + r, s + w] \
* V[g, c, k, r, s]
output Y",
    ),
    (
        "backward_weights",
        "workload conv2d_backward_weights
data X: f32[2, 8, 8, 12]
data G: f32[2, 12, 8, 12]
stage P: f32[n: 2, h: 10, w: 14, c: 8] = select(0 <= h - 1 < 8 and 0 <= w - 1 < 12, X[n, c, h - \
1, w - 1], 0)
stage Y: f32[k: 12, c: 8, r: 3, s: 3] = sum(n: 2, p: 8, q: 12) G[n, k, p, q] * P[n, p + r, q + \
s, c]
output Y",
    ),
    (
        "attention",
        "workload attention
data Q: f32[2, 11, 6]
data K: f32[2, 19, 6]
data V: f32[2, 19, 12]
stage S: f32[b: 2, m: 11, n: 19] = sum(k: 6) Q[b, m, k] * K[b, n, k]
stage X: f32[b: 2, m: 11] = max(n: 19) S[b, m, n]
stage E: f32[b: 2, m: 11, n: 19] = exp((S[b, m, n] - X[b, m]) * 0.5)
stage D: f32[b: 2, m: 11] = sum(n: 19) E[b, m, n]
stage O: f32[b: 2, m: 11, c: 12] = sum(n: 19) E[b, m, n] * V[b, n, c]
stage Y: f32[b: 2, m: 11, c: 12] = O[b, m, c] / D[b, m]
output Y",
    ),
    (
        "attention_of_heads_between_others",
        "workload attention
data Q: f32[11, 2, 6]
data K: f32[19, 2, 6]
data V: f32[19, 2, 12]
stage S: f32[b: 2, m: 11, n: 19] = sum(k: 6) Q[m, b, k] * K[n, b, k]
stage X: f32[b: 2, m: 11] = max(n: 19) S[b, m, n]
stage E: f32[b: 2, m: 11, n: 19] = exp(S[b, m, n] - X[b, m])
stage D: f32[b: 2, m: 11] = sum(n: 19) E[b, m, n]
stage O: f32[m: 11, b: 2, c: 12] = sum(n: 19) E[b, m, n] * V[n, b, c]
stage Y: f32[m: 11, b: 2, c: 12] = O[m, b, c] / D[b, m]
output Y",
    ),
    (
        "attention_masked",
        "workload attention
data Q: f32[9, 8]
data K: f32[8, 16]
data V: f32[16, 8]
data R: f32[9, 16]
stage A: f32[m: 9, n: 16] = sum(k: 8) Q[m, k] * K[k, n]
stage S: f32[m: 9, n: 16] = A[m, n] * 0.25 + R[m, n]
stage X: f32[m: 9] = max(n: 16) S[m, n]
stage E: f32[m: 9, n: 16] = exp(S[m, n] - X[m])
stage D: f32[m: 9] = sum(n: 16) E[m, n]
stage O: f32[m: 9, c: 8] = sum(n: 16) E[m, n] * V[n, c]
stage Y: f32[c: 8, m: 9] = O[m, c] / D[m]
output Y",
    ),
    (
        "attention_with_a_known_bias",
        "workload attention
data A: f32[19, 3, 8]
data B: f32[22, 3, 8]
data M: f32[22]
weight R: f32[3, 19, 22]
data V: f32[22, 3, 8]
data Z: f32[19, 3, 8]
stage T: f32[b: 3, m: 19, n: 22] = sum(k: 8) A[m, b, k] * B[n, b, k]
stage U: f32[b: 3, m: 19, n: 22] = T[b, m, n] * 0.125 + M[n]
stage S: f32[b: 3, m: 19, n: 22] = U[b, m, n] + R[b, m, n]
stage X: f32[b: 3, m: 19] = max(n: 22) S[b, m, n]
stage E: f32[b: 3, m: 19, n: 22] = exp(S[b, m, n] - X[b, m])
stage D: f32[b: 3, m: 19] = sum(n: 22) E[b, m, n]
stage O: f32[b: 3, m: 19, c: 8] = sum(n: 22) E[b, m, n] * V[n, b, c]
stage Y: f32[m: 19, b: 3, c: 8] = O[b, m, c] / D[b, m] + Z[m, b, c]
output Y",
    ),
    (
        "backward_weights_large",
        "workload conv2d_backward_weights
data X: f32[2, 3, 18, 20]
data G: f32[2, 4, 18, 20]
stage P: f32[n: 2, h: 20, w: 22, c: 3] = select(0 <= h - 1 < 18 and 0 <= w - 1 < 20, X[n, c, h - \
1, w - 1], 0)
stage Y: f32[k: 4, c: 3, r: 3, s: 3] = sum(n: 2, p: 18, q: 20) G[n, k, p, q] * P[n, p + r, q + \
s, c]
output Y",
    ),
    (
        "backward_weights_s2",
        "workload conv2d_backward_weights
data X: f32[1, 8, 8, 12]
data G: f32[1, 12, 4, 6]
stage P: f32[n: 1, h: 10, w: 14, c: 8] = select(0 <= h - 1 < 8 and 0 <= w - 1 < 12, X[n, c, h - \
1, w - 1], 0)
stage Y: f32[k: 12, c: 8, r: 3, s: 3] = sum(n: 1, p: 4, q: 6) G[n, k, p, q] * P[n, 2*p + r, 2*q \
+ s, c]
output Y",
    ),
    (
        "backward_weights_1x1",
        "workload conv2d_backward_weights
data X: f32[1, 8, 8, 12]
data G: f32[1, 12, 8, 12]
stage Y: f32[k: 12, c: 8, r: 1, s: 1] = sum(n: 1, p: 8, q: 12) G[n, k, p, q] * X[n, c, p + r, q \
+ s]
output Y",
    ),
    (
        "backward_weights_nhwc",
        "workload conv2d_backward_weights
data X: f32[1, 8, 12, 8]
data G: f32[1, 8, 12, 12]
stage P: f32[n: 1, h: 10, w: 14, c: 8] = select(0 <= h - 1 < 8 and 0 <= w - 1 < 12, X[n, h - 1, \
w - 1, c], 0)
stage Y: f32[k: 12, r: 3, s: 3, c: 8] = sum(n: 1, p: 8, q: 12) G[n, p, q, k] * P[n, p + r, q + \
s, c]
output Y",
    ),
    (
        "backward_weights_grouped",
        "workload conv2d_backward_weights
data X: f32[1, 8, 8, 12]
data G: f32[1, 12, 8, 12]
stage P: f32[n: 1, h: 10, w: 14, c: 8] = select(0 <= h - 1 < 8 and 0 <= w - 1 < 12, X[n, c, h - \
1, w - 1], 0)
stage Y: f32[g: 2, k: 6, c: 4, r: 3, s: 3] = sum(n: 1, p: 8, q: 12) G[n, 6*g + k, p, q] * P[n, \
p + r, q + s, c + 4*g]
output Y",
    ),
    (
        "depthwise_backward_weights",
        "workload depthwise_conv2d_backward_weights
data X: f32[1, 8, 8, 12]
data G: f32[1, 8, 8, 12]
stage P: f32[n: 1, h: 10, w: 14, c: 8] = select(0 <= h - 1 < 8 and 0 <= w - 1 < 12, X[n, c, h - \
1, w - 1], 0)
stage Y: f32[g: 8, k: 1, c: 1, r: 3, s: 3] = sum(n: 1, p: 8, q: 12) G[n, g + k, p, q] * P[n, p \
+ r, q + s, c + g]
output Y",
    ),
    (
        "conv3d",
        "workload conv3d
data X: f32[1, 8, 4, 6, 8]
weight W: f32[6, 8, 3, 3, 3]
stage P: f32[n: 1, c: 8, d: 6, h: 8, w: 10] = select(0 <= d - 1 < 4 and 0 <= h - 1 < 6 and 0 <= \
w - 1 < 8, X[n, c, d - 1, h - 1, w - 1], 0)
stage Y: f32[n: 1, k: 6, o: 4, p: 6, q: 8] = sum(c: 8, t: 3, r: 3, s: 3) P[n, c, o + t, p + r, \
q + s] * W[k, c, t, r, s]
output Y",
    ),
    (
        "conv3d_batch_nhwc",
        "workload conv3d
data X: f32[2, 4, 6, 8, 4]
weight W: f32[6, 4, 3, 1, 3]
stage P: f32[n: 2, d: 6, h: 6, w: 10, c: 4] = select(0 <= d - 1 < 4 and 0 <= w - 1 < 8, X[n, d \
- 1, h, w - 1, c], 0)
stage Y: f32[n: 2, o: 2, p: 6, q: 8, k: 6] = sum(c: 4, t: 3, r: 1, s: 3) P[n, 2*o + t, p + r, q \
+ s, c] * W[k, c, t, r, s]
output Y",
    ),
    (
        "conv3d_backward_weights",
        "workload conv3d_backward_weights
data X: f32[1, 4, 4, 5, 6]
data G: f32[1, 6, 4, 5, 6]
stage P: f32[n: 1, d: 6, h: 7, w: 8, c: 4] = select(0 <= d - 1 < 4 and 0 <= h - 1 < 5 and 0 <= \
w - 1 < 6, X[n, c, d - 1, h - 1, w - 1], 0)
stage Y: f32[k: 6, c: 4, t: 3, r: 3, s: 3] = sum(n: 1, o: 4, p: 5, q: 6) G[n, k, o, p, q] * \
P[n, o + t, p + r, q + s, c]
output Y",
    ),
    (
        "conv3d_backward_data_s2",
        "workload conv3d_backward_data
data X: f32[1, 4, 2, 2, 4]
weight W: f32[4, 4, 3, 3, 3]
stage P: f32[n: 1, k: 4, d: 4, h: 4, w: 6] = select(0 <= d - 1 < 2 and 0 <= h - 1 < 2 and 0 <= \
w - 1 < 4, X[n, k, d - 1, h - 1, w - 1], 0)
stage V: f32[a: 2, y: 2, x: 2, c: 4, k: 4, t: 2, r: 2, s: 2] = select(0 <= -a - 2*t + 3 < 3 and \
0 <= -2*r - y + 3 < 3 and 0 <= -2*s - x + 3 < 3, W[k, c, -a - 2*t + 3, -2*r - y + 3, -2*s - x + \
3], 0)
stage Y: f32[n: 1, c: 4, d: 2, a: 2, h: 2, y: 2, w: 4, x: 2] = sum(k: 4, t: 2, r: 2, s: 2) P[n, \
k, a + d + t, h + r + y, s + w + x] * V[a, y, x, c, k, t, r, s]
output Y",
    ),
    (
        "conv_after_norm",
        "workload conv2d
data X: f32[1, 12, 6, 8]
weight S: f32[12]
weight T: f32[12]
weight W: f32[8, 12, 1, 1]
stage N: f32[n: 1, c: 12, h: 6, w: 8] = max(X[n, c, h, w] * S[c] + T[c], 0)
stage Y: f32[n: 1, k: 8, p: 6, q: 8] = sum(c: 12, r: 1, s: 1) N[n, c, p + r, q + s] * W[k, c, r, s]
output Y",
    ),
    (
        "conv_after_norm_padded",
        "workload conv2d
data X: f32[2, 4, 6, 8]
weight S: f32[4]
weight W: f32[8, 4, 3, 3]
stage P: f32[n: 2, c: 4, h: 8, w: 10] = select(0 <= h - 1 < 6 and 0 <= w - 1 < 8, max(X[n, c, h \
- 1, w - 1] * S[c], 0), 0)
stage Y: f32[n: 2, k: 8, p: 3, q: 8] = sum(c: 4, r: 3, s: 3) P[n, c, 2*p + r, q + s] * W[k, c, r, s]
output Y",
    ),
];
