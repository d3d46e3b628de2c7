//! The division of work in Winograd's kernel on GPUs: how many 2x2 output tiles, output channels
//! and input channels of a step a configuration (a value for each knob) gives to blocks, groups and
//! threads, and the loop variables that count them. Input: a convolution and a configuration;
//! output: a [`Maker`], on which `transform`, `store` and `program` build the loop nest.

use super::super::super::divisors;
use crate::nest::{Buffer, Nest, Scope, Stmt};
use crate::schedule::{Convolution, Transforms, combine};
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::{Configuration, DType};

/// Outputs of a tile along each axis (`OUT`), elements of a transformed tile along each axis
/// (`SIZE`), and elements of a transformed tile (`PLACES`).
pub const OUT: i64 = 2;
pub const SIZE: i64 = OUT + 2;
pub const PLACES: i64 = SIZE * SIZE;

/// The most input tiles that a thread holds in registers.
pub const MOST_HELD: i64 = 4;

/// The numbers of output tiles down an image, across it, and of all images.
pub fn tiles_of(conv: &Convolution) -> (i64, i64, i64) {
    let (down, across) = ((conv.height + OUT - 1) / OUT, (conv.width + OUT - 1) / OUT);
    (down, across, conv.batch * down * across)
}

/// A configuration, and the nest that is written for it.
pub struct Maker {
    pub n: Nest,
    pub conv: Convolution,
    pub t: Transforms,
    /// The tiles of a block: threads, and tiles of each thread (`tile`); its output channels:
    /// threads, channels far apart, channels side by side (`outs`); and the tiles and the channels
    /// of a block in all.
    pub tile: [i64; 2],
    pub outs: [i64; 3],
    pub in_block: i64,
    pub out_block: i64,
    pub chunk: i64,
    pub groups: i64,
    pub cluster: i64,
    pub steps: i64,
    pub stages: i64,
    pub unroll: i64,
    /// Tiles of the input that a thread transforms in a step.
    pub held: i64,
    /// Variables: first tile, number of the channels' block, block in the cluster; group, place,
    /// thread along tiles and channels.
    pub first: Var,
    pub panel: Var,
    pub rank: Var,
    pub group: Var,
    pub place: Var,
    pub thread: [Var; 2],
}

pub fn constant(x: i64) -> Affine {
    Affine::constant(x)
}

pub fn var(v: Var) -> Affine {
    Affine::var(v)
}

/// A row of a matrix times a column of terms.
pub fn row_times(row: &[f64], term: &dyn Fn(i64) -> Expr) -> Expr {
    combine(row.iter().enumerate().map(|(i, x)| (*x, term(i as i64)))).unwrap_or(Expr::Const(0.0))
}

impl Maker {
    pub fn new(base: &Nest, conv: Convolution, c: &Configuration) -> Result<Maker, String> {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let (tile, outs) = (["t_t", "t_i"].map(get), ["k_t", "k_v", "k_i"].map(get));
        let (chunk, groups, cluster) = (get("chunk"), get("split_threads"), get("split_blocks"));
        let (threads, in_block) = (PLACES * tile[0] * outs[0] * groups, tile.iter().product());
        let whole = chunk * groups;
        let held = divisors(whole)
            .into_iter()
            .find(|h| whole / h * in_block <= threads)
            .filter(|h| *h <= MOST_HELD);
        let held = held.ok_or_else(|| {
            format!("{in_block} tiles of {whole} channels are too many for {threads} threads")
        })?;
        let mut n = base.clone();
        let [first, panel, rank, group, place, tt, kt] =
            ["first", "panel", "rank", "group", "place", "tt", "kt"].map(|x| n.new_var(x));
        Ok(Maker {
            n,
            t: Transforms::new(OUT as usize, 3)
                .unwrap_or_else(|| unreachable!("F(2, 3) has points")),
            in_block,
            out_block: outs.iter().product(),
            steps: conv.channels / (chunk * groups * cluster),
            conv,
            tile,
            outs,
            chunk,
            groups,
            cluster,
            stages: get("stages"),
            unroll: get("unroll"),
            held,
            first,
            panel,
            rank,
            group,
            place,
            thread: [tt, kt],
        })
    }

    pub fn buffer(&mut self, name: &str, shape: Vec<i64>, scope: Scope) -> Source {
        self.n.new_buffer(Buffer {
            name: name.into(),
            dtype: DType::F32,
            shape,
            scope,
            lenient: false,
        })
    }

    /// Channels of a step, and of a block.
    pub fn whole(&self) -> i64 {
        self.chunk * self.groups
    }

    pub fn share(&self) -> i64 {
        self.steps * self.whole()
    }

    /// Variables of the sums that a thread owns, their index, and the tile and output channel in
    /// the block.
    pub fn own(&mut self, suffix: &str) -> (Vec<(Var, i64)>, Vec<Affine>, Affine, Affine) {
        let [i, kv, ki] = ["ti", "kv", "ki"].map(|x| self.n.new_var(&format!("{x}_{suffix}")));
        let ([t, k], [threads, far, each]) = (self.thread, self.outs);
        let tile = Affine::new([(t, self.tile[1]), (i, 1)], 0);
        let out = Affine::new([(kv, threads * each), (k, each), (ki, 1)], 0);
        (vec![(kv, far), (i, self.tile[1]), (ki, each)], [i, kv, ki].map(var).to_vec(), tile, out)
    }

    /// A factor, rounded to tf32 where the task says so.
    pub fn rounded(&self, e: Expr) -> Expr {
        if self.conv.rounded { Expr::Cast(DType::Tf32, Box::new(e)) } else { e }
    }

    /// Binds a tile's image, row and column, by its number in the block.
    pub fn places(&mut self, tile: &Affine, body: &mut Vec<Stmt>) -> [Affine; 3] {
        let (down, across, _) = tiles_of(&self.conv);
        let number = var(self.first).add(tile);
        let mut bind = |name: &str, divisor: i64, modulo: i64| {
            if modulo == 1 {
                return constant(0);
            }
            let v = self.n.new_var(name);
            body.push(Stmt::Let { var: v, value: number.clone(), divisor, modulo });
            var(v)
        };
        [
            bind("image", down * across, self.conv.batch),
            bind("row", across, down),
            bind("column", 1, across),
        ]
    }

    /// Distance of two places in the transformed input: whole vectors.
    pub fn line(&self) -> i64 {
        (self.in_block + 3) / 4 * 4
    }
}
