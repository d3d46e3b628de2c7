//! Replaces a `QuantizeLinear` and the operator ahead of it by one operator over bytes, in the
//! rewriting of quantised models (`mod.rs`). Example: `Conv`, `Relu`, `QuantizeLinear` become
//! `ConvBytes`, whose attributes hold the rounding. Where the operator has no form over bytes, its
//! floats are converted by `ToBytes`. Input: a node; effect: new nodes and a holder (`hold.rs`) of
//! the result's bytes.

use super::hold::{Holder, Made, Quantised, Steps};
use super::trace::Rounded;
use super::{Attributes, Call, Rewriter, of_bytes};
use crate::fuse::step::norm;
use crate::view::{input, is_standard};
use squall_core::TensorKind;
use squall_core::graph::infer::bytes::{FOUR, Weights};
use squall_core::graph::{Attribute, Node, ValueId};
use squall_core::operator::{ByteRange, ByteResult, ByteSum, Gate, MatMul};

impl<'a> Rewriter<'a> {
    /// Replaces a `QuantizeLinear`. Returns whether it did.
    pub fn quantise(&mut self, n: &'a Node) -> bool {
        let (Some(&Some(x)), Some(&y)) = (n.inputs.first(), n.outputs.first()) else {
            return false;
        };
        let (Some(to), Some(shape)) = (self.steps(n, y), self.view.shape(y)) else {
            return false;
        };
        let made = match self.quantised(x) {
            Some(q) => self.again(&n.name, q, to, ByteRange::ALL),
            None => {
                let r = self.rounded(n, to);
                let made = r.and_then(|r| self.operator(&r, shape));
                made.or_else(|| self.table(n, to, shape))
            }
        };
        let (Steps { step, zero }, shape) = (to, shape.to_vec());
        let empty =
            Holder { rows: None, last: None, source: None, step, zero, shape, is_made: true };
        let holder = match made {
            Some(Made::Rows(v)) => Holder { rows: Some(v), ..empty },
            Some(Made::Last(v)) => Holder { last: Some(v), ..empty },
            None => Holder { source: Some(x), is_made: false, ..empty },
        };
        let holder = self.holder(holder);
        let integers = self.view.root(y);
        self.integers.insert(integers, holder);
        self.leaves(n, holder)
    }

    /// Bytes that are rounded again, to the same or to other steps, within limits such as those of
    /// a ReLU.
    fn again(&mut self, of: &str, q: Quantised, to: Steps, range: ByteRange) -> Option<Made> {
        let h = &self.holders[q.holder];
        let held = h.held().filter(|_| h.is_made)?;
        Some(held.with(self.with_steps(of, q, held.value(), to, range)?))
    }

    /// Bytes with an addend or a factor for each channel.
    fn scaled(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let q = self.quantised(*r.node.outputs.first()?)?;
        let rank = shape.len();
        let suit = |r_: &Self, axis: usize| {
            let channels = shape[axis];
            r_.suits(r.bias, channels, rank, axis) && r_.suits(r.factor, channels, rank, axis)
        };
        let axis = match rank {
            4 if suit(self, 1) => 1,
            1.. if suit(self, rank - 1) => rank - 1,
            _ => return None,
        };
        self.channels(r, q, axis, shape, &[r.bias, r.factor], Attributes::default())
    }

    /// A batch normalisation of bytes.
    fn normalised(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let q = self.quantised(input(r.node, 0)?)?;
        let norm = norm(&self.view, r.node, shape).ok()?;
        let epsilon = Attributes::default().float("epsilon", norm.eps);
        self.channels(r, q, 1, shape, &norm.parameters.map(Some), epsilon)
    }

    /// `ScaleBytes` along an axis, with what its scales are made of.
    fn channels(
        &mut self,
        r: &Rounded<'_>,
        q: Quantised,
        axis: usize,
        shape: &[i64],
        parameters: &[Option<ValueId>],
        attributes: Attributes,
    ) -> Option<Made> {
        let of = &r.node.name;
        let h = self.holders[q.holder].clone();
        let is_last = axis == 1 && shape.len() == 4;
        // No addend may have broadcast the result to a larger shape.
        if h.shape != shape || !h.is_made || (!is_last && axis + 1 != shape.len()) {
            return None;
        }
        let x = match is_last {
            true => Made::Last(self.as_last(q.holder, of)?),
            false => Made::Rows(self.as_rows(q.holder, of)?),
        };
        let attributes = attributes
            .int("channels", shape[axis])
            .int("filled", i64::from(is_last))
            .and(steps(Steps { step: q.scale, zero: h.zero }, r));
        let scales = self.folded(of, "PackScales", attributes, parameters, 2)?;
        let call = [x.value(), scales[0], scales[1]];
        Some(x.with(self.result(of, of_bytes("ScaleBytes", &call, limits(r.range)))?))
    }

