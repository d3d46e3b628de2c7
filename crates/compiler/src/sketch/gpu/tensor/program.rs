//! Writes the loop nest of a configuration (a value for each knob) of the sketch for tensor cores
//! by warps (`mod.rs`): loops over blocks and warps, a loop over steps of the reduction that
//! fetches to shared memory in one stage or several and multiplies, and the epilogue. Input: a
//! contraction (a sum over tiles of one or two operands, `problem.rs`), the roles of its operands
//! (which gives the product's rows, which its columns) and a configuration; output: a nest. `load`,
//! `multiply` and `store` give the statements.

use super::super::loops::count;
use super::super::problem::Contraction;
use super::multiply::Products;
use super::roles::{Roles, SIDE, TileLayout, group_knob};
use super::shared::{SharedTile, pieces};
use super::tile::{Ahead, Tiling, sum_of};
use crate::nest::{Mode, Nest, Reach, Scope, Stmt, Warp};
use squall_core::expr::{Affine, Cond, Source};
use squall_core::{Configuration, DType};

/// The nest of a configuration.
pub fn program(p: &Contraction, roles: &Roles, c: &Configuration) -> Nest {
    let get = |k: &str| c.int(k).unwrap_or(1);
    let warps = [get("warps_rows"), get("warps_columns")];
    let grouped = roles.images.then(|| p.in_groups(get(&group_knob(p))));
    let p = grouped.as_ref().unwrap_or(p);
    let mut t = Tiling::cut(p, roles, c, warps, [SIDE, SIDE], get("chunk"));
    // With a stage more than there are steps all of them are on their way at once.
    t.stages = t.stages.min(t.steps);
    for f in 0..2 {
        match (t.factors[f].layout, c.word("transpose")) {
            (TileLayout::Transposed, Some("launch")) => t.transpose(f),
            (TileLayout::Transposed, Some("gather")) => t.factors[f].layout = TileLayout::Planes,
            _ => {}
        }
    }
    t.program()
}

/// The barrier behind the wait for a step's copies.
fn barrier() -> Stmt {
    Stmt::Barrier(Reach::Block)
}

/// Statements under the condition that a step or piece exists, for one that may lie behind the
/// last.
fn below(index: Affine, high: i64, body: Vec<Stmt>) -> Stmt {
    Stmt::If { conds: vec![Cond { index, low: 0, high }], body }
}

