//! The table of ONNX operators: one [`Row`] each, with the function that infers the results' types
//! and shapes, the evaluator for known operands, the formula by which it becomes a step of a fused
//! kernel, its plain C, and facts that rewritings ask for (does it only move data, is its result
//! never negative). Nothing else lists operators by these properties (decision 0092). Families are
//! files; the functions that a row names lie in [`infer`](crate::graph::infer) and
//! [`fold`](crate::graph::fold). The reader of ONNX files, the graph and the generators of plain C
//! all look operators up here.

mod counted;
mod each;
mod elementwise;
mod images;
mod inserted;
mod products;
mod reductions;
mod refused;
mod selections;
mod sequences;
mod shapes;
mod signals;

pub use counted::Products;
pub use each::{CTexts, Each, Formula, Operands, decimal};
pub use refused::{REFUSED, WRITTEN_OUT};

use crate::DType;
use crate::graph::fold::{self, Function, MOST, NOT_HERE, narrowed};
use crate::graph::infer::{Ctx, NodeOperand, Output, nbits};
use crate::graph::{Attribute, Constant, Node, elements};
use crate::text::shown;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Makes the types and shapes of results, at least of the first.
pub type Infer = fn(&Ctx) -> Result<Vec<Output>, String>;

/// Makes the results of operands that are known, of the types and shapes that were inferred.
pub type Evaluator = fn(&Ctx, &[Output]) -> Result<Vec<Constant>, String>;

/// An operator with all that is known of it.
pub struct Row {
    /// As in files.
    pub name: &'static str,
    infer: Infer,
    fold: Fold,
    /// Its formula and its C, if it computes each element from the operands' elements at the same
    /// place.
    pub each: Option<Each>,
    /// Which operands' elements it only puts into new places. The others say where to, and must be
    /// known.
    pub moving: Moving,
    /// Whether it moves or makes data without arithmetic.
    pub is_movement: bool,
    /// Whether it gives its first operand another shape or name, and nothing else.
    pub renames: bool,
    /// What is known of the signs of its results.
    pub sign: Sign,
    /// Whether the outermost loops of its plain C have instances that do not depend on each other:
    /// each writes places of its own and reads none that others write.
    pub spreads: bool,
    /// How many products of two numbers it adds up, where its results are such sums.
    pub products: Option<Products>,
    /// The operands from which it picks elements: of all of them together it may read as few
    /// elements as its results have. It reads the others whole.
    pub picks: &'static [usize],
    /// What its plain C does not support, for users; empty where there is nothing to say.
    pub limits: &'static str,
}

/// How an operator is evaluated over known operands.
enum Fold {
    Never,
    By(Evaluator),
    /// By a function of one number.
    Each(Function),
}

/// Operands whose elements move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// None: the operator computes.
    No,
    /// The elements of all operands.
    All,
    /// The elements of operands at these places.
    Only(&'static [usize]),
}

/// What is known of the signs of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Nothing.
    Any,
    /// They are never below zero.
    NeverNegative,
    /// They are not below zero where the first operand is not.
    OfFirst,
    /// They are not below zero where no operand is.
    OfAll,
}

/// An operator of which nothing but its shapes is known.
const fn row(name: &'static str, infer: Infer) -> Row {
    Row {
        name,
        infer,
        fold: Fold::Never,
        each: None,
        moving: Moving::No,
        is_movement: false,
        renames: false,
        sign: Sign::Any,
        spreads: false,
        products: None,
        picks: &[],
        limits: "",
    }
}

impl Row {
    const fn folds(self, by: Evaluator) -> Row {
        Row { fold: Fold::By(by), ..self }
    }

    const fn moves(self, moving: Moving) -> Row {
        Row { moving, is_movement: true, ..self }
    }

    const fn moves_data(self) -> Row {
        Row { is_movement: true, ..self }
    }

    const fn renames(self) -> Row {
        Row { renames: true, is_movement: true, ..self }
    }

    const fn never_negative(self) -> Row {
        Row { sign: Sign::NeverNegative, ..self }
    }

    const fn keeps_sign(self) -> Row {
        Row { sign: Sign::OfFirst, ..self }
    }

    const fn keeps_sign_of_all(self) -> Row {
        Row { sign: Sign::OfAll, ..self }
    }

    const fn spreads(self) -> Row {
        Row { spreads: true, ..self }
    }

    const fn multiplies(self, by: Products) -> Row {
        Row { products: Some(by), ..self }
    }

    const fn picks(self, from: &'static [usize]) -> Row {
        Row { picks: from, ..self }
    }

    const fn limits(self, limits: &'static str) -> Row {
        Row { limits, ..self }
    }

    /// Whether it is evaluated over known operands, at least in some of its forms.
    pub fn is_folded(&self) -> bool {
        !matches!(self.fold, Fold::Never)
    }

    /// The formula by which it joins kernels, if it has one.
    pub fn formula(&self) -> Option<Formula> {
        self.each.as_ref()?.formula
    }
}

