//! Finds the normal form of a workload: which stages are the sums, how their tensors are read, and
//! what is made of them on the way.

use super::{Place, Pointwise, Separable, SlidingWindow};
use crate::TensorKind;
use crate::expr::{Affine, Binary, Cond, Expr, Source, Var};
use crate::workload::{Stage, Workload};
use std::collections::HashSet;

/// Workloads of more stages than these are of another form, and expressions in which so many loads
/// are written out, too.
pub const MOST_STAGES: usize = 32;
const MOST_LOADS: u32 = 1024;

/// How a stage that sums over windows reads what they are over.
pub struct Windows {
    data: Place,
    weight: Place,
    /// Of the data: the dimension of channels, those of rows and columns, and those that all
    /// operators share.
    channel: usize,
    spatial: [usize; 2],
    shared: Vec<usize>,
    windows: [SlidingWindow; 2],
    /// The axes of the stage that are channels, rows and columns, and the reductions of rows and
    /// columns where there are several places.
    axes: [Var; 3],
    kernel: [Option<Var>; 2],
}

/// The data and the weight that a sum multiplies; reductions of one place are left out.
fn factors(w: &Workload, s: &Stage) -> Option<(Place, Place)> {
    let Expr::Binary(Binary::Mul, a, b) = &s.body else { return None };
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
    let (a, b) = (place(a)?, place(b)?);
    let is_weight =
        |p: &Place| w.inputs.get(p.0.0 as usize).is_some_and(|i| i.kind == TensorKind::Weight);
    match (is_weight(&a), is_weight(&b)) {
        (false, true) => Some((a, b)),
        (true, false) => Some((b, a)),
        _ => None,
    }
}

/// The reductions of a stage that have several places.
fn reductions(s: &Stage) -> Vec<(Var, i64)> {
    let first = s.axes.len();
    let all = s.reduce_axes().iter().enumerate();
    all.map(|(i, a)| (Var((first + i) as u32), a.extent)).filter(|r| r.1 > 1).collect()
}

