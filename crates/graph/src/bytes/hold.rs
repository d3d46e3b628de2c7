//! What holds a value's bytes: in which order they lie, and how bytes are entered and left.

use super::{Attributes, Call, Rewriter, is_standard, of_bytes};
use squall_core::DType;
use squall_core::graph::infer::bytes::filled;
use squall_core::graph::{Attribute, Constant, Node, ValueId};

/// Bytes `b` that stand for `(b - zero) * scale`, whatever the scale: a tensor of the model, in one
/// order or in both.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    /// As the model has it.
    pub rows: Option<ValueId>,
    /// With channels last, filled up; of images only.
    pub last: Option<ValueId>,
    /// The floats or integers that it is made of where no operator of bytes gives it.
    pub source: Option<ValueId>,
    /// What floats of the source are divided by.
    pub step: f64,
    /// The byte that stands for 0.
    pub zero: i64,
    /// The extents in the model's order.
    pub shape: Vec<i64>,
    /// Whether it stems from operators of bytes, so that its floats are made of it.
    pub is_made: bool,
}

impl Holder {
    /// Channels, where it is an image.
    pub fn channels(&self) -> Option<i64> {
        if let [_, c, _, _] = self.shape[..] { Some(c) } else { None }
    }

    /// Whether all of an image's channels are its own.
    pub fn is_full(&self) -> bool {
        self.channels().is_some_and(|c| filled(c) == c)
    }

    /// The extents of an image with its channels last.
    pub fn last_shape(&self) -> Option<Vec<i64>> {
        let [n, c, h, w] = self.shape[..] else { return None };
        Some(vec![n, h, w, filled(c)])
    }
}

/// Floats that are bytes with a scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantised {
    pub holder: usize,
    pub scale: f64,
}

