//! Tests of the readers and writers of recordings (spaces that other tuners measured): made files
//! of Kernel Tuner, T1 and T4, files that are cut or hostile, and the community's real files where
//! the shared folder has them.

use super::*;
use proptest::prelude::*;
use squall_core::space::{Names, Term};
use std::path::{Path, PathBuf};

const CACHE: &str = r#"{ "device_name": "Some GPU", "kernel_name": "saxpy", "problem_size": 4096,
  "tune_params_keys": ["block", "tile", "fixed", "how"],
  "tune_params": {"block": [64, 32], "tile": [1, 2], "fixed": [7], "how": [true, false]},
  "objective": "time",
  "cache": {
    "32,1,7,True": {"block": 32, "time": 0.52, "times": [0.55, 0.51], "compile_time": 310.2,
      "verification_time": 2, "benchmark_time": 1.5},
    "64,2,7,True": {"time": "RuntimeFailedConfig", "compile_time": 290.0, "GFLOP/s": 3.0},
    "64,1,7,False": {"time": "CompilationFailedConfig"},
    "32,2,7,False": {"time": 1e20},
    "32,2,7,True": {"time": NaN},
    "64,1,7,True": {"time": 0.3, "__error__": "InvalidConfig"},
    "64,2,7,False": {"time": 0.25},
"#;

fn closed(text: &str) -> String {
    format!("{}}} }}", text.trim_end().trim_end_matches(','))
}

fn words(r: &Recording) -> Vec<String> {
    let word = |o: &Outcome| match o {
        Outcome::Right { .. } => "right".into(),
        Outcome::Measured(m) => format!("{}", m.median().0),
        Outcome::Infeasible(_) => "infeasible".into(),
        Outcome::Failed { stage, .. } => stage.name().into(),
    };
    r.rows.iter().map(|r| format!("{}: {}", r.key, word(&r.outcome))).collect()
}

#[test]
fn a_cache_file_plain_packed_or_interrupted() {
    let want = [
        "32,1,7,True: 520000",
        "32,2,7,False: launch",
        "32,2,7,True: launch",
        "64,1,7,False: build",
        "64,1,7,True: infeasible",
        "64,2,7,False: 250000",
        "64,2,7,True: launch",
    ];
    for bytes in [
        CACHE.as_bytes().to_vec(),
        closed(CACHE).into_bytes(),
        gzip(CACHE.as_bytes()).unwrap(),
        gzip(closed(CACHE).as_bytes()).unwrap(),
    ] {
        let r = read("c.json", &bytes).unwrap();
        assert_eq!(words(&r), want);
        assert_eq!(
            (r.kernel.as_str(), r.device.as_str(), r.maximised, r.space.len()),
            ("saxpy", "Some GPU", false, 7)
        );
        assert_eq!(r.rows[0].cost, CpuCost { build: 0.3102, measure: 0.0035, search: 0.0 });
        assert_eq!(r.optimum(), Some(Nanos(250_000.0)));
        // Rows stand in the space's order.
        assert_eq!(r.space.nth(5).to_string(), "block=64,tile=2,fixed=7,how=False");
    }
}

/// Wherever a search that writes its cache is ended, what it had measured is there.
#[test]
fn a_cache_that_is_cut_anywhere_gives_its_whole_records() {
    let text = closed(&CACHE.replace("Some GPU", "Größe \\\"}{ {"));
    let all = read("c.json", text.as_bytes()).unwrap();
    let ends: Vec<usize> = text.match_indices('}').map(|(i, _)| i + 1).collect();
    // The first ends are those of the device's name and of the parameters' list; the last two those
    // of the cache and the file.
    let records = &ends[2..ends.len() - 2];
    assert_eq!(records.len(), all.rows.len());
    let mut said = 0;
    for cut in records[0]..text.len() {
        let r = read("c.json", &text.as_bytes()[..cut]).unwrap();
        let whole = records.iter().filter(|e| **e <= cut).count();
        assert_eq!(r.rows.len(), whole, "{}", &text[..cut]);
        assert!(r.rows.iter().all(|row| all.rows.contains(row)));
        let note = r.note.expect("it is said");
        let n =
            if whole == 1 { "1 whole record ".into() } else { format!("{whole} whole records ") };
        assert!(note.contains(&n), "{note}");
        said += usize::from(note.contains("left out"));
    }
    assert!(said > 100 && all.note.is_none());
    for cut in 1..records[0] {
        if let Some(cut) = text.as_bytes().get(..cut) {
            let e = read("c.json", cut).unwrap_err().to_string();
            assert!(e.contains("cut short") || e.contains("not readable"), "{e}");
        }
    }
}

#[test]
fn more_than_one_document_is_not_passed_over() {
    let other = r#"{"kernel_name": "another", "cache": {}}"#;
    for between in ["", "\n", "\n\n"] {
        let text = format!("{}{between}{other}", closed(CACHE));
        let e = read("c.json", text.as_bytes()).unwrap_err().to_string();
        let line = closed(CACHE).matches('\n').count() + 1 + between.len();
        assert!(e.contains("another") && e.contains(&format!("line {line}")), "{e}");
    }
    let twice = closed(CACHE).replace("\"objective\"", "\"cache\": {}, \"objective\"");
    let e = read("c.json", twice.as_bytes()).unwrap_err().to_string();
    assert!(e.contains("`cache` is in it twice"), "{e}");
    assert!(read("c.json", format!("{}\n \n", closed(CACHE)).as_bytes()).is_ok());
}

#[test]
fn a_number_that_json_does_not_have_is_none_and_a_word_of_the_same_letters_stays() {
    let text = closed(CACHE).replace("saxpy", "a: NaN, -Infinity").replace("0.25", "[-Infinity]");
    let r = read("c.json", text.as_bytes()).unwrap();
    assert_eq!(r.kernel, "a: NaN, -Infinity");
    assert_eq!(words(&r)[5], "64,2,7,False: launch");
}

#[test]
fn values_may_have_commas() {
    let file = |entries: &str| {
        format!(
            r#"{{"problem_size": 4,
                "tune_params": {{"flags": ["-O2", "-O2,-g", "a", "a,b"], "n": ["b,c", "c", "1"]}},
                "cache": {{{entries}}}}}"#
        )
    };
    let text = file(
        r#""-O2,-g,1": {"time": 1}, "-O2,1": {"time": 2}, "a,b,c": {"flags": "a", "n": "b,c",
           "time": 3}, "a,b,c": {"flags": "a,b", "n": "c", "time": 4}"#,
    );
    let r = read("c.json", text.as_bytes()).unwrap();
    let names: Vec<String> = r.space.iter().map(|c| c.to_string()).collect();
    let times: Vec<f64> = r.rows.iter().map(|r| r.outcome.time().unwrap().0 / 1e6).collect();
    let want = [r"flags=-O2,n=1", r"flags=-O2\,-g,n=1", r"flags=a,n=b\,c", r"flags=a\,b,n=c"];
    assert_eq!((names.as_slice(), times), (&want.map(String::from)[..], vec![2.0, 1.0, 3.0, 4.0]));
    for (c, name) in r.space.iter().zip(&names) {
        assert_eq!(r.space.parse(name).unwrap().to_string(), c.to_string());
    }
    let back = read("c.json", write(&r, Format::KernelTuner).as_bytes()).unwrap();
    alike(&r, &back);
    let d = Description::read("d", r.description().text().as_bytes()).unwrap();
    alike(&read("c.json", text.as_bytes()).unwrap().described("c", &d).unwrap(), &r);
    let e = read("c.json", file(r#""a,b,c": {"time": 1}"#).as_bytes()).unwrap_err().to_string();
    assert!(e.contains("several ways"), "{e}");
    let e = read("c.json", file(r#""a,b,d": {"time": 1}"#).as_bytes()).unwrap_err().to_string();
    assert!(e.contains("no list"), "{e}");
}

#[test]
fn an_objective_that_grows_is_turned_round() {
    let text = closed(CACHE).replace("\"objective\": \"time\"", "\"objective\": [\"GFLOP/s\"]");
    let r = read("c.json", text.as_bytes()).unwrap();
    assert!(r.maximised);
    assert_eq!(words(&r)[6], format!("64,2,7,True: {}", 1e9 / 3.0));
}

#[test]
fn results_in_t4() {
    let result = |block: i64, invalidity: &str, value: &str| {
        format!(
            r#"{{"configuration": {{"block": {block}, "tile": 1}},
               "times": {{"compilation": 290.0, "validation": 10, "runtimes": [4, 6]}},
               "invalidity": "{invalidity}", "measurements": [{{"name": "time", "value": {value}}}],
               "objectives": ["time"]}}"#
        )
    };
    let kinds = ["compile", "runtime", "timeout", "correctness", "constraints"];
    let mut all: Vec<String> = kinds
        .iter()
        .enumerate()
        .map(|(i, k)| result(i as i64, k, "\"RuntimeFailedConfig\""))
        .collect();
    all.push(result(9, "correct", "0.5"));
    let text = format!(
        r#"{{"metadata": {{"timeunit": "miliseconds"}}, "schema_version": "1.0.0",
            "results": [{}]}}"#,
        all.join(",")
    );
    let r = read("t4.json", text.as_bytes()).unwrap();
    let want = [
        "0,1: build",
        "1,1: launch",
        "2,1: timeout",
        "3,1: wrong_answer",
        "4,1: infeasible",
        "9,1: 500000",
    ];
    assert_eq!(words(&r), want);
    assert_eq!(r.rows[5].cost, CpuCost { build: 0.29, measure: 0.02, search: 0.0 });
}

