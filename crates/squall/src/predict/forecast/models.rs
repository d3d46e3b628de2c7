//! The kinds of models that `squall train --model NAME` can train as a predictor for MIOpen's
//! solvers, by name. `docs/predictor.md` compares them; `predict` implements them.

use squall_predict::{Classical, Kind, PaperModel};

/// The models that are trained separately for each device and precision, by name: the paper's, and
/// the models that the paper compares with.
pub const MODELS: [(&str, Kind); 9] = [
    ("encoder-decoder", Kind::Paper(PaperModel::EncoderDecoder)),
    ("attention", Kind::Paper(PaperModel::Attention)),
    ("attention-2", Kind::Paper(PaperModel::Attention2)),
    ("hybrid", Kind::Paper(PaperModel::Hybrid)),
    ("hybrid-2", Kind::Paper(PaperModel::Hybrid2)),
    ("decision-tree", Kind::Classical(Classical::DecisionTree)),
    ("random-forest", Kind::Classical(Classical::RandomForest)),
    ("naive-bayes", Kind::Classical(Classical::NaiveBayes)),
    ("svm", Kind::Classical(Classical::Svm)),
];

/// All kinds of models that can be trained, by name; the first is the default.
pub fn kinds() -> Vec<(&'static str, Kind)> {
    let mut all = vec![("pair", Kind::Pair), ("neighbours", Kind::Neighbours)];
    all.extend(MODELS);
    all
}
