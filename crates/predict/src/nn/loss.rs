//! The loss of the predictors' networks that choose: soft-max cross entropy over rows of scores, of
//! all positions or of the allowed ones. Input: scores and the true position; output: the loss,
//! with the scores replaced by their gradient.

use super::vector::log_softmax;

/// Replaces the scores of one row by the gradient of its loss, `softmax - truth`, times `weight`,
/// and returns the loss, `-log softmax[truth]`, times `weight`. Scores of minus infinity take
/// no part.
pub fn cross_entropy(scores: &mut [f32], truth: usize, weight: f32) -> f64 {
    log_softmax(scores);
    let loss = -f64::from(scores[truth]) * f64::from(weight);
    super::vector::wide(
        #[inline(always)]
        || {
            for s in scores.iter_mut() {
                *s = if *s == f32::NEG_INFINITY { 0.0 } else { weight * super::vector::exp(*s) };
            }
        },
    );
    scores[truth] -= weight;
    loss
}

/// As [`cross_entropy`], over the positions whose bit is set in `allowed`.
pub fn masked_cross_entropy(scores: &mut [f32], allowed: u64, truth: usize, weight: f32) -> f64 {
    mask(scores, allowed);
    cross_entropy(scores, truth, weight)
}

/// Sets the scores of positions whose bit is not set to minus infinity. Positions from 64 on have
/// no bit and keep their scores.
pub fn mask(scores: &mut [f32], allowed: u64) {
    for (i, s) in scores.iter_mut().enumerate().take(64) {
        if allowed >> i & 1 == 0 {
            *s = f32::NEG_INFINITY;
        }
    }
}
