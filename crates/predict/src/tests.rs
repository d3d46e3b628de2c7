//! Tests of the whole predictor on a small made family, whose best configurations follow a rule:
//! tile `t` should cover `a`, `u` follows `b`, and `v` may not exceed `t`. All kinds of models must
//! learn the rule, answers must be legal, and damaged files are refused.

mod networks;
mod resume;
mod stored;

use crate::ranker::RankerSizes;
use crate::train::Epoch;
use crate::{
    ChainSizes, FileError, Kind, Method, Model, Options, PaperModel, PredictError, Predictor,
    TrainingData,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use squall_core::forecast::{Example, Family, FamilyKnob, FamilySpec, Part, Problem, Split};
use std::sync::Arc;

const PAPER: [PaperModel; 5] = [
    PaperModel::EncoderDecoder,
    PaperModel::Attention,
    PaperModel::Attention2,
    PaperModel::Hybrid,
    PaperModel::Hybrid2,
];

fn knob(name: &str, values: &[i64]) -> FamilyKnob {
    FamilyKnob { name: name.into(), values: values.into(), main: values.into(), spare: Vec::new() }
}

fn family() -> Arc<Family> {
    let spec = FamilySpec {
        solver: "Toy".into(),
        words: vec![("precision".into(), vec!["FP32".into(), "FP16".into(), "BF16".into()])],
        numbers: vec![("a".into(), None), ("b".into(), None)],
        knobs: vec![
            knob("t", &[1, 2, 4, 8, 16, 32]),
            knob("u", &[0, 1, 2, 3, 4, 5]),
            knob("v", &[1, 2, 4, 8, 16, 32]),
        ],
        definitions: vec![("tiles".into(), "-(-a // t)".into())],
        legal: vec!["v <= t".into(), "t <= 2 * a".into()],
        tuned: Vec::new(),
        features: vec![
            ("tiles".into(), "tiles".into()),
            ("waste".into(), "1000 * (tiles * t - a) // (tiles * t)".into()),
        ],
        kernel: Vec::new(),
        listed: Vec::new(),
    };
    Arc::new(Family::new(spec).expect("our family is well formed"))
}

fn problem(a: i64, b: i64, precision: &str, device: &str) -> Problem {
    Problem {
        solver: "Toy".into(),
        device: device.into(),
        words: vec![("precision".into(), precision.into())],
        numbers: vec![("a".into(), a), ("b".into(), b)],
        key: format!("{a}-{b}-{precision}"),
        layer: format!("{a}-{b}"),
    }
}

/// Every problem with its best configuration.
fn examples() -> Vec<Example> {
    let mut out = Vec::new();
    for a in 1..40i64 {
        for b in 1..12i64 {
            for precision in ["FP32", "FP16"] {
                let t = 1i64 << a.ilog2().min(5);
                let v = if precision == "FP32" { t } else { (t / 2).max(1) };
                out.push(Example {
                    problem: problem(a, b, precision, "d1"),
                    values: vec![t, (b / 2).min(5), v],
                });
            }
        }
    }
    out
}

fn small() -> Options {
    Options {
        threads: 2,
        ranker: RankerSizes { context: 32, hidden: 32, last: 16, negatives: 24, dropout: 0.1 },
        chain: ChainSizes { context: 32, head: 32, dropout: 0.1 },
        epochs: (10, 14),
        members: (1, 2),
        ..Options::default()
    }
}

fn trained(options: &Options) -> Predictor {
    Predictor::train(&[family()], &examples(), Some(Split::Random), options, &mut |_| true)
        .expect("our examples can be learned")
}

#[test]
fn a_rule_is_learned_and_every_answer_is_legal() {
    let p = trained(&small());
    for score in &p.info().scores {
        assert!(score.precision_at[0].1 > 0.6 && score.precision_at[1].1 > 0.95, "{score:?}");
    }
    // Known sizes, unknown ones, unknown devices, a precision that training never showed.
    for (a, b, precision, device) in [
        (7, 3, "FP32", "d1"),
        (1000, 5, "FP16", "d1"),
        (3, 99, "FP32", "other"),
        (20, 4, "BF16", "d1"),
    ] {
        let question = problem(a, b, precision, device);
        let answers = p.predict(&question, 100).expect("the family takes it");
        let space = family().instance(&question).expect("the family takes it").candidates().len();
        assert_eq!(answers.len(), space.min(100));
        assert!(answers.iter().all(|(v, _)| family().is_legal(&question, v)), "{answers:?}");
        assert!(answers.windows(2).all(|w| w[0].1 >= w[1].1));
        let total: f64 = p.predict(&question, space).expect("as before").iter().map(|a| a.1).sum();
        assert!((total - 1.0).abs() < 1e-4, "{total}");
        let mut distinct: Vec<_> = answers.iter().map(|a| &a.0).collect();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), answers.len());
    }
    let unknown = p.predict(&problem(1, 1, "FP32", "d1").of("Other"), 1);
    assert!(matches!(&unknown, Err(PredictError::Solver { .. })), "{unknown:?}");
    assert!(p.predict(&problem(1, 1, "FP64", "d1"), 1).is_err());
    let solver = p.model("Toy").expect("it was trained");
    assert!(
        examples().iter().all(|e| solver.has_seen(&e.problem))
            && !solver.has_seen(&problem(1000, 5, "FP16", "d1"))
            && !solver.has_seen(&problem(7, 5, "FP16", "d2"))
    );
}

