//! Prints a loop nest as a C function that computes on SIMD vectors: vector loops become vector
//! operations, unrolled loops are written out, and small local buffers become named variables.
//! Nothing is left to the compiler's auto-vectoriser, only register allocation and scheduling.
//!
//! Input: a verified nest; output: C source with the kernel `int SYMBOL(data, outputs, prepared,
//! workspace)` and, where weights are rearranged ahead of time, a function `SYMBOL_prepare`.

use super::Options;
use super::dialect::{Dialect, Used, fill};
use super::printer::{Printer, Value, c_name};
use super::state::Memo;
use crate::nest::{Loop, Mode, Nest, Scope, Start, Stmt, aligned_bytes, has_tiles, shared_chain};
use squall_core::expr::{Affine, Binary, Expr, Source};
use squall_core::workload::Reducer;
use squall_core::{Bytes, DType, KernelSource};
use std::fmt::Write;

/// Marks the name of a vector, before and behind it, where the vector may be kept in a register.
pub(super) const MAY_BE_HELD: char = '\u{1}';

/// The source of a verified nest as a program by vectors, with entry point `symbol`.
pub(super) fn source(n: &Nest, symbol: &str, o: Options, d: &Dialect) -> KernelSource {
    let mut p = Printer::new(n, d, o);
    let export = p.simd.words.export;
    let prepared = n.scope_bytes(|s| *s == Scope::Prepared);
    let workspace = n.scope_bytes(|s| *s == Scope::Workspace) * if o.double { 2 } else { 1 };
    let bytes = |of: &str, bytes: u64| {
        format!("{export}size_t {symbol}_{of}_bytes(void) {{ return {bytes}; }}\n\n")
    };
    let mut functions = String::new();
    if prepared > 0 {
        functions += &bytes("prepared", prepared);
        let _ = writeln!(
            functions,
            "{export}int {symbol}_prepare(const void *const *weights, void *prepared) {{"
        );
        functions += &p.pointers(|s| matches!(s, Scope::Weight(_)), "weights");
        p.simd.preparing = true;
        functions += &p.offsets(Scope::Prepared, "prepared");
        functions += &p.run(&n.prepare);
        p.simd.preparing = false;
        functions += "  return 0;\n}\n\n";
    }
    functions += &bytes("workspace", workspace);
    let _ = writeln!(
        functions,
        "{export}int {symbol}(const void *const *data, void *const *outputs, const void *prepared, \
         void *workspace) {{"
    );
    functions += &p.pointers(|s| matches!(s, Scope::Data(_)), "data");
    functions += &p.pointers(|s| *s == Scope::Output, "outputs");
    functions += &p.offsets(Scope::Prepared, "prepared");
    functions += &p.offsets(Scope::Workspace, "workspace");
    let body = p.run(&n.body);
    let frame = p.simd.tiles.filter(|_| !p.simd.tiles_by_thread).map(|r| p.tile_frame(r));
    let [begin, end] = frame.unwrap_or_default();
    functions += &(begin + &body + &end);
    functions += "  (void)data; (void)outputs; (void)prepared; (void)workspace;\n  return 0;\n}\n";
    let used: Used = p.used.take();
    KernelSource {
        language: d.language,
        source: fill(d.title, &[&n.name]) + &(d.prelude)(&used) + &functions,
        symbol: symbol.into(),
        prepared: Bytes(prepared),
        workspace: Bytes(workspace),
        openmp: used.has("parallel"),
        full_optimisation: o.full_optimisation,
        flags: Vec::new(),
        launches: Vec::new(),
    }
}

