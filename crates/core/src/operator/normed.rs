//! Recognises a matrix product whose rows are normalised first, as one workload: a layer norm
//! (arXiv 1607.06450) or a softmax and the product that alone reads it. Input: a workload; output:
//! a [`Normed`]: the statistics of whole rows (mean, deviation, sum of powers) as steps, and the
//! product with the rest of the norm as elementwise work ahead of it.
//! `compiler/src/sketch/gpu/contract` makes one kernel of it, whose threads compute the steps first
//! (`compiler/src/sketch/gpu/row_steps.rs`).

use super::written_out::{MOST_STAGES, with_written_out, written_out};
use super::{BACK_TO_BACK, between_operators, fresh, operators};
use crate::TensorKind;
use crate::expr::{Affine, Binary, DType, Expr, Source, Var};
use crate::workload::{Input, Reducer, Stage, Workload};
use std::collections::HashSet;

/// A step over rows: a reduction of each row, or a number that is computed from reductions.
#[derive(Clone, Debug, PartialEq)]
pub enum RowStep {
    /// A reduction over the elements of the row. Its body has the variables of the rows, then that
    /// of the element.
    Reduce(Reducer, Expr),
    /// A number of the row.
    Number(Expr),
}

/// A product of normalised rows. In expressions of steps, a load without indices of source
/// `i` is the result of step `i`; all other loads are of inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Normed {
    /// The steps, each of which reads those before it.
    pub steps: Vec<RowStep>,
    /// Elements of a row.
    pub extent: i64,
    /// The product with the elementwise rest ahead of it: its inputs are those of the whole, then
    /// for each of [`Self::given`] one by rows.
    pub product: Workload,
    /// The steps that the product reads, and the names of its inputs that they are.
    pub given: Vec<(usize, String)>,
}

impl Normed {
    /// The normed product that a workload computes, if it is of this form; its tensors are of
    /// 32-bit floats.
    pub fn of(w: &Workload) -> Option<Normed> {
        let is_float = |t: DType| t == DType::F32;
        let are_floats = w.inputs.iter().all(|i| is_float(i.dtype))
            && w.stages.iter().all(|s| is_float(s.dtype));
        if w.kind != BACK_TO_BACK || !are_floats || !w.rooms.is_empty() || w.foreign.is_some() {
            return None;
        }
        // A load without indices is a step's, so no input may be read so.
        let is_number = |i: &Input| i.shape.is_empty();
        if w.stages.len() > MOST_STAGES || w.inputs.iter().any(is_number) {
            return None;
        }
        let [norm, product] = operators(w, between_operators(w)?);
        let is_sum = |s: &&Stage| s.reduction.as_ref().is_some_and(|r| r.op == Reducer::Sum);
        if product.stages.iter().filter(|s| s.reduction.is_some()).count() != 1
            || !product.stages.iter().any(|s| is_sum(&s))
            || norm.inputs.len() + product.inputs.len() != w.inputs.len() + 1
        {
            return None;
        }
        let mut made = Rows::of(&norm)?;
        let rest = made.rest()?;
        let given: Vec<usize> = made.read_in(&rest);
        Some(made.ahead_of(product, rest, given, w))
    }
}

/// The steps of a normalisation, as they are found.
struct Rows<'a> {
    norm: &'a Workload,
    steps: Vec<RowStep>,
    /// The stages that reduce, with their steps.
    reductions: Vec<(Source, usize)>,
    extent: i64,
}

