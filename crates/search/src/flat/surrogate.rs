//! A Gaussian process over the points of a flat space, for Bayesian search (`bayes.rs`). Input:
//! points with their times; output: for any point the expected logarithm of time and its deviation.
//!
//! The kernel is exp(-sum of w_j d_j) with d_j = 1/2 [values differ] + 1/2 |difference of levels|
//! along knob j: half of a knob's effect is taken to be that of any other value, half grows with
//! distance. Products of two knobs may be axes too, with d_j = |difference of levels|. The mean is
//! fitted by generalised least squares. All numbers are kept in the frame of the factor L of the
//! covariance: a point's row v = L^-1 k(point) grows by one number for each success, only for
//! points that are looked at, and a success's own row is the next row of L.

use super::{PointId, PointTable};
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The most values of a product of two knobs, and the most products, that become axes.
const MOST_VALUES: usize = 4096;
const MOST_PRODUCTS: usize = 28;
/// Values of a knob from which on they are steps of a scale.
const FINE: usize = 48;
/// The middles of the priors of the two weights of a knob with at least [`FINE`] values.
const SMOOTH: f64 = 4.0;
const ROUGH: f64 = 0.02;
/// The range in which weights are kept.
const WEIGHTS: std::ops::RangeInclusive<f64> = 0.003..=20.0;
/// Noise, as a share of the variance.
const NOISES: [f64; 4] = [1e-4, 1e-3, 1e-2, 5e-2];
/// Weights are fitted to this many of the fastest successes and as many others.
const FITTED: usize = 75;

/// The logarithm of time that is expected at a point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    pub mean: f64,
    pub deviation: f64,
}

#[derive(Default)]
struct Row {
    v: Vec<f32>,
    /// v.v, v.z_y and v.z_1.
    vv: f64,
    vy: f64,
    v1: f64,
}

/// A coordinate of points: a knob, or the product of two.
pub(crate) struct KnobAxis {
    first: usize,
    second: Option<usize>,
    /// Values of the second knob.
    inner: usize,
    /// The position of each value from 0 to 1; of words only equality counts.
    level: Vec<f32>,
    /// The distance of two different values, and the factor on the difference of their levels.
    apart: f32,
    slope: f32,
    /// The factor on the square of that difference.
    bend: f32,
    /// The middle of the weight's prior.
    weight: f64,
}

impl KnobAxis {
    fn value(&self, p: &[u16]) -> usize {
        match self.second {
            None => p[self.first] as usize,
            Some(b) => p[self.first] as usize * self.inner + p[b] as usize,
        }
    }

    fn distance(&self, a: usize, b: usize) -> f32 {
        let far = (self.level[a] - self.level[b]).abs();
        if a == b { 0.0 } else { self.apart + self.slope * far + self.bend * far * far }
    }

    /// One for each live knob; the middle of its weight's prior goes by its number of values.
    pub fn knobs(points: &PointTable, weight: impl Fn(usize) -> f64) -> Vec<KnobAxis> {
        let axis = |&k: &usize| {
            let w = points.width(k);
            let (apart, slope) = if points.is_ordered(k) { (0.5, 0.5) } else { (1.0, 0.0) };
            let level = (0..w).map(|v| points.level(k, v as u16) as f32).collect();
            KnobAxis {
                first: k,
                second: None,
                inner: 1,
                level,
                apart,
                slope,
                bend: 0.0,
                weight: weight(w),
            }
        };
        points.live().iter().map(axis).collect()
    }

    /// Makes an axis of so many values that they are steps of a scale two axes: one along which
    /// the function is smooth, and, with little weight at first, one that tells values apart.
    pub fn smoothed(self) -> Vec<KnobAxis> {
        if self.level.len() < FINE || self.slope == 0.0 {
            return vec![self];
        }
        let smooth = KnobAxis {
            level: self.level.clone(),
            apart: 0.0,
            slope: 0.0,
            bend: 1.0,
            weight: SMOOTH,
            ..self
        };
        vec![smooth, KnobAxis { weight: ROUGH, ..self }]
    }

