//! Users' own kernels with the real binary: init, tune, resume, export, faults.

mod support;

use support::Place;

#[test]
fn what_init_writes_can_be_tuned_and_exported() {
    let p = Place::new();
    p.squall(&["init"]).ok();
    let again = p.squall(&["init"]).fails();
    assert!(again.err.contains("is there already") && again.err.contains("--force"), "{}", again.err);
    p.squall(&["init", "--force"]).ok();
    let report = p.squall(&["tune", "kernel.toml", "--trials", "3", "--json"]).ok().json();
    let tasks = report["tasks"].as_array().unwrap();
    assert_eq!(tasks.iter().map(|t| t["name"].as_str().unwrap()).collect::<Vec<_>>(), ["axpy_small", "axpy_large"]);
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
        "#include <stdint.h>\nvoid count(const uint8_t *x, int32_t *y, int64_t by) {\n  for (int v = 0; v < 4; v++) y[v] = 0;\n  \
         for (int i = 0; i < N - LESS; i++) y[x[i]]++;\n  (void)by;\n}\n",
    );
    p.file(
        "k.toml",
        "source = \"k.c\"\nentry = \"count\"\nflags = [\"-DN=4000\"]\n\
         [[argument]]\nname = \"x\"\ntype = \"u8\"\nshape = [4000]\nrange = [0, 3]\n\
         [[argument]]\nname = \"y\"\ntype = \"i32\"\nrole = \"output\"\nshape = [4]\n\
         [[argument]]\nname = \"by\"\ntype = \"i64\"\nrole = \"knob\"\n\
         [[knob]]\nname = \"LESS\"\nvalues = [0, 1]\n[[knob]]\nname = \"by\"\nvalues = [1, 2]\nas = \"argument\"\n",
    );
    let report = p.squall(&["tune", "k.toml", "--trials", "4", "--json"]).ok().json();
    let t = &report["tasks"][0];
    assert_eq!((&t["trials"], &t["failed"]), (&4.into(), &2.into()), "one count of 4000 less is seen: {t}");
    assert!(t["failures"][0]["stage"].as_str().unwrap().contains("wrong"), "{t}");
    let refused = p.squall(&["export", "k.toml", "--out", "out"]).fails();
    assert!(refused.err.contains("f32"), "{}", refused.err);
}

#[test]
fn errors_show_the_line() {
    let p = Place::new();
    p.squall(&["init", "a.toml"]).ok();
    let text = std::fs::read_to_string(p.path().join("a.toml")).unwrap();
    p.file("b.toml", text.replace("default = 3", "defualt = 3"));
    let e = p.squall(&["tune", "b.toml", "--trials", "1"]).fails().err;
    assert!(e.contains("(did you mean `default`?)") && e.contains("| defualt = 3\n") && e.contains("| ^^^^^^^\n"), "{e}");
}
