//! Tests of plain operators whose bodies for a GPU have several loops, each of which leaves values
//! in memory that the next one reads: running sums, scatters, `TopK`, `ArgMax`, convolutions of
//! bytes and gathers of groups. Input: random operands with NaN, equal elements and places with
//! several updates; the results of C on the processor and of all threads one after another
//! (`plain_cases`) are compared with loops that are written here. `byte_products.rs` has the
//! products of bytes.

use crate::plain_cases;

use plain_cases::{Case, check};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use squall_core::DType;
use squall_core::graph::{Attribute, CallOperand, Constant, OperatorCall};
use std::cmp::Ordering;

/// An operand: its type, its shape, its elements, and whether the generator knows them.
struct Operand {
    dtype: DType,
    shape: Vec<i64>,
    elements: Vec<f64>,
    is_known: bool,
}

fn operand(dtype: DType, shape: &[i64], elements: &[f64]) -> Operand {
    Operand { dtype, shape: shape.to_vec(), elements: elements.to_vec(), is_known: false }
}

fn constant(o: &Operand) -> Constant {
    let shape = o.shape.clone();
    match o.dtype {
        DType::F32 => Constant::F32 { shape, data: o.elements.iter().map(|v| *v as f32).collect() },
        _ => Constant::I64 { shape, data: o.elements.iter().map(|v| *v as i64).collect() },
    }
}

fn case(
    op: &str,
    attributes: &[(&str, Attribute)],
    operands: &[Operand],
    results: &[(DType, &[i64])],
    want: Vec<f64>,
) -> Case {
    let input = |o: &Operand| {
        let constant = o.is_known.then(|| constant(o));
        Some(CallOperand { dtype: o.dtype, shape: o.shape.clone(), constant })
    };
    let output = |(dtype, shape): &(DType, &[i64])| {
        Some(CallOperand { dtype: *dtype, shape: shape.to_vec(), constant: None })
    };
    let call = OperatorCall {
        op: op.into(),
        domain: String::new(),
        opset: 20,
        attributes: attributes.iter().map(|(n, a)| (n.to_string(), a.clone())).collect(),
        inputs: operands.iter().map(input).collect(),
        outputs: results.iter().map(output).collect(),
    };
    Case { call, operands: operands.iter().map(constant).collect(), want }
}

fn count(shape: &[i64]) -> usize {
    shape.iter().product::<i64>() as usize
}

/// Eighths between -5 and 5, or whole numbers where the type has no others.
fn numbers(r: &mut Random, dtype: DType, n: usize) -> Vec<f64> {
    let step = if dtype == DType::F32 { 8.0 } else { 1.0 };
    (0..n).map(|_| f64::from(r.random_range(-40..40i32)) / step).collect()
}

/// The places of a line's elements, for each line along an axis.
fn lines(shape: &[i64], axis: usize) -> Vec<Vec<usize>> {
    let [outer, extent, inner] =
        [&shape[..axis], &shape[axis..=axis], &shape[axis + 1..]].map(count);
    let line = |o: usize, i: usize| (0..extent).map(|k| (o * extent + k) * inner + i).collect();
    (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).map(|(o, i)| line(o, i)).collect()
}

#[test]
fn running_sums_of_chunks_are_those_of_lines() {
    let mut r = Random::seed_from_u64(1);
    let mut cases = Vec::new();
    let shapes: [(&[i64], usize); 9] = [
        (&[70, 150], 1),
        (&[8, 9, 128], 2),
        (&[2, 100, 3], 1),
        (&[3, 4], 0),
        (&[300], 0),
        (&[2, 9001], 1),
        (&[2, 1, 65], 1),
        (&[0, 70], 1),
        (&[2, 65], 1),
    ];
    for (shape, axis) in shapes {
        for flags in 0..16 {
            let [exclusive, reverse, is_known, is_whole] = [1, 2, 4, 8].map(|b| flags & b != 0);
            let dtype = if is_whole { DType::I32 } else { DType::F32 };
            let x = numbers(&mut r, dtype, count(shape));
            let mut want = vec![0.0; x.len()];
            for mut line in lines(shape, axis) {
                if reverse {
                    line.reverse();
                }
                let mut sum = 0.0;
                for at in line {
                    want[at] = if exclusive { sum } else { sum + x[at] };
                    sum += x[at];
                }
            }
            let mut place = operand(DType::I64, &[], &[axis as f64 - shape.len() as f64]);
            place.is_known = is_known;
            let attributes = [
                ("exclusive", Attribute::Int(i64::from(exclusive))),
                ("reverse", Attribute::Int(i64::from(reverse))),
            ];
            let operands = [operand(dtype, shape, &x), place];
            cases.push(case("CumSum", &attributes, &operands, &[(dtype, shape)], want));
        }
    }
    check(&cases);
}

