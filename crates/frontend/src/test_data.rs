//! Files of the larger corpus beside the repository, which some tests read where it is there.

use std::path::{Path, PathBuf};

/// The path of a file or folder of the shared data; `None`, with a line that says so, where it is
/// absent. With `SQUALL_REQUIRE_DATA=1` its absence is a failure. `SQUALL_SHARED` names another
/// folder than `../shared` beside the repository.
pub fn shared(path: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("SQUALL_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = folder.join("data").join(path);
    if path.exists() {
        return Some(path);
    }
    let required = std::env::var_os("SQUALL_REQUIRE_DATA").is_some_and(|v| v == "1");
    assert!(!required, "{} is not there, and SQUALL_REQUIRE_DATA asks for it", path.display());
    println!("skipped: {} is not there", path.display());
    None
}
