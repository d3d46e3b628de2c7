//! `QuantizeLinear`: the operator ahead of it becomes one of bytes, or its floats are entered.

use super::hold::{Holder, Quantised};
use super::trace::Rounded;
use super::{Attributes, Call, Rewriter, is_standard, of_bytes};
use squall_core::graph::infer::bytes::{FOUR, Weights, filled};
use squall_core::graph::{Attribute, Node, ValueId};
use squall_core::operator::{ByteRange, ByteResult, ByteSum, Gate, MatMul};
use squall_core::{DType, TensorKind};

/// Bytes in the order that their operator gives.
#[derive(Clone, Copy, Debug)]
pub(super) enum Made {
    Rows(ValueId),
    Last(ValueId),
}

impl<'a> Rewriter<'a> {
    /// `QuantizeLinear`. Gives whether it was replaced.
    pub fn quantise(&mut self, n: &'a Node) -> bool {
        let (Some(&Some(x)), Some(&y)) = (n.inputs.first(), n.outputs.first()) else {
            return false;
        };
        let (Some((step, zero)), Some(shape)) = (self.steps(n, y), self.shape(y)) else {
            return false;
        };
        let made = match self.quantised(x) {
            Some(q) => self.again(n, q, (step, zero)),
            None => {
                let r = self.rounded(n, (step, zero));
                let made = r.and_then(|r| self.operator(&r, &shape));
                made.or_else(|| self.table(n, (step, zero), &shape))
            }
        };
        let empty =
            Holder { rows: None, last: None, source: None, step, zero, shape, is_made: true };
        let holder = match made {
            Some(Made::Rows(v)) => Holder { rows: Some(v), ..empty },
            Some(Made::Last(v)) => Holder { last: Some(v), ..empty },
            None => Holder { source: Some(x), is_made: false, ..empty },
        };
        let holder = self.holder(holder);
        let integers = self.root(y);
        self.integers.insert(integers, holder);
        self.leaves(n, holder)
    }

    /// Bytes that are rounded again, to the same or to other steps.
    fn again(&mut self, n: &Node, q: Quantised, (step, zero): (f64, i64)) -> Option<Made> {
        let h = &self.holders[q.holder];
        if !h.is_made {
            return None;
        }
        let same = h.zero == zero && is_close(q.scale, step);
        let (is_last, held) = (h.last.is_some(), h.last.or(h.rows)?);
        let v = match same {
            true => held,
            false => self.with_steps(&n.name, (q, held), (step, zero), ByteRange::ALL),
        };
        Some(if is_last { Made::Last(v) } else { Made::Rows(v) })
    }

    /// Bytes with limits, such as those of a ReLU, brought to other steps.
    fn limited(&mut self, r: &Rounded<'_>) -> Option<Made> {
        let q = self.quantised(*r.node.outputs.first()?)?;
        let h = self.holders[q.holder].clone();
        let held = h.last.or(h.rows).filter(|_| h.is_made)?;
        let v = self.with_steps(&r.node.name, (q, held), (r.step, r.zero), r.range);
        Some(if h.last.is_some() { Made::Last(v) } else { Made::Rows(v) })
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
        if self.holders[q.holder].shape != shape {
            return None;
        }
        self.channels(r, (q, axis), [r.bias, r.factor, None, None], None)
    }

    /// A batch normalisation of bytes.
    fn normalised(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let n = r.node;
        let input = |i: usize| n.inputs.get(i).copied().flatten();
        let q = self.quantised(input(0)?)?;
        let training = n.attributes.get("training_mode");
        let parameters = [input(1), input(2), input(3), input(4)];
        let channels = *shape.get(1)?;
        let fit = parameters.iter().all(|p| {
            p.is_some_and(|p| self.is_weight(p) && self.shape(p).as_deref() == Some(&[channels]))
        });
        if !fit || training.is_some_and(|t| *t != Attribute::Int(0)) {
            return None;
        }
        let epsilon = match n.attributes.get("epsilon") {
            Some(Attribute::Float(x)) => f64::from(*x),
            _ => 1e-5,
        };
        self.channels(r, (q, 1), parameters, Some(epsilon))
    }

