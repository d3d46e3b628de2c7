//! Einstein sums as products of matrices.
//!
//! Of each operand the diagonals of repeated indices are taken and the indices summed that no other
//! operand and not the result has. Then two operands at a time become one, the cheapest pair first:
//! their common indices are those of a batch, where they are still needed, or are summed over by a
//! `MatMul`; the others are the rows of one operand and the columns of the other. Permutations in
//! front of and behind a product are nodes of their own, which kernels see through.

use crate::onnx::reader::body::Body;
use crate::onnx::reader::inline::{int, ints};
use squall_core::graph::infer::Equation;

/// An index of the sum, by its number in the equation.
type Index = usize;

/// Larger sums than these are not rewritten: their extents might overflow.
const MOST_TERMS: i64 = 1 << 40;

/// More operands than anyone multiplies: all pairs are tried at each product.
const MOST_OPERANDS: usize = 16;

/// A tensor, and the index that each of its dimensions has.
#[derive(Clone)]
struct Operand {
    name: String,
    indices: Vec<Index>,
}

/// A sum with the extents of its indices.
struct Sum {
    extents: Vec<i64>,
    operands: Vec<Operand>,
    result: Vec<Index>,
}

pub(super) fn einsum(b: &mut Body) -> Option<()> {
    let mut s = read(b)?;
    for k in 0..s.operands.len() {
        let own = s.without_single(b, s.operands[k].clone())?;
        s.operands[k] = s.diagonal(b, own)?;
    }
    // An index counts as another operand's only where that is long along it.
    for k in 0..s.operands.len() {
        s.operands[k] = s.without_sums(b, k);
    }
    while s.operands.len() > 1 {
        let (i, j) = s.cheapest();
        let right = s.operands.remove(j);
        let left = s.operands.remove(i);
        let made = s.product(b, left, right);
        s.operands.insert(i, made);
    }
    let last = s.operands.pop()?;
    let is_whole = s.result.iter().all(|c| last.indices.contains(c));
    if !is_whole || last.indices.len() != s.result.len() {
        return None;
    }
    let y = s.arranged(b, &last, &s.result.clone());
    b.hand_on(&y, 0);
    Some(())
}

/// The sum of a node whose equation suits its operands.
fn read(b: &Body) -> Option<Sum> {
    let count = b.call.input.len();
    if count > MOST_OPERANDS {
        return None;
    }
    let text = String::from_utf8(b.attribute("equation")?.s.clone()?).ok()?;
    let shapes = (0..count).map(|i| b.shape(i)).collect::<Result<Vec<_>, _>>().ok()?;
    let shapes: Vec<&[i64]> = shapes.iter().map(Vec::as_slice).collect();
    let Equation { extents, operands, result } = Equation::new(&text, &shapes).ok()?;
    let all = extents.iter().try_fold(1i64, |all, &e| all.checked_mul(e).filter(|_| e > 0))?;
    let is_repeated = |c: &Index| result.iter().filter(|d| *d == c).count() > 1;
    if all > MOST_TERMS || result.iter().any(is_repeated) {
        return None;
    }
    let operand = |(i, indices)| Some(Operand { name: b.input(i).ok()?, indices });
    let operands = operands.into_iter().enumerate().map(operand).collect::<Option<_>>()?;
    Some(Sum { extents, operands, result })
}

impl Sum {
    fn extent(&self, of: Index) -> i64 {
        self.extents[of]
    }

    fn shape(&self, of: &[Index]) -> Vec<i64> {
        of.iter().map(|c| self.extent(*c)).collect()
    }

    fn product_of(&self, of: &[Index]) -> i64 {
        self.shape(of).iter().product()
    }

    /// Whether the result or an operand other than these has an index.
    fn is_needed(&self, of: Index, except: &[usize]) -> bool {
        let others = self.operands.iter().enumerate().filter(|(i, _)| !except.contains(i));
        self.result.contains(&of) || others.into_iter().any(|(_, o)| o.indices.contains(&of))
    }

