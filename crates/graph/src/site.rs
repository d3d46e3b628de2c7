//! Sites: the place of a value inside the memory of another value (its host), as an offset and
//! strides. With a site, a transposed or sliced value needs no copy. Each dimension has factors,
//! pairs of an extent and a stride; a dimension that was joined of several has several factors, so
//! that a reshape keeps the site exact.
//!
//! `moves.rs` derives sites of moves, `solvers/in_place.rs` chooses them, `rewrite.rs` changes
//! workloads to them. In text: `site "x" in "y" at 64 1 128 28*3584 28*128`.

use crate::layout::{Layout, image};
use squall_core::graph::{Model, ValueId};

/// A number of elements with one stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    /// The number of elements; more than one.
    pub extent: i64,
    /// The distance between neighbours, in elements.
    pub stride: i64,
}

/// The place of a value's elements in the memory of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The value whose memory it is.
    pub host: ValueId,
    /// Elements from the host's first to this value's first.
    pub offset: i64,
    /// For each dimension its factors, outermost first; none of a dimension of extent 1.
    pub dims: Vec<Vec<Factor>>,
}

impl Site {
    /// A value with memory of its own, as a layout has it; none where its shape is not known, is
    /// empty, or has no such layout.
    pub fn own(model: &Model, v: ValueId, layout: Layout) -> Option<Site> {
        let shape = model.values[v].shape.as_deref()?;
        if shape.iter().any(|e| *e < 1) {
            return None;
        }
        let order: Vec<usize> = match layout {
            Layout::Model => (0..shape.len()).collect(),
            Layout::ChannelsLast => {
                image(model, v)?;
                vec![0, 2, 3, 1]
            }
        };
        let mut dims = vec![Vec::new(); shape.len()];
        let mut stride = 1i64;
        for &d in order.iter().rev() {
            if shape[d] > 1 {
                dims[d] = vec![Factor { extent: shape[d], stride }];
            }
            stride = stride.checked_mul(shape[d])?;
        }
        Some(Site { host: v, offset: 0, dims })
    }

    /// The extents of the value.
    pub fn shape(&self) -> Vec<i64> {
        self.dims.iter().map(|d| d.iter().map(|f| f.extent).product()).collect()
    }

    /// Elements of the host up to the value's last.
    pub fn end(&self) -> Option<i64> {
        let mut end = self.offset.checked_add(1)?;
        for f in self.dims.iter().flatten() {
            end = end.checked_add((f.extent - 1).checked_mul(f.stride)?)?;
        }
        Some(end)
    }

    /// Whether the site lies inside a memory of this many elements.
    pub fn fits(&self, elements: Option<i64>) -> bool {
        self.end().zip(elements).is_some_and(|(end, elements)| end <= elements)
    }

    /// All factors in the order of the value's elements, joined where they go on evenly.
    pub fn factors(&self) -> Vec<Factor> {
        joined(self.dims.iter().flatten().copied())
    }

    /// Whether the elements lie one after the other in their order.
    pub fn is_dense(&self) -> bool {
        matches!(self.factors()[..], [] | [Factor { stride: 1, .. }])
    }

    /// The same elements in another shape; none where a dimension would begin inside of a factor.
    pub fn reshaped(&self, shape: &[i64]) -> Option<Site> {
        let mut left = self.factors();
        left.reverse();
        let mut dims = Vec::new();
        for &extent in shape {
            let (mut need, mut dim) = (extent, Vec::new());
            while need > 1 {
                let f = left.pop()?;
                if f.extent <= need {
                    if need % f.extent != 0 {
                        return None;
                    }
                    need /= f.extent;
                    dim.push(f);
                    continue;
                }
                if f.extent % need != 0 {
                    return None;
                }
                let inner = f.extent / need;
                dim.push(Factor { extent: need, stride: f.stride * inner });
                left.push(Factor { extent: inner, ..f });
                need = 1;
            }
            dims.push(joined(dim));
        }
        left.is_empty().then_some(Site { dims, ..*self })
    }

    /// The dimensions in another order: dimension `i` of the result is `order[i]` of this one.
    pub fn permuted(&self, order: &[usize]) -> Option<Site> {
        let dims = order.iter().map(|&d| self.dims.get(d).cloned()).collect::<Option<Vec<_>>>()?;
        (order.len() == self.dims.len()).then_some(Site { dims, ..*self })
    }

    /// A part of one dimension; none where it begins or ends inside of a factor.
    pub fn part(&self, dim: usize, start: i64, count: i64) -> Option<Site> {
        let (offset, factors) = part(self.dims.get(dim)?, start, count)?;
        let mut dims = self.dims.clone();
        dims[dim] = factors;
        Some(Site { host: self.host, offset: self.offset + offset, dims })
    }
}