impl<'a> Rows<'a> {
    fn of(norm: &'a Workload) -> Option<Rows<'a>> {
        let (last, rows) = norm.output().axes.split_last()?;
        let extent = last.extent;
        if rows.is_empty() {
            return None;
        }
        let mut found = Rows { norm, steps: Vec::new(), reductions: Vec::new(), extent };
        for (i, s) in norm.stages.iter().enumerate() {
            let Some(r) = &s.reduction else { continue };
            let are_rows = s.axes.len() == rows.len()
                && s.axes.iter().zip(rows).all(|(a, b)| a.extent == b.extent);
            if !are_rows || s.reduce_axes().len() != 1 || s.reduce_axes()[0].extent != extent {
                return None;
            }
            let body = found.stepped(with_written_out(norm, &s.body, &found.is_kept())?)?;
            let body = found.hoisted(&body);
            found.reductions.push((norm.stage_source(i), found.steps.len()));
            found.steps.push(RowStep::Reduce(r.op, body));
        }
        (!found.reductions.is_empty()).then_some(found)
    }

    fn is_kept(&self) -> impl Fn(Source) -> bool + use<> {
        let kept: Vec<Source> = self.reductions.iter().map(|r| r.0).collect();
        move |s| kept.contains(&s)
    }

    fn rows(&self) -> usize {
        self.norm.output().axes.len() - 1
    }

    /// The expression with loads of reductions as those of their steps; none where one is read at
    /// another row.
    fn stepped(&self, e: Expr) -> Option<Expr> {
        let mut fits = true;
        let made = e.rewrite(&mut Affine::clone, &mut |e| match &e {
            Expr::Load { source, index } => match self.reductions.iter().find(|r| r.0 == *source) {
                Some((_, step)) => {
                    let is_own =
                        index.iter().enumerate().all(|(i, a)| a.as_var() == Some(Var(i as u32)));
                    fits &= is_own;
                    Expr::load(Source(*step as u32), Vec::new())
                }
                None => e,
            },
            _ => e,
        });
        fits.then_some(made)
    }

    /// What is made of rows elementwise.
    fn rest(&mut self) -> Option<Expr> {
        let own: Vec<Affine> = (0..=self.rows()).map(|d| Affine::var(Var(d as u32))).collect();
        let last = self.norm.stage_source(self.norm.stages.len() - 1);
        let value = written_out(self.norm, last, &own, &self.is_kept())?;
        let value = self.stepped(value)?;
        Some(self.hoisted(&value))
    }

    /// Whether an expression is of rows alone, and of some step.
    fn is_of_rows(&self, e: &Expr) -> bool {
        let element = Var(self.rows() as u32);
        let (mut is, mut reads_step) = (true, false);
        e.visit(&mut |e| match e {
            Expr::Load { index, .. } => {
                reads_step |= index.is_empty();
                is &= !index.iter().any(|a| a.uses(element));
            }
            Expr::Select { .. } => is = false,
            _ => {}
        });
        is && reads_step
    }

    /// The expression with numbers of rows as steps of their own. A division by one is a product
    /// with its reciprocal.
    fn hoisted(&mut self, e: &Expr) -> Expr {
        if self.is_of_rows(e) {
            return self.step_of(e.clone());
        }
        match e {
            Expr::Binary(Binary::Div, a, b) if self.is_of_rows(b) => {
                let a = self.hoisted(a);
                let one = Expr::Const(1.0);
                let b = self.step_of(Expr::binary(Binary::Div, one, (**b).clone()));
                Expr::binary(Binary::Mul, a, b)
            }
            Expr::Binary(op, a, b) => Expr::binary(*op, self.hoisted(a), self.hoisted(b)),
            Expr::Unary(op, a) => Expr::unary(*op, self.hoisted(a)),
            e => e.clone(),
        }
    }

    /// The step that is a number of the row.
    fn step_of(&mut self, e: Expr) -> Expr {
        let is_it = |s: &RowStep| matches!(s, RowStep::Number(known) if *known == e);
        let step = match (&e, self.steps.iter().position(is_it)) {
            (Expr::Load { source, index }, _) if index.is_empty() => source.0 as usize,
            (_, Some(known)) => known,
            _ => {
                self.steps.push(RowStep::Number(e));
                self.steps.len() - 1
            }
        };
        Expr::load(Source(step as u32), Vec::new())
    }

    /// The steps that an expression reads, each once.
    fn read_in(&self, e: &Expr) -> Vec<usize> {
        let loads = e.loads();
        let mut read: Vec<usize> =
            loads.iter().filter(|l| l.1.is_empty()).map(|l| l.0.0 as usize).collect();
        read.sort_unstable();
        read.dedup();
        read
    }

    /// The whole, where the product reads the rest of the norm.
    fn ahead_of(self, product: Workload, rest: Expr, given: Vec<usize>, w: &Workload) -> Normed {
        let (ours, theirs) = (self.norm.inputs.len(), product.inputs.len());
        let (rows, made) = (self.rows(), self.norm.output());
        let names = w.inputs.iter().map(|i| &i.name).chain(w.stages.iter().map(|s| &s.name));
        let mut taken: HashSet<String> = names.cloned().collect();
        let shape: Vec<i64> = made.axes[..rows].iter().map(|a| a.extent).collect();
        let mut inputs = [&self.norm.inputs[..], &product.inputs[1..]].concat();
        let first = inputs.len();
        let mut named = Vec::new();
        for &step in &given {
            let (name, kind) = (fresh("R", &mut taken), TensorKind::Data);
            named.push((step, name.clone()));
            inputs.push(Input { name, dtype: DType::F32, shape: shape.clone(), kind });
        }
        let own: Vec<Affine> = (0..rows).map(|d| Affine::var(Var(d as u32))).collect();
        let body = rest.rewrite(&mut Affine::clone, &mut |e| match &e {
            Expr::Load { source, index } if index.is_empty() => {
                let at = given.iter().position(|s| *s == source.0 as usize).unwrap_or(0);
                Expr::load(Source((first + at) as u32), own.clone())
            }
            _ => e,
        });
        let total = inputs.len();
        let to = |s: Source| match (s.0 as usize).checked_sub(theirs) {
            Some(stage) => Source((total + 1 + stage) as u32),
            None if s.0 == 0 => Source(total as u32),
            None => Source((ours + s.0 as usize - 1) as u32),
        };
        let mut stages = vec![Stage { reduction: None, body, ..made.clone() }];
        let moved = |s: &Stage| Stage { body: s.body.map_sources(to), ..s.clone() };
        stages.extend(product.stages.iter().map(moved));
        let product = Workload { kind: "matmul".into(), inputs, stages, ..Workload::default() };
        Normed { steps: self.steps, extent: self.extent, product, given: named }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::joined::examples::numbers;
    use crate::operator::{LayerNorm, MatMul, Softmax, chain};

    /// A normalisation of rows and a product that sums over them.
    fn normed(first: Workload, second: &Workload) -> Option<Workload> {
        chain(BACK_TO_BACK, first, &[second]).ok().filter(|w| Normed::of(w).is_some())
    }

    fn product(m: i64, n: i64, k: i64) -> Workload {
        MatMul::plain(m, n, k, TensorKind::Weight).workload().unwrap()
    }

    /// The steps of a row and the product of what is left, computed one after the other.
    fn by_steps(n: &Normed, inputs: &[Vec<f64>], rows: i64) -> Vec<f64> {
        let count = n.product.inputs.len() - n.given.len();
        let mut found: Vec<Vec<f64>> = Vec::new();
        for step in &n.steps {
            // A step as a workload of the inputs and the steps before it.
            let all = n.product.inputs[..count].iter().cloned();
            let of = |i: usize| Input {
                name: format!("step{i}"),
                dtype: DType::F32,
                shape: vec![rows],
                kind: TensorKind::Data,
            };
            let list: Vec<Input> = all.chain((0..found.len()).map(of)).collect();
            let axes = n.product.stages[0].axes.clone();
            let read = |e: &Expr| {
                e.rewrite(&mut Affine::clone, &mut |e| match &e {
                    Expr::Load { source, index } if index.is_empty() => {
                        Expr::load(Source(count as u32 + source.0), vec![Affine::var(Var(0))])
                    }
                    _ => e,
                })
            };
            let (reduction, body) = match step {
                RowStep::Reduce(op, e) => (
                    Some(crate::workload::Reduction { op: *op, axes: vec![axes[1].clone()] }),
                    read(e),
                ),
                RowStep::Number(e) => (None, read(e)),
            };
            let stage = Stage {
                name: "Y".into(),
                dtype: DType::F32,
                axes: vec![axes[0].clone()],
                reduction,
                body,
            };
            let w = Workload { inputs: list, stages: vec![stage], ..Workload::default() };
            w.check().unwrap();
            found.push(w.evaluate(&[inputs, &found[..]].concat()));
        }
        let given = n.given.iter().map(|(step, _)| found[*step].clone());
        n.product.evaluate(&inputs.iter().cloned().chain(given).collect::<Vec<_>>())
    }

    #[test]
    fn it_is_the_norm_and_the_product_one_after_the_other() {
        let gain = TensorKind::Weight;
        let norm = |bias| LayerNorm { rows: 8, cols: 5, eps: 1e-5, gain, bias }.workload().unwrap();
        let softmax = Softmax { before: 8, extent: 5, after: 1, log: false }.workload().unwrap();
        for (first, steps) in [(norm(Some(gain)), 4), (norm(None), 4), (softmax, 3)] {
            let second = product(8, 7, 5);
            let w = normed(first.clone(), &second).unwrap();
            let found = Normed::of(&w).unwrap();
            found.product.check().unwrap();
            assert_eq!((found.steps.len(), found.extent), (steps, 5), "{found:?}");
            let inputs = [numbers(&first, 0), numbers(&second, 1)].concat();
            let (want, made) = (w.evaluate(&inputs), by_steps(&found, &inputs, 8));
            let far = want.iter().zip(&made).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(far < 1e-5, "{far}\n{}", found.product);
        }
    }

    #[test]
    fn others_are_refused() {
        let softmax = |after| Softmax { before: 8, extent: 5, after, log: false };
        // The product sums over another axis than the norm, or there is no norm.
        assert!(normed(product(8, 5, 4), &product(8, 7, 5)).is_none());
        assert!(normed(softmax(1).workload().unwrap(), &product(8, 7, 4)).is_none());
        assert!(normed(softmax(3).workload().unwrap(), &product(8, 7, 5)).is_none());
    }
}
