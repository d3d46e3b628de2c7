//! The rules of `cargo xtask tidy` about functions: at most 80 lines and six parameters, outside
//! tests and tables, and a name for each parameter (no tuple patterns). Input: parsed files;
//! output: a fault with its place for each function that breaks a rule.

use super::repository::{Repository, SourceFile, for_tests};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

const MOST_LINES: usize = 80;
const MOST_PARAMETERS: usize = 6;
/// An arm of a table says one thing.
const LINES_OF_AN_ARM: usize = 6;

/// Functions have at most 80 lines and six parameters.
pub fn small_functions(r: &Repository) -> Vec<String> {
    let mut faults = Vec::new();
    for s in r.sources.iter().filter(|s| !s.is_test) {
        let Some(file) = &s.syntax else { continue };
        let mut visitor = Functions { source: s, faults: &mut faults };
        visitor.visit_file(file);
    }
    faults
}

/// A named function takes no tuple pattern as a parameter.
pub fn named_parameters(r: &Repository) -> Vec<String> {
    let mut faults = Vec::new();
    for s in &r.sources {
        let Some(file) = &s.syntax else { continue };
        let mut visitor = Parameters { source: s, faults: &mut faults };
        visitor.visit_file(file);
    }
    faults
}

struct Functions<'a> {
    source: &'a SourceFile,
    faults: &'a mut Vec<String>,
}

impl Functions<'_> {
    fn look(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (name, first) = (&signature.ident, signature.span().start().line);
        let lines = block.span().end().line + 1 - first;
        let place = format!("{}:{first}: `{name}`", self.source.path);
        if lines > MOST_LINES && !is_table(block) {
            self.faults.push(format!("{place} has {lines} lines, {MOST_LINES} are allowed"));
        }
        let typed = |a: &&syn::FnArg| matches!(a, syn::FnArg::Typed(_));
        let parameters = signature.inputs.iter().filter(typed).count();
        if parameters > MOST_PARAMETERS {
            let most = MOST_PARAMETERS;
            self.faults.push(format!("{place} has {parameters} parameters, {most} are allowed"));
        }
    }
}

/// Whether a body is one `match` or list whose entries each say one thing.
fn is_table(block: &syn::Block) -> bool {
    let Some(syn::Stmt::Expr(last, _)) = block.stmts.last() else { return false };
    let short = |e: &syn::Expr| e.span().end().line - e.span().start().line < LINES_OF_AN_ARM;
    let before = &block.stmts[..block.stmts.len() - 1];
    let head: usize = before.iter().map(|s| s.span().end().line + 1 - s.span().start().line).sum();
    let entries = match last {
        syn::Expr::Match(m) => m.arms.iter().all(|a| short(&a.body)),
        syn::Expr::Array(a) => a.elems.iter().all(short),
        _ => false,
    };
    entries && head < LINES_OF_AN_ARM
}

/// Looks at the parameters of functions that have a name; those of closures are none.
struct Parameters<'a> {
    source: &'a SourceFile,
    faults: &'a mut Vec<String>,
}

/// Whether a pattern takes a tuple apart, which may stand behind a reference.
fn is_tuple(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Tuple(_) => true,
        syn::Pat::Reference(r) => is_tuple(&r.pat),
        syn::Pat::Paren(p) => is_tuple(&p.pat),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Parameters<'_> {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let tuple = |a: &&syn::FnArg| matches!(a, syn::FnArg::Typed(p) if is_tuple(&p.pat));
        for parameter in signature.inputs.iter().filter(tuple) {
            let (path, line) = (&self.source.path, parameter.span().start().line);
            self.faults.push(format!(
                "{path}:{line}: `{}` takes a tuple pattern as a parameter: give the parameters \
                 names of their own, or the pair a struct",
                signature.ident
            ));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_mod(&mut self, m: &'ast syn::ItemMod) {
        if !for_tests(&m.attrs) {
            visit::visit_item_mod(self, m);
        }
    }

    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        if !for_tests(&f.attrs) {
            self.look(&f.sig, &f.block);
            visit::visit_item_fn(self, f);
        }
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        if !for_tests(&f.attrs) {
            self.look(&f.sig, &f.block);
            visit::visit_impl_item_fn(self, f);
        }
    }

    fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
        if let Some(block) = &f.default {
            self.look(&f.sig, block);
        }
        visit::visit_trait_item_fn(self, f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        named_parameters(&Repository::of_texts("src", &[("a.rs", text)]))
    }

    #[test]
    fn tuple_patterns_of_named_functions_are_found_in_methods_and_tests_too() {
        let found = faults("fn f(a: u8,\n (b, c): (u8, u8)) {}");
        let fault = "crates/x/src/a.rs:2: `f` takes a tuple pattern as a parameter: ";
        assert!(found.len() == 1 && found[0].starts_with(fault), "{found:?}");
        let text = "
            struct S;
            impl S { fn g(&self, &(a, b): &(u8, u8)) {} }
            impl T for S { fn h((): ()) {} }
            trait T { fn h((a, _): (u8, u8)) { fn inside((c, d): (u8, u8)) {} } }
            #[cfg(test)] mod tests { fn k(n: u8, (a, b): (u8, u8), (c, d): (u8, u8)) {} }";
        assert_eq!(faults(text).len(), 6);
    }

    #[test]
    fn closures_arrays_and_structs_may_be_taken_apart() {
        let text = "
            struct P { x: u8 }
            fn f([a, b]: [u8; 2], P { x }: P, pair: (u8, u8)) {
                let g = |(a, b): (u8, u8)| a + b;
            }
            trait T { fn g(&self, pair: (u8, u8)); }";
        assert!(faults(text).is_empty());
    }
}
