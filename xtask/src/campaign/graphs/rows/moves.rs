//! The rows of operators that move elements (`Transpose`, `Reshape`, `Slice`, `Pad`, ..) in the
//! campaign's table of random graphs (`rows/mod.rs`): an operand, and legal attributes or index
//! operands for it. A row's function draws one use of the operator, a node with operands and
//! attributes, in the graph under construction (`graph.rs`); its effect, such as `Keeps` or
//! `Rounds`, says whether results stay exact. `cargo xtask campaign graphs` runs the graphs by
//! Squall and by onnxruntime.

use super::{EVERY, NUMBER, Row};
use crate::campaign::graphs::graph::Effect::Keeps;
use crate::campaign::graphs::graph::{Call, Fill, Graph, number_of};
use squall_core::DType::{Bool, F32, I32, I64};
use squall_testing::onnx::{self, int, ints, text};

pub const ROWS: &[Row] = &[
    Row::own("Transpose", Keeps, |g| {
        let x = g.any(EVERY, 0, 5);
        let order = permutation(g, g.values[x].shape.len());
        let call = Call::of(&[x]);
        Some(if g.draw.below(5) == 0 { call } else { call.with(ints("perm", &order)) })
    }),
    Row::own("Reshape", Keeps, |g| {
        let x = g.any(EVERY, 0, 4);
        let shape = g.shape_of(x);
        let mut target = reshaped(g, &shape);
        let count: i64 = shape.iter().product();
        if count > 0 && !target.is_empty() && g.coin() {
            let i = g.draw.below(target.len());
            target[i] = -1;
        }
        let s = g.list(&target);
        // Without it a 0 means the operand's extent.
        Some(Call::of(&[x, s]).with(int("allowzero", i64::from(target.contains(&0)))))
    })
    .since(14),
    Row::own("Flatten", Keeps, |g| {
        let x = g.any(EVERY, 1, 4);
        let rank = g.values[x].shape.len() as i64;
        let axis = g.within(-rank, rank);
        Some(Call::of(&[x]).with(int("axis", axis)))
    }),
    Row::own("Squeeze", Keeps, |g| {
        let x = g.any(EVERY, 0, 4);
        let shape = g.shape_of(x);
        let ones: Vec<i64> =
            (0..shape.len()).filter(|&i| shape[i] == 1).map(|i| i as i64).collect();
        if ones.is_empty() {
            return None;
        }
        let axes = g.list(&ones);
        Some(Call::of(&[x]).and(g.coin().then_some(axes)))
    })
    .since(13),
    Row::own("Unsqueeze", Keeps, |g| {
        let x = g.any(EVERY, 0, 3);
        let rank = g.values[x].shape.len() as i64;
        let axis = g.within(-rank - 1, rank);
        let axes = g.list(&[axis]);
        Some(Call::of(&[x, axes]))
    })
    .since(13),
    Row::own("Concat", Keeps, |g| {
        let x = g.any(EVERY, 1, 4);
        let (shape, dtype) = (g.shape_of(x), g.values[x].dtype);
        let axis = g.draw.below(shape.len());
        let mut all = vec![x];
        for _ in 0..g.within(1, 3) {
            if g.draw.below(4) == 0 {
                all.push(x);
                continue;
            }
            let mut other = shape.clone();
            other[axis] = g.extent();
            all.push(g.fresh(dtype, &other, Fill::Any));
        }
        let axis = axis_of(g, axis, shape.len());
        Some(Call::of(&all).with(int("axis", axis)))
    }),
    Row::own("Split", Keeps, |g| {
        let x = g.any(EVERY, 1, 4);
        let shape = g.shape_of(x);
        let axis = g.draw.below(shape.len());
        let extent = shape[axis];
        let parts = g.within(1, 3);
        let named = axis_of(g, axis, shape.len());
        if g.coin() && extent >= parts && g.opset >= 18 {
            let call = Call::of(&[x]).with(int("axis", named)).with(int("num_outputs", parts));
            // The last part may be empty in ways that not all read alike.
            let size = (extent + parts - 1) / parts;
            return ((parts - 1) * size < extent).then(|| call.gives(parts as usize));
        }
        let mut left = extent;
        let mut sizes: Vec<i64> = Vec::new();
        for _ in 1..parts {
            let n = g.within(0, left);
            sizes.push(n);
            left -= n;
        }
        sizes.push(left);
        let s = g.list(&sizes);
        Some(Call::of(&[x, s]).with(int("axis", named)).gives(parts as usize))
    })
    .since(13),
    Row::own("Slice", Keeps, |g| {
        let x = g.any(EVERY, 1, 4);
        let shape = g.shape_of(x);
        let mut axes: Vec<i64> = (0..shape.len() as i64).collect();
        axes.retain(|_| g.draw.below(3) > 0);
        let [mut starts, mut ends, mut steps] = [const { Vec::new() }; 3];
        for &a in &axes {
            let e = shape[a as usize];
            let step = [1, 1, 1, 2, 3, -1, -2][g.draw.below(7)];
            let (a, b) = (g.within(-e - 2, e + 2), g.within(-e - 2, e + 2));
            let far = g.draw.below(6) == 0;
            starts.push(a);
            ends.push(if far { if step > 0 { i64::MAX } else { i64::MIN } } else { b });
            steps.push(step);
        }
        let all = [starts, ends, axes, steps].map(|v| g.list(&v));
        Some(Call::of(&[x]).and(Some(all[0])).and(Some(all[1])).and(Some(all[2])).and(Some(all[3])))
    })
    .since(13),
    Row::own("Pad", Keeps, |g| {
        let x = g.any(NUMBER, 1, 4);
        let (shape, dtype) = (g.shape_of(x), g.values[x].dtype);
        let modes: &[&str] = match g.opset {
            19.. => &["constant", "constant", "reflect", "edge", "wrap"],
            _ => &["constant", "constant", "reflect", "edge"],
        };
        let mode = g.draw.one(modes).to_string();
        let is_empty = shape.contains(&0);
        let most = |e: i64| match &mode[..] {
            "reflect" => (e - 1).clamp(0, 3),
            "constant" => 3,
            _ => e.min(3),
        };
        if is_empty && mode != "constant" {
            return None;
        }
        let least = |e: i64| if mode == "constant" && e > 3 { -1 } else { 0 };
        let pads: Vec<i64> =
            shape.iter().chain(&shape).map(|&e| g.within(least(e), most(e))).collect();
        let p = g.list(&pads);
        let value = (mode == "constant" && g.coin()).then(|| g.fresh(dtype, &[], Fill::Tame));
        Some(Call::of(&[x, p]).and(value).with(text("mode", &mode)))
    })
    .since(13),
    Row::own("Tile", Keeps, |g| {
        let x = g.any(EVERY, 1, 3);
        let repeats: Vec<i64> = g.shape_of(x).iter().map(|_| g.within(0, 5).clamp(1, 3)).collect();
        let r = g.list(&repeats);
        Some(Call::of(&[x, r]))
    }),
    Row::own("Expand", Keeps, |g| {
        let x = g.any(EVERY, 0, 3);
        let mut shape = g.shape_of(x);
        for e in &mut shape {
            *e = if *e == 1 { g.within(1, 5) } else { [*e, 1][g.draw.below(2)] };
        }
        if g.coin() {
            let e = g.within(1, 3);
            shape.insert(0, e);
        }
        let s = g.list(&shape);
        Some(Call::of(&[x, s]))
    })
    .since(13),
    Row::own("DepthToSpace", Keeps, |g| {
        let b = g.within(1, 3);
        let mut shape: Vec<i64> = (0..4).map(|_| g.within(1, 5)).collect();
        shape[1] *= b * b;
        let x = g.fresh(F32, &shape, Fill::Any);
        let mode = if g.coin() { "DCR" } else { "CRD" };
        Some(Call::of(&[x]).with(int("blocksize", b)).with(text("mode", mode)))
    }),
    Row::own("SpaceToDepth", Keeps, |g| {
        let b = g.within(1, 3);
        let mut shape: Vec<i64> = (0..4).map(|_| g.within(1, 4)).collect();
        shape[2] *= b;
        shape[3] *= b;
        let x = g.fresh(F32, &shape, Fill::Any);
        Some(Call::of(&[x]).with(int("blocksize", b)))
    }),
    Row::own("Trilu", Keeps, |g| {
        let x = g.any(EVERY, 2, 4);
        let k = g.coin().then(|| {
            let n = g.within(-4, 4);
            g.ints(&[], &[n])
        });
        let upper = g.within(0, 1);
        Some(Call::of(&[x]).and(k).with(int("upper", upper)))
    })
    .since(14),
    Row::own("EyeLike", Keeps, |g| {
        let x = g.any(&[F32, I32, I64], 2, 2);
        let k = g.within(-3, 3);
        let to = g.dtype(&[F32, I32, I64]);
        Some(Call::of(&[x]).with(int("k", k)).with(int("dtype", number_of(to).into())))
    }),
    Row::own("Shape", Keeps, |g| {
        let x = g.any(EVERY, 0, 4);
        Some(Call::of(&[x]))
    }),
    Row::own("Size", Keeps, |g| {
        let x = g.any(EVERY, 0, 4);
        Some(Call::of(&[x]))
    }),
    Row::own("ConstantOfShape", Keeps, |g| {
        let shape = g.shape(1, 3);
        let s = g.list(&shape);
        let value = onnx::f32s(&[1], &[g.within(-3, 3) as f32]);
        let value = g.coin().then(|| onnx::tensor("value", value));
        Some(Call::of(&[s]).maybe(value))
    }),
    Row::own("Range", Keeps, |g| {
        let (a, n, d) = (g.within(-5, 5), g.within(0, 9), g.within(1, 3));
        let d = if g.coin() { d } else { -d };
        let all = [a, a + n * d, d].map(|n| g.ints(&[], &[n]));
        Some(Call::of(&all))
    }),
    Row::own("ReverseSequence", Keeps, |g| {
        let x = g.any(&[F32, I32, I64, Bool], 2, 4);
        let shape = g.shape_of(x);
        let time = g.within(0, 1);
        if shape[time as usize] == 0 {
            return None;
        }
        let lengths = Fill::Within(1, shape[time as usize]);
        let l = g.fresh(I64, &[shape[1 - time as usize]], lengths);
        Some(Call::of(&[x, l]).with(int("time_axis", time)).with(int("batch_axis", 1 - time)))
    }),
    Row::own("CenterCropPad", Keeps, |g| {
        let x = g.any(&[F32, I32, I64], 2, 4);
        let axes = [0, 1];
        let shape = [g.within(1, 9), g.within(1, 9)];
        let s = g.list(&shape);
        Some(Call::of(&[x, s]).with(ints("axes", &axes)))
    })
    .since(18),
    Row::own("Dropout", Keeps, |g| {
        let x = g.floats(0, 4);
        Some(Call::of(&[x]))
    })
    .since(13),
];