    /// An operand with each index once: where one stood twice, what lies on its diagonal.
    fn diagonal(&self, b: &mut Body, mut o: Operand) -> Option<Operand> {
        while let Some(j) = (1..o.indices.len()).find(|j| o.indices[..*j].contains(&o.indices[*j]))
        {
            let twice = o.indices[j];
            let i = o.indices.iter().position(|c| *c == twice)?;
            let extent = self.extent(twice);
            // Both dimensions behind the others and as one, of which every (extent + 1)-th element
            // lies on the diagonal.
            let others: Vec<usize> = (0..o.indices.len()).filter(|d| ![i, j].contains(d)).collect();
            let order: Vec<i64> = others.iter().chain(&[i, j]).map(|d| *d as i64).collect();
            let kept: Vec<Index> = others.iter().map(|d| o.indices[*d]).collect();
            let turned = b.transpose(&o.name, &order);
            let flat = [self.shape(&kept), vec![extent.checked_mul(extent)?]].concat();
            let flat = b.reshape(&turned, &flat);
            let [from, to, axis, step] =
                [0, extent * extent, kept.len() as i64, extent + 1].map(|n| b.integers(&[n]));
            let name = b.op("Slice", &[&flat, &from, &to, &axis, &step], vec![]);
            o = Operand { name, indices: [kept, vec![twice]].concat() };
        }
        Some(o)
    }

    /// An operand of the node without the dimensions of extent 1 whose index is longer elsewhere:
    /// the same elements for all of those. None where an index that stands twice is long in one of
    /// its places alone.
    fn without_single(&self, b: &mut Body, o: Operand) -> Option<Operand> {
        let position = b.call.input.iter().position(|n| *n == o.name)?;
        let shape = b.shape(position).ok()?;
        let is_long = |d: &usize| shape[*d] == self.extent(o.indices[*d]);
        let kept: Vec<usize> = (0..o.indices.len()).filter(is_long).collect();
        if kept.len() == o.indices.len() {
            return Some(o);
        }
        let is_dropped = |d: usize| !kept.contains(&d);
        let stands_once = |d: usize| o.indices.iter().filter(|c| **c == o.indices[d]).count() == 1;
        if (0..o.indices.len()).any(|d| is_dropped(d) && !stands_once(d)) {
            return None;
        }
        let indices: Vec<Index> = kept.iter().map(|d| o.indices[*d]).collect();
        let name = b.reshape(&o.name, &self.shape(&indices));
        Some(Operand { name, indices })
    }

    /// The operand of a number, summed over the indices that nothing else has.
    fn without_sums(&self, b: &mut Body, number: usize) -> Operand {
        let o = self.operands[number].clone();
        let is_summed = |c: &Index| !self.is_needed(*c, &[number]);
        let axes: Vec<i64> =
            (0..o.indices.len() as i64).filter(|d| is_summed(&o.indices[*d as usize])).collect();
        if axes.is_empty() {
            return o;
        }
        let indices = o.indices.iter().copied().filter(|c| !is_summed(c)).collect();
        Operand { name: summed(b, &o.name, &axes), indices }
    }

    /// The two operands whose product has the fewest terms.
    fn cheapest(&self) -> (usize, usize) {
        let count = self.operands.len();
        let pairs = (0..count).flat_map(|i| (i + 1..count).map(move |j| (i, j)));
        let terms = |&(i, j): &(usize, usize)| {
            let mut all = self.operands[i].indices.clone();
            all.extend(
                self.operands[j]
                    .indices
                    .iter()
                    .filter(|c| !all.contains(c))
                    .copied()
                    .collect::<Vec<_>>(),
            );
            self.product_of(&all)
        };
        pairs.min_by_key(terms).unwrap_or((0, 1))
    }

