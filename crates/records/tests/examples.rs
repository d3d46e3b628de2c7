//! Tests of examples in a store (problems that others tuned, `records/src/example.rs`): each
//! problem comes back once with its last answer, and a store of schema version 1 takes examples
//! once it is upgraded.

use squall_core::forecast::{Example, Problem};
use squall_records::Store;
use std::path::Path;

fn example(solver: &str, device: &str, key: &str, values: &[i64]) -> Example {
    let problem = Problem {
        solver: solver.into(),
        device: device.into(),
        words: vec![("direction".into(), "F".into())],
        numbers: vec![("a".into(), 64), ("b".into(), 3)],
        key: key.into(),
        layer: format!("layer of {key}"),
    };
    Example { problem, values: values.into() }
}

#[test]
fn examples_come_back_each_problem_once_with_its_last_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let store = Store::open(&path).unwrap();
    let all = [
        example("A", "gfx900", "1", &[1, -2]),
        example("A", "gfx906", "1", &[3]),
        example("B", "gfx900", "1", &[4]),
    ];
    assert_eq!(store.add_examples(&all).unwrap(), (3, 0));
    assert_eq!(store.add_examples(&all).unwrap(), (0, 3));
    assert_eq!(store.examples(None, None).unwrap(), all);
    assert_eq!(store.examples(Some("A"), Some("gfx906")).unwrap(), all[1..2]);
    assert_eq!(store.examples(Some("C"), None).unwrap(), []);
    let again = example("A", "gfx900", "1", &[5, 6]);
    assert_eq!(store.add_examples(std::slice::from_ref(&again)).unwrap(), (1, 0));
    let both = [all[0].clone(), again];
    assert_eq!(store.examples(Some("A"), Some("gfx900")).unwrap(), both[1..]);
    assert_eq!(store.all_examples(Some("A"), Some("gfx900")).unwrap(), both);
    assert_eq!(store.all_examples(None, None).unwrap().len(), 4);
    drop(store);
    let store = Store::open_read_only(&path).unwrap();
    let counts: Vec<(String, String, u64)> = [("A", "gfx900"), ("A", "gfx906"), ("B", "gfx900")]
        .map(|(s, d)| (s.into(), d.into(), 1))
        .into();
    assert_eq!(store.example_counts().unwrap(), counts);
    assert!(store.is_empty().unwrap(), "examples are no records");
}

#[test]
fn a_store_of_version_1_has_none_and_takes_some() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v1/store.squall"), &path)
        .unwrap();
    let old = Store::open_read_only(&path).unwrap();
    assert_eq!(
        (old.examples(None, None).unwrap(), old.example_counts().unwrap()),
        (vec![], vec![])
    );
    drop(old);
    let store = Store::open(&path).unwrap();
    let records = store.len().unwrap();
    assert_eq!(store.add_examples(&[example("A", "gfx900", "1", &[1])]).unwrap(), (1, 0));
    assert_eq!((store.examples(None, None).unwrap().len(), store.len().unwrap()), (1, records));
}
