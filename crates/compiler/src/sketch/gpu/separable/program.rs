//! The program of a separable convolution: a tile of places in a block, and a walk through chunks
//! of the channels between. Each step's elements are dealt to the block's threads in turn, those
//! of the pointwise convolutions a few at a time.
//!
//! Places of the tile, and of what its windows read, are counted along one line. Where a thread
//! has several and they do not come out even, the line goes on: with its first places again, or
//! with zeros. What is computed of those is no part of the result.

use super::super::loops::{around, count, launches, tiles, total};
use super::Problem;
use crate::nest::{Buffer, Mode, Nest, Reach, Scope, Stmt};
use squall_core::expr::{Affine, Binary, Expr, Source, Var};
use squall_core::operator::{Place, Pointwise, Separable};
use squall_core::workload::Reducer;
use squall_core::{Configuration, DType};

/// The nest of a configuration.
pub fn program(p: &Problem, c: &Configuration) -> Nest {
    Writer::new(p, c).program()
}

/// Places in a tile: along rows and columns, and along the line that counts them.
#[derive(Clone, Copy)]
struct Places {
    sides: [i64; 2],
    /// So many come out even for the threads.
    line: i64,
}

impl Places {
    fn new(sides: [i64; 2], near: i64) -> Places {
        let all = sides[0] * sides[1];
        Places { sides, line: (all + near - 1) / near * near }
    }

    fn all(&self) -> i64 {
        self.sides[0] * self.sides[1]
    }
}

/// What a pointwise convolution has in shared memory, and a thread's channels and places of it.
#[derive(Clone, Copy)]
struct Product {
    data: Source,
    weight: Source,
    /// Weights in tiles of a chunk.
    packed: Source,
    near: [i64; 2],
}

struct Writer<'a> {
    p: &'a Problem,
    s: &'a Separable,
    n: Nest,
    /// Of the outputs, and of what their windows read.
    outputs: Places,
    read: Places,
    /// Channels of a chunk, blocks of a cluster, chunks of a block.
    channels: i64,
    cluster: i64,
    steps: i64,
    threads: i64,
    unroll: i64,
    vector: i64,
    /// Of the convolution ahead and the one behind, a thread's channels and places.
    near: [[i64; 2]; 2],
    /// Groups of threads that the sums of the convolution ahead are split between.
    groups: i64,
    /// Places of a row that a thread has in the depthwise convolution.
    near_columns: i64,
    /// Variables: those of shared axes, starts of the tile, block of the cluster, chunk.
    batch: Vec<Var>,
    start: [Var; 2],
    rank: Var,
    step: Var,
}

