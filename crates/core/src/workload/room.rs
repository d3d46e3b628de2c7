//! Tensors that do not lie densely: a data input or the output of a workload may be the first
//! corner of a larger box in memory, such as the 64 channels that one convolution adds to an image
//! of 256 (`output Y of [1, 56, 56, 256]`). The box, called the tensor's room, changes where the
//! kernel reads and writes, not the numbers that it computes. `graph/src/rewrite.rs` gives rooms to
//! kernels of networks, for instance so that a concatenation needs no copy.

use super::{Workload, WorkloadError};
use crate::TensorKind;

/// More than any memory; keeps arithmetic on a hostile text's numbers in range.
const MOST_ELEMENTS: f64 = (1u64 << 40) as f64;

impl Workload {
    /// The extents of the memory that a tensor lies in: its shape, where it lies densely.
    pub fn memory(&self, name: &str, shape: &[i64]) -> Vec<i64> {
        self.rooms.get(name).map_or_else(|| shape.to_vec(), Clone::clone)
    }

    /// Elements from the first to the last of the i-th input in memory, both included.
    pub fn input_span(&self, i: usize) -> u64 {
        span(&self.inputs[i].shape, self.rooms.get(&self.inputs[i].name))
    }

    /// Elements from the first to the last of the output in memory, both included.
    pub fn output_span(&self) -> u64 {
        let output = self.output();
        span(&output.shape(), self.rooms.get(&output.name))
    }

    /// Whether something lies between the elements of the output.
    pub fn has_gaps(&self) -> bool {
        self.foreign.is_none() && self.output_span() > self.output().elements()
    }

    /// Only data inputs and the output lie in larger boxes, which hold them.
    pub(super) fn check_rooms(&self) -> Result<(), WorkloadError> {
        for (name, room) in &self.rooms {
            let fail = |message: &str| {
                Err(WorkloadError::Stage { stage: name.clone(), message: message.into() })
            };
            let input = self.inputs.iter().find(|i| i.name == *name);
            let shape = match input {
                Some(i) if i.kind == TensorKind::Data => i.shape.clone(),
                None if self.output().name == *name => self.output().shape(),
                _ => return fail("only data inputs and the output are part of a larger box"),
            };
            if self.foreign.is_some() {
                return fail("tensors of a user's kernel lie densely");
            }
            if room.len() != shape.len() || room.iter().zip(&shape).any(|(r, e)| r < e) {
                return fail(&format!("the box {room:?} does not hold {shape:?}"));
            }
            if room.first() != shape.first() || *room == shape {
                return fail("a box is as long as its part, and larger somewhere else");
            }
            if room.iter().map(|&e| e as f64).product::<f64>() > MOST_ELEMENTS {
                return fail("the box is larger than any memory");
            }
        }
        Ok(())
    }
}

/// Elements from the first to the last of a shape in a box, both included.
fn span(shape: &[i64], room: Option<&Vec<i64>>) -> u64 {
    let room = room.map_or(shape, |r| r);
    let mut stride = 1;
    let mut last = 0;
    for (extent, memory) in shape.iter().zip(room).rev() {
        last += (extent - 1) * stride;
        stride *= memory;
    }
    last as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: &str = "workload elementwise
data X: f32[2, 3, 4] of [2, 5, 6]
stage Y: f32[i: 2, j: 3, k: 4] = X[i, j, k] * 2
output Y of [2, 3, 7]
";

    #[test]
    fn parts_of_boxes_print_parse_and_compute_the_same() {
        let w = Workload::parse(PART).unwrap();
        assert_eq!(w.to_string(), PART);
        assert_eq!((w.input_span(0), w.output_span()), (30 + 12 + 4, 21 + 14 + 4));
        assert!(w.has_gaps());
        let dense = Workload { rooms: Default::default(), ..w.clone() };
        assert!(!dense.has_gaps());
        let x = vec![(0..24).map(f64::from).collect()];
        assert_eq!(w.evaluate(&x), dense.evaluate(&x));
        assert_eq!((w.bytes(), w.flop()), (dense.bytes(), dense.flop()));
    }

    #[test]
    fn boxes_that_hold_nothing_are_refused() {
        for (from, to, why) in [
            ("of [2, 5, 6]", "of [2, 5, 3]", "does not hold"),
            ("of [2, 5, 6]", "of [2, 5]", "does not hold"),
            ("of [2, 5, 6]", "of [2, 3, 4]", "larger somewhere else"),
            ("of [2, 5, 6]", "of [4, 5, 6]", "larger somewhere else"),
            ("of [2, 5, 6]", "of [2, 1000000000, 1000000000]", "any memory"),
            ("data X", "weight X", "only data inputs"),
        ] {
            let error = Workload::parse(&PART.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(why), "{to}: {error}");
        }
    }
}
