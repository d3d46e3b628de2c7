//! The rows of matrix products, `Einsum`, convolutions and pools in the campaign's table of random
//! graphs (`rows/mod.rs`): operands whose shapes fit, with random strides, pads and groups. A row's
//! function draws one use of the operator, a node with operands and attributes, in the graph under
//! construction (`graph.rs`); its effect, such as `Keeps` or `Rounds`, says whether results stay
//! exact. `cargo xtask campaign graphs` runs the graphs by Squall and by onnxruntime.

use super::{FLOAT, Row};
use crate::campaign::graphs::graph::Effect::{Amplifies, Exact, Keeps, Rounds};
use crate::campaign::graphs::graph::{Call, Fill, Graph};
use squall_core::DType::{F32, I8, I32, I64, U8, U32};
use squall_testing::onnx::{float, int, ints, text};

pub const ROWS: &[Row] = &[
    Row::own("MatMul", Rounds, |g| {
        let x = g.any(FLOAT, 1, 4);
        product(g, x)
    }),
    Row::own("MatMul", Exact, |g| {
        let x = g.any(&[I32, I64, U32], 1, 3);
        product(g, x)
    }),
    Row::own("Gemm", Rounds, |g| {
        let x = g.any(FLOAT, 2, 2);
        let (shape, dtype) = (g.shape_of(x), g.values[x].dtype);
        let (a, b) = (g.within(0, 1), g.within(0, 1));
        let n = g.extent();
        let (m, k) = if a == 1 { (shape[1], shape[0]) } else { (shape[0], shape[1]) };
        let y = g.fresh(dtype, &if b == 1 { [n, k] } else { [k, n] }, Fill::Any);
        let of_c = [vec![m, n], vec![n], vec![1, n], vec![m, 1], vec![]][g.draw.below(5)].clone();
        let c = g.coin().then(|| g.fresh(dtype, &of_c, Fill::Any));
        let scale = g.coin().then(|| float("alpha", 0.5));
        let more = g.coin().then(|| float("beta", -1.5));
        let call = Call::of(&[x, y]).and(c).with(int("transA", a)).with(int("transB", b));
        Some(call.maybe(scale).maybe(more))
    })
    .since(11),
    Row::own("Einsum", Rounds, einsum),
    Row::own("Conv", Rounds, convolution).since(11),
    Row::own("ConvTranspose", Rounds, transposed).since(11),
    Row::own("MaxPool", Keeps, |g| {
        let (x, window) = pooled(g)?;
        let mut call = Call::of(&[x]).with(ints("kernel_shape", &window));
        let stretch =
            if g.draw.below(4) == 0 { vec![2; window.len()] } else { vec![1; window.len()] };
        call = geometry(g, call, x, &window, &stretch)?;
        if g.opset >= 10 && stretch[0] > 1 {
            call = call.with(ints("dilations", &stretch));
        }
        Some(call)
    })
    .since(12),
    // The place of the largest is exact where its operands are.
    Row::own("MaxPool", Exact, |g| {
        let (x, window) = pooled(g)?;
        let ones = vec![1; window.len()];
        let call = Call::of(&[x]).with(ints("kernel_shape", &window)).gives(2);
        geometry(g, call, x, &window, &ones)
    })
    .since(12)
    .tame(),
    Row::own("AveragePool", Rounds, |g| {
        let (x, window) = pooled(g)?;
        let counts = g.within(0, 1);
        let ones = vec![1; window.len()];
        let call = Call::of(&[x]).with(ints("kernel_shape", &window));
        let call = geometry(g, call, x, &window, &ones)?;
        Some(call.with(int("count_include_pad", counts)))
    })
    .since(11),
    Row::own("LpPool", Rounds, |g| {
        let (x, window) = pooled(g)?;
        let ones = vec![1; window.len()];
        let p = g.within(1, 3);
        let call = Call::of(&[x]).with(ints("kernel_shape", &window)).with(int("p", p));
        geometry(g, call, x, &window, &ones)
    })
    .since(18),
    Row::own("GlobalAveragePool", Rounds, |g| image(g).map(|x| Call::of(&[x]))),
    Row::own("GlobalMaxPool", Keeps, |g| image(g).map(|x| Call::of(&[x]))),
    Row::own("GlobalLpPool", Rounds, |g| image(g).map(|x| Call::of(&[x]))),
    Row::own("MatMulInteger", Exact, |g| {
        let of = [U8, I8];
        let (a, b) = (g.dtype(&of), g.dtype(&of));
        let (m, k, n) = (g.some(), g.some(), g.some());
        let x = g.fresh(a, &[m, k], Fill::Any);
        let y = g.fresh(b, &[k, n], Fill::Any);
        let call = Call::of(&[x, y]);
        if g.coin() {
            return Some(call);
        }
        let zx = g.fresh(a, &[], Fill::Within(0, 4));
        let zy = g.fresh(b, &[], Fill::Within(0, 4));
        Some(call.and(Some(zx)).and(Some(zy)))
    }),
    Row::own("ConvInteger", Exact, |g| {
        let a = g.dtype(&[U8, U8, I8]);
        let (c, m, e) = (g.within(1, 4), g.within(1, 5), g.within(3, 7));
        let x = g.fresh(a, &[1, c, e, e], Fill::Any);
        let w = g.fresh(a, &[m, c, 3, 3], Fill::Any);
        let z = g.fresh(a, &[], Fill::Within(0, 4));
        Some(Call::of(&[x, w]).and(g.coin().then_some(z)).with(ints("pads", &[1, 0, 1, 0])))
    }),
    Row::own("DeformConv", Amplifies, |g| {
        let (n, c, m, e) = (g.within(1, 2), g.within(1, 3), g.within(1, 3), g.within(3, 6));
        let x = g.fresh(F32, &[n, c, e, e], Fill::Tame);
        let w = g.fresh(F32, &[m, c, 2, 2], Fill::Tame);
        let offset = g.fresh(F32, &[n, 8, e - 1, e - 1], Fill::Tame);
        let b = g.coin().then(|| g.fresh(F32, &[m], Fill::Tame));
        Some(Call::of(&[x, w, offset]).and(b).with(ints("kernel_shape", &[2, 2])))
    })
    .since(19)
    .tame(),
];

