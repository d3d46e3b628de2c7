//! The winograd primitive: a 3x3 convolution of stride 1 by fewer multiplications (Lavin and Gray,
//! CVPR 2016). An output tile of m x m needs (m + 2)^2 products a channel instead of 9 m^2.
//!
//! What it writes, for each block of tile rows: the input with its padding, channels last; the
//! transformed input V; for each of the (m + 2)^2 places a matrix product M = U V in register
//! tiles; the transformed output and the epilogue, in the output's order. Filters are transformed
//! ahead of time into U, in the order in which the product reads them.

mod find;

use super::toom::{Transforms, combine, row_pairs};
use crate::nest::{Buffer, Loop, Mode, Nest, Scope, Start, Stmt};
use find::Channels;
pub use find::{Convolution, find};
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Cond, Expr, Source};
use squall_core::workload::Reducer;

/// How the convolution is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WinogradTile {
    /// m: outputs of a tile along each axis.
    pub output: i64,
    /// Tile rows of a block: what is transformed before it is multiplied. Where they cover more
    /// than the output's rows there is one block, and its last tile row is moved back to end with
    /// it.
    pub rows: i64,
    /// Vector lanes, over input channels in the input's transform and over output channels after.
    pub lanes: i64,
    /// Vectors of output channels in the product's register tile.
    pub vectors: i64,
    /// Tiles in the register tile.
    pub tiles: i64,
    /// Channels that the product's inner loop is unrolled by.
    pub unroll: i64,
    /// Whether all tiles of a block meet a panel of filters before the next one is read.
    pub panels_outside: bool,
    /// What threads share.
    pub threads: Threads,
}

/// How a convolution's work is dealt to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// There is one.
    One,
    /// They meet after each phase of each block: right where there are few blocks.
    Phases,
    /// Each takes whole blocks, with buffers of its own on its stack.
    Blocks,
}

impl WinogradTile {
    /// The numbers in the order of the schedule's text.
    pub fn numbers(&self) -> [i64; 8] {
        let flag = |b: bool| i64::from(b);
        let w = self;
        [
            w.output,
            w.rows,
            w.lanes,
            w.vectors,
            w.tiles,
            w.unroll,
            flag(w.panels_outside),
            w.threads as i64,
        ]
    }

    /// Back from [`WinogradTile::numbers`]; none where the last is no way to share.
    pub fn from_numbers(x: [i64; 8]) -> Option<WinogradTile> {
        let [output, rows, lanes, vectors, tiles, unroll, panels, threads] = x;
        let threads = [Threads::One, Threads::Phases, Threads::Blocks]
            .into_iter()
            .find(|t| *t as i64 == threads)?;
        Some(WinogradTile {
            output,
            rows,
            lanes,
            vectors,
            tiles,
            unroll,
            panels_outside: panels != 0,
            threads,
        })
    }
}

/// The least multiple of `step` that covers `extent`, as a count.
fn tiles(extent: i64, step: i64) -> i64 {
    (extent + step - 1) / step
}

/// Replaces the convolution by its Winograd form.
pub fn winograd(n: &mut Nest, name: &str, tile: &WinogradTile) -> Result<(), String> {
    let conv = find(n, name)?;
    if conv.rounded {
        return Err("its factors are rounded to tf32".into());
    }
    let t = Transforms::new(tile.output.max(0) as usize, 3)
        .ok_or_else(|| format!("there are no points for tiles of {}", tile.output))?;
    let w = tile;
    if w.output < 2
        || w.output > conv.height.min(conv.width)
        || w.rows < 1
        || w.rows > tiles(conv.height, w.output)
    {
        return Err(format!(
            "{} rows of {} x {} do not fit the output",
            w.rows, w.output, w.output
        ));
    }
    let in_block = w.rows * tiles(conv.width, w.output);
    if w.lanes < 4
        || w.lanes % 4 != 0
        || w.lanes > conv.channels
        || w.lanes * w.vectors > conv.outputs
        || w.vectors < 1
    {
        return Err("the vectors do not fit the channels".into());
    }
    if w.tiles < 1 || w.tiles > in_block || w.unroll < 1 || conv.channels % w.unroll != 0 {
        return Err("the register tile does not fit its block".into());
    }
    let mut m = Maker::new(n, conv, w, t);
    let prepare = m.filters();
    let body = m.blocks();
    let (filter, sum, padded, weight) = (m.conv.filter, m.conv.sum, m.conv.padded, m.conv.weight);
    // The plain copy of the filter has no reader left.
    let reads_weight = |s: &Stmt| {
        crate::nest::accesses(std::slice::from_ref(s)).iter().any(|a| a.buffer == weight)
    };
    n.prepare.retain(|s| !reads_weight(s));
    n.prepare.extend(prepare);
    n.body = body;
    let mut gone: Vec<Source> = [Some(filter), Some(sum), padded].into_iter().flatten().collect();
    gone.sort();
    gone.into_iter().rev().for_each(|b| super::structure::drop_buffer(n, b));
    Ok(())
}

