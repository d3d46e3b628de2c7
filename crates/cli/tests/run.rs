//! Tests of `squall run` and `squall bench` on whole networks: outputs before and after tuning,
//! guesses that the next run finds again, tables of layers, and models that cannot run.

use crate::support;

use squall_testing::onnx::{Build, f32s, i64s};
use std::path::PathBuf;
use support::{Place, example};

/// The largest difference between two .npy files.
fn difference(a: &std::path::Path, b: &std::path::Path) -> f32 {
    let read = |p: &std::path::Path| squall::arrays::read_array(p).unwrap().f32s().unwrap();
    let (a, b) = (read(a), read(b));
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(&b)
        .map(|(x, y)| (x - y).abs())
        .fold(0.0, |m, d| if d.is_nan() { f32::INFINITY } else { m.max(d) })
}

#[test]
fn a_small_network_gives_what_is_expected_plain_and_tuned() {
    let (model, x, y) = (
        example("small_net.onnx"),
        example("small_net_input.npy"),
        PathBuf::from(example("small_net_output.npy")),
    );
    let p = Place::new();
    p.squall(&["run", &model, "--input", &x, "--output", "plain.npy"]).ok();
    assert!(difference(&p.path().join("plain.npy"), &y) <= 1e-4);
    p.squall(&[
        "tune",
        &model,
        "--trials-per-task",
        "3",
        "--store",
        "t.squall",
        "--caches",
        "cold",
    ])
    .ok();
    // Times with cold caches are a device's of their own, whose kernels are found all the same.
    let records = p
        .squall(&["records", "show", "--kind", "trial", "--store", "t.squall", "--json"])
        .ok()
        .json();
    let devices: Vec<&str> = records["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["device"].as_str().unwrap())
        .collect();
    assert!(
        !devices.is_empty() && devices.iter().all(|d| d.ends_with(", cold caches")),
        "{devices:?}"
    );
    let said = p
        .squall(&[
            "run",
            &model,
            "--input",
            &x,
            "--output",
            "tuned.npy",
            "--store",
            "t.squall",
            "--json",
        ])
        .ok()
        .json();
    assert!(said["tuned"].as_u64().unwrap() > 0, "{said}");
    assert!(difference(&p.path().join("tuned.npy"), &y) <= 1e-4);
    let args = [
        "bench",
        &model,
        "--input",
        &x,
        "--output",
        "b.npy",
        "--store",
        "t.squall",
        "--seconds",
        "0.1",
        "--json",
        "--keep",
        "k",
    ];
    let first = p.squall(&args).ok().json();
    assert_eq!(first["output"], "b.npy");
    assert!(difference(&p.path().join("b.npy"), &y) <= 1e-4);
    let (best, median) = (first["best_ns"].as_u64().unwrap(), first["median_ns"].as_u64().unwrap());
    assert!(0 < best && best <= median);
    assert_eq!(first["layers"].as_array().unwrap().len(), 8);
    // Tuned with channels last, and so run: what is not tuned is not chosen.
    let named = |said: &serde_json::Value, end: &str| {
        let layers = said["layers"].as_array().unwrap();
        layers.iter().filter(|l| l["name"].as_str().unwrap().ends_with(end)).count()
    };
    assert!(named(&first, "_nhwc") > 0, "{first}");
    let args_first = [
        "bench",
        &model,
        "--input",
        &x,
        "--output",
        "f.npy",
        "--seconds",
        "0.1",
        "--json",
        "--channels",
        "first",
    ];
    let plain = p.squall(&args_first).ok().json();
    assert_eq!(named(&plain, "_nhwc"), 0, "{plain}");
    assert!(difference(&p.path().join("f.npy"), &y) <= 1e-4);
    assert!(
        first["layers"][0]["best_ns"].as_u64().unwrap() > 0
            && first["arena_bytes"].as_u64().unwrap() > 0
    );
    // Kernels of another device, here of another number of threads, are better than plain loops.
    let args_threads = [
        "bench",
        &model,
        "--input",
        &x,
        "--output",
        "e.npy",
        "--store",
        "t.squall",
        "--seconds",
        "0.1",
        "--json",
        "--threads",
        "2",
    ];
    let elsewhere = p.squall(&args_threads).ok().json();
    assert!(
        named(&elsewhere, "_nhwc") > 0 && elsewhere["tuned"].as_u64().unwrap() > 0,
        "{elsewhere}"
    );
    assert!(difference(&p.path().join("e.npy"), &y) <= 1e-4);
    // What was kept is used again: an object that did not change is not written anew.
    let objects =
        |name: &str| std::fs::metadata(p.path().join("k").join(name)).unwrap().modified().unwrap();
    let file = std::fs::read_dir(p.path().join("k"))
        .unwrap()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned());
    let object = file.into_iter().find(|n| n.ends_with(".o")).unwrap();
    let made = objects(&object);
    p.squall(&args).ok();
    assert_eq!(objects(&object), made);
}