fn product(g: &mut Graph<'_>, x: usize) -> Option<Call> {
    let (shape, dtype) = (g.shape_of(x), g.values[x].dtype);
    let k = *shape.last()?;
    let n = g.extent();
    let other = match (g.draw.below(5), shape.len()) {
        (0, _) => vec![k],
        (1, 3..) => {
            let mut s = shape[..shape.len() - 2].to_vec();
            s.extend([k, n]);
            s
        }
        (2, _) => {
            vec![g.within(1, 3), k, n].into_iter().skip(usize::from(shape.len() > 2)).collect()
        }
        _ => vec![k, n],
    };
    let y = g.fresh(dtype, &other, Fill::Any);
    Some(Call::of(&[x, y]))
}

fn einsum(g: &mut Graph<'_>) -> Option<Call> {
    const EQUATIONS: [(&str, usize, usize); 10] = [
        ("ij,jk->ik", 2, 2),
        ("ij,kj->ik", 2, 2),
        ("bij,bjk->bik", 3, 3),
        ("bhid,bhjd->bhij", 4, 4),
        ("ij->ji", 2, 0),
        ("ij->j", 2, 0),
        ("i,j->ij", 1, 1),
        ("ij,ij->", 2, 2),
        ("bij,jk->bik", 3, 2),
        ("...ij,...jk->...ik", 3, 3),
    ];
    let (equation, first, second) = EQUATIONS[g.draw.below(EQUATIONS.len())];
    let mut extents: Vec<i64> = (0..26).map(|_| g.some().min(9)).collect();
    let x = g.floats(first, first);
    let (left, _) = equation.split_once("->")?;
    let of =
        |s: &str| s.bytes().filter(u8::is_ascii_lowercase).map(|b| b - b'a').collect::<Vec<_>>();
    let mut parts = left.split(',').map(of);
    let (names, shape) = (parts.next()?, g.shape_of(x));
    let batch = first - names.len();
    for (n, e) in names.iter().zip(&shape[batch..]) {
        extents[usize::from(*n)] = *e;
    }
    let call = Call::of(&[x]).with(text("equation", equation));
    let Some(names) = parts.next() else { return Some(call) };
    let mut other = shape[..second - names.len()].to_vec();
    other.extend(names.iter().map(|n| extents[usize::from(*n)]));
    let y = g.fresh(F32, &other, Fill::Any);
    Some(call.and(Some(y)))
}

