//! Recognises in a plain loop nest the convolution that Winograd's filtering can replace: 3x3 taps,
//! stride 1 or 2, with or without a padded copy, with an elementwise epilogue, and channels first
//! or last. Input: a nest and the name of the sum's buffer; output: a [`Convolution`] with its
//! buffers and extents, or the reason why there is none. Used by the primitive `winograd`
//! (`mod.rs`) and by `sketch/gpu/winograd`.

use crate::nest::{Mode, Nest, Scope, Stmt, accesses, visit};
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Expr, Source};
use squall_core::workload::Reducer;

/// The order of the axes of a tensor of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channels {
    /// [batch, channels, height, width].
    First,
    /// [batch, height, width, channels].
    Last,
}

impl Channels {
    /// Batch, channels, height and width, from a list in the tensor's order.
    pub fn read<T: Clone>(self, list: &[T]) -> Option<[T; 4]> {
        let [a, b, c, d] = list else { return None };
        let [a, b, c, d] = [a, b, c, d].map(T::clone);
        Some(if self == Channels::First { [a, b, c, d] } else { [a, d, b, c] })
    }

    /// The list in the tensor's order.
    pub fn write<T>(self, [n, c, h, w]: [T; 4]) -> Vec<T> {
        if self == Channels::First { vec![n, c, h, w] } else { vec![n, h, w, c] }
    }
}

/// The parts of a plain nest that is a 3x3 convolution of stride 1 or 2, with or without padding,
/// and an epilogue.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// The input, and how many rows and columns the padding adds above it and left of it.
    pub(crate) input: Source,
    pub(crate) input_channels: Channels,
    pub(crate) pad: (i64, i64),
    /// The value of the border.
    pub(crate) border: f64,
    /// The padded copy, where there is one.
    pub(crate) padded: Option<Source>,
    pub(crate) sum: Source,
    pub(crate) filter: Source,
    pub(crate) weight: Source,
    pub(crate) output: Source,
    pub(crate) output_channels: Channels,
    /// The value of an output element, and its index.
    pub(crate) epilogue: Expr,
    pub(crate) at: Vec<Affine>,
    /// Extents: batch, output channels, output height and width, input channels.
    pub batch: i64,
    /// Output channels.
    pub outputs: i64,
    /// Output height.
    pub height: i64,
    /// Output width.
    pub width: i64,
    /// Input channels.
    pub channels: i64,
    /// Elements of the input from one output to the next, along both axes.
    pub stride: i64,
    /// Whether the task has both factors rounded to tf32.
    pub rounded: bool,
}

impl Convolution {
    /// Elements of the input that outputs side by side read, along an axis.
    pub fn reach(&self, outputs: i64) -> i64 {
        (outputs - 1) * self.stride + 3
    }

    /// Refuses an input of this shape if more of it is unread than a stride leaves out, and a
    /// border of which nothing else is read.
    fn check_input(&self, input: &[i64]) -> Result<(), &'static str> {
        let Some([_, _, rows, columns]) = self.input_channels.read(input) else {
            return Err("the input has not four dimensions");
        };
        let (down, across) = (self.reach(self.height), self.reach(self.width));
        let left_out = |elements: i64, read| (0..self.stride).contains(&(elements - read));
        if self.padded.is_none() && !(left_out(rows, down) && left_out(columns, across)) {
            return Err("the input is a part of one with more rows");
        }
        if down <= self.pad.0 || across <= self.pad.1 {
            return Err("it reads nothing but a border");
        }
        Ok(())
    }

    /// Whether a statement makes the plain copy of the filter, which has no reader once the filter
    /// is transformed. A filter that is arranged ahead of the call is kept: it is what gets
    /// transformed.
    pub(crate) fn makes_copy(&self, s: &Stmt) -> bool {
        self.weight != self.filter
            && accesses(std::slice::from_ref(s)).iter().any(|a| a.buffer == self.weight)
    }

    /// The buffers that Winograd's form does without.
    pub(crate) fn gone(&self) -> Vec<Source> {
        let filter = Some(self.filter).filter(|f| *f != self.weight);
        let mut gone: Vec<Source> =
            [filter, Some(self.sum), self.padded].into_iter().flatten().collect();
        gone.sort();
        gone
    }

    /// Stores the output at [image, channel, row, column], from its sum there.
    pub(crate) fn store(&self, at: [Affine; 4], sum: &Expr) -> Stmt {
        let index = self.output_channels.write(at);
        let here = |a: &Affine| {
            self.at
                .iter()
                .zip(&index)
                .fold(a.clone(), |a, (c, by)| c.as_var().map_or(a.clone(), |c| a.substitute(c, by)))
        };
        let value = self.epilogue.rewrite(&mut |a| here(a), &mut |e| match e {
            Expr::Load { source, .. } if source == self.sum => sum.clone(),
            e => e,
        });
        Stmt::Store { buffer: self.output, index, value }
    }
}