#[test]
fn a_network_without_a_store_runs_by_guesses_that_the_next_run_finds() {
    let p = Place::new();
    let (model, x, y) = (
        example("small_net.onnx"),
        example("small_net_input.npy"),
        PathBuf::from(example("small_net_output.npy")),
    );
    let run = || {
        let ran = p.squall(&["run", &model, "--input", &x, "--output", "y.npy", "--json"]).ok();
        assert!(difference(&p.path().join("y.npy"), &y) <= 1e-4);
        let said = ran.json();
        let counts = ["kernels", "tuned", "guessed", "plain"].map(|n| said[n].as_u64().unwrap());
        assert_eq!(counts, [8, 0, 8, 0], "{said}");
        ran.err
    };
    let first = run();
    assert!(first.contains("8 by the general predictor"), "{first}");
    let second = run();
    assert!(second.contains("8 by an earlier run"), "{second}");
    assert!(!second.contains("are built and verified"), "{second}");
    // What is no store is ignored, said, and left alone.
    let cache = p.path().join("cache/squall/guesses.squall");
    std::fs::write(&cache, "no store at all, but long enough for a header of one").unwrap();
    let third = run();
    assert!(
        third.contains("are ignored") && third.contains("8 by the general predictor"),
        "{third}"
    );
    // A store with a damaged page, too.
    let bytes = [b"SQLite format 3\0".to_vec(), vec![0x5a; 8000]].concat();
    std::fs::write(&cache, &bytes).unwrap();
    let fourth = run();
    assert!(fourth.contains("are ignored"), "{fourth}");
    assert_eq!(std::fs::read(&cache).unwrap(), bytes);
    // Where nothing can be kept it runs all the same.
    let nowhere = p
        .command(&["run", &model, "--input", &x, "--output", "y.npy"])
        .env("XDG_CACHE_HOME", "/proc/no/such")
        .output()
        .unwrap();
    assert!(nowhere.status.success(), "{}", String::from_utf8_lossy(&nowhere.stderr));
}

#[test]
fn a_guess_that_was_not_timed_is_timed_where_there_is_a_choice() {
    let p = Place::new();
    let product = |model: Build, n: i64| {
        let name = |of: &str| format!("{of}{n}");
        model
            .input(&name("x"), &[n, n])
            .init(&name("w"), f32s(&[n, n], &vec![0.5; (n * n) as usize]))
            .node("MatMul", &[&name("x"), &name("w")], &[&name("y")], &[])
            .output(&name("y"))
    };
    p.file("both.onnx", product(product(Build::new(17), 16), 256).bytes());
    p.file("small.onnx", product(Build::new(17), 16).bytes());
    // The records of the small product: how each came about, and whether it has a time.
    let check = |model: &str| -> Vec<(String, bool)> {
        p.squall(&["check", model]).ok();
        let store = "cache/squall/guesses.squall";
        let said = p.squall(&["records", "show", "--store", store, "--json"]).ok().json();
        let records = said["records"].as_array().unwrap().iter();
        records
            .filter(|r| r["name"] == "matmul_16x16x16")
            .map(|r| (r["kind"].as_str().unwrap().into(), r["time_ns"].is_number()))
            .collect()
    };
    // Beside a large product there is no choice; alone there is, and no later run adds to it.
    assert_eq!(check("both.onnx"), [("trial".into(), false)]);
    let all = check("small.onnx");
    assert!(all.contains(&("rematch".into(), true)), "{all:?}");
    assert_eq!(check("small.onnx"), all);
    assert_eq!(check("both.onnx"), all);
}

