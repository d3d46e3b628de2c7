//! Recognises attention in a workload for the GPU sketches. Input: a workload; output: an
//! [`Attention`]: both matrix products with their operands, the score as an expression of the first
//! product's sum, and the stored result as an expression of the second's, all over the loops of the
//! first product. `mod.rs`, `tensor` and `warpgroup` make programs of it.

use super::super::loops::launches;
use crate::nest::{Nest, Scope, Stmt, lower, visit};
use squall_core::Workload;
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Unary, Var};
use squall_core::workload::Reducer;
use std::collections::HashMap;

/// A loop's variable and its extent.
pub type Extent = (Var, i64);

/// A tensor that a product reads.
#[derive(Clone)]
pub struct Operand {
    pub source: Source,
    pub index: Vec<Affine>,
}

/// A matrix product. In `value`, operand `j` stands as a load of source `j` without indices.
#[derive(Clone)]
pub struct Product {
    pub value: Expr,
    /// The operand that is read at the rows of the result, and the operand that is read at its
    /// columns.
    pub operands: [Operand; 2],
}

/// `softmax(scores) x values` with its elementwise epilogue, over these loops. Tensors may be parts
/// of larger boxes: on GPUs those begin at multiples of 16 elements, which a network is checked
/// for.
#[derive(Clone)]
pub struct Attention {
    /// The nest with the buffers and the statements that run ahead of time.
    pub base: Nest,
    /// Loops that both products share, apart from the rows.
    pub batch: Vec<Extent>,
    pub row: Extent,
    pub key: Extent,
    /// The axis that the first product sums over, and the columns of the second product.
    pub depth: Extent,
    pub column: Extent,
    pub scores: Product,
    pub values: Product,
    /// The score as an expression of the first product's sum, which is read as `sum`.
    pub score: Expr,
    pub sum: Source,
    /// The place of a stored element, and its value as an expression of the second product's sum
    /// and of the sum of powers.
    pub output: (Source, Vec<Affine>),
    pub result: Expr,
    pub weighted: Source,
    pub powers: Source,
}

impl Attention {
    /// The score of a row and a key, made of a product's sum.
    pub fn score_at(&self, row: &Affine, key: &Affine, sum: &Expr) -> Expr {
        let there = places_of([(self.row.0, row), (self.key.0, key)]);
        self.score.rewrite(&mut |a| a.map_vars(&there), &mut |e| match e {
            Expr::Load { source, .. } if source == self.sum => sum.clone(),
            e => e,
        })
    }

    /// A score in tiles of so many keys: what lies behind the last key is less than all others.
    pub fn up_to_the_last_key(&self, key: &Affine, tile: i64, score: Expr) -> Expr {
        if self.key.1 % tile == 0 {
            return score;
        }
        let inside = Cond { index: key.clone(), low: 0, high: self.key.1 };
        let outside = Box::new(Expr::Const(f64::NEG_INFINITY));
        Expr::Select { conds: vec![inside], then: Box::new(score), other: outside }
    }

    /// Stores the output of a row and a column, made of a sum of values and of the row's powers.
    pub fn stored_at(&self, row: &Affine, column: &Affine, sum: &Expr, powers: &Expr) -> Stmt {
        let there = places_of([(self.row.0, row), (self.column.0, column)]);
        let value = self.result.rewrite(&mut |a| a.map_vars(&there), &mut |e| match e {
            Expr::Load { source, .. } if source == self.weighted => sum.clone(),
            Expr::Load { source, .. } if source == self.powers => powers.clone(),
            e => e,
        });
        let index = self.output.1.iter().map(|a| a.map_vars(&there)).collect();
        Stmt::Store { buffer: self.output.0, index, value }
    }
}

/// What two variables stand for.
fn places_of(both: [(Var, &Affine); 2]) -> impl Fn(Var) -> Affine {
    let both = both.map(|(v, at)| (v, at.clone()));
    move |v| {
        let known = both.iter().find(|b| b.0 == v);
        known.map_or_else(|| Affine::var(v), |b| b.1.clone())
    }
}

