//! Reads the functions that a kernel.toml names: the kernel's entry, and the reference that its
//! results are compared with, which is a second kernel, files of results, or the kernel itself at
//! its default configuration. Output: a [`Recipe`] for each source, without its arguments.

use super::document::{Fault, Table, fault, identifier, text};
use super::flags;
use super::launching::{KEYS, Launching, has_entry, launching};
use super::model::{Argument, ArgumentRole, Values};
use super::recipe::Recipe;
use super::source::{self, Read};
use crate::error::shown;
use std::ops::Range;

const REFERENCE: &[&str] = &["source", "entry", "flags", "outputs", "grid", "block", "shared"];

/// Whether a table describes a kernel in CUDA: by its `language`, else by the ending of its source,
/// else `otherwise`. Only such a table may have the keys of a launch.
pub fn is_cuda(t: &Table, otherwise: &str) -> Result<bool, Fault> {
    let by_name = match t.text("source")? {
        Some(s) if s.ends_with(".cu") => "cuda",
        Some(_) => "c",
        None => otherwise,
    };
    let cuda = t.word("language", &["c", "cuda"], by_name)? == "cuda";
    match KEYS.iter().filter(|_| !cuda).find_map(|k| Some((k, t.get(k)?))) {
        Some((k, v)) => fault(
            v.span(),
            format!(
                "`{k}` says how a CUDA kernel is launched, and this is C; CUDA has `language \
                 = \"cuda\"`"
            ),
        ),
        None => Ok(cuda),
    }
}

/// The name of the function; in CUDA it may lie in a namespace.
pub fn entry(t: &Table, cuda: bool) -> Result<String, Fault> {
    let item = t.need("entry")?;
    let name = text(item)?;
    for part in name.split("::").filter(|_| cuda) {
        identifier(part, item.span())?;
    }
    if cuda { Ok(name.into()) } else { identifier(name, item.span()) }
}

/// How the source at a key becomes a kernel, but for its arguments.
pub fn recipe(
    t: &Table,
    key: &str,
    title: &str,
    entry: &str,
    cuda: bool,
    read: &Read,
) -> Result<Recipe, Fault> {
    let file = t.need(key)?;
    let source = match source::expand(text(file)?, read) {
        Ok(s) => s,
        Err(why) => {
            return fault(file.span(), format!("`{}` cannot be read: {why}", shown(text(file)?)));
        }
    };
    let flags = t.texts("flags")?;
    for (flag, item) in flags.iter().zip(t.list("flags")?) {
        flags::check(flag, cuda, item.span())?;
    }
    Ok(Recipe {
        name: title.into(),
        source: source.into(),
        entry: entry.into(),
        arguments: Vec::new(),
        passed_as: Vec::new(),
        others: Vec::new(),
        flags: flags.into_iter().map(String::from).collect(),
        openmp: false,
        cuda: None,
    })
}

/// A second kernel, which computes the expected results. In the kernel's own source it sees the
/// macros of the knobs.
#[derive(Clone)]
pub struct Second {
    pub recipe: Recipe,
    /// Whether it stands in the source of the kernel.
    pub same: bool,
    /// How it is launched, where it is in CUDA.
    pub launching: Option<Launching>,
}
/// Names of files with their places in the kernel.toml.
pub type Files = Vec<(String, Range<usize>)>;

/// The reference: a second kernel, files that hold the results, or neither.
pub fn reference(
    top: &Table,
    title: &str,
    arguments: &[Argument],
    cuda: bool,
    read: &Read,
) -> Result<(Option<Second>, Files), Fault> {
    let Some(item) = top.get("reference") else { return Ok((None, Files::new())) };
    let t = Table::of("the reference", item, REFERENCE)?;
    if let Some(outputs) = t.get("outputs") {
        if let Some(other) = ["entry", "source", "flags"].iter().find_map(|k| t.get(k)) {
            return fault(
                other.span(),
                "results come from files (`outputs`) or from a second function (`entry`), not \
                 from both",
            );
        }
        let written: Vec<&str> =
            arguments.iter().filter(|a| a.is_written()).map(|a| a.name.as_str()).collect();
        let files: Files = t
            .texts("outputs")?
            .into_iter()
            .zip(t.list("outputs")?)
            .map(|(f, i)| (f.into(), i.span()))
            .collect();
        if files.len() != written.len() {
            return fault(
                outputs.span(),
                format!(
                    "there are {} files for what is written: {}",
                    files.len(),
                    written.join(", ")
                ),
            );
        }
        let random = |a: &&Argument| match &a.role {
            ArgumentRole::Input { values } | ArgumentRole::Inout { values } => {
                !matches!(values, Values::File(..))
            }
            _ => false,
        };
        if let Some(a) = arguments.iter().find(random) {
            return fault(
                outputs.span(),
                format!("results from files need inputs from files: `{}` has no `file`", a.name),
            );
        }
        return Ok((None, files));
    }
    // A second function of the same file needs no second file.
    let same = t.get("source").is_none();
    let own = cuda;
    let cuda = is_cuda(&t, if own { "cuda" } else { "c" })?;
    match t.get("source") {
        None if own != cuda => {
            return fault(
                t.at.clone(),
                "a reference in another language stands in a file of its own: `source = ..`",
            );
        }
        Some(s) if cuda && !own => {
            return fault(s.span(), "the reference of a C kernel is C: nothing here runs on a GPU");
        }
        _ => {}
    }
    let entry = entry(&t, cuda)?;
    let file = if same { top.need("source")? } else { t.need("source")? };
    let mut made = recipe(if same { top } else { &t }, "source", title, &entry, cuda, read)?;
    if cuda {
        has_entry(&made.source, &entry, t.need("entry")?.span(), text(file)?)?;
    }
    made.flags = t.texts("flags")?.into_iter().map(String::from).collect();
    let launching = if cuda { Some(launching(&t, "a reference")?) } else { None };
    Ok((Some(Second { recipe: made, same, launching }), Files::new()))
}
