//! Tests of the default search of flat spaces (of which only the knobs are known) on smooth
//! functions of five whole numbers, such as the sphere and Rosenbrock's function, against even
//! draws: users of other optimisers bring such spaces.

use super::{FlatSearch, default_search};
use crate::strategy::{Setting, Strategy};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::space::{Knob, Role};
use squall_core::{
    Configuration, CpuCost, FailStage, KernelSource, Measurement, Nanos, Outcome, RealizeError,
    Space, Trial, Tunable,
};
use std::sync::Arc;

/// Whole numbers of -50 to 50 along each of five knobs.
const REACH: i64 = 50;
const KNOBS: usize = 5;
const TRIALS: usize = 100;

/// A function of distances from its centre, of which 0 is the least.
type Function = fn(&[f64]) -> f64;

const FUNCTIONS: [(&str, Function); 4] = [
    ("sphere", |x| x.iter().map(|v| v * v).sum()),
    ("ellipsoid", |x| {
        let each = x.iter().enumerate();
        each.map(|(i, v)| 10f64.powi(i as i32) * v * v).sum()
    }),
    ("rosenbrock", |x| {
        let pair = |w: &[f64]| {
            let (a, b) = (w[0] / 10.0, w[1] / 10.0);
            100.0 * (b - a * a).powi(2) + (1.0 - a).powi(2)
        };
        x.windows(2).map(pair).sum()
    }),
    ("rastrigin", |x| {
        let one = |v: &f64| {
            10.0 + (v / 10.0).powi(2) - 10.0 * (2.0 * std::f64::consts::PI * v / 10.0).cos()
        };
        x.iter().map(one).sum()
    }),
];

struct Numbers(Space);

impl Numbers {
    fn new() -> Numbers {
        let knob = |i| Knob::ints(format!("x{i}"), Role::Unroll, -REACH..=REACH);
        Numbers(Space::new((0..KNOBS).map(knob).collect(), &[]).expect("a space"))
    }
}

impl Tunable for Numbers {
    fn name(&self) -> &str {
        "numbers"
    }

    fn space(&self) -> &Space {
        &self.0
    }

    fn realize(&self, _: &Configuration, _: &str) -> Result<KernelSource, RealizeError> {
        Err(RealizeError("a function has no source".into()))
    }

    fn features(&self, c: &Configuration) -> Vec<f32> {
        c.indices().map(|i| i as f32).collect()
    }
}

fn measured(value: f64) -> Outcome {
    Outcome::Measured(Measurement {
        samples: vec![Nanos(value)],
        calls: 1,
        error: 0.0,
        gpu: None,
        pace: None,
    })
}

/// The best of a run's values, 1 above the function's, whose centre is drawn from the seed.
fn best(f: Function, seed: u64, make: fn(&Setting) -> FlatSearch) -> f64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let centre: Vec<f64> = (0..KNOBS).map(|_| f64::from(rng.random_range(-30..=30))).collect();
    let tunables: Vec<Arc<dyn Tunable>> = vec![Arc::new(Numbers::new())];
    let mut search = make(&Setting::new(tunables, seed, TRIALS));
    let mut best = f64::INFINITY;
    for _ in 0..TRIALS {
        let asked = search.ask(1);
        for candidate in asked {
            let at = candidate.configuration.indices().map(|i| i as f64 - REACH as f64);
            let x: Vec<f64> = at.zip(&centre).map(|(v, c)| v - c).collect();
            let value = f(&x) + 1.0;
            best = best.min(value);
            search.tell(&[Trial { candidate, outcome: measured(value), cost: CpuCost::default() }]);
        }
    }
    best
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
fn smooth_functions_of_whole_numbers_are_descended() {
    for ((name, f), bound) in FUNCTIONS.into_iter().zip([0.03, 0.15, 0.03, 0.35]) {
        let of = |make: fn(&Setting) -> FlatSearch| {
            median((0..10).map(|seed| best(f, seed, make)).collect())
        };
        let (ours, even) =
            (of(|s| default_search("default", s)), of(|s| FlatSearch::even("random", s)));
        println!(
            "{name}: {ours:.3} after {TRIALS} trials, even draws {even:.1}, {:.4}",
            ours / even
        );
        assert!(ours < bound * even, "{name}");
    }
}

/// A knob of many values costs neither memory by their square nor a look at each of them.
#[test]
fn knobs_of_many_values_are_searched() {
    let knob = |i| Knob::ints(format!("x{i}"), Role::Unroll, 0..=60_000);
    let space = Space::new((0..KNOBS).map(knob).collect(), &[]).expect("a space");
    let tunables: Vec<Arc<dyn Tunable>> = vec![Arc::new(Numbers(space))];
    let mut search = default_search("default", &Setting::new(tunables, 1, 40));
    let mut best = f64::INFINITY;
    for _ in 0..40 {
        for candidate in search.ask(1) {
            let far = candidate.configuration.indices().map(|i| (i as f64 - 20_000.0).abs());
            let value = far.sum::<f64>();
            best = best.min(value);
            // Half of the space fails, so that what runs is learned, too.
            let outcome = match candidate.configuration.indices().next().is_some_and(|i| i < 40_000)
            {
                true => measured(value),
                false => Outcome::Failed { stage: FailStage::Launch, detail: "too large".into() },
            };
            search.tell(&[Trial { candidate, outcome, cost: CpuCost::default() }]);
        }
    }
    assert!(best < 40_000.0, "{best}");
}
