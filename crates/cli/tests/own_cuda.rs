//! Tests of users' own CUDA kernels (kernel.toml) on an emulated GPU: `squall init --cuda`, tuning,
//! export, several devices, faults, and error messages for wrong files.

use crate::support;
use squall_testing::emulator as emulated;

use emulated::emulator;
use serde_json::Value;
use support::{Place, Ran};

/// Runs with an emulated GPU, or several.
fn on_gpu(p: &Place, args: &[&str], more: &[(&str, &str)]) -> Option<Ran> {
    let mut c = p.command(args);
    c.envs(emulator()?).envs(more.iter().copied());
    Some(c.output().unwrap().into())
}

fn trials(ran: &Ran) -> Vec<Value> {
    let lines = ran.out.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    lines.filter_map(|l| l.get("trial").cloned()).collect()
}

#[test]
fn what_init_writes_is_tuned_and_exported() {
    let p = Place::new();
    let said = p.squall(&["init", "--cuda"]).ok();
    assert!(said.out.contains("--target cuda"), "{}", said.out);
    let args =
        ["tune", "kernel.toml", "--only", "small", "--trials", "6", "--target", "cuda", "--json"];
    let Some(ran) = on_gpu(&p, &args, &[]) else { return };
    // Bounds are those of the device that the kernels run on.
    let bound = |ran: &Ran| {
        let line =
            ran.out.lines().find(|l| l.contains("axpy_small")).expect("the task").to_string();
        line.split_whitespace().last().expect("columns").to_string()
    };
    let here = p.squall(&["tasks", "kernel.toml"]).ok();
    assert_eq!(bound(&here), "-", "{}", here.out);
    assert!(
        here.err.contains("kernel in CUDA") && here.err.contains("--target cuda"),
        "{}",
        here.err
    );
    let there = on_gpu(&p, &["tasks", "kernel.toml", "--target", "cuda"], &[]).unwrap().ok();
    assert!(bound(&there).parse::<f64>().is_ok_and(|b| b > 0.0), "{}", there.out);
    let t = ran.ok().json()["tasks"][0].clone();
    assert_eq!(
        (t["name"].as_str(), &t["trials"], &t["failed"]),
        (Some("axpy_small"), &6.into(), &0.into()),
        "{t}"
    );
    let shown = p.squall(&["records", "show", "--kind", "trial", "--json"]).ok().json();
    let gpu = &shown["records"][0]["outcome"]["measured"]["gpu"];
    assert_eq!(
        (&gpu["device"], &gpu["sm_mhz"], &gpu["throttle"]),
        (&0.into(), &1000.into(), &0.into()),
        "{shown}"
    );
    on_gpu(
        &p,
        &["export", "kernel.toml", "--only", "small", "--target", "cuda", "--out", "out"],
        &[],
    )
    .unwrap()
    .ok();
    let read = |name: &str| std::fs::read_to_string(p.path().join("out").join(name)).unwrap();
    let manifest: Value = serde_json::from_str(&read("manifest.json")).unwrap();
    let k = &manifest["kernels"][0];
    assert_eq!(k["launches"][0]["arguments"].as_array().unwrap().len(), 4, "{k}");
    let source = read(k["source"].as_str().unwrap());
    for part in [
        "cudaLaunchKernel",
        "{'r', 0, 1, 16384, {0}}",
        "_gpu_own<",
        "#define axpy squall_axpy_small_",
    ] {
        assert!(source.contains(part), "{part} in\n{source}");
    }
    assert!(
        read("Makefile").contains("ARCH = -gencode=arch=compute_")
            && read("kernels.c").contains("_reference, NULL},")
            && read("kernels.c").contains("#define SQUALL_CUDA")
    );
    let fails = on_gpu(&p, &["tune", "kernel.toml", "--trials", "1"], &[]).unwrap().fails();
    assert!(
        fails.err.contains("which no CPU runs") && fails.err.contains("--target cuda"),
        "{}",
        fails.err
    );
}

#[test]
fn the_examples_are_right() {
    let p = Place::new();
    for (example, only) in [("convolution", "small"), ("matmul", "64x"), ("stencil", "small")] {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kernels/cuda/").to_string()
            + example
            + "/kernel.toml";
        let args =
            ["tune", file.as_str(), "--only", only, "--trials", "3", "--target", "cuda", "--json"];
        let Some(ran) = on_gpu(&p, &args, &[]) else { return };
        let t = ran.ok().json()["tasks"][0].clone();
        assert_eq!((&t["trials"], &t["failed"]), (&3.into(), &0.into()), "{t}");
        assert!(t["limited_by"].is_string() && t["throttled"] == 0, "{t}");
    }
}

#[test]
fn throttling_is_said() {
    let p = Place::new();
    p.squall(&["init", "--cuda"]).ok();
    let args = ["tune", "kernel.toml", "--only", "small", "--trials", "2", "--target", "cuda"];
    let Some(ran) = on_gpu(&p, &args, &[("EMULATED_THROTTLE", "36")]) else { return };
    let ran = ran.ok();
    assert!(
        ran.out.contains(
            "2 of 2 trials were timed while the GPU was slowed down: power cap, heat, by software"
        ),
        "{}",
        ran.out
    );
}

