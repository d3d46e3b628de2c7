//! The chain of choices: a network that chooses the values of a configuration one after another,
//! each given the problem and the values before it. Input: an encoded problem; output: a
//! log-probability for each candidate of its tuner space. A perceptron reads the problem; every
//! knob has a head that adds to its view of the problem a table vector for each earlier value.
//! Values without a legal completion take no part, in the loss and in scoring alike, so the
//! probabilities of a space's configurations add up to one. `solver.rs` combines chains with
//! rankers (`ranker.rs`).

use crate::features::{EncodedProblem, Featurizer};
use crate::nn::vector::{dot_within, exp, gelu, gelu_backward, wide};
use crate::nn::{
    Linear, Mlp, MlpInput, MlpScratch, ParameterLayout, Tables, masked_cross_entropy, sized, zeroed,
};
use crate::ranker::mean;
use crate::train::{Batch, Learner};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use squall_core::forecast::FamilyError;

/// Sizes of a chain.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainSizes {
    /// Width of the problem's perceptron.
    pub context: usize,
    /// Width of a head.
    pub head: usize,
    /// Share of elements dropped while training.
    pub dropout: f32,
}

impl Default for ChainSizes {
    fn default() -> ChainSizes {
        ChainSizes { context: 256, head: 128, dropout: 0.2 }
    }
}

impl ChainSizes {
    /// The default for spaces that are no more than the vectors that occurred.
    pub const OF_LISTED: ChainSizes = ChainSizes { context: 128, head: 64, dropout: 0.2 };
}

/// The layers that choose one knob's value.
#[derive(Clone, Debug)]
struct Head {
    view: Linear,
    earlier: Tables,
    out: Linear,
}

/// The chain's layers.
#[derive(Clone, Debug)]
pub struct Chain {
    sizes: ChainSizes,
    layout: ParameterLayout,
    context: Mlp,
    heads: Vec<Head>,
}

/// Buffers of one thread.
#[derive(Debug, Default)]
pub struct ChainScratch {
    mlp: MlpScratch,
    inputs: Vec<f32>,
    tokens: Vec<u16>,
    earlier: Vec<u16>,
    view: Vec<f32>,
    sums: Vec<f32>,
    weights: Vec<f32>,
    z: Vec<f32>,
    a: Vec<f32>,
    scores: Vec<f32>,
    exps: Vec<f32>,
    d: Vec<f32>,
    dcontext: Vec<f32>,
}

impl Chain {
    /// A chain for a solver.
    pub fn new(featurizer: &Featurizer, sizes: ChainSizes) -> Chain {
        let mut l = ParameterLayout::default();
        let knobs: Vec<usize> =
            featurizer.family.spec().knobs.iter().map(|k| k.values.len()).collect();
        let vocabulary = featurizer.facts.encoder.vocabulary();
        let context = Mlp::new(
            &mut l,
            "context",
            featurizer.inputs(),
            &vocabulary,
            sizes.context,
            sizes.dropout,
        );
        let head = |(k, &n): (usize, &usize)| Head {
            view: Linear::new(&mut l, &format!("head.{k}.view"), sizes.context, sizes.head, 1.0),
            earlier: Tables::new(
                &mut l,
                &format!("head.{k}.earlier"),
                &knobs[..k],
                sizes.head,
                0.4,
            ),
            out: Linear::new(&mut l, &format!("head.{k}.out"), sizes.head, n, 1.0),
        };
        let heads = knobs.iter().enumerate().map(head).collect();
        Chain { sizes, context, heads, layout: l }
    }

    /// Its sizes.
    pub fn sizes(&self) -> ChainSizes {
        self.sizes
    }

    /// Log-probabilities of all candidates of a problem: the mean over several networks.
    pub fn score(
        &self,
        members: &[Vec<f32>],
        featurizer: &Featurizer,
        encoded: &EncodedProblem,
        scratch: &mut ChainScratch,
    ) -> Vec<f32> {
        let choices = self.choices(featurizer, encoded, scratch);
        mean(members.iter().map(|p| self.walk(p, encoded, &choices, scratch)).collect())
    }

