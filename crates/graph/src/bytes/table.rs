//! Functions of one byte in the rewriting of quantised models to kernels of bytes (`mod.rs`):
//! elementwise operators on one quantised tensor, up to its next rounding, become one `MapBytes`
//! with a table of 256 bytes. Example: `DequantizeLinear`, `HardSwish`, `QuantizeLinear` become a
//! lookup. The table is computed by evaluating the operators' expression for each byte.

use super::hold::{Made, Quantised, Steps};
use super::{Attributes, Rewriter, of_bytes};
use crate::fuse::step::{is_elementwise, step};
use crate::view::{decimal, input, is_standard};
use squall_core::DType;
use squall_core::expr::Expr;
use squall_core::graph::{Constant, Node, ValueId};
use squall_core::operator::{functions, placeholder};

/// The deepest chain of operators that is looked through for one function.
const DEEPEST: usize = 12;

impl Rewriter<'_> {
    /// The table that a rounding ends, where its floats are a function of one tensor of bytes.
    pub fn table(&mut self, n: &Node, to: Steps, shape: &[i64]) -> Option<Made> {
        let x = input(n, 0)?;
        let mut of = None;
        let body = self.expression(x, &mut of, DEEPEST)?;
        let q = of?;
        let h = self.holders[q.holder].clone();
        if !h.is_made || h.shape != shape {
            return None;
        }
        let entry = |byte: i64| {
            let x = (byte - h.zero) as f64 * q.scale;
            let y = body.eval(&|_| 0, &mut |_, _| x);
            // What is no number becomes 0, as where floats enter.
            let steps = (y / to.step).round_ties_even() + to.zero as f64;
            if steps > 0.0 { steps.min(255.0) as i64 } else { 0 }
        };
        let table = Constant::ints((0..256).map(entry).collect());
        let (held, table) = (h.held()?, self.known(DType::U8, table));
        let call = of_bytes("MapBytes", &[held.value(), table], Attributes::default());
        Some(held.with(self.result(&n.name, call)?))
    }

    /// A value as an expression of one tensor of bytes, which must be the same tensor wherever it
    /// is read.
    fn expression(&self, v: ValueId, of: &mut Option<Quantised>, deepest: usize) -> Option<Expr> {
        if let Some(x) = self.number(v) {
            return Some(functions::c(decimal(x as f32)));
        }
        if let Some(q) = self.quantised(v) {
            let first = of.get_or_insert(q);
            let same = first.holder == q.holder;
            let factor = q.scale / first.scale;
            return same.then(|| match factor == 1.0 {
                true => placeholder(0),
                false => functions::mul(placeholder(0), functions::c(factor)),
            });
        }
        let node = self.producer(v).filter(|n| !n.folded && is_elementwise(&n.op))?;
        if deepest == 0 || !is_standard(node, &node.op) {
            return None;
        }
        let args = node.inputs.iter().map(|i| match i {
            None => Some(None),
            Some(i) => self.expression(*i, of, deepest - 1).map(Some),
        });
        let args = args.collect::<Option<Vec<_>>>()?;
        step(&self.view, node, &args).ok().map(|(e, _)| e)
    }
}
