//! The rows of operators on images, regions and signals, and of losses (`Resize`, `GridSample`,
//! `DFT`, ..) in the campaign's table of random graphs (`rows/mod.rs`). A row's function draws one
//! use of the operator, a node with operands and attributes, in the graph under construction
//! (`graph.rs`); its effect, such as `Keeps` or `Rounds`, says whether results stay exact.
//! `cargo xtask campaign graphs` runs the graphs by Squall and by onnxruntime.

use super::Row;
use crate::campaign::graphs::graph::Effect::{Amplifies, Exact, Keeps, Rounds};
use crate::campaign::graphs::graph::{Call, Fill, Graph};
use squall_core::DType::{F32, I64};
use squall_testing::onnx::{int, ints, text};

// Places between elements are computed by each in its own order: numbers are tame, and factors of
// sizes powers of two, so that no place lies beside a border by rounding alone.
pub const ROWS: &[Row] = &[
    Row::own("Resize", Rounds, resize).since(13).tame(),
    Row::own("GridSample", Amplifies, grid).since(16).tame(),
    Row::own("AffineGrid", Amplifies, |g| {
        let (n, h, w) = (g.within(1, 2), g.within(2, 6), g.within(2, 6));
        let t = g.fresh(F32, &[n, 2, 3], Fill::Tame);
        let size = g.list(&[n, 1, h, w]);
        let corners = g.within(0, 1);
        Some(Call::of(&[t, size]).with(int("align_corners", corners)))
    })
    .since(20)
    .tame(),
    Row::own("Col2Im", Rounds, |g| {
        let (n, c, h, w) = (g.within(1, 2), g.within(1, 3), g.within(3, 6), g.within(3, 6));
        let (a, b) = (g.within(1, 3), g.within(1, 3));
        let places = (h - a + 1) * (w - b + 1);
        let x = g.fresh(F32, &[n, c * a * b, places], Fill::Any);
        let (image, block) = (g.list(&[h, w]), g.list(&[a, b]));
        Some(Call::of(&[x, image, block]))
    })
    .since(18),
    Row::own("RoiAlign", Amplifies, |g| {
        let (n, c, e) = (g.within(1, 2), g.within(1, 3), g.within(3, 8));
        let x = g.fresh(F32, &[n, c, e, e], Fill::Tame);
        let data: Vec<f32> = (0..2)
            .flat_map(|_| {
                let (x, y) = (g.within(0, 2) as f32 + 0.125, g.within(0, 2) as f32 + 0.25);
                [x, y, x + g.within(1, 4) as f32, y + g.within(1, 4) as f32]
            })
            .collect();
        let rois = g.reals(&[2, 4], &data);
        let which = g.fresh(I64, &[2], Fill::Within(0, n - 1));
        let (h, w) = (g.within(1, 3), g.within(1, 3));
        let call = Call::of(&[x, rois, which]).with(int("output_height", h));
        Some(call.with(int("output_width", w)).with(int("sampling_ratio", 2)))
    })
    .since(16)
    .tame(),
    Row::own("MaxRoiPool", Exact, |g| {
        let (c, e) = (g.within(1, 3), g.within(3, 8));
        let x = g.fresh(F32, &[1, c, e, e], Fill::Tame);
        let rois = g.reals(&[2, 5], &[0., 0., 0., 2., 2., 0., 1., 0., 2., 1.]);
        Some(Call::of(&[x, rois]).with(ints("pooled_shape", &[2, 2])))
    })
    .tame(),
    Row::own("Det", Amplifies, |g| {
        let n = g.within(1, 4);
        let mut shape = g.shape(0, 2);
        shape.extend([n, n]);
        let x = g.fresh(F32, &shape, Fill::Tame);
        Some(Call::of(&[x]))
    })
    .tame(),
    Row::own("DFT", Amplifies, |g| {
        let (b, n, parts) = (g.within(1, 3), g.within(1, 9), g.within(1, 2));
        let x = g.fresh(F32, &[b, n, parts], Fill::Tame);
        let axis = g.ints(&[], &[1]);
        let (back, half) = (g.within(0, 1), g.within(0, 1));
        let half = if back == 1 || parts == 2 { 0 } else { half };
        let call = Call::of(&[x]).and(None).and(Some(axis)).with(int("inverse", back));
        Some(call.with(int("onesided", half)))
    })
    .since(20)
    .tame(),
    Row::own("STFT", Amplifies, |g| {
        let (b, n, l, step) = (g.within(1, 2), g.within(6, 12), g.within(2, 6), g.within(1, 3));
        let x = g.fresh(F32, &[b, n, 1], Fill::Tame);
        let step = g.ints(&[], &[step]);
        let w = g.fresh(F32, &[l], Fill::Tame);
        let length = g.ints(&[], &[l]);
        Some(Call::of(&[x, step, w, length]))
    })
    .since(17)
    .tame(),
    Row::own("MelWeightMatrix", Rounds, |g| {
        let (bins, length) = (g.within(1, 6), 2 * g.within(4, 16));
        let [a, b, c] = [bins, length, 8000].map(|n| g.ints(&[], &[n]));
        let [low, high] = [20.0, 3900.0].map(|f| g.reals(&[], &[f]));
        Some(Call::of(&[a, b, c, low, high]))
    })
    .since(17),
    Row::own("MaxUnpool", Keeps, |g| {
        let (c, h, w) = (g.within(1, 2), g.within(1, 4), g.within(1, 4));
        let x = g.fresh(F32, &[1, c, h, w], Fill::Any);
        // Each place of the result is written once.
        let data: Vec<i64> = (0..c)
            .flat_map(|k| (0..h * w).map(move |i| k * 4 * h * w + i / w * 4 * w + i % w * 2))
            .collect();
        let i = g.ints(&[1, c, h, w], &data);
        Some(Call::of(&[x, i]).with(ints("kernel_shape", &[2, 2])).with(ints("strides", &[2, 2])))
    })
    .since(11),
    Row::own("HannWindow", Rounds, window).since(17),
    Row::own("HammingWindow", Rounds, window).since(17),
    Row::own("BlackmanWindow", Rounds, window).since(17),
    Row::own("NegativeLogLikelihoodLoss", Rounds, |g| {
        let (n, c) = (g.within(1, 5), g.within(1, 5));
        let x = g.fresh(F32, &[n, c], Fill::Tame);
        loss(g, x, n, c)
    })
    .since(13)
    .tame(),
    Row::own("SoftmaxCrossEntropyLoss", Rounds, |g| {
        let (n, c) = (g.within(1, 5), g.within(1, 5));
        let x = g.fresh(F32, &[n, c], Fill::Tame);
        loss(g, x, n, c)
    })
    .since(13)
    .tame(),
];

