//! The rule of `cargo xtask tidy` against circles between Rust files: within a crate, files use
//! each other in one direction. A module and the modules inside it are one thing: a child may use
//! the names that its parents define, and a parent its children's, and neither counts as an edge.
//! Names that a parent only passes on (`use child::Thing` in `mod.rs`, found as `super::Thing`) are
//! followed to the file that defines them, so that passing a name through the parent hides no
//! circle.

use super::repository::{Repository, for_tests};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use syn::visit::{self, Visit};

/// Path of a module inside its crate: `["nest", "verify"]`.
pub type Module = Vec<String>;

/// A module that is a file.
pub struct File {
    pub path: String,
    pub module: Module,
    /// What it names from elsewhere in the crate, as absolute paths.
    uses: Vec<Module>,
    /// Names that its `use` items bring in, with the absolute paths that they stand for.
    passes: HashMap<String, Module>,
}

/// No circle between files other than a module and its children.
pub fn no_circles(r: &Repository) -> Vec<String> {
    files_of_crates(r).values().flat_map(|files| circles(files)).collect()
}

/// The files of each crate, tests left out, by the folder of the crate.
pub fn files_of_crates(r: &Repository) -> BTreeMap<String, Vec<File>> {
    let mut crates: BTreeMap<String, Vec<File>> = BTreeMap::new();
    for s in r.sources.iter().filter(|s| !s.is_test) {
        let (Some(file), Some((head, inside))) = (&s.syntax, s.path.split_once("/src/")) else {
            continue;
        };
        let module = module_of(inside);
        let mut names = Names { here: module.clone(), uses: Vec::new(), passes: HashMap::new() };
        names.visit_file(file);
        let file = File { path: s.path.clone(), module, uses: names.uses, passes: names.passes };
        crates.entry(head.to_string()).or_default().push(file);
    }
    crates
}

/// The module of a file below `src/`.
fn module_of(inside: &str) -> Module {
    let mut parts: Module = inside.trim_end_matches(".rs").split('/').map(String::from).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Collects what a file names from its crate.
struct Names {
    here: Module,
    uses: Vec<Module>,
    passes: HashMap<String, Module>,
}

impl Names {
    /// The absolute form of a path that begins with `crate`, `self` or `super`.
    fn absolute(&self, segments: &[String]) -> Option<Module> {
        let mut at = match segments.first()?.as_str() {
            "crate" => Vec::new(),
            "self" => self.here.clone(),
            "super" => self.here[..self.here.len().checked_sub(1)?].to_vec(),
            _ => return None,
        };
        for s in &segments[1..] {
            if s == "super" {
                at.pop()?;
            } else {
                at.push(s.clone());
            }
        }
        Some(at)
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let mut path = before.to_vec();
        match tree {
            syn::UseTree::Path(p) => {
                path.push(p.ident.to_string());
                self.tree(&path, &p.tree);
            }
            syn::UseTree::Name(n) => {
                if n.ident != "self" {
                    path.push(n.ident.to_string());
                }
                self.named(&path, path.last().cloned().unwrap_or_default());
            }
            syn::UseTree::Rename(n) => {
                path.push(n.ident.to_string());
                self.named(&path, n.rename.to_string());
            }
            syn::UseTree::Glob(_) => self.named(&path, String::new()),
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.tree(&path, t)),
        }
    }

    fn named(&mut self, path: &[String], name: String) {
        // `use child::Thing` without `self` names a child of this module, or another crate.
        let local = || [self.here.clone(), path.to_vec()].concat();
        let absolute = self.absolute(path).unwrap_or_else(local);
        if self.absolute(path).is_some() {
            self.uses.push(absolute.clone());
        }
        self.passes.insert(name, absolute);
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, m: &'ast syn::ItemMod) {
        if for_tests(&m.attrs) || m.content.is_none() {
            return;
        }
        self.here.push(m.ident.to_string());
        visit::visit_item_mod(self, m);
        self.here.pop();
    }

    fn visit_item_use(&mut self, u: &'ast syn::ItemUse) {
        if !for_tests(&u.attrs) {
            self.tree(&[], &u.tree);
        }
    }

    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        if !for_tests(&f.attrs) {
            visit::visit_item_fn(self, f);
        }
    }

    fn visit_path(&mut self, p: &'ast syn::Path) {
        let segments: Module = p.segments.iter().map(|s| s.ident.to_string()).collect();
        // A single segment is a name that an item of this file or a `use` brought in.
        if segments.len() > 1 {
            let known = self
                .passes
                .get(&segments[0])
                .map(|to| [to.clone(), segments[1..].to_vec()].concat());
            self.uses.extend(self.absolute(&segments).or(known));
        }
        visit::visit_path(self, p);
    }
}