    /// One for each product of two sizes, as threads of a block are; its level is the logarithm.
    pub fn products(points: &PointTable, weight: f64) -> Vec<KnobAxis> {
        let sizes: Vec<(usize, Vec<f64>)> =
            points.live().iter().filter_map(|&k| Some((k, points.sizes(k)?))).collect();
        let mut all = Vec::new();
        for (i, (a, x)) in sizes.iter().enumerate() {
            for (b, y) in sizes[i + 1..].iter().filter(|(_, y)| x.len() * y.len() <= MOST_VALUES) {
                let logs: Vec<f64> =
                    x.iter().flat_map(|x| y.iter().map(move |y| (x * y).ln())).collect();
                let (low, high) = logs
                    .iter()
                    .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), x| (l.min(*x), h.max(*x)));
                let level = logs.iter().map(|x| ((x - low) / (high - low)) as f32).collect();
                all.push(KnobAxis {
                    first: *a,
                    second: Some(*b),
                    inner: y.len(),
                    level,
                    apart: 0.0,
                    slope: 1.0,
                    bend: 0.0,
                    weight,
                });
            }
        }
        // A fit costs as many axes as there are: the products with most values say most.
        all.sort_by_key(|p| std::cmp::Reverse(p.level.len()));
        all.truncate(MOST_PRODUCTS);
        all
    }
}

pub(crate) struct Surrogate {
    axes: Vec<KnobAxis>,
    /// Where each axis's values begin in a table of all values.
    offsets: Vec<usize>,
    weights: Vec<f64>,
    noise: f64,
    /// The successes, their logarithms of time, and those squeezed.
    ids: Vec<PointId>,
    logs: Vec<f64>,
    y: Vec<f64>,
    /// The least and the median logarithm when they were last squeezed, and the factor.
    low: f64,
    middle: f64,
    squeeze: f64,
    /// For each success exp(-w_j d_j) to every value of every live knob.
    tables: Vec<Vec<f32>>,
    /// The factor below its diagonal, and the inverse of the diagonal.
    factor: Vec<Vec<f32>>,
    diagonal: Vec<f32>,
    zy: Vec<f64>,
    z1: Vec<f64>,
    /// zy.zy, zy.z1, z1.z1
    sums: [f64; 3],
    rows: Vec<Row>,
    /// The places in a table of the values of the point that is looked at.
    at: Vec<usize>,
}

/// A sum of products in sixteen lanes: the order of additions is fixed, so every machine agrees.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    let mut lanes = [0f32; 16];
    let (ca, cb) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = ca.remainder().iter().zip(cb.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in ca.zip(cb) {
        for i in 0..16 {
            lanes[i] += x[i] * y[i];
        }
    }
    let mut width = 8;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0] + rest
}

