//! Tests of the table of ONNX operators and of the evaluators that fold constants: each evaluator
//! (`Transpose`, `Slice`, `Pad`, `Gather`, ..) must give, element for element, the numbers of the
//! definition by index, on random shapes and attributes.

use super::*;
use crate::graph::Tensor;
use crate::graph::infer;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn each_operator_has_one_row_and_no_more_attributes_than_its_c_has_names_for() {
    let mut names: Vec<&str> = standard_operators().map(|row| row.name).collect();
    names.extend([REFUSED, WRITTEN_OUT].into_iter().flatten().map(|(name, _)| *name));
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    for each in standard_operators().filter_map(|row| row.each) {
        assert!(each.attributes.len() <= 2);
        assert!(each.c.is_none_or(|c| c.operands == 1 || c.operands == 2));
    }
}

fn node(op: &str, inputs: usize, outputs: usize, attributes: &[(&str, Attribute)]) -> Node {
    Node {
        name: "n".into(),
        op: op.into(),
        domain: String::new(),
        inputs: (0..inputs).map(Some).collect(),
        outputs: (inputs..inputs + outputs).collect(),
        attributes: attributes
            .iter()
            .map(|(k, v)| (k.to_string(), v.clone()))
            .collect::<BTreeMap<_, _>>(),
        folded: false,
        problem: None,
    }
}

/// The results of one node in the form of opset 18.
fn run(
    op: &str,
    operands: &[Constant],
    outputs: usize,
    attributes: &[(&str, Attribute)],
) -> Vec<Constant> {
    let inputs: Vec<Option<Constant>> = operands.iter().cloned().map(Some).collect();
    evaluate(&node(op, inputs.len(), outputs, attributes), &inputs, 18)
        .expect("not evaluated")
        .unwrap()
}

fn single(op: &str, operands: &[Constant], attributes: &[(&str, Attribute)]) -> Constant {
    run(op, operands, 1, attributes).remove(0)
}

/// Elements counted up from zero.
fn counted(shape: &[i64]) -> Constant {
    let n: i64 = shape.iter().product();
    Constant::F32 { shape: shape.to_vec(), data: (0..n).map(|x| x as f32).collect() }
}

fn ints(v: &[i64]) -> Constant {
    Constant::ints(v.to_vec())
}

/// All places of a shape, row by row.
fn places(shape: &[i64]) -> Vec<Vec<i64>> {
    shape.iter().fold(vec![vec![]], |all, d| {
        all.iter().flat_map(|p| (0..*d).map(move |i| [p.as_slice(), &[i]].concat())).collect()
    })
}

/// The element at a place.
fn at(c: &Constant, place: &[i64]) -> f32 {
    let i = c.shape().iter().zip(place).fold(0, |i, (d, p)| i * d + p);
    c.as_f32().unwrap()[i as usize]
}

/// Checks every element against a function of its place.
fn check(c: &Constant, shape: &[i64], expected: impl Fn(&[i64]) -> f32) {
    assert_eq!(c.shape(), shape);
    let expected: Vec<f32> = places(shape).iter().map(|p| expected(p)).collect();
    assert_eq!(c.as_f32().unwrap(), expected);
}

fn shapes() -> impl Strategy<Value = Vec<i64>> {
    vec(1..5i64, 1..5)
}

/// The start, the end and the step of a slice.
fn cut() -> impl Strategy<Value = (i64, i64, i64)> {
    (-6..6i64, -6..6i64, prop_oneof![-3..0i64, 1..4i64])
}

/// A shape with extent 1 along each axis whose bit is set.
fn narrowed(shape: &[i64], ones: u8) -> Vec<i64> {
    let extent = |(i, d): (usize, &i64)| if ones >> i & 1 == 1 { 1 } else { *d };
    shape.iter().enumerate().map(extent).collect()
}

