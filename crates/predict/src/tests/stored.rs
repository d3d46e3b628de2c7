//! Tests with files that earlier builds wrote: predictors of version 4 and a checkpoint, made at
//! commit 6ed57c1 from every ninth example. This build must read them and answer as that one did.

use super::{examples, family, problem};
use crate::{ChainSizes, Checkpoint, Kind, Options, Predictor, RankerSizes, TrainingRequest};
use squall_core::forecast::{Example, Split};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v4")
}

/// The six most probable answers to one question, by the name of the predictor.
type Answers = BTreeMap<String, Vec<(Vec<i64>, f64)>>;

#[test]
fn predictors_of_this_version_answer_as_when_they_were_written() {
    let text = std::fs::read_to_string(folder().join("answers.json")).expect("it is stored");
    let all: Answers = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(all.len(), 4);
    for (name, expected) in all {
        let path = folder().join(format!("{name}.safetensors"));
        let predictor = Predictor::load(&path).expect("it is read");
        let found = predictor.predict(&problem(9, 5, "FP16", "d1"), 6).expect("it answers");
        assert_eq!(found.len(), expected.len(), "{name}");
        for ((values, p), (old_values, old_p)) in found.iter().zip(&expected) {
            assert_eq!(values, old_values, "{name}");
            // Products of matrices add up in another order on other machines.
            assert!((p - old_p).abs() < 1e-5, "{name}: {p} was {old_p}");
        }
        // What is read is written again, and means the same.
        let again = Predictor::from_bytes(&predictor.to_bytes().expect("it is written"));
        assert_eq!(again.expect("it is read").info(), predictor.info(), "{name}");
    }
}

/// The checkpoint is of a finished training, so that resuming from it trains nothing more.
#[test]
fn a_checkpoint_of_this_version_is_resumed_from() {
    let mut checkpoint = Checkpoint::load(&folder().join("pair.checkpoint")).expect("it is read");
    let options = Options {
        ranker: RankerSizes { context: 6, hidden: 6, last: 5, negatives: 24, dropout: 0.1 },
        chain: ChainSizes { context: 6, head: 6, dropout: 0.1 },
        epochs: (4, 4),
        members: (1, 2),
        lstm: 4,
        ..Options::of(Kind::Pair)
    };
    let some: Vec<Example> = examples().into_iter().step_by(9).collect();
    let request = TrainingRequest {
        families: &[family()],
        examples: &some,
        split: Some(Split::Random),
        options: &options,
    };
    let mut epochs = 0;
    let resumed = Predictor::resume(request, &mut checkpoint, &mut |_| epochs += 1, &mut |_| true);
    assert!(resumed.is_ok() && epochs == 0, "{epochs} epochs were trained anew");
}
