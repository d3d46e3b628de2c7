//! The rows of ONNX's operators that combine the elements along axes: `ReduceSum` and its family,
//! `ArgMax`, `CumSum`, `TopK`. A row names the function that infers shapes
//! (`graph/infer/reduce.rs`) and the evaluator where there is one, and states facts: `keeps_sign`,
//! and `spreads` (threads can share the loops of its plain C). `operators/mod.rs` has the table of
//! all families.

use super::{Row, row};
use crate::graph::fold;
use crate::graph::infer::reduce;

pub(super) const ROWS: &[Row] = &[
    row("ReduceMean", reduce::reduce).keeps_sign().spreads(),
    row("ReduceSum", reduce::reduce).folds(fold::reduce).keeps_sign().spreads(),
    row("ReduceMax", reduce::reduce).folds(fold::reduce).keeps_sign().spreads(),
    row("ReduceMin", reduce::reduce).folds(fold::reduce).keeps_sign().spreads(),
    row("ReduceProd", reduce::reduce).folds(fold::reduce).spreads(),
    row("ReduceL1", reduce::reduce).spreads(),
    row("ReduceL2", reduce::reduce).spreads(),
    row("ReduceSumSquare", reduce::reduce).spreads(),
    row("ReduceLogSum", reduce::reduce).spreads(),
    row("ReduceLogSumExp", reduce::reduce).spreads(),
    row("ArgMax", reduce::arg).spreads(),
    row("ArgMin", reduce::arg).spreads(),
    row("CumProd", reduce::scan).spreads(),
    row("CumSum", reduce::scan).spreads(),
    row("TopK", reduce::top_k),
];
