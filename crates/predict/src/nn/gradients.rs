//! Tests of the layers of the predictors' networks (`layer.rs`, `sequence.rs`, `loss.rs`): every
//! hand-derived gradient is compared with central differences of the loss, on random sizes.

use super::*;
use proptest::prelude::*;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus as Generator;

/// Compares the gradient of a function of many numbers with central differences of losses that are
/// summed in f64, for up to 60 of the numbers.
pub fn check(what: &str, at: &[f32], gradient: &[f32], loss: &mut dyn FnMut(&[f32]) -> f64) {
    assert_eq!(at.len(), gradient.len());
    let scale = gradient.iter().map(|g| g.abs()).fold(0.0f32, f32::max).max(0.05);
    let step = at.len().div_ceil(60).max(1);
    for i in (0..at.len()).step_by(step) {
        let mut x = at.to_vec();
        let h = 4e-3f32;
        x[i] = at[i] + h;
        let above = loss(&x);
        x[i] = at[i] - h;
        let below = loss(&x);
        let slope = ((above - below) / (2.0 * f64::from(h))) as f32;
        assert!(
            (slope - gradient[i]).abs() <= 0.03 * scale,
            "{what}[{i}]: gradient {}, slope {slope}",
            gradient[i]
        );
    }
}

/// Numbers drawn evenly from -1..1.
pub fn numbers(rng: &mut Generator, n: usize) -> Vec<f32> {
    (0..n).map(|_| rng.random_range(-1.0f32..1.0)).collect()
}

