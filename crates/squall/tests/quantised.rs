//! Tests of quantised models run over bytes. Small networks are built in each form that files use
//! (QDQ pairs, integer operators); every tensor is an output and is compared, within one
//! quantisation step, with what its operator's definition makes of the network's own operands.

use crate::written;
use squall_testing::onnx as build;

use build::{Build, float, int, ints, node};
use squall::network::LayerKind;
use squall::{InputRequest, TargetRequest, arrays::NamedArray};
use squall_core::DType;
use squall_frontend::onnx::proto::*;
use std::collections::HashMap;
use std::path::Path;

/// The form in which a file is quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Pairs of `QuantizeLinear` and `DequantizeLinear` around operators of floats; unsigned bytes.
    Pairs,
    /// The same with signed bytes.
    Signed,
    /// Operators of integers.
    Operators,
}

/// A quantised tensor of a network.
#[derive(Clone, Debug)]
struct Tensor {
    /// Its integers.
    name: String,
    shape: Vec<usize>,
    scale: f32,
    zero: i64,
}

impl Tensor {
    /// What dequantises it.
    fn floats(&self) -> String {
        format!("{}_floats", self.name)
    }

    fn scaled(&self, of: &Values) -> Vec<f64> {
        of[&self.name].iter().map(|q| (q - self.zero) as f64 * f64::from(self.scale)).collect()
    }
}

/// The integers of tensors.
type Values = HashMap<String, Vec<i64>>;
/// The floats that a tensor's integers are the rounding of.
type Meaning = Box<dyn Fn(&Values) -> Vec<f64>>;

/// A network in the making, with what its tensors have to be.
struct Maker {
    build: Option<Build>,
    form: Form,
    random: u64,
    made: Vec<(Tensor, Meaning)>,
    /// Tensors that are no outputs: what reads them may make them itself.
    hidden: Vec<&'static str>,
}

impl Maker {
    fn new(form: Form) -> Maker {
        let mut build = Build::new(17);
        let domain = OperatorSetIdProto { domain: "com.microsoft".into(), version: 1 };
        build.model.opset_import.push(domain);
        Maker { build: Some(build), form, random: 7, made: Vec::new(), hidden: Vec::new() }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % below
    }

    fn with(&mut self, change: impl FnOnce(Build) -> Build) {
        self.build = self.build.take().map(change);
    }

    fn add(&mut self, op: &str, inputs: &[&str], output: &str, attributes: &[AttributeProto]) {
        let mut made = node(op, inputs, &[output], attributes);
        if op.starts_with('Q') && !["QuantizeLinear", "QLinearConv"].contains(&op) {
            made.domain = "com.microsoft".into();
        }
        self.with(|mut b| {
            b.graph().node.push(made);
            b
        });
    }

    fn tensor(&mut self, name: &str, t: TensorProto) -> String {
        self.with(|b| b.init(name, t));
        name.into()
    }

    fn scalar(&mut self, name: &str, x: f32) -> String {
        self.tensor(name, build::f32s(&[], &[x]))
    }

    fn integers(&mut self, name: &str, dims: &[i64], data: &[i64]) -> String {
        let signed = self.form == Form::Signed || !dims.is_empty();
        let raw_data = data.iter().map(|x| *x as u8).collect();
        let data_type = if signed { 3 } else { 2 };
        let dims = dims.to_vec();
        self.tensor(name, TensorProto { dims, data_type, raw_data, ..Default::default() })
    }

    /// A tensor that is to be made, with its scale and zero point.
    fn declare(&mut self, name: &str, shape: &[usize], scale: f32) -> Tensor {
        let zero = if self.form == Form::Signed { 0 } else { 60 + self.next(120) as i64 };
        self.scalar(&format!("{name}_scale"), scale);
        self.integers(&format!("{name}_zero"), &[], &[zero]);
        Tensor { name: name.into(), shape: shape.to_vec(), scale, zero }
    }

    /// Ends a tensor whose floats the network has, or whose integers its operators gave.
    fn end(&mut self, t: &Tensor, floats: Option<&str>, meaning: Meaning) {
        let (scale, zero) = (format!("{}_scale", t.name), format!("{}_zero", t.name));
        if let Some(floats) = floats {
            self.add("QuantizeLinear", &[floats, &scale, &zero], &t.name, &[]);
        }
        self.add("DequantizeLinear", &[&t.name, &scale, &zero], &t.floats(), &[]);
        let name = t.name.clone();
        if !self.hidden.contains(&name.as_str()) {
            self.with(|b| b.output(&name));
        }
        self.made.push((t.clone(), meaning));
    }

