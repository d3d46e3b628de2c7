//! 3x3 convolutions of stride 1 by Winograd's minimal filtering, F(2x2, 3x3), in one kernel: 16
//! products instead of 36 for four outputs (Lavin and Gray, CVPR 2016; docs/decisions/0024).
//!
//! A block computes a number of tiles of 2x2 outputs for a number of output channels. The 16 places
//! of a transformed tile are 16 products of matrices that know nothing of each other: each belongs
//! to threads of its own, which add up tiles x channels in registers. In each step over the
//! channels, filters that were transformed ahead of time are copied to shared memory some steps
//! early, and what the next step needs of the input is loaded into registers before the products of
//! this one and transformed into shared memory after them. In the end the products meet in shared
//! memory to be transformed back. Channels can be split over groups of threads and over the blocks
//! of a cluster, which exchange outputs, not products.

use super::super::{Facts, divisors, powers, start, tile::with_epilogue};
use super::Program;
use super::loops::{around, count, launches, tiles};
use crate::nest::{Buffer, Mode, Nest, Reach, Scope, Stmt, accesses};
use crate::schedule::{Convolution, Transforms, combine, find_convolution};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Var};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Configuration, DType, Gpu, Space};

/// Outputs of a tile along each axis, and places of a transformed one.
const OUT: i64 = 2;
const SIZE: i64 = OUT + 2;
const PLACES: i64 = SIZE * SIZE;

/// Largest error, relative to the largest output, that is to be expected in single precision.
const EXPECTED_ERROR: f64 = 4e-6;

/// Multiplications written out at most.
const MOST_UNROLLED: i64 = 2048;

/// Tiles of the input that a thread holds in registers at most.
const MOST_HELD: i64 = 4;

pub fn derive(f: &Facts<'_>, gpu: Gpu) -> Option<Program> {
    let (w, main) = with_epilogue(f.workload)?;
    let (base, _) = start(&w);
    let conv = find_convolution(&base, &w.stages[main].name).ok()?;
    let wide =
        [conv.input, conv.weight, conv.output].iter().all(|b| base.buffer(*b).dtype == DType::F32);
    if !wide || EXPECTED_ERROR > f.workload.tolerance() {
        return None;
    }
    let space = space(&conv, gpu)?;
    let base = without(base, &conv);
    let make = move |c: &Configuration| Maker::new(&base, conv.clone(), c)?.program();
    Some(Program { name: "gpu_winograd".into(), space, gpu, make: Box::new(make) })
}

/// The nest without the convolution's loops. Buffers that nothing uses any more take no room as
/// local ones; the sum's stays as the epilogue's name for what replaces it.
fn without(mut n: Nest, conv: &Convolution) -> Nest {
    let reads =
        |s: &Stmt| accesses(std::slice::from_ref(s)).iter().any(|a| a.buffer == conv.weight);
    n.prepare.retain(|s| !reads(s));
    n.body.clear();
    for gone in [Some(conv.filter), Some(conv.sum), conv.padded].into_iter().flatten() {
        n.buffers[gone.0 as usize].scope = Scope::Local;
    }
    let prepare = std::mem::take(&mut n.prepare);
    n.prepare = launches(&mut n, prepare);
    n
}

/// Tiles along rows and columns, and of all images.
fn tiles_of(conv: &Convolution) -> (i64, i64, i64) {
    let (down, across) = ((conv.height + OUT - 1) / OUT, (conv.width + OUT - 1) / OUT);
    (down, across, conv.batch * down * across)
}

