//! The rule of rooms: the files of the crate `squall` lie in folders that use each other in one
//! direction, and this file has the order. A name that `lib.rs` passes on counts as the room that
//! defines it. Tests may use all rooms.

use super::cycles::{File, files_of_crates, uses};
use super::repository::Repository;

/// The crate that is divided into rooms.
const CRATE: &str = "crates/squall";

/// Its rooms, each of which uses only those before it; ARCHITECTURE.md has the same line.
const ROOMS: &[&str] = &[
    "base",
    "target",
    "input",
    "task",
    "predict",
    "inference",
    "tuning",
    "ship",
    "decide",
    "workers",
    "api",
];

/// Each file of the crate lies in a room and uses only that and the rooms before it.
pub fn one_direction(r: &Repository) -> Vec<String> {
    let mut faults = Vec::new();
    if !r.text("ARCHITECTURE.md").contains(&line()) {
        faults.push(format!("ARCHITECTURE.md does not list the rooms as {}", line()));
    }
    if let Some(files) = files_of_crates(r).get(CRATE) {
        faults.extend(faults_of(files));
    }
    faults
}

/// The rooms as ARCHITECTURE.md lists them.
fn line() -> String {
    ROOMS.iter().map(|room| format!("`{room}`")).collect::<Vec<_>>().join(", ")
}

/// The place of a file's room in the order; none of the crate's root.
fn room_of(file: &File) -> Option<Result<usize, String>> {
    let folder = file.module.first()?;
    let found = ROOMS.iter().position(|room| room == folder);
    Some(found.ok_or_else(|| format!("{} lies in no room", file.path)))
}

fn faults_of(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, used) in files.iter().zip(uses(files)) {
        let room = match room_of(file) {
            None => continue,
            Some(Err(fault)) => {
                faults.push(fault);
                continue;
            }
            Some(Ok(room)) => room,
        };
        for other in used.into_iter().map(|i| &files[i]) {
            let above = match room_of(other) {
                // What the root passes on by `*` says not where it is defined.
                None => "the crate's root",
                Some(Ok(theirs)) if theirs > room => ROOMS[theirs],
                _ => continue,
            };
            faults.push(format!(
                "{} in `{}` uses {}, which is above it: `{above}`",
                file.path, ROOMS[room], other.path
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let r = Repository::of_texts("src", files);
        files_of_crates(&r).values().flat_map(|files| faults_of(files)).collect()
    }

    #[test]
    fn a_room_uses_only_rooms_before_it_even_through_the_root() {
        let down = [
            ("lib.rs", "mod base; mod api; pub use api::go; pub use base::Error;"),
            ("base/mod.rs", "pub struct Error;"),
            ("api/mod.rs", "mod part; pub use part::go;"),
            ("api/part.rs", "use crate::Error; use crate::base; pub fn go() -> Error { todo!() }"),
        ];
        assert_eq!(faults(&down), Vec::<String>::new());
        let up = ("base/mod.rs", "pub struct Error; fn f() { crate::go() }");
        let found = faults(&[down[0], up, down[2], down[3]]);
        assert!(found.len() == 1 && found[0].contains("`base` uses crates/x/src/api"), "{found:?}");
        let of_all = ("lib.rs", "mod base; mod api; pub use api::*; pub use base::Error;");
        let found = faults(&[of_all, up, down[2], down[3]]);
        assert!(found.len() == 1 && found[0].contains("the crate's root"), "{found:?}");
    }

    #[test]
    fn every_file_but_the_root_lies_in_a_room_and_tests_may_use_all() {
        let found = faults(&[("lib.rs", "mod new;"), ("new.rs", "")]);
        assert!(found.len() == 1 && found[0].contains("new.rs lies in no room"), "{found:?}");
        let tested = ("base/mod.rs", "#[cfg(test)] mod tests { use crate::api::go; }");
        assert!(faults(&[tested, ("api/mod.rs", "pub fn go() {}")]).is_empty());
    }

    #[test]
    fn each_room_is_a_folder_that_says_what_it_does() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/squall/src");
        for room in ROOMS {
            assert!(fs::exists(root.join(room).join("mod.rs")).unwrap(), "{room}");
        }
    }
}
