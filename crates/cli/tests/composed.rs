//! Tests of operators that are written out as others when a model is read
//! (`frontend/src/onnx/reader/composed.rs`) and of normalisations as kernels: one model with many
//! such nodes is run by `squall run`, and its results are held against sums that this file computes
//! term by term in 64-bit floats.

use crate::branches::npy;
use crate::support;

use squall_testing::onnx::{AttributeProto, Build, float, i64s, int, text};
use support::Place;

/// Einsum equations with the shapes of their operands.
const EQUATIONS: &[(&str, &[&[usize]])] = &[
    ("bhid,bhjd->bhij", &[&[2, 3, 4, 5], &[2, 3, 6, 5]]),
    ("bhij,bhjd->bhid", &[&[2, 3, 4, 6], &[2, 3, 6, 5]]),
    ("bqhd,bkhd->bhqk", &[&[1, 4, 3, 5], &[1, 7, 3, 5]]),
    ("bhqk,bkhd->bqhd", &[&[2, 3, 4, 7], &[2, 7, 3, 5]]),
    ("bsd,dhk->bshk", &[&[2, 3, 4], &[4, 2, 5]]),
    ("ij,jk", &[&[3, 4], &[4, 5]]),
    ("kj,ij->ik", &[&[3, 4], &[5, 4]]),
    ("ab,bca->c", &[&[3, 4], &[4, 5, 3]]),
    ("ii->i", &[&[4, 4]]),
    ("biji->bj", &[&[2, 3, 4, 3]]),
    ("ij->", &[&[3, 4]]),
    ("i,j->ij", &[&[3], &[4]]),
    ("i,i->", &[&[5], &[5]]),
    ("bii,bi->b", &[&[2, 3, 3], &[2, 3]]),
    ("...ij,...jk->...ik", &[&[2, 1, 3, 4], &[5, 4, 6]]),
    ("abc,cd,db->a", &[&[2, 3, 4], &[4, 5], &[5, 3]]),
    ("a,b,c->cab", &[&[2], &[3], &[4]]),
    ("ab,b->a", &[&[3, 4], &[4]]),
    ("abx,b->ab", &[&[3, 4, 2], &[4]]),
    ("ij,ij->i", &[&[2, 3], &[2, 1]]),
    ("ij,ij->", &[&[2, 3], &[2, 1]]),
    ("iij,j->i", &[&[3, 3, 1], &[4]]),
    ("...ii,...i->...i", &[&[1, 3, 3], &[5, 3]]),
];

/// A model under construction, with the arrays that its inputs are given.
struct Case {
    build: Build,
    given: Vec<(String, Vec<usize>, Vec<f32>)>,
}

impl Case {
    /// An input of numbers that look random.
    fn input(&mut self, shape: &[usize]) -> String {
        let name = format!("x{}", self.given.len());
        let seed = self.given.len() as u32;
        let number = |i: u32| {
            let mixed = (i + 1 + 977 * seed).wrapping_mul(2_654_435_761) >> 8;
            mixed as f32 / (1 << 23) as f32 - 1.0
        };
        let data: Vec<f32> = (0..shape.iter().product::<usize>() as u32).map(number).collect();
        let dims: Vec<i64> = shape.iter().map(|d| *d as i64).collect();
        self.build = std::mem::replace(&mut self.build, Build::new(23)).input(&name, &dims);
        self.given.push((name.clone(), shape.to_vec(), data));
        name
    }

