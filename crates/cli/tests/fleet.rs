//! Tests of tuning with several processes: shards that share a folder of records, and workers and
//! builders on a PostgreSQL server, while workers or the server are killed. Where PostgreSQL is not
//! installed the server's tests are skipped.

#![cfg(feature = "fleet")]

use crate::support;

use squall_testing::postgres::{Server, server};
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::{Place, SMALL, reported};

const KERNELS: &str =
    "a: matmul m=32 n=32 k=32\nb: matmul m=16 n=32 k=64\nc: softmax rows=16 cols=64\n";

/// A server with a fleet, and a folder to work in.
fn fleet() -> Option<(Server, Place, String)> {
    let server = server()?;
    server.sql("postgres", "CREATE DATABASE squall");
    let url = server.url("squall", "squall");
    let p = Place::new();
    p.file("kernels.ops", KERNELS);
    p.squall(&["fleet", "init", &url]).ok();
    Some((server, p, url))
}

fn worker(p: &Place, url: &str, store: &str, more: &[&str]) -> Child {
    let mut words = vec!["worker", "--server", url, "--store", store, "--json"];
    words.extend(more);
    within_bound(p.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// A process that is killed after five minutes, when what waits for it has waited in vain: a test
/// fails then, and does not wait for ever.
fn within_bound(child: Child) -> Child {
    let pid = child.id();
    let start = move || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The 22nd word is when it started: another process may have its number by then.
    let started = move || start().split_whitespace().nth(21).map(str::to_string);
    let first = started();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(300));
        if first.is_some() && started() == first {
            let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    });
    child
}

/// The records that the fleet has, as the identities of its trials.
fn pulled(p: &Place, url: &str) -> Vec<String> {
    let _ = std::fs::remove_file(p.path().join("pulled.squall"));
    p.squall(&["fleet", "pull", "--server", url, "--store", "pulled.squall"]).ok();
    trials(p, "pulled.squall")
}

fn trials(p: &Place, store: &str) -> Vec<String> {
    let words = ["records", "show", "--kind", "trial", "--json", "--store", store];
    let shown = p.squall(&words).ok().json();
    let records = shown["records"].as_array().unwrap();
    records.iter().map(|r| r["identity"].as_str().unwrap().to_string()).collect()
}

#[test]
fn two_workers_make_each_trial_once_and_lose_none() {
    let Some((_server, p, url)) = fleet() else { return };
    let words = [
        "fleet",
        "submit",
        "kernels.ops",
        "--server",
        &url,
        "--trials-per-task",
        "12",
        "--slice",
        "4",
        "--json",
    ];
    let job = p.squall(&words).ok().json();
    assert_eq!((job["tasks"].as_u64(), job["trials"].as_u64()), (Some(3), Some(36)));
    let both: Vec<Child> =
        ["a.squall", "b.squall"].map(|s| worker(&p, &url, s, &["--until-idle"])).into();
    let mut made = 0;
    for child in both {
        let out = child.wait_with_output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        made += last["trials"].as_u64().unwrap();
    }
    assert_eq!(made, 36);
    let all = pulled(&p, &url);
    assert_eq!(all.len(), 36);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 36, "a trial was made twice");
    let jobs = p.squall(&["fleet", "jobs", "--server", &url, "--json"]).ok().json();
    assert_eq!(jobs["jobs"][0]["state"], "done");
    // What the fleet has goes back where it came from, and nothing is new.
    let push = p.squall(&["fleet", "push", "--server", &url, "--store", "pulled.squall"]).ok();
    assert!(push.out.starts_with("0 of "), "{}", push.out);
    let best = p.squall(&["records", "best", "--store", "pulled.squall", "--json"]).ok().json();
    assert_eq!(best["best"].as_array().unwrap().len(), 3);
    let status = p.squall(&["fleet", "status", "--server", &url]).ok();
    assert!(status.out.contains("done"), "{}", status.out);
}

