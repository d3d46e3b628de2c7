//! A workload over images whose channels lie last. Only the order of elements in memory changes:
//! the axes of inputs and stages are put into another order, and every access with them.

use crate::layout::Image;
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::workload::{Stage, Workload};
use std::collections::HashMap;

/// The dimensions of `shape`, which holds images in their usual order, with those of the channels
/// moved to the end; nothing where no dimensions are exactly the channels, such as where one
/// dimension runs over channels and rows.
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

/// The workload where the inputs and the output that are given as images have their channels last.
/// Stages between follow the tensor whose elements they copy or are copied to.
pub fn rewrite(w: &Workload, inputs: &[Option<Image>], output: Option<Image>) -> Option<Workload> {
    if w.foreign.is_some() {
        return None;
    }
    let mut w = w.clone();
    // For each source in another order, its old dimensions in their new order.
    let mut orders: HashMap<Source, Vec<usize>> = HashMap::new();
    for (i, image) in inputs.iter().enumerate() {
        if let Some(image) = image {
            let order = channels_last(&w.inputs.get(i)?.shape, *image)?;
            w.inputs[i].shape = moved(&w.inputs[i].shape, &order);
            orders.insert(Source(i as u32), order);
        }
    }
    let last = w.stages.len() - 1;
    let of_output = output
        .map(|image| channels_last(&w.stages[last].shape(), image))
        .map_or(Some(None), |o| o.map(Some))?;
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

/// The order of a stage that hands on one tensor with its axes, as padding does: the tensor's.
fn copied(s: &Stage, orders: &HashMap<Source, Vec<usize>>) -> Option<Vec<usize>> {
    let loads = s.body.loads();
    let [(source, index)] = loads[..] else { return None };
    let order = orders.get(&source)?;
    let alike = |(i, a): (usize, &Affine)| matches!(a.terms(), [(v, 1)] if v.0 as usize == i);
    let same =
        s.reduction.is_none() && index.len() == s.axes.len() && index.iter().enumerate().all(alike);
    same.then(|| order.clone())
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
