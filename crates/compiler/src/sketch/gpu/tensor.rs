//! Matrix products and convolutions on tensor cores (`mma.sync`), for factors of 16 bits and for
//! 32-bit floats whose task allows them to be rounded to tf32; sums are 32-bit floats. Factors
//! whose task does not are split into two numbers of tf32 each, and three of the four products
//! added up: what is lost is 2^-22 of a product (docs/decisions/0012).
//!
//! The axes that only one factor has, counted together, are the rows of the product, those of the
//! other factor the columns: the output's innermost axis is among the columns. A block computes a
//! tile of both, a warp `16 i` rows by `16 j` columns of it. Chunks of the reduction wait in shared
//! memory in several stages; a convolution's input lies there once for all positions of the window,
//! and a row of a matrix finds its place by its lane, so that nothing is copied out as an implicit
//! product would. A weight's tile can arrive in pieces, one of which is multiplied while the next
//! is on its way. The reduction can be split over groups of warps and over the blocks of a cluster.
//! Sums go through shared memory, from where the epilogue writes whole lines of the output.

use super::super::{divisors, powers};
use super::Program;
use super::boxes;
use super::group::ROWS;
use super::problem::{Operand, Problem};
use super::tensor_shared::pieces;
use super::tensor_tile::Tiling;
use crate::nest::{Nest, Scope};
use squall_core::expr::{Affine, Binary, Expr, Var};
use squall_core::space::{Knob, Role, Term};
use squall_core::workload::{Reducer, flatten};
use squall_core::{DType, Gpu, Space};
use std::sync::Arc;

/// Products of matrices that are written out at most: builders wait for the slowest compilation.
const MOST_UNROLLED: i64 = 256;

/// Rows and columns of a matrix of sums.
pub(super) const SIDE: i64 = 16;

/// One factor's part.
#[derive(Clone)]
pub(super) struct Factor {
    /// Among the problem's operands.
    pub operand: usize,
    /// Axes that only this factor has.
    pub axes: Vec<usize>,
    /// Which of its dimensions the reduction runs along.
    pub along: usize,
    /// How it lies in shared memory.
    pub layout: Layout,
    /// Filled up with zeros behind the reduction's end.
    pub filled: bool,
}

/// What lies side by side in shared memory.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Layout {
    /// The reduction, in a copy of a weight that was made ahead of time.
    Packed,
    /// The reduction, as in device memory.
    Along,
    /// The reduction, transposed on the way.
    Turned,
    /// Everything but the reduction, which comes first: elements of 32 bits are gathered one by one
    /// when a matrix is loaded.
    Planes,
    /// The last axis, as in device memory: matrices are transposed when they are loaded.
    Across,
    /// As in device memory, where the reduction moves along a dimension together with an axis:
    /// elements of 32 bits are gathered one by one.
    Sliding,
}

impl Layout {
    /// Whether elements are gathered one by one.
    pub fn gathered(self) -> bool {
        matches!(self, Layout::Planes | Layout::Sliding)
    }
}

impl Factor {
    /// Each of its axes, with those that stand before it.
    pub fn cuts(&self) -> impl Iterator<Item = (&[usize], usize)> {
        (0..self.axes.len()).map(|i| (&self.axes[..i], self.axes[i]))
    }
}

/// Who is who.
pub(super) struct Roles {
    pub format: DType,
    /// Each factor is the sum of two numbers, for products as precise as those of 32-bit floats.
    pub split: bool,
    pub rows: Factor,
    pub columns: Factor,
}

/// How the window moves along a factor's last axis.
#[derive(Clone, Copy)]
pub(super) struct Slide {
    /// Distances in the factor's source of neighbours and of the window's positions.
    pub step: i64,
    pub dilation: i64,
    /// Positions of the window.
    pub extent: i64,
}

/// Whether the last loop over the window moves along the last axis of a factor, so that neighbours
/// read the same elements.
pub(super) fn slides(p: &Problem, f: &Factor) -> Option<Slide> {
    let (o, &last) = (&p.operands[f.operand], f.axes.last()?);
    let window = p.reduce[1..].last()?;
    let using = |v: Var| o.index.iter().filter(move |i| i.uses(v));
    let dimension = using(window.var).next()?;
    let alone = using(window.var).count() == 1
        && using(p.axes[last].var).count() == 1
        && f.layout != Layout::Packed;
    let (step, dilation) =
        (dimension.coefficient(p.axes[last].var), dimension.coefficient(window.var));
    (alone && step > 0).then_some(Slide { step, dilation, extent: window.extent })
}

