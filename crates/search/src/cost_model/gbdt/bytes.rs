//! Fitted trees of the cost model as bytes, for the general predictor's file inside the binary.
//! Output: a [`Gbdt`], or the reason why bytes are none: every path through a tree must end, and
//! look only at features that rows have.

use super::{Gbdt, GbdtSettings, LEAF, Node};

/// A leaf's feature among the bytes.
const LEAF_BYTES: u16 = u16::MAX;
/// The most trees, and the most nodes of a tree; larger numbers were not written by
/// [`Gbdt::to_bytes`].
const MOST: usize = 1 << 14;

/// Why bytes are no trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeError(pub String);

impl std::fmt::Display for TreeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TreeError {}

/// Bytes that are still to be read.
struct Rest<'b>(&'b [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], TreeError> {
        let (first, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or_else(|| TreeError("the trees end in the middle".into()))?;
        self.0 = rest;
        Ok(*first)
    }

    fn count(&mut self, what: &str) -> Result<usize, TreeError> {
        let n = u32::from_le_bytes(self.take()?) as usize;
        if n > MOST { Err(TreeError(format!("{n} {what} are too many"))) } else { Ok(n) }
    }

    fn number(&mut self) -> Result<f32, TreeError> {
        let x = f32::from_le_bytes(self.take()?);
        if x.is_finite() { Ok(x) } else { Err(TreeError("a threshold is no number".into())) }
    }
}

impl Gbdt {
    /// The trees: their number, and of each the number of its nodes and the nodes, as feature, next
    /// node (two bytes each) and threshold or value (four), the lowest byte first.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.base.to_le_bytes().to_vec();
        out.extend((self.trees.len() as u32).to_le_bytes());
        for tree in &self.trees {
            out.extend((tree.len() as u32).to_le_bytes());
            for node in tree {
                let feature = if node.feature == LEAF { LEAF_BYTES } else { node.feature as u16 };
                out.extend(feature.to_le_bytes());
                out.extend((node.next as u16).to_le_bytes());
                out.extend(node.threshold.to_le_bytes());
            }
        }
        out
    }

    /// The trees of [`Gbdt::to_bytes`], for rows of `width` features.
    ///
    /// # Errors
    /// Where the bytes are not whole, or a node names a feature or a node that is not there.
    pub fn from_bytes(bytes: &[u8], width: usize) -> Result<Gbdt, TreeError> {
        let mut rest = Rest(bytes);
        let mut model = Gbdt::new(GbdtSettings::default());
        model.base = rest.number()?;
        for _ in 0..rest.count("trees")? {
            let count = rest.count("nodes")?;
            let tree = (0..count).map(|at| node(&mut rest, at, count, width));
            let tree = tree.collect::<Result<Vec<Node>, TreeError>>()?;
            if tree.is_empty() {
                return Err(TreeError("a tree has no node".into()));
            }
            model.trees.push(tree);
        }
        if !rest.0.is_empty() {
            return Err(TreeError(format!("{} bytes follow the last tree", rest.0.len())));
        }
        Ok(model)
    }
}

/// The node at position `at` of `count`.
fn node(rest: &mut Rest<'_>, at: usize, count: usize, width: usize) -> Result<Node, TreeError> {
    let feature = u16::from_le_bytes(rest.take()?);
    let next = u16::from_le_bytes(rest.take()?);
    let threshold = rest.number()?;
    if feature == LEAF_BYTES {
        return Ok(Node { feature: LEAF, next: 0, threshold });
    }
    if usize::from(feature) >= width {
        return Err(TreeError(format!("a node looks at feature {feature} of {width}")));
    }
    // Nodes lead onwards only, so that every way ends.
    if usize::from(next) <= at || usize::from(next) + 1 >= count {
        return Err(TreeError(format!("node {at} of {count} leads to node {next}")));
    }
    Ok(Node { feature: feature.into(), next: next.into(), threshold })
}
