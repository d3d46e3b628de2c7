//! The lexer and the parser of expressions that Squall's small text languages share: workloads
//! (`workload/format.rs`), loop nests and schedules (in `compiler`), and constraints over knobs.
//! Errors have a line and a column.
//!
//! ```text
//! expr   := term (('+'|'-') term)*        term := factor (('*'|'/') factor)*
//! factor := number | name '[' affine, .. ']' | name '(' expr, .. ')' | '(' expr ')'
//!         | 'select' '(' cond ('and' cond)* ',' expr ',' expr ')'
//! affine := ['-'] aterm (('+'|'-') aterm)*   aterm := int | int '*' name | name ['*' int]
//! cond   := int '<=' affine '<' int
//! ```

use crate::expr::{Affine, Binary, Cond, DType, Expr, Source, Unary, Var};
use std::collections::HashMap;

/// A fault in a text and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct TextError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1 in characters.
    pub column: usize,
    /// The token that was expected or found.
    pub message: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Int(i64),
    Float(f64),
    Sign(&'static str),
    /// A text between quotes, `'` or `"`.
    Quoted(String),
    End,
}

const SIGNS: &[&str] = &[
    "**", "//", "==", "!=", ">=", "&&", "||", "<=", "+=", "max=", "min=", "*=", "..", "->", "[",
    "]", "(", ")", "{", "}", ",", ":", "=", "+", "-", "*", "/", "<", "@", ">", "%", "!",
];
/// The deepest nesting that is read. Real expressions nest less, and hostile ones must not overflow
/// the stack.
const MAX_DEPTH: usize = 200;

/// Reads a text token by token.
pub struct Cursor {
    tokens: Vec<(Token, usize, usize)>,
    at: usize,
    depth: usize,
}

/// Resolves the names of variables and sources.
#[derive(Default)]
pub struct Scope {
    /// The variables that may be named.
    pub vars: HashMap<String, Var>,
    /// The tensors or buffers that may be named.
    pub sources: HashMap<String, Source>,
}