fn space(conv: &Convolution, gpu: Gpu) -> Option<Space> {
    let (_, _, total) = tiles_of(conv);
    let some = |extent: i64, most: i64| -> Vec<i64> {
        let most = most.min(extent);
        powers(1, most).chain(divisors(extent).into_iter().filter(|d| *d <= most)).collect()
    };
    let tile = |axis: &str, level| Role::Tile { axis: axis.into(), level };
    let channels = conv.channels;
    let two = |most: i64| {
        divisors(channels).into_iter().filter(move |d| *d <= most && d.count_ones() == 1)
    };
    let knobs = vec![
        Knob::ints("t_t", tile("tiles", 0), some(total, 16)),
        Knob::ints("t_i", tile("tiles", 1), some(total, 16)),
        Knob::ints("k_t", tile("k", 0), some(conv.outputs, 32)),
        Knob::ints("k_v", tile("k", 1), some(conv.outputs, 2)),
        Knob::ints("k_i", tile("k", 2), some(conv.outputs, 8)),
        Knob::ints("chunk", tile("c", 0), divisors(channels).into_iter().filter(|d| *d <= 32)),
        Knob::ints("split_threads", tile("c", 1), two(8)),
        Knob::ints("split_blocks", tile("c", 2), two(gpu.cluster())),
        Knob::ints("stages", Role::Choice, [2, 3]),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8]),
    ];
    let product = |names: &[&str]| Term::product(names.iter().map(|k| Term::knob(*k)));
    let of_tiles = || product(&["t_t", "t_i"]);
    let of_outputs = || product(&["k_t", "k_v", "k_i"]);
    let sums = || product(&["t_i", "k_v", "k_i"]);
    let threads = || Term::product([product(&["t_t", "k_t", "split_threads"]), Term::from(PLACES)]);
    let whole = || product(&["chunk", "split_threads"]);
    let words = |t: Term| Term::product([t, Term::from(4 * PLACES)]);
    let kept = Term::sum([
        Term::product([Term::from(2), of_tiles()]),
        Term::product([Term::knob("stages"), of_outputs()]),
    ]);
    let kept = words(Term::product([whole(), kept]));
    let met = words(Term::product([Term::knob("split_threads"), of_tiles(), of_outputs()]));
    let steps = Term::from(channels).ceil_div(product(&["chunk", "split_threads", "split_blocks"]));
    let room = i64::from(gpu.shared_per_block);
    let must = [
        of_tiles().at_most(total),
        // Overlapping tiles may waste a seventh.
        Term::product([Term::from(total).ceil_div(of_tiles()), of_tiles(), Term::from(7)])
            .at_most(8 * total),
        of_outputs().divides(conv.outputs),
        sums().at_most(64),
        Term::product([sums(), Term::knob("unroll")]).at_most(MOST_UNROLLED),
        threads().at_most(i64::from(gpu.threads_per_block)),
        product(&["chunk", "split_threads", "split_blocks"]).divides(channels),
        Term::knob("stages").at_most(Term::sum([steps, Term::from(1)])),
        of_tiles().at_most(threads()),
        Term::product([of_tiles(), whole()])
            .at_most(Term::product([threads(), Term::from(MOST_HELD)])),
        Term::knob("unroll").equals(1).or(Term::knob("unroll").divides(Term::knob("chunk"))),
        Term::knob("split_blocks").divides(of_outputs()),
        kept.at_most(room),
        met.at_most(room),
    ];
    // Products of few numbers wait for shared memory, few threads for everything, small steps for
    // each other.
    let enough = |at_least: i64, t: Term| Term::from(at_least).at_most(t);
    let should = [
        enough(14, sums()),
        enough(128, threads()),
        enough(4, whole()),
        enough(2, Term::knob("unroll")),
    ];
    let all: Vec<Term> = must.iter().chain(&should).cloned().collect();
    Space::new(knobs.clone(), &all).or_else(|_| Space::new(knobs, &must)).ok()
}

/// A configuration on its way to a nest.
struct Maker {
    n: Nest,
    conv: Convolution,
    t: Transforms,
    /// Tiles of a block: threads, those of one; output channels: threads, far apart, next to each
    /// other; and in all.
    tile: [i64; 2],
    outs: [i64; 3],
    in_block: i64,
    out_block: i64,
    chunk: i64,
    groups: i64,
    cluster: i64,
    steps: i64,
    stages: i64,
    unroll: i64,
    /// Tiles of the input that a thread transforms in a step.
    held: i64,
    /// Variables: first tile, number of the channels' block, block in the cluster; group, place,
    /// thread along tiles and channels.
    first: Var,
    panel: Var,
    rank: Var,
    group: Var,
    place: Var,
    thread: [Var; 2],
}

fn constant(x: i64) -> Affine {
    Affine::constant(x)
}

fn var(v: Var) -> Affine {
    Affine::var(v)
}

/// A row of a matrix times a column of terms.
fn row_times(row: &[f64], term: &dyn Fn(i64) -> Expr) -> Expr {
    combine(row.iter().enumerate().map(|(i, x)| (*x, term(i as i64)))).unwrap_or(Expr::Const(0.0))
}