fn weighted(y: &[f32], w: &[f32]) -> f64 {
    y.iter().zip(w).map(|(y, w)| f64::from(*y) * f64::from(*w)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn linear(n in 1usize..5, inputs in 1usize..7, outputs in 1usize..7, seed: u64) {
        let mut rng = Generator::seed_from_u64(seed);
        let mut layout = ParameterLayout::default();
        let l = Linear::new(&mut layout, "l", inputs, outputs, 1.0);
        let mut p = layout.initial(&mut rng);
        p.iter_mut().for_each(|p| *p += 0.1); // so that biases are not zero
        let (x, w) = (numbers(&mut rng, n * inputs), numbers(&mut rng, n * outputs));
        let mut y = vec![0.0; n * outputs];
        let mut g = vec![0.0; p.len()];
        l.backward(&x, n, &w, &mut g);
        let mut dx = vec![0.0; x.len()];
        l.backward_argument(&p, &w, n, &mut dx, false);
        check("linear parameters", &p, &g, &mut |p| {
            l.forward(p, &x, n, &mut y);
            weighted(&y, &w)
        });
        check("linear argument", &x, &dx, &mut |x| {
            l.forward(&p, x, n, &mut y);
            weighted(&y, &w)
        });
    }

    #[test]
    fn perceptron(
        n in 1usize..5,
        inputs in 1usize..6,
        width in 1usize..20,
        dropout: bool,
        seed: u64,
    ) {
        let mut rng = Generator::seed_from_u64(seed);
        let mut layout = ParameterLayout::default();
        let m = Mlp::new(&mut layout, "m", inputs, &[3, 2], width, 0.3);
        let p = layout.initial(&mut rng);
        let (x, w) = (numbers(&mut rng, n * inputs), numbers(&mut rng, n * width));
        let tokens: Vec<u16> = (0..n).flat_map(|i| [(i % 3) as u16, (i % 2) as u16]).collect();
        let input = MlpInput { numbers: &x, tokens: &tokens, n };
        let mut scratch = MlpScratch::default();
        // The same generator draws the same elements to drop.
        let forward = |p: &[f32], scratch: &mut MlpScratch| {
            let mut again = dropout.then(|| Generator::seed_from_u64(seed));
            m.forward(p, input, again.as_mut(), scratch);
            weighted(&scratch.out, &w)
        };
        forward(&p, &mut scratch);
        let mut g = vec![0.0; p.len()];
        m.backward(&p, input, &mut w.clone(), &mut scratch, &mut g);
        check("perceptron", &p, &g, &mut |p| forward(p, &mut MlpScratch::default()));
    }

    #[test]
    fn losses(n in 2usize..80, allowed: u64, seed: u64) {
        let mut rng = Generator::seed_from_u64(seed);
        let x = numbers(&mut rng, n);
        let truth = rng.random_range(0..n);
        let allowed = if truth < 64 { allowed | 1 << truth } else { allowed };
        for masked in [false, true] {
            let loss = |x: &[f32], g: &mut Vec<f32>| {
                *g = x.to_vec();
                if masked {
                    masked_cross_entropy(g, allowed, truth, 0.5)
                } else {
                    cross_entropy(g, truth, 0.5)
                }
            };
            let mut g = Vec::new();
            loss(&x, &mut g);
            check("loss", &x, &g, &mut |x| loss(x, &mut Vec::new()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn lstm(
        steps in 1usize..5,
        n in 1usize..4,
        inputs in 1usize..5,
        hidden in 1usize..6,
        started: bool,
        seed: u64,
    ) {
        let mut rng = Generator::seed_from_u64(seed);
        let mut layout = ParameterLayout::default();
        let l = Lstm::new(&mut layout, "l", inputs, hidden);
        let mut p = layout.initial(&mut rng);
        p.iter_mut().for_each(|p| *p += 0.05); // so that biases are not zero
        let size = n * hidden;
        let x = numbers(&mut rng, steps * n * inputs);
        let (h0, c0) = (numbers(&mut rng, size), numbers(&mut rng, size));
        let (w, wc) = (numbers(&mut rng, steps * size), numbers(&mut rng, size));
        // The loss looks at every output and at the last cell.
        let forward = |p: &[f32], x: &[f32], h0: &[f32], c0: &[f32], scratch: &mut LstmScratch| {
            l.forward(p, x, Steps { steps, n }, started.then_some((h0, c0)), scratch);
            weighted(&scratch.outputs[size..], &w) + weighted(&scratch.cells[steps * size..], &wc)
        };
        let mut scratch = LstmScratch::default();
        forward(&p, &x, &h0, &c0, &mut scratch);
        let (mut g, mut dx) = (vec![0.0; p.len()], vec![0.0; x.len()]);
        let (mut dh, mut dc) = (vec![0.0; size], wc.clone());
        let gradients = LstmGradients {
            outputs: &w,
            last: (&mut dh, &mut dc),
            parameters: &mut g,
            argument: Some(&mut dx),
        };
        l.backward(&p, &x, Steps { steps, n }, &mut scratch, gradients);
        let mut again = LstmScratch::default();
        check("lstm parameters", &p, &g, &mut |p| forward(p, &x, &h0, &c0, &mut again));
        check("lstm argument", &x, &dx, &mut |x| forward(&p, x, &h0, &c0, &mut again));
        if started {
            check("lstm output", &h0, &dh, &mut |h0| forward(&p, &x, h0, &c0, &mut again));
            check("lstm cell", &c0, &dc, &mut |c0| forward(&p, &x, &h0, c0, &mut again));
        }
    }

    #[test]
    fn attention(steps in 1usize..5, n in 1usize..4, h in 1usize..6, seed: u64) {
        let mut rng = Generator::seed_from_u64(seed);
        let size = Steps { steps, n };
        let q = numbers(&mut rng, n * h);
        let (m, w) = (numbers(&mut rng, steps * n * h), numbers(&mut rng, n * h));
        let (mut weights, mut out) = (vec![0.0; n * steps], vec![0.0; n * h]);
        Attention::forward(&q, &m, size, &mut weights, &mut out);
        let (mut dq, mut dm) = (vec![0.0; q.len()], vec![0.0; m.len()]);
        let gradients = AttentionGradients { query: &mut dq, memory: &mut dm };
        Attention::backward(&q, &m, size, &weights, &w, gradients);
        let mut loss = |q: &[f32], m: &[f32]| {
            Attention::forward(q, m, size, &mut weights, &mut out);
            weighted(&out, &w)
        };
        check("attention query", &q, &dq, &mut |q| loss(q, &m));
        check("attention memory", &m, &dm, &mut |m| loss(&q, m));
    }

    #[test]
    fn convolution(
        steps in 1usize..5,
        n in 1usize..4,
        inputs in 1usize..4,
        outputs in 1usize..4,
        seed: u64,
    ) {
        let mut rng = Generator::seed_from_u64(seed);
        let mut layout = ParameterLayout::default();
        let c = Convolution::new(&mut layout, "c", inputs, outputs);
        let p = layout.initial(&mut rng);
        let size = Steps { steps, n };
        let x = numbers(&mut rng, steps * n * inputs);
        let w = numbers(&mut rng, steps * n * outputs);
        let mut columns = Vec::new();
        let mut y = vec![0.0; steps * n * outputs];
        c.forward(&p, &x, size, &mut columns, &mut y);
        let (mut g, mut dx) = (vec![0.0; p.len()], vec![0.0; x.len()]);
        c.backward(&p, size, &columns, &w, &mut g, &mut dx);
        let mut loss = |p: &[f32], x: &[f32]| {
            c.forward(p, x, size, &mut columns, &mut y);
            weighted(&y, &w)
        };
        check("convolution parameters", &p, &g, &mut |p| loss(p, &x));
        check("convolution argument", &x, &dx, &mut |x| loss(&p, x));
    }
}
