//! The rematch: decides by a sequential test which of two kernels is faster. Input: times of
//! interleaved windows of both, pair by pair; output: a verdict (faster, slower, tie) with the
//! ratio of times.
//!
//! Each pair holds a window of both kernels, equally many calls in each, the first chosen by
//! chance, so that slow drifts and periodic disturbances (frequency, neighbours) affect both alike.
//! The logarithms of the pairs' ratios are tested by the exact Wilcoxon signed-rank test, which a
//! few disturbed windows cannot sway. The test looks at the data a few times only and spends the
//! error probability [`ALPHA`] over these looks, so that frequent looks do not make a winner of
//! noise. A verdict needs a difference larger than [`MINIMUM_EFFECT`]; a difference that is shown
//! to be smaller ends the test as a tie.

use squall_core::measurer::MessageVersion;
use squall_core::{CpuCost, Measurement, MeasurerError, Outcome, Rematch, Verdict};

/// Probability at which two equal kernels may be told apart, over all looks and both sides. It is
/// small enough that eighty rematches of equal kernels are likely to be eighty ties.
pub const ALPHA: f64 = 0.002;

/// Probability at which each side of the minimum effect may be excluded wrongly: a tie too many
/// costs no more than that effect.
const TIE_ALPHA: f64 = 0.01;

/// Differences below this are ties.
pub const MINIMUM_EFFECT: f64 = 0.01;

/// Pairs after which the test looks, and the share of [`ALPHA`] that it spends there.
const LOOKS: [(usize, f64); 5] =
    [(12, 0.0005), (24, 0.0003), (48, 0.0004), (96, 0.0004), (MOST, 0.0004)];

/// Pairs after which it gives up and calls it a tie.
const MOST: usize = 160;

/// The test while it runs: ask how many pairs it wants next, give them, until it has a verdict.
pub struct Sequential {
    ratios: Vec<f64>,
    looks: Vec<(usize, f64)>,
    verdict: Option<Verdict>,
}

impl Sequential {
    /// A test of at most `most` pairs, at least the twelve of its first look.
    pub fn new(most: usize) -> Sequential {
        let mut looks: Vec<_> =
            LOOKS.iter().copied().filter(|l| l.0 <= most.max(LOOKS[0].0)).collect();
        let spent: f64 = looks.iter().rev().skip(1).map(|l| l.1).sum();
        if let Some(last) = looks.last_mut() {
            last.1 = ALPHA - spent;
        }
        Sequential { ratios: Vec::new(), looks, verdict: None }
    }

    /// Pairs that it needs before it looks again; 0 when it has decided.
    pub fn wanted(&self) -> usize {
        match (self.verdict, self.looks.first()) {
            (None, Some(look)) => look.0 - self.ratios.len(),
            _ => 0,
        }
    }

    /// A pair of windows, in the same unit.
    pub fn give(&mut self, a: f64, b: f64) {
        if self.wanted() == 0 {
            return;
        }
        // A clock that ticks too coarsely can say zero; a tie is all that such a pair shows.
        self.ratios.push(if a > 0.0 && b > 0.0 { (b / a).ln() } else { 0.0 });
        if self.wanted() == 0 {
            self.look();
        }
    }

    /// The decision, once there is one.
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// The challenger's time over the incumbent's, by the pairs given so far.
    pub fn ratio(&self) -> f64 {
        pseudo_median(&self.ratios).exp()
    }

    /// One minus the probability of pairs like these if the verdict were wrong: for a difference,
    /// if there were none; for a tie, if the difference were the minimum effect. A tie for want of
    /// more pairs is one of low confidence.
    pub fn confidence(&self) -> f64 {
        let margin = MINIMUM_EFFECT.ln_1p();
        let p = match self.verdict {
            Some(Verdict::Faster) => 2.0 * signed_rank(&self.ratios, 0.0).0,
            Some(Verdict::Slower) => 2.0 * signed_rank(&self.ratios, 0.0).1,
            Some(Verdict::Tie) => {
                signed_rank(&self.ratios, margin).0.max(signed_rank(&self.ratios, -margin).1)
            }
            None => 1.0,
        };
        (1.0 - p).clamp(0.0, 1.0)
    }

