//! Layers without state between samples: linear maps, sums of embedding tables, drop-out, and the
//! two-layer perceptron that reads a problem or a candidate. Each has `forward`, and `backward`,
//! which adds to the gradients. `nn/mod.rs` explains the layout of parameters.

use super::vector::{add_row, add_within, dot_rows, gelu, gelu_backward, sum_rows, wide};
use super::{Matrix, ParameterLayout, Stored, product, sized};
use rand::Rng;

/// `y = x w + b`
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    w: Matrix,
    b: Matrix,
}

impl Linear {
    /// Places for its parameters; weights begin evenly in +-sqrt(3 / inputs) times `gain`, so
    /// that a result has about the variance of its inputs.
    pub fn new(
        layout: &mut ParameterLayout,
        name: &str,
        inputs: usize,
        outputs: usize,
        gain: f32,
    ) -> Linear {
        let bound = gain * (3.0 / inputs.max(1) as f32).sqrt();
        Linear {
            w: layout.matrix(format!("{name}.weight"), inputs, outputs, bound),
            b: layout.matrix(format!("{name}.bias"), 1, outputs, 0.0),
        }
    }

    /// Columns of the argument.
    pub fn inputs(&self) -> usize {
        self.w.rows
    }

    /// Columns of the result.
    pub fn outputs(&self) -> usize {
        self.w.cols
    }

    /// `x` is `n x inputs`, `y` `n x outputs`.
    pub fn forward(&self, parameters: &[f32], x: &[f32], n: usize, y: &mut [f32]) {
        self.forward_onto(parameters, x, n, y, false);
    }

    /// The bias, which is added to every row.
    pub fn bias<'a>(&self, parameters: &'a [f32]) -> &'a [f32] {
        self.b.of(parameters)
    }

    /// Adds the product, without the bias, to `y`.
    pub fn weigh_onto(&self, parameters: &[f32], x: &[f32], n: usize, y: &mut [f32]) {
        product(
            [n, self.w.cols, self.w.rows],
            (x, Stored::Plain),
            (self.w.of(parameters), Stored::Plain),
            &mut y[..n * self.w.cols],
            true,
        );
    }

    /// The weights of each output in turn: `outputs x inputs`.
    pub fn by_output(&self, parameters: &[f32], out: &mut Vec<f32>) {
        let w = self.w.of(parameters);
        out.clear();
        (0..self.w.cols).for_each(|c| out.extend(w.iter().skip(c).step_by(self.w.cols)));
    }

    /// As [`Linear::forward`]; adds the result to `y` where `onto` is true.
    pub fn forward_onto(&self, parameters: &[f32], x: &[f32], n: usize, y: &mut [f32], onto: bool) {
        let y = &mut y[..n * self.w.cols];
        if self.w.cols == 1 {
            // `gemm` is slow for a product with one column.
            return dot_rows(x, self.w.of(parameters), self.b.of(parameters)[0], y, onto);
        }
        product(
            [n, self.w.cols, self.w.rows],
            (x, Stored::Plain),
            (self.w.of(parameters), Stored::Plain),
            y,
            onto,
        );
        add_row(self.b.of(parameters), y);
    }

    /// Adds the gradients of the parameters to `g`.
    pub fn backward(&self, x: &[f32], n: usize, dy: &[f32], g: &mut [f32]) {
        let (k, m) = (self.w.rows, self.w.cols);
        product([k, m, n], (x, Stored::Transposed), (dy, Stored::Plain), self.w.of_mut(g), true);
        sum_rows(&dy[..n * m], self.b.of_mut(g));
    }

    /// Writes the gradient of the argument to `dx`, or adds it.
    pub fn backward_argument(
        &self,
        parameters: &[f32],
        dy: &[f32],
        n: usize,
        dx: &mut [f32],
        onto: bool,
    ) {
        let (k, m) = (self.w.rows, self.w.cols);
        product(
            [n, k, m],
            (dy, Stored::Plain),
            (self.w.of(parameters), Stored::Transposed),
            &mut dx[..n * k],
            onto,
        );
    }
}

/// A sum of embeddings: one table for each of several categorical inputs.
#[derive(Clone, Debug)]
pub struct Tables {
    tables: Vec<Matrix>,
    width: usize,
}

