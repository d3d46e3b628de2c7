//! The features of a scheduled loop nest on a CPU: counts of operations, vector and scalar loads,
//! registers, loop overhead, and, after Ansor, how many cache lines each buffer's accesses touch
//! and how much moves at each cache level. Input: a nest and a machine model; output: the struct
//! [`Features`] that `cpu_table.rs` declares.

use super::cpu_cost::estimate;
use super::cpu_table::Features;
use crate::emit::{register_count, stack_bytes};
use crate::nest::{Loop, Mode, Nest, Scope, Stmt, inside, share, tile_registers};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source};
use squall_core::workload::flatten;
use squall_core::{AMX_TILES, MachineModel};

/// The distance in 4-byte elements from which on rows at power-of-two distances map to the same
/// sets of a cache.
const CLASH: u64 = 1024;

/// The time of a product of 16-bit words (four operations) over that of two fused multiply-adds:
/// the product and its addition run on three ports, a fused multiply-add on two of them.
const WORDS_SHARE: f64 = 2.0 / 3.0;

/// An access of a statement under its loops: its offset in its buffer.
struct Touch {
    buffer: Source,
    off: Affine,
    write: bool,
}

/// The features of one operand of the statement with most operations.
#[derive(Default)]
struct LoadedOperand {
    lines: f64,
    unique: f64,
    stride: f64,
    reuse: f64,
    traffic: [f64; 2],
}

/// The walk through a nest that collects features.
struct Walk<'a> {
    n: &'a Nest,
    machine: &'a MachineModel,
    loops: Vec<&'a Loop>,
    /// The tests around the current statement.
    tests: Vec<&'a [Cond]>,
    /// The fraction of iterations that run the current statement in the version with tests.
    tested: f64,
    /// Sums over all statements.
    sums: Features,
    /// Facts of the statement with most work, and its points.
    main: Features,
    main_points: f64,
    total_points: f64,
    /// Registers that the operands of the statement with most work take.
    held: f64,
    /// The buffer of sums that lies in registers of tiles.
    sums_in_tiles: Option<Source>,
}

/// The features of a nest on a CPU.
pub(super) fn extract(n: &Nest, machine: &MachineModel) -> Features {
    let mut w = Walk {
        n,
        machine,
        loops: Vec::new(),
        tests: Vec::new(),
        tested: 1.0,
        sums: Features::default(),
        main: Features::default(),
        main_points: 0.0,
        total_points: 0.0,
        held: 0.0,
        sums_in_tiles: tile_registers(n).map(|r| r.buffer),
    };
    w.statements(&n.body);
    let s = w.sums;
    let flop = s.flop.max(1.0);
    let loads = s.loads_vector + s.loads_broadcast + s.loads_strided + s.loads_scalar;
    let mut all = Features {
        flop: s.flop,
        vector_flop: s.vector_flop,
        scalar_flop: s.scalar_flop,
        update_statements: s.update_statements,
        registers_named: register_count(n).values().sum::<i64>() as f64,
        flop_per_load: flop / (loads + 1.0),
        loads_vector: s.loads_vector,
        loads_broadcast: s.loads_broadcast,
        loads_strided: s.loads_strided,
        loads_scalar: s.loads_scalar,
        stores_vector: s.stores_vector,
        stores_strided: s.stores_strided,
        stores_scalar: s.stores_scalar,
        loop_iterations: s.loop_iterations,
        stack_bytes: stack_bytes(n) as f64,
        workspace_bytes: n.scope_bytes(|x| *x == Scope::Workspace) as f64,
        prepared_bytes: n.scope_bytes(|x| *x == Scope::Prepared) as f64,
        traffic_l1: s.traffic_l1,
        traffic_l2: s.traffic_l2,
        intensity_l1: flop / (s.traffic_l1 + 1.0),
        intensity_l2: flop / (s.traffic_l2 + 1.0),
        copy_elements: s.copy_elements,
        main_share: w.main_points / w.total_points.max(1.0),
        branches: s.branches,
        hints: s.hints,
        hint_distance: s.hint_distance,
        ..w.main
    };
    all.estimate = estimate(&all, w.held, machine);
    all
}

/// How often something happens in loops.
fn product<'a>(loops: impl Iterator<Item = &'a &'a Loop>) -> f64 {
    loops.map(|l| l.extent as f64).product()
}

