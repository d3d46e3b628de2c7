//! Tests of `squall export` of single kernels: the written folder compiles, its driver accepts
//! right kernels and finds wrong ones, and the manifest names each kernel's origin.

use crate::support;

use std::process::Command;
use support::{Place, SMALL};

#[test]
fn an_export_builds_and_its_driver_finds_it_right() {
    let p = Place::new();
    p.squall(&["tune", SMALL, "--trials", "6"]).ok();
    let manifest =
        p.squall(&["export", SMALL, "--out", "kernels", "--build", "--json"]).ok().json();
    let kernel = &manifest["kernels"][0];
    let best = p.squall(&["records", "best", "--json"]).ok().json();
    assert_eq!(kernel["task"], best["best"][0]["task"]);
    assert_eq!(kernel["configuration"], best["best"][0]["configuration"]);
    let folder = p.path().join("kernels");
    let on_disk: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("manifest.json")).unwrap())
            .unwrap();
    assert_eq!(on_disk, manifest);
    assert!(folder.join(manifest["library"].as_str().unwrap()).is_file());
    assert!(folder.join("squall_kernels.h").is_file());
    let driver = Command::new(folder.join("driver")).arg("--check").output().unwrap();
    let said = String::from_utf8_lossy(&driver.stdout);
    assert!(driver.status.success() && said.contains("right"), "{said}");
    let referee: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("so.json")).unwrap()).unwrap();
    let entry = &referee[kernel["name"].as_str().unwrap()]["squall"];
    assert_eq!(entry["symbol"], kernel["symbol"]);
    assert!(std::path::Path::new(entry["lib"].as_str().unwrap()).is_file());
    // The header is fit for C programs of others.
    p.file("kernels/use.c", "#include \"squall_kernels.h\"\nint main(void) { return 0; }\n");
    assert!(
        Command::new("gcc")
            .args(["-std=c99", "-Wall", "-Werror", "-fsyntax-only", "use.c"])
            .current_dir(&folder)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn the_driver_finds_wrong_kernels() {
    let p = Place::new();
    p.squall(&["tune", SMALL, "--trials", "2"]).ok();
    let manifest = p.squall(&["export", SMALL, "--out", "kernels", "--json"]).ok().json();
    let folder = p.path().join("kernels");
    let source = manifest["kernels"][0]["source"].as_str().unwrap();
    let symbol = manifest["kernels"][0]["symbol"].as_str().unwrap();
    let mut text = std::fs::read_to_string(folder.join(source)).unwrap();
    text = text.replace(&format!("int {symbol}(const void"), "static int honest(const void");
    text += &format!(
        "\nint {symbol}(const void *const *d, void *const *o, const void *p, void *w) {{ int r = \
         honest(d, o, p, w); ((float *)o[0])[7] += 0.5f; return r; }}\n"
    );
    std::fs::write(folder.join(source), text).unwrap();
    let check = Command::new("make").arg("check").current_dir(&folder).output();
    let Ok(check) = check else {
        println!("skipped: no make here");
        return;
    };
    assert!(!check.status.success());
    assert!(
        String::from_utf8_lossy(&check.stdout).contains("WRONG"),
        "{}",
        String::from_utf8_lossy(&check.stdout)
    );
}

#[test]
fn what_was_never_tuned_gets_a_verified_guess_and_says_so() {
    let p = Place::new();
    p.squall(&["tune", SMALL, "--trials", "2"]).ok();
    let ran =
        p.squall(&["export", "matmul m=8 n=8 k=8", "--out", "plain", "--build", "--json"]).ok();
    assert!(ran.err.contains("never tuned"), "{}", ran.err);
    let kernel = ran.json()["kernels"][0].clone();
    assert_eq!((&kernel["tuned"], &kernel["origin"]), (&false.into(), &"guessed".into()));
    // Of a task that takes little of the time one guess is made, and the store holds a similar one.
    p.file("two.ops", "matmul m=256 n=256 k=256\nmatmul m=32 n=32 k=64\n");
    let two = p.squall(&["export", "two.ops", "--out", "two", "--json"]).ok().json();
    assert_eq!(two["kernels"][1]["guessed_by"], "similar", "{two}");
    assert!(
        Command::new(p.path().join("plain/driver"))
            .arg("--check")
            .output()
            .unwrap()
            .status
            .success()
    );
    // The reference of so large a product runs on all cores, its kernel on one.
    p.squall(&["export", "matmul m=1024 n=1024 k=1024", "--out", "large", "--build"]).ok();
    // Without any store the general predictor guesses, and the next export finds the guess.
    let q = Place::new();
    for from in ["general", "kept"] {
        let made = q.squall(&["export", SMALL, "--out", "g", "--json"]).ok();
        assert_eq!(made.json()["kernels"][0]["guessed_by"], from, "{}", made.err);
    }
    let said = q.squall(&["export", SMALL, "--out", "g"]).ok().out;
    assert!(said.contains("0 tuned, 1 guessed, 0 plain loops"), "{said}");
    let none = p.squall(&["export", SMALL, "--store", "none.squall", "--out", "x"]).fails();
    assert!(none.err.contains("none.squall"), "{}", none.err);
    p.file("taken", "");
    p.squall(&["export", SMALL, "--out", "taken"]).fails();
}

#[test]
fn several_threads_are_exported_with_openmp() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skipped: one core");
        return;
    }
    let p = Place::new();
    p.squall(&["tune", SMALL, "--trials", "4", "--threads", "2"]).ok();
    p.squall(&["export", SMALL, "--threads", "2", "--out", "k", "--build"]).ok();
    assert!(
        Command::new(p.path().join("k/driver")).arg("--check").output().unwrap().status.success()
    );
}