/// As [`dot`], in double precision.
fn dot64(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    let mut lanes = [0f64; 8];
    let (ca, cb) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = ca.remainder().iter().zip(cb.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in ca.zip(cb) {
        for i in 0..8 {
            lanes[i] += x[i] * y[i];
        }
    }
    let fours =
        [lanes[0] + lanes[4], lanes[1] + lanes[5], lanes[2] + lanes[6], lanes[3] + lanes[7]];
    (fours[0] + fours[2]) + (fours[1] + fours[3]) + rest
}

impl Surrogate {
    /// Logarithms of time are squeezed, the slower the more: how slow the slow ones are says little
    /// about the fast ones. `squeeze` times the distance from the fastest to the median is where
    /// that sets in; infinite leaves them as they are.
    pub fn new(axes: Vec<KnobAxis>, squeeze: f64) -> Surrogate {
        let mut offsets = Vec::new();
        let mut at = 0;
        for a in &axes {
            offsets.push(at);
            at += a.level.len();
        }
        Surrogate {
            weights: axes.iter().map(|a| a.weight).collect(),
            axes,
            offsets,
            noise: 1e-3,
            ids: Vec::new(),
            logs: Vec::new(),
            y: Vec::new(),
            low: 0.0,
            middle: f64::INFINITY,
            squeeze,
            tables: Vec::new(),
            factor: Vec::new(),
            diagonal: Vec::new(),
            zy: Vec::new(),
            z1: Vec::new(),
            sums: [0.0; 3],
            rows: Vec::new(),
            at: Vec::new(),
        }
    }

    /// The number of successes.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Learns of a success by its logarithm of time.
    pub fn add(&mut self, points: &PointTable, id: PointId, log: f64) {
        let y = self.squeezed(log);
        self.logs.push(log);
        self.row(points, id);
        let row = &self.rows[id as usize];
        // Where the neighbours determine the value, only a share of the noise is left.
        let left = (1.0 + self.noise - row.vv).max(self.noise * 0.5);
        let d = left.sqrt();
        let (zy, z1) = ((y - row.vy) / d, (1.0 - row.v1) / d);
        self.factor.push(row.v.clone());
        self.diagonal.push((1.0 / d) as f32);
        for (s, x) in self.sums.iter_mut().zip([zy * zy, zy * z1, z1 * z1]) {
            *s += x;
        }
        self.zy.push(zy);
        self.z1.push(z1);
        self.ids.push(id);
        self.y.push(y);
        self.tables.push(self.table(points, id));
    }

    fn table(&self, points: &PointTable, id: PointId) -> Vec<f32> {
        let p = points.point(id);
        let mut t = Vec::new();
        for (a, &w) in self.axes.iter().zip(&self.weights) {
            let at = a.value(p);
            t.extend((0..a.level.len()).map(|v| (-a.distance(at, v) * w as f32).exp()));
        }
        t
    }

    /// Brings a point's row up to date.
    fn row(&mut self, points: &PointTable, id: PointId) {
        if self.rows.len() < points.numbered() {
            self.rows.resize_with(points.numbered(), Row::default);
        }
        let row = &mut self.rows[id as usize];
        let n = self.ids.len();
        if row.v.len() == n {
            return;
        }
        let p = points.point(id);
        self.at.clear();
        self.at.extend(self.axes.iter().zip(&self.offsets).map(|(a, o)| o + a.value(p)));
        let at = &self.at;
        row.v.reserve(n - row.v.len());
        for i in row.v.len()..n {
            let t = &self.tables[i];
            let near: f32 = at.iter().map(|&a| t[a]).product();
            let x = (near - dot(&self.factor[i], &row.v)) * self.diagonal[i];
            row.v.push(x);
            let x = f64::from(x);
            row.vv += x * x;
            row.vy += x * self.zy[i];
            row.v1 += x * self.z1[i];
        }
    }

    /// The mean far from everything.
    fn level(&self) -> f64 {
        if self.sums[2] > 0.0 { self.sums[1] / self.sums[2] } else { 0.0 }
    }

    /// The variance of the process.
    fn variance(&self) -> f64 {
        let n = self.y.len() as f64;
        let mean = self.y.iter().sum::<f64>() / n;
        let spread = self.y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / n;
        let b = self.level();
        let rr = (self.sums[0] - b * self.sums[1]).max(0.0);
        (rr + 0.1 * spread.max(1e-4)) / (n + 0.1)
    }

    /// What is expected at some points. At least one success must be known.
    pub fn expect(&mut self, points: &PointTable, ids: &[PointId]) -> Vec<Expectation> {
        let (b, variance) = (self.level(), self.variance());
        ids.iter()
            .map(|&s| {
                self.row(points, s);
                let r = &self.rows[s as usize];
                Expectation {
                    mean: b + r.vy - b * r.v1,
                    deviation: (variance * (1.0 - r.vv).max(1e-9)).sqrt(),
                }
            })
            .collect()
    }

    fn chosen(&self, rng: &mut Xoshiro256PlusPlus) -> Vec<usize> {
        let mut chosen: Vec<usize> = (0..self.len()).collect();
        if chosen.len() > 2 * FITTED {
            chosen.sort_by(|&a, &b| self.y[a].total_cmp(&self.y[b]));
            chosen[FITTED..].shuffle(rng);
            chosen.truncate(2 * FITTED);
        }
        chosen
    }

    /// Fits weights and noise to what is known, and begins anew with them.
    pub fn fit(&mut self, points: &PointTable, rng: &mut Xoshiro256PlusPlus) {
        let chosen = self.chosen(rng);
        let mut fit = Fit::new(self, points, &chosen);
        let mut best = fit.loss(&self.weights, self.noise);
        let mut order: Vec<usize> = (0..self.weights.len()).collect();
        order.shuffle(rng);
        for j in order {
            for factor in [0.25, 0.5, 2.0, 4.0] {
                let mut w = self.weights.clone();
                w[j] = (w[j] * factor).clamp(*WEIGHTS.start(), *WEIGHTS.end());
                self.accept(&mut fit, &mut best, w, self.noise);
            }
        }
        for factor in [0.5, 2.0] {
            let w = self
                .weights
                .iter()
                .map(|w| (w * factor).clamp(*WEIGHTS.start(), *WEIGHTS.end()))
                .collect();
            self.accept(&mut fit, &mut best, w, self.noise);
        }
        for noise in NOISES {
            self.accept(&mut fit, &mut best, self.weights.clone(), noise);
        }
        self.restart(points);
    }

    fn accept(&mut self, fit: &mut Fit, best: &mut f64, weights: Vec<f64>, noise: f64) {
        let loss = fit.loss(&weights, noise);
        if loss < *best - 1e-6 {
            *best = loss;
            self.weights = weights;
            self.noise = noise;
        }
    }

    /// Computes everything again, after weights, noise or known values have changed.
    pub fn restart(&mut self, points: &PointTable) {
        let known: Vec<(PointId, f64)> = self.ids.drain(..).zip(self.logs.drain(..)).collect();
        let mut sorted: Vec<f64> = known.iter().map(|k| k.1).collect();
        sorted.sort_by(f64::total_cmp);
        if let (Some(&low), Some(&middle)) = (sorted.first(), sorted.get(sorted.len() / 2)) {
            (self.low, self.middle) = (low, middle);
        }
        self.y.clear();
        self.tables.clear();
        self.factor.clear();
        self.diagonal.clear();
        self.zy.clear();
        self.z1.clear();
        self.sums = [0.0; 3];
        for r in &mut self.rows {
            r.v.clear();
            (r.vv, r.vy, r.v1) = (0.0, 0.0, 0.0);
        }
        for (s, log) in known {
            self.add(points, s, log);
        }
    }

    /// A logarithm of time as it is modelled: differences count the less the slower.
    pub fn squeezed(&self, log: f64) -> f64 {
        if !self.middle.is_finite() || !self.squeeze.is_finite() {
            return log;
        }
        let unit = (self.squeeze * (self.middle - self.low)).max(1e-4);
        let x = (log - self.low) / unit;
        // Faster than what the scale was made of: straight on.
        unit * if x > 0.0 { x.ln_1p() } else { x }
    }

    /// Replaces the logarithm of a known success, or drops the success where a later trial failed.
    pub fn change(&mut self, points: &PointTable, id: PointId, log: Option<f64>) {
        let Some(i) = self.ids.iter().position(|&s| s == id) else { return };
        match log {
            Some(log) => self.logs[i] = log,
            None => {
                self.ids.remove(i);
                self.logs.remove(i);
            }
        }
        self.restart(points);
    }

    /// Whether a point is among the successes.
    pub fn knows(&self, id: PointId) -> bool {
        self.ids.contains(&id)
    }
}

/// The likelihood of weights and noise, over some of the successes.
struct Fit {
    y: Vec<f64>,
    /// For each axis d_j of all pairs, the lower triangle row by row.
    pairs: Vec<Vec<f32>>,
    /// The middles of the weights' priors.
    middles: Vec<f64>,
    factor: Vec<f64>,
}

impl Fit {
    fn new(s: &Surrogate, points: &PointTable, chosen: &[usize]) -> Fit {
        let n = chosen.len();
        let mean = chosen.iter().map(|&i| s.y[i]).sum::<f64>() / n.max(1) as f64;
        let variance =
            chosen.iter().map(|&i| (s.y[i] - mean).powi(2)).sum::<f64>() / n.max(1) as f64;
        let deviation = if variance > 1e-24 { variance.sqrt() } else { 1.0 };
        let rows: Vec<&[u16]> = chosen.iter().map(|&i| points.point(s.ids[i])).collect();
        let triangle = |a: &KnobAxis| {
            let at: Vec<usize> = rows.iter().map(|p| a.value(p)).collect();
            let mut d = Vec::with_capacity(n * n / 2);
            for i in 0..n {
                d.extend(at[..i].iter().map(|&v| a.distance(at[i], v)));
            }
            d
        };
        let pairs = s.axes.iter().map(triangle).collect();
        let middles = s.axes.iter().map(|a| a.weight).collect();
        Fit {
            y: chosen.iter().map(|&i| (s.y[i] - mean) / deviation).collect(),
            pairs,
            middles,
            factor: vec![0.0; n * n],
        }
    }

    /// Minus the logarithm of likelihood and prior, but for constants.
    fn loss(&mut self, weights: &[f64], noise: f64) -> f64 {
        let n = self.y.len();
        let mut far = vec![0f32; n * n.saturating_sub(1) / 2];
        for (d, &w) in self.pairs.iter().zip(weights) {
            for (f, d) in far.iter_mut().zip(d) {
                *f += w as f32 * d;
            }
        }
        let (mut zy, mut z1) = (Vec::with_capacity(n), Vec::with_capacity(n));
        let (mut log, mut at) = (0.0, 0);
        for i in 0..n {
            let (above, this) = self.factor.split_at_mut(i * n);
            for j in 0..i {
                let k = f64::from((-far[at + j]).exp());
                let row = &above[j * n..j * n + j + 1];
                this[j] = (k - dot64(&row[..j], &this[..j])) / row[j];
            }
            at += i;
            let left = (1.0 + noise - dot64(&this[..i], &this[..i])).max(1e-10);
            let d = left.sqrt();
            this[i] = d;
            log += d.ln();
            zy.push((self.y[i] - dot64(&this[..i], &zy)) / d);
            z1.push((1.0 - dot64(&this[..i], &z1)) / d);
        }
        let b = dot64(&zy, &z1) / dot64(&z1, &z1).max(1e-12);
        let rr: f64 = zy.iter().zip(&z1).map(|(y, o)| (y - b * o).powi(2)).sum();
        let s2 = (rr + 0.1) / (n as f64 + 0.1);
        let prior: f64 = weights.iter().zip(&self.middles).map(|(w, m)| (w / m).ln().powi(2)).sum();
        n as f64 / 2.0 * s2.ln() + log + prior / 2.0
    }
}

/// The standard normal density and distribution at `x`; the latter by Abramowitz and Stegun's
/// 7.1.26, good to 1e-7.
fn normal(x: f64) -> (f64, f64) {
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let poly = t
        * (0.254829592
            + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    let tail = poly * (-z * z).exp() / 2.0;
    (density, if x > 0.0 { 1.0 - tail } else { tail })
}

impl Expectation {
    /// The expected improvement over `best`: how far the point is expected to lie below it, counted
    /// as 0 where it does not.
    pub fn improvement(&self, best: f64) -> f64 {
        let z = (best - self.mean) / self.deviation;
        // Far below, the error of the approximation exceeds the value; the asymptote is exact
        // there.
        if z < -4.0 {
            return self.deviation * normal(z).0 / (z * z);
        }
        let (density, below) = normal(z);
        self.deviation * (z * below + density)
    }
}
