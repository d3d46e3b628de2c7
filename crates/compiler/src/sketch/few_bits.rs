//! The CPU sketches of matrix products with weights of 4 or 8 bits ([`FewBits`]). Their kernels
//! come from a C text ([`plain::few_bits`]) in which knobs are macros, because no schedule unpacks
//! the two codes of a byte in vector lanes, or multiplies them by bytes that a kernel quantised
//! itself. Beside the text stands a schedule with the same loops, from which the compiler's
//! features, the cost formula and the general predictor see how often a configuration reads each
//! operand. The schedule's loops over rows have whole parts only: where the rows have few divisors,
//! it has fewer of them together than the text.

use super::short::{parallel, split, unroll, vectorize};
use super::tile::AMX;
use super::{Facts, Sketch, Template, attempt, powers, start};
use crate::plain;
use crate::schedule::Primitive;
use squall_core::graph::infer::nbits::TILE as COLUMNS;
use squall_core::operator::{FewBits, FewBitsZero};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Bytes, Configuration, KernelSource, Language, RealizeError, Space, Target};

/// The name of the sketch for vectors; the sketch for AMX tiles has AMX's prefix before it.
const NAME: &str = "few_bits";
/// The least number of rows for AMX's text, and the number of rows that it takes together.
const FEWEST: i64 = 32;
const TOGETHER: i64 = 64;
/// The most bytes of activations that are kept at once (more would not stay in a second-level
/// cache), and the least (fewer are not worth reading the weights for).
const MOST_KEPT: i64 = 4 << 20;
const LEAST_KEPT: i64 = 1 << 14;
/// About how many times fewer cycles the text takes than the schedule, which opens each code anew
/// for each row, and multiplies in floats.
const BY_FLOATS: f32 = 4.0;
const BY_BYTES: f32 = 16.0;
const BY_TILES: f32 = 64.0;
/// The most rows that the schedule unrolls.
const MOST_UNROLLED: i64 = 16;

pub fn derive(f: &Facts<'_>) -> Vec<Sketch> {
    let Some(product) = FewBits::of(f.workload) else { return Vec::new() };
    // By vectors 64 rows took 1.3 times as long as by tiles.
    sketch(f, product, suits_tiles(&product, f.target)).into_iter().collect()
}

/// Whether AMX's tiles take blocks as they are.
fn suits_tiles(p: &FewBits, t: &Target) -> bool {
    let fits = p.block % 16 == 0 && (p.block <= 64 || p.block % 64 == 0) && p.block <= 256;
    p.whole && p.m >= FEWEST && fits && t.machine.tiles.is_some()
}

/// The greatest divisor of `n` that is at most `most`: loops of the schedule have whole parts.
fn part(n: i64, most: i64) -> i64 {
    (1..=most.min(n)).rev().find(|d| n % d == 0).unwrap_or(1)
}

fn space(f: &Facts<'_>, p: &FewBits, tiles: bool) -> Option<Space> {
    let bytes = p.k * if p.whole { 1 } else { 4 };
    let (least, most) = (LEAST_KEPT / bytes, MOST_KEPT / bytes);
    let first = if tiles { TOGETHER } else { 1 };
    // The number of rows whose sums stay in registers. A row of bytes needs one vector beside the
    // codes, a row of floats three: the largest numbers are too many for floats, which the tuner
    // finds out by measuring.
    let registers = (f.target.machine.vectors.registers as i64 / 2).max(4);
    let rows: Vec<i64> =
        if tiles { vec![1] } else { powers(1, registers.min(p.m.max(1))).collect() };
    let all = (p.m as u64).next_power_of_two() as i64;
    let mut kept: Vec<i64> = powers(first, all.max(first)).collect();
    let (last, fewest) = (*kept.last()?, *kept.first()?);
    kept.retain(|r| (*r >= least || *r == last) && (*r <= most || *r == fewest));
    let knobs = vec![
        Knob::ints("rows", Role::Tile { axis: "m".into(), level: 1 }, rows),
        Knob::ints("kept", Role::Tile { axis: "m".into(), level: 0 }, kept),
    ];
    // Codes of a byte each go to tiles as they lie, and nothing asks for them ahead; nor where no
    // loop goes through the weights, all of which a step reads.
    let is_one_step = p.n <= COLUMNS && groups(p).iter().all(|g| g.1 == 1);
    let asks = !(tiles && p.bits == 8 || is_one_step);
    let knobs: Vec<Knob> = knobs.into_iter().chain(asks.then(super::prefetch_knob)).collect();
    Space::new(knobs, &[Term::knob("rows").at_most(Term::knob("kept"))]).ok()
}

