//! The primitive `winograd(buffer, [..])`: replaces a 3x3 convolution by Winograd's minimal
//! filtering (Lavin and Gray, CVPR 2016). An output tile of m x m needs (m + 2)^2 products a
//! channel instead of 9 m^2, with a stride of 2 (2 m + 1)^2.
//!
//! Input: a plain loop nest with such a convolution (`find.rs`) and a [`WinogradTile`]. Output:
//! loops that for each block of tile rows (`phases.rs`) copy the input with its padding, channels
//! last; transform it to V; multiply, at each place of a tile, M = U V in register tiles; transform
//! M back and store it through the epilogue. Filters are transformed ahead of time into U, in the
//! order in which the product reads them. The matrices come from `../toom.rs`.

mod find;
mod phases;

use super::toom::{Transforms, combine, row_pairs};
use crate::nest::{Buffer, Loop, Mode, Nest, Scope, Start, Stmt};
pub use find::{Convolution, find};
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Expr, Source};

/// How the convolution is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WinogradTile {
    /// m: outputs of a tile along each axis.
    pub output: i64,
    /// Tile rows of a block, which is transformed as a whole before it is multiplied. Where they
    /// cover more than the output's rows there is one block, and its last tile row is moved back to
    /// end with it.
    pub rows: i64,
    /// Vector lanes, over input channels in the input's transform and over output channels after.
    pub lanes: i64,
    /// Vectors of output channels in the product's register tile.
    pub vectors: i64,
    /// Tiles in the register tile.
    pub tiles: i64,
    /// The unroll factor of the product's inner loop over channels.
    pub unroll: i64,
    /// Whether all tiles of a block are multiplied by one panel of filters before the next panel is
    /// read.
    pub panels_outside: bool,
    /// How the work is divided among threads.
    pub threads: Threads,
}

/// How a convolution's work is dealt to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// There is one thread.
    One,
    /// Threads share each phase of each block and meet after it, which is right where there are few
    /// blocks.
    Phases,
    /// Each thread takes whole blocks, with buffers of its own on its stack.
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

    /// The tile that [`WinogradTile::numbers`] was of; `None` where the last number is no way to
    /// share.
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
    let t = Transforms::strided(tile.output.max(0) as usize, 3, conv.stride as usize)
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
    let conv = m.conv.clone();
    n.prepare.retain(|s| !conv.makes_copy(s));
    n.prepare.extend(prepare);
    n.body = body;
    conv.gone().into_iter().rev().for_each(|b| super::structure::drop_buffer(n, b));
    Ok(())
}

/// A loop's counter and, where its tiles overlap, their start.
type Tiled = (Loop, Affine);

struct Maker<'a> {
    n: &'a mut Nest,
    conv: Convolution,
    w: &'a WinogradTile,
    t: Transforms,
    /// Length of a tile's input, and of a transformed tile.
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
        let size = conv.reach(w.output);
        let across = tiles(conv.width, w.output);
        let in_block = w.rows * across;
        let block = (w.rows * w.output).min(conv.height);
        let places = size * size;
        // Places lie an odd number of lines apart. Otherwise all lines of a transform would meet in
        // the same set of a cache.
        let odd = |elements: i64| (tiles(elements, 16) | 1) * 16;
        let mut buffer = |name: &str, shape: Vec<i64>, scope: Scope| {
            n.new_buffer(Buffer {
                name: name.into(),
                dtype: DType::F32,
                shape,
                scope,
                lenient: false,
            })
        };
        let width = w.lanes * w.vectors;
        let u = buffer(
            "U",
            vec![places, tiles(conv.outputs, width), conv.channels, width],
            Scope::Prepared,
        );
        let scope = if w.threads == Threads::Blocks { Scope::Local } else { Scope::Workspace };
        let x = buffer("Xt", vec![conv.reach(block), conv.reach(conv.width), conv.channels], scope);
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
            lenient: false,
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

    /// U = G g G^T, for every filter. Its loops are not unrolled, because it runs once but is
    /// compiled with every candidate.
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
}
