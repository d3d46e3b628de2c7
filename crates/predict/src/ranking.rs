//! Turns the log-probabilities of a problem's candidates into answers (the k most probable, with
//! probabilities) and into scores against a known answer. The baseline of the nearest neighbours,
//! whose log-probabilities need no network, is here, too.

use crate::features::{EncodedProblem, Featurizer};
use crate::memory::NOWHERE;
use crate::metrics::Outcome;
use squall_core::forecast::{Family, FamilyError, Problem};

/// The k most probable candidates, best first, as values of the knobs with their probabilities;
/// equally probable ones in the order of the candidates. Candidates with a score of minus infinity
/// are left out, because a beam search gave them up.
pub(crate) fn best(
    family: &Family,
    encoded: &EncodedProblem,
    scores: &[f32],
    k: usize,
) -> Vec<(Vec<i64>, f64)> {
    let mut order: Vec<u32> =
        (0..scores.len() as u32).filter(|&i| scores[i as usize] > f32::NEG_INFINITY).collect();
    let better =
        |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
    if k < order.len() && k > 0 {
        order.select_nth_unstable_by(k - 1, better);
    }
    order.truncate(k);
    order.sort_unstable_by(better);
    let answer = |&i: &u32| {
        (family.values(encoded.candidates.row(i as usize)), f64::from(scores[i as usize]).exp())
    };
    order.iter().map(answer).collect()
}

/// The rank of the truth, and of the first candidate that compiles to the truth's kernel.
pub(crate) fn outcome(
    featurizer: &Featurizer,
    encoded: &EncodedProblem,
    problem: &Problem,
    scores: &[f32],
) -> Result<Outcome, FamilyError> {
    let confidence = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let confidence = f64::from(confidence).exp();
    let found = encoded.truth.map(|t| t as usize).filter(|&t| scores[t] > f32::NEG_INFINITY);
    let Some(truth) = found else { return Ok(Outcome::missed(confidence)) };
    let before = |i: usize| {
        let ahead = |(j, s): &(usize, &f32)| **s > scores[i] || **s == scores[i] && *j < i;
        scores.iter().enumerate().filter(ahead).count()
    };
    let rank = before(truth);
    let instance = featurizer.family.instance(problem)?;
    let mut kernel_rank = rank;
    if !featurizer.family.spec().kernel.is_empty() {
        let kernel = instance.kernel(encoded.candidates.row(truth));
        for i in 0..scores.len() {
            if scores[i] > scores[truth] && instance.kernel(encoded.candidates.row(i)) == kernel {
                kernel_rank = kernel_rank.min(before(i));
            }
        }
    }
    Ok(Outcome {
        rank: Some(rank),
        kernel_rank: Some(kernel_rank),
        log_likelihood: f64::from(scores[truth]),
        confidence,
    })
}

/// Log-probabilities by the answers of the nearest neighbours under fixed distances: shares of
/// whole answers, a little of the product of shares of values, and a trace of even chances.
pub(crate) fn by_neighbours(
    featurizer: &Featurizer,
    encoded: &EncodedProblem,
    scratch: &mut Vec<f32>,
) -> Vec<f32> {
    let votes = featurizer.fixed_votes(encoded, scratch);
    // A device and precision that training never showed has neighbours in the other channel only.
    let (neighbours, v) = if votes[0].0.is_empty() { &votes[1] } else { &votes[0] };
    let width = featurizer.offsets.len();
    let table = &encoded.candidates.table;
    let marginal: Vec<f32> = v.values.iter().map(|s| (s + 0.01).ln()).collect();
    let product = |row: &[u16]| {
        let logs = row.iter().zip(&featurizer.offsets).map(|(&v, o)| marginal[o + v as usize]);
        0.1 * logs.sum::<f32>().exp() + 1e-9
    };
    let mut out: Vec<f32> = table.chunks_exact(width).map(product).collect();
    for (n, w) in neighbours.iter().zip(&v.weights) {
        if n.candidate != NOWHERE {
            out[n.candidate as usize] += 0.5 * w.0 + 0.5 * w.1;
        }
    }
    let total: f32 = out.iter().sum();
    out.iter().map(|x| (x / total).ln()).collect()
}