    fn node(&mut self, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> String {
        let y = format!("y{}", self.build.graph().output.len());
        let build = std::mem::replace(&mut self.build, Build::new(23));
        self.build = build.node(op, inputs, &[&y], attributes).output(&y);
        y
    }

    fn data(&self, name: &str) -> Vec<f64> {
        let found = self.given.iter().find(|g| g.0 == name).unwrap();
        found.2.iter().map(|x| f64::from(*x)).collect()
    }

    /// The outputs by name, from `squall run`.
    fn run(&mut self) -> Vec<Vec<f32>> {
        let p = Place::new();
        p.file("m.onnx", self.build.bytes());
        let mut words = vec!["run".to_string(), "m.onnx".into()];
        for (name, shape, data) in &self.given {
            let shape: Vec<i64> = shape.iter().map(|d| *d as i64).collect();
            let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
            p.file(&format!("{name}.npy"), npy("<f4", &shape, &bytes));
            words.extend(["--input".into(), format!("{name}={name}.npy")]);
        }
        let outputs: Vec<String> =
            self.build.graph().output.iter().map(|o| o.name.clone()).collect();
        for y in &outputs {
            words.extend(["--output".into(), format!("{y}={y}.npy")]);
        }
        p.squall(&words.iter().map(String::as_str).collect::<Vec<_>>()).ok();
        let read = |y: &String| {
            let array = squall::arrays::read_array(&p.path().join(format!("{y}.npy"))).unwrap();
            array.f32s().unwrap()
        };
        outputs.iter().map(read).collect()
    }
}

/// An Einstein sum term by term: for all values of all indices.
fn einsum(equation: &str, shapes: &[&[usize]], data: &[Vec<f64>]) -> Vec<f64> {
    let (left, right) = match equation.split_once("->") {
        Some((l, r)) => (l, r.to_string()),
        None => ("ij,jk", "ik".to_string()),
    };
    let widest = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let named: Vec<Vec<char>> = left
        .split(',')
        .zip(shapes)
        .map(|(term, shape)| {
            let free = shape.len() - term.replace("...", "").len();
            let dots: String = "4321".chars().skip(4 - free).collect();
            term.replace("...", &dots).chars().collect()
        })
        .collect();
    let dots: String = "4321".chars().skip(4 - widest.saturating_sub(2).min(4)).collect();
    let result: Vec<char> = right.replace("...", &dots).chars().collect();
    let mut letters: Vec<(char, usize)> = Vec::new();
    for (c, d) in named.iter().flatten().zip(shapes.iter().flat_map(|s| s.iter())) {
        match letters.iter_mut().find(|l| l.0 == *c) {
            Some(known) => known.1 = known.1.max(*d),
            None => letters.push((*c, *d)),
        }
    }
    let extent = |c: char| letters.iter().find(|l| l.0 == c).map_or(1, |l| l.1);
    let mut sums = vec![0.0; result.iter().map(|c| extent(*c)).product()];
    let all: usize = letters.iter().map(|l| l.1).product();
    for mut rest in 0..all {
        let mut values = Vec::new();
        for (c, d) in &letters {
            values.push((*c, rest % d));
            rest /= d;
        }
        let value = |c: char| values.iter().find(|v| v.0 == c).map_or(0, |v| v.1);
        let place = |of: &[char], shape: &dyn Fn(usize) -> usize| {
            let at = |p, (i, c): (usize, &char)| p * shape(i) + value(*c) % shape(i);
            of.iter().enumerate().fold(0, at)
        };
        let factors = named.iter().zip(shapes).zip(data);
        let term: f64 = factors.map(|((of, s), x)| x[place(of, &|i| s[i])]).product();
        sums[place(&result, &|i| extent(result[i]))] += term;
    }
    sums
}

/// Rows with a mean of 0, or only with a mean square of 1.
fn normalised(rows: &[f64], length: usize, eps: f64, centred: bool) -> Vec<f64> {
    let mut made = Vec::new();
    for row in rows.chunks(length) {
        let mean = if centred { row.iter().sum::<f64>() / length as f64 } else { 0.0 };
        let square = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / length as f64;
        made.extend(row.iter().map(|x| (x - mean) / (square + eps).sqrt()));
    }
    made
}

fn assert_close(name: &str, got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{name}");
    let most = want.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let far = (f64::from(*g) - w).abs();
        assert!(far <= 2e-5 * most, "{name}: element {i} is {g}, expected {w}");
    }
}

#[test]
fn einstein_sums_are_what_their_equations_say() {
    let mut c = Case { build: Build::new(23), given: Vec::new() };
    let mut wanted = Vec::new();
    for (equation, shapes) in EQUATIONS {
        let inputs: Vec<String> = shapes.iter().map(|s| c.input(s)).collect();
        let names: Vec<&str> = inputs.iter().map(String::as_str).collect();
        c.node("Einsum", &names, &[text("equation", equation)]);
        let data: Vec<Vec<f64>> = names.iter().map(|n| c.data(n)).collect();
        wanted.push((*equation, einsum(equation, shapes, &data)));
    }
    let model = c.build.read().unwrap();
    assert!(model.nodes.iter().all(|n| n.op != "Einsum"), "one was not written out");
    for (got, (equation, want)) in c.run().iter().zip(&wanted) {
        assert_close(equation, got, want);
    }
}

