//! Writes the loop nest of a configuration (a value for each knob) of Winograd's sketch for GPUs
//! (`mod.rs`): block and thread loops, a pipelined loop over steps of input channels with the 16
//! products of each, and the way back to the outputs (`store.rs`). Input: the nest without the
//! convolution's loops, the convolution and a configuration; output: the nest of the kernel.

use super::super::loops::{around, count, tiles};
use super::tile::{Maker, PLACES, SIZE, constant, tiles_of, var};
use crate::nest::{Mode, Nest, Reach, Scope, Stmt};
use crate::schedule::Convolution;
use squall_core::Configuration;
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Var};

/// The nest of a configuration.
pub fn program(base: &Nest, conv: Convolution, c: &Configuration) -> Result<Nest, String> {
    Maker::new(base, conv, c)?.program()
}

impl Maker {
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
        // Loads come before copies, because the program waits for them first.
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
        // A loop that runs once makes a block of statements around the tiles, so that their place
        // in shared memory is free at its end.
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
}