    fn input(&mut self, shape: &[usize]) -> Tensor {
        let dims: Vec<i64> = shape.iter().map(|e| *e as i64).collect();
        self.with(|b| b.input("x", &dims));
        let t = self.declare("q", shape, 0.01);
        let x = random_input(shape.iter().product());
        self.end(&t, Some("x"), Box::new(move |_| x.iter().map(|x| f64::from(*x)).collect()));
        t
    }

    /// Random weights `[k, each]` of bytes, their scales, and a bias of whole steps.
    fn weights(&mut self, name: &str, dims: &[i64], x: &Tensor) -> (Vec<i64>, Vec<f32>, Vec<i64>) {
        let count = dims.iter().product::<i64>() as usize;
        let w: Vec<i64> = (0..count).map(|_| self.next(256) as i64 - 128).collect();
        let (k, axis) = (dims[0] as usize, &[dims[0]][..]);
        let scales: Vec<f32> = (0..k).map(|_| 0.001 + self.next(100) as f32 * 1e-5).collect();
        let bias: Vec<i64> = (0..k).map(|_| self.next(4000) as i64 - 2000).collect();
        self.integers(&format!("{name}_w"), dims, &w);
        self.tensor(&format!("{name}_ws"), build::f32s(axis, &scales));
        self.integers(&format!("{name}_wz"), axis, &vec![0; k]);
        let raw_data = bias.iter().flat_map(|b| (*b as i32).to_le_bytes()).collect();
        let (dims, data_type) = (axis.to_vec(), 6);
        self.tensor(
            &format!("{name}_b"),
            TensorProto { dims, data_type, raw_data, ..Default::default() },
        );
        let steps: Vec<f32> = scales.iter().map(|s| s * x.scale).collect();
        self.tensor(&format!("{name}_bs"), build::f32s(axis, &steps));
        (w, scales, bias)
    }

    /// Weights and bias as floats.
    fn dequantised(&mut self, name: &str) {
        let named = |what: &str| format!("{name}_{what}");
        let (weights, axis) = ([named("w"), named("ws"), named("wz")], [int("axis", 0)]);
        let weights = [0, 1, 2].map(|i| weights[i].as_str());
        self.add("DequantizeLinear", &weights, &named("wf"), &axis);
        self.add("DequantizeLinear", &[&named("b"), &named("bs")], &named("bf"), &axis);
    }

    fn conv(&mut self, name: &str, x: &Tensor, c: Case) -> Tensor {
        let &[n, from, h, w] = &x.shape[..] else { panic!("an image") };
        let size = |e: usize| (e + 2 * c.pad - c.window) / c.stride + 1;
        let shape = [n, c.k, size(h), size(w)];
        let each = from / c.groups;
        let dims = [c.k, each, c.window, c.window].map(|e| e as i64);
        let (weights, scales, bias) = self.weights(name, &dims, x);
        let y = self.declare(name, &shape, 0.02);
        let pads = ints("pads", &[c.pad as i64; 4]);
        let strides = ints("strides", &[c.stride as i64; 2]);
        let attributes = [pads, strides, int("group", c.groups as i64)];
        let named = |what: &str| format!("{name}_{what}");
        let mut floats = None;
        if self.form == Form::Operators {
            let (xs, xz) = (format!("{}_scale", x.name), format!("{}_zero", x.name));
            let (ys, yz) = (named("scale"), named("zero"));
            let all = [&x.name, &xs, &xz, &named("w"), &named("ws"), &named("wz"), &ys, &yz];
            let b = named("b");
            let all: Vec<&str> = all.into_iter().chain([&b]).map(String::as_str).collect();
            self.add("QLinearConv", &all, &y.name, &attributes);
        } else {
            self.dequantised(name);
            let inputs = [x.floats(), named("wf"), named("bf")];
            let inputs = [0, 1, 2].map(|i| inputs[i].as_str());
            self.add("Conv", &inputs, &named("sum"), &attributes);
            let last = if c.relu { named("relu") } else { named("sum") };
            if c.relu {
                self.add("Relu", &[&named("sum")], &last, &[]);
            }
            floats = Some(last);
        }
        let relu = floats.is_some() && c.relu;
        let (x, to) = (x.clone(), shape);
        let meaning = move |v: &Values| {
            let data = x.scaled(v);
            let step = |k: usize| f64::from(scales[k]) * f64::from(x.scale);
            let mut y = Vec::new();
            for i in 0..to.iter().product::<usize>() {
                let (q, p, k) = (i % to[3], i / to[3] % to[2], i / to[3] / to[2] % to[1]);
                let image = i / to[1] / to[2] / to[3];
                let first = k / (c.k / c.groups) * each;
                let mut sum = bias[k] as f64 * step(k);
                for j in 0..each * c.window * c.window {
                    let (s, r) = (j % c.window, j / c.window % c.window);
                    let (row, column) = (p * c.stride + r, q * c.stride + s);
                    let inside =
                        (c.pad..h + c.pad).contains(&row) && (c.pad..w + c.pad).contains(&column);
                    if inside {
                        let channel = first + j / c.window / c.window;
                        let place =
                            ((image * from + channel) * h + row - c.pad) * w + column - c.pad;
                        sum += data[place]
                            * weights[k * each * c.window * c.window + j] as f64
                            * f64::from(scales[k]);
                    }
                }
                y.push(if relu { sum.max(0.0) } else { sum });
            }
            y
        };
        self.end(&y, floats.as_deref(), Box::new(meaning));
        y
    }

