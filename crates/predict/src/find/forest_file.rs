//! Forests of decision trees in a chooser's file (`file.rs`). Trees stand one after another, each
//! from its root, the left side of a branch before the right one, so that no place of a branch or
//! leaf is written. Data of one kind stand together, which packs better: a mark for each branch and
//! leaf, then the bins, the categories, and the leaves in 16 bits.

use super::bytes::{Cursor, broken, put};
use super::candidates::WIDTH;
use super::trees::{Forest, LEAF, Node, Tree};
use crate::tensors::FileError;

/// The mark of a leaf; a branch has that of its feature and one more.
const LEAF_MARK: u8 = 0;

/// Writes the trees of a forest.
pub fn write(forest: &Forest, out: &mut Vec<u8>) {
    let (mut marks, mut bins, mut masks, mut leaves) = (vec![], vec![], vec![], vec![]);
    for tree in &forest.trees {
        let root = if tree.nodes.is_empty() { LEAF } else { 0 };
        let mut places = vec![root];
        while let Some(place) = places.pop() {
            if place & LEAF != 0 {
                marks.push(LEAF_MARK);
                let leaf = tree.leaves[usize::from(place & !LEAF)].to_bits() >> 16;
                leaves.extend((leaf as u16).to_le_bytes());
                continue;
            }
            let node = &tree.nodes[usize::from(place)];
            marks.push(node.feature + 1);
            match node.feature {
                0 => {
                    let mask = &tree.masks[usize::from(node.mask)];
                    masks.extend(mask.iter().flat_map(|m| m.to_le_bytes()));
                }
                _ => bins.push(node.split),
            }
            places.extend([node.next[1], node.next[0]]);
        }
    }
    put(out, marks.len() as u64);
    out.extend([marks, bins, masks, leaves].concat());
}

/// Reads so many trees.
pub fn read(trees: usize, base: f32, at: &mut Cursor<'_>) -> Result<Forest, FileError> {
    let length = at.number()?.min(1 << 30) as usize;
    let marks = at.bytes(length)?.to_vec();
    let leaves = marks.iter().filter(|&&m| m == LEAF_MARK).count();
    let categories = marks.iter().filter(|&&m| m == 1).count();
    let bins = at.bytes(length - leaves - categories)?.to_vec();
    let masks = at.bytes(32 * categories)?.to_vec();
    let leaves = at.bytes(2 * leaves)?.to_vec();
    let mut parts = Parts {
        marks: &marks,
        bins: &bins,
        masks: masks.as_chunks::<32>().0,
        leaves: leaves.as_chunks::<2>().0,
    };
    let trees = (0..trees).map(|_| parts.tree()).collect::<Result<_, _>>()?;
    match parts.marks.is_empty() {
        true => Ok(Forest { base, trees }),
        false => Err(broken("more stands behind its trees")),
    }
}

/// What is left of a forest's parts. There are as many of each as the marks say.
struct Parts<'a> {
    marks: &'a [u8],
    bins: &'a [u8],
    masks: &'a [[u8; 32]],
    leaves: &'a [[u8; 2]],
}

/// Takes the first of some things.
fn first<T: Copy>(all: &mut &[T]) -> Result<T, FileError> {
    let (&head, rest) = all.split_first().ok_or_else(|| broken("a tree is cut short"))?;
    *all = rest;
    Ok(head)
}

impl Parts<'_> {
    fn tree(&mut self) -> Result<Tree, FileError> {
        let mut tree = Tree::default();
        // Where the place of what comes next is named: nowhere for the root.
        let mut open = vec![None];
        while let Some(parent) = open.pop() {
            let mark = first(&mut self.marks)?;
            let place = if mark == LEAF_MARK {
                let bits = u16::from_le_bytes(first(&mut self.leaves)?);
                tree.leaves.push(f32::from_bits(u32::from(bits) << 16));
                (tree.leaves.len() - 1) as u16 | LEAF
            } else {
                let node = tree.nodes.len();
                let mut split = 0;
                if mark == 1 {
                    let words = first(&mut self.masks)?;
                    let mut mask = [0; 4];
                    for (m, word) in mask.iter_mut().zip(words.as_chunks::<8>().0) {
                        *m = u64::from_le_bytes(*word);
                    }
                    tree.masks.push(mask);
                } else {
                    split = first(&mut self.bins)?;
                }
                let mask = tree.masks.len().saturating_sub(1) as u16;
                tree.nodes.push(Node { feature: mark - 1, split, mask, next: [LEAF; 2] });
                open.extend([Some((node, 1)), Some((node, 0))]);
                node as u16
            };
            if tree.nodes.len() >= usize::from(LEAF) {
                return Err(broken("a tree has too many branches"));
            }
            if let Some((node, side)) = parent {
                tree.nodes[node].next[side] = place;
            }
        }
        match tree.is_sound(WIDTH) {
            true => Ok(tree),
            false => Err(broken("a tree does not fit together")),
        }
    }
}
