//! The number format in which a model's kernels compute (`--precision`): f32, tf32, bf16 or f16.
//! Factors of products, or all tensors between kernels, are rounded to it; sums are always of 32
//! bits. `in_precision.rs` applies a format to a model's tasks.

use squall_core::operator::{in_half, of_floats};
use squall_core::{DType, Workload};

/// A format of a whole model. Kernels of each are tasks of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Floats of 32 bits.
    #[default]
    F32,
    /// Factors of convolutions and matrix products are rounded to tf32, 10 bits of the fraction;
    /// tensors stay as they are. On GPUs only.
    Tf32,
    /// All that lies between kernels, and their weights, are floats of 16 bits, 8 of them the
    /// exponent's; what a kernel computes stays 32-bit floats until it is stored. The model's
    /// inputs and outputs keep the types of its file.
    Bf16,
    /// Like `Bf16`, but with IEEE half precision (5 bits of exponent): numbers above 65504 become
    /// infinite. On GPUs only.
    F16,
}

impl Precision {
    /// All of them, with their spelling.
    pub const ALL: &'static [(Precision, &'static str)] = &[
        (Precision::F32, "f32"),
        (Precision::Tf32, "tf32"),
        (Precision::Bf16, "bf16"),
        (Precision::F16, "f16"),
    ];

    /// The format of 16 bits in which tensors are kept, if they are.
    pub fn half(self) -> Option<DType> {
        match self {
            Precision::Bf16 => Some(DType::Bf16),
            Precision::F16 => Some(DType::F16),
            Precision::F32 | Precision::Tf32 => None,
        }
    }

    /// The workload of 32-bit floats that stands in a model's graph for a kernel of this precision;
    /// none where no kernel of this precision computes it.
    pub(crate) fn in_graph(self, w: Workload) -> Option<Workload> {
        let Some(format) = self.half() else { return Some(w) };
        // What cannot be rounded stays as it is.
        let stays = |w: &Workload| in_half(w.clone(), format, format).is_err();
        of_floats(&w, format).or_else(|| Some(w).filter(stays))
    }

    /// The workload that a kernel of a model's graph computes in this precision.
    pub(crate) fn rounded(self, w: &Workload) -> Workload {
        let made = self.half().and_then(|format| in_half(w.clone(), format, format).ok());
        made.unwrap_or_else(|| w.clone())
    }

    /// The one in which tensors are kept in a format of 16 bits.
    pub(crate) fn of_half(format: DType) -> Option<Precision> {
        Precision::ALL.iter().map(|(p, _)| *p).find(|p| p.half() == Some(format))
    }

    /// How far floats of a network may be from exact ones, absolutely and relative to values above
    /// 1, unless the user says otherwise: what rounding costs networks of some hundred layers.
    pub fn tolerance(self) -> f64 {
        match self {
            Precision::F32 => 1e-4,
            Precision::Tf32 | Precision::F16 => 2e-2,
            Precision::Bf16 => 1e-1,
        }
    }

    /// The spelling.
    pub fn name(self) -> &'static str {
        Precision::ALL.iter().find(|(p, _)| *p == self).map_or("", |(_, name)| name)
    }
}
