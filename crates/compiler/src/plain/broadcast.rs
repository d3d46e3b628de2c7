//! Loops over a result and its broadcast operands, as C text, for the plain kernels: neighbouring
//! axes that all operands walk through with one stride are merged into one loop. Example: adding
//! `[64, 56, 56]` and `[64, 1, 1]` takes two loops, 64 and 3136. `copy.rs`, `elementwise.rs` and
//! others call it.

use super::program::{Program, loops, offset, strides};

/// Loops over a result and its operands.
pub(super) struct Nest {
    /// Extents of the loops.
    pub extents: Vec<i64>,
    /// Strides of the result and of the operands along the loops.
    pub strides: Vec<Vec<i64>>,
}

/// The strides of an operand in a result's axes: 0 where it is broadcast.
pub(super) fn broadcast_strides(operand: &[i64], to: &[i64]) -> Vec<i64> {
    let own = strides(operand);
    let skipped = to.len().saturating_sub(operand.len());
    (0..to.len())
        .map(|i| if i < skipped || operand[i - skipped] == 1 { 0 } else { own[i - skipped] })
        .collect()
}

impl Nest {
    /// The loops over a result of this shape, with operands of the given strides.
    pub fn new(shape: &[i64], operands: &[Vec<i64>]) -> Nest {
        let mut all = vec![strides(shape)];
        all.extend(operands.iter().cloned());
        let mut nest = Nest { extents: Vec::new(), strides: vec![Vec::new(); all.len()] };
        for (i, &e) in shape.iter().enumerate().filter(|(_, e)| **e != 1) {
            let joins = nest.extents.last().is_some_and(|_| {
                all.iter().zip(&nest.strides).all(|(s, n)| n.last() == Some(&(s[i] * e)))
            });
            if joins {
                *nest.extents.last_mut().unwrap_or(&mut 0) *= e;
                for (s, n) in all.iter().zip(&mut nest.strides) {
                    *n.last_mut().unwrap_or(&mut 0) = s[i];
                }
            } else {
                nest.extents.push(e);
                all.iter().zip(&mut nest.strides).for_each(|(s, n)| n.push(s[i]));
            }
        }
        if nest.extents.is_empty() {
            nest.extents.push(1);
            nest.strides.iter_mut().for_each(|s| s.push(0));
        }
        nest
    }

    /// The C text of the loops around `inner`, in which `OUT`, `IN0`, `IN1` .. are replaced by the
    /// elements' offsets.
    pub fn text(&self, inner: &str) -> String {
        let mut inner = inner.to_string();
        for (i, s) in self.strides.iter().enumerate().rev() {
            let name = if i == 0 { "@OUT".to_string() } else { format!("@IN{}", i - 1) };
            inner = inner.replace(&name, &format!("({})", offset("i", s)));
        }
        loops("i", &self.extents, &inner)
    }
}

/// The nest of the first result over operands, which are broadcast to it.
pub(super) fn nest(p: &Program, operands: &[usize]) -> Result<Nest, String> {
    let to = p.out()?;
    let own: Vec<Vec<i64>> = operands
        .iter()
        .map(|i| p.shape(*i).map(|s| broadcast_strides(s, to)))
        .collect::<Result<_, _>>()?;
    Ok(Nest::new(to, &own))
}
