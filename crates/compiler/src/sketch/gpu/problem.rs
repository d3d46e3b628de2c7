//! The description of a contraction (a sum of products, a convolution, a pooling) that GPU sketches
//! work on. Input: the plain loop nest of a workload whose stages were joined; output: a
//! [`Contraction`]: axes, reduction axes, the operands that each step reads, and the epilogue on
//! the sums. `contract`, `tensor` and `warpgroup` make programs of it.

use super::super::tile::{TileAxis, main_loops};
use crate::gcd;
use crate::nest::{Nest, Scope, Stmt};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Var};
use squall_core::operator::RowStep;
use squall_core::workload::Reducer;

/// A tensor element that each step of the sum reads.
#[derive(Clone)]
pub struct ContractionOperand {
    pub source: Source,
    pub index: Vec<Affine>,
    /// Where one of these conditions does not hold, the value is `other`.
    pub conds: Vec<Cond>,
    pub other: f64,
    /// A weight, of which a copy in tiles is made ahead of time.
    pub packed: bool,
    /// The prologue, where the element is not used as it is: an expression of the operand's own
    /// load and of further loads, which move along dimensions of the operand.
    pub prologue: Option<Expr>,
}

/// Statistics of whole rows that a contraction needs before it fetches them ([`Normed`]), such as
/// the mean of each row: a block computes them for the rows of its tile.
///
/// [`Normed`]: squall_core::operator::Normed
#[derive(Clone)]
pub struct RowSteps {
    pub steps: Vec<RowStep>,
    /// Elements of a row.
    pub extent: i64,
    /// The steps that the contraction reads, and the buffers in whose place they stand.
    pub given: Vec<(usize, Source)>,
    /// Along which axis of the contraction each dimension of the rows lies, if it has several.
    pub rows: Vec<Option<usize>>,
}

/// A contraction, read from the joined plain nest.
#[derive(Clone)]
pub struct Contraction {
    pub base: Nest,
    pub axes: Vec<TileAxis>,
    pub reduce: Vec<TileAxis>,
    pub op: Reducer,
    /// The summand; operand `j` stands as a load of source `j` without indices.
    pub value: Expr,
    pub operands: Vec<ContractionOperand>,
    pub acc: Source,
    pub output: Source,
    pub y_index: Vec<Affine>,
    pub y_value: Expr,
    pub row_steps: Option<RowSteps>,
}

pub fn problem(mut base: Nest, c: &str) -> Option<Contraction> {
    let [Stmt::Loop(_)] = &base.body[..] else { return None };
    let (axes, reduce) = main_loops(&base, c)?;
    if axes.len() > 6 || reduce.is_empty() {
        return None;
    }
    let acc = base.find_buffer(c)?;
    let (mut update, mut store) = (None, None);
    crate::nest::visit(&base.body, &mut |s| match s {
        Stmt::Update { op, buffer, value, .. } if *buffer == acc => {
            update = Some((*op, value.clone()))
        }
        Stmt::Store { buffer, index, value } if *buffer != acc => {
            store = Some((*buffer, index.clone(), value.clone()))
        }
        _ => {}
    });
    let ((op, value), (output, y_index, y_value)) = (update?, store?);
    let mut operands = Vec::new();
    let value = lift(&base, &value, &mut operands)?;
    base.body.clear();
    base.buffers[acc.0 as usize].scope = Scope::Local;
    Some(Contraction {
        base,
        axes,
        reduce,
        op,
        value,
        operands,
        acc,
        output,
        y_index,
        y_value,
        row_steps: None,
    })
}

/// Takes the operands out of a summand.
fn lift(n: &Nest, e: &Expr, out: &mut Vec<ContractionOperand>) -> Option<Expr> {
    let mut operand = |source: Source, index: &[Affine], conds: &[Cond], other: f64| {
        let packed = n.buffer(source).scope == Scope::Prepared && conds.is_empty();
        let (index, conds) = (index.to_vec(), conds.to_vec());
        add(ContractionOperand { source, index, conds, other, packed, prologue: None }, out)
    };
    Some(match e {
        Expr::Const(c) => Expr::Const(*c),
        Expr::Load { source, index } => operand(*source, index, &[], 0.0)?,
        Expr::Select { conds, then, other } => match (&**then, &**other) {
            (Expr::Load { source, index }, Expr::Const(c)) => operand(*source, index, conds, *c)?,
            _ => return None,
        },
        Expr::Unary(op, a) => Expr::unary(*op, lift(n, a, out)?),
        Expr::Cast(t, a) => Expr::Cast(*t, Box::new(lift(n, a, out)?)),
        Expr::Binary(Binary::Mul, a, b) => {
            let mut factor = |side: &Expr| match computed(n, side) {
                Some(o) => add(o, out),
                None => lift(n, side, out),
            };
            let [a, b] = [a, b].map(|side| match &**side {
                // A cast stays in the summand, where matrix units look for it.
                Expr::Cast(t, rounded) => Some(Expr::Cast(*t, Box::new(factor(rounded)?))),
                side => factor(side),
            });
            Expr::binary(Binary::Mul, a?, b?)
        }
        Expr::Binary(op, a, b) => Expr::binary(*op, lift(n, a, out)?, lift(n, b, out)?),
    })
}