fn window(g: &mut Graph<'_>) -> Option<Call> {
    let n = g.within(1, 9);
    let n = g.ints(&[], &[n]);
    let periodic = g.within(0, 1);
    Some(Call::of(&[n]).with(int("periodic", periodic)))
}

fn loss(g: &mut Graph<'_>, x: usize, n: i64, c: i64) -> Option<Call> {
    let target = g.fresh(I64, &[n], Fill::Within(0, c - 1));
    let weights = g.coin().then(|| g.fresh(F32, &[c], Fill::Positive));
    let how = g.draw.one(&["none", "sum", "mean"]).to_string();
    Some(Call::of(&[x, target]).and(weights).with(text("reduction", &how)))
}

fn resize(g: &mut Graph<'_>) -> Option<Call> {
    let (n, c, h, w) = (g.within(1, 2), g.within(1, 3), g.within(1, 7), g.within(1, 7));
    let x = g.fresh(F32, &[n, c, h, w], Fill::Tame);
    let mode = g.draw.one(&["nearest", "linear", "cubic"]).to_string();
    let places = g.draw.one(&["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]);
    // Where corners are aligned the factor is a quotient that is rounded.
    let places =
        if mode == "nearest" && *places == *"align_corners" { "asymmetric" } else { places };
    let places = places.to_string();
    let factors = [1.0, 1.0].map(|_: f32| [0.5, 1.0, 2.0, 2.0, 4.0][g.draw.below(5)]);
    // Corners of a size that is cut to a whole number are aligned in two ways.
    let is_whole = |e: i64, f: f32| (e as f32 * f).fract() == 0.0;
    if places == "align_corners" && !(is_whole(h, factors[0]) && is_whole(w, factors[1])) {
        return None;
    }
    if h as f32 * factors[0] < 1.0 || w as f32 * factors[1] < 1.0 {
        return None;
    }
    let near =
        g.draw.one(&["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]).to_string();
    let call = Call::of(&[x]).and(None).with(text("mode", &mode));
    let call = call.with(text("coordinate_transformation_mode", &places));
    let call = if mode == "nearest" { call.with(text("nearest_mode", &near)) } else { call };
    if g.coin() {
        let scales = g.reals(&[4], &[1.0, 1.0, factors[0], factors[1]]);
        return Some(call.and(Some(scales)));
    }
    let of = |e: i64, f: f32| (e as f32 * f) as i64;
    // A quotient that is no power of two is rounded: sizes are factors times extents.
    if of(h, factors[0]) as f32 != h as f32 * factors[0]
        || of(w, factors[1]) as f32 != w as f32 * factors[1]
    {
        return None;
    }
    let sizes = g.list(&[n, c, of(h, factors[0]), of(w, factors[1])]);
    Some(call.and(None).and(Some(sizes)))
}

fn grid(g: &mut Graph<'_>) -> Option<Call> {
    let (n, c, h, w) = (g.within(1, 2), g.within(1, 3), g.within(1, 6), g.within(1, 6));
    let x = g.fresh(F32, &[n, c, h, w], Fill::Tame);
    let (a, b) = (g.within(1, 5), g.within(1, 5));
    // Multiples of an odd fraction keep off the borders between elements.
    let data: Vec<f32> =
        (0..n * a * b * 2).map(|_| g.within(-20, 20) as f32 / 17.0 + 0.0137).collect();
    let at = g.reals(&[n, a, b, 2], &data);
    let names: [&str; 3] = if g.opset >= 20 {
        ["linear", "nearest", "cubic"]
    } else {
        ["bilinear", "nearest", "bicubic"]
    };
    let mode = g.draw.one(&names).to_string();
    let beyond = g.draw.one(&["zeros", "border", "reflection"]).to_string();
    let corners = g.within(0, 1);
    let call = Call::of(&[x, at]).with(text("mode", &mode)).with(text("padding_mode", &beyond));
    Some(call.with(int("align_corners", corners)))
}
