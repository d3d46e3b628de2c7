//! Prints a GPU program as CUDA C: one `__global__` function for each outermost statement.
//!
//! Grids, clusters and blocks have one dimension; the loops bound to them are read off its number.
//! Shared buffers lie in one dynamic array, each in its place only while its block of statements
//! runs. Unrolled loops stay loops under `#pragma unroll`: NVRTC unrolls, allocates registers and
//! joins loads; vector loops become accesses of 8 or 16 bytes where alignment can be proved.

use super::c_name;
use super::cuda_helpers::{
    BOXES, COPIES, FORMATS, FOURS, GROUPS, PEER, SWIZZLED, TENSOR_CORES, group_product,
};
use super::cuda_loops::{Parts, Steps};
use super::cuda_value::{c_type, combined};
use crate::nest::{
    self, Loop, Mode, Nest, Reach, Scope, Stmt, Warp, aligned_bytes, lies_across, shared_place,
    shared_room,
};
use squall_core::expr::{Affine, Cond, Expr, Source, Var};
use squall_core::workload::Reducer;
use squall_core::{Bytes, DType, KernelSource, Launch, LaunchPhase, TensorMap};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;

/// The CUDA C of a verified GPU program; the functions' names begin with `symbol`.
pub fn emit_cuda(n: &Nest, symbol: &str) -> KernelSource {
    let mut source = format!("// {}, made by Squall\n", n.name);
    let mut functions = String::new();
    let mut launches = Vec::new();
    for (phase, stmts, word) in
        [(LaunchPhase::Prepare, &n.prepare, "_prepare"), (LaunchPhase::Call, &n.body, "")]
    {
        for (i, s) in stmts.iter().enumerate() {
            let entry = if phase == LaunchPhase::Call && i == 0 {
                symbol.to_string()
            } else {
                format!("{symbol}{word}{i}")
            };
            let (text, launch) = Function::print(n, s, phase, entry);
            functions += &text;
            launches.push(launch);
        }
    }
    if functions.contains("cluster_") {
        source += PEER;
    }
    let matrices = ["matrix(", "left_", "matrix_"].iter().any(|f| functions.contains(f));
    if matrices || ["half_t", "bfloat_t", "tf32("].iter().any(|f| functions.contains(f)) {
        source += FORMATS;
    }
    if ["copy4(", "copy8(", "copy16(", "copies_"].iter().any(|f| functions.contains(f)) {
        source += COPIES;
    }
    if matrices {
        source += TENSOR_CORES;
    }
    if functions.contains("box_copy(") {
        source += BOXES;
    }
    if functions.contains("fours_") {
        source += FOURS;
    }
    if functions.contains("swizzled") || functions.contains("lines_at(") {
        source += SWIZZLED;
    }
    let products = group_products(n);
    if !products.is_empty() {
        source += GROUPS;
        products.iter().for_each(|(format, columns, across)| {
            source += &group_product(format, *columns, *across)
        });
    }
    let align = if functions.contains("swizzled") { 1024 } else { 16 };
    let _ = write!(source, "extern __shared__ __align__({align}) float shared[];\n\n");
    source += &functions;
    KernelSource {
        language: squall_core::Language::Cuda,
        source,
        symbol: symbol.into(),
        prepared: Bytes(n.scope_bytes(|s| *s == Scope::Prepared)),
        workspace: Bytes(n.scope_bytes(|s| *s == Scope::Workspace)),
        openmp: false,
        full_optimisation: true,
        flags: Vec::new(),
        launches,
    }
}

