//! Prints a nest as C. The vector axis becomes GCC/Clang vector types, unrolled loops are
//! written out, and small local buffers become named variables, so that nothing is left to the
//! compiler's auto-vectoriser: register allocation and scheduling are all it has to do.

mod cuda;
mod cuda_boxes;
mod cuda_helpers;
mod cuda_loops;
mod cuda_value;
mod cuda_warp;
mod prelude;
mod registers;
mod value;

pub use cuda::{emit_cuda, shared_bytes};

use crate::nest::{Buffer, Loop, Mode, Nest, Scope, Start, Stmt, aligned_bytes};
use registers::Registers;
use squall_core::expr::{Affine, Cond, Expr, Source, Var};
use squall_core::workload::Reducer;
use squall_core::{Bytes, DType, KernelSource};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

/// What the emitter is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads that parallel loops are shared among; 1 leaves OpenMP out, 0 lets it choose.
    pub threads: usize,
    /// Computes and keeps intermediates in double precision: for references.
    pub double: bool,
    /// See [`KernelSource::full_optimisation`].
    pub full_optimisation: bool,
}

/// The C source of a verified nest, with entry point `symbol`.
pub fn emit(n: &Nest, symbol: &str, o: Options) -> KernelSource {
    let mut e = Emitter::new(n, o);
    let prepared = n.scope_bytes(|s| *s == Scope::Prepared);
    let workspace = n.scope_bytes(|s| *s == Scope::Workspace) * if o.double { 2 } else { 1 };
    let mut functions = String::new();
    if prepared > 0 {
        let _ =
            writeln!(functions, "size_t {symbol}_prepared_bytes(void) {{ return {prepared}; }}\n");
        let _ = writeln!(
            functions,
            "int {symbol}_prepare(const void *const *weights, void *prepared) {{"
        );
        functions += &e.pointers(|s| matches!(s, Scope::Weight(_)), "weights");
        e.preparing = true;
        functions += &e.offsets(Scope::Prepared, "prepared");
        functions += &e.run(&n.prepare);
        e.preparing = false;
        functions += "  return 0;\n}\n\n";
    }
    let _ =
        writeln!(functions, "size_t {symbol}_workspace_bytes(void) {{ return {workspace}; }}\n");
    let _ = writeln!(
        functions,
        "int {symbol}(const void *const *data, void *const *outputs, const void *prepared, void \
         *workspace) {{"
    );
    functions += &e.pointers(|s| matches!(s, Scope::Data(_)), "data");
    functions += &e.pointers(|s| *s == Scope::Output, "outputs");
    functions += &e.offsets(Scope::Prepared, "prepared");
    functions += &e.offsets(Scope::Workspace, "workspace");
    functions += &e.run(&n.body);
    functions += "  (void)data; (void)outputs; (void)prepared; (void)workspace;\n  return 0;\n}\n";
    let openmp = o.threads != 1 && functions.contains("#pragma omp");
    let source = format!(
        "/* {}, made by Squall */\n{}\n{functions}",
        n.name,
        prelude::text(&e.lanes_used, &e.helpers)
    );
    KernelSource {
        language: squall_core::Language::C,
        source,
        symbol: symbol.into(),
        prepared: Bytes(prepared),
        workspace: Bytes(workspace),
        openmp,
        full_optimisation: o.full_optimisation,
        flags: Vec::new(),
        launches: Vec::new(),
    }
}

/// A value in memory that was loaded into a temporary of the current block.
type Memo = HashMap<(Source, String), String>;

struct Emitter<'a> {
    n: &'a Nest,
    o: Options,
    out: String,
    depth: usize,
    /// Variables with a known value: of unrolled loops and of loops that run once.
    known: HashMap<Var, i64>,
    /// Unrolled loops around the current statement that run 4 times.
    fours: Vec<Var>,
    /// The vector loop around the current statement.
    vector: Option<(Var, i64)>,
    registers: Registers,
    memo: Vec<Memo>,
    temporaries: usize,
    /// Whether `prepare` is being printed, which writes prepared buffers.
    preparing: bool,
    lanes_used: BTreeSet<i64>,
    helpers: BTreeSet<&'static str>,
}

