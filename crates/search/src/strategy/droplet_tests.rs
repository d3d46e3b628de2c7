//! Tests of the coordinate descent in `droplet.rs` (Droplet Search): one for each fault of the
//! published code, which that code would fail, and for the other properties that a descent must
//! keep.

use super::*;
use crate::conformance::{Small, measured};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Space, Tunable};
use std::sync::Arc;

fn tile(axis: &str, level: u8) -> Role {
    Role::Tile { axis: axis.into(), level }
}

/// A ledger over one space, and the point with these values.
fn ledger(knobs: Vec<Knob>, constraints: &[Term]) -> (Ledger, Space) {
    let space = Space::new(knobs, constraints).unwrap();
    let features = |c: &Configuration| c.indices().map(|i| i as f32).collect();
    let tunable: Arc<dyn Tunable> = Arc::new(Small { name: "t", space: space.clone(), features });
    (Ledger::new(&[tunable]), space)
}

fn at(space: &Space, text: &str) -> Point {
    Point { tunable: 0, configuration: space.parse(text).unwrap() }
}

/// Tells a point's samples around a time, with a spread of 0.2 %.
fn tell(ledger: &mut Ledger, p: &Point, time: f64) -> Point {
    let c = ledger.propose(std::slice::from_ref(p)).remove(0);
    ledger.tell(&measured(&c, &[time, time * 1.002, time * 0.998])).unwrap()
}

/// Proposes `n` and tells their times; what was proposed.
fn step(
    d: &mut Descent,
    ledger: &mut Ledger,
    n: usize,
    time: impl Fn(&Configuration) -> f64,
) -> Vec<String> {
    let points = d.propose(ledger, None, n, &PointSet::default());
    let told: Vec<Point> = points.iter().map(|p| tell(ledger, p, time(&p.configuration))).collect();
    d.absorb(ledger, &told);
    points.iter().map(|p| p.configuration.to_string()).collect()
}

fn line(values: &[i64]) -> (Ledger, Space) {
    ledger(vec![Knob::ints("a", Role::Choice, values.iter().copied())], &[])
}

#[test]
fn lists_are_sorted_and_the_start_stands_at_its_true_place() {
    // Published: the recorded value is put first, so from 16 the next is 4.
    let (mut l, s) = line(&[4, 8, 16, 24, 32, 48, 64]);
    let start = tell(&mut l, &at(&s, "a=16"), 10.0);
    let mut d = Descent::new(start, 1);
    let mut first = step(&mut d, &mut l, 2, |_| 10.0);
    first.sort();
    assert_eq!(first, ["a=24", "a=8"]);
}

#[test]
fn it_goes_both_ways() {
    // Published: every step down from the start is clipped to the start itself.
    for best in [4, 64] {
        let (mut l, s) = line(&[4, 8, 16, 24, 32, 48, 64]);
        let start = tell(&mut l, &at(&s, "a=24"), 30.0);
        let mut d = Descent::new(start, 1);
        for _ in 0..6 {
            step(&mut d, &mut l, 2, |c| 10.0 + (c.int("a").unwrap() - best).abs() as f64);
        }
        assert_eq!(d.centre().configuration.int("a"), Some(best));
    }
}

#[test]
fn steps_end_at_the_ends_of_a_list() {
    // Published: a step beyond the end wraps to the beginning.
    let (mut l, s) = line(&[1, 2, 4, 8, 16, 32, 64]);
    let start = tell(&mut l, &at(&s, "a=64"), 10.0);
    assert_eq!(step(&mut Descent::new(start, 1), &mut l, 1, |_| 10.0), ["a=32"]);
}

#[test]
fn only_legal_points_are_proposed_and_illegal_ones_end_nothing() {
    // Published: no divisor check; here all steps along one knob are illegal, and the batch of
    // them would end the run.
    let factors = [1, 2, 4, 8, 16, 32, 64];
    let knobs =
        vec![Knob::ints("x0", tile("x", 0), factors), Knob::ints("x1", tile("x", 1), factors)];
    let (mut l, s) =
        ledger(knobs, &[Term::product([Term::knob("x0"), Term::knob("x1")]).equals(64)]);
    let start = tell(&mut l, &at(&s, "x0=64,x1=1"), 100.0);
    let mut d = Descent::new(start, 1);
    for _ in 0..10 {
        step(&mut d, &mut l, 2, |c| 10.0 + (c.int("x1").unwrap() as f64 / 16.0).log2().abs());
    }
    assert_eq!(d.centre().configuration.to_string(), "x0=4,x1=16");
}

