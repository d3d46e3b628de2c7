//! The rows of ONNX's operators on signals (Fourier transforms, windows such as `HannWindow`), of
//! `Det` and of `Einsum`. A row names the function that infers shapes (`graph/infer/signal.rs`) and
//! limits for the user's documentation; `spreads` says that threads can share the loops of its
//! plain C, `multiplies` how many products there are. `operators/mod.rs` has the table of all
//! families.

use super::{Row, counted, row};
use crate::graph::infer::signal;

pub(super) const ROWS: &[Row] = &[
    row("BlackmanWindow", signal::window),
    row("DFT", signal::dft),
    row("Det", signal::det),
    row("Einsum", signal::einsum).multiplies(counted::einsum).spreads(),
    row("HammingWindow", signal::window),
    row("HannWindow", signal::window),
    row("MelWeightMatrix", signal::mel).limits("its inputs must be known when the model is read"),
    row("STFT", signal::stft),
];
