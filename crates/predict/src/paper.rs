//! The five sequence models of "Optimal Kernel Tuning Parameter Prediction using Deep Sequence
//! Models" (Mahmood, Khan, Afzal), for comparison. A problem is a sequence of tokens; the models
//! answer one soft-max a knob.
//!
//! Three decode value by value with an LSTM: the encoder-decoder and its variant with attention
//! feed each value back, "attention-2" does not. The hybrids read the tokens with convolutions and
//! LSTMs and give all knobs at once. Answers are constrained as in its section V (OPCS): at each
//! step only values that still lead to a candidate are taken. Where nothing is fed back the k best
//! are exact; else a beam of [`BEAM`] is searched.

use crate::case::{Case, Ground};
use crate::nn::vector::{add, log_softmax, relu};
use crate::nn::{Attention, Convolution, Layout, Linear, Lstm, LstmRoom, Matrix, cross_entropy};
use crate::solver::{Keeper, Material, Options, cases, pairs};
use crate::train::{Epoch, Learner, Lesson, Schedule, State};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use serde::{Deserialize, Serialize};
use squall_core::forecast::{FamilyError, Part};

/// Which of the five.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaperModel {
    /// LSTM encoder, LSTM decoder that is fed each value back.
    EncoderDecoder,
    /// The same, with attention over the encoder's outputs.
    Attention,
    /// Attention without feeding values back.
    Attention2,
    /// A convolution and an LSTM.
    Hybrid,
    /// Two convolutions and two bidirectional LSTMs.
    Hybrid2,
}

/// Partial answers kept at each step of a beam search.
pub const BEAM: usize = 100;
/// Width of a token's embedding.
const EMBEDDING: usize = 48;

/// A model's layers.
#[derive(Clone, Debug)]
pub struct Sequence {
    kind: PaperModel,
    layout: Layout,
    tokens: Vec<Matrix>,
    convolutions: Vec<Convolution>,
    /// One LSTM, or a pair of directions for each bidirectional layer.
    encoders: Vec<Lstm>,
    decoder: Option<Lstm>,
    /// For each knob but the last, the embeddings of its values; first that of the start.
    fed: Vec<Matrix>,
    heads: Vec<Linear>,
    /// Of attention: what the attended memory adds to each head.
    attended: Vec<Linear>,
}

/// What reading a problem leaves behind.
#[derive(Default)]
struct Reading {
    steps: usize,
    /// Arguments of the convolutions and the encoders, in turn.
    layers: Vec<Vec<f32>>,
    columns: Vec<Vec<f32>>,
    rooms: Vec<LstmRoom>,
    /// What the heads see, of the hybrids: `n x width`.
    summary: Vec<f32>,
}

/// Time backwards: the steps in opposite order.
fn reversed(x: &[f32], steps: usize) -> Vec<f32> {
    let size = x.len() / steps.max(1);
    (0..steps).rev().flat_map(|t| &x[t * size..(t + 1) * size]).copied().collect()
}

/// Two matrices of `rows` rows side by side.
fn beside(a: &[f32], b: &[f32], rows: usize) -> Vec<f32> {
    let (m, n) = (a.len() / rows.max(1), b.len() / rows.max(1));
    (0..rows)
        .flat_map(|r| a[r * m..(r + 1) * m].iter().chain(&b[r * n..(r + 1) * n]))
        .copied()
        .collect()
}

/// The halves of [`beside`].
fn apart(ab: &[f32], rows: usize) -> (Vec<f32>, Vec<f32>) {
    let w = ab.len() / rows.max(1);
    let half = |from: usize, to: usize| {
        (0..rows).flat_map(|r| &ab[r * w + from..r * w + to]).copied().collect()
    };
    (half(0, w / 2), half(w / 2, w))
}

