//! What the cost model sees of a GPU program: its launch, what limits how many blocks a
//! multiprocessor holds, and the work of a thread. Logarithms, as on CPUs.

use crate::emit::shared_bytes;
use crate::gcd;
use crate::nest::{Loop, Mode, Nest, Scope, Stmt, Warp, extents, visit};
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::workload::flatten;
use squall_core::{DType, Gpu};
use std::collections::HashMap;

/// Names of the features of GPU programs, in order.
pub const GPU_FEATURES: &[&str] = &[
    "estimate",
    "blocks",
    "cluster",
    "threads",
    "shared_bytes",
    "registers",
    "flop",
    "shared_loads",
    "shared_stores",
    "global_loads",
    "global_loads_scattered",
    "global_stores",
    "barriers",
    "steps",
    "unrolled",
    "resident_blocks",
    "resident_warps",
    "waves",
    "blocks_of_the_last_wave",
    "warps_per_multiprocessor",
    "flop_per_shared_load",
    "flop_per_global_byte",
    "traffic",
    "conflicts",
    "block_flop",
    "idle_lanes",
    "matrix_products",
    "matrix_loads",
    "stages_ahead",
];

#[derive(Default)]
struct Counts {
    values: HashMap<&'static str, f64>,
}

impl Counts {
    fn add(&mut self, k: &'static str, x: f64) {
        *self.values.entry(k).or_default() += x;
    }
    fn get(&self, k: &str) -> f64 {
        self.values.get(k).copied().unwrap_or(0.0)
    }
    fn most(&mut self, k: &'static str, x: f64) {
        let v = self.values.entry(k).or_default();
        *v = v.max(x);
    }
}

struct Walk<'a> {
    n: &'a Nest,
    threads: f64,
    /// Innermost thread loop that runs more than once.
    fastest: Option<Var>,
    loops: Vec<&'a Loop>,
    /// Whether tensor cores are used: loops without barriers then cost no latency of their own.
    tensor: bool,
    c: Counts,
}

/// The features of a GPU program, one for each of [`GPU_FEATURES`].
pub fn extract(n: &Nest, gpu: Gpu) -> Vec<f32> {
    let (mut blocks, mut cluster, mut threads, mut fastest) = (1.0, 1.0, 1.0, None);
    let mut launches = 0.0;
    let mut c = Counts::default();
    for s in &n.body {
        let mut at = std::slice::from_ref(s);
        let (mut b, mut k, mut t) = (1.0, 1.0, 1.0);
        while let [Stmt::Loop(l)] = at {
            let e = l.extent as f64;
            match l.mode {
                Mode::Block => b *= e,
                Mode::Cluster => k *= e,
                Mode::Thread => t *= e,
                _ => break,
            }
            if l.mode == Mode::Thread && l.extent > 1 {
                fastest = Some(l.var);
            }
            at = &l.body;
        }
        launches += 1.0;
        (blocks, cluster, threads) =
            (f64::max(blocks, b * k), f64::max(cluster, k), f64::max(threads, t));
        let mut tensor = false;
        visit(at, &mut |s| tensor |= matches!(s, Stmt::Warp(_)));
        let mut w = Walk { n, threads: t, fastest, loops: Vec::new(), tensor, c };
        w.stmts(at);
        c = w.c;
    }
    let shared = shared_bytes(n) as f64;
    let registers = c.get("registers") + 28.0;
    let limit = |all: u32, each: f64| (f64::from(all) / each.max(1.0)).floor();
    let resident = limit(gpu.threads_per_multiprocessor, (threads / 32.0).ceil() * 32.0)
        .min(limit(gpu.shared_per_multiprocessor, shared + 1024.0))
        .min(limit(gpu.registers_per_multiprocessor, threads * registers))
        .clamp(1.0, 32.0);
    let units = f64::from(gpu.multiprocessors);
    let waves = (blocks / (units * resident)).ceil();
    let each = (blocks / units).ceil();
    let warps = (threads / 32.0).ceil();
    let active = each.min(resident) * warps;
    let traffic = blocks
        * threads
        * (c.get("global_loads") + 3.0 * c.get("global_loads_scattered") + c.get("global_stores"))
        * 4.0;
    let launch = Launch { each, warps, active, waves, launches, cluster, traffic };
    let estimate = if c.get("matrix_products") > 0.0 {
        launch.of_tensor_cores(&c)
    } else {
        launch.of_lanes(&c, blocks * threads)
    };
    let flop = c.get("flop");
    for (k, x) in [
        ("estimate", estimate),
        ("blocks", blocks),
        ("cluster", cluster),
        ("threads", threads),
        ("shared_bytes", shared),
        ("resident_blocks", resident),
        ("resident_warps", resident * warps),
        ("waves", waves),
        ("blocks_of_the_last_wave", blocks - (waves - 1.0) * units * resident),
        ("warps_per_multiprocessor", active),
        ("flop_per_shared_load", flop / (c.get("shared_loads") + 0.1)),
        ("flop_per_global_byte", flop / (4.0 * c.get("global_loads") + 0.1)),
        ("traffic", traffic),
        ("block_flop", flop * threads),
        ("idle_lanes", warps * 32.0 - threads),
    ] {
        c.values.insert(k, x);
    }
    GPU_FEATURES.iter().map(|k| (c.get(k).max(0.0) + 1.0).log2() as f32).collect()
}

