//! Tests of single networks of the predictor (ranker, chain, the paper's models): gradients against
//! finite differences, scores of whole spaces against what training lowers, and samples against
//! their definitions.

use super::{PAPER, examples, family};
use crate::chain::{Chain, ChainSizes};
use crate::features::{Featurizer, Selection};
use crate::nn::ParameterLayout;
use crate::paper::Sequence;
use crate::ranker::{Ranker, RankerSizes};
use crate::train::{Batch, Learner, Problems, Schedule, State, train};
use crate::trainer::{encode_all, labelled};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use squall_core::forecast::{Example, Instance};

/// Holds a network's gradient against finite differences, with the same samples and drop-out.
fn check_network<L: Learner>(
    what: &str,
    learner: &L,
    layout: &ParameterLayout,
    featurizer: &Featurizer,
    all: &[Example],
) {
    let chosen: Vec<&Example> = all.iter().step_by(29).collect();
    let encoded = encode_all(featurizer, &chosen, 1, None).expect("the family takes them");
    let pairs: Vec<_> = encoded
        .iter()
        .zip(&chosen)
        .map(|(c, e)| (c, featurizer.family.instance(&e.problem).expect("as before")))
        .collect();
    let pairs: Vec<(_, Instance)> = pairs.into_iter().collect();
    let p = layout.initial(&mut Generator::seed_from_u64(5));
    let loss = |p: &[f32], g: &mut [f32]| {
        learner
            .learn(
                p,
                Batch { featurizer, problems: &pairs },
                &mut Generator::seed_from_u64(6),
                Some(g),
                &mut L::Scratch::default(),
            )
            .expect("it learns")
    };
    let mut g = vec![0.0; p.len()];
    loss(&p, &mut g);
    crate::nn::gradients::check(what, &p, &g, &mut |x| loss(x, &mut vec![0.0; x.len()]));
}

#[test]
fn gradients_of_ranker_and_chain() {
    let all = examples();
    let featurizer = Featurizer::learn(family(), &all.iter().collect::<Vec<_>>(), &[], None)
        .expect("our examples can be learned");
    let ranker = Ranker::new(
        &featurizer,
        RankerSizes { context: 7, hidden: 6, last: 5, negatives: 9, dropout: 0.2 },
    );
    check_network("ranker", &ranker, ranker.layout(), &featurizer, &all);
    let chain = Chain::new(&featurizer, ChainSizes { context: 7, head: 6, dropout: 0.2 });
    check_network("chain", &chain, chain.layout(), &featurizer, &all);
}

#[test]
fn gradients_of_the_papers_models() {
    let all = examples();
    let featurizer = Featurizer::learn(family(), &all.iter().collect::<Vec<_>>(), &[], None)
        .expect("our examples can be learned");
    for kind in PAPER {
        let model = Sequence::new(&featurizer, kind, 5);
        check_network(&format!("{kind:?}"), &model, model.layout(), &featurizer, &all);
    }
}

#[test]
fn scores_of_whole_spaces_are_what_training_lowers() {
    // A candidate's score is minus the loss that it would have as the truth, network by network.
    let all = examples();
    let featurizer = Featurizer::learn(family(), &all.iter().collect::<Vec<_>>(), &[], None)
        .expect("our examples can be learned");
    let ranker = Ranker::new(
        &featurizer,
        RankerSizes { context: 7, hidden: 20, last: 5, negatives: 1000, dropout: 0.2 },
    );
    let chain = Chain::new(&featurizer, ChainSizes { context: 7, head: 20, dropout: 0.2 });
    let (p, q) = (
        ranker.layout().initial(&mut Generator::seed_from_u64(5)),
        chain.layout().initial(&mut Generator::seed_from_u64(6)),
    );
    for e in all.iter().step_by(131) {
        let mut made = encode_all(&featurizer, &[e], 1, None).expect("the family takes it");
        let instance = || featurizer.family.instance(&e.problem).expect("as before");
        let by_ranker = ranker.score(
            std::slice::from_ref(&p),
            &featurizer,
            &made[0],
            &instance(),
            Selection::all(&made[0].candidates),
            &mut Default::default(),
        );
        let by_chain =
            chain.score(std::slice::from_ref(&q), &featurizer, &made[0], &mut Default::default());
        for i in 0..made[0].candidates.len() {
            made[0].truth = Some(i as u32);
            made[0].allowed = crate::features::allowed(&made[0].candidates, i);
            let rng = || Generator::seed_from_u64(1);
            let loss = ranker
                .learn(
                    &p,
                    Batch { featurizer: &featurizer, problems: &[(&made[0], instance())] },
                    &mut rng(),
                    None,
                    &mut Default::default(),
                )
                .unwrap();
            assert!(
                (loss + f64::from(by_ranker[i])).abs() < 1e-4,
                "ranker, {i}: {loss}, {}",
                by_ranker[i]
            );
            let loss = chain
                .learn(
                    &q,
                    Batch { featurizer: &featurizer, problems: &[(&made[0], instance())] },
                    &mut rng(),
                    None,
                    &mut Default::default(),
                )
                .unwrap();
            assert!(
                (loss + f64::from(by_chain[i])).abs() < 1e-4,
                "chain, {i}: {loss}, {}",
                by_chain[i]
            );
        }
    }
}