#[test]
fn a_worker_that_is_killed_loses_nothing_and_another_goes_on() {
    let Some((_server, p, url)) = fleet() else { return };
    let words =
        ["fleet", "submit", SMALL, "--server", &url, "--trials-per-task", "40", "--slice", "20"];
    p.squall(&words).ok();
    let mut first = worker(&p, &url, "a.squall", &["--lease", "2"]);
    let mut seen = Vec::new();
    for line in BufReader::new(first.stdout.take().unwrap()).lines() {
        seen.extend(reported(&line.unwrap()));
        if seen.len() == 6 {
            first.kill().unwrap();
        }
    }
    first.wait().unwrap();
    assert!(seen.len() >= 6, "the worker made {} trials", seen.len());
    // The other one takes the slice over when the lease is over.
    let start = Instant::now();
    let second = worker(&p, &url, "b.squall", &["--lease", "2"]);
    while p.squall(&["fleet", "jobs", "--server", &url, "--json"]).ok().json()["jobs"][0]["state"]
        != "done"
    {
        assert!(start.elapsed() < Duration::from_secs(240), "the job never ends");
        std::thread::sleep(Duration::from_millis(300));
    }
    squall_ends(second);
    // A worker that returns sends what its own store kept.
    let again = worker(&p, &url, "a.squall", &["--until-idle"]);
    assert!(again.wait_with_output().unwrap().status.success());
    let there: HashSet<String> = pulled(&p, &url).into_iter().collect();
    assert!(seen.iter().all(|id| there.contains(id)), "a reported trial is missing");
    for store in ["a.squall", "b.squall"] {
        assert!(trials(&p, store).iter().all(|id| there.contains(id)), "{store}");
    }
    let jobs = p.squall(&["fleet", "jobs", "--server", &url, "--json"]).ok().json();
    assert_eq!(jobs["jobs"][0]["deaths"], 1);
}