/// Takes an operand in, and says what stands for it in the summand.
fn add(o: ContractionOperand, out: &mut Vec<ContractionOperand>) -> Option<Expr> {
    let forward = o.index.iter().all(|a| a.terms().iter().all(|t| t.1 > 0));
    let guarded = o.conds.iter().all(|c| o.index.iter().any(|a| a.terms() == c.index.terms()));
    out.push(o);
    (forward && guarded).then(|| Expr::load(Source(out.len() as u32 - 1), Vec::new()))
}

/// The factor that a prologue makes of an element of data, inside of a border where there is one.
/// The element is the load that moves along the most variables; each index of the others and of
/// tests is a number or that of one of its dimensions, so that what is made of an element depends
/// on its place alone.
fn computed(n: &Nest, side: &Expr) -> Option<ContractionOperand> {
    let (prologue, conds, other) = match side {
        Expr::Select { conds, then, other } => match &**other {
            Expr::Const(c) => (&**then, conds.clone(), *c),
            _ => return None,
        },
        e => (e, Vec::new(), 0.0),
    };
    if prologue.flop() == 0 {
        return None;
    }
    let loads = prologue.loads();
    let variables = |index: &[Affine]| index.iter().map(|a| a.terms().len()).sum::<usize>();
    let is_data = |s: &Source| n.buffer(*s).scope != Scope::Prepared;
    let (source, index) =
        loads.iter().filter(|l| is_data(&l.0)).max_by_key(|l| variables(l.1)).copied()?;
    let along = |a: &Affine| a.terms().is_empty() || index.iter().any(|i| i.terms() == a.terms());
    let mut is_of_place = true;
    let prologue = prologue.rewrite(
        &mut |a| {
            is_of_place &= along(a);
            a.clone()
        },
        &mut |e| e,
    );
    let (index, prologue) = (index.to_vec(), Some(prologue));
    is_of_place.then_some(ContractionOperand {
        source,
        index,
        conds,
        other,
        packed: false,
        prologue,
    })
}

impl ContractionOperand {
    /// The value of the element that lies at `place` in `from`: the operand's source, or a copy,
    /// which has no prologue.
    pub fn value(&self, from: Source, place: &[Affine]) -> Expr {
        match &self.prologue {
            Some(made) => made.rewrite(&mut |a| self.along(place, a), &mut |e| e),
            None => Expr::load(from, place.to_vec()),
        }
    }

    /// The conditions under which the element at `place` is none of the border.
    pub fn conds_at(&self, place: &[Affine]) -> Vec<Cond> {
        let at = |c: &Cond| Cond { index: self.along(place, &c.index), ..c.clone() };
        self.conds.iter().map(at).collect()
    }

    /// What an index that moves as one of the operand's own is for the element at `place`; numbers
    /// stay.
    fn along(&self, place: &[Affine], a: &Affine) -> Affine {
        let own = self.index.iter().position(|i| i.terms() == a.terms());
        match own.filter(|_| !a.terms().is_empty()) {
            Some(d) => place[d].plus(a.offset() - self.index[d].offset()),
            None => a.clone(),
        }
    }
}

impl Contraction {
    /// The same problem with another reduction first.
    pub fn led_by(&self, r: usize) -> Contraction {
        let mut p = self.clone();
        let first = p.reduce.remove(r);
        p.reduce.insert(0, first);
        p
    }

    /// The same problem, whose last reduction is taken `by` places at a time: a reduction over the
    /// groups of so many places, which divide it, stands before one over the places of a group.
    pub fn in_groups(&self, by: i64) -> Contraction {
        let mut p = self.clone();
        let Some(last) = p.reduce.pop() else { return p };
        let [outer, inner] =
            ["o", "i"].map(|part| p.base.new_var(&format!("{}{part}", last.short)));
        let part = |var: Var, extent: i64| TileAxis { var, extent, ..last.clone() };
        p.reduce.extend([part(outer, last.extent / by), part(inner, by)]);
        let place = Affine::new([(outer, by), (inner, 1)], 0);
        let moved = |a: &Affine| a.substitute(last.var, &place);
        for o in &mut p.operands {
            o.index = o.index.iter().map(moved).collect();
            o.conds.iter_mut().for_each(|c| c.index = moved(&c.index));
            o.prologue = o.prologue.take().map(|e| e.rewrite(&mut |a| moved(a), &mut |e| e));
        }
        p
    }