/// The parts of a plain nest with one sum: the sum's statement, the epilogue's store, and the
/// copies before them.
struct Parts {
    at_sum: Vec<Affine>,
    product: Expr,
    output: Source,
    at: Vec<Affine>,
    epilogue: Expr,
    copies: Vec<Copied>,
}

/// A buffer that is set, where, and to what.
type Copied = (Source, Vec<Affine>, Expr);

fn parts(n: &Nest, sum: Source) -> Option<Parts> {
    let (mut update, mut store, mut copies, mut strange) = (None, None, Vec::new(), false);
    visit(&n.body, &mut |s| match s {
        Stmt::Update { op: Reducer::Sum, buffer, index, value } if *buffer == sum => {
            update = Some((index.clone(), value.clone()))
        }
        Stmt::Store { buffer, value: Expr::Const(_), .. } if *buffer == sum => {}
        Stmt::Store { buffer, index, value } if n.buffer(*buffer).scope == Scope::Output => {
            store = Some((*buffer, index.clone(), value.clone()));
        }
        Stmt::Store { buffer, index, value } => {
            copies.push((*buffer, index.clone(), value.clone()))
        }
        Stmt::Loop(l) => strange |= l.start.is_some() || l.mode != Mode::Serial,
        _ => strange = true,
    });
    let ((at_sum, product), (output, at, epilogue)) = (update?, store?);
    (!strange).then_some(Parts { at_sum, product, output, at, epilogue, copies })
}

/// Finds the convolution that accumulates into the buffer `name`.
pub fn find(n: &Nest, name: &str) -> Result<Convolution, String> {
    let no = |what: &str| {
        format!("`{name}` is not the sum of a 3x3 convolution of stride 1 or 2: {what}")
    };
    let sum = crate::schedule::structure::buffer(n, name)?;
    let Parts { at_sum, product, output, at, epilogue, copies } =
        parts(n, sum).ok_or_else(|| no("it is not the only sum of a plain nest"))?;
    let Expr::Binary(Binary::Mul, a, b) = &product else {
        return Err(no("it does not add up products"));
    };
    let rounded = [a, b].iter().all(|e| matches!(***e, Expr::Cast(DType::Tf32, _)));
    let factor = |e| match e {
        Expr::Cast(DType::Tf32, e) if rounded => *e,
        e => e,
    };
    let (Expr::Load { source: a, index: ai }, Expr::Load { source: b, index: bi }) =
        (&factor((**a).clone()), &factor((**b).clone()))
    else {
        return Err(no("it does not multiply two tensors"));
    };
    let prepared = |s: Source| n.buffer(s).scope == Scope::Prepared;
    let ((read, ri), (filter, fi)) =
        if prepared(*b) { ((*a, ai), (*b, bi)) } else { ((*b, bi), (*a, ai)) };
    let shape = |s: Source| n.buffer(s).shape.as_slice();
    let four = |s: Source| shape(s).len() == 4;
    if !prepared(filter) || !four(filter) || !four(sum) || !four(read) || at_sum.len() != 4 {
        return Err(no("the tensors have not four dimensions, or the filter is no weight"));
    }
    let filter_shape = shape(filter);
    let (input_channels, output_channels, stride) =
        orders(ri, fi, filter_shape, &at_sum).ok_or_else(|| no("its indices are others"))?;
    let (Some([batch, outputs, height, width]), Some([_, channels, ..])) =
        (output_channels.read(shape(sum)), input_channels.read(shape(read)))
    else {
        return Err(no("the tensors have not four dimensions"));
    };
    // The input may be the first channels of an image with more.
    let inputs = filter_shape[1];
    if filter_shape != [outputs, inputs, 3, 3] || inputs > channels {
        return Err(no("the filter is not [outputs, channels, 3, 3]"));
    }
    let channels = inputs;
    if at.len() != 4 || epilogue.loads().iter().any(|(s, i)| *s == sum && *i != at) {
        return Err(no("the output is not elementwise in it"));
    }
    let within = |part: &[i64], whole: &[i64]| {
        part.len() == whole.len() && part.iter().zip(whole).all(|(p, w)| p <= w)
    };
    if height < 1 || width < 1 || !within(shape(sum), shape(output)) {
        return Err(no("the output has another shape"));
    }
    let weight = weight(n, filter).ok_or_else(|| no("the filter is made otherwise"))?;
    let Padding { input, pad, border, padded } =
        padding(n, read, input_channels, &copies).map_err(no)?;
    let conv = Convolution {
        input,
        input_channels,
        pad,
        border,
        padded,
        sum,
        filter,
        weight,
        output,
        output_channels,
        epilogue,
        at,
        batch,
        outputs,
        height,
        width,
        channels,
        stride,
        rounded,
    };
    conv.check_input(shape(input)).map_err(no)?;
    Ok(conv)
}