impl Tiling<'_> {
    fn program(mut self) -> Nest {
        let before = std::mem::take(&mut self.n.body);
        let positions = self.run[0] * self.run[1];
        let sums = self.buffer(
            "sums",
            vec![positions, self.sides[0], self.sides[1], SIDE, SIDE],
            Scope::Fragment,
            DType::F32,
        );
        let mut body = Vec::new();
        // The barrier shows that this block has begun: from there on other blocks may bring their
        // sums.
        let gathered = (self.cluster > 1).then(|| {
            body.push(Stmt::Barrier(Reach::Cluster));
            self.gather(&mut body)
        });
        body.push(Stmt::Local(sums));
        for position in 0..positions {
            let at = self.each("z");
            let zero = Stmt::Warp(Warp::Zero(sum_of(sums, position, &at)));
            body.extend(self.over(&at, vec![zero]));
        }
        self.sum(sums, &mut body);
        self.put(sums, gathered, &mut body);
        let threads = [
            (self.group, self.groups),
            (self.warp[0], self.warps[0]),
            (self.warp[1], self.warps[1]),
            (self.lane, 32),
        ];
        self.launch(&threads, body, before)
    }

    /// Walks through the reduction.
    fn sum(&mut self, sums: Source, body: &mut Vec<Stmt>) {
        let none = Affine::constant(0);
        let still = vec![none.clone(); self.p.reduce.len()];
        let from = [0, 1].map(|i| self.source(i));
        let factors = self.factors.clone();
        let shapes = [0, 1].map(|i| self.spans(&factors[i], &none, &[], &still, &none));
        let shared = [0, 1].map(|i| self.shared_tile(&factors[i], from[i], &shapes[i]));
        let mut inner: Vec<Stmt> = shared.iter().map(|t| Stmt::Local(t.buffer)).collect();
        let first = self.fetched_first;
        if first > 0 {
            let s = self.n.new_var("s");
            let mut copies = self.load_both(&shared, &Affine::var(s), &Affine::var(s));
            copies.push(Stmt::CommitCopies);
            inner.push(count(s, first, Mode::Unroll, copies));
        }
        // These matrices outlive a step.
        let kept = (self.ahead == Ahead::Step).then(|| self.products(None));
        if let Some(products) = &kept {
            inner.extend(products.locals());
            inner.extend(self.arrived());
            inner.extend(self.load_product(products, &shared, &none, 0));
        }
        let step = self.n.new_var("step");
        let now = Affine::var(step);
        let each = if first > 0 {
            self.step_of_stages(sums, &shared, &now, kept.as_ref())
        } else {
            self.step_alone(sums, &shared, &now)
        };
        inner.push(count(step, self.steps, Mode::Serial, each));
        if self.direct().is_some() {
            return body.extend(inner);
        }
        inner.push(barrier());
        // A loop that runs once makes a block of statements around the tiles, so that their place
        // in shared memory is free at its end.
        let once = self.n.new_var("once");
        body.push(count(once, 1, Mode::Serial, inner));
    }

    fn load_both(&mut self, shared: &[SharedTile; 2], step: &Affine, stage: &Affine) -> Vec<Stmt> {
        (0..2).flat_map(|i| self.load_factor(i, &shared[i], step, stage, None)).collect()
    }

    /// Waits for the oldest of the steps that are on their way.
    fn arrived(&self) -> [Stmt; 2] {
        [Stmt::AwaitCopies((self.fetched_first - 1) as u32), barrier()]
    }

    /// A step while later ones are fetched: the fetch of the last of them is started, and this step
    /// is multiplied; from the matrices `kept`, if those of a step's first product are loaded in
    /// the step before.
    fn step_of_stages(
        &mut self,
        sums: Source,
        shared: &[SharedTile; 2],
        now: &Affine,
        kept: Option<&Products>,
    ) -> Vec<Stmt> {
        let [stage, next] = ["stage", "next"].map(|x| self.n.new_var(x));
        let (stages, first) = (self.stages, self.fetched_first);
        let number = |var, from: i64| {
            let value = now.plus(from);
            Stmt::Let { var, value, divisor: 1, modulo: stages }
        };
        let numbers = [number(stage, 0), number(next, first)];
        let mut later = Vec::new();
        if first < self.steps {
            let copies = self.load_both(shared, &now.plus(first), &Affine::var(next));
            later.push(below(now.plus(first), self.steps, copies));
        }
        later.push(Stmt::CommitCopies);
        let stage = Affine::var(stage);
        let mut each = Vec::new();
        let Some(products) = kept else {
            each.extend(self.arrived());
            each.extend(numbers);
            each.append(&mut later);
            each.extend(self.multiply(sums, shared, &stage, None));
            return each;
        };
        let after = self.n.new_var("after");
        each.extend(numbers);
        each.push(number(after, 1));
        for i in 0..products.len() {
            // While the last is multiplied, the next step's first one is loaded.
            if i + 1 == products.len() {
                each.extend(self.arrived());
                each.extend(self.load_product(products, shared, &Affine::var(after), 0));
            } else {
                each.extend(self.load_product(products, shared, &stage, i + 1));
            }
            each.extend(self.multiply_product(products, sums, i));
            each.append(&mut later);
        }
        each
    }

    /// A step that is fetched when it begins, as a whole or piece by piece.
    fn step_alone(&mut self, sums: Source, shared: &[SharedTile; 2], now: &Affine) -> Vec<Stmt> {
        let none = Affine::constant(0);
        // Where a weight's tile has the window's first loop.
        let cut = [0, 1].map(|i| pieces(self.p, &self.factors[i]).filter(|_| self.pieces));
        let at = |i: usize, place: &Affine| cut[i].map(|d| (d, place.clone()));
        let mut each = Vec::new();
        for (i, tile) in shared.iter().enumerate() {
            each.extend(self.load_factor(i, tile, now, &none, at(i, &none).as_ref()));
        }
        each.push(Stmt::CommitCopies);
        if self.pieces {
            // The next piece is on its way while one is multiplied.
            let first = &self.p.reduce[1];
            let w = self.n.new_var(&format!("{}w", first.short));
            let next = Affine::new([(w, 1)], 1);
            let mut later = Vec::new();
            for i in (0..2).filter(|&i| cut[i].is_some()) {
                later.extend(self.load_factor(i, &shared[i], now, &none, at(i, &next).as_ref()));
            }
            let mut piece = vec![below(next, first.extent, later)];
            piece.extend([Stmt::CommitCopies, Stmt::AwaitCopies(1), barrier()]);
            piece.extend(self.multiply(sums, shared, &none, Some(w)));
            let all = self.unroll >= self.p.reduce.len() - 1;
            let mode = if all { Mode::Unroll } else { Mode::Serial };
            each.push(count(w, first.extent, mode, piece));
        } else {
            each.extend([Stmt::AwaitCopies(0), barrier()]);
            each.extend(self.multiply(sums, shared, &none, None));
        }
        // If there is only one step, the barrier behind the steps is enough.
        if self.steps > 1 {
            each.push(barrier());
        }
        each
    }
}
