//! Expressions as C text, scalar or vector, with loads kept in temporaries of the block.

use super::{Emitter, c_name};
use crate::nest::Scope;
use squall_core::expr::{Affine, Binary, Expr, Source, Unary};
use std::fmt::Write;

/// C text of a value; a scalar stands for all lanes.
pub struct Value {
    pub text: String,
    pub vector: bool,
}

fn scalar(text: String) -> Value {
    Value { text, vector: false }
}

impl Emitter<'_> {
    /// The value as a vector of `lanes`.
    pub(super) fn widen(&mut self, v: Value, lanes: i64) -> String {
        if v.vector {
            return v.text;
        }
        format!("{}({})", self.function("all", lanes), v.text)
    }

    pub(super) fn value(&mut self, e: &Expr) -> Value {
        match e {
            Expr::Const(c) => scalar(self.constant(*c)),
            Expr::Load { source, index } => self.load(*source, index),
            Expr::Cast(_, a) => self.value(a),
            Expr::Unary(op, a) => {
                let a = self.value(a);
                self.unary(*op, a)
            }
            Expr::Binary(op, a, b) => {
                let a = self.value(a);
                let b = self.value(b);
                self.binary(*op, a, b)
            }
            Expr::Select { conds, then, other } => {
                let lane = self.vector.map(|v| v.0);
                let uniform = lane.is_none_or(|l| conds.iter().all(|c| !c.index.uses(l)));
                if !uniform {
                    return self.by_lane(e);
                }
                let test = self.conds(conds);
                // The branch not taken may read out of bounds, so it must not be evaluated.
                let lanes = self.vector.map_or(1, |v| v.1);
                let ty = if lanes > 1 { self.vector_type(lanes) } else { self.real().to_string() };
                let t = self.temporary();
                self.line(&format!("{ty} {t};"));
                for (head, branch) in
                    [(format!("if ({test}) {{"), then), ("else {".to_string(), other)]
                {
                    self.open(&head);
                    let v = self.value(branch);
                    let v = if lanes > 1 { self.widen(v, lanes) } else { v.text };
                    self.line(&format!("{t} = {v};"));
                    self.close();
                }
                Value { text: t, vector: lanes > 1 }
            }
        }
    }

    /// Each lane computed by itself: for conditions that differ between lanes.
    fn by_lane(&mut self, e: &Expr) -> Value {
        let Some((lane, lanes)) = self.vector.take() else { return self.value(e) };
        let ty = self.vector_type(lanes);
        let t = self.temporary();
        self.line(&format!("{ty} {t};"));
        for i in 0..lanes {
            self.known.insert(lane, i);
            let v = self.value(e);
            self.line(&format!("{t}[{i}] = {};", v.text));
        }
        self.known.remove(&lane);
        self.vector = Some((lane, lanes));
        Value { text: t, vector: true }
    }

    pub(super) fn constant(&self, c: f64) -> String {
        let suffix = if self.o.double { "" } else { "f" };
        if c.is_nan() {
            return "__builtin_nanf(\"\")".into();
        }
        if c.is_infinite() {
            return format!("({}__builtin_inff())", if c < 0.0 { "-" } else { "" });
        }
        let text = if self.o.double { format!("{c:?}") } else { format!("{:?}", c as f32) };
        let text = if text.contains(['.', 'e']) { text } else { format!("{text}.0") };
        if c < 0.0 { format!("({text}{suffix})") } else { format!("{text}{suffix}") }
    }

    fn unary(&mut self, op: Unary, a: Value) -> Value {
        if op == Unary::Neg {
            return Value { text: format!("(-{})", a.text), vector: a.vector };
        }
        let lanes = if a.vector { self.vector.map_or(1, |v| v.1) } else { 1 };
        Value { text: format!("{}({})", self.function(op.name(), lanes), a.text), vector: a.vector }
    }

    pub(super) fn binary(&mut self, op: Binary, a: Value, b: Value) -> Value {
        let vector = a.vector || b.vector;
        let sign = match op {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
            Binary::Max | Binary::Min | Binary::Pow => {
                let lanes = if vector { self.vector.map_or(1, |v| v.1) } else { 1 };
                let name = match op {
                    Binary::Max => "max",
                    Binary::Min => "min",
                    _ => "pow",
                };
                let (a, b) = if vector {
                    (self.widen(a, lanes), self.widen(b, lanes))
                } else {
                    (a.text, b.text)
                };
                return Value { text: format!("{}({a}, {b})", self.function(name, lanes)), vector };
            }
        };
        if op == Binary::Div && a.vector && !b.vector {
            // Lanes over one divisor: vector divisions cost ten multiplications, and compilers
            // may not replace them. One rounding more; divisors below 3e-39 overflow.
            let one = self.constant(1.0);
            return Value { text: format!("({} * ({one} / {}))", a.text, b.text), vector };
        }
        Value { text: format!("({} {sign} {})", a.text, b.text), vector }
    }

    fn load(&mut self, b: Source, index: &[Affine]) -> Value {
        let off = self.offset(b, index);
        let name = c_name(&self.n.buffer(b).name);
        let Some((lane, lanes)) = self.vector else {
            return match self.registers.get(b) {
                Some(1) => scalar(format!("{name}_{}", off.offset())),
                Some(l) => scalar(format!("{name}_{}[{}]", off.offset() / l, off.offset() % l)),
                None => {
                    let place = self.place(b, &off);
                    let place = self.number(b, place);
                    scalar(if self.o.double { format!("(double){place}") } else { place })
                }
            };
        };
        let stride = off.coefficient(lane);
        let mut base = off.clone();
        base.add_term(lane, -stride);
        if let Some(l) = self.registers.get(b) {
            return if stride == 0 || l == 1 {
                scalar(if l == 1 {
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
                    text: self.remember(b, &ty, &format!("*(const {ty} *)&{text}")),
                    vector: true,
                }
            }
            2 => {
                let even = self.function("even", lanes);
                let text = self.place(b, &base);
                Value { text: self.remember(b, &ty, &format!("{even}(&{text})")), vector: true }
            }
            _ => {
                let four = self.fours.iter().copied().find(|u| {
                    [4, 8, 16].contains(&lanes)
                        && squall_core::workload::flatten(index, &self.n.buffer(b).shape)
                            .coefficient(*u)
                            == 1
                });
                if let Some(u) = four {
                    return self.transposed(b, &base, u, stride, lanes);
                }
                let mut text = format!("({ty}){{");
                for i in 0..lanes {
                    let place = self.place(b, &base.plus(stride * i));
                    let _ = write!(text, "{}{place}", if i > 0 { ", " } else { "" });
                }
                Value { text: self.remember(b, &ty, &(text + "}")), vector: true }
            }
        }
    }

    /// Lanes at a stride, inside a loop unrolled four times along the unit stride: loads of four
    /// elements each and a transposition serve all four iterations.
    fn transposed(
        &mut self,
        b: Source,
        base: &Affine,
        unrolled: squall_core::expr::Var,
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
        let known = self.memo.last().and_then(|m| m.get(&key)).cloned();
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
            if let Some(m) = self.memo.last_mut() {
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
        let blocks = if constant { self.memo.len() } else { 1 };
        if let Some(t) = self.memo.iter().rev().take(blocks).find_map(|m| m.get(&key)) {
            return t.clone();
        }
        let t = self.temporary();
        self.line(&format!("{ty} {t} = {text};"));
        if let Some(m) = self.memo.last_mut() {
            m.insert(key, t.clone());
        }
        t
    }
}