    /// The results of a node that is evaluated when the model is loaded.
    pub fn folded(
        &mut self,
        of: &str,
        op: &str,
        attributes: Attributes,
        inputs: &[Option<ValueId>],
        count: usize,
    ) -> Option<Vec<ValueId>> {
        let given = inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let call = Call { inputs: inputs[..given].to_vec(), ..of_bytes(op, &[], attributes) };
        let outputs = self.results(of, call, count)?;
        self.nodes.last_mut()?.folded = true;
        outputs.iter().for_each(|&v| self.values[v].weight = true);
        Some(outputs)
    }

    /// Bytes brought to other steps; they themselves where they have these.
    fn with_steps(
        &mut self,
        of: &str,
        q: Quantised,
        x: ValueId,
        to: Steps,
        range: ByteRange,
    ) -> Option<ValueId> {
        let Steps { step, zero } = to;
        let own = self.holders[q.holder].zero;
        let factor = q.scale / step;
        // Two steps are the same but for rounding.
        if own == zero && (factor - 1.0).abs() < 1e-6 && range == ByteRange::ALL {
            return Some(x);
        }
        let offset = zero as f64 - own as f64 * factor;
        let p = self.parameters(&ByteSum::numbers(&[factor], offset));
        self.result(of, of_bytes("SumBytes", &[x, p], limits(range)))
    }

    /// The operator of bytes that an operator and its rounding are.
    fn operator(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        match r.node.op.as_str() {
            op if !is_standard(r.node, op) => None,
            "Conv" => self.conv(r, shape),
            "MatMul" | "Gemm" => self.product(r, shape),
            "DequantizeLinear" if !r.is_plain() => self.scaled(r, shape),
            "BatchNormalization" if r.is_plain() => self.normalised(r, shape),
            _ if !r.is_plain() => None,
            "Add" | "Sum" => self.sum(r, shape),
            "Mul" => self.gate(r, shape),
            "GlobalAveragePool" | "AveragePool" | "ReduceMean" => self.mean(r, shape),
            "Concat" => self.concatenation(r, shape),
            "DequantizeLinear" => {
                let q = self.quantised(*r.node.outputs.first()?)?;
                self.again(&r.node.name, q, r.steps(), r.range)
            }
            _ => None,
        }
    }

    fn product(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let n = r.node;
        let (&Some(x), &Some(w)) = (n.inputs.first()?, n.inputs.get(1)?) else { return None };
        let (q, weights) = (self.quantised(x)?, self.weights(w)?);
        let &[a, b] = self.view.shape(weights.whole)? else { return None };
        let is = |name: &str, otherwise: f32, wanted: f32| match n.attributes.get(name) {
            Some(Attribute::Float(x)) => *x == wanted,
            Some(Attribute::Int(i)) => *i as f32 == wanted,
            _ => otherwise == wanted,
        };
        let transposed = is_standard(n, "Gemm") && is("transB", 0.0, 1.0);
        let own = input(n, 2).filter(|_| is_standard(n, "Gemm"));
        let plain = is("transA", 0.0, 0.0) && is("alpha", 1.0, 1.0) && is("beta", 1.0, 1.0);
        let (form, columns, k) =
            if transposed { (Weights::Rows, a, b) } else { (Weights::Columns, b, a) };
        let bias = match (own, r.bias) {
            (Some(_), Some(_)) => return None,
            (one, other) => one.or(other),
        };
        let rows: i64 = shape.iter().rev().skip(1).product();
        let fits = shape.last() == Some(&columns)
            && self.view.shape(x)?.last() == Some(&k)
            && self.suits(bias, columns, shape.len(), shape.len() - 1)
            && self.suits(r.factor, columns, shape.len(), shape.len() - 1)
            && self.suits(weights.scale, columns, 2, usize::from(!transposed));
        let result = ByteResult { range: r.range, sum: None };
        let product = MatMul::plain(rows, columns, k, TensorKind::Weight);
        if !plain || !fits || k % FOUR != 0 || product.in_bytes(result).is_err() {
            return None;
        }
        let of = &n.name;
        let x = self.as_rows(q.holder, of)?;
        let zero = self.holders[q.holder].zero;
        let packed = [Some(weights.whole), bias, weights.scale, r.factor];
        let data = Steps { step: q.scale, zero };
        let [w, s, z] = self.packed(of, form, packed, data, r)?;
        self.multiplies = true;
        let call = [x, w, s, z];
        let made = of_bytes("MatMulBytes", &call, limits(r.range));
        Some(Made::Rows(self.result(of, made)?))
    }