#[test]
fn normalisations_are_what_they_say() {
    let mut c = Case { build: Build::new(23), given: Vec::new() };
    let mut wanted = Vec::new();
    // Factors and addends by channels, of images of 6 channels in groups of 1, 3 and 6.
    let by_channels = |rows: Vec<f64>, scale: &[f64], shift: &[f64]| -> Vec<f64> {
        let of = |i: usize| i / 20 % 6;
        rows.iter().enumerate().map(|(i, x)| x * scale[of(i)] + shift[of(i)]).collect()
    };
    for groups in [1, 3, 6] {
        let [x, s, b] = [&[2, 6, 4, 5][..], &[6], &[6]].map(|shape| c.input(shape));
        let attributes = [int("num_groups", groups), float("epsilon", 0.01)];
        c.node("GroupNormalization", &[&x, &s, &b], &attributes);
        let rows = normalised(&c.data(&x), 120 / groups as usize, 0.01, true);
        wanted.push(by_channels(rows, &c.data(&s), &c.data(&b)));
    }
    let [x, s, b] = [&[2, 6, 4, 5][..], &[6], &[6]].map(|shape| c.input(shape));
    c.node("InstanceNormalization", &[&x, &s, &b], &[float("epsilon", 0.01)]);
    let rows = normalised(&c.data(&x), 20, 0.01, true);
    wanted.push(by_channels(rows, &c.data(&s), &c.data(&b)));
    let x = c.input(&[1, 3, 7, 5]);
    c.node("MeanVarianceNormalization", &[&x], &[]);
    wanted.push(normalised(&c.data(&x), 35, 0.0, true));
    let [x, s] = [&[2, 3, 33][..], &[33]].map(|shape| c.input(shape));
    c.node("RMSNormalization", &[&x, &s], &[float("epsilon", 0.01)]);
    let (rows, scale) = (normalised(&c.data(&x), 33, 0.01, false), c.data(&s));
    wanted.push(rows.iter().enumerate().map(|(i, x)| x * scale[i % 33]).collect());
    for (i, (got, want)) in c.run().iter().zip(&wanted).enumerate() {
        assert_close(&format!("normalisation {i}"), got, want);
    }
}

/// Softmax of scaled scores times values, of heads that share keys, with and without masks; a query
/// that sees no key has zeros.
#[test]
fn attention_is_what_it_says() {
    let mut c = Case { build: Build::new(23), given: Vec::new() };
    let mut wanted = Vec::new();
    let (queries, keys, size) = (5, 7, 4);
    // Of a mask some keys are hidden, and all of the third query.
    let hidden = |i: usize, j: usize| i == 2 || (i + 2 * j) % 5 == 1;
    let forms = [(2, 2, 0, false), (4, 2, 0, false), (4, 1, 1, false), (2, 2, 0, true)];
    for (heads, shared, causal, masked) in forms.into_iter().chain([(4, 2, 1, true)]) {
        let [q, k, v] = [(heads, queries), (shared, keys), (shared, keys)]
            .map(|(h, steps)| c.input(&[2, h, steps, size]));
        let mask = masked.then(|| c.input(&[queries, keys]));
        if masked && let Some(given) = c.given.last_mut() {
            let all = (0..queries).flat_map(|i| (0..keys).map(move |j| (i, j)));
            let low = |(i, j)| if hidden(i, j) { f32::NEG_INFINITY } else { 0.0 };
            given.2 = all.map(low).collect();
        }
        let inputs = [Some(&q), Some(&k), Some(&v), mask.as_ref()];
        let inputs: Vec<&str> = inputs.into_iter().flatten().map(String::as_str).collect();
        c.node("Attention", &inputs, &[int("is_causal", causal)]);
        let (q, k, v) = (c.data(&q), c.data(&k), c.data(&v));
        let mut want = Vec::new();
        for row in 0..2 * heads * queries {
            let (head, i) = (row / queries, row % queries);
            let own = head / heads * shared + head % heads / (heads / shared);
            let score = |j: usize| -> f64 {
                let key = (own * keys + j) * size;
                let dot: f64 = (0..size).map(|d| q[row * size + d] * k[key + d]).sum();
                dot / (size as f64).sqrt()
            };
            let is_seen = |j: &usize| (causal == 0 || *j <= i) && !(masked && hidden(i, *j));
            let seen = (0..keys).filter(is_seen);
            let powers: Vec<(usize, f64)> = seen.map(|j| (j, score(j).exp())).collect();
            let all: f64 = powers.iter().map(|p| p.1).sum();
            let of = |d: usize| -> f64 {
                powers.iter().map(|(j, p)| p / all * v[(own * keys + j) * size + d]).sum()
            };
            want.extend((0..size).map(of));
        }
        wanted.push(want);
    }
    let model = c.build.read().unwrap();
    assert!(model.nodes.iter().all(|n| n.op != "Attention"), "one was not written out");
    for (i, (got, want)) in c.run().iter().zip(&wanted).enumerate() {
        assert_close(&format!("attention {i}"), got, want);
    }
}

