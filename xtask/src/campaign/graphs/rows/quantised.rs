//! The rows of quantisation (`QuantizeLinear`, `DequantizeLinear`, `QLinearConv`, ..) in the
//! campaign's table of random graphs (`rows/mod.rs`): a tensor with scales and zero points. A row's
//! function draws one use of the operator, a node with operands and attributes, in the graph under
//! construction (`graph.rs`); its effect, such as `Keeps` or `Rounds`, says whether results stay
//! exact. `cargo xtask campaign graphs` runs the graphs by Squall and by onnxruntime.

use super::Row;
use crate::campaign::graphs::graph::Effect::{Exact, Rounds};
use crate::campaign::graphs::graph::{Call, Fill, Graph};
use squall_core::DType::{self, I8, U8};
use squall_testing::onnx::{int, ints};

// Scales are powers of two: quotients are exact then, and none lies beside a tie by rounding.
pub const ROWS: &[Row] = &[
    Row::own("QuantizeLinear", Exact, |g| {
        let x = g.floats(1, 4);
        let to = g.dtype(&[I8, U8]);
        let (shape, axis, call) = scale(g, x);
        let s = powers(g, &shape);
        let z = g.fresh(to, &shape, Fill::Within(0, 9));
        let call = Call { inputs: vec![Some(x), Some(s), Some(z)], ..call };
        Some(call.with(int("axis", axis)))
    })
    .since(13)
    .tame(),
    Row::own("DequantizeLinear", Rounds, |g| {
        let x = g.any(&[I8, U8], 1, 4);
        let from = g.values[x].dtype;
        let (shape, axis, call) = scale(g, x);
        let s = powers(g, &shape);
        let z = g.fresh(from, &shape, Fill::Within(0, 9));
        let call = Call { inputs: vec![Some(x), Some(s), Some(z)], ..call };
        Some(call.with(int("axis", axis)))
    })
    .since(13),
    Row::own("DynamicQuantizeLinear", Exact, |g| {
        // Its range decides its scale: whole eighths from -8 to 23.875 make the scale exact.
        let shape = g.shape(1, 3);
        let n = shape.iter().product::<i64>().max(0) as usize;
        if n < 2 {
            return None;
        }
        let mut data: Vec<f32> = (0..n).map(|_| g.within(-64, 191) as f32 / 8.0).collect();
        (data[0], data[1]) = (-8.0, 23.875);
        let x = g.reals(&shape, &data);
        Some(Call::of(&[x]).gives(3))
    }),
    Row::own("QLinearMatMul", Exact, |g| {
        let of = g.dtype(&[I8, U8]);
        let (m, k, n) = (g.within(1, 9), g.within(1, 9), g.within(1, 9));
        let a = g.fresh(of, &[m, k], Fill::Any);
        let b = g.fresh(of, &[k, n], Fill::Any);
        let scales = [0.5, 0.25, 2.0].map(|s| g.reals(&[], &[s]));
        let zeros = [(); 3].map(|()| g.fresh(of, &[], Fill::Within(0, 5)));
        let all = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]];
        Some(Call::of(&all))
    }),
    Row::own("QLinearConv", Exact, |g| {
        let of: DType = g.dtype(&[I8, U8]);
        let (c, m, e) = (g.within(1, 4), g.within(1, 4), g.within(3, 7));
        let x = g.fresh(of, &[1, c, e, e], Fill::Any);
        let w = g.tensor(of, &[m, c, 3, 3], Fill::Any, true);
        let scales = [0.5, 0.25, 4.0].map(|s| g.reals(&[], &[s]));
        let zeros = [(); 3].map(|()| g.tensor(of, &[], Fill::Within(0, 5), true));
        let all = [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2]];
        Some(Call::of(&all).with(ints("pads", &[1, 1, 0, 1])))
    }),
];

/// The shape of a scale for a tensor: one number, or one for each place along an axis.
fn scale(g: &mut Graph<'_>, x: usize) -> (Vec<i64>, i64, Call) {
    let shape = g.shape_of(x);
    let axis = g.draw.below(shape.len());
    let of = if g.coin() { vec![] } else { vec![shape[axis]] };
    (of, axis as i64, Call::of(&[]))
}

fn powers(g: &mut Graph<'_>, shape: &[i64]) -> usize {
    let n = shape.iter().product::<i64>();
    let data: Vec<f32> = (0..n).map(|_| [0.03125, 0.0625, 0.25, 0.5][g.draw.below(4)]).collect();
    g.reals(shape, &data)
}
