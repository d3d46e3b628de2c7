//! The space of the sketch for tensor cores by warps (`mod.rs`): its knobs, and the constraints
//! that make their values legal or sensible. Input: a contraction (a sum over tiles of one or two
//! operands, `problem.rs`), the roles of its operands (which gives the product's rows, which its
//! columns) and a GPU; output: a space of configurations, which `program.rs` turns into kernels.
//!
//! The knobs are a tile size for each axis (`m_b`), warps along rows and columns, the chunk of the
//! reduction, stages of the pipeline, ways to copy to shared memory (`copy`, `transpose`),
//! unrolling, and splits of the reduction. The functions on tiles and copies are shared with
//! `warpgroup/knobs.rs`.

use super::super::super::{Draft, divisors, overlap_at_most, powers};
use super::super::problem::Contraction;
use super::super::resources::{
    Block, SWIZZLE_ALIGNMENT, WARP, ends_near, stage_bytes, steps, warp_registers,
};
use super::roles::{
    Factor, Roles, SIDE, SWIZZLED_ROW, Slide, TileLayout, group_knob, slides, tile_knob,
};
use super::shared::pieces;
use super::tma;
use crate::gcd;
use squall_core::expr::{Affine, Var};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Gpu, Space};

/// The most places of the last reduction (lines of an image) that a step takes.
const MOST_LINES: i64 = 16;

/// The most matrix products that are unrolled: builders wait for the slowest compilation.
const MOST_UNROLLED: i64 = 256;

/// Adds a knob for the tile of each of a factor's axes; `widths` says which extents of its last
/// axis can be copied.
pub fn tile_knobs(d: &mut Draft, p: &Contraction, f: &Factor, widths: impl Fn(i64) -> bool) {
    for &a in &f.axes {
        let (axis, last) = (&p.axes[a], f.axes.last() == Some(&a));
        let most = axis.extent.min(if last { 256 } else { 32 });
        let values = powers(1, most).chain(divisors(axis.extent)).filter(|d| *d <= most);
        let role = Role::Tile { axis: axis.short.clone(), level: 0 };
        let name = format!("{}_b", axis.short);
        d.knobs.push(Knob::ints(name, role, values.filter(|v| !last || widths(*v))));
        // Tiles that overlap may compute an eighth twice.
        d.should.push(overlap_at_most(axis.extent, || tile_knob(p, a), 8));
    }
}

/// The space of the sketch by warps; `None` where no configuration is legal.
pub fn space(p: &Contraction, roles: &Roles, gpu: Gpu) -> Option<Space> {
    let sliding = roles.sliding(p);
    let s = Sketch { p, roles, gpu, k: p.reduce[0].extent, sliding };
    let mut d = Draft::default();
    s.tile_and_reduction(&mut d);
    let tma = s.ways_to_copy(&mut d);
    s.loops(&mut d);
    s.work(&mut d);
    s.written_out(&mut d);
    let block = Block { threads: s.threads(), registers: None, shared: Vec::new() };
    let registers = Some(s.registers());
    d.must.extend(Block { registers, shared: vec![s.shared(tma)], ..block }.fits(gpu));
    d.open()
}

/// The facts of the problem that knobs and constraints are made from.
struct Sketch<'a> {
    p: &'a Contraction,
    roles: &'a Roles,
    gpu: Gpu,
    /// Elements of the first reduction.
    k: i64,
    /// See [`Roles::sliding`].
    sliding: Option<usize>,
}