    fn look(&mut self) {
        let (_, alpha) = self.looks.remove(0);
        let margin = MINIMUM_EFFECT.ln_1p();
        let centre = pseudo_median(&self.ratios);
        let (below, above) = signed_rank(&self.ratios, 0.0);
        if 2.0 * below < alpha && centre < -margin {
            self.verdict = Some(Verdict::Faster);
        } else if 2.0 * above < alpha && centre > margin {
            self.verdict = Some(Verdict::Slower);
        } else if self.looks.is_empty()
            || (signed_rank(&self.ratios, margin).0 < TIE_ALPHA
                && signed_rank(&self.ratios, -margin).1 < TIE_ALPHA)
        {
            self.verdict = Some(Verdict::Tie);
        }
    }
}

/// The rematch of two kernels of which only outcomes are known: their samples are paired in turns,
/// over and over, until the test decides. A kernel that did not run fails its rematch.
pub(crate) fn of_outcomes(
    incumbent: Outcome,
    challenger: Outcome,
) -> Result<Rematch, MeasurerError> {
    let measured = |outcome, challenger| match outcome {
        Outcome::Measured(m) => Ok(m),
        Outcome::Right { .. } => Err(MeasurerError::Device(
            "a kernel that ran under an emulator has no time to compare".into(),
        )),
        Outcome::Infeasible(detail) | Outcome::Failed { detail, .. } => {
            Err(MeasurerError::Contender { challenger, detail })
        }
    };
    let (incumbent, challenger) = (measured(incumbent, false)?, measured(challenger, true)?);
    let sample =
        |m: &Measurement, i: usize| m.samples.get(i % m.samples.len().max(1)).map_or(0.0, |s| s.0);
    let mut test = Sequential::new(MOST);
    for pair in 0.. {
        if test.wanted() == 0 {
            break;
        }
        test.give(sample(&incumbent, pair), sample(&challenger, pair));
    }
    Ok(Rematch {
        version: MessageVersion,
        incumbent,
        challenger,
        verdict: test.verdict().unwrap_or(Verdict::Tie),
        ratio: test.ratio(),
        confidence: test.confidence(),
        cost: CpuCost::default(),
    })
}

/// One-sided p-values of the signed-rank test for "the centre is below `shift`" and "above".
/// Exact under the null hypothesis that the differences are symmetric about `shift`.
fn signed_rank(samples: &[f64], shift: f64) -> (f64, f64) {
    let mut d: Vec<f64> = samples.iter().map(|x| x - shift).filter(|d| *d != 0.0).collect();
    d.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let n = d.len();
    let total = n * (n + 1) / 2;
    // Equal magnitudes share their mean rank; doubled ranks keep it an integer.
    let mut positive = 0;
    let mut i = 0;
    while i < n {
        let mut j = i;
        while j + 1 < n && d[j + 1].abs() == d[i].abs() {
            j += 1;
        }
        let doubled = (i + 1) + (j + 1);
        positive += doubled * d[i..=j].iter().filter(|x| **x > 0.0).count();
        i = j + 1;
    }
    // Halves round away from the tail: a p-value that is too large is the safe side.
    let up = positive.div_ceil(2);
    let down = total - positive / 2;
    // Of the 2^n equally likely sign patterns, how many have a rank sum of s?
    let mut ways = vec![0.0f64; total + 1];
    ways[0] = 1.0;
    for rank in 1..=n {
        for s in (rank..=total).rev() {
            ways[s] += ways[s - rank];
        }
    }
    let all = 2f64.powi(n as i32);
    let tail = |sum: usize| ways[..=sum.min(total)].iter().sum::<f64>() / all;
    (tail(up), tail(down))
}

