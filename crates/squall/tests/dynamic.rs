//! Tests of dynamically quantised convolutions (the image is quantised to bytes in every run, by
//! its own range). Models with `DynamicQuantizeLinear` and `ConvInteger` are built, run, and
//! compared with their definition: the integer sums must be exact, the floats equal but for
//! rounding.

use squall_testing::onnx as build;

use crate::written;

use build::{Build, int, ints};
use squall::InputRequest;
use squall::network::LayerKind;
use squall_core::{Objective, TaskId};
use squall_frontend::onnx::proto::TensorProto;
use squall_graph::Assignment;
use squall_graph::solvers::{CoverCosting, Unknown, cheapest_cover};

/// A convolution to test, in the terms of a model's file.
#[derive(Clone, Copy, Debug)]
struct Case {
    image: [usize; 4],
    k: usize,
    window: usize,
    stride: usize,
    pad: usize,
    groups: usize,
    /// Whether the filters are unsigned bytes with a zero point of 128.
    unsigned: bool,
    /// Whether the quantised values are never below zero.
    rectified: bool,
    /// Whether its kernel is one of bytes.
    bytes: bool,
}

fn numbers(count: usize, seed: u64) -> Vec<u64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 40
    };
    (0..count).map(|_| next()).collect()
}

impl Case {
    fn filters(&self) -> [usize; 4] {
        [self.k, self.image[1] / self.groups, self.window, self.window]
    }

    fn output(&self) -> [usize; 4] {
        let size = |e: usize| (e + 2 * self.pad - self.window) / self.stride + 1;
        [self.image[0], self.k, size(self.image[2]), size(self.image[3])]
    }

    fn model(&self, weights: &[i64]) -> Build {
        let data_type = if self.unsigned { 2 } else { 3 };
        let offset = if self.unsigned { 128 } else { 0 };
        let raw_data = weights.iter().map(|w| (w + offset) as u8).collect();
        let dims = self.filters().map(|e| e as i64).to_vec();
        let w = TensorProto { dims, data_type, raw_data, ..Default::default() };
        let zero = TensorProto { data_type, raw_data: vec![offset as u8], ..Default::default() };
        let attributes = [
            ints("pads", &[self.pad as i64; 4]),
            ints("strides", &[self.stride as i64; 2]),
            int("group", self.groups as i64),
        ];
        let build = Build::new(17).input("x", &self.image.map(|e| e as i64));
        let (build, from) = match self.rectified {
            true => (build.node("Relu", &["x"], &["above"], &[]), "above"),
            false => (build, "x"),
        };
        build
            .init("w", w)
            .init("wz", zero)
            .init("ws", build::f32s(&[], &[0.01]))
            .node("DynamicQuantizeLinear", &[from], &["q", "xs", "xz"], &[])
            .node("ConvInteger", &["q", "w", "xz", "wz"], &["sum"], &attributes)
            .node("Cast", &["sum"], &["whole"], &[int("to", 1)])
            .node("Mul", &["xs", "ws"], &["scale"], &[])
            .node("Mul", &["whole", "scale"], &["scaled"], &[])
            .node("Relu", &["scaled"], &["y"], &[])
            .output("y")
    }

    /// The definition, in the order of ONNX's text.
    fn meaning(&self, x: &[f32], weights: &[i64]) -> Vec<f64> {
        let low = x.iter().copied().fold(0.0f32, f32::min);
        let high = x.iter().copied().fold(0.0f32, f32::max);
        let scale = (high - low) / 255.0;
        let zero = (-low / scale).round_ties_even().clamp(0.0, 255.0);
        let byte = |v: &f32| ((v / scale).round_ties_even() + zero).clamp(0.0, 255.0) - zero;
        let whole: Vec<i64> = x.iter().map(|v| byte(v) as i64).collect();
        let ([_, c, h, w], [n, k, p, q]) = (self.image, self.output());
        let (each, of) = (c / self.groups, self.k / self.groups);
        let mut out = Vec::new();
        for i in 0..n * k * p * q {
            let (column, row, filter) = (i % q, i / q % p, i / q / p % k);
            let mut sum = 0;
            for j in 0..each * self.window * self.window {
                let (s, r) = (j % self.window, j / self.window % self.window);
                let channel = filter / of * each + j / self.window / self.window;
                let at = [row * self.stride + r, column * self.stride + s];
                let [y, x] = at.map(|e| e.wrapping_sub(self.pad));
                if y < h && x < w {
                    let place = ((i / q / p / k * c + channel) * h + y) * w + x;
                    sum += whole[place] * weights[filter * each * self.window * self.window + j];
                }
            }
            out.push((sum as f64 * f64::from(scale * 0.01)).max(0.0));
        }
        out
    }

