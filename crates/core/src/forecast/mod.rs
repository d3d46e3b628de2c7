//! The data that the predictors of kernel configurations learn from and are asked about: problems
//! ([`Problem`], a layer's sizes on a device), the values that tuning found for them ([`Example`]),
//! and families of kernels ([`Family`]: their knobs, the rules of legality, and derived features).
//!
//! The words follow MIOpen, whose databases are the largest that are public: a *solver* is one way
//! to compute a convolution, and serialises its tuned values in a fixed order.
//! `frontend/src/miopen` reads the databases into these types; `predict/` trains networks on them.

mod columns;
mod family;
mod learned;
mod program;
mod spec;
mod split;
#[cfg(test)]
mod tests;

pub use family::{Candidates, Family, Instance};
pub use spec::{FamilyError, FamilyKnob, FamilySpec, SpaceOfError};
pub use split::{Part, Split, fnv1a};

use serde::{Deserialize, Serialize};

/// A problem for a solver on a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Problem {
    /// The solver, for example `ConvAsm1x1U`.
    pub solver: String,
    /// `gfx900_56`: the architecture and, where known, the number of compute units.
    pub device: String,
    /// Fields without an order: `direction` F, B or W; `precision` FP32, FP16 or BF16; `layout`.
    pub words: Vec<(String, String)>,
    /// Sizes, by the names that the families use. Of convolutions `a h w` are the channels and size
    /// of the kernel's input, `b oh ow` of its output (for B and W that is not the forward view),
    /// `n` the batch, `R S` the filter, `PH PW SH SW DH DW` padding, stride and dilation, `bias`,
    /// `g` the groups; of the device `gfx` (its name's hexadecimal digits: 0x906) and `cu`.
    pub numbers: Vec<(String, i64)>,
    /// Its key in a tuning database: `256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F`.
    pub key: String,
    /// The layer it belongs to, whatever the batch, direction and precision: a layer is held out as
    /// a whole by [`Split::Layer`]. Of convolutions `C-H-W-K-R-S-PH-PW-SH-SW-DH-DW-G`, forward
    /// view.
    pub layer: String,
}

impl Problem {
    /// A size by name.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.numbers.iter().find(|(n, _)| n == name).map(|(_, v)| *v)
    }

    /// A word by name.
    pub fn word(&self, name: &str) -> Option<&str> {
        self.words.iter().find(|(n, _)| n == name).map(|(_, w)| w.as_str())
    }

    /// The same problem for another solver.
    pub fn of(&self, solver: &str) -> Problem {
        Problem { solver: solver.into(), ..self.clone() }
    }
}

/// A problem with the values that tuning found for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Example {
    /// The problem.
    pub problem: Problem,
    /// The values of the solver's knobs, in its serialised order.
    pub values: Vec<i64>,
}

/// The values as databases write them: `1,16,2,64`.
pub fn serialised(values: &[i64]) -> String {
    values.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}
