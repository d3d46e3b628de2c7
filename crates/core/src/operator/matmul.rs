//! Matrix products, single and batched: `Y[b, m, n] = sum(k) A[b, m, k] * B[b, k, n]`. Input: the
//! sizes of a [`MatMul`], which operands are stored transposed and which are weights; output: its
//! workload in canonical form. Readers of models and of operator lines build their products by it.

use super::written;
use crate::{TensorKind, Workload};

/// `Y[b, m, n] = sum(k) A[b, m, k] * B[b, k, n]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the problem's
pub struct MatMul {
    /// Batch axes: extent, whether `A` and whether `B` varies along it. Empty for a single product.
    pub batch: Vec<(i64, bool, bool)>,
    pub m: i64,
    pub n: i64,
    pub k: i64,
    /// `A` is stored `[k, m]`.
    pub a_transposed: bool,
    /// `B` is stored `[n, k]`.
    pub b_transposed: bool,
    pub a: TensorKind,
    pub b: TensorKind,
}

impl MatMul {
    /// The single product with no operand transposed.
    pub fn plain(m: i64, n: i64, k: i64, b: TensorKind) -> MatMul {
        MatMul {
            batch: Vec::new(),
            m,
            n,
            k,
            a_transposed: false,
            b_transposed: false,
            a: TensorKind::Data,
            b,
        }
    }

    /// The batch axes without those of extent 1. Neighbours are merged where each operand varies
    /// along both of them or along neither.
    fn merged_batch(&self) -> Vec<(i64, bool, bool)> {
        let mut out: Vec<(i64, bool, bool)> = Vec::new();
        for &(extent, a, b) in self.batch.iter().filter(|x| x.0 != 1) {
            match out.last_mut() {
                Some(last) if (last.1, last.2) == (a, b) => last.0 = last.0.saturating_mul(extent),
                _ => out.push((extent, a, b)),
            }
        }
        out
    }

    /// The workload of the product alone, without an epilogue.
    pub fn workload(&self) -> Result<Workload, String> {
        let sizes = [self.m, self.n, self.k];
        if sizes.iter().chain(self.batch.iter().map(|b| &b.0)).any(|x| !(1..=1 << 31).contains(x)) {
            return Err(format!(
                "a matrix product needs positive sizes, not m={} n={} k={}",
                self.m, self.n, self.k
            ));
        }
        let mut batch = self.merged_batch();
        let mut m = self.m;
        // Where A alone is batched, its batches are further rows of one product.
        if let [(extent, true, false)] = batch[..]
            && !self.a_transposed
        {
            m = m.saturating_mul(extent);
            batch.clear();
        }
        let names: Vec<String> = (0..batch.len())
            .map(|i| if i == 0 { "b".into() } else { format!("b{}", i + 1) })
            .collect();
        let operand = |varies: &dyn Fn(&(i64, bool, bool)) -> bool,
                       rows: (&str, i64),
                       columns: (&str, i64),
                       transposed: bool| {
            let (mut extents, mut index) = (Vec::new(), Vec::new());
            for (axis, name) in batch.iter().zip(&names).filter(|(axis, _)| varies(axis)) {
                extents.push(axis.0.to_string());
                index.push(name.clone());
            }
            let (first, second) = if transposed { (columns, rows) } else { (rows, columns) };
            extents.extend([first.1.to_string(), second.1.to_string()]);
            index.extend([first.0.to_string(), second.0.to_string()]);
            (extents.join(", "), index.join(", "))
        };
        let (a_shape, a_index) = operand(&|b| b.1, ("m", m), ("k", self.k), self.a_transposed);
        let (b_shape, b_index) = operand(&|b| b.2, ("k", self.k), ("n", self.n), self.b_transposed);
        let kind = if batch.is_empty() { "matmul" } else { "batch_matmul" };
        let word = |k: TensorKind| if k == TensorKind::Weight { "weight" } else { "data" };
        let axes: String =
            batch.iter().zip(&names).map(|(axis, name)| format!("{name}: {}, ", axis.0)).collect();
        written(&format!(
            "workload {kind}\n{} A: f32[{a_shape}]\n{} B: f32[{b_shape}]\n\
             stage Y: f32[{axes}m: {m}, n: {}] = sum(k: {}) A[{a_index}] * B[{b_index}]\noutput Y",
            word(self.a),
            word(self.b),
            self.n,
            self.k
        ))
    }

    /// A readable name: rows x depth x columns.
    pub fn name(&self) -> String {
        let batch = self.batch.iter().fold(1i64, |n, b| n.saturating_mul(b.0));
        let flat =
            batch > 1 && self.batch.iter().all(|b| b.0 == 1 || (b.1 && !b.2)) && !self.a_transposed;
        match batch {
            1 => format!("matmul_{}x{}x{}", self.m, self.k, self.n),
            _ if flat => format!("matmul_{}x{}x{}", batch.saturating_mul(self.m), self.k, self.n),
            _ => format!("batch_matmul_{batch}x{}x{}x{}", self.m, self.k, self.n),
        }
    }
}