fn sketch(f: &Facts<'_>, p: FewBits, tiles: bool) -> Option<Sketch> {
    let name = if tiles { format!("{AMX}{NAME}") } else { NAME.into() };
    if !(f.wanted)(&name) {
        return None;
    }
    let (mut base, mut prefix) = start(f.workload);
    if p.bias {
        // The addend is added to what the sum leaves in registers.
        let joins = ["m", "t", "c"]
            .map(|a| Primitive::Join { first: format!("{a}_P"), second: format!("{a}_Y") });
        for join in joins {
            attempt(&mut base, &mut prefix, vec![join]);
        }
    }
    let space = space(f, &p, tiles)?;
    let target = f.target.clone();
    let threads = target.threads;
    let schedule = move |c: &Configuration| loops(&p, c, threads, tiles);
    let text = move |c: &Configuration, symbol: &str| text(&p, &target, tiles, c, symbol);
    let faster = match (p.whole, tiles) {
        (_, true) => BY_TILES,
        (true, _) => BY_BYTES,
        (false, _) => BY_FLOATS,
    };
    Some(Sketch {
        name,
        target: f.target.clone(),
        space,
        base,
        prefix,
        primitives: Box::new(schedule),
        full_optimisation: true,
        template: Some(Template { text: Box::new(text), faster }),
        both: None,
    })
}

