//! Layers over sequences, time-major: `x[t]` is the `n x width` matrix of step t, one step after
//! another. LSTM (Hochreiter and Schmidhuber 1997), dot-product attention (Luong et al. 2015),
//! convolution over three neighbouring steps. The paper's models (`paper.rs`) are made of them.

use super::vector::{add_row, exp, sigmoid, sum_rows, tanh, wide};
use super::{Linear, Matrix, ParameterLayout, Stored, product, sized, zeroed};

/// The size of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Steps of time.
    pub steps: usize,
    /// Samples, each with a row at every step.
    pub n: usize,
}

impl Steps {
    /// Rows of all steps together.
    pub fn rows(self) -> usize {
        self.steps * self.n
    }
}

/// A long short-term memory. Gates stand in the order input, forget, candidate, output; the forget
/// gate's bias begins at one.
#[derive(Clone, Copy, Debug)]
pub struct Lstm {
    wx: Matrix,
    wh: Matrix,
    b: Matrix,
    hidden: usize,
}

/// The values that [`Lstm`] keeps from its forward pass for the backward pass.
#[derive(Clone, Debug, Default)]
pub struct LstmScratch {
    gates: Vec<f32>,
    /// The initial cell, then each step's: `(steps + 1) x n x hidden`.
    pub cells: Vec<f32>,
    /// The initial output, then each step's.
    pub outputs: Vec<f32>,
    tanh_cells: Vec<f32>,
    dgates: Vec<f32>,
}

/// The gradients that [`Lstm::backward`] reads and writes.
#[derive(Debug)]
pub struct LstmGradients<'a> {
    /// The gradient of every step's output: `steps x n x hidden`.
    pub outputs: &'a [f32],
    /// The further gradients of the last output and cell; they become those of the start.
    pub last: (&'a mut [f32], &'a mut [f32]),
    /// The gradients of the parameters are added to this.
    pub parameters: &'a mut [f32],
    /// Becomes the gradient of the argument, where the caller wants it.
    pub argument: Option<&'a mut [f32]>,
}

/// Where [`Attention::backward`] adds gradients.
#[derive(Debug)]
pub struct AttentionGradients<'a> {
    /// The gradients of the query.
    pub query: &'a mut [f32],
    /// The gradients of the memory.
    pub memory: &'a mut [f32],
}

impl Lstm {
    /// Places for its parameters.
    pub fn new(layout: &mut ParameterLayout, name: &str, inputs: usize, hidden: usize) -> Lstm {
        let bound = |n: usize| (3.0 / n.max(1) as f32).sqrt() * 0.6;
        Lstm {
            wx: layout.matrix(format!("{name}.input"), inputs, 4 * hidden, bound(inputs)),
            wh: layout.matrix(format!("{name}.state"), hidden, 4 * hidden, bound(hidden)),
            b: layout.matrix(format!("{name}.bias"), 1, 4 * hidden, 0.0),
            hidden,
        }
    }

    /// Width of a state.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Runs over the steps. `x` is `steps x n x inputs`; `start` holds the output and the cell to
    /// begin with, each `n x hidden`, zeros if absent. Results are left in `scratch.outputs`
    /// and `scratch.cells`.
    pub fn forward(
        &self,
        p: &[f32],
        x: &[f32],
        Steps { steps, n }: Steps,
        start: Option<(&[f32], &[f32])>,
        scratch: &mut LstmScratch,
    ) {
        let (h, gates_width) = (self.hidden, 4 * self.hidden);
        let size = n * h;
        product(
            [steps * n, gates_width, self.wx.rows],
            (x, Stored::Plain),
            (self.wx.of(p), Stored::Plain),
            sized(&mut scratch.gates, steps * n * gates_width),
            false,
        );
        add_row(self.b.of(p), &mut scratch.gates);
        zeroed(&mut scratch.cells, (steps + 1) * size);
        zeroed(&mut scratch.outputs, (steps + 1) * size);
        sized(&mut scratch.tanh_cells, steps * size);
        if let Some((output, cell)) = start {
            scratch.outputs[..size].copy_from_slice(&output[..size]);
            scratch.cells[..size].copy_from_slice(&cell[..size]);
        }
        for t in 0..steps {
            let gates = &mut scratch.gates[t * n * gates_width..(t + 1) * n * gates_width];
            let (before, outputs) = scratch.outputs[t * size..(t + 2) * size].split_at_mut(size);
            let (before, state) = ((&*before, Stored::Plain), (self.wh.of(p), Stored::Plain));
            product([n, gates_width, h], before, state, gates, true);
            let (old, new) = scratch.cells[t * size..(t + 2) * size].split_at_mut(size);
            let tanh_cells = &mut scratch.tanh_cells[t * size..(t + 1) * size];
            wide(
                #[inline(always)]
                || {
                    for s in 0..n {
                        let (i, rest) =
                            gates[s * gates_width..(s + 1) * gates_width].split_at_mut(h);
                        let (f, rest) = rest.split_at_mut(h);
                        let (g, o) = rest.split_at_mut(h);
                        let at = s * h..(s + 1) * h;
                        let (old, new) = (&old[at.clone()], &mut new[at.clone()]);
                        let (out, tc) = (&mut outputs[at.clone()], &mut tanh_cells[at]);
                        for j in 0..h {
                            i[j] = sigmoid(i[j]);
                            f[j] = sigmoid(f[j] + 1.0);
                            g[j] = tanh(g[j]);
                            o[j] = sigmoid(o[j]);
                            new[j] = f[j] * old[j] + i[j] * g[j];
                            tc[j] = tanh(new[j]);
                            out[j] = o[j] * tc[j];
                        }
                    }
                },
            );
        }
    }