/// A graph under construction with one more constant of whole numbers; its name.
fn constant(c: &mut Case, dims: &[i64], data: &[i64]) -> String {
    let name = format!("c{}", c.build.graph().initializer.len());
    let build = std::mem::replace(&mut c.build, Build::new(23));
    c.build = build.init(&name, i64s(dims, data));
    name
}

/// Rows along an axis of `[2, 3, 4]`, and the places of their elements.
fn rows(axis: usize) -> Vec<Vec<usize>> {
    let [shape, strides] = [[2, 3, 4], [12, 4, 1]];
    let firsts = (0..24).filter(|i| i / strides[axis] % shape[axis] == 0);
    firsts.map(|i| (0..shape[axis]).map(|k| i + k * strides[axis]).collect()).collect()
}

/// Norms and sums of powers along the last dimension, which are kernels, and along another, which
/// are written out.
#[test]
fn norms_and_sums_of_powers_are_what_they_say() {
    let mut c = Case { build: Build::new(23), given: Vec::new() };
    let mut wanted = Vec::new();
    for (axis, p) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let x = c.input(&[2, 3, 4]);
        if let Some(given) = c.given.last_mut() {
            // The norm of one row is 0.
            rows(axis)[1].iter().for_each(|i| given.2[*i] = 0.0);
        }
        c.node("LpNormalization", &[&x], &[int("axis", axis as i64), int("p", p)]);
        let x = c.data(&x);
        let mut want = vec![0.0; 24];
        for row in rows(axis) {
            let sum: f64 = row.iter().map(|i| x[*i].abs().powi(p as i32)).sum();
            let norm = if p == 2 { sum.sqrt() } else { sum };
            row.iter().filter(|_| norm > 0.0).for_each(|i| want[*i] = x[*i] / norm);
        }
        wanted.push(want);
    }
    for (axis, keepdims) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
        let x = c.input(&[2, 3, 4]);
        if let Some(given) = c.given.last_mut() {
            // The powers overflow unless the largest element is taken from all of them first.
            given.2.iter_mut().for_each(|x| *x = 100.0 + 10.0 * *x);
        }
        let axes = constant(&mut c, &[1], &[axis as i64]);
        c.node("ReduceLogSumExp", &[&x, &axes], &[int("keepdims", keepdims)]);
        let x = c.data(&x);
        let sum = |row: &Vec<usize>| row.iter().map(|i| x[*i].exp()).sum::<f64>().ln();
        wanted.push(rows(axis).iter().map(sum).collect());
    }
    let model = c.build.read().unwrap();
    let left = |op: &str| model.nodes.iter().filter(|n| n.op == op).count();
    assert_eq!([left("LpNormalization"), left("ReduceLogSumExp")], [2, 2]);
    for (i, (got, want)) in c.run().iter().zip(&wanted).enumerate() {
        assert_close(&format!("norm {i}"), got, want);
    }
}

/// Sums of powers of rows that hold infinities and NaN, along both dimensions.
#[test]
fn sums_of_powers_know_infinities() {
    let mut c = Case { build: Build::new(23), given: Vec::new() };
    let (high, low, none) = (f32::INFINITY, f32::NEG_INFINITY, f32::NAN);
    let lines = [[high, 1.0, 2.0], [low, low, low], [low, 1.0, low], [none, 1.0, high]];
    for axis in [1, 2] {
        let shape = if axis == 2 { [1, 4, 3] } else { [1, 3, 4] };
        let x = c.input(&shape);
        if let Some(given) = c.given.last_mut() {
            let place =
                |i: usize| if axis == 2 { lines[i / 3][i % 3] } else { lines[i % 4][i / 4] };
            given.2 = (0..12).map(place).collect();
        }
        let axes = constant(&mut c, &[1], &[axis]);
        c.node("ReduceLogSumExp", &[&x, &axes], &[]);
    }
    for got in c.run() {
        assert!(got[..2] == [high, low] && got[3].is_nan(), "{got:?}");
        assert!((got[2] - 1.0).abs() < 1e-5, "{got:?}");
    }
}

