//! Strategies raced on synthetic problems: each part of the default must earn its place.

use super::*;
use crate::landscape::{Problem, curve};

const SEEDS: u64 = 10;

/// The geometric mean over problems and seeds of the best time over that of perfect code.
fn race(make: fn(&Setting) -> Box<dyn Strategy>, trials: usize) -> f64 {
    race_of(Problem::several, SEEDS, make, trials)
}

fn race_of(
    problems: fn(u64) -> Vec<Problem>,
    seeds: u64,
    make: fn(&Setting) -> Box<dyn Strategy>,
    trials: usize,
) -> f64 {
    let mut logs = Vec::new();
    for seed in 0..seeds {
        for (i, p) in problems(seed).iter().enumerate() {
            let mut s =
                make(&Setting { tunables: p.tunables(), seed: seed * 31 + i as u64, trials });
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
    println!(
        "{trials} trials: storm+raindrop {:.4}, storm {:.4}, raindrop {:.4}, random {:.4}",
        all[0], all[1], all[2], all[3]
    );
    all
}

// With 64 trials the default is the storm. With 200, over 60 seeds, descents from half the budget
// on gain 2.2 % (standard error 0.9); over ten, strategies that are alike differ by more than that.
// The bounds below keep it from growing.

#[test]
fn with_64_trials_the_default_beats_descent_and_chance() {
    let [both, storm, drop, random] = all(64);
    assert!(storm < random * 0.6 && drop < random * 0.7);
    assert!(both < drop * 0.95 && both == storm);
}

#[test]
fn with_200_trials_the_default_beats_descent_and_chance() {
    let [both, storm, drop, random] = all(200);
    assert!(storm < random * 0.5 && drop < random * 0.6);
    assert!(both < drop * 0.95 && both < storm * 1.06);
}

/// Two runs of one seed differ by what the descents did: before the first they are one search.
#[test]
fn until_its_first_descent_the_default_is_the_storm() {
    let p = &Problem::several(3)[3];
    let asked = |mut s: Box<dyn Strategy>| {
        let mut asked = Vec::new();
        curve(
            |n, told| {
                s.tell(told);
                let more = s.ask(n);
                asked.extend(more.clone());
                more
            },
            p,
            200,
        );
        asked
    };
    let setting = Setting { tunables: p.tunables(), seed: 5, trials: 200 };
    let (both, storm) =
        (asked(Box::new(StormRaindrop::new(&setting))), asked(Box::new(Storm::new(&setting))));
    let alike = both.iter().zip(&storm).take_while(|(a, b)| a == b).count();
    assert!((100..130).contains(&alike), "{alike}");
}

/// A sketch that is good at once does not keep the other from showing what it is worth, and where
/// one is better from the start, looking at the others costs little.
#[test]
fn sketches_are_heard_before_they_are_judged() {
    let both =
        |problems, trials| race_of(problems, 40, |s| Box::new(StormRaindrop::new(s)), trials);
    let late = [64, 200].map(|trials| both(|seed| vec![Problem::late(seed)], trials));
    let alone = both(
        |seed| vec![Problem { landscapes: vec![Problem::late(seed).landscapes[1].clone()] }],
        200,
    );
    let three = [64, 200].map(|trials| both(|seed| Problem::several(seed).split_off(3), trials));
    let first = both(
        |seed| vec![Problem { landscapes: vec![Problem::several(seed)[3].landscapes[1].clone()] }],
        200,
    );
    println!(
        "late {late:.4?}, alone {alone:.4}; three {three:.4?}, the best of them alone {first:.4}"
    );
    // 1.10 and 1.05 of these; by the model's choice alone, over ten seeds, 1.27 and 1.38.
    assert!(late[1] < 1.15 * alone && three[1] < 1.25 * first);
}
