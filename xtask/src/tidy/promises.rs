//! The rule of `cargo xtask tidy` about docs/reliability.md, the page of promises to users: each
//! row of its tables names the tests that hold the promise, and each of these tests must be in the
//! file that the page says.

use super::repository::Repository;
use std::collections::HashSet;
use syn::visit::{self, Visit};

const PAGE: &str = "docs/reliability.md";

/// Every row of a table with a column `test` names tests, and those are there.
pub fn named_tests_exist(r: &Repository) -> Vec<String> {
    let mut tests: HashSet<(String, String)> = HashSet::new();
    for s in &r.sources {
        let Some(file) = &s.syntax else { continue };
        let mut found = Tests(Vec::new());
        found.visit_file(file);
        tests.extend(found.0.into_iter().map(|name| (name, s.path.clone())));
    }
    faults(&r.text(PAGE), &|name, place| {
        tests.iter().any(|(n, path)| n == name && path.ends_with(place))
    })
}

/// The names of functions that are tests.
struct Tests(Vec<String>);

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        if f.attrs.iter().any(|a| a.path().is_ident("test")) {
            self.0.push(f.sig.ident.to_string());
        }
        visit::visit_item_fn(self, f);
    }
}

/// A test that a text names, and the end of the path of its file.
type Named<'t> = (&'t str, &'t str);

/// The tests in a text: `` `name`, `name` (folder/file.rs) ``. A name without a file behind it is
/// looked for everywhere.
fn named(text: &str) -> Vec<Named<'_>> {
    let mut all: Vec<Named<'_>> = Vec::new();
    let mut placed = 0;
    let pieces: Vec<&str> = text.split('`').collect();
    for (i, piece) in pieces.iter().enumerate() {
        if i % 2 == 1 {
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if piece.matches('_').count() >= 2 && piece.chars().all(is_name) {
                all.push((piece, ""));
            }
        } else if let Some(place) = file_of(piece) {
            all[placed..].iter_mut().for_each(|n| n.1 = place);
            placed = all.len();
        }
    }
    all
}

/// The file that stands behind names, up to a comma inside the brackets: `(cli/tests/tune.rs)`.
fn file_of(text: &str) -> Option<&str> {
    let inside = text.trim_start().strip_prefix('(')?.split(')').next()?;
    let place = inside.split(',').next().unwrap_or(inside).trim();
    place.ends_with(".rs").then_some(place)
}

fn faults(page: &str, is_there: &dyn Fn(&str, &str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut header, mut promises): (Option<usize>, usize) = (None, 0);
    for (i, line) in page.lines().enumerate() {
        let at = format!("{PAGE}:{}", i + 1);
        for (name, place) in named(line).into_iter().filter(|n| !is_there(n.0, n.1)) {
            faults.push(format!("{at}: there is no test `{name}` {place}"));
        }
        if !line.starts_with('|') {
            header = None;
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let Some(column) = header else {
            // The first line of a table names its columns.
            header = Some(cells.iter().position(|c| *c == "test").unwrap_or(usize::MAX));
            continue;
        };
        let is_rule = cells.iter().all(|c| c.trim_matches(['-', '|', ':']).is_empty());
        if column == usize::MAX || is_rule {
            continue;
        }
        promises += 1;
        let tests = cells.get(column).map_or(0, |c| named(c).len());
        let runs = cells.get(column).is_some_and(|c| c.contains("`cargo test"));
        if tests == 0 && !runs {
            faults.push(format!("{at}: this promise names no test"));
        }
    }
    if promises == 0 {
        faults.push(format!("{PAGE}: it holds no table of promises"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
        | promise | test |\n|---|---|\n\
        | one | `a_b_c`, `d_e_f` (cli/tests/x.rs), `g_h_i` (y.rs, unit) |\n\
        | two | by hand |\n\
        | three | `cargo test -p squall-fuzz` |\n\n\
        Text with `no_test` and `not_a_test_at_all`.\n\
        | other | columns |\n|---|---|\n| x | y |\n";

    #[test]
    fn names_without_a_test_and_rows_without_a_name_are_found() {
        let known = [("a_b_c", "cli/tests/x.rs"), ("d_e_f", "cli/tests/x.rs"), ("g_h_i", "y.rs")];
        let found = faults(PAGE, &|n, p| known.contains(&(n, p)));
        let want = [
            "docs/reliability.md:4: this promise names no test",
            "docs/reliability.md:7: there is no test `not_a_test_at_all` ",
        ];
        assert_eq!(found, want);
        let moved = faults(PAGE, &|n, p| n != "d_e_f" && (known.contains(&(n, p)) || p.is_empty()));
        assert!(moved.iter().any(|f| f.contains("`d_e_f` cli/tests/x.rs")), "{moved:?}");
        assert_eq!(faults("nothing\n", &|_, _| true).len(), 1);
    }
}
