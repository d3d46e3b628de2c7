//! Convolutions with windows side by side, such as a vision transformer's patch embedding: with
//! stride equal to the window's extent they are matrix products over patches. `unfolded` rewrites a
//! workload (a tensor expression) so: a dimension of data read at `c x + y`, with `y` running
//! through `0..c`, is split into two dimensions read at `[x, y]`. The elements stay where they are
//! in memory. `contract/mod.rs` does this before it looks at a workload.

use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::workload::Stage;
use squall_core::{TensorKind, Workload};

/// The same workload, with dimensions of its data split in two where an index is `c x + y` for all
/// `y` below `c`. The elements stay where they are.
pub fn unfolded(w: &Workload) -> Workload {
    let mut made = w.clone();
    for i in 0..w.inputs.len() {
        if w.inputs[i].kind == TensorKind::Data
            && let Some(next) = unfold(&made, Source(i as u32))
        {
            made = next;
        }
    }
    made
}

fn unfold(w: &Workload, input: Source) -> Option<Workload> {
    let all = w.stages.iter().flat_map(|s| {
        s.body.loads().into_iter().filter(|l| l.0 == input).map(move |l| (s, l.1.to_vec()))
    });
    let [(stage, index)] = &all.collect::<Vec<(&Stage, Vec<Affine>)>>()[..] else { return None };
    let extent = |v: Var| stage.all_axes().nth(v.0 as usize).map(|a| a.extent);
    let (mut shape, mut places) = (Vec::new(), Vec::new());
    for (a, &size) in index.iter().zip(&w.inputs[input.0 as usize].shape) {
        let parts = match a.terms() {
            [(x, c), (y, 1)] | [(y, 1), (x, c)] if *c > 1 && a.offset() == 0 => {
                let whole = extent(*y) == Some(*c) && extent(*x).map(|e| e * c) == Some(size);
                whole.then_some((*x, *y, *c))
            }
            _ => None,
        };
        match parts {
            Some((x, y, c)) => {
                shape.extend([size / c, c]);
                places.extend([Affine::var(x), Affine::var(y)]);
            }
            None => {
                shape.push(size);
                places.push(a.clone());
            }
        }
    }
    if shape.len() == index.len() {
        return None;
    }
    let mut made = w.clone();
    made.inputs[input.0 as usize].shape = shape;
    for s in &mut made.stages {
        s.body = s.body.rewrite(&mut Affine::clone, &mut |e| match e {
            Expr::Load { source, .. } if source == input => {
                Expr::Load { source, index: places.clone() }
            }
            e => e,
        });
    }
    made.check().ok().map(|()| made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_taken_apart_and_windows_are_not() {
        let text = |x: &str, index: &str| {
            format!(
                "workload conv2d\ndata X: f32[{x}]\nweight W: f32[8, 3, 4, 4]\nstage Y: f32[n: 1, \
                 k: 8, p: 5, q: 6] = sum(c: 3, r: 4, s: 4) X[n, c, {index}] * W[k, c, r, \
                 s]\noutput Y"
            )
        };
        let w = Workload::parse(&text("1, 3, 20, 24", "4*p + r, 4*q + s")).unwrap();
        let made = unfolded(&w);
        assert_eq!(made.inputs[0].shape, [1, 3, 5, 4, 6, 4]);
        assert!(made.to_string().contains("X[n, c, p, r, q, s] *"), "{made}");
        let numbers = |n: i64| (0..n).map(|i| (i * 7 % 13) as f64).collect::<Vec<f64>>();
        let inputs = [numbers(3 * 20 * 24), numbers(8 * 48)];
        assert_eq!(made.evaluate(&inputs), w.evaluate(&inputs));
        for (x, index) in
            [("1, 3, 14, 15", "2*p + r, 2*q + s"), ("1, 3, 21, 25", "4*p + r, 4*q + s")]
        {
            let w = Workload::parse(&text(x, index)).unwrap();
            assert_eq!(unfolded(&w), w);
        }
    }
}
