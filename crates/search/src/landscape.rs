//! Synthetic tuning problems for tests and for the example `ablation`: tiling spaces with an
//! analytic cost that has valleys, cache-like cliffs, ridges between knobs, failures and noise, all
//! from a seed. A [`Landscape`] is a tunable whose times are computed instead of measured.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::space::{Knob, Role, Term};
use squall_core::{
    Candidate, Configuration, CpuCost, FailStage, KernelSource, Measurement, Nanos, Outcome,
    RealizeError, Space, Trial, Tunable,
};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

fn hash(x: impl Hash) -> u64 {
    let mut h = DefaultHasher::new();
    x.hash(&mut h);
    h.finish()
}

fn tile_knobs(axes: &[(&str, i64)], levels: usize) -> (Vec<Knob>, Vec<Term>) {
    let (mut knobs, mut constraints) = (Vec::new(), Vec::new());
    for level in (0..levels).rev() {
        for (axis, extent) in axes {
            let role = Role::Tile { axis: axis.to_string(), level: level as u8 };
            knobs.push(Knob::ints(
                format!("{axis}{level}"),
                role,
                (1..=64).filter(|d| extent % d == 0),
            ));
        }
    }
    for (axis, extent) in axes {
        constraints.push(
            Term::product((0..levels).map(|l| Term::knob(format!("{axis}{l}")))).divides(*extent),
        );
    }
    (knobs, constraints)
}

/// A space of tile factors whose products divide the extents; the innermost tile is bounded.
pub fn tiling(axes: &[(&str, i64)], levels: usize, innermost: i64) -> Space {
    let (knobs, mut constraints) = tile_knobs(axes, levels);
    let inner = axes.iter().map(|(a, _)| Term::knob(format!("{a}{}", levels - 1)));
    constraints.push(Term::product(inner).at_most(innermost));
    Space::new(knobs, &constraints).expect("the tiling is legal")
}

/// A tunable with an analytic cost.
pub struct Landscape {
    name: String,
    space: Space,
    seed: u64,
    /// Extents of rows, columns and reduction.
    extents: [i64; 3],
    /// Time of perfect code in nanoseconds.
    floor: f64,
    /// Accumulators that fit, first and second cache in elements.
    machine: [f64; 3],
    /// Size of what no feature explains.
    rugged: f64,
    /// How much worse than perfect code all other code is, as a power.
    steep: f64,
}

