//! Layers over sequences, time-major: `x[t]` is the `n x width` matrix of step t, one step after
//! another. LSTM (Hochreiter and Schmidhuber 1997), dot-product attention (Luong et al. 2015),
//! convolution over three neighbouring steps.

use super::vector::{add_row, exp, sigmoid, sum_rows, tanh, wide};
use super::{Layout, Linear, Matrix, Stored, product, sized, zeroed};

/// A long short-term memory. Gates stand in the order input, forget, candidate, output; the forget
/// gate's bias begins at one.
#[derive(Clone, Copy, Debug)]
pub struct Lstm {
    wx: Matrix,
    wh: Matrix,
    b: Matrix,
    hidden: usize,
}

/// What [`Lstm`] keeps between forward and backward.
#[derive(Clone, Debug, Default)]
pub struct LstmRoom {
    gates: Vec<f32>,
    /// The initial cell, then each step's: `(steps + 1) x n x hidden`.
    pub cells: Vec<f32>,
    /// The initial output, then each step's.
    pub outputs: Vec<f32>,
    tanh_cells: Vec<f32>,
    dgates: Vec<f32>,
}

impl Lstm {
    /// Places for its parameters.
    pub fn new(layout: &mut Layout, name: &str, inputs: usize, hidden: usize) -> Lstm {
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

    /// Runs over `steps` steps of `n` samples. `start` holds output and cell to begin with, zeros
    /// if absent. Results stand in `room.outputs` and `room.cells`.
    pub fn forward(
        &self,
        p: &[f32],
        x: &[f32],
        steps: usize,
        n: usize,
        start: Option<(&[f32], &[f32])>,
        room: &mut LstmRoom,
    ) {
        let (h, wide_h) = (self.hidden, 4 * self.hidden);
        let size = n * h;
        sized(&mut room.gates, steps * n * wide_h);
        product(
            steps * n,
            wide_h,
            self.wx.rows,
            (x, Stored::Plain),
            (self.wx.of(p), Stored::Plain),
            &mut room.gates,
            false,
        );
        add_row(self.b.of(p), &mut room.gates);
        zeroed(&mut room.cells, (steps + 1) * size);
        zeroed(&mut room.outputs, (steps + 1) * size);
        sized(&mut room.tanh_cells, steps * size);
        if let Some((output, cell)) = start {
            room.outputs[..size].copy_from_slice(&output[..size]);
            room.cells[..size].copy_from_slice(&cell[..size]);
        }
        for t in 0..steps {
            let gates = &mut room.gates[t * n * wide_h..(t + 1) * n * wide_h];
            let before = &room.outputs[t * size..(t + 1) * size];
            product(
                n,
                wide_h,
                h,
                (before, Stored::Plain),
                (self.wh.of(p), Stored::Plain),
                gates,
                true,
            );
            let (old, new) = room.cells[t * size..(t + 2) * size].split_at_mut(size);
            let outputs = &mut room.outputs[(t + 1) * size..(t + 2) * size];
            let tanh_cells = &mut room.tanh_cells[t * size..(t + 1) * size];
            wide(
                #[inline(always)]
                || {
                    for s in 0..n {
                        let (i, rest) = gates[s * wide_h..(s + 1) * wide_h].split_at_mut(h);
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

    /// Adds the gradients of the parameters. `doutputs` is the gradient of every step's output;
    /// `dstate` that of the last output and cell beside, and becomes that of the first. `dx`, where
    /// wanted, becomes the gradient of the argument.
    #[allow(clippy::too_many_arguments)] // what forward took, and the gradients
    pub fn backward(
        &self,
        p: &[f32],
        x: &[f32],
        steps: usize,
        n: usize,
        doutputs: &[f32],
        dstate: (&mut [f32], &mut [f32]),
        room: &mut LstmRoom,
        gradient: &mut [f32],
        dx: Option<&mut [f32]>,
    ) {
        let (h, wide_h) = (self.hidden, 4 * self.hidden);
        let size = n * h;
        let (dout, dcell) = dstate;
        sized(&mut room.dgates, steps * n * wide_h);
        for t in (0..steps).rev() {
            let gates = &room.gates[t * n * wide_h..(t + 1) * n * wide_h];
            let dgates = &mut room.dgates[t * n * wide_h..(t + 1) * n * wide_h];
            let (old, tc) =
                (&room.cells[t * size..(t + 1) * size], &room.tanh_cells[t * size..(t + 1) * size]);
            let dy = &doutputs[t * size..(t + 1) * size];
            wide(
                #[inline(always)]
                || {
                    for s in 0..n {
                        let gate = &gates[s * wide_h..(s + 1) * wide_h];
                        let (i, f, g, o) =
                            (&gate[..h], &gate[h..2 * h], &gate[2 * h..3 * h], &gate[3 * h..]);
                        let d = &mut dgates[s * wide_h..(s + 1) * wide_h];
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
            product(
                n,
                h,
                wide_h,
                (dgates, Stored::Plain),
                (self.wh.of(p), Stored::Transposed),
                &mut dout[..size],
                false,
            );
        }
        let rows = steps * n;
        product(
            self.wx.rows,
            wide_h,
            rows,
            (x, Stored::Transposed),
            (&room.dgates, Stored::Plain),
            self.wx.of_mut(gradient),
            true,
        );
        product(
            h,
            wide_h,
            rows,
            (&room.outputs, Stored::Transposed),
            (&room.dgates, Stored::Plain),
            self.wh.of_mut(gradient),
            true,
        );
        sum_rows(&room.dgates[..rows * wide_h], self.b.of_mut(gradient));
        if let Some(dx) = dx {
            let inputs = self.wx.rows;
            product(
                rows,
                inputs,
                wide_h,
                (&room.dgates, Stored::Plain),
                (self.wx.of(p), Stored::Transposed),
                &mut dx[..rows * inputs],
                false,
            );
        }
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
        steps: usize,
        n: usize,
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

    /// Adds the gradients of query and memory, given that of the result.
    #[allow(clippy::too_many_arguments)] // what forward took, and the gradients
    pub fn backward(
        query: &[f32],
        memory: &[f32],
        steps: usize,
        n: usize,
        weights: &[f32],
        dout: &[f32],
        dquery: &mut [f32],
        dmemory: &mut [f32],
    ) {
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
    pub fn new(layout: &mut Layout, name: &str, inputs: usize, outputs: usize) -> Convolution {
        Convolution { linear: Linear::new(layout, name, 3 * inputs, outputs, 1.2), inputs }
    }

    /// `x` is `steps x n x inputs`, `y` becomes `steps x n x outputs`; `columns` keeps what
    /// backward needs.
    pub fn forward(
        &self,
        p: &[f32],
        x: &[f32],
        steps: usize,
        n: usize,
        columns: &mut Vec<f32>,
        y: &mut [f32],
    ) {
        let d = self.inputs;
        zeroed(columns, steps * n * 3 * d);
        self.each(steps, n, |column, source| {
            columns[column..column + d].copy_from_slice(&x[source..source + d])
        });
        self.linear.forward(p, columns, steps * n, y);
    }

    /// Adds the gradients of the parameters; `dx` becomes that of the argument.
    #[allow(clippy::too_many_arguments)] // what forward took, and the gradients
    pub fn backward(
        &self,
        p: &[f32],
        steps: usize,
        n: usize,
        columns: &[f32],
        dy: &[f32],
        g: &mut [f32],
        dx: &mut [f32],
    ) {
        let d = self.inputs;
        self.linear.backward(columns, steps * n, dy, g);
        let mut dcolumns = vec![0.0; columns.len()];
        self.linear.backward_argument(p, dy, steps * n, &mut dcolumns, false);
        dx[..steps * n * d].fill(0.0);
        self.each(steps, n, |column, source| {
            super::vector::add(&dcolumns[column..column + d], &mut dx[source..source + d])
        });
    }

    /// Every place in the columns with the place in the argument that it copies.
    fn each(&self, steps: usize, n: usize, mut f: impl FnMut(usize, usize)) {
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
