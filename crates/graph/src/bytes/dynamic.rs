//! Products of activations that are quantised in every run: their bytes have a scale and a zero
//! point that the run computes, and the product is one of floats again, which what follows takes
//! in. Readers write `DynamicQuantizeLinear` out; what makes its bytes is found here again.

use super::{Attributes, Rewriter, of_bytes};
use crate::view::{input, is_standard};
use squall_core::TensorKind;
use squall_core::graph::infer::bytes::{FOUR, Weights};
use squall_core::graph::{Node, ValueId};
use squall_core::operator::MatMul;

impl Rewriter<'_> {
    /// `MatMul` of such an activation, less its zero point, by constant bytes. Gives whether it was
    /// replaced.
    pub fn dynamic(&mut self, n: &Node) -> bool {
        self.dynamic_product(n).is_some()
    }

    fn dynamic_product(&mut self, n: &Node) -> Option<()> {
        let &[Some(x), Some(w)] = &n.inputs[..] else { return None };
        let y = *n.outputs.first()?;
        let (bytes, zero) = self.limited_bytes(x)?;
        let weights = self.weights(w).filter(|w| w.scale.is_none())?;
        let &[k, columns] = self.view.shape(weights.whole)? else { return None };
        let (from, to) = (self.view.shape(x)?, self.view.shape(y)?);
        let rows: i64 = from.iter().rev().skip(1).product();
        let fits = from.last() == Some(&k) && to.last() == Some(&columns) && k % FOUR == 0;
        let product = MatMul::plain(rows, columns, k, TensorKind::Weight);
        if !fits || product.of_dynamic_bytes().is_err() {
            return None;
        }
        let of = &n.name;
        let entering = Attributes::default().float("scale", 1.0).int("zero", 0);
        let x = match self.dynamic.get(&bytes) {
            Some(&known) => known,
            None => self.result(of, of_bytes("ToBytes", &[bytes], entering))?,
        };
        self.dynamic.insert(bytes, x);
        // With this zero point the offsets of channels are the sums of their weights.
        let attributes =
            Attributes::default().word("form", Weights::Columns.name()).int("zero", -1);
        let packed = self.folded(of, ("PackBytes", attributes), &[Some(weights.whole)], 3)?;
        let call =
            of_bytes("ProductBytes", &[x, zero, packed[0], packed[2]], Attributes::default());
        self.gives(of, call, y);
        self.multiplies = true;
        Some(())
    }

    /// Floats that are whole numbers of a byte, of which an activation is what a zero point leaves;
    /// and that.
    fn limited_bytes(&self, v: ValueId) -> Option<(ValueId, ValueId)> {
        let by = |v: ValueId, op: &str| self.producer(v).filter(|n| is_standard(n, op));
        let less = by(v, "Sub")?;
        let (bytes, zero) = (input(less, 0)?, input(less, 1)?);
        let number = |n: &Node| input(n, 1).and_then(|v| self.number(v));
        let high = by(bytes, "Min").filter(|n| number(n) == Some(255.0))?;
        let low = by(input(high, 0)?, "Max").filter(|n| number(n) == Some(0.0))?;
        let sum = by(input(low, 0)?, "Add")?;
        by(input(sum, 0)?, "Round")?;
        let same = self.view.root(input(sum, 1)?) == self.view.root(zero);
        let is_one = self.view.shape(zero).is_some_and(|s| s.iter().all(|e| *e == 1));
        (same && is_one).then_some((self.view.root(bytes), zero))
    }
}