/// An image of one to three dimensions.
fn image(g: &mut Graph<'_>) -> Option<usize> {
    let x = g.floats(3, 5);
    (!g.shape_of(x)[2..].contains(&0)).then_some(x)
}

/// An image and a window that it holds.
fn pooled(g: &mut Graph<'_>) -> Option<(usize, Vec<i64>)> {
    let x = image(g)?;
    let window = g.shape_of(x)[2..].iter().map(|e| g.within(1, (*e).min(3))).collect();
    Some((x, window))
}

/// Pads, strides and roundings of a window that moves over an image, of which each place holds at
/// least one element of the image.
fn geometry(
    g: &mut Graph<'_>,
    mut call: Call,
    x: usize,
    window: &[i64],
    stretch: &[i64],
) -> Option<Call> {
    let image = g.shape_of(x)[2..].to_vec();
    let strides: Vec<i64> = window.iter().map(|_| [1, 1, 2, 3][g.draw.below(4)]).collect();
    if strides.iter().any(|s| *s > 1) || g.coin() {
        call = call.with(ints("strides", &strides));
    }
    let wide: Vec<i64> = window.iter().zip(stretch).map(|(w, s)| (w - 1) * s + 1).collect();
    if g.draw.below(4) == 0 && stretch.iter().all(|s| *s == 1) {
        let how = g.draw.one(&["SAME_UPPER", "SAME_LOWER", "VALID"]).to_string();
        return Some(call.with(text("auto_pad", &how)));
    }
    let pads: Vec<i64> = wide.iter().chain(&wide).map(|w| g.within(0, (w - 1).min(2))).collect();
    let fits = |i: usize| image[i] + pads[i] + pads[i + image.len()] >= wide[i];
    if !(0..image.len()).all(fits) {
        return None;
    }
    Some(if pads.iter().any(|p| *p > 0) { call.with(ints("pads", &pads)) } else { call })
}

fn convolution(g: &mut Graph<'_>) -> Option<Call> {
    let x = image(g)?;
    let shape = g.shape_of(x);
    let c = shape[1];
    let groups: Vec<i64> = (1..=c).filter(|d| c % d == 0).collect();
    let group = if groups.is_empty() { return None } else { groups[g.draw.below(groups.len())] };
    let group = if g.coin() { 1 } else { group };
    let m = group * g.within(1, 5);
    let window: Vec<i64> = shape[2..].iter().map(|e| g.within(1, (*e).min(3))).collect();
    let mut of_w = vec![m, c / group];
    of_w.extend(&window);
    let w = g.fresh(F32, &of_w, Fill::Tame);
    let b = g.coin().then(|| g.fresh(F32, &[m], Fill::Any));
    let stretch: Vec<i64> = window.iter().map(|_| [1, 1, 1, 2][g.draw.below(4)]).collect();
    let call = Call::of(&[x, w]).and(b).with(int("group", group));
    let call = geometry(g, call, x, &window, &stretch)?;
    Some(call.with(ints("dilations", &stretch)))
}

fn transposed(g: &mut Graph<'_>) -> Option<Call> {
    let x = g.floats(3, 4);
    let shape = g.shape_of(x);
    if shape.contains(&0) {
        return None;
    }
    let c = shape[1];
    let group = if c % 2 == 0 && g.coin() { 2 } else { 1 };
    let m = g.within(1, 3);
    let window: Vec<i64> = shape[2..].iter().map(|_| g.within(1, 3)).collect();
    let mut of_w = vec![c, m];
    of_w.extend(&window);
    let w = g.fresh(F32, &of_w, Fill::Tame);
    let b = g.coin().then(|| g.fresh(F32, &[m * group], Fill::Any));
    let strides: Vec<i64> = window.iter().map(|_| g.within(1, 3)).collect();
    let more: Vec<i64> = strides.iter().map(|s| g.within(0, s - 1)).collect();
    let pads: Vec<i64> =
        window.iter().chain(&window).map(|w| g.within(0, (w - 1).min(1))).collect();
    let call = Call::of(&[x, w]).and(b).with(int("group", group)).with(ints("strides", &strides));
    Some(call.with(ints("output_padding", &more)).with(ints("pads", &pads)))
}
