//! Tests of a store (`records/src/store.rs`) against hostile or unlucky surroundings: records that
//! cannot be right, databases of strangers, files that go away, locks that stay, and clocks that
//! were put back.

use squall_core::*;
use squall_records::*;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn record(configuration: &str, samples: &[f64]) -> Record {
    let text = "workload relu\ndata X: f32[4]\nstage Y: f32[i: 4] = max(X[i], 0)\noutput Y\n";
    let w = Workload::parse(text).unwrap();
    Record {
        kind: RecordKind::Trial,
        task: TaskId::of(&w, Objective::Time),
        name: "relu".into(),
        workload: w.to_string(),
        device: "cpu".into(),
        toolchain: "gcc".into(),
        tunable: "tiles".into(),
        configuration: configuration.into(),
        outcome: Outcome::Measured(Measurement {
            samples: samples.iter().map(|s| Nanos(*s)).collect(),
            calls: 1,
            error: 0.0,
            gpu: None,
            pace: None,
        }),
        cost: CpuCost::default(),
        seed: 0,
        time: 1000.0,
    }
}

fn lines(records: &[Record]) -> Vec<u8> {
    records
        .iter()
        .flat_map(|r| wire::encode(r).unwrap().into_bytes().into_iter().chain([b'\n']))
        .collect()
}

#[test]
fn records_that_cannot_be_right_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("a")).unwrap();
    let all = [
        record("a=1", &[100.0]),
        record("a=2", &[]),
        record("a=3", &[-5.0]),
        record("a=4", &[1e308, 1e308]),
        Record { task: TaskId::of_text("other", Objective::Time), ..record("a=5", &[50.0]) },
        record("a=6,a=7", &[50.0]),
    ];
    let taken = store.import(&mut lines(&all).as_slice()).unwrap();
    assert_eq!((taken.new, taken.known, taken.refused), (1, 0, 5));
    assert!(taken.reasons.iter().any(|r| r.contains("task id")), "{taken:?}");
    let best = store.best(&Query::default()).unwrap();
    assert_eq!(best.iter().map(|r| r.configuration.as_str()).collect::<Vec<_>>(), ["a=1"]);
    // The same from another store, whose writer looked at nothing.
    let other = Store::open(dir.path().join("b")).unwrap();
    other.append_all(all.into_iter().map(Ok)).unwrap();
    let third = Store::open(dir.path().join("c")).unwrap();
    assert_eq!(third.merge(&other).unwrap().refused, 5);
    // What an older build took over holds no task, and what is not accepted neither.
    let time = |found: Vec<Record>| {
        found.iter().map(|r| r.outcome.time().unwrap().0).min_by(f64::total_cmp)
    };
    assert!(time(other.best(&Query::default()).unwrap()) > Some(0.0));
    let none = other.best_of(&Query::default(), &mut |e| e.candidate.1 == "a=1").unwrap();
    assert_eq!(time(none), Some(100.0));
}

#[test]
fn what_is_appended_last_counts_last_whatever_the_clock_says() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("a")).unwrap();
    let rematch = |c: &str, ns: f64, time: f64| Record {
        kind: RecordKind::Rematch,
        time,
        ..record(c, &[ns])
    };
    let first = store.append_latest(rematch("a=1", 100.0, 5000.0)).unwrap();
    assert_eq!(first.time, 5000.0);
    // The clock was put back by an hour.
    let second = store.append_latest(rematch("a=2", 99.0, 1400.0)).unwrap();
    assert!(second.time > 5000.0 && second.time < 5000.1, "{}", second.time);
    assert_eq!(store.best(&Query::default()).unwrap()[0].configuration, "a=2");
    assert!(store.query(&Query::default()).unwrap().contains(&second), "it is kept as returned");
    // Other tasks and places have dates of their own.
    let other = Record { device: "gpu".into(), ..rematch("a=1", 1.0, 10.0) };
    assert_eq!(store.append_latest(other).unwrap().time, 10.0);
    // Two merged stores agree on the winner whatever the order in which they were merged.
    let part = |name: &str, r: &Record| {
        let s = Store::open(dir.path().join(name)).unwrap();
        s.append(r).unwrap();
        s
    };
    let (x, y) =
        (part("x", &rematch("a=3", 90.0, 9000.0)), part("y", &rematch("a=4", 91.0, 9000.0)));
    let winner = |name: &str, parts: [&Store; 2]| {
        let s = Store::open(dir.path().join(name)).unwrap();
        parts.iter().for_each(|p| drop(s.merge(p).unwrap()));
        s.best(&Query::default()).unwrap()[0].configuration.clone()
    };
    assert_eq!(winner("xy", [&x, &y]), winner("yx", [&y, &x]));
}