/// The loops that go through rows of the weights in steps of what is unpacked at once: blocks, and
/// groups of a block.
fn groups(p: &FewBits) -> [(&'static str, i64); 2] {
    [("b", p.k / p.block), ("g", p.block * p.bits / 32)]
}

/// The loops of the text: rows that are kept, tiles of columns, rows in registers, blocks. An axis
/// of one place has no loop.
fn loops(p: &FewBits, c: &Configuration, threads: usize, tiles: bool) -> Vec<Primitive> {
    let get = |k: &str| c.int(k).unwrap_or(1);
    let stage = if p.bias { "P" } else { "Y" };
    let name = |axis: &str| format!("{axis}_{stage}");
    let (m, columns) = (name("m"), name("c"));
    let kept = part(p.m, get("kept"));
    let rows = part(kept, if tiles { TOGETHER } else { get("rows") });
    let mut out = Vec::new();
    let (mut outer, mut inner) = (Vec::new(), Vec::new());
    let has_tiles = p.n > COLUMNS;
    if p.m > 1 {
        out.push(split(&m, kept, format!("{m}0"), format!("{m}1")));
        out.push(split(&format!("{m}1"), rows, format!("{m}2"), format!("{m}3")));
        outer.push(format!("{m}0"));
        inner.push(format!("{m}3"));
    }
    outer.extend(has_tiles.then(|| name("t")));
    outer.extend((p.m > 1).then(|| format!("{m}2")));
    inner.push(columns.clone());
    out.push(Primitive::Reorder { loops: [outer.clone(), inner.clone()].concat() });
    // Sums begin as zeros and are stored, with their addend where they have one.
    let ends = if p.bias { &["i", "", "e"][..] } else { &["i", ""] };
    for l in inner.iter().rev() {
        let names = ends.iter().map(|end| format!("{l}{end}")).collect();
        out.push(Primitive::Fission { of: l.clone(), names });
    }
    let mut sum: Vec<String> = groups(p).iter().filter(|b| b.1 > 1).map(|b| name(b.0)).collect();
    sum.extend((p.bits == 4).then(|| name("h")));
    sum.push(name("j"));
    let root = sum[0].clone();
    out.push(Primitive::Reorder { loops: [sum, inner].concat() });
    out.extend((p.bits == 4).then(|| unroll(name("h"))));
    out.push(unroll(name("j")));
    for end in ends {
        out.extend((p.m > 1 && rows <= MOST_UNROLLED).then(|| unroll(format!("{m}3{end}"))));
        out.push(vectorize(format!("{columns}{end}")));
    }
    match (p.bias, outer.last()) {
        (true, Some(at)) => out.push(Primitive::Contract { buffer: "P".into(), at: at.clone() }),
        (true, None) => {}
        (false, _) => {
            out.push(Primitive::CacheWrite { at: root, buffer: "Y".into(), local: "acc".into() })
        }
    }
    let lines = c.int("prefetch").unwrap_or(0);
    if lines > 0 {
        out.push(Primitive::Prefetch { buffer: "W".into(), lines });
    }
    if threads > 1 && has_tiles {
        out.push(parallel(name("t")));
    }
    out
}

/// The kernel of a configuration.
fn text(
    p: &FewBits,
    target: &Target,
    tiles: bool,
    c: &Configuration,
    symbol: &str,
) -> Result<KernelSource, RealizeError> {
    let get = |k: &str| c.int(k).unwrap_or(0);
    let knobs = plain::FewBitsKnobs {
        rows: (!tiles).then(|| get("rows")),
        kept: get("kept"),
        prefetch: get("prefetch"),
    };
    let own = format!("{symbol}_product");
    let made = plain::few_bits(p, knobs, &own).map_err(|e| RealizeError(e.to_string()))?;
    let threads = target.threads;
    let shared = format!("schedule(static) num_threads({threads})");
    let mut source = made.text.replace("schedule(static)", &shared);
    source = source.replace(&format!("int {own}("), &format!("static int {own}("));
    // Operands that are absent have a place in the operator's list, and none in a kernel's.
    let has_zeros = !matches!(p.zero, FewBitsZero::Same(_));
    let zeros = if has_zeros { "data[3]" } else { "0" };
    let bias = match p.bias {
        true => format!("data[{}]", 3 + usize::from(has_zeros)),
        false => "0".into(),
    };
    source += &format!(
        "size_t {symbol}_workspace_bytes(void) {{ return {}; }}\nint {symbol}(const void *const \
         *data, void *const *outputs, const void *prepared, void *workspace);\nint \
         {symbol}(const void *const *data, void *const *outputs, const void *prepared, void \
         *workspace) {{\n  const void *const in[] = {{data[0], data[1], data[2], {zeros}, \
         {bias}}};\n  (void)prepared;\n  return {own}(in, outputs, workspace);\n}}\n",
        made.scratch_bytes
    );
    Ok(KernelSource {
        language: Language::C,
        source: format!("#include <stddef.h>\n{source}"),
        symbol: symbol.into(),
        prepared: Bytes(0),
        workspace: Bytes(made.scratch_bytes),
        openmp: threads > 1 && made.shares_loops,
        full_optimisation: true,
        flags: Vec::new(),
        launches: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::Isa;
    use squall_core::operator::FewBitsZero;

    #[test]
    fn a_product_of_one_step_has_loops_in_every_configuration() {
        for (bits, m) in [(4, 1), (4, 2), (8, 1), (8, 3)] {
            for block in [8, 16] {
                let zero = FewBitsZero::Bytes;
                let p = FewBits { m, k: block, n: 16, bits, block, whole: true, zero, bias: false };
                let w = p.workload().expect("legal");
                let target =
                    Target::at_level(Isa::X86_64V4Vnni, &[Bytes(32 << 10), Bytes(1 << 20)]);
                let [s] = &derive(&Facts::new(&w, &target))[..] else { panic!("{w}") };
                for i in 0..s.space.len() {
                    let c = s.space.nth(i);
                    assert!(s.nest(&c).is_ok(), "{c}: {:?}\n{w}", s.nest(&c).err());
                }
            }
        }
    }
}