/// The same rows, but for the rounding of what was spent.
fn alike(a: &Recording, b: &Recording) {
    assert_eq!(a.description(), b.description());
    assert_eq!(a.rows.len(), b.rows.len());
    for (a, b) in a.rows.iter().zip(&b.rows) {
        assert_eq!((&a.key, &a.outcome), (&b.key, &b.outcome));
        assert!((a.cost.total() - b.cost.total()).abs() < 1e-12, "{:?} {:?}", a.cost, b.cost);
    }
}

#[test]
fn what_is_written_is_read() {
    // Times that are no round numbers, failures of every class, and values of every type.
    let all = ["CompilationFailedConfig", "RuntimeFailedConfig", "a\n\"word\" of ours"];
    let mut outcomes: Vec<Outcome> =
        (1..40).map(|i| outcome_of(Some(f64::from(i) / 7.0), false)).collect();
    outcomes.extend(
        [FailStage::Build, FailStage::Launch, FailStage::Timeout, FailStage::WrongAnswer]
            .map(|s| failed(s, "why")),
    );
    outcomes.extend(all.map(failure));
    outcomes.push(Outcome::Infeasible("so".into()));
    let n = outcomes.len();
    let knobs = vec![
        Knob::ints("a", Role::Choice, 0..n as i64 + 1),
        knob_of_spellings("how", &["True".into(), "False".into()]),
        knob_of_spellings("x", &["1.5".into(), "0.25".into(), "1e-7".into()]),
        knob_of_spellings("word", &["-O2".into(), String::new(), "é\"".into()]),
    ];
    for objective in ["time", "GFLOP/s"] {
        let (kernel, problem) = ("k\"".to_string(), "[3,\"n\"]".to_string());
        let d = Description {
            kernel,
            problem,
            objective: objective.into(),
            knobs: knobs.clone(),
            conditions: Vec::new(),
        };
        let trial = |(i, o): (usize, &Outcome)| {
            let values = vec![
                i.to_string(),
                "False".into(),
                knobs[2].values[i % 3].to_string(),
                knobs[3].values[i % 3].to_string(),
            ];
            // As the file would have it: times in this objective's own numbers.
            let o = match o {
                Outcome::Measured(_) => outcome_of(Some((i + 1) as f64 / 7.0), objective != "time"),
                other => other.clone(),
            };
            // A trial costs no less than its run.
            let run = o.time().map_or(0.0, |t| t.0 / 1e9);
            (
                values,
                o,
                CpuCost {
                    build: 0.1 * i as f64,
                    measure: run + 0.3 + i as f64 / 11.0,
                    search: 0.0,
                },
            )
        };
        let r = Recording::new(
            "r",
            d.clone(),
            "a device",
            outcomes.iter().enumerate().map(trial).collect(),
        )
        .unwrap();
        let text = write(&r, Format::KernelTuner);
        assert!(text.ends_with("}\n}"), "Kernel Tuner takes it for interrupted");
        let back = read("k", text.as_bytes()).unwrap();
        assert_eq!((&*back.device, back.maximised), ("a device", objective != "time"));
        // Kernel Tuner's words stand for what was said of a failure.
        let stage = |o: &Outcome| match o {
            Outcome::Failed { stage, .. } => format!("{stage:?}"),
            Outcome::Infeasible(_) => "infeasible".into(),
            Outcome::Measured(m) => format!("{m:?}"),
            Outcome::Right { .. } => "right".into(),
        };
        assert_eq!(back.description(), d);
        for (a, b) in r.rows.iter().zip(&back.rows) {
            assert_eq!((&a.key, stage(&a.outcome)), (&b.key, stage(&b.outcome)));
            assert!((a.cost.total() - b.cost.total()).abs() < 1e-12, "{:?} {:?}", a.cost, b.cost);
        }
        // T4 keeps those too, but neither the problem nor the order and unused values of
        // parameters.
        let packed = gzip(write(&r, Format::T4).as_bytes()).unwrap();
        let t4 = read("t4", &packed).unwrap();
        assert_eq!(t4.space.knob("a"), Some(0));
        alike(
            &t4.described("t4", &Description::read("t1", d.text().as_bytes()).unwrap()).unwrap(),
            &r,
        );
    }
}

