//! Holders: the bytes of a quantised tensor during the rewriting of quantised models to kernels of
//! bytes (`mod.rs`), in row-major order, with channels last, or in both; and the nodes that convert
//! floats to bytes (`ToBytes`), bytes to floats (`FromBytes`) and one order to the other, made once
//! and only when something asks for them.

use super::{Attributes, Call, Rewriter, of_bytes, over};
use crate::view::{input, is_standard};
use squall_core::DType;
use squall_core::graph::infer::bytes::filled;
use squall_core::graph::{Attribute, Constant, Node, ValueId};

/// A tensor of the model as bytes `b` that stand for `(b - zero) * scale` with any scale, in one
/// order or in both.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    /// The bytes in the model's order.
    pub rows: Option<ValueId>,
    /// The bytes with channels last, padded to whole groups of channels; for images only.
    pub last: Option<ValueId>,
    /// The floats or integers that are converted to it, where no operator over bytes makes it.
    pub source: Option<ValueId>,
    /// The step by which floats of the source are divided.
    pub step: f64,
    /// The byte that stands for 0.
    pub zero: i64,
    /// The extents in the model's order.
    pub shape: Vec<i64>,
    /// Whether operators over bytes make it, so that the floats of this tensor are made from it.
    pub is_made: bool,
}

impl Holder {
    /// The number of channels, if it is an image.
    pub fn channels(&self) -> Option<i64> {
        if let [_, c, _, _] = self.shape[..] { Some(c) } else { None }
    }

    /// Whether an image's channels need no padding.
    pub fn is_full(&self) -> bool {
        self.channels().is_some_and(|c| filled(c) == c)
    }

    /// The bytes in the order in which they exist; `None` where nothing made them yet.
    pub fn held(&self) -> Option<Made> {
        self.last.map(Made::Last).or(self.rows.map(Made::Rows))
    }
}

/// How bytes stand for floats.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    /// From the float of one byte to that of the next.
    pub step: f64,
    /// The byte that stands for 0.
    pub zero: i64,
}

/// Bytes in an order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Made {
    /// In the model's order.
    Rows(ValueId),
    /// With channels last.
    Last(ValueId),
}

impl Made {
    /// Another value of bytes in the same order.
    pub fn with(self, v: ValueId) -> Made {
        match self {
            Made::Rows(_) => Made::Rows(v),
            Made::Last(_) => Made::Last(v),
        }
    }

    /// The bytes.
    pub fn value(self) -> ValueId {
        let (Made::Rows(v) | Made::Last(v)) = self;
        v
    }
}

/// Floats that are bytes with a scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantised {
    pub holder: usize,
    pub scale: f64,
}