#[test]
fn seed_decides_threads_do_not_and_the_file_keeps_everything() {
    let options = Options { epochs: (2, 2), ..small() };
    let p = trained(&options);
    let bytes = p.to_bytes().expect("it can be written");
    let one = trained(&Options { threads: 1, ..options.clone() });
    let question = problem(9, 5, "FP16", "d1");
    assert_eq!(p.predict(&question, 50).unwrap(), one.predict(&question, 50).unwrap());
    let other = trained(&Options { seed: 2, ..options });
    assert_ne!(p.predict(&question, 50).unwrap(), other.predict(&question, 50).unwrap());
    let again = Predictor::from_bytes(&bytes).expect("it can be read");
    assert_eq!(again.info(), p.info());
    for e in examples().iter().step_by(37) {
        assert_eq!(again.predict(&e.problem, 20).unwrap(), p.predict(&e.problem, 20).unwrap());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p.safetensors");
    p.save(&path).expect("it can be saved");
    assert_eq!(Predictor::load(&path).expect("it can be loaded").info(), p.info());
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing but the file is left"
    );
    assert!(matches!(p.save(&folder.path().join("no/such")), Err(FileError::Io { .. })));
    assert!(Predictor::from_bytes(&bytes[..bytes.len() / 2]).is_err());
    refused(&crate::tensors::unpacked(&bytes).expect("it is packed"));
}

/// Damaged files say why they are refused.
fn refused(bytes: &[u8]) {
    let replace = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).expect("it is there");
        let mut out = bytes.to_vec();
        out[at..at + to.len()].copy_from_slice(to.as_bytes());
        out
    };
    let why = |b: &[u8]| Predictor::from_bytes(b).err().map(|e| e.to_string()).unwrap_or_default();
    let version = |n: u32| format!("\\\"version\\\":{n}");
    assert!(why(&replace(&version(crate::VERSION), &version(7))).contains("version 7"));
    assert!(why(&replace("\\\"info\\\"", "\\\"inf0\\\"")).contains("header"));
    let renamed = why(&replace("Toy/memory.rows", "Toy/memory.rowz"));
    assert!(renamed.contains("missing"), "{renamed}");
    assert!(why(b"PK\x03\x04 something else entirely").contains("no predictor"));
    for cut in [0, 4, 100, bytes.len() / 2, bytes.len() - 1] {
        assert!(!why(&bytes[..cut]).is_empty(), "cut at {cut}");
    }
    let mut noise = bytes.to_vec();
    let mut rng = Generator::seed_from_u64(3);
    for _ in 0..40 {
        // Any byte may be wrong: refused or not, nothing panics.
        let (at, was) = {
            let i = rng.random_range(0..noise.len());
            (i, noise[i])
        };
        noise[at] = rng.random();
        if let Ok(p) = Predictor::from_bytes(&noise) {
            let _ = p.predict(&problem(9, 5, "FP16", "d1"), 3);
        }
        noise[at] = was;
    }
}

