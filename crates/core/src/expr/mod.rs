//! Scalar expressions over affine tensor accesses, such as
//! `max(X[n, c, p + r, q + s] * W[k, c, r, s], 0)`: the language in which both a
//! [`Workload`](crate::Workload) (the tensor expression that a kernel computes) and the compiler's
//! loop nests state computations.
//!
//! Variables and sources are numbers, and the text around the expression gives them their meaning:
//! in a workload's stage, variable `i` is its `i`-th axis (spatial axes first, then reduction axes)
//! and source `s` its `s`-th tensor; in a loop nest they number loop variables and buffers.
//! `eval.rs` evaluates expressions, `print.rs` prints them, and `core/src/text.rs` parses them.

mod eval;
mod print;

pub use eval::{larger, smaller};
pub use print::{Names, PrintExpr, print_affine, print_cond};

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

/// An integer variable: an axis of a stage or a loop of a nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Var(pub u32);

/// A tensor of a workload or a buffer of a nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Source(pub u32);

/// `sum(coefficient x variable) + offset`. Terms are sorted by variable, without zeros or
/// duplicates, so that equality of values is equality of functions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Affine {
    /// Terms lie inline, since almost every index has few and scheduling makes and drops millions
    /// of indices.
    terms: SmallVec<[(Var, i64); 4]>,
    offset: i64,
}

impl Affine {
    /// A constant.
    pub fn constant(offset: i64) -> Affine {
        Affine { terms: SmallVec::new(), offset }
    }

    /// One variable.
    pub fn var(v: Var) -> Affine {
        Affine { terms: smallvec![(v, 1)], offset: 0 }
    }

    /// The sum of the given terms and the offset, in canonical form.
    pub fn new(terms: impl IntoIterator<Item = (Var, i64)>, offset: i64) -> Affine {
        let mut a = Affine::constant(offset);
        for (v, c) in terms {
            a.add_term(v, c);
        }
        a
    }

    /// The terms, sorted by variable; no coefficient is zero.
    pub fn terms(&self) -> &[(Var, i64)] {
        &self.terms
    }

    /// The constant part.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// The value if no variable occurs.
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.offset)
    }

    /// The variable if this is exactly one variable.
    pub fn as_var(&self) -> Option<Var> {
        match self.terms[..] {
            [(v, 1)] if self.offset == 0 => Some(v),
            _ => None,
        }
    }

    /// The coefficient of `v`, zero where it does not occur.
    pub fn coefficient(&self, v: Var) -> i64 {
        match self.terms.binary_search_by_key(&v, |t| t.0) {
            Ok(i) => self.terms[i].1,
            Err(_) => 0,
        }
    }

    /// Whether `v` occurs.
    pub fn uses(&self, v: Var) -> bool {
        self.coefficient(v) != 0
    }

    /// Adds the term `c x v`.
    pub fn add_term(&mut self, v: Var, c: i64) {
        match self.terms.binary_search_by_key(&v, |t| t.0) {
            Ok(i) => {
                self.terms[i].1 += c;
                if self.terms[i].1 == 0 {
                    self.terms.remove(i);
                }
            }
            Err(i) if c != 0 => self.terms.insert(i, (v, c)),
            Err(_) => {}
        }
    }

    /// `self + other`.
    pub fn add(&self, other: &Affine) -> Affine {
        let mut r = self.clone();
        for &(v, c) in &other.terms {
            r.add_term(v, c);
        }
        r.offset += other.offset;
        r
    }

    /// `self x k`.
    pub fn scale(&self, k: i64) -> Affine {
        if k == 0 {
            return Affine::constant(0);
        }
        Affine {
            terms: self.terms.iter().map(|&(v, c)| (v, c * k)).collect(),
            offset: self.offset * k,
        }
    }

    /// `self + k`.
    pub fn plus(&self, k: i64) -> Affine {
        Affine { terms: self.terms.clone(), offset: self.offset + k }
    }

    /// Replaces `v` by `by`.
    pub fn substitute(&self, v: Var, by: &Affine) -> Affine {
        match self.coefficient(v) {
            0 => self.clone(),
            c => {
                let mut r = self.clone();
                r.add_term(v, -c);
                r.add(&by.scale(c))
            }
        }
    }

    /// Replaces every variable by what `f` gives for it.
    pub fn map_vars(&self, mut f: impl FnMut(Var) -> Affine) -> Affine {
        self.terms.iter().fold(Affine::constant(self.offset), |r, &(v, c)| r.add(&f(v).scale(c)))
    }

    /// The value where `value(v)` gives each variable's.
    pub fn eval(&self, value: impl Fn(Var) -> i64) -> i64 {
        self.terms.iter().fold(self.offset, |r, &(v, c)| r + c * value(v))
    }

    /// Smallest and largest value when each variable `v` runs over `0 ..= bound(v)`.
    pub fn range(&self, bound: impl Fn(Var) -> i64) -> (i64, i64) {
        self.terms.iter().fold((self.offset, self.offset), |(lo, hi), &(v, c)| {
            let x = c * bound(v);
            if x < 0 { (lo + x, hi) } else { (lo, hi + x) }
        })
    }
}

