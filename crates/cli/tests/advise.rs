//! Tests of using kernels now and tuning them later: `squall advise` and the wishes that it leaves
//! (tasks used untuned), the polite worker that tunes wishes, `--locked` exports, and libraries
//! that follow the store (`--watch`).

use crate::support;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Place, SMALL};

fn advice(p: &Place, words: &[&str]) -> Value {
    let all = [&["advise"], words, &["--json"]].concat();
    p.squall(&all).ok().json()
}

fn source(advice: &Value) -> &str {
    advice["tasks"][0]["source"].as_str().unwrap()
}

#[test]
fn advice_comes_from_the_nearest_and_leaves_a_wish_where_that_is_not_tuned() {
    let p = Place::new();
    let store = ["--store", "s.squall"];
    // Without a store the predictor answers, and there is nowhere to leave a wish.
    let first = advice(&p, &[&[SMALL], &store[..]].concat());
    assert_eq!((source(&first), &first["wishes"]), ("predicted", &0.into()), "{first}");
    assert!(!p.path().join("s.squall").exists());
    let kernel = first["tasks"][0]["kernel"].as_str().unwrap();
    assert!(kernel.contains(first["tasks"][0]["symbol"].as_str().unwrap()));
    p.squall(&["tune", SMALL, "--trials", "4", "--store", "s.squall"]).ok();
    let tuned = advice(&p, &[&[SMALL], &store[..]].concat());
    assert_eq!((source(&tuned), &tuned["wishes"]), ("tuned", &0.into()), "{tuned}");
    assert!(tuned["tasks"][0]["expected_ns"].as_f64().unwrap() > 0.0);
    let relative = "matmul m=32 n=32 k=64";
    let near = advice(&p, &[&[relative], &store[..]].concat());
    assert_eq!((source(&near), &near["wishes"]), ("similar", &1.into()), "{near}");
    let other = "softmax rows=16 cols=64";
    let again = advice(&p, &[&[other, "--no-wish"], &store[..]].concat());
    assert_ne!(source(&again), "tuned");
    let wishes = p.squall(&["records", "wishes", "--store", "s.squall", "--json"]).ok().json();
    let wishes = wishes["wishes"].as_array().unwrap().clone();
    assert_eq!(wishes.len(), 1, "{wishes:?}");
    assert_eq!((&wishes[0]["uses"], &wishes[0]["name"]), (&1.into(), &"matmul_32x64x32".into()));
    assert!(p.squall(&["advise", SMALL, "--store", "no/such"]).code == Some(0));
    let wrong = p.squall(&["advise", "matmul m=0"]).fails();
    assert!(!wrong.err.is_empty());
}

/// A child that does not outlive a test that fails.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A small network.
fn model(p: &Place) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/small_net.onnx");
    std::fs::copy(tests, p.path().join("net.onnx")).unwrap();
}

#[test]
fn a_locked_export_fails_with_the_command_that_mends_it() {
    let p = Place::new();
    model(&p);
    let words = ["export", "net.onnx", "--out", "out", "--store", "s.squall"];
    let locked = [&words[..], &["--locked"]].concat();
    p.squall(&["tune", SMALL, "--trials", "2", "--store", "s.squall"]).ok();
    let ran = p.squall(&locked);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("have no winner on this device"), "{}", ran.err);
    let hint = "squall tune 'net.onnx' --trials-per-task 64 --store 's.squall'";
    assert!(ran.err.contains(hint), "{}", ran.err);
    assert!(!p.path().join("out").exists(), "nothing is written");
    p.squall(&words).ok();
    // What was guessed left wishes.
    let wishes = p.squall(&["records", "wishes", "--store", "s.squall", "--json"]).ok().json();
    assert!(!wishes["wishes"].as_array().unwrap().is_empty(), "{wishes}");
    let tune = ["tune", "net.onnx", "--trials-per-task", "2", "--store", "s.squall"];
    p.squall(&tune).ok();
    p.squall(&locked).ok();
}

#[test]
fn a_library_follows_the_store_by_a_link() {
    if squall_testing::is_left_to_full("advise::a_library_follows_the_store_by_a_link") {
        return;
    }
    let p = Place::new();
    model(&p);
    p.squall(&["tune", SMALL, "--trials", "1", "--store", "s.squall"]).ok();
    let tune = |seed: &str| {
        let words = ["tune", "net.onnx", "--trials-per-task", "6", "--store"];
        let ran = p.squall(&[&words[..], &["s.squall", "--seed", seed]].concat()).ok();
        assert!(!ran.out.is_empty());
    };
    let words = ["export", "net.onnx", "--network", "net", "--out", "lib"];
    let more = ["--store", "s.squall", "--watch", "0.2", "--json"];
    let mut child = p.command(&[&words[..], &more].concat());
    let child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut child = Running(child);
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut next =
        || -> Value { serde_json::from_str(&lines.next().expect("a version").unwrap()).unwrap() };
    assert_eq!(next()["version"], 1);
    let link = p.path().join("lib/current");
    assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("version-000001"));
    let program = follower(&p);
    // The program opens what the link names; a version may come in between.
    let follows = || {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let named = std::fs::read_link(&link).unwrap();
            let out = Command::new(&program).current_dir(p.path()).output().unwrap();
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(out.status.success(), "{said}");
            let expected = format!("lib/{}/net.weights", named.display());
            if said.trim() == expected {
                return named;
            }
            assert!(Instant::now() < end, "{said}, and the link names {}", named.display());
        }
    };
    assert_eq!(follows(), Path::new("version-000001"));
    // Tuning brings winners, where guesses were before.
    tune("0");
    assert!(next()["version"].as_u64().unwrap() >= 2);
    assert!(follows() > Path::new("version-000001").to_path_buf());
    assert!(p.path().join("lib/version-000001/libnet.so").exists(), "the one before stays");
    Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status().unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
}

