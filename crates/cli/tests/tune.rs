//! Tests of `squall tune`: the report's keys, resuming, budgets, interruption and `kill -9`, a
//! shared store, and faults such as an absent compiler or a full disk.

use crate::support;

use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use support::{Place, SMALL, reported};

#[test]
fn a_report_has_the_keys_that_scripts_use() {
    let p = Place::new();
    let ran = p.squall(&["tune", SMALL, "--trials", "6", "--seed", "3", "--json"]).ok();
    let report = ran.json();
    let task = &report["tasks"][0];
    assert_eq!(task["count"], 1);
    assert_eq!(task["trials"], 6);
    assert_eq!(task["flop"], 2 * 32 * 32 * 32);
    assert_eq!(task["id"].as_str().unwrap().len(), 16);
    assert!(task["name"].as_str().unwrap().contains("matmul"));
    let best = task["best_ns"].as_f64().unwrap();
    assert!(best > 0.0 && best <= task["untuned_ns"].as_f64().unwrap());
    assert!(task["failed"].as_u64().unwrap() < 6);
    for part in ["build", "measure", "search"] {
        assert!(task["cpu_seconds"][part].as_f64().unwrap() >= 0.0);
    }
    assert!(task["cpu_seconds"]["build"].as_f64().unwrap() > 0.0);
    assert_eq!(report["stop"], "trials");
    let lines: Vec<String> = ran.out.lines().filter_map(reported).collect();
    assert_eq!(lines.len(), 6, "one line a trial");
    assert_eq!(p.identities(), lines);
    let html = std::fs::read_dir(p.path())
        .unwrap()
        .map(|f| f.unwrap().path())
        .find(|f| f.extension().is_some_and(|e| e == "html"))
        .unwrap();
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert!(
        !page.contains("<script") && !page.contains("src=") && !page.contains("@import"),
        "the page stands alone"
    );
    assert!(page.contains("GFLOP/s") && page.contains(task["name"].as_str().unwrap()));
}

#[test]
fn tuning_again_goes_on_and_repeats_nothing() {
    let p = Place::new();
    let first = p.squall(&["tune", SMALL, "--trials", "5", "--json"]).ok();
    let second = p.squall(&["tune", SMALL, "--trials", "5", "--json"]).ok();
    let known: HashSet<String> = first.out.lines().filter_map(reported).collect();
    let new: HashSet<String> = second.out.lines().filter_map(reported).collect();
    assert_eq!((known.len(), new.len()), (5, 5));
    assert!(known.is_disjoint(&new), "a known trial was made again");
    assert_eq!(p.identities().len(), 10);
    let task = &second.json()["tasks"][0];
    assert_eq!(task["known"], 5);
    assert_eq!(
        task["untuned_ns"],
        first.json()["tasks"][0]["untuned_ns"],
        "the plain loops are not measured again"
    );
}