impl<'a> Walk<'a> {
    fn statements(&mut self, stmts: &'a [Stmt]) {
        let tested = self.tested;
        for (i, s) in stmts.iter().enumerate() {
            match s {
                Stmt::Loop(l) => {
                    self.loops.push(l);
                    if l.mode == Mode::Serial || l.mode == Mode::Parallel {
                        let counted = |l: &&&Loop| matches!(l.mode, Mode::Serial | Mode::Parallel);
                        self.sums.loop_iterations += product(self.loops.iter().filter(counted));
                    }
                    self.statements(&l.body);
                    self.loops.pop();
                }
                Stmt::If { conds, body } => {
                    self.tests.push(conds);
                    self.statements(body);
                    self.tests.pop();
                }
                Stmt::Version => {
                    let untested = inside(&stmts[i + 1..]).map_or(0.0, |c| share(&c, &self.loops));
                    self.tested *= 1.0 - untested;
                }
                Stmt::Prefetch { buffer, at } => {
                    self.sums.hints += product(self.loops.iter());
                    let bytes = at.offset() * self.n.buffer(*buffer).dtype.bytes() as i64;
                    self.sums.hint_distance += (bytes / self.line()) as f64;
                }
                Stmt::Store { buffer, index, value } => {
                    self.statement(*buffer, index, value, false)
                }
                Stmt::Update { buffer, index, value, .. } => {
                    self.statement(*buffer, index, value, true)
                }
                _ => {}
            }
        }
        self.tested = tested;
    }

    /// Bytes of a cache line.
    fn line(&self) -> i64 {
        self.machine.cpu_units().line as i64
    }

    fn statement(&mut self, buffer: Source, index: &[Affine], value: &Expr, update: bool) {
        // Tests of copies have never counted, and predictors learned from such numbers.
        let tests = if update { &self.tests[..] } else { &[] };
        let share: f64 = tests.iter().map(|conds| share(conds, &self.loops)).product();
        let points = share * product(self.loops.iter());
        let lanes = self.vector().map_or(1, |l| l.extent);
        let flop = points * (value.flop() + u64::from(update)) as f64;
        self.sums.flop += flop;
        let tiled = self.loops.last().is_some_and(|l| l.mode == Mode::Amx);
        let lanes = if tiled { AMX_TILES.rows } else { lanes };
        // In units of full vectors: what the machine has to issue.
        let full = (self.machine.vectors.bytes / 4).max(1) as f64;
        let issued = flop / lanes as f64 * (full / lanes as f64).max(1.0).sqrt();
        let of_words = matches!(value, Expr::Binary(Binary::DotWords, ..));
        let issued = if of_words { issued * WORDS_SHARE } else { issued };
        if tiled && update {
            self.sums.vector_flop += self.tile_work(points);
        } else if lanes > 1 {
            self.sums.vector_flop += issued;
        } else {
            self.sums.scalar_flop += issued;
        }
        self.total_points += points;
        let mut branches = 0;
        value.visit(&mut |e| branches += u32::from(matches!(e, Expr::Select { .. })));
        self.sums.branches += f64::from(branches) * points * self.tested;
        let is_main = update && points > self.main_points;
        if is_main {
            self.main_points = points;
            self.main = self.main_facts(index, lanes);
            self.held = self.held(index, value);
        }
        if !update && value.flop() == 0 {
            self.sums.copy_elements += points;
        }
        if update {
            self.sums.update_statements += 1.0;
        }
        let touch = |buffer: Source, index: &[Affine], write| Touch {
            buffer,
            off: flatten(index, &self.n.buffer(buffer).shape),
            write,
        };
        let mut touches: Vec<Touch> =
            value.loads().into_iter().map(|(b, i)| touch(b, i, false)).collect();
        touches.push(touch(buffer, index, true));
        touches.retain(|x| !self.is_local(x.buffer) && self.sums_in_tiles != Some(x.buffer));
        self.memory(&touches, points, is_main);
    }

    /// The time of AMX products, in operations of the vector units that would take as long.
    fn tile_work(&self, points: f64) -> f64 {
        let tiles = self.machine.tiles.unwrap_or(AMX_TILES);
        let around = self.loops.iter().rev().take_while(|l| l.mode == Mode::Amx);
        let rows = around.clone().last().map_or(1.0, |l| l.extent as f64);
        let products = points / product(around);
        let ports = self.machine.cpu_units().fma_ports;
        products * (tiles.row * rows).max(tiles.least) * 2.0 * ports
    }

