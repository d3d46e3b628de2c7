//! Sketches of GPU programs. Each rule writes the whole nest of a configuration, because the
//! blocks, threads and shared tiles of a GPU are one structure that no chain of primitives leads to
//! in small steps: `contract` for sums over tiles, `tensor` and `group` for those that tensor cores
//! multiply, `winograd` for 3x3 convolutions by fewer products, `rows` for reductions along rows,
//! `map` for the rest, and plain loops, one thread an element, where none applies.

mod boxes;
mod contract;
mod group;
mod group_tile;
mod map;
mod problem;
mod rows;
mod span;
mod tensor;
mod tensor_copies;
mod tensor_products;
mod tensor_shared;
mod tensor_sums;
mod tensor_tile;
mod winograd;

use super::{Derived, Facts};
use crate::emit::{emit_cuda, shared_bytes};
use crate::features::gpu::extract;
use crate::gcd;
use crate::nest::{Loop, Mode, Nest, Start, Stmt};
use squall_core::expr::{Affine, Expr, Var};
use squall_core::{Configuration, Gpu, KernelSource, RealizeError, Space, UNTUNED};

type Make = Box<dyn Fn(&Configuration) -> Result<Nest, String> + Send + Sync>;

/// A derived sketch: a space, and the GPU program of each of its configurations.
pub(crate) struct Program {
    pub name: String,
    pub space: Space,
    gpu: Gpu,
    make: Make,
}