/// A loop's counter and, where its tiles overlap, their start.
type Tiled = (Loop, Affine);

struct Maker<'a> {
    n: &'a mut Nest,
    conv: Convolution,
    w: &'a WinogradTile,
    t: Transforms,
    /// Length of a transformed tile: m + 2.
    size: i64,
    /// Tiles along a row, and in a block.
    across: i64,
    in_block: i64,
    /// Output rows of a block.
    block: i64,
    /// U [place, panel, channel, lane], V [place, tile x channel], M [place, tile x output].
    u: Source,
    v: Source,
    m: Source,
    /// The block's input [row, column, channel].
    x: Source,
    /// Distance of two tiles' channels in V and M.
    v_row: i64,
    m_row: i64,
}

fn var(l: &Loop) -> Affine {
    Affine::var(l.var)
}

fn around(mut l: Loop, body: Vec<Stmt>) -> Stmt {
    l.body = body;
    Stmt::Loop(l)
}

fn nest(loops: Vec<Loop>, body: Vec<Stmt>) -> Vec<Stmt> {
    loops.into_iter().rev().fold(body, |b, l| vec![around(l, b)])
}

/// One vector statement.
fn vector(n: &mut Nest, lanes: i64, f: &dyn Fn(&Affine) -> Stmt) -> Stmt {
    let l = Loop {
        var: n.new_var("v"),
        extent: lanes,
        mode: Mode::Vector,
        start: None,
        body: Vec::new(),
    };
    let body = vec![f(&var(&l))];
    around(l, body)
}

