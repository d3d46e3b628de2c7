//! Tests of predictions for Squall's own tasks (`task/mod.rs`), on made tasks of which the truth is
//! known: a tile is best near the root of its extent, and one of two orders costs a quarter more.

use super::*;
use crate::predictor::Predictor;
use squall_core::space::{Knob, Role, Term};
use squall_core::{KernelSource, RealizeError, Space, Task, Tunable, Workload};
use std::sync::Arc;

struct Toy(Space, f32);

impl Tunable for Toy {
    fn name(&self) -> &str {
        "toy"
    }
    fn space(&self) -> &Space {
        &self.0
    }
    fn realize(&self, _: &Configuration, _: &str) -> Result<KernelSource, RealizeError> {
        Err(RealizeError("a toy".into()))
    }
    fn features(&self, c: &Configuration) -> Vec<f32> {
        let tile = c.int("tile").unwrap_or(1) as f32;
        vec![tile.log2(), (self.1 / tile).log2(), c.int("unroll").unwrap_or(1) as f32]
    }
}

/// Tiles are the divisors of the extent: those of two tasks may have nothing in common but 1.
fn toy(n: i64) -> Arc<dyn Tunable> {
    let tile = Knob::ints(
        "tile",
        Role::Tile { axis: "i".into(), level: 1 },
        (1..=n).filter(|d| n % d == 0),
    );
    let unroll = Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8]);
    let order = Knob::words("order", Role::Order, &["i_j", "j_i"]);
    let all = Term::product([Term::knob("tile"), Term::knob("unroll")]).at_most(n);
    Arc::new(Toy(Space::new(vec![tile, unroll, order], &[all]).expect("a space"), n as f32))
}

fn time(n: i64, c: &Configuration) -> f64 {
    let off = (c.int("tile").unwrap_or(1) as f64).log2() - (n as f64).log2() / 2.0;
    let order = if c.word("order") == Some("j_i") { 1.25 } else { 1.0 };
    1000.0 * (1.0 + 0.2 * off * off) * order * (1.0 + 0.01 * c.int("unroll").unwrap_or(1) as f64)
}

fn task(n: i64) -> Task {
    let text = format!(
        "workload matmul\ndata A: f32[{n}, 8]\nweight B: f32[8, {n}]\nstage Y: f32[i: {n}, j: \
         {n}] = sum(k: 8) A[i, k] * B[k, j]\noutput Y\n"
    );
    Task::new(format!("mm{n}"), Workload::parse(&text).expect("a workload"))
}

fn asked(n: i64) -> Problem {
    let t = task(n);
    problem(t.id, &t.workload, "cpu").expect("a task made by rule")
}

fn tuned(n: i64) -> TunedTask {
    let t = toy(n);
    let rows =
        t.space().iter().enumerate().filter(|(i, _)| i % 2 == 0).map(|(i, c)| MeasuredCandidate {
            tunable: "toy".into(),
            features: t.features(&c),
            time: (i != 6).then(|| time(n, &c)),
            configuration: c,
        });
    TunedTask { problem: asked(n), name: format!("mm{n}"), rows: rows.collect() }
}

fn options() -> Options {
    Options { members: (3, 0), epochs: (300, 0), ..Options::default() }
}

fn trained(device: &str) -> Predictor {
    let tasks: Vec<TunedTask> = [16, 64, 100, 256, 1024, 4096].map(tuned).into();
    Predictor::train_on_tasks(device, &tasks, &options(), &mut |_| true).expect("a predictor")
}

#[test]
fn proposals_are_legal_where_no_value_was_ever_seen_and_nearly_the_best() {
    let predictor = trained("cpu");
    let model = predictor.tasks().expect("of tasks");
    // 441 = 3 * 3 * 7 * 7 shares no divisor but 1 with what was learned.
    for n in [441, 576] {
        let t = toy(n);
        let found = model.propose(&asked(n), std::slice::from_ref(&t), 5).expect("proposals");
        assert_eq!(found.len(), 5);
        assert!(
            found.iter().all(|p| t.space().rank(&p.candidate.configuration).is_some()),
            "{found:?}"
        );
        assert!(
            found.windows(2).all(|w| w[0].candidate != w[1].candidate) && found[0].speed == 1.0
        );
        let best = t.space().iter().map(|c| time(n, &c)).fold(f64::INFINITY, f64::min);
        let reached = |k: usize| {
            found
                .iter()
                .take(k)
                .map(|p| best / time(n, &p.candidate.configuration))
                .fold(0.0, f64::max)
        };
        assert!(
            reached(1) > 0.8 && reached(5) > 0.93,
            "{n}: {} {} {found:?}",
            reached(1),
            reached(5)
        );
    }
}