/// Where the input and the output have their channels, and the stride: P[n, c, t*p + r, t*q + s] *
/// W[k, c, r, s] into C[n, k, p, q], or with channels last in P or C.
fn orders(
    read: &[Affine],
    filter: &[Affine],
    shape: &[i64],
    sum: &[Affine],
) -> Option<(Channels, Channels, i64)> {
    let plain = |i: usize| {
        let constant = || filter[i].as_constant() == Some(0) && shape[i] == 1;
        filter[i].as_var().map_or_else(constant, |_| true)
    };
    let mut all = [Channels::First, Channels::Last]
        .into_iter()
        .flat_map(|i| [(i, Channels::First), (i, Channels::Last)])
        .flat_map(|(i, o)| [1, 2].map(|stride| (i, o, stride)));
    let fits = |&(input, output, stride): &(Channels, Channels, i64)| {
        let (Some([rn, rc, rp, rq]), Some([n, k, p, q])) = (input.read(read), output.read(sum))
        else {
            return false;
        };
        rn == n
            && filter[0] == k
            && rc == filter[1]
            && rp == p.scale(stride).add(&filter[2])
            && rq == q.scale(stride).add(&filter[3])
    };
    all.find(fits).filter(|_| (0..4).all(plain))
}

/// The weight that a filter is copied from as it is; the filter itself where it is arranged
/// otherwise ahead of the call.
fn weight(n: &Nest, filter: Source) -> Option<Source> {
    let weight_of = |copy: &Stmt| {
        let mut found = None;
        visit(std::slice::from_ref(copy), &mut |s| match s {
            Stmt::Store { buffer, value: Expr::Load { source, index: from }, index }
                if *buffer == filter && from == index =>
            {
                found = Some(*source);
            }
            _ => {}
        });
        found
    };
    let arranged = || {
        let list = accesses(&n.prepare);
        list.iter().any(|a| a.buffer == filter && a.write).then_some(filter)
    };
    n.prepare.iter().find_map(weight_of).or_else(arranged)
}

/// The input of a convolution, the padding above it and left of it, and the padded copy.
struct Padding {
    input: Source,
    pad: (i64, i64),
    border: f64,
    padded: Option<Source>,
}

/// The padding, a copy of its own.
fn padding(
    n: &Nest,
    read: Source,
    channels: Channels,
    copies: &[Copied],
) -> Result<Padding, &'static str> {
    let shape = |s: Source| n.buffer(s).shape.as_slice();
    match (n.buffer(read).scope, copies) {
        (Scope::Data(_), []) => Ok(Padding { input: read, pad: (0, 0), border: 0.0, padded: None }),
        (Scope::Workspace, [(b, index, Expr::Select { conds, then, other })]) if *b == read => {
            let Expr::Load { source, index: from } = &**then else {
                return Err("the padding is not a copy");
            };
            let of_channels = channels.read(&[0, 1, 2, 3]).map(|[_, c, ..]| c);
            let shift = |d: usize| -> Option<i64> {
                let moved = index[d].add(&from[d].scale(-1)).as_constant()?;
                let c = conds.iter().find(|c| c.index == from[d]);
                let (source_extent, extent) = (shape(*source)[d], shape(read)[d]);
                let alike =
                    source_extent == extent || (of_channels == Some(d) && source_extent > extent);
                let whole =
                    c.map_or(moved == 0 && alike, |c| c.low == 0 && c.high == shape(*source)[d]);
                whole.then_some(moved)
            };
            let shifts = channels.read(&[shift(0), shift(1), shift(2), shift(3)]);
            let Some([Some(0), Some(0), Some(top), Some(left)]) = shifts else {
                return Err("the padding is of another kind");
            };
            let Expr::Const(border) = **other else { return Err("the border is no number") };
            if !border.is_finite()
                || !matches!(n.buffer(*source).scope, Scope::Data(_))
                || top < 0
                || left < 0
            {
                return Err("the padding is not that of an input");
            }
            Ok(Padding { input: *source, pad: (top, left), border, padded: Some(read) })
        }
        _ => Err("its input is computed first"),
    }
}
