//! The printer of nests: statements, expressions and indices in the words of a dialect, and notes
//! of the helper functions that they used. This file has the parts that all languages share;
//! printing for SIMD vectors is in `vectors.rs` and its siblings, printing for GPU threads in
//! `threads.rs` and its siblings. Input: a loop nest and a dialect; output: text in
//! [`Printer::out`].

use super::Options;
use super::dialect::{Dialect, Execution, Used, fill};
use super::registers::Registers;
use super::state::{Memo, Simd, Simt, Version};
use crate::nest::{Loop, Nest, Scope, Start, Stmt, decided, largest_values, tile_registers};
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Unary, Var};
use squall_core::workload::{Reducer, flatten};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;

/// A printed value of an expression: its text and kind. A scalar is the same in all lanes.
#[derive(Clone, Debug, Default)]
pub(super) struct Value {
    pub text: String,
    pub vector: bool,
    /// Whether lanes are whole numbers of 32 bits (or four bytes) instead of floats.
    pub whole: bool,
    /// The two floats whose product the value is: an addition of the value becomes one fused
    /// multiply-add.
    pub factors: Option<Box<[Value; 2]>>,
}

impl Value {
    /// A value of one number.
    pub fn scalar(text: String) -> Value {
        Value { text, vector: false, whole: false, factors: None }
    }

    /// A vector of floats.
    pub fn vector(text: String) -> Value {
        Value { text, vector: true, whole: false, factors: None }
    }

    /// The product of two floats.
    fn product(a: Value, b: Value) -> Value {
        let text = format!("({} * {})", a.text, b.text);
        let vector = a.vector || b.vector;
        Value { text, vector, whole: false, factors: Some(Box::new([a, b])) }
    }
}

/// The printer of one nest's functions, with its text so far.
pub(super) struct Printer<'a> {
    pub n: &'a Nest,
    pub d: &'a Dialect,
    pub o: Options,
    pub out: String,
    pub depth: usize,
    /// Variables with a known value: of loops that are written out and of loops that run once.
    pub known: HashMap<Var, i64>,
    pub temporaries: usize,
    pub used: RefCell<Used>,
    pub simd: Simd,
    pub simt: Simt,
}

