//! The table of operators from which the campaign draws graphs: one [`Row`] each, with its types,
//! its effect on rounding errors, and a function that draws a use of it ([`Call`]). Families of
//! operators are files. A new operator needs a row here, or a test fails.

mod attention;
mod contract;
mod contrib;
mod control;
mod elementwise;
mod lengths;
mod lookup;
mod moves;
mod norm;
mod quantised;
mod reduce;
mod sequence;
mod vision;

use super::graph::{Call, Effect, Fill, Graph};
use squall_core::DType;

/// An operator, and how a use of it is made.
pub struct Row {
    /// Its name, behind its domain and a dot where that is not the standard one.
    pub op: &'static str,
    /// The first version of the operators that has it in this form.
    pub since: i64,
    /// Its effect on the facts that are known of elements.
    pub effect: Effect,
    /// Whether finite operands alone are given to it; the row's comment says why.
    pub is_tame: bool,
    /// The way in which a use of it is drawn.
    pub make: Make,
}

/// The ways in which a use of an operator is drawn.
pub enum Make {
    /// A use of one operand of these types.
    One(&'static [DType]),
    /// A use of two operands that are broadcast; the second is filled so.
    Two(&'static [DType], Fill),
    /// A use of one to four operands that are broadcast.
    Many(&'static [DType]),
    /// In its own way; none where nothing legal was found.
    Own(fn(&mut Graph<'_>) -> Option<Call>),
}

impl Row {
    const fn new(op: &'static str, effect: Effect, make: Make) -> Row {
        Row { op, since: 1, effect, is_tame: false, make }
    }

    const fn own(
        op: &'static str,
        effect: Effect,
        make: fn(&mut Graph<'_>) -> Option<Call>,
    ) -> Row {
        Row::new(op, effect, Make::Own(make))
    }

    const fn since(mut self, version: i64) -> Row {
        self.since = version;
        self
    }

    /// Finite operands alone.
    const fn tame(mut self) -> Row {
        self.is_tame = true;
        self
    }

    /// Its domain and its name in it.
    pub fn names(&self) -> (&'static str, &'static str) {
        self.op.rsplit_once('.').unwrap_or(("", self.op))
    }

    /// Makes a use of it.
    pub fn call(&self, g: &mut Graph<'_>) -> Option<Call> {
        g.needs_exact = !matches!(self.effect, Effect::Keeps | Effect::Rounds);
        g.needs_tame = self.is_tame;
        let call = match self.make {
            Make::One(types) => {
                let x = g.any(types, 0, 5);
                Some(Call::of(&[x]))
            }
            Make::Two(types, fill) => {
                let x = g.any(types, 0, 4);
                let y = g.partner(x, fill);
                let swapped = fill == Fill::Any && g.coin();
                Some(Call::of(&if swapped { [y, x] } else { [x, y] }))
            }
            Make::Many(types) => {
                let x = g.any(types, 0, 4);
                let mut all = vec![x];
                for _ in 0..g.draw.below(4) {
                    all.push(g.partner(x, Fill::Any));
                }
                Some(Call::of(&all))
            }
            Make::Own(make) => make(g),
        };
        (g.needs_exact, g.needs_tame) = (false, false);
        call
    }
}

/// All rows.
pub fn all() -> Vec<&'static Row> {
    let tables: [&'static [Row]; 13] = [
        attention::ROWS,
        contract::ROWS,
        contrib::ROWS,
        control::ROWS,
        elementwise::ROWS,
        lengths::ROWS,
        lookup::ROWS,
        moves::ROWS,
        norm::ROWS,
        quantised::ROWS,
        reduce::ROWS,
        sequence::ROWS,
        vision::ROWS,
    ];
    tables.into_iter().flatten().collect()
}

use DType::{Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

/// Types by family.
const FLOAT: &[DType] = &[F32, F32, F32, F32, F32, F32, F64, F64, F16, Bf16];
const NUMBER: &[DType] =
    &[F32, F32, F32, F32, F32, F64, F16, Bf16, I8, I16, I32, I64, U8, U16, U32, U64];
const WHOLE: &[DType] = &[I8, I16, I32, I64, U8, U16, U32, U64];
const SIGNED: &[DType] = &[F32, F32, F32, F32, F64, F16, Bf16, I8, I16, I32, I64];
const EVERY: &[DType] =
    &[F32, F32, F32, F32, F64, F16, Bf16, I8, I16, I32, I64, U8, U16, U32, U64, Bool];

/// Operators without a row, each with the reason.
#[cfg(test)]
pub const WITHOUT_ROW: &[(&str, &str)] = &[
    ("CausalConvWithState", "neither onnxruntime nor folding has it"),
    ("Constant", "constants of the file are the same"),
    ("LinearAttention", "neither onnxruntime nor folding has it"),
    ("OptionalGetElement", "its operand is of tensors only where it does nothing"),
    ("OptionalHasElement", "its operand is of tensors only where it does nothing"),
    ("Scatter", "versions of operators from 18 on do not have it"),
    ("Upsample", "versions of operators from 18 on do not have it"),
];
