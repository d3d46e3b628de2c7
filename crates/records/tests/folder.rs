//! Tests of a folder as a store: many processes with a file each, files that users put there,
//! processes that are killed, a folder that goes away, and merging in any order with the same
//! winners.

use proptest::test_runner::{Config, TestRunner};
use squall_core::*;
use squall_records::*;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

fn record(task: i64, i: usize, kind: RecordKind, ns: f64, time: f64) -> Record {
    let w = Workload::parse(&format!(
        "workload relu\ndata X: f32[{task}]\nstage Y: f32[i: {task}] = max(X[i], 0)\noutput Y\n"
    ))
    .unwrap();
    Record {
        kind,
        task: TaskId::of(&w, Objective::Time),
        name: format!("relu_{task}"),
        workload: w.to_string(),
        device: "cpu".into(),
        toolchain: "gcc".into(),
        tunable: "tiles".into(),
        configuration: format!("tile={i}"),
        outcome: Outcome::Measured(Measurement {
            samples: vec![Nanos(ns)],
            calls: 1,
            error: 1e-7,
            gpu: None,
            pace: None,
        }),
        cost: CpuCost { build: 0.1, measure: 0.2, search: 0.3 },
        seed: 7,
        time,
    }
}

fn trial(task: i64, i: usize) -> Record {
    record(task, i, RecordKind::Trial, 100.0 - i as f64, 1000.0 + i as f64)
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn each_process_writes_a_file_of_its_own_and_reads_all() {
    let dir = tempfile::tempdir().unwrap();
    // The slash at the end says that a folder is wanted where nothing is yet.
    let folder = dir.path().join("results/");
    let first = Store::open(&folder).unwrap();
    first.append_all((0..3).map(|i| Ok(trial(4, i)))).unwrap();
    let second = Store::open(&folder).unwrap();
    assert_eq!(second.len().unwrap(), 3, "what others wrote is known");
    assert!(!second.append(&trial(4, 1)).unwrap(), "and not written again");
    let kept = second.append_latest(record(4, 9, RecordKind::Trial, 1.0, 5.0)).unwrap();
    assert!(kept.time > 1002.0, "dates follow those of others");
    assert_eq!(first.len().unwrap(), 3, "a session knows what was there when it began");
    drop(Store::open(&folder).unwrap());
    assert_eq!(files(&folder).len(), 2, "a process without a record leaves no file");
    let all = Store::open_read_only(&folder).unwrap();
    assert_eq!(all.verify().unwrap(), 4);
    assert_eq!(all.best(&Query::default()).unwrap()[0].configuration, "tile=9");
    assert_eq!(files(&folder).len(), 2, "reading writes nothing");
}

#[test]
fn stores_and_lines_that_users_put_there_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("results");
    std::fs::create_dir(&folder).unwrap();
    assert!(matches!(Store::open_read_only(&folder), Err(StoreError::Empty { .. })));
    Store::open(folder.join("a.squall")).unwrap().append(&trial(4, 1)).unwrap();
    let mut lines = Vec::new();
    let other = Store::open(dir.path().join("b")).unwrap();
    other.append(&trial(5, 2)).unwrap();
    other.export(&Query::default(), &mut lines).unwrap();
    std::fs::write(folder.join("b.jsonl"), &lines).unwrap();
    std::fs::write(folder.join("notes.txt"), "no records").unwrap();
    assert_eq!(Store::open_read_only(&folder).unwrap().len().unwrap(), 2);
    // Examples of predictors have no place in it.
    let store = Store::open(&folder).unwrap();
    assert!(matches!(store.add_examples(&[]), Err(StoreError::InFolder { .. })));
}

#[test]
fn what_a_killed_process_did_not_finish_is_passed_over_and_what_is_wrong_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("results/");
    let store = Store::open(&folder).unwrap();
    store.append_all((0..2).map(|i| Ok(trial(4, i)))).unwrap();
    drop(store);
    let file = files(&folder).remove(0);
    let whole = std::fs::read(&file).unwrap();
    for cut in [whole.len() - 1, whole.len() - 7, whole.len() / 2 + 1] {
        std::fs::write(&file, &whole[..cut]).unwrap();
        assert_eq!(Store::open_read_only(&folder).unwrap().len().unwrap(), 1, "cut at {cut}");
    }
    std::fs::write(&file, b"{\"kind\": 3}\n").unwrap();
    let error = Store::open_read_only(&folder).err().unwrap();
    assert!(matches!(error, StoreError::FolderLine { line: 1, .. }), "{error}");
    // A time that is none would be the best one for ever.
    std::fs::write(&file, &whole).unwrap();
    let text =
        String::from_utf8(whole).unwrap().replace("\"samples\":[99.0]", "\"samples\":[-5.0]");
    std::fs::File::create(&file).unwrap().write_all(text.as_bytes()).unwrap();
    let error = Store::open_read_only(&folder).err().unwrap();
    assert!(error.to_string().contains("-5 ns is no time"), "{error}");
}