/// The Hodges-Lehmann estimate of the centre: the median of all pairwise means.
fn pseudo_median(samples: &[f64]) -> f64 {
    let mut means: Vec<f64> = Vec::with_capacity(samples.len() * (samples.len() + 1) / 2);
    for (i, a) in samples.iter().enumerate() {
        means.extend(samples[i..].iter().map(|b| (a + b) / 2.0));
    }
    means.sort_by(f64::total_cmp);
    match means.len() {
        0 => 0.0,
        n if n % 2 == 1 => means[n / 2],
        n => (means[n / 2 - 1] + means[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Sum of twelve uniform numbers: near enough to normal.
    fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
        (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
    }

    /// Windows as on a shared machine: noise, a slow drift, and here and there a disturbed one.
    fn fight(seed: u64, ratio: f64, noise: f64) -> (Verdict, usize) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut test = Sequential::new(MOST);
        let mut pairs = 0;
        while test.wanted() > 0 {
            for _ in 0..test.wanted() {
                let drift = 1.0 + 0.2 * (pairs as f64 / 15.0 + seed as f64).sin();
                let mut window = |t: f64| {
                    t * drift
                        * (1.0 + noise * normal(&mut rng))
                        * if rng.random::<f64>() < 0.03 { 2.0 } else { 1.0 }
                };
                let (a, b) = (window(100.0), window(100.0 * ratio));
                test.give(a, b);
                pairs += 1;
            }
        }
        (test.verdict().unwrap(), pairs)
    }

    #[test]
    fn equal_kernels_are_rarely_told_apart() {
        for noise in [0.002, 0.02, 0.05] {
            let wrong = (0..600).filter(|&s| fight(s, 1.0, noise).0 != Verdict::Tie).count();
            assert!(wrong < 6, "{wrong} of 600 ties with noise {noise} were called a difference");
        }
    }

    #[test]
    fn three_percent_under_five_percent_noise_is_mostly_found() {
        let faster = (0..500).filter(|&s| fight(s, 0.97, 0.05).0 == Verdict::Faster).count();
        let slower = (0..500).filter(|&s| fight(s, 1.03, 0.05).0 == Verdict::Slower).count();
        assert!(faster > 300 && slower > 300, "{faster} and {slower} of 500");
        assert_eq!((0..500).filter(|&s| fight(s, 0.97, 0.05).0 == Verdict::Slower).count(), 0);
    }

    #[test]
    fn a_clear_difference_and_a_clear_tie_end_early() {
        assert_eq!(fight(1, 0.5, 0.01), (Verdict::Faster, 12));
        assert_eq!(fight(1, 2.0, 0.01), (Verdict::Slower, 12));
        // Two disturbed windows of twelve pairs are too many to be sure of a tie at once.
        let short =
            (0..100).filter(|&s| matches!(fight(s, 1.0, 0.002), (Verdict::Tie, 12 | 24))).count();
        assert!(short > 90, "{short}");
    }

    #[test]
    fn a_difference_that_is_real_but_too_small_is_a_tie() {
        let ties = (0..300).filter(|&s| fight(s, 0.995, 0.002).0 == Verdict::Tie).count();
        assert_eq!(ties, 300);
    }

    #[test]
    fn exact_p_values() {
        // All of 12 on one side: one sign pattern of 4096.
        let below: Vec<f64> = (1..=12).map(|i| -f64::from(i)).collect();
        let (b, a) = signed_rank(&below, 0.0);
        assert!((b - 1.0 / 4096.0).abs() < 1e-15 && (a - 1.0).abs() < 1e-12);
        // n = 3, positive ranks 1 and 2: P(W+ <= 3) = 5/8, P(W+ >= 3) = 5/8.
        let (b, a) = signed_rank(&[1.0, 2.0, -3.0], 0.0);
        assert_eq!((b, a), (0.625, 0.625));
        assert_eq!(pseudo_median(&[1.0, 2.0, 9.0]), 3.5);
        assert_eq!(signed_rank(&[0.0; 12], 0.0), (1.0, 1.0));
    }

    #[test]
    fn slow_kernels_get_few_pairs_and_still_a_verdict() {
        let mut test = Sequential::new(3);
        assert_eq!(test.wanted(), 12);
        for _ in 0..12 {
            test.give(2.0, 1.0);
        }
        assert_eq!((test.verdict(), test.wanted()), (Some(Verdict::Faster), 0));
    }

    /// A window on a shared machine at its worst: a log-normal core, and every tenth window
    /// stretched by a Pareto tail that has no variance.
    fn heavy(rng: &mut Xoshiro256PlusPlus) -> f64 {
        let core = (0.01 * normal(rng)).exp();
        if rng.random::<f64>() < 0.1 {
            core * rng.random::<f64>().max(1e-3).powf(-1.0 / 1.5)
        } else {
            core
        }
    }

    #[test]
    fn a_run_off_repeated_twenty_times_has_one_winner() {
        for (pair, ratio) in [1.0, 1.05, 1.15, 2.0].into_iter().enumerate() {
            // The faster is the incumbent in one half of them and the challenger in the other.
            let mut winners = Vec::new();
            for round in 0..20u64 {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(100 * pair as u64 + round);
                let times =
                    if round % 2 == 0 { (100.0, 100.0 * ratio) } else { (100.0 * ratio, 100.0) };
                let mut test = Sequential::new(MOST);
                while test.wanted() > 0 {
                    let (a, b) = (times.0 * heavy(&mut rng), times.1 * heavy(&mut rng));
                    test.give(a, b);
                }
                let won = match test.verdict() {
                    Some(Verdict::Faster) => Some(times.1),
                    Some(Verdict::Slower) => Some(times.0),
                    _ => None,
                };
                if test.verdict() == Some(Verdict::Faster) {
                    assert!(
                        times.1 <= times.0 * (1.0 + MINIMUM_EFFECT),
                        "{ratio}: a slower challenger was accepted in round {round}"
                    );
                }
                assert!(
                    (0.0..=1.0).contains(&test.confidence())
                        && (won.is_none() || test.confidence() > 0.99)
                );
                winners.extend(won);
            }
            assert!(winners.iter().all(|w| *w == winners[0]), "{ratio}: {winners:?}");
            match ratio {
                1.0 => assert!(winners.is_empty(), "a true tie had {} winners", winners.len()),
                _ => assert!(
                    winners.len() >= 19,
                    "{ratio}: only {} of 20 were decided",
                    winners.len()
                ),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Exchanging the two exchanges the verdict, and scaling both changes nothing.
        #[test]
        fn symmetric(
            pairs in prop::collection::vec((0.5f64..2.0, 0.5f64..2.0), MOST),
            bias in 0.8f64..1.25,
            scale in 0.1f64..10.0,
        ) {
            let run = |f: &dyn Fn(f64, f64) -> (f64, f64)| {
                let mut t = Sequential::new(MOST);
                for &(a, b) in &pairs {
                    let (a, b) = f(a, b * bias);
                    t.give(a, b);
                }
                t.verdict()
            };
            let plain = run(&|a, b| (a, b));
            prop_assert!(plain.is_some());
            let turned = run(&|a, b| (b, a));
            let expected = match plain {
                Some(Verdict::Faster) => Some(Verdict::Slower),
                Some(Verdict::Slower) => Some(Verdict::Faster),
                v => v,
            };
            prop_assert_eq!(turned, expected);
            prop_assert_eq!(run(&|a, b| (a * scale, b * scale)).is_some(), true);
        }

        /// Never more pairs than announced, always a verdict, whatever the numbers.
        #[test]
        fn ends(
            values in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY), MOST),
            most in 0usize..200,
        ) {
            let mut t = Sequential::new(most);
            for (a, b) in values {
                t.give(a, b);
            }
            prop_assert!(t.verdict().is_some());
        }
    }
}
