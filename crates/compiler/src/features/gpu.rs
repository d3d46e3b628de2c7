//! The features of a GPU kernel: its launch (blocks, threads, clusters), the resources that limit
//! how many blocks a multiprocessor holds, and the work of a thread (operations, loads, stores,
//! barriers, matrix products). Input: a loop nest and the limits of a GPU; output: the struct
//! [`GpuFeatures`] that `gpu_table.rs` declares.

use super::gpu_cost::Launch;
use super::gpu_table::GpuFeatures;
use crate::emit::shared_bytes;
use crate::gcd;
use crate::nest::{Loop, Mode, Nest, Scope, Stmt, Warp, extents, visit};
use crate::occupancy::{Resources, blocks_per_multiprocessor};
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::machine::GpuUnits;
use squall_core::workload::flatten;
use squall_core::{DType, Gpu};
use std::collections::HashSet;

/// The walk through a nest that collects features.
struct Walk<'a> {
    n: &'a Nest,
    units: &'a GpuUnits,
    threads: f64,
    /// Innermost thread loop that runs more than once.
    fastest: Option<Var>,
    loops: Vec<&'a Loop>,
    /// Whether tensor cores are used: loops without barriers then cost no latency of their own.
    tensor: bool,
    /// Local buffers that hold the threads' elements of fragments, in the same registers.
    mirrors: HashSet<Source>,
    f: GpuFeatures,
}

/// The features of a GPU program on a device with these limits and units.
pub(super) fn extract(n: &Nest, gpu: Gpu, units: &GpuUnits) -> GpuFeatures {
    let (mut blocks, mut cluster, mut threads, mut fastest) = (1.0, 1.0, 1.0, None);
    let mut launches = 0.0;
    let mut f = GpuFeatures::default();
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
        let mirrors = mirrors(at);
        let mut w = Walk { n, units, threads: t, fastest, loops: Vec::new(), tensor, mirrors, f };
        w.stmts(at);
        f = w.f;
    }
    let shared = shared_bytes(n) as f64;
    let warps = (threads / units.warp).ceil();
    let registers = f.registers + units.registers_reserved;
    let has = Resources {
        threads: f64::from(gpu.threads_per_multiprocessor),
        shared: f64::from(gpu.shared_per_multiprocessor),
        registers: f64::from(gpu.registers_per_multiprocessor),
    };
    let block = Resources {
        threads: warps * units.warp,
        shared: shared + units.shared_reserved,
        registers: threads * registers,
    };
    let resident = blocks_per_multiprocessor(&has, &block, units.most_blocks);
    let processors = f64::from(gpu.multiprocessors);
    let waves = (blocks / (processors * resident)).ceil();
    let each = (blocks / processors).ceil();
    let active = each.min(resident) * warps;
    let scattered = units.scattered_traffic * f.global_loads_scattered;
    let traffic = blocks * threads * (f.global_loads + scattered + f.global_stores) * 4.0;
    let launch = Launch { each, warps, active, waves, launches, cluster, traffic };
    GpuFeatures {
        estimate: launch.cycles(&f, blocks * threads, units),
        blocks,
        cluster,
        threads,
        shared_bytes: shared,
        resident_blocks: resident,
        resident_warps: resident * warps,
        waves,
        blocks_of_the_last_wave: blocks - (waves - 1.0) * processors * resident,
        warps_per_multiprocessor: active,
        flop_per_shared_load: f.flop / (f.shared_loads + 0.1),
        flop_per_global_byte: f.flop / (4.0 * f.global_loads + 0.1),
        traffic,
        block_flop: f.flop * threads,
        idle_lanes: warps * units.warp - threads,
        ..f
    }
}

