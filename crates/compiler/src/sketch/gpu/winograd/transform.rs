//! The way of filters and input into shared memory in Winograd's kernel on GPUs. Filters are
//! transformed before the timed call, into a prepared buffer `[panel, input channel, place x output
//! channel]`. The input is loaded with its padding as 4x4 tiles into registers in each step,
//! transformed there (B^T d B), and stored to shared memory. `program.rs` calls these functions in
//! its loop over input channels.

use super::super::loops::{around, launches};
use super::tile::{Maker, OUT, PLACES, SIZE, constant, row_times, tiles_of, var};
use crate::nest::{Mode, Scope, Stmt};
use squall_core::expr::{Affine, Cond, Expr, Source, Var};

impl Maker {
    /// Transforms filters ahead of time: by blocks of output channels, input channel, place, output
    /// channel.
    pub fn filters(&mut self) -> Source {
        let (panels, block, channels) =
            (self.conv.outputs / self.out_block, self.out_block, self.conv.channels);
        let to = self.buffer("filters", vec![panels, channels, PLACES * block], Scope::Prepared);
        let half = self.buffer("half_filter", vec![SIZE, 3], Scope::Local);
        let [panel, c, k] = ["panel_u", "c_u", "k_u"].map(|x| self.n.new_var(x));
        let mut body = vec![Stmt::Local(half)];
        let weight = self.conv.weight;
        let out = Affine::new([(panel, block), (k, 1)], 0);
        for s in 0..3 {
            for (i, g) in self.t.filter.iter().enumerate() {
                let read = |r: i64| {
                    self.rounded(Expr::load(
                        weight,
                        vec![out.clone(), var(c), constant(r), constant(s)],
                    ))
                };
                body.push(Stmt::Store {
                    buffer: half,
                    index: vec![constant(i as i64), constant(s)],
                    value: row_times(g, &read),
                });
            }
        }
        for i in 0..SIZE {
            for (j, g) in self.t.filter.iter().enumerate() {
                let value = row_times(g, &|s| Expr::load(half, vec![constant(i), constant(s)]));
                let place = Affine::new([(k, 1)], (SIZE * i + j as i64) * block);
                body.push(Stmt::Store {
                    buffer: to,
                    index: vec![var(panel), var(c), place],
                    value,
                });
            }
        }
        let all = around(&[(panel, panels), (c, channels), (k, block)], Mode::Serial, body);
        let made = launches(&mut self.n, all);
        self.n.prepare.extend(made);
        to
    }

    /// Loops over the channels and tiles of a step, which threads share when they load and when
    /// they transform: each thread meets the same ones both times.
    fn dealt(&mut self, what: &str) -> [(Var, i64); 2] {
        let [c, j] = ["c", "j"].map(|x| self.n.new_var(&format!("{x}_{what}")));
        [(c, self.whole() / self.held), (j, self.in_block)]
    }

    /// Loads the input of a step with its padding: each thread loads some tiles of 4x4.
    pub fn load(&mut self, d: Source, step: &Affine) -> Vec<Stmt> {
        let order = self.conv.input_channels;
        let [_, _, height, width] =
            order.read(&self.n.buffer(self.conv.input).shape).unwrap_or([1; 4]);
        let (top, left) = self.conv.pad;
        let (down, across, _) = tiles_of(&self.conv);
        // A row or column of the input that may lie outside.
        let inside = |at: &Affine, most: i64, extent: i64| -> Option<Cond> {
            (at.offset() < 0 || OUT * (most - 1) + at.offset() >= extent).then(|| Cond {
                index: at.clone(),
                low: 0,
                high: extent,
            })
        };
        let mut all = Vec::new();
        for h in 0..self.held {
            let [c, j] = self.dealt("d");
            let mut body = Vec::new();
            let [image, row, column] = self.places(&var(j.0), &mut body);
            let channel = Affine::new([(self.rank, self.share()), (c.0, 1)], h * c.1)
                .add(&step.scale(self.whole()));
            for i in 0..SIZE {
                for s in 0..SIZE {
                    let (y, x) = (row.scale(OUT).plus(i - top), column.scale(OUT).plus(s - left));
                    let conds: Vec<Cond> = [inside(&y, down, height), inside(&x, across, width)]
                        .into_iter()
                        .flatten()
                        .collect();
                    let load = self.rounded(Expr::load(
                        self.conv.input,
                        order.write([image.clone(), channel.clone(), y, x]),
                    ));
                    let value = if conds.is_empty() {
                        load
                    } else {
                        Expr::Select {
                            conds,
                            then: Box::new(load),
                            other: Box::new(Expr::Const(0.0)),
                        }
                    };
                    body.push(Stmt::Store {
                        buffer: d,
                        index: vec![constant(h), constant(i), constant(s)],
                        value,
                    });
                }
            }
            all.extend(around(&[c, j], Mode::Share, body));
        }
        all
    }

    /// Transforms what was loaded into a stage of shared memory.
    pub fn transform(&mut self, d: Source, to: Source, stage: &Affine) -> Vec<Stmt> {
        let line = self.line();
        let mut all = Vec::new();
        for h in 0..self.held {
            let [c, j] = self.dealt("v");
            let half = self.buffer("half_d", vec![SIZE, SIZE], Scope::Local);
            let mut body = vec![Stmt::Local(half)];
            for s in 0..SIZE {
                for (i, b) in self.t.input.iter().enumerate() {
                    let value = row_times(b, &|r| {
                        Expr::load(d, vec![constant(h), constant(r), constant(s)])
                    });
                    body.push(Stmt::Store {
                        buffer: half,
                        index: vec![constant(i as i64), constant(s)],
                        value,
                    });
                }
            }
            for i in 0..SIZE {
                for (s, b) in self.t.input.iter().enumerate() {
                    let value = row_times(b, &|r| Expr::load(half, vec![constant(i), constant(r)]));
                    let place = Affine::new([(j.0, 1)], (SIZE * i + s as i64) * line);
                    let channel = Affine::new([(c.0, 1)], h * c.1);
                    body.push(Stmt::Store {
                        buffer: to,
                        index: vec![stage.clone(), channel, place],
                        value,
                    });
                }
            }
            all.extend(around(&[c, j], Mode::Share, body));
        }
        all
    }
}