/// What a stage stores, and along which variables.
struct Stored {
    index: Vec<Var>,
    value: Expr,
    op: Option<Reducer>,
}

/// The stages by their parts.
struct Parts {
    /// The first product, and the score that is made of it.
    product: Source,
    score: Source,
    /// The powers of what a score lacks of the largest, and their sum.
    exp: Source,
    powers: Source,
    /// The second product, and what is made of it.
    weighted: Source,
    output: Source,
}

/// The problem of a workload; none where it is another.
pub fn problem(w: &Workload) -> Option<Attention> {
    let mut base = lower(w);
    let prepare = std::mem::take(&mut base.prepare);
    let body = std::mem::take(&mut base.body);
    let (order, stages) = stored(&body)?;
    let parts = parts(&order, &stages)?;
    let sizes = extents(&body);
    let extent = |v: Var| sizes.get(&v).map(|e| (v, *e));
    // The loops of the first product are those of all.
    let first = &stages[&parts.product];
    let (rows, key) = first.index.split_at(first.index.len().checked_sub(1)?);
    let (&row, batch) = rows.split_last()?;
    let depth = only_other(first, &first.index)?;
    let table = places(&first.index);
    let score = expanded(&stages, parts.score, &table, &[parts.product])?;
    let (there, second) =
        second_product(&stages[&parts.weighted], parts.exp, &first.index, &sizes)?;
    let columns: Vec<Var> = there.iter().copied().filter(|v| !first.index.contains(v)).collect();
    let [column] = columns[..] else { return None };
    let scores = product(&first.value, None, row, key[0])?;
    let values = product(&second, Some(parts.exp), row, column)?;
    // Where the output lies, by the rows and the column that it is of.
    let own = places(&stages[&parts.output].index);
    let value = expanded(&stages, parts.output, &own, &[parts.weighted, parts.powers])?;
    let place = place_of(&value, parts.weighted, &there)?;
    let moved = |a: &Affine| a.map_vars(|v| place.get(&v).cloned().unwrap_or(Affine::var(v)));
    let result = value.rewrite(&mut |a| moved(a), &mut |e| e);
    let loads = [&score, &result].into_iter().flat_map(Expr::loads).map(|l| l.1.to_vec());
    let read = scores.operands.iter().chain(&values.operands).map(|o| o.index.clone());
    let vars = [rows, key, &[depth, column]].concat();
    let is_known =
        |index: Vec<Affine>| index.iter().all(|a| a.terms().iter().all(|t| vars.contains(&t.0)));
    let is_as_long =
        |(v, a): (&Var, &Affine)| a.as_var().is_some_and(|a| sizes.get(v) == sizes.get(&a));
    let is_read_in_place = loads.chain(read).all(is_known)
        && place.len() == own.len()
        && place.iter().all(is_as_long)
        && reads_only(&score, parts.product, &table)
        && values.operands[0].index == table
        && reads_only(&result, parts.weighted, &places(&there))
        && reads_only(&result, parts.powers, &places(rows));
    if !is_read_in_place {
        return None;
    }
    base.prepare = launches(&mut base, prepare);
    // Nothing lies between the stages.
    base.buffers.iter_mut().filter(|b| b.scope == Scope::Workspace).for_each(|b| {
        b.scope = Scope::Local;
    });
    Some(Attention {
        batch: batch.iter().map(|v| extent(*v)).collect::<Option<_>>()?,
        row: extent(row)?,
        key: extent(key[0])?,
        depth: extent(depth)?,
        column: extent(column)?,
        scores,
        values,
        score,
        sum: parts.product,
        output: (parts.output, own.iter().map(moved).collect()),
        result,
        weighted: parts.weighted,
        powers: parts.powers,
        base,
    })
}