impl<'a> Printer<'a> {
    pub fn new(n: &'a Nest, d: &'a Dialect, o: Options) -> Printer<'a> {
        let (mut simd, mut simt) = (Simd::default(), Simt::default());
        match d.execution {
            Execution::Vectors(words) => {
                simd.words = words;
                simd.registers = Registers::find(n);
                simd.bounds = largest_values(&n.prepare);
                simd.bounds.extend(largest_values(&n.body));
                simd.tiles = tile_registers(n).filter(|_| !o.double);
            }
            Execution::Threads(words) => simt.words = words,
        }
        simd.memo.push(Memo::new());
        Printer {
            n,
            d,
            o,
            out: String::new(),
            depth: 1,
            known: HashMap::new(),
            temporaries: 0,
            used: RefCell::default(),
            simd,
            simt,
        }
    }

    /// Whether the program is one of many threads.
    fn is_threads(&self) -> bool {
        matches!(self.d.execution, Execution::Threads(_))
    }

    pub fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:1$}{text}", "", self.depth * 2);
    }

    pub fn open(&mut self, head: &str) {
        self.line(head);
        self.depth += 1;
        self.simd.memo.push(Memo::new());
    }

    pub fn close(&mut self) {
        self.simd.memo.pop();
        self.depth -= 1;
        self.line("}");
    }

    pub fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("t{}", self.temporaries)
    }

    /// Statements in a block of their own: it gives back the shared memory that it declares.
    pub fn block(&mut self, stmts: &[Stmt]) {
        let top = self.simt.top;
        if self.is_threads() {
            self.thread_statements(stmts);
        } else {
            for (i, s) in stmts.iter().enumerate() {
                if *s == Stmt::Version {
                    self.versions(&stmts[i + 1..]);
                    break;
                }
                self.statement(s);
            }
        }
        self.simt.top = top;
    }

    pub fn statement(&mut self, s: &Stmt) {
        match s {
            Stmt::Loop(l) if self.is_threads() => self.thread_loop(l),
            Stmt::Loop(l) => self.vector_program_loop(l),
            Stmt::Local(b) if self.is_threads() => self.thread_declare(*b),
            Stmt::Local(b) => self.vector_declare(*b),
            Stmt::Store { buffer, index, value } => self.assign(*buffer, index, None, value),
            Stmt::Update { op, buffer, index, value } => {
                self.assign(*buffer, index, Some(*op), value)
            }
            Stmt::If { conds, body } => match self.outcome(conds) {
                Some(true) => self.block(body),
                Some(false) => {}
                None => {
                    let test = self.conds(conds);
                    self.open(&format!("if ({test}) {{"));
                    self.block(body);
                    self.close();
                }
            },
            Stmt::Prefetch { buffer, at } => self.prefetch(*buffer, at),
            // Programs of many threads have no versions, and [`Printer::block`] makes them.
            Stmt::Version => {}
            // Programs of many threads only.
            Stmt::Barrier(reach) => self.barrier(*reach),
            Stmt::Let { var, value, divisor, modulo } => self.bind(*var, value, *divisor, *modulo),
            Stmt::Warp(w) => self.warp(w),
            Stmt::CommitCopies => self.commit(),
            Stmt::AwaitCopies(n) => self.await_copies(*n),
            Stmt::AwaitProducts(n) => self.await_products(*n),
        }
    }

    fn assign(&mut self, b: Source, index: &[Affine], op: Option<Reducer>, value: &Expr) {
        if self.is_threads() {
            self.thread_assign(b, index, op, value);
        } else {
            self.vector_assign(b, index, op, value);
        }
    }

    /// A counted loop's head.
    pub fn count(&mut self, l: &Loop) {
        let v = self.var(l.var);
        let counter = self.d.index.counter;
        self.open(&format!("for ({counter} {v} = 0; {v} < {}; {v}++) {{", l.extent));
    }

    /// The least of a tile's start and the last one.
    pub fn tile_start(&self, s: Start, v: &str) -> String {
        fill(self.d.index.least, &[&format!("{}*{v}", s.step), &s.cap.to_string()])
    }

    pub fn var(&self, v: Var) -> String {
        let alias = self.simt.alias.get(&v).cloned();
        alias.unwrap_or_else(|| c_name(&self.n.vars[v.0 as usize]))
    }

    /// An affine form with known variables folded in.
    pub fn fold(&self, a: &Affine) -> Affine {
        a.map_vars(|v| self.known.get(&v).map_or_else(|| Affine::var(v), |&k| Affine::constant(k)))
    }

    pub fn affine(&self, a: &Affine) -> String {
        affine_text(a, |v| self.var(v))
    }

    /// The element offset of an access with known variables folded in; of a cluster's buffer,
    /// inside the block's share.
    pub fn offset(&self, b: Source, index: &[Affine]) -> Affine {
        let buf = self.n.buffer(b);
        let skip = usize::from(buf.scope == Scope::Cluster);
        self.fold(&flatten(&index[skip..], &buf.shape[skip..]))
    }

    /// A test of all conditions. One comparison without sign tests both bounds.
    pub fn conds(&self, conds: &[Cond]) -> String {
        let words = &self.d.index;
        let one = |c: &Cond| {
            let mut i = self.fold(&c.index);
            if let Some((v, l, _)) = self.simt.lane {
                i = i.substitute(v, &Affine::constant(l));
            }
            let (i, extent) = (self.affine(&i.plus(-c.low)), (c.high - c.low).max(0));
            format!("({})({i}) < {extent}{}", words.unsigned, words.suffix)
        };
        conds.iter().map(one).collect::<Vec<_>>().join(" && ")
    }

    /// Whether all conditions hold, where loops that are written out decide that.
    fn outcome(&self, conds: &[Cond]) -> Option<bool> {
        if self.is_threads() {
            return None;
        }
        let one = |c: &Cond| decided(&Cond { index: self.fold(&c.index), ..c.clone() });
        let all: Vec<Option<bool>> = conds.iter().map(one).collect();
        match all.contains(&Some(false)) {
            true => Some(false),
            false => all.iter().all(Option::is_some).then_some(true),
        }
    }

    /// Notes that a helper is used, which the prelude then defines.
    pub fn helper(&self, name: &'static str) {
        self.used.borrow_mut().helpers.insert(name);
    }

    /// The type of a format's elements.
    pub fn element_type(&self, d: DType) -> &'static str {
        if d.is_half() {
            self.helper("formats");
        }
        match d {
            DType::F16 => self.d.numbers.f16,
            DType::Bf16 => self.d.numbers.bf16,
            DType::U8 => "unsigned char",
            DType::I8 => "signed char",
            DType::I32 | DType::U8x4 | DType::I8x4 | DType::Bf16x2 | DType::I16x2 => "int",
            _ => self.d.numbers.f32,
        }
    }

    /// The form of a function for so many lanes.
    fn form(&self, name: &'static str, lanes: i64) -> String {
        self.helper(name);
        match (lanes, self.o.double) {
            (1, false) => "f".into(),
            (1, true) => "d".into(),
            _ => {
                self.used.borrow_mut().lanes.insert(lanes);
                format!("v{lanes}")
            }
        }
    }

    /// The name of a helper of ours for a width.
    pub fn function(&self, name: &'static str, lanes: i64) -> String {
        format!("{name}_{}", self.form(name, lanes))
    }

    /// A call of a function of numbers.
    pub fn call(&self, name: &'static str, lanes: i64, arguments: &[&str]) -> String {
        let form = self.form(name, lanes);
        let listed = self.d.functions.iter().find(|f| f.0 == name);
        let spelling = listed.map_or("", |f| f.1).replace("$f", &form);
        fill(&spelling, arguments)
    }

    /// The statement that stores `v` at `place`, or combines it in.
    /// Of a buffer `b` maxima may lose a NaN where they are lenient.
    pub fn combined(
        &self,
        b: Source,
        place: &str,
        op: Option<Reducer>,
        v: &str,
        lanes: i64,
    ) -> String {
        match op {
            None => format!("{place} = {v};"),
            Some(Reducer::Sum) => fill(self.d.accumulate, &[place, v]),
            Some(Reducer::Prod) => format!("{place} *= {v};"),
            Some(r @ (Reducer::Max | Reducer::Min)) => {
                let lenient = self.n.buffer(b).lenient;
                // The maximum so far is the second operand, so that the next step waits for only
                // one instruction.
                let [x, y] = if lenient { [place, v] } else { [v, place] };
                format!("{place} = {};", self.extreme(r == Reducer::Max, lenient, lanes, [x, y]))
            }
        }
    }

    /// The larger or smaller of two numbers. `max` and `min` give the second where one is NaN on a
    /// CPU, and may do as they like on a GPU, where an instruction that keeps NaN costs the same.
    pub(super) fn extreme(&self, max: bool, lenient: bool, lanes: i64, args: [&str; 2]) -> String {
        let name = match (max, lenient && !self.is_threads()) {
            (true, true) => "max",
            (false, true) => "min",
            (true, false) => "max_nan",
            (false, false) => "min_nan",
        };
        self.call(name, lanes, &args)
    }

    /// Whether an expression is never NaN.
    fn is_number(&self, e: &Expr) -> bool {
        match e {
            Expr::Const(c) => !c.is_nan(),
            Expr::Load { source, .. } => {
                let dtype = self.n.buffer(*source).dtype;
                dtype.is_integer() || dtype.is_packed()
            }
            Expr::Unary(op, a) => {
                op.makes_words() || matches!(op, Unary::Neg | Unary::Abs) && self.is_number(a)
            }
            Expr::Binary(Binary::Dot | Binary::DotWords, ..) => true,
            Expr::Binary(Binary::Max | Binary::Min, a, b) => self.is_number(a) && self.is_number(b),
            _ => false,
        }
    }

    /// The larger or smaller of two values, NaN where one is. Where the first is a number, the one
    /// instruction that gives the second keeps a NaN of that: it costs nothing.
    fn larger(&mut self, op: Binary, a: &Expr, b: &Expr) -> Value {
        let numbers = [a, b].map(|e| self.is_number(e));
        let (x, y) = (self.value(a), self.value(b));
        match numbers {
            [true, _] => self.extreme_of(op, true, x, y),
            [_, true] => self.extreme_of(op, true, y, x),
            _ => self.extreme_of(op, false, x, y),
        }
    }

    fn extreme_of(&self, op: Binary, lenient: bool, a: Value, b: Value) -> Value {
        let vector = a.vector || b.vector;
        let lanes = self.lanes(vector);
        let [a, b] = [a, b].map(|x| {
            let x = self.as_float(x);
            if vector { self.widen(x, lanes) } else { x.text }
        });
        let text = self.extreme(op == Binary::Max, lenient, lanes, [&a, &b]);
        Value { text, vector, ..Value::default() }
    }

    /// A value that is stored as an integer. Integer formats have no NaN: it becomes the lower
    /// bound, as where onnxruntime quantises.
    pub(super) fn bounded(&mut self, e: &Expr) -> Value {
        match e {
            Expr::Binary(op @ (Binary::Max | Binary::Min), a, b) if self.is_number(b) => {
                let (a, b) = (self.bounded(a), self.value(b));
                let (first, second) = if *op == Binary::Max { (a, b) } else { (b, a) };
                self.extreme_of(*op, true, first, second)
            }
            e => self.value(e),
        }
    }

    pub fn constant(&self, c: f64) -> String {
        let numbers = &self.d.numbers;
        if c.is_nan() {
            return numbers.nan.into();
        }
        if c.is_infinite() {
            return if c < 0.0 { numbers.minus_infinity } else { numbers.infinity }.into();
        }
        let suffix = if self.o.double { "" } else { "f" };
        let text = if self.o.double { format!("{c:?}") } else { format!("{:?}", c as f32) };
        let text = if text.contains(['.', 'e']) { text } else { format!("{text}.0") };
        if c < 0.0 { format!("({text}{suffix})") } else { format!("{text}{suffix}") }
    }

    /// The text of a value; statements that it needs are printed before the current one.
    pub fn value(&mut self, e: &Expr) -> Value {
        match e {
            Expr::Const(c) => Value::scalar(self.constant(*c)),
            Expr::Load { source, index } if self.is_threads() => {
                Value::scalar(self.thread_load(*source, index))
            }
            Expr::Load { source, index } => self.vector_load(*source, index),
            Expr::Cast(t, a) => {
                let v = self.value(a);
                if *t == DType::F32 { self.as_float(v) } else { v }
            }
            Expr::Unary(op, a) if op.makes_words() => self.words(*op, a),
            Expr::Unary(Unary::Exp, a) if !self.simt.packed.is_empty() => self.power(a),
            Expr::Unary(op, a) => {
                let a = self.value(a);
                let a = self.as_float(a);
                self.unary(*op, a)
            }
            Expr::Binary(op @ (Binary::Max | Binary::Min), a, b) => self.larger(*op, a, b),
            Expr::Binary(op, a, b) => {
                let a = self.value(a);
                let b = self.value(b);
                self.binary(*op, a, b)
            }
            Expr::Select { conds, then, other } if self.is_threads() => {
                let test = self.conds(conds);
                // A load under a condition may not be moved ahead of the condition.
                let guarded = std::mem::replace(&mut self.simt.guarded, true);
                let (a, b) = (self.value(then).text, self.value(other).text);
                self.simt.guarded = guarded;
                Value::scalar(format!("({test} ? {a} : {b})"))
            }
            Expr::Select { then, .. } if self.simd.version == Some(Version::Inside) => {
                self.value(then)
            }
            Expr::Select { conds, then, other } => self.vector_select(e, conds, then, other),
        }
    }

    /// Lanes of a value.
    fn lanes(&self, vector: bool) -> i64 {
        if vector { self.simd.vector.map_or(1, |v| v.1) } else { 1 }
    }

    fn unary(&self, op: Unary, a: Value) -> Value {
        if op == Unary::Neg {
            return Value { text: format!("(-{})", a.text), factors: None, ..a };
        }
        let text = self.call(op.name(), self.lanes(a.vector), &[&a.text]);
        Value { text, factors: None, ..a }
    }

    pub fn binary(&self, op: Binary, a: Value, b: Value) -> Value {
        let vector = a.vector || b.vector;
        match op {
            Binary::Dot | Binary::DotPair | Binary::DotWords => return self.dot(op, None, a, b),
            Binary::Pair => return self.pair(a, b),
            Binary::Max | Binary::Min => return self.extreme_of(op, a.whole || b.whole, a, b),
            _ => {}
        }
        let [a, b] = [a, b].map(|x| self.as_float(x));
        let [a, b] = match op {
            Binary::Add | Binary::Sub => match self.multiply_add(op == Binary::Sub, a, b) {
                Ok(sum) => return sum,
                Err(operands) => operands,
            },
            _ => [a, b],
        };
        let sign = match op {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => return Value::product(a, b),
            Binary::Div => "/",
            _ => {
                let lanes = self.lanes(vector);
                let [a, b] = [a, b].map(|x| if vector { self.widen(x, lanes) } else { x.text });
                let text = self.call("pow", lanes, &[&a, &b]);
                return Value { text, vector, ..Value::default() };
            }
        };
        if op == Binary::Div && a.vector && !b.vector {
            // Lanes over one divisor: vector divisions cost ten multiplications, and compilers
            // may not replace them. One rounding more; divisors below 3e-39 overflow.
            let one = self.constant(1.0);
            let factor = Value::scalar(format!("({one} / {})", b.text));
            return Value::product(a, factor);
        }
        let text = format!("({} {sign} {})", a.text, b.text);
        Value { text, vector, ..Value::default() }
    }

    /// A sum or difference of floats one of which is a product, rounded once and so in every place
    /// alike; the operands again where the language leaves that to its compiler or neither is one.
    /// Left to them, compilers contract some sums of a tile and not others.
    pub(super) fn multiply_add(
        &self,
        minus: bool,
        a: Value,
        b: Value,
    ) -> Result<Value, [Value; 2]> {
        let has_word = self.d.functions.iter().any(|f| f.0 == "fma");
        if self.o.double || !has_word {
            return Err([a, b]);
        }
        let vector = a.vector || b.vector;
        let lanes = self.lanes(vector);
        let (name, factors, addend) = match (a, b) {
            (Value { factors: Some(f), .. }, b) => (if minus { "fms" } else { "fma" }, f, b),
            (a, Value { factors: Some(f), .. }) => (if minus { "fnma" } else { "fma" }, f, a),
            operands => return Err(operands.into()),
        };
        let [x, y] = *factors;
        let [x, y, addend] = [x, y, addend].map(|v| match vector {
            true => self.widen(v, lanes),
            false => v.text,
        });
        let text = self.call(name, lanes, &[&x, &y, &addend]);
        Ok(Value { text, vector, ..Value::default() })
    }

    /// The value as a vector of `lanes`.
    pub fn widen(&self, v: Value, lanes: i64) -> String {
        if v.vector {
            return v.text;
        }
        let name = if v.whole { "all_whole" } else { "all" };
        format!("{}({})", self.function(name, lanes), v.text)
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

/// A name that is no keyword of C and no name of the printer's own.
pub(super) fn c_name(name: &str) -> String {
    name.replace('\'', "_q") + "_"
}
