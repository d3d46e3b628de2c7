//! Rewrites a workload (a kernel's tensor expression) for tensors that do not lie in memory as the
//! model has them: images with their channels last, or values inside the memory of another value
//! (`site.rs`). The computation stays the same: the axes of inputs and stages are split and
//! reordered, all accesses with them; memory between the elements is described by a larger box
//! (`Workload::rooms`).
//!
//! Input: a workload and where each of its tensors lies ([`Lies`]); output: a workload, or `None`
//! where axes cannot be arranged so. Assignments derive the tasks of kernels with it.

use crate::layout::Image;
use crate::site::{Factor, Site};
use crate::split::split;
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::workload::{Stage, Workload};
use std::collections::HashMap;

/// The order of the dimensions of `shape` in which those of the channels come last, where `shape`
/// holds images in their usual order; `None` where no dimensions are exactly the channels, as where
/// one dimension runs over channels and rows.
fn channels_last(shape: &[i64], [n, c, h, w]: Image) -> Option<Vec<usize>> {
    let mut at = 0;
    // Dimensions from `at` on that together are `extent`.
    let mut take = |extent: i64, ones: bool| {
        let (from, mut product) = (at, 1);
        while at < shape.len() && (product < extent || (ones && shape[at] == 1)) {
            product *= shape[at];
            at += 1;
        }
        (product == extent).then_some(from..at)
    };
    let (images, channels, places) = (take(n, true)?, take(c, false)?, take(h * w, true)?);
    (places.end == shape.len()).then(|| images.chain(places).chain(channels).collect())
}

/// How a tensor of a workload lies in memory.
#[derive(Clone, Copy, Debug)]
pub enum Lies<'a> {
    /// As the model has it.
    Model,
    /// With its channels last.
    ChannelsLast(Image),
    /// In the memory of another value.
    At(&'a Site),
}

impl Lies<'_> {
    /// The dimensions of a tensor of this shape in the order in which they lie, and the box in
    /// memory that they are a corner of; `Some(None)` where the tensor lies as in the model.
    fn arranged(&self, shape: &[i64]) -> Option<Option<Arranged>> {
        match self {
            Lies::Model => Some(None),
            Lies::ChannelsLast(image) => {
                let order = channels_last(shape, *image)?;
                Some(Some(Arranged { room: moved(shape, &order), order }))
            }
            Lies::At(site) => arranged(shape, &site.factors()).map(Some),
        }
    }
}

/// Dimensions in their order in memory, and the extents of the box that they are a corner of.
struct Arranged {
    order: Vec<usize>,
    room: Vec<i64>,
}

/// How the dimensions of a shape lie whose elements have these factors; `None` where a dimension
/// has several factors, or where the elements are no corner of a box.
fn arranged(shape: &[i64], factors: &[Factor]) -> Option<Arranged> {
    let parts = refined(shape, factors)?;
    if parts.iter().any(|p| p.len() > 1) {
        return None;
    }
    let stride = |d: usize| parts[d].first().map(|f| f.stride);
    let mut order: Vec<usize> = (0..shape.len()).collect();
    // Dimensions of one place come first: they are no part of the box.
    order.sort_by_key(|&d| (stride(d).is_some(), stride(d).map(std::cmp::Reverse)));
    let mut room = vec![1; shape.len()];
    let mut outer: Option<i64> = None;
    for (i, &d) in order.iter().enumerate() {
        let Some(own) = stride(d) else { continue };
        room[i] = match outer {
            None => shape[d],
            Some(outer) if outer % own == 0 && outer / own >= shape[d] => outer / own,
            Some(_) => return None,
        };
        outer = Some(own);
    }
    // Neighbours that lie apart are rows of one place each: a dimension of one place comes last.
    if let Some(apart @ 2..) = outer {
        let single = order.iter().rposition(|&d| stride(d).is_none())?;
        let last = order.remove(single);
        room.remove(single);
        order.push(last);
        room.push(apart);
    }
    Some(Arranged { order, room })
}

/// The factors of each dimension of a shape.
fn refined(shape: &[i64], factors: &[Factor]) -> Option<Vec<Vec<Factor>>> {
    let dims = vec![factors.to_vec()];
    let flat = Site { host: 0, offset: 0, dims };
    Some(flat.reshaped(shape)?.dims)
}

