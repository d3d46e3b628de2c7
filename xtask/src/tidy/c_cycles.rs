//! The rule of `cargo xtask tidy` against circles between C files: a file uses another where it
//! calls a function of the library (`rt_..`) that the other defines. Headers are left out, and so
//! are functions that are handed on without a call.

use super::cycles::strongly_connected;
use super::repository::{Repository, SourceFile};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The beginning of the names of functions that files of one folder share.
const SHARED: &str = "rt_";

/// No circle between the C files of a folder.
pub fn no_circles(r: &Repository) -> Vec<String> {
    let mut folders: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for s in r.sources.iter().filter(|s| !s.is_test && s.path.ends_with(".c")) {
        folders.entry(s.path.rsplit_once('/').map_or("", |p| p.0)).or_default().push(s);
    }
    folders.values().flat_map(|files| circles(files)).collect()
}

/// The functions that a file names, each with whether the file defines it.
fn functions(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let code = without_comments(text);
    for (at, _) in code.match_indices(SHARED) {
        let is_start = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let name: String =
            code[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let rest = &code[at + name.len()..];
        if !is_start || !rest.starts_with('(') {
            continue;
        }
        // A definition begins a line, and its parameters stand before an opening brace.
        let line = code[..at].rfind('\n').map_or(0, |n| n + 1);
        let begins = code[line..at].starts_with(|c: char| c.is_ascii_alphabetic())
            && !code[line..at].starts_with("static");
        let end = rest.find(['{', ';']).map(|n| rest.as_bytes()[n]);
        found.push((name, begins && end == Some(b'{')));
    }
    found
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or("").to_string();
    parts.fold(first, |all, part| all + part.split_once("*/").map_or("", |p| p.1))
}

fn circles(files: &[&SourceFile]) -> Vec<String> {
    let all: Vec<Vec<(String, bool)>> = files.iter().map(|f| functions(&f.text)).collect();
    let mut defined: HashMap<&str, BTreeSet<usize>> = HashMap::new();
    for (i, names) in all.iter().enumerate() {
        for (name, _) in names.iter().filter(|n| n.1) {
            defined.entry(name).or_default().insert(i);
        }
    }
    let edges_of = |(i, names): (usize, &Vec<(String, bool)>)| {
        let places = names.iter().filter_map(|(name, _)| defined.get(name.as_str()));
        // Where several files define a function of a name, a file means its own.
        let others = places.filter(|p| !p.contains(&i)).flatten();
        others.copied().collect::<BTreeSet<usize>>()
    };
    let edges: Vec<BTreeSet<usize>> = all.iter().enumerate().map(edges_of).collect();
    let circle = |group: BTreeSet<usize>| {
        let paths: Vec<&str> = group.iter().map(|&i| &*files[i].path).collect();
        format!("a circle of C files: {}", paths.join(", "))
    };
    strongly_connected(&edges).into_iter().map(circle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(files: &[(&str, &str)]) -> usize {
        no_circles(&Repository::of_texts("host", files)).len()
    }

    #[test]
    fn files_that_call_each_other_are_a_circle() {
        let a = ("a.c", "int rt_a(int x) {\n  return rt_b(x);\n}\n");
        let b = ("b.c", "int rt_b(int x,\n         int y) {\n  return rt_a(x);\n}\n");
        assert_eq!(faults(&[a, b]), 1);
        let says = ("b.c", "/* rt_a(x) calls it */\nint rt_b(int x) { return x; }\n");
        assert_eq!(faults(&[a, says]), 0);
        // A declaration is no definition.
        let declared = ("c.c", "int rt_a(int x);\nint rt_c(void) { return 0; }\n");
        assert_eq!(faults(&[a, says, declared]), 0);
    }
}