#[test]
fn several_devices_measure_side_by_side() {
    let p = Place::new();
    p.squall(&["init", "--cuda"]).ok();
    let args = [
        "tune",
        "kernel.toml",
        "--only",
        "small",
        "--trials",
        "24",
        "--target",
        "cuda:all",
        "--json",
    ];
    let Some(ran) = on_gpu(&p, &args, &[("EMULATED_GPUS", "3")]) else { return };
    let ran = ran.ok();
    assert_eq!((trials(&ran).len(), &ran.json()["tasks"][0]["failed"]), (24, &0.into()));
    assert!(ran.err.contains("3 side by side"), "{}", ran.err);
    let shown = p.squall(&["records", "show", "--kind", "trial", "--json"]).ok().json();
    let device = |r: &Value| r["outcome"]["measured"]["gpu"]["device"].as_u64().unwrap();
    let mut devices: Vec<u64> = shown["records"].as_array().unwrap().iter().map(device).collect();
    devices.sort_unstable();
    devices.dedup();
    assert_eq!(devices, [0, 1, 2]);
    // The same command on one device goes on with the same records.
    let args =
        ["tune", "kernel.toml", "--only", "small", "--trials", "1", "--target", "cuda", "--json"];
    assert_eq!(on_gpu(&p, &args, &[]).unwrap().ok().json()["tasks"][0]["known"], 24);
}

#[test]
fn the_device_decides_which_choices_are_left() {
    let p = Place::new();
    p.file(
        "k.cu",
        "__global__ void same(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }\n",
    );
    p.file(
        "k.toml",
        "source = \"k.cu\"\nentry = \"same\"\ngrid = 1\nblock = 32\nconstraints = [\"capability \
         >= 80 or NEW == 0\", \"SIZE <= multiprocessors\"]\n\
         argument = [{ name = \"x\", type = \"f32\", shape = [32] }, { name = \"y\", type \
         = \"f32\", role = \"output\", shape = [32] }]\n\
         knob = [{ name = \"NEW\", values = [0, 1] }, { name = \"SIZE\", values = [2, 4, 8] }]\n",
    );
    for (capability, left) in [("75", 2), ("90", 4)] {
        let args = [
            "tune", "k.toml", "--trials", "50", "--target", "cuda", "--json", "--store", capability,
        ];
        let Some(ran) = on_gpu(&p, &args, &[("EMULATED_CAPABILITY", capability)]) else { return };
        let t = ran.ok().json()["tasks"][0].clone();
        assert_eq!((&t["trials"], t["stop"].as_str()), (&left.into(), Some("exhausted")), "{t}");
    }
}

#[test]
fn faults_lose_nothing() {
    let p = Place::new();
    p.file(
        "f.cu",
        "extern \"C\" __global__ void twice(const float *x, float *y) {\n  int i = threadIdx.x;\n\
         #if FAULT == 1\n  y[(long long)(i + 1) << 36] = 0;\n\
         #elif FAULT == 2\n  __trap();\n#elif FAULT == 3\n  return;\n#elif FAULT == 4\n  y[64 + \
         i] = 0;\n#elif FAULT == 5\n  no such thing;\n#endif\n  y[i] = 2 * x[i];\n}\n",
    );
    p.file(
        "f.c",
        "void plain(const float *x, float *y) { for (int i = 0; i < 64; i++) y[i] = 2 * x[i]; }\n",
    );
    p.file(
        "f.toml",
        "source = \"f.cu\"\nentry = \"twice\"\ngrid = [1]\nblock = [64]\n\
         argument = [{ name = \"x\", type = \"f32\", shape = [64] }, { name = \"y\", type \
         = \"f32\", role = \"output\", shape = [64] }]\n\
         knob = [{ name = \"FAULT\", values = [0, 1, 2, 3, 4, 5] }, { name = \"SALT\", range = \
         [0, 3] }]\n\
         reference = { source = \"f.c\", entry = \"plain\" }\n",
    );
    let Some(ran) =
        on_gpu(&p, &["tune", "f.toml", "--trials", "24", "--target", "cuda", "--json"], &[])
    else {
        return;
    };
    let ran = ran.ok();
    let expected = ["measured", "launch", "launch", "wrong_answer", "wrong_answer", "build"];
    let all = trials(&ran);
    assert_eq!(all.len(), 24);
    for t in &all {
        let fault: usize = t["configuration"].as_str().unwrap()[6..7].parse().unwrap();
        assert_eq!(t["outcome"], expected[fault], "{t}");
    }
    assert_eq!(p.identities().len(), 24);
    assert!(
        ran.json()["tasks"][0]["best"]["configuration"].as_str().unwrap().starts_with("FAULT=0")
    );
}