#[test]
fn factors_move_between_levels_of_an_axis() {
    // The product of the levels is a ridge: leaving it costs more than any single step gains.
    let factors = [1, 2, 3, 4, 6, 8, 12, 24];
    let knobs = vec![
        Knob::ints("x0", tile("x", 0), factors),
        Knob::ints("x1", tile("x", 1), factors),
        Knob::ints("u", Role::Unroll, [1, 2]),
    ];
    let (mut l, s) = ledger(knobs, &[]);
    let cost = |c: &Configuration| {
        let (a, b) = (c.int("x0").unwrap() as f64, c.int("x1").unwrap() as f64);
        10.0 + 50.0 * (a * b / 24.0).log2().abs() + (b / 8.0).log2().abs()
    };
    let start = at(&s, "x0=24,x1=1,u=1");
    let time = cost(&start.configuration);
    let start = tell(&mut l, &start, time);
    let mut d = Descent::new(start, 1);
    for _ in 0..40 {
        step(&mut d, &mut l, 4, cost);
    }
    assert_eq!(
        (d.centre().configuration.int("x0"), d.centre().configuration.int("x1")),
        (Some(3), Some(8))
    );
}

#[test]
fn no_candidate_is_lost_between_batches() {
    // Published: `next[batch:-1]` drops the last queued point of each round, already marked as
    // visited. Whatever the batch, everything within reach is proposed exactly once.
    for n in 1..6 {
        let knobs = vec![
            Knob::ints("a", Role::Choice, 0..5),
            Knob::ints("b", Role::Choice, 0..5),
            Knob::words("w", Role::Order, &["x", "y", "z"]),
        ];
        let (mut l, s) = ledger(knobs, &[]);
        let start = tell(&mut l, &at(&s, "a=2,b=2,w=y"), 10.0);
        let mut d = Descent::new(start, 1);
        let mut all = Vec::new();
        while !d.has_ended(&l) {
            all.extend(step(&mut d, &mut l, n, |_| 10.0));
        }
        let near = [
            "a=1,b=2,w=y",
            "a=3,b=2,w=y",
            "a=2,b=1,w=y",
            "a=2,b=3,w=y",
            "a=2,b=2,w=x",
            "a=2,b=2,w=z",
        ];
        let mut first = all[..6].to_vec();
        first.sort();
        let mut near = near.map(String::from).to_vec();
        near.sort();
        assert_eq!(first, near, "in batches of {n}");
        let mut sorted = all.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), all.len());
        // Axis steps and word flips at any radius, and all pairs at radii 1 and 2.
        let axis = 4 + 4 + 2;
        let pairs = 4 + 4 + 2 * 2 + 2 * 2;
        assert_eq!(all.len(), axis + pairs, "{all:?}");
    }
}

#[test]
fn words_have_no_order() {
    let (mut l, s) = ledger(vec![Knob::words("w", Role::Order, &["a", "b", "c", "d", "e"])], &[]);
    let start = tell(&mut l, &at(&s, "w=a"), 10.0);
    let mut d = Descent::new(start, 1);
    let mut first = step(&mut d, &mut l, 4, |c| if c.word("w") == Some("e") { 5.0 } else { 11.0 });
    first.sort();
    assert_eq!(first, ["w=b", "w=c", "w=d", "w=e"]);
    assert_eq!(d.centre().configuration.word("w"), Some("e"));
}

#[test]
fn points_are_told_apart_by_the_whole_configuration() {
    // Published: a point's index sums coordinates times too small strides, so that unlike points
    // count as visited. Here all points of equal coordinate sum and of any mixed radix are kept.
    let knobs: Vec<Knob> =
        (0..4).map(|k| Knob::ints(format!("k{k}"), Role::Choice, 0..3 + k)).collect();
    let (mut l, s) = ledger(knobs, &[]);
    let mut taken = 0;
    for c in s.iter() {
        let p = Point { tunable: 0, configuration: c };
        assert!(!l.is_taken(&p));
        tell(&mut l, &p, 10.0);
        taken += 1;
        assert!(l.is_taken(&p));
    }
    assert_eq!(taken, 3 * 4 * 5 * 6);
    assert_eq!(l.known().len(), taken);
}

