//! Operators that combine the elements along axes.

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