impl Tables {
    /// Makes a table of `sizes[i]` rows for the i-th input.
    pub fn new(
        layout: &mut ParameterLayout,
        name: &str,
        sizes: &[usize],
        width: usize,
        bound: f32,
    ) -> Tables {
        Tables {
            tables: sizes
                .iter()
                .enumerate()
                .map(|(i, &s)| layout.matrix(format!("{name}.{i}"), s, width, bound))
                .collect(),
            width,
        }
    }

    /// Adds the rows that `indices` name, one of each table, to every row of `y`: `indices` is
    /// `n x tables`, `y` `n x width`.
    pub fn forward_onto(&self, parameters: &[f32], indices: &[u16], y: &mut [f32]) {
        let rows =
            indices.chunks_exact(self.tables.len().max(1)).zip(y.chunks_exact_mut(self.width));
        wide(
            #[inline(always)]
            || {
                rows.for_each(|(index, y)| {
                    self.tables
                        .iter()
                        .zip(index)
                        .for_each(|(t, &i)| add_within(t.row(parameters, i as usize), y))
                })
            },
        );
    }

    /// Writes `start` plus the rows that `indices` name, as [`Tables::forward_onto`] does. Where
    /// neighbouring rows of `indices` have a common prefix, its sum is computed once. `scratch`
    /// holds the sums.
    pub fn forward_sorted(
        &self,
        parameters: &[f32],
        start: &[f32],
        indices: &[u16],
        y: &mut [f32],
        scratch: &mut Vec<f32>,
    ) {
        let (width, count) = (self.width, self.tables.len());
        if count == 0 {
            return y.chunks_exact_mut(width).for_each(|y| y.copy_from_slice(&start[..width]));
        }
        // Row k is the sum of the start and the first k tables' rows.
        let sums = sized(scratch, (count + 1) * width);
        sums[..width].copy_from_slice(&start[..width]);
        wide(
            #[inline(always)]
            || {
                let mut before: &[u16] = &[];
                for (index, y) in indices.chunks_exact(count).zip(y.chunks_exact_mut(width)) {
                    let same = index.iter().zip(before).take_while(|(a, b)| a == b).count();
                    for k in same..count {
                        let (from, to) = sums[k * width..(k + 2) * width].split_at_mut(width);
                        let row = &self.tables[k].row(parameters, index[k] as usize)[..width];
                        for i in 0..width {
                            to[i] = from[i] + row[i];
                        }
                    }
                    y.copy_from_slice(&sums[count * width..]);
                    before = index;
                }
            },
        );
    }

    /// Adds the gradients of the tables to `g`.
    pub fn backward(&self, indices: &[u16], dy: &[f32], g: &mut [f32]) {
        let rows = indices.chunks_exact(self.tables.len().max(1)).zip(dy.chunks_exact(self.width));
        wide(
            #[inline(always)]
            || {
                rows.for_each(|(index, dy)| {
                    self.tables
                        .iter()
                        .zip(index)
                        .for_each(|(t, &i)| add_within(dy, t.row_mut(g, i as usize)))
                })
            },
        );
    }
}

/// Drop-out: while training, elements become zero with some probability and the others grow, so
/// that the mean stays.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// The probability times 65,536.
    threshold: u64,
}

impl Dropout {
    /// A layer that drops this share of elements.
    pub fn new(share: f32) -> Dropout {
        Dropout { threshold: (share.clamp(0.0, 0.99) * 65536.0) as u64 }
    }

    /// Draws factors and applies them to `x`.
    pub fn forward(&self, rng: &mut impl Rng, x: &mut [f32], factors: &mut Vec<f32>) {
        let keep = 65536.0 / (65536 - self.threshold) as f32;
        let factors = sized(factors, x.len());
        for f in factors.chunks_mut(4) {
            let bits = rng.next_u64();
            for (i, f) in f.iter_mut().enumerate() {
                *f = if (bits >> (16 * i)) & 0xffff < self.threshold { 0.0 } else { keep };
            }
        }
        self.backward(factors, x);
    }

