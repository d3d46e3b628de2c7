//! Recognition for the rewriting of quantised models to kernels of bytes (`mod.rs`): traces a
//! constant weight back to the signed bytes and the scale that it was dequantised from, and a
//! `QuantizeLinear` back through limits, bias and factor to the operator whose result it rounds.
//! Input: a value or node; output: [`TracedWeights`] or [`Rounded`].

use super::Rewriter;
use super::hold::Steps;
use crate::view::{input, is_standard};
use squall_core::DType;
use squall_core::graph::{Attribute, Constant, Node, ValueId};
use squall_core::operator::ByteRange;

/// Constant weights whose elements are bytes with a sign.
#[derive(Clone, Copy, Debug)]
pub(super) struct TracedWeights {
    /// The float value that holds the bytes.
    pub whole: ValueId,
    /// Their scale, one number or one for each channel; `None` for 1.
    pub scale: Option<ValueId>,
}

/// An operator with the nodes that follow it up to its rounding.
#[derive(Clone, Debug)]
pub(super) struct Rounded<'a> {
    pub node: &'a Node,
    /// The addend of its result.
    pub bias: Option<ValueId>,
    /// The factor of the sum.
    pub factor: Option<ValueId>,
    /// The limits of a ReLU or of another clipping.
    pub range: ByteRange,
    /// The step and the zero point of the rounding.
    pub step: f64,
    pub zero: i64,
}

impl Rounded<'_> {
    /// How its bytes stand for floats.
    pub fn steps(&self) -> Steps {
        Steps { step: self.step, zero: self.zero }
    }

    /// Whether nothing but limits is between.
    pub fn is_plain(&self) -> bool {
        self.bias.is_none() && self.factor.is_none()
    }
}

impl<'a> Rewriter<'a> {
    /// The bytes and the scale that a constant of floats was dequantised from.
    pub fn weights(&self, v: ValueId) -> Option<TracedWeights> {
        if !self.view.is_weight(v) {
            return None;
        }
        let v = self.view.root(v);
        let made = self.producer(v)?;
        if is_standard(made, "Mul") {
            let &[Some(whole), Some(scale)] = &made.inputs[..] else { return None };
            let whole = self.view.root(whole);
            return self.is_whole(whole).then_some(TracedWeights { whole, scale: Some(scale) });
        }
        self.is_whole(v).then_some(TracedWeights { whole: v, scale: None })
    }

    /// Whether a constant of floats holds signed bytes: those of the file, or unsigned bytes less
    /// 128.
    fn is_whole(&self, v: ValueId) -> bool {
        let Some(made) = self.producer(v) else { return false };
        if is_standard(made, "Cast") {
            return input(made, 0).is_some_and(|x| self.dtype(x) == Some(DType::I8));
        }
        if !is_standard(made, "Sub") {
            return false;
        }
        let (Some(x), Some(zero)) = (input(made, 0), input(made, 1)) else { return false };
        let from = self.producer(x).filter(|m| is_standard(m, "Cast"));
        let dtype = from.and_then(|m| input(m, 0)).map(|x| self.dtype(x));
        let offset = match dtype.flatten() {
            Some(DType::I8) => 0,
            Some(DType::U8) => 128,
            _ => return false,
        };
        self.all_are(zero, offset)
    }

    fn dtype(&self, v: ValueId) -> Option<DType> {
        self.values[v].dtype.or(self.values[self.view.root(v)].dtype)
    }

    /// Whether all elements of a zero point are known to be this number.
    fn all_are(&self, v: ValueId, number: i64) -> bool {
        match self.view.constant(v) {
            Some(Constant::I64 { data, .. }) => data.iter().all(|z| *z == number),
            Some(Constant::F32 { data, .. }) => data.iter().all(|z| *z == number as f32),
            _ => {
                let made = self.producer(v).filter(|m| {
                    ["Cast", "Reshape", "Identity"].iter().any(|op| is_standard(m, op))
                });
                let from = made.and_then(|m| input(m, 0));
                from.is_some_and(|x| self.all_are(x, number))
            }
        }
    }

    /// The operator whose result is rounded here, with what stands between. Nothing else reads
    /// what is between.
    pub fn rounded(&self, rounding: &'a Node, to: Steps) -> Option<Rounded<'a>> {
        let Steps { step, zero } = to;
        let mut v = input(rounding, 0)?;
        let mut range = ByteRange::ALL;
        let byte = |x: f64| ((x / step).round_ties_even() + zero as f64).clamp(0.0, 255.0) as u8;
        let (mut bias, mut factor) = (None, None);
        // More than any exporter puts between the two.
        for _ in 0..8 {
            let node = self.producer(v).filter(|n| !n.folded)?;
            let root = self.view.root(v);
            let is_alone = self.view.users(root).len() == 1 && !self.view.is_output(root);
            let first = input(node, 0);
            match node.op.as_str() {
                _ if !is_alone => {}
                "Relu" if bias.or(factor).is_none() && is_standard(node, "Relu") => {
                    range.low = range.low.max(byte(0.0));
                    v = first?;
                    continue;
                }
                "Clip" if bias.or(factor).is_none() && is_standard(node, "Clip") => {
                    let [low, high] = self.limits(node)?;
                    range.low = range.low.max(low.map_or(0, byte));
                    range.high = range.high.min(high.map_or(255, byte));
                    v = first?;
                    continue;
                }
                "Mul" | "Add" if is_standard(node, &node.op) => {
                    if let Some((x, constant)) = self.with_constant(node)
                        && bias.is_none()
                        && (node.op == "Add" || factor.is_none())
                    {
                        let place = if node.op == "Add" { &mut bias } else { &mut factor };
                        *place = Some(constant);
                        v = x;
                        continue;
                    }
                }
                _ => {}
            }
            let reached = range.low <= range.high;
            return reached.then_some(Rounded { node, bias, factor, range, step, zero });
        }
        None
    }

    /// An operand that runs make and one that is constant.
    fn with_constant(&self, n: &Node) -> Option<(ValueId, ValueId)> {
        let &[Some(a), Some(b)] = &n.inputs[..] else { return None };
        match (self.view.is_weight(a), self.view.is_weight(b)) {
            (false, true) => Some((a, b)),
            (true, false) => Some((b, a)),
            _ => None,
        }
    }

    /// The limits of a `Clip`, each where it has one; none where they are not known.
    fn limits(&self, n: &Node) -> Option<[Option<f64>; 2]> {
        let mut list = [None, None];
        for (i, name) in ["min", "max"].into_iter().enumerate() {
            list[i] = match (input(n, i + 1), n.attributes.get(name)) {
                (Some(v), _) => Some(self.number(v)?),
                (None, Some(Attribute::Float(x))) => Some(f64::from(*x)),
                (None, _) => None,
            };
        }
        Some(list)
    }
}
