//! The rows of ONNX's matrix products, normalisations of rows, and products of quantised tensors. A
//! row names the function that infers shapes (`graph/infer/matmul.rs`, `graph/infer/quantized.rs`),
//! the evaluator where there is one, and limits for the user's documentation; `spreads` says that
//! threads can share the loops of its plain C, `multiplies` how many products there are.
//! `operators/mod.rs` has the table of all families.

use super::{Row, counted, row};
use crate::graph::fold;
use crate::graph::infer::{matmul, quantized};

pub(super) const ROWS: &[Row] = &[
    row("Gemm", matmul::gemm).multiplies(counted::gemm),
    row("MatMul", matmul::matmul).multiplies(|ctx, y| counted::product(ctx, 0, y)),
    row("Softmax", matmul::along_axis).never_negative().spreads(),
    row("LogSoftmax", matmul::along_axis).spreads(),
    row("Hardmax", matmul::along_axis).spreads(),
    row("LpNormalization", matmul::along_axis).spreads(),
    row("MeanVarianceNormalization", matmul::whole).spreads(),
    row("LayerNormalization", matmul::layer_norm).spreads(),
    row("RMSNormalization", matmul::layer_norm).spreads(),
    row("ConvInteger", quantized::conv_integer)
        .multiplies(|ctx, y| counted::convolution(ctx, 1, y))
        .spreads(),
    row("DequantizeLinear", quantized::dequantize)
        .folds(fold::dequantize)
        .spreads()
        .limits("from integers; known scales must be above 0, in blocks finite"),
    row("DynamicQuantizeLinear", quantized::dynamic),
    row("MatMulInteger", quantized::matmul_integer)
        .multiplies(|ctx, y| counted::product(ctx, 0, y)),
    row("QLinearConv", quantized::qlinear_conv)
        .multiplies(|ctx, y| counted::convolution(ctx, 3, y))
        .limits("known scales must be above 0"),
    row("QLinearMatMul", quantized::qlinear_matmul)
        .multiplies(|ctx, y| counted::product(ctx, 0, y))
        .limits("known scales must be above 0"),
    row("QuantizeLinear", quantized::quantize)
        .spreads()
        .limits("to integers of 2, 4, 8 and 16 bits; known scales must be above 0"),
];