impl Roles {
    /// The factor of which matrices take runs of neighbours: 0 rows, 1 columns.
    pub fn sliding(&self, p: &Problem) -> Option<usize> {
        [(1, &self.columns), (0, &self.rows)]
            .into_iter()
            .find(|(_, f)| slides(p, f).is_some())
            .map(|f| f.0)
    }

    /// That the blocks of a cluster share out the rows or the columns of their tile: an axis that
    /// no other one of its factor stands before.
    pub fn shared_out(&self, p: &Problem) -> Term {
        let knob = |a: usize| Term::knob(format!("{}_b", p.axes[a].short));
        [&self.rows, &self.columns].into_iter().flat_map(Factor::cuts).fold(
            Term::knob("split_blocks").equals(1),
            |t, (before, a)| {
                let alone = Term::product(before.iter().map(|&b| knob(b))).equals(1);
                t.or(Term::product([alone, Term::knob("split_blocks").divides(knob(a))]))
            },
        )
    }

    /// Columns of a matrix of factors.
    pub fn depth(&self) -> i64 {
        32 / self.format.bytes() as i64
    }
}

pub(super) fn derive(p: &Arc<Problem>, gpu: Gpu) -> Option<Program> {
    if gpu.capability < 80 {
        return None;
    }
    let led = leading(p).map(|r| Arc::new(p.led_by(r)));
    let (p, roles, space) = led.iter().chain([p]).find_map(|p| {
        let roles = Arc::new(roles(p)?);
        Some((Arc::clone(p), Arc::clone(&roles), space(p, &roles, gpu)?))
    })?;
    let name = if roles.split { "gpu_tensor_split" } else { "gpu_tensor" };
    Some(Program {
        name: name.into(),
        space,
        gpu,
        make: Box::new(move |c| Ok(Tiling::new(&p, &roles, c).program())),
    })
}

/// The reduction that is summed by matrices, where the first would leave most of their columns
/// empty: along an image of three channels a window of seven fills them better.
fn leading(p: &Problem) -> Option<usize> {
    let depth = match format(&p.base, p)? {
        DType::F32 | DType::Tf32 => 8,
        _ => return None,
    };
    // Columns that are multiplied, in eighths of those that there are.
    let filled =
        |r: usize| (p.reduce[r].extent + depth - 1) / depth * depth * 8 / p.reduce[r].extent;
    let best = (1..p.reduce.len()).rev().min_by_key(|&r| filled(r))?;
    (2 * filled(best) <= filled(0)).then_some(best)
}

/// The format that both factors of the summand lie or are allowed to be rounded in.
fn format(n: &Nest, p: &Problem) -> Option<DType> {
    let Expr::Binary(Binary::Mul, x, y) = &p.value else { return None };
    let factor = |e: &Expr| match e {
        Expr::Load { source, .. } => {
            Some((source.0, n.buffer(p.operands[source.0 as usize].source).dtype))
        }
        Expr::Cast(DType::Tf32, a) => match &**a {
            Expr::Load { source, .. }
                if n.buffer(p.operands[source.0 as usize].source).dtype == DType::F32 =>
            {
                Some((source.0, DType::Tf32))
            }
            _ => None,
        },
        _ => None,
    };
    let ((a, x), (b, y)) = (factor(x)?, factor(y)?);
    (a != b && x == y && (x.is_half() || matches!(x, DType::Tf32 | DType::F32))).then_some(x)
}