    /// `ScaleBytes` along an axis, with what its scales are made of.
    fn channels(
        &mut self,
        r: &Rounded<'_>,
        (q, axis): (Quantised, usize),
        parameters: [Option<ValueId>; 4],
        epsilon: Option<f64>,
    ) -> Option<Made> {
        let of = r.node.name.clone();
        let h = self.holders[q.holder].clone();
        let is_last = axis == 1 && h.shape.len() == 4;
        // Nothing that is added may have made it larger.
        let own = r.node.outputs.first().and_then(|&v| self.shape(v));
        if own.as_ref() != Some(&h.shape) || !h.is_made || (!is_last && axis + 1 != h.shape.len()) {
            return None;
        }
        let x = if is_last { self.as_last(q.holder, &of)? } else { self.as_rows(q.holder, &of)? };
        let channels = h.shape[axis];
        let count = if is_last { filled(channels) } else { channels };
        let outputs = [0; 2].map(|_| self.value(DType::F32, vec![count], None));
        let mut attributes = Attributes::default()
            .int("channels", channels)
            .int("filled", i64::from(is_last))
            .float("data_scale", q.scale)
            .float("result_scale", r.step)
            .int("zero", h.zero)
            .int("result_zero", r.zero);
        if let Some(epsilon) = epsilon {
            attributes = attributes.float("epsilon", epsilon);
        }
        self.folded(&of, of_bytes("PackScales", &[], attributes), &parameters, &outputs)?;
        let call = [x, outputs[0], outputs[1]];
        self.made(&of, is_last, of_bytes("ScaleBytes", &call, limits(r.range)), &h.shape)
    }

    /// A node that is evaluated when the model is loaded.
    pub fn folded(
        &mut self,
        of: &str,
        call: Call<'_>,
        inputs: &[Option<ValueId>],
        outputs: &[ValueId],
    ) -> Option<()> {
        self.push(of, call, outputs.to_vec());
        let node = self.nodes.last_mut()?;
        node.inputs = inputs.to_vec();
        while node.inputs.last() == Some(&None) {
            node.inputs.pop();
        }
        node.folded = true;
        outputs.iter().for_each(|&v| self.made.values[v].weight = true);
        Some(())
    }

    /// Bytes brought to other steps.
    fn with_steps(
        &mut self,
        of: &str,
        (q, x): (Quantised, ValueId),
        (step, zero): (f64, i64),
        range: ByteRange,
    ) -> ValueId {
        let factor = q.scale / step;
        let offset = zero as f64 - self.holders[q.holder].zero as f64 * factor;
        let p = self.parameters(&ByteSum::numbers(&[factor], offset));
        let shape = self.shape(x).unwrap_or_default();
        self.bytes(of, of_bytes("SumBytes", &[x, p], limits(range)), shape)
    }

    /// The operator of bytes that an operator and its rounding are.
    fn operator(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let known = matches!(r.node.domain.as_str(), "" | "ai.onnx") && r.node.problem.is_none();
        match r.node.op.as_str() {
            _ if !known => None,
            "Conv" => self.conv(r, shape),
            "MatMul" | "Gemm" => self.product(r, shape),
            "DequantizeLinear" if !r.is_plain() => self.scaled(r, shape),
            "BatchNormalization" if r.is_plain() => self.normalised(r, shape),
            _ if !r.is_plain() => None,
            "Add" | "Sum" => self.sum(r, shape),
            "Mul" => self.gate(r, shape),
            "GlobalAveragePool" | "AveragePool" | "ReduceMean" => self.mean(r, shape),
            "Concat" => self.concatenation(r, shape),
            "DequantizeLinear" => self.limited(r),
            _ => None,
        }
    }

    fn product(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let n = r.node;
        let (&Some(x), &Some(w)) = (n.inputs.first()?, n.inputs.get(1)?) else { return None };
        let (q, weights) = (self.quantised(x)?, self.weights(w)?);
        let &[a, b] = &self.shape(weights.whole)?[..] else { return None };
        let is = |name: &str, otherwise: f32, wanted: f32| match n.attributes.get(name) {
            Some(Attribute::Float(x)) => *x == wanted,
            Some(Attribute::Int(i)) => *i as f32 == wanted,
            _ => otherwise == wanted,
        };
        let transposed = is_standard(n, "Gemm") && is("transB", 0.0, 1.0);
        let own = n.inputs.get(2).copied().flatten().filter(|_| is_standard(n, "Gemm"));
        let plain = is("transA", 0.0, 0.0) && is("alpha", 1.0, 1.0) && is("beta", 1.0, 1.0);
        let (form, columns, k) =
            if transposed { (Weights::Rows, a, b) } else { (Weights::Columns, b, a) };
        let bias = match (own, r.bias) {
            (Some(_), Some(_)) => return None,
            (one, other) => one.or(other),
        };
        let rows: i64 = shape.iter().rev().skip(1).product();
        let fits = shape.last() == Some(&columns)
            && self.shape(x)?.last() == Some(&k)
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
        let [w, s, z] = self.packed(of, form, packed, (q.scale, zero), r)?;
        self.multiplies = true;
        let call = [x, w, s, z];
        let made = of_bytes("MatMulBytes", &call, limits(r.range));
        Some(Made::Rows(self.bytes(of, made, shape.to_vec())))
    }

