//! Tests of a store (`records/src/store.rs`) against the faults that it must survive: processes
//! that are killed, several writers, damaged files, full disks, read-only folders, and files of
//! other schema versions.

use squall_core::*;
use squall_records::*;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

fn workload(n: i64) -> Workload {
    Workload::parse(&format!(
        "workload relu\ndata X: f32[{n}]\nstage Y: f32[i: {n}] = max(X[i], 0)\noutput Y\n"
    ))
    .unwrap()
}

fn measured(ns: f64) -> Outcome {
    Outcome::Measured(Measurement {
        samples: vec![Nanos(ns)],
        calls: 1,
        error: 1e-7,
        gpu: None,
        pace: None,
    })
}

/// The i-th trial of a task; `time` orders records.
fn trial(task: i64, i: usize, outcome: Outcome) -> Record {
    let w = workload(task);
    Record {
        kind: RecordKind::Trial,
        task: TaskId::of(&w, Objective::Time),
        name: format!("relu_{task}"),
        workload: w.to_string(),
        device: "cpu".into(),
        toolchain: "gcc".into(),
        tunable: "tiles".into(),
        configuration: format!("tile={i}"),
        outcome,
        cost: CpuCost { build: 0.1, measure: 0.2, search: 0.3 },
        seed: 7,
        time: 1000.0 + i as f64,
    }
}

fn outcomes() -> Vec<Outcome> {
    let mut all = vec![
        measured(12.345678901234567),
        Outcome::Infeasible("over the \"limit\"\nof 4 KiB".into()),
    ];
    for stage in [FailStage::Build, FailStage::Launch, FailStage::Timeout, FailStage::WrongAnswer] {
        all.push(Outcome::Failed { stage, detail: format!("{} failed: \u{1f4a7}", stage.name()) });
    }
    all
}

#[test]
fn every_outcome_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.squall");
    let records: Vec<Record> =
        outcomes().into_iter().enumerate().map(|(i, o)| trial(4, i, o)).collect();
    {
        let store = Store::open(&path).unwrap();
        for r in &records {
            assert!(store.append(r).unwrap());
            assert!(!store.append(r).unwrap(), "a record is kept once");
        }
    }
    let store = Store::open_read_only(&path).unwrap();
    assert_eq!(store.query(&Query::default()).unwrap(), records);
    assert_eq!(store.trials(records[0].task, "cpu", "gcc").unwrap(), records);
    assert!(store.trials(records[0].task, "other", "gcc").unwrap().is_empty());
    assert!(store.trials(records[0].task, "cpu", "clang").unwrap().is_empty());
    assert_eq!(store.verify().unwrap(), records.len() as u64);
}

#[test]
fn queries_choose() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("a")).unwrap();
    for task in [4, 40] {
        for (i, o) in outcomes().into_iter().enumerate() {
            store.append(&trial(task, i, o)).unwrap();
        }
    }
    let count = |q: Query| store.query(&q).unwrap().len();
    assert_eq!(count(Query { name: Some("relu_4".into()), ..Query::default() }), 12);
    assert_eq!(count(Query { name: Some("relu_4*".into()), ..Query::default() }), 12);
    assert_eq!(count(Query { name: Some("relu_?".into()), ..Query::default() }), 6);
    assert_eq!(count(Query { name: Some("[r]elu_4".into()), ..Query::default() }), 0);
    assert_eq!(count(Query { verified: true, ..Query::default() }), 2);
    assert_eq!(count(Query { kind: Some(RecordKind::Rematch), ..Query::default() }), 0);
    assert_eq!(count(Query { device: Some("x".into()), ..Query::default() }), 0);
    let newest = store
        .query(&Query { limit: Some(2), ..Query::task(trial(4, 0, measured(1.0)).task) })
        .unwrap();
    assert_eq!(
        newest.iter().map(|r| r.configuration.as_str()).collect::<Vec<_>>(),
        ["tile=4", "tile=5"]
    );
}