/// What groups of warps multiply: formats, columns, and which factors lie across.
fn group_products(n: &Nest) -> BTreeSet<(&'static str, i64, [bool; 2])> {
    let mut found = BTreeSet::new();
    nest::visit(&n.body, &mut |s| {
        if let Stmt::Warp(Warp::Group { to, a, b, .. }) = s {
            found.insert((
                n.buffer(a.buffer).dtype.name(),
                n.buffer(*to).shape[2],
                [a, b].map(|m| lies_across(n, m)),
            ));
        }
    });
    found
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

pub(super) struct Function<'a> {
    pub(super) n: &'a Nest,
    pub(super) out: String,
    pub(super) depth: usize,
    /// Variables with a known value.
    pub(super) known: HashMap<Var, i64>,
    /// What tile starts are multiples of.
    pub(super) multiple: HashMap<Var, i64>,
    /// Where shared buffers lie, and the first free byte.
    pub(super) places: HashMap<Source, i64>,
    pub(super) top: i64,
    pub(super) most: i64,
    pub(super) threads: i64,
    /// The variable of the block's number in its cluster, and the cluster's size.
    pub(super) rank: (Option<Var>, i64),
    /// The vector loop's variable, lane and width; whether a load may be made for all lanes.
    pub(super) lane: Option<(Var, i64, i64)>,
    pub(super) whole: bool,
    pub(super) vectors: HashMap<String, String>,
    pub(super) temporaries: usize,
    pub(super) prepared: HashMap<Source, u64>,
    /// Fragments that are second factors: their registers come in another order.
    pub(super) second: HashSet<Source>,
    /// Whether every barrier awaits copies.
    pub(super) copies: bool,
    /// Whether threads copy to shared memory on their own, and whether boxes are copied; their
    /// tensor maps.
    pub(super) copying: bool,
    pub(super) boxing: bool,
    pub(super) maps: Vec<TensorMap>,
    /// Fragments that groups of warps add to.
    pub(super) grouped: Vec<Source>,
    /// Variables that change in serial loops; those of the grid and its threads, which do not.
    pub(super) moving: HashSet<Var>,
    pub(super) fixed: HashSet<Var>,
    /// How many values a variable has.
    pub(super) ranges: HashMap<Var, i64>,
    /// The serial loop around; what its threads share out, as parts of the round and of the thread.
    pub(super) steps: Steps,
    pub(super) dealt: HashMap<Var, Parts>,
    /// What the parts that depend on the round are multiples of, where that is known.
    pub(super) rounds: HashMap<Var, i64>,
    /// What stands for a variable.
    pub(super) alias: HashMap<Var, String>,
}

impl<'a> Function<'a> {
    fn print(n: &'a Nest, top: &Stmt, phase: LaunchPhase, entry: String) -> (String, Launch) {
        let mut prepared = HashMap::new();
        for scope in [Scope::Prepared, Scope::Workspace] {
            let mut at = 0;
            for (i, b) in n.buffers.iter().enumerate().filter(|(_, b)| b.scope == scope) {
                prepared.insert(Source(i as u32), at);
                at += aligned_bytes(b);
            }
        }
        let mut f = Function {
            n,
            out: String::new(),
            depth: 1,
            known: HashMap::new(),
            multiple: HashMap::new(),
            places: HashMap::new(),
            top: 0,
            most: 0,
            threads: 1,
            rank: (None, 1),
            lane: None,
            whole: true,
            vectors: HashMap::new(),
            temporaries: 0,
            prepared,
            second: HashSet::new(),
            copies: false,
            copying: false,
            boxing: false,
            maps: Vec::new(),
            grouped: Vec::new(),
            moving: HashSet::new(),
            fixed: HashSet::new(),
            ranges: HashMap::new(),
            steps: Steps::default(),
            dealt: HashMap::new(),
            rounds: HashMap::new(),
            alias: HashMap::new(),
        };
        let mut groups: [Vec<&Loop>; 3] = Default::default();
        let mut stmts = std::slice::from_ref(top);
        while let [Stmt::Loop(l)] = stmts {
            let group = match l.mode {
                Mode::Block => 0,
                Mode::Cluster => 1,
                Mode::Thread => 2,
                _ => break,
            };
            groups[group].push(l);
            stmts = &l.body;
        }
        let size = |g: &[&Loop]| g.iter().map(|l| l.extent).product::<i64>();
        let (blocks, cluster) = (size(&groups[0]), size(&groups[1]));
        f.threads = size(&groups[2]);
        f.rank = (groups[1].iter().find(|l| l.extent > 1).map(|l| l.var), cluster);
        let grid: Vec<&Loop> = groups[0].iter().chain(&groups[1]).copied().collect();
        f.number("blockIdx.x", &grid);
        f.number("threadIdx.x", &groups[2]);
        f.fixed = grid
            .iter()
            .chain(&groups[2])
            .flat_map(|l| l.start.map(|s| s.var).into_iter().chain([l.var]))
            .collect();
        let (mut awaits, mut warps) = (false, false);
        nest::visit(stmts, &mut |s| {
            awaits |= *s == Stmt::CommitCopies;
            warps |= matches!(s, Stmt::Warp(_));
            if let Stmt::Warp(Warp::Multiply { b, .. }) = s {
                f.second.insert(b.buffer);
            }
            if let Stmt::Warp(Warp::Group { to, .. }) = s
                && !f.grouped.contains(to)
            {
                f.grouped.push(*to);
            }
        });
        f.copying = f.threads_copy(stmts);
        f.copies = f.copying && !awaits;
        f.boxing = nest::copies_boxes(stmts);
        if f.boxing {
            f.line("__shared__ unsigned long long arrived[8];");
            f.line("boxes_begin(arrived);");
            f.line("unsigned boxes = 0, seen = 0;");
            // A warp's number that the compiler knows to be its threads' all: it would ask for each
            // box thread by thread otherwise.
            f.line("const bool asks = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0) == 0;");
        }
        if warps {
            f.line("const int warp_lane = (int)(threadIdx.x & 31);");
        }
        f.threads_body(stmts);
        // Nobody is behind the last barrier; other blocks of a cluster may still read this one's
        // memory.
        while let Some(rest) = f.out.strip_suffix("  __syncthreads();\n") {
            f.out.truncate(rest.len());
        }
        if let Some(rest) = f.out.strip_suffix("  cluster_barrier();\n") {
            f.out.truncate(rest.len());
            f.line("cluster_leave();");
        }
        let mut head = String::new();
        let bounds =
            if cluster > 1 { format!("__cluster_dims__({cluster}, 1, 1) ") } else { String::new() };
        let most = if f.grouped.is_empty() {
            f.threads.to_string()
        } else {
            format!("{}, {}", f.threads, f.resident())
        };
        let _ = writeln!(
            head,
            "extern \"C\" __global__ void {bounds}__launch_bounds__({most}) {entry}({}) {{",
            f.parameters(phase)
        );
        let launch = Launch {
            maps: f.maps,
            ..Launch::linear(
                phase,
                entry,
                (blocks * cluster) as u32,
                f.threads as u32,
                f.most as u32,
            )
        };
        (head + &f.out + "}\n\n", launch)
    }

