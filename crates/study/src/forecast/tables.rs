//! The published results of the paper on predicting tuned parameters (Mahmood, Khan, Afzal), row by
//! row (solver and precision), so that pages and tests can set them beside the measured ones.

/// A row of "Optimal Kernel Tuning Parameter Prediction using Deep Sequence Models" (Mahmood, Khan,
/// Afzal): shares of problems whose tuned vector is predicted, in percent, by its best model,
/// Hybrid-2. Its databases were not published; its rows are not those of any public version of
/// MIOpen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Table II: problems with a tuned vector.
    pub samples: u32,
    /// Table III: the single best.
    pub top_1: f64,
    /// Table IV: among 10 and 100 beams without constraints.
    pub beam: (f64, f64),
    /// Table IV: among the 10 and 100 of the constrained search (OPCS); not reported for
    /// ConvAsmBwdWrW3x3.
    pub opcs: Option<(f64, f64)>,
}

impl Published {
    /// The three shares that stand beside ours, at 1, 10 and 100: constrained where there are such.
    pub fn at(&self) -> [f64; 3] {
        let (ten, hundred) = self.opcs.unwrap_or(self.beam);
        [self.top_1, ten, hundred]
    }
}

/// The rows that there are, in the paper's order.
pub const ROWS: [(&str, &str); 8] = [
    ("ConvAsm1x1U", "FP32"),
    ("ConvAsm1x1U", "FP16"),
    ("ConvOclDirectFwd1x1", "FP32"),
    ("ConvOclDirectFwd1x1", "FP16"),
    ("ConvAsmBwdWrW1x1", "FP32"),
    ("ConvAsmBwdWrW1x1", "FP16"),
    ("ConvAsmBwdWrW3x3", "FP32"),
    ("ConvAsmBwdWrW3x3", "FP16"),
];

/// The published results of a solver and a precision.
pub fn published(solver: &str, precision: &str) -> Option<Published> {
    let of = |samples, top_1, beam, opcs| Some(Published { samples, top_1, beam, opcs });
    match (solver, precision) {
        ("ConvAsm1x1U", "FP32") => of(7038, 6.5, (19.6, 39.2), Some((19.9, 40.9))),
        ("ConvAsm1x1U", "FP16") => of(3291, 31.5, (67.9, 82.7), Some((68.5, 87.3))),
        ("ConvOclDirectFwd1x1", "FP32") => of(21124, 18.9, (69.9, 94.9), Some((72.5, 95.8))),
        ("ConvOclDirectFwd1x1", "FP16") => of(3349, 31.3, (79.1, 91.0), Some((79.7, 91.6))),
        ("ConvAsmBwdWrW1x1", "FP32") => of(5100, 10.0, (34.9, 65.1), Some((36.5, 71.4))),
        ("ConvAsmBwdWrW1x1", "FP16") => of(1606, 13.7, (40.4, 67.1), Some((44.1, 73.3))),
        ("ConvAsmBwdWrW3x3", "FP32") => of(698, 15.4, (58.6, 91.4), None),
        ("ConvAsmBwdWrW3x3", "FP16") => of(447, 22.2, (77.8, 95.6), None),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_means_are_those_that_the_paper_s_rows_give() {
        let all: Vec<Published> = ROWS.iter().map(|(s, p)| published(s, p).unwrap()).collect();
        let mean = |k: usize| all.iter().map(|p| p.at()[k]).sum::<f64>() / 8.0;
        for (k, want) in [18.7, 57.2, 80.9].into_iter().enumerate() {
            assert!((mean(k) - want).abs() < 0.06, "{k}: {}", mean(k));
        }
        assert_eq!(published("Other", "FP32"), None);
    }
}
