//! Convolutions and pools over images of bytes, in the rewriting of quantised models to kernels of
//! bytes (`mod.rs`): their geometry with channels last and padded to groups, and the nodes
//! `ConvBytes`, `MaxPoolBytes` and others that stand for them. Input: a node on floats with its
//! rounding; output: the value of the new node's bytes.

use super::hold::{Made, Quantised, Steps};
use super::operators::limits;
use super::trace::Rounded;
use super::{Attributes, Rewriter, of_bytes};
use crate::view::{input, int, ints, is_standard};
use squall_core::graph::infer::bytes::{FOUR, Weights, filled};
use squall_core::graph::infer::{Ctx, Window, window};
use squall_core::graph::{Node, ValueId};
use squall_core::operator::{BytePool, ByteResult, Conv};

/// A window of two dimensions as attributes; `None` for other windows, and for negative padding.
fn attributes(w: &Window) -> Option<Attributes> {
    let pads: Vec<i64> = w.before.iter().chain(&w.after).copied().collect();
    if w.kernel.len() != 2 || pads.iter().any(|p| *p < 0) {
        return None;
    }
    let plain = Attributes::default().ints("pads", &pads);
    Some(plain.ints("strides", &w.strides).ints("dilations", &w.dilations))
}

fn pair(list: &[i64]) -> Option<[i64; 2]> {
    list.try_into().ok()
}