/// The workload with the dimensions of a tensor cut where its site needs that.
fn cut(w: Workload, source: Source, lies: Lies<'_>) -> Option<Workload> {
    let Lies::At(site) = lies else { return Some(w) };
    let parts = refined(&w.shape_of(source), &site.factors())?;
    let mut several = parts.iter().enumerate().rev().filter(|(_, p)| p.len() > 1);
    several.try_fold(w, |w, (dim, factors)| {
        let extents: Vec<i64> = factors.iter().map(|f| f.extent).collect();
        split(&w, source, dim, &extents)
    })
}

/// The workload where inputs and the output lie so. Stages between follow the tensor whose elements
/// they copy or are copied to.
pub fn rewrite(w: &Workload, inputs: &[Lies<'_>], output: Lies<'_>) -> Option<Workload> {
    if w.foreign.is_some() || !w.rooms.is_empty() || inputs.len() != w.inputs.len() {
        return None;
    }
    let last = w.stages.len() - 1;
    let result = w.stage_source(last);
    let tensors = inputs.iter().enumerate().map(|(i, l)| (Source(i as u32), *l));
    let mut w = tensors
        .chain([(result, output)])
        .try_fold(w.clone(), |w, (source, lies)| cut(w, source, lies))?;
    // For each source in another order, its old dimensions in their new order.
    let mut orders: HashMap<Source, Vec<usize>> = HashMap::new();
    for (i, lies) in inputs.iter().enumerate() {
        let arranged = match (lies, lies.arranged(&w.inputs[i].shape)) {
            // An image of which all elements are summed, in whatever order.
            (Lies::ChannelsLast(_), None) if is_read_whole(&w, Source(i as u32)) => None,
            (_, arranged) => arranged?,
        };
        if let Some(Arranged { order, room }) = arranged {
            let input = &mut w.inputs[i];
            input.shape = moved(&input.shape, &order);
            if room != input.shape {
                w.rooms.insert(input.name.clone(), room);
            }
            orders.insert(Source(i as u32), order);
        }
    }
    let mut of_output = None;
    if let Some(Arranged { order, room }) = output.arranged(&w.stages[last].shape())? {
        if room != moved(&w.stages[last].shape(), &order) {
            w.rooms.insert(w.stages[last].name.clone(), room);
        }
        of_output = Some(order);
    }
    for i in 0..w.stages.len() {
        let order = match i == last {
            true => of_output.clone(),
            false => copied(&w.stages[i], &orders)
                .or_else(|| read_alike(&w, i).then(|| of_output.clone()).flatten()),
        };
        let source = w.stage_source(i);
        let stage = &mut w.stages[i];
        let spatial = stage.axes.len();
        let renamed = |v: Var| match &order {
            Some(o) if (v.0 as usize) < spatial => {
                Var(o.iter().position(|&d| d == v.0 as usize).unwrap_or(0) as u32)
            }
            _ => v,
        };
        let mut affine = |a: &Affine| a.map_vars(|v| Affine::var(renamed(v)));
        stage.body = stage.body.rewrite(&mut affine, &mut |e| match e {
            Expr::Load { source, index } if orders.contains_key(&source) => {
                Expr::Load { index: moved(&index, &orders[&source]), source }
            }
            e => e,
        });
        if let Some(order) = order {
            stage.axes = moved(&stage.axes, &order);
            orders.insert(source, order);
        }
    }
    w.check().ok()?;
    Some(w)
}

fn moved<T: Clone>(list: &[T], order: &[usize]) -> Vec<T> {
    order.iter().map(|&i| list[i].clone()).collect()
}

/// The order of a stage that hands on a tensor with its axes, as padding does: the tensor's.
/// Several tensors, as parts of a whole, have one order or none.
fn copied(s: &Stage, orders: &HashMap<Source, Vec<usize>>) -> Option<Vec<usize>> {
    let alike = |(i, a): (usize, &Affine)| matches!(a.terms(), [(v, 1)] if v.0 as usize == i);
    let along =
        |index: &[Affine]| index.len() == s.axes.len() && index.iter().enumerate().all(alike);
    let loads = s.body.loads();
    // Beside the tensors, steps ahead of an operator read factors and addends of their channels.
    let whole = loads.iter().filter(|(_, index)| along(index));
    let mut known = whole.map(|(source, _)| orders.get(source));
    let first = known.next().flatten()?;
    let is_one = s.reduction.is_none() && known.all(|o| o == Some(first));
    is_one.then(|| first.clone())
}

/// Whether a tensor is only read by reductions over all of its elements that read nothing else, so
/// that the elements' order does not matter.
fn is_read_whole(w: &Workload, source: Source) -> bool {
    let shape = w.shape_of(source);
    let reads = |s: &&Stage| s.body.loads().iter().any(|(of, _)| *of == source);
    w.stages.iter().filter(reads).all(|s| {
        let [(_, index)] = s.body.loads()[..] else { return false };
        let mut seen = Vec::new();
        let all = index.iter().zip(&shape).filter(|(_, extent)| **extent > 1).all(|(a, extent)| {
            let axis = a.as_var().and_then(|v| {
                let reduced = (v.0 as usize).checked_sub(s.axes.len())?;
                s.reduction.as_ref()?.axes.get(reduced)
            });
            let is_new = a.as_var().is_some_and(|v| !seen.contains(&v));
            seen.extend(a.as_var());
            is_new && axis.is_some_and(|axis| axis.extent == *extent)
        });
        all && seen.len() == s.reduction.as_ref().map_or(0, |r| r.axes.len())
    })
}

/// Whether the output is elementwise in a stage.
fn read_alike(w: &Workload, stage: usize) -> bool {
    let (source, y) = (w.stage_source(stage), w.output());
    let loads = y.body.loads();
    let mut of_stage = loads.iter().filter(|(s, _)| *s == source).peekable();
    let alike = |index: &[Affine]| {
        index.len() == y.axes.len()
            && index.iter().enumerate().all(|(i, a)| a.as_var() == Some(Var(i as u32)))
    };
    of_stage.peek().is_some() && y.reduction.is_none() && of_stage.all(|(_, index)| alike(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sums_all_of_an_image_reads_it_in_any_order() {
        let image = Lies::ChannelsLast([1, 4, 5, 6]);
        let whole = "workload reduce\ndata X: f32[1, 120]\nstage Y: f32[i: 1] = max(j: 120) X[i, \
                     j]\noutput Y";
        let whole = Workload::parse(whole).unwrap();
        assert_eq!(rewrite(&whole, &[image], Lies::Model), Some(whole));
        // A part of each row, or with a number for each place.
        for other in [
            "workload reduce\ndata X: f32[2, 60]\nstage Y: f32[i: 2] = max(j: 60) X[i, j]\noutput \
             Y",
            "workload reduce\ndata X: f32[1, 120]\ndata R: f32[120]\nstage Y: f32[i: 1] = sum(j: \
             120) X[i, j] * R[j]\noutput Y",
        ] {
            let w = Workload::parse(other).unwrap();
            let lies: Vec<Lies<'_>> =
                w.inputs.iter().map(|i| if i.name == "X" { image } else { Lies::Model }).collect();
            assert_eq!(rewrite(&w, &lies, Lies::Model), None);
        }
    }

    #[test]
    fn groups_of_dimensions_are_found() {
        assert_eq!(channels_last(&[1, 64, 7, 5], [1, 64, 7, 5]), Some(vec![0, 2, 3, 1]));
        assert_eq!(channels_last(&[2, 4, 16, 7, 5], [2, 64, 7, 5]), Some(vec![0, 3, 4, 1, 2]));
        assert_eq!(channels_last(&[64, 35], [1, 64, 7, 5]), Some(vec![1, 0]));
        assert_eq!(channels_last(&[3, 2, 1, 4], [3, 2, 1, 4]), Some(vec![0, 2, 3, 1]));
        // One dimension runs over channels and places.
        assert_eq!(channels_last(&[2240], [1, 64, 7, 5]), None);
        assert_eq!(channels_last(&[64 * 7, 5], [1, 64, 7, 5]), None);
        assert_eq!(channels_last(&[1, 64, 7], [1, 64, 7, 5]), None);
    }
}