pub(super) fn roles(p: &Problem) -> Option<Roles> {
    let n = &p.base;
    let (format, split) = match format(n, p)? {
        DType::F32 => (DType::Tf32, true),
        other => (other, false),
    };
    if p.op != Reducer::Sum || p.operands.len() != 2 || p.operands.iter().any(|o| o.other != 0.0) {
        return None;
    }
    let uses = |o: usize, a: usize| p.operands[o].index.iter().any(|i| i.uses(p.axes[a].var));
    let own = |o: usize| -> Vec<usize> {
        (0..p.axes.len()).filter(|&a| uses(o, a) && !uses(1 - o, a)).collect()
    };
    let both = |a: usize| uses(0, a) && uses(1, a);
    if own(0).is_empty() || own(1).is_empty() {
        return None;
    }
    let y = flatten(&p.y_index, &n.buffer(p.output).shape);
    let columns =
        (0..2).find(|&o| own(o).iter().any(|&a| y.coefficient(p.axes[a].var) == 1)).unwrap_or(1);
    let factor = |operand: usize| {
        let o = &p.operands[operand];
        let k = p.reduce[0].var;
        let along = o.index.iter().position(|i| i.uses(k))?;
        // Beside the reduction its dimension may hold axes that both factors have: groups.
        let simple = o.index.iter().filter(|i| i.uses(k)).count() == 1
            && o.index[along].coefficient(k) == 1
            && o.index[along]
                .terms()
                .iter()
                .all(|t| t.0 == k || (0..p.axes.len()).any(|a| p.axes[a].var == t.0 && both(a)));
        let axes = own(operand);
        let sliding = format == DType::Tf32 && !o.packed;
        let layout = if simple { layout(n, p, o, &axes, along, format) } else { Layout::Sliding };
        (simple || sliding).then_some(Factor { operand, layout, axes, along, filled: false })
    };
    Some(Roles { format, split, rows: factor(1 - columns)?, columns: factor(columns)? })
}

fn layout(
    n: &Nest,
    p: &Problem,
    o: &Operand,
    axes: &[usize],
    along: usize,
    format: DType,
) -> Layout {
    let buffer = n.buffer(o.source);
    if o.packed && buffer.scope == Scope::Prepared {
        return Layout::Packed;
    }
    let last = o.index.len() - 1;
    if along == last {
        return Layout::Along;
    }
    let single = |i: &Affine| {
        i.as_var()
            .is_some_and(|v| axes.iter().any(|&a| p.axes[a].var == v && p.axes[a].extent % 8 == 0))
    };
    let tested = o.conds.iter().any(|c| c.index.terms() == o.index[last].terms());
    if format.is_half() && single(&o.index[last]) && !tested && buffer.shape[last] % 8 == 0 {
        Layout::Across
    } else {
        Layout::Turned
    }
}