/// Nothing is heard of a worker while a compiler takes longer than its lease.
#[test]
fn a_slow_compiler_costs_no_lease() {
    if squall_testing::is_left_to_full("fleet::a_slow_compiler_costs_no_lease") {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let Some((_server, p, url)) = fleet() else { return };
    let slow = "#!/bin/sh\nfor a in \"$@\"; do case \"$a\" in *.c) grep -q 'made by Squall' \
                \"$a\" && sleep 2;; esac; done\nexec cc \"$@\"\n";
    let compiler = p.file("slow-cc", slow);
    std::fs::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = |words: &[&str]| {
        let mut c = p.command(words);
        c.env("CC", &compiler).stdout(Stdio::piped()).stderr(Stdio::piped());
        // What other tests compiled would leave nothing to wait for.
        c.env("XDG_CACHE_HOME", p.path().join("own"));
        let out = within_bound(c.spawn().unwrap()).wait_with_output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    run(&["fleet", "submit", SMALL, "--server", &url, "--trials-per-task", "3", "--slice", "3"]);
    let words = ["worker", "--server", &url, "--store", "a.squall", "--json", "--lease", "1"];
    run(&[&words[..], &["--until-idle"]].concat());
    let jobs = p.squall(&["fleet", "jobs", "--server", &url, "--json"]).ok().json();
    assert_eq!(
        (&jobs["jobs"][0]["state"], &jobs["jobs"][0]["deaths"]),
        (&"done".into(), &0.into())
    );
}

#[test]
fn builders_compile_what_two_drivers_workers_measure() {
    if squall_testing::is_left_to_full("fleet::builders_compile_what_two_drivers_workers_measure") {
        return;
    }
    let Some((_server, p, url)) = fleet() else { return };
    p.file("more.ops", "d: matmul m=24 n=24 k=48\ne: softmax rows=8 cols=32\n");
    // Objects of a cache that an earlier run filled would leave nothing to build.
    let with_cache = |name: &str, words: &[&str]| {
        let mut c = p.command(words);
        c.env("XDG_CACHE_HOME", p.path().join(name)).stdout(Stdio::piped()).stderr(Stdio::piped());
        within_bound(c.spawn().unwrap())
    };
    let builder = |name: &str| {
        let words = ["worker", "--build", "--server", &url, "--jobs", "1", "--json"];
        with_cache(name, &words)
    };
    let builders = [builder("b1"), builder("b2")];
    let is_there = |n: usize| {
        let status = p.squall(&["fleet", "status", "--server", &url, "--json"]).ok().json();
        status["workers"].as_array().unwrap().len() == n
    };
    let start = Instant::now();
    while !is_there(2) {
        assert!(start.elapsed() < Duration::from_secs(60), "the builders do not come");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut trials_asked = 0;
    for input in ["kernels.ops", "more.ops"] {
        let words = [
            "fleet",
            "submit",
            input,
            "--server",
            &url,
            "--trials-per-task",
            "16",
            "--slice",
            "8",
            "--json",
        ];
        trials_asked += p.squall(&words).ok().json()["trials"].as_u64().unwrap();
    }
    let workers = ["m1", "m2"].map(|name| {
        let store = format!("{name}.squall");
        let words = ["worker", "--server", &url, "--store", &store, "--json", "--until-idle"];
        with_cache(name, &words)
    });
    let last = |child: Child, code: i32| -> serde_json::Value {
        let out = child.wait_with_output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{text}{errors}");
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    };
    let done = workers.map(|w| last(w, 0));
    let sum = |all: &[serde_json::Value], what: &str| -> u64 {
        all.iter().map(|d| d[what].as_u64().unwrap()).sum()
    };
    assert_eq!(sum(&done, "trials"), trials_asked);
    // A builder may be killed at any moment: its objects are made by others then.
    let [first, mut second] = builders;
    second.kill().unwrap();
    second.wait().unwrap();
    let pid = first.id().to_string();
    std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let built = last(first, 130);
    assert!(built["built"].as_u64().unwrap() > 0, "{built}");
    assert!(sum(&done, "fetched") > 0, "{done:?} {built}");
    let all = pulled(&p, &url);
    assert_eq!(all.len() as u64, trials_asked);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "a trial was made twice");
    let shown = p.squall(&["records", "show", "--json", "--store", "pulled.squall"]).ok().json();
    let is_failed = |r: &&serde_json::Value| r["outcome"].to_string().contains("build");
    let failed = shown["records"].as_array().unwrap().iter().filter(is_failed).count();
    assert_eq!(failed, 0, "an object of a builder does not link");
}

/// Ends a worker as Ctrl-C does.
fn squall_ends(child: Child) {
    let pid = child.id().to_string();
    std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_server_that_is_down_costs_freshness_and_nothing_else() {
    let Some((server, p, url)) = fleet() else { return };
    let words =
        ["fleet", "submit", SMALL, "--server", &url, "--trials-per-task", "30", "--slice", "30"];
    p.squall(&words).ok();
    let mut child = worker(&p, &url, "a.squall", &["--until-idle"]);
    let mut seen = Vec::new();
    let mut is_down = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        seen.extend(reported(&line.unwrap()));
        if seen.len() == 3 && !is_down {
            server.stop("immediate");
            is_down = true;
        }
        if seen.len() == 20 && is_down {
            server.start();
            is_down = false;
        }
    }
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    assert_eq!(said.matches("what is measured stays in the own store").count(), 1, "{said}");
    let there: HashSet<String> = pulled(&p, &url).into_iter().collect();
    assert!(seen.len() >= 30 && seen.iter().all(|id| there.contains(id)));
}

#[test]
fn what_a_fleet_cannot_do_is_said() {
    let p = Place::new();
    let none = "postgres://squall@/squall?host=/nowhere";
    let missing = p.squall(&["fleet", "status", "--server", none]).fails();
    assert!(missing.err.contains("cannot reach"), "{}", missing.err);
    let wrong = p.squall(&["worker", "--server", "tuned.squall"]).fails();
    assert!(wrong.err.contains("postgres://"), "{}", wrong.err);
    let Some((server, p, url)) = fleet() else { return };
    let empty = server.url("squall", "postgres");
    let missing = p.squall(&["fleet", "status", "--server", &empty]).fails();
    assert!(missing.err.contains("squall fleet init"), "{}", missing.err);
    p.squall(&["init"]).ok();
    let own = p.squall(&["fleet", "submit", "kernel.toml", "--server", &url]);
    assert_eq!(own.code, Some(2), "{}", own.err);
    assert!(own.err.contains("is code"), "{}", own.err);
    let class = p.squall(&["fleet", "submit", SMALL, "--server", &url, "--class", "x*"]).fails();
    assert!(class.err.contains("no class `x*`"), "{}", class.err);
    let job = p.squall(&["fleet", "cancel", "99", "--server", &url]).fails();
    assert!(job.err.contains("no job 99"), "{}", job.err);
}

#[test]
fn shards_tune_into_a_folder_without_a_server() {
    let p = Place::new();
    p.file("kernels.ops", KERNELS);
    let mut shards = Vec::new();
    for shard in ["1/2", "2/2"] {
        let words = [
            "tune",
            "kernels.ops",
            "--trials",
            "6",
            "--shard",
            shard,
            "--store",
            "results/",
            "--json",
        ];
        shards.push(p.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn());
    }
    for child in shards {
        let out = child.unwrap().wait_with_output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    assert_eq!(std::fs::read_dir(p.path().join("results")).unwrap().count(), 2);
    assert_eq!(trials(&p, "results").len(), 18);
    // The folder is one store: it serves an export, goes on, and merges into a file.
    let out = ["export", "kernels.ops", "--store", "results", "--out", "out"];
    let out = p.squall(&out).ok();
    assert!(!out.err.contains("never tuned"), "{}", out.err);
    let more = ["tune", "kernels.ops", "--trials", "8", "--store", "results", "--json"];
    assert_eq!(p.squall(&more).ok().json()["tasks"][0]["known"], 6);
    p.squall(&["records", "merge", "results", "--store", "one.squall"]).ok();
    assert_eq!(trials(&p, "one.squall").len(), trials(&p, "results").len());
    // A scheduler says which part is whose.
    let auto = ["tune", "kernels.ops", "--trials", "1", "--shard", "auto", "--store", "x/"];
    let none = p.squall(&auto);
    assert_eq!(none.code, Some(2), "{}", none.err);
    assert!(none.err.contains("SLURM_ARRAY_TASK_ID"), "{}", none.err);
    let slurm = p
        .command(&[&auto[..], &["--json"]].concat())
        .env("SLURM_ARRAY_TASK_ID", "3")
        .env("SLURM_ARRAY_TASK_MIN", "1")
        .env("SLURM_ARRAY_TASK_COUNT", "3")
        .output()
        .unwrap();
    assert!(slurm.status.success(), "{}", String::from_utf8_lossy(&slurm.stderr));
}

#[test]
fn a_false_time_falls_when_winners_are_checked_before_they_are_used() {
    let Some((_server, p, url)) = fleet() else { return };
    p.squall(&["tune", SMALL, "--trials", "12", "--store", "own.squall"]).ok();
    let shown = p.squall(&["records", "export", "--store", "own.squall"]).ok();
    let mut records: Vec<serde_json::Value> =
        shown.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let time = |r: &serde_json::Value| {
        let samples = r["outcome"]["measured"]["samples"].as_array()?;
        samples.iter().filter_map(serde_json::Value::as_f64).reduce(f64::min)
    };
    let best = records.iter().filter_map(time).reduce(f64::min).unwrap();
    records.retain(|r| r["kind"] == "trial" && time(r).is_some());
    // The slowest, which met no other yet, is said to be a tenth faster than the fastest.
    records.sort_by(|a, b| time(b).partial_cmp(&time(a)).unwrap());
    let mut lie = records[0].clone();
    lie["outcome"]["measured"]["samples"] = serde_json::json!([0.9 * best, 0.9 * best]);
    lie["time"] = (lie["time"].as_f64().unwrap() + 3600.0).into();
    p.file("lie.jsonl", format!("{lie}\n"));
    p.squall(&["records", "merge", "lie.jsonl", "--store", "liar.squall"]).ok();
    p.squall(&["fleet", "push", "--server", &url, "--store", "liar.squall"]).ok();
    let holder = |p: &Place| {
        let best = p.squall(&["records", "best", "--store", "own.squall", "--json"]).ok().json();
        best["best"][0]["configuration"].clone()
    };
    let words = ["fleet", "pull", "--server", &url, "--store", "own.squall", "--check"];
    let pulled = p.squall(&words).ok();
    assert!(pulled.out.contains("1 winners of others checked here, 1 fell"), "{}", pulled.out);
    assert_ne!(holder(&p), lie["configuration"]);
}