impl Rewriter<'_> {
    /// What holds the bytes of floats.
    pub fn quantised(&self, v: ValueId) -> Option<Quantised> {
        self.floats.get(&self.root(v)).copied()
    }

    pub fn holder(&mut self, holder: Holder) -> usize {
        self.holders.push(holder);
        self.holders.len() - 1
    }

    /// The zero point of an integer value's, as a byte without sign; none of other types.
    fn zero(&self, value: ValueId, zero: Option<ValueId>) -> Option<i64> {
        let signed = match self.made.values[self.root(value)].dtype? {
            DType::U8 => 0,
            DType::I8 => 128,
            _ => return None,
        };
        let Some(zero) = zero else { return Some(signed) };
        match self.constant(zero)? {
            Constant::I64 { data, .. } => match data[..] {
                [z] => Some(z + signed),
                _ => None,
            },
            _ => None,
        }
    }

    /// The step and the zero point of a quantising node over its integers, where all of a tensor
    /// has one.
    pub fn steps(&self, n: &Node, integers: ValueId) -> Option<(f64, i64)> {
        let plain = |name: &str| n.attributes.get(name).is_none_or(|a| *a == Attribute::Int(0));
        if n.attributes.contains_key("bits") || !plain("block_size") || !plain("output_dtype") {
            return None;
        }
        let scale = self.number(n.inputs.get(1).copied().flatten()?)?;
        let zero = self.zero(integers, n.inputs.get(2).copied().flatten())?;
        (scale.is_finite() && scale > 0.0 && (0..256).contains(&zero)).then_some((scale, zero))
    }

    /// `DequantizeLinear`: its floats are bytes with a scale. Gives whether it was replaced.
    pub fn dequantise(&mut self, n: &Node) -> bool {
        let (Some(&Some(x)), Some(&y)) = (n.inputs.first(), n.outputs.first()) else {
            return false;
        };
        let Some((scale, zero)) = self.steps(n, x) else { return false };
        let integers = self.root(x);
        let holder = match self.integers.get(&integers) {
            Some(&known) => known,
            None => {
                let Some(shape) = self.shape(x) else { return false };
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
                && self.shape(x) == self.shape(y)
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

    /// The same of a value, by a node of this name.
    fn leaves_as(&mut self, name: &str, y: ValueId, holder: usize) -> bool {
        let h = self.holders[holder].clone();
        let (true, Some(from)) = (h.is_made, h.last.or(h.rows)) else { return false };
        let to = match self.made.values[y].dtype {
            Some(DType::F32) => "f32",
            Some(DType::U8) => "u8",
            Some(DType::I8) => "i8",
            _ => return false,
        };
        let scale = self.quantised(y).map_or(1.0, |q| q.scale);
        let mut attributes = Attributes::default()
            .with("to", Attribute::String(to.into()))
            .int("zero", h.zero)
            .float("scale", scale);
        if let (Some(_), Some(channels)) = (h.last, h.channels()) {
            attributes = attributes.int("channels_last", 1).int("channels", channels);
        }
        self.push(name, of_bytes("FromBytes", &[from], attributes), vec![y]);
        if let Some(made) = self.nodes.last_mut() {
            // It stands for the node.
            made.name = name.into();
        }
        true
    }

    /// The bytes of an image with its channels last.
    pub fn as_last(&mut self, holder: usize, of: &str) -> Option<ValueId> {
        let h = self.holders[holder].clone();
        if h.last.is_some() {
            return h.last;
        }
        let shape = h.last_shape()?;
        let last = match (h.rows, h.source) {
            (Some(rows), _) if h.is_full() => self.transposed(of, rows, &[0, 2, 3, 1], shape),
            (Some(rows), _) => {
                let attributes = Attributes::default().int("channels_last", 1).int("zero", h.zero);
                self.bytes(of, of_bytes("ToBytes", &[rows], attributes), shape)
            }
            (None, Some(source)) => {
                let call = [source];
                let attributes = entering(&h).int("channels_last", 1);
                self.bytes(of, of_bytes("ToBytes", &call, attributes), shape)
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
            (Some(last), _) if h.is_full() => {
                let [_, _, rows, columns] = h.shape[..] else { return None };
                match rows * columns {
                    1 => self.reshaped(of, last, h.shape.clone()),
                    _ => self.transposed(of, last, &[0, 3, 1, 2], h.shape.clone()),
                }
            }
            (Some(last), _) => {
                let attributes = Attributes::default()
                    .with("to", Attribute::String("u8".into()))
                    .int("channels_last", 1)
                    .int("channels", h.channels()?);
                self.bytes(of, of_bytes("FromBytes", &[last], attributes), h.shape.clone())
            }
            (None, Some(source)) => {
                let call = [source];
                self.bytes(of, of_bytes("ToBytes", &call, entering(&h)), h.shape.clone())
            }
            _ => return None,
        };
        self.holders[holder].rows = Some(rows);
        Some(rows)
    }

    fn transposed(&mut self, of: &str, x: ValueId, order: &[i64], shape: Vec<i64>) -> ValueId {
        let attributes = Attributes::default().ints("perm", order).0;
        let call = Call { op: "Transpose", domain: "", inputs: &[x], attributes };
        self.bytes(of, call, shape)
    }

    pub fn reshaped(&mut self, of: &str, x: ValueId, shape: Vec<i64>) -> ValueId {
        let to = Constant::ints(shape.clone());
        let to = self.value(DType::I64, vec![shape.len() as i64], Some(to));
        let call =
            Call { op: "Reshape", domain: "", inputs: &[x, to], attributes: Default::default() };
        self.bytes(of, call, shape)
    }

    /// A node that moves what is held: what holds its result.
    pub fn moves(&mut self, n: &Node) -> Option<usize> {
        let (&Some(x), &y) = (n.inputs.first()?, n.outputs.first()?) else { return None };
        let q = self.quantised(x)?;
        let shape = self.shape(y)?;
        let h = self.holders[q.holder].clone();
        let order = match n.attributes.get("perm") {
            Some(Attribute::Ints(order)) if is_standard(n, "Transpose") => Some(&order[..]),
            _ => None,
        };
        let (mut rows, mut last) = (None, None);
        match (order, h.last) {
            // Channels that are last already.
            (Some([0, 2, 3, 1]), Some(v)) if h.is_full() => rows = Some(v),
            (Some([0, 3, 1, 2]), _) if filled(shape[1]) == shape[1] => {
                last = Some(self.as_rows(q.holder, &n.name)?);
            }
            _ => {
                let from = self.as_rows(q.holder, &n.name)?;
                let inputs: Vec<ValueId> = [Some(from)]
                    .into_iter()
                    .chain(n.inputs[1..].iter().copied())
                    .flatten()
                    .collect();
                let call = Call {
                    op: &n.op,
                    domain: "",
                    inputs: &inputs,
                    attributes: n.attributes.clone(),
                };
                rows = Some(self.bytes(&n.name, call, shape.clone()));
            }
        }
        let made = Holder { rows, last, source: None, shape, ..h };
        let holder = self.holder(made);
        self.floats.insert(y, Quantised { holder, ..q });
        Some(holder)
    }
}

impl Rewriter<'_> {
    /// `Split` of what is held: its parts are bytes, too. Gives whether it was replaced.
    pub fn splits(&mut self, n: &Node) -> bool {
        let Some(q) = n.inputs.first().copied().flatten().and_then(|x| self.quantised(x)) else {
            return false;
        };
        let h = self.holders[q.holder].clone();
        let shapes: Option<Vec<Vec<i64>>> = n.outputs.iter().map(|&o| self.shape(o)).collect();
        let (Some(shapes), Some(from)) = (shapes, self.as_rows(q.holder, &n.name)) else {
            return false;
        };
        let inputs: Vec<ValueId> =
            [Some(from)].into_iter().chain(n.inputs[1..].iter().copied()).flatten().collect();
        let parts: Vec<ValueId> =
            shapes.iter().map(|s| self.value(DType::U8, s.clone(), None)).collect();
        let attributes = n.attributes.clone();
        let call = Call { op: &n.op, domain: "", inputs: &inputs, attributes };
        self.push(&n.name, call, parts.clone());
        let mut leave = true;
        for ((&y, part), shape) in n.outputs.iter().zip(parts).zip(shapes) {
            let made = Holder { rows: Some(part), last: None, source: None, shape, ..h.clone() };
            let holder = self.holder(made);
            self.floats.insert(y, Quantised { holder, ..q });
            let name = format!("{}/{}", n.name, self.made.values[y].name);
            leave &= self.leaves_as(&name, y, holder);
        }
        leave
    }
}

/// What says how bytes are made of floats or of integers.
fn entering(h: &Holder) -> Attributes {
    Attributes::default().float("scale", h.step).int("zero", h.zero)
}