fn space(p: &Problem, roles: &Roles, gpu: Gpu) -> Option<Space> {
    let mut knobs = Vec::new();
    let (mut constraints, mut strict) = (Vec::new(), Vec::new());
    let knob = |a: usize| Term::knob(format!("{}_b", p.axes[a].short));
    for f in [&roles.rows, &roles.columns] {
        for &a in &f.axes {
            let (axis, last) = (&p.axes[a], f.axes.last() == Some(&a));
            let most = axis.extent.min(if last { 256 } else { 32 });
            let values: Vec<i64> =
                powers(1, most).chain(divisors(axis.extent)).filter(|d| *d <= most).collect();
            let across = last && f.layout == Layout::Across;
            knobs.push(Knob::ints(
                format!("{}_b", axis.short),
                Role::Tile { axis: axis.short.clone(), level: 0 },
                values.into_iter().filter(|v| !across || v % 8 == 0),
            ));
            // Overlapping tiles may waste an eighth.
            let covered =
                Term::product([Term::from(axis.extent).ceil_div(knob(a)), knob(a), Term::from(8)]);
            strict.push(covered.at_most(9 * axis.extent));
        }
    }
    let depth = roles.depth();
    let k = p.reduce[0].extent;
    for name in ["warps_rows", "warps_columns"] {
        knobs.push(Knob::ints(name, Role::Parallel, [1, 2, 4, 8]));
    }
    let role = |level| Role::Tile { axis: p.reduce[0].short.clone(), level };
    // What moves along an axis is not cut: the tile's lines hold all of it.
    let whole = [&roles.rows, &roles.columns].iter().any(|f| f.layout == Layout::Sliding);
    let filled = (k + depth - 1) / depth * depth;
    let parts = |most: i64| powers(1, if whole { 1 } else { most });
    let chunks = if whole { vec![filled] } else { powers(depth, 8 * depth).collect() };
    knobs.push(Knob::ints("chunk", role(0), chunks));
    knobs.push(Knob::ints("split_warps", role(1), parts(8)));
    knobs.push(Knob::ints("split_blocks", role(2), parts(gpu.cluster())));
    knobs.push(Knob::ints("stages", Role::Choice, 1..=5));
    if [&roles.rows, &roles.columns].iter().any(|f| f.layout == Layout::Turned) {
        // On the way; ahead, by a launch of its own; or not at all, where elements are wide enough.
        knobs.push(Knob::ints(
            "turn",
            Role::Layout,
            if roles.format.is_half() { 0..=1 } else { 0..=2 },
        ));
    }
    // Matrices are loaded one product ahead; across the barrier between steps, too.
    knobs.push(Knob::ints("ahead", Role::Choice, 0..=2));
    let windows: Vec<i64> = p.reduce[1..].iter().map(|r| r.extent).collect();
    // Tiles that the copy engine fetches lie in swizzled rows: no lines for a window to slide
    // along.
    let whole = Term::product(["chunk", "split_warps"].map(Term::knob));
    let boxed = Term::knob("pad").equals(2);
    let boxes = boxes::constraints(p, roles, gpu, &boxed, &whole).filter(|_| windows.is_empty());
    // Room behind rows; or swizzled ones, which arrive as boxes.
    knobs.push(Knob::ints("pad", Role::Layout, 0..=if boxes.is_some() { 2 } else { 1 }));
    if let Some(more) = boxes {
        constraints.extend(more);
        let mut list = vec![Term::from(ROWS).divides(Term::knob("chunk")).or(whole.equals(ROWS))];
        if [&roles.rows, &roles.columns].iter().any(|f| f.layout == Layout::Turned) {
            list.push(Term::knob("turn").equals(1));
        }
        constraints.push(boxed.clone().equals(0).or(Term::product(list)));
    }
    if !windows.is_empty() {
        // How many of the window's loops are written out.
        knobs.push(Knob::ints("unroll", Role::Unroll, 0..=windows.len().min(2) as i64));
    }
    // Weights can arrive piece by piece; several steps are on their way by themselves.
    let cut = [&roles.rows, &roles.columns].iter().any(|f| pieces(p, f).is_some());
    if windows.len() > 1 && cut {
        knobs.push(Knob::ints("piecewise", Role::Choice, [0, 1]));
        constraints.push(Term::knob("piecewise").equals(0).or(Term::knob("stages").equals(1)));
    }
    // A row or column of a matrix can stand for a run of neighbours, which share what they read.
    let sliding = roles.sliding(p);
    let slide = sliding.and_then(|k| slides(p, [&roles.rows, &roles.columns][k]));
    if let Some(k) = sliding
        && let Some(&a) = [&roles.rows, &roles.columns][k].axes.last()
    {
        let extent = p.axes[a].extent;
        let most = extent.min(8);
        let values = powers(1, most).chain(divisors(extent)).filter(|d| *d <= most);
        knobs.push(Knob::ints("run", Role::Choice, values));
        constraints.push(Term::knob("run").divides(knob(a)));
        constraints
            .push(Term::knob("run").equals(1).or(Term::from(1).at_most(Term::knob("unroll"))));
    }
    // Across steps: an even number of products, in no loop.
    let mut across = vec![
        Term::from(2).at_most(Term::knob("stages")),
        Term::from(2 * depth).at_most(Term::knob("chunk")),
    ];
    if !windows.is_empty() {
        across.push(Term::from(windows.len() as i64).at_most(Term::knob("unroll")));
    }
    if sliding.is_some() {
        across.push(Term::knob("run").equals(1));
    }
    constraints.push(Term::knob("ahead").at_most(1).or(Term::product(across).equals(1)));
    let one = || Term::from(1);
    let run = |f: &Factor| match sliding.map(|k| [&roles.rows, &roles.columns][k].operand) {
        Some(operand) if operand == f.operand => Term::knob("run"),
        _ => one(),
    };
    let size = |f: &Factor| Term::product(f.axes.iter().map(|&a| knob(a)));
    let counted = |f: &Factor| size(f).ceil_div(run(f));
    let sides = |f: &Factor, warps: &str| {
        counted(f).ceil_div(Term::product([Term::knob(warps), Term::from(SIDE)]))
    };
    let pairs = [(&roles.rows, "warps_rows"), (&roles.columns, "warps_columns")];
    for (f, warps) in pairs {
        // Rows and columns that are computed for nothing: a third at most, where there are enough.
        let covered = Term::product([sides(f, warps), Term::knob(warps), Term::from(3 * SIDE)]);
        strict.push(covered.clone().at_most(Term::product([counted(f), Term::from(4)])));
        constraints.push(covered.at_most(Term::sum([
            Term::product([counted(f), Term::from(6)]),
            Term::from(3 * SIDE),
        ])));
    }
    let sums = || {
        let each = [&roles.rows, &roles.columns].map(run);
        Term::product(
            [sides(&roles.rows, "warps_rows"), sides(&roles.columns, "warps_columns")]
                .into_iter()
                .chain(each),
        )
    };
    constraints.push(sums().at_most(16));
    let threads = || {
        Term::product(
            ["warps_rows", "warps_columns", "split_warps"]
                .map(Term::knob)
                .into_iter()
                .chain([Term::from(32)]),
        )
    };
    constraints.push(threads().at_most(i64::from(gpu.threads_per_block)));
    // Matrices that a run reads of a line of the window.
    let lines = |f: &Factor| match slide.filter(|_| run(f) == Term::knob("run")) {
        Some(s) => {
            let more = Term::sum([
                Term::product([run(f), Term::from(s.step)]),
                Term::from(s.dilation * (s.extent - 1) - s.step),
            ]);
            Term::sum([one(), Term::product([Term::from(2).at_most(run(f)), more])])
        }
        None => one(),
    };
    // Sums, factors in one or two parts, once or twice; addresses and the like.
    let factors =
        Term::sum(pairs.iter().map(|(f, warps)| Term::product([sides(f, warps), lines(f)])));
    let held = Term::sum([Term::from(1).at_most(Term::knob("ahead")), Term::from(1)]);
    let factors = Term::product([factors, held, Term::from(if roles.split { 8 } else { 4 })]);
    let registers =
        || Term::sum([Term::product([sums(), Term::from(8)]), factors.clone(), Term::from(48)]);
    constraints.push(registers().at_most(256));
    constraints.push(
        Term::product([threads(), registers()])
            .at_most(i64::from(gpu.registers_per_multiprocessor)),
    );
    let step = || Term::product(["chunk", "split_warps", "split_blocks"].map(Term::knob));
    let most = (9 * k / 8).max(filled);
    constraints.push(Term::product([Term::from(k).ceil_div(step()), step()]).at_most(most));
    // One more where there are several steps: all of them are on their way at once then.
    let steps = || Term::from(k).ceil_div(step());
    constraints
        .push(Term::knob("stages").at_most(Term::sum([steps(), Term::from(2).at_most(steps())])));
    constraints.push(roles.shared_out(p));
    // Products of matrices that are written out.
    let each = if roles.split { 3 } else { 1 };
    let written = |window: i64| {
        Term::product([sums(), Term::knob("chunk"), Term::from(each * window)])
            .at_most(MOST_UNROLLED * depth)
    };
    constraints.push(written(1));
    for loops in [1, 2] {
        if let Some(inner) = windows.len().checked_sub(loops) {
            // Two loops half as many: these take longest to compile.
            let positions = loops as i64 * windows[inner..].iter().product::<i64>();
            constraints.push(Term::knob("unroll").at_most(loops as i64 - 1).or(written(positions)));
        }
    }
    // Shared memory at least: a weight lies there for each position of the window.
    let window: i64 = windows.iter().product();
    let lines = [&roles.rows, &roles.columns].map(|f| {
        Term::product([size(f), Term::from(if f.layout == Layout::Packed { window } else { 1 })])
    });
    let bytes = Term::product([
        Term::sum(lines),
        Term::product(["chunk", "split_warps"].map(Term::knob)),
        Term::sum([
            Term::knob("stages"),
            Term::product([
                Term::from(-1),
                Term::sum([steps(), one()]).at_most(Term::knob("stages")),
            ]),
        ]),
        Term::from(format_bytes(roles)),
    ]);
    // Swizzled rows begin at a multiple of 1,024, behind the barriers that count what arrives.
    let head = Term::product([Term::from(1024), boxed]);
    constraints.push(Term::sum([bytes, head]).at_most(i64::from(gpu.shared_per_block)));
    strict.extend(constraints.iter().cloned());
    Space::new(knobs.clone(), &strict).or_else(|_| Space::new(knobs, &constraints)).ok()
}

fn format_bytes(roles: &Roles) -> i64 {
    roles.format.bytes() as i64
}