impl Printer<'_> {
    /// The type of intermediates.
    pub(super) fn real(&self) -> &'static str {
        if self.o.double { self.d.numbers.f64 } else { self.d.numbers.f32 }
    }

    pub(super) fn vector_type(&self, lanes: i64) -> String {
        self.used.borrow_mut().lanes.insert(lanes);
        fill(self.simd.words.vector, &[&lanes.to_string()])
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
                "  {} {}{} = {from}[{i}];",
                self.pointer_type(Source(k as u32)),
                self.d.restrict,
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
                "  {ty} {}{} = ({ty} *)((const char *){from} + {at});",
                self.d.restrict,
                c_name(&b.name)
            );
            at += aligned_bytes(b) * if ty == self.d.numbers.f64 { 2 } else { 1 };
        }
        out
    }

    fn run(&mut self, stmts: &[Stmt]) -> String {
        self.out.clear();
        self.simd.memo = vec![Memo::new()];
        self.depth = 1;
        self.block(stmts);
        let out = std::mem::take(&mut self.out);
        self.with_held(&out)
    }

    /// A text in which each name between marks is what keeps that vector in a register, where
    /// another sum used it, and nothing where none did.
    fn with_held(&mut self, text: &str) -> String {
        let held = std::mem::take(&mut self.simd.reused);
        let mut written = String::with_capacity(text.len());
        for (i, part) in text.split(MAY_BE_HELD).enumerate() {
            if i % 2 == 0 {
                written += part;
            } else if held.contains(part) {
                self.helper("in_register");
                written += &format!(" {}", fill(self.simd.words.held, &[part]));
            }
        }
        written
    }

    pub(super) fn prefetch(&mut self, buffer: Source, at: &Affine) {
        let words = self.simd.words;
        // Programs of many threads fetch ahead otherwise.
        if !words.prefetch.is_empty() {
            let at = self.fold(at);
            let place = self.place(buffer, &at);
            self.line(&fill(words.prefetch, &[&place]));
        }
    }

    pub(super) fn vector_declare(&mut self, b: Source) {
        let buf = self.n.buffer(b).clone();
        if self.simd.tiles.is_some_and(|r| r.buffer == b) {
            return;
        }
        // Temporaries of an earlier instance of the buffer are no longer valid.
        self.forget(b);
        match self.simd.registers.get(b) {
            Some(lanes) => {
                let ty = self.lane_type(lanes, self.holds_whole(b));
                let names: Vec<String> = (0..buf.elements().max(1) / lanes)
                    .map(|i| format!("{}_{i}", c_name(&buf.name)))
                    .collect();
                for part in names.chunks(12) {
                    self.line(&format!("{ty} {};", part.join(", ")));
                }
            }
            None => {
                let (name, elements) = (c_name(&buf.name), buf.elements().to_string());
                let ty = if self.o.double { self.real() } else { self.element_type(buf.dtype) };
                let text = fill(self.simd.words.array, &[ty, &name, &elements]);
                self.line(&text);
            }
        }
    }

    /// A loop of a program that works on vectors.
    pub(super) fn vector_program_loop(&mut self, l: &Loop) {
        if l.extent == 1 && l.mode != Mode::Vector {
            self.known.insert(l.var, 0);
            self.bind_known_start(l.start, 0);
            self.open("{");
            self.block(&l.body);
            self.close();
            self.known.remove(&l.var);
            return;
        }
        match l.mode {
            Mode::Amx if self.tile_loop(l).is_some() => {}
            Mode::Unroll if self.across_lanes(l).is_some() => {}
            Mode::Unroll if self.store_interleaved(l).is_some() => {}
            Mode::Unroll | Mode::Step => {
                if l.extent == 4 {
                    self.simd.fours.push(l.var);
                }
                // A local declared inside needs its own scope each time; plain statements do not.
                let scoped = l.body.iter().any(|s| matches!(s, Stmt::Local(_)));
                for i in 0..l.extent {
                    self.known.insert(l.var, i);
                    self.bind_known_start(l.start, i);
                    if scoped {
                        self.open("{");
                    }
                    let before = self.simd.memo.last().cloned().unwrap_or_default();
                    self.block(&l.body);
                    if scoped {
                        self.close();
                    }
                    if l.mode == Mode::Step {
                        self.end_step(&before);
                    }
                }
                self.known.remove(&l.var);
                if l.extent == 4 {
                    self.simd.fours.pop();
                }
            }
            Mode::Vector => {
                self.simd.vector = Some((l.var, l.extent));
                if l.extent == 1 {
                    self.known.insert(l.var, 0);
                    self.simd.vector = None;
                }
                self.block(&l.body);
                self.known.remove(&l.var);
                self.simd.vector = None;
            }
            Mode::Parallel => self.parallel(l),
            // The modes of GPU programs never come here: another dialect prints them.
            _ => self.nested_loops(&[l], ""),
        }
    }

    /// Ends a step of an unrolled loop: elements that it loaded are loaded anew in the next step,
    /// which the compiler must not undo. Pointers stay valid.
    fn end_step(&mut self, before: &Memo) {
        if let Some(m) = self.simd.memo.last_mut() {
            m.retain(|k, _| k.1.starts_with("pointer ") || before.contains_key(k));
        }
        self.line(self.simd.words.step);
    }

    /// A loop, and those directly nested in it, whose iterations threads share.
    fn parallel(&mut self, l: &Loop) {
        let chain = shared_chain(l);
        let words = &self.simd.words;
        let together = match (self.o.threads, chain.len()) {
            (0, _) | (_, 1) => String::new(),
            (_, k) => fill(words.collapse, &[&k.to_string()]),
        };
        let head = match self.o.threads {
            1 => String::new(),
            0 => words.parallel.into(),
            t => format!("{}{together}{}", words.parallel, fill(words.threads, &[&t.to_string()])),
        };
        if !head.is_empty() {
            self.helper("parallel");
        }
        self.nested_loops(&chain, &head);
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
            self.simd.registers.get(*source).filter(|lanes| {
                lanes.count_ones() == 1 && *lanes > 1 && !self.holds_whole(*source)
            })?;
        let off = self.offset(*source, from);
        let whole =
            off.offset() % lanes == 0 && l.extent % lanes == 0 && off.terms() == [(l.var, 1)];
        if !whole
            || index.iter().any(|a| a.uses(l.var))
            || self.simd.vector.is_some()
            || l.start.is_some()
        {
            return None;
        }
        let name = c_name(&self.n.buffer(*source).name);
        let mut parts: Vec<String> =
            (0..l.extent / lanes).map(|i| format!("{name}_{}", off.offset() / lanes + i)).collect();
        let (word, sign) = match (op, self.n.buffer(*buffer).lenient) {
            (Reducer::Sum, _) => ("across_sum", "+"),
            (Reducer::Prod, _) => ("across_prod", "*"),
            (Reducer::Max, true) => ("across_max", "max"),
            (Reducer::Min, true) => ("across_min", "min"),
            (Reducer::Max, false) => ("across_max_nan", "max_nan"),
            (Reducer::Min, false) => ("across_min_nan", "min_nan"),
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
                    [a, b] => self.call(sign, lanes, &[a, b]),
                    rest => rest.concat(),
                });
            }
            parts = next;
        }
        if sign.len() > 1 {
            self.function(sign, lanes);
        }
        let all = format!("{}({})", self.function(word, lanes), parts.concat());
        let off = self.offset(*buffer, index);
        let place = match self.simd.registers.get(*buffer) {
            Some(1) => format!("{}_{}", c_name(&self.n.buffer(*buffer).name), off.offset()),
            Some(_) => return None,
            None => self.place(*buffer, &off),
        };
        let text = self.combined(*buffer, &place, Some(*op), &all, 1);
        self.line(&text);
        self.forget(*buffer);
        Some(())
    }

    /// Two vectors whose lanes lie in turn in memory, as a loop of two steps stores them: the lanes
    /// are brought in order in registers, and two whole vectors are stored.
    fn store_interleaved(&mut self, l: &Loop) -> Option<()> {
        let [Stmt::Loop(lanes)] = &l.body[..] else { return None };
        let [Stmt::Store { buffer, index, value }] = &lanes.body[..] else { return None };
        let off = self.offset(*buffer, index);
        let width = lanes.extent;
        let is_interleaved = l.extent == 2
            && l.start.is_none()
            && (lanes.mode, lanes.start) == (Mode::Vector, None)
            && width > 1
            && (off.coefficient(l.var), off.coefficient(lanes.var)) == (1, 2);
        let plain = self.simd.registers.get(*buffer).is_none()
            && self.n.buffer(*buffer).dtype == DType::F32
            && self.writer(*buffer).is_none()
            && value.loads().iter().all(|(b, _)| b != buffer);
        if !is_interleaved || !plain {
            return None;
        }
        let ty = self.lane_type(width, false);
        self.simd.vector = Some((lanes.var, width));
        let parts = [0, 1].map(|i| {
            self.known.insert(l.var, i);
            let v = self.value(value);
            let (text, t) = (self.widen(v, width), self.temporary());
            self.line(&format!("{ty} {t} = {text};"));
            t
        });
        self.known.insert(l.var, 0);
        self.simd.vector = None;
        let mut base = self.offset(*buffer, index);
        base.add_term(lanes.var, -2);
        for (name, at) in [("interleave_low", 0), ("interleave_high", width)] {
            let place = self.place(*buffer, &base.plus(at));
            let place = fill(self.simd.words.store, &[&ty, &place]);
            let both = format!("{}({}, {})", self.function(name, width), parts[0], parts[1]);
            self.line(&format!("{place} = {both};"));
        }
        self.known.remove(&l.var);
        self.forget(*buffer);
        Some(())
    }

    /// Nested counted loops; tile starts are computed inside the innermost.
    fn nested_loops(&mut self, chain: &[&Loop], pragma: &str) {
        if !pragma.is_empty() {
            let _ = writeln!(self.out, "{pragma}");
        }
        let is_shared = !pragma.is_empty();
        for l in chain {
            match is_shared && l.overlaps() {
                true => self.count_shares(l),
                false => self.count(l),
            }
        }
        for l in chain.iter().filter(|l| is_shared && l.overlaps()) {
            self.count_share(l);
        }
        for l in chain {
            if let Some(s) = l.start {
                let (v, base) = (self.var(l.var), self.var(s.var));
                let least = self.tile_start(s, &v);
                self.line(&format!("{} {base} = {least};", self.d.index.value));
            }
        }
        let body = &chain[chain.len() - 1].body;
        let frame = self.simd.tiles.filter(|_| !pragma.is_empty() && has_tiles(body));
        self.simd.loaded.clear();
        self.simd.tiles_by_thread |= frame.is_some();
        let [begin, end] = frame.map(|r| self.tile_frame(r)).unwrap_or_default();
        self.out += &begin;
        self.block(body);
        self.out += &end;
        self.simd.loaded.clear();
        let overlapping = chain.iter().filter(|l| is_shared && l.overlaps());
        chain.iter().chain(overlapping).for_each(|_| self.close());
    }

    /// The head of a loop over what threads share of overlapping tiles.
    fn count_shares(&mut self, l: &Loop) {
        let share = format!("{}share", self.var(l.var));
        let counter = self.d.index.counter;
        let shares = l.shares();
        self.open(&format!("for ({counter} {share} = 0; {share} < {shares}; {share}++) {{"));
    }

    /// The head of a loop over the tiles of one share: one, of the last share two.
    fn count_share(&mut self, l: &Loop) {
        let v = self.var(l.var);
        let (share, last) = (format!("{v}share"), l.shares() - 1);
        let counter = self.d.index.counter;
        let end = format!("{share} + 1 + ({share} == {last})");
        self.open(&format!("for ({counter} {v} = {share}; {v} < {end}; {v}++) {{"));
    }

    fn bind_known_start(&mut self, s: Option<Start>, i: i64) {
        if let Some(s) = s {
            self.known.insert(s.var, (s.step * i).min(s.cap));
        }
    }

    pub(super) fn forget(&mut self, b: Source) {
        for m in &mut self.simd.memo {
            // Pointers stay good: they hold places, not values.
            m.retain(|k, _| k.0 != b || k.1.starts_with("pointer "));
        }
    }

    pub(super) fn vector_assign(
        &mut self,
        b: Source,
        index: &[Affine],
        op: Option<Reducer>,
        value: &Expr,
    ) {
        let off = self.offset(b, index);
        let name = c_name(&self.n.buffer(b).name);
        let whole = self.holds_whole(b);
        self.simd.loaded.clear();
        if op.is_none() && self.store_rounded(b, &off, value).is_some() {
            return self.forget(b);
        }
        // Products of elements of several numbers take the sum in.
        let product = dot_product(op, value, whole);
        self.simd.adding = op.is_some() && self.simd.registers.get(b).is_some();
        let v = match product {
            Some(_) => Value::scalar(String::new()),
            None if op.is_none() && self.n.buffer(b).dtype.is_integer() && !whole => {
                let v = self.bounded(value);
                self.as_float(v)
            }
            None => self.value_as(value, whole),
        };
        self.simd.adding = false;
        let Some((lane, lanes)) = self.simd.vector else {
            let place = match self.simd.registers.get(b) {
                Some(1) => format!("{name}_{}", off.offset()),
                Some(l) => format!("{name}_{}[{}]", off.offset() / l, off.offset() % l),
                None => self.place(b, &off),
            };
            let text = match product {
                Some((d, x, y)) => self.add_dot(&place, d, x, y, 1),
                None => self.store_element(b, &place, op, v),
            };
            self.line(&text);
            self.forget(b);
            return;
        };
        let stride = off.coefficient(lane);
        let mut base = off.clone();
        base.add_term(lane, -stride);
        if let Some(l) = self.simd.registers.get(b)
            && l == lanes
        {
            let place = format!("{name}_{}", base.offset() / lanes);
            let text = match product {
                Some((d, x, y)) => self.add_dot(&place, d, x, y, lanes),
                None => self.combine(b, &place, op, v, lanes),
            };
            self.line(&text);
            return;
        }
        let v = if product.is_some() { self.value_as(value, whole) } else { v };
        let ty = self.lane_type(lanes, whole);
        if stride == 1 && self.writer(b).is_none() {
            let place = fill(self.simd.words.store, &[&ty, &self.place(b, &base)]);
            let text = self.combine(b, &place, op, v, lanes);
            self.line(&text);
        } else if stride == 1 {
            let place = self.place(b, &base);
            let text = self.store_vector(b, &place, op, v, lanes);
            self.line(&text);
        } else {
            let v = self.widen(v, lanes);
            let t = self.temporary();
            self.line(&format!("{ty} {t} = {v};"));
            for i in 0..lanes {
                let place = self.place(b, &base.plus(stride * i));
                let lane = Value { text: format!("{t}[{i}]"), whole, ..Value::default() };
                let text = self.store_element(b, &place, op, lane);
                self.line(&text);
            }
        }
        self.forget(b);
    }

    /// An element of a buffer in memory, through a pointer that all elements at a constant
    /// distance share: long index expressions repeated in unrolled code cost compilers most of
    /// their time.
    pub(super) fn place(&mut self, b: Source, off: &Affine) -> String {
        let name = c_name(&self.n.buffer(b).name);
        if off.terms().is_empty() {
            return format!("{name}[{}]", off.offset());
        }
        let text = self.affine(&off.plus(-off.offset()));
        let key = (b, format!("pointer {text}"));
        let known = self.simd.memo.iter().rev().find_map(|m| m.get(&key)).cloned();
        let pointer = known.unwrap_or_else(|| {
            let t = self.temporary();
            let ty = self.pointer_type(b);
            self.line(&format!("{ty} *{t} = {name} + ({text});"));
            if let Some(m) = self.simd.memo.last_mut() {
                m.insert(key, t.clone());
            }
            t
        });
        format!("{pointer}[{}]", off.offset())
    }

    /// The C type behind a buffer's pointer.
    fn pointer_type(&self, b: Source) -> String {
        let buf = self.n.buffer(b);
        let fixed = matches!(buf.scope, Scope::Data(_) | Scope::Weight(_))
            || buf.scope == Scope::Prepared && !self.simd.preparing;
        if self.o.double && matches!(buf.scope, Scope::Workspace | Scope::Local) {
            return self.d.numbers.f64.into();
        }
        format!("{}{}", if fixed { "const " } else { "" }, self.element_type(buf.dtype))
    }
}

/// The factors of elements of several numbers, whose products an instruction adds up.
fn dot_product(op: Option<Reducer>, value: &Expr, whole: bool) -> Option<(Binary, &Expr, &Expr)> {
    match (op, value) {
        (Some(Reducer::Sum), Expr::Binary(d @ (Binary::Dot | Binary::DotWords), x, y)) if whole => {
            Some((*d, x, y))
        }
        (Some(Reducer::Sum), Expr::Binary(d @ Binary::DotPair, x, y)) => Some((*d, x, y)),
        _ => None,
    }
}
