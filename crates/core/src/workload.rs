//! A workload: the tensor expression that a kernel computes, as stages over named tensors (TVM's
//! tensor expression, Halide's algorithm). A stage is one tensor, defined element by element.
//!
//! ```text
//! workload conv2d
//! data X: f32[1, 64, 56, 56]
//! weight W: f32[64, 64, 3, 3]
//! stage P: f32[n: 1, c: 64, h: 58, w: 58] =
//!     select(0 <= h - 1 < 56 and 0 <= w - 1 < 56, X[n, c, h - 1, w - 1], 0)
//! stage Y: f32[n: 1, k: 64, p: 56, q: 56] =
//!     sum(c: 64, r: 3, s: 3) P[n, c, p + r, q + s] * W[k, c, r, s]
//! output Y
//! ```
//!
//! The text is canonical, with each stage on one line: equal workloads print equally, and a
//! [`Task`](crate::Task)'s identity is a hash of it. Memory is dense and row-major; only a tensor's
//! element order counts, so a stage may see a tensor in another shape of the same elements. A data
//! input or the output may be the first corner of a larger box, as in `output Y of [1, 56, 56, 96]`
//! (module `room`).

mod format;
mod hard;
mod room;
mod zeros;

pub use crate::expr::DType;
use crate::expr::{Affine, Binary, Expr, Source, Unary, Var};
use crate::text::TextError;
use crate::units::Bytes;
pub use hard::Hard;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The identity of a kernel that is made from the user's own source and not from its expression.
/// The stages of such a workload only give the shapes of what is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Foreign {
    /// A hash of everything that decides what the kernel computes and which configurations it has.
    pub digest: String,
    /// See [`Workload::tolerance`].
    pub tolerance: f64,
    /// See [`Workload::flop`]; 0 where it is not given.
    pub flop: u64,
    /// The least and the largest value of each input; `None` stands for `[-1, 1)`.
    pub ranges: Vec<Option<(f64, f64)>>,
}

/// Whether an input changes at every call or is constant over calls (and may be packed ahead).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TensorKind {
    /// Changes at every call.
    Data,
    /// Constant over calls: the kernel chooses its layout, and packs it outside the timed call.
    Weight,
}

/// An input tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Unique in the workload.
    pub name: String,
    /// Element format.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// Data or weight.
    pub kind: TensorKind,
}

/// A named axis `0 .. extent`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// Unique in its stage.
    pub name: String,
    /// Number of values.
    pub extent: i64,
}

impl Axis {
    /// An axis.
    pub fn new(name: impl Into<String>, extent: i64) -> Axis {
        Axis { name: name.into(), extent }
    }
}

/// How a reduction combines values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // the names are the operations
pub enum Reducer {
    Sum,
    Prod,
    Max,
    Min,
}

impl Reducer {
    /// All of them, with their spelling in text.
    pub const ALL: &'static [(Reducer, &'static str)] = &[
        (Reducer::Sum, "sum"),
        (Reducer::Prod, "prod"),
        (Reducer::Max, "max"),
        (Reducer::Min, "min"),
    ];

    /// The spelling in text.
    pub fn name(self) -> &'static str {
        match self {
            Reducer::Sum => "sum",
            Reducer::Prod => "prod",
            Reducer::Max => "max",
            Reducer::Min => "min",
        }
    }

    /// The neutral element.
    pub fn identity(self) -> f64 {
        match self {
            Reducer::Sum => 0.0,
            Reducer::Prod => 1.0,
            Reducer::Max => f64::NEG_INFINITY,
            Reducer::Min => f64::INFINITY,
        }
    }

    /// The operation that combines two values.
    pub fn binary(self) -> Binary {
        match self {
            Reducer::Sum => Binary::Add,
            Reducer::Prod => Binary::Mul,
            Reducer::Max => Binary::Max,
            Reducer::Min => Binary::Min,
        }
    }
}

/// A reduction over axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduction {
    /// How values are combined.
    pub op: Reducer,
    /// At least one.
    pub axes: Vec<Axis>,
}

