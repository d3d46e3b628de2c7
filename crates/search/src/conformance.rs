//! The conformance suite of search strategies: every strategy proposes legal candidates only, never
//! one twice, at most the number asked for, stops when nothing is left, gives the same proposals
//! for the same seed and outcomes, and survives failures and trials of other tunables. The list of
//! strategies under test is here.

mod in_order;

use crate::flat::Random;
use crate::landscape::{Landscape, TestProblem, curve};
use crate::registry::{ablations, strategies};
use crate::strategy::{
    DEFAULT, Droplet, Evolution, EvolutionDroplet, Setting, Strategy, StrategyInfo,
};
use squall_core::space::{Knob, Role, Term};
use squall_core::{
    Candidate, Configuration, CpuCost, FailStage, KernelSource, Measurement, Nanos, Outcome,
    RealizeError, Space, Trial, Tunable,
};
use std::collections::HashSet;
use std::sync::Arc;

/// A tunable of a few knobs whose features and times are given by functions.
pub(crate) struct Small {
    pub name: &'static str,
    pub space: Space,
    pub features: fn(&Configuration) -> Vec<f32>,
}

impl Tunable for Small {
    fn name(&self) -> &str {
        self.name
    }
    fn space(&self) -> &Space {
        &self.space
    }
    fn realize(&self, _: &Configuration, _: &str) -> Result<KernelSource, RealizeError> {
        Err(RealizeError("none".into()))
    }
    fn features(&self, c: &Configuration) -> Vec<f32> {
        (self.features)(c)
    }
}

fn plain(c: &Configuration) -> Vec<f32> {
    c.indices().map(|i| i as f32).collect()
}

fn small(name: &'static str, features: fn(&Configuration) -> Vec<f32>) -> Arc<dyn Tunable> {
    let tile = |level| Role::Tile { axis: "x".into(), level };
    let knobs = vec![
        Knob::ints("x0", tile(0), [1, 2, 4, 8]),
        Knob::ints("x1", tile(1), [1, 2, 4, 8]),
        Knob::words("layout", Role::Layout, &["plain", "packed"]),
    ];
    let space =
        Space::new(knobs, &[Term::product([Term::knob("x0"), Term::knob("x1")]).at_most(16)])
            .unwrap();
    Arc::new(Small { name, space, features })
}

pub(crate) fn measured(candidate: &Candidate, times: &[f64]) -> Trial {
    let samples = times.iter().map(|&t| Nanos(t)).collect();
    Trial {
        candidate: candidate.clone(),
        outcome: Outcome::Measured(Measurement {
            samples,
            calls: 1,
            error: 0.0,
            gpu: None,
            pace: None,
        }),
        cost: CpuCost::default(),
    }
}

fn failed(candidate: &Candidate) -> Trial {
    let outcome = Outcome::Failed { stage: FailStage::Build, detail: "refused".into() };
    Trial { candidate: candidate.clone(), outcome, cost: CpuCost::default() }
}

fn setting(tunables: Vec<Arc<dyn Tunable>>, seed: u64) -> Setting {
    Setting::new(tunables, seed, 100)
}

/// Asks and tells until nothing comes any more; returns what was asked, in order.
fn exhaust(s: &mut dyn Strategy, outcome: impl Fn(&Candidate) -> Trial) -> Vec<Candidate> {
    let mut all = Vec::new();
    for round in 0..2000 {
        let n = 1 + round % 9;
        let asked = s.ask(n);
        assert!(asked.len() <= n, "{}: {} for {n}", s.name(), asked.len());
        if asked.is_empty() {
            return all;
        }
        s.tell(&asked.iter().map(&outcome).collect::<Vec<_>>());
        all.extend(asked);
    }
    panic!("{} does not end", s.name());
}

fn distinct(name: &str, all: &[Candidate]) {
    let texts: HashSet<String> = all.iter().map(|c| c.to_string()).collect();
    assert_eq!(texts.len(), all.len(), "{name} repeats itself");
}

fn time(c: &Candidate) -> f64 {
    c.configuration
        .indices()
        .enumerate()
        .map(|(k, i)| 10.0 + (i as f64 - 1.0 - k as f64).powi(2))
        .product()
}

