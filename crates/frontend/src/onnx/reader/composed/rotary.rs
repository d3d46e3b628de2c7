//! `RotaryEmbedding` with position ids: rows of the caches are gathered by the ids first, so that
//! the node has a row of cosines and one of sines for each step. Where caches and ids are constants
//! the rows are known when the model is loaded. The node of this form stays; it is a kernel
//! (`graph/src/fuse/anchor/rotary.rs`) or one plain operator.

use crate::onnx::reader::body::Body;

pub(super) fn rotary(b: &mut Body) -> Option<()> {
    let [x, cos, sin, ids] = [0, 1, 2, 3].map(|i| b.given(i));
    let [x, cos, sin, ids] = [x?, cos?, sin?, ids?];
    let (batch, steps) = match b.shape(0).ok()?[..] {
        [batch, _, steps, _] | [batch, steps, _] => (batch, steps),
        _ => return None,
    };
    let caches = [b.shape(1).ok()?, b.shape(2).ok()?];
    if b.shape(3).ok()? != [batch, steps] || caches.iter().any(|c| c.len() != 2) {
        return None;
    }
    let rows = caches[0][0].min(caches[1][0]);
    let ids = b.counted_from_front(&ids, rows);
    let [cos, sin] = [cos, sin].map(|cache| b.op("Gather", &[&cache, &ids], vec![]));
    let attributes = b.call.attribute.clone();
    let y = b.op("RotaryEmbedding", &[&x, &cos, &sin], attributes);
    b.hand_on(&y, 0);
    Some(())
}