/// The part of each stage, where the stages are those of an attention.
fn parts(order: &[Source], stages: &HashMap<Source, Stored>) -> Option<Parts> {
    let op = |s: &Source| stages[s].op;
    let largest = order.iter().position(|s| op(s) == Some(Reducer::Max))?;
    let [max, exp, powers, weighted] = *order.get(largest..largest + 4)? else { return None };
    let (product, score) = (*order.first()?, *order.get(largest.checked_sub(1)?)?);
    let output = *order.get(largest + 4..)?.last()?;
    let mut others = order[1..largest].iter().chain(&order[largest + 4..]);
    let are_sums = [product, weighted].iter().all(|s| op(s) == Some(Reducer::Sum));
    let is_chain = are_sums && others.all(|s| op(s).is_none());
    (is_chain && is_softmax(stages, [score, max, exp, powers])).then_some(Parts {
        product,
        score,
        exp,
        powers,
        weighted,
        output,
    })
}

/// The variables that the second product's result has, by those of the first's, and its value by
/// them; `table` is what it reads in the place of the softmax.
fn second_product(
    s: &Stored,
    table: Source,
    first: &[Var],
    sizes: &HashMap<Var, i64>,
) -> Option<(Vec<Var>, Expr)> {
    let read = s.value.loads().iter().find(|l| l.0 == table)?.1.to_vec();
    let mut known: HashMap<Var, Var> = HashMap::new();
    for (a, v) in read.iter().zip(first) {
        known.insert(a.as_var()?, *v);
    }
    let of_first = |v: Var| known.get(&v).copied().unwrap_or(v);
    let there: Vec<Var> = s.index.iter().map(|v| of_first(*v)).collect();
    let is_whole = [read.len(), known.len(), there.len()].iter().all(|n| *n == first.len())
        && known.iter().all(|(v, of)| sizes.get(v) == sizes.get(of));
    is_whole.then(|| (there, s.value.map_vars(|v| Affine::var(of_first(v)))))
}

/// What each stage stores, by its buffer, and the order of the stages.
fn stored(body: &[Stmt]) -> Option<(Vec<Source>, HashMap<Source, Stored>)> {
    let (mut order, mut stages) = (Vec::new(), HashMap::new());
    let mut are_plain = true;
    visit(body, &mut |s| {
        let (buffer, index, value, op) = match s {
            Stmt::Store { buffer, index, value } => (*buffer, index, value, None),
            Stmt::Update { op, buffer, index, value } => (*buffer, index, value, Some(*op)),
            _ => return,
        };
        let vars: Option<Vec<Var>> = index.iter().map(Affine::as_var).collect();
        are_plain &= vars.is_some();
        if !order.contains(&buffer) {
            order.push(buffer);
        }
        let index = vars.unwrap_or_default();
        stages.insert(buffer, Stored { index, value: value.clone(), op });
    });
    are_plain.then_some((order, stages))
}

/// How often each loop runs.
fn extents(body: &[Stmt]) -> HashMap<Var, i64> {
    let mut all = HashMap::new();
    visit(body, &mut |s| {
        if let Stmt::Loop(l) = s {
            all.insert(l.var, l.extent);
        }
    });
    all
}

fn places(vars: &[Var]) -> Vec<Affine> {
    vars.iter().map(|v| Affine::var(*v)).collect()
}

/// The only variable that a stage's value uses apart from these.
fn only_other(s: &Stored, known: &[Var]) -> Option<Var> {
    let mut others: Vec<Var> = Vec::new();
    for (_, index) in s.value.loads() {
        let vars = index.iter().flat_map(|a| a.terms().iter().map(|t| t.0));
        others.extend(vars.filter(|v| !known.contains(v)));
    }
    others.sort_unstable();
    others.dedup();
    let [only] = others[..] else { return None };
    Some(only)
}

/// Whether the stages are the largest score of a row, the powers of what others lack of it, and
/// the sum of those.
fn is_softmax(stages: &HashMap<Source, Stored>, [last, max, exp, powers]: [Source; 4]) -> bool {
    let loads = |e: &Expr, s: Source, at: &[Var]| match e {
        Expr::Load { source, index } => *source == s && index[..] == places(at)[..],
        _ => false,
    };
    let (e, d) = (&stages[&exp], &stages[&powers]);
    let Some(rows) = e.index.split_last().map(|r| r.1) else { return false };
    let is_apart = match &e.value {
        Expr::Unary(Unary::Exp, a) => match &**a {
            Expr::Binary(Binary::Sub, x, y) => loads(x, last, &e.index) && loads(y, max, rows),
            _ => false,
        },
        _ => false,
    };
    let along = |s: &Stored, of: Source| {
        let Expr::Load { source, index } = &s.value else { return false };
        let Some((key, row)) = index.split_last() else { return false };
        let is_other = key.as_var().is_some_and(|v| !s.index.contains(&v));
        *source == of && row[..] == places(&s.index)[..] && is_other
    };
    is_apart && along(&stages[&max], last) && d.op == Some(Reducer::Sum) && along(d, exp)
}