/// `low <= index < high`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cond {
    /// The value that is tested.
    pub index: Affine,
    /// Inclusive lower bound.
    pub low: i64,
    /// Exclusive upper bound.
    pub high: i64,
}

/// Functions of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // the names are the functions
pub enum Unary {
    Neg,
    Abs,
    Exp,
    Log,
    Sqrt,
    Tanh,
    Erf,
    Sigmoid,
    Floor,
    Ceil,
    Round,
    Sin,
    Cos,
    Sign,
    /// The bytes 0 and 2 of a [`DType::U8x4`] as a [`DType::I16x2`].
    EvenU8,
    /// The bytes 1 and 3 of a [`DType::U8x4`] as a [`DType::I16x2`].
    OddU8,
    /// The bytes 0 and 2 of a [`DType::I8x4`] as a [`DType::I16x2`].
    EvenI8,
    /// The bytes 1 and 3 of a [`DType::I8x4`] as a [`DType::I16x2`].
    OddI8,
}

impl Unary {
    /// All functions, each with its spelling in text.
    pub const ALL: &'static [(Unary, &'static str)] = &[
        (Unary::Neg, "neg"),
        (Unary::Abs, "abs"),
        (Unary::Exp, "exp"),
        (Unary::Log, "log"),
        (Unary::Sqrt, "sqrt"),
        (Unary::Tanh, "tanh"),
        (Unary::Erf, "erf"),
        (Unary::Sigmoid, "sigmoid"),
        (Unary::Floor, "floor"),
        (Unary::Ceil, "ceil"),
        (Unary::Round, "round"),
        (Unary::Sin, "sin"),
        (Unary::Cos, "cos"),
        (Unary::Sign, "sign"),
        (Unary::EvenU8, "even_u8"),
        (Unary::OddU8, "odd_u8"),
        (Unary::EvenI8, "even_i8"),
        (Unary::OddI8, "odd_i8"),
    ];

    /// Whether it makes two words of four bytes: whole numbers of whole numbers.
    pub fn makes_words(self) -> bool {
        matches!(self, Unary::EvenU8 | Unary::OddU8 | Unary::EvenI8 | Unary::OddI8)
    }

    /// The spelling in text.
    pub fn name(self) -> &'static str {
        Unary::ALL.iter().find(|(u, _)| *u == self).map_or("?", |(_, n)| n)
    }
}

/// Functions of two arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // the names are the functions
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Pow,
    /// The sum of the products of the four bytes of a [`DType::U8x4`] with those of a
    /// [`DType::I8x4`]: one instruction where a CPU has `vpdpbusd`.
    Dot,
    /// The sum of the products of the two numbers of a [`DType::Bf16x2`] with those of another: one
    /// instruction where a CPU has `vdpbf16ps`.
    DotPair,
    /// The sum of the products of the two numbers of a [`DType::I16x2`] with those of another: one
    /// instruction where a CPU has `vpmaddwd`.
    DotWords,
    /// The [`DType::Bf16x2`] of two numbers, the first in its lower half.
    Pair,
}

