//! Constants of a plan over a range of extents. What a model computes from its extents alone is a
//! constant at each of them: a slice of a table of positions, a list of indices. Input: the
//! constants at one extent and at the largest; output: for each, whether it is the beginning of
//! the one at the largest, or a short list of numbers, which the plan then holds.

use super::draft::Draft;
use squall_core::DType;
use squall_graph::plan::PlanConstant;

/// The most elements of a constant whose numbers the plan holds.
const MOST_LISTED: usize = 64;

/// How a constant at one extent follows from the one at the largest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Varies {
    /// It is the same, or the beginning.
    Beginning,
    /// The plan has to list its elements.
    Listed,
}

/// How constant `c` of a draft follows from the one of the largest extent.
pub fn compared(own: &Draft, most: &Draft, c: usize) -> Result<Varies, String> {
    let (a, b) = (&own.plan.constants[c], &most.plan.constants[c]);
    let place = |d: &Draft, p: Option<usize>| p.and_then(|n| d.places.get(n).cloned());
    if a.dtype == b.dtype && place(own, a.place) == place(most, b.place) {
        let is_whole = a.data.len() as u64 == a.elements as u64 * a.dtype.bytes();
        if (a.place.is_some() && a.elements == b.elements) || (is_whole && a.data == b.data) {
            return Ok(Varies::Beginning);
        }
        if a.elements == b.elements && short_list(a).is_some() {
            return Ok(Varies::Listed);
        }
        if a.place.is_none() && is_whole && b.data.starts_with(&a.data) {
            return Ok(Varies::Beginning);
        }
    }
    Err(format!("its constant {} depends on the extent", a.name))
}

/// The elements of a constant that a plan can list.
pub fn short_list(c: &PlanConstant) -> Option<Vec<i64>> {
    let is_short = c.dtype == DType::I64 && c.elements <= MOST_LISTED && c.place.is_none();
    let numbers = || c.data.as_chunks::<8>().0.iter().map(|b| i64::from_ne_bytes(*b)).collect();
    is_short.then(numbers)
}