    /// The product of two operands that were taken out, summed over the indices that nothing else
    /// has.
    fn product(&self, b: &mut Body, left: Operand, right: Operand) -> Operand {
        let in_order = |of: &Operand, is: &dyn Fn(Index) -> bool| -> Vec<Index> {
            of.indices.iter().copied().filter(|c| is(*c)).collect()
        };
        let both = |c: Index| left.indices.contains(&c) && right.indices.contains(&c);
        let needed = |c: Index| self.is_needed(c, &[]);
        let rows = in_order(&left, &|c| !right.indices.contains(&c));
        let columns = in_order(&right, &|c| !left.indices.contains(&c));
        let sums = in_order(&left, &|c| both(c) && !needed(c));
        let mut batch = in_order(&left, &|c| both(c) && needed(c));
        // In the order of the result, so that no permutation follows where none is needed.
        let place = |c: &Index| self.result.iter().position(|d| d == c).unwrap_or(usize::MAX);
        batch.sort_by_key(place);
        let first = |of: &[Index]| of.iter().map(place).min();
        if first(&columns) < first(&rows) && !columns.is_empty() && !rows.is_empty() {
            return self.multiplied(b, [right, left], [&batch, &columns, &sums, &rows]);
        }
        self.multiplied(b, [left, right], [&batch, &rows, &sums, &columns])
    }

    /// The product by the indices of its batch, its rows, its sums and its columns.
    fn multiplied(
        &self,
        b: &mut Body,
        [left, right]: [Operand; 2],
        [batch, rows, sums, columns]: [&[Index]; 4],
    ) -> Operand {
        let indices = [batch, rows, columns].concat();
        if sums.is_empty() || (rows.is_empty() && columns.is_empty()) {
            // Elementwise, with dimensions of extent 1 for the other operand's.
            let all = [batch, rows, columns, sums].concat();
            let [x, y] = [left, right].map(|o| self.spread(b, &o, &all));
            let made = b.op("Mul", &[&x, &y], vec![]);
            let axes: Vec<i64> = (indices.len() as i64..all.len() as i64).collect();
            let name = if axes.is_empty() { made } else { summed(b, &made, &axes) };
            return Operand { name, indices };
        }
        let matrix = |b: &mut Body, o: &Operand, first: &[Index], second: &[Index]| {
            let x = self.arranged(b, o, &[batch, first, second].concat());
            let shape = [self.shape(batch), vec![self.product_of(first), self.product_of(second)]];
            self.reshaped(b, &x, &[batch, first, second].concat(), &shape.concat())
        };
        let x = matrix(b, &left, rows, sums);
        let y = matrix(b, &right, sums, columns);
        let made = b.op("MatMul", &[&x, &y], vec![]);
        let whole = self.shape(&indices);
        let narrow = [self.shape(batch), vec![self.product_of(rows), self.product_of(columns)]];
        let name = if narrow.concat() == whole { made } else { b.reshape(&made, &whole) };
        Operand { name, indices }
    }

    /// A tensor of these indices in another shape.
    fn reshaped(&self, b: &mut Body, x: &str, of: &[Index], shape: &[i64]) -> String {
        if self.shape(of) == shape { x.into() } else { b.reshape(x, shape) }
    }

    /// An operand with its dimensions in the order of these indices.
    fn arranged(&self, b: &mut Body, o: &Operand, order: &[Index]) -> String {
        let at = |c: &Index| o.indices.iter().position(|d| d == c).unwrap_or(0) as i64;
        let order: Vec<i64> = order.iter().map(at).collect();
        let is_same = order.iter().enumerate().all(|(i, d)| i as i64 == *d);
        if is_same { o.name.clone() } else { b.transpose(&o.name, &order) }
    }

    /// An operand with a dimension for each of these indices: of extent 1 where it has none.
    fn spread(&self, b: &mut Body, o: &Operand, all: &[Index]) -> String {
        let own: Vec<Index> = all.iter().copied().filter(|c| o.indices.contains(c)).collect();
        let x = self.arranged(b, o, &own);
        let extent = |c: &Index| if own.contains(c) { self.extent(*c) } else { 1 };
        let shape: Vec<i64> = all.iter().map(extent).collect();
        if own.len() == all.len() { x } else { b.reshape(&x, &shape) }
    }
}

/// A tensor summed over some dimensions, which it has no more.
fn summed(b: &mut Body, x: &str, axes: &[i64]) -> String {
    if b.around.opset < 13 {
        return b.op("ReduceSum", &[x], vec![ints("axes", axes), int("keepdims", 0)]);
    }
    let axes = b.integers(axes);
    b.op("ReduceSum", &[x, &axes], vec![int("keepdims", 0)])
}
