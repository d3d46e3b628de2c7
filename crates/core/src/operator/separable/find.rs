//! Finds the normal form of a workload that is a chain of convolutions or products ([`Separable`]).
//! Input: a workload; output: which stage is the product ahead, which goes over windows (a
//! depthwise convolution or a pooling) and which is the product behind, how their tensors are read,
//! and the elementwise work between them; nothing where the stages have another form.

use super::{OverWindows, Place, PlaceProduct, Separable, SlidingWindow};
use crate::TensorKind;
use crate::expr::{Affine, Binary, Cond, Expr, Source, Var};
use crate::operator::written_out::written_out;
use crate::workload::{Reducer, Stage, Workload};
use std::collections::HashSet;

/// The first product, and what it reads.
type First = (PlaceProduct, Expr);

/// A stage that goes over sliding windows, and how it reads its data.
struct Windows {
    data: Place,
    op: Reducer,
    weight: Option<Place>,
    /// The dimensions of the data: channels, rows and columns, and those that all operators share.
    channel: usize,
    spatial: [usize; 2],
    shared: Vec<usize>,
    windows: [SlidingWindow; 2],
    /// The axes of the stage that are channels, rows and columns, and the reductions of rows and
    /// columns where there are several places.
    axes: [Var; 3],
    kernel: [Option<Var>; 2],
}

/// The tensor that a stage reads at each place, and the weight that it is multiplied by, if there
/// is one; reductions of one place are left out.
fn read_by(w: &Workload, s: &Stage) -> Option<(Place, Option<Place>)> {
    let is_single = |v: Var| {
        let i = v.0 as usize;
        i >= s.axes.len() && s.all_axes().nth(i).is_some_and(|a| a.extent == 1)
    };
    let still = |v: Var| if is_single(v) { Affine::constant(0) } else { Affine::var(v) };
    let place = |e: &Expr| match e {
        Expr::Load { source, index } => {
            Some((*source, index.iter().map(|a| a.map_vars(still)).collect::<Vec<_>>()))
        }
        _ => None,
    };
    let Expr::Binary(Binary::Mul, a, b) = &s.body else { return Some((place(&s.body)?, None)) };
    let (a, b) = (place(a)?, place(b)?);
    let is_weight =
        |p: &Place| w.inputs.get(p.0.0 as usize).is_some_and(|i| i.kind == TensorKind::Weight);
    match (is_weight(&a), is_weight(&b)) {
        (false, true) => Some((a, Some(b))),
        (true, false) => Some((b, Some(a))),
        _ => None,
    }
}

/// The data and the weight of a sum of products.
fn factors(w: &Workload, s: &Stage) -> Option<(Place, Place)> {
    let is_sum = s.reduction.as_ref().is_some_and(|r| r.op == Reducer::Sum);
    let (data, weight) = read_by(w, s).filter(|_| is_sum)?;
    Some((data, weight?))
}

/// The reductions of a stage that have several places.
fn reductions(s: &Stage) -> Vec<(Var, i64)> {
    let first = s.axes.len();
    let all = s.reduce_axes().iter().enumerate();
    all.map(|(i, a)| (Var((first + i) as u32), a.extent)).filter(|r| r.1 > 1).collect()
}

impl Windows {
    /// All ways to see a stage so: where nothing is multiplied, each dimension may be the channels.
    fn all(w: &Workload, s: &Stage) -> Vec<Windows> {
        let Some((data, weight)) = read_by(w, s) else { return Vec::new() };
        let reads = |v: Var| weight.as_ref().is_none_or(|p| p.1.iter().any(|a| a.uses(v)));
        let of_channels = |d: &usize| {
            let axis = data.1[*d].as_var().filter(|v| (v.0 as usize) < s.axes.len());
            axis.is_some_and(reads)
        };
        let dims = (0..data.1.len()).filter(of_channels);
        let dims = dims.take(if weight.is_some() { 1 } else { usize::MAX });
        dims.filter_map(|d| Windows::of(w, s, &data, weight.as_ref(), d)).collect()
    }

