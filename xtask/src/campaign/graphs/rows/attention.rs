//! The row of the operator `Attention` in the campaign's table of random graphs (`rows/mod.rs`):
//! queries, keys and values with heads of their own number, masks, causality and soft caps. A row's
//! function draws one use of the operator, a node with operands and attributes, in the graph under
//! construction (`graph.rs`); its effect, such as `Keeps` or `Rounds`, says whether results stay
//! exact. `cargo xtask campaign graphs` runs the graphs by Squall and by onnxruntime.

use super::Row;
use crate::campaign::graphs::graph::Effect::Amplifies;
use crate::campaign::graphs::graph::{Call, Fill};
use squall_core::DType::{Bool, F32};
use squall_testing::onnx::{float, int};

pub const ROWS: &[Row] = &[Row::own("Attention", Amplifies, |g| {
    let (b, h, s, t) = (g.within(1, 2), g.within(1, 2), g.within(1, 6), g.within(1, 6));
    let (share, d, e) = (g.within(1, 2), g.within(1, 8), g.within(1, 8));
    let q = g.fresh(F32, &[b, h * share, s, d], Fill::Tame);
    let k = g.fresh(F32, &[b, h, t, d], Fill::Tame);
    let v = g.fresh(F32, &[b, h, t, e], Fill::Tame);
    let call = Call::of(&[q, k, v]);
    Some(match g.draw.below(4) {
        0 => {
            let m = g.fresh(F32, &[s, t], Fill::Tame);
            call.and(Some(m))
        }
        // A row of which all keys are masked has no meaning: the first key is always seen.
        1 => {
            let all = g.draw.below(2) == 0;
            let m = g.tensor(Bool, &[s, t], Fill::Within(1, 1), all);
            call.and(Some(m))
        }
        2 => call.with(int("is_causal", 1)),
        _ => call.with(float("softcap", 2.0)),
    })
})
.since(23)
.tame()];