/// Which files of one crate each of them uses, by their places in the list.
pub fn uses(files: &[File]) -> Vec<BTreeSet<usize>> {
    let index: HashMap<&[String], usize> =
        files.iter().enumerate().map(|(i, f)| (&f.module[..], i)).collect();
    let used = |f: &File| -> BTreeSet<usize> {
        f.uses.iter().filter_map(|u| resolve(files, &index, u, 8)).collect()
    };
    files.iter().map(used).collect()
}

/// The circles of one crate.
fn circles(files: &[File]) -> Vec<String> {
    let apart = |(i, all): (usize, BTreeSet<usize>)| -> BTreeSet<usize> {
        let is_apart = |t: &usize| {
            let (a, b) = (&files[i].module, &files[*t].module);
            *t != i && !a.starts_with(b) && !b.starts_with(a)
        };
        all.into_iter().filter(is_apart).collect()
    };
    let edges: Vec<BTreeSet<usize>> = uses(files).into_iter().enumerate().map(apart).collect();
    let mut faults = Vec::new();
    for group in strongly_connected(&edges) {
        let inside = |t: &&usize| group.contains(t);
        let line = |&i: &usize| {
            let to: Vec<&str> = edges[i].iter().filter(inside).map(|&t| &*files[t].path).collect();
            format!("\n    {} uses {}", files[i].path, to.join(", "))
        };
        faults.push(format!("a circle:{}", group.iter().map(line).collect::<String>()));
    }
    faults
}

/// The file that defines what an absolute path names.
fn resolve(
    files: &[File],
    index: &HashMap<&[String], usize>,
    path: &[String],
    depth: usize,
) -> Option<usize> {
    let n = (0..=path.len()).rev().find(|&n| index.contains_key(&path[..n]))?;
    let file = index[&path[..n]];
    let Some(next) = path.get(n) else { return Some(file) };
    match files[file].passes.get(next) {
        Some(to) if depth > 0 && to[..] != path[..=n] => {
            let rest = [to.clone(), path[n + 1..].to_vec()].concat();
            // A name that another crate defines ends at the file that passes it on.
            resolve(files, index, &rest, depth - 1).or(Some(file))
        }
        _ => Some(file),
    }
}

/// Groups of more than one node that reach each other, by reachability: crates have few files.
pub fn strongly_connected(edges: &[BTreeSet<usize>]) -> Vec<BTreeSet<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..edges.len())
        .map(|start| {
            let mut seen = BTreeSet::new();
            let mut open: Vec<usize> = edges[start].iter().copied().collect();
            while let Some(i) = open.pop() {
                if seen.insert(i) {
                    open.extend(&edges[i]);
                }
            }
            seen
        })
        .collect();
    let mut groups: Vec<BTreeSet<usize>> = Vec::new();
    for i in 0..edges.len() {
        if !reach[i].contains(&i) || groups.iter().any(|g| g.contains(&i)) {
            continue;
        }
        groups.push(reach[i].iter().copied().filter(|&j| reach[j].contains(&i)).collect());
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(files: &[(&str, &str)]) -> Repository {
        Repository::of_texts("src", files)
    }

    #[test]
    fn a_circle_between_siblings_is_found_even_through_their_parent() {
        let direct = [("a.rs", "use crate::b::B;"), ("b.rs", "use super::a::A;")];
        assert_eq!(no_circles(&repository(&direct)).len(), 1);
        let passed = [
            ("lib.rs", "mod a; mod b; pub use a::A; use b::B;"),
            ("a.rs", "use crate::B; pub struct A;"),
            ("b.rs", "fn f() -> crate::A { todo!() }"),
        ];
        let faults = no_circles(&repository(&passed));
        assert!(
            faults.len() == 1 && faults[0].contains("a.rs uses crates/x/src/b.rs"),
            "{faults:?}"
        );
    }

    #[test]
    fn a_module_and_its_children_are_one_thing_and_tests_may_use_all() {
        let family = [("m/mod.rs", "mod c; use c::C;"), ("m/c.rs", "use super::M;")];
        assert!(no_circles(&repository(&family)).is_empty());
        let tested = [
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }"),
        ];
        assert!(no_circles(&repository(&tested)).is_empty());
    }
}
