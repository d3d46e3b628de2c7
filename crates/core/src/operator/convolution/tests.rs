//! Tests of convolutions in all directions: the workloads of `convolution.rs` must compute the same
//! numbers as loops that scatter each product of the definition to its place, for strides, padding,
//! dilation and groups of small sizes.

use super::*;

/// All places of a box, in order.
fn points(extents: &[i64]) -> Vec<Vec<i64>> {
    extents.iter().fold(vec![Vec::new()], |all, &e| {
        let more = |p: Vec<i64>| (0..e).map(move |i| [p.clone(), vec![i]].concat());
        all.into_iter().flat_map(more).collect()
    })
}

fn flat(extents: &[i64], at: &[i64]) -> usize {
    extents.iter().zip(at).fold(0, |o, (e, i)| o * e + i) as usize
}

/// Small whole numbers, so that sums are exact.
fn numbers(n: i64, seed: i64) -> Vec<f64> {
    (0..n).map(|i| ((i * 37 + seed * 11 + i * i % 7) % 9 - 4) as f64).collect()
}

fn product(extents: &[i64]) -> i64 {
    extents.iter().product()
}

impl Convolution {
    fn image_shape(&self, channels: i64, places: &[i64]) -> Vec<i64> {
        [vec![self.n], self.lies(&[channels], places)].concat()
    }

    fn image_at(&self, n: i64, c: i64, at: &[i64]) -> Vec<i64> {
        [vec![n], self.lies(&[c], at)].concat()
    }
}

/// The result by the definition: every product of image, filter and output that there is.
fn by_definition(c: &Convolution, first: &[f64], second: &[f64]) -> Vec<f64> {
    let (cg, kg) = (c.c / c.groups, c.k / c.groups);
    let taps: Vec<i64> = c.axes.iter().map(|a| a.kernel).collect();
    let sizes: Vec<i64> = c.axes.iter().map(|a| a.extent).collect();
    let (image, out) = (c.image_shape(c.c, &sizes), c.image_shape(c.k, &c.positions()));
    let filters = [vec![c.k, cg], taps.clone()].concat();
    let result = match c.direction {
        Direction::Forward => out.clone(),
        Direction::BackwardData => image.clone(),
        Direction::BackwardWeights => [vec![c.k], c.lies(&[cg], &taps)].concat(),
    };
    let mut y = vec![0.0; product(&result) as usize];
    for at in points(&[c.n, c.k, cg]) {
        let (n, k, ci) = (at[0], at[1], at[2]);
        for p in points(&c.positions()) {
            for t in points(&taps) {
                let place = |i: usize| {
                    let a = &c.axes[i];
                    a.stride * p[i] + a.dilation * t[i] - a.pads[0]
                };
                let h: Vec<i64> = (0..c.axes.len()).map(place).collect();
                if h.iter().zip(&sizes).any(|(h, e)| !(0..*e).contains(h)) {
                    continue;
                }
                let x = flat(&image, &c.image_at(n, k / kg * cg + ci, &h));
                let w = flat(&filters, &[vec![k, ci], t.clone()].concat());
                let o = flat(&out, &c.image_at(n, k, &p));
                match c.direction {
                    Direction::Forward => y[o] += first[x] * second[w],
                    Direction::BackwardData => y[x] += first[o] * second[w],
                    Direction::BackwardWeights => {
                        let at = flat(&result, &[vec![k], c.lies(&[ci], &t)].concat());
                        y[at] += first[x] * second[o];
                    }
                }
            }
        }
    }
    y
}

/// The part of a gradient of the data that is the image's.
fn cropped(c: &Convolution, y: Vec<f64>) -> Vec<f64> {
    if c.direction != Direction::BackwardData {
        return y;
    }
    let sizes: Vec<i64> = c.axes.iter().map(|a| a.extent).collect();
    let whole = c.image_shape(c.c, &c.computed());
    points(&c.image_shape(c.c, &sizes)).iter().map(|at| y[flat(&whole, at)]).collect()
}

fn axis(extent: i64, kernel: i64, stride: i64, pads: [i64; 2], dilation: i64) -> ConvAxis {
    ConvAxis { extent, kernel, stride, pads, dilation }
}

fn problems() -> Vec<(Vec<ConvAxis>, [i64; 4])> {
    let same = |a: ConvAxis| vec![a, ConvAxis { extent: a.extent + 1, ..a }];
    vec![
        (same(axis(5, 3, 1, [1, 1], 1)), [2, 3, 4, 1]),
        (same(axis(5, 1, 1, [0, 0], 1)), [1, 3, 2, 1]),
        (same(axis(5, 3, 1, [0, 0], 1)), [1, 2, 2, 1]),
        (same(axis(4, 1, 1, [2, 2], 1)), [1, 2, 2, 1]),
        (same(axis(7, 3, 1, [2, 2], 2)), [1, 2, 2, 1]),
        (same(axis(5, 3, 1, [3, 1], 1)), [1, 4, 6, 2]),
        (same(axis(5, 3, 1, [1, 1], 1)), [2, 4, 4, 4]),
        (same(axis(5, 3, 1, [1, 1], 1)), [1, 3, 6, 3]),
        (same(axis(6, 3, 2, [1, 1], 1)), [2, 2, 3, 1]),
        (same(axis(6, 3, 2, [0, 0], 1)), [1, 2, 2, 1]),
        (same(axis(6, 4, 2, [1, 1], 1)), [1, 2, 2, 1]),
        (same(axis(7, 1, 2, [0, 0], 1)), [1, 2, 2, 1]),
        (same(axis(9, 5, 2, [2, 1], 1)), [1, 4, 2, 2]),
        (same(axis(8, 7, 2, [3, 3], 1)), [1, 1, 2, 1]),
        (same(axis(9, 3, 3, [1, 1], 1)), [1, 2, 2, 1]),
        (same(axis(11, 5, 3, [2, 2], 1)), [1, 2, 2, 1]),
        (same(axis(11, 11, 4, [2, 2], 1)), [1, 1, 1, 1]),
        (vec![axis(6, 3, 1, [1, 1], 1)], [2, 2, 3, 1]),
        (vec![axis(6, 2, 2, [0, 0], 1), axis(5, 3, 1, [1, 1], 1)], [1, 2, 2, 1]),
        (
            vec![axis(4, 3, 1, [1, 1], 1), axis(4, 3, 2, [1, 1], 1), axis(5, 1, 1, [0, 0], 1)],
            [1, 2, 3, 1],
        ),
        (
            vec![axis(4, 2, 2, [0, 0], 1), axis(4, 3, 2, [1, 1], 1), axis(5, 3, 1, [1, 1], 1)],
            [2, 4, 2, 2],
        ),
    ]
}