#[test]
fn a_flat_batch_widens_the_radius_instead_of_ending() {
    // Published (DPMeta): the first batch without improvement is the last.
    let (mut l, s) = line(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let start = tell(&mut l, &at(&s, "a=2"), 10.0);
    let mut d = Descent::new(start, 1);
    let cost = |c: &Configuration| if c.int("a").unwrap() >= 6 { 5.0 } else { 10.0 };
    for _ in 0..6 {
        step(&mut d, &mut l, 2, cost);
    }
    assert!(d.centre().configuration.int("a").unwrap() >= 6, "{:?}", d.centre());
}

#[test]
fn an_improvement_brings_the_radius_back() {
    let (mut l, s) = line(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    let start = tell(&mut l, &at(&s, "a=1"), 10.0);
    let mut d = Descent::new(start, 1);
    // Flat up to 6, which is better, and 7 is the best of all.
    let cost = |c: &Configuration| match c.int("a").unwrap() {
        6 => 5.0,
        7 => 4.0,
        _ => 10.0,
    };
    let mut tried = 0;
    while d.centre().configuration.int("a") != Some(7) {
        tried += step(&mut d, &mut l, 1, cost).len();
        assert!(tried < 12);
    }
    assert!(tried <= 10, "{tried}");
}

#[test]
fn noise_moves_nothing() {
    // Published (DPMeta): any lower mean wins. Here the lead must be significant and at least 1 %.
    let (mut l, s) = line(&[1, 2, 3]);
    let start = at(&s, "a=2");
    let c = l.propose(std::slice::from_ref(&start)).remove(0);
    let start = l.tell(&measured(&c, &[10.0, 10.4, 9.7, 10.1])).unwrap();
    let mut d = Descent::new(start.clone(), 1);
    let points = d.propose(&mut l, None, 2, &PointSet::default());
    let noisy = [9.6, 10.5, 9.4, 9.9];
    let told: Vec<Point> =
        l.propose(&points).iter().map(|c| l.tell(&measured(c, &noisy)).unwrap()).collect();
    d.absorb(&l, &told);
    assert_eq!(*d.centre(), start);
    let known = |samples: &[f64]| Known {
        point: start.clone(),
        samples: samples.to_vec(),
        time: squall_core::median(samples.iter().copied()),
    };
    let ten = known(&[10.0, 10.01, 9.99]);
    assert!(!beats(&known(&[9.95, 9.96, 9.94]), &ten), "significant, but half a percent");
    assert!(beats(&known(&[9.8, 9.81, 9.79]), &ten));
    assert!(!beats(&known(&[10.2, 10.21, 10.19]), &ten));
    assert!(!beats(&known(&[9.8]), &known(&[10.0])) && beats(&known(&[9.5]), &known(&[10.0])));
    assert!(
        beats(&ten, &known(&[])) && !beats(&known(&[]), &ten) && !beats(&known(&[]), &known(&[]))
    );
}

#[test]
fn the_last_measurement_of_a_candidate_counts() {
    // Published: the start's cost comes from another run's log and is never measured again.
    let (mut l, s) = line(&[1, 2, 3, 4, 5]);
    let start = tell(&mut l, &at(&s, "a=3"), 5.0);
    let mut d = Descent::new(start.clone(), 1);
    step(&mut d, &mut l, 2, |_| 8.0);
    assert_eq!(*d.centre(), start);
    // Measured again it is slower than its neighbours.
    let again = tell(&mut l, &start, 10.0);
    d.absorb(&l, &[again]);
    step(&mut d, &mut l, 1, |_| 9.9);
    assert_ne!(*d.centre(), start);
    assert_eq!(l.look_up(d.centre()).unwrap().time, 8.0);
}

#[test]
fn queued_candidates_share_nothing() {
    // Published (PR 16499): one record is changed in place, so that queued candidates alias.
    let (mut l, s) = line(&[1, 2, 3, 4, 5]);
    let start = tell(&mut l, &at(&s, "a=3"), 10.0);
    let mut d = Descent::new(start.clone(), 1);
    let points = d.propose(&mut l, None, 4, &PointSet::default());
    let before: Vec<String> = points.iter().map(|p| p.configuration.to_string()).collect();
    let told: Vec<Point> = points.iter().map(|p| tell(&mut l, p, 5.0)).collect();
    d.absorb(&l, &told);
    d.propose(&mut l, None, 4, &PointSet::default());
    assert_eq!(points.iter().map(|p| p.configuration.to_string()).collect::<Vec<_>>(), before);
    let distinct: std::collections::BTreeSet<_> = before.iter().collect();
    assert_eq!(distinct.len(), 4);
    assert_eq!(start.configuration.to_string(), "a=3");
}

#[test]
fn unrolling_can_be_turned_on_and_off() {
    // Published: a kernel whose recorded unroll depth is 0 can never get any other.
    let (mut l, s) = ledger(vec![Knob::ints("unroll", Role::Unroll, [0, 16, 64, 512])], &[]);
    let start = tell(&mut l, &at(&s, "unroll=0"), 10.0);
    let mut d = Descent::new(start, 1);
    for _ in 0..4 {
        step(&mut d, &mut l, 1, |c| [10.0, 9.0, 8.0, 11.0][c.indices().next().unwrap()]);
    }
    assert_eq!(d.centre().configuration.int("unroll"), Some(64));
}