impl Landscape {
    /// A matrix product of these extents on a machine drawn from the seed.
    pub fn new(name: &str, extents: [i64; 3], slower: f64, rugged: f64, seed: u64) -> Landscape {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut knobs, mut constraints) = tile_knobs(&[("m", extents[0]), ("n", extents[1])], 3);
        let (more, k) = tile_knobs(&[("k", extents[2])], 2);
        knobs.extend(more);
        constraints.extend(k);
        constraints.push(Term::product([Term::knob("m2"), Term::knob("n2")]).at_most(1024));
        knobs.push(Knob::ints("vec", Role::Vector, [4, 8, 16]));
        knobs.push(Knob::ints("unroll", Role::Unroll, [1, 16, 64, 256]));
        knobs.push(Knob::words("order", Role::Order, &["mnk", "nmk", "kmn"]));
        knobs.push(Knob::words("layout", Role::Layout, &["plain", "packed", "padded"]));
        let space = Space::new(knobs, &constraints).expect("the space is legal");
        let machine = [
            rng.random_range(14.0..30.0),
            rng.random_range(2000.0..12000.0),
            rng.random_range(50e3..300e3),
        ];
        let flop = 2.0 * extents.iter().product::<i64>() as f64;
        Landscape {
            name: name.into(),
            space,
            seed,
            extents,
            floor: flop / 100.0 * slower,
            machine,
            rugged,
            steep: 1.0,
        }
    }

    /// The same with other code than perfect code by so much better (below 1) or worse.
    pub fn steep(self, steep: f64) -> Landscape {
        Landscape { steep, ..self }
    }

    /// The time of perfect code, which no configuration reaches.
    pub fn floor(&self) -> f64 {
        self.floor
    }

    fn parts(&self, c: &Configuration) -> [f64; 10] {
        let v = |n: &str| c.int(n).unwrap_or(1) as f64;
        let lanes = v("vec");
        let vectors = (v("n2") / lanes).ceil();
        let accumulators = v("m2") * vectors;
        let waste = vectors * lanes / v("n2");
        let (tm, tn, tk) = (v("m1") * v("m2"), v("n1") * v("n2"), v("k1"));
        let inner = tm * tk + tn * tk;
        let outer = tm * v("m0") * tk * v("k0") + tn * v("n0") * tk * v("k0");
        [lanes, vectors, accumulators, waste, tm, tn, tk, inner, outer, v("unroll")]
    }

    /// The time without noise; `None` where the kernel fails.
    pub fn time(&self, c: &Configuration) -> Option<f64> {
        let [lanes, vectors, accumulators, waste, tm, tn, tk, inner, outer, unroll] = self.parts(c);
        if accumulators * unroll > 8192.0 {
            return None; // the compiler gives up
        }
        let [fit, first, second] = self.machine;
        let registers = if accumulators < fit * 0.5 {
            (fit * 0.5 / accumulators).powf(0.6)
        } else if accumulators <= fit {
            1.0
        } else {
            1.5 * (accumulators / fit).powf(0.5)
        };
        let cliff = |size: f64, cache: f64, cost: f64| {
            if size > cache { 1.0 + cost + 0.15 * (size / cache).log2() } else { 1.0 }
        };
        let caches = cliff(inner, first, 0.3) * cliff(outer, second, 0.25);
        let reuse = 1.0 + 6.0 / tm + 4.0 / tn + 3.0 / tk;
        let best_unroll = (96.0 / accumulators).max(1.0);
        let unrolled = 1.0 + 0.04 * (unroll / best_unroll).log2().powi(2).min(9.0);
        let layout = match c.word("layout") {
            Some("packed") => 1.0 + 24.0 / self.extents[0] as f64,
            Some("padded") => 1.08 + if vectors > 1.0 { 0.0 } else { 0.2 },
            _ => 1.0 + 0.25 * (tn / 16.0).log2().clamp(0.0, 2.0),
        };
        let order = match c.word("order") {
            Some("mnk") => {
                if tm > tn {
                    1.12
                } else {
                    1.0
                }
            }
            Some("nmk") => {
                if tm > tn {
                    1.0
                } else {
                    1.12
                }
            }
            _ => 1.2 - 0.2 * (tk / 64.0).min(1.0) + if outer > second { 0.0 } else { 0.1 },
        };
        // Pairs of knobs interact in a way that is fixed but that no feature explains.
        let values: Vec<usize> = c.indices().collect();
        let each = |w: &[usize]| (hash((self.seed, w)) >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        let rough: f64 = values.windows(2).map(each).sum::<f64>() * self.rugged;
        let speed = (16.0 / lanes).powf(0.8);
        let slower =
            registers * waste * speed * caches * reuse * unrolled * layout * order * rough.exp();
        Some(self.floor * slower.powf(self.steep))
    }

    /// What measuring says: five windows with noise of 0.8 % and now and then a disturbance.
    pub fn measure(&self, c: &Configuration) -> Outcome {
        let Some(time) = self.time(c) else {
            return Outcome::Failed { stage: FailStage::Build, detail: "too large".into() };
        };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(hash((self.seed, c)));
        let mut window = || {
            let normal = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
            let disturbed = if rng.random_bool(0.03) { 1.1 } else { 1.0 };
            Nanos(time * (1.0 + 0.008 * normal) * disturbed)
        };
        Outcome::Measured(Measurement {
            samples: (0..5).map(|_| window()).collect(),
            calls: 1,
            error: 0.0,
            gpu: None,
            pace: None,
        })
    }
}

impl Tunable for Landscape {
    fn name(&self) -> &str {
        &self.name
    }

    fn space(&self) -> &Space {
        &self.space
    }

