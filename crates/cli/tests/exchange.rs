//! Tests of `squall import` and `squall records export`: recordings in Kernel Tuner's and T4
//! formats go into a store and come out equal, broken files are refused, and Kernel Tuner itself
//! simulates on an exported file where it is installed.

use crate::support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::Place;

/// A Kernel Tuner cache file of a made-up kernel, with every class of failure that Kernel Tuner
/// names; the times are no round numbers.
fn cache() -> String {
    let mut entries = Vec::new();
    for (i, block) in [32, 64, 128].into_iter().enumerate() {
        for how in ["true", "false"] {
            let spelled = if how == "true" { "True" } else { "False" };
            let time = match (i, how) {
                (0, "true") => "\"CompilationFailedConfig\"".to_string(),
                (1, "false") => "\"RuntimeFailedConfig\"".to_string(),
                (2, "true") => "\"InvalidConfig\"".to_string(),
                _ => format!("{}", 0.1 + (1.0 + i as f64) / 3.0),
            };
            entries.push(format!(
                "\"{block},{spelled},7\": {{\"block\": {block}, \"how\": {how}, \"fixed\": \
                 7, \"time\": {time}, \
                 \"compile_time\": 310.2, \"benchmark_time\": 1.7, \"verification_time\": 0.3}}"
            ));
        }
    }
    format!(
        "{{\"device_name\": \"Some GPU\", \"kernel_name\": \"saxpy\", \"problem_size\": [4096, \
         4096], \"tune_params_keys\": [\"block\", \"how\", \"fixed\"],\n\
         \"tune_params\": {{\"block\": [32, 64, 128, 256], \"how\": [true, false], \"fixed\": \
         [7]}}, \"objective\": \"time\",\n\"cache\": {{\n{},\n",
        entries.join(",\n")
    )
}

const T1: &str = r#"{"ConfigurationSpace": {"TuningParameters": [{"Name": "fixed", "Values": "[7]"},
  {"Name": "how", "Values": [true, false]},
  {"Name": "block", "Values": "[32 * i for i in range(1, 9)]"}],
  "Conditions": [{"Expression": "block <= 128 and fixed % block != 1"}]},
  "KernelSpecification": {"KernelName": "other"}}"#;

