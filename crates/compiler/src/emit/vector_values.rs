//! What programs of vectors load and choose: values that stand in temporaries of their block.

use super::dialect::fill;
use super::printer::{Printer, Value, c_name};
use crate::nest::Scope;
use squall_core::expr::{Affine, Cond, Expr, Source, Var};

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
            return self.by_lane(e);
        }
        let test = self.conds(conds);
        let lanes = self.simd.vector.map_or(1, |v| v.1);
        let ty = if lanes > 1 { self.vector_type(lanes) } else { self.real().to_string() };
        let t = self.temporary();
        self.line(&format!("{ty} {t};"));
        for (head, branch) in [(format!("if ({test}) {{"), then), ("else {".to_string(), other)] {
            self.open(&head);
            let v = self.value(branch);
            let v = if lanes > 1 { self.widen(v, lanes) } else { v.text };
            self.line(&format!("{t} = {v};"));
            self.close();
        }
        Value { text: t, vector: lanes > 1 }
    }

    /// Each lane computed by itself: for conditions that differ between lanes.
    fn by_lane(&mut self, e: &Expr) -> Value {
        let Some((lane, lanes)) = self.simd.vector.take() else { return self.value(e) };
        let ty = self.vector_type(lanes);
        let t = self.temporary();
        self.line(&format!("{ty} {t};"));
        for i in 0..lanes {
            self.known.insert(lane, i);
            let v = self.value(e);
            self.line(&format!("{t}[{i}] = {};", v.text));
        }
        self.known.remove(&lane);
        self.simd.vector = Some((lane, lanes));
        Value { text: t, vector: true }
    }

    pub(super) fn vector_load(&mut self, b: Source, index: &[Affine]) -> Value {
        let off = self.offset(b, index);
        let name = c_name(&self.n.buffer(b).name);
        let Some((lane, lanes)) = self.simd.vector else {
            return match self.simd.registers.get(b) {
                Some(1) => Value::scalar(format!("{name}_{}", off.offset())),
                Some(l) => {
                    Value::scalar(format!("{name}_{}[{}]", off.offset() / l, off.offset() % l))
                }
                None => {
                    let place = self.place(b, &off);
                    let place = self.as_number(b, place);
                    Value::scalar(if self.o.double { format!("(double){place}") } else { place })
                }
            };
        };
        let stride = off.coefficient(lane);
        let mut base = off.clone();
        base.add_term(lane, -stride);
        if let Some(l) = self.simd.registers.get(b) {
            return if stride == 0 || l == 1 {
                Value::scalar(if l == 1 {
                    format!("{name}_{}", base.offset())
                } else {
                    format!("{name}_{}[{}]", base.offset() / l, base.offset() % l)
                })
            } else {
                Value { text: format!("{name}_{}", base.offset() / l), vector: true }
            };
        }
        let ty = self.vector_type(lanes);
        match stride {
            0 => {
                let text = self.place(b, &base);
                let broadcast = self.function("all", lanes);
                Value { text: self.remember(b, &ty, &format!("{broadcast}({text})")), vector: true }
            }
            1 => {
                let text = self.place(b, &base);
                Value {
                    text: self.remember(b, &ty, &fill(self.simd.words.load, &[&ty, &text])),
                    vector: true,
                }
            }
            2 => {
                let even = self.function("even", lanes);
                let text = self.place(b, &base);
                Value { text: self.remember(b, &ty, &format!("{even}(&{text})")), vector: true }
            }
            _ => {
                let four = self.simd.fours.iter().copied().find(|u| {
                    [4, 8, 16].contains(&lanes)
                        && squall_core::workload::flatten(index, &self.n.buffer(b).shape)
                            .coefficient(*u)
                            == 1
                });
                if let Some(u) = four {
                    return self.transposed(b, &base, u, stride, lanes);
                }
                let list: Vec<String> =
                    (0..lanes).map(|i| self.place(b, &base.plus(stride * i))).collect();
                let text = fill(self.simd.words.list, &[&ty, &list.join(", ")]);
                Value { text: self.remember(b, &ty, &text), vector: true }
            }
        }
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
        Value { text: format!("{t}_{i}"), vector: true }
    }

    /// A temporary that holds a load, made once a block while its buffer does not change.
    fn remember(&mut self, b: Source, ty: &str, text: &str) -> String {
        let key = (b, text.to_string());
        // What never changes during a call may be remembered from outer blocks too.
        let constant =
            matches!(self.n.buffer(b).scope, Scope::Data(_) | Scope::Prepared | Scope::Weight(_));
        let blocks = if constant { self.simd.memo.len() } else { 1 };
        if let Some(t) = self.simd.memo.iter().rev().take(blocks).find_map(|m| m.get(&key)) {
            return t.clone();
        }
        let t = self.temporary();
        self.line(&format!("{ty} {t} = {text};"));
        if let Some(m) = self.simd.memo.last_mut() {
            m.insert(key, t.clone());
        }
        t
    }
}
