//! The five sequence models of "Optimal Kernel Tuning Parameter Prediction using Deep Sequence
//! Models" (Mahmood, Khan, Afzal), for comparison with our own. Input: a problem as a sequence of
//! tokens; output: one soft-max for each knob.
//!
//! Three models decode value by value with an LSTM: the encoder-decoder and its variant with
//! attention feed each value back, "attention-2" does not. The hybrids read the tokens with
//! convolutions and LSTMs and give all knobs at once. Answers are constrained as in the paper's
//! section V (OPCS): at each step only values that still lead to a candidate are taken (`beam.rs`).

mod beam;

use crate::features::{EncodedProblem, Featurizer};
use crate::nn::vector::{add, relu};
use crate::nn::{
    Attention, AttentionGradients, Convolution, Linear, Lstm, LstmGradients, LstmScratch, Matrix,
    ParameterLayout, Steps, cross_entropy,
};
use crate::options::{Options, PaperModel};
use crate::train::{Batch, Epoch, Learner, Problems, Schedule, State};
use crate::trainer::{Job, Trainer, TrainingData, encode_all, labelled};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use squall_core::forecast::{FamilyError, Part};

/// Width of a token's embedding.
const EMBEDDING: usize = 48;

/// A model's layers.
#[derive(Clone, Debug)]
pub struct Sequence {
    kind: PaperModel,
    layout: ParameterLayout,
    tokens: Vec<Matrix>,
    convolutions: Vec<Convolution>,
    /// One LSTM, or a pair of directions for each bidirectional layer.
    encoders: Vec<Lstm>,
    decoder: Option<Lstm>,
    /// For each knob the embeddings that the decoder is fed: at the first knob that of the start,
    /// later those of the values of the knob before.
    fed: Vec<Matrix>,
    heads: Vec<Linear>,
    /// In the models with attention, the layers by which the attended memory adds to each head.
    attended: Vec<Linear>,
}

/// The values that encoding problems leaves for decoding and for the backward pass.
#[derive(Default)]
struct Encoded {
    /// Tokens of a problem.
    steps: usize,
    /// Problems.
    n: usize,
    /// The arguments of the convolutions and the encoders, in turn.
    layers: Vec<Vec<f32>>,
    columns: Vec<Vec<f32>>,
    scratches: Vec<LstmScratch>,
    /// The last outputs of the encoders: `n x width`. The heads of the hybrids read it, and the
    /// decoders of the others begin with it.
    summary: Vec<f32>,
}

impl Encoded {
    fn size(&self) -> Steps {
        Steps { steps: self.steps, n: self.n }
    }

    /// The last cell of a single encoder of width `h`.
    fn last_cell(&self, h: usize) -> &[f32] {
        let cells = &self.scratches[0].cells;
        &cells[cells.len() - self.n * h..]
    }
}

/// The gradients of the values that encoding gave.
struct EncodedGradient {
    /// The gradient of the summary.
    summary: Vec<f32>,
    /// The gradient of every output of a single encoder.
    memory: Vec<f32>,
    /// The gradient of its last cell.
    cell: Vec<f32>,
}

/// The steps of a sequence in opposite order.
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

/// The left and the right half of a matrix of `rows` rows; the inverse of [`beside`].
fn apart(ab: &[f32], rows: usize) -> (Vec<f32>, Vec<f32>) {
    let w = ab.len() / rows.max(1);
    let half = |from: usize, to: usize| {
        (0..rows).flat_map(|r| &ab[r * w + from..r * w + to]).copied().collect()
    };
    (half(0, w / 2), half(w / 2, w))
}