    /// An operator of floats between pairs, or the operator of integers of this name.
    fn operator(
        &mut self,
        name: &str,
        op: &str,
        list: &[&Tensor],
        shape: &[usize],
        attributes: &[AttributeProto],
        of: impl Fn(&[Vec<f64>]) -> Vec<f64> + 'static,
    ) -> Tensor {
        // Other steps than its operands have: sums lie seldom just between two of its own.
        let y = self.declare(name, shape, 0.0171 + 0.00013 * name.len() as f32);
        let (ys, yz) = (format!("{name}_scale"), format!("{name}_zero"));
        let mut floats = None;
        if self.form == Form::Operators {
            let mut all = Vec::new();
            for t in list {
                all.extend([
                    t.name.clone(),
                    format!("{}_scale", t.name),
                    format!("{}_zero", t.name),
                ]);
            }
            let at = if op == "Concat" { 0 } else { all.len() };
            all.splice(at..at, [ys, yz]);
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            self.add(&format!("QLinear{op}"), &all, &y.name, attributes);
        } else {
            let inputs: Vec<String> = list.iter().map(|t| t.floats()).collect();
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let last = format!("{name}_value");
            self.add(op, &inputs, &last, attributes);
            floats = Some(last);
        }
        let list: Vec<Tensor> = list.iter().map(|t| (*t).clone()).collect();
        let meaning =
            move |v: &Values| of(&list.iter().map(|t| t.scaled(v)).collect::<Vec<Vec<f64>>>());
        self.end(&y, floats.as_deref(), Box::new(meaning));
        y
    }

    /// The greatest of windows of 3 x 3, of a tensor's own scale.
    fn greatest(&mut self, name: &str, x: &Tensor) -> Tensor {
        let &[n, c, h, w] = &x.shape[..] else { panic!("an image") };
        let shape = [n, c, (h - 1) / 2 + 1, (w - 1) / 2 + 1];
        let y = Tensor { name: name.into(), shape: shape.to_vec(), ..x.clone() };
        self.scalar(&format!("{name}_scale"), x.scale);
        self.integers(&format!("{name}_zero"), &[], &[x.zero]);
        let attributes =
            [ints("kernel_shape", &[3, 3]), ints("pads", &[1; 4]), ints("strides", &[2, 2])];
        let mut floats = None;
        if self.form == Form::Operators {
            self.add("MaxPool", &[&x.name], name, &attributes);
        } else {
            self.add("MaxPool", &[&x.floats()], &format!("{name}_value"), &attributes);
            floats = Some(format!("{name}_value"));
        }
        let x = x.clone();
        let meaning = move |v: &Values| {
            let data = x.scaled(v);
            let place = |i: usize| (i % shape[3], i / shape[3] % shape[2], i / shape[3] / shape[2]);
            let one = |i: usize| {
                let (q, p, image) = place(i);
                let rows = (2 * p).saturating_sub(1)..(2 * p + 2).min(h);
                let columns = (2 * q).saturating_sub(1)..(2 * q + 2).min(w);
                let all = rows.flat_map(|r| columns.clone().map(move |s| (image * h + r) * w + s));
                all.map(|at| data[at]).fold(f64::MIN, f64::max)
            };
            (0..shape.iter().product()).map(one).collect()
        };
        self.end(&y, floats.as_deref(), Box::new(meaning));
        y
    }