impl Sequence {
    /// A model whose LSTMs are `hidden` wide.
    pub fn new(ground: &Ground, kind: PaperModel, hidden: usize) -> Sequence {
        let mut l = Layout::default();
        let vocabulary = ground.facts.encoder.vocabulary();
        let knobs: Vec<usize> = ground.family.spec().knobs.iter().map(|k| k.values.len()).collect();
        let tokens = vocabulary
            .iter()
            .enumerate()
            .map(|(i, &n)| l.matrix(format!("token.{i}"), n, EMBEDDING, 0.6))
            .collect();
        let conv = match kind {
            PaperModel::Hybrid => 1,
            PaperModel::Hybrid2 => 2,
            _ => 0,
        };
        let convolutions = (0..conv)
            .map(|i| Convolution::new(&mut l, &format!("convolution.{i}"), EMBEDDING, EMBEDDING))
            .collect();
        let encoders = match kind {
            PaperModel::Hybrid2 => [EMBEDDING, EMBEDDING, 2 * hidden, 2 * hidden].to_vec(),
            _ => vec![EMBEDDING],
        };
        let encoders = encoders
            .iter()
            .enumerate()
            .map(|(i, &n)| Lstm::new(&mut l, &format!("encoder.{i}"), n, hidden))
            .collect();
        let decodes = conv == 0;
        let decoder = decodes.then(|| Lstm::new(&mut l, "decoder", EMBEDDING, hidden));
        // Without feedback every step has one input of its own.
        let entries =
            |k: usize| if k == 0 || kind == PaperModel::Attention2 { 1 } else { knobs[k - 1] };
        let steps = if decodes { knobs.len() } else { 0 };
        let fed =
            (0..steps).map(|k| l.matrix(format!("fed.{k}"), entries(k), EMBEDDING, 0.6)).collect();
        let width = if kind == PaperModel::Hybrid2 { 2 * hidden } else { hidden };
        let heads = knobs
            .iter()
            .enumerate()
            .map(|(k, &n)| Linear::new(&mut l, &format!("head.{k}"), width, n, 1.0))
            .collect();
        let attends = matches!(kind, PaperModel::Attention | PaperModel::Attention2);
        let attended = if attends { &knobs[..] } else { &[] };
        let attended = attended
            .iter()
            .enumerate()
            .map(|(k, &n)| Linear::new(&mut l, &format!("attended.{k}"), hidden, n, 1.0))
            .collect();
        Sequence { kind, tokens, convolutions, encoders, decoder, fed, heads, attended, layout: l }
    }

    /// Width of its LSTMs.
    pub(crate) fn hidden(&self) -> usize {
        self.encoders[0].hidden()
    }

    fn feeds_back(&self) -> bool {
        matches!(self.kind, PaperModel::EncoderDecoder | PaperModel::Attention)
    }

    /// Reads problems: tokens are `n x tokens`.
    fn read(&self, p: &[f32], tokens: &[u16], n: usize) -> Reading {
        let steps = self.tokens.len();
        let mut r = Reading { steps, ..Reading::default() };
        let mut x = Vec::with_capacity(steps * n * EMBEDDING);
        for (t, table) in self.tokens.iter().enumerate() {
            for s in 0..n {
                x.extend_from_slice(table.row(p, tokens[s * steps + t] as usize));
            }
        }
        for c in &self.convolutions {
            let mut columns = Vec::new();
            let mut y = vec![0.0; steps * n * EMBEDDING];
            c.forward(p, &x, steps, n, &mut columns, &mut y);
            relu(&mut y);
            r.layers.push(std::mem::replace(&mut x, y));
            r.columns.push(columns);
        }
        if self.encoders.len() == 1 {
            let mut room = LstmRoom::default();
            self.encoders[0].forward(p, &x, steps, n, None, &mut room);
            r.summary = room.outputs[steps * n * self.encoders[0].hidden()..].to_vec();
            r.layers.push(x);
            r.rooms.push(room);
            return r;
        }
        for pair in self.encoders.chunks_exact(2) {
            let h = pair[0].hidden();
            let (mut there, mut back) = (LstmRoom::default(), LstmRoom::default());
            let backwards = reversed(&x, steps);
            pair[0].forward(p, &x, steps, n, None, &mut there);
            pair[1].forward(p, &backwards, steps, n, None, &mut back);
            // Each direction's last output is what it made of the whole.
            r.summary = beside(&there.outputs[steps * n * h..], &back.outputs[steps * n * h..], n);
            let y = beside(
                &there.outputs[n * h..],
                &reversed(&back.outputs[n * h..], steps),
                steps * n,
            );
            r.layers.push(std::mem::replace(&mut x, y));
            r.layers.push(backwards);
            r.rooms.extend([there, back]);
        }
        r
    }

