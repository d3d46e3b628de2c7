//! Formulas over the extents that only a call knows: whole numbers, symbols, sums, products,
//! quotients rounded down and comparisons, in postfix order as the C host library evaluates them
//! (`host/varying.c`). `768 s0 *` is 768 times the first symbol.

use std::fmt::{self, Display, Formatter};

/// The most words of a formula, which bounds the stack that the C host library evaluates with.
pub const MOST_WORDS: usize = 64;

/// A word of a formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// Pushes a number.
    Number(i64),
    /// Pushes the extent of a symbol.
    Symbol(u32),
    /// Replaces the two numbers on top by their sum.
    Add,
    /// By the lower one less the upper one.
    Subtract,
    /// By their product.
    Multiply,
    /// By the lower one over the upper one, rounded down; a divisor is above 0.
    Divide,
    /// By 1 where the lower one is less than the upper one, else by 0.
    Less,
}

/// A formula; every one has exactly one result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Formula(Vec<Word>);

impl Formula {
    /// A number.
    pub fn number(n: i64) -> Formula {
        Formula(vec![Word::Number(n)])
    }

    /// The extent of a symbol.
    pub fn symbol(n: u32) -> Formula {
        Formula(vec![Word::Symbol(n)])
    }

    fn joined(self, other: Formula, word: Word) -> Formula {
        let mut words = self.0;
        words.extend(other.0);
        words.push(word);
        Formula(words)
    }

    /// The sum; nothing is added for 0.
    pub fn plus(self, other: Formula) -> Formula {
        match (self.0.as_slice(), other.0.as_slice()) {
            (_, [Word::Number(0)]) => self,
            ([Word::Number(0)], _) => other,
            (_, [Word::Number(n)]) if *n < 0 && *n > i64::MIN => {
                self.joined(Formula::number(-n), Word::Subtract)
            }
            _ => self.joined(other, Word::Add),
        }
    }

    /// The difference.
    pub fn minus(self, other: Formula) -> Formula {
        self.joined(other, Word::Subtract)
    }

    /// The product.
    pub fn times(self, other: Formula) -> Formula {
        match (self.0.as_slice(), other.0.as_slice()) {
            (_, [Word::Number(1)]) => self,
            ([Word::Number(1)], _) => other,
            _ => self.joined(other, Word::Multiply),
        }
    }

    /// The quotient by a number above 0, rounded down.
    pub fn over(self, divisor: i64) -> Formula {
        if divisor == 1 { self } else { self.joined(Formula::number(divisor), Word::Divide) }
    }

    /// 1 where this is less than the other one, else 0.
    pub fn less(self, other: Formula) -> Formula {
        self.joined(other, Word::Less)
    }

    /// Reads a formula of at most [`MOST_WORDS`] words over this many symbols.
    pub fn parse(text: &str, symbols: usize) -> Option<Formula> {
        let word = |w: &str| {
            Some(match w {
                "+" => Word::Add,
                "-" => Word::Subtract,
                "*" => Word::Multiply,
                "/" => Word::Divide,
                "<" => Word::Less,
                _ => match w.strip_prefix('s') {
                    Some(n) => Word::Symbol(n.parse().ok().filter(|n| (*n as usize) < symbols)?),
                    None => Word::Number(w.parse().ok()?),
                },
            })
        };
        let words: Vec<Word> = text.split(' ').map(word).collect::<Option<_>>()?;
        let mut depth = 0usize;
        for w in &words {
            depth = match w {
                Word::Number(_) | Word::Symbol(_) => depth + 1,
                _ => depth.checked_sub(1).filter(|d| *d > 0)?,
            };
        }
        (depth == 1 && words.len() <= MOST_WORDS).then_some(Formula(words))
    }

    /// The formula with another one in the place of the first symbol.
    pub fn over_symbol(&self, inner: &Formula) -> Formula {
        let mut words = Vec::new();
        for word in &self.0 {
            match word {
                Word::Symbol(0) => words.extend(&inner.0),
                other => words.push(*other),
            }
        }
        Formula(words)
    }

