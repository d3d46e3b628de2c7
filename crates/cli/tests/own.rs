//! Tests of users' own kernels in C (kernel.toml): `squall init`, tuning and resuming, several
//! arguments, references in files, export, and error messages for wrong files.

use crate::support;

use support::Place;

#[test]
fn what_init_writes_can_be_tuned_and_exported() {
    let p = Place::new();
    p.squall(&["init"]).ok();
    let again = p.squall(&["init"]).fails();
    assert!(
        again.err.contains("is there already") && again.err.contains("--force"),
        "{}",
        again.err
    );
    p.squall(&["init", "--force"]).ok();
    let report = p.squall(&["tune", "kernel.toml", "--trials", "3", "--json"]).ok().json();
    let tasks = report["tasks"].as_array().unwrap();
    assert_eq!(
        tasks.iter().map(|t| t["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["axpy_small", "axpy_large"]
    );
    for t in tasks {
        assert_eq!((&t["trials"], &t["failed"]), (&3.into(), &0.into()), "{t}");
        // These kernels wait for memory: which of the two times is less is left to chance.
        assert!(t["best_ns"].as_f64().unwrap() > 0.0 && t["untuned_ns"].as_f64().unwrap() > 0.0);
    }
    let more = p.squall(&["tune", "kernel.toml", "--trials", "2", "--json"]).ok().json();
    assert_eq!(more["tasks"][0]["known"], 3, "a session goes on where the last one ended");
    p.squall(&["export", "kernel.toml", "--out", "out", "--build"]).ok();
    let driver = p.path().join("out");
    assert!(std::fs::read_to_string(driver.join("manifest.json")).unwrap().contains("axpy_large"));
}

#[test]
fn a_kernel_that_is_wrong_at_some_values_never_wins_with_them() {
    let p = Place::new();
    p.file(
        "k.c",
        "#include <stdint.h>\nvoid count(const uint8_t *x, int32_t *y, int64_t by) {\n  for (int \
         v = 0; v < 4; v++) y[v] = 0;\n  \
         for (int i = 0; i < N - LESS; i++) y[x[i]]++;\n  (void)by;\n}\n",
    );
    p.file(
        "k.toml",
        "source = \"k.c\"\nentry = \"count\"\nflags = [\"-DN=4000\"]\n\
         [[argument]]\nname = \"x\"\ntype = \"u8\"\nshape = [4000]\nrange = [0, 3]\n\
         [[argument]]\nname = \"y\"\ntype = \"i32\"\nrole = \"output\"\nshape = [4]\n\
         [[argument]]\nname = \"by\"\ntype = \"i64\"\nrole = \"knob\"\n\
         [[knob]]\nname = \"LESS\"\nvalues = [0, 1]\n[[knob]]\nname = \"by\"\nvalues = [1, 2]\nas \
         = \"argument\"\n",
    );
    let report = p.squall(&["tune", "k.toml", "--trials", "4", "--json"]).ok().json();
    let t = &report["tasks"][0];
    assert_eq!(
        (&t["trials"], &t["failed"]),
        (&4.into(), &2.into()),
        "one count of 4000 less is seen: {t}"
    );
    assert!(t["failures"][0]["stage"].as_str().unwrap().contains("wrong"), "{t}");
    // What comes out of an export builds, runs and checks itself, whole numbers and ranges too.
    p.squall(&["export", "k.toml", "--out", "out", "--build"]).ok();
    let driver = std::process::Command::new(p.path().join("out/driver")).output().unwrap();
    let said = String::from_utf8_lossy(&driver.stdout).into_owned();
    assert!(
        driver.status.success() && said.contains("count") && said.contains("right  error 0.0e"),
        "{said}"
    );
}

/// Sums and counts of what is in bins, in place beside an output of another type.
const BINS: &str = "#include <stdint.h>\nvoid bins(const double *x, const uint8_t *bin, float \
                    *sum, int64_t *count) {\n  \
    for (int b = 0; b < 4; b++) count[b] = 0;\n#if ORDER == 0\n  for (int i = 0; i < N; i++) {\n\
    #else\n  for (int i = N - 1; i >= 0; i--) {\n#endif\n    \
    sum[bin[i]] += (float)x[i]; count[bin[i]]++;\n  }\n#ifdef WRONG\n  count[2] += WRONG;\n\
    #endif\n}\n";

const BINS_TOML: &str = r#"source = "bins.c"
entry = "bins"
flags = ["-DN=3000"]
argument = [
  { name = "x", type = "f64", shape = [3000] },
  { name = "bin", type = "u8", shape = [3000], range = [0, 3] },
  { name = "sum", type = "f32", role = "inout", shape = [4] },
  { name = "count", type = "i64", role = "output", shape = [4] },
]
knob = [{ name = "ORDER", values = [0, 1] }, { name = "WRONG", values = [0, 1] }]
"#;

#[test]
fn several_arguments_are_written_checked_and_exported() {
    let p = Place::new();
    p.file("bins.c", BINS);
    p.file("bins.toml", BINS_TOML);
    let ran = p.squall(&["tune", "bins.toml", "--trials", "4", "--json"]).ok();
    assert!(ran.err.contains("bins writes over its input: a fresh copy of 16 B"), "{}", ran.err);
    let t = ran.json()["tasks"][0].clone();
    // One count too many is seen, though the sums may differ by rounding.
    assert_eq!(
        (&t["trials"], &t["failed"], &t["baseline"]),
        (&4.into(), &2.into(), &"knobs' defaults".into()),
        "{t}"
    );
    let detail = t["failures"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("output 1[2] is"), "{detail}");
    let html = std::fs::read_to_string(p.path().join("bins.html")).unwrap();
    assert!(html.contains("knobs&#39; defaults") || html.contains("knobs' defaults"));
    assert!(!html.contains("plain loops"));
    p.squall(&["export", "bins.toml", "--out", "out", "--build"]).ok();
    let driver = std::process::Command::new(p.path().join("out/driver")).output().unwrap();
    let said = String::from_utf8_lossy(&driver.stdout).into_owned();
    assert!(driver.status.success() && said.contains("right"), "{said}");
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(p.path().join("out/manifest.json")).unwrap())
            .unwrap();
    assert_eq!(manifest["kernels"][0]["outputs"].as_array().unwrap().len(), 2);

    // A driver that sees wrong results says so: the same kernel against a reference that counts one
    // more.
    let reference = std::fs::read_dir(p.path().join("out")).unwrap().map(|f| f.unwrap().path());
    let reference =
        reference.into_iter().find(|f| f.to_string_lossy().ends_with("_reference.c")).unwrap();
    let text = std::fs::read_to_string(&reference).unwrap();
    std::fs::write(&reference, text.replace("#define WRONG 0", "#define WRONG 1")).unwrap();
    let made = std::process::Command::new("make")
        .args(["-C", "out", "check"])
        .current_dir(p.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(!made.status.success() && said.contains("WRONG"), "{said}");
}

#[test]
fn results_may_stand_in_files() {
    let p = Place::new();
    let npy = |data: &[f32]| {
        let header =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", data.len());
        let header = format!("{header:<117}\n");
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(data.iter().flat_map(|x| x.to_le_bytes()));
        bytes
    };
    let x: Vec<f32> = (0..100).map(|i| i as f32 * 0.5).collect();
    p.file("x.npy", npy(&x));
    p.file("y.npy", npy(&x.iter().map(|x| x * 2.0).collect::<Vec<_>>()));
    p.file(
        "k.c",
        "void twice(const float *x, float *y) { for (int i = 0; i < 100; i++) y[i] = \
                   x[i] * BY; }\n",
    );
    p.file(
        "k.toml",
        "source = \"k.c\"\nentry = \"twice\"\nknob = [{ name = \"BY\", values = [1, 2, 3], \
         default = 2 }]\n\
         argument = [{ name = \"x\", type = \"f32\", shape = [100], file = \"x.npy\" }, { name \
         = \"y\", type = \"f32\", role = \"output\", shape = [100] }]\n\
         [reference]\noutputs = [\"y.npy\"]\n",
    );
    let t =
        p.squall(&["tune", "k.toml", "--trials", "3", "--json"]).ok().json()["tasks"][0].clone();
    assert_eq!(
        (&t["trials"], &t["failed"], &t["best"]["configuration"]),
        (&3.into(), &2.into(), &"BY=2".into()),
        "{t}"
    );
    let refused = p.squall(&["export", "k.toml", "--out", "out"]).fails().err;
    assert!(
        refused.contains("right results stand in files") && !p.path().join("out").exists(),
        "{refused}"
    );
    p.file("y.npy", npy(&x));
    let other =
        p.squall(&["tune", "k.toml", "--trials", "3", "--json"]).ok().json()["tasks"][0].clone();
    assert_eq!(
        (&other["known"], &other["best"]["configuration"]),
        (&0.into(), &"BY=1".into()),
        "another task: {other}"
    );
}

#[test]
fn commands_that_need_an_expression_say_so() {
    let p = Place::new();
    p.squall(&["init"]).ok();
    p.squall(&["tune", "kernel.toml", "--trials", "2"]).ok();
    let e = p
        .squall(&["explain", "kernel.toml", "--task", "axpy_small", "--stage", "nest"])
        .fails()
        .err;
    assert!(e.contains("a kernel of your own: no expression stands behind it"), "{e}");
    // Strategies can be compared on it: that needs no expression.
    let b = p
        .squall(&[
            "bench",
            "search",
            "kernel.toml",
            "--trials",
            "2",
            "--seeds",
            "1",
            "--strategies",
            "random,climb",
            "--json",
        ])
        .ok()
        .json();
    assert_eq!(
        (b["runs"].as_array().unwrap().len(), b["scores"][0]["kernels"].clone()),
        (4, 2.into()),
        "{b}"
    );
    let v = p.squall(&["records", "verify", "--json"]).ok().json();
    for t in v["tasks"].as_array().unwrap() {
        assert_eq!(t["verdict"], "own", "{v}");
        assert!(t["detail"].as_str().unwrap().contains("`squall tune` its kernel.toml"), "{v}");
    }
    assert_eq!(v["tasks"].as_array().unwrap().len(), 2);
}

#[test]
fn errors_show_the_line() {
    let p = Place::new();
    p.squall(&["init", "a.toml"]).ok();
    let text = std::fs::read_to_string(p.path().join("a.toml")).unwrap();
    p.file("b.toml", text.replace("default = 3", "defualt = 3"));
    let e = p.squall(&["tune", "b.toml", "--trials", "1"]).fails().err;
    assert!(
        e.contains("(did you mean `default`?)")
            && e.contains("| defualt = 3\n")
            && e.contains("| ^^^^^^^\n"),
        "{e}"
    );
}