    /// For each knob, the prefixes after which a problem's candidates leave a choice. Writes the
    /// problem's inputs to `scratch.inputs`, which [`Chain::walk`] reads.
    pub fn choices(
        &self,
        featurizer: &Featurizer,
        encoded: &EncodedProblem,
        scratch: &mut ChainScratch,
    ) -> Vec<Choices> {
        featurizer.prediction_inputs(encoded, sized(&mut scratch.inputs, featurizer.inputs()));
        let c = &encoded.candidates;
        let same = |i: usize| {
            if i == 0 {
                0
            } else {
                c.row(i).iter().zip(c.row(i - 1)).take_while(|(a, b)| a == b).count()
            }
        };
        let same: Vec<usize> = (0..c.len()).map(same).collect();
        (0..self.heads.len()).map(|k| Choices::of(&same, k)).collect()
    }

    /// Log-probabilities of candidates: the sums of those of their values along every path.
    /// `scratch.inputs` holds the problem's inputs.
    pub fn walk(
        &self,
        p: &[f32],
        encoded: &EncodedProblem,
        choices: &[Choices],
        scratch: &mut ChainScratch,
    ) -> Vec<f32> {
        let (c, h) = (&encoded.candidates, self.sizes.head);
        let input = MlpInput { numbers: &scratch.inputs, tokens: &encoded.tokens, n: 1 };
        self.context.forward(p, input, None::<&mut Generator>, &mut scratch.mlp);
        let mut out = vec![0.0f32; c.len()];
        for (k, (head, choices)) in self.heads.iter().zip(choices).enumerate() {
            head.view.forward(p, &scratch.mlp.out, 1, sized(&mut scratch.view, h));
            head.out.by_output(p, &mut scratch.weights);
            let bias = head.out.bias(p);
            // In parts that stay in the cache.
            for nodes in choices.nodes.chunks(128) {
                let m = nodes.len();
                scratch.earlier.clear();
                scratch
                    .earlier
                    .extend(nodes.iter().flat_map(|n| &c.row(choices.children[n.first])[..k]));
                let z = sized(&mut scratch.z, m * h);
                head.earlier.forward_sorted(
                    p,
                    &scratch.view,
                    &scratch.earlier,
                    z,
                    &mut scratch.sums,
                );
                gelu(z, sized(&mut scratch.a, m * h));
                let (a, weights, scores, exps) =
                    (&scratch.a, &scratch.weights, &mut scratch.scores, &mut scratch.exps);
                wide(
                    #[inline(always)]
                    || {
                        scores.clear();
                        for (node, a) in nodes.iter().zip(a.chunks_exact(h)) {
                            let at = scores.len();
                            scores.extend(choices.children[node.first..node.last].iter().map(
                                |&i| {
                                    let v = c.row(i)[k] as usize;
                                    bias[v] + dot_within(a, &weights[v * h..(v + 1) * h])
                                },
                            ));
                            let top =
                                scores[at..].iter().copied().fold(f32::NEG_INFINITY, f32::max);
                            scores[at..].iter_mut().for_each(|s| *s -= top);
                        }
                        // All exponentials together, for the vectors' sake.
                        exps.clear();
                        exps.extend(scores.iter().map(|s| exp(*s)));
                        let mut at = 0;
                        for node in nodes {
                            let children = &choices.children[node.first..node.last];
                            let total = exps[at..at + children.len()].iter().sum::<f32>().ln();
                            for (b, &i) in children.iter().enumerate() {
                                let to = children.get(b + 1).copied().unwrap_or(node.end);
                                out[i..to].iter_mut().for_each(|o| *o += scores[at + b] - total);
                            }
                            at += children.len();
                        }
                    },
                );
            }
        }
        out
    }
}

/// The prefixes of one length after which there is a choice.
pub struct Choices {
    nodes: Vec<Node>,
    /// For each node in turn, the candidates at which its children begin.
    children: Vec<usize>,
}

