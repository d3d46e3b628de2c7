//! Neural networks, small and on the CPU, for the predictors: fused layers with hand-derived
//! gradients over flat slices of f32. All parameters of a model lie in one slice, all gradients in
//! another of the same shape; a layer is a few [`Matrix`] places in them. Tests compare every
//! gradient with finite differences.
//!
//! Matrices are row-major with a sample in each row. `forward` writes its result, `backward` takes
//! the gradient of the result and *adds* to the gradients of parameters.

mod adam;
mod layer;
mod loss;
mod product;
mod sequence;
pub mod vector;

pub use adam::{Adam, cosine};
pub use layer::{Dropout, Linear, Mlp, MlpInput, MlpScratch, Tables};
pub use loss::{cross_entropy, mask, masked_cross_entropy};
pub use product::{Stored, product};
pub use sequence::{
    Attention, AttentionGradients, Convolution, Lstm, LstmGradients, LstmScratch, Steps,
};

use rand::{Rng, RngExt};

/// The place of a matrix among a model's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    at: usize,
    /// Rows: inputs of a layer, entries of a table.
    pub rows: usize,
    /// Columns: outputs.
    pub cols: usize,
}

impl Matrix {
    /// Its elements in a slice of all parameters or gradients.
    pub fn of<'a>(&self, all: &'a [f32]) -> &'a [f32] {
        &all[self.at..self.at + self.rows * self.cols]
    }

    /// As [`Matrix::of`], mutable.
    pub fn of_mut<'a>(&self, all: &'a mut [f32]) -> &'a mut [f32] {
        &mut all[self.at..self.at + self.rows * self.cols]
    }

    /// One row.
    pub fn row<'a>(&self, all: &'a [f32], row: usize) -> &'a [f32] {
        &self.of(all)[row * self.cols..(row + 1) * self.cols]
    }

    /// As [`Matrix::row`], mutable.
    pub fn row_mut<'a>(&self, all: &'a mut [f32], row: usize) -> &'a mut [f32] {
        let cols = self.cols;
        &mut self.of_mut(all)[row * cols..(row + 1) * cols]
    }
}

/// The names, places and initial distributions of a model's parameters.
#[derive(Clone, Debug, Default)]
pub struct ParameterLayout {
    entries: Vec<(String, Matrix, f32)>,
    len: usize,
}

impl ParameterLayout {
    /// Adds a matrix whose elements are initially distributed evenly in `-bound..bound`.
    pub fn matrix(
        &mut self,
        name: impl Into<String>,
        rows: usize,
        cols: usize,
        bound: f32,
    ) -> Matrix {
        let m = Matrix { at: self.len, rows, cols };
        self.len += rows * cols;
        self.entries.push((name.into(), m, bound));
        m
    }

    /// The number of parameters.
    #[allow(clippy::len_without_is_empty)] // no model is empty
    pub fn len(&self) -> usize {
        self.len
    }

    /// Names and places, in order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, Matrix)> {
        self.entries.iter().map(|(n, m, _)| (n.as_str(), *m))
    }

    /// Draws initial parameters.
    pub fn initial(&self, rng: &mut impl Rng) -> Vec<f32> {
        let mut out = Vec::with_capacity(self.len);
        for (_, m, bound) in &self.entries {
            out.extend(
                (0..m.rows * m.cols)
                    .map(|_| if *bound == 0.0 { 0.0 } else { rng.random_range(-bound..*bound) }),
            );
        }
        out
    }

    /// Which parameters decay: matrices do, biases (single rows that begin at zero) do not.
    pub fn decays(&self) -> Vec<bool> {
        let mut out = Vec::with_capacity(self.len);
        for (_, m, bound) in &self.entries {
            out.extend(std::iter::repeat_n(!(m.rows == 1 && *bound == 0.0), m.rows * m.cols));
        }
        out
    }
}

/// Makes a buffer this long, with all elements zero.
pub fn zeroed(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    buffer.clear();
    buffer.resize(len, 0.0);
    buffer
}

/// Makes a buffer this long. Its elements are stale and must be overwritten.
pub fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    buffer.resize(len, 0.0);
    &mut buffer[..len]
}

#[cfg(test)]
pub(crate) mod gradients;
