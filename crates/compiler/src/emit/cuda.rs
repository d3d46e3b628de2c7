//! Prints a GPU program as CUDA C: one `__global__` function for each outermost statement.
//!
//! Grids, clusters and blocks have one dimension; the loops bound to them are read off its number.
//! Shared buffers lie in one dynamic array, each in its place only while its block of statements
//! runs. Unrolled loops stay loops under `#pragma unroll`: NVRTC unrolls, allocates registers and
//! joins loads; vector loops become accesses of 8 or 16 bytes where alignment can be proved.

use super::c_name;
use super::cuda_helpers::{COPIES, PEER};
use crate::nest::{Loop, Mode, Nest, Reach, Scope, Stmt, aligned_bytes};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Unary, Var};
use squall_core::workload::{Reducer, flatten};
use squall_core::{Bytes, KernelSource, Launch, LaunchPhase};
use std::collections::HashMap;
use std::fmt::Write;

/// The CUDA C of a verified GPU program; the functions' names begin with `symbol`.
pub fn emit_cuda(n: &Nest, symbol: &str) -> KernelSource {
    let mut source = format!("// {}, made by Squall\n", n.name);
    let mut functions = String::new();
    let mut launches = Vec::new();
    for (phase, stmts, word) in [(LaunchPhase::Prepare, &n.prepare, "_prepare"), (LaunchPhase::Call, &n.body, "")] {
        for (i, s) in stmts.iter().enumerate() {
            let entry = if phase == LaunchPhase::Call && i == 0 { symbol.to_string() } else { format!("{symbol}{word}{i}") };
            let (text, launch) = Function::print(n, s, phase, entry);
            functions += &text;
            launches.push(launch);
        }
    }
    if functions.contains("cluster_barrier") {
        source += PEER;
    }
    if functions.contains("copies_arrive") {
        source += COPIES;
    }
    source += "extern __shared__ __align__(16) float shared[];\n\n";
    source += &functions;
    KernelSource {
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

/// Bytes of shared memory that a GPU program's blocks use.
pub fn shared_bytes(n: &Nest) -> u64 {
    fn go(n: &Nest, stmts: &[Stmt], top: i64) -> i64 {
        let (mut top, mut most) = (top, top);
        for s in stmts {
            match s {
                Stmt::Local(b) => {
                    top += shared_elements(n, *b);
                    most = most.max(top);
                }
                Stmt::Loop(Loop { body, .. }) | Stmt::If { body, .. } => most = most.max(go(n, body, top)),
                _ => {}
            }
        }
        most
    }
    4 * n.body.iter().map(|s| go(n, std::slice::from_ref(s), 0)).max().unwrap_or(0) as u64
}

/// Elements of a block's share of a buffer, in whole vectors; 0 where it is not shared.
fn shared_elements(n: &Nest, b: Source) -> i64 {
    let buf = n.buffer(b);
    match buf.scope {
        Scope::Shared => (buf.elements() + 3) / 4 * 4,
        Scope::Cluster => (buf.elements() / buf.shape[0] + 3) / 4 * 4,
        _ => 0,
    }
}

struct Function<'a> {
    n: &'a Nest,
    out: String,
    depth: usize,
    /// Variables with a known value.
    known: HashMap<Var, i64>,
    /// What tile starts are multiples of.
    multiple: HashMap<Var, i64>,
    /// Where shared buffers lie, and the first free element.
    places: HashMap<Source, i64>,
    top: i64,
    most: i64,
    threads: i64,
    /// The variable of the block's number in its cluster, and the cluster's size.
    rank: (Option<Var>, i64),
    /// The vector loop's variable, lane and width; whether a load may be made for all lanes.
    lane: Option<(Var, i64, i64)>,
    whole: bool,
    vectors: HashMap<String, String>,
    temporaries: usize,
    prepared: HashMap<Source, u64>,
    /// Whether copies may still be on their way.
    copies: bool,
}

impl<'a> Function<'a> {
    fn print(n: &'a Nest, top: &Stmt, phase: LaunchPhase, entry: String) -> (String, Launch) {
        let mut prepared = HashMap::new();
        for scope in [Scope::Prepared, Scope::Workspace] {
            let mut at = 0;
            for (i, b) in n.buffers.iter().enumerate().filter(|(_, b)| b.scope == scope) {
                prepared.insert(Source(i as u32), at);
                at += aligned_bytes(b) / 4;
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
            copies: false,
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
        crate::nest::visit(stmts, &mut |s| {
            if let Stmt::Store { buffer, value, .. } = s {
                f.copies |= f.copied(*buffer, value).is_some();
            }
        });
        f.block(stmts);
        let mut head = String::new();
        let bounds = if cluster > 1 { format!("__cluster_dims__({cluster}, 1, 1) ") } else { String::new() };
        let _ = writeln!(head, "extern \"C\" __global__ void {bounds}__launch_bounds__({}) {entry}({}) {{", f.threads, f.parameters(phase));
        let launch = Launch::linear(phase, entry, (blocks * cluster) as u32, f.threads as u32, 4 * f.most as u32);
        (head + &f.out + "}\n\n", launch)
    }

    fn parameters(&self, phase: LaunchPhase) -> String {
        let mut list = Vec::new();
        let wanted = |s: Scope| match phase {
            LaunchPhase::Prepare => matches!(s, Scope::Weight(_)),
            LaunchPhase::Call => matches!(s, Scope::Data(_)),
        };
        // Buffers stand in the order of the workload's inputs, and so do the arguments.
        for b in self.n.buffers.iter().filter(|b| wanted(b.scope)) {
            list.push(format!("const float *__restrict__ {}", c_name(&b.name)));
        }
        match phase {
            LaunchPhase::Prepare => list.push("float *prepared".into()),
            LaunchPhase::Call => {
                let output = self.n.buffers.iter().filter(|b| b.scope == Scope::Output);
                list.extend(output.map(|b| format!("float *__restrict__ {}", c_name(&b.name))));
                list.push("const float *__restrict__ prepared".into());
                list.push("float *__restrict__ workspace".into());
            }
        }
        list.join(", ")
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:1$}{text}", "", self.depth * 2);
    }

    /// Declares the variables of loops that run over one number, the first slowest.
    fn number(&mut self, number: &str, loops: &[&Loop]) {
        let mut inner = 1;
        let total: i64 = loops.iter().map(|l| l.extent).product();
        let mut lines = Vec::new();
        for l in loops.iter().rev() {
            if l.extent == 1 {
                self.known.insert(l.var, 0);
                continue;
            }
            let mut text = format!("(int){number}");
            if inner > 1 {
                text += &format!(" / {inner}");
            }
            if inner * l.extent < total {
                text += &format!(" % {}", l.extent);
            }
            inner *= l.extent;
            lines.push(format!("const int {} = {text};", self.var(l.var)));
        }
        lines.iter().rev().for_each(|t| self.line(t));
        loops.iter().for_each(|l| self.start(l));
    }

    /// Declares the tile start that a loop binds.
    fn start(&mut self, l: &Loop) {
        let Some(s) = l.start else { return };
        if l.extent == 1 {
            self.known.insert(s.var, 0);
            return;
        }
        let whole = s.step * (l.extent - 1) == s.cap;
        self.multiple.insert(s.var, if whole { s.step } else { gcd(s.step, s.cap) });
        let (v, base) = (self.var(l.var), self.var(s.var));
        let text = if whole { format!("{}*{v}", s.step) } else { format!("min({}*{v}, {})", s.step, s.cap) };
        self.line(&format!("const int {base} = {text};"));
    }

    fn block(&mut self, stmts: &[Stmt]) {
        let top = self.top;
        stmts.iter().for_each(|s| self.stmt(s));
        self.top = top;
    }

    fn stmt(&mut self, s: &Stmt) {
        match s {
            Stmt::Loop(l) => self.loop_(l),
            Stmt::Barrier(reach) => {
                if self.copies {
                    self.line("copies_arrive();");
                }
                self.line(if *reach == Reach::Cluster && self.rank.1 > 1 { "cluster_barrier();" } else { "__syncthreads();" });
            }
            Stmt::Local(b) => {
                let shared = shared_elements(self.n, *b);
                if shared > 0 {
                    self.places.insert(*b, self.top);
                    self.top += shared;
                    self.most = self.most.max(self.top);
                } else {
                    let buf = self.n.buffer(*b);
                    let text = format!("float {}[{}];", c_name(&buf.name), buf.elements());
                    self.line(&text);
                }
            }
            Stmt::Store { buffer, index, value } => self.assign(*buffer, index, None, value),
            Stmt::Update { op, buffer, index, value } => self.assign(*buffer, index, Some(*op), value),
            Stmt::If { conds, body } => {
                let test = self.conds(conds);
                self.open(&format!("if ({test}) {{"));
                self.block(body);
                self.close();
            }
        }
    }

    fn open(&mut self, head: &str) {
        self.line(head);
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    fn loop_(&mut self, l: &Loop) {
        if l.mode == Mode::Share {
            return self.share(l);
        }
        if l.mode == Mode::Vector && matches!(l.extent, 2 | 4) {
            return l.body.iter().for_each(|s| self.vector(l, s));
        }
        if l.extent == 1 {
            self.known.insert(l.var, 0);
            self.open("{");
            self.start(l);
        } else {
            self.line(if l.mode == Mode::Serial { "#pragma unroll 1" } else { "#pragma unroll" });
            let v = self.var(l.var);
            self.open(&format!("for (int {v} = 0; {v} < {}; {v}++) {{", l.extent));
            self.start(l);
        }
        self.block(&l.body);
        self.close();
    }

    fn share(&mut self, top: &Loop) {
        let mut chain = vec![top];
        while let [Stmt::Loop(l)] = &chain[chain.len() - 1].body[..]
            && l.mode == Mode::Share
        {
            chain.push(l);
        }
        let total: i64 = chain.iter().map(|l| l.extent).product();
        let rounds = (total + self.threads - 1) / self.threads;
        self.temporaries += 1;
        let (i, f) = (format!("i{}", self.temporaries), format!("f{}", self.temporaries));
        if rounds > 1 {
            // Several loads shall be on their way at once.
            self.line(&format!("#pragma unroll {}", if rounds <= 16 { rounds } else { 8 }));
            self.open(&format!("for (int {i} = 0; {i} < {rounds}; {i}++) {{"));
            self.line(&format!("const int {f} = {i}*{} + (int)threadIdx.x;", self.threads));
        } else {
            self.open("{");
            self.line(&format!("const int {f} = (int)threadIdx.x;"));
        }
        let guarded = rounds * self.threads > total;
        if guarded {
            self.open(&format!("if ({f} < {total}) {{"));
        }
        self.number(&f, &chain);
        self.block(&chain[chain.len() - 1].body);
        if guarded {
            self.close();
        }
        self.close();
    }

    /// What a store copies from device to shared memory as it is, if that is all it does, and
    /// where; elsewhere it stores zero.
    fn copied<'e>(&self, to: Source, value: &'e Expr) -> Option<(Source, &'e [Affine], &'e [Cond])> {
        let global = |s: &Source| matches!(self.n.buffer(*s).scope, Scope::Data(_) | Scope::Prepared);
        let found = match value {
            Expr::Load { source, index } => (*source, &index[..], &[][..]),
            Expr::Select { conds, then, other } => match (&**then, &**other) {
                (Expr::Load { source, index }, Expr::Const(0.0)) => (*source, &index[..], &conds[..]),
                _ => return None,
            },
            _ => return None,
        };
        (self.n.buffer(to).scope == Scope::Shared && global(&found.0)).then_some(found)
    }

    /// A statement for all lanes of a vector loop.
    fn vector(&mut self, l: &Loop, s: &Stmt) {
        let (b, index, op, value) = match s {
            Stmt::Store { buffer, index, value } => (*buffer, index, None, value),
            Stmt::Update { op, buffer, index, value } => (*buffer, index, Some(*op), value),
            _ => return,
        };
        if l.extent == 4
            && let Some((from, at, [])) = self.copied(b, value)
        {
            let (to, source) = (self.offset(b, index), self.offset(from, at));
            if [&to, &source].iter().all(|o| o.coefficient(l.var) == 1 && self.aligned(o, l.var, 4)) {
                self.known.insert(l.var, 0);
                let (to, source) = (self.at(b, index, &self.offset(b, index)), self.at(from, at, &self.offset(from, at)));
                self.known.remove(&l.var);
                return self.line(&format!("copy16(&{to}, &{source});"));
            }
        }
        self.open("{");
        let mut lanes = Vec::new();
        for i in 0..l.extent {
            self.lane = Some((l.var, i, l.extent));
            lanes.push(self.value(value));
        }
        self.lane = None;
        self.vectors.clear();
        let off = self.offset(b, index);
        if op.is_none() && off.coefficient(l.var) == 1 && self.aligned(&off, l.var, l.extent) && self.n.buffer(b).scope != Scope::Local {
            let mut base = off.clone();
            base.add_term(l.var, -1);
            let place = self.at(b, index, &base);
            self.line(&format!("*(float{0} *)&{place} = make_float{0}({1});", l.extent, lanes.join(", ")));
        } else {
            for (i, text) in lanes.iter().enumerate() {
                self.known.insert(l.var, i as i64);
                let off = self.offset(b, index);
                let place = self.at(b, index, &off);
                let text = combined(&place, op, text);
                self.line(&text);
            }
            self.known.remove(&l.var);
        }
        self.close();
    }

    fn assign(&mut self, b: Source, index: &[Affine], op: Option<Reducer>, value: &Expr) {
        if op.is_none()
            && let Some((from, at, conds)) = self.copied(b, value)
        {
            let (to, source) = (self.at(b, index, &self.offset(b, index)), self.at(from, at, &self.offset(from, at)));
            let first = self.at(from, &[], &Affine::constant(0));
            let text = match conds {
                [] => format!("copy4(&{to}, &{source}, true);"),
                _ => {
                    let valid = self.conds(conds);
                    format!("{{ const bool valid = {valid}; copy4(&{to}, valid ? &{source} : &{first}, valid); }}")
                }
            };
            return self.line(&text);
        }
        let v = self.value(value);
        let off = self.offset(b, index);
        let place = self.at(b, index, &off);
        let text = combined(&place, op, &v);
        self.line(&text);
    }

    fn var(&self, v: Var) -> String {
        c_name(&self.n.vars[v.0 as usize])
    }

    fn fold(&self, a: &Affine) -> Affine {
        a.map_vars(|v| self.known.get(&v).map_or_else(|| Affine::var(v), |&k| Affine::constant(k)))
    }

    /// The element offset of an access; of a cluster's buffer, inside the block's share.
    fn offset(&self, b: Source, index: &[Affine]) -> Affine {
        let buf = self.n.buffer(b);
        let skip = usize::from(buf.scope == Scope::Cluster);
        self.fold(&flatten(&index[skip..], &buf.shape[skip..]))
    }

    /// Whether an offset without its lane is a multiple of the vector's width.
    fn aligned(&self, off: &Affine, lane: Var, lanes: i64) -> bool {
        let multiple = |v: &Var| self.multiple.get(v).copied().unwrap_or(1);
        off.offset() % lanes == 0 && off.terms().iter().all(|(v, c)| *v == lane || c * multiple(v) % lanes == 0)
    }

    /// The C text of an element.
    fn at(&self, b: Source, index: &[Affine], off: &Affine) -> String {
        let buf = self.n.buffer(b);
        let own = |at: &Affine| self.affine(at);
        match buf.scope {
            Scope::Prepared => format!("prepared[{}]", own(&off.plus(self.prepared[&b] as i64))),
            Scope::Workspace => format!("workspace[{}]", own(&off.plus(self.prepared[&b] as i64))),
            Scope::Shared | Scope::Cluster => {
                let here = format!("shared[{}]", own(&off.plus(self.places.get(&b).copied().unwrap_or(0))));
                let rank = if buf.scope == Scope::Cluster { self.fold(&index[0]) } else { Affine::constant(0) };
                let mine = self.rank.1 == 1 || buf.scope == Scope::Shared || self.rank.0.is_some() && rank.as_var() == self.rank.0;
                if mine { here } else { format!("peer(&{here}, {})", own(&rank)) }
            }
            _ => format!("{}[{}]", c_name(&buf.name), own(off)),
        }
    }

    fn affine(&self, a: &Affine) -> String {
        let mut s = String::new();
        for &(v, c) in a.terms() {
            let sign = match (s.is_empty(), c < 0) {
                (true, true) => "-",
                (true, false) => "",
                (false, true) => " - ",
                (false, false) => " + ",
            };
            s += sign;
            if c.abs() != 1 {
                let _ = write!(s, "{}*", c.abs());
            }
            s += &self.var(v);
        }
        match (s.is_empty(), a.offset()) {
            (true, o) => o.to_string(),
            (false, 0) => s,
            (false, o) if o < 0 => format!("{s} - {}", -o),
            (false, o) => format!("{s} + {o}"),
        }
    }

    fn conds(&self, conds: &[Cond]) -> String {
        let one = |c: &Cond| {
            let mut i = self.fold(&c.index);
            if let Some((v, l, _)) = self.lane {
                i = i.substitute(v, &Affine::constant(l));
            }
            format!("(unsigned)({}) < {}u", self.affine(&i.plus(-c.low)), (c.high - c.low).max(0))
        };
        conds.iter().map(one).collect::<Vec<_>>().join(" && ")
    }

    fn value(&mut self, e: &Expr) -> String {
        match e {
            Expr::Const(c) => constant(*c),
            Expr::Load { source, index } => self.load(*source, index),
            Expr::Cast(_, a) => self.value(a),
            Expr::Unary(op, a) => {
                let a = self.value(a);
                unary(*op, &a)
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.value(a), self.value(b));
                match op {
                    Binary::Add => format!("({a} + {b})"),
                    Binary::Sub => format!("({a} - {b})"),
                    Binary::Mul => format!("({a} * {b})"),
                    Binary::Div => format!("({a} / {b})"),
                    Binary::Max => format!("fmaxf({a}, {b})"),
                    Binary::Min => format!("fminf({a}, {b})"),
                    Binary::Pow => format!("powf({a}, {b})"),
                }
            }
            Expr::Select { conds, then, other } => {
                let test = self.conds(conds);
                // What a condition guards may not be loaded ahead of it.
                let whole = std::mem::replace(&mut self.whole, false);
                let (a, b) = (self.value(then), self.value(other));
                self.whole = whole;
                format!("({test} ? {a} : {b})")
            }
        }
    }

    fn load(&mut self, b: Source, index: &[Affine]) -> String {
        let mut off = self.offset(b, index);
        let Some((v, lane, lanes)) = self.lane else { return self.at(b, index, &off) };
        let scope = self.n.buffer(b).scope;
        if self.whole && off.coefficient(v) == 1 && !matches!(scope, Scope::Local | Scope::Cluster) && self.aligned(&off, v, lanes) {
            off.add_term(v, -1);
            let place = self.at(b, index, &off);
            let name = match self.vectors.get(&place) {
                Some(t) => t.clone(),
                None => {
                    self.temporaries += 1;
                    let t = format!("t{}", self.temporaries);
                    self.line(&format!("const float{lanes} {t} = *(const float{lanes} *)&{place};"));
                    self.vectors.insert(place, t.clone());
                    t
                }
            };
            return format!("{name}.{}", ["x", "y", "z", "w"][lane as usize]);
        }
        off = off.substitute(v, &Affine::constant(lane));
        let index: Vec<Affine> = index.iter().map(|a| a.substitute(v, &Affine::constant(lane))).collect();
        self.at(b, &index, &off)
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn combined(place: &str, op: Option<Reducer>, v: &str) -> String {
    match op {
        None => format!("{place} = {v};"),
        Some(Reducer::Sum) => format!("{place} += {v};"),
        Some(Reducer::Prod) => format!("{place} *= {v};"),
        Some(Reducer::Max) => format!("{place} = fmaxf({place}, {v});"),
        Some(Reducer::Min) => format!("{place} = fminf({place}, {v});"),
    }
}

fn constant(c: f64) -> String {
    if c.is_nan() {
        return "__int_as_float(0x7fffffff)".into();
    }
    if c.is_infinite() {
        return if c < 0.0 { "__int_as_float(0xff800000)".into() } else { "__int_as_float(0x7f800000)".into() };
    }
    let text = format!("{:?}", c as f32);
    let text = if text.contains(['.', 'e']) { text } else { format!("{text}.0") };
    if c < 0.0 { format!("({text}f)") } else { format!("{text}f") }
}

fn unary(op: Unary, a: &str) -> String {
    match op {
        Unary::Neg => format!("(-{a})"),
        Unary::Abs => format!("fabsf({a})"),
        Unary::Exp => format!("expf({a})"),
        Unary::Log => format!("logf({a})"),
        Unary::Sqrt => format!("sqrtf({a})"),
        Unary::Tanh => format!("tanhf({a})"),
        Unary::Erf => format!("erff({a})"),
        Unary::Sigmoid => format!("(1.0f / (1.0f + expf(-{a})))"),
        Unary::Floor => format!("floorf({a})"),
        Unary::Ceil => format!("ceilf({a})"),
        Unary::Round => format!("rintf({a})"),
        Unary::Sin => format!("sinf({a})"),
        Unary::Cos => format!("cosf({a})"),
        Unary::Sign => format!("(float)(({a} > 0.0f) - ({a} < 0.0f))"),
    }
}
