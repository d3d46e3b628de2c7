//! The rows of onnxruntime's own operators (domain `com.microsoft`) in the campaign's table of
//! random graphs (`rows/mod.rs`). Squall's reader rewrites these operators as standard ones. A
//! row's function draws one use of the operator, a node with operands and attributes, in the graph
//! under construction (`graph.rs`); its effect, such as `Keeps` or `Rounds`, says whether results
//! stay exact. `cargo xtask campaign graphs` runs the graphs by Squall and by onnxruntime.

use super::Row;
use crate::campaign::graphs::graph::Effect::Amplifies;
use crate::campaign::graphs::graph::{Call, Fill, Graph};
use squall_core::DType::{F32, U8};
use squall_testing::onnx::{float, int, text};

const fn row(op: &'static str, make: fn(&mut Graph<'_>) -> Option<Call>) -> Row {
    Row::own(op, Amplifies, make).tame()
}

// onnxruntime computes several of them by approximations that hold for tame numbers.
pub const ROWS: &[Row] = &[
    row("com.microsoft.BiasGelu", |g| {
        let (x, bias) = biased(g);
        Some(Call::of(&[x, bias]))
    }),
    row("com.microsoft.FastGelu", |g| {
        let (x, bias) = biased(g);
        Some(Call::of(&[x]).and(g.coin().then_some(bias)))
    }),
    row("com.microsoft.Gelu", |g| {
        let x = g.floats(1, 4);
        Some(Call::of(&[x]))
    }),
    row("com.microsoft.QuickGelu", |g| {
        let x = g.floats(1, 4);
        let alpha = g.within(2, 8) as f32 / 4.0;
        Some(Call::of(&[x]).with(float("alpha", alpha)))
    }),
    row("com.microsoft.FusedMatMul", |g| {
        let (b, m, k, n) = (g.within(1, 3), g.within(1, 9), g.within(1, 9), g.within(1, 9));
        let (left, right) = (g.within(0, 1), g.within(0, 1));
        let x = g.fresh(F32, &if left == 1 { [b, k, m] } else { [b, m, k] }, Fill::Tame);
        let y = g.fresh(F32, &if right == 1 { [b, n, k] } else { [b, k, n] }, Fill::Tame);
        let call = Call::of(&[x, y]).with(int("transA", left)).with(int("transB", right));
        Some(call.with(float("alpha", 0.5)))
    }),
    row("com.microsoft.FusedGemm", |g| {
        let (m, k, n) = (g.within(1, 9), g.within(1, 9), g.within(1, 9));
        let x = g.fresh(F32, &[m, k], Fill::Tame);
        let y = g.fresh(F32, &[k, n], Fill::Tame);
        let c = g.fresh(F32, &[n], Fill::Tame);
        let how = g.draw.one(&["Relu", "Sigmoid", "Tanh", "LeakyRelu"]).to_string();
        let call = Call::of(&[x, y, c]).with(text("activation", &how));
        Some(if how == "LeakyRelu" { call.with(float("activation_alpha", 0.25)) } else { call })
    }),
    row("com.microsoft.SkipLayerNormalization", |g| {
        let (shape, last) = rows(g);
        let [x, skip] = [(); 2].map(|()| g.fresh(F32, &shape, Fill::Tame));
        let [scale, shift, bias] = [(); 3].map(|()| g.fresh(F32, &[last], Fill::Tame));
        let call = Call::of(&[x, skip, scale]).and(g.coin().then_some(shift));
        Some(call.and(g.coin().then_some(bias)).with(float("epsilon", 1e-2)))
    }),
    row("com.microsoft.SkipSimplifiedLayerNormalization", |g| {
        let (shape, last) = rows(g);
        let [x, skip] = [(); 2].map(|()| g.fresh(F32, &shape, Fill::Tame));
        let [scale, bias] = [(); 2].map(|()| g.fresh(F32, &[last], Fill::Tame));
        let call = Call::of(&[x, skip, scale]).and(g.coin().then_some(bias));
        Some(call.with(float("epsilon", 1e-2)))
    }),
    row("com.microsoft.MultiHeadAttention", |g| {
        let (b, s, t, heads) = (g.within(1, 2), g.within(1, 5), g.within(1, 5), g.within(1, 3));
        let (wide, deep) = (heads * g.within(1, 4), heads * g.within(1, 4));
        let q = g.fresh(F32, &[b, s, wide], Fill::Tame);
        let k = g.fresh(F32, &[b, t, wide], Fill::Tame);
        let v = g.fresh(F32, &[b, t, deep], Fill::Tame);
        Some(Call::of(&[q, k, v]).with(int("num_heads", heads)))
    }),
    row("com.microsoft.MatMulNBits", |g| {
        let (m, n, blocks) = (g.within(1, 4), g.within(1, 9), g.within(1, 3));
        let size = [16, 32][g.draw.below(2)];
        let x = g.fresh(F32, &[m, blocks * size], Fill::Tame);
        let w = g.tensor(U8, &[n, blocks, size / 2], Fill::Within(0, 255), true);
        let scales = g.tensor(F32, &[n * blocks], Fill::Positive, true);
        let call = Call::of(&[x, w, scales]).with(int("K", blocks * size)).with(int("N", n));
        Some(call.with(int("bits", 4)).with(int("block_size", size)))
    }),
];

/// A tensor and a bias along its last axis.
fn biased(g: &mut Graph<'_>) -> (usize, usize) {
    let x = g.floats(1, 4);
    let last = g.shape_of(x).last().copied().unwrap_or(1);
    let bias = g.fresh(F32, &[last], Fill::Tame);
    (x, bias)
}

/// The shape of rows that are normalised, and their length.
fn rows(g: &mut Graph<'_>) -> (Vec<i64>, i64) {
    let (b, s, last) = (g.within(1, 3), g.within(1, 5), g.within(2, 9));
    (vec![b, s, last], last)
}
