//! Loads and selections in programs by SIMD vectors: values that are loaded into temporaries of
//! their block once, and choices between two values by conditions (padding), for all lanes at once,
//! by masked loads, or lane by lane. Methods of the printer, called from `printer.rs` for
//! expressions; they return the text of a value.

use super::dialect::fill;
use super::printer::{Printer, Value, c_name};
use super::vectors::MAY_BE_HELD;
use crate::nest::Scope;
use squall_core::expr::{Affine, Cond, Expr, Source, Var};

/// The lanes of the vectors that are kept in registers explicitly: those of AVX2. With its 16
/// registers GCC assigns none to a vector of up to four uses, but reads the vector from memory in
/// each multiply-add, which takes 1.45 times as long with 4 x 2 sums.
const HELD_LANES: [i64; 2] = [4, 8];

impl Printer<'_> {
    /// One of two values by conditions. The branch not taken may read out of bounds, so it must not
    /// be evaluated.
    pub(super) fn vector_select(
        &mut self,
        e: &Expr,
        conds: &[Cond],
        then: &Expr,
        other: &Expr,
    ) -> Value {
        let lane = self.simd.vector.map(|v| v.0);
        if lane.is_some_and(|l| conds.iter().any(|c| c.index.uses(l))) {
            return self.masked(conds, then, other).unwrap_or_else(|| self.by_lane(e));
        }
        let test = self.conds(conds);
        let lanes = self.simd.vector.map_or(1, |v| v.1);
        let whole = self.is_whole(e);
        let ty = self.lane_type(lanes, whole);
        let t = self.temporary();
        self.line(&format!("{ty} {t};"));
        for (head, branch) in [(format!("if ({test}) {{"), then), ("else {".to_string(), other)] {
            self.open(&head);
            let v = self.value_as(branch, whole);
            let v = if lanes > 1 { self.widen(v, lanes) } else { v.text };
            self.line(&format!("{t} = {v};"));
            self.close();
        }
        Value { text: t, vector: lanes > 1, whole, factors: None }
    }

    /// Computes each lane separately, for conditions that differ between lanes.
    fn by_lane(&mut self, e: &Expr) -> Value {
        let Some((lane, lanes)) = self.simd.vector.take() else { return self.value(e) };
        let whole = self.is_whole(e);
        let ty = self.lane_type(lanes, whole);
        let t = self.temporary();
        self.line(&format!("{ty} {t};"));
        for i in 0..lanes {
            self.known.insert(lane, i);
            let v = self.value(e);
            self.line(&format!("{t}[{i}] = {};", v.text));
        }
        self.known.remove(&lane);
        self.simd.vector = Some((lane, lanes));
        Value { text: t, vector: true, whole, factors: None }
    }

    pub(super) fn vector_load(&mut self, b: Source, index: &[Affine]) -> Value {
        let off = self.offset(b, index);
        let name = c_name(&self.n.buffer(b).name);
        let whole = self.holds_whole(b);
        let Some((lane, lanes)) = self.simd.vector else {
            let text = match self.simd.registers.get(b) {
                Some(1) => format!("{name}_{}", off.offset()),
                Some(l) => format!("{name}_{}[{}]", off.offset() / l, off.offset() % l),
                None => {
                    let place = self.place(b, &off);
                    let place = self.as_number(b, place);
                    if self.o.double { format!("(double){place}") } else { place }
                }
            };
            return Value { text, whole, ..Value::default() };
        };
        let stride = off.coefficient(lane);
        let mut base = off.clone();
        base.add_term(lane, -stride);
        if let Some(l) = self.simd.registers.get(b) {
            let (text, vector) = match (stride, l) {
                (_, 1) => (format!("{name}_{}", base.offset()), false),
                (0, _) => (format!("{name}_{}[{}]", base.offset() / l, base.offset() % l), false),
                _ => (format!("{name}_{}", base.offset() / l), true),
            };
            return Value { text, vector, whole, factors: None };
        }
        let floats = self.holds_floats(b);
        let ty = self.lane_type(lanes, whole);
        let text = match stride {
            0 => {
                let place = self.place(b, &base);
                let place = self.as_number(b, place);
                self.widen(Value { text: place, whole, ..Value::default() }, lanes)
            }
            1 if floats || whole => fill(self.simd.words.load, &[&ty, &self.place(b, &base)]),
            1 => {
                let place = self.place(b, &base);
                format!("{}(&{place})", self.function(self.reader(b), lanes))
            }
            2 if floats => {
                let even = self.function("even", lanes);
                format!("{even}(&{})", self.place(b, &base))
            }
            _ => {
                let four = self.simd.fours.iter().copied().find(|u| {
                    [4, 8, 16].contains(&lanes)
                        && squall_core::workload::flatten(index, &self.n.buffer(b).shape)
                            .coefficient(*u)
                            == 1
                });
                if let Some(u) = four.filter(|_| floats) {
                    return self.transposed(b, &base, u, stride, lanes);
                }
                let element = |p: &mut Self, i: i64| {
                    let place = p.place(b, &base.plus(stride * i));
                    p.as_number(b, place)
                };
                let list: Vec<String> = (0..lanes).map(|i| element(self, i)).collect();
                fill(self.simd.words.list, &[&ty, &list.join(", ")])
            }
        };
        let is_load = stride == 1 && floats && HELD_LANES.contains(&lanes);
        let text = self.remember(b, &ty, &text, is_load);
        Value { text, vector: true, whole, factors: None }
    }

    /// Lanes at a stride, inside a loop unrolled four times along the unit stride: loads of four
    /// elements each and a transposition serve all four iterations.
    fn transposed(
        &mut self,
        b: Source,
        base: &Affine,
        unrolled: Var,
        stride: i64,
        lanes: i64,
    ) -> Value {
        let i = self.known.get(&unrolled).copied().unwrap_or(0);
        let first = base.plus(-i);
        let key = (b, format!("transposed {lanes} {stride} {}", self.affine(&first)));
        let ty = self.vector_type(lanes);
        // Wide vectors are joined of narrower ones.
        std::iter::successors(Some(lanes), |l| Some(l / 2))
            .take_while(|l| *l >= 4)
            .for_each(|l| _ = self.vector_type(l));
        let known = self.simd.memo.last().and_then(|m| m.get(&key)).cloned();
        let t = known.unwrap_or_else(|| {
            // Vector k holds rows k, k + 4, ..: transposed within each four lanes, they are in
            // order.
            let quads = self.function("transpose", lanes).replace("transpose", "quads");
            let rows: Vec<String> = (0..4)
                .map(|k| format!("{quads}(&{}, {stride})", self.place(b, &first.plus(stride * k))))
                .collect();
            let t = self.temporary();
            self.line(&format!(
                "{ty} {t}_0 = {}, {t}_1 = {}, {t}_2 = {}, {t}_3 = {};",
                rows[0], rows[1], rows[2], rows[3]
            ));
            let f = self.function("transpose", lanes);
            self.line(&format!("{f}(&{t}_0, &{t}_1, &{t}_2, &{t}_3);"));
            if let Some(m) = self.simd.memo.last_mut() {
                m.insert(key, t.clone());
            }
            t
        });
        Value::vector(format!("{t}_{i}"))
    }

    /// A temporary that holds a load, made once a block while its buffer does not change.
    fn remember(&mut self, b: Source, ty: &str, text: &str, is_load: bool) -> String {
        let key = (b, text.to_string());
        // Elements that never change during a call may be remembered from outer blocks, too.
        let constant =
            matches!(self.n.buffer(b).scope, Scope::Data(_) | Scope::Prepared | Scope::Weight(_));
        let blocks = if constant { self.simd.memo.len() } else { 1 };
        if let Some(t) = self.simd.memo.iter().rev().take(blocks).find_map(|m| m.get(&key)) {
            let t = t.clone();
            if self.simd.adding {
                self.simd.reused.insert(t.clone());
            }
            return t;
        }
        let t = self.temporary();
        let is_held = is_load && self.simd.adding && !self.o.double;
        let mark = match is_held && !self.simd.words.held.is_empty() {
            true => format!("{MAY_BE_HELD}{t}{MAY_BE_HELD}"),
            false => String::new(),
        };
        self.line(&format!("{ty} {t} = {text};{mark}"));
        if let Some(m) = self.simd.memo.last_mut() {
            m.insert(key, t.clone());
        }
        t
    }
}
