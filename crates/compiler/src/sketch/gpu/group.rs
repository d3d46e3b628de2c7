//! Matrix products and convolutions by groups of warps (`wgmma`, compute capability 9.0), for
//! factors of 16 bits; sums are 32-bit floats.
//!
//! Rows and columns are those of `tensor`. A block computes a tile of both, a group of four warps
//! `64 i` rows by up to 256 columns of it. Tensor cores read both factors from shared memory by
//! themselves, so a matrix has to lie there as they want it: rows of 64 elements of the reduction,
//! or columns of 64 rows, swizzled. A convolution is an implicit product: at each step, 64 channels
//! at one position of the window, rows are gathered by copies of 16 bytes. Several stages are on
//! their way; with `lag` the products of one step also go on while the next begin, at the price of
//! a stage. The reduction can be split over the blocks of a cluster; sums end as in `tensor`.

use super::super::{divisors, powers};
use super::Program;
use super::boxes;
use super::group_tile::Grouped;
use super::problem::Problem;
use super::tensor::{Factor, Layout, Roles, roles};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Gpu, Space};
use std::sync::Arc;

/// Rows of one product of a group, and elements of a swizzled row.
pub(super) const ROWS: i64 = 64;
pub(super) const DEPTH: i64 = 64;

pub(super) fn derive(p: &Arc<Problem>, gpu: Gpu) -> Option<Program> {
    // These instructions are not in later devices.
    if gpu.capability / 10 != 9 {
        return None;
    }
    let roles = Arc::new(roles(p).filter(|r| r.format.is_half())?);
    let space = space(p, &roles, gpu)?;
    let p = Arc::clone(p);
    Some(Program {
        name: "gpu_group".into(),
        space,
        gpu,
        make: Box::new(move |c| Ok(Grouped::new(&p, &roles, c).program())),
    })
}