impl Rewriter<'_> {
    /// The holder and the scale of a float value that stands for bytes.
    pub fn quantised(&self, v: ValueId) -> Option<Quantised> {
        self.floats.get(&self.view.root(v)).copied()
    }

    pub fn holder(&mut self, holder: Holder) -> usize {
        self.holders.push(holder);
        self.holders.len() - 1
    }

    /// Floats that are what bytes, moved or pooled, stand for: what holds those.
    pub fn holds(&mut self, y: ValueId, q: Quantised, bytes: Made) -> Option<usize> {
        let (rows, last) = match bytes {
            Made::Rows(v) => (Some(v), None),
            Made::Last(v) => (None, Some(v)),
        };
        let shape = self.view.shape(y)?.to_vec();
        let of = self.holders[q.holder].clone();
        let holder = self.holder(Holder { rows, last, source: None, shape, ..of });
        self.floats.insert(y, Quantised { holder, ..q });
        Some(holder)
    }

    /// The zero point of an integer value's, as a byte without sign; none of other types.
    fn zero(&self, value: ValueId, zero: Option<ValueId>) -> Option<i64> {
        let signed = match self.values[self.view.root(value)].dtype? {
            DType::U8 => 0,
            DType::I8 => 128,
            _ => return None,
        };
        let Some(zero) = zero else { return Some(signed) };
        match self.view.constant(zero)?.as_i64()? {
            [z] => Some(z + signed),
            _ => None,
        }
    }

    /// The step and the zero point of a quantising node over its integers, where all of a tensor
    /// has one.
    pub fn steps(&self, n: &Node, integers: ValueId) -> Option<Steps> {
        let plain = |name: &str| n.attributes.get(name).is_none_or(|a| *a == Attribute::Int(0));
        if n.attributes.contains_key("bits") || !plain("block_size") || !plain("output_dtype") {
            return None;
        }
        let step = self.number(input(n, 1)?)?;
        let zero = self.zero(integers, input(n, 2))?;
        let is_one = step.is_finite() && step > 0.0 && (0..256).contains(&zero);
        is_one.then_some(Steps { step, zero })
    }

    /// `DequantizeLinear`: its floats are bytes with a scale. Gives whether it was replaced.
    pub fn dequantise(&mut self, n: &Node) -> bool {
        let (Some(&Some(x)), Some(&y)) = (n.inputs.first(), n.outputs.first()) else {
            return false;
        };
        let Some(Steps { step: scale, zero }) = self.steps(n, x) else { return false };
        let integers = self.view.root(x);
        let holder = match self.integers.get(&integers) {
            Some(&known) => known,
            None => {
                let Some(shape) = self.view.shape(x).map(<[i64]>::to_vec) else { return false };
                let made = Holder {
                    rows: None,
                    last: None,
                    source: Some(x),
                    step: 1.0,
                    zero,
                    shape,
                    is_made: false,
                };
                let made = self.holder(made);
                self.integers.insert(integers, made);
                made
            }
        };
        if self.holders[holder].zero != zero {
            return false;
        }
        self.floats.insert(y, Quantised { holder, scale });
        self.leaves(n, holder)
    }

    /// `Mul` by a number: the same bytes with another scale.
    pub fn scale(&mut self, n: &Node) {
        let &[Some(a), Some(b)] = &n.inputs[..] else { return };
        let Some(&y) = n.outputs.first() else { return };
        for (x, factor) in [(a, b), (b, a)] {
            if let (Some(q), Some(factor)) = (self.quantised(x), self.number(factor))
                && self.view.shape(x) == self.view.shape(y)
                && factor > 0.0
                && factor.is_finite()
            {
                self.floats.insert(y, Quantised { scale: q.scale * factor, ..q });
                return;
            }
        }
    }

    /// Lets a node whose result is what a holder holds make it of the bytes, where operators of
    /// bytes give these.
    pub fn leaves(&mut self, n: &Node, holder: usize) -> bool {
        n.outputs.first().is_some_and(|&y| self.leaves_as(&n.name, y, holder))
    }

    /// Makes the value by a conversion node of this name.
    fn leaves_as(&mut self, name: &str, y: ValueId, holder: usize) -> bool {
        let h = &self.holders[holder];
        let (true, Some(held)) = (h.is_made, h.held()) else { return false };
        let to = match self.values[y].dtype {
            Some(d @ (DType::F32 | DType::U8 | DType::I8)) => d,
            _ => return false,
        };
        let scale = self.quantised(y).map_or(1.0, |q| q.scale);
        let attributes = leaving(h, held, to).int("zero", h.zero).float("scale", scale);
        self.gives(name, of_bytes("FromBytes", &[held.value()], attributes), y);
        true
    }

    /// The bytes of an image with its channels last.
    pub fn as_last(&mut self, holder: usize, of: &str) -> Option<ValueId> {
        let h = self.holders[holder].clone();
        if h.last.is_some() {
            return h.last;
        }
        h.channels()?;
        let last = match (h.rows, h.source) {
            (Some(rows), _) if h.is_full() => self.transposed(of, rows, &[0, 2, 3, 1])?,
            (Some(rows), _) => {
                let attributes = Attributes::default().int("channels_last", 1).int("zero", h.zero);
                self.result(of, of_bytes("ToBytes", &[rows], attributes))?
            }
            (None, Some(source)) => {
                let attributes = entering(&h).int("channels_last", 1);
                self.result(of, of_bytes("ToBytes", &[source], attributes))?
            }
            _ => return None,
        };
        self.holders[holder].last = Some(last);
        Some(last)
    }

    /// The bytes in the model's order.
    pub fn as_rows(&mut self, holder: usize, of: &str) -> Option<ValueId> {
        let h = self.holders[holder].clone();
        if h.rows.is_some() {
            return h.rows;
        }
        let rows = match (h.last, h.source) {
            (Some(last), _) if h.is_full() => match h.shape[2..].iter().product() {
                1 => self.reshaped(of, last, h.shape.clone())?,
                _ => self.transposed(of, last, &[0, 3, 1, 2])?,
            },
            (Some(last), _) => {
                let attributes = leaving(&h, Made::Last(last), DType::U8);
                self.result(of, of_bytes("FromBytes", &[last], attributes))?
            }
            (None, Some(source)) => {
                self.result(of, of_bytes("ToBytes", &[source], entering(&h)))?
            }
            _ => return None,
        };
        self.holders[holder].rows = Some(rows);
        Some(rows)
    }

    fn transposed(&mut self, of: &str, x: ValueId, order: &[i64]) -> Option<ValueId> {
        let attributes = Attributes::default().ints("perm", order);
        self.result(of, Call { op: "Transpose", domain: "", inputs: vec![Some(x)], attributes })
    }

    pub fn reshaped(&mut self, of: &str, x: ValueId, shape: Vec<i64>) -> Option<ValueId> {
        let to = self.known(DType::I64, Constant::ints(shape));
        let inputs = vec![Some(x), Some(to)];
        let attributes = Attributes::default();
        self.result(of, Call { op: "Reshape", domain: "", inputs, attributes })
    }

    /// Rewrites a node that moves bytes; returns the holder of its result.
    pub fn moves(&mut self, n: &Node) -> Option<usize> {
        let (&Some(x), &y) = (n.inputs.first()?, n.outputs.first()?) else { return None };
        let q = self.quantised(x)?;
        let channels = self.view.shape(y)?.get(1).copied();
        let h = self.holders[q.holder].clone();
        let order = match n.attributes.get("perm") {
            Some(Attribute::Ints(order)) if is_standard(n, "Transpose") => Some(&order[..]),
            _ => None,
        };
        let moved = match (order, h.last) {
            // Channels that are last already.
            (Some([0, 2, 3, 1]), Some(v)) if h.is_full() => Made::Rows(v),
            (Some([0, 3, 1, 2]), _) if channels.is_some_and(|c| filled(c) == c) => {
                Made::Last(self.as_rows(q.holder, &n.name)?)
            }
            _ => {
                let from = self.as_rows(q.holder, &n.name)?;
                Made::Rows(self.result(&n.name, over(n, from))?)
            }
        };
        self.holds(y, q, moved)
    }

    /// Rewrites a `Split` of bytes, whose parts are bytes, too. Returns whether it did.
    pub fn splits(&mut self, n: &Node) -> bool {
        let Some(holders) = self.parts(n) else { return false };
        let mut leave = true;
        for (&y, holder) in n.outputs.iter().zip(holders) {
            let name = format!("{}/{}", n.name, self.values[y].name);
            leave &= self.leaves_as(&name, y, holder);
        }
        leave
    }

    /// The holders of the parts that a node splits bytes into.
    fn parts(&mut self, n: &Node) -> Option<Vec<usize>> {
        let q = self.quantised(input(n, 0)?)?;
        let from = self.as_rows(q.holder, &n.name)?;
        let parts = self.results(&n.name, over(n, from), n.outputs.len())?;
        let parts = n.outputs.iter().zip(parts);
        parts.map(|(&y, part)| self.holds(y, q, Made::Rows(part))).collect()
    }
}

/// The attributes of the conversion of floats or integers to bytes.
fn entering(h: &Holder) -> Attributes {
    Attributes::default().float("scale", h.step).int("zero", h.zero)
}

/// The attributes of the conversion of bytes in this order to the model's values of a type.
fn leaving(h: &Holder, held: Made, to: DType) -> Attributes {
    let attributes = Attributes::default().word("to", to.name());
    match (held, h.channels()) {
        (Made::Last(_), Some(channels)) => {
            attributes.int("channels_last", 1).int("channels", channels)
        }
        _ => attributes,
    }
}
