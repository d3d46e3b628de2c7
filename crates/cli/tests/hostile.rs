//! Robustness tests of the real binary: false records and strange names in files of unknown origin,
//! stores that vanish or are locked, hang-ups and Ctrl-C, hanging compilers, children that must die
//! with their parent.

use crate::support;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Place, Ran, SMALL, reported};

/// Writes an executable shell script.
fn script(p: &Place, name: &str, text: &str) -> std::path::PathBuf {
    let path = p.file(name, format!("#!/bin/sh\n{text}"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// Waits for a process that must end soon.
fn ends(mut child: Child, within: Duration) -> Ran {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < within, "it did not end within {within:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap().into()
}

fn piped(c: &mut Command) -> Child {
    c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Exported lines of a store, changed.
fn changed(p: &Place, from: &str, change: &dyn Fn(&mut serde_json::Value)) -> String {
    let lines = p.squall(&["records", "export", "--store", from, "--kind", "trial"]).ok().out;
    let line = lines.lines().find(|l| l.contains("\"measured\"")).expect("a trial ran");
    let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
    change(&mut record);
    record.to_string() + "\n"
}

#[test]
fn a_false_record_hides_no_good_one() {
    let p = Place::that_compiles_all();
    p.squall(&["tune", SMALL, "--trials", "6", "--seed", "1"]).ok();
    let best = p.squall(&["export", SMALL, "--out", "before", "--json"]).ok().json();
    let configuration = best["kernels"][0]["configuration"].clone();
    assert!(configuration.as_str().is_some_and(|c| !c.is_empty()), "{best}");
    // What cannot be right is left out; what only this machine can judge is taken over.
    let sample = |r: &mut serde_json::Value, ns: f64| {
        r["outcome"]["measured"]["samples"] = serde_json::json!([ns, ns, ns]);
        r["seed"] = 99.into();
    };
    let bad = [
        changed(&p, "tuned.squall", &|r| {
            r["outcome"]["measured"]["samples"] = serde_json::json!([-5.0]);
        }),
        changed(&p, "tuned.squall", &|r| r["task"] = "00000000000000aa".into()),
    ];
    p.file("bad.jsonl", bad.concat());
    let merged = p.squall(&["records", "merge", "bad.jsonl", "--json"]).ok();
    assert_eq!(merged.json()["left_out"], 2, "{}", merged.out);
    assert!(merged.err.contains("left out") && merged.err.contains("task id"), "{}", merged.err);
    let false_ones = [
        changed(&p, "tuned.squall", &|r| {
            sample(r, 20.0);
            r["configuration"] = "no=1".into();
        }),
        changed(&p, "tuned.squall", &|r| {
            sample(r, 0.5);
            r["kind"] = "rematch".into();
            r["time"] = 4e9.into();
        }),
    ];
    p.file("false.jsonl", false_ones.concat());
    let merged = p.squall(&["records", "merge", "false.jsonl", "--json"]).ok().json();
    assert_eq!(merged["new"], 2);
    let after = p.squall(&["export", SMALL, "--out", "after", "--json"]).ok().json();
    let kernel = &after["kernels"][0];
    assert_eq!(kernel["origin"], "tuned", "{after}");
    assert_ne!(kernel["configuration"], "no=1");
    assert!(kernel["best_ns"].as_f64().unwrap() > 1.0, "{after}");
    let tuned = p.squall(&["tune", SMALL, "--trials", "2", "--json"]).ok();
    let task = &tuned.json()["tasks"][0];
    assert!(task["best_ns"].as_f64().unwrap() > 20.0, "{task}");
}

#[test]
fn winners_that_cannot_be_made_fail_verify() {
    let p = Place::that_compiles_all();
    p.squall(&["tune", SMALL, "--trials", "3", "--store", "a.squall"]).ok();
    let gone = changed(&p, "a.squall", &|r| r["tunable"] = "a_sketch_that_is_gone".into());
    p.file("gone.jsonl", gone);
    p.squall(&["records", "merge", "gone.jsonl", "--store", "b.squall"]).ok();
    let ran = p.squall(&["records", "verify", "--store", "b.squall", "--json"]);
    assert_eq!((ran.code, ran.json()["tasks"][0]["verdict"].as_str()), (Some(1), Some("gone")));
}

#[test]
fn a_store_that_is_removed_while_tuning_is_saved_and_told() {
    let p = Place::that_compiles_all();
    let mut child = piped(&mut p.command(&["tune", SMALL, "--trials", "100000", "--json"]));
    let mut seen = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        seen.extend(reported(&line.unwrap()));
        if seen.len() == 3 {
            let _ = std::fs::remove_file(p.path().join("tuned.squall"));
        }
        if seen.len() == 200 {
            child.kill().unwrap();
            panic!("it goes on without its store");
        }
    }
    let ran = ends(child, Duration::from_secs(60)).fails();
    assert!(ran.err.contains("removed or replaced"), "{}", ran.err);
    let saved = p.path().join("tuned.squall.rescued");
    let shown = p.squall(&[
        "records",
        "show",
        "--kind",
        "trial",
        "--json",
        "--store",
        saved.to_str().unwrap(),
    ]);
    let shown = shown.ok().out;
    assert!(seen.len() >= 3 && seen.iter().all(|id| shown.contains(id)), "a trial is missing");
}

#[test]
fn a_hang_up_ends_with_what_was_found() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    if ignored.is_some_and(|m| u64::from_str_radix(m.trim(), 16).is_ok_and(|m| m & 1 != 0)) {
        println!("skipped: these tests run under nohup, where a hang-up is ignored");
        return;
    }
    let p = Place::that_compiles_all();
    let mut child = piped(&mut p.command(&["tune", SMALL, "--trials", "100000", "--json"]));
    let out = child.stdout.take().unwrap();
    let mut last = String::new();
    for (i, line) in BufReader::new(out).lines().enumerate() {
        last = line.unwrap();
        if i == 1 {
            signal(&child, "-HUP");
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let report: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(report["stop"], "interrupted");
}

/// Whether a process that a script started under this name still lives.
fn lives(mark: &str) -> bool {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.into_iter().any(|e| {
        let line = std::fs::read(e.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark)
    })
}

#[test]
fn children_of_start_up_die_with_us() {
    let p = Place::that_compiles_all();
    let mark = format!("cc-that-hangs-{}", std::process::id());
    let cc = script(&p, &mark, "exec sleep 300\n");
    // `exec` hides the name; a shell that waits shows it.
    std::fs::write(&cc, "#!/bin/sh\nwhile :; do sleep 0.2; done\n").unwrap();
    let mut child = piped(p.command(&["tune", SMALL, "--trials", "2"]).env("CC", &cc));
    let start = Instant::now();
    // The path of the script stands in the command line of the shell that runs it.
    while !lives(&format!("{mark}\0-")) {
        assert!(start.elapsed() < Duration::from_secs(30), "the compiler was never started");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    while lives(&format!("{mark}\0-")) {
        assert!(start.elapsed() < Duration::from_secs(10), "the compiler outlives us");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn ctrl_c_does_not_wait_for_a_compiler_that_hangs() {
    let p = Place::that_compiles_all();
    let cc = script(&p, "cc.sh", "sleep 300\n");
    let child = piped(p.command(&["tune", SMALL, "--trials", "2"]).env("CC", &cc));
    std::thread::sleep(Duration::from_millis(700));
    signal(&child, "-INT");
    let ran = ends(child, Duration::from_secs(10));
    assert_eq!(ran.code, Some(130), "{}", ran.err);
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    // It hangs only at kernels: the trials so far are reported.
    let text = "for a in \"$@\"; do case \"$a\" in *.c) if grep -q 'int \
                squall_matmul_32x32x32_[0-9a-f]*(' \"$a\"; then sleep 300; fi;; esac; done\n\
                exec gcc \"$@\"\n";
    let cc = script(&p, "cc2.sh", text);
    let child = piped(p.command(&["tune", SMALL, "--trials", "2", "--json"]).env("CC", &cc));
    std::thread::sleep(Duration::from_secs(6));
    signal(&child, "-INT");
    let ran = ends(child, Duration::from_secs(15));
    assert_eq!(ran.code, Some(130), "{}", ran.err);
}

#[test]
fn a_locked_store_is_named_and_can_be_left() {
    let p = Place::that_compiles_all();
    p.squall(&["tune", SMALL, "--trials", "1"]).ok();
    let path = p.path().join("tuned.squall");
    let python = "import sqlite3,sys,time\nc=sqlite3.connect(sys.argv[1],isolation_level=None)\n\
                  c.execute('BEGIN IMMEDIATE')\nprint('held',flush=True)\ntime.sleep(300)";
    let holder = Command::new("python3")
        .args(["-c", python])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut holder) = holder else {
        println!("skipped: there is no python3 to hold a lock");
        return;
    };
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.trim() == "held" {
        let mut child = piped(&mut p.command(&["tune", SMALL, "--trials", "2"]));
        let mut said = String::new();
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            said += &line.unwrap();
            if said.contains("waiting for the store") {
                break;
            }
        }
        assert!(said.contains("tuned.squall") && said.contains("Ctrl-C"), "{said}");
        signal(&child, "-INT");
        assert_eq!(ends(child, Duration::from_secs(10)).code, Some(130));
    } else {
        println!("skipped: python3 has no sqlite3");
    }
    let _ = holder.kill();
    let _ = holder.wait();
}

#[test]
fn names_in_strangers_files_do_not_speak_to_the_terminal() {
    let p = Place::that_compiles_all();
    p.squall(&["tune", SMALL, "--trials", "1", "--store", "a.squall"]).ok();
    let evil = "evil\u{1b}]0;owned\u{7}\u{1b}[2J";
    let line = changed(&p, "a.squall", &|r| {
        r["name"] = evil.into();
        r["device"] = format!("device {evil}").into();
    });
    p.file("evil.jsonl", line);
    p.squall(&["records", "merge", "evil.jsonl", "--store", "b.squall"]).ok();
    for args in [["records", "list"], ["records", "show"], ["records", "best"]] {
        let ran = p.squall(&[&args[..], &["--store", "b.squall"]].concat()).ok();
        assert!(ran.out.contains("\\u001b") && !ran.out.contains('\u{1b}'), "{:?}", ran.out);
        let json = p.squall(&[&args[..], &["--store", "b.squall", "--json"]].concat()).ok();
        assert!(!json.out.contains('\u{1b}'));
    }
    let ran = p.squall(&["tasks", "matmul\u{1b}[2J m=1 n=1 k=1"]);
    assert!(ran.code == Some(1) && !ran.err.contains('\u{1b}'), "{:?}", ran.err);
    let long = "n".repeat(20 << 20);
    let line = changed(&p, "a.squall", &|r| r["name"] = long.as_str().into());
    p.file("long.jsonl", line);
    p.squall(&["records", "merge", "long.jsonl", "--store", "c.squall"]).ok();
    let start = Instant::now();
    let ran = p.squall(&["records", "list", "--store", "c.squall"]).ok();
    assert!(ran.out.len() < 10_000, "{} bytes are printed", ran.out.len());
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn pipes_and_devices_are_refused_everywhere() {
    let p = Place::that_compiles_all();
    for name in [
        "m.onnx",
        "l.ops",
        "k.toml",
        "w.workload",
        "x.npy",
        "x.pb",
        "r.json",
        "d.txt",
        "s.squall",
        "find.chooser",
    ] {
        let path = p.path().join(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    }
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/small_net.onnx");
    let key = "64-7-7-1x1-64-7-7-1-0x0-1x1-1x1-0-NCHW-FP16-F";
    let found = "GemmFwd1x1_0_1:0.5,0,miopenConvolutionFwdAlgoGEMM";
    std::fs::write(p.path().join("f.txt"), format!("{key}={found}\n")).unwrap();
    let on = ["--device", "gfx942_304"];
    p.squall(&["import", "f.txt", on[0], on[1], "--store", "f.squall"]).ok();
    p.squall(&["train", "--find", "--store", "f.squall", "--out", "right.chooser"]).ok();
    for args in [
        &["choose", "find.chooser", key, on[0], on[1]][..],
        &["choose", "right.chooser", "--problems", "d.txt", on[0], on[1]],
        &["choose", "right.chooser", key, on[0], on[1], "--write-user-db", "d.txt"],
        &["train", "--records", "--general", "--machine", "x=d.txt", "--out", "p"],
        &["run", model, "--input", "x.pb", "--output", "y.npy"],
        &["check", model, "--input", "x.pb", "--expect", "x.pb"],
        &["tune", SMALL, "--trials", "1", "--predictor", "d.txt"],
        &["tasks", "m.onnx"],
        &["tasks", "l.ops"],
        &["tasks", "k.toml"],
        &["tasks", "w.workload"],
        &["run", model, "--input", "x.npy", "--output", "y.npy"],
        &["import", "r.json"],
        &["import", "d.txt", "--device", "gfx906_60"],
        &["records", "list", "--store", "s.squall"],
        &["records", "merge", "r.json"],
        &["replay", "r.json"],
        &["predict", "p", "d.txt", "--device", "gfx906"],
        &["tasks", SMALL, "--assignment", "l.ops"],
    ] {
        let ran = ends(piped(&mut p.command(args)), Duration::from_secs(30));
        assert!(matches!(ran.code, Some(1 | 2)), "{args:?}: {:?} {}", ran.code, ran.err);
        assert!(ran.err.contains("error: "), "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_name_with_a_newline_is_a_name() {
    let p = Place::that_compiles_all();
    p.squall(&["init", "two\nlines.toml"]).ok();
    let ran = p.squall(&["tasks", "two\nlines.toml"]).ok();
    assert!(ran.out.contains("axpy"), "{}", ran.out);
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_with_words() {
    let p = Place::that_compiles_all();
    let bin = env!("CARGO_BIN_EXE_squall");
    let line = format!("ulimit -f 8; exec '{bin}' tune '{SMALL}' --trials 2");
    let ran: Ran = Command::new("sh")
        .args(["-c", &line])
        .current_dir(p.path())
        .env_remove("SQUALL_STORE")
        .output()
        .unwrap()
        .into();
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("error: ") && ran.err.contains("hint: "), "{}", ran.err);
}

#[test]
fn a_report_that_was_asked_for_and_cannot_be_written_is_a_failure() {
    let p = Place::that_compiles_all();
    let ran = p.squall(&["tune", SMALL, "--trials", "1", "--report", "no/such/folder/r.html"]);
    let ran = ran.fails();
    assert!(ran.err.contains("no/such/folder") && ran.out.contains("matmul"), "{}", ran.err);
}

#[test]
fn a_compiler_that_writes_garbage_is_called_broken() {
    let p = Place::that_compiles_all();
    let text = "out=\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\n\
                [ -n \"$out\" ] && echo garbage > \"$out\"\nexit 0\n";
    let cc = script(&p, "cc.sh", text);
    let ran: Ran =
        p.command(&["tune", SMALL, "--trials", "1"]).env("CC", &cc).output().unwrap().into();
    let ran = ran.fails();
    assert!(ran.err.contains("no program or library") && ran.err.contains("cc.sh"), "{}", ran.err);
    assert!(!ran.err.contains("programs cannot be run"), "{}", ran.err);
}

#[test]
fn a_cross_compiler_is_refused() {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("skipped: the head of programs of this system is not known here");
        return;
    }
    let p = Place::that_compiles_all();
    // What it writes is marked as AArch64's, as a cross compiler's is.
    let text = "gcc \"$@\" || exit 1\nout=\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; \
                shift; done\n[ -n \"$out\" ] && printf '\\267\\000' | dd of=\"$out\" bs=1 seek=18 \
                conv=notrunc 2>/dev/null\nexit 0\n";
    let cc = script(&p, "aarch64-linux-gnu-gcc", text);
    let ran: Ran =
        p.command(&["tune", SMALL, "--trials", "1"]).env("CC", &cc).output().unwrap().into();
    let ran = ran.fails();
    assert!(ran.err.contains("AArch64") && ran.err.contains("emulated"), "{}", ran.err);
}

#[test]
fn an_export_follows_no_links() {
    let p = Place::that_compiles_all();
    let precious = p.file("precious", "mine");
    std::fs::create_dir(p.path().join("out")).unwrap();
    for name in ["driver.c", "manifest.json", "Makefile", "kernels.c"] {
        symlink(&precious, p.path().join("out").join(name)).unwrap();
    }
    p.squall(&["export", SMALL, "--out", "out", "--build"]).ok();
    assert_eq!(std::fs::read(&precious).unwrap(), b"mine");
    let written = std::fs::symlink_metadata(p.path().join("out/driver.c")).unwrap();
    assert!(written.is_file());
    std::fs::create_dir(p.path().join("linked")).unwrap();
    symlink(p.path(), p.path().join("linked/runtime")).unwrap();
    p.squall(&["export", SMALL, "--out", "linked"]).fails();
    assert!(!p.path().join("runtime.c").exists());
}

#[test]
fn temporary_folders_are_ours_alone_whatever_the_umask() {
    let p = Place::that_compiles_all();
    let bin = env!("CARGO_BIN_EXE_squall");
    let temporary = p.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let line = format!("umask 0; exec '{bin}' tune '{SMALL}' --trials 100000");
    let mut child = Command::new("sh")
        .args(["-c", &line])
        .current_dir(p.path())
        .env("TMPDIR", &temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (start, mut seen) = (Instant::now(), Vec::new());
    while seen.len() < 2 && start.elapsed() < Duration::from_secs(60) {
        for entry in std::fs::read_dir(&temporary).unwrap().flatten() {
            let Ok(m) = entry.metadata() else { continue };
            assert_eq!(m.permissions().mode() & 0o777, 0o700, "{:?}", entry.path());
            assert!(entry.file_name().to_string_lossy().starts_with("squall-"), "{entry:?}");
            let name = entry.file_name();
            if !seen.contains(&name) {
                seen.push(name);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(seen.len() >= 2, "{seen:?}");
    // The next process of ours removes what the killed one left.
    let left = |p: &std::path::Path| std::fs::read_dir(p).unwrap().count();
    let again = p.command(&["tune", SMALL, "--trials", "1"]).env("TMPDIR", &temporary).output();
    assert!(again.unwrap().status.success());
    assert_eq!(left(&temporary), 0, "folders of dead processes stay");
}