impl Cursor {
    /// Splits `text` into tokens; `#` starts a comment.
    pub fn new(text: &str) -> Result<Cursor, TextError> {
        let mut tokens = Vec::new();
        let mut line_no = 0;
        for line in text.lines() {
            line_no += 1;
            let code = line.split('#').next().unwrap_or("");
            let mut rest = code;
            while let Some(c) = rest.chars().next() {
                let column = code[..code.len() - rest.len()].chars().count() + 1;
                let err = |message: String| TextError { line: line_no, column, message };
                if c.is_whitespace() {
                    rest = &rest[c.len_utf8()..];
                    continue;
                }
                if let Some(s) = SIGNS.iter().find(|s| rest.starts_with(**s)) {
                    tokens.push((Token::Sign(s), line_no, column));
                    rest = &rest[s.len()..];
                } else if c.is_ascii_digit() {
                    let bytes = rest.as_bytes();
                    let mut n = 0;
                    let mut float = false;
                    while n < bytes.len() {
                        match bytes[n] {
                            b'0'..=b'9' => {}
                            b'.' if bytes.get(n + 1) != Some(&b'.') => float = true,
                            b'e' | b'E' => float = true,
                            b'-' | b'+' if n > 0 && matches!(bytes[n - 1], b'e' | b'E') => {}
                            _ => break,
                        }
                        n += 1;
                    }
                    let word = &rest[..n];
                    let t = if float {
                        Token::Float(
                            word.parse().map_err(|_| err(format!("`{word}` is not a number")))?,
                        )
                    } else {
                        match word.parse() {
                            Ok(i) => Token::Int(i),
                            Err(_) => Token::Float(
                                word.parse()
                                    .map_err(|_| err(format!("`{word}` is not a number")))?,
                            ),
                        }
                    };
                    tokens.push((t, line_no, column));
                    rest = &rest[n..];
                } else if c.is_alphabetic() || c == '_' {
                    let n = rest
                        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '\''))
                        .unwrap_or(rest.len());
                    tokens.push((Token::Name(rest[..n].to_string()), line_no, column));
                    rest = &rest[n..];
                } else if c == '\'' || c == '"' {
                    let Some(n) = rest[1..].find(c) else {
                        return Err(err(format!("the quote {c} is not closed")));
                    };
                    tokens.push((Token::Quoted(rest[1..=n].to_string()), line_no, column));
                    rest = &rest[n + 2..];
                } else {
                    return Err(err(format!("unexpected character `{c}`")));
                }
            }
        }
        tokens.push((Token::End, line_no + 1, 1));
        Ok(Cursor { tokens, at: 0, depth: 0 })
    }

    fn token(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn advance(&mut self) {
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    /// An error at the current token.
    pub fn error<T>(&self, message: impl Into<String>) -> Result<T, TextError> {
        let (_, line, column) = self.tokens[self.at];
        Err(TextError { line, column, message: message.into() })
    }

    /// The current token as messages show it.
    pub fn found(&self) -> String {
        match self.token() {
            Token::Name(n) => format!("`{n}`"),
            Token::Int(i) => format!("`{i}`"),
            Token::Float(x) => format!("`{x}`"),
            Token::Sign(s) => format!("`{s}`"),
            Token::Quoted(t) => format!("'{t}'"),
            Token::End => "the end".into(),
        }
    }

    /// Whether every token was read.
    pub fn at_end(&self) -> bool {
        *self.token() == Token::End
    }

    /// The line (from 1) of the current token.
    pub fn line(&self) -> usize {
        self.tokens[self.at].1
    }

    /// Takes the sign if it is next.
    pub fn accept(&mut self, sign: &str) -> bool {
        let yes = matches!(self.token(), Token::Sign(s) if *s == sign);
        if yes {
            self.advance();
        }
        yes
    }

    /// Whether the sign is next, without taking it.
    pub fn peek_sign(&self, sign: &str) -> bool {
        matches!(self.token(), Token::Sign(s) if *s == sign)
    }

    /// Takes the sign or fails.
    pub fn expect(&mut self, sign: &str) -> Result<(), TextError> {
        if self.accept(sign) {
            Ok(())
        } else {
            self.error(format!("expected `{sign}`, found {}", self.found()))
        }
    }

    /// The next name without taking it.
    pub fn peek_name(&self) -> Option<&str> {
        match self.token() {
            Token::Name(n) => Some(n),
            _ => None,
        }
    }

    /// Whether a name, `(`, a name and `:` come next: a reduction, not a function call.
    pub fn reduction_ahead(&self) -> bool {
        let t = |i: usize| self.tokens.get(self.at + i).map(|t| &t.0);
        matches!(t(1), Some(Token::Sign("(")))
            && matches!(t(2), Some(Token::Name(_)))
            && matches!(t(3), Some(Token::Sign(":")))
    }

    /// The variable of a comprehension, `.. for NAME in ..`, if one is ahead before a bracket
    /// closes.
    pub fn comprehension(&self) -> Option<String> {
        let ahead = self.tokens[self.at..].iter().map(|(t, ..)| t);
        let mut ahead = ahead
            .take_while(|t| **t != Token::Sign("]"))
            .skip_while(|t| !matches!(t, Token::Name(n) if n == "for"));
        ahead.next()?;
        if let Some(Token::Name(n)) = ahead.next() { Some(n.clone()) } else { None }
    }

    /// Takes this word if it is next.
    pub fn accept_word(&mut self, word: &str) -> bool {
        let yes = self.peek_name() == Some(word);
        if yes {
            self.advance();
        }
        yes
    }

    /// Takes this word or fails.
    pub fn expect_word(&mut self, word: &str) -> Result<(), TextError> {
        if self.accept_word(word) {
            Ok(())
        } else {
            self.error(format!("expected `{word}`, found {}", self.found()))
        }
    }

    /// Takes a name.
    pub fn name(&mut self) -> Result<String, TextError> {
        match self.token() {
            Token::Name(n) => {
                let n = n.clone();
                self.advance();
                Ok(n)
            }
            _ => self.error(format!("expected a name, found {}", self.found())),
        }
    }

    /// The place of the current token, for [`Cursor::error_at`].
    pub fn place(&self) -> usize {
        self.at
    }

    /// An error at a token that was taken already.
    pub fn error_at<T>(&self, place: usize, message: impl Into<String>) -> Result<T, TextError> {
        let (_, line, column) = self.tokens[place.min(self.tokens.len() - 1)];
        Err(TextError { line, column, message: message.into() })
    }

    /// Takes the integer if one without sign is next.
    pub fn accept_int(&mut self) -> Option<i64> {
        let Token::Int(i) = *self.token() else { return None };
        self.advance();
        Some(i)
    }

    /// Takes the number with a point or exponent if one is next.
    pub fn accept_float(&mut self) -> Option<f64> {
        let Token::Float(x) = *self.token() else { return None };
        self.advance();
        Some(x)
    }

    /// Takes the text between quotes if one is next.
    pub fn accept_quoted(&mut self) -> Option<String> {
        let Token::Quoted(t) = self.token().clone() else { return None };
        self.advance();
        Some(t)
    }

    /// Takes a number of any form, with optional minus.
    pub fn number(&mut self) -> Result<f64, TextError> {
        let negative = self.accept("-");
        match self.accept_float().or_else(|| self.accept_int().map(|i| i as f64)) {
            Some(x) => Ok(if negative { -x } else { x }),
            None => self.error(format!("expected a number, found {}", self.found())),
        }
    }

    /// Takes an integer with optional minus.
    pub fn int(&mut self) -> Result<i64, TextError> {
        let negative = self.accept("-");
        match *self.token() {
            Token::Int(i) => {
                self.advance();
                Ok(if negative { -i } else { i })
            }
            _ => self.error(format!("expected an integer, found {}", self.found())),
        }
    }

    /// Takes a positive integer not above 2^40: an extent.
    pub fn extent(&mut self) -> Result<i64, TextError> {
        let at = self.at;
        match self.int()? {
            i if (1..=1 << 40).contains(&i) => Ok(i),
            i => {
                self.at = at;
                self.error(format!("an extent must be between 1 and 2^40, not {i}"))
            }
        }
    }

    /// Takes the name of a format that kernels are written in.
    pub fn dtype(&mut self) -> Result<DType, TextError> {
        let known = |n: &str| DType::OF_KERNELS.into_iter().find(|d| d.name() == n);
        match self.peek_name().and_then(known) {
            Some(d) => {
                self.advance();
                Ok(d)
            }
            None => self.error(format!(
                "expected a format ({}), found {}",
                DType::OF_KERNELS.map(DType::name).join(", "),
                self.found()
            )),
        }
    }

    /// Reads an affine form.
    pub fn affine(&mut self, scope: &Scope) -> Result<Affine, TextError> {
        let mut a = Affine::constant(0);
        let mut sign = if self.accept("-") { -1 } else { 1 };
        loop {
            let mut coefficient = sign;
            let mut var = None;
            loop {
                match self.token().clone() {
                    Token::Int(i) => {
                        self.advance();
                        coefficient = match i64::checked_mul(coefficient, i) {
                            Some(c) if c.abs() <= 1 << 48 => c,
                            _ => return self.error("the coefficient is too large"),
                        };
                    }
                    Token::Name(n) => match scope.vars.get(&n) {
                        Some(&v) if var.is_none() => {
                            self.advance();
                            var = Some(v);
                        }
                        Some(_) => return self.error("a product of two variables is not affine"),
                        None => return self.error(format!("unknown variable `{n}`")),
                    },
                    _ => return self.error(format!("expected an index, found {}", self.found())),
                }
                if !self.accept("*") {
                    break;
                }
            }
            a = match var {
                Some(v) => a.add(&Affine::new([(v, coefficient)], 0)),
                None => a.plus(coefficient),
            };
            if self.accept("+") {
                sign = 1;
            } else if self.accept("-") {
                sign = -1;
            } else {
                return Ok(a);
            }
        }
    }

    /// Reads a condition, `low <= affine < high`.
    pub fn cond(&mut self, scope: &Scope) -> Result<Cond, TextError> {
        let low = self.int()?;
        self.expect("<=")?;
        let index = self.affine(scope)?;
        self.expect("<")?;
        Ok(Cond { index, low, high: self.int()? })
    }

    /// Reads conditions joined by `and`.
    pub fn conds(&mut self, scope: &Scope) -> Result<Vec<Cond>, TextError> {
        let mut conds = vec![self.cond(scope)?];
        while self.accept_word("and") {
            conds.push(self.cond(scope)?);
        }
        Ok(conds)
    }

    /// Reads an index, `[affine, ..]`.
    pub fn index(&mut self, scope: &Scope) -> Result<Vec<Affine>, TextError> {
        self.expect("[")?;
        let mut index = Vec::new();
        if !self.accept("]") {
            loop {
                index.push(self.affine(scope)?);
                if !self.accept(",") {
                    break;
                }
            }
            self.expect("]")?;
        }
        Ok(index)
    }

    /// Reads an expression.
    pub fn expr(&mut self, scope: &Scope) -> Result<Expr, TextError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.error("the expression is nested too deeply");
        }
        let mut e = self.term(scope)?;
        loop {
            let op = if self.accept("+") {
                Binary::Add
            } else if self.accept("-") {
                Binary::Sub
            } else {
                self.depth -= 1;
                return Ok(e);
            };
            e = Expr::binary(op, e, self.term(scope)?);
        }
    }

    fn term(&mut self, scope: &Scope) -> Result<Expr, TextError> {
        let mut e = self.factor(scope)?;
        loop {
            let op = if self.accept("*") {
                Binary::Mul
            } else if self.accept("/") {
                Binary::Div
            } else {
                return Ok(e);
            };
            e = Expr::binary(op, e, self.factor(scope)?);
        }
    }

    fn factor(&mut self, scope: &Scope) -> Result<Expr, TextError> {
        if self.accept("(") {
            let e = self.expr(scope)?;
            self.expect(")")?;
            return Ok(e);
        }
        if self.accept("-") {
            if self.accept_word("inf") {
                return Ok(Expr::Const(f64::NEG_INFINITY));
            }
            return match *self.token() {
                Token::Int(i) => {
                    self.advance();
                    Ok(Expr::Const(-(i as f64)))
                }
                Token::Float(x) => {
                    self.advance();
                    Ok(Expr::Const(-x))
                }
                _ => self.error(format!(
                    "expected a number after `-`, found {} (write neg(..))",
                    self.found()
                )),
            };
        }
        match self.token().clone() {
            Token::Int(i) => {
                self.advance();
                Ok(Expr::Const(i as f64))
            }
            Token::Float(x) => {
                self.advance();
                Ok(Expr::Const(x))
            }
            Token::Name(n) => {
                self.advance();
                if self.peek_sign("[") {
                    let Some(&source) = scope.sources.get(&n) else {
                        self.at -= 1;
                        return self.error(format!("unknown tensor `{n}`"));
                    };
                    return Ok(Expr::Load { source, index: self.index(scope)? });
                }
                match n.as_str() {
                    "inf" => return Ok(Expr::Const(f64::INFINITY)),
                    "nan" => return Ok(Expr::Const(f64::NAN)),
                    _ => {}
                }
                self.expect("(")?;
                let e = self.call(&n, scope)?;
                self.expect(")")?;
                Ok(e)
            }
            _ => self.error(format!("expected an expression, found {}", self.found())),
        }
    }

    fn call(&mut self, name: &str, scope: &Scope) -> Result<Expr, TextError> {
        if name == "select" {
            let conds = self.conds(scope)?;
            self.expect(",")?;
            let then = Box::new(self.expr(scope)?);
            self.expect(",")?;
            return Ok(Expr::Select { conds, then, other: Box::new(self.expr(scope)?) });
        }
        let first = self.expr(scope)?;
        if let Some((op, _)) = Unary::ALL.iter().find(|(_, n)| *n == name) {
            return Ok(Expr::unary(*op, first));
        }
        if let Some(t) = DType::from_name(name) {
            return Ok(Expr::Cast(t, Box::new(first)));
        }
        let op = match name {
            "max" => Binary::Max,
            "min" => Binary::Min,
            "pow" => Binary::Pow,
            "dot" => Binary::Dot,
            "dot_pair" => Binary::DotPair,
            "dot_words" => Binary::DotWords,
            "pair" => Binary::Pair,
            _ => return self.error(format!("unknown function `{name}`")),
        };
        self.expect(",")?;
        Ok(Expr::binary(op, first, self.expr(scope)?))
    }
}

/// A name from a file as messages print it: shortened, and without control characters.
pub fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(80).flat_map(char::escape_debug).collect();
    if text.chars().nth(80).is_some() {
        out.push_str("...");
    }
    out
}

/// A hint like `` (did you mean `stride`?) ``; empty where no known word is near.
pub fn nearest(word: &str, known: &[&str]) -> String {
    let near = known.iter().map(|k| (distance(word, k), k)).min();
    match near {
        Some((d, k)) if d > 0 && (d * 2 <= word.chars().count() || k.starts_with(word)) => {
            format!(" (did you mean `{k}`?)")
        }
        _ => String::new(),
    }
}

/// The Levenshtein distance of the first 32 characters of `a` from `b`. The limit keeps the time
/// small where a hostile text has long words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(32).collect(), b.chars().collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