/// The element `old` after the update `new`.
fn updated(reduction: &str, old: f64, new: f64) -> f64 {
    match reduction {
        "none" => new,
        "add" => f64::from(old as f32 + new as f32),
        "mul" => f64::from(old as f32 * new as f32),
        "max" if new > old || new.is_nan() => new,
        "min" if new < old || new.is_nan() => new,
        _ => old,
    }
}

const REDUCTIONS: [&str; 5] = ["none", "add", "mul", "max", "min"];

/// Random updates whose products do not overflow.
fn updates(r: &mut Random, reduction: &str, n: usize) -> Vec<f64> {
    let one = |r: &mut Random| match r.random_range(0..12i32) {
        0 if reduction != "mul" => f64::NAN,
        1 => 2.0,
        2 => 0.5,
        k => f64::from(k % 3 - 1),
    };
    (0..n).map(|_| one(r)).collect()
}

#[test]
fn updates_of_one_place_come_in_their_own_order() {
    let mut r = Random::seed_from_u64(2);
    let mut cases = Vec::new();
    let shapes: [(&[i64], &[i64]); 7] = [
        (&[5, 3], &[4, 1]),
        (&[5, 3], &[9, 2]),
        (&[7], &[40, 1]),
        (&[4, 6, 2], &[3, 5, 1]),
        (&[1, 1], &[1, 2]),
        (&[5, 3], &[0, 1]),
        (&[3], &[300, 1]),
    ];
    for ((x, indices), reduction) in
        shapes.iter().flat_map(|s| REDUCTIONS.map(|reduction| (*s, reduction)))
    {
        let (depth, rows) =
            (indices[indices.len() - 1] as usize, count(&indices[..indices.len() - 1]));
        let inner = count(&x[depth..]);
        let at: Vec<i64> =
            (0..rows * depth).map(|i| r.random_range(-x[i % depth]..x[i % depth])).collect();
        let old = numbers(&mut r, DType::F32, count(x));
        let new = updates(&mut r, reduction, rows * inner);
        let mut want = old.clone();
        for row in 0..rows {
            let place = (0..depth)
                .fold(0, |p, d| p * x[d] as usize + at[row * depth + d].rem_euclid(x[d]) as usize);
            for k in 0..inner {
                let t = &mut want[place * inner + k];
                *t = updated(reduction, *t, new[row * inner + k]);
            }
        }
        let at: Vec<f64> = at.iter().map(|i| *i as f64).collect();
        let of = [&indices[..indices.len() - 1], &x[depth..]].concat();
        let operands = [
            operand(DType::F32, x, &old),
            operand(DType::I64, indices, &at),
            operand(DType::F32, &of, &new),
        ];
        let attributes = [("reduction", Attribute::String(reduction.into()))];
        cases.push(case("ScatterND", &attributes, &operands, &[(DType::F32, x)], want));
    }
    check(&cases);
}