    fn realize(&self, _: &Configuration, _: &str) -> Result<KernelSource, RealizeError> {
        Err(RealizeError("a landscape has no source".into()))
    }

    fn features(&self, c: &Configuration) -> Vec<f32> {
        // A pair of choices that cannot be built together.
        if c.word("order") == Some("kmn") && c.word("layout") == Some("padded") {
            return Vec::new();
        }
        let mut row: Vec<f32> = c
            .iter()
            .zip(c.indices())
            .map(|((_, v), i)| v.to_string().parse().map_or(i as f32, f32::log2))
            .collect();
        row.extend(self.parts(c).iter().map(|x| x.log2() as f32));
        row.push(hash(&self.name) as f32 / u64::MAX as f32);
        row
    }
}

/// A task: its landscapes.
#[derive(Clone)]
pub struct TestProblem {
    /// They share features.
    pub landscapes: Vec<Arc<Landscape>>,
}

impl TestProblem {
    /// Several unlike problems of a seed.
    pub fn several(seed: u64) -> Vec<TestProblem> {
        let one = |l| TestProblem { landscapes: vec![Arc::new(l)] };
        vec![
            one(Landscape::new("square", [512, 512, 512], 1.0, 0.05, seed * 7 + 1)),
            one(Landscape::new("flat", [64, 3136, 576], 1.0, 0.1, seed * 7 + 2)),
            one(Landscape::new("rugged", [384, 240, 1152], 1.0, 0.25, seed * 7 + 3)),
            TestProblem {
                landscapes: vec![
                    Arc::new(Landscape::new("direct", [256, 196, 2304], 1.3, 0.1, seed * 7 + 4)),
                    Arc::new(Landscape::new("tiled", [256, 784, 576], 1.0, 0.1, seed * 7 + 5)),
                    Arc::new(Landscape::new("slow", [256, 196, 2304], 3.0, 0.1, seed * 7 + 6)),
                ],
            },
        ]
    }

    /// Two sketches, of which one is good at once and the other better after a while.
    pub fn late(seed: u64) -> TestProblem {
        let quick = Landscape::new("quick", [256, 196, 1152], 1.6, 0.05, seed * 7 + 1).steep(0.2);
        let late = Landscape::new("late", [256, 196, 1152], 1.0, 0.1, seed * 7 + 2);
        TestProblem { landscapes: vec![Arc::new(quick), Arc::new(late)] }
    }

    /// As strategies take them.
    pub fn tunables(&self) -> Vec<Arc<dyn Tunable>> {
        self.landscapes.iter().map(|l| l.clone() as Arc<dyn Tunable>).collect()
    }

    fn of(&self, c: &Candidate) -> &Landscape {
        self.landscapes
            .iter()
            .find(|l| *l.name == *c.tunable)
            .expect("the candidate is of this problem")
    }

    /// A trial of a candidate.
    pub fn try_out(&self, c: &Candidate) -> Trial {
        Trial {
            candidate: c.clone(),
            outcome: self.of(c).measure(&c.configuration),
            cost: CpuCost::default(),
        }
    }

    /// The time without noise.
    pub fn truth(&self, c: &Candidate) -> Option<f64> {
        self.of(c).time(&c.configuration)
    }
}

/// Runs a strategy for so many trials in batches of at most 16; after each trial the true time
/// of the candidate that looks best.
pub fn curve(
    mut ask: impl FnMut(usize, &[Trial]) -> Vec<Candidate>,
    problem: &TestProblem,
    trials: usize,
) -> Vec<f64> {
    let (mut out, mut last) = (Vec::new(), Vec::new());
    let (mut seen, mut truth) = (f64::INFINITY, f64::INFINITY);
    while out.len() < trials {
        let asked = ask((trials - out.len()).min(16), &last);
        if asked.is_empty() {
            break;
        }
        last = asked.iter().map(|c| problem.try_out(c)).collect();
        for t in &last {
            if let Some(time) = t.outcome.time().filter(|t| t.0 < seen) {
                seen = time.0;
                truth = problem.truth(&t.candidate).expect("it was measured");
            }
            out.push(truth);
        }
    }
    out
}
