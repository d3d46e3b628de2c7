//! Prints a loop nest as a GPU program: each outermost statement becomes one `__global__` function,
//! which is one launch. Input: a verified nest with block and thread loops; output: a
//! `KernelSource` with its launches.
//!
//! Grids, clusters and blocks have one dimension; the variables of the loops bound to them are
//! computed from its number. Shared buffers lie in one dynamic array, and a buffer has its place
//! there only while its block of statements runs. Unrolled loops stay loops with a pragma: the
//! compiler unrolls them, allocates registers and joins loads. Vector loops become accesses of 8 or
//! 16 bytes where alignment can be proved.

use super::Options;
use super::dialect::{Dialect, Used, fill};
use super::printer::{Printer, c_name};
use crate::nest::{
    self, Loop, Mode, Nest, Reach, Scope, Stmt, Warp, aligned_bytes, shared_place, shared_room,
};
use crate::occupancy::{Resources, blocks_per_multiprocessor};
use squall_core::expr::Source;
use squall_core::{Bytes, KernelSource, Launch, LaunchPhase};

/// The resources of a multiprocessor of compute capability 9.0, the only one with `wgmma`.
const CAPABILITY_9_0: Resources =
    Resources { threads: 2048.0, shared: 233_472.0, registers: 65_536.0 };

/// The source of a verified nest as a GPU program; the functions' names begin with `symbol`.
pub(super) fn source(n: &Nest, symbol: &str, o: Options, d: &Dialect) -> KernelSource {
    let mut functions = String::new();
    let mut launches = Vec::new();
    let mut used = Used::default();
    let mut words = Default::default();
    for (phase, stmts, word) in
        [(LaunchPhase::Prepare, &n.prepare, "_prepare"), (LaunchPhase::Call, &n.body, "")]
    {
        for (i, s) in stmts.iter().enumerate() {
            let entry = if phase == LaunchPhase::Call && i == 0 {
                symbol.to_string()
            } else {
                format!("{symbol}{word}{i}")
            };
            let mut p = Printer::new(n, d, o);
            launches.push(p.launched(s, phase, entry));
            functions += &p.out;
            words = p.simt.words;
            used.extend(p.used.take());
        }
    }
    let align = if used.has("swizzled") { "1024" } else { "16" };
    let shared = fill(words.shared, &[align]);
    KernelSource {
        language: d.language,
        source: fill(d.title, &[&n.name]) + &(d.prelude)(&used) + &shared + &functions,
        symbol: symbol.into(),
        prepared: Bytes(n.scope_bytes(|s| *s == Scope::Prepared)),
        workspace: Bytes(n.scope_bytes(|s| *s == Scope::Workspace)),
        openmp: false,
        full_optimisation: true,
        flags: Vec::new(),
        launches,
    }
}

/// Bytes of shared memory that a GPU program's blocks use.
pub fn shared_bytes(n: &Nest) -> u64 {
    fn go(n: &Nest, stmts: &[Stmt], top: i64) -> i64 {
        let (mut top, mut most) = (top, top);
        for s in stmts {
            match s {
                Stmt::Local(b) => {
                    top = shared_place(n, *b, top) + shared_room(n, *b);
                    most = most.max(top);
                }
                Stmt::Loop(Loop { body, .. }) | Stmt::If { body, .. } => {
                    most = most.max(go(n, body, top))
                }
                _ => {}
            }
        }
        most
    }
    n.body.iter().map(|s| go(n, std::slice::from_ref(s), 0)).max().unwrap_or(0) as u64
}

/// The loops of a launch, outermost first, and what its threads do.
struct Grid<'s> {
    blocks: Vec<&'s Loop>,
    cluster: Vec<&'s Loop>,
    threads: Vec<&'s Loop>,
    body: &'s [Stmt],
}

