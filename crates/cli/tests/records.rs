//! Tests of `squall records`: list, show, export, merge and verify, and the error for a file that
//! is no store.

use crate::support;

use support::{Place, SMALL};

#[test]
fn records_are_listed_shown_exported_and_merged() {
    let p = Place::new();
    p.squall(&["tune", SMALL, "--trials", "4", "--store", "a.squall"]).ok();
    p.squall(&["tune", "matmul m=16 n=16 k=16", "--trials", "3", "--store", "b.squall"]).ok();
    let list = p.squall(&["records", "list", "--store", "a.squall", "--json"]).ok().json();
    assert_eq!(list["tasks"][0]["trials"], 4);
    assert!(list["tasks"][0]["best_ns"].as_f64().unwrap() > 0.0);
    assert!(list["tasks"][0]["untuned_ns"].as_f64().unwrap() > 0.0);
    assert!(p.squall(&["records", "list", "--store", "a.squall"]).ok().out.contains("matmul"));
    let shown = p
        .squall(&[
            "records", "show", "--store", "a.squall", "--limit", "2", "--kind", "trial", "--json",
        ])
        .ok()
        .json();
    assert_eq!(shown["records"].as_array().unwrap().len(), 2);
    let lines = p.squall(&["records", "export", "--store", "a.squall", "--kind", "trial"]).ok().out;
    assert_eq!(lines.lines().count(), 4);
    p.squall(&["records", "export", "--store", "a.squall", "--out", "a.jsonl"]).ok();
    let merged = p
        .squall(&["records", "merge", "a.jsonl", "b.squall", "--store", "c.squall", "--json"])
        .ok()
        .json();
    assert!(merged["new"].as_u64().unwrap() >= 9 && merged["known"] == 0, "{merged}");
    let again = p
        .squall(&["records", "merge", "a.squall", "b.squall", "--store", "c.squall", "--json"])
        .ok()
        .json();
    assert_eq!(again["new"], 0);
    assert_eq!(
        p.squall(&["records", "list", "--store", "c.squall", "--json"]).ok().json()["tasks"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    // A merged store is known to tuning like one's own.
    let report =
        p.squall(&["tune", SMALL, "--trials", "1", "--store", "c.squall", "--json"]).ok().json();
    assert_eq!(report["tasks"][0]["known"], 4);
}

#[test]
fn what_is_no_store_is_an_error() {
    let p = Place::new();
    assert!(p.squall(&["records", "list"]).fails().err.contains("tuned.squall"));
    p.file("lines", "{\"kind\": \"nonsense\"}\n");
    let e = p.squall(&["records", "merge", "lines"]).fails();
    assert!(e.err.contains("lines") && e.err.contains("line 1"), "{}", e.err);
    p.file("x.squall", "garbage, and enough of it for a header");
    p.squall(&["records", "merge", "x.squall"]).fails();
    p.squall(&["records", "best", "--store", "x.squall"]).fails();
}

#[test]
fn winners_are_verified_against_their_runners_up() {
    let p = Place::new();
    p.squall(&["tune", "matmul m=48 n=48 k=48", "--trials", "8", "--seed", "1"]).ok();
    let before = p.squall(&["records", "list", "--json"]).ok().json()["records"].as_u64().unwrap();
    let ran = p.squall(&["records", "verify", "--repeat", "3", "--json"]);
    let v = ran.json();
    let task = &v["tasks"][0];
    let verdict = task["verdict"].as_str().unwrap();
    let failed = verdict == "overtaken" || task["contradicted"] == true;
    assert_eq!(ran.code, Some(i32::from(failed)), "{v}");
    assert!(["holds", "tie", "overtaken"].contains(&verdict), "{v}");
    assert!(task["winner"]["now_ns"].as_f64().unwrap() > 0.0);
    let rounds = task["rounds"].as_array().unwrap();
    assert!(rounds.len() == 3 && rounds.iter().all(|r| r["pairs"].as_u64().unwrap() >= 12), "{v}");
    assert_eq!(
        (&rounds[0]["challenger"], &rounds[1]["challenger"]),
        (&"runner_up".into(), &"winner".into())
    );
    assert_eq!(v["counts"][verdict], 1);
    for r in rounds {
        let (ratio, confidence) = (r["ratio"].as_f64().unwrap(), r["confidence"].as_f64().unwrap());
        assert!(ratio > 0.0 && (0.0..=1.0).contains(&confidence), "{v}");
        assert!(
            r["verdict"] != "faster" || ratio < 1.0 / 1.01,
            "a challenger was accepted that is not faster: {v}"
        );
    }
    // What the first round measured is kept, and says which candidate holds the task.
    let after = p.squall(&["records", "list", "--json"]).ok().json()["records"].as_u64().unwrap();
    assert_eq!(after - before, if task["runner_up"].is_null() { 1 } else { 2 });
    let best = &p.squall(&["records", "best", "--json"]).ok().json()["best"][0];
    let winner = if verdict == "overtaken" { &task["runner_up"] } else { &task["winner"] };
    assert_eq!(
        (&best["kind"], &best["configuration"]),
        (&"rematch".into(), &winner["configuration"])
    );
    let table = p.squall(&["records", "verify", "--only", "matmul*"]);
    assert!(table.out.contains("verdict") && table.out.contains("1 winners"), "{}", table.out);
    assert!(p.squall(&["records", "verify", "--only", "conv"]).fails().err.contains("no winner"));
    p.squall(&["records", "verify", "--store", "none.squall"]).fails();
}