impl<'a> Emitter<'a> {
    fn new(n: &'a Nest, o: Options) -> Emitter<'a> {
        Emitter {
            n,
            o,
            out: String::new(),
            depth: 1,
            known: HashMap::new(),
            fours: Vec::new(),
            vector: None,
            registers: Registers::find(n),
            memo: vec![Memo::new()],
            temporaries: 0,
            preparing: false,
            lanes_used: BTreeSet::new(),
            helpers: BTreeSet::new(),
        }
    }

    /// The C type of intermediates.
    fn real(&self) -> &'static str {
        if self.o.double { "double" } else { "float" }
    }

    fn vector_type(&mut self, lanes: i64) -> String {
        self.lanes_used.insert(lanes);
        format!("v{lanes}")
    }

    fn pointers(&self, wanted: fn(&Scope) -> bool, from: &str) -> String {
        let mut out = String::new();
        let mut outputs = 0;
        for (k, b) in self.n.buffers.iter().enumerate().filter(|(_, b)| wanted(&b.scope)) {
            let i = match b.scope {
                Scope::Data(i) | Scope::Weight(i) => i,
                _ => {
                    outputs += 1;
                    outputs - 1
                }
            };
            let _ = writeln!(
                out,
                "  {} *restrict {} = {from}[{i}];",
                self.pointer_type(Source(k as u32)),
                c_name(&b.name)
            );
        }
        out
    }

    fn offsets(&self, scope: Scope, from: &str) -> String {
        let mut out = String::new();
        let mut at = 0;
        for (k, b) in self.n.buffers.iter().enumerate().filter(|(_, b)| b.scope == scope) {
            let ty = self.pointer_type(Source(k as u32));
            let _ = writeln!(
                out,
                "  {ty} *restrict {} = ({ty} *)((const char *){from} + {at});",
                c_name(&b.name)
            );
            at += aligned_bytes(b) * if ty == "double" { 2 } else { 1 };
        }
        out
    }