    fn of(
        w: &Workload,
        s: &Stage,
        data: &Place,
        weight: Option<&Place>,
        channel: usize,
    ) -> Option<Windows> {
        let is_axis = |v: &Var| (v.0 as usize) < s.axes.len();
        let axis = |a: &Affine| a.as_var().filter(is_axis);
        let sums = reductions(s);
        let others: Vec<usize> = (0..data.1.len()).filter(|&d| d != channel).collect();
        let (shared, spatial) = others.split_at(others.len().checked_sub(2)?);
        let spatial = [spatial[0], spatial[1]];
        let along = |d: usize| {
            let a = &data.1[d];
            let terms = |is: bool| {
                a.terms().iter().filter(|t| is_axis(&t.0) == is).copied().collect::<Vec<_>>()
            };
            let [(p, stride)] = terms(true)[..] else { return None };
            let (kernel, dilation) = match terms(false)[..] {
                [] => (None, 1),
                [(r, dilation)] => (Some(r), dilation),
                _ => return None,
            };
            let places = sums.iter().find(|s| Some(s.0) == kernel).map_or(1, |s| s.1);
            let outputs = s.axes[p.0 as usize].extent;
            let (stride, dilation) = (stride.max(0), dilation.max(0));
            let offset = a.offset();
            let window = SlidingWindow { outputs, kernel: places, stride, dilation, offset };
            (stride > 0 && dilation > 0 && offset >= 0).then_some((p, kernel, window))
        };
        let [rows, columns] = [along(spatial[0])?, along(spatial[1])?];
        let kernel = [rows.1, columns.1];
        let axes = [axis(&data.1[channel])?, rows.0, columns.0];
        let reads = |v: Var| weight.is_some_and(|p| p.1.iter().any(|a| a.uses(v)));
        let are_shared = shared.iter().all(|&d| axis(&data.1[d]).is_some_and(|v| !reads(v)));
        let all = shared.iter().filter_map(|&d| axis(&data.1[d])).chain(axes);
        let fits_weight = weight.iter().flat_map(|p| &p.1).all(|a| match a.as_var() {
            Some(v) => v == axes[0] || kernel.contains(&Some(v)),
            None => a.as_constant().is_some(),
        });
        let shape = w.shape_of(data.0);
        let is_as_long =
            |&d: &usize| axis(&data.1[d]).is_some_and(|v| s.axes[v.0 as usize].extent == shape[d]);
        let is_whole = !sums.is_empty()
            && shared.iter().chain([&channel]).all(is_as_long)
            && sums.iter().all(|r| kernel.contains(&Some(r.0)))
            && (kernel[0].is_none() || kernel[0] != kernel[1])
            && all.collect::<HashSet<Var>>().len() == s.axes.len()
            && data.1.len() == s.axes.len();
        (are_shared && fits_weight && is_whole).then_some(Windows {
            windows: [rows.2, columns.2],
            data: data.clone(),
            op: s.reduction.as_ref()?.op,
            weight: weight.cloned(),
            channel,
            shared: shared.to_vec(),
            spatial,
            axes,
            kernel,
        })
    }
}

/// The value of a tensor at a place, with stages between written out, down to `kept`; none where
/// it reads another sum, or too much.
fn expanded(w: &Workload, of: Source, at: &[Affine], kept: Option<Source>) -> Option<Expr> {
    written_out(w, of, at, &|s| Some(s) == kept)
}

/// The only place at which an expression reads a tensor.
fn read_at(e: &Expr, s: Source) -> Option<Vec<Affine>> {
    let mut places = e.loads().into_iter().filter(|l| l.0 == s).map(|l| l.1.to_vec());
    let first = places.next()?;
    places.all(|p| p == first).then_some(first)
}

/// The expression with loads of a sum without indices.
fn unplaced(e: &Expr, s: Option<Source>) -> Expr {
    e.rewrite(&mut Affine::clone, &mut |e| match e {
        Expr::Load { source, .. } if Some(source) == s => Expr::load(source, Vec::new()),
        e => e,
    })
}

