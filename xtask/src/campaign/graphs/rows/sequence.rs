//! The rows of recurrent networks (`LSTM`, `GRU`, `RNN`) in the campaign's table of random graphs
//! (`rows/mod.rs`): steps, batch, hidden size, direction and optional operands. A row's function
//! draws one use of the operator, a node with operands and attributes, in the graph under
//! construction (`graph.rs`); its effect, such as `Keeps` or `Rounds`, says whether results stay
//! exact. `cargo xtask campaign graphs` runs the graphs by Squall and by onnxruntime.

use super::Row;
use crate::campaign::graphs::graph::Effect::Amplifies;
use crate::campaign::graphs::graph::{Call, Fill, Graph};
use squall_core::DType::{F32, I32};
use squall_testing::onnx::{int, text};

// Steps feed each other, so errors grow: they are given exact and tame numbers.
pub const ROWS: &[Row] = &[
    Row::own("LSTM", Amplifies, |g| recurrent(g, 4)).since(14).tame(),
    Row::own("GRU", Amplifies, |g| recurrent(g, 3)).since(14).tame(),
    Row::own("RNN", Amplifies, |g| recurrent(g, 1)).since(14).tame(),
];

fn recurrent(g: &mut Graph<'_>, gates: i64) -> Option<Call> {
    let (steps, batch, width) = (g.within(1, 5), g.within(1, 3), g.within(1, 5));
    let hidden = g.within(1, 5);
    let way = g.draw.one(&["forward", "reverse", "bidirectional"]).to_string();
    let ways = if way == "bidirectional" { 2 } else { 1 };
    let x = g.fresh(F32, &[steps, batch, width], Fill::Tame);
    let w = g.fresh(F32, &[ways, gates * hidden, width], Fill::Tame);
    let r = g.fresh(F32, &[ways, gates * hidden, hidden], Fill::Tame);
    let mut call = Call::of(&[x, w, r]).with(int("hidden_size", hidden));
    call = call.with(text("direction", &way));
    let b = g.coin().then(|| g.fresh(F32, &[ways, 2 * gates * hidden], Fill::Tame));
    let lengths = g.coin().then(|| g.fresh(I32, &[batch], Fill::Within(1, steps)));
    let h = g.coin().then(|| g.fresh(F32, &[ways, batch, hidden], Fill::Tame));
    call = call.and(b).and(lengths).and(h);
    if gates == 4 {
        let c = g.coin().then(|| g.fresh(F32, &[ways, batch, hidden], Fill::Tame));
        let p = (g.draw.below(3) == 0).then(|| g.fresh(F32, &[ways, 3 * hidden], Fill::Tame));
        return Some(call.and(c).and(p).gives(3));
    }
    if gates == 3 {
        let before = g.within(0, 1);
        call = call.with(int("linear_before_reset", before));
    }
    Some(call.gives(2))
}