impl<'a> Writer<'a> {
    fn new(p: &'a Problem, c: &Configuration) -> Writer<'a> {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let s = &p.s;
        let near = [["m_i", "a_i"], ["k_i", "o_i"]].map(|names| names.map(get));
        let outputs = [get("p_tile"), get("q_tile")];
        let read = [0, 1].map(|i| s.windows[i].read(outputs[i]));
        let (channels, cluster) = (get("channels"), get("split_blocks"));
        let mut n = p.base.clone();
        let batch = (0..s.batch.len()).map(|i| n.new_var(&format!("n{i}"))).collect();
        let [p0, q0, rank, step] = ["p0", "q0", "rank", "step"].map(|x| n.new_var(x));
        Writer {
            p,
            s,
            n,
            outputs: Places::new(outputs, near[1][1]),
            read: Places::new(read, near[0][1]),
            channels,
            cluster,
            steps: s.channels / (channels * cluster),
            threads: get("threads"),
            unroll: get("unroll"),
            vector: get("vector"),
            near,
            groups: get("split_threads"),
            near_columns: get("q_i"),
            batch,
            start: [p0, q0],
            rank,
            step,
        }
    }

    fn buffer(&mut self, name: &str, shape: Vec<i64>, scope: Scope) -> Source {
        self.n.new_buffer(Buffer { name: name.into(), dtype: DType::F32, shape, scope })
    }

    fn vars<const N: usize>(&mut self, names: [&str; N]) -> [Var; N] {
        names.map(|x| self.n.new_var(x))
    }

    /// The number of the chunk among all.
    fn chunk(&self) -> Affine {
        match self.s.project {
            Some(_) => Affine::new([(self.rank, self.steps), (self.step, 1)], 0),
            None => Affine::var(self.step),
        }
    }

    /// The depthwise convolution's channel that is the i-th of the chunk.
    fn channel(&self, i: Affine) -> Affine {
        self.chunk().scale(self.channels).add(&i)
    }

    /// An expression of the problem, with variables and sums in their places here.
    fn written(&self, e: &Expr, at: &[(Var, Affine)], sum: Option<(Source, &Expr)>) -> Expr {
        e.rewrite(&mut |a| self.moved(a, at), &mut |e| match (e, sum) {
            (Expr::Load { source, .. }, Some((of, sum))) if source == of => sum.clone(),
            (Expr::Load { source, index }, _) => Expr::load(self.p.buffer(source), index),
            (e, _) => e,
        })
    }

    fn moved(&self, a: &Affine, at: &[(Var, Affine)]) -> Affine {
        a.map_vars(|v| match at.iter().find(|x| x.0 == v) {
            Some((_, to)) => to.clone(),
            None => Affine::var(self.batch.get(v.0 as usize).copied().unwrap_or(v)),
        })
    }

    /// The row and the column of a place of a line, bound by statements.
    fn place(&mut self, at: &Affine, of: Places) -> (Vec<Stmt>, [Affine; 2]) {
        let [row, column] = self.vars(["row", "column"]);
        let [rows, columns] = of.sides;
        let bind = |var, divisor, modulo| Stmt::Let { var, value: at.clone(), divisor, modulo };
        let bound = vec![bind(row, columns, rows), bind(column, 1, columns)];
        (bound, [Affine::var(row), Affine::var(column)])
    }

    /// Where the windows' data at a place of the tile lies.
    fn of_patch(&self, at: &[Affine; 2]) -> [(Var, Affine); 2] {
        let of = |i: usize| {
            let w = &self.s.windows[i];
            let first = Affine::new([(self.start[i], w.stride)], w.offset);
            (self.s.at()[i], first.add(&at[i]))
        };
        [of(0), of(1)]
    }

    /// Where an output of the tile lies.
    fn of_output(&self, at: &[Affine; 2]) -> [(Var, Affine); 2] {
        let of = |i: usize| (self.s.at()[i], Affine::var(self.start[i]).add(&at[i]));
        [of(0), of(1)]
    }

    fn program(mut self) -> Nest {
        let s = self.s;
        let patch_shape = vec![self.channels, self.read.line];
        let patch = self.buffer("patch", patch_shape, Scope::Shared);
        let ahead = s.expand.as_ref().map(|e| self.ahead(e));
        let behind = s.project.as_ref().map(|e| self.behind(e));
        let kernel = [0, 1].map(|i| s.windows[i].kernel);
        let taps_shape = [&[self.channels][..], &kernel].concat();
        let taps = self.buffer("taps", taps_shape, Scope::Shared);
        let [r, c] = s.kernel();
        let by = [(s.channel(), None), (r, Some(kernel[0])), (c, Some(kernel[1]))];
        let of_taps = self.packed(&s.weight, &by);
        let mut body = Vec::new();
        let partial = behind.map(|_| {
            let shape = vec![self.cluster, s.outputs, self.outputs.line];
            self.buffer("partial", shape, Scope::Cluster)
        });
        body.extend(partial.map(Stmt::Local));
        if let (Some(a), Some(e)) = (&ahead, &s.expand) {
            body.push(Stmt::Local(a.data));
            body.push(self.fetch_input(a.data, e));
        }
        let mut each: Vec<Stmt> = [patch, taps].map(Stmt::Local).to_vec();
        each.push(self.fetch_weight(taps, of_taps));
        for product in [&ahead, &behind].into_iter().flatten() {
            each.push(Stmt::Local(product.weight));
            each.push(self.fetch_weight(product.weight, product.packed));
        }
        each.extend(behind.map(|b| Stmt::Local(b.data)));
        if ahead.is_none() {
            each.push(self.fetch_patch(patch));
        }
        let barrier = || Stmt::Barrier(Reach::Block);
        each.extend([Stmt::CommitCopies, Stmt::AwaitCopies(0), barrier()]);
        if let Some(a) = ahead {
            each.extend(self.expand(a, patch));
            each.push(barrier());
        }
        each.push(self.depthwise((patch, taps), behind.map(|b| b.data)));
        each.extend(behind.and_then(|b| self.filled_up(b.data)));
        each.push(barrier());
        if let (Some(b), Some(partial)) = (behind, partial) {
            if self.steps > 1 {
                body.push(self.over_products(b, partial, None));
            }
            each.extend([self.over_products(b, partial, Some(self.channels)), barrier()]);
            body.push(count(self.step, self.steps, Mode::Serial, each));
            self.meet(partial, &mut body);
        } else {
            body.extend(each);
        }
        self.around_block(body)
    }

    /// Threads, blocks and tiles around a block's statements.
    fn around_block(mut self, body: Vec<Stmt>) -> Nest {
        let thread = self.n.new_var("t");
        let mut body = vec![count(thread, self.threads, Mode::Thread, body)];
        if self.s.project.is_some() {
            body = vec![count(self.rank, self.cluster, Mode::Cluster, body)];
        }
        for i in [1, 0] {
            let number = self.n.new_var(["pb", "qb"][i]);
            let (extent, tile) = (self.s.windows[i].outputs, self.outputs.sides[i]);
            body = vec![tiles(number, self.start[i], extent, tile, body)];
        }
        if self.s.project.is_none() {
            body = vec![count(self.step, self.steps, Mode::Block, body)];
        }
        let batch: Vec<(Var, i64)> =
            self.batch.iter().copied().zip(self.s.batch.iter().copied()).collect();
        self.n.body = around(&batch, Mode::Block, body);
        self.n
    }

    /// What the pointwise convolution ahead has.
    fn ahead(&mut self, e: &Pointwise) -> Product {
        let data = self.buffer("input", vec![e.depth, self.read.line], Scope::Shared);
        let weight = self.buffer("weight", vec![e.depth, self.channels], Scope::Shared);
        let (input, channel) = (self.s.input(), self.s.channel());
        let packed = self.packed(&e.weight, &[(input, Some(e.depth)), (channel, None)]);
        Product { data, weight, packed, near: self.near[0] }
    }

    /// What the one behind has.
    fn behind(&mut self, e: &Pointwise) -> Product {
        let data = self.buffer("middle", vec![self.channels, self.outputs.line], Scope::Shared);
        let weight = self.buffer("weight", vec![self.channels, self.s.outputs], Scope::Shared);
        let (channel, output) = (self.s.channel(), self.s.output());
        let packed = self.packed(&e.weight, &[(channel, None), (output, Some(self.s.outputs))]);
        Product { data, weight, packed, near: self.near[1] }
    }

    /// Makes a copy of a weight in chunks: by the number of the chunk, then by these variables,
    /// the one without an extent being the chunk's channels.
    fn packed(&mut self, weight: &Place, by: &[(Var, Option<i64>)]) -> Source {
        let chunks = self.s.channels / self.channels;
        let sizes = by.iter().map(|x| x.1.unwrap_or(self.channels));
        let shape: Vec<i64> = std::iter::once(chunks).chain(sizes).collect();
        let from = self.p.buffer(weight.0);
        let name = format!("{}_chunks", self.n.buffer(from).name);
        let to = self.buffer(&name, shape.clone(), Scope::Prepared);
        let vars: Vec<Var> = (0..shape.len()).map(|d| self.n.new_var(&format!("w{d}"))).collect();
        let at = |(i, (v, extent)): (usize, &(Var, Option<i64>))| {
            let own = Affine::var(vars[i + 1]);
            match extent {
                Some(_) => (*v, own),
                None => (*v, Affine::new([(vars[0], self.channels)], 0).add(&own)),
            }
        };
        let at: Vec<(Var, Affine)> = by.iter().enumerate().map(at).collect();
        let index = weight.1.iter().map(|a| self.moved(a, &at)).collect();
        let store = Stmt::Store {
            buffer: to,
            index: vars.iter().map(|v| Affine::var(*v)).collect(),
            value: Expr::load(from, index),
        };
        let loops: Vec<(Var, i64)> = vars.into_iter().zip(shape).collect();
        let plain = around(&loops, Mode::Serial, vec![store]);
        let made = launches(&mut self.n, plain);
        self.n.prepare.extend(made);
        to
    }

    /// Copies a chunk of a weight, several elements at once where its lines allow that.
    fn fetch_weight(&mut self, to: Source, packed: Source) -> Stmt {
        let shape = self.n.buffer(to).shape.clone();
        let (mut loops, mut index) = (Vec::new(), Vec::new());
        let mut lanes = None;
        for (d, &extent) in shape.iter().enumerate() {
            let x = self.n.new_var("x");
            let is_wide = d + 1 == shape.len() && self.vector > 1 && extent % self.vector == 0;
            if is_wide {
                let lane = self.n.new_var("lane");
                loops.push((x, extent / self.vector));
                index.push(Affine::new([(x, self.vector), (lane, 1)], 0));
                lanes = Some(lane);
            } else {
                loops.push((x, extent));
                index.push(Affine::var(x));
            }
        }
        let from = std::iter::once(self.chunk()).chain(index.iter().cloned()).collect();
        let mut copy = vec![Stmt::Store { buffer: to, index, value: Expr::load(packed, from) }];
        if let Some(lane) = lanes {
            copy = vec![count(lane, self.vector, Mode::Vector, copy)];
        }
        around(&loops, Mode::Share, copy).remove(0)
    }

    /// Copies what the pointwise convolution ahead reads at the tile's places, and zeros where no
    /// input is.
    fn fetch_input(&mut self, to: Source, e: &Pointwise) -> Stmt {
        let mut value = Expr::load(e.data.0, e.data.1.clone());
        if !self.s.inside.is_empty() {
            let (conds, other) = (self.s.inside.clone(), Box::new(Expr::Const(0.0)));
            value = Expr::Select { conds, then: Box::new(value), other };
        }
        let c = self.n.new_var("c");
        self.fetch((&value, to), (self.s.input(), Affine::var(c)), (c, e.depth))
    }

    /// Copies what the windows are over where nothing makes it.
    fn fetch_patch(&mut self, patch: Source) -> Stmt {
        let m = self.n.new_var("m");
        let channel = (self.s.channel(), self.channel(Affine::var(m)));
        self.fetch((&self.s.patch, patch), channel, (m, self.channels))
    }

    /// Copies a value at the tile's places and along a loop over channels, which lie as `channel`
    /// says.
    fn fetch(
        &mut self,
        (value, to): (&Expr, Source),
        channel: (Var, Affine),
        along: (Var, i64),
    ) -> Stmt {
        let a = self.n.new_var("a");
        let (mut body, at) = self.place(&Affine::var(a), self.read);
        let mut loops = [along, (a, self.read.line)];
        // Threads side by side read elements side by side.
        let is_last = |l: &(Source, &[Affine])| l.1.len() > 1 && l.1[l.1.len() - 1].uses(channel.0);
        if value.loads().iter().any(is_last) {
            loops.reverse();
        }
        let [row, column] = self.of_patch(&at);
        let value = self.written(value, &[row, column, channel], None);
        let index = [along.0, a].map(Affine::var).to_vec();
        body.push(Stmt::Store { buffer: to, index, value });
        around(&loops, Mode::Share, body).remove(0)
    }

    /// Adds up a thread's elements of a product: `depth` of the data's lines and the weight's, from
    /// `line` on, at the channels and places from `at` on. With the sums, and what declares and
    /// makes them.
    fn sums(
        &mut self,
        p: Product,
        (line, depth): (&Affine, i64),
        at: &[Affine; 2],
    ) -> (Source, Vec<Stmt>) {
        let [channels, places] = p.near;
        let acc = self.buffer("acc", vec![channels, places], Scope::Local);
        let [i, j, zi, zj, o, u] = self.vars(["i", "j", "i", "j", "ko", "ku"]);
        let index = |i: Var, j: Var| vec![Affine::var(i), Affine::var(j)];
        let zero = Stmt::Store { buffer: acc, index: index(zi, zj), value: Expr::Const(0.0) };
        let mut out = vec![Stmt::Local(acc)];
        out.extend(around(&[(zi, channels), (zj, places)], Mode::Unroll, vec![zero]));
        let unroll = (1..=self.unroll).rev().find(|n| depth % n == 0).unwrap_or(1);
        let line = line.add(&Affine::new([(o, unroll), (u, 1)], 0));
        let [channel, place] = [(0, i), (1, j)].map(|(k, v)| at[k].add(&Affine::var(v)));
        let value = Expr::binary(
            Binary::Mul,
            Expr::load(p.data, vec![line.clone(), place]),
            Expr::load(p.weight, vec![line, channel]),
        );
        let add = Stmt::Update { op: Reducer::Sum, buffer: acc, index: index(i, j), value };
        let inner = around(&[(i, channels), (j, places)], Mode::Unroll, vec![add]);
        let inner = vec![count(u, unroll, Mode::Unroll, inner)];
        out.push(count(o, depth / unroll, Mode::Serial, inner));
        (acc, out)
    }

    /// The pointwise convolution ahead: a chunk of its channels on the tile and its border. Groups
    /// of threads each add up a part of the products, and their sums meet.
    fn expand(&mut self, p: Product, patch: Source) -> Vec<Stmt> {
        let [g, mt, at, i, j] = self.vars(["g", "mt", "at", "i", "j"]);
        let [channels, places] = p.near;
        let groups = self.groups;
        let first = [Affine::new([(mt, channels)], 0), Affine::new([(at, places)], 0)];
        let depth = self.s.expand.as_ref().map_or(1, |e| e.depth) / groups;
        let (acc, mut body) = self.sums(p, (&Affine::new([(g, depth)], 0), depth), &first);
        let [channel, line] = [(0, i), (1, j)].map(|(k, v)| first[k].add(&Affine::var(v)));
        let sum = Expr::load(acc, vec![Affine::var(i), Affine::var(j)]);
        let loops = [(g, groups), (mt, self.channels / channels), (at, self.read.line / places)];
        let share = |body| around(&loops, Mode::Share, body).remove(0);
        if groups == 1 {
            let (mut each, store) = self.expanded((channel, line), &sum, patch);
            each.push(count(i, channels, Mode::Unroll, vec![store]));
            body.push(count(j, places, Mode::Unroll, each));
            return vec![share(body)];
        }
        let shape = vec![groups, self.channels, self.read.line];
        let parts = self.buffer("parts", shape, Scope::Shared);
        let index = vec![Affine::var(g), channel, line];
        let store = Stmt::Store { buffer: parts, index, value: sum };
        body.extend(around(&[(i, channels), (j, places)], Mode::Unroll, vec![store]));
        let [m, a, r] = self.vars(["m", "a", "g"]);
        let part = Expr::load(parts, [r, m, a].map(Affine::var).to_vec());
        let (sum, mut each) = total(&mut self.n, Reducer::Sum, part, &[(r, groups)]);
        let (bound, store) = self.expanded((Affine::var(m), Affine::var(a)), &sum, patch);
        each.extend(bound);
        each.push(store);
        let loops = [(m, self.channels), (a, self.read.line)];
        let meet = around(&loops, Mode::Share, each).remove(0);
        vec![Stmt::Local(parts), share(body), Stmt::Barrier(Reach::Block), meet]
    }

    /// What is made of a sum of the convolution ahead, for the i-th channel of the chunk at a place
    /// of the line.
    fn expanded(
        &mut self,
        (channel, line): (Affine, Affine),
        sum: &Expr,
        patch: Source,
    ) -> (Vec<Stmt>, Stmt) {
        let (bound, there) = self.place(&line, self.read);
        let [row, column] = self.of_patch(&there);
        let place = [row, column, (self.s.channel(), self.channel(channel.clone()))];
        let of = self.s.expand.as_ref().map(|e| (e.sum, sum));
        let value = self.written(&self.s.patch, &place, of);
        (bound, Stmt::Store { buffer: patch, index: vec![channel, line], value })
    }

    /// The depthwise convolution of a chunk, several places of a row at a time, which share most of
    /// what they read: to shared memory, or to the result where nothing is behind.
    fn depthwise(&mut self, (patch, taps): (Source, Source), to: Option<Source>) -> Stmt {
        let s = self.s;
        let near = self.near_columns;
        let [rows, columns] = self.outputs.sides;
        let [m, p, q, j, zj, sj, r, c] = self.vars(["m", "p", "q", "j", "j", "j", "r", "s"]);
        let sum = self.buffer("sum", vec![near], Scope::Local);
        let zero =
            Stmt::Store { buffer: sum, index: vec![Affine::var(zj)], value: Expr::Const(0.0) };
        let at = |j: Var| [Affine::var(p), Affine::new([(q, near), (j, 1)], 0)];
        let [row, column] = [(0, r), (1, c)].map(|(i, v)| {
            let w = &s.windows[i];
            at(j)[i].scale(w.stride).add(&Affine::new([(v, w.dilation)], 0))
        });
        let line = row.scale(self.read.sides[1]).add(&column);
        let value = Expr::binary(
            Binary::Mul,
            Expr::load(patch, vec![Affine::var(m), line]),
            Expr::load(taps, vec![Affine::var(m), Affine::var(r), Affine::var(c)]),
        );
        let add =
            Stmt::Update { op: Reducer::Sum, buffer: sum, index: vec![Affine::var(j)], value };
        let windows = [(r, s.windows[0].kernel), (c, s.windows[1].kernel), (j, near)];
        let mut body = vec![Stmt::Local(sum), count(zj, near, Mode::Unroll, vec![zero])];
        body.extend(around(&windows, Mode::Unroll, vec![add]));
        let [row, column] = self.of_output(&at(sj));
        let place = [row, column, (s.channel(), self.channel(Affine::var(m)))];
        let own = Expr::load(sum, vec![Affine::var(sj)]);
        let value = self.written(&s.middle, &place, Some((s.sum, &own)));
        let mut loops = vec![(m, self.channels), (p, rows), (q, columns / near)];
        let store = match to {
            Some(buffer) => {
                let [row, column] = at(sj);
                let index = vec![Affine::var(m), row.scale(columns).add(&column)];
                Stmt::Store { buffer, index, value }
            }
            None => {
                let index: Vec<Affine> = s.place.iter().map(|a| self.moved(a, &place)).collect();
                if s.place.last().is_some_and(|a| a.uses(s.channel())) {
                    loops.rotate_left(1);
                }
                Stmt::Store { buffer: self.p.output, index, value }
            }
        };
        body.push(count(sj, near, Mode::Unroll, vec![store]));
        around(&loops, Mode::Share, body).remove(0)
    }

    /// Zeros behind the last place of the line that the pointwise convolution behind reads.
    fn filled_up(&mut self, middle: Source) -> Option<Stmt> {
        let all = self.outputs.all();
        let more = self.outputs.line - all;
        let [m, o] = self.vars(["m", "o"]);
        let index = vec![Affine::var(m), Affine::new([(o, 1)], all)];
        let zero = Stmt::Store { buffer: middle, index, value: Expr::Const(0.0) };
        let loops = [(m, self.channels), (o, more)];
        (more > 0).then(|| around(&loops, Mode::Share, vec![zero]).remove(0))
    }

    /// Goes over the block's sums of the pointwise convolution behind: adds products of so many
    /// channels, or sets them to zero.
    fn over_products(&mut self, p: Product, partial: Source, depth: Option<i64>) -> Stmt {
        let [kt, ot, i, j] = self.vars(["kt", "ot", "i", "j"]);
        let [channels, places] = p.near;
        let first = [Affine::new([(kt, channels)], 0), Affine::new([(ot, places)], 0)];
        let [channel, line] = [(0, i), (1, j)].map(|(k, v)| first[k].add(&Affine::var(v)));
        let index = vec![Affine::var(self.rank), channel, line];
        let mut body = Vec::new();
        let store = match depth {
            None => Stmt::Store { buffer: partial, index, value: Expr::Const(0.0) },
            Some(depth) => {
                let (acc, sums) = self.sums(p, (&Affine::constant(0), depth), &first);
                body.extend(sums);
                let value = Expr::load(acc, vec![Affine::var(i), Affine::var(j)]);
                match self.steps {
                    1 => Stmt::Store { buffer: partial, index, value },
                    _ => Stmt::Update { op: Reducer::Sum, buffer: partial, index, value },
                }
            }
        };
        body.extend(around(&[(i, channels), (j, places)], Mode::Unroll, vec![store]));
        let loops = [(kt, self.s.outputs / channels), (ot, self.outputs.line / places)];
        around(&loops, Mode::Share, body).remove(0)
    }

    /// The sums of the cluster's blocks meet; each finishes its share of the result's channels.
    fn meet(&mut self, partial: Source, body: &mut Vec<Stmt>) {
        let s = self.s;
        let share = s.outputs / self.cluster;
        let [k, o, r] = self.vars(["k", "o", "r"]);
        let output = Affine::new([(self.rank, share), (k, 1)], 0);
        let part = Expr::load(partial, vec![Affine::var(r), output.clone(), Affine::var(o)]);
        let (sum, mut each) = total(&mut self.n, Reducer::Sum, part, &[(r, self.cluster)]);
        let (bound, at) = self.place(&Affine::var(o), self.outputs);
        each.extend(bound);
        let [row, column] = self.of_output(&at);
        let place = [row, column, (s.output(), output)];
        let of = s.project.as_ref().map(|e| (e.sum, &sum));
        let value = self.written(&s.result, &place, of);
        let index = s.place.iter().map(|a| self.moved(a, &place)).collect();
        each.push(Stmt::Store { buffer: self.p.output, index, value });
        let mut loops = [(k, share), (o, self.outputs.all())];
        if s.place.last().is_some_and(|a| a.uses(s.output())) {
            loops.reverse();
        }
        body.push(Stmt::Barrier(Reach::Cluster));
        body.extend(around(&loops, Mode::Share, each));
        body.push(Stmt::Barrier(Reach::Cluster));
    }
}