/// What a store knows of each trial, without what an export cannot say.
fn trials(p: &Place, store: &str) -> Vec<(String, Value)> {
    let shown = p.squall(&["records", "show", "--store", store, "--json"]).ok().json();
    let mut all: Vec<(String, Value)> = shown["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| {
            (format!("{} {} {}", r["task"], r["device"], r["configuration"]), r["outcome"].clone())
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn what_is_imported_is_exported_and_imported_alike() {
    let p = Place::new();
    p.file("interrupted.json", cache());
    let first =
        p.squall(&["import", "interrupted.json", "--store", "a.squall", "--json"]).ok().json();
    let i = &first["imported"][0];
    assert_eq!((&i["name"], &i["device"]), (&"saxpy".into(), &"Some GPU".into()), "{first}");
    assert_eq!(
        (&i["new"], &i["known"], &i["failed"]),
        (&6.into(), &0.into(), &3.into()),
        "{first}"
    );
    let again =
        p.squall(&["import", "interrupted.json", "--store", "a.squall", "--json"]).ok().json();
    assert_eq!(
        (&again["imported"][0]["new"], &again["imported"][0]["known"]),
        (&0.into(), &6.into())
    );
    let table = p.squall(&["records", "list", "--store", "a.squall"]).ok().out;
    assert!(table.contains("saxpy") && table.contains("Some GPU"), "{table}");

    let was = trials(&p, "a.squall");
    assert_eq!(was.len(), 6);
    let classes: Vec<String> = was.iter().map(|t| t.1.to_string()).collect();
    for class in ["\"build\"", "\"launch\"", "infeasible", "measured"] {
        assert!(classes.iter().any(|c| c.contains(class)), "{class}: {classes:?}");
    }
    for (form, file) in
        [("kernel-tuner", "k.json.gz"), ("t4", "t4.json"), ("kernel-tuner", "plain.json")]
    {
        p.squall(&["records", "export", "--store", "a.squall", "--format", form, "--output", file])
            .ok();
        let to = format!("{file}.squall");
        let back = p.squall(&["import", file, "--store", &to, "--json"]).ok().json();
        assert_eq!(back["imported"][0]["new"], 6, "{form}");
        if form == "kernel-tuner" {
            // The parameters' values are all there, also the one that was never legal: the same
            // task.
            assert_eq!(trials(&p, &to), was, "{form}");
        } else {
            let outcomes = |t: Vec<(String, Value)>| t.into_iter().map(|t| t.1).collect::<Vec<_>>();
            let (mut a, mut b) = (outcomes(trials(&p, &to)), outcomes(was.clone()));
            a.sort_by_key(Value::to_string);
            b.sort_by_key(Value::to_string);
            assert_eq!(a, b, "{form}");
        }
    }
    p.squall(&["replay", "k.json.gz", "--seeds", "2"]).ok();
}

#[test]
fn a_description_says_the_space_of_results() {
    let p = Place::new();
    p.file("interrupted.json", cache());
    p.file("t1.json", T1);
    p.squall(&["import", "interrupted.json", "--store", "a.squall"]).ok();
    p.squall(&[
        "records", "export", "--store", "a.squall", "--format", "t4", "--output", "t4.json",
    ])
    .ok();
    let i =
        p.squall(&["import", "t4.json", "t1.json", "--store", "b.squall", "--json"]).ok().json();
    assert_eq!(
        (&i["imported"][0]["name"], &i["imported"][0]["new"]),
        (&"saxpy".into(), &6.into()),
        "{i}"
    );
    let shown =
        p.squall(&["records", "show", "--store", "b.squall", "--limit", "1", "--json"]).ok().json();
    let r = &shown["records"][0];
    assert!(
        r["configuration"].as_str().unwrap().starts_with("fixed=7,how="),
        "the description's order: {r}"
    );
    let workload = r["workload"].as_str().unwrap();
    assert!(workload.contains("block <= 128") && workload.contains("256"), "{workload}");
    // And through a cache file with all of its values.
    p.squall(&[
        "records",
        "export",
        "--store",
        "b.squall",
        "--format",
        "kernel-tuner",
        "--output",
        "k.json",
    ])
    .ok();
    assert!(
        std::fs::read_to_string(p.path().join("k.json"))
            .unwrap()
            .contains("\"block\": [32,64,96,128,160,192,224,256]")
    );

    // A description of something else, and one that forbids what was measured.
    let wrong = p.squall(&["import", "t1.json", "--store", "c.squall"]).fails().err;
    assert!(wrong.contains("t1.json: no recording here has the parameters"), "{wrong}");
    p.file("t1.json", T1.replace("block <= 128", "block <= 64"));
    let wrong = p.squall(&["import", "t4.json", "t1.json", "--store", "c.squall"]).fails().err;
    assert!(
        wrong.contains("does not allow what was measured") && wrong.contains("block=128"),
        "{wrong}"
    );
    assert!(!p.path().join("c.squall").exists(), "nothing is stored of a wrong import");
}

#[test]
fn trials_of_our_own_are_given_out_too() {
    let p = Place::new();
    p.squall(&["init"]).ok();
    p.squall(&["tune", "kernel.toml", "--trials", "4"]).ok();
    let both = p.squall(&["records", "export", "--format", "t4", "--output", "x.json"]).fails().err;
    assert!(both.contains("several are chosen") && both.contains("--task"), "{both}");
    assert!(!p.path().join("x.json").exists());
    p.squall(&[
        "records",
        "export",
        "--format",
        "kernel-tuner",
        "--name",
        "axpy_small",
        "--output",
        "x.json",
    ])
    .ok();
    let i = p.squall(&["import", "x.json", "--store", "b.squall", "--json"]).ok().json();
    assert_eq!(i["imported"][0]["new"], 4, "{i}");
    // The median of our windows is the time that others see.
    let time = |store: &str| {
        let shown = p
            .squall(&[
                "records",
                "show",
                "--store",
                store,
                "--kind",
                "trial",
                "--name",
                "axpy_small",
                "--json",
            ])
            .ok()
            .json();
        let mut t: Vec<f64> = shown["records"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|r| r["time_ns"].as_f64())
            .collect();
        t.sort_by(f64::total_cmp);
        t
    };
    for (ours, theirs) in time("tuned.squall").iter().zip(time("b.squall")) {
        assert!((ours - theirs).abs() <= 1e-9 * ours, "{ours} {theirs}");
    }
    assert_eq!(p.squall(&["records", "export", "--tunable", "own"]).code, Some(2));
}

/// Records that stand before a cut are taken, and what is left out is said.
#[test]
fn a_cache_that_is_cut_inside_a_record_is_taken_up_to_it() {
    let p = Place::new();
    let whole = cache();
    let begins = whole.rmatch_indices("\"128,").next().unwrap().0;
    let ends = whole.rfind('}').unwrap();
    for cut in [begins + 1, begins + 9, (begins + ends) / 2, ends - 1] {
        p.file("cut.json", &whole[..cut]);
        let store = format!("{cut}.squall");
        let ran = p.squall(&["import", "cut.json", "--store", &store]).ok();
        assert!(ran.err.contains("cut short: 5 whole records"), "{}", ran.err);
        assert_eq!(trials(&p, &store).len(), 5);
        let again = p.squall(&["import", "cut.json", "--store", &store, "--json"]).ok().json();
        let taken = &again["imported"][0];
        assert!(taken["note"].as_str().unwrap().contains("left out"), "{taken}");
        assert_eq!((&taken["new"], &taken["known"]), (&0.into(), &5.into()));
    }
    p.file(
        "two.json",
        format!("{}}}}}\n{}}}}}", whole.trim_end().trim_end_matches(','), "{\"cache\": {"),
    );
    let e = p.squall(&["import", "two.json"]).fails().err;
    assert!(e.contains("there is more: `{"), "{e}");
}

/// Configurations of a store are lists between commas, and values may have such, too.
#[test]
fn values_with_commas_go_through_a_store() {
    let p = Place::new();
    let entry = |key: &str, flags: &str, time: f64| {
        format!("\"{key},8\": {{\"flags\": \"{flags}\", \"n\": 8, \"time\": {time}}}")
    };
    let entries = [entry("-O2,-g", "-O2,-g", 0.5), entry("-O2", "-O2", 0.25)].join(", ");
    p.file(
        "commas.json",
        format!(
            "{{\"kernel_name\": \"k\", \"problem_size\": 4, \"tune_params\": {{\"flags\": \
             [\"-O2\", \"-O2,-g\"], \"n\": [8]}}, \"cache\": {{{entries}}}}}"
        ),
    );
    let taken = p.squall(&["import", "commas.json", "--store", "a.squall", "--json"]).ok().json();
    assert_eq!(
        (&taken["imported"][0]["new"], &taken["imported"][0]["left_out"]),
        (&2.into(), &0.into())
    );
    for form in ["kernel-tuner", "t4"] {
        let to = format!("{form}.json");
        let export = ["records", "export", "--format", form, "--store", "a.squall"];
        p.squall(&[&export[..], &["--output", &to]].concat()).ok();
        let again = p.squall(&["import", &to, "commas.json", "--store", "b.squall"]).ok();
        assert!(!again.err.contains("warning"), "{}", again.err);
    }
    let of = |store| trials(&p, store).into_iter().map(|t| t.1).collect::<Vec<_>>();
    assert!(of("a.squall").iter().all(|outcome| of("b.squall").contains(outcome)));
}

#[test]
fn what_cannot_be_imported_is_said() {
    let p = Place::new();
    p.file("text.json", "hello");
    p.file("cut.json.gz", [0x1f, 0x8b, 8, 0]);
    p.file("good.json", cache());
    for (file, words) in [
        ("text.json", "not readable as JSON"),
        ("cut.json.gz", "cut short"),
        ("none.json", "cannot read `none.json`"),
    ] {
        // The good one beside it is not stored either.
        let e = p.squall(&["import", "good.json", file]).fails().err;
        assert!(e.contains(words), "{e}");
        assert!(!p.path().join("tuned.squall").exists());
    }
    p.squall(&["import", "good.json"]).ok();
    let none = p.squall(&["records", "export", "--format", "t4", "--name", "nobody"]).fails().err;
    assert!(none.contains("no trial is chosen"), "{none}");
    let gone = p
        .squall(&["records", "export", "--format", "t4", "--output", "no/such/folder.json"])
        .fails()
        .err;
    assert!(gone.contains("cannot write"), "{gone}");
}

/// A Python that has Kernel Tuner, where there is one.
fn kernel_tuner() -> Option<String> {
    let named = std::env::var("SQUALL_TEST_PYTHON").ok();
    let beside = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../peers-venv/bin/python")
        .display()
        .to_string();
    let has = |python: &String| {
        Command::new(python)
            .args(["-c", "import kernel_tuner"])
            .output()
            .is_ok_and(|o| o.status.success())
    };
    let found = named.into_iter().chain([beside, "python3".into()]).find(has);
    if found.is_none() {
        println!(
            "skipped: no Python here has Kernel Tuner (`pip install kernel-tuner`; \
             SQUALL_TEST_PYTHON names one)"
        );
    }
    found
}

/// Runs its simulation mode over a file, every configuration in turn.
const SIMULATION: &str = "
import sys, kernel_tuner
results, env = kernel_tuner.tune_cache(sys.argv[1], strategy='brute_force', quiet=True)
good = [r for r in results if '__error__' not in r]
best = min(good, key=lambda r: r['time'])
print(env['device_name'], len(good), best['block'], repr(best['how']), repr(best['time']))
";

#[test]
fn kernel_tuner_simulates_what_is_exported() {
    let Some(python) = kernel_tuner() else { return };
    let p = Place::new();
    p.file("c.json", cache());
    p.squall(&["import", "c.json"]).ok();
    p.squall(&["records", "export", "--format", "kernel-tuner", "--output", "k.json"]).ok();
    let ran = Command::new(python)
        .args(["-c", SIMULATION, "k.json"])
        .current_dir(p.path())
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&ran.stdout).into_owned(),
        String::from_utf8_lossy(&ran.stderr).into_owned(),
    );
    let time = 0.1 + 1.0 / 3.0;
    assert_eq!(
        out.trim().lines().last(),
        Some(&*format!("Some GPU 3 32 False {time}")),
        "{out}{err}"
    );
}
