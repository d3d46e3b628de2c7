//! Strided convolutions by phases: with a stride of two, the padded copy of an image stores the
//! even elements of a row side by side and the odd ones behind them. For each tap of the filter a
//! vector of results then loads neighbours, where it would gather every second element; the
//! gathering is done once, when the image is copied.
//!
//! The rewriting is one of the workload (a tensor expression): with stride `t` and tap `s = t * so
//! + si` along a row, the sum reads the copy at `[.., si, q + so]`. Taps behind the filter's last
//! are 0 by a test and are skipped. The sketches are those of `tile` for the rewritten workload;
//! their names end in `,phases`.

use super::factors::{ahead, only_product, put_ahead, readers};
use super::{Facts, Sketch, tile};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Var};
use squall_core::workload::{Axis, Stage};
use squall_core::{TensorKind, Workload};

/// The end of the names of these sketches.
const MARK: &str = ",phases";

/// The sketches whose lanes are results along a row.
pub(super) fn derive(facts: &Facts<'_>) -> Vec<Sketch> {
    let Some((w, lanes)) = by_phases(facts.workload) else { return Vec::new() };
    let named = |name: &str| format!("{name}{MARK}");
    let along = format!("tile@{lanes},pad=");
    // Without a copy each load would gather strided elements, as before the rewriting.
    let is_of_copy = |name: &str| name.starts_with(&along) && !name.contains("guard");
    let wanted = |name: &str| is_of_copy(name) && (facts.wanted)(&named(name));
    let list = tile::derive(&Facts { workload: &w, wanted: &wanted, ..*facts });
    list.into_iter().map(|s| Sketch { name: named(&s.name), ..s }).collect()
}

/// The workload by phases, and the name of the output's axis along a row; `None` where the sum does
/// not multiply a padded copy by a weight, or has no stride along rows.
fn by_phases(w: &Workload) -> Option<(Workload, String)> {
    let (main, x, y) = only_product(w, Binary::Mul)?;
    let stage = &w.stages[main];
    if stage.reduce_axes().iter().map(|a| a.extent).product::<i64>() > tile::MOST_PRODUCTS {
        return None;
    }
    let both = [(x, y), (y, x)];
    let found = both.into_iter().find_map(|(image, filter)| Strided::of(w, main, image, filter));
    let s = found?;
    let rows = stage.axes[s.rows.0 as usize].name.clone();
    s.made(w).map(|made| (made, rows))
}

/// A sum of products that reads a row of a copy at `stride * rows + taps`, and a weight at `taps`.
struct Strided {
    main: usize,
    /// The position of the stage that makes the padded copy.
    copy: usize,
    /// The input of the filter, and its dimension of taps along a row.
    filter: (Source, usize),
    /// The axis of the results along a row, and the axis of the filter along a row.
    rows: Var,
    taps: Var,
    stride: i64,
}

impl Strided {
    fn of(w: &Workload, main: usize, image: &Expr, filter: &Expr) -> Option<Strided> {
        let (Expr::Load { source, index }, Expr::Load { source: weight, index: at }) =
            (image, filter)
        else {
            return None;
        };
        let copy = (source.0 as usize).checked_sub(w.inputs.len())?;
        let (last, outer) = index.split_last()?;
        let results = w.stages[main].axes.len();
        let [(a, of_a), (b, of_b)] = last.terms()[..] else { return None };
        let (rows, taps, stride) = match (of_a, of_b) {
            (stride, 1) if stride > 1 => (a, b, stride),
            (1, stride) if stride > 1 => (b, a, stride),
            _ => return None,
        };
        let uses = |i: &Affine| i.uses(rows) || i.uses(taps);
        let is_weight = w.inputs.get(weight.0 as usize)?.kind == TensorKind::Weight;
        let dim = at.iter().position(|i| i.as_var() == Some(taps))?;
        let is_alone = at.iter().enumerate().all(|(d, i)| d == dim || !uses(i));
        let body = &w.stages[copy].body;
        let is_copy = w.stages[copy].reduction.is_none() && matches!(body, Expr::Select { .. });
        // With a larger stride most phases would have no tap.
        let extent = w.stages[main].reduce_axes().last()?.extent;
        let fits = is_weight
            && stride / 2 <= extent
            && is_alone
            && is_copy
            && last.offset() == 0
            && rows.0 as usize + 1 == results
            && taps.0 as usize + 1 == results + w.stages[main].reduce_axes().len()
            && !outer.iter().any(uses)
            && [*source, *weight].iter().all(|s| readers(w, *s) == 1);
        fits.then_some(Strided { main, copy, filter: (*weight, dim), rows, taps, stride })
    }

