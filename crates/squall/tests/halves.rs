//! Tests of models that compute in 16-bit floats (f16, bf16), run on a CPU: they compute in 32 bits
//! inside, and results have the file's type, rounded to it.

use crate::written::run_input;
use squall::{Array, InputRequest};
use squall_core::DType;
use squall_frontend::npy;
use squall_frontend::onnx::proto::TensorProto;
use squall_testing::onnx::{Build, int};
use std::path::Path;

const F16: i32 = 10;
const BF16: i32 = 16;

fn halves(format: DType, shape: &[i64], data: &[f32]) -> Array {
    let bits = data.iter().filter_map(|x| format.half_bits(*x));
    let bytes = bits.flat_map(u16::to_ne_bytes).collect();
    Array { dtype: format, shape: shape.to_vec(), bytes }
}

fn weight(data_type: i32, dims: &[i64], data: &[f32]) -> TensorProto {
    let format = if data_type == F16 { DType::F16 } else { DType::Bf16 };
    let bits = data.iter().filter_map(|x| format.half_bits(*x));
    let raw_data = bits.flat_map(u16::to_le_bytes).collect();
    TensorProto { dims: dims.to_vec(), data_type, raw_data, ..Default::default() }
}

fn run(folder: &Path, model: &Build, x: &Array) -> Vec<(String, Array)> {
    let path = folder.join("model.onnx");
    std::fs::write(&path, model.bytes()).unwrap();
    std::fs::write(folder.join("x.npy"), npy::write(x)).unwrap();
    run_input(folder, InputRequest::new(path.display().to_string())).outputs
}

fn numbers(a: &Array) -> Vec<f64> {
    (0..a.elements()).map(|i| a.number(i).unwrap()).collect()
}

#[test]
fn a_product_in_f16_gives_f16() {
    let folder = tempfile::tempdir().unwrap();
    let w: Vec<f32> = (0..12).map(|i| i as f32 * 0.25 - 1.0).collect();
    let model = Build::new(18)
        .input_of("x", F16, &[2, 4])
        .init("w", weight(F16, &[4, 3], &w))
        .init("b", weight(F16, &[3], &[0.5, 70000.0, -1.0]))
        .node("MatMul", &["x", "w"], &["c"], &[])
        .node("Add", &["c", "b"], &["y"], &[])
        .node("Cast", &["y"], &["i"], &[int("to", 7)])
        .output("y")
        .output("i");
    let x: Vec<f32> = (0..8).map(|i| i as f32 - 3.0).collect();
    let made = run(folder.path(), &model, &halves(DType::F16, &[2, 4], &x));
    let [(_, y), (_, i)] = &made[..] else { panic!("{made:?}") };
    assert_eq!((y.dtype, &y.shape[..]), (DType::F16, &[2, 3][..]));
    let want = |r: usize, c: usize| {
        let sum: f32 = (0..4).map(|k| x[4 * r + k] * w[3 * k + c]).sum();
        f64::from(sum + [0.5, f32::INFINITY, -1.0][c])
    };
    let all: Vec<f64> = (0..6).map(|n| want(n / 3, n % 3)).collect();
    assert_eq!(numbers(y), all);
    assert_eq!((i.dtype, numbers(i)[0]), (DType::I64, all[0].trunc()));
}

#[test]
fn casts_round_to_the_nearest_even_and_overflow() {
    let folder = tempfile::tempdir().unwrap();
    let model = |to: i64| {
        Build::new(18)
            .input("x", &[6])
            .node("Cast", &["x"], &["h"], &[int("to", to)])
            .node("Cast", &["h"], &["y"], &[int("to", 1)])
            .output("y")
    };
    let x = Array::floats(vec![6], &[2049.0, 2051.0, 65519.0, 65520.0, -1e-8, 6e-8]);
    let y = run(folder.path(), &model(10), &x);
    let want = [2048.0, 2052.0, 65504.0, f64::INFINITY, -0.0, 2f64.powi(-24)];
    assert_eq!((y[0].1.dtype, numbers(&y[0].1)), (DType::F32, want.to_vec()));
    let y = run(folder.path(), &model(16), &x);
    let format = |x: f32| DType::Bf16.round(f64::from(x));
    assert_eq!(numbers(&y[0].1), x.f32s().unwrap().into_iter().map(format).collect::<Vec<_>>());
}

#[test]
fn bf16_goes_in_as_bits_and_comes_out() {
    let folder = tempfile::tempdir().unwrap();
    let model = Build::new(18)
        .input_of("x", BF16, &[3])
        .init("w", weight(BF16, &[3], &[1.5, -2.0, 3e38]))
        .node("Mul", &["x", "w"], &["c"], &[])
        .node("Add", &["c", "x"], &["y"], &[])
        .output("y");
    let x = [1.0078125, 3.0, 4.0];
    let bits = Array { dtype: DType::U16, ..halves(DType::Bf16, &[3], &x) };
    let y = run(folder.path(), &model, &bits);
    assert_eq!(y[0].1.dtype, DType::Bf16);
    assert_eq!(numbers(&y[0].1), [2.515625, -3.0, f64::INFINITY]);
}
