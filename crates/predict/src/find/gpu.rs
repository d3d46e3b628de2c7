//! Facts of AMD's GPUs (compute units, clock, bandwidth, rates by format), by MIOpen's name such as
//! `gfx942_304`: the features by which a chooser of solvers (`chooser.rs`) answers for a GPU,
//! whether or not anything was measured on it. Input: a name; output: [`GpuFacts`], from a table of
//! data sheets.

use serde::{Deserialize, Serialize};

/// Facts of a GPU. Rates are floating-point operations a clock and compute unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuFacts {
    /// Compute units.
    pub units: f32,
    /// Highest clock, MHz.
    pub mhz: f32,
    /// Memory, GB/s.
    pub bandwidth: f32,
    /// Vector rate in fp32.
    pub vector: f32,
    /// Vector rate in fp16.
    pub half: f32,
    /// Matrix rate in fp32, 0 without matrix instructions.
    pub matrix: f32,
    /// Matrix rate in fp16.
    pub matrix_half: f32,
    /// Matrix rate in bf16.
    pub matrix_bf16: f32,
}

/// Numbers that features and distances see.
pub const FACTS: usize = 8;

/// Architecture, and facts with the usual number of compute units.
type Row = (&'static str, [f32; FACTS]);

/// Architectures, from AMD's data sheets.
const KNOWN: [Row; 21] = [
    ("803", [64.0, 1050.0, 512.0, 128.0, 128.0, 0.0, 0.0, 0.0]),
    ("900", [64.0, 1546.0, 484.0, 128.0, 256.0, 0.0, 0.0, 0.0]),
    ("902", [11.0, 1400.0, 38.0, 128.0, 256.0, 0.0, 0.0, 0.0]),
    ("906", [60.0, 1725.0, 1024.0, 128.0, 256.0, 0.0, 0.0, 0.0]),
    ("908", [120.0, 1502.0, 1229.0, 128.0, 256.0, 256.0, 1024.0, 512.0]),
    ("90a", [110.0, 1700.0, 1638.0, 128.0, 256.0, 256.0, 1024.0, 1024.0]),
    ("90c", [8.0, 2000.0, 51.0, 128.0, 256.0, 0.0, 0.0, 0.0]),
    ("940", [228.0, 2100.0, 5300.0, 256.0, 256.0, 256.0, 2048.0, 2048.0]),
    ("941", [304.0, 2100.0, 5300.0, 256.0, 256.0, 256.0, 2048.0, 2048.0]),
    ("942", [304.0, 2100.0, 5300.0, 256.0, 256.0, 256.0, 2048.0, 2048.0]),
    ("950", [256.0, 2400.0, 8000.0, 256.0, 256.0, 256.0, 4096.0, 4096.0]),
    ("1010", [40.0, 1905.0, 448.0, 128.0, 256.0, 0.0, 0.0, 0.0]),
    ("1011", [36.0, 1800.0, 512.0, 128.0, 256.0, 0.0, 0.0, 0.0]),
    ("1030", [72.0, 2250.0, 512.0, 128.0, 256.0, 0.0, 0.0, 0.0]),
    ("1031", [40.0, 2581.0, 384.0, 128.0, 256.0, 0.0, 0.0, 0.0]),
    ("1032", [32.0, 2491.0, 256.0, 128.0, 256.0, 0.0, 0.0, 0.0]),
    ("1100", [96.0, 2500.0, 960.0, 256.0, 512.0, 0.0, 512.0, 512.0]),
    ("1101", [60.0, 2565.0, 624.0, 256.0, 512.0, 0.0, 512.0, 512.0]),
    ("1102", [32.0, 2655.0, 288.0, 256.0, 512.0, 0.0, 512.0, 512.0]),
    ("1200", [32.0, 3130.0, 320.0, 256.0, 512.0, 0.0, 1024.0, 1024.0]),
    ("1201", [64.0, 2970.0, 640.0, 256.0, 512.0, 0.0, 1024.0, 1024.0]),
];

impl GpuFacts {
    /// The facts of a GPU by MIOpen's name for it, `gfx942_304`; a name without a number of compute
    /// units has the usual one. An architecture that is not known has the facts of the nearest
    /// name, and `false` stands beside them.
    pub fn of(device: &str) -> (GpuFacts, bool) {
        let rest = device.strip_prefix("gfx").unwrap_or(device);
        let (architecture, units) = rest.split_once('_').unwrap_or((rest, ""));
        let number = |t: &str| u32::from_str_radix(t, 16).unwrap_or(0);
        let asked = number(architecture);
        let wide = architecture.len() > 3;
        let nearest = KNOWN
            .iter()
            .min_by_key(|(name, _)| ((name.len() > 3) != wide, number(name).abs_diff(asked)));
        let (name, facts) = nearest.unwrap_or(&KNOWN[9]);
        let [mut u, mhz, bandwidth, vector, half, matrix, matrix_half, matrix_bf16] = *facts;
        if let Some(n) = units.parse::<f32>().ok().filter(|n| *n > 0.0) {
            u = n;
        }
        let facts =
            GpuFacts { units: u, mhz, bandwidth, vector, half, matrix, matrix_half, matrix_bf16 };
        (facts, *name == architecture)
    }

    /// The facts as logarithms; a rate of 0 is 0.
    pub fn numbers(&self) -> [f32; FACTS] {
        let rate = |per_clock: f32| (1.0 + per_clock).log2();
        [
            self.units.log2(),
            self.mhz.log2(),
            self.bandwidth.log2(),
            rate(self.vector),
            rate(self.half),
            rate(self.matrix),
            rate(self.matrix_half),
            rate(self.matrix_bf16),
        ]
    }

    /// How unlike two GPUs are.
    pub fn distance(&self, other: &GpuFacts) -> f32 {
        const WEIGHTS: [f32; FACTS] = [1.0, 1.0, 1.0, 0.3, 0.3, 0.25, 0.25, 0.15];
        let (a, b) = (self.numbers(), other.numbers());
        (0..FACTS).map(|i| WEIGHTS[i] * (a[i] - b[i]).abs()).sum()
    }

    /// Operations a nanosecond in a precision, and bytes a nanosecond.
    pub fn roof(&self, precision: u8) -> (f64, f64) {
        let best = match precision {
            0 => self.vector.max(self.matrix),
            1 => self.half.max(self.matrix_half),
            2 => self.vector.max(self.matrix_bf16),
            _ => self.half.max(self.matrix_half) * 2.0,
        };
        (f64::from(self.units * best * self.mhz) * 1e-3, f64::from(self.bandwidth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_architecture_and_units() {
        let (a, known) = GpuFacts::of("gfx90a_104");
        assert!(known && a.units == 104.0 && a.mhz == 1700.0);
        let (b, known) = GpuFacts::of("gfx943");
        assert!(!known && b == GpuFacts::of("gfx942").0);
        assert!(a.distance(&GpuFacts::of("gfx908").0) < a.distance(&GpuFacts::of("gfx900").0));
        assert_eq!(GpuFacts::of("gfx1103").0.mhz, 2655.0);
    }
}