    /// The backward pass of [`Lstm::forward`]; see [`LstmGradients`].
    pub fn backward(
        &self,
        p: &[f32],
        x: &[f32],
        size: Steps,
        scratch: &mut LstmScratch,
        gradients: LstmGradients,
    ) {
        let Steps { steps, n } = size;
        let (h, gates_width) = (self.hidden, 4 * self.hidden);
        let LstmGradients { outputs, last: (dout, dcell), parameters, argument } = gradients;
        sized(&mut scratch.dgates, steps * n * gates_width);
        for t in (0..steps).rev() {
            self.gates_backward(t, n, scratch, &outputs[t * n * h..], dout, dcell);
            let dgates = &scratch.dgates[t * n * gates_width..(t + 1) * n * gates_width];
            let state = (self.wh.of(p), Stored::Transposed);
            product([n, h, gates_width], (dgates, Stored::Plain), state, &mut dout[..n * h], false);
        }
        let (rows, inputs) = (steps * n, self.wx.rows);
        let dgates = (&scratch.dgates[..], Stored::Plain);
        let x = (x, Stored::Transposed);
        product([inputs, gates_width, rows], x, dgates, self.wx.of_mut(parameters), true);
        let before = (&scratch.outputs[..], Stored::Transposed);
        product([h, gates_width, rows], before, dgates, self.wh.of_mut(parameters), true);
        sum_rows(&scratch.dgates[..rows * gates_width], self.b.of_mut(parameters));
        if let Some(dx) = argument {
            let weights = (self.wx.of(p), Stored::Transposed);
            product([rows, inputs, gates_width], dgates, weights, &mut dx[..rows * inputs], false);
        }
    }

    /// The gradients of one step's gates, given those of its output: `dy`, and `dout` from the step
    /// after. `dcell` becomes the gradient of the cell before.
    fn gates_backward(
        &self,
        t: usize,
        n: usize,
        scratch: &mut LstmScratch,
        dy: &[f32],
        dout: &[f32],
        dcell: &mut [f32],
    ) {
        let (h, gates_width) = (self.hidden, 4 * self.hidden);
        let size = n * h;
        let gates = &scratch.gates[t * n * gates_width..(t + 1) * n * gates_width];
        let dgates = &mut scratch.dgates[t * n * gates_width..(t + 1) * n * gates_width];
        let old = &scratch.cells[t * size..(t + 1) * size];
        let tc = &scratch.tanh_cells[t * size..(t + 1) * size];
        wide(
            #[inline(always)]
            || {
                for s in 0..n {
                    let gate = &gates[s * gates_width..(s + 1) * gates_width];
                    let (i, f, g, o) =
                        (&gate[..h], &gate[h..2 * h], &gate[2 * h..3 * h], &gate[3 * h..]);
                    let d = &mut dgates[s * gates_width..(s + 1) * gates_width];
                    let (di, d) = d.split_at_mut(h);
                    let (df, d) = d.split_at_mut(h);
                    let (dg, d_o) = d.split_at_mut(h);
                    for j in 0..h {
                        let at = s * h + j;
                        let total = dy[at] + dout[at];
                        let dc = dcell[at] + total * o[j] * (1.0 - tc[at] * tc[at]);
                        d_o[j] = total * tc[at] * o[j] * (1.0 - o[j]);
                        di[j] = dc * g[j] * i[j] * (1.0 - i[j]);
                        df[j] = dc * old[at] * f[j] * (1.0 - f[j]);
                        dg[j] = dc * i[j] * (1.0 - g[j] * g[j]);
                        dcell[at] = dc * f[j];
                    }
                }
            },
        );
    }
}

/// Dot-product attention, without parameters: each query's mean of a memory's steps, weighed by the
/// soft-max of their products with the query.
pub struct Attention;