    /// Backwards through [`Sequence::read`]: `dsummary` is the summary's gradient, `dmemory` that
    /// of every output of a single encoder, `dcell` that of its last cell.
    #[allow(clippy::too_many_arguments)] // what reading took, and the gradients
    fn unread(
        &self,
        p: &[f32],
        tokens: &[u16],
        n: usize,
        r: &mut Reading,
        dsummary: &[f32],
        dmemory: Vec<f32>,
        dcell: Vec<f32>,
        g: &mut [f32],
    ) {
        let steps = r.steps;
        let convolved = self.convolutions.len();
        let mut dx = vec![0.0; steps * n * EMBEDDING];
        if self.encoders.len() == 1 {
            let (mut dh, mut dc) = (dsummary.to_vec(), dcell);
            self.encoders[0].backward(
                p,
                &r.layers[convolved],
                steps,
                n,
                &dmemory,
                (&mut dh, &mut dc),
                &mut r.rooms[0],
                g,
                Some(&mut dx),
            );
        } else {
            let mut dy: Option<Vec<f32>> = None;
            for (i, pair) in self.encoders.chunks_exact(2).enumerate().rev() {
                let h = pair[0].hidden();
                let size = steps * n * h;
                let (mut there, mut back) = (vec![0.0; size], vec![0.0; size]);
                let (mut dh, mut dh_back) = (vec![0.0; n * h], vec![0.0; n * h]);
                match dy.take() {
                    None => (dh, dh_back) = apart(dsummary, n),
                    Some(d) => {
                        let (a, b) = apart(&d, steps * n);
                        (there, back) = (a, reversed(&b, steps));
                    }
                }
                let inputs = r.layers[convolved + 2 * i].len();
                let (mut d, mut d_back) = (vec![0.0; inputs], vec![0.0; inputs]);
                let (mut dc, mut dc_back) = (vec![0.0; n * h], vec![0.0; n * h]);
                let rooms = &mut r.rooms[2 * i..2 * i + 2];
                pair[0].backward(
                    p,
                    &r.layers[convolved + 2 * i],
                    steps,
                    n,
                    &there,
                    (&mut dh, &mut dc),
                    &mut rooms[0],
                    g,
                    Some(&mut d),
                );
                pair[1].backward(
                    p,
                    &r.layers[convolved + 2 * i + 1],
                    steps,
                    n,
                    &back,
                    (&mut dh_back, &mut dc_back),
                    &mut rooms[1],
                    g,
                    Some(&mut d_back),
                );
                add(&reversed(&d_back, steps), &mut d);
                dy = Some(d);
            }
            dx = dy.unwrap_or_default();
        }
        for (i, c) in self.convolutions.iter().enumerate().rev() {
            // What the rectifier let through: the layer after holds its result.
            dx.iter_mut().zip(&r.layers[i + 1]).for_each(|(d, y)| {
                if *y <= 0.0 {
                    *d = 0.0
                }
            });
            let mut before = vec![0.0; dx.len()];
            c.backward(p, steps, n, &r.columns[i], &dx, g, &mut before);
            dx = before;
        }
        for (t, table) in self.tokens.iter().enumerate() {
            for s in 0..n {
                add(
                    &dx[(t * n + s) * EMBEDDING..(t * n + s + 1) * EMBEDDING],
                    table.row_mut(g, tokens[s * steps + t] as usize),
                );
            }
        }
    }