impl Windows {
    pub fn of(w: &Workload, s: &Stage) -> Option<Windows> {
        let (data, weight) = factors(w, s)?;
        let is_axis = |v: &Var| (v.0 as usize) < s.axes.len();
        let axis = |a: &Affine| a.as_var().filter(is_axis);
        let sums = reductions(s);
        let reads = |v: Var| weight.1.iter().any(|a| a.uses(v));
        let channel = data.1.iter().position(|a| axis(a).is_some_and(reads))?;
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
        let are_shared = shared.iter().all(|&d| axis(&data.1[d]).is_some_and(|v| !reads(v)));
        let all = shared.iter().filter_map(|&d| axis(&data.1[d])).chain(axes);
        let fits_weight = weight.1.iter().all(|a| match a.as_var() {
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
            data,
            weight,
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
    let mut left = MOST_LOADS;
    written_out(w, (of, at), kept, &mut left)
}

/// The same, where so many loads may be left.
fn written_out(
    w: &Workload,
    (of, at): (Source, &[Affine]),
    kept: Option<Source>,
    left: &mut u32,
) -> Option<Expr> {
    *left = left.checked_sub(1)?;
    let stage = match w.stage_of(of) {
        Some(s) if Some(of) != kept => s,
        _ => return Some(Expr::load(of, at.to_vec())),
    };
    if stage.reduction.is_some() {
        return None;
    }
    let mut is_known = true;
    let mut there = |a: &Affine| a.map_vars(|v| at[v.0 as usize].clone());
    let made = stage.body.rewrite(&mut there, &mut |e| match &e {
        Expr::Load { source, index } if is_known => written_out(w, (*source, index), kept, left)
            .unwrap_or_else(|| {
                is_known = false;
                e.clone()
            }),
        _ => e,
    });
    is_known.then_some(made)
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

pub struct Finder<'a> {
    pub w: &'a Workload,
    /// The depthwise convolution.
    pub stage: usize,
    pub windows: Windows,
}

impl Finder<'_> {
    /// The variables of a [`Separable`], in their order.
    fn var(&self, i: usize) -> Affine {
        Affine::var(Var((self.windows.shared.len() + i) as u32))
    }

    /// What each axis of the depthwise convolution is.
    fn of_axis(&self, axis: Var) -> Affine {
        match self.windows.axes.iter().position(|a| *a == axis) {
            Some(i) => self.var(i),
            None => {
                let shared = &self.windows.shared;
                let is_it = |&d: &usize| self.windows.data.1[d].as_var() == Some(axis);
                let i = shared.iter().position(is_it).unwrap_or(0);
                Affine::var(Var(i as u32))
            }
        }
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

    pub fn find(&self, ahead: Option<usize>, behind: Option<usize>) -> Option<Separable> {
        let w = self.w;
        let s = &w.stages[self.stage];
        let sum = w.stage_source(self.stage);
        let (expand, patch, inside) = self.patch(ahead)?;
        let roles: Vec<Affine> = (0..s.axes.len()).map(|i| self.of_axis(Var(i as u32))).collect();
        let last = w.stage_source(w.stages.len() - 1);
        let (project, middle, (place, result)) = match behind {
            None => {
                let made = self.made_of(last, self.stage, &roles)?;
                (None, made.1.clone(), made)
            }
            Some(b) => {
                let (project, middle, roles) = self.project(b, &roles)?;
                (Some(project), middle, self.made_of(last, b, &roles)?)
            }
        };
        let outputs = place.iter().position(|a| *a == self.var(3));
        let outputs = outputs.map_or(0, |d| w.output().axes[d].extent);
        let shape = w.shape_of(self.windows.data.0);
        let kernel = self.windows.kernel;
        let by = |v: Var| match kernel.iter().position(|k| *k == Some(v)) {
            Some(i) => self.var(5 + i),
            None => self.var(0),
        };
        let weight = self.windows.weight.1.iter().map(|a| a.map_vars(by)).collect();
        Some(Separable {
            batch: self.windows.shared.iter().map(|&d| shape[d]).collect(),
            channels: shape[self.windows.channel],
            outputs,
            windows: self.windows.windows.clone(),
            expand,
            inside,
            patch,
            sum,
            weight: (self.windows.weight.0, weight),
            middle,
            project,
            result,
            place,
        })
    }

    /// What the windows are over: the convolution that makes it, if one does, its value, and where
    /// it is none of the border.
    fn patch(&self, ahead: Option<usize>) -> Option<(Option<Pointwise>, Expr, Vec<Cond>)> {
        let w = self.w;
        let data = &self.windows.data;
        let mut roles = vec![Affine::default(); data.1.len()];
        for (i, &d) in self.windows.shared.iter().enumerate() {
            roles[d] = Affine::var(Var(i as u32));
        }
        roles[self.windows.channel] = self.var(0);
        self.windows.spatial.iter().enumerate().for_each(|(i, &d)| roles[d] = self.var(1 + i));
        let sum = ahead.map(|a| w.stage_source(a));
        let value = expanded(w, data.0, &roles, sum)?;
        let inside = match &value {
            Expr::Select { conds, other, .. } if matches!(**other, Expr::Const(_)) => conds.clone(),
            _ => Vec::new(),
        };
        let Some(a) = ahead else { return Some((None, value, inside)) };
        let s = &w.stages[a];
        let at = read_at(&value, w.stage_source(a))?;
        // A place is where the element lies, or moved by a border; channels are not.
        let channel = self.var(0);
        let is_place = |p: &Affine| matches!(p.terms(), [(_, 1)]);
        let moved = |v: Var| at[v.0 as usize].clone();
        let (own, data, weight, depth) = pointwise(w, s)?;
        let input = reductions(s)[0].0;
        let there = |v: Var| if v == input { self.var(4) } else { moved(v) };
        let mapped = |p: Place| (p.0, p.1.iter().map(|x| x.map_vars(there)).collect::<Vec<_>>());
        let (data, weight) = (mapped(data), mapped(weight));
        let is_input = (data.0.0 as usize) < w.inputs.len();
        let varies = data.1.iter().any(|x| channel.as_var().is_some_and(|c| x.uses(c)));
        if !is_input || varies || at[own.0 as usize] != channel || !at.iter().all(is_place) {
            return None;
        }
        let sum = w.stage_source(a);
        let expand = Pointwise { sum, depth, data, weight };
        self.is_within(&expand, &inside).then_some(())?;
        Some((Some(expand), unplaced(&value, Some(sum)), inside))
    }

    /// Whether what the convolution ahead reads, where no border is, lies within its input at all
    /// places that the windows read.
    fn is_within(&self, e: &Pointwise, inside: &[Cond]) -> bool {
        let shared = &self.windows.shared;
        let shape = self.w.shape_of(self.windows.data.0);
        let range = |v: Var| -> Option<(i64, i64)> {
            let i = v.0 as usize;
            Some(match i.checked_sub(shared.len()) {
                None => (0, shape[shared[i]] - 1),
                Some(k @ 1..=2) => {
                    let w = &self.windows.windows[k - 1];
                    (w.offset, w.offset + w.read(w.outputs) - 1)
                }
                Some(4) => (0, e.depth - 1),
                _ => return None,
            })
        };
        let is_of_place = |c: &Cond| c.index.terms().iter().all(|t| range(t.0).is_some());
        let fits = |(a, extent): (&Affine, i64)| {
            let (mut low, mut high) = (a.offset(), a.offset());
            for (v, c) in a.terms() {
                let Some((first, last)) = range(*v).filter(|_| *c > 0) else { return false };
                (low, high) = (low + c * first, high + c * last);
            }
            for c in inside.iter().filter(|c| c.index.terms() == a.terms()) {
                let shift = a.offset() - c.index.offset();
                (low, high) = (low.max(c.low + shift), high.min(c.high - 1 + shift));
            }
            low >= 0 && high < extent
        };
        let input = self.w.shape_of(e.data.0);
        inside.iter().all(is_of_place) && e.data.1.iter().zip(input).all(fits)
    }

    /// The convolution behind: what it reads of the depthwise one, and what its axes are.
    fn project(&self, b: usize, roles: &[Affine]) -> Option<(Pointwise, Expr, Vec<Affine>)> {
        let w = self.w;
        let s = &w.stages[b];
        let (own, data, weight, depth) = pointwise(w, s)?;
        let (dims, middle) = self.made_of(data.0, self.stage, roles)?;
        let input = reductions(s)[0].0;
        let mut axes = vec![None; s.axes.len()];
        for (d, a) in data.1.iter().enumerate() {
            let v = a.as_var()?;
            let extent = w.shape_of(data.0)[d];
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
        axes[own.0 as usize] = Some(self.var(3));
        let axes = axes.into_iter().collect::<Option<Vec<Affine>>>()?;
        let there = |v: Var| if v == input { self.var(0) } else { axes[v.0 as usize].clone() };
        let mapped = |p: Place| (p.0, p.1.iter().map(|x| x.map_vars(there)).collect::<Vec<_>>());
        let (data, weight) = (mapped(data), mapped(weight));
        let sum = w.stage_source(b);
        Some((Pointwise { sum, depth, data, weight }, middle, axes))
    }
}

/// The axis of a pointwise convolution's own channels, its data, its weight, and how many channels
/// it reads.
fn pointwise(w: &Workload, s: &Stage) -> Option<(Var, Place, Place, i64)> {
    let (data, weight) = factors(w, s)?;
    let [(input, depth)] = reductions(s)[..] else { return None };
    let plain = |a: &Affine| a.as_var();
    let of_data = data.1.iter().map(plain).collect::<Option<HashSet<Var>>>()?;
    let own: Vec<Var> =
        (0..s.axes.len() as u32).map(Var).filter(|v| !of_data.contains(v)).collect();
    let [own] = own[..] else { return None };
    let fits_weight = weight.1.iter().all(|a| match a.as_var() {
        Some(v) => v == own || v == input,
        None => a.as_constant().is_some(),
    });
    let is_whole = of_data.contains(&input) && of_data.len() == data.1.len();
    (fits_weight && is_whole).then_some((own, data, weight, depth))
}
