//! The types of a row that computes each element on its own: the formula (an expression over the
//! operands' elements) by which fusion makes the operator a step of a kernel, and its C, by which a
//! plain operator is generated. `elementwise.rs` has the rows; `graph/src/fuse/step.rs` reads the
//! formulas.

use super::{Fold, Infer, Row, row};
use crate::expr::{Expr, Unary};
use crate::graph::Attribute;
use crate::graph::fold::Function;
use crate::graph::infer::Ctx;

/// The ways in which an element is computed.
#[derive(Clone, Copy)]
pub struct Each {
    /// As an expression of its operands; none where the operator joins no kernel.
    pub formula: Option<Formula>,
    /// Whether the order of its operands does not matter.
    pub commutes: bool,
    /// The step's name in names of kernels, where that is not the operator's name.
    pub called: Option<fn(&Operands) -> Option<&'static str>>,
    /// As C; none where plain C is written by a function of its own.
    pub c: Option<CTexts>,
    /// Attributes of which C has the values as `A` and `B`, with those where they are absent.
    pub attributes: &'static [(&'static str, f32)],
}

/// An element as an expression.
#[derive(Clone, Copy)]
pub enum Formula {
    /// A function of one operand.
    Unary(Unary),
    /// Any other; or why the node is no step of a kernel.
    By(fn(&Operands) -> Result<Expr, String>),
}

impl Formula {
    /// The element, or why there is none.
    pub fn of(self, operands: &Operands) -> Result<Expr, String> {
        match self {
            Formula::Unary(function) => Ok(Expr::unary(function, operands.need(0)?)),
            Formula::By(formula) => formula(operands),
        }
    }
}

/// An element as C, of one operand `x` or of two, `a` and `b`; empty where elements of a type are
/// not supported. `R` is the type of floats, `T0` that of the first operand, `U` the one in which
/// whole numbers wrap around.
#[derive(Clone, Copy)]
pub struct CTexts {
    /// The number of operands: one or two.
    pub operands: usize,
    /// The text for floats.
    pub of_floats: &'static str,
    /// The text for whole numbers.
    pub of_whole: &'static str,
    /// The text for whole numbers without a sign, where that is another.
    pub of_unsigned: Option<&'static str>,
    /// The text for booleans.
    pub of_booleans: &'static str,
}

/// What a formula is given.
pub struct Operands<'a> {
    /// The node, with what is known of its operands.
    pub ctx: &'a Ctx<'a>,
    /// What stands for each operand that is given, in order; of operators that commute in any.
    pub values: &'a [Option<Expr>],
    /// Whether the operand at a place is constant over calls.
    pub is_weight: &'a dyn Fn(usize) -> bool,
}

impl Operands<'_> {
    /// How many operands there are.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// The operand at a place, if it is given.
    pub fn get(&self, i: usize) -> Option<Expr> {
        self.values.get(i).cloned().flatten()
    }

    /// The operand that the operator cannot do without.
    pub fn need(&self, i: usize) -> Result<Expr, String> {
        self.get(i).ok_or_else(|| format!("its input {i} is missing"))
    }

    /// All operands, one after the other.
    pub fn folded(&self, by: fn(Expr, Expr) -> Expr) -> Result<Expr, String> {
        (1..self.count()).try_fold(self.need(0)?, |all, i| Ok(by(all, self.need(i)?)))
    }

    /// An attribute, as the decimal that it was written as.
    pub fn float(&self, name: &str, default: f64) -> f64 {
        match self.ctx.node.attributes.get(name) {
            Some(Attribute::Float(x)) => decimal(*x),
            _ => default,
        }
    }

    /// The same, where an infinite one has no formula.
    pub fn finite(&self, name: &str, default: f64) -> Result<f64, String> {
        let x = self.float(name, default);
        x.is_finite().then_some(x).ok_or_else(|| "an attribute of it is not finite".into())
    }
}

/// The shortest decimal that rounds to a float: `1e-5` rather than `9.99999974e-6`, so that a
/// model's constant and a user's are one.
pub fn decimal(x: f32) -> f64 {
    let exact = [1.0 / 6.0, 1.0 / 3.0].into_iter().find(|c| *c as f32 == x);
    exact.or_else(|| x.to_string().parse().ok()).unwrap_or(f64::from(x))
}

/// An operator that computes each element of those at the same place.
pub(super) const fn each(name: &'static str, infer: Infer) -> Row {
    Row { each: Some(NEW), ..row(name, infer) }
}

const NEW: Each = Each { formula: None, commutes: false, called: None, c: None, attributes: &[] };

/// The facts that rows of elementwise operators state.
impl Row {
    const fn each(&self) -> Each {
        match self.each {
            Some(each) => each,
            None => NEW,
        }
    }

    const fn with(self, each: Each) -> Row {
        Row { each: Some(each), ..self }
    }

    pub(super) const fn is(self, function: Unary) -> Row {
        let each = Each { formula: Some(Formula::Unary(function)), ..self.each() };
        self.with(each)
    }

    pub(super) const fn formula_by(self, by: fn(&Operands) -> Result<Expr, String>) -> Row {
        let each = Each { formula: Some(Formula::By(by)), ..self.each() };
        self.with(each)
    }

    pub(super) const fn commutes(self) -> Row {
        let each = Each { commutes: true, ..self.each() };
        self.with(each)
    }

    pub(super) const fn called(self, name: fn(&Operands) -> Option<&'static str>) -> Row {
        let each = Each { called: Some(name), ..self.each() };
        self.with(each)
    }

    /// C of one operand `x`: of floats, of whole numbers and booleans.
    pub(super) const fn c(self, of_floats: &'static str, of_whole: &'static str) -> Row {
        let texts =
            CTexts { operands: 1, of_floats, of_whole, of_unsigned: None, of_booleans: of_whole };
        let each = Each { c: Some(texts), ..self.each() };
        self.with(each)
    }

    /// C of two operands `a` and `b`: of floats, of whole numbers, of booleans.
    pub(super) const fn c_of_two(
        self,
        of_floats: &'static str,
        of_whole: &'static str,
        of_booleans: &'static str,
    ) -> Row {
        let texts = CTexts { operands: 2, of_floats, of_whole, of_unsigned: None, of_booleans };
        let each = Each { c: Some(texts), ..self.each() };
        self.with(each)
    }

    /// C of whole numbers without a sign, of which comparisons with zero are always the same.
    pub(super) const fn c_of_unsigned(self, text: &'static str) -> Row {
        let each = match self.each() {
            Each { c: Some(texts), .. } => {
                Each { c: Some(CTexts { of_unsigned: Some(text), ..texts }), ..self.each() }
            }
            other => other,
        };
        self.with(each)
    }

    pub(super) const fn attributes(self, list: &'static [(&'static str, f32)]) -> Row {
        let each = Each { attributes: list, ..self.each() };
        self.with(each)
    }

    pub(super) const fn folds_by(self, function: Function) -> Row {
        Row { fold: Fold::Each(function), ..self }
    }
}
