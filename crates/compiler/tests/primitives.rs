//! Tests of the schedule primitives by their reference pages. A page `tests/primitives/<name>.md`
//! consists of cases: a ```` ```nest ````, a ```` ```schedule ````, and the outcome, which is
//! another ```` ```nest ````, or the reason why the schedule is refused in ```` ```refused ````.
//! The outcome must be as written, and both nests must compute the same. `SQUALL_BLESS=1 cargo
//! test` writes the outcome into the page.

use std::fmt::Write;
use std::path::Path;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::nest::{self, Loop, Mode, Nest, Scope, Stmt};
use squall_compiler::schedule::{self, Primitive};
use squall_testing::samples;

/// Uniform inputs for a nest's data and weights.
fn inputs(n: &Nest, seed: u64) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut fill = |wanted: fn(&Scope) -> bool| {
        let buffers = n.buffers.iter().filter(|b| wanted(&b.scope));
        let mut one = |packed: bool| match packed {
            true => f64::from(rng.random_range(0..=u32::MAX)),
            false => f64::from(rng.random_range(-1.0f32..1.0)),
        };
        buffers.map(|b| (0..b.elements()).map(|_| one(b.dtype.is_packed())).collect()).collect()
    };
    (fill(|s| matches!(s, Scope::Data(_))), fill(|s| matches!(s, Scope::Weight(_))))
}

fn assert_same(what: &str, before: &Nest, after: &Nest) {
    let (data, weights) = inputs(before, 7);
    let of = |n: &Nest| {
        nest::try_interpret(n, &data, &weights).unwrap_or_else(|e| panic!("{what}: {e}\n{n}"))
    };
    let (want, got) = (of(before), of(after));
    assert_eq!(want.len(), got.len(), "{what}");
    for (i, (w, g)) in want.iter().zip(&got).enumerate() {
        assert!(
            (w - g).abs() <= 1e-4 * (1.0 + w.abs()),
            "{what}: element {i} was {w}, is {g}\n{after}"
        );
    }
}

/// The outcome of a schedule on a nest, as a fenced block.
fn outcome(what: &str, before: &str, primitives: &str) -> String {
    let start = nest::parse(before).unwrap_or_else(|e| panic!("{what}: {e}"));
    let list = schedule::parse(primitives).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut n = start.clone();
    match schedule::apply(&mut n, &list) {
        Ok(()) => {
            nest::verify(&n).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_same(what, &start, &n);
            format!("```nest\n{n}```\n")
        }
        Err(e) => format!("```refused\n{e}\n```\n"),
    }
}

#[test]
fn the_pages_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/primitives");
    let bless = std::env::var_os("SQUALL_BLESS").is_some();
    let mut cases = 0;
    let mut seen = Vec::new();
    let mut pages: Vec<_> =
        std::fs::read_dir(&folder).expect("pages").map(|e| e.expect("entry").path()).collect();
    pages.sort();
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("readable");
        let (mut out, mut block) = (String::new(), None::<(String, String)>);
        let (mut before, mut schedule) = (String::new(), None::<String>);
        let name = page.file_stem().expect("name").to_string_lossy().into_owned();
        seen.push(name.clone());
        for line in text.lines() {
            match (&mut block, line.strip_prefix("```")) {
                (None, Some(kind)) => block = Some((kind.to_string(), String::new())),
                (None, None) => {
                    let _ = writeln!(out, "{line}");
                }
                (Some((_, body)), None) => {
                    let _ = writeln!(body, "{line}");
                }
                (Some(_), Some(_)) => {
                    let (kind, body) = block.take().expect("open");
                    let pending =
                        if kind == "nest" || kind == "refused" { schedule.take() } else { None };
                    match pending {
                        Some(s) => {
                            let what = format!("{name}.md, case {}", cases + 1);
                            out += &outcome(&what, &before, &s);
                            cases += 1;
                        }
                        None => {
                            if kind == "nest" {
                                before = body.clone();
                            } else if kind == "schedule" {
                                schedule = Some(body.clone());
                            }
                            let _ = write!(out, "```{kind}\n{body}```\n");
                        }
                    }
                }
            }
        }
        assert!(schedule.is_none() && block.is_none(), "{name}.md ends in the middle of a case");
        if bless {
            std::fs::write(&page, &out).expect("written");
        }
        assert!(bless || out == text, "{name}.md does not hold; now:\n{out}");
    }
    assert!(cases >= 30, "{cases} cases");
    let all = [
        "tensorize",
        "inline",
        "reshape",
        "relayout",
        "fuse",
        "join",
        "split",
        "peel",
        "reorder",
        "fission",
        "contract",
        "compute_at",
        "cache_write",
        "forward",
        "pack",
        "pack_near",
        "skip",
        "rfactor",
        "reduce_at_store",
        "modes",
    ];
    assert!(all.iter().all(|p| seen.iter().any(|s| s == p)), "a primitive has no page: {seen:?}");
}