    /// A product with constant columns, of the channels that a mean left.
    fn classes(&mut self, name: &str, x: &Tensor, n: usize) -> Tensor {
        let k = x.shape[1];
        let flat = format!("{name}_flat");
        let (weights, scales, bias) = self.weights(name, &[n as i64, k as i64], x);
        let y = self.declare(name, &[x.shape[0], n], 0.02);
        let named = |what: &str| format!("{name}_{what}");
        let mut floats = None;
        if self.form == Form::Operators {
            self.add("Flatten", &[&x.name], &flat, &[int("axis", 1)]);
            let (xs, xz) = (format!("{}_scale", x.name), format!("{}_zero", x.name));
            let all = [&flat, &xs, &xz, &named("w"), &named("ws"), &named("wz"), &named("b")];
            let (ys, yz) = (named("scale"), named("zero"));
            let all: Vec<&str> = all.into_iter().chain([&ys, &yz]).map(String::as_str).collect();
            self.add("QGemm", &all, &y.name, &[int("transB", 1), float("alpha", 1.0)]);
        } else {
            self.dequantised(name);
            self.add("Flatten", &[&x.floats()], &flat, &[int("axis", 1)]);
            let inputs = [flat.as_str(), &named("wf"), &named("bf")].map(String::from);
            let inputs = [0, 1, 2].map(|i| inputs[i].as_str());
            self.add("Gemm", &inputs, &named("value"), &[int("transB", 1)]);
            floats = Some(named("value"));
        }
        let x = x.clone();
        let meaning = move |v: &Values| {
            let data = x.scaled(v);
            let row = |m: usize, j: usize| {
                let sum = (0..k).map(|i| data[m * k + i] * weights[j * k + i] as f64);
                (sum.sum::<f64>() + bias[j] as f64 * f64::from(x.scale)) * f64::from(scales[j])
            };
            (0..x.shape[0])
                .flat_map(|m| (0..n).map(move |j| (m, j)))
                .map(|(m, j)| row(m, j))
                .collect()
        };
        self.end(&y, floats.as_deref(), Box::new(meaning));
        y
    }
}

/// A convolution.
#[derive(Clone, Copy)]
struct Case {
    k: usize,
    window: usize,
    stride: usize,
    pad: usize,
    groups: usize,
    relu: bool,
}

fn random_input(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919) % 2003) as f32 / 1013.7 - 1.0).collect()
}

/// A network of all operators that have forms of bytes.
fn network(form: Form, channels: usize) -> Maker {
    let mut m = Maker::new(form);
    let x = m.input(&[2, 3, 15, 13]);
    let plain = Case { k: channels, window: 3, stride: 1, pad: 1, groups: 1, relu: false };
    let a = m.conv("first", &x, Case { stride: 2, relu: true, ..plain });
    let b = m.conv("inner", &a, plain);
    let c = m.conv("each", &a, Case { groups: channels, ..plain });
    let shape = a.shape.clone();
    let sums = |v: &[Vec<f64>]| v[0].iter().zip(&v[1]).map(|(a, b)| a + b).collect();
    let d = m.operator("sum", "Add", &[&b, &c], &shape, &[], sums);
    let sigmoid = |v: &[Vec<f64>]| v[0].iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
    let e = m.operator("curve", "Sigmoid", &[&d], &shape, &[], sigmoid);
    let products = |v: &[Vec<f64>]| v[0].iter().zip(&v[1]).map(|(a, b)| a * b).collect();
    let f = m.operator("swish", "Mul", &[&d, &e], &shape, &[], products);
    let g = m.greatest("greatest", &f);
    let h = m.conv("wide", &g, Case { k: 20, window: 1, pad: 0, ..plain });
    let joined = [g.shape[0], channels + 20, g.shape[2], g.shape[3]];
    let (pixels, first) = (g.shape[2] * g.shape[3], channels);
    let side_by_side = move |v: &[Vec<f64>]| {
        let images = v[0].chunks(first * pixels).zip(v[1].chunks(20 * pixels));
        images.flat_map(|(a, b)| a.iter().chain(b)).copied().collect()
    };
    let i = m.operator("joined", "Concat", &[&g, &h], &joined, &[int("axis", 1)], side_by_side);
    let means = move |v: &[Vec<f64>]| {
        v[0].chunks(pixels).map(|c| c.iter().sum::<f64>() / pixels as f64).collect()
    };
    let shape = [joined[0], joined[1], 1, 1];
    let j = m.operator("mean", "GlobalAveragePool", &[&i], &shape, &[], means);
    m.classes("classes", &j, 7);
    m
}