    /// The loop over vector lanes around the current statement.
    fn vector(&self) -> Option<&'a Loop> {
        self.loops.last().copied().filter(|l| l.mode == Mode::Vector)
    }

    /// Whether a buffer lies in registers or next to them.
    fn is_local(&self, b: Source) -> bool {
        self.n.buffer(b).scope == Scope::Local && self.n.buffer(b).elements() <= 1024
    }

    /// Counts memory accesses, and the traffic that they cause into two caches.
    fn memory(&mut self, touches: &[Touch], points: f64, is_main: bool) {
        // How much all touched memory is, from each loop inwards.
        let line = self.line();
        let mut footprint = vec![0.0; self.loops.len() + 1];
        for x in touches {
            for (d, f) in footprint.iter_mut().enumerate() {
                *f += lines(&x.off, &self.loops[d..], line) * line as f64;
            }
        }
        let share = self.machine.cpu_units().cache_share;
        let levels = [1, 2].map(|level| {
            let room = (self.machine.cache(level).size.0 as f64 * share).floor();
            let fits = |&d: &usize| footprint[d] <= room;
            (0..=self.loops.len()).find(fits).unwrap_or(self.loops.len())
        });
        let mut operand = 0;
        for x in touches {
            self.count(x, points);
            let traffic = levels.map(|d| self.traffic(d, &x.off));
            self.sums.traffic_l1 += traffic[0];
            self.sums.traffic_l2 += traffic[1];
            if is_main && operand < 3 {
                let loops = &self.loops;
                let inner = loops.iter().rev().find(|l| l.mode == Mode::Serial && l.moves(&x.off));
                let near = lines(&x.off, &loops[levels[0]..], line);
                let facts = LoadedOperand {
                    lines: near,
                    unique: lines(&x.off, loops, line),
                    stride: inner.map_or(0.0, |l| x.off.coefficient(l.var).abs() as f64),
                    reuse: points / (near + 1.0),
                    traffic,
                };
                // Rows at a power-of-two distance fall into the same cache sets.
                let clash = loops.iter().any(|l| {
                    let c = x.off.coefficient(l.var).unsigned_abs();
                    c >= CLASH && c.is_power_of_two() && l.extent > 4
                });
                self.operand(if x.write { 2 } else { operand.min(1) }, facts);
                if clash {
                    self.main.conflict += 1.0;
                }
                operand += 1;
            }
        }
    }

    /// Counts how often an access is made.
    fn count(&mut self, x: &Touch, points: f64) {
        // The rows of tiles are loaded as vectors are.
        let of_tile = |l: &&Loop| l.mode == Mode::Amx && x.off.coefficient(l.var) == 1;
        let vector = self.vector().or_else(|| self.loops.iter().copied().find(of_tile));
        // Accesses that unrolled loops repeat are loaded once for the body.
        let repeat: f64 = product(
            (self.loops.iter().rev().take_while(|l| !matches!(l.mode, Mode::Serial | Mode::Step)))
                .filter(|l| !l.moves(&x.off)),
        );
        let count = points / repeat.max(1.0);
        let stride = vector.map(|l| x.off.coefficient(l.var).abs());
        let lanes = vector.map_or(1, |l| l.extent) as f64;
        // A vector wider than a register goes through the stack, part by part.
        let full = (self.machine.vectors.bytes / 4).max(1) as f64;
        let count = if lanes > full { count * (4.0 * lanes / full) } else { count };
        let s = &mut self.sums;
        match (stride, x.write) {
            (None, false) => s.loads_scalar += count,
            (Some(0), false) => s.loads_broadcast += count,
            (Some(1), false) => s.loads_vector += count / lanes,
            (Some(_), false) => s.loads_strided += count,
            (None, true) => s.stores_scalar += count,
            (Some(1), true) => s.stores_vector += count / lanes,
            (Some(_), true) => s.stores_strided += count,
        }
    }

    /// Traffic into a cache level: the footprint inside the loops from `d` on, once for each outer
    /// iteration; loops directly outside that do not move the access reuse the elements already
    /// there.
    fn traffic(&self, mut d: usize, off: &Affine) -> f64 {
        while d > 0 && !self.loops[d - 1].moves(off) {
            d -= 1;
        }
        let line = self.line();
        product(self.loops[..d].iter()) * lines(off, &self.loops[d..], line) * line as f64
    }

    /// Registers that operands take beside the sums in the written-out loops around a statement:
    /// what an outer loop of the tile uses again stays until its last use, the rest comes and
    /// goes, and what one step shares with the next stays, unless steps load anew.
    fn held(&self, sum: &[Affine], value: &Expr) -> f64 {
        let out = || self.loops.iter().rev().take_while(|l| l.mode != Mode::Serial);
        let of_sum = |l: &Loop| sum.iter().any(|a| l.moves(a));
        // The register tile's loops, innermost first.
        let tile = || out().filter(|l| l.mode == Mode::Unroll && l.extent > 1 && of_sum(l));
        let mut held = 0.0;
        for (b, index) in value.loads() {
            let off = flatten(index, &self.n.buffer(b).shape);
            let (mut inside, mut stays) = (1.0, 1.0);
            for l in tile() {
                match l.moves(&off) {
                    true => inside *= l.extent as f64,
                    false => stays = inside,
                }
            }
            held += stays;
            for step in out().filter(|l| l.mode == Mode::Unroll && !of_sum(l)) {
                let by = off.coefficient(step.var);
                let meets = |l: &&&Loop| {
                    let along = off.coefficient(l.var);
                    by != 0 && along % by == 0 && (1..step.extent).contains(&(along / by))
                };
                held += tile().filter(meets).map(|l| l.extent as f64).sum::<f64>();
            }
        }
        held
    }

    /// Stores the features of an operand of the statement with most operations.
    fn operand(&mut self, which: usize, o: LoadedOperand) {
        let m = &mut self.main;
        let [t1, t2] = o.traffic;
        match which {
            0 => {
                (m.a_lines, m.a_unique, m.a_stride) = (o.lines, o.unique, o.stride);
                (m.a_reuse_l1, m.a_traffic_l1, m.a_traffic_l2) = (o.reuse, t1, t2);
            }
            1 => {
                (m.b_lines, m.b_unique, m.b_stride) = (o.lines, o.unique, o.stride);
                (m.b_reuse_l1, m.b_traffic_l1, m.b_traffic_l2) = (o.reuse, t1, t2);
            }
            _ => {
                (m.c_lines, m.c_unique, m.c_stride) = (o.lines, o.unique, o.stride);
                (m.c_reuse_l1, m.c_traffic_l1, m.c_traffic_l2) = (o.reuse, t1, t2);
            }
        }
    }

    /// The features of the loops around the statement with most operations.
    fn main_facts(&self, index: &[Affine], lanes: i64) -> Features {
        let loops = &self.loops;
        let moved = |l: &Loop| index.iter().any(|a| l.moves(a));
        let is_one = |l: &Loop| matches!(l.mode, Mode::Vector | Mode::Amx);
        let written_out = |l: &Loop| is_one(l) || matches!(l.mode, Mode::Unroll | Mode::Step);
        let unrolled = || {
            let inner = loops.iter().rev().take_while(|l| written_out(l));
            inner.filter(|l| !is_one(l))
        };
        let serial: Vec<&&Loop> =
            loops.iter().filter(|l| l.mode == Mode::Serial && l.extent > 1).collect();
        let flush = loops.iter().rev().take_while(|l| !moved(l) || written_out(l));
        let parallel = || loops.iter().filter(|l| l.mode == Mode::Parallel);
        let waste: f64 = loops
            .iter()
            .filter_map(|l| {
                l.start.map(|st| (st.step * l.extent) as f64 / (st.cap + st.step) as f64)
            })
            .product();
        Features {
            unrolled_body: product(unrolled()),
            lanes: lanes as f64,
            accumulators: product(unrolled().filter(|l| moved(l))),
            innermost_serial_extent: serial.last().map_or(1.0, |l| l.extent as f64),
            inner_trip: product(serial.iter().rev().take(2).copied()),
            reduction_before_flush: product(flush.filter(|l| !moved(l))),
            parallel_iterations: parallel().map(|l| l.shares() as f64).product(),
            parallel_depth: parallel().count() as f64,
            tile_imbalance: (waste - 1.0) * 100.0,
            ..Features::default()
        }
    }
}

/// Distinct cache lines of `line` bytes that an access touches while the given loops run.
fn lines(off: &Affine, loops: &[&Loop], line: i64) -> f64 {
    let each = line / 4;
    let mut steps: Vec<(i64, i64)> = loops
        .iter()
        .filter_map(|l| {
            let own = off.coefficient(l.var).abs();
            let tile = l.start.map_or(0, |s| off.coefficient(s.var).abs() * s.step);
            (own + tile > 0).then_some((own + tile, l.extent))
        })
        .collect();
    steps.sort_unstable();
    // A run of elements that grows while steps stay within a cache line of the elements already
    // covered.
    let (mut run, mut count) = (1i64, 1.0);
    for (step, extent) in steps {
        if step < run + each {
            run += step * (extent - 1);
        } else {
            count *= extent as f64;
        }
    }
    count * ((run as f64 - 1.0) / each as f64 + 1.0)
}
