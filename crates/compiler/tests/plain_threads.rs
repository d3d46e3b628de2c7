//! Tests of plain operators' bodies for GPUs (`compiler/src/plain`, untuned code for one ONNX
//! operator): calls whose body for a GPU is another than that for a processor are run as threads,
//! forwards and backwards, and compared with the plain C of this machine. Sizes are odd, extents
//! are 0 and 1 among others, and some elements are no numbers.

use crate::plain_cases::{Case, check, check_threads};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use squall_core::DType;
use squall_core::graph::{Attribute, CallOperand, Constant, OperatorCall};

/// An operand, and whether the generator knows its elements.
type Operand = Option<(DType, Constant, bool)>;

fn floats(r: &mut Random, shape: &[i64]) -> Operand {
    let n = shape.iter().product::<i64>();
    let data = (0..n).map(|_| r.random_range(-40..40i32) as f32 / 8.0).collect();
    Some((DType::F32, Constant::F32 { shape: shape.to_vec(), data }, false))
}

/// The same with one element that is no number, where there is any.
fn with_nan(r: &mut Random, shape: &[i64]) -> Operand {
    let Some((dtype, Constant::F32 { shape, mut data }, is_known)) = floats(r, shape) else {
        return None;
    };
    let middle = data.len() / 2;
    data.iter_mut().skip(middle).take(1).for_each(|x| *x = f32::NAN);
    Some((dtype, Constant::F32 { shape, data }, is_known))
}

fn given(shape: &[i64], data: &[f32]) -> Operand {
    Some((DType::F32, Constant::F32 { shape: shape.to_vec(), data: data.to_vec() }, true))
}

fn places(shape: &[i64], data: Vec<i64>) -> Operand {
    Some((DType::I64, Constant::I64 { shape: shape.to_vec(), data }, false))
}

fn known(data: &[i64]) -> Operand {
    let shape = vec![data.len() as i64];
    Some((DType::I64, Constant::I64 { shape, data: data.to_vec() }, true))
}

fn scalar(value: i64) -> Operand {
    Some((DType::I64, Constant::I64 { shape: vec![], data: vec![value] }, true))
}

fn word(text: &str) -> Attribute {
    Attribute::String(text.into())
}

fn case(
    op: &str,
    opset: i64,
    operands: Vec<Operand>,
    attributes: &[(&str, Attribute)],
    result: (DType, &[i64]),
) -> Case {
    let side = |o: &Operand| {
        let (dtype, c, known) = o.as_ref()?;
        let constant = known.then(|| c.clone());
        Some(CallOperand { dtype: *dtype, shape: c.shape().to_vec(), constant })
    };
    let call = OperatorCall {
        op: op.into(),
        domain: String::new(),
        opset,
        attributes: attributes.iter().map(|(n, a)| (n.to_string(), a.clone())).collect(),
        inputs: operands.iter().map(side).collect(),
        outputs: vec![Some(CallOperand {
            dtype: result.0,
            shape: result.1.to_vec(),
            constant: None,
        })],
    };
    Case { call, operands: operands.into_iter().flatten().map(|o| o.1).collect(), want: vec![] }
}

#[test]
fn deformed_windows_are_sampled_by_threads() {
    let mut r = Random::seed_from_u64(1);
    let mut cases = Vec::new();
    // Images, channels and filters of a group, groups of filters and of offsets, an image's
    // extents, the window's, its stride and padding.
    for (n, [b, ins, each, group, offsets, h, w, k, s, pad]) in [
        [1, 2, 3, 1, 1, 5, 7, 3, 1, 1],
        [2, 5, 5, 2, 2, 9, 6, 2, 2, 0],
        [1, 9, 1, 2, 1, 4, 3, 3, 1, 1],
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 0],
        [0, 2, 3, 1, 1, 5, 7, 3, 1, 1],
        [1, 2, 6, 1, 2, 13, 11, 1, 1, 0],
    ]
    .into_iter()
    .enumerate()
    {
        let [oh, ow] = [h, w].map(|e| (e + 2 * pad - k) / s + 1);
        let taps = offsets * k * k;
        let mask = (0..b * taps * oh * ow).map(|_| r.random_range(0..3i32) as f32 / 2.0);
        let mask = Constant::F32 { shape: vec![b, taps, oh, ow], data: mask.collect() };
        let attributes = [
            ("group", Attribute::Int(group)),
            ("offset_group", Attribute::Int(offsets)),
            ("pads", Attribute::Ints(vec![pad; 4])),
            ("strides", Attribute::Ints(vec![s; 2])),
        ];
        let mut operands = vec![
            with_nan(&mut r, &[b, ins * group, h, w]),
            floats(&mut r, &[each * group, ins, k, k]),
            floats(&mut r, &[b, 2 * taps, oh, ow]),
        ];
        if n % 2 == 1 {
            operands.push(floats(&mut r, &[each * group]));
            operands.push(Some((DType::F32, mask, false)));
        }
        let shape = [b, each * group, oh, ow];
        cases.push(case("DeformConv", 19, operands, &attributes, (DType::F32, &shape)));
    }
    check_threads(cases);
}