/// The place in a tensor of this shape that a place of the result of broadcasting it reads.
fn broadcast(place: &[i64], shape: &[i64]) -> Vec<i64> {
    place.iter().zip(shape).map(|(i, d)| if *d == 1 { 0 } else { *i }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn transpose_permutes(shape in shapes(), seed in any::<u64>()) {
        let mut order: Vec<i64> = (0..shape.len() as i64).collect();
        (1..order.len()).for_each(|i| order.swap(i, (seed >> (8 * i)) as usize % (i + 1)));
        let x = counted(&shape);
        let to: Vec<i64> = order.iter().map(|a| shape[*a as usize]).collect();
        let perm = [("perm", Attribute::Ints(order.clone()))];
        check(&single("Transpose", std::slice::from_ref(&x), &perm), &to, |p| {
            let mut from = vec![0; p.len()];
            order.iter().zip(p).for_each(|(a, i)| from[*a as usize] = *i);
            at(&x, &from)
        });
    }

    #[test]
    fn slices_step(shape in shapes(), cuts in vec(cut(), 4)) {
        let cuts = &cuts[..shape.len()];
        let x = counted(&shape);
        let column = |f: fn(&(i64, i64, i64)) -> i64| ints(&cuts.iter().map(f).collect::<Vec<_>>());
        let axes = ints(&(0..shape.len() as i64).collect::<Vec<_>>());
        let columns = [x.clone(), column(|c| c.0), column(|c| c.1), axes, column(|c| c.2)];
        let y = single("Slice", &columns, &[]);
        // The specification's text: clamp, then walk.
        let taken: Vec<Vec<i64>> = shape.iter().zip(cuts).map(|(&d, &(start, end, step))| {
            let wrap = |v: i64| if v < 0 { v + d } else { v };
            let (mut i, end) = if step > 0 {
                (wrap(start).clamp(0, d), wrap(end).clamp(0, d))
            } else {
                (wrap(start).clamp(0, d - 1), wrap(end).clamp(-1, d - 1))
            };
            let mut out = vec![];
            while if step > 0 { i < end } else { i > end } {
                out.push(i);
                i += step;
            }
            out
        }).collect();
        let to: Vec<i64> = taken.iter().map(|t| t.len() as i64).collect();
        check(&y, &to, |p| {
            let from = p.iter().zip(&taken).map(|(i, t)| t[*i as usize]);
            at(&x, &from.collect::<Vec<_>>())
        });
    }

    #[test]
    fn split_and_concat_are_inverse(
        shape in shapes(),
        axis in any::<prop::sample::Index>(),
        parts in vec(0..4i64, 1..4),
    ) {
        let axis = axis.index(shape.len());
        let mut shape = shape;
        shape[axis] = parts.iter().sum();
        let x = counted(&shape);
        let along = [("axis", Attribute::Int(axis as i64))];
        let pieces = run("Split", &[x.clone(), ints(&parts)], parts.len(), &along);
        let mut offset = 0;
        for (piece, size) in pieces.iter().zip(&parts) {
            let mut to = shape.clone();
            to[axis] = *size;
            check(piece, &to, |p| {
                let mut from = p.to_vec();
                from[axis] += offset;
                at(&x, &from)
            });
            offset += size;
        }
        assert_eq!(single("Concat", &pieces, &along), x);
    }

    #[test]
    fn gather_picks(
        shape in shapes(),
        axis in any::<prop::sample::Index>(),
        picks in vec(any::<i8>(), 6),
    ) {
        let axis = axis.index(shape.len());
        let d = shape[axis];
        let picks: Vec<i64> = picks.iter().map(|p| i64::from(*p).rem_euclid(2 * d) - d).collect();
        let x = counted(&shape);
        let indices = Constant::I64 { shape: vec![2, 3], data: picks.clone() };
        let y = single("Gather", &[x.clone(), indices], &[("axis", Attribute::Int(axis as i64))]);
        check(&y, &[&shape[..axis], &[2, 3], &shape[axis + 1..]].concat(), |p| {
            let pick = picks[(p[axis] * 3 + p[axis + 1]) as usize];
            at(&x, &[&p[..axis], &[pick.rem_euclid(d)], &p[axis + 2..]].concat())
        });
    }

    #[test]
    fn pads_of_every_mode(
        shape in shapes(),
        amounts in vec((-1..4i64, -1..4i64), 4),
        mode in 0..4usize,
    ) {
        let mode = ["constant", "edge", "reflect", "wrap"][mode];
        let amounts = &amounts[..shape.len()];
        prop_assume!(shape.iter().zip(amounts).all(|(d, (b, e))| d + b + e >= 0));
        let x = counted(&shape);
        let (before, after): (Vec<i64>, Vec<i64>) = amounts.iter().copied().unzip();
        let pads = ints(&[before, after].concat());
        let fill = Constant::F32 { shape: vec![], data: vec![-1.0] };
        let modes = [("mode", Attribute::String(mode.into()))];
        let y = single("Pad", &[x.clone(), pads, fill], &modes);
        let to: Vec<i64> = shape.iter().zip(amounts).map(|(d, (b, e))| d + b + e).collect();
        check(&y, &to, |p| {
            let mut from = vec![];
            for ((i, d), (before, _)) in p.iter().zip(&shape).zip(amounts) {
                let mut i = i - before;
                while !(0..*d).contains(&i) {
                    i = match mode {
                        "constant" => return -1.0,
                        "edge" => i.clamp(0, d - 1),
                        "wrap" => if i < 0 { i + d } else { i - d },
                        _ if *d == 1 => 0,
                        _ => if i < 0 { -i } else { 2 * (d - 1) - i },
                    };
                }
                from.push(i);
            }
            at(&x, &from)
        });
    }

    #[test]
    fn expand_and_tile_repeat(
        shape in shapes(),
        repeats in vec(1..4i64, 4),
        ones in any::<u8>(),
    ) {
        let x = counted(&shape);
        let repeats = &repeats[..shape.len()];
        let to: Vec<i64> = shape.iter().zip(repeats).map(|(d, r)| d * r).collect();
        check(&single("Tile", &[x.clone(), ints(repeats)], &[]), &to, |p| {
            at(&x, &p.iter().zip(&shape).map(|(i, d)| i % d).collect::<Vec<_>>())
        });
        let narrow = narrowed(&shape, ones);
        let y = counted(&narrow);
        let to = [&[2], shape.as_slice()].concat();
        check(&single("Expand", &[y.clone(), ints(&to)], &[]), &to, |p| {
            at(&y, &broadcast(&p[1..], &narrow))
        });
    }

    #[test]
    fn reductions_take_all_of_their_axes(shape in shapes(), mask in 1..16u8) {
        let axes: Vec<i64> =
            (0..shape.len() as i64).filter(|i| mask >> i & 1 == 1).collect();
        prop_assume!(!axes.is_empty());
        let x = counted(&shape);
        type Step = fn(f32, f32) -> f32;
        let steps: [(&str, Step); 3] =
            [("ReduceSum", |a, b| a + b), ("ReduceMax", f32::max), ("ReduceMin", f32::min)];
        for (op, step) in steps {
            let y = single(op, &[x.clone(), ints(&axes)], &[]);
            let to = narrowed(&shape, mask);
            check(&y, &to, |p| {
                let inside = |q: &&Vec<i64>| {
                    let is_kept = |i: usize| !axes.contains(&(i as i64));
                    q.iter().enumerate().all(|(i, v)| !is_kept(i) || *v == p[i])
                };
                places(&shape).iter().filter(inside).map(|q| at(&x, q)).reduce(step).unwrap()
            });
        }
    }

    #[test]
    fn where_and_arithmetic_broadcast(shape in shapes(), ones in any::<u8>()) {
        let x = counted(&shape);
        let narrow = narrowed(&shape, ones)[1..].to_vec();
        let y = counted(&narrow);
        let of_y = |p: &[i64]| at(&y, &broadcast(&p[1..], &narrow));
        check(&single("Sub", &[x.clone(), y.clone()], &[]), &shape, |p| at(&x, p) - of_y(p));
        let less = single("Less", &[y.clone(), x.clone()], &[]);
        let larger = single("Where", &[less, x.clone(), y.clone()], &[]);
        check(&larger, &shape, |p| at(&x, p).max(of_y(p)));
    }
}

#[test]
fn names_change_and_elements_stay() {
    let x = counted(&[2, 1, 3]);
    for (op, operand, shape) in [
        ("Reshape", Some(ints(&[3, -1])), vec![3, 2]),
        ("Squeeze", None, vec![2, 3]),
        ("Flatten", None, vec![2, 3]),
    ] {
        let operands: Vec<Constant> = [Some(x.clone()), operand].into_iter().flatten().collect();
        assert_eq!(single(op, &operands, &[]), x.clone().reshaped(shape), "{op}");
    }
    assert_eq!(
        single("Unsqueeze", &[x.clone(), ints(&[0])], &[]),
        x.clone().reshaped(vec![1, 2, 1, 3])
    );
}

#[test]
fn casts_keep_what_their_type_keeps() {
    let x = Constant::F32 { shape: vec![4], data: vec![-1.5, 0.0, 2.9, 300.0] };
    let to =
        |x: &Constant, t| single("Cast", std::slice::from_ref(x), &[("to", Attribute::Int(t))]);
    assert_eq!(to(&x, 7).as_i64().unwrap(), [-1, 0, 2, 300]);
    assert_eq!(to(&x, 9), Constant::Bool { shape: vec![4], data: vec![true, false, true, true] });
    assert_eq!(to(&ints(&[255, -129]), 3).as_i64().unwrap(), [-1, 127]);
    assert_eq!(to(&ints(&[3]), 1).as_f32().unwrap(), [3.0]);
    let wide = Constant::F32 { shape: vec![4], data: vec![0.1, 2049.0, 65520.0, -1e-9] };
    let kept = [0.099_975_586, 2048.0, f32::INFINITY, -0.0];
    assert_eq!(to(&wide, 10).as_f32().unwrap(), kept);
    assert_eq!(to(&ints(&[257]), 16).as_f32().unwrap(), [256.0]);
}

#[test]
fn wrong_operands_are_errors() {
    let run = |op: &str, operands: &[Constant], attributes: &[(&str, Attribute)]| {
        let inputs: Vec<Option<Constant>> = operands.iter().cloned().map(Some).collect();
        evaluate(&node(op, inputs.len(), 1, attributes), &inputs, 18).unwrap().unwrap_err()
    };
    assert_eq!(
        run("Gather", &[counted(&[3]), ints(&[3])], &[]),
        "index 3 is outside an extent of 3"
    );
    assert_eq!(
        run("Gather", &[counted(&[3]), ints(&[i64::MIN])], &[]),
        format!("index {} is outside an extent of 3", i64::MIN)
    );
    assert_eq!(run("Mod", &[ints(&[1]), ints(&[0])], &[]), "it divides by zero");
    assert!(run("Expand", &[counted(&[1]), ints(&[1 << 36])], &[]).contains("too large"));
    assert!(
        run(
            "Pad",
            &[counted(&[2]), ints(&[1, 1])],
            &[("mode", Attribute::String("mirror".into()))]
        )
        .contains("`mirror`")
    );
    assert!(run("Where", &[ints(&[1]), ints(&[1]), ints(&[1])], &[]).contains("not of type bool"));
    assert!(
        run("Concat", &[counted(&[1]), ints(&[1])], &[("axis", Attribute::Int(0))])
            .contains("different types")
    );
    assert!(evaluate(&node("Conv", 1, 1, &[]), &[Some(counted(&[1]))], 18).is_none());
}

#[test]
fn extremes_of_integers_do_not_overflow() {
    let least = ints(&[i64::MIN]);
    for op in ["Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max"] {
        let y = single(op, &[least.clone(), ints(&[-1])], &[]);
        assert_eq!(y.len(), 1, "{op}");
    }
    assert_eq!(single("Neg", std::slice::from_ref(&least), &[]), least);
    let y = single(
        "Range",
        &[
            Constant::I64 { shape: vec![], data: vec![i64::MAX] },
            ints(&[i64::MIN]),
            ints(&[i64::MIN]),
        ],
        &[],
    );
    assert_eq!(y.as_i64().unwrap(), [i64::MAX, -1]);
}

#[test]
fn a_shape_is_filled_with_its_value() {
    let value = Tensor { dtype: Some(DType::I64), shape: vec![1], constant: Some(ints(&[5])) };
    let y = single("ConstantOfShape", &[ints(&[2, 2])], &[("value", Attribute::Tensor(value))]);
    assert_eq!(y, Constant::I64 { shape: vec![2, 2], data: vec![5; 4] });
    assert_eq!(
        single("ConstantOfShape", &[ints(&[0])], &[]),
        Constant::F32 { shape: vec![0], data: vec![] }
    );
}

#[test]
fn millions_of_elements_move_in_no_time() {
    let start = std::time::Instant::now();
    let x = counted(&[1, 232, 112, 112]);
    let y = single("Reshape", &[x.clone(), ints(&[1, 2, 116, 112, 112])], &[]);
    let y = single("Transpose", &[y], &[("perm", Attribute::Ints(vec![0, 2, 1, 3, 4]))]);
    let y = single("Reshape", &[y, ints(&[1, 232, 112, 112])], &[]);
    assert_eq!(at(&y, &[0, 1, 0, 0]), at(&x, &[0, 116, 0, 0]));
    let z = single(
        "Transpose",
        std::slice::from_ref(&x),
        &[("perm", Attribute::Ints(vec![0, 2, 3, 1]))],
    );
    assert_eq!(at(&z, &[0, 3, 4, 5]), at(&x, &[0, 5, 3, 4]));
    // Generous: a test machine may be slow, but nothing here is quadratic.
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

#[test]
fn integers_become_floats_by_their_scales() {
    let shape = [2i64, 5, 3];
    let x = Constant::I64 { shape: shape.to_vec(), data: (0..30).map(|v| v - 15).collect() };
    let element = |p: &[i64]| (p[0] * 15 + p[1] * 3 + p[2] - 15) as f32;
    let floats = |shape: &[i64]| match counted(shape) {
        Constant::F32 { shape, data } => {
            Constant::F32 { shape, data: data.iter().map(|v| v + 0.5).collect() }
        }
        other => other,
    };
    let zeros = |shape: &[i64]| {
        let n: i64 = shape.iter().product();
        Constant::I64 { shape: shape.to_vec(), data: (0..n).map(|v| v % 4).collect() }
    };
    // One scale, one of each element of an axis, and one of each block of two along an axis.
    for scales in [&[][..], &[3], &[5], &[2, 3, 3]] {
        let mut attributes = Vec::new();
        if scales == [3] {
            attributes.push(("axis", Attribute::Int(-1)));
        }
        if scales.len() > 1 {
            attributes.push(("block_size", Attribute::Int(2)));
        }
        let (s, z) = (floats(scales), zeros(scales));
        let y = single("DequantizeLinear", &[x.clone(), s.clone(), z.clone()], &attributes);
        for p in places(&shape) {
            let own: Vec<i64> = match scales {
                [] => vec![],
                [3] => vec![p[2]],
                [5] => vec![p[1]],
                _ => vec![p[0], p[1] / 2, p[2]],
            };
            let place = own.iter().zip(scales).fold(0, |at, (i, d)| at * d + i);
            let want = (element(&p) - (place % 4) as f32) * (place as f32 + 0.5);
            assert_eq!(at(&y, &p), want, "{scales:?} {p:?}");
        }
    }
}

fn doubles(data: &[f64]) -> Constant {
    Constant::F64 { shape: vec![data.len() as i64], data: data.to_vec() }
}

#[test]
fn floats_of_64_bits_keep_all_of_them() {
    let (x, y) = (doubles(&[16_777_217.0, 1e200, 0.1]), doubles(&[1.0, 1e100, 0.2]));
    let cast = |to: i64| single("Cast", std::slice::from_ref(&x), &[("to", Attribute::Int(to))]);
    assert_eq!(cast(7), ints(&[16_777_217, i64::MIN, 0]));
    assert_eq!(cast(11), x);
    assert_eq!(cast(1).as_f32().unwrap()[..2], [16_777_216.0, f32::INFINITY]);
    let f32s = Constant::F32 { shape: vec![1], data: vec![0.1] };
    let wide = single("Cast", &[f32s], &[("to", Attribute::Int(11))]);
    assert_eq!(wide, doubles(&[f64::from(0.1f32)]));
    let two = |op: &str| single(op, &[x.clone(), y.clone()], &[]);
    assert_eq!(two("Add"), doubles(&[16_777_218.0, 1e200 + 1e100, 0.1 + 0.2]));
    assert_eq!(two("Mul"), doubles(&[16_777_217.0, 1e200 * 1e100, 0.1 * 0.2]));
    assert_eq!(two("Max"), doubles(&[16_777_217.0, 1e200, 0.2]));
    let near = doubles(&[16_777_216.0, 1e200, 0.1]);
    let greater = single("Greater", &[x.clone(), near], &[]);
    assert_eq!(greater, Constant::Bool { shape: vec![3], data: vec![true, false, false] });
    assert_eq!(single("Sqrt", std::slice::from_ref(&x), &[]).as_floats().unwrap()[1], 1e100);
    let axes = ints(&[0]);
    let sum = doubles(&[1e16, 1.0, -1e16]);
    let keep = [("keepdims", Attribute::Int(0))];
    let reduced = single("ReduceSum", &[sum.clone(), axes], &keep);
    assert_eq!(reduced, Constant::F64 { shape: vec![], data: vec![(1e16 + 1.0) - 1e16] });
    let one = |v: f64| Constant::F64 { shape: vec![], data: vec![v] };
    let range = single("Range", &[one(16_777_217.0), one(16_777_219.0), one(1.0)], &[]);
    assert_eq!(range, doubles(&[16_777_217.0, 16_777_218.0]));
    let join = single("Concat", &[x.clone(), y.clone()], &[("axis", Attribute::Int(0))]);
    assert_eq!(join.as_floats().unwrap()[1], 1e200);
    let padded = single("Pad", &[x, ints(&[1, 0]), one(1e-300)], &[]);
    assert_eq!(padded.as_floats().unwrap()[..2], [1e-300, 16_777_217.0]);
}

#[test]
fn integers_without_a_sign_are_as_large_as_they_are() {
    let wide = |data: &[u64]| ints(&data.iter().map(|v| *v as i64).collect::<Vec<_>>());
    let (x, y) = (wide(&[u64::MAX - 2, 17]), wide(&[7, 5]));
    let run = |op: &str, attributes: &[(&str, Attribute)], inputs: &[&Constant]| {
        let inputs: Vec<Option<Constant>> = inputs.iter().map(|c| Some((*c).clone())).collect();
        let types = vec![Some(DType::U64); inputs.len()];
        let node = node(op, inputs.len(), 1, attributes);
        evaluate_as(&node, &inputs, &types, 18).unwrap().unwrap().remove(0)
    };
    assert_eq!(run("Div", &[], &[&x, &y]), wide(&[(u64::MAX - 2) / 7, 3]));
    assert_eq!(run("Mod", &[], &[&x, &y]), wide(&[(u64::MAX - 2) % 7, 2]));
    assert_eq!(run("Max", &[], &[&x, &y]), x);
    assert_eq!(run("Min", &[], &[&x, &y]), y);
    let greater = Constant::Bool { shape: vec![2], data: vec![true, true] };
    assert_eq!(run("Greater", &[], &[&x, &y]), greater);
    let float = run("Cast", &[("to", Attribute::Int(1))], &[&x]);
    assert_eq!(float.as_f32().unwrap()[0], u64::MAX as f32);
    let flat = [("keepdims", Attribute::Int(0))];
    assert_eq!(run("ReduceMax", &flat, &[&x]).as_i64().unwrap(), [(u64::MAX - 2) as i64]);
    assert_eq!(run("ReduceMin", &flat, &[&x]).as_i64().unwrap(), [17]);
}

#[test]
fn floats_of_16_bits_are_rounded() {
    let x = Constant::F32 { shape: vec![1], data: vec![2048.0] };
    let one = Constant::F32 { shape: vec![1], data: vec![1.0] };
    let types = [Some(DType::F16), Some(DType::F16)];
    let made = evaluate_as(&node("Add", 2, 1, &[]), &[Some(x), Some(one)], &types, 18);
    assert_eq!(made.unwrap().unwrap()[0].as_f32().unwrap(), [2048.0]);
}

#[test]
fn a_choice_hands_one_operand_on() {
    let choose = |taken: bool| {
        let flag = Constant::Bool { shape: vec![], data: vec![taken] };
        let mut node = node(infer::CHOOSE, 3, 1, &[]);
        node.domain = infer::nbits::DOMAIN.into();
        let inputs = [Some(flag), Some(ints(&[1])), Some(ints(&[2]))];
        evaluate(&node, &inputs, 18).unwrap().unwrap().remove(0)
    };
    assert_eq!((choose(true), choose(false)), (ints(&[1]), ints(&[2])));
}

#[test]
fn limits_that_are_missing_do_not_count() {
    let x = ints(&[-3, 2, 40]);
    let scalar = |v: i64| Constant::I64 { shape: vec![], data: vec![v] };
    let clipped = |operands: &[Constant]| single("Clip", operands, &[]);
    assert_eq!(clipped(std::slice::from_ref(&x)), x);
    assert_eq!(clipped(&[x.clone(), scalar(0)]), ints(&[0, 2, 40]));
    assert_eq!(clipped(&[x.clone(), scalar(0), scalar(9)]), ints(&[0, 2, 9]));
    let inputs = [Some(x.clone()), None, Some(scalar(9))];
    let mut node = node("Clip", 3, 1, &[]);
    node.inputs[1] = None;
    let upper = evaluate(&node, &inputs, 18).expect("not evaluated").unwrap();
    assert_eq!(upper, [ints(&[-3, 2, 9])]);
    // Older limits are attributes, which are not looked at here.
    assert!(evaluate(&node, &inputs, 6).is_none());
}

#[test]
fn pieces_of_nothing_are_gathered() {
    // The index lies far behind the elements, of which there are none.
    let operands = [counted(&[5, 0]), Constant::I64 { shape: vec![1, 1], data: vec![4] }];
    let made = evaluate(&node("GatherND", 2, 1, &[]), &operands.map(Some), 18);
    assert_eq!(made.expect("evaluated").unwrap()[0].shape(), [1, 0]);
}
