//! Rules about functions: at most 80 lines and six parameters, outside tests and tables.

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