#[test]
fn regions_are_pooled_by_threads() {
    let mut r = Random::seed_from_u64(2);
    let mut cases = Vec::new();
    for (n, regions) in [5, 1, 0, 4, 5, 3, 4, 5].into_iter().enumerate() {
        let attributes = [
            ("mode", word(["avg", "max"][n % 2])),
            ("sampling_ratio", Attribute::Int([0, 2, 3, 20][n / 2])),
            (
                "coordinate_transformation_mode",
                word(["half_pixel", "output_half_pixel"][n / 2 % 2]),
            ),
            ("output_height", Attribute::Int(2)),
            ("output_width", Attribute::Int(3)),
            ("spatial_scale", Attribute::Float(0.75)),
        ];
        let images = (0..regions).map(|_| r.random_range(0..2i64)).collect();
        let rois =
            if n == 4 { with_nan(&mut r, &[regions, 4]) } else { floats(&mut r, &[regions, 4]) };
        let operands = vec![with_nan(&mut r, &[2, 3, 5, 6]), rois, places(&[regions], images)];
        cases.push(case("RoiAlign", 16, operands, &attributes, (DType::F32, &[regions, 3, 2, 3])));
    }
    let rois = [0.0, 0.0, 1.0, 4.0, 6.0, 1.0, -2.0, 3.0, 3.0, 9.0, 1.0, 4.0, 4.0, 2.0, 2.0];
    let rois = Constant::F32 { shape: vec![3, 5], data: rois.to_vec() };
    let operands = vec![with_nan(&mut r, &[2, 3, 6, 5]), Some((DType::F32, rois, false))];
    let pooled = ("pooled_shape", Attribute::Ints(vec![2, 3]));
    cases.push(case("MaxRoiPool", 16, operands, &[pooled], (DType::F32, &[3, 3, 2, 3])));
    check_threads(cases);
}

#[test]
fn signals_are_transformed_by_threads() {
    let mut r = Random::seed_from_u64(3);
    let mut cases = Vec::new();
    // The points that are given and transformed, whether half of the results and back, and the
    // parts of a point.
    for (given, length, half, back, parts, inner) in [
        // Signals that a warp has each.
        (512, 512, true, false, 1, 9),
        (90, 66, false, true, 2, 8),
        (4, 1, false, false, 1, 20),
        (1, 1, false, false, 1, 1),
        (3, 3, false, true, 2, 3),
        (8, 8, true, false, 1, 2),
        (12, 12, false, false, 2, 1),
        (9, 17, true, false, 1, 3),
        (40, 34, false, true, 1, 1),
        (31, 60, true, true, 2, 2),
        (5, 8, true, true, 2, 1),
        (512, 512, true, false, 1, 1),
        (4200, 4200, true, false, 1, 1),
        (4, 1, false, false, 1, 2),
    ] {
        let attributes = [
            ("axis", Attribute::Int(1)),
            ("inverse", Attribute::Int(i64::from(back))),
            ("onesided", Attribute::Int(i64::from(half))),
        ];
        let results = if half && !back { length / 2 + 1 } else { length };
        let shape = [2, results, inner, if half && back { 1 } else { 2 }];
        let x = floats(&mut r, &[2, given, inner, parts]);
        let operands = vec![x, scalar(length)];
        cases.push(case("DFT", 17, operands, &attributes, (DType::F32, &shape)));
    }
    let x = with_nan(&mut r, &[2, 7, 1]);
    cases.push(case("DFT", 17, vec![x], &[], (DType::F32, &[2, 7, 2])));
    for (parts, length) in [(1, 9), (2, 16)] {
        let window = floats(&mut r, &[length]);
        let operands = vec![floats(&mut r, &[2, 41, parts]), scalar(3), window];
        let frames = (41 - length) / 3 + 1;
        let half = ("onesided", Attribute::Int(parts % 2));
        let bins = if parts == 1 { length / 2 + 1 } else { length };
        cases.push(case("STFT", 17, operands, &[half], (DType::F32, &[2, frames, bins, 2])));
    }
    check_threads(cases);
}

