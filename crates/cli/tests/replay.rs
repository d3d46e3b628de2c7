//! Tests of `squall replay`, which compares search strategies on a recording: scores, traces, the
//! page, budgets in seconds, interrupts and unreadable files.

use crate::support;

use support::Place;

/// A space of 48 configurations: time falls towards the middle, one corner fails.
fn cache() -> String {
    let mut entries = Vec::new();
    for a in 1..=8i64 {
        for b in 0..6i64 {
            let time = if a * b > 34 {
                "\"RuntimeFailedConfig\"".into()
            } else {
                format!("{}", 1.0 + ((a - 5).pow(2) + (b - 3).pow(2)) as f64)
            };
            entries.push(format!(r#""{a},{b}": {{"time": {time}, "compile_time": 100}}"#));
        }
    }
    format!(
        r#"{{"tune_params": {{"a": [1,2,3,4,5,6,7,8], "b": [0,1,2,3,4,5]}}, "cache": {{{}}}}}"#,
        entries.join(",")
    )
}

#[test]
fn it_scores_all_strategies_and_writes_traces() {
    let p = Place::new();
    p.file("made.json", cache());
    let ran = p
        .squall(&[
            "replay",
            "made.json",
            "--strategy",
            "all",
            "--seeds",
            "4",
            "--evaluations",
            "30",
            "--traces",
            "t.jsonl",
            "--json",
        ])
        .ok();
    let reports: Vec<serde_json::Value> =
        ran.out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert!(reports.len() > 8);
    let ours = &reports[0];
    assert_eq!(ours["strategy"], "evolution+droplet");
    assert!(ours["score"].as_f64().is_some_and(|s| s > 0.5), "{ours}");
    let traces = std::fs::read_to_string(p.path().join("t.jsonl")).expect("traces");
    assert_eq!(traces.lines().count(), reports.len() * 4);
    for l in traces.lines() {
        let t: serde_json::Value = serde_json::from_str(l).expect("JSON");
        assert_eq!(
            (t["space"].as_str(), t["trace"].as_array().map(Vec::len)),
            (Some("made"), Some(30)),
            "{l}"
        );
    }
    let table = p.squall(&["replay", "made.json", "--seeds", "2", "--seconds", "0.95"]).ok();
    assert!(table.out.contains("evolution+droplet") && table.out.contains("made"), "{}", table.out);
    assert!(table.err.contains("2 runs, 20 trials"), "{}", table.err);
}

#[test]
fn what_it_cannot_read_is_said() {
    let p = Place::new();
    p.file("no.json", "{\"cache\": {");
    assert!(p.squall(&["replay", "no.json"]).fails().err.contains("ahead of the end of its first"));
    assert!(p.squall(&["replay", "absent.json"]).fails().err.contains("cannot read `absent.json`"));
    let failed = r#"{"tune_params": {"a": [1, 2]},
        "cache": {"1": {"time": "CompilationFailedConfig"}, "2": {"time": NaN}}}"#;
    p.file("failed.json", failed);
    assert!(p.squall(&["replay", "failed.json"]).fails().err.contains("nothing in it ran"));
    p.file("one.json", r#"{"tune_params": {"a": [1]}, "cache": {"1": {"time": 3}}}"#);
    p.squall(&["replay", "one.json"]).ok();
    let wrong = p.squall(&["replay", "one.json", "--strategy", "nobody"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("there is no strategy `nobody`"), "{}", wrong.err);
}

#[test]
fn the_page_shows_curves_beside_even_draws() {
    let p = Place::new();
    p.file("made.json", cache());
    let ran = p
        .squall(&[
            "replay",
            "made.json",
            "--strategy",
            "random",
            "--strategy",
            "climb",
            "--seeds",
            "3",
            "--evaluations",
            "40",
        ])
        .ok();
    assert!(ran.err.contains("page: replay.html"), "{}", ran.err);
    let page = std::fs::read_to_string(p.path().join("replay.html")).unwrap();
    // A large plot and one for the space: even draws and two strategies on each.
    assert_eq!(page.matches("<polyline").count(), 2 * 3, "{page}");
    for part in
        ["even draws", "climb", "random", "made <small>48 configurations", "</svg>", "at 25"]
    {
        assert!(page.contains(part), "{part}");
    }
    for foreign in ["<script", "src=", "href=", "url(", "NaN", "inf,"] {
        assert!(!page.contains(foreign), "the page contains {foreign}");
    }
    let e = p
        .squall(&["replay", "made.json", "--seeds", "1", "--report", "no/folder.html"])
        .fails()
        .err;
    assert!(e.contains("cannot write `no/folder.html`"), "{e}");
}

#[test]
fn seconds_end_a_run_and_say_so() {
    let p = Place::new();
    p.file("made.json", cache());
    // Every trial cost 0.1 s of compiling: the run ends with the one that reaches the second.
    let args = [
        "replay",
        "made.json",
        "--strategy",
        "climb",
        "--seeds",
        "2",
        "--seconds",
        "1",
        "--traces",
        "t.jsonl",
    ];
    p.squall(&args).ok();
    let traces = std::fs::read_to_string(p.path().join("t.jsonl")).unwrap();
    for l in traces.lines() {
        let t: serde_json::Value = serde_json::from_str(l).unwrap();
        let n = t["trace"].as_array().unwrap().len();
        assert!(n == 10 || n == 11, "{n}: sums of 0.1 may miss 1 by rounding");
    }
    assert!(
        std::fs::read_to_string(p.path().join("replay.html"))
            .unwrap()
            .contains("had cost 1 s as recorded")
    );
    assert_eq!(p.squall(&["replay", "made.json", "--seconds", "0"]).code, Some(2));
}

#[test]
fn an_interrupt_ends_with_whole_runs_only() {
    let p = Place::new();
    p.file("made.json", cache());
    let args = [
        "replay",
        "made.json",
        "--strategy",
        "random",
        "--strategy",
        "bayes",
        "--seeds",
        "100000",
        "--evaluations",
        "48",
        "--traces",
        "t.jsonl",
    ];
    let mut child = p
        .command(&args)
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(800));
    let sent = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    let began = std::time::Instant::now();
    let code = child.wait().unwrap().code();
    assert!(began.elapsed().as_secs() < 20, "it ends soon");
    let ran: support::Ran = child.wait_with_output().unwrap().into();
    assert_eq!(code, Some(130), "{}", ran.err);
    assert!(
        ran.err.contains("left out, because not all of their runs ended:")
            && ran.err.contains("bayes"),
        "{}",
        ran.err
    );
    let traces = std::fs::read_to_string(p.path().join("t.jsonl")).unwrap();
    for l in traces.lines() {
        let t: serde_json::Value = serde_json::from_str(l).expect("whole lines");
        assert_eq!(t["trace"].as_array().unwrap().len(), 48);
    }
}