    /// Whether it has a quotient.
    pub fn divides(&self) -> bool {
        self.0.contains(&Word::Divide)
    }

    /// How many words it has.
    pub fn words(&self) -> usize {
        self.0.len()
    }

    /// The formula as users write it, over names of the symbols: `(seq + 1) / 2`.
    pub fn shown(&self, names: &[&str]) -> String {
        let mut stack: Vec<(String, bool)> = Vec::new();
        for word in &self.0 {
            let made = match word {
                Word::Number(n) => (n.to_string(), true),
                Word::Symbol(n) => (names.get(*n as usize).unwrap_or(&"?").to_string(), true),
                _ => {
                    let (b, a) = (stack.pop().unwrap_or_default(), stack.pop().unwrap_or_default());
                    let sign = match word {
                        Word::Add => "+",
                        Word::Subtract => "-",
                        Word::Multiply => "*",
                        Word::Less => "<",
                        _ => "/",
                    };
                    let of = |(text, is_one): (String, bool)| {
                        if is_one { text } else { format!("({text})") }
                    };
                    (format!("{} {sign} {}", of(a), of(b)), false)
                }
            };
            stack.push(made);
        }
        stack.pop().unwrap_or_default().0
    }

    /// Its value at some extents, one a symbol; `None` where it leaves 64 bits or divides by a
    /// number that is not above 0.
    pub fn at(&self, extents: &[i64]) -> Option<i64> {
        let mut stack: Vec<i64> = Vec::new();
        for word in &self.0 {
            let value = match word {
                Word::Number(n) => *n,
                Word::Symbol(n) => *extents.get(*n as usize)?,
                _ => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    match word {
                        Word::Add => a.checked_add(b)?,
                        Word::Subtract => a.checked_sub(b)?,
                        Word::Multiply => a.checked_mul(b)?,
                        Word::Less => i64::from(a < b),
                        _ if b > 0 => a.div_euclid(b),
                        _ => return None,
                    }
                }
            };
            stack.push(value);
        }
        stack.pop()
    }
}

impl Display for Formula {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, word) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            match word {
                Word::Number(n) => write!(f, "{n}")?,
                Word::Symbol(n) => write!(f, "s{n}")?,
                Word::Add => f.write_str("+")?,
                Word::Subtract => f.write_str("-")?,
                Word::Multiply => f.write_str("*")?,
                Word::Divide => f.write_str("/")?,
                Word::Less => f.write_str("<")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_print_parse_and_evaluate() {
        let tiles = Formula::symbol(0).plus(Formula::number(7)).over(8);
        let f = tiles.times(Formula::number(768)).plus(Formula::number(-5));
        assert_eq!(f.to_string(), "s0 7 + 8 / 768 * 5 -");
        assert_eq!(Formula::parse(&f.to_string(), 1), Some(f.clone()));
        assert_eq!(f.shown(&["seq"]), "(((seq + 7) / 8) * 768) - 5");
        assert_eq!([f.at(&[1]), f.at(&[8]), f.at(&[9])], [Some(763), Some(763), Some(1531)]);
        assert_eq!(Formula::parse("s0 -7 + 8 /", 1).and_then(|f| f.at(&[0])), Some(-1));
        assert_eq!(f.over_symbol(&Formula::parse("s0 2 /", 1).unwrap()).at(&[17]), f.at(&[8]));
        assert_eq!(Formula::number(3).less(Formula::symbol(0)).at(&[4]), Some(1));
    }

    #[test]
    fn texts_that_are_no_formulas_are_refused() {
        for text in ["", "s0 s0", "+", "s0 +", "s1", "1  2 +", "1 2 x", "9223372036854775808"] {
            assert_eq!(Formula::parse(text, 1), None, "{text}");
        }
        let long = format!("1{}", " 1 +".repeat(MOST_WORDS));
        assert_eq!(Formula::parse(&long, 1), None);
        assert_eq!(Formula::parse("1 0 /", 0).and_then(|f| f.at(&[])), None);
        assert_eq!(Formula::parse(&format!("{} 2 *", i64::MAX), 0).and_then(|f| f.at(&[])), None);
    }
}
