//! The knobs of multi-level tiling and what makes their values legal and sensible.

use super::super::{divisors, powers};
use super::{Axis, Packing, Shape};
use squall_core::Target;
use squall_core::space::{Knob, Role, Term};

/// Knobs, constraints that must hold, and constraints that hold in every good kernel.
pub(super) fn knobs(s: &Shape, t: &Target, native: i64) -> (Vec<Knob>, Vec<Term>, Vec<Term>) {
    let mut knobs = Vec::new();
    let (mut must, mut should) = (Vec::new(), Vec::new());
    let lane_extent = s.tiled[s.lane].extent;
    let narrow = native.min(4);
    // Half vectors only where whole ones do not fit the extent, narrower only where it is short.
    let widths = widths(lane_extent, native);
    knobs.push(Knob::ints("lanes", Role::Vector, widths.clone()));
    let tile = |a: &Axis, level: u8| {
        (format!("{}{level}", a.short), Role::Tile { axis: a.short.clone(), level })
    };
    let registers = t.vector_registers() as i64;
    // The register tile first: its knobs are entangled with one another.
    for (i, a) in s.tiled.iter().enumerate() {
        let (name, role) = tile(a, 3);
        let most = if i == s.lane { 8.min(lane_extent / narrow) } else { 16.min(a.extent) };
        knobs.push(Knob::ints(name, role, 1..=most.max(1)));
    }
    let accumulators =
        || Term::product(s.tiled.iter().map(|a| Term::knob(format!("{}3", a.short))));
    must.push(accumulators().at_most(registers - 2));
    let most: i64 = s
        .tiled
        .iter()
        .enumerate()
        .map(|(i, a)| if i == s.lane { (a.extent / native).max(1) } else { a.extent })
        .product();
    should.push(Term::Const(most.min(registers / 4)).at_most(accumulators()));
    for (i, a) in s.tiled.iter().enumerate() {
        let base = if i == s.lane { vec![Term::knob("lanes")] } else { vec![] };
        for &level in s.levels() {
            let (name, role) = tile(a, level);
            let values =
                divisors(a.extent).into_iter().chain(powers(1, a.extent)).filter(|&d| d <= 64);
            knobs.push(Knob::ints(name, role, values));
        }
        let all = s.levels().iter().copied().chain([3]);
        let whole = || {
            Term::product(
                base.iter()
                    .cloned()
                    .chain(all.clone().map(|l| Term::knob(format!("{}{l}", a.short)))),
            )
        };
        must.push(whole().at_most(a.extent));
        // Tiles that overlap are computed twice: at most a seventh more work (7 rows by 4), or one
        // lane's.
        let waste =
            Term::product([Term::Const(a.extent).ceil_div(whole()), whole(), Term::Const(7)])
                .at_most(8 * a.extent);
        if i == s.lane {
            let fewest =
                widths.iter().map(|l| (a.extent + l - 1) / l * l).min().unwrap_or(a.extent);
            let total = Term::product([Term::Const(a.extent).ceil_div(whole()), whole()]);
            must.push(waste.or(total.at_most(fewest.max(a.extent + a.extent / 7))));
        } else {
            must.push(waste);
        }
    }
    let reduction: i64 = s.reduce.iter().map(|a| a.extent).product();
    if !s.whole {
        for a in &s.reduce {
            knobs.push(Knob::ints(
                format!("{}1", a.short),
                Role::Tile { axis: a.short.clone(), level: 1 },
                divisors(a.extent).into_iter().filter(|&d| d == a.extent || d * 64 >= a.extent),
            ));
        }
        let inner = || Term::product(s.reduce.iter().map(|a| Term::knob(format!("{}1", a.short))));
        let partial = s.tiled.iter().enumerate().flat_map(|(i, a)| {
            let lanes = (i == s.lane).then(|| Term::knob("lanes"));
            lanes
                .into_iter()
                .chain([Term::knob(format!("{}2", a.short)), Term::knob(format!("{}3", a.short))])
        });
        let in_cache = Term::product(partial).at_most((t.cache(2) / 16).clamp(4096, 65536) as i64);
        must.push(inner().at_most(reduction - 1));
        must.push(in_cache);
        should.push(Term::Const(reduction.min(32)).at_most(inner()));
    }
    knobs.push(Knob::ints(
        "unroll",
        Role::Unroll,
        [1, 2, 3, 4, 7, 8, 9, 16].into_iter().filter(|&u| u <= reduction),
    ));
    // Compilers take longer than they gain over bodies beyond this.
    must.push(Term::product([accumulators(), Term::knob("unroll")]).at_most(128));
    let names: Vec<&str> = s.orders.iter().map(|o| o.0.as_str()).collect();
    knobs.push(Knob::words("order", Role::Order, &names));
    if s.reduce.len() > 1 {
        knobs.push(Knob::words("reduce", Role::Order, &["first_outside", "first_inside"]));
    }
    for (name, kind) in &s.packable {
        let values: &[&str] = match kind {
            Packing::Forced => &["yes"],
            Packing::Weight => &["no", "yes"],
            Packing::Data => &["no", "near", "yes"],
        };
        knobs.push(Knob::words(format!("pack_{name}"), Role::Layout, values));
    }
    if s.stream.is_some() {
        knobs.push(super::super::prefetch_knob());
    }
    if s.threads > 1 {
        knobs.push(Knob::ints(
            "parallel",
            Role::Parallel,
            1..=(s.outer.len() + s.tiled.len()).min(3) as i64,
        ));
    }
    (knobs, must, should)
}

/// Vector widths worth trying for an extent.
fn widths(extent: i64, native: i64) -> Vec<i64> {
    let fitting = |l: &i64| *l <= extent;
    let list: Vec<i64> = powers(native.min(4), native).filter(fitting).collect();
    let keep = if extent % native == 0 { 1 } else { 2 };
    list[list.len().saturating_sub(keep)..].to_vec()
}