impl Attention {
    /// `query` is `n x h`, `memory` `steps x n x h`, `weights` becomes `n x steps`, `out` `n x h`.
    pub fn forward(
        query: &[f32],
        memory: &[f32],
        Steps { steps, n }: Steps,
        weights: &mut [f32],
        out: &mut [f32],
    ) {
        let h = query.len() / n.max(1);
        for s in 0..n {
            let at = |t: usize| &memory[(t * n + s) * h..(t * n + s + 1) * h];
            let (q, w) = (&query[s * h..(s + 1) * h], &mut weights[s * steps..(s + 1) * steps]);
            for (t, w) in w.iter_mut().enumerate() {
                *w = super::vector::dot(q, at(t));
            }
            let top = w.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f32 = w
                .iter_mut()
                .map(|w| {
                    *w = exp(*w - top);
                    *w
                })
                .sum();
            let out = &mut out[s * h..(s + 1) * h];
            out.fill(0.0);
            for (t, w) in w.iter_mut().enumerate() {
                *w /= total;
                super::vector::add_scaled(*w, at(t), out);
            }
        }
    }

    /// Adds the gradients of query and memory, given `dout`, that of the result.
    pub fn backward(
        query: &[f32],
        memory: &[f32],
        Steps { steps, n }: Steps,
        weights: &[f32],
        dout: &[f32],
        gradients: AttentionGradients,
    ) {
        let AttentionGradients { query: dquery, memory: dmemory } = gradients;
        let h = query.len() / n.max(1);
        let mut dw = vec![0.0; steps];
        for s in 0..n {
            let at = |t: usize| (t * n + s) * h..(t * n + s + 1) * h;
            let (w, d) = (&weights[s * steps..(s + 1) * steps], &dout[s * h..(s + 1) * h]);
            for (t, dw) in dw.iter_mut().enumerate() {
                *dw = super::vector::dot(d, &memory[at(t)]);
                super::vector::add_scaled(w[t], d, &mut dmemory[at(t)]);
            }
            let mean: f32 = w.iter().zip(&dw).map(|(w, d)| w * d).sum();
            for t in 0..steps {
                let ds = w[t] * (dw[t] - mean);
                super::vector::add_scaled(ds, &memory[at(t)], &mut dquery[s * h..(s + 1) * h]);
                super::vector::add_scaled(ds, &query[s * h..(s + 1) * h], &mut dmemory[at(t)]);
            }
        }
    }
}

/// A convolution over a step and its two neighbours, zeros beyond the ends.
#[derive(Clone, Copy, Debug)]
pub struct Convolution {
    linear: Linear,
    inputs: usize,
}

impl Convolution {
    /// Places for its parameters.
    pub fn new(
        layout: &mut ParameterLayout,
        name: &str,
        inputs: usize,
        outputs: usize,
    ) -> Convolution {
        Convolution { linear: Linear::new(layout, name, 3 * inputs, outputs, 1.2), inputs }
    }

    /// `x` is `steps x n x inputs`, `y` becomes `steps x n x outputs`; `columns` keeps the
    /// values that the backward pass needs.
    pub fn forward(
        &self,
        p: &[f32],
        x: &[f32],
        size: Steps,
        columns: &mut Vec<f32>,
        y: &mut [f32],
    ) {
        let d = self.inputs;
        zeroed(columns, size.rows() * 3 * d);
        self.each(size, |column, source| {
            columns[column..column + d].copy_from_slice(&x[source..source + d])
        });
        self.linear.forward(p, columns, size.rows(), y);
    }

    /// Adds the gradients of the parameters to `g`; `dx` becomes that of the argument.
    pub fn backward(
        &self,
        p: &[f32],
        size: Steps,
        columns: &[f32],
        dy: &[f32],
        g: &mut [f32],
        dx: &mut [f32],
    ) {
        let (d, rows) = (self.inputs, size.rows());
        self.linear.backward(columns, rows, dy, g);
        let mut dcolumns = vec![0.0; columns.len()];
        self.linear.backward_argument(p, dy, rows, &mut dcolumns, false);
        dx[..rows * d].fill(0.0);
        self.each(size, |column, source| {
            super::vector::add(&dcolumns[column..column + d], &mut dx[source..source + d])
        });
    }

    /// Calls `f` with every place in the columns and the place in the argument that it copies.
    fn each(&self, Steps { steps, n }: Steps, mut f: impl FnMut(usize, usize)) {
        let d = self.inputs;
        for t in 0..steps {
            for (i, from) in [t.wrapping_sub(1), t, t + 1].into_iter().enumerate() {
                if from < steps {
                    for s in 0..n {
                        f(((t * n + s) * 3 + i) * d, (from * n + s) * d);
                    }
                }
            }
        }
    }
}
