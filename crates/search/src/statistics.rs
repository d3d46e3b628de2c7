//! Statistics for the search: a trial's samples and their median, Welch's two-sample t-test, which
//! decides whether one kernel is faster than another (Droplet search moves only where it is
//! significant), and rank correlation, which judges cost models.

use squall_core::{Outcome, median};

/// The samples of a trial that mean something; none if it failed.
pub fn samples(outcome: &Outcome) -> Vec<f64> {
    match outcome {
        Outcome::Measured(m) => {
            m.samples.iter().map(|s| s.0).filter(|s| s.is_finite() && *s > 0.0).collect()
        }
        _ => Vec::new(),
    }
}

/// The median of those; infinite if there are none.
pub fn time(outcome: &Outcome) -> f64 {
    median(samples(outcome))
}

fn mean_and_variance(samples: &[f64]) -> (f64, f64) {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let squares = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    (mean, if samples.len() > 1 { squares / (n - 1.0) } else { 0.0 })
}

/// Welch's test of "the mean of `a` is below the mean of `b`": the probability of so large a
/// difference if it were not. `None` where either side has fewer than two samples, because then
/// nothing is known of the spread.
pub fn welch_less(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let ((ma, va), (mb, vb)) = (mean_and_variance(a), mean_and_variance(b));
    let (ea, eb) = (va / a.len() as f64, vb / b.len() as f64);
    let error = ea + eb;
    if error <= 0.0 {
        // Samples without any spread: the means are exact.
        return Some(if ma < mb { 0.0 } else { 1.0 });
    }
    let t = (ma - mb) / error.sqrt();
    let freedom = error * error / (ea * ea / (a.len() - 1) as f64 + eb * eb / (b.len() - 1) as f64);
    Some(student_below(t, freedom))
}

/// P(T <= t) for Student's distribution.
pub fn student_below(t: f64, freedom: f64) -> f64 {
    if t.is_nan() || freedom.is_nan() {
        return f64::NAN;
    }
    let tail = 0.5 * beta_regularised(freedom / (freedom + t * t), freedom / 2.0, 0.5);
    if t < 0.0 { tail } else { 1.0 - tail }
}

/// The regularised incomplete beta function I_x(a, b), by its continued fraction.
fn beta_regularised(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast on this side only; the other follows by symmetry.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_regularised(1.0 - x, b, a);
    }
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let keep = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / keep(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / keep(1.0 + even * d);
        c = keep(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / keep(1.0 + odd * d);
        c = keep(1.0 + odd / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

/// The logarithm of the gamma function for positive arguments (Lanczos, g = 7).
fn ln_gamma(x: f64) -> f64 {
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + 7.5;
    let sum = C[1..].iter().enumerate().fold(C[0], |s, (i, c)| s + c / (x + i as f64 + 1.0));
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// How well `b` orders what `a` orders: Spearman's rank correlation, ties sharing their rank.
pub fn rank_correlation(a: &[f32], b: &[f32]) -> f64 {
    fn ranks(v: &[f32]) -> Vec<f64> {
        let mut order: Vec<usize> = (0..v.len()).collect();
        order.sort_by(|&i, &j| v[i].total_cmp(&v[j]));
        let mut out = vec![0.0; v.len()];
        let mut i = 0;
        while i < order.len() {
            let mut j = i + 1;
            while j < order.len() && v[order[j]] == v[order[i]] {
                j += 1;
            }
            for &k in &order[i..j] {
                out[k] = (i + j - 1) as f64 / 2.0;
            }
            i = j;
        }
        out
    }
    let (ra, rb) = (ranks(a), ranks(b));
    let ((ma, va), (mb, vb)) = (mean_and_variance(&ra), mean_and_variance(&rb));
    let covariance =
        ra.iter().zip(&rb).map(|(x, y)| (x - ma) * (y - mb)).sum::<f64>() / (ra.len() as f64 - 1.0);
    if va > 0.0 && vb > 0.0 { covariance / (va * vb).sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn students_distribution_has_its_known_values() {
        // One degree of freedom is Cauchy's, two has a closed form, many is the normal.
        for t in [-3.0, -0.5, 0.0, 0.7, 12.0f64] {
            close(student_below(t, 1.0), 0.5 + t.atan() / std::f64::consts::PI);
            close(student_below(t, 2.0), 0.5 + t / (2.0 * (2.0 + t * t).sqrt()));
        }
        assert!((student_below(1.959_963_985, 1e7) - 0.975).abs() < 1e-6);
        // Quantiles of the printed tables.
        for (freedom, t) in [(4.0, 2.776_445_105), (9.0, 2.262_157_163), (30.0, 2.042_272_456)] {
            assert!((student_below(t, freedom) - 0.975).abs() < 1e-8);
        }
    }

    #[test]
    fn welch_separates_what_is_apart_and_nothing_else() {
        // t = -2.70777 with 26.9527 degrees of freedom: an often printed example.
        let a = [19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0];
        let b = [
            28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7, 23.2, 17.5, 20.6, 18.0,
            23.9, 21.6, 24.3, 20.4, 24.0, 13.2,
        ];
        let p = welch_less(&a, &b).unwrap();
        assert!((p - 0.018).abs() < 0.004, "{p}");
        assert!((p + welch_less(&b, &a).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(welch_less(&[1.0], &[2.0, 2.1]), None);
        assert_eq!(welch_less(&[1.0, 1.0], &[2.0, 2.0]), Some(0.0));
        assert_eq!(welch_less(&[2.0, 2.0], &[2.0, 2.0]), Some(1.0));
        // A difference within the noise is not significant, the same difference without is.
        assert!(welch_less(&[0.9, 1.1, 0.95], &[1.0, 1.15, 0.93]).unwrap() > 0.2);
        assert!(welch_less(&[0.98, 0.981, 0.979], &[1.0, 1.001, 0.999]).unwrap() < 0.001);
    }

    #[test]
    fn medians_and_rank_correlations() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0]), 2.5);
        assert_eq!(median([]), f64::INFINITY);
        close(rank_correlation(&[1.0, 2.0, 3.0, 4.0], &[1.0, 4.0, 9.0, 16.0]), 1.0);
        close(rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), -1.0);
        close(rank_correlation(&[1.0, 2.0, 3.0], &[5.0, 5.0, 5.0]), 0.0);
    }
}