    /// Whether a vector has one number, or one for each of so many channels, along an axis of a
    /// tensor of this rank.
    pub fn suits(&self, v: Option<ValueId>, channels: i64, rank: usize, axis: usize) -> bool {
        let Some(v) = v else { return true };
        let Some(shape) = self.view.shape(v).filter(|_| self.view.is_weight(v)) else {
            return false;
        };
        if shape.iter().all(|e| *e == 1) {
            return true;
        }
        let at = |i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |j| shape[j]);
        shape.len() <= rank && (0..rank).all(|i| at(i) == if i == axis { channels } else { 1 })
    }

    /// The node that packs weights, the scales and the offsets of their channels.
    pub fn packed(
        &mut self,
        of: &str,
        form: Weights,
        [whole, bias, scale, factor]: [Option<ValueId>; 4],
        data: Steps,
        r: &Rounded<'_>,
    ) -> Option<[ValueId; 3]> {
        let attributes = Attributes::default().word("form", form.name()).and(steps(data, r));
        let inputs = [whole, bias, scale, factor];
        self.folded(of, "PackBytes", attributes, &inputs, 3)?.try_into().ok()
    }

    /// The operands of an elementwise operator as bytes in one order: with channels last where one
    /// is so.
    fn alike(&mut self, list: &[Quantised], of: &str) -> Option<Vec<Made>> {
        let is_last = list.iter().any(|q| self.holders[q.holder].last.is_some());
        let one = |q: &Quantised| match is_last {
            true => self.as_last(q.holder, of).map(Made::Last),
            false => self.as_rows(q.holder, of).map(Made::Rows),
        };
        list.iter().map(one).collect()
    }

    fn operands(&self, n: &Node) -> Option<Vec<Quantised>> {
        n.inputs.iter().map(|v| self.quantised((*v)?)).collect()
    }

    /// The operator of two such operands.
    fn of_both(&mut self, r: &Rounded<'_>, op: &str, x: &[Made], numbers: &[f64]) -> Option<Made> {
        let call = [x[0].value(), x[1].value(), self.parameters(numbers)];
        Some(x[0].with(self.result(&r.node.name, of_bytes(op, &call, limits(r.range)))?))
    }

    fn sum(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let list = self.operands(r.node)?;
        let [a, b] = list[..] else { return None };
        if list.iter().any(|q| self.holders[q.holder].shape != shape) {
            return None;
        }
        let x = self.alike(&list, &r.node.name)?;
        let (pa, pb) = (a.scale / r.step, b.scale / r.step);
        let zeros = [a, b].map(|q| self.holders[q.holder].zero as f64);
        let offset = r.zero as f64 - zeros[0] * pa - zeros[1] * pb;
        self.of_both(r, "SumBytes", &x, &ByteSum::numbers(&[pa, pb], offset))
    }

    fn gate(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let mut list = self.operands(r.node)?;
        let is_gate = |r: &Self, q: &Quantised| r.holders[q.holder].shape != shape;
        list.sort_by_key(|q| is_gate(self, q));
        let [x, gate] = list[..] else { return None };
        let fits = match (&self.holders[gate.holder].shape[..], shape) {
            (a, b) if a == b => true,
            (&[n, c, 1, 1], &[m, d, _, _]) => n == m && c == d,
            _ => false,
        };
        if !fits || is_gate(self, &x) {
            return None;
        }
        // A gate of channels goes over an image whose channels are last.
        if is_gate(self, &gate) {
            self.as_last(x.holder, &r.node.name)?;
        }
        let both = self.alike(&list, &r.node.name)?;
        let zeros = [x, gate].map(|q| self.holders[q.holder].zero as f64);
        let factor = x.scale * gate.scale / r.step;
        self.of_both(r, "GateBytes", &both, &Gate::numbers(zeros, factor, r.zero as f64))
    }

    fn concatenation(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let list = self.operands(r.node)?;
        let rank = shape.len() as i64;
        let Some(&Attribute::Int(axis)) = r.node.attributes.get("axis") else { return None };
        let axis = if axis < 0 { axis + rank } else { axis };
        let full = list.iter().all(|q| self.holders[q.holder].is_full());
        if r.range != ByteRange::ALL || !list.iter().any(|q| self.holders[q.holder].is_made) {
            return None;
        }
        // Channels that are filled up are no part of a longer line of them.
        let all = match full {
            true => self.alike(&list, &r.node.name)?,
            false => {
                let rows = |q: &Quantised| self.as_rows(q.holder, &r.node.name).map(Made::Rows);
                list.iter().map(rows).collect::<Option<Vec<Made>>>()?
            }
        };
        let first = *all.first()?;
        let part = |(q, v): (&Quantised, Made)| {
            self.with_steps(&r.node.name, *q, v.value(), r.steps(), r.range).map(Some)
        };
        let inputs = list.iter().zip(all).map(part).collect::<Option<Vec<_>>>()?;
        let axis = match (first, axis) {
            (Made::Rows(_), a) => a,
            (Made::Last(_), 0) => 0,
            (Made::Last(_), 1) => 3,
            (Made::Last(_), a) => a - 1,
        };
        let attributes = Attributes::default().int("axis", axis);
        let call = Call { op: "Concat", domain: "", inputs, attributes };
        Some(first.with(self.result(&r.node.name, call)?))
    }
}

/// What says from which steps and zero point to which others scales lead.
fn steps(data: Steps, r: &Rounded<'_>) -> Attributes {
    Attributes::default()
        .float("data_scale", data.step)
        .float("result_scale", r.step)
        .int("zero", data.zero)
        .int("result_zero", r.zero)
}

/// The limits of results as attributes.
pub(super) fn limits(range: ByteRange) -> Attributes {
    let mut made = Attributes::default();
    if range.low > 0 {
        made = made.int("low", range.low.into());
    }
    if range.high < 255 {
        made = made.int("high", range.high.into());
    }
    made
}
