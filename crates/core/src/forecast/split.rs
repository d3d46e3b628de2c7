//! Fixed splits of tuned problems into training, validation and test data. A hash of the problem's
//! key (or of its layer) decides the part, so all reports that name a split are about the same
//! rows, and a problem that is tested on one device is not trained on for another. Input: a
//! [`Problem`]; output: a [`Part`].

use super::Problem;
use serde::{Deserialize, Serialize};

/// The unit by which rows are held out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Single problems.
    Random,
    /// Whole layers: in every batch size, direction and precision.
    Layer,
}

/// The use of an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Learned from.
    Train,
    /// Decides when to stop, and calibrates.
    Validation,
    /// Reported on.
    Test,
}

impl Split {
    /// The use of a problem: a tenth of the rows (or layers) is for test, a tenth of the rest for
    /// validation.
    pub fn part(self, problem: &Problem) -> Part {
        let held = match self {
            Split::Random => &problem.key,
            Split::Layer => &problem.layer,
        };
        if fnv1a(held.as_bytes()) % 100 < 10 {
            Part::Test
        } else if fnv1a(format!("val{}", problem.key).as_bytes()) % 100 < 10 {
            Part::Validation
        } else {
            Part::Train
        }
    }
}

/// The 64-bit FNV-1a hash.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}
