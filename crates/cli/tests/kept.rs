//! Tests of the cache of compiled files: a second run of a command compiles nothing, and damaged
//! cache files are replaced. A wrapper around the compiler logs its calls.

use crate::support;

use std::os::unix::fs::PermissionsExt;
use support::{Place, Ran, example};

/// A folder with a compiler that logs each call.
struct Logged(Place);

impl Logged {
    fn new() -> Logged {
        let p = Place::that_compiles_all();
        let cc = p.file("cc.sh", "#!/bin/sh\necho \"$@\" >> \"$SQUALL_LOG\"\nexec gcc \"$@\"\n");
        std::fs::set_permissions(cc, std::fs::Permissions::from_mode(0o755)).unwrap();
        Logged(p)
    }

    /// Runs squall; returns the compiler's calls, except those that only probe it.
    fn squall(&self, args: &[&str]) -> (Ran, Vec<String>) {
        let log = self.0.path().join("log");
        let _ = std::fs::remove_file(&log);
        let mut command = self.0.command(args);
        command.env("CC", self.0.path().join("cc.sh")).env("SQUALL_LOG", &log);
        let ran = Ran::from(command.output().unwrap()).ok();
        let text = std::fs::read_to_string(&log).unwrap();
        let looks = |l: &&str| {
            // What it is, and which instructions it may use, is asked of it in every run.
            let asked = ["trivial-", "probe.c", "--version", "-dM -E", "--help=target"];
            asked.iter().any(|look| l.contains(look))
        };
        (ran, text.lines().filter(|l| !looks(l)).map(String::from).collect())
    }

    fn output(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).unwrap()
    }
}

#[test]
fn a_second_run_compiles_nothing() {
    let p = Logged::new();
    let (model, x) = (example("small_net.onnx"), example("small_net_input.npy"));
    let run = |y: &str| p.squall(&["run", &model, "--input", &x, "--output", y]);
    let compiles = |calls: &[String]| calls.iter().filter(|c| c.contains("-c ")).count();
    let (ran, first) = run("first.npy");
    assert!(ran.out.contains("0 plain loops"), "{}", ran.out);
    assert!(compiles(&first) >= 8, "{first:#?}");
    let (_, second) = run("second.npy");
    assert_eq!(second, Vec::<String>::new());
    assert_eq!(p.output("first.npy"), p.output("second.npy"));
    // Damaged files are not used, and made again.
    let objects = p.0.path().join("cache/squall/objects");
    for entry in std::fs::read_dir(&objects).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let (_, third) = run("third.npy");
    assert!(compiles(&third) >= 8, "{third:#?}");
    assert_eq!(p.output("first.npy"), p.output("third.npy"));
    assert_eq!(run("fourth.npy").1, Vec::<String>::new());

    // A folder that others may write to is not used.
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&objects, open).unwrap();
    let (_, fifth) = run("fifth.npy");
    assert!(compiles(&fifth) >= 8, "{fifth:#?}");
    assert_eq!(p.output("first.npy"), p.output("fifth.npy"));
}

#[test]
fn a_second_export_compiles_its_driver_alone() {
    let p = Logged::new();
    let model = example("small_net.onnx");
    let export = |to: &str| p.squall(&["export", &model, "--out", to, "--build"]).1;
    let compiles = |calls: &[String]| calls.iter().filter(|c| c.contains("-c ")).count();
    // The first one compares guesses. Kernels and references are compiled when they are verified.
    assert!(compiles(&export("first")) >= 8);
    let second = export("second");
    assert_eq!(compiles(&second), 0, "{second:#?}");
    assert_eq!(second.len(), 2, "the library and the driver: {second:#?}");
    assert!(p.0.path().join("second/driver").is_file());
}

#[test]
fn winners_of_a_tuned_model_are_compiled_while_it_is_tuned() {
    if squall_testing::is_left_to_full(
        "kept::winners_of_a_tuned_model_are_compiled_while_it_is_tuned",
    ) {
        return;
    }
    let p = Logged::new();
    let (model, x) = (example("small_net.onnx"), example("small_net_input.npy"));
    let (ran, _) = p.squall(&["tune", &model, "--trials-per-task", "2"]);
    assert!(ran.out.contains("one inference"), "{}", ran.out);
    assert!(!ran.out.contains("plain loops 1") && !ran.out.contains("instead"), "{}", ran.out);
    // Its program was built when it was timed as a whole.
    let (_, calls) = p.squall(&["run", &model, "--input", &x, "--output", "y.npy"]);
    assert_eq!(calls, Vec::<String>::new());
}
