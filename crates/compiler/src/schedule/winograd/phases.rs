//! The phases of the primitive `winograd` for one block of tile rows: gather the input with its
//! padding (`gather`), transform it, multiply at every place of a tile, and transform the products
//! back and store them. Methods on the `Maker` of `mod.rs`; each returns the statements of one
//! phase.

use super::find::Channels;
use super::{Maker, Tiled, around, nest, var, vector};
use crate::nest::{Mode, Stmt};
use crate::schedule::toom::{combine, row_pairs};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source};
use squall_core::workload::Reducer;

impl Maker<'_> {
    /// Copies the block's rows with their padding, channels last.
    pub(super) fn gather(&mut self, image: &Affine, y: &Affine) -> Vec<Stmt> {
        let (top, left) = self.conv.pad;
        let order = self.conv.input_channels;
        let Some([_, _, height, width]) = order.read(&self.n.buffer(self.conv.input).shape) else {
            return Vec::new();
        };
        let columns = self.conv.reach(self.conv.width);
        let row = self.shared("row_X", self.conv.reach(self.block));
        let from = y.scale(self.conv.stride).add(&var(&row)).plus(-top);
        let mut inside = Vec::new();
        let kept = width.min(columns - left);
        for (start, count) in [(0, left), (left + kept, columns - left - kept)] {
            if count > 0 {
                inside.extend(self.border(&var(&row), start, count));
            }
        }
        let (ct, c) = self.tiled("c_X", self.conv.channels, self.w.lanes, false);
        let step = 4.min(kept);
        let (qt, q) = self.tiled("q_X", kept, step, false);
        let u = self.count("u_X", step, Mode::Unroll);
        let column = q.add(&var(&u));
        let copy = vector(self.n, self.w.lanes, &|v| {
            let channel = c.add(v);
            let value = Expr::load(
                self.conv.input,
                order.write([image.clone(), channel.clone(), from.clone(), column.clone()]),
            );
            Stmt::Store {
                buffer: self.x,
                index: vec![var(&row), column.plus(left), channel],
                value,
            }
        });
        inside.extend(nest(vec![ct, qt, u], vec![copy]));
        let reach = self.conv.reach(self.conv.height) - top;
        let mut body = Vec::new();
        for (low, high) in [(-top, 0), (height, reach)] {
            if low < high {
                let border = self.border(&var(&row), 0, columns);
                body.push(Stmt::If {
                    conds: vec![Cond { index: from.clone(), low, high }],
                    body: border,
                });
            }
        }
        match body.is_empty() {
            true => body = inside,
            false => body.push(Stmt::If {
                conds: vec![Cond { index: from, low: 0, high: height }],
                body: inside,
            }),
        }
        vec![around(row, body)]
    }

    /// The border in some columns of a row of the block's input.
    fn border(&mut self, row: &Affine, start: i64, count: i64) -> Vec<Stmt> {
        let q = self.serial("q_zero", count);
        let (ct, c) = self.tiled("c_zero", self.conv.channels, self.w.lanes, false);
        let column = var(&q).plus(start);
        let border = self.conv.border;
        let set = vector(self.n, self.w.lanes, &|v| Stmt::Store {
            buffer: self.x,
            index: vec![row.clone(), column.clone(), c.add(v)],
            value: Expr::Const(border),
        });
        nest(vec![q, ct], vec![set])
    }

    /// The loops over a block's tiles: row, column, and the number of the tile.
    fn tiles_of_block(&mut self, suffix: &str, shared: bool) -> (Tiled, Tiled, Affine) {
        let ty = self.tiled(&format!("ty_{suffix}"), self.block, self.w.output, shared);
        let tx = self.tiled(&format!("tx_{suffix}"), self.conv.width, self.w.output, false);
        let number = var(&ty.0).scale(self.across).add(&var(&tx.0));
        (ty, tx, number)
    }

    /// V = B^T d B, lanes over channels.
    pub(super) fn input(&mut self) -> Vec<Stmt> {
        let size = self.size;
        let ((ty, y), (tx, x), number) = self.tiles_of_block("V", true);
        let [y, x] = [y, x].map(|first| first.scale(self.conv.stride));
        let (ct, c) = self.tiled("c_V", self.conv.channels, self.w.lanes, false);
        let half = self.local("half_V", vec![size, size, self.w.lanes]);
        let rows = self.t.input.clone();
        let column = self.serial("column_V", size);
        let (source, into, by_row) = (self.x, self.v, self.v_row);
        let first = self.transform(
            &rows,
            &|a, v| Expr::load(source, vec![y.plus(a as i64), x.add(&var(&column)), c.add(v)]),
            &|i, v, value| Stmt::Store {
                buffer: half,
                index: vec![Affine::constant(i as i64), var(&column), v.clone()],
                value,
            },
        );
        let row = self.serial("row_V", size);
        let second = self.transform(
            &rows,
            &|a, v| Expr::load(half, vec![var(&row), Affine::constant(a as i64), v.clone()]),
            &|j, v, value| {
                let place = var(&row).scale(size).plus(j as i64);
                Stmt::Store {
                    buffer: into,
                    index: vec![place, number.scale(by_row).add(&c).add(v)],
                    value,
                }
            },
        );
        let body = vec![Stmt::Local(half), around(column, first), around(row, second)];
        nest(vec![ty, tx, ct], body)
    }

    /// M = U V at every place.
    pub(super) fn product(&mut self) -> Vec<Stmt> {
        let w = self.w;
        let width = w.lanes * w.vectors;
        let place = self.shared("place", self.size * self.size);
        let (panel, k) = self.tiled("panel", self.conv.outputs, width, false);
        let (group, t) = self.tiled("group", self.in_block, w.tiles, false);
        let acc = self.local("acc", vec![w.tiles, width]);
        let (m, u, v, v_row, m_row) = (self.m, self.u, self.v, self.v_row, self.m_row);
        // The register tile's loops are written three times.
        let tile = |maker: &mut Self, f: &dyn Fn(&Affine, &Affine) -> Stmt| {
            let (ti, ki) = (
                maker.count("ti", w.tiles, Mode::Unroll),
                maker.count("ki", w.vectors, Mode::Unroll),
            );
            let body =
                maker.lanes(w.lanes, &|lane| f(&var(&ti), &var(&ki).scale(w.lanes).add(lane)));
            nest(vec![ti, ki], vec![body])
        };
        let clear = tile(self, &|ti, lane| Stmt::Store {
            buffer: acc,
            index: vec![ti.clone(), lane.clone()],
            value: Expr::Const(0.0),
        });
        let (co, cu) = (
            self.serial("c_M", self.conv.channels / w.unroll),
            self.count("cu_M", w.unroll, Mode::Unroll),
        );
        let c = var(&co).scale(w.unroll).add(&var(&cu));
        let add = tile(self, &|ti, lane| {
            let filter = Expr::load(u, vec![var(&place), var(&panel), c.clone(), lane.clone()]);
            let data = Expr::load(v, vec![var(&place), t.add(ti).scale(v_row).add(&c)]);
            let value = Expr::binary(Binary::Mul, filter, data);
            Stmt::Update {
                op: Reducer::Sum,
                buffer: acc,
                index: vec![ti.clone(), lane.clone()],
                value,
            }
        });
        let keep = tile(self, &|ti, lane| {
            let index = vec![var(&place), t.add(ti).scale(m_row).add(&k).add(lane)];
            Stmt::Store { buffer: m, index, value: Expr::load(acc, vec![ti.clone(), lane.clone()]) }
        });
        let mut body = vec![Stmt::Local(acc)];
        body.extend(clear);
        body.extend(nest(vec![co, cu], add));
        body.extend(keep);
        let loops =
            if w.panels_outside { vec![place, panel, group] } else { vec![place, group, panel] };
        nest(loops, body)
    }

    /// Y = epilogue(A^T M A), lanes over output channels. Where the output has channels last, tiles
    /// are stored as they are made; else a row of tiles is transposed to the output's order first.
    pub(super) fn output(&mut self, image: &Affine, y: &Affine) -> Vec<Stmt> {
        let (size, out, lanes) = (self.size, self.w.output, self.w.lanes);
        let (kt, k) = self.tiled("k_Y", self.conv.outputs, lanes, true);
        let ((ty, tile_y), (tx, x), number) = self.tiles_of_block("Y", false);
        let rows = self.t.output.clone();
        let sums = columns(&rows);
        let half = self.local("half_Y", vec![out, size, lanes]);
        let column = self.serial("column_Y", size);
        let (m, m_row) = (self.m, self.m_row);
        let first = self.gather_rows(
            &rows,
            &sums,
            &|i, v| {
                Expr::load(
                    m,
                    vec![var(&column).plus(i as i64 * size), number.scale(m_row).add(&k).add(v)],
                )
            },
            &|p, v, value| Stmt::Store {
                buffer: half,
                index: vec![Affine::constant(p as i64), var(&column), v.clone()],
                value,
            },
        );
        let row = self.serial("row_Y", out);
        let conv = self.conv.clone();
        let term = |j: usize, v: &Affine| {
            Expr::load(half, vec![var(&row), Affine::constant(j as i64), v.clone()])
        };
        if conv.output_channels == Channels::Last {
            let height = y.add(&tile_y).add(&var(&row));
            let second = self.gather_rows(&rows, &sums, &term, &|q, v, value| {
                conv.store([image.clone(), k.add(v), height.clone(), x.plus(q as i64)], &value)
            });
            let tile = vec![Stmt::Local(half), around(column, first), around(row, second)];
            return nest(vec![kt, ty, tx], tile);
        }
        let line = self.local("line_Y", vec![out, conv.width, lanes]);
        let second = self.gather_rows(&rows, &sums, &term, &|q, v, value| Stmt::Store {
            buffer: line,
            index: vec![var(&row), x.plus(q as i64), v.clone()],
            value,
        });
        let tile = around(tx, vec![Stmt::Local(half), around(column, first), around(row, second)]);
        // Lanes along the output's rows from here on.
        let p = self.serial("p_Y", out);
        let (group, u) = (self.serial("ku_Y", lanes / 4), self.count("u_Y", 4, Mode::Unroll));
        let wide =
            [16, 8, 4, 2, 1].into_iter().find(|&l| l <= conv.width && l <= lanes).unwrap_or(1);
        let (qt, q) = self.tiled("q_Y", conv.width, wide, false);
        let near = var(&group).scale(4).add(&var(&u));
        let height = y.add(&tile_y).add(&var(&p));
        let store = vector(self.n, wide, &|v| {
            let sum = Expr::load(line, vec![var(&p), q.add(v), near.clone()]);
            conv.store([image.clone(), k.add(&near), height.clone(), q.add(v)], &sum)
        });
        let end = nest(vec![p, group, qt, u], vec![store]);
        let mut body = vec![Stmt::Local(line), tile];
        body.extend(end);
        nest(vec![kt, ty], body)
    }

    /// Rows of A^T: every row is made of the sums and differences of opposite points.
    fn gather_rows(
        &mut self,
        rows: &[Vec<f64>],
        pairs: &[(usize, Option<usize>)],
        term: &dyn Fn(usize, &Affine) -> Expr,
        write: &dyn Fn(usize, &Affine, Expr) -> Stmt,
    ) -> Vec<Stmt> {
        let lanes = self.w.lanes;
        let mut out = Vec::new();
        // For each column or pair of columns: its terms in even rows and in odd rows.
        let mut parts: Vec<(usize, Option<(Source, Source)>)> = Vec::new();
        for &(i, twin) in pairs {
            let Some(j) = twin else {
                parts.push((i, None));
                continue;
            };
            let (sum, difference) =
                (self.local("sum", vec![lanes]), self.local("difference", vec![lanes]));
            out.extend([Stmt::Local(sum), Stmt::Local(difference)]);
            for (part, op) in [(sum, Binary::Add), (difference, Binary::Sub)] {
                out.push(self.lanes(lanes, &|v| Stmt::Store {
                    buffer: part,
                    index: vec![v.clone()],
                    value: Expr::binary(op, term(i, v), term(j, v)),
                }));
            }
            parts.push((i, Some((sum, difference))));
        }
        for (p, row) in rows.iter().enumerate() {
            out.push(self.lanes(lanes, &|v| {
                let terms =
                    parts.iter().filter(|(i, _)| row[*i] != 0.0).map(|(i, part)| match part {
                        None => (row[*i], term(*i, v)),
                        Some((sum, difference)) => (
                            row[*i],
                            Expr::load(
                                if p % 2 == 0 { *sum } else { *difference },
                                vec![v.clone()],
                            ),
                        ),
                    });
                write(p, v, combine(terms).unwrap_or(Expr::Const(0.0)))
            }));
        }
        out
    }
}

/// Pairs of columns of A^T: the columns of opposite interpolation points.
fn columns(rows: &[Vec<f64>]) -> Vec<(usize, Option<usize>)> {
    let transposed: Vec<Vec<f64>> =
        (0..rows[0].len()).map(|j| rows.iter().map(|r| r[j]).collect()).collect();
    row_pairs(&transposed)
}