    /// The decoder's inputs for whole answers, `knobs x n x EMBEDDING`, and the row of each table.
    fn feed(&self, p: &[f32], answers: &[&[u16]]) -> (Vec<f32>, Vec<usize>) {
        let (mut x, mut rows) = (Vec::new(), Vec::new());
        for (k, table) in self.fed.iter().enumerate() {
            for a in answers {
                let row = if k == 0 || !self.feeds_back() { 0 } else { a[k - 1] as usize };
                x.extend_from_slice(table.row(p, row));
                rows.push(row);
            }
        }
        (x, rows)
    }

    /// Scores of a knob's values, from the decoder's output (or the summary) and what it attends
    /// to.
    fn head(
        &self,
        p: &[f32],
        k: usize,
        output: &[f32],
        attended: Option<&[f32]>,
        n: usize,
    ) -> Vec<f32> {
        let mut scores = vec![0.0; n * self.heads[k].outputs()];
        self.heads[k].forward(p, output, n, &mut scores);
        if let Some(a) = attended {
            self.attended[k].forward_onto(p, a, n, &mut scores, true);
        }
        scores
    }

    /// Log-probabilities of candidates; minus infinity for those that the beam lost.
    pub fn score(&self, p: &[f32], case: &Case) -> Vec<f32> {
        let c = &case.candidates;
        let mut r = self.read(p, &case.tokens, 1);
        let mut out = vec![f32::NEG_INFINITY; c.len()];
        if c.is_empty() {
            return out;
        }
        // A beam: score, its range among the sorted candidates, output and cell.
        struct Beam {
            score: f32,
            range: (usize, usize),
            value: usize,
            state: (Vec<f32>, Vec<f32>),
        }
        let h = self.heads[0].inputs();
        let start = self.decoder.map(|_| {
            let cells = &r.rooms[0].cells;
            (r.summary.clone(), cells[cells.len() - h..].to_vec())
        });
        let memory: &[f32] = if self.attended.is_empty() { &[] } else { &r.rooms[0].outputs[h..] };
        let mut beams = vec![Beam {
            score: 0.0,
            range: (0, c.len()),
            value: 0,
            state: start.clone().unwrap_or_default(),
        }];
        // Without feedback all beams share one state, and none need be given up.
        let kept = if self.feeds_back() { BEAM } else { usize::MAX };
        let mut room = LstmRoom::default();
        for k in 0..self.heads.len() {
            let n = if self.feeds_back() { beams.len() } else { 1 };
            let output = match &self.decoder {
                None => std::mem::take(&mut r.summary),
                Some(decoder) => {
                    let (mut x, mut outputs, mut cells) = (Vec::new(), Vec::new(), Vec::new());
                    for b in &beams[..n] {
                        x.extend_from_slice(
                            self.fed[k].row(p, if self.feeds_back() { b.value } else { 0 }),
                        );
                        outputs.extend_from_slice(&b.state.0);
                        cells.extend_from_slice(&b.state.1);
                    }
                    decoder.forward(p, &x, 1, n, Some((&outputs, &cells)), &mut room);
                    room.outputs[n * h..].to_vec()
                }
            };
            let mut attended = vec![0.0; n * h];
            if !memory.is_empty() {
                let mut weights = vec![0.0; r.steps];
                for (q, out) in output.chunks_exact(h).zip(attended.chunks_exact_mut(h)) {
                    Attention::forward(q, memory, r.steps, 1, &mut weights, out);
                }
            }
            let mut scores = self.head(p, k, &output, (!memory.is_empty()).then_some(&attended), n);
            scores.chunks_exact_mut(self.heads[k].outputs()).for_each(log_softmax);
            let mut next = Vec::new();
            for (i, b) in beams.iter().enumerate() {
                let i = if n == 1 { 0 } else { i };
                let row = &scores[i * self.heads[k].outputs()..];
                // One beam's state is all's where nothing is fed back.
                let state = if self.decoder.is_some() && (self.feeds_back() || next.is_empty()) {
                    let cell = &room.cells[(n + i) * h..(n + i + 1) * h];
                    (output[i * h..(i + 1) * h].to_vec(), cell.to_vec())
                } else {
                    Default::default()
                };
                // The values that lead on are those of the candidates in the range.
                let mut low = b.range.0;
                while low < b.range.1 {
                    let value = c.row(low)[k];
                    let high = low
                        + c.table[low * c.width..b.range.1 * c.width]
                            .chunks_exact(c.width)
                            .take_while(|r| r[k] == value)
                            .count();
                    next.push(Beam {
                        score: b.score + row[value as usize],
                        range: (low, high),
                        value: value as usize,
                        state: state.clone(),
                    });
                    low = high;
                }
            }
            if next.len() > kept {
                next.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.range.cmp(&b.range)));
                next.truncate(kept);
            }
            if self.decoder.is_none() {
                r.summary = output;
            }
            beams = next;
        }
        for b in beams {
            out[b.range.0] = b.score;
        }
        log_softmax(&mut out);
        out
    }
}

