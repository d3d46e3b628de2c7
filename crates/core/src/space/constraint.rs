//! Constraint terms: integer arithmetic, comparison and logic over knobs, and their partial
//! evaluation as knobs are bound.

/// An integer term over knobs; as a constraint it holds where it is not zero. A knob of words
/// counts as the position of its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the operations
pub enum Term {
    Const(i64),
    Knob(String),
    Sum(Vec<Term>),
    Product(Vec<Term>),
    /// Quotient rounded up.
    CeilDiv(Box<Term>, Box<Term>),
    /// Quotient rounded down.
    FloorDiv(Box<Term>, Box<Term>),
    Mod(Box<Term>, Box<Term>),
    Min(Box<Term>, Box<Term>),
    Max(Box<Term>, Box<Term>),
    /// `a <= b`
    Le(Box<Term>, Box<Term>),
    /// `a == b`
    Eq(Box<Term>, Box<Term>),
    And(Vec<Term>),
    Or(Vec<Term>),
    Not(Box<Term>),
}

impl Term {
    /// A knob by name.
    pub fn knob(name: impl Into<String>) -> Term {
        Term::Knob(name.into())
    }

    /// `a x b x ..`
    pub fn product(terms: impl IntoIterator<Item = Term>) -> Term {
        Term::Product(terms.into_iter().collect())
    }

    /// `a + b + ..`
    pub fn sum(terms: impl IntoIterator<Item = Term>) -> Term {
        Term::Sum(terms.into_iter().collect())
    }

    /// `self <= bound`
    pub fn at_most(self, bound: impl Into<Term>) -> Term {
        Term::Le(Box::new(self), Box::new(bound.into()))
    }

    /// `self == other`
    pub fn equals(self, other: impl Into<Term>) -> Term {
        Term::Eq(Box::new(self), Box::new(other.into()))
    }

    /// `self` divides `n`.
    pub fn divides(self, n: impl Into<Term>) -> Term {
        Term::Mod(Box::new(n.into()), Box::new(self)).equals(0)
    }

    /// `self / d`, rounded up.
    pub fn ceil_div(self, d: impl Into<Term>) -> Term {
        Term::CeilDiv(Box::new(self), Box::new(d.into()))
    }

    /// `self or other`
    pub fn or(self, other: Term) -> Term {
        Term::Or(vec![self, other])
    }

    /// `self implies other`
    pub fn implies(self, other: Term) -> Term {
        Term::Or(vec![Term::Not(Box::new(self)), other])
    }

    /// Names of the knobs that occur.
    pub fn knobs(&self) -> Vec<&str> {
        fn go<'a>(t: &'a Term, out: &mut Vec<&'a str>) {
            match t {
                Term::Const(_) => {}
                Term::Knob(k) => {
                    if !out.contains(&k.as_str()) {
                        out.push(k);
                    }
                }
                Term::Sum(v) | Term::Product(v) | Term::And(v) | Term::Or(v) => v.iter().for_each(|t| go(t, out)),
                Term::CeilDiv(a, b)
                | Term::FloorDiv(a, b)
                | Term::Mod(a, b)
                | Term::Min(a, b)
                | Term::Max(a, b)
                | Term::Le(a, b)
                | Term::Eq(a, b) => {
                    go(a, out);
                    go(b, out);
                }
                Term::Not(a) => go(a, out),
            }
        }
        let mut out = Vec::new();
        go(self, &mut out);
        out
    }

    /// The term with `knob` replaced by a number, folded as far as it goes; `None` where a
    /// division by zero or an overflow makes it meaningless (a false constraint).
    pub fn bind(&self, knob: &str, value: i64) -> Option<Term> {
        let b = |t: &Term| t.bind(knob, value);
        let c = |t: i64| Some(Term::Const(t));
        match self {
            Term::Const(i) => c(*i),
            Term::Knob(k) if k == knob => c(value),
            Term::Knob(_) => Some(self.clone()),
            Term::Sum(v) => fold(v, b, 0, i64::checked_add, Term::Sum),
            Term::Product(v) => fold(v, b, 1, i64::checked_mul, Term::Product),
            Term::CeilDiv(x, y) => pair(b(x)?, b(y)?, |x, y| Some(-x.checked_neg()?.checked_div_euclid(y)?), Term::CeilDiv),
            Term::FloorDiv(x, y) => pair(b(x)?, b(y)?, floor_div, Term::FloorDiv),
            Term::Mod(x, y) => pair(b(x)?, b(y)?, |x, y| Some(x - y.checked_mul(floor_div(x, y)?)?), Term::Mod),
            Term::Min(x, y) => pair(b(x)?, b(y)?, |x, y| Some(x.min(y)), Term::Min),
            Term::Max(x, y) => pair(b(x)?, b(y)?, |x, y| Some(x.max(y)), Term::Max),
            Term::Le(x, y) => pair(b(x)?, b(y)?, |x, y| Some(i64::from(x <= y)), Term::Le),
            Term::Eq(x, y) => pair(b(x)?, b(y)?, |x, y| Some(i64::from(x == y)), Term::Eq),
            Term::Not(x) => match b(x)? {
                Term::Const(i) => c(i64::from(i == 0)),
                t => Some(Term::Not(Box::new(t))),
            },
            Term::And(v) | Term::Or(v) => {
                let (any, stop) = (matches!(self, Term::Or(_)), i64::from(matches!(self, Term::Or(_))));
                let mut rest = Vec::new();
                for t in v {
                    match b(t) {
                        Some(Term::Const(i)) if (i != 0) == any => return c(stop),
                        Some(Term::Const(_)) => {}
                        Some(t) => rest.push(t),
                        // A meaningless alternative is false; a meaningless conjunct too.
                        None if any => {}
                        None => return None,
                    }
                }
                // A single term stays wrapped: it may not be 0 or 1, which its conjunction is.
                match rest.len() {
                    0 => c(1 - stop),
                    _ => Some(if any { Term::Or(rest) } else { Term::And(rest) }),
                }
            }
        }
    }
}

fn floor_div(x: i64, y: i64) -> Option<i64> {
    let q = x.checked_div(y)?;
    Some(if x % y != 0 && (x < 0) != (y < 0) { q - 1 } else { q })
}

fn pair(a: Term, b: Term, f: impl Fn(i64, i64) -> Option<i64>, make: impl Fn(Box<Term>, Box<Term>) -> Term) -> Option<Term> {
    match (&a, &b) {
        (Term::Const(x), Term::Const(y)) => f(*x, *y).map(Term::Const),
        _ => Some(make(Box::new(a), Box::new(b))),
    }
}

/// Folds the constants of a sum or product into one that stands first.
fn fold(
    v: &[Term],
    bind: impl Fn(&Term) -> Option<Term>,
    neutral: i64,
    op: impl Fn(i64, i64) -> Option<i64>,
    make: impl Fn(Vec<Term>) -> Term,
) -> Option<Term> {
    let (mut constant, mut rest) = (neutral, Vec::new());
    for t in v {
        match bind(t)? {
            Term::Const(i) => constant = op(constant, i)?,
            t => rest.push(t),
        }
    }
    if rest.is_empty() {
        return Some(Term::Const(constant));
    }
    if constant != neutral {
        rest.insert(0, Term::Const(constant));
    }
    if rest.len() == 1 { rest.pop() } else { Some(make(rest)) }
}

impl From<i64> for Term {
    fn from(i: i64) -> Term {
        Term::Const(i)
    }
}

impl From<&str> for Term {
    fn from(knob: &str) -> Term {
        Term::knob(knob)
    }
}
