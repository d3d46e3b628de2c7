//! Matrix products, convolutions, depthwise convolutions, pooling: everything that sums over
//! tiles. After Ansor's GPU sketch (SSSRRSRS) and split-K by thread-block clusters.
//!
//! A block computes a tile of the output, a thread `v x i` elements of it along each axis, `v` far
//! apart (virtual threads) and `i` next to each other. The block's threads fetch what a chunk of
//! the reduction needs of each operand into shared memory; padding is tested there. Weights lie in
//! tiles ahead of time. With two stages the next chunk is on its way while one is summed. The first
//! reduction axis can be split over groups of a block's threads and over the blocks of a cluster:
//! partial sums then meet in shared memory, each block finishes a slice of the tile with the
//! epilogue, and nothing of it goes through device memory.

use super::super::tile::{Axis, Pad, padding, shape_base, with_epilogue};
use super::super::{Facts, divisors, powers};
use super::problem::{Operand, Problem, problem};
use super::span::{Part, Span};
use super::{Program, around, count, epilogue, group, launches, line_width, tensor, tiles};
use crate::nest::{Buffer, Mode, Nest, Reach, Scope, Stmt};
use squall_core::expr::{Affine, Cond, Expr, Source, Var};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Configuration, DType, Gpu, Space};
use std::sync::Arc;

/// Multiplications written out; NVRTC takes over a second beyond, and builders wait for the
/// slowest.
const MOST_UNROLLED: i64 = 2048;

pub fn derive(f: &Facts<'_>, gpu: Gpu) -> Vec<Program> {
    let Some((w, main)) = with_epilogue(f.workload) else { return Vec::new() };
    let pad = if padding(&w, main) { Pad::Guard } else { Pad::None };
    let Some((mut base, _)) = shape_base(&w, main, pad) else { return Vec::new() };
    let prepare = std::mem::take(&mut base.prepare);
    base.prepare = launches(&mut base, prepare);
    let Some(p) = problem(base, &w.stages[main].name) else { return Vec::new() };
    let Some(space) = space(&p, gpu) else { return Vec::new() };
    let p = Arc::new(p);
    let tensor = tensor::derive(&p, gpu).into_iter().chain(group::derive(&p, gpu));
    let tile = Program {
        name: "gpu_tile".into(),
        space,
        gpu,
        make: Box::new(move |c| Tiling::new(&p, c)?.program()),
    };
    tensor.chain([tile]).collect()
}

fn space(p: &Problem, gpu: Gpu) -> Option<Space> {
    let mut knobs = Vec::new();
    let mut constraints = Vec::new();
    let k = |a: &Axis, what: &str| Term::knob(format!("{}_{what}", a.short));
    let small = |e: i64, most: i64| {
        let list: Vec<i64> =
            powers(1, most.min(e)).chain(divisors(e).into_iter().filter(|d| *d <= most)).collect();
        list
    };
    for (level, a) in p.axes.iter().enumerate() {
        let last = level + 1 == p.axes.len();
        let role = |level| Role::Tile { axis: a.short.clone(), level };
        knobs.push(Knob::ints(
            format!("{}_t", a.short),
            role(0),
            small(a.extent, if last { 128 } else { 64 }),
        ));
        knobs.push(Knob::ints(format!("{}_v", a.short), role(1), small(a.extent, 4)));
        knobs.push(Knob::ints(format!("{}_i", a.short), role(2), small(a.extent, 8)));
        let tile = Term::product([k(a, "t"), k(a, "v"), k(a, "i")]);
        if p.cuts_weight(a) {
            constraints.push(tile.divides(a.extent));
        } else {
            // Overlapping tiles may waste an eighth.
            constraints.push(tile.clone().at_most(a.extent));
            let covered =
                Term::product([Term::from(a.extent).ceil_div(tile.clone()), tile, Term::from(8)]);
            constraints.push(covered.at_most(9 * a.extent));
        }
    }
    // Levels of one axis, between which a search trades factors: what a block no longer splits its
    // threads may.
    let first = &p.reduce[0];
    let role = |level| Role::Tile { axis: first.short.clone(), level };
    knobs.push(Knob::ints(
        "chunk",
        role(0),
        divisors(first.extent).into_iter().filter(|d| *d <= 64),
    ));
    let splits = |most: i64| {
        divisors(first.extent).into_iter().filter(move |d| *d <= most && d.count_ones() == 1)
    };
    knobs.push(Knob::ints("split_threads", role(1), splits(16)));
    knobs.push(Knob::ints("split_blocks", role(2), splits(gpu.cluster())));
    knobs.push(Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8]));
    knobs.push(Knob::ints("vector", Role::Vector, [1, 4]));
    knobs.push(Knob::ints("pad", Role::Layout, [0, 1, 4]));
    knobs.push(Knob::ints("stages", Role::Choice, [1, 2]));
    constraints.push(
        Term::product(["chunk", "split_threads", "split_blocks"].map(Term::knob))
            .divides(first.extent),
    );
    let threads =
        || Term::product(p.axes.iter().map(|a| k(a, "t")).chain([Term::knob("split_threads")]));
    constraints.push(threads().at_most(i64::from(gpu.threads_per_block)));
    let registers = || Term::product(p.axes.iter().flat_map(|a| [k(a, "v"), k(a, "i")]));
    constraints.push(registers().at_most(128));
    // Small blocks leave most of a multiprocessor idle, where the problem is large enough.
    let elements: i64 = p.axes.iter().map(|a| a.extent).product();
    let strict: Vec<Term> = constraints
        .iter()
        .cloned()
        .chain([Term::from(64.min(elements)).at_most(threads())])
        .collect();
    Space::new(knobs.clone(), &strict).or_else(|_| Space::new(knobs, &constraints)).ok()
}