    /// Whether a vector has one number, or one for each of so many channels, along an axis of a
    /// tensor of this rank.
    pub fn suits(&self, v: Option<ValueId>, channels: i64, rank: usize, axis: usize) -> bool {
        let Some(v) = v else { return true };
        let Some(shape) = self.shape(v).filter(|_| self.is_weight(v)) else { return false };
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
        (data_scale, zero): (f64, i64),
        r: &Rounded<'_>,
    ) -> Option<[ValueId; 3]> {
        let (shape, channels) = form.packed(&self.shape(whole?)?).ok()?;
        let dtype = if form == Weights::Depthwise { DType::F32 } else { DType::I8 };
        let outputs = [
            self.value(dtype, shape, None),
            self.value(DType::F32, vec![channels], None),
            self.value(DType::F32, vec![channels], None),
        ];
        let attributes = Attributes::default()
            .with("form", Attribute::String(form.name().into()))
            .float("data_scale", data_scale)
            .float("result_scale", r.step)
            .int("zero", zero)
            .int("result_zero", r.zero);
        let inputs = [whole, bias, scale, factor];
        self.folded(of, of_bytes("PackBytes", &[], attributes), &inputs, &outputs)?;
        Some(outputs)
    }

    /// The operands of an elementwise operator as bytes in one order, and whether channels are last
    /// there.
    fn alike(&mut self, list: &[Quantised], of: &str) -> Option<(Vec<ValueId>, bool)> {
        let is_last = list.iter().any(|q| self.holders[q.holder].last.is_some());
        let one = |r: &mut Self, q: &Quantised| match is_last {
            true => r.as_last(q.holder, of),
            false => r.as_rows(q.holder, of),
        };
        let made = list.iter().map(|q| one(self, q)).collect::<Option<Vec<_>>>()?;
        Some((made, is_last))
    }

    fn operands(&self, n: &Node) -> Option<Vec<Quantised>> {
        n.inputs.iter().map(|v| self.quantised((*v)?)).collect()
    }

    fn made(&mut self, of: &str, is_last: bool, call: Call<'_>, shape: &[i64]) -> Option<Made> {
        let last = |s: &[i64]| match *s {
            [n, c, h, w] => Some(vec![n, h, w, filled(c)]),
            _ => None,
        };
        let shape = if is_last { last(shape)? } else { shape.to_vec() };
        let v = self.bytes(of, call, shape);
        Some(if is_last { Made::Last(v) } else { Made::Rows(v) })
    }

    fn sum(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let list = self.operands(r.node)?;
        let [a, b] = list[..] else { return None };
        if list.iter().any(|q| self.holders[q.holder].shape != shape) {
            return None;
        }
        let (x, is_last) = self.alike(&list, &r.node.name)?;
        let (pa, pb) = (a.scale / r.step, b.scale / r.step);
        let zeros = [a, b].map(|q| self.holders[q.holder].zero as f64);
        let offset = r.zero as f64 - zeros[0] * pa - zeros[1] * pb;
        let p = self.parameters(&ByteSum::numbers(&[pa, pb], offset));
        let call = [x[0], x[1], p];
        self.made(&r.node.name, is_last, of_bytes("SumBytes", &call, limits(r.range)), shape)
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
        let (v, is_last) = self.alike(&list, &r.node.name)?;
        let zeros = [x, gate].map(|q| self.holders[q.holder].zero as f64);
        let factor = x.scale * gate.scale / r.step;
        let p = self.parameters(&Gate::numbers(zeros, factor, r.zero as f64));
        let call = [v[0], v[1], p];
        self.made(&r.node.name, is_last, of_bytes("GateBytes", &call, limits(r.range)), shape)
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
        let (v, is_last) = match full {
            true => self.alike(&list, &r.node.name)?,
            false => {
                let rows = |q: &Quantised| self.as_rows(q.holder, &r.node.name);
                (list.iter().map(rows).collect::<Option<Vec<_>>>()?, false)
            }
        };
        let mut parts = Vec::new();
        for (q, v) in list.iter().zip(v) {
            let same = self.holders[q.holder].zero == r.zero && is_close(q.scale, r.step);
            parts.push(match same {
                true => v,
                false => self.with_steps(&r.node.name, (*q, v), (r.step, r.zero), r.range),
            });
        }
        let axis = match (is_last, axis) {
            (false, a) => a,
            (true, 0) => 0,
            (true, 1) => 3,
            (true, a) => a - 1,
        };
        let attributes = Attributes::default().int("axis", axis).0;
        let call = Call { op: "Concat", domain: "", inputs: &parts, attributes };
        self.made(&r.node.name, is_last, call, shape)
    }
}

/// Whether two steps are the same but for rounding.
fn is_close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-6
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