impl Learner for Sequence {
    type Room = ();

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn learn(
        &self,
        p: &[f32],
        lesson: Lesson,
        _: &mut Generator,
        gradient: Option<&mut [f32]>,
        (): &mut (),
    ) -> Result<f64, FamilyError> {
        let cases = lesson.cases;
        let n = cases.len();
        let tokens: Vec<u16> = cases.iter().flat_map(|(c, _)| c.tokens.iter().copied()).collect();
        let answers: Vec<&[u16]> =
            cases.iter().map(|(c, _)| c.candidates.row(c.truth.unwrap_or(0) as usize)).collect();
        let mut r = self.read(p, &tokens, n);
        let h = self.heads[0].inputs();
        let size = n * h;
        let mut decoder_room = LstmRoom::default();
        let (fed, fed_rows) = self.feed(p, &answers);
        if let Some(d) = &self.decoder {
            let cells = &r.rooms[0].cells;
            d.forward(
                p,
                &fed,
                self.heads.len(),
                n,
                Some((&r.summary, &cells[cells.len() - size..])),
                &mut decoder_room,
            );
        }
        let attends = !self.attended.is_empty();
        let mut g_room = gradient;
        let mut dsummary = vec![0.0; size];
        let mut dmemory = vec![0.0; if self.encoders.len() == 1 { r.steps * size } else { 0 }];
        let mut doutputs =
            vec![0.0; if self.decoder.is_some() { self.heads.len() * size } else { 0 }];
        let mut loss = 0.0;
        for k in 0..self.heads.len() {
            let output = if self.decoder.is_some() {
                &decoder_room.outputs[(k + 1) * size..(k + 2) * size]
            } else {
                &r.summary[..]
            };
            let (mut weights, mut attended) = (vec![0.0; n * r.steps], vec![0.0; size]);
            let memory = if attends { &r.rooms[0].outputs[size..] } else { &[] };
            if attends {
                Attention::forward(output, memory, r.steps, n, &mut weights, &mut attended);
            }
            let mut scores = self.head(p, k, output, attends.then_some(&attended), n);
            for (row, a) in scores.chunks_exact_mut(self.heads[k].outputs()).zip(&answers) {
                loss += cross_entropy(row, a[k] as usize, 1.0);
            }
            let Some(g) = g_room.as_deref_mut() else { continue };
            self.heads[k].backward(output, n, &scores, g);
            let d = if self.decoder.is_some() {
                &mut doutputs[k * size..(k + 1) * size]
            } else {
                &mut dsummary[..]
            };
            self.heads[k].backward_argument(p, &scores, n, d, true);
            if attends {
                self.attended[k].backward(&attended, n, &scores, g);
                let mut dattended = vec![0.0; size];
                self.attended[k].backward_argument(p, &scores, n, &mut dattended, false);
                Attention::backward(
                    output,
                    memory,
                    r.steps,
                    n,
                    &weights,
                    &dattended,
                    d,
                    &mut dmemory,
                );
            }
        }
        let Some(g) = g_room else { return Ok(loss) };
        let mut dcell = vec![0.0; size];
        if let Some(d) = &self.decoder {
            let mut dfed = vec![0.0; fed.len()];
            d.backward(
                p,
                &fed,
                self.heads.len(),
                n,
                &doutputs,
                (&mut dsummary, &mut dcell),
                &mut decoder_room,
                g,
                Some(&mut dfed),
            );
            for (i, (d, &row)) in dfed.chunks_exact(EMBEDDING).zip(&fed_rows).enumerate() {
                add(d, self.fed[i / n].row_mut(g, row));
            }
        }
        self.unread(p, &tokens, n, &mut r, &dsummary, dmemory, dcell, g);
        Ok(loss)
    }
}