#[test]
fn operator_lists_have_a_budget_for_each_task() {
    let p = Place::new();
    p.file("two.ops", "# two kernels\nmatmul m=16 n=16 k=16\nmatmul m=24 n=16 k=16\n");
    let report = p.squall(&["tune", "two.ops", "--trials", "3", "--json"]).ok().json();
    let trials: Vec<_> =
        report["tasks"].as_array().unwrap().iter().map(|t| t["trials"].as_u64().unwrap()).collect();
    assert_eq!(trials, [3, 3]);
    let only =
        p.squall(&["tune", "two.ops", "--trials", "2", "--only", "*24*", "--json"]).ok().json();
    assert_eq!(only["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(only["total"]["trials"], 2);
    let nothing = p.squall(&["tune", "two.ops", "--trials", "2", "--only", "conv"]).fails();
    assert!(
        nothing.err.contains("no task matches `conv`") && nothing.err.contains("matmul"),
        "{}",
        nothing.err
    );
}

#[test]
fn a_budget_of_seconds_ends_in_time() {
    let p = Place::new();
    let start = std::time::Instant::now();
    let report = p.squall(&["tune", SMALL, "--seconds", "3", "--json"]).ok().json();
    assert_eq!(report["tasks"][0]["stop"], "seconds");
    assert!(report["total"]["trials"].as_u64().unwrap() >= 1);
    assert!(start.elapsed().as_secs_f64() < 60.0);
}

#[test]
fn ctrl_c_ends_with_what_was_found() {
    let p = Place::new();
    let mut child = p
        .command(&["tune", SMALL, "--trials", "100000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen = Vec::new();
    let mut last = String::new();
    while let Some(Ok(line)) = lines.next() {
        seen.extend(reported(&line));
        last = line;
        if seen.len() == 3 {
            assert!(
                Command::new("kill")
                    .args(["-INT", &child.id().to_string()])
                    .status()
                    .unwrap()
                    .success()
            );
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let report: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(report["stop"], "interrupted");
    assert_eq!(report["total"]["trials"].as_u64().unwrap() as usize, seen.len());
    assert!(seen.len() < 40, "{} trials: it did not stop", seen.len());
    assert!(report["tasks"][0]["best_ns"].as_f64().is_some());
    assert_eq!(p.identities(), seen);
}

#[test]
fn kill_9_loses_nothing_that_was_reported() {
    let p = Place::new();
    let mut seen = Vec::new();
    for enough in [1, 4, 9] {
        let mut child = p
            .command(&["tune", SMALL, "--trials", "100000", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut here = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if let Some(id) = reported(&line.unwrap()) {
                seen.push(id);
                here += 1;
            }
            if here == enough {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(here >= enough);
    }
    let kept = p.identities();
    let distinct: HashSet<&String> = kept.iter().collect();
    assert_eq!(distinct.len(), kept.len());
    assert_eq!(
        seen.iter().collect::<HashSet<_>>().len(),
        seen.len(),
        "a resumed run repeated a trial"
    );
    assert!(seen.iter().all(|id| distinct.contains(id)), "a reported trial is missing");
    assert!(kept.len() <= seen.len() + 3, "at most the trial in flight may be unreported");
    let resumed = p.squall(&["tune", SMALL, "--trials", "2", "--json"]).ok().json();
    assert_eq!(resumed["tasks"][0]["known"].as_u64().unwrap() as usize, kept.len());
}

#[test]
fn two_processes_share_a_store() {
    let p = Place::new();
    let tune = |m: &str, seed: &str| {
        let line = format!("matmul m={m} n=32 k=32");
        p.command(&["tune", &line, "--trials", "6", "--seed", seed, "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children = [tune("32", "1"), tune("48", "2"), tune("32", "3")];
    let mut seen = HashSet::new();
    for c in children {
        let ran: support::Ran = c.wait_with_output().unwrap().into();
        seen.extend(ran.ok().out.lines().filter_map(reported));
    }
    let kept: HashSet<String> = p.identities().into_iter().collect();
    assert_eq!(kept, seen);
    assert!(kept.len() >= 12, "{} records", kept.len());
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let p = Place::new();
    let mut child = p
        .command(&["tune", SMALL, "--trials", "100000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(reported(&lines.next().unwrap().unwrap()).is_some());
    drop(lines);
    let ran: support::Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, Some(0));
    assert!(!ran.err.contains("panic"), "{}", ran.err);
}

#[test]
fn without_a_compiler_it_says_what_to_install() {
    let p = Place::new();
    let ran: support::Ran = p
        .command(&["tune", SMALL, "--trials", "2"])
        .env("CC", "/nonexistent/cc")
        .output()
        .unwrap()
        .into();
    let ran = ran.fails();
    assert!(ran.err.contains("/nonexistent/cc") && ran.err.contains("hint: "), "{}", ran.err);
    let doctor: support::Ran =
        p.command(&["doctor", "--json"]).env("CC", "/nonexistent/cc").output().unwrap().into();
    assert_eq!(doctor.code, Some(1));
    assert_eq!(doctor.json()["can_tune"], false);
    let bare: support::Ran = p
        .command(&["doctor"])
        .env_remove("CC")
        .env("PATH", "/nonexistent")
        .output()
        .unwrap()
        .into();
    assert_eq!(bare.code, Some(1));
    assert!(bare.out.contains("mend: ") && bare.out.contains("install"), "{}", bare.out);
}

#[test]
fn a_compiler_that_refuses_every_kernel_is_reported() {
    let p = Place::new();
    let script = "#!/bin/sh\nfor a in \"$@\"; do case \"$a\" in *.c) if grep -q 'int \
                  squall_matmul_32x32x32_[0-9a-f]*(' \"$a\"; then echo 'kernel.c:7: error: no \
                  luck today' >&2; exit 1; fi;; esac; done\nexec gcc \"$@\"\n";
    let cc = p.file("cc.sh", script);
    std::fs::set_permissions(&cc, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran: support::Ran = p
        .command(&["tune", SMALL, "--trials", "4", "--json"])
        .env("CC", &cc)
        .output()
        .unwrap()
        .into();
    let ran = ran.fails();
    let task = &ran.json()["tasks"][0];
    assert_eq!((task["trials"].as_u64(), task["failed"].as_u64()), (Some(4), Some(4)));
    assert!(task["best_ns"].is_null());
    assert_eq!(task["failures"][0]["stage"], "build");
    assert_eq!(task["failures"][0]["count"], 4);
    assert!(ran.err.contains("no luck today"), "{}", ran.err);
    assert_eq!(p.identities().len(), 4, "failures are kept too");
}

#[test]
fn a_store_that_cannot_be_used_is_refused_before_any_work() {
    let p = Place::new();
    p.file("notes.txt", "my notes, longer than the head of a database");
    let ran = p.squall(&["tune", SMALL, "--trials", "2", "--store", "notes.txt"]).fails();
    assert!(
        ran.err.contains("notes.txt")
            && ran.err.contains("not a Squall store")
            && ran.err.contains("hint: "),
        "{}",
        ran.err
    );
    let ran =
        p.squall(&["tune", SMALL, "--trials", "2", "--store", "no/such/folder/a.squall"]).fails();
    assert!(ran.err.contains("folder"), "{}", ran.err);
}

#[test]
fn a_read_only_store_is_refused_and_can_still_be_read() {
    use std::os::unix::process::CommandExt;
    let p = Place::new();
    p.squall(&["tune", SMALL, "--trials", "2"]).ok();
    let mode = |path: &std::path::Path, m: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(m)).unwrap()
    };
    mode(&p.path().join("tuned.squall"), 0o444);
    mode(p.path(), 0o555);
    let run = |args: &[&str]| -> support::Ran {
        let mut c = p.command(args);
        // Root may write everything: look as another user.
        if std::fs::metadata("/proc/self")
            .is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
        {
            c.uid(65534).gid(65534);
        }
        c.output().unwrap().into()
    };
    let (tune, list, doctor) = (
        run(&["tune", SMALL, "--trials", "2"]),
        run(&["records", "list", "--json"]),
        run(&["doctor", "--json"]),
    );
    mode(p.path(), 0o755);
    let tune = tune.fails();
    assert!(
        tune.err.contains("read-only")
            && tune.err.contains("tuned.squall")
            && tune.err.contains("hint: "),
        "{}",
        tune.err
    );
    assert_eq!(list.ok().json()["tasks"][0]["trials"], 2);
    assert_eq!(doctor.code, Some(1));
}

#[test]
fn a_full_disk_ends_with_a_clear_error_and_loses_nothing() {
    let p = Place::new();
    let disk = p.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=300k", "tmpfs"]).arg(&disk).output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        println!("skipped: a small file system cannot be mounted here");
        return;
    }
    let ran = p.squall(&[
        "tune",
        SMALL,
        "--trials",
        "400",
        "--store",
        "disk/a.squall",
        "--report",
        "r.html",
        "--json",
    ]);
    let seen: HashSet<String> = ran.out.lines().filter_map(reported).collect();
    let lines =
        p.squall(&["records", "show", "--kind", "trial", "--store", "disk/a.squall", "--json"]);
    let _ = Command::new("umount").arg("-l").arg(&disk).output();
    let ran = ran.fails();
    assert!(ran.err.contains("no space is left") && ran.err.contains("a.squall"), "{}", ran.err);
    let shown = lines.ok().json();
    let kept: HashSet<&str> = shown["records"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|r| r["identity"].as_str())
        .collect();
    assert!(!seen.is_empty() && seen.iter().all(|id| kept.contains(id.as_str())));
}

#[test]
fn wrong_use_is_exit_2() {
    let p = Place::new();
    for args in [
        &["tune", SMALL][..],
        &["tune", SMALL, "--trials", "0"],
        &["tune", SMALL, "--seconds", "-1"],
        &["tune", SMALL, "--trials", "2", "--strategy", "hope"],
        &["tune", SMALL, "--trials", "2", "--threads", "0"],
        &["nonsense"],
        &["explain", SMALL, "--stage", "nowhere"],
        &["tasks", "m.onnx", "--dim", "N"],
    ] {
        let ran = p.squall(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
    }
    let many = p.squall(&["tune", SMALL, "--trials", "2", "--threads", "9999"]).fails();
    assert!(many.err.contains("9999"), "{}", many.err);
}

#[test]
fn tasks_without_a_turn_are_reported_from_the_store() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/small_net.onnx");
    let p = Place::new();
    let first = p.squall(&["tune", model, "--trials-per-task", "1", "--json"]).ok().json();
    // One trial more for the model as a whole: all tasks but one have no turn.
    let second = p.squall(&["tune", model, "--trials", "1", "--json"]).ok().json();
    let (first, second) = (first["tasks"].as_array().unwrap(), second["tasks"].as_array().unwrap());
    assert!(first.len() > 2);
    let idle: Vec<&Value> = second.iter().filter(|t| t["trials"] == 0).collect();
    assert_eq!(idle.len(), second.len() - 1);
    for t in idle {
        let before = first.iter().find(|b| b["id"] == t["id"]).expect("a task of the model");
        assert_eq!((&t["known"], &t["best_ns"]), (&1.into(), &before["best_ns"]), "{t}");
    }
}

/// References of large tasks share cores by OpenMP, where the compiler has it, and only there.
#[test]
fn a_compiler_without_openmp_tunes_large_tasks_for_one_thread() {
    let p = Place::new();
    let cc = p.path().join("cc.sh");
    let text = "#!/bin/sh\ncase \" $* \" in *\" -fopenmp \"*) exit 1;; esac\nexec cc \"$@\"\n";
    std::fs::write(&cc, text).unwrap();
    std::fs::set_permissions(&cc, std::fs::Permissions::from_mode(0o755)).unwrap();
    let args = ["tune", "matmul m=512 n=512 k=512", "--trials", "1", "--json"];
    let ran = support::Ran::from(p.command(&args).env("CC", &cc).output().unwrap()).ok();
    assert_eq!(ran.json()["tasks"][0]["failed"], 0, "{}", ran.err);
}
