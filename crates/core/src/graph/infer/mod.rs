//! Shape inference: for each operator a function that gives the types and shapes of its results.
//! Input: a node with what is known of its operands (types, shapes, elements of constants), as a
//! [`Ctx`]; output: [`Output`]s, or a message for the user why they cannot be known. Families of
//! operators are files; the table in `core/src/operators` says which operator uses which function.

pub mod bytes;
pub(crate) mod choice;
pub(crate) mod conv_pool;
pub(crate) mod elementwise;
pub(crate) mod matmul;
pub mod nbits;
pub(crate) mod quantized;
pub(crate) mod reduce;
pub mod region;
pub(crate) mod select;
pub(crate) mod sequence;
pub(crate) mod shape_ops;
pub(crate) mod signal;
pub(crate) mod vision;

pub use choice::{CHOOSE, is_choice};
pub use conv_pool::{Window, resized, spread, window};
pub use quantized::{Scales, zero_point_suits};
pub use sequence::{AttentionShape, Recurrent};
pub use shape_ops::{
    GatherAxis, indexed_axis, pad_amounts, shape_range, slices, split_sizes, transpose_order,
};
pub use signal::{Equation, Fourier, frames, number};
pub use vision::unpooled;

use super::deciding::NOT_KNOWN;
use super::{Attribute, Constant, Node, Value, elements};
use crate::DType;
use crate::text::shown;

/// The type and shape of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The type of its elements.
    pub dtype: Option<DType>,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
}

/// The facts that are known of an operand.
#[derive(Clone, Copy, Debug)]
pub struct NodeOperand<'a> {
    /// For messages.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: Option<DType>,
    /// Extents, where known.
    pub shape: Option<&'a [i64]>,
    /// Elements, where known.
    pub constant: Option<&'a Constant>,
}

/// A node with what is known of its operands.
pub struct Ctx<'a> {
    /// The node.
    pub node: &'a Node,
    /// The version of the standard operators.
    pub opset: i64,
    /// One for each input of the node; absent ones are `None`.
    pub inputs: Vec<Option<NodeOperand<'a>>>,
}

impl<'a> Ctx<'a> {
    /// Over the values of a model.
    pub fn new(node: &'a Node, opset: i64, values: &'a [Value]) -> Ctx<'a> {
        let operand = |id: &usize| {
            values.get(*id).map(|v| NodeOperand {
                name: &v.name,
                dtype: v.dtype,
                shape: v.shape.as_deref(),
                constant: v.constant.as_deref(),
            })
        };
        Ctx {
            node,
            opset,
            inputs: node.inputs.iter().map(|i| i.as_ref().and_then(operand)).collect(),
        }
    }

    /// The operand at a place, if it is given.
    pub fn operand(&self, i: usize) -> Option<NodeOperand<'a>> {
        self.inputs.get(i).copied().flatten()
    }

    /// The operand that the operator cannot do without.
    fn required(&self, i: usize) -> Result<NodeOperand<'a>, String> {
        self.operand(i).ok_or_else(|| format!("input {i} is missing"))
    }

    /// The shape of a required operand.
    pub fn shape(&self, i: usize) -> Result<&'a [i64], String> {
        let o = self.required(i)?;
        o.shape.ok_or_else(|| format!("its input `{}` has no known shape", shown(o.name)))
    }

    /// The shape of an operand that may be absent.
    pub fn optional_shape(&self, i: usize) -> Result<Option<&'a [i64]>, String> {
        if self.operand(i).is_some() { self.shape(i).map(Some) } else { Ok(None) }
    }

    /// The type of an operand's elements.
    pub fn dtype(&self, i: usize) -> Option<DType> {
        self.operand(i).and_then(|o| o.dtype)
    }

    /// The elements of an operand that must be known: `None` where the operand is absent.
    pub fn constant(&self, i: usize, what: &str) -> Result<Option<&'a Constant>, String> {
        let Some(o) = self.operand(i) else { return Ok(None) };
        let absent = || format!("its input `{}` ({what}) {NOT_KNOWN}", shown(o.name));
        o.constant.ok_or_else(absent).map(Some)
    }

    /// The integers of an operand that must be known: `None` where the operand is absent.
    pub fn integers(&self, i: usize, what: &str) -> Result<Option<&'a [i64]>, String> {
        let Some(c) = self.constant(i, what)? else { return Ok(None) };
        let ints = c.as_i64().ok_or_else(|| {
            format!(
                "its input {i} ({what}) has elements of type {}, integers are expected",
                c.dtype().name()
            )
        })?;
        Ok(Some(ints))
    }

    /// The floats of an operand that must be known: `None` where the operand is absent.
    pub fn floats(&self, i: usize, what: &str) -> Result<Option<&'a [f32]>, String> {
        let Some(c) = self.constant(i, what)? else { return Ok(None) };
        let floats = c.as_f32().ok_or_else(|| {
            format!(
                "its input {i} ({what}) has elements of type {}, floats are expected",
                c.dtype().name()
            )
        })?;
        Ok(Some(floats))
    }

    fn wrong_type(&self, name: &str, expected: &str) -> String {
        format!("attribute `{name}` is no {expected}")
    }

    /// An integer attribute, if it is given.
    pub fn int(&self, name: &str) -> Result<Option<i64>, String> {
        match self.node.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Int(i)) => Ok(Some(*i)),
            Some(_) => Err(self.wrong_type(name, "integer")),
        }
    }

    /// An integer attribute or its default.
    pub fn int_or(&self, name: &str, default: i64) -> Result<i64, String> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// A float attribute or its default.
    pub fn float_or(&self, name: &str, default: f32) -> Result<f32, String> {
        match self.node.attributes.get(name) {
            None => Ok(default),
            Some(Attribute::Float(x)) => Ok(*x),
            // Some exporters write whole numbers as integers.
            Some(Attribute::Int(i)) => Ok(*i as f32),
            Some(_) => Err(self.wrong_type(name, "float")),
        }
    }

    /// A list of integers, if it is given.
    pub fn ints(&self, name: &str) -> Result<Option<&'a [i64]>, String> {
        match self.node.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Ints(v)) => Ok(Some(v)),
            // An empty list has no elements to tell its type by.
            Some(Attribute::Floats(v)) if v.is_empty() => Ok(Some(&[])),
            Some(_) => Err(self.wrong_type(name, "list of integers")),
        }
    }

    /// A text, or its default.
    pub fn text(&self, name: &str, default: &'static str) -> Result<&'a str, String> {
        match self.node.attributes.get(name) {
            None => Ok(default),
            Some(Attribute::String(s)) => Ok(s),
            Some(_) => Err(self.wrong_type(name, "string")),
        }
    }

    /// An axis counted from the end where it is negative.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, String> {
        axis_of(axis, rank)
    }

    /// Axes of an attribute, or of an input from the given opset on: as given, not yet normalised.
    pub fn attribute_or_input(
        &self,
        name: &str,
        input: usize,
        input_since: i64,
    ) -> Result<Option<&'a [i64]>, String> {
        if self.opset >= input_since && self.operand(input).is_some() {
            self.integers(input, name)
        } else {
            self.ints(name)
        }
    }
}

