//! Products of bytes by words, for CPUs without instructions that multiply bytes: a workload over
//! packed bytes (four an element) is rewritten so that copies widen the bytes to 16-bit integers,
//! two of them an element (`i16x2`). The CPU then multiplies words (`vpmaddwd`). Widening bytes at
//! each load would take more instructions than the products themselves.
//!
//! Weights are widened before the call, data by the padded copy or by a copy of its own. Each copy
//! has one more axis before its last, of extent 2: bytes 0 and 2 of an element, then bytes 1 and 3,
//! so that vectors of elements make vectors of words. `sketch/mod.rs` derives the sketches by tiles
//! for the rewritten workload and leaves the choice to the tuner.

use super::factors::{self, only_product, put_ahead, readers};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Unary, Var};
use squall_core::workload::{Axis, Stage};
use squall_core::{DType, TensorKind, Workload};

/// How often each element of data must be read for a copy of words to pay off.
const WORTH_WIDENING: i64 = 16;

/// The workload over words; `None` where it does not multiply bytes, or reads its data too rarely
/// for a copy to pay off.
pub(super) fn by_words(w: &Workload) -> Option<Workload> {
    let (main, x, y) = only_product(w, Binary::Dot)?;
    let mut made = Widening { w, main, made: w.clone(), ahead: Vec::new() };
    let a = made.factor(x, [Unary::EvenU8, Unary::OddU8])?;
    let b = made.factor(y, [Unary::EvenI8, Unary::OddI8])?;
    made.finished(Expr::binary(Binary::DotWords, a, b))
}

/// Whether a workload was made by [`by_words`].
pub(super) fn is_by_words(w: &Workload) -> bool {
    w.stages.iter().any(|s| s.dtype == DType::I16x2)
}

/// A workload whose factors are widened one after the other.
struct Widening<'a> {
    w: &'a Workload,
    main: usize,
    made: Workload,
    /// Stages that copy inputs, to be inserted before all other stages.
    ahead: Vec<Stage>,
}

impl Widening<'_> {
    /// The variable of the reduction over the two halves of an element, the last axis.
    fn half(&self) -> Var {
        let stage = &self.w.stages[self.main];
        Var((stage.axes.len() + stage.reduce_axes().len()) as u32)
    }

    /// A factor of the product as a read of words, after the input or copy that it is read from was
    /// widened.
    fn factor(&mut self, e: &Expr, halves: [Unary; 2]) -> Option<Expr> {
        let Expr::Load { source, index } = e else { return None };
        if readers(self.w, *source) != 1 {
            return None;
        }
        let at = index.len().checked_sub(1)?;
        let half = self.half();
        let with_half = |index: &[Affine]| {
            let mut index = index.to_vec();
            index.insert(at, Affine::var(half));
            index
        };
        let Some(copy) = (source.0 as usize).checked_sub(self.w.inputs.len()) else {
            let input = &self.w.inputs[source.0 as usize];
            let uses = factors::uses(&self.w.stages[self.main], index);
            if input.kind == TensorKind::Data && uses < WORTH_WIDENING {
                return None;
            }
            let (stage, index) = match (input.kind, self.as_read(index)) {
                (TensorKind::Data, Some(vars)) => {
                    let load = Expr::load(*source, renumbered(index, &vars));
                    (self.copied(&vars, load), vars.into_iter().map(Affine::var).collect())
                }
                _ => (whole(*source, &input.shape), index.clone()),
            };
            let source = factors::ahead(self.ahead.len());
            self.ahead.push(widened(&input.name, stage.0, stage.1, halves)?);
            return Some(Expr::Load { source, index: with_half(&index) });
        };
        let stage = &self.w.stages[copy];
        if stage.reduction.is_some() || !stage.dtype.is_packed() {
            return None;
        }
        let index = with_half(index);
        let made = widened(&stage.name, stage.axes.clone(), stage.body.clone(), halves)?;
        self.made.stages[copy] = Stage { name: stage.name.clone(), ..made };
        Some(Expr::Load { source: *source, index })
    }

    /// The variables that data is read by, where each dimension is read by one of them alone, in
    /// order: a copy then holds the elements that are read, without those that a stride leaves out.
    fn as_read(&self, index: &[Affine]) -> Option<Vec<Var>> {
        let one = |i: &Affine| match i.terms() {
            [(v, _)] => Some(*v),
            _ => None,
        };
        let vars: Vec<Var> = index.iter().map(one).collect::<Option<_>>()?;
        let apart = (1..vars.len()).all(|i| !vars[..i].contains(&vars[i]));
        apart.then_some(vars)
    }

    /// The axes of a copy of the elements that some variables of the product read, and the copied
    /// value.
    fn copied(&self, vars: &[Var], load: Expr) -> (Vec<Axis>, Expr) {
        let stage = &self.w.stages[self.main];
        let all = || stage.axes.iter().chain(stage.reduce_axes());
        let axis = |v: &Var| all().nth(v.0 as usize).cloned();
        (vars.iter().filter_map(axis).collect(), load)
    }

    /// The workload with this product in the place of that of bytes.
    fn finished(self, product: Expr) -> Option<Workload> {
        let Widening { main, mut made, ahead, .. } = self;
        let stage = &mut made.stages[main];
        stage.body = product;
        stage.reduction.as_mut()?.axes.push(Axis::new("half", 2));
        put_ahead(&mut made, ahead);
        made.check().ok().map(|()| made)
    }
}

/// An index over the axes of a copy, which are these variables in order.
fn renumbered(index: &[Affine], vars: &[Var]) -> Vec<Affine> {
    let place = |v: Var| vars.iter().position(|x| *x == v).unwrap_or(0);
    index.iter().map(|i| i.map_vars(|v| Affine::var(Var(place(v) as u32)))).collect()
}

/// The axes of a copy of a whole tensor, and the copied value.
fn whole(source: Source, shape: &[i64]) -> (Vec<Axis>, Expr) {
    let axes = shape.iter().enumerate().map(|(d, &n)| Axis::new(format!("i{d}"), n)).collect();
    let index = (0..shape.len()).map(|d| Affine::var(Var(d as u32))).collect();
    (axes, Expr::load(source, index))
}

/// The stage that makes words of what a body over some axes gives.
fn widened(name: &str, axes: Vec<Axis>, body: Expr, [even, odd]: [Unary; 2]) -> Option<Stage> {
    let half = Var(axes.len().checked_sub(1)? as u32);
    let body = body.map_vars(|v| Affine::var(if v < half { v } else { Var(v.0 + 1) }));
    let of = |e: &Expr| Expr::Select {
        conds: vec![Cond { index: Affine::var(half), low: 0, high: 1 }],
        then: Box::new(Expr::unary(even, e.clone())),
        other: Box::new(Expr::unary(odd, e.clone())),
    };
    // A border of four equal bytes is two equal words.
    let body = match body {
        Expr::Select { conds, then, other } if let Expr::Const(c) = *other => {
            let (a, b) = (even.apply(c), odd.apply(c));
            if a != b {
                return None;
            }
            Expr::Select { conds, then: Box::new(of(&then)), other: Box::new(Expr::Const(a)) }
        }
        body => of(&body),
    };
    let mut axes = axes;
    axes.insert(half.0 as usize, Axis::new("half", 2));
    let name = format!("{name}_words");
    Some(Stage { name, dtype: DType::I16x2, axes, reduction: None, body })
}