fn conformance(make: fn(&Setting) -> Box<dyn Strategy>) {
    let two = || vec![small("a", plain), small("b", plain)];
    let size = two().iter().map(|t| t.space().len() as usize).sum::<usize>();
    let name = make(&setting(two(), 1)).name();

    // Every legal configuration once, then nothing, and still nothing.
    let steady = |c: &Candidate| measured(c, &[time(c), time(c) * 1.001, time(c) * 0.999]);
    let mut s = make(&setting(two(), 1));
    let all = exhaust(&mut *s, steady);
    distinct(name, &all);
    assert_eq!(all.len(), size, "{name}");
    assert!(s.ask(8).is_empty() && s.ask(0).is_empty());
    for c in &all {
        let of = two().into_iter().find(|t| *t.name() == *c.tunable).expect("a known tunable");
        assert!(of.space().contains(&c.configuration.indices().collect::<Vec<_>>()), "{name}: {c}");
    }

    // Equal seeds, equal trials; other seeds, others.
    assert_eq!(exhaust(&mut *make(&setting(two(), 1)), steady), all, "{name}");
    assert_ne!(exhaust(&mut *make(&setting(two(), 2)), steady), all, "{name}");

    // Failures, all or half, end nothing.
    assert_eq!(exhaust(&mut *make(&setting(two(), 3)), failed).len(), size, "{name}");
    let half = |c: &Candidate| {
        if c.configuration.indices().sum::<usize>() % 2 == 0 { failed(c) } else { steady(c) }
    };
    assert_eq!(exhaust(&mut *make(&setting(two(), 3)), half).len(), size, "{name}");

    // Single samples, no samples and nonsense are no trouble.
    let odd = |c: &Candidate| match c.configuration.indices().sum::<usize>() % 4 {
        0 => measured(c, &[]),
        1 => measured(c, &[f64::NAN, 1.0]),
        2 => measured(c, &[0.0, -1.0, f64::INFINITY]),
        _ => measured(c, &[time(c)]),
    };
    assert_eq!(exhaust(&mut *make(&setting(two(), 3)), odd).len(), size, "{name}");

    // Asked again before anything is told, it goes on without repeating itself.
    let mut s = make(&setting(two(), 4));
    let mut untold = Vec::new();
    for _ in 0..200 {
        untold.extend(s.ask(5));
    }
    distinct(name, &untold);
    assert_eq!(untold.len(), size, "{name}");

    // Resumed: what was told first is never asked; trials of other tunables are ignored.
    let (known, rest) = all.split_at(size / 2);
    let mut s = make(&setting(two(), 5));
    s.tell(&known.iter().map(steady).collect::<Vec<_>>());
    let mut stranger = known[0].clone();
    stranger.tunable = "unknown".into();
    let other_space = Space::new(vec![Knob::ints("y", Role::Choice, [1])], &[]).unwrap();
    let misfit = Candidate { tunable: known[0].tunable.clone(), configuration: other_space.nth(0) };
    s.tell(&[steady(&stranger), steady(&misfit)]);
    // Told twice changes nothing.
    s.tell(&[steady(&known[0])]);
    let resumed = exhaust(&mut *s, steady);
    distinct(name, &resumed);
    assert_eq!(
        resumed.iter().map(|c| c.to_string()).collect::<HashSet<_>>(),
        rest.iter().map(|c| c.to_string()).collect(),
        "{name}"
    );

    // What cannot be realized is never asked; if nothing can, nothing is.
    let packed_fails =
        |c: &Configuration| if c.word("layout") == Some("packed") { Vec::new() } else { plain(c) };
    let asked = exhaust(&mut *make(&setting(vec![small("a", packed_fails)], 6)), steady);
    assert_eq!(asked.len(), 13, "{name}");
    assert!(asked.iter().all(|c| c.configuration.word("layout") == Some("plain")));
    assert!(make(&setting(vec![small("a", |_| Vec::new())], 6)).ask(8).is_empty(), "{name}");
    assert!(make(&setting(Vec::new(), 6)).ask(8).is_empty(), "{name}");

    // Features that are no numbers, or of differing lengths.
    let wild = |c: &Configuration| {
        let i: usize = c.indices().sum();
        vec![[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0][i % 4]; 1 + i % 3]
    };
    assert_eq!(
        exhaust(&mut *make(&setting(vec![small("a", wild)], 7)), steady).len(),
        size / 2,
        "{name}"
    );

    // A large space, some budgets: as many as wanted, all different.
    let problem = TestProblem {
        landscapes: vec![Arc::new(Landscape::new("large", [512, 512, 512], 1.0, 0.1, 1))],
    };
    for trials in [0, 1, 16, 70, usize::MAX] {
        let mut s = make(&Setting::new(problem.tunables(), 1, trials));
        let mut asked = Vec::new();
        let budget = trials.min(120);
        let got = curve(
            |n, told| {
                s.tell(told);
                let out = s.ask(n);
                asked.extend(out.clone());
                out
            },
            &problem,
            budget,
        );
        assert_eq!(got.len(), budget, "{name}");
        distinct(name, &asked);
    }
}

