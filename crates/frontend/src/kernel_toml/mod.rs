//! Reads kernel.toml, the file by which users bring kernels of their own in C or CUDA: source,
//! arguments, knobs, constraints and sets of sizes (as a Kernel Tuner script states them). Output:
//! a [`UserKernel`] for each set of sizes, which is a task. `squall init` writes an example with
//! all keys.
//!
//! `document.rs` holds the text with places, `model.rs` checks arguments, knobs and problems,
//! `file.rs` makes the kernels, `recipe.rs` writes the C around the user's function.

mod cuda;
mod document;
mod file;
mod flags;
mod launching;
mod listed;
mod model;
mod recipe;
mod reference;
mod source;
mod user_kernel;

pub use source::Read;
pub use user_kernel::UserKernel;

use crate::error::ImportError;
use document::{Fault, Table, fault, text};
use file::File;
use listed::Listed;
use model::{Argument, ArgumentRole, PassedAs, ProblemValues, TunedKnob};
use reference::{entry, is_cuda, recipe, reference};
use squall_core::space::Knob;
use toml::de::DeTable;

const TOP: &[&str] = &[
    "name",
    "language",
    "source",
    "entry",
    "flags",
    "openmp",
    "tolerance",
    "flop",
    "constraints",
    "configurations",
    "argument",
    "knob",
    "problem",
    "reference",
    "grid",
    "block",
    "shared",
];

/// Reads a kernel.toml: one kernel for each of its problems. `name` is the file's name for errors,
/// `read` gives the content of the files that it names.
pub fn import_kernel(
    contents: &str,
    name: &str,
    read: &Read,
) -> Result<Vec<UserKernel>, ImportError> {
    kernels(contents, read).map_err(|f| f.show(name, contents))
}

fn kernels(contents: &str, read: &Read) -> Result<Vec<UserKernel>, Fault> {
    let document = DeTable::parse(contents)
        .map_err(|e| Fault { at: e.span().unwrap_or(0..0), message: e.message().trim().into() })?;
    let top = Table::new("a kernel.toml", document.get_ref(), 0..0, TOP)?;
    let cuda = is_cuda(&top, "c")?;
    let entry = entry(&top, cuda)?;
    let title = top.text("name")?.unwrap_or(&entry).to_string();
    let arguments = arguments(&top)?;
    let knobs = knobs(&top, &arguments, cuda)?;
    let problems = problems(&top, &knobs, cuda)?;
    let launching = if cuda { Some(launching::launching(&top, "a kernel")?) } else { None };
    let recipe = recipe(&top, "source", &title, &entry, cuda, read)?;
    if cuda {
        let (at, file) = (top.need("entry")?.span(), top.text("source")?.unwrap_or(""));
        launching::has_entry(&recipe.source, &entry, at, file)?;
        if let Some(o) = top.get("openmp") {
            return fault(
                o.span(),
                "`openmp` is for C: a GPU's threads are those of `block` and `grid`",
            );
        }
    }
    let (reference, results) = reference(&top, &title, &arguments, cuda, read)?;
    let listed = listed(&top, &knobs, read)?;
    let file = File { recipe, launching, reference, results, top, arguments, knobs, listed, read };
    problems.iter().map(|p| file.kernel(p, &title)).collect()
}

/// The arguments of the call, of which at least one is written.
fn arguments(top: &Table) -> Result<Vec<Argument>, Fault> {
    let mut taken = Vec::new();
    let all: Vec<Argument> = top
        .list("argument")?
        .into_iter()
        .map(|a| model::argument(a, &mut taken))
        .collect::<Result<_, _>>()?;
    if all.is_empty() {
        return fault(
            top.at.clone(),
            "the kernel needs its arguments, in the order of the call: `[[argument]]` tables with \
             name, type, role",
        );
    }
    if !all.iter().any(Argument::is_written) {
        return fault(
            top.need("argument")?.span(),
            "no argument is written: one or more have role = \"output\" or \"inout\"",
        );
    }
    Ok(all)
}

/// The knobs; those that are passed as arguments have an argument of the same name.
fn knobs(top: &Table, arguments: &[Argument], cuda: bool) -> Result<Vec<TunedKnob>, Fault> {
    let mut taken = Vec::new();
    let all: Vec<TunedKnob> = top
        .list("knob")?
        .into_iter()
        .map(|k| model::knob(k, cuda, &mut taken))
        .collect::<Result<_, _>>()?;
    if all.is_empty() {
        return fault(
            top.at.clone(),
            "there is nothing to tune: it needs a `[[knob]]` with name and values",
        );
    }
    let is_knob = |a: &&Argument| matches!(a.role, ArgumentRole::Knob);
    for k in &all {
        let n = &k.knob.name;
        let passed = arguments.iter().filter(is_knob).any(|a| a.name == *n);
        if passed != (k.passed_as == PassedAs::Argument) {
            return fault(
                k.at.clone(),
                format!(
                    "a knob with `as = \"argument\"` needs an argument with the same name and \
                     role = \"knob\", and the other way round: `{n}`"
                ),
            );
        }
    }
    let missing = |a: &&Argument| !all.iter().any(|k| k.knob.name == a.name);
    match arguments.iter().filter(is_knob).find(missing) {
        Some(a) => fault(
            top.need("argument")?.span(),
            format!("no knob is called `{}`, as this argument is", a.name),
        ),
        None => Ok(all),
    }
}

/// The configurations that the file lists, if it does.
fn listed(top: &Table, knobs: &[TunedKnob], read: &Read) -> Result<Option<Listed>, Fault> {
    let Some(item) = top.get("configurations") else { return Ok(None) };
    let knobs: Vec<Knob> = knobs.iter().map(|k| k.knob.clone()).collect();
    listed::read(text(item)?, item.span(), &knobs, read).map(Some)
}

/// The problems; one without sizes where the file has none.
fn problems(top: &Table, knobs: &[TunedKnob], cuda: bool) -> Result<Vec<ProblemValues>, Fault> {
    let limits = launching::limits(&launching::LARGEST);
    let mut all: Vec<ProblemValues> = Vec::new();
    for item in top.list("problem")? {
        let p = model::problem(item, all.first())?;
        if let Some((n, _)) = p.sizes.iter().find(|s| knobs.iter().any(|k| k.knob.name == s.0)) {
            return fault(p.at, format!("`{n}` is a knob already"));
        }
        if let Some((n, _)) = p.sizes.iter().find(|s| cuda && limits.iter().any(|l| l.0 == s.0)) {
            return fault(p.at, format!("`{n}` is a limit of the device: choose another name"));
        }
        if all.iter().any(|q| q.name == p.name) {
            return fault(p.at, format!("a problem above is called `{}` too", p.name));
        }
        all.push(p);
    }
    if all.is_empty() {
        all.push(ProblemValues { name: String::new(), sizes: Vec::new(), at: 0..0 });
    }
    Ok(all)
}

#[cfg(test)]
mod cuda_tests;
#[cfg(test)]
mod tests;