fn run(m: &mut Maker, folder: &Path) -> (Values, Vec<(String, LayerKind)>) {
    let build = m.build.take().expect("a network");
    let shape = [2i64, 3, 15, 13];
    let x = random_input(shape.iter().product::<i64>() as usize);
    let ran = written::run(folder, &build, &shape, &x);
    let integers = |(name, a): &NamedArray| {
        let one = |b: &u8| if a.dtype == DType::I8 { i64::from(*b as i8) } else { i64::from(*b) };
        (name.clone(), a.bytes.iter().map(one).collect())
    };
    let layers = ran.layers.iter().map(|l| (l.name.clone(), l.kind)).collect();
    (ran.outputs.iter().map(integers).collect(), layers)
}

fn holds(form: Form, channels: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut m = network(form, channels);
    let (values, layers) = run(&mut m, folder.path());
    let tensors = |l: &[(String, LayerKind)]| {
        l.iter().filter(|(n, k)| *k == LayerKind::Kernel && n.contains("_u8")).count()
    };
    assert!(tensors(&layers) >= 8, "{form:?}: {layers:?}");
    right(&m, &values, form);
    no_floats(&layers);
    for (t, _) in &m.made {
        let (low, high) = if form == Form::Signed { (-128, 127) } else { (0, 255) };
        let inner = values[&t.name].iter().filter(|q| **q != low && **q != high).count();
        let all = values[&t.name].len();
        assert!(inner * 3 > all, "{form:?} {}: {inner} of {all} inside", t.name);
    }
}

/// No kernel of floats is left.
fn no_floats(layers: &[(String, LayerKind)]) {
    let floats = layers.iter().filter(|(n, k)| *k == LayerKind::Kernel && !n.contains("_u8"));
    assert_eq!(floats.count(), 0, "{layers:?}");
}

/// Each tensor is within one step of what its operator makes of the network's own operands, and
/// seldom apart.
fn right(m: &Maker, values: &Values, form: Form) {
    let mut values = values.clone();
    let range = if form == Form::Signed { -128..=127 } else { 0..=255 };
    for (t, meaning) in &m.made {
        let exact = |w: f64| {
            let step = (w / f64::from(t.scale)).round_ties_even() as i64 + t.zero;
            step.clamp(*range.start(), *range.end())
        };
        let want: Vec<i64> = meaning(&values).into_iter().map(exact).collect();
        let Some(got) = values.get(&t.name) else {
            values.insert(t.name.clone(), want);
            continue;
        };
        assert_eq!(got.len(), want.len(), "{form:?} {}", t.name);
        // A hidden operand may have been a step apart.
        let most = if m.hidden.is_empty() { 1 } else { 3 };
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            assert!((g - w).abs() <= most, "{form:?} {} [{i}]: {g}, not {w}", t.name);
        }
        let apart = got.iter().zip(&want).filter(|(g, w)| g != w).count();
        assert!(apart * 100 <= got.len(), "{form:?} {}: {apart} of {}", t.name, got.len());
    }
}

#[test]
fn what_alone_reads_a_product_is_made_by_it() {
    for form in [Form::Pairs, Form::Operators] {
        let folder = tempfile::tempdir().unwrap();
        let mut m = Maker::new(form);
        m.hidden = vec!["first", "inner", "each", "sum"];
        let x = m.input(&[2, 3, 15, 13]);
        let plain = Case { k: 8, window: 3, stride: 1, pad: 1, groups: 1, relu: false };
        let a = m.conv("first", &x, Case { stride: 2, ..plain });
        let b = m.conv("inner", &a, plain);
        let c = m.conv("each", &a, Case { groups: 8, ..plain });
        let shape = a.shape.clone();
        let sums = |v: &[Vec<f64>]| v[0].iter().zip(&v[1]).map(|(a, b)| a + b).collect();
        let d = m.operator("sum", "Add", &[&b, &c], &shape, &[], sums);
        m.conv("last", &d, Case { k: 12, window: 1, pad: 0, ..plain });
        let (values, layers) = run(&mut m, folder.path());
        no_floats(&layers);
        let names: Vec<&str> = layers.iter().map(|l| l.0.as_str()).collect();
        assert!(names.iter().any(|n| n.ends_with("_add_u8")), "{names:?}");
        assert!(!names.iter().any(|n| n.starts_with("add_")), "{names:?}");
        right(&m, &values, form);
    }
}