    /// Whether threads copy to shared memory on their own.
    fn threads_copy(&self, stmts: &[Stmt]) -> bool {
        stmts.iter().any(|s| match s {
            Stmt::Loop(l) => l.mode != Mode::Box && self.threads_copy(&l.body),
            Stmt::If { body, .. } => self.threads_copy(body),
            Stmt::Store { buffer, value, .. } => self.copied(*buffer, value).is_some(),
            _ => false,
        })
    }

    /// Blocks of groups of warps that one multiprocessor of capability 9.0 shall hold, by their
    /// sums and shared memory: the compiler would spend all registers on addresses otherwise.
    fn resident(&self) -> i64 {
        let sums: i64 = self.grouped.iter().map(|b| self.n.buffer(*b).elements() / 32).sum();
        let registers = 65536 / (self.threads * (sums + 48));
        (233472 / (self.most + 1024)).min(registers).clamp(1, 4)
    }

    fn parameters(&self, phase: LaunchPhase) -> String {
        let mut list = Vec::new();
        let wanted = |s: Scope| match phase {
            LaunchPhase::Prepare => matches!(s, Scope::Weight(_)),
            LaunchPhase::Call => matches!(s, Scope::Data(_)),
        };
        // Buffers stand in the order of the workload's inputs, and so do the arguments.
        for b in self.n.buffers.iter().filter(|b| wanted(b.scope)) {
            list.push(format!("const {} *__restrict__ {}", c_type(b.dtype), c_name(&b.name)));
        }
        match phase {
            LaunchPhase::Prepare => list.push("float *prepared".into()),
            LaunchPhase::Call => {
                let output = self.n.buffers.iter().filter(|b| b.scope == Scope::Output);
                list.extend(
                    output
                        .map(|b| format!("{} *__restrict__ {}", c_type(b.dtype), c_name(&b.name))),
                );
                list.push("const float *__restrict__ prepared".into());
                list.push("float *__restrict__ workspace".into());
            }
        }
        list.extend(
            (0..self.maps.len()).map(|i| format!("const __grid_constant__ tensor_map map{i}")),
        );
        list.join(", ")
    }