#[test]
fn images_are_resized_by_threads() {
    let mut r = Random::seed_from_u64(4);
    let mut cases = Vec::new();
    let shape = [1i64, 3, 4, 6];
    for scales in
        [[1.0, 1.0, 2.0, 2.0], [1.0, 2.0, 2.5, 0.5], [1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 0.25, 3.0]]
    {
        let result: Vec<i64> =
            shape.iter().zip(&scales).map(|(e, s)| (*e as f32 * s).floor() as i64).collect();
        for mode in ["nearest", "linear", "cubic"] {
            for transform in ["half_pixel", "asymmetric", "align_corners"] {
                for antialias in [0, 1] {
                    let mut attributes = vec![
                        ("mode", word(mode)),
                        ("coordinate_transformation_mode", word(transform)),
                    ];
                    if mode != "nearest" {
                        attributes.push(("antialias", Attribute::Int(antialias)));
                    }
                    let x = with_nan(&mut r, &shape);
                    let operands = vec![x, None, given(&[4], &scales)];
                    cases.push(case("Resize", 19, operands, &attributes, (DType::F32, &result)));
                }
            }
        }
    }
    for mode in ["nearest", "linear", "cubic"] {
        let attributes = [
            ("mode", word(mode)),
            ("coordinate_transformation_mode", word("tf_crop_and_resize")),
            ("extrapolation_value", Attribute::Float(2.5)),
        ];
        let roi = given(&[8], &[0.0, 0.0, 0.2, -0.3, 1.0, 1.0, 1.4, 0.9]);
        let operands = vec![floats(&mut r, &shape), roi, None, known(&[1, 3, 7, 5])];
        cases.push(case("Resize", 19, operands, &attributes, (DType::F32, &[1, 3, 7, 5])));
    }
    let bytes = (0..24).map(|_| r.random_range(0..256i64)).collect();
    let bytes = Constant::I64 { shape: vec![1, 1, 4, 6], data: bytes };
    let operands = vec![Some((DType::U8, bytes, false)), None, given(&[4], &[1.0, 1.0, 2.0, 1.5])];
    let cubic = [("mode", word("cubic"))];
    cases.push(case("Resize", 19, operands, &cubic, (DType::U8, &[1, 1, 8, 9])));
    check_threads(cases);
}

#[test]
fn places_outside_of_an_image_do_not_read_it() {
    // The first element is no number, and the result's first row lies outside.
    for mode in ["nearest", "linear"] {
        let attributes = [
            ("mode", word(mode)),
            ("coordinate_transformation_mode", word("tf_crop_and_resize")),
            ("extrapolation_value", Attribute::Float(2.5)),
        ];
        let mut data = vec![1.0f32; 12];
        data[0] = f32::NAN;
        let x = Some((DType::F32, Constant::F32 { shape: vec![1, 1, 3, 4], data }, false));
        let roi = given(&[8], &[0.0, 0.0, -3.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
        let operands = vec![x, roi, None, known(&[1, 1, 3, 4])];
        let mut c = case("Resize", 19, operands, &attributes, (DType::F32, &[1, 1, 3, 4]));
        // Rows at places -6, -2 and 2 of the operand.
        c.want = [[2.5; 4], [2.5; 4], [1.0; 4]].concat();
        check(&[c]);
    }
}

#[test]
fn points_of_images_are_sampled_by_threads() {
    let mut r = Random::seed_from_u64(5);
    let mut cases = Vec::new();
    for mode in ["linear", "nearest", "cubic"] {
        for padding in ["zeros", "border", "reflection"] {
            for corners in [0, 1] {
                let attributes = [
                    ("mode", word(mode)),
                    ("padding_mode", word(padding)),
                    ("align_corners", Attribute::Int(corners)),
                ];
                let grid = (0..84).map(|_| r.random_range(-12..12i32) as f32 / 9.0).collect();
                let grid = Constant::F32 { shape: vec![2, 3, 7, 2], data: grid };
                let operands =
                    vec![with_nan(&mut r, &[2, 5, 4, 6]), Some((DType::F32, grid, false))];
                cases.push(case(
                    "GridSample",
                    20,
                    operands,
                    &attributes,
                    (DType::F32, &[2, 5, 3, 7]),
                ));
            }
        }
    }
    check_threads(cases);
}

#[test]
fn columns_and_pools_are_put_back_by_threads() {
    let mut r = Random::seed_from_u64(6);
    let mut cases = Vec::new();
    for (image, pad, stride, columns) in
        [([5, 4], 1, 1, [6, 5]), ([7, 5], 0, 2, [3, 2]), ([2, 2], 0, 1, [1, 1])]
    {
        let attributes = [
            ("pads", Attribute::Ints(vec![pad; 4])),
            ("strides", Attribute::Ints(vec![stride; 2])),
        ];
        let x = with_nan(&mut r, &[2, 3 * 4, columns[0] * columns[1]]);
        let operands = vec![x, known(&image), known(&[2, 2])];
        cases.push(case(
            "Col2Im",
            18,
            operands,
            &attributes,
            (DType::F32, &[2, 3, image[0], image[1]]),
        ));
    }
    // Several elements go to one place: the last one stays.
    for (shape, result) in [([1, 2, 3, 3], [1, 2, 6, 6]), ([0, 2, 3, 3], [0, 2, 6, 6])] {
        let n = shape.iter().product::<i64>();
        let to = (0..n).map(|_| r.random_range(0..72i64)).collect();
        let operands = vec![floats(&mut r, &shape), places(&shape, to)];
        let attributes = [
            ("kernel_shape", Attribute::Ints(vec![2, 2])),
            ("strides", Attribute::Ints(vec![2, 2])),
        ];
        cases.push(case("MaxUnpool", 11, operands, &attributes, (DType::F32, &result)));
    }
    check_threads(cases);
}