/// A program that opens the newest version by the header.
fn follower(p: &Place) -> std::path::PathBuf {
    p.file(
        "follow.c",
        r#"#include "lib/squall_watch.h"
int main(void) {
  squall_watch w;
  char path[4096];
  if (squall_watch_open(&w, "lib/current", "libnet.so", 1)) return puts(w.error), 1;
  if (squall_watch_poll(&w) != 0) return 2;
  if (!squall_watch_symbol(&w, "net_run")) return 3;
  puts(squall_watch_file(&w, "net.weights", path, sizeof path));
  return 0;
}
"#,
    );
    let program = p.path().join("follow");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "follow.c", "-o"]).arg(&program).arg("-ldl");
    assert!(cc.current_dir(p.path()).status().unwrap().success());
    program
}

/// CPU seconds of a process and all that it started.
fn cpu_of(root: u32) -> f64 {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut all = Vec::new();
    for process in processes {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        let text = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let Some((_, rest)) = text.rsplit_once(") ") else { continue };
        let fields: Vec<f64> = rest.split(' ').skip(1).map_while(|f| f.parse().ok()).collect();
        all.push((
            pid,
            fields[0] as u32,
            (fields[10] + fields[11] + fields[12] + fields[13]) / 100.0,
        ));
    }
    let (mut sum, mut next) = (0.0, vec![root]);
    while let Some(pid) = next.pop() {
        sum += all.iter().filter(|p| p.0 == pid).map(|p| p.2).sum::<f64>();
        next.extend(all.iter().filter(|p| p.1 == pid).map(|p| p.0));
    }
    sum
}

/// Whether this machine is idle at some moment of the next while.
fn is_ever_idle() -> bool {
    let busy = || {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let line = text.lines().next().unwrap();
        let f: Vec<f64> = line.split_whitespace().skip(1).map_while(|f| f.parse().ok()).collect();
        (f[0] + f[1] + f[2] + f[5] + f[6]) / 100.0
    };
    (0..10).any(|_| {
        let before = busy();
        std::thread::sleep(Duration::from_secs(2));
        busy() - before < 0.3
    })
}

#[test]
fn a_polite_worker_serves_wishes_and_gives_way_within_two_seconds() {
    if squall_testing::is_left_to_full(
        "advise::a_polite_worker_serves_wishes_and_gives_way_within_two_seconds",
    ) {
        return;
    }
    let p = Place::new();
    let nothing = ["worker", "--polite", "--until-idle", "--calm", "0", "--busy", "1000", "--json"];
    // There is no wish, so it ends.
    let done = p.squall(&nothing).ok().json();
    assert_eq!((&done["slices"], &done["trials"]), (&0.into(), &0.into()), "{done}");
    advice(&p, &[SMALL]);
    let served = p.squall(&[&nothing[..], &["--trials", "6"]].concat()).ok().json();
    assert_eq!((&served["trials"], &served["served"]), (&6.into(), &1.into()), "{served}");
    assert_eq!(source(&advice(&p, &[SMALL])), "tuned");
    let closed = p.squall(&["worker", "--polite", "--hours", "7-7"]);
    assert!(closed.code == Some(2) && closed.err.contains("22-6"), "{}", closed.err);
    if !is_ever_idle() {
        return println!("skipped: others keep this machine busy");
    }
    gives_way(&p);
}

fn gives_way(p: &Place) {
    advice(p, &["conv2d n=1 c=32 h=28 w=28 k=32 r=3 s=3 pad=1"]);
    let before = p.identities().len();
    let words = ["worker", "--polite", "--calm", "1", "--trials", "400"];
    let mut worker = p.command(&words);
    let worker = worker.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut worker = Running(worker);
    // It works until it has made some trials.
    let end = Instant::now() + Duration::from_secs(90);
    while p.identities().len() < before + 3 {
        if Instant::now() > end {
            let _ = Command::new("kill").arg(worker.0.id().to_string()).status();
            worker.0.wait().unwrap();
            return println!("skipped: others kept this machine busy");
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    // A load comes: all cores are wanted.
    let over = AtomicBool::new(false);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let used = std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::black_box((0..100_000u64).sum::<u64>());
                }
            });
        }
        std::thread::sleep(Duration::from_secs(2));
        let (start, before) = (Instant::now(), cpu_of(worker.0.id()));
        std::thread::sleep(Duration::from_secs(3));
        let used = (cpu_of(worker.0.id()) - before) / start.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        used
    });
    assert!(used < 0.02, "{used} of a core two seconds after the load came");
    let kept = p.identities().len();
    assert!(kept >= before + 3, "what was measured is kept");
    // And no trial failed because its process was killed.
    let shown = p.squall(&["records", "show", "--json"]).ok().json();
    let records = shown["records"].as_array().unwrap();
    assert!(records.iter().all(|r| r["outcome"].get("failed").is_none()), "{shown}");
    Command::new("kill").args(["-TERM", &worker.0.id().to_string()]).status().unwrap();
    assert_eq!(worker.0.wait().unwrap().code(), Some(130));
}
