//! Tests of instruction levels (`--isa`): records of each level are separate, levels that the
//! machine lacks are refused, and an export of several levels runs the kernel that the CPU can run
//! (QEMU plays other CPUs).

use crate::support;

use serde_json::Value;
use squall::{Execution, Isa, runs};
use std::path::Path;
use std::process::{Command, Output};
use support::{Place, SMALL};

fn has(level: Isa) -> bool {
    runs(level.level()) == Execution::Here
}

/// A program's output under QEMU's model of a CPU; nothing, and the reason printed, where there is
/// no QEMU.
fn emulated(cpu: &str, program: &Path, args: &[&str]) -> Option<Output> {
    let done = Command::new("qemu-x86_64").args(["-cpu", cpu]).arg(program).args(args).output();
    done.map_err(|_| println!("skipped: there is no qemu-x86_64")).ok()
}

#[test]
fn records_of_a_level_are_its_own() {
    if !has(Isa::X86_64V3) {
        return println!("skipped: this is no machine of x86-64-v3");
    }
    let p = Place::new();
    p.squall(&["tune", SMALL, "--trials", "4", "--isa", "x86-64-v2"]).ok();
    let best = p.squall(&["records", "best", "--json"]).ok().json();
    let device = best["best"][0]["device"].as_str().unwrap();
    assert!(device.ends_with("16-byte vectors, 1 thread, x86-64-v2"), "{device}");
    let native = p.squall(&["export", SMALL, "--out", "native", "--json"]).ok().json();
    let of_v2 = &best["best"][0]["configuration"];
    assert_ne!(&native["kernels"][0]["configuration"], of_v2, "{native}");
    let v2 = ["export", SMALL, "--out", "v2", "--json", "--isa", "x86-64-v2"];
    let kernel = p.squall(&v2).ok().json()["kernels"][0].clone();
    assert_eq!(kernel["configuration"], best["best"][0]["configuration"]);
}