#[test]
fn what_a_small_budget_did_not_reach_is_guessed() {
    let p = Place::new();
    let (model, x) = (example("small_net.onnx"), example("small_net_input.npy"));
    // So few trials that most tasks get none: the user is told before and after.
    let tuned = p.squall(&["tune", &model, "--trials", "5", "--json"]).ok();
    assert!(tuned.err.contains("5 trials are too few for 8 tasks"), "{}", tuned.err);
    let report = tuned.json();
    assert_eq!(report["total"]["untried"], 6, "{report}");
    let of = |t: &serde_json::Value| t["trials"].as_u64().unwrap();
    let mut trials: Vec<u64> = report["tasks"].as_array().unwrap().iter().map(of).collect();
    trials.sort_unstable();
    assert_eq!(trials[5..], [0, 1, 4], "{report}");
    // The default store is found; what it does not know is guessed.
    let said = p.squall(&["run", &model, "--input", &x, "--output", "y.npy", "--json"]).ok().json();
    assert!(said["tuned"].as_u64().unwrap() >= 1 && said["plain"] == 0, "{said}");
    assert!(said["guessed"].as_u64().unwrap() >= 6, "{said}");
    // Plain loops that met no other kernel do not serve, though the store has their time.
    let all = squall::Store::open(p.path().join("tuned.squall")).unwrap();
    let few = squall::Store::open(p.path().join("plain.squall")).unwrap();
    for r in all.query(&squall::Query::default()).unwrap() {
        if r.kind == squall::RecordKind::Untuned {
            few.append(&r).unwrap();
        }
    }
    assert_eq!(few.len().unwrap(), 2);
    drop(few);
    let args =
        ["run", &model, "--input", &x, "--output", "y.npy", "--store", "plain.squall", "--json"];
    let said = p.squall(&args).ok().json();
    assert_eq!((&said["guessed"], &said["plain"]), (&8.into(), &0.into()), "{said}");
}

#[test]
fn a_table_shows_the_slowest_layers() {
    if squall_testing::is_left_to_full("run::a_table_shows_the_slowest_layers") {
        return;
    }
    let p = Place::new();
    let said = p
        .squall(&["bench", &example("small_net.onnx"), "--seconds", "0.05", "--threads", "2"])
        .ok();
    assert!(said.out.contains("softmax_1x10") && said.out.contains("arena"), "{}", said.out);
    assert!(said.err.contains("8 of 8 kernels were never tuned"), "{}", said.err);
    assert!(said.out.contains("8 kernels: 0 tuned, 8 guessed, 0 plain loops"), "{}", said.out);
}