impl Sketch<'_> {
    /// Extents of the reductions all of whose places a step has.
    fn windows(&self) -> Vec<i64> {
        let all = if self.roles.images { &[] } else { &self.p.reduce[1..] };
        all.iter().map(|r| r.extent).collect()
    }

    /// Places of the last reduction that a step takes, where the sums run over images.
    fn group(&self) -> Term {
        Term::knob(group_knob(self.p))
    }

    /// Places of all reductions behind the first: lines of all images, where it runs along them.
    fn image_lines(&self) -> i64 {
        self.p.reduce[1..].iter().map(|r| r.extent).product()
    }

    /// Steps of a block.
    fn steps(&self) -> Term {
        if !self.roles.images {
            return steps(self.k, Self::step_parts());
        }
        steps(self.image_lines(), [self.group(), Term::knob("split_blocks")])
    }

    /// Elements of the first reduction, in whole slices.
    fn filled(&self) -> i64 {
        let depth = self.roles.depth();
        (self.k + depth - 1) / depth * depth
    }

    fn any(&self, layout: TileLayout) -> bool {
        self.roles.both().iter().any(|f| f.layout == layout)
    }

    /// Rows or columns of a factor's tile.
    fn size(&self, f: &Factor) -> Term {
        Term::product(f.axes.iter().map(|&a| tile_knob(self.p, a)))
    }

    /// Neighbours that a row or column of a factor's matrices stands for.
    fn run(&self, f: &Factor) -> Term {
        match self.sliding.map(|k| self.roles.both()[k].operand) {
            Some(operand) if operand == f.operand => Term::knob("run"),
            _ => Term::from(1),
        }
    }

    /// Rows or columns of a factor's matrices.
    fn counted(&self, f: &Factor) -> Term {
        self.size(f).ceil_div(self.run(f))
    }

    /// Each factor with the knob that says how many warps share it out.
    fn shares(&self) -> [(&Factor, &'static str); 2] {
        [(&self.roles.rows, "warps_rows"), (&self.roles.columns, "warps_columns")]
    }

    /// A warp's matrices along a factor.
    fn sides(&self, f: &Factor, warps: &str) -> Term {
        self.counted(f).ceil_div(Term::product([Term::knob(warps), Term::from(SIDE)]))
    }

    /// A warp's matrices of sums.
    fn sums(&self) -> Term {
        let runs = self.roles.both().map(|f| self.run(f));
        Term::product(self.shares().map(|(f, warps)| self.sides(f, warps)).into_iter().chain(runs))
    }

    fn threads(&self) -> Term {
        let warps = ["warps_rows", "warps_columns", "split_warps"].map(Term::knob);
        Term::product(warps.into_iter().chain([Term::from(WARP)]))
    }

    fn step_parts() -> [Term; 3] {
        ["chunk", "split_warps", "split_blocks"].map(Term::knob)
    }

    /// Knobs for the tile and for how the reduction is cut.
    fn tile_and_reduction(&self, d: &mut Draft) {
        let depth = self.roles.depth();
        for f in self.roles.both() {
            tile_knobs(d, self.p, f, |v| f.layout != TileLayout::MnMajor || v % 8 == 0);
        }
        for name in ["warps_rows", "warps_columns"] {
            d.knobs.push(Knob::ints(name, Role::Parallel, [1, 2, 4, 8]));
        }
        let role = |level| Role::Tile { axis: self.p.reduce[0].short.clone(), level };
        // A reduction that moves along an axis is not cut, because the tile's lines hold all of it.
        // Of images each step takes whole lines, and blocks share out the lines.
        let images = self.roles.images;
        let whole = images || self.any(TileLayout::Sliding);
        let parts = |most: i64, whole: bool| powers(1, if whole { 1 } else { most });
        let chunks = if whole { vec![self.filled()] } else { powers(depth, 8 * depth).collect() };
        d.knobs.push(Knob::ints("chunk", role(0), chunks));
        d.knobs.push(Knob::ints("split_warps", role(1), parts(8, whole)));
        let blocks = parts(self.gpu.cluster(), whole && !images);
        d.knobs.push(Knob::ints("split_blocks", role(2), blocks));
        if let Some(last) = self.p.reduce.last().filter(|_| images) {
            let role = Role::Tile { axis: last.short.clone(), level: 0 };
            let groups = divisors(last.extent).into_iter().filter(|g| *g <= MOST_LINES);
            d.knobs.push(Knob::ints(group_knob(self.p), role, groups));
            let parts = Term::product([self.group(), Term::knob("split_blocks")]);
            d.must.push(parts.divides(self.image_lines()));
        }
        d.knobs.push(Knob::ints("stages", Role::Choice, 1..=5));
    }

    /// Knobs for how tiles get to shared memory and from there to registers; the term says where
    /// they arrive as TMA tiles.
    fn ways_to_copy(&self, d: &mut Draft) -> Term {
        let transposed = self.any(TileLayout::Transposed);
        // A factor is transposed by the copy to shared memory, by a launch of its own before the
        // kernel, or never: elements that are wide enough can be gathered one by one.
        let ways = ["copy", "launch", "gather"];
        let ways = if self.roles.format.is_half() { &ways[..2] } else { &ways };
        let transpose = Knob::words("transpose", Role::Layout, ways)
            .formerly("turn", &[("0", "copy"), ("1", "launch"), ("2", "gather")]);
        let launch = transpose.is("launch");
        if transposed {
            d.knobs.push(transpose);
        }
        // Matrices can be loaded one product ahead, and also across the barrier between steps.
        let ahead = Knob::scale("ahead", Role::Choice, &["none", "slice", "step"])
            .formerly("ahead", &[("0", "none"), ("1", "slice"), ("2", "step")]);
        d.knobs.push(ahead);
        // Tiles that the copy engine fetches lie in swizzled rows, which are no lines that a window
        // could slide along.
        let whole = Term::product(["chunk", "split_warps"].map(Term::knob));
        let more = tma::constraints(self.p, self.roles, self.gpu, &whole);
        let mut tma = Term::from(0);
        let mut before = vec![("0", "dense"), ("1", "padded")];
        if let Some(mut more) = more.filter(|_| self.p.reduce.len() == 1) {
            let copy = Knob::words("copy", Role::Choice, &["threads", "tma"])
                .formerly("pad", &[("0", "threads"), ("1", "threads"), ("2", "tma")]);
            tma = copy.is("tma");
            d.knobs.push(copy);
            before.push(("2", "dense"));
            let row = || Term::from(SWIZZLED_ROW);
            more.push(row().divides(Term::knob("chunk")).or(whole.equals(SWIZZLED_ROW)));
            if transposed {
                more.push(launch);
            }
            d.must.extend(more.into_iter().map(|holds| tma.clone().implies(holds)));
        }
        // Padding behind rows; swizzled rows need none.
        let rows = Knob::words("rows", Role::Layout, &["dense", "padded"]).formerly("pad", &before);
        d.must.push(tma.clone().implies(rows.is("dense")));
        d.knobs.push(rows);
        tma
    }

    /// Knobs for the loops over the window, and for what crosses a step's end.
    fn loops(&self, d: &mut Draft) {
        let windows = self.windows();
        let knob = |name: &str| Term::knob(name);
        if !windows.is_empty() {
            // This knob says how many of the window's loops are written out.
            d.knobs.push(Knob::ints("unroll", Role::Unroll, 0..=windows.len().min(2) as i64));
        }
        // Weights can arrive piece by piece; several steps are on their way by themselves.
        if windows.len() > 1 && self.roles.both().iter().any(|f| pieces(self.p, f).is_some()) {
            let weights = Knob::words("weights", Role::Choice, &["whole", "pieces"])
                .formerly("piecewise", &[("0", "whole"), ("1", "pieces")]);
            d.must.push(weights.is("whole").or(knob("stages").equals(1)));
            d.knobs.push(weights);
        }
        // A row or column of a matrix can stand for a run of neighbours, which share what they
        // read.
        if let Some(k) = self.sliding
            && let Some(&a) = self.roles.both()[k].axes.last()
        {
            let extent = self.p.axes[a].extent;
            let most = extent.min(8);
            let values = powers(1, most).chain(divisors(extent)).filter(|d| *d <= most);
            d.knobs.push(Knob::ints("run", Role::Choice, values));
            d.must.push(knob("run").divides(tile_knob(self.p, a)));
            d.must.push(knob("run").equals(1).or(Term::from(1).at_most(knob("unroll"))));
        }
        // Matrices can outlive a step only if the step has several products and no loop around
        // them.
        let mut across = vec![
            Term::from(2).at_most(knob("stages")),
            Term::from(2 * self.roles.depth()).at_most(knob("chunk")),
        ];
        if !windows.is_empty() {
            across.push(Term::from(windows.len() as i64).at_most(knob("unroll")));
        }
        if self.sliding.is_some() {
            across.push(knob("run").equals(1));
        }
        if self.roles.images {
            across.push(self.group().equals(1));
        }
        let step = d.knobs.iter().find(|k| k.name == "ahead").map(|k| k.is("step"));
        d.must.extend(step.map(|step| step.implies(Term::product(across))));
    }

    /// Constraints that bound useless work and the number of steps.
    fn work(&self, d: &mut Draft) {
        for (f, warps) in self.shares() {
            // At most a third of the rows and columns may lie beyond the problem, where it has
            // enough of them.
            let covered =
                Term::product([self.sides(f, warps), Term::knob(warps), Term::from(3 * SIDE)]);
            let counted = |times: i64| Term::product([self.counted(f), Term::from(times)]);
            d.should.push(covered.clone().at_most(counted(4)));
            d.must.push(covered.at_most(Term::sum([counted(6), Term::from(3 * SIDE)])));
        }
        d.must.push(self.sums().at_most(16));
        if !self.roles.images {
            let parts = || Term::product(Self::step_parts());
            d.must.push(ends_near(self.k, self.roles.depth(), parts));
        }
        // One stage more than there are steps means that all steps are on their way at once; that
        // needs several steps.
        let several = Term::from(2).at_most(self.steps());
        let most = Term::sum([self.steps(), several]);
        d.must.push(Term::knob("stages").at_most(most));
        d.must.push(self.roles.shared_out(self.p));
    }

    /// Bounds products of matrices that are written out.
    fn written_out(&self, d: &mut Draft) {
        let windows = self.windows();
        let each = if self.roles.split { 3 } else { 1 };
        let written = |window: i64| {
            Term::product([self.sums(), Term::knob("chunk"), Term::from(each * window)])
                .at_most(MOST_UNROLLED * self.roles.depth())
        };
        d.must.push(written(1));
        for loops in [1, 2] {
            if let Some(inner) = windows.len().checked_sub(loops) {
                // With two loops half as many are allowed, because these take longest to compile.
                let positions = loops as i64 * windows[inner..].iter().product::<i64>();
                let fewer = Term::knob("unroll").at_most(loops as i64 - 1);
                d.must.push(fewer.or(written(positions)));
            }
        }
    }

    /// Registers of a thread: sums, and factors in one or two parts, once or twice.
    fn registers(&self) -> Term {
        let both = self.roles.both();
        let slide = self.sliding.and_then(|k| slides(self.p, both[k]));
        let factors = Term::sum(
            self.shares().map(|(f, w)| Term::product([self.sides(f, w), self.lines(f, slide)])),
        );
        let twice = Term::from(1).at_most(Term::knob("ahead"));
        let held = Term::product([factors, Term::sum([twice, Term::from(1)])]);
        warp_registers(self.sums(), held, if self.roles.split { 8 } else { 4 })
    }

    /// Matrices that a run reads of a line of the window.
    fn lines(&self, f: &Factor, slide: Option<Slide>) -> Term {
        let (one, run) = (Term::from(1), self.run(f));
        let Some(s) = slide.filter(|_| run == Term::knob("run")) else { return one };
        let more = Term::sum([
            Term::product([run.clone(), Term::from(s.step)]),
            Term::from(s.dilation * (s.extent - 1) - s.step),
        ]);
        Term::sum([one, Term::product([Term::from(2).at_most(run), more])])
    }

    /// Elements of a factor's tile, where the sums run over images.
    fn tile_of_images(&self, f: &Factor) -> Term {
        let p = self.p;
        let extent = |v: Var| match p.axes.iter().position(|a| a.var == v) {
            // An axis that both factors have is cut into single elements.
            Some(a) => f.axes.contains(&a).then(|| tile_knob(p, a)),
            None if v == p.reduce[0].var => Some(Term::from(match f.layout {
                TileLayout::Sliding => self.k,
                _ => self.filled(),
            })),
            None => p.reduce.last().filter(|r| r.var == v).map(|_| self.group()),
        };
        let dimension = |i: &Affine| {
            let moving = || i.terms().iter().filter_map(|t| Some((extent(t.0)?, t.1)));
            // Where steps of `c` are filled up by neighbours; a single one fills nothing.
            let mut both: Vec<(Term, i64)> = moving().collect();
            both.sort_by_key(|t| std::cmp::Reverse(t.1));
            if let [(e, c), (f, 1)] = &both[..]
                && *c > 1
            {
                let steps = Term::sum([
                    Term::product([e.clone(), Term::from(c - 1)]),
                    f.clone(),
                    Term::from(-c),
                ]);
                let filled = Term::product([Term::from(2).at_most(f.clone()), steps]);
                return Term::sum([e.clone(), filled]);
            }
            let step = moving().fold(0, |step, t| gcd(step, t.1)).max(1);
            let first = 1 - moving().map(|t| t.1 / step).sum::<i64>();
            let reached = moving().map(|(e, c)| Term::product([e, Term::from(c / step)]));
            Term::sum(reached.chain([Term::from(first)]))
        };
        Term::product(p.operands[f.operand].index.iter().map(dimension))
    }

    /// Bytes of shared memory at least: a weight lies there for each position of the window.
    fn shared(&self, tma: Term) -> Term {
        let window: i64 = self.windows().iter().product();
        let lines = self.roles.both().map(|f| {
            let times = if f.layout == TileLayout::Packed { window } else { 1 };
            Term::product([self.size(f), Term::from(times)])
        });
        let depth = Term::product(["chunk", "split_warps"].map(Term::knob));
        // The stage that is one more than there are steps takes no room.
        let spare = Term::sum([self.steps(), Term::from(1)]).at_most(Term::knob("stages"));
        let stages = Term::sum([Term::knob("stages"), Term::product([Term::from(-1), spare])]);
        let bytes = self.roles.format.bytes() as i64;
        if self.roles.images {
            let tiles = self.roles.both().map(|f| self.tile_of_images(f));
            return stage_bytes(Term::sum(tiles), Term::from(1), stages, bytes);
        }
        let head = Term::product([Term::from(SWIZZLE_ALIGNMENT), tma]);
        Term::sum([stage_bytes(Term::sum(lines), depth, stages, bytes), head])
    }
}
