//! Operators of sequences: attention, recurrent networks.

use super::{Row, row};
use crate::graph::infer::sequence;

pub(super) const ROWS: &[Row] = &[
    row("Attention", sequence::attention)
        .limits("all floats are computed in 32 bits, whatever `softmax_precision` says"),
    row("CausalConvWithState", sequence::causal_conv),
    row("GRU", sequence::recurrent),
    row("LSTM", sequence::recurrent),
    row("LinearAttention", sequence::linear_attention),
    row("RNN", sequence::recurrent),
    row("ReverseSequence", sequence::reverse).moves_data(),
    row("RotaryEmbedding", sequence::rotary),
    row("TensorScatter", sequence::tensor_scatter),
];
