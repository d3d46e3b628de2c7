//! The rows of ONNX's operators that pick elements by values (`Compress`, `NonZero`, `OneHot`,
//! `Unique`, ..) and of losses. A row names the function that infers shapes
//! (`graph/infer/select.rs`) and the evaluator where there is one; `picks` names operands that may
//! be read in part. The limit `extents depend on elements` marks the operators whose results'
//! extents only the run knows. `operators/mod.rs` has the table of all families.

use super::{Row, row};
use crate::graph::fold;
use crate::graph::infer::select;

pub(super) const ROWS: &[Row] = &[
    row("Compress", select::compress).picks(&[0]).limits("extents depend on elements"),
    row("EyeLike", select::eye_like).moves_data().spreads(),
    row("GatherND", select::gather_nd).folds(fold::gather_nd).moves_data().picks(&[0]).spreads(),
    row("NegativeLogLikelihoodLoss", select::likelihood),
    row("NonMaxSuppression", select::suppress).picks(&[0]).limits("extents depend on elements"),
    row("NonZero", select::non_zero).folds(fold::non_zero).limits("extents depend on elements"),
    row("OneHot", select::one_hot).moves_data().spreads(),
    row("SoftmaxCrossEntropyLoss", select::cross_entropy),
    row("TfIdfVectorizer", select::tf_idf).limits("`mode` TF over integers"),
    row("Unique", select::unique).limits("extents depend on elements"),
];