/// A random order of `n` numbers.
pub fn permutation(g: &mut Graph<'_>, n: usize) -> Vec<i64> {
    let mut order: Vec<i64> = (0..n as i64).collect();
    for i in (1..n).rev() {
        order.swap(i, g.draw.below(i + 1));
    }
    order
}

/// An axis by its number from the front or from the back.
pub fn axis_of(g: &mut Graph<'_>, axis: usize, rank: usize) -> i64 {
    if g.coin() { axis as i64 } else { axis as i64 - rank as i64 }
}

/// Another shape of as many elements.
fn reshaped(g: &mut Graph<'_>, shape: &[i64]) -> Vec<i64> {
    let mut factors: Vec<i64> = Vec::new();
    for &e in shape {
        match (2..e).find(|d| e % d == 0) {
            Some(d) if e > 1 => factors.extend([d, e / d]),
            _ => factors.push(e),
        }
    }
    while factors.len() > 1 && g.draw.below(3) > 0 {
        let i = g.draw.below(factors.len() - 1);
        let f = factors.remove(i);
        factors[i] *= f;
    }
    while factors.len() > 4 {
        let f = factors.remove(0);
        factors[0] *= f;
    }
    if g.coin() && factors.len() < 5 {
        let i = g.draw.below(factors.len() + 1);
        factors.insert(i, 1);
    }
    factors
}
