//! Builders of loops for the sketches of GPU kernels: counted loops, block loops over tiles of an
//! axis, the total of a few partial sums, and `launches`, which turns plain serial loops into a
//! launch of blocks and threads. Input and output are statements of the loop-nest IR
//! (`nest/mod.rs`).

use crate::nest::{Buffer, Loop, Mode, Nest, Scope, Start, Stmt, accesses, substitute};
use squall_core::DType;
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::workload::Reducer;

/// A loop that counts from 0.
pub fn count(var: Var, extent: i64, mode: Mode, body: Vec<Stmt>) -> Stmt {
    Stmt::Loop(Loop { var, extent, mode, start: None, body })
}

/// Loops around statements, the first outermost.
pub fn around(loops: &[(Var, i64)], mode: Mode, body: Vec<Stmt>) -> Vec<Stmt> {
    loops.iter().rev().fold(body, |body, &(v, e)| vec![count(v, e, mode, body)])
}

/// A block loop over tiles of an axis; the last tile moves back to stay inside.
pub fn tiles(var: Var, start: Var, extent: i64, tile: i64, body: Vec<Stmt>) -> Stmt {
    let start = Some(Start { var: start, step: tile, cap: extent - tile });
    Stmt::Loop(Loop {
        var,
        extent: extent.div_euclid(tile) + i64::from(extent % tile > 0),
        mode: Mode::Block,
        start,
        body,
    })
}

/// The total of the values that a few loops run over, and the statements that declare and compute
/// it.
pub fn total(n: &mut Nest, op: Reducer, value: Expr, loops: &[(Var, i64)]) -> (Expr, Vec<Stmt>) {
    let (name, shape, scope) = ("sum".into(), vec![1], Scope::Local);
    let buffer = n.new_buffer(Buffer { name, dtype: DType::F32, shape, scope, lenient: false });
    let index = vec![Affine::constant(0)];
    let first = Expr::Const(op.identity());
    let first = Stmt::Store { buffer, index: index.clone(), value: first };
    let add = Stmt::Update { op, buffer, index: index.clone(), value };
    let mut out = vec![Stmt::Local(buffer), first];
    out.extend(around(loops, Mode::Unroll, vec![add]));
    (Expr::load(buffer, index), out)
}

/// Turns statements that are plain loops into launches: outer loops become blocks, and the threads
/// of a block, 256 of them, share the inner ones.
pub fn launches(n: &mut Nest, stmts: Vec<Stmt>) -> Vec<Stmt> {
    launches_of(n, stmts, 256)
}

/// The same with blocks of another number of threads.
pub fn launches_of(n: &mut Nest, stmts: Vec<Stmt>, block_threads: i64) -> Vec<Stmt> {
    let one = |n: &mut Nest, s: Stmt| {
        let mut chain: Vec<(Var, i64)> = Vec::new();
        let mut body = vec![s];
        while let [Stmt::Loop(l)] = &body[..] {
            // The loops of a sum belong to one thread: the written element does not move along
            // them.
            let moves = accesses(&l.body)
                .iter()
                .all(|a| !a.write || local(n, a.buffer) || a.index.iter().any(|i| i.uses(l.var)));
            if !moves || l.start.is_some() || l.mode != Mode::Serial {
                break;
            }
            chain.push((l.var, l.extent));
            body = l.body.clone();
        }
        let t = n.new_var("t");
        let (block, mut threads) = (n.new_var("b"), block_threads);
        if let Some((v, extent)) = chain.last().copied().filter(|c| c.1 >= block_threads) {
            // Long rows are cut; the last cut moves back.
            chain.pop();
            let start = n.new_var("base");
            let at = Affine::new([(start, 1), (t, 1)], 0);
            substitute(&mut body, v, &at);
            let inner = vec![count(t, block_threads, Mode::Thread, body)];
            return around(
                &chain,
                Mode::Block,
                vec![tiles(block, start, extent, block_threads, inner)],
            )
            .remove(0);
        }
        let mut cut = chain.len();
        let mut shared = 1;
        while cut > 0 && shared < block_threads {
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

fn local(n: &Nest, b: Source) -> bool {
    n.buffer(b).scope == Scope::Local
}