/// What a workload of floats computes, if it is a [`Separable`].
pub fn find(w: &Workload) -> Option<Separable> {
    let is_sum = |i: &usize| w.stages[*i].reduction.is_some();
    let sums: Vec<usize> = (0..w.stages.len()).filter(is_sum).collect();
    let over_windows = |at: usize| {
        let (ahead, behind) = (&sums[..at], &sums[at + 1..]);
        if ahead.len() > 1 || behind.len() > 1 || ahead.len() + behind.len() == 0 {
            return None;
        }
        let all = Windows::all(w, &w.stages[sums[at]]);
        let of = |windows| {
            Finder::around(w, sums[at], &windows).over(&windows, ahead.first(), behind.first())
        };
        all.into_iter().find_map(of)
    };
    let found = (0..sums.len()).find_map(over_windows);
    found.or_else(|| match sums[..] {
        [first, second] => Finder::of_products(w, first)?.products(second),
        _ => None,
    })
}

struct Finder<'a> {
    w: &'a Workload,
    /// The stage of which is made what lies before the result, and what each of its axes is.
    stage: usize,
    roles: Vec<Affine>,
    /// Extents of the axes that all operators share.
    batch: Vec<i64>,
}

/// A variable of a [`Separable`] with so many shared axes, in their order.
fn var(batch: usize, i: usize) -> Affine {
    Affine::var(Var((batch + i) as u32))
}

