//! The rows of ONNX's operators over sequences: attention, recurrent networks, rotary embeddings
//! and caches of keys. A row names the function that infers shapes (`graph/infer/sequence.rs`), the
//! one that counts products (`multiplies`), and limits for the user's documentation; `spreads` says
//! that threads can share the loops of its plain C. `operators/mod.rs` has the table of all
//! families.

use super::{Row, counted, row};
use crate::graph::infer::sequence;

pub(super) const ROWS: &[Row] = &[
    row("Attention", sequence::attention)
        .multiplies(counted::attention)
        .limits("all floats are computed in 32 bits, whatever `softmax_precision` says"),
    row("CausalConvWithState", sequence::causal_conv),
    row("GRU", sequence::recurrent).multiplies(counted::recurrence),
    row("LSTM", sequence::recurrent).multiplies(counted::recurrence),
    row("LinearAttention", sequence::linear_attention),
    row("RNN", sequence::recurrent).multiplies(counted::recurrence),
    row("ReverseSequence", sequence::reverse).moves_data(),
    row("RotaryEmbedding", sequence::rotary).spreads(),
    row("TensorScatter", sequence::tensor_scatter),
];