#[test]
fn each_form_runs_over_bytes_within_one_step() {
    for form in [Form::Pairs, Form::Signed, Form::Operators] {
        holds(form, 8);
    }
}

#[test]
fn channels_that_are_no_multiple_of_four_are_filled_up() {
    // Channels side by side are then no part of a longer line: that operator stays one of floats.
    let folder = tempfile::tempdir().unwrap();
    let mut m = Maker::new(Form::Pairs);
    let x = m.input(&[2, 3, 15, 13]);
    let plain = Case { k: 6, window: 3, stride: 1, pad: 1, groups: 1, relu: true };
    let a = m.conv("first", &x, plain);
    let b = m.conv("each", &a, Case { groups: 6, stride: 2, ..plain });
    m.conv("last", &b, Case { k: 9, window: 1, pad: 0, ..plain });
    let (values, layers) = run(&mut m, folder.path());
    no_floats(&layers);
    right(&m, &values, Form::Pairs);
}

#[test]
fn convolutions_of_random_windows_are_right_over_bytes() {
    for (seed, form) in [Form::Pairs, Form::Signed, Form::Operators].into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let mut m = Maker::new(form);
        m.random = 1000 + seed as u64;
        let mut x = m.input(&[2, 3, 15, 13]);
        for i in 0..5 {
            let least = x.shape[2].min(x.shape[3]);
            let window = 1 + m.next(least.min(4) as u64) as usize;
            let pad = m.next(window as u64) as usize;
            let stride = 1 + m.next(2) as usize;
            let each = i % 2 == 1;
            let k = if each { x.shape[1] } else { 1 + m.next(24) as usize };
            let groups = if each && k > 1 { k } else { 1 };
            let case = Case { k, window, stride, pad, groups, relu: m.next(2) == 1 };
            x = m.conv(&format!("layer{i}"), &x, case);
        }
        let (values, layers) = run(&mut m, folder.path());
        no_floats(&layers);
        right(&m, &values, form);
    }
}

#[test]
fn groups_of_four_channels_are_right_over_bytes() {
    for form in [Form::Pairs, Form::Signed, Form::Operators] {
        let folder = tempfile::tempdir().unwrap();
        let mut m = Maker::new(form);
        let x = m.input(&[2, 3, 15, 13]);
        let plain = Case { k: 32, window: 3, stride: 1, pad: 1, groups: 1, relu: true };
        let a = m.conv("first", &x, plain);
        let b = m.conv("fours", &a, Case { groups: 8, ..plain });
        let c = m.conv("eights", &b, Case { k: 24, groups: 4, stride: 2, ..plain });
        let d = m.conv("pointwise", &c, Case { k: 8, groups: 2, window: 1, pad: 0, ..plain });
        m.conv("last", &d, plain);
        let (values, layers) = run(&mut m, folder.path());
        no_floats(&layers);
        right(&m, &values, form);
    }
}

/// A convolution in groups of six channels has no kernel of bytes, and those around it do.
#[test]
fn what_stays_floats_is_named_with_the_reason() {
    for form in [Form::Pairs, Form::Operators] {
        let folder = tempfile::tempdir().unwrap();
        let mut m = Maker::new(form);
        let x = m.input(&[2, 3, 15, 13]);
        let plain = Case { k: 12, window: 3, stride: 1, pad: 1, groups: 1, relu: false };
        let a = m.conv("first", &x, plain);
        let b = m.conv("grouped", &a, Case { groups: 2, ..plain });
        m.conv("last", &b, plain);
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, m.build.take().expect("a network").bytes()).unwrap();
        let request = InputRequest::new(path.display().to_string());
        let input = request.load(TargetRequest::Cpu).unwrap();
        let floats = input.floats_beside_bytes();
        assert_eq!(floats.len(), 1, "{floats:?}");
        assert!(floats[0].op == "Conv" && floats[0].reason.contains("multiple of four"));
        let text = input.graph_stage("model").unwrap();
        let line = text.lines().find(|l| l.starts_with("# floats: ")).unwrap();
        assert!(line.contains(&floats[0].node) && line.contains("multiple of four"), "{line}");
        assert!(squall_core::graph::Model::parse(&text).is_ok());
        assert_eq!(input.json()["floats"][0]["op"], "Conv");
    }
}