#[test]
fn every_direction_computes_its_definition() {
    let directions = [Direction::Forward, Direction::BackwardData, Direction::BackwardWeights];
    let mut run = 0;
    for (axes, [n, c, k, groups]) in problems() {
        for direction in directions {
            for channels in [Channels::First, Channels::Last] {
                let conv = Convolution { direction, channels, n, c, k, groups, axes: axes.clone() };
                let w = conv.workload().unwrap_or_else(|e| panic!("{conv:?}: {e}"));
                assert_eq!(Workload::parse(&w.to_string()).unwrap(), w);
                let all: Vec<Vec<f64>> =
                    (1..).zip(&w.inputs).map(|(i, x)| numbers(product(&x.shape), i)).collect();
                let got = cropped(&conv, w.evaluate(&all));
                let want = by_definition(&conv, &all[0], &all[1]);
                assert_eq!(got, want, "{conv:?}\n{w}");
                assert_eq!(product(&conv.output()), product(&w.output().shape()));
                run += 1;
            }
        }
    }
    assert!(run > 100, "{run}");
}

#[test]
fn gradients_have_these_texts() {
    let c = |direction, stride| Convolution {
        direction,
        channels: Channels::First,
        n: 1,
        c: 4,
        k: 6,
        groups: 1,
        axes: vec![axis(8, 3, stride, [1, 1], 1); 2],
    };
    let text = |c: Convolution| c.workload().unwrap().to_string();
    assert_eq!(
        text(c(Direction::BackwardData, 1)),
        "workload conv2d_backward_data\ndata X: f32[1, 6, 8, 8]\nweight W: f32[6, 4, 3, 3]\n\
         stage P: f32[n: 1, k: 6, h: 10, w: 10] = select(0 <= h - 1 < 8 and 0 <= w - 1 < 8, \
         X[n, k, h - 1, w - 1], 0)\nstage V: f32[c: 4, k: 6, r: 3, s: 3] = W[k, c, -r + 2, -s \
         + 2]\nstage Y: f32[n: 1, c: 4, h: 8, w: 8] = sum(k: 6, r: 3, s: 3) P[n, k, h + r, s + \
         w] * V[c, k, r, s]\noutput Y\n"
    );
    let strided = text(c(Direction::BackwardData, 2));
    assert!(
        strided
            .contains("stage Y: f32[n: 1, c: 4, h: 4, y: 2, w: 4, x: 2] = sum(k: 6, r: 2, s: 2)")
            && strided.contains("stage V: f32[y: 2, x: 2, c: 4, k: 6, r: 2, s: 2] = select(0 <= "),
        "{strided}"
    );
    let weights = text(c(Direction::BackwardWeights, 2));
    assert!(
        weights.contains("stage P: f32[n: 1, h: 10, w: 10, c: 4]")
            && weights.contains("stage Y: f32[k: 6, c: 4, r: 3, s: 3] = sum(n: 1, p: 4, q: 4)"),
        "{weights}"
    );
    assert_eq!(c(Direction::BackwardData, 2).name(), "conv2d_backward_data_4x8x8_k6_3x3_s2");
}

#[test]
fn transposed_convolutions_are_gradients() {
    let axes = [(axis(4, 4, 2, [1, 1], 1), 0), (axis(5, 3, 2, [1, 1], 1), 1)];
    let (c, name) = Convolution::transposed(Channels::First, [1, 6, 4, 1], &axes).unwrap();
    assert_eq!((c.output(), c.positions()), (vec![1, 4, 8, 10], vec![4, 5]));
    assert_eq!(name, "conv2d_transposed_4x8x10_k6_4x3_s2");
    let bad = [(axis(4, 4, 2, [1, 1], 1), 2)];
    let e = Convolution::transposed(Channels::First, [1, 6, 4, 1], &bad).unwrap_err();
    assert!(e.contains("an output padding of 2 is not below the stride of 2"), "{e}");
}

#[test]
fn gradients_that_are_not_made_say_so() {
    let both = Convolution {
        direction: Direction::BackwardData,
        channels: Channels::First,
        n: 1,
        c: 2,
        k: 2,
        groups: 1,
        axes: vec![axis(9, 3, 2, [1, 1], 2); 2],
    };
    let e = both.workload().unwrap_err();
    assert!(e.contains("a stride of 2 with a dilation of 2"), "{e}");
    let empty = Convolution { axes: Vec::new(), ..both };
    assert!(empty.workload().unwrap_err().contains("one to three axes"));
}
