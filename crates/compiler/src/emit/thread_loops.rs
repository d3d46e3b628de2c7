//! Loops of GPU programs: how threads share the iterations of a loop (mode `share`), how loops are
//! unrolled, and the loop over steps of the reduction in kernels for tensor cores. Methods of the
//! printer, called from `threads.rs`.
//!
//! A warp of such a kernel that computes addresses does not multiply meanwhile, and no other warp
//! is there to take its place. So the steps keep values across iterations: each thread has a
//! pointer for each of its copies, advanced once a step, and numbers of pipeline stages are counted
//! instead of computed by division.

use super::dialect::fill;
use super::printer::Printer;
use super::state::{Parts, ROUND, Steps, THREAD};
use crate::gcd;
use crate::nest::{self, Loop, Mode, Scope, Stmt, Warp};
use squall_core::expr::{Affine, Source, Var};
use std::collections::HashMap;

/// A round of a loop that threads share out: each has one of its numbers.
struct Round<'t> {
    /// The text of the round's number.
    i: &'t str,
    /// That of the thread's number in all rounds.
    f: &'t str,
    /// That of the thread's own.
    thread: &'t str,
    threads: i64,
}

impl Round<'_> {
    /// What a thread's number in the round is divided by `inner`, and the remainder of that by
    /// `extent`: what depends on the round and what depends on the thread, to be added, if that can
    /// be told apart. What depends on the round alone is a constant where rounds are written out,
    /// and what depends on the thread alone is computed once: the compiler does not know how many
    /// threads there are, and would divide anew in every round.
    fn dealt(&self, inner: i64, extent: Option<i64>) -> Option<Parts> {
        let Round { i, thread, threads, .. } = *self;
        if inner % threads == 0 {
            let rounds = format!("{i} / {}", inner / threads);
            let round = extent.map_or(rounds.clone(), |e| format!("{rounds} % {e}"));
            return Some([round, String::new()]);
        }
        let thread = if inner > 1 { format!("{thread} / {inner}u") } else { thread.into() };
        let each = threads / inner;
        match extent {
            _ if threads % inner != 0 => None,
            None => Some([format!("{i}*{each}"), format!("(int)({thread})")]),
            Some(e) if each % e == 0 => Some([String::new(), format!("(int)({thread} % {e}u)")]),
            Some(e) if e % each == 0 => {
                Some([format!("{i} % {}*{each}", e / each), format!("(int)({thread})")])
            }
            Some(_) => None,
        }
    }

    /// The two parts together, or the number's digit where they cannot be told apart.
    fn digit(&self, parts: Option<&Parts>, inner: i64, extent: Option<i64>) -> String {
        let Round { i, f, threads, .. } = *self;
        let divided = |x: &str| if inner > 1 { format!("{x} / {inner}u") } else { x.to_string() };
        match (parts, extent) {
            (Some([round, thread]), _) if thread.is_empty() => round.clone(),
            (Some([round, thread]), _) if round.is_empty() => thread.clone(),
            (Some([round, thread]), _) => format!("{round} + {thread}"),
            (None, Some(e)) if threads % inner == 0 => {
                format!("(int)(({i}*{}u + {}) % {e}u)", threads / inner, divided(self.thread))
            }
            (None, None) => format!("(int)({})", divided(f)),
            (None, Some(e)) => format!("(int)({} % {e}u)", divided(f)),
        }
    }
}

/// Loops over rows and columns of products of matrices, with nothing else in them.
fn products(l: &Loop) -> Option<(&Loop, &Warp)> {
    let [Stmt::Loop(inner)] = &l.body[..] else { return None };
    let [Stmt::Warp(product @ Warp::Multiply { .. })] = &inner.body[..] else { return None };
    let written_out = |l: &Loop| l.mode == Mode::Unroll && l.extent > 1 && l.start.is_none();
    (written_out(l) && written_out(inner)).then_some((inner, product))
}