/// A prefix: its children's places in [`Choices::children`], and the candidate after its last.
struct Node {
    first: usize,
    last: usize,
    end: usize,
}

impl Choices {
    /// Keeps the prefixes of these candidates only, which are ascending.
    pub fn retain(&mut self, rows: &[u32]) {
        let children = &self.children;
        self.nodes.retain(|n| {
            let next = rows.partition_point(|&r| (r as usize) < children[n.first]);
            rows.get(next).is_some_and(|&r| (r as usize) < n.end)
        });
    }

    /// Of prefixes of `k` values; `same` says how many values each candidate shares with the one
    /// before, in lexicographic order.
    fn of(same: &[usize], k: usize) -> Choices {
        let mut out = Choices { nodes: Vec::new(), children: Vec::new() };
        let mut first = 0;
        for i in 0..=same.len() {
            if i > 0 && (i == same.len() || same[i] < k) {
                if out.children.len() - first > 1 {
                    out.nodes.push(Node { first, last: out.children.len(), end: i });
                } else {
                    out.children.truncate(first);
                }
                first = out.children.len();
            }
            if i < same.len() && (i == 0 || same[i] <= k) {
                out.children.push(i);
            }
        }
        out
    }
}

impl Learner for Chain {
    type Scratch = ChainScratch;

    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn learn(
        &self,
        p: &[f32],
        batch: Batch,
        rng: &mut Generator,
        mut gradient: Option<&mut [f32]>,
        scratch: &mut ChainScratch,
    ) -> Result<f64, FamilyError> {
        let Batch { featurizer, problems } = batch;
        let (n, h, inputs) = (problems.len(), self.sizes.head, featurizer.inputs());
        zeroed(&mut scratch.inputs, n * inputs);
        scratch.tokens.clear();
        for (i, (encoded, _)) in problems.iter().enumerate() {
            featurizer.training_inputs(
                encoded,
                gradient.is_some(),
                rng,
                &mut scratch.inputs[i * inputs..(i + 1) * inputs],
            );
            scratch.tokens.extend(&encoded.tokens);
        }
        let training = gradient.is_some();
        let input = MlpInput { numbers: &scratch.inputs, tokens: &scratch.tokens, n };
        self.context.forward(p, input, training.then_some(rng), &mut scratch.mlp);
        let dcontext = zeroed(&mut scratch.dcontext, n * self.sizes.context);
        let mut loss = 0.0;
        let truth = |encoded: &EncodedProblem| encoded.truth.unwrap_or(0) as usize;
        for (k, head) in self.heads.iter().enumerate() {
            scratch.earlier.clear();
            scratch
                .earlier
                .extend(problems.iter().flat_map(|(c, _)| &c.candidates.row(truth(c))[..k]));
            let z = sized(&mut scratch.z, n * h);
            head.view.forward(p, &scratch.mlp.out, n, z);
            head.earlier.forward_onto(p, &scratch.earlier, z);
            gelu(z, sized(&mut scratch.a, n * h));
            let values = head.out.outputs();
            let scores = sized(&mut scratch.scores, n * values);
            head.out.forward(p, &scratch.a, n, scores);
            for ((encoded, _), scores) in problems.iter().zip(scores.chunks_exact_mut(values)) {
                let at = encoded.candidates.row(truth(encoded))[k] as usize;
                loss += masked_cross_entropy(scores, encoded.allowed[k], at, 1.0);
            }
            if let Some(g) = gradient.as_deref_mut() {
                head.out.backward(&scratch.a, n, scores, g);
                let d = sized(&mut scratch.d, n * h);
                head.out.backward_argument(p, scores, n, d, false);
                gelu_backward(z, d);
                head.view.backward(&scratch.mlp.out, n, d, g);
                head.view.backward_argument(p, d, n, dcontext, true);
                head.earlier.backward(&scratch.earlier, d, g);
            }
        }
        if let Some(g) = gradient {
            self.context.backward(p, input, dcontext, &mut scratch.mlp, g);
        }
        Ok(loss)
    }
}