#[test]
fn the_nearest_task_speaks_first_and_its_tiles_are_made_to_fit() {
    let predictor = trained("cpu");
    let model = predictor.tasks().expect("of tasks");
    let names: Vec<&str> =
        model.similar_tasks(&asked(200)).iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names[..2], ["mm256", "mm100"]);
    let t = toy(200);
    let near = model.neighbours(&asked(200), std::slice::from_ref(&t), 4);
    assert_eq!(near.len(), 4);
    let wish = model.similar_tasks(&asked(200))[0].best[0].1.clone();
    assert_eq!(near[0].configuration, t.space().nearest(&wish).expect("a configuration"));
    let chance = even(&[t], 6, 3);
    assert!(
        chance.len() == 6 && chance == even(&[toy(200)], 6, 3) && chance != even(&[toy(200)], 6, 4)
    );
}

#[test]
fn a_file_gives_the_same_proposals_and_what_does_not_fit_is_refused() {
    let predictor = trained("cpu");
    let bytes = predictor.to_bytes().expect("a file");
    let again = Predictor::from_bytes(&bytes).expect("the same");
    let t = [toy(441)];
    let of = |p: &Predictor| {
        p.tasks().expect("of tasks").propose(&asked(441), &t, 8).expect("proposals")
    };
    assert_eq!(of(&predictor), of(&again));
    assert_eq!(again.info(), predictor.info());
    assert_eq!(trained("cpu").to_bytes().expect("a file"), bytes, "a seed decides everything");

    let model = again.tasks().expect("of tasks");
    let mut other = asked(441);
    other.device = "gpu".into();
    assert!(matches!(model.propose(&other, &t, 1), Err(PredictError::Device { .. })));
    let mut strange = asked(441);
    strange.solver = "softmax".into();
    assert!(matches!(model.propose(&strange, &t, 1), Err(PredictError::Kind { .. })));
    // Half a file, and one whose header speaks of a network that is not there.
    assert!(Predictor::from_bytes(&bytes[..bytes.len() / 2]).is_err());
    let bytes = crate::tensors::unpacked(&bytes).expect("it is packed").into_owned();
    let text = b"\\\"members\\\":3";
    let at =
        bytes.windows(text.len()).position(|w| w == text).expect("the header counts its networks");
    let mut more = bytes.clone();
    more[at + text.len() - 1] = b'4';
    assert!(Predictor::from_bytes(&more).is_err());
}

#[test]
fn each_task_has_a_network_that_never_saw_it_and_nothing_is_learned_from_nothing() {
    let held = trained("cpu").tasks().expect("of tasks").facts().held.clone();
    assert_eq!(held.iter().map(|h| h.k).collect::<Vec<_>>(), [1, 5, 10]);
    assert!(held.windows(2).all(|w| w[0].share <= w[1].share) && held[2].share > 0.9, "{held:?}");
    let mut empty = tuned(64);
    empty.rows.truncate(1);
    assert!(matches!(
        Predictor::train_on_tasks("cpu", &[empty], &options(), &mut |_| true),
        Err(PredictError::Nothing(_))
    ));
    let stopped = Predictor::train_on_tasks("cpu", &[tuned(64)], &options(), &mut |_| false);
    assert!(matches!(stopped, Err(PredictError::Cancelled)));
}

#[test]
fn a_problem_says_extents_steps_and_inputs() {
    let text = "workload conv1d\ndata X: f32[4, 17]\nweight W: f32[8, 4, 3]\n\
                stage Y: f32[k: 8, q: 8] = sum(c: 4, s: 3) X[c, 2*q + s] * W[k, c, s]\noutput Y\n";
    let t = Task::new("c", Workload::parse(text).expect("a workload"));
    let p = problem(t.id, &t.workload, "cpu").expect("a problem");
    assert_eq!((p.solver.as_str(), p.key.as_str()), ("conv1d", t.id.to_string().as_str()));
    let number = |n: &str| p.number(n);
    assert_eq!(
        [number("k"), number("q"), number("c"), number("s"), number("step_q")],
        [8, 8, 4, 3, 2].map(Some)
    );
    assert_eq!((number("step_s"), number("inputs"), number("input")), (None, Some(2), Some(68)));
    assert_eq!(p.word("loops"), Some("k q c s sum"));
}

/// The file was made at commit 6ed57c1 from the tasks of 16, 64, 100 and 256.
#[test]
fn a_predictor_of_tasks_of_this_version_proposes_as_when_it_was_written() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v4");
    let text = std::fs::read_to_string(folder.join("tasks.json")).expect("it is stored");
    let expected: Vec<(String, f64)> = serde_json::from_str(&text).expect("it is JSON");
    let predictor = Predictor::load(&folder.join("tasks.safetensors")).expect("it is read");
    let model = predictor.tasks().expect("of tasks");
    let found = model.propose(&asked(441), &[toy(441)], 5).expect("proposals");
    assert_eq!(found.len(), expected.len());
    for (p, (candidate, speed)) in found.iter().zip(&expected) {
        assert_eq!(p.candidate.to_string(), *candidate);
        assert!((p.speed - speed).abs() < 1e-4, "{candidate}: {} was {speed}", p.speed);
    }
}
