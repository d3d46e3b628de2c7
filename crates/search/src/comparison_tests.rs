//! Tests that compare search strategies on the synthetic problems of `landscape.rs` by their best
//! time after 64 and 200 trials: each part of the default strategy must be worth its trials,
//! against descent alone, evolution alone and even draws.

use crate::flat::Random;
use crate::landscape::{TestProblem, curve};
use crate::strategy::{Droplet, Evolution, EvolutionDroplet, Setting, Strategy};

const SEEDS: u64 = 10;

/// The geometric mean over problems and seeds of the best time over that of perfect code.
fn score(make: fn(&Setting) -> Box<dyn Strategy>, trials: usize) -> f64 {
    score_on(TestProblem::several, SEEDS, make, trials)
}

fn score_on(
    problems: fn(u64) -> Vec<TestProblem>,
    seeds: u64,
    make: fn(&Setting) -> Box<dyn Strategy>,
    trials: usize,
) -> f64 {
    let mut logs = Vec::new();
    for seed in 0..seeds {
        for (i, p) in problems(seed).iter().enumerate() {
            let mut s = make(&Setting::new(p.tunables(), seed * 31 + i as u64, trials));
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
        score(|s| Box::new(EvolutionDroplet::new(s)), trials),
        score(|s| Box::new(Evolution::new(s)), trials),
        score(|s| Box::new(Droplet::new(s)), trials),
        score(|s| Box::new(Random::new(s)), trials),
    ];
    println!(
        "{trials} trials: evolution+droplet {:.4}, evolution {:.4}, droplet {:.4}, random {:.4}",
        all[0], all[1], all[2], all[3]
    );
    all
}

// With 64 trials the default does what evolution does. With 200, over 60 seeds, descents from half
// the budget on gain 2.2 % (standard error 0.9); over ten seeds, as here, equal strategies differ
// by more than that. The bounds below keep a loss from growing.

#[test]
fn with_64_trials_the_default_beats_descent_and_chance() {
    let [default, evolution, droplet, random] = all(64);
    assert!(evolution < random * 0.6 && droplet < random * 0.7);
    assert!(default < droplet * 0.95 && default == evolution);
}

#[test]
fn with_200_trials_the_default_beats_descent_and_chance() {
    let [default, evolution, droplet, random] = all(200);
    assert!(evolution < random * 0.5 && droplet < random * 0.6);
    assert!(default < droplet * 0.95 && default < evolution * 1.06);
}

/// Two runs of one seed differ only by the descents: before the first they propose the same.
#[test]
fn until_its_first_descent_the_default_is_evolution() {
    let p = &TestProblem::several(3)[3];
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
    let setting = Setting::new(p.tunables(), 5, 200);
    let (default, evolution) = (
        asked(Box::new(EvolutionDroplet::new(&setting))),
        asked(Box::new(Evolution::new(&setting))),
    );
    let alike = default.iter().zip(&evolution).take_while(|(a, b)| a == b).count();
    assert!((100..130).contains(&alike), "{alike}");
}

/// A sketch that is fast at once does not keep trials from one that becomes faster later, and where
/// one is better from the start, trying the others costs little.
#[test]
fn every_sketch_is_tried_before_the_model_chooses() {
    let default =
        |problems, trials| score_on(problems, 40, |s| Box::new(EvolutionDroplet::new(s)), trials);
    let late = [64, 200].map(|trials| default(|seed| vec![TestProblem::late(seed)], trials));
    let alone = default(
        |seed| {
            vec![TestProblem { landscapes: vec![TestProblem::late(seed).landscapes[1].clone()] }]
        },
        200,
    );
    let three =
        [64, 200].map(|trials| default(|seed| TestProblem::several(seed).split_off(3), trials));
    let first = default(
        |seed| {
            vec![TestProblem {
                landscapes: vec![TestProblem::several(seed)[3].landscapes[1].clone()],
            }]
        },
        200,
    );
    println!(
        "late {late:.4?}, alone {alone:.4}; three {three:.4?}, the best of them alone {first:.4}"
    );
    // 1.10 and 1.05 of these; by the model's choice alone, over ten seeds, 1.27 and 1.38.
    assert!(late[1] < 1.15 * alone && three[1] < 1.25 * first);
}
