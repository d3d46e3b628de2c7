//! Statements of GPU programs: barriers, declarations of shared and local buffers, stores,
//! accumulations and asynchronous copies to shared memory (`cp.async`). Methods of the printer,
//! called from `threads.rs` for each statement of a loop nest; each appends CUDA text.

use super::dialect::fill;
use super::printer::{Printer, c_name};
use crate::nest::{self, Loop, Reach, Scope, Stmt, shared_place, shared_room};
use squall_core::DType;
use squall_core::expr::{Affine, Cond, Expr, Source, Var};
use squall_core::workload::Reducer;

impl Printer<'_> {
    /// Prints a barrier of the block or of the cluster.
    pub(super) fn barrier(&mut self, reach: Reach) {
        if self.simt.copies {
            self.copies("copies_arrive();");
        }
        if !self.simt.warpgroup_sums.is_empty() {
            self.line("products_see();");
        }
        let words = self.simt.words;
        if reach == Reach::Cluster && self.simt.rank.1 > 1 {
            self.line("cluster_barrier();");
        } else {
            self.line(words.barrier);
        }
    }

    /// A line that uses helpers for copies.
    pub(super) fn copies(&mut self, text: &str) {
        self.helper("copies");
        self.line(text);
    }

    /// Declares a local buffer or fragment, or gives a shared buffer its place.
    pub(super) fn thread_declare(&mut self, b: Source) {
        let shared = shared_room(self.n, b);
        if shared > 0 {
            let place = shared_place(self.n, b, self.simt.top);
            self.simt.places.insert(b, place);
            self.simt.top = place + shared;
            self.simt.most = self.simt.most.max(self.simt.top);
            return;
        }
        let buf = self.n.buffer(b);
        let (name, elements) = (c_name(&buf.name), buf.elements());
        let text = match (buf.scope, buf.dtype) {
            // Four registers a matrix of factors, eight of sums.
            (Scope::Fragment, DType::F32) => format!("float {name}[{}];", elements / 32),
            (Scope::Fragment, d) => {
                format!("unsigned {name}[{}];", elements * d.bytes() as i64 / 128)
            }
            _ => format!("float {name}[{elements}];"),
        };
        self.line(&text);
    }

    /// Declares a variable: `value / divisor mod modulo`.
    pub(super) fn bind(&mut self, var: Var, value: &Affine, divisor: i64, modulo: i64) {
        self.simt.moving.insert(var);
        let value = self.fold(value);
        if self.counted(var, &value, divisor, modulo) {
            return;
        }
        let words = self.d.index;
        let value = format!("({})({})", words.unsigned, self.affine(&value));
        // Not negative: without a sign, division is a multiplication and a shift.
        let value = match divisor {
            1 => value,
            _ => format!("{value} / {divisor}{}", words.suffix),
        };
        let name = self.var(var);
        self.line(&format!(
            "{} {name} = ({})({value} % {modulo}{});",
            words.value, words.counter, words.suffix
        ));
    }

    /// The parts of a store that only copies from device to shared memory: source, place and the
    /// conditions outside of which it stores zero; `None` for other stores.
    pub(super) fn copied<'e>(
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
    pub(super) fn lanes_of(&mut self, l: &Loop, s: &Stmt) {
        let (b, index, op, value) = match s {
            Stmt::Store { buffer, index, value } => (*buffer, index, None, value),
            Stmt::Update { op, buffer, index, value } => (*buffer, index, Some(*op), value),
            _ => return,
        };
        if let Some(text) = self.copy_of_lanes(l, b, index, value) {
            return self.copies(&text);
        }
        let dtype = self.n.buffer(b).dtype;
        let copied = self.copied(b, value);
        self.open("{");
        let mut lanes = Vec::new();
        // Elements of 16 bits that are only moved stay as they are.
        let raw = dtype.is_half() && copied.is_some();
        for i in 0..l.extent {
            self.simt.lane = Some((l.var, i, l.extent));
            lanes.push(match copied {
                Some((from, at, conds)) if raw => self.bits(from, at, conds),
                _ => self.value(value).text,
            });
        }
        self.simt.lane = None;
        self.simt.vectors.clear();
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
                    Some(rank) => {
                        let made = self.made(part.len(), part);
                        format!("bring(&{}, {rank}, {made});", self.here(b, &off))
                    }
                    None => format!("{};", self.wide(dtype, raw, &self.at(b, index, &off), part)),
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

    /// The copy of all lanes of a vector loop to shared memory at once, if that is what a
    /// statement is.
    fn copy_of_lanes(
        &mut self,
        l: &Loop,
        b: Source,
        index: &[Affine],
        value: &Expr,
    ) -> Option<String> {
        let bytes = l.extent * self.n.buffer(b).dtype.bytes() as i64;
        let (from, at, conds) = self.copied(b, value).filter(|_| matches!(bytes, 8 | 16))?;
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
        if !aligned || !conds.iter().all(together) {
            return None;
        }
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
                    "{{ const bool valid = {valid}; copy{bytes}({to}, valid ? {source} : &{first}, \
                     valid); }}"
                )
            }
        };
        self.known.remove(&l.var);
        Some(text)
    }

    pub(super) fn thread_assign(
        &mut self,
        b: Source,
        index: &[Affine],
        op: Option<Reducer>,
        value: &Expr,
    ) {
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
                [] => {
                    self.helper("copies");
                    format!("copy4(&{to}, &{source}, true);")
                }
                _ => {
                    self.helper("copies");
                    let valid = self.conds(conds);
                    format!(
                        "{{ const bool valid = {valid}; copy4(&{to}, valid ? &{source} : \
                         &{first}, valid); }}"
                    )
                }
            };
            return self.line(&text);
        }
        let v = self.value(value).text;
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
            None => {
                let value = self.rounded(self.n.buffer(b).dtype, value);
                self.combined(b, &self.at(b, index, off), op, &value, 1)
            }
        }
    }

    /// A value on its way to an element: formats of 16 bits round in their assignment.
    fn rounded(&self, dtype: DType, text: &str) -> String {
        if dtype != DType::Tf32 {
            return text.into();
        }
        self.helper("formats");
        format!("tf32({text})")
    }

    /// A vector of `count` floats, made of its lanes.
    fn made(&self, count: usize, lanes: &[String]) -> String {
        fill(self.simt.words.make_floats, &[&count.to_string(), &lanes.join(", ")])
    }

    /// An assignment of elements that lie side by side, aligned.
    fn wide(&self, dtype: DType, raw: bool, place: &str, lanes: &[String]) -> String {
        if !dtype.is_half() {
            let list: Vec<String> = lanes.iter().map(|l| self.rounded(dtype, l)).collect();
            let floats = fill(self.simt.words.floats, &[&lanes.len().to_string()]);
            return format!("*({floats} *)&{place} = {}", self.made(lanes.len(), &list));
        }
        let pair = if raw { "join".into() } else { format!("pair_{}", self.element_type(dtype)) };
        let pairs: Vec<String> =
            lanes.chunks(2).map(|p| format!("{pair}({})", p.join(", "))).collect();
        match &pairs[..] {
            [one] => format!("*(unsigned *)&{place} = {one}"),
            list => {
                format!("*(uint{0} *)&{place} = make_uint{0}({1})", list.len(), list.join(", "))
            }
        }
    }
}
