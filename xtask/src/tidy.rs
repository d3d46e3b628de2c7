//! `cargo xtask tidy`: checks the invariants of ARCHITECTURE.md that no compiler checks, such as
//! which crates may depend on each other or touch files. It reads files and changes nothing. A rule
//! is a function from the repository to the faults that it finds; the list of rules is here.

mod c_cycles;
mod crates;
mod cycles;
mod functions;
mod promises;
mod repository;
mod rooms;
mod text;

use repository::Repository;
use std::path::PathBuf;
use std::process::ExitCode;

/// Looks at the repository and says what breaks the rule.
type Rule = fn(&Repository) -> Vec<String>;

const RULES: &[(&str, Rule)] = &[
    ("crates depend on what the table allows", crates::dependencies_between_crates),
    ("crates touch what the table allows", crates::privileges),
    ("files use each other in one direction", cycles::no_circles),
    ("C files use each other in one direction", c_cycles::no_circles),
    ("the rooms of squall use each other in one direction", rooms::one_direction),
    ("functions have at most 80 lines and six parameters", functions::small_functions),
    ("parameters of functions have names", functions::named_parameters),
    ("files open with what they own; 600 lines, 100 columns", text::files),
    ("names say what they hold", text::names),
    ("comments say what acts", text::plain_comments),
    ("files that comments name are there", text::paths_in_comments),
    ("every dependency has its reason", text::dependencies),
    ("each promise names a test that is there", promises::named_tests_exist),
    ("the documents are there and short enough", text::documents),
];

/// Runs every rule; `only` keeps faults whose text has that word, as a crate's name.
pub fn tidy(root: PathBuf, only: Option<&str>) -> ExitCode {
    let r = match Repository::read(root) {
        Ok(r) => r,
        Err(e) => {
            eprintln!("tidy: {e}");
            return ExitCode::FAILURE;
        }
    };
    let mut broken = 0;
    for (name, rule) in RULES {
        for fault in rule(&r).iter().filter(|f| only.is_none_or(|o| f.contains(o))) {
            eprintln!("tidy: {name}: {fault}");
            broken += 1;
        }
    }
    println!("tidy: {} rules over {} files, {broken} faults", RULES.len(), r.sources.len());
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
