//! Tests of `squall check`, which compares a model's outputs with expected ones: a real network
//! against PyTorch's output, models against their own operators, and wrong arrays.

use crate::support;

use squall_testing::onnx::{Build, f32s, i64s, int, stored, text};
use support::Place;

#[test]
fn tiny_residual_is_what_pytorch_says() {
    let Some(folder) = squall_testing::shared("models") else { return };
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (model, x, y) = (
        file("tiny_residual.onnx"),
        file("tiny_residual_input.npy"),
        file("tiny_residual_output.npy"),
    );
    let p = Place::new();
    let plain = p.squall(&["check", &model, "--input", &x, "--expect", &y, "--json"]).ok().json();
    assert_eq!(plain["right"], true);
    assert_eq!((&plain["tuned"], &plain["plain"]), (&0.into(), &0.into()), "{plain}");
    assert_eq!(plain["guessed"], plain["kernels"]);
    p.squall(&["tune", &model, "--trials-per-task", "3", "--store", "t.squall"]).ok();
    let tuned = p
        .squall(&["check", &model, "--input", &x, "--expect", &y, "--store", "t.squall", "--json"])
        .ok()
        .json();
    assert!(tuned["max_error"].as_f64().unwrap() <= 1e-4);
    assert!(tuned["tuned"].as_u64().unwrap() > 0);
    assert_eq!(tuned["kernels"], plain["kernels"]);
    // The comparison can fail: other output, and a tolerance that nothing meets.
    let mut other = std::fs::read(&y).unwrap();
    let last = other.len() - 1;
    other[last] ^= 0x40;
    p.file("other.npy", &other);
    let wrong = p.squall(&["check", &model, "--input", &x, "--expect", "other.npy"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.out.contains("WRONG"), "{}", wrong.out);
    let strict =
        p.squall(&["check", &model, "--input", &x, "--expect", &y, "--tolerance", "0", "--json"]);
    assert_eq!((strict.code, strict.json()["right"].as_bool()), (Some(1), Some(false)));
}

#[test]
fn bad_arrays_and_models_without_weights_are_errors() {
    let Some(folder) = squall_testing::shared("models") else { return };
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (model, x, y) = (
        file("tiny_residual.onnx"),
        file("tiny_residual_input.npy"),
        file("tiny_residual_output.npy"),
    );
    let p = Place::new();
    p.file("bad.npy", "not an array");
    assert!(
        p.squall(&["check", &model, "--input", "bad.npy", "--expect", &y])
            .fails()
            .err
            .contains("bad.npy")
    );
    assert!(
        p.squall(&["check", &model, "--input", &y, "--expect", &y]).fails().err.contains("shape")
    );
    assert!(
        p.squall(&["check", &model, "--input", &x, "--expect", &x]).fails().err.contains("shape")
    );
    p.squall(&["check", "matmul m=4 n=4 k=4", "--input", &x, "--expect", &y]).fails();
}

#[test]
fn a_model_is_tuned_under_one_budget_and_exported() {
    let Some(folder) = squall_testing::shared("models") else { return };
    let model = folder.join("tiny_residual.onnx").to_string_lossy().into_owned();
    let p = Place::new();
    let report = p.squall(&["tune", &model, "--trials", "40", "--json"]).ok().json();
    assert_eq!(report["total"]["trials"], 40);
    let tasks = report["tasks"].as_array().unwrap();
    let listed = p.squall(&["tasks", &model, "--json"]).ok().json();
    assert_eq!(tasks.len(), listed["tasks"].as_array().unwrap().len());
    for (a, b) in tasks.iter().zip(listed["tasks"].as_array().unwrap()) {
        for key in ["id", "name", "count", "flop"] {
            assert_eq!(a[key], b[key]);
        }
    }
    assert!(report["total"]["gain"].as_f64().unwrap() > 1.0);
    p.squall(&["export", &model, "--out", "k", "--build"]).ok();
    let driver =
        std::process::Command::new(p.path().join("k/driver")).arg("--check").output().unwrap();
    assert!(driver.status.success(), "{}", String::from_utf8_lossy(&driver.stdout));
}

/// Without known outputs a model is held against its own operators, on hard inputs too.
#[test]
fn a_model_is_held_against_its_own_operators() {
    let p = Place::new();
    let softened = Build::new(18)
        .input("x", &[3, 17])
        .input("y", &[17])
        .node("Add", &["x", "y"], &["sum"], &[])
        .node("Relu", &["sum"], &["r"], &[])
        .node("Softmax", &["r"], &["out"], &[])
        .output("out");
    p.file("softened.onnx", softened.bytes());
    let c = p.squall(&["check", "softened.onnx", "--json"]).ok().json();
    assert_eq!((&c["right"], &c["against"]), (&true.into(), &"plain loops".into()), "{c}");
    assert_eq!((&c["runs"], &c["elements"]), (&3.into(), &(3 * 51).into()), "{c}");
    let strict = p.squall(&["check", "softened.onnx", "--tolerance", "0"]);
    assert_eq!(strict.code, Some(1), "the loops compute in double precision: {}", strict.out);
    assert!(strict.out.contains("WRONG against plain loops"), "{}", strict.out);
    // Whole numbers have no hard values.
    let whole =
        Build::new(18).input_of("a", 7, &[5]).node("Add", &["a", "a"], &["b"], &[]).output("b");
    p.file("whole.onnx", whole.bytes());
    let c = p.squall(&["check", "whole.onnx", "--json"]).ok().json();
    assert_eq!((&c["right"], &c["runs"]), (&true.into(), &1.into()), "{c}");
}

/// Values of onnxruntime 1.32, which PyTorch's `grid_sample` agrees with.
#[test]
fn a_cubic_sample_at_a_border_brings_its_pixels_inside_one_by_one() {
    let p = Place::new();
    let sampled = Build::new(22)
        .input("x", &[2, 1, 1, 2])
        .input("grid", &[2, 1, 1, 2])
        .node(
            "GridSample",
            &["x", "grid"],
            &["y"],
            &[text("mode", "cubic"), text("padding_mode", "border")],
        )
        .output("y");
    p.file("sampled.onnx", sampled.bytes());
    let x = f32s(&[2, 1, 1, 2], &[-1.794_807_4, -3.292_602_5, -2.250_320_4, 3.0]);
    let grid = f32s(&[2, 1, 1, 2], &[1.190_170_6, 0.601_935_3, -0.398_064_7, 0.896_052_96]);
    let want = f32s(&[2, 1, 1, 1], &[-3.367_026_8, -1.810_792_1]);
    std::fs::create_dir(p.path().join("data")).expect("made");
    for (name, value, tensor) in
        [("input_0", "x", x), ("input_1", "grid", grid), ("output_0", "y", want)]
    {
        p.file(&format!("data/{name}.pb"), stored(value, &tensor));
    }
    let c = p.squall(&["check", "sampled.onnx", "--test-data", "data", "--json"]).ok().json();
    assert_eq!(c["right"], true, "{c}");
}

/// Values of onnxruntime 1.32 for the first three regions; the others have a billion samples along
/// an axis, nearly all outside of the image, or are no numbers.
#[test]
fn regions_far_larger_than_their_image_end_at_once() {
    let p = Place::new();
    let attributes = |mode| [text("mode", mode), int("output_height", 2), int("output_width", 2)];
    let model = Build::new(16)
        .input("x", &[1, 1, 4, 4])
        .input("r", &[5, 4])
        .init("b", i64s(&[5], &[0; 5]))
        .node("RoiAlign", &["x", "r", "b"], &["mean"], &attributes("avg"))
        .node("RoiAlign", &["x", "r", "b"], &["most"], &attributes("max"))
        .init("around", f32s(&[1, 4], &[-1e9, -1e9, 1e9, 1e9]))
        .init("image", i64s(&[1], &[0]))
        .node("RoiAlign", &["x", "around", "image"], &["all"], &attributes("avg"))
        .output("mean")
        .output("most")
        .output("all");
    p.file("regions.onnx", model.bytes());
    let x: Vec<f32> = (0..16).map(|i| (i * 7 % 11) as f32 * 0.5 - 1.5).collect();
    let (far, none) = (1e9, f32::NAN);
    #[rustfmt::skip]
    let regions = [
        0.3, 0.2, 3.1, 2.7, -6.0, -5.0, 9.0, 3.5, 0.0, 0.0, 40.0, 30.0,
        0.0, 0.0, far, far, none, none, none, none,
    ];
    #[rustfmt::skip]
    let mean = [
        0.33125, 1.236875, 0.64375, 1.236562, 0.0, 0.0,
        0.03521485, 0.5179101, 0.09833334, 0.0, 0.0, 0.0,
        0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    ];
    #[rustfmt::skip]
    let most = [
        1.67875, 1.434375, 1.885937, 1.659375, 0.0, 0.0,
        1.3125, 3.5, 3.5, 0.0, 0.0, 0.0,
        3.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    ];
    std::fs::create_dir(p.path().join("data")).expect("made");
    for (name, value, tensor) in [
        ("input_0", "x", f32s(&[1, 1, 4, 4], &x)),
        ("input_1", "r", f32s(&[5, 4], &regions)),
        ("output_0", "mean", f32s(&[5, 1, 2, 2], &mean)),
        ("output_1", "most", f32s(&[5, 1, 2, 2], &most)),
        ("output_2", "all", f32s(&[1, 1, 2, 2], &[0.0; 4])),
    ] {
        p.file(&format!("data/{name}.pb"), stored(value, &tensor));
    }
    let c = p.squall(&["check", "regions.onnx", "--test-data", "data", "--json"]).ok().json();
    assert_eq!(c["right"], true, "{c}");
}
