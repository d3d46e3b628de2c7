//! The tile of a block in the contraction sketch: which elements of it each thread owns, which
//! elements of each operand a step takes, and where these lie in shared memory.
//!
//! Input: a [`Contraction`] (a sum over tiles of one or two operands, `problem.rs`) and a
//! configuration (a value for each knob); output: a [`Tiling`], the numbers and loop variables that
//! `program.rs` writes the loop nest with. In `Tiling` the vectors `size`, `t`, `v` and `i` have
//! one entry an axis of the output.

use super::super::super::divisors;
use super::super::loops::{around, launches};
use super::super::problem::{Contraction, ContractionOperand, line_width, walked};
use super::super::span::{Span, SpannedLoop};
use crate::nest::{Buffer, Mode, Nest, Scope, Stmt};
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::{Configuration, DType};

/// The most multiplications that are written out: NVRTC takes over a second for more, and builders
/// wait for the slowest candidate.
const MOST_UNROLLED: i64 = 2048;

/// The copy of a weight in tiles, and the output axes and reduction axes that the weight depends
/// on.
pub type Packed = (Source, Vec<usize>, Vec<usize>);

/// Variables of the tile's elements that a thread owns: `v`, `i` of each axis, with extents.
pub struct Own {
    pub loops: Vec<(Var, i64)>,
    /// The element's place in the tile along each axis.
    pub place: Vec<Affine>,
    /// Index of the accumulators.
    pub index: Vec<Affine>,
}

/// A configuration, and the nest that is written for it.
pub struct Tiling<'a> {
    pub p: &'a Contraction,
    pub n: Nest,
    /// Elements of a tile, threads, elements far apart and next to each other, by axis.
    pub size: Vec<i64>,
    pub t: Vec<i64>,
    pub v: Vec<i64>,
    pub i: Vec<i64>,
    pub chunk: i64,
    pub groups: i64,
    pub cluster: i64,
    pub steps: i64,
    pub unroll: i64,
    pub vector: i64,
    pub pad: i64,
    /// Chunks that shared memory holds: 2 where the next chunk is fetched while one is summed.
    pub stages: i64,
    /// Variables: block number, tile start and thread of each axis; group, block in the cluster,
    /// step.
    pub block: Vec<Var>,
    pub start: Vec<Var>,
    pub thread: Vec<Var>,
    pub group: Var,
    pub rank: Var,
    pub step: Var,
    /// Variables of the reductions behind the first that are walked through one place at a time.
    pub walked: Vec<Var>,
}

/// An operand's tile in shared memory: its buffer, and the dimensions of the operand that the tile
/// has, in the tile's order.
pub struct SharedTile {
    pub buffer: Source,
    kept: Vec<usize>,
}

impl SharedTile {
    /// Where the element lies that is at `at` along each dimension of the operand.
    pub fn index(&self, stage: Option<Affine>, at: impl Fn(usize) -> Affine) -> Vec<Affine> {
        let mut index: Vec<Affine> = stage.into_iter().collect();
        index.extend(self.kept.iter().map(|&d| at(d)));
        if self.kept.is_empty() {
            index.push(Affine::constant(0));
        }
        index
    }
}

impl<'a> Tiling<'a> {
    pub fn new(p: &'a Contraction, c: &Configuration) -> Result<Tiling<'a>, String> {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let of = |what: &str| -> Vec<i64> {
            p.axes.iter().map(|a| get(&format!("{}_{what}", a.short))).collect()
        };
        let (t, v, i) = (of("t"), of("v"), of("i"));
        let size: Vec<i64> = (0..t.len()).map(|a| t[a] * v[a] * i[a]).collect();
        let (chunk, groups, cluster) = (get("chunk"), get("split_threads"), get("split_blocks"));
        let unroll = divisors(chunk).into_iter().filter(|d| *d <= get("unroll")).max().unwrap_or(1);
        let walked = walked(p);
        let window: i64 = p.reduce[1 + walked..].iter().map(|r| r.extent).product();
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
        let walked = p.reduce[1..]
            .iter()
            .take(walked)
            .map(|r| n.new_var(&format!("{}o", r.short)))
            .collect();
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
            walked,
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

    pub fn own(&mut self, suffix: &str) -> Own {
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
    pub fn spans(
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
            SpannedLoop::Axis(k) => (Affine::var(self.start[k]), own[k].clone(), self.size[k]),
            SpannedLoop::Chunk => (from.clone(), main.clone(), whole),
            SpannedLoop::Window(k) if k < self.walked.len() => {
                (Affine::var(self.walked[k]), Affine::constant(0), 1)
            }
            SpannedLoop::Window(k) => {
                (Affine::constant(0), within[k].clone(), self.p.reduce[k + 1].extent)
            }
        };
        index.iter().map(|a| Span::of(self.p, a, &part)).collect()
    }

    /// Has a line fetched several elements at once where they begin at an aligned element and lie
    /// inside or outside of the tensor as a whole.
    pub fn widen(&self, o: &ContractionOperand, spans: &mut [Span]) {
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
    pub fn pack(&mut self, o: &ContractionOperand) -> Packed {
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

    /// The shared buffer of an operand's tile.
    pub fn tile(&mut self, source: Source, spans: &[Span]) -> SharedTile {
        // Axes that threads lie along come last, so that the threads' accesses touch all banks.
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
        SharedTile { buffer: self.buffer(&name, shape, Scope::Shared), kept }
    }
}
