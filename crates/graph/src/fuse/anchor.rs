//! Anchors: the operators that a fused kernel is built around (convolution, matrix product,
//! pooling, reduction, softmax, normalisation). Input: a node; output: an [`Anchor`], its workload
//! without fused operators, with the values that feed its inputs, or the reason why there is no
//! kernel for it. `group.rs` lets elementwise nodes join it; the workloads themselves come from the
//! builders in `core/src/operator/`.

mod bytes;
mod convolution;
mod few_bits;
mod norms;
mod rotary;

use crate::feed::Feed;
use crate::view::{View, axis, float, input, int, ints, word};
use squall_core::graph::{Node, ValueId};
use squall_core::operator::{
    Conv, Epilogue, MatMul, Pool, PoolKind, Reduce, ReduceOp, Softmax, functions,
};
use squall_core::{TensorKind, Workload};

/// A node's plain workload, with the steps that are part of the node.
#[derive(Clone)]
pub struct Anchor {
    /// A readable name, such as `conv2d_3x8x8_k4_3x3`.
    pub stem: String,
    /// The workload of the operator alone.
    pub workload: Workload,
    /// One feed for each input of the workload.
    pub feeds: Vec<Feed>,
    /// The elementwise steps of the node itself, such as a bias.
    pub steps: Epilogue,
    /// One feed for each operand of the steps.
    pub step_feeds: Vec<Feed>,
    /// The shape of the result in the graph.
    pub shape: Vec<i64>,
    /// The value of the result.
    pub output: ValueId,
    /// The name of an added weight in workloads.
    pub bias_name: &'static str,
    /// Whether input 1 can be scaled along its first axis to scale the channels of the result.
    pub scalable: bool,
}

pub use few_bits::few_bits;

