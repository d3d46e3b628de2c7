//! Expressions and places in memory as CUDA C.

use super::cuda::Function;
use super::{affine_text, c_name};
use crate::nest::Scope;
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Unary, Var};
use squall_core::workload::{Reducer, flatten};

impl Function<'_> {
    pub(super) fn var(&self, v: Var) -> String {
        self.alias.get(&v).cloned().unwrap_or_else(|| c_name(&self.n.vars[v.0 as usize]))
    }

    pub(super) fn fold(&self, a: &Affine) -> Affine {
        a.map_vars(|v| self.known.get(&v).map_or_else(|| Affine::var(v), |&k| Affine::constant(k)))
    }

    /// The element offset of an access; of a cluster's buffer, inside the block's share.
    pub(super) fn offset(&self, b: Source, index: &[Affine]) -> Affine {
        let buf = self.n.buffer(b);
        let skip = usize::from(buf.scope == Scope::Cluster);
        self.fold(&flatten(&index[skip..], &buf.shape[skip..]))
    }

    /// Whether an offset without its lane is a multiple of the vector's width.
    pub(super) fn aligned(&self, off: &Affine, lane: Var, lanes: i64) -> bool {
        let multiple = |v: &Var| self.multiple.get(v).copied().unwrap_or(1);
        off.offset() % lanes == 0
            && off.terms().iter().all(|(v, c)| *v == lane || c * multiple(v) % lanes == 0)
    }

    /// The number of the block in whose shared memory an element lies, where that may be another
    /// one.
    pub(super) fn elsewhere(&self, b: Source, index: &[Affine]) -> Option<String> {
        let rank = index
            .first()
            .filter(|_| self.n.buffer(b).scope == Scope::Cluster && self.rank.1 > 1)?;
        let rank = self.fold(rank);
        (rank.as_var().is_none() || rank.as_var() != self.rank.0).then(|| self.affine(&rank))
    }

    /// Memory that is one array of floats, from a byte on.
    fn within(&self, b: Source, array: &str, byte: i64, off: &Affine) -> String {
        let dtype = self.n.buffer(b).dtype;
        let at = self.affine(&off.plus(byte / dtype.bytes() as i64));
        if dtype.is_half() {
            format!("(({} *){array})[{at}]", c_type(dtype))
        } else {
            format!("{array}[{at}]")
        }
    }

    /// The C text of an element of shared memory, in the block's own.
    pub(super) fn here(&self, b: Source, off: &Affine) -> String {
        self.within(b, "shared", self.places.get(&b).copied().unwrap_or(0), off)
    }

    /// The C text of an element.
    pub(super) fn at(&self, b: Source, index: &[Affine], off: &Affine) -> String {
        let buf = self.n.buffer(b);
        let own = |at: &Affine| self.affine(at);
        let within = |array: &str, byte: i64| self.within(b, array, byte, off);
        match buf.scope {
            Scope::Prepared => within("prepared", self.prepared[&b] as i64),
            Scope::Workspace => within("workspace", self.prepared[&b] as i64),
            Scope::Swizzled => {
                let first = self.places.get(&b).copied().unwrap_or(0) / buf.dtype.bytes() as i64;
                // Whole groups of eight rows, stages among them, stay where they are.
                let group = 1024 / buf.dtype.bytes() as i64;
                let (whole, rest): (Vec<_>, Vec<_>) =
                    off.terms().iter().copied().partition(|t| t.1 % group == 0);
                let (whole, rest) = (Affine::new(whole, first), Affine::new(rest, off.offset()));
                format!(
                    "(({} *)shared)[{} + swizzled{}({})]",
                    c_type(buf.dtype),
                    own(&whole),
                    buf.dtype.bytes(),
                    own(&rest)
                )
            }
            Scope::Shared | Scope::Cluster => match self.elsewhere(b, index) {
                Some(rank) => format!("peer(&{}, {rank})", self.here(b, off)),
                None => self.here(b, off),
            },
            _ => format!("{}[{}]", c_name(&buf.name), own(off)),
        }
    }

    /// The address of an element; `apart`, what moves along serial loops is added to a pointer,
    /// which then need not be computed in each of their steps. The compiler does not see that by
    /// itself: `int` may not wrap, pointers may.
    pub(super) fn pointer(&self, from: Source, at: &[Affine], apart: bool) -> String {
        let off = self.offset(from, at);
        let (moving, still): (Vec<_>, Vec<_>) =
            off.terms().iter().copied().partition(|t| self.moving.contains(&t.0));
        if !apart || moving.is_empty() {
            return format!("&{}", self.at(from, at, &off));
        }
        format!(
            "&{} + ({})",
            self.at(from, at, &Affine::new(still, 0)),
            self.affine(&Affine::new(moving, off.offset()))
        )
    }

    /// The bits of an element of 16, zero where a condition does not hold.
    pub(super) fn bits(&mut self, from: Source, at: &[Affine], conds: &[Cond]) -> String {
        let (v, lane) = self.lane.map_or((Var(u32::MAX), 0), |l| (l.0, l.1));
        let at: Vec<Affine> = at.iter().map(|a| a.substitute(v, &Affine::constant(lane))).collect();
        let place = self.at(from, &at, &self.offset(from, &at));
        if conds.is_empty() {
            return format!("{place}.bits");
        }
        format!("(unsigned short)({} ? {place}.bits : 0)", self.conds(conds))
    }

    pub(super) fn affine(&self, a: &Affine) -> String {
        affine_text(a, |v| self.var(v))
    }

    pub(super) fn conds(&self, conds: &[Cond]) -> String {
        let one = |c: &Cond| {
            let mut i = self.fold(&c.index);
            if let Some((v, l, _)) = self.lane {
                i = i.substitute(v, &Affine::constant(l));
            }
            format!("(unsigned)({}) < {}u", self.affine(&i.plus(-c.low)), (c.high - c.low).max(0))
        };
        conds.iter().map(one).collect::<Vec<_>>().join(" && ")
    }

    pub(super) fn value(&mut self, e: &Expr) -> String {
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
        let (scope, dtype) = (self.n.buffer(b).scope, self.n.buffer(b).dtype);
        let lanes = lanes.min(4);
        let wide = scope != Scope::Local && !dtype.is_half() && self.elsewhere(b, index).is_none();
        if self.whole && wide && off.coefficient(v) == 1 && self.aligned(&off, v, lanes) {
            off.add_term(v, -1);
            off = off.plus(lane / lanes * lanes);
            let lane = lane % lanes;
            let place = self.at(b, index, &off);
            let name = match self.vectors.get(&place) {
                Some(t) => t.clone(),
                None => {
                    self.temporaries += 1;
                    let t = format!("t{}", self.temporaries);
                    self.line(&format!(
                        "const float{lanes} {t} = *(const float{lanes} *)&{place};"
                    ));
                    self.vectors.insert(place, t.clone());
                    t
                }
            };
            return format!("{name}.{}", ["x", "y", "z", "w"][lane as usize]);
        }
        off = off.substitute(v, &Affine::constant(lane));
        let index: Vec<Affine> =
            index.iter().map(|a| a.substitute(v, &Affine::constant(lane))).collect();
        self.at(b, &index, &off)
    }
}

/// The C++ type of a format's elements.
pub(super) fn c_type(d: DType) -> &'static str {
    match d {
        DType::F16 => "half_t",
        DType::Bf16 => "bfloat_t",
        _ => "float",
    }
}

pub(super) fn combined(place: &str, op: Option<Reducer>, v: &str) -> String {
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
        return if c < 0.0 {
            "__int_as_float(0xff800000)".into()
        } else {
            "__int_as_float(0x7f800000)".into()
        };
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
