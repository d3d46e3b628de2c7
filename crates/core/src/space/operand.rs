//! The operands of the constraint language while it is parsed (`language.rs`): a number is a
//! fraction of two integer terms, so that `a / b < 1.3` needs no floats, or an operand is a quoted
//! text or a knob's name. The functions here turn comparisons, minima and maxima of fractions into
//! integer terms.

use super::Term;

/// A number as a fraction of terms, or a text.
#[derive(Clone)]
pub(super) struct KnobOperand {
    pub(super) top: Term,
    /// The denominator; absent where it is one.
    pub(super) bottom: Option<Term>,
    /// The text, where the operand is a quoted text.
    pub(super) text: Option<String>,
    /// The index of the knob, where the operand is a knob's name alone.
    pub(super) knob: Option<usize>,
}

impl From<Term> for KnobOperand {
    fn from(top: Term) -> KnobOperand {
        KnobOperand { top, bottom: None, text: None, knob: None }
    }
}

pub(super) fn product(a: &Term, b: &Option<Term>) -> Term {
    match b {
        Some(b) => Term::product([a.clone(), b.clone()]),
        None => a.clone(),
    }
}

/// Two numbers over one denominator, which is absent where it is one.
pub(super) fn common(a: &KnobOperand, b: &KnobOperand) -> (Term, Term, Option<Term>) {
    let bottom = match (&a.bottom, &b.bottom) {
        (Some(x), Some(y)) => Some(Term::product([x.clone(), y.clone()])),
        (Some(x), None) | (None, Some(x)) => Some(x.clone()),
        (None, None) => None,
    };
    (product(&a.top, &b.bottom), product(&b.top, &a.bottom), bottom)
}

/// Two numbers as [`common`] gives them, but over the square of the denominator. A square is not
/// negative, so comparisons and extremes may look at the numerators alone.
pub(super) fn comparable(a: &KnobOperand, b: &KnobOperand) -> (Term, Term, Option<Term>) {
    match common(a, b) {
        (x, y, Some(d)) => {
            // `0 mod d` adds nothing, but it has no value where the denominator is zero, so that
            // neither has the comparison.
            let nothing = Term::Mod(Box::new(Term::Const(0)), Box::new(d.clone()));
            let by = Some(d.clone());
            (
                Term::sum([product(&x, &by), nothing]),
                product(&y, &by),
                Some(Term::product([d.clone(), d])),
            )
        }
        plain => plain,
    }
}

pub(super) fn not(t: Term) -> Term {
    Term::Not(Box::new(t))
}

pub(super) fn negated(t: Term) -> Term {
    match t {
        Term::Const(i) => Term::Const(i.saturating_neg()),
        t => Term::product([Term::Const(-1), t]),
    }
}

pub(super) fn compared(sign: &str, a: &KnobOperand, b: &KnobOperand) -> Term {
    let (x, y, _) = comparable(a, b);
    match sign {
        "<=" => x.at_most(y),
        ">=" => y.at_most(x),
        "<" => not(y.at_most(x)),
        ">" => not(x.at_most(y)),
        "==" => x.equals(y),
        _ => not(x.equals(y)),
    }
}

pub(super) fn extreme(name: &str, a: &KnobOperand, b: &KnobOperand) -> KnobOperand {
    let (x, y, bottom) = comparable(a, b);
    let (x, y) = (Box::new(x), Box::new(y));
    let top = if name == "min" { Term::Min(x, y) } else { Term::Max(x, y) };
    KnobOperand { bottom, ..top.into() }
}