/// Numeric formats of tensors. No tensor is stored in `Tf32`: in an [`Expr::Cast`] it says how
/// precisely factors are multiplied, and in memory it is an `F32` with 13 zero bits. `U8x4` and
/// `I8x4` are four bytes that lie together, `Bf16x2` two numbers of bf16 and `I16x2` two whole ones
/// of 16 bits, of which kernels see one number, their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // the names are the formats
pub enum DType {
    F32,
    F16,
    Bf16,
    I8,
    F64,
    I32,
    I64,
    U8,
    Tf32,
    I16,
    U16,
    U32,
    U64,
    Bool,
    U8x4,
    I8x4,
    Bf16x2,
    I16x2,
}

impl DType {
    /// Size of one element in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            DType::F64 | DType::I64 | DType::U64 => 8,
            DType::F32 | DType::I32 | DType::U32 | DType::Tf32 => 4,
            DType::U8x4 | DType::I8x4 | DType::Bf16x2 | DType::I16x2 => 4,
            DType::F16 | DType::Bf16 | DType::I16 | DType::U16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// All formats, which tensors of models may have.
    pub const ALL: [DType; 14] = [
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::I8,
        DType::F64,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::Tf32,
        DType::I16,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
    ];

    /// The formats of workloads and loop nests.
    pub const OF_KERNELS: [DType; 13] = [
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::I8,
        DType::F64,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::Tf32,
        DType::U8x4,
        DType::I8x4,
        DType::Bf16x2,
        DType::I16x2,
    ];

    /// Whether it is one of the floating-point formats of 16 bits.
    pub fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16)
    }

    /// Whether its values are whole numbers.
    pub fn is_integer(self) -> bool {
        use DType::{I8, I16, I32, I64, U8, U16, U32, U64};
        matches!(self, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
    }

    /// Whether its elements are some numbers that kernels see as one, their bits.
    pub fn is_packed(self) -> bool {
        self.packed() > 1
    }

    /// How many numbers an element of it is.
    pub fn packed(self) -> u64 {
        match self {
            DType::U8x4 | DType::I8x4 => 4,
            DType::Bf16x2 | DType::I16x2 => 2,
            _ => 1,
        }
    }

    /// Whether its values are floating-point numbers.
    pub fn is_float(self) -> bool {
        use DType::{Bf16, F16, F32, F64, Tf32};
        matches!(self, F16 | Bf16 | F32 | F64 | Tf32)
    }

    /// The spelling in text: `f32`, `f16`, `bf16`, `i8` and so on.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::I8 => "i8",
            DType::F64 => "f64",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::Tf32 => "tf32",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
            DType::U8x4 => "u8x4",
            DType::I8x4 => "i8x4",
            DType::Bf16x2 => "bf16x2",
            DType::I16x2 => "i16x2",
        }
    }

    /// The format with this spelling.
    pub fn from_name(s: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == s)
    }
}

/// A scalar expression.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Expr {
    /// A number.
    Const(f64),
    /// One element of a tensor or buffer.
    Load {
        /// What is read.
        source: Source,
        /// An index for each dimension.
        index: Vec<Affine>,
    },
    /// A function of one value.
    Unary(Unary, Box<Expr>),
    /// A function of two values.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `then` where every condition holds, else `other`; the branch not taken is not evaluated,
    /// so a load in it may be out of bounds.
    Select {
        /// All must hold.
        conds: Vec<Cond>,
        /// The value where they hold.
        then: Box<Expr>,
        /// The value elsewhere.
        other: Box<Expr>,
    },
    /// The value rounded to a format.
    Cast(DType, Box<Expr>),
}

impl Expr {
    /// A load.
    pub fn load(source: Source, index: Vec<Affine>) -> Expr {
        Expr::Load { source, index }
    }

    /// A binary operation.
    pub fn binary(op: Binary, a: Expr, b: Expr) -> Expr {
        Expr::Binary(op, Box::new(a), Box::new(b))
    }

    /// A unary operation.
    pub fn unary(op: Unary, a: Expr) -> Expr {
        Expr::Unary(op, Box::new(a))
    }