impl Rewriter<'_> {
    fn window(&self, n: &Node) -> Option<Window> {
        window(&Ctx::new(n, self.view.model.opset, &self.values)).ok()
    }

    /// The geometry of a node's convolution over bytes with channels last and padded, the form in
    /// which its filters are packed, and the attributes of the new node; `None` where its groups do
    /// not suit bytes.
    pub fn geometry(
        &self,
        n: &Node,
        [images, c, h, w]: [i64; 4],
        filters: ValueId,
    ) -> Option<(Conv, Weights, Attributes)> {
        let &[k, of, rows, columns] = self.view.shape(filters)? else { return None };
        let groups = int(n, "group", 1);
        let form = match (groups, of) {
            (1, of) if of == c => Weights::Filters,
            (g, 1) if g == c && k == c && c > 1 => Weights::Depthwise,
            // Channels that are filled up would be another group's.
            (g, of) if g > 1 && of % FOUR == 0 && filled(k) == k => {
                (of.checked_mul(g) == Some(c)).then_some(Weights::Filters)?
            }
            _ => return None,
        };
        let window = self.window(n)?;
        let ([p0, p1], [p2, p3]) = (pair(&window.before)?, pair(&window.after)?);
        let conv = Conv {
            n: images,
            c: filled(c),
            h,
            w,
            k: filled(k),
            r: rows,
            s: columns,
            stride: pair(&window.strides)?,
            pads: [p0, p1, p2, p3],
            dilation: pair(&window.dilations)?,
            groups: if form == Weights::Depthwise { filled(c) } else { groups },
        };
        let mut attributes = attributes(&window)?;
        if form == Weights::Filters && groups > 1 {
            attributes = attributes.int("group", groups);
        }
        Some((conv, form, attributes))
    }

    pub fn conv(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let n = r.node;
        let (&Some(x), &Some(w)) = (n.inputs.first()?, n.inputs.get(1)?) else { return None };
        let (q, weights) = (self.quantised(x)?, self.weights(w)?);
        let image = <[i64; 4]>::try_from(&self.holders[q.holder].shape[..]).ok()?;
        let (conv, form, attributes) = self.geometry(n, image, weights.whole)?;
        let (images, &k) = (image[0], self.view.shape(weights.whole)?.first()?);
        let own = input(n, 2);
        let zero = self.holders[q.holder].zero;
        let result = ByteResult { range: r.range, sum: None };
        let [_, _, p, q_] = conv.output();
        // A bias behind the operator stands beside one of its own only by a sum of both.
        let bias = match (own, r.bias) {
            (Some(_), Some(_)) => return None,
            (Some(b), None) => {
                let suits = self.view.is_weight(b) && self.view.shape(b) == Some(&[k]);
                suits.then_some(b)
            }
            (None, b) => b,
        };
        let fits = shape == [images, k, p, q_]
            && (own.is_none() || bias.is_some())
            && (own.is_some() || self.suits(bias, k, 4, 1))
            && self.suits(r.factor, k, 4, 1)
            && self.suits(weights.scale, k, 4, 0)
            && conv.in_bytes(zero as u8, result).is_ok();
        if !fits {
            return None;
        }
        let name = &n.name;
        let x = self.as_last(q.holder, name)?;
        let packed = [Some(weights.whole), bias, weights.scale, r.factor];
        let data = Steps { step: q.scale, zero };
        let [w, s, z] = self.packed(name, form, packed, data, r)?;
        self.multiplies = true;
        let attributes = limits(r.range).and(attributes).int("zero", zero);
        let made = of_bytes("ConvBytes", &[x, w, s, z], attributes);
        Some(Made::Last(self.result(name, made)?))
    }

    /// The window with its padding behind extended to what its last positions reach: rounding up
    /// may ask for more than the padding has.
    fn reaching(&self, q: Quantised, mut w: Window) -> Window {
        for (i, &extent) in self.holders[q.holder].shape.iter().skip(2).enumerate() {
            let span = (w.kernel[i] - 1) * w.dilations[i] + 1;
            let reach = (w.out[i] - 1) * w.strides[i] + span - extent - w.before[i];
            w.after[i] = w.after[i].max(reach);
        }
        w
    }

    /// The pool over held bytes, with its attributes.
    fn pool(&self, q: Quantised, w: &Window) -> Option<(BytePool, Attributes)> {
        let &[n, c, rows, columns] = &self.holders[q.holder].shape[..] else { return None };
        let ([p0, p1], [p2, p3]) = (pair(&w.before)?, pair(&w.after)?);
        let pool = BytePool {
            n,
            h: rows,
            w: columns,
            c: filled(c),
            kernel: pair(&w.kernel)?,
            stride: pair(&w.strides)?,
            pads: [p0, p1, p2, p3],
            dilation: pair(&w.dilations)?,
        };
        let made = attributes(w)?.ints("kernel_shape", &w.kernel);
        // Rounding up may ask for more positions than the padding has.
        (pool.positions().ok()?[..] == w.out[..]).then_some((pool, made))
    }

    /// `MaxPool`: what holds its result.
    pub fn greatest(&mut self, n: &Node) -> Option<usize> {
        let (&Some(x), &y) = (n.inputs.first()?, n.outputs.first()?) else { return None };
        let q = self.quantised(x)?;
        let is_read = |o: ValueId| self.view.is_output(o) || !self.view.users(o).is_empty();
        if n.outputs.iter().skip(1).any(|&o| is_read(o)) {
            return None;
        }
        let window = self.window(n).filter(|w| w.kernel.len() == 2)?;
        let window = self.reaching(q, window);
        let (_, attributes) = self.pool(q, &window)?;
        let from = self.as_last(q.holder, &n.name)?;
        let last = self.result(&n.name, of_bytes("MaxPoolBytes", &[from], attributes))?;
        self.holds(y, q, Made::Last(last))
    }

    /// The window over which a node takes means.
    fn mean_window(&self, n: &Node, shape: &[i64]) -> Option<Window> {
        if is_standard(n, "AveragePool") {
            let window = self.window(n)?;
            let padded = window.before.iter().chain(&window.after).any(|p| *p != 0);
            let counted = int(n, "count_include_pad", 0) == 1;
            return (!padded || counted).then_some(window);
        }
        let &[_, _, h, w] = shape else { return None };
        if is_standard(n, "ReduceMean") {
            let given = ints(n, "axes").or(input(n, 1).and_then(|v| self.view.ints(v)));
            let axes = given?;
            let mut axes: Vec<i64> = axes.iter().map(|a| if *a < 0 { a + 4 } else { *a }).collect();
            axes.sort_unstable();
            if axes != [2, 3] {
                return None;
            }
        }
        let zeros = vec![0; 2];
        Some(Window {
            kernel: vec![h, w],
            before: zeros.clone(),
            after: zeros,
            out: vec![1, 1],
            strides: vec![1, 1],
            dilations: vec![1, 1],
        })
    }

    pub fn mean(&mut self, r: &Rounded<'_>, shape: &[i64]) -> Option<Made> {
        let n = r.node;
        let q = self.quantised(input(n, 0)?)?;
        let from = self.holders[q.holder].shape.clone();
        let window = self.mean_window(n, &from)?;
        let (pool, attributes) = self.pool(q, &window)?;
        let (zero, factor) = (self.holders[q.holder].zero, q.scale / r.step);
        let count = (pool.kernel[0] * pool.kernel[1]) as f64;
        let offset = r.zero as f64 - zero as f64 * factor;
        let p = self.parameters(&pool.numbers(factor / count, offset));
        let x = self.as_last(q.holder, &n.name)?;
        let attributes = limits(r.range).and(attributes).int("zero", zero);
        let last = self.result(&n.name, of_bytes("MeanBytes", &[x, p], attributes))?;
        match shape.len() {
            4 => Some(Made::Last(last)),
            // Axes of one place were left out.
            _ if self.holders[q.holder].is_full() => {
                Some(Made::Rows(self.reshaped(&n.name, last, shape.to_vec())?))
            }
            _ => None,
        }
    }
}
