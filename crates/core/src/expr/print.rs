//! Prints expressions, indices and conditions as text, such as `X[n, c, p + r] * W[k, c, r]`;
//! [`text`](crate::text) parses them back. The caller gives names to the numbered variables and
//! tensors through the trait [`Names`]: workloads and loop nests print their own names with the
//! same code.

use super::{Affine, Binary, Cond, Expr, Source, Unary, Var};
use std::fmt;

/// Gives variables and sources their names.
pub trait Names {
    /// The name of a variable.
    fn var(&self, v: Var) -> &str;
    /// The name of a source.
    fn source(&self, s: Source) -> &str;
}

/// `2*p + r - 1`; terms in the order of their names, so that the text does not depend on how
/// variables are numbered.
pub fn print_affine(f: &mut impl fmt::Write, a: &Affine, names: &dyn Names) -> fmt::Result {
    let mut first = true;
    let mut terms = a.terms().to_vec();
    terms.sort_by_key(|t| names.var(t.0));
    for (v, c) in terms {
        match (first, c < 0) {
            (true, true) => write!(f, "-")?,
            (true, false) => {}
            (false, true) => write!(f, " - ")?,
            (false, false) => write!(f, " + ")?,
        }
        if c.abs() != 1 {
            write!(f, "{}*", c.abs())?;
        }
        write!(f, "{}", names.var(v))?;
        first = false;
    }
    match (first, a.offset()) {
        (true, o) => write!(f, "{o}"),
        (false, 0) => Ok(()),
        (false, o) if o < 0 => write!(f, " - {}", -o),
        (false, o) => write!(f, " + {o}"),
    }
}

/// `0 <= p + r - 1 < 56`.
pub fn print_cond(f: &mut impl fmt::Write, c: &Cond, names: &dyn Names) -> fmt::Result {
    write!(f, "{} <= ", c.low)?;
    print_affine(f, &c.index, names)?;
    write!(f, " < {}", c.high)
}

/// Displays an expression with names.
pub struct PrintExpr<'a>(pub &'a Expr, pub &'a dyn Names);

impl fmt::Display for PrintExpr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, self.0, self.1, 0)
    }
}

fn print(f: &mut fmt::Formatter<'_>, e: &Expr, names: &dyn Names, outer: u8) -> fmt::Result {
    let call = |f: &mut fmt::Formatter<'_>, name: &str, args: &[&Expr]| {
        write!(f, "{name}(")?;
        for (i, a) in args.iter().enumerate() {
            if i > 0 {
                write!(f, ", ")?;
            }
            print(f, a, names, 0)?;
        }
        write!(f, ")")
    };
    match e {
        Expr::Const(c) if c.is_nan() => write!(f, "nan"),
        Expr::Const(c) if c.is_infinite() => write!(f, "{}", if *c > 0.0 { "inf" } else { "-inf" }),
        Expr::Const(c) if *c == c.trunc() && c.abs() < 1e15 => write!(f, "{c:.0}"),
        Expr::Const(c) => write!(f, "{c:?}"),
        Expr::Load { source, index } => {
            write!(f, "{}[", names.source(*source))?;
            for (i, a) in index.iter().enumerate() {
                if i > 0 {
                    write!(f, ", ")?;
                }
                print_affine(f, a, names)?;
            }
            write!(f, "]")
        }
        Expr::Unary(Unary::Neg, a) => call(f, "neg", &[a]),
        Expr::Unary(op, a) => call(f, op.name(), &[a]),
        Expr::Cast(t, a) => call(f, t.name(), &[a]),
        Expr::Binary(op, a, b) => {
            let (sign, level) = match op {
                Binary::Add => ("+", 1),
                Binary::Sub => ("-", 1),
                Binary::Mul => ("*", 2),
                Binary::Div => ("/", 2),
                Binary::Max => return call(f, "max", &[a, b]),
                Binary::Min => return call(f, "min", &[a, b]),
                Binary::Pow => return call(f, "pow", &[a, b]),
                Binary::Dot => return call(f, "dot", &[a, b]),
                Binary::DotPair => return call(f, "dot_pair", &[a, b]),
                Binary::DotWords => return call(f, "dot_words", &[a, b]),
                Binary::Pair => return call(f, "pair", &[a, b]),
            };
            if level < outer {
                write!(f, "(")?;
            }
            print(f, a, names, level)?;
            write!(f, " {sign} ")?;
            // A right operand of equal precedence keeps its brackets, as in a - (b - c).
            print(f, b, names, level + 1)?;
            if level < outer {
                write!(f, ")")?;
            }
            Ok(())
        }
        Expr::Select { conds, then, other } => {
            write!(f, "select(")?;
            for (i, c) in conds.iter().enumerate() {
                if i > 0 {
                    write!(f, " and ")?;
                }
                print_cond(f, c, names)?;
            }
            write!(f, ", ")?;
            print(f, then, names, 0)?;
            write!(f, ", ")?;
            print(f, other, names, 0)?;
            write!(f, ")")
        }
    }
}