#[test]
fn scattered_elements_come_in_their_own_order() {
    let mut r = Random::seed_from_u64(3);
    let mut cases = Vec::new();
    let shapes: [(&[i64], &[i64], usize); 4] = [
        (&[5, 3], &[9, 3], 0),
        (&[6], &[50], 0),
        (&[2, 5, 3], &[2, 7, 2], 1),
        (&[4, 2], &[0, 2], 0),
    ];
    for ((x, indices, axis), reduction) in
        shapes.iter().flat_map(|s| REDUCTIONS.map(|reduction| (*s, reduction)))
    {
        let n = count(indices);
        let at: Vec<i64> = (0..n).map(|_| r.random_range(-x[axis]..x[axis])).collect();
        let old = numbers(&mut r, DType::F32, count(x));
        let new = updates(&mut r, reduction, n);
        let mut want = old.clone();
        for own in 0..n {
            // The index of each axis of the update, the last one first.
            let (mut rest, mut place, mut step) = (own, 0, 1);
            for d in (0..x.len()).rev() {
                let mut i = (rest as i64) % indices[d];
                rest /= indices[d] as usize;
                if d == axis {
                    i = at[own].rem_euclid(x[d]);
                }
                place += i as usize * step;
                step *= x[d] as usize;
            }
            want[place] = updated(reduction, want[place], new[own]);
        }
        let at: Vec<f64> = at.iter().map(|i| *i as f64).collect();
        let operands = [
            operand(DType::F32, x, &old),
            operand(DType::I64, indices, &at),
            operand(DType::F32, indices, &new),
        ];
        let attributes = [
            ("axis", Attribute::Int(axis as i64)),
            ("reduction", Attribute::String(reduction.into())),
        ];
        cases.push(case("ScatterElements", &attributes, &operands, &[(DType::F32, x)], want));
    }
    check(&cases);
}

#[test]
fn caches_take_their_last_updates() {
    let mut r = Random::seed_from_u64(4);
    let mut cases = Vec::new();
    for (mode, steps) in [("linear", 1), ("linear", 4), ("circular", 3), ("circular", 9)] {
        let (x, of) = ([2, 3, 4, 2], [2, 3, steps, 2]);
        let old = numbers(&mut r, DType::F32, count(&x));
        let new = numbers(&mut r, DType::F32, count(&of));
        let starts = if mode == "linear" { [0, 4 - steps] } else { [3, 1] };
        let mut want = old.clone();
        for row in 0..6 {
            for s in 0..steps {
                let at = (starts[row / 3] + s) % 4;
                for k in 0..2 {
                    want[(row * 4 + at as usize) * 2 + k] =
                        new[(row * steps as usize + s as usize) * 2 + k];
                }
            }
        }
        let operands = [
            operand(DType::F32, &x, &old),
            operand(DType::F32, &of, &new),
            operand(DType::I64, &[2], &starts.map(|s| s as f64)),
        ];
        let attributes = [("axis", Attribute::Int(2)), ("mode", Attribute::String(mode.into()))];
        cases.push(case("TensorScatter", &attributes, &operands, &[(DType::F32, &x)], want));
    }
    check(&cases);
}

/// Random numbers, many of them equal; floats also with NaN, infinities and zeros of both signs.
fn ties(r: &mut Random, dtype: DType, n: usize) -> Vec<f64> {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0];
    let one = |r: &mut Random| match r.random_range(0..12usize) {
        k if k < 6 && dtype == DType::F32 => odd[k],
        _ => f64::from(r.random_range(-9..9i32)),
    };
    (0..n).map(|_| one(r)).collect()
}

/// The order of two elements: NaN is larger than any number, and zeros are equal.
fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

