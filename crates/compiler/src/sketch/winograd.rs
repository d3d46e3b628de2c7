//! The rule for 3x3 convolutions of stride 1 and 2 by Winograd's minimal filtering on CPUs, added
//! beside the direct sketches. Which algorithm is faster depends on the shape; whether Winograd's
//! is precise enough depends on the task's tolerance, which is compared with [`expected_error`].
//!
//! The schedule of the sketch consists of the primitive `winograd` (`schedule/winograd`), and a
//! prefetch of the filters if the knob `prefetch` asks for one. The tile is given by further knobs:
//! `m` outputs of a tile, `rows` of tiles in a block, `vectors` and `tiles` of the register tile,
//! `unroll`, the loop `order`, and what threads share (`parallel_over`).

use super::{Draft, Facts, Sketch, divisors, start};
use crate::schedule::{Convolution, Primitive, WinogradThreads, WinogradTile, find_convolution};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Configuration, DType};

/// The largest error to expect of F(m x m, 3x3) in single precision, relative to the largest
/// output: about twice the error that was seen on 64 to 512 channels.
fn expected_error(m: i64) -> f64 {
    match m {
        2 => 4e-6,
        3 => 8e-6,
        4 => 2e-5,
        5 => 4e-5,
        _ => 6e-5,
    }
}

/// The error to expect where results are bytes: with tiles of two to four outputs two results in a
/// million were rounded to the next step (`tests/byte_shapes.rs`).
const ERROR_OF_BYTES: f64 = 2e-5;

/// The most bytes of transformed filters; no shape with more of them gains from Winograd's
/// filtering.
const MOST_FILTERS: i64 = 64 << 20;

/// Elements of a block's buffers that a thread's stack has room for, beside its register tiles.
const STACK_ELEMENTS: i64 = (super::MOST_STACK as i64 - (32 << 10)) / 4;

/// The names of the sketch for stride 1 and of the sketch for stride 2.
const NAMES: [&str; 2] = ["winograd", "winograd,stride=2"];

/// The share of a direct convolution's products that a sketch of this name needs, with tiles of
/// m x m outputs.
pub(super) fn share_of_products(name: &str, m: i64) -> f64 {
    let stride = if name.split(',').any(|part| part == "stride=2") { 2 } else { 1 };
    let size = (m - 1) * stride + 3;
    (size * size) as f64 / (9 * m * m) as f64
}

/// The sketch of a workload that is a 3x3 convolution; none for other workloads.
pub fn derive(f: &Facts<'_>) -> Vec<Sketch> {
    sketch(f).into_iter().collect()
}

fn sketch(f: &Facts<'_>) -> Option<Sketch> {
    let (w, main) = super::tile::with_epilogue(f.workload)?;
    let name = w.stages[main].name.clone();
    let (base, prefix) = start(&w);
    let conv = find_convolution(&base, &name).ok().filter(|c| !c.rounded)?;
    let lanes = f.target.lanes_f32();
    let lanes = [lanes, lanes / 2, 4]
        .into_iter()
        .find(|&l| l >= 4 && l <= conv.channels && l <= conv.outputs)?;
    let threads = f.target.threads as i64;
    let mut d = Draft::default();
    knobs(&mut d, f, &conv, lanes)?;
    tile_constraints(&mut d, f, &conv, lanes);
    if threads > 1 {
        parallel_over(&mut d, &conv, threads);
    }
    let space = d.open()?;
    let primitives = move |c: &Configuration| {
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
        // The transformed filters are the only stream that is too large for near caches.
        if get("prefetch") > 1 {
            p.push(Primitive::Prefetch { buffer: "U".into(), lines: get("prefetch") });
        }
        p
    };
    Some(Sketch {
        name: NAMES[conv.stride as usize - 1].into(),
        target: f.target.clone(),
        space,
        base,
        prefix,
        primitives: Box::new(primitives),
        full_optimisation: false,
        template: None,
        both: None,
    })
}