#[test]
fn levels_that_the_machine_lacks_are_refused_with_the_remedy() {
    let p = Place::new();
    let unknown = p.squall(&["tune", SMALL, "--trials", "2", "--isa", "avx2"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.err);
    assert!(unknown.err.contains("x86-64-v3"), "{}", unknown.err);
    let two = p.squall(&["tune", SMALL, "--trials", "2", "--isa", "x86-64-v2,x86-64-v3"]);
    assert!(two.code == Some(2) && two.err.contains("2 levels"), "{}", two.err);
    let lacking = [Isa::X86_64V4, Isa::Armv8A].into_iter().find(|l| !has(*l));
    let Some(lacking) = lacking else { return };
    let refused = p.squall(&["tune", SMALL, "--trials", "2", "--isa", lacking.name()]).fails();
    assert!(refused.err.contains(lacking.name()), "{}", refused.err);
    assert!(!p.path().join("tuned.squall").exists() || p.identities().is_empty());
}

/// The output of the exported kernel for ramps as inputs.
fn called(
    p: &Place,
    folder: &str,
    symbol: &str,
    run: &dyn Fn(&[&str]) -> Option<Output>,
) -> Option<Vec<u8>> {
    let ramp: Vec<u8> = (0..32 * 32).flat_map(|i| (i as f32 / 77.0).sin().to_ne_bytes()).collect();
    let (a, b) = (p.file("a.bin", &ramp), p.file("b.bin", &ramp));
    let out = p.path().join(folder).join("out.bin");
    let paths = [&out, &a, &b].map(|x| x.display().to_string());
    let done = run(&["--call", symbol, &paths[0], &paths[1], &paths[2]])?;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(std::fs::read(out).unwrap())
}

#[test]
fn an_export_of_several_levels_runs_what_the_cpu_has() {
    if squall_testing::is_left_to_full("levels::an_export_of_several_levels_runs_what_the_cpu_has")
    {
        return;
    }
    if !has(Isa::X86_64V3) {
        return println!("skipped: this is no machine of x86-64-v3");
    }
    let p = Place::new();
    let levels = ["x86-64-v2", "x86-64-v3"];
    for level in levels {
        p.squall(&["tune", SMALL, "--trials", "4", "--isa", level]).ok();
        p.squall(&["export", SMALL, "--out", level, "--build", "--isa", level]).ok();
    }
    let both = ["export", SMALL, "--out", "both", "--build", "--json", "--isa"];
    let manifest = p.squall(&[&both[..], &["x86-64-v2,x86-64-v3"]].concat()).ok().json();
    let names: Vec<&Value> =
        manifest["levels"].as_array().unwrap().iter().map(|l| &l["name"]).collect();
    assert_eq!(names, levels);
    let symbol = manifest["kernels"][0]["symbol"].as_str().unwrap();
    let driver = |folder: &str| p.path().join(folder).join("driver");
    // Equal code gives equal bits, at each level that is allowed.
    for level in levels {
        let own =
            called(&p, level, symbol, &|args| Command::new(driver(level)).args(args).output().ok());
        let joined = called(&p, "both", symbol, &|args| {
            let capped =
                Command::new(driver("both")).args(args).env("SQUALL_MAX_ISA", level).output();
            capped.ok()
        });
        assert_eq!(own, joined, "{level}");
    }
    // The CPU decides: an instruction that it lacks would end the program.
    for (cpu, level) in [("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3")] {
        let own =
            called(&p, level, symbol, &|args| Command::new(driver(level)).args(args).output().ok());
        let Some(got) = called(&p, "both", symbol, &|args| emulated(cpu, &driver("both"), args))
        else {
            return;
        };
        assert_eq!(own.as_ref(), Some(&got), "{cpu}");
        let checked = emulated(cpu, &driver("both"), &["--check"]).unwrap();
        let said = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success() && said.contains("right"), "{cpu}: {said}");
    }
    // A CPU without any of the levels is told so, and nothing it lacks is run.
    let none = emulated("core2duo", &driver("both"), &["--check"]).unwrap();
    assert_eq!(none.status.code(), Some(1), "{}", String::from_utf8_lossy(&none.stdout));
    // The Makefile builds the same.
    let made =
        Command::new("make").args(["-B", "check"]).current_dir(p.path().join("both")).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn levels_of_different_machines_do_not_share_a_library() {
    let p = Place::new();
    let ran = p.squall(&["export", SMALL, "--out", "x", "--isa", "x86-64-v3,native"]);
    assert!(ran.code == Some(2) && ran.err.contains("native"), "{}", ran.err);
    let twice = p.squall(&["export", SMALL, "--out", "x", "--isa", "x86-64-v2,x86-64-v2"]);
    assert!(twice.code == Some(2) && twice.err.contains("twice"), "{}", twice.err);
}

#[test]
fn a_network_for_arm_is_right_under_an_emulator() {
    let p = Place::new();
    let example = |name: &str| format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"));
    let (model, x) = (example("small_net.onnx"), example("small_net_input.npy"));
    let y = example("small_net_output.npy");
    let arm = ["--isa", "armv8-a"];
    let there = p.squall(&[&["export", SMALL, "--out", "arm", "--build"][..], &arm].concat());
    let is_emulated = matches!(runs(Isa::Armv8A.level()), Execution::Emulated(_));
    if !is_emulated || there.code != Some(0) {
        return println!("skipped: no cross compiler or no emulator: {}", there.err);
    }
    let check = ["check", &model, "--input", &x, "--expect", &y, "--json"];
    let checked = p.squall(&[&check[..], &arm].concat()).ok().json();
    assert_eq!((&checked["right"], &checked["plain"]), (&true.into(), &0.into()), "{checked}");
    let run = ["run", &model, "--input", &x, "--output", "y.npy"];
    p.squall(&[&run[..], &arm].concat()).ok();
    // Nothing was timed, and nothing is.
    let manifest = std::fs::read_to_string(p.path().join("arm/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["kernels"][0]["best_ns"], Value::Null);
    let refused = p.squall(&[&["bench", &model][..], &arm].concat()).fails();
    assert!(refused.err.contains("emulator"), "{}", refused.err);
}