/// The types of elements with their numbers in the specification.
const TYPES: &[(i64, DType)] = &[
    (1, DType::F32),
    (2, DType::U8),
    (3, DType::I8),
    (4, DType::U16),
    (5, DType::I16),
    (6, DType::I32),
    (7, DType::I64),
    (9, DType::Bool),
    (10, DType::F16),
    (11, DType::F64),
    (12, DType::U32),
    (13, DType::U64),
    (16, DType::Bf16),
];

/// The type that the specification gives this number; none where it is no type of numbers.
pub fn onnx_type(number: i64) -> Option<DType> {
    TYPES.iter().find(|t| t.0 == number).map(|t| t.1)
}

/// An axis of a tensor, counted from the end where negative.
pub fn axis_of(axis: i64, rank: usize) -> Result<usize, String> {
    let r = rank as i64;
    if axis < -r || axis >= r {
        return Err(format!("axis {axis} is outside a tensor of {rank} dimensions"));
    }
    Ok((if axis < 0 { axis + r } else { axis }) as usize)
}

/// Several axes, each once.
pub fn axes_of(axes: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let mut out = Vec::new();
    for &a in axes {
        let a = axis_of(a, rank)?;
        if out.contains(&a) {
            return Err(format!("axis {a} is named twice"));
        }
        out.push(a);
    }
    Ok(out)
}

/// The axes along which a reduction runs, in order.
pub fn reduced_axes(ctx: &Ctx) -> Result<Vec<usize>, String> {
    reduce::axes(ctx)
}

/// NumPy's rule: extents are equal or one, counted from the innermost.
pub fn broadcast(a: &[i64], b: &[i64]) -> Result<Vec<i64>, String> {
    let rank = a.len().max(b.len());
    let at = |s: &[i64], i: usize| if i + s.len() < rank { 1 } else { s[i + s.len() - rank] };
    let extent = |i| match (at(a, i), at(b, i)) {
        (x, y) if x == y => Ok(x),
        (1, y) => Ok(y),
        (x, 1) => Ok(x),
        _ => Err(format!("shapes {a:?} and {b:?} do not broadcast")),
    };
    (0..rank).map(extent).collect()
}

/// Whether a node of known shapes hands its first operand on.
pub fn passes_on(ctx: &Ctx, outputs: &[Output]) -> bool {
    let (Some(x), Some(y)) = (ctx.operand(0), outputs.first()) else { return false };
    let same_shape = x.shape == Some(&y.shape);
    match ctx.node.op.as_str() {
        "Identity" | "Dropout" => true,
        "Cast" | "CastLike" => x.dtype == y.dtype && x.dtype.is_some(),
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Expand" | "Tile" => same_shape,
        "Transpose" => {
            transpose_order(ctx).is_ok_and(|p| p.iter().enumerate().all(|(i, a)| i == *a))
        }
        "Concat" | "Sum" | "Mean" | "Max" | "Min" => ctx.inputs.len() == 1,
        "Pad" => pad_amounts(ctx).is_ok_and(|p| p.iter().all(|(b, e)| *b == 0 && *e == 0)),
        "Slice" => {
            same_shape && slices(ctx).is_ok_and(|s| s.iter().all(|a| a.start == 0 && a.step == 1))
        }
        "Split" => ctx.node.outputs.len() == 1,
        _ => false,
    }
}