    fn holds(&self) {
        let folder = tempfile::tempdir().unwrap();
        let count = self.filters().iter().product();
        let weights: Vec<i64> =
            numbers(count, 5).into_iter().map(|w| (w % 255) as i64 - 127).collect();
        // Not around zero, so that its zero point is none of the bytes' ends.
        let x: Vec<f32> = numbers(self.image.iter().product(), 11)
            .into_iter()
            .map(|v| (v % 4001) as f32 / 1000.0 - 1.3)
            .collect();
        let shape = self.image.map(|e| e as i64);
        let quantised: Vec<f32> =
            x.iter().map(|v| if self.rectified { v.max(0.0) } else { *v }).collect();
        let ran = written::run(folder.path(), &self.model(&weights), &shape, &x);
        let kernels = ran.layers.iter().filter(|l| l.kind == LayerKind::Kernel);
        let names: Vec<&str> = kernels.map(|l| l.name.as_str()).collect();
        let is_convolution = |n: &&&str| n.starts_with("conv2d") || n.starts_with("depthwise");
        let kernel = names.iter().find(is_convolution).expect("a kernel");
        let of_bytes = kernel.contains("_u8");
        assert_eq!(of_bytes, self.bytes, "{self:?}: {names:?}");
        // The least of what is never below zero is not looked for.
        let looks = names.iter().any(|n| n.starts_with("min_"));
        assert_eq!(looks, !(self.rectified && self.bytes), "{self:?}: {names:?}");
        let got: Vec<f64> = ran.outputs[0]
            .1
            .bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| f64::from(f32::from_le_bytes(*b)))
            .collect();
        let want = self.meaning(&quantised, &weights);
        let most = want.iter().copied().fold(0.0f64, f64::max);
        assert!(most > 0.0 && got.len() == want.len(), "{self:?}");
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            assert!((g - w).abs() <= 1e-6 * most, "{self:?}: element {i} is {g}, not {w}");
        }
    }
}

const PLAIN: Case = Case {
    image: [1, 16, 9, 11],
    k: 20,
    window: 3,
    stride: 1,
    pad: 1,
    groups: 1,
    unsigned: false,
    rectified: false,
    bytes: true,
};

#[test]
fn convolutions_of_dynamic_bytes_are_exact() {
    PLAIN.holds();
    // Three channels are filled up, images are two, and filters have no sign.
    Case { image: [2, 3, 13, 10], stride: 2, unsigned: true, ..PLAIN }.holds();
    // Without a border, and without a window.
    Case { pad: 0, window: 1, k: 8, ..PLAIN }.holds();
    // Of what is never below zero, with a border and without.
    Case { rectified: true, ..PLAIN }.holds();
    Case { rectified: true, pad: 0, window: 1, ..PLAIN }.holds();
    // In groups.
    Case { groups: 4, ..PLAIN }.holds();
    // Each channel by a filter of its own.
    Case { k: 16, groups: 16, ..PLAIN }.holds();
    Case { k: 16, groups: 16, pad: 0, stride: 2, ..PLAIN }.holds();
}

#[test]
fn what_bytes_do_not_suit_stays_floats() {
    Case { k: 7, bytes: false, ..PLAIN }.holds();
    Case { image: [1, 12, 9, 11], k: 12, groups: 2, bytes: false, ..PLAIN }.holds();
}