#[test]
fn a_folder_that_goes_away_is_noticed_and_its_records_are_saved() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("results");
    std::fs::create_dir(&folder).unwrap();
    let store = Store::open(&folder).unwrap();
    store.append(&trial(4, 1)).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let Err(StoreError::Replaced { rescued: Some(saved), .. }) = store.append(&trial(4, 2)) else {
        panic!("a folder that is gone was written to");
    };
    let other = Store::open(dir.path().join("b.squall")).unwrap();
    let lines = std::fs::File::open(saved).unwrap();
    let taken = other.import(&mut std::io::BufReader::new(lines)).unwrap();
    assert_eq!(taken.counts(), (2, 0));
}

/// Hosts whose clocks are off by up to an hour hold run-offs and trials of the same tasks; whatever
/// the order in which their files are brought together, winners and lines are the same.
#[test]
fn a_thousand_orders_of_merging_give_the_same_winners() {
    const HOSTS: usize = 6;
    let dir = tempfile::tempdir().unwrap();
    let skew = [0.0, 3600.0, -3600.0, 1800.0, -60.0, 7.0];
    let hosts: Vec<Store> =
        (0..HOSTS).map(|h| Store::open(dir.path().join(format!("{h}"))).unwrap()).collect();
    for (h, store) in hosts.iter().enumerate() {
        for i in 0..20 {
            let task = 4 + (i % 3) as i64;
            let kind = if i % 5 == 4 { RecordKind::Rematch } else { RecordKind::Trial };
            let ns = 50.0 + ((h * 31 + i * 17) % 41) as f64;
            let time = 1e6 + skew[h] + i as f64;
            store.append_latest(record(task, (h * 7 + i) % 11, kind, ns, time)).unwrap();
        }
    }
    let state = |s: &Store| {
        let mut lines = Vec::new();
        s.export(&Query::default(), &mut lines).unwrap();
        let lines: BTreeSet<String> =
            String::from_utf8(lines).unwrap().lines().map(String::from).collect();
        let mut best: Vec<String> = s
            .best(&Query::default())
            .unwrap()
            .iter()
            .map(|r| format!("{} {} {:?}", r.task, r.configuration, r.outcome.time()))
            .collect();
        best.sort();
        (lines, best)
    };
    let merged = |order: &[usize]| {
        let store = Store::of_records("merged", []).unwrap();
        for h in order {
            store.merge(&hosts[*h]).unwrap();
        }
        state(&store)
    };
    let expected = merged(&[0, 1, 2, 3, 4, 5]);
    assert_eq!(expected.1.len(), 3);
    use proptest::strategy::Strategy;
    let orders = proptest::strategy::Just((0..HOSTS).collect::<Vec<usize>>()).prop_shuffle();
    let config = Config { cases: 1000, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&orders, |order| {
            assert!(merged(&order) == expected, "{order:?}");
            Ok(())
        })
        .unwrap();
}

/// The records of one run, dealt out over sixteen files, are that run again.
#[test]
fn sixteen_shards_merged_are_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let one = Store::open(dir.path().join("one.squall")).unwrap();
    let shards: Vec<Store> =
        (0..16).map(|n| Store::open(dir.path().join(format!("shards/{n}/"))).unwrap()).collect();
    for i in 0..400 {
        let kind = if i % 40 == 39 { RecordKind::Rematch } else { RecordKind::Trial };
        let ns = 1000.0 / (1 + (i * 37) % 97) as f64;
        let kept = one.append_latest(record(4 + (i % 5) as i64, i, kind, ns, 1e6)).unwrap();
        shards[i % 16].append(&kept).unwrap();
    }
    let merged = Store::open(dir.path().join("merged.squall")).unwrap();
    for n in (0..16).rev() {
        let shard = Store::open_read_only(dir.path().join(format!("shards/{n}"))).unwrap();
        merged.merge(&shard).unwrap();
    }
    assert_eq!(merged.len().unwrap(), 400);
    let winners = |s: &Store| {
        let mut best: Vec<String> =
            s.best(&Query::default()).unwrap().iter().map(Record::identity).collect();
        best.sort();
        best
    };
    assert_eq!(winners(&merged), winners(&one));
}
