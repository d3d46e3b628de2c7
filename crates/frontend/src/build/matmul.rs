//! Matrix products, single and batched.

use super::Core;
use squall_core::TensorKind;

/// `A[.., m, k] x B[.., k, n]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MatMul {
    pub m: i64,
    pub n: i64,
    pub k: i64,
    /// Batch axes, outermost first: extent, and whether A and B vary along it.
    pub batch: Vec<(i64, bool, bool)>,
    /// Whether A lies as `[k, m]` and B as `[n, k]`.
    pub transposed: [bool; 2],
    pub kinds: [TensorKind; 2],
}

impl MatMul {
    pub fn build(&self) -> Result<Core, String> {
        let MatMul { m, n, k, transposed: [ta, tb], kinds, .. } = *self;
        if m < 1 || n < 1 || k < 1 || self.batch.iter().any(|b| b.0 < 1) {
            return Err(format!("the product of {m} x {k} and {k} x {n} is empty"));
        }
        let batch = self.merged();
        let name = |i: usize| if i == 0 { "b".to_string() } else { format!("b{}", i + 1) };
        let part = |of: fn(&(i64, bool, bool)) -> bool| {
            let used: Vec<usize> = (0..batch.len()).filter(|&i| of(&batch[i])).collect();
            let shape: String = used.iter().map(|&i| format!("{}, ", batch[i].0)).collect();
            let index: String = used.iter().map(|&i| format!("{}, ", name(i))).collect();
            (shape, index)
        };
        let ((a_shape, a_index), (b_shape, b_index)) = (part(|b| b.1), part(|b| b.2));
        let a = if ta { (format!("{k}, {m}"), "k, m") } else { (format!("{m}, {k}"), "m, k") };
        let b = if tb { (format!("{n}, {k}"), "n, k") } else { (format!("{k}, {n}"), "k, n") };
        let axes: String = batch.iter().enumerate().map(|(i, b)| format!("{}: {}, ", name(i), b.0)).collect();
        let word = |k: TensorKind| if k == TensorKind::Data { "data" } else { "weight" };
        let kind = if batch.is_empty() { "matmul" } else { "batch_matmul" };
        let text = format!(
            "workload {kind}\n{} A: f32[{a_shape}{}]\n{} B: f32[{b_shape}{}]\nstage C: f32[{axes}m: {m}, n: {n}] = sum(k: {k}) A[{a_index}{}] * B[{b_index}{}]\noutput C\n",
            word(kinds[0]),
            a.0,
            word(kinds[1]),
            b.0,
            a.1,
            b.1
        );
        let sizes: String = batch.iter().map(|b| format!("{}x", b.0)).collect();
        let mut space: Vec<i64> = batch.iter().map(|b| b.0).collect();
        space.extend([m, n, k]);
        Core::written(&text, &[&space], format!("{kind}_{sizes}{m}x{k}x{n}"))
    }

    /// Batch axes without those of extent 1, neighbours that both operands treat alike as one.
    fn merged(&self) -> Vec<(i64, bool, bool)> {
        let mut out: Vec<(i64, bool, bool)> = Vec::new();
        for &(extent, a, b) in self.batch.iter().filter(|b| b.0 != 1) {
            match out.last_mut() {
                Some(last) if (last.1, last.2) == (a, b) => last.0 = last.0.saturating_mul(extent),
                _ => out.push((extent, a, b)),
            }
        }
        out
    }
}