#[test]
fn the_best_of_merged_runs_are_those_of_lines() {
    let mut r = Random::seed_from_u64(5);
    let mut cases = Vec::new();
    let shapes: [(&[i64], usize, i64); 8] = [
        (&[1, 700], 1, 300),
        (&[3, 128], 1, 128),
        (&[2, 129, 3], 1, 5),
        (&[1, 3000], 1, 1),
        (&[2100], 0, 2100),
        (&[2, 1], 1, 1),
        (&[1, 513], 1, 200),
        (&[4100, 5], 1, 3),
    ];
    for ((shape, axis, k), is_largest) in
        shapes.iter().flat_map(|s| [true, false].map(|is_largest| (*s, is_largest)))
    {
        for dtype in [DType::F32, DType::I32] {
            let x = ties(&mut r, dtype, count(shape));
            let mut out = shape.to_vec();
            out[axis] = k;
            let n = count(&out);
            let mut want = vec![0.0; 2 * n];
            for (line, to) in lines(shape, axis).into_iter().zip(lines(&out, axis)) {
                let mut best: Vec<usize> = (0..line.len()).collect();
                best.sort_by(|a, b| {
                    let order = order(x[line[*a]], x[line[*b]]);
                    if is_largest { order.reverse() } else { order }
                });
                for (at, e) in to.into_iter().zip(best) {
                    (want[at], want[n + at]) = (x[line[e]], e as f64);
                }
            }
            let mut number = operand(DType::I64, &[1], &[k as f64]);
            number.is_known = true;
            let attributes = [
                ("axis", Attribute::Int(axis as i64)),
                ("largest", Attribute::Int(i64::from(is_largest))),
            ];
            let results: [(DType, &[i64]); 2] = [(dtype, &out), (DType::I64, &out)];
            let operands = [operand(dtype, shape, &x), number];
            cases.push(case("TopK", &attributes, &operands, &results, want));
        }
    }
    check(&cases);
}

#[test]
fn the_best_of_long_lines_is_found_in_parts() {
    let mut r = Random::seed_from_u64(6);
    let mut cases = Vec::new();
    let shapes: [(&[i64], usize); 4] =
        [(&[2, 5000, 3], 1), (&[1, 257], 1), (&[300], 0), (&[2, 4], 1)];
    for (shape, axis) in shapes {
        for flags in 0..8 {
            let [is_last, is_largest, is_whole] = [1, 2, 4].map(|b| flags & b != 0);
            let dtype = if is_whole { DType::I32 } else { DType::F32 };
            let mut x = numbers(&mut r, dtype, count(shape));
            if !is_whole && flags == 2 {
                // Some lines have a NaN, which is the best there is.
                x.iter_mut().step_by(97).for_each(|v| *v = f64::NAN);
            }
            let mut out = shape.to_vec();
            out[axis] = 1;
            let is_better = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
                (true, _) => is_last || !b.is_nan(),
                (false, true) => false,
                _ if a == b => is_last,
                _ => (a > b) == is_largest,
            };
            let best = |line: Vec<usize>| {
                (1..line.len()).fold(0, |best, k| match is_better(x[line[k]], x[line[best]]) {
                    true => k,
                    false => best,
                })
            };
            let want = lines(shape, axis).into_iter().map(|l| best(l) as f64).collect();
            let attributes = [
                ("axis", Attribute::Int(axis as i64)),
                ("select_last_index", Attribute::Int(i64::from(is_last))),
            ];
            let op = if is_largest { "ArgMax" } else { "ArgMin" };
            let operands = [operand(dtype, shape, &x)];
            cases.push(case(op, &attributes, &operands, &[(DType::I64, &out)], want));
        }
    }
    check(&cases);
}

