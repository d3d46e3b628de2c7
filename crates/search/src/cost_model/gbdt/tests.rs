//! Tests of the gradient-boosted trees of the cost model (`gbdt.rs`): splits and histograms against
//! brute force, ranking of rows that were not learned from, equal trees for equal data, and the
//! form as bytes.

use super::super::NoModel;
use super::*;
use crate::statistics::rank_correlation;
use proptest::prelude::*;

fn settings() -> GbdtSettings {
    GbdtSettings { row_share: 1.0, column_share: 1.0, ..GbdtSettings::default() }
}

fn views(rows: &[Vec<f32>]) -> Vec<&[f32]> {
    rows.iter().map(Vec::as_slice).collect()
}

/// The gain of the best split over all features and all distinct values, by definition.
fn brute_force(rows: &[Vec<f32>], g: &[f64], s: &GbdtSettings) -> Option<(f64, Vec<(usize, f32)>)> {
    let total: f64 = g.iter().sum();
    let worth = |sum: f64, n: usize| sum * sum / (n as f64 + s.ridge);
    let mut all = Vec::new();
    for feature in 0..rows[0].len() {
        for value in rows.iter().map(|r| r[feature]) {
            let left: Vec<usize> = (0..rows.len()).filter(|&i| rows[i][feature] <= value).collect();
            let right = rows.len() - left.len();
            if (left.len() as f64) < s.least || (right as f64) < s.least {
                continue;
            }
            let sum: f64 = left.iter().map(|&i| g[i]).sum();
            let gain =
                worth(sum, left.len()) + worth(total - sum, right) - worth(total, rows.len());
            all.push((gain, feature, value));
        }
    }
    let best = all.iter().map(|a| a.0).fold(f64::NEG_INFINITY, f64::max);
    (best > 1e-9)
        .then(|| (best, all.iter().filter(|a| a.0 > best - 1e-7).map(|a| (a.1, a.2)).collect()))
}

proptest! {
    #[test]
    fn the_split_is_the_one_of_brute_force(
        rows in prop::collection::vec(prop::collection::vec(-4i8..5, 3), 4..40),
        seed in 0u64..1000,
    ) {
        let row = |r: &Vec<i8>| r.iter().map(|&x| f32::from(x) / 3.0).collect();
        let rows: Vec<Vec<f32>> = rows.iter().map(row).collect();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let g: Vec<f64> = rows.iter().map(|_| rng.random_range(-1.0..1.0)).collect();
        let s = settings();
        let want = brute_force(&rows, &g, &s);
        let data = Binned::new(&views(&rows));
        let h = vec![1.0; rows.len()];
        let columns: Vec<u32> = (0..data.columns.len() as u32).collect();
        let mut pool = Vec::new();
        let mut grower = Grower {
            data: &data,
            g: &g,
            h: &h,
            columns: &columns,
            s: &s,
            pool: &mut pool,
            nodes: Vec::new(),
            scratch: Vec::new(),
        };
        let all: Vec<u32> = (0..rows.len() as u32).collect();
        let histogram = grower.histogram(&all);
        let got = grower.best_split(&histogram, [g.iter().sum(), rows.len() as f64]);
        prop_assert_eq!(got.is_some(), want.is_some());
        if let (Some(split), Some((gain, places))) = (got, want) {
            prop_assert!((split.gain - gain).abs() < 1e-7, "{} is not {}", split.gain, gain);
            let column = &data.columns[split.column];
            // The same rows go left as at one of the best places.
            let goes_left = |r: &Vec<f32>| r[column.feature as usize] <= column.cuts[split.bin];
            let agrees = |&(f, v): &(usize, f32)| rows.iter().all(|r| goes_left(r) == (r[f] <= v));
            let same = places.iter().any(agrees);
            prop_assert!(same, "{:?} is none of {:?}", split, places);
        }
    }

    #[test]
    fn a_childs_histogram_is_its_parents_less_its_siblings(
        values in prop::collection::vec((0u8..60, 0u8..60, -8i8..9), 8..60),
    ) {
        // A tree of depth 3 grown with subtraction equals one whose leaves are averaged directly.
        let row = |v: &(u8, u8, i8)| vec![f32::from(v.0), f32::from(v.1)];
        let rows: Vec<Vec<f32>> = values.iter().map(row).collect();
        let labels: Vec<f32> = values.iter().map(|v| f32::from(v.2) / 8.0).collect();
        let s = GbdtSettings { trees: 1, depth: 3, shrinkage: 1.0, ridge: 0.0, ..settings() };
        let mut model = Gbdt::new(s);
        model.fit(&views(&rows), &labels);
        let predicted = model.predict(&views(&rows));
        for (i, p) in predicted.iter().enumerate() {
            // Rows of one leaf share an answer: it is their mean.
            let same = predicted.iter().zip(&labels).filter(|(q, _)| *q == p);
            let peers: Vec<f32> = same.map(|(_, &l)| l).collect();
            let mean = peers.iter().sum::<f32>() / peers.len() as f32;
            prop_assert!((p - mean).abs() < 1e-4, "row {}: {} is not the mean {} of its \
                leaf", i, p, mean);
        }
    }
}

