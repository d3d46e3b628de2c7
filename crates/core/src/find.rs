//! The data of MIOpen's find databases, AMD's lists of convolutions with the time that each of its
//! solvers (ways to compute a convolution) took on one GPU. [`FindProblem`] is a convolution,
//! [`FindTable`] the timed solvers of one GPU's problems, and [`find_part`] splits problems into
//! training and test. `frontend/src/miopen/find.rs` reads the files; `predict/src/find/` learns
//! from them which solver is fastest.

/// Precisions that find databases know, by their number in [`FindProblem::precision`].
pub const PRECISIONS: [&str; 4] = ["FP32", "FP16", "BF16", "INT8"];

/// The sizes of a problem, by their place in [`FindProblem::sizes`].
pub const SIZES: [&str; 22] = [
    "C", "D", "H", "W", "K", "OD", "OH", "OW", "N", "T", "R", "S", "PD", "PH", "PW", "SD", "SH",
    "SW", "DD", "DH", "DW", "G",
];

/// Whether the tensors have their channels last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChannelOrder {
    /// None: NCHW, NCDHW.
    First,
    /// All: NHWC, NDHWC.
    Last,
    /// Some, or another layout.
    Mixed,
}

/// A convolution in one direction. Sizes are those of the forward view whatever the direction: C
/// and D, H, W are of the image, K and OD, OH, OW of the forward result. In two dimensions depths
/// are 1 and the padding in depth is 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FindProblem {
    /// Whether it is in three dimensions.
    pub deep: bool,
    /// A place in [`PRECISIONS`].
    pub precision: u8,
    /// 0 forward, 1 backward data, 2 backward weights.
    pub direction: u8,
    /// Where channels are.
    pub order: ChannelOrder,
    /// In the order of [`SIZES`].
    pub sizes: [i32; SIZES.len()],
}

impl FindProblem {
    /// A size by its place in [`SIZES`], as a number to calculate with.
    pub fn size(&self, at: usize) -> f64 {
        f64::from(self.sizes[at])
    }

    /// The filter with its channels, at no image size:
    /// `family C-K-T-R-S-PD-PH-PW-SD-SH-SW-DD-DH-DW-G`.
    pub fn family(&self) -> String {
        self.text("family ", &[0, 4, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21])
    }

    /// The layer in no batch, precision or direction:
    /// `layer C-D-H-W-K-T-R-S-PD-PH-PW-SD-SH-SW-DD-DH-DW-G`.
    pub fn layer(&self) -> String {
        self.text("layer ", &[0, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21])
    }

    fn text(&self, prefix: &str, which: &[usize]) -> String {
        let mut out = prefix.to_string();
        for (i, &at) in which.iter().enumerate() {
            if i > 0 {
                out.push('-');
            }
            out.push_str(&self.sizes[at].to_string());
        }
        out
    }

    /// Whether the size of the result follows from the others.
    pub fn is_consistent(&self) -> bool {
        (0..3).all(|axis| {
            let of = |at: usize| i64::from(self.sizes[at + axis]);
            let rest = of(1) + 2 * of(12) - of(18) * (of(9) - 1) - 1;
            rest >= 0 && rest / of(15) + 1 == of(5)
        })
    }

    /// Multiplications and additions.
    pub fn flop(&self) -> f64 {
        let pixels: f64 = (5..9).map(|i| self.size(i)).product();
        let taps: f64 = (9..12).map(|i| self.size(i)).product();
        2.0 * pixels * taps * self.size(0) * self.size(4) / self.size(21)
    }

    /// Elements of image, result and filter.
    pub fn elements(&self) -> [f64; 3] {
        let product =
            |at: std::ops::Range<usize>| -> f64 { at.map(|i| self.size(i)).product::<f64>() };
        let n = self.size(8);
        let filter = self.size(0) * self.size(4) / self.size(21) * product(9..12);
        [n * product(0..4), n * product(4..8), filter]
    }

    /// Bytes of an element.
    pub fn element_bytes(&self) -> f64 {
        [4.0, 2.0, 2.0, 1.0][usize::from(self.precision.min(3))]
    }
}

/// The part that a split puts a problem in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindPart {
    /// Learned from.
    Given,
    /// Its layer is given in no batch, precision or direction.
    Layer,
    /// Its filter with its channels is given at no image size.
    Family,
}

/// Splits off 8 % of the filter families, and 10 % of the other layers; the salt chooses which.
pub fn find_part(problem: &FindProblem, salt: &str) -> FindPart {
    let share = |text: String| fnv(&[salt, &text]) % 100;
    if share(problem.family()) < 8 {
        FindPart::Family
    } else if share(problem.layer()) < 10 {
        FindPart::Layer
    } else {
        FindPart::Given
    }
}

/// The 64-bit FNV-1a hash of texts one after another.
pub fn fnv(texts: &[&str]) -> u64 {
    texts
        .iter()
        .flat_map(|t| t.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// A solver that was timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// A place in [`FindTable::solvers`].
    pub solver: u16,
    /// Milliseconds, above zero.
    pub ms: f32,
    /// Bytes of workspace.
    pub workspace: u64,
}

/// A solver as find databases name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FindSolver {
    /// `ConvAsm1x1U`.
    pub name: String,
    /// What follows `miopenConvolution`: `FwdAlgoDirect`.
    pub algorithm: String,
}

/// What is known of the solvers that a list lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEnd {
    /// The list is cut: others did not apply, or are slower than the last one.
    Cut,
    /// All that applied are listed.
    Whole,
    /// The best of each algorithm is listed: another of the same algorithm may apply and be slower.
    BestOfAlgorithm,
}

/// The timed solvers of one GPU's problems. Each problem has at least one solver and each solver
/// once, fastest first.
#[derive(Clone, Debug, Default)]
pub struct FindTable {
    /// The GPU: `gfx942_304`.
    pub device: String,
    /// Solvers by number.
    pub solvers: Vec<FindSolver>,
    /// Problems.
    pub problems: Vec<FindProblem>,
    /// Where each problem's rows begin, and the number of rows.
    pub starts: Vec<u32>,
    /// Rows of all problems.
    pub rows: Vec<Found>,
    /// What lacks in each problem's list.
    pub ends: Vec<ListEnd>,
}

impl FindTable {
    /// The rows of a problem, fastest first.
    pub fn rows_of(&self, problem: usize) -> &[Found] {
        &self.rows[self.starts[problem] as usize..self.starts[problem + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_is_that_of_the_data() {
        let p = FindProblem {
            deep: false,
            precision: 1,
            direction: 0,
            order: ChannelOrder::First,
            sizes: [256, 1, 56, 56, 128, 1, 56, 56, 64, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1],
        };
        assert_eq!(fnv(&[&p.family()]) % 100, 89);
        assert_eq!(fnv(&[&p.layer()]) % 100, 40);
        assert_eq!(find_part(&p, ""), FindPart::Given);
        assert!(p.is_consistent());
        assert_eq!(p.flop(), 2.0 * 64.0 * 56.0 * 56.0 * 256.0 * 128.0);
        let wrong = FindProblem {
            sizes: {
                let mut s = p.sizes;
                s[6] = 55;
                s
            },
            ..p
        };
        assert!(!wrong.is_consistent());
    }
}