/// Adds the knobs that every target has; nothing where no tile is precise enough or gains.
fn knobs(d: &mut Draft, f: &Facts<'_>, conv: &Convolution, lanes: i64) -> Option<()> {
    let of_bytes = f.workload.inputs.iter().any(|i| i.dtype == DType::U8);
    let most = f.workload.tolerance().min(if of_bytes { ERROR_OF_BYTES } else { f64::INFINITY });
    let outputs: Vec<i64> = (2..=6)
        .filter(|&m| m <= conv.height && m <= conv.width && expected_error(m) <= most)
        .filter(|m| conv.reach(*m).pow(2) * conv.outputs * conv.channels * 4 <= MOST_FILTERS)
        .collect();
    let least = *outputs.first()?;
    let rows = (1..=(conv.height + least - 1) / least).filter(|&r| r <= 8 || conv.height % r == 0);
    let tile = |axis: &str, level| Role::Tile { axis: axis.into(), level };
    let unroll = divisors(conv.channels).into_iter().filter(|&u| u <= 4);
    d.knobs.extend([
        Knob::ints("m", Role::Choice, outputs),
        Knob::ints("rows", tile("tile_rows", 1), rows),
        Knob::ints("vectors", tile("k", 0), 1..=(conv.outputs / lanes).min(6)),
        Knob::ints("tiles", tile("tiles", 0), 1..=16),
        Knob::ints("unroll", Role::Unroll, unroll),
        Knob::words("order", Role::Order, &["panels_outside", "tiles_outside"]),
        super::prefetch_knob(),
    ]);
    Some(())
}

/// Rows of outputs of a block, and its tiles.
fn block() -> Term {
    Term::product(["m", "rows"].map(Term::knob))
}

fn in_block(conv: &Convolution) -> Term {
    Term::product([Term::knob("rows"), Term::Const(conv.width).ceil_div(Term::knob("m"))])
}

fn tile_constraints(d: &mut Draft, f: &Facts<'_>, conv: &Convolution, lanes: i64) {
    let registers = f.target.vector_registers() as i64;
    let height = conv.height;
    let accumulators = || Term::product(["vectors", "tiles"].map(Term::knob));
    let covered = Term::product([Term::Const(height).ceil_div(block()), block()]);
    d.must.extend([
        // One block may cover a little more than all rows, because filters are then read once.
        Term::knob("rows").at_most(Term::Const(height).ceil_div(Term::knob("m"))),
        Term::knob("tiles").at_most(in_block(conv)),
        accumulators().at_most(registers - 2),
        // More lines gain nothing, and the compiler's time grows with them.
        Term::product([accumulators(), Term::knob("unroll")]).at_most(64),
        // Blocks that overlap are computed twice.
        covered.at_most(height + height / 4 + 2),
    ]);
    let enough = Term::Const((registers / 4).min(conv.outputs / lanes * 8));
    d.should.push(enough.at_most(accumulators()));
}

/// Adds the knob `parallel_over`, the unit that threads share: the parts of each phase, or whole
/// blocks, each of which one thread takes through all phases. For whole blocks there must be enough
/// blocks, and their buffers must fit a thread's stack.
fn parallel_over(d: &mut Draft, conv: &Convolution, threads: i64) {
    let knob = Knob::words("parallel_over", Role::Choice, &["phases", "blocks"])
        .formerly("deal", &[("0", "phases"), ("1", "blocks")]);
    let whole = knob.is("blocks");
    d.knobs.push(knob);
    let reach = |outputs: Term| {
        let apart = Term::product([outputs, Term::Const(conv.stride)]);
        Term::sum([apart, Term::Const(3 - conv.stride)])
    };
    let place = reach(Term::knob("m"));
    let channels = Term::Const(conv.channels + conv.outputs);
    let tiles = Term::product([place.clone(), place, in_block(conv), channels]);
    let input =
        Term::product([reach(block()), Term::Const(conv.reach(conv.width) * conv.channels)]);
    let elements = Term::sum([tiles, input]).at_most(STACK_ELEMENTS);
    let blocks =
        Term::product([Term::Const(conv.height).ceil_div(block()), Term::Const(conv.batch)]);
    d.must.push(whole.clone().implies(elements));
    d.must.push(whole.implies(Term::Const(threads).at_most(blocks)));
}