type Rule = fn(&Facts<'_>, Gpu) -> Vec<Program>;

/// In order; the first that applies gives all sketches, and Winograd's algorithm adds its own.
const RULES: &[(&str, Rule)] =
    &[("contraction", contract::derive), ("rows", rows::derive), ("map", map::derive)];

pub(crate) fn derive(f: &Facts<'_>, gpu: Gpu) -> Vec<Program> {
    let derived = RULES.iter().map(|(_, rule)| rule(f, gpu)).find(|list| !list.is_empty());
    let mut list = derived.unwrap_or_else(|| vec![plain(f, gpu)]);
    list.extend(winograd::derive(f, gpu));
    list
}

/// One thread an element of each stage, one launch a stage.
pub(crate) fn plain(f: &Facts<'_>, gpu: Gpu) -> Program {
    let nest = map::plain(f);
    Program {
        name: UNTUNED.into(),
        space: super::plain::one(),
        gpu,
        make: Box::new(move |_| Ok(nest.clone())),
    }
}

impl Program {
    /// The verified nest of a configuration, within the device's limits.
    pub fn nest(&self, c: &Configuration) -> Result<Nest, RealizeError> {
        let n = (self.make)(c).map_err(RealizeError)?;
        let shared = shared_bytes(&n);
        if shared > u64::from(self.gpu.shared_per_block) {
            return Err(RealizeError(format!(
                "{shared} bytes of shared memory, a block has {}",
                self.gpu.shared_per_block
            )));
        }
        Ok(n)
    }
}

impl Derived for Program {
    fn name(&self) -> &str {
        &self.name
    }

    fn space(&self) -> &Space {
        &self.space
    }

    fn nest(&self, c: &Configuration) -> Result<Nest, RealizeError> {
        Program::nest(self, c)
    }

    fn print(&self, n: &Nest, symbol: &str) -> KernelSource {
        emit_cuda(n, symbol)
    }

    fn features(&self, n: &Nest) -> Vec<f32> {
        extract(n, self.gpu)
    }
}

/// A loop from 0.
fn count(var: Var, extent: i64, mode: Mode, body: Vec<Stmt>) -> Stmt {
    Stmt::Loop(Loop { var, extent, mode, start: None, body })
}

/// Loops around statements, the first outermost.
fn around(loops: &[(Var, i64)], mode: Mode, body: Vec<Stmt>) -> Vec<Stmt> {
    loops.iter().rev().fold(body, |body, &(v, e)| vec![count(v, e, mode, body)])
}

/// A block loop over tiles of an axis; the last tile moves back to stay inside.
fn tiles(var: Var, start: Var, extent: i64, tile: i64, body: Vec<Stmt>) -> Stmt {
    let start = Some(Start { var: start, step: tile, cap: extent - tile });
    Stmt::Loop(Loop {
        var,
        extent: extent.div_euclid(tile) + i64::from(extent % tile > 0),
        mode: Mode::Block,
        start,
        body,
    })
}

/// How many elements of 32 bits of an operand's lines can be fetched at once from an aligned
/// element on, where each group lies inside or outside of the tensor as a whole; `size` is the
/// tile's, and `steps` says whether the first reduction is walked through.
fn line_width(
    p: &problem::Problem,
    n: &Nest,
    o: &problem::Operand,
    size: &[i64],
    steps: bool,
) -> Option<i64> {
    let d = o.index.len() - 1;
    let a = &o.index[d];
    let tested = o.conds.iter().any(|c| c.index.terms() == a.terms());
    let fits = |w: i64| {
        // Without a test nothing may be read beside the tile.
        let inside = a.as_var().is_some_and(|v| {
            p.axes.iter().position(|x| x.var == v).is_some_and(|k| size[k] % w == 0)
        });
        // What tile starts are multiples of; the window and the tile itself move inside of the
        // line.
        let moves = |v: Var, c: i64| match p.axes.iter().position(|x| x.var == v) {
            Some(k) => {
                p.axes[k].extent == size[k] || c * gcd(size[k], p.axes[k].extent - size[k]) % w == 0
            }
            None => !steps || p.reduce[0].var != v,
        };
        let whole = |c: &squall_core::expr::Cond| {
            let shift = c.index.offset() - a.offset();
            c.index.terms() != a.terms() || (c.low - shift) % w == 0 && (c.high - shift) % w == 0
        };
        (tested || inside)
            && n.buffer(o.source).dtype.bytes() == 4
            && n.buffer(o.source).shape[d] % w == 0
            && a.terms().iter().all(|t| moves(t.0, t.1))
            && o.conds.iter().all(whole)
    };
    [4, 2].into_iter().find(|w| fits(*w))
}

/// An index of a contraction at elements of a tile that begins at `start`.
fn at_tile(p: &problem::Problem, start: &[Var], place: &[Affine], index: &Affine) -> Affine {
    index.map_vars(|v| match p.axes.iter().position(|x| x.var == v) {
        Some(k) => place[k].add(&Affine::var(start[k])),
        None => Affine::var(v),
    })
}

/// Where a contraction's output has them.
fn output_index(p: &problem::Problem, start: &[Var], place: &[Affine]) -> Vec<Affine> {
    p.y_index.iter().map(|i| at_tile(p, start, place, i)).collect()
}

/// A contraction's epilogue there, the sum being `sum`.
fn epilogue(p: &problem::Problem, start: &[Var], place: &[Affine], sum: &Expr) -> Stmt {
    let value = p.y_value.rewrite(&mut |a| at_tile(p, start, place, a), &mut |e| match e {
        Expr::Load { source, .. } if source == p.acc => sum.clone(),
        e => e,
    });
    Stmt::Store { buffer: p.output, index: output_index(p, start, place), value }
}

/// Makes launches of statements that are plain loops: outer loops become blocks, and the threads
/// of a block share the inner ones.
fn launches(n: &mut Nest, stmts: Vec<Stmt>) -> Vec<Stmt> {
    const THREADS: i64 = 256;
    let one = |n: &mut Nest, s: Stmt| {
        let mut chain: Vec<(Var, i64)> = Vec::new();
        let mut body = vec![s];
        while let [Stmt::Loop(l)] = &body[..] {
            // The loops of a sum belong to one thread: what is written does not move along them.
            let moves = crate::nest::accesses(&l.body)
                .iter()
                .all(|a| !a.write || local(n, a.buffer) || a.index.iter().any(|i| i.uses(l.var)));
            if !moves || l.start.is_some() || l.mode != Mode::Serial {
                break;
            }
            chain.push((l.var, l.extent));
            body = l.body.clone();
        }
        let t = n.new_var("t");
        let (block, mut threads) = (n.new_var("b"), THREADS);
        if let Some((v, extent)) = chain.last().copied().filter(|c| c.1 >= THREADS) {
            // Long rows are cut; the last cut moves back.
            chain.pop();
            let start = n.new_var("base");
            let at = Affine::new([(start, 1), (t, 1)], 0);
            crate::nest::substitute(&mut body, v, &at);
            let inner = vec![count(t, THREADS, Mode::Thread, body)];
            return around(&chain, Mode::Block, vec![tiles(block, start, extent, THREADS, inner)])
                .remove(0);
        }
        let mut cut = chain.len();
        let mut shared = 1;
        while cut > 0 && shared < THREADS {
            cut -= 1;
            shared *= chain[cut].1;
        }
        if chain.is_empty() {
            threads = 1;
        }
        let inner = around(&chain[cut..], Mode::Share, body);
        let inner =
            vec![count(block, 1, Mode::Block, vec![count(t, threads, Mode::Thread, inner)])];
        around(&chain[..cut], Mode::Block, inner).remove(0)
    };
    stmts.into_iter().map(|s| one(n, s)).collect()
}

fn local(n: &Nest, b: squall_core::expr::Source) -> bool {
    n.buffer(b).scope == crate::nest::Scope::Local
}