/// A stage's value at a place, with those of the stages before it written out, but for some that
/// are read as they are; none where it reads others that are sums.
fn expanded(
    stages: &HashMap<Source, Stored>,
    of: Source,
    at: &[Affine],
    kept: &[Source],
) -> Option<Expr> {
    if kept.contains(&of) {
        return Some(Expr::load(of, at.to_vec()));
    }
    let s = stages.get(&of).filter(|s| s.op.is_none() && s.index.len() == at.len())?;
    let there = |v: Var| match s.index.iter().position(|x| *x == v) {
        Some(i) => at[i].clone(),
        None => Affine::var(v),
    };
    let mut is_known = true;
    let value = s.value.rewrite(&mut |a| a.map_vars(there), &mut |e| match &e {
        Expr::Load { source, index } if stages.contains_key(source) => {
            expanded(stages, *source, index, kept).unwrap_or_else(|| {
                is_known = false;
                e.clone()
            })
        }
        _ => e,
    });
    is_known.then_some(value)
}

/// For each variable of the place at which a sum is read, the variable of `vars` that stands there.
fn place_of(value: &Expr, sum: Source, vars: &[Var]) -> Option<HashMap<Var, Affine>> {
    let loads = value.loads();
    let (_, index) = loads.iter().find(|l| l.0 == sum)?;
    let pair = |(a, v): (&Affine, &Var)| Some((a.as_var()?, Affine::var(*v)));
    (index.len() == vars.len()).then(|| index.iter().zip(vars).map(pair).collect())?
}

/// Whether a source is read nowhere else than there.
fn reads_only(e: &Expr, source: Source, at: &[Affine]) -> bool {
    e.loads().iter().filter(|l| l.0 == source).all(|l| l.1 == at)
}

/// A product: two tensors, one of them at the row alone, the other at the column; `table` is what
/// stands for the first where it is no tensor.
fn product(value: &Expr, table: Option<Source>, row: Var, column: Var) -> Option<Product> {
    let loads = value.loads();
    let [_, _] = loads[..] else { return None };
    let uses = |index: &[Affine], v: Var| index.iter().any(|a| a.uses(v));
    let is_row = |source: Source, index: &[Affine]| match table {
        Some(t) => source == t,
        None => uses(index, row) && !uses(index, column),
    };
    let is_column = |index: &[Affine]| uses(index, column) && !uses(index, row);
    let mut operands: [Option<Operand>; 2] = [None, None];
    let mut is_plain = true;
    let value = value.rewrite(&mut Affine::clone, &mut |e| match e {
        Expr::Load { source, index } => {
            let k = usize::from(!is_row(source, &index));
            is_plain &= (k == 0 || is_column(&index)) && operands[k].is_none();
            is_plain &= index.iter().all(|a| a.terms().iter().all(|t| t.1 > 0));
            operands[k] = Some(Operand { source, index });
            Expr::load(Source(k as u32), Vec::new())
        }
        Expr::Select { .. } => {
            is_plain = false;
            e
        }
        e => e,
    });
    let [Some(a), Some(b)] = operands else { return None };
    let is_factor = |e: &Expr| match e {
        Expr::Cast(_, x) => matches!(**x, Expr::Load { .. }),
        e => matches!(e, Expr::Load { .. }),
    };
    is_plain &= match &value {
        Expr::Binary(Binary::Mul, x, y) => is_factor(x) && is_factor(y),
        _ => false,
    };
    is_plain.then_some(Product { value, operands: [a, b] })
}
