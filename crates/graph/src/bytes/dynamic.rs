//! Products of activations that are quantised in every run: their bytes have a scale and a zero
//! point that the run computes, and the product is one of floats again, which what follows takes
//! in. Readers write `DynamicQuantizeLinear` out; what makes its bytes is found here again.

use super::{Attributes, Rewriter, is_standard, of_bytes};
use squall_core::DType;
use squall_core::graph::infer::bytes::{FOUR, Weights};
use squall_core::graph::{Attribute, Node, ValueId};
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
        let &[k, columns] = &self.shape(weights.whole)?[..] else { return None };
        let (from, to) = (self.shape(x)?, self.shape(y)?);
        let rows: i64 = from.iter().rev().skip(1).product();
        let fits = from.last() == Some(&k) && to.last() == Some(&columns) && k % FOUR == 0;
        let product = MatMul::plain(rows, columns, k, squall_core::TensorKind::Weight);
        if !fits || product.of_dynamic_bytes().is_err() {
            return None;
        }
        let of = &n.name;
        let entering = Attributes::default().float("scale", 1.0).int("zero", 0);
        let x = match self.dynamic.get(&bytes) {
            Some(&known) => known,
            None => self.bytes(of, of_bytes("ToBytes", &[bytes], entering), from),
        };
        self.dynamic.insert(bytes, x);
        // With these numbers the offsets of channels are the sums of their weights.
        let (shape, channels) = Weights::Columns.packed(&[k, columns]).ok()?;
        let outputs = [
            self.value(DType::I8, shape, None),
            self.value(DType::F32, vec![channels], None),
            self.value(DType::F32, vec![channels], None),
        ];
        let attributes = Attributes::default()
            .with("form", Attribute::String(Weights::Columns.name().into()))
            .int("zero", -1);
        let packing = of_bytes("PackBytes", &[], attributes);
        self.folded(of, packing, &[Some(weights.whole)], &outputs)?;
        let call = [x, zero, outputs[0], outputs[2]];
        self.push(of, of_bytes("ProductBytes", &call, Attributes::default()), vec![y]);
        self.nodes.last_mut()?.name.clone_from(of);
        self.multiplies = true;
        Some(())
    }

    /// Floats that are whole numbers of a byte, of which an activation is what a zero point leaves;
    /// and that.
    fn limited_bytes(&self, v: ValueId) -> Option<(ValueId, ValueId)> {
        let input = |n: &Node, i: usize| n.inputs.get(i).copied().flatten();
        let by = |v: ValueId, op: &str| self.producer(v).filter(|n| is_standard(n, op));
        let less = by(v, "Sub")?;
        let (bytes, zero) = (input(less, 0)?, input(less, 1)?);
        let high =
            by(bytes, "Min").filter(|n| input(n, 1).and_then(|v| self.number(v)) == Some(255.0))?;
        let low = by(input(high, 0)?, "Max")
            .filter(|n| input(n, 1).and_then(|v| self.number(v)) == Some(0.0))?;
        let sum = by(input(low, 0)?, "Add")?;
        by(input(sum, 0)?, "Round")?;
        let same = self.root(input(sum, 1)?) == self.root(zero);
        let is_one = self.shape(zero).is_some_and(|s| s.iter().all(|e| *e == 1));
        (same && is_one).then_some((self.root(bytes), zero))
    }
}