    /// Calls `f` on this expression and all below it, parents first.
    pub fn visit(&self, f: &mut impl FnMut(&Expr)) {
        f(self);
        match self {
            Expr::Const(_) | Expr::Load { .. } => {}
            Expr::Unary(_, a) | Expr::Cast(_, a) => a.visit(f),
            Expr::Binary(_, a, b) => {
                a.visit(f);
                b.visit(f);
            }
            Expr::Select { then, other, .. } => {
                then.visit(f);
                other.visit(f);
            }
        }
    }

    /// Rebuilds the expression bottom up: `leaf` may replace any node, every affine form goes
    /// through `affine`.
    pub fn rewrite(
        &self,
        affine: &mut impl FnMut(&Affine) -> Affine,
        leaf: &mut impl FnMut(Expr) -> Expr,
    ) -> Expr {
        let e = match self {
            Expr::Const(c) => Expr::Const(*c),
            Expr::Load { source, index } => {
                Expr::Load { source: *source, index: index.iter().map(&mut *affine).collect() }
            }
            Expr::Unary(op, a) => Expr::Unary(*op, Box::new(a.rewrite(affine, leaf))),
            Expr::Cast(t, a) => Expr::Cast(*t, Box::new(a.rewrite(affine, leaf))),
            Expr::Binary(op, a, b) => Expr::Binary(
                *op,
                Box::new(a.rewrite(affine, leaf)),
                Box::new(b.rewrite(affine, leaf)),
            ),
            Expr::Select { conds, then, other } => Expr::Select {
                conds: conds
                    .iter()
                    .map(|c| Cond { index: affine(&c.index), low: c.low, high: c.high })
                    .collect(),
                then: Box::new(then.rewrite(affine, leaf)),
                other: Box::new(other.rewrite(affine, leaf)),
            },
        };
        leaf(e)
    }

    /// Replaces every variable.
    pub fn map_vars(&self, mut f: impl FnMut(Var) -> Affine) -> Expr {
        self.rewrite(&mut |a| a.map_vars(&mut f), &mut |e| e)
    }

    /// Replaces every tensor that is read.
    pub fn map_sources(&self, mut f: impl FnMut(Source) -> Source) -> Expr {
        self.rewrite(&mut |a| a.clone(), &mut |e| match e {
            Expr::Load { source, index } => Expr::Load { source: f(source), index },
            e => e,
        })
    }

    /// All loads, in order of appearance.
    pub fn loads(&self) -> Vec<(Source, &[Affine])> {
        let mut out = Vec::new();
        self.collect_loads(&mut out);
        out
    }

    fn collect_loads<'a>(&'a self, out: &mut Vec<(Source, &'a [Affine])>) {
        match self {
            Expr::Const(_) => {}
            Expr::Load { source, index } => out.push((*source, index)),
            Expr::Unary(_, a) | Expr::Cast(_, a) => a.collect_loads(out),
            Expr::Binary(_, a, b) => {
                a.collect_loads(out);
                b.collect_loads(out);
            }
            Expr::Select { then, other, .. } => {
                then.collect_loads(out);
                other.collect_loads(out);
            }
        }
    }

    /// Arithmetic operations in one evaluation: each unary, binary and transcendental function
    /// counts one, a product of four bytes seven, of two pairs three; selects, casts, loads,
    /// words of bytes and index arithmetic count none.
    pub fn flop(&self) -> u64 {
        let mut n = 0;
        self.visit(&mut |e| {
            n += match e {
                Expr::Binary(Binary::Dot, ..) => 7,
                Expr::Binary(Binary::DotPair | Binary::DotWords, ..) => 3,
                Expr::Binary(Binary::Pair, ..) => 0,
                Expr::Unary(op, _) if op.makes_words() => 0,
                Expr::Unary(..) | Expr::Binary(..) => 1,
                _ => 0,
            }
        });
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affine_is_canonical() {
        let (a, b) = (Var(0), Var(1));
        let x = Affine::new([(b, 2), (a, 1), (b, -2)], 3);
        assert_eq!(x.terms(), &[(a, 1)]);
        assert_eq!(x.substitute(a, &Affine::new([(b, 4)], 1)), Affine::new([(b, 4)], 4));
        assert_eq!(
            Affine::new([(a, 2), (b, -3)], 1).range(|v| if v == a { 4 } else { 2 }),
            (-5, 9)
        );
    }
}