/// One tensor computed from others: for each point of `axes`, `body`, reduced where asked.
/// In `body`, `Var(i)` is the i-th of `axes` followed by the reduction's axes, and `Source(s)`
/// counts the workload's inputs, then its stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Unique in the workload.
    pub name: String,
    /// Element format of the result.
    pub dtype: DType,
    /// The result's axes; their extents are its shape.
    pub axes: Vec<Axis>,
    /// Present if values are reduced.
    pub reduction: Option<Reduction>,
    /// The value at a point.
    pub body: Expr,
}

impl Stage {
    /// The result's shape.
    pub fn shape(&self) -> Vec<i64> {
        self.axes.iter().map(|a| a.extent).collect()
    }

    /// Spatial axes, then reduction axes: what `Var(i)` counts.
    pub fn all_axes(&self) -> impl Iterator<Item = &Axis> {
        self.axes.iter().chain(self.reduction.iter().flat_map(|r| &r.axes))
    }

    /// The reduction axes.
    pub fn reduce_axes(&self) -> &[Axis] {
        self.reduction.as_ref().map_or(&[], |r| &r.axes)
    }

    /// Points that the body is evaluated at.
    pub fn points(&self) -> u64 {
        self.all_axes().map(|a| a.extent as u64).product()
    }

    /// Elements of the result.
    pub fn elements(&self) -> u64 {
        self.axes.iter().map(|a| a.extent as u64).product()
    }

    /// Arithmetic operations: every function of the body, and one for combining, at each point.
    pub fn flop(&self) -> u64 {
        self.points() * (self.body.flop() + u64::from(self.reduction.is_some()))
    }
}

/// A tensor expression: inputs, stages in order, the last of which is the output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The kind of kernel, a name of the field: `conv2d`, `matmul`, `softmax`.
    pub kind: String,
    /// The inputs, data and weights in the caller's order.
    pub inputs: Vec<Input>,
    /// The stages; each reads inputs and earlier stages.
    pub stages: Vec<Stage>,
    /// Present if the kernel is made from the user's own source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Foreign>,
    /// Data inputs and the output that do not lie densely, by name: the extents of the box in
    /// memory whose first corner they are. What lies between their elements is another's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rooms: BTreeMap<String, Vec<i64>>,
}

/// A workload that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// The text does not parse.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The expression is not well formed.
    #[error("stage `{stage}`: {message}")]
    Stage {
        /// The stage.
        stage: String,
        /// The rule that is broken.
        message: String,
    },
}

impl Workload {
    /// The stage whose result is the kernel's output. A checked workload has one.
    pub fn output(&self) -> &Stage {
        &self.stages[self.stages.len() - 1]
    }

    /// Everything that the kernel writes: the output, or all stages of a user's kernel.
    pub fn outputs(&self) -> &[Stage] {
        match self.foreign {
            Some(_) => &self.stages,
            None => &self.stages[self.stages.len() - 1..],
        }
    }

    /// Shape of a source.
    pub fn shape_of(&self, s: Source) -> Vec<i64> {
        match self.stage_of(s) {
            Some(st) => st.shape(),
            None => self.inputs[s.0 as usize].shape.clone(),
        }
    }

    /// The stage that a source is, if it is one.
    pub fn stage_of(&self, s: Source) -> Option<&Stage> {
        (s.0 as usize).checked_sub(self.inputs.len()).map(|i| &self.stages[i])
    }

    /// The source number of the i-th stage.
    pub fn stage_source(&self, i: usize) -> Source {
        Source((self.inputs.len() + i) as u32)
    }

