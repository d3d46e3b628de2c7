//! The optimiser of the predictors' networks: AdamW (Loshchilov and Hutter 2019), which updates
//! parameters from their gradients, and the cosine schedule of its step. The training loop in
//! `predict/src/train.rs` calls both.

use super::vector::wide;

/// AdamW's state: the running mean and square of every gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct Adam {
    /// Mean of gradients.
    pub mean: Vec<f32>,
    /// Mean of squared gradients.
    pub square: Vec<f32>,
    /// Steps taken.
    pub steps: u64,
    /// Factor on the parameter, times the rate, at each step: 0.01 is usual.
    pub decay: f32,
}

const BETA: (f32, f32) = (0.9, 0.999);

impl Adam {
    /// A fresh state for so many parameters.
    pub fn new(len: usize, decay: f32) -> Adam {
        Adam { mean: vec![0.0; len], square: vec![0.0; len], steps: 0, decay }
    }

    /// One step. `decays` says which parameters decay. The gradient is scaled down to the norm 1
    /// first if it is longer.
    pub fn step(&mut self, parameters: &mut [f32], gradient: &[f32], decays: &[bool], rate: f32) {
        self.steps += 1;
        let norm = gradient
            .chunks(1 << 12)
            .map(|c| f64::from(super::vector::dot(c, c)))
            .sum::<f64>()
            .sqrt() as f32;
        let clip = if norm > 1.0 { 1.0 / norm } else { 1.0 };
        let t = self.steps.min(1 << 20) as i32;
        let (bias1, bias2) = (1.0 - BETA.0.powi(t), 1.0 - BETA.1.powi(t));
        let (mean, square, decay) = (&mut self.mean[..], &mut self.square[..], self.decay);
        wide(
            #[inline(always)]
            || {
                let n = parameters.len();
                let (mean, square, gradient, decays) =
                    (&mut mean[..n], &mut square[..n], &gradient[..n], &decays[..n]);
                for i in 0..n {
                    let g = gradient[i] * clip;
                    mean[i] = BETA.0 * mean[i] + (1.0 - BETA.0) * g;
                    square[i] = BETA.1 * square[i] + (1.0 - BETA.1) * g * g;
                    let step = (mean[i] / bias1) / ((square[i] / bias2).sqrt() + 1e-8);
                    let shrink = if decays[i] { decay } else { 0.0 };
                    parameters[i] -= rate * (step + shrink * parameters[i]);
                }
            },
        );
    }
}

/// The share of the full rate after `done` of `total` steps: a linear rise over the first 3 %,
/// then half a cosine down to nothing.
pub fn cosine(done: usize, total: usize) -> f32 {
    let (done, total) = (done as f32, total.max(1) as f32);
    let warm = (0.03 * total).max(1.0);
    if done < warm {
        (done + 1.0) / (warm + 1.0)
    } else {
        0.5 * (1.0
            + (std::f32::consts::PI * ((done - warm) / (total - warm).max(1.0)).min(1.0)).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_bottom_of_a_bowl() {
        let goal = [1.0f32, -2.0, 0.5];
        let mut x = vec![0.0f32; 3];
        let mut adam = Adam::new(3, 0.0);
        for i in 0..600 {
            let g: Vec<f32> = x.iter().zip(goal).map(|(x, g)| x - g).collect();
            adam.step(&mut x, &g, &[true; 3], 0.05 * cosine(i, 600));
        }
        assert!(x.iter().zip(goal).all(|(x, g)| (x - g).abs() < 1e-2), "{x:?}");
    }

    #[test]
    fn the_rate_rises_then_falls_to_nothing() {
        let r: Vec<f32> = (0..=1000).map(|i| cosine(i, 1000)).collect();
        assert!(r[0] < 0.1 && (r[31] - 1.0).abs() < 1e-3 && r[1000] < 1e-4);
        assert!(r[40..].windows(2).all(|w| w[1] <= w[0]));
    }
}