/// See [`Walk::mirrors`].
fn mirrors(stmts: &[Stmt]) -> HashSet<Source> {
    let mut found = HashSet::new();
    visit(stmts, &mut |s| {
        if let Stmt::Warp(Warp::Unpack { to: m, .. } | Warp::Pack { from: m, .. }) = s {
            found.insert(m.buffer);
        }
    });
    found
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
                        let steps = self.each() * l.extent as f64;
                        self.f.steps = self.f.steps.max(steps);
                    }
                    self.loops.push(l);
                    self.stmts(&l.body);
                    self.loops.pop();
                }
                Stmt::If { body, .. } => self.stmts(body),
                Stmt::Barrier(_) => self.f.barriers += self.each(),
                Stmt::Local(b) if self.mirrors.contains(b) => {}
                Stmt::Local(b) if self.n.buffer(*b).scope == Scope::Local => {
                    self.f.registers += self.n.buffer(*b).elements() as f64
                }
                Stmt::Local(b) if self.n.buffer(*b).scope == Scope::Fragment => {
                    let b = self.n.buffer(*b);
                    let each =
                        if b.dtype == DType::F32 { 32 } else { 128 / b.dtype.bytes() as i64 };
                    self.f.registers += (b.elements() / each) as f64;
                }
                Stmt::Warp(w) => self.warp(w),
                Stmt::AwaitCopies(last) => {
                    self.f.stages_ahead = self.f.stages_ahead.max(f64::from(*last) + 1.0)
                }
                Stmt::Local(_)
                | Stmt::Let { .. }
                | Stmt::Prefetch { .. }
                | Stmt::Version
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
        let times = self.each();
        match w {
            // Instructions on registers alone.
            Warp::Zero(_) | Warp::Unpack { .. } | Warp::Pack { .. } | Warp::Reduce { .. } => {}
            Warp::Multiply { .. } => self.f.matrix_products += times,
            // In products of 16 x 16 x 16 by a warp.
            Warp::WarpgroupMultiply { to, .. } => {
                let sums = self.n.buffer(*to).elements() as f64;
                self.f.matrix_products += times * sums / 256.0 * 4.0 / self.units.warpgroup_speedup;
            }
            Warp::Store { from, to, .. } => {
                let ((r, c), to) = (extents(self.n, from), self.n.buffer(*to));
                let each = (r * c / 32) as f64 * times;
                match to.scope {
                    Scope::Output => self.f.global_stores += each * to.dtype.bytes() as f64 / 4.0,
                    _ => self.f.shared_stores += each,
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
                let distance = (row * bytes / 16).max(1);
                let ways = if swizzled { 1.0 } else { gcd(distance, self.units.banks / 4) as f64 };
                self.f.matrix_loads += times;
                self.f.shared_loads += times * if whole { 4.0 * ways } else { 16.0 };
            }
        }
    }

    /// How often a thread does something in the current loops.
    fn each(&self) -> f64 {
        self.points(&Affine::constant(0), false)
    }

    /// How often a thread accesses an offset in the current loops; with `once`, unrolled loops that
    /// do not move the offset count once.
    fn points(&self, off: &Affine, once: bool) -> f64 {
        let share: f64 = self
            .loops
            .iter()
            .filter(|l| matches!(l.mode, Mode::Share | Mode::Tma))
            .map(|l| l.extent as f64)
            .product();
        let counted = |l: &&&Loop| {
            let still = once && matches!(l.mode, Mode::Unroll | Mode::Vector) && !off.uses(l.var);
            !(still || matches!(l.mode, Mode::Share | Mode::Tma))
        };
        let own: f64 = self.loops.iter().filter(counted).map(|l| l.extent as f64).product();
        own * if share > 1.0 { (share / self.threads).ceil() } else { 1.0 }
    }

    fn statement(&mut self, buffer: Source, index: &[Affine], value: &Expr, update: bool) {
        self.f.flop += self.each() * (value.flop() + u64::from(update)) as f64;
        let unrolled: f64 =
            self.loops.iter().filter(|l| l.mode == Mode::Unroll).map(|l| l.extent as f64).product();
        self.f.unrolled = self.f.unrolled.max(unrolled);
        for (b, i) in value.loads() {
            self.touch(b, i, false);
        }
        self.touch(buffer, index, true);
    }

    /// Counts an access.
    fn touch(&mut self, b: Source, index: &[Affine], write: bool) {
        let tma = self.loops.iter().any(|l| l.mode == Mode::Tma);
        let shared_loop =
            self.loops.iter().rev().find(|l| l.mode == Mode::Share && l.extent > 1).map(|l| l.var);
        let buf = self.n.buffer(b);
        let off = flatten(index, &buf.shape);
        let vector = self
            .loops
            .last()
            .filter(|l| l.mode == Mode::Vector && off.coefficient(l.var) == 1)
            .map_or(1.0, |l| l.extent as f64);
        // Threads side by side: the innermost share loop, else the innermost thread loop.
        let stride =
            shared_loop.or(self.fastest).map_or(0, |v| off.coefficient(v).abs()) / vector as i64;
        // In words.
        let times = self.points(&off, true) * buf.dtype.bytes() as f64 / 4.0;
        let f = &mut self.f;
        match (buf.scope, write) {
            (Scope::Local, _) => {}
            // The copy engine loads and stores what a TMA tile brings.
            _ if tma => {}
            (Scope::Shared | Scope::Swizzled | Scope::Cluster, _) => {
                *if write { &mut f.shared_stores } else { &mut f.shared_loads } += times / vector;
                // Threads at a stride of s words meet in every bank min(s, banks) deep.
                let ways = if stride > 1 && vector == 1.0 {
                    (gcd(stride, self.units.banks) as f64).log2()
                } else {
                    0.0
                };
                f.conflicts += times * ways;
            }
            (_, true) => f.global_stores += times,
            (_, false) => {
                f.global_loads += times;
                if stride > 4 {
                    f.global_loads_scattered += times;
                }
            }
        }
    }
}