#[test]
fn a_store_that_goes_away_is_written_anew_beside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.squall");
    let store = Store::open(&path).unwrap();
    store.append_latest(record("a=1", &[100.0])).unwrap();
    store.confirm_all().unwrap();
    std::fs::remove_file(&path).unwrap();
    let rescued = |e: StoreError| match e {
        StoreError::Replaced { rescued: Some(p), .. } => p,
        other => panic!("{other}"),
    };
    let e = store.append_latest(record("a=2", &[90.0])).unwrap_err();
    assert!(e.to_string().contains("a.squall.rescued") && e.remedy().contains("merge"), "{e}");
    let saved = Store::open_read_only(rescued(e)).unwrap();
    assert_eq!(saved.len().unwrap(), 2, "the record that was being appended is saved, too");
    drop(saved);
    // What is appended all the same goes to that one file.
    for i in 3..7u32 {
        let e = store.append_latest(record(&format!("a={i}"), &[80.0])).unwrap_err();
        let saved = rescued(e);
        assert!(saved.ends_with("a.squall.rescued"), "{saved:?}");
        let saved = Store::open_read_only(saved).unwrap();
        assert_eq!(saved.len().unwrap(), u64::from(i));
    }
    let e = rescued(store.confirm().unwrap_err());
    let beside = std::fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().file_name());
    let beside: Vec<_> = beside.filter(|f| f.to_string_lossy().contains("rescued")).collect();
    assert_eq!(beside, ["a.squall.rescued"]);
    // A file that someone else put in its place is not ours to write over.
    std::fs::remove_file(&e).unwrap();
    std::fs::write(&e, "mine").unwrap();
    assert!(rescued(store.confirm().unwrap_err()).ends_with("a.squall.rescued-2"));
    assert_eq!(std::fs::read(&e).unwrap(), b"mine");
    // Another store in its place is not written to.
    let again = Store::open(dir.path().join("b")).unwrap();
    again.append_latest(record("a=1", &[100.0])).unwrap();
    Store::open(dir.path().join("c")).unwrap();
    std::fs::rename(dir.path().join("c"), dir.path().join("b")).unwrap();
    let saved = rescued(again.confirm_all().unwrap_err());
    assert_eq!(Store::open_read_only(saved).unwrap().len().unwrap(), 1);
}

/// A valid store whose schema a stranger changed.
fn tampered(path: &Path, sql: &str) {
    Store::open(path).unwrap().append(&record("a=1", &[100.0])).unwrap();
    let c = rusqlite::Connection::open(path).unwrap();
    c.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
    c.execute_batch(sql).unwrap();
}

#[test]
fn the_sql_of_strangers_does_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x, x, \
                   'trial', 'a', 'a', 'a', 'a', 'a', 'a', 'measured', 1.0, 1.0, 'a' FROM n";
    let columns = "(seq, identity, kind, task, name, device, toolchain, tunable, configuration, \
                   outcome, time_ns, recorded, body)";
    for (name, sql) in [
        ("view", format!("DROP TABLE record; CREATE VIEW record {columns} AS {endless};")),
        ("trigger", "CREATE TRIGGER t AFTER INSERT ON record BEGIN SELECT 1; END;".to_string()),
        (
            "computed",
            "DROP TABLE example; CREATE TABLE example (seq, solver, device, key, answer, problem, \
             x GENERATED ALWAYS AS (abs(seq)));"
                .to_string(),
        ),
    ] {
        let path = dir.path().join(name);
        tampered(&path, &sql);
        let start = Instant::now();
        for open in [Store::open_read_only(&path), Store::open(&path)] {
            let e = open.err().unwrap_or_else(|| panic!("the {name} is opened"));
            assert!(matches!(e, StoreError::Foreign { .. }), "{name}: {e}");
        }
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn pipes_and_devices_are_no_stores() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.squall");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe.as_path(), Path::new("/dev/zero"), Path::new("/dev/full")] {
        let path = path.to_path_buf();
        let (done, end) = std::sync::mpsc::channel();
        // Opening a pipe waits for ever, so another thread tries it.
        std::thread::spawn(move || {
            for open in [Store::open_read_only(&path), Store::open(&path)] {
                let text = open.err().map(|e| e.to_string()).unwrap_or_default();
                let _ = done.send(text);
            }
        });
        for _ in 0..2 {
            let text = end.recv_timeout(Duration::from_secs(20)).expect("it waits for a pipe");
            assert!(text.contains("a store is a file"), "{text}");
        }
    }
}

/// The one test of this program that changes how the process waits.
#[test]
fn a_lock_is_named_bounded_and_can_be_left() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let said = Arc::new(Mutex::new(Vec::<String>::new()));
    let asked = Arc::new(AtomicUsize::new(0));
    let (hears, counts) = (Arc::clone(&said), Arc::clone(&asked));
    assert!(set_patience(Patience {
        limit: Duration::from_millis(900),
        silent: Duration::from_millis(200),
        say: Arc::new(move |text| hears.lock().unwrap().push(text.into())),
        stop: Arc::new(move || {
            counts.fetch_add(1, Ordering::Relaxed);
            STOP.load(Ordering::Relaxed)
        }),
    }));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.squall");
    let store = Store::open(&path).unwrap();
    let holder = rusqlite::Connection::open(&path).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let start = Instant::now();
    let e = store.append_latest(record("a=1", &[1.0])).unwrap_err();
    assert!(matches!(e, StoreError::Locked { .. }), "{e}");
    assert!(start.elapsed() < Duration::from_secs(10) && asked.load(Ordering::Relaxed) > 5);
    let heard = said.lock().unwrap().clone();
    assert!(heard.iter().any(|t| t.contains("a.squall") && t.contains("locked")), "{heard:?}");
    // What can be left out waits for less.
    let hurried = Store::open_within(&path, Duration::from_millis(50)).unwrap();
    let start = Instant::now();
    let e = hurried.append_latest(record("a=1", &[1.0])).unwrap_err();
    assert!(matches!(e, StoreError::Locked { .. }), "{e}");
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    STOP.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let e = store.append_latest(record("a=1", &[1.0])).unwrap_err();
    assert!(matches!(e, StoreError::Stopped { .. }), "{e}");
    assert!(start.elapsed() < Duration::from_millis(700), "the wait went on");
    STOP.store(false, Ordering::Relaxed);
    holder.execute_batch("COMMIT").unwrap();
    store.append_latest(record("a=1", &[1.0])).unwrap();
}