#[test]
fn a_rematch_supersedes_the_trial_and_holds_the_task_against_noise() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("a")).unwrap();
    let best = || {
        store
            .best(&Query::default())
            .unwrap()
            .into_iter()
            .map(|r| (r.configuration.clone(), r.outcome.time().unwrap().0))
            .collect::<Vec<_>>()
    };
    store.append(&trial(4, 1, measured(100.0))).unwrap();
    store.append(&trial(4, 2, measured(90.0))).unwrap();
    store.append(&trial(4, 3, Outcome::Infeasible("no".into()))).unwrap();
    assert_eq!(best(), [("tile=2".to_string(), 90.0)]);
    let rematch = |i: usize, ns: f64, time: f64| Record {
        kind: RecordKind::Rematch,
        time,
        ..trial(4, i, measured(ns))
    };
    // The trial's 90 was luck: measured beside its rival it is slower.
    store.append(&rematch(2, 101.0, 2000.0)).unwrap();
    store.append(&rematch(1, 99.0, 2000.1)).unwrap();
    assert_eq!(best(), [("tile=1".to_string(), 99.0)]);
    // Within the margin the winner of a rematch keeps the task, beyond it does not.
    store.append(&Record { time: 3000.0, ..trial(4, 5, measured(98.0)) }).unwrap();
    assert_eq!(best(), [("tile=1".to_string(), 99.0)]);
    store.append(&Record { time: 3001.0, ..trial(4, 6, measured(90.0)) }).unwrap();
    assert_eq!(best(), [("tile=6".to_string(), 90.0)]);
    // Another device is another race.
    store.append(&Record { device: "gpu".into(), ..trial(4, 9, measured(5.0)) }).unwrap();
    assert_eq!(best(), [("tile=6".to_string(), 90.0), ("tile=9".to_string(), 5.0)]);
    let s = &store.summaries(&Query::default()).unwrap()[0];
    assert_eq!((s.trials, s.failed, s.best, s.untuned), (5, 1, Some(Nanos(90.0)), None));
}

#[test]
fn the_database_itself_refuses_to_forget() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    Store::open(&path).unwrap().append(&trial(4, 1, measured(1.0))).unwrap();
    let c = rusqlite::Connection::open(&path).unwrap();
    assert!(c.execute("DELETE FROM record", []).unwrap_err().to_string().contains("never deleted"));
    assert!(
        c.execute("UPDATE record SET time_ns = 0", [])
            .unwrap_err()
            .to_string()
            .contains("never changed")
    );
}

#[test]
fn stores_merge_and_travel_as_lines() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) =
        (Store::open(dir.path().join("a")).unwrap(), Store::open(dir.path().join("b")).unwrap());
    for i in 0..6 {
        a.append(&trial(4, i, outcomes()[i].clone())).unwrap();
    }
    for i in 4..6 {
        b.append(&trial(4, i, measured(3.0))).unwrap();
    }
    b.append(&trial(5, 0, measured(3.0))).unwrap();
    // Trials that both made are kept as both made them.
    assert_eq!(a.merge(&b).unwrap().counts(), (3, 0));
    assert_eq!(a.merge(&b).unwrap().counts(), (0, 3));
    assert_eq!(a.merge(&a).unwrap().counts(), (0, 9));
    let mut lines = Vec::new();
    assert_eq!(a.export(&Query::default(), &mut lines).unwrap(), 9);
    let c = Store::open(dir.path().join("c")).unwrap();
    assert_eq!(c.import(&mut lines.as_slice()).unwrap().counts(), (9, 0));
    assert_eq!(c.query(&Query::default()).unwrap(), a.query(&Query::default()).unwrap());
    lines.extend_from_slice(b"{\"kind\": 3}\n");
    let d = Store::open(dir.path().join("d")).unwrap();
    let e = d.import(&mut lines.as_slice()).unwrap_err();
    assert!(matches!(e, StoreError::Line { line: 10, .. }), "{e}");
    assert!(d.is_empty().unwrap(), "a bad file is taken over not at all");
}

#[test]
fn other_files_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    for content in [
        &b"not a database, but longer than any header that one might look at"[..],
        b"\x08",
        b"SQLite format 3",
    ] {
        std::fs::write(&path, content).unwrap();
        for open in [Store::open(&path), Store::open_read_only(&path)] {
            assert!(matches!(open, Err(StoreError::NotAStore { .. })));
        }
        assert_eq!(std::fs::read(&path).unwrap(), content);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is put beside it");
    }
    let foreign = dir.path().join("foreign");
    rusqlite::Connection::open(&foreign)
        .unwrap()
        .execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1);")
        .unwrap();
    let before = std::fs::read(&foreign).unwrap();
    assert!(matches!(Store::open(&foreign), Err(StoreError::NotAStore { .. })));
    assert_eq!(std::fs::read(&foreign).unwrap(), before);
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Open { .. })));
    assert!(matches!(
        Store::open_read_only(dir.path().join("none")),
        Err(StoreError::Missing { .. })
    ));
    assert!(matches!(Store::open(dir.path().join("none/x")), Err(StoreError::Open { .. })));
    // What a process leaves that dies in the moment of making a store.
    std::fs::write(&path, b"").unwrap();
    let e = Store::open_read_only(&path).err().expect("there is nothing to read");
    assert!(
        matches!(e, StoreError::Empty { .. })
            && e.to_string().contains("empty")
            && e.remedy().contains("squall import"),
        "{e}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"", "who reads leaves it as it is");
    assert!(Store::open(&path).unwrap().is_empty().unwrap());
}