impl<'s> Grid<'s> {
    fn of(top: &'s Stmt) -> Grid<'s> {
        let body = std::slice::from_ref(top);
        let mut grid = Grid { blocks: vec![], cluster: vec![], threads: vec![], body };
        while let [Stmt::Loop(l)] = grid.body {
            match l.mode {
                Mode::Block => grid.blocks.push(l),
                Mode::Cluster => grid.cluster.push(l),
                Mode::Thread => grid.threads.push(l),
                _ => break,
            }
            grid.body = &l.body;
        }
        grid
    }
}

fn size(loops: &[&Loop]) -> i64 {
    loops.iter().map(|l| l.extent).product()
}

impl Printer<'_> {
    /// Prints the function of a statement, and says how it is launched.
    fn launched(&mut self, top: &Stmt, phase: LaunchPhase, entry: String) -> Launch {
        let grid = Grid::of(top);
        let (blocks, cluster) = (size(&grid.blocks), size(&grid.cluster));
        self.begin(&grid);
        self.look(grid.body);
        if self.simt.tma {
            self.line("__shared__ unsigned long long arrived[8];");
            self.line("tma_begin(arrived);");
            self.line("unsigned copied = 0, seen = 0;");
            // A warp's number that the compiler knows to be its threads' all: it would ask for each
            // tile thread by thread otherwise.
            let thread = self.simt.words.thread;
            let text =
                format!("const bool asks = __shfl_sync(0xffffffffu, {thread} / 32, 0) == 0;");
            self.line(&text);
        }
        let mut warps = false;
        nest::visit(grid.body, &mut |s| warps |= matches!(s, Stmt::Warp(_)));
        if warps {
            let lane = format!("const int warp_lane = (int)({} & 31);", self.simt.words.thread);
            self.line(&lane);
        }
        self.threads_body(grid.body);
        // No thread is behind the last barrier; other blocks of a cluster may still read this one's
        // memory.
        let barrier = format!("  {}\n", self.simt.words.barrier);
        while let Some(rest) = self.out.strip_suffix(&barrier) {
            self.out.truncate(rest.len());
        }
        if let Some(rest) = self.out.strip_suffix("  cluster_barrier();\n") {
            self.out.truncate(rest.len());
            self.line("cluster_leave();");
        }
        let head = self.head(phase, &entry, cluster);
        self.out = format!("{head}{}}}\n\n", self.out);
        let (threads, shared) = (self.simt.threads as u32, self.simt.most as u32);
        let maps = std::mem::take(&mut self.simt.maps);
        Launch { maps, ..Launch::linear(phase, entry, (blocks * cluster) as u32, threads, shared) }
    }

    /// Declares the variables of the grid's loops.
    fn begin(&mut self, grid: &Grid<'_>) {
        for scope in [Scope::Prepared, Scope::Workspace] {
            let mut at = 0;
            for (i, b) in self.n.buffers.iter().enumerate().filter(|(_, b)| b.scope == scope) {
                self.simt.prepared.insert(Source(i as u32), at);
                at += aligned_bytes(b);
            }
        }
        let cluster = size(&grid.cluster);
        if cluster > 1 {
            self.helper("peer");
        }
        self.simt.threads = size(&grid.threads);
        self.simt.rank = (grid.cluster.iter().find(|l| l.extent > 1).map(|l| l.var), cluster);
        let all: Vec<&Loop> = grid.blocks.iter().chain(&grid.cluster).copied().collect();
        let words = self.simt.words;
        self.number(words.block, &all);
        self.number(words.thread, &grid.threads);
        self.simt.fixed = all
            .iter()
            .chain(&grid.threads)
            .flat_map(|l| l.start.map(|s| s.var).into_iter().chain([l.var]))
            .collect();
    }

    /// Looks at what a function does before it is printed.
    fn look(&mut self, stmts: &[Stmt]) {
        let mut awaits = false;
        nest::visit(stmts, &mut |s| {
            awaits |= *s == Stmt::CommitCopies;
            if let Stmt::Warp(Warp::Multiply { b, .. }) = s {
                self.simt.second.insert(b.buffer);
            }
            if let Stmt::Warp(Warp::Pack { to, .. }) = s
                && self.n.buffer(to.buffer).dtype.is_half()
            {
                self.simt.packed.insert(to.buffer);
            }
            if let Stmt::Warp(Warp::WarpgroupMultiply { to, .. }) = s
                && !self.simt.warpgroup_sums.contains(to)
            {
                self.simt.warpgroup_sums.push(*to);
            }
        });
        self.simt.copying = self.threads_copy(stmts);
        self.simt.copies = self.simt.copying && !awaits;
        self.simt.tma = nest::copies_tma_tiles(stmts);
    }