fn space(p: &Problem, roles: &Roles, gpu: Gpu) -> Option<Space> {
    let k = p.reduce[0].extent;
    // Half of what is multiplied would be zeros.
    if 2 * k <= DEPTH {
        return None;
    }
    let mut knobs = Vec::new();
    let (mut constraints, mut strict) = (Vec::new(), Vec::new());
    let knob = |a: usize| Term::knob(format!("{}_b", p.axes[a].short));
    for f in [&roles.rows, &roles.columns] {
        for &a in &f.axes {
            let axis = &p.axes[a];
            let most = axis.extent.min(if f.axes.last() == Some(&a) { 256 } else { 32 });
            let values: Vec<i64> =
                powers(1, most).chain(divisors(axis.extent)).filter(|d| *d <= most).collect();
            knobs.push(Knob::ints(
                format!("{}_b", axis.short),
                Role::Tile { axis: axis.short.clone(), level: 0 },
                values,
            ));
            // Overlapping tiles may waste an eighth.
            let covered =
                Term::product([Term::from(axis.extent).ceil_div(knob(a)), knob(a), Term::from(8)]);
            strict.push(covered.at_most(9 * axis.extent));
        }
    }
    knobs.push(Knob::ints("groups_rows", Role::Parallel, [1, 2, 4]));
    knobs.push(Knob::ints("groups_columns", Role::Parallel, [1, 2, 4]));
    knobs.push(Knob::ints("split_blocks", Role::Parallel, powers(1, gpu.cluster())));
    knobs.push(Knob::ints("stages", Role::Choice, 2..=6));
    knobs.push(Knob::ints("lag", Role::Choice, [0, 1]));
    let across: Vec<&Factor> =
        [&roles.rows, &roles.columns].into_iter().filter(|f| f.layout == Layout::Across).collect();
    if !across.is_empty() {
        // As it lies, in blocks of 64, or along the reduction by a launch of its own.
        knobs.push(Knob::ints("turn", Role::Layout, [0, 1]));
        let blocks = |f: &&Factor| {
            f.axes.last().map_or(Term::from(1), |&a| Term::from(ROWS).divides(knob(a)))
        };
        constraints.extend(across.iter().map(|f| Term::knob("turn").equals(1).or(blocks(f))));
    }
    if let Some(more) = boxes::constraints(p, roles, gpu, &Term::knob("boxes"), &Term::from(DEPTH))
    {
        knobs.push(Knob::ints("boxes", Role::Choice, [0, 1]));
        constraints.extend(more);
    }
    let size = |f: &Factor| Term::product(f.axes.iter().map(|&a| knob(a)));
    // 64 rows and 8 columns, as many as a group has.
    let rows =
        || size(&roles.rows).ceil_div(Term::product([Term::knob("groups_rows"), Term::from(ROWS)]));
    let columns = || {
        size(&roles.columns).ceil_div(Term::product([Term::knob("groups_columns"), Term::from(8)]))
    };
    let all_rows = || Term::product([rows(), Term::knob("groups_rows"), Term::from(ROWS)]);
    let all_columns = || Term::product([columns(), Term::knob("groups_columns"), Term::from(8)]);
    for (all, f) in [(all_rows(), &roles.rows), (all_columns(), &roles.columns)] {
        // Computed for nothing: a third at most, where there are enough.
        strict.push(
            Term::product([all, Term::from(3)]).at_most(Term::product([size(f), Term::from(4)])),
        );
    }
    if roles.columns.layout == Layout::Across {
        let whole = Term::from(8).divides(columns());
        constraints.push(
            Term::knob("turn").equals(1).or(Term::knob("groups_columns").equals(1)).or(whole),
        );
    }
    constraints.push(rows().at_most(2));
    constraints.push(columns().at_most(32));
    // One group's tile of sums per thread; addresses, what a step copies.
    let threads = || {
        Term::product([Term::knob("groups_rows"), Term::knob("groups_columns"), Term::from(128)])
    };
    let registers =
        || Term::sum([Term::product([rows(), columns(), Term::from(4)]), Term::from(64)]);
    constraints.push(threads().at_most(i64::from(gpu.threads_per_block)));
    constraints.push(registers().at_most(256));
    constraints.push(
        Term::product([threads(), registers()])
            .at_most(i64::from(gpu.registers_per_multiprocessor)),
    );
    // Less than a quarter of a group's instructions' columns is not worth a group; small problems
    // have no more.
    strict.push(Term::from(4).at_most(columns()));
    let step = || Term::product([Term::knob("split_blocks"), Term::from(DEPTH)]);
    let most = (9 * k / 8).max((k + DEPTH - 1) / DEPTH * DEPTH);
    constraints.push(Term::product([Term::from(k).ceil_div(step()), step()]).at_most(most));
    // Stages that are on their way when the first is awaited: one at least, and no more than there
    // are steps.
    let window: i64 = p.reduce[1..].iter().map(|r| r.extent).product();
    let steps = Term::product([Term::from(k).ceil_div(step()), Term::from(window)]);
    constraints.push(Term::sum([Term::knob("lag"), Term::from(2)]).at_most(Term::knob("stages")));
    constraints.push(Term::knob("stages").at_most(Term::sum([
        steps,
        Term::knob("lag"),
        Term::from(1),
    ])));
    constraints.push(roles.shared_out(p));
    // Stages, and later the sums in their place.
    let lines = Term::sum([all_rows(), all_columns()]);
    constraints.push(
        Term::product([lines, Term::knob("stages"), Term::from(2 * DEPTH)])
            .at_most(i64::from(gpu.shared_per_block) - 1024),
    );
    let sums =
        Term::product([all_rows(), Term::sum([all_columns(), Term::from(8)]), Term::from(4)]);
    constraints.push(sums.at_most(i64::from(gpu.shared_per_block)));
    strict.extend(constraints.iter().cloned());
    Space::new(knobs.clone(), &strict).or_else(|_| Space::new(knobs, &constraints)).ok()
}