/// What the estimates are made of, besides the work of a thread: blocks that a multiprocessor gets
/// in all, warps of a block, those that run at once, rounds of blocks, launches, blocks of a
/// cluster, bytes that move.
struct Launch {
    each: f64,
    warps: f64,
    active: f64,
    waves: f64,
    launches: f64,
    cluster: f64,
    traffic: f64,
}

impl Launch {
    /// Cycles of a program that adds up on ordinary lanes, 128 of a multiprocessor; few warps
    /// cannot keep them busy. The constants are fitted to 5,400 trials of twelve layers and
    /// products on an H200; rank correlation with the times of a layer that was left out is 0.45 on
    /// average (0.15 by the guesses before): clusters and scattered accesses cost more than
    /// thought, rounds of fetches less.
    fn of_lanes(&self, c: &Counts, threads: f64) -> f64 {
        let own = self.each * self.warps;
        let arithmetic = own * c.get("flop") / 2.0 / 4.0 * (1.0 + 6.4 / self.active.max(1.0));
        let shared = 0.57 * c.get("shared_loads") + 7.4 * c.get("shared_stores");
        let loads =
            own * (shared + 7.9 * c.get("global_loads_scattered") + 24.0 * c.get("global_stores"));
        let memory = threads * (c.get("global_loads") + c.get("global_stores")) * 4.0 / 3600.0;
        let longest = arithmetic.max(loads).max(memory);
        let latency = 20.0 * self.waves * c.get("barriers") + 3000.0 * (self.waves - 1.0).max(0.0);
        let cluster = if self.cluster > 1.0 { 1850.0 + 270.0 * self.cluster.log2() } else { 0.0 };
        longest
            + 0.28 * (arithmetic + loads + memory - longest)
            + latency
            + 1400.0 * self.launches
            + cluster
    }

    /// Cycles of a program that uses tensor cores: one shared load a warp and cycle, a product of
    /// 16 x 16 sums in four cycles of a multiprocessor; fetches and barriers cost their latency
    /// each step.
    fn of_tensor_cores(&self, c: &Counts) -> f64 {
        let own = self.each * self.warps;
        let busy = (self.active / 12.0).min(1.0).powf(0.7);
        let arithmetic = own * c.get("flop") / 2.0 / 4.0 / busy
            + own * 4.0 * c.get("matrix_products") / (self.active / 8.0).min(1.0);
        let loads = own
            * (c.get("shared_loads") * 0.6 + c.get("shared_stores") + c.get("conflicts"))
            / busy.sqrt();
        let memory = self.traffic / 2600.0;
        let step = 700.0 * c.get("steps").max(1.0) / (1.0 + c.get("stages_ahead"));
        let latency = self.waves * (step + 30.0 * c.get("barriers") + 8.0 * c.get("global_loads"));
        let longest = arithmetic.max(loads).max(memory);
        let cluster = 600.0 * (self.cluster - 1.0).min(1.0);
        longest
            + 0.3 * (arithmetic + loads + memory - longest)
            + latency
            + 2500.0 * self.launches
            + cluster
    }
}

impl<'a> Walk<'a> {
    fn stmts(&mut self, stmts: &'a [Stmt]) {
        for s in stmts {
            match s {
                Stmt::Loop(l) => {
                    let waits = |l: &Loop| {
                        let mut found = false;
                        visit(&l.body, &mut |s| found |= matches!(s, Stmt::Barrier(_)));
                        found
                    };
                    if l.mode == Mode::Serial && (!self.tensor || waits(l)) {
                        self.c.most(
                            "steps",
                            self.points(&Affine::constant(0), false) * l.extent as f64,
                        );
                    }
                    self.loops.push(l);
                    self.stmts(&l.body);
                    self.loops.pop();
                }
                Stmt::If { body, .. } => self.stmts(body),
                Stmt::Barrier(_) => {
                    self.c.add("barriers", self.points(&Affine::constant(0), false))
                }
                Stmt::Local(b) if self.n.buffer(*b).scope == Scope::Local => {
                    self.c.add("registers", self.n.buffer(*b).elements() as f64)
                }
                Stmt::Local(b) if self.n.buffer(*b).scope == Scope::Fragment => {
                    let b = self.n.buffer(*b);
                    let each =
                        if b.dtype == DType::F32 { 32 } else { 128 / b.dtype.bytes() as i64 };
                    self.c.add("registers", (b.elements() / each) as f64);
                }
                Stmt::Warp(w) => self.warp(w),
                Stmt::AwaitCopies(last) => self.c.most("stages_ahead", f64::from(*last) + 1.0),
                Stmt::Local(_)
                | Stmt::Let { .. }
                | Stmt::Prefetch { .. }
                | Stmt::CommitCopies
                | Stmt::AwaitProducts(_) => {}
                Stmt::Store { buffer, index, value } => {
                    self.statement(*buffer, index, value, false)
                }
                Stmt::Update { buffer, index, value, .. } => {
                    self.statement(*buffer, index, value, true)
                }
            }
        }
    }

