//! Strategies raced on synthetic problems: each part of the default must earn its place.

use super::*;
use crate::landscape::{Problem, curve};

const SEEDS: u64 = 10;

/// The geometric mean over problems and seeds of the best time over that of perfect code.
fn race(make: fn(&Setting) -> Box<dyn Strategy>, trials: usize) -> f64 {
    race_of(Problem::several, make, trials)
}

fn race_of(problems: fn(u64) -> Vec<Problem>, make: fn(&Setting) -> Box<dyn Strategy>, trials: usize) -> f64 {
    let mut logs = Vec::new();
    for seed in 0..SEEDS {
        for (i, p) in problems(seed).iter().enumerate() {
            let mut s = make(&Setting { tunables: p.tunables(), seed: seed * 31 + i as u64, trials });
            let got = curve(
                |n, told| {
                    s.tell(told);
                    s.ask(n)
                },
                p,
                trials,
            );
            let floor = p.landscapes.iter().map(|l| l.floor()).fold(f64::INFINITY, f64::min);
            logs.push((got[trials - 1] / floor).ln());
        }
    }
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

fn all(trials: usize) -> [f64; 4] {
    let all = [
        race(|s| Box::new(StormRaindrop::new(s)), trials),
        race(|s| Box::new(Storm::new(s)), trials),
        race(|s| Box::new(Raindrop::new(s)), trials),
        race(|s| Box::new(Random::new(s)), trials),
    ];
    println!("{trials} trials: storm+raindrop {:.4}, storm {:.4}, raindrop {:.4}, random {:.4}", all[0], all[1], all[2], all[3]);
    all
}

// On these landscapes the storm alone is ahead of both together by 1 % at 64 trials, and behind by 3 % at
// 200. The bound below keeps that from growing.

#[test]
fn with_64_trials_the_default_beats_descent_and_chance() {
    let [both, storm, drop, random] = all(64);
    assert!(storm < random * 0.6 && drop < random * 0.7);
    assert!(both < drop * 0.95 && both < storm * 1.1);
}

#[test]
fn with_200_trials_the_default_beats_descent_and_chance() {
    let [both, storm, drop, random] = all(200);
    assert!(storm < random * 0.5 && drop < random * 0.6);
    assert!(both < drop * 0.95 && both < storm * 1.06);
}

/// A sketch that is good at once does not keep the other from showing what it is worth, and where one
/// is better from the start, looking at the others costs little.
#[test]
fn sketches_are_heard_before_they_are_judged() {
    let both = |problems, trials| race_of(problems, |s| Box::new(StormRaindrop::new(s)), trials);
    let late = [64, 200].map(|trials| both(|seed| vec![Problem::late(seed)], trials));
    let alone = both(|seed| vec![Problem { landscapes: vec![Problem::late(seed).landscapes[1].clone()] }], 200);
    let three = [64, 200].map(|trials| both(|seed| Problem::several(seed).split_off(3), trials));
    let first = both(|seed| vec![Problem { landscapes: vec![Problem::several(seed)[3].landscapes[1].clone()] }], 200);
    println!("late {late:.4?}, alone {alone:.4}; three {three:.4?}, the best of them alone {first:.4}");
    // By the model's choice alone: 1.81 and 1.97.
    assert!(late[1] < 1.1 * alone && three[1] < 1.25 * first);
}