    /// Applies the factors that were drawn.
    pub fn backward(&self, factors: &[f32], x: &mut [f32]) {
        wide(
            #[inline(always)]
            || x.iter_mut().zip(factors).for_each(|(x, f)| *x *= f),
        );
    }
}

/// A perceptron of two hidden layers: linear (and tables on the same level), GELU, drop-out,
/// linear, GELU, drop-out.
#[derive(Clone, Debug)]
pub struct Mlp {
    first: Linear,
    tables: Tables,
    second: Linear,
    dropout: Dropout,
}

/// The input of an [`Mlp`].
#[derive(Clone, Copy, Debug)]
pub struct MlpInput<'a> {
    /// `n x inputs`
    pub numbers: &'a [f32],
    /// `n x tables`
    pub tokens: &'a [u16],
    /// The number of samples.
    pub n: usize,
}

/// The values that [`Mlp`] keeps from its forward pass for the backward pass.
#[derive(Clone, Debug, Default)]
pub struct MlpScratch {
    z1: Vec<f32>,
    a1: Vec<f32>,
    z2: Vec<f32>,
    /// The result: `n x width`.
    pub out: Vec<f32>,
    drop1: Vec<f32>,
    drop2: Vec<f32>,
    gradient: Vec<f32>,
}

impl Mlp {
    /// A perceptron that reads `inputs` numbers and one token of each table, which has as many rows
    /// as `tables` says; both its layers are `width` wide.
    pub fn new(
        layout: &mut ParameterLayout,
        name: &str,
        inputs: usize,
        tables: &[usize],
        width: usize,
        dropout: f32,
    ) -> Mlp {
        Mlp {
            first: Linear::new(layout, &format!("{name}.first"), inputs, width, 1.0),
            tables: Tables::new(layout, &format!("{name}.tokens"), tables, width, 0.05),
            second: Linear::new(layout, &format!("{name}.second"), width, width, 1.4),
            dropout: Dropout::new(dropout),
        }
    }

    /// Columns of the result.
    pub fn outputs(&self) -> usize {
        self.second.outputs()
    }

    /// Computes the result of samples into `scratch.out`, `n x width`. With `rng` it is a training
    /// step, which drops elements.
    pub fn forward(
        &self,
        parameters: &[f32],
        input: MlpInput,
        rng: Option<&mut impl Rng>,
        scratch: &mut MlpScratch,
    ) {
        let n = input.n;
        let len = n * self.outputs();
        self.first.forward(parameters, input.numbers, n, sized(&mut scratch.z1, len));
        self.tables.forward_onto(parameters, input.tokens, &mut scratch.z1);
        gelu(&scratch.z1, sized(&mut scratch.a1, len));
        let mut rng = rng;
        match &mut rng {
            Some(rng) => self.dropout.forward(rng, &mut scratch.a1, &mut scratch.drop1),
            None => scratch.drop1.clear(),
        }
        self.second.forward(parameters, &scratch.a1, n, sized(&mut scratch.z2, len));
        gelu(&scratch.z2, sized(&mut scratch.out, len));
        match &mut rng {
            Some(rng) => self.dropout.forward(rng, &mut scratch.out, &mut scratch.drop2),
            None => scratch.drop2.clear(),
        }
    }

    /// Adds the gradients of the parameters to `g`; `input` is that of [`Mlp::forward`]. `dout`
    /// is the gradient of the result and is overwritten.
    pub fn backward(
        &self,
        parameters: &[f32],
        input: MlpInput,
        dout: &mut [f32],
        scratch: &mut MlpScratch,
        g: &mut [f32],
    ) {
        if !scratch.drop2.is_empty() {
            self.dropout.backward(&scratch.drop2, dout);
        }
        gelu_backward(&scratch.z2, dout);
        self.second.backward(&scratch.a1, input.n, dout, g);
        let d1 = sized(&mut scratch.gradient, input.n * self.outputs());
        self.second.backward_argument(parameters, dout, input.n, d1, false);
        if !scratch.drop1.is_empty() {
            self.dropout.backward(&scratch.drop1, d1);
        }
        gelu_backward(&scratch.z1, d1);
        self.first.backward(input.numbers, input.n, d1, g);
        self.tables.backward(input.tokens, d1, g);
    }
}
