//! 3x3 convolutions of stride 1 by Winograd's minimal filtering, beside the direct ones: which is
//! faster depends on the shape, which is right enough on the task's tolerance.

use super::{Facts, Sketch, divisors, start};
use crate::schedule::{Primitive, WinogradThreads, WinogradTile, find_convolution};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Configuration, Space};

/// Largest error, relative to the largest output, that is to be expected of F(m x m, 3x3) in
/// single precision: about twice what was seen on 64 to 512 channels.
fn expected_error(m: i64) -> f64 {
    match m {
        2 => 4e-6,
        3 => 8e-6,
        4 => 2e-5,
        5 => 4e-5,
        _ => 6e-5,
    }
}

/// Bytes of transformed filters beyond which no shape gains.
const MOST_FILTERS: i64 = 64 << 20;

/// Elements of a block's buffers that a thread's stack has room for, beside its register tiles.
const STACK_ELEMENTS: i64 = (super::MOST_STACK as i64 - (32 << 10)) / 4;

pub fn derive(f: &Facts<'_>) -> Vec<Sketch> {
    let Some((w, main)) = super::tile::with_epilogue(f.workload) else { return Vec::new() };
    let name = w.stages[main].name.clone();
    let (base, prefix) = start(&w);
    let Some(conv) = find_convolution(&base, &name).ok().filter(|c| !c.rounded) else {
        return Vec::new();
    };
    let lanes = f.target.lanes_f32();
    let Some(lanes) = [lanes, lanes / 2, 4]
        .into_iter()
        .find(|&l| l >= 4 && l <= conv.channels && l <= conv.outputs)
    else {
        return Vec::new();
    };
    let outputs: Vec<i64> = (2..=6)
        .filter(|&m| {
            m <= conv.height && m <= conv.width && expected_error(m) <= f.workload.tolerance()
        })
        .filter(|m| (m + 2) * (m + 2) * conv.outputs * conv.channels * 4 <= MOST_FILTERS)
        .collect();
    if outputs.is_empty() {
        return Vec::new();
    }
    let registers = f.target.vector_registers() as i64;
    let rows: Vec<i64> = (1..=(conv.height + outputs[0] - 1) / outputs[0])
        .filter(|&r| r <= 8 || conv.height % r == 0)
        .collect();
    let threads = f.target.threads as i64;
    let mut knobs = vec![
        Knob::ints("m", Role::Choice, outputs),
        Knob::ints("rows", Role::Tile { axis: "tile_rows".into(), level: 1 }, rows),
        Knob::ints(
            "vectors",
            Role::Tile { axis: "k".into(), level: 0 },
            1..=(conv.outputs / lanes).min(6),
        ),
        Knob::ints("tiles", Role::Tile { axis: "tiles".into(), level: 0 }, 1..=16),
        Knob::ints("unroll", Role::Unroll, divisors(conv.channels).into_iter().filter(|&u| u <= 4)),
        Knob::words("order", Role::Order, &["panels_outside", "tiles_outside"]),
        super::prefetch_knob(),
    ];
    if threads > 1 {
        // Threads share out the parts of each phase, or take whole blocks through all phases.
        let parallel = Knob::words("parallel_over", Role::Choice, &["phases", "blocks"]);
        knobs.push(parallel.formerly("deal", &[("0", "phases"), ("1", "blocks")]));
    }
    let (height, width) = (conv.height, conv.width);
    let accumulators = || Term::product(["vectors", "tiles"].map(Term::knob));
    let covered =
        |extent: i64, step: Term| Term::product([Term::Const(extent).ceil_div(step.clone()), step]);
    let block = || Term::product(["m", "rows"].map(Term::knob));
    let in_block =
        Term::product([Term::knob("rows"), Term::Const(width).ceil_div(Term::knob("m"))]);
    let mut must = vec![
        // One block may cover a little more than all rows: then filters are read once.
        Term::knob("rows").at_most(Term::Const(height).ceil_div(Term::knob("m"))),
        Term::knob("tiles").at_most(in_block.clone()),
        accumulators().at_most(registers - 2),
        // More lines gain nothing, and the compiler's time grows with them.
        Term::product([accumulators(), Term::knob("unroll")]).at_most(64),
        // Blocks that overlap are computed twice.
        covered(height, block()).at_most(height + height / 4 + 2),
    ];
    if threads > 1 {
        // Whole blocks for each thread: enough of them, and their buffers fit its stack.
        let place = Term::sum([Term::knob("m"), Term::Const(2)]);
        let tiles = Term::product([
            place.clone(),
            place,
            in_block,
            Term::Const(conv.channels + conv.outputs),
        ]);
        let input = Term::product([
            Term::sum([block(), Term::Const(2)]),
            Term::Const((width + 2) * conv.channels),
        ]);
        let elements = Term::sum([tiles, input]).at_most(STACK_ELEMENTS);
        let blocks =
            Term::product([Term::Const(height).ceil_div(block()), Term::Const(conv.batch)]);
        let whole = knobs.last().map(|k| k.is("blocks")).unwrap_or(Term::Const(0));
        must.push(whole.clone().implies(elements));
        must.push(whole.implies(Term::Const(threads).at_most(blocks)));
    }
    let should =
        [Term::Const((registers / 4).min(conv.outputs / lanes * 8)).at_most(accumulators())];
    let all: Vec<Term> = must.iter().chain(&should).cloned().collect();
    let Ok(space) = Space::new(knobs.clone(), &all).or_else(|_| Space::new(knobs, &must)) else {
        return Vec::new();
    };
    let plan = move |c: &Configuration| {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let tile = WinogradTile {
            output: get("m"),
            rows: get("rows"),
            lanes,
            vectors: get("vectors"),
            tiles: get("tiles"),
            unroll: get("unroll"),
            panels_outside: c.word("order") == Some("panels_outside"),
            threads: match c.word("parallel_over") {
                _ if threads <= 1 => WinogradThreads::One,
                Some("blocks") => WinogradThreads::Blocks,
                _ => WinogradThreads::Phases,
            },
        };
        let mut p = vec![Primitive::Winograd { buffer: name.clone(), tile }];
        // The transformed filters are the one stream that is too large for near caches.
        if get("prefetch") > 1 {
            p.push(Primitive::Prefetch { buffer: "U".into(), lines: get("prefetch") });
        }
        p
    };
    vec![Sketch {
        name: "winograd".into(),
        target: f.target.clone(),
        space,
        base,
        prefix,
        plan: Box::new(plan),
        full_optimisation: false,
    }]
}
