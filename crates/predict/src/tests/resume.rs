//! Tests of training that is interrupted and resumes from its checkpoint (`checkpoint.rs`): the
//! predictor must be the same as without the interruption, for our networks and for the paper's.

use super::{examples, family, problem, small, trained};
use crate::{
    Checkpoint, FileError, Kind, Options, PaperModel, PredictError, Predictor, TrainingRequest,
};
use squall_core::forecast::Split;

#[test]
fn training_resumes_where_it_stopped() {
    let all = examples();
    // One thread trains one network after the other: what is left does not depend on turns.
    let options = Options { epochs: (2, 3), members: (1, 4), threads: 1, ..small() };
    let whole = trained(&options);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint");
    let stopped = Predictor::resume(
        TrainingRequest {
            families: &[family()],
            examples: &all,
            split: Some(Split::Random),
            options: &options,
        },
        &mut Checkpoint::default(),
        &mut |c| c.save(&path).expect("it can be saved"),
        &mut |p| {
            // In the middle of the fourth chain, which learns validation too.
            !(p.network == "chain" && p.member.0 == 3 && p.epochs.0 == 2)
        },
    );
    assert!(matches!(stopped, Err(PredictError::Cancelled)));
    let mut checkpoint = Checkpoint::load(&path).expect("it can be loaded");
    let mut epochs = 0;
    let rest = Predictor::resume(
        TrainingRequest {
            families: &[family()],
            examples: &all,
            split: Some(Split::Random),
            options: &options,
        },
        &mut checkpoint,
        &mut |_| epochs += 1,
        &mut |_| true,
    );
    // Of the last of five networks two of three epochs were done.
    assert!(epochs <= 1, "{epochs} epochs were learned again");
    let question = problem(9, 5, "FP16", "d1");
    assert_eq!(
        rest.expect("it goes on").predict(&question, 50).unwrap(),
        whole.predict(&question, 50).unwrap()
    );
    let other = Options { seed: 9, ..options };
    let refused = Predictor::resume(
        TrainingRequest {
            families: &[family()],
            examples: &all,
            split: Some(Split::Random),
            options: &other,
        },
        &mut checkpoint,
        &mut |_| (),
        &mut |_| true,
    );
    assert!(matches!(refused, Err(PredictError::OtherTraining)));
    std::fs::write(&path, b"something else").unwrap();
    assert!(matches!(Checkpoint::load(&path), Err(FileError::NotACheckpoint(_))));
}

/// What was ended before its first epoch says nothing of how long the others should learn.
#[test]
fn training_that_ends_at_once_can_be_begun_again() {
    let options = Options { epochs: (2, 3), members: (4, 4), ..small() };
    let mut checkpoint = Checkpoint::default();
    let mut train = |go_on: bool| {
        Predictor::resume(
            TrainingRequest {
                families: &[family()],
                examples: &examples(),
                split: Some(Split::Random),
                options: &options,
            },
            &mut checkpoint,
            &mut |_| (),
            &mut |_| go_on,
        )
    };
    assert!(matches!(train(false), Err(PredictError::Cancelled)));
    let (rest, whole) = (train(true).expect("it begins again"), trained(&options));
    let question = problem(9, 5, "FP16", "d1");
    assert_eq!(rest.predict(&question, 50).unwrap(), whole.predict(&question, 50).unwrap());
}

#[test]
fn training_of_a_paper_s_model_resumes_too() {
    let all = examples();
    let options = Options {
        epochs: (1, 3),
        lstm: 12,
        ..Options::of(Kind::Paper(PaperModel::EncoderDecoder))
    };
    let train = |checkpoint: &mut Checkpoint, keep: &mut dyn FnMut(&Checkpoint), until: usize| {
        let mut epochs = 0;
        Predictor::resume(
            TrainingRequest {
                families: &[family()],
                examples: &all,
                split: Some(Split::Random),
                options: &options,
            },
            checkpoint,
            keep,
            &mut |p| {
                epochs += usize::from(p.within == 0.0);
                epochs < until
            },
        )
    };
    let whole = train(&mut Checkpoint::default(), &mut |_| (), usize::MAX).expect("it learns");
    let mut kept = None;
    // The second model's second epoch.
    assert!(matches!(
        train(&mut Checkpoint::default(), &mut |c| kept = Some(c.clone()), 5),
        Err(PredictError::Cancelled)
    ));
    let mut epochs = 0;
    let rest = train(&mut kept.expect("epochs were kept"), &mut |_| epochs += 1, usize::MAX)
        .expect("it goes on");
    assert_eq!(epochs, 1);
    for precision in ["FP16", "FP32"] {
        let question = problem(9, 5, precision, "d1");
        assert_eq!(rest.predict(&question, 50).unwrap(), whole.predict(&question, 50).unwrap());
    }
}
