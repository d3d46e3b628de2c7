//! Number formats in kernels by vectors (CPUs): which C type each buffer's elements and each value
//! have. Arithmetic is in 32-bit floats; 32-bit integers, and elements that pack bytes or pairs of
//! bf16 for dot products, have integer lanes; 16-bit and 8-bit elements in memory are widened when
//! they are loaded and rounded when they are stored. Methods of the [`Printer`] that `printer.rs`
//! and `vectors.rs` call for each load, store and operation.

use super::printer::{Printer, Value};
use crate::nest::Scope;
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Expr, Source, Unary};
use squall_core::workload::Reducer;

impl Printer<'_> {
    /// Whether a buffer's elements are in integer lanes. In double precision all elements are
    /// floating-point numbers.
    pub(super) fn holds_whole(&self, b: Source) -> bool {
        let dtype = self.n.buffer(b).dtype;
        !self.o.double && (dtype == DType::I32 || dtype.is_packed())
    }

    /// Whether a buffer's elements are floats of 32 bits.
    pub(super) fn holds_floats(&self, b: Source) -> bool {
        !self.holds_whole(b) && reader(self.n.buffer(b).dtype).is_none()
    }

    /// Whether the value of an expression is in integer lanes.
    pub(super) fn is_whole(&self, e: &Expr) -> bool {
        match e {
            Expr::Load { source, .. } => self.holds_whole(*source),
            Expr::Binary(Binary::Dot | Binary::DotWords | Binary::Pair, ..) => !self.o.double,
            Expr::Unary(op, _) => op.makes_words() && !self.o.double,
            Expr::Select { then, other, .. } => self.is_whole(then) || self.is_whole(other),
            _ => false,
        }
    }

    /// The C type of a vector of this many lanes.
    pub(super) fn lane_type(&self, lanes: i64, whole: bool) -> String {
        match (lanes > 1, whole) {
            (false, true) => "int".into(),
            (false, false) => self.real().into(),
            (true, false) => self.vector_type(lanes),
            // Integer vectors have the names of float vectors with another first letter.
            (true, true) => self.vector_type(lanes).replacen('v', "i", 1),
        }
    }

    /// A value as a float.
    pub(super) fn as_float(&self, v: Value) -> Value {
        if !v.whole {
            return v;
        }
        let text = match (v.vector, self.simd.vector) {
            (true, Some((_, lanes))) => format!("{}({})", self.function("number", lanes), v.text),
            _ => format!("(float){}", v.text),
        };
        Value { text, whole: false, ..v }
    }

    /// A value in the lanes that are wanted.
    pub(super) fn value_as(&mut self, e: &Expr, whole: bool) -> Value {
        if let (Expr::Const(c), true) = (e, whole) {
            // Four bytes are written as what their bits are as a number with a sign.
            let text = (*c as i64 as i32).to_string();
            return Value { text, whole, ..Value::default() };
        }
        let v = self.value(e);
        match (whole, v.whole) {
            (false, true) => self.as_float(v),
            (true, false) => {
                let text = match (v.vector, self.simd.vector) {
                    (true, Some((_, l))) => format!("{}({})", self.function("whole", l), v.text),
                    _ => format!("(int){}", v.text),
                };
                Value { text, whole: true, factors: None, ..v }
            }
            _ => v,
        }
    }

    /// The product of four bytes with four, or of two numbers with two, added to a sum where one is
    /// given.
    pub(super) fn dot(&self, op: Binary, sum: Option<&str>, a: Value, b: Value) -> Value {
        let vector = a.vector || b.vector;
        let lanes = self.simd.vector.map_or(1, |v| v.1);
        let lanes = if vector { lanes } else { 1 };
        let name = match op {
            Binary::Dot => "dot",
            Binary::DotWords => "dot_words",
            _ => "dot_pair",
        };
        let of_whole = op != Binary::DotPair;
        let name = self.function(name, lanes);
        let [a, b] = [a, b].map(|x| if vector { self.widen(x, lanes) } else { x.text });
        let nothing = || match (vector, of_whole) {
            (true, true) => format!("{}(0)", self.function("all_whole", lanes)),
            (true, false) => self.widen(Value::scalar(self.constant(0.0)), lanes),
            (false, _) => "0".into(),
        };
        let text = format!("{name}({}, {a}, {b})", sum.map_or_else(nothing, String::from));
        Value { text, vector, whole: of_whole && !self.o.double, factors: None }
    }

    /// Two words of the four bytes of an element.
    pub(super) fn words(&mut self, op: Unary, bytes: &Expr) -> Value {
        let v = self.value_as(bytes, !self.o.double);
        let lanes = self.simd.vector.filter(|_| v.vector).map_or(1, |v| v.1);
        let text = format!("{}({})", self.function(op.name(), lanes), v.text);
        Value { text, factors: None, ..v }
    }

    /// Two numbers as one element.
    pub(super) fn pair(&self, low: Value, high: Value) -> Value {
        let vector = low.vector || high.vector;
        let lanes = self.simd.vector.filter(|_| vector).map_or(1, |v| v.1);
        let name = self.function("pair", lanes);
        let [a, b] = [low, high].map(|x| if vector { self.widen(x, lanes) } else { x.text });
        Value { text: format!("{name}({a}, {b})"), vector, whole: !self.o.double, factors: None }
    }

    /// The statement that adds a product of elements of several numbers to a place.
    pub(super) fn add_dot(
        &mut self,
        place: &str,
        op: Binary,
        a: &Expr,
        b: &Expr,
        lanes: i64,
    ) -> String {
        let [a, b] = [a, b].map(|e| self.value(e));
        let [a, b] = [a, b].map(|v| match lanes {
            1 => v,
            _ => Value { vector: true, whole: true, text: self.widen(v, lanes), factors: None },
        });
        format!("{place} = {};", self.dot(op, Some(place), a, b).text)
    }

    /// The statement that stores a value at a place of its own lanes, or combines it in.
    pub(super) fn combine(
        &self,
        b: Source,
        place: &str,
        op: Option<Reducer>,
        v: Value,
        lanes: i64,
    ) -> String {
        let whole = v.whole;
        let old = Value { text: place.into(), vector: lanes > 1, ..Value::default() };
        let v = match op {
            Some(Reducer::Sum) if !whole => match self.multiply_add(false, v, old) {
                Ok(sum) => return format!("{place} = {};", sum.text),
                Err([v, _]) => v,
            },
            _ => v,
        };
        let text = if lanes > 1 { self.widen(v, lanes) } else { v.text };
        match op {
            Some(op @ (Reducer::Max | Reducer::Min)) if whole => {
                let sign = if op == Reducer::Max { '>' } else { '<' };
                format!("{place} = {place} {sign} {text} ? {place} : {text};")
            }
            _ => self.combined(b, place, op, &text, lanes),
        }
    }

    /// The statement that stores one element of a buffer in memory, or combines it in.
    pub(super) fn store_element(
        &self,
        b: Source,
        place: &str,
        op: Option<Reducer>,
        v: Value,
    ) -> String {
        let Some(writer) = self.writer(b) else { return self.combine(b, place, op, v, 1) };
        let v = self.as_float(v);
        let new = match op {
            None => v.text,
            Some(r) => {
                let old = self.as_number(b, place.to_string());
                self.binary(r.binary(), Value::scalar(old), v).text
            }
        };
        match self.n.buffer(b).dtype {
            DType::F16 | DType::Bf16 => {
                self.helper(writer);
                format!("{place} = {writer}({new});")
            }
            d => format!("{place} = ({})({new});", self.element_type(d)),
        }
    }

    /// The statement that stores vectors of a buffer of fewer bits, or combines them in.
    pub(super) fn store_vector(
        &self,
        b: Source,
        place: &str,
        op: Option<Reducer>,
        v: Value,
        lanes: i64,
    ) -> String {
        let writer = self.writer(b).unwrap_or("to_u8");
        let v = self.as_float(v);
        let new = match op {
            None => self.widen(v, lanes),
            Some(r) => {
                let old = format!("{}(&{place})", self.function(self.reader(b), lanes));
                let new = self.binary(r.binary(), Value::vector(old), v);
                self.widen(new, lanes)
            }
        };
        format!("{}(&{place}, {new});", self.function(writer, lanes))
    }

    /// Stores lanes of bytes that are rounded and brought within two bounds: one function does
    /// both, with fewer instructions than steps of floats.
    pub(super) fn store_rounded(&mut self, b: Source, off: &Affine, value: &Expr) -> Option<()> {
        let (lane, lanes) = self.simd.vector?;
        let (x, low, high) = rounded(value)?;
        if self.writer(b) != Some("to_u8") || off.coefficient(lane) != 1 {
            return None;
        }
        let v = self.value(x);
        let v = self.as_float(v);
        let v = self.widen(v, lanes);
        let mut base = off.clone();
        base.add_term(lane, -1);
        let place = self.place(b, &base);
        for bound in ["min", "max"] {
            self.function(bound, lanes);
        }
        let name = self.function("round_u8", lanes);
        self.line(&format!("{name}(&{place}, {v}, {low}, {high});"));
        Some(())
    }

    /// The text of an element at a place in memory, converted to the type of arithmetic.
    pub(super) fn as_number(&self, b: Source, place: String) -> String {
        match self.n.buffer(b).dtype {
            DType::F16 | DType::Bf16 => {
                let name = self.reader(b);
                self.helper(name);
                format!("{name}({place})")
            }
            DType::U8 | DType::I8 if !self.o.double && self.holds_narrow(b) => {
                format!("(float){place}")
            }
            _ => place,
        }
    }

    /// Whether a buffer's memory has the format of its elements. In double precision what a call
    /// keeps for itself are doubles.
    fn holds_narrow(&self, b: Source) -> bool {
        let own = matches!(self.n.buffer(b).scope, Scope::Workspace | Scope::Local);
        !(self.o.double && own)
    }

    /// The function that widens what a buffer holds in fewer bits.
    pub(super) fn reader(&self, b: Source) -> &'static str {
        reader(self.n.buffer(b).dtype).unwrap_or("from_u8")
    }

    /// The function that rounds to the fewer bits of a buffer in memory; none where it has 32.
    pub(super) fn writer(&self, b: Source) -> Option<&'static str> {
        if !self.holds_narrow(b) || self.simd.registers.get(b).is_some() {
            return None;
        }
        match self.n.buffer(b).dtype {
            DType::F16 => Some("to_f16"),
            DType::Bf16 => Some("to_bf16"),
            DType::U8 => Some("to_u8"),
            DType::I8 => Some("to_i8"),
            _ => None,
        }
    }
}

/// A value that is rounded and then brought between two bytes, and these.
fn rounded(e: &Expr) -> Option<(&Expr, i64, i64)> {
    let bound = |e: &Expr| match e {
        Expr::Const(c) if (0.0..=255.0).contains(c) && c.fract() == 0.0 => Some(*c as i64),
        _ => None,
    };
    let Expr::Binary(Binary::Max, inner, low) = e else { return None };
    let Expr::Binary(Binary::Min, inner, high) = &**inner else { return None };
    let Expr::Unary(Unary::Round, x) = &**inner else { return None };
    Some((x, bound(low)?, bound(high)?))
}

/// The function that widens elements of fewer than 32 bits.
fn reader(d: DType) -> Option<&'static str> {
    match d {
        DType::F16 => Some("from_f16"),
        DType::Bf16 => Some("from_bf16"),
        DType::U8 => Some("from_u8"),
        DType::I8 => Some("from_i8"),
        _ => None,
    }
}