impl<'a> Finder<'a> {
    /// The finder around a stage that goes over windows.
    fn around(w: &'a Workload, stage: usize, windows: &Windows) -> Finder<'a> {
        let (shared, data) = (&windows.shared, &windows.data.1);
        let of_axis = |i: usize| {
            let axis = Var(i as u32);
            match windows.axes.iter().position(|a| *a == axis) {
                Some(i) => var(shared.len(), i),
                None => {
                    let is_it = |&d: &usize| data[d].as_var() == Some(axis);
                    Affine::var(Var(shared.iter().position(is_it).unwrap_or(0) as u32))
                }
            }
        };
        let roles = (0..w.stages[stage].axes.len()).map(of_axis).collect();
        let shape = w.shape_of(windows.data.0);
        Finder { w, stage, roles, batch: shared.iter().map(|&d| shape[d]).collect() }
    }

    /// The finder around a product whose axes, but for its own channels, are places: the last are
    /// rows and columns.
    fn of_products(w: &'a Workload, stage: usize) -> Option<Finder<'a>> {
        let s = &w.stages[stage];
        let p = product(w, s)?;
        let places: Vec<Var> =
            (0..s.axes.len() as u32).map(Var).filter(|v| *v != p.channel).collect();
        let shared = places.len().saturating_sub(2);
        let column = places.len().checked_sub(1)?;
        let of_axis = |i: usize| match places.iter().position(|v| v.0 as usize == i) {
            None => var(shared, 0),
            Some(k) if k == column => var(shared, 2),
            Some(k) if k + 1 == column => var(shared, 1),
            Some(k) => Affine::var(Var(k as u32)),
        };
        let roles = (0..s.axes.len()).map(of_axis).collect();
        let extent = |v: &Var| s.axes[v.0 as usize].extent;
        Some(Finder { w, stage, roles, batch: places[..shared].iter().map(extent).collect() })
    }

    fn var(&self, i: usize) -> Affine {
        var(self.batch.len(), i)
    }

    /// What each dimension of a tensor is that is made of a sum elementwise: `roles` says it of the
    /// sum's axes. With the tensor's value, in which the sum is read without indices.
    fn made_of(&self, of: Source, sum: usize, roles: &[Affine]) -> Option<(Vec<Affine>, Expr)> {
        let (w, source) = (self.w, self.w.stage_source(sum));
        let shape = w.shape_of(of);
        let own: Vec<Affine> = (0..shape.len()).map(|d| Affine::var(Var(d as u32))).collect();
        let value = expanded(w, of, &own, Some(source))?;
        let at = read_at(&value, source)?;
        let mut dims = vec![None; shape.len()];
        for ((a, axis), role) in at.iter().zip(&w.stages[sum].axes).zip(roles) {
            let d = a.as_var()?.0 as usize;
            if shape[d] != axis.extent || dims[d].replace(role.clone()).is_some() {
                return None;
            }
        }
        let dims = dims.into_iter().collect::<Option<Vec<Affine>>>()?;
        let value = value.map_vars(|v| dims[v.0 as usize].clone());
        Some((dims, unplaced(&value, Some(source))))
    }

    /// The whole, where the stage goes over windows between the product ahead and the one behind,
    /// of which there is one.
    fn over(
        &self,
        windows: &Windows,
        ahead: Option<&usize>,
        behind: Option<&usize>,
    ) -> Option<Separable> {
        let (w, sum) = (self.w, self.w.stage_source(self.stage));
        let (expand, patch, inside) = self.patch(windows, ahead.copied())?;
        let by = |v: Var| match windows.kernel.iter().position(|k| *k == Some(v)) {
            Some(i) => self.var(4 + i),
            None => self.var(0),
        };
        let weight = windows.weight.as_ref();
        let weight = weight.map(|p| (p.0, p.1.iter().map(|a| a.map_vars(by)).collect()));
        let over = Some(OverWindows { sum, op: windows.op, weight });
        let channels = w.shape_of(windows.data.0)[windows.channel];
        let windows = windows.windows.clone();
        let made = Separable { expand, patch, inside, over, ..self.empty(windows, channels) };
        let Some(&b) = behind else {
            let last = w.stage_source(w.stages.len() - 1);
            let (place, result) = self.made_of(last, self.stage, &self.roles)?;
            return Some(Separable { middle: result.clone(), result, place, ..made });
        };
        self.with_product(b, made)
    }

    /// The whole, where a product alone lies behind the stage's own product.
    fn products(&self, behind: usize) -> Option<Separable> {
        let w = self.w;
        let s = &w.stages[self.stage];
        let p = product(w, s)?;
        let roles = |v: Var| self.roles[v.0 as usize].clone();
        let outputs = |i: usize| {
            let of = self.roles.iter().position(|r| *r == self.var(i));
            of.map_or(1, |a| s.axes[a].extent)
        };
        let window = |i| {
            let [kernel, stride, dilation] = [1; 3];
            SlidingWindow { outputs: outputs(i), kernel, stride, dilation, offset: 0 }
        };
        let channels = s.axes[p.channel.0 as usize].extent;
        let made = self.empty([window(1), window(2)], channels);
        let (product, data) = self.first(&p, self.stage, &roles)?;
        self.is_within(&product, &data, &made).then_some(())?;
        let expand = Some((product, data));
        let made = self.with_product(behind, Separable { expand, ..made })?;
        Some(Separable { patch: made.middle.clone(), ..made })
    }

    /// A normal form of which nothing but the places is known.
    fn empty(&self, windows: [SlidingWindow; 2], channels: i64) -> Separable {
        let none = || Expr::Const(0.0);
        Separable {
            batch: self.batch.clone(),
            channels,
            outputs: 0,
            windows,
            expand: None,
            inside: Vec::new(),
            patch: none(),
            over: None,
            middle: none(),
            project: None,
            result: none(),
            place: Vec::new(),
        }
    }

    /// What the windows are over: the product that makes it, if one does, with what that reads, its
    /// value, and where it is none of the border.
    fn patch(
        &self,
        windows: &Windows,
        ahead: Option<usize>,
    ) -> Option<(Option<First>, Expr, Vec<Cond>)> {
        let w = self.w;
        let data = &windows.data;
        let mut roles = vec![Affine::default(); data.1.len()];
        for (i, &d) in windows.shared.iter().enumerate() {
            roles[d] = Affine::var(Var(i as u32));
        }
        roles[windows.channel] = self.var(0);
        windows.spatial.iter().enumerate().for_each(|(i, &d)| roles[d] = self.var(1 + i));
        let sum = ahead.map(|a| w.stage_source(a));
        let value = expanded(w, data.0, &roles, sum)?;
        let inside = match &value {
            Expr::Select { conds, other, .. } if matches!(**other, Expr::Const(_)) => conds.clone(),
            _ => Vec::new(),
        };
        let Some(a) = ahead else { return Some((None, value, inside)) };
        let at = read_at(&value, w.stage_source(a))?;
        // A place is where the element lies, or moved by a border; channels are not.
        let is_place = |p: &Affine| matches!(p.terms(), [(_, 1)]);
        let p = product(w, &w.stages[a])?;
        if at[p.channel.0 as usize] != self.var(0) || !at.iter().all(is_place) {
            return None;
        }
        let (product, read) = self.first(&p, a, &|v| at[v.0 as usize].clone())?;
        let places = Separable {
            inside: inside.clone(),
            ..self.empty(windows.windows.clone(), w.shape_of(data.0)[windows.channel])
        };
        self.is_within(&product, &read, &places).then_some(())?;
        Some((Some((product, read)), unplaced(&value, sum), inside))
    }

    /// The first product, whose axes lie `at` these places, with what it reads, of inputs alone.
    fn first(&self, p: &Product, stage: usize, at: &dyn Fn(Var) -> Affine) -> Option<First> {
        let w = self.w;
        let there = |v: Var| match p.sums.iter().position(|s| s.0 == v) {
            Some(i) => self.var(6 + i),
            None => at(v),
        };
        let mapped = |p: &Place| p.1.iter().map(|x| x.map_vars(there)).collect::<Vec<_>>();
        let data = expanded(w, p.data.0, &mapped(&p.data), None)?;
        let channel = self.var(0).as_var()?;
        let mut varies = false;
        data.map_vars(|v| {
            varies |= v == channel;
            Affine::var(v)
        });
        let product = PlaceProduct {
            sum: w.stage_source(stage),
            extents: p.sums.iter().map(|s| s.1).collect(),
            weight: (p.weight.0, mapped(&p.weight)),
        };
        (!varies).then_some((product, data))
    }

    /// Whether what the first product reads, where no border is, lies within its inputs at all
    /// places that the windows read.
    fn is_within(&self, product: &PlaceProduct, data: &Expr, of: &Separable) -> bool {
        let mut ranges: Vec<Option<(i64, i64)>> =
            of.batch.iter().map(|e| Some((0, e - 1))).collect();
        ranges.push(None);
        let of_windows = |w: &SlidingWindow| Some((w.offset, w.offset + w.read(w.outputs) - 1));
        ranges.extend(of.windows.iter().map(of_windows));
        // The result's channels and the windows' own places are no part of it.
        ranges.extend([None; 3]);
        ranges.extend(product.extents.iter().map(|e| Some((0, e - 1))));
        for c in &of.inside {
            // Of a test of one variable the range is known.
            let [(v, 1)] = c.index.terms() else { continue };
            let Some(Some(r)) = ranges.get_mut(v.0 as usize) else { continue };
            let (low, high) = (c.low - c.index.offset(), c.high - 1 - c.index.offset());
            *r = (r.0.max(low), r.1.min(high));
        }
        let range = |v: Var| ranges.get(v.0 as usize).copied().flatten();
        let is_known = |c: &Cond| c.index.terms().iter().all(|t| range(t.0).is_some());
        of.inside.iter().all(is_known) && reads_within(self.w, data, &of.inside, &range)
    }

    /// What is known, with the product behind, of which the result is made.
    fn with_product(&self, b: usize, made: Separable) -> Option<Separable> {
        let w = self.w;
        let (project, middle, roles) = self.project(b)?;
        let last = w.stage_source(w.stages.len() - 1);
        let (place, result) = self.made_of(last, b, &roles)?;
        let outputs = place.iter().position(|a| *a == self.var(3));
        let outputs = outputs.map_or(0, |d| w.output().axes[d].extent);
        Some(Separable { middle, project: Some(project), result, place, outputs, ..made })
    }

    /// The product behind: what it reads of the stage's sum, and what its axes are.
    fn project(&self, b: usize) -> Option<(PlaceProduct, Expr, Vec<Affine>)> {
        let w = self.w;
        let s = &w.stages[b];
        let p = product(w, s)?;
        let [(input, depth)] = p.sums[..] else { return None };
        let (dims, middle) = self.made_of(p.data.0, self.stage, &self.roles)?;
        let mut axes = vec![None; s.axes.len()];
        for (d, a) in p.data.1.iter().enumerate() {
            let v = a.as_var()?;
            let extent = w.shape_of(p.data.0)[d];
            if v == input {
                if dims[d] != self.var(0) || extent != depth {
                    return None;
                }
                continue;
            }
            let i = v.0 as usize;
            if s.axes[i].extent != extent || axes[i].replace(dims[d].clone()).is_some() {
                return None;
            }
        }
        axes[p.channel.0 as usize] = Some(self.var(3));
        let axes = axes.into_iter().collect::<Option<Vec<Affine>>>()?;
        let there = |v: Var| if v == input { self.var(0) } else { axes[v.0 as usize].clone() };
        let weight = p.weight.1.iter().map(|x| x.map_vars(there)).collect();
        let sum = w.stage_source(b);
        Some((
            PlaceProduct { sum, extents: vec![depth], weight: (p.weight.0, weight) },
            middle,
            axes,
        ))
    }
}

/// Whether all that an expression reads lies within its tensors where these tests hold.
fn reads_within(
    w: &Workload,
    e: &Expr,
    conds: &[Cond],
    range: &dyn Fn(Var) -> Option<(i64, i64)>,
) -> bool {
    let fits = |(a, extent): (&Affine, i64)| {
        let (mut low, mut high) = (a.offset(), a.offset());
        for (v, c) in a.terms() {
            let Some((first, last)) = range(*v).filter(|_| *c > 0) else { return false };
            (low, high) = (low + c * first, high + c * last);
        }
        for c in conds.iter().filter(|c| c.index.terms() == a.terms()) {
            let shift = a.offset() - c.index.offset();
            (low, high) = (low.max(c.low + shift), high.min(c.high - 1 + shift));
        }
        low >= 0 && high < extent
    };
    let within = |e: &Expr| reads_within(w, e, conds, range);
    match e {
        Expr::Load { source, index } => {
            let shape = w.shape_of(*source);
            (source.0 as usize) < w.inputs.len() && index.iter().zip(shape).all(fits)
        }
        Expr::Select { conds: more, then, other } => {
            let all: Vec<Cond> = conds.iter().chain(more).cloned().collect();
            reads_within(w, then, &all, range) && within(other)
        }
        Expr::Unary(_, a) | Expr::Cast(_, a) => within(a),
        Expr::Binary(_, a, b) => within(a) && within(b),
        Expr::Const(_) => true,
    }
}

/// A sum of products of data and a weight.
struct Product {
    /// The axis of its own channels, along which the weight lies and the data does not.
    channel: Var,
    data: Place,
    weight: Place,
    /// What it sums over, with extents.
    sums: Vec<(Var, i64)>,
}

/// How a stage is a product at each place: the data lies along all axes but one, and the weight
/// along that one and what is summed over.
fn product(w: &Workload, s: &Stage) -> Option<Product> {
    let (data, weight) = factors(w, s)?;
    let sums = reductions(s);
    let uses = |p: &Place, v: Var| p.1.iter().any(|a| a.uses(v));
    let own: Vec<Var> = (0..s.axes.len() as u32).map(Var).filter(|v| !uses(&data, *v)).collect();
    let [channel] = own[..] else { return None };
    let fits_weight = weight.1.iter().all(|a| match a.as_var() {
        Some(v) => v == channel || sums.iter().any(|s| s.0 == v),
        None => a.as_constant().is_some(),
    });
    let is_read = sums.iter().all(|s| uses(&data, s.0) && uses(&weight, s.0));
    let is_product = fits_weight && is_read && uses(&weight, channel) && !sums.is_empty();
    is_product.then_some(Product { channel, data, weight, sums })
}