/// A function that builds the anchor of a node.
type Build = fn(&View<'_>, &Node) -> Result<Anchor, String>;

/// The operators that are anchors, with the functions that build their workloads.
const ANCHORS: &[(&str, Build)] = &[
    ("Conv", conv),
    ("ConvTranspose", convolution::transposed),
    ("Gemm", gemm),
    ("MatMul", matmul),
    ("MaxPool", pool),
    ("AveragePool", pool),
    ("GlobalAveragePool", global_pool),
    ("GlobalMaxPool", global_pool),
    ("ReduceSum", reduce),
    ("ReduceMean", reduce),
    ("ReduceMax", reduce),
    ("ReduceMin", reduce),
    ("ReduceProd", reduce),
    ("ReduceL1", reduce),
    ("ReduceL2", reduce),
    ("ReduceSumSquare", reduce),
    ("ReduceLogSum", reduce),
    ("ReduceLogSumExp", reduce),
    ("Softmax", softmax),
    ("LogSoftmax", softmax),
    ("LpNormalization", norms::lengths),
    ("LayerNormalization", norms::layers),
    ("RMSNormalization", norms::layers),
    ("GroupNormalization", norms::groups),
    ("InstanceNormalization", norms::groups),
    ("MeanVarianceNormalization", norms::mean_variance),
    ("RotaryEmbedding", rotary::rotary),
];

/// Whether a task can be built around an operator.
pub fn is_anchor(op: &str) -> bool {
    ANCHORS.iter().any(|(name, _)| *name == op)
}

/// The anchor that a node is; `None` where its operator makes none.
pub fn anchor(view: &View<'_>, node: &Node) -> Option<Result<Anchor, String>> {
    if let Some(made) = bytes::of(view, node) {
        return Some(made);
    }
    let (_, build) = ANCHORS.iter().find(|(op, _)| *op == node.op)?;
    Some(build(view, node))
}

/// An anchor without steps, fed by one value.
fn plain(
    view: &View<'_>,
    node: &Node,
    stem: String,
    workload: Workload,
    feeds: Vec<ValueId>,
) -> Result<Anchor, String> {
    let (output, shape) = view.result(node)?;
    let computed: u64 = workload.output().elements();
    if shape.iter().map(|&e| e as f64).product::<f64>() != computed as f64 {
        return Err(format!(
            "its result is said to be {shape:?}, but has {computed} elements by its operator's rule"
        ));
    }
    Ok(Anchor::without_steps(stem, workload, feeds, output, shape))
}

impl Anchor {
    /// An anchor fed by values, and where its result goes.
    fn without_steps(
        stem: String,
        workload: Workload,
        feeds: Vec<ValueId>,
        output: ValueId,
        shape: &[i64],
    ) -> Anchor {
        Anchor {
            stem,
            workload,
            feeds: feeds.into_iter().map(Feed::Value).collect(),
            steps: Epilogue::none(),
            step_feeds: Vec::new(),
            shape: shape.to_vec(),
            output,
            bias_name: "B",
            scalable: false,
        }
    }

    /// Adds a step that reads one more tensor.
    fn with(&mut self, id: ValueId, kind: TensorKind, shape: Vec<i64>, scale: f64) {
        let name = if kind == TensorKind::Weight { self.bias_name } else { "R" };
        let operand = self.steps.operand(name, kind, shape);
        let scaled =
            if scale == 1.0 { operand } else { functions::mul(operand, functions::c(scale)) };
        self.steps.body = functions::add(self.steps.body.clone(), scaled);
        self.steps.tags.push(if kind == TensorKind::Weight { "bias" } else { "add" }.into());
        self.step_feeds.push(Feed::Value(id));
    }
}

/// More than any window needs; keeps arithmetic on a hostile file's numbers in range.
const FARTHEST: u64 = 1 << 24;

/// Sizes of one- and two-dimensional windows, with height 1 where there is one dimension.
struct Windows {
    image: [i64; 2],
    kernel: [i64; 2],
    stride: [i64; 2],
    pads: [i64; 4],
    dilation: [i64; 2],
    /// The rows and columns of the result in the graph.
    positions: [i64; 2],
}

fn windows(node: &Node, x: &[i64], kernel: &[i64], y: &[i64]) -> Result<Windows, String> {
    let rank = x.len().saturating_sub(2);
    if !(1..=2).contains(&rank) {
        return Err(format!(
            "it is {rank}-dimensional; kernels are made for images of 1 and 2 dimensions"
        ));
    }
    if kernel.len() != rank || y.len() != rank + 2 {
        return Err(format!("its kernel has {} dimensions, its image {rank}", kernel.len()));
    }
    let far = |list: &[i64]| list.iter().any(|x| x.unsigned_abs() > FARTHEST);
    let pair = |list: &[i64], name: &str, fill: i64| match list {
        _ if far(list) => Err(format!("its {name} is too large: {list:?}")),
        [a] if rank == 1 => Ok([fill, *a]),
        [a, b] if rank == 2 => Ok([*a, *b]),
        _ => Err(format!("its {name} has {} numbers, expected {rank}", list.len())),
    };
    let ones = vec![1; rank];
    let image = pair(&x[2..], "image", 1)?;
    let kernel = pair(kernel, "kernel", 1)?;
    let stride = pair(ints(node, "strides").unwrap_or(&ones), "strides", 1)?;
    let dilation = pair(ints(node, "dilations").unwrap_or(&ones), "dilations", 1)?;
    let same = |lower: bool| {
        let mut pads = [0; 4];
        for i in 0..2 {
            let out = (image[i] + stride[i] - 1).checked_div(stride[i]).ok_or("its stride is 0")?;
            let total =
                ((out - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - image[i]).max(0);
            let small = total / 2;
            (pads[i], pads[i + 2]) =
                if lower { (total - small, small) } else { (small, total - small) };
        }
        Ok::<_, String>(pads)
    };
    let pads = match (word(node, "auto_pad", "NOTSET"), ints(node, "pads")) {
        ("SAME_UPPER", _) => same(false)?,
        ("SAME_LOWER", _) => same(true)?,
        (_, Some(list)) if far(list) => return Err(format!("its pads are too large: {list:?}")),
        ("VALID", _) | ("NOTSET" | "", None) => [0; 4],
        ("NOTSET" | "", Some(&[left, right])) if rank == 1 => [0, left, 0, right],
        ("NOTSET" | "", Some(&[top, left, bottom, right])) if rank == 2 => {
            [top, left, bottom, right]
        }
        ("NOTSET" | "", Some(list)) => {
            return Err(format!("its pads have {} numbers, expected {}", list.len(), 2 * rank));
        }
        (other, _) => return Err(format!("auto_pad `{other}` is not known")),
    };
    Ok(Windows { image, kernel, stride, pads, dilation, positions: pair(&y[2..], "result", 1)? })
}

fn conv(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let ((x, xs), (w, ws), (_, ys)) =
        (view.operand(node, 0)?, view.operand(node, 1)?, view.result(node)?);
    if xs.len() == 5 {
        return convolution::conv3d(view, node);
    }
    if !view.is_weight(w) {
        return Err(
            "its filters are computed at run time; kernels are made for constant ones".into()
        );
    }
    if ws.len() != xs.len() || ws.len() < 3 {
        return Err(format!("its filters are {ws:?}, its image is {xs:?}"));
    }
    let v = windows(node, xs, &ws[2..], ys)?;
    let conv = Conv {
        n: xs[0],
        c: xs[1],
        h: v.image[0],
        w: v.image[1],
        k: ws[0],
        r: v.kernel[0],
        s: v.kernel[1],
        stride: v.stride,
        pads: v.pads,
        dilation: v.dilation,
        groups: int(node, "group", 1),
    };
    let workload = conv.workload()?;
    if ws[1].checked_mul(conv.groups) != Some(conv.c) {
        return Err(format!(
            "its filters {ws:?} in {} groups do not fit {} channels",
            conv.groups, conv.c
        ));
    }
    let mut a = plain(view, node, conv.name(), workload, vec![x, w])?;
    a.scalable = true;
    if let Some(b) = input(node, 2) {
        let mut shape = vec![1; ws.len() - 1];
        shape[0] = conv.k;
        view.operand(node, 2)?;
        a.with(b, view.kind(b), shape, 1.0);
    }
    Ok(a)
}

fn gemm(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let ((a, xs), (b, ws)) = (view.operand(node, 0)?, view.operand(node, 1)?);
    let (&[a0, a1], &[b0, b1]) = (xs, ws) else {
        return Err(format!("its operands are {xs:?} and {ws:?}, expected matrices"));
    };
    let (a_transposed, b_transposed) = (int(node, "transA", 0) != 0, int(node, "transB", 0) != 0);
    let (m, k) = if a_transposed { (a1, a0) } else { (a0, a1) };
    let (k2, n) = if b_transposed { (b1, b0) } else { (b0, b1) };
    if k != k2 {
        return Err(format!("its operands are {xs:?} and {ws:?}, which do not fit"));
    }
    let product = MatMul {
        batch: Vec::new(),
        m,
        n,
        k,
        a_transposed,
        b_transposed,
        a: view.kind(a),
        b: view.kind(b),
    };
    let mut made = plain(view, node, product.name(), product.workload()?, vec![a, b])?;
    made.bias_name = "C";
    let (alpha, beta) = (float(node, "alpha", 1.0), float(node, "beta", 1.0));
    if alpha != 1.0 {
        made.steps.body = functions::mul(made.steps.body, functions::c(alpha));
        made.steps.tags.push("scale".into());
    }
    if let Some(c) = input(node, 2).filter(|_| beta != 0.0) {
        let (_, shape) = view.operand(node, 2)?;
        made.with(c, view.kind(c), shape.to_vec(), beta);
    }
    Ok(made)
}

fn matmul(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let ((a, xs), (b, ws)) = (view.operand(node, 0)?, view.operand(node, 1)?);
    // A vector is a row on the left and a column on the right.
    let (xs, ws) = (
        if xs.len() == 1 { vec![1, xs[0]] } else { xs.to_vec() },
        if ws.len() == 1 { vec![ws[0], 1] } else { ws.to_vec() },
    );
    let (Some(([m, k], a_batch)), Some(([k2, n], b_batch))) = (last_two(&xs), last_two(&ws)) else {
        return Err(format!("its operands are {xs:?} and {ws:?}, expected matrices"));
    };
    if k != k2 {
        return Err(format!("its operands are {xs:?} and {ws:?}, which do not fit"));
    }
    let rank = a_batch.len().max(b_batch.len());
    let at = |batch: &[i64], i: usize| (i + batch.len()).checked_sub(rank).map_or(1, |j| batch[j]);
    let mut batch = Vec::new();
    for i in 0..rank {
        match (at(a_batch, i), at(b_batch, i)) {
            (x, y) if x == y => batch.push((x, true, true)),
            (x, 1) => batch.push((x, true, false)),
            (1, y) => batch.push((y, false, true)),
            _ => return Err(format!("its batches {a_batch:?} and {b_batch:?} do not broadcast")),
        }
    }
    let product = MatMul {
        batch,
        m,
        n,
        k,
        a_transposed: false,
        b_transposed: false,
        a: view.kind(a),
        b: view.kind(b),
    };
    let mut made = plain(view, node, product.name(), product.workload()?, vec![a, b])?;
    made.bias_name = "C";
    Ok(made)
}

/// The product of extents of a file, which may be of any size.
fn product(shape: &[i64]) -> i64 {
    shape.iter().fold(1i64, |p, &e| p.saturating_mul(e))
}

/// Rows and columns of a matrix, and the batches before them.
fn last_two(shape: &[i64]) -> Option<([i64; 2], &[i64])> {
    shape.split_last_chunk::<2>().map(|(batch, matrix)| (*matrix, batch))
}

fn pool(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let ((x, xs), (_, ys)) = (view.operand(node, 0)?, view.result(node)?);
    let kernel = ints(node, "kernel_shape").ok_or("it has no kernel_shape")?;
    let v = windows(node, xs, kernel, ys)?;
    let kind = match node.op.as_str() {
        "MaxPool" => PoolKind::Max,
        _ => PoolKind::Average { count_padding: int(node, "count_include_pad", 0) != 0 },
    };
    let pool = Pool {
        kind,
        n: xs[0],
        c: xs[1],
        h: v.image[0],
        w: v.image[1],
        r: v.kernel[0],
        s: v.kernel[1],
        stride: v.stride,
        pads: v.pads,
        dilation: v.dilation,
        positions: Some(v.positions),
    };
    plain(view, node, pool.name(), pool.workload()?, vec![x])
}

fn global_pool(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let (x, xs) = view.operand(node, 0)?;
    let op = if node.op == "GlobalMaxPool" { ReduceOp::Max } else { ReduceOp::Mean };
    let r = Reduce { op, axes: xs.iter().enumerate().map(|(i, &e)| (e, i >= 2)).collect() };
    plain(view, node, r.name(), r.workload()?, vec![x])
}

fn reduce(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let (x, xs) = view.operand(node, 0)?;
    let word = node.op.trim_start_matches("Reduce").to_ascii_lowercase();
    let op = ReduceOp::ALL
        .iter()
        .find(|(_, n)| *n == word)
        .map(|(op, _)| *op)
        .ok_or("its reduction is not known")?;
    let axes = match (ints(node, "axes"), input(node, 1)) {
        (Some(list), _) => list,
        (None, Some(id)) => view.ints(id).ok_or("its axes are computed at run time")?,
        (None, None) => &[],
    };
    if axes.is_empty() && int(node, "noop_with_empty_axes", 0) != 0 {
        return Err("it has no axes and does nothing".into());
    }
    let mut list: Vec<(i64, bool)> = xs.iter().map(|&e| (e, axes.is_empty())).collect();
    for &a in axes {
        list[axis(a, xs.len())?].1 = true;
    }
    // Over other dimensions it is written out when a model is read
    // (`frontend/src/onnx/reader/composed/norms.rs`), as kernels that reduce in vectors.
    let mut long = list.iter().filter(|a| a.0 != 1).skip_while(|a| !a.1);
    if op == ReduceOp::LogSumExp && long.any(|a| !a.1) {
        return Err("it is not over the last dimensions".into());
    }
    let r = Reduce { op, axes: list };
    plain(view, node, r.name(), r.workload()?, vec![x])
}

fn softmax(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let (x, xs) = view.operand(node, 0)?;
    // Before opset 13 all axes from the given one on are one.
    let flat = view.model.opset < 13;
    let at = axis(int(node, "axis", if flat { 1 } else { -1 }), xs.len())?;
    let (extent, after) =
        if flat { (product(&xs[at..]), 1) } else { (xs[at], product(&xs[at + 1..])) };
    let s = Softmax { before: product(&xs[..at]), extent, after, log: node.op == "LogSoftmax" };
    plain(view, node, s.name(), s.workload()?, vec![x])
}