    /// Whether a stage only arranges elements of weights, in pairs or words too, or puts zeros
    /// between them: it is computed ahead of the call, as the weights' packing is.
    pub fn is_of_weights(&self, s: &Stage) -> bool {
        let weight = |e: &Expr| match e {
            Expr::Load { source, .. } => {
                self.inputs.get(source.0 as usize).is_some_and(|i| i.kind == TensorKind::Weight)
            }
            _ => false,
        };
        let bounded = |e: &Expr| match e {
            Expr::Select { then, other, .. } => weight(then) && matches!(**other, Expr::Const(_)),
            e => weight(e),
        };
        // One of the two words of each element.
        let word = |e: &Expr| matches!(e, Expr::Unary(op, e) if op.makes_words() && weight(e));
        let arranged = match &s.body {
            Expr::Select { then, other, .. } if word(then) => word(other),
            Expr::Binary(Binary::Pair, low, high) => weight(low) && bounded(high),
            body => bounded(body),
        };
        arranged && s.reduction.is_none() && self.stages.last() != Some(s)
    }

    /// Bytes that any kernel must move: every input read once, every output written once.
    pub fn bytes(&self) -> Bytes {
        let inputs: u64 = self
            .inputs
            .iter()
            .map(|i| i.shape.iter().product::<i64>() as u64 * i.dtype.bytes())
            .sum();
        Bytes(inputs + self.outputs().iter().map(|o| o.elements() * o.dtype.bytes()).sum::<u64>())
    }

    /// The longest chain of additions that one output element goes through: what sets the
    /// tolerance of a comparison.
    pub fn reduction_length(&self) -> u64 {
        self.stages
            .iter()
            .map(|s| s.reduce_axes().iter().map(|a| a.extent as u64).product::<u64>())
            .max()
            .unwrap_or(1)
    }

    /// How far an element of a kernel's output may lie from the reference, relative to the largest
    /// element: rounding errors of a sum grow like the root of its length where they are
    /// independent. Of outputs in formats of 16 bits this is what is allowed beside their last
    /// place. Factors rounded to tf32 cost a sum a few 1e-4 of its largest results, and so do
    /// powers that a kernel may round to the format of what they are multiplied by: f16 rounds as
    /// tf32 does, bf16 eight times as coarsely. Kernels of such workloads that round no powers are
    /// let off as well.
    pub fn tolerance(&self) -> f64 {
        if let Some(f) = &self.foreign {
            return f.tolerance;
        }
        if self.stages.iter().any(|s| casts(&s.body, DType::Tf32)) {
            return 1e-3;
        }
        // What lies halfway between two bytes may be rounded to either, and whole sums are exact.
        match self.output().dtype {
            DType::U8 | DType::I8 => return 1.99 / 255.0,
            DType::I32 => return 0.0,
            _ => {}
        }
        match self.weights_by_powers() {
            Some(DType::F16) => return 1e-3,
            Some(DType::Bf16) => return 4e-3,
            _ => {}
        }
        let length = (self.reduction_length() as f64).sqrt();
        let sum = (2e-6 * (8.0 + length)).max(1e-5);
        // Of factors that a kernel rounds itself, to one step of 127, some lie halfway between two.
        if self.is_of_few_bits() && self.rounds_factors() { sum + 0.05 / length } else { sum }
    }

