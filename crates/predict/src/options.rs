//! The options of a predictor's training: which kind of model, which ways to answer, how many
//! networks and epochs. The text form of [`Options`] stands in predictor files and checkpoints.
//!
//! The paper that names here refer to is "Optimal Kernel Tuning Parameter Prediction using Deep
//! Sequence Models" (Mahmood, Khan, Afzal).

use crate::chain::ChainSizes;
use crate::ranker::RankerSizes;
use serde::{Deserialize, Serialize};

/// The kind of model that is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The ensemble of candidate rankers and chains, one for all devices and precisions together:
    /// the default.
    #[default]
    Pair,
    /// The votes of the nearest neighbours. Nothing is trained.
    Neighbours,
    /// One of the paper's sequence models, one for each device and precision.
    Paper(PaperModel),
    /// One classifier for each knob, and all of them for each device and precision.
    Classical(Classical),
}

/// One of the five models of "Optimal Kernel Tuning Parameter Prediction using Deep Sequence
/// Models" (Mahmood, Khan, Afzal).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaperModel {
    /// An LSTM encoder and an LSTM decoder into which each chosen value is fed back.
    EncoderDecoder,
    /// An LSTM encoder and decoder with attention over the encoder's outputs.
    Attention,
    /// Attention without feeding values back.
    Attention2,
    /// A convolution and an LSTM.
    Hybrid,
    /// Two convolutions and two bidirectional LSTMs.
    Hybrid2,
}

/// One of the classifiers of the paper's Table II.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Classical {
    /// One decision tree for each knob.
    DecisionTree,
    /// Fifty trees for each knob, grown on resampled problems and random subsets of the inputs.
    RandomForest,
    /// Gaussian naive Bayes.
    NaiveBayes,
    /// Linear support vector machines.
    Svm,
}

/// The part of a model that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// How often training gave each answer.
    Frequency,
    /// The answers of the nearest problems, whole and value by value.
    Neighbours,
    /// The candidate rankers alone.
    Ranker,
    /// The chains alone.
    Chain,
    /// Rankers and chains together: the default.
    Pair,
}

/// The settings of training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// What is trained. Of the other fields, the default model reads the sizes and the members; the
    /// paper's models read the second number of epochs and the width of their LSTMs.
    pub model: Kind,
    /// The seed of every random choice.
    pub seed: u64,
    /// Threads; they do not change the result.
    pub threads: usize,
    /// Sizes of the ranker.
    pub ranker: RankerSizes,
    /// Sizes of the chain.
    pub chain: ChainSizes,
    /// The most passes over the data, for the ranker and the chain. 0 stands for as many as take
    /// about [`STEPS`](crate::STEPS) steps, from 14 to 28.
    pub epochs: (usize, usize),
    /// Networks of each kind, which differ by their seeds; their log-probabilities are averaged. 0
    /// stands for the model's own number: six, and eight for Squall's own tasks.
    pub members: (usize, usize),
    /// Width of the paper's LSTMs.
    pub lstm: usize,
}

/// Width of the paper's LSTMs where no other is asked for.
const LSTM: usize = 128;
/// The most passes over the data for the paper's models where no other number is asked for.
const PAPER_EPOCHS: usize = 30;

impl Default for Options {
    fn default() -> Options {
        Options {
            model: Kind::Pair,
            seed: 1,
            threads: 2,
            ranker: RankerSizes::default(),
            chain: ChainSizes::default(),
            epochs: (0, 0),
            members: (0, 0),
            lstm: LSTM,
        }
    }
}

impl Options {
    /// The defaults for a model.
    pub fn of(model: Kind) -> Options {
        let mut options = Options { model, ..Options::default() };
        if matches!(model, Kind::Paper(_)) {
            options.epochs.1 = PAPER_EPOCHS;
        }
        options
    }
}
