//! The space of the sketch for warpgroups (`mod.rs`): its knobs, and the constraints that make
//! their values legal or sensible. Input: a contraction (a sum over tiles of one or two operands,
//! `problem.rs`), the roles of its operands (`tensor/roles.rs`) and a GPU; output: a space, or
//! `None` where the problem is too small.
//!
//! Besides a tile size for each axis the knobs are the warpgroups along rows and columns,
//! `split_blocks` (split of the reduction over a cluster), `stages` of the pipeline, `lag`, and the
//! ways to copy.

use super::super::super::{Draft, powers};
use super::super::problem::Contraction;
use super::super::resources::{
    Block, SWIZZLE_ALIGNMENT, WARPGROUP, ends_near, stage_bytes, steps, sum_bytes,
    warpgroup_registers,
};
use super::super::tensor::knobs::tile_knobs;
use super::super::tensor::roles::{Factor, Roles, SWIZZLED_ROW, TileLayout, tile_knob};
use super::super::tensor::tma;
use super::program::{COLUMNS, DEPTH, ROWS};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Gpu, Space};

/// The knobs that say how many warpgroups share rows, and columns.
pub(super) const WARPGROUPS: [&str; 2] = ["warpgroups_rows", "warpgroups_columns"];
/// Elements that are left free behind each row of sums.
const FREE: i64 = 8;

/// The space of the sketch by warpgroups; `None` where no configuration is legal.
pub fn space(p: &Contraction, roles: &Roles, gpu: Gpu) -> Option<Space> {
    // For smaller problems half of the products would be with zeros.
    if 2 * p.reduce[0].extent <= DEPTH {
        return None;
    }
    let mut d = Draft::default();
    for f in roles.both() {
        tile_knobs(&mut d, p, f, |_| true);
    }
    for (name, former) in [(WARPGROUPS[0], "groups_rows"), (WARPGROUPS[1], "groups_columns")] {
        let knob = Knob::ints(name, Role::Parallel, [1, 2, 4]);
        d.knobs.push(knob.formerly(former, &[("1", "1"), ("2", "2"), ("4", "4")]));
    }
    d.knobs.push(Knob::ints("split_blocks", Role::Parallel, powers(1, gpu.cluster())));
    d.knobs.push(Knob::ints("stages", Role::Choice, 2..=6));
    d.knobs.push(Knob::ints("lag", Role::Choice, [0, 1]));
    ways_to_copy(&mut d, p, roles, gpu);
    steps_and_stages(&mut d, p, roles);
    block(&mut d, p, roles, gpu);
    d.open()
}

/// Rows or columns of a factor's tile.
fn size(p: &Contraction, f: &Factor) -> Term {
    Term::product(f.axes.iter().map(|&a| tile_knob(p, a)))
}

/// How many times 64 rows and 8 columns of the tile a warpgroup takes.
fn units(p: &Contraction, roles: &Roles) -> [Term; 2] {
    let of = |f: &Factor, groups: &str, unit: i64| {
        size(p, f).ceil_div(Term::product([Term::knob(groups), Term::from(unit)]))
    };
    [of(&roles.rows, WARPGROUPS[0], ROWS), of(&roles.columns, WARPGROUPS[1], COLUMNS)]
}

/// Rows and columns that all warpgroups compute.
fn computed(p: &Contraction, roles: &Roles) -> [Term; 2] {
    let [rows, columns] = units(p, roles);
    [
        Term::product([rows, Term::knob(WARPGROUPS[0]), Term::from(ROWS)]),
        Term::product([columns, Term::knob(WARPGROUPS[1]), Term::from(COLUMNS)]),
    ]
}