impl<'a> Maker<'a> {
    fn new(n: &'a mut Nest, conv: Convolution, w: &'a WinogradTile, t: Transforms) -> Maker<'a> {
        let size = w.output + 2;
        let across = tiles(conv.width, w.output);
        let in_block = w.rows * across;
        let block = (w.rows * w.output).min(conv.height);
        let places = size * size;
        // Places lie an odd number of lines apart, or all lines of a transform would meet in the
        // same set of a cache.
        let odd = |elements: i64| (tiles(elements, 16) | 1) * 16;
        let mut buffer = |name: &str, shape: Vec<i64>, scope: Scope| {
            n.new_buffer(Buffer { name: name.into(), dtype: DType::F32, shape, scope })
        };
        let width = w.lanes * w.vectors;
        let u = buffer(
            "U",
            vec![places, tiles(conv.outputs, width), conv.channels, width],
            Scope::Prepared,
        );
        let scope = if w.threads == Threads::Blocks { Scope::Local } else { Scope::Workspace };
        let x = buffer("Xt", vec![block + 2, conv.width + 2, conv.channels], scope);
        let v = buffer("V", vec![places, odd(in_block * conv.channels)], scope);
        let m = buffer("M", vec![places, odd(in_block * conv.outputs)], scope);
        let (v_row, m_row) = (conv.channels, conv.outputs);
        Maker { n, conv, w, t, size, across, in_block, block, u, v, m, x, v_row, m_row }
    }

    fn count(&mut self, name: &str, extent: i64, mode: Mode) -> Loop {
        Loop { var: self.n.new_var(name), extent, mode, start: None, body: Vec::new() }
    }

    fn serial(&mut self, name: &str, extent: i64) -> Loop {
        self.count(name, extent, Mode::Serial)
    }

    /// The outermost loop of a phase.
    fn shared(&mut self, name: &str, extent: i64) -> Loop {
        let mode = if self.w.threads == Threads::Phases { Mode::Parallel } else { Mode::Serial };
        self.count(name, extent, mode)
    }

    /// A loop over tiles of an extent, the last one moved back to end with it.
    fn tiled(&mut self, name: &str, extent: i64, step: i64, shared: bool) -> Tiled {
        let count = tiles(extent, step);
        let mut l = if shared { self.shared(name, count) } else { self.serial(name, count) };
        if extent % step == 0 {
            let at = var(&l).scale(step);
            return (l, at);
        }
        let at = self.n.new_var(&format!("{name}_at"));
        l.start = Some(Start { var: at, step, cap: extent - step });
        (l, Affine::var(at))
    }

    fn local(&mut self, name: &str, shape: Vec<i64>) -> Source {
        self.n.new_buffer(Buffer {
            name: name.into(),
            dtype: DType::F32,
            shape,
            scope: Scope::Local,
        })
    }

    fn lanes(&mut self, lanes: i64, f: &dyn Fn(&Affine) -> Stmt) -> Stmt {
        vector(self.n, lanes, f)
    }

    /// Transforms a column of `terms` (by position; the lane is free) by the rows of a matrix:
    /// `write(row, value)` says where each result goes. Rows of opposite points share their parts.
    fn transform(
        &mut self,
        rows: &[Vec<f64>],
        term: &dyn Fn(usize, &Affine) -> Expr,
        write: &dyn Fn(usize, &Affine, Expr) -> Stmt,
    ) -> Vec<Stmt> {
        let lanes = self.w.lanes;
        let mut out = Vec::new();
        for (i, twin) in row_pairs(rows) {
            let Some(j) = twin else {
                out.push(self.lanes(lanes, &|v| {
                    let value = combine(
                        rows[i]
                            .iter()
                            .enumerate()
                            .map(|(a, c)| (*c, a))
                            .filter(|t| t.0 != 0.0)
                            .map(|(c, a)| (c, term(a, v))),
                    );
                    write(i, v, value.unwrap_or(Expr::Const(0.0)))
                }));
                continue;
            };
            let (even, odd) = (self.local("even", vec![lanes]), self.local("odd", vec![lanes]));
            out.extend([Stmt::Local(even), Stmt::Local(odd)]);
            for (part, same) in [(even, true), (odd, false)] {
                out.push(self.lanes(lanes, &|v| {
                    let picked = (0..rows[i].len())
                        .filter(|&a| rows[i][a] != 0.0 && (rows[i][a] == rows[j][a]) == same);
                    let value = combine(picked.map(|a| (rows[i][a], term(a, v))))
                        .unwrap_or(Expr::Const(0.0));
                    Stmt::Store { buffer: part, index: vec![v.clone()], value }
                }));
            }
            for (row, op) in [(i, Binary::Add), (j, Binary::Sub)] {
                out.push(self.lanes(lanes, &|v| {
                    let part = |b: Source| Expr::load(b, vec![v.clone()]);
                    write(row, v, Expr::binary(op, part(even), part(odd)))
                }));
            }
        }
        out
    }

    /// U = G g G^T, for every filter. Its loops stay loops: it runs once, but is compiled with
    /// every candidate.
    fn filters(&mut self) -> Vec<Stmt> {
        let width = self.w.lanes * self.w.vectors;
        let size = self.size;
        let (panel, k) = self.tiled("panel_U", self.conv.outputs, width, false);
        let (c, lane) = (self.serial("c_U", self.conv.channels), self.serial("lane_U", width));
        let half = self.local("half_U", vec![size, 3]);
        let constant = |x: usize| Affine::constant(x as i64);
        // `write(i, value)` for each row of G times three terms.
        let rows =
            |term: &dyn Fn(usize) -> Expr, write: &dyn Fn(usize, Expr) -> Stmt| -> Vec<Stmt> {
                let value = |g: &[f64]| {
                    combine(g.iter().enumerate().map(|(a, x)| (*x, term(a))))
                        .unwrap_or(Expr::Const(0.0))
                };
                self.t.filter.iter().enumerate().map(|(i, g)| write(i, value(g))).collect()
            };
        let (column, row) = (self.n.new_var("column_U"), self.n.new_var("row_U"));
        let (weight, u) = (self.conv.weight, self.u);
        let first = rows(
            &|r| {
                Expr::load(
                    weight,
                    vec![k.add(&var(&lane)), var(&c), constant(r), Affine::var(column)],
                )
            },
            &|i, value| Stmt::Store {
                buffer: half,
                index: vec![constant(i), Affine::var(column)],
                value,
            },
        );
        let second =
            rows(&|s| Expr::load(half, vec![Affine::var(row), constant(s)]), &|j, value| {
                let place = Affine::var(row).scale(size).plus(j as i64);
                Stmt::Store {
                    buffer: u,
                    index: vec![place, var(&panel), var(&c), var(&lane)],
                    value,
                }
            });
        let serial = |var, extent, body| {
            Stmt::Loop(Loop { var, extent, mode: Mode::Serial, start: None, body })
        };
        let body = vec![Stmt::Local(half), serial(column, 3, first), serial(row, size, second)];
        nest(vec![panel, c, lane], body)
    }

    fn blocks(&mut self) -> Vec<Stmt> {
        let dealt = self.w.threads == Threads::Blocks;
        let mode = if dealt { Mode::Parallel } else { Mode::Serial };
        let batch = (self.conv.batch > 1).then(|| self.count("n", self.conv.batch, mode));
        let image = batch.as_ref().map_or(Affine::constant(0), var);
        let (mut block, y) = self.tiled("block", self.conv.height, self.block, false);
        block.mode = mode;
        let own = if dealt { vec![self.x, self.v, self.m] } else { Vec::new() };
        let mut phases: Vec<Stmt> = own.into_iter().map(Stmt::Local).collect();
        phases.extend(self.gather(&image, &y));
        phases.extend(self.input());
        phases.extend(self.product());
        phases.extend(self.output(&image, &y));
        nest(batch.into_iter().chain([block]).collect(), phases)
    }

    /// The block's rows with their padding, channels last.
    fn gather(&mut self, image: &Affine, y: &Affine) -> Vec<Stmt> {
        let (top, left) = self.conv.pad;
        let order = self.conv.input_channels;
        let Some([_, _, height, width]) = order.read(&self.n.buffer(self.conv.input).shape) else {
            return Vec::new();
        };
        let columns = self.conv.width + 2;
        let row = self.shared("row_X", self.block + 2);
        let from = y.add(&var(&row)).plus(-top);
        let mut inside = Vec::new();
        let kept = width.min(columns - left);
        for (start, count) in [(0, left), (left + kept, columns - left - kept)] {
            if count > 0 {
                inside.extend(self.zeros(&var(&row), start, count));
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
        let reach = self.conv.height + 2 - top;
        let mut body = Vec::new();
        for (low, high) in [(-top, 0), (height, reach)] {
            if low < high {
                let zeros = self.zeros(&var(&row), 0, columns);
                body.push(Stmt::If {
                    conds: vec![Cond { index: from.clone(), low, high }],
                    body: zeros,
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

    /// Zeros in some columns of a row of the block's input.
    fn zeros(&mut self, row: &Affine, start: i64, count: i64) -> Vec<Stmt> {
        let q = self.serial("q_zero", count);
        let (ct, c) = self.tiled("c_zero", self.conv.channels, self.w.lanes, false);
        let column = var(&q).plus(start);
        let set = vector(self.n, self.w.lanes, &|v| Stmt::Store {
            buffer: self.x,
            index: vec![row.clone(), column.clone(), c.add(v)],
            value: Expr::Const(0.0),
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
    fn input(&mut self) -> Vec<Stmt> {
        let size = self.size;
        let ((ty, y), (tx, x), number) = self.tiles_of_block("V", true);
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
    fn product(&mut self) -> Vec<Stmt> {
        let w = self.w;
        let width = w.lanes * w.vectors;
        let place = self.shared("place", self.size * self.size);
        let (panel, k) = self.tiled("panel", self.conv.outputs, width, false);
        let (group, t) = self.tiled("group", self.in_block, w.tiles, false);
        let acc = self.local("acc", vec![w.tiles, width]);
        let (m, u, v, v_row, m_row) = (self.m, self.u, self.v, self.v_row, self.m_row);
        // The register tile's loops, three times.
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
    fn output(&mut self, image: &Affine, y: &Affine) -> Vec<Stmt> {
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
        // For each column or pair of columns, what stands for it in even and in odd rows.
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

/// Columns of A^T that belong together: those of opposite points.
fn columns(rows: &[Vec<f64>]) -> Vec<(usize, Option<usize>)> {
    let transposed: Vec<Vec<f64>> =
        (0..rows[0].len()).map(|j| rows.iter().map(|r| r[j]).collect()).collect();
    row_pairs(&transposed)
}
