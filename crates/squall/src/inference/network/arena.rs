//! Memory planning for a network: one region of memory for all blocks that a run writes. Input: for
//! each block its size and the steps during which it is alive; output: an offset for each block, so
//! that blocks that are alive at the same time do not overlap. `files.rs` puts the offsets into the
//! plan.

/// Offsets on CPUs are multiples of this alignment, on which kernels rely.
pub const ALIGNMENT: usize = 64;

/// A block of memory and the steps between which it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its size.
    pub bytes: usize,
    /// The first step that needs it.
    pub first: usize,
    /// The last step that needs it.
    pub last: usize,
}

impl Block {
    fn meets(&self, other: &Block) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The offset of each block, a multiple of `alignment`, and the bytes in all.
pub fn lay_out(blocks: &[Block], alignment: usize) -> (Vec<usize>, usize) {
    let sizes: Vec<(usize, usize)> = blocks.iter().map(|b| (b.bytes, b.first)).collect();
    lay_out_by(&sizes, alignment, &|i, k| blocks[i].meets(&blocks[k]))
}

/// Like [`lay_out`], for blocks given by their bytes and the first step that needs them; `meets`
/// says which two may be needed at the same time. The largest blocks are placed first, each into
/// the smallest gap that it fits (Pisarchyk and Lee 2020: within a few percent of the bound on
/// networks).
pub fn lay_out_by(
    blocks: &[(usize, usize)],
    alignment: usize,
    meets: &dyn Fn(usize, usize) -> bool,
) -> (Vec<usize>, usize) {
    let size = |i: usize| blocks[i].0.div_ceil(alignment) * alignment;
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(size(i)), blocks[i].1));
    let mut offsets = vec![0usize; blocks.len()];
    let mut total = 0usize;
    // What has its place, by offset.
    let mut placed: Vec<usize> = Vec::new();
    // What has no bytes lies at the beginning, where it meets nothing.
    for i in order.into_iter().filter(|&i| size(i) > 0) {
        let (mut free, mut best): (usize, Option<(usize, usize)>) = (0, None);
        for &other in placed.iter().filter(|&&o| meets(o, i)) {
            let gap = offsets[other].saturating_sub(free);
            if gap >= size(i) && best.is_none_or(|(g, _)| gap < g) {
                best = Some((gap, free));
            }
            free = free.max(offsets[other] + size(other));
        }
        offsets[i] = best.map_or(free, |(_, at)| at);
        total = total.max(offsets[i] + size(i));
        let at = placed.partition_point(|&o| offsets[o] <= offsets[i]);
        placed.insert(at, i);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block() -> impl Strategy<Value = Block> {
        (0usize..5000, 0usize..40, 0usize..12).prop_map(|(bytes, first, more)| Block {
            bytes,
            first,
            last: first + more,
        })
    }

    proptest! {
        #[test]
        fn no_two_live_blocks_overlap(blocks in proptest::collection::vec(block(), 0..60)) {
            let (offsets, total) = lay_out(&blocks, ALIGNMENT);
            for (i, a) in blocks.iter().enumerate() {
                prop_assert!(offsets[i] % ALIGNMENT == 0 && offsets[i] + a.bytes <= total);
                for (j, b) in blocks.iter().enumerate().skip(i + 1) {
                    let (a_end, b_end) = (offsets[i] + a.bytes, offsets[j] + b.bytes);
                    let apart = a_end <= offsets[j] || b_end <= offsets[i];
                    prop_assert!(apart || !a.meets(b), "{i} and {j}");
                }
            }
            // Never less than what is alive at once.
            let alive = |t: usize| {
                let needed = blocks.iter().filter(|b| b.first <= t && t <= b.last);
                needed.map(|b| b.bytes).sum::<usize>()
            };
            prop_assert!((0..60).all(|t| alive(t) <= total));
        }
    }

    #[test]
    fn blocks_without_bytes_lie_inside_of_no_other() {
        let of = |bytes, first, last| Block { bytes, first, last };
        // The second and the third overlap in memory, since they are not alive together.
        let blocks = [of(640, 0, 5), of(192, 0, 1), of(128, 3, 5), of(0, 0, 5)];
        let (offsets, total) = lay_out(&blocks, ALIGNMENT);
        assert_eq!((offsets[3], total), (0, 832));
    }

    #[test]
    fn a_chain_needs_two_places() {
        let chain: Vec<Block> =
            (0..10).map(|i| Block { bytes: 640, first: i, last: i + 1 }).collect();
        assert_eq!(lay_out(&chain, ALIGNMENT).1, 1280);
    }
}