#[test]
fn descriptions_are_read_as_they_are_written() {
    let text = r#"{"ConfigurationSpace": {"TuningParameters": [
        {"Name": "a", "Values": "[1, 2] + [8]"}, {"Name": "b", "Values": [true, "x", 1.5]}],
        "Conditions": [{"Expression": "a > 1", "Parameters": ["a"]}]},
        "KernelSpecification": {"KernelName": "k", "ProblemSize": [1, "n"]}}"#;
    let d = Description::read("d", text.as_bytes()).unwrap();
    assert_eq!(
        (&*d.kernel, &*d.problem, &*d.objective, d.conditions.len()),
        ("k", "[1,\"n\"]", "time", 1)
    );
    assert_eq!(Description::read("d", d.text().as_bytes()).unwrap(), d);
    assert_eq!(d.space("d").unwrap().len(), 2 * 3);
}

#[test]
fn hostile_files_end_in_a_message() {
    let packed = gzip(CACHE.as_bytes()).unwrap();
    let entries = |body: &str| {
        format!(r#"{{"tune_params": {{"a": [1, 2]}}, "cache": {{{body}}}}}"#).into_bytes()
    };
    for (bytes, want) in [
        (packed[..packed.len() / 2].to_vec(), "cut short"),
        (vec![0x1f, 0x8b, 9, 9], "damaged"),
        (vec![0xff, 0xfe, 0], "neither gzip nor UTF-8"),
        (b"".to_vec(), "not readable as JSON"),
        (b"[1]".to_vec(), "not readable as JSON"),
        (b"{}".to_vec(), "without `cache`"),
        (br#"{"ConfigurationSpace": 1}"#.to_vec(), "T1"),
        (entries(""), "not one configuration"),
        (entries(r#""3": {"time": 1}"#), "`3`, which its parameter does not list"),
        (entries(r#""1,2": {"time": 1}"#), "has 2 values for 1 parameters"),
        (entries(r#""1": {"time": 1}, "1": {"time": 2}"#), "`1` is in it twice"),
        (entries(r#""1": 5"#), "the cache is not readable"),
        (
            br#"{"tune_params_keys": ["b"], "tune_params": {}, "cache": {}}"#.to_vec(),
            "lacks the parameter `b`",
        ),
        (br#"{"results": []}"#.to_vec(), "`results` is empty"),
    ] {
        let e = read("x.json", &bytes).unwrap_err().to_string();
        assert!(e.contains(want) && e.starts_with("x.json: "), "{e}");
    }
    for (text, want) in [
        ("{", "not readable"),
        (r#"{"ConfigurationSpace": {}}"#, "no `TuningParameters`"),
        (
            r#"{"ConfigurationSpace": {"TuningParameters": [{"Name": "a", "Values": "[1, 2"}]}}"#,
            "the values of `a`: line 2, column 1",
        ),
        (
            r#"{"ConfigurationSpace": {"TuningParameters": [{"Name": "block", "Values": "[1]"}],
                "Conditions": [{"Expression": "blok > 1"}]}}"#,
            "there is no knob `blok` (did you mean `block`?)",
        ),
        (
            r#"{"ConfigurationSpace": {"TuningParameters": [{"Name": "a", "Values": "[1]"}],
                "Conditions": [{"Expression": "a > 1"}]}}"#,
            "no configuration satisfies all constraints",
        ),
    ] {
        let e = read_space("x.json", text.as_bytes()).unwrap_err().to_string();
        assert!(e.contains(want), "{e}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        cut in 0usize..CACHE.len(),
        at in 0usize..CACHE.len(),
        byte in any::<u8>(),
    ) {
        let mut bytes = CACHE.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = read("x", &bytes[..cut]);
        let _ = read("x", &bytes);
        let _ = read_space("x", &bytes);
    }
}

/// The measured spaces that lie beside the repository, if they are there.
fn data() -> Option<PathBuf> {
    squall_testing::shared("replay")
}

fn recording(folder: &Path, name: &str) -> Recording {
    let file = folder.join(format!("{name}.json.gz"));
    read(name, &std::fs::read(file).unwrap()).unwrap()
}

fn same_keys(space: &Space, r: &Recording) {
    assert_eq!(space.len(), r.space.len());
    for c in r.space.iter() {
        assert!(space.parse(&c.to_string()).is_ok(), "{c}");
    }
}

#[test]
fn descriptions_select_exactly_the_keys_of_the_caches() {
    let Some(folder) = data() else { return };
    for (t1, cache) in [
        ("convolution", "convolution-A100"),
        ("convolution_bo", "convolution_bo-RTX_3090"),
        ("dedispersion", "dedispersion-W6600"),
        ("pnpoly", "pnpoly-RTX_3090"),
    ] {
        let space =
            read_space(t1, &std::fs::read(folder.join(format!("t1/{t1}.json"))).unwrap()).unwrap();
        same_keys(&space, &recording(&folder, cache));
    }
    let r = recording(&folder, "gemm_clblast-RTX_3090");
    let names = Names { knobs: r.space.knobs(), constants: &[] };
    let texts = [
        "KWG % KWI == 0",
        "MWG % (MDIMC * VWM) == 0",
        "NWG % (NDIMC * VWN) == 0",
        "MWG % (MDIMA * VWM) == 0",
        "NWG % (NDIMB * VWN) == 0",
        "KWG % ((MDIMC * NDIMC)/MDIMA) == 0",
        "KWG % ((MDIMC * NDIMC)/NDIMB) == 0",
    ];
    let constraints: Vec<Term> = texts.iter().map(|t| Term::parse(t, names).unwrap()).collect();
    same_keys(&Space::new(r.space.knobs().to_vec(), &constraints).unwrap(), &r);
}

#[test]
fn the_same_space_as_cache_and_as_results() {
    let Some(folder) = data() else { return };
    let (cache, results) =
        (recording(&folder, "convolution-A100"), recording(&folder, "t4/convolution-A100_T4"));
    assert_eq!(cache.space.len(), results.space.len());
    let ran = |r: &Recording| r.rows.iter().filter(|r| r.outcome.time().is_some()).count();
    assert_eq!((ran(&cache), ran(&results)), (4362 - 161, 4362 - 161));
    assert_eq!(cache.optimum(), results.optimum());
}