    fn made(&self, w: &Workload) -> Option<Workload> {
        let mut made = w.clone();
        let stage = &w.stages[self.main];
        let results = stage.axes[self.rows.0 as usize].extent;
        let taps = stage.reduce_axes().last()?;
        // Steps of the filter by whole strides, the last of which may pass its end.
        let steps = (taps.extent - 1) / self.stride + 1;
        let [outer, inner] = ["o", "i"].map(|part| format!("{}{part}", taps.name));
        let axis = |name: &String, extent| Axis { name: name.clone(), extent };
        let pair = [axis(&outer, steps), axis(&inner, self.stride)];
        self.copy_by_phases(
            &mut made.stages[self.copy],
            [&pair[1], &axis(&outer, results + steps - 1)],
        );
        let filter = self.filter_by_steps(w, &pair);
        // The sum reads both at the step and the phase in the place of the tap.
        let (copy, dim) = (w.stage_source(self.copy), self.filter.1);
        let by_steps = ahead(0);
        let [step, phase] = [self.taps, Var(self.taps.0 + 1)].map(Affine::var);
        let main = &mut made.stages[self.main];
        let axes = &mut main.reduction.as_mut()?.axes;
        axes.pop();
        axes.extend(pair);
        main.body = main.body.rewrite(&mut |a| a.clone(), &mut |e| match e {
            Expr::Load { source, mut index } if source == copy => {
                index.pop();
                index.extend([phase.clone(), Affine::var(self.rows).add(&step)]);
                Expr::Load { source, index }
            }
            Expr::Load { source, mut index } if source == self.filter.0 => {
                index.splice(dim..=dim, [step.clone(), phase.clone()]);
                Expr::Load { source: by_steps, index }
            }
            e => e,
        });
        put_ahead(&mut made, vec![filter]);
        made.check().ok().map(|()| made)
    }

    /// Splits the last axis of a copy in two: the phase, and the place in the phase's elements of a
    /// row.
    fn copy_by_phases(&self, s: &mut Stage, [phase, place]: [&Axis; 2]) {
        let at = s.axes.len() - 1;
        let width = s.axes[at].extent;
        let own = Affine::new([(Var(at as u32), 1), (Var(at as u32 + 1), self.stride)], 0);
        s.axes.truncate(at);
        s.axes.extend([phase.clone(), place.clone()]);
        let to = |v: Var| if v.0 as usize == at { own.clone() } else { Affine::var(v) };
        let mut body = s.body.map_vars(to);
        // Elements that no result reads may lie behind the copy's end.
        if self.stride * place.extent > width
            && let Expr::Select { conds, .. } = &mut body
            && !conds.iter().any(|c| c.index.uses(Var(at as u32)))
        {
            conds.push(Cond { index: own, low: 0, high: width });
        }
        s.body = body;
    }

    /// The filter with its taps along a row by steps of the stride.
    fn filter_by_steps(&self, w: &Workload, [steps, phases]: &[Axis; 2]) -> Stage {
        let (source, dim) = self.filter;
        let input = &w.inputs[source.0 as usize];
        let rank = input.shape.len() as u32;
        let mut axes: Vec<Axis> = (0..rank)
            .zip(&input.shape)
            .map(|(d, &extent)| Axis { name: format!("d{d}"), extent })
            .collect();
        axes.splice(dim..=dim, [steps.clone(), phases.clone()]);
        let at = dim as u32;
        let tap = Affine::new([(Var(at), self.stride), (Var(at + 1), 1)], 0);
        let index = (0..rank).map(|d| match d {
            d if d == at => tap.clone(),
            d => Affine::var(Var(if d > at { d + 1 } else { d })),
        });
        let conds = vec![Cond { index: tap.clone(), low: 0, high: input.shape[dim] }];
        let then = Box::new(Expr::load(source, index.collect()));
        let body = Expr::Select { conds, then, other: Box::new(Expr::Const(0.0)) };
        let name = format!("{}_phases", input.name);
        Stage { name, dtype: input.dtype, axes, reduction: None, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::operator::{Conv, Epilogue};

    fn conv(stride: [i64; 2], r: i64, pads: [i64; 4], groups: i64) -> Workload {
        let (c, k, dilation) = (4, 4, [1; 2]);
        let c = Conv { n: 2, c, h: 9, w: 11, k, r, s: r, stride, pads, dilation, groups };
        let shape = c.output();
        Epilogue::none().attach(c.workload().unwrap(), &shape).unwrap()
    }

    #[test]
    fn phases_are_the_same_convolution() {
        let mut found = 0;
        for (stride, r) in [([2, 2], 3), ([1, 2], 5), ([3, 3], 5), ([2, 3], 3), ([1, 4], 3)] {
            for pads in [[1, 1, 1, 1], [0, 0, 1, 1], [1, 0, 0, 2], [1, 0, 1, 0], [0, 2, 0, 0]] {
                for groups in [1, 4] {
                    let w = conv(stride, r, pads, groups);
                    let numbers: Vec<Vec<f64>> = w
                        .inputs
                        .iter()
                        .map(|i| {
                            (0..i.shape.iter().product()).map(|j: i64| (j * 7 % 23 - 11) as f64)
                        })
                        .map(Iterator::collect)
                        .collect();
                    let Some((made, rows)) = by_phases(&w) else {
                        // Without a border there is no copy.
                        assert!(
                            !w.stages.iter().any(|s| matches!(s.body, Expr::Select { .. })),
                            "{w}"
                        );
                        continue;
                    };
                    found += 1;
                    assert_eq!(rows, "q");
                    assert_eq!(Workload::parse(&made.to_string()).unwrap(), made);
                    assert_eq!(made.evaluate(&numbers), w.evaluate(&numbers), "{made}");
                }
            }
        }
        assert_eq!(found, 50);
    }

    #[test]
    fn convolutions_without_steps_are_left_alone() {
        assert!(by_phases(&conv([1, 1], 3, [1; 4], 1)).is_none());
        assert!(by_phases(&conv([2, 1], 3, [1; 4], 1)).is_none());
    }
}
