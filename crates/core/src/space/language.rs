//! The parser of constraints over knobs, in text such as `32 <= block_x * block_y <= 1024`, as
//! users write them in kernel.toml. Output: a [`Term`], or an error with line and column.
//!
//! ```text
//! cond    := and (('or'|'||') and)*            and   := not (('and'|'&&') not)*
//! not     := ('not'|'!') not | compare
//! compare := sum (('<'|'<='|'>'|'>='|'=='|'!=') sum)* | sum ['not'] 'in' list | sum 'divides' sum
//! sum     := product (('+'|'-') product)*      product := unary (('*'|'/'|'//'|'%') unary)*
//! unary   := ('-'|'+') unary | power           power   := atom ['**' unary]
//! atom    := number | 'True' | 'False' | 'quoted' | name | '(' cond ')'
//!          | ('min'|'max') '(' cond, cond, .. ')' | 'abs' '(' cond ')'
//! list    := '[' cond, .. ']' | '(' cond, .. ')' | 'range' '(' [cond,] cond [, cond] ')'
//! ```
//!
//! The language is the common part of Python and of Kernel Tuner's restrictions, with their
//! meaning: chained comparison holds where every link does, `/` divides exactly, `//` and `%` round
//! down. Terms are integers, so a quotient is carried as a fraction until a comparison cancels it.
//! A constraint that divides by zero does not hold.

use super::operand::{KnobOperand, common, compared, extreme, negated, not, product};
use super::{Knob, Term, Value};
use crate::text::{Cursor, TextError, nearest};

/// The deepest nesting that is read; real constraints nest less.
const MAX_DEPTH: usize = 100;
/// The largest term that is built. Real constraints are smaller, but a fraction of fractions
/// doubles with every step.
const MAX_SIZE: usize = 20_000;
const TOO_LARGE: &str = "this expression is too large";
/// The longest list that `range` may stand for.
const MAX_RANGE: i64 = 1 << 20;

/// The meaning of names in a constraint.
#[derive(Clone, Copy, Default)]
pub struct Names<'a> {
    /// The space's knobs.
    pub knobs: &'a [Knob],
    /// Fixed numbers: problem sizes.
    pub constants: &'a [(String, i64)],
}

impl Term {
    /// Reads a constraint.
    pub fn parse(text: &str, names: Names) -> Result<Term, TextError> {
        let mut p = Parser { cursor: Cursor::new(text)?, names, variable: None, depth: 0 };
        if p.cursor.at_end() {
            return p.cursor.error("expected a condition, found nothing");
        }
        let place = p.cursor.place();
        let condition = p.condition()?;
        p.end()?;
        p.truth(place, condition)
    }
}

/// Reads a list of values: `[1, 2, 4]`, `[32 * i for i in range(1, 32)]`, lists joined by `+`, or
/// `range(1, 9)`.
pub fn parse_values(text: &str, constants: &[(String, i64)]) -> Result<Vec<Value>, TextError> {
    let mut p = Parser {
        cursor: Cursor::new(text)?,
        names: Names { knobs: &[], constants },
        variable: None,
        depth: 0,
    };
    let mut values = p.values()?;
    while p.cursor.accept("+") {
        values.extend(p.values()?);
    }
    p.end()?;
    Ok(values)
}

const COMPARISONS: [&str; 6] = ["<=", ">=", "==", "!=", "<", ">"];

struct Parser<'a> {
    cursor: Cursor,
    names: Names<'a>,
    /// The variable of a comprehension.
    variable: Option<String>,
    depth: usize,
}