impl Printer<'_> {
    /// Declares the variables of loops that run over one number, the first slowest.
    pub(super) fn number(&mut self, number: &str, loops: &[&Loop]) {
        let mut text = |_: Var, inner: i64, extent: Option<i64>| {
            let divided = if inner > 1 {
                format!("(unsigned){number} / {inner}u")
            } else {
                format!("(unsigned){number}")
            };
            // Without a sign, division is a multiplication and a shift.
            extent.map_or(format!("(int)({divided})"), |e| format!("(int)({divided} % {e}u)"))
        };
        self.digits(loops, &mut text);
    }

    /// Declares the variables of loops that run over one number, given how to write a number
    /// divided by what is within a loop, and the remainder of that by the loop's extent where
    /// something is outside of it.
    fn digits(&mut self, loops: &[&Loop], text: &mut dyn FnMut(Var, i64, Option<i64>) -> String) {
        let mut inner = 1;
        let total: i64 = loops.iter().map(|l| l.extent).product();
        let mut lines = Vec::new();
        for l in loops.iter().rev() {
            if l.extent == 1 {
                self.known.insert(l.var, 0);
                continue;
            }
            let text = text(l.var, inner, (inner * l.extent < total).then_some(l.extent));
            inner *= l.extent;
            self.simt.ranges.insert(l.var, l.extent);
            lines.push(format!("{} {} = {text};", self.d.index.value, self.var(l.var)));
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
        self.simt.multiple.insert(s.var, if whole { s.step } else { gcd(s.step, s.cap) });
        let (v, base) = (self.var(l.var), self.var(s.var));
        let text = if whole { format!("{}*{v}", s.step) } else { self.tile_start(s, &v) };
        self.line(&format!("{} {base} = {text};", self.d.index.value));
    }

    pub(super) fn thread_loop(&mut self, l: &Loop) {
        match l.mode {
            Mode::Share => return self.share(l),
            Mode::Tma => return self.tma_tile(l),
            _ => {}
        }
        if l.mode == Mode::Vector && matches!(l.extent, 2 | 4 | 8) {
            return l.body.iter().for_each(|s| self.lanes_of(l, s));
        }
        if let Some((inner, product)) = products(l) {
            return self.multiply_all(l, inner, product);
        }
        if l.extent == 1 {
            self.known.insert(l.var, 0);
            self.open("{");
            self.start(l);
            self.block(&l.body);
            return self.close();
        }
        let serial = l.mode == Mode::Serial;
        let above = self.out.len();
        let outer = serial.then(|| {
            self.simt.moving.insert(l.var);
            std::mem::replace(&mut self.simt.steps, Steps { var: Some(l.var), ..Steps::default() })
        });
        let words = self.simt.words;
        self.line(if serial { words.rolled } else { words.unrolled });
        self.simt.ranges.insert(l.var, l.extent);
        self.count(l);
        self.start(l);
        self.block(&l.body);
        if let Some(outer) = outer {
            let steps = std::mem::replace(&mut self.simt.steps, outer);
            steps.after.iter().for_each(|t| self.line(t));
            let indent = " ".repeat(2 * (self.depth - 1));
            let before: String = steps.before.iter().map(|t| format!("{indent}{t}\n")).collect();
            self.out.insert_str(above, &before);
        }
        self.close();
    }

    /// Products of matrices, each with two halves of a second factor. A half is held while the
    /// first factors change, to and fro: what stays where it is need not be read again (2 % fewer
    /// cycles, docs/decisions/0029).
    fn multiply_all(&mut self, rows: &Loop, columns: &Loop, product: &Warp) {
        let Warp::Multiply { to, a, b } = product else { return };
        let (i, j) = (self.var(rows.var), self.var(columns.var));
        let words = self.simt.words;
        self.line(words.unrolled);
        self.open(&format!("for (int {j} = 0; {j} < {}; {j}++) {{", columns.extent));
        let last = rows.extent - 1;
        let ways = [
            format!("int {i} = 0; {i} <= {last}; {i}++"),
            format!("int {i} = {last}; {i} >= 0; {i}--"),
        ];
        for (half, way) in ways.iter().enumerate() {
            let call = self.half_product(half, to, a, b);
            self.line(words.unrolled);
            self.line(&format!("for ({way}) {call}"));
        }
        self.close();
    }

    /// A number that is counted on through the steps of a loop, where it would be divided in each
    /// otherwise.
    pub(super) fn counted(&mut self, var: Var, value: &Affine, divisor: i64, modulo: i64) -> bool {
        let Some(step) = self.simt.steps.var.filter(|_| self.multiplies()) else { return false };
        let (first, name) = (value.offset(), self.var(var));
        let counts = value.terms() == [(step, 1)] && divisor == 1 && first >= 0;
        // A power of two takes one instruction.
        if !counts || modulo & (modulo - 1) == 0 {
            return false;
        }
        self.simt.steps.before.push(format!("int {name} = {};", first % modulo));
        self.simt.steps.after.push(format!("{name} = {name} == {} ? 0 : {name} + 1;", modulo - 1));
        true
    }

    /// A pointer of the thread's own to the elements that it copies, advanced at the end of each
    /// step.
    pub(super) fn walk(&mut self, from: Source, at: &[Affine]) -> Option<String> {
        let step = self.simt.steps.var.filter(|_| self.multiplies())?;
        let off = self.offset(from, at);
        let distance = off.coefficient(step);
        let rest = off.substitute(step, &Affine::constant(0)).plus(-off.offset());
        let (still, moving) = self.parted(&rest);
        if distance == 0 || moving.terms().iter().any(|t| !self.simt.dealt.contains_key(&t.0)) {
            return None;
        }
        let first = self.by_part(THREAD, |f| f.at(from, at, &still.plus(off.offset())));
        self.temporaries += 1;
        let name = format!("walk{}", self.temporaries);
        self.simt.steps.before.push(format!(
            "const {} *{name} = &{first};",
            self.element_type(self.n.buffer(from).dtype)
        ));
        self.simt.steps.after.push(format!("{name} += {distance};"));
        Some(if moving.terms().is_empty() {
            name
        } else {
            format!("{name} + ({})", self.by_part(ROUND, |f| f.affine(&moving)))
        })
    }

    /// The address of an element of shared memory; the part of it that depends on the thread is
    /// kept across the steps of a loop.
    pub(super) fn kept(&mut self, b: Source, index: &[Affine]) -> String {
        if let Some(text) = self.kept_swizzled(b, index) {
            return text;
        }
        let off = self.offset(b, index);
        let (still, moving) = self.parted(&off);
        if !self.keeps() || self.n.buffer(b).scope != Scope::Shared || still.terms().is_empty() {
            return format!("&{}", self.at(b, index, &off));
        }
        let ty = self.element_type(self.n.buffer(b).dtype);
        let name = self
            .keep(|f| f.at(b, index, &still), |name, place| format!("{ty} *{name} = &{place};"));
        format!("{name} + ({})", self.by_part(ROUND, |f| f.affine(&moving)))
    }

    /// Whether this is in a loop whose steps keep addresses.
    pub(super) fn keeps(&self) -> bool {
        self.simt.steps.var.is_some() && self.multiplies()
    }

    /// The name of a value that is computed once before the steps of a loop and depends on the
    /// thread; `line` declares it.
    pub(super) fn keep(
        &mut self,
        place: impl Fn(&Self) -> String,
        line: impl Fn(&str, &str) -> String,
    ) -> String {
        let place = self.by_part(THREAD, place);
        if let Some(name) = self.simt.steps.kept.get(&place) {
            return name.clone();
        }
        self.temporaries += 1;
        let name = format!("kept{}", self.temporaries);
        self.simt.steps.before.push(line(&name, &place));
        self.simt.steps.kept.insert(place, name.clone());
        name
    }

    /// Splits an offset into the part that depends on the thread and the rest. Variables that
    /// threads share out belong to both.
    pub(super) fn parted(&self, off: &Affine) -> (Affine, Affine) {
        let of = |v: &Var, part: usize| match self.simt.dealt.get(v) {
            Some(parts) => !parts[part].is_empty(),
            None => self.simt.fixed.contains(v) == (part == THREAD),
        };
        let part = |part: usize| {
            off.terms().iter().copied().filter(|t| of(&t.0, part)).collect::<Vec<_>>()
        };
        (Affine::new(part(THREAD), 0), Affine::new(part(ROUND), off.offset()))
    }

    /// A text in which variables that are dealt out stand for a part of them.
    pub(super) fn by_part(&mut self, part: usize, text: impl Fn(&Self) -> String) -> String {
        self.simt.alias =
            self.simt.dealt.iter().map(|(v, parts)| (*v, format!("({})", parts[part]))).collect();
        let text = text(self);
        self.simt.alias.clear();
        text
    }

    /// Whether warps multiply matrices.
    fn multiplies(&self) -> bool {
        !self.simt.second.is_empty()
    }

    fn share(&mut self, top: &Loop) {
        let chain = nest::chain(top);
        let total: i64 = chain.iter().map(|l| l.extent).product();
        let rounds = (total + self.simt.threads - 1) / self.simt.threads;
        self.temporaries += 1;
        let threads = self.simt.threads;
        let (i, f) = (format!("i{}", self.temporaries), format!("f{}", self.temporaries));
        let guarded = rounds * threads > total;
        let words = self.simt.words;
        let thread = words.thread;
        if rounds > 1 {
            // Several loads shall be on their way at once.
            let times = if rounds <= 16 { rounds } else { 8 };
            self.line(&fill(words.unrolled_by, &[&times.to_string()]));
            self.open(&format!("for (int {i} = 0; {i} < {rounds}; {i}++) {{"));
            self.line(&format!("const unsigned {f} = {i}*{threads}u + {thread};"));
        } else {
            self.open("{");
            self.line(&format!("const int {i} = 0;"));
            self.line(&format!("const unsigned {f} = {thread};"));
        }
        if guarded {
            // Only the last round is not full, and rounds are written out.
            self.open(&format!("if ({i} < {} || {f} < {total}u) {{", rounds - 1));
        }
        let mut parts = HashMap::new();
        let round = Round { i: &i, f: &f, thread, threads };
        self.digits(&chain, &mut |var, inner, extent| {
            let found = round.dealt(inner, extent);
            let text = round.digit(found.as_ref(), inner, extent);
            parts.extend(found.map(|p| (var, p)));
            text
        });
        self.simt.dealt = parts;
        self.block(&chain[chain.len() - 1].body);
        self.simt.dealt.clear();
        if guarded {
            self.close();
        }
        self.close();
    }
}
