//! Dynamic quantisation in the rewriting of quantised models to kernels of bytes (`mod.rs`):
//! products and convolutions of activations whose scale and zero point the run computes. The reader
//! writes `DynamicQuantizeLinear` out as several nodes of floats; this file recognises the nodes
//! that make the bytes, and replaces a product of them by an operator over bytes (`ProductBytes`,
//! `ConvProductBytes`) that gives floats, into which following nodes are fused.

use super::{Attributes, Call, Rewriter, of_bytes};
use crate::view::{input, is_standard};
use squall_core::TensorKind;
use squall_core::graph::infer::bytes::{FOUR, Weights};
use squall_core::graph::{Constant, Node, ValueId};
use squall_core::operator::{MatMul, OFFSET_UNIT};
use std::sync::Arc;

/// An activation that is quantised in every run, as recognised from nodes of floats.
struct Activation {
    /// The float value that holds its quantised integers.
    whole: ValueId,
    /// The value that is divided by the scale and rounded.
    from: ValueId,
    /// The scale, a value of one number.
    scale: ValueId,
    zero: ValueId,
    /// Whether the zero point is known to be zero.
    from_zero: bool,
}

impl Rewriter<'_> {
    /// Replaces a `MatMul` or `Conv` of such an activation, less its zero point, by constant bytes.
    /// Returns whether it did.
    pub fn dynamic(&mut self, n: &Node) -> bool {
        let made = if is_standard(n, "Conv") {
            self.dynamic_convolution(n)
        } else {
            self.dynamic_product(n)
        };
        self.multiplies |= made.is_some();
        made.is_some()
    }

    /// Replaces the lower end of a quantisation range (the minimum of a tensor and 0) by the
    /// constant 0 where the tensor is never negative, so that the tensor is not read for it.
    /// Returns whether it did.
    pub fn least(&mut self, n: &Node) -> bool {
        let (&[Some(a), Some(b)], &[y]) = (&n.inputs[..], &n.outputs[..]) else { return false };
        let of = |v: ValueId| {
            let by = self.producer(v).filter(|n| is_standard(n, "ReduceMin") && !n.folded)?;
            input(by, 0)
        };
        let is_least = |v: ValueId| of(v).is_some_and(|x| self.never_negative[x]);
        let is_known = [(a, b), (b, a)]
            .into_iter()
            .any(|(least, zero)| is_least(least) && self.number(zero) == Some(0.0));
        let Some([]) = self.view.shape(y).filter(|_| is_known) else { return false };
        let constant = Constant::F32 { shape: Vec::new(), data: vec![0.0] };
        let value = &mut self.values[y];
        (value.constant, value.weight) = (Some(Arc::new(constant)), true);
        true
    }

    /// Replaces a matrix product.
    fn dynamic_product(&mut self, n: &Node) -> Option<()> {
        let &[Some(x), Some(w)] = &n.inputs[..] else { return None };
        let y = *n.outputs.first()?;
        let activation = self.activation(x)?;
        let weights = self.weights(w).filter(|w| w.scale.is_none())?;
        let &[k, columns] = self.view.shape(weights.whole)? else { return None };
        let (from, to) = (self.view.shape(x)?, self.view.shape(y)?);
        let rows: i64 = from.iter().rev().skip(1).product();
        let fits = from.last() == Some(&k) && to.last() == Some(&columns) && k % FOUR == 0;
        let product = MatMul::plain(rows, columns, k, TensorKind::Weight);
        if !fits || product.of_dynamic_bytes().is_err() {
            return None;
        }
        let bytes = self.entered(&n.name, &activation, false)?;
        let packed = self.sums_of(&n.name, weights.whole, Weights::Columns)?;
        let inputs = [bytes, activation.zero, packed[0], packed[2]];
        let call = of_bytes("ProductBytes", &inputs, Attributes::default());
        self.gives(&n.name, call, y);
        Some(())
    }

    fn dynamic_convolution(&mut self, n: &Node) -> Option<()> {
        let &[Some(x), Some(w)] = &n.inputs[..] else { return None };
        let y = *n.outputs.first()?;
        let activation = self.activation(x)?;
        let weights = self.weights(w).filter(|w| w.scale.is_none())?;
        let image = <[i64; 4]>::try_from(self.view.shape(x)?).ok()?;
        let (conv, form, attributes) = self.geometry(n, image, weights.whole)?;
        // Filters that are filled up would be results.
        let fits = self.view.shape(y) == Some(&conv.output()[..]);
        if !fits || conv.of_dynamic_bytes().is_err() {
            return None;
        }
        let of = &n.name;
        let bytes = self.entered(of, &activation, true)?;
        let packed = self.sums_of(of, weights.whole, form)?;
        let mut inputs = vec![bytes, activation.zero, packed[0], packed[2]];
        if conv.is_padded() {
            inputs.push(self.border(of, &activation)?);
        }
        self.gives(of, of_bytes("ConvProductBytes", &inputs, attributes), y);
        Some(())
    }

    /// Packed weights, with the sum of each channel's weights: with this zero point the sums are
    /// the offsets.
    fn sums_of(&mut self, of: &str, whole: ValueId, form: Weights) -> Option<Vec<ValueId>> {
        let attributes = Attributes::default().word("form", form.name()).int("zero", -1);
        self.folded(of, "PackBytes", attributes, &[Some(whole)], 3)
    }

    /// The bytes of an activation, as they lie in the model or with channels last.
    fn entered(&mut self, of: &str, a: &Activation, is_last: bool) -> Option<ValueId> {
        if let Some(&known) = self.dynamic.get(&(a.whole, is_last)) {
            return Some(known);
        }
        let unit = self.parameters(&[OFFSET_UNIT]);
        let call = |op: &'static str, inputs: &[ValueId]| {
            let inputs = inputs.iter().copied().map(Some).collect();
            Call { op, domain: "", inputs, attributes: Attributes::default() }
        };
        let scale = self.result(of, call("Mul", &[a.scale, unit]))?;
        let inverse = self.result(of, call("Reciprocal", &[scale]))?;
        let form = Attributes::default().int("channels_last", i64::from(is_last));
        let zero = (!a.from_zero).then_some(a.zero);
        let inputs = vec![Some(a.from), Some(scale), zero, Some(inverse)];
        let call = Call { inputs, ..of_bytes("ToBytes", &[], form) };
        let made = self.result(of, call)?;
        self.dynamic.insert((a.whole, is_last), made);
        Some(made)
    }

    /// Four times the zero point as bytes.
    fn border(&mut self, of: &str, a: &Activation) -> Option<ValueId> {
        let four = self.known(squall_core::DType::I64, Constant::ints(vec![FOUR]));
        let inputs = vec![Some(a.zero), Some(four)];
        let attributes = Attributes::default();
        let zeros = self.result(of, Call { op: "Expand", domain: "", inputs, attributes })?;
        let as_it_is = Attributes::default().float("scale", 1.0).int("zero", 0);
        self.result(of, of_bytes("ToBytes", &[zeros], as_it_is))
    }

    /// The activation that a value, less its zero point, was quantised from.
    fn activation(&mut self, v: ValueId) -> Option<Activation> {
        let by = |v: ValueId, op: &str| self.producer(v).filter(|n| is_standard(n, op));
        let is_one = |v: ValueId| self.view.shape(v).is_some_and(|s| s.iter().all(|e| *e == 1));
        let less = by(v, "Sub")?;
        let (whole, zero) = (input(less, 0)?, input(less, 1)?);
        let number = |n: &Node| input(n, 1).and_then(|v| self.number(v));
        let high = by(whole, "Min").filter(|n| number(n) == Some(255.0))?;
        let low = by(input(high, 0)?, "Max").filter(|n| number(n) == Some(0.0))?;
        let sum = by(input(low, 0)?, "Add")?;
        let quotient = by(input(by(input(sum, 0)?, "Round")?, 0)?, "Div")?;
        let (from, scale) = (input(quotient, 0)?, input(quotient, 1)?);
        let same = self.view.root(input(sum, 1)?) == self.view.root(zero);
        if !same || !is_one(zero) || !is_one(scale) {
            return None;
        }
        let whole = self.view.root(whole);
        let from_zero = self.begins_at_zero(zero);
        let zero = if from_zero { self.parameters(&[0.0]) } else { zero };
        Some(Activation { whole, from, scale, zero, from_zero })
    }

    /// Whether a zero point is that of a range whose lower end was replaced by zero.
    fn begins_at_zero(&self, zero: ValueId) -> bool {
        let mut at = zero;
        for op in ["Min", "Max", "Round", "Neg", "Div"] {
            let by = self.producer(at).filter(|n| is_standard(n, op));
            let Some(next) = by.and_then(|n| input(n, 0)) else { return false };
            at = next;
        }
        let known = self.values[self.view.root(at)].constant.as_deref();
        known.and_then(Constant::as_f32) == Some(&[0.0])
    }
}