    /// The line that begins a function.
    fn head(&self, phase: LaunchPhase, entry: &str, cluster: i64) -> String {
        let words = &self.simt.words;
        let clusters =
            if cluster > 1 { fill(words.cluster, &[&cluster.to_string()]) } else { String::new() };
        let threads = self.simt.threads;
        let bounds = if self.simt.warpgroup_sums.is_empty() {
            threads.to_string()
        } else {
            format!("{threads}, {}", self.resident())
        };
        let parameters = self.parameters(phase);
        fill(words.function, &[&clusters, &bounds, entry, &parameters]) + "\n"
    }

    /// Whether threads copy to shared memory on their own.
    fn threads_copy(&self, stmts: &[Stmt]) -> bool {
        stmts.iter().any(|s| match s {
            Stmt::Loop(l) => l.mode != Mode::Tma && self.threads_copy(&l.body),
            Stmt::If { body, .. } => self.threads_copy(body),
            Stmt::Store { buffer, value, .. } => self.copied(*buffer, value).is_some(),
            _ => false,
        })
    }

    /// Blocks of warpgroups that one multiprocessor of capability 9.0 shall hold, by their sums and
    /// shared memory. The launch bounds say so, because the CUDA compiler would spend all registers
    /// on addresses otherwise.
    fn resident(&self) -> i64 {
        let own = |b: &Source| self.n.buffer(*b).elements() / 32;
        // Factors that threads make are half as large.
        let sums = self.simt.warpgroup_sums.iter().map(own).sum::<i64>()
            + self.simt.packed.iter().map(own).sum::<i64>() / 2;
        let block = Resources {
            threads: self.simt.threads as f64,
            shared: (self.simt.most + 1024) as f64,
            registers: (self.simt.threads * (sums + 48)) as f64,
        };
        blocks_per_multiprocessor(&CAPABILITY_9_0, &block, 4.0) as i64
    }

    fn parameters(&self, phase: LaunchPhase) -> String {
        let restrict = self.d.restrict;
        let mut list = Vec::new();
        let wanted = |s: Scope| match phase {
            LaunchPhase::Prepare => matches!(s, Scope::Weight(_)),
            LaunchPhase::Call => matches!(s, Scope::Data(_)),
        };
        // Buffers stand in the order of the workload's inputs, and so do the arguments.
        for b in self.n.buffers.iter().filter(|b| wanted(b.scope)) {
            let ty = self.element_type(b.dtype);
            list.push(format!("const {ty} {restrict}{}", c_name(&b.name)));
        }
        match phase {
            LaunchPhase::Prepare => list.push("float *prepared".into()),
            LaunchPhase::Call => {
                for b in self.n.buffers.iter().filter(|b| b.scope == Scope::Output) {
                    let ty = self.element_type(b.dtype);
                    list.push(format!("{ty} {restrict}{}", c_name(&b.name)));
                }
                list.push(format!("const float {restrict}prepared"));
                list.push(format!("float {restrict}workspace"));
            }
        }
        let map = |i: usize| fill(self.simt.words.tensor_map, &[&i.to_string()]);
        list.extend((0..self.simt.maps.len()).map(map));
        list.join(", ")
    }

    /// Prints the body of a block's threads. A cluster's barrier that stands first is split in two:
    /// threads arrive and go on at once, and wait where they first access other blocks' memory.
    fn threads_body(&mut self, stmts: &[Stmt]) {
        let Some((Stmt::Barrier(Reach::Cluster), rest)) =
            stmts.split_first().filter(|_| self.simt.rank.1 > 1)
        else {
            return self.block(stmts);
        };
        self.line("cluster_begin();");
        let of_cluster = |b: Source| self.n.buffer(b).scope == Scope::Cluster;
        let reaches = |s: &Stmt| {
            let mut barrier = false;
            nest::visit(std::slice::from_ref(s), &mut |s| {
                barrier |= *s == Stmt::Barrier(Reach::Cluster)
            });
            barrier || nest::accesses(std::slice::from_ref(s)).iter().any(|a| of_cluster(a.buffer))
        };
        let first = rest.iter().position(reaches).unwrap_or(rest.len());
        self.thread_statements(&rest[..first]);
        self.line("cluster_begun();");
        self.block(&rest[first..]);
    }
}
