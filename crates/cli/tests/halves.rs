//! Tests of models whose files compute in 16-bit floats, on an emulated GPU: their kernels use the
//! file's format unless another is asked for, and results are compared with the same models on the
//! CPU.

use crate::support::{Place, Ran};
use serde_json::Value;
use squall_testing::emulator::emulator;
use squall_testing::onnx::{Build, F32, TensorProto, f32s, int, ints, stored};

const F16: i32 = 10;
const BF16: i32 = 16;

/// Numbers between -0.5 and 0.5.
fn noise(count: i64, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 16_777_216.0 - 0.5
    };
    (0..count).map(next).collect()
}

/// A tensor of a format of 16 bits, rounded towards zero.
fn short(data_type: i32, dims: &[i64], data: &[f32]) -> TensorProto {
    let bits = |x: &f32| match data_type {
        BF16 => (x.to_bits() >> 16) as u16,
        _ => {
            let b = x.to_bits();
            let sign = ((b >> 16) & 0x8000) as u16;
            let exponent = ((b >> 23) & 0xff) as i32 - 112;
            assert!(exponent < 31, "{x}");
            sign | if exponent <= 0 {
                0
            } else {
                ((exponent as u32) << 10 | (b >> 13) & 0x3ff) as u16
            }
        }
    };
    let raw_data = data.iter().flat_map(|x| bits(x).to_le_bytes()).collect();
    TensorProto { dims: dims.to_vec(), data_type, raw_data, ..Default::default() }
}

/// A convolution, its mean and a product in a format, and a branch that computes in 32 bits between
/// two conversions, with numbers that are infinite in f16.
fn model(format: i32) -> Build {
    let weight = |dims: &[i64], seed| short(format, dims, &noise(dims.iter().product(), seed));
    Build::new(18)
        .input_of("x", format, &[2, 3, 6, 6])
        .init("w", weight(&[16, 3, 3, 3], 1))
        .init("v", weight(&[16, 10], 2))
        .init("b", weight(&[10], 3))
        .init("scale", f32s(&[16], &[1e7; 16]))
        .init("m", f32s(&[16, 10], &noise(160, 4)))
        .init("back", f32s(&[10], &[1e-7; 10]))
        .node("Conv", &["x", "w"], &["c"], &[ints("pads", &[1, 1, 1, 1])])
        .node("Relu", &["c"], &["r"], &[])
        .node("GlobalAveragePool", &["r"], &["a"], &[])
        .node("Flatten", &["a"], &["f"], &[])
        .node("MatMul", &["f", "v"], &["p"], &[])
        .node("Add", &["p", "b"], &["s"], &[])
        .node("Softmax", &["s"], &["y"], &[])
        .node("Cast", &["f"], &["wide"], &[int("to", F32.into())])
        .node("Mul", &["wide", "scale"], &["large"], &[])
        .node("MatMul", &["large", "m"], &["q"], &[])
        .node("Mul", &["q", "back"], &["t"], &[])
        .node("Cast", &["t"], &["z"], &[int("to", format.into())])
        .output("y")
        .output("z")
        .output("t")
}

struct Case {
    place: Place,
    gpu: Vec<(&'static str, std::path::PathBuf)>,
}

impl Case {
    /// The model with an input and what the CPU makes of it; none where nothing emulates a GPU.
    fn new(format: i32) -> Option<Case> {
        let case = Case { gpu: emulator()?, place: Place::new() };
        let x = short(format, &[2, 3, 6, 6], &noise(216, 5));
        std::fs::write(case.place.path().join("x.pb"), stored("x", &x)).unwrap();
        std::fs::write(case.place.path().join("m.onnx"), model(format).bytes()).unwrap();
        let outputs = ["--output", "y=y.npy", "--output", "z=z.npy", "--output", "t=t.npy"];
        let args = [&["run", "m.onnx", "--input", "x.pb", "--json"], &outputs[..]].concat();
        let ran = case.place.squall(&args).ok();
        // On CPUs kernels are those of 32-bit floats.
        assert_eq!(ran.json()["precision"], "f32");
        Some(case)
    }