/// Rows of `width` features, of which seven matter, with a cliff and products.
fn problem(n: usize, width: usize, seed: u64) -> (Vec<Vec<f32>>, Vec<f32>) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let rows: Vec<Vec<f32>> = (0..n)
        .map(|_| (0..width).map(|_| rng.random_range(0..17) as f32 / 16.0).collect())
        .collect();
    let label = |r: &Vec<f32>| {
        let cliff = if r[0] * r[1] > 0.3 { 0.5 } else { 1.0 };
        let valley = (r[2] - 0.4).powi(2) + 0.5 * (r[3] - r[4]).powi(2) + 0.2 * r[5] * r[6];
        cliff / (1.0 + 2.0 * valley)
    };
    let labels = rows.iter().map(label).collect();
    (rows, labels)
}

fn held_out_rank(loss: Loss, train: usize) -> f64 {
    let (rows, labels) = problem(train, 60, 1);
    let (other, truth) = problem(1000, 60, 2);
    let mut model = Gbdt::new(GbdtSettings { loss, ..GbdtSettings::default() });
    model.fit(&views(&rows), &labels);
    rank_correlation(&model.predict(&views(&other)), &truth)
}

#[test]
fn it_ranks_rows_that_it_never_saw() {
    for (loss, least) in [(Loss::Squared, [0.5, 0.8]), (Loss::Pairwise, [0.5, 0.8])] {
        for (n, least) in [60, 800].into_iter().zip(least) {
            let rank = held_out_rank(loss, n);
            println!("{loss:?} {n} rows: {rank:.3}");
            assert!(rank > least, "{loss:?} with {n} rows: {rank}");
        }
    }
    let (other, truth) = problem(1000, 60, 2);
    assert!(rank_correlation(&NoModel { seed: 1 }.predict(&views(&other)), &truth).abs() < 0.1);
}

#[test]
fn the_training_loss_falls_with_every_tree_and_below_the_mean() {
    let (rows, labels) = problem(400, 20, 3);
    let mut model = Gbdt::new(settings());
    model.fit(&views(&rows), &labels);
    let mean = labels.iter().sum::<f32>() / labels.len() as f32;
    let variance =
        labels.iter().map(|l| f64::from(l - mean).powi(2)).sum::<f64>() / labels.len() as f64;
    let losses = model.training_losses();
    assert_eq!(losses.len(), 50);
    assert!(losses[0] < variance);
    assert!(losses.windows(2).all(|w| w[1] <= w[0] + 1e-12), "{losses:?}");
    assert!(losses[49] < 0.05 * variance, "{} of {variance}", losses[49]);
}

#[test]
fn more_values_than_bins_and_odd_data_are_no_trouble() {
    let rows: Vec<Vec<f32>> = (0..500)
        .map(|i| vec![i as f32, 1.0, if i % 2 == 0 { f32::MAX } else { f32::MIN }])
        .collect();
    let labels: Vec<f32> = (0..500).map(|i| if i < 250 { 0.0 } else { 1.0 }).collect();
    let mut model = Gbdt::new(settings());
    model.fit(&views(&rows), &labels);
    let p = model.predict(&views(&rows));
    assert!(p[100] < 0.05 && p[400] > 0.95, "{} {}", p[100], p[400]);
    // No rows, one row, rows without any difference.
    for n in [0, 1, 5] {
        model.fit(&views(&vec![vec![2.0, 3.0]; n]), &vec![0.5; n]);
        let expected = if n == 0 { 0.0 } else { 0.5 };
        assert!((model.predict(&[&[1.0, 1.0]])[0] - expected).abs() < 1e-6);
    }
}

#[test]
fn equal_data_and_seed_give_equal_trees() {
    let (rows, labels) = problem(100, 20, 3);
    let fit = |seed| {
        let mut model = Gbdt::new(GbdtSettings { seed, ..GbdtSettings::default() });
        model.fit(&views(&rows), &labels);
        model.trees
    };
    assert_eq!(fit(1), fit(1));
    assert_ne!(fit(1), fit(2));
}

#[test]
fn trees_come_back_from_their_bytes_and_broken_bytes_are_refused() {
    let (rows, labels) = problem(400, 20, 3);
    for loss in [Loss::Squared, Loss::Pairwise] {
        let mut model = Gbdt::new(GbdtSettings { trees: 9, loss, ..GbdtSettings::default() });
        model.fit(&views(&rows), &labels);
        let bytes = model.to_bytes();
        let again = Gbdt::from_bytes(&bytes, 20).expect("the bytes are whole");
        assert_eq!(again.predict(&views(&rows)), model.predict(&views(&rows)));
        assert_eq!(again.to_bytes(), bytes);
        for end in 0..bytes.len() {
            assert!(Gbdt::from_bytes(&bytes[..end], 20).is_err(), "{end} bytes");
        }
        assert!(Gbdt::from_bytes(&bytes, 1).is_err(), "features that rows lack");
        // Whatever changes, rows are still ranked or the bytes refused: no way runs in a circle.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..4000 {
            let mut other = bytes.clone();
            let at = rng.random_range(0..other.len());
            other[at] = rng.random();
            if let Ok(model) = Gbdt::from_bytes(&other, 20) {
                model.predict(&views(&rows[..8]));
            }
        }
    }
}
