//! Decoding of the paper's models under constraints: a beam search over the candidates of a
//! problem's tuner space, which is sorted, so that every prefix of values is a range of candidates.
//! Output: log-probabilities of candidates; those that the beam gave up have minus infinity.

use super::{Encoded, Sequence};
use crate::features::EncodedProblem;
use crate::nn::vector::log_softmax;
use crate::nn::{Attention, LstmScratch, Steps};
use squall_core::forecast::Candidates;

/// Partial answers that are kept at each step of a beam search.
const BEAM: usize = 100;

/// A partial answer: the values of the first knobs.
struct Beam {
    score: f32,
    /// The candidates that begin with its values.
    range: (usize, usize),
    /// The value that was chosen last.
    value: usize,
    /// The decoder's output and cell. Where nothing is fed back all partial answers share one
    /// state, which the first beam has.
    state: (Vec<f32>, Vec<f32>),
}

/// The values of knob `k` that lead on from a range of candidates, each with its own range.
fn values(c: &Candidates, k: usize, range: (usize, usize)) -> Vec<(u16, (usize, usize))> {
    let (mut low, end) = range;
    let mut out = Vec::new();
    while low < end {
        let value = c.row(low)[k];
        let rows = c.table[low * c.width..end * c.width].chunks_exact(c.width);
        let high = low + rows.take_while(|r| r[k] == value).count();
        out.push((value, (low, high)));
        low = high;
    }
    out
}

impl Sequence {
    /// Log-probabilities of a problem's candidates. Where values are fed back, a beam of 100
    /// partial answers is searched, and candidates that it gave up have minus infinity; where they
    /// are not, every candidate has its exact probability.
    pub fn score(&self, p: &[f32], encoded: &EncodedProblem) -> Vec<f32> {
        let c = &encoded.candidates;
        let r = self.encode(p, &encoded.tokens, 1);
        let mut out = vec![f32::NEG_INFINITY; c.len()];
        if c.is_empty() {
            return out;
        }
        let h = self.heads[0].inputs();
        let start = self.decoder.map(|_| (r.summary.clone(), r.last_cell(h).to_vec()));
        let (state, range) = (start.unwrap_or_default(), (0, c.len()));
        let mut beams = vec![Beam { score: 0.0, range, value: 0, state }];
        let kept = if self.feeds_back() { BEAM } else { usize::MAX };
        let mut scratch = LstmScratch::default();
        for k in 0..self.heads.len() {
            let n = if self.feeds_back() { beams.len() } else { 1 };
            let output = self.step(p, k, &r, &beams[..n], &mut scratch);
            let scores = self.scores(p, k, &r, &output, n);
            let mut next = Vec::new();
            for (i, b) in beams.iter().enumerate() {
                let i = if n == 1 { 0 } else { i };
                let row = &scores[i * self.heads[k].outputs()..];
                let state = if self.decoder.is_some() && (self.feeds_back() || next.is_empty()) {
                    let cell = &scratch.cells[(n + i) * h..(n + i + 1) * h];
                    (output[i * h..(i + 1) * h].to_vec(), cell.to_vec())
                } else {
                    Default::default()
                };
                next.extend(values(c, k, b.range).into_iter().map(|(value, range)| Beam {
                    score: b.score + row[value as usize],
                    range,
                    value: value as usize,
                    state: state.clone(),
                }));
            }
            if next.len() > kept {
                next.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.range.cmp(&b.range)));
                next.truncate(kept);
            }
            beams = next;
        }
        for b in beams {
            out[b.range.0] = b.score;
        }
        log_softmax(&mut out);
        out
    }

    /// The outputs that knob `k` is chosen by: the decoder's next ones, or the summary.
    fn step(
        &self,
        p: &[f32],
        k: usize,
        r: &Encoded,
        beams: &[Beam],
        scratch: &mut LstmScratch,
    ) -> Vec<f32> {
        let Some(decoder) = &self.decoder else { return r.summary.clone() };
        let (n, h) = (beams.len(), self.heads[0].inputs());
        let (mut x, mut outputs, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for b in beams {
            let row = if self.feeds_back() { b.value } else { 0 };
            x.extend_from_slice(self.fed[k].row(p, row));
            outputs.extend_from_slice(&b.state.0);
            cells.extend_from_slice(&b.state.1);
        }
        decoder.forward(p, &x, Steps { steps: 1, n }, Some((&outputs, &cells)), scratch);
        scratch.outputs[n * h..].to_vec()
    }

    /// Log-probabilities of knob `k`'s values for `n` partial answers.
    fn scores(&self, p: &[f32], k: usize, r: &Encoded, output: &[f32], n: usize) -> Vec<f32> {
        let h = self.heads[0].inputs();
        let attends = !self.attended.is_empty();
        let mut attended = vec![0.0; n * h];
        if attends {
            let (memory, size) = (&r.scratches[0].outputs[h..], Steps { steps: r.steps, n: 1 });
            let mut weights = vec![0.0; r.steps];
            for (q, out) in output.chunks_exact(h).zip(attended.chunks_exact_mut(h)) {
                Attention::forward(q, memory, size, &mut weights, out);
            }
        }
        let mut scores = self.head(p, k, output, attends.then_some(&attended), n);
        scores.chunks_exact_mut(self.heads[k].outputs()).for_each(log_softmax);
        scores
    }
}