    fn run(&mut self, stmts: &[Stmt]) -> String {
        self.out.clear();
        self.memo = vec![Memo::new()];
        self.depth = 1;
        self.block(stmts);
        std::mem::take(&mut self.out)
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:1$}{text}", "", self.depth * 2);
    }

    fn open(&mut self, head: &str) {
        self.line(head);
        self.depth += 1;
        self.memo.push(Memo::new());
    }

    fn close(&mut self) {
        self.memo.pop();
        self.depth -= 1;
        self.line("}");
    }

    fn block(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Loop(l) => self.loop_(l),
                Stmt::Local(b) => self.declare(*b),
                Stmt::Prefetch { buffer, at } => {
                    let at = self.fold(at);
                    let place = self.place(*buffer, &at);
                    self.line(&format!("__builtin_prefetch(&{place});"));
                }
                // Programs for GPUs only.
                Stmt::Barrier(_)
                | Stmt::Let { .. }
                | Stmt::Warp(_)
                | Stmt::CommitCopies
                | Stmt::AwaitCopies(_)
                | Stmt::AwaitProducts(_) => {}
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
    }

    fn declare(&mut self, b: Source) {
        let buf = self.n.buffer(b).clone();
        // What an earlier instance of the buffer held is not this one's.
        self.forget(b);
        match self.registers.get(b) {
            Some(lanes) => {
                let ty = if lanes > 1 { self.vector_type(lanes) } else { self.real().to_string() };
                let names: Vec<String> = (0..buf.elements().max(1) / lanes)
                    .map(|i| format!("{}_{i}", c_name(&buf.name)))
                    .collect();
                for part in names.chunks(12) {
                    self.line(&format!("{ty} {};", part.join(", ")));
                }
            }
            None => {
                let real = self.real();
                self.line(&format!(
                    "{real} {}[{}] __attribute__((aligned(64)));",
                    c_name(&buf.name),
                    buf.elements()
                ));
            }
        }
    }

    fn loop_(&mut self, l: &Loop) {
        if l.extent == 1 && l.mode != Mode::Vector {
            self.known.insert(l.var, 0);
            self.bind_known_start(l.start, 0);
            self.line("{");
            self.depth += 1;
            self.memo.push(Memo::new());
            self.block(&l.body);
            self.close();
            self.known.remove(&l.var);
            return;
        }
        match l.mode {
            Mode::Unroll if self.across_lanes(l).is_some() => {}
            Mode::Unroll => {
                if l.extent == 4 {
                    self.fours.push(l.var);
                }
                // A local declared inside needs its own scope each time; plain statements do not.
                let scoped = l.body.iter().any(|s| matches!(s, Stmt::Local(_)));
                for i in 0..l.extent {
                    self.known.insert(l.var, i);
                    self.bind_known_start(l.start, i);
                    if scoped {
                        self.open("{");
                    }
                    self.block(&l.body);
                    if scoped {
                        self.close();
                    }
                }
                self.known.remove(&l.var);
                if l.extent == 4 {
                    self.fours.pop();
                }
            }
            Mode::Vector => {
                self.vector = Some((l.var, l.extent));
                if l.extent == 1 {
                    self.known.insert(l.var, 0);
                    self.vector = None;
                }
                self.block(&l.body);
                self.known.remove(&l.var);
                self.vector = None;
            }
            // The modes of GPU programs never come here: another dialect prints them.
            Mode::Serial | Mode::Block | Mode::Cluster | Mode::Thread | Mode::Share | Mode::Box => {
                self.counted(&[l], "")
            }
            Mode::Parallel => {
                let mut chain = vec![l];
                while let [Stmt::Loop(next)] = &chain[chain.len() - 1].body[..] {
                    if next.mode != Mode::Parallel || next.extent == 1 {
                        break;
                    }
                    chain.push(next);
                }
                let pragma = match (self.o.threads, chain.len()) {
                    (1, _) => String::new(),
                    (0, _) => "#pragma omp parallel for schedule(static)".into(),
                    (t, 1) => format!("#pragma omp parallel for schedule(static) num_threads({t})"),
                    (t, k) => format!(
                        "#pragma omp parallel for schedule(static) collapse({k}) num_threads({t})"
                    ),
                };
                self.counted(&chain, &pragma);
            }
        }
    }

    /// Combines all lanes of vectors in registers into one element as a tree, where that is what
    /// an unrolled loop does: one after another they would wait for each other.
    fn across_lanes(&mut self, l: &Loop) -> Option<()> {
        let [Stmt::Update { op, buffer, index, value: Expr::Load { source, index: from } }] =
            &l.body[..]
        else {
            return None;
        };
        let lanes =
            self.registers.get(*source).filter(|lanes| lanes.count_ones() == 1 && *lanes > 1)?;
        let off = self.offset(*source, from);
        let whole =
            off.offset() % lanes == 0 && l.extent % lanes == 0 && off.terms() == [(l.var, 1)];
        if !whole
            || index.iter().any(|a| a.uses(l.var))
            || self.vector.is_some()
            || l.start.is_some()
        {
            return None;
        }
        let name = c_name(&self.n.buffer(*source).name);
        let mut parts: Vec<String> =
            (0..l.extent / lanes).map(|i| format!("{name}_{}", off.offset() / lanes + i)).collect();
        let (word, sign) = match op {
            Reducer::Sum => ("across_sum", "+"),
            Reducer::Prod => ("across_prod", "*"),
            Reducer::Max => ("across_max", "max"),
            Reducer::Min => ("across_min", "min"),
        };
        // Widths down to one lane are needed on the way.
        std::iter::successors(Some(lanes), |l| Some(l / 2))
            .take_while(|l| *l > 1)
            .for_each(|l| _ = self.vector_type(l));
        while parts.len() > 1 {
            let mut next = Vec::new();
            for pair in parts.chunks(2) {
                next.push(match pair {
                    [a, b] if sign.len() == 1 => format!("({a} {sign} {b})"),
                    [a, b] => format!(
                        "{}({a}, {b})",
                        self.function(if sign == "max" { "max" } else { "min" }, lanes)
                    ),
                    rest => rest.concat(),
                });
            }
            parts = next;
        }
        if sign.len() > 1 {
            self.function(if sign == "max" { "max" } else { "min" }, lanes);
        }
        let all = format!("{}({})", self.function(word, lanes), parts.concat());
        let off = self.offset(*buffer, index);
        let place = match self.registers.get(*buffer) {
            Some(1) => format!("{}_{}", c_name(&self.n.buffer(*buffer).name), off.offset()),
            Some(_) => return None,
            None => self.place(*buffer, &off),
        };
        let text = self.combined(&place, Some(*op), &all, 1);
        self.line(&text);
        self.forget(*buffer);
        Some(())
    }

    /// Nested counted loops; tile starts are computed inside the innermost.
    fn counted(&mut self, chain: &[&Loop], pragma: &str) {
        if !pragma.is_empty() {
            let _ = writeln!(self.out, "{pragma}");
        }
        for l in chain {
            let v = self.var(l.var);
            self.open(&format!("for (long {v} = 0; {v} < {}; {v}++) {{", l.extent));
        }
        for l in chain {
            if let Some(s) = l.start {
                let (v, base) = (self.var(l.var), self.var(s.var));
                self.line(&format!("long {base} = {0}*{v} < {1} ? {0}*{v} : {1};", s.step, s.cap));
            }
        }
        self.block(&chain[chain.len() - 1].body);
        chain.iter().for_each(|_| self.close());
    }

    fn bind_known_start(&mut self, s: Option<Start>, i: i64) {
        if let Some(s) = s {
            self.known.insert(s.var, (s.step * i).min(s.cap));
        }
    }

    fn var(&self, v: Var) -> String {
        c_name(&self.n.vars[v.0 as usize])
    }

    fn fold(&self, a: &Affine) -> Affine {
        a.map_vars(|v| self.known.get(&v).map_or_else(|| Affine::var(v), |&k| Affine::constant(k)))
    }

    fn affine(&self, a: &Affine) -> String {
        affine_text(a, |v| self.var(v))
    }

    fn conds(&self, conds: &[Cond]) -> String {
        let mut parts = Vec::new();
        for c in conds {
            let i = self.fold(&c.index);
            // One unsigned comparison tests both bounds.
            parts.push(format!(
                "(unsigned long)({}) < {}",
                self.affine(&i.plus(-c.low)),
                (c.high - c.low).max(0)
            ));
        }
        parts.join(" && ")
    }

    /// The element offset of an access with known variables folded in.
    fn offset(&self, b: Source, index: &[Affine]) -> Affine {
        self.fold(&squall_core::workload::flatten(index, &self.n.buffer(b).shape))
    }

    fn forget(&mut self, b: Source) {
        for m in &mut self.memo {
            // Pointers stay good: they hold places, not values.
            m.retain(|k, _| k.0 != b || k.1.starts_with("pointer "));
        }
    }

    fn assign(&mut self, b: Source, index: &[Affine], op: Option<Reducer>, value: &Expr) {
        let off = self.offset(b, index);
        let v = self.value(value);
        let name = c_name(&self.n.buffer(b).name);
        let Some((lane, lanes)) = self.vector else {
            let place = match self.registers.get(b) {
                Some(1) => format!("{name}_{}", off.offset()),
                Some(l) => format!("{name}_{}[{}]", off.offset() / l, off.offset() % l),
                None => self.place(b, &off),
            };
            let text = match self.n.buffer(b).dtype {
                d if d.is_half() && self.registers.get(b).is_none() => {
                    let old = self.number(b, place.clone());
                    let new = match op {
                        None => v.text,
                        Some(r) => {
                            self.binary(r.binary(), value::Value { text: old, vector: false }, v)
                                .text
                        }
                    };
                    let round =
                        self.plain_function(if d == DType::F16 { "to_f16" } else { "to_bf16" });
                    format!("{place} = {round}({new});")
                }
                _ => self.combined(&place, op, &v.text, 1),
            };
            self.line(&text);
            self.forget(b);
            return;
        };
        let stride = off.coefficient(lane);
        let mut base = off.clone();
        base.add_term(lane, -stride);
        let ty = self.vector_type(lanes);
        if let Some(l) = self.registers.get(b)
            && l == lanes
        {
            let place = format!("{name}_{}", base.offset() / lanes);
            let v = self.widen(v, lanes);
            let text = self.combined(&place, op, &v, lanes);
            self.line(&text);
            return;
        }
        if stride == 1 {
            let place = format!("*({ty} *)&{}", self.place(b, &base));
            let v = self.widen(v, lanes);
            let text = self.combined(&place, op, &v, lanes);
            self.line(&text);
        } else {
            let v = self.widen(v, lanes);
            let t = self.temporary();
            self.line(&format!("{ty} {t} = {v};"));
            for i in 0..lanes {
                let place = self.place(b, &base.plus(stride * i));
                let text = self.combined(&place, op, &format!("{t}[{i}]"), 1);
                self.line(&text);
            }
        }
        self.forget(b);
    }

    /// An element of a buffer in memory, through a pointer that all elements at a constant
    /// distance share: long index expressions repeated in unrolled code cost compilers most of
    /// their time.
    fn place(&mut self, b: Source, off: &Affine) -> String {
        let name = c_name(&self.n.buffer(b).name);
        if off.terms().is_empty() {
            return format!("{name}[{}]", off.offset());
        }
        let text = self.affine(&off.plus(-off.offset()));
        let key = (b, format!("pointer {text}"));
        let known = self.memo.iter().rev().find_map(|m| m.get(&key)).cloned();
        let pointer = known.unwrap_or_else(|| {
            let t = self.temporary();
            let ty = self.pointer_type(b);
            self.line(&format!("{ty} *{t} = {name} + ({text});"));
            if let Some(m) = self.memo.last_mut() {
                m.insert(key, t.clone());
            }
            t
        });
        format!("{pointer}[{}]", off.offset())
    }

    /// The C type behind a buffer's pointer.
    fn pointer_type(&self, b: Source) -> &'static str {
        let buf = self.n.buffer(b);
        let fixed = matches!(buf.scope, Scope::Data(_) | Scope::Weight(_))
            || buf.scope == Scope::Prepared && !self.preparing;
        match (buf.scope, self.o.double, fixed) {
            (Scope::Workspace | Scope::Local, true, _) => "double",
            (_, _, true) if buf.dtype.is_half() => "const unsigned short",
            _ if buf.dtype.is_half() => "unsigned short",
            (_, _, true) => "const float",
            _ => "float",
        }
    }

    /// An element of a buffer as a number, at a place in memory.
    fn number(&mut self, b: Source, place: String) -> String {
        match self.n.buffer(b).dtype {
            DType::F16 => format!("{}({place})", self.plain_function("from_f16")),
            DType::Bf16 => format!("{}({place})", self.plain_function("from_bf16")),
            _ => place,
        }
    }

    /// The name of a helper function that works on one number.
    fn plain_function(&mut self, name: &'static str) -> &'static str {
        self.helpers.insert(name);
        name
    }

    fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("t{}", self.temporaries)
    }

    /// The statement that stores `v` at `place`, or combines it in.
    fn combined(&mut self, place: &str, op: Option<Reducer>, v: &str, lanes: i64) -> String {
        match op {
            None => format!("{place} = {v};"),
            Some(Reducer::Sum) => format!("{place} += {v};"),
            Some(Reducer::Prod) => format!("{place} *= {v};"),
            Some(r @ (Reducer::Max | Reducer::Min)) => {
                let f = self.function(if r == Reducer::Max { "max" } else { "min" }, lanes);
                format!("{place} = {f}({place}, {v});")
            }
        }
    }

    /// The name of a helper function for a width, noted for the prelude.
    fn function(&mut self, name: &'static str, lanes: i64) -> String {
        self.helpers.insert(name);
        match (lanes, self.o.double) {
            (1, false) => format!("{name}_f"),
            (1, true) => format!("{name}_d"),
            _ => {
                self.lanes_used.insert(lanes);
                format!("{name}_v{lanes}")
            }
        }
    }
}