    fn warp(&mut self, w: &Warp) {
        let times = self.points(&Affine::constant(0), false);
        match w {
            Warp::Zero(_) => {}
            Warp::Multiply { .. } => self.c.add("matrix_products", times),
            // Twice as quick as products of 16 x 16 x 16 by a warp.
            Warp::Group { to, .. } => self.c.add(
                "matrix_products",
                times * self.n.buffer(*to).elements() as f64 / 256.0 * 4.0 / 2.0,
            ),
            Warp::Store { from, to, .. } => {
                let ((r, c), to) = (extents(self.n, from), self.n.buffer(*to));
                let each = (r * c / 32) as f64 * times;
                match to.scope {
                    Scope::Output => {
                        self.c.add("global_stores", each * to.dtype.bytes() as f64 / 4.0)
                    }
                    _ => self.c.add("shared_stores", each),
                }
            }
            Warp::Load { to, rows, column, columns, from, index, .. } => {
                let b = self.n.buffer(*from);
                let (off, bytes) = (flatten(index, &b.shape), b.dtype.bytes() as i64);
                let inner = rows.iter().rev().find(|r| r.1 > 1).map_or(0, |r| off.coefficient(r.0));
                // Eight rows of 16 bytes are read at once; rows that begin in the same banks wait.
                let whole = off.coefficient(*column) == 1 && *columns == extents(self.n, to).1;
                let (row, whole) =
                    if whole { (inner, true) } else { (off.coefficient(*column), inner == 1) };
                let swizzled = b.scope == Scope::Swizzled;
                let ways = if swizzled { 1.0 } else { gcd((row * bytes / 16).max(1), 8) as f64 };
                self.c.add("matrix_loads", times);
                self.c.add("shared_loads", times * if whole { 4.0 * ways } else { 16.0 });
            }
        }
    }

    /// How often a thread does something in the current loops; with `once`, unrolled loops that do
    /// not move the offset count once.
    fn points(&self, off: &Affine, once: bool) -> f64 {
        let share: f64 = self
            .loops
            .iter()
            .filter(|l| matches!(l.mode, Mode::Share | Mode::Box))
            .map(|l| l.extent as f64)
            .product();
        let counted = |l: &&&Loop| {
            let still = once && matches!(l.mode, Mode::Unroll | Mode::Vector) && !off.uses(l.var);
            !(still || matches!(l.mode, Mode::Share | Mode::Box))
        };
        let own: f64 = self.loops.iter().filter(counted).map(|l| l.extent as f64).product();
        own * if share > 1.0 { (share / self.threads).ceil() } else { 1.0 }
    }

    fn statement(&mut self, buffer: Source, index: &[Affine], value: &Expr, update: bool) {
        let all = self.points(&Affine::constant(0), false);
        self.c.add("flop", all * (value.flop() + u64::from(update)) as f64);
        let unrolled: f64 =
            self.loops.iter().filter(|l| l.mode == Mode::Unroll).map(|l| l.extent as f64).product();
        self.c.most("unrolled", unrolled);
        let boxed = self.loops.iter().any(|l| l.mode == Mode::Box);
        let shared_loop =
            self.loops.iter().rev().find(|l| l.mode == Mode::Share && l.extent > 1).map(|l| l.var);
        let mut touch = |b: Source, index: &[Affine], write: bool| {
            let buf = self.n.buffer(b);
            let off = flatten(index, &buf.shape);
            let vector = self
                .loops
                .last()
                .filter(|l| l.mode == Mode::Vector && off.coefficient(l.var) == 1)
                .map_or(1.0, |l| l.extent as f64);
            // Threads side by side: the innermost share loop, else the innermost thread loop.
            let stride = shared_loop.or(self.fastest).map_or(0, |v| off.coefficient(v).abs())
                / vector as i64;
            // In words.
            let times = self.points(&off, true) * buf.dtype.bytes() as f64 / 4.0;
            match (buf.scope, write) {
                (Scope::Local, _) => {}
                // The copy engine loads and stores what a box brings.
                _ if boxed => {}
                (Scope::Shared | Scope::Swizzled | Scope::Cluster, _) => {
                    self.c
                        .add(if write { "shared_stores" } else { "shared_loads" }, times / vector);
                    // Threads at a stride of s words meet in every bank min(s, 32) deep.
                    let ways = if stride > 1 && vector == 1.0 {
                        (gcd(stride, 32) as f64).log2()
                    } else {
                        0.0
                    };
                    self.c.add("conflicts", times * ways);
                }
                (_, true) => self.c.add("global_stores", times),
                (_, false) => {
                    self.c.add("global_loads", times);
                    if stride > 4 {
                        self.c.add("global_loads_scattered", times);
                    }
                }
            }
        };
        for (b, i) in value.loads() {
            touch(b, i, false);
        }
        touch(buffer, index, true);
    }
}