/// Factors without what goes on evenly.
fn joined(factors: impl IntoIterator<Item = Factor>) -> Vec<Factor> {
    let mut list: Vec<Factor> = Vec::new();
    for f in factors.into_iter().filter(|f| f.extent > 1) {
        match list.last_mut() {
            Some(last) if last.stride == f.stride * f.extent => {
                *last = Factor { extent: last.extent * f.extent, stride: f.stride };
            }
            _ => list.push(f),
        }
    }
    list
}

/// A part of a dimension: where it begins, and its factors.
fn part(factors: &[Factor], start: i64, count: i64) -> Option<(i64, Vec<Factor>)> {
    let Some((first, rest)) = factors.split_first() else {
        return (start == 0 && count == 1).then(|| (0, Vec::new()));
    };
    let inner: i64 = rest.iter().map(|f| f.extent).product();
    if start % inner == 0 && count % inner == 0 {
        let some = Factor { extent: count / inner, ..*first };
        return Some((start / inner * first.stride, joined([&[some][..], rest].concat())));
    }
    let (at, within) = (start / inner, start % inner);
    if within + count > inner {
        return None;
    }
    let (offset, factors) = part(rest, within, count)?;
    Some((at * first.stride + offset, factors))
}

/// The factors of two values of one shape cut so that both have the same extents: each with its
/// strides in the first and in the second. None where they do not divide each other.
pub fn common(a: &Site, b: &Site) -> Option<Vec<(i64, i64, i64)>> {
    let mut list = Vec::new();
    let (mut left, mut right) = (a.factors(), b.factors());
    left.reverse();
    right.reverse();
    while let (Some(x), Some(y)) = (left.pop(), right.pop()) {
        let extent = x.extent.min(y.extent);
        for (side, f) in [(&mut left, x), (&mut right, y)] {
            if f.extent % extent != 0 {
                return None;
            }
            if f.extent > extent {
                side.push(Factor { extent: f.extent / extent, stride: f.stride });
            }
        }
        list.push((extent, x.stride * (x.extent / extent), y.stride * (y.extent / extent)));
    }
    (left.is_empty() && right.is_empty()).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of all elements, in their order.
    fn places(s: &Site) -> Vec<i64> {
        s.dims.iter().flatten().fold(vec![s.offset], |all, f| {
            all.iter().flat_map(|p| (0..f.extent).map(move |i| p + i * f.stride)).collect()
        })
    }

    fn site(shape: &[i64]) -> Site {
        let mut stride = 1;
        let mut dims: Vec<Vec<Factor>> = shape
            .iter()
            .rev()
            .map(|&extent| {
                let f = Factor { extent, stride };
                stride *= extent;
                if extent > 1 { vec![f] } else { vec![] }
            })
            .collect();
        dims.reverse();
        Site { host: 0, offset: 0, dims }
    }

    #[test]
    fn moves_keep_each_element_at_its_place() {
        // Channels of two groups in turns, as a shuffle has them, and back.
        let x = site(&[1, 6, 5]);
        let shuffled = x.reshaped(&[2, 3, 5]).unwrap().permuted(&[1, 0, 2]).unwrap();
        let shuffled = shuffled.reshaped(&[1, 6, 5]).unwrap();
        assert_eq!(shuffled.shape(), [1, 6, 5]);
        let row = |c: i64| (0..5).map(move |i| c * 5 + i);
        let want: Vec<i64> = [0, 3, 1, 4, 2, 5].into_iter().flat_map(row).collect();
        assert_eq!(places(&shuffled), want);
        assert!(!shuffled.is_dense());
        let back = shuffled.reshaped(&[3, 2, 5]).unwrap().permuted(&[1, 0, 2]).unwrap();
        assert!(back.is_dense());
        // Parts: whole pairs, and one inside of a pair, but nothing across.
        assert_eq!(places(&shuffled.part(1, 2, 2).unwrap()), want[10..20]);
        assert_eq!(places(&shuffled.part(1, 3, 1).unwrap()), want[15..20]);
        assert_eq!(shuffled.part(1, 1, 2), None);
        assert_eq!(x.reshaped(&[4, 4]), None);
        assert_eq!(x.end(), Some(30));
    }

    #[test]
    fn two_values_of_one_shape_are_walked_together() {
        let a = site(&[4, 6]);
        let b = site(&[6, 4]).permuted(&[1, 0]).unwrap();
        assert_eq!(common(&a, &b), Some(vec![(4, 6, 1), (6, 1, 4)]));
        assert_eq!(common(&a, &a), Some(vec![(24, 1, 1)]));
        assert_eq!(common(&a, &site(&[5])), None);
    }
}