/// An affine form as C.
fn affine_text(a: &Affine, name: impl Fn(Var) -> String) -> String {
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
        s += &name(v);
    }
    match (s.is_empty(), a.offset()) {
        (true, o) => o.to_string(),
        (false, 0) => s,
        (false, o) if o < 0 => format!("{s} - {}", -o),
        (false, o) => format!("{s} + {o}"),
    }
}

/// A name that is no C keyword and no name of the emitter's own.
fn c_name(name: &str) -> String {
    name.replace('\'', "_q") + "_"
}

/// Sizes of all local arrays that stay on the stack, for sketches that must bound them.
pub fn stack_bytes(n: &Nest) -> u64 {
    let r = Registers::find(n);
    let locals = n
        .buffers
        .iter()
        .enumerate()
        .filter(|(i, b)| b.scope == Scope::Local && r.get(Source(*i as u32)).is_none());
    locals.map(|(_, b): (usize, &Buffer)| b.elements() as u64 * 4).sum()
}

/// Lane widths by local buffer, for features: how many registers a nest names.
pub fn register_count(n: &Nest) -> BTreeMap<Source, i64> {
    let r = Registers::find(n);
    let local = |i: usize| Source(i as u32);
    (0..n.buffers.len())
        .filter_map(|i| r.get(local(i)).map(|l| (local(i), n.buffers[i].elements().max(1) / l)))
        .collect()
}