#[test]
fn baselines_answer_too_and_cancelling_ends_it() {
    let p = trained(&Options { epochs: (1, 1), ..small() });
    let all = examples();
    let some: Vec<&Example> = all.iter().step_by(11).collect();
    for method in
        [Method::Frequency, Method::Neighbours, Method::Ranker, Method::Chain, Method::Pair]
    {
        let outcomes = p.evaluate("Toy", &some, method, 2).expect("they are known");
        assert!(
            outcomes.iter().all(|o| o.rank.is_some()
                && o.log_likelihood <= 0.0
                && o.log_likelihood.is_finite()),
            "{method:?}"
        );
    }
    let neighbours = p.evaluate("Toy", &some, Method::Neighbours, 2).unwrap();
    assert!(crate::metrics::precision_at(10, &neighbours).value() > 0.8);
    let mut asked = 0;
    let stopped = Predictor::train(&[family()], &all, None, &small(), &mut |_| {
        asked += 1;
        asked < 3
    });
    assert!(matches!(stopped, Err(PredictError::Cancelled)));
    let none = Predictor::train(&[family()], &[], None, &small(), &mut |_| true);
    assert!(matches!(none, Err(PredictError::Nothing(_))));
}

/// P@10 on the test rows after training on the others.
fn share_at_ten(options: &Options) -> f64 {
    let (all, part) = (examples(), |p: &Problem| Split::Random.part(p));
    let some: Vec<&Example> = all.iter().collect();
    let test: Vec<&Example> = all.iter().filter(|e| part(&e.problem) == Part::Test).collect();
    let data = TrainingData { family: family(), examples: &some, part: &part, options };
    let model = Model::learn(&data, &mut |_| true).expect("it learns").expect("it was not ended");
    crate::metrics::precision_at(
        10,
        &model.evaluate(&test, Method::Pair, 2).expect("they are known"),
    )
    .value()
}

#[test]
fn the_papers_models_learn_the_rule() {
    for kind in PAPER {
        let share =
            share_at_ten(&Options { lstm: 24, epochs: (1, 24), ..Options::of(Kind::Paper(kind)) });
        assert!(share > 0.6, "{kind:?}: {share}");
    }
}

#[test]
fn classical_baselines_learn_the_rule() {
    use crate::Classical;
    // A line cannot follow the rule as trees do.
    for (kind, least) in [
        (Classical::DecisionTree, 0.95),
        (Classical::RandomForest, 0.95),
        (Classical::NaiveBayes, 0.7),
        (Classical::Svm, 0.5),
    ] {
        let share = share_at_ten(&Options::of(Kind::Classical(kind)));
        assert!(share > least, "{kind:?}: {share}");
    }
}

#[test]
fn every_kind_of_model_trains_answers_and_goes_through_its_file() {
    use crate::Classical;
    let all = examples();
    let kinds = [
        Kind::Neighbours,
        Kind::Paper(PaperModel::Attention),
        Kind::Paper(PaperModel::Hybrid2),
        Kind::Classical(Classical::RandomForest),
        Kind::Classical(Classical::NaiveBayes),
        Kind::Classical(Classical::Svm),
    ];
    for kind in kinds {
        let options = Options { epochs: (1, 2), lstm: 12, ..Options::of(kind) };
        let p = Predictor::train(&[family()], &all, Some(Split::Random), &options, &mut |_| true)
            .expect("it learns");
        assert_eq!(p.info().scores.len(), 2);
        let bytes = p.to_bytes().expect("it can be written");
        let again = Predictor::from_bytes(&bytes).expect("it can be read");
        assert_eq!(again.info(), p.info());
        for (a, b, precision, device) in
            [(9, 5, "FP16", "d1"), (1000, 3, "FP32", "other"), (7, 7, "BF16", "d1")]
        {
            let question = problem(a, b, precision, device);
            let answers = p.predict(&question, 20).expect("the family takes it");
            assert!(
                !answers.is_empty() && answers.iter().all(|(v, _)| family().is_legal(&question, v)),
                "{kind:?}"
            );
            assert_eq!(again.predict(&question, 20).expect("as before"), answers, "{kind:?}");
        }
        for cut in (8..bytes.len()).step_by(bytes.len() / 9) {
            assert!(Predictor::from_bytes(&bytes[..cut]).is_err());
        }
        let mut noise = bytes.clone();
        let mut rng = Generator::seed_from_u64(4);
        for _ in 0..30 {
            let i = rng.random_range(0..noise.len());
            let was = std::mem::replace(&mut noise[i], rng.random());
            if let Ok(p) = Predictor::from_bytes(&noise) {
                let _ = p.predict(&problem(9, 5, "FP16", "d1"), 3);
            }
            noise[i] = was;
        }
    }
}

#[test]
fn the_first_k_are_the_best_of_all() {
    let p = trained(&Options { epochs: (1, 1), ..small() });
    for (a, b) in [(9, 5), (39, 1), (1, 1), (500, 7)] {
        let question = problem(a, b, "FP16", "d1");
        let all = p.predict(&question, usize::MAX).unwrap();
        assert!(all.windows(2).all(|w| w[0].1 >= w[1].1));
        for k in [0, 1, 2, 10, 35, all.len()] {
            assert_eq!(p.predict(&question, k).unwrap(), all[..k.min(all.len())]);
        }
    }
}