#[test]
fn damage_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    {
        let store = Store::open(&path).unwrap();
        store.append_all((0..500).map(|i| Ok(trial(4, i, measured(i as f64 + 1.0))))).unwrap();
    }
    let whole = std::fs::read(&path).unwrap();
    let outcome = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Store::open(&path).and_then(|s| s.verify())
    };
    assert_eq!(outcome(&whole).unwrap(), 500);
    for cut in [100, 4096, whole.len() / 2, whole.len() - 4096] {
        let e = outcome(&whole[..cut]).unwrap_err();
        assert!(
            matches!(e, StoreError::Damaged { .. } | StoreError::NotAStore { .. }),
            "cut at {cut}: {e}"
        );
    }
    let mut scribbled = whole.clone();
    scribbled[8192..].chunks_mut(97).for_each(|c| c[0] ^= 0x5a);
    let e = outcome(&scribbled).unwrap_err();
    assert!(matches!(e, StoreError::Damaged { .. }), "{e}");
    assert!(e.remedy().contains("recover"));
}

#[test]
fn a_newer_schema_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    drop(Store::open(&path).unwrap());
    rusqlite::Connection::open(&path)
        .unwrap()
        .pragma_update(None, "user_version", CURRENT + 1)
        .unwrap();
    for open in [Store::open(&path), Store::open_read_only(&path)] {
        assert!(matches!(open, Err(StoreError::Newer { found, .. }) if found == CURRENT + 1));
    }
}

#[test]
fn a_store_of_version_1_loads_for_ever() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v1");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::copy(kept.join("store.squall"), &path).unwrap();
    let store = Store::open(&path).unwrap();
    let records = store.query(&Query::default()).unwrap();
    let lines = std::fs::read_to_string(kept.join("records.jsonl")).unwrap();
    let expected: Vec<Record> = lines.lines().map(|l| wire::decode(l).unwrap()).collect();
    assert_eq!(records, expected);
    assert_eq!(records.len(), 8);
    // Records that are known stay known: their identity is what it was.
    assert_eq!(store.import(&mut lines.as_bytes()).unwrap().counts(), (0, 8));
    assert!(store.append(&trial(4, 77, measured(1.0))).unwrap());
}

/// Writes `tests/v1`; run once when a version is born: `cargo test -p squall-records -- --ignored
/// keep_v1`.
#[test]
#[ignore = "writes the fixture that must never change again"]
fn keep_v1() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v1");
    assert!(!kept.join("store.squall").exists(), "version 1 is kept already");
    let mut records: Vec<Record> =
        outcomes().into_iter().enumerate().map(|(i, o)| trial(4, i, o)).collect();
    records.push(Record {
        kind: RecordKind::Untuned,
        tunable: "untuned".into(),
        configuration: String::new(),
        ..trial(4, 6, measured(99.5))
    });
    records.push(Record { kind: RecordKind::Rematch, ..trial(4, 7, measured(11.25)) });
    let store = Store::open(kept.join("store.squall")).unwrap();
    store.append_all(records.into_iter().map(Ok)).unwrap();
    store
        .export(&Query::default(), &mut std::fs::File::create(kept.join("records.jsonl")).unwrap())
        .unwrap();
}

const ROLE: &str = "SQUALL_RECORDS_TEST_ROLE";
const PATH: &str = "SQUALL_RECORDS_TEST_PATH";