impl Parser<'_> {
    fn end(&self) -> Result<(), TextError> {
        if self.cursor.at_end() {
            return Ok(());
        }
        let hint = if self.cursor.peek_sign("=") { " (equality is `==`)" } else { "" };
        self.cursor
            .error(format!("expected an operator or the end, found {}{hint}", self.cursor.found()))
    }

    fn nested<T>(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<T, TextError>,
    ) -> Result<T, TextError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.cursor.error("nested too deeply");
        }
        let r = f(self);
        self.depth -= 1;
        r
    }

    fn either(&mut self, word: &str, sign: &str) -> bool {
        self.cursor.accept_word(word) || self.cursor.accept(sign)
    }

    /// A number, for arithmetic.
    fn number(&self, place: usize, o: KnobOperand) -> Result<KnobOperand, TextError> {
        if let Some(t) = &o.text {
            return self.cursor.error_at(
                place,
                format!("'{t}' is no number; a text can only be compared with a knob"),
            );
        }
        if o.top.size() + o.bottom.as_ref().map_or(0, Term::size) > MAX_SIZE {
            return self.cursor.error_at(place, TOO_LARGE);
        }
        Ok(KnobOperand { knob: None, ..o })
    }

    /// A term that holds where the operand is not zero.
    fn truth(&self, place: usize, o: KnobOperand) -> Result<Term, TextError> {
        let o = self.number(place, o)?;
        Ok(match o.bottom {
            Some(d) => {
                self.number(
                    place,
                    Term::sum([o.top, Term::Mod(Box::new(Term::Const(0)), Box::new(d))]).into(),
                )?
                .top
            }
            None => o.top,
        })
    }

    fn condition(&mut self) -> Result<KnobOperand, TextError> {
        self.nested(|p| p.joined(true))
    }

    /// Alternatives (`any`) of conjunctions of conditions.
    fn joined(&mut self, any: bool) -> Result<KnobOperand, TextError> {
        let place = self.cursor.place();
        let first = if any { self.joined(false)? } else { self.negation()? };
        let (word, sign) = if any { ("or", "||") } else { ("and", "&&") };
        if self.cursor.peek_name() != Some(word) && !self.cursor.peek_sign(sign) {
            return Ok(first);
        }
        let mut all = vec![self.truth(place, first)?];
        while self.either(word, sign) {
            let place = self.cursor.place();
            let next = if any { self.joined(false)? } else { self.negation()? };
            all.push(self.truth(place, next)?);
        }
        let term = if any { Term::Or(all) } else { Term::And(all) };
        Ok(term.into())
    }

    fn negation(&mut self) -> Result<KnobOperand, TextError> {
        if !self.either("not", "!") {
            return self.comparison();
        }
        let place = self.cursor.place();
        let o = self.nested(|p| p.negation())?;
        Ok(not(self.truth(place, o)?).into())
    }

    fn comparison(&mut self) -> Result<KnobOperand, TextError> {
        let mut place = self.cursor.place();
        let mut left = self.sum()?;
        let mut links = Vec::new();
        loop {
            let sign = COMPARISONS.into_iter().find(|s| self.cursor.accept(s));
            let (link, right) = if let Some(sign) = sign {
                let at = self.cursor.place();
                let right = self.sum()?;
                let (a, b) =
                    self.sides(place, left, at, right.clone(), sign == "==" || sign == "!=")?;
                place = at;
                (compared(sign, &a, &b), right)
            } else if self.cursor.accept_word("divides") {
                let at = self.cursor.place();
                let right = self.sum()?;
                let (a, b) = (self.number(place, left)?, self.number(at, right.clone())?);
                let (x, y, _) = common(&a, &b);
                place = at;
                (x.divides(y), right)
            } else if self.cursor.peek_name() == Some("in")
                || self.cursor.peek_name() == Some("not")
            {
                let negative = self.cursor.accept_word("not");
                if !self.cursor.accept_word("in") {
                    return self.cursor.error(format!(
                        "expected `in` after `not`, found {}",
                        self.cursor.found()
                    ));
                }
                let (mut any, mut size) = (Vec::new(), 0);
                for (at, item) in self.list()? {
                    let (a, b) = self.sides(place, left.clone(), at, item, true)?;
                    let equal = compared("==", &a, &b);
                    size += equal.size();
                    if size > MAX_SIZE {
                        return self.cursor.error_at(place, TOO_LARGE);
                    }
                    any.push(equal);
                }
                let any = Term::Or(any);
                links.push(if negative { not(any) } else { any });
                break;
            } else {
                break;
            };
            links.push(link);
            left = right;
        }
        Ok(match links.len() {
            0 => left,
            1 => links.remove(0).into(),
            _ => Term::And(links).into(),
        })
    }

    /// Both sides of a comparison as numbers: a text becomes the position of that value of the
    /// knob on the other side.
    fn sides(
        &self,
        pa: usize,
        a: KnobOperand,
        pb: usize,
        b: KnobOperand,
        equality: bool,
    ) -> Result<(KnobOperand, KnobOperand), TextError> {
        let position = |place: usize,
                        text: &str,
                        other: &KnobOperand|
         -> Result<KnobOperand, TextError> {
            let Some(knob) = other.knob.map(|k| &self.names.knobs[k]) else {
                return self.cursor.error_at(
                    place,
                    format!("'{text}' is no number; a text can only be compared with a knob"),
                );
            };
            if !equality {
                return self.cursor.error_at(
                    place,
                    format!(
                        "the words of `{}` have no order: compare with `==`, `!=` or `in`",
                        knob.name
                    ),
                );
            }
            let words: Vec<String> = knob.values.iter().map(Value::to_string).collect();
            let found = knob.values.iter().position(|v| matches!(v, Value::Word(w) if w == text));
            let near = || nearest(text, &words.iter().map(String::as_str).collect::<Vec<_>>());
            match found {
                Some(i) => Ok(Term::Const(i as i64).into()),
                None => self
                    .cursor
                    .error_at(place, format!("`{}` has no value '{text}'{}", knob.name, near())),
            }
        };
        match (&a.text, &b.text) {
            (Some(t), None) => Ok((position(pa, t, &b)?, b)),
            (None, Some(t)) => {
                let t = position(pb, t, &a)?;
                Ok((a, t))
            }
            _ => Ok((self.number(pa, a)?, self.number(pb, b)?)),
        }
    }

    /// The items of a list, with where they stand.
    fn list(&mut self) -> Result<Vec<(usize, KnobOperand)>, TextError> {
        if self.cursor.peek_name() == Some("range") {
            let place = self.cursor.place();
            return Ok(self.range()?.into_iter().map(|i| (place, Term::Const(i).into())).collect());
        }
        let open = ["[", "("].into_iter().find(|s| self.cursor.accept(s));
        let Some(open) = open else {
            return self
                .cursor
                .error(format!("expected a list like `[1, 2, 4]`, found {}", self.cursor.found()));
        };
        let close = if open == "[" { "]" } else { ")" };
        let mut items = Vec::new();
        while !self.cursor.accept(close) {
            let place = self.cursor.place();
            items.push((place, self.condition()?));
            if !self.cursor.accept(",") {
                self.cursor.expect(close)?;
                break;
            }
        }
        Ok(items)
    }

    fn sum(&mut self) -> Result<KnobOperand, TextError> {
        let mut place = self.cursor.place();
        let mut a = self.product()?;
        loop {
            let minus = self.cursor.peek_sign("-");
            if !self.cursor.accept("+") && !self.cursor.accept("-") {
                return Ok(a);
            }
            let at = self.cursor.place();
            let b = self.product()?;
            let (x, y) = (self.number(place, a)?, self.number(at, b)?);
            let (s, t, bottom) = common(&x, &y);
            let top = Term::sum([s, if minus { negated(t) } else { t }]);
            a = KnobOperand { bottom, ..top.into() };
            place = at;
        }
    }

    fn product(&mut self) -> Result<KnobOperand, TextError> {
        let mut place = self.cursor.place();
        let mut a = self.unary()?;
        loop {
            let Some(sign) = ["*", "//", "/", "%"].into_iter().find(|s| self.cursor.accept(s))
            else {
                return Ok(a);
            };
            let at = self.cursor.place();
            let b = self.unary()?;
            let (x, y) = (self.number(place, a)?, self.number(at, b)?);
            let (top, bottom) = match sign {
                "*" => {
                    let bottom = match (&x.bottom, y.bottom) {
                        (Some(b), y) => Some(product(b, &y)),
                        (None, y) => y,
                    };
                    (Term::product([x.top, y.top]), bottom)
                }
                "/" => (product(&x.top, &y.bottom), Some(product(&y.top, &x.bottom))),
                "//" => {
                    let (s, t, _) = common(&x, &y);
                    (Term::FloorDiv(Box::new(s), Box::new(t)), None)
                }
                // x - y * floor(x / y), over one denominator.
                _ => {
                    let (s, t, bottom) = common(&x, &y);
                    (Term::Mod(Box::new(s), Box::new(t)), bottom)
                }
            };
            a = KnobOperand { bottom, ..top.into() };
            place = at;
        }
    }

    fn unary(&mut self) -> Result<KnobOperand, TextError> {
        let minus = self.cursor.accept("-");
        if !minus && !self.cursor.accept("+") {
            return self.power();
        }
        let place = self.cursor.place();
        let o = self.nested(|p| p.unary())?;
        let o = self.number(place, o)?;
        Ok(if minus { KnobOperand { top: negated(o.top), ..o } } else { o })
    }

    fn power(&mut self) -> Result<KnobOperand, TextError> {
        let place = self.cursor.place();
        let a = self.atom()?;
        if !self.cursor.accept("**") {
            return Ok(a);
        }
        let at = self.cursor.place();
        let b = self.nested(|p| p.unary())?;
        let (a, b) = (self.number(place, a)?, self.number(at, b)?);
        if b.bottom.is_some() {
            return self.cursor.error_at(at, "an exponent must be a whole number");
        }
        let raise = |t: Term| Term::Pow(Box::new(t), Box::new(b.top.clone()));
        let bottom = a.bottom.map(raise);
        Ok(KnobOperand { bottom, ..raise(a.top).into() })
    }

    fn atom(&mut self) -> Result<KnobOperand, TextError> {
        if let Some(i) = self.cursor.accept_int() {
            return Ok(Term::Const(i).into());
        }
        let place = self.cursor.place();
        if let Some(x) = self.cursor.accept_float() {
            return self.decimal(place, x);
        }
        if let Some(t) = self.cursor.accept_quoted() {
            return Ok(KnobOperand { text: Some(t), ..Term::Const(0).into() });
        }
        if self.cursor.accept("(") {
            let o = self.condition()?;
            self.cursor.expect(")")?;
            return Ok(o);
        }
        let Some(name) = self.cursor.peek_name().map(str::to_string) else {
            return self
                .cursor
                .error(format!("expected a number, a knob or `(`, found {}", self.cursor.found()));
        };
        if self.variable.as_ref() == Some(&name) {
            self.cursor.name()?;
            return Ok(Term::Knob(name).into());
        }
        if let Some(k) = self.names.knobs.iter().position(|k| k.name == name) {
            self.cursor.name()?;
            return Ok(KnobOperand { knob: Some(k), ..Term::Knob(name).into() });
        }
        if let Some((_, n)) = self.names.constants.iter().find(|(c, _)| *c == name) {
            self.cursor.name()?;
            return Ok(Term::Const(*n).into());
        }
        match name.as_str() {
            "True" | "true" | "False" | "false" => {
                self.cursor.name()?;
                Ok(Term::Const(i64::from(name.eq_ignore_ascii_case("true"))).into())
            }
            "min" | "max" | "abs" => {
                self.cursor.name()?;
                self.call(&name)
            }
            _ => {
                let mut known: Vec<&str> =
                    self.names.knobs.iter().map(|k| k.name.as_str()).collect();
                known.extend(self.names.constants.iter().map(|(n, _)| n.as_str()));
                known.extend(["min", "max", "abs"]);
                self.cursor.error(format!("there is no knob `{name}`{}", nearest(&name, &known)))
            }
        }
    }

    /// A decimal number as a fraction over a power of ten.
    fn decimal(&self, place: usize, x: f64) -> Result<KnobOperand, TextError> {
        let mut scale = 1i64;
        while scale <= 1_000_000_000 {
            let y = x * scale as f64;
            if y == y.round() && y.abs() < 9e15 {
                let bottom = (scale > 1).then_some(Term::Const(scale));
                return Ok(KnobOperand { bottom, ..Term::Const(y as i64).into() });
            }
            scale *= 10;
        }
        self.cursor.error_at(place, format!("`{x}` has too many digits"))
    }

    fn call(&mut self, name: &str) -> Result<KnobOperand, TextError> {
        self.cursor.expect("(")?;
        let place = self.cursor.place();
        let first = self.condition()?;
        let mut o = self.number(place, first)?;
        if name == "abs" {
            let minus = KnobOperand { top: negated(o.top.clone()), ..o.clone() };
            o = extreme("max", &o, &minus);
        } else {
            if !self.cursor.peek_sign(",") {
                return self.cursor.error(format!("`{name}` takes two arguments or more"));
            }
            while self.cursor.accept(",") {
                let place = self.cursor.place();
                let next = self.condition()?;
                let next = self.number(place, next)?;
                o = extreme(name, &o, &next);
                o = self.number(place, o)?;
            }
        }
        self.cursor.expect(")")?;
        Ok(o)
    }

    /// `range(end)`, `range(start, end)`, `range(start, end, step)`.
    fn range(&mut self) -> Result<Vec<i64>, TextError> {
        let place = self.cursor.place();
        self.cursor.expect_word("range")?;
        self.cursor.expect("(")?;
        let mut arguments = Vec::new();
        loop {
            let at = self.cursor.place();
            let o = self.condition()?;
            arguments.push(self.constant(at, o)?);
            if !self.cursor.accept(",") {
                break;
            }
        }
        self.cursor.expect(")")?;
        let (start, end, step) = match arguments[..] {
            [end] => (0, end, 1),
            [start, end] => (start, end, 1),
            [start, end, step] if step != 0 => (start, end, step),
            _ => {
                return self
                    .cursor
                    .error_at(place, "`range` takes a start, an end and a step other than zero");
            }
        };
        let mut out = Vec::new();
        let mut i = start;
        while if step > 0 { i < end } else { i > end } {
            if out.len() as i64 >= MAX_RANGE {
                return self
                    .cursor
                    .error_at(place, format!("this range has more than {MAX_RANGE} numbers"));
            }
            out.push(i);
            match i.checked_add(step) {
                Some(next) => i = next,
                None => break,
            }
        }
        Ok(out)
    }

    /// The value of an operand without knobs.
    fn constant(&self, place: usize, o: KnobOperand) -> Result<i64, TextError> {
        let o = self.number(place, o)?;
        let whole = |t: &Term| match t.bind("", 0) {
            Some(Term::Const(i)) => Some(i),
            _ => None,
        };
        let value = match &o.bottom {
            None => whole(&o.top),
            Some(d) => whole(&o.top)
                .zip(whole(d))
                .filter(|(t, d)| *d != 0 && t.checked_rem(*d) == Some(0))
                .map(|(t, d)| t / d),
        };
        value.map_or_else(|| self.cursor.error_at(place, "expected a whole number"), Ok)
    }

    /// A list of values, or a comprehension over a range or another list.
    fn values(&mut self) -> Result<Vec<Value>, TextError> {
        if self.cursor.peek_name() == Some("range") {
            return Ok(self.range()?.into_iter().map(Value::Int).collect());
        }
        self.cursor.expect("[")?;
        if let Some(variable) = self.cursor.comprehension() {
            self.variable = Some(variable.clone());
            let place = self.cursor.place();
            let o = self.condition()?;
            self.cursor.expect_word("for")?;
            self.cursor.name()?;
            self.cursor.expect_word("in")?;
            self.variable = None;
            let over: Vec<i64> = if self.cursor.peek_name() == Some("range") {
                self.range()?
            } else {
                let items = self.list()?;
                items.into_iter().map(|(at, o)| self.constant(at, o)).collect::<Result<_, _>>()?
            };
            self.cursor.expect("]")?;
            let at = |t: &Term, i: i64| t.bind(&variable, i);
            return over
                .into_iter()
                .map(|i| {
                    let bound = at(&o.top, i)
                        .zip(o.bottom.as_ref().map_or(Some(None), |d| at(d, i).map(Some)));
                    match bound {
                        Some((top, bottom)) => Ok(Value::Int(
                            self.constant(place, KnobOperand { top, bottom, ..o.clone() })?,
                        )),
                        None => self
                            .cursor
                            .error_at(place, format!("this has no value for {variable} = {i}")),
                    }
                })
                .collect();
        }
        let mut out = Vec::new();
        while !self.cursor.accept("]") {
            let place = self.cursor.place();
            let o = self.condition()?;
            out.push(match o.text {
                Some(t) => Value::Word(t),
                None => Value::Int(self.constant(place, o)?),
            });
            if !self.cursor.accept(",") {
                self.cursor.expect("]")?;
                break;
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
#[path = "language_tests.rs"]
mod tests;
