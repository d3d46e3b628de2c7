//! The rows of normalisations (`BatchNormalization`, `LayerNormalization`, ..) in the campaign's
//! table of random graphs (`rows/mod.rs`): a tensor with its scales, biases and statistics. A row's
//! function draws one use of the operator, a node with operands and attributes, in the graph under
//! construction (`graph.rs`); its effect, such as `Keeps` or `Rounds`, says whether results stay
//! exact. `cargo xtask campaign graphs` runs the graphs by Squall and by onnxruntime.

use super::moves::axis_of;
use super::{FLOAT, Row};
use crate::campaign::graphs::graph::Effect::{Amplifies, Rounds};
use crate::campaign::graphs::graph::{Call, Fill};
use squall_core::DType::F32;
use squall_testing::onnx::{float, int, ints};

// Their divisors may be near 0, and numbers near the limits of floats overflow in one order of
// sums and not in another: they are given tame numbers.
pub const ROWS: &[Row] = &[
    Row::own("BatchNormalization", Rounds, |g| {
        let x = g.floats(2, 5);
        let c = g.shape_of(x)[1];
        let of = [Fill::Tame, Fill::Tame, Fill::Tame, Fill::Positive];
        let [s, b, m, v] = of.map(|f| g.fresh(F32, &[c], f));
        Some(Call::of(&[x, s, b, m, v]).with(float("epsilon", 1e-3)))
    })
    .since(15),
    Row::own("LayerNormalization", Amplifies, |g| {
        let x = g.floats(1, 4);
        let shape = g.shape_of(x);
        let axis = g.draw.below(shape.len());
        let s = g.fresh(F32, &shape[axis..], Fill::Tame);
        let b = g.coin().then(|| g.fresh(F32, &shape[axis..], Fill::Tame));
        let axis = axis_of(g, axis, shape.len());
        Some(Call::of(&[x, s]).and(b).with(int("axis", axis)).with(float("epsilon", 1e-2)))
    })
    .since(17)
    .tame(),
    Row::own("RMSNormalization", Amplifies, |g| {
        let x = g.floats(1, 4);
        let shape = g.shape_of(x);
        let axis = g.draw.below(shape.len());
        let s = g.fresh(F32, &shape[axis..], Fill::Tame);
        let axis = axis_of(g, axis, shape.len());
        Some(Call::of(&[x, s]).with(int("axis", axis)).with(float("epsilon", 1e-2)))
    })
    .since(23)
    .tame(),
    Row::own("InstanceNormalization", Amplifies, |g| {
        let x = g.floats(3, 4);
        let c = g.shape_of(x)[1];
        let [s, b] = [(); 2].map(|()| g.fresh(F32, &[c], Fill::Tame));
        Some(Call::of(&[x, s, b]).with(float("epsilon", 1e-2)))
    })
    .tame(),
    Row::own("GroupNormalization", Amplifies, |g| {
        let groups = g.within(1, 3);
        let c = groups * g.within(1, 3);
        let (n, e) = (g.within(1, 3), g.within(1, 6));
        let x = g.fresh(F32, &[n, c, e, 3], Fill::Any);
        let [s, b] = [(); 2].map(|()| g.fresh(F32, &[c], Fill::Tame));
        let call = Call::of(&[x, s, b]).with(float("epsilon", 1e-2));
        Some(call.with(int("num_groups", groups)))
    })
    .since(21)
    .tame(),
    Row::own("LRN", Rounds, |g| {
        let x = g.floats(3, 4);
        // Even sizes are read in two ways.
        let size = 2 * g.within(0, 2) + 1;
        Some(Call::of(&[x]).with(int("size", size)).with(float("alpha", 0.25)))
    })
    .since(13)
    .tame(),
    Row::own("LpNormalization", Amplifies, |g| {
        let x = g.any(FLOAT, 1, 4);
        let rank = g.values[x].shape.len();
        let axis = g.draw.below(rank);
        let axis = axis_of(g, axis, rank);
        let p = g.within(1, 2);
        Some(Call::of(&[x]).with(int("axis", axis)).with(int("p", p)))
    })
    .tame(),
    Row::own("MeanVarianceNormalization", Amplifies, |g| {
        // Along one element alone the variance is 0 but for rounding.
        let shape = [g.within(2, 4), g.within(1, 4), g.within(2, 5), g.within(2, 5)];
        let x = g.fresh(F32, &shape, Fill::Tame);
        let call = Call::of(&[x]);
        Some(if g.coin() { call } else { call.with(ints("axes", &[0, 2, 3])) })
    })
    .since(13)
    .tame(),
];