/// Two convolutions, with what is quantised in between never below zero: the first may be computed
/// twice, for the range of its result and for the bytes, and stored by neither kernel.
#[test]
fn what_is_quantised_may_be_computed_twice_and_stored_by_none() {
    let folder = tempfile::tempdir().unwrap();
    let filters = |count: usize, seed| {
        let raw_data = numbers(count, seed).into_iter().map(|w| (w % 255) as u8).collect();
        TensorProto { dims: vec![16, 16, 1, 1], data_type: 3, raw_data, ..Default::default() }
    };
    let mut model = Build::new(17)
        .input("x", &[1, 16, 7, 9])
        .init("w1", filters(256, 3))
        .init("w2", filters(256, 4))
        .init("ws", build::f32s(&[], &[0.01]));
    for (from, w, to) in [("x", "w1", "middle"), ("middle", "w2", "y")] {
        let name = |what: &str| format!("{to}_{what}");
        let [q, s, z, sum, whole, scale, scaled] =
            ["q", "s", "z", "sum", "whole", "scale", "scaled"].map(name);
        model = model
            .node("DynamicQuantizeLinear", &[from], &[&q, &s, &z], &[])
            .node("ConvInteger", &[&q, w, &z], &[&sum], &[])
            .node("Cast", &[&sum], &[&whole], &[int("to", 1)])
            .node("Mul", &[&s, "ws"], &[&scale], &[])
            .node("Mul", &[&whole, &scale], &[&scaled], &[])
            .node("Relu", &[&scaled], &[to], &[]);
    }
    let model = model.output("y");
    let x: Vec<f32> =
        numbers(16 * 63, 12).into_iter().map(|v| (v % 4001) as f32 / 1000.0 - 2.0).collect();
    let stored = written::run(folder.path(), &model, &[1, 16, 7, 9], &x);

    let path = folder.path().join("model.onnx");
    let input = squall::Input::load(&path.display().to_string(), &[]).unwrap().in_bytes();
    let graph = input.graph().expect("a model");
    let all = graph.candidates();
    let ranged: Vec<TaskId> = all
        .list
        .iter()
        .filter(|c| c.rule == "range")
        .map(|c| TaskId::of(&c.workload, Objective::Time))
        .collect();
    assert_eq!(ranged.len(), 2, "the largest element, and the bytes");
    let time = |id| Some(if ranged.contains(&id) { 1.0 } else { 1e6 });
    let cheapest = cheapest_cover(all, &CoverCosting::of(&time, Unknown::Avoided)).unwrap();
    let made = Assignment::new(all.clone(), cheapest.choice).unwrap();
    let file = folder.path().join("twice.assignment");
    std::fs::write(&file, made.to_string()).unwrap();
    let input =
        InputRequest { assignment: Some(file), ..InputRequest::new(path.display().to_string()) };
    let twice = written::run_input(folder.path(), input);
    let kernels = |ran: &squall::Ran| -> Vec<String> {
        let kernels = ran.layers.iter().filter(|l| l.kind == LayerKind::Kernel);
        kernels.map(|l| l.name.clone()).collect()
    };
    let names = kernels(&twice);
    assert!(names.iter().any(|n| n.contains("u8_mul_relu_max_")), "{names:?}");
    assert!(names.iter().any(|n| n.contains("u8_mul_relu_round_")), "{names:?}");
    let stores = |names: &[String]| names.iter().filter(|n| n.starts_with("conv2d")).count();
    assert_eq!((stores(&kernels(&stored)), stores(&names)), (2, 3), "{names:?}");
    let floats = |ran: &squall::Ran| -> Vec<f32> {
        let bytes = &ran.outputs[0].1.bytes;
        bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    };
    let (want, got) = (floats(&stored), floats(&twice));
    let most = want.iter().copied().fold(0.0f32, f32::max);
    assert!(most > 0.0);
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        assert!((g - w).abs() <= 1e-6 * most, "element {i} is {g}, not {w}");
    }
}
