//! Tensors with values: constants of a model and what plain code computes.

/// An element type, by ONNX's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elem(pub i32);

impl Elem {
    pub const F32: Elem = Elem(1);
    pub const I64: Elem = Elem(7);
    pub const BOOL: Elem = Elem(9);

    /// Whether values are kept as floats.
    pub fn is_float(self) -> bool {
        matches!(self.0, 1 | 10 | 11 | 16)
    }

    /// Whether values are kept as integers; a bool is 0 or 1.
    pub fn is_int(self) -> bool {
        matches!(self.0, 2..=7 | 9 | 12 | 13)
    }

    pub fn name(self) -> String {
        let names = [
            "undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string", "bool", "float16", "float64", "uint32", "uint64",
            "complex64", "complex128", "bfloat16",
        ];
        usize::try_from(self.0).ok().and_then(|i| names.get(i)).map_or_else(|| format!("element type {}", self.0), |s| (*s).into())
    }
}

/// Values in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Int(Vec<i64>),
    Float(Vec<f32>),
}

impl Data {
    pub fn len(&self) -> usize {
        match self {
            Data::Int(v) => v.len(),
            Data::Float(v) => v.len(),
        }
    }

    /// The values at the given positions; `None` if one does not exist.
    pub fn pick(&self, positions: impl Iterator<Item = usize>) -> Option<Data> {
        Some(match self {
            Data::Int(v) => Data::Int(positions.map(|p| v.get(p).copied()).collect::<Option<_>>()?),
            Data::Float(v) => Data::Float(positions.map(|p| v.get(p).copied()).collect::<Option<_>>()?),
        })
    }
}

/// A tensor with values. The number of values is the product of the shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub elem: Elem,
    pub shape: Vec<i64>,
    pub data: Data,
}

impl Tensor {
    pub fn ints(shape: Vec<i64>, values: Vec<i64>) -> Tensor {
        Tensor { elem: Elem::I64, shape, data: Data::Int(values) }
    }

    pub fn floats(shape: Vec<i64>, values: Vec<f32>) -> Tensor {
        Tensor { elem: Elem::F32, shape, data: Data::Float(values) }
    }

    pub fn as_ints(&self) -> Option<&[i64]> {
        match &self.data {
            Data::Int(v) => Some(v),
            Data::Float(_) => None,
        }
    }

    pub fn as_floats(&self) -> Option<&[f32]> {
        match &self.data {
            Data::Float(v) => Some(v),
            Data::Int(_) => None,
        }
    }

    /// The only value of a tensor with one element.
    pub fn scalar(&self) -> Option<f64> {
        match &self.data {
            Data::Int(v) if v.len() == 1 => Some(v[0] as f64),
            Data::Float(v) if v.len() == 1 => Some(f64::from(v[0])),
            _ => None,
        }
    }

    /// The same values under another shape of as many elements.
    pub fn reshaped(&self, shape: &[i64]) -> Option<Tensor> {
        (elements(shape)? == self.data.len() as u64).then(|| Tensor { elem: self.elem, shape: shape.to_vec(), data: self.data.clone() })
    }

    /// The tensor of `shape` whose element at an index is this tensor's at `offset` plus the
    /// index times `strides`; `None` if that leaves the tensor.
    pub fn strided(&self, shape: &[i64], strides: &[i64], offset: i64) -> Option<Tensor> {
        let positions = Positions::new(shape, strides, offset);
        let data = self.data.pick(positions.map(|p| usize::try_from(p).unwrap_or(usize::MAX)))?;
        Some(Tensor { elem: self.elem, shape: shape.to_vec(), data })
    }
}

/// Elements of a shape, `None` where it has a negative extent or too many elements to count.
pub(crate) fn elements(shape: &[i64]) -> Option<u64> {
    shape.iter().try_fold(1u64, |n, &e| n.checked_mul(u64::try_from(e).ok()?))
}

/// Distance in memory between neighbours along each dimension.
pub(crate) fn strides_of(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    strides
}

/// Strides with which a tensor of shape `from` is read as one of shape `to`, by NumPy's
/// broadcasting: zero where it is repeated. `None` where it does not broadcast.
pub(crate) fn broadcast_strides(from: &[i64], to: &[i64]) -> Option<Vec<i64>> {
    let lead = to.len().checked_sub(from.len())?;
    let own = strides_of(from);
    let mut out = vec![0; to.len()];
    for (i, (&f, &s)) in from.iter().zip(&own).enumerate() {
        match (f, to[lead + i]) {
            (a, b) if a == b => out[lead + i] = if a == 1 { 0 } else { s },
            (1, _) => {}
            _ => return None,
        }
    }
    Some(out)
}

/// The shape that shapes broadcast to, by NumPy's rules.
pub(crate) fn broadcast(shapes: &[&[i64]]) -> Option<Vec<i64>> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = vec![1i64; rank];
    for s in shapes {
        let lead = rank - s.len();
        for (o, &e) in out[lead..].iter_mut().zip(*s) {
            *o = match (*o, e) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return None,
            };
        }
    }
    Some(out)
}

/// Positions in memory of the elements of a strided tensor, in row-major order.
pub(crate) struct Positions {
    shape: Vec<i64>,
    strides: Vec<i64>,
    index: Vec<i64>,
    at: i64,
    left: u64,
}

impl Positions {
    pub fn new(shape: &[i64], strides: &[i64], offset: i64) -> Positions {
        Positions { shape: shape.to_vec(), strides: strides.to_vec(), index: vec![0; shape.len()], at: offset, left: elements(shape).unwrap_or(0) }
    }
}

impl Iterator for Positions {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        self.left = self.left.checked_sub(1)?;
        let here = self.at;
        for i in (0..self.shape.len()).rev() {
            self.index[i] += 1;
            self.at = self.at.wrapping_add(self.strides[i]);
            if self.index[i] < self.shape[i] {
                break;
            }
            self.at = self.at.wrapping_sub(self.strides[i].wrapping_mul(self.shape[i]));
            self.index[i] = 0;
        }
        Some(here)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Only what fits in memory is promised; a caller that allocates by it has checked sizes.
        (usize::try_from(self.left.min(1 << 32)).unwrap_or(0), None)
    }
}
