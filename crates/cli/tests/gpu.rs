//! Tests of `--target cuda`: the message where there is no GPU, a small tuning where there is one,
//! and, on an emulated GPU (`measure/tests/emulator`), Squall's generated CUDA kernels, whole
//! models and exported libraries.

use crate::support;
use squall_testing::emulator as emulated;

use squall_testing::onnx::{Build, f32s, i64s, int, text};
use std::path::Path;
use support::{Place, example};

#[test]
fn a_gpu_is_tuned_for_or_its_absence_explained() {
    let p = Place::new();
    let ran = p.squall(&[
        "tune",
        "softmax rows=8 cols=256",
        "--trials",
        "4",
        "--target",
        "cuda",
        "--json",
    ]);
    if ran.code == Some(0) {
        assert_eq!(ran.json()["tasks"][0]["trials"], 4);
        return;
    }
    println!("skipped: {}", ran.err);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(
        ran.err.contains("CUDA cannot be used: ") && !ran.err.contains("panicked"),
        "{}",
        ran.err
    );
}

#[test]
fn a_target_that_is_none_is_refused() {
    let p = Place::new();
    let ran = p.squall(&["tune", "softmax rows=8 cols=256", "--trials", "4", "--target", "cuda:x"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("expected `cpu`, `cuda`, `cuda:N`"), "{}", ran.err);
}

#[test]
fn whole_models_run_on_a_gpu_or_its_absence_is_explained() {
    let p = Place::new();
    let (model, x) = (example("small_net.onnx"), example("small_net_input.npy"));
    let args = ["run", &model, "--input", &x, "--output", "y.npy", "--target", "cuda"];
    let ran = p.command(&args).env("SQUALL_LIBCUDA", "/nowhere/libcuda.so").output().unwrap();
    let ran = support::Ran::from(ran).fails();
    assert!(ran.err.contains("CUDA cannot be used: no NVIDIA driver"), "{}", ran.err);
    let args = ["export", &model, "--network", "n", "--out", "o", "--target", "cuda"];
    let ran = p.command(&args).env("SQUALL_LIBCUDA", "/nowhere/libcuda.so").output().unwrap();
    let ran = support::Ran::from(ran).fails();
    assert!(ran.err.contains("CUDA cannot be used: no NVIDIA driver"), "{}", ran.err);
}

/// What a program over CUDA's driver needs of cuda.h, as the emulator has it.
const CUDA_H: &str = "\
#include <stddef.h>
#include <stdint.h>
typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef void *CUcontext, *CUstream, *CUevent, *CUgraph, *CUgraphExec;
enum { CUDA_SUCCESS, CU_EVENT_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
#define cuMemAlloc cuMemAlloc_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuStreamBeginCapture cuStreamBeginCapture_v2
CUresult cuInit(unsigned), cuDeviceGet(CUdevice *, int), cuCtxSetCurrent(CUcontext);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice), cuMemAlloc(CUdeviceptr *, size_t);
CUresult cuGetErrorString(CUresult, const char **);
CUresult cuMemcpyHtoD(CUdeviceptr, const void *, size_t);
CUresult cuMemcpyDtoH(void *, CUdeviceptr, size_t);
CUresult cuStreamCreate(CUstream *, unsigned), cuStreamSynchronize(CUstream);
CUresult cuStreamBeginCapture(CUstream, int), cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphDestroy(CUgraph), cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuEventCreate(CUevent *, unsigned), cuEventRecord(CUevent, CUstream);
CUresult cuEventSynchronize(CUevent), cuEventElapsedTime(float *, CUevent, CUevent);
";

/// The driver that programs in a library's folder are linked with: the emulated one.
fn put_driver(lib: &Path, emulated: &Path) {
    for folder in ["include", "lib64"] {
        std::fs::create_dir(lib.join(folder)).unwrap();
    }
    std::fs::write(lib.join("include/cuda.h"), CUDA_H).unwrap();
    std::fs::copy(emulated, lib.join("lib64/libcuda.so")).unwrap();
}

/// The libraries that are linked with a library for a GPU.
const PLACES: &str = include_str!("library/gpu_places.c");

/// Kernels read and write a caller's tensors where they lie in device memory, if they may, with the
/// bits of copies.
#[test]
fn tensors_in_device_memory_are_copied_only_where_they_must_be() {
    let Some(gpu) = emulated::emulator() else { return };
    let p = Place::new();
    let weights: Vec<f32> = (0..32 * 16).map(|i| (i % 7 - 3) as f32 / 8.0).collect();
    let model = Build::new(20)
        .input("x", &[4, 32])
        .input("z", &[4, 32])
        .init("w", f32s(&[32, 16], &weights))
        .node("Add", &["x", "z"], &["s"], &[])
        .node("MatMul", &["s", "w"], &["m"], &[])
        .node("Softmax", &["m"], &["p"], &[])
        .node("Concat", &["x", "s"], &["c"], &[int("axis", 1)])
        .node("Identity", &["z"], &["k"], &[])
        .output("m")
        .output("p")
        .output("c")
        .output("k")
        .bytes();
    p.file("model.onnx", &model);
    let args = ["export", "model.onnx", "--network", "net", "--out", "lib", "--build"];
    let args = [&args[..], &["--target", "cuda"]].concat();
    support::Ran::from(p.command(&args).envs(gpu.clone()).output().unwrap()).ok();
    let lib = p.path().join("lib");
    put_driver(&lib, &gpu[0].1);
    std::fs::write(lib.join("places.c"), PLACES).unwrap();
    let run = |words: &str| {
        let mut words = words.split(' ');
        let mut command = std::process::Command::new(words.next().unwrap());
        let command = command.args(words).current_dir(&lib);
        let ran = command.env("LD_LIBRARY_PATH", lib.join("lib64")).output().unwrap();
        support::Ran::from(ran).ok().out
    };
    run(
        "cc -std=gnu11 -Wall -Wextra -Werror -O1 -Iinclude -I. -o places places.c libnet.a -Llib64 \
         -lcuda -ldl",
    );
    assert_eq!(run("./places"), "54 equal\n");
}

/// A library for a GPU is built without Squall and without CUDA, and gives the bits of `run`.
#[test]
fn a_library_for_a_gpu_runs_on_a_stream_of_the_callers() {
    if squall_testing::is_left_to_full("gpu::a_library_for_a_gpu_runs_on_a_stream_of_the_callers") {
        return;
    }
    let Some(gpu) = emulated::emulator() else { return };
    let p = Place::new();
    let (model, x) = (example("small_net.onnx"), example("small_net_input.npy"));
    let args = ["--network", "net", "--out", "lib", "--build", "--target", "cuda", "--json"];
    let args = [&["export", &model][..], &args[..]].concat();
    let said = support::Ran::from(p.command(&args).envs(gpu.clone()).output().unwrap()).ok().json();
    assert_eq!((&said["name"], &said["architecture"]), (&"net".into(), &"sm_75".into()), "{said}");
    let args = ["run", &model, "--input", &x, "--output", "y.npy", "--target", "cuda"];
    support::Ran::from(p.command(&args).envs(gpu.clone()).output().unwrap()).ok();
    let lib = p.path().join("lib");
    put_driver(&lib, &gpu[0].1);
    let put = |name: &str, bytes: &[u8]| std::fs::write(lib.join(name), bytes).unwrap();
    let bytes = std::fs::read(&x).unwrap();
    let elements = said["inputs"][0]["bytes"].as_u64().unwrap() as usize;
    put("x.bin", &bytes[bytes.len() - elements..]);
    let mut make = std::process::Command::new("make");
    let made = make.args(["example", "CUDA=.", "CFLAGS=-Werror"]).current_dir(&lib).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let run = |weights: &str| {
        std::process::Command::new(lib.join("example"))
            .args(["--weights", weights, "--runs", "2", "x.bin"])
            .current_dir(&lib)
            .env("LD_LIBRARY_PATH", lib.join("lib64"))
            .output()
            .unwrap()
    };
    let ran = run("net.weights");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let (got, want) = (
        std::fs::read(lib.join("output_0.bin")).unwrap(),
        std::fs::read(p.path().join("y.npy")).unwrap(),
    );
    assert_eq!(got, want[want.len() - got.len()..]);
    // What is no file of this network's is refused.
    let mut cut = std::fs::read(lib.join("net.weights")).unwrap();
    cut[24] ^= 1;
    put("other.weights", &cut);
    for (file, why) in [("nothing", "cannot be opened"), ("other.weights", "cut or changed")] {
        let ran = run(file);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(!ran.status.success() && said.contains(why), "{said}");
    }
}

#[test]
fn a_whole_model_is_run_checked_and_timed_on_an_emulated_gpu() {
    let Some(gpu) = emulated::emulator() else { return };
    let p = Place::new();
    let (model, x) = (example("small_net.onnx"), example("small_net_input.npy"));
    let run = |args: &[&str]| {
        let args = [args, &["--target", "cuda", "--json"]].concat();
        support::Ran::from(p.command(&args).envs(gpu.clone()).output().unwrap()).ok().json()
    };
    let checked =
        run(&["check", &model, "--input", &x, "--expect", &example("small_net_output.npy")]);
    assert_eq!((&checked["right"], checked["guessed"].as_u64() > Some(0)), (&true.into(), true));
    assert_eq!(checked["fallbacks"], serde_json::json!([]), "generated kernels are right");
    let lost = run(&["check", &model, "--precision", "bf16"]);
    assert_eq!(lost["loss"]["precision"], "bf16", "{lost}");
    let relative = lost["loss"]["relative"].as_f64();
    assert!(relative.is_some_and(|r| r > 1e-5 && r < 0.05), "{lost}");
    let timed = run(&["bench", &model, "--input", &x, "--seconds", "0.01"]);
    for times in [&timed, &timed["device"], &timed["host_to_host"]] {
        assert!(times["best_ns"].as_u64() > Some(0), "{timed}");
    }
    let shares = timed["layers"].as_array().unwrap().iter().map(|l| l["share"].as_f64().unwrap());
    assert!((shares.sum::<f64>() - 1.0).abs() < 1e-6, "{timed}");
    // No naive loops where a sketch is.
    assert_eq!(timed["plain"], 0, "{timed}");
}

/// Moves and plain operators are held against plain C at their first use: what a compiler makes
/// wrong is said, and runs as built without its optimiser where that is right.
#[test]
fn generated_kernels_that_a_compiler_makes_wrong_are_found() {
    let Some(gpu) = emulated::emulator() else { return };
    let attributes = [text("mode", "bilinear"), text("padding_mode", "zeros")];
    let model = Build::new(20)
        .input("x", &[1, 2, 5, 6])
        .input("g", &[1, 4, 3, 2])
        .node("GridSample", &["x", "g"], &["s"], &attributes)
        .node("Concat", &["s", "s"], &["y"], &[int("axis", 1)])
        .output("y")
        .bytes();
    // Floors are off by one as the optimiser makes them, or whatever is built.
    const FAULT: &str = "floorf(x) (floorf(x) + 1)";
    let always = &[("EMULATED_FAULT", FAULT), ("EMULATED_FAULT_STAYS", "1")][..];
    for (faults, says, is_right) in [
        (&always[..1], "it runs as built with --ptxas-options=-O0", true),
        (always, "differs from plain C: element", false),
    ] {
        // Other tests' compiler has no fault.
        let p = Place::that_compiles_all();
        p.file("model.onnx", &model);
        // The second time the verdict is known.
        for _ in 0..2 {
            let mut command = p.command(&["check", "model.onnx", "--target", "cuda", "--json"]);
            let ran = command.envs(gpu.clone()).envs(faults.iter().copied()).output().unwrap();
            let ran = support::Ran::from(ran);
            let said = ran.json();
            assert_eq!(said["right"], is_right, "{said}");
            let [fallback] = &said["fallbacks"].as_array().unwrap()[..] else { panic!("{said}") };
            let fallback = fallback.as_str().unwrap();
            assert!(fallback.contains(says) && fallback.contains("`GridSample_0`"), "{said}");
        }
    }
}

/// Memory behind the true extents of a bounded result is as it was, on either side.
#[test]
fn generated_kernels_of_bounded_operators_are_compared_as_far_as_their_results_go() {
    let Some(gpu) = emulated::emulator() else { return };
    let model = Build::new(20)
        .input("boxes", &[1, 6, 4])
        .input("scores", &[1, 1, 6])
        .init("most", i64s(&[1], &[4]))
        .init("overlap", f32s(&[1], &[0.1]))
        .node("NonMaxSuppression", &["boxes", "scores", "most", "overlap"], &["y"], &[])
        .output("y")
        .bytes();
    let p = Place::that_compiles_all();
    p.file("model.onnx", &model);
    let mut command = p.command(&["check", "model.onnx", "--target", "cuda", "--json"]);
    let said = support::Ran::from(command.envs(gpu).output().unwrap()).json();
    assert_eq!((&said["right"], &said["fallbacks"]), (&true.into(), &serde_json::json!([])));
}

/// A file's kernels tuned by so many trials each on an emulated GPU of a capability.
fn tuned(
    p: &Place,
    gpu: &[(&'static str, std::path::PathBuf)],
    file: &str,
    trials: &str,
    capability: &str,
) -> support::Ran {
    let args = ["tune", file, "--trials", trials, "--target", "cuda", "--json"];
    let mut c = p.command(&[&args[..], &["--store", capability]].concat());
    let gpu = gpu.iter().map(|(name, value)| (name, value));
    let ran = c.envs(gpu).env("EMULATED_CAPABILITY", capability).output().unwrap();
    support::Ran::from(ran).ok()
}

/// Two heads that lie between others, with a mask: one launch, right as it is printed.
#[test]
fn attention_is_one_kernel_and_right_as_it_is_printed() {
    let Some(gpu) = emulated::emulator() else { return };
    let p = Place::new();
    p.file(
        "heads.workload",
        "workload attention\ndata Q: f32[37, 2, 16] of [37, 6, 16]\ndata K: f32[41, 2, 16] of \
         [41, 6, 16]\ndata M: f32[41]\ndata V: f32[41, 2, 16] of [41, 6, 16]\nstage T: f32[b: 2, \
         m: 37, n: 41] = sum(k: 16) Q[m, b, k] * K[n, b, k]\nstage S: f32[b: 2, m: 37, n: 41] = \
         T[b, m, n] * 0.25 + M[n]\nstage X: f32[b: 2, m: 37] = max(n: 41) S[b, m, n]\nstage E: \
         f32[b: 2, m: 37, n: 41] = exp(S[b, m, n] - X[b, m])\nstage D: f32[b: 2, m: 37] = sum(n: \
         41) E[b, m, n]\nstage O: f32[m: 37, b: 2, c: 16] = sum(n: 41) E[b, m, n] * V[n, b, c]\n\
         stage Y: f32[m: 37, b: 2, c: 16] = O[m, b, c] / D[b, m]\noutput Y\n",
    );
    // The same in 16 bits, densely: what is fetched at once is half as many bytes.
    p.file(
        "short.workload",
        "workload attention\ndata Q: bf16[2, 37, 16]\ndata K: bf16[2, 16, 40]\ndata V: bf16[2, 40, \
         16]\nstage S: f32[b: 2, m: 37, n: 40] = sum(k: 16) Q[b, m, k] * K[b, k, n]\nstage X: \
         f32[b: 2, m: 37] = max(n: 40) S[b, m, n]\nstage E: f32[b: 2, m: 37, n: 40] = exp(S[b, m, \
         n] - X[b, m])\nstage D: f32[b: 2, m: 37] = sum(n: 40) E[b, m, n]\nstage O: f32[b: 2, m: \
         37, c: 16] = sum(n: 40) E[b, m, n] * V[b, n, c]\nstage Y: bf16[b: 2, m: 37, c: 16] = O[b, \
         m, c] / D[b, m]\noutput Y\n",
    );
    // Whole rows of 64 elements, as warpgroups multiply them; tiles run over the last row and key.
    p.file(
        "wide.workload",
        "workload attention\ndata Q: f16[70, 64]\ndata K: f16[83, 64]\ndata V: f16[83, 64]\nstage \
         S: f32[m: 70, n: 83] = sum(k: 64) Q[m, k] * K[n, k]\nstage X: f32[m: 70] = max(n: 83) \
         S[m, n]\nstage E: f32[m: 70, n: 83] = exp(S[m, n] - X[m])\nstage D: f32[m: 70] = sum(n: \
         83) E[m, n]\nstage O: f32[m: 70, c: 64] = sum(n: 83) E[m, n] * V[n, c]\nstage Y: \
         f16[m: 70, c: 64] = O[m, c] / D[m]\noutput Y\n",
    );
    for (file, sketch, capability) in [
        ("heads.workload", "gpu_attention", "90"),
        ("heads.workload", "gpu_attention", "75"),
        ("short.workload", "gpu_attention", "90"),
        ("short.workload", "gpu_attention_tensor", "80"),
        ("wide.workload", "gpu_attention_tensor", "90"),
        ("wide.workload", "gpu_attention_warpgroup", "90"),
    ] {
        let args = [
            "tune", file, "--sketch", sketch, "--trials", "4", "--target", "cuda", "--store",
            sketch, "--json",
        ];
        let mut command = p.command(&args);
        let command = command.envs(gpu.clone()).env("EMULATED_CAPABILITY", capability);
        let ran = support::Ran::from(command.output().unwrap()).ok();
        let task = &ran.json()["tasks"][0];
        assert_eq!((&task["failed"], &task["trials"]), (&0.into(), &4.into()), "{task}");
        // Which of them is fastest under an emulator says nothing, and a name stands for all that
        // begin with it.
        let lines = ran.out.lines().filter(|l| l.starts_with("{\"trial\""));
        let made = lines.filter(|l| l.contains(&format!("\"tunable\":\"{sketch}"))).count();
        assert_eq!(made, 4, "{}", ran.out);
    }
}

/// An inverted residual of two images, the channels between split over the blocks of a cluster
/// where the device has those: one launch, right as it is printed.
#[test]
fn an_inverted_residual_is_one_kernel_and_right_as_it_is_printed() {
    if squall_testing::is_left_to_full(
        "gpu::an_inverted_residual_is_one_kernel_and_right_as_it_is_printed",
    ) {
        return;
    }
    let Some(gpu) = emulated::emulator() else { return };
    let p = Place::new();
    p.file(
        "block.workload",
        "workload separable_conv2d\ndata X: f32[2, 6, 9, 7]\nweight W: f32[32, 6, 1, \
         1]\nweight B: f32[32]\nweight D: f32[32, 1, 3, 3]\nweight W1: f32[8, 32, 1, \
         1]\ndata R: f32[2, 8, 5, 4]\nstage C: f32[n: 2, k: 32, p: 9, q: 7] = sum(c: 6) \
         X[n, c, p, q] * W[k, c, 0, 0]\nstage E: f32[n: 2, k: 32, p: 9, q: 7] = max(C[n, \
         k, p, q] + B[k], 0)\nstage P: f32[n: 2, c: 32, h: 11, w: 9] = select(0 <= h - 1 \
         < 9 and 0 <= w - 1 < 7, E[n, c, h - 1, w - 1], 0)\nstage C1: f32[n: 2, k: 32, p: \
         5, q: 4] = sum(r: 3, s: 3) P[n, k, 2*p + r, 2*q + s] * D[k, 0, r, s]\nstage E1: \
         f32[n: 2, k: 32, p: 5, q: 4] = max(C1[n, k, p, q], 0)\nstage C2: f32[n: 2, k: 8, \
         p: 5, q: 4] = sum(c: 32) E1[n, c, p, q] * W1[k, c, 0, 0]\nstage Y: f32[n: 2, k: \
         8, p: 5, q: 4] = C2[n, k, p, q] + R[n, k, p, q]\noutput Y\n",
    );
    for (capability, trials) in [("90", "12"), ("75", "4")] {
        let ran = tuned(&p, &gpu, "block.workload", trials, capability);
        let task = &ran.json()["tasks"][0];
        assert_eq!(task["failed"], 0, "{task}");
        // Which of them is fastest under an emulator says nothing.
        let lines = ran.out.lines().filter(|l| l.starts_with("{\"trial\""));
        let made = lines.filter(|l| l.contains("\"gpu_separable\"")).count();
        assert_eq!(made.to_string(), trials, "{}", ran.out);
    }
}

/// A convolution with its pooling, a hidden layer and a norm with its product: one launch each,
/// right as it is printed.
#[test]
fn operators_back_to_back_are_one_kernel_and_right_as_it_is_printed() {
    let Some(gpu) = emulated::emulator() else { return };
    let p = Place::new();
    let pooled = "workload back_to_back\ndata X: f32[1, 3, 9, 11]\nweight W: f32[8, 3, 3, \
                  3]\nstage P: f32[n: 1, c: 3, h: 11, w: 13] = select(0 <= h - 1 < 9 and 0 <= w \
                  - 1 < 11, X[n, c, h - 1, w - 1], 0)\nstage C: f32[n: 1, k: 8, p: 9, q: 11] = \
                  sum(c: 3, r: 3, s: 3) P[n, c, p + r, q + s] * W[k, c, r, s]\nstage E: f32[n: \
                  1, k: 8, p: 9, q: 11] = max(C[n, k, p, q], 0)\nstage Y: f32[n: 1, c: 8, p: 4, \
                  q: 5] = max(r: 3, s: 3) E[n, c, 2*p + r, 2*q + s]\noutput Y\n";
    let hidden = "workload back_to_back\ndata A: f32[13, 24]\nweight B: f32[24, 32]\nweight V: \
                  f32[32, 8]\nstage C: f32[m: 13, n: 32] = sum(k: 24) A[m, k] * B[k, n]\nstage \
                  E: f32[m: 13, n: 32] = erf(C[m, n])\nstage Y: f32[m: 13, n: 8] = sum(k: 32) \
                  E[m, k] * V[k, n]\noutput Y\n";
    let norm = "workload back_to_back\ndata X: f32[29, 48]\nweight W: f32[48, 32]\nstage S: \
                f32[i: 29] = sum(j: 48) X[i, j]\nstage D: f32[i: 29, j: 48] = X[i, j] - S[i] / \
                48\nstage V: f32[i: 29] = sum(j: 48) D[i, j] * D[i, j]\nstage E: f32[i: 29, j: \
                48] = D[i, j] / sqrt(V[i] / 48 + 1e-5)\nstage Y: f32[m: 29, n: 32] = sum(k: 48) \
                E[m, k] * W[k, n]\noutput Y\n";
    for (text, sketches) in [
        (pooled, &["gpu_separable"][..]),
        (hidden, &["gpu_separable"]),
        (norm, &["gpu_tile", "gpu_tensor_split"]),
    ] {
        p.file("both.workload", text);
        let ran = tuned(&p, &gpu, "both.workload", "8", "90");
        let task = &ran.json()["tasks"][0];
        let failures = task["failures"].as_array().unwrap();
        assert!(failures.iter().all(|f| f["stage"] == "infeasible"), "{task}");
        let lines = || ran.out.lines().filter(|l| l.starts_with("{\"trial\""));
        let of = |s: &&str| lines().filter(|l| l.contains(&format!("\"{s}\""))).count();
        assert_eq!(lines().count(), 8, "{}", ran.out);
        assert_eq!(sketches.iter().map(of).sum::<usize>(), 8, "{}", ran.out);
    }
}

#[test]
fn generated_kernels_are_right_as_they_are_printed() {
    let Some(gpu) = emulated::emulator() else { return };
    let p = Place::new();
    p.file(
        "kernels.ops",
        "split: conv2d n=1 c=24 h=7 w=7 k=32 r=3 s=3 stride=1 pad=1\n\
         bf16: conv2d n=1 c=16 h=6 w=6 k=32 r=3 s=3 stride=1 pad=1 epilogue=bias,relu dtype=bf16\n\
         f16: matmul m=40 n=64 k=64 dtype=f16\nrun: conv2d n=1 c=32 h=8 w=8 k=16 r=3 s=3 stride=1 \
         pad=1 dtype=tf32\ngroup: conv2d n=2 c=40 h=5 w=5 k=40 r=3 s=3 stride=1 pad=1 dtype=bf16\n\
         tf32: matmul m=32 n=36 k=40 dtype=tf32\nwindow: conv2d n=1 c=3 h=13 w=17 k=16 r=7 s=7 \
         stride=2 pad=3 dtype=tf32\nrows: softmax rows=4 cols=300\n",
    );
    for (capability, trials) in [("90", "6"), ("75", "2")] {
        let ran = tuned(&p, &gpu, "kernels.ops", trials, capability);
        for t in ran.json()["tasks"].as_array().unwrap() {
            // Some tiles do not fit; what was built is right.
            let failures = t["failures"].as_array().unwrap();
            assert!(
                failures.iter().all(|f| f["stage"] == "infeasible")
                    && t["failed"].as_u64() < Some(3),
                "{t}"
            );
        }
        let trials = ran.out.lines().filter_map(|l| {
            serde_json::from_str::<serde_json::Value>(l).ok()?.get("trial").cloned()
        });
        let algorithm = |t: serde_json::Value| {
            t["tunable"].as_str().unwrap().split(',').next().unwrap().to_string()
        };
        let tunables: std::collections::BTreeSet<String> = trials.map(algorithm).collect();
        let wanted: &[&str] = if capability == "90" {
            &[
                "gpu_rows",
                "gpu_tensor",
                "gpu_tensor_split",
                "gpu_tile",
                "gpu_warpgroup",
                "gpu_winograd",
            ]
        } else {
            &["gpu_rows", "gpu_tile", "gpu_winograd"]
        };
        assert!(wanted.iter().all(|w| tunables.contains(*w)), "{tunables:?}");
    }
}

/// Tensor maps on their way from a sketch through the launch to the driver, and the copies that
/// they are for: all of one small space with rows that run over the reduction's end, and some of
/// another.
#[test]
fn tiles_that_arrive_as_boxes_are_right() {
    if squall_testing::is_left_to_full("gpu::tiles_that_arrive_as_boxes_are_right") {
        return;
    }
    let Some(gpu) = emulated::emulator() else { return };
    let p = Place::new();
    for (sketch, line, boxed, least) in [
        ("gpu_warpgroup", "matmul m=64 n=64 k=72 dtype=f16", "copy=tma", 18),
        ("gpu_tensor", "matmul m=16 n=64 k=64 dtype=bf16", "copy=tma", 3),
    ] {
        let args = [
            "tune", line, "--sketch", sketch, "--trials", "60", "--target", "cuda", "--store",
            sketch, "--json",
        ];
        let ran: support::Ran = p
            .command(&args)
            .envs(gpu.clone())
            .env("EMULATED_CAPABILITY", "90")
            .output()
            .unwrap()
            .into();
        let ran = ran.ok();
        assert_eq!(ran.json()["tasks"][0]["failed"], 0, "{}", ran.out);
        let trials = ran.out.lines().filter_map(|l| {
            serde_json::from_str::<serde_json::Value>(l).ok()?.get("trial").cloned()
        });
        let boxes = trials.filter(|t| t["configuration"].as_str().unwrap().contains(boxed)).count();
        assert!(boxes >= least, "{sketch}: {boxes}");
    }
}

#[test]
fn strategies_are_compared_on_a_gpu() {
    let Some(gpu) = emulated::emulator() else { return };
    let p = Place::new();
    let line = "softmax rows=4 cols=300";
    let args = [
        "bench",
        "search",
        line,
        "--trials",
        "4",
        "--seeds",
        "1",
        "--strategies",
        "random,storm",
        "--target",
        "cuda",
        "--json",
    ];
    let ran: support::Ran = p.command(&args).envs(gpu).output().unwrap().into();
    let compared = ran.ok().json();
    assert_eq!(compared["device"], "cuda Emulated GPU", "{compared}");
    let runs = compared["runs"].as_array().unwrap();
    assert!(
        runs.len() == 2 && runs.iter().all(|r| r["trials"] == 4 && r["best_ns"].is_number()),
        "{compared}"
    );
}