/// Rotary embeddings of all forms: with places and without, heads in the second dimension and side
/// by side, pairs of halves and of neighbours, all features and the first few.
#[test]
fn rotary_embeddings_are_what_they_say() {
    let mut c = Case { build: Build::new(23), given: Vec::new() };
    let mut wanted = Vec::new();
    let (batch, heads, steps, size, cached) = (2, 3, 5, 8, 9);
    let ids: Vec<i64> = (0..10).map(|i| (i * 4 + 1) % cached as i64).collect();
    let forms = (0..16).map(|i| [i & 1, i & 2, i & 4, i & 8].map(|bit| bit != 0));
    for [packed, neighbours, placed, few] in forms {
        let turned = if few { 4 } else { size };
        let half = turned / 2;
        let shape = match packed {
            true => vec![batch, steps, heads * size],
            false => vec![batch, heads, steps, size],
        };
        let cache = if placed { vec![cached, half] } else { vec![batch, steps, half] };
        let x = c.input(&shape);
        let [cos, sin] = [(); 2].map(|()| c.input(&cache));
        let mut inputs = vec![x.clone(), cos.clone(), sin.clone()];
        inputs.extend(placed.then(|| constant(&mut c, &[2, 5], &ids)));
        let attributes = [
            int("interleaved", i64::from(neighbours)),
            int("num_heads", if packed { heads as i64 } else { 0 }),
            int("rotary_embedding_dim", if few { turned as i64 } else { 0 }),
        ];
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        c.node("RotaryEmbedding", &inputs, &attributes);
        let (x, cos, sin) = (c.data(&x), c.data(&cos), c.data(&sin));
        let mut want = x.clone();
        for n in 0..batch * heads * steps {
            let (b, h, t) = (n / heads / steps, n / steps % heads, n % steps);
            let at = if packed { (b * steps + t) * heads + h } else { n };
            let row = if placed { ids[b * steps + t] as usize } else { b * steps + t };
            for k in 0..half {
                let pair = if neighbours { [2 * k, 2 * k + 1] } else { [k, half + k] };
                let [i, j] = pair.map(|f| at * size + f);
                let (r, s) = (cos[row * half + k], sin[row * half + k]);
                (want[i], want[j]) = (r * x[i] - s * x[j], s * x[i] + r * x[j]);
            }
        }
        wanted.push(want);
    }
    // Rows are gathered ahead: no node has places any more.
    let model = c.build.read().unwrap();
    let with_places =
        model.nodes.iter().filter(|n| n.op == "RotaryEmbedding" && n.inputs.len() > 3);
    assert_eq!(with_places.count(), 0);
    for (i, (got, want)) in c.run().iter().zip(&wanted).enumerate() {
        assert_close(&format!("rotary embedding {i}"), got, want);
    }
}

/// Bytes that no product reads are one operator's, which gives the bytes of the definition.
#[test]
fn dynamic_bytes_that_leave_are_what_they_say() {
    let mut c = Case { build: Build::new(23), given: Vec::new() };
    let mut wanted = Vec::new();
    // Fewer than a vector of elements, and several with some more.
    for (i, count) in [5, 64, 203].into_iter().enumerate() {
        let x = c.input(&[count]);
        let names = ["q", "s", "z"].map(|n| format!("{n}{i}"));
        let outputs = names.each_ref().map(String::as_str);
        let build = std::mem::replace(&mut c.build, Build::new(23));
        c.build = build.node("DynamicQuantizeLinear", &[&x], &outputs, &[]);
        c.node("Cast", &[&names[0]], &[int("to", 1)]);
        c.node("Identity", &[&names[1]], &[]);
        c.node("Cast", &[&names[2]], &[int("to", 1)]);
        let x: Vec<f32> = c.data(&x).into_iter().map(|x| x as f32).collect();
        let (low, high) = x.iter().fold((0f32, 0f32), |(l, h), x| (l.min(*x), h.max(*x)));
        let scale = (high - low) / 255.0;
        let zero = (-low / scale).round_ties_even().clamp(0.0, 255.0);
        let byte = |x: &f32| ((x / scale).round_ties_even() + zero).clamp(0.0, 255.0);
        wanted.push(x.iter().map(|x| f64::from(byte(x))).collect());
        wanted.extend([vec![f64::from(scale)], vec![f64::from(zero)]]);
    }
    let model = c.build.read().unwrap();
    let left = model.nodes.iter().filter(|n| n.op == "DynamicQuantizeLinear").count();
    assert_eq!(left, 3);
    for (i, (got, want)) in c.run().iter().zip(&wanted).enumerate() {
        assert_close(&format!("dynamic bytes {i}"), got, want);
    }
}