/// The standard operators, family by family.
const STANDARD: &[&[Row]] = &[
    elementwise::ROWS,
    images::ROWS,
    products::ROWS,
    reductions::ROWS,
    selections::ROWS,
    sequences::ROWS,
    shapes::ROWS,
    signals::ROWS,
];

static STANDARD_BY_NAME: LazyLock<HashMap<&str, &Row>> =
    LazyLock::new(|| STANDARD.iter().copied().flatten().map(|row| (row.name, row)).collect());

/// All standard operators.
pub fn standard_operators() -> impl Iterator<Item = &'static Row> {
    STANDARD.iter().copied().flatten()
}

/// A standard operator, where it is known.
pub fn standard(op: &str) -> Option<&'static Row> {
    STANDARD_BY_NAME.get(op).copied()
}

/// An operator of a domain, where it is known: a standard one, or one that only readers write.
pub fn operator(domain: &str, op: &str) -> Option<&'static Row> {
    match domain {
        "" | "ai.onnx" => standard(op),
        nbits::DOMAIN => inserted::ROWS.iter().find(|row| row.name == op),
        _ => None,
    }
}

/// Whether a standard operator computes each element of those at the same place.
pub fn is_elementwise(op: &str) -> bool {
    standard(op).is_some_and(|row| row.each.is_some())
}

/// Whether a standard operator is evaluated over known operands, at least in some of its forms.
pub fn is_folded(op: &str) -> bool {
    standard(op).is_some_and(Row::is_folded)
}

/// Types and shapes of a node's results, or why they cannot be inferred.
pub fn infer(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let node = ctx.node;
    if !matches!(node.domain.as_str(), "" | "ai.onnx" | nbits::DOMAIN) {
        return Err(format!(
            "operator `{}` of domain `{}` is not known",
            shown(&node.op),
            shown(&node.domain)
        ));
    }
    if node.attributes.values().any(|a| *a == Attribute::Graph) {
        return Err(format!("operator `{}` holds a subgraph", shown(&node.op)));
    }
    let row = operator(&node.domain, &node.op);
    let row = row.ok_or_else(|| format!("operator `{}` is not known", shown(&node.op)))?;
    let outputs = (row.infer)(ctx)?;
    for o in &outputs {
        elements(&o.shape).map_err(|e| format!("of its result, {e}"))?;
    }
    Ok(outputs)
}

/// Whether a node's operator is evaluated over known operands, at least in some of its forms.
pub fn evaluates(node: &Node) -> bool {
    operator(&node.domain, &node.op).is_some_and(Row::is_folded)
}

/// The results of a node over known operands; `None` where the operator is not evaluated here.
/// Elements are taken to be of the types as which they are kept.
pub fn evaluate(
    node: &Node,
    inputs: &[Option<Constant>],
    opset: i64,
) -> Option<Result<Vec<Constant>, String>> {
    evaluate_as(node, inputs, &[], opset)
}

/// The same over operands of these types, where they are known: integers wrap around and floats of
/// 16 bits are rounded as their types do.
pub fn evaluate_as(
    node: &Node,
    inputs: &[Option<Constant>],
    dtypes: &[Option<DType>],
    opset: i64,
) -> Option<Result<Vec<Constant>, String>> {
    let row = operator(&node.domain, &node.op).filter(|row| row.is_folded())?;
    fn operand(c: &Constant, dtype: Option<DType>) -> NodeOperand<'_> {
        let dtype = Some(dtype.unwrap_or(c.dtype()));
        NodeOperand { name: "", dtype, shape: Some(c.shape()), constant: Some(c) }
    }
    let typed = |i: usize| dtypes.get(i).copied().flatten();
    let operands = inputs.iter().enumerate();
    let operands = operands.map(|(i, c)| c.as_ref().map(|c| operand(c, typed(i)))).collect();
    let ctx = Ctx { node, opset, inputs: operands };
    let run = || {
        let outputs = infer(&ctx)?;
        for o in &outputs {
            if elements(&o.shape)? > MOST {
                return Err(format!("its result of shape {:?} is too large", o.shape));
            }
        }
        let mut made = match &row.fold {
            Fold::By(evaluator) => evaluator(&ctx, &outputs)?,
            Fold::Each(function) => fold::each(&ctx, function)?,
            Fold::Never => return Err(NOT_HERE.into()),
        };
        for (c, o) in made.iter_mut().zip(&outputs) {
            match (c, o.dtype) {
                (Constant::I64 { data, .. }, Some(dtype)) => {
                    data.iter_mut().for_each(|v| *v = narrowed(*v, dtype));
                }
                (Constant::F32 { data, .. }, Some(dtype)) if dtype.is_half() => {
                    data.iter_mut().for_each(|v| *v = dtype.round(f64::from(*v)) as f32);
                }
                _ => {}
            }
        }
        Ok(made)
    };
    match run() {
        Err(e) if e == NOT_HERE => None,
        other => Some(other),
    }
}

#[cfg(test)]
mod tests;
