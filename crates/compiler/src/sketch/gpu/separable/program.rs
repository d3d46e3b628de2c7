//! Writes the loop nest of the separable sketch (`mod.rs`) for one configuration. A block has a
//! tile of places (positions of the result) and walks through chunks of the channels between the
//! convolutions. Each step's elements are dealt to the block's threads in turn, a thread's elements
//! of products a few at a time.
//!
//! Places of the tile, and of the border that its windows read, are counted along one line. Where a
//! thread has several places and they do not come out even, the line goes on: with its first places
//! again, or with zeros. Results at these further places are never stored.

use super::super::loops::{around, count, launches, tiles, total};
use super::Problem;
use crate::nest::{Buffer, Mode, Nest, Reach, Scope, Stmt};
use squall_core::expr::{Affine, Binary, Expr, Source, Var};
use squall_core::operator::{OverWindows, Place, PlaceProduct, Separable};
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
    /// The length of the line, filled up so that it comes out even for the threads.
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

/// A product's buffers in shared memory, and a thread's channels and places of it.
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
    /// The places of the outputs, and of the data that their windows read.
    outputs: Places,
    read: Places,
    /// Channels of a chunk, blocks of a cluster, chunks of a block.
    channels: i64,
    cluster: i64,
    steps: i64,
    threads: i64,
    unroll: i64,
    vector: i64,
    /// For the product ahead and the product behind, a thread's channels and places.
    near: [[i64; 2]; 2],
    /// Groups of threads that the sums of the product ahead are split between.
    groups: i64,
    /// Places of a row that a thread has where windows are gone over.
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
        // Where nothing goes over windows, both products have the same places: a power of two of
        // them, which one of the two numbers is.
        let alike = if s.over.is_some() { 1 } else { near[0][1].max(near[1][1]) };
        let mut n = p.base.clone();
        let batch = (0..s.batch.len()).map(|i| n.new_var(&format!("n{i}"))).collect();
        let [p0, q0, rank, step] = ["p0", "q0", "rank", "step"].map(|x| n.new_var(x));
        Writer {
            p,
            s,
            n,
            outputs: Places::new(outputs, near[1][1].max(alike)),
            read: Places::new(read, near[0][1].max(alike)),
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
        let (name, dtype) = (name.into(), DType::F32);
        self.n.new_buffer(Buffer { name, dtype, shape, scope, lenient: false })
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
        let ahead = s.expand.as_ref().map(|e| self.ahead(&e.0));
        let behind = s.project.as_ref().map(|e| self.behind(e, patch));
        let taps = s.over.as_ref().and_then(|o| o.weight.as_ref()).map(|w| self.taps(w));
        let mut body = Vec::new();
        let partial = behind.map(|_| {
            let shape = vec![self.cluster, s.outputs, self.outputs.line];
            self.buffer("partial", shape, Scope::Cluster)
        });
        body.extend(partial.map(Stmt::Local));
        if let (Some(a), Some(e)) = (&ahead, &s.expand) {
            body.push(Stmt::Local(a.data));
            body.push(self.fetch_input(a.data, &e.1));
        }
        let mut each = vec![Stmt::Local(patch)];
        if let Some((taps, packed)) = taps {
            each.extend([Stmt::Local(taps), self.fetch_weight(taps, packed)]);
        }
        for product in [&ahead, &behind].into_iter().flatten() {
            each.push(Stmt::Local(product.weight));
            each.push(self.fetch_weight(product.weight, product.packed));
        }
        each.extend(behind.filter(|_| s.over.is_some()).map(|b| Stmt::Local(b.data)));
        if ahead.is_none() {
            each.push(self.fetch_patch(patch));
        }
        let barrier = || Stmt::Barrier(Reach::Block);
        each.extend([Stmt::CommitCopies, Stmt::AwaitCopies(0), barrier()]);
        if let Some(a) = ahead {
            each.extend(self.expand(a, patch));
            each.push(barrier());
        }
        if let Some(over) = &s.over {
            let (taps, to) = (taps.map(|t| t.0), behind.map(|b| b.data));
            each.push(self.over_windows(over, patch, taps, to));
            each.extend(behind.and_then(|b| self.filled_up(b.data)));
            each.push(barrier());
        }
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

    /// The buffers of the product ahead.
    fn ahead(&mut self, e: &PlaceProduct) -> Product {
        let data = self.buffer("input", vec![e.depth(), self.read.line], Scope::Shared);
        let weight = self.buffer("weight", vec![e.depth(), self.channels], Scope::Shared);
        let inputs = self.s.input().into_iter().zip(e.extents.iter().copied());
        let lines = inputs.map(|(v, extent)| (v, Some(extent))).collect();
        let packed = self.packed(&e.weight, &[lines, vec![(self.s.channel(), None)]]);
        Product { data, weight, packed, near: self.near[0] }
    }

    /// The buffers of the product behind, which reads the patch where nothing goes over that.
    fn behind(&mut self, e: &PlaceProduct, patch: Source) -> Product {
        let shape = vec![self.channels, self.outputs.line];
        let data = match self.s.over {
            Some(_) => self.buffer("middle", shape, Scope::Shared),
            None => patch,
        };
        let weight = self.buffer("weight", vec![self.channels, self.s.outputs], Scope::Shared);
        let (channel, output) = ((self.s.channel(), None), (self.s.output(), Some(self.s.outputs)));
        let packed = self.packed(&e.weight, &[vec![channel], vec![output]]);
        Product { data, weight, packed, near: self.near[1] }
    }

    /// A chunk's weights of the windows, and all of them.
    fn taps(&mut self, weight: &Place) -> (Source, Source) {
        let kernel = [0, 1].map(|i| self.s.windows[i].kernel);
        let taps_shape = [&[self.channels][..], &kernel].concat();
        let taps = self.buffer("taps", taps_shape, Scope::Shared);
        let [r, c] = self.s.kernel();
        let channel = (self.s.channel(), None);
        let by = [vec![channel], vec![(r, Some(kernel[0]))], vec![(c, Some(kernel[1]))]];
        (taps, self.packed(weight, &by))
    }

    /// Makes a copy of a weight in chunks: by the number of the chunk, then by dimensions that
    /// these variables are counted along, the one without an extent being the chunk's channels.
    fn packed(&mut self, weight: &Place, dims: &[Vec<(Var, Option<i64>)>]) -> Source {
        let chunks = self.s.channels / self.channels;
        let size = |x: &(Var, Option<i64>)| x.1.unwrap_or(self.channels);
        let sizes = dims.iter().map(|by| by.iter().map(size).product::<i64>());
        let shape: Vec<i64> = std::iter::once(chunks).chain(sizes).collect();
        let from = self.p.buffer(weight.0);
        let name = format!("{}_chunks", self.n.buffer(from).name);
        let to = self.buffer(&name, shape, Scope::Prepared);
        let chunk = self.n.new_var("w0");
        let (mut loops, mut at) = (vec![(chunk, chunks)], Vec::new());
        let mut index = vec![Affine::var(chunk)];
        for by in dims {
            let mut place = Affine::constant(0);
            for (v, extent) in by {
                let own = self.n.new_var(&format!("w{}", loops.len()));
                let size = extent.unwrap_or(self.channels);
                loops.push((own, size));
                let own = Affine::var(own);
                place = place.scale(size).add(&own);
                let channel = || Affine::new([(chunk, self.channels)], 0).add(&own);
                at.push((*v, extent.map_or_else(channel, |_| own.clone())));
            }
            index.push(place);
        }
        let read = weight.1.iter().map(|a| self.moved(a, &at)).collect();
        let store = Stmt::Store { buffer: to, index, value: Expr::load(from, read) };
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

    /// Copies what the product ahead reads at the tile's places, and zeros where no input is.
    fn fetch_input(&mut self, to: Source, data: &Expr) -> Stmt {
        let mut value = data.clone();
        if !self.s.inside.is_empty() {
            let (conds, other) = (self.s.inside.clone(), Box::new(Expr::Const(0.0)));
            value = Expr::Select { conds, then: Box::new(value), other };
        }
        let extents = self.s.expand.iter().flat_map(|e| e.0.extents.clone());
        let lines: Vec<(Var, i64)> = extents.map(|e| (self.n.new_var("c"), e)).collect();
        let inputs = self.s.input().into_iter();
        let at: Vec<(Var, Affine)> =
            inputs.zip(&lines).map(|(v, l)| (v, Affine::var(l.0))).collect();
        self.fetch(&value, to, &at, &lines)
    }

    /// Copies what the windows are over where nothing makes it.
    fn fetch_patch(&mut self, patch: Source) -> Stmt {
        let m = self.n.new_var("m");
        let channel = (self.s.channel(), self.channel(Affine::var(m)));
        self.fetch(&self.s.patch, patch, &[channel], &[(m, self.channels)])
    }

    /// Copies a value at the tile's places and along loops that its lines are counted by, with what
    /// lies `at` the places that these say.
    fn fetch(
        &mut self,
        value: &Expr,
        to: Source,
        at: &[(Var, Affine)],
        lines: &[(Var, i64)],
    ) -> Stmt {
        let a = self.n.new_var("a");
        let (mut body, place) = self.place(&Affine::var(a), self.read);
        let mut loops = [lines, &[(a, self.read.line)]].concat();
        // Threads side by side read elements side by side.
        let last = at.last().map(|x| x.0);
        let is_last = |l: &(Source, &[Affine])| {
            l.1.len() > 1 && last.is_some_and(|v| l.1[l.1.len() - 1].as_var() == Some(v))
        };
        if value.loads().iter().any(is_last) {
            loops.rotate_right(1);
        }
        let [row, column] = self.of_patch(&place);
        let value = self.written(value, &[&[row, column][..], at].concat(), None);
        let line = lines.iter().fold(Affine::constant(0), |line, (v, extent)| {
            line.scale(*extent).add(&Affine::var(*v))
        });
        body.push(Stmt::Store { buffer: to, index: vec![line, Affine::var(a)], value });
        around(&loops, Mode::Share, body).remove(0)
    }

    /// Adds up a thread's elements of a product: `depth` of the data's lines and the weight's, from
    /// `line` on, at the channels and places from `at` on. With the sums, and what declares and
    /// makes them.
    fn sums(
        &mut self,
        p: Product,
        line: &Affine,
        depth: i64,
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

    /// The product ahead: a chunk of its channels on the tile and its border. Groups
    /// of threads each add up a part of the products, and their sums meet.
    fn expand(&mut self, p: Product, patch: Source) -> Vec<Stmt> {
        let [g, mt, at, i, j] = self.vars(["g", "mt", "at", "i", "j"]);
        let [channels, places] = p.near;
        let groups = self.groups;
        let first = [Affine::new([(mt, channels)], 0), Affine::new([(at, places)], 0)];
        let depth = self.s.expand.as_ref().map_or(1, |e| e.0.depth()) / groups;
        let (acc, mut body) = self.sums(p, &Affine::new([(g, depth)], 0), depth, &first);
        let [channel, line] = [(0, i), (1, j)].map(|(k, v)| first[k].add(&Affine::var(v)));
        let sum = Expr::load(acc, vec![Affine::var(i), Affine::var(j)]);
        let loops = [(g, groups), (mt, self.channels / channels), (at, self.read.line / places)];
        let share = |body| around(&loops, Mode::Share, body).remove(0);
        if groups == 1 {
            let (mut each, store) = self.expanded(channel, line, &sum, patch);
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
        let (bound, store) = self.expanded(Affine::var(m), Affine::var(a), &sum, patch);
        each.extend(bound);
        each.push(store);
        let loops = [(m, self.channels), (a, self.read.line)];
        let meet = around(&loops, Mode::Share, each).remove(0);
        vec![Stmt::Local(parts), share(body), Stmt::Barrier(Reach::Block), meet]
    }

    /// What is made of a sum of the product ahead, for the i-th channel of the chunk at a place
    /// of the line.
    fn expanded(
        &mut self,
        channel: Affine,
        line: Affine,
        sum: &Expr,
        patch: Source,
    ) -> (Vec<Stmt>, Stmt) {
        let (bound, there) = self.place(&line, self.read);
        let [row, column] = self.of_patch(&there);
        let place = [row, column, (self.s.channel(), self.channel(channel.clone()))];
        let of = self.s.expand.as_ref().map(|e| (e.0.sum, sum));
        let value = self.written(&self.s.patch, &place, of);
        (bound, Stmt::Store { buffer: patch, index: vec![channel, line], value })
    }

    /// Goes over a chunk's windows, several places of a row at a time, which share most of what
    /// they read: to shared memory, or to the result where nothing is behind.
    fn over_windows(
        &mut self,
        over: &OverWindows,
        patch: Source,
        taps: Option<Source>,
        to: Option<Source>,
    ) -> Stmt {
        let s = self.s;
        let near = self.near_columns;
        let [rows, columns] = self.outputs.sides;
        let [m, p, q, j, zj, sj, r, c] = self.vars(["m", "p", "q", "j", "j", "j", "r", "s"]);
        let sum = self.buffer("sum", vec![near], Scope::Local);
        let first = Expr::Const(over.op.identity());
        let zero = Stmt::Store { buffer: sum, index: vec![Affine::var(zj)], value: first };
        let at = |j: Var| [Affine::var(p), Affine::new([(q, near), (j, 1)], 0)];
        let [row, column] = [(0, r), (1, c)].map(|(i, v)| {
            let w = &s.windows[i];
            at(j)[i].scale(w.stride).add(&Affine::new([(v, w.dilation)], 0))
        });
        let line = row.scale(self.read.sides[1]).add(&column);
        let value = Expr::load(patch, vec![Affine::var(m), line]);
        let value = match taps {
            Some(taps) => {
                let tap = Expr::load(taps, [m, r, c].map(Affine::var).to_vec());
                Expr::binary(Binary::Mul, value, tap)
            }
            None => value,
        };
        let add = Stmt::Update { op: over.op, buffer: sum, index: vec![Affine::var(j)], value };
        let windows = [(r, s.windows[0].kernel), (c, s.windows[1].kernel), (j, near)];
        let mut body = vec![Stmt::Local(sum), count(zj, near, Mode::Unroll, vec![zero])];
        body.extend(around(&windows, Mode::Unroll, vec![add]));
        let [row, column] = self.of_output(&at(sj));
        let place = [row, column, (s.channel(), self.channel(Affine::var(m)))];
        let own = Expr::load(sum, vec![Affine::var(sj)]);
        let value = self.written(&s.middle, &place, Some((over.sum, &own)));
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

    /// Zeros behind the last place of the line that the product behind reads.
    fn filled_up(&mut self, middle: Source) -> Option<Stmt> {
        let all = self.outputs.all();
        let more = self.outputs.line - all;
        let [m, o] = self.vars(["m", "o"]);
        let index = vec![Affine::var(m), Affine::new([(o, 1)], all)];
        let zero = Stmt::Store { buffer: middle, index, value: Expr::Const(0.0) };
        let loops = [(m, self.channels), (o, more)];
        (more > 0).then(|| around(&loops, Mode::Share, vec![zero]).remove(0))
    }

    /// Goes over the block's sums of the product behind: adds products of so many
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
                let (acc, sums) = self.sums(p, &Affine::constant(0), depth, &first);
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