#[test]
fn groups_of_a_row_are_moved_at_once() {
    let mut r = Random::seed_from_u64(7);
    let mut cases = Vec::new();
    let shapes: [(&[i64], usize); 4] = [(&[5, 8], 0), (&[2, 5, 4], 1), (&[5, 7], 0), (&[6], 0)];
    for (shape, axis) in shapes {
        let x = numbers(&mut r, DType::F32, count(shape));
        let at: Vec<i64> = (0..6).map(|_| r.random_range(-shape[axis]..shape[axis])).collect();
        let mut out = shape.to_vec();
        out[axis] = 6;
        let mut want = vec![0.0; count(&out)];
        for (from, to) in lines(shape, axis).into_iter().zip(lines(&out, axis)) {
            for (i, at) in at.iter().enumerate() {
                want[to[i]] = x[from[at.rem_euclid(shape[axis]) as usize]];
            }
        }
        let at: Vec<f64> = at.iter().map(|i| *i as f64).collect();
        let operands = [operand(DType::F32, shape, &x), operand(DType::I64, &[6], &at)];
        let attributes = [("axis", Attribute::Int(axis as i64))];
        cases.push(case("Gather", &attributes, &operands, &[(DType::F32, &out)], want));
    }
    for depth in [8, 7, 1] {
        let at: Vec<i64> = (0..9).map(|i| i * 2 - 9).collect();
        let mut want = Vec::new();
        for i in &at {
            let i = if *i < 0 { i + depth } else { *i };
            want.extend((0..depth).map(|k| if k == i { 2.5 } else { 0.5 }));
        }
        let at: Vec<f64> = at.iter().map(|i| *i as f64).collect();
        let mut size = operand(DType::I64, &[1], &[depth as f64]);
        size.is_known = true;
        let values = operand(DType::F32, &[2], &[0.5, 2.5]);
        let operands = [operand(DType::I64, &[9], &at), size, values];
        cases.push(case("OneHot", &[], &operands, &[(DType::F32, &[9, depth])], want));
    }
    check(&cases);
}

#[test]
fn sums_of_convolutions_of_bytes_are_right() {
    let mut r = Random::seed_from_u64(8);
    let mut cases = Vec::new();
    // Extents of the image and of a filter, stride, padding, distance of a filter's elements.
    for (image, kernel, [stride, pad, step]) in
        [([5, 6], [3, 3], [1, 1, 1]), ([7, 4], [2, 1], [2, 0, 2]), ([1, 1], [1, 1], [1, 0, 1])]
    {
        let (group, ins, outs) = (2, 3, 2);
        let out =
            [0usize, 1].map(|d| (image[d] + 2 * pad - (kernel[d] - 1) * step - 1) / stride + 1);
        let shape_x = [2, group * ins, image[0], image[1]];
        let shape_w = [group * outs, ins, kernel[0], kernel[1]];
        let shape_y = [2, group * outs, out[0], out[1]];
        let mut bytes = |n: usize, from: i64| -> Vec<f64> {
            (0..n).map(|_| r.random_range(from..from + 256) as f64).collect()
        };
        let (x, w) = (bytes(count(&shape_x), 0), bytes(count(&shape_w), -128));
        let (zx, zw) = (bytes(1, 0), bytes(1, -128));
        let mut want = Vec::new();
        for at in 0..count(&shape_y) as i64 {
            let (q, p) = (at % out[1], at / out[1] % out[0]);
            let (m, b) =
                (at / (out[0] * out[1]) % (group * outs), at / (out[0] * out[1]) / (group * outs));
            let mut sum = 0.0;
            for k in 0..ins * kernel[0] * kernel[1] {
                let (c, i, j) =
                    (k / (kernel[0] * kernel[1]), k / kernel[1] % kernel[0], k % kernel[1]);
                let (u, v) = (p * stride + i * step - pad, q * stride + j * step - pad);
                if u < 0 || v < 0 || u >= image[0] || v >= image[1] {
                    continue;
                }
                let channel = b * group * ins + m / outs * ins + c;
                let pixel = x[((channel * image[0] + u) * image[1] + v) as usize] - zx[0];
                sum += pixel * (w[(m * ins * kernel[0] * kernel[1] + k) as usize] - zw[0]);
            }
            want.push(sum);
        }
        let operands = [
            operand(DType::U8, &shape_x, &x),
            operand(DType::I8, &shape_w, &w),
            operand(DType::U8, &[], &zx),
            operand(DType::I8, &[], &zw),
        ];
        let attributes = [
            ("group", Attribute::Int(group)),
            ("strides", Attribute::Ints(vec![stride; 2])),
            ("pads", Attribute::Ints(vec![pad; 4])),
            ("dilations", Attribute::Ints(vec![step; 2])),
        ];
        cases.push(case("ConvInteger", &attributes, &operands, &[(DType::I32, &shape_y)], want));
    }
    check(&cases);
}