impl Sequence {
    /// A model whose LSTMs are `hidden` wide.
    pub fn new(featurizer: &Featurizer, kind: PaperModel, hidden: usize) -> Sequence {
        let mut l = ParameterLayout::default();
        let vocabulary = featurizer.facts.encoder.vocabulary();
        let knobs: Vec<usize> =
            featurizer.family.spec().knobs.iter().map(|k| k.values.len()).collect();
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

    /// Encodes problems, whose tokens are `n x tokens`.
    fn encode(&self, p: &[f32], tokens: &[u16], n: usize) -> Encoded {
        let steps = self.tokens.len();
        let size = Steps { steps, n };
        let mut r = Encoded { steps, n, ..Encoded::default() };
        let mut x = Vec::with_capacity(steps * n * EMBEDDING);
        for (t, table) in self.tokens.iter().enumerate() {
            for s in 0..n {
                x.extend_from_slice(table.row(p, tokens[s * steps + t] as usize));
            }
        }
        for c in &self.convolutions {
            let mut columns = Vec::new();
            let mut y = vec![0.0; steps * n * EMBEDDING];
            c.forward(p, &x, size, &mut columns, &mut y);
            relu(&mut y);
            r.layers.push(std::mem::replace(&mut x, y));
            r.columns.push(columns);
        }
        if self.encoders.len() == 1 {
            let mut scratch = LstmScratch::default();
            self.encoders[0].forward(p, &x, size, None, &mut scratch);
            r.summary = scratch.outputs[steps * n * self.encoders[0].hidden()..].to_vec();
            r.layers.push(x);
            r.scratches.push(scratch);
            return r;
        }
        for pair in self.encoders.chunks_exact(2) {
            let h = pair[0].hidden();
            let (mut there, mut back) = (LstmScratch::default(), LstmScratch::default());
            let backwards = reversed(&x, steps);
            pair[0].forward(p, &x, size, None, &mut there);
            pair[1].forward(p, &backwards, size, None, &mut back);
            // Each direction's last output has seen the whole sequence.
            r.summary = beside(&there.outputs[steps * n * h..], &back.outputs[steps * n * h..], n);
            let y = beside(
                &there.outputs[n * h..],
                &reversed(&back.outputs[n * h..], steps),
                steps * n,
            );
            r.layers.push(std::mem::replace(&mut x, y));
            r.layers.push(backwards);
            r.scratches.extend([there, back]);
        }
        r
    }

    /// Backwards through [`Sequence::encode`]: adds the gradients of the parameters to `g`.
    fn encode_backward(
        &self,
        p: &[f32],
        tokens: &[u16],
        r: &mut Encoded,
        gradient: EncodedGradient,
        g: &mut [f32],
    ) {
        let (steps, n) = (r.steps, r.n);
        let mut dx = if self.encoders.len() == 1 {
            let EncodedGradient { summary: mut dh, memory, cell: mut dc } = gradient;
            let mut dx = vec![0.0; steps * n * EMBEDDING];
            let gradients = LstmGradients {
                outputs: &memory,
                last: (&mut dh, &mut dc),
                parameters: &mut *g,
                argument: Some(&mut dx),
            };
            let x = &r.layers[self.convolutions.len()];
            self.encoders[0].backward(p, x, Steps { steps, n }, &mut r.scratches[0], gradients);
            dx
        } else {
            self.bidirectional_backward(p, r, &gradient.summary, g)
        };
        for (i, c) in self.convolutions.iter().enumerate().rev() {
            // The argument of the layer after is the rectifier's result: where that is zero,
            // nothing is passed on.
            dx.iter_mut().zip(&r.layers[i + 1]).for_each(|(d, y)| {
                if *y <= 0.0 {
                    *d = 0.0
                }
            });
            let mut before = vec![0.0; dx.len()];
            c.backward(p, r.size(), &r.columns[i], &dx, g, &mut before);
            dx = before;
        }
        for (t, table) in self.tokens.iter().enumerate() {
            for s in 0..n {
                let d = &dx[(t * n + s) * EMBEDDING..(t * n + s + 1) * EMBEDDING];
                add(d, table.row_mut(g, tokens[s * steps + t] as usize));
            }
        }
    }

    /// Backwards through the bidirectional encoders; gives back the gradient of the first one's
    /// argument.
    fn bidirectional_backward(
        &self,
        p: &[f32],
        r: &mut Encoded,
        dsummary: &[f32],
        g: &mut [f32],
    ) -> Vec<f32> {
        let (steps, n, size) = (r.steps, r.n, r.size());
        let mut dy: Option<Vec<f32>> = None;
        for (i, pair) in self.encoders.chunks_exact(2).enumerate().rev() {
            let h = pair[0].hidden();
            let (mut there, mut back) = (vec![0.0; steps * n * h], vec![0.0; steps * n * h]);
            let (mut dh, mut dh_back) = (vec![0.0; n * h], vec![0.0; n * h]);
            match dy.take() {
                None => (dh, dh_back) = apart(dsummary, n),
                Some(d) => {
                    let (a, b) = apart(&d, steps * n);
                    (there, back) = (a, reversed(&b, steps));
                }
            }
            let first = self.convolutions.len() + 2 * i;
            let directions = [(there, dh), (back, dh_back)];
            let mut arguments = Vec::new();
            for (k, (outputs, mut dh)) in directions.into_iter().enumerate() {
                let x = &r.layers[first + k];
                let (mut d, mut dc) = (vec![0.0; x.len()], vec![0.0; n * h]);
                let gradients = LstmGradients {
                    outputs: &outputs,
                    last: (&mut dh, &mut dc),
                    parameters: &mut *g,
                    argument: Some(&mut d),
                };
                pair[k].backward(p, x, size, &mut r.scratches[2 * i + k], gradients);
                arguments.push(d);
            }
            let back = arguments.pop().unwrap_or_default();
            let mut d = arguments.pop().unwrap_or_default();
            add(&reversed(&back, steps), &mut d);
            dy = Some(d);
        }
        dy.unwrap_or_default()
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

    /// The losses of one knob's answers, one for each problem. With a gradient, those of the head's
    /// parameters, of its output and of the attended memory are added to that.
    fn head_losses(
        &self,
        p: &[f32],
        k: usize,
        r: &Encoded,
        output: &[f32],
        answers: &[&[u16]],
        gradient: Option<HeadGradient>,
    ) -> Vec<f64> {
        let (n, h) = (r.n, self.heads[0].inputs());
        let size = n * h;
        let attends = !self.attended.is_empty();
        let (mut weights, mut attended) = (vec![0.0; n * r.steps], vec![0.0; size]);
        let memory = if attends { &r.scratches[0].outputs[size..] } else { &[] };
        if attends {
            Attention::forward(output, memory, r.size(), &mut weights, &mut attended);
        }
        let mut scores = self.head(p, k, output, attends.then_some(&attended), n);
        let rows = scores.chunks_exact_mut(self.heads[k].outputs()).zip(answers);
        let losses = rows.map(|(row, a)| cross_entropy(row, a[k] as usize, 1.0)).collect();
        let Some(HeadGradient { parameters: g, output: d, memory: dmemory }) = gradient else {
            return losses;
        };
        self.heads[k].backward(output, n, &scores, g);
        self.heads[k].backward_argument(p, &scores, n, d, true);
        if attends {
            self.attended[k].backward(&attended, n, &scores, g);
            let mut dattended = vec![0.0; size];
            self.attended[k].backward_argument(p, &scores, n, &mut dattended, false);
            let gradients = AttentionGradients { query: d, memory: dmemory };
            Attention::backward(output, memory, r.size(), &weights, &dattended, gradients);
        }
        losses
    }
}

/// Where the gradients of a head are added.
struct HeadGradient<'a> {
    parameters: &'a mut [f32],
    output: &'a mut [f32],
    memory: &'a mut [f32],
}

impl Learner for Sequence {
    type Scratch = ();

    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn learn(
        &self,
        p: &[f32],
        batch: Batch,
        _: &mut Generator,
        mut gradient: Option<&mut [f32]>,
        _: &mut (),
    ) -> Result<f64, FamilyError> {
        let problems = batch.problems;
        let n = problems.len();
        let tokens: Vec<u16> =
            problems.iter().flat_map(|(c, _)| c.tokens.iter().copied()).collect();
        let answers: Vec<&[u16]> =
            problems.iter().map(|(c, _)| c.candidates.row(c.truth.unwrap_or(0) as usize)).collect();
        let mut r = self.encode(p, &tokens, n);
        let (h, knobs) = (self.heads[0].inputs(), self.heads.len());
        let (size, decoded) = (n * h, Steps { steps: knobs, n });
        let mut decoder_scratch = LstmScratch::default();
        let (fed, fed_rows) = self.feed(p, &answers);
        if let Some(d) = &self.decoder {
            let start = Some((&r.summary[..], r.last_cell(h)));
            d.forward(p, &fed, decoded, start, &mut decoder_scratch);
        }
        let memory = if self.encoders.len() == 1 { r.steps * size } else { 0 };
        let zeros = |len: usize| vec![0.0; len];
        let mut d =
            EncodedGradient { summary: zeros(size), memory: zeros(memory), cell: zeros(size) };
        let mut doutputs = zeros(if self.decoder.is_some() { knobs * size } else { 0 });
        let mut loss = 0.0;
        for k in 0..knobs {
            // Without a decoder all heads read the summary.
            let (output, doutput) = if self.decoder.is_some() {
                let output = &decoder_scratch.outputs[(k + 1) * size..(k + 2) * size];
                (output, &mut doutputs[k * size..(k + 1) * size])
            } else {
                (&r.summary[..], &mut d.summary[..])
            };
            let head = gradient.as_deref_mut().map(|parameters| HeadGradient {
                parameters,
                output: doutput,
                memory: &mut d.memory,
            });
            for l in self.head_losses(p, k, &r, output, &answers, head) {
                loss += l;
            }
        }
        let Some(g) = gradient else { return Ok(loss) };
        if let Some(decoder) = &self.decoder {
            let mut dfed = zeros(fed.len());
            let gradients = LstmGradients {
                outputs: &doutputs,
                last: (&mut d.summary, &mut d.cell),
                parameters: &mut *g,
                argument: Some(&mut dfed),
            };
            decoder.backward(p, &fed, decoded, &mut decoder_scratch, gradients);
            for (i, (d, &row)) in dfed.chunks_exact(EMBEDDING).zip(&fed_rows).enumerate() {
                add(d, self.fed[i / n].row_mut(g, row));
            }
        }
        self.encode_backward(p, &tokens, &mut r, d, g);
        Ok(loss)
    }
}

/// A model trained on the examples of one solver on one device in one precision, as in the paper.
#[derive(Debug)]
pub struct Trained {
    featurizer: Featurizer,
    model: Sequence,
    parameters: Vec<f32>,
    /// Every epoch of its training.
    pub curve: Vec<Epoch>,
}

impl Trained {
    /// Trains `kind`. `go_on` is given the epochs so far and the share of the next that is done; it
    /// ends training early by returning false.
    pub(crate) fn train(
        m: &TrainingData,
        kind: PaperModel,
        trainer: &mut Trainer,
        go_on: &mut dyn FnMut(&[Epoch], f64) -> bool,
    ) -> Result<Trained, FamilyError> {
        let options = m.options;
        let (training, validation) = (m.of(Part::Train), m.of(Part::Validation));
        let featurizer = Featurizer::learn(m.family.clone(), &training, &[], None)?;
        let model = Sequence::new(&featurizer, kind, options.lstm);
        let encode = |examples: &[_]| encode_all(&featurizer, examples, options.threads, None);
        let (learned, held) = (encode(&training)?, encode(&validation)?);
        let (learned, held) = (labelled(&learned, &training), labelled(&held, &validation));
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
        let problems = Problems { learned: &learned, held: &held };
        let job = Job { network: "sequence model", member: 0, problems, schedule };
        let mut ask = |s: &State, within: f64| go_on(&s.curve, within);
        let state = trainer.train(&model, &featurizer, &job, &mut ask)?;
        Ok(Trained { featurizer, model, parameters: state.best, curve: state.curve })
    }

    /// The model of what a file holds; there are as many `parameters` as the layout has.
    pub(crate) fn new(
        featurizer: Featurizer,
        model: Sequence,
        parameters: Vec<f32>,
        curve: Vec<Epoch>,
    ) -> Trained {
        Trained { featurizer, model, parameters, curve }
    }

    pub(crate) fn featurizer(&self) -> &Featurizer {
        &self.featurizer
    }

    /// The layers, and what they hold.
    pub(crate) fn network(&self) -> (&Sequence, &[f32]) {
        (&self.model, &self.parameters)
    }

    /// Log-probabilities of a problem's candidates.
    pub(crate) fn score(&self, encoded: &EncodedProblem) -> Vec<f32> {
        self.model.score(&self.parameters, encoded)
    }
}