impl Maker {
    fn new(base: &Nest, conv: Convolution, c: &Configuration) -> Result<Maker, String> {
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

    fn buffer(&mut self, name: &str, shape: Vec<i64>, scope: Scope) -> Source {
        self.n.new_buffer(Buffer { name: name.into(), dtype: DType::F32, shape, scope })
    }

    /// Channels of a step, and of a block.
    fn whole(&self) -> i64 {
        self.chunk * self.groups
    }

    fn share(&self) -> i64 {
        self.steps * self.whole()
    }

    fn program(mut self) -> Result<Nest, String> {
        let filters = self.filters();
        let shape = vec![self.tile[1], self.outs[1], self.outs[2]];
        let sums = self.buffer("sums", shape, Scope::Local);
        let mut body = vec![Stmt::Local(sums)];
        let (loops, index, ..) = self.own("z");
        body.extend(around(
            &loops,
            Mode::Unroll,
            vec![Stmt::Store { buffer: sums, index, value: Expr::Const(0.0) }],
        ));
        self.products(sums, filters, &mut body);
        self.back(sums, &mut body);
        let threads = [
            (self.group, self.groups),
            (self.place, PLACES),
            (self.thread[0], self.tile[0]),
            (self.thread[1], self.outs[0]),
        ];
        let body = vec![count(
            self.rank,
            self.cluster,
            Mode::Cluster,
            around(&threads, Mode::Thread, body),
        )];
        let block = self.n.new_var("block");
        let body = vec![tiles(block, self.first, tiles_of(&self.conv).2, self.in_block, body)];
        self.n.body =
            around(&[(self.panel, self.conv.outputs / self.out_block)], Mode::Block, body);
        Ok(self.n)
    }

    /// Variables of the sums that a thread owns, their index, and the tile and output channel in
    /// the block.
    fn own(&mut self, suffix: &str) -> (Vec<(Var, i64)>, Vec<Affine>, Affine, Affine) {
        let [i, kv, ki] = ["ti", "kv", "ki"].map(|x| self.n.new_var(&format!("{x}_{suffix}")));
        let ([t, k], [threads, far, each]) = (self.thread, self.outs);
        let tile = Affine::new([(t, self.tile[1]), (i, 1)], 0);
        let out = Affine::new([(kv, threads * each), (k, each), (ki, 1)], 0);
        (vec![(kv, far), (i, self.tile[1]), (ki, each)], [i, kv, ki].map(var).to_vec(), tile, out)
    }

    /// Transforms filters ahead of time: by blocks of output channels, input channel, place, output
    /// channel.
    fn filters(&mut self) -> Source {
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

    /// A factor as the task allows it to be taken.
    fn rounded(&self, e: Expr) -> Expr {
        if self.conv.rounded { Expr::Cast(DType::Tf32, Box::new(e)) } else { e }
    }

    /// Binds a tile's image, row and column, by its number in the block.
    fn places(&mut self, tile: &Affine, body: &mut Vec<Stmt>) -> [Affine; 3] {
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

    /// The channels and tiles of a step that threads load, and later transform, as their h-th.
    fn dealt(&mut self, what: &str) -> [(Var, i64); 2] {
        let [c, j] = ["c", "j"].map(|x| self.n.new_var(&format!("{x}_{what}")));
        [(c, self.whole() / self.held), (j, self.in_block)]
    }

    /// Loads what a step needs of the input, with its padding: each thread some tiles of 4x4.
    fn load(&mut self, d: Source, step: &Affine) -> Vec<Stmt> {
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
    fn transform(&mut self, d: Source, to: Source, stage: &Affine) -> Vec<Stmt> {
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

    /// Distance of two places in the transformed input: whole vectors.
    fn line(&self) -> i64 {
        (self.in_block + 3) / 4 * 4
    }

    /// Adds up products over the block's channels.
    fn products(&mut self, sums: Source, filters: Source, body: &mut Vec<Stmt>) {
        let line = self.line();
        let (whole, block, ahead) = (self.whole(), self.out_block, self.stages - 1);
        let v = self.buffer("transformed", vec![2, whole, PLACES * line], Scope::Shared);
        let u = self.buffer("filters_s", vec![self.stages, whole, PLACES * block], Scope::Shared);
        let d = self.buffer("d", vec![self.held, SIZE, SIZE], Scope::Local);
        let fetch = |me: &mut Self, step: &Affine, stage: &Affine| -> Stmt {
            let [c, x, lane] = ["c_f", "x_f", "lane_f"].map(|x| me.n.new_var(x));
            let at = Affine::new([(x, 4), (lane, 1)], 0);
            let channel = Affine::new([(me.rank, me.share()), (c, 1)], 0).add(&step.scale(whole));
            let value = Expr::load(filters, vec![var(me.panel), channel, at.clone()]);
            let copy = Stmt::Store { buffer: u, index: vec![stage.clone(), var(c), at], value };
            let copy = count(lane, 4, Mode::Vector, vec![copy]);
            around(&[(c, whole), (x, PLACES * block / 4)], Mode::Share, vec![copy]).remove(0)
        };
        let mut inner = vec![Stmt::Local(v), Stmt::Local(u), Stmt::Local(d)];
        // Loads before copies: they are waited for first.
        inner.extend(self.load(d, &constant(0)));
        let s = self.n.new_var("s");
        let first = fetch(self, &var(s), &var(s));
        inner.push(count(s, ahead, Mode::Unroll, vec![first, Stmt::CommitCopies]));
        inner.extend(self.transform(d, v, &constant(0)));
        let [step, stage, later, turn, other] =
            ["step", "stage", "later", "turn", "other"].map(|x| self.n.new_var(x));
        let now = var(step);
        let mut each = vec![Stmt::AwaitCopies((ahead - 1) as u32), Stmt::Barrier(Reach::Block)];
        let number = |var: Var, plus: i64, modulo: i64| Stmt::Let {
            var,
            value: now.plus(plus),
            divisor: 1,
            modulo,
        };
        each.extend([
            number(stage, 0, self.stages),
            number(later, ahead, self.stages),
            number(turn, 0, 2),
            number(other, 1, 2),
        ]);
        let exists = |plus: i64| vec![Cond { index: now.plus(plus), low: 0, high: self.steps }];
        let (copied, next) = (exists(ahead), exists(1));
        let load = self.load(d, &now.plus(1));
        each.push(Stmt::If { conds: next.clone(), body: load });
        let copy = fetch(self, &now.plus(ahead), &var(later));
        each.push(Stmt::If { conds: copied, body: vec![copy] });
        each.push(Stmt::CommitCopies);
        each.push(self.multiply(sums, [(v, var(turn)), (u, var(stage))]));
        let transform = self.transform(d, v, &var(other));
        each.push(Stmt::If { conds: next, body: transform });
        inner.extend([count(step, self.steps, Mode::Serial, each), Stmt::Barrier(Reach::Block)]);
        // A loop that runs once gives the tiles a block of statements, at whose end their place is
        // free.
        let once = self.n.new_var("once");
        body.push(count(once, 1, Mode::Serial, inner));
    }

    /// Adds the products of a step.
    fn multiply(&mut self, sums: Source, [(v, turn), (u, stage)]: [(Source, Affine); 2]) -> Stmt {
        let [co, cu] = ["co", "cu"].map(|x| self.n.new_var(x));
        let (loops, index, tile, out) = self.own("c");
        let within = Affine::new([(self.group, self.chunk), (co, self.unroll), (cu, 1)], 0);
        let place = |each: i64, at: &Affine| Affine::new([(self.place, each)], 0).add(at);
        let left = Expr::load(v, vec![turn, within.clone(), place(self.line(), &tile)]);
        let right = Expr::load(u, vec![stage, within, place(self.out_block, &out)]);
        let add = Stmt::Update {
            op: squall_core::workload::Reducer::Sum,
            buffer: sums,
            index,
            value: Expr::binary(Binary::Mul, left, right),
        };
        let sum = around(&loops, Mode::Unroll, vec![add]);
        count(
            co,
            self.chunk / self.unroll,
            Mode::Serial,
            vec![count(cu, self.unroll, Mode::Unroll, sum)],
        )
    }

    /// Brings the products of all places together, transforms them back and stores the outputs.
    fn back(&mut self, sums: Source, body: &mut Vec<Stmt>) {
        // Odd distances: the threads of a warp shall not meet in banks, neither writing nor
        // reading.
        let row = self.in_block | 1;
        let plane = (self.out_block * row + 31) / 32 * 32 + 1;
        let met = self.buffer("products", vec![self.groups, PLACES, plane], Scope::Shared);
        body.push(Stmt::Local(met));
        let (loops, index, tile, out) = self.own("m");
        let to = vec![var(self.group), var(self.place), out.scale(row).add(&tile)];
        let put = Stmt::Store { buffer: met, index: to, value: Expr::load(sums, index) };
        body.extend(around(&loops, Mode::Unroll, vec![put]));
        body.push(Stmt::Barrier(Reach::Block));
        let [k, j] = ["k_y", "j_y"].map(|x| self.n.new_var(x));
        let [m, half] = [("m", SIZE), ("half_m", OUT)]
            .map(|(x, rows)| self.buffer(x, vec![rows, SIZE], Scope::Local));
        let mut each = vec![Stmt::Local(m), Stmt::Local(half)];
        for i in 0..PLACES {
            let part = |g: i64| {
                Expr::load(met, vec![constant(g), constant(i), Affine::new([(k, row), (j, 1)], 0)])
            };
            let value = (0..self.groups)
                .map(part)
                .reduce(|a, b| Expr::binary(Binary::Add, a, b))
                .unwrap_or(Expr::Const(0.0));
            each.push(Stmt::Store {
                buffer: m,
                index: vec![constant(i / SIZE), constant(i % SIZE)],
                value,
            });
        }
        for s in 0..SIZE {
            for (i, a) in self.t.output.iter().enumerate() {
                let value = row_times(a, &|r| Expr::load(m, vec![constant(r), constant(s)]));
                each.push(Stmt::Store {
                    buffer: half,
                    index: vec![constant(i as i64), constant(s)],
                    value,
                });
            }
        }
        let outputs = self.t.output.clone();
        let value = |i: i64, s: i64| {
            row_times(&outputs[s as usize], &|r| Expr::load(half, vec![constant(i), constant(r)]))
        };
        if self.cluster == 1 {
            let at = self.places(&var(j), &mut each);
            for i in 0..OUT {
                for s in 0..OUT {
                    each.extend(self.store(
                        &at,
                        &var(k),
                        [constant(i), constant(s)],
                        Vec::new(),
                        &value(i, s),
                    ));
                }
            }
            body.extend(around(&[(k, self.out_block), (j, self.in_block)], Mode::Share, each));
            return body.push(Stmt::Barrier(Reach::Block));
        }
        let shape = vec![self.cluster, self.out_block, OUT, self.in_block, OUT];
        let partial = self.buffer("partial", shape, Scope::Cluster);
        body.push(Stmt::Local(partial));
        for i in 0..OUT {
            for s in 0..OUT {
                let index = vec![var(self.rank), var(k), constant(i), var(j), constant(s)];
                each.push(Stmt::Store { buffer: partial, index, value: value(i, s) });
            }
        }
        body.extend(around(&[(k, self.out_block), (j, self.in_block)], Mode::Share, each));
        body.push(Stmt::Barrier(Reach::Cluster));
        let [k, i, j, s, r] = ["k_e", "i_e", "j_e", "s_e", "r_e"].map(|x| self.n.new_var(x));
        let slice = self.out_block / self.cluster;
        let sum = self.buffer("sum", vec![1], Scope::Local);
        let zero = || vec![constant(0)];
        let out = Affine::new([(self.rank, slice), (k, 1)], 0);
        let from = Expr::load(partial, vec![var(r), out.clone(), var(i), var(j), var(s)]);
        let add = Stmt::Update {
            op: squall_core::workload::Reducer::Sum,
            buffer: sum,
            index: zero(),
            value: from,
        };
        let mut each = Vec::new();
        let at = self.places(&var(j), &mut each);
        let mut added = vec![
            Stmt::Local(sum),
            Stmt::Store { buffer: sum, index: zero(), value: Expr::Const(0.0) },
        ];
        added.extend(around(&[(r, self.cluster)], Mode::Unroll, vec![add]));
        each.extend(self.store(&at, &out, [var(i), var(s)], added, &Expr::load(sum, zero())));
        body.extend(around(
            &[(k, slice), (i, OUT), (j, self.in_block), (s, OUT)],
            Mode::Share,
            each,
        ));
        body.push(Stmt::Barrier(Reach::Cluster));
    }

    /// Stores an output of a tile where there is one, behind what makes it.
    fn store(
        &self,
        tile: &[Affine; 3],
        k: &Affine,
        within: [Affine; 2],
        mut made: Vec<Stmt>,
        value: &Expr,
    ) -> Vec<Stmt> {
        let [image, row, column] = tile;
        let (down, across, _) = tiles_of(&self.conv);
        let (y, x) = (row.scale(OUT).add(&within[0]), column.scale(OUT).add(&within[1]));
        let out = Affine::new([(self.panel, self.out_block)], 0).add(k);
        let ends = [(&y, down, self.conv.height), (&x, across, self.conv.width)];
        let conds: Vec<Cond> = ends
            .into_iter()
            .filter(|(_, tiles, extent)| tiles * OUT > *extent)
            .map(|(at, _, extent)| Cond { index: at.clone(), low: 0, high: extent })
            .collect();
        made.push(self.conv.store([image.clone(), out, y, x], value));
        if conds.is_empty() { made } else { vec![Stmt::If { conds, body: made }] }
    }
}