    fn on_gpu(&self, args: &[&str]) -> Ran {
        let args = [args, &["--target", "cuda", "--json"]].concat();
        let mut command = self.place.command(&args);
        let ran = command.envs(self.gpu.clone()).env("EMULATED_CAPABILITY", "80").output();
        Ran::from(ran.unwrap())
    }

    /// A check against the CPU's outputs.
    fn check(&self, more: &[&str]) -> Ran {
        let expected = ["--expect", "y=y.npy", "--expect", "z=z.npy", "--expect", "t=t.npy"];
        self.on_gpu(&[&["check", "m.onnx", "--input", "x.pb"], &expected[..], more].concat())
    }
}

fn error(said: &Value) -> f64 {
    said["max_error"].as_f64().unwrap()
}

#[test]
fn a_model_of_f16_runs_in_f16_on_a_gpu_but_for_its_parts_of_32_bits() {
    let Some(case) = Case::new(F16) else { return };
    // The file's types are compared, too.
    let own = case.check(&[]).ok();
    let said = own.json();
    assert_eq!((&said["right"], &said["precision"]), (&true.into(), &"f16".into()), "{said}");
    assert!(
        own.err.contains("computes in f16, and so do 4 of its 6 kernels")
            && own.err.contains("--precision f32"),
        "{}",
        own.err
    );
    assert!(said["loss"].is_null(), "{said}");
    let wide = case.check(&["--precision", "f32"]).ok();
    let said = wide.json();
    assert_eq!(said["precision"], "f32", "{said}");
    assert!(!wide.err.contains("computes in"), "{}", wide.err);
    // What lies between kernels was rounded in the one and not in the other.
    assert!(error(&own.json()) > 4.0 * error(&said), "{} {said}", own.json());
    // All in f16, the large numbers are infinite: their part stays what the file says by default.
    let all = case.check(&["--precision", "f16"]);
    assert_eq!(all.code, Some(1), "{} {}", all.out, all.err);
    let tasks = case.on_gpu(&["tasks", "m.onnx"]).ok().json();
    let names = tasks["tasks"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap());
    let (halves, others): (Vec<_>, Vec<_>) = names.partition(|n| n.ends_with("_f16"));
    assert!(halves.len() >= 4 && (1..=2).contains(&others.len()), "{halves:?} {others:?}");
}

#[test]
fn a_model_of_bf16_is_tuned_and_run_in_bf16_on_a_gpu() {
    let Some(case) = Case::new(BF16) else { return };
    let args = ["tune", "m.onnx", "--trials-per-task", "3", "--only", "conv"];
    let tuned = case.on_gpu(&args).ok();
    assert!(tuned.err.contains("computes in bf16"), "{}", tuned.err);
    let name = tuned.json()["tasks"][0]["name"].as_str().unwrap().to_string();
    assert!(name.ends_with("_bf16"), "{name}");
    let said = case.check(&["--store", "tuned.squall"]).ok().json();
    assert_eq!((&said["right"], &said["precision"]), (&true.into(), &"bf16".into()), "{said}");
    assert_eq!(said["tuned"], 1, "{said}");
    let timed = case.on_gpu(&["bench", "m.onnx", "--input", "x.pb", "--seconds", "0.01"]).ok();
    assert_eq!(timed.json()["precision"], "bf16");
    let args = ["export", "m.onnx", "--network", "net", "--out", "lib"];
    let made = case.on_gpu(&args).ok().json();
    let ports = made["outputs"].as_array().unwrap().iter().map(|o| o["type"].as_str().unwrap());
    assert_eq!(ports.collect::<Vec<_>>(), ["bfloat16", "bfloat16", "float32"], "{made}");
    assert_eq!(
        (&made["precision"], &made["inputs"][0]["type"]),
        (&"bf16".into(), &"bfloat16".into())
    );
}