/// This test program again, as the process that the environment says.
fn process(role: &str, path: &Path) -> Command {
    let mut c = Command::new(std::env::current_exe().unwrap());
    c.args(["--exact", "store::other_process", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .env(PATH, path);
    c
}

#[test]
#[ignore = "the body of processes that other tests start"]
fn other_process() {
    let (Ok(role), Ok(path)) = (std::env::var(ROLE), std::env::var(PATH)) else { return };
    match role.split_once(':').unwrap_or((&role, "0")) {
        // Appends and reports each record after its append, as a tuning session does.
        ("append", first) => {
            let store = Store::open(path).unwrap();
            let first: usize = first.parse().unwrap();
            for i in first..first + 1_000_000 {
                store.append(&trial(4, i, measured(i as f64 + 1.0))).unwrap();
                println!("\nreported {i}");
            }
        }
        ("append100", first) => {
            let store = Store::open(path).unwrap();
            let first: usize = first.parse().unwrap();
            for i in first..first + 100 {
                assert!(store.append(&trial(4, i, measured(i as f64 + 1.0))).unwrap());
            }
        }
        ("read_only", _) => {
            let n = Store::open_read_only(&path).unwrap().query(&Query::default()).unwrap().len();
            assert_eq!(n, 3);
            let e =
                Store::open(&path).and_then(|s| s.append(&trial(4, 9, measured(1.0)))).unwrap_err();
            assert!(matches!(e, StoreError::ReadOnly { .. }), "{e:?}");
        }
        (other, _) => panic!("no role {other}"),
    }
}

#[test]
fn nothing_reported_is_lost_by_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let mut reported: Vec<usize> = Vec::new();
    for round in 0..12 {
        let first = round * 1_000_000;
        let mut child = process(&format!("append:{first}"), &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        // Some die in the first moments, some after hundreds of appends.
        let enough = [0, 1, 2, 3, 10, 30, 100, 150, 200, 300, 400, 500][round];
        let mut seen = 0;
        let mut killed = false;
        if enough == 0 {
            std::thread::sleep(std::time::Duration::from_millis(8));
            child.kill().unwrap();
            killed = true;
        }
        for line in out.lines() {
            if let Some(i) = line.unwrap().strip_prefix("reported ") {
                reported.push(i.parse().unwrap());
                seen += 1;
            }
            if seen >= enough && !killed {
                child.kill().unwrap();
                killed = true;
            }
        }
        child.wait().unwrap();
        let kept: std::collections::HashSet<String> = Store::open(&path)
            .unwrap()
            .query(&Query::default())
            .unwrap()
            .into_iter()
            .map(|r| r.configuration)
            .collect();
        for i in &reported {
            assert!(
                kept.contains(&format!("tile={i}")),
                "record {i} was reported and is missing after kill {round}"
            );
        }
    }
    assert!(reported.len() >= 1696, "only {} records were reported", reported.len());
    Store::open(&path).unwrap().verify().unwrap();
}

#[test]
fn writers_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    // All of them find no store and make it.
    let children: Vec<_> = (0..4)
        .map(|k| {
            process(&format!("append100:{}", k * 100), &path).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut c in children {
        assert!(c.wait().unwrap().success());
    }
    let store = Store::open(&path).unwrap();
    assert_eq!(store.verify().unwrap(), 400);
}

#[test]
fn a_read_only_store_can_be_read_and_says_why_it_is_not_written() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("shelf");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("a #1?.squall");
    {
        let store = Store::open(&path).unwrap();
        store.append_all((0..3).map(|i| Ok(trial(4, i, measured(1.0))))).unwrap();
    }
    let mode =
        |p: &Path, m: u32| std::fs::set_permissions(p, std::fs::Permissions::from_mode(m)).unwrap();
    mode(dir.path(), 0o755);
    mode(&path, 0o444);
    mode(&folder, 0o555);
    // Root may write everything: the test looks as another user.
    let mut child = process("read_only", &path);
    if std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0) {
        child.uid(65534).gid(65534);
    }
    let out = child.output().unwrap();
    mode(&folder, 0o755);
    assert!(
        out.status.success(),
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn a_full_disk_is_an_error_and_keeps_what_was_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(dir.path())
        .output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        println!("skipped: a small file system cannot be mounted here");
        return;
    }
    let path = dir.path().join("a");
    let result = std::panic::catch_unwind(|| {
        let mut n = 0;
        let e = {
            let store = Store::open(&path).unwrap();
            loop {
                match store.append(&trial(4, n, measured(1.0))) {
                    Ok(new) => assert!(new),
                    Err(e) => break e,
                }
                n += 1;
                assert!(n < 10_000, "1 MiB never fills");
            }
        };
        assert!(matches!(e, StoreError::Full { .. }), "{e:?}");
        assert!(n > 20, "only {n} records fit");
        assert_eq!(
            Store::open_read_only(&path).unwrap().query(&Query::default()).unwrap().len(),
            n
        );
        let mut copy = Vec::new();
        assert_eq!(
            Store::open_read_only(&path).unwrap().export(&Query::default(), &mut copy).unwrap(),
            n as u64
        );
    });
    let _ = Command::new("umount").arg("-l").arg(dir.path()).output();
    result.unwrap();
}