/// A random primitive on things that the nest has; most are refused.
fn random_primitive(n: &Nest, rng: &mut Xoshiro256PlusPlus, fresh: &mut usize) -> Primitive {
    let mut loops: Vec<(String, i64, usize)> = Vec::new();
    let mut inner = Vec::new();
    nest::visit(&n.body, &mut |s| {
        if let Stmt::Loop(l) = s {
            loops.push((n.vars[l.var.0 as usize].clone(), l.extent, l.body.len()));
            if let [Stmt::Loop(Loop { var, .. })] = &l.body[..] {
                inner.push((n.vars[l.var.0 as usize].clone(), n.vars[var.0 as usize].clone()));
            }
        }
    });
    let mut pick = |k: usize| rng.random_range(0..k.max(1));
    let l = loops[pick(loops.len())].clone();
    let other = loops[pick(loops.len())].0.clone();
    let buffer = n.buffers[pick(n.buffers.len())].name.clone();
    *fresh += 1;
    let f = *fresh;
    let pair = if inner.is_empty() {
        (l.0.clone(), other.clone())
    } else {
        inner[pick(inner.len())].clone()
    };
    match pick(22) {
        0..=2 => Primitive::Split {
            of: l.0,
            factor: pick(l.1 as usize) as i64 + 1,
            outer: format!("o{f}"),
            inner: format!("i{f}"),
        },
        3 | 4 => Primitive::Reorder { loops: vec![pair.1, pair.0] },
        5 | 6 => {
            Primitive::Fission { of: l.0, names: (0..l.2).map(|k| format!("f{f}_{k}")).collect() }
        }
        7 => Primitive::Fuse { outer: pair.0, inner: pair.1, fused: format!("u{f}") },
        8 => Primitive::Reshape { buffer, dim: pick(3) },
        9 => Primitive::Join { first: l.0, second: other },
        10 => Primitive::Inline { buffer },
        11 => Primitive::Contract { buffer, at: l.0 },
        12 => Primitive::CacheWrite { at: l.0, buffer, local: format!("acc{f}") },
        13 => Primitive::Forward { buffer },
        14 => Primitive::Pack { buffer, at: l.0, packed: format!("packed{f}") },
        15 => Primitive::Rfactor { of: l.0, partial: format!("part{f}") },
        17 => Primitive::Prefetch { buffer, lines: pick(20) as i64 },
        18 => Primitive::Skip { buffer },
        20 => Primitive::Version { at: l.0 },
        19 => Primitive::ReduceAtStore { buffer, partial: format!("largest{f}") },
        16 => Primitive::Peel { of: l.0, at: pick(l.1 as usize) as i64, rest: format!("rest{f}") },
        _ => {
            Primitive::Mark { mode: [Mode::Vector, Mode::Unroll, Mode::Parallel][pick(3)], of: l.0 }
        }
    }
}

/// All pairs of loops, for joining what can be joined.
fn joins(n: &Nest) -> Vec<Primitive> {
    let mut names = Vec::new();
    nest::visit(&n.body, &mut |s| {
        if let Stmt::Loop(l) = s {
            names.push(n.vars[l.var.0 as usize].clone());
        }
    });
    names
        .iter()
        .flat_map(|a| {
            names.iter().map(move |b| Primitive::Join { first: a.clone(), second: b.clone() })
        })
        .collect()
}

use crate::cases;

#[test]
fn random_primitives_never_change_what_a_nest_means() {
    let rounds: u64 = std::env::var("SQUALL_ROUNDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(samples(12, 60) as u64);
    let mut applied = std::collections::BTreeMap::<String, usize>::new();
    for (name, text) in cases::CASES {
        let w = squall_core::Workload::parse(text).expect("parses");
        // Small extents only: the interpreter runs after every primitive that is applied.
        let plain = nest::lower(&w);
        for seed in 0..rounds {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut n = plain.clone();
            let (mut fresh, mut tried, mut done) = (0, false, Vec::new());
            // Half the rounds start from joined stages, which chance seldom finds.
            for p in joins(&n).into_iter().filter(|_| seed % 2 == 1) {
                let mut trial = n.clone();
                if p.apply(&mut trial).is_ok() {
                    *applied.entry("join".into()).or_default() += 1;
                    done.push(p);
                    n = trial;
                }
            }
            for _ in 0..60 {
                let p = match done.last() {
                    // The fill that a cached accumulation loads is seldom found by chance either.
                    Some(Primitive::CacheWrite { buffer: b, .. }) if !tried => {
                        Primitive::Forward { buffer: b.clone() }
                    }
                    _ => random_primitive(&n, &mut rng, &mut fresh),
                };
                let mut trial = n.clone();
                let refusal = p.apply(&mut trial);
                if refusal.is_ok()
                    && let Err(e) = nest::verify(&trial)
                {
                    panic!(
                        "{name}, seed {seed}: {p} broke the nest: {e}\n{}\nbefore:\n{n}",
                        schedule::print(&done)
                    );
                }
                if let Err(r) = &refusal {
                    assert!(
                        !r.reason.contains("a bug of Squall"),
                        "{name}, seed {seed}: {r}\n{}\nbefore:\n{n}",
                        schedule::print(&done)
                    );
                }
                if refusal.is_ok() {
                    let kind = p.to_string().split('(').next().unwrap_or("").to_string();
                    *applied.entry(kind).or_default() += 1;
                    done.push(p);
                    n = trial;
                    tried = false;
                } else {
                    tried = true;
                }
            }
            nest::verify(&n).unwrap_or_else(|e| {
                panic!("{name}, seed {seed}: {e}\n{}\n{n}", schedule::print(&done))
            });
            assert_same(&format!("{name}, seed {seed}\n{}", schedule::print(&done)), &plain, &n);
            let again = nest::parse(&n.to_string())
                .unwrap_or_else(|e| panic!("{name}, seed {seed}: {e}\n{n}"));
            assert_eq!(again.to_string(), n.to_string());
        }
    }
    for p in [
        "split",
        "reorder",
        "fission",
        "fuse",
        "join",
        "contract",
        "cache_write",
        "forward",
        "pack",
        "peel",
        "inline",
        "reshape",
        "vectorize",
        "unroll",
        "parallel",
        "reduce_at_store",
    ] {
        assert!(applied.contains_key(p), "`{p}` was never applied: {applied:?}");
    }
}
