//! A test of the lines of MIOpen's find databases in a store (`records/src/find_block.rs`): the
//! newest line of a key is valid, and a line that the store has is not added again.

use squall_records::{FindAdded, Store};

#[test]
fn the_newest_line_of_a_key_is_valid_and_what_is_known_is_not_added() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("a")).unwrap();
    let lines = |l: &[&str]| l.iter().map(|s| s.to_string()).collect::<Vec<_>>();
    let add = |l: &[&str]| store.add_find_lines("gfx906_60", "x", &lines(l), &|_| 1).unwrap();
    assert_eq!(add(&["a=1", "b=2"]), FindAdded { new: 2, changed: 0, known: 0 });
    assert_eq!(add(&["a=1", "b=3", "c=4"]), FindAdded { new: 1, changed: 1, known: 1 });
    assert_eq!(add(&["a=1", "b=3"]), FindAdded { new: 0, changed: 0, known: 2 });
    assert_eq!(store.find_lines("gfx906_60").unwrap(), ["a=1", "b=3", "c=4"]);
    assert!(store.find_lines("gfx900_56").unwrap().is_empty());
    assert_eq!(store.find_devices().unwrap(), [("gfx906_60".to_string(), 4)]);
}