#[test]
fn random_conforms() {
    conformance(|s| Box::new(Random::new(s)));
}

#[test]
fn evolution_conforms() {
    conformance(|s| Box::new(Evolution::new(s)));
}

#[test]
fn droplet_conforms() {
    conformance(|s| Box::new(Droplet::new(s)));
}

#[test]
fn the_default_conforms() {
    conformance(|s| Box::new(EvolutionDroplet::new(s)));
}

#[test]
fn those_without_a_model_conform_too() {
    for s in ablations() {
        conformance(s.make);
    }
}

#[test]
fn the_default_of_flat_spaces_conforms() {
    conformance(|s| Box::new(crate::flat::default_search(DEFAULT, s)));
}

/// A strategy is an addition of one file and one line: this one is no part of the crate.
#[test]
fn an_added_strategy_conforms() {
    let all = || strategies().iter().chain([&in_order::IN_ORDER]);
    let found: Vec<&StrategyInfo> = all().filter(|s| s.is_called("in-order")).collect();
    assert_eq!(found.len(), 1, "the name is not taken");
    conformance(found[0].make);
}

fn listed(name: &str) -> fn(&Setting) -> Box<dyn Strategy> {
    strategies().iter().find(|s| s.name == name).expect("a listed strategy").make
}

#[test]
fn bayes_conforms() {
    conformance(listed("bayes"));
}

#[test]
fn the_local_searches_conform() {
    for name in ["climb", "anneal", "tabu"] {
        conformance(listed(name));
    }
}

#[test]
fn the_populations_conform() {
    for name in ["genetic", "differential", "swarm"] {
        conformance(listed(name));
    }
}

#[test]
fn exhaustive_conforms() {
    conformance(listed("exhaustive"));
}

#[test]
fn all_are_listed_under_their_names() {
    let names: Vec<&str> = strategies().iter().map(|s| s.name).collect();
    let want = [
        "evolution+droplet",
        "evolution",
        "droplet",
        "random",
        "bayes",
        "climb",
        "anneal",
        "tabu",
        "genetic",
        "differential",
        "swarm",
        "exhaustive",
    ];
    assert_eq!(names, want);
    for s in strategies() {
        assert_eq!((s.make)(&setting(vec![small("a", plain)], 1)).name(), s.name);
        assert!(!s.summary.is_empty());
    }
}

/// Settings, scripts and traces of before the renaming still have the former names.
#[test]
fn former_names_are_aliases_and_no_name_is_taken_twice() {
    let all = || strategies().iter().chain(ablations());
    let find = |name| all().find(|s| s.is_called(name)).map(|s| s.name);
    for (former, name) in [
        ("storm+raindrop", "evolution+droplet"),
        ("storm", "evolution"),
        ("raindrop", "droplet"),
        ("storm-nomodel", "evolution-nomodel"),
        ("storm+raindrop-nomodel", "evolution+droplet-nomodel"),
    ] {
        assert_eq!((find(former), find(name)), (Some(name), Some(name)));
    }
    let names: Vec<&str> =
        all().flat_map(|s| [s.name].into_iter().chain(s.aliases.iter().copied())).collect();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    assert_eq!(find("sunshine"), None);
}