#[test]
fn bench_names_what_runs_as_plain_c_with_its_bound() {
    let p = Place::new();
    let model = Build::new(17)
        .input("x", &[64, 512])
        .init("axis", i64s(&[], &[1]))
        .node("CumSum", &["x", "axis"], &["a"], &[])
        .node("CumSum", &["a", "axis"], &["b"], &[])
        .node("Hardmax", &["b"], &["y"], &[])
        .output("y");
    p.file("plain.onnx", model.bytes());
    let args = ["bench", "plain.onnx", "--seconds", "0.05"];
    let said = p.squall(&args).ok().out;
    // Behind the table of layers, in which each node has a row of its own.
    let table = said.split("3 nodes run as plain C").nth(1);
    let table = table.unwrap_or_else(|| panic!("{said}"));
    assert!(table.contains("GFLOP/s") && table.contains("times its bound"), "{said}");
    let row = table.lines().find(|l| l.contains("CumSum")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[..3], ["CumSum", "plain", "2"], "{said}");
    assert_eq!(words.last(), Some(&"CumSum_0"), "{said}");
    assert!(row.contains('%') && words.iter().any(|w| w.ends_with('x')), "{said}");
    let said = p.squall(&[&args[..], &["--json"]].concat()).ok().json();
    let steps = &said["plain_steps"];
    assert_eq!(steps["whole"]["nodes"], 3, "{said}");
    assert!((steps["whole"]["share"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{said}");
    let rows = steps["rows"].as_array().unwrap();
    let row = rows.iter().find(|r| r["op"] == "CumSum").unwrap();
    assert_eq!(
        (&row["nodes"], &row["by"], &row["operations"]),
        (&2.into(), &"plain".into(), &0.into())
    );
    // Of each node the tensor, the axis, and the result.
    assert_eq!(row["bytes"], 2 * (64 * 512 * 4 + 8 + 64 * 512 * 4), "{said}");
    let (time, bound) = (row["best_ns"].as_f64().unwrap(), row["bound_ns"].as_f64().unwrap());
    assert!(bound > 0.0 && (row["times_bound"].as_f64().unwrap() - time / bound).abs() < 1e-6);
    assert!(said["roof"]["peak_gflops"].as_f64().unwrap() > 0.0, "{said}");
}

#[test]
fn a_model_without_weights_runs_with_random_ones() {
    if squall_testing::is_left_to_full("run::a_model_without_weights_runs_with_random_ones") {
        return;
    }
    let p = Place::new();
    let said = p
        .squall(&["bench", &example("resnet18.onnx"), "--seconds", "0.01", "--output", "y.npy"])
        .ok();
    assert!(said.err.contains("weights are not in the file"), "{}", said.err);
    let y = squall::arrays::read_array(&p.path().join("y.npy")).unwrap();
    assert_eq!(y.shape, [1, 1000]);
    let data = y.f32s().unwrap();
    let largest = data.iter().fold(0f32, |m, v| m.max(v.abs()));
    assert!(data.iter().all(|v| v.is_finite()) && (1e-6..1e6).contains(&largest), "{largest}");
}

#[test]
fn tiny_residual_is_what_pytorch_says() {
    let Some(folder) = squall_testing::shared("models") else { return };
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let p = Place::new();
    p.squall(&[
        "run",
        &file("tiny_residual.onnx"),
        "--input",
        &file("tiny_residual_input.npy"),
        "--output",
        "y.npy",
    ])
    .ok();
    assert!(difference(&p.path().join("y.npy"), &folder.join("tiny_residual_output.npy")) <= 1e-4);
}

#[test]
fn what_cannot_run_is_an_error() {
    let p = Place::new();
    let (model, x, y) = (
        example("small_net.onnx"),
        example("small_net_input.npy"),
        example("small_net_output.npy"),
    );
    let wrong = p.squall(&["run", &model, "--input", &y, "--output", "y.npy"]).fails();
    assert!(wrong.err.contains("shape [1, 3, 32, 32], the given array [1, 10]"), "{}", wrong.err);
    assert!(
        p.squall(&["run", &model, "--input", &x, "--output", "y.npy", "--store", "absent.squall"])
            .fails()
            .err
            .contains("absent.squall")
    );
    assert!(
        p.squall(&["run", &model, "--input", &x, "--output", "no/such/y.npy"])
            .fails()
            .err
            .contains("no/such/y.npy")
    );
    assert!(
        p.squall(&["run", support::SMALL, "--input", &x, "--output", "y.npy"])
            .fails()
            .err
            .contains("no model")
    );
    assert!(
        p.squall(&["run", &model, "--input", "absent.npy", "--output", "y.npy"])
            .fails()
            .err
            .contains("absent.npy")
    );
    assert_eq!(p.squall(&["bench", &model, "--seconds", "0"]).code, Some(2));
}
