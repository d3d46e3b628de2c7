//! Constants of a plan over a range of extents. What a model computes from its extents alone is a
//! constant at each of them: a slice of a table of positions, a list of indices. Input: the
//! constants at one extent and at the largest; output: for each, whether it is the beginning of
//! the one at the largest, or a short list of numbers, which the plan then holds.

use super::draft::Draft;
use squall_core::DType;
use squall_graph::plan::PlanConstant;
use std::borrow::Cow;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

/// The most elements of a constant whose numbers the plan holds.
const MOST_LISTED: usize = 64;

/// How a constant at one extent follows from the one at the largest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Varies {
    /// It is the same, or the beginning.
    Beginning,
    /// The plan has to list its elements.
    Listed,
    /// It is the corner of a square, as a causal mask is: rows of this length, of those of the
    /// other length. A run copies it.
    Corner {
        /// The length of its rows, and how many there are.
        own: usize,
        /// The length of those of the largest extent.
        most: usize,
    },
}

/// The bytes of a constant, which may lie in the model's file; none where they cannot be read.
fn bytes<'a>(d: &'a Draft, c: &'a PlanConstant) -> Option<Cow<'a, [u8]>> {
    let length = c.elements as u64 * c.dtype.bytes();
    let Some(place) = c.place.and_then(|n| d.places.get(n)) else {
        return (c.data.len() as u64 == length).then_some(Cow::Borrowed(&c.data));
    };
    let mut file = File::open(&place.file).ok()?;
    file.seek(SeekFrom::Start(place.offset)).ok()?;
    let mut bytes = vec![0; length as usize];
    file.read_exact(&mut bytes).ok()?;
    Some(Cow::Owned(bytes))
}

/// Whether the constants of two drafts begin at the same byte of the same file.
fn is_in_one_place(drafts: [&Draft; 2], constants: [&PlanConstant; 2]) -> bool {
    let place = |i: usize| constants[i].place.and_then(|n| drafts[i].places.get(n));
    place(0).is_some() && place(0) == place(1)
}

/// Whether constant `c` of a draft is that of the largest extent.
pub fn is_same(own: &Draft, most: &Draft, c: usize) -> bool {
    let (Some(a), Some(b)) = (own.plan.constants.get(c), most.plan.constants.get(c)) else {
        return false;
    };
    if a.elements != b.elements || a.dtype != b.dtype {
        return false;
    }
    if is_in_one_place([own, most], [a, b]) {
        return true;
    }
    bytes(own, a).is_some_and(|x| bytes(most, b).is_some_and(|y| x == y))
}

/// How constant `c` of a draft follows from the one of the largest extent.
pub fn compared(own: &Draft, most: &Draft, c: usize) -> Result<Varies, String> {
    let (a, b) = (&own.plan.constants[c], &most.plan.constants[c]);
    if a.elements == b.elements && is_in_one_place([own, most], [a, b]) {
        return Ok(Varies::Beginning);
    }
    let fail = || format!("its constant {} depends on the extent", a.name);
    let (Some(x), Some(y)) = (bytes(own, a), bytes(most, b)) else { return Err(fail()) };
    // Beyond the range the constant is the longer one.
    if a.dtype == b.dtype && a.elements == b.elements && short_list(a).is_some() && x != y {
        return Ok(Varies::Listed);
    }
    if a.dtype == b.dtype && (y.starts_with(&x) || x.starts_with(&y)) {
        return Ok(Varies::Beginning);
    }
    match corner(a, b, &x, &y) {
        Some((own, most)) => Ok(Varies::Corner { own, most }),
        None => Err(fail()),
    }
}

/// The lengths of the rows of two squares, of which one is the corner of the other.
fn corner(a: &PlanConstant, b: &PlanConstant, x: &[u8], y: &[u8]) -> Option<(usize, usize)> {
    let [own, most] = [a.elements, b.elements].map(usize::isqrt);
    if own * own != a.elements || most * most != b.elements || a.dtype != b.dtype {
        return None;
    }
    let size = a.dtype.bytes() as usize;
    let shared = own.min(most);
    let row = |i: usize, length: usize| i * length * size..(i * length + shared) * size;
    let is_same = |i| x.get(row(i, own)) == y.get(row(i, most));
    (0..shared).all(is_same).then_some((own, most))
}

/// The elements of a constant that a plan can list.
pub fn short_list(c: &PlanConstant) -> Option<Vec<i64>> {
    let is_short = c.dtype == DType::I64 && c.elements <= MOST_LISTED && c.place.is_none();
    let numbers = || c.data.as_chunks::<8>().0.iter().map(|b| i64::from_ne_bytes(*b)).collect();
    is_short.then(numbers)
}
