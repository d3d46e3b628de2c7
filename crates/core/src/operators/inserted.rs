//! The rows of Squall's own operators, which no ONNX file has: readers and rewritings of models
//! insert them, for packed weights of few bits, quantised bytes, choices between branches, and
//! regions. A row names the function that infers shapes and, where constants are packed, the
//! evaluator. `operators/mod.rs` has the table of all families.

use super::{Row, counted, row};
use crate::graph::fold;
use crate::graph::infer::{bytes, choice, nbits, region};

pub(super) const ROWS: &[Row] = &[
    row("MatMulNBits", nbits::matmul).multiplies(|ctx, y| counted::product(ctx, 0, y)).spreads(),
    row("PackNBits", nbits::pack).folds(fold::pack_nbits).spreads(),
    row("UnpackNBits", nbits::unpack).folds(fold::unpack_nbits).spreads(),
    row("ToBytes", bytes::to_bytes),
    row("FromBytes", bytes::from_bytes),
    row("PackBytes", bytes::pack).folds(fold::pack_bytes),
    row("ConvBytes", bytes::conv),
    row("MatMulBytes", bytes::matmul),
    row("ProductBytes", bytes::dynamic_product),
    row("ConvProductBytes", bytes::dynamic_conv),
    row("PackScales", bytes::pack_scales).folds(fold::pack_scales),
    row("ScaleBytes", |ctx| bytes::like(ctx, 0)),
    row("SumBytes", |ctx| bytes::like(ctx, 0)),
    row("GateBytes", |ctx| bytes::like(ctx, 0)),
    row("MapBytes", |ctx| bytes::like(ctx, 0)),
    row("MaxPoolBytes", bytes::pooled),
    row("MeanBytes", bytes::pooled),
    row(choice::CHOOSE, choice::choose).folds(fold::choose).picks(&[1, 2]).spreads(),
    row(region::REGION, region::region),
];
