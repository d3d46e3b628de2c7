//! Constraint terms, such as `tile_m * tile_n <= 1024`: integer arithmetic, comparison and logic
//! over knobs, as a tree. `bind` evaluates a term partly: it replaces one knob by a number and
//! folds the constants, by which the decision diagram (`diagram.rs`) is built level by level.
//! `language.rs` parses terms from text, and printing gives the text back.

use std::fmt;

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
    /// `a` to the power of `b`, which must not be negative.
    Pow(Box<Term>, Box<Term>),
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

    /// The terms that it is made of, from left to right.
    fn parts(&self) -> Vec<&Term> {
        match self {
            Term::Const(_) | Term::Knob(_) => Vec::new(),
            Term::Sum(v) | Term::Product(v) | Term::And(v) | Term::Or(v) => v.iter().collect(),
            Term::CeilDiv(a, b)
            | Term::FloorDiv(a, b)
            | Term::Mod(a, b)
            | Term::Pow(a, b)
            | Term::Min(a, b)
            | Term::Max(a, b)
            | Term::Le(a, b)
            | Term::Eq(a, b) => vec![a, b],
            Term::Not(a) => vec![a],
        }
    }

    /// Numbers, knobs and operations in it, as its text has them: a sum of three is two
    /// operations, so that the text that it prints as is as large as itself.
    pub(super) fn size(&self) -> usize {
        let parts = self.parts();
        let own = match self {
            // Printed by way of the quotient rounded down, with two signs.
            Term::CeilDiv(..) => 5,
            Term::Not(_) => 1,
            // What stands between the parts; alone, a number, a knob or an empty list is one.
            _ => parts.len().saturating_sub(1).max(usize::from(parts.is_empty())),
        };
        own + parts.into_iter().map(Term::size).sum::<usize>()
    }

    /// Names of the knobs that occur.
    pub fn knobs(&self) -> Vec<&str> {
        fn go<'a>(t: &'a Term, out: &mut Vec<&'a str>) {
            if let Term::Knob(k) = t
                && !out.contains(&k.as_str())
            {
                out.push(k);
            }
            t.parts().into_iter().for_each(|t| go(t, out));
        }
        let mut out = Vec::new();
        go(self, &mut out);
        out
    }

    /// The term's value where each knob in it, usually one, stands for the same number; `None`
    /// where [`Term::bind`] gives none.
    pub(super) fn value(&self, number: i64) -> Option<i64> {
        let v = |t: &Term| t.value(number);
        Some(match self {
            Term::Const(i) => *i,
            Term::Knob(_) => number,
            Term::Sum(all) => all.iter().try_fold(0i64, |s, t| s.checked_add(v(t)?))?,
            Term::Product(all) => all.iter().try_fold(1i64, |p, t| p.checked_mul(v(t)?))?,
            Term::CeilDiv(x, y) => -v(x)?.checked_neg()?.checked_div_euclid(v(y)?)?,
            Term::FloorDiv(x, y) => floor_div(v(x)?, v(y)?)?,
            Term::Mod(x, y) => {
                let (x, y) = (v(x)?, v(y)?);
                x - y.checked_mul(floor_div(x, y)?)?
            }
            Term::Pow(x, y) => v(x)?.checked_pow(u32::try_from(v(y)?).ok()?)?,
            Term::Min(x, y) => v(x)?.min(v(y)?),
            Term::Max(x, y) => v(x)?.max(v(y)?),
            Term::Le(x, y) => i64::from(v(x)? <= v(y)?),
            Term::Eq(x, y) => i64::from(v(x)? == v(y)?),
            Term::Not(x) => i64::from(v(x)? == 0),
            // The first false conjunct decides, and so does a meaningless one; a meaningless
            // alternative is false.
            Term::And(all) => {
                for t in all {
                    if v(t)? == 0 {
                        return Some(0);
                    }
                }
                1
            }
            Term::Or(all) => i64::from(all.iter().any(|t| v(t).is_some_and(|x| x != 0))),
        })
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
            Term::CeilDiv(x, y) => pair(
                b(x)?,
                b(y)?,
                |x, y| Some(-x.checked_neg()?.checked_div_euclid(y)?),
                Term::CeilDiv,
            ),
            Term::FloorDiv(x, y) => pair(b(x)?, b(y)?, floor_div, Term::FloorDiv),
            Term::Mod(x, y) => {
                pair(b(x)?, b(y)?, |x, y| Some(x - y.checked_mul(floor_div(x, y)?)?), Term::Mod)
            }
            Term::Pow(x, y) => {
                pair(b(x)?, b(y)?, |x, y| x.checked_pow(u32::try_from(y).ok()?), Term::Pow)
            }
            Term::Min(x, y) => pair(b(x)?, b(y)?, |x, y| Some(x.min(y)), Term::Min),
            Term::Max(x, y) => pair(b(x)?, b(y)?, |x, y| Some(x.max(y)), Term::Max),
            Term::Le(x, y) => pair(b(x)?, b(y)?, |x, y| Some(i64::from(x <= y)), Term::Le),
            Term::Eq(x, y) => pair(b(x)?, b(y)?, |x, y| Some(i64::from(x == y)), Term::Eq),
            Term::Not(x) => match b(x)? {
                Term::Const(i) => c(i64::from(i == 0)),
                t => Some(Term::Not(Box::new(t))),
            },
            Term::And(v) | Term::Or(v) => {
                let (any, stop) =
                    (matches!(self, Term::Or(_)), i64::from(matches!(self, Term::Or(_))));
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

impl Term {
    /// The least and the greatest value that the term can take while each knob lies in the range
    /// that `of` gives for it. Never too narrow; `None` where nothing is known, or where some
    /// values may make the term meaningless.
    pub(super) fn bounds(&self, of: &impl Fn(&str) -> (i64, i64)) -> Option<(i64, i64)> {
        let pair = |a: &Term, b: &Term| Some((a.bounds(of)?, b.bounds(of)?));
        // Of operations that are monotone in each argument the corners are the extremes.
        let corners = |(a, b): ((i64, i64), (i64, i64)), f: &dyn Fn(i64, i64) -> Option<i64>| {
            let all = [f(a.0, b.0)?, f(a.0, b.1)?, f(a.1, b.0)?, f(a.1, b.1)?];
            Some((all.into_iter().min()?, all.into_iter().max()?))
        };
        let truth = |always: bool, never: bool| Some((i64::from(always), i64::from(!never)));
        match self {
            Term::Const(i) => Some((*i, *i)),
            Term::Knob(k) => Some(of(k)),
            Term::Sum(v) => v.iter().try_fold((0i64, 0i64), |s, t| {
                t.bounds(of).and_then(|b| Some((s.0.checked_add(b.0)?, s.1.checked_add(b.1)?)))
            }),
            Term::Product(v) => v
                .iter()
                .try_fold((1i64, 1i64), |p, t| corners((p, t.bounds(of)?), &i64::checked_mul)),
            Term::CeilDiv(a, b) | Term::FloorDiv(a, b) => {
                let (a, b) = pair(a, b)?;
                let up = matches!(self, Term::CeilDiv(..));
                let divide = |x: i64, y: i64| {
                    floor_div(if up { x.checked_neg()? } else { x }, y)
                        .map(|q| if up { -q } else { q })
                };
                if b.0 <= 0 { None } else { corners((a, b), &divide) }
            }
            Term::Mod(a, b) => {
                let (a, b) = pair(a, b)?;
                if b.0 <= 0 {
                    return None;
                }
                Some(if a.0 >= 0 && a.1 < b.0 { a } else { (0, b.1 - 1) })
            }
            Term::Pow(a, b) => {
                let (a, b) = pair(a, b)?;
                let power = |x: i64, y: i64| x.checked_pow(u32::try_from(y).ok()?);
                if a.0 <= 0 || b.0 < 0 { None } else { corners((a, b), &power) }
            }
            Term::Min(a, b) => pair(a, b).map(|(a, b)| (a.0.min(b.0), a.1.min(b.1))),
            Term::Max(a, b) => pair(a, b).map(|(a, b)| (a.0.max(b.0), a.1.max(b.1))),
            Term::Le(a, b) => pair(a, b).and_then(|(a, b)| truth(a.1 <= b.0, a.0 > b.1)),
            Term::Eq(a, b) => {
                pair(a, b).and_then(|(a, b)| truth(a.0 == a.1 && a == b, a.1 < b.0 || b.1 < a.0))
            }
            Term::Not(a) => a.bounds(of).and_then(|a| truth(a == (0, 0), a.0 > 0 || a.1 < 0)),
            Term::And(v) => {
                let all: Vec<(i64, i64)> = v.iter().map(|t| t.bounds(of)).collect::<Option<_>>()?;
                truth(all.iter().all(|b| b.0 > 0 || b.1 < 0), all.contains(&(0, 0)))
            }
            Term::Or(v) => {
                // A meaningless alternative is false, so the whole never is meaningless.
                let all: Vec<Option<(i64, i64)>> = v.iter().map(|t| t.bounds(of)).collect();
                truth(
                    all.iter().flatten().any(|b| b.0 > 0 || b.1 < 0),
                    all.iter().all(|b| *b == Some((0, 0))),
                )
            }
        }
    }
}

/// The term in the language of [`Term::parse`].
impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, v: &[Term], sign: &str, none: &str| {
            write!(f, "(")?;
            for (i, t) in v.iter().enumerate() {
                write!(f, "{}{t}", if i > 0 { sign } else { "" })?;
            }
            write!(f, "{})", if v.is_empty() { none } else { "" })
        };
        match self {
            Term::Const(i) if *i < 0 => write!(f, "({i})"),
            Term::Const(i) => write!(f, "{i}"),
            Term::Knob(k) => write!(f, "{k}"),
            Term::Sum(v) => list(f, v, " + ", "0"),
            Term::Product(v) => list(f, v, " * ", "1"),
            Term::CeilDiv(a, b) => write!(f, "(-(-{a} // {b}))"),
            Term::FloorDiv(a, b) => write!(f, "({a} // {b})"),
            Term::Mod(a, b) => write!(f, "({a} % {b})"),
            Term::Pow(a, b) => write!(f, "({a} ** {b})"),
            Term::Min(a, b) => write!(f, "min({a}, {b})"),
            Term::Max(a, b) => write!(f, "max({a}, {b})"),
            Term::Le(a, b) => write!(f, "({a} <= {b})"),
            Term::Eq(a, b) => write!(f, "({a} == {b})"),
            Term::And(v) => list(f, v, " and ", "True"),
            Term::Or(v) => list(f, v, " or ", "False"),
            Term::Not(t) => write!(f, "(not {t})"),
        }
    }
}

fn floor_div(x: i64, y: i64) -> Option<i64> {
    let q = x.checked_div(y)?;
    Some(if x % y != 0 && (x < 0) != (y < 0) { q - 1 } else { q })
}

fn pair(
    a: Term,
    b: Term,
    f: impl Fn(i64, i64) -> Option<i64>,
    make: impl Fn(Box<Term>, Box<Term>) -> Term,
) -> Option<Term> {
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