/// A model trained on the examples of one solver, as the paper does for each row.
#[derive(Debug)]
pub struct Trained {
    ground: Ground,
    model: Sequence,
    parameters: Vec<f32>,
    /// Every epoch of its training.
    pub curve: Vec<Epoch>,
}

/// Width of the LSTMs, where not told otherwise.
pub const LSTM: usize = 128;
/// Passes over the data at most, where not told otherwise.
pub const EPOCHS: usize = 30;

impl Trained {
    /// Trains `kind`; `go_on` is told the epochs so far and the share of the next that is done, and
    /// ends training early by saying no.
    pub(crate) fn train(
        m: &Material,
        kind: PaperModel,
        keeper: &mut Keeper,
        go_on: &mut dyn FnMut(&[Epoch], f64) -> bool,
    ) -> Result<Trained, FamilyError> {
        let options = m.options;
        let (training, validation) = (m.of(Part::Train), m.of(Part::Validation));
        let ground = Ground::learn(m.family.clone(), &training, &[], None)?;
        let model = Sequence::new(&ground, kind, options.lstm);
        let made = [&training, &validation].map(|e| cases(&ground, e, options.threads, None));
        let [learned, held] = made;
        let (learned, held) = (learned?, held?);
        let (learned, held) = (pairs(&learned, &training), pairs(&held, &validation));
        let Options { epochs: (_, epochs), seed, threads, .. } = *options;
        // On a few hundred examples batches of 128 would be too few steps.
        let batch = (learned.len() / 32).clamp(16, 128);
        let schedule = Schedule {
            epochs,
            until: epochs,
            batch,
            rate: 3e-3,
            decay: 0.01,
            memory: 0.0,
            patience: 6,
            seed,
            threads,
        };
        let mut ask = |s: &State, within: f64| go_on(&s.curve, within);
        let state = keeper.train(
            (&model, "sequence model", 0),
            &ground,
            (&learned, &held),
            &schedule,
            &mut ask,
        )?;
        Ok(Trained { ground, model, parameters: state.best, curve: state.curve })
    }

    /// Of what a file holds; `parameters` are as many as the model asks for.
    pub(crate) fn new(
        ground: Ground,
        model: Sequence,
        parameters: Vec<f32>,
        curve: Vec<Epoch>,
    ) -> Trained {
        Trained { ground, model, parameters, curve }
    }

    pub(crate) fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The layers, and what they hold.
    pub(crate) fn network(&self) -> (&Sequence, &[f32]) {
        (&self.model, &self.parameters)
    }

    /// Log-probabilities of a case's candidates.
    pub(crate) fn score(&self, case: &Case) -> Vec<f32> {
        self.model.score(&self.parameters, case)
    }
}