    /// Checks names, ranks, extents, bounds and order.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let fail = |stage: &str, message: String| {
            Err(WorkloadError::Stage { stage: stage.into(), message })
        };
        if self.stages.is_empty() {
            return fail(&self.kind, "a workload needs a stage".into());
        }
        let mut names = std::collections::HashSet::new();
        for n in self.inputs.iter().map(|i| &i.name).chain(self.stages.iter().map(|s| &s.name)) {
            if !names.insert(n) {
                return fail(n, "the name is taken".into());
            }
        }
        let tensors = self
            .inputs
            .iter()
            .map(|i| (&i.name, i.dtype))
            .chain(self.stages.iter().map(|s| (&s.name, s.dtype)));
        if let Some((name, _)) = tensors.into_iter().find(|t| t.1 == DType::Tf32) {
            return fail(
                name,
                "tf32 says how factors are multiplied, as in `tf32(A[m, k]) * tf32(B[k, n])`; no \
                 tensor has it as its format"
                    .into(),
            );
        }
        for i in &self.inputs {
            if i.shape.iter().any(|&e| e < 1) {
                return fail(&i.name, format!("shape {:?} has an empty dimension", i.shape));
            }
        }
        for (k, s) in self.stages.iter().enumerate() {
            let axes: Vec<&Axis> = s.all_axes().collect();
            for (i, a) in axes.iter().enumerate() {
                if a.extent < 1 {
                    return fail(&s.name, format!("axis `{}` is empty", a.name));
                }
                if axes[..i].iter().any(|b| b.name == a.name) {
                    return fail(&s.name, format!("axis `{}` is named twice", a.name));
                }
            }
            // In floats: hostile extents overflow integers.
            if axes.iter().map(|a| a.extent as f64).product::<f64>() > 1e15 {
                return fail(&s.name, "the iteration space is too large".into());
            }
            let mut bad = None;
            s.body.visit(&mut |e| {
                if let Expr::Load { source, index } = e {
                    if source.0 as usize >= self.inputs.len() + k {
                        bad = Some("reads a tensor that is not computed before it".to_string());
                    } else if self.shape_of(*source).len() != index.len() {
                        bad = Some(format!(
                            "indexes {} with {} indices",
                            self.source(*source),
                            index.len()
                        ));
                    }
                }
            });
            if let Some(m) = bad {
                return fail(&s.name, m);
            }
            let bound = |v: Var| axes[v.0 as usize].extent - 1;
            if let Some(m) = self.out_of_bounds(&s.body, &bound, &[]) {
                return fail(&s.name, m);
            }
        }
        self.check_rooms()
    }

    /// Every load must stay inside its tensor for all points that reach it; a condition of an
    /// enclosing select on the very same index narrows it.
    fn out_of_bounds(
        &self,
        e: &Expr,
        bound: &impl Fn(Var) -> i64,
        guards: &[&crate::expr::Cond],
    ) -> Option<String> {
        match e {
            Expr::Const(_) => None,
            Expr::Load { source, index } => {
                self.shape_of(*source).iter().zip(index).find_map(|(&extent, a)| {
                    let (mut lo, mut hi) = a.range(bound);
                    for g in guards {
                        // g bounds a + d for a constant d where the variable parts agree.
                        if g.index.terms() == a.terms() {
                            let d = a.offset() - g.index.offset();
                            lo = lo.max(g.low + d);
                            hi = hi.min(g.high - 1 + d);
                        }
                    }
                    (lo < 0 || hi >= extent).then(|| {
                        format!(
                            "an index of `{}` runs over {lo}..={hi}, the extent is {extent}",
                            self.source(*source)
                        )
                    })
                })
            }
            Expr::Unary(_, a) | Expr::Cast(_, a) => self.out_of_bounds(a, bound, guards),
            Expr::Binary(_, a, b) => self
                .out_of_bounds(a, bound, guards)
                .or_else(|| self.out_of_bounds(b, bound, guards)),
            Expr::Select { conds, then, other } => {
                let inner: Vec<_> = guards.iter().copied().chain(conds).collect();
                self.out_of_bounds(then, bound, &inner)
                    .or_else(|| self.out_of_bounds(other, bound, guards))
            }
        }
    }

    /// Whether it multiplies bytes, four of them at once.
    pub fn multiplies_bytes(&self) -> bool {
        self.inputs.iter().any(|i| matches!(i.dtype, DType::U8x4 | DType::I8x4))
            || self.is_of_few_bits() && self.rounds_factors()
    }

    /// Whether it has the tensors of a product with weights of few bits: rows of floats in blocks,
    /// and codes in tiles ([`FewBits`](crate::operator::FewBits)).
    fn is_of_few_bits(&self) -> bool {
        let [a, codes, ..] = &self.inputs[..] else { return false };
        let has_tiles = matches!(codes.shape[..], [_, _, 16, 4]) && a.shape.len() == 3;
        has_tiles && self.kind == "matmul" && a.dtype == DType::F32 && codes.dtype == DType::U8
    }

    /// Whether a stage before the last gives rounded numbers, as quantised factors are.
    fn rounds_factors(&self) -> bool {
        let rounds = |s: &Stage| matches!(s.body, Expr::Unary(Unary::Round, _));
        self.stages.split_last().is_some_and(|(_, before)| before.iter().any(rounds))
    }

    /// The 16-bit format of a tensor that a sum weights by powers of an earlier stage, as attention
    /// does: tensor cores take both factors in that format.
    fn weights_by_powers(&self) -> Option<DType> {
        let inputs = self.inputs.len();
        let stage = |s: &Source| self.stages.get((s.0 as usize).checked_sub(inputs)?);
        let is_power =
            |s: &Source| stage(s).is_some_and(|s| matches!(s.body, Expr::Unary(Unary::Exp, _)));
        self.stages.iter().find_map(|s| {
            let Expr::Binary(Binary::Mul, a, b) = &s.body else { return None };
            let (Expr::Load { source: a, .. }, Expr::Load { source: b, .. }) = (&**a, &**b) else {
                return None;
            };
            let other = [(a, b), (b, a)].into_iter().find(|(x, _)| is_power(x))?.1;
            let format = self.inputs.get(other.0 as usize)?.dtype;
            (s.reduction.is_some() && format.is_half()).then_some(format)
        })
    }

    /// Evaluates the workload in double precision, each stage rounded to its format: the meaning
    /// that kernels are tested against. `inputs` in the workload's order.
    pub fn evaluate(&self, inputs: &[Vec<f64>]) -> Vec<f64> {
        let mut values: Vec<Vec<f64>> = inputs.to_vec();
        let mut shapes: Vec<Vec<i64>> = self.inputs.iter().map(|i| i.shape.clone()).collect();
        for s in &self.stages {
            let spatial: Vec<i64> = s.shape();
            let reduce: Vec<i64> = s.reduce_axes().iter().map(|a| a.extent).collect();
            let mut out = Vec::with_capacity(s.elements() as usize);
            let mut point = vec![0i64; spatial.len() + reduce.len()];
            loop {
                let mut acc = s.reduction.as_ref().map_or(0.0, |r| r.op.identity());
                loop {
                    let x = s.body.eval(&|v| point[v.0 as usize], &mut |src, index| {
                        let shape = &shapes[src.0 as usize];
                        let flat = index
                            .iter()
                            .zip(shape)
                            .fold(0, |o, (a, &e)| o * e + a.eval(|v| point[v.0 as usize]));
                        values[src.0 as usize][flat as usize]
                    });
                    acc = s.reduction.as_ref().map_or(x, |r| r.op.binary().apply(acc, x));
                    if !step(&mut point[spatial.len()..], &reduce) {
                        break;
                    }
                }
                out.push(s.dtype.round(acc));
                if !step(&mut point[..spatial.len()], &spatial) {
                    break;
                }
            }
            values.push(out);
            shapes.push(spatial);
        }
        values.pop().unwrap_or_default()
    }
}

/// Whether a value is rounded to a format somewhere in an expression.
fn casts(e: &Expr, format: DType) -> bool {
    let mut found = false;
    e.visit(&mut |x| found |= matches!(x, Expr::Cast(t, _) if *t == format));
    found
}

/// Advances a row-major counter; false when it wraps.
fn step(point: &mut [i64], extents: &[i64]) -> bool {
    for i in (0..extents.len()).rev() {
        point[i] += 1;
        if point[i] < extents[i] {
            return true;
        }
        point[i] = 0;
    }
    false
}

impl Workload {
    /// Name of a source.
    pub fn source(&self, s: Source) -> &str {
        match self.stage_of(s) {
            Some(st) => &st.name,
            None => &self.inputs[s.0 as usize].name,
        }
    }
}

/// A dense row-major index from a flat position: helper for tests and packers.
pub fn flatten(index: &[Affine], shape: &[i64]) -> Affine {
    index.iter().zip(shape).fold(Affine::constant(0), |o, (a, &e)| o.scale(e).add(a))
}