#[test]
fn a_shortlist_is_divided_anew_and_the_rest_stays() {
    let p = trained(&Options { epochs: (2, 2), members: (2, 3), ..small() });
    let Ok(Model::Pair(s)) = p.model("Toy") else { panic!("the default was trained") };
    for (a, b, n) in [(39, 5, 9), (500, 3, 40), (17, 2, 1)] {
        let question = problem(a, b, "FP16", "d1");
        let encoded = s
            .featurizer
            .encode(&question, None, None, &mut Vec::new())
            .expect("the family takes it");
        let scores = |n: usize| {
            s.network_scores(&encoded, &question, n, |n| n, &mut Default::default())
                .expect("as before")
        };
        let (all, some) = (scores(usize::MAX), scores(n));
        let rows = some.shortlist.clone().expect("the space is larger");
        assert!(all.shortlist.is_none() && rows.len() == n && rows.is_sorted());
        let (whole, short) = (all.mixed(s.mix()), some.mixed(s.mix()));
        let total: f64 = short.iter().map(|l| f64::from(*l).exp()).sum();
        assert!((total - 1.0).abs() < 1e-4, "{total}");
        let worst = rows.iter().map(|&r| some.first[r as usize]).fold(f32::INFINITY, f32::min);
        for i in 0..whole.len() {
            if rows.binary_search(&(i as u32)).is_err() {
                assert!(some.first[i] <= worst && short[i] == some.first[i]);
            } else {
                // Among themselves they stand as all networks together say.
                let (odds, here) =
                    (whole[i] - whole[rows[0] as usize], short[i] - short[rows[0] as usize]);
                assert!((odds - here).abs() < 1e-3, "{odds} {here}");
            }
        }
    }
}

#[test]
fn answers_for_validation_are_remembered_and_none_sees_its_own_while_training() {
    let p = trained(&Options { epochs: (1, 1), ..small() });
    let Ok(Model::Pair(s)) = p.model("Toy") else { panic!("the default was trained") };
    let all = examples();
    let of = |part: Part| {
        all.iter().filter(|e| Split::Random.part(&e.problem) == part).collect::<Vec<_>>()
    };
    let (train, held, test) = (of(Part::Train), of(Part::Validation), of(Part::Test));
    let memory = &s.facts().memory;
    assert!(!held.is_empty() && memory.len() == train.len() + held.len());
    let nearest = |e: &Example, own| {
        s.featurizer.encode(&e.problem, None, own, &mut Vec::new()).expect("as before").neighbours
            [0][0]
    };
    for (i, e) in held.iter().enumerate() {
        let own = (train.len() + i) as u32;
        assert_eq!((nearest(e, None).index, nearest(e, None).distance), (own, 0.0));
        assert_ne!(nearest(e, Some(own)).index, own);
    }
    assert!(test.iter().all(|e| nearest(e, None).distance > 0.0), "no test problem is remembered");
}

/// Two of many networks hold validation out; the others learn it, for as many epochs as those were
/// best after.
#[test]
fn most_networks_learn_validation_too() {
    let all = examples();
    let held = all.iter().filter(|e| Split::Random.part(&e.problem) == Part::Validation).count();
    assert!(held > 0);
    for members in [1, 3, 4, 5] {
        let p = trained(&Options { epochs: (3, 9), members: (members, members), ..small() });
        let Ok(Model::Pair(s)) = p.model("Toy") else { panic!("the default was trained") };
        for curves in [&s.curves.ranker, &s.curves.chain] {
            let (holding, rest) = curves.split_at(if members < 4 { members } else { 2 });
            assert!(
                holding.iter().flatten().all(|e| e.validation > 0.0)
                    && rest.iter().flatten().all(|e| e.validation == 0.0)
            );
            let best = |c: &Vec<Epoch>| {
                (0..c.len()).min_by(|&a, &b| c[a].validation.total_cmp(&c[b].validation)).unwrap()
                    + 1
            };
            let until = (holding.iter().map(best).sum::<usize>() as f64 / holding.len() as f64)
                .round() as usize;
            assert!(
                rest.iter().all(|c| c.len() == until),
                "{until} {:?}",
                rest.iter().map(Vec::len).collect::<Vec<_>>()
            );
        }
    }
}