    /// Whether sums run over whole images, as those of gradients of weights do: both operands are
    /// data, there are several reductions, the last of which is as long as lines of images are, and
    /// none moves along a dimension together with an axis that is as long, as a window does.
    pub fn sums_over_images(&self) -> bool {
        const LINE: std::ops::RangeInclusive<i64> = 4..=512;
        let longer = |r: &TileAxis, index: &Affine| {
            let beside = |a: &TileAxis| index.uses(a.var) && a.extent >= r.extent;
            !index.uses(r.var) || !self.axes.iter().any(beside)
        };
        let all = || self.operands.iter().flat_map(|o| &o.index);
        self.reduce.len() > 1
            && self.reduce.last().is_some_and(|r| LINE.contains(&r.extent))
            && self.operands.iter().all(|o| !o.packed)
            && self.reduce.iter().all(|r| all().all(|index| longer(r, index)))
    }

    /// Whether an axis cuts the tiles of a packed weight, so that its tiles may not overlap.
    pub fn cuts_weight(&self, a: &TileAxis) -> bool {
        self.operands.iter().any(|o| o.packed && o.index.iter().any(|i| i.uses(a.var)))
    }
}

/// The most places of a window that are written out one after the other.
const LARGEST_WINDOW: i64 = 256;

/// How many of the reductions after the first are no window: those before the ones that are few
/// enough places together to be written out. A gradient of weights sums over whole images.
pub fn walked(p: &Contraction) -> usize {
    let window = |from: usize| p.reduce[from..].iter().map(|r| r.extent).product::<i64>();
    (0..p.reduce.len() - 1).find(|w| window(1 + w) <= LARGEST_WINDOW).unwrap_or(p.reduce.len() - 1)
}

/// How many elements of 32 bits of an operand's lines can be fetched at once from an aligned
/// element on, where each group lies inside or outside of the tensor as a whole; `size` is the
/// tile's, and `steps` says whether the first reduction is walked through.
pub fn line_width(
    p: &Contraction,
    n: &Nest,
    o: &ContractionOperand,
    size: &[i64],
    steps: bool,
) -> Option<i64> {
    let d = o.index.len() - 1;
    let a = &o.index[d];
    let tested = o.conds.iter().any(|c| c.index.terms() == a.terms());
    // What is loaded under a condition is no vector.
    if o.prologue.is_some() && !o.conds.is_empty() {
        return None;
    }
    let fits = |w: i64| {
        // Without a test, no element outside of the tile may be read.
        let inside = a.as_var().is_some_and(|v| {
            p.axes.iter().position(|x| x.var == v).is_some_and(|k| size[k] % w == 0)
        });
        // What tile starts are multiples of; the window and the tile itself move inside of the
        // line.
        let moves = |v: Var, c: i64| match p.axes.iter().position(|x| x.var == v) {
            Some(k) => {
                p.axes[k].extent == size[k] || c * gcd(size[k], p.axes[k].extent - size[k]) % w == 0
            }
            None => !steps || p.reduce[..1 + walked(p)].iter().all(|r| r.var != v),
        };
        let whole = |c: &Cond| {
            let shift = c.index.offset() - a.offset();
            c.index.terms() != a.terms() || (c.low - shift) % w == 0 && (c.high - shift) % w == 0
        };
        (tested || inside)
            && n.buffer(o.source).dtype.bytes() == 4
            && n.buffer(o.source).shape[d] % w == 0
            && a.terms().iter().all(|t| moves(t.0, t.1))
            && o.conds.iter().all(whole)
    };
    [4, 2].into_iter().find(|w| fits(*w))
}

/// An index of a contraction at elements of a tile that begins at `start`.
pub fn at_tile(p: &Contraction, start: &[Var], place: &[Affine], index: &Affine) -> Affine {
    index.map_vars(|v| match p.axes.iter().position(|x| x.var == v) {
        Some(k) => place[k].add(&Affine::var(start[k])),
        None => Affine::var(v),
    })
}

/// Where a contraction's output has them.
pub fn output_index(p: &Contraction, start: &[Var], place: &[Affine]) -> Vec<Affine> {
    p.y_index.iter().map(|i| at_tile(p, start, place, i)).collect()
}

/// A contraction's epilogue there, the sum being `sum`.
pub fn epilogue(p: &Contraction, start: &[Var], place: &[Affine], sum: &Expr) -> Stmt {
    let value = p.y_value.rewrite(&mut |a| at_tile(p, start, place, a), &mut |e| match e {
        Expr::Load { source, .. } if source == p.acc => sum.clone(),
        e => e,
    });
    Stmt::Store { buffer: p.output, index: output_index(p, start, place), value }
}