/// A weight's copy in tiles, with the axes and the reduction axes that it has.
type Packed = (Source, Vec<usize>, Vec<usize>);

/// Variables of the tile's elements that a thread owns: `v`, `i` of each axis, with extents.
struct Own {
    loops: Vec<(Var, i64)>,
    /// Where in the tile, by axis.
    place: Vec<Affine>,
    /// Index of the accumulators.
    index: Vec<Affine>,
}

/// A configuration on its way to a nest.
struct Tiling<'a> {
    p: &'a Problem,
    n: Nest,
    /// Elements of a tile, threads, elements far apart and next to each other, by axis.
    size: Vec<i64>,
    t: Vec<i64>,
    v: Vec<i64>,
    i: Vec<i64>,
    chunk: i64,
    groups: i64,
    cluster: i64,
    steps: i64,
    unroll: i64,
    vector: i64,
    pad: i64,
    /// Chunks that shared memory holds: 2 where the next is fetched during a sum.
    stages: i64,
    /// Variables: block number, tile start and thread of each axis; group, block in the cluster,
    /// step.
    block: Vec<Var>,
    start: Vec<Var>,
    thread: Vec<Var>,
    group: Var,
    rank: Var,
    step: Var,
}

impl<'a> Tiling<'a> {
    fn new(p: &'a Problem, c: &Configuration) -> Result<Tiling<'a>, String> {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let of = |what: &str| -> Vec<i64> {
            p.axes.iter().map(|a| get(&format!("{}_{what}", a.short))).collect()
        };
        let (t, v, i) = (of("t"), of("v"), of("i"));
        let size: Vec<i64> = (0..t.len()).map(|a| t[a] * v[a] * i[a]).collect();
        let (chunk, groups, cluster) = (get("chunk"), get("split_threads"), get("split_blocks"));
        let unroll = divisors(chunk).into_iter().filter(|d| *d <= get("unroll")).max().unwrap_or(1);
        let window: i64 = p.reduce[1..].iter().map(|r| r.extent).product();
        let written = get("stages") * unroll * window * v.iter().chain(&i).product::<i64>();
        if written > MOST_UNROLLED {
            return Err(format!(
                "{written} multiplications written out, {MOST_UNROLLED} are the most"
            ));
        }
        if cluster > 1 && size.iter().all(|s| s % cluster != 0) {
            return Err(format!("no axis of the tile is cut by the cluster's {cluster} blocks"));
        }
        let mut n = p.base.clone();
        let fresh = |n: &mut Nest, what: &str| -> Vec<Var> {
            p.axes.iter().map(|a| n.new_var(&format!("{}{what}", a.short))).collect()
        };
        let (block, start, thread) = (fresh(&mut n, "b"), fresh(&mut n, "0"), fresh(&mut n, "t"));
        let [group, rank, step] = ["group", "rank", "step"].map(|x| n.new_var(x));
        let steps = p.reduce[0].extent / (chunk * groups * cluster);
        let (vector, pad) = (get("vector"), get("pad"));
        let stages = get("stages");
        if steps % stages != 0 {
            return Err(format!("{steps} steps in {stages} stages"));
        }
        Ok(Tiling {
            p,
            n,
            size,
            t,
            v,
            i,
            chunk,
            groups,
            cluster,
            steps,
            unroll,
            vector,
            pad,
            stages,
            block,
            start,
            thread,
            group,
            rank,
            step,
        })
    }

    fn program(mut self) -> Result<Nest, String> {
        let p = self.p;
        let shape = (0..self.t.len()).flat_map(|a| [self.v[a], self.i[a]]).collect();
        let acc = self.buffer("acc", shape, Scope::Local);
        let mut body = vec![Stmt::Local(acc)];
        let own = self.own("z");
        let zero =
            Stmt::Store { buffer: acc, index: own.index, value: Expr::Const(p.op.identity()) };
        body.extend(around(&own.loops, Mode::Unroll, vec![zero]));
        self.sum(acc, &mut body);
        if self.groups * self.cluster > 1 {
            self.meet(acc, &mut body)
        } else {
            self.finish(acc, &mut body)
        }
        let threads: Vec<(Var, i64)> = [(self.group, self.groups)]
            .into_iter()
            .chain(self.thread.iter().copied().zip(self.t.iter().copied()))
            .collect();
        let body = around(&threads, Mode::Thread, body);
        let mut body = vec![count(self.rank, self.cluster, Mode::Cluster, body)];
        for a in (0..p.axes.len()).rev() {
            body = vec![tiles(self.block[a], self.start[a], p.axes[a].extent, self.size[a], body)];
        }
        self.n.body = body;
        Ok(self.n)
    }

    fn buffer(&mut self, name: &str, shape: Vec<i64>, scope: Scope) -> Source {
        self.n.new_buffer(Buffer { name: name.into(), dtype: DType::F32, shape, scope })
    }

    fn own(&mut self, suffix: &str) -> Own {
        let mut own = Own { loops: Vec::new(), place: Vec::new(), index: Vec::new() };
        let mut inner = Vec::new();
        for a in 0..self.t.len() {
            let short = &self.p.axes[a].short;
            let (v, i) = (
                self.n.new_var(&format!("{short}v_{suffix}")),
                self.n.new_var(&format!("{short}i_{suffix}")),
            );
            own.loops.push((v, self.v[a]));
            inner.push((i, self.i[a]));
            own.place.push(Affine::new(
                [(v, self.t[a] * self.i[a]), (self.thread[a], self.i[a]), (i, 1)],
                0,
            ));
            own.index.extend([Affine::var(v), Affine::var(i)]);
        }
        // Elements side by side come innermost.
        own.loops.extend(inner);
        own
    }

    /// The tile of an operand at a step, by dimensions of its source; `own` and `within` say which
    /// element the sum needs.
    fn spans(
        &self,
        index: &[Affine],
        step: &Affine,
        own: &[Affine],
        main: &Affine,
        within: &[Affine],
    ) -> Vec<Span> {
        let whole = self.chunk * self.groups;
        let from = Affine::new([(self.rank, self.steps * whole)], 0).add(&step.scale(whole));
        let part = |part| match part {
            Part::Axis(k) => (Affine::var(self.start[k]), own[k].clone(), self.size[k]),
            Part::Chunk => (from.clone(), main.clone(), whole),
            Part::Window(k) => {
                (Affine::constant(0), within[k].clone(), self.p.reduce[k + 1].extent)
            }
        };
        index.iter().map(|a| Span::of(self.p, a, &part)).collect()
    }

    /// Has a line fetched several elements at once where none of them can lie apart from the
    /// others: from an aligned element on, each group inside or outside of the tensor as a whole.
    fn widen(&self, o: &Operand, spans: &mut [Span]) {
        let Some(s) = spans.last_mut().filter(|s| s.step == 1 && s.extent > 1) else { return };
        if o.packed || o.conds.is_empty() {
            s.lanes = if s.extent % self.vector == 0 { self.vector } else { 1 };
            return;
        }
        let Some(width) = line_width(self.p, &self.n, o, &self.size, true)
            .filter(|w| *w <= self.vector && self.pad % w == 0)
        else {
            return;
        };
        s.align(width);
    }

    /// Makes the copy of a weight in tiles: the tile's numbers, the reduction axes, the tile.
    fn pack(&mut self, o: &Operand) -> Packed {
        let p = self.p;
        let used = |v: Var| o.index.iter().any(|i| i.uses(v));
        let axes: Vec<usize> = (0..p.axes.len()).filter(|&a| used(p.axes[a].var)).collect();
        let reduce: Vec<usize> = (0..p.reduce.len()).filter(|&r| used(p.reduce[r].var)).collect();
        let mut shape: Vec<i64> = axes.iter().map(|&a| p.axes[a].extent / self.size[a]).collect();
        shape.extend(reduce.iter().map(|&r| p.reduce[r].extent));
        shape.extend(axes.iter().map(|&a| self.size[a]));
        let name = format!("{}_tiles", self.n.buffer(o.source).name);
        let to = self.buffer(&name, shape.clone(), Scope::Prepared);
        let vars: Vec<Var> = (0..shape.len()).map(|d| self.n.new_var(&format!("w{d}"))).collect();
        let (k, r) = (axes.len(), reduce.len());
        let index = o.index.iter().map(|i| {
            i.map_vars(|v| match axes.iter().position(|&a| p.axes[a].var == v) {
                Some(j) => Affine::new([(vars[j], self.size[axes[j]]), (vars[k + r + j], 1)], 0),
                None => reduce
                    .iter()
                    .position(|&x| p.reduce[x].var == v)
                    .map_or_else(|| Affine::var(v), |j| Affine::var(vars[k + j])),
            })
        });
        let store = Stmt::Store {
            buffer: to,
            index: vars.iter().map(|v| Affine::var(*v)).collect(),
            value: Expr::load(o.source, index.collect()),
        };
        let loops: Vec<(Var, i64)> = vars.into_iter().zip(shape).collect();
        let plain = around(&loops, Mode::Serial, vec![store]);
        let made = launches(&mut self.n, plain);
        self.n.prepare.extend(made);
        (to, axes, reduce)
    }

    /// Walks through the reduction: fetches the tiles of each chunk, and adds up what they give.
    fn sum(&mut self, acc: Source, body: &mut Vec<Stmt>) {
        let p = self.p;
        let own = self.own("c");
        let [co, cu, stage] = ["co", "cu", "stage"].map(|x| self.n.new_var(x));
        let main = Affine::new([(self.group, self.chunk), (co, self.unroll), (cu, 1)], 0);
        let within: Vec<Var> =
            p.reduce[1..].iter().map(|r| self.n.new_var(&format!("{}w", r.short))).collect();
        let inside: Vec<Affine> = within.iter().map(|v| Affine::var(*v)).collect();
        let packed: Vec<_> = p.operands.iter().map(|o| o.packed.then(|| self.pack(o))).collect();
        // The spans of all operands at a step.
        let at = |me: &Self, step: &Affine| -> Vec<(Source, Vec<Span>)> {
            let one = |(o, packed): (&Operand, &Option<Packed>)| {
                let Some((source, axes, reduce)) = packed else {
                    let mut spans = me.spans(&o.index, step, &own.place, &main, &inside);
                    me.widen(o, &mut spans);
                    return (o.source, spans);
                };
                let fixed =
                    axes.iter().map(|&a| (Affine::var(me.block[a]), 1, Affine::constant(0), false));
                let tile = axes
                    .iter()
                    .map(|&a| (Affine::constant(0), me.size[a], own.place[a].clone(), true));
                let span = |(base, extent, inner, spatial)| Span {
                    spatial,
                    ..Span::new(base, extent, inner)
                };
                let middle: Vec<Affine> =
                    reduce.iter().map(|&r| Affine::var(p.reduce[r].var)).collect();
                let mut all: Vec<Span> = fixed.map(span).collect();
                all.extend(me.spans(&middle, step, &own.place, &main, &inside));
                all.extend(tile.map(span));
                me.widen(o, &mut all);
                (*source, all)
            };
            p.operands.iter().zip(&packed).map(one).collect()
        };
        let double = self.stages > 1;
        let now = if double {
            Affine::new([(self.step, 2), (stage, 1)], 0)
        } else {
            Affine::var(self.step)
        };
        let shapes = at(self, &now);
        let tiles: Vec<(Source, Vec<usize>)> =
            shapes.iter().map(|(source, spans)| self.tile(*source, spans)).collect();
        let declared = tiles.iter().map(|t| Stmt::Local(t.0));
        let loads: Vec<Expr> = tiles
            .iter()
            .zip(&shapes)
            .map(|(t, s)| t.load(double.then(|| Affine::var(stage)), |d| s.1[d].inner.clone()))
            .collect();
        let value = p.value.rewrite(&mut |a| a.clone(), &mut |e| match e {
            Expr::Load { source, index } if index.is_empty() => loads[source.0 as usize].clone(),
            e => e,
        });
        let add = Stmt::Update { op: p.op, buffer: acc, index: own.index.clone(), value };
        let mut sum = around(&own.loops, Mode::Unroll, vec![add]);
        let windows: Vec<(Var, i64)> =
            within.iter().zip(&p.reduce[1..]).map(|(v, r)| (*v, r.extent)).collect();
        sum = around(&windows, Mode::Unroll, sum);
        sum = vec![count(cu, self.unroll, Mode::Unroll, sum)];
        let sum = count(co, self.chunk / self.unroll, Mode::Serial, sum);
        let barrier = || Stmt::Barrier(Reach::Block);
        if !double {
            let mut inner: Vec<Stmt> = declared.collect();
            for (k, (source, spans)) in shapes.iter().enumerate() {
                inner.push(self.fetch(&p.operands[k], *source, spans, &tiles[k], None));
            }
            inner.extend([barrier(), sum, barrier()]);
            body.push(count(self.step, self.steps, Mode::Serial, inner));
            return;
        }
        let mut outer: Vec<Stmt> = declared.collect();
        for (k, (source, spans)) in at(self, &Affine::constant(0)).iter().enumerate() {
            outer.push(self.fetch(
                &p.operands[k],
                *source,
                spans,
                &tiles[k],
                Some(Affine::constant(0)),
            ));
        }
        outer.push(barrier());
        let next = now.plus(1);
        let mut ahead = Vec::new();
        for (k, (source, spans)) in at(self, &next).iter().enumerate() {
            ahead.push(self.fetch(
                &p.operands[k],
                *source,
                spans,
                &tiles[k],
                Some(Affine::new([(stage, -1)], 1)),
            ));
        }
        let ahead =
            Stmt::If { conds: vec![Cond { index: next, low: 0, high: self.steps }], body: ahead };
        let inner = vec![count(stage, 2, Mode::Unroll, vec![ahead, sum, barrier()])];
        outer.extend([count(self.step, self.steps / 2, Mode::Serial, inner), barrier()]);
        // A loop that runs once gives the tiles a block of statements, at whose end their place is
        // free.
        let once = self.n.new_var("once");
        body.push(count(once, 1, Mode::Serial, outer));
    }

    /// The shared buffer of an operand's tile, and the dimensions that it has, in its order.
    fn tile(&mut self, source: Source, spans: &[Span]) -> (Source, Vec<usize>) {
        // Axes that threads lie along come last: their accesses then touch all banks.
        let order = [false, true]
            .into_iter()
            .flat_map(|s| (0..spans.len()).filter(move |&d| spans[d].spatial == s));
        let kept: Vec<usize> = order.filter(|&d| spans[d].extent > 1).collect();
        let mut shape: Vec<i64> = kept.iter().map(|&d| spans[d].extent).collect();
        if let [_, .., last] = &mut shape[..] {
            *last += self.pad;
        }
        if shape.is_empty() {
            shape.push(1);
        }
        if self.stages > 1 {
            shape.insert(0, self.stages);
        }
        let name = format!("{}_s", self.n.buffer(source).name);
        (self.buffer(&name, shape, Scope::Shared), kept)
    }

    /// Copies an operand's tile to shared memory, in one of the stages where there are several.
    fn fetch(
        &mut self,
        o: &Operand,
        source: Source,
        spans: &[Span],
        tile: &(Source, Vec<usize>),
        stage: Option<Affine>,
    ) -> Stmt {
        let mut loops = Vec::new();
        let mut f: Vec<Affine> = vec![Affine::constant(0); spans.len()];
        let mut lanes = None;
        for (d, s) in spans.iter().enumerate().filter(|(_, s)| s.extent > 1) {
            let x = self.n.new_var(&format!("x{d}"));
            if s.lanes > 1 {
                let lane = self.n.new_var("lane");
                loops.push((x, s.extent / s.lanes));
                f[d] = Affine::new([(x, s.lanes), (lane, 1)], 0);
                lanes = Some((lane, s.lanes));
            } else {
                loops.push((x, s.extent));
                f[d] = Affine::var(x);
            }
        }
        let global: Vec<Affine> =
            spans.iter().enumerate().map(|(d, s)| s.base.add(&f[d].scale(s.step))).collect();
        let guard = |c: &Cond| {
            let d = o.index.iter().position(|a| a.terms() == c.index.terms()).unwrap_or(0);
            Cond { index: global[d].plus(c.index.offset() - o.index[d].offset()), ..c.clone() }
        };
        let conds: Vec<Cond> = o.conds.iter().map(guard).collect();
        let load = Expr::load(source, global);
        let value = if conds.is_empty() {
            load
        } else {
            Expr::Select { conds, then: Box::new(load), other: Box::new(Expr::Const(o.other)) }
        };
        let index = match tile.load(stage, |d| f[d].clone()) {
            Expr::Load { index, .. } => index,
            _ => Vec::new(),
        };
        let mut copy = vec![Stmt::Store { buffer: tile.0, index, value }];
        if let Some((lane, width)) = lanes {
            copy = vec![count(lane, width, Mode::Vector, copy)];
        }
        if loops.is_empty() {
            loops.push((self.n.new_var("x"), 1));
        }
        around(&loops, Mode::Share, copy).remove(0)
    }

    /// Every thread finishes its own elements.
    fn finish(&mut self, acc: Source, body: &mut Vec<Stmt>) {
        let mut own = self.own("y");
        let y = epilogue(self.p, &self.start, &own.place, &Expr::load(acc, own.index));
        let inner = own.loops.pop();
        let last = inner.map_or_else(Vec::new, |(v, e)| {
            vec![count(v, e, if matches!(e, 2 | 4) { Mode::Vector } else { Mode::Unroll }, vec![y])]
        });
        body.extend(around(&own.loops, Mode::Unroll, last));
    }

    /// Partial sums meet in shared memory; each block of the cluster finishes a slice.
    fn meet(&mut self, acc: Source, body: &mut Vec<Stmt>) {
        let p = self.p;
        let shape: Vec<i64> =
            [self.cluster, self.groups].into_iter().chain(self.size.iter().copied()).collect();
        let partial = self.buffer("partial", shape, Scope::Cluster);
        body.push(Stmt::Local(partial));
        let own = self.own("p");
        let index = |rank: Affine, group: Affine, place: &[Affine]| -> Vec<Affine> {
            [rank, group].into_iter().chain(place.iter().cloned()).collect()
        };
        let put = Stmt::Store {
            buffer: partial,
            index: index(Affine::var(self.rank), Affine::var(self.group), &own.place),
            value: Expr::load(acc, own.index),
        };
        body.extend(around(&own.loops, Mode::Unroll, vec![put]));
        body.push(Stmt::Barrier(Reach::Cluster));
        let cut = self.size.iter().position(|s| s % self.cluster == 0).unwrap_or(0);
        let (mut loops, mut place) = (Vec::new(), Vec::new());
        for (k, axis) in p.axes.iter().enumerate() {
            let e = self.n.new_var(&format!("{}e", axis.short));
            let slice = if k == cut { self.size[k] / self.cluster } else { self.size[k] };
            loops.push((e, slice));
            place.push(if k == cut {
                Affine::new([(self.rank, slice), (e, 1)], 0)
            } else {
                Affine::var(e)
            });
        }
        let sum = self.buffer("sum", vec![1], Scope::Local);
        let zero = || vec![Affine::constant(0)];
        let [r, g] = ["r", "g"].map(|x| self.n.new_var(x));
        let add = Stmt::Update {
            op: p.op,
            buffer: sum,
            index: zero(),
            value: Expr::load(partial, index(Affine::var(r), Affine::var(g), &place)),
        };
        let mut each = vec![
            Stmt::Local(sum),
            Stmt::Store { buffer: sum, index: zero(), value: Expr::Const(p.op.identity()) },
        ];
        each.extend(around(&[(r, self.cluster), (g, self.groups)], Mode::Unroll, vec![add]));
        each.push(epilogue(p, &self.start, &place, &Expr::load(sum, zero())));
        body.extend(around(&loops, Mode::Share, each));
        body.push(Stmt::Barrier(Reach::Cluster));
    }
}

/// Reads a tile.
trait Tile {
    /// The element at `at` along each dimension of the operand.
    fn load(&self, stage: Option<Affine>, at: impl Fn(usize) -> Affine) -> Expr;
}

impl Tile for (Source, Vec<usize>) {
    fn load(&self, stage: Option<Affine>, at: impl Fn(usize) -> Affine) -> Expr {
        let mut index: Vec<Affine> = stage.into_iter().collect();
        index.extend(self.1.iter().map(|&d| at(d)));
        if self.1.is_empty() {
            index.push(Affine::constant(0));
        }
        Expr::load(self.0, index)
    }
}
