//! A test that a store loads for ever as version 3 of the schema wrote it (the records of version
//! 2, an example and a block of a find database), and takes wishes once it is opened for writing.

use squall_core::{Objective, Record, TaskId};
use squall_records::{Query, Store, Wish, wire};
use std::path::Path;

#[test]
fn a_store_of_version_3_loads_for_ever() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::copy(kept.join("v3/store.squall"), &path).unwrap();
    let lines = std::fs::read_to_string(kept.join("v2/records.jsonl")).unwrap();
    let expected: Vec<Record> = lines.lines().map(|l| wire::decode(l).unwrap()).collect();
    // One that is only read keeps its version and knows no wishes.
    let reading = Store::open_read_only(&path).unwrap();
    assert_eq!(reading.query(&Query::default()).unwrap(), expected);
    assert_eq!(reading.wishes(None).unwrap(), []);
    drop(reading);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.query(&Query::default()).unwrap(), expected);
    assert_eq!(store.examples(None, None).unwrap().len(), 1);
    assert_eq!(store.find_lines("gfx906_60").unwrap(), ["a=1", "b=2"]);
    let wish = Wish {
        task: TaskId::of_text("t", Objective::Time),
        name: "t".into(),
        workload: "t".into(),
        device: "cpu".into(),
        uses: 2,
        seconds: 0.5,
        last: 1.0,
    };
    store.add_wishes(std::slice::from_ref(&wish)).unwrap();
    assert_eq!(store.wishes(None).unwrap(), [wish]);
}