    pub(super) fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:1$}{text}", "", self.depth * 2);
    }

    pub(super) fn block(&mut self, stmts: &[Stmt]) {
        let top = self.top;
        self.statements(stmts);
        self.top = top;
    }

    /// What a block's threads do. A cluster's barrier that stands first is halved: threads go on at
    /// once, and wait for other blocks where they first reach for their memory.
    fn threads_body(&mut self, stmts: &[Stmt]) {
        let Some((Stmt::Barrier(Reach::Cluster), rest)) =
            stmts.split_first().filter(|_| self.rank.1 > 1)
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
        self.statements(&rest[..first]);
        self.line("cluster_begun();");
        self.block(&rest[first..]);
    }

    pub(super) fn stmt(&mut self, s: &Stmt) {
        match s {
            Stmt::Loop(l) => self.loop_(l),
            Stmt::Barrier(reach) => {
                if self.copies {
                    self.line("copies_arrive();");
                }
                if !self.grouped.is_empty() {
                    self.line("products_see();");
                }
                self.line(if *reach == Reach::Cluster && self.rank.1 > 1 {
                    "cluster_barrier();"
                } else {
                    "__syncthreads();"
                });
            }
            Stmt::Local(b) => {
                let shared = shared_room(self.n, *b);
                if shared > 0 {
                    let place = shared_place(self.n, *b, self.top);
                    self.places.insert(*b, place);
                    self.top = place + shared;
                    self.most = self.most.max(self.top);
                } else {
                    let buf = self.n.buffer(*b);
                    let text = match (buf.scope, buf.dtype) {
                        // Four registers a matrix of factors, eight of sums.
                        (Scope::Fragment, DType::F32) => {
                            format!("float {}[{}];", c_name(&buf.name), buf.elements() / 32)
                        }
                        (Scope::Fragment, d) => {
                            format!(
                                "unsigned {}[{}];",
                                c_name(&buf.name),
                                buf.elements() * d.bytes() as i64 / 128
                            )
                        }
                        _ => format!("float {}[{}];", c_name(&buf.name), buf.elements()),
                    };
                    self.line(&text);
                }
            }
            Stmt::Let { var, value, divisor, modulo } => {
                self.moving.insert(*var);
                let value = self.fold(value);
                if self.counted(*var, &value, *divisor, *modulo) {
                    return;
                }
                let value = self.affine(&value);
                // Not negative: without a sign, division is a multiplication and a shift.
                let value = if *divisor > 1 {
                    format!("(unsigned)({value}) / {divisor}u")
                } else {
                    format!("(unsigned)({value})")
                };
                let text = format!("const int {} = (int)({value} % {modulo}u);", self.var(*var));
                self.line(&text);
            }
            Stmt::Warp(w) => self.warp(w),
            // Programs for CPUs only.
            Stmt::Prefetch { .. } => {}
            Stmt::CommitCopies => self.commit(),
            Stmt::AwaitCopies(n) => self.await_copies(*n),
            Stmt::AwaitProducts(n) => self.await_products(*n),
            Stmt::Store { buffer, index, value } => self.assign(*buffer, index, None, value),
            Stmt::Update { op, buffer, index, value } => {
                self.assign(*buffer, index, Some(*op), value)
            }
            Stmt::If { conds, body } => {
                let test = self.conds(conds);
                self.open(&format!("if ({test}) {{"));
                self.block(body);
                self.close();
            }
        }
    }

    pub(super) fn open(&mut self, head: &str) {
        self.line(head);
        self.depth += 1;
    }

    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// What a store copies from device to shared memory as it is, if that is all it does, and
    /// where; elsewhere it stores zero.
    fn copied<'e>(
        &self,
        to: Source,
        value: &'e Expr,
    ) -> Option<(Source, &'e [Affine], &'e [Cond])> {
        let same = |from: Source| self.n.buffer(from).dtype == self.n.buffer(to).dtype;
        nest::copied(self.n, value).filter(|found| {
            matches!(self.n.buffer(to).scope, Scope::Shared | Scope::Swizzled) && same(found.0)
        })
    }

    /// A statement for all lanes of a vector loop.
    pub(super) fn vector(&mut self, l: &Loop, s: &Stmt) {
        let (b, index, op, value) = match s {
            Stmt::Store { buffer, index, value } => (*buffer, index, None, value),
            Stmt::Update { op, buffer, index, value } => (*buffer, index, Some(*op), value),
            _ => return,
        };
        let dtype = self.n.buffer(b).dtype;
        let bytes = l.extent * dtype.bytes() as i64;
        let copied = self.copied(b, value);
        if matches!(bytes, 8 | 16)
            && let Some((from, at, conds)) = copied
        {
            let (to, source) = (self.offset(b, index), self.offset(from, at));
            let aligned = [&to, &source]
                .iter()
                .all(|o| o.coefficient(l.var) == 1 && self.aligned(o, l.var, l.extent));
            // All lanes lie inside or all outside.
            let together = |c: &Cond| {
                let i = self.fold(&c.index.plus(-c.low));
                !i.uses(l.var)
                    || i.coefficient(l.var) == 1
                        && self.aligned(&i, l.var, l.extent)
                        && (c.high - c.low) % l.extent == 0
            };
            if aligned && conds.iter().all(together) {
                self.known.insert(l.var, 0);
                let to = self.kept(b, index);
                let apart = self.n.buffer(b).scope == Scope::Swizzled;
                let source = self.walk(from, at).unwrap_or_else(|| self.pointer(from, at, apart));
                let first = self.at(from, &[], &Affine::constant(0));
                let text = match conds {
                    [] => format!("copy{bytes}({to}, {source}, true);"),
                    _ => {
                        let valid = self.conds(conds);
                        format!(
                            "{{ const bool valid = {valid}; copy{bytes}({to}, valid ? {source} : \
                             &{first}, valid); }}"
                        )
                    }
                };
                self.known.remove(&l.var);
                return self.line(&text);
            }
        }
        self.open("{");
        let mut lanes = Vec::new();
        // Elements of 16 bits that are only moved stay as they are.
        let raw = dtype.is_half() && copied.is_some();
        for i in 0..l.extent {
            self.lane = Some((l.var, i, l.extent));
            lanes.push(match copied {
                Some((from, at, conds)) if raw => self.bits(from, at, conds),
                _ => self.value(value),
            });
        }
        self.lane = None;
        self.vectors.clear();
        let off = self.offset(b, index);
        let width = l.extent.min(16 / dtype.bytes() as i64);
        if op.is_none()
            && off.coefficient(l.var) == 1
            && self.aligned(&off, l.var, width)
            && self.n.buffer(b).scope != Scope::Local
        {
            let mut base = off.clone();
            base.add_term(l.var, -1);
            for (k, part) in lanes.chunks(width as usize).enumerate() {
                let off = base.plus(k as i64 * width);
                let text = match self.elsewhere(b, index) {
                    Some(rank) => format!(
                        "bring(&{}, {rank}, make_float{}({}));",
                        self.here(b, &off),
                        part.len(),
                        part.join(", ")
                    ),
                    None => format!("{};", wide(dtype, raw, &self.at(b, index, &off), part)),
                };
                self.line(&text);
            }
        } else {
            for (i, text) in lanes.iter().enumerate() {
                self.known.insert(l.var, i as i64);
                let off = self.offset(b, index);
                let text = if raw {
                    format!("{}.bits = {text};", self.at(b, index, &off))
                } else {
                    self.put(b, index, &off, op, text)
                };
                self.line(&text);
            }
            self.known.remove(&l.var);
        }
        self.close();
    }

    fn assign(&mut self, b: Source, index: &[Affine], op: Option<Reducer>, value: &Expr) {
        let dtype = self.n.buffer(b).dtype;
        if op.is_none()
            && let Some((from, at, conds)) = self.copied(b, value)
        {
            let (to, source) = (
                self.at(b, index, &self.offset(b, index)),
                self.at(from, at, &self.offset(from, at)),
            );
            let first = self.at(from, &[], &Affine::constant(0));
            let text = match conds {
                _ if dtype.is_half() => format!("{to}.bits = {};", self.bits(from, at, conds)),
                [] => format!("copy4(&{to}, &{source}, true);"),
                _ => {
                    let valid = self.conds(conds);
                    format!(
                        "{{ const bool valid = {valid}; copy4(&{to}, valid ? &{source} : \
                         &{first}, valid); }}"
                    )
                }
            };
            return self.line(&text);
        }
        let v = self.value(value);
        let off = self.offset(b, index);
        let text = self.put(b, index, &off, op, &v);
        self.line(&text);
    }

    /// The statement that gives an element its value.
    fn put(
        &self,
        b: Source,
        index: &[Affine],
        off: &Affine,
        op: Option<Reducer>,
        value: &str,
    ) -> String {
        match self.elsewhere(b, index) {
            Some(rank) => format!("bring(&{}, {rank}, {value});", self.here(b, off)),
            None => combined(&self.at(b, index, off), op, &rounded(self.n.buffer(b).dtype, value)),
        }
    }
}

/// A value on its way to an element: formats of 16 bits round in their assignment.
fn rounded(dtype: DType, text: &str) -> String {
    if dtype == DType::Tf32 { format!("tf32({text})") } else { text.into() }
}

/// An assignment of elements that lie side by side, aligned.
fn wide(dtype: DType, raw: bool, place: &str, lanes: &[String]) -> String {
    if !dtype.is_half() {
        let list: Vec<String> = lanes.iter().map(|l| rounded(dtype, l)).collect();
        return format!("*(float{0} *)&{place} = make_float{0}({1})", lanes.len(), list.join(", "));
    }
    let f = if raw { "join".into() } else { format!("pair_{}", c_type(dtype)) };
    let pairs: Vec<String> = lanes.chunks(2).map(|p| format!("{f}({})", p.join(", "))).collect();
    match &pairs[..] {
        [one] => format!("*(unsigned *)&{place} = {one}"),
        list => format!("*(uint{0} *)&{place} = make_uint{0}({1})", list.len(), list.join(", ")),
    }
}