#[test]
fn what_is_kept_is_the_running_mean_of_parameters() {
    let all = examples();
    let chosen: Vec<&Example> = all.iter().step_by(7).collect();
    let featurizer =
        Featurizer::learn(family(), &chosen, &[], None).expect("our examples can be learned");
    let encoded = encode_all(&featurizer, &chosen, 1, Some(0)).expect("the family takes them");
    let pairs = labelled(&encoded, &chosen);
    let chain = Chain::new(&featurizer, ChainSizes { context: 7, head: 6, dropout: 0.0 });
    let schedule = |memory| Schedule {
        epochs: 2,
        until: 2,
        batch: 8,
        rate: 2e-3,
        decay: 0.0,
        memory,
        patience: 5,
        seed: 1,
        threads: 1,
    };
    let run = |memory: f32| {
        let schedule = schedule(memory);
        let mut state = State::new(chain.layout(), &schedule);
        let problems = Problems { learned: &pairs, held: &pairs };
        train(&chain, &featurizer, problems, &schedule, &mut state, &mut |_, _| true)
            .expect("it learns");
        state
    };
    let (plain, mean) = (run(0.0), run(0.95));
    // The mean looks on: the path that it is the mean of stays the same.
    assert_eq!((&plain.average, &plain.best), (&plain.parameters, &plain.parameters));
    assert_eq!(mean.parameters, plain.parameters);
    let apart =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt();
    let start = State::new(chain.layout(), &schedule(0.0));
    let (moved, behind) =
        (apart(&plain.parameters, &start.parameters), apart(&mean.average, &mean.parameters));
    assert!(
        mean.best == mean.average && behind > 0.01 * moved && behind < 0.5 * moved,
        "{behind} of {moved}"
    );
}

#[test]
fn a_sample_estimates_the_whole_space() {
    // With all candidates drawn the loss is that of the whole space; with few it is near on
    // average.
    let all = examples();
    let featurizer = Featurizer::learn(family(), &all.iter().collect::<Vec<_>>(), &[], None)
        .expect("our examples can be learned");
    let few = Ranker::new(
        &featurizer,
        RankerSizes { context: 7, hidden: 6, last: 5, negatives: 40, dropout: 0.0 },
    );
    let chosen: Vec<&Example> = all.iter().filter(|e| e.values[0] == 32).take(6).collect();
    let mut encoded = encode_all(&featurizer, &chosen, 1, None).expect("the family takes them");
    encoded.iter_mut().for_each(|c| c.legal_share = featurizer.legal_share(c));
    let pairs: Vec<_> = encoded
        .iter()
        .zip(&chosen)
        .map(|(c, e)| (c, featurizer.family.instance(&e.problem).expect("as before")))
        .collect();
    let p = few.layout().initial(&mut Generator::seed_from_u64(5));
    let whole: f64 = pairs
        .iter()
        .map(|(c, i)| {
            let scores = few.score(
                std::slice::from_ref(&p),
                &featurizer,
                c,
                i,
                Selection::all(&c.candidates),
                &mut Default::default(),
            );
            -f64::from(scores[c.truth.expect("it is inside") as usize])
        })
        .sum();
    let rounds = 60;
    let sampled: f64 = (0..rounds)
        .map(|s| {
            few.learn(
                &p,
                Batch { featurizer: &featurizer, problems: &pairs },
                &mut Generator::seed_from_u64(s),
                None,
                &mut Default::default(),
            )
            .expect("it learns")
        })
        .sum::<f64>()
        / rounds as f64;
    assert!((whole - sampled).abs() < 0.03 * whole, "{whole} against {sampled}");
}

#[test]
fn what_another_tuning_of_a_problem_answered_does_not_vote_while_it_is_learned() {
    let mut all = examples();
    let candidates = family().instance(&all[7].problem).expect("it is taken").candidates();
    let other = (0..candidates.len())
        .map(|i| family().values(candidates.row(i)))
        .find(|v| *v != all[7].values)
        .expect("there are several candidates");
    let number = all.len() as u32;
    all.push(Example { problem: all[7].problem.clone(), values: other });
    let chosen: Vec<&Example> = all.iter().collect();
    let featurizer = Featurizer::learn(family(), &chosen, &[], None).expect("it learns");
    let encoded = encode_all(&featurizer, &chosen, 1, Some(0)).expect("the family takes them");
    let mut inputs = vec![0.0; featurizer.inputs()];
    let mut rng = Generator::seed_from_u64(1);
    for (one, twin) in [(7, number), (number, 7)] {
        let mut voters = |training: bool| {
            let e = &encoded[one as usize];
            let votes = match training {
                true => featurizer.training_inputs(e, false, &mut rng, &mut inputs),
                false => featurizer.prediction_inputs(e, &mut inputs),
            };
            votes.iter().any(|(all, _)| all.iter().any(|n| n.index == twin))
        };
        assert!(voters(false) && !voters(true), "{one}");
    }
}