/// Knobs for how tiles get to shared memory.
fn ways_to_copy(d: &mut Draft, p: &Contraction, roles: &Roles, gpu: Gpu) {
    let mn_major = |f: &&Factor| f.layout == TileLayout::MnMajor;
    let mut launch = None;
    if roles.both().iter().any(mn_major) {
        // A factor is read as it lies, in blocks of 64, or made to lie along the reduction by a
        // launch of its own.
        let transpose = Knob::words("transpose", Role::Layout, &["none", "launch"])
            .formerly("turn", &[("0", "none"), ("1", "launch")]);
        let transposed = transpose.is("launch");
        for f in roles.both().into_iter().filter(mn_major) {
            let last = f.axes.last().map(|&a| Term::from(ROWS).divides(tile_knob(p, a)));
            d.must.extend(last.map(|blocks| transposed.clone().or(blocks)));
        }
        d.knobs.push(transpose);
        launch = Some(transposed);
    }
    if let Some(more) = tma::constraints(p, roles, gpu, &Term::from(DEPTH)) {
        let copy = Knob::words("copy", Role::Choice, &["threads", "tma"])
            .formerly("boxes", &[("0", "threads"), ("1", "tma")]);
        let tma = copy.is("tma");
        d.must.extend(more.into_iter().map(|holds| tma.clone().implies(holds)));
        d.knobs.push(copy);
    }
    let [_, columns] = units(p, roles);
    if let Some(launch) = launch.filter(|_| roles.columns.layout == TileLayout::MnMajor) {
        let whole = Term::from(SWIZZLED_ROW / COLUMNS).divides(columns);
        d.must.push(launch.or(Term::knob(WARPGROUPS[1]).equals(1)).or(whole));
    }
}

/// Constraints that bound useless work, steps and stages.
fn steps_and_stages(d: &mut Draft, p: &Contraction, roles: &Roles) {
    let k = p.reduce[0].extent;
    for (all, f) in computed(p, roles).into_iter().zip(roles.both()) {
        // At most a third of the rows and columns may lie beyond the problem, where it has enough
        // of them.
        let bound = Term::product([size(p, f), Term::from(4)]);
        d.should.push(Term::product([all, Term::from(3)]).at_most(bound));
    }
    let [rows, columns] = units(p, roles);
    // Less than a quarter of an instruction's columns is not worth a warpgroup; small problems have
    // no more.
    d.should.push(Term::from(4).at_most(columns.clone()));
    d.must.push(rows.at_most(2));
    d.must.push(columns.at_most(32));
    let parts = || [Term::knob("split_blocks"), Term::from(DEPTH)];
    d.must.push(ends_near(k, DEPTH, || Term::product(parts())));
    // When the program waits for the first stage, at least one is on its way, and no more than
    // there are steps.
    let window: i64 = p.reduce[1..].iter().map(|r| r.extent).product();
    let steps = Term::product([steps(k, parts()), Term::from(window)]);
    let with_lag = |t: Term| Term::sum([Term::knob("lag"), t]);
    d.must.push(with_lag(Term::from(2)).at_most(Term::knob("stages")));
    let most = with_lag(Term::sum([steps, Term::from(1)]));
    d.must.push(Term::knob("stages").at_most(most));
    d.must.push(roles.shared_out(p));
}

/// Adds the constraint on a block's shared memory: the stages, and later the sums in their place.
fn block(d: &mut Draft, p: &Contraction, roles: &Roles, gpu: Gpu) {
    let groups = WARPGROUPS.map(Term::knob);
    let [rows, columns] = units(p, roles);
    let lines = Term::sum(computed(p, roles));
    let stages = stage_bytes(lines, Term::from(DEPTH), Term::knob("stages"), 2);
    let [all_rows, all_columns] = computed(p, roles);
    let block = Block {
        threads: Term::product(groups.into_iter().chain([Term::from(WARPGROUP)])),
        registers: Some(warpgroup_registers(rows, columns)),
        shared: vec![
            Term::sum([stages, Term::from(SWIZZLE_ALIGNMENT)]),
            sum_bytes(all_rows, all_columns, FREE),
        ],
    };
    d.must.extend(block.fits(gpu));
}
